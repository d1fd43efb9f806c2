//! Directories with odd names, by every way in and every way out: the name arrives whole, stays one
//! name, and steers neither a terminal nor a log nor a page.

mod outputs;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use dirkeeper::health::dir::steers;

use super::*;
use outputs::*;

/// Names that are text. Also what is nearly the text of another one, and what some output has a
/// meaning for.
const TEXTS: [&str; 40] = [
    "a b",
    " blanks around ",
    "tab\there",
    "line\nfeed",
    "return\rhere",
    "end\n",
    "back\\slash",
    "at its end\\",
    "\"double\" 'single' `command` $(command) $HOME ${x}",
    "glob*?[a-z]{b,c}~!",
    "-dash",
    "--listen=x",
    "#comment = x",
    "a,b;c:d=e|f&g",
    "%2e%2e%ff%zz?since=1#x",
    "+plus",
    "...",
    "esc\u{1b}]0;owned\u{7}\u{1b}[2J",
    "c1\u{9b}2J\u{85}",
    "\u{1}\u{8}\u{c}\u{7f}",
    "ümläut e\u{301}",
    "😀👩‍👩‍👧🏳️‍🌈",
    "עברית العربية",
    "turned\u{202e}gnp.exe\u{2066}\u{2069}",
    "separators\u{2028}\u{2029}\u{a0}\u{feff}\u{200b}x",
    "<img src=x onerror=alert(1)>",
    "--><script>alert(1)",
    "\"><b x=\"",
    "&lt;&amp;",
    "\\xff",
    "\\x5cxff",
    "\\x0a",
    "\\n",
    "\\\\x0a",
    "\\x+f\\xF\\xFf",
    "\\040\\012",
    "{dir=\"x\"} 1",
    "x\n2026-11-30T01:02:03.456Z ERROR forged",
    "x\ndata: forged\n\nid: 9",
    "\u{10ffff}\u{fffd}",
];

/// Names that are no text, and the longest ones.
fn bytes() -> Vec<Vec<u8>> {
    vec![
        b"\xff\xfe".to_vec(),
        b"\xff".to_vec(),
        b"latin\xe9 \x80\n".to_vec(),
        b"\\\xff".to_vec(),
        b"\\x\xff".to_vec(),
        b"cut \xf0\x9f\x98".to_vec(),
        b"\xed\xa0\x80".to_vec(),
        vec![b'l'; 255],
        vec![0xff; 255],
        "é".repeat(127).into_bytes(),
        "\u{1b}".repeat(255).into_bytes(),
    ]
}

fn texts() -> Vec<Vec<u8>> {
    TEXTS.map(|name| name.as_bytes().to_vec()).to_vec()
}

/// Makes a directory of each name.
fn make(bench: &Bench, names: &[Vec<u8>]) -> Vec<PathBuf> {
    let paths = names.iter().map(|name| bench.path(OsStr::from_bytes(name)));
    let paths: Vec<PathBuf> = paths.collect();
    for path in &paths {
        fs::create_dir(path).unwrap();
    }
    paths
}

/// The longest path of the system, of components that are as long as can be.
fn deepest(bench: &Bench) -> PathBuf {
    const LONGEST: usize = 4095;
    let mut path = bench.0.path().to_owned();
    loop {
        let room = LONGEST - path.as_os_str().len();
        if room < 2 {
            return path;
        }
        // Never a rest of one byte, which would be a slash only.
        let length = if room == 257 {
            254
        } else {
            (room - 1).min(255)
        };
        path.push("d".repeat(length));
        fs::create_dir(&path).unwrap();
    }
}

fn flags(paths: &[PathBuf]) -> Vec<OsString> {
    let flag = |path: &PathBuf| {
        let mut flag = OsString::from("ledger=");
        flag.push(path);
        [OsString::from("--dir"), flag]
    };
    paths.iter().flat_map(flag).collect()
}

const HOOK: &str = r#"[[hook]]
name = "keep"
events = ["diskVanished"]
command = ["/bin/sh", "-c", "printf %s \"$DIRKEEPER_DIR\" >HEARD/.$DIRKEEPER_SEQ; cat >HEARD/$DIRKEEPER_SEQ.json; mv HEARD/.$DIRKEEPER_SEQ HEARD/$DIRKEEPER_SEQ.dir"]
"#;

fn order(agent: &Agent, order: &str, dir: &Value) -> String {
    let body = serde_json::json!({ "dir": dir["path"] }).to_string();
    let length = body.len();
    agent.answer(format!(
        "POST /api/v1/{order} HTTP/1.0\r\nHost: a\r\nAuthorization: Bearer secret\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    ))
}

/// All of it, for an agent that was told of these directories in some way.
fn check_all(bench: &Bench, arguments: &[OsString], paths: &[PathBuf], check_flags: &[OsString]) {
    let agent = bench.agent(arguments);
    wait_until("all are writable", || {
        agent.dirs().matches(": writable,").count() == paths.len()
    });
    // Directories of a test are on one file system, the journal among them.
    let mut problems = agent.problems();
    problems.retain(|problem| !problem.starts_with("rolesShareDevice"));
    assert_eq!(problems, [""; 0]);
    check_api(&agent, paths);
    check_metrics(&agent, paths);
    check_page(&agent, paths);
    check_commands(bench, &agent, paths, check_flags);
    drop(agent);

    // Known by their pins now, and gone; the probes left nothing in them.
    let agent = bench.agent(arguments);
    wait_until("all are writable again", || {
        agent.dirs().matches(": writable,").count() == paths.len()
    });
    for path in paths.iter() {
        wait_until("no probe file, so no more in it", || {
            fs::remove_dir(path).is_ok()
        });
    }
    wait_until("all have vanished", || {
        agent.dirs().matches(": vanished,").count() == paths.len()
    });
    let heard = bench.path("heard");
    if heard.exists() {
        check_hooks(&heard, paths);
    }
    check_page(&agent, paths);
    check_metrics(&agent, paths);
    check_events(bench, &agent, paths);
    for path in paths {
        fs::create_dir(path).unwrap();
    }
    wait_until("all are back", || {
        agent.dirs().matches(": writable,").count() == paths.len()
    });
    let log = agent.log();
    agent.finish();
    check_log(&log, paths);
}

fn own_toml(bench: &Bench) -> String {
    fs::create_dir(bench.path("heard")).unwrap();
    let state = bench.name("state");
    let hook = HOOK.replace("HEARD", &bench.name("heard"));
    let token = bench.write("token", "secret\n");
    bench.set_mode("token", 0o600);
    format!(
        "listen = \"127.0.0.1:0\"\nstate_dir = {state:?}\ncontrol_token_file = {token:?}\n\
         [thresholds]\nwarn = 0.9998\nfull = 0.9999\ndwell = \"100ms\"\n[probe]\ninterval = \"1s\"\n{hook}"
    )
}

fn words(arguments: &[&str]) -> Vec<OsString> {
    arguments.iter().map(OsString::from).collect()
}

#[test]
fn every_name_works_from_the_command_line() {
    let bench = Bench::new();
    let mut paths = make(&bench, &[texts(), bytes()].concat());
    paths.push(deepest(&bench));
    bench.write("a.toml", own_toml(&bench));
    let flags = flags(&paths);
    let arguments = [words(&["--config", "a.toml"]), flags.clone()].concat();
    check_all(&bench, &arguments, &paths, &flags);
}

#[test]
fn every_name_that_is_text_works_from_a_configuration_file() {
    let bench = Bench::new();
    let paths = make(&bench, &texts());
    let mut toml = own_toml(&bench);
    for path in &paths {
        // JSON's strings are TOML's, except for what TOML wants escaped as well.
        let path = serde_json::to_string(path.to_str().unwrap()).unwrap();
        let path = path.replace('\u{7f}', "\\u007f");
        writeln!(toml, "[[dir]]\npath = {path}\nrole = \"ledger\"").unwrap();
    }
    bench.write("a.toml", toml);
    let config = words(&["--config", "a.toml"]);
    check_all(&bench, &config, &paths, &config);
}

/// BookKeeper trims the items of a list, so a name cannot end in a blank there, and replaces `${…}`.
#[test]
fn every_name_that_is_text_works_from_the_bookies_file() {
    let bench = Bench::new();
    let mut names = texts();
    names.retain(|name| b' ' < *name.last().unwrap() && !text(name).contains("${"));
    let paths = make(&bench, &names);
    let mut lists = Vec::new();
    for path in &paths {
        let mut item = String::new();
        for unit in path.to_str().unwrap().encode_utf16() {
            match char::from_u32(u32::from(unit)) {
                // Once for the file, once for the list.
                Some('\\') => item.push_str("\\\\\\\\"),
                Some(',') => item.push_str("\\\\,"),
                Some(plain) if plain.is_ascii_alphanumeric() || plain == '/' => item.push(plain),
                _ => write!(item, "\\u{unit:04x}").unwrap(),
            }
        }
        lists.push(item);
    }
    bench.dir("j");
    let journal = bench.name("j");
    let conf = format!(
        "journalDirectories={journal}\nledgerDirectories={}\n",
        lists.join(",\\\n  ")
    );
    bench.write("bk.conf", conf);
    let imported = bench.run(&["config", "import", "bk.conf"]);
    check_quiet("config import", &text(&imported.stdout));
    assert_eq!(
        imported.status.code(),
        Some(0),
        "{}",
        text(&imported.stderr)
    );
    bench.write("a.toml", own_toml(&bench));
    let paths = [paths, vec![bench.path("j")]].concat();
    let sources = words(&["--config", "a.toml", "--bookie-conf", "bk.conf"]);
    check_all(&bench, &sources, &paths, &sources);
}

/// As after a swap of the disk below a link: found by its pin, and accepted by the text that a
/// document has for it.
#[test]
fn a_replaced_directory_of_any_name_is_known_by_its_pin_and_accepted() {
    let bench = Bench::new();
    let names = [texts(), bytes()].concat();
    let links = names.iter().map(|name| bench.path(OsStr::from_bytes(name)));
    let links: Vec<PathBuf> = links.collect();
    let lead_to = |kind: &str| {
        for (index, link) in links.iter().enumerate() {
            let disk = bench.path(format!("{kind} disk {index}"));
            fs::create_dir(&disk).unwrap();
            let _ = fs::remove_file(link);
            std::os::unix::fs::symlink(disk, link).unwrap();
        }
    };
    bench.write("a.toml", own_toml(&bench));
    let arguments = [words(&["--config", "a.toml"]), flags(&links)].concat();
    let all = |agent: &Agent, status: &str| {
        wait_until(&format!("all are {status}"), || {
            agent.dirs().matches(&format!(": {status},")).count() == links.len()
        });
    };
    lead_to("right");
    let agent = bench.agent(&arguments);
    all(&agent, "writable");
    agent.finish();
    lead_to("wrong");
    let agent = bench.agent(&arguments);
    all(&agent, "replaced");
    for dir in agent.status()["dirs"].as_array().unwrap() {
        for order_name in ["probe", "accept"] {
            let answer = order(&agent, order_name, dir);
            assert!(
                answer.starts_with("HTTP/1.0 202"),
                "{order_name} {dir}: {answer}"
            );
        }
    }
    all(&agent, "writable");
    agent.finish();
}

/// Files of our own have odd names as well, and errors name them.
#[test]
fn no_error_steers_whatever_the_name_in_it() {
    let bench = Bench::new();
    for name in [texts(), bytes()].concat() {
        let name = bench.path(OsStr::from_bytes(&name));
        let mut relative = OsString::from("ledger=x");
        relative.push(name.file_name().unwrap());
        for (words, name) in [
            (&["check", "--config"][..], name.as_os_str()),
            (&["check", "--dir"], &relative),
            (&["config", "check", "--dir"], &relative),
            (&["config", "import"], name.as_os_str()),
            (&["events", "--state-dir"], name.as_os_str()),
            (&["simulate", "--"], name.as_os_str()),
        ] {
            let mut command = bench.program();
            command.args(words).arg(name);
            let output = output(command);
            assert_ne!(output.status.code(), Some(0));
            let said = text(&output.stderr) + &text(&output.stdout);
            check_quiet(&format!("{words:?}"), &said);
            let lines = said.trim_end().lines().count();
            assert_eq!(
                lines,
                if words[..2] == ["config", "check"] {
                    2
                } else {
                    1
                },
                "{said}"
            );
            assert!(
                !said.contains('\u{fffd}') || name.to_str().is_some(),
                "{said}"
            );
        }
    }
}

const INSIDE: &str = "DIRKEEPER_TEST_MOUNTS";

/// Mount points of all these names, as the kernel's table writes them. The test program runs itself
/// again in a mount name space of its own, with which every mount is gone, however it ends.
#[test]
fn a_mount_point_of_any_name_is_found_in_the_mount_table() {
    if std::env::var_os(INSIDE).is_some() {
        return mount_points_of_any_name();
    }
    if !nix::unistd::geteuid().is_root() {
        // Written past the test harness, which would keep it for itself.
        let _ = std::io::stderr().write_all(b"SKIPPED names: it needs root for its mounts\n");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("names::a_mount_point_of_any_name_is_found_in_the_mount_table")
        .env(INSIDE, "1")
        .env("TMPDIR", folder.path());
    let output = output(command);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
}

fn mount_points_of_any_name() {
    use nix::mount::{MsFlags, mount, umount};
    let bench = Bench::new();
    let mut paths = make(&bench, &[texts(), bytes()].concat());
    paths.push(deepest(&bench));
    let sources = ["of a disk\n\\040\t<b>", "", "#x", "\u{1b}[2J"];
    let mount_all = || {
        for (path, source) in paths.iter().zip(sources.iter().cycle()) {
            let nothing = MsFlags::empty();
            mount(Some(*source), path, Some("tmpfs"), nothing, Some("size=1m")).unwrap();
        }
    };
    mount_all();
    bench.write("a.toml", own_toml(&bench));
    let arguments = [words(&["--config", "a.toml"]), flags(&paths)].concat();
    let agent = bench.agent(&arguments);
    let all = |status: &str| {
        wait_until(&format!("all are {status}"), || {
            agent.dirs().matches(&format!(": {status},")).count() == paths.len()
        });
    };
    all("writable");
    let status = agent.status();
    let mut devices = BTreeSet::new();
    for dir in status["dirs"].as_array().unwrap() {
        let (mount, path) = (&dir["mount"], said(dir["path"].as_str().unwrap()));
        assert_eq!(said(mount["point"].as_str().unwrap()), path);
        assert_eq!(mount["fsType"], "tmpfs");
        let index = paths.iter().position(|one| *one == path).unwrap();
        assert_eq!(mount["source"], sources[index % sources.len()], "{path:?}");
        assert!(devices.insert(mount["device"].to_string()), "{dir}");
    }
    check_page(&agent, &paths);
    for path in &paths {
        wait_until("unmounted beside the agent", || umount(path).is_ok());
    }
    all("vanished");
    check_quiet("the log", &agent.log());
    agent.finish();
}

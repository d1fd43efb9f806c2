//! What shows only while the agent runs: it goes on, and says what is wrong for as long as it is.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use super::*;

fn toml(bench: &Bench, dirs: &[&str], rest: &str) -> String {
    let state_dir = bench.name("state");
    let mut toml = format!("listen = \"127.0.0.1:0\"\nstate_dir = {state_dir:?}\n");
    for dir in dirs {
        let path = bench.name(dir);
        write!(toml, "[[dir]]\npath = {path:?}\nrole = \"ledger\"\n").unwrap();
    }
    toml + rest
}

/// Directories that are none have their status and cause; the others are judged all the same.
#[test]
fn directories_that_are_none() {
    let bench = Bench::new();
    bench.write("file", "");
    bench.fifo("pipe");
    symlink("nowhere", bench.path("dangling")).unwrap();
    symlink("loop", bench.path("loop")).unwrap();
    let names: [&[u8]; 8] = [
        b"file",
        b"file/below",
        b"pipe",
        b"missing",
        b"dangling",
        b"loop",
        b"two\nlines",
        b"\xff\xfe not UTF-8",
    ];
    fs::create_dir(bench.path(OsStr::from_bytes(names[6]))).unwrap();
    fs::create_dir(bench.path("good")).unwrap();
    let mut command = bench.program();
    command.args(["run", "--listen", "127.0.0.1:0"]);
    for name in names.into_iter().chain([&b"good"[..]]) {
        let mut dir = std::ffi::OsString::from("ledger=");
        dir.push(bench.path(OsStr::from_bytes(name)));
        command.arg("--dir").arg(dir);
    }
    let agent = bench.spawn(command);
    insta::assert_snapshot!("directories_at_run_time", agent.dirs());
    let (_, found) = agent.get(&format!(
        "/api/v1/dirs/{}/%ff%fe%20not%20UTF-8",
        bench.0.path().display()
    ));
    assert!(found.contains(r"\\xff\\xfe not UTF-8"), "{found}");
    for page in ["/", "/metrics", "/api/v1/status", "/api/v1/events"] {
        let (status, body) = agent.get(page);
        assert_eq!(status, 200, "{page}");
        assert!(
            !body.contains('\u{fffd}'),
            "{page} lost bytes of a path: {body}"
        );
    }
    let log = agent.finish();
    assert!(!log.contains('\u{fffd}'), "{log}");
    assert!(
        !bench.path("missing").exists(),
        "it creates no watched directory"
    );
}

/// Found at the first start, known at the second, gone with the second name.
#[test]
fn one_directory_by_two_names() {
    let bench = Bench::new();
    bench.dir("l1");
    symlink("l1", bench.path("link")).unwrap();
    bench.write("a.toml", toml(&bench, &["l1", "link"], ""));
    for _ in 0..2 {
        let agent = bench.agent(&["--config", "a.toml"]);
        assert_eq!(
            agent.wait_problem("leads to"),
            "the ledger directory DIR/link leads to the ledger directory DIR/l1, which is watched already: name each directory once"
        );
        agent.finish();
    }
    let agent = bench.agent(&["--config", "a.toml"]);
    agent.wait_problem("leads to");
    bench.write("a.toml", toml(&bench, &["l1"], ""));
    agent.wait_no_problem("leads to");
    agent.finish();
}

#[test]
fn hooks_that_do_not_do_their_work() {
    let bench = Bench::new();
    bench.write("plain", "not a program");
    let plain = bench.name("plain");
    let (gone, ended) = (bench.name("gone"), bench.name("ended"));
    let hooks = format!(
        r#"
[[hook]]
name = "missing"
command = ["/nonexistent/page"]
[[hook]]
name = "plain"
command = [{plain:?}]
[[hook]]
name = "deaf"
command = ["/bin/sh", "-c", "exec <&-"]
[[hook]]
name = "loud"
events = ["diskVanished"]
command = ["/bin/sh", "-c", "head -c 1G /dev/zero"]
[[hook]]
name = "leaves"
command = ["/bin/sh", "-c", "(until test -e {gone}; do sleep 0.1; done; echo end >>{ended}) & echo left"]
"#
    );
    bench.write("a.toml", toml(&bench, &["missing"], &hooks));
    let agent = bench.agent(&["--config", "a.toml"]);
    let listener = |name: &str| {
        let status = agent.status();
        let listeners = status["listeners"].as_array().unwrap();
        let found = listeners.iter().find(|one| one["name"] == name);
        let counts = |key: &str| found.unwrap()[key].as_u64().unwrap();
        (counts("delivered"), counts("failed"), counts("pending"))
    };
    for (name, expected) in [
        ("missing", (0, 3, 0)),
        ("plain", (0, 3, 0)),
        ("deaf", (3, 0, 0)),
        ("loud", (1, 0, 0)),
        ("leaves", (3, 0, 0)),
    ] {
        wait_until(&format!("{name} has its events"), || {
            listener(name) == expected
        });
    }
    let missing = agent.wait_problem("hook missing failed");
    assert!(
        missing.contains("/nonexistent/page: No such file or directory"),
        "{missing}"
    );
    let plain = agent.wait_problem("hook plain failed");
    assert!(plain.contains("DIR/plain: Permission denied"), "{plain}");
    // Counted first, logged then.
    let cut = format!("and {} bytes more", (1_u64 << 30) - (64 << 10));
    for part in [r#"output "left""#, &cut] {
        wait_until(part, || agent.log().contains(part));
    }
    agent.finish();
    // Each event left one behind, which lives on and ends.
    fs::write(&gone, "").unwrap();
    let count = || {
        fs::read_to_string(&ended)
            .unwrap_or_default()
            .lines()
            .count()
    };
    wait_until("what was left behind ends", || count() == 3);

    let mut tried = String::new();
    for (hook, code) in [("missing", 1), ("plain", 1), ("deaf", 0)] {
        let line = [
            "hook", "test", hook, "--event", "diskFull", "--config", "a.toml",
        ];
        let output = bench.run(&line);
        tried += &bench.transcript(&line, &output);
        assert_eq!(output.status.code(), Some(code), "{tried}");
    }
    assert!(
        tried.contains("/nonexistent/page: No such file or directory"),
        "{tried}"
    );
}

#[test]
fn a_broken_reload_changes_nothing_and_heals() {
    let bench = Bench::new();
    for name in ["l1", "l2", "l3"] {
        bench.dir(name);
    }
    bench.write("a.toml", toml(&bench, &["l1", "l2"], ""));
    let agent = bench.agent(&["--config", "a.toml"]);
    let paths = || {
        let status = agent.status();
        let dirs = status["dirs"].as_array().unwrap().iter();
        let path = |dir: &Value| bench.shorten(dir["path"].as_str().unwrap());
        dirs.map(path).collect::<Vec<_>>()
    };
    for (broken, expected) in [
        (
            toml(&bench, &["l1", "l3"], "").replace("ledger\"", "ledge\""),
            "dir.role = \"ledge\"",
        ),
        (
            toml(&bench, &["l3"], "[thresholds]\nfull = 95\n"),
            "thresholds.full = 95",
        ),
        (String::new(), "no directory is named"),
        ("\0".to_owned(), "a.toml:1"),
    ] {
        bench.write("a.toml", broken);
        let problem = agent.wait_problem(expected);
        assert!(
            problem.starts_with("the changed configuration is not valid"),
            "{problem}"
        );
        assert_eq!(paths(), ["DIR/l1", "DIR/l2"]);
        assert!(agent.metric("dirkeeper_config_reload_ok 0"));
    }
    fs::remove_file(bench.path("a.toml")).unwrap();
    agent.wait_problem("No such file or directory");
    bench.dir("a.toml");
    agent.signal(Signal::SIGHUP);
    agent.wait_problem("Is a directory");
    fs::remove_dir(bench.path("a.toml")).unwrap();

    bench.write("a.toml", toml(&bench, &["l2", "l3"], ""));
    agent.wait_no_problem("the changed configuration");
    wait_until("the new directories", || paths() == ["DIR/l2", "DIR/l3"]);
    assert!(agent.metric("dirkeeper_config_reload_ok 1"));
    wait_until("the new one is judged", || {
        agent.dirs().matches(": writable,").count() == 2
    });
    let l1 = format!("dir=\"{}\"", bench.name("l1"));
    let (_, metrics) = agent.get("/metrics");
    assert!(
        !metrics.contains(&l1),
        "series of a removed directory: {metrics}"
    );
    assert_eq!(
        agent.get(&format!("/api/v1/dirs/{}", bench.name("l1"))).0,
        404
    );
    agent.finish();
}

/// What waits at a hook for a directory that is not watched any more is not news, and does not come
/// again after a restart.
#[test]
fn a_removed_directory_takes_its_waiting_events_along() {
    let bench = Bench::new();
    bench.dir("l1");
    let heard = bench.name("heard");
    let hooks = format!(
        "[[hook]]\nname = \"busy\"\nevents = [\"diskVanished\"]\ncommand = [\"/bin/sh\", \"-c\", \"echo $DIRKEEPER_DIR >>{heard}; exit 75\"]\n"
    );
    bench.write("a.toml", toml(&bench, &["l1", "gone1", "gone2"], &hooks));
    let agent = bench.agent(&["--config", "a.toml"]);
    let pending = || agent.status()["listeners"][1]["pending"].as_u64().unwrap();
    wait_until("both wait", || pending() == 2);
    bench.write("a.toml", toml(&bench, &["l1", "gone2"], &hooks));
    wait_until("one is ended", || pending() == 1);
    let log = agent.finish();
    assert!(
        log.contains("1 events waited at hooks for directories that were removed"),
        "{log}"
    );

    fs::remove_file(&heard).unwrap();
    let agent = bench.agent(&["--config", "a.toml"]);
    let heard = || fs::read_to_string(&heard).unwrap_or_default();
    wait_until("the other is tried again", || heard().lines().count() > 1);
    assert!(!heard().contains("gone1"), "{}", heard());
    agent.finish();
}

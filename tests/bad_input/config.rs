//! Configuration files and command lines that say what cannot be. All are given to `run`, which must
//! not start.

use super::*;

const DIR: &str = "[[dir]]\npath = \"/mnt/l1\"\nrole = \"ledger\"\n";

/// Each file is refused with 78, and the errors are in the snapshot.
fn check(name: &str, files: &[(&str, Vec<u8>)]) {
    let bench = Bench::new();
    let mut transcripts = String::new();
    for (case, content) in files {
        bench.write("a.toml", content);
        writeln!(transcripts, "# {case}").unwrap();
        transcripts += &bench.refused(&["run", "--config", "a.toml"], 78);
    }
    insta::assert_snapshot!(name, transcripts);
}

/// A valid directory after these lines.
fn with_dir(lines: &str) -> Vec<u8> {
    format!("{lines}\n{DIR}").into_bytes()
}

#[test]
fn directories_that_cannot_be() {
    let dirs = |text: &str| text.as_bytes().to_vec();
    check(
        "directories",
        &[
            ("an empty file", Vec::new()),
            (
                "only blanks, with a mark and CRLF",
                dirs("\u{feff}\r\n\r\n"),
            ),
            ("no directories", dirs("log_level = \"info\"\n")),
            ("twice", dirs(&format!("{DIR}{DIR}"))),
            (
                "twice, written differently",
                dirs(&format!(
                    "{DIR}[[dir]]\npath = \"/mnt/./l1//\"\nrole = \"ledger\"\n"
                )),
            ),
            (
                "relative",
                dirs("[[dir]]\npath = \"l1\"\nrole = \"ledger\"\n"),
            ),
            ("empty", dirs("[[dir]]\npath = \"\"\nrole = \"ledger\"\n")),
            (
                "with a zero byte",
                dirs("[[dir]]\npath = \"/a\\u0000b\"\nrole = \"ledger\"\n"),
            ),
            ("without a path", dirs("[[dir]]\nrole = \"ledger\"\n")),
            ("without a role", dirs("[[dir]]\npath = \"/mnt/l1\"\n")),
            (
                "of no role",
                dirs("[[dir]]\npath = \"/mnt/l1\"\nrole = \"ledgers\"\n"),
            ),
            (
                "as one section",
                dirs("[dir]\npath = \"/mnt/l1\"\nrole = \"ledger\"\n"),
            ),
            ("as a list of words", dirs("dir = [\"/mnt/l1\"]\n")),
        ],
    );
}

#[test]
fn values_that_cannot_be() {
    check(
        "values",
        &[
            (
                "ratios",
                with_dir(
                    "[thresholds]\nwarn = nan\nfull = 95\nlow_watermark = -0.5\ninodes_warn = 1.5\ninodes_full = \"0.9\"\n\
                     [thresholds.journal]\nwarn = inf\nfull = 0\n",
                ),
            ),
            ("warn over full", with_dir("[thresholds]\nwarn = 0.97\n")),
            (
                "warn over full, for one directory",
                format!("[thresholds]\nfull = 0.92\n{DIR}warn = 0.93\n").into_bytes(),
            ),
            (
                "low watermark over full",
                with_dir("[thresholds]\nlow_watermark = 0.96\n"),
            ),
            (
                "sizes and durations without unit",
                with_dir(
                    "[thresholds]\nwarn_available = \"5\"\nfull_available = 5\nhigh_priority_reserve = \"1GB!\"\ndwell = 30\n\
                     [probe]\ninterval = \"10\"\nslow = \"-1s\"\ndeadline = \"\"\nspace_interval = \"0s\"\n",
                ),
            ),
            (
                "numbers that fit nowhere",
                with_dir(
                    "[thresholds]\nfull_available = \"99999999999999999999B\"\nwarn_available = \"17000000TiB\"\n\
                     [probe]\ninterval = \"99999999999999999999s\"\n",
                ),
            ),
            (
                "words",
                with_dir(
                    "listen = \"9475\"\nstate_dir = \"state\"\nlog_level = \"loud\"\nlock_memory = \"yes\"\nsemantics = 4\n",
                ),
            ),
            (
                "hooks",
                with_dir(
                    "[[hook]]\nname = \"a\"\ncommand = []\n[[hook]]\nname = \"a\"\ncommand = \"mail root\"\n\
                     [[hook]]\nname = \"b\"\ncommand = [\"page\"]\nevents = [\"diskFul\"]\ntimeout = \"30\"\n[[hook]]\ncommand = [\"/bin/true\"]\n",
                ),
            ),
        ],
    );
}

#[test]
fn keys_and_texts_that_are_none() {
    let latin = b"state_dir = \"/var/lib/\xe4\"\n".to_vec();
    check(
        "keys",
        &[
            (
                "unknown keys",
                with_dir(
                    "a = 1\nlisen = \"x\"\nwarn = 0.9\ndiskUsageThreshold = 0.9\n[threshold]\nfull = 0.9\n[probe]\nintervall = \"1s\"\n",
                ),
            ),
            (
                "an unknown key after a mark, with CRLF",
                "\u{feff}a = 1\r\n[[dir]]\r\npath = \"/mnt/l1\"\r\nrole = \"ledger\"\r\nb = 2\r\n"
                    .into(),
            ),
            (
                "a key twice",
                with_dir("listen = \"127.0.0.1:1\"\nlisten = \"127.0.0.1:2\"\n"),
            ),
            ("an open quote", with_dir("state_dir = \"/var\n")),
            ("cut off", b"[[dir]]\npath = \"/mnt/l1\"\nrole = ".to_vec()),
            ("in Latin-1", latin),
            ("with zero bytes", b"listen\0 = 1\n".to_vec()),
            (
                "another format",
                b"{\"listen\": \"127.0.0.1:9475\"}\n".to_vec(),
            ),
        ],
    );
}

#[test]
fn command_lines_that_cannot_be() {
    let bench = Bench::new();
    let long = format!("ledger=/{}", "x/".repeat(3000));
    let mut transcripts = String::new();
    for line in [
        &["--dir", "ledger="][..],
        &["--dir", "=/mnt/l1"],
        &["--listen", "0", "--dir", "ledger=/mnt/l1"],
        &["--dir", "ledger=/mnt/l1", "--state-dir", ""],
        &["--listen", "127.0.0.1", "--dir", "ledger=/mnt/l1"],
        &["--listen", "127.0.0.1:99999", "--dir", "ledger=/mnt/l1"],
    ] {
        transcripts += &bench.refused(&[&["run"][..], line].concat(), 64);
    }
    for line in [
        &["--dir", "ledger=l1", "--dir", "ledger=l1"][..],
        &["--dir", "ledger=/mnt/l1", "--dir", "ledger=/mnt/../mnt/l1/"],
        &["--dir", "ledger=/mnt/l1", "--state-dir", "../state"],
        &["--dir", &long],
    ] {
        let said = bench.refused(&[&["run"][..], line].concat(), 78);
        transcripts += &said.replace(&long, "ledger=/LONG");
    }
    insta::assert_snapshot!("command_lines", transcripts);
}

#[test]
fn ten_thousand_directories_are_too_many() {
    let bench = Bench::new();
    let write = |count| {
        let mut toml = String::new();
        for number in 0..count {
            writeln!(toml, "{}", DIR.replace("/l1", &format!("/l{number}"))).unwrap();
        }
        bench.write("a.toml", toml)
    };
    write(1024);
    let output = bench.run(&["config", "check", "--config", "a.toml"]);
    let verdict = "the configuration is valid: 1024 directories, 0 hooks, 0 warnings; `dirkeeper check` says how the directories are\n";
    assert_eq!(text(&output.stdout), verdict);
    write(10_000);
    insta::assert_snapshot!(
        "too_many",
        bench.refused(&["run", "--config", "a.toml"], 78)
    );
}

//! Files that are not what they should be: no file at all, the bookie's own file, tokens, and input
//! of `simulate`.

use super::*;

/// In Latin-1, with CRLF, continuation lines, and blanks and empty parts in lists.
const LATIN: &[u8] = b"# f\xfcr uns\r\njournalDirectories = /mnt/j\\\r\n   ournal , /mnt/j 2\r\nledgerDirectories:/mnt/l 1,,/mnt/l\xe42,\r\n";

/// A pipe has nobody on its other side here: who waits for it hangs.
#[test]
fn what_is_no_file_is_no_configuration() {
    let bench = Bench::new();
    bench.dir("folder");
    bench.fifo("pipe");
    bench.write("secret.toml", "");
    bench.set_mode("secret.toml", 0o000);
    bench.write("huge.toml", vec![b'#'; (1 << 20) + 1]);
    let mut transcripts = String::new();
    for file in ["folder", "pipe", "huge.toml", "missing.toml", "/dev/zero"] {
        transcripts += &bench.refused(&["run", "--config", file], 78);
        transcripts += &bench.refused(&["run", "--bookie-conf", file], 78);
    }
    transcripts += &bench.refused(&["config", "import", "pipe"], 78);
    let line = ["run", "--config", "secret.toml"];
    let mut command = bench.unprivileged();
    command.args(line);
    let refused = output(command);
    assert_eq!(refused.status.code(), Some(78));
    transcripts += &bench.transcript(&line, &refused);
    insta::assert_snapshot!("no_files", transcripts);
}

#[test]
fn a_bookies_file_with_nonsense() {
    let bench = Bench::new();
    let mut transcripts = String::new();
    for (case, content) in [
        (
            "values",
            &b"ledgerDirectories=/mnt/l1\njournalDirectories=/mnt/j\ndiskUsageThreshold=1.5\ndiskUsageWarnThreshold=NaN\n\
               diskCheckInterval=-5\nhttpServerPort=99999\nbookiePort=abc\nreadOnlyModeEnabled=maybe\n"[..],
        ),
        ("95", b"ledgerDirectories=/mnt/l1\ndiskUsageThreshold=95\n"),
        ("relative directories", b"ledgerDirectories=data/l1,/mnt/l2\njournalDirectories=data/j\n"),
        ("a broken escape", b"ledgerDirectories=/mnt/\\u00zz\njournalDirectories=/mnt/j\n"),
    ] {
        bench.write("bk.conf", content);
        writeln!(transcripts, "# {case}").unwrap();
        transcripts += &bench.refused(&["run", "--bookie-conf", "bk.conf"], 78);
    }
    insta::assert_snapshot!("bookie_refused", transcripts);
}

/// What is odd but has a meaning is read as the bookie reads it, and what is assumed is said.
#[test]
fn a_bookies_file_with_oddities() {
    let bench = Bench::new();
    let mut transcripts = String::new();
    for (case, content) in [
        (
            "Latin-1, CRLF, continuation lines, blanks and empty parts in lists",
            LATIN,
        ),
        (
            "a byte order mark",
            b"\xef\xbb\xbfledgerDirectories=/mnt/l1\njournalDirectories=/mnt/j\n",
        ),
        ("nothing", b""),
    ] {
        bench.write("bk.conf", content);
        let line = ["config", "check", "--bookie-conf", "bk.conf"];
        writeln!(transcripts, "# {case}").unwrap();
        transcripts += &bench.transcript(&line, &bench.run(&line));
    }
    insta::assert_snapshot!("bookie_odd", transcripts);

    bench.write("bk.conf", LATIN);
    let shown = text(
        &bench
            .run(&["config", "show", "--bookie-conf", "bk.conf"])
            .stdout,
    );
    for path in ["/mnt/journal", "/mnt/j 2", "/mnt/l 1", "/mnt/l\u{e4}2"] {
        assert!(
            shown.contains(&format!("path = \"{path}\"")),
            "{path}: {shown}"
        );
    }
    assert_eq!(shown.matches("[[dir]]").count(), 4, "{shown}");
}

#[test]
fn a_token_file_that_guards_nothing() {
    let bench = Bench::new();
    let watched = bench.dir("l1");
    let token = bench.name("token");
    let toml = format!(
        "listen = \"127.0.0.1:0\"\nstate_dir = {:?}\ncontrol_token_file = {token:?}\n[[dir]]\npath = {watched:?}\nrole = \"ledger\"\n",
        bench.name("state")
    );
    bench.write("a.toml", toml);
    let mut transcripts = String::new();
    let mut check = |case: &str, make: &dyn Fn()| {
        let _ = fs::remove_file(&token);
        make();
        writeln!(transcripts, "# {case}").unwrap();
        transcripts += &bench.refused(&["run", "--config", "a.toml"], 78);
        let checked = bench.run(&["config", "check", "--config", "a.toml"]);
        assert_eq!(checked.status.code(), Some(78), "{case}");
        let said = bench.shorten(&text(&checked.stdout));
        transcripts += &format!("{}\n\n", said.lines().next().unwrap());
    };
    let content = |content: &str, mode| {
        bench.write("token", content);
        bench.set_mode("token", mode);
    };
    check("missing", &|| {});
    check("empty", &|| content("", 0o600));
    check("only blanks", &|| content(" \n\n", 0o600));
    check("for everybody", &|| content("secret\n", 0o644));
    check("two words, which no request can carry", &|| {
        content("se cret\n", 0o600)
    });
    check("not ASCII, the same", &|| content("geheim\u{e4}\n", 0o600));
    check("huge", &|| content(&"x".repeat(5000), 0o600));
    check("a pipe", &|| drop(bench.fifo("token")));
    fs::remove_file(&token).unwrap();
    check("a folder", &|| drop(bench.dir("token")));
    insta::assert_snapshot!("token", transcripts);
}

#[test]
fn what_cannot_be_simulated() {
    let bench = Bench::new();
    let head = r#"{"dirs":[{"path":"/d1","role":"ledger"}],"settings":{}}"#;
    let step =
        |at: u64| format!(r#"{{"at":{at},"observe":{{"/d1":{{"total":1000,"usable":900}}}}}}"#);
    let mut transcripts = String::new();
    for (case, content) in [
        ("nothing", Vec::new()),
        ("cut off in the header", head[..20].into()),
        (
            "cut off in a step",
            format!("{head}\n{}", &step(5)[..25]).into(),
        ),
        (
            "time runs backwards",
            format!("{head}\n{}\n{}\n", step(5000), step(4999)).into(),
        ),
        (
            "a time that is none",
            format!("{head}\n{}\n", step(5).replace('5', "-5")).into(),
        ),
        ("not UTF-8", b"{\"dirs\":\"\xff\"}\n".to_vec()),
        ("a line without end", vec![b' '; 5 << 20]),
    ] {
        bench.write("in.jsonl", content);
        let line = ["simulate", "in.jsonl"];
        let output = bench.run(&line);
        writeln!(transcripts, "# {case}").unwrap();
        transcripts += &bench.transcript(&line, &output);
        assert_eq!(output.status.code(), Some(65), "{transcripts}");
    }
    bench.dir("folder");
    transcripts += &bench.refused(&["simulate", "folder"], 74);
    insta::assert_snapshot!("simulate", transcripts);
}

//! The bookie's own files, made by hand: what the running agent and `check` make of them.

use super::*;

/// `lastMark` as BookKeeper writes it: number of the journal file, bytes of it.
fn mark(file: u64, offset: u64) -> Vec<u8> {
    [file.to_be_bytes(), offset.to_be_bytes()].concat()
}

/// A bookie with a journal and a ledger directory, both initialised; journal files and entry logs
/// of 1 MiB.
fn bookie(bench: &Bench) {
    for dir in ["j", "l"] {
        fs::create_dir_all(bench.path(format!("{dir}/current"))).unwrap();
        let version = format!("{dir}/current/VERSION");
        bench.write(&version, "4\nbookieHost: \"b:3181\"\n");
    }
    let (journal, ledger) = (bench.name("j"), bench.name("l"));
    let conf = format!(
        "bookieId=b\njournalDirectories={journal}\nledgerDirectories={ledger}\njournalMaxSizeMB=1\n\
         logSizeLimit=1048576\nreadOnlyModeOnAnyDiskFullEnabled=true\n"
    );
    bench.write("bk_server.conf", conf);
}

#[test]
fn a_journal_that_does_not_drain_and_a_start_that_would_fail() {
    let bench = Bench::new();
    bookie(&bench);
    bench.write("l/current/lastMark", mark(0x1a2, 100));
    bench.write("j/current/1a2.txn", [0; 300]);
    bench.write("j/current/1a3.txn", [0; 1000]);
    let (conf, state) = (bench.name("bk_server.conf"), bench.name("state"));
    let toml = format!(
        "listen = \"127.0.0.1:0\"\nstate_dir = {state:?}\n[bookie]\nconf = {conf:?}\n\
         [probe]\ninterval = \"1s\"\n[thresholds]\ndwell = \"1s\"\n"
    );
    bench.write("a.toml", toml);
    let agent = bench.agent(&["--config", "a.toml"]);
    let journal = bench.name("j");
    let unmarked = |bytes: u64| {
        let labels = format!("{{dir=\"{journal}\",role=\"journal\"}}");
        let line = format!("dirkeeper_journal_unmarked_bytes{labels} {bytes}");
        wait_until(&line, || agent.metric(&line));
    };
    let told = |event: &str| {
        wait_until(event, || {
            let (_, events) = agent.get("/api/v1/events?since=0");
            events.contains(&format!("\"event\":\"{event}\""))
        });
    };
    unmarked(1200);
    wait_until("a good verdict", || {
        agent.metric("dirkeeper_restart_would_fail 0")
    });
    agent.wait_problem("rolesShareDevice");

    fs::remove_file(bench.path("j/current/1a2.txn")).unwrap();
    told("restartWouldFail");
    assert!(agent.metric("dirkeeper_restart_would_fail 1"));
    let text = agent.status()["restart"].to_string();
    let expected = format!(
        "{{\"reasons\":[\"the journal file 1a2.txn, named by lastMark, is not in {journal}\"],\
         \"wouldSucceed\":false}}"
    );
    assert_eq!(text, expected);

    bench.write("j/current/1a2.txn", [0; 300]);
    told("restartPossible");
    // More than two files' worth.
    bench.write("j/current/1a4.txn", vec![0; (2 << 20) + 1]);
    told("journalNotDraining");
    bench.write("l/current/lastMark", mark(0x1a4, 1));
    unmarked(2 << 20);
    agent.finish();
}

#[test]
fn what_makes_no_sense_is_passed_over_as_the_bookie_does() {
    let bench = Bench::new();
    bookie(&bench);
    bench.write("l/current/lastMark", "short");
    bench.write("j/current/nonsense.txn", "x");
    bench.write("j/current/1a2.txn", [0; 300]);
    let (journal, restart) = checked(&bench);
    assert_eq!(
        journal,
        r#"{"files":1,"oldestId":"1a2","unmarkedBytes":300}"#
    );
    assert_eq!(restart["wouldSucceed"], Value::Bool(true));
}

/// A pipe is not waited for, and a mark behind a link is not taken for none.
#[test]
fn what_is_no_regular_file_leaves_a_start_unknown() {
    let bench = Bench::new();
    bookie(&bench);
    bench.write("l/current/lastMark", mark(0x1a1, 0));
    bench.fifo("j/current/1a1.txn");
    bench.write("j/current/1a2.txn", [0; 300]);
    let unknown = |why: &str| {
        let (journal, restart) = checked(&bench);
        assert_eq!(
            journal,
            r#"{"files":1,"oldestId":"1a2","unmarkedBytes":null}"#
        );
        assert_eq!(restart["wouldSucceed"], Value::Null);
        let reasons = restart["reasons"].to_string();
        assert!(reasons.contains(why), "{reasons}");
    };
    unknown("current/1a1.txn is no regular file");
    fs::remove_file(bench.path("j/current/1a1.txn")).unwrap();
    let last = bench.path("l/current/lastMark");
    fs::rename(&last, bench.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink(bench.path("elsewhere"), last).unwrap();
    unknown("symbolic link");
}

/// What `check` says of the journal's files and of a start.
fn checked(bench: &Bench) -> (String, Value) {
    let output = bench.run(&[
        "check",
        "--bookie-conf",
        "bk_server.conf",
        "--output",
        "json",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let dirs = document["dirs"].as_array().unwrap();
    let journal = dirs.iter().find(|dir| dir["role"] == "journal").unwrap();
    (journal["journal"].to_string(), document["restart"].clone())
}

#[test]
fn journals_that_do_not_fit_on_their_disk_are_a_warning_as_for_the_agent() {
    let bench = Bench::new();
    bookie(&bench);
    let conf = fs::read_to_string(bench.path("bk_server.conf")).unwrap();
    let check = |edit: [&str; 2]| {
        bench.write("bk_server.conf", conf.replace(edit[0], edit[1]));
        let line = ["config", "check", "--bookie-conf", "bk_server.conf"];
        let output = bench.run(&line);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        bench.shorten(&text(&output.stdout))
    };
    let fits = check(["", ""]);
    let verdict = "the configuration is valid: 2 directories, 0 hooks, 0 warnings; `dirkeeper check` says how the directories are\n";
    assert_eq!(fits, verdict);
    let imported = text(&bench.run(&["config", "import", "bk_server.conf"]).stdout);
    let named = format!("# conf = {:?}", bench.name("bk_server.conf"));
    assert!(imported.contains(&named), "{imported}");
    let size = "journalMaxSizeMB=99999999999";
    let too_large = check(["journalMaxSizeMB=1", size]);
    let sentence = "warning: DIR/bk_server.conf: journalMaxSizeMB: the files that the bookie may keep in DIR/j ((journalMaxBackups + 1) × \
                    journalMaxSizeMB) are up to 558.8 PiB, and ";
    assert!(too_large.contains(sentence), "{too_large}");
    let gone = check(["/j\n", "/none\n"]);
    let remark = "whether the journals fit in DIR/none is not known: DIR/none: No such file or \
                  directory";
    assert!(gone.contains(remark), "{gone}");
    assert!(gone.contains(", 1 warning;"), "{gone}");
    let names = fs::read_dir(bench.path("j")).unwrap();
    assert_eq!(names.count(), 1, "nothing but `current` is in the journal");
}

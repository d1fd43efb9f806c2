//! What keeps a bookie and its disks from harm beside the verdicts: a path that has to be a mount point, a start
//! that would fail for want of the reserves, an explanation of a bad disk, a check of journals that
//! no disk answers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::harness::agent::{Agent, Event, PATIENCE, Plan};
use crate::harness::bench::Bench;
use crate::harness::disk::{Disk, make_image};
use crate::harness::memory_fs::{Effect, MemoryFs, Operation};
use crate::harness::run::{install, pass, text, wait_exit, wait_for};
use crate::harness::sweep::MARK;

/// `require_mount`: the path is a folder of the disk below when the agent starts. Neither probe nor
/// ballast is written into it; they are when the disk is there.
pub(crate) fn not_mounted_at_the_start(bench: &Bench) {
    let image = bench.folder().join("guarded.image");
    make_image(&image, bench.kind(), 64, &[]);
    let point = bench.dir("guarded");
    let keys = "require_mount = true\nballast = \"1MiB\"";
    let plan = Plan::new(bench)
        .set("interval", "2s")
        .dir_with(&point, keys);
    let agent = plan.with_broken_dirs().start();
    agent.wait_status(&point, "vanished");
    // Two rounds of probes, and the dwell time of the ballast.
    pass(Duration::from_secs(5));
    let names: Vec<_> = fs::read_dir(&point).unwrap().collect();
    assert!(names.is_empty(), "{names:?}");
    assert_eq!(agent.dir(&point)["status"], "vanished");
    let _disk = Disk::mount_image(bench, "guarded", &image, "loop");
    agent.wait_status(&point, "writable");
    assert!(agent.dir(&point)["probe"]["lastSuccess"].is_string());
    wait_for("the ballast is made", PATIENCE, || {
        (agent.dir(&point)["ballast"]["state"] == "held").then_some(())
    });
    assert_eq!(agent.names(&point), ["diskVanished", "diskRecovered"]);
    agent.finish(bench);
}

/// The directories of a bookie with `InterleavedLedgerStorage` and 2 MiB of journal to replay; its file.
fn bookie(journal: &Path, ledger: &Path, index: &Path, folder: &Path) -> PathBuf {
    for dir in [journal, ledger, index] {
        let current = dir.join("current");
        fs::create_dir(&current).unwrap();
        fs::write(current.join("VERSION"), "4\nbookieHost: \"b:3181\"\n").unwrap();
    }
    fs::write(journal.join("current/1a2.txn"), vec![0; 2 << 20]).unwrap();
    let mark = [0x1a2_u64.to_be_bytes(), 0_u64.to_be_bytes()].concat();
    fs::write(ledger.join("current/lastMark"), mark).unwrap();
    let conf = format!(
        "bookieId=b\njournalDirectories={}\nledgerDirectories={}\nindexDirectories={}\n\
         ledgerStorageClass=org.apache.bookkeeper.bookie.InterleavedLedgerStorage\n\
         journalPreAllocSizeMB=1\nminUsableSizeForEntryLogCreation=16777216\n\
         readOnlyModeOnAnyDiskFullEnabled=true\n",
        text(journal),
        text(ledger),
        text(index)
    );
    let file = folder.join("bk_server.conf");
    fs::write(&file, conf).unwrap();
    file
}

fn told(agent: &Agent, name: &str) -> Event {
    wait_for(name, PATIENCE, || {
        let mut events = agent.events().into_iter();
        events.find(|event| event.name == name)
    })
}

/// BOOKKEEPER-1034, issue 1316: full, and the reserve for a new entry log is not there.
pub(crate) fn full_bookie_would_not_start(bench: &Bench) {
    let ledger = Disk::tmpfs(bench, "ledger", "size=64m");
    let [(journal, _), (index, _)] = bench.healthy();
    let file = bookie(&journal, ledger.path(), &index, bench.folder());
    let conf = format!("\n[bookie]\nconf = {:?}\n", text(&file));
    let agent = Plan::new(bench).dir(ledger.path()).toml(&conf).start();
    let restart = || agent.status().expect("the agent answers")["restart"].clone();
    let succeeds = || (restart()["wouldSucceed"] == true).then_some(());
    wait_for("a good verdict", PATIENCE, succeeds);

    ledger.set_usage(0.97);
    let event = told(&agent, "restartWouldFail");
    let key = "(minUsableSizeForEntryLogCreation) to replay the journal into";
    let why = "every ledger directory is full and none has more than 16.0 MiB";
    let message = event.json["cause"]["message"].as_str().unwrap_or_default();
    assert!(message.contains(why) && message.contains(key), "{message}");
    let known = restart();
    assert_eq!(known["wouldSucceed"], false, "{known}");
    let reason = known["reasons"][0].as_str().unwrap_or_default();
    assert!(reason.starts_with(why), "{known}");
    assert_eq!(agent.metric("dirkeeper_restart_would_fail", &[]), Some(1.0));

    ledger.set_usage(0.5);
    told(&agent, "restartPossible");
    wait_for("a good verdict again", PATIENCE, succeeds);
    assert_eq!(agent.metric("dirkeeper_restart_would_fail", &[]), Some(0.0));
    agent.finish(bench);
}

/// What a command printed on standard output, and its exit code.
fn run(bench: &Bench, mut command: Command) -> (String, Option<i32>) {
    let name = bench.folder().join("output");
    let output = fs::File::create(&name).unwrap();
    command
        .env(MARK, bench.folder())
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let status = wait_exit(&mut child, PATIENCE);
    let status = status.unwrap_or_else(|| panic!("{command:?} does not end"));
    (fs::read_to_string(&name).unwrap(), status.code())
}

/// `check --explain` of one directory, with a deadline of two seconds. The explanation by its
/// headings, and that it says which step has failed.
fn explain(bench: &Bench, dir: &Path, wrapper: &[&str]) -> String {
    let toml = format!(
        "state_dir = {:?}\n[probe]\ndeadline = \"2s\"\n[[dir]]\npath = {:?}\nrole = \"ledger\"\n",
        text(&bench.folder().join("state")),
        text(dir)
    );
    let file = bench.folder().join("explain.toml");
    fs::write(&file, toml).unwrap();
    let program = bench.folder().join("dirkeeper");
    if !program.exists() {
        install(bench.program(), &program);
    }
    let words = [text(&program), "check", "--explain", text(dir)];
    let words: Vec<&str> = wrapper.iter().copied().chain(words).collect();
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .args(["--config", text(&file), "--timeout", "20s"]);
    let (text, code) = run(bench, command);
    assert_eq!(code, Some(2), "{text}");
    text
}

/// A step of the explanation and what it gave.
fn step<'a>(explanation: &'a str, name: &str) -> &'a str {
    let lines = explanation.lines().map(|line| line.trim_start());
    let mut lines = lines.map(|line| line.strip_prefix("tried").unwrap_or(line).trim_start());
    let line = lines.find(|line| line.split(' ').next() == Some(name));
    line.unwrap_or_else(|| panic!("no step {name} in {explanation}"))
}

#[track_caller]
fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

/// `check --explain` of a frozen, a full and a forbidden directory says where the look ended and why.
pub(crate) fn bad_disks_are_explained(bench: &Bench) {
    let disk = Disk::block(bench, "frozen", 64);
    let frozen = disk.freeze();
    let told = explain(bench, disk.path(), &[]);
    drop(frozen);
    assert_says(step(&told, "statvfs"), &["ok"]);
    assert_says(step(&told, "create"), &["still running after "]);
    assert_says(step(&told, "write"), &["not reached"]);
    let held = format!("create on {} has been running for ", text(disk.path()));
    assert_says(
        &told,
        &[&held, "hung, by its access", "critical, exit code 2"],
    );

    let full = Disk::tmpfs(bench, "full", "size=4m");
    full.set_usage(1.0);
    let told = explain(bench, full.path(), &[]);
    assert_says(step(&told, "open"), &["ok"]);
    assert_says(
        step(&told, "statvfs"),
        &["failed: usage 1.000 is over full"],
    );
    assert_says(step(&told, "write"), &["not reached"]);
    assert_says(&told, &["full, by its space", "critical, exit code 2"]);

    let refused = Disk::tmpfs(bench, "refused", "size=4m,mode=555");
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    let nobody: Vec<&str> = std::iter::once("setpriv").chain(nobody).collect();
    let told = explain(bench, refused.path(), &nobody);
    assert_says(step(&told, "open"), &["ok"]);
    assert_says(step(&told, "create"), &["failed: ", "(errno 13)"]);
    assert_says(step(&told, "write"), &["not reached"]);
    assert_says(
        &told,
        &["failed, by its access", "65534", "critical, exit code 2"],
    );
}

/// `config check` beside a journal whose file system never says how large it is: a remark in time.
pub(crate) fn silent_journal_is_a_remark(bench: &Bench) {
    let odd = MemoryFs::new(bench, "silent");
    let ledger = Disk::tmpfs(bench, "ledger", "size=64m");
    let conf = format!(
        "journalDirectories={}\nledgerDirectories={}\nreadOnlyModeOnAnyDiskFullEnabled=true\n\
         journalMaxSizeMB=99999999\n",
        text(odd.path()),
        text(ledger.path())
    );
    let file = bench.folder().join("bk_server.conf");
    fs::write(&file, conf).unwrap();
    let check = || {
        let mut command = Command::new(bench.program());
        command.args(["config", "check", "--bookie-conf", text(&file)]);
        command.args(["--output", "json"]);
        let (text, code) = run(bench, command);
        let json: Value = serde_json::from_str(&text).unwrap_or_default();
        (json, code)
    };
    let says = |(told, code): (Value, Option<i32>), what: &str| {
        assert_eq!((code, &told["ok"]), (Some(0), &Value::Bool(true)), "{told}");
        let warning = told["warnings"][0]["problem"].as_str().unwrap_or_default();
        assert_says(warning, &[what]);
    };
    says(check(), "the files that the bookie may keep in");
    odd.set(Operation::Statfs, Effect::Hold);
    let from = bench.now();
    let told = check();
    bench.within("config check", from, bench.now(), Duration::from_secs(4));
    says(told, "is not known: no answer within 3 s");
}

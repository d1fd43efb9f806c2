//! State directories that are somebody else's, damaged, from the future, or closed to us.

use std::os::unix::fs::FileExt;

use super::*;

/// Arguments for an agent that watches `l1`, which is made.
fn arguments(bench: &Bench) -> [String; 6] {
    let dir = bench.path("l1");
    let _ = fs::create_dir(&dir);
    let dir = format!("ledger={}", dir.display());
    let state_dir = bench.name("state");
    [
        "--dir",
        &dir,
        "--listen",
        "127.0.0.1:0",
        "--state-dir",
        &state_dir,
    ]
    .map(str::to_owned)
}

fn run_line(bench: &Bench) -> Vec<String> {
    let rest = arguments(bench);
    std::iter::once("run".to_owned()).chain(rest).collect()
}

/// An agent has run there and has kept the pin of `l1`.
fn used(bench: &Bench) {
    let agent = bench.agent(&arguments(bench));
    let wrote = || fs::metadata(bench.path("state/state.redb")).is_ok();
    wait_until("a store", wrote);
    assert_eq!(agent.problems(), Vec::<String>::new());
    let writer = writer(&agent);
    agent.finish();
    // It may still write: what a test does to the file must come after it.
    wait_until("the writer has ended", || {
        fs::read(format!("/proc/{writer}/cmdline"))
            .unwrap_or_default()
            .is_empty()
    });
}

fn writer(agent: &Agent<'_>) -> String {
    let read = |path: String| fs::read_to_string(path).unwrap_or_default();
    let pid = agent.process.id();
    let found = try_for(|| {
        let children = read(format!("/proc/{pid}/task/{pid}/children"));
        let mut children = children.split_whitespace();
        let is_writer = |pid: &&str| read(format!("/proc/{pid}/cmdline")).contains("writer");
        children.find(is_writer).map(str::to_owned)
    });
    found.expect("the agent has a writer")
}

/// How often a process has waited for anything.
fn waits(pid: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let (_, rest) = status.split_once("\nvoluntary_ctxt_switches:").unwrap();
    rest.lines().next().unwrap().trim().parse().unwrap()
}

/// The agent goes on without, and has what it knew as soon as the other has ended.
#[test]
fn a_writer_that_was_left_behind_is_no_damage() {
    let bench = Bench::new();
    used(&bench);
    let lock = File::open(bench.path("state/state.lock")).unwrap();
    lock.lock().unwrap();
    let mut command = bench.program();
    command.args(run_line(&bench));
    let mut agent = bench.start(command);
    // It tries ten times before it says so: each is a wait.
    let writer = writer(&agent);
    wait_until("the writer has given up for now", || waits(&writer) > 15);
    drop(lock);
    agent.wait_ready();
    agent.wait_no_problem("state");
    let log = agent.finish();
    assert!(!log.contains("pins are lost"), "{log}");
}

#[test]
fn another_agents_state_directory_names_its_process() {
    let bench = Bench::new();
    let agent = bench.agent(&arguments(&bench));
    let mut said = bench.refused(&run_line(&bench), 1);
    said += &bench.refused(&["events", "--state-dir", &bench.name("state")], 69);
    let pid = agent.process.id().to_string();
    insta::assert_snapshot!("locked", said.replace(&pid, "PID"));
    agent.finish();
}

#[test]
fn a_store_of_a_newer_version_is_refused_and_not_touched() {
    let bench = Bench::new();
    used(&bench);
    let path = bench.path("state/state.redb");
    let file = File::options().write(true).open(&path).unwrap();
    // The database's own version is a byte in each of its two headers.
    file.write_all_at(&[4], 64).unwrap();
    file.write_all_at(&[4], 192).unwrap();
    let before = fs::read(&path).unwrap();
    // In this order: the writer of the refused agent may need a moment to end.
    let mut said = bench.refused(&["events", "--state-dir", &bench.name("state")], 65);
    said += &bench.refused(&run_line(&bench), 65);
    insta::assert_snapshot!("newer", said);
    assert!(fs::read(&path).unwrap() == before);
}

/// Each kind of damage: kept aside as it is, said once, and the agent runs with a new store.
#[test]
fn a_damaged_store_is_kept_aside_and_pins_are_learnt_again_with_a_warning() {
    let damages: [fn(&Path); 3] = [
        |file| fs::write(file, "").unwrap(),
        |file| fs::write(file, "garbage ".repeat(9999)).unwrap(),
        |file| {
            let file = File::options().write(true).open(file).unwrap();
            file.set_len(4096).unwrap();
        },
    ];
    for damage in damages {
        let bench = Bench::new();
        used(&bench);
        damage(&bench.path("state/state.redb"));
        let damaged = fs::read(bench.path("state/state.redb")).unwrap();
        let said = bench.refused(&["events", "--state-dir", &bench.name("state")], 65);
        assert!(said.contains("the state store is damaged"), "{said}");

        let agent = bench.agent(&arguments(&bench));
        let kept = agent.wait_problem("is kept as DIR/state/state.redb.corrupt-");
        agent.wait_problem("the identity pins are lost");
        let problems = agent.problems();
        let about = problems.iter().filter(|one| one.contains("is kept as"));
        assert_eq!(about.count(), 1, "{problems:?}");
        let (_, name) = kept.split_once("is kept as DIR/").unwrap();
        let name = name.split(';').next().unwrap();
        assert!(fs::read(bench.path(name)).unwrap() == damaged, "{name}");
        let log = agent.finish();
        assert!(log.contains("WARN the identity pins are lost"), "{log}");

        // The writer of the agent before may need a moment to end.
        let agent = bench.agent(&arguments(&bench));
        wait_until("no problem is left", || agent.problems().is_empty());
        agent.finish();
    }
}

/// The agent watches on without one, says so once, and heals when it may write.
#[test]
fn a_state_directory_without_permission_is_a_problem_for_as_long_as_it_lasts() {
    let bench = Bench::new();
    let [dir, path, ..] = arguments(&bench);
    bench.set_mode("l1", 0o777);
    bench.dir("state");
    bench.set_mode("state", 0o500);
    let state_dir = bench.name("state");
    let mut command = bench.unprivileged();
    command.args([
        "run",
        &dir,
        &path,
        "--listen",
        "127.0.0.1:0",
        "--state-dir",
        &state_dir,
    ]);
    let agent = bench.spawn(command);
    let said = agent.wait_problem("the state directory cannot be written by this user");
    assert!(said.contains("DIR/state"), "{said}");
    assert!(said.contains("are lost at a restart"), "{said}");
    let problems = agent.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(agent.metric("dirkeeper_state_store_ok 0"));
    assert!(agent.dirs().contains("writable"), "{}", agent.dirs());
    bench.set_mode("state", 0o777);
    agent.wait_no_problem("cannot be written");
    wait_until("the store is ok", || {
        agent.metric("dirkeeper_state_store_ok 1")
    });
    let log = agent.finish();
    assert!(
        log.contains("WARN the state directory cannot be written by this user"),
        "{log}"
    );
}

#[test]
fn a_state_directory_that_is_a_file_is_a_problem() {
    let bench = Bench::new();
    bench.write("state", "mine");
    let agent = bench.agent(&arguments(&bench));
    insta::assert_snapshot!(
        agent.wait_problem("state"),
        @"the state store cannot be used (creating DIR/state/: File exists (os error 17))"
    );
    assert!(agent.dirs().contains("writable"));
    agent.finish();
    assert_eq!(fs::read(bench.path("state")).unwrap(), b"mine");
}

#[test]
fn a_state_directory_inside_a_watched_one_is_warned_of() {
    let bench = Bench::new();
    let [.., dir] = arguments(&bench);
    fs::create_dir(&dir).unwrap();
    let watched = format!("ledger={dir}");
    let inside = format!("{dir}/inside");
    let line = [
        "--dir",
        &watched,
        "--listen",
        "127.0.0.1:0",
        "--state-dir",
        &inside,
    ];
    let log = bench.agent(&line).finish();
    insta::assert_snapshot!(
        log.lines().next().unwrap(),
        @r#"WARN --state-dir: state_dir = "DIR/state/inside": shares a path with the watched directory DIR/state: a bad disk would take the state with it; keep the state on a disk that is not watched"#
    );
}

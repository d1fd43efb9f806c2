//! The contract of hooks, sentence by sentence, with real processes. What needs shorter times than
//! the contract's, or a store, is tested beside the code.

#![allow(clippy::unwrap_used)] // all of this is a test

#[path = "hooks/storm.rs"]
mod storm;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use dirkeeper::clock::Clock;
use dirkeeper::document::{EventDocument, Host, event_json};
use dirkeeper::health::dir::Role;
use dirkeeper::health::event::{Event, EventKind, NodeSummary};
use dirkeeper::health::moment::Timestamp;
use dirkeeper::health::observation::{Operation, Space};
use dirkeeper::health::policy::Mode;
use dirkeeper::health::snapshot::ListenerView;
use dirkeeper::health::status::{Axis, Cause, Reason};
use dirkeeper::listener::hook::{End, Outcome, Verdict, run_once};
use dirkeeper::listener::{Dispatcher, HookOptions, Listener};

/// `diskFull` of this directory.
fn full(seq: u64, dir: impl AsRef<Path>) -> Event {
    Event {
        seq,
        time: Timestamp(1_796_000_523_456),
        kind: EventKind::DiskFull,
        severity: EventKind::DiskFull.severity(),
        dir: Some(dir.as_ref().to_owned()),
        role: Some(Role::Ledger),
        axis: Some(Axis::Space),
        from: Some("almostFull"),
        to: Some("full"),
        coalesced: 0,
        reason: Some(Reason {
            cause: Cause::Bytes,
            operation: Operation::Statvfs,
            errno: None,
            message: "usage 0.951 is over full 0.950; $(touch /tmp/never) `id` \"quoted\""
                .to_owned(),
        }),
        space: Some(Space {
            size: 1000 << 30,
            available: 49 << 30,
            inodes: 0,
            inodes_free: 0,
        }),
        node: NodeSummary {
            writable: vec![PathBuf::from("/mnt/l2")],
            full: vec![dir.as_ref().to_owned()],
            wanted_mode: Some(Mode::ReadOnly),
            high_priority_writes: true,
            ..NodeSummary::default()
        },
    }
}

fn host() -> Host {
    Host {
        host: "bk-3".to_owned(),
        bookie_id: Some("10.0.0.3:3181".to_owned()),
    }
}

fn hook(name: &str, command: &[&OsStr]) -> HookOptions {
    HookOptions {
        name: name.to_owned(),
        events: Vec::new(),
        command: command.iter().map(|&part| part.to_owned()).collect(),
        timeout: Duration::from_secs(60),
    }
}

/// A hook of one line of shell; `arguments` are its `$1` and so on.
fn shell(line: &str, arguments: &[&Path]) -> HookOptions {
    let fixed = ["/bin/sh", "-c", line, "hook"].map(OsStr::new);
    let arguments = arguments.iter().map(|path| path.as_os_str());
    let command: Vec<&OsStr> = fixed.into_iter().chain(arguments).collect();
    hook("page", &command)
}

fn run(options: &HookOptions) -> Outcome {
    run_once(options, &full(42, "/mnt/l1"), &host())
}

/// Waits until it holds; fails with the text after two minutes, which ten thousand events may take
/// beside other work.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let clock = Clock::start();
    while !holds() {
        assert!(clock.elapsed() < Duration::from_secs(120), "never: {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// A pipe with a name: hooks wait for a line from it, and each takes one.
struct Gate {
    path: PathBuf,
    pipe: fs::File,
}

impl Gate {
    fn new(folder: &Path) -> Gate {
        let path = folder.join("gate");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        // Open in both directions: neither side waits for the other to open it.
        let pipe = fs::File::options().read(true).write(true).open(&path);
        let pipe = pipe.unwrap();
        Gate { path, pipe }
    }

    fn let_through(&self, count: usize) {
        (&self.pipe)
            .write_all("go\n".repeat(count).as_bytes())
            .unwrap();
    }
}

// ---- one run ----

#[test]
fn the_event_is_one_line_of_json_on_standard_input() {
    let outcome = run(&shell("cat", &[]));
    assert_eq!(outcome.end, End::Exited(0));
    let json = event_json(&full(42, "/mnt/l1"), &host());
    assert_eq!(outcome.output, format!("{json}\n"));
}

#[test]
fn the_event_is_in_the_environment() {
    let outcome = run(&shell("env | grep ^DIRKEEPER_ | sort", &[]));
    let expected = "\
DIRKEEPER_AVAILABLE_BYTES=52613349376
DIRKEEPER_BOOKIE_ID=10.0.0.3:3181
DIRKEEPER_CAUSE=bytes
DIRKEEPER_DIR=/mnt/l1
DIRKEEPER_EVENT=diskFull
DIRKEEPER_FROM=almostFull
DIRKEEPER_HIGH_PRIORITY_WRITES=true
DIRKEEPER_HOST=bk-3
DIRKEEPER_MESSAGE=usage 0.951 is over full 0.950; $(touch /tmp/never) `id` \"quoted\"
DIRKEEPER_ROLE=ledger
DIRKEEPER_SEQ=42
DIRKEEPER_SEVERITY=critical
DIRKEEPER_TIME=2026-11-30T01:02:03.456Z
DIRKEEPER_TO=full
DIRKEEPER_USAGE_RATIO=0.951
DIRKEEPER_WANTED_MODE=readOnly
";
    assert_eq!(outcome.output, expected);
}

#[test]
fn odd_directory_names_arrive_byte_by_byte() {
    let folder = tempfile::tempdir().unwrap();
    let (name, json) = (folder.path().join("name"), folder.path().join("json"));
    let names: [&[u8]; 4] = [
        b"/mnt/two words",
        b"/mnt/line\nfeed\n",
        b"/mnt/'\"$(id)`id`;*\\",
        b"/mnt/\xff\xfe\xc3",
    ];
    let hook = shell(
        "printf %s \"$DIRKEEPER_DIR\" >\"$1\"; cat >\"$2\"",
        &[&name, &json],
    );
    for bytes in names {
        let event = full(1, OsStr::from_bytes(bytes));
        assert_eq!(run_once(&hook, &event, &host()).end, End::Exited(0));
        assert_eq!(fs::read(&name).unwrap(), bytes);
        let document = fs::read_to_string(&json).unwrap();
        let document: EventDocument = serde_json::from_str(&document).unwrap();
        let shown = std::str::from_utf8(bytes).unwrap_or(r"/mnt/\xff\xfe\xc3");
        assert_eq!(document.dir.as_deref(), Some(shown));
    }
}

#[test]
fn no_shell_sees_the_command() {
    let arguments = ["/bin/echo", "$HOME", "a b", ";", "`id`", "*"].map(OsStr::new);
    assert_eq!(
        run(&hook("page", &arguments)).output,
        "$HOME a b ; `id` *\n"
    );
}

#[test]
fn it_runs_in_the_root_directory_and_in_a_group_of_its_own() {
    let outcome = run(&shell("pwd; cut -d' ' -f5 /proc/$$/stat; echo $$", &[]));
    let lines: Vec<&str> = outcome.output.lines().collect();
    assert_eq!(lines[0], "/");
    assert_eq!(lines[1], lines[2]);
}

#[test]
fn no_descriptor_of_the_agent_is_inherited() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let sockets = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // What the test runner itself leaves open for children is not ours; the agent closes such at its
    // start.
    let inherited: Vec<String> = fs::read_dir("/proc/self/fdinfo")
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| {
            let info = fs::read_to_string(entry.path()).unwrap_or_default();
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:\t"));
            let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
            flags.is_some_and(|flags| flags & 0o2_000_000 == 0)
        })
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    let outcome = run(&hook("page", &["/bin/ls", "/proc/self/fd"].map(OsStr::new)));
    let standard = ["0", "1", "2"];
    let new: Vec<&str> = outcome
        .output
        .lines()
        .filter(|fd| !standard.contains(fd) && !inherited.contains(&(*fd).to_owned()))
        .collect();
    assert_eq!(new.len(), 1, "one is that of the listing itself: {new:?}");
    drop((file, sockets));
}

#[test]
fn a_hook_that_never_reads_its_input_does_not_block() {
    // Many paths of full length make a document that no pipe takes in at once.
    let mut event = full(1, "/mnt/l1");
    event.node.unusable = vec![PathBuf::from(format!("/{}", "x".repeat(4000))); 500];
    assert!(event_json(&event, &host()).len() > 1 << 20);
    let ignoring = run_once(&shell("exec true", &[]), &event, &host());
    assert_eq!(ignoring.end, End::Exited(0));
    let closing = run_once(&shell("exec <&-; echo closed", &[]), &event, &host());
    assert_eq!(
        (closing.end, closing.output.as_str()),
        (End::Exited(0), "closed\n")
    );
    let reading = run_once(&shell("wc -c", &[]), &event, &host());
    let all = event_json(&event, &host()).len() + 1;
    assert_eq!(reading.output.trim(), all.to_string());
}

#[test]
fn output_is_kept_to_64_kib_and_the_rest_thrown_away() {
    let outcome = run(&shell(
        "echo first; echo second >&2; head -c 1G /dev/zero",
        &[],
    ));
    assert_eq!(outcome.end, End::Exited(0));
    assert!(outcome.output.starts_with("first\nsecond\n"));
    assert_eq!(outcome.output.len(), 64 << 10);
    let all = (1 << 30) + "first\nsecond\n".len() as u64;
    assert_eq!(outcome.output_dropped, all - (64 << 10));
}

#[test]
fn a_child_that_is_left_with_the_output_does_not_block() {
    let folder = tempfile::tempdir().unwrap();
    let (gate, left) = (Gate::new(folder.path()), folder.path().join("left"));
    let line = "(read line <\"$1\"; touch \"$2\") & echo begun";
    let outcome = run(&shell(line, &[&gate.path, &left]));
    assert_eq!(outcome.end, End::Exited(0));
    assert_eq!(outcome.output, "begun\n");
    // It may stay: some hooks mean to leave something behind.
    assert!(!left.exists());
    gate.let_through(1);
    wait_until("the child goes on", || left.exists());
}

#[test]
fn a_hook_that_is_missing_or_not_executable_is_a_failure_that_says_so() {
    let missing = run(&hook("page", &[OsStr::new("/nonexistent/page")]));
    assert_eq!(missing.end.verdict(), Verdict::Failed);
    let text = missing.end.to_string();
    assert!(text.contains("/nonexistent/page: No such file"), "{text}");

    let file = tempfile::NamedTempFile::new().unwrap();
    let refused = run(&hook("page", &[file.path().as_os_str()]));
    assert_eq!(refused.end.verdict(), Verdict::Failed);
    let text = refused.end.to_string();
    assert!(text.contains("Permission denied"), "{text}");

    let nul = OsString::from_vec(b"/bin/tr\0ue".to_vec());
    assert_eq!(run(&hook("page", &[&nul])).end.verdict(), Verdict::Failed);
    assert_eq!(run(&hook("page", &[])).end.verdict(), Verdict::Failed);
}

#[test]
fn exit_codes_mean_what_the_contract_says() {
    let verdict = |line| run(&shell(line, &[])).end.verdict();
    assert_eq!(verdict("exit 0"), Verdict::Delivered);
    assert_eq!(verdict("exit 75"), Verdict::Again);
    assert_eq!(verdict("exit 1"), Verdict::Failed);
    assert_eq!(verdict("exit 74"), Verdict::Failed);
    assert_eq!(run(&shell("kill -9 $$", &[])).end, End::Signalled(9));
    assert_eq!(End::Signalled(9).verdict(), Verdict::Failed);
}

// ---- many events ----

/// Starts a dispatcher on a runtime thread, as in the agent, and stops it after the test.
fn with_dispatcher(listeners: Vec<Listener>, test: impl FnOnce(&Dispatcher)) {
    let (give, take) = mpsc::channel();
    let (finish, finished) = tokio::sync::oneshot::channel::<()>();
    let agent = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (pending, clock) = (BTreeMap::new(), Clock::start());
            let dispatcher = Dispatcher::start(listeners, None, pending, host(), clock);
            give.send(dispatcher.clone()).unwrap();
            let _ = finished.await;
            dispatcher.stop().await;
        });
    });
    test(&take.recv().unwrap());
    drop(finish);
    agent.join().unwrap();
}

fn view(dispatcher: &Dispatcher, name: &str) -> ListenerView {
    let views = dispatcher.views();
    views.into_iter().find(|view| view.name == name).unwrap()
}

fn callback(name: &str, call: impl FnMut(&Event) + Send + 'static) -> Listener {
    Listener::Callback {
        name: name.to_owned(),
        events: Vec::new(),
        call: Box::new(call),
    }
}

#[test]
fn exit_75_is_tried_again_and_then_delivered() {
    let folder = tempfile::tempdir().unwrap();
    let tried = folder.path().join("tried");
    let hook = shell(
        "echo $DIRKEEPER_SEQ >>\"$1\"; test $(wc -l <\"$1\") -gt 1 || exit 75",
        &[&tried],
    );
    with_dispatcher(vec![Listener::Hook(hook)], |dispatcher| {
        dispatcher.dispatch(Arc::new(full(7, "/mnt/l1")));
        wait_until("one retry", || view(dispatcher, "page").retried == 1);
        wait_until("delivered", || view(dispatcher, "page").delivered == 1);
        assert_eq!(dispatcher.problems(), Vec::<String>::new());
    });
    assert_eq!(lines(&tried), ["7", "7"]);
}

#[test]
fn a_failure_is_counted_shown_and_not_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let tried = folder.path().join("tried");
    let hook = shell(
        "echo $DIRKEEPER_SEQ >>\"$1\"; echo no pager; exit 3",
        &[&tried],
    );
    with_dispatcher(vec![Listener::Hook(hook)], |dispatcher| {
        dispatcher.dispatch(Arc::new(full(1, "/mnt/l1")));
        wait_until("failed", || view(dispatcher, "page").failed == 1);
        let problems = dispatcher.problems().join("\n");
        assert!(
            problems.contains("hook page failed on event 1 diskFull"),
            "{problems}"
        );
        assert!(problems.contains("exit code 3") && problems.contains("no pager"));
        dispatcher.dispatch(Arc::new(full(2, "/mnt/l1")));
        wait_until("failed", || view(dispatcher, "page").failed == 2);
    });
    assert_eq!(lines(&tried), ["1", "2"]);
}

#[test]
fn a_slow_hook_delays_no_other_and_its_events_are_coalesced_to_first_and_newest() {
    let folder = tempfile::tempdir().unwrap();
    let (gate, got) = (Gate::new(folder.path()), folder.path().join("got"));
    let slow = HookOptions {
        name: "slow".to_owned(),
        ..shell("cat >>\"$2\"; read line <\"$1\"", &[&gate.path, &got])
    };
    let quick = HookOptions {
        name: "quick".to_owned(),
        ..shell("exit 0", &[])
    };
    let listeners = vec![Listener::Hook(slow), Listener::Hook(quick)];
    with_dispatcher(listeners, |dispatcher| {
        for seq in 1..=9 {
            dispatcher.dispatch(Arc::new(full(seq, "/mnt/l1")));
            let taken = || view(dispatcher, "quick").delivered == seq;
            wait_until("the quick hook took it", taken);
            wait_until("the slow hook has the first", || !lines(&got).is_empty());
        }
        let slow = view(dispatcher, "slow");
        let counts = (slow.delivered, slow.pending, slow.coalesced);
        assert_eq!(counts, (0, 3, 6));
        gate.let_through(3);
        wait_until("all end", || view(dispatcher, "slow").delivered == 3);
    });
    // The first runs while the others come; of these the first and the newest are kept.
    let documents = lines(&got);
    let documents = documents.iter().map(|line| {
        let document: EventDocument = serde_json::from_str(line).unwrap();
        (document.seq, document.coalesced)
    });
    let expected = [(1, 0), (2, 0), (9, 6)];
    assert_eq!(documents.collect::<Vec<_>>(), expected);
}

#[test]
fn directories_of_one_hook_run_in_parallel_up_to_four() {
    let folder = tempfile::tempdir().unwrap();
    let (gate, got) = (Gate::new(folder.path()), folder.path().join("got"));
    let line = "echo $DIRKEEPER_DIR >>\"$2\"; read line <\"$1\"";
    let hook = shell(line, &[&gate.path, &got]);
    with_dispatcher(vec![Listener::Hook(hook)], |dispatcher| {
        for seq in 1..=6 {
            dispatcher.dispatch(Arc::new(full(seq, format!("/mnt/l{seq}"))));
        }
        wait_until("four begin", || lines(&got).len() == 4);
        assert_eq!(view(dispatcher, "page").pending, 6);
        gate.let_through(1);
        wait_until("a fifth begins", || lines(&got).len() == 5);
        assert_eq!(view(dispatcher, "page").delivered, 1);
        gate.let_through(5);
        wait_until("all end", || view(dispatcher, "page").delivered == 6);
    });
    let mut first: Vec<String> = lines(&got).into_iter().take(4).collect();
    first.sort();
    assert_eq!(first, ["/mnt/l1", "/mnt/l2", "/mnt/l3", "/mnt/l4"]);
}

#[test]
fn a_hook_gets_only_the_events_it_wants() {
    let folder = tempfile::tempdir().unwrap();
    let got = folder.path().join("got");
    let hook = HookOptions {
        events: vec![EventKind::DiskFailed],
        ..shell("echo $DIRKEEPER_EVENT >>\"$1\"", &[&got])
    };
    with_dispatcher(vec![Listener::Hook(hook)], |dispatcher| {
        dispatcher.dispatch(Arc::new(full(1, "/mnt/l1")));
        let mut failed = full(2, "/mnt/l1");
        failed.kind = EventKind::DiskFailed;
        dispatcher.dispatch(Arc::new(failed));
        wait_until("delivered", || view(dispatcher, "page").delivered == 1);
    });
    assert_eq!(lines(&got), ["diskFailed"]);
}

#[test]
fn a_callback_that_panics_is_counted_and_called_again() {
    let (sender, receiver) = mpsc::channel();
    let panicking = callback("panicking", move |event| {
        assert_ne!(event.seq, 1, "as the test wants");
        sender.send(event.seq).unwrap();
    });
    let seen = Arc::new(Mutex::new(Vec::new()));
    let other = Arc::clone(&seen);
    let other = callback("other", move |event| other.lock().unwrap().push(event.seq));
    with_dispatcher(vec![panicking, other, Listener::Log], |dispatcher| {
        for seq in 1..=3 {
            dispatcher.dispatch(Arc::new(full(seq, "/mnt/l1")));
        }
        wait_until("two taken", || view(dispatcher, "panicking").delivered == 2);
        assert_eq!(view(dispatcher, "panicking").failed, 1);
        assert!(dispatcher.problems()[0].contains("as the test wants"));
        wait_until("all taken", || view(dispatcher, "other").delivered == 3);
        wait_until("all logged", || view(dispatcher, "log").delivered == 3);
    });
    assert_eq!(receiver.iter().collect::<Vec<_>>(), [2, 3]);
    assert_eq!(*seen.lock().unwrap(), [1, 2, 3]);
}

#[test]
fn a_callback_that_stalls_keeps_the_first_events_and_the_newest() {
    let (open, gate) = mpsc::channel::<()>();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let events = Arc::clone(&seen);
    let stalling = callback("stalling", move |event| {
        let _ = gate.recv();
        events.lock().unwrap().push((event.seq, event.coalesced));
    });
    with_dispatcher(vec![stalling], |dispatcher| {
        dispatcher.dispatch(Arc::new(full(1, "/mnt/l1")));
        let calling = || view(dispatcher, "stalling").pending == 1;
        wait_until("it is being called", calling);
        for seq in 2..=1000 {
            dispatcher.dispatch(Arc::new(full(seq, "/mnt/l1")));
        }
        let view_of = view(dispatcher, "stalling");
        assert!(
            view_of.pending <= 65 && view_of.coalesced >= 934,
            "{view_of:?}"
        );
        drop(open);
        wait_until("all taken", || view(dispatcher, "stalling").pending == 0);
    });
    let seen = seen.lock().unwrap();
    assert!(seen.is_sorted());
    assert_eq!(seen.last().unwrap().0, 1000);
    let left_out: u32 = seen.iter().map(|(_, coalesced)| coalesced).sum();
    assert_eq!(seen.len() + left_out as usize, 1000);
}

#[test]
fn stopping_does_not_wait_for_a_hook_that_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::new(folder.path());
    let hook = HookOptions {
        timeout: Duration::from_secs(3600),
        ..shell("read line <\"$1\"", &[&gate.path])
    };
    // Returns although the gate is shut.
    with_dispatcher(vec![Listener::Hook(hook)], |dispatcher| {
        dispatcher.dispatch(Arc::new(full(1, "/mnt/l1")));
    });
    gate.let_through(1);
}

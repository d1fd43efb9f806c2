//! The dispatcher with a store that does what the test wants: what is stored when, what is
//! acknowledged, what a restart brings back.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use super::courier::Limits;
use super::outbox::{Append, Outbox};
use super::testing::{all_full, full, wait_until};
use super::{Dispatcher, HookOptions, Listener, lock};
use crate::clock::Clock;
use crate::document::{Host, event_json};
use crate::health::event::{Event, EventKind};
use crate::health::snapshot::ListenerView;
use crate::state::{Appended, StoredEvent};

/// A store in memory. Events become durable while it is `open`.
pub(super) struct Memory {
    open: watch::Sender<bool>,
    appended: Mutex<Vec<(u64, Vec<String>)>>,
    acknowledged: Mutex<Vec<(String, u64)>>,
}

impl Memory {
    pub(super) fn new(open: bool) -> Arc<Memory> {
        Arc::new(Memory {
            open: watch::Sender::new(open),
            appended: Mutex::default(),
            acknowledged: Mutex::default(),
        })
    }

    pub(super) fn appended(&self) -> Vec<u64> {
        lock(&self.appended).iter().map(|(seq, _)| *seq).collect()
    }

    pub(super) fn acknowledged(&self) -> Vec<u64> {
        lock(&self.acknowledged)
            .iter()
            .map(|(_, seq)| *seq)
            .collect()
    }
}

impl Outbox for Memory {
    fn append(&self, event: StoredEvent, listeners: Vec<String>) -> Append {
        lock(&self.appended).push((event.seq, listeners));
        let mut open = self.open.subscribe();
        Box::pin(async move {
            let _ = open.wait_for(|open| *open).await;
            Appended::Durable
        })
    }

    fn acknowledge(&self, listener: &str, seq: u64) {
        lock(&self.acknowledged).push((listener.to_owned(), seq));
    }
}

/// A dispatcher on a runtime thread.
pub(super) struct Agent {
    pub(super) dispatcher: Dispatcher,
    finish: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Agent {
    pub(super) fn start(listeners: Vec<Listener>, store: &Arc<Memory>, pending: Pending) -> Agent {
        Agent::start_with(listeners, store, pending, Limits::default())
    }

    pub(super) fn start_with(
        listeners: Vec<Listener>,
        store: &Arc<Memory>,
        pending: Pending,
        limits: Limits,
    ) -> Agent {
        let (give, take) = mpsc::channel();
        let (finish, finished) = oneshot::channel::<()>();
        let store = Arc::clone(store);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let (host, clock) = (Host::default(), Clock::start());
                let dispatcher = Dispatcher::with(listeners, store, pending, host, clock, limits);
                give.send(dispatcher.clone()).unwrap();
                let _ = finished.await;
                dispatcher.stop().await;
            });
        });
        Agent {
            dispatcher: take.recv().unwrap(),
            finish: Some(finish),
            thread: Some(thread),
        }
    }

    pub(super) fn dispatch(&self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            self.dispatcher.dispatch(Arc::new(event));
        }
    }

    pub(super) fn view(&self, name: &str) -> ListenerView {
        let views = self.dispatcher.views();
        views.into_iter().find(|view| view.name == name).unwrap()
    }

    pub(super) fn stop(mut self) {
        drop(self.finish.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

pub(super) type Pending = BTreeMap<String, Vec<StoredEvent>>;

pub(super) fn pending(name: &str, events: &[Event]) -> Pending {
    let stored = events.iter().map(|event| StoredEvent {
        seq: event.seq,
        json: Arc::from(event_json(event, &Host::default())),
    });
    Pending::from([(name.to_owned(), stored.collect())])
}

/// A hook that appends number, directory and count of each event to a file, and does the rest.
fn hook(name: &str, file: &Path, rest: &str) -> HookOptions {
    let line = format!(
        "n=$(grep -o '\"coalesced\":[0-9]*'); printf '%s %s %s\\n' $DIRKEEPER_SEQ \
         \"$DIRKEEPER_DIR\" ${{n#*:}} >>\"$1\"; {rest}"
    );
    let command = ["/bin/sh", "-c", &line, "hook"].map(OsString::from);
    HookOptions {
        name: name.to_owned(),
        events: Vec::new(),
        command: command.into_iter().chain([file.into()]).collect(),
        timeout: Duration::from_secs(60),
    }
}

/// A folder with a file to which hooks write, and whose other file lets them go on.
struct Folder {
    folder: tempfile::TempDir,
    file: PathBuf,
}

impl Folder {
    pub(super) fn new() -> Folder {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("got");
        Folder { folder, file }
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// What a hook waits for until [`Folder::open`].
    fn gate(&self) -> String {
        let gate = self.folder.path().join("open");
        format!("until test -e '{}'; do sleep 0.01; done", gate.display())
    }

    fn open(&self) {
        fs::write(self.folder.path().join("open"), "").unwrap();
    }
}

#[test]
fn hooks_get_an_event_when_it_is_stored_and_callbacks_at_once() {
    let (folder, store) = (Folder::new(), Memory::new(false));
    let called = Arc::new(Mutex::new(Vec::new()));
    let calls = Arc::clone(&called);
    let listeners = vec![
        Listener::Hook(hook("page", &folder.file, "")),
        Listener::Hook(HookOptions {
            events: vec![EventKind::DiskFull],
            ..hook("full", &folder.file, "")
        }),
        Listener::Callback {
            name: "embedder".to_owned(),
            events: Vec::new(),
            call: Box::new(move |event| lock(&calls).push(event.seq)),
        },
    ];
    let agent = Agent::start(listeners, &store, Pending::new());
    agent.dispatch([full(1, "/mnt/l1"), all_full(2)]);
    wait_until("the callback is called", || *lock(&called) == [1, 2]);
    // Both are sent to the store although the first is not safe yet.
    wait_until("both are on their way", || store.appended() == [1, 2]);
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let expected: [(u64, Vec<String>); 2] = [(1, names(&["page", "full"])), (2, names(&["page"]))];
    assert_eq!(*lock(&store.appended), expected);
    assert_eq!(
        (agent.view("page").pending, agent.view("page").delivered),
        (0, 0)
    );
    store.open.send_replace(true);
    wait_until("the hook took them", || agent.view("page").delivered == 2);
    wait_until("and the other one", || agent.view("full").delivered == 1);
    agent.stop();
    let mut acknowledged = store.acknowledged();
    acknowledged.sort_unstable();
    assert_eq!(acknowledged, [1, 1, 2]);
}

#[test]
fn an_event_is_acknowledged_after_its_hook_took_it_with_those_it_stands_for() {
    let (folder, store) = (Folder::new(), Memory::new(true));
    let page = hook("page", &folder.file, &folder.gate());
    let agent = Agent::start(vec![Listener::Hook(page)], &store, Pending::new());
    agent.dispatch([full(1, "/mnt/l1")]);
    wait_until("the first runs", || folder.lines().len() == 1);
    agent.dispatch((2..=6).map(|seq| full(seq, "/mnt/l1")));
    wait_until("the others wait", || agent.view("page").coalesced == 3);
    assert_eq!(store.acknowledged(), Vec::<u64>::new());
    folder.open();
    wait_until("all are taken", || store.acknowledged().len() == 6);
    assert_eq!(store.acknowledged(), [1, 2, 3, 4, 5, 6]);
    agent.stop();
    assert_eq!(
        folder.lines(),
        ["1 /mnt/l1 0", "2 /mnt/l1 0", "6 /mnt/l1 3"]
    );
}

#[test]
fn what_was_not_acknowledged_is_delivered_after_a_restart_before_anything_new() {
    let (folder, store) = (Folder::new(), Memory::new(true));
    let left = [full(3, "/mnt/l1"), full(4, "/mnt/l2"), all_full(5)];
    let mut pending = pending("page", &left);
    pending.insert("gone".to_owned(), pending["page"].clone());
    let broken = StoredEvent {
        seq: 2,
        json: Arc::from("{}"),
    };
    pending.get_mut("page").unwrap().insert(0, broken);
    let page = hook("page", &folder.file, &folder.gate());
    let agent = Agent::start(vec![Listener::Hook(page)], &store, pending);
    agent.dispatch([full(6, "/mnt/l1"), full(7, "/mnt/l3")]);
    folder.open();
    wait_until("all are taken", || agent.view("page").delivered == 5);
    assert_eq!(agent.view("page").failed, 1, "one could not be read");
    agent.stop();
    let of_first = |line: &String| line.contains("l1");
    let first: Vec<String> = folder.lines().into_iter().filter(of_first).collect();
    assert_eq!(first, ["3 /mnt/l1 0", "6 /mnt/l1 0"]);
    let acknowledged = lock(&store.acknowledged);
    let of = |name: &str| -> Vec<u64> {
        let its = acknowledged.iter().filter(|(listener, _)| listener == name);
        let mut its: Vec<u64> = its.map(|(_, seq)| *seq).collect();
        its.sort_unstable();
        its
    };
    assert_eq!(
        (of("page"), of("gone")),
        (vec![2, 3, 4, 5, 6, 7], vec![3, 4, 5])
    );
}

#[test]
fn what_a_stopped_agent_has_not_delivered_stays_in_the_store() {
    let (folder, store) = (Folder::new(), Memory::new(true));
    let page = hook("page", &folder.file, &folder.gate());
    let agent = Agent::start(vec![Listener::Hook(page)], &store, Pending::new());
    agent.dispatch([full(1, "/mnt/l1")]);
    wait_until("the first runs", || folder.lines().len() == 1);
    agent.dispatch([full(2, "/mnt/l1"), full(3, "/mnt/l1")]);
    let dispatcher = agent.dispatcher.clone();
    agent.stop();
    assert_eq!(store.appended(), [1, 2, 3]);
    assert_eq!(store.acknowledged(), Vec::<u64>::new());
    // The one that runs may end; no other is begun.
    folder.open();
    wait_until("the first is taken", || store.acknowledged() == [1]);
    assert_eq!(dispatcher.views()[0].pending, 2);
    assert_eq!(folder.lines(), ["1 /mnt/l1 0"]);
}

#[test]
fn a_failed_hook_is_acknowledged_and_a_time_out_is_tried_again_until_it_is_too_old() {
    let (folder, store) = (Folder::new(), Memory::new(true));
    let failing = HookOptions {
        command: vec!["/nonexistent/page".into()],
        ..hook("failing", &folder.file, "")
    };
    let hanging = HookOptions {
        timeout: Duration::from_millis(200),
        ..hook("hanging", &folder.file, "exec sleep 1000")
    };
    let limits = Limits::short();
    let listeners = vec![Listener::Hook(failing), Listener::Hook(hanging)];
    let agent = Agent::start_with(listeners, &store, Pending::new(), limits);
    agent.dispatch([full(1, "/mnt/l1")]);
    wait_until("the missing one failed", || {
        agent.view("failing").failed == 1
    });
    assert!(agent.dispatcher.problems()[0].contains("/nonexistent/page: No such file"));
    wait_until("the other is given up", || {
        agent.view("hanging").failed == 1
    });
    let view = agent.view("hanging");
    assert!(view.retried > 0, "{view:?}");
    // On a busy machine its time may be over before its first line.
    assert!(folder.lines().len() as u64 <= view.retried + 1);
    assert_eq!(view.durations.unwrap().count, view.retried + 1);
    agent.stop();
    assert_eq!(store.acknowledged(), [1, 1]);
}

#[test]
fn a_reload_keeps_the_events_of_hooks_that_stay_and_ends_those_of_removed_ones() {
    let (kept, removed) = (Folder::new(), Folder::new());
    let store = Memory::new(true);
    let listeners = |names: &[&str]| -> Vec<Listener> {
        let hooks = [("kept", &kept), ("removed", &removed), ("new", &kept)];
        let hooks = hooks.iter().filter(|(name, _)| names.contains(name));
        hooks
            .map(|(name, folder)| Listener::Hook(hook(name, &folder.file, &folder.gate())))
            .chain([Listener::Log])
            .collect()
    };
    let agent = Agent::start(listeners(&["kept", "removed"]), &store, Pending::new());
    agent.dispatch([full(1, "/mnt/l1")]);
    let begun = || !kept.lines().is_empty() && !removed.lines().is_empty();
    wait_until("the first runs", begun);
    agent.dispatch([full(2, "/mnt/l1"), full(3, "/mnt/l1")]);
    wait_until("two wait", || agent.view("removed").pending == 3);
    wait_until("and here", || agent.view("kept").pending == 3);

    assert_eq!(agent.dispatcher.replace(listeners(&["new", "kept"])), 2);
    let names: Vec<String> = agent
        .dispatcher
        .views()
        .into_iter()
        .map(|view| view.name)
        .collect();
    assert_eq!(names, ["kept", "new", "log"]);
    assert_eq!(agent.view("kept").pending, 3);
    assert_eq!(
        *lock(&store.acknowledged),
        [("removed".to_owned(), 2), ("removed".to_owned(), 3)]
    );
    // The run that is going on may end, and counts.
    removed.open();
    wait_until("it is acknowledged", || store.acknowledged().contains(&1));
    kept.open();
    wait_until("what waited is delivered", || {
        agent.view("kept").delivered == 3
    });
    agent.stop();
    assert_eq!(removed.lines(), ["1 /mnt/l1 0"]);
}

#[test]
fn events_for_which_there_is_no_room_before_the_store_are_counted() {
    let folder = Folder::new();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    runtime.block_on(async {
        let page = vec![Listener::Hook(hook("page", &folder.file, ""))];
        let (pending, clock) = (Pending::new(), Clock::start());
        let dispatcher = Dispatcher::start(page, None, pending, Host::default(), clock);
        // Nothing is taken away here: the runtime does not turn.
        for seq in 1..=9000 {
            dispatcher.dispatch(Arc::new(full(seq, "/mnt/l1")));
        }
        assert_eq!(dispatcher.views()[0].failed, 9000 - 8192);
        assert!(dispatcher.problems()[0].contains("lost event 9000 diskFull"));
    });
}

//! Ten thousand changes in a second, through the monitor loop, the state store and listeners that
//! behave in all ways: the loop is never late, nothing that was promised is lost, and all of it is bounded.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use dirkeeper::health::dir::{Dir, DirId, ProbePolicy, Thresholds};
use dirkeeper::health::moment::Elapsed;
use dirkeeper::health::observation::{Cookie, Device, Identity, Look, Medium, Mount, Observation};
use dirkeeper::health::policy::Policy;
use dirkeeper::http_client::{Authorities, Url};
use dirkeeper::listener::{Webhook, WebhookOptions};
use dirkeeper::monitor::{ACTION_QUEUE, Action, Monitor, MonitorOptions};
use dirkeeper::probe::{Prober, ProberOptions, Report};
use dirkeeper::state::{Store, StoreOptions};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::*;

const DIRS: u32 = 16;
const ROUNDS: u32 = 625;

/// How late a turn may be. Of what is not optimised, beside builds and other tests, only a turn that
/// takes everything in at once would be so late.
const LATE: Duration = Duration::from_millis(if cfg!(debug_assertions) { 5000 } else { 100 });

/// Most of what may wait for one listener: for each directory and the node, one on its way and two behind it.
const WAITING: u64 = 3 * (DIRS as u64 + 1);

fn dir(number: u32) -> Dir {
    Dir {
        path: format!("/nowhere/l{number}").into(),
        role: Role::Ledger,
        thresholds: Thresholds {
            dwell: Duration::ZERO,
            ..Thresholds::default()
        },
        probe: ProbePolicy::default(),
        require_mount: false,
        root_ok: false,
        await_cookie: false,
        ballast: 0,
    }
}

fn mounted(number: u32) -> Report {
    let mount = Mount {
        id: 1,
        device: device(number),
        root: "/".into(),
        point: dir(number).path,
        source: "/dev/test".to_owned(),
        fs_type: "ext4".to_owned(),
        options: "rw".to_owned(),
        read_only: false,
        emergency: None,
        medium: Medium::SolidState,
    };
    Report::Observed {
        dir: DirId(number),
        observation: Observation::Mounted(mount),
    }
}

fn device(minor: u32) -> Device {
    Device { major: 8, minor }
}

fn looked(number: u32, full: bool) -> Report {
    let space = Space {
        size: 1 << 40,
        available: if full { 1 << 30 } else { 1 << 39 },
        inodes: 0,
        inodes_free: 0,
    };
    Report::Observed {
        dir: DirId(number),
        observation: Observation::Looked(Look {
            space: Some(space),
            identity: Some(Identity {
                device: Some(device(number)),
                mount_id: Some(1),
                fsid: 7,
                cookie: Cookie::Absent,
                canonical: dir(number).path,
                boot_id: "this".to_owned(),
                ..Identity::default()
            }),
            probed: true,
            ..Look::default()
        }),
    }
}

/// A server that takes each event, or never answers.
fn webhook(name: &str, answers: bool) -> Listener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    // Ends with the process of the tests.
    thread::spawn(move || {
        let mut silent: Vec<TcpStream> = Vec::new();
        for mut stream in listener.incoming().map_while(Result::ok) {
            if !answers {
                silent.push(stream);
                continue;
            }
            let mut request = vec![0; 1 << 20];
            let mut read = 0;
            while !request[..read].ends_with(b"}}") {
                match stream.read(&mut request[read..]) {
                    Ok(count) if count > 0 => read += count,
                    _ => break,
                }
            }
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
        }
    });
    let options = WebhookOptions {
        name: name.to_owned(),
        url: Url::parse(&url).unwrap(),
        events: Vec::new(),
        secret: Some(b"secret".to_vec()),
        authorities: Authorities::none(),
        timeout: Duration::from_secs(60),
    };
    Listener::Webhook(Webhook::new(options).unwrap())
}

/// What a storm needs of the agent that it comes over.
struct Agent {
    dispatcher: Dispatcher,
    store: Store,
    actions: Sender<Action>,
    reports: Sender<Report>,
    snapshots: tokio::sync::watch::Receiver<Arc<dirkeeper::health::snapshot::Snapshot>>,
    _unheard: Receiver<Report>,
}

/// The agent's own parts, joined as it joins them, but for the prober: what is seen comes from the test.
async fn start(folder: &Path, listeners: Vec<Listener>) -> Agent {
    let (clock, program) = (
        Clock::start(),
        PathBuf::from(env!("CARGO_BIN_EXE_dirkeeper")),
    );
    let store = Store::start(
        StoreOptions {
            state_dir: folder.join("state"),
            program: program.clone(),
            retention_bytes: 1 << 30,
            retention_age: Duration::from_secs(3600),
            lock_memory: false,
        },
        clock.clone(),
    );
    let held = Some(store.clone());
    let dispatcher = Dispatcher::start(listeners, held, BTreeMap::new(), host(), clock.clone());
    let publisher = dispatcher.clone();
    let options = MonitorOptions {
        dirs: (0..DIRS).map(dir).collect(),
        policy: Policy::default(),
        pins: Box::new(|_| None),
        keep_pin: Box::new(|_, _| {}),
        publish: Box::new(move |event| publisher.dispatch(event)),
        last_seq: Some(0),
        look_only: false,
    };
    let (unheard, _unheard) = channel(1);
    let prober = ProberOptions {
        program,
        args: Vec::new(),
        dirs: Vec::new(),
        lock_memory: false,
    };
    let prober = Prober::start(prober, clock.clone(), unheard);
    let (monitor, snapshots) = Monitor::new(options, prober, clock);
    store.opened().await;
    let (actions, action_queue) = channel(ACTION_QUEUE);
    let (reports, report_queue) = channel(ACTION_QUEUE);
    tokio::spawn(monitor.run(action_queue, report_queue));
    Agent {
        dispatcher,
        store,
        actions,
        reports,
        snapshots,
        _unheard,
    }
}

/// Runs the test beside such an agent, which has one thread as in the program.
fn beside(listeners: Vec<Listener>, test: impl FnOnce(&Agent, &tokio::runtime::Handle)) {
    let (give, take) = mpsc::channel();
    let (finish, finished) = tokio::sync::oneshot::channel::<()>();
    let agent = thread::spawn(move || {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(async {
            let agent = start(folder.path(), listeners).await;
            let (dispatcher, store) = (agent.dispatcher.clone(), agent.store.clone());
            give.send((agent, runtime.handle().clone())).unwrap();
            let _ = finished.await;
            dispatcher.stop().await;
            store.stop();
        });
        runtime.shutdown_background();
    });
    let (beside, runtime) = take.recv().unwrap();
    test(&beside, &runtime);
    drop(finish);
    agent.join().unwrap();
}

impl Agent {
    /// How long the loop takes to show what it is asked to show.
    fn lateness(&self, clock: &Clock, number: u64) -> Elapsed {
        let (asked, text) = (clock.elapsed(), format!("storm {number}"));
        let shown = Action::Problem("storm", Some(text.clone()));
        self.actions.blocking_send(shown).unwrap();
        wait_until("the loop turns", || {
            self.snapshots.borrow().problems.contains(&text)
        });
        clock.elapsed() - asked
    }
}

/// Bytes of memory that this process has.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse::<u64>()
        .unwrap()
        << 10
}

/// Each directory is full and writable again in turn, all of them 625 times in a second.
fn storm(reports: &Sender<Report>) -> Elapsed {
    let clock = Clock::start();
    for round in 0..ROUNDS {
        let due = Duration::from_secs(1) * round / ROUNDS;
        while let Some(wait) = due.checked_sub(clock.elapsed()).filter(|it| !it.is_zero()) {
            thread::park_timeout(wait);
        }
        for number in 0..DIRS {
            let report = looked(number, round % 2 == 0);
            reports.blocking_send(report).unwrap();
        }
    }
    clock.elapsed()
}

#[test]
fn ten_thousand_changes_in_a_second_delay_nothing_and_lose_nothing() {
    let (open, gate) = mpsc::channel::<()>();
    let listeners = vec![
        Listener::Log,
        callback("blocking", move |_| {
            let _ = gate.recv();
        }),
        webhook("taking", true),
        webhook("silent", false),
        Listener::Hook(hook("page", &[OsStr::new("/bin/true")])),
    ];
    beside(listeners, |agent, runtime| {
        for number in 0..DIRS {
            agent.reports.blocking_send(mounted(number)).unwrap();
            agent.reports.blocking_send(looked(number, false)).unwrap();
        }
        wait_until("all is known", || agent.snapshots.borrow().ready);
        let (clock, before, reports) = (Clock::start(), resident(), agent.reports.clone());
        let storm = thread::spawn(move || storm(&reports));
        let (mut late, mut number, mut waiting) = (Duration::ZERO, 0, 0);
        while !storm.is_finished() {
            number += 1;
            late = late.max(agent.lateness(&clock, number));
            let views = agent.dispatcher.views();
            let carried = views.iter().filter(|it| it.kind.ends_with("hook"));
            waiting = carried.map(|it| it.pending).fold(waiting, u64::max);
            thread::park_timeout(Duration::from_millis(5));
        }
        let took = storm.join().unwrap();
        wait_until("all was heard", || agent.reports.capacity() == ACTION_QUEUE);
        late = late.max(agent.lateness(&clock, number + 1));
        let all = agent.snapshots.borrow().last_seq;
        assert!(u64::from(DIRS * ROUNDS) <= all, "{all}");
        for name in ["log", "taking", "page"] {
            wait_until(name, || {
                let view = view(&agent.dispatcher, name);
                (view.delivered + view.coalesced, view.pending, view.failed) == (all, 0, 0)
            });
        }
        wait_until("all is stored", || agent.store.health().waiting == 0);
        let grown = resident().saturating_sub(before) >> 20;
        let silent = view(&agent.dispatcher, "silent");
        assert_eq!((silent.pending + silent.coalesced, silent.failed), (all, 0));
        assert!(waiting <= WAITING, "{waiting}");
        assert!(late < LATE, "{late:?} within {took:?}");
        assert!(grown < 64, "{grown} MiB");
        // Where the disk does not keep up, what is not in the log is counted.
        let (mut stored, mut last) = (0, 0);
        while let Ok(page) = runtime.block_on(agent.store.events(last, 1000))
            && let Some(newest) = page.last()
        {
            (stored, last) = (stored + page.len() as u64, newest.seq);
        }
        assert_eq!((stored + agent.store.health().lost, last), (all, all));
        drop(open);
    });
}

//! The room `bookie` beside real ones: each call of its client, what its task hears, and a bookie that
//! hangs because its ZooKeeper is away.

use std::future::Future;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use dirkeeper::bookie::watch::{self, WatchOptions};
use dirkeeper::bookie::{AdminClient, AdminError, AdminOptions, Facts, parse_version};
use dirkeeper::clock::Clock;
use dirkeeper::health::beside::{BookieProcess, Heard};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::harness::bench::Bench;
use crate::harness::http;
use crate::harness::run::{text, try_command, wait_for};
use crate::stand::lab::{Bookie, STANDARD, Setup};

/// Registrations follow, and processes are looked for each 10 s.
const LIMIT: Duration = Duration::from_secs(60);

/// Pauses after a time-out are at most 30 s.
const AFTER_PAUSES: Duration = Duration::from_secs(120);

fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

fn client(bookie: Bookie<'_>) -> AdminClient {
    AdminClient::new(AdminOptions {
        url: format!("http://localhost:{}", bookie.admin_port()),
        ..AdminOptions::default()
    })
    .expect("a client")
}

/// Calls one after the other, as a keeper makes them.
struct Caller<'a> {
    runtime: &'a Runtime,
    client: AdminClient,
}

impl Caller<'_> {
    fn run<T>(&self, call: impl Future<Output = Result<T, AdminError>>) -> T {
        self.runtime
            .block_on(call)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    fn set(&self, bookie: Bookie<'_>, read_only: bool, list: &str) {
        self.run(self.client.set_read_only(read_only));
        let state = self.run(self.client.state());
        assert!(state.running && !state.shutting_down, "{state:?}");
        assert_eq!(state.read_only, read_only, "{state:?}");
        assert_eq!(state.high_priority_writes, Some(true), "{state:?}");
        wait_for("the registration follows", LIMIT, || {
            (bookie.registered() == Some(list)).then_some(())
        });
    }
}

/// Each call, with the storage that has one element of details, or one for each of two directories.
fn calls(bench: &Bench, version: &str, storage: &str, directories: usize) {
    let class = format!("ledgerStorageClass=org.apache.bookkeeper.bookie.{storage}");
    let lab = Setup::new(bench).version(version).conf(&class).up();
    let bookie = lab.bookie(1);
    let runtime = runtime();
    let caller = Caller {
        runtime: &runtime,
        client: client(bookie),
    };
    let number = parse_version(version);
    let facts = Facts::of(number);
    let has_calls = number.is_some_and(|(major, minor, _)| (4, 16) <= (major, minor));
    assert!(facts.state_readonly);
    for _ in 0..2 {
        caller.set(bookie, true, "readonly");
    }
    caller.set(bookie, false, "available");

    let details = caller.run(caller.client.gc_details());
    assert_eq!(details.len(), directories, "{details:?}");
    for details in &details {
        let compacts = [
            details.force_compacting,
            details.major_compacting,
            details.minor_compacting,
        ];
        assert_eq!(compacts, [false; 3], "{details:?}");
    }
    caller.run(caller.client.trigger_gc());
    wait_for("no garbage collection is forced", LIMIT, || {
        (!caller.run(caller.client.forced_gc())).then_some(())
    });
    let after = caller.run(caller.client.gc_details());
    let counted = |details: &[dirkeeper::health::beside::GcDetails]| {
        let counts = details.iter().map(|one| (one.majors, one.minors));
        counts.collect::<Vec<_>>()
    };
    let is_unforced = counted(&after) == counted(&details);
    assert_eq!(is_unforced, facts.gc_flags, "{details:?}, then {after:?}");

    let flags = || caller.run(caller.client.compaction());
    assert_eq!(flags().is_some(), has_calls, "{version}");
    if !has_calls {
        let missing = runtime.block_on(caller.client.resume_compaction(true, true));
        assert!(
            matches!(missing, Err(AdminError::Missing { .. })),
            "{missing:?}"
        );
        return;
    }
    let suspended = || flags().map(|flags| (flags.major_suspended, flags.minor_suspended));
    assert_eq!(suspended(), Some((false, false)));
    let body = r#"{"suspendMajor":true,"suspendMinor":true}"#;
    let path = "/api/v1/bookie/gc/suspend_compaction";
    let answer = http::call(bookie.admin_port(), "PUT", path, body, LIMIT);
    assert_eq!(answer.expect("an answer").0, 200);
    assert_eq!(suspended(), Some((true, true)));
    caller.run(caller.client.resume_compaction(true, false));
    assert_eq!(suspended(), Some((false, true)));
    caller.run(caller.client.resume_compaction(false, true));
    assert_eq!(suspended(), Some((false, false)));
}

const SORTED: &str = "SortedLedgerStorage";
const DB: &str = "storage.ldb.DbLedgerStorage";

pub(crate) fn calls_4_14_7(bench: &Bench) {
    calls(bench, "4.14.7", SORTED, 1);
}

pub(crate) fn calls_4_16_6(bench: &Bench) {
    calls(bench, "4.16.6", DB, 2);
}

pub(crate) fn calls_4_17_3(bench: &Bench) {
    calls(bench, STANDARD, DB, 2);
}

pub(crate) fn calls_4_18_0(bench: &Bench) {
    calls(bench, "4.18.0", SORTED, 1);
}

/// What its own file forbids is refused in its own words.
pub(crate) fn read_only_is_disabled(bench: &Bench) {
    let lab = Setup::new(bench).conf("readOnlyModeEnabled=false").up();
    let runtime = runtime();
    let client = client(lab.bookie(1));
    let refused = runtime.block_on(client.set_read_only(true)).unwrap_err();
    assert!(refused.is_refusal(), "{refused}");
    let words = refused.to_string();
    assert!(
        words.contains("answered 400: `Bookie is disabled ReadOnly mode"),
        "{words}"
    );
}

/// HTTPS with the server's own certificate, and one of ours that it asks for.
pub(crate) fn https_with_client_certificate(bench: &Bench) {
    let lab = Setup::new(bench).up();
    let bookie = lab.bookie(1);
    let folder = bench.folder();
    let own = rcgen::generate_simple_self_signed(["dirkeeper".to_owned()]).expect("a certificate");
    let (certificate, key) = (own.cert.pem(), own.signing_key.serialize_pem());
    std::fs::write(folder.join("client.pem"), &certificate).expect("the folder is ours");
    let keytool = |store: &str, words: &str| {
        let words = words.replace("DIR", text(folder));
        let words = words.split(' ');
        let place = folder.join(store);
        let fixed = [
            "-keystore",
            text(&place),
            "-storetype",
            "JKS",
            "-storepass",
            "changeit",
        ];
        let mut command = Command::new("keytool");
        command.args(words).args(fixed);
        try_command(command, LIMIT).unwrap_or_else(|problem| panic!("{problem}"));
    };
    keytool(
        "server.jks",
        "-genkeypair -alias server -keyalg RSA -keypass changeit -dname CN=bookie -ext san=ip:127.0.0.1",
    );
    keytool(
        "server.jks",
        "-exportcert -rfc -alias server -file DIR/server.pem",
    );
    keytool(
        "trust.jks",
        "-importcert -noprompt -alias ours -file DIR/client.pem",
    );
    bookie.stop("TERM");
    let mut conf = std::fs::read_to_string(bookie.conf()).expect("bk-lab wrote it");
    conf.push_str("\nhttpServerTlsEnable=true\n");
    for (store, file) in [("KeyStore", "server.jks"), ("TrustStore", "trust.jks")] {
        let place = folder.join(file);
        conf.push_str(&format!("httpServer{store}Path={}\n", text(&place)));
        conf.push_str(&format!("httpServer{store}Password=changeit\n"));
    }
    std::fs::write(bookie.conf(), conf).expect("the folder is ours");
    try_command(lab.command("start", &["bookie1"]), LIMIT).expect("it starts");

    let ca = std::fs::read(folder.join("server.pem")).expect("keytool wrote it");
    let with = |cert_and_key| {
        AdminClient::new(AdminOptions {
            url: format!("https://127.0.0.1:{}", bookie.admin_port()),
            ca: Some(ca.clone()),
            cert_and_key,
        })
        .expect("a client")
    };
    let runtime = runtime();
    let ours = with(Some((certificate.into_bytes(), key.into_bytes())));
    wait_for("the bookie answers over HTTPS", AFTER_PAUSES, || {
        runtime
            .block_on(ours.state())
            .is_ok_and(|state| state.running)
            .then_some(())
    });
    let put = runtime.block_on(ours.set_read_only(true));
    put.unwrap_or_else(|error| panic!("{error}"));
    let refused = runtime.block_on(with(None).state()).unwrap_err();
    assert!(
        matches!(refused, AdminError::Untrusted { .. }),
        "{refused:?}"
    );
    let plain = runtime.block_on(client(bookie).state()).unwrap_err();
    assert!(!plain.was_not_asked(), "{plain}");
}

/// What the task hears, one after the other. It ends with this.
struct Listener {
    heard: Receiver<Heard>,
    _end: oneshot::Sender<()>,
}

impl Listener {
    fn start(bookie: Bookie<'_>) -> Listener {
        let (says, heard) = channel();
        let (end, ended) = oneshot::channel();
        let (conf, client) = (Some(bookie.conf()), client(bookie));
        std::thread::spawn(move || {
            runtime().block_on(async {
                let options = WatchOptions { conf };
                let say = move |heard| drop(says.send(heard));
                let _newest = watch::start(options, client, say, Clock::start());
                let _ = ended.await;
            });
        });
        Listener { heard, _end: end }
    }

    /// Skips what does not pass.
    fn hear<T>(&self, what: &str, pass: impl Fn(&Heard) -> Option<T>) -> T {
        wait_for(what, AFTER_PAUSES, || {
            self.heard.try_iter().find_map(|heard| pass(&heard))
        })
    }

    fn process(&self) -> BookieProcess {
        self.hear("the process", |heard| match heard {
            Heard::Process(Ok(process)) => process.clone(),
            _ => None,
        })
    }
}

/// State, process and version are heard, also through an end and a new start. Another bookie on the
/// machine is not taken for this one.
pub(crate) fn heard_through_a_restart(bench: &Bench) {
    let lab = Setup::new(bench).bookies(2).up();
    let bookie = lab.bookie(1);
    let listener = Listener::start(bookie);
    let first = listener.process();
    let pid = || {
        let file = bench.folder().join("lab/bookie1.pid");
        let text = std::fs::read_to_string(file).expect("bk-lab wrote it");
        text.trim().parse::<u32>().expect("a number")
    };
    assert_eq!(first.pid, pid());
    assert_eq!(first.version.as_deref(), Some(STANDARD));
    for slow in ["compaction", "gc", "forced gc"] {
        listener.hear(slow, |heard| match heard {
            Heard::Compaction(Ok(Some(_))) => (slow == "compaction").then_some(()),
            Heard::Gc(Ok(details)) => (slow == "gc" && !details.is_empty()).then_some(()),
            Heard::ForcedGc(Ok(false)) => (slow == "forced gc").then_some(()),
            _ => None,
        });
    }
    bookie.stop("KILL");
    listener.hear("the state is lost", |heard| match heard {
        Heard::State(Err(text)) => text.contains("cannot connect").then_some(()),
        _ => None,
    });
    listener.hear("the process has ended", |heard| match heard {
        Heard::Process(process) => (process.clone() != Ok(Some(first.clone()))).then_some(()),
        _ => None,
    });
    bookie.start();
    let second = listener.process();
    assert_eq!(second.pid, pid());
    assert_ne!(second.pid, first.pid);
    assert!(first.started < second.started);
}

/// A PUT without an answer takes effect much later, and until then nothing is asked in a loop.
pub(crate) fn hangs_without_zookeeper(bench: &Bench) {
    let lab = Setup::new(bench).up();
    let bookie = lab.bookie(1);
    let runtime = runtime();
    let client = client(bookie);
    let ask = || runtime.block_on(client.state());
    assert!(!ask().expect("an answer").read_only);
    lab.stop_zookeeper();
    let lost = runtime.block_on(client.set_read_only(true)).unwrap_err();
    assert!(matches!(lost, AdminError::TimedOut { .. }), "{lost}");
    assert!(!lost.is_refusal());
    assert!(ask().unwrap_err().was_not_asked());
    let again = runtime.block_on(client.set_read_only(true)).unwrap_err();
    assert!(again.was_not_asked(), "{again}");
    wait_for("the question after the pause hangs too", LIMIT, || {
        matches!(ask(), Err(AdminError::TimedOut { .. })).then_some(())
    });
    lab.start_zookeeper();
    wait_for("the order took effect", AFTER_PAUSES, || {
        ask().is_ok_and(|state| state.read_only).then_some(())
    });
}

//! Requests of a scan, each with its time, counted where they arrive: below the limit in every second, and near it while there is
//! work.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dirkeeper::clock::Clock;
use dirkeeper::cluster::Paced;
use dirkeeper::cluster::store::{Answer, Changed, Kind, Link, MetaStore, Op, Stat};
use dirkeeper::reclaim::scan::{Ledgers, Options, Progress, Pulsar, Sources, scan_with};
use dirkeeper::reclaim::state::State;
use tokio::sync::watch;

use crate::cluster::{Generated, Time};

const LIMIT: u32 = 200;
const FOR: Duration = Duration::from_secs(15);
/// A hundred answers list a million ledgers, and while those are written down there is nothing to ask.
const LISTED: Duration = Duration::from_secs(5);
const SECOND: Duration = Duration::from_secs(1);

struct Timed {
    store: Generated,
    clock: Clock,
    times: Arc<Mutex<Vec<Duration>>>,
}

impl Timed {
    fn note(&self) {
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.push(self.clock.elapsed());
    }
}

pub(crate) fn check() {
    let clock = Clock::start();
    let times = Arc::default();
    let timed = Timed {
        store: Generated::new(Time::First),
        clock: clock.clone(),
        times: Arc::clone(&times),
    };
    let store: Arc<dyn MetaStore> = Arc::new(Paced::new(timed, LIMIT, clock.clone()));
    let dir = tempfile::tempdir().expect("a folder for the state");
    let state = State::open(dir.path()).expect("the state opens");
    let ledgers = Ledgers {
        store: Arc::clone(&store),
        root: "/ledgers".to_owned(),
    };
    let pulsars = [Pulsar {
        name: "here".to_owned(),
        store,
        root: String::new(),
    }];
    let sources = Sources {
        ledgers: &ledgers,
        pulsars: &pulsars,
        entries: None,
    };
    let progress = watch::Sender::new(Progress::default());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    let options = Options::default();
    runtime.block_on(async {
        let scan = scan_with(&state, sources, &options, &clock, &progress);
        let ended = tokio::time::timeout(FOR, scan).await;
        assert!(ended.is_err(), "a million ledgers in {FOR:?}");
    });
    let times = times.lock().unwrap_or_else(PoisonError::into_inner);
    let within = |from: Duration| {
        times
            .iter()
            .filter(|at| (from..from + SECOND).contains(*at))
            .count()
    };
    let most = times.iter().map(|at| within(*at)).max().unwrap_or(0);
    #[allow(clippy::cast_precision_loss)] // a rate for people
    let rate = {
        let asked = times.iter().filter(|at| LISTED <= **at).count();
        asked as f64 / (FOR - LISTED).as_secs_f64()
    };
    for (what, value) in [
        ("most in a second", most.to_string()),
        ("rate", format!("{rate:.1}")),
    ] {
        println!(
            "{{\"bench\":\"reclaim\",\"dirs\":0,\"what\":\"requests, {what}\",\"value\":{value},\"unit\":\"of {LIMIT} a second\"}}"
        );
    }
    let limit = f64::from(LIMIT);
    assert!(most <= 204, "{most} requests in a second of {LIMIT}");
    assert!(0.95 * limit <= rate, "{rate} requests a second of {LIMIT}");
}

impl MetaStore for Timed {
    fn get<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<u8>, Stat)> {
        Box::pin(async move {
            self.note();
            self.store.get(path).await
        })
    }
    fn stat<'a>(&'a self, path: &'a str) -> Answer<'a, Option<Stat>> {
        Box::pin(async move {
            self.note();
            self.store.stat(path).await
        })
    }
    fn children<'a>(&'a self, path: &'a str) -> Answer<'a, Vec<String>> {
        Box::pin(async move {
            self.note();
            self.store.children(path).await
        })
    }
    fn create<'a>(&'a self, path: &'a str, data: &'a [u8], kind: Kind) -> Answer<'a, Stat> {
        self.store.create(path, data, kind)
    }
    fn set<'a>(&'a self, path: &'a str, data: &'a [u8], version: Option<i32>) -> Answer<'a, Stat> {
        self.store.set(path, data, version)
    }
    fn delete<'a>(&'a self, path: &'a str, version: Option<i32>) -> Answer<'a, ()> {
        self.store.delete(path, version)
    }
    fn multi<'a>(&'a self, ops: &'a [Op]) -> Answer<'a, ()> {
        self.store.multi(ops)
    }
    fn watch<'a>(&'a self, path: &'a str) -> Answer<'a, (Option<Stat>, Changed)> {
        self.store.watch(path)
    }
    fn watch_children<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<String>, Changed)> {
        self.store.watch_children(path)
    }
    fn link(&self) -> watch::Receiver<Link> {
        self.store.link()
    }
}

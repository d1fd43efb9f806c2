//! Observations a second of the decision core, on one core: looks at the space that change
//! nothing, as nearly all do, and looks at directories that swing around their thresholds.
//! Budget: 5 million a second (design, budgets). Prints one JSON line a case.

#![allow(clippy::print_stdout)]

use std::time::Duration;

use dirkeeper::clock::Clock;
use dirkeeper::health::dir::{Dir, DirId, ProbePolicy, Role, Thresholds};
use dirkeeper::health::moment::{Moment, Timestamp};
use dirkeeper::health::observation::{
    Cookie, Device, Durations, Identity, Look, Medium, Mount, Observation, Space,
};
use dirkeeper::health::policy::Policy;
use dirkeeper::health::tracker::Tracker;

const ROUNDS: u64 = 100_000;

/// The best of so many runs counts: what else the machine does only ever makes one slower.
const RUNS: usize = 7;

fn main() {
    for (name, dirs, swing) in [
        ("steady", 12, 0),
        ("steady", 500, 0),
        ("swing around full", 12, 20),
    ] {
        let runs = (0..RUNS).map(|_| run(dirs, swing));
        let seconds = runs.fold(f64::INFINITY, f64::min);
        let observations = ROUNDS * u64::from(dirs) / scale(dirs);
        #[allow(clippy::cast_precision_loss)] // a rate for people
        let rate = observations as f64 / seconds / 1e6;
        println!(
            "{{\"bench\":\"core\",\"case\":\"{name}\",\"dirs\":{dirs},\"millionObservationsPerSecond\":{rate:.2}}}"
        );
    }
}

/// Fewer rounds with more directories, so that each case takes about as long.
fn scale(dirs: u32) -> u64 {
    u64::from(dirs / 12)
}

fn run(dirs: u32, swing: u64) -> f64 {
    let mut tracker = Tracker::new(Policy::default());
    let configured = (0..dirs).map(dir).collect();
    tracker.configure(Moment::default(), configured, Policy::default(), |_| None);
    let ids: Vec<DirId> = tracker.dirs().map(|(id, _)| id).collect();
    let mut told = 0;
    for (number, id) in (0..).zip(&ids) {
        told += tracker
            .observe(at(0), *id, Observation::Mounted(mount(number)))
            .len();
        let mut first = look(number, 500);
        first.probed = true;
        told += tracker
            .observe(at(0), *id, Observation::Looked(first))
            .len();
    }
    let clock = Clock::start();
    for round in 1..=ROUNDS / scale(dirs) {
        let available = if swing == 0 { 500 } else { 40 + round % swing };
        for (number, id) in (0..).zip(&ids) {
            let looked = Observation::Looked(look(number, available));
            told += tracker.observe(at(round), *id, looked).len();
        }
    }
    let seconds = clock.elapsed().as_secs_f64();
    assert!(swing > 0 || told == 0, "a steady directory makes no event");
    seconds
}

fn at(round: u64) -> Moment {
    Moment {
        elapsed: Duration::from_secs(round),
        wall: Timestamp(0),
    }
}

fn dir(number: u32) -> Dir {
    Dir {
        path: format!("/mnt/{number}").into(),
        role: Role::Ledger,
        thresholds: Thresholds::default(),
        probe: ProbePolicy::default(),
        require_mount: false,
        root_ok: false,
        await_cookie: false,
        ballast: 0,
    }
}

fn mount(minor: u32) -> Mount {
    Mount {
        id: 1,
        device: Device { major: 8, minor },
        root: "/".into(),
        point: format!("/mnt/{minor}").into(),
        source: String::new(),
        fs_type: "ext4".to_owned(),
        options: String::new(),
        read_only: false,
        emergency: None,
        medium: Medium::SolidState,
    }
}

/// A look as the prober sends it each second: space and identity, no probe.
fn look(minor: u32, thousandths: u64) -> Look {
    Look {
        durations: Durations::new(),
        space: Some(Space {
            size: 1 << 40,
            available: (1 << 40) / 1000 * thousandths,
            inodes: 1 << 20,
            inodes_free: 1 << 19,
        }),
        identity: Some(Identity {
            device: Some(Device { major: 8, minor }),
            mount_id: Some(1),
            fsid: 7,
            uuid: None,
            cookie: Cookie::NotRead,
            canonical: std::path::PathBuf::new(),
            boot_id: String::new(),
        }),
        probed: false,
        pressure: None,
        bookie_files: None,
        ballast: None,
        failure: None,
    }
}

//! Properties of the decisions over random histories: whatever the disks do, in whatever order.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use dirkeeper::health::dir::{Dir, DirId, ProbePolicy, Role, Thresholds};
use dirkeeper::health::event::{Event, EventKind};
use dirkeeper::health::moment::{Moment, Timestamp};
use dirkeeper::health::observation::{
    Cookie, Device, Durations, Failure, Finding, Identity, InFlight, Look, Medium, Mount,
    Observation, Operation, Space,
};
use dirkeeper::health::outlier::{Sample, compare};
use dirkeeper::health::policy::{Mode, Policy};
use dirkeeper::health::status::{Axis, Status};
use dirkeeper::health::tracker::Tracker;
use proptest::prelude::*;

const DIRS: u32 = 3;

/// One thing that happens to one directory, some time after the thing before.
#[derive(Debug, Clone)]
struct Happening {
    dir: u32,
    after: Duration,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    Good { percent: u8, slow: bool },
    Space { percent: u8 },
    NoSize,
    Error { operation: Operation, errno: i32 },
    Gone,
    Running { operation: Operation, seconds: u64 },
    ReadOnly(bool),
    OtherDisk,
    Lost,
}

fn happening() -> impl Strategy<Value = Happening> {
    let operation = prop::sample::select(vec![
        Operation::Open,
        Operation::Statvfs,
        Operation::Create,
        Operation::Write,
        Operation::Sync,
        Operation::Read,
    ]);
    let errno = prop::sample::select(vec![2, 5, 5, 13, 24, 28, 30, 107, 122]);
    let percent = prop_oneof![0..=100_u8, 86..=99_u8];
    let what = prop_oneof![
        6 => (percent.clone(), prop::bool::weighted(0.2))
            .prop_map(|(percent, slow)| What::Good { percent, slow }),
        4 => percent.prop_map(|percent| What::Space { percent }),
        1 => Just(What::NoSize),
        2 => (operation.clone(), errno).prop_map(|(operation, errno)| What::Error { operation, errno }),
        1 => Just(What::Gone),
        2 => (operation, 0..40_u64)
            .prop_map(|(operation, seconds)| What::Running { operation, seconds }),
        1 => any::<bool>().prop_map(What::ReadOnly),
        1 => Just(What::OtherDisk),
        1 => Just(What::Lost),
    ];
    (0..DIRS, 0..20_000_u64, what).prop_map(|(dir, millis, what)| Happening {
        dir,
        after: Duration::from_millis(millis),
        what,
    })
}

fn mount(dir: u32, minor: u32, read_only: bool) -> Mount {
    Mount {
        id: u64::from(minor),
        device: Device { major: 8, minor },
        root: "/".into(),
        point: path(dir),
        source: format!("/dev/sd{minor}"),
        fs_type: "ext4".to_owned(),
        options: String::new(),
        read_only,
        emergency: None,
        medium: Medium::SolidState,
    }
}

fn path(dir: u32) -> PathBuf {
    format!("/mnt/{dir}").into()
}

fn look(dir: u32, percent: u8, probed: bool, slow: bool) -> Look {
    let sync = Duration::from_millis(if slow { 900 } else { 1 });
    let space = Space {
        size: 1_000_000,
        available: 10_000 * (100 - u64::from(percent)),
        inodes: 1000,
        inodes_free: 900,
    };
    let identity = Identity {
        device: Some(Device {
            major: 8,
            minor: dir,
        }),
        fsid: u64::from(dir) + 1,
        canonical: path(dir),
        boot_id: "boot".to_owned(),
        cookie: if probed {
            Cookie::Absent
        } else {
            Cookie::NotRead
        },
        ..Identity::default()
    };
    Look {
        durations: if probed {
            Durations::from([(Operation::Sync, sync)])
        } else {
            Durations::new()
        },
        space: Some(space),
        identity: Some(identity),
        probed,
        bookie_files: None,
        ballast: None,
        pressure: None,
        failure: None,
    }
}

fn observations(dir: u32, what: &What) -> Vec<Observation> {
    match what {
        What::Good { percent, slow } => vec![Observation::Looked(look(dir, *percent, true, *slow))],
        What::Space { percent } => vec![Observation::Looked(look(dir, *percent, false, false))],
        What::NoSize => {
            let mut look = look(dir, 0, false, false);
            look.space = Some(Space::default());
            vec![Observation::Looked(look)]
        }
        What::Error { operation, errno } => {
            let mut look = look(dir, 50, false, false);
            look.failure = Some(failure(*operation, *errno));
            if *operation == Operation::Open {
                look.space = None;
                look.identity = None;
            }
            vec![Observation::Looked(look)]
        }
        What::Gone => {
            let mut look = look(dir, 0, false, false);
            look.space = None;
            look.identity = None;
            look.failure = Some(failure(Operation::Open, 2));
            vec![Observation::Looked(look)]
        }
        What::Running { operation, seconds } => vec![Observation::InFlight(InFlight::new(
            *operation,
            Duration::from_secs(*seconds),
        ))],
        What::ReadOnly(read_only) => vec![Observation::Mounted(mount(dir, dir, *read_only))],
        What::OtherDisk => vec![Observation::Mounted(mount(dir, dir + 100, false))],
        What::Lost => vec![Observation::ProberLost("the prober is silent".to_owned())],
    }
}

fn failure(operation: Operation, errno: i32) -> Failure {
    Failure {
        operation,
        errno: Some(errno),
        detail: format!("error {errno}"),
        finding: Finding::Errno,
    }
}

/// What the events alone say, as a hook would add them up.
#[derive(Default)]
struct Book {
    open: BTreeMap<(PathBuf, Axis), &'static str>,
    trouble: bool,
    wanted: Option<&'static str>,
}

impl Book {
    fn enter(&mut self, event: &Event) -> Result<(), TestCaseError> {
        if let (Some(from), Some(to)) = (event.from, event.to) {
            prop_assert_ne!(from, to, "an event without a change: {:?}", event);
        }
        if let (Some(dir), Some(axis), Some(to)) = (&event.dir, event.axis, event.to) {
            let key = (dir.clone(), axis);
            let good = matches!(to, "ok" | "normal");
            if good {
                let opened = self.open.remove(&key);
                prop_assert!(opened.is_some(), "an end without an outage: {:?}", event);
            } else {
                let before = self.open.insert(key, to);
                prop_assert_ne!(before, Some(to), "told twice: {:?}", event);
            }
        }
        match event.kind {
            EventKind::AllDisksWritable => {
                prop_assert!(self.trouble, "no trouble had been told");
                self.trouble = false;
            }
            EventKind::DiskFull
            | EventKind::DiskFailed
            | EventKind::DiskHung
            | EventKind::DiskReadOnly
            | EventKind::DiskVanished
            | EventKind::DiskReplaced => self.trouble = true,
            EventKind::ModeWanted => {
                prop_assert_ne!(self.wanted, event.to);
                self.wanted = event.to;
            }
            _ => {}
        }
        Ok(())
    }
}

fn tracker() -> (Tracker, Vec<DirId>) {
    let policy = Policy {
        reminder_interval: Duration::ZERO,
        ..Policy::default()
    };
    let mut tracker = Tracker::new(policy);
    let dirs = (0..DIRS)
        .map(|dir| Dir {
            path: path(dir),
            role: Role::ALL[dir as usize % 3],
            thresholds: Thresholds {
                high_priority_reserve: 1000,
                ..Thresholds::default()
            },
            probe: ProbePolicy::default(),
            require_mount: false,
            root_ok: false,
            await_cookie: false,
            ballast: 0,
        })
        .collect();
    tracker.configure(Moment::default(), dirs, policy, |_| None);
    let ids = tracker.dirs().map(|(id, _)| id).collect();
    (tracker, ids)
}

fn at(elapsed: Duration) -> Moment {
    Moment {
        elapsed,
        wall: Timestamp(i64::try_from(elapsed.as_millis()).expect("histories are short")),
    }
}

fn check_views(tracker: &Tracker, ids: &[DirId], now: Moment) -> Result<(), TestCaseError> {
    for id in ids {
        let view = tracker.view(now, *id).expect("it is configured");
        let worst = Status::of(view.space_status, view.access_status, view.latency_status);
        prop_assert_eq!(view.status, worst);
        prop_assert_eq!(view.severity, view.status.severity());
        prop_assert!(view.history.len() <= 32 && view.evidence.len() <= 12);
        if view.status.severity() == dirkeeper::health::status::Severity::Critical {
            prop_assert!(view.reason.is_some(), "no reason for {:?}", view.status);
            prop_assert!(
                !view.evidence.is_empty(),
                "no evidence for {:?}",
                view.status
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_event_is_a_change_every_outage_has_one_end_and_unknown_never_acts(
        history in prop::collection::vec(happening(), 1..120),
    ) {
        let (mut tracker, ids) = tracker();
        let mut book = Book::default();
        let mut elapsed = Duration::ZERO;
        for (dir, id) in ids.iter().enumerate() {
            let mounted = Observation::Mounted(mount(dir as u32, dir as u32, false));
            prop_assert!(tracker.observe(at(elapsed), *id, mounted).is_empty());
        }
        for happening in &history {
            elapsed += happening.after;
            let now = at(elapsed);
            for observation in observations(happening.dir, &happening.what) {
                let lost = matches!(observation, Observation::ProberLost(_));
                let wanted = tracker.node().wanted();
                let id = ids[happening.dir as usize];
                for event in tracker.observe(now, id, observation) {
                    book.enter(&event)?;
                }
                prop_assert!(!lost || tracker.node().wanted() == wanted, "unknown acted");
            }
            tracker.tick(now);
            tracker.begin_looks(now);
            check_views(&tracker, &ids, now)?;
        }
        // The world is quiet: right disks, mounted for writing, half empty, fast, for two minutes.
        for round in 0..14 {
            elapsed += Duration::from_secs(10);
            for (dir, id) in ids.iter().enumerate() {
                let dir = dir as u32;
                let mounted = (round == 0).then(|| Observation::Mounted(mount(dir, dir, false)));
                let good = Observation::Looked(look(dir, 50, true, false));
                for observation in mounted.into_iter().chain([good]) {
                    for event in tracker.observe(at(elapsed), *id, observation) {
                        book.enter(&event)?;
                    }
                }
            }
        }
        prop_assert!(book.open.is_empty(), "outages without an end: {:?}", book.open);
        prop_assert!(!book.trouble, "trouble without an end");
        prop_assert_eq!(tracker.node().wanted(), Some(Mode::Writable));
        prop_assert!(tracker.node().high_priority_writes());
    }
}

const MEDIA: [Medium; 5] = [
    Medium::SolidState,
    Medium::Rotating,
    Medium::Network,
    Medium::Memory,
    Medium::Unknown,
];

/// Directories on some of thirty disks, each of the medium that its number says; zeros included.
fn samples() -> impl Strategy<Value = Vec<Sample>> {
    let micros = prop_oneof![1 => Just(0), 6 => 500..9_000_u32, 2 => any::<u32>()];
    let sample = (0..30_u32, prop::collection::vec(micros, 0..9));
    let sample = sample.prop_map(|(minor, micros)| Sample {
        device: Device { major: 8, minor },
        medium: MEDIA[usize::from(minor > 20) * (minor as usize % 5)],
        micros,
    });
    prop::collection::vec(sample, 0..60)
}

fn outliers(samples: &[Sample]) -> Vec<Option<bool>> {
    let compared = compare(samples).into_iter();
    compared
        .map(|found| found.map(|found| found.is_over()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn the_order_of_directories_does_not_matter(
        (samples, order) in samples().prop_flat_map(|samples| {
            let order: Vec<usize> = (0..samples.len()).collect();
            (Just(samples), Just(order).prop_shuffle())
        }),
    ) {
        let verdicts = outliers(&samples);
        let shuffled: Vec<Sample> = order.iter().map(|place| samples[*place].clone()).collect();
        let expected: Vec<_> = order.iter().map(|place| verdicts[*place]).collect();
        prop_assert_eq!(outliers(&shuffled), expected);
    }

    #[test]
    fn outliers_are_outliers_in_any_unit_above_the_floor(
        samples in samples(), factor in 1..1000_u32,
    ) {
        let scaled = |factor: u32| -> Vec<Sample> {
            // No overflow, and every number far above every floor.
            let up = |micros: &u32| (micros % 40 + 1) * 100_000 * factor;
            let scale = |sample: &Sample| Sample {
                micros: sample.micros.iter().map(up).collect(),
                ..sample.clone()
            };
            samples.iter().map(scale).collect()
        };
        prop_assert_eq!(outliers(&scaled(1)), outliers(&scaled(factor)));
    }

    #[test]
    fn most_are_never_outliers_and_nobody_is_both_over_and_back(samples in samples()) {
        let compared = compare(&samples);
        let mut over: BTreeMap<Device, bool> = BTreeMap::new();
        for (sample, found) in samples.iter().zip(&compared) {
            prop_assert!(sample.medium != Medium::Memory || found.is_none());
            if let Some(found) = found {
                prop_assert!(!(found.is_over() && found.is_back()));
                prop_assert!(!found.text().is_empty() && 4 <= found.siblings);
                over.insert(sample.device, found.is_over());
            }
        }
        let outliers = over.values().filter(|over| **over).count();
        prop_assert!(2 * outliers <= over.len(), "{} of {}", outliers, over.len());
    }
}

/// 500 directories that answer at once; how many full looks begin in the busiest half second.
struct Crowd {
    tracker: Tracker,
    now: Duration,
}

impl Crowd {
    fn new() -> Crowd {
        let mut tracker = Tracker::new(Policy::default());
        let dir = |number| Dir {
            path: path(number),
            role: Role::Ledger,
            thresholds: Thresholds::default(),
            probe: ProbePolicy::default(),
            require_mount: false,
            root_ok: false,
            await_cookie: false,
            ballast: 0,
        };
        tracker.configure(
            Moment::default(),
            (0..500).map(dir).collect(),
            Policy::default(),
            |_| None,
        );
        let ids: Vec<DirId> = tracker.dirs().map(|(id, _)| id).collect();
        for id in ids {
            let mounted = Observation::Mounted(mount(id.0, id.0, false));
            tracker.observe(Moment::default(), id, mounted);
        }
        Crowd {
            tracker,
            now: Duration::ZERO,
        }
    }

    fn busiest(&mut self, time: Duration) -> u32 {
        let end = self.now + time;
        let mut begun: BTreeMap<u128, u32> = BTreeMap::new();
        while self.now < end {
            let now = at(self.now);
            for (id, plan) in self.tracker.begin_looks(now) {
                *begun.entry(self.now.as_millis() / 500).or_default() += u32::from(plan.full);
                let mut look = look(id.0, 50, plan.probe, false);
                if let Some(identity) = look.identity.as_mut().filter(|_| plan.full) {
                    identity.cookie = Cookie::Absent;
                }
                self.tracker.observe(now, id, Observation::Looked(look));
            }
            self.now += Duration::from_millis(20);
        }
        begun.into_values().max().unwrap_or(0)
    }
}

/// An even share is 25: 500 directories in twenty half seconds.
#[test]
fn rounds_of_many_directories_are_spread_after_a_start_a_pause_and_a_new_prober() {
    const INTERVAL: Duration = Duration::from_secs(10);
    const MOST: u32 = 30;
    let mut crowd = Crowd::new();
    assert!(
        1000 <= crowd.busiest(Duration::from_millis(100)),
        "found, then probed"
    );
    assert!(crowd.tracker.is_ready(), "judged at once");
    let steady = crowd.busiest(INTERVAL * 3);
    assert!((20..=MOST).contains(&steady), "steady: {steady}");
    crowd.now += INTERVAL * 2;
    let paused = crowd.busiest(INTERVAL + Duration::from_secs(1));
    assert!((20..=MOST).contains(&paused), "after a pause: {paused}");
    crowd.tracker.void_looks(at(crowd.now));
    let voided = crowd.busiest(INTERVAL * 2);
    assert!((20..=MOST).contains(&voided), "a new prober: {voided}");
}

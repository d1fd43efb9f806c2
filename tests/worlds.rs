//! The decisions in a closed loop with a world: looks are made as the tracker plans them, the prober's
//! guard included, on disks that vanish, come back under another number, freeze, fill and fail. However
//! the world got where it is, a few quiet minutes later the status says what it is; and nothing is
//! ever written on another disk.

use std::collections::BTreeMap;
use std::time::Duration;

use dirkeeper::health::dir::{Dir, DirId, ProbePolicy, Role, Thresholds};
use dirkeeper::health::event::{Event, EventKind};
use dirkeeper::health::identity::Pin;
use dirkeeper::health::moment::{Moment, Timestamp};
use dirkeeper::health::observation::{
    Cookie, Device, Failure, Finding, Identity, InFlight, Look, Medium, Mount, Observation,
    Operation, Space,
};
use dirkeeper::health::policy::{Mode, Policy};
use dirkeeper::health::schedule::LookPlan;
use dirkeeper::health::status::{Axis, Status};
use dirkeeper::health::tracker::Tracker;
use proptest::prelude::*;

const PATH: &str = "/mnt/d";

/// Long enough for three rounds, the dwell time and the minute below warn.
const QUIET: Duration = Duration::from_secs(240);

const STEP: Duration = Duration::from_millis(500);

/// What is mounted at the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum There {
    #[default]
    Own,
    Other,
    Nothing,
}

/// A change of the world.
#[derive(Debug, Clone, Copy)]
enum Change {
    Mount(There),
    /// The own disk gets another device number, as after a lost cable.
    Renumber,
    ReadOnly(bool),
    Fails(bool),
    Quota(bool),
    Frozen(bool),
    Deleted(bool),
    Slow(bool),
    Full(bool),
    /// The prober lacks descriptors for whole rounds, or for all looks.
    Trouble {
        rounds: bool,
        all: bool,
    },
    ProberLost,
    Restart,
    Reboot,
    Accept,
}

/// Events that say that the world is bad.
const VERDICTS: [EventKind; 7] = [
    EventKind::DiskVanished,
    EventKind::DiskReplaced,
    EventKind::DiskReadOnly,
    EventKind::DiskFailed,
    EventKind::DiskHung,
    EventKind::DiskFull,
    EventKind::DiskSlow,
];

/// The verdict that a change may lead to.
fn verdict_of(change: Change) -> Option<EventKind> {
    match change {
        Change::Mount(There::Nothing) | Change::Deleted(true) => Some(EventKind::DiskVanished),
        Change::Mount(There::Other) => Some(EventKind::DiskReplaced),
        Change::ReadOnly(true) => Some(EventKind::DiskReadOnly),
        Change::Fails(true) => Some(EventKind::DiskFailed),
        Change::Frozen(true) => Some(EventKind::DiskHung),
        Change::Quota(true) | Change::Full(true) => Some(EventKind::DiskFull),
        Change::Slow(true) => Some(EventKind::DiskSlow),
        _ => None,
    }
}

/// How the directory is now.
#[derive(Debug, Clone, Copy, Default)]
struct World {
    there: There,
    minor: u32,
    mount_id: u64,
    read_only: bool,
    fails: bool,
    quota: bool,
    frozen: bool,
    deleted: bool,
    slow: bool,
    full: bool,
    trouble_rounds: bool,
    trouble_all: bool,
    boot: u32,
    require_mount: bool,
    uuid: bool,
}

impl World {
    fn quiet(require_mount: bool, uuid: bool) -> World {
        World {
            minor: 1,
            require_mount,
            uuid,
            ..World::default()
        }
    }

    fn device(&self) -> Device {
        let minor = match self.there {
            There::Own => self.minor,
            There::Other => 1000,
            There::Nothing => 0,
        };
        Device { major: 8, minor }
    }

    fn mount(&self) -> Mount {
        Mount {
            id: self.mount_id,
            device: self.device(),
            root: "/".into(),
            point: match self.there {
                There::Nothing => "/".into(),
                _ => PATH.into(),
            },
            source: format!("{:?}", self.there),
            fs_type: "ext4".to_owned(),
            options: String::new(),
            read_only: self.read_only && self.there == There::Own,
            emergency: None,
            medium: Medium::SolidState,
        }
    }

    fn identity(&self, full: bool) -> Identity {
        Identity {
            device: Some(self.device()),
            mount_id: Some(self.mount_id),
            fsid: match self.there {
                There::Own => 7,
                There::Other => 8,
                There::Nothing => 9,
            },
            uuid: self.uuid.then(|| format!("{:?}", self.there)),
            cookie: if full {
                Cookie::Absent
            } else {
                Cookie::NotRead
            },
            canonical: PATH.into(),
            boot_id: self.boot.to_string(),
        }
    }

    /// What a look finds, made as the plan says and as the prober's guard allows.
    fn look(&self, plan: LookPlan, expected: Option<(Device, u64)>) -> Look {
        let trouble = self.trouble_all || (self.trouble_rounds && plan.full);
        let mut look = Look::default();
        if trouble {
            look.failure = Some(failure(Operation::Open, 24, Finding::ProberTrouble));
            return look;
        }
        if self.deleted {
            look.failure = Some(failure(Operation::Open, 2, Finding::Errno));
            return look;
        }
        look.space = Some(Space {
            size: 1_000_000,
            available: if self.full { 1000 } else { 500_000 },
            inodes: 1000,
            inodes_free: 900,
        });
        look.identity = Some(self.identity(plan.full));
        let mount_missing = self.require_mount && self.there == There::Nothing;
        let here = (self.device(), self.mount_id);
        let allowed = expected.is_none_or(|expected| expected == here) && !mount_missing;
        if !plan.probe || !allowed {
            return look;
        }
        assert_eq!(self.there, There::Own, "written on another disk");
        look.probed = true;
        let failures = [
            (self.read_only, Operation::Create, 30),
            (self.fails, Operation::Sync, 5),
            (self.quota, Operation::Write, 122),
        ];
        let first = failures.into_iter().find(|(holds, ..)| *holds);
        look.failure = first.map(|(_, operation, errno)| failure(operation, errno, Finding::Errno));
        let sync = Duration::from_millis(if self.slow { 900 } else { 1 });
        if look.failure.is_none() {
            look.durations.insert(Operation::Sync, sync);
        }
        look
    }

    /// A look sees the own disk.
    fn shows_own(&self) -> bool {
        self.there == There::Own && !self.frozen && !self.deleted && !self.trouble_all
    }

    /// What the status must be after a while.
    fn status(&self) -> Status {
        let ordered = [
            (self.frozen, Status::Hung),
            (self.trouble_all || self.trouble_rounds, Status::Unknown),
            (self.there == There::Other, Status::Replaced),
            (self.there == There::Nothing, Status::Vanished),
            (self.deleted, Status::Vanished),
            (self.read_only, Status::ReadOnly),
            (self.fails, Status::Failed),
            (self.quota || self.full, Status::Full),
            (self.slow, Status::Slow),
        ];
        let holds = ordered.into_iter().find(|(holds, _)| *holds);
        holds.map_or(Status::Writable, |(_, status)| status)
    }
}

fn failure(operation: Operation, errno: i32, finding: Finding) -> Failure {
    Failure {
        operation,
        errno: Some(errno),
        detail: format!("error {errno}"),
        finding,
    }
}

/// A look that was begun.
#[derive(Debug, Clone, Copy)]
struct UnderWay {
    plan: LookPlan,
    since: Duration,
}

/// The world, the agent in it, and what its events said.
struct Run {
    world: World,
    tracker: Tracker,
    id: DirId,
    pin: Option<Pin>,
    elapsed: Duration,
    seen: Option<(Device, u64)>,
    under_way: Option<UnderWay>,
    /// Verdicts for which there was a cause in this history.
    caused: Vec<EventKind>,
    told: BTreeMap<Option<Axis>, &'static str>,
    log: Vec<String>,
}

fn dir(require_mount: bool) -> Dir {
    Dir {
        path: PATH.into(),
        role: Role::Ledger,
        thresholds: Thresholds {
            dwell: Duration::from_secs(10),
            ..Thresholds::default()
        },
        probe: ProbePolicy::default(),
        require_mount,
        root_ok: false,
        await_cookie: false,
        ballast: 0,
    }
}

fn started(world: &World, pin: Option<Pin>, now: Moment) -> (Tracker, DirId) {
    let mut tracker = Tracker::new(Policy::default());
    let dirs = vec![dir(world.require_mount)];
    tracker.configure(now, dirs, Policy::default(), |_| pin.clone());
    let id = tracker.dirs().map(|(id, _)| id).next();
    (tracker, id.expect("one was configured"))
}

impl Run {
    fn new(world: World) -> Run {
        let (tracker, id) = started(&world, None, at(Duration::ZERO));
        let mut run = Run {
            world,
            tracker,
            id,
            pin: None,
            elapsed: Duration::ZERO,
            seen: None,
            under_way: None,
            caused: Vec::new(),
            told: BTreeMap::new(),
            log: Vec::new(),
        };
        run.mounted();
        run
    }

    fn observe(&mut self, observation: Observation) {
        let events = self.tracker.observe(at(self.elapsed), self.id, observation);
        self.hear(events);
    }

    /// Each event goes on from where the last one of its axis ended, and each verdict has a cause.
    fn hear(&mut self, events: Vec<Event>) {
        for event in events {
            let (from, to) = (event.from, event.to);
            self.log.push(format!(
                "{:?} {} {from:?} {to:?}",
                self.elapsed,
                event.kind.name()
            ));
            let verdict = VERDICTS.contains(&event.kind);
            assert!(
                !verdict || self.caused.contains(&event.kind),
                "no cause: {:#?}",
                self.log
            );
            if let (Some(from), Some(to)) = (from, to) {
                let before = self.told.insert(event.axis, to);
                assert!(
                    before.is_none_or(|before| before == from) && from != to,
                    "an event from {from}, which was {before:?}: {:#?}",
                    self.log
                );
            }
        }
    }

    fn mounted(&mut self) {
        self.observe(Observation::Mounted(self.world.mount()));
    }

    fn restart(&mut self) {
        (self.tracker, self.id) = started(&self.world, self.pin.clone(), at(self.elapsed));
        self.told.clear();
        self.seen = None;
        self.under_way = None;
        self.mounted();
    }

    fn change(&mut self, change: Change) {
        self.log.push(format!("{:?} {change:?}", self.elapsed));
        self.caused.extend(verdict_of(change));
        let world = &mut self.world;
        match change {
            Change::Mount(there) => {
                if there != world.there {
                    (world.there, world.mount_id) = (there, world.mount_id + 1);
                    self.mounted();
                }
            }
            Change::Renumber => {
                (world.minor, world.mount_id) = (world.minor + 1, world.mount_id + 1);
                self.mounted();
            }
            Change::ReadOnly(read_only) => {
                world.read_only = read_only;
                self.mounted();
            }
            Change::Fails(fails) => world.fails = fails,
            Change::Quota(quota) => world.quota = quota,
            Change::Frozen(frozen) => world.frozen = frozen,
            Change::Deleted(deleted) => world.deleted = deleted,
            Change::Slow(slow) => world.slow = slow,
            Change::Full(full) => world.full = full,
            Change::Trouble { rounds, all } => {
                (world.trouble_rounds, world.trouble_all) = (rounds, all);
            }
            Change::ProberLost => {
                self.under_way = None;
                self.observe(Observation::ProberLost("gone".to_owned()));
                self.tracker.void_looks(at(self.elapsed));
            }
            Change::Restart => self.restart(),
            Change::Reboot => {
                world.boot += 1;
                world.minor += 1;
                world.mount_id += 1;
                self.restart();
            }
            // An operator accepts the right disk, and nobody changes it in the same moment.
            Change::Accept if world.shows_own() => {
                self.tracker.accept(at(self.elapsed), self.id);
                self.steps(STEP * 6);
            }
            Change::Accept => {}
        }
    }

    /// Half a second goes by.
    fn step(&mut self) {
        self.elapsed += STEP;
        let now = at(self.elapsed);
        if let Some(UnderWay { plan, since }) = self.under_way {
            if self.world.frozen {
                let age = self.elapsed - since;
                if Duration::from_secs(1) <= age {
                    self.observe(Observation::InFlight(InFlight::new(Operation::Sync, age)));
                }
            } else {
                let look = self.world.look(plan, self.seen);
                if let Some(identity) = &look.identity {
                    self.seen = identity.device.zip(identity.mount_id);
                }
                self.under_way = None;
                self.observe(Observation::Looked(look));
            }
        }
        let events = self.tracker.tick(now);
        self.hear(events);
        for (_, plan) in self.tracker.begin_looks(now) {
            let since = self.elapsed;
            self.under_way = Some(UnderWay { plan, since });
        }
        for (_, pin) in self.tracker.take_changed_pins() {
            self.pin = Some(pin);
        }
    }

    fn steps(&mut self, time: Duration) {
        let end = self.elapsed + time;
        while self.elapsed < end {
            self.step();
        }
    }

    fn status(&self) -> Status {
        let view = self.tracker.view(at(self.elapsed), self.id);
        view.expect("it is configured").status
    }
}

fn at(elapsed: Duration) -> Moment {
    Moment {
        elapsed,
        wall: Timestamp(i64::try_from(elapsed.as_millis()).expect("histories are short")),
    }
}

fn change() -> impl Strategy<Value = Change> {
    let there = prop::sample::select(vec![There::Own, There::Own, There::Other, There::Nothing]);
    prop_oneof![
        4 => there.prop_map(Change::Mount),
        1 => Just(Change::Renumber),
        2 => any::<bool>().prop_map(Change::ReadOnly),
        2 => any::<bool>().prop_map(Change::Fails),
        2 => any::<bool>().prop_map(Change::Quota),
        2 => any::<bool>().prop_map(Change::Frozen),
        2 => any::<bool>().prop_map(Change::Deleted),
        1 => any::<bool>().prop_map(Change::Slow),
        2 => any::<bool>().prop_map(Change::Full),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(rounds, all)| Change::Trouble { rounds, all }),
        1 => Just(Change::ProberLost),
        1 => Just(Change::Restart),
        1 => Just(Change::Reboot),
        1 => Just(Change::Accept),
    ]
}

/// Waits in half seconds: mostly short, sometimes long enough for a verdict.
fn history() -> impl Strategy<Value = Vec<(u64, Change)>> {
    let wait = prop_oneof![3 => 0..6_u64, 2 => 6..120_u64];
    prop::collection::vec((wait, change()), 1..24)
}

/// Everything is well again.
const WELL: [Change; 9] = [
    Change::ReadOnly(false),
    Change::Fails(false),
    Change::Quota(false),
    Change::Frozen(false),
    Change::Deleted(false),
    Change::Slow(false),
    Change::Full(false),
    Change::Trouble {
        rounds: false,
        all: false,
    },
    Change::Mount(There::Own),
];

/// The one thing that is wrong at the end, if any.
fn last() -> impl Strategy<Value = Option<Change>> {
    prop_oneof![
        4 => Just(None),
        1 => Just(Some(Change::Mount(There::Nothing))),
        1 => Just(Some(Change::Mount(There::Other))),
        1 => Just(Some(Change::ReadOnly(true))),
        1 => Just(Some(Change::Fails(true))),
        1 => Just(Some(Change::Quota(true))),
        1 => Just(Some(Change::Frozen(true))),
        1 => Just(Some(Change::Deleted(true))),
        1 => Just(Some(Change::Slow(true))),
        1 => Just(Some(Change::Full(true))),
        1 => Just(Some(Change::Trouble { rounds: true, all: true })),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_status_follows_the_world_whatever_happened_before(
        require_mount: bool,
        uuid: bool,
        history in history(),
        last in last(),
    ) {
        let mut run = Run::new(World::quiet(require_mount, uuid));
        run.steps(Duration::from_secs(60));
        prop_assert_eq!(run.status(), Status::Writable);
        for (halves, change) in history {
            run.change(change);
            run.steps(STEP * u32::try_from(halves).expect("small"));
        }
        for change in WELL {
            run.change(change);
        }
        // What is wrong now may keep probes from being complete, which then cannot end what was wrong
        // before: that has its own time to end.
        if last.is_some() {
            run.steps(QUIET);
        }
        if let Some(change) = last {
            run.change(change);
        }
        run.steps(QUIET);
        let expected = run.world.status();
        prop_assert_eq!(run.status(), expected, "{:#?}", run.log);
        if expected == Status::Writable {
            prop_assert_eq!(run.tracker.node().wanted(), Some(Mode::Writable));
        }
    }
}

/// The plainest way out and back: unmounted, mounted again.
#[test]
fn a_disk_that_vanished_and_came_back_recovers() {
    for require_mount in [false, true] {
        let mut run = Run::new(World::quiet(require_mount, true));
        run.steps(Duration::from_secs(30));
        for (there, status) in [
            (There::Nothing, Status::Vanished),
            (There::Own, Status::Writable),
            (There::Other, Status::Replaced),
            (There::Own, Status::Writable),
        ] {
            run.change(Change::Mount(there));
            run.steps(QUIET);
            assert_eq!(run.status(), status, "{:#?}", run.log);
        }
    }
}

/// With `require_mount`, the mount may come after the agent.
#[test]
fn a_mount_may_come_late() {
    let there = There::Nothing;
    let mut run = Run::new(World {
        there,
        ..World::quiet(true, true)
    });
    run.caused.push(EventKind::DiskVanished);
    run.steps(QUIET);
    assert_eq!(run.status(), Status::Vanished);
    run.change(Change::Mount(There::Own));
    run.steps(QUIET);
    assert_eq!(run.status(), Status::Writable, "{:#?}", run.log);
}

/// The state store opened late: the agent started without its pins while the mount was missing, and
/// took the root disk for the right one until it heard of them.
#[test]
fn a_pin_that_is_known_late_stands_above_the_one_made_meanwhile() {
    let mut run = Run::new(World::quiet(false, true));
    run.steps(Duration::from_secs(30));
    let pin = run.pin.take();
    run.change(Change::Mount(There::Nothing));
    run.restart();
    run.steps(STEP);
    run.tracker.recall(at(run.elapsed), |_| pin.clone());
    run.steps(Duration::from_secs(30));
    assert_eq!(run.status(), Status::Vanished, "{:#?}", run.log);
    run.change(Change::Mount(There::Own));
    run.steps(QUIET);
    assert_eq!(run.status(), Status::Writable, "{:#?}", run.log);
}

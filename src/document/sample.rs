//! A made-up snapshot for tests: every optional part is once there and once not, and names hold
//! whatever a file name can hold.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::{About, Host};
use crate::health::ballast::{BallastState, BallastView};
use crate::health::beside::{
    AgentStatus, BesideAction, BesideView, BookieProcess, ClusterView, CompactionFlags,
    CompactionView, GcDetails, Member, Registration, ShouldBe, SuspendedView,
};
use crate::health::bookkeeper;
use crate::health::claim::{Claim, Owner};
use crate::health::dir::{DirId, Role, Thresholds};
use crate::health::event::{Event, EventKind, NodeSummary};
use crate::health::journal::JournalView;
use crate::health::latency::{LatencyView, StepView};
use crate::health::moment::Timestamp;
use crate::health::observation::{Device, Medium, Mount, Operation, Space};
use crate::health::policy::{HighPriorityRoom, Mode};
use crate::health::restart::{RestartView, Verdict};
use crate::health::snapshot::{
    DirView, ForecastView, Histogram, ListenerView, ModeView, SelfView, Snapshot, Sources,
};
use crate::health::status::{
    AccessStatus, Axis, Cause, Evidence, LatencyStatus, Reason, SpaceStatus, Status,
};

/// 2026-11-30T01:02:03.456Z.
pub(crate) const NOW: Timestamp = Timestamp(1_796_000_523_456);

const GIB: u64 = 1 << 30;

pub(crate) fn about() -> About {
    About {
        host: Host {
            host: "bk-3".to_owned(),
            bookie_id: Some("10.0.0.3:3181".to_owned()),
        },
        version: "0.1.0",
        revision: "abc1234",
        semantics: "dirkeeper",
    }
}

/// A directory of which nothing is known yet.
pub(crate) fn unknown_dir(id: u32, path: impl AsRef<Path>, role: Role) -> DirView {
    DirView {
        id: DirId(id),
        path: path.as_ref().to_owned(),
        role,
        status: Status::Unknown,
        since: before(60),
        severity: Status::Unknown.severity(),
        suspect: false,
        space_status: SpaceStatus::Unknown,
        access_status: AccessStatus::Unknown,
        latency_status: LatencyStatus::Unknown,
        reason: None,
        space: None,
        usage_ratio: None,
        thresholds: Thresholds::default(),
        forecast: None,
        last_observation: None,
        last_probe_success: None,
        durations: BTreeMap::new(),
        latency: LatencyView::default(),
        in_flight: None,
        mount: None,
        sources: Sources::default(),
        evidence: Vec::new(),
        transitions: BTreeMap::new(),
        failures: BTreeMap::new(),
        high_priority_room: None,
        journal: None,
        ballast: None,
        history: Vec::new(),
    }
}

/// A directory that works.
pub(crate) fn writable_dir(id: u32, path: impl AsRef<Path>, role: Role) -> DirView {
    let millis = Duration::from_millis;
    DirView {
        status: Status::Writable,
        severity: Status::Writable.severity(),
        space_status: SpaceStatus::Ok,
        access_status: AccessStatus::Ok,
        latency_status: LatencyStatus::Normal,
        space: Some(space(40)),
        usage_ratio: Some(0.6),
        last_observation: Some(before(0)),
        last_probe_success: Some(before(4)),
        durations: BTreeMap::from([
            (Operation::Mountinfo, millis(1)),
            (Operation::Open, Duration::from_micros(12)),
            (Operation::Statvfs, Duration::from_micros(8)),
            (Operation::Create, Duration::from_micros(90)),
            (Operation::Write, Duration::from_micros(30)),
            (Operation::Sync, millis(3)),
            (Operation::Read, Duration::from_micros(240)),
            (Operation::Compare, Duration::from_micros(1)),
            (Operation::Unlink, Duration::from_micros(70)),
        ]),
        latency: LatencyView {
            score: Some(26),
            steps: vec![StepView {
                step: Operation::Sync,
                last: millis(3),
                median: millis(2),
                max: millis(140),
            }],
        },
        mount: Some(mount(path.as_ref())),
        sources: Sources {
            disks: Vec::new(),
            active: vec!["statvfs", "probe", "mountinfo"],
            missing: vec![("fanotify", "not permitted (needs CAP_SYS_ADMIN)".to_owned())],
        },
        transitions: BTreeMap::from([(Status::Writable, 1)]),
        high_priority_room: Some(HighPriorityRoom {
            bytes: 39 * GIB,
            enough: true,
        }),
        history: vec![(before(60), Status::Writable)],
        ..unknown_dir(id, path, role)
    }
}

/// A directory over its full threshold.
pub(crate) fn full_dir(id: u32, path: impl AsRef<Path>, role: Role) -> DirView {
    DirView {
        status: Status::Full,
        severity: Status::Full.severity(),
        since: before(30),
        space_status: SpaceStatus::Full,
        space: Some(space(4)),
        usage_ratio: Some(0.96),
        reason: Some(reason(
            Cause::Bytes,
            Operation::Statvfs,
            None,
            "usage 0.960 is over full 0.950",
        )),
        forecast: Some(ForecastView {
            expected: Duration::from_secs(5400),
            earliest: Duration::from_secs(4000),
            latest: Some(Duration::from_secs(9000)),
        }),
        evidence: vec![
            Evidence {
                at: before(90),
                text: "usage 0.912 is over warn 0.900".to_owned(),
            },
            Evidence {
                at: before(30),
                text: "usage 0.960 is over full 0.950".to_owned(),
            },
        ],
        transitions: BTreeMap::from([
            (Status::Writable, 1),
            (Status::AlmostFull, 1),
            (Status::Full, 1),
        ]),
        high_priority_room: Some(HighPriorityRoom {
            bytes: 3 * GIB,
            enough: true,
        }),
        ballast: Some(BallastView {
            wanted: 2 * GIB,
            held: Some(0),
            state: BallastState::Released,
        }),
        history: vec![
            (before(600), Status::Writable),
            (before(90), Status::AlmostFull),
            (before(30), Status::Full),
        ],
        ..writable_dir(id, path, role)
    }
}

/// A directory with an operation that does not come back.
pub(crate) fn hung_dir(id: u32, path: impl AsRef<Path>, role: Role) -> DirView {
    DirView {
        status: Status::Hung,
        severity: Status::Hung.severity(),
        since: before(12),
        suspect: false,
        access_status: AccessStatus::Hung,
        reason: Some(reason(
            Cause::Timeout,
            Operation::Sync,
            None,
            "sync has been running for 17.2 s <b>& counting</b>",
        )),
        in_flight: Some(Duration::from_millis(17_250)),
        failures: BTreeMap::from([(Cause::Timeout, 2), (Cause::Io, 1)]),
        durations: BTreeMap::from([(Operation::Create, Duration::from_micros(90))]),
        high_priority_room: Some(HighPriorityRoom {
            bytes: 0,
            enough: false,
        }),
        ..writable_dir(id, path, role)
    }
}

/// Four directories with difficult names.
pub(crate) fn snapshot() -> Snapshot {
    let strange = Path::new(OsStr::from_bytes(b"/mnt/bad\xff\xfe byte"));
    let dirs = vec![
        DirView {
            journal: Some(JournalView {
                unmarked: Some(3 * GIB),
                files: 7,
                oldest: Some(0x1a2_29f9_24c0),
            }),
            ..writable_dir(0, "/mnt/journal one", Role::Journal)
        },
        full_dir(1, "/mnt/\"quoted\" \\ l1\nsecond line", Role::Ledger),
        hung_dir(2, "/mnt/<script>alert('x')</script>&", Role::Ledger),
        unknown_dir(3, strange, Role::Index),
    ];
    let of = |index: usize| vec![dirs[index].path.clone()];
    let node = NodeSummary {
        writable: of(0),
        almost_full: Vec::new(),
        full: of(1),
        unusable: of(2),
        wanted_mode: Some(Mode::ReadOnly),
        high_priority_writes: true,
    };
    let events = vec![
        Arc::new(event(41, &dirs[1], node.clone())),
        Arc::new(mode_wanted(42, node)),
    ];
    let mut sync = Histogram::default();
    for millis in [1, 3, 3, 700] {
        sync.observe(Duration::from_millis(millis));
    }
    Snapshot {
        elapsed: std::time::Duration::from_secs(60),
        time: NOW,
        started_at: before(600),
        severity: Status::Hung.severity(),
        ready: true,
        mode: ModeView {
            wanted: Some(Mode::ReadOnly),
            reason: Some("diskFull /mnt/l1".to_owned()),
            observed: None,
            high_priority_writes: true,
            transitions: BTreeMap::from([((Mode::ReadOnly, "disks"), 1)]),
            control: "enforce",
            claims: claims(),
            held: Some("ZooKeeper <zk1:2181> does not answer".to_owned()),
            journal_emergency: false,
        },
        beside: beside(),
        totals: BTreeMap::from([(Role::Journal, space(40)), (Role::Ledger, space(4))]),
        recent_events: Arc::new(events),
        event_counts: BTreeMap::from([(EventKind::DiskFull, 1), (EventKind::ModeWanted, 1)]),
        last_seq: 42,
        restart: Some(RestartView {
            verdict: Verdict::WouldFail,
            reasons: vec!["there is no room for a new journal file in /mnt/<j>".to_owned()],
        }),
        probe_histograms: BTreeMap::from([(Operation::Sync, sync)]),
        problems: vec!["the journal shares its <device> with a ledger directory".to_owned()],
        prober_restarts: 2,
        children_abandoned: 1,
        watches_nothing: false,
        dirs: dirs.into_iter().map(Arc::new).collect(),
    }
}

fn beside() -> BesideView {
    let details = GcDetails {
        force_compacting: false,
        major_compacting: false,
        minor_compacting: true,
        last_major: 1_796_000_000_000,
        last_minor: 1_796_000_100_000,
        majors: 2,
        minors: 9,
    };
    BesideView {
        bookie_up: Some(true),
        high_priority_writes: Some(false),
        zookeeper: Some(false),
        cluster: Some(cluster()),
        orphaned: vec!["10.0.0.3:3181".to_owned()],
        headroom_low: vec![(String::new(), true), ("eu \"1\"".to_owned(), false)],
        process: Some(BookieProcess {
            pid: 4321,
            started: before(9000),
            version: Some("4.17.3".to_owned()),
        }),
        registration: Some(Registration {
            writable: false,
            read_only: true,
        }),
        should_be: Some(ShouldBe {
            mode: bookkeeper::Mode::ReadOnly,
            reason: "/mnt/<l1> is full for it".to_owned(),
        }),
        compaction: CompactionView {
            flags: Some(CompactionFlags {
                minor_suspended: false,
                major_suspended: false,
            }),
            suspended: Some(SuspendedView {
                major: true,
                minor: false,
                seen: false,
            }),
            details: vec![details; 2],
            forced: Some(false),
            stalled: Some(true),
            forced_loop: Some(false),
        },
        action: Some(BesideAction::RequestGc),
    }
}

fn cluster() -> ClusterView {
    let member = |id: &str, writable, rack: Option<&str>, over_warn: Option<bool>| Member {
        id: id.to_owned(),
        registration: Registration {
            writable,
            read_only: !writable,
        },
        rack: rack.map(str::to_owned),
        group: None,
        agent: over_warn.map(|over_warn| AgentStatus {
            over_warn,
            ..AgentStatus::default()
        }),
        below_floor: false,
        claimed: !writable,
    };
    ClusterView {
        members: vec![
            member("10.0.0.3:3181", false, Some("/r\"1"), Some(true)),
            member("10.0.0.4:3181", true, Some("/r2"), Some(false)),
            member("10.0.0.5:3181", true, None, None),
        ],
        largest_ensemble: Some(2),
    }
}

fn claims() -> Vec<Claim> {
    let claim = |owner, reason: &str, seconds, pending| Claim {
        owner,
        mode: Mode::ReadOnly,
        reason: reason.to_owned(),
        since: before(seconds),
        pending,
        below_floor: false,
    };
    vec![
        claim(Owner::Agent, "/mnt/l1 is full", 30, true),
        claim(Owner::Operator, "disk <b>swap</b> at noon", 3600, false),
    ]
}

pub(crate) fn self_view() -> SelfView {
    let mut durations = Histogram::default();
    durations.observe(Duration::from_millis(120));
    SelfView {
        listeners: vec![
            ListenerView {
                name: "log".to_owned(),
                kind: "log",
                delivered: 42,
                ..ListenerView::default()
            },
            ListenerView {
                name: "page \"night\" <shift>".to_owned(),
                kind: "hook",
                delivered: 3,
                failed: 1,
                retried: 2,
                coalesced: 4,
                pending: 5,
                durations: Some(durations),
            },
        ],
        state_store_ok: false,
        config_reload_ok: true,
        log_lines_dropped: 7,
        writer_restarts: 1,
        problems: vec!["state directory is full: events are kept in memory only".to_owned()],
    }
}

/// `diskFull` of a directory.
pub(crate) fn event(seq: u64, dir: &DirView, node: NodeSummary) -> Event {
    Event {
        seq,
        time: before(30),
        kind: EventKind::DiskFull,
        severity: EventKind::DiskFull.severity(),
        dir: Some(dir.path.clone()),
        role: Some(dir.role),
        axis: Some(Axis::Space),
        from: Some(SpaceStatus::AlmostFull.name()),
        to: Some(SpaceStatus::Full.name()),
        coalesced: 0,
        reason: dir.reason.clone(),
        space: dir.space,
        node,
    }
}

fn mode_wanted(seq: u64, node: NodeSummary) -> Event {
    Event {
        seq,
        time: before(29),
        kind: EventKind::ModeWanted,
        severity: EventKind::ModeWanted.severity(),
        dir: None,
        role: None,
        axis: None,
        from: Some(Mode::Writable.name()),
        to: Some(Mode::ReadOnly.name()),
        coalesced: 0,
        reason: None,
        space: None,
        node,
    }
}

pub(crate) fn before(seconds: i64) -> Timestamp {
    Timestamp(NOW.0 - seconds * 1000)
}

fn reason(cause: Cause, operation: Operation, errno: Option<i32>, message: &str) -> Reason {
    Reason {
        cause,
        operation,
        errno,
        message: message.to_owned(),
    }
}

fn space(available_gib: u64) -> Space {
    Space {
        size: 100 * GIB,
        available: available_gib * GIB,
        inodes: 6_553_600,
        inodes_free: 6_500_000,
    }
}

fn mount(path: &Path) -> Mount {
    Mount {
        id: 36,
        device: Device { major: 8, minor: 1 },
        root: PathBuf::from("/"),
        point: path.to_owned(),
        source: "/dev/sda1".to_owned(),
        fs_type: "ext4".to_owned(),
        options: "rw,relatime".to_owned(),
        read_only: false,
        emergency: None,
        medium: Medium::SolidState,
    }
}

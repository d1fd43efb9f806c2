//! Histories of one disk of 1 GiB with 64 MiB of ballast, as the tracker and a prober make them.

use std::time::Duration;

use super::super::dir::{Dir, DirId, ProbePolicy, Role, Thresholds};
use super::super::moment::{Moment, Timestamp};
use super::super::observation::{
    Cookie, Device, Durations, Failure, Finding, Identity, Look, Medium, Mount, Observation,
    Operation, Space,
};
use super::super::policy::Policy;
use super::super::restart::{BookieNeeds, tests::needs};
use super::super::schedule::LookPlan;
use super::super::tracker::Tracker;
use super::{Ballast, Circumstances, JOURNAL_STEP, Order, trouble};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 1024 * MIB;
const BALLAST: u64 = 64 * MIB;
const PIECE: u64 = 16 * MIB;

/// A disk, its ballast file, and the agent that looks at it.
struct History {
    tracker: Tracker,
    id: DirId,
    dir: Dir,
    policy: Policy,
    second: u64,
    /// Another directory of the disk, without ballast.
    neighbour: Option<Dir>,
    /// MiB in use by others.
    used: u64,
    /// The file; none when something else has the name.
    file: Option<u64>,
    /// The file system gives the ballast no more than this.
    limit: u64,
    /// What the file system counted of the ballast in the last seconds, newest last.
    counted: [u64; 3],
    /// It counts blocks two seconds after they were written.
    late: bool,
    cookie: Cookie,
    read_only: bool,
    inodes_free: u64,
    refuses: bool,
    orders: Vec<Order>,
    events: Vec<String>,
}

impl History {
    fn new(role: Role, ballast: u64) -> History {
        let dir = Dir {
            path: "/d".into(),
            role,
            thresholds: Thresholds {
                dwell: Duration::from_secs(10),
                ..Thresholds::default()
            },
            probe: ProbePolicy::default(),
            require_mount: false,
            root_ok: false,
            await_cookie: false,
            ballast,
        };
        let mut history = History {
            tracker: Tracker::new(Policy::default()),
            id: DirId(0),
            dir,
            policy: Policy::default(),
            second: 0,
            neighbour: None,
            used: 100,
            file: Some(0),
            limit: u64::MAX,
            counted: [0; 3],
            late: false,
            cookie: Cookie::Absent,
            read_only: false,
            inodes_free: 1000,
            refuses: false,
            orders: Vec::new(),
            events: Vec::new(),
        };
        history.configure(ballast);
        history.mounted();
        history
    }

    fn now(&self) -> Moment {
        Moment {
            wall: Timestamp(0),
            elapsed: Duration::from_secs(self.second),
        }
    }

    fn configure(&mut self, ballast: u64) {
        self.dir.ballast = ballast;
        let (now, mut dirs) = (self.now(), vec![self.dir.clone()]);
        dirs.extend(self.neighbour.clone());
        self.tracker.configure(now, dirs, self.policy, |_| None);
    }

    fn mounted(&mut self) {
        let mount = Mount {
            id: 1,
            device: Device { major: 8, minor: 1 },
            root: "/".into(),
            point: "/d".into(),
            source: "/dev/sda1".to_owned(),
            fs_type: "ext4".to_owned(),
            options: String::new(),
            read_only: self.read_only,
            emergency: None,
            medium: Medium::SolidState,
        };
        let now = self.now();
        let ids: Vec<DirId> = self.tracker.dirs().map(|(id, _)| id).collect();
        for id in ids {
            let mount = Observation::Mounted(mount.clone());
            self.tracker.observe(now, id, mount);
        }
    }

    /// Others use so many MiB; so many seconds pass.
    fn pass(&mut self, used: u64, seconds: u64) -> &mut History {
        self.used = used;
        for _ in 0..seconds {
            self.second += 1;
            self.counted = [
                self.counted[1],
                self.counted[2],
                self.file.unwrap_or_default(),
            ];
            let now = self.now();
            self.tracker.tick(now);
            // A look that is due again at once shows how quickly an order follows.
            for _ in 0..3 {
                for (id, plan) in self.tracker.begin_looks(now) {
                    let look = match id == self.id {
                        true => self.look(plan),
                        false => self.look_beside(plan),
                    };
                    for event in self.tracker.observe(now, id, Observation::Looked(look)) {
                        let name = event.kind.name();
                        if event.dir.is_some() {
                            self.events.push(format!("{} {name}", self.second));
                        }
                    }
                }
            }
        }
        self
    }

    fn available(&self) -> u64 {
        let file = self.file.unwrap_or_default();
        let counted = if self.late { self.counted[0] } else { file };
        SIZE.saturating_sub(self.used * MIB + counted)
    }

    fn look_beside(&mut self, plan: LookPlan) -> Look {
        let mut look = self.look(LookPlan {
            ballast: Order::None,
            ..plan
        });
        let identity = look.identity.as_mut().unwrap();
        identity.canonical = "/n".into();
        look
    }

    fn look(&mut self, plan: LookPlan) -> Look {
        let available = self.available();
        let mut look = Look {
            durations: Durations::new(),
            space: Some(Space {
                size: SIZE,
                available,
                inodes: 1000,
                inodes_free: self.inodes_free,
            }),
            identity: Some(Identity {
                device: Some(Device { major: 8, minor: 1 }),
                mount_id: Some(1),
                cookie: match plan.full {
                    true => self.cookie.clone(),
                    false => Cookie::NotRead,
                },
                canonical: "/d".into(),
                boot_id: "boot".to_owned(),
                ..Identity::default()
            }),
            probed: plan.probe,
            bookie_files: None,
            ballast: None,
            pressure: None,
            failure: None,
        };
        if plan.ballast != Order::None {
            self.obey(plan.ballast);
            look.ballast = self.file;
            look.durations.insert(Operation::Ballast, Duration::ZERO);
        }
        if plan.probe && self.refuses && self.available() < 100 * MIB {
            look.failure = Some(Failure {
                operation: Operation::Write,
                errno: Some(122),
                detail: String::new(),
                finding: Finding::Errno,
            });
        }
        look
    }

    fn obey(&mut self, order: Order) {
        if self.orders.last() != Some(&order) {
            self.orders.push(order);
        }
        let Some(bytes) = &mut self.file else {
            return;
        };
        match order {
            Order::Fill(wanted) if wanted < *bytes => *bytes = wanted,
            Order::Fill(wanted) => *bytes = wanted.min(*bytes + PIECE).min(self.limit.max(*bytes)),
            Order::Release => *bytes = 0,
            Order::None | Order::Measure => {}
        }
    }

    fn mib(&self) -> u64 {
        self.file.unwrap_or_default() / MIB
    }

    fn state(&self) -> &'static str {
        let view = self.tracker.view(self.now(), self.id).unwrap();
        view.ballast.map_or("none", |ballast| ballast.state.name())
    }
}

#[test]
fn it_is_made_by_pieces_after_the_dwell_time() {
    let mut disk = History::new(Role::Ledger, BALLAST);
    assert_eq!(disk.pass(100, 8).mib(), 0);
    assert_eq!(disk.state(), "waiting");
    let pieces: Vec<u64> = (0..8).map(|_| disk.pass(100, 2).mib()).collect();
    assert!(
        pieces.windows(2).all(|two| two[1] - two[0] <= 32),
        "{pieces:?}"
    );
    assert_eq!((disk.pass(100, 20).mib(), disk.state()), (64, "held"));
    assert_eq!(disk.events, [""; 0], "our own filling is no forecast");
}

#[test]
fn it_is_given_back_in_the_second_in_which_the_directory_becomes_full() {
    let mut disk = History::new(Role::Ledger, BALLAST);
    disk.pass(100, 60).pass(920, 1);
    assert_eq!((disk.mib(), disk.state()), (0, "released"));
    let expected = ["61 diskFull", "61 ballastReleased"];
    assert_eq!(disk.events, expected);
}

/// 64 MiB back and the directory is below its low watermark by its numbers: it stays full all the
/// same until there is room for the ballast too, and does not fill a second time without.
#[test]
fn what_was_given_back_makes_no_full_directory_writable() {
    let mut disk = History::new(Role::Ledger, BALLAST);
    disk.pass(100, 60).pass(915, 1).pass(900, 60);
    assert_eq!(disk.events, ["61 diskFull", "61 ballastReleased"]);
    assert_eq!(disk.mib(), 0);
    disk.pass(850, 30);
    assert_eq!(disk.events[2..], ["132 diskWritable"]);
}

#[test]
fn it_is_made_again_with_room_to_spare_only() {
    let mut disk = History::new(Role::Ledger, BALLAST);
    disk.pass(100, 60).pass(920, 1).pass(850, 60);
    // Writable, but the ballast would bring it to its mark.
    assert_eq!((disk.mib(), disk.state()), (0, "released"));
    disk.pass(500, 60);
    assert_eq!((disk.mib(), disk.state()), (64, "held"));
    assert_eq!(disk.events.len(), 3, "{:?}", disk.events);
}

#[test]
fn a_journal_gets_it_back_before_it_is_full() {
    for (role, held) in [(Role::Journal, 0), (Role::Ledger, 64)] {
        let mut disk = History::new(role, BALLAST);
        disk.dir.thresholds.full = 0.99;
        disk.configure(BALLAST);
        // 30 MiB are left, which is under 0.99 and over two steps of a journal.
        disk.pass(100, 60).pass(930, 1);
        assert_eq!(disk.mib(), held, "{role:?}");
    }
}

/// MiB that are left when a journal that grows by so many MiB a second gets its ballast back. Its
/// bookie allocates by steps of so many MiB.
fn left_when_given_back(step: Option<u64>, rate: u64) -> u64 {
    let mut disk = History::new(Role::Journal, BALLAST);
    disk.dir.thresholds.full = 0.99;
    disk.policy.bookie = step.map(|step| BookieNeeds {
        journal_step: step * MIB,
        ..needs()
    });
    disk.configure(BALLAST);
    let mut used = 600;
    assert_eq!(disk.pass(used, 60).mib(), 64);
    while disk.mib() == 64 && used < 1000 {
        used += rate;
        disk.pass(used, 1);
    }
    assert_eq!((disk.mib(), disk.state()), (0, "released"));
    (SIZE - BALLAST) / MIB - used
}

#[test]
fn two_of_the_bookies_own_steps_are_an_emergency_of_its_journal() {
    assert_eq!(left_when_given_back(None, 1), 31);
    assert_eq!(left_when_given_back(Some(16), 1), 31);
    assert_eq!(left_when_given_back(Some(64), 1), 127);
}

#[test]
fn so_is_less_than_is_written_in_thirty_seconds() {
    assert_eq!(left_when_given_back(None, 4), 116);
    assert_eq!(left_when_given_back(Some(64), 4), 124);
    assert_eq!(left_when_given_back(Some(64), 8), 232);
}

/// btrfs counts blocks late, so that what we took looks like the bookie's writes.
#[test]
fn our_own_filling_is_no_emergency_of_a_journal() {
    let mut disk = History::new(Role::Journal, BALLAST);
    disk.late = true;
    disk.pass(700, 90);
    assert_eq!(
        (disk.mib(), disk.state()),
        (64, "held"),
        "{:?}",
        disk.orders
    );
    assert_eq!(disk.events, [""; 0]);
}

#[test]
fn our_own_filling_is_none_beside_either() {
    let mut disk = History::new(Role::Journal, BALLAST);
    disk.neighbour = Some(Dir {
        path: "/n".into(),
        ballast: 0,
        ..disk.dir.clone()
    });
    disk.configure(BALLAST);
    disk.mounted();
    let fastest = (0..60)
        .map(|_| disk.pass(100, 1).tracker.tracks[1].forecast.fill_rate())
        .fold(0.0, f64::max);
    assert_eq!((disk.mib(), fastest), (64, 0.0));
    disk.pass(150, 1);
    assert!(0.0 < disk.tracker.tracks[1].forecast.fill_rate());
}

/// A file system that counts late makes it look like others' writes in its other directories too.
#[test]
fn growth_beside_excuses_a_rate_for_a_while() {
    let facts = Circumstances {
        wanted: BALLAST,
        role: Role::Journal,
        space: Some(Space {
            size: SIZE,
            available: 100 * MIB,
            inodes: 1000,
            inodes_free: 1000,
        }),
        limits: Thresholds::default(),
        fill_rate: 16.0 * 1024.0 * 1024.0,
        journal_step: JOURNAL_STEP,
        grew_beside: Some(Duration::from_secs(100)),
        full: false,
        usable: true,
        well: true,
        before_bookie: false,
    };
    let short = |second| Ballast::default().is_short(Duration::from_secs(second), &facts);
    assert_eq!([101, 114, 115].map(short), [false, false, true]);
}

#[test]
fn it_does_not_grow_while_the_device_stalls() {
    let mut disk = History::new(Role::Ledger, BALLAST);
    let begun = (0..60).any(|_| 0 < disk.pass(100, 1).mib());
    assert!(begun && disk.mib() < 64);
    let (now, id, before) = (disk.now(), disk.id, disk.mib());
    let stalled = Observation::Stalled(Some("holds 3 requests".to_owned()));
    disk.tracker.observe(now, id, stalled);
    disk.pass(100, 60);
    assert_eq!((disk.mib(), disk.state()), (before, "waiting"));
    disk.tracker
        .observe(disk.now(), id, Observation::Stalled(None));
    assert_eq!(disk.pass(100, 60).mib(), 64);
}

#[test]
fn a_quota_counts_and_inodes_do_not() {
    let mut disk = History::new(Role::Ledger, BALLAST);
    disk.pass(100, 60).refuses = true;
    disk.pass(880, 12);
    assert_eq!(disk.mib(), 0, "{:?}", disk.events);
    let mut disk = History::new(Role::Ledger, BALLAST);
    disk.pass(100, 60).inodes_free = 0;
    disk.pass(100, 12);
    assert_eq!(
        (disk.mib(), disk.events.len()),
        (64, 1),
        "{:?}",
        disk.events
    );
}

#[test]
fn nothing_is_done_where_nothing_can_be_written() {
    let mut disk = History::new(Role::Ledger, BALLAST);
    disk.pass(100, 60).read_only = true;
    disk.mounted();
    disk.pass(100, 1).orders.clear();
    disk.pass(920, 30);
    assert_eq!((disk.orders.as_slice(), disk.mib()), (&[][..], 64));
}

#[test]
fn none_before_the_bookie_and_given_back_when_it_is_to_be_made_anew() {
    let mut disk = History::new(Role::Ledger, BALLAST);
    disk.dir.await_cookie = true;
    disk.configure(BALLAST);
    assert_eq!(disk.pass(100, 60).mib(), 0);
    disk.cookie = Cookie::Present {
        instance_id: "i".to_owned(),
        bookie_host: "b".to_owned(),
    };
    assert_eq!(disk.pass(100, 60).mib(), 64);
    disk.cookie = Cookie::Absent;
    assert_eq!(disk.pass(100, 12).mib(), 0, "initbookie wants it empty");
    assert_eq!(disk.events, [""; 0]);
}

#[test]
fn a_reload_takes_away_what_is_not_asked_for_any_more() {
    let mut disk = History::new(Role::Ledger, BALLAST);
    disk.pass(100, 60).configure(BALLAST / 2);
    assert_eq!(disk.pass(100, 11).mib(), 32);
    disk.configure(0);
    assert_eq!((disk.pass(100, 2).mib(), disk.state()), (0, "none"));
    assert_eq!(disk.events, [""; 0]);
}

#[test]
fn without_a_setting_a_file_that_is_there_is_shown_and_left() {
    let mut disk = History::new(Role::Ledger, 0);
    disk.file = Some(BALLAST);
    disk.pass(100, 30).pass(920, 30);
    assert_eq!((disk.mib(), disk.state()), (64, "unasked"));
    let mut disk = History::new(Role::Ledger, 0);
    disk.pass(100, 60);
    assert_eq!(disk.orders, [Order::Measure], "asked for once");
}

#[test]
fn what_cannot_be_made_is_said_and_keeps_no_directory_full() {
    let mut foreign = History::new(Role::Ledger, BALLAST);
    foreign.file = None;
    assert_eq!(foreign.pass(100, 60).state(), "obstructed");
    let mut limited = History::new(Role::Ledger, BALLAST);
    limited.limit = PIECE;
    assert_eq!(limited.pass(100, 60).state(), "refused");
    let mut large = History::new(Role::Ledger, 990 * MIB);
    assert_eq!(large.pass(10, 60).state(), "tooLarge");
    for (disk, words) in [
        (
            &foreign,
            "something that is not the agent's file, or may not be changed, has the name",
        ),
        (&limited, "only 16.0 MiB of 64.0 MiB can be held"),
        (&large, "990.0 MiB do not fit beside the thresholds"),
    ] {
        let view = disk.tracker.view(disk.now(), disk.id).unwrap();
        let trouble = trouble(&[view]).unwrap();
        assert!(trouble.contains(words), "{trouble}");
    }
    for mut disk in [foreign, large] {
        disk.pass(990, 2).pass(900, 20);
        assert_eq!(disk.events.len(), 2, "{:?}", disk.events);
    }
}

#[test]
fn a_file_that_people_remove_is_made_again_as_the_first_time() {
    let mut disk = History::new(Role::Ledger, BALLAST);
    disk.pass(100, 60).file = Some(0);
    assert_eq!(disk.pass(860, 60).mib(), 0, "not while space is short");
    assert_eq!(disk.pass(100, 60).mib(), 64);
}

/// A journal of which only 1 % must stay free, beside a bookie.
fn journal(ballast: u64) -> History {
    let mut disk = History::new(Role::Journal, ballast);
    disk.dir.thresholds.full = 0.99;
    disk.dir.thresholds.warn = 0.98;
    disk.dir.thresholds.low_watermark = 0.98;
    disk.policy.journal_emergency = true;
    disk.configure(ballast);
    disk
}

impl History {
    /// Fills by one MiB each ten seconds: too slow for the rate to count.
    fn creep(&mut self, used: u64) -> &mut History {
        for used in self.used..=used {
            self.pass(used, 10);
        }
        self
    }

    /// Wanted mode, and whether the journal is in need.
    fn wanted(&self) -> (&'static str, bool) {
        let node = self.tracker.node();
        let wanted = node.wanted().map_or("unknown", |mode| mode.name());
        (wanted, node.journal_emergency())
    }
}

/// #1349, #3150: two steps of 16 MiB, whatever the percentage; and back after the dwell time of 10 s.
#[test]
fn a_journal_with_less_than_it_needs_next_asks_for_read_only() {
    let mut disk = journal(0);
    assert_eq!(disk.pass(980, 20).creep(991).wanted(), ("writable", false));
    assert_eq!(disk.creep(993).wanted(), ("readOnly", true));
    assert_eq!(disk.pass(985, 5).wanted(), ("readOnly", true));
    assert_eq!(disk.pass(985, 10).wanted(), ("writable", false));
}

#[test]
fn a_journal_that_fills_within_thirty_seconds_asks_for_read_only() {
    let mut disk = journal(0);
    assert_eq!(disk.pass(500, 60).wanted(), ("writable", false));
    assert_eq!(disk.pass(600, 1).wanted(), ("readOnly", true));
    assert_eq!(disk.pass(600, 60).wanted(), ("writable", false));
}

#[test]
fn ballast_is_given_back_before_the_journal_is_in_need() {
    let mut disk = journal(BALLAST);
    assert_eq!(disk.pass(850, 60).mib(), 64);
    disk.creep(932);
    assert_eq!((disk.mib(), disk.wanted()), (0, ("writable", false)));
    assert_eq!(disk.creep(993).wanted(), ("readOnly", true));
}

/// Servers that are no bookies have journals of their own size.
#[test]
fn without_a_bookie_there_is_no_such_need() {
    let mut disk = journal(0);
    disk.policy.journal_emergency = false;
    disk.configure(0);
    assert_eq!(disk.pass(980, 20).creep(993).wanted(), ("writable", false));
}

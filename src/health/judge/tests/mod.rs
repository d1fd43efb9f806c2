//! One rule each, as lines: what is seen and heard at which second, and what is told.

mod alive;
mod cluster;
mod compaction;
mod mode;

use std::path::PathBuf;

use super::*;
use crate::health::beside::{
    AgentStatus, BookieProcess, BookieState, ClusterView, CompactionFlags, GcDetails, Member,
};
use crate::health::claim::Owner;
use crate::health::moment::Timestamp;

/// When the agent started, in seconds since the epoch.
const EPOCH: u64 = 1_000_000;

/// Bytes of each disk; a percent is ten of them, and the reserve is less than that.
const SIZE: u64 = 1000;

struct World {
    judge: Judge,
    at: u64,
    dirs: Vec<(PathBuf, Role, u64, AccessStatus)>,
    room: bool,
    claims: Vec<Claim>,
    told: Vec<(u64, Told)>,
}

/// A bookie's settings: checks each 10 s, one full disk makes it read-only.
fn settings() -> Settings {
    let model = bookkeeper::Settings {
        any_full: true,
        high_priority_reserve: 5,
        ..bookkeeper::Settings::defaults()
    };
    Settings {
        model,
        any_full_known: true,
        ..Settings::default()
    }
}

/// What is told when these lines happen: `SECOND what …`, with time passing in between.
fn run(settings: Settings, lines: &str) -> World {
    let mut world = World {
        judge: Judge::new(settings),
        at: 0,
        dirs: Vec::new(),
        room: true,
        claims: Vec::new(),
        told: Vec::new(),
    };
    world.disks("l1:50 l2:50 j1:50");
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (second, rest) = line.split_once(' ').expect(line);
        world.until(second.parse().expect(line));
        world.line(rest);
    }
    world
}

impl World {
    /// `SECOND event` of each event.
    fn events(&self) -> Vec<String> {
        let told = self.told.iter();
        told.map(|(at, told)| format!("{at} {}", told.kind.name()))
            .collect()
    }

    fn view(&self) -> BesideView {
        self.judge.view(self.now().elapsed)
    }

    fn message(&self) -> &str {
        self.told.last().map_or("", |(_, told)| &told.message)
    }

    fn until(&mut self, second: u64) {
        while self.at < second {
            self.at += 1;
            let now = self.now();
            let (mut judge, facts) = self.split();
            let told = judge.tick(now, &facts);
            self.keep(judge, told);
        }
    }

    fn now(&self) -> Moment {
        Moment {
            elapsed: Duration::from_secs(self.at),
            wall: Timestamp(i64::try_from((EPOCH + self.at) * 1000).unwrap()),
        }
    }

    fn split(&self) -> (Judge, NodeFacts<'_>) {
        let dirs = self.dirs.iter().map(|(path, role, used, access)| DirNow {
            path,
            role: *role,
            device: None,
            space: Some(Space {
                size: SIZE,
                available: SIZE - used * SIZE / 100,
                ..Space::default()
            }),
            space_status: match used {
                0..=90 => SpaceStatus::Ok,
                91..=95 => SpaceStatus::AlmostFull,
                _ => SpaceStatus::Full,
            },
            access: *access,
        });
        let dirs: Vec<_> = dirs.collect();
        let bad = |dir: &DirNow<'_>| {
            dir.space_status == SpaceStatus::Full || dir.access != AccessStatus::Ok
        };
        let wanted = if dirs.iter().any(bad) {
            Mode::ReadOnly
        } else {
            Mode::Writable
        };
        let facts = NodeFacts {
            dirs,
            wanted: Some(wanted),
            wanted_reason: None,
            high_priority_writes: self.room,
            claims: &self.claims,
            undoable: false,
        };
        (self.judge.clone(), facts)
    }

    fn keep(&mut self, mut judge: Judge, told: Vec<Told>) {
        // As the monitor loop does.
        if judge.has_bookie {
            judge.server(judge.observed());
        }
        self.judge = judge;
        let at = self.at;
        self.told.extend(told.into_iter().map(|told| (at, told)));
    }

    fn hear(&mut self, heard: Heard) {
        let now = self.now();
        let (mut judge, facts) = self.split();
        let told = judge.hear(now, heard, &facts);
        self.keep(judge, told);
    }

    /// `l1:92 j1:10 l2:hung`, with ledger, index and journal directories by their first letters.
    fn disks(&mut self, text: &str) {
        self.dirs = text
            .split_whitespace()
            .map(|word| {
                let (name, state) = word.split_once(':').expect(word);
                let role = match &name[..1] {
                    "l" => Role::Ledger,
                    "i" => Role::Index,
                    _ => Role::Journal,
                };
                let access = match state {
                    "hung" => AccessStatus::Hung,
                    "failed" => AccessStatus::Failed,
                    "gone" => AccessStatus::Vanished,
                    _ => AccessStatus::Ok,
                };
                let used = state.parse().unwrap_or(50);
                (PathBuf::from(format!("/{name}")), role, used, access)
            })
            .collect();
    }

    fn line(&mut self, line: &str) {
        let (what, rest) = line.split_once(' ').unwrap_or((line, ""));
        match what {
            "-" => {}
            "disks" => self.disks(rest),
            "room" => self.room = rest == "yes",
            "claim" => self.claims = vec![claim(rest)],
            "state" => self.hear(Heard::State(state(rest))),
            "process" => self.hear(Heard::Process(Ok(process(rest)))),
            "flags" => {
                let flags = CompactionFlags {
                    major_suspended: rest.contains("major"),
                    minor_suspended: rest.contains("minor"),
                };
                self.hear(Heard::Compaction(Ok((rest != "none").then_some(flags))));
            }
            "gc" => {
                let details = rest.split_whitespace().map(details).collect();
                self.hear(Heard::Gc(Ok(details)));
            }
            "forced" => self.hear(Heard::ForcedGc(Ok(rest == "yes"))),
            "registered" => {
                let registration = Registration {
                    writable: rest.contains("writable"),
                    read_only: rest.contains("readOnly"),
                };
                self.hear(Heard::Registration(Ok(registration)));
            }
            "session" => self.hear(Heard::Session(match rest {
                "on" => Session::Connected,
                _ => Session::Lost(Duration::ZERO),
            })),
            "cluster" => self.hear(Heard::Cluster(Ok(cluster(rest)))),
            "acted" => {
                let now = self.now().elapsed;
                let action = self.judge.action(now).expect("something to ask");
                self.judge.acted(now, action);
            }
            _ => panic!("{line}"),
        }
    }

    fn action(&self) -> Option<BesideAction> {
        self.judge.action(self.now().elapsed)
    }
}

fn claim(owner: &str) -> Claim {
    Claim {
        owner: match owner {
            "operator" => Owner::Operator,
            "drain" => Owner::Drain("d1".to_owned()),
            _ => Owner::Agent,
        },
        mode: Mode::ReadOnly,
        reason: "a reason".to_owned(),
        since: Timestamp::default(),
        pending: false,
        below_floor: false,
    }
}

fn state(text: &str) -> Result<BookieState, String> {
    let state = |running, read_only, shutting_down| BookieState {
        running,
        read_only,
        shutting_down,
        high_priority_writes: Some(!text.contains("refuses")),
    };
    match text.split(' ').next() {
        Some("writable") => Ok(state(true, false, false)),
        Some("readOnly") => Ok(state(true, true, false)),
        Some("ending") => Ok(state(false, true, true)),
        Some("starting") => Ok(state(false, false, false)),
        _ => Err("connection refused".to_owned()),
    }
}

/// `PID START [VERSION]`, or `none`.
fn process(text: &str) -> Option<BookieProcess> {
    let (pid, rest) = text.split_once(' ')?;
    let (started, version) = rest.split_once(' ').unwrap_or((rest, ""));
    let started: i64 = started.parse().unwrap();
    Some(BookieProcess {
        pid: pid.parse().unwrap(),
        started: Timestamp(started * 1000),
        version: (!version.is_empty()).then(|| version.to_owned()),
    })
}

/// `MAJORS@SECOND,MINORS@SECOND`, seconds of the agent's run.
fn details(text: &str) -> GcDetails {
    let (major, minor) = text.split_once(',').unwrap();
    let one = |text: &str| -> (u64, u64) {
        let (count, last) = text.split_once('@').unwrap();
        let last: i64 = last.parse().unwrap();
        let last = EPOCH.checked_add_signed(last).unwrap() * 1000;
        (count.parse().unwrap(), last)
    };
    let ((majors, last_major), (minors, last_minor)) = (one(major), one(minor));
    GcDetails {
        force_compacting: false,
        major_compacting: false,
        minor_compacting: false,
        last_major,
        last_minor,
        majors,
        minors,
    }
}

/// `ENSEMBLE b1=w b2=wo@group b3=rc`: writable, read-only, over warn, claimed; `?` is without an agent.
fn cluster(text: &str) -> ClusterView {
    let mut words = text.split_whitespace();
    let largest_ensemble = words.next().unwrap().parse().ok();
    let members = words.map(|word| {
        let (id, rest) = word.split_once('=').unwrap();
        let (marks, group) = rest.split_once('@').unwrap_or((rest, ""));
        let has = |mark| marks.contains(mark);
        let agent = AgentStatus {
            over_warn: has('o'),
            ..AgentStatus::default()
        };
        Member {
            id: id.to_owned(),
            registration: Registration {
                writable: has('w'),
                read_only: has('r'),
            },
            rack: None,
            group: (!group.is_empty()).then(|| group.to_owned()),
            agent: (!has('?')).then_some(agent),
            claimed: has('c'),
            below_floor: false,
        }
    });
    ClusterView {
        members: members.collect(),
        largest_ensemble,
    }
}

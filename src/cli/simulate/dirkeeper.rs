//! `simulate` in our own semantics: turns lines into observations for `health::tracker`, and what
//! it decides into answers. Each line is one round: every directory is looked at and shows what
//! was said of it last. The formats are in `docs/simulate.md`.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::looks::{Observations, Place, Seen};
use super::wire::{self, Dirs, Entries, Listed, Object, RoleName};
use super::{Flow, Problem, Simulation};
use crate::health::dir::{Dir, DirId, ProbePolicy, Role, Thresholds};
use crate::health::event::{Event, EventKind};
use crate::health::moment::{Moment, Timestamp};
use crate::health::observation::{Medium, Mount, Observation};
use crate::health::policy::{Mode, Policy};
use crate::health::status::{AccessStatus, SpaceStatus};
use crate::health::tracker::{Stand, Tracker};

const STEP_REMEDY: &str = "a step is a line like {\"at\":10000,\"observe\":{\"/d1\":{\"total\":1000,\"usable\":40}}}; \
     see docs/simulate.md";

/// How far a default moves below a full threshold that was set lower; as the configuration has it.
const DISTANCE: f64 = 0.05;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    dirs: Vec<Object<HeaderDir>>,
    #[serde(default, deserialize_with = "wire::present")]
    settings: Option<Object<Settings>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct HeaderDir {
    path: String,
    role: RoleName,
    #[serde(default, deserialize_with = "wire::present")]
    filesystem: Option<String>,
    #[serde(default)]
    require_mount: bool,
    #[serde(default)]
    await_cookie: bool,
    #[serde(default, deserialize_with = "wire::present")]
    medium: Option<MediumName>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
enum MediumName {
    SolidState,
    Rotating,
    Network,
    Memory,
    Unknown,
}

/// BookKeeper's keys, mapped as `--bookie-conf` maps them, and those of our own configuration.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct Settings {
    #[serde(deserialize_with = "wire::present")]
    disk_usage_threshold: Option<f64>,
    #[serde(deserialize_with = "wire::present")]
    disk_usage_warn_threshold: Option<f64>,
    #[serde(deserialize_with = "wire::present")]
    disk_usage_lwm_threshold: Option<f64>,
    /// No meaning here: a disk never stops a bookie.
    #[serde(rename = "readOnlyModeEnabled", deserialize_with = "wire::present")]
    _read_only_mode_enabled: Option<bool>,
    #[serde(deserialize_with = "wire::present")]
    read_only_mode_on_any_disk_full_enabled: Option<bool>,
    #[serde(deserialize_with = "wire::present")]
    min_usable_size_for_high_priority_writes: Option<u64>,
    #[serde(deserialize_with = "wire::present")]
    warn_available: Option<u64>,
    #[serde(deserialize_with = "wire::present")]
    full_available: Option<u64>,
    #[serde(deserialize_with = "wire::present")]
    inodes_warn: Option<f64>,
    #[serde(deserialize_with = "wire::present")]
    inodes_full: Option<f64>,
    #[serde(deserialize_with = "wire::present")]
    dwell: Option<String>,
    #[serde(deserialize_with = "wire::present")]
    interval: Option<String>,
    #[serde(deserialize_with = "wire::present")]
    deadline: Option<String>,
    #[serde(deserialize_with = "wire::present")]
    slow: Option<String>,
    #[serde(deserialize_with = "wire::present")]
    reminder_interval: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    /// Milliseconds since the start.
    #[serde(default, deserialize_with = "wire::present")]
    at: Option<u64>,
    observe: Entries<Object<Seen>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    step: u64,
    at: u64,
    events: Vec<EventWire<'a>>,
    writable: ByRole<'a>,
    full: ByRole<'a>,
    unusable: ByRole<'a>,
    mode: &'static str,
    high_priority_writes: bool,
    status: Statuses<'a>,
}

#[derive(Default, Serialize)]
struct ByRole<'a> {
    ledger: Vec<&'a str>,
    index: Vec<&'a str>,
    journal: Vec<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EventWire<'a> {
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dir: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    axis: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    high_priority_writes_allowed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

/// One-word statuses by path, in configured order.
struct Statuses<'a> {
    paths: &'a [String],
    stands: &'a [Option<Stand>],
}

impl Serialize for Statuses<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let known = self.paths.iter().zip(self.stands);
        serializer.collect_map(
            known.filter_map(|(path, stand)| Some((path, stand.as_ref()?.status.name()))),
        )
    }
}

/// One node whose disks are described line by line.
pub(super) struct Simulated {
    dirs: Dirs,
    ids: Vec<DirId>,
    places: Vec<Place>,
    /// What was said of each directory last.
    last: Vec<Option<Observations>>,
    /// The mount table's line that the tracker knows.
    mounted: Vec<Option<Mount>>,
    tracker: Tracker,
    interval: u64,
    steps: u64,
    at: u64,
}

impl Simulated {
    pub(super) fn new(header: &str) -> Result<Simulated, Problem> {
        let header: Header = wire::read(header, wire::HEADER_REMEDY)?;
        let settings = header.settings.map(|settings| settings.0);
        let settings = settings.unwrap_or_default();
        let thresholds = settings.thresholds()?;
        let probe = settings.probe()?;
        let policy = settings.policy()?;
        let mut configured = Vec::new();
        let mut media = Vec::new();
        let mut listed = Vec::new();
        for Object(dir) in header.dirs {
            configured.push((dir.require_mount, dir.await_cookie));
            media.push(dir.medium.map_or(Medium::Unknown, MediumName::medium));
            listed.push(Listed {
                path: dir.path,
                role: dir.role,
                filesystem: dir.filesystem,
            });
        }
        let dirs = Dirs::new(listed)?;
        let places = places(&dirs, media);
        let configured = configured.into_iter().zip(&places).zip(&dirs.roles);
        let configured = configured.map(|(((require_mount, await_cookie), place), role)| Dir {
            path: place.path.clone(),
            role: *role,
            thresholds,
            probe,
            require_mount,
            root_ok: false,
            await_cookie,
            ballast: 0,
        });
        let mut tracker = Tracker::new(policy);
        // Nothing is known of a new directory, so no event can follow.
        tracker.configure(moment(0), configured.collect(), policy, |_| None);
        Ok(Simulated {
            ids: tracker.dirs().map(|(id, _)| id).collect(),
            last: vec![None; places.len()],
            mounted: vec![None; places.len()],
            tracker,
            interval: millis(probe.interval),
            steps: 0,
            at: 0,
            places,
            dirs,
        })
    }

    /// When this step is; the probe interval after the one before unless it says so.
    fn time(&self, at: Option<u64>) -> Result<u64, Problem> {
        let next = if self.steps == 0 {
            0
        } else {
            self.at.saturating_add(self.interval)
        };
        let at = at.unwrap_or(next);
        if at < self.at {
            return Err(Problem::new(
                format!(
                    "at is {at}, before the line before, which is at {}",
                    self.at
                ),
                "time does not go back; give milliseconds since the start, rising",
            ));
        }
        if i64::try_from(at).is_err() {
            return Err(Problem::new(
                format!("at is {at}"),
                "give milliseconds since the start",
            ));
        }
        Ok(at)
    }

    /// Shows the tracker all directories as they were said to be last.
    fn round(&mut self, now: Moment) -> Vec<Event> {
        let mut events = Vec::new();
        for (dir, last) in self.last.iter().enumerate() {
            let Some(last) = last else {
                continue;
            };
            if self.mounted[dir].as_ref() != Some(&last.mount) {
                self.mounted[dir] = Some(last.mount.clone());
                let mounted = Observation::Mounted(last.mount.clone());
                events.extend(self.tracker.observe(now, self.ids[dir], mounted));
            }
            let seen = last.seen.clone();
            events.extend(self.tracker.observe(now, self.ids[dir], seen));
        }
        events.extend(self.tracker.tick(now));
        events
    }

    fn event<'a>(&'a self, event: &'a Event) -> EventWire<'a> {
        let path = |dir: &PathBuf| self.places.iter().position(|place| place.path == *dir);
        let is_full = matches!(event.kind, EventKind::AnyDiskFull | EventKind::AllDisksFull);
        EventWire {
            event: event.kind.name(),
            dir: event
                .dir
                .as_ref()
                .and_then(path)
                .map(|dir| self.dirs.paths[dir].as_str()),
            role: event.role.filter(|_| event.dir.is_none()).map(Role::name),
            axis: event.axis.map(crate::health::status::Axis::name),
            from: event.from,
            to: event.to,
            high_priority_writes_allowed: is_full.then_some(event.node.high_priority_writes),
            cause: event
                .reason
                .as_ref()
                .filter(|_| event.dir.is_some())
                .map(|reason| reason.cause.name()),
            message: event.reason.as_ref().map(|reason| reason.message.as_str()),
        }
    }

    fn by_role(
        &self,
        stands: &[Option<Stand>],
        belongs: impl Fn(SpaceStatus, AccessStatus) -> bool,
    ) -> ByRole<'_> {
        let mut lists = ByRole::default();
        let dirs = self.dirs.paths.iter().zip(&self.dirs.roles);
        for ((path, role), stand) in dirs.zip(stands) {
            let Some(stand) = stand else {
                continue;
            };
            if belongs(stand.space, stand.access) {
                match role {
                    Role::Ledger => lists.ledger.push(path),
                    Role::Index => lists.index.push(path),
                    Role::Journal => lists.journal.push(path),
                }
            }
        }
        lists
    }
}

impl Simulation for Simulated {
    fn answer(&mut self, line: &str, answer: &mut Vec<u8>) -> Result<Flow, Problem> {
        let step: Step = wire::read(line, STEP_REMEDY)?;
        self.at = self.time(step.at)?;
        for (path, Object(seen)) in &step.observe.0 {
            let dir = self.dirs.find(path)?;
            self.last[dir] = Some(seen.convert(&self.places[dir])?);
        }
        let now = moment(self.at);
        let events = self.round(now);
        let ids = self.ids.iter();
        let stands: Vec<_> = ids.map(|id| self.tracker.stand(*id)).collect();
        let good = |space, access| {
            access == AccessStatus::Ok && matches!(space, SpaceStatus::Ok | SpaceStatus::AlmostFull)
        };
        let full =
            |space, access: AccessStatus| !access.is_unusable() && space == SpaceStatus::Full;
        let line = Answer {
            step: self.steps,
            at: self.at,
            events: events.iter().map(|event| self.event(event)).collect(),
            writable: self.by_role(&stands, good),
            full: self.by_role(&stands, full),
            unusable: self.by_role(&stands, |_, access| access.is_unusable()),
            mode: self.tracker.node().wanted().map_or("unknown", Mode::name),
            high_priority_writes: self.tracker.node().high_priority_writes(),
            status: Statuses {
                paths: &self.dirs.paths,
                stands: &stands,
            },
        };
        serde_json::to_writer(answer, &line).expect("plain values always become JSON");
        self.steps += 1;
        Ok(Flow::Continues)
    }
}

fn moment(at: u64) -> Moment {
    Moment {
        elapsed: Duration::from_millis(at),
        wall: Timestamp(i64::try_from(at).unwrap_or(i64::MAX)),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Directories that share a file system by name get its number, all others one of their own.
fn places(dirs: &Dirs, media: Vec<Medium>) -> Vec<Place> {
    let shared = dirs.filesystems.iter().flatten().max();
    let mut next = shared.map_or(1, |last| last + 2);
    let places = dirs.paths.iter().zip(&dirs.filesystems).zip(media);
    places
        .map(|((path, filesystem), medium)| Place {
            path: PathBuf::from(path),
            medium,
            filesystem: filesystem.map_or_else(
                || {
                    next += 1;
                    next - 1
                },
                |number| number + 1,
            ),
        })
        .collect()
}

impl MediumName {
    fn medium(self) -> Medium {
        match self {
            MediumName::SolidState => Medium::SolidState,
            MediumName::Rotating => Medium::Rotating,
            MediumName::Network => Medium::Network,
            MediumName::Memory => Medium::Memory,
            MediumName::Unknown => Medium::Unknown,
        }
    }
}

impl Settings {
    fn thresholds(&self) -> Result<Thresholds, Problem> {
        let default = Thresholds::default();
        let full = ratio(
            "diskUsageThreshold",
            self.disk_usage_threshold,
            default.full,
        )?;
        let warn = ("diskUsageWarnThreshold", self.disk_usage_warn_threshold);
        let mark = ("diskUsageLwmThreshold", self.disk_usage_lwm_threshold);
        let inodes_full = ratio("inodesFull", self.inodes_full, default.inodes_full)?;
        let inodes_warn = ("inodesWarn", self.inodes_warn);
        let of_usage = ("diskUsageThreshold", full);
        let dwell = duration("dwell", self.dwell.as_deref())?;
        let reserve = self.min_usable_size_for_high_priority_writes;
        Ok(Thresholds {
            full,
            warn: lower(warn, default.warn, of_usage)?,
            low_watermark: lower(mark, default.low_watermark, of_usage)?,
            warn_available: self.warn_available.unwrap_or(default.warn_available),
            full_available: self.full_available.unwrap_or(default.full_available),
            inodes_warn: lower(
                inodes_warn,
                default.inodes_warn,
                ("inodesFull", inodes_full),
            )?,
            inodes_full,
            high_priority_reserve: reserve.unwrap_or(default.high_priority_reserve),
            dwell: dwell.unwrap_or(default.dwell),
        })
    }

    fn probe(&self) -> Result<ProbePolicy, Problem> {
        let default = ProbePolicy::default();
        let interval = duration("interval", self.interval.as_deref())?;
        let slow = duration("slow", self.slow.as_deref())?;
        Ok(ProbePolicy {
            interval: interval.unwrap_or(default.interval),
            deadline: duration("deadline", self.deadline.as_deref())?.or(default.deadline),
            slow: slow.unwrap_or(default.slow),
            ..default
        })
    }

    fn policy(&self) -> Result<Policy, Problem> {
        let default = Policy::default();
        let any_full = self.read_only_mode_on_any_disk_full_enabled;
        let reminder = duration("reminderInterval", self.reminder_interval.as_deref())?;
        Ok(Policy {
            any_full: any_full.unwrap_or(default.any_full),
            reminder_interval: reminder.unwrap_or(default.reminder_interval),
            ..default
        })
    }
}

fn ratio(key: &str, value: Option<f64>, default: f64) -> Result<f64, Problem> {
    match value {
        None => Ok(default),
        Some(value) if 0.0 < value && value <= 1.0 => Ok(value),
        Some(value) => Err(Problem::new(
            format!("{key} is {value}"),
            "a threshold is a ratio over 0 and up to 1",
        )),
    }
}

/// A threshold that must not be above another one; its default makes way.
fn lower(
    (key, value): (&str, Option<f64>),
    default: f64,
    (upper_key, upper): (&str, f64),
) -> Result<f64, Problem> {
    match value {
        None if upper < default => Ok((upper - DISTANCE).max(upper / 2.0)),
        Some(value) if upper < value => Err(Problem::new(
            format!("{key} is {value}, above {upper_key}, which is {upper}"),
            format!("give a ratio up to {upper}"),
        )),
        value => ratio(key, value, default),
    }
}

fn duration(key: &str, text: Option<&str>) -> Result<Option<Duration>, Problem> {
    text.map(humantime::parse_duration)
        .transpose()
        .map_err(|error| {
            let text = text.unwrap_or_default();
            Problem::new(
                format!("{key} is \"{text}\": {error}"),
                "a duration has a unit, like \"30s\"",
            )
        })
}

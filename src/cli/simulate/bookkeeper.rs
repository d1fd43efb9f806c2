//! `simulate --semantics bookkeeper`: turns lines into steps of `health::bookkeeper` and back, in the
//! format of the conformance traces.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use super::wire::{self, Dirs, Entries, Listed, Object, RoleName};
use super::{Flow, Problem, Simulation};
use crate::health::bookkeeper::{
    DirIndex, Event, Mode, Model, Observed, Rejected, Settings, Setup, Trouble,
};
use crate::health::dir::Role;

const STEP_REMEDY: &str = "a step is a line like {\"observe\":{\"/d1\":{\"total\":1000,\"usable\":40}}}, with \
     \"error\":\"io\" or \"error\":\"store\" where something fails";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header<'a> {
    dirs: Vec<Object<HeaderDir>>,
    #[serde(borrow)]
    settings: Object<SettingsWire<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HeaderDir {
    path: String,
    role: RoleName,
    #[serde(default, deserialize_with = "wire::present")]
    filesystem: Option<String>,
}

/// Thresholds are kept as text: single precision made of double precision is rounded twice.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SettingsWire<'a> {
    #[serde(borrow, default, deserialize_with = "wire::present")]
    disk_usage_threshold: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "wire::present")]
    disk_usage_warn_threshold: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "wire::present")]
    disk_usage_lwm_threshold: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "wire::present")]
    read_only_mode_enabled: Option<bool>,
    read_only_mode_on_any_disk_full_enabled: bool,
    #[serde(default, deserialize_with = "wire::present")]
    min_usable_size_for_high_priority_writes: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    observe: Entries<Object<ObservedWire>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ObservedWire {
    #[serde(default, deserialize_with = "wire::present")]
    total: Option<i64>,
    #[serde(default, deserialize_with = "wire::present")]
    usable: Option<i64>,
    #[serde(default, deserialize_with = "wire::present")]
    error: Option<TroubleWire>,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TroubleWire {
    Io,
    Store,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    step: u64,
    events: List<'a, Event, EventWire<'a>>,
    writable: ByRole<'a>,
    full: ByRole<'a>,
    mode: &'static str,
    high_priority_writes: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    no_writable_dir: bool,
}

#[derive(Serialize)]
struct ByRole<'a> {
    ledger: List<'a, DirIndex, &'a str>,
    index: List<'a, DirIndex, &'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EventWire<'a> {
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dir: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    high_priority_writes_allowed: Option<bool>,
}

/// Items of the model, written as what they are on the wire.
struct List<'a, T, W> {
    items: &'a [T],
    paths: &'a [String],
    wire: fn(&T, &'a [String]) -> W,
}

impl<T, W: Serialize> Serialize for List<'_, T, W> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.items.iter().map(|item| (self.wire)(item, self.paths)))
    }
}

/// One bookie whose disks are described line by line.
pub(super) struct Simulated {
    dirs: Dirs,
    model: Model,
    steps: u64,
}

impl Simulated {
    pub(super) fn new(header: &str) -> Result<Simulated, Problem> {
        let header: Header<'_> = wire::read(header, wire::HEADER_REMEDY)?;
        let settings = header.settings.0.convert()?;
        let dirs = Dirs::new(header.dirs.into_iter().map(|Object(dir)| Listed {
            path: dir.path,
            role: dir.role,
            filesystem: dir.filesystem,
        }))?;
        let setups: Vec<Setup> = dirs
            .roles
            .iter()
            .zip(&dirs.filesystems)
            .map(|(role, filesystem)| Setup {
                role: *role,
                filesystem: *filesystem,
            })
            .collect();
        let model =
            Model::new(settings, &setups).map_err(|rejected| refused(rejected, &settings))?;
        Ok(Simulated {
            dirs,
            model,
            steps: 0,
        })
    }

    /// The first step has to say something about each directory that BookKeeper looks at.
    fn check_complete(&self, seen: &[(DirIndex, Observed)]) -> Result<(), Problem> {
        let mut missing: Vec<bool> = self
            .dirs
            .roles
            .iter()
            .map(|role| *role != Role::Journal)
            .collect();
        seen.iter().for_each(|(dir, _)| missing[*dir] = false);
        match missing.iter().position(|missing| *missing) {
            None => Ok(()),
            Some(dir) => Err(Problem::new(
                format!(
                    "nothing is observed of directory {:?}",
                    self.dirs.paths[dir]
                ),
                "the second line is what the start sees, with every ledger and index directory",
            )),
        }
    }
}

impl Simulation for Simulated {
    fn answer(&mut self, line: &str, answer: &mut Vec<u8>) -> Result<Flow, Problem> {
        let step: Step = wire::read(line, STEP_REMEDY)?;
        let mut seen = Vec::with_capacity(step.observe.0.len());
        for (path, Object(observed)) in &step.observe.0 {
            seen.push((self.dirs.find(path)?, observed.convert(path)?));
        }
        if self.steps == 0 {
            self.check_complete(&seen)?;
        }
        self.model.step(seen);
        let by_role = |list: fn(&Model, Role) -> &[DirIndex]| ByRole {
            ledger: self.paths(list(&self.model, Role::Ledger)),
            index: self.paths(list(&self.model, Role::Index)),
        };
        let lines = Answer {
            step: self.steps,
            events: List {
                items: self.model.events(),
                paths: &self.dirs.paths,
                wire: event,
            },
            writable: by_role(Model::writable),
            full: by_role(Model::full),
            mode: match self.model.mode() {
                Mode::Writable => "writable",
                Mode::ReadOnly => "readOnly",
                Mode::Shutdown => "shutdown",
            },
            high_priority_writes: self.model.high_priority_writes(),
            no_writable_dir: self.model.no_writable_dir(),
        };
        serde_json::to_writer(answer, &lines).expect("plain values always become JSON");
        self.steps += 1;
        if self.model.mode() == Mode::Shutdown {
            Ok(Flow::Ends)
        } else {
            Ok(Flow::Continues)
        }
    }
}

impl Simulated {
    fn paths<'a>(&'a self, items: &'a [DirIndex]) -> List<'a, DirIndex, &'a str> {
        List {
            items,
            paths: &self.dirs.paths,
            wire: |dir, paths| &paths[*dir],
        }
    }
}

fn event<'a>(event: &Event, paths: &'a [String]) -> EventWire<'a> {
    let (event, dir, high_priority_writes_allowed) = match event {
        Event::DiskFailed(dir) => ("diskFailed", Some(dir), None),
        Event::DiskAlmostFull(dir) => ("diskAlmostFull", Some(dir), None),
        Event::DiskFull(dir) => ("diskFull", Some(dir), None),
        Event::DiskWritable(dir) => ("diskWritable", Some(dir), None),
        Event::DiskJustWritable(dir) => ("diskJustWritable", Some(dir), None),
        Event::AllDisksFull(allowed) => ("allDisksFull", None, Some(*allowed)),
        Event::AnyDiskFull(allowed) => ("anyDiskFull", None, Some(*allowed)),
        Event::AllDisksWritable => ("allDisksWritable", None, None),
        Event::FatalError => ("fatalError", None, None),
    };
    EventWire {
        event,
        dir: dir.map(|dir| paths[*dir].as_str()),
        high_priority_writes_allowed,
    }
}

impl SettingsWire<'_> {
    fn convert(&self) -> Result<Settings, Problem> {
        let defaults = Settings::defaults();
        let full = threshold("diskUsageThreshold", self.disk_usage_threshold)?;
        let warn = threshold("diskUsageWarnThreshold", self.disk_usage_warn_threshold)?;
        let low_watermark = threshold("diskUsageLwmThreshold", self.disk_usage_lwm_threshold)?;
        let full = full.unwrap_or(defaults.full);
        Ok(Settings {
            full,
            warn: warn.unwrap_or(defaults.warn),
            low_watermark: low_watermark.unwrap_or(full),
            read_only_mode: self
                .read_only_mode_enabled
                .unwrap_or(defaults.read_only_mode),
            any_full: self.read_only_mode_on_any_disk_full_enabled,
            high_priority_reserve: self
                .min_usable_size_for_high_priority_writes
                .unwrap_or(defaults.high_priority_reserve),
        })
    }
}

fn threshold(key: &str, text: Option<&RawValue>) -> Result<Option<f32>, Problem> {
    let Some(text) = text.map(RawValue::get) else {
        return Ok(None);
    };
    // A JSON number is always one that `f32` reads; anything else (a string, null) is not.
    let is_number = text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    match text.parse() {
        Ok(value) if is_number => Ok(Some(value)),
        _ => Err(Problem::new(
            format!("{key} is {text}"),
            "a threshold is a number between 0 and 1, like 0.95",
        )),
    }
}

fn refused(rejected: Rejected, settings: &Settings) -> Problem {
    let full = settings.full;
    match rejected {
        Rejected::Full => Problem::new(
            format!("diskUsageThreshold is {full}"),
            "BookKeeper accepts only values over 0 and under 1",
        ),
        Rejected::LowWatermarkOverFull => Problem::new(
            format!(
                "diskUsageLwmThreshold is {}, above diskUsageThreshold, which is {full}",
                settings.low_watermark
            ),
            "BookKeeper wants diskUsageThreshold >= diskUsageLwmThreshold",
        ),
        Rejected::WarnOverFull => Problem::new(
            format!(
                "diskUsageWarnThreshold is {}, above diskUsageThreshold, which is {full}",
                settings.warn
            ),
            "BookKeeper wants diskUsageThreshold >= diskUsageWarnThreshold (0.9 when left out)",
        ),
    }
}

impl ObservedWire {
    fn convert(&self, path: &str) -> Result<Observed, Problem> {
        let error = self.error.map(|error| match error {
            TroubleWire::Io => Trouble::Io,
            TroubleWire::Store => Trouble::Store,
        });
        let (total, usable) = match (self.total, self.usable, error) {
            (Some(total), Some(usable), _) => (total, usable),
            (None, None, Some(Trouble::Io)) => (0, 0),
            (total, _, _) => {
                let key = if total.is_none() { "total" } else { "usable" };
                return Err(Problem::new(
                    format!("{path:?} has no {key}"),
                    "give total and usable; only with \"error\":\"io\" both may be left out",
                ));
            }
        };
        if total < 0 || usable < 0 {
            return Err(Problem::new(
                format!("{path:?} has total {total} and usable {usable}"),
                "both are bytes, from 0 on",
            ));
        }
        if total < usable {
            return Err(Problem::new(
                format!("{path:?} has usable {usable}, more than its total, {total}"),
                "usable is at most total",
            ));
        }
        Ok(Observed {
            total,
            usable,
            error,
        })
    }
}

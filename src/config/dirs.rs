//! From what the sources say about directories to the list of watched ones: who overrides whom,
//! what is there twice, and thresholds that belong together. Never looks at a disk.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use super::bookie_conf::BookieDir;
use super::file::FileSettings;
use super::keys::{Key, Section};
use super::layer::{Layer, Slot, resolve};
use super::problem::{Place, Problems, Wrong};
use super::value::{Value, absolute};
use crate::health::dir::{Dir, ProbePolicy, Role, Thresholds, path_text};

/// Watching costs up to 64 KB for each directory; no machine has so many disks, and 64 MB are the
/// most that an agent beside a bookie may take.
const DIRS_LIMIT: usize = 1024;

/// How far below `full` the defaults of warn and low watermark move when `full` is lowered: the
/// distance of the defaults from each other.
const DISTANCE: f64 = 0.05;

/// A directory that some source names.
pub(super) struct Named {
    pub(super) path: PathBuf,
    pub(super) role: Role,
    pub(super) place: Place,
    /// Own settings of a `[[dir]]`.
    layer: Layer,
    explicit: bool,
}

/// Watched directories with the slots from which they were made.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Dirs {
    pub(super) dirs: Vec<Dir>,
    pub(super) slots: Vec<Layer>,
}

/// Joins the sources: a `[[dir]]` overrides what the bookie's file or a flag names.
pub(super) fn join(
    settings: &FileSettings,
    bookie: &[BookieDir],
    flags: &[OsString],
    problems: &mut Problems,
) -> Vec<Named> {
    let mut named = Vec::new();
    for entry in &settings.dirs {
        let place = entry.place.clone().unwrap_or(Place::Default);
        let path = required(&entry.layer, Key::DirPath, &place, problems).path();
        let role = required(&entry.layer, Key::DirRole, &place, problems).text();
        let role = role.as_deref().and_then(Role::parse);
        if let (Some(path), Some(role)) = (path, role) {
            let dir = Named {
                path,
                role,
                place,
                layer: entry.layer.clone(),
                explicit: true,
            };
            match named.iter().find(|other| same(other, &dir)) {
                Some(other) => problems.error(twice(&dir, other)),
                None => named.push(dir),
            }
        }
    }
    for dir in bookie {
        let dir = plain(dir.path.clone(), dir.role, dir.place.clone());
        if !named.iter().any(|other| same(other, &dir)) {
            named.push(dir);
        }
    }
    for flag in flags {
        let Some(dir) = from_flag(flag, problems) else {
            continue;
        };
        match named.iter().find(|other| same(other, &dir)) {
            Some(other) if other.place == dir.place => problems.error(twice(&dir, other)),
            Some(_) => {}
            None => named.push(dir),
        }
    }
    merge_roles(&mut named, problems);
    number_journals(&mut named, bookie);
    if DIRS_LIMIT < named.len() {
        let problem = format!("{} directories are more than can be watched", named.len());
        let wrong = Wrong::new(problem, format!("name at most {DIRS_LIMIT}"));
        problems.error(wrong.at(named[DIRS_LIMIT].place.clone(), "dir", ""));
    }
    named
}

/// The bookie's journals come in the order of its own file, whoever else names them: `lastMark.1` is
/// that of the second one there.
fn number_journals(named: &mut Vec<Named>, bookie: &[BookieDir]) {
    let rank = |dir: &Named| {
        let journal = |known: &BookieDir| known.role == Role::Journal && known.path == dir.path;
        bookie.iter().position(journal).unwrap_or(usize::MAX)
    };
    let is_journal = |dir: &Named| dir.role == Role::Journal;
    let places: Vec<bool> = named.iter().map(is_journal).collect();
    let (mut journals, others): (Vec<Named>, Vec<Named>) = named.drain(..).partition(is_journal);
    journals.sort_by_key(rank);
    let (mut journals, mut others) = (journals.into_iter(), others.into_iter());
    named.extend(places.into_iter().filter_map(|journal| match journal {
        true => journals.next(),
        false => others.next(),
    }));
}

fn same(one: &Named, other: &Named) -> bool {
    // As text: both are in one form, and comparing paths by their parts is slow for thousands.
    one.role == other.role && one.path.as_os_str() == other.path.as_os_str()
}

fn plain(path: PathBuf, role: Role, place: Place) -> Named {
    Named {
        path,
        role,
        place,
        layer: Layer::default(),
        explicit: false,
    }
}

fn twice(dir: &Named, other: &Named) -> super::Problem {
    Wrong::new(
        format!(
            "the same directory with the same role is in {}",
            other.place
        ),
        "name each directory once",
    )
    .at(dir.place.clone(), "dir.path", shown(dir))
}

fn shown(dir: &Named) -> String {
    Value::Path(dir.path.clone()).to_toml()
}

/// The key, which has to be there.
pub(super) fn required(layer: &Layer, key: Key, place: &Place, problems: &mut Problems) -> Slot {
    if layer.get(key).is_none() {
        let row = key.row();
        let remedy = format!("write it like {} = {}", row.name, row.written());
        problems.error(Wrong::new("is missing", remedy).at(place.clone(), key.path(), ""));
    }
    layer.slot(key)
}

/// `ROLE=PATH`, as bytes: a path may have any.
fn from_flag(flag: &OsString, problems: &mut Problems) -> Option<Named> {
    let place = Place::Flag("--dir");
    let bytes = flag.as_bytes();
    let equals = bytes.iter().position(|byte| *byte == b'=');
    let (role, path) = match equals {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &[][..]),
    };
    let role = std::str::from_utf8(role).ok().and_then(Role::parse);
    let path = absolute(&PathBuf::from(OsString::from_vec(path.to_vec())));
    let wrong = match (equals, role, path) {
        (Some(_), Some(role), Ok(path)) => return Some(plain(path, role, place)),
        (None, ..) => Wrong::new(
            "has no role",
            "write --dir ROLE=PATH, like --dir ledger=/mnt/l1",
        ),
        (_, None, _) => Wrong::new(
            "has an unknown role",
            "write ledger=PATH, journal=PATH or index=PATH",
        ),
        (_, _, Err(wrong)) => wrong,
    };
    problems.error(wrong.at(place, "dir", path_text(flag.as_ref())));
    None
}

/// One path in several roles: ledger and index are one directory, as BookKeeper has it when
/// `indexDirectories` is not set; a journal beside others is allowed and slow.
fn merge_roles(named: &mut Vec<Named>, problems: &mut Problems) {
    let ledgers: Vec<PathBuf> = paths(named, Role::Ledger);
    let journals: Vec<PathBuf> = paths(named, Role::Journal);
    named.retain(|dir| {
        let merged = dir.role == Role::Index && ledgers.contains(&dir.path);
        if merged && dir.explicit {
            let warning = Wrong::new(
                "is a ledger directory too, and is watched once, as that",
                "leave the index directory out",
            );
            problems.warn(warning.at(dir.place.clone(), "dir.path", shown(dir)));
        }
        if !merged && dir.role != Role::Journal && journals.contains(&dir.path) {
            let warning = Wrong::new(
                format!("is a journal directory and {} directory", a(dir.role)),
                "give the journal a disk of its own",
            );
            problems.warn(warning.at(dir.place.clone(), "dir.path", shown(dir)));
        }
        !merged
    });
}

fn paths(named: &[Named], role: Role) -> Vec<PathBuf> {
    let of_role = named.iter().filter(|dir| dir.role == role);
    of_role.map(|dir| dir.path.clone()).collect()
}

pub(super) fn a(role: Role) -> &'static str {
    match role {
        Role::Ledger => "a ledger",
        Role::Journal => "a journal",
        Role::Index => "an index",
    }
}

/// Gives each directory its settings: its own, its role's, those for all, the bookie's, defaults.
pub(super) fn settle(
    named: Vec<Named>,
    settings: &FileSettings,
    bookie: Option<&Layer>,
    problems: &mut Problems,
) -> Dirs {
    let nothing = Layer::default();
    let mut dirs = Dirs::default();
    let slots_of = |own: &Layer, role: Role| {
        let of_role = settings.roles.get(&role).unwrap_or(&nothing);
        let layers = [own, of_role, &settings.node, bookie.unwrap_or(&nothing)];
        let mut slots = Layer::default();
        for key in Key::all_in(Section::Dir) {
            slots.set(key, resolve(key, &layers));
        }
        slots
    };
    if named.is_empty() {
        // No directory could be read: the thresholds are judged all the same.
        for role in Role::ALL {
            order(&mut slots_of(&nothing, role), problems);
        }
    }
    for dir in named {
        let mut slots = slots_of(&dir.layer, dir.role);
        let place = dir.place.clone();
        slots.set(
            Key::DirPath,
            Slot::new(Value::Path(dir.path.clone()), place.clone()),
        );
        slots.set(
            Key::DirRole,
            Slot::new(Value::Text(dir.role.name().to_owned()), place.clone()),
        );
        order(&mut slots, problems);
        dirs.dirs.push(Dir {
            thresholds: thresholds(&slots),
            probe: probe(&slots),
            require_mount: slots.slot(Key::RequireMount).bool().unwrap_or_default(),
            root_ok: slots.slot(Key::RequireMount).bool() == Some(false),
            await_cookie: bookie.is_some(),
            ballast: slots.slot(Key::Ballast).size().unwrap_or_default(),
            path: dir.path,
            role: dir.role,
        });
        dirs.slots.push(slots);
    }
    dirs
}

/// The thresholds in their order: warn before full, writable again not above full.
fn order(slots: &mut Layer, problems: &mut Problems) {
    for (lower, upper) in [
        (Key::Warn, Key::Full),
        (Key::LowWatermark, Key::Full),
        (Key::InodesWarn, Key::InodesFull),
    ] {
        let (low, high) = (slots.slot(lower), slots.slot(upper));
        let (Some(low_ratio), Some(high_ratio)) = (low.ratio(), high.ratio()) else {
            continue; // reported where it was read
        };
        let name = upper.row().name;
        if high_ratio < low_ratio && low.is_set() {
            let wrong = Wrong::new(
                format!("is over {name}, which is {high_ratio:?} ({})", high.place),
                format!("write a number up to {high_ratio:?}, or raise {name}"),
            );
            problems.error(low.problem(lower, wrong));
        } else if high_ratio < low_ratio {
            let derived = below(high_ratio);
            let warning = Wrong::new(
                format!(
                    "is below the default of {}, so {derived:?} is used for that",
                    lower.row().name
                ),
                format!("set {} too", lower.row().name),
            );
            problems.warn(high.problem(upper, warning));
            slots.set(lower, Slot::new(Value::Ratio(derived), Place::Derived));
        } else if lower == Key::LowWatermark && low.is_set() && low_ratio == high_ratio {
            let warning = Wrong::new(
                format!("is the same as {name}: the directory will swing between the two"),
                format!("write {:?}", below(high_ratio)),
            );
            problems.warn(low.problem(lower, warning));
        }
    }
    let (warn, full) = (
        slots.slot(Key::WarnAvailable),
        slots.slot(Key::FullAvailable),
    );
    if let (Some(warn_bytes), Some(full_bytes)) = (warn.size(), full.size())
        && 0 < warn_bytes
        && warn_bytes < full_bytes
    {
        let wrong = Wrong::new(
            "is less than full_available: the directory would be full before it is almost full",
            format!("write {} or more", Value::Size(full_bytes).to_toml()),
        );
        problems.error(warn.problem(Key::WarnAvailable, wrong));
    }
}

/// A bit below `full`, without the noise of binary fractions.
fn below(full: f64) -> f64 {
    let lower = (full - DISTANCE).max(full / 2.0);
    let rounded = (lower * 10_000.0).round() / 10_000.0;
    if 0.0 < rounded { rounded } else { lower }
}

fn thresholds(slots: &Layer) -> Thresholds {
    let ratio = |key| slots.slot(key).ratio().unwrap_or_default();
    let size = |key| slots.slot(key).size().unwrap_or_default();
    Thresholds {
        warn: ratio(Key::Warn),
        full: ratio(Key::Full),
        low_watermark: ratio(Key::LowWatermark),
        warn_available: size(Key::WarnAvailable),
        full_available: size(Key::FullAvailable),
        inodes_warn: ratio(Key::InodesWarn),
        inodes_full: ratio(Key::InodesFull),
        high_priority_reserve: size(Key::HighPriorityReserve),
        dwell: slots.slot(Key::Dwell).duration().unwrap_or_default(),
    }
}

fn probe(slots: &Layer) -> ProbePolicy {
    let duration = |key| slots.slot(key).duration();
    ProbePolicy {
        interval: duration(Key::Interval).unwrap_or_default(),
        space_interval: duration(Key::SpaceInterval).unwrap_or_default(),
        deadline: duration(Key::Deadline),
        slow: duration(Key::Slow).unwrap_or_default(),
    }
}

//! `[bookie]` and the bookie's own file to what the agent knows about the bookie beside it.

use std::path::PathBuf;

use super::bookie_conf::{BookieConf, BookieFile};
use super::keys::{Key, Section};
use super::layer::{Layer, Slot, resolve};
use super::problem::{Place, Problems, Wrong};
use super::source;
use super::value::Value;
use super::version::BookieVersion;
use crate::health::judge::{ANY_FULL_DEFAULT_SINCE, ANY_FULL_SINCE};
use crate::health::policy::Policy;

/// The bookie beside which the agent runs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BookieConfig {
    /// Its own properties file.
    pub conf: Option<PathBuf>,
    /// What that file sets; nothing without a file.
    pub file: BookieConf,
    /// BookKeeper's version.
    pub version: Option<BookieVersion>,
    /// Its id in ZooKeeper, by our own file or its own; none where neither says it.
    pub id: Option<String>,
    /// Its admin HTTP server, without a final slash.
    pub admin_url: Option<String>,
    /// Certificates that the admin server's own is checked against.
    pub admin_ca: Option<PathBuf>,
    /// Client certificate for the admin server; comes with `admin_key`.
    pub admin_cert: Option<PathBuf>,
    /// Key of that certificate.
    pub admin_key: Option<PathBuf>,
    /// What relative directories in its file are relative to.
    pub home: Option<PathBuf>,
    /// The bookie is kept in the mode that its disks allow; otherwise only what would be done is said.
    pub enforce: bool,
    /// How many bookies must stay writable; by the cluster if none.
    pub min_writable_bookies: Option<u32>,
}

/// Certificates for the bookie's admin server, in PEM form.
#[derive(Clone, Default)]
pub struct AdminFiles {
    /// Authorities of its certificate.
    pub ca: Option<Vec<u8>>,
    /// Ours, and its key.
    pub cert_and_key: Option<(Vec<u8>, Vec<u8>)>,
}

impl BookieConfig {
    /// Reads the files that are named. Blocks on their disks.
    ///
    /// # Errors
    /// All that is wrong with them.
    pub fn read_files(&self) -> Result<AdminFiles, Problems> {
        let mut problems = Problems::default();
        let mut read = |path: &Option<PathBuf>| {
            let remedy = "name a file that the agent can read";
            source::read(path.as_ref()?, remedy, &mut Vec::new(), &mut problems)
        };
        let (ca, cert) = (read(&self.admin_ca), read(&self.admin_cert));
        let key = read(&self.admin_key);
        if problems.errors.is_empty() {
            let cert_and_key = cert.zip(key);
            Ok(AdminFiles { ca, cert_and_key })
        } else {
            Err(problems.sorted())
        }
    }
}

/// What a bookie's file and `[bookie]` come to.
pub(super) struct Settled {
    pub(super) bookie: Option<BookieConfig>,
    pub(super) policy: Policy,
    pub(super) slots: Layer,
}

/// Joins our own settings (`node`) with those of the bookie's file (`mapped`).
pub(super) fn settle(
    node: &Layer,
    conf: Option<&Slot>,
    file: Option<(BookieFile, &Layer)>,
    problems: &mut Problems,
) -> Settled {
    let nothing = Layer::default();
    let (file, mapped) = match file {
        Some((file, mapped)) => (Some(file), mapped),
        None => (None, &nothing),
    };
    let mut slots = Layer::default();
    for key in Key::all_in(Section::Bookie) {
        slots.set(key, resolve(key, &[node, mapped]));
    }
    if let Some(conf) = conf {
        slots.set(Key::Conf, conf.clone());
    }
    certificate(&slots, problems);
    let path = |key| slots.slot(key).path();
    let bookie = BookieConfig {
        conf: path(Key::Conf),
        version: slots.slot(Key::Version).version(),
        id: slots.slot(Key::BookieId).text(),
        admin_url: slots.slot(Key::AdminUrl).text(),
        admin_ca: path(Key::AdminCa),
        admin_cert: path(Key::AdminCert),
        admin_key: path(Key::AdminKeyFile),
        home: path(Key::Home),
        enforce: slots.slot(Key::Control).text().as_deref() == Some("enforce"),
        min_writable_bookies: slots.slot(Key::MinWritableBookies).count(),
        file: file
            .as_ref()
            .map(|file| file.values.clone())
            .unwrap_or_default(),
    };
    let any_full = any_full(&slots, &bookie, file.as_ref(), problems);
    let policy = Policy {
        any_full: any_full.any_full().flatten().unwrap_or(true),
        bookie: file.as_ref().map(|file| file.values.needs()),
        journal_emergency: true,
        beside: bookie.file.beside(of_bookie(&bookie)),
        ..Policy::default()
    };
    slots.set(Key::ReadOnlyOnAnyFull, any_full);
    Settled {
        bookie: Some(bookie),
        policy,
        slots,
    }
}

fn certificate(slots: &Layer, problems: &mut Problems) {
    for (key, other) in [
        (Key::AdminCert, Key::AdminKeyFile),
        (Key::AdminKeyFile, Key::AdminCert),
    ] {
        let slot = slots.slot(key);
        if slot.is_set() && !slots.slot(other).is_set() {
            let wrong = Wrong::new(
                format!("is of no use without {}", other.path()),
                "set both or none",
            );
            problems.error(slot.problem(key, wrong));
        }
    }
}

/// To keep a bookie in a mode, whether by `enforce` or by `mode set`, it and its cluster have to be reached, and its
/// name there be known. `enforce` cannot do without.
pub(super) fn can_keep(settled: &Settled, zookeeper: bool, problems: &mut Problems) {
    let Some(bookie) = &settled.bookie else {
        return;
    };
    let is_missing =
        |key: Key, value: &Option<String>| value.is_none() && !settled.slots.slot(key).is_broken();
    let no_id = is_missing(Key::BookieId, &bookie.id);
    let remedy_id = "set bookie.id to the bookie's name in ZooKeeper under cookies";
    if !bookie.enforce {
        // Who has no ZooKeeper here wants to watch and no more.
        if no_id && zookeeper {
            let problem =
                "is not known: there is nothing of its cluster, and its mode cannot be set";
            let place = bookie.conf.as_ref().map(|conf| Place::file(conf, None));
            let place = place.unwrap_or(Place::Derived);
            let warning = Wrong::new(problem, remedy_id);
            problems.warn(warning.at(place, Key::BookieId.path(), ""));
        }
        return;
    }
    let slot = settled.slots.slot(Key::Control);
    let mut needs = |missing: bool, problem: &str, remedy: &str| {
        if missing {
            let wrong = Wrong::new(problem.to_owned(), remedy.to_owned());
            problems.error(slot.problem(Key::Control, wrong));
        }
    };
    needs(
        is_missing(Key::AdminUrl, &bookie.admin_url),
        "needs the bookie's admin HTTP server, and none is named",
        "set httpServerEnabled=true in the bookie's file, or bookie.admin_url",
    );
    needs(
        !zookeeper,
        "needs the ZooKeeper of the bookie's cluster, and none is named",
        "name the bookie's file with bookie.conf, or set zookeeper.metadata_service_uri",
    );
    needs(
        no_id,
        "needs the bookie's id, and neither file says it",
        remedy_id,
    );
}

/// Whether one full directory makes the bookie itself read-only; none where nobody can say.
fn of_bookie(bookie: &BookieConfig) -> Option<bool> {
    let in_file = bookie.file.read_only_mode_on_any_disk_full_enabled;
    let at_least = |(major, minor)| bookie.version.map(|version| version.at_least(major, minor));
    match at_least(ANY_FULL_SINCE) {
        Some(false) => Some(false),
        _ => in_file.or_else(|| at_least(ANY_FULL_DEFAULT_SINCE)),
    }
}

/// Whether one full directory asks for read-only. An unknown version counts as the most dangerous
/// one: if the bookie goes read-only on one full directory, we must not want it writable.
fn any_full(
    slots: &Layer,
    bookie: &BookieConfig,
    file: Option<&BookieFile>,
    problems: &mut Problems,
) -> Slot {
    let slot = slots.slot(Key::ReadOnlyOnAnyFull);
    let name = "readOnlyModeOnAnyDiskFullEnabled";
    let in_file = bookie.file.read_only_mode_on_any_disk_full_enabled;
    let place = match (&bookie.conf, file.and_then(|file| file.line(name))) {
        (Some(conf), Some(line)) => Place::file(conf, line),
        _ => Place::Derived,
    };
    let counts = |version: BookieVersion| version.at_least(ANY_FULL_SINCE.0, ANY_FULL_SINCE.1);
    let (answer, place) = match (slot.any_full().flatten(), bookie.version, in_file) {
        (Some(ours), ..) => (ours, slot.place.clone()),
        (None, Some(version), in_file) if !counts(version) => {
            if in_file == Some(true) {
                let problem = format!("is ignored by BookKeeper {version}");
                let warning = Wrong::new(problem, "the key counts from 4.16.0");
                problems.warn(warning.at(place, name, "true"));
            }
            (false, Place::Derived)
        }
        (None, _, Some(in_file)) => (in_file, place),
        (None, Some(version), None) => {
            let (major, minor) = ANY_FULL_DEFAULT_SINCE;
            (version.at_least(major, minor), Place::Derived)
        }
        (None, None, None) => {
            // What is wrong and was reported is no reason for a second sentence.
            let reported = slot.is_broken()
                || slots.slot(Key::Version).is_broken()
                || (bookie.conf.is_some() && file.is_none());
            let warning = Wrong::new(
                "cannot be known: it depends on the bookie's version, so true is assumed",
                "set bookie.version, or the key itself",
            );
            let place = bookie.conf.as_ref().map(|conf| Place::file(conf, None));
            let place = place.unwrap_or_else(|| slot.place.clone());
            if !reported {
                problems.warn(warning.at(place, Key::ReadOnlyOnAnyFull.path(), ""));
            }
            (true, Place::Derived)
        }
    };
    if !answer {
        let warning = Wrong::new(
            "one full directory leaves the bookie writable, and writes to it fail or pile up",
            "true is recommended, in the bookie's file too",
        );
        problems.warn(warning.at(place.clone(), Key::ReadOnlyOnAnyFull.path(), "false"));
    }
    Slot::new(Value::AnyFull(Some(answer)), place)
}

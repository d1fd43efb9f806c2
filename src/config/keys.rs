//! The one table of keys: name, type, default or example, when a change takes effect, meaning. The
//! reader, the defaults, `config show`, the reference file and the documentation come from it.

use crate::health::dir::Role;

use super::value::Kind;

/// A part of the configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Section {
    /// Before the first section.
    Top,
    Thresholds,
    Probe,
    Events,
    /// `[[dir]]`, which also takes the keys of thresholds and probe.
    Dir,
    Bookie,
    ZooKeeper,
    /// `[[hook]]`.
    Hook,
    /// `[[webhook]]`.
    Webhook,
    Textfile,
    Alertmanager,
    Reclaim,
    Drain,
}

impl Section {
    pub(super) const ALL: [Section; 13] = [
        Section::Top,
        Section::Thresholds,
        Section::Probe,
        Section::Events,
        Section::Dir,
        Section::Bookie,
        Section::ZooKeeper,
        Section::Hook,
        Section::Webhook,
        Section::Textfile,
        Section::Alertmanager,
        Section::Reclaim,
        Section::Drain,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Section::Top => "",
            Section::Thresholds => "thresholds",
            Section::Probe => "probe",
            Section::Events => "events",
            Section::Dir => "dir",
            Section::Bookie => "bookie",
            Section::ZooKeeper => "zookeeper",
            Section::Hook => "hook",
            Section::Webhook => "webhook",
            Section::Textfile => "textfile",
            Section::Alertmanager => "alertmanager",
            Section::Reclaim => "reclaim",
            Section::Drain => "drain",
        }
    }

    /// May be there several times, `[[name]]`.
    pub(super) const fn is_list(self) -> bool {
        matches!(self, Section::Dir | Section::Hook | Section::Webhook)
    }

    /// As it is written in a file; nothing for the top.
    pub(super) fn header(self) -> String {
        match self {
            Section::Top => String::new(),
            section if section.is_list() => format!("[[{}]]", section.name()),
            section => format!("[{}]", section.name()),
        }
    }

    /// What the section is for; the source of the documentation.
    pub(super) const fn meaning(self) -> &'static str {
        match self {
            Section::Top => "The agent itself. These keys stand before the first section.",
            Section::Thresholds => {
                "When a directory is almost full, full, and writable again. [thresholds.journal], \
                 [thresholds.ledger] and [thresholds.index] override it for directories of one \
                 role, a [[dir]] for one directory. Percent and bytes both apply; the stricter one \
                 counts."
            }
            Section::Probe => {
                "How often directories are looked at, and how long that may take. A [[dir]] may \
                 override each key."
            }
            Section::Events => "The log of events in the state directory, and reminders.",
            Section::Dir => {
                "A directory to watch, one section for each. Every key of [thresholds] and [probe] \
                 may stand here too and then counts for this directory alone. Directories that the \
                 bookie's file names are watched without a section; one with the same path and \
                 role adds settings to them."
            }
            Section::Bookie => {
                "The bookie beside which the agent runs. With this section, nothing is written \
                 into a directory before the bookie was initialised there."
            }
            Section::ZooKeeper => {
                "The store of the cluster's metadata. What is not set comes from the bookie's file."
            }
            Section::Hook => {
                "A program to run for events, one section for each hook. The event is JSON on its \
                 standard input and in environment variables; no shell is involved."
            }
            Section::Webhook => {
                "A server that events are sent to by POST, one section for each webhook. The body is \
                 the event's JSON; an answer with a status of 2xx has taken it."
            }
            Section::Textfile => {
                "The metrics as a file for node_exporter's textfile collector, dirkeeper.prom: those of \
                 /metrics without process_*. Written each 15 s by a rename, removed when the agent ends."
            }
            Section::Alertmanager => {
                "Alertmanagers that are told which alerts there are: one for each bad axis of a \
                 directory, and for a wrong or held mode, a bookie that is down and a claim without an \
                 agent. Repeated each minute, ended when it is over."
            }
            Section::Reclaim => {
                "What `dirkeeper reclaim` takes from here where its command line says nothing; the agent \
                 itself reclaims nothing. See reclaim.md."
            }
            Section::Drain => {
                "What `dirkeeper drain` takes from here where its command line says nothing; the agent \
                 itself drains nothing. See drain.md."
            }
        }
    }
}

/// What counts when a file does not set the key.
#[derive(Debug, Clone, Copy)]
pub(super) enum Preset {
    /// This value, written as in TOML.
    Default(&'static str),
    /// Nothing; an example for the documentation, written as in TOML.
    None(&'static str),
    /// The key has to be there; an example, written as in TOML.
    Required(&'static str),
}

/// When a changed value takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// When the configuration is read again.
    Reload,
    /// When the agent is started again.
    Restart,
}

/// One key.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) key: Key,
    pub(super) section: Section,
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) preset: Preset,
    pub(super) change: Change,
    pub(super) meaning: &'static str,
}

macro_rules! keys {
    ($($section:ident { $($key:ident $name:literal, $kind:expr, $preset:expr, $change:ident, $meaning:literal;)* })*) => {
        /// A key of the configuration.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Key { $($($key,)*)* }

        /// All keys, section by section.
        pub(super) const KEYS: &[Row] = &[$($(Row {
            key: Key::$key,
            section: Section::$section,
            name: $name,
            kind: $kind,
            preset: $preset,
            change: Change::$change,
            meaning: $meaning,
        },)*)*];
    };
}

const SECOND: u64 = 1000;
const HOUR: u64 = 3600 * SECOND;
const DAY: u64 = 24 * HOUR;

/// A probe takes some milliseconds on a good disk and is itself a load on it: ten a second of each
/// directory are the most that makes sense. Over an hour nothing is watched any more.
const INTERVAL: Kind = Kind::Duration {
    min: 100,
    max: HOUR,
    zero: false,
};

/// `statvfs` is cheap; the monitor itself goes down to 50 ms when a directory fills fast.
const SPACE_INTERVAL: Kind = Kind::Duration {
    min: 50,
    max: HOUR,
    zero: false,
};

/// Under 100 ms every busy disk would count as hung.
const DEADLINE: Kind = Kind::Duration {
    min: 100,
    max: HOUR,
    zero: false,
};

const SLOW: Kind = Kind::Duration {
    min: 1,
    max: HOUR,
    zero: false,
};

const DWELL: Kind = Kind::Duration {
    min: 1,
    max: DAY,
    zero: true,
};

/// A program needs some time to start at all, and a hook that runs for an hour reports nothing.
const TIMEOUT: Kind = Kind::Duration {
    min: 100,
    max: HOUR,
    zero: false,
};

const REMINDER: Kind = Kind::Duration {
    min: SECOND,
    max: 30 * DAY,
    zero: true,
};

const AGE: Kind = Kind::Duration {
    min: HOUR,
    max: 3650 * DAY,
    zero: false,
};

/// An event takes about 1 KB: with less, one bad night would not fit.
const RETENTION: Kind = Kind::Size { min: 1 << 20 };

const BYTES: Kind = Kind::Size { min: 0 };

/// More bookies than any known cluster has.
const BOOKIES: Kind = Kind::Count {
    min: 1,
    max: 100_000,
};

/// From a second, which only a laboratory wants, to what nobody calls periodic any more.
const PERIOD: Kind = Kind::Duration {
    min: SECOND,
    max: 30 * DAY,
    zero: false,
};

/// The same, or off.
const PERIOD_OR_OFF: Kind = Kind::Duration {
    min: SECOND,
    max: 30 * DAY,
    zero: true,
};

/// More than any ensemble answers.
const PER_SECOND: Kind = Kind::Count {
    min: 1,
    max: 100_000,
};

/// A pass that deletes more than that is a mistake.
const PER_PASS: Kind = Kind::Count {
    min: 1,
    max: 1_000_000,
};

/// One scan witnesses nothing; after a hundred, nothing new is learned.
const SCANS: Kind = Kind::Count { min: 1, max: 100 };

/// Those of R0 to R8 that may ever be deleted.
pub(super) const CLASSES: &[&str] = &["r1", "r2", "r3", "r4", "r5"];

const ROLES: Kind = Kind::Choice(&[
    Role::Ledger.name(),
    Role::Journal.name(),
    Role::Index.name(),
]);

use Preset::{Default as Is, None as Eg, Required as Must};

keys! {
    Top {
        Listen "listen", Kind::Address, Is("\"127.0.0.1:9475\""), Restart,
            "Address of the HTTP server: metrics, API, status page.";
        StateDir "state_dir", Kind::Path, Is("\"/var/lib/dirkeeper\""), Restart,
            "Where events and the identities of disks are kept. Should not be on a watched disk. Without a configuration file it is $XDG_STATE_HOME/dirkeeper.";
        Semantics "semantics", Kind::Choice(&["dirkeeper"]), Is("\"dirkeeper\""), Restart,
            "By whose rules directories are judged. BookKeeper's own are known to `dirkeeper simulate` only.";
        LockMemory "lock_memory", Kind::Bool, Is("false"), Restart,
            "Lock the agent's pages in memory, so that it goes on when the disk under its own binary hangs. Costs memory.";
        LogLevel "log_level", Kind::Choice(&["error", "warn", "info", "debug", "trace"]), Is("\"info\""), Restart,
            "How much is logged to standard error.";
        ControlTokenFile "control_token_file", Kind::Path, Eg("\"/etc/dirkeeper/token\""), Restart,
            "File with the token that requests need to change something. Without it none can.";
        ReadTokenFile "read_token_file", Kind::Path, Eg("\"/etc/dirkeeper/read-token\""), Restart,
            "File with a token that requests need to read; the control token does as well. Without it, and without users in web_config_file, everybody may.";
        WebConfigFile "web_config_file", Kind::Path, Eg("\"/etc/dirkeeper/web.yml\""), Reload,
            "File with TLS, users and headers of the HTTP server, in the format of --web.config.file of Prometheus' exporters; see access.md. It and the files it names are read again when they change.";
    }
    Thresholds {
        Warn "warn", Kind::Ratio, Is("0.9"), Reload,
            "Usage over which a directory is almost full.";
        Full "full", Kind::Ratio, Is("0.95"), Reload,
            "Usage over which it is full. Where it is lowered and warn or low_watermark is not set, that one's default moves 0.05 below it.";
        LowWatermark "low_watermark", Kind::Ratio, Is("0.9"), Reload,
            "Usage below which a full directory may be written again.";
        WarnAvailable "warn_available", BYTES, Is("\"0B\""), Reload,
            "Almost full when fewer bytes are available. 0B turns the rule off.";
        FullAvailable "full_available", BYTES, Is("\"0B\""), Reload,
            "Full when fewer bytes are available. 0B turns the rule off.";
        InodesWarn "inodes_warn", Kind::Ratio, Is("0.9"), Reload,
            "Share of used inodes over which a directory is almost full.";
        InodesFull "inodes_full", Kind::Ratio, Is("0.95"), Reload,
            "Share of used inodes over which it is full.";
        HighPriorityReserve "high_priority_reserve", BYTES, Is("\"1GiB\""), Reload,
            "Bytes that must be available in a full directory for recovery writes to be allowed.";
        Dwell "dwell", DWELL, Is("\"30s\""), Reload,
            "How long a bad condition must be over before a directory counts as recovered.";
    }
    Probe {
        Interval "interval", INTERVAL, Is("\"10s\""), Reload,
            "Time between two probes, which write, sync and read back a small file.";
        SpaceInterval "space_interval", SPACE_INTERVAL, Is("\"1s\""), Reload,
            "Time between two looks at the space; shorter by itself when a directory fills fast.";
        Deadline "deadline", DEADLINE, Eg("\"5s\""), Reload,
            "How long an operation may take before the directory is hung. By the medium if not set: solid state 5s, rotating or unknown 15s, network 30s. Writes that others complete on the device meanwhile extend it once, to three times; where the device itself stalls, it counts from the first request that is held.";
        Slow "slow", SLOW, Is("\"250ms\""), Reload,
            "A sync that takes longer is slow, on a rotating disk; a third of it on solid state.";
    }
    Events {
        RetentionBytes "retention_bytes", RETENTION, Is("\"64MiB\""), Restart,
            "How much of the event log is kept.";
        RetentionAge "retention_age", AGE, Is("\"30d\""), Restart,
            "How long events are kept.";
        ReminderInterval "reminder_interval", REMINDER, Is("\"1h\""), Reload,
            "Time between two reminders of a status that stays bad.";
    }
    Dir {
        DirPath "path", Kind::Path, Must("\"/mnt/journal\""), Reload,
            "The directory as the bookie's file names it, not the `current` in it.";
        DirRole "role", ROLES, Must("\"journal\""), Reload,
            "What the bookie uses it for.";
        RequireMount "require_mount", Kind::Bool, Eg("true"), Reload,
            "true: the path must be a mount point of its own; otherwise it counts as vanished. false: it may be on the root file system, which is told as a problem if the key is not set and other directories have mounts of their own.";
        Ballast "ballast", BYTES, Is("\"0B\""), Reload,
            "Bytes to hold in the file .dirkeeper-ballast, given back when the directory becomes full, so that the bookie can compact, roll its logs or start. 0B: none.";
    }
    Bookie {
        Conf "conf", Kind::Path, Eg("\"/etc/bookkeeper/bk_server.conf\""), Reload,
            "The bookie's own file: directories, thresholds and the admin address are read from it.";
        Home "home", Kind::Path, Eg("\"/pulsar\""), Reload,
            "What relative directories in the bookie's file are relative to.";
        Version "version", Kind::Version, Eg("\"4.17.3\""), Reload,
            "BookKeeper's version: what an absent key of its file means differs between versions.";
        BookieId "id", Kind::BookieId, Eg("\"10.0.0.3:3181\""), Restart,
            "The bookie's id in ZooKeeper, as under `cookies`; from its file's bookieId, or advertisedAddress and bookiePort, if not set.";
        AdminUrl "admin_url", Kind::Url, Eg("\"http://127.0.0.1:8080\""), Restart,
            "The bookie's admin HTTP server; from its file if that enables one. It is asked for little more than its state, once a second.";
        AdminCa "admin_ca", Kind::Path, Eg("\"/etc/dirkeeper/ca.pem\""), Restart,
            "Certificates that the admin server's own is checked against.";
        AdminCert "admin_cert", Kind::Path, Eg("\"/etc/dirkeeper/client.pem\""), Restart,
            "Client certificate for an admin server that asks for one.";
        AdminKeyFile "admin_key", Kind::Path, Eg("\"/etc/dirkeeper/client.key\""), Restart,
            "Its key.";
        Control "control", Kind::Choice(&["observe", "enforce"]), Is("\"observe\""), Reload,
            "observe: say which mode the disks allow, change nothing but by `mode set`. enforce: keep the bookie in it; needs its admin server and ZooKeeper.";
        ReadOnlyOnAnyFull "read_only_on_any_full", Kind::AnyFull, Is("\"bookie\""), Reload,
            "Whether one full directory asks for read-only, or only all of a role; \"bookie\": as the bookie runs.";
        MinWritableBookies "min_writable_bookies", BOOKIES, Eg("5"), Reload,
            "How many bookies must stay writable when this one is made read-only; the largest ensemble in use and one more if not set. A journal that is nearly full may go below it, one bookie at a time.";
    }
    ZooKeeper {
        MetadataServiceUri "metadata_service_uri", Kind::Metadata, Eg("\"zk+hierarchical://zk1:2181;zk2:2181/ledgers\""), Restart,
            "Servers and path, as the bookie's file names them in metadataServiceUri. Only ZooKeeper can be used; beside another store the agent works with control = \"observe\" only.";
        Auth "auth", Kind::Auth, Eg("\"digest:user:password\""), Restart,
            "Who the agent is to ZooKeeper. Nodes that it makes are then open to this user alone. Better kept in auth_file: others may read this file.";
        AuthFile "auth_file", Kind::Path, Eg("\"/etc/dirkeeper/zookeeper.auth\""), Restart,
            "File with the same text and nothing else.";
        ZooKeeperCa "tls_ca", Kind::Path, Eg("\"/etc/dirkeeper/ca.pem\""), Restart,
            "Certificates that those of the servers are checked against. With it, all servers are spoken to by TLS.";
        ZooKeeperCert "tls_cert", Kind::Path, Eg("\"/etc/dirkeeper/client.pem\""), Restart,
            "Client certificate for servers that ask for one.";
        ZooKeeperKeyFile "tls_key", Kind::Path, Eg("\"/etc/dirkeeper/client.key\""), Restart,
            "Its key.";
        Root "root", Kind::Node, Is("\"/dirkeeper\""), Restart,
            "Node below which claims, locks and what agents say of their bookies are kept, each cluster below its own instance id. The same for all agents of a cluster; it does not follow the path of the ledgers.";
    }
    Hook {
        HookName "name", Kind::Name, Must("\"page\""), Reload,
            "Its name in metrics, logs and `hook test`.";
        HookEvents "events", Kind::Events, Eg("[\"diskFailed\", \"diskHung\", \"allDisksFull\"]"), Reload,
            "For which events it runs; for all if not set.";
        HookCommand "command", Kind::Command, Must("[\"/usr/local/bin/page\", \"--team\", \"storage\"]"), Reload,
            "The program with its whole path, and its arguments.";
        HookTimeout "timeout", TIMEOUT, Is("\"30s\""), Reload,
            "How long one run may take before it is ended.";
    }
    Webhook {
        WebhookName "name", Kind::Name, Must("\"chat\""), Reload,
            "Its name in metrics, logs and `hook test`; no hook has the same.";
        WebhookUrl "url", Kind::Endpoint, Must("\"https://alerts.example.com/dirkeeper\""), Reload,
            "Where events are sent. Redirects are not followed, and no proxy is used.";
        WebhookEvents "events", Kind::Events, Eg("[\"diskFailed\", \"diskHung\", \"allDisksFull\"]"), Reload,
            "Which events are sent; all if not set.";
        WebhookSecretFile "secret_file", Kind::Path, Eg("\"/etc/dirkeeper/chat.secret\""), Reload,
            "File with a secret; white space around it does not count. Each request then has HMAC-SHA256 of its body in the header X-Dirkeeper-Signature, as sha256=HEX.";
        WebhookCa "ca", Kind::Path, Eg("\"/etc/dirkeeper/ca.pem\""), Reload,
            "Certificates that the server's own is checked against, instead of those that the machine trusts.";
        WebhookTimeout "timeout", TIMEOUT, Is("\"10s\""), Reload,
            "How long one request may take, its answer included.";
    }
    Textfile {
        TextfileDirectory "directory", Kind::Path, Must("\"/var/lib/prometheus/node-exporter\""), Reload,
            "The directory that node_exporter reads; the agent's user has to be allowed to write there.";
    }
    Alertmanager {
        AlertmanagerUrls "urls", Kind::Urls, Must("[\"http://127.0.0.1:9093\"]"), Restart,
            "Every instance; each is told everything, as Prometheus does. Without /api/v2.";
        AlertmanagerCa "ca", Kind::Path, Eg("\"/etc/dirkeeper/ca.pem\""), Restart,
            "Certificates that theirs are checked against, instead of those that the machine trusts.";
    }
    Reclaim {
        ReclaimPulsar "pulsar_metadata", Kind::Pulsar, Eg("[\"zk://zk1:2181,zk2:2181=/pulsar-a\", \"zk://zk3:2181=\"]"), Reload,
            "Every Pulsar cluster on these bookies: its ZooKeeper, and the node above its managed-ledgers. Without it the ledgers' own ZooKeeper is searched from its top, and what needs all clusters to be known is never marked.";
        ReclaimRequests "full_scan_maximum_zookeeper_requests_per_second", PER_SECOND, Is("200"), Reload,
            "At most so many requests in a second to each ZooKeeper, every step of a transaction counted (fullScanMaximumZooKeeperRequestsPerSecond of pulsar #18128).";
        ReclaimInterval "interval", PERIOD, Is("\"6h\""), Reload,
            "Time between two passes of `reclaim run`: scan, mark, sweep.";
        ReclaimTrimInterval "full_scan_trim_ledger_interval", PERIOD_OR_OFF, Is("\"0s\""), Reload,
            "Time between two full-scan trims of `reclaim run` (fullScanTrimLedgerInterval of pulsar #18128).";
        ReclaimClasses "classes", Kind::Words(CLASSES), Is("[\"r1\", \"r2\", \"r5\"]"), Reload,
            "Which classes may be marked. r3 and r4 rest on absence alone: look at them with `reclaim report` first.";
        ReclaimGrace "grace", PERIOD_OR_OFF, Eg("\"1h\""), Reload,
            "How long a mark stands before its ledger may be deleted, for all classes; if not set 1h for r1 and r5, 1d for r2, r3 and r4.";
        ReclaimMinAge "min_age", PERIOD_OR_OFF, Is("\"7d\""), Reload,
            "Younger ledgers are never marked as r3 or r4. Must be longer than the longest compaction, whose ledger nobody names until its end.";
        ReclaimAbsenceScans "absence_scans", SCANS, Is("3"), Reload,
            "Scans in a row that have to find a ledger named by nobody before it is deletable as r3 or r4.";
        ReclaimAbsenceSpan "absence_span", PERIOD_OR_OFF, Is("\"1d\""), Reload,
            "Time over which they have to do so.";
        ReclaimGoneScans "gone_scans", SCANS, Is("2"), Reload,
            "Scans in a row that have to miss an owner before its ledgers are deletable as r2.";
        ReclaimGoneSpan "gone_span", PERIOD_OR_OFF, Is("\"1h\""), Reload,
            "Time over which they have to do so: topics move within seconds, and what was deleted by mistake is restored within minutes.";
        ReclaimMaxDeletes "max_deletes", PER_PASS, Eg("1000"), Reload,
            "A sweep deletes at most so many ledgers, then it stops and says so; if not set 1000, or a twentieth of all if that is less.";
        ReclaimDeletesPerSecond "deletes_per_second", Kind::Count { min: 1, max: 1000 }, Is("10"), Reload,
            "Deletions in a second. Each makes every bookie of the ensemble forget a ledger at its next collection.";
        ReclaimBroker "broker_url", Kind::Url, Eg("\"http://broker:8080\""), Reload,
            "A broker's admin address, for trims; others are found by its redirects.";
        ReclaimBrokerToken "broker_token_file", Kind::Path, Eg("\"/etc/dirkeeper/broker.token\""), Reload,
            "File with the token for the brokers.";
    }
    Drain {
        DrainMaxBytes "max_bytes_per_second", BYTES, Is("\"100MiB\""), Reload,
            "Bytes a second from each bookie that is emptied, and to each that takes them, by all workers together; 0B for no limit. A job keeps what it began with until `drain set` changes it.";
        DrainRequests "max_requests_per_second", PER_SECOND, Is("1000"), Reload,
            "At most so many requests in a second to ZooKeeper by each worker, every step of a transaction counted.";
        DrainWorkers "workers", Kind::Count { min: 1, max: 256 }, Is("8"), Reload,
            "Ledgers that one `drain run` copies at a time.";
        DrainReaderGate "reader_gate", Kind::Choice(&["refuse", "per-ledger"]), Is("\"refuse\""), Reload,
            "What is done about readers that keep a ledger's old bookies in memory: a job that moves two replicas of a fragment is refused, or the sources keep each ledger until its readers are known to be safe.";
        DrainUnloadAfter "unload_after", PERIOD, Is("\"10m\""), Reload,
            "With --open-ledgers unload: how long the writer of an open ledger is waited for before its topic is unloaded.";
    }
}

impl Key {
    pub(super) fn row(self) -> &'static Row {
        &KEYS[self as usize]
    }

    /// The key of that name which may stand in that section.
    pub(super) fn find(section: Section, name: &str) -> Option<Key> {
        Key::all_in(section).find(|key| key.row().name == name)
    }

    /// The keys which may stand in that section.
    pub(super) fn all_in(section: Section) -> impl Iterator<Item = Key> + Clone {
        KEYS.iter()
            .filter(move |row| row.section == section || (section == Section::Dir && row.per_dir()))
            .map(|row| row.key)
    }

    /// The key with its section, e.g. `thresholds.warn`.
    pub(super) fn path(self) -> String {
        join(self.row().section.name(), self.row().name)
    }
}

impl Row {
    /// Belongs to each directory: may be overridden by a `[[dir]]`.
    pub(super) fn per_dir(&self) -> bool {
        matches!(self.section, Section::Thresholds | Section::Probe)
    }

    /// The default or the example, written as in TOML.
    pub(super) fn written(&self) -> &'static str {
        match self.preset {
            Preset::Default(text) | Preset::None(text) | Preset::Required(text) => text,
        }
    }
}

/// `section.name`, or the name alone at the top.
pub(super) fn join(section: &str, name: &str) -> String {
    if section.is_empty() {
        name.to_owned()
    } else {
        format!("{section}.{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_finds_its_row_and_no_name_is_there_twice_in_a_section() {
        for row in KEYS {
            assert_eq!(row.key.row().name, row.name);
            assert_eq!(Key::find(row.section, row.name), Some(row.key));
        }
        for section in Section::ALL {
            let mut names: Vec<_> = Key::all_in(section).map(|key| key.row().name).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{section:?}");
        }
    }
}

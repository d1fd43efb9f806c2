//! Joins all sources into a [`Config`]: the one way in for start-up, `config check` and reload.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use toml::de::DeValue;

use super::bookie::{self, Settled};
use super::bookie_conf;
use super::dirs::{self, Dirs};
use super::file::{self, FileSettings};
use super::hooks;
use super::keys::{Change, KEYS, Key, Section};
use super::layer::{Layer, Slot};
use super::problem::{Place, Problem, Problems, Wrong};
use super::source::{self, SourceFile};
use super::value::{Value, absolute};
use super::web;
use super::webhooks;
use super::zookeeper;
use super::{
    AlertmanagerConfig, Config, EventsConfig, HookConfig, LogLevel, Origin, Sources, WebConfig,
    WebhookConfig,
};
use crate::health::dir::path_text;
use crate::health::policy::Policy;

/// Reads and checks the configuration. Blocks on the disks of the configuration files: at run time,
/// call it from a thread that may be lost.
///
/// # Errors
/// All problems of all sources, warnings included.
pub fn load(sources: &Sources) -> Result<Config, Problems> {
    let mut problems = Problems::default();
    let mut files = Vec::new();
    let mut settings = own_file(sources, &mut files, &mut problems);
    flags(sources, &mut settings.node, &mut problems);

    let conf = bookie_file(sources, &settings.node);
    let home = settings.node.slot(Key::Home).path();
    let mut read = None;
    let mut mapped = bookie_conf::Mapped::default();
    if let Some(path) = conf.as_ref().and_then(Slot::path) {
        let bytes = source::read(&path, bookie_conf::REMEDY, &mut files, &mut problems);
        if let Some(bytes) = bytes {
            let file = bookie_conf::read(&path, &bytes, &mut problems);
            mapped = bookie_conf::map(&path, &file, home.as_deref(), &mut problems);
            read = Some(file);
        }
    }
    let has_bookie = settings.bookie || conf.is_some();
    // What it would have said is not missed a second time.
    let unread = read.is_none() && conf.as_ref().is_some_and(Slot::is_set);

    let named = dirs::join(&settings, &mapped.dirs, &sources.dirs, &mut problems);
    let layer = has_bookie.then_some(&mapped.layer);
    let dirs = dirs::settle(named, &settings, layer, &mut problems);
    let mut names = BTreeSet::new();
    let hooks = hooks::settle(&settings, &mut names, &mut problems);
    let webhooks = webhooks::settle(&settings, &mut names, &mut problems);
    let bookie = if has_bookie {
        let file = read.map(|read| (read, &mapped.layer));
        bookie::settle(&settings.node, conf.as_ref(), file, &mut problems)
    } else {
        Settled {
            bookie: None,
            policy: Policy::default(),
            slots: Layer::default(),
        }
    };
    let mut node = node_slots(&settings.node);
    let ours = sources.configuration_file();
    let zookeeper = zookeeper::settle(&mut node, &mapped.layer, ours, &mut problems);
    if settings.sound && settings.dirs.is_empty() && sources.dirs.is_empty() && conf.is_none() {
        problems.error(nothing_to_watch(sources));
    }
    if let Some(place) = &settings.textfile {
        dirs::required(&settings.node, Key::TextfileDirectory, place, &mut problems);
    }
    if let Some(place) = &settings.alertmanager {
        dirs::required(&settings.node, Key::AlertmanagerUrls, place, &mut problems);
    }
    whole(&node, &dirs, &mut problems);
    let before = problems.errors.len();
    let web = web::settle(&node, &mut files, &mut problems);
    // Who may come in is not known while something is wrong with the file that says it.
    if problems.errors.len() == before {
        reachable(&node, &web, &mut problems);
    }
    if !unread {
        bookie::can_keep(&bookie, zookeeper.is_some(), &mut problems);
    }
    let mut config = finish(node, dirs, (hooks, webhooks), bookie, files, problems)?;
    config.zookeeper = zookeeper;
    config.web = web;
    Ok(config)
}

/// Our own file, if one is read.
fn own_file(
    sources: &Sources,
    files: &mut Vec<SourceFile>,
    problems: &mut Problems,
) -> FileSettings {
    let Some(path) = sources.configuration_file() else {
        return FileSettings {
            sound: true,
            ..FileSettings::default()
        };
    };
    let remedy = "name a readable file with --config, or directories with --dir";
    let bytes = source::read(path, remedy, files, problems);
    bytes
        .map(|bytes| file::read(path, bytes, problems))
        .unwrap_or_default()
}

/// Reads the sources again for an agent that runs with `old`. What cannot change while it runs
/// stays as it is, with a warning. Blocks like [`load`].
///
/// # Errors
/// All problems of all sources; nothing of the new configuration is to be used then.
pub fn reload(sources: &Sources, old: &Config) -> Result<Config, Problems> {
    let mut config = load(sources)?;
    other_bookie(&config, old)?;
    // Nothing of the bookie has begun: all of it does with this configuration.
    let begins = old.bookie.is_none();
    for row in KEYS.iter().filter(|row| row.change == Change::Restart) {
        if begins && row.section == Section::ZooKeeper {
            continue;
        }
        let (before, layer) = match row.section {
            Section::Bookie => (old.origin.bookie.as_ref(), config.origin.bookie.as_mut()),
            _ => (Some(&old.origin.node), Some(&mut config.origin.node)),
        };
        let (Some(before), Some(layer)) = (before, layer) else {
            continue;
        };
        let (before, after) = (before.slot(row.key), layer.slot(row.key));
        if before.value == after.value {
            continue;
        }
        let running = before.value.as_ref();
        let running = running.map_or_else(|| "not set".to_owned(), Value::to_toml);
        let warning = Wrong::new(
            format!("takes effect at restart; until then it is {running}"),
            "restart the agent",
        );
        config.warnings.push(after.problem(row.key, warning));
        layer.set(row.key, before);
    }
    if let (Some(bookie), Some(old)) = (&mut config.bookie, &old.bookie) {
        bookie.admin_url.clone_from(&old.admin_url);
        bookie.admin_ca.clone_from(&old.admin_ca);
        bookie.admin_cert.clone_from(&old.admin_cert);
        bookie.admin_key.clone_from(&old.admin_key);
    }
    config.listen = old.listen;
    config.state_dir.clone_from(&old.state_dir);
    config.lock_memory = old.lock_memory;
    config.log_level = old.log_level;
    config
        .control_token_file
        .clone_from(&old.control_token_file);
    config.read_token_file.clone_from(&old.read_token_file);
    config.events = old.events;
    if !begins {
        config.zookeeper.clone_from(&old.zookeeper);
    }
    config.alertmanager.clone_from(&old.alertmanager);
    Ok(config)
}

/// The directories would be those of another bookie than the one whose mode is kept.
fn other_bookie(new: &Config, old: &Config) -> Result<(), Problems> {
    let id = |config: &Config| config.bookie.as_ref().and_then(|bookie| bookie.file.id());
    let (Some(before), Some(after)) = (id(old), id(new)) else {
        return Ok(());
    };
    if before == after {
        return Ok(());
    }
    let wrong = Wrong::new(
        format!("is the file of the bookie {after}, and the agent is that of {before}"),
        "restart the agent",
    );
    let mut problems = Problems::default();
    let slots = new.origin.bookie.as_ref().unwrap_or(&new.origin.node);
    problems.error(slots.slot(Key::Conf).problem(Key::Conf, wrong));
    Err(problems)
}

/// A file or folder of our own on the command line: relative to the working directory.
pub(super) fn from_here(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// The command line, laid over the configuration file.
fn flags(sources: &Sources, node: &mut Layer, problems: &mut Problems) {
    if let Some(text) = &sources.listen {
        let place = Place::Flag("--listen");
        let value = Key::Listen.row().kind.parse(&DeValue::String(text.into()));
        match value {
            Ok(value) => node.set(Key::Listen, Slot::new(value, place)),
            Err(wrong) => problems.error(wrong.at(place, "listen", text)),
        }
    }
    if let Some(path) = &sources.state_dir {
        let place = Place::Flag("--state-dir");
        match absolute(&from_here(path)) {
            Ok(path) => node.set(Key::StateDir, Slot::new(Value::Path(path), place)),
            Err(wrong) => problems.error(wrong.at(place, "state_dir", path_text(path))),
        }
    }
    if let Some(path) = &sources.web_config_file {
        let place = Place::Flag("--web-config-file");
        let path = Value::Path(from_here(path));
        node.set(Key::WebConfigFile, Slot::new(path, place));
    }
    let without_file = sources.configuration_file().is_none();
    if let (true, None, Some(home)) = (without_file, node.get(Key::StateDir), &sources.state_home) {
        let path = Value::Path(home.join("dirkeeper"));
        node.set(Key::StateDir, Slot::new(path, Place::Derived));
    }
}

/// Which file of the bookie is read, and who says so.
fn bookie_file(sources: &Sources, node: &Layer) -> Option<Slot> {
    if let Some(path) = &sources.bookie_conf {
        let place = Place::Flag("--bookie-conf");
        return Some(Slot::new(Value::Path(from_here(path)), place));
    }
    node.get(Key::Conf).cloned()
}

/// Sections of the agent itself.
const ONCE: [Section; 7] = [
    Section::Top,
    Section::Events,
    Section::ZooKeeper,
    Section::Textfile,
    Section::Alertmanager,
    Section::Reclaim,
    Section::Drain,
];

/// Everything that is there once, with defaults.
pub(super) fn node_slots(node: &Layer) -> Layer {
    let mut slots = Layer::default();
    for section in ONCE {
        for key in Key::all_in(section) {
            slots.set(key, node.slot(key));
        }
    }
    slots
}

fn nothing_to_watch(sources: &Sources) -> Problem {
    let file = sources.configuration_file();
    let place = file.map_or(Place::Flag("--dir"), |file| Place::file(file, None));
    Wrong::new(
        "no directory is named, so there is nothing to watch",
        "write [[dir]] sections, or name the bookie's file with bookie.conf or --bookie-conf",
    )
    .at(place, "", "")
}

/// What is wrong with the whole rather than with one value.
fn whole(node: &Layer, dirs: &Dirs, problems: &mut Problems) {
    let state_dir = node.slot(Key::StateDir);
    let path = state_dir.path().unwrap_or_default();
    for dir in &dirs.dirs {
        if path.starts_with(&dir.path) || dir.path.starts_with(&path) {
            let warning = Wrong::new(
                format!(
                    "shares a path with the watched directory {}: a bad disk would take the state \
                     with it",
                    path_text(&dir.path)
                ),
                "keep the state on a disk that is not watched",
            );
            problems.warn(state_dir.problem(Key::StateDir, warning));
        }
    }
    let textfile = node.slot(Key::TextfileDirectory);
    let inside = |path: &PathBuf| dirs.dirs.iter().find(|dir| path.starts_with(&dir.path));
    if let Some(dir) = textfile.path().as_ref().and_then(inside) {
        let wrong = Wrong::new(
            format!("is in the watched directory {}", path_text(&dir.path)),
            "name a directory on a disk that is not watched",
        );
        problems.error(textfile.problem(Key::TextfileDirectory, wrong));
    }
}

/// What other machines could do or hear.
fn reachable(node: &Layer, web: &WebConfig, problems: &mut Problems) {
    let listen = node.slot(Key::Listen);
    let loopback = listen
        .address()
        .is_none_or(|address| address.ip().is_loopback());
    if loopback {
        return;
    }
    let read_token = node.slot(Key::ReadTokenFile).is_set();
    let mut warn = |problem: &str, remedy: &str| {
        problems.warn(listen.problem(Key::Listen, Wrong::new(problem, remedy)));
    };
    let known = web.tls.as_ref().is_some_and(|tls| tls.asks_clients);
    if web.users.is_empty() && !read_token && !known {
        warn(
            "is reachable from other machines, and everybody there may read",
            "listen on 127.0.0.1, or name users in web_config_file",
        );
    }
    let secret = read_token || !web.users.is_empty() || node.slot(Key::ControlTokenFile).is_set();
    if secret && web.tls.is_none() {
        warn(
            "is reachable from other machines, and tokens and passwords pass unencrypted",
            "listen on 127.0.0.1, or name a certificate in web_config_file",
        );
    }
}

/// Sections with the slots from which they were made.
type Slotted<T> = (Vec<T>, Vec<Layer>);

fn finish(
    node: Layer,
    dirs: Dirs,
    ((hooks, hook_slots), (webhooks, webhook_slots)): (Slotted<HookConfig>, Slotted<WebhookConfig>),
    bookie: Settled,
    files: Vec<SourceFile>,
    problems: Problems,
) -> Result<Config, Problems> {
    let problems = problems.sorted();
    let (Some(listen), Some(state_dir), true) = (
        node.slot(Key::Listen).address(),
        node.slot(Key::StateDir).path(),
        problems.errors.is_empty(),
    ) else {
        return Err(problems);
    };
    let reminder = node.slot(Key::ReminderInterval).duration();
    Ok(Config {
        listen,
        state_dir,
        lock_memory: node.slot(Key::LockMemory).bool().unwrap_or_default(),
        log_level: log_level(&node),
        control_token_file: node.slot(Key::ControlTokenFile).path(),
        read_token_file: node.slot(Key::ReadTokenFile).path(),
        web: WebConfig::default(),
        dirs: dirs.dirs,
        hooks,
        webhooks,
        textfile: node.slot(Key::TextfileDirectory).path(),
        alertmanager: node
            .slot(Key::AlertmanagerUrls)
            .urls()
            .map(|urls| AlertmanagerConfig {
                urls,
                ca: node.slot(Key::AlertmanagerCa).path(),
            }),
        events: EventsConfig {
            retention_bytes: node.slot(Key::RetentionBytes).size().unwrap_or_default(),
            retention_age: node.slot(Key::RetentionAge).duration().unwrap_or_default(),
        },
        policy: Policy {
            // Zero turns reminders off, here as there.
            reminder_interval: reminder.unwrap_or_default(),
            ..bookie.policy
        },
        warnings: problems.warnings,
        files,
        origin: Origin {
            node,
            bookie: bookie.bookie.is_some().then_some(bookie.slots),
            dirs: dirs.slots,
            hooks: hook_slots,
            webhooks: webhook_slots,
        },
        bookie: bookie.bookie,
        zookeeper: None,
    })
}

fn log_level(node: &Layer) -> LogLevel {
    match node.slot(Key::LogLevel).text().as_deref() {
        Some("error") => LogLevel::Error,
        Some("warn") => LogLevel::Warn,
        Some("debug") => LogLevel::Debug,
        Some("trace") => LogLevel::Trace,
        _ => LogLevel::Info,
    }
}

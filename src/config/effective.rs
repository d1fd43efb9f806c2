//! What `config show` prints: the configuration as it counts, as TOML that can be read back, each
//! value with the place it comes from.

use super::Config;
use super::keys::{Key, Section};
use super::layer::{Layer, Slot};
use super::value::Value;
use crate::health::dir::shown;

/// The effective configuration as TOML.
#[must_use]
pub fn show(config: &Config) -> String {
    let mut text = String::from(
        "# The configuration as it counts. The thresholds and the probe of each directory stand at\n\
         # the directory.\n\n",
    );
    let origin = &config.origin;
    section(&mut text, Section::Top, &origin.node);
    section(&mut text, Section::Events, &origin.node);
    if let Some(bookie) = &origin.bookie {
        section(&mut text, Section::Bookie, bookie);
    }
    if config.zookeeper.is_some() {
        section(&mut text, Section::ZooKeeper, &origin.node);
    }
    for dir in &origin.dirs {
        section(&mut text, Section::Dir, dir);
    }
    for hook in &origin.hooks {
        section(&mut text, Section::Hook, hook);
    }
    if config.textfile.is_some() {
        section(&mut text, Section::Textfile, &origin.node);
    }
    if config.alertmanager.is_some() {
        section(&mut text, Section::Alertmanager, &origin.node);
    }
    for webhook in &origin.webhooks {
        section(&mut text, Section::Webhook, webhook);
    }
    for commands in [Section::Reclaim, Section::Drain] {
        if Key::all_in(commands).any(|key| origin.node.slot(key).is_set()) {
            section(&mut text, commands, &origin.node);
        }
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn section(text: &mut String, section: Section, layer: &Layer) {
    let header = section.header();
    if !header.is_empty() {
        text.push_str(&header);
        text.push('\n');
    }
    // A directory's own keys first, then what it takes from thresholds and probe.
    let (own, taken): (Vec<Key>, Vec<Key>) =
        Key::all_in(section).partition(|key| key.row().section == section);
    for key in own.into_iter().chain(taken) {
        text.push_str(&line(key, &layer.slot(key)));
        text.push('\n');
    }
    text.push('\n');
}

fn line(key: Key, slot: &Slot) -> String {
    let name = key.row().name;
    match &slot.value {
        None => format!("# {name} is not set"),
        Some(Value::Path(path)) if path.to_str().is_none() => format!(
            "# {name} is {} ({}), which TOML cannot express",
            shown(path),
            slot.place
        ),
        Some(Value::Secret(_)) => format!("# {name} is set by {}, and not shown", slot.place),
        Some(value) => format!("{name} = {}  # {}", value.to_toml(), slot.place),
    }
}

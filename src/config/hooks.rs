//! `[[hook]]` sections to hooks.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::Duration;

use super::dirs::required;
use super::file::FileSettings;
use super::keys::{Key, Section};
use super::layer::Layer;
use super::problem::{Place, Problems, Wrong};
use crate::health::event::EventKind;

/// Each hook has its own queue and thread; a person cannot follow more reactions than this.
const HOOKS_LIMIT: usize = 64;

/// A program to run for events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookConfig {
    /// Unique among the hooks.
    pub name: String,
    /// For which events it runs; for all if empty.
    pub events: Vec<EventKind>,
    /// The program with its absolute path, and its arguments; never empty.
    pub command: Vec<OsString>,
    /// How long one run may take.
    pub timeout: Duration,
}

/// The hooks with the slots from which they were made.
pub(super) fn settle(
    settings: &FileSettings,
    names: &mut BTreeSet<String>,
    problems: &mut Problems,
) -> (Vec<HookConfig>, Vec<Layer>) {
    let mut hooks = Vec::new();
    let mut layers = Vec::new();
    for entry in &settings.hooks {
        let place = entry.place.clone().unwrap_or(Place::Default);
        let name = required(&entry.layer, Key::HookName, &place, problems);
        let command = required(&entry.layer, Key::HookCommand, &place, problems).command();
        if name.text().is_some_and(|text| !names.insert(text)) {
            let wrong = Wrong::new("another hook has this name", "give each hook its own");
            problems.error(name.problem(Key::HookName, wrong));
        }
        let (Some(text), Some(command)) = (name.text(), command) else {
            continue;
        };
        let timeout = entry.layer.slot(Key::HookTimeout).duration();
        hooks.push(HookConfig {
            name: text,
            events: entry
                .layer
                .slot(Key::HookEvents)
                .events()
                .unwrap_or_default(),
            command: command.into_iter().map(OsString::from).collect(),
            timeout: timeout.unwrap_or_default(),
        });
        let mut layer = Layer::default();
        for key in Key::all_in(Section::Hook) {
            layer.set(key, entry.layer.slot(key));
        }
        layers.push(layer);
    }
    if let Some(entry) = settings.hooks.get(HOOKS_LIMIT) {
        let place = entry.place.clone().unwrap_or(Place::Default);
        let remedy = format!("name at most {HOOKS_LIMIT}");
        problems.error(Wrong::new("there are too many hooks", remedy).at(place, "hook", ""));
    }
    (hooks, layers)
}

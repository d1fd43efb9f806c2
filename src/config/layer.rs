//! Values with their places, in layers: what a file, the bookie's file or the command line sets.
//! The first layer that has a key decides; the table's default is the last.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use toml::de::DeValue;

use super::keys::{Key, Preset};
use super::problem::{Place, Problem, Wrong};
use super::value::{Secret, Value};
use super::version::BookieVersion;
use crate::health::event::EventKind;

/// The value of a key and where it stands. No value: what stands there is wrong and was reported,
/// or nothing is there.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Slot {
    pub(super) value: Option<Value>,
    pub(super) place: Place,
}

macro_rules! readers {
    ($($name:ident $variant:ident $type:ty;)*) => {
        $(
            /// The value, if it is there and of this type.
            pub(super) fn $name(&self) -> Option<$type> {
                match &self.value {
                    Some(Value::$variant(value)) => Some(value.clone()),
                    _ => None,
                }
            }
        )*
    };
}

impl Slot {
    pub(super) fn new(value: Value, place: Place) -> Slot {
        Slot {
            value: Some(value),
            place,
        }
    }

    /// What counts when no layer has the key.
    pub(super) fn preset(key: Key) -> Slot {
        let value = match key.row().preset {
            Preset::Default(text) => Some(parse_text(key, text)),
            Preset::None(_) | Preset::Required(_) => None,
        };
        Slot {
            value,
            place: Place::Default,
        }
    }

    /// Set by somebody, rightly or wrongly.
    pub(super) fn is_set(&self) -> bool {
        self.place != Place::Default
    }

    /// Something stands there that is wrong and was reported.
    pub(super) fn is_broken(&self) -> bool {
        self.is_set() && self.value.is_none()
    }

    /// A problem with this value.
    pub(super) fn problem(&self, key: Key, wrong: Wrong) -> Problem {
        let value = self.value.as_ref().map(Value::to_toml).unwrap_or_default();
        wrong.at(self.place.clone(), key.path(), value)
    }

    readers! {
        bool Bool bool;
        duration Duration Duration;
        size Size u64;
        ratio Ratio f64;
        count Count u32;
        path Path PathBuf;
        address Address SocketAddr;
        text Text String;
        secret Secret Secret;
        version Version BookieVersion;
        any_full AnyFull Option<bool>;
        events Events Vec<EventKind>;
        urls Urls Vec<String>;
        command Command Vec<String>;
        words Words Vec<String>;
    }
}

/// A value of the table itself: a default or an example.
pub(super) fn parse_text(key: Key, text: &str) -> Value {
    let raw = DeValue::parse(text).expect("the table of keys is written in TOML");
    key.row()
        .kind
        .parse(raw.get_ref())
        .expect("a value in the table of keys is of its key's type")
}

/// What one place sets.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Layer(BTreeMap<Key, Slot>);

impl Layer {
    pub(super) fn set(&mut self, key: Key, slot: Slot) {
        self.0.insert(key, slot);
    }

    pub(super) fn get(&self, key: Key) -> Option<&Slot> {
        self.0.get(&key)
    }

    /// The key here, or what counts without it.
    pub(super) fn slot(&self, key: Key) -> Slot {
        resolve(key, &[self])
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &Slot)> {
        self.0.iter().map(|(key, slot)| (*key, slot))
    }
}

/// The key in the first layer that has it, or what counts without it.
pub(super) fn resolve(key: Key, layers: &[&Layer]) -> Slot {
    layers
        .iter()
        .find_map(|layer| layer.get(key).cloned())
        .unwrap_or_else(|| Slot::preset(key))
}

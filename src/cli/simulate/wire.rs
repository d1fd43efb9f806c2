//! The JSON of `simulate` that both semantics share: strict reading, and the directories of a header.
//! Anything unknown, missing, doubled or of the wrong type is an error; nothing is guessed.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use super::Problem;
use crate::health::dir::Role;

/// What a header should look like.
pub(super) const HEADER_REMEDY: &str = "the first line is the header, like {\"dirs\":[{\"path\":\"/d1\",\"role\":\"ledger\"}],\
     \"settings\":{\"readOnlyModeOnAnyDiskFullEnabled\":true}}";

/// A role by name.
#[derive(Debug, Clone, Copy, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RoleName {
    Ledger,
    Journal,
    Index,
}

impl RoleName {
    fn role(self) -> Role {
        match self {
            RoleName::Ledger => Role::Ledger,
            RoleName::Journal => Role::Journal,
            RoleName::Index => Role::Index,
        }
    }
}

/// What both semantics want to know of a directory in the header.
pub(super) struct Listed {
    pub(super) path: String,
    pub(super) role: RoleName,
    pub(super) filesystem: Option<String>,
}

/// The directories of a header, found by path.
#[derive(Debug)]
pub(super) struct Dirs {
    /// Paths in configured order.
    pub(super) paths: Vec<String>,
    pub(super) roles: Vec<Role>,
    /// Number of the file system of those that share one by name.
    pub(super) filesystems: Vec<Option<u32>>,
    by_path: BTreeMap<String, usize>,
}

impl Dirs {
    pub(super) fn new(listed: impl IntoIterator<Item = Listed>) -> Result<Dirs, Problem> {
        let mut dirs = Dirs {
            paths: Vec::new(),
            roles: Vec::new(),
            filesystems: Vec::new(),
            by_path: BTreeMap::new(),
        };
        let mut names = BTreeMap::new();
        for (index, dir) in listed.into_iter().enumerate() {
            if dir.path.is_empty() {
                let what = "the path of a directory is empty";
                return Err(Problem::new(what, "give each directory its path"));
            }
            if dirs.by_path.insert(dir.path.clone(), index).is_some() {
                let what = format!("directory {:?} is there twice", dir.path);
                return Err(Problem::new(what, "list each path once, with one role"));
            }
            let next = u32::try_from(names.len()).unwrap_or(u32::MAX);
            dirs.roles.push(dir.role.role());
            dirs.filesystems.push(
                dir.filesystem
                    .map(|name| *names.entry(name).or_insert(next)),
            );
            dirs.paths.push(dir.path);
        }
        if !dirs.roles.contains(&Role::Ledger) {
            let what = "no directory has the role \"ledger\"";
            return Err(Problem::new(
                what,
                "a bookie has at least one ledger directory",
            ));
        }
        Ok(dirs)
    }

    /// The directory of that path.
    pub(super) fn find(&self, path: &str) -> Result<usize, Problem> {
        self.by_path.get(path).copied().ok_or_else(|| {
            let what = format!("directory {path:?} is not in the header");
            Problem::new(what, "observe only directories that the header lists")
        })
    }
}

/// Reads one line as one JSON object.
pub(super) fn read<'a, T: Deserialize<'a>>(line: &'a str, remedy: &str) -> Result<T, Problem> {
    if line.trim_ascii().is_empty() {
        return Err(Problem::new("the line is empty", remedy));
    }
    let value: Result<Object<T>, _> = serde_json::from_str(line);
    value.map(|object| object.0).map_err(|error| {
        // The parser sees one line, so its line number would only confuse.
        let text = error.to_string();
        let text = text.split(" at line ").next().unwrap_or(&text);
        let what = if error.is_eof() {
            format!("the JSON is cut off at column {}: {text}", error.column())
        } else {
            format!("{text} (column {})", error.column())
        };
        Problem::new(what, remedy)
    })
}

/// For optional keys: they may be left out, but `null` is not a value.
pub(super) fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// A JSON object. Derived readers would take an array of the values in their order as well.
#[derive(Debug, Clone)]
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

/// A JSON object with any keys as a list, in which none is there twice.
#[derive(Debug, Clone)]
pub(super) struct Entries<T>(pub(super) Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor(PhantomData))
    }
}

struct EntriesVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for EntriesVisitor<T> {
    type Value = Entries<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry::<String, T>()? {
            entries.push(entry);
        }
        let mut keys: Vec<&str> = entries.iter().map(|(key, _)| key.as_str()).collect();
        keys.sort_unstable();
        if let Some(pair) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(de::Error::custom(format_args!(
                "{:?} is there twice",
                pair[0]
            )));
        }
        Ok(Entries(entries))
    }
}

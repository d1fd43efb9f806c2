//! Reads the configuration file: TOML into checked values with their lines. Knows keys and types,
//! not how they belong together. All mistakes are collected; none ends the reading.

use std::collections::BTreeMap;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeArray, DeString, DeTable, DeValue};

use super::bookie_conf;
use super::keys::{KEYS, Key, Section, join};
use super::layer::{Layer, Slot};
use super::problem::{Place, Problems, Wrong};
use super::value::nearest;
use crate::health::dir::{Role, printable};

/// Longest value that is shown in a problem.
const SHOWN_LIMIT: usize = 80;

/// What a configuration file sets.
#[derive(Debug, Default)]
pub(super) struct FileSettings {
    /// Everything that can be there only once.
    pub(super) node: Layer,
    /// `[thresholds.ROLE]`.
    pub(super) roles: BTreeMap<Role, Layer>,
    pub(super) dirs: Vec<Entry>,
    pub(super) hooks: Vec<Entry>,
    pub(super) webhooks: Vec<Entry>,
    /// There is a `[bookie]`.
    pub(super) bookie: bool,
    /// There is a `[textfile]`, and where.
    pub(super) textfile: Option<Place>,
    /// There is an `[alertmanager]`, and where.
    pub(super) alertmanager: Option<Place>,
    /// The file could be read and is TOML, so what is not here is not in the file.
    pub(super) sound: bool,
}

/// A `[[dir]]`, `[[hook]]` or `[[webhook]]`.
#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) layer: Layer,
    /// Its first line.
    pub(super) place: Option<Place>,
}

/// Reads the bytes of a configuration file. A syntax error hides no other mistake.
pub(super) fn read(path: &Path, bytes: Vec<u8>, problems: &mut Problems) -> FileSettings {
    match String::from_utf8(bytes) {
        Ok(text) => parse(path, &text, problems),
        Err(error) => {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
            let wrong = Wrong::new("is not UTF-8", "save the file as UTF-8");
            problems.error(wrong.at(Place::file(path, line), "", ""));
            FileSettings::default()
        }
    }
}

fn parse(path: &Path, text: &str, problems: &mut Problems) -> FileSettings {
    let (table, errors) = DeTable::parse_recoverable(text);
    let sound = errors.is_empty();
    let mut reader = Reader {
        path,
        text,
        newlines: text.match_indices('\n').map(|(at, _)| at).collect(),
        problems,
        settings: FileSettings {
            sound,
            ..FileSettings::default()
        },
    };
    for error in errors {
        let line = error.span().map(|span| reader.line(span.start));
        let written = line.and_then(|line| text.lines().nth(line - 1));
        // A password is not for a log, even in a line that is no TOML.
        let written = written.and_then(|line| line.split("digest:").next());
        let shown = printable(&shortened(written.unwrap_or_default().trim()));
        let wrong = Wrong::new(
            format!("{} in `{shown}`", error.message()),
            "correct the TOML",
        );
        reader
            .problems
            .error(wrong.at(Place::file(path, line), "", ""));
    }
    reader.document(table.get_ref());
    reader.settings
}

type Name<'i> = Spanned<DeString<'i>>;
type Raw<'i> = Spanned<DeValue<'i>>;

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    newlines: Vec<usize>,
    problems: &'a mut Problems,
    settings: FileSettings,
}

impl Reader<'_> {
    fn document(&mut self, table: &DeTable<'_>) {
        for (name, raw) in table {
            let word = name.get_ref().as_ref();
            let section = Section::ALL
                .into_iter()
                .find(|section| *section != Section::Top && section.name() == word);
            match (section, raw.get_ref()) {
                (None, _) => {
                    if let Some((key, slot)) = self.key(Section::Top, "", name, raw) {
                        self.settings.node.set(key, slot);
                    }
                }
                (Some(section), DeValue::Array(list)) if section.is_list() => {
                    self.entries(section, list);
                }
                (Some(section), DeValue::Table(table)) if !section.is_list() => {
                    let place = self.place(raw);
                    match section {
                        Section::Textfile => self.settings.textfile = Some(place),
                        Section::Alertmanager => self.settings.alertmanager = Some(place),
                        _ => {}
                    }
                    self.section(section, table);
                }
                (Some(section), _) => {
                    let remedy = format!("write {} on a line of its own", section.header());
                    self.error(
                        raw,
                        word,
                        Wrong::new("is a section of another form", remedy),
                    );
                }
            }
        }
    }

    fn section(&mut self, section: Section, table: &DeTable<'_>) {
        self.settings.bookie |= section == Section::Bookie;
        for (name, raw) in table {
            let role = Role::parse(name.get_ref());
            match (section, role, raw.get_ref()) {
                (Section::Thresholds, Some(role), DeValue::Table(table)) => {
                    let layer = self.layer(section, &join(section.name(), role.name()), table);
                    self.settings.roles.insert(role, layer);
                }
                _ => {
                    if let Some((key, slot)) = self.key(section, section.name(), name, raw) {
                        self.settings.node.set(key, slot);
                    }
                }
            }
        }
    }

    fn entries(&mut self, section: Section, list: &DeArray<'_>) {
        for raw in list {
            let DeValue::Table(table) = raw.get_ref() else {
                let remedy = format!("write {} on a line of its own", section.header());
                self.error(raw, section.name(), Wrong::new("is no section", remedy));
                continue;
            };
            let entry = Entry {
                layer: self.layer(section, section.name(), table),
                place: Some(self.place(raw)),
            };
            match section {
                Section::Hook => self.settings.hooks.push(entry),
                Section::Webhook => self.settings.webhooks.push(entry),
                _ => self.settings.dirs.push(entry),
            }
        }
    }

    fn layer(&mut self, section: Section, header: &str, table: &DeTable<'_>) -> Layer {
        let mut layer = Layer::default();
        for (name, raw) in table {
            if let Some((key, slot)) = self.key(section, header, name, raw) {
                layer.set(key, slot);
            }
        }
        layer
    }

    /// One key; nothing when there is no such key. A wrong value is reported and kept as none.
    fn key(
        &mut self,
        section: Section,
        header: &str,
        name: &Name<'_>,
        raw: &Raw<'_>,
    ) -> Option<(Key, Slot)> {
        let path = join(header, name.get_ref());
        let Some(key) = Key::find(section, name.get_ref()) else {
            let wrong = unknown(section, header, name.get_ref());
            let line = self.line(name.span().start);
            let place = Place::file(self.path, line);
            // It may be a password under a name with a slip.
            let shown = match section {
                Section::ZooKeeper => String::new(),
                _ => self.shown(raw),
            };
            self.problems.error(wrong.at(place, path, shown));
            return None;
        };
        let value = match key.row().kind.parse(raw.get_ref()) {
            Ok(value) => Some(value),
            Err(wrong) => {
                let wrong = match (key, raw.get_ref().as_str()) {
                    (Key::Semantics, Some("bookkeeper")) => not_yet(),
                    _ => wrong,
                };
                self.error(raw, &path, wrong);
                None
            }
        };
        let place = self.place(raw);
        Some((key, Slot { value, place }))
    }

    fn error(&mut self, raw: &Raw<'_>, key: &str, wrong: Wrong) {
        let shown = match key {
            _ if key == Key::Auth.path() => String::new(),
            _ => self.shown(raw),
        };
        let problem = wrong.at(self.place(raw), key, shown);
        self.problems.error(problem);
    }

    fn place(&self, raw: &Raw<'_>) -> Place {
        Place::file(self.path, self.line(raw.span().start))
    }

    /// Line of a position, counted from 1.
    fn line(&self, position: usize) -> usize {
        1 + self.newlines.partition_point(|newline| *newline < position)
    }

    /// The value as it is written, shortened; nothing for what has lines of its own.
    fn shown(&self, raw: &Raw<'_>) -> String {
        let written = match raw.get_ref() {
            DeValue::Table(_) => "",
            DeValue::Array(list) if list.iter().any(|item| item.get_ref().is_table()) => "",
            _ => self.text.get(raw.span()).unwrap_or_default(),
        };
        shortened(written.lines().next().unwrap_or_default())
    }
}

fn shortened(line: &str) -> String {
    match line.char_indices().nth(SHOWN_LIMIT) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// Why a key is not one, with the best guess of what was meant.
fn unknown(section: Section, header: &str, name: &str) -> Wrong {
    let no_key = "there is no such key";
    if let Some(ours) = bookie_conf::equivalent(name) {
        return Wrong::new(
            "is the name of a key in the bookie's own file",
            format!("here it is {ours}"),
        );
    }
    let elsewhere = KEYS.iter().find(|row| row.name == name);
    let near = nearest(name, Key::all_in(section).map(|key| key.row().name));
    let remedy = match (near, elsewhere) {
        (Some(near), _) => format!("did you mean {}", join(header, near)),
        (None, Some(row)) if row.section == Section::Top => {
            format!("{name} stands before the first section")
        }
        (None, Some(row)) => format!("it belongs to {}", row.section.header()),
        (None, None) => match nearest(
            name,
            Section::ALL.iter().skip(1).map(|section| section.name()),
        ) {
            Some(near) if section == Section::Top => format!("did you mean {near}"),
            _ => known_keys(section),
        },
    };
    Wrong::new(no_key, remedy)
}

fn known_keys(section: Section) -> String {
    let names: Vec<_> = Key::all_in(section).map(|key| key.row().name).collect();
    let sections = Section::ALL.iter().skip(1).map(|section| section.header());
    match section {
        Section::Top => format!(
            "known are {} and the sections {}",
            names.join(", "),
            sections.collect::<Vec<_>>().join(", ")
        ),
        _ => format!("known here are {}", names.join(", ")),
    }
}

fn not_yet() -> Wrong {
    Wrong::new("is not in this version", "remove it")
}

//! What `config import` prints: the bookie's file as TOML that means the same here, with a comment
//! for each key that has no place in it.

use std::path::Path;

use super::bookie_conf::{self, BookieFile, PROPERTIES, Use};
use super::dirs;
use super::file::FileSettings;
use super::keys::{Key, Section};
use super::layer::Layer;
use super::load::from_here;
use super::problem::Problems;
use super::source;
use super::value::{Value, quote};
use crate::health::dir::{path_text, printable, shown};

/// The TOML that means the same as a bookie's file. Relative directories in it are relative to
/// `home`. Blocks on the file's disk.
///
/// # Errors
/// All problems of the file.
pub fn import(bookie_conf: &Path, home: Option<&Path>) -> Result<String, Problems> {
    let mut problems = Problems::default();
    let bytes = source::read(
        bookie_conf,
        bookie_conf::REMEDY,
        &mut Vec::new(),
        &mut problems,
    );
    let text = bytes.map(|bytes| {
        let file = bookie_conf::read(bookie_conf, &bytes, &mut problems);
        translate(bookie_conf, &file, home, &mut problems)
    });
    match text {
        Some(text) if problems.errors.is_empty() => Ok(text),
        _ => Err(problems.sorted()),
    }
}

fn translate(
    path: &Path,
    file: &BookieFile,
    home: Option<&Path>,
    problems: &mut Problems,
) -> String {
    let mapped = bookie_conf::map(path, file, home, problems);
    let named = dirs::join(&FileSettings::default(), &mapped.dirs, &[], problems);

    let mut text = format!("# Made by `dirkeeper config import {}`.\n", shown(path));
    for warning in &problems.clone().sorted().warnings {
        push(&mut text, &format!("# warning: {warning}"));
    }
    for section in [Section::Thresholds, Section::Probe] {
        let rows = rows(&mapped.layer, section);
        if !rows.is_empty() {
            push(&mut text, &format!("\n{}\n{rows}", section.header()));
        }
    }
    push(&mut text, "\n[bookie]");
    push(
        &mut text,
        "# With its file named here, all of this is read from it, and the keys of the first list\n\
         # below too:",
    );
    push(
        &mut text,
        &format!("# conf = {}", quote(&path_text(&from_here(path)))),
    );
    let any_full = "readOnlyModeOnAnyDiskFullEnabled";
    if let (Some(flag), Some(line)) = (
        file.values.read_only_mode_on_any_disk_full_enabled,
        file.line(any_full),
    ) {
        let name = Key::ReadOnlyOnAnyFull.row().name;
        push(
            &mut text,
            &format!("{name} = {flag}  # {}:{line}", shown(path)),
        );
    }
    text.push_str(&rows(&mapped.layer, Section::Bookie));
    let zookeeper = rows(&mapped.layer, Section::ZooKeeper);
    if !zookeeper.is_empty() {
        push(&mut text, &format!("\n[zookeeper]\n{zookeeper}"));
    }
    for dir in named {
        let value = Value::Path(dir.path).to_toml();
        push(
            &mut text,
            &format!("\n[[dir]]\npath = {value}  # {}", dir.place),
        );
        push(&mut text, &format!("role = {}", quote(dir.role.name())));
    }
    text.push_str(&remarks(file));
    text
}

fn push(text: &mut String, line: &str) {
    text.push_str(line);
    if !line.ends_with('\n') {
        text.push('\n');
    }
}

fn rows(layer: &Layer, section: Section) -> String {
    let mut rows = String::new();
    for (key, slot) in layer.iter().filter(|(key, _)| key.row().section == section) {
        if let Some(value) = &slot.value {
            let name = key.row().name;
            push(
                &mut rows,
                &format!("{name} = {}  # {}", value.to_toml(), slot.place),
            );
        }
    }
    rows
}

/// Every key that did not become one of ours. Values are left out where they have no meaning here:
/// some are passwords.
fn remarks(file: &BookieFile) -> String {
    let (mut own, mut unknown) = (String::new(), String::new());
    for (name, line, value) in file.keys() {
        match PROPERTIES.iter().find(|row| row.name == name) {
            Some(row) => {
                if let Use::Own(purpose) = row.used {
                    let value = quote(&value);
                    push(
                        &mut own,
                        &format!("#   {name} = {value} (line {line}): {purpose}"),
                    );
                }
            }
            None => {
                let name = printable(name);
                push(&mut unknown, &format!("#   {name} (line {line})"));
            }
        }
    }
    let mut text = String::new();
    if !own.is_empty() {
        text = format!("\n# Read from the bookie's file only:\n{own}");
    }
    if !unknown.is_empty() {
        text.push_str(&format!("\n# Without a meaning here:\n{unknown}"));
    }
    text
}

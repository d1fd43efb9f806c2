//! The reference file `config/dirkeeper.toml` and `docs/configuration.md`, written from the table of
//! keys. A test fails when the files in the repository differ; `UPDATE=1` rewrites them.

use super::bookie_conf::{PROPERTIES, Use};
use super::keys::{Change, KEYS, Preset, Row, Section};

/// Widest line of a comment in the reference file.
const WIDTH: usize = 98;

/// The reference file: every key, commented. `#key` is a default, `# key` an example.
#[must_use]
pub fn reference_file() -> String {
    let mut text = String::new();
    comment(
        &mut text,
        "Configuration of dirkeeper. Lines that begin with # and a key directly after it show \
         defaults: they need not be here. Lines with a blank after # are explanations and \
         examples. `dirkeeper config check` says what is wrong with this file, all at once.",
    );
    for section in Section::ALL {
        text.push('\n');
        comment(&mut text, section.meaning());
        let header = section.header();
        match section {
            Section::Top => {}
            // With keys that have to be set.
            Section::Textfile | Section::Alertmanager => text.push_str(&format!("# {header}\n")),
            section if section.is_list() => text.push_str(&format!("# {header}\n")),
            // The section alone says that there is a bookie.
            Section::Bookie => text.push_str(&format!("#{header}\n")),
            _ => text.push_str(&format!("{header}\n")),
        }
        for row in KEYS.iter().filter(|row| row.section == section) {
            text.push('\n');
            comment(&mut text, &meaning(row));
            let mark = match row.preset {
                Preset::Default(_) if !section.is_list() => "#",
                _ => "# ",
            };
            text.push_str(&format!("{mark}{} = {}\n", row.name, row.written()));
        }
    }
    text
}

/// The documentation of the configuration.
#[must_use]
pub fn documentation() -> String {
    let mut text = String::from(INTRODUCTION);
    for section in Section::ALL {
        let title = match section {
            Section::Top => "Before the first section".to_owned(),
            section => format!("`{}`", section.header()),
        };
        text.push_str(&format!("\n## {title}\n\n{}\n\n", section.meaning()));
        text.push_str("| key | type | default | meaning |\n| --- | --- | --- | --- |\n");
        for row in KEYS.iter().filter(|row| row.section == section) {
            let default = match row.preset {
                Preset::Default(value) => format!("`{value}`"),
                Preset::None(value) => format!("not set; like `{value}`"),
                Preset::Required(value) => format!("has to be set; like `{value}`"),
            };
            let kind = row.kind.describe().replace('|', "\\|");
            text.push_str(&format!(
                "| `{}` | {kind} | {default} | {} |\n",
                row.name,
                meaning(row)
            ));
        }
    }
    text.push_str("\n## Ballast\n\n");
    text.push_str(BALLAST);
    text.push_str("\n## The bookie's file\n\n");
    text.push_str(BOOKIE_FILE);
    text.push_str("\n| key | here |\n| --- | --- |\n");
    for row in PROPERTIES {
        let used = match row.used {
            Use::Ours(ours) => format!("`{ours}`"),
            Use::Own(purpose) => purpose.to_owned(),
        };
        text.push_str(&format!("| `{}` | {used} |\n", row.name));
    }
    text
}

const INTRODUCTION: &str = "\
# Configuration

<!-- Made from the table of keys in src/config/keys.rs; do not edit. -->

The configuration is a TOML file, `/etc/dirkeeper/dirkeeper.toml` unless `--config` names another.
It is not read when `--bookie-conf` or `--dir` is given without `--config`. What counts, first to last:

1. the command line (`--dir`, `--bookie-conf`, `--listen`, `--state-dir`,
   `--web-config-file`);
2. for a directory, its own `[[dir]]`;
3. `[thresholds.ledger]`, `[thresholds.journal]`, `[thresholds.index]`;
4. the other sections;
5. the bookie's file, if `bookie.conf` or `--bookie-conf` names one;
6. the defaults.

Durations are strings with a unit, like `\"250ms\"`, `\"10s\"` or `\"1h 30m\"`. Sizes are strings with a
unit: `\"1GiB\"` is 2^30 bytes, `\"1GB\"` 10^9. Ratios are numbers, `0.95` and not `95`. A key or section
that is not known is an error, and all errors are reported together. `dirkeeper config check` reports
them, `dirkeeper config show` prints each value with the place it comes from.

A path may have any name. TOML and a bookie's file are text: a name with bytes that are not UTF-8 can
be given by `--dir` only, beside a file too. In all that is read by programs a path is as it is, with
such bytes written `\\xNN`; where the name itself has `\\x` and two hexadecimal digits, its backslash is
written `\\x5c`, so that no two paths look the same. What people read has control characters written
so as well.

A changed file is read again when it changes on disk and on SIGHUP. A valid one takes effect as a
whole; an invalid one changes nothing and is reported. Keys that need a restart are marked.
";

const BALLAST: &str = "\
With `ballast = \"2GiB\"` in a `[[dir]]` the agent holds so many bytes in the file `.dirkeeper-ballast` of that
directory. Where the file system keeps what is allocated (ext4, XFS, tmpfs) they are allocated, elsewhere
random bytes are written, so that compression does not make them smaller; what counts as held is
what occupies blocks. Usage and thresholds count ballast as used. It is

- given back at once, all of it, when the directory is full for want of bytes or by a quota, with the event
  `ballastReleased`; a journal gets it back earlier, when less is available than two times the
  bookie's `journalPreAllocSizeMB` (16 MiB without its file) or than is written in 30 s at the present rate;
- made by pieces of 16 MiB, one a second, when everything has been well for the dwell time, the
  directory does not fill within an hour, and it would stay 2 % of its size away from warn and low watermark;
- counted as used, while it is missing, for a full directory to become writable again: else that
  would fill a second time, and then without ballast;
- never made before `current/VERSION` exists if there is a bookie, and removed when that file is gone, because
  `initbookie` refuses directories that are not empty; neither made nor removed where the file
  system is read-only, failed, hung, vanished or replaced.

Journal directories are the first to give it to: read-only does not empty a journal, and a bookie that
cannot write one ends. Take what a bookie needs to compact or to roll its logs, 2 GiB and not a tenth of the
disk. **The file may be removed by hand at any time**, also while the agent runs: it is made again only
under the conditions above. It stays when the agent is stopped or the directory leaves the
configuration; a smaller `ballast`, or none, takes effect when the configuration is read again. If the key
was removed while the agent was stopped, the file is shown and left: remove it. A file system snapshot
keeps its blocks. Something else of that name, or a file that may
not be changed (`chattr +i`), is left alone and reported. One agent for each
directory; `dirkeeper check` only looks.
";

const BOOKIE_FILE: &str = "\
The file is read as BookKeeper reads it: Latin-1, escapes, continuation lines, lists with commas. Where
a key is there twice the bookie takes the first, or joins the lists, and so does dirkeeper, with a
warning. BookKeeper's own low watermark is the same as its threshold, which lets a directory swing
between full and writable: the default here stays 0.9 unless the file sets the key. The file's
thresholds count for journals too, which BookKeeper does not watch at all. A directory in both
`ledgerDirectories` and `indexDirectories` is watched once. Keys that are not in this table have no
meaning here.
";

fn meaning(row: &Row) -> String {
    match row.change {
        Change::Reload => row.meaning.to_owned(),
        Change::Restart => format!("{} A change takes effect at restart.", row.meaning),
    }
}

/// A comment, wrapped.
fn comment(text: &mut String, sentence: &str) {
    let mut line = String::from("#");
    for word in sentence.split_whitespace() {
        if WIDTH < line.len() + 1 + word.len() {
            text.push_str(&line);
            text.push('\n');
            line.truncate(1);
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(&line);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated::check;

    #[test]
    fn the_files_in_the_repository_are_up_to_date() {
        check("config/dirkeeper.toml", &reference_file());
        check("docs/configuration.md", &documentation());
    }

    #[test]
    fn every_default_and_example_of_the_table_is_valid() {
        for row in KEYS {
            crate::config::layer::parse_text(row.key, row.written());
            assert!(row.meaning.ends_with('.'), "{}", row.key.path());
        }
    }
}

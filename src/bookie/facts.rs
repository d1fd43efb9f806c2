//! What differs between versions of BookKeeper and matters to an agent. Measured with real bookies,
//! `docs/bookkeeper-versions.md`, or read at the releases' tags where no column is there.

/// Major, minor, and patch level where it is said.
pub type Version = (u32, u32, Option<u32>);

/// What a bookie of some version does. Where the version is not known, or only in part, each is what
/// is the most dangerous to rely on the opposite of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// It has the call `state/readonly` (apache/bookkeeper#2799). Unknown: it may not have it.
    pub state_readonly: bool,
    /// A PUT of true ends a bookie with `readOnlyModeEnabled=false`, where others answer 400
    /// (apache/bookkeeper#3972). Unknown: it does.
    pub put_may_end_bookie: bool,
    /// A PUT of `gc` obeys `forceMajor` and `forceMinor`; without that it forces both compactions.
    /// Unknown: it does not.
    pub gc_flags: bool,
}

impl Facts {
    /// The facts of that version.
    #[must_use]
    pub fn of(version: Option<Version>) -> Facts {
        let Some((major, minor, patch)) = version else {
            return Facts {
                state_readonly: false,
                put_may_end_bookie: true,
                gc_flags: false,
            };
        };
        // A patch level that nobody says is the first one for what a later one repaired.
        let version = (major, minor, patch.unwrap_or(0));
        let since = |first: (u32, u32, u32)| first <= version;
        Facts {
            // 4.14.7 is the first 4.14 that was measured to have it, 4.14.4 the last known not to.
            state_readonly: since((4, 14, 7)),
            put_may_end_bookie: !since((4, 16, 6)) || version == (4, 17, 0),
            // 4.16.5 is the first whose server is known to read them, 4.14.7 the last known not to.
            gc_flags: since((4, 16, 5)),
        }
    }
}

/// `4.17.3`, or the beginning of `4.17.3-SNAPSHOT` or `4.17.3.1`; such a build is no release, so its
/// patch level counts as not said.
#[must_use]
pub fn parse_version(text: &str) -> Option<Version> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let (numbers, is_release) = match end {
        Some(end) => (&text[..end], false),
        None => (text, true),
    };
    let mut parts = numbers.split('.');
    let mut number = || parts.next()?.parse::<u32>().ok();
    let (major, minor, patch) = (number()?, number()?, number());
    let is_release = is_release && parts.next().is_none();
    Some((major, minor, patch.filter(|_| is_release)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns of `docs/bookkeeper-versions.md`, and what lies between them.
    #[test]
    fn facts_by_version() {
        let table: [(&str, &str); 13] = [
            ("4.13.0", "- end -"),
            ("4.14.4", "- end -"),
            ("4.14.6", "- end -"),
            ("4.14.7", "readonly end -"),
            ("4.15.5", "readonly end -"),
            ("4.16.0", "readonly end -"),
            ("4.16.5", "readonly end flags"),
            ("4.16.6", "readonly - flags"),
            ("4.17.0", "readonly end flags"),
            ("4.17.2", "readonly - flags"),
            ("4.17", "readonly end flags"),
            ("4.17.3-SNAPSHOT", "readonly end flags"),
            ("5.0", "readonly - flags"),
        ];
        for (version, expected) in table {
            let facts = Facts::of(parse_version(version));
            assert_eq!(words(facts), expected, "{version}");
        }
        assert_eq!(words(Facts::of(None)), "- end -");
    }

    fn words(facts: Facts) -> String {
        let word = |holds: bool, word| if holds { word } else { "-" };
        [
            word(facts.state_readonly, "readonly"),
            word(facts.put_may_end_bookie, "end"),
            word(facts.gc_flags, "flags"),
        ]
        .join(" ")
    }

    #[test]
    fn versions_are_read_or_not() {
        assert_eq!(parse_version("4.17.3"), Some((4, 17, Some(3))));
        assert_eq!(parse_version("4.17"), Some((4, 17, None)));
        assert_eq!(parse_version("4.17.3.1"), Some((4, 17, None)));
        assert_eq!(parse_version("4.17.0-rc1"), Some((4, 17, None)));
        for none in ["", "4", "four", "4.x", ".4.17", "4..17", "99999999999.1"] {
            assert_eq!(parse_version(none), None, "{none}");
        }
    }
}

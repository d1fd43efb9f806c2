//! A version of BookKeeper, as `bookie.version` has it.

/// Version of BookKeeper. What an absent key of the bookie's file means differs between versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BookieVersion {
    /// 4.
    pub major: u32,
    /// 17.
    pub minor: u32,
    /// Patch level, where it is said.
    pub patch: Option<u32>,
}

impl BookieVersion {
    /// At least that release, whatever the patch level.
    #[must_use]
    pub fn at_least(self, major: u32, minor: u32) -> bool {
        (self.major, self.minor) >= (major, minor)
    }

    pub(super) fn parse(text: &str) -> Option<BookieVersion> {
        let mut parts = text.split('.').map(|part| part.parse::<u32>().ok());
        let version = BookieVersion {
            major: parts.next()??,
            minor: parts.next()??,
            patch: match parts.next() {
                Some(patch) => Some(patch?),
                None => None,
            },
        };
        parts.next().is_none().then_some(version)
    }
}

impl std::fmt::Display for BookieVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        match self.patch {
            Some(patch) => write!(f, ".{patch}"),
            None => Ok(()),
        }
    }
}

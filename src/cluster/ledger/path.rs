//! Where a cluster keeps its ledgers: the layout that it was formatted with, and the node of each id below
//! the ledgers root (BookKeeper's ledger managers).

use thiserror::Error;

/// The first id that the default layout writes in the long form (`Integer.MAX_VALUE`).
const FIRST_LONG: u64 = i32::MAX as u64;

/// How ids become nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// All in one folder.
    Flat,
    /// Ten digits, as 2-4-4.
    LegacyHierarchical,
    /// Nineteen digits, as 3-4-4-4-4.
    LongHierarchical,
    /// The default, and Pulsar's: as the legacy one below 2147483647, as the long one from there.
    Hierarchical,
}

/// Why a cluster's layout is not known.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// No text of the form that BookKeeper writes.
    #[error("LAYOUT cannot be understood: {0:?}")]
    Damaged(String),
    /// Of another store, or of a later BookKeeper.
    #[error(
        "LAYOUT names {class}, version {version}, which keeps its ledgers in a way that is not known"
    )]
    Unknown {
        /// The factory's class, without its package.
        class: String,
        /// Its version.
        version: String,
    },
}

impl Layout {
    /// Reads the node `LAYOUT`: format 2 names a class, format 1 (before 4.2) has a word for it. The class may be
    /// in any package, as clients that are shaded into others write theirs.
    ///
    /// # Errors
    /// It is damaged or unknown. Nothing may be concluded about ledgers then.
    pub fn parse(bytes: &[u8]) -> Result<Layout, LayoutError> {
        let damaged = || LayoutError::Damaged(String::from_utf8_lossy(bytes).into_owned());
        let text = std::str::from_utf8(bytes).map_err(|_| damaged())?;
        let mut lines = text.lines();
        let format = lines.next().ok_or_else(damaged)?;
        let (manager, version) = lines
            .next()
            .and_then(|line| line.rsplit_once(':'))
            .ok_or_else(damaged)?;
        if lines.next().is_some() {
            return Err(damaged());
        }
        let class = manager.rsplit_once('.').map_or(manager, |(_, class)| class);
        match (format, class, version) {
            ("2", "FlatLedgerManagerFactory", "1") | ("1", "flat", "1") => Ok(Layout::Flat),
            ("2", "LegacyHierarchicalLedgerManagerFactory", "1") | ("1", "hierarchical", "1") => {
                Ok(Layout::LegacyHierarchical)
            }
            ("2", "LongHierarchicalLedgerManagerFactory", "1") => Ok(Layout::LongHierarchical),
            ("2", "HierarchicalLedgerManagerFactory" | "PulsarLedgerManagerFactory", "1") => {
                Ok(Layout::Hierarchical)
            }
            ("1" | "2", class, version) => Err(LayoutError::Unknown {
                class: class.to_owned(),
                version: version.to_owned(),
            }),
            _ => Err(damaged()),
        }
    }

    /// The node of a ledger, below the root and without a slash at the beginning. An id that the layout cannot hold has
    /// none.
    #[must_use]
    pub fn path(self, id: u64) -> Option<String> {
        match self {
            Layout::Flat => (id <= FIRST_LONG).then(|| format!("L{id:010}")),
            Layout::LegacyHierarchical => (id <= FIRST_LONG).then(|| short(id)),
            Layout::LongHierarchical => long(id),
            Layout::Hierarchical if id < FIRST_LONG => Some(short(id)),
            Layout::Hierarchical => long(id),
        }
    }

    /// The ledger at a path as [`Layout::path`] gives it; none for every other node.
    #[must_use]
    pub fn id(self, path: &str) -> Option<u64> {
        let mut digits = String::with_capacity(path.len());
        digits.extend(path.chars().filter(char::is_ascii_digit));
        let id = digits.parse().ok()?;
        (self.path(id).as_deref() == Some(path)).then_some(id)
    }

    /// Whether ledgers may lie below that node, which is itself none. The root is the empty path.
    #[must_use]
    pub fn is_above(self, path: &str) -> bool {
        let widths = || path.split('/').map(str::len);
        let digits = path
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'/');
        let is_short = || {
            [2, 4]
                .iter()
                .copied()
                .zip(widths())
                .all(|(want, is)| want == is)
        };
        let is_long = || {
            [3, 4, 4, 4]
                .iter()
                .copied()
                .zip(widths())
                .all(|(want, is)| want == is)
        };
        let depth = widths().count();
        match self {
            _ if path.is_empty() => true,
            _ if !digits => false,
            Layout::Flat => false,
            Layout::LegacyHierarchical => depth <= 2 && is_short(),
            Layout::LongHierarchical => depth <= 4 && is_long(),
            Layout::Hierarchical => (depth <= 2 && is_short()) || (depth <= 4 && is_long()),
        }
    }
}

fn short(id: u64) -> String {
    let digits = format!("{id:010}");
    format!("{}/{}/L{}", &digits[..2], &digits[2..6], &digits[6..])
}

fn long(id: u64) -> Option<String> {
    let digits = format!("{id:019}");
    (digits.len() == 19).then(|| {
        format!(
            "{}/{}/{}/{}/L{}",
            &digits[..3],
            &digits[3..7],
            &digits[7..11],
            &digits[11..15],
            &digits[15..]
        )
    })
}

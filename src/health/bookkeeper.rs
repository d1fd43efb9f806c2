//! The second model: what the monitor of Apache BookKeeper 4.17.3 makes of the same disks, event for
//! event, also where it is wrong (`docs/bookkeeper.md` lists where). It follows `LedgerDirsMonitor`,
//! `LedgerDirsManager`, `DiskChecker`, the disk listener of `BookieImpl` and `BookieStateManager`, in
//! single precision as they do. It never decides anything for dirkeeper itself; it predicts what the
//! bookie beside the agent is about to do.

use super::dir::Role;

/// Position of a directory in the list given to [`Model::new`].
pub type DirIndex = usize;

/// The bookie's settings, as its configuration file has them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// `diskUsageThreshold`.
    pub full: f32,
    /// `diskUsageWarnThreshold`.
    pub warn: f32,
    /// `diskUsageLwmThreshold`.
    pub low_watermark: f32,
    /// `readOnlyModeEnabled`.
    pub read_only_mode: bool,
    /// `readOnlyModeOnAnyDiskFullEnabled`.
    pub any_full: bool,
    /// `minUsableSizeForHighPriorityWrites`, in bytes.
    pub high_priority_reserve: i64,
}

impl Settings {
    /// BookKeeper 4.17.3's defaults.
    #[must_use]
    pub const fn defaults() -> Settings {
        Settings {
            full: 0.95,
            warn: 0.90,
            low_watermark: 0.95,
            read_only_mode: true,
            any_full: false,
            high_priority_reserve: 1 << 30,
        }
    }

    /// The first of BookKeeper's own start-up checks that these settings do not pass.
    #[must_use]
    pub fn rejected(&self) -> Option<Rejected> {
        // BookKeeper's tolerance: so far may the lower threshold be above the upper one. Its
        // difference is single, the comparison double precision.
        let is_above = |lower: f32| 1e-6 < f64::from(lower - self.full);
        if self.full <= 0.0 || 1.0 <= self.full {
            Some(Rejected::Full)
        } else if is_above(self.low_watermark) {
            Some(Rejected::LowWatermarkOverFull)
        } else if is_above(self.warn) {
            Some(Rejected::WarnOverFull)
        } else {
            None
        }
    }
}

/// Settings with which BookKeeper refuses to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejected {
    /// The full threshold is not between 0 and 1.
    Full,
    /// The low watermark is above the full threshold.
    LowWatermarkOverFull,
    /// The warn threshold is above the full threshold.
    WarnOverFull,
}

/// One configured directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// What the bookie uses it for. BookKeeper's monitor does not look at journals.
    pub role: Role,
    /// Directories with the same number are on one file system; none is on one of its own.
    pub filesystem: Option<u32>,
}

/// What Java's `File` reports about a directory. The default is what it reports about nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Observed {
    /// `getTotalSpace`.
    pub total: i64,
    /// `getUsableSpace`.
    pub usable: i64,
    /// What goes wrong beside.
    pub error: Option<Trouble>,
}

/// What can go wrong when BookKeeper looks at a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// It is not a readable, writable directory. Seen only at or below warn: space is looked at first.
    Io,
    /// Its file store cannot be looked up, so there is no total usage of its manager.
    Store,
}

/// A call of a `LedgerDirsListener` method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// `diskFailed`.
    DiskFailed(DirIndex),
    /// `diskAlmostFull`.
    DiskAlmostFull(DirIndex),
    /// `diskFull`.
    DiskFull(DirIndex),
    /// `diskWritable`.
    DiskWritable(DirIndex),
    /// `diskJustWritable`.
    DiskJustWritable(DirIndex),
    /// `allDisksFull(highPriorityWritesAllowed)`.
    AllDisksFull(bool),
    /// `anyDiskFull(highPriorityWritesAllowed)`.
    AnyDiskFull(bool),
    /// `allDisksWritable`.
    AllDisksWritable,
    /// `fatalError`.
    FatalError,
}

/// Mode of the bookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Takes reads and writes.
    Writable,
    /// Takes reads only.
    ReadOnly,
    /// Has ended, for good.
    Shutdown,
}

impl Mode {
    /// The word used in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Writable => "writable",
            Mode::ReadOnly => "readOnly",
            Mode::Shutdown => "shutdown",
        }
    }
}

/// One bookie with its directories. Memory depends on the number of directories only.
#[derive(Debug, Clone)]
pub struct Model {
    settings: Settings,
    observed: Vec<Observed>,
    /// Ledger directories first, then index directories if there are any.
    managers: Vec<Manager>,
    bookie: Bookie,
    started: bool,
    /// The one-time branch of the first cycle is still to come, for whichever manager is first.
    first_check: bool,
    no_writable_dir: bool,
}

/// One `LedgerDirsManager`.
#[derive(Debug, Clone)]
struct Manager {
    role: Role,
    /// In configured order.
    dirs: Vec<DirIndex>,
    /// The same directories without those whose file system came earlier.
    distinct: Vec<DirIndex>,
    writable: Vec<DirIndex>,
    full: Vec<DirIndex>,
}

/// The bookie's listener and state manager, and the calls they have got in this step.
#[derive(Debug, Clone)]
struct Bookie {
    read_only_mode: bool,
    any_full: bool,
    mode: Mode,
    high_priority_writes: bool,
    events: Vec<Event>,
}

/// Result of `DiskChecker.checkDir`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    Fine,
    OverWarn,
    OverFull,
    Error,
}

impl Model {
    /// A bookie that has not started. Nothing is observed yet.
    ///
    /// # Errors
    /// Settings with which BookKeeper refuses to start.
    pub fn new(settings: Settings, dirs: &[Setup]) -> Result<Model, Rejected> {
        if let Some(rejected) = settings.rejected() {
            return Err(rejected);
        }
        let managers = [Role::Ledger, Role::Index]
            .into_iter()
            .map(|role| Manager::new(role, dirs))
            .filter(|manager| manager.role == Role::Ledger || !manager.dirs.is_empty())
            .collect();
        Ok(Model {
            settings,
            observed: vec![Observed::default(); dirs.len()],
            managers,
            bookie: Bookie {
                read_only_mode: settings.read_only_mode,
                any_full: settings.any_full,
                mode: Mode::Writable,
                high_priority_writes: true,
                events: Vec::new(),
            },
            started: false,
            first_check: true,
            no_writable_dir: false,
        })
    }

    /// The bookie's start (`init`) the first time, one cycle of its monitor from then on; nothing
    /// once it has shut down. Directories that are not among `observed` keep what was seen last.
    pub fn step(&mut self, observed: impl IntoIterator<Item = (DirIndex, Observed)>) {
        for (dir, seen) in observed {
            if let Some(last) = self.observed.get_mut(dir) {
                *last = seen;
            }
        }
        self.bookie.events.clear();
        self.no_writable_dir = false;
        if self.bookie.mode == Mode::Shutdown {
            return;
        }
        if !self.started {
            self.started = true;
            self.start();
            return;
        }
        // Each cycle is finished for both managers, also when the first one shut the bookie down.
        for index in 0..self.managers.len() {
            self.check(index);
        }
    }

    /// Calls of the listener in the newest step, in their order. None at the start: the bookie's
    /// listener is added later.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.bookie.events
    }

    /// The writable list of a role's manager, in its order.
    #[must_use]
    pub fn writable(&self, role: Role) -> &[DirIndex] {
        self.manager(role).map_or(&[], |manager| &manager.writable)
    }

    /// The list of full directories of a role's manager, in its order.
    #[must_use]
    pub fn full(&self, role: Role) -> &[DirIndex] {
        self.manager(role).map_or(&[], |manager| &manager.full)
    }

    /// The bookie's mode.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.bookie.mode
    }

    /// The bookie takes recovery writes although it is read-only.
    #[must_use]
    pub fn high_priority_writes(&self) -> bool {
        self.bookie.high_priority_writes
    }

    /// The newest step was a start that found a manager without a writable directory.
    #[must_use]
    pub fn no_writable_dir(&self) -> bool {
        self.no_writable_dir
    }

    fn manager(&self, role: Role) -> Option<&Manager> {
        self.managers.iter().find(|manager| manager.role == role)
    }

    /// `LedgerDirsMonitor.init`, and what `BookieImpl`'s constructor makes of it.
    fn start(&mut self) {
        for index in 0..self.managers.len() {
            for dir in self.managers[index].writable.clone() {
                match self.check_dir(dir) {
                    Check::Fine | Check::OverWarn => {}
                    Check::OverFull => self.managers[index].fill(&[dir]),
                    Check::Error => {
                        self.bookie.mode = Mode::Shutdown;
                        return;
                    }
                }
            }
            if self.managers[index].writable.is_empty() {
                self.no_writable_dir = true;
                self.bookie.go_read_only();
                return;
            }
        }
    }

    /// `LedgerDirsMonitor.check` of one manager.
    fn check(&mut self, index: usize) {
        let is_first = std::mem::take(&mut self.first_check);
        let newly_full = self.check_writable(index);
        let mut high_priority = true;
        if self.managers[index].writable.is_empty() {
            high_priority = self.high_priority_room(index);
            self.bookie.call(Event::AllDisksFull(high_priority));
        }
        let recovered = self.check_full(index);
        let none_full = self.managers[index].full.is_empty();
        if is_first && none_full {
            self.bookie.call(Event::AllDisksWritable);
        } else if self.settings.any_full {
            if newly_full && !none_full {
                self.bookie.call(Event::AnyDiskFull(high_priority));
            }
            if recovered && none_full {
                self.bookie.call(Event::AllDisksWritable);
            }
        }
    }

    /// Looks at the writable directories; true when one of them has become full.
    fn check_writable(&mut self, index: usize) -> bool {
        let mut full = Vec::new();
        for dir in self.managers[index].writable.clone() {
            match self.check_dir(dir) {
                Check::Fine => {}
                Check::OverWarn => self.bookie.call(Event::DiskAlmostFull(dir)),
                Check::Error => self.bookie.call(Event::DiskFailed(dir)),
                Check::OverFull => {
                    full.push(dir);
                    self.bookie.call(Event::DiskFull(dir));
                }
            }
        }
        self.managers[index].fill(&full);
        !full.is_empty()
    }

    /// Looks at the full directories; true when one of them is not over full any more, whether or not
    /// the low watermark lets it be writable.
    fn check_full(&mut self, index: usize) -> bool {
        let manager = &self.managers[index];
        let may_return = if manager.writable.is_empty() {
            let Some(usage) = self.total_usage(manager) else {
                self.bookie.call(Event::FatalError);
                return false;
            };
            usage < self.settings.low_watermark
        } else {
            true
        };
        let mut returned = Vec::new();
        let mut recovered = false;
        for dir in manager.full.clone() {
            let event = match self.check_dir(dir) {
                Check::OverFull => continue,
                Check::Error => {
                    self.bookie.call(Event::DiskFailed(dir));
                    continue;
                }
                Check::Fine => Event::DiskWritable(dir),
                Check::OverWarn => Event::DiskJustWritable(dir),
            };
            recovered = true;
            if may_return {
                returned.push(dir);
                self.bookie.call(event);
            }
        }
        self.managers[index].empty(&returned);
        recovered
    }

    /// `DiskChecker.checkDir`: space first, so that a directory over a threshold never shows an error.
    fn check_dir(&self, dir: DirIndex) -> Check {
        let seen = self.observed[dir];
        let used = usage(seen.usable, seen.total);
        if self.settings.full < used {
            Check::OverFull
        } else if self.settings.warn < used {
            Check::OverWarn
        } else if seen.error == Some(Trouble::Io) {
            Check::Error
        } else {
            Check::Fine
        }
    }

    /// `DiskChecker.getTotalDiskUsage`; none where it throws.
    fn total_usage(&self, manager: &Manager) -> Option<f32> {
        let has_store = |dir: &DirIndex| self.observed[*dir].error != Some(Trouble::Store);
        if !manager.dirs.iter().all(has_store) {
            return None;
        }
        // Java's sums of long wrap around.
        let sum = |bytes: fn(&Observed) -> i64| {
            manager.distinct.iter().fold(0_i64, |sum, dir| {
                sum.wrapping_add(bytes(&self.observed[*dir]))
            })
        };
        Some(usage(sum(|seen| seen.usable), sum(|seen| seen.total)))
    }

    /// `getDirsAboveUsableThresholdSize` finds a directory.
    fn high_priority_room(&self, index: usize) -> bool {
        let reserve = self.settings.high_priority_reserve;
        let dirs = &self.managers[index].dirs;
        dirs.iter().any(|dir| reserve < self.observed[*dir].usable)
    }
}

/// Used part, in the order of casts and roundings of `checkDiskFull`: both numbers to single
/// precision, divided, taken from one. Not a number for a total of 0, and then over no threshold.
pub(super) fn usage(usable: i64, total: i64) -> f32 {
    #[allow(clippy::cast_precision_loss)] // Java's cast loses the same
    let free = usable as f32 / total as f32;
    1.0 - free
}

impl Manager {
    fn new(role: Role, setups: &[Setup]) -> Manager {
        let dirs: Vec<DirIndex> = (0..setups.len())
            .filter(|dir| setups[*dir].role == role)
            .collect();
        let mut seen = std::collections::BTreeSet::new();
        let distinct = dirs
            .iter()
            .copied()
            .filter(|dir| {
                setups[*dir]
                    .filesystem
                    .is_none_or(|number| seen.insert(number))
            })
            .collect();
        Manager {
            role,
            distinct,
            writable: dirs.clone(),
            full: Vec::new(),
            dirs,
        }
    }

    /// Moves directories from the writable list to the end of the full one.
    fn fill(&mut self, dirs: &[DirIndex]) {
        transfer(dirs, &mut self.writable, &mut self.full);
    }

    /// Moves directories from the full list to the end of the writable one.
    fn empty(&mut self, dirs: &[DirIndex]) {
        transfer(dirs, &mut self.full, &mut self.writable);
    }
}

/// `dirs` are in the order of `from`, so one pass suffices.
fn transfer(dirs: &[DirIndex], from: &mut Vec<DirIndex>, to: &mut Vec<DirIndex>) {
    let mut moving = dirs.iter().peekable();
    from.retain(|dir| moving.next_if_eq(&dir).is_none());
    to.extend_from_slice(dirs);
}

impl Bookie {
    /// The disk listener of `BookieImpl`.
    fn call(&mut self, event: Event) {
        self.events.push(event);
        match event {
            Event::DiskFailed(_) | Event::FatalError => self.mode = Mode::Shutdown,
            Event::DiskAlmostFull(_) | Event::DiskFull(_) => {}
            Event::DiskWritable(_) | Event::DiskJustWritable(_) if self.any_full => {}
            Event::AnyDiskFull(_) if !self.any_full => {}
            Event::AllDisksFull(high_priority) | Event::AnyDiskFull(high_priority) => {
                self.high_priority_writes = high_priority;
                self.go_read_only();
            }
            Event::DiskWritable(_) | Event::DiskJustWritable(_) | Event::AllDisksWritable => {
                self.high_priority_writes = true;
                if self.mode != Mode::Shutdown {
                    self.mode = Mode::Writable;
                }
            }
        }
    }

    fn go_read_only(&mut self) {
        if self.mode == Mode::Writable {
            self.mode = if self.read_only_mode {
                Mode::ReadOnly
            } else {
                Mode::Shutdown
            };
        }
    }
}

//! What the live view knows and what it shows: pictures and events as they arrive, and which screen,
//! order, filter and place the keys have chosen. Pure: time, answers and keys are handed in, and
//! `draw` makes a screen of it.

use std::collections::VecDeque;

use crate::document::{DirDocument, EventDocument, NodeDocument, StatusDocument};
use crate::health::moment::Elapsed;
use crate::health::status::Status;

/// Events kept to look back at; what is older is asked for with `dirkeeper events`.
pub(super) const LOG_KEPT: usize = 1_000;

/// An agent is asked each second: with one answer missed, and the next one late, it is silent.
const SILENT: Elapsed = Elapsed::from_secs(3);

/// An agent publishes at least once a second; on a machine that is very busy a few may be missed.
const LATE: Elapsed = Elapsed::from_secs(10);

/// What is heard of the agent.
#[derive(Debug)]
pub(super) enum Told {
    /// Its picture.
    Picture(Box<StatusDocument>),
    /// No picture, and why.
    Silent(String),
    /// Events, oldest first.
    Events(Vec<EventDocument>),
    /// The events between these numbers are lost.
    Gap {
        /// The last one before them.
        after: u64,
        /// The first one after them.
        before: u64,
    },
    /// The log cannot be followed now, and why; none when it can again.
    LogTrouble(Option<String>),
}

/// A line of the log.
#[derive(Debug)]
pub(super) enum Entry {
    /// What happened.
    Event(Box<EventDocument>),
    /// Events that nobody has any more.
    Gap(u64, u64),
}

/// What fills the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Screen {
    /// The directories, and the newest events below.
    Dirs,
    /// One directory.
    Details,
    /// The log.
    Log,
    /// Mode, bookie, listeners and problems.
    Node,
    /// The keys.
    Help,
}

/// The order of the directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Worst first.
    Status,
    /// As configured.
    Configured,
    /// By path.
    Path,
    /// Fullest first.
    Usage,
    /// Least room first.
    Free,
    /// First to be full first.
    FullIn,
    /// Slowest first.
    Probe,
    /// Newest status first.
    Since,
}

impl Order {
    pub(super) const ALL: [Order; 8] = [
        Order::Status,
        Order::Configured,
        Order::Path,
        Order::Usage,
        Order::Free,
        Order::FullIn,
        Order::Probe,
        Order::Since,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Order::Status => "worst first",
            Order::Configured => "as configured",
            Order::Path => "by path",
            Order::Usage => "fullest first",
            Order::Free => "least room first",
            Order::FullIn => "first to be full",
            Order::Probe => "slowest first",
            Order::Since => "newest status first",
        }
    }

    pub(super) fn next(self) -> Order {
        let at = Order::ALL.iter().position(|order| *order == self);
        Order::ALL[at.map_or(0, |at| (at + 1) % Order::ALL.len())]
    }
}

/// A picture and when it came.
#[derive(Debug)]
struct Picture {
    document: Box<StatusDocument>,
    came: Elapsed,
}

/// The state of the view.
#[derive(Debug)]
pub(super) struct Model {
    /// Whom it asks.
    pub(super) url: String,
    pub(super) screen: Screen,
    pub(super) order: Order,
    pub(super) reverse: bool,
    /// What a line must hold to be shown; nothing hides nothing.
    pub(super) filter: String,
    /// The filter is being typed.
    pub(super) typing: bool,
    /// Lines that a screen of text is scrolled by; the log from its end.
    pub(super) scroll: usize,
    /// Lines of one page.
    pub(super) page: usize,
    /// Path and role of the directory that is chosen: they stay when the order changes.
    chosen: Option<(String, String)>,
    paused: bool,
    now: Elapsed,
    picture: Option<Picture>,
    /// The newest one while another is held.
    newest: Option<Picture>,
    silence: Option<String>,
    /// The agent's own time in its newest picture, and since when it is that.
    turn: Option<(String, Elapsed)>,
    log: VecDeque<Entry>,
    /// Events that came while the picture was held.
    later: VecDeque<Entry>,
    log_trouble: Option<String>,
}

impl Model {
    pub(super) fn new(url: String) -> Model {
        Model {
            url,
            screen: Screen::Dirs,
            order: Order::Status,
            reverse: false,
            filter: String::new(),
            typing: false,
            scroll: 0,
            page: 1,
            chosen: None,
            paused: false,
            now: Elapsed::ZERO,
            picture: None,
            newest: None,
            silence: None,
            turn: None,
            log: VecDeque::new(),
            later: VecDeque::new(),
            log_trouble: None,
        }
    }

    /// Takes in what was heard. Whether anything that is shown may have changed.
    pub(super) fn hear(&mut self, told: Told, now: Elapsed) -> bool {
        self.now = now;
        match told {
            Told::Picture(document) => {
                self.silence = None;
                if self
                    .turn
                    .as_ref()
                    .is_none_or(|(time, _)| *time != document.time)
                {
                    self.turn = Some((document.time.clone(), now));
                }
                let picture = Some(Picture {
                    document,
                    came: now,
                });
                if self.paused {
                    self.newest = picture;
                    return false;
                }
                self.picture = picture;
            }
            Told::Silent(why) => self.silence = Some(why),
            Told::Events(events) => {
                for mut event in events {
                    if event.dir.is_some() {
                        // The names of all others, which nothing here shows.
                        event.node = NodeDocument::default();
                    }
                    self.keep(Entry::Event(Box::new(event)));
                }
            }
            Told::Gap { after, before } => self.keep(Entry::Gap(after, before)),
            Told::LogTrouble(trouble) => self.log_trouble = trouble,
        }
        true
    }

    fn keep(&mut self, entry: Entry) {
        let log = if self.paused {
            &mut self.later
        } else {
            &mut self.log
        };
        log.push_back(entry);
        if LOG_KEPT < log.len() {
            log.pop_front();
        }
    }

    /// Time passes. Whether that shows: only where an age is on the screen.
    pub(super) fn tick(&mut self, now: Elapsed) -> bool {
        let before = self.banner();
        self.now = now;
        before != self.banner()
    }

    /// Holds the picture, or goes on with the newest one.
    pub(super) fn pause(&mut self) {
        self.paused = !self.paused;
        if self.paused {
            return;
        }
        if let Some(newest) = self.newest.take() {
            self.picture = Some(newest);
        }
        for entry in std::mem::take(&mut self.later) {
            self.keep(entry);
        }
    }

    /// The picture that is shown.
    pub(super) fn document(&self) -> Option<&StatusDocument> {
        self.picture.as_ref().map(|picture| &*picture.document)
    }

    /// The log that is shown, oldest first.
    pub(super) fn log(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.log.iter()
    }

    pub(super) fn log_trouble(&self) -> Option<&str> {
        self.log_trouble.as_deref()
    }

    /// Why what is shown is not what is.
    pub(super) fn banner(&self) -> Option<String> {
        let age = |since: Elapsed| {
            let seconds = self.now.saturating_sub(since).as_secs();
            super::super::terminal::span(seconds)
        };
        let newest = self.newest.as_ref().or(self.picture.as_ref());
        let last = newest.map(|picture| picture.came);
        let silent = last.is_some_and(|last| SILENT < self.now.saturating_sub(last));
        if silent || self.silence.is_some() {
            let why = self.silence.as_deref().unwrap_or("it does not answer");
            return Some(match last {
                Some(last) => format!("NO ANSWER: what is shown is {} old: {why}", age(last)),
                None => format!("NO ANSWER: {why}"),
            });
        }
        if let Some((_, since)) = &self.turn
            && LATE < self.now.saturating_sub(*since)
        {
            let age = age(*since);
            return Some(format!(
                "LATE: the agent answers, but its picture has stood still for {age}"
            ));
        }
        let came = self.picture.as_ref().filter(|_| self.paused)?.came;
        Some(format!(
            "PAUSED: what is shown is {} old (p: go on)",
            age(came)
        ))
    }

    /// The directories that pass the filter, in their order.
    pub(super) fn dirs(&self) -> Vec<&DirDocument> {
        let all = self.document().map_or(&[][..], |document| &document.dirs);
        let mut dirs: Vec<&DirDocument> = all.iter().filter(|dir| self.passes_dir(dir)).collect();
        match self.order {
            Order::Configured => {}
            Order::Status => dirs.sort_by_key(|dir| rank(dir)),
            Order::Path => dirs.sort_by(|a, b| a.path.cmp(&b.path)),
            Order::Usage => sort_down(&mut dirs, |dir| dir.space.usage_ratio),
            Order::Free => dirs.sort_by_key(|dir| dir.space.available_bytes.unwrap_or(u64::MAX)),
            Order::FullIn => dirs.sort_by_key(|dir| {
                let forecast = dir.forecast.as_ref();
                forecast.map_or(u64::MAX, |forecast| forecast.full_in_seconds)
            }),
            Order::Probe => sort_down(&mut dirs, |dir| Some(probe_seconds(dir)?.0)),
            Order::Since => dirs.sort_by(|a, b| b.since.cmp(&a.since)),
        }
        if self.reverse {
            dirs.reverse();
        }
        dirs
    }

    fn passes_dir(&self, dir: &DirDocument) -> bool {
        let word = super::super::terminal::words(&dir.status);
        self.passes(&format!("{} {} {word}", dir.path, dir.role))
    }

    /// The text holds what the filter asks for, in letters of any size.
    pub(super) fn passes(&self, text: &str) -> bool {
        self.filter.is_empty() || text.to_lowercase().contains(&self.filter.to_lowercase())
    }

    /// Where the chosen directory is among those that are shown; the first one when it is not.
    pub(super) fn chosen(&self, dirs: &[&DirDocument]) -> usize {
        let chosen = |dir: &&DirDocument| {
            let chosen = self.chosen.as_ref();
            chosen.is_some_and(|(path, role)| *path == dir.path && *role == dir.role)
        };
        dirs.iter().position(chosen).unwrap_or(0)
    }

    /// Moves by so many directories, or lines of a text.
    pub(super) fn step(&mut self, by: isize) {
        match self.screen {
            Screen::Dirs => {
                let dirs = self.dirs();
                let last = dirs.len().saturating_sub(1);
                let at = self.chosen(&dirs).saturating_add_signed(by).min(last);
                let chosen = dirs.get(at);
                self.chosen = chosen.map(|dir| (dir.path.clone(), dir.role.clone()));
            }
            Screen::Log => self.scroll = self.scroll.saturating_add_signed(by.saturating_neg()),
            _ => self.scroll = self.scroll.saturating_add_signed(by),
        }
    }

    /// Shows a screen from its beginning, the log from its end. The chosen directory stays chosen.
    pub(super) fn show(&mut self, screen: Screen) {
        self.step_nowhere();
        self.screen = screen;
        self.scroll = 0;
    }

    fn step_nowhere(&mut self) {
        if self.screen == Screen::Dirs {
            self.step(0);
        }
    }

    /// The directory of the details; none when it is not watched any more.
    pub(super) fn detailed(&self) -> Option<&DirDocument> {
        let (path, role) = self.chosen.as_ref()?;
        let mut dirs = self.document()?.dirs.iter();
        dirs.find(|dir| dir.path == *path && dir.role == *role)
    }
}

fn sort_down(dirs: &mut [&DirDocument], number: impl Fn(&DirDocument) -> Option<f64>) {
    let key = |dir: &DirDocument| number(dir).unwrap_or(-1.0);
    dirs.sort_by(|a, b| key(b).total_cmp(&key(a)));
}

/// Severity, and the word within it; the worst is the least.
pub(super) type Rank = (usize, usize);

/// How bad it is with a directory. What nobody knows here is the worst.
pub(super) fn rank(dir: &DirDocument) -> Rank {
    let severities = ["critical", "unknown", "warning", "ok"];
    let severity = severities.iter().position(|word| *word == dir.severity);
    let mut worst_first = Status::ALL.iter().rev();
    let status = worst_first.position(|word| word.name() == dir.status);
    (severity.unwrap_or(0), status.unwrap_or(0))
}

/// Seconds of the newest probe, and whether it still runs.
pub(super) fn probe_seconds(dir: &DirDocument) -> Option<(f64, bool)> {
    if 0.0 < dir.probe.in_flight_seconds {
        return Some((dir.probe.in_flight_seconds, true));
    }
    let steps = &dir.probe.durations_seconds;
    let steps = [steps.create, steps.write, steps.sync, steps.read];
    let known: Vec<f64> = steps.into_iter().flatten().collect();
    (!known.is_empty()).then(|| (known.iter().sum(), false))
}

//! Entries of one ledger, byte for byte from bookies that have them to those that are to have them. Many are under way at
//! a time, and never more bytes than there is room for. An entry is believed only by its digest, and the target's only
//! after it was read back. No metadata is read or changed here.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::replica::{Replicas, is_busy, is_of_ledger};
use super::report::{Report, Reports};
use crate::cluster::bookie::{BookieError, Digest};
use crate::cluster::ledger::LedgerMetadata;
use crate::drain::failpoint::{Failpoint, Failpoints};
use crate::drain::plan::fragment::Move;

/// Entries of one ledger under way at a time: the way to a bookie and its disk is hidden by some dozen.
const WINDOW: usize = 64;

/// Bytes of one ledger under way at a time.
const WINDOW_BYTES: usize = 8 << 20;

/// Room is given out in pieces of a KiB.
const PIECE: usize = 1 << 10;

/// Bytes of an entry beside what its owner wrote: header and the longest digest.
const OVERHEAD: usize = 52;

/// Ledgers up to so many bytes are read back whole. Of larger ones the first and last entry of each replica, and one of
/// so many others, by chance.
const WHOLE: u64 = 64 << 20;
const ONE_OF: u64 = 64;

/// Lost entries that are named; how many there are is told in any case.
const NAMED: usize = 100;

/// Room for bytes that are under way, of a ledger or of all.
#[derive(Debug, Clone)]
pub(super) struct Room {
    pieces: Arc<Semaphore>,
    size: usize,
}

impl Room {
    pub(super) fn new(bytes: usize) -> Room {
        let size = bytes.div_ceil(PIECE).max(1);
        Room {
            pieces: Arc::new(Semaphore::new(size)),
            size,
        }
    }

    /// An entry with more bytes than there is room for has all of it.
    fn pieces(&self, bytes: usize) -> u32 {
        let pieces = bytes.div_ceil(PIECE).clamp(1, self.size);
        u32::try_from(pieces).unwrap_or(u32::MAX)
    }

    async fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let pieces = Arc::clone(&self.pieces);
        pieces.acquire_many_owned(self.pieces(bytes)).await.ok()
    }

    fn take_now(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let pieces = Arc::clone(&self.pieces);
        pieces.try_acquire_many_owned(self.pieces(bytes)).ok()
    }
}

/// A replica that is to be on another bookie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Transfer {
    pub(super) what: Move,
    pub(super) target: String,
}

/// What is the same for all entries of a ledger.
pub(super) struct Copier {
    pub(super) replicas: Arc<Replicas>,
    pub(super) ledger: u64,
    pub(super) metadata: LedgerMetadata,
    pub(super) digest: Digest,
    pub(super) key: [u8; 20],
    /// Of all ledgers that are copied at a time.
    pub(super) room: Room,
    pub(super) own_room: Room,
    /// The largest entry so far, or what one has on average.
    pub(super) largest: AtomicUsize,
    /// Every entry is read back.
    pub(super) verify_all: bool,
    /// Which ones otherwise.
    pub(super) seed: u64,
    pub(super) counts: Arc<Counts>,
    pub(super) reports: Arc<Reports>,
    pub(super) failpoints: Failpoints,
}

/// What was copied.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) entries: AtomicU64,
    pub(super) bytes: AtomicU64,
}

/// What became of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Copied {
    /// All is there.
    Whole,
    /// These bookies did not take it, or not as it was; what others were to have is there.
    Refused(BTreeSet<String>),
    /// These entries are on none of the bookies that should have them.
    Lost(Lost),
    /// Something is not known, and may be another time.
    Later(String),
}

/// Entries that no bookie has any more.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    named: Vec<u64>,
    count: usize,
    why: String,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let named: Vec<_> = self.named.iter().map(u64::to_string).collect();
        let more = self.count - named.len();
        write!(f, "no bookie has {} intact", entries(self.count))?;
        write!(f, ": {}", named.join(", "))?;
        if 0 < more {
            write!(f, " and {more} more")?;
        }
        write!(f, " ({})", self.why)
    }
}

fn entries(count: usize) -> String {
    match count {
        1 => "1 entry".to_owned(),
        count => format!("{count} entries"),
    }
}

/// Why an entry was not copied.
enum Fault {
    Lost { entry: u64, why: String },
    Unread { why: String },
    Target { target: String },
}

/// An entry is where it should be.
struct There;

impl Copier {
    /// What an entry of that ledger has on average, where that is known.
    pub(super) fn average(metadata: &LedgerMetadata) -> usize {
        let count = metadata.last_entry.map_or(1, |last| last.saturating_add(1));
        let average = usize::try_from(metadata.length / count.max(1)).unwrap_or(usize::MAX);
        average.saturating_add(OVERHEAD).min(WINDOW_BYTES)
    }

    /// Room for one ledger.
    pub(super) fn own_room() -> Room {
        Room::new(WINDOW_BYTES)
    }

    /// Copies all entries of all these. When it is dropped, what is under way may still arrive.
    pub(super) async fn copy(self: &Arc<Copier>, transfers: &[Transfer]) -> Copied {
        let mut running = JoinSet::new();
        let mut end = Ended::default();
        // Where nobody knows how large entries are, the first is read alone, and twice as many after each turn: a window of
        // large ones would be read before they are counted.
        let mut width = if self.is_measured() { WINDOW } else { 1 };
        let window = Arc::new(Semaphore::new(width));
        for transfer in transfers {
            let mut ids = transfer.what.entries(&self.metadata).peekable();
            let mut is_first = true;
            while let Some(entry) = ids.next() {
                while let Some(done) = running.try_join_next() {
                    self.note(&mut end, done).await;
                    if width < WINDOW {
                        window.add_permits(1);
                        width += 1;
                    }
                }
                if end.later.is_some() {
                    break;
                }
                if end.refused.contains(&transfer.target) {
                    break;
                }
                let is_edge = std::mem::take(&mut is_first) || ids.peek().is_none();
                let read_back = is_edge || self.is_read_back(entry);
                let Ok(turn) = Arc::clone(&window).acquire_owned().await else {
                    break;
                };
                let about = self.about();
                let room = (self.own_room.take(about).await, self.room.take(about).await);
                let (copier, transfer) = (Arc::clone(self), transfer.clone());
                running.spawn(async move {
                    let _turn = turn;
                    copier.entry(&transfer, entry, about, room, read_back).await
                });
            }
        }
        while let Some(done) = running.join_next().await {
            self.note(&mut end, done).await;
        }
        end.into()
    }

    /// What an entry has at most, as far as that is known.
    pub(super) fn about(&self) -> usize {
        self.largest.load(Ordering::Relaxed)
    }

    fn is_measured(&self) -> bool {
        0 < self.metadata.length
    }

    fn is_read_back(&self, entry: u64) -> bool {
        self.verify_all
            || !self.is_measured()
            || self.metadata.length <= WHOLE
            || fastrand::Rng::with_seed(self.seed ^ entry).u64(..ONE_OF) == 0
    }

    async fn note(
        &self,
        end: &mut Ended,
        done: Result<Result<There, Fault>, tokio::task::JoinError>,
    ) {
        match done {
            Ok(Ok(There)) => self.failpoints.reach(Failpoint::PartCopied).await,
            Ok(Err(Fault::Target { target })) => {
                end.refused.insert(target);
            }
            Ok(Err(Fault::Unread { why })) => {
                end.later.get_or_insert(why);
            }
            Ok(Err(Fault::Lost { entry, why })) => {
                if end.lost.named.len() < NAMED && !end.lost.named.contains(&entry) {
                    end.lost.named.push(entry);
                }
                end.lost.count += 1;
                end.lost.why = why;
            }
            Err(error) => {
                end.later.get_or_insert(error.to_string());
            }
        }
    }

    /// One entry. There is room for `about` bytes of it.
    async fn entry(
        &self,
        transfer: &Transfer,
        entry: u64,
        about: usize,
        mut room: (Option<OwnedSemaphorePermit>, Option<OwnedSemaphorePermit>),
        read_back: bool,
    ) -> Result<There, Fault> {
        let mut raw = self.read(transfer, entry, about).await?;
        self.largest.fetch_max(raw.len(), Ordering::Relaxed);
        let mut more = None;
        if about < raw.len() {
            let rest = raw.len() - about;
            more = self.own_room.take_now(rest).zip(self.room.take_now(rest));
            if more.is_none() {
                // No room for what it turned out to be: it is read again when there is, so that nobody who has room
                // waits for somebody who waits for more.
                let bytes = raw.len();
                drop((raw, room));
                room = (self.own_room.take(bytes).await, self.room.take(bytes).await);
                raw = self.read(transfer, entry, bytes).await?;
            }
        }
        self.write(transfer, entry, &raw, read_back).await?;
        self.counts.entries.fetch_add(1, Ordering::Relaxed);
        let bytes = raw.len() as u64;
        self.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        drop((room, more));
        Ok(There)
    }

    /// From the bookie that it is moved away from, or from another one that should have it.
    async fn read(&self, transfer: &Transfer, entry: u64, about: usize) -> Result<Vec<u8>, Fault> {
        let source = transfer.what.old.as_str();
        let mut from = vec![source];
        let others = self.metadata.write_set(entry);
        from.extend(others.into_iter().filter(|other| *other != source));
        let (mut is_known, mut whys) = (true, Vec::new());
        for id in from {
            let why = match self.replicas.get(id).read(self.ledger, entry, about).await {
                Ok(raw) => match self.digest.open(self.ledger, Some(entry), &raw) {
                    Ok(_) => return Ok(raw),
                    Err(why) => {
                        self.report(id, entry, why.to_string());
                        why.to_string()
                    }
                },
                Err(error) => {
                    // That of another ledger is as bad as none; silence is not.
                    let is_answer = matches!(error, BookieError::Other { .. });
                    is_known &= error.is_absent() || is_answer;
                    if !is_busy(&error) && !error.is_absent() {
                        self.report(id, entry, error.to_string());
                    }
                    error.to_string()
                }
            };
            whys.push(format!("{id}: {why}"));
        }
        let why = whys.join(", ");
        Err(if is_known {
            Fault::Lost { entry, why }
        } else {
            let why = format!("entry {entry} cannot be read: {why}");
            Fault::Unread { why }
        })
    }

    async fn write(
        &self,
        transfer: &Transfer,
        entry: u64,
        raw: &[u8],
        read_back: bool,
    ) -> Result<(), Fault> {
        let target = self.replicas.get(&transfer.target);
        let fault = |why: String| {
            self.report(&transfer.target, entry, why);
            let target = transfer.target.clone();
            Err(Fault::Target { target })
        };
        if let Err(error) = target.add(self.ledger, entry, &self.key, raw).await {
            if is_busy(&error) {
                let why = format!("{} has too much to do", transfer.target);
                return Err(Fault::Unread { why });
            }
            if !is_of_ledger(&error) {
                self.replicas.rest(&transfer.target);
            }
            return fault(format!("it does not take it: {error}"));
        }
        if !read_back {
            return Ok(());
        }
        match target.read(self.ledger, entry, raw.len()).await {
            Ok(back) if back == raw => Ok(()),
            Ok(_) => fault("it gives back something else than it was given".to_owned()),
            Err(error) if is_busy(&error) => {
                let why = format!("{} has too much to do", transfer.target);
                Err(Fault::Unread { why })
            }
            Err(error) => fault(format!("it does not give back what it was given: {error}")),
        }
    }

    fn report(&self, bookie: &str, entry: u64, why: String) {
        self.reports.add(Report {
            bookie: bookie.to_owned(),
            ledger: self.ledger,
            entry,
            why,
        });
    }
}

#[derive(Default)]
struct Ended {
    refused: BTreeSet<String>,
    lost: Lost,
    later: Option<String>,
}

impl From<Ended> for Copied {
    fn from(ended: Ended) -> Copied {
        if let Some(why) = ended.later {
            return Copied::Later(why);
        }
        if 0 < ended.lost.count {
            let mut lost = ended.lost;
            lost.named.sort_unstable();
            return Copied::Lost(lost);
        }
        if ended.refused.is_empty() {
            Copied::Whole
        } else {
            Copied::Refused(ended.refused)
        }
    }
}

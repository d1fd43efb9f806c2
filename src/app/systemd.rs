//! What the service manager is told: that every directory was judged once, how it stands, that the
//! loop turns, that a reload goes on, that the agent stops. By a thread that may be lost, because a
//! service manager may be as stuck as anybody; what it does not take in time is not told.

use std::collections::BTreeMap;
use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::sync::{oneshot, watch};
use tokio::time;

use crate::document::words;
use crate::health::moment::Elapsed;
use crate::health::snapshot::Snapshot;
use crate::health::status::Status;

/// Messages that wait: the loop makes one each second, and older ones say nothing any more.
const QUEUE: usize = 8;

/// How often the watchdog is fed within its time: systemd advises half of it, and a turn may be late.
const FED_WITHIN: u32 = 3;

/// How long the end of the process waits for its last message: a thread that is only not scheduled needs no more.
const LAST_WORD: Duration = Duration::from_millis(100);

/// What is told at once, and who waits until it was.
type Message = (Vec<Word>, Option<oneshot::Sender<()>>);

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Word {
    Ready,
    Status(String),
    Watchdog,
    Reloading,
    Stopping,
}

/// Tells the service manager. Cheap to clone; without one nothing is told.
#[derive(Debug, Clone, Default)]
pub(super) struct Systemd {
    words: Option<SyncSender<Message>>,
    /// It was told that we are ready; a reload before that is none of its business.
    ready: Arc<AtomicBool>,
}

impl Systemd {
    /// Follows the snapshots, if this process was started by a service manager that wants to know.
    pub(super) fn start(mut snapshots: watch::Receiver<Arc<Snapshot>>) -> Systemd {
        if env::var_os("NOTIFY_SOCKET").is_none() {
            return Systemd::default();
        }
        let (words, queue) = mpsc::sync_channel(QUEUE);
        let told = thread::Builder::new()
            .name("systemd".to_owned())
            .spawn(move || {
                for message in queue {
                    let (words, told): Message = message;
                    tell(&words);
                    // Nobody waits for it any more, at worst.
                    let _ = told.map(|told| told.send(()));
                }
            });
        if let Err(error) = told {
            tracing::warn!("the service manager cannot be told anything: {error}");
            return Systemd::default();
        }
        let systemd = Systemd {
            words: Some(words),
            ready: Arc::default(),
        };
        let its = systemd.clone();
        let mut turns = Turns::new(sd_notify::watchdog_enabled());
        tokio::spawn(async move {
            loop {
                let words = turns.take(&snapshots.borrow_and_update());
                its.ready.store(turns.ready, Ordering::Relaxed);
                its.say(words, None);
                if snapshots.changed().await.is_err() {
                    return;
                }
            }
        });
        systemd
    }

    pub(super) fn reloading(&self) {
        if self.ready.load(Ordering::Relaxed) {
            self.say(vec![Word::Reloading], None);
        }
    }

    /// The reload is over, well or not.
    pub(super) fn reloaded(&self) {
        if self.ready.load(Ordering::Relaxed) {
            self.say(vec![Word::Ready], None);
        }
    }

    /// Waits a moment until it was told: the process may end next, and its threads with it.
    pub(super) async fn stopping(&self) {
        let status = Word::Status("stopping".to_owned());
        let (told, is_told) = oneshot::channel();
        self.say(vec![Word::Stopping, status], Some(told));
        let _ = time::timeout(LAST_WORD, is_told).await;
    }

    fn say(&self, said: Vec<Word>, told: Option<oneshot::Sender<()>>) {
        if let Some(words) = self.words.as_ref().filter(|_| !said.is_empty()) {
            // One that is stuck is not waited for.
            let _ = words.try_send((said, told));
        }
    }
}

fn tell(words: &[Word]) {
    let mut states = Vec::new();
    for word in words {
        match word {
            Word::Ready => states.push(NotifyState::Ready),
            Word::Status(text) => states.push(NotifyState::Status(text)),
            Word::Watchdog => states.push(NotifyState::Watchdog),
            Word::Stopping => states.push(NotifyState::Stopping),
            Word::Reloading => {
                states.push(NotifyState::Reloading);
                states.extend(NotifyState::monotonic_usec_now());
            }
        }
    }
    if let Err(error) = sd_notify::notify(&states) {
        tracing::debug!("the service manager was not told: {error}");
    }
}

/// What follows from each turn of the loop.
struct Turns {
    watchdog: Option<Duration>,
    fed: Option<Elapsed>,
    ready: bool,
    status: String,
}

impl Turns {
    fn new(watchdog: Option<Duration>) -> Turns {
        Turns {
            watchdog,
            fed: None,
            ready: false,
            status: String::new(),
        }
    }

    fn take(&mut self, snapshot: &Snapshot) -> Vec<Word> {
        let mut words = Vec::new();
        if snapshot.ready && !self.ready {
            self.ready = true;
            words.push(Word::Ready);
        }
        let status = sentence(snapshot);
        if self.status != status {
            self.status.clone_from(&status);
            words.push(Word::Status(status));
        }
        if let Some(watchdog) = self.watchdog {
            let due = self.fed.map(|fed| fed + watchdog / FED_WITHIN);
            // The snapshot's own time: only a turn of the loop makes a new one.
            if due.is_none_or(|due| due <= snapshot.elapsed) {
                self.fed = Some(snapshot.elapsed);
                words.push(Word::Watchdog);
            }
        }
        words
    }
}

/// How it stands, in one sentence.
fn sentence(snapshot: &Snapshot) -> String {
    let count = snapshot.dirs.len();
    let directories = if count == 1 {
        "directory"
    } else {
        "directories"
    };
    if !snapshot.ready {
        return format!("judging {count} {directories} for the first time");
    }
    let mut counts: BTreeMap<Status, usize> = BTreeMap::new();
    for dir in &snapshot.dirs {
        *counts.entry(dir.status).or_default() += 1;
    }
    // The worst first.
    let parts = counts.iter().rev();
    let parts = parts.map(|(status, count)| format!("{count} {}", words(status.name())));
    let parts = parts.collect::<Vec<_>>().join(", ");
    let mode = match snapshot.mode.wanted {
        Some(mode) => format!("; wanted mode: {}", words(mode.name())),
        None => String::new(),
    };
    format!("watching {count} {directories}: {parts}{mode}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::sample;

    #[test]
    fn a_turn_feeds_the_watchdog_and_a_standstill_does_not() {
        let mut turns = Turns::new(Some(Duration::from_secs(3)));
        let mut snapshot = sample::snapshot();
        snapshot.ready = false;
        let count = snapshot.dirs.len();
        let status = Word::Status(format!("judging {count} directories for the first time"));
        assert_eq!(turns.take(&snapshot), [status, Word::Watchdog]);
        assert_eq!(turns.take(&snapshot), []);
        snapshot.elapsed += Duration::from_millis(999);
        assert_eq!(turns.take(&snapshot), []);
        snapshot.elapsed += Duration::from_millis(1);
        assert_eq!(turns.take(&snapshot), [Word::Watchdog]);
        snapshot.ready = true;
        let words = turns.take(&snapshot);
        assert_eq!(words[0], Word::Ready);
        assert_eq!(words[1], Word::Status(sentence(&snapshot)));
        assert_eq!(words.len(), 2);
    }

    #[test]
    fn the_status_is_one_sentence_with_the_worst_first() {
        let mut snapshot = sample::snapshot();
        snapshot.ready = true;
        let said = sentence(&snapshot);
        assert!(said.starts_with("watching "), "{said}");
        assert!(!said.contains('\n'), "{said}");
        snapshot.dirs.truncate(0);
        snapshot.mode.wanted = None;
        assert_eq!(sentence(&snapshot), "watching 0 directories: ");
    }
}

//! The task that listens to the bookie: asks its admin server for the state each second and for
//! compaction and garbage collection each half minute, looks for its process, and hands on what it
//! hears. It decides nothing.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::admin::{AdminClient, AdminError};
use super::process::{Found, ProcessWatch};
use crate::clock::Clock;
use crate::health::beside::{BookieState, Heard};
use crate::health::moment::Elapsed;
use crate::report;

/// Between two questions for the state: a change of mode is seen within the second.
const BEAT: Duration = Duration::from_secs(1);

/// Beats between two rounds of the slower questions; they change in minutes.
const SLOW_BEATS: u64 = 30;

/// Beats between two looks at the process when nothing hints at a change.
const PROCESS_BEATS: u64 = 10;

/// The newest state, and when it was asked for.
pub type NewestState = Option<(Elapsed, Result<BookieState, String>)>;

/// Whom to watch.
#[derive(Debug, Clone, Default)]
pub struct WatchOptions {
    /// The bookie's own file, which its command line names; without it the machine's only bookie.
    pub conf: Option<PathBuf>,
}

/// Starts the task on the present runtime. It ends when the last receiver is dropped, within a few
/// seconds. `heard` is called from it and must not block. Without an admin client only the process
/// is watched.
pub fn start(
    options: WatchOptions,
    admin: impl Into<Option<AdminClient>>,
    heard: impl Fn(Heard) + Send + Sync + 'static,
    clock: Clock,
) -> watch::Receiver<NewestState> {
    let (newest, receiver) = watch::channel(None);
    let admin = admin.into().map(|admin| admin.polling());
    let task = Task {
        admin,
        heard,
        clock,
        newest,
        answers: false,
    };
    tokio::spawn(task.run(options));
    receiver
}

struct Task<H> {
    admin: Option<AdminClient>,
    heard: H,
    clock: Clock,
    newest: watch::Sender<NewestState>,
    /// The newest question for the state was answered.
    answers: bool,
}

impl<H: Fn(Heard)> Task<H> {
    async fn run(mut self, options: WatchOptions) {
        let mut processes = match ProcessWatch::start(options.conf) {
            Ok(processes) => Some(processes),
            Err(error) => {
                let text = format!("no thread can look for the bookie's process: {error}");
                (self.heard)(Heard::Process(Err(text)));
                None
            }
        };
        let mut beats = tokio::time::interval(BEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut beat = 0;
        loop {
            tokio::select! {
                _ = beats.tick() => {
                    let answered = self.answers;
                    self.ask(beat).await;
                    // A bookie that begins or ceases to answer has most likely started or ended.
                    let hint = answered != self.answers;
                    if let Some(processes) = &mut processes
                        && (hint || beat % PROCESS_BEATS == 0)
                        && let Some(found) = processes.ask(self.clock.elapsed(), hint)
                    {
                        self.hear_process(found);
                    }
                    beat += 1;
                }
                found = next(&mut processes) => self.hear_process(found),
                () = self.newest.closed() => return,
            }
        }
    }

    async fn ask(&mut self, beat: u64) {
        let Some(admin) = self.admin.clone() else {
            return;
        };
        let asked = self.clock.elapsed();
        if let Some(state) = said(admin.state().await) {
            self.answers = state.is_ok();
            self.newest.send_replace(Some((asked, state.clone())));
            (self.heard)(Heard::State(state));
        }
        // One of them in a beat, so that the state is never late by more than one answer.
        let slow = match beat % SLOW_BEATS {
            1 => said(admin.compaction().await).map(Heard::Compaction),
            2 => said(admin.gc_details().await).map(Heard::Gc),
            3 => said(admin.forced_gc().await).map(Heard::ForcedGc),
            _ => None,
        };
        if let Some(slow) = slow {
            (self.heard)(slow);
        }
    }

    fn hear_process(&self, found: Found) {
        let found = match found {
            Ok(None) if self.answers => Err(HIDDEN.to_owned()),
            found => found,
        };
        (self.heard)(Heard::Process(found));
    }
}

/// Why there is no process although somebody answers.
const HIDDEN: &str = "a bookie answers, and its process cannot be seen from here: it runs on another \
    machine or in another PID name space, /proc is mounted with hidepid, or its command line names \
    another file than bookie.conf";

async fn next(processes: &mut Option<ProcessWatch>) -> Found {
    match processes {
        Some(processes) => processes.found().await,
        None => std::future::pending().await,
    }
}

/// The answer in words; none where nothing was asked.
fn said<T>(answer: Result<T, AdminError>) -> Option<Result<T, String>> {
    match answer {
        Ok(answer) => Some(Ok(answer)),
        Err(error) if error.was_not_asked() => None,
        Err(error) => Some(Err(report::text(&error))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::mpsc::{self, UnboundedReceiver};

    use super::*;
    use crate::bookie::admin::AdminOptions;
    use crate::bookie::stub::{Reply, Stub};

    const DEADLINE: Duration = Duration::from_secs(30);

    /// Skips what comes before the first that passes.
    async fn hear(
        heard: &mut UnboundedReceiver<Heard>,
        what: &str,
        is_it: impl Fn(&Heard) -> bool,
    ) -> Heard {
        let search = async {
            loop {
                let next = heard.recv().await.unwrap();
                if is_it(&next) {
                    return next;
                }
            }
        };
        let found = tokio::time::timeout(DEADLINE, search).await;
        found.unwrap_or_else(|_| panic!("not heard: {what}"))
    }

    #[tokio::test]
    async fn a_bookie_is_listened_to_until_nobody_listens_to_that() {
        let hangs = Arc::new(AtomicBool::new(false));
        let silent = Arc::clone(&hangs);
        let stub = Stub::start(None, move |asked| match asked.rsplit('/').next() {
            _ if silent.load(Ordering::SeqCst) => Reply::Silence,
            Some("state") => {
                Reply::json(r#"{"running":true,"readOnly":true,"shuttingDown":false}"#)
            }
            Some("gc") => Reply::json(r#"{"is_in_force_gc":"false"}"#),
            Some("gc_details") => Reply::json("[]"),
            _ => Reply::Body(404, String::new()),
        })
        .await;
        let admin = AdminClient::new(AdminOptions {
            url: format!("http://localhost:{}", stub.port),
            ..AdminOptions::default()
        });
        let (says, mut heard) = mpsc::unbounded_channel();
        let options = WatchOptions {
            conf: Some("/no/such/bk_server.conf".into()),
        };
        let say = move |heard| says.send(heard).unwrap();
        let mut newest = start(options, admin.unwrap(), say, Clock::start());

        let state = hear(&mut heard, "state", |heard| {
            matches!(heard, Heard::State(_))
        });
        let Heard::State(Ok(state)) = state.await else {
            panic!("{newest:?}");
        };
        assert!(state.running && state.read_only);
        let (first, now) = newest.borrow_and_update().clone().unwrap();
        assert_eq!(now, Ok(state));
        // Whose process it is cannot be known.
        let is_process = |heard: &Heard| matches!(heard, Heard::Process(Err(_)));
        hear(&mut heard, "process", is_process).await;
        for slow in [Heard::Compaction(Ok(None)), Heard::Gc(Ok(Vec::new()))] {
            hear(&mut heard, "slow question", |heard| *heard == slow).await;
        }
        hear(&mut heard, "gc", |heard| {
            *heard == Heard::ForcedGc(Ok(false))
        })
        .await;

        hangs.store(true, Ordering::SeqCst);
        let is_lost = |heard: &Heard| matches!(heard, Heard::State(Err(_)));
        hear(&mut heard, "loss", is_lost).await;
        let (last, lost) = newest.borrow_and_update().clone().unwrap();
        assert!(first < last && lost.is_err(), "{lost:?}");
        assert_eq!(stub.most_in_flight(), 1);

        drop(newest);
        let end = async { while heard.recv().await.is_some() {} };
        tokio::time::timeout(DEADLINE, end).await.unwrap();
    }
}

//! Keeps a prober alive: starts it, passes requests on, turns its answers into reports, kills it
//! when it says nothing, and starts the next one. Nothing here ever waits for a child: one that
//! cannot end is left behind and counted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::backoff::Backoff;
use crate::child::Spawned;
use crate::clock::Clock;
use crate::health::ballast::Order;
use crate::health::dir::DirId;
use crate::health::observation::{InFlight, Look, Observation};

use super::children::{self, Ended};
use super::known::KnownDirs;
use super::link::{End, Link};
use super::process::{Command, LookKind, ProberOptions, Report, Shared};
use super::wire::{
    Answer, KernelSource, Kind, Reading, Request, VERSION, operation_of, pressure_of,
};

/// Time between two looks at the clock.
const TICK: Duration = Duration::from_millis(500);

/// The most that one gap between ticks counts: twice the usual one. What goes beyond was a pause of
/// the agent itself, during which it could not have heard anything.
const MAX_GAP: Duration = Duration::from_secs(1);

/// A prober that says nothing for so long is lost: ten heartbeats.
const MAX_SILENCE: Duration = Duration::from_secs(5);

/// After so much silence we look whether the process is still there: two heartbeats.
const SUSPICIOUS_SILENCE: Duration = Duration::from_secs(1);

/// Waits before a restart: a crash of ours is over within one look at the space, and a program that
/// crashes at once costs a start a second.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_millis(800);

/// A child that served so long was a good one: the waits begin anew after it.
const GOOD_SERVICE: Duration = Duration::from_secs(30);

/// After so many starts in a row without a greeting the program itself is wrong (replaced by
/// another version, not executable), and trying each second would only fill the log.
const MAX_QUICK_STARTS: u32 = 10;
const SLOW_WAIT: Duration = Duration::from_secs(10);

/// How long a killed child may take to end before it counts as stuck: the kernel needs a
/// millisecond when nothing holds it.
const END_LIMIT: Duration = Duration::from_millis(200);
const END_STEP: Duration = Duration::from_millis(5);

/// A program that was not executed after so long lies on a disk that does not answer.
const START_LIMIT: Duration = Duration::from_secs(5);

/// The task behind [`super::process::Prober`].
pub(super) struct Supervisor {
    pub(super) options: ProberOptions,
    pub(super) clock: Clock,
    pub(super) reports: mpsc::Sender<Report>,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) shared: Arc<Shared>,
    pub(super) dirs: KnownDirs,
}

/// One child while it serves.
struct Service {
    number: u64,
    link: Link,
    /// Time since it said something, on a clock that pauses of the agent do not move.
    silence: Duration,
    /// When it said that it is there.
    greeted: Option<Duration>,
}

impl Supervisor {
    /// Serves until nobody listens any more or the task is aborted.
    pub(super) async fn run(mut self) {
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        let mut silent_starts = 0;
        for number in 1.. {
            let (End::Lost(reason), served, silent) = self.one_child(number).await else {
                return;
            };
            let how = self.bury().await;
            silent_starts = if served.is_some() {
                0
            } else {
                silent_starts + 1
            };
            if served.is_some_and(|served| GOOD_SERVICE <= served) {
                backoff.reset();
            }
            self.shared.restarts.fetch_add(1, Ordering::Relaxed);
            if self.lost(format!("{reason}{how}"), silent).await.is_err() {
                return;
            }
            let wait = if silent_starts < MAX_QUICK_STARTS {
                backoff.next_wait(fastrand::f64())
            } else {
                SLOW_WAIT
            };
            self.meanwhile(sleep(wait)).await;
        }
    }

    /// One child from its start to its loss: why it was lost, for how long it served, and whether
    /// it was silent at the end.
    async fn one_child(&mut self, number: u64) -> (End, Option<Duration>, bool) {
        let link = match self.start_child().await {
            Ok(link) => link,
            Err(end) => return (end, None, false),
        };
        let mut service = Service {
            number,
            link,
            silence: Duration::ZERO,
            greeted: None,
        };
        let end = self.serve(&mut service).await;
        let since = |at| self.clock.elapsed().saturating_sub(at);
        let silent = MAX_SILENCE <= service.silence;
        (end, service.greeted.map(since), silent)
    }

    async fn start_child(&mut self) -> Result<Link, End> {
        let program = self.options.program.display().to_string();
        let mut started = children::start(&self.options);
        let spawned = match self.meanwhile(timeout(START_LIMIT, &mut started)).await {
            Ok(spawned) => spawned,
            Err(_) => {
                let reason = format!("{program} is not executed: its disk does not answer");
                self.lost(reason, true).await?;
                // A second attempt would get stuck as well.
                self.meanwhile(started).await
            }
        };
        let why = match spawned {
            Ok(Ok(Spawned { process, to, from })) => {
                self.shared.children().serve(process);
                return self.introduce(Link::new(to, from)?);
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no thread for it".to_owned(),
        };
        Err(End::Lost(format!("{program} cannot be started: {why}")))
    }

    /// Tells a new child what to watch.
    fn introduce(&mut self, mut link: Link) -> Result<Link, End> {
        link.ask(&Request::Greeting {
            version: VERSION,
            lock_memory: self.options.lock_memory,
        })?;
        for (dir, known) in &mut self.dirs.0 {
            known.void_look();
            link.ask(&known.watch(*dir))?;
        }
        Ok(link)
    }

    /// Lets something take its time without leaving commands unheard. Looks asked for meanwhile
    /// are void, as all are before the next [`Report::Alive`].
    async fn meanwhile<T>(&mut self, something: impl Future<Output = T>) -> T {
        let mut something = std::pin::pin!(something);
        loop {
            tokio::select! {
                output = &mut something => return output,
                Some(command) = self.commands.recv() => match command {
                    Command::Look(..) => {}
                    Command::Configure(dirs) => drop(self.dirs.adopt(dirs)),
                    Command::Resolve(dir) => drop(self.dirs.forget_place(dir)),
                }
            }
        }
    }

    async fn serve(&mut self, service: &mut Service) -> End {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = self.clock.elapsed();
        loop {
            let result = tokio::select! {
                Some(command) = self.commands.recv() => self.take_all(command, &mut service.link),
                open = service.link.turn() => match open {
                    Ok(true) => self.hear(service).await,
                    Ok(false) => Err(End::Lost("the prober ended".to_owned())),
                    Err(error) => Err(error.into()),
                },
                _ = ticks.tick() => {
                    let now = self.clock.elapsed();
                    let gap = now.saturating_sub(last).min(MAX_GAP);
                    last = now;
                    self.tick(service, gap).await
                }
            };
            if let Err(end) = result {
                return end;
            }
        }
    }

    /// Takes a command and those that came with it, and sends what follows at one go.
    fn take_all(&mut self, command: Command, link: &mut Link) -> Result<(), End> {
        self.take(command, link)?;
        while let Ok(command) = self.commands.try_recv() {
            self.take(command, link)?;
        }
        Ok(link.send()?)
    }

    fn take(&mut self, command: Command, link: &mut Link) -> Result<(), End> {
        match command {
            Command::Look(dir, kind) => return self.ask_for_look(dir, kind, link),
            Command::Configure(dirs) => {
                for dir in self.dirs.adopt(dirs) {
                    link.ask(&match self.dirs.0.get(&dir) {
                        Some(known) => known.watch(dir),
                        None => Request::Unwatch { dir: dir.0 },
                    })?;
                }
            }
            Command::Resolve(dir) => {
                if self.dirs.forget_place(dir) {
                    link.ask(&Request::Resolve { dir: dir.0 })?;
                }
            }
        }
        Ok(())
    }

    fn ask_for_look(&mut self, dir: DirId, kind: LookKind, link: &mut Link) -> Result<(), End> {
        let Some(known) = self.dirs.0.get_mut(&dir) else {
            return Ok(());
        };
        if self.shared.children().holds(dir) {
            known.held = Some(kind);
            return Ok(());
        }
        known.held = None;
        known.in_flight = None;
        known.asked = Some(self.clock.elapsed());
        link.ask(&Request::Look {
            dir: dir.0,
            kind: match kind {
                LookKind::Space => Kind::Space,
                LookKind::Full { probe: false, .. } => Kind::Full,
                LookKind::Full { probe: true, .. } => Kind::Probe,
            },
            expected: known.seen,
            ballast: match kind {
                LookKind::Space => Order::None.into(),
                LookKind::Full { ballast, .. } => ballast.into(),
            },
        })
    }

    async fn hear(&mut self, service: &mut Service) -> Result<(), End> {
        while let Some(answer) = service.link.next_answer()? {
            service.silence = Duration::ZERO;
            self.shared.listens.store(true, Ordering::Relaxed);
            if service.greeted.is_some() {
                self.report(answer).await?;
            } else if answer == (Answer::Greeting { version: VERSION }) {
                service.greeted = Some(self.clock.elapsed());
                self.void_looks(&mut service.link)?;
                let child = service.number;
                self.say(Report::Alive { child }).await?;
            } else {
                let program = self.options.program.display();
                let text = "is of another version than this agent, which must be restarted";
                return Err(End::Lost(format!("{program} {text}")));
            }
        }
        Ok(())
    }

    /// What was asked before this child said that it is there will be asked again.
    fn void_looks(&mut self, link: &mut Link) -> Result<(), End> {
        while let Ok(command) = self.commands.try_recv() {
            if !matches!(command, Command::Look(..)) {
                self.take(command, link)?;
            }
        }
        Ok(())
    }

    /// Passes an answer on; one about a directory that is not watched any more is dropped.
    async fn report(&mut self, answer: Answer) -> Result<(), End> {
        let mut read_back = None;
        let (dir, observation) = match answer {
            Answer::Greeting { .. } | Answer::Heartbeat => return Ok(()),
            Answer::Signal { dir, what } if self.dirs.0.contains_key(&DirId(dir)) => {
                let dir = DirId(dir);
                return self.say(Report::Signal { dir, what }).await;
            }
            Answer::Signal { .. } => return Ok(()),
            Answer::Sources { dir, sources } => return self.sources(DirId(dir), sources).await,
            Answer::Looked { dir, look, reading } => {
                read_back = reading;
                (dir, Observation::Looked(Look::from(look)))
            }
            Answer::Mounted { dir, mount } => (dir, Observation::Mounted(mount.into())),
            Answer::Stalled { dir, what } => (dir, Observation::Stalled(what)),
            Answer::Recorded { dir, what } => (dir, Observation::Recorded(what)),
            Answer::FileSystemError { dir, what } => (dir, Observation::FileSystemError(what)),
            Answer::InFlight {
                dir,
                operation,
                age,
                device_writes,
                stalled,
                pressure,
                behind,
            } => {
                let behind = behind.and_then(|other| self.dirs.0.get(&DirId(other)));
                let in_flight = InFlight {
                    operation: operation_of(operation),
                    age,
                    device_writes,
                    stalled,
                    pressure: pressure.map(pressure_of),
                    behind: behind.map(|other| other.watched.path.clone()),
                };
                (dir, Observation::InFlight(in_flight))
            }
        };
        self.observed(DirId(dir), observation, read_back).await
    }

    async fn observed(
        &mut self,
        dir: DirId,
        observation: Observation,
        read_back: Option<Reading>,
    ) -> Result<(), End> {
        let Some(known) = self.dirs.0.get_mut(&dir) else {
            return Ok(());
        };
        let before = known.sources();
        match &observation {
            Observation::Looked(look) => known.looked(look, read_back),
            Observation::InFlight(in_flight) => known.in_flight = Some(in_flight.clone()),
            Observation::Mounted(_) => known.mounted(),
            _ => {}
        }
        let sources = known.sources();
        self.say(Report::Observed { dir, observation }).await?;
        if sources != before {
            self.say(Report::Sources { dir, sources }).await?;
        }
        Ok(())
    }

    async fn sources(
        &mut self,
        dir: DirId,
        sources: Vec<(KernelSource, Option<String>)>,
    ) -> Result<(), End> {
        let Some(known) = self.dirs.0.get_mut(&dir) else {
            return Ok(());
        };
        known.kernel(sources);
        let sources = known.sources();
        self.say(Report::Sources { dir, sources }).await
    }

    async fn say(&self, report: Report) -> Result<(), End> {
        self.reports.send(report).await.map_err(|_| End::Unheard)
    }

    async fn lost(&self, reason: String, silent: bool) -> Result<(), End> {
        let restarts = self.shared.restarts.load(Ordering::Relaxed);
        self.say(Report::Lost {
            reason,
            silent,
            restarts,
        })
        .await
    }

    async fn tick(&mut self, service: &mut Service, gap: Duration) -> Result<(), End> {
        self.shared.children().reap();
        if self.shared.overflow.swap(false, Ordering::Relaxed) {
            let reason = "more was asked than the prober can take";
            return Err(End::Lost(reason.to_owned()));
        }
        service.silence += gap;
        if MAX_SILENCE <= service.silence {
            let seconds = MAX_SILENCE.as_secs();
            return Err(End::Lost(format!(
                "the prober said nothing for {seconds} s"
            )));
        }
        if SUSPICIOUS_SILENCE <= service.silence {
            self.shared.listens.store(false, Ordering::Relaxed);
            if self.shared.children().is_headless() {
                return Err(End::Lost("the prober ended".to_owned()));
            }
        }
        self.speak_for_held(&mut service.link, gap).await
    }

    /// Speaks for the directories that no child is asked about: what got an abandoned child stuck
    /// goes on for as long as that child does not end.
    async fn speak_for_held(&mut self, link: &mut Link, gap: Duration) -> Result<(), End> {
        for (dir, kind) in self.dirs.held() {
            if !self.shared.children().holds(dir) {
                self.ask_for_look(dir, kind, link)?;
                continue;
            }
            let in_flight = self.dirs.0.get_mut(&dir).map(|known| known.age(gap));
            if let Some(observation) = in_flight.map(Observation::InFlight) {
                self.say(Report::Observed { dir, observation }).await?;
            }
        }
        Ok(())
    }

    /// Kills the child and gives it a moment to end; else it is abandoned. Says how it ended.
    async fn bury(&mut self) -> String {
        self.shared.listens.store(false, Ordering::Relaxed);
        self.shared.children().kill();
        let mut waited = Duration::ZERO;
        while waited < END_LIMIT {
            match self.shared.children().ended() {
                Ended::Not => {}
                Ended::With(status) => return format!(" ({status})"),
                Ended::NoChild => return String::new(),
            }
            sleep(END_STEP).await;
            waited += END_STEP;
        }
        let stuck = self.dirs.stuck(self.clock.elapsed());
        self.shared.children().abandon(stuck);
        " (it cannot end: a disk holds it)".to_owned()
    }
}

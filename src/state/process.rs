//! The writer child's life: started, talked to, restarted when it ends, left behind when it is
//! stuck. One task of the agent's runtime; it never waits for a disk or for the child's end.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::StoreOptions;
use super::shared::Shared;
use super::wire::{self, Answer, FRAME_LIMIT, VERSION};
use super::writer::BEAT;
use crate::backoff::Backoff;
use crate::child::{self, Spawned, frame};

/// Silence for so long is a hang: two beats and some room for a busy machine, and still below the
/// second within which lost durability has to be known.
const SILENCE: Duration = Duration::from_millis(900);

const _: () = assert!(2 * BEAT.as_millis() < SILENCE.as_millis());

/// After so many times [`SILENCE`], half a minute, a stuck writer is left behind for another one,
/// which may find a new disk mounted there. Not earlier: after a freeze the old one goes on at once.
const ABANDON_TURNS: u32 = 33;

/// The same, ten minutes, while the file is not open: opening reads all of it, and one that is large
/// on a slow disk must not be interrupted again and again.
const ABANDON_OPENING_TURNS: u32 = 667;

/// So many stuck writers are left behind at most; the next one is waited for. Each holds about a
/// megabyte.
const ABANDONED_LIMIT: usize = 2;

/// Waits between a crash and the restart.
const RESTART_FIRST: Duration = Duration::from_millis(50);
const RESTART_LIMIT: Duration = Duration::from_millis(800);

/// How long the end of a child that closed its pipe is waited for, and how often it is asked.
const REAP_TURNS: u32 = 50;
const REAP_TURN: Duration = Duration::from_millis(10);

/// Bytes of messages prepared at once: a pipe takes no more.
const SEND_AHEAD: usize = 64 * 1024;

/// Starts the writer again and again, until the store is stopped.
pub(super) async fn supervise(shared: Arc<Shared>, options: StoreOptions) {
    let mut backoff = Backoff::new(RESTART_FIRST, RESTART_LIMIT);
    let mut abandoned: Vec<Child> = Vec::new();
    loop {
        let why = match start(&shared, &options).await {
            Start::Stopped => return,
            Start::Failed(error) => format!("cannot be started: {error}"),
            Start::Done(Spawned { process, to, from }) => {
                let (end, was_ready) = match Talk::new(&shared, &options, to, from) {
                    Ok(mut talk) => (talk.run(&mut abandoned).await, talk.was_ready),
                    Err(error) => (End::Broken(format!("has no pipes: {error}")), false),
                };
                // Its pipes are closed now, at which a writer ends.
                let why = reap(process, &end, &mut abandoned).await;
                if matches!(end, End::Stopped) {
                    return;
                }
                if was_ready {
                    backoff.reset();
                }
                why
            }
        };
        shared.writer_is_gone(why);
        {
            let mut core = shared.core();
            core.restarts += 1;
            core.abandoned = abandoned.len() as u64;
        }
        let wait = sleep(backoff.next_wait(fastrand::f64()));
        tokio::pin!(wait);
        while !shared.core().stopped {
            tokio::select! {
                () = &mut wait => break,
                () = shared.work() => {}
            }
        }
    }
}

enum Start {
    Done(Spawned),
    Failed(io::Error),
    Stopped,
}

/// Starts the child from a thread that may be lost: a dead disk under the program holds it.
async fn start(shared: &Shared, options: &StoreOptions) -> Start {
    let (sender, mut started) = oneshot::channel();
    let program = options.program.clone();
    let arguments = [options.state_dir.clone().into_os_string()];
    let thread = std::thread::Builder::new()
        .name("writer-start".to_owned())
        .stack_size(128 * 1024)
        .spawn(move || {
            // Nobody waits for it any more: dropping it closes its pipes, and it ends.
            let _ = sender.send(child::spawn(&program, super::KIND, &arguments));
        });
    if let Err(error) = thread {
        return Start::Failed(error);
    }
    while !shared.core().stopped {
        tokio::select! {
            spawned = &mut started => {
                return match spawned {
                    Ok(Ok(spawned)) => Start::Done(spawned),
                    Ok(Err(error)) => Start::Failed(error),
                    Err(_) => Start::Failed(io::Error::other("its thread ended")),
                };
            }
            () = shared.work() => {}
        }
    }
    Start::Stopped
}

enum End {
    Stopped,
    /// The child closed its pipe, or said something that cannot be understood.
    Broken(String),
    /// It is stuck.
    Stuck,
}

/// Gives the child a moment to end; one that does not is killed, and left behind if it is stuck.
async fn reap(mut process: Child, end: &End, abandoned: &mut Vec<Child>) -> String {
    if let End::Stuck = end {
        // If its disk ever answers, it has nothing to do there any more.
        let _ = process.kill();
    }
    let mut status = None;
    for _ in 0..REAP_TURNS {
        status = process.try_wait().ok().flatten();
        if status.is_some() {
            break;
        }
        sleep(REAP_TURN).await;
    }
    let ended = match end {
        End::Broken(why) => why.as_str(),
        End::Stuck | End::Stopped => "was stuck",
    };
    remove_ended(abandoned);
    match status {
        Some(status) => format!("{ended} ({status})"),
        None => {
            if let End::Broken(_) = end {
                let _ = process.kill();
            }
            abandoned.push(process);
            format!("{ended} and is left behind")
        }
    }
}

/// The conversation with one child.
struct Talk<'s> {
    shared: &'s Shared,
    to: pipe::Sender,
    from: pipe::Receiver,
    decoder: frame::Decoder,
    outgoing: Vec<u8>,
    was_ready: bool,
    is_open: bool,
}

impl<'s> Talk<'s> {
    fn new(
        shared: &'s Shared,
        options: &StoreOptions,
        to: OwnedFd,
        from: OwnedFd,
    ) -> io::Result<Talk<'s>> {
        Ok(Talk {
            shared,
            to: pipe::Sender::from_owned_fd(to)?,
            from: pipe::Receiver::from_owned_fd(from)?,
            decoder: frame::Decoder::default(),
            outgoing: wire::encode(&shared.core().hello(options))?,
            was_ready: false,
            is_open: false,
        })
    }

    async fn run(&mut self, abandoned: &mut Vec<Child>) -> End {
        let mut piece = Vec::with_capacity(4096);
        let mut silent_turns = 0;
        let alarm = sleep(SILENCE);
        tokio::pin!(alarm);
        loop {
            if self.shared.core().stopped {
                return End::Stopped;
            }
            if let Err(error) = self.prepare() {
                return End::Broken(format!("cannot be told what to write: {error}"));
            }
            // What was said counts before the time that passed: this process may have been asleep.
            tokio::select! {
                biased;
                read = self.from.read_buf(&mut piece) => match read {
                    Ok(0) => return End::Broken("ended".to_owned()),
                    Ok(_) => {
                        silent_turns = 0;
                        alarm.set(sleep(SILENCE));
                        if let Err(error) = self.listen(&piece) {
                            return End::Broken(format!("is not understood: {error}"));
                        }
                        piece.clear();
                    }
                    Err(error) => return End::Broken(format!("cannot be heard: {error}")),
                },
                written = self.to.write(&self.outgoing), if !self.outgoing.is_empty() => {
                    match written {
                        Ok(count) => drop(self.outgoing.drain(..count)),
                        Err(error) => return End::Broken(format!("ended: {error}")),
                    }
                }
                () = self.shared.work() => {}
                () = &mut alarm => {
                    self.shared.writer_is_silent();
                    silent_turns += 1;
                    alarm.set(sleep(SILENCE));
                    remove_ended(abandoned);
                    self.shared.core().abandoned = abandoned.len() as u64;
                    let limit = if self.is_open {
                        ABANDON_TURNS
                    } else {
                        ABANDON_OPENING_TURNS
                    };
                    if limit <= silent_turns && abandoned.len() < ABANDONED_LIMIT {
                        return End::Stuck;
                    }
                }
            }
        }
    }

    /// Puts what is to be said into frames.
    fn prepare(&mut self) -> io::Result<()> {
        while self.outgoing.len() < SEND_AHEAD {
            let Some(request) = self.shared.core().next_request() else {
                break;
            };
            self.outgoing.extend(wire::encode(&request)?);
        }
        Ok(())
    }

    /// Takes in what the child says.
    fn listen(&mut self, piece: &[u8]) -> io::Result<()> {
        self.decoder.push(piece);
        while let Some(body) = self.decoder.next_frame(FRAME_LIMIT)? {
            let answer = wire::decode(&body)?;
            match answer {
                Answer::Greeting { version } if version != VERSION => {
                    let text = format!("it speaks version {version}, not {VERSION}");
                    return Err(io::Error::other(text));
                }
                Answer::Ready(_) => (self.was_ready, self.is_open) = (true, true),
                Answer::Trouble(_) => self.is_open = false,
                _ => {}
            }
            self.shared.take(answer);
        }
        Ok(())
    }
}

fn remove_ended(abandoned: &mut Vec<Child>) {
    abandoned.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
}

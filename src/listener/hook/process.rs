//! One run of a hook: start it in a process group of its own, feed it, read what it says, end it
//! when its time is over. No step waits without a limit: what blocks on a disk (the start) or on the
//! hook itself (its end) is done by a thread that may be lost.

use std::ffi::OsString;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use super::environment::{Notice, PREFIX, PRIVATE};
use super::{End, HookOptions, Outcome};
use crate::clock::Clock;
use crate::health::moment::Elapsed;
use crate::listener::courier::{MAX_PARALLEL, thread_named};

/// Output that is kept; the rest is read and thrown away. Part of the contract.
pub(super) const MAX_OUTPUT: usize = 64 << 10;

/// Read at once: what a pipe holds.
const CHUNK: usize = 64 << 10;

/// Threads of one hook that wait for a process: the parallel runs, and as many again that were given
/// up and never came back. When there are more, the hook's disk is dead, and another thread would be
/// lost with them.
const MAX_THREADS: usize = 2 * MAX_PARALLEL;

/// How long a run may take after it should be over. Shorter in tests.
#[derive(Debug, Clone)]
pub(in crate::listener) struct Patience {
    /// Between TERM and KILL. Part of the contract.
    pub(in crate::listener) grace: Duration,
    /// After KILL, for the kernel to end the process: instant unless it waits for a disk.
    pub(in crate::listener) kill: Duration,
    /// After the end of the command, for output that its children still hold: they may be meant to
    /// stay, and what is written is in the pipe already.
    pub(in crate::listener) output: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            grace: Duration::from_secs(5),
            kill: Duration::from_secs(1),
            output: Duration::from_millis(500),
        }
    }
}

/// Counts the threads that wait for processes of one hook.
pub(in crate::listener) type Threads = Arc<()>;

/// Runs the hook once. Returns at the latest after its time-out and the patience.
pub(super) fn run(
    options: &HookOptions,
    notice: &Notice,
    patience: &Patience,
    threads: &Threads,
    clock: &Clock,
) -> Outcome {
    let begun = clock.elapsed();
    let mut output = Output::default();
    let until = begun.saturating_add(options.timeout);
    let started = Running::start(options, notice, threads, clock, until);
    let end = match started {
        Ok(running) => running.follow(until, patience, clock, &mut output),
        Err(end) => end,
    };
    Outcome {
        end,
        duration: clock.elapsed().saturating_sub(begun),
        output: String::from_utf8_lossy(&output.kept).into_owned(),
        output_dropped: output.dropped,
    }
}

#[derive(Debug, Default)]
struct Output {
    kept: Vec<u8>,
    dropped: u64,
}

impl Output {
    fn take(&mut self, piece: &[u8]) {
        let room = MAX_OUTPUT - self.kept.len();
        let (kept, rest) = piece.split_at(room.min(piece.len()));
        self.kept.extend_from_slice(kept);
        self.dropped += rest.len() as u64;
    }
}

/// A hook that was started. Its number stays its own until `release` is dropped.
struct Running {
    group: Pid,
    input: Vec<u8>,
    written: usize,
    stdin: Option<PipeWriter>,
    output: Option<PipeReader>,
    /// Closed by the other side when the command has ended.
    bell: Option<PipeReader>,
    release: Sender<()>,
    status: Receiver<io::Result<ExitStatus>>,
}

/// Where a run stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Within its time.
    InTime,
    /// The command ended by itself; its output may not have.
    Ended,
    /// Its time is over: TERM was sent.
    Terminated,
    /// And KILL.
    Killed,
}

/// What is ready.
struct Ready {
    stdin: bool,
    output: bool,
    bell: bool,
}

impl Running {
    fn start(
        options: &HookOptions,
        notice: &Notice,
        threads: &Threads,
        clock: &Clock,
        until: Elapsed,
    ) -> Result<Running, End> {
        if Arc::strong_count(threads) > MAX_THREADS {
            return Err(End::NotRun {
                reason: "too many earlier starts of it have not come back".to_owned(),
                temporary: true,
            });
        }
        let refused = |error: io::Error| End::not_run("its pipes", &error);
        let (child_stdin, stdin) = io::pipe().map_err(refused)?;
        let (output, child_output) = io::pipe().map_err(refused)?;
        let (bell, ring) = io::pipe().map_err(refused)?;
        set_nonblocking(&stdin).map_err(refused)?;
        set_nonblocking(&output).map_err(refused)?;
        set_nonblocking(&bell).map_err(refused)?;
        let command = command(options, notice, child_stdin, child_output).map_err(refused)?;
        // Without room: whoever gives up is known to have given up, and the process is ended.
        let (tell_started, started) = mpsc::sync_channel(0);
        let (release, released) = mpsc::channel();
        let (tell_status, status) = mpsc::channel();
        let owner = Owner {
            started: tell_started,
            ring,
            released,
            status: tell_status,
            _counted: Arc::clone(threads),
        };
        thread_named("hook process")
            .spawn(move || owner.own(command))
            .map_err(|error| End::not_run("its thread", &error))?;
        let group = match started.recv_timeout(until.saturating_sub(clock.elapsed())) {
            Ok(Ok(group)) => group,
            Ok(Err(error)) => return Err(End::not_run(&options.program(), &error)),
            Err(RecvTimeoutError::Timeout) => {
                return Err(End::NotRun {
                    reason: format!("{}: no start within its time-out", options.program()),
                    temporary: true,
                });
            }
            Err(RecvTimeoutError::Disconnected) => {
                let error = io::Error::other("ended too early");
                return Err(End::not_run("its thread", &error));
            }
        };
        Ok(Running {
            group,
            input: notice.input(),
            written: 0,
            stdin: Some(stdin),
            output: Some(output),
            bell: Some(bell),
            release,
            status,
        })
    }

    /// Feeds and reads until the command has ended or was ended.
    fn follow(
        mut self,
        mut until: Elapsed,
        patience: &Patience,
        clock: &Clock,
        output: &mut Output,
    ) -> End {
        let mut phase = Phase::InTime;
        let mut chunk = vec![0; CHUNK];
        loop {
            let over = match phase {
                Phase::Ended => self.output.is_none(),
                Phase::Killed => self.bell.is_none(),
                Phase::InTime | Phase::Terminated => false,
            };
            if over {
                return self.end(phase, patience);
            }
            let now = clock.elapsed();
            if until <= now {
                (phase, until) = match phase {
                    Phase::InTime => {
                        self.signal(Signal::SIGTERM);
                        (Phase::Terminated, now + patience.grace)
                    }
                    // Also when the command itself has ended: others of its group may not have.
                    Phase::Terminated => {
                        self.signal(Signal::SIGKILL);
                        (Phase::Killed, now + patience.kill)
                    }
                    Phase::Ended | Phase::Killed => return self.end(phase, patience),
                };
                continue;
            }
            let ready = self.wait(until - now);
            if ready.stdin {
                self.feed();
            }
            if ready.output {
                self.read(&mut chunk, output);
            }
            if ready.bell && self.has_rung() {
                self.bell = None;
                if phase == Phase::InTime {
                    (phase, until) = (Phase::Ended, clock.elapsed() + patience.output);
                }
            }
        }
    }

    /// Waits until there is something to do. An error of poll is treated as everything being ready:
    /// the calls that follow do not block.
    fn wait(&self, limit: Duration) -> Ready {
        let watched = [
            (self.stdin.as_ref().map(AsFd::as_fd), PollFlags::POLLOUT),
            (self.output.as_ref().map(AsFd::as_fd), PollFlags::POLLIN),
            (self.bell.as_ref().map(AsFd::as_fd), PollFlags::POLLIN),
        ];
        let open = watched.iter();
        let mut open: Vec<PollFd<'_>> = open
            .filter_map(|(fd, flags)| Some(PollFd::new((*fd)?, *flags)))
            .collect();
        // Rounded up, so that a rest below one millisecond does not spin.
        let limit = limit.saturating_add(Duration::from_millis(1));
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        let failed = !matches!(poll(&mut open, limit), Ok(_) | Err(Errno::EINTR));
        let mut answers = open.iter();
        let mut ready =
            |fd: bool| fd && (answers.next().and_then(PollFd::any) != Some(false) || failed);
        Ready {
            stdin: ready(self.stdin.is_some()),
            output: ready(self.output.is_some()),
            bell: ready(self.bell.is_some()),
        }
    }

    /// Writes what the pipe takes. A hook that does not read is not waited for, and one that closed
    /// its input does not want it.
    fn feed(&mut self) {
        let Some(stdin) = &mut self.stdin else { return };
        match stdin.write(&self.input[self.written..]) {
            Ok(count) => self.written += count,
            Err(error) if is_again(&error) => return,
            Err(_) => self.written = self.input.len(),
        }
        if self.written == self.input.len() {
            self.stdin = None;
        }
    }

    fn read(&mut self, chunk: &mut [u8], output: &mut Output) {
        let Some(pipe) = &mut self.output else { return };
        match pipe.read(chunk) {
            Ok(0) => self.output = None,
            Ok(count) => output.take(&chunk[..count]),
            Err(error) if is_again(&error) => {}
            Err(_) => self.output = None,
        }
    }

    /// True when the other side closed the bell, which is never written to.
    fn has_rung(&mut self) -> bool {
        let bell = self.bell.as_mut();
        bell.is_some_and(|bell| !matches!(bell.read(&mut [0]), Err(error) if is_again(&error)))
    }

    fn signal(&self, signal: Signal) {
        // The group's number is not given to another: its leader is not reaped before `release`.
        let _ = killpg(self.group, signal);
    }

    /// The end of the run. A process that KILL does not end within the patience is left to the
    /// thread that owns it.
    fn end(self, phase: Phase, patience: &Patience) -> End {
        drop(self.release);
        if phase != Phase::Ended {
            return End::TimedOut;
        }
        match self.status.recv_timeout(patience.kill) {
            Ok(Ok(status)) => match (status.code(), status.signal()) {
                (Some(code), _) => End::Exited(code),
                (None, signal) => End::Signalled(signal.unwrap_or_default()),
            },
            Ok(Err(error)) => End::NotRun {
                reason: format!("its exit status was lost: {error}"),
                temporary: false,
            },
            Err(_) => End::NotRun {
                reason: "its exit status was lost".to_owned(),
                temporary: false,
            },
        }
    }
}

/// The side that may block for ever: starts the process and waits for it.
struct Owner {
    started: SyncSender<io::Result<Pid>>,
    ring: PipeWriter,
    released: Receiver<()>,
    status: Sender<io::Result<ExitStatus>>,
    _counted: Threads,
}

impl Owner {
    fn own(self, mut command: Command) {
        let spawned = command.spawn();
        drop(command); // and with it our copies of the child's ends of the pipes
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) => {
                let _ = self.started.send(Err(error));
                return;
            }
        };
        let pid = Pid::from_raw(child.id().cast_signed());
        if self.started.send(Ok(pid)).is_err() {
            // Given up meanwhile. It is not reaped yet, so that the number is still its own.
            let _ = killpg(pid, Signal::SIGKILL);
        }
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        while waitid(Id::Pid(pid), flags) == Err(Errno::EINTR) {}
        drop(self.ring);
        let _ = self.released.recv(); // an error is the answer: nobody will signal the group again
        let _ = self.status.send(child.wait());
    }
}

fn command(
    options: &HookOptions,
    notice: &Notice,
    stdin: PipeReader,
    output: PipeWriter,
) -> io::Result<Command> {
    let Some((program, arguments)) = options.command.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no command"));
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir("/")
        .process_group(0)
        .stdin(stdin)
        .stdout(output.try_clone()?)
        .stderr(output);
    for name in PRIVATE {
        command.env_remove(name);
    }
    let ours = |name: &OsString| name.as_encoded_bytes().starts_with(PREFIX.as_bytes());
    for (name, _) in std::env::vars_os().filter(|(name, _)| ours(name)) {
        command.env_remove(name);
    }
    command.envs(notice.variables());
    Ok(command)
}

fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(())
}

fn is_again(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::document::Host;
    use crate::listener::testing::{full, wait_until};

    fn shell(line: &str, argument: &Path, timeout: Duration) -> HookOptions {
        let fixed = ["/bin/sh", "-c", line, "hook"].map(OsString::from);
        HookOptions {
            name: "page".to_owned(),
            events: Vec::new(),
            command: fixed.into_iter().chain([argument.into()]).collect(),
            timeout,
        }
    }

    fn patience(grace: u64) -> Patience {
        Patience {
            grace: Duration::from_millis(grace),
            ..Patience::default()
        }
    }

    fn notice() -> Notice {
        Notice::new(&full(1, "/mnt/l1"), &Host::default())
    }

    fn exists(pid: &str) -> bool {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // A zombie that its new parent has not reaped yet is gone, too.
        !stat.is_empty() && !stat.contains(") Z ")
    }

    /// Runs a line that writes process numbers into the file `$1` and then hangs.
    fn run_out_of_time(line: &str, grace: u64) -> (Outcome, Vec<String>, Duration) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pids");
        let options = shell(line, &file, Duration::from_millis(500));
        let (threads, clock) = (Threads::default(), Clock::start());
        let outcome = run(&options, &notice(), &patience(grace), &threads, &clock);
        let took = clock.elapsed();
        wait_until("its thread ends", || Arc::strong_count(&threads) == 1);
        let pids = fs::read_to_string(file).unwrap();
        (outcome, pids.lines().map(str::to_owned).collect(), took)
    }

    #[test]
    fn on_time_out_the_whole_group_is_told_to_end() {
        let line = "(trap 'echo child; exit' TERM; echo begun; while :; do sleep 0.01; done) &
            trap 'echo leader; wait; exit' TERM; echo $$ $! >\"$1\"; while :; do sleep 0.01; done";
        let (outcome, pids, _) = run_out_of_time(line, 200);
        assert_eq!(outcome.end, End::TimedOut);
        let output = outcome.output;
        assert!(
            output.contains("leader") && output.contains("child"),
            "{output}"
        );
        assert!(!pids.iter().flat_map(|pids| pids.split(' ')).any(exists));
    }

    #[test]
    fn what_ignores_term_is_killed_after_the_grace_also_when_its_leader_has_ended() {
        let stubborn = "trap '' TERM; echo $$ >>\"$1\"; while :; do sleep 0.01; done";
        let (outcome, pids, took) = run_out_of_time(stubborn, 300);
        assert_eq!(outcome.end, End::TimedOut);
        assert!(
            Duration::from_millis(800) <= took,
            "TERM came first: {took:?}"
        );
        assert!(!exists(&pids[0]));

        let orphan = "(trap '' TERM; while :; do sleep 0.01; done) >/dev/null 2>&1 &
            echo $! >>\"$1\"; wait";
        let (outcome, pids, _) = run_out_of_time(orphan, 300);
        assert_eq!(outcome.end, End::TimedOut);
        wait_until("the child is killed", || !exists(&pids[0]));
    }

    /// A session of its own is out of reach: it lives on, and holds nothing up.
    #[test]
    fn what_leaves_the_group_and_prints_without_end_holds_nothing_up() {
        let line = "for _ in 1 2 3; do
                setsid sh -c 'trap \"\" PIPE; echo $$ >>\"$1\"; until test -e \"$1.end\"; do echo more; done' \
                    escaped \"$1\" &
            done
            until test $(wc -l <\"$1\") -eq 3; do :; done 2>/dev/null; exec yes";
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pids");
        let options = shell(line, &file, Duration::from_secs(1));
        let (threads, clock) = (Threads::default(), Clock::start());
        let outcome = run(&options, &notice(), &patience(100), &threads, &clock);
        assert_eq!(outcome.end, End::TimedOut);
        assert_eq!(outcome.output.len(), MAX_OUTPUT);
        assert!(outcome.output_dropped > 0);
        wait_until("its thread ends", || Arc::strong_count(&threads) == 1);
        let pids = fs::read_to_string(&file).unwrap();
        assert!(pids.lines().all(exists), "{pids}");
        fs::write(folder.path().join("pids.end"), "").unwrap();
        wait_until("they end", || !pids.lines().any(exists));
    }

    #[test]
    fn a_start_that_comes_after_it_was_given_up_is_ended_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (bell, ring) = io::pipe().unwrap();
        let (started, nobody) = mpsc::sync_channel(0);
        let (release, released) = mpsc::channel();
        let (status, ended) = mpsc::channel();
        let owner = Owner {
            started,
            ring,
            released,
            status,
            _counted: Threads::default(),
        };
        drop((nobody, release));
        let (stdin, output) = (io::pipe().unwrap(), io::pipe().unwrap());
        let options = shell("while :; do sleep 1; done", folder.path(), Duration::MAX);
        owner.own(command(&options, &notice(), stdin.0, output.1).unwrap());
        let status = ended.recv().unwrap().unwrap();
        assert_eq!(status.signal(), Some(Signal::SIGKILL as i32));
        drop(bell);
    }

    #[test]
    fn too_many_starts_that_never_come_back_are_not_added_to() {
        let folder = tempfile::tempdir().unwrap();
        let options = shell("true", folder.path(), Duration::from_secs(60));
        let threads = Threads::default();
        let run = || run(&options, &notice(), &patience(1), &threads, &Clock::start());
        let mut lost = vec![Arc::clone(&threads); MAX_THREADS];
        assert_eq!(run().end.verdict(), super::super::Verdict::Again);
        lost.pop();
        assert_eq!(run().end, End::Exited(0));
    }

    #[test]
    fn variables_by_which_a_service_manager_speaks_to_the_agent_are_not_inherited() {
        let options = shell("true", Path::new("/"), Duration::ZERO);
        let (stdin, output) = (io::pipe().unwrap(), io::pipe().unwrap());
        let command = command(&options, &notice(), stdin.0, output.1).unwrap();
        let removed = command.get_envs().filter(|(_, value)| value.is_none());
        let mut removed: Vec<_> = removed.filter_map(|(name, _)| name.to_str()).collect();
        removed.retain(|name| !name.starts_with(PREFIX));
        let mut private = PRIVATE.to_vec();
        private.sort_unstable();
        assert_eq!(removed, private);
    }
}

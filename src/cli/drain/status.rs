//! `drain status` and `drain set`. Reads the job's own nodes and no ledger.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::interval;

use super::args::{Form, SetArguments, StatusArguments};
use super::cluster::{Cluster, of_job};
use super::hand::Hand;
use super::plan::words;
use crate::cli::block_on;
use crate::cli::exit::{Exit, Failure};
use crate::cli::terminal::{print, span};
use crate::drain::job::{Job, Limits, Moved, Phase, Status, Worker};
use crate::health::words::{bytes_text, counted, first_of};

/// Between two looks with --watch or --wait.
const LOOK: Duration = Duration::from_secs(2);

/// Looks in a row that have to find a job blocked before --wait ends with it: a worker that is being replaced is none.
const BLOCKED: u32 = 5;

/// `drain status`: 0 no task is left, 1 it goes on, 2 it is blocked.
pub(super) fn status(arguments: &StatusArguments) -> Result<Exit, Failure> {
    let _log = super::log();
    block_on::<_, Failure>(async {
        let cluster = Cluster::open(&arguments.cluster).await?;
        if !arguments.watch && !arguments.wait {
            let (text, exit) = all(&cluster, arguments).await?;
            print(&text)?;
            return Ok(exit);
        }
        let mut hand = Hand::new()?;
        let mut looks = interval(LOOK);
        let mut blocked = 0;
        loop {
            tokio::select! {
                _ = looks.tick() => {}
                () = hand.stop() => {
                    let error = anyhow::anyhow!("stopped by a signal");
                    return Err(Failure::new(Exit::FAILED, error));
                }
            }
            let (text, exit) = all(&cluster, arguments).await?;
            blocked = match exit {
                Exit::Critical => blocked + 1,
                _ => 0,
            };
            let is_end = arguments.wait && (exit == Exit::Ok || BLOCKED <= blocked);
            if arguments.watch || is_end {
                print(&text)?;
            }
            if is_end {
                return Ok(exit);
            }
        }
    })
}

/// Every job that was asked for, and the worst exit code.
async fn all(cluster: &Cluster, arguments: &StatusArguments) -> Result<(String, Exit), Failure> {
    let jobs = match &arguments.job {
        Some(id) => vec![cluster.job(Some(id)).await?],
        None => {
            let mut jobs = cluster.jobs.list().await.map_err(of_job)?;
            jobs.sort_by_key(|job| job.began);
            let going: Vec<Job> =
                (jobs.iter().filter(|job| !job.phase.is_over()).cloned()).collect();
            match going.is_empty() {
                true => jobs.pop().into_iter().collect(),
                false => going,
            }
        }
    };
    let mut seen = Vec::new();
    for job in jobs {
        seen.push(read(cluster, job, arguments.top).await?);
    }
    if seen.is_empty() && arguments.wait {
        let error = anyhow::anyhow!("there is no job in this cluster to be waited for");
        return Err(
            Failure::new(Exit::FAILED, error).remedy("begin one with 'dirkeeper drain start'")
        );
    }
    let exit = seen.iter().map(Seen::exit).max_by_key(|exit| exit.code());
    let text = match arguments.output {
        Form::Human if seen.is_empty() => "no job in this cluster\n".to_owned(),
        Form::Human => seen.iter().map(Seen::human).collect::<Vec<_>>().join("\n"),
        Form::Json => {
            let jobs: Vec<Value> = seen.iter().map(Seen::json).collect();
            json!({ "jobs": jobs }).to_string() + "\n"
        }
    };
    Ok((text, exit.unwrap_or(Exit::Ok)))
}

/// Ledgers of one kind, by the reason.
#[derive(Default)]
struct Kind {
    count: u64,
    bytes: u64,
    reasons: BTreeMap<String, Reason>,
}

#[derive(Default)]
struct Reason {
    count: u64,
    ledgers: Vec<u64>,
}

/// Reasons that are told apart; the others are counted together.
const REASONS: usize = 50;

/// A job as it is now.
struct Seen {
    job: Job,
    limits: Limits,
    kinds: BTreeMap<Status, Kind>,
    moved: Moved,
    workers: Vec<(String, Worker)>,
}

async fn read(cluster: &Cluster, job: Job, top: usize) -> Result<Seen, Failure> {
    let mut kinds = BTreeMap::<Status, Kind>::new();
    let tasks = cluster.jobs.tasks(&job.id);
    let counted = tasks.for_each(|stored| {
        let task = stored.task;
        let kind = kinds.entry(task.status).or_default();
        kind.count += 1;
        kind.bytes = kind.bytes.saturating_add(task.bytes);
        let mut reason = task.reason.unwrap_or_default();
        if REASONS <= kind.reasons.len() && !kind.reasons.contains_key(&reason) {
            reason = "other reasons".to_owned();
        }
        let reason = kind.reasons.entry(reason).or_default();
        reason.count += 1;
        if top == 0 || reason.ledgers.len() < top {
            reason.ledgers.push(task.ledger);
        }
    });
    counted.await.map_err(of_job)?;
    Ok(Seen {
        limits: cluster.jobs.limits(&job.id).await.map_err(of_job)?,
        moved: cluster.jobs.moved(&job.id).await.map_err(of_job)?,
        workers: cluster.jobs.workers(&job.id).await.map_err(of_job)?,
        kinds,
        job,
    })
}

impl Seen {
    /// What is not moved yet.
    fn left(&self) -> u64 {
        let all: u64 = self.kinds.values().map(|kind| kind.count).sum();
        all - self.count(Status::Held)
    }

    fn count(&self, status: Status) -> u64 {
        self.kinds.get(&status).map_or(0, |kind| kind.count)
    }

    fn rate(&self) -> u64 {
        self.workers.iter().map(|(_, worker)| worker.rate).sum()
    }

    fn exit(&self) -> Exit {
        let left = self.left();
        let stuck = self.count(Status::Failed) == left || self.workers.is_empty();
        match self.job.phase {
            Phase::Finished => Exit::Ok,
            Phase::Cancelled => Exit::Critical,
            // What is held is held by somebody.
            _ if left == 0 && self.count(Status::Held) != 0 && self.workers.is_empty() => {
                Exit::Critical
            }
            _ if left == 0 && self.job.phase == Phase::Running => Exit::Ok,
            // Its tasks are being written.
            Phase::Starting => Exit::FAILED,
            _ if stuck => Exit::Critical,
            _ => Exit::FAILED,
        }
    }

    /// Seconds until all bytes are moved, at the rate of now.
    fn time_left(&self) -> Option<u64> {
        let moves = self
            .kinds
            .iter()
            .filter(|(status, _)| **status != Status::Held);
        let bytes: u64 = moves.map(|(_, kind)| kind.bytes).sum();
        bytes.checked_div(self.rate())
    }

    fn human(&self) -> String {
        let job = &self.job;
        let mut text = format!(
            "job {}: {}, emptying {}\n",
            job.id,
            job.phase.name(),
            words(&job.bookies)
        );
        text.push_str(&format!("  moved: {}\n", moved_text(&self.moved)));
        let left = counted(self.left(), "ledger", "ledgers");
        text.push_str(&format!("  left: {left}"));
        match self.time_left() {
            Some(seconds) if self.left() != 0 => text.push_str(&format!(
                ", at {}/s about {}\n",
                bytes_text(self.rate()),
                span(seconds)
            )),
            _ => text.push('\n'),
        }
        for (status, kind) in &self.kinds {
            for (why, reason) in &kind.reasons {
                let why = match why.is_empty() {
                    true => String::new(),
                    false => format!(" ({why})"),
                };
                text.push_str(&format!(
                    "    {} {}{why}: {}\n",
                    reason.count,
                    crate::cli::terminal::words(status.name()),
                    first_of(&reason.ledgers, reason.count)
                ));
            }
        }
        if self.kinds.is_empty() && job.phase == Phase::Running {
            text.push_str(&format!(
                "  'dirkeeper drain finish --job {}' says whether the bookies can be stopped\n",
                job.id
            ));
        } else if self.workers.is_empty() && !job.phase.is_over() {
            text.push_str("  nobody works on it: 'dirkeeper drain run --execute' does\n");
        }
        for (_, worker) in &self.workers {
            let now = match worker.now.as_str() {
                "" => "",
                now => &format!(", {now}"),
            };
            text.push_str(&format!(
                "  {} (pid {}): {}, {}, {}/s{now}\n",
                worker.host,
                worker.pid,
                counted(worker.ledgers, "ledger", "ledgers"),
                bytes_text(worker.bytes),
                bytes_text(worker.rate),
            ));
        }
        text
    }

    fn json(&self) -> Value {
        let kinds = self.kinds.iter().map(|(status, kind)| {
            let reasons = kind.reasons.iter().map(
                |(why, reason)| json!({ "reason": why, "count": reason.count, "ledgers": reason.ledgers }),
            );
            let reasons: Vec<Value> = reasons.collect();
            json!({ "status": status.name(), "ledgers": kind.count, "bytes": kind.bytes, "reasons": reasons })
        });
        let workers = self.workers.iter().map(|(name, worker)| {
            json!({ "name": name, "host": worker.host, "pid": worker.pid, "since": worker.since,
                    "ledgers": worker.ledgers, "bytes": worker.bytes,
                    "bytesPerSecond": worker.rate, "now": worker.now })
        });
        let exit = match self.exit() {
            Exit::Ok => "done",
            Exit::Critical => "blocked",
            _ => "goingOn",
        };
        json!({
            "job": self.job.id,
            "phase": self.job.phase.name(),
            "state": exit,
            "bookies": self.job.bookies,
            "began": self.job.began,
            "who": self.job.who,
            "left": self.left(),
            "kinds": kinds.collect::<Vec<_>>(),
            "moved": { "ledgers": self.moved.ledgers, "fragments": self.moved.fragments,
                       "entries": self.moved.entries, "bytes": self.moved.bytes },
            "bytesPerSecond": self.rate(),
            "secondsLeft": self.time_left(),
            "maxBytesPerSecond": self.limits.max_bytes_per_second,
            "maxRequestsPerSecond": self.limits.max_requests_per_second,
            "workersLimit": self.limits.workers,
            "workers": workers.collect::<Vec<_>>(),
        })
    }
}

/// What was moved, in a sentence.
pub(super) fn moved_text(moved: &Moved) -> String {
    format!(
        "{}, {}, {}, {}",
        counted(moved.ledgers, "ledger", "ledgers"),
        counted(moved.fragments, "fragment", "fragments"),
        counted(moved.entries, "entry", "entries"),
        bytes_text(moved.bytes)
    )
}

/// `drain set`.
pub(super) fn set(arguments: &SetArguments) -> Result<Exit, Failure> {
    let _log = super::log();
    block_on::<_, Failure>(async {
        let cluster = Cluster::open(&arguments.cluster).await?;
        let job = cluster.job(arguments.job.as_deref()).await?;
        let before = cluster.jobs.limits(&job.id).await.map_err(of_job)?;
        let limits = Limits {
            max_bytes_per_second: (arguments.max_bytes_per_second)
                .unwrap_or(before.max_bytes_per_second),
            max_requests_per_second: (arguments.cluster.max_requests_per_second)
                .unwrap_or(before.max_requests_per_second),
            workers: arguments.workers.unwrap_or(before.workers),
        };
        cluster
            .jobs
            .set_limits(&job.id, &limits)
            .await
            .map_err(of_job)?;
        let bytes = match limits.max_bytes_per_second {
            0 => "as many bytes a second as can be".to_owned(),
            limit => format!("{} a second", bytes_text(limit)),
        };
        print(&format!(
            "job {}: {bytes}, {} a second to ZooKeeper and {} at a time by each worker\n",
            job.id,
            counted(limits.max_requests_per_second, "request", "requests"),
            counted(limits.workers, "ledger", "ledgers")
        ))?;
        Ok(Exit::Ok)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::drain::job::{OpenLedgers, ReaderGate};

    fn kind(reasons: &[(&str, &[u64])], bytes: u64) -> Kind {
        let reasons = reasons.iter().map(|(why, ledgers)| {
            let reason = Reason {
                count: ledgers.len() as u64,
                ledgers: ledgers.iter().copied().take(3).collect(),
            };
            ((*why).to_owned(), reason)
        });
        let reasons: BTreeMap<String, Reason> = reasons.collect();
        Kind {
            count: reasons.values().map(|reason| reason.count).sum(),
            bytes,
            reasons,
        }
    }

    fn seen(phase: Phase, workers: usize, kinds: impl IntoIterator<Item = (Status, Kind)>) -> Seen {
        let worker = Worker {
            host: "admin1".to_owned(),
            pid: 42,
            since: 1_796_000_000_000,
            ledgers: 12,
            bytes: 30 << 20,
            rate: 10 << 20,
            now: "4 ledgers at a time".to_owned(),
        };
        let workers = (0..workers).map(|number| (format!("admin1-{number}"), worker.clone()));
        Seen {
            job: Job {
                id: "d-0123abcd".to_owned(),
                bookies: BTreeSet::from(["bk1:3181".to_owned(), "bk2:3181".to_owned()]),
                open_ledgers: OpenLedgers::Wait,
                reader_gate: ReaderGate::PerLedger,
                mirror: false,
                began: 1_796_000_000_000,
                phase,
                who: "admin1".to_owned(),
            },
            limits: Limits {
                max_bytes_per_second: 100 << 20,
                max_requests_per_second: 1000,
                workers: 8,
            },
            kinds: kinds.into_iter().collect(),
            moved: Moved {
                ledgers: 12,
                fragments: 31,
                entries: 4000,
                bytes: 30 << 20,
            },
            workers: workers.collect(),
        }
    }

    #[test]
    fn what_is_left_is_said_with_the_reason() {
        let open = "its last fragment is still written";
        let kinds = [
            (Status::Todo, kind(&[("", &[4, 5, 6, 7])], 600 << 20)),
            (Status::WaitingOpen, kind(&[(open, &[8])], 0)),
            (Status::Held, kind(&[("it is moved", &[1, 2])], 1 << 40)),
            (Status::Failed, kind(&[("no replica of entry 3", &[9])], 0)),
        ];
        let seen = seen(Phase::Running, 2, kinds);
        insta::assert_snapshot!(seen.human(), @"
        job d-0123abcd: running, emptying bk1:3181, bk2:3181
          moved: 12 ledgers, 31 fragments, 4000 entries, 30.0 MiB
          left: 6 ledgers, at 20.0 MiB/s about 30 s
            4 todo: 4, 5, 6 and 1 more
            1 waiting open (its last fragment is still written): 8
            2 held (it is moved): 1, 2
            1 failed (no replica of entry 3): 9
          admin1 (pid 42): 12 ledgers, 30.0 MiB, 10.0 MiB/s, 4 ledgers at a time
          admin1 (pid 42): 12 ledgers, 30.0 MiB, 10.0 MiB/s, 4 ledgers at a time
        ");
        assert_eq!(seen.json()["left"], 6);
        assert_eq!(seen.json()["state"], "goingOn");
    }

    #[test]
    fn who_has_done_all_is_told_to_finish() {
        let mut done = seen(Phase::Running, 1, []);
        done.workers[0].1.now.clear();
        insta::assert_snapshot!(done.human(), @"
        job d-0123abcd: running, emptying bk1:3181, bk2:3181
          moved: 12 ledgers, 31 fragments, 4000 entries, 30.0 MiB
          left: 0 ledgers
          'dirkeeper drain finish --job d-0123abcd' says whether the bookies can be stopped
          admin1 (pid 42): 12 ledgers, 30.0 MiB, 10.0 MiB/s
        ");
        let nobody = |kinds: &[(Status, u64)]| {
            let kinds = kinds
                .iter()
                .map(|(status, id)| (*status, kind(&[("", &[*id])], 0)));
            seen(Phase::Running, 0, kinds)
                .human()
                .contains("nobody works on it")
        };
        assert!(!nobody(&[]));
        assert!(nobody(&[(Status::Todo, 1)]));
        assert!(nobody(&[(Status::Held, 1)]));
    }

    #[test]
    fn the_exit_code_tells_done_from_blocked() {
        let one = |status| (status, kind(&[("", &[1])], 0));
        let exits = [
            (Phase::Running, 0, vec![], Exit::Ok),
            (Phase::Starting, 0, vec![], Exit::FAILED),
            (Phase::Running, 0, vec![one(Status::Todo)], Exit::Critical),
            (Phase::Running, 1, vec![one(Status::Todo)], Exit::FAILED),
            (Phase::Running, 1, vec![one(Status::Failed)], Exit::Critical),
            (
                Phase::Running,
                1,
                vec![one(Status::Failed), one(Status::WaitingOpen)],
                Exit::FAILED,
            ),
            // Only readers are waited for; nobody holds what they may need.
            (Phase::Running, 1, vec![one(Status::Held)], Exit::Ok),
            (Phase::Running, 0, vec![one(Status::Held)], Exit::Critical),
            (Phase::Cancelled, 1, vec![one(Status::Todo)], Exit::Critical),
            (Phase::Finished, 0, vec![], Exit::Ok),
        ];
        for (phase, workers, kinds, exit) in exits {
            let what = format!("{phase:?} {workers} {:?}", kinds.first().map(|one| one.0));
            assert_eq!(seen(phase, workers, kinds).exit(), exit, "{what}");
        }
    }
}

//! `drain cancel` and `drain finish`.

use serde_json::json;
use tokio::sync::watch;

use super::args::{CancelArguments, FinishArguments, Form};
use super::cluster::{Cluster, exit_of, of_job};
use super::hand::Hand;
use super::plan::{scan_line, words};
use crate::cli::block_on;
use crate::cli::exit::{Exit, Failure};
use crate::cli::terminal::print;
use crate::cluster::bookie::BookieError;
use crate::drain::end::{EndError, Left, delete_cookie, left};
use crate::drain::hold::{Admins, Hold, Registered};
use crate::drain::job::{Job, Phase, Progress};

/// Ledgers that are named in a sentence.
const NAMED: usize = 10;

/// `drain cancel`.
pub(super) fn cancel(arguments: &CancelArguments) -> Result<Exit, Failure> {
    let _log = super::log();
    block_on::<_, Failure>(async {
        let cluster = Cluster::open(&arguments.cluster).await?;
        let job = cluster.job(Some(&arguments.job)).await?;
        if !arguments.execute {
            let bookies = words(&job.bookies);
            print(&format!(
                "would give up job {}, which is {}, and make {bookies} writable; with --execute\n",
                job.id,
                job.phase.name()
            ))?;
            return Ok(Exit::Ok);
        }
        cluster.jobs.cancel(&job.id).await.map_err(of_job)?;
        let tasks = cluster.jobs.tasks_of(&job, &cluster.place.ledgers_root);
        tasks.hide().await.map_err(of_job)?;
        let admins: Admins = arguments.admins.iter().cloned().collect();
        let hold = hold(&cluster, &job, &admins);
        let mut exit = Exit::Ok;
        for bookie in &job.bookies {
            let told = match hold.leave(bookie).await {
                Ok(true) => format!("{bookie} is writable\n"),
                Ok(false) => {
                    format!(
                        "{bookie} is left as it is: another claim stands, it does not run, or it was read-only before\n"
                    )
                }
                Err(error) => {
                    exit = Exit::FAILED;
                    format!(
                        "{bookie} may still be read-only: {}\n",
                        crate::report::text(&error)
                    )
                }
            };
            print(&told)?;
        }
        let tasks = cluster.jobs.tasks_of(&job, &cluster.place.ledgers_root);
        tasks.hide().await.map_err(of_job)?;
        print(&format!(
            "job {} is cancelled; what was moved stays moved\n",
            job.id
        ))?;
        Ok(exit)
    })
}

/// `drain finish`: 0 only if the bookies can be stopped.
pub(super) fn finish(arguments: &FinishArguments) -> Result<Exit, Failure> {
    let _log = super::log();
    block_on::<_, Failure>(async {
        let cluster = Cluster::open(&arguments.cluster).await?;
        let mut hand = Hand::new()?;
        let job = cluster.job(Some(&arguments.job)).await?;
        if job.phase == Phase::Cancelled {
            let error = anyhow::anyhow!("job {} was cancelled", job.id);
            return Err(Failure::new(Exit::FAILED, error));
        }
        let left = look(&cluster, &job, arguments.execute, &mut hand).await?;
        let is_safe = arguments.readers_safe || job.phase == Phase::Finished;
        if !left.is_nothing() || !is_safe {
            print(&told(arguments.output, &job, &left, is_safe))?;
            return Ok(Exit::FAILED);
        }
        if arguments.execute {
            if left.held != 0 {
                let tasks = cluster.jobs.tasks_of(&job, &cluster.place.ledgers_root);
                tasks.let_go().await.map_err(of_job)?;
            }
            cluster.jobs.finished(&job.id).await.map_err(of_job)?;
        }
        print(&told(arguments.output, &job, &left, true))?;
        if arguments.delete_cookies {
            cookies(&cluster, &job, arguments.execute).await?;
        }
        Ok(Exit::Ok)
    })
}

async fn look(
    cluster: &Cluster,
    job: &Job,
    execute: bool,
    hand: &mut Hand,
) -> Result<Left, Failure> {
    let (progress, seen) = watch::channel(Progress::default());
    let work = left(
        &*cluster.store,
        &cluster.place,
        &cluster.jobs,
        job,
        execute,
        &progress,
    );
    let found = hand.follow(work, || scan_line(*seen.borrow())).await?;
    found.map_err(of_end)
}

fn hold<'a>(cluster: &'a Cluster, job: &'a Job, admins: &'a Admins) -> Hold<'a> {
    Hold {
        store: &*cluster.store,
        place: &cluster.place,
        jobs: &cluster.jobs,
        job: &job.id,
        admins,
        clock: &cluster.clock,
    }
}

/// Deletes the cookies, ends the claims, and forgets the job when all is done.
async fn cookies(cluster: &Cluster, job: &Job, execute: bool) -> Result<(), Failure> {
    let admins = Admins::new();
    let hold = hold(cluster, job, &admins);
    for bookie in &job.bookies {
        let registered = hold.registered(bookie).await;
        let registered = registered.map_err(|error| Failure::new(Exit::FAILED, error))?;
        // One that ZooKeeper has lost may run all the same, and registers itself again.
        let answers = matches!(
            cluster.bookies.get(bookie).space().await,
            Ok(_) | Err(BookieError::Status(_))
        );
        if registered != Registered::Absent || answers {
            let bookie = bookie.clone();
            let error = EndError::Runs { bookie };
            return Err(Failure::new(Exit::FAILED, error));
        }
    }
    if !execute {
        return print("would delete their cookies and forget the job; with --execute\n");
    }
    for bookie in &job.bookies {
        let deleted = delete_cookie(&*cluster.store, &cluster.place, bookie).await;
        deleted.map_err(of_end)?;
        let ended = hold.forget(bookie).await;
        ended.map_err(|error| Failure::new(Exit::FAILED, error))?;
        print(&format!("the cookie of {bookie} is deleted\n"))?;
    }
    cluster.jobs.forget(&job.id).await.map_err(of_job)?;
    print(&format!("job {} is forgotten\n", job.id))
}

fn of_end(error: EndError) -> Failure {
    match error {
        EndError::Job(error) => of_job(error),
        EndError::Store { ref source, .. } => Failure::new(exit_of(source), error),
        EndError::Runs { .. } => Failure::new(Exit::FAILED, error),
    }
}

fn told(form: Form, job: &Job, left: &Left, is_safe: bool) -> String {
    match form {
        Form::Human => human(job, left, is_safe),
        Form::Json => {
            let document = json!({
                "job": job.id,
                "bookies": job.bookies,
                "safeToStop": left.is_nothing() && is_safe,
                "tasks": left.tasks,
                "held": left.held,
                "ledgers": left.ledgers,
                "newTasks": left.added,
                "unreadable": left.unreadable.count,
                "underReplicated": left.lacking,
                "writable": left.writable,
                "readersSafe": is_safe,
            });
            document.to_string() + "\n"
        }
    }
}

fn human(job: &Job, left: &Left, is_safe: bool) -> String {
    if left.is_nothing() && is_safe {
        return format!(
            "safe to stop: {}; no metadata names them\n",
            words(&job.bookies)
        );
    }
    let mut text = format!("not safe to stop: {}\n", words(&job.bookies));
    if left.tasks != 0 {
        text.push_str(&format!(
            "  {} tasks are left: 'dirkeeper drain status --job {}' says why\n",
            left.tasks, job.id
        ));
    }
    if left.ledgers != 0 {
        text.push_str(&format!("  {} ledgers name them", left.ledgers));
        match left.added {
            0 => text.push('\n'),
            added => text.push_str(&format!(", and {added} of them have a task only now\n")),
        }
    }
    if left.unreadable.count != 0 {
        let some = left.unreadable.some.iter().take(NAMED);
        let some: Vec<String> = some.map(|(id, why)| format!("{id} ({why})")).collect();
        text.push_str(&format!(
            "  the metadata of {} ledgers is not understood, and may name them: {}\n",
            left.unreadable.count,
            some.join(", ")
        ));
    }
    if !left.lacking.is_empty() {
        let some: Vec<String> = left
            .lacking
            .iter()
            .take(NAMED)
            .map(u64::to_string)
            .collect();
        text.push_str(&format!(
            "  BookKeeper waits to replicate {} ledgers because of them: {}\n",
            left.lacking.len(),
            some.join(", ")
        ));
    }
    if !left.writable.is_empty() {
        text.push_str(&format!(
            "  {} writable, or was a moment ago, so that new ledgers may name it: 'dirkeeper drain run' keeps it read-only\n",
            left.writable.join(", ") + if left.writable.len() == 1 { " is" } else { " are" }
        ));
    }
    if left.held != 0 {
        text.push_str(&format!(
            "  {} ledgers are moved, and kept for readers until --readers-safe\n",
            left.held
        ));
    }
    if left.is_nothing() {
        text.push_str(
            "  no metadata names them, but readers may still ask them: say --readers-safe when every \
             broker reads changed metadata, was restarted, or has unloaded the topics that were moved\n",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::drain::job::{OpenLedgers, ReaderGate};
    use crate::drain::plan::survey::Listed;

    #[test]
    fn everything_that_keeps_bookies_from_being_stopped_is_said() {
        let job = Job {
            id: "d-0123abcd".to_owned(),
            bookies: BTreeSet::from(["bk1:3181".to_owned()]),
            open_ledgers: OpenLedgers::Wait,
            reader_gate: ReaderGate::Refuse,
            mirror: false,
            began: 0,
            phase: Phase::Running,
            who: "admin1".to_owned(),
        };
        let mut unreadable = Listed::default();
        unreadable.push((7, "format 4".to_owned()));
        let all = Left {
            tasks: 3,
            held: 2,
            ledgers: 5,
            added: 1,
            unreadable,
            lacking: vec![11, 12],
            writable: vec!["bk1:3181".to_owned()],
        };
        let nothing = Left {
            held: 2,
            ..Left::default()
        };
        let human = |left, is_safe| told(Form::Human, &job, left, is_safe);
        let texts = [
            human(&all, true),
            human(&nothing, false),
            human(&nothing, true),
        ];
        insta::assert_snapshot!(texts.concat(), @"
        not safe to stop: bk1:3181
          3 tasks are left: 'dirkeeper drain status --job d-0123abcd' says why
          5 ledgers name them, and 1 of them have a task only now
          the metadata of 1 ledgers is not understood, and may name them: 7 (format 4)
          BookKeeper waits to replicate 2 ledgers because of them: 11, 12
          bk1:3181 is writable, or was a moment ago, so that new ledgers may name it: 'dirkeeper drain run' keeps it read-only
          2 ledgers are moved, and kept for readers until --readers-safe
        not safe to stop: bk1:3181
          2 ledgers are moved, and kept for readers until --readers-safe
          no metadata names them, but readers may still ask them: say --readers-safe when every broker reads changed metadata, was restarted, or has unloaded the topics that were moved
        safe to stop: bk1:3181; no metadata names them
        ");
        let json = |left, is_safe| told(Form::Json, &job, left, is_safe);
        assert!(json(&all, true).contains(r#""safeToStop":false"#));
        assert!(json(&nothing, false).contains(r#""safeToStop":false"#));
        assert!(json(&nothing, true).contains(r#""safeToStop":true"#));
    }
}

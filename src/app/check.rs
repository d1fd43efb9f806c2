//! `check`: the same prober and the same loop as the agent's, for as long as it takes to judge every
//! directory once. No state, no listeners, no server.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::mpsc;

use crate::child;
use crate::clock::Clock;
use crate::config::{self, Sources};
use crate::health::dir::{Dir, path_text};
use crate::health::snapshot::{SelfView, Snapshot};
use crate::monitor::{ACTION_QUEUE, Action, Monitor, MonitorOptions};
use crate::probe::Prober;

/// What to check.
#[derive(Debug)]
pub struct CheckOptions {
    /// Where the directories come from.
    pub sources: Sources,
    /// Only these of them, absolute paths; all when there are none.
    pub only: Vec<PathBuf>,
    /// How long the round may take.
    pub timeout: Duration,
}

/// A directory that was named and is not watched.
#[derive(Debug, thiserror::Error)]
#[error("{path} is not among the configured directories: {known}")]
pub struct NotConfigured {
    path: String,
    known: String,
}

/// Makes one round. What has not answered by the time-out is as it is then: hung if it is overdue,
/// else unknown. Leaves a stuck child behind.
///
/// # Errors
/// The configuration is not valid, a directory is not in it, or this program's own file cannot be
/// found.
pub async fn check(options: CheckOptions) -> Result<(Arc<Snapshot>, SelfView), anyhow::Error> {
    let sources = options.sources.or_ledger_dirs(&options.only);
    let mut config = config::load(&sources)?;
    config.dirs = select(config.dirs, &options.only)?;
    config.policy.partial = !options.only.is_empty();
    let program = child::own_program().context("cannot find this program's own file")?;
    let clock = Clock::start();
    let (reports, report_queue) = mpsc::channel(ACTION_QUEUE);
    let (actions, action_queue) = mpsc::channel(ACTION_QUEUE);
    let prober = Prober::start(
        super::prober_options(&config, program),
        clock.clone(),
        reports,
    );
    let monitor_options = MonitorOptions {
        dirs: config.dirs,
        policy: config.policy,
        pins: Box::new(|_| None),
        keep_pin: Box::new(|_, _| {}),
        publish: Box::new(|_| {}),
        last_seq: Some(0),
        look_only: true,
    };
    let (monitor, mut snapshots) = Monitor::new(monitor_options, prober, clock);
    let monitor = tokio::spawn(monitor.run(action_queue, report_queue));
    let judged = snapshots.wait_for(|snapshot| snapshot.ready);
    // Over, or the loop ended: the last picture counts.
    drop(tokio::time::timeout(options.timeout, judged).await);
    let _ = actions.send(Action::Stop).await;
    // The loop's last act is a snapshot with everything that it has seen.
    let _ = monitor.await;
    let snapshot = Arc::clone(&snapshots.borrow());
    let own = SelfView {
        state_store_ok: true,
        config_reload_ok: true,
        problems: config.warnings.iter().map(ToString::to_string).collect(),
        ..SelfView::default()
    };
    Ok((snapshot, own))
}

/// The directories of these paths; a path that is not among them is an error.
fn select(dirs: Vec<Dir>, only: &[PathBuf]) -> Result<Vec<Dir>, NotConfigured> {
    if let Some(unknown) = only
        .iter()
        .find(|path| !dirs.iter().any(|dir| dir.path == **path))
    {
        let known: Vec<String> = dirs.iter().map(|dir| path_text(&dir.path)).collect();
        return Err(NotConfigured {
            path: path_text(unknown),
            known: known.join(", "),
        });
    }
    let wanted = |dir: &Dir| only.is_empty() || only.contains(&dir.path);
    Ok(dirs.into_iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::dir::{ProbePolicy, Role, Thresholds};

    fn dir(path: &str) -> Dir {
        Dir {
            path: path.into(),
            role: Role::Ledger,
            thresholds: Thresholds::default(),
            probe: ProbePolicy::default(),
            require_mount: false,
            root_ok: false,
            await_cookie: false,
            ballast: 0,
        }
    }

    #[test]
    fn only_what_is_named_is_checked_and_what_is_not_known_is_said() {
        let dirs = vec![dir("/a"), dir("/b")];
        let paths = |only: &[&str]| {
            let only: Vec<PathBuf> = only.iter().map(PathBuf::from).collect();
            let selected = select(dirs.clone(), &only);
            match selected {
                Ok(dirs) => dirs
                    .iter()
                    .map(|dir| path_text(&dir.path))
                    .collect::<Vec<_>>()
                    .join(" "),
                Err(error) => error.to_string(),
            }
        };
        assert_eq!(paths(&[]), "/a /b");
        assert_eq!(paths(&["/b/"]), "/b");
        assert_eq!(
            paths(&["/c"]),
            "/c is not among the configured directories: /a, /b"
        );
    }
}

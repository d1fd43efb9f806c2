//! `check`: the same prober and the same loop as the agent's, for as long as it takes to judge every
//! directory once. No state, no listeners, no server.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::mpsc;

use crate::child;
use crate::clock::Clock;
use crate::config::{self, Sources};
use crate::health::snapshot::{SelfView, Snapshot};
use crate::monitor::{ACTION_QUEUE, Action, Monitor, MonitorOptions};
use crate::probe::Prober;

/// What to check.
#[derive(Debug)]
pub struct CheckOptions {
    /// Where the directories come from.
    pub sources: Sources,
    /// How long the round may take.
    pub timeout: Duration,
}

/// Makes one round. What has not answered by the time-out is as it is then: hung if it is overdue,
/// else unknown. Leaves a stuck child behind.
///
/// # Errors
/// The configuration is not valid, or this program's own file cannot be found.
pub async fn check(options: CheckOptions) -> Result<(Arc<Snapshot>, SelfView), anyhow::Error> {
    let config = config::load(&options.sources)?;
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

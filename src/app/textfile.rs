//! The textfile of metrics for node_exporter: handed to the writer child in turns, which puts it into
//! its directory. What becomes of it is among the problems.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::handles::Parts;
use crate::state::Store;

/// Between two texts: how often Prometheus scrapes by custom.
const INTERVAL: Duration = Duration::from_secs(15);

/// Starts writing. The directory may change; the task ends when nobody is left who could say so.
pub(super) fn start(directory: Option<PathBuf>, parts: &Parts) -> watch::Sender<Option<PathBuf>> {
    let (directory, configured) = watch::channel(directory);
    let (store, render, mut snapshots) = (
        parts.store.clone(),
        parts.textfile(),
        parts.snapshots.clone(),
    );
    tokio::spawn(async move {
        // Before every directory was judged, there is little to tell.
        let _ = snapshots.wait_for(|snapshot| snapshot.ready).await;
        drop(snapshots);
        write(store, configured, render).await;
    });
    directory
}

/// Writes for as long as there is a configuration. `render` makes the text of this moment.
async fn write(
    store: Store,
    mut directory: watch::Receiver<Option<PathBuf>>,
    render: impl Fn() -> String,
) {
    let mut tick = tokio::time::interval(INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut is_there = false;
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            changed = directory.changed() => if changed.is_err() { return },
        }
        let directory = directory.borrow_and_update().clone();
        match &directory {
            Some(directory) => store.put_textfile(directory, &render()),
            None if is_there => store.remove_textfile(),
            None => {}
        }
        is_there = directory.is_some();
    }
}

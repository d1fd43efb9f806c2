//! The PUT itself, and what is looked at before and after it: that it is this bookie's server, that ZooKeeper answers
//! now and the lock is still ours, and that both the bookie and its registration show what was asked for.

use std::time::Duration;

use tokio::time::{interval, timeout};

use super::Task;
use crate::bookie::AdminError;
use crate::cluster::{Cluster, DEADLINE, ModeLock};
use crate::mode::plan::keeper::Outcome;
use crate::report;

/// How long the new registration is waited for under the lock, so that the next one counts right.
const REGISTRATION_WAIT: Duration = Duration::from_secs(3);
const REGISTRATION_LOOK: Duration = Duration::from_millis(50);

/// What the PUT did is seen, and not in ZooKeeper.
const STRANGER: &str = "the admin server obeys, and the bookie stays registered as before: it is another bookie's, and was told to go back (see admin_url)";

/// Its file, which is read too, may have been changed since.
pub(super) const NO_READ_ONLY: &str = "the bookie was started with readOnlyModeEnabled=false: it refuses read-only, and some versions shut down instead";

/// Either node may be of a session that ends soon, as after a bookie that was killed; or of none.
const TWICE: &str = "the bookie is registered in both lists by two sessions: told now, it would wait for the end of the other one, and end itself if that does not come";

impl Task {
    /// Sends the PUT if ZooKeeper answers right now, and waits until the bookie is registered so. The agent, or its whole
    /// machine, may have stood still since its last step: then the lock is another's.
    pub(super) async fn put_sure(
        &mut self,
        cluster: &Cluster,
        read_only: bool,
        lock: Option<&ModeLock>,
    ) -> Outcome {
        let asked = self.parts.clock.elapsed();
        if let Err(error) = cluster.confirm().await {
            return Outcome::Held(format!(
                "ZooKeeper does not answer: {}",
                report::text(&error)
            ));
        }
        let late = DEADLINE < self.parts.clock.elapsed().saturating_sub(asked);
        if late || lock.is_some_and(|lock| !lock.is_held()) {
            return Outcome::Held("the lock of the cluster may be another's by now".to_owned());
        }
        match self.put(read_only).await {
            Outcome::Done => {}
            other => return other,
        }
        match self.registered(cluster, read_only).await {
            Some(true) => Outcome::Done,
            Some(false) => {
                // It was in the other mode before, and nobody asked for this one there.
                let _ = self.put(!read_only).await;
                self.keeper.is_stranger(STRANGER.to_owned());
                Outcome::Refused(STRANGER.to_owned())
            }
            None => Outcome::Held("the bookie obeyed, and is not registered so in time".to_owned()),
        }
    }

    /// Waits until the bookie is registered in this mode: false when it stays in the other, none when neither can be said.
    async fn registered(&self, cluster: &Cluster, read_only: bool) -> Option<bool> {
        let id = &self.parts.bookie_id;
        let mut other = false;
        let registered = async {
            let mut looks = interval(REGISTRATION_LOOK);
            loop {
                looks.tick().await;
                let found = cluster.registration(id).await.ok();
                let found = found.filter(|found| found.read_only != found.writable);
                other = found.is_some_and(|found| found.read_only != read_only);
                if found.is_some() && !other {
                    return;
                }
            }
        };
        let registered = timeout(REGISTRATION_WAIT, registered).await.is_ok();
        (registered || other).then_some(registered)
    }

    /// What speaks against a PUT: another agent is its, it is another bookie, has no read-only mode, or is registered so that the
    /// PUT would end it. `read_only`: its mode now.
    pub(super) async fn check(&mut self, cluster: &Cluster, read_only: bool) -> Option<Outcome> {
        self.look_for_rival(cluster).await;
        if let Some((_, rival)) = &self.rival {
            return Some(Outcome::Held(rival.clone()));
        }
        let id = &self.parts.bookie_id;
        let config = match self.parts.admin.server_config().await {
            Ok(config) => config,
            Err(error) => return Some(Outcome::Held(error.to_string())),
        };
        if let Some(other) = config.other_than(id) {
            let why = format!("the admin server is that of the bookie {other}, and not of {id}");
            return Some(Outcome::Refused(why));
        }
        if !config.read_only_enabled {
            return Some(Outcome::Refused(NO_READ_ONLY.to_owned()));
        }
        if cluster.is_registered_by_two(id).await.ok()? {
            return Some(Outcome::Held(TWICE.to_owned()));
        }
        let found = cluster.registration(id).await.ok()?;
        let other = found.read_only != found.writable && found.read_only != read_only;
        let why =
            "the bookie is registered in another mode than it says: is the admin server another's?";
        other.then(|| Outcome::Held(why.to_owned()))
    }

    /// Sends the PUT and reads back: an answer of success is not believed (BookKeeper #3881).
    async fn put(&mut self, read_only: bool) -> Outcome {
        if let Err(error) = self.parts.admin.set_read_only(read_only).await {
            return match error {
                error if error.is_refusal() => Outcome::Refused(error.to_string()),
                // It may take effect later: the next turns see it.
                error => Outcome::Held(error.to_string()),
            };
        }
        let asked = self.parts.clock.elapsed();
        let state = self.parts.admin.state().await;
        let seen = state.as_ref().map(|state| state.read_only).ok();
        let text = |error: AdminError| error.to_string();
        self.newest = Some((asked, state.map_err(text)));
        if seen == Some(read_only) {
            return Outcome::Done;
        }
        let mode = if read_only { "read-only" } else { "writable" };
        Outcome::Held(format!(
            "the bookie answered the PUT with success and is not {mode}"
        ))
    }
}

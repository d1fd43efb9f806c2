//! Who of several does a work that one must do: a node that goes with its owner's session, and everybody else waits
//! for it to go. A leader whose session is not connected leads no more, before anybody else can.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::DEADLINE;
use super::attempt::{Attempt, RETRY};
use super::store::{Link, MetaStore, StoreError};

/// Leads until this is resigned or dropped, or the session ends.
#[derive(Debug)]
pub struct Leader {
    attempt: Attempt,
    link: watch::Receiver<Link>,
}

impl Leader {
    /// Still leads for certain: the session in which it was elected is connected. Otherwise another may lead by now,
    /// or soon. A leadership that ended so can come back while its session lives.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.attempt.lives()
    }

    /// Waits until it does not.
    pub async fn lost(&self) {
        let mut link = self.link.clone();
        while self.is_leader() {
            if link.changed().await.is_err() {
                return;
            }
        }
    }

    /// Makes room for the next one, and waits for the answer at most as long as for any other.
    pub async fn resign(mut self) {
        let taken_back = timeout(DEADLINE, self.attempt.take_back()).await;
        self.attempt.open = !matches!(taken_back, Ok(Ok(())));
    }
}

/// Waits for its turn to lead, however long, through lost connections and ended sessions. Who leads is told: nobody until
/// that is known, then the others, and at last `who`.
///
/// # Errors
/// The node cannot be made, e.g. because the server does not allow it.
pub async fn campaign(
    store: Arc<dyn MetaStore>,
    path: &str,
    who: &str,
    leads: &watch::Sender<Option<String>>,
) -> Result<Leader, StoreError> {
    let mut link = store.link();
    loop {
        let now = link.wait_for(|link| matches!(link, Link::Connected(_)));
        let session = match now.await.map(|link| *link) {
            Ok(Link::Connected(session)) => session,
            Ok(Link::Lost { .. }) | Err(_) => return Err(StoreError::Lost),
        };
        let role = ("agent", who);
        let mut attempt = Attempt::new(Arc::clone(&store), path.to_owned(), role, session);
        let mut told = |other| drop(leads.send_replace(Some(other)));
        match attempt.make(&mut told).await {
            Ok(_) if attempt.lives() => {
                leads.send_replace(Some(who.to_owned()));
                return Ok(Leader { attempt, link });
            }
            Ok(_) => {}
            Err(error) => {
                attempt.open = error.is_open();
                match error {
                    StoreError::Lost | StoreError::Expired | StoreError::TimedOut => {}
                    error => return Err(error),
                }
            }
        }
        leads.send_replace(None);
        sleep(RETRY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::cluster::memory::{Memory, MemorySession};

    const PATH: &str = "/dirkeeper/an-id/reclaim/leader";

    type Run = tokio::task::JoinHandle<Result<Leader, StoreError>>;

    fn run(
        store: &Arc<MemorySession>,
        who: &'static str,
    ) -> (Run, watch::Receiver<Option<String>>) {
        let (leads, told) = watch::channel(None);
        let store: Arc<dyn MetaStore> = store.clone();
        let run = tokio::spawn(async move { campaign(store, PATH, who, &leads).await });
        (run, told)
    }

    async fn elected(run: Run) -> Leader {
        let elected = timeout(DEADLINE * 5, run).await;
        elected.expect("not elected within 10 s").unwrap().unwrap()
    }

    async fn hears(told: &mut watch::Receiver<Option<String>>, who: &str) {
        let heard = told.wait_for(|leads| leads.as_deref() == Some(who));
        let heard = timeout(DEADLINE * 5, heard).await;
        heard.expect("not told who leads within 10 s").unwrap();
    }

    #[tokio::test]
    async fn one_leads_and_the_next_one_waits_for_it() {
        let server = Memory::new(Clock::manual());
        let (one, two) = (Arc::new(server.connect()), Arc::new(server.connect()));
        let first = elected(run(&one, "one").0).await;
        let (second, mut told) = run(&two, "two");
        hears(&mut told, "one").await;
        assert!(first.is_leader() && !second.is_finished());
        first.resign().await;
        let second = elected(second).await;
        assert!(second.is_leader());
        // A leader that is dropped makes room too.
        let (third, mut told) = run(&one, "one");
        hears(&mut told, "two").await;
        drop(second);
        assert!(elected(third).await.is_leader());
    }

    #[tokio::test]
    async fn who_is_cut_off_leads_no_more_before_another_does() {
        let server = Memory::new(Clock::manual());
        let (one, two) = (Arc::new(server.connect()), Arc::new(server.connect()));
        let first = elected(run(&one, "one").0).await;
        let (second, mut told) = run(&two, "two");
        hears(&mut told, "one").await;
        one.disconnect();
        assert!(!first.is_leader());
        timeout(DEADLINE, first.lost()).await.expect("not told");
        // The session lives, and with it the leadership.
        assert!(!second.is_finished());
        one.reconnect();
        assert!(first.is_leader());
        one.expire();
        assert!(!first.is_leader());
        let second = elected(second).await;
        one.reconnect();
        assert!(!first.is_leader() && second.is_leader());
        // The old one's end takes nothing from the new one.
        first.resign().await;
        let (data, _) = two.get(PATH).await.unwrap();
        assert!(String::from_utf8(data).unwrap().contains("two"));
    }

    #[tokio::test]
    async fn a_candidate_whose_session_ends_runs_again() {
        let server = Memory::new(Clock::manual());
        let (one, two) = (Arc::new(server.connect()), Arc::new(server.connect()));
        let first = elected(run(&one, "one").0).await;
        let (second, mut told) = run(&two, "two");
        hears(&mut told, "one").await;
        two.expire();
        first.resign().await;
        two.reconnect();
        let second = elected(second).await;
        assert!(second.is_leader());
        hears(&mut told, "two").await;
    }

    #[tokio::test]
    async fn a_campaign_that_is_given_up_leaves_nothing() {
        let server = Memory::new(Clock::manual());
        let (one, two) = (Arc::new(server.connect()), Arc::new(server.connect()));
        let first = elected(run(&one, "one").0).await;
        let (second, mut told) = run(&two, "two");
        hears(&mut told, "one").await;
        second.abort();
        assert!(second.await.unwrap_err().is_cancelled());
        first.resign().await;
        assert_eq!(two.stat(PATH).await, Ok(None));
    }
}

//! What the HTTP server is handed: closures over the parts, none of which blocks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::beside::Orders;
use crate::clock::Clock;
use crate::document::About;
use crate::health::claim::ModeOrder;
use crate::health::dir::DirId;
use crate::health::snapshot::{SelfView, Snapshot};
use crate::health::status::AccessStatus;
use crate::http::{
    Access, Answer, Control, Handles, MayStop, Order, PastEvent, PastEvents, Refusal,
};
use crate::listener::{Alertmanager, Dispatcher};
use crate::metrics::{self, ProcessReader};
use crate::monitor::Action;
use crate::state::Store;

/// Counts log lines that did not fit.
pub(super) type Dropped = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The loop publishes each second; so many without a picture mean that it does not move.
const LIVE: Duration = Duration::from_secs(10);

/// Metrics that are so young are given again: they are the dearest answer, and a hundred clients that
/// ask at once must not keep a scrape waiting for a hundred of them.
const SAME_METRICS: Duration = Duration::from_millis(100);

/// Longest wait for what becomes of an order on the mode: a claim is written to disk and to
/// ZooKeeper first. Less than the server's limit for an answer, so that the client learns what is known.
const MODE_PATIENCE: Duration = Duration::from_secs(4);

const NO_KEEPER: &str = "no bookie is configured whose mode can be kept: [bookie] has to name its admin server \
    (admin_url) and its id (id), or conf a file that says both";

/// What the closures are made from.
pub(super) struct Parts {
    pub(super) about: About,
    pub(super) clock: Clock,
    pub(super) snapshots: watch::Receiver<Arc<Snapshot>>,
    pub(super) dispatcher: Dispatcher,
    pub(super) alertmanager: Option<Alertmanager>,
    pub(super) store: Store,
    pub(super) actions: mpsc::Sender<Action>,
    pub(super) reload_ok: Arc<AtomicBool>,
    pub(super) log_dropped: Dropped,
    pub(super) access: watch::Receiver<Arc<Access>>,
    pub(super) token: Option<Arc<str>>,
    pub(super) first_problems: Vec<String>,
    /// Who turns the bookie's mode.
    pub(super) mode_orders: Orders,
}

impl Parts {
    pub(super) fn handles(self) -> Handles {
        let self_view = self.self_view();
        let control = self.token.clone().map(|token| Control {
            token,
            order: self.orders(),
        });
        let metrics = {
            let (snapshots, own) = (self.snapshots.clone(), Arc::clone(&self_view));
            let about = self.about.clone();
            let (clock, last) = (self.clock.clone(), Mutex::default());
            let process = Mutex::new(ProcessReader::default());
            Arc::new(move || {
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                let now = clock.elapsed();
                if let Some((at, text)) = &*last
                    && now.saturating_sub(*at) < SAME_METRICS
                {
                    return String::clone(text);
                }
                let mut text = String::new();
                let snapshot = Arc::clone(&snapshots.borrow());
                let facts = process
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .read();
                metrics::render(&snapshot, &own(), &about, Some(&facts), &mut text);
                *last = Some((now, text.clone()));
                text
            })
        };
        let store = self.store.clone();
        let events = Arc::new(move |since, limit| -> PastEvents {
            let store = store.clone();
            Box::pin(async move {
                let stored = store.events(since, limit).await?;
                let past = stored.into_iter().map(|event| PastEvent {
                    seq: event.seq,
                    json: event.json,
                });
                Ok(past.collect())
            })
        });
        Handles {
            snapshot: self.snapshots.clone(),
            self_view,
            about: self.about.clone(),
            events,
            live: self.live(),
            metrics,
            access: self.access.clone(),
            control,
            may_stop: self.may_stop(),
        }
    }

    /// The text of the textfile.
    pub(super) fn textfile(&self) -> impl Fn() -> String + Send + use<> {
        let (snapshots, own) = (self.snapshots.clone(), self.self_view());
        let about = self.about.clone();
        move || {
            let mut text = String::new();
            let snapshot = Arc::clone(&snapshots.borrow());
            metrics::render(&snapshot, &own(), &about, None, &mut text);
            text
        }
    }

    fn self_view(&self) -> Arc<dyn Fn() -> SelfView + Send + Sync> {
        let (dispatcher, store) = (self.dispatcher.clone(), self.store.clone());
        let (reload_ok, alertmanager) = (Arc::clone(&self.reload_ok), self.alertmanager.clone());
        let dropped = Arc::clone(&self.log_dropped);
        let first = self.first_problems.clone();
        Arc::new(move || {
            let health = store.health();
            let mut problems = first.clone();
            problems.extend(health.problem);
            problems.extend(store.textfile_problem());
            problems.extend(dispatcher.problems());
            let mut listeners = dispatcher.views();
            if let Some(alertmanager) = &alertmanager {
                problems.extend(alertmanager.problems());
                listeners.extend(alertmanager.views());
            }
            SelfView {
                listeners,
                state_store_ok: health.ok,
                config_reload_ok: reload_ok.load(Ordering::Relaxed),
                log_lines_dropped: dropped(),
                writer_restarts: health.restarts,
                problems,
            }
        })
    }

    /// The loop is alive while its pictures are young. Compared on the monotonic clock and counted
    /// from when this saw the picture change, so that a stepped wall clock is no death.
    fn live(&self) -> Arc<dyn Fn() -> Result<(), String> + Send + Sync> {
        let (clock, snapshots) = (self.clock.clone(), self.snapshots.clone());
        Arc::new(move || {
            let age = clock.elapsed().saturating_sub(snapshots.borrow().elapsed);
            if age < LIVE {
                return Ok(());
            }
            Err(format!(
                "the monitor loop has not moved for {} s",
                age.as_secs()
            ))
        })
    }

    fn orders(&self) -> Arc<dyn Fn(Order) -> Answer + Send + Sync> {
        let (actions, snapshots) = (self.actions.clone(), self.snapshots.clone());
        let keeper = self.mode_orders.clone();
        Arc::new(move |order| {
            let refused = |why: &str| Refusal::Refused(why.to_owned());
            let view = |id: DirId| {
                let snapshot = snapshots.borrow();
                let view = snapshot.dirs.iter().find(|view| view.id == id).cloned();
                view.ok_or_else(|| refused("the directory is not watched any more"))
            };
            let action = match order {
                Order::Mode(order) => return Box::pin(ask(keeper.clone(), order)),
                Order::Probe { dir: None } => Ok(Action::Probe(None)),
                Order::Probe { dir: Some(dir) } => {
                    view(dir).map(|dir| Action::Probe(Some(dir.path.clone())))
                }
                Order::Accept { dir } => view(dir).and_then(|dir| match dir.access_status {
                    AccessStatus::Replaced => Ok(Action::Accept(dir.path.clone())),
                    _ => Err(refused(
                        "the directory is not replaced: there is nothing to accept",
                    )),
                }),
            };
            let sent = action
                .and_then(|action| actions.try_send(action).map_err(|_| Refusal::Busy))
                .map(|()| None);
            Box::pin(std::future::ready(sent))
        })
    }

    fn may_stop(&self) -> MayStop {
        let keeper = self.mode_orders.clone();
        Arc::new(move |reserve| Box::pin(ask(keeper.clone(), ModeOrder::MayStop { reserve })))
    }
}

/// Hands an order to the keeper of the mode and waits for what it says.
async fn ask(keeper: Orders, order: ModeOrder) -> Result<Option<String>, Refusal> {
    let keeper = keeper.borrow().clone();
    let keeper = keeper.ok_or(Refusal::NotSupported(NO_KEEPER))?;
    let (answer, answered) = oneshot::channel();
    keeper
        .try_send((order, answer))
        .map_err(|_| Refusal::Busy)?;
    match timeout(MODE_PATIENCE, answered).await {
        Ok(Ok(Ok(message))) => Ok(Some(message)),
        Ok(Ok(Err(why))) => Err(Refusal::Refused(why)),
        Ok(Err(_)) | Err(_) => Err(Refusal::NoAnswer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_order_on_the_mode_is_answered_whatever_its_keeper_does() {
        let none = watch::Sender::new(None);
        let ordered = ask(none.subscribe(), ModeOrder::Release).await;
        assert_eq!(ordered, Err(Refusal::NotSupported(NO_KEEPER)));

        let (keeper, mut orders) = mpsc::channel::<(ModeOrder, oneshot::Sender<_>)>(1);
        let keepers = watch::Sender::new(Some(keeper.clone()));
        let asked = || ask(keepers.subscribe(), ModeOrder::MayStop { reserve: true });
        for said in [Ok("done".to_owned()), Err("too few".to_owned())] {
            let answering = async {
                let (order, answer) = orders.recv().await.unwrap();
                assert_eq!(order, ModeOrder::MayStop { reserve: true });
                answer.send(said.clone()).unwrap();
            };
            let (ordered, ()) = tokio::join!(asked(), answering);
            assert_eq!(ordered, said.map(Some).map_err(Refusal::Refused));
        }
        let dropping = async { drop(orders.recv().await) };
        let (ordered, ()) = tokio::join!(asked(), dropping);
        assert_eq!(ordered, Err(Refusal::NoAnswer));

        let (answer, _waits) = oneshot::channel();
        keeper.try_send((ModeOrder::Release, answer)).unwrap();
        assert_eq!(asked().await, Err(Refusal::Busy));
    }
}

//! Hands events to listeners. The log and callbacks get an event at once; hooks and webhooks when it is
//! safe in the state store, or when the store did not make it safe in its 500 ms. It decides nothing
//! about events and waits for no listener.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::callback::CallbackWorker;
use super::courier::{Courier, Limits, Receiver, Surroundings};
use super::hook::Notice;
use super::outbox::{Append, Outbox};
use super::{Callback, Listener, lock, log};
use crate::clock::Clock;
use crate::document::Host;
use crate::health::event::Event;
use crate::health::snapshot::ListenerView;
use crate::state::{Appended, Store, StoredEvent};

/// Events between the monitor loop and the store: 16 for each of 512 directories, or most of ten
/// thousand in a second while the store takes its 500 ms. Beyond it hooks lose events, which is counted.
const QUEUE: usize = 8192;

/// Bytes of events that the store has and did not answer for: half of what it keeps in memory. When
/// it hangs they are over in its 500 ms, and those behind them at once.
const ON_THEIR_WAY: usize = 512 << 10;

/// How long [`Dispatcher::stop`] waits: 500 ms for the store to take the last events, as much for
/// hooks that are about to end. The agent has 2 s to stop.
const STOP: Duration = Duration::from_secs(1);

/// Name and kind of the log among the listeners.
const LOG: &str = "log";

/// Starts listeners and hands events to them. Cheap to clone; clones share it. When the last clone
/// is dropped, no new delivery begins.
#[derive(Clone)]
pub struct Dispatcher {
    inner: Arc<Inner>,
}

struct Inner {
    registry: Arc<Registry>,
    /// None after the stop.
    queue: Mutex<Option<mpsc::Sender<Arc<Event>>>>,
    settled: watch::Receiver<()>,
}

/// The running listeners and what they need.
struct Registry {
    workers: Mutex<Vec<Worker>>,
    host: Host,
    around: Surroundings,
    routed: watch::Sender<bool>,
}

enum Worker {
    Callback(CallbackWorker),
    Courier(Courier),
}

impl Dispatcher {
    /// Starts the listeners. `pending` is what the store had for them when it was opened: it is
    /// delivered before anything new; what it has for listeners that are not configured any more is
    /// ended. Needs a tokio runtime with timers; blocks nowhere.
    #[must_use]
    pub fn start(
        listeners: Vec<Listener>,
        store: Option<Store>,
        pending: BTreeMap<String, Vec<StoredEvent>>,
        host: Host,
        clock: Clock,
    ) -> Dispatcher {
        let outbox = Arc::new(store);
        Dispatcher::with(listeners, outbox, pending, host, clock, Limits::default())
    }

    pub(super) fn with(
        listeners: Vec<Listener>,
        outbox: Arc<dyn Outbox>,
        pending: BTreeMap<String, Vec<StoredEvent>>,
        host: Host,
        clock: Clock,
        limits: Limits,
    ) -> Dispatcher {
        let (touch, settled) = watch::channel(());
        let registry = Arc::new(Registry {
            workers: Mutex::default(),
            host,
            around: Surroundings {
                outbox,
                clock,
                limits,
                settled: touch,
            },
            routed: watch::Sender::new(false),
        });
        let workers = listeners.into_iter().map(|it| registry.start(it)).collect();
        *lock(&registry.workers) = workers;
        registry.resume(pending);
        let (queue, events) = mpsc::channel(QUEUE);
        tokio::spawn(route(events, Arc::clone(&registry)));
        Dispatcher {
            inner: Arc::new(Inner {
                registry,
                queue: Mutex::new(Some(queue)),
                settled,
            }),
        }
    }

    /// Hands an event on. Call it in the order of event numbers. Never blocks.
    pub fn dispatch(&self, event: Arc<Event>) {
        let Inner {
            registry, queue, ..
        } = &*self.inner;
        for worker in lock(&registry.workers).iter() {
            if let Worker::Callback(callback) = worker {
                callback.push(&event);
            }
        }
        let queue = lock(queue);
        if let Some(Err(error)) = queue.as_ref().map(|queue| queue.try_send(event)) {
            registry.lose(&error.into_inner());
        }
    }

    /// Hands on what the store had for the listeners, when it opened late.
    pub fn resume(&self, pending: BTreeMap<String, Vec<StoredEvent>>) {
        self.inner.registry.resume(pending);
    }

    /// How each listener is doing, in configured order. Never blocks.
    #[must_use]
    pub fn views(&self) -> Vec<ListenerView> {
        let workers = lock(&self.inner.registry.workers);
        let views = workers.iter().map(|worker| match worker {
            Worker::Callback(callback) => callback.view(),
            Worker::Courier(courier) => courier.view(),
        });
        views.collect()
    }

    /// What is wrong with listeners now, in words: of a hook, its newest run if that was not well.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let workers = lock(&self.inner.registry.workers);
        let problems = workers.iter().filter_map(|worker| match worker {
            Worker::Callback(callback) => callback.problem(),
            Worker::Courier(courier) => courier.problem(),
        });
        problems.collect()
    }

    /// Takes over the listeners of a reloaded configuration. Hooks that stay (by name) keep their
    /// waiting events and counts; those of removed ones are ended. Callbacks are not configuration:
    /// they stay, and one in the list is added or takes the place of that of the same name. Returns
    /// how many waiting events were ended.
    pub fn replace(&self, listeners: Vec<Listener>) -> u64 {
        let ended = self.inner.registry.replace(listeners);
        if ended > 0 {
            tracing::warn!("{ended} events waited for listeners that were removed");
        }
        ended
    }

    /// The directories of a reloaded configuration: what waits at hooks for others is ended.
    /// Returns how many events that were.
    pub fn keep_dirs(&self, dirs: &BTreeSet<PathBuf>) -> u64 {
        let workers = lock(&self.inner.registry.workers);
        let ended = workers.iter().map(|worker| match worker {
            Worker::Courier(courier) => courier.keep_dirs(dirs),
            Worker::Callback(_) => 0,
        });
        ended.sum()
    }

    /// Takes no more events, waits until those taken are in the store and until the log, callbacks
    /// and running hooks have ended, but at most 1 s. No hook is begun after that. One that still
    /// runs goes on by itself; its event, like all that are not acknowledged, is in the store and is
    /// delivered after a restart.
    pub async fn stop(&self) {
        let registry = &self.inner.registry;
        drop(lock(&self.inner.queue).take());
        let mut routed = registry.routed.subscribe();
        let mut settled = self.inner.settled.clone();
        let quiet = async {
            let _ = routed.wait_for(|routed| *routed).await;
            let begun = |worker: &Worker| match worker {
                Worker::Courier(courier) => courier.has_begun(),
                Worker::Callback(_) => true,
            };
            let _ = settled.wait_for(|()| registry.all(begun)).await;
            registry.stop_hooks();
            let idle = |worker: &Worker| match worker {
                Worker::Courier(courier) => courier.is_idle(),
                Worker::Callback(callback) => callback.is_idle(),
            };
            let _ = settled.wait_for(|()| registry.all(idle)).await;
        };
        let _ = timeout(STOP, quiet).await;
        registry.stop_hooks();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.registry.stop_hooks();
    }
}

impl Registry {
    fn start(&self, listener: Listener) -> Worker {
        let (name, kind, events, call) = match listener {
            Listener::Hook(options) => return self.courier(Receiver::Hook(options)),
            Listener::Webhook(webhook) => return self.courier(Receiver::Webhook(webhook)),
            Listener::Log => (
                LOG.to_owned(),
                LOG,
                Vec::new(),
                Box::new(log::write) as Callback,
            ),
            Listener::Callback { name, events, call } => (name, "callback", events, call),
        };
        let settled = self.around.settled.clone();
        Worker::Callback(CallbackWorker::start(name, kind, events, call, settled))
    }

    fn courier(&self, receiver: Receiver) -> Worker {
        Worker::Courier(Courier::start(receiver, self.around.clone()))
    }

    /// Gives the hooks what an earlier run of the agent left.
    fn resume(&self, pending: BTreeMap<String, Vec<StoredEvent>>) {
        let workers = lock(&self.workers);
        for (name, events) in pending {
            let Some(courier) = find_courier(&workers, &name) else {
                let count = events.len();
                tracing::warn!("{count} events waited for {name}, which is not configured");
                for event in &events {
                    self.around.outbox.acknowledge(&name, event.seq);
                }
                continue;
            };
            for event in &events {
                match Notice::restore(event) {
                    Ok(notice) => courier.push(event.seq, notice),
                    Err(error) => {
                        let seq = event.seq;
                        courier.lose(format!("stored event {seq} cannot be read: {error}"));
                        self.around.outbox.acknowledge(&name, seq);
                    }
                }
            }
        }
    }

    fn replace(&self, listeners: Vec<Listener>) -> u64 {
        let mut workers = lock(&self.workers);
        let mut old = std::mem::take(&mut *workers);
        for listener in listeners {
            let receiver = match listener {
                Listener::Hook(options) => Receiver::Hook(options),
                Listener::Webhook(webhook) => Receiver::Webhook(webhook),
                other => {
                    let log = |worker: &Worker| match worker {
                        Worker::Callback(callback) => callback.kind() == LOG,
                        Worker::Courier(_) => false,
                    };
                    let running = matches!(other, Listener::Log).then(|| old.iter().position(log));
                    workers.push(match running.flatten() {
                        Some(at) => old.remove(at),
                        None => self.start(other),
                    });
                    continue;
                }
            };
            let same = old.iter().position(|worker| match worker {
                Worker::Courier(courier) => {
                    (courier.kind(), courier.name()) == (receiver.kind(), receiver.name())
                }
                Worker::Callback(_) => false,
            });
            let Some(same) = same else {
                workers.push(self.courier(receiver));
                continue;
            };
            let worker = old.remove(same);
            if let Worker::Courier(courier) = &worker {
                courier.configure(receiver);
            }
            workers.push(worker);
        }
        let mut ended = 0;
        for worker in old {
            match worker {
                Worker::Courier(courier) => ended += courier.remove(),
                Worker::Callback(callback) => {
                    let replaced = workers.iter().any(|worker| match worker {
                        Worker::Callback(other) => other.name() == callback.name(),
                        Worker::Courier(_) => false,
                    });
                    if replaced || callback.kind() == LOG {
                        ended += callback.end();
                    } else {
                        workers.push(Worker::Callback(callback));
                    }
                }
            }
        }
        ended
    }

    /// Begins to make an event safe for the hooks that want it now.
    fn begin(&self, event: Arc<Event>) -> Routed {
        let wanting = |worker: &Worker| match worker {
            Worker::Courier(courier) if courier.wants(event.kind) => {
                Some(courier.name().to_owned())
            }
            _ => None,
        };
        let names: Vec<String> = lock(&self.workers).iter().filter_map(wanting).collect();
        let notice = Notice::new(&event, &self.host);
        let json: Arc<str> = Arc::from(notice.json());
        let (seq, bytes) = (event.seq, json.len());
        let append = self
            .around
            .outbox
            .append(StoredEvent { seq, json }, names.clone());
        Routed {
            notice,
            bytes,
            names,
            append: Some(append),
        }
    }

    /// Hands an event to the hooks it was stored for. One that was removed meanwhile has ended it.
    fn deliver(&self, routed: &Routed) {
        let workers = lock(&self.workers);
        let seq = routed.notice.seq();
        for name in &routed.names {
            match find_courier(&workers, name) {
                Some(courier) => courier.push(seq, routed.notice.clone()),
                None => self.around.outbox.acknowledge(name, seq),
            }
        }
    }

    /// Counts an event for which there was no room.
    fn lose(&self, event: &Event) {
        let (seq, kind) = (event.seq, event.kind.name());
        for worker in lock(&self.workers).iter() {
            if let Worker::Courier(courier) = worker
                && courier.wants(event.kind)
            {
                courier.lose(format!(
                    "{} {} lost event {seq} {kind}: {QUEUE} wait",
                    courier.kind(),
                    courier.name()
                ));
            }
        }
    }

    fn all(&self, holds: impl Fn(&Worker) -> bool) -> bool {
        lock(&self.workers).iter().all(holds)
    }

    fn stop_hooks(&self) {
        for worker in lock(&self.workers).iter() {
            if let Worker::Courier(courier) = worker {
                courier.stop();
            }
        }
    }
}

fn find_courier<'a>(workers: &'a [Worker], name: &str) -> Option<&'a Courier> {
    workers.iter().find_map(|worker| match worker {
        Worker::Courier(courier) if courier.name() == name => Some(courier),
        _ => None,
    })
}

/// An event on its way through the store.
struct Routed {
    notice: Notice,
    /// Of its JSON.
    bytes: usize,
    names: Vec<String>,
    /// None when it has resolved.
    append: Option<Append>,
}

impl Routed {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(append) = &mut self.append else {
            return Poll::Ready(());
        };
        match Pin::new(append).poll(context) {
            Poll::Pending => Poll::Pending,
            // Not durable: the store says so itself, and delivery goes on.
            Poll::Ready(Appended::Durable | Appended::NotDurable) => {
                self.append = None;
                Poll::Ready(())
            }
        }
    }
}

/// Stores events and hands them on in their order. Each is sent to the store as soon as it comes, so
/// that a store which hangs delays each event by its 500 ms and not by those of the events before.
async fn route(mut events: mpsc::Receiver<Arc<Event>>, registry: Arc<Registry>) {
    let mut routed: VecDeque<Routed> = VecDeque::new();
    let (mut open, mut bytes) = (true, 0);
    while open || !routed.is_empty() {
        tokio::select! {
            biased;
            event = events.recv(), if open && bytes < ON_THEIR_WAY => match event {
                Some(event) => {
                    let mut next = registry.begin(event);
                    let _ = poll_fn(|context| Poll::Ready(next.poll(context))).await;
                    bytes += next.bytes;
                    routed.push_back(next);
                }
                None => open = false,
            },
            () = poll_fn(|context| routed.front_mut().map_or(Poll::Pending, |it| it.poll(context))) => {
                if let Some(first) = routed.pop_front() {
                    bytes -= first.bytes;
                    registry.deliver(&first);
                }
            }
        }
    }
    registry.routed.send_replace(true);
}

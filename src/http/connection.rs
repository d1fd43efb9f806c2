//! Connections: how many, how long a client may take to ask and to read, and how they end. Knows
//! nothing about what is served.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use nix::sys::resource::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::access::{Access, Peer};
use super::impatient::Impatient;
use super::places::{Doing, Place, Places, Room, source};
use super::{Handles, router};

/// Open connections: Prometheus in pairs, a kubelet, some browsers and followers need an eighth of it,
/// and each costs some 20 KiB while it is used, twice that with TLS.
const MAX_CONNECTIONS: usize = 128;

/// Of the descriptors that the process may have, a part so large is for connections: the disks are
/// watched with the others.
const DESCRIPTORS: u64 = 4;

/// Longest time between two requests of a connection, and for the header of one to arrive. Clients
/// that ask less often connect again, which costs them a millisecond.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest time for the handshake of TLS: two turns over the worst line, and some patience.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest time in which a client reads nothing of an answer that waits for it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Largest header of a request; a path can have 4 KiB and triples when it is percent-encoded.
const MAX_HEADER: usize = 32 << 10;

/// Bytes of answers that nobody has read yet, in all: two pages of events, or the metrics of a thousand
/// directories some times. Beyond it who has waited longest without reading is let go.
const MAX_UNREAD: usize = 8 << 20;

/// Wait after a failed accept: without descriptors the next one fails as fast as the loop can turn.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Time for answers under way when the server stops; the whole agent stops within 2 s.
const GRACE: Duration = Duration::from_millis(500);

type App = TowerToHyperService<Router>;

/// Serves until `shutdown` is ready, then ends what is under way within half a second. Needs a tokio
/// runtime with I/O and time.
///
/// # Errors
/// The listener cannot be used by the runtime.
pub async fn serve(
    listener: TcpListener,
    handles: Handles,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let (stop, stopping) = watch::channel(());
    let access = handles.access.clone();
    let app = TowerToHyperService::new(router(handles, stopping.clone()));
    let mut connections = Connections::new();
    let unread = Arc::clone(&connections.unread);
    let mut shutdown = pin!(shutdown);
    let mut failing = false;
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            () = unread.too_much.notified() => connections.relieve(),
            Some(_) = connections.tasks.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let access = Arc::clone(&access.borrow());
                    connections.open(stream, peer.ip(), (app.clone(), access), stopping.clone());
                    failing = false;
                    // Who was let in is heard before the next, who might take its place.
                    tokio::task::yield_now().await;
                }
                Err(error) => {
                    // Once: it may go on for as long as descriptors are short.
                    if !failing {
                        tracing::warn!("cannot accept a connection: {error}");
                    }
                    failing = true;
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop((listener, stop));
    let ended = async { while connections.tasks.join_next().await.is_some() {} };
    // Whoever is not done by then is dropped with the set.
    let _ = timeout(GRACE, ended).await;
    Ok(())
}

/// Answers that nobody has read yet.
#[derive(Default)]
struct Unread {
    bytes: AtomicUsize,
    too_much: Notify,
}

/// The open connections.
struct Connections {
    tasks: JoinSet<()>,
    /// All of them, oldest first.
    open: VecDeque<Open>,
    places: Places,
    unread: Arc<Unread>,
}

struct Open {
    source: IpAddr,
    doing: Arc<State>,
    task: AbortHandle,
}

/// What a connection does, as it says itself.
struct State {
    /// It has sent a whole request.
    asked: AtomicBool,
    /// Answers under way, and their bytes.
    answers: AtomicUsize,
    bytes: AtomicUsize,
    /// A write waits for the client.
    stalled: Arc<AtomicBool>,
    unread: Arc<Unread>,
}

impl State {
    fn doing(&self) -> Doing {
        if self.stalled.load(Ordering::Relaxed) {
            Doing::Stalled
        } else if 0 < self.answers.load(Ordering::Relaxed) {
            Doing::Served
        } else if self.asked.load(Ordering::Relaxed) {
            Doing::Idle
        } else {
            Doing::Silent
        }
    }
}

/// An answer, until its last byte is sent or given up.
struct UnderWay(Arc<State>);

impl UnderWay {
    fn begin(state: &Arc<State>) -> Arc<UnderWay> {
        state.asked.store(true, Ordering::Relaxed);
        state.answers.fetch_add(1, Ordering::Relaxed);
        Arc::new(UnderWay(Arc::clone(state)))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.answers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A part of an answer that waits to be sent.
struct Part {
    bytes: Bytes,
    answer: Arc<UnderWay>,
}

impl Part {
    fn new(bytes: Bytes, answer: &Arc<UnderWay>) -> Part {
        let state = &answer.0;
        state.bytes.fetch_add(bytes.len(), Ordering::Relaxed);
        let before = state.unread.bytes.fetch_add(bytes.len(), Ordering::Relaxed);
        if MAX_UNREAD < before + bytes.len() {
            state.unread.too_much.notify_one();
        }
        let answer = Arc::clone(answer);
        Part { bytes, answer }
    }
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let state = &self.answer.0;
        state.bytes.fetch_sub(self.bytes.len(), Ordering::Relaxed);
        state
            .unread
            .bytes
            .fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

/// The body of an answer, each part of which counts until it is sent.
struct Counted {
    body: Body,
    answer: Arc<UnderWay>,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let counted = |bytes: Bytes| Bytes::from_owner(Part::new(bytes, &self.answer));
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(counted))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Connections {
    fn new() -> Connections {
        let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft);
        let all = usize::try_from(descriptors / DESCRIPTORS).unwrap_or(usize::MAX);
        Connections {
            tasks: JoinSet::new(),
            open: VecDeque::new(),
            places: Places {
                all: all.clamp(8, MAX_CONNECTIONS),
            },
            unread: Arc::default(),
        }
    }

    /// Lets a client in if there is room, or somebody who gives way.
    fn open(
        &mut self,
        stream: TcpStream,
        peer: IpAddr,
        served: (App, Arc<Access>),
        stopping: watch::Receiver<()>,
    ) {
        self.open.retain(|open| !open.task.is_finished());
        let open: Vec<Place> = self.open.iter().map(Open::place).collect();
        match self.places.room(&open, peer) {
            Room::Free => {}
            Room::Instead(at) => {
                if let Some(open) = self.open.remove(at) {
                    open.task.abort();
                }
            }
            Room::None => return,
        }
        let state = Arc::new(State {
            asked: AtomicBool::new(false),
            answers: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            stalled: Arc::default(),
            unread: Arc::clone(&self.unread),
        });
        let task = converse(stream, peer, served, stopping, Arc::clone(&state));
        self.open.push_back(Open {
            source: source(peer),
            doing: state,
            task: self.tasks.spawn(task),
        });
    }

    /// Lets go who has kept an answer longest without reading it, until what is left is not too much.
    fn relieve(&mut self) {
        let mut bytes = self.unread.bytes.load(Ordering::Relaxed);
        for open in &self.open {
            let held = open.doing.bytes.load(Ordering::Relaxed);
            if bytes <= MAX_UNREAD {
                return;
            }
            if open.doing.doing() == Doing::Stalled && 0 < held && !open.task.is_finished() {
                open.task.abort();
                bytes = bytes.saturating_sub(held);
            }
        }
    }
}

impl Open {
    fn place(&self) -> Place {
        Place {
            source: self.source,
            doing: self.doing.doing(),
        }
    }
}

/// One connection, until it ends.
async fn converse(
    stream: TcpStream,
    peer: IpAddr,
    (app, access): (App, Arc<Access>),
    mut stopping: watch::Receiver<()>,
    state: Arc<State>,
) {
    // Only latency is lost when it is refused.
    let _ = stream.set_nodelay(true);
    let stream = Impatient::new(stream, WRITE_TIMEOUT, Arc::clone(&state.stalled));
    let Some(tls) = access.tls.clone() else {
        return talk(stream, peer, app, stopping, state).await;
    };
    drop(access);
    let handshake = timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(tls).accept(stream));
    // Whoever does not come so far is not worth a log line: it may be a scanner of ports.
    let stream = tokio::select! {
        shaken = handshake => match shaken {
            Ok(Ok(stream)) => stream,
            _ => return,
        },
        _ = stopping.changed() => return,
    };
    // Boxed: plain HTTP does not pay for the size of TLS.
    Box::pin(talk(stream, peer, app, stopping, state)).await;
}

async fn talk<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    peer: IpAddr,
    app: App,
    mut stopping: watch::Receiver<()>,
    state: Arc<State>,
) {
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        let answer = UnderWay::begin(&state);
        request.extensions_mut().insert(Peer(peer));
        let response = app.call(request);
        async move {
            // Who asks a hundred things in one breath takes turns with the others.
            tokio::task::yield_now().await;
            let response = response.await?;
            Ok::<_, Infallible>(response.map(|body| Counted { body, answer }))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // How a client ends its connection is its own affair: errors are not worth a log line.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopping.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

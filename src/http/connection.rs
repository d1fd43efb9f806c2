//! Connections: how many, how long a client may take to ask and to read, and how they end. Knows
//! nothing about what is served.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Sleep, sleep, timeout};

use super::{Handles, router};

/// Open connections: Prometheus in pairs, a kubelet, some browsers and followers need a quarter of
/// it, and each costs some 20 KiB while it is used.
const MAX_CONNECTIONS: usize = 64;

/// Longest time between two requests of a connection, and for the header of one to arrive. Clients
/// that ask less often connect again, which costs them a millisecond.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest time in which a client reads nothing of an answer that waits for it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Largest header of a request; a path can have 4 KiB and triples when it is percent-encoded.
const MAX_HEADER: usize = 32 << 10;

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
    let app = TowerToHyperService::new(router(handles, stopping.clone()));
    let mut connections = Connections::default();
    let mut shutdown = pin!(shutdown);
    let mut failing = false;
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.tasks.join_next() => {}
            accepted = listener.accept(), if connections.has_room() => match accepted {
                Ok((stream, _)) => {
                    connections.open(stream, app.clone(), stopping.clone());
                    failing = false;
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

/// The open connections.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    /// All of them, oldest first. When there is no room, the oldest idle one makes it: clients that
    /// only hold connections open, before or after a request, cannot keep a scrape out.
    open: VecDeque<Open>,
}

struct Open {
    /// Answers under way.
    answers: Arc<AtomicUsize>,
    task: AbortHandle,
}

impl Open {
    fn is_idle(&self) -> bool {
        self.answers.load(Ordering::Relaxed) == 0
    }
}

/// An answer under way, until it is sent to its last byte or given up.
struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    fn begin(answers: &Arc<AtomicUsize>) -> UnderWay {
        answers.fetch_add(1, Ordering::Relaxed);
        UnderWay(Arc::clone(answers))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of an answer, which is under way while this lives.
struct Counted {
    body: Body,
    _under_way: UnderWay,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Connections {
    fn has_room(&self) -> bool {
        self.tasks.len() < MAX_CONNECTIONS || self.oldest_idle().is_some()
    }

    fn oldest_idle(&self) -> Option<usize> {
        let is_idle = |open: &Open| open.is_idle() && !open.task.is_finished();
        self.open.iter().position(is_idle)
    }

    fn open(&mut self, stream: TcpStream, app: App, stopping: watch::Receiver<()>) {
        self.open.retain(|open| !open.task.is_finished());
        if self.tasks.len() >= MAX_CONNECTIONS
            && let Some(idle) = self.oldest_idle().and_then(|at| self.open.remove(at))
        {
            idle.task.abort();
        }
        let answers = Arc::new(AtomicUsize::new(0));
        let task = converse(stream, app, stopping, Arc::clone(&answers));
        let task = self.tasks.spawn(task);
        self.open.push_back(Open { answers, task });
    }
}

/// One connection, until it ends.
async fn converse(
    stream: TcpStream,
    app: App,
    mut stopping: watch::Receiver<()>,
    answers: Arc<AtomicUsize>,
) {
    // Only latency is lost when it is refused.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let under_way = UnderWay::begin(&answers);
        let answer = app.call(request);
        async move {
            let answer = answer.await?;
            Ok::<_, Infallible>(answer.map(|body| Counted {
                body,
                _under_way: under_way,
            }))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER)
        .serve_connection(TokioIo::new(Impatient::new(stream, WRITE_TIMEOUT)), service);
    let mut connection = pin!(connection);
    // How a client ends its connection is its own affair: errors are not worth a log line.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopping.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// A stream whose writes fail when the client takes nothing for too long.
struct Impatient<S> {
    stream: S,
    patience: Duration,
    /// Runs while a write waits.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> Impatient<S> {
    fn new(stream: S, patience: Duration) -> Impatient<S> {
        Impatient {
            stream,
            patience,
            deadline: None,
        }
    }

    /// Passes the outcome of a write on, or fails when it has waited too long.
    fn judge(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.deadline = None;
            return written;
        }
        let deadline = self
            .deadline
            .get_or_insert_with(|| Box::pin(sleep(self.patience)));
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.judge(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn a_client_that_reads_nothing_is_given_up() {
        let (ours, _theirs) = tokio::io::duplex(4);
        let mut ours = Impatient::new(ours, Duration::from_millis(10));
        let error = ours.write_all(b"longer than the pipe").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}

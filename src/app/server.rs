//! The HTTP server on a thread of its own: what clients do there, handshakes and passwords included,
//! takes no time from the monitor loop. And its door: who may come in, which a reload may change.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;

use axum::http::{HeaderName, HeaderValue};
use tokio::sync::{oneshot, watch};

use crate::config::WebConfig;
use crate::http::{self, Access, Handles};

/// Who may come in.
pub(super) struct Door {
    access: watch::Sender<Arc<Access>>,
    read_token: Option<Arc<str>>,
}

impl Door {
    pub(super) fn new(web: &WebConfig, read_token: Option<Arc<str>>) -> Door {
        let access = access(web, read_token.clone());
        Door {
            access: watch::Sender::new(Arc::new(access)),
            read_token,
        }
    }

    pub(super) fn receiver(&self) -> watch::Receiver<Arc<Access>> {
        self.access.subscribe()
    }

    /// New connections and requests are met by this from now on.
    pub(super) fn change(&self, web: &WebConfig) {
        let access = access(web, self.read_token.clone());
        self.access.send_replace(Arc::new(access));
    }
}

fn access(web: &WebConfig, read_token: Option<Arc<str>>) -> Access {
    let header = |(name, value): &(&'static str, String)| {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_str(value).ok()?))
    };
    let users = web.users.iter();
    Access {
        tls: web.tls.as_ref().map(|tls| Arc::clone(&tls.config)),
        users: users
            .map(|(user, hash)| (user.clone(), hash.0.clone()))
            .collect(),
        read_token,
        headers: web.headers.iter().filter_map(header).collect(),
    }
}

/// The running server.
pub(super) struct Server {
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl Server {
    /// # Errors
    /// The system gives no thread or no runtime.
    pub(super) fn start(listener: TcpListener, handles: Handles) -> io::Result<Server> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let shutdown = async {
            // An error means the same.
            let _ = stopped.await;
        };
        thread::Builder::new()
            .name("http".to_owned())
            .spawn(move || {
                if let Err(error) = runtime.block_on(http::serve(listener, handles, shutdown)) {
                    tracing::error!("the HTTP server ended: {error}");
                }
                // A password that is being checked is not waited for.
                runtime.shutdown_background();
                let _ = end.send(());
            })?;
        Ok(Server { stop, ended })
    }

    /// Lets nobody in any more; ready when the last answer has ended, within half a second.
    pub(super) fn stop(self) -> oneshot::Receiver<()> {
        let _ = self.stop.send(());
        self.ended
    }
}

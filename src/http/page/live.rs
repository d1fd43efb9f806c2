//! The page kept up to date: parts that changed are sent as server-sent events, at most once a second.
//! While nobody reads, nothing is rendered; while several do, it is rendered once for all of them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Result as Written;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event as Message, Sse};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::{Scene, build, dir, fixed_parts};
use crate::document::{json, timestamp_text};
use crate::health::moment::{Elapsed, Timestamp};
use crate::health::snapshot::Snapshot;
use crate::health::status::Severity;
use crate::http::Shared;
use crate::http::problem::Problem;

/// Pages that are kept up to date at one time, beside those who follow the events: a screen on the wall and
/// some people who look at the same bookie. Each costs a task and a connection.
const MAX_PAGES: usize = 16;

/// Between two messages: what changes more often nobody can read.
const PACE: Duration = Duration::from_secs(1);

/// A page that hears nothing for some of these shows that the agent is gone; the loop publishes each second,
/// so that a message without news means that the loop is late.
const BEAT: Duration = Duration::from_secs(2);

/// Numbers of directories that are well and closed, as most of many are, may be so old: their usage changes
/// each second beside a bookie that writes, and nobody looks at it. A change of status is shown at once.
const CALM_SECONDS: u64 = 10;

/// How long a page may take nothing before it is dropped; it asks again.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is shared by all pages that are kept up to date.
pub(in crate::http) struct Live {
    pages: Arc<Semaphore>,
    /// Kept by the pages that have it, so that it ends with the last of them.
    newest: Mutex<Weak<Picture>>,
}

impl Live {
    pub(in crate::http) fn new() -> Arc<Live> {
        Arc::new(Live {
            pages: Arc::new(Semaphore::new(MAX_PAGES)),
            newest: Mutex::default(),
        })
    }
}

/// All parts of the page at one instant. Those that did not change are shared with the picture before.
struct Picture {
    elapsed: Elapsed,
    time: Timestamp,
    parts: BTreeMap<String, Arc<str>>,
    /// Directories as they are listed.
    dirs: Vec<String>,
}

impl Picture {
    fn new(scene: &Scene<'_>, before: Option<&Picture>) -> Picture {
        let mut picture = Picture {
            elapsed: scene.snapshot.elapsed,
            time: scene.snapshot.time,
            parts: BTreeMap::new(),
            dirs: Vec::new(),
        };
        for (id, write) in fixed_parts() {
            picture.add(id.to_owned(), before, |html| write(html, scene));
        }
        for (turn, (dir, open)) in (0..).zip(dir::order(scene.snapshot)) {
            let id = dir::element(dir.id);
            picture.dirs.push(id.clone());
            let calm = before.filter(|_| !open && dir.severity == Severity::Ok);
            let kept = calm.and_then(|before| picture.kept(before, &id, turn));
            match kept.filter(|part| part.starts_with(&dir::frame(dir, open))) {
                Some(part) => _ = picture.parts.insert(id, part),
                None => picture.add(id, before, |html| dir::write(html, scene, dir, open)),
            }
        }
        picture
    }

    /// The part as it was, if it is not yet its turn to be rendered again.
    fn kept(&self, before: &Picture, id: &str, turn: u64) -> Option<Arc<str>> {
        let turns = |elapsed: Elapsed| (elapsed.as_secs() + turn) / CALM_SECONDS;
        let part = before.parts.get(id)?;
        (turns(before.elapsed) == turns(self.elapsed)).then(|| Arc::clone(part))
    }

    fn add(
        &mut self,
        id: String,
        before: Option<&Picture>,
        write: impl FnOnce(&mut String) -> Written,
    ) {
        let mut html = String::new();
        write(&mut html).expect("memory takes every write");
        let same = before.and_then(|before| before.parts.get(&id));
        let part = match same {
            Some(same) if **same == *html => Arc::clone(same),
            _ => html.into(),
        };
        self.parts.insert(id, part);
    }

    /// What a page has to be told that shows the picture before.
    fn news<'a>(&'a self, before: Option<&Picture>, build: &'a str) -> News<'a> {
        let changed = |id: &String, part: &Arc<str>| {
            let same = before.and_then(|before| before.parts.get(id));
            same.is_none_or(|same| !Arc::ptr_eq(same, part) && same != part)
        };
        let parts = self.parts.iter().filter(|(id, part)| changed(id, part));
        let listed = before.is_some_and(|before| before.dirs == self.dirs);
        News {
            time: timestamp_text(self.time),
            build,
            parts: parts.map(|(id, part)| (&**id, &**part)).collect(),
            dirs: (!listed).then_some(&self.dirs),
        }
    }
}

/// One message. Parts hold HTML in which everything from outside is escaped.
#[derive(Serialize)]
struct News<'a> {
    /// Of the picture; a loop that is late leaves it where it was.
    time: String,
    /// The script of another build loads its page anew.
    build: &'a str,
    parts: BTreeMap<&'a str, &'a str>,
    /// All directories in their order, if that changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    dirs: Option<&'a Vec<String>>,
}

pub(in crate::http) async fn stream(State(shared): State<Shared>) -> Response {
    let Ok(permit) = shared.live.pages.clone().try_acquire_owned() else {
        let text = format!("{MAX_PAGES} pages are kept up to date already");
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    };
    // One message waits at most: a page that is late gets the newest picture, not those between.
    let (queue, messages) = mpsc::channel(1);
    let page = Page {
        snapshots: shared.handles.snapshot.clone(),
        stopping: shared.stopping.clone(),
        build: build(&shared.handles.about),
        shared,
        shown: None,
        queue,
        _permit: permit,
    };
    tokio::spawn(page.run());
    Sse::new(ReceiverStream::new(messages).map(Ok::<Message, Infallible>)).into_response()
}

/// Feeds one page.
struct Page {
    shared: Shared,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    stopping: watch::Receiver<()>,
    build: String,
    /// What it shows.
    shown: Option<Arc<Picture>>,
    queue: mpsc::Sender<Message>,
    _permit: OwnedSemaphorePermit,
}

impl Page {
    /// Until the page is gone or too slow, or the server stops.
    async fn run(mut self) {
        loop {
            // Before the look at it: what comes after is not missed.
            let snapshot = self.snapshots.borrow_and_update().clone();
            let picture = self.picture(&snapshot);
            let news = picture.news(self.shown.as_deref(), &self.build);
            let message = Message::default().data(json(&news));
            self.shown = Some(Arc::clone(&picture));
            let sent = timeout(PATIENCE, self.queue.send(message)).await;
            if !matches!(sent, Ok(Ok(()))) || self.ends_within(PACE).await {
                return;
            }
            let mut snapshots = self.snapshots.clone();
            tokio::select! {
                changed = timeout(BEAT, snapshots.changed()) => if matches!(changed, Ok(Err(_))) { return },
                ended = self.ends_within(2 * BEAT) => if ended { return },
            }
        }
    }

    async fn ends_within(&mut self, time: Duration) -> bool {
        let end = async {
            tokio::select! {
                _ = self.stopping.changed() => {}
                () = self.queue.closed() => {}
            }
        };
        timeout(time, end).await.is_ok()
    }

    /// The newest picture, rendered by whoever needs it first.
    fn picture(&self, snapshot: &Snapshot) -> Arc<Picture> {
        let newest = self.shared.live.newest.lock();
        let mut newest = newest.unwrap_or_else(PoisonError::into_inner);
        let known = newest.upgrade();
        if let Some(known) = known
            .as_ref()
            .filter(|known| known.elapsed == snapshot.elapsed)
        {
            return Arc::clone(known);
        }
        let handles = &self.shared.handles;
        let hours = self.shared.hours.lock();
        let hours = hours.unwrap_or_else(PoisonError::into_inner);
        let scene = Scene {
            snapshot,
            own: &(handles.self_view)(),
            about: &handles.about,
            hours: &hours,
            late: None,
            orders: handles.control.is_some(),
            ages: false,
        };
        let picture = Arc::new(Picture::new(&scene, known.as_deref()));
        *newest = Arc::downgrade(&picture);
        picture
    }
}

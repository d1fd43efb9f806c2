//! One connection to a bookie. Requests go out as they come, answers are matched by their number and may come in
//! any order. Whatever cannot be understood ends the connection, and with it all that waits for an answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::error::BookieError;
use super::messages::{Question, Response, framed};

/// Frames between those who ask and the one who writes: a request has some dozen bytes, or an entry, and whoever
/// adds entries bounds how many bytes of them are under way.
const OUTBOX: usize = 16;

/// Bytes that are read or written at a time where frames are small: a system call for each would cost more than the frame.
const GATHERED: usize = 64 << 10;

/// The line to a bookie. It ends when dropped.
#[derive(Debug)]
pub(super) struct Connection {
    shared: Arc<Shared>,
    outbox: mpsc::Sender<Vec<u8>>,
    tasks: [JoinHandle<()>; 2],
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the newest request.
    newest: u64,
    /// Bounded by those who may ask at a time.
    waiting: HashMap<u64, oneshot::Sender<Response>>,
    /// How many answers came.
    heard: u64,
    /// Why it ended.
    ended: Option<String>,
}

/// A request that waits; what comes after its end is ignored.
struct Waiting<'a> {
    shared: &'a Shared,
    txn: u64,
    answer: oneshot::Receiver<Response>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.state().waiting.remove(&self.txn);
    }
}

impl Connection {
    /// Takes over a new connection. Frames may have that many bytes.
    pub(super) fn over<S>(stream: S, frame_limit: usize) -> Connection
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let shared = Arc::new(Shared::default());
        let (reader, writer) = tokio::io::split(stream);
        let reader = BufReader::with_capacity(GATHERED, reader);
        let (outbox, frames) = mpsc::channel(OUTBOX);
        let tasks = [
            tokio::spawn(read(reader, frame_limit, Arc::clone(&shared))),
            tokio::spawn(write(writer, frames, Arc::clone(&shared))),
        ];
        Connection {
            shared,
            outbox,
            tasks,
        }
    }

    /// It can be asked.
    pub(super) fn is_live(&self) -> bool {
        self.shared.state().ended.is_none()
    }

    /// How many answers came so far, of any kind.
    pub(super) fn heard(&self) -> u64 {
        self.shared.state().heard
    }

    /// Nothing came for as long as an answer may take: the line is taken for dead. One slow answer among
    /// others is none. Whether it ended so.
    pub(super) fn end_if_silent(&self, since: u64) -> bool {
        let silent = self.heard() == since;
        if silent {
            self.shared.end("it was silent".to_owned());
        }
        silent
    }

    /// Asks, and waits for as long as it takes.
    pub(super) async fn ask(&self, question: Question<'_>) -> Result<Response, BookieError> {
        let mut waiting = self.shared.wait()?;
        let frame = framed(&question.request(waiting.txn));
        if self.outbox.send(frame).await.is_err() {
            return Err(self.shared.why());
        }
        (&mut waiting.answer).await.map_err(|_| self.shared.why())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) -> Result<Waiting<'_>, BookieError> {
        let (sender, answer) = oneshot::channel();
        let mut state = self.state();
        if let Some(why) = &state.ended {
            return Err(BookieError::Ended(why.clone()));
        }
        state.newest += 1;
        let txn = state.newest;
        state.waiting.insert(txn, sender);
        Ok(Waiting {
            shared: self,
            txn,
            answer,
        })
    }

    fn answer(&self, bytes: &[u8]) -> Result<(), String> {
        let response =
            Response::decode(bytes).map_err(|error| format!("what came is no answer: {error}"))?;
        let txn = response.header.as_ref().and_then(|header| header.txn);
        let txn = txn.ok_or("what came is no answer: it has no number")?;
        let mut state = self.state();
        if txn == 0 || state.newest < txn {
            return Err(format!(
                "an answer came to request {txn}, which was never made"
            ));
        }
        state.heard += 1;
        // Nobody waits for an answer that comes late.
        if let Some(waiting) = state.waiting.remove(&txn) {
            let _ = waiting.send(response);
        }
        Ok(())
    }

    fn end(&self, why: String) {
        let mut state = self.state();
        state.ended.get_or_insert(why);
        state.waiting.clear();
    }

    fn why(&self) -> BookieError {
        let why = self.state().ended.clone();
        BookieError::Ended(why.unwrap_or_else(|| "its tasks were stopped".to_owned()))
    }
}

async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut frames: mpsc::Receiver<Vec<u8>>,
    shared: Arc<Shared>,
) {
    while let Some(mut bytes) = frames.recv().await {
        while bytes.len() < GATHERED
            && let Ok(frame) = frames.try_recv()
        {
            bytes.extend(frame);
        }
        let written = writer.write_all(&bytes).await;
        // TLS keeps back what is not flushed.
        if let Err(error) = written.and(writer.flush().await) {
            return shared.end(error.to_string());
        }
    }
}

async fn read(mut reader: impl AsyncRead + Unpin, frame_limit: usize, shared: Arc<Shared>) {
    loop {
        let frame = frame(&mut reader, frame_limit).await;
        if let Err(why) = frame.and_then(|frame| shared.answer(&frame)) {
            return shared.end(why);
        }
    }
}

/// The next frame without its length, or why there is none.
pub(super) async fn frame(
    reader: &mut (impl AsyncRead + Unpin),
    limit: usize,
) -> Result<Vec<u8>, String> {
    let mut length = [0; 4];
    let read = reader.read_exact(&mut length).await;
    read.map_err(|_| "the bookie closed it".to_owned())?;
    let length = u32::from_be_bytes(length);
    if usize::try_from(length).map_or(true, |length| limit < length) {
        return Err(format!(
            "a frame of {length} bytes is announced, {limit} at most are read"
        ));
    }
    // Room is made as bytes come, not as they are announced.
    let mut bytes = Vec::new();
    let read = reader.take(length.into()).read_to_end(&mut bytes).await;
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 != u64::from(length) {
        return Err("the bookie closed it within an answer".to_owned());
    }
    Ok(bytes)
}

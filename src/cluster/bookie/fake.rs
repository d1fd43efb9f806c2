//! Tests only: a bookie in this process that answers what the client asks, from entries that a test put there.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard};

use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::messages::{
    Header, LAST, LacResponse, ListResponse, ReadRequest, ReadResponse, Request, Response, VERSION,
    framed,
};

/// Such a bookie. It ends when dropped.
pub(crate) struct Fake {
    id: String,
    kept: Arc<Mutex<Kept>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Kept {
    ledgers: BTreeMap<i64, BTreeMap<i64, Vec<u8>>>,
    told: BTreeMap<i64, Vec<u8>>,
    /// Answered to everything.
    status: Option<i32>,
    asked: usize,
}

impl Fake {
    /// Starts it on a port of its own.
    pub(crate) async fn start() -> Fake {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let kept = Arc::<Mutex<Kept>>::default();
        Fake {
            id: listener.local_addr().unwrap().to_string(),
            kept: Arc::clone(&kept),
            task: tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, Arc::clone(&kept)));
                }
            }),
        }
    }

    /// Its id is its address.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap()
    }

    /// Gives it an entry.
    pub(crate) fn put(&self, ledger: u64, entry: u64, raw: Vec<u8>) {
        let mut kept = self.kept();
        let entries = kept.ledgers.entry(ledger as i64).or_default();
        entries.insert(entry as i64, raw);
    }

    /// Gives it what a writer tells between entries.
    pub(crate) fn tell(&self, ledger: u64, raw: Vec<u8>) {
        self.kept().told.insert(ledger as i64, raw);
    }

    /// From now on it answers nothing else.
    pub(crate) fn fail(&self, status: i32) {
        self.kept().status = Some(status);
    }

    /// How many requests came.
    pub(crate) fn asked(&self) -> usize {
        self.kept().asked
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The next request on a connection; none at its end.
pub(super) async fn request(stream: &mut TcpStream) -> Option<Request> {
    let length = stream.read_u32().await.ok()?;
    let mut bytes = vec![0; length as usize];
    stream.read_exact(&mut bytes).await.ok()?;
    Some(Request::decode(&bytes[..]).unwrap())
}

/// An answer to that request, without a body.
pub(super) fn answer(request: &Request, status: i32) -> Response {
    let asked = request.header.as_ref().unwrap();
    assert_eq!((asked.version, asked.priority), (Some(VERSION), None));
    Response {
        header: Some(Header {
            version: Some(VERSION),
            operation: asked.operation,
            txn: asked.txn,
            priority: None,
        }),
        status: Some(status),
        ..Response::default()
    }
}

async fn serve(mut stream: TcpStream, kept: Arc<Mutex<Kept>>) {
    while let Some(request) = request(&mut stream).await {
        let response = kept.lock().unwrap().answer(&request);
        if stream.write_all(&framed(&response)).await.is_err() {
            return;
        }
    }
}

impl Kept {
    fn answer(&mut self, request: &Request) -> Response {
        self.asked += 1;
        if let Some(status) = self.status {
            return answer(request, status);
        }
        let mut response = answer(request, 0);
        if let Some(read) = &request.read {
            response.read = Some(self.read(read));
        }
        if let Some(asked) = &request.read_lac {
            let ledger = asked.ledger.unwrap();
            let last = self
                .ledgers
                .get(&ledger)
                .and_then(|all| all.last_key_value());
            let found = [self.told.get(&ledger), last.map(|(_, raw)| raw)];
            response.read_lac = Some(LacResponse {
                status: Some(if found == [None, None] { 403 } else { 0 }),
                ledger: asked.ledger,
                lac: found[0].cloned(),
                last_entry: found[1].cloned(),
            });
        }
        if let Some(asked) = &request.list_entries {
            let entries = self.ledgers.get(&asked.ledger.unwrap());
            response.list_entries = Some(ListResponse {
                status: Some(entries.map_or(402, |_| 0)),
                ledger: asked.ledger,
                entries: entries.map(|entries| list(entries.keys().copied())),
            });
        }
        let inner = [
            response.read.as_ref().and_then(|body| body.status),
            response.read_lac.as_ref().and_then(|body| body.status),
            response.list_entries.as_ref().and_then(|body| body.status),
        ];
        response.status = inner.into_iter().flatten().next().or(Some(0));
        response
    }

    fn read(&self, asked: &ReadRequest) -> ReadResponse {
        let (ledger, entry) = (asked.ledger.unwrap(), asked.entry.unwrap());
        let mut read = ReadResponse {
            status: Some(0),
            ledger: asked.ledger,
            entry: asked.entry,
            ..ReadResponse::default()
        };
        let Some(entries) = self.ledgers.get(&ledger) else {
            read.status = Some(402);
            return read;
        };
        let found = match entry {
            LAST => entries.last_key_value().map(|(_, raw)| raw),
            entry => entries.get(&entry),
        };
        match found {
            Some(raw) => read.body = Some(raw.clone()),
            None => read.status = Some(403),
        }
        read
    }
}

/// Each entry as a group of its own.
fn list(entries: impl ExactSizeIterator<Item = i64>) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[4..8].copy_from_slice(&(entries.len() as i32).to_be_bytes());
    for entry in entries {
        bytes.extend([entry.to_be_bytes(), entry.to_be_bytes()].concat());
        bytes.extend([1_i32.to_be_bytes(), 0_i32.to_be_bytes()].concat());
    }
    bytes
}

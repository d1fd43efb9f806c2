//! Tests only: a bookie in this process that answers what the client asks, from entries that a test or the client put there.
//! It fences, is read-only, forgets and fails as a test wants.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard};

use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::messages::{
    AddRequest, AddResponse, Header, InfoResponse, LAST, LacResponse, LedgerResponse, ListResponse,
    ReadRequest, ReadResponse, Request, Response, VERSION, framed,
};

/// Such a bookie. It ends when dropped.
pub(crate) struct Fake {
    id: String,
    kept: Arc<Mutex<Kept>>,
    task: JoinHandle<()>,
}

/// What is asked of a bookie about an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Read { ledger: u64, entry: i64 },
    Add { ledger: u64, entry: u64 },
    Held { ledger: u64 },
}

/// What a test may have it do instead of what it would.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Answer with this status.
    Status(i32),
    /// Hand out this as the entry.
    Body(Vec<u8>),
    /// Say nothing, and take nothing.
    Silence,
    /// Do it, and say nothing.
    DoneInSilence,
    /// End the connection.
    Close,
}

/// Looks at each question about an entry; none: the usual answer.
pub(crate) type Instead = Box<dyn FnMut(Asked) -> Option<Reply> + Send>;

#[derive(Default)]
struct Kept {
    ledgers: BTreeMap<i64, BTreeMap<i64, Vec<u8>>>,
    told: BTreeMap<i64, Vec<u8>>,
    keys: BTreeMap<i64, Vec<u8>>,
    fenced: BTreeSet<i64>,
    /// Fenced and then forgotten: such a bookie takes no entry of it for days, not even with `RECOVERY_ADD`.
    spent: BTreeSet<i64>,
    read_only: bool,
    /// As `DbLedgerStorage`: no list of entries is ever sent.
    has_no_lists: bool,
    space: (i64, i64),
    /// Answered to everything.
    status: Option<i32>,
    instead: Option<Instead>,
    asked: usize,
}

impl Fake {
    /// Starts it on a port of its own.
    pub(crate) async fn start() -> Fake {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let kept = Arc::<Mutex<Kept>>::default();
        kept.lock().unwrap().space = (1 << 40, 1 << 39);
        Fake {
            id: listener.local_addr().unwrap().to_string(),
            kept: Arc::clone(&kept),
            task: tokio::spawn(async move {
                // Its connections end with it.
                let mut connections = JoinSet::new();
                while let Ok((stream, _)) = listener.accept().await {
                    connections.spawn(serve(stream, Arc::clone(&kept)));
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

    /// What it has of a ledger.
    pub(crate) fn entries(&self, ledger: u64) -> BTreeMap<u64, Vec<u8>> {
        let kept = self.kept();
        let entries = kept.ledgers.get(&(ledger as i64));
        let numbered = |(entry, raw): (&i64, &Vec<u8>)| (*entry as u64, raw.clone());
        entries.into_iter().flatten().map(numbered).collect()
    }

    /// It loses an entry.
    pub(crate) fn lose(&self, ledger: u64, entry: u64) {
        if let Some(entries) = self.kept().ledgers.get_mut(&(ledger as i64)) {
            entries.remove(&(entry as i64));
        }
    }

    /// What its over-replicated pass does with a ledger that no metadata puts there.
    pub(crate) fn forget(&self, ledger: u64) {
        let (mut kept, ledger) = (self.kept(), ledger as i64);
        kept.ledgers.remove(&ledger);
        kept.keys.remove(&ledger);
        if kept.fenced.remove(&ledger) {
            kept.spent.insert(ledger);
        }
    }

    /// A reader fenced the ledger: only recovery may add to it.
    pub(crate) fn fence(&self, ledger: u64) {
        self.kept().fenced.insert(ledger as i64);
    }

    /// Whether it takes entries.
    pub(crate) fn set_read_only(&self, read_only: bool) {
        self.kept().read_only = read_only;
    }

    /// It is silent when asked for a list of entries.
    pub(crate) fn has_no_lists(&self) {
        self.kept().has_no_lists = true;
    }

    /// Total and free bytes.
    pub(crate) fn has_space(&self, total: i64, free: i64) {
        self.kept().space = (total, free);
    }

    /// From now on this decides, where it says something.
    pub(crate) fn instead(&self, instead: impl FnMut(Asked) -> Option<Reply> + Send + 'static) {
        self.kept().instead = Some(Box::new(instead));
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
        let response = kept.lock().unwrap().reply(&request);
        let Ok(response) = response else { return };
        if let Some(response) = response
            && stream.write_all(&framed(&response)).await.is_err()
        {
            return;
        }
    }
}

/// What a request asks about an entry.
fn asked(request: &Request) -> Option<Asked> {
    let number = |number: Option<i64>| number.unwrap() as u64;
    if let Some(read) = &request.read {
        let ledger = number(read.ledger);
        let entry = read.entry.unwrap();
        return Some(Asked::Read { ledger, entry });
    }
    if let Some(add) = &request.add {
        let (ledger, entry) = (number(add.ledger), number(add.entry));
        return Some(Asked::Add { ledger, entry });
    }
    let list = request.list_entries.as_ref()?;
    let ledger = number(list.ledger);
    Some(Asked::Held { ledger })
}

/// The connection ends.
struct Closed;

impl Kept {
    /// The answer, or none if it is silent.
    fn reply(&mut self, request: &Request) -> Result<Option<Response>, Closed> {
        let asked = asked(request);
        let mut instead = self.instead.take();
        let told = asked.and_then(|asked| instead.as_mut()?(asked));
        self.instead = instead;
        let Some(told) = told else {
            let response = self.answer(request);
            let silent = self.has_no_lists && request.list_entries.is_some();
            return Ok((!silent).then_some(response));
        };
        Ok(match told {
            Reply::Close => return Err(Closed),
            Reply::Silence => None,
            Reply::DoneInSilence => {
                self.answer(request);
                None
            }
            Reply::Status(status) => Some(answer(request, status)),
            Reply::Body(body) => {
                let read = request.read.as_ref();
                let read = read.expect("only what is read has a body");
                let mut response = answer(request, 0);
                response.read = Some(ReadResponse {
                    status: Some(0),
                    ledger: read.ledger,
                    entry: read.entry,
                    body: Some(body),
                    max_lac: None,
                });
                Some(response)
            }
        })
    }

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
        if let Some(add) = &request.add {
            response.add = Some(AddResponse {
                status: Some(self.add(add)),
                ledger: add.ledger,
                entry: add.entry,
            });
        }
        if let Some(asked) = &request.force {
            response.force = Some(LedgerResponse {
                status: Some(0),
                ledger: asked.ledger,
            });
        }
        if request.info.is_some() {
            response.info = Some(InfoResponse {
                status: Some(0),
                total: Some(self.space.0),
                free: Some(self.space.1),
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
            response.add.as_ref().and_then(|body| body.status),
            response.read_lac.as_ref().and_then(|body| body.status),
            response.list_entries.as_ref().and_then(|body| body.status),
        ];
        response.status = inner.into_iter().flatten().next().or(Some(0));
        response
    }

    fn add(&mut self, add: &AddRequest) -> i32 {
        let ledger = add.ledger.unwrap();
        let recovery = add.flag == Some(1);
        let key = add.key.clone().unwrap();
        assert_eq!(key.len(), 20);
        if self.read_only {
            return 505;
        }
        if self.spent.contains(&ledger) || (self.fenced.contains(&ledger) && !recovery) {
            return 504;
        }
        if *self.keys.entry(ledger).or_insert_with(|| key.clone()) != key {
            return 502;
        }
        let entries = self.ledgers.entry(ledger).or_default();
        entries.insert(add.entry.unwrap(), add.raw.clone().unwrap());
        0
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

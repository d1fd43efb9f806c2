//! Bookies in a process of their own, which compute each entry from its ledger and its number and keep nothing: they say of
//! everything that they have it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};

/// Ledger, entry, confirmed entry and length; a digest of the kind DUMMY has no bytes.
const HEADER: usize = 32;

#[derive(Clone, PartialEq, Message)]
struct Header {
    #[prost(int32, optional, tag = "1")]
    version: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    operation: Option<i32>,
    #[prost(uint64, optional, tag = "3")]
    txn: Option<u64>,
}

/// A request's or an answer's part about a ledger, whichever it is.
#[derive(Clone, PartialEq, Message)]
struct Asked {
    #[prost(int64, optional, tag = "1")]
    ledger: Option<i64>,
    #[prost(int64, optional, tag = "2")]
    entry: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(message, optional, tag = "100")]
    read: Option<Asked>,
    #[prost(message, optional, tag = "101")]
    add: Option<Asked>,
    #[prost(message, optional, tag = "108")]
    list: Option<Asked>,
}

#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(int32, optional, tag = "1")]
    status: Option<i32>,
    #[prost(int64, optional, tag = "2")]
    ledger: Option<i64>,
    #[prost(int64, optional, tag = "3")]
    entry: Option<i64>,
    #[prost(bytes = "vec", optional, tag = "4")]
    body: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct List {
    #[prost(int32, optional, tag = "1")]
    status: Option<i32>,
    #[prost(int64, optional, tag = "2")]
    ledger: Option<i64>,
    #[prost(bytes = "vec", optional, tag = "3")]
    entries: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(int32, optional, tag = "2")]
    status: Option<i32>,
    #[prost(message, optional, tag = "100")]
    read: Option<Answer>,
    #[prost(message, optional, tag = "101")]
    add: Option<Answer>,
    #[prost(message, optional, tag = "108")]
    list: Option<List>,
}

/// The process; it ends when dropped.
pub(crate) struct Bookies {
    process: Child,
    /// Their ids.
    pub(crate) ids: Vec<String>,
}

impl Bookies {
    /// So many of them, with entries of that size.
    pub(crate) fn start(count: usize, size: usize) -> Bookies {
        let program = std::env::current_exe().expect("our own path");
        let mut command = Command::new(program);
        command.args(["--case", "bookies", &count.to_string(), &size.to_string()]);
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the bookies start");
        let mut line = String::new();
        let said = process.stdout.take().expect("it is a pipe");
        let read = BufReader::new(said).read_line(&mut line);
        read.expect("the bookies say where they are");
        let ids = line.split_whitespace().map(str::to_owned).collect();
        Bookies { process, ids }
    }
}

impl Drop for Bookies {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The process itself.
pub(crate) fn serve(count: usize, size: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let mut ids = Vec::new();
        for _ in 0..count {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            ids.push(listener.local_addr().expect("its address").to_string());
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(connection(stream, size));
                }
            });
        }
        println!("{}", ids.join(" "));
        std::io::stdout().flush().expect("somebody reads it");
        std::future::pending::<()>().await;
    });
}

async fn connection(stream: TcpStream, size: usize) {
    let mut stream = BufStream::new(stream);
    while let Ok(length) = stream.read_u32().await {
        let mut bytes = vec![0; length as usize];
        if stream.read_exact(&mut bytes).await.is_err() {
            return;
        }
        let answer = answer(&bytes, size).encode_to_vec();
        let length = u32::try_from(answer.len()).expect("it is far below");
        let written = stream.write_all(&length.to_be_bytes()).await;
        let written = written.and(stream.write_all(&answer).await);
        if written.and(stream.flush().await).is_err() {
            return;
        }
    }
}

fn answer(bytes: &[u8], size: usize) -> Response {
    let request = Request::decode(bytes).expect("what the client says");
    let about = |asked: Asked, body| Answer {
        status: Some(0),
        ledger: asked.ledger,
        entry: asked.entry,
        body,
    };
    let read = request.read.map(|asked| {
        let body = entry(&asked, size);
        about(asked, Some(body))
    });
    let list = request.list.map(|asked| List {
        status: Some(0),
        ledger: asked.ledger,
        entries: Some(everything()),
    });
    Response {
        header: request.header,
        status: Some(0),
        read,
        add: request.add.map(|asked| about(asked, None)),
        list,
    }
}

fn entry(asked: &Asked, size: usize) -> Vec<u8> {
    let numbers = [asked.ledger, asked.entry].map(Option::unwrap_or_default);
    let mut raw = Vec::with_capacity(HEADER + size);
    for number in [numbers[0], numbers[1], numbers[1] - 1, 0] {
        raw.extend(number.to_be_bytes());
    }
    let seed = numbers[0]
        .wrapping_mul(31)
        .wrapping_add(numbers[1])
        .to_le_bytes();
    raw.resize(HEADER + size, seed[0]);
    raw
}

/// A list of one group: the first million entries.
fn everything() -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[7] = 1;
    bytes.extend([0; 16]);
    bytes.extend(1_000_000_i32.to_be_bytes());
    bytes.extend([0; 4]);
    bytes
}

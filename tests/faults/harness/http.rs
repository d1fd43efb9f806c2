//! One HTTP request at a time over a plain socket: enough to ask an agent.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// An agent answers at once, also with all disks hung.
const LIMIT: Duration = Duration::from_secs(5);

/// Status and body of `GET path`.
pub(crate) fn get(port: u16, path: &str) -> io::Result<(u16, String)> {
    call(port, "GET", path, "", LIMIT)
}

/// Status and body of a request, if they come in time.
pub(crate) fn call(
    port: u16,
    method: &str,
    path: &str,
    body: &str,
    limit: Duration,
) -> io::Result<(u16, String)> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(limit))?;
    // Version 1.0: the body ends with the connection and comes in one piece.
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: localhost\r\nAccept: application/json\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "not an HTTP answer");
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(malformed)?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|text| text.parse().ok())
        .ok_or_else(malformed)?;
    Ok((status, body.to_owned()))
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
    listener
        .local_addr()
        .expect("a bound socket has an address")
        .port()
}

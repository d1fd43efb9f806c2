//! A gate before a server: while it is shut, nothing passes and nobody gets in, and the server lives on.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Ends with its process; its threads hold nothing but sockets.
pub(crate) struct Gate {
    port: u16,
    inner: Arc<Inner>,
}

struct Inner {
    open: AtomicBool,
    through: Mutex<Vec<TcpStream>>,
}

impl Gate {
    /// Opens one before a port of this machine.
    pub(crate) fn before(server: String) -> Gate {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = listener.local_addr().expect("it listens").port();
        let inner = Arc::new(Inner {
            open: AtomicBool::new(true),
            through: Mutex::new(Vec::new()),
        });
        let keeper = Arc::clone(&inner);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if keeper.open.load(Ordering::SeqCst) {
                    keeper.let_through(client, &server);
                }
            }
        });
        Gate { port, inner }
    }

    /// Where to knock.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn shut(&self) {
        self.inner.open.store(false, Ordering::SeqCst);
        for stream in self.inner.through.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn open(&self) {
        self.inner.open.store(true, Ordering::SeqCst);
    }
}

impl Inner {
    fn let_through(&self, client: TcpStream, server: &str) {
        let Ok(server) = TcpStream::connect(server) else {
            return;
        };
        let copy = |stream: &TcpStream| stream.try_clone().expect("there are descriptors");
        let mut through = self.through.lock().unwrap();
        through.extend([copy(&client), copy(&server)]);
        for (from, to) in [(copy(&client), copy(&server)), (server, client)] {
            thread::spawn(move || pass_on(from, to));
        }
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = [0; 16 << 10];
    while let Ok(count) = from.read(&mut bytes) {
        if count == 0 || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

//! The two pipes of one child: requests wait here until the child takes them, answers are put
//! together from pieces. Nothing here blocks.

use std::io;
use std::os::fd::OwnedFd;

use tokio::net::unix::pipe;

use crate::child::frame;

use super::wire::{self, Answer, MAX_FRAME, Request};

/// Bytes that may wait for a child that does not read: 500 directories with long paths, twice over.
const MAX_UNSENT: usize = 4 * 1024 * 1024;

/// Reads in a row: what a pipe holds. A child that talks without end must not keep the agent here.
const MAX_READS: usize = 16;

/// Why a child does not serve any more.
pub(super) enum End {
    /// It is lost.
    Lost(String),
    /// Nobody listens to us.
    Unheard,
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        End::Lost(format!("the prober cannot be understood: {error}"))
    }
}

/// The pipes of one child.
pub(super) struct Link {
    to: pipe::Sender,
    from: pipe::Receiver,
    decoder: frame::Decoder,
    unsent: Vec<u8>,
}

impl Link {
    /// Of a child that was just started.
    pub(super) fn new(to: OwnedFd, from: OwnedFd) -> io::Result<Link> {
        Ok(Link {
            to: pipe::Sender::from_owned_fd(to)?,
            from: pipe::Receiver::from_owned_fd(from)?,
            decoder: frame::Decoder::default(),
            unsent: Vec::new(),
        })
    }

    /// Queues a request.
    pub(super) fn ask(&mut self, request: &Request) -> Result<(), End> {
        wire::encode(request, &mut self.unsent)?;
        if MAX_UNSENT < self.unsent.len() {
            let reason = "the prober does not take its requests";
            return Err(End::Lost(reason.to_owned()));
        }
        Ok(())
    }

    /// Waits until the child said something, and sends requests meanwhile. May be dropped and
    /// called again at any time. False: the child closed its end.
    pub(super) async fn turn(&mut self) -> io::Result<bool> {
        loop {
            tokio::select! {
                ready = self.to.writable(), if !self.unsent.is_empty() => {
                    ready?;
                    self.send()?;
                }
                ready = self.from.readable() => {
                    ready?;
                    return self.receive();
                }
            }
        }
    }

    /// The next message that has arrived whole.
    pub(super) fn next_answer(&mut self) -> io::Result<Option<Answer>> {
        match self.decoder.next_frame(MAX_FRAME)? {
            Some(body) => wire::decode(&body).map(Some),
            None => Ok(None),
        }
    }

    /// Writes what the pipe takes now.
    pub(super) fn send(&mut self) -> io::Result<()> {
        if self.unsent.is_empty() {
            return Ok(());
        }
        match self.to.try_write(&self.unsent) {
            Ok(count) => {
                self.unsent.drain(..count);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            // It has ended; what it said before is still to be read.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.unsent.clear();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Takes in all that the pipe has now, so that it is not found readable and empty at the next
    /// turn; false at its end.
    fn receive(&mut self) -> io::Result<bool> {
        let mut piece = [0; 4096];
        let mut received = false;
        for _ in 0..MAX_READS {
            match self.from.try_read(&mut piece) {
                Ok(0) => return Ok(received),
                Ok(count) => self.decoder.push(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
            received = true;
        }
        Ok(true)
    }
}

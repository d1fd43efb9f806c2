//! Streams of events (`text/event-stream`): puts messages together from pieces, and follows a
//! stream through broken connections without missing or repeating a message.

use std::time::Duration;

use reqwest::Response;

use super::{HttpClient, HttpError, Url};
use crate::backoff::Backoff;

/// Longest message: an event names all directories of a node, 500 long paths are below 1 MiB.
const MAX_MESSAGE: usize = 4 << 20;

/// Waits between two tries to connect: an agent that restarts is back within a second, and one
/// that is gone for hours is asked twice a minute.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(30));

/// One message of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Number of the newest message that has one; this one's, unless it came without.
    pub id: Option<u64>,
    /// Its name; `message` when it has none.
    pub name: String,
    /// Its lines, joined by line feeds.
    pub data: String,
}

/// A message is longer than [`MAX_MESSAGE`]; nothing after it can be understood.
#[derive(Debug, PartialEq, Eq)]
struct TooLong;

/// Puts messages together from pieces as they arrive.
#[derive(Debug, Default)]
struct Decoder {
    bytes: Vec<u8>,
    /// How many of `bytes` are known to hold no end of a line.
    searched: usize,
    id: Option<u64>,
    name: String,
    data: String,
}

impl Decoder {
    /// Takes in what arrived.
    fn push(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// The next whole message, if there is one. Comments and messages without data are skipped.
    ///
    /// # Errors
    /// A message is too long.
    fn next_message(&mut self) -> Result<Option<Message>, TooLong> {
        while let Some(line) = self.next_line() {
            if !line.is_empty() {
                self.take_field(&line);
                if MAX_MESSAGE < self.data.len() {
                    return Err(TooLong);
                }
                continue;
            }
            let name = std::mem::take(&mut self.name);
            let mut data = std::mem::take(&mut self.data);
            if data.pop().is_some() {
                let name = if name.is_empty() {
                    "message".into()
                } else {
                    name
                };
                let id = self.id;
                return Ok(Some(Message { id, name, data }));
            }
        }
        if MAX_MESSAGE < self.bytes.len() {
            return Err(TooLong);
        }
        Ok(None)
    }

    /// The next line that has ended, without its end: a line feed, with or without a carriage
    /// return before it. (The standard's lone carriage return is sent by nobody.)
    fn next_line(&mut self) -> Option<String> {
        let feed = self.bytes[self.searched..]
            .iter()
            .position(|byte| *byte == b'\n');
        let Some(feed) = feed else {
            self.searched = self.bytes.len();
            return None;
        };
        let end = self.searched + feed;
        self.searched = 0;
        let mut line: Vec<u8> = self.bytes.drain(..=end).collect();
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Some(String::from_utf8_lossy(&line).into_owned())
    }

    fn take_field(&mut self, line: &str) {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            "event" => value.clone_into(&mut self.name),
            "id" => self.id = value.parse().ok().or(self.id),
            _ => {} // comments begin with a colon; `retry` is our own decision
        }
    }
}

/// What a [`Follower`] hears.
#[derive(Debug)]
pub enum Heard {
    /// A message.
    Message(Message),
    /// The connection is lost, or could not be made again; the next call tries again after a wait.
    Lost(HttpError),
    /// The connection is there again.
    Back,
}

/// Follows a stream of events by number. After a loss it asks for what came after the newest
/// message that it has handed out.
#[derive(Debug)]
pub struct Follower {
    client: HttpClient,
    url: Url,
    since: u64,
    backoff: Backoff,
    connection: Option<(Response, Decoder)>,
}

impl Follower {
    /// Opens the stream after number `since`.
    ///
    /// # Errors
    /// The first connection cannot be made: most likely the address is wrong.
    pub async fn open(client: HttpClient, url: Url, since: u64) -> Result<Follower, HttpError> {
        let response = client.open_stream(&url, since).await?;
        Ok(Follower {
            client,
            url,
            since,
            backoff: BACKOFF,
            connection: Some((response, Decoder::default())),
        })
    }

    /// What comes next. Waits without limit while the stream is silent but alive.
    ///
    /// # Errors
    /// The stream cannot be had any more, and trying again would not help.
    pub async fn hear(&mut self) -> Result<Heard, HttpError> {
        let Some((response, decoder)) = &mut self.connection else {
            return self.connect_again().await;
        };
        let lost = loop {
            match decoder.next_message() {
                Ok(Some(message)) => {
                    self.since = message.id.unwrap_or(self.since);
                    self.backoff.reset();
                    return Ok(Heard::Message(message));
                }
                Ok(None) => {}
                Err(TooLong) => {
                    let (url, limit) = (self.url.clone(), MAX_MESSAGE);
                    return Err(HttpError::TooLong { url, limit });
                }
            }
            match response.chunk().await {
                Ok(Some(piece)) => decoder.push(&piece),
                Ok(None) => break ended(&self.url),
                Err(error) => break HttpError::of(&self.url, &error),
            }
        };
        self.connection = None;
        Ok(Heard::Lost(lost))
    }

    async fn connect_again(&mut self) -> Result<Heard, HttpError> {
        tokio::time::sleep(self.backoff.next_wait(fastrand::f64())).await;
        match self.client.open_stream(&self.url, self.since).await {
            Ok(response) => {
                self.connection = Some((response, Decoder::default()));
                Ok(Heard::Back)
            }
            Err(error) if error.is_passing() => Ok(Heard::Lost(error)),
            Err(error) => Err(error),
        }
    }
}

fn ended(url: &Url) -> HttpError {
    HttpError::Broken {
        url: url.clone(),
        source: super::Innermost("the other side ended it".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mutation::{edited, lengths, pieces};

    const STREAM: &str = ": hello\nretry: 5\n\nid: 41\nevent: diskFull\ndata: {\"seq\":\ndata: 41}\n\n\
        :\n\nid: 42\r\ndata:x\r\n\r\nevent: nothing\n\ndata\n\nid: many\ndata: y\n\ndata: not yet";

    #[test]
    fn messages_come_out_whole_whatever_the_pieces() {
        let expected: [(u64, &str, &str); 4] = [
            (41, "diskFull", "{\"seq\":\n41}"),
            (42, "message", "x"),
            (42, "message", ""),
            (42, "message", "y"),
        ];
        for size in 1..STREAM.len() {
            let mut decoder = Decoder::default();
            let mut messages = Vec::new();
            for piece in STREAM.as_bytes().chunks(size) {
                decoder.push(piece);
                while let Some(message) = decoder.next_message().unwrap() {
                    messages.push(message);
                }
            }
            let heard: Vec<_> = messages
                .iter()
                .map(|message| (message.id.unwrap(), &*message.name, &*message.data))
                .collect();
            assert_eq!(heard, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn a_message_that_never_ends_is_an_error() {
        let piece = [b'x'; 1 << 20];
        let mut decoder = Decoder::default();
        let mut pieces = 0;
        while decoder.next_message() == Ok(None) {
            decoder.push(&piece);
            pieces += 1;
        }
        assert_eq!(pieces, MAX_MESSAGE / piece.len() + 1);

        let mut decoder = Decoder::default();
        let line = [b"data: ", &piece[..], b"\n"].concat();
        while decoder.next_message() == Ok(None) {
            decoder.push(&line);
        }
        assert!(decoder.data.len() <= MAX_MESSAGE + piece.len() + 1);
    }

    fn heard(pieces: &[&[u8]]) -> Vec<Message> {
        let (mut decoder, mut heard, mut arrived) = (Decoder::default(), Vec::new(), 0);
        for piece in pieces {
            arrived += piece.len();
            decoder.push(piece);
            while let Some(message) = decoder.next_message().unwrap() {
                heard.push(message);
            }
            // What is not text takes three bytes for one.
            assert!(decoder.bytes.len() + decoder.data.len() <= 3 * arrived);
        }
        heard
    }

    proptest! {
        #[test]
        fn any_bytes_are_the_same_messages_in_any_pieces(
            bytes in prop_oneof![any::<Vec<u8>>(), edited(STREAM)],
            lengths in lengths(),
        ) {
            prop_assert_eq!(heard(&pieces(&bytes, &lengths)), heard(&[&bytes]));
        }

        /// Also what looks like fields.
        #[test]
        fn what_was_written_is_heard(
            id: u64,
            name in "[a-zA-Z:]{1,9}",
            data in prop::collection::vec("[ :a-z\\\\\"\u{1b}é]{0,9}", 1..4),
            lengths in lengths(),
        ) {
            let mut stream = format!("id: {id}\nevent: {name}\n");
            for line in &data {
                stream.push_str(&format!("data: {line}\r\n"));
            }
            stream.push('\n');
            let message = Message { id: Some(id), name, data: data.join("\n") };
            prop_assert_eq!(heard(&pieces(stream.as_bytes(), &lengths)), [message]);
        }
    }
}

//! What the agent and its writer child say to each other: postcard messages in the frames of
//! [`crate::child::frame`]. The version is in both greetings; another version ends the conversation,
//! because a replaced package may leave an old agent with a new writer.

use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::StoreError;
use crate::child::frame;

/// Version of these messages. Raise it with each change.
pub(super) const VERSION: u16 = 3;

/// Longest frame: the longest event with its listeners, and room to spare. A longer one is an error
/// of ours and ends the conversation, so that nothing makes the other side allocate without limit.
pub(super) const FRAME_LIMIT: usize = 512 * 1024;

/// Longest event, pin or name list that is stored: half a frame. An event of 500 directories with
/// long paths in its node lists has about 100 KiB.
pub(super) const WRITE_LIMIT: usize = FRAME_LIMIT / 2;

/// Bytes of events in one answer, unless a single one is longer: small enough that the agent's
/// buffers stay small, large enough that the whole log takes few turns.
pub(super) const PAGE_BYTES: usize = 64 * 1024;

/// The agent's messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Request {
    /// The first message.
    Hello(Hello),
    /// To be made durable, in the order of arrival.
    Write(Numbered),
    /// Asks for one page of events.
    Events { id: u64, since: u64, limit: u32 },
}

/// The agent's greeting. `version` stays the first field for ever.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) version: u16,
    /// Process id of the agent, for the lock file.
    pub(super) agent: u32,
    /// The agent does not know the contents yet.
    pub(super) wants_contents: bool,
    /// The newest number that it knows from the store, 0 for none.
    pub(super) last_seq: u64,
    pub(super) retention_bytes: u64,
    pub(super) retention_age_millis: u64,
    /// Lock all pages of the writer in memory.
    pub(super) lock_memory: bool,
}

/// One write. It is void if the file was opened again since (`session`): the agent then repeats
/// everything that was not acknowledged, from the oldest on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Numbered {
    pub(super) session: u32,
    /// Rises with each write; answers name it.
    pub(super) ticket: u64,
    pub(super) write: Write,
}

/// What can be written. Other files of our own (textfile, log) get variants here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Write {
    Append {
        event: Event,
        listeners: Vec<Box<str>>,
    },
    Acknowledge {
        listener: Box<str>,
        seq: u64,
    },
    PutPin {
        key: Box<[u8]>,
        value: Box<[u8]>,
    },
    RemovePin {
        key: Box<[u8]>,
    },
    /// The claims on the server's mode, all of them.
    PutClaims {
        value: Box<[u8]>,
    },
    /// Writes nothing: its acknowledgement says that everything before it is durable.
    Barrier,
}

impl Write {
    /// Bytes that it holds, roughly.
    pub(super) fn size(&self) -> usize {
        let names = |names: &[Box<str>]| names.iter().map(|name| name.len() + 16).sum::<usize>();
        match self {
            Write::Append { event, listeners } => event.json.len() + names(listeners),
            Write::Acknowledge { listener, .. } => listener.len(),
            Write::PutPin { key, value } => key.len() + value.len(),
            Write::RemovePin { key } => key.len(),
            Write::PutClaims { value } => value.len(),
            Write::Barrier => 0,
        }
    }
}

/// A stored event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Event {
    pub(super) seq: u64,
    pub(super) json: Box<str>,
}

/// The writer's messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The first message. `version` stays its first field for ever.
    Greeting { version: u16 },
    /// A part of what the store held.
    Contents(Contents),
    /// All of it was sent, except so many deliveries that are too many.
    ContentsEnd { last_seq: u64, left_out: u64 },
    /// The file is open: writes of this session are taken.
    Ready(Ready),
    /// The file is not open, and everything unacknowledged is void; it is tried again.
    Trouble(StoreError),
    /// Every write up to this ticket is on disk.
    Durable { ticket: u64, last_seq: u64 },
    /// This event was not stored, because its number is taken by another event.
    NumberTaken { ticket: u64 },
    /// Little room is left: `Some` says how little.
    Room { short: Option<String> },
    /// So many more events were dropped by age or size before every listener took them.
    DroppedPending { events: u64 },
    /// Nothing to say, and not stuck.
    Alive,
    /// A page of events; the error says why there is none.
    Events {
        id: u64,
        page: Result<EventPage, StoreError>,
    },
}

/// A part of the contents.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Contents {
    pub(super) pins: Vec<(Vec<u8>, Vec<u8>)>,
    /// In one part at most.
    pub(super) claims: Option<Vec<u8>>,
    /// Events that somebody has not acknowledged.
    pub(super) events: Vec<Event>,
    /// Number of an event, and a listener that has not acknowledged it.
    pub(super) pending: Vec<(u64, String)>,
}

/// The file is open.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Ready {
    pub(super) session: u32,
    pub(super) last_seq: u64,
    /// What was stored before is gone, and why.
    pub(super) started_afresh: Option<String>,
}

/// A page of the event log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct EventPage {
    pub(super) events: Vec<Event>,
    /// There are more after the last one.
    pub(super) more: bool,
}

/// A message in its frame.
///
/// # Errors
/// It is over the limit.
pub(super) fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let body = postcard::to_stdvec(message).map_err(io::Error::other)?;
    let mut framed = Vec::new();
    frame::write(&mut framed, &body, FRAME_LIMIT)?;
    Ok(framed)
}

/// The message of a frame's body.
///
/// # Errors
/// It is not such a message.
pub(super) fn decode<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    postcard::from_bytes(body).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mutation::edited;

    #[test]
    fn messages_come_out_as_they_went_in() {
        let request = Request::Write(Numbered {
            session: 3,
            ticket: 7,
            write: Write::Append {
                event: Event {
                    seq: 9,
                    json: "{\"seq\":9}".into(),
                },
                listeners: vec!["page".into()],
            },
        });
        let framed = encode(&request).unwrap();
        let body = frame::read(&framed[..], FRAME_LIMIT).unwrap().unwrap();
        assert_eq!(decode::<Request>(&body).unwrap(), request);
        assert!(decode::<Answer>(b"\xff\xff\xff").is_err());
    }

    #[test]
    fn the_longest_write_fits_into_a_frame() {
        let json = "x".repeat(WRITE_LIMIT).into();
        let write = Write::Append {
            event: Event { seq: 1, json },
            listeners: Vec::new(),
        };
        assert_eq!(write.size(), WRITE_LIMIT);
        assert!(encode(&write).is_ok());
    }

    fn some_messages() -> Vec<Vec<u8>> {
        let hello = Hello {
            version: VERSION,
            agent: 77,
            wants_contents: true,
            last_seq: 5,
            retention_bytes: 1 << 20,
            retention_age_millis: 1000,
            lock_memory: true,
        };
        let event = || Event {
            seq: 9,
            json: "{\"seq\":9}".into(),
        };
        let write = |write| {
            Request::Write(Numbered {
                session: 3,
                ticket: 7,
                write,
            })
        };
        let requests = [
            Request::Hello(hello),
            write(Write::Append {
                event: event(),
                listeners: vec!["page".into(), "ticket".into()],
            }),
            write(Write::PutPin {
                key: b"ledger:/mnt/l1".as_slice().into(),
                value: vec![1; 40].into(),
            }),
            write(Write::PutClaims {
                value: vec![3; 40].into(),
            }),
        ];
        let contents = Contents {
            pins: vec![(b"ledger:/mnt/l1".to_vec(), vec![2; 40])],
            claims: Some(vec![3; 40]),
            events: vec![event(), event()],
            pending: vec![(9, "page".to_owned())],
        };
        let page = EventPage {
            events: vec![event()],
            more: true,
        };
        let answers = [
            Answer::Contents(contents),
            Answer::Ready(Ready {
                session: 1,
                last_seq: 9,
                started_afresh: Some("why".to_owned()),
            }),
            Answer::Events {
                id: 4,
                page: Ok(page),
            },
            Answer::Events {
                id: 5,
                page: Err(StoreError::Busy),
            },
        ];
        let requests = requests
            .iter()
            .map(|message| postcard::to_stdvec(message).unwrap());
        let answers = answers
            .iter()
            .map(|message| postcard::to_stdvec(message).unwrap());
        requests.chain(answers).collect()
    }

    /// Understood as what they say, or refused.
    fn check<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
        let Ok(message) = decode::<T>(bytes) else {
            return;
        };
        let again = postcard::to_stdvec(&message).unwrap();
        assert!(again.len() <= bytes.len(), "it holds more than was sent");
        assert_eq!(decode::<T>(&again).unwrap(), message);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(
            bytes in prop_oneof![
                any::<Vec<u8>>(),
                prop::sample::select(some_messages()).prop_flat_map(edited),
            ],
        ) {
            check::<Request>(&bytes);
            check::<Answer>(&bytes);
        }
    }
}

//! The largest ensemble in use: one agent of the cluster reads the metadata of every ledger once a day,
//! slowly, and writes down what it found for all.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

use super::floor::ASSUMED_ENSEMBLE;
use super::paths::Paths;
use super::store::{Answer, Kind, Link, MetaStore, StoreError, create_with_parents};
use super::wire::{Field, fields, number};
use super::{Cluster, DEADLINE};

/// Reads a second: 50 are nothing to a ZooKeeper, and a million ledgers still take less than a day.
const READS_A_SECOND: u32 = 50;

/// How old the result may become, by the wall clocks of the machines that share it: a wrong one costs a
/// walk too many or a day.
const A_DAY: Duration = Duration::from_secs(24 * 3600);

/// Between two looks whether the result is too old. Up to so long it is not known in a new cluster.
const LOOK: Duration = Duration::from_secs(600);

/// The first look: soon, but after the agent has done what it is there for. So long is waited again where it could not
/// be made, because the floor stands on what it finds.
const FIRST_LOOK: Duration = Duration::from_secs(20);

/// Tries of one read, five seconds apart: a walk of hours outlives an election.
const TRIES: u32 = 5;
const BETWEEN_TRIES: Duration = Duration::from_secs(5);

/// Digits in the name of a node above ledgers: two to four in every layout.
const DIGITS: std::ops::RangeInclusive<usize> = 2..=4;

/// Nodes above ledgers in the deepest layout (`000/0000/0000/0000/0000/L0000`); what lies deeper is none.
const DEPTH: usize = 5;

#[derive(Serialize, Deserialize)]
struct Document {
    largest: u32,
    at: i64,
}

/// What is written down; none when nothing is, or nothing that can be understood.
pub(super) async fn largest(
    store: &dyn MetaStore,
    paths: &Paths,
    problems: &mut Vec<String>,
) -> Result<Option<u32>, StoreError> {
    let path = paths.ensemble();
    match store.get(&path).await {
        Ok((bytes, _)) => Ok(serde_json::from_slice::<Document>(&bytes)
            .inspect_err(|why| problems.push(format!("{path} cannot be understood: {why}")))
            .ok()
            .map(|document| document.largest)),
        Err(StoreError::NoNode) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Keeps the result fresh, for ever.
pub(super) async fn keep(cluster: Cluster) {
    // Agents that were started together do not look together.
    tokio::time::sleep(FIRST_LOOK.mul_f64(1.0 + fastrand::f64())).await;
    loop {
        let pause = match look(&cluster).await {
            Ok(()) => LOOK,
            Err(why) => {
                tracing::debug!("the largest ensemble was not looked for: {why}");
                FIRST_LOOK
            }
        };
        tokio::time::sleep(pause.mul_f64(1.0 + fastrand::f64())).await;
    }
}

/// Walks if it is time and nobody else does.
async fn look(cluster: &Cluster) -> Result<(), String> {
    let paths = cluster.paths().await.map_err(|error| error.to_string())?;
    let store = cluster.store();
    let now = cluster.clock().now().wall.0;
    let words = |error: StoreError| error.to_string();
    match store.get(&paths.ensemble()).await {
        Ok((bytes, _)) => {
            let document: Option<Document> = serde_json::from_slice(&bytes).ok();
            let age = document.map_or(u64::MAX, |document| now.abs_diff(document.at));
            if u128::from(age) < A_DAY.as_millis() {
                return Ok(());
            }
        }
        Err(StoreError::NoNode) => {}
        Err(error) => return Err(words(error)),
    }
    walk(cluster, &paths, READS_A_SECOND).await.map_err(words)
}

/// Walks, unless another agent does.
pub(super) async fn walk(
    cluster: &Cluster,
    paths: &Paths,
    reads_a_second: u32,
) -> Result<(), StoreError> {
    let store = cluster.store();
    let guard = paths.ensemble_walk();
    match create_with_parents(store, &guard, &[], Kind::Ephemeral).await {
        Ok(_) => {}
        Err(StoreError::NodeExists) => return Ok(()),
        Err(error) => return Err(error),
    }
    let now = cluster.clock().now().wall.0;
    let walked = Walk::new(store, paths, now, reads_a_second).run().await;
    // In another session the guard is another's.
    match walked {
        Err(StoreError::Expired) => walked,
        _ => walked.and(store.delete(&guard, None).await),
    }
}

/// One pass over all ledgers.
pub(super) struct Walk<'a> {
    store: &'a dyn MetaStore,
    paths: &'a Paths,
    now: i64,
    session: Link,
    pace: Interval,
    between_tries: Duration,
    largest: u32,
    /// Written down so far.
    known: u32,
    not_understood: u64,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        store: &'a dyn MetaStore,
        paths: &'a Paths,
        now: i64,
        reads_a_second: u32,
    ) -> Walk<'a> {
        let mut pace = interval(Duration::from_secs(1) / reads_a_second.max(1));
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Walk {
            store,
            paths,
            now,
            session: *store.link().borrow(),
            pace,
            between_tries: BETWEEN_TRIES,
            largest: 0,
            known: ASSUMED_ENSEMBLE,
            not_understood: 0,
        }
    }

    /// Reads every ledger's metadata and writes down the largest ensemble. A larger one than is known is
    /// written down at once: the walk may take hours, and the floor is too low until then.
    pub(super) async fn run(mut self) -> Result<(), StoreError> {
        let mut problems = Vec::new();
        if let Some(known) = largest(self.store, self.paths, &mut problems).await? {
            self.known = self.known.max(known);
        }
        // Depth first: what waits is one list of names for each level.
        let mut waiting = vec![(self.paths.ledgers().to_owned(), 0)];
        while let Some((top, depth)) = waiting.pop() {
            let store = self.store;
            let Some(names) = self.patiently(|| store.children(&top)).await? else {
                continue;
            };
            for name in names {
                let path = format!("{top}/{name}");
                if is_ledger(&name) {
                    self.ledger(&path).await?;
                } else if depth < DEPTH && is_above_ledgers(&name) {
                    waiting.push((path, depth + 1));
                }
            }
        }
        if self.not_understood != 0 {
            let count = self.not_understood;
            tracing::warn!("the metadata of {count} ledgers could not be understood");
        }
        // A cluster without ledgers says nothing about the next one.
        if self.largest != 0 {
            self.write(self.largest).await?;
        }
        Ok(())
    }

    async fn ledger(&mut self, path: &str) -> Result<(), StoreError> {
        let store = self.store;
        let Some((bytes, _)) = self.patiently(|| store.get(path)).await? else {
            return Ok(());
        };
        match ensemble_size(&bytes) {
            Some(size) => self.largest = self.largest.max(size),
            None => self.not_understood += 1,
        }
        if self.known < self.largest {
            self.known = self.largest;
            self.write(self.largest).await?;
        }
        Ok(())
    }

    async fn write(&self, largest: u32) -> Result<(), StoreError> {
        let document = Document {
            largest,
            at: self.now,
        };
        let data = serde_json::to_vec(&document).expect("two numbers are always JSON");
        let path = self.paths.ensemble();
        match self.store.set(&path, &data, None).await {
            Err(StoreError::NoNode) => {
                create_with_parents(self.store, &path, &data, Kind::Persistent)
                    .await
                    .map(drop)
            }
            other => other.map(drop),
        }
    }

    /// None for what is gone. Ends when the session did: another agent may walk by then.
    async fn patiently<'p, T>(
        &mut self,
        read: impl Fn() -> Answer<'p, T>,
    ) -> Result<Option<T>, StoreError> {
        let mut tries = 0;
        loop {
            self.pace.tick().await;
            tries += 1;
            match (self.session, *self.store.link().borrow()) {
                (Link::Connected(one), Link::Connected(other)) if one != other => {
                    return Err(StoreError::Expired);
                }
                _ => {}
            }
            let answer = timeout(DEADLINE, read()).await;
            match answer.unwrap_or(Err(StoreError::TimedOut)) {
                Ok(found) => return Ok(Some(found)),
                Err(StoreError::NoNode) => return Ok(None),
                Err(error) if tries == TRIES || !error.is_open() => return Err(error),
                Err(_) => tokio::time::sleep(self.between_tries).await,
            }
        }
    }
}

fn is_ledger(name: &str) -> bool {
    name.strip_prefix('L').is_some_and(is_digits)
}

fn is_above_ledgers(name: &str) -> bool {
    DIGITS.contains(&name.len()) && is_digits(name)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The ensemble's size in a ledger's metadata of any version.
pub(super) fn ensemble_size(bytes: &[u8]) -> Option<u32> {
    const ENSEMBLE_SIZE: u64 = 2;
    let rest = bytes.strip_prefix(b"BookieMetadataFormatVersion\t")?;
    let line = rest.iter().position(|byte| *byte == b'\n')?;
    let (version, body) = (&rest[..line], &rest[line + 1..]);
    let size = match version {
        // One number a line: quorum, ensemble, length.
        b"1" => text(body)?.lines().nth(1)?.trim().parse().ok()?,
        // Protobuf's text form.
        b"2" => {
            let mut lines = text(body)?.lines();
            let value = lines.find_map(|line| line.trim().strip_prefix("ensembleSize:"))?;
            value.trim().parse().ok()?
        }
        // Protobuf, with its length before.
        b"3" => {
            let mut message = body;
            let length = usize::try_from(number(&mut message)?).ok()?;
            let size = fields(message.get(..length)?).find_map(|field| match field {
                Ok((ENSEMBLE_SIZE, Field::Number(size))) => Some(size),
                _ => None,
            });
            u32::try_from(size?).ok()?
        }
        _ => return None,
    };
    (0 < size).then_some(size)
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::super::memory::Memory;
    use super::*;
    use crate::clock::Clock;

    const V1: &[u8] = b"BookieMetadataFormatVersion\t1\n2\n5\n0\n0\ta:1\tb:1";
    const V2: &[u8] =
        b"BookieMetadataFormatVersion\t2\nquorumSize: 2\nensembleSize: 4\nlength: 0\nstate: OPEN\n";
    const V3: &[u8] = b"BookieMetadataFormatVersion\t3\n\x08\x08\x02\x10\x03\x18\x00\x28\x01";

    #[test]
    fn every_version_says_its_ensemble() {
        assert_eq!(ensemble_size(V1), Some(5));
        assert_eq!(ensemble_size(V2), Some(4));
        assert_eq!(ensemble_size(V3), Some(3));
        for bad in [
            &b""[..],
            b"BookieMetadataFormatVersion\t4\n2\n3\n",
            b"BookieMetadataFormatVersion\t1\n2\n",
            b"BookieMetadataFormatVersion\t2\nquorumSize: 2\n",
            b"BookieMetadataFormatVersion\t3\n\x20\x08\x02",
            b"BookieMetadataFormatVersion\t3\n\x02\x10\x00",
            b"BookieMetadataFormatVersion\t1\n2\n-1\n",
        ] {
            assert_eq!(ensemble_size(bad), None, "{bad:?}");
        }
    }

    async fn put(store: &dyn MetaStore, path: &str, data: &[u8]) {
        create_with_parents(store, path, data, Kind::Persistent)
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn a_walk_finds_ledgers_of_every_layout_and_nothing_else() {
        let server = Memory::new(Clock::manual());
        let store = server.connect();
        let paths = Paths::new("/ledgers", "/dirkeeper", "i");
        let mut problems = Vec::new();
        let walk = || Walk::new(&store, &paths, 9, 10_000).run();

        put(&store, "/ledgers/LAYOUT", b"2\nx:1").await;
        put(&store, "/ledgers/00/0000/L0001", V3).await;
        walk().await.unwrap();
        assert_eq!(largest(&store, &paths, &mut problems).await, Ok(Some(3)));
        put(&store, "/ledgers/000/0000/0000/0012/3456/L7890", V2).await;
        put(&store, "/ledgers/00/0001/L0002", b"garbage").await;
        // Neither of them is a ledger.
        put(&store, "/ledgers/available/00/L0003", V1).await;
        put(&store, "/ledgers/underreplication/L0004", V1).await;
        walk().await.unwrap();
        assert_eq!(largest(&store, &paths, &mut problems).await, Ok(Some(4)));
        put(&store, "/ledgers/L0000000005", V1).await;
        walk().await.unwrap();
        assert_eq!(
            store.get("/dirkeeper/i/ensemble").await.unwrap().0,
            br#"{"largest":5,"at":9}"#
        );
        // The largest is gone: the result follows.
        store.delete("/ledgers/L0000000005", None).await.unwrap();
        walk().await.unwrap();
        assert_eq!(largest(&store, &paths, &mut problems).await, Ok(Some(4)));
        assert!(problems.is_empty());
    }

    #[tokio::test]
    async fn a_walk_ends_with_its_session() {
        let server = Memory::new(Clock::manual());
        let store = server.connect();
        put(&store, "/ledgers/00/0000/L0001", V3).await;
        let paths = Paths::new("/ledgers", "/dirkeeper", "i");
        let walk = Walk::new(&store, &paths, 9, 10_000);
        store.expire();
        store.reconnect();
        assert_eq!(walk.run().await, Err(StoreError::Expired));

        let mut walk = Walk::new(&store, &paths, 9, 10_000);
        walk.between_tries = Duration::ZERO;
        assert_eq!(walk.ledger("/ledgers/00/0000/L0001").await, Ok(()));
        store.disconnect();
        let lost = walk.ledger("/ledgers/00/0000/L0001").await;
        assert_eq!(lost, Err(StoreError::Lost));
    }
}

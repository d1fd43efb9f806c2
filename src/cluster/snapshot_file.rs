//! A metadata store over a snapshot file of ZooKeeper (`snapshot.<zxid>`), to be read only: a scan of it costs
//! the live servers nothing. The file is read once from end to end, and then where its nodes lie; 32
//! bytes a node are kept. Every call blocks for as long as the disk with the file does.
//!
//! A snapshot is fuzzy: changes made while it was written are in it for some nodes and not for others. So what is
//! found in one is a suspicion, to be checked against the live store.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use thiserror::Error;
use tokio::sync::watch;

use super::store::{Answer, Changed, Kind, Link, MetaStore, Op, Stat, StoreError};

/// `ZKSN`, and the version since ZooKeeper 3.0 (`FileSnap`).
const MAGIC: &[u8; 4] = b"ZKSN";
const VERSION: i32 = 2;

/// Longest string or data that is believed: `jute.maxbuffer` is 1 MiB and seldom above a hundred.
const LONGEST: usize = 256 << 20;

/// Bytes of a node behind its data: the key of its ACL, and `StatPersisted`.
const STAT: usize = 8 + 4 * 8 + 3 * 4 + 2 * 8;

/// What stands in the place of a session with a node that goes with its last child, and in the highest byte with one
/// that has a time to live (`EphemeralType`).
const CONTAINER: i64 = i64::MIN;
const TTL: i64 = 0xff << 56;

/// No node.
const NONE: u32 = u32::MAX;

/// A snapshot file.
#[derive(Debug)]
pub struct SnapshotFile {
    file: File,
    /// Where each node lies in the file, in its order.
    nodes: Vec<Place>,
    /// The hash of each path, sorted, and which node it is.
    index: Vec<(u64, u32)>,
    newest: i64,
    link: watch::Sender<Link>,
}

#[derive(Debug)]
struct Place {
    at: u64,
    first_child: u32,
    next_sibling: u32,
}

/// Why a file cannot be read.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// The system's error.
    #[error("cannot read it")]
    Io(#[from] io::Error),
    /// Something else.
    #[error("it is no snapshot of ZooKeeper: it does not begin with ZKSN")]
    Magic,
    /// As `snapshot.compression.method` makes it.
    #[error("it is compressed: unpack it first (gunzip)")]
    Compressed,
    /// Of another version.
    #[error("it is written in version {0}, and only version 2 is known")]
    Version(i32),
    /// Cut off or damaged.
    #[error("it is damaged at byte {at}: {why}")]
    Damaged {
        /// Counted from 0.
        at: u64,
        /// In words.
        why: &'static str,
    },
}

impl SnapshotFile {
    /// Reads the file once, and checks its sum. Blocks.
    ///
    /// # Errors
    /// It is no whole snapshot.
    pub fn open(path: &Path) -> Result<SnapshotFile, SnapshotError> {
        let file = File::open(path)?;
        let mut reader = Reader::new(&file);
        reader.head()?;
        let nodes = reader.nodes()?;
        reader.seal()?;
        let Tree {
            places,
            mut index,
            newest,
            ..
        } = nodes;
        index.sort_unstable();
        Ok(SnapshotFile {
            file,
            nodes: places,
            index,
            newest,
            link: watch::Sender::new(Link::Connected(0)),
        })
    }

    /// The newest change in it, in milliseconds since 1970: it shows the cluster as it was then, whenever the file was
    /// copied.
    #[must_use]
    pub fn newest(&self) -> i64 {
        self.newest
    }

    /// How many nodes it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    fn find(&self, path: &str) -> Result<Option<(&Place, Node)>, StoreError> {
        let hash = hash(path);
        // The root has no name in the file.
        let path = if path == "/" { "" } else { path };
        let from = self.index.partition_point(|(other, _)| *other < hash);
        for (_, number) in self.index[from..]
            .iter()
            .take_while(|(other, _)| *other == hash)
        {
            let place = &self.nodes[*number as usize];
            let node = self.node(place)?;
            if node.path == path {
                return Ok(Some((place, node)));
            }
        }
        Ok(None)
    }

    fn count(&self, place: &Place) -> u32 {
        let next = |number: &u32| {
            self.nodes
                .get(*number as usize)
                .map(|node| node.next_sibling)
        };
        let children = std::iter::successors(Some(place.first_child), next);
        let count = children.take_while(|number| *number != NONE).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    fn node(&self, place: &Place) -> Result<Node, StoreError> {
        let failed =
            |error: io::Error| StoreError::Other(format!("cannot read the snapshot: {error}"));
        let (path, at) = self.bytes(place.at).map_err(failed)?;
        let (data, at) = self.bytes(at).map_err(failed)?;
        let mut stat = [0; STAT];
        self.file.read_exact_at(&mut stat, at).map_err(failed)?;
        Ok(Node {
            path: String::from_utf8_lossy(&path).into_owned(),
            data,
            stat: Stat {
                children: self.count(place),
                ..persisted(&stat)
            },
        })
    }

    /// A string or data, and what lies behind it.
    fn bytes(&self, at: u64) -> io::Result<(Vec<u8>, u64)> {
        let mut length = [0; 4];
        self.file.read_exact_at(&mut length, at)?;
        // Lengths were looked at when the file was opened; a null one is -1.
        let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(0);
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, at + 4)?;
        Ok((bytes, at + 4 + length as u64))
    }

    fn children_of(&self, path: &str) -> Result<Vec<String>, StoreError> {
        let (place, _) = self.find(path)?.ok_or(StoreError::NoNode)?;
        let mut names = Vec::new();
        let mut next = place.first_child;
        while let Some(child) = self.nodes.get(next as usize) {
            let (path, _) = self
                .bytes(child.at)
                .map_err(|error| StoreError::Other(format!("cannot read the snapshot: {error}")))?;
            let path = String::from_utf8_lossy(&path);
            names.push(
                path.rsplit_once('/')
                    .map_or("", |(_, name)| name)
                    .to_owned(),
            );
            next = child.next_sibling;
        }
        Ok(names)
    }
}

struct Node {
    path: String,
    data: Vec<u8>,
    stat: Stat,
}

fn persisted(bytes: &[u8; STAT]) -> Stat {
    let long = |at: usize| {
        let bytes = bytes[at..].first_chunk().copied().unwrap_or_default();
        i64::from_be_bytes(bytes)
    };
    let int =
        |at: usize| i32::from_be_bytes(bytes[at..].first_chunk().copied().unwrap_or_default());
    let owner = long(8 + 4 * 8 + 3 * 4);
    Stat {
        version: int(8 + 4 * 8),
        created: long(8),
        created_at: long(8 + 2 * 8),
        modified: long(8 + 3 * 8),
        owner: (owner != 0 && owner != CONTAINER && owner & TTL != TTL).then_some(owner),
        children: 0,
    }
}

/// The nodes while they are read: each comes behind the one above it (`DataTree.serializeNode`).
#[derive(Default)]
struct Tree {
    places: Vec<Place>,
    index: Vec<(u64, u32)>,
    /// From the root down to the node that was read last, with the last child of each.
    above: Vec<(String, u32, u32)>,
    newest: i64,
}

impl Tree {
    /// False if the node above is not there, or there are too many.
    fn add(&mut self, at: u64, path: &str) -> bool {
        let Ok(number) = u32::try_from(self.places.len()) else {
            return false;
        };
        if !path.is_empty() {
            let above = path.rsplit_once('/').map_or("", |(above, _)| above);
            while self.above.last().is_some_and(|(path, ..)| path != above) {
                self.above.pop();
            }
            let Some((_, parent, last)) = self.above.last_mut() else {
                return false;
            };
            match *last {
                NONE => self.places[*parent as usize].first_child = number,
                last => self.places[last as usize].next_sibling = number,
            }
            *last = number;
        } else if number != 0 {
            return false;
        }
        self.above.push((path.to_owned(), number, NONE));
        let path = if path.is_empty() { "/" } else { path };
        self.index.push((hash(path), number));
        self.places.push(Place {
            at,
            first_child: NONE,
            next_sibling: NONE,
        });
        true
    }
}

fn hash(path: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}

/// Reads from end to end, with the place and the sum of what was read.
struct Reader<'a> {
    file: BufReader<&'a File>,
    at: u64,
    sum: adler2::Adler32,
}

impl Reader<'_> {
    fn new(file: &File) -> Reader<'_> {
        Reader {
            file: BufReader::with_capacity(1 << 20, file),
            at: 0,
            sum: adler2::Adler32::new(),
        }
    }

    /// Magic, version, id; sessions; access lists.
    fn head(&mut self) -> Result<(), SnapshotError> {
        match &self.take::<4>()? {
            MAGIC => {}
            [0x1f, 0x8b, ..] | [0x82, b'S', b'N', b'A'] => return Err(SnapshotError::Compressed),
            _ => return Err(SnapshotError::Magic),
        }
        match self.int()? {
            VERSION => {}
            other => return Err(SnapshotError::Version(other)),
        }
        self.take::<8>()?;
        for _ in 0..self.count("a number of sessions")? {
            self.take::<12>()?;
        }
        for _ in 0..self.count("a number of access lists")? {
            self.take::<8>()?;
            for _ in 0..self.count("a number of access rules")? {
                self.take::<4>()?;
                self.bytes()?;
                self.bytes()?;
            }
        }
        Ok(())
    }

    /// Every node, up to the one called `/`, which is none.
    fn nodes(&mut self) -> Result<Tree, SnapshotError> {
        let mut tree = Tree::default();
        loop {
            let at = self.at;
            let path = self.bytes()?;
            if path == b"/" {
                return Ok(tree);
            }
            let damaged = |why| SnapshotError::Damaged { at, why };
            let path = String::from_utf8(path).map_err(|_| damaged("a path is no text"))?;
            if !tree.add(at, &path) {
                return Err(damaged("a node has none above it"));
            }
            self.bytes()?;
            let modified = persisted(&self.take()?).modified;
            tree.newest = tree.newest.max(modified);
        }
    }

    /// The sum of all before it (`SnapStream.sealStream`).
    fn seal(&mut self) -> Result<(), SnapshotError> {
        let sum = i64::from(self.sum.checksum());
        if i64::from_be_bytes(self.take()?) != sum {
            return Err(self.damaged("its sum is another"));
        }
        Ok(())
    }

    fn damaged(&self, why: &'static str) -> SnapshotError {
        SnapshotError::Damaged { at: self.at, why }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), SnapshotError> {
        match self.file.read_exact(bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(self.damaged("it ends too early"));
            }
            Err(error) => return Err(error.into()),
        }
        self.at += bytes.len() as u64;
        self.sum.write_slice(bytes);
        Ok(())
    }

    fn int(&mut self) -> Result<i32, SnapshotError> {
        self.take().map(i32::from_be_bytes)
    }

    fn count(&mut self, what: &'static str) -> Result<i32, SnapshotError> {
        let count = self.int()?;
        // A vector may be null.
        if count < -1 {
            return Err(self.damaged(what));
        }
        Ok(count)
    }

    fn bytes(&mut self) -> Result<Vec<u8>, SnapshotError> {
        let length = self.count("a length")?;
        let length = usize::try_from(length).unwrap_or(0);
        if LONGEST < length {
            return Err(self.damaged("a length"));
        }
        let mut bytes = Vec::new();
        // In pieces: a length that lies costs no memory.
        let mut piece = [0; 4096];
        while bytes.len() < length {
            let some = piece.len().min(length - bytes.len());
            self.fill(&mut piece[..some])?;
            bytes.extend_from_slice(&piece[..some]);
        }
        Ok(bytes)
    }
}

const READ_ONLY: &str = "a snapshot file cannot be changed";

fn refused<T>() -> Result<T, StoreError> {
    Err(StoreError::Other(READ_ONLY.to_owned()))
}

impl MetaStore for SnapshotFile {
    fn get<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<u8>, Stat)> {
        Box::pin(async move {
            let (_, node) = self.find(path)?.ok_or(StoreError::NoNode)?;
            Ok((node.data, node.stat))
        })
    }
    fn stat<'a>(&'a self, path: &'a str) -> Answer<'a, Option<Stat>> {
        Box::pin(async move { Ok(self.find(path)?.map(|(_, node)| node.stat)) })
    }
    fn children<'a>(&'a self, path: &'a str) -> Answer<'a, Vec<String>> {
        Box::pin(async move { self.children_of(path) })
    }
    fn create<'a>(&'a self, _: &'a str, _: &'a [u8], _: Kind) -> Answer<'a, Stat> {
        Box::pin(async { refused() })
    }
    fn set<'a>(&'a self, _: &'a str, _: &'a [u8], _: Option<i32>) -> Answer<'a, Stat> {
        Box::pin(async { refused() })
    }
    fn delete<'a>(&'a self, _: &'a str, _: Option<i32>) -> Answer<'a, ()> {
        Box::pin(async { refused() })
    }
    fn multi<'a>(&'a self, _: &'a [Op]) -> Answer<'a, ()> {
        Box::pin(async { refused() })
    }
    fn watch<'a>(&'a self, path: &'a str) -> Answer<'a, (Option<Stat>, Changed)> {
        let never: Changed = Box::pin(std::future::pending());
        Box::pin(async move { Ok((self.stat(path).await?, never)) })
    }
    fn watch_children<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<String>, Changed)> {
        let never: Changed = Box::pin(std::future::pending());
        Box::pin(async move { Ok((self.children_of(path)?, never)) })
    }
    fn link(&self) -> watch::Receiver<Link> {
        self.link.subscribe()
    }
}

#[cfg(test)]
mod tests;

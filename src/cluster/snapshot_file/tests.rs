//! Files as ZooKeeper writes them (`FileSnap`, `DataTree.serialize`), and damaged ones.

use std::io::Write;

use super::*;

/// What ZooKeeper 3.9.3 wrote at a restart, with two small clusters of Pulsar 4.0.7 in it.
const REAL: &[u8] = include_bytes!("real.gz");
/// The same as ZooKeeper's own client read it right before: path, version, transaction that made the node, times,
/// session, number of children and data, as `tests/lab/pulsar/pulsar-lab tool DIR dump /` prints them.
const REAL_TEXT: &[u8] = include_bytes!("real.txt.gz");

/// Writes a snapshot of these nodes, each behind the one above it.
fn written(nodes: &[(&str, Option<&[u8]>)]) -> Vec<u8> {
    let mut bytes = b"ZKSN".to_vec();
    let int = |bytes: &mut Vec<u8>, value: i32| bytes.extend(value.to_be_bytes());
    let long = |bytes: &mut Vec<u8>, value: i64| bytes.extend(value.to_be_bytes());
    let data = |bytes: &mut Vec<u8>, value: Option<&[u8]>| {
        int(bytes, value.map_or(-1, |value| value.len() as i32));
        bytes.extend(value.unwrap_or_default());
    };
    int(&mut bytes, 2);
    long(&mut bytes, -1);
    // A session and an access list with a rule.
    int(&mut bytes, 1);
    long(&mut bytes, 0x1_0000);
    int(&mut bytes, 10_000);
    int(&mut bytes, 1);
    long(&mut bytes, 1);
    int(&mut bytes, 1);
    int(&mut bytes, 31);
    data(&mut bytes, Some(b"world"));
    data(&mut bytes, Some(b"anyone"));
    for (number, (path, value)) in (0..).zip(nodes) {
        data(&mut bytes, Some(path.as_bytes()));
        data(&mut bytes, *value);
        long(&mut bytes, 1);
        for stat in [100 + number, 200 + number, 300 + number, 400 + number] {
            long(&mut bytes, stat);
        }
        for version in [7, 8, 9] {
            int(&mut bytes, version);
        }
        long(&mut bytes, if number == 1 { 0x1_0000 } else { 0 });
        long(&mut bytes, 500);
    }
    data(&mut bytes, Some(b"/"));
    let mut sum = adler2::Adler32::new();
    sum.write_slice(&bytes);
    long(&mut bytes, i64::from(sum.checksum()));
    data(&mut bytes, Some(b"/"));
    bytes
}

fn opened(bytes: &[u8]) -> Result<SnapshotFile, SnapshotError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    SnapshotFile::open(file.path())
}

const NODES: &[(&str, Option<&[u8]>)] = &[
    ("", Some(b"")),
    ("/a", Some(b"one")),
    ("/b", None),
    ("/b/c", Some(b"three")),
    ("/b/c/d", Some(b"four")),
    ("/b/e", Some(b"five")),
    ("/f", Some(b"six")),
];

#[tokio::test]
async fn nodes_are_found_with_their_children() {
    let file = opened(&written(NODES)).unwrap();
    assert_eq!(file.len(), NODES.len());
    assert_eq!(file.newest(), 406);
    let (data, stat) = file.get("/b/c").await.unwrap();
    assert_eq!(data, b"three");
    assert_eq!((stat.version, stat.created), (7, 103));
    assert_eq!((stat.created_at, stat.modified), (303, 403));
    assert_eq!((stat.owner, stat.children), (None, 1));
    assert_eq!(
        file.stat("/a").await.unwrap().unwrap().owner,
        Some(0x1_0000)
    );
    assert_eq!(file.get("/b").await.unwrap().0, b"");
    assert_eq!(file.children("/b").await.unwrap(), ["c", "e"]);
    assert_eq!(file.children("/").await.unwrap(), ["a", "b", "f"]);
    assert_eq!(file.children("/f").await.unwrap(), Vec::<String>::new());
    assert_eq!(file.get("/x").await, Err(StoreError::NoNode));
    assert_eq!(file.children("/x").await, Err(StoreError::NoNode));
}

fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    flate2::read::GzDecoder::new(bytes)
        .read_to_end(&mut whole)
        .unwrap();
    whole
}

#[tokio::test]
async fn a_file_of_zookeeper_says_what_its_client_read() {
    let file = opened(&unpacked(REAL)).unwrap();
    let text = String::from_utf8(unpacked(REAL_TEXT)).unwrap();
    assert_eq!(file.len(), text.lines().count());
    for line in text.lines() {
        let path = line.split('\t').next().unwrap();
        let (data, stat) = file.get(path).await.unwrap();
        let hex: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
        let read = format!(
            "{path}\tv{}\t0x{:x}\t{}\t{}\t0x{:x}\t{}\t{hex}",
            stat.version,
            stat.created,
            stat.created_at,
            stat.modified,
            stat.owner.unwrap_or_default(),
            stat.children,
        );
        assert_eq!(read, line.replace("\tnull", "\t"));
        let children = file.children(path).await.unwrap();
        assert_eq!(children.len(), stat.children as usize, "{path}");
    }
}

#[tokio::test]
async fn it_cannot_be_changed() {
    let file = opened(&written(NODES)).unwrap();
    let told = file.set("/a", b"x", None).await.unwrap_err();
    assert_eq!(told.to_string(), "a snapshot file cannot be changed");
    assert!(file.delete("/a", None).await.is_err());
    assert!(file.create("/g", b"", Kind::Persistent).await.is_err());
    assert!(file.multi(&[]).await.is_err());
}

#[test]
fn damage_is_told() {
    let whole = written(NODES);
    let told = |bytes: &[u8]| opened(bytes).unwrap_err().to_string();
    assert_eq!(
        told(b"<html>"),
        "it is no snapshot of ZooKeeper: it does not begin with ZKSN"
    );
    assert_eq!(
        told(&[0x1f, 0x8b, 8, 0]),
        "it is compressed: unpack it first (gunzip)"
    );
    let orphan: &[(&str, Option<&[u8]>)] = &[("", None), ("/a/b", None)];
    assert!(told(&written(orphan)).contains("a node has none above it"));
    let seal = whole.len() - 5;
    for cut in 0..seal {
        assert!(
            opened(&whole[..cut]).is_err(),
            "cut to {cut} bytes it was taken"
        );
    }
    for at in 0..seal {
        let mut other = whole.clone();
        other[at] ^= 0x40;
        assert!(
            opened(&other).is_err(),
            "with another byte at {at} it was taken"
        );
    }
}

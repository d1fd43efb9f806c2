//! Bytes that Pulsar 4.0.7 wrote, packed as its codecs do, and what is made of damaged ones.

use std::io::Write;

use proptest::prelude::*;

use super::*;
use crate::cluster::ledger::LedgerMetadata;
use crate::cluster::ledger::tests::{CLOSED, OPEN, unhex};

const TOPIC: &str = "0a0e0804100a18940a20bbe0a6cfa234 0a0e0805100a18940a20cde1a6cfa234 0a0e0806100a18940a20dee2a6cfa234 0a0408072000";
const LOCATOR: &str =
    "0a2a08021204081a10001a20c333ebc530ff5da30918a7c749062f7d7be9d50ac95f993a94ee98cff4a1e8d2
122a08001204081810001a2027a9dff39bffe1174c777d2116b40e1758535db69473dfd61b04bde1c3217949
122a08011204081910001a2005c9a0d6112e7f937783bdc2d7625d1f979f4beb76ce6ee98356da476a55824d
122a08021204081a10001a20c333ebc530ff5da30918a7c749062f7d7be9d50ac95f993a94ee98cff4a1e8d2";

fn cursor(hex: &str) -> ManagedCursor {
    match Node::decode(&unhex(hex)).unwrap() {
        Node::Cursor(cursor) => cursor,
        other => panic!("{other:?} is no cursor"),
    }
}

#[test]
fn list_of_a_real_topic() {
    let Node::Topic(topic) = Node::decode(&unhex(TOPIC)).unwrap() else {
        panic!("it is no topic");
    };
    let ids: Vec<_> = topic.ledgers.iter().map(|ledger| ledger.id).collect();
    assert_eq!(ids, [4, 5, 6, 7]);
    assert_eq!(
        (topic.ledgers[0].entries, topic.ledgers[0].size),
        (10, 1300)
    );
    assert_eq!(topic.ledgers[0].closed_at, Some(1_795_999_510_587));
    // Zero is written out for the ledger that is written now.
    assert_eq!(topic.ledgers[3].closed_at, None);
    assert_eq!(Node::decode(&[]), Ok(Node::Empty));
}

#[test]
fn cursors_of_real_topics() {
    let loaded = cursor("0808100418ffffffffffffffffff0130c780a7cfa234");
    assert_eq!(loaded.ledger, Some(8));
    assert_eq!(
        loaded.mark_delete,
        Some(Position {
            ledger: 4,
            entry: None
        })
    );
    let unloaded = cursor("08ffffffffffffffffff011005180130c780a7cfa234");
    assert_eq!(
        (unloaded.ledger, unloaded.mark_delete),
        (
            None,
            Some(Position {
                ledger: 5,
                entry: Some(1)
            })
        )
    );
    let compaction = cursor(
        "08ffffffffffffffffff01101e18092a180a14436f6d706163746564546f7069634c6564676572102030b7feaecfa234",
    );
    assert_eq!(
        (compaction.ledger, compaction.compacted_ledger),
        (None, Some(32))
    );
}

#[test]
fn buckets_of_delayed_messages() {
    let property = |name: &str, value: &str| RawString {
        name: Some(name.to_owned()),
        value: Some(value.to_owned()),
    };
    let with = |properties| RawCursor {
        cursors_ledger_id: Some(-1),
        cursor_properties: properties,
        ..RawCursor::default()
    };
    let real = with(vec![
        property("#pulsar.internal.delayed.bucket_9_10", "12"),
        property("mine", "x"),
    ]);
    assert_eq!(real.checked().unwrap().buckets, [12]);
    let odd = with(vec![property(
        "#pulsar.internal.delayed.bucket_9_10",
        "twelve",
    )]);
    insta::assert_snapshot!(odd.checked().unwrap_err(), @r#"property #pulsar.internal.delayed.bucket_9_10 of a cursor is "twelve", and no ledger's id"#);
}

#[test]
fn schema_of_a_real_topic() {
    let locator = SchemaLocator::decode(&unhex(LOCATOR)).unwrap();
    let ids: Vec<_> = locator
        .positions
        .iter()
        .map(|position| position.ledger)
        .collect();
    assert_eq!((ids, locator.is_whole), (vec![24, 25, 26], true));
    assert_eq!(locator.oldest.map(|at| at.ledger), Some(24));
    assert_eq!(
        SchemaLocator::decode(&[]),
        Err(PulsarError::Missing("the newest version"))
    );
}

#[test]
fn entries_of_real_cursor_ledgers() {
    let at = |ledger, entry| Position {
        ledger,
        entry: Some(entry),
    };
    let read = |hex: &str| CursorEntry::decode(&unhex(hex));
    let plain = read("08051001").unwrap();
    assert_eq!(
        (plain.mark_delete, plain.compacted_ledger),
        (at(5, 1), None)
    );
    let compaction = read("081e100922180a14436f6d706163746564546f7069634c65646765721020").unwrap();
    assert_eq!(
        (compaction.mark_delete, compaction.compacted_ledger),
        (at(30, 9), Some(32))
    );
    // Individual acknowledgements, and a field of a later version.
    let more = read("08051001 1a0c0a0408051003 120408051004 f2010408011002").unwrap();
    assert_eq!(more, plain);
    let told = |hex: &str| read(hex).unwrap_err().to_string();
    insta::assert_snapshot!(told(""), @"the entry of a position is missing");
    insta::assert_snapshot!(told("0805"), @"the entry of a position is missing");
    insta::assert_snapshot!(told("08ffffffffffffffffff011000"), @"the ledger of a position is -1");
    insta::assert_snapshot!(told("081e100922160a14436f6d706163746564546f7069634c6564676572"), @"the compacted ledger is missing");
    // The foot of a position in several entries, which later versions write.
    assert!(CursorEntry::decode(br#"{"numParts":2,"length":100}"#).is_err());
}

#[test]
fn entries_of_schema_ledgers() {
    let index = &unhex(LOCATOR)[44..];
    let in_entry = |index: &[u8]| {
        // The same index entries, as field 5.
        let entries: Vec<u8> = index
            .chunks(44)
            .flat_map(|entry| [&[0x2a], &entry[1..]].concat())
            .collect();
        SchemaEntry::decode(&[&unhex("1202aabb")[..], &entries].concat()).unwrap()
    };
    let ledgers =
        |entry: &SchemaEntry| -> Vec<u64> { entry.positions.iter().map(|at| at.ledger).collect() };
    let all = in_entry(index);
    assert_eq!((ledgers(&all), all.is_whole), (vec![24, 25, 26], true));
    let later = in_entry(&index[44..]);
    assert_eq!((ledgers(&later), later.is_whole), (vec![25, 26], false));
    assert_eq!(later.oldest.map(|at| at.ledger), Some(25));
    let first = in_entry(&[]);
    assert_eq!((ledgers(&first), first.is_whole), (vec![], true));
    insta::assert_snapshot!(SchemaEntry::decode(&[]).unwrap_err(), @"the schema is missing");
}

#[test]
fn who_made_a_ledger() {
    let of = |hex: &str| LedgerMetadata::decode(&unhex(hex)).unwrap();
    let topic = "public/default/persistent/f1";
    assert_eq!(Component::of(&of(CLOSED).custom), Component::Topic(topic));
    assert_eq!(
        Component::of(&of(OPEN).custom),
        Component::Cursor {
            topic,
            cursor: "s1"
        }
    );
    assert_eq!(Component::of(&BTreeMap::new()), Component::Foreign);
    let later = [("application", "pulsar"), ("component", "later")];
    let later = later
        .map(|(key, value)| (key.to_owned(), value.into()))
        .into();
    assert_eq!(Component::of(&later), Component::Unknown);
}

/// As Pulsar packs it: header, kind, size, body.
fn packed(kind: i32, size: usize, body: &[u8]) -> Vec<u8> {
    let header = RawPosition {
        ledger_id: Some(kind.into()),
        entry_id: Some(size as i64),
    };
    let header = header.encode_to_vec();
    let length = u32::try_from(header.len()).unwrap().to_be_bytes();
    [&[0x47, 0x78], &length[..], &header, body].concat()
}

/// A frame with one raw block, as zstd writes what it cannot shrink.
fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

fn in_each_form(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    zlib.write_all(bytes).unwrap();
    let bodies = [
        bytes.to_vec(),
        lz4_flex::block::compress(bytes),
        zlib.finish().unwrap(),
        zstd(bytes),
        snap::raw::Encoder::new().compress_vec(bytes).unwrap(),
    ];
    let kinds = 0..;
    kinds
        .zip(bodies)
        .map(|(kind, body)| packed(kind, bytes.len(), &body))
        .collect()
}

#[test]
fn each_compression_is_unpacked() {
    let bytes = unhex(TOPIC).repeat(100);
    let plain = Node::decode(&bytes).unwrap();
    for packed in in_each_form(&bytes) {
        assert_eq!(Node::decode(&packed), Ok(plain.clone()));
        let cut = Node::decode(&packed[..packed.len() - 2]).unwrap_err();
        assert!(cut.to_string().starts_with("it is compressed"), "{cut}");
    }
    let told = |bytes: &[u8]| Node::decode(bytes).unwrap_err().to_string();
    insta::assert_snapshot!(told(&packed(5, 1, b"x")), @"it is compressed and cannot be unpacked: compression 5 is unknown");
    insta::assert_snapshot!(told(&packed(1, usize::MAX >> 33, b"x")), @"it is compressed and cannot be unpacked: 2147483647 bytes are announced, 67108864 at most are read");
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100), at in any::<usize>(), to in any::<u8>()) {
        let _ = Node::decode(&bytes);
        let _ = SchemaLocator::decode(&bytes);
        let _ = CursorEntry::decode(&bytes);
        let _ = SchemaEntry::decode(&bytes);
        for mut form in in_each_form(&unhex(TOPIC)) {
            let at = at % form.len();
            form[at] = to;
            let _ = Node::decode(&form);
        }
    }
}

#[test]
fn a_topic_of_which_nothing_is_known_is_no_empty_one() {
    // Field 9, as a later version may have it.
    let told = Node::decode(b"\x4a\x02\x08\x07").unwrap_err();
    assert_eq!(
        told.to_string(),
        "it cannot be understood: nothing in it is known"
    );
    // Properties alone are a topic that was not loaded yet.
    let decoded = Node::decode(b"\x1a\x03\x0a\x01k").unwrap();
    assert_eq!(decoded, Node::Topic(ManagedLedger::default()));
    assert_eq!(Node::decode(b"").unwrap(), Node::Empty);
}

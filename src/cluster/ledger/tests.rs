//! Bytes that BookKeeper and Pulsar wrote, and what is made of damaged ones.

use std::fmt::Write;

use proptest::prelude::*;

use super::*;

/// Of Pulsar 4.0.7: a closed data ledger and the open ledger of a cursor.
pub(in crate::cluster) const CLOSED: &str = "426f6f6b69654d65746164617461466f726d617456657273696f6e09330aa4010802100218940a2009280332240a0f3132372e302e302e313a32343131320a0f3132372e302e302e313a323431313110003803420048025a350a1570756c7361722f6d616e616765642d6c6564676572121c7075626c69632f64656661756c742f70657273697374656e742f66315a1b0a09636f6d706f6e656e74120e6d616e616765642d6c65646765725a150a0b6170706c69636174696f6e120670756c7361726000";
pub(in crate::cluster) const OPEN: &str = "426f6f6b69654d65746164617461466f726d617456657273696f6e09330ac10108021002180020ffffffffffffffffff01280132240a0f3132372e302e302e313a32343131320a0f3132372e302e302e313a323431313310003803420048025a350a1570756c7361722f6d616e616765642d6c6564676572121c7075626c69632f64656661756c742f70657273697374656e742f66315a1b0a09636f6d706f6e656e74120e6d616e616765642d6c65646765725a130a0d70756c7361722f637572736f72120273315a150a0b6170706c69636174696f6e120670756c7361726000";

/// Written by BookKeeper 4.17.2 itself: `tests/lab/pulsar/pulsar-lab tool DIR golden`. A test of the laboratory holds
/// the two against each other.
const GOLDEN: &str = include_str!("golden.txt");

pub(in crate::cluster) fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().filter(char::is_ascii_hexdigit).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

#[test]
fn third_format_of_a_real_cluster() {
    let closed = LedgerMetadata::decode(&unhex(CLOSED)).unwrap();
    assert_eq!(closed.state, LedgerState::Closed);
    assert_eq!((closed.length, closed.last_entry), (1300, Some(9)));
    assert_eq!(closed.digest, Some(DigestType::Crc32c));
    assert_eq!(closed.created_at, None);
    assert_eq!(
        closed.segments[0].members,
        ["127.0.0.1:24112", "127.0.0.1:24111"]
    );
    assert_eq!(
        closed.custom_text("pulsar/managed-ledger"),
        Some("public/default/persistent/f1")
    );
    let open = LedgerMetadata::decode(&unhex(OPEN)).unwrap();
    assert_eq!(open.state, LedgerState::Open);
    assert_eq!((open.length, open.last_entry), (0, None));
    assert_eq!(open.custom_text("pulsar/cursor"), Some("s1"));
    assert!(open.bookies().contains("127.0.0.1:24113"));
}

#[test]
fn what_bookkeeper_writes() {
    let mut told = String::new();
    for line in GOLDEN.lines() {
        let (name, hex) = line.split_once(' ').unwrap();
        let read = LedgerMetadata::decode(&unhex(hex)).unwrap();
        let segments: Vec<_> = read
            .segments
            .iter()
            .map(|segment| format!("{}={}", segment.first_entry, segment.members.join(",")))
            .collect();
        let custom: Vec<_> = read
            .custom
            .iter()
            .map(|(key, value)| format!("{key}={}", value.escape_ascii()))
            .collect();
        writeln!(
            told,
            "{name}: format {} {}/{}/{} {:?} length {} last {:?} digest {:?} made {:?} [{}] [{}]",
            read.format,
            read.ensemble_size,
            read.write_quorum,
            read.ack_quorum,
            read.state,
            read.length,
            read.last_entry,
            read.digest,
            read.created_at,
            segments.join(" "),
            custom.join(" "),
        )
        .unwrap();
    }
    insta::assert_snapshot!(told, @r"
    v1_open: format 1 3/2/2 Open length 0 last None digest None made None [0=10.0.0.1:3181,b-2,[::1]:3181] []
    v1_closed: format 1 3/2/2 Closed length 1400 last Some(9) digest None made None [0=10.0.0.1:3181,b-2,[::1]:3181 7=10.0.0.1:3181,b-4,[::1]:3181] []
    v1_in_recovery: format 1 3/2/2 InRecovery length 0 last None digest None made None [0=10.0.0.1:3181,b-2,[::1]:3181] []
    v2_open: format 2 3/2/2 Open length 0 last None digest Some(Crc32) made None [0=10.0.0.1:3181,b-2,[::1]:3181] []
    v2_mac_custom: format 2 3/2/2 Closed length 1400 last Some(9) digest Some(Hmac) made Some(1795999510587) [0=10.0.0.1:3181,b-2,[::1]:3181 7=10.0.0.1:3181,b-4,[::1]:3181] [application=pulsar bytes=\x00\x08\x1e\x10\t0\xc3\xa9\']
    v3_crc32: format 3 3/2/2 Open length 0 last None digest Some(Crc32) made None [0=10.0.0.1:3181,b-2,[::1]:3181] []
    v3_mac: format 3 3/2/2 Open length 0 last None digest Some(Hmac) made None [0=10.0.0.1:3181,b-2,[::1]:3181] []
    v3_crc32c: format 3 3/2/2 Open length 0 last None digest Some(Crc32c) made None [0=10.0.0.1:3181,b-2,[::1]:3181] []
    v3_dummy: format 3 3/2/2 Open length 0 last None digest Some(Dummy) made None [0=10.0.0.1:3181,b-2,[::1]:3181] []
    v3_in_recovery: format 3 3/2/2 InRecovery length 0 last None digest Some(Crc32) made None [0=10.0.0.1:3181,b-2,[::1]:3181] []
    v3_closed_empty: format 3 3/2/2 Closed length 0 last None digest Some(Crc32) made None [0=10.0.0.1:3181,b-2,[::1]:3181] []
    v3_fragments_ctime_custom: format 3 3/3/2 Closed length 900000000000 last Some(5000000001) digest Some(Crc32c) made Some(1795999510587) [0=10.0.0.1:3181,b-2,[::1]:3181 7=10.0.0.1:3181,b-4,[::1]:3181 5000000000=10.0.0.1:3181,b-2,[::1]:3181] [application=pulsar bytes=\x00\x08\x1e\x10\t0\xc3\xa9\']
    ");
}

#[test]
fn second_format() {
    let text = "BookieMetadataFormatVersion\t2\nquorumSize: 2\nensembleSize: 3\nlength: 1400\nlastEntryId: 9\nstate: CLOSED\nsegment {\n  \
                ensembleMember: \"10.0.0.1:3181\"\n  ensembleMember: \"b-2\"\n  ensembleMember: \"[::1]:3181\"\n  firstEntryId: 0\n}\nsegment {\n  \
                ensembleMember: \"10.0.0.1:3181\"\n  ensembleMember: \"b-2\"\n  ensembleMember: \"b-3\"\n  firstEntryId: 7\n}\ndigestType: HMAC\n\
                password: \"a\\\"\\000\\377\\n\"\nackQuorumSize: 1\ncustomMetadata {\n  key: \"application\"\n  value: \"pulsar\"\n}\n";
    let read = LedgerMetadata::decode(text.as_bytes()).unwrap();
    assert_eq!(
        (read.ensemble_size, read.write_quorum, read.ack_quorum),
        (3, 2, 1)
    );
    assert_eq!(read.digest, Some(DigestType::Hmac));
    assert_eq!(read.segments[1].first_entry, 7);
    assert_eq!(read.custom_text("application"), Some("pulsar"));
}

#[test]
fn entries_rotate_over_their_segment() {
    let text = "BookieMetadataFormatVersion\t1\n2\n3\n0\n5\ta\tb\tc\n9\ta\td\tc\n";
    let read = LedgerMetadata::decode(text.as_bytes()).unwrap();
    let set = |entry| read.write_set(entry).join("");
    let sets = [4, 5, 6, 8, 9, 10, 11, u64::MAX].map(set);
    assert_eq!(sets, ["", "ca", "ab", "ca", "ad", "dc", "ca", "ad"]);
}

#[test]
fn first_format() {
    let read = |rest: &str| {
        let text = format!("BookieMetadataFormatVersion\t1\n{rest}");
        LedgerMetadata::decode(text.as_bytes())
    };
    let open = read("2\n3\n0\n0\ta:1\tb:1\tc:1\n").unwrap();
    assert_eq!((open.state, open.ack_quorum), (LedgerState::Open, 2));
    let closed = read("2\n3\n140\n0\ta:1\tb:1\tc:1\n4\ta:1\td:1\tc:1\n8\tCLOSED\n").unwrap();
    assert_eq!(
        (closed.state, closed.last_entry),
        (LedgerState::Closed, Some(8))
    );
    assert_eq!(closed.bookies().len(), 4);
    let recovering = read("2\n3\n0\n0\ta:1\tb:1\tc:1\n-102\tCLOSED\n").unwrap();
    assert_eq!(recovering.state, LedgerState::InRecovery);
}

#[test]
fn damage_is_told() {
    let told = |bytes: &[u8]| LedgerMetadata::decode(bytes).unwrap_err().to_string();
    let after = |rest: &str| told(format!("BookieMetadataFormatVersion\t{rest}").as_bytes());
    insta::assert_snapshot!(told(b"<html>"), @"it does not begin as the metadata of a ledger does");
    insta::assert_snapshot!(after("4\nnew"), @"it is written in format 4, and only formats 1 to 3 are known");
    insta::assert_snapshot!(after("1\n2\n3\n"), @"format 1 is damaged: the length is missing");
    insta::assert_snapshot!(after("1\n2\n3\n0\n0\ta:1\n"), @"format 1 is damaged: the segment from entry 0 has 1 bookies of 3");
    insta::assert_snapshot!(after("2\nquorumSize: 2\nquorumSize: 3"), @"format 2 is damaged: field quorumSize is unknown, twice there, or of another kind");
    let cut = unhex(CLOSED);
    insta::assert_snapshot!(told(&cut[..cut.len() - 1]), @"format 3 is damaged: 164 bytes are announced and 163 are there");
}

#[test]
fn nodes_of_ledgers() {
    let paths =
        |layout: Layout| [1, 2_147_483_646, 2_147_483_647].map(|id| layout.path(id).unwrap());
    assert_eq!(
        paths(Layout::Flat),
        ["L0000000001", "L2147483646", "L2147483647"]
    );
    assert_eq!(
        paths(Layout::LegacyHierarchical),
        ["00/0000/L0001", "21/4748/L3646", "21/4748/L3647"]
    );
    let long = [
        "000/0000/0000/0000/L0001",
        "000/0000/0021/4748/L3646",
        "000/0000/0021/4748/L3647",
    ];
    assert_eq!(paths(Layout::LongHierarchical), long);
    assert_eq!(
        paths(Layout::Hierarchical),
        ["00/0000/L0001", "21/4748/L3646", long[2]]
    );
    assert_eq!(Layout::Flat.path(2_147_483_648), None);
    assert_eq!(Layout::Hierarchical.path(u64::MAX), None);
    for other in [
        "available",
        "L0000000001",
        "00/0000",
        "00/0000/X0001",
        "00/0000/L0001/x",
        "000/0000/0000/0000/L0001",
    ] {
        assert_eq!(Layout::Hierarchical.id(other), None, "{other}");
    }
}

#[test]
fn layouts() {
    let read = |text: &str| Layout::parse(text.as_bytes());
    let package = "2\norg.apache.bookkeeper.meta";
    assert_eq!(
        read(&format!("{package}.HierarchicalLedgerManagerFactory:1")),
        Ok(Layout::Hierarchical)
    );
    assert_eq!(read("1\nhierarchical:1"), Ok(Layout::LegacyHierarchical));
    assert_eq!(
        read("2\norg.apache.pulsar.metadata.bookkeeper.PulsarLedgerManagerFactory:1"),
        Ok(Layout::Hierarchical)
    );
    let told = |text: &str| read(text).unwrap_err().to_string();
    insta::assert_snapshot!(told(&format!("{package}.MSLedgerManagerFactory:1")), @"LAYOUT names MSLedgerManagerFactory, version 1, which keeps its ledgers in a way that is not known");
    insta::assert_snapshot!(told("3\nx:1"), @r#"LAYOUT cannot be understood: "3\nx:1""#);
    insta::assert_snapshot!(told(""), @r#"LAYOUT cannot be understood: """#);
}

proptest! {
    #[test]
    fn a_path_says_its_ledger(id in prop_oneof![0..FIRST_IDS, 0..=i64::MAX as u64]) {
        for layout in [Layout::Flat, Layout::LegacyHierarchical, Layout::LongHierarchical, Layout::Hierarchical] {
            let Some(path) = layout.path(id) else { continue };
            prop_assert_eq!(layout.id(&path), Some(id));
            let above: Vec<_> = path.match_indices('/').map(|(at, _)| &path[..at]).collect();
            prop_assert!(above.iter().all(|folder| layout.is_above(folder)), "{}", path);
            prop_assert!(!layout.is_above(&path));
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), version in 1..4_u8, damage in any::<(u8, u8)>()) {
        let mut node = PREFIX.to_vec();
        node.extend([b'0' + version, b'\n']);
        node.extend(bytes);
        let _ = LedgerMetadata::decode(&node);
        let mut node = unhex(CLOSED);
        let at = usize::from(damage.0) % node.len();
        node[at] = damage.1;
        let _ = LedgerMetadata::decode(&node);
    }
}

/// Around the ids where a layout changes its form.
const FIRST_IDS: u64 = 4_000_000_000;

//! Metadata of every format, written here by other code than that under test: what `replace` makes of it has to be what is
//! written here with the other names.

use fastrand::Rng;
use proptest::prelude::*;

use super::*;

/// Written by BookKeeper itself.
const GOLDEN: &str = include_str!("../../../cluster/ledger/golden.txt");

/// A ledger's metadata before it is bytes.
#[derive(Debug, Clone)]
struct Model {
    quorum: u32,
    ensemble: u32,
    state: u32,
    segments: Vec<(u64, Vec<String>)>,
    password: Option<Vec<u8>>,
    custom: Vec<(String, Vec<u8>)>,
    /// Fields of a later BookKeeper, in the message and in each segment.
    unknown: Vec<Vec<u8>>,
    /// The segments stand after, or before, the rest.
    is_early: bool,
}

const LETTERS: [char; 10] = ['a', '9', '.', ':', '-', '"', '\'', '\\', 'ä', ' '];

fn name(rng: &mut Rng) -> String {
    // About the length at which a varint needs another byte.
    let length = *[3, 20, 60, 120, 140, 270].get(rng.usize(..6)).unwrap();
    let mut name = format!("b{}", rng.u32(..));
    while name.len() < length {
        name.push(LETTERS[rng.usize(..LETTERS.len())]);
    }
    name
}

fn model(rng: &mut Rng) -> Model {
    let ensemble = rng.u32(1..=5);
    let some: Vec<_> = (0..7).map(|_| name(rng)).collect();
    let mut first = 0;
    let segments = (0..rng.usize(1..=5)).map(|_| {
        let mut members = some.clone();
        // Several segments often have the same members.
        if rng.bool() {
            rng.shuffle(&mut members);
        }
        members.truncate(ensemble as usize);
        let segment = (first, members);
        let bits = rng.u32(1..40);
        first += rng.u64(1..1 << bits);
        segment
    });
    let segments = segments.collect();
    let bytes = |rng: &mut Rng| (0..rng.usize(..20)).map(|_| rng.u8(..)).collect::<Vec<_>>();
    Model {
        quorum: rng.u32(1..=ensemble),
        ensemble,
        state: rng.u32(1..=3),
        segments,
        password: rng.bool().then(|| bytes(rng)),
        custom: (0..rng.usize(..3))
            .map(|at| (format!("k{at}\"ä"), bytes(rng)))
            .collect(),
        unknown: (0..rng.usize(..4)).map(|_| unknown(rng)).collect(),
        is_early: rng.bool(),
    }
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while 0x7f < value {
        bytes.push(0x80 | (value & 0x7f) as u8);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

fn string(field: u64, value: &[u8]) -> Vec<u8> {
    [&varint(field << 3 | 2), &varint(value.len() as u64), value].concat()
}

fn unknown(rng: &mut Rng) -> Vec<u8> {
    let field = rng.u64(20..3000);
    match rng.u32(..4) {
        0 => number(field, rng.u64(..)),
        1 => [varint(field << 3 | 1), rng.u64(..).to_le_bytes().to_vec()].concat(),
        2 => string(field, &name(rng).into_bytes()),
        _ => [varint(field << 3 | 5), rng.u32(..).to_le_bytes().to_vec()].concat(),
    }
}

impl Model {
    fn last(&self) -> i64 {
        match self.state {
            // Sometimes no entry of the last segment was ever added.
            3 => self.segments.last().unwrap().0 as i64 - 1 + i64::from(self.quorum - 1),
            _ => -1,
        }
    }

    fn written(&self, format: u32) -> Vec<u8> {
        let mut bytes = format!("BookieMetadataFormatVersion\t{format}\n").into_bytes();
        bytes.extend(match format {
            1 => self.first().into_bytes(),
            2 => self.second().into_bytes(),
            _ => {
                let message = self.third();
                [varint(message.len() as u64), message].concat()
            }
        });
        bytes
    }

    fn first(&self) -> String {
        let mut text = format!("{}\n{}\n0", self.quorum, self.ensemble);
        for (first, members) in &self.segments {
            text += &format!("\n{first}\t{}", members.join("\t"));
        }
        match self.state {
            2 => text += "\n-102\tCLOSED",
            3 => text += &format!("\n{}\tCLOSED", self.last()),
            _ => {}
        }
        text
    }

    fn second(&self) -> String {
        let escaped = |bytes: &[u8]| -> String {
            let one = |byte: &u8| match byte {
                b'\\' | b'"' | b'\'' => format!("\\{}", *byte as char),
                0x20..=0x7e => (*byte as char).to_string(),
                byte => format!("\\{byte:03o}"),
            };
            bytes.iter().map(one).collect()
        };
        let mut segments = String::new();
        for (first, members) in &self.segments {
            segments += "segment {\n";
            for member in members {
                segments += &format!("  ensembleMember: \"{}\"\n", escaped(member.as_bytes()));
            }
            segments += &format!("  firstEntryId: {first}\n}}\n");
        }
        let state = ["OPEN", "IN_RECOVERY", "CLOSED"][self.state as usize - 1];
        let mut rest = format!(
            "quorumSize: {}\nensembleSize: {}\n",
            self.quorum, self.ensemble
        );
        rest += &format!("length: 0\nlastEntryId: {}\nstate: {state}\n", self.last());
        if let Some(password) = &self.password {
            rest += &format!("digestType: CRC32\npassword: \"{}\"\n", escaped(password));
        }
        for (key, value) in &self.custom {
            let (key, value) = (escaped(key.as_bytes()), escaped(value));
            rest += &format!("customMetadata {{\n  key: \"{key}\"\n  value: \"{value}\"\n}}\n");
        }
        match self.is_early {
            true => segments + &rest,
            false => rest + &segments,
        }
    }

    fn third(&self) -> Vec<u8> {
        let mut segments = Vec::new();
        for (at, (first, members)) in self.segments.iter().enumerate() {
            let unknown: Vec<_> = self.unknown.iter().take(at).flatten().copied().collect();
            let names: Vec<_> = members
                .iter()
                .flat_map(|one| string(1, one.as_bytes()))
                .collect();
            let parts = match self.is_early {
                true => [number(2, *first), unknown, names],
                false => [names, unknown, number(2, *first)],
            };
            segments.extend(string(6, &parts.concat()));
        }
        let mut rest = Vec::new();
        for (field, value) in [
            (1, self.quorum),
            (2, self.ensemble),
            (3, 0),
            (5, self.state),
        ] {
            rest.extend(number(field, u64::from(value)));
        }
        rest.extend(number(4, self.last() as u64));
        if let Some(password) = &self.password {
            rest.extend(number(7, 3));
            rest.extend(string(8, password));
        }
        for (key, value) in &self.custom {
            rest.extend(string(
                11,
                &[string(1, key.as_bytes()), string(2, value)].concat(),
            ));
        }
        rest.extend(number(12, u64::MAX));
        let unknown = self.unknown.concat();
        match self.is_early {
            true => [segments, unknown, rest].concat(),
            false => [rest, unknown, segments].concat(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn only_the_named_bookies_are_others(seed in any::<u64>(), format in 1..=3_u32) {
        let mut rng = Rng::with_seed(seed);
        let model = model(&mut rng);
        let bytes = model.written(format);
        let before = LedgerMetadata::decode(&bytes).unwrap();
        for (nth, (first, members)) in model.segments.iter().enumerate() {
            let mut changed = model.clone();
            let mut expected = before.clone();
            let mut changes = Vec::new();
            for (index, old) in members.iter().enumerate() {
                if rng.bool() {
                    let new = name(&mut rng);
                    changed.segments[nth].1[index].clone_from(&new);
                    expected.segments[nth].members[index].clone_from(&new);
                    changes.push((index, old.clone(), new));
                }
            }
            rng.shuffle(&mut changes);
            let changes: Vec<_> = changes
                .iter()
                .map(|(index, old, new)| (*index, old.as_str(), new.as_str()))
                .collect();
            let patched = replace(&bytes, *first, &changes).unwrap();
            prop_assert_eq!(LedgerMetadata::decode(&patched).unwrap(), expected);
            prop_assert!(patched == changed.written(format), "{:?} {:?}", model, changes);
            // And back.
            let back: Vec<_> = changes.iter().map(|(index, old, new)| (*index, *new, *old)).collect();
            prop_assert!(replace(&patched, *first, &back).unwrap() == bytes);
        }
    }

    #[test]
    fn damaged_bytes_are_an_error_or_changed_as_meant(seed in any::<u64>(), format in 1..=3_u32) {
        let mut rng = Rng::with_seed(seed);
        let model = model(&mut rng);
        let mut bytes = model.written(format);
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..bytes.len());
            bytes[at] = rng.u8(..);
        }
        let (first, members) = &model.segments[rng.usize(..model.segments.len())];
        if let Ok(patched) = replace(&bytes, *first, &[(0, &members[0], "other:1")]) {
            let mut expected = LedgerMetadata::decode(&bytes).unwrap();
            let segment = expected.segments.iter_mut().find(|one| one.first_entry == *first);
            segment.unwrap().members[0] = "other:1".to_owned();
            prop_assert_eq!(LedgerMetadata::decode(&patched).unwrap(), expected);
        }
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let pairs = text
        .as_bytes()
        .chunks(2)
        .map(|pair| std::str::from_utf8(pair).unwrap());
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}

#[test]
fn what_bookkeeper_wrote_differs_in_the_name_only() {
    for line in GOLDEN.lines() {
        let (told, hex) = line.trim().split_once(' ').unwrap();
        let bytes = unhex(hex);
        let read = LedgerMetadata::decode(&bytes).unwrap();
        for segment in &read.segments {
            for (index, old) in segment.members.iter().enumerate() {
                // As long as the old one: all other bytes stay where they are.
                let new = "n".repeat(old.len());
                let patched = replace(&bytes, segment.first_entry, &[(index, old, &new)]).unwrap();
                let differs = (0..bytes.len()).filter(|at| bytes[*at] != patched[*at]);
                assert!(differs.count() <= new.len(), "{told}");
                assert_eq!(patched.len(), bytes.len(), "{told}");
                let longer = format!("{old}.a-longer-name:3181");
                let change = [(index, old.as_str(), longer.as_str())];
                let patched = replace(&bytes, segment.first_entry, &change).unwrap();
                let back = [(index, longer.as_str(), old.as_str())];
                assert_eq!(
                    replace(&patched, segment.first_entry, &back).unwrap(),
                    bytes,
                    "{told}"
                );
            }
        }
    }
}

#[test]
fn what_is_refused() {
    let bytes = b"BookieMetadataFormatVersion\t1\n2\n3\n0\n0\ta\tb\tc\n7\ta\tb\tc\n";
    let told = |first, changes: &[(usize, &str, &str)]| match replace(bytes, first, changes) {
        Ok(patched) => String::from_utf8(patched[30..].to_vec())
            .unwrap()
            .escape_debug()
            .to_string(),
        Err(error) => crate::report::text(&error),
    };
    insta::assert_snapshot!(told(7, &[(1, "b", "d")]), @r"2\n3\n0\n0\ta\tb\tc\n7\ta\td\tc\n");
    insta::assert_snapshot!(told(0, &[(2, "c", "d"), (0, "a", "longer")]), @r"2\n3\n0\n0\tlonger\tb\td\n7\ta\tb\tc\n");
    // Two that change places are four that are one each.
    insta::assert_snapshot!(told(0, &[(0, "a", "b"), (1, "b", "a")]), @r"2\n3\n0\n0\tb\ta\tc\n7\ta\tb\tc\n");
    insta::assert_snapshot!(told(3, &[(1, "b", "d")]), @"no segment begins at entry 3");
    insta::assert_snapshot!(told(7, &[(0, "b", "d")]), @"place 0 of the segment from entry 7 is not b's");
    insta::assert_snapshot!(told(7, &[(3, "b", "d")]), @"place 3 of the segment from entry 7 is not b's");
    insta::assert_snapshot!(told(7, &[(1, "b", "d"), (1, "b", "e")]), @"place 1 of the segment from entry 7 is not b's");
    insta::assert_snapshot!(told(7, &[(1, "b", "c")]), @"c would be in the segment from entry 7 twice");
    insta::assert_snapshot!(told(7, &[(1, "b", "d"), (0, "a", "d")]), @"d would be in the segment from entry 7 twice");
    insta::assert_snapshot!(told(7, &[(1, "b", "d\te")]), @r#""d\te" is no bookie's id: it has the character U+0009"#);
    insta::assert_snapshot!(told(7, &[(1, "b", "")]), @r#""" is no bookie's id: it is empty"#);
    let garbage = replace(b"garbage", 0, &[(0, "a", "b")]).unwrap_err();
    insta::assert_snapshot!(crate::report::text(&garbage), @"the metadata is not understood: it does not begin as the metadata of a ledger does");
}

#[test]
fn text_in_another_shape_than_java_writes() {
    let text = "BookieMetadataFormatVersion\t2\nquorumSize:1 ensembleSize:1 length:0 state:OPEN \
                customMetadata{key:\"segment {\" value:\"ensembleMember:\\\"\"} \
                segment{firstEntryId:0 ensembleMember:\"a\\142\"}segment {ensembleMember : \"b\"\n\tfirstEntryId:5}";
    let patched = replace(text.as_bytes(), 0, &[(0, "ab", "c")]).unwrap();
    let expected = text.replace("\"a\\142\"", "\"c\"");
    assert_eq!(String::from_utf8(patched).unwrap(), expected);
    let patched = replace(text.as_bytes(), 5, &[(0, "b", "ä")]).unwrap();
    let expected = text.replace(": \"b\"", ": \"\\303\\244\"");
    assert_eq!(String::from_utf8(patched).unwrap(), expected);
}

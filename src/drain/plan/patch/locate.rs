//! Where the names of a segment's bookies stand, in each of the three formats, and what has to be written there. The bytes
//! have been decoded before: what is not found here is an oddity, and an error.

use std::ops::Range;

use super::Edit;

/// `segment` in `LedgerMetadataFormat`.
const SEGMENT: usize = 6;
/// `ensembleMember` in a segment.
const MEMBER: usize = 1;
/// The wire type of strings and messages.
const DELIMITED: usize = 2;

/// What to change so that the places of that segment, counted as the segments are written, get these names.
pub(super) fn edits(
    bytes: &[u8],
    format: u32,
    segment: usize,
    new: &[(usize, &str)],
) -> Result<Vec<Edit>, String> {
    let line = bytes.iter().position(|byte| *byte == b'\n');
    let body = line.ok_or_else(|| "there is no first line".to_owned())? + 1;
    match format {
        1 => {
            let members = first(bytes, body, segment);
            named(&members, new, |name| name.as_bytes().to_vec())
        }
        2 => {
            let members = second(bytes, body, segment)?;
            named(&members, new, quoted)
        }
        _ => third(bytes, body, segment, new),
    }
}

/// An edit for each of the names, where places are whole strings.
fn named(
    members: &[Range<usize>],
    new: &[(usize, &str)],
    written: impl Fn(&str) -> Vec<u8>,
) -> Result<Vec<Edit>, String> {
    let edit = |(index, name): &(usize, &str)| {
        let at = members.get(*index).cloned();
        Some(Edit {
            at: at?,
            new: written(name),
        })
    };
    let edits: Option<Vec<_>> = new.iter().map(edit).collect();
    edits.ok_or_else(|| format!("there are {} names", members.len()))
}

/// Format 1: three lines of numbers, then one for each segment.
fn first(bytes: &[u8], body: usize, segment: usize) -> Vec<Range<usize>> {
    const NUMBERS: usize = 3;
    let mut at = body;
    for (nth, line) in bytes[body..].split(|byte| *byte == b'\n').enumerate() {
        if nth == NUMBERS + segment {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let mut members = Vec::new();
            for word in line.split(|byte| *byte == b'\t') {
                members.push(at..at + word.len());
                at += word.len() + 1;
            }
            // The first word is the entry.
            return members.split_off(1);
        }
        at += line.len() + 1;
    }
    Vec::new()
}

/// Format 2: the strings, with their quotes, of the message.
fn second(bytes: &[u8], body: usize, segment: usize) -> Result<Vec<Range<usize>>, String> {
    let (mut at, mut depth, mut seen) = (body, 0_usize, 0);
    let (mut word, mut members) = (&bytes[body..body], Vec::new());
    while at < bytes.len() {
        let start = at;
        at += 1;
        match bytes[start] {
            b'{' => {
                depth += 1;
                if word == b"segment" {
                    seen += 1;
                }
            }
            b'}' => depth = depth.saturating_sub(1),
            b'"' => {
                at = end_of_string(bytes, at)?;
                let is_here = depth == 1 && seen == segment + 1;
                if is_here && word == b"ensembleMember" {
                    members.push(start..at);
                }
            }
            byte if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' => {
                let rest = &bytes[start..];
                let is_part =
                    |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
                let length = rest.iter().position(|byte| !is_part(byte));
                at = start + length.unwrap_or(rest.len());
                word = &bytes[start..at];
            }
            _ => {}
        }
    }
    Ok(members)
}

fn end_of_string(bytes: &[u8], mut at: usize) -> Result<usize, String> {
    loop {
        match bytes.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
            None => return Err("a string does not end".to_owned()),
        }
    }
}

/// A string as Java's `TextFormat` writes it.
fn quoted(name: &str) -> Vec<u8> {
    let mut text = vec![b'"'];
    for byte in name.bytes() {
        match byte {
            b'"' | b'\'' | b'\\' => text.extend([b'\\', byte]),
            b' '..=b'~' => text.push(byte),
            _ => text.extend(format!("\\{byte:03o}").bytes()),
        }
    }
    text.push(b'"');
    text
}

/// Format 3: lengths stand before the message, the segment and each name.
fn third(
    bytes: &[u8],
    body: usize,
    segment: usize,
    new: &[(usize, &str)],
) -> Result<Vec<Edit>, String> {
    let message = delimited(bytes, body)?;
    let of = |fields: Vec<Field>, number| {
        fields
            .into_iter()
            .filter(move |field| field.number == number && field.kind == DELIMITED)
    };
    let segment = of(fields(bytes, message.value.clone())?, SEGMENT).nth(segment);
    let segment = segment.ok_or_else(|| "there is no such segment".to_owned())?;
    let members: Vec<_> = of(fields(bytes, segment.value.clone())?, MEMBER).collect();
    let mut edits = Vec::new();
    let (mut before, mut after) = (0, 0);
    for (index, name) in new {
        let member = members.get(*index);
        let member = member.ok_or_else(|| format!("there are {} names", members.len()))?;
        let mut written = length(name.len());
        written.extend(name.bytes());
        let at = member.length.start..member.value.end;
        before += at.len();
        after += written.len();
        edits.push(Edit { at, new: written });
    }
    let resized = |part: &Field, before: usize, after: usize| {
        let size = part.value.len() - before + after;
        // A length that stays is left as it is written.
        let new = match size == part.value.len() {
            true => bytes[part.length.clone()].to_vec(),
            false => length(size),
        };
        Edit {
            at: part.length.clone(),
            new,
        }
    };
    let inner = resized(&segment, before, after);
    let outer = resized(&message, before + inner.at.len(), after + inner.new.len());
    edits.splice(0..0, [outer, inner]);
    Ok(edits)
}

fn length(value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    prost::encode_length_delimiter(value, &mut bytes).expect("a vector takes any length");
    bytes
}

/// A field of a message, and where in the bytes its parts are.
struct Field {
    number: usize,
    kind: usize,
    /// Of a string or message; empty for others.
    length: Range<usize>,
    value: Range<usize>,
}

fn fields(bytes: &[u8], within: Range<usize>) -> Result<Vec<Field>, String> {
    let mut at = within.start;
    let mut all = Vec::new();
    while at < within.end {
        let (key, after) = varint(bytes, at)?;
        let (number, kind) = (key >> 3, key & 7);
        let skipped = |end| Field {
            number,
            kind,
            length: after..after,
            value: after..end,
        };
        let field = match kind {
            0 => skipped(varint(bytes, after)?.1),
            1 => skipped(after + 8),
            DELIMITED => Field {
                number,
                kind,
                ..delimited(bytes, after)?
            },
            5 => skipped(after + 4),
            other => return Err(format!("a field has the wire type {other}")),
        };
        at = field.value.end;
        all.push(field);
    }
    Ok(all)
}

/// A length and as many bytes after it.
fn delimited(bytes: &[u8], at: usize) -> Result<Field, String> {
    let (size, start) = varint(bytes, at)?;
    let end = start.checked_add(size).filter(|end| *end <= bytes.len());
    Ok(Field {
        number: 0,
        kind: DELIMITED,
        length: at..start,
        value: start..end.ok_or_else(|| "it is cut off".to_owned())?,
    })
}

/// A number, and where it ends.
fn varint(bytes: &[u8], at: usize) -> Result<(usize, usize), String> {
    let mut rest = bytes.get(at..).unwrap_or_default();
    let value = prost::decode_length_delimiter(&mut rest).map_err(|error| error.to_string())?;
    Ok((value, bytes.len() - rest.len()))
}

//! Formats 1 and 2, which are text: lines of numbers and bookies, and protobuf's text form.

use super::{Raw, RawCustom, RawSegment};

/// The last entry that format 1 has for a ledger in recovery (`LedgerMetadataSerDe`).
const IN_RECOVERY: i64 = -102;

/// Messages in a message: a ledger's has one level.
const DEPTH: usize = 1;

/// Format 1: write quorum, ensemble size, length, a line for each segment, and unless it is open the last
/// entry with `CLOSED`.
pub(super) fn first(body: &[u8]) -> Result<Raw, String> {
    let text = std::str::from_utf8(body).map_err(|_| "it is no text".to_owned())?;
    let mut lines = text.lines();
    let mut number = |what: &str| {
        let line = lines
            .next()
            .ok_or_else(|| format!("the {what} is missing"))?;
        line.parse::<i64>()
            .map_err(|_| format!("the {what} is {line:?}"))
    };
    let quorum = narrow(number("write quorum")?)?;
    let ensemble = narrow(number("ensemble size")?)?;
    let mut raw = Raw {
        quorum_size: Some(quorum),
        ensemble_size: Some(ensemble),
        length: Some(number("length")?),
        state: Some(1),
        ..Raw::default()
    };
    for line in lines {
        if raw.last_entry_id.is_some() {
            return Err(format!("{line:?} follows the end"));
        }
        let mut words = line.split('\t');
        let entry = words.next().unwrap_or_default();
        let entry = entry
            .parse::<i64>()
            .map_err(|_| format!("{entry:?} is no entry's number"))?;
        let words: Vec<_> = words.map(str::to_owned).collect();
        if words == ["CLOSED"] {
            raw.state = Some(if entry == IN_RECOVERY { 2 } else { 3 });
            raw.last_entry_id = Some(entry);
        } else {
            raw.segment.push(RawSegment {
                ensemble_member: words,
                first_entry_id: Some(entry),
            });
        }
    }
    Ok(raw)
}

/// Format 2: the same message as format 3, in protobuf's text form.
pub(super) fn second(body: &[u8]) -> Result<Raw, String> {
    let mut reader = Reader { rest: body };
    let fields = reader.message(DEPTH)?;
    let mut raw = Raw::default();
    for (name, value) in fields {
        let known = match (name.as_str(), value) {
            ("quorumSize", Value::Word(word)) => once(&mut raw.quorum_size, number(&word)?),
            ("ensembleSize", Value::Word(word)) => once(&mut raw.ensemble_size, number(&word)?),
            ("length", Value::Word(word)) => once(&mut raw.length, number(&word)?),
            ("lastEntryId", Value::Word(word)) => once(&mut raw.last_entry_id, number(&word)?),
            ("state", Value::Word(word)) => once(
                &mut raw.state,
                named(&word, &["OPEN", "IN_RECOVERY", "CLOSED"])?,
            ),
            ("digestType", Value::Word(word)) => once(
                &mut raw.digest_type,
                named(&word, &["CRC32", "HMAC", "CRC32C", "DUMMY"])?,
            ),
            ("password", Value::Bytes(bytes)) => once(&mut raw.password, bytes),
            ("ackQuorumSize", Value::Word(word)) => once(&mut raw.ack_quorum_size, number(&word)?),
            ("ctime", Value::Word(word)) => once(&mut raw.ctime, number(&word)?),
            ("segment", Value::Message(fields)) => {
                raw.segment.push(segment(fields)?);
                true
            }
            ("customMetadata", Value::Message(fields)) => {
                raw.custom_metadata.push(custom(fields)?);
                true
            }
            _ => false,
        };
        if !known {
            return Err(format!(
                "field {name} is unknown, twice there, or of another kind"
            ));
        }
    }
    Ok(raw)
}

fn segment(fields: Vec<(String, Value)>) -> Result<RawSegment, String> {
    let mut segment = RawSegment::default();
    for (name, value) in fields {
        match (name.as_str(), value) {
            ("ensembleMember", Value::Bytes(bytes)) => segment.ensemble_member.push(string(bytes)?),
            ("firstEntryId", Value::Word(word)) => segment.first_entry_id = Some(number(&word)?),
            _ => return Err(format!("field {name} of a segment is unknown")),
        }
    }
    Ok(segment)
}

fn custom(fields: Vec<(String, Value)>) -> Result<RawCustom, String> {
    let mut custom = RawCustom::default();
    for (name, value) in fields {
        match (name.as_str(), value) {
            ("key", Value::Bytes(bytes)) => custom.key = Some(string(bytes)?),
            ("value", Value::Bytes(bytes)) => custom.value = Some(bytes),
            _ => return Err(format!("field {name} of the custom metadata is unknown")),
        }
    }
    Ok(custom)
}

/// Says whether it was empty.
fn once<T>(field: &mut Option<T>, value: T) -> bool {
    field.replace(value).is_none()
}

fn narrow(value: i64) -> Result<i32, String> {
    i32::try_from(value).map_err(|_| format!("{value} is too large"))
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{word:?} is no number"))
}

fn named(word: &str, names: &[&str]) -> Result<i32, String> {
    let at = names.iter().position(|name| *name == word);
    at.and_then(|at| i32::try_from(at + 1).ok())
        .ok_or_else(|| format!("{word:?} is none of {names:?}"))
}

fn string(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|_| "a name is no text".to_owned())
}

enum Value {
    Word(String),
    Bytes(Vec<u8>),
    Message(Vec<(String, Value)>),
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    /// Fields up to the end, or to the brace that closes the message.
    fn message(&mut self, depth: usize) -> Result<Vec<(String, Value)>, String> {
        let mut fields = Vec::new();
        while let Some(byte) = self.peek() {
            if byte == b'}' {
                break;
            }
            let name = self.word()?;
            let value = match self.peek() {
                Some(b'{') if 0 < depth => {
                    self.next();
                    let inner = self.message(depth - 1)?;
                    if self.peek() != Some(b'}') {
                        return Err(format!("message {name} does not end"));
                    }
                    self.next();
                    Value::Message(inner)
                }
                Some(b':') => {
                    self.next();
                    match self.peek() {
                        Some(b'"') => Value::Bytes(self.quoted()?),
                        _ => Value::Word(self.word()?),
                    }
                }
                _ => return Err(format!("field {name} has no value")),
            };
            fields.push((name, value));
        }
        if depth == DEPTH && self.peek().is_some() {
            return Err("there is a brace too many".to_owned());
        }
        Ok(fields)
    }

    /// The next byte that is no blank.
    fn peek(&mut self) -> Option<u8> {
        self.rest = self.rest.trim_ascii_start();
        self.rest.first().copied()
    }

    fn next(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }

    fn word(&mut self) -> Result<String, String> {
        let _ = self.peek();
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let end = self.rest.iter().position(|byte| !is_part(byte));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        if word.is_empty() {
            return Err("there is no word where one should be".to_owned());
        }
        self.rest = rest;
        Ok(String::from_utf8_lossy(word).into_owned())
    }

    /// A string with the escapes of Java's `TextFormat`: octal for what is no printable ASCII.
    fn quoted(&mut self) -> Result<Vec<u8>, String> {
        let unended = || "a string does not end".to_owned();
        self.next();
        let mut bytes = Vec::new();
        loop {
            match self.next().ok_or_else(unended)? {
                b'"' => return Ok(bytes),
                b'\\' => {
                    let escaped = match self.next().ok_or_else(unended)? {
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'a' => 7,
                        b'b' => 8,
                        b'v' => 11,
                        b'f' => 12,
                        byte @ (b'"' | b'\'' | b'\\') => byte,
                        byte @ b'0'..=b'7' => self.octal(byte)?,
                        byte => return Err(format!("\\{} is no escape", byte.escape_ascii())),
                    };
                    bytes.push(escaped);
                }
                byte => bytes.push(byte),
            }
        }
    }

    /// Up to three digits, of which the first was read.
    fn octal(&mut self, first: u8) -> Result<u8, String> {
        let mut value = u32::from(first - b'0');
        for _ in 0..2 {
            let Some(digit @ b'0'..=b'7') = self.rest.first().copied() else {
                break;
            };
            self.next();
            value = value * 8 + u32::from(digit - b'0');
        }
        u8::try_from(value).map_err(|_| format!("\\{value:o} is no byte"))
    }
}

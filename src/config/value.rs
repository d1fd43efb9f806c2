//! The types that a key of the configuration can have: read from TOML, checked, and written back.
//! A value that exists here is a valid one; nothing is clamped.

use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use toml::de::DeValue;

use super::problem::Wrong;
use super::reclaim;
use super::url::{url, urls};
use super::version::BookieVersion;
use super::zookeeper;
use crate::health::dir::{path_text, steers};
use crate::health::event::EventKind;

/// Type of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    /// Milliseconds from and to; `zero` turns the thing off and is allowed too.
    Duration {
        min: u64,
        max: u64,
        zero: bool,
    },
    Size {
        min: u64,
    },
    Ratio,
    Count {
        min: u32,
        max: u32,
    },
    /// Absolute.
    Path,
    Address,
    Url,
    /// A URL that is used as it is, down to its last slash.
    Endpoint,
    /// A list of URLs, without their last slash.
    Urls,
    /// A metadata service that is a ZooKeeper.
    Metadata,
    /// `digest:user:password`; never shown.
    Auth,
    /// Path of a node in ZooKeeper.
    Node,
    Version,
    /// Name of a node in ZooKeeper.
    BookieId,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `"bookie"`, true or false.
    AnyFull,
    Name,
    Events,
    Command,
    /// A list of some of these words.
    Words(&'static [&'static str]),
    /// A list of places of Pulsar's metadata.
    Pulsar,
}

/// A checked value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Bool(bool),
    Duration(Duration),
    Size(u64),
    Ratio(f64),
    Count(u32),
    Path(PathBuf),
    Address(SocketAddr),
    Text(String),
    Secret(Secret),
    Version(BookieVersion),
    /// None: as the bookie itself runs.
    AnyFull(Option<bool>),
    Events(Vec<EventKind>),
    Urls(Vec<String>),
    Command(Vec<String>),
    Words(Vec<String>),
}

/// A text that is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// Longest path the kernel takes (PATH_MAX with its final zero).
const PATH_LIMIT: usize = 4095;

/// Longest name of a hook: it becomes a label of metrics and a word in log lines.
const NAME_LIMIT: usize = 64;

impl Kind {
    /// The value, or why it is none of this kind.
    pub(super) fn parse(self, raw: &DeValue<'_>) -> Result<Value, Wrong> {
        match self {
            Kind::Bool => match raw.as_bool() {
                Some(flag) => Ok(Value::Bool(flag)),
                None => Err(not_a("a switch", raw, "write true or false")),
            },
            Kind::Duration { min, max, zero } => match raw.as_str() {
                Some(text) => duration(text, min, max, zero).map(Value::Duration),
                None => Err(unit_missing("a duration", raw, "s", "10s")),
            },
            Kind::Size { min } => match raw.as_str() {
                Some(text) => at_least(size(text)?, min).map(Value::Size),
                None => Err(unit_missing("a size", raw, "B", "512MiB")),
            },
            Kind::Ratio => match number(raw) {
                Some(number) => ratio(number).map(Value::Ratio),
                None => Err(not_a("a number", raw, "write a number, like 0.95")),
            },
            Kind::Count { min, max } => count(raw, min, max),
            Kind::AnyFull => any_full(raw),
            Kind::Events => events(raw),
            Kind::Urls => urls(raw),
            Kind::Command => command(raw),
            Kind::Words(words) => reclaim::words(raw, words),
            Kind::Pulsar => reclaim::pulsars(raw),
            Kind::Path
            | Kind::Address
            | Kind::Url
            | Kind::Endpoint
            | Kind::Metadata
            | Kind::Auth
            | Kind::Node
            | Kind::Version
            | Kind::BookieId
            | Kind::Choice(_)
            | Kind::Name => match raw.as_str() {
                Some(text) => self.parse_text(text),
                None => Err(not_a("a string", raw, "write it in double quotes")),
            },
        }
    }

    fn parse_text(self, text: &str) -> Result<Value, Wrong> {
        match self {
            Kind::Path => absolute(Path::new(text)).map(Value::Path),
            Kind::Address => address(text).map(Value::Address),
            Kind::Url => url(text).map(|()| Value::Text(text.trim_end_matches('/').to_owned())),
            Kind::Endpoint => url(text).map(|()| Value::Text(text.to_owned())),
            Kind::Metadata => zookeeper::uri(text).map(Value::Text),
            Kind::Auth => zookeeper::auth(text).map(Value::Secret),
            Kind::Node => zookeeper::node(text).map(Value::Text),
            Kind::Version => BookieVersion::parse(text)
                .map(Value::Version)
                .ok_or_else(|| Wrong::new("is not a version", "write it like \"4.17.3\"")),
            Kind::BookieId => zookeeper::bookie_id(text).map(Value::Text),
            Kind::Choice(words) if !words.contains(&text) => Err(Wrong::new(
                "is not one of the words that are known here",
                format!("write {}", one_of(words)),
            )),
            Kind::Name => name(text).map(Value::Text),
            _ => Ok(Value::Text(text.to_owned())),
        }
    }

    /// What the documentation says about values of this kind.
    pub(super) fn describe(self) -> String {
        match self {
            Kind::Bool => "true or false".to_owned(),
            Kind::Duration { min, max, zero } => {
                let off = if zero { ", or \"0s\" for off" } else { "" };
                let [min, max] = [min, max].map(|ms| duration_text(Duration::from_millis(ms)));
                format!("duration, {min} to {max}{off}")
            }
            Kind::Size { min: 0 } => "size".to_owned(),
            Kind::Size { min } => format!("size, {} or more", size_text(min)),
            Kind::Ratio => "ratio, over 0 and up to 1".to_owned(),
            Kind::Count { min, max } => format!("number, {min} to {max}"),
            Kind::Path => "absolute path".to_owned(),
            Kind::Address => "IP address and port".to_owned(),
            Kind::Url | Kind::Endpoint => "URL".to_owned(),
            Kind::Urls => "list of URLs".to_owned(),
            Kind::Metadata => "URI of a ZooKeeper".to_owned(),
            Kind::Auth => "scheme, user and password".to_owned(),
            Kind::Node => "absolute path in ZooKeeper".to_owned(),
            Kind::Version => "version".to_owned(),
            Kind::BookieId => "id of a bookie".to_owned(),
            Kind::Choice(words) => one_of(words),
            Kind::AnyFull => "\"bookie\", true or false".to_owned(),
            Kind::Name => "name".to_owned(),
            Kind::Events => "list of event names".to_owned(),
            Kind::Command => "program and arguments".to_owned(),
            Kind::Words(words) => format!("list of {}", one_of(words)),
            Kind::Pulsar => "list of URI=ROOT".to_owned(),
        }
    }
}

impl Value {
    /// As it is written in a configuration file.
    pub(super) fn to_toml(&self) -> String {
        match self {
            Value::Bool(flag) => flag.to_string(),
            Value::Duration(duration) => quote(&duration_text(*duration)),
            Value::Size(bytes) => quote(&size_text(*bytes)),
            Value::Ratio(ratio) => format!("{ratio:?}"),
            Value::Count(count) => count.to_string(),
            Value::Path(path) => quote(&path_text(path)),
            Value::Address(address) => quote(&address.to_string()),
            Value::Text(text) => quote(text),
            Value::Secret(_) => "(not shown)".to_owned(),
            Value::Version(version) => quote(&version.to_string()),
            Value::AnyFull(None) => quote("bookie"),
            Value::AnyFull(Some(flag)) => flag.to_string(),
            Value::Events(kinds) => list(kinds.iter().map(|kind| kind.name())),
            Value::Urls(urls) => list(urls.iter().map(String::as_str)),
            Value::Command(words) | Value::Words(words) => list(words.iter().map(String::as_str)),
        }
    }
}

/// A path that can be watched: absolute, without `.`, `..`, doubled or trailing slashes.
///
/// `..` is refused rather than resolved: behind a symbolic link it leads elsewhere than it reads.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, Wrong> {
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.is_empty() {
        return Err(Wrong::new("is empty", "write an absolute path"));
    }
    if bytes.contains(&0) {
        return Err(Wrong::new("has a zero byte", "no path can have one"));
    }
    if PATH_LIMIT < bytes.len() {
        return Err(Wrong::new(
            "is too long for a path",
            format!("the system takes {PATH_LIMIT} bytes"),
        ));
    }
    if !path.is_absolute() {
        return Err(Wrong::new(
            "is a relative path",
            "write the whole path, beginning with /",
        ));
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(Wrong::new(
            "has a .. component, which leads elsewhere behind a symbolic link",
            "write the path that is meant",
        ));
    }
    Ok(path.components().collect())
}

/// A ratio in which a threshold can be given.
pub(super) fn ratio(number: f64) -> Result<f64, Wrong> {
    if 0.0 < number && number <= 1.0 {
        return Ok(number);
    }
    // Nobody means 1.5 percent.
    let remedy = if 2.0 < number && number <= 100.0 {
        format!("write {} for {number} percent", number / 100.0)
    } else {
        "write a number over 0 and up to 1, like 0.95".to_owned()
    };
    let problem = if number.is_nan() {
        "is not a number"
    } else if number < 0.0 {
        "is negative, a ratio is over 0 and up to 1"
    } else if number == 0.0 {
        "is zero, which every directory is over at once"
    } else {
        "is over 1, a ratio is over 0 and up to 1"
    };
    Err(Wrong::new(problem, remedy))
}

/// The length of time in the largest unit that needs no fraction.
pub(super) fn duration_text(duration: Duration) -> String {
    const UNITS: [(u128, &str); 7] = [
        (86_400_000_000_000, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "m"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
        (1, "ns"),
    ];
    let nanos = duration.as_nanos();
    match UNITS.iter().find(|(unit, _)| nanos.is_multiple_of(*unit)) {
        Some((unit, name)) if nanos > 0 => format!("{}{name}", nanos / unit),
        _ => "0s".to_owned(),
    }
}

const SIZE_UNITS: [(&str, u64); 12] = [
    ("PiB", 1 << 50),
    ("PB", 1_000_000_000_000_000),
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("KB", 1_000),
    ("B", 1),
];

/// The number of bytes in the largest unit that needs no fraction.
pub(super) fn size_text(bytes: u64) -> String {
    match SIZE_UNITS
        .iter()
        .find(|(_, unit)| bytes.is_multiple_of(*unit))
    {
        Some((name, unit)) if bytes > 0 => format!("{}{name}", bytes / unit),
        _ => "0B".to_owned(),
    }
}

/// A TOML basic string.
pub(super) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(c);
            }
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            c if steers(c) => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn list<'a>(words: impl Iterator<Item = &'a str>) -> String {
    format!("[{}]", words.map(quote).collect::<Vec<_>>().join(", "))
}

/// `"a", "b" or "c"`.
pub(super) fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

pub(super) fn not_a(wanted: &str, raw: &DeValue<'_>, remedy: &str) -> Wrong {
    Wrong::new(format!("is {} and not {wanted}", type_of(raw)), remedy)
}

/// What a number without a unit should have been.
fn unit_missing(wanted: &str, raw: &DeValue<'_>, unit: &str, example: &str) -> Wrong {
    match raw.as_integer() {
        Some(integer) => Wrong::new(
            format!("{wanted} needs a unit"),
            format!("write \"{integer}{unit}\" if that is meant, in quotes"),
        ),
        None => not_a(wanted, raw, &format!("write it like \"{example}\"")),
    }
}

fn type_of(raw: &DeValue<'_>) -> &'static str {
    match raw {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a section",
    }
}

fn number(raw: &DeValue<'_>) -> Option<f64> {
    match raw {
        DeValue::Float(float) => float.as_str().parse().ok(),
        DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str().parse().ok(),
        _ => None,
    }
}

fn duration(text: &str, min: u64, max: u64, zero: bool) -> Result<Duration, Wrong> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && text != "0" {
        return Err(Wrong::new(
            "a duration needs a unit",
            format!("write \"{text}s\" if seconds are meant"),
        ));
    }
    let duration = humantime::parse_duration(text).map_err(|error| {
        Wrong::new(
            format!("is not a duration: {error}"),
            "write it like \"250ms\", \"10s\" or \"1h 30m\"",
        )
    })?;
    let [min, max] = [min, max].map(Duration::from_millis);
    if (min..=max).contains(&duration) || (zero && duration.is_zero()) {
        return Ok(duration);
    }
    let off = if zero { ", or \"0s\" for off" } else { "" };
    let side = if duration < min { "short" } else { "long" };
    Err(Wrong::new(
        format!("is too {side}"),
        format!(
            "write {} to {}{off}",
            duration_text(min),
            duration_text(max)
        ),
    ))
}

/// A size as the configuration writes it, such as `100MiB`; none if it is none.
#[must_use]
pub fn parse_bytes(text: &str) -> Option<u64> {
    size(text).ok()
}

/// Bytes from a whole number with a unit. `"1GiB"` is 2^30 bytes, `"1GB"` 10^9.
fn size(text: &str) -> Result<u64, Wrong> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = (&text[..digits], text[digits..].trim_start());
    let example = "write it like \"512MiB\", \"2GB\" or \"0B\"";
    if digits == 0 {
        return Err(Wrong::new("is not a size", example));
    }
    if unit.is_empty() {
        return Err(Wrong::new(
            "a size needs a unit",
            format!("write \"{number}B\" if bytes are meant"),
        ));
    }
    if unit.starts_with('.') {
        return Err(Wrong::new(
            "has a fraction",
            "write a whole number of a smaller unit",
        ));
    }
    let Some((_, factor)) = SIZE_UNITS.iter().find(|(name, _)| *name == unit) else {
        let remedy = match unit.chars().next().map(|c| c.to_ascii_uppercase()) {
            Some(c @ ('K' | 'M' | 'G' | 'T' | 'P')) => {
                format!("write \"{number}{c}iB\" or \"{number}{c}B\"")
            }
            _ => example.to_owned(),
        };
        return Err(Wrong::new("has a unit that is not known", remedy));
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(*factor))
        .ok_or_else(|| Wrong::new("is more bytes than can be counted", example))
}

fn at_least(bytes: u64, min: u64) -> Result<u64, Wrong> {
    if bytes < min {
        let remedy = format!("write {} or more", size_text(min));
        return Err(Wrong::new("is too small", remedy));
    }
    Ok(bytes)
}

fn count(raw: &DeValue<'_>, min: u32, max: u32) -> Result<Value, Wrong> {
    let Some(integer) = raw.as_integer() else {
        return Err(not_a(
            "a whole number",
            raw,
            &format!("write {min} to {max}"),
        ));
    };
    u32::from_str_radix(integer.as_str(), integer.radix())
        .ok()
        .filter(|count| (min..=max).contains(count))
        .map(Value::Count)
        .ok_or_else(|| Wrong::new("is out of range", format!("write {min} to {max}")))
}

fn address(text: &str) -> Result<SocketAddr, Wrong> {
    text.parse().map_err(|_| {
        Wrong::new(
            "is not an IP address with a port",
            "names are not looked up: write it like \"127.0.0.1:9475\" or \"[::1]:9475\"",
        )
    })
}

fn name(text: &str) -> Result<String, Wrong> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if text.is_empty() || NAME_LIMIT < text.len() || !text.chars().all(plain) {
        return Err(Wrong::new(
            "is not a name",
            format!("write 1 to {NAME_LIMIT} letters, digits, dots, dashes or underscores"),
        ));
    }
    Ok(text.to_owned())
}

fn any_full(raw: &DeValue<'_>) -> Result<Value, Wrong> {
    match raw {
        DeValue::Boolean(flag) => Ok(Value::AnyFull(Some(*flag))),
        DeValue::String(text) if text == "bookie" => Ok(Value::AnyFull(None)),
        _ => Err(Wrong::new(
            "is not a choice",
            "write \"bookie\", true or false",
        )),
    }
}

pub(super) fn strings(raw: &DeValue<'_>, remedy: &str) -> Result<Vec<String>, Wrong> {
    let Some(items) = raw.as_array() else {
        return Err(not_a("a list", raw, remedy));
    };
    items
        .iter()
        .map(|item| match item.get_ref().as_str() {
            Some(text) if !text.contains('\0') => Ok(text.to_owned()),
            Some(_) => Err(Wrong::new("has a zero byte", remedy)),
            None => Err(Wrong::new("has an item that is not a string", remedy)),
        })
        .collect()
}

fn events(raw: &DeValue<'_>) -> Result<Value, Wrong> {
    let names = strings(raw, "write a list like [\"diskFull\", \"diskFailed\"]")?;
    if names.is_empty() {
        return Err(Wrong::new(
            "names no event",
            "leave the key out to receive all of them",
        ));
    }
    let kinds = names.iter().map(|name| {
        EventKind::parse(name).ok_or_else(|| {
            let known = EventKind::ALL.iter().map(|kind| kind.name());
            let remedy = match nearest(name, known.clone()) {
                Some(near) => format!("did you mean {near:?}"),
                None => format!("the events are {}", known.collect::<Vec<_>>().join(", ")),
            };
            Wrong::new(format!("there is no event {name:?}"), remedy)
        })
    });
    Ok(Value::Events(kinds.collect::<Result<_, _>>()?))
}

fn command(raw: &DeValue<'_>) -> Result<Value, Wrong> {
    let example = "write a list like [\"/usr/local/bin/page\", \"--team\", \"storage\"]";
    let words = strings(raw, example)?;
    match words.first() {
        None => Err(Wrong::new("names no program", example)),
        Some(program) if !Path::new(program).is_absolute() => Err(Wrong::new(
            "names its program without its path, and no shell looks it up",
            "write the program's whole path, beginning with /",
        )),
        Some(_) => Ok(Value::Command(words)),
    }
}

/// The most similar of the known words, if one is similar enough to be meant.
pub(super) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    known
        .map(|other| {
            (
                strsim::damerau_levenshtein(&lower, &other.to_lowercase()),
                other,
            )
        })
        .filter(|(distance, other)| *distance <= (other.len() / 3).max(1))
        .min()
        .map(|(_, other)| other)
}

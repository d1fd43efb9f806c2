//! What the admin server's answers mean. Flags are booleans under `state` and the texts `"true"` and
//! `"false"` under `gc`: both are taken everywhere. Fields that nobody asked for are passed over; one
//! that is missing or of another kind is said by name, because then another program may answer there.

use serde_json::{Map, Value};

use crate::health::beside::{BookieState, CompactionFlags, GcDetails};
use crate::health::dir::printable;

/// How much of an answer is quoted when it cannot be understood.
const QUOTED: usize = 60;

/// `GET /api/v1/bookie/state` (BookieStateService).
pub(super) fn state(body: &[u8]) -> Result<BookieState, String> {
    let fields = object(parse(body)?)?;
    Ok(BookieState {
        running: flag(&fields, "running")?,
        read_only: flag(&fields, "readOnly")?,
        shutting_down: flag(&fields, "shuttingDown")?,
        high_priority_writes: match fields.get("availableForHighPriorityWrites") {
            None | Some(Value::Null) => None,
            Some(_) => Some(flag(&fields, "availableForHighPriorityWrites")?),
        },
    })
}

/// `GET` and `PUT /api/v1/bookie/state/readonly` (BookieStateReadOnlyService).
pub(super) fn read_only(body: &[u8]) -> Result<bool, String> {
    flag(&object(parse(body)?)?, "readOnly")
}

/// What the file of the bookie that runs said at its start, without defaults.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerConfig {
    /// It has a read-only mode.
    pub read_only_enabled: bool,
    id: Option<String>,
    host: Option<String>,
    port: Option<String>,
}

impl ServerConfig {
    /// Under which other name this bookie goes than under that one, as far as its file says it.
    #[must_use]
    pub fn other_than(&self, bookie: &str) -> Option<String> {
        if let Some(id) = &self.id {
            return (id != bookie).then(|| id.clone());
        }
        let (host, port) = bookie.rsplit_once(':')?;
        let differs = |said: &Option<String>, ours| said.as_ref().is_some_and(|said| said != ours);
        if !differs(&self.host, host) && !differs(&self.port, port) {
            return None;
        }
        let or = |said: &Option<String>, ours: &str| said.as_deref().unwrap_or(ours).to_owned();
        Some(format!("{}:{}", or(&self.host, host), or(&self.port, port)))
    }
}

/// `GET /api/v1/config/server_config` (ConfigurationService), as texts.
pub(super) fn server_config(body: &[u8]) -> Result<ServerConfig, String> {
    let fields = object(parse(body)?)?;
    let text = |name: &str| match fields.get(name) {
        Some(Value::String(text)) if !text.trim().is_empty() => Some(printable(text.trim())),
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => None,
    };
    Ok(ServerConfig {
        read_only_enabled: match fields.get("readOnlyModeEnabled") {
            None => true,
            Some(_) => flag(&fields, "readOnlyModeEnabled")?,
        },
        id: text("bookieId"),
        host: text("advertisedAddress"),
        port: text("bookiePort"),
    })
}

/// `GET /api/v1/bookie/gc/suspend_compaction` (SuspendCompactionService).
pub(super) fn compaction(body: &[u8]) -> Result<CompactionFlags, String> {
    let fields = object(parse(body)?)?;
    Ok(CompactionFlags {
        minor_suspended: flag(&fields, "isMinorGcSuspended")?,
        major_suspended: flag(&fields, "isMajorGcSuspended")?,
    })
}

/// `GET /api/v1/bookie/gc` (TriggerGCService).
pub(super) fn forced_gc(body: &[u8]) -> Result<bool, String> {
    flag(&object(parse(body)?)?, "is_in_force_gc")
}

/// `GET /api/v1/bookie/gc_details` (GCDetailsService): a list of GarbageCollectionStatus.
pub(super) fn gc_details(body: &[u8]) -> Result<Vec<GcDetails>, String> {
    let Value::Array(list) = parse(body)? else {
        return Err("it is no list".to_owned());
    };
    let details = list.into_iter().map(|details| {
        let fields = object(details)?;
        Ok(GcDetails {
            force_compacting: flag(&fields, "forceCompacting")?,
            major_compacting: flag(&fields, "majorCompacting")?,
            minor_compacting: flag(&fields, "minorCompacting")?,
            last_major: number(&fields, "lastMajorCompactionTime")?,
            last_minor: number(&fields, "lastMinorCompactionTime")?,
            majors: number(&fields, "majorCompactionCounter")?,
            minors: number(&fields, "minorCompactionCounter")?,
        })
    });
    details.collect()
}

fn parse(body: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(body).map_err(|error| match body.trim_ascii() {
        [] => "it is empty".to_owned(),
        text => format!("it is no JSON ({error}): {}", quoted(text)),
    })
}

fn object(value: Value) -> Result<Map<String, Value>, String> {
    match value {
        Value::Object(fields) => Ok(fields),
        other => Err(format!(
            "it is no object: {}",
            quoted(other.to_string().as_bytes())
        )),
    }
}

fn flag(fields: &Map<String, Value>, name: &str) -> Result<bool, String> {
    match fields.get(name) {
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(Value::String(text)) if text == "true" => Ok(true),
        Some(Value::String(text)) if text == "false" => Ok(false),
        other => Err(not(name, "true or false", other)),
    }
}

fn number(fields: &Map<String, Value>, name: &str) -> Result<u64, String> {
    let value = fields.get(name);
    let number = value.and_then(Value::as_u64);
    number.ok_or_else(|| not(name, "a number", value))
}

fn not(name: &str, kind: &str, value: Option<&Value>) -> String {
    match value {
        None => format!("`{name}` is missing"),
        Some(value) => {
            let value = value.to_string();
            format!("`{name}` is not {kind} but {}", quoted(value.as_bytes()))
        }
    }
}

/// The beginning, with nothing in it that steers a terminal.
pub(super) fn quoted(text: &[u8]) -> String {
    let start = String::from_utf8_lossy(&text[..text.len().min(4 * QUOTED)]);
    let quoted: String = start.chars().take(QUOTED).collect();
    let rest = if quoted.len() < text.len() { "…" } else { "" };
    format!("`{}{rest}`", printable(&quoted))
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use proptest::prelude::*;

    use super::*;
    use crate::mutation::edited;

    const STATE: &str = r#"{"running":true,"readOnly":false,"shuttingDown":false,"availableForHighPriorityWrites":true}"#;
    const DETAILS: &str = r#"[{"forceCompacting":false,"majorCompacting":true,"minorCompacting":false,
        "lastMajorCompactionTime":1700000000000,"lastMinorCompactionTime":1700000000001,
        "majorCompactionCounter":2,"minorCompactionCounter":3}]"#;

    #[test]
    fn answers_are_understood() {
        assert_eq!(
            state(STATE.as_bytes()),
            Ok(BookieState {
                running: true,
                read_only: false,
                shutting_down: false,
                high_priority_writes: Some(true),
            })
        );
        assert_eq!(
            gc_details(DETAILS.as_bytes()),
            Ok(vec![GcDetails {
                force_compacting: false,
                major_compacting: true,
                minor_compacting: false,
                last_major: 1_700_000_000_000,
                last_minor: 1_700_000_000_001,
                majors: 2,
                minors: 3,
            }])
        );
        assert_eq!(
            compaction(br#"{"isMajorGcSuspended":"true","isMinorGcSuspended":"false"}"#),
            Ok(CompactionFlags {
                minor_suspended: false,
                major_suspended: true,
            })
        );
        assert_eq!(forced_gc(br#"{"is_in_force_gc":"false"}"#), Ok(false));
        assert_eq!(read_only(br#"{"readOnly":true}"#), Ok(true));
        let enabled = |body: &[u8]| server_config(body).map(|config| config.read_only_enabled);
        assert_eq!(enabled(br#"{"bookiePort":"3181"}"#), Ok(true));
        let off = br#"{"readOnlyModeEnabled" : "false"}"#;
        assert_eq!(enabled(off), Ok(false));
    }

    #[test]
    fn whose_server_answers() {
        let other = |body: &str| {
            let config = server_config(body.as_bytes()).unwrap();
            config.other_than("10.0.0.1:3181")
        };
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(other("{}"), None);
        assert_eq!(other(r#"{"bookiePort":"3181"}"#), None);
        assert_eq!(other(r#"{"bookiePort":"3182"}"#), some("10.0.0.1:3182"));
        let named = r#"{"advertisedAddress":"10.0.0.2","bookiePort":"3181"}"#;
        assert_eq!(other(named), some("10.0.0.2:3181"));
        assert_eq!(
            other(r#"{"bookieId":"b2","bookiePort":"3181"}"#),
            some("b2")
        );
        assert_eq!(
            other(r#"{"bookieId":"10.0.0.1:3181","bookiePort":"1"}"#),
            None
        );
        assert_eq!(other(r#"{"advertisedAddress":"","bookieId":" "}"#), None);
    }

    #[test]
    fn new_fields_and_either_kind_of_flag_are_taken() {
        let newer = r#"{"running":"true","readOnly":"false","shuttingDown":false,"since":[{}]}"#;
        let state = state(newer.as_bytes()).unwrap();
        assert!(state.running && !state.read_only && state.high_priority_writes.is_none());
        assert_eq!(forced_gc(br#"{"is_in_force_gc":true}"#), Ok(true));
        assert_eq!(gc_details(b"[]"), Ok(Vec::new()));
    }

    #[test]
    fn what_is_wrong_is_said_by_name() {
        let wrong = [
            state(b""),
            state(b"<html>\x1b[2J</html>"),
            state(b"{\"running\":true,"),
            state(b"[]"),
            state(br#"{"running":true}"#),
            state(br#"{"running":"yes"}"#),
            state(br#"{"running":1}"#),
            state(br#"{"running":true,"readOnly":null,"shuttingDown":false}"#),
            state(&b"[".repeat(100_000)),
        ];
        let details = [
            gc_details(b"{}"),
            gc_details(b"[{}]"),
            gc_details(DETAILS.replace(":2", ":-2").as_bytes()),
            gc_details(DETAILS.replace(":3", ":3.5").as_bytes()),
        ];
        let wrong = wrong.into_iter().map(Result::unwrap_err);
        let details = details.into_iter().map(Result::unwrap_err);
        let lines: Vec<String> = wrong.chain(details).collect();
        assert_snapshot!(lines.join("\n"), @r#"
        it is empty
        it is no JSON (expected value at line 1 column 1): `<html>\x1b[2J</html>`
        it is no JSON (EOF while parsing a value at line 1 column 16): `{"running":true,`
        it is no object: `[]`
        `readOnly` is missing
        `running` is not true or false but `"yes"`
        `running` is not true or false but `1`
        `readOnly` is not true or false but `null`
        it is no JSON (recursion limit exceeded at line 1 column 128): `[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[…`
        it is no list
        `forceCompacting` is missing
        `majorCompactionCounter` is not a number but `-2`
        `minorCompactionCounter` is not a number but `3.5`
        "#);
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(
            bytes in prop_oneof![any::<Vec<u8>>(), edited(STATE), edited(DETAILS)],
        ) {
            let _ = (state(&bytes), read_only(&bytes), compaction(&bytes));
            let _ = (forced_gc(&bytes), gc_details(&bytes), quoted(&bytes));
        }
    }
}

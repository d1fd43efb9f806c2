//! What one instance of Alertmanager is told: the alerts that there are, with an end in the future so
//! that they end by themselves when the agent does, and those that are over, until it heard so. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::alerts::{Alert, Labels, PREFIX, common};
use crate::document::{Host, json, timestamp_text};
use crate::health::moment::Timestamp;
use crate::http_client::Url;

/// What is to be said.
#[derive(Debug, Default)]
pub(super) struct Told {
    active: BTreeMap<Labels, Alert>,
    /// Those that are over, with when, until that was heard.
    over: BTreeMap<Labels, (Alert, Timestamp)>,
    /// What an earlier run left there is known.
    knows_earlier: bool,
}

/// One alert as the second version of the API has it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sent<'a> {
    labels: &'a Labels,
    annotations: &'a BTreeMap<&'static str, String>,
    starts_at: String,
    ends_at: String,
}

/// What is needed of its answer.
#[derive(Deserialize)]
struct Found {
    labels: Labels,
}

impl Told {
    /// Takes in which alerts there are now; true when that is others than before, or more is known of
    /// one. A text with other numbers waits for the next turn.
    pub(super) fn want(&mut self, wanted: Vec<Alert>, now: Timestamp) -> bool {
        let wanted = wanted.into_iter().map(|it| (it.labels.clone(), it));
        let wanted: BTreeMap<Labels, Alert> = wanted.collect();
        let known = |alerts: &BTreeMap<Labels, Alert>| -> Vec<(Labels, usize)> {
            let alerts = alerts.iter();
            alerts
                .map(|(labels, alert)| (labels.clone(), alert.annotations.len()))
                .collect()
        };
        let changed = known(&wanted) != known(&self.active);
        for (labels, alert) in std::mem::replace(&mut self.active, wanted) {
            if !self.active.contains_key(&labels) {
                self.over.insert(labels, (alert, now));
            }
        }
        self.over
            .retain(|labels, _| !self.active.contains_key(labels));
        changed
    }

    pub(super) fn knows_earlier(&self) -> bool {
        self.knows_earlier
    }

    /// Takes in which alerts the instance has: those of this agent that are not wanted are over.
    ///
    /// # Errors
    /// The answer is none.
    pub(super) fn take_earlier(
        &mut self,
        answer: &[u8],
        host: &Host,
        now: Timestamp,
    ) -> Result<(), String> {
        let found: Vec<Found> = serde_json::from_slice(answer)
            .map_err(|error| format!("its answer is not that of an Alertmanager: {error}"))?;
        let common = common(host);
        let ours = |labels: &Labels| {
            let name = labels
                .get("alertname")
                .is_some_and(|name| name.starts_with(PREFIX));
            let same = ["host", "bookie_id"]
                .iter()
                .all(|label| labels.get(*label) == common.get(*label));
            name && same
        };
        for Found { labels } in found {
            if ours(&labels) && !self.active.contains_key(&labels) {
                let alert = Alert {
                    labels: labels.clone(),
                    annotations: BTreeMap::new(),
                    since: now,
                };
                self.over.insert(labels, (alert, now));
            }
        }
        self.knows_earlier = true;
        Ok(())
    }

    /// All of it, as JSON. What is there ends after `lasts` unless it is said again.
    pub(super) fn body(&self, now: Timestamp, lasts: Duration) -> String {
        let lasts = i64::try_from(lasts.as_millis()).unwrap_or(i64::MAX);
        let until = Timestamp(now.0.saturating_add(lasts));
        let active = self.active.values().map(|alert| (alert, until));
        let over = self.over.values().map(|(alert, at)| (alert, *at));
        let sent = active.chain(over).map(|(alert, end)| Sent {
            labels: &alert.labels,
            annotations: &alert.annotations,
            starts_at: timestamp_text(alert.since),
            // A clock that was set back must not make it end before it began.
            ends_at: timestamp_text(end.max(alert.since)),
        });
        json(&sent.collect::<Vec<_>>())
    }

    /// What was said last was heard.
    pub(super) fn was_heard(&mut self) {
        self.over.clear();
    }
}

/// Where alerts go.
pub(super) fn address(base: &Url) -> Url {
    let mut url = base.clone();
    let path = format!("{}/api/v2/alerts", url.path().trim_end_matches('/'));
    url.set_path(&path);
    url
}

/// Where the alerts of this host are asked for.
pub(super) fn question(base: &Url, host: &Host) -> Url {
    let mut url = address(base);
    let name = host.host.replace('\\', "\\\\").replace('"', "\\\"");
    let filter = format!("host=\"{name}\"");
    url.query_pairs_mut().append_pair("filter", &filter);
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert(name: &str) -> Alert {
        let labels = [("alertname", name), ("host", "bk-3")];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Alert {
            labels: labels.into(),
            annotations: [("summary", "it is full".to_owned())].into(),
            since: Timestamp(1_796_000_000_000),
        }
    }

    fn host() -> Host {
        Host {
            host: "bk-3".to_owned(),
            bookie_id: None,
        }
    }

    const NOW: Timestamp = Timestamp(1_796_000_060_000);

    #[test]
    fn what_lasts_ends_in_the_future_and_what_is_over_when_it_was() {
        let mut told = Told::default();
        assert!(told.want(vec![alert("DirkeeperFull")], NOW));
        assert!(!told.want(vec![alert("DirkeeperFull")], NOW));
        let body = told.body(NOW, Duration::from_secs(180));
        insta::assert_snapshot!(body, @r#"[{"labels":{"alertname":"DirkeeperFull","host":"bk-3"},"annotations":{"summary":"it is full"},"startsAt":"2026-11-30T00:53:20.000Z","endsAt":"2026-11-30T00:57:20.000Z"}]"#);
        assert!(told.want(vec![alert("DirkeeperHung")], NOW));
        let body = told.body(NOW, Duration::from_secs(180));
        assert!(body.contains(r#""DirkeeperHung""#), "{body}");
        assert!(
            body.contains(r#""endsAt":"2026-11-30T00:54:20.000Z"}]"#),
            "{body}"
        );
        // Said until it was heard, and not once it is there again.
        assert!(told.body(NOW, Duration::ZERO).contains("DirkeeperFull"));
        told.was_heard();
        assert!(!told.body(NOW, Duration::ZERO).contains("DirkeeperFull"));
        told.want(Vec::new(), NOW);
        told.want(vec![alert("DirkeeperHung")], NOW);
        assert!(told.over.is_empty());
    }

    #[test]
    fn what_an_earlier_run_left_is_over_unless_it_is_there_or_anothers() {
        let mut told = Told::default();
        told.want(vec![alert("DirkeeperFull")], NOW);
        let answer = br#"[{"labels":{"alertname":"DirkeeperFull","host":"bk-3"}},
            {"labels":{"alertname":"DirkeeperHung","host":"bk-3"},"status":{"state":"active"}},
            {"labels":{"alertname":"DirkeeperHung","host":"bk-3","bookie_id":"x"}},
            {"labels":{"alertname":"DirkeeperHung","host":"bk-4"}},
            {"labels":{"alertname":"NodeDown","host":"bk-3"}}]"#;
        told.take_earlier(answer, &host(), NOW).unwrap();
        let over: Vec<&str> = told.over.keys().map(|it| &*it["alertname"]).collect();
        assert_eq!(over, ["DirkeeperHung"]);
        assert!(told.knows_earlier());
        assert!(
            Told::default()
                .take_earlier(b"<html>", &host(), NOW)
                .is_err()
        );
    }

    #[test]
    fn addresses_keep_their_prefix() {
        let base = Url::parse("http://10.0.0.1:9093/am/").unwrap();
        assert_eq!(
            address(&base).as_str(),
            "http://10.0.0.1:9093/am/api/v2/alerts"
        );
        let asked = question(&base, &host());
        assert_eq!(asked.query(), Some("filter=host%3D%22bk-3%22"));
    }
}

//! Brokers of a Pulsar cluster by what they tell: who leads them, who has which topic, and whom they sent on to another.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use super::pulsar::Pulsar;
use crate::harness::run::wait_for;

/// A bundle is handed over within a second.
const HANDED_OVER: Duration = Duration::from_secs(30);

/// A line of a broker's log of requests.
struct Request {
    broker: u16,
    /// Method and path.
    what: String,
    status: u16,
    /// It was this program that asked.
    is_ours: bool,
}

impl Pulsar {
    /// The number of the broker that leads the others.
    pub(crate) fn leading_broker(&self) -> u16 {
        let (_, told) = self.rest("GET", "/admin/v2/brokers/leaderBroker", None);
        let told: Value = serde_json::from_str(&told).expect("a broker leads");
        let url = told["serviceUrl"].as_str().expect("it has an address");
        self.broker_of(url)
    }

    /// The number of the broker that has a topic, or is to have it.
    pub(crate) fn owner(&self, topic: &str) -> u16 {
        let path = format!("/lookup/v2/topic/persistent/{topic}");
        wait_for("some broker has the topic", HANDED_OVER, || {
            let (_, told) = self.rest("GET", &path, None);
            let told: Value = serde_json::from_str(&told).ok()?;
            told["httpUrl"].as_str().map(|url| self.broker_of(url))
        })
    }

    /// The bundle that a topic is in.
    pub(crate) fn bundle(&self, topic: &str) -> String {
        let path = format!("/lookup/v2/topic/persistent/{topic}/bundle");
        let (_, told) = self.rest("GET", &path, None);
        told.trim_matches('"').to_owned()
    }

    /// Gives a topic, and whatever else is in its bundle, to a broker.
    pub(crate) fn hand_over(&self, topic: &str, broker: u16) {
        let (namespace, _) = topic.rsplit_once('/').expect("it has a namespace");
        let to = format!("127.0.0.1:{}", self.broker_port(broker));
        wait_for("the broker has the topic", HANDED_OVER, || {
            if self.owner(topic) == broker {
                return Some(());
            }
            let bundle = self.bundle(topic);
            let order = format!("/admin/v2/namespaces/{namespace}/{bundle}/unload");
            self.attempt("PUT", &format!("{order}?destinationBroker={to}"), None);
            None
        });
    }

    fn broker_of(&self, url: &str) -> u16 {
        let port = url.trim_end_matches('/').rsplit(':').next();
        let port: Option<u16> = port.and_then(|port| port.parse().ok());
        port.and_then(|port| port.checked_sub(self.broker_port(0)))
            .unwrap_or_else(|| panic!("{url} is no broker of ours"))
    }

    /// Orders to trim that a broker sent on to another, and of these the ones that the other carried out.
    pub(crate) fn redirected_trims(&self) -> (usize, usize) {
        let all: Vec<Request> = [1, 2].iter().flat_map(|one| self.requests(*one)).collect();
        let sent_on = all.iter().filter(|request| {
            request.is_ours
                && request.status == 307
                && request.what.starts_with("POST ")
                && request.what.ends_with("/trim")
        });
        let sent_on: Vec<&Request> = sent_on.collect();
        let followed = sent_on.iter().filter(|first| {
            let next = format!("{}?authoritative=", first.what);
            all.iter().any(|request| {
                request.broker != first.broker
                    && request.what.starts_with(&next)
                    && request.status < 300
            })
        });
        (sent_on.len(), followed.count())
    }

    fn requests(&self, broker: u16) -> Vec<Request> {
        let log = self.log(&format!("broker{broker}"));
        let log = fs::read(log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines = log
            .lines()
            .filter(|line| line.contains(" o.e.j.s.RequestLog - "));
        let requests = lines.filter_map(|line| {
            let mut parts = line.split('"').skip(1);
            let what = parts.next()?.strip_suffix(" HTTP/1.1")?.to_owned();
            let status = parts.next()?.split_whitespace().next()?.parse().ok()?;
            let who = parts.nth(2)?;
            Some(Request {
                broker,
                what,
                status,
                is_ours: who.starts_with("dirkeeper/"),
            })
        });
        requests.collect()
    }
}

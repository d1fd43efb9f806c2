//! The metrics of `dirkeeper drain run`, declared as those of the agent are.

use prometheus::proto::MetricType;

use super::family::{Family, family};
use super::{Series, Writer, float};

/// What the families are collected from: what one worker has done and met.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DrainFacts {
    /// The job's id.
    pub job: String,
    /// Bookies that are to be emptied, and whether each was seen to be read-only at the last look.
    pub bookies: Vec<(String, bool)>,
    /// Since the start of the process.
    pub ledgers: u64,
    /// Since the start of the process.
    pub fragments: u64,
    /// Since the start of the process.
    pub entries: u64,
    /// Since the start of the process.
    pub bytes: u64,
    /// Ledgers that are left, by what keeps them.
    pub left: Vec<(&'static str, u64)>,
    /// Replicas that were not as they should be.
    pub bad_replicas: u64,
    /// Requests to ZooKeeper since the start of the process.
    pub requests: u64,
}

type Collect = fn(&DrainFacts, &mut Series);

const fn counter(name: &'static str, help: &'static str, collect: Collect) -> Family<Collect> {
    family(MetricType::COUNTER, name, help, &["job"], collect)
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    collect: Collect,
) -> Family<Collect> {
    family(MetricType::GAUGE, name, help, labels, collect)
}

/// All families, in the order in which they are exposed.
pub(super) const FAMILIES: &[Family<Collect>] = &[
    counter(
        "dirkeeper_drain_ledgers_total",
        "Ledgers that this worker moved since its start.",
        |facts, series| series.count(&[&facts.job], facts.ledgers),
    ),
    counter(
        "dirkeeper_drain_fragments_total",
        "Replicas of fragments that it gave another bookie.",
        |facts, series| series.count(&[&facts.job], facts.fragments),
    ),
    counter(
        "dirkeeper_drain_entries_total",
        "Entries that it copied.",
        |facts, series| series.count(&[&facts.job], facts.entries),
    ),
    counter(
        "dirkeeper_drain_bytes_total",
        "Bytes that it copied.",
        |facts, series| series.count(&[&facts.job], facts.bytes),
    ),
    counter(
        "dirkeeper_drain_bad_replicas_total",
        "Replicas that were not as they should be; the log names them.",
        |facts, series| series.count(&[&facts.job], facts.bad_replicas),
    ),
    counter(
        "dirkeeper_drain_requests_total",
        "Requests to ZooKeeper, every step of a transaction counted.",
        |facts, series| series.count(&[&facts.job], facts.requests),
    ),
    gauge(
        "dirkeeper_drain_left_ledgers",
        "Ledgers that it met in its last pass and could not finish, by the reason: they wait for their writers, are put off, are worked on by others, are held for readers, or cannot be done.",
        &["job", "why"],
        |facts, series| {
            for (why, count) in &facts.left {
                series.gauge(&[&facts.job, why], float(*count));
            }
        },
    ),
    gauge(
        "dirkeeper_drain_read_only",
        "Whether the bookie was read-only when it was last looked at.",
        &["job", "bookie"],
        |facts, series| {
            for (bookie, is_read_only) in &facts.bookies {
                series.flag(&[&facts.job, bookie], *is_read_only);
            }
        },
    ),
];

/// The exposition.
#[must_use]
pub fn render_drain(facts: &DrainFacts) -> String {
    let mut text = String::new();
    let mut writer = Writer::new(&mut text);
    for family in FAMILIES {
        writer.family(family, |series| (family.collect)(facts, series));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exposition_is_as_declared() {
        let text = render_drain(&DrainFacts {
            job: "d-0123abcd".to_owned(),
            bookies: vec![("bk1:3181".to_owned(), true)],
            ledgers: 1,
            fragments: 2,
            entries: 3,
            bytes: 4,
            left: vec![("waiting", 5), ("failed", 0)],
            bad_replicas: 6,
            requests: 7,
        });
        let series: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        insta::assert_snapshot!(series.join("\n"), @r#"
        dirkeeper_drain_ledgers_total{job="d-0123abcd"} 1
        dirkeeper_drain_fragments_total{job="d-0123abcd"} 2
        dirkeeper_drain_entries_total{job="d-0123abcd"} 3
        dirkeeper_drain_bytes_total{job="d-0123abcd"} 4
        dirkeeper_drain_bad_replicas_total{job="d-0123abcd"} 6
        dirkeeper_drain_requests_total{job="d-0123abcd"} 7
        dirkeeper_drain_left_ledgers{job="d-0123abcd",why="waiting"} 5
        dirkeeper_drain_left_ledgers{job="d-0123abcd",why="failed"} 0
        dirkeeper_drain_read_only{job="d-0123abcd",bookie="bk1:3181"} 1
        "#);
    }
}

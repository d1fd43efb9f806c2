//! The metrics of `dirkeeper reclaim run`, declared as those of the agent are.

use prometheus::proto::MetricType;

use super::family::{Family, family};
use super::{Series, Writer, float};

/// What the families are collected from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReclaimFacts {
    /// Whether this process is the one that works.
    pub leader: bool,
    /// The last complete scan.
    pub scan: Option<ScanFacts>,
    /// Marks that stand, by how far they are.
    pub marks: Vec<(&'static str, u64)>,
    /// Since the start of the process.
    pub deleted: u64,
    /// Since the start of the process.
    pub trimmed: u64,
    /// Since the start of the process.
    pub requests: u64,
    /// For each step how often it failed since the start of the process, and when it last did not, in Unix time.
    pub steps: Vec<(&'static str, u64, Option<f64>)>,
}

/// A complete scan.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ScanFacts {
    /// When everything had been read, in Unix time.
    pub ended: f64,
    /// Seconds.
    pub duration: f64,
    /// Of the stores.
    pub requests: u64,
    /// Every class.
    pub classes: Vec<ClassFacts>,
}

/// The ledgers of one class.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClassFacts {
    /// Its name.
    pub class: &'static str,
    /// How many there are.
    pub ledgers: u64,
    /// Of all copies.
    pub bytes: u64,
    /// How many of them may be marked.
    pub deletable: u64,
}

type Collect = fn(&ReclaimFacts, &mut Series);

const fn gauge(
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    collect: Collect,
) -> Family<Collect> {
    family(MetricType::GAUGE, name, help, labels, collect)
}

const fn counter(
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    collect: Collect,
) -> Family<Collect> {
    family(MetricType::COUNTER, name, help, labels, collect)
}

/// All families, in the order in which they are exposed.
pub(super) const FAMILIES: &[Family<Collect>] = &[
    gauge(
        "dirkeeper_reclaim_leader",
        "Whether this process is the one that works; the others wait for its end.",
        &[],
        |facts, series| series.flag(&[], facts.leader),
    ),
    gauge(
        "dirkeeper_reclaim_last_scan_timestamp_seconds",
        "When the last complete scan had read everything, in Unix time.",
        &[],
        |facts, series| series.known(&[], facts.scan.as_ref().map(|scan| scan.ended)),
    ),
    gauge(
        "dirkeeper_reclaim_last_scan_duration_seconds",
        "How long it took.",
        &[],
        |facts, series| series.known(&[], facts.scan.as_ref().map(|scan| scan.duration)),
    ),
    gauge(
        "dirkeeper_reclaim_last_scan_requests",
        "Requests that it made.",
        &[],
        |facts, series| series.known(&[], facts.scan.as_ref().map(|scan| float(scan.requests))),
    ),
    gauge(
        "dirkeeper_reclaim_ledgers",
        "Ledgers that it found, by class; see reclaim.md for what the classes are.",
        &["class"],
        |facts, series| each_class(facts, series, |class| class.ledgers),
    ),
    gauge(
        "dirkeeper_reclaim_bytes",
        "Bytes of all copies of them, of those that are closed.",
        &["class"],
        |facts, series| each_class(facts, series, |class| class.bytes),
    ),
    gauge(
        "dirkeeper_reclaim_deletable_ledgers",
        "Those of them that may be marked.",
        &["class"],
        |facts, series| each_class(facts, series, |class| class.deletable),
    ),
    gauge(
        "dirkeeper_reclaim_marks",
        "Marks that stand: marked, or in the middle of being deleted.",
        &["phase"],
        |facts, series| {
            for (phase, count) in &facts.marks {
                series.gauge(&[phase], float(*count));
            }
        },
    ),
    counter(
        "dirkeeper_reclaim_deleted_total",
        "Ledgers deleted since the start of the process.",
        &[],
        |facts, series| series.count(&[], facts.deleted),
    ),
    counter(
        "dirkeeper_reclaim_trims_total",
        "Topics that a broker was asked to trim since the start of the process.",
        &[],
        |facts, series| series.count(&[], facts.trimmed),
    ),
    counter(
        "dirkeeper_reclaim_requests_total",
        "Requests to the ZooKeepers since the start of the process, every step of a transaction counted.",
        &[],
        |facts, series| series.count(&[], facts.requests),
    ),
    counter(
        "dirkeeper_reclaim_errors_total",
        "Steps of a pass that failed since the start of the process.",
        &["step"],
        |facts, series| {
            for (step, errors, _) in &facts.steps {
                series.count(&[step], *errors);
            }
        },
    ),
    gauge(
        "dirkeeper_reclaim_last_success_timestamp_seconds",
        "When the step last ended well, in Unix time; absent before it did.",
        &["step"],
        |facts, series| {
            for (step, _, success) in &facts.steps {
                series.known(&[step], *success);
            }
        },
    ),
];

fn each_class(facts: &ReclaimFacts, series: &mut Series, count: fn(&ClassFacts) -> u64) {
    for class in facts.scan.iter().flat_map(|scan| &scan.classes) {
        series.gauge(&[class.class], float(count(class)));
    }
}

/// The exposition.
#[must_use]
pub fn render_reclaim(facts: &ReclaimFacts) -> String {
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
        let facts = ReclaimFacts {
            leader: true,
            scan: Some(ScanFacts {
                ended: 1000.5,
                duration: 12.25,
                requests: 4711,
                classes: vec![ClassFacts {
                    class: "r1",
                    ledgers: 3,
                    bytes: 4096,
                    deletable: 2,
                }],
            }),
            marks: vec![("marked", 2), ("deleting", 0)],
            deleted: 7,
            trimmed: 1,
            requests: 4800,
            steps: vec![("scan", 0, Some(1000.5)), ("sweep", 2, None)],
        };
        let text = render_reclaim(&facts);
        let series: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        insta::assert_snapshot!(series.join("\n"), @r#"
        dirkeeper_reclaim_leader 1
        dirkeeper_reclaim_last_scan_timestamp_seconds 1000.5
        dirkeeper_reclaim_last_scan_duration_seconds 12.25
        dirkeeper_reclaim_last_scan_requests 4711
        dirkeeper_reclaim_ledgers{class="r1"} 3
        dirkeeper_reclaim_bytes{class="r1"} 4096
        dirkeeper_reclaim_deletable_ledgers{class="r1"} 2
        dirkeeper_reclaim_marks{phase="marked"} 2
        dirkeeper_reclaim_marks{phase="deleting"} 0
        dirkeeper_reclaim_deleted_total 7
        dirkeeper_reclaim_trims_total 1
        dirkeeper_reclaim_requests_total 4800
        dirkeeper_reclaim_errors_total{step="scan"} 0
        dirkeeper_reclaim_errors_total{step="sweep"} 2
        dirkeeper_reclaim_last_success_timestamp_seconds{step="scan"} 1000.5
        "#);
        let unknown = render_reclaim(&ReclaimFacts::default());
        assert!(!unknown.contains("last_scan"), "{unknown}");
    }
}

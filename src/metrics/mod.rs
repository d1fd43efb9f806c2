//! The Prometheus exposition, collected from the snapshot at each scrape: nothing is stored between
//! scrapes, so a directory that left the configuration leaves no series behind. Reads no disk and
//! waits for nothing. The families are declared in `family.rs`; `docs/metrics.md` comes from there.

mod beside;
mod drain;
mod family;
mod process;
mod reclaim;
mod reference;

use prometheus::TextEncoder;
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram as HistogramProto, LabelPair, Metric, MetricFamily,
};

use crate::document::{About, path_text};
use crate::health::snapshot::{DirView, Histogram, SelfView, Snapshot};
use family::Family;

pub use drain::{DrainFacts, render_drain};
pub use process::{ProcessFacts, ProcessReader};
pub use reclaim::{ClassFacts, ReclaimFacts, ScanFacts, render_reclaim};
pub use reference::reference;

/// Bytes of text that one directory needs, with a path of usual length; measured. A wrong guess
/// costs a larger copy.
const TEXT_PER_DIR: usize = 5 << 10;

/// Bytes of text that a node without directories needs.
const TEXT_PER_NODE: usize = 16 << 10;

/// Beginning of the names of what is said about this process.
const PROCESS: &str = "process_";

/// Appends the exposition to `out`, all of it or without what is said about this process. Never blocks.
pub fn render(
    snapshot: &Snapshot,
    own: &SelfView,
    about: &About,
    process: Option<&ProcessFacts>,
    out: &mut String,
) {
    let nothing = ProcessFacts::default();
    let facts = Facts {
        snapshot,
        own,
        about,
        process: process.unwrap_or(&nothing),
        dirs: snapshot
            .dirs
            .iter()
            .map(|dir| (path_text(&dir.path), &**dir))
            .collect(),
    };
    out.reserve(TEXT_PER_NODE + TEXT_PER_DIR * facts.dirs.len());
    let mut writer = Writer::new(out);
    let all = family::FAMILIES.iter();
    let said = all.filter(|family| process.is_some() || !family.name.starts_with(PROCESS));
    for family in said {
        writer.family(family, |series| (family.collect)(&facts, series));
    }
}

/// Writes one family after the other, in the same memory: with many directories, all series at once would take
/// megabytes.
struct Writer<'a> {
    out: &'a mut String,
    proto: MetricFamily,
}

impl<'a> Writer<'a> {
    fn new(out: &'a mut String) -> Writer<'a> {
        Writer {
            out,
            proto: MetricFamily::default(),
        }
    }

    fn family<C>(&mut self, family: &Family<C>, collect: impl FnOnce(&mut Series)) {
        let mut series = Series {
            labels: family.labels,
            metrics: self.proto.take_metric(),
        };
        series.metrics.clear();
        collect(&mut series);
        // The encoder refuses a family without series, and a scrape shows none for it either.
        let is_empty = series.metrics.is_empty();
        self.proto.set_metric(series.metrics);
        if is_empty {
            return;
        }
        self.proto.set_name(family.name.to_owned());
        self.proto.set_help(family.help.to_owned());
        self.proto.set_field_type(family.kind);
        TextEncoder::new()
            .encode_utf8(std::slice::from_ref(&self.proto), self.out)
            .expect("families have names and series, and memory takes every write");
    }
}

/// What the families are collected from.
struct Facts<'a> {
    snapshot: &'a Snapshot,
    own: &'a SelfView,
    about: &'a About,
    process: &'a ProcessFacts,
    /// Directories with the text of their path.
    dirs: Vec<(String, &'a DirView)>,
}

/// The series of one family.
struct Series {
    labels: &'static [&'static str],
    metrics: Vec<Metric>,
}

impl Series {
    /// A series with these label values, in the order of the family's labels.
    fn metric(&mut self, values: &[&str]) -> &mut Metric {
        debug_assert_eq!(values.len(), self.labels.len(), "{:?}", self.labels);
        let pairs = self.labels.iter().zip(values).map(|(name, value)| {
            let mut pair = LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value((*value).to_owned());
            pair
        });
        self.metrics.push(Metric::from_label(pairs.collect()));
        self.metrics.last_mut().expect("just pushed")
    }

    fn gauge(&mut self, values: &[&str], value: f64) {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        self.metric(values).set_gauge(gauge);
    }

    /// A gauge that exists only while its number is known.
    fn known(&mut self, values: &[&str], value: Option<f64>) {
        if let Some(value) = value {
            self.gauge(values, value);
        }
    }

    fn flag(&mut self, values: &[&str], value: bool) {
        self.gauge(values, f64::from(u8::from(value)));
    }

    /// A flag that exists only while it is known.
    fn known_flag(&mut self, values: &[&str], value: Option<bool>) {
        if let Some(value) = value {
            self.flag(values, value);
        }
    }

    fn counter(&mut self, values: &[&str], value: f64) {
        let mut counter = Counter::default();
        counter.set_value(value);
        self.metric(values).set_counter(counter);
    }

    fn count(&mut self, values: &[&str], value: u64) {
        self.counter(values, float(value));
    }

    fn histogram(&mut self, values: &[&str], histogram: &Histogram) {
        let mut cumulated = 0;
        let buckets = Histogram::BOUNDS.iter().zip(histogram.buckets);
        let buckets = buckets.map(|(bound, count)| {
            cumulated += count;
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(*bound);
            bucket.set_cumulative_count(cumulated);
            bucket
        });
        let mut proto = HistogramProto::default();
        proto.set_bucket(buckets.collect());
        proto.set_sample_sum(histogram.sum);
        proto.set_sample_count(histogram.count);
        self.metric(values).set_histogram(proto);
    }
}

/// Counts and bytes as Prometheus has them: exact up to 2^53.
#[allow(clippy::cast_precision_loss)]
fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests;

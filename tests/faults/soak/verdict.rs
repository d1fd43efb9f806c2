//! The verdict: every event is held against what really happened. Pure, so that it can be shown to find
//! what is wrong.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use super::beside::{Beside, Sample, middle};
use crate::harness::agent::Event;
use crate::harness::bench::Bench;

/// Of a healthy machine none of these is true, whatever the load: one directory of fourteen is ever full.
const NEVER: &[&str] = &[
    "diskFailed",
    "diskVanished",
    "diskReplaced",
    "diskReadOnly",
    "diskUnknown",
    "allDisksFull",
    "fatalError",
];

/// The agent judges by the newest five probes, ten seconds apart, and the newest may itself be slow.
const WINDOW_MS: i64 = 60_000;

/// So many samples of the window over the limit make slowness plausible: as many as the agent wants of
/// its five probes.
const OVER: usize = 3;

/// Siblings are compared by the newest nine probes.
const SIBLINGS_WINDOW_MS: i64 = 100_000;

/// What an outlier is said to take, and its siblings, must be measured to within this factor: the agent
/// has nine probes of a load that varies, the side writer ten times as many.
const WITHIN: f64 = 2.0;

/// What a disk with a moving head, or an unknown one, may take by default.
const SLOW: Duration = Duration::from_millis(250);

/// A stretch in which every sample was over the limit for so long should have been told.
const UNTOLD_MS: i64 = 60_000;

/// How late a crossing may be told with four busy loops a core: ten times what an idle machine needs.
const LIMIT: Duration = Duration::from_secs(10);

/// Both times are rounded down.
const ROUNDING_MS: i64 = 20;

/// A crossing that happened.
#[derive(Debug, Clone)]
pub(super) struct Told {
    dir: PathBuf,
    name: &'static str,
    /// A look in between may tell this first.
    perhaps: &'static str,
    /// When its making began.
    began: i64,
    /// When an agent that needs no time tells it.
    due: i64,
    pub(super) latest: i64,
}

impl Told {
    pub(super) fn new(
        dir: &Path,
        name: &'static str,
        perhaps: &'static str,
        began: i64,
        due: i64,
    ) -> Told {
        Told {
            dir: dir.to_owned(),
            name,
            perhaps,
            began,
            due,
            latest: due + millis(LIMIT),
        }
    }

    /// The agent was stopped for so long meanwhile.
    pub(super) fn shift(&mut self, by: Duration) {
        self.due += millis(by);
        self.latest += millis(by);
    }

    fn is_in(&self, event: &Event) -> bool {
        event.dir.as_deref() == Some(&self.dir)
            && event.name == self.name
            && event.time >= self.began - ROUNDING_MS
            && event.time <= self.latest
    }

    pub(super) fn found_in(&self, events: &[Event]) -> bool {
        events.iter().any(|event| self.is_in(event))
    }
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// Each makes the soak fail.
    pub(super) problems: Vec<String>,
    /// What a person should look at.
    pub(super) notes: Vec<String>,
    pub(super) by_kind: BTreeMap<String, usize>,
    pub(super) slow_agreed: usize,
    /// The longest that each kind of crossing waited to be told, in milliseconds beyond the dwell time
    /// and a pause of the agent.
    pub(super) told_after: BTreeMap<&'static str, i64>,
}

impl Verdict {
    pub(super) fn of(events: &[Event], told: &[Told], besides: &[Beside<'_>]) -> Verdict {
        let mut verdict = Verdict::default();
        for event in events {
            *verdict.by_kind.entry(event.name.clone()).or_default() += 1;
            let beside = besides.iter().find(|beside| is_on(event, beside));
            let samples = beside.map_or(&[][..], |beside| &beside.samples);
            match event.name.as_str() {
                name if NEVER.contains(&name) => verdict.fail("is false", event),
                "diskHung" => verdict.hung(event, samples),
                "diskSlow" if message(event).ends_with("an outlier") => {
                    verdict.outlier(event, besides);
                }
                "diskSlow" => match beside {
                    Some(beside) => verdict.slow(event, beside),
                    None => verdict.fail("is of an unknown file system", event),
                },
                _ => {}
            }
        }
        verdict.crossings(events, told);
        for beside in besides {
            verdict.untold(events, beside);
        }
        verdict
    }

    fn fail(&mut self, why: &str, event: &Event) {
        self.problems.push(format!("{why}: {}", event.json));
    }

    /// True if the side writer, too, was held for longer than the deadline.
    fn hung(&mut self, event: &Event, samples: &[Sample]) {
        let Some(deadline) = number_after(event, "over the deadline of ") else {
            return self.fail("names no deadline", event);
        };
        let deadline = Duration::from_secs_f64(deadline);
        let held = samples.iter().find(|sample| {
            let overlaps = sample.at <= event.time && sample.end() >= event.time - WINDOW_MS;
            overlaps && sample.longest() >= deadline
        });
        match held {
            Some(sample) => self.notes.push(format!(
                "true: {}; beside it a step took {:?}",
                event.json,
                sample.longest()
            )),
            None => self.fail("is false, nothing was held beside it", event),
        }
    }

    /// True if in enough samples of the agent's window the step that it names was over its limit.
    fn slow(&mut self, event: &Event, beside: &Beside<'_>) {
        let Some(limit) = number_after(event, "over the limit of ") else {
            return self.fail("names no limit", event);
        };
        let limit = Duration::from_secs_f64(limit / 1e3);
        let recent = beside.recent(event.time, WINDOW_MS);
        let took: Vec<Duration> = recent
            .filter_map(|sample| sample.step(step(event)))
            .collect();
        let over = took.iter().filter(|took| **took > limit).count();
        if over >= OVER {
            self.slow_agreed += 1;
        } else {
            let why = format!("{over} of {} samples beside it were slow", took.len());
            self.fail(&why, event);
        }
    }

    /// True if the side writers' medians of the step show the same disk apart from the others, by as
    /// much as was said.
    fn outlier(&mut self, event: &Event, besides: &[Beside<'_>]) {
        let told = ["in the median", "("].map(|words| number_before(event, words));
        let [Some(told), Some(told_usual)] = told else {
            return self.fail("names no medians", event);
        };
        let median = |beside: &Beside<'_>| {
            let median = beside.median(step(event), event.time, SIBLINGS_WINDOW_MS);
            median.filter(|_| beside.is_disk())
        };
        let own = besides.iter().find(|beside| is_on(event, beside));
        let own = own.and_then(median);
        let usual = middle(besides.iter().filter_map(median).collect());
        let (Some(own), Some(usual)) = (own, usual) else {
            return self.fail("was not measured", event);
        };
        let [own, usual] = [own, usual].map(|time| time.as_secs_f64() * 1e3);
        let same = told <= own * WITHIN && usual <= told_usual * WITHIN;
        if same && told * usual <= own * told_usual * WITHIN {
            self.slow_agreed += 1;
        } else {
            let why = format!("{own:.1} ms and {usual:.1} ms were the medians beside it");
            self.fail(&why, event);
        }
    }

    /// Each crossing was told once, in order and in time, and nothing else.
    fn crossings(&mut self, events: &[Event], told: &[Told]) {
        let mut open: Vec<&Told> = told.iter().collect();
        for event in events.iter().filter(|event| event.json["axis"] == "space") {
            let of_dir = |crossing: &&Told| event.dir.as_deref() == Some(&crossing.dir);
            let next = open.iter().position(of_dir);
            let Some(next) = next else {
                self.fail("crossed nothing", event);
                continue;
            };
            if open[next].is_in(event) {
                let crossing = open.remove(next);
                let longest = self.told_after.entry(crossing.name).or_default();
                *longest = (*longest).max(event.time - crossing.due);
            } else if event.name != open[next].perhaps {
                self.fail("is not what happened", event);
            }
        }
        for crossing in open {
            self.problems.push(format!("was never told: {crossing:?}"));
        }
    }

    /// Long slowness without a word of it.
    fn untold(&mut self, events: &[Event], beside: &Beside<'_>) {
        let slow = |event: &&Event| event.name == "diskSlow" && is_on(event, beside);
        let slow: Vec<i64> = events.iter().filter(slow).map(|event| event.time).collect();
        for stretch in beside.samples.split(|sample| sample.longest() <= SLOW) {
            let (Some(first), Some(last)) = (stretch.first(), stretch.last()) else {
                continue;
            };
            let (from, to) = (first.at, last.end());
            // A directory that is slow already says so once.
            if to - from >= UNTOLD_MS && !slow.iter().any(|time| *time <= to + WINDOW_MS) {
                self.notes.push(format!(
                    "{} was slow for {} s from {from} on, and no diskSlow was told",
                    beside.root.display(),
                    (to - from) / 1000
                ));
            }
        }
    }
}

fn is_on(event: &Event, beside: &Beside<'_>) -> bool {
    let dir = event.dir.as_deref();
    dir.is_some_and(|dir| dir.starts_with(beside.root))
}

fn message(event: &Event) -> &str {
    event.json["cause"]["message"].as_str().unwrap_or_default()
}

/// The step that the event's message is about, its first word.
fn step(event: &Event) -> &str {
    message(event).split(' ').next().unwrap_or_default()
}

/// The number that the event's message names after these words.
fn number_after(event: &Event, words: &str) -> Option<f64> {
    let (_, rest) = message(event).split_once(words)?;
    rest.split(' ').next()?.parse().ok()
}

/// The milliseconds that the event's message names before these words.
fn number_before(event: &Event, words: &str) -> Option<f64> {
    let (rest, _) = message(event).split_once(words)?;
    let number = rest.trim_end().strip_suffix(" ms")?;
    number.rsplit(' ').next()?.parse().ok()
}

pub(super) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// The judge itself: made-up events, some of them false, beside a file system that was slow for a while.
pub(crate) fn judge_finds(_: &Bench) {
    let root = Path::new("/disk");
    let dir = root.join("ledger");
    let sample =
        |second: i64, millis| Sample::of(second * 1000, "sync", Duration::from_millis(millis));
    // Seconds 0 to 99 are fast, 100 to 109 slow; at 200 one step is held for 20 s.
    let samples = (0..100).map(|at| sample(at, 5));
    let samples = samples.chain((100..110).map(|at| sample(at, 300)));
    let samples = samples.chain([sample(200, 20_000)]).collect();
    let besides = [Beside::with("ext4", root, samples)];
    let crossing = |name, second: i64| Told::new(&dir, name, "", second * 1000, second * 1000);
    let told = [
        crossing("diskAlmostFull", 10),
        crossing("diskBelowWarn", 30),
    ];
    let event = |(name, axis, second, message): (&str, &str, u64, &str)| {
        let time = std::time::UNIX_EPOCH + Duration::from_secs(second);
        let time = humantime::format_rfc3339_millis(time).to_string();
        Event::parse(&json!({
            "seq": second, "time": time, "event": name, "dir": dir, "axis": axis,
            "cause": {"message": message},
        }))
    };
    let slow = "sync took 300 ms, over the limit of 250 ms; 3 of the newest 5 probes were over it";
    let hung = "sync has been running for 15.1 s, over the deadline of 15.0 s";
    let judged = |events: &[(&str, &str, u64, &str)]| {
        let events: Vec<Event> = events.iter().map(|one| event(*one)).collect();
        Verdict::of(&events, &told, &besides).problems.len()
    };
    let up = ("diskAlmostFull", "space", 11, "");
    let down = ("diskBelowWarn", "space", 31, "");
    let good = [up, down];
    assert_eq!(judged(&good), 0, "what happened was told");
    assert_eq!(judged(&[]), 2, "two crossings were not told");
    assert_eq!(judged(&[up]), 1, "one was not told");
    assert_eq!(judged(&[up, ("diskBelowWarn", "space", 41, "")]), 2, "late");
    let with = |more| judged(&[up, down, more]);
    assert_eq!(with(("diskFull", "space", 50, "")), 1, "no such crossing");
    for name in NEVER {
        assert_eq!(with((name, "access", 50, "")), 1, "{name}");
    }
    assert_eq!(with(("diskSlow", "latency", 90, slow)), 1, "it was fast");
    assert_eq!(with(("diskSlow", "latency", 111, slow)), 0, "it was slow");
    assert_eq!(with(("diskHung", "access", 111, hung)), 1, "nothing held");
    assert_eq!(with(("diskHung", "access", 216, hung)), 0, "it was held");
    let unlink = slow.replace("sync", "unlink");
    let unlink = ("diskSlow", "latency", 111, unlink.as_str());
    assert_eq!(with(unlink), 1, "another step was slow");
}

/// The judge of outliers: six disks, of which one takes 48 ms for each sync, and memory, which is no disk.
pub(crate) fn judge_knows_outliers(_: &Bench) {
    let roots: Vec<PathBuf> = (0..7)
        .map(|number| format!("/disk{number}").into())
        .collect();
    let besides: Vec<Beside<'_>> = (0..)
        .zip(&roots)
        .map(|(number, root)| {
            let (kind, micros) = match number {
                0 => ("xfs", 48_000),
                6 => ("tmpfs", 1),
                other => ("ext4", 5000 + 500 * other),
            };
            let sync =
                |second: i64| Sample::of(second * 1000, "sync", Duration::from_micros(micros));
            Beside::with(kind, root, (0..200).map(sync).collect())
        })
        .collect();
    let judged = |disk: usize, message: &str| {
        let event = Event::parse(&json!({
            "seq": 1, "time": "1970-01-01T00:02:30Z", "event": "diskSlow", "axis": "latency",
            "dir": roots[disk].join("ledger"), "cause": {"message": message},
        }));
        let verdict = Verdict::of(&[event], &[], &besides);
        (verdict.slow_agreed, verdict.problems.len())
    };
    let said = |step: &str, own: &str, usual: &str| {
        format!(
            "{step} takes {own} in the median, siblings {usual} (5 disks of unknown kind): an outlier"
        )
    };
    let (good, bad) = ((1, 0), (0, 1));
    assert_eq!(judged(0, &said("sync", "48 ms", "6.5 ms")), good, "it is");
    assert_eq!(judged(0, &said("sync", "90 ms", "9.0 ms")), good, "roughly");
    assert_eq!(
        judged(1, &said("sync", "48 ms", "6.5 ms")),
        bad,
        "a sibling"
    );
    assert_eq!(
        judged(0, &said("read", "48 ms", "6.5 ms")),
        bad,
        "not reads"
    );
    assert_eq!(
        judged(0, &said("sync", "300 ms", "20 ms")),
        bad,
        "by far more"
    );
    assert_eq!(
        judged(0, &said("sync", "48 ms", "2.0 ms")),
        bad,
        "usual is more"
    );
    assert_eq!(judged(6, &said("sync", "48 ms", "6.5 ms")), bad, "memory");
    assert_eq!(judged(0, "takes long: an outlier"), bad, "without a figure");
}

//! Topics as text, and what a visit would give back.

use super::*;

const HOUR: Millis = 3_600_000;
const MB: u64 = 1 << 20;

const NOW: Millis = 1000 * HOUR;

fn ago(hours: &str) -> Millis {
    NOW - hours.parse::<Millis>().unwrap() * HOUR
}

fn listed(ledger: &str) -> ListedLedger {
    let (id, rest) = ledger.split_once(':').unwrap_or((ledger, ""));
    let (size, closed) = rest.split_once('@').unwrap_or((rest, ""));
    let megabytes = size.trim_end_matches('s').parse().unwrap_or(0);
    ListedLedger {
        id: id.parse().unwrap(),
        entries: if rest.is_empty() { 0 } else { 10 },
        size: megabytes * MB,
        closed_at: (!closed.is_empty()).then(|| ago(closed)),
        gone_to_storage: size.ends_with('s'),
    }
}

fn last(text: &str) -> Last {
    let closed = |entries, length, since| Last::Closed {
        entries,
        length,
        since,
    };
    match text.split_once('@') {
        None if text == "empty" => closed(0, 0, NOW),
        None => Last::Unknown,
        Some(("open", hours)) => Last::Open { since: ago(hours) },
        Some((size, hours)) => closed(10, size.parse::<u64>().unwrap() * MB, ago(hours)),
    }
}

fn slowest(text: &str) -> Slowest {
    match text.split_once(':') {
        None if text == "none" => Slowest::None,
        None => Slowest::Unknown,
        Some((ledger, entry)) => Slowest::At(Position {
            ledger: ledger.parse().unwrap(),
            entry: entry.parse().ok(),
        }),
    }
}

fn policy(text: &str) -> Policy {
    let mut numbers = text.split_whitespace().map(|n| n.parse::<i64>().unwrap());
    let (hours, size) = (numbers.next().unwrap(), numbers.next().unwrap());
    let ttl = numbers.next().map(|hours| hours.unsigned_abs() * 3600);
    Policy::of(hours * 60, size, ttl)
}

/// `list | last | slowest | policy`: ledgers as `id:megabytes@hours ago` (10 entries each, `s` for one that was moved to other
/// storage), the last as `empty`, or `open` or megabytes and hours, the slowest as `none`, `?` or `ledger:entry`, the
/// policy as hours, megabytes and hours to live.
fn told(line: &str, min_gain: u64) -> String {
    let parts: Vec<_> = line.split('|').map(str::trim).collect();
    let list: Vec<_> = parts[0].split_whitespace().map(listed).collect();
    let facts = Facts {
        list: &list,
        last: last(parts[1]),
        slowest: slowest(parts[2]),
        policy: policy(parts[3]),
        now: NOW,
    };
    let gain = match judge(&facts, min_gain) {
        Verdict::Leave(why) => return format!("{line} => no: {why}"),
        Verdict::Visit(gain) => gain,
    };
    let later = match (gain.starts, gain.later) {
        (false, _) => String::new(),
        (true, Some(later)) => format!(", {} MB later", later / MB),
        (true, None) => ", some later".to_owned(),
    };
    let expire = gain
        .expire
        .map_or(String::new(), |seconds| format!(", expire {seconds}"));
    let (ledgers, megabytes, why) = (gain.ledgers, gain.bytes / MB, gain.why.as_str());
    format!("{line} => {ledgers} ledgers, {megabytes} MB{later}{expire}: {why}")
}

fn all(lines: &str) -> String {
    let lines = lines.trim().lines().map(|line| told(line.trim(), 1));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn what_was_measured() {
    // The lab's four topics, with their retention as an hour: all acknowledged, no subscription, stuck in the second ledger,
    // and loaded when the broker died.
    insta::assert_snapshot!(all("
        1:10@9 2:10@8 3:10@7 4 | 5@6 | 4:9 | 1 -1
        1:10@9 2:10@8 3:10@7 4 | 5@6 | none | 1 -1
        1:10@9 2:10@8 3:10@7 4 | 5@6 | 2:4 | 1 -1
        1:10@9 2:10@8 3:10@7 4 | open@6 | ? | 1 -1
        4:5@2 29 | empty | 4:9 | 1 -1
        4:5@0 29 | empty | 4:9 | 1 -1
        29 | empty | 7:4 | 1 -1
        2:10@8 3:10@7 4 | empty | 2:4 | 1 -1 1
    "), @"
    1:10@9 2:10@8 3:10@7 4 | 5@6 | 4:9 | 1 -1 => 3 ledgers, 30 MB, 5 MB later: older than retention
    1:10@9 2:10@8 3:10@7 4 | 5@6 | none | 1 -1 => 3 ledgers, 30 MB, 5 MB later: older than retention
    1:10@9 2:10@8 3:10@7 4 | 5@6 | 2:4 | 1 -1 => 1 ledgers, 10 MB: older than retention
    1:10@9 2:10@8 3:10@7 4 | open@6 | ? | 1 -1 => 3 ledgers, 30 MB, some later: older than retention, if no subscription needs it
    4:5@2 29 | empty | 4:9 | 1 -1 => 1 ledgers, 5 MB: older than retention
    4:5@0 29 | empty | 4:9 | 1 -1 => no: nothing in it is beyond retention
    29 | empty | 7:4 | 1 -1 => no: there is nothing in it
    2:10@8 3:10@7 4 | empty | 2:4 | 1 -1 1 => 2 ledgers, 20 MB, expire 3600: older than retention and the time of life of its messages
    ");
}

#[test]
fn by_age() {
    insta::assert_snapshot!(all("
        1:10@9 2:10@2 3 | empty | none | 5 -1
        1:10@5 2 | empty | none | 5 -1
        1:10@9 2 | empty | none | -1 -1
        1:10@9 2:10@9 3 | empty | none | 0 0
        1:10 2:10@9 3 | empty | none | 5 -1
        1 | 7@9 | none | 5 -1
        1 | 7@4 | none | 5 -1
        1 | 7@9 | none | 0 0
        1 | open@9 | none | 5 -1
        1 | open@4 | none | 5 -1
        1 | ? | ? | 5 -1
        1:10s@9 2:3@9 3 | empty | none | 5 -1
    "), @"
    1:10@9 2:10@2 3 | empty | none | 5 -1 => 1 ledgers, 10 MB: older than retention
    1:10@5 2 | empty | none | 5 -1 => no: nothing in it is beyond retention
    1:10@9 2 | empty | none | -1 -1 => no: it keeps everything for ever
    1:10@9 2:10@9 3 | empty | none | 0 0 => 2 ledgers, 20 MB: older than retention
    1:10 2:10@9 3 | empty | none | 5 -1 => no: nothing in it is beyond retention
    1 | 7@9 | none | 5 -1 => 0 ledgers, 0 MB, 7 MB later: its last ledger begins to age with a visit, and goes with a second one
    1 | 7@4 | none | 5 -1 => no: nothing in it is beyond retention
    1 | 7@9 | none | 0 0 => 1 ledgers, 7 MB: older than retention
    1 | open@9 | none | 5 -1 => 0 ledgers, 0 MB, some later: its last ledger begins to age with a visit, and goes with a second one
    1 | open@4 | none | 5 -1 => no: nothing in it is beyond retention
    1 | ? | ? | 5 -1 => 0 ledgers, 0 MB, some later: its last ledger begins to age with a visit, and goes with a second one
    1:10s@9 2:3@9 3 | empty | none | 5 -1 => 2 ledgers, 3 MB: older than retention
    ");
}

#[test]
fn by_size() {
    insta::assert_snapshot!(all("
        1:10@1 2:10@1 3 | 5@1 | none | -1 10
        1:10@1 2:10@1 3 | 5@1 | none | -1 15
        1:10@1 2:10@1 3 | 5@1 | none | -1 16
        1:10@1 2:10@1 3 | 5@1 | 1:3 | -1 1
        1:10@1 2:10@1 3 | 5@1 | 1:9 | -1 1
        1:10@9 2:10@1 3 | empty | none | 5 100
    "), @"
    1:10@1 2:10@1 3 | 5@1 | none | -1 10 => 1 ledgers, 10 MB: over the size of retention
    1:10@1 2:10@1 3 | 5@1 | none | -1 15 => 1 ledgers, 10 MB: over the size of retention
    1:10@1 2:10@1 3 | 5@1 | none | -1 16 => no: nothing in it is beyond retention
    1:10@1 2:10@1 3 | 5@1 | 1:3 | -1 1 => no: a subscription has not acknowledged it
    1:10@1 2:10@1 3 | 5@1 | 1:9 | -1 1 => 1 ledgers, 10 MB: over the size of retention
    1:10@9 2:10@1 3 | empty | none | 5 100 => 1 ledgers, 10 MB: older than retention
    ");
}

#[test]
fn by_subscriptions_and_time_of_life() {
    insta::assert_snapshot!(all("
        1:10@9 2:10@9 3 | empty | 1: | 5 -1
        1:10@9 2:10@9 3 | empty | 1:9 | 5 -1
        1:10@9 2:10@9 3 | empty | 0:7 | 5 -1
        1:10@9 2:10@9 3 | empty | 7:4 | 5 -1
        1:10@9 2:10@9 3 | empty | 1: | 5 -1 3
        1:10@9 2:10@9 3 | empty | 1: | 5 -1 4
        1:10@9 2:10@9 3 | empty | ? | 5 -1 3
        1:10@9 2:10@9 3 | empty | ? | 5 -1 4
        1:10@1 2:10@1 3 | empty | ? | -1 1
        1 | 7@9 | 1:8 | 5 -1
        1 | 7@9 | 1:9 | 5 -1
        1 | 7@9 | 1:8 | 5 -1 2
    "), @"
    1:10@9 2:10@9 3 | empty | 1: | 5 -1 => no: a subscription has not acknowledged it
    1:10@9 2:10@9 3 | empty | 1:9 | 5 -1 => 1 ledgers, 10 MB: older than retention
    1:10@9 2:10@9 3 | empty | 0:7 | 5 -1 => no: a subscription has not acknowledged it
    1:10@9 2:10@9 3 | empty | 7:4 | 5 -1 => 2 ledgers, 20 MB: older than retention
    1:10@9 2:10@9 3 | empty | 1: | 5 -1 3 => 2 ledgers, 20 MB, expire 10800: older than retention and the time of life of its messages
    1:10@9 2:10@9 3 | empty | 1: | 5 -1 4 => no: a subscription has not acknowledged it
    1:10@9 2:10@9 3 | empty | ? | 5 -1 3 => 2 ledgers, 20 MB, expire 10800: older than retention and the time of life of its messages
    1:10@9 2:10@9 3 | empty | ? | 5 -1 4 => 2 ledgers, 20 MB: older than retention, if no subscription needs it
    1:10@1 2:10@1 3 | empty | ? | -1 1 => no: a subscription has not acknowledged it
    1 | 7@9 | 1:8 | 5 -1 => no: a subscription has not acknowledged it
    1 | 7@9 | 1:9 | 5 -1 => 0 ledgers, 0 MB, 7 MB later: its last ledger begins to age with a visit, and goes with a second one
    1 | 7@9 | 1:8 | 5 -1 2 => 0 ledgers, 0 MB, 7 MB later, expire 7200: its last ledger begins to age with a visit, and goes with a second one
    ");
}

#[test]
fn a_visit_that_gives_back_too_little_is_not_worth_it() {
    let line = "1:10@9 2:10@9 3 | 5@9 | none | 5 -1";
    insta::assert_snapshot!(told(line, 25 * MB), @"1:10@9 2:10@9 3 | 5@9 | none | 5 -1 => 2 ledgers, 20 MB, 5 MB later: older than retention");
    insta::assert_snapshot!(told(line, 26 * MB), @"1:10@9 2:10@9 3 | 5@9 | none | 5 -1 => no: a visit would give back too little");
    // What is not known is worth one visit.
    insta::assert_snapshot!(told("1 | open@9 | none | 5 -1", 26 * MB), @"1 | open@9 | none | 5 -1 => 0 ledgers, 0 MB, some later: its last ledger begins to age with a visit, and goes with a second one");
}

#[test]
fn a_topic_is_left_alone_for_a_while() {
    let gain = Gain {
        bytes: 1,
        ledgers: 1,
        later: None,
        starts: false,
        why: Why::Age,
        expire: None,
    };
    let only_starts = Gain { ledgers: 0, ..gain };
    let due = |past: Option<(Millis, u32, bool)>, gain: &Gain| {
        let past = past.map(|(hours, fruitless, started)| Past {
            at: -hours * HOUR,
            fruitless,
            started,
        });
        is_due(past, gain, 0, 6 * HOUR)
    };
    assert!(due(None, &gain));
    assert!(!due(Some((5, 0, false)), &gain) && due(Some((6, 0, false)), &gain));
    assert!(!due(Some((11, 1, false)), &gain) && due(Some((12, 1, false)), &gain));
    assert!(!due(Some((191, 9, false)), &gain) && due(Some((192, 9, false)), &gain));
    // The second visit of a pair does not wait, the first of another pair does.
    assert!(due(Some((1, 0, true)), &gain) && !due(Some((1, 0, true)), &only_starts));
}

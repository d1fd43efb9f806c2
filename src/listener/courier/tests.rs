//! An hour of trouble with a real server and a clock that the test moves: what is tried when, and that
//! nothing is lost.

use super::*;
use crate::document::{EventDocument, Host};
use crate::listener::testing::{all_full, full, wait_until};
use crate::listener::tests::Memory;
use crate::listener::webhook::WebhookOptions;
use crate::listener::webhook::tests::{Said, Server, options};

const HOUR: Duration = Duration::from_secs(3600);

/// What the server says to be left alone for longer than the courier would by itself.
const LONGER: Duration = Duration::from_secs(90);

/// One request: when, of which event, and whether it was taken.
type Asked = Arc<Mutex<Vec<(Elapsed, EventDocument, bool)>>>;

/// Is in all kinds of trouble for an hour, and then well.
fn troubled(clock: &Clock, asked: &Asked) -> Server {
    let (clock, asked) = (clock.clone(), Arc::clone(asked));
    Server::start(move |number, request| {
        let now = clock.elapsed();
        let well = HOUR <= now;
        let event = serde_json::from_str(&request.body).unwrap();
        lock(&asked).push((now, event, well));
        match number % 16 {
            _ if well => Said::from("200 OK"),
            0 => Said::Nothing,
            1 | 2 => Said::Bytes("HTTP/1.1 2"),
            3 => Said::Status(format!("429 Slow\r\nretry-after: {}", LONGER.as_secs())),
            _ => Said::from("503 Unavailable"),
        }
    })
}

/// Moves the clock to this instant, from one try to the next.
fn play(courier: &Courier, clock: &Clock, until: Elapsed) {
    loop {
        let mut next = None;
        wait_until("all that is due was done", || {
            let state = lock(&courier.shared.state);
            next = state.next_try().map(|(at, _)| at);
            let due = next.is_some_and(|at| at <= clock.elapsed());
            state.running() == 0 && !state.backlog.has_ready() && !due
        });
        let now = clock.elapsed();
        let Some(at) = next.filter(|at| *at <= until) else {
            clock.advance(until.saturating_sub(now));
            return;
        };
        // To the next millisecond, which is what this clock counts in.
        clock.advance(at.saturating_sub(now) + Duration::from_millis(1));
        // With the lock: it either waits, or has not looked at the clock yet.
        let _state = lock(&courier.shared.state);
        courier.shared.wake.notify_one();
    }
}

#[test]
fn a_server_that_is_in_trouble_for_an_hour_gets_everything_in_order() {
    let (clock, store, asked) = (Clock::manual(), Memory::new(true), Asked::default());
    let server = troubled(&clock, &asked);
    let brief = WebhookOptions {
        timeout: Duration::from_millis(300),
        ..options(&server.url)
    };
    let around = Surroundings {
        outbox: Arc::clone(&store) as Arc<dyn Outbox>,
        clock: clock.clone(),
        limits: Limits::default(),
        settled: watch::Sender::new(()),
    };
    let courier = Courier::start(Receiver::Webhook(Webhook::new(brief).unwrap()), around);
    // Each directory and the node change once in five minutes.
    let mut seq = 0;
    for step in 0..13 {
        for event in [full, |seq, _| full(seq, "/mnt/l2"), |seq, _| all_full(seq)] {
            seq += 1;
            courier.push(seq, Notice::new(&event(seq, "/mnt/l1"), &Host::default()));
        }
        assert!(
            courier.view().pending <= 9,
            "one on its way and two behind it"
        );
        play(&courier, &clock, (step + 1) * HOUR / 12);
    }
    let view = courier.view();
    assert_eq!((view.failed, view.pending), (0, 0), "{view:?}");
    assert_eq!(view.delivered + view.coalesced, seq);
    let mut acknowledged = store.acknowledged();
    acknowledged.sort_unstable();
    assert_eq!(acknowledged, (1..=seq).collect::<Vec<_>>());
    let asked = lock(&asked);
    for (first, lane) in (1..).zip([Some("/mnt/l1"), Some("/mnt/l2"), None]) {
        let of_lane = asked
            .iter()
            .filter(|(_, event, _)| event.dir.as_deref() == lane);
        let of_lane: Vec<_> = of_lane.collect();
        assert!(of_lane.is_sorted_by_key(|(_, event, _)| event.seq));
        let mut taken: Vec<_> = of_lane.iter().filter(|(_, _, taken)| *taken).collect();
        // At least once: an answer may have come too late.
        taken.dedup_by_key(|(_, event, _)| event.seq);
        assert_eq!(taken[0].1.seq, first, "the first was kept for an hour");
        let told: u64 = taken
            .iter()
            .map(|(_, event, _)| 1 + u64::from(event.coalesced))
            .sum();
        assert_eq!(told, 13, "what was left out is said");
        let tries = of_lane.iter().filter(|(_, event, _)| event.seq == first);
        let tries: Vec<Elapsed> = tries.map(|(at, _, _)| *at).collect();
        assert!((40..100).contains(&tries.len()), "{tries:?}");
        let waits = tries.windows(2).map(|pair| pair[1] - pair[0]);
        let within =
            |wait| Duration::from_millis(750) <= wait && wait < LONGER + Duration::from_secs(1);
        assert!(waits.clone().all(within), "{tries:?}");
        let usual = Limits::default().retry_limit + Duration::from_secs(1);
        assert!(
            waits.clone().any(|wait| usual < wait),
            "it asked for more: {tries:?}"
        );
    }
}

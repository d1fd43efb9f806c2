//! How many bytes a bookie may be asked for, or sent, in a second. Each bookie has a bucket for each of the two, all of
//! one size, which can be changed while bytes wait for their turn. Turns are taken in the order of asking.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::Clock;

/// The pace is this part of the limit: with what is saved, and the bytes of one entry, no second has more than the limit.
const OF_LIMIT: f64 = 0.975;

/// Turns that nobody took can be taken afterwards for this part of a second, in which a timer is late now and then.
const SAVED: f64 = 0.01;

/// The longest sleep between two looks: a wait that is in truth longer is looked at again.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// What is done with the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Read from a source.
    Read,
    /// Written to a target.
    Write,
}

/// The buckets of all bookies.
#[derive(Debug)]
pub struct Throttle {
    clock: Clock,
    /// Bytes a second of each bucket; 0 is no limit.
    limit: watch::Receiver<u64>,
    lines: Mutex<BTreeMap<(String, Way), Arc<Line>>>,
}

/// One bucket, and those who wait before it.
#[derive(Debug)]
pub struct Line {
    clock: Clock,
    limit: watch::Receiver<u64>,
    turn: tokio::sync::Mutex<()>,
    bucket: Mutex<Bucket>,
}

/// Bytes that were let through and not yet paid for by time.
#[derive(Debug, Default)]
struct Bucket {
    owed: f64,
    at: Duration,
}

impl Bucket {
    /// How long the next bytes have to wait.
    fn wait(&mut self, now: Duration, limit: u64) -> Duration {
        let pace = limit as f64 * OF_LIMIT;
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.owed = (self.owed - pace * passed).max(-pace * SAVED);
        if limit == 0 {
            // A limit that is set later starts afresh.
            self.owed = 0.0;
        }
        if self.owed <= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(self.owed / pace)
            .unwrap_or(LONGEST_SLEEP)
            .min(LONGEST_SLEEP)
    }
}

impl Throttle {
    /// So many bytes a second for each bookie and way, as `limit` says now and later; 0 is no limit.
    #[must_use]
    pub fn new(clock: Clock, limit: watch::Receiver<u64>) -> Throttle {
        Throttle {
            clock,
            limit,
            lines: Mutex::new(BTreeMap::new()),
        }
    }

    /// The bucket of a bookie.
    #[must_use]
    pub fn line(&self, bookie: &str, way: Way) -> Arc<Line> {
        let mut lines = lock(&self.lines);
        let line = lines.entry((bookie.to_owned(), way)).or_insert_with(|| {
            Arc::new(Line {
                clock: self.clock.clone(),
                limit: self.limit.clone(),
                turn: tokio::sync::Mutex::default(),
                bucket: Mutex::default(),
            })
        });
        Arc::clone(line)
    }
}

impl Line {
    /// Waits for the turn of so many bytes. Whoever is dropped meanwhile takes none.
    pub async fn take(&self, bytes: usize) {
        let _turn = self.turn.lock().await;
        let mut limit = self.limit.clone();
        loop {
            let now = *limit.borrow_and_update();
            let wait = lock(&self.bucket).wait(self.clock.elapsed(), now);
            if wait.is_zero() {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                changed = limit.changed() => if changed.is_err() {
                    // Nobody will change it any more.
                    tokio::time::sleep(wait).await;
                },
            }
        }
        self.change(bytes, 1.0);
    }

    /// They were more than was known when they were taken.
    pub fn add(&self, bytes: usize) {
        self.change(bytes, 1.0);
    }

    /// They were fewer.
    pub fn give_back(&self, bytes: usize) {
        self.change(bytes, -1.0);
    }

    fn change(&self, bytes: usize, sign: f64) {
        lock(&self.bucket).owed += sign * bytes as f64;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When entries of those sizes go, one after the other, after a pause.
    fn times(limit: u64, sizes: &[u64]) -> Vec<(Duration, u64)> {
        let (mut bucket, mut now) = (Bucket::default(), Duration::from_secs(100));
        let go = |size: &u64| {
            loop {
                let wait = bucket.wait(now, limit);
                if wait.is_zero() {
                    break;
                }
                // A timer is late by up to a millisecond.
                now += wait + Duration::from_micros(size % 1000);
            }
            bucket.owed += *size as f64;
            (now, *size)
        };
        sizes.iter().map(go).collect()
    }

    #[test]
    fn no_second_has_more_bytes_than_the_limit_and_one_entry() {
        let mut random = fastrand::Rng::with_seed(1);
        for (limit, largest) in [(1_000_000, 1_000), (50_000_000, 1 << 20), (100_000, 5_000)] {
            let sizes: Vec<_> = (0..3000).map(|_| random.u64(1..largest)).collect();
            let went = times(limit, &sizes);
            let (mut last, mut sum, mut most) = (0, 0, 0);
            for (first, (from, size)) in went.iter().enumerate() {
                while last < went.len() && went[last].0 < *from + Duration::from_secs(1) {
                    sum += went[last].1;
                    last += 1;
                }
                assert!(first < last);
                most = most.max(sum);
                sum -= size;
            }
            assert!(
                most <= limit + largest,
                "{most} bytes in a second of {limit}"
            );
            let took = (went[2999].0 - went[0].0).as_secs_f64();
            let rate = sizes.iter().sum::<u64>() as f64 / took / limit as f64;
            assert!(0.95 < rate && rate < 1.0, "{rate} of {limit}");
        }
    }

    #[test]
    fn a_pause_is_followed_by_no_burst() {
        let mut bucket = Bucket::default();
        assert_eq!(bucket.wait(Duration::from_secs(60), 1000), Duration::ZERO);
        bucket.owed += 100.0;
        let wait = bucket.wait(Duration::from_secs(60), 1000);
        assert!(Duration::from_millis(80) < wait, "{wait:?}");
    }

    fn throttle(limit: u64) -> (watch::Sender<u64>, Throttle, Clock) {
        let clock = Clock::manual();
        let (sender, receiver) = watch::channel(limit);
        (sender, Throttle::new(clock.clone(), receiver), clock)
    }

    #[tokio::test]
    async fn a_limit_that_is_changed_frees_those_who_wait() {
        let (limit, throttle, _) = throttle(1);
        let line = throttle.line("a:1", Way::Write);
        line.take(1_000_000).await;
        // A fortnight, by a clock that stands still.
        let waits = tokio::spawn(async move { line.take(1).await });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        limit.send_replace(0);
        let freed = tokio::time::timeout(Duration::from_secs(5), waits).await;
        freed
            .expect("it still waits 5 s after the limit went")
            .unwrap();
    }

    #[tokio::test]
    async fn a_limit_binds_each_bookie_and_way_alone() {
        let (_limit, throttle, clock) = throttle(1000);
        for line in [("a:1", Way::Read), ("a:1", Way::Write), ("b:1", Way::Read)] {
            throttle.line(line.0, line.1).take(5000).await;
        }
        let line = throttle.line("a:1", Way::Read);
        let wait = |line: &Line| lock(&line.bucket).wait(clock.elapsed(), 1000);
        assert!(Duration::from_secs(5) < wait(&line));
        line.give_back(4000);
        assert!(wait(&line) < Duration::from_millis(1100));
        line.add(500);
        clock.advance(Duration::from_secs(1));
        assert!(!wait(&line).is_zero());
        clock.advance(Duration::from_secs(1));
        assert!(wait(&line).is_zero());
    }
}

//! Whether the cluster answers slower than when a pass began, and by how much the pass goes slower for it: twice as slow
//! with each look that finds it slow, and back step by step when it is not.

use std::time::Duration;

/// Answers of which the median is taken: an odd one out says nothing.
const WINDOW: usize = 9;

/// So many times the first median is slow,
const TIMES: u32 = 3;

/// and no less than this above it, which is noise where an answer takes a millisecond.
const ABOVE: Duration = Duration::from_millis(50);

/// Slowest pace: at one topic a second, one each half minute.
const MOST: u32 = 32;

/// One who answers.
#[derive(Debug, Clone, Default)]
struct Lane {
    first: Vec<Duration>,
    recent: Vec<Duration>,
}

impl Lane {
    fn add(&mut self, took: Duration) {
        if self.first.len() < WINDOW {
            self.first.push(took);
            return;
        }
        if self.recent.len() == WINDOW {
            self.recent.remove(0);
        }
        self.recent.push(took);
    }

    fn slow(&self) -> Option<(Duration, Duration)> {
        // Half a window is enough to see it coming.
        if self.recent.len() <= WINDOW / 2 {
            return None;
        }
        let (first, now) = (median(&self.first), median(&self.recent));
        (first * TIMES < now && first + ABOVE < now).then_some((first, now))
    }
}

fn median(of: &[Duration]) -> Duration {
    let mut sorted = of.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// Who answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The metadata store.
    Store,
    /// A broker.
    Broker,
}

/// Holds a pass back.
#[derive(Debug, Clone)]
pub struct Strain {
    store: Lane,
    broker: Lane,
    times: u32,
}

impl Default for Strain {
    fn default() -> Strain {
        Strain {
            store: Lane::default(),
            broker: Lane::default(),
            times: 1,
        }
    }
}

impl Strain {
    /// An answer, and how long it took.
    pub fn add(&mut self, source: Source, took: Duration) {
        match source {
            Source::Store => self.store.add(took),
            Source::Broker => self.broker.add(took),
        }
    }

    /// How many times slower the next topic comes, and why.
    pub fn look(&mut self) -> (u32, Option<String>) {
        let store = self.store.slow().map(|slow| ("ZooKeeper", slow));
        let slow = store.or_else(|| self.broker.slow().map(|slow| ("brokers", slow)));
        let Some((who, (first, now))) = slow else {
            self.times = (self.times / 2).max(1);
            return (self.times, None);
        };
        self.times = (self.times * 2).min(MOST);
        let why = format!(
            "{who} answers in {} ms instead of {} ms: {} times slower",
            now.as_millis(),
            first.as_millis(),
            self.times
        );
        (
            self.times,
            Some(why.replace("brokers answers", "brokers answer")),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_gets_slower_is_left_more_time() {
        let mut strain = Strain::default();
        let mut told = Vec::new();
        let mut look = |source, millis: &[u64]| {
            for millis in millis {
                strain.add(source, Duration::from_millis(*millis));
                let (times, why) = strain.look();
                let line = format!("{times} {}", why.unwrap_or_default());
                if told.last() != Some(&line) {
                    told.push(line);
                }
            }
        };
        look(Source::Store, &[2; 20]);
        look(Source::Broker, &[10; 20]);
        // One that is late says nothing, and thrice a millisecond is nothing.
        look(Source::Store, &[900, 2, 2, 8, 8, 8, 8, 8, 8, 8, 8]);
        look(Source::Broker, &[400; 9]);
        look(Source::Broker, &[10; 12]);
        insta::assert_snapshot!(told.join("\n"), @"
        1 
        2 brokers answer in 400 ms instead of 10 ms: 2 times slower
        4 brokers answer in 400 ms instead of 10 ms: 4 times slower
        8 brokers answer in 400 ms instead of 10 ms: 8 times slower
        16 brokers answer in 400 ms instead of 10 ms: 16 times slower
        32 brokers answer in 400 ms instead of 10 ms: 32 times slower
        16 
        8 
        4 
        2 
        1 
        ");
    }
}

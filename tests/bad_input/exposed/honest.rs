//! The honest client: asks for the metrics again and again, each time over a new connection, and
//! remembers how long it waited and how regularly the loop turned.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::*;

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(20);

/// A question that takes longer has failed.
const LOST: Duration = Duration::from_secs(10);

const LAST_TURN: &str = "dirkeeper_loop_last_turn_timestamp_seconds ";

pub(super) struct Honest {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Heard>,
}

/// What it was answered.
#[derive(Default)]
pub(super) struct Heard {
    pub(super) took: Vec<Duration>,
    pub(super) failed: Vec<String>,
    pub(super) longest_turn: Duration,
}

impl Honest {
    pub(super) fn start(port: u16) -> Honest {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let (mut heard, mut turns) = (Heard::default(), BTreeSet::new());
            while !stopped.load(Ordering::Relaxed) || heard.took.len() < 50 {
                let clock = Clock::start();
                match ask(port) {
                    Ok(turn) => {
                        heard.took.push(clock.elapsed());
                        turns.insert(turn);
                    }
                    Err(error) => heard
                        .failed
                        .push(format!("{error} after {:?}", clock.elapsed())),
                }
                thread::park_timeout(PAUSE);
            }
            let pairs = turns.iter().zip(turns.iter().skip(1));
            let longest = pairs.map(|(one, next)| next - one).max();
            heard.longest_turn = Duration::from_millis(longest.unwrap_or_default());
            heard
        });
        Honest { stop, thread }
    }

    pub(super) fn stop(self) -> Heard {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// When the loop turned last, in milliseconds.
fn ask(port: u16) -> std::io::Result<u64> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(LOST))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let turn = answer.lines().find_map(|line| line.strip_prefix(LAST_TURN));
    let seconds = turn.and_then(|turn| turn.parse::<f64>().ok());
    let seconds = seconds.filter(|_| answer.starts_with("HTTP/1.1 200 "));
    let wrong = || std::io::Error::other(format!("not the metrics: {answer:.60}"));
    let millis = Duration::from_secs_f64(seconds.ok_or_else(wrong)?).as_millis();
    Ok(u64::try_from(millis).unwrap())
}

impl Heard {
    /// All but one of a hundred waited for less.
    pub(super) fn slowest_of_hundred(&self) -> Duration {
        let mut took = self.took.clone();
        took.sort_unstable();
        took[(took.len() * 99 / 100).min(took.len() - 1)]
    }
}

impl fmt::Display for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} scrapes, p99 {:?}, longest turn {:?}",
            self.took.len(),
            self.slowest_of_hundred(),
            self.longest_turn
        )
    }
}

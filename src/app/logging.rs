//! The log: lines to standard error through a bounded queue with its own thread, because standard
//! error goes to some disk or to a pipe that nobody reads. What does not fit is counted, never
//! waited for.

use std::io::IsTerminal;

use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::layer::SubscriberExt;

use crate::config::LogLevel;
use crate::document::printable;

/// Lines that may wait. A line is at most some hundred bytes, so this is less than a megabyte in
/// the worst case, and more than every directory of a large node changing twice.
const QUEUE: usize = 2048;

/// Keeps the log's thread; dropping it writes what waits, for at most about a second.
pub struct Log {
    counter: ErrorCounter,
    _guard: WorkerGuard,
}

impl Log {
    /// Counts the lines that did not fit.
    pub(super) fn dropped(&self) -> super::handles::Dropped {
        let counter = self.counter.clone();
        std::sync::Arc::new(move || u64::try_from(counter.dropped_lines()).unwrap_or(u64::MAX))
    }
}

/// Starts the log; lines are lost once it is dropped.
#[must_use]
pub fn start(level: LogLevel) -> Log {
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(QUEUE)
        .thread_name("log")
        .finish(std::io::stderr());
    let counter = writer.error_counter();
    let colours = std::io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    // Whatever a directory, an error or a hook is called or says: one line, and no other.
    let fields = debug_fn(|writer, field, value| {
        let text = printable(&format!("{value:?}"));
        match field.name() {
            "message" => write!(writer, "{text}"),
            name => write!(writer, "{name}={text}"),
        }
    });
    let subscriber = tracing_subscriber::fmt()
        .with_writer(writer)
        .with_max_level(level)
        .with_ansi(colours)
        .with_target(false)
        .fmt_fields(fields.delimited(" "))
        .finish();
    // The client of ZooKeeper speaks of each try; what matters of that is said by `cluster`.
    let chatty = LevelFilter::DEBUG <= level;
    let subscriber = subscriber.with(filter_fn(move |line| {
        chatty || !line.target().starts_with("zookeeper_client")
    }));
    // A second start within one process (tests) keeps the first log.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Log {
        counter,
        _guard: guard,
    }
}

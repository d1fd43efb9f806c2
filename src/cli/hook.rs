//! `hook`: lists the hooks and webhooks of a configuration, and runs one of them for an event that
//! never happened.

use std::path::PathBuf;
use std::time::Duration;

use super::args::{HookCommand, HookTestArguments};
use super::exit::{Exit, Failure};
use super::settings::load;
use super::terminal::{print, printable};
use crate::app;
use crate::clock::Clock;
use crate::config::{Config, WebhookConfig};
use crate::health::dir::Role;
use crate::health::event::{Event, EventKind, NodeSummary};
use crate::health::moment::Timestamp;
use crate::health::observation::{Operation, Space};
use crate::health::policy::Mode;
use crate::health::status::{Axis, Cause, Reason};
use crate::http_client::Url;
use crate::listener::hook::{Outcome, run_once};
use crate::listener::webhook::{Posted, post_once};
use crate::listener::{HookOptions, Verdict};

/// Runs the command.
///
/// # Errors
/// The configuration is not valid, there is no such hook, or the result cannot be written.
pub fn run(command: HookCommand) -> Result<Exit, Failure> {
    match command {
        HookCommand::List(arguments) => {
            let config = load(arguments.sources.into())?;
            print(&list(&app::hooks(&config), &config.webhooks))?;
            Ok(Exit::Ok)
        }
        HookCommand::Test(arguments) => test(arguments),
    }
}

fn test(arguments: HookTestArguments) -> Result<Exit, Failure> {
    let config = load(arguments.sources.into())?;
    let hooks = app::hooks(&config);
    let hook = hooks.iter().find(|hook| hook.name == arguments.name);
    let mut webhooks = config.webhooks.iter();
    let webhook = webhooks.find(|webhook| webhook.name == arguments.name);
    let (kind, events) = match (hook, webhook) {
        (Some(hook), _) => ("hook", &hook.events),
        (None, Some(webhook)) => ("webhook", &webhook.events),
        (None, None) => return Err(no_such_hook(&arguments.name, &config)),
    };
    if !events.is_empty() && !events.contains(&arguments.kind) {
        let name = arguments.kind.name();
        eprintln!(
            "dirkeeper: the agent would not run this {kind} for {name}: it is not in its events"
        );
    }
    let dir = config.dirs.first();
    let dir = dir.map(|dir| (dir.path.clone(), dir.role));
    let dir = dir.unwrap_or_else(|| (PathBuf::from("/mnt/made-up"), Role::Ledger));
    let event = made_up(arguments.kind, dir, Clock::start().now().wall);
    let host = app::host(&config);
    let (text, verdict) = match (hook, webhook) {
        (Some(hook), _) => ran(&run_once(hook, &event, &host)),
        (None, Some(webhook)) => {
            let webhook = app::webhook(webhook).map_err(anyhow::Error::from)?;
            posted(&post_once(&webhook, &event, &host))
        }
        (None, None) => return Err(no_such_hook(&arguments.name, &config)),
    };
    print(&text)?;
    Ok(match verdict {
        Verdict::Delivered => Exit::Ok,
        Verdict::Again | Verdict::Failed => Exit::FAILED,
    })
}

fn no_such_hook(name: &str, config: &Config) -> Failure {
    let hooks = config.hooks.iter().map(|hook| hook.name.as_str());
    let webhooks = config.webhooks.iter().map(|webhook| webhook.name.as_str());
    let names: Vec<&str> = hooks.chain(webhooks).collect();
    let failure = Failure::new(Exit::Usage, anyhow::anyhow!("no hook is named '{name}'"));
    if names.is_empty() {
        return failure.remedy("declare one in the configuration: [[hook]] or [[webhook]]");
    }
    failure.remedy(format!("one of: {}", names.join(", ")))
}

/// The hooks and webhooks, one a line.
fn list(hooks: &[HookOptions], webhooks: &[WebhookConfig]) -> String {
    // A command as the debug form quotes it, so that its words can be told apart. Of a URL where it
    // leads to: the rest may be a secret.
    let hooks = hooks.iter().map(|hook| {
        let what = format!("{:?}", hook.command);
        (&hook.name, &hook.events, hook.timeout, what)
    });
    let webhooks = webhooks.iter().map(|webhook| {
        let what = Url::parse(&webhook.url).map(|url| url.origin().ascii_serialization());
        let what = what.unwrap_or_default();
        (&webhook.name, &webhook.events, webhook.timeout, what)
    });
    let lines: Vec<_> = hooks.chain(webhooks).collect();
    if lines.is_empty() {
        return "no hooks\n".to_owned();
    }
    let width = lines.iter().map(|(name, ..)| name.chars().count()).max();
    let width = width.unwrap_or(0);
    let mut text = String::new();
    for (name, events, timeout, what) in lines {
        let events = events.iter().map(|kind| kind.name());
        let mut events = events.collect::<Vec<_>>().join(", ");
        if events.is_empty() {
            events.push_str("all events");
        }
        let timeout = humantime::format_duration(timeout);
        text.push_str(&format!(
            "{name:<width$}  {events}  within {timeout}  {what}\n"
        ));
    }
    text
}

fn ran(outcome: &Outcome) -> (String, Verdict) {
    let verdict = outcome.end.verdict();
    let output = (outcome.output.as_str(), outcome.output_dropped);
    let text = report(&outcome.end.to_string(), outcome.duration, verdict, output);
    (text, verdict)
}

fn posted(posted: &Posted) -> (String, Verdict) {
    let Posted {
        verdict,
        end,
        duration,
        text,
    } = posted;
    (report(end, *duration, *verdict, (text, 0)), *verdict)
}

/// How the run ended, what follows, and what it printed.
fn report(end: &str, duration: Duration, verdict: Verdict, output: (&str, u64)) -> String {
    let meaning = match verdict {
        Verdict::Delivered => "the event counts as delivered",
        Verdict::Again => "the event would be tried again later",
        Verdict::Failed => "the event would be counted as failed and not tried again",
    };
    let (output, dropped) = output;
    let seconds = duration.as_secs_f64();
    let mut text = format!("{end} after {seconds:.3} s: {meaning}\n");
    if !output.is_empty() {
        text.push_str("output:\n");
        for line in output.lines() {
            text.push_str(&format!("  {}\n", printable(line)));
        }
    }
    if dropped != 0 {
        text.push_str(&format!("  (and {dropped} bytes more)\n"));
    }
    text
}

/// An event of that kind as it might be, number 0, about the first directory that is watched.
fn made_up(kind: EventKind, (path, role): (PathBuf, Role), time: Timestamp) -> Event {
    let (axis, from, to, cause, operation) = story(kind);
    let of_node = axis.is_none();
    let reason = cause.map(|cause| Reason {
        cause,
        operation,
        errno: (cause == Cause::Io).then_some(5),
        message: format!("made up by 'dirkeeper hook test': {}", kind.meaning()),
    });
    Event {
        seq: 0,
        time,
        kind,
        severity: kind.severity(),
        dir: (!of_node).then(|| path.clone()),
        role: (!of_node).then_some(role),
        axis,
        from,
        to,
        coalesced: 0,
        reason,
        space: (!of_node).then_some(Space {
            size: 1 << 40,
            available: 1 << 35,
            inodes: 1 << 26,
            inodes_free: 1 << 25,
        }),
        node: node(kind, path, axis, to),
    }
}

/// How the directories would stand, the first one being the only one.
fn node(kind: EventKind, path: PathBuf, axis: Option<Axis>, to: Option<&str>) -> NodeSummary {
    let mut node = NodeSummary {
        wanted_mode: Some(Mode::ReadOnly),
        ..NodeSummary::default()
    };
    let list = match (axis, to) {
        (_, Some("ok" | "slow")) => &mut node.writable,
        _ if kind == EventKind::AllDisksWritable => &mut node.writable,
        (_, Some("almostFull")) => &mut node.almost_full,
        (Some(Axis::Access), Some("unknown")) => return NodeSummary::default(),
        (Some(Axis::Access), _) => &mut node.unusable,
        _ => &mut node.full,
    };
    list.push(path);
    if node.full.is_empty() && node.unusable.is_empty() {
        node.wanted_mode = Some(Mode::Writable);
        node.high_priority_writes = true;
    }
    node
}

type Story = (
    Option<Axis>,
    Option<&'static str>,
    Option<&'static str>,
    Option<Cause>,
    Operation,
);

/// What may have happened when an event of that kind is told.
fn story(kind: EventKind) -> Story {
    use EventKind as Kind;
    let told =
        |axis, from, to, cause, operation| (Some(axis), Some(from), Some(to), cause, operation);
    let bytes = Some(Cause::Bytes);
    let space = |from, to, cause| told(Axis::Space, from, to, cause, Operation::Statvfs);
    let access = |to, cause, operation| told(Axis::Access, "ok", to, Some(cause), operation);
    match kind {
        Kind::DiskAlmostFull | Kind::FillForecast => space("ok", "almostFull", bytes),
        Kind::DiskFull | Kind::Reminder => space("almostFull", "full", bytes),
        Kind::DiskWritable => space("full", "ok", None),
        Kind::DiskJustWritable => space("full", "almostFull", bytes),
        Kind::DiskBelowWarn => space("almostFull", "ok", None),
        Kind::BallastReleased => (Some(Axis::Space), None, None, bytes, Operation::Ballast),
        Kind::DiskFailed => access("failed", Cause::Io, Operation::Sync),
        Kind::DiskReadOnly => access("readOnly", Cause::ReadOnlyMount, Operation::Mountinfo),
        Kind::DiskHung => access("hung", Cause::Timeout, Operation::Sync),
        Kind::DiskVanished => access("vanished", Cause::Missing, Operation::Open),
        Kind::DiskReplaced => access("replaced", Cause::WrongDevice, Operation::Open),
        Kind::DiskUnknown => access("unknown", Cause::Prober, Operation::Prober),
        Kind::DiskRecovered => told(Axis::Access, "failed", "ok", None, Operation::Sync),
        Kind::DiskSlow => told(Axis::Latency, "normal", "slow", None, Operation::Sync),
        Kind::ModeWanted
        | Kind::ModeChanged
        | Kind::ModeMismatch
        | Kind::ModeClaimed
        | Kind::ModeReleased
        | Kind::ModeHeld => (
            None,
            Some("writable"),
            Some("readOnly"),
            None,
            Operation::Statvfs,
        ),
        Kind::JournalNotDraining | Kind::RestartWouldFail | Kind::RestartPossible => {
            (None, None, None, bytes, Operation::BookieFiles)
        }
        Kind::BookieDown
        | Kind::BookieUp
        | Kind::BookieRestarted
        | Kind::HighPriorityMismatch
        | Kind::CompactionSuspended
        | Kind::CompactionStalled
        | Kind::ForcedGcLoop => (None, None, None, Some(Cause::Bookie), Operation::Bookie),
        Kind::ClusterOverWarn | Kind::ClusterHeadroomLow | Kind::ClaimOrphaned => {
            (None, None, None, Some(Cause::Cluster), Operation::Bookie)
        }
        Kind::AnyDiskFull | Kind::AllDisksFull | Kind::AllDisksWritable | Kind::FatalError => {
            (None, None, None, None, Operation::Statvfs)
        }
    }
}

//! `reclaim scan`: reads everything, shows how far it is, and says what each ledger is.

use tokio::sync::watch;

use super::args::ScanArguments;
use super::cluster::{Cluster, of_state};
use super::known::{by_class, judged};
use super::office::{exit_of, of_looking, root, rules};
use super::progress::{Pace, Watcher};
use super::{args::ChoiceArguments, log};
use crate::cli::block_on;
use crate::cli::exit::{Exit, Failure};
use crate::reclaim::scan::{Options, Part, Progress, ScanError, Scanned, Sources, scan_with};
use crate::reclaim::state::State;

/// `reclaim scan`.
pub(super) fn scan(arguments: &ScanArguments) -> Result<Exit, Failure> {
    let _log = log();
    block_on::<_, Failure>(async {
        let cluster = match &arguments.snapshot {
            Some(file) => Cluster::of_file(&arguments.cluster, file)?,
            None => Cluster::open(&arguments.cluster).await?,
        };
        let state = cluster.state()?;
        let mut watcher = Watcher::new(cluster.clock.clone())?;
        let (part, gone) = (arguments.part.part(), &arguments.pulsar_gone);
        let scanned = scan_once(&cluster, &state, part.clone(), gone, &mut watcher).await?;
        if scanned.resumed {
            eprintln!("dirkeeper: went on with a scan that was interrupted");
        }
        let table = judged(&state, by_class(part), cluster.now())?;
        table.print(arguments.output, cluster.now())?;
        Ok(Exit::Ok)
    })
}

/// One complete scan, unless a signal ends it.
pub(super) async fn scan_once(
    cluster: &Cluster,
    state: &State,
    part: Option<Part>,
    gone: &[String],
    watcher: &mut Watcher,
) -> Result<Scanned, Failure> {
    let (progress, receiver) = watch::channel(Progress::default());
    let options = Options {
        all_clusters: cluster.all_clusters,
        gone: gone.to_vec(),
        part,
        snapshot_of: cluster.snapshot_of,
        clock_root: Some(root(cluster).to_owned()),
        rules: rules(&cluster.config, &ChoiceArguments::default()),
        ..Options::default()
    };
    let sources = Sources {
        ledgers: &cluster.ledgers,
        pulsars: &cluster.pulsars,
        entries: cluster.entries(),
    };
    let work = scan_with(state, sources, &options, &cluster.clock, &progress);
    let mut pace = Pace::new(cluster.clock.elapsed(), cluster.requests());
    let line = |now| pace.line(*receiver.borrow(), now, cluster.requests());
    let scanned = watcher.follow(work, line).await?;
    scanned.map_err(of_scan)
}

/// What keeps a scan from its end.
fn of_scan(error: ScanError) -> Failure {
    let exit = match &error {
        ScanError::Store { source, .. } => exit_of(source),
        ScanError::NoAnswer { .. } | ScanError::Unreachable { .. } => Exit::Unavailable,
        ScanError::NoLayout { .. }
        | ScanError::Layout { .. }
        | ScanError::NoInstance { .. }
        | ScanError::OtherCluster { .. }
        | ScanError::NotNamed { .. }
        | ScanError::Rebuilt { .. }
        | ScanError::Twice { .. }
        | ScanError::Copy { .. }
        | ScanError::NoPulsar { .. } => Exit::Config,
        ScanError::Ledger { .. }
        | ScanError::Owner { .. }
        | ScanError::TooMany { .. }
        | ScanError::TooDeep { .. } => Exit::Data,
        ScanError::OldSnapshot
        | ScanError::Dated { .. }
        | ScanError::Backwards { .. }
        | ScanError::SetBack => Exit::FAILED,
        ScanError::Clock(error) => of_looking(error),
        ScanError::State(_) => match error {
            ScanError::State(error) => return of_state(error),
            _ => Exit::Io,
        },
    };
    let is_resumable = error.is_resumable();
    let failure = Failure::new(exit, error);
    match is_resumable {
        true => failure.remedy("scan again: it goes on where this one was"),
        false => failure,
    }
}

//! The command line: every command and flag, declared once. Help, manual, completions and
//! `docs/cli.md` are derived from it. Values are parsed here into types that cannot hold nonsense;
//! nothing here opens a file or a socket.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::builder::{OsStringValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};

use super::drain::args::DrainCommand;
use super::help;
use super::reclaim::args::ReclaimCommand;
use super::simulate::Semantics;
use crate::health::dir::Role;
use crate::health::event::EventKind;
use crate::http_client::Url;

/// Where the agent listens unless the configuration says otherwise.
pub const DEFAULT_URL: &str = "http://127.0.0.1:9475";

/// Where the token is unless the command line says otherwise.
pub const DEFAULT_TOKEN_FILE: &str = "/etc/dirkeeper/token";

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Watches the journal, ledger and index directories of Apache BookKeeper bookies.
#[derive(Debug, Parser)]
#[command(
    name = "dirkeeper",
    version,
    long_version = help::LONG_VERSION,
    about,
    long_about = help::ABOUT,
    after_help = help::short_end(),
    after_long_help = help::end(),
    styles = STYLES,
    max_term_width = 100,
    disable_help_subcommand = true,
    arg_required_else_help = true,
    subcommand_required = true
)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the agent: watch the directories, tell listeners, serve status and metrics
    #[command(long_about = help::RUN, after_long_help = help::RUN_END)]
    Run(RunArguments),
    /// Probe each directory once, print the verdict and exit with it
    #[command(long_about = help::CHECK, after_long_help = help::CHECK_END)]
    Check(CheckArguments),
    /// Show how a running agent sees its directories
    #[command(long_about = help::STATUS, after_long_help = help::STATUS_END)]
    Status(PictureArguments),
    /// Print the log of events, and follow it
    #[command(long_about = help::EVENTS, after_long_help = help::EVENTS_END)]
    Events(EventsArguments),
    /// Hold the bookie in a mode, let it go, or ask whether it may end
    #[command(
        subcommand,
        long_about = help::MODE,
        after_long_help = help::MODE_END,
        arg_required_else_help = true,
        disable_help_subcommand = true
    )]
    Mode(ModeCommand),
    /// Take a replaced disk as the right one
    #[command(long_about = help::ACCEPT, after_long_help = help::ACCEPT_END)]
    Accept(AcceptArguments),
    /// Check, show or import a configuration
    #[command(
        subcommand,
        arg_required_else_help = true,
        disable_help_subcommand = true
    )]
    Config(ConfigCommand),
    /// List the hooks and webhooks of the configuration, or try one
    #[command(
        subcommand,
        arg_required_else_help = true,
        disable_help_subcommand = true
    )]
    Hook(HookCommand),
    /// Read observations, print what would be decided
    #[command(long_about = help::SIMULATE, after_long_help = help::SIMULATE_END)]
    Simulate(SimulateArguments),
    /// Give back the space of ledgers that nothing references any more
    #[command(
        subcommand,
        long_about = super::reclaim::help::RECLAIM,
        after_long_help = super::reclaim::help::RECLAIM_END,
        arg_required_else_help = true,
        disable_help_subcommand = true
    )]
    Reclaim(Box<ReclaimCommand>),
    /// Move everything off running bookies, so that they can be taken away
    #[command(
        subcommand,
        long_about = super::drain::help::DRAIN,
        after_long_help = super::drain::help::DRAIN_END,
        arg_required_else_help = true,
        disable_help_subcommand = true
    )]
    Drain(Box<DrainCommand>),
    /// Print a completion script for a shell
    #[command(after_long_help = help::COMPLETIONS_END)]
    Completions(CompletionsArguments),
    /// Print the manual page, all commands included
    #[command(after_long_help = help::MAN_END)]
    Man,
}

/// Where the directories to watch come from. Shared by every command that reads a configuration,
/// as its last field, because the heading goes on to the arguments after it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "What to watch")]
pub struct SourceArguments {
    /// Configuration file
    ///
    /// Without any of --config, --bookie-conf and --dir, /etc/dirkeeper/dirkeeper.toml is read.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The bookie's own configuration file (bk_server.conf, bookkeeper.conf)
    ///
    /// Directories, thresholds and the admin address are taken from it. Keys of our own
    /// configuration file win over those of the bookie's.
    #[arg(long, value_name = "FILE")]
    pub bookie_conf: Option<PathBuf>,
    /// A directory and what the bookie uses it for; may be repeated
    ///
    /// ROLE is ledger, journal or index. Needs no file and no privilege.
    #[arg(long = "dir", value_name = "ROLE=PATH", value_parser = OsStringValueParser::new().try_map(parse_dir))]
    pub dirs: Vec<OsString>,
}

/// `run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// Address and port to serve status page, API and metrics on
    ///
    /// Default: what the configuration says, else 127.0.0.1:9475.
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    pub listen: Option<SocketAddr>,
    /// Where events and what is known of the disks are kept
    ///
    /// Default: what the configuration says, else /var/lib/dirkeeper; with --dir alone
    /// $XDG_STATE_HOME/dirkeeper or ~/.local/state/dirkeeper. Best on a disk that is not watched.
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// File with TLS, users and headers of the HTTP server, as exporters of Prometheus have it
    ///
    /// Default: what the configuration says, else plain HTTP without users. docs/access.md has an
    /// example.
    #[arg(long, value_name = "FILE")]
    pub web_config_file: Option<PathBuf>,
    /// Where the directories come from.
    #[command(flatten)]
    pub sources: SourceArguments,
}

/// `check`.
#[derive(Debug, Args)]
pub struct CheckArguments {
    /// Check only these of the configured directories
    ///
    /// Where nothing is configured they are checked as ledger directories.
    #[arg(value_name = "DIR")]
    pub only: Vec<PathBuf>,
    /// How long the round may take; what has not answered by then is unknown, or hung if it is overdue
    #[arg(long, value_name = "TIME", default_value = "8s", value_parser = parse_timeout)]
    pub timeout: Duration,
    /// Tell what was tried, what each step gave, and why the verdict follows; for people only
    #[arg(long)]
    pub explain: bool,
    /// Form of the result
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub output: CheckOutput,
    /// Where the directories come from.
    #[command(flatten)]
    pub sources: SourceArguments,
}

/// `status`.
#[derive(Debug, Args)]
pub struct PictureArguments {
    /// Go on: a live view on the terminal, or with --output json a line for each change
    #[arg(long, short)]
    pub watch: bool,
    /// Of whom.
    #[command(flatten)]
    pub agent: StatusArguments,
}

/// Which agent is asked, and how it and we are known. Shared by every command that asks one, as its
/// last field, because the heading goes on to the arguments after it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Which agent to ask")]
pub struct RemoteArguments {
    /// Address of the agent
    #[arg(long, value_name = "URL", default_value = DEFAULT_URL, value_parser = parse_url)]
    pub url: Url,
    /// File with the authorities (PEM) for the certificate of an https address
    ///
    /// Default: those that this machine trusts.
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// File with our certificate and its key (PEM), for an agent that asks for one
    #[arg(long, value_name = "FILE")]
    pub cert_file: Option<PathBuf>,
    /// File with USER:PASSWORD, or with a token, for an agent that asks who reads
    #[arg(long, value_name = "FILE")]
    pub auth_file: Option<PathBuf>,
}

/// What an agent is asked for, and the form of the answer.
#[derive(Debug, Args)]
pub struct StatusArguments {
    /// Form of the result
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub output: Output,
    /// Whom to ask.
    #[command(flatten)]
    pub remote: RemoteArguments,
}

/// `mode`.
#[derive(Debug, Subcommand)]
pub enum ModeCommand {
    /// Show which mode is wanted and seen, who holds it and why
    #[command(long_about = help::MODE_SHOW, after_long_help = help::MODE_SHOW_END)]
    Show(StatusArguments),
    /// Hold the bookie in a mode until 'mode release'
    #[command(long_about = help::MODE_SET, after_long_help = help::MODE_SET_END)]
    Set(ModeSetArguments),
    /// End what 'mode set' began
    #[command(long_about = help::MODE_RELEASE, after_long_help = help::MODE_RELEASE_END)]
    Release(ModeOrderArguments),
    /// Say by exit code whether the bookie may end now
    #[command(long_about = help::MODE_MAY_STOP, after_long_help = help::MODE_MAY_STOP_END)]
    MayStop(StatusArguments),
}

/// `mode set`.
#[derive(Debug, Args)]
pub struct ModeSetArguments {
    /// The mode
    #[arg(value_name = "MODE", value_enum)]
    pub mode: SetMode,
    /// Why, in one line of at most 500 characters; everybody who looks at the bookie sees it
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// To whom.
    #[command(flatten)]
    pub order: ModeOrderArguments,
}

/// Whom to order, and the form of the answer.
#[derive(Debug, Args)]
pub struct ModeOrderArguments {
    /// File with the token, the agent's control_token_file
    #[arg(long, value_name = "FILE", default_value = DEFAULT_TOKEN_FILE)]
    pub token_file: PathBuf,
    /// Form of the result
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub output: Output,
    /// Whom to ask.
    #[command(flatten)]
    pub remote: RemoteArguments,
}

/// The mode of `mode set`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SetMode {
    /// Takes reads only
    ReadOnly,
    /// Takes reads and writes, unless the agent or a drain holds it read-only
    Writable,
}

/// `accept`.
#[derive(Debug, Args)]
pub struct AcceptArguments {
    /// The directory, as it is configured
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// File with the token, the agent's control_token_file
    #[arg(long, value_name = "FILE", default_value = DEFAULT_TOKEN_FILE)]
    pub token_file: PathBuf,
    /// Whom to ask.
    #[command(flatten)]
    pub remote: RemoteArguments,
}

/// `events`.
#[derive(Debug, Args)]
pub struct EventsArguments {
    /// Read the state directory of an agent that is not running
    #[arg(long, value_name = "DIR", conflicts_with_all = ["follow", "url", "ca_file", "cert_file", "auth_file"])]
    pub state_dir: Option<PathBuf>,
    /// Go on with new events as they happen, through restarts of the agent
    #[arg(long, short)]
    pub follow: bool,
    /// Only events after this number
    #[arg(
        long,
        value_name = "SEQ",
        value_parser = parse_since,
        default_value = "0",
        hide_default_value = true
    )]
    pub since: u64,
    /// Only events of this name; may be repeated
    #[arg(long = "event", value_name = "NAME", value_parser = event_kind_parser())]
    pub kinds: Vec<EventKind>,
    /// Form of the result
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub output: Output,
    /// Whom to ask.
    #[command(flatten)]
    pub remote: RemoteArguments,
}

/// `config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Say whether the agent would start with this configuration, and all that is wrong with it
    #[command(long_about = help::CONFIG_CHECK, after_long_help = help::CONFIG_CHECK_END)]
    Check(ConfigCheckArguments),
    /// Print the configuration as it takes effect, defaults included
    #[command(after_long_help = help::CONFIG_SHOW_END)]
    Show(SourceArguments),
    /// Print the configuration that means the same as a bookie's file
    #[command(long_about = help::CONFIG_IMPORT, after_long_help = help::CONFIG_IMPORT_END)]
    Import(ImportArguments),
}

/// `config check`.
#[derive(Debug, Args)]
pub struct ConfigCheckArguments {
    /// Form of the result
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub output: Output,
    /// Where the directories come from.
    #[command(flatten)]
    pub sources: SourceArguments,
}

/// `config import`.
#[derive(Debug, Args)]
pub struct ImportArguments {
    /// What relative directories in the file are relative to, for example /pulsar
    #[arg(long, value_name = "DIR")]
    pub home: Option<PathBuf>,
    /// The bookie's configuration file
    #[arg(value_name = "BK_SERVER_CONF")]
    pub file: PathBuf,
}

/// `hook`.
#[derive(Debug, Subcommand)]
pub enum HookCommand {
    /// List the hooks and webhooks: name, events, time-out, command or server
    List(HookListArguments),
    /// Run one hook or webhook with a made-up event and say how it ended
    #[command(long_about = help::HOOK_TEST, after_long_help = help::HOOK_TEST_END)]
    Test(HookTestArguments),
}

/// `hook list`.
#[derive(Debug, Args)]
pub struct HookListArguments {
    /// Where the hooks are declared.
    #[command(flatten)]
    pub sources: SourceArguments,
}

/// `hook test`.
#[derive(Debug, Args)]
pub struct HookTestArguments {
    /// Name of the hook or webhook in the configuration
    #[arg(value_name = "HOOK")]
    pub name: String,
    /// Event to make up
    #[arg(long = "event", value_name = "NAME", value_parser = event_kind_parser())]
    pub kind: EventKind,
    /// Where the hooks are declared.
    #[command(flatten)]
    pub sources: SourceArguments,
}

/// `simulate`.
#[derive(Debug, Args)]
pub struct SimulateArguments {
    /// Whose decisions: ours, or event for event those of BookKeeper 4.17.3
    #[arg(long, value_name = "WHOSE", default_value = Semantics::Dirkeeper.name(), value_parser = semantics_parser())]
    pub semantics: Semantics,
    /// Observations, one JSON document a line; - is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArguments {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: clap_complete::Shell,
}

/// Form of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Output {
    /// Text for people
    #[default]
    Human,
    /// The document of the API, one a line
    Json,
}

/// Form of the result of `check`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum CheckOutput {
    /// Text for people
    #[default]
    Human,
    /// The document of the API
    Json,
    /// One line with performance data, for Nagios, Icinga and their kin
    Nagios,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Bad {
    #[error("no '=' in it: write ROLE=PATH, for example ledger=/mnt/l1")]
    NoRole,
    #[error("the role is ledger, journal or index, not '{0}'")]
    Role(String),
    #[error("the path after '{0}=' is empty")]
    NoPath(&'static str),
    #[error("write ADDRESS:PORT, for example 127.0.0.1:9475 or [::]:9475")]
    Listen,
    #[error("write a number with a unit, for example 8s or 500ms")]
    Time,
    #[error("nothing can be probed in no time")]
    NoTime,
    #[error("write the number of an event")]
    Since,
    #[error("write http://HOST:PORT, for example {DEFAULT_URL}")]
    Url,
}

/// The form only; the rest is said by the configuration, together with all its other problems.
fn parse_dir(value: OsString) -> Result<OsString, Bad> {
    let bytes = value.as_bytes();
    let equals = bytes.iter().position(|byte| *byte == b'=');
    let (role, path) = bytes.split_at(equals.ok_or(Bad::NoRole)?);
    let role = String::from_utf8_lossy(role);
    let role = Role::parse(&role).ok_or_else(|| Bad::Role(role.into_owned()))?;
    if path == b"=" {
        return Err(Bad::NoPath(role.name()));
    }
    Ok(value)
}

fn parse_listen(value: &str) -> Result<SocketAddr, Bad> {
    value.parse().map_err(|_| Bad::Listen)
}

fn parse_timeout(value: &str) -> Result<Duration, Bad> {
    let time = humantime::parse_duration(value).map_err(|_| Bad::Time)?;
    if time.is_zero() {
        return Err(Bad::NoTime);
    }
    Ok(time)
}

fn parse_since(value: &str) -> Result<u64, Bad> {
    value.parse().map_err(|_| Bad::Since)
}

/// An address without a scheme is one of plain HTTP.
fn parse_url(value: &str) -> Result<Url, Bad> {
    let url = match value.contains("://") {
        true => Url::parse(value),
        false => Url::parse(&format!("http://{value}")),
    };
    let url = url.map_err(|_| Bad::Url)?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        _ => Err(Bad::Url),
    }
}

/// Accepts the names of events, and knows them for help, completion and error texts.
fn event_kind_parser() -> impl TypedValueParser<Value = EventKind> {
    let names = EventKind::ALL
        .iter()
        .map(|kind| PossibleValue::new(kind.name()).help(kind.meaning()));
    PossibleValuesParser::new(names)
        .map(|name| EventKind::parse(&name).expect("only names of events are possible values"))
}

/// Accepts the words of the semantics.
fn semantics_parser() -> impl TypedValueParser<Value = Semantics> {
    PossibleValuesParser::new(Semantics::ALL.map(Semantics::name)).map(|word| {
        let mut all = Semantics::ALL.into_iter();
        all.find(|semantics| semantics.name() == word)
            .expect("only words of semantics are possible values")
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use proptest::prelude::*;

    use super::*;
    use crate::mutation::edited;

    fn word() -> impl Strategy<Value = OsString> {
        let known = [
            "run",
            "check",
            "status",
            "events",
            "config",
            "show",
            "hook",
            "test",
            "simulate",
            "--dir",
            "--dir=ledger=/a",
            "--since",
            "--timeout",
            "--url",
            "--listen",
            "--output",
            "json",
            "8s",
            "--event",
            "diskFull",
            "--",
            "-",
            "http://a:1",
            "[::1]:80",
            "--explain",
            "--follow",
            "mode",
            "set",
            "read-only",
            "--reason",
        ];
        let known = prop::sample::select(known.to_vec());
        let bytes = prop_oneof![
            6 => known.clone().prop_map(|word| word.as_bytes().to_vec()),
            2 => known.prop_flat_map(edited),
            1 => any::<Vec<u8>>(),
        ];
        bytes.prop_map(OsString::from_vec)
    }

    proptest! {
        /// Also without a terminal, and whatever the shell passed on.
        #[test]
        fn any_words_are_a_command_or_an_error(words in prop::collection::vec(word(), 0..7)) {
            let words = std::iter::once(OsString::from("dirkeeper")).chain(words);
            if let Err(error) = Arguments::try_parse_from(words) {
                prop_assert!(!error.to_string().is_empty());
            }
        }

        #[test]
        fn any_bytes_are_a_directory_with_its_role_or_an_error(
            bytes in prop_oneof![any::<Vec<u8>>(), edited("ledger=/mnt/l1")],
        ) {
            let value = OsString::from_vec(bytes.clone());
            let starts = Role::ALL.map(|role| format!("{}=", role.name()).into_bytes());
            let start = starts.iter().find(|start| bytes.starts_with(start));
            let is_one = start.is_some_and(|start| start.len() < bytes.len());
            prop_assert_eq!(parse_dir(value.clone()).ok(), is_one.then_some(value));
        }
    }
}

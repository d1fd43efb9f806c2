//! The longer texts of the help: what a command is for, examples, exit codes. Text only.

use super::exit::Exit;

/// Version and revision of the source.
pub(super) const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("DIRKEEPER_REVISION"),
    ")"
);

/// `dirkeeper --help`.
pub(super) const ABOUT: &str = "\
Watches the journal, ledger and index directories of Apache BookKeeper bookies.

An agent beside each bookie knows within a second which directories are full, slow, failed, hung, \
read-only, gone or replaced, tells hooks, and serves a status page, a JSON API and Prometheus \
metrics. Nothing it does waits for a dead disk.";

const EXAMPLES: &str = "\
Examples:
  dirkeeper run --dir ledger=/mnt/l1 --dir journal=/mnt/j
      Watch two directories; the page is at http://127.0.0.1:9475/
  dirkeeper run --bookie-conf /etc/bookkeeper/bk_server.conf
      Watch what the bookie uses, with the bookie's own thresholds
  dirkeeper check --dir ledger=/mnt/l1 --explain
      Look once and tell why
  dirkeeper events --follow --event diskFull --event diskFailed
      Print these events as they happen
";

const ENVIRONMENT: &str = "\
Environment:
  NO_COLOR        When set and not empty, no colours; there are none anyway unless the output is
                  a terminal
  XDG_STATE_HOME  With --dir alone, state is kept in $XDG_STATE_HOME/dirkeeper; where this is not
                  set, in ~/.local/state/dirkeeper

Files:
  /etc/dirkeeper/dirkeeper.toml  Configuration that is read when the command line names no source
  /var/lib/dirkeeper             State directory, unless the configuration names another
";

/// End of `dirkeeper -h`.
pub(super) fn short_end() -> &'static str {
    "Examples, exit codes and environment: dirkeeper --help"
}

/// End of `dirkeeper --help`.
pub(super) fn end() -> String {
    format!("{EXAMPLES}\n{}\n{ENVIRONMENT}", exit_codes())
}

/// The table of exit codes.
fn exit_codes() -> String {
    let mut table = String::from("Exit codes:\n");
    for exit in Exit::ALL {
        table.push_str(&format!("  {:>2}  {}\n", exit.code(), exit.meaning()));
    }
    table
}

pub(super) const RUN: &str = "\
Run the agent: watch the directories, tell listeners, serve status and metrics.

It stays in the foreground and logs to standard error. SIGTERM and SIGINT stop it within 2 seconds, \
whatever its disks do; SIGHUP reads the configuration again, and a configuration that is not valid \
changes nothing.";

pub(super) const RUN_END: &str = "\
Examples:
  dirkeeper run
      Watch what /etc/dirkeeper/dirkeeper.toml names
  dirkeeper run --config ./dirkeeper.toml --state-dir ./state
      With a file of your own; relative paths are those of the working directory
  dirkeeper run --dir ledger=/mnt/l1 --dir journal=/mnt/j
      Without a file and without privilege
  dirkeeper run --bookie-conf /etc/bookkeeper/bk_server.conf --listen 0.0.0.0:9475
      Beside a bookie, scraped from elsewhere; says what it would do, see bookie.control";

pub(super) const CHECK: &str = "\
Probe each directory once, print the verdict and exit with it.

Each directory is asked for its space, and a small file is created, written, synced, read back and \
removed. Nothing else is touched, no state is kept, and no running agent is needed. A check ends in \
time whatever the disks do.";

pub(super) const CHECK_END: &str = "\
Examples:
  dirkeeper check --dir ledger=/mnt/l1 --dir journal=/mnt/j
  dirkeeper check --bookie-conf /etc/bookkeeper/bk_server.conf --explain
  dirkeeper check --explain /mnt/l1
  dirkeeper check --output nagios --timeout 20s

Exit codes: 0 all writable and below warn, 1 warning, 2 critical, 3 unknown. With --output nagios
every error of the check itself is 3 as well; otherwise see dirkeeper --help.";

pub(super) const STATUS: &str = "\
Show how a running agent sees its directories.

The picture comes from the agent's memory: asking for it touches no disk. The exit code is 0 \
whenever there is a picture, however bad it is; the command whose exit code is the verdict is check, \
which needs no agent.

With --watch it is a live view on the whole terminal: directories in an order of choice, everything \
about one of them, the log of events; '?' shows the keys. It outlives the agent and says how old \
is what it shows. With --output json as well, each picture that differs from the one before in more \
than its time is a line.";

pub(super) const STATUS_END: &str = "\
Examples:
  dirkeeper status
  dirkeeper status --url http://bk-3:9475
  dirkeeper status --watch
  dirkeeper status --watch --output json | jq --unbuffered -c '[.time, .status]'
  dirkeeper status --output json | jq '.dirs[] | select(.severity != \"ok\")'";

pub(super) const MODE: &str = "\
Hold the bookie in a mode, let it go, or ask whether it may end.

Every read-only has an owner and a reason: the agent for its disks, an operator, a drain, or the \
bookie itself. Each ends what it began and nothing else, and the bookie is writable when nobody \
holds it read-only any more.";

pub(super) const MODE_END: &str = "\
Examples:
  dirkeeper mode show
  dirkeeper mode set read-only --reason 'disk swap, ticket 4711'
  dirkeeper mode release
  dirkeeper mode may-stop && systemctl stop bookkeeper

Use this instead of a PUT to the bookie's own state/readonly: on a bookie that is already read-only
such a PUT is answered 200 and forgotten, and the bookie becomes writable again by itself.";

pub(super) const MODE_SHOW: &str = "\
Show which mode is wanted and seen, who holds it and why.

A change that is wanted and not made is shown with what keeps it from being made. The exit code is \
0 whenever there is an answer.";

pub(super) const MODE_SHOW_END: &str = "\
Examples:
  dirkeeper mode show
  dirkeeper mode show --url http://bk-3:9475
  dirkeeper mode show --output json | jq '.claims[] | select(.owner == \"operator\")'";

pub(super) const MODE_SET: &str = "\
Hold the bookie in a mode until 'mode release'.

The claim is on disk and in ZooKeeper before anything is done, so that it outlasts a restart of the \
agent, of the bookie and of the machine. It acts with control = \"observe\" too: it is an order. \
read-only is kept whatever the disks say; writable never overrides a read-only that the agent or a \
drain holds. A second order replaces the first. It is refused, with the reason, when the claim cannot \
be kept, for example because ZooKeeper is away; nothing has changed then. What is in the way of the \
bookie itself, for example that too few others would stay writable, only delays it: mode show says so.";

pub(super) const MODE_SET_END: &str = "\
Examples:
  dirkeeper mode set read-only --reason 'disk swap, ticket 4711'
  dirkeeper mode set read-only --reason 'disk swap' --url http://bk-3:9475 --token-file ./token
  dirkeeper mode show
      Is it read-only yet?

Exit codes: 0 the claim is kept, 1 refused, 64 no such mode or no reason, 69 agent not reachable, 77
no token or not the right one. The agent takes orders only with a token, see control_token_file in
its configuration.";

pub(super) const MODE_RELEASE: &str = "\
End what 'mode set' began.

Only the operator's claim ends. While an agent, a drain or the bookie itself still holds it, the \
bookie stays as it is.";

pub(super) const MODE_RELEASE_END: &str = "\
Examples:
  dirkeeper mode release
  dirkeeper mode release --url http://bk-3:9475 --token-file ./token";

pub(super) const MODE_MAY_STOP: &str = "\
Say by exit code whether the bookie may end now.

It may when enough bookies stay writable without it, those included that were allowed to stop before it \
counting as gone, and nothing is under-replicated. A yes is reserved for five minutes: meanwhile all \
others count this bookie as gone, until it has been restarted. Ask again to have longer. Nothing else is \
changed. On the bookie's machine no token is needed; from another one, name the file of the control token \
with --auth-file. Everything that is not known is a reason not to stop.";

pub(super) const MODE_MAY_STOP_END: &str = "\
Examples:
  dirkeeper mode may-stop && systemctl stop bookkeeper

Exit codes: 0 it may, 1 it may not or nobody can say, with the reasons, 69 agent not reachable.";

pub(super) const ACCEPT: &str = "\
Take a replaced disk as the right one.

A directory is told replaced when another file system, another folder or another bookie's cookie \
is in its place; nothing is written there until somebody who looked at it says that it is right. \
The agent then pins what its next look finds. Only a directory that is replaced can be accepted.";

pub(super) const ACCEPT_END: &str = "\
Examples:
  dirkeeper check --explain /mnt/l1
      What is there now?
  dirkeeper accept /mnt/l1
  dirkeeper accept /mnt/l1 --url http://bk-3:9475 --token-file ./token

The agent takes orders only with a token, see control_token_file in its configuration.";

pub(super) const EVENTS: &str = "\
Print the log of events, and follow it.

All events that the agent keeps are printed, oldest first. With --follow the command goes on with \
new ones; when the agent is restarted it connects again and misses none.";

pub(super) const EVENTS_END: &str = "\
Examples:
  dirkeeper events
  dirkeeper events --follow --since 42 --output json
  dirkeeper events --event diskFull --event diskFailed
  dirkeeper events --state-dir /var/lib/dirkeeper
      When no agent is running";

pub(super) const SIMULATE: &str = "\
Read observations, print what would be decided.

A filter: each line after the header is answered with one line before the next one is read. No disk \
is touched and no clock is read, so the same input gives the same output everywhere. Bad input ends \
it with 65.";

pub(super) const SIMULATE_END: &str = "\
Examples:
  dirkeeper simulate observations.jsonl
  dirkeeper simulate --semantics bookkeeper - < observations.jsonl
      What would BookKeeper 4.17.3 itself have done?";

pub(super) const CONFIG_CHECK: &str = "\
Say whether the agent would start with this configuration, and all that is wrong with it.

The same code as at the start and at a reload. All problems are reported together, each with its \
place, its value and what would be right. Beside a bookie's file the journal directories' file systems \
are asked for their size: (journalMaxBackups + 1) × journalMaxSizeMB has to fit below full, for all \
journals of a file system together. That they do not, or that a size is not known, is a warning, and for \
the agent a problem with which it starts. So is a hook whose program is not there. A token that cannot be \
used is an error, as at the start. No directory is looked at: that does 'dirkeeper check'. Exit code 0: valid, \
78: not.";

pub(super) const CONFIG_CHECK_END: &str = "\
Examples:
  dirkeeper config check
  dirkeeper config check --config ./dirkeeper.toml --bookie-conf /etc/bookkeeper/bk_server.conf";

pub(super) const CONFIG_SHOW_END: &str = "\
Examples:
  dirkeeper config show --bookie-conf /etc/bookkeeper/bk_server.conf";

pub(super) const CONFIG_IMPORT: &str = "\
Print the configuration that means the same as a bookie's file.

A key of the bookie's file that has no meaning here becomes a comment. Nothing is written but the \
result.";

pub(super) const CONFIG_IMPORT_END: &str = "\
Examples:
  dirkeeper config import /etc/bookkeeper/bk_server.conf > dirkeeper.toml";

pub(super) const HOOK_TEST: &str = "\
Run one hook or webhook with a made-up event and say how it ended.

A hook runs as it would for a real event: same environment, same document on standard input, same \
time-out, no shell; a webhook is sent its request. What it does, it does: the event tells of the first directory that is \
watched. It is tried once, and its output is shown. Exit code 0: the event counts as \
delivered, 1: it does not.";

pub(super) const HOOK_TEST_END: &str = "\
Examples:
  dirkeeper hook test page --event diskFailed";

pub(super) const COMPLETIONS_END: &str = "\
Examples:
  dirkeeper completions bash > /usr/share/bash-completion/completions/dirkeeper
  dirkeeper completions zsh > /usr/share/zsh/site-functions/_dirkeeper
  dirkeeper completions fish > ~/.config/fish/completions/dirkeeper.fish";

pub(super) const MAN_END: &str = "\
Examples:
  dirkeeper man | man -l -
  dirkeeper man > /usr/share/man/man1/dirkeeper.1";

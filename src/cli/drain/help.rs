//! The longer texts of the help of `drain`. Text only.

pub(in crate::cli) const DRAIN: &str = "\
Move everything off running bookies, so that they can be taken away in batches.

A job makes its bookies read-only, copies what they hold byte for byte to others, reads it back there, and only then names those \
in the metadata, one ledger after the other under the lock that BookKeeper's own replication respects. The bookies serve \
reads all the time; no ledger is fenced, and no writer fails. Everything of a job is kept in ZooKeeper: it can be \
worked on by as many machines as wanted, and goes on wherever one was killed. Nothing is changed without --execute; only 'set' acts at once.";

pub(in crate::cli) const DRAIN_END: &str = "\
Examples:
  dirkeeper drain plan --bookies bk1:3181,bk2:3181 \\
      --metadata-service-uri zk+hierarchical://zk1:2181/ledgers
      What would move, how long it takes, and what is in the way
  dirkeeper drain start --bookies bk1:3181,bk2:3181 --execute
  dirkeeper drain run --execute
      The work itself; start it on other machines too
  dirkeeper drain status --watch
  dirkeeper drain finish --job d-0123abcd --readers-safe --execute
      0 only when the bookies can be stopped

The cluster may stand in the configuration: [zookeeper] and [drain]. docs/drain.md goes through it step by step.";

pub(super) const PLAN: &str = "\
Say what would move, how long it takes, and what is in the way.

Reads the metadata of all ledgers and asks every bookie for its space. Nothing is written. Everything that is in the way is said at \
once, each with what to do: too few bookies or too little space, fragments that have too few replicas already, racks, \
another job, readers that could fail.";

pub(super) const PLAN_END: &str = "\
Examples:
  dirkeeper drain plan --bookies bk1:3181
  dirkeeper drain plan --bookies bk1:3181,bk2:3181 --max-bytes-per-second 50MiB --output json

Exit codes: 0 nothing is in the way, 1 something is, 64 it is not said where ZooKeeper is, 69 it is not reachable, 77 not permitted, 78 \
what is configured cannot be used.";

pub(super) const START: &str = "\
Begin a job: make the bookies read-only and write down what is to be moved.

First what 'plan' looks at. Then the job is written, each bookie is claimed and ordered to be read-only by its admin server, and its registration \
is the proof; then a task is written for each ledger that names one of them. A start that was interrupted goes on \
when it is given again with the same bookies. Prints the job's id.";

pub(super) const START_END: &str = "\
Examples:
  dirkeeper drain start --bookies bk1:3181
      Say what would be done
  dirkeeper drain start --bookies bk1:3181,bk2:3181 --execute
  dirkeeper drain start --bookies bk1:3181 --open-ledgers unload --execute
      Topics that keep a ledger open are unloaded
  dirkeeper drain start --bookies bk1:3181 --admin bk1:3181=http://10.0.0.1:8000 --execute

Exit codes: 0 started, 1 something is in the way, 69 ZooKeeper or an admin server not reachable.";

pub(super) const RUN: &str = "\
Work on a job, here; as many may work on it as wanted.

Takes one task after the other: locks the ledger, copies, reads back, changes the metadata, lets go. Where a writer has not left yet \
it waits. Meanwhile it keeps the bookies read-only, also through their restarts. It ends when no task is left, or only failed \
ones, which the next one tries again; with --reader-gate per-ledger after 'drain finish'. It can be stopped and started at any time.";

pub(super) const RUN_END: &str = "\
Examples:
  dirkeeper drain run --execute
  dirkeeper drain run --job d-0123abcd --workers 16 --execute
  dirkeeper drain run --execute --textfile /var/lib/prometheus/node-exporter/dirkeeper_drain.prom
  dirkeeper drain run --until-waiting --execute
      End when only ledgers are left whose writers have to be waited for

Exit codes: 0 no task is left, 1 some are: it says which and why, 64 a flag does not fit to the job, 69 ZooKeeper not reachable.";

pub(super) const STATUS: &str = "\
Say what is left, and why.

Each kind of task with the number of its ledgers, the first of them by id, and the reason; who works on the job, how fast, and how long it will \
take. Only the job's own nodes are read, no ledger.";

pub(super) const STATUS_END: &str = "\
Examples:
  dirkeeper drain status
  dirkeeper drain status --wait && dirkeeper drain finish --job d-0123abcd --readers-safe --execute
  dirkeeper drain status --job d-0123abcd --top 0 --output json

Exit codes: 0 no task is left, 1 it goes on, 2 it is blocked: what is left cannot be done, or nobody works on it.";

pub(super) const SET: &str = "\
Change the limits of a running job. Workers hear of it at once. What is not given stays as it is.";

pub(super) const SET_END: &str = "\
Examples:
  dirkeeper drain set --max-bytes-per-second 20MiB
  dirkeeper drain set --job d-0123abcd --max-bytes-per-second 0 --workers 32";

pub(super) const CANCEL: &str = "\
Give a job up: what was moved stays moved, and the bookies are writable again.

The claims of the job end, and each bookie on which no other claim stands is ordered to be writable.";

pub(super) const CANCEL_END: &str = "\
Examples:
  dirkeeper drain cancel --job d-0123abcd
  dirkeeper drain cancel --job d-0123abcd --execute";

pub(super) const FINISH: &str = "\
Read all metadata once more, and say whether the bookies can be stopped.

That no task is left is not enough: a ledger may have been made at the last moment, and readers may still ask the old bookies. The bookies can be \
stopped when no metadata names them and --readers-safe says that no reader does. With --delete-cookies, after they \
were stopped, their cookies and then the job are deleted.";

pub(super) const FINISH_END: &str = "\
Examples:
  dirkeeper drain finish --job d-0123abcd --readers-safe --execute
      Safe to stop: this first, then the bookies' end, then the next one
  dirkeeper drain finish --job d-0123abcd --delete-cookies --execute
      After they were stopped

Exit codes: 0 the bookies can be stopped, 1 not yet: what is left is said.";

//! The longer texts of the help of `reclaim`. Text only.

pub(in crate::cli) const RECLAIM: &str = "\
Give back the space of ledgers that nothing references any more, in two phases.

A scan reads which ledgers there are and who names them, and remembers it; scans add up to evidence. A mark \
makes known that a ledger is to go, and stands for a time of grace; a sweep then reads everything about it once more \
and deletes it, together with a check that its owner did not change meanwhile. Nothing is changed without \
--execute, and nothing is ever written into Pulsar's own metadata.";

pub(in crate::cli) const RECLAIM_END: &str = "\
Examples:
  dirkeeper reclaim scan --metadata-service-uri zk+hierarchical://zk1:2181/ledgers \\
      --pulsar-metadata zk://zk1:2181=
      Read everything; nothing is changed
  dirkeeper reclaim report
      What was found, from what the scan remembered
  dirkeeper reclaim mark --execute
  dirkeeper reclaim sweep --execute
      The two phases, the second after the grace of the first
  dirkeeper reclaim run --execute
      All of it every six hours

The cluster may stand in the configuration: [zookeeper] and [reclaim]. docs/reclaim.md says how it is decided and what
is never done.";

pub(super) const SCAN: &str = "\
Read which ledgers there are and who names them, and say what each is.

First all ledgers are listed and read, and only then everybody who names ledgers, so that what is named at any time \
since is seen to be. What cannot be read or understood ends the scan, and a scan that ended so proves nothing. A scan that was \
stopped goes on where it was within six hours. Nothing is written but our own state file, and a node below \
/dirkeeper that goes at once: it says whether the clocks agree, without which nothing is proved. With --namespace or \
--topic everything is read all the same; the table shows the part.";

pub(super) const SCAN_END: &str = "\
Examples:
  dirkeeper reclaim scan --metadata-service-uri zk+hierarchical://zk1:2181/ledgers
      With the Pulsar cluster in the same ZooKeeper
  dirkeeper reclaim scan --metadata-service-uri zk://zk1:2181/ledgers \\
      --pulsar-metadata zk://zk1:2181=/pulsar-a --pulsar-metadata zk://zk9:2181=
      Two Pulsar clusters on these bookies, one of them with a ZooKeeper of its own
  dirkeeper reclaim scan --snapshot /var/lib/zookeeper/version-2/snapshot.1a2b
      From a snapshot file, without a request to the live servers

Exit codes: 0 everything was read, 65 something was read that cannot be understood, 69 ZooKeeper not reachable, 77 not
permitted (ACL), 78 not this cluster, or a kind of metadata that is not supported.";

pub(super) const REPORT: &str = "\
Show what the last scan found, without a request to anybody.

Bytes are those of all copies, from the ledgers' own metadata. That says nothing of a ledger that is not closed: a scan asks the \
bookies about those that nobody names, and a + marks what is at least so much; UNKNOWN counts those without an answer. In lines for programs \
open and unknown say so. What is deletable may be marked now, what waits needs more time or more scans, and the rest is kept.";

pub(super) const REPORT_END: &str = "\
Examples:
  dirkeeper reclaim report
  dirkeeper reclaim report --by namespace --class r1,r2,r3
      Who leaves the most behind
  dirkeeper reclaim report --by owner --top 10
      The ten worst, by what could be deleted
  dirkeeper reclaim report --by ledger --class r4 --output csv > r4.csv
      Every ledger of a class, to be looked at before --class r4
  dirkeeper reclaim report --deletions --output json
      The log of what was deleted, with the evidence

Exit codes: 0 shown, 1 there is no complete scan, or another command works with the state, 65 the state is damaged or of a newer
version, 74 there is no state.";

pub(super) const MARK: &str = "\
First phase: mark what may be deleted once its grace has passed.

The last scan says what may be marked; each mark holds the bytes of the ledger's metadata as they are, and is on disk before anything else \
is done. Marks of the classes r3 and r4 rest on absence alone and are made only if --class or the configuration \
names them. Without --execute it is only said what would be marked, why, and when it could be deleted.";

pub(super) const MARK_END: &str = "\
Examples:
  dirkeeper reclaim mark
  dirkeeper reclaim mark --execute
  dirkeeper reclaim mark --class r3 --namespace shop/orders --execute
      A part first
  dirkeeper reclaim report --marks

Exit codes: 0 done, 1 there is no complete scan, another one is at work, or something was not as it should be: it is said, 69 ZooKeeper
not reachable, 77 not permitted (ACL), 78 not the cluster that was scanned.";

pub(super) const SWEEP: &str = "\
Second phase: look at each mark once more, and delete.

Of each mark whose grace has passed the ledger, its owner and all cursors are read again. Only if it is the same \
ledger, and still named by nobody, it is deleted: in one transaction that also checks that its owner did not \
change. A mark that somebody names again is dropped. What was deleted is kept for 30 days, for undo. It takes a \
scan that began after the mark and within the last day.";

pub(super) const SWEEP_END: &str = "\
Examples:
  dirkeeper reclaim sweep
  dirkeeper reclaim sweep --max-deletes 10 --execute
      Ten first

Exit codes: 0 done, 1 the limit was reached and there is more, or something was not as it should be: it is said.";

pub(super) const UNDO: &str = "\
Bring deleted ledgers back, as far as the bookies still have them.

The metadata is made again byte for byte. The entries are another matter: each bookie forgets a deleted ledger at its next \
garbage collection, of which nobody knows when it comes: certain is undo for 0 s, probable until gcWaitTime (15 minutes by Pulsar's \
default) has passed. Afterwards every bookie of the ensemble is asked what it still has, and what is lost is said.";

pub(super) const UNDO_END: &str = "\
Examples:
  dirkeeper reclaim undo 4711
  dirkeeper reclaim undo 4711 4712 --execute

Exit codes: 0 all are back with all their entries, 1 not all are, or nobody can say.";

pub(super) const TRIM: &str = "\
Let the brokers trim topics that nobody has loaded.

A topic is trimmed by the broker that has it loaded; one that nobody uses is never loaded, and keeps what is long expired. \
From the metadata those are found that have ledgers older than retention and time to live allow. The broker is \
asked to trim each, and decides by itself; a topic that was loaded by that is unloaded again. Topics that are in use are left alone. \
One process at a time does this.

Without --execute it says which topics would be visited, what is expected of it now and of a second visit one retention later, and why; \
brokers are asked only what loads no topic. Before a visit the topic's own retention and time to live are asked for. \
A pass that was cut off is gone on with behind the last topic that was dealt with, if it was cut off within a day. When ZooKeeper or the \
brokers answer slower than at first, it goes slower, and says so.";

pub(super) const TRIM_END: &str = "\
Examples:
  dirkeeper reclaim trim --broker-url http://broker:8080
      Which topics would be visited, and why
  dirkeeper reclaim trim --broker-url http://broker:8080 --namespace shop/orders --execute
      A part first
  dirkeeper reclaim trim --broker-url https://broker:8443 --broker-token-file /etc/dirkeeper/token --execute --output json

Exit codes: 0 every candidate was dealt with, 1 it ended early, or another one is at work, 64 it is not said where ZooKeeper or a
broker is, 69 one of them not reachable, 77 not permitted (ACL, 401, 403), 78 not this cluster.";

pub(super) const RUN: &str = "\
Do all of it again and again: scan, mark, sweep, trim.

Of several that run for one cluster one works and the others wait; when it ends the next one takes over. Without --execute everything is \
only said. It stays in the foreground and logs to standard error. SIGTERM and SIGINT end it between two steps; what \
was begun is taken up by the next start.";

pub(super) const RUN_END: &str = "\
Examples:
  dirkeeper reclaim run --config /etc/dirkeeper/dirkeeper.toml
      Says every six hours what it would do
  dirkeeper reclaim run --execute --trim-interval 1d --broker-url http://broker:8080 \\
      --textfile /var/lib/prometheus/node-exporter/dirkeeper_reclaim.prom
  dirkeeper reclaim run --once --execute
      For a timer of the system

Exit codes: 0 a signal ended it, or with --once all was done, 64 it is not said where ZooKeeper or, for trims, a broker is, 77 not
permitted, 78 not this cluster; what time may heal is logged and tried again, and with --once ends it with 1, 65, 69 or 74.";

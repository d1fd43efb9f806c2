//! `reclaim` from outside: what it refuses, and reports from a state that the library made over a cluster in
//! memory. That the commands do the same on a real cluster is shown in the laboratory.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use dirkeeper::cluster::ledger::Layout;
use dirkeeper::cluster::memory::{Memory, MemorySession};
use dirkeeper::cluster::store::{Kind, MetaStore, create_with_parents};
use dirkeeper::reclaim::acting::{Acting, LastScan};
use dirkeeper::reclaim::failpoint::Failpoints;
use dirkeeper::reclaim::mark::{MarkOptions, mark_deletable};
use dirkeeper::reclaim::plan::class::{Class, Rules};
use dirkeeper::reclaim::scan::{Ledgers, Options, Progress, Pulsar, Sources, scan_with};
use dirkeeper::reclaim::state::State;
use tokio::sync::watch;

use super::*;

#[test]
fn what_cannot_be_meant_is_refused_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let no_snapshot = folder.path().join("no-snapshot");
    std::fs::write(&no_snapshot, "ZKSX").unwrap();
    let no_snapshot = no_snapshot.to_str().unwrap();
    let confirmed = folder.path().join("r4.csv");
    std::fs::write(&confirmed, "ledger,class\nx,r4\n").unwrap();
    let uri = "--metadata-service-uri";
    let lines: &[(u8, &[&str])] = &[
        (64, &["reclaim", "scan", "--state-dir", dir]),
        (64, &["reclaim", "scan", uri, "zk1:2181"]),
        (
            64,
            &[
                "reclaim",
                "scan",
                uri,
                "zk://a:1/",
                "--pulsar-metadata",
                "etcd:http://a=/x",
            ],
        ),
        (64, &["reclaim", "scan", "--max-requests-per-second", "0"]),
        (
            64,
            &[
                "reclaim",
                "scan",
                "--snapshot",
                "x",
                "--max-requests-per-second",
                "1",
            ],
        ),
        (64, &["reclaim", "scan", "--topic", "orders"]),
        (64, &["reclaim", "report", "--class", "r9"]),
        (64, &["reclaim", "report", "--deletions", "--by", "owner"]),
        (64, &["reclaim", "report", "--top", "ten"]),
        (64, &["reclaim", "mark", "--class", "r1,r8"]),
        (64, &["reclaim", "mark", "--grace", "soon"]),
        (64, &["reclaim", "undo"]),
        (64, &["reclaim", "undo", "0x1f"]),
        (
            64,
            &["reclaim", "trim", "--broker-url", "pulsar://broker:6650"],
        ),
        (64, &["reclaim", "run", "--textfile", "reclaim.txt"]),
        (
            65,
            &[
                "reclaim",
                "scan",
                "--snapshot",
                no_snapshot,
                "--state-dir",
                dir,
            ],
        ),
        (74, &["reclaim", "report", "--state-dir", dir]),
        (
            74,
            &[
                "reclaim",
                "scan",
                "--snapshot",
                "/no/such/file",
                "--state-dir",
                dir,
            ],
        ),
        (78, &["reclaim", "scan", uri, "etcd:http://a:2379/x"]),
        (
            78,
            &["reclaim", "run", uri, "metadata-store:oxia://a:6648/x"],
        ),
    ];
    let mut transcripts = String::new();
    for (code, line) in lines {
        let output = run(line);
        let transcript = transcript(line, &output);
        assert_eq!(output.status.code(), Some(i32::from(*code)), "{transcript}");
        assert!(output.stdout.is_empty(), "{transcript}");
        transcripts.push_str(&transcript.replace(dir, "DIR"));
        transcripts.push('\n');
    }
    insta::assert_snapshot!("reclaim_refused", transcripts);
    assert!(!folder.path().join("reclaim.redb").exists());
}

#[test]
fn a_zookeeper_that_is_not_there_is_69() {
    // Bound and given up again: nobody listens there.
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let uri = format!("zk+hierarchical://{address}/ledgers");
    let output = run(&[
        "reclaim",
        "scan",
        "--metadata-service-uri",
        &uri,
        "--state-dir",
        folder.path().to_str().unwrap(),
    ]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{said}");
    assert!(output.stdout.is_empty());
    let sentence = format!("dirkeeper: no ZooKeeper of {address} answered within 10 s\n");
    assert!(said.contains(&sentence), "{said}");
}

/// A cluster in memory.
struct Cluster {
    clock: Clock,
    store: Arc<MemorySession>,
    ledgers: Ledgers,
    pulsars: Vec<Pulsar>,
}

const TOPIC: &str = "/managed-ledgers/shop/orders/persistent/a%2Cb";

impl Cluster {
    async fn new() -> Cluster {
        let clock = Clock::manual();
        let store = Arc::new(Memory::new(clock.clone()).connect());
        let shared: Arc<dyn MetaStore> = store.clone();
        let cluster = Cluster {
            ledgers: Ledgers {
                store: Arc::clone(&shared),
                root: "/ledgers".to_owned(),
            },
            pulsars: vec![Pulsar {
                name: "zk://zk1:2181=".to_owned(),
                store: shared,
                root: String::new(),
            }],
            clock,
            store,
        };
        let class = "org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory";
        cluster
            .make("/ledgers/LAYOUT", format!("2\n{class}:1").as_bytes())
            .await;
        cluster.make("/ledgers/INSTANCEID", b"an-id").await;
        cluster.make("/admin/policies/shop/orders", b"{}").await;
        cluster
    }

    async fn make(&self, path: &str, data: &[u8]) {
        let made = create_with_parents(&*self.store, path, data, Kind::Persistent);
        made.await.unwrap();
    }

    /// A closed ledger of 1 MB, in two copies.
    async fn ledger(&self, id: u64, custom: &[(&str, &str)]) {
        let custom = custom.iter().map(|(key, value)| {
            format!("customMetadata {{ key: \"{key}\" value: \"{value}\" }}\n")
        });
        let custom: String = custom.collect();
        let text = format!(
            "BookieMetadataFormatVersion\t2\nquorumSize: 2\nensembleSize: 2\nlength: 1000000\n\
             lastEntryId: 9\nstate: CLOSED\nsegment {{ ensembleMember: \"b:1\" ensembleMember: \"b:2\" \
             firstEntryId: 0 }}\n{custom}"
        );
        let path = format!("/ledgers/{}", Layout::Hierarchical.path(id).unwrap());
        self.make(&path, text.as_bytes()).await;
    }

    /// The list of a topic; numbers below 128 have one byte.
    fn list(ids: &[u8]) -> Vec<u8> {
        ids.iter().flat_map(|id| [0x0a, 2, 0x08, *id]).collect()
    }

    async fn scan(&self, state: &State) {
        let (progress, _) = watch::channel(Progress::default());
        let sources = Sources {
            ledgers: &self.ledgers,
            pulsars: &self.pulsars,
            entries: None,
        };
        let options = Options {
            all_clusters: true,
            ..Options::default()
        };
        let scanned = scan_with(state, sources, &options, &self.clock, &progress).await;
        scanned.unwrap();
    }

    async fn mark(&self, state: &State) {
        let acting = Acting {
            state,
            ledgers: &self.ledgers,
            pulsars: &self.pulsars,
            clock: &self.clock,
            rules: &Rules::default(),
            is_leader: &|| true,
            entries: None,
            failpoints: &Failpoints::default(),
        };
        let last = LastScan::read(state).unwrap();
        let options = MarkOptions {
            classes: BTreeSet::from([Class::Trimmed]),
            execute: true,
            ..MarkOptions::default()
        };
        let marked = mark_deletable(&acting, &last, &options).await;
        assert_eq!(marked.marked.len(), 1, "{marked:?}");
    }
}

/// One ledger is let go between two scans, one is never listed, one is of another application.
async fn two_scans_and_a_mark(dir: &Path) {
    let cluster = Cluster::new().await;
    let owner = TOPIC.strip_prefix("/managed-ledgers/").unwrap();
    for id in 1..=3 {
        let of_pulsar = [
            ("application", "pulsar"),
            ("component", "managed-ledger"),
            ("pulsar/managed-ledger", owner),
        ];
        cluster.ledger(id, &of_pulsar).await;
    }
    cluster.ledger(4, &[("application", "dlog")]).await;
    cluster.make(TOPIC, &Cluster::list(&[1, 2])).await;
    let state = State::open(dir).unwrap();
    cluster.clock.advance(Duration::from_secs(3600));
    cluster.scan(&state).await;
    cluster
        .store
        .set(TOPIC, &Cluster::list(&[2]), None)
        .await
        .unwrap();
    cluster.clock.advance(Duration::from_secs(3600));
    cluster.scan(&state).await;
    cluster.mark(&state).await;
}

#[test]
fn reports_have_their_forms_and_need_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(two_scans_and_a_mark(folder.path()));
    let dir = folder.path().to_str().unwrap();
    let report = |arguments: &[&str]| {
        let line = [&["reclaim", "report", "--state-dir", dir], arguments].concat();
        let output = run(&line);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
        output
    };
    let mut forms = String::new();
    for arguments in [
        &["--output", "csv"][..],
        &["--output", "json"],
        &["--by", "namespace", "--class", "r1,r3", "--output", "csv"],
        &["--by", "ledger", "--output", "csv"],
        &[
            "--by", "ledger", "--top", "1", "--class", "r1", "--output", "csv",
        ],
        &[
            "--by",
            "owner",
            "--namespace",
            "shop/orders",
            "--output",
            "csv",
        ],
        &[
            "--by",
            "owner",
            "--namespace",
            "shop/other",
            "--output",
            "csv",
        ],
        &["--marks", "--output", "csv"],
        &["--deletions", "--output", "csv"],
    ] {
        let output = report(arguments);
        forms.push_str(&format!(
            "$ {}\n{}\n",
            arguments.join(" "),
            text(&output.stdout)
        ));
    }
    insta::assert_snapshot!("reclaim_reports", forms);

    // Its ages depend on this machine's clock.
    let human = text(&report(&[]).stdout);
    for words in [
        "scan of cluster an-id, begun 1970-01-01T02:00:00.000Z",
        "let go by its owner",
        "1 may be marked, with 1.9 MiB in all copies",
    ] {
        assert!(human.contains(words), "{words}: {human}");
    }
    let marks = text(&report(&["--marks"]).stdout);
    assert!(marks.contains("named in version 0 and not in 1"), "{marks}");
}

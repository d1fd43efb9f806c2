//! Several Pulsar clusters with the same topics on the same bookies: what one of them does not name may be another's.

use std::collections::BTreeSet;

use super::{EVERY, Program, tell};
use crate::harness::bench::Bench;
use crate::stand::pulsar::{Pulsar, Setup};

/// Topics of each cluster, with the same names.
const TOPICS: [&str; 3] = [
    "public/default/x1",
    "public/default/x2",
    "public/default/x3",
];

/// Brokers of the clusters that joined, and where their metadata is.
const TWO: u16 = 8;
const THREE: u16 = 9;

/// Ledgers that a cluster's lists name.
fn named(pulsar: &Pulsar, root: &str) -> BTreeSet<u64> {
    let nodes = TOPICS.map(|topic| topic.replace("default/", "default/persistent/"));
    let lists = nodes.iter().flat_map(|node| pulsar.list_at(root, node));
    lists.collect()
}

/// Nothing that any of them names is ever marked, whichever are declared.
pub(crate) fn two_clusters(bench: &Bench) {
    let began = bench.now();
    let pulsar = Setup::new(bench).up();
    pulsar.join(TWO, "zk/two");
    pulsar.join(THREE, "zk2/");
    for broker in [1, TWO, THREE] {
        let topics = TOPICS.map(|topic| (topic.to_owned(), Some(0)));
        pulsar.fill(broker, "35", "100", &topics);
    }
    for broker in ["broker8", "broker9", "broker1"] {
        pulsar.stop(broker);
    }
    let (zookeeper, other) = (pulsar.zookeeper(), pulsar.zookeeper2());
    let [first, second, third] = [(zookeeper.as_str(), ""), (&zookeeper, "/two"), (&other, "")];
    let all: BTreeSet<u64> = pulsar.ledgers().into_keys().collect();
    let [one, two] = ["", "/two"].map(|root| named(&pulsar, root));
    assert!(
        12 <= one.len() && 12 <= two.len() && one.is_disjoint(&two),
        "{one:?} {two:?}"
    );
    let before = pulsar.dump(&["/ledgers"]);

    // Whoever is declared: a ledger of another is at most absent, and absence is no proof as long as not all are known.
    let declared: [(&str, &[(&str, &str)]); 5] = [
        ("none", &[]),
        ("first", &[first]),
        ("second", &[second]),
        ("third", &[third]),
        ("all", &[first, second, third]),
    ];
    for (name, pulsars) in declared {
        let program = Program::new(bench, name, &pulsar, pulsars, "max_deletes = 1000");
        program.scan_until_ripe();
        program.must(&["mark", "--execute"]);
        let marks = program.marks();
        println!(
            "    declared {name}: {} of {} are marked",
            marks.len(),
            all.len()
        );
        assert_eq!(marks, BTreeSet::new(), "declared: {name}");
        if name == "all" || name == "none" {
            program.must(&["mark", "--class", EVERY, "--execute"]);
            let marks = program.marks();
            assert_eq!(marks, BTreeSet::new(), "declared: {name}, absence as well");
        }
        program.ripen();
        program.must(&["sweep", "--execute"]);
    }
    let now = pulsar.dump(&["/ledgers"]);
    let ledgers = |nodes: &std::collections::BTreeMap<String, String>| {
        let nodes = nodes.iter().filter(|(path, _)| path.contains("/L"));
        nodes
            .map(|(path, rest)| (path.clone(), rest.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(ledgers(&now), ledgers(&before));

    // A leak of the second is found when all are declared, and is nobody else's.
    let program = Program::new(
        bench,
        "leak",
        &pulsar,
        &[first, second, third],
        "max_deletes = 1000",
    );
    program.scan();
    let path = "/two/managed-ledgers/public/default/persistent/x1";
    let leaked = pulsar.list_at("/two", "public/default/persistent/x1")[0];
    pulsar.tool(&["forget", path, &leaked.to_string()]);
    program.scan();
    program.mark_and_sweep("r1");
    // A topic of that name is in the third's ZooKeeper too, where no transaction can check it.
    assert_eq!(pulsar.ledgers().len(), all.len());
    program.must(&["sweep", "--allow-unchecked", "--execute"]);
    let left: BTreeSet<u64> = pulsar.ledgers().into_keys().collect();
    assert_eq!(&all - &left, BTreeSet::from([leaked]));
    let shows = "three Pulsar clusters with the same topics on the same bookies, one with a ZooKeeper of its own: whichever is declared, no \
                 ledger of another is marked";
    tell(
        bench,
        began,
        shows,
        format!(
            "{} ledgers, five declarations, no mark; one leaked ledger found and gone",
            all.len()
        ),
    );
}

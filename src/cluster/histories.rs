//! Random histories of the lock, and random bytes for all that is read: whatever happens to sessions, no
//! two hold the lock, and it is free in the end; whatever stands in a node, there is an answer.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::memory::{Memory, MemorySession};
use super::store::{Kind, MetaStore, create_with_parents};
use super::{Cluster, ClusterOptions, ModeLock, Servers};
use super::{agents, claims, ensembles, registration};
use crate::clock::Clock;
use crate::mutation::edited;

/// Agents of one history: two that wait behind one that holds, and one whose session ends meanwhile.
const AGENTS: usize = 4;
const TURNS: usize = 40;
const HISTORIES: u64 = 50;

/// As long as nobody may wait in a history, and more than any needs.
const LONG: Duration = Duration::from_secs(20);

struct Agent {
    cluster: Cluster,
    session: Arc<MemorySession>,
}

fn agent(server: &Memory, number: usize) -> Agent {
    let session = Arc::new(server.connect());
    let store: Arc<dyn MetaStore> = session.clone();
    let options = ClusterOptions {
        zookeeper: Servers::default(),
        ledgers_root: "/ledgers".to_owned(),
        root: "/dirkeeper".to_owned(),
        bookie: format!("b{number}:1"),
        host: "here".to_owned(),
        instance: None,
        clock: Clock::manual(),
    };
    Agent {
        cluster: Cluster::on(store, options),
        session,
    }
}

async fn steps(random: &mut fastrand::Rng) {
    for _ in 0..random.u8(0..4) {
        tokio::task::yield_now().await;
    }
}

async fn history(seed: u64) {
    let server = Memory::new(Clock::manual());
    let hand = server.connect();
    create_with_parents(&hand, "/ledgers/INSTANCEID", b"i", Kind::Persistent)
        .await
        .unwrap();
    let all: Vec<Agent> = (0..AGENTS).map(|number| agent(&server, number)).collect();
    let held: RefCell<Vec<Option<ModeLock>>> = RefCell::new((0..AGENTS).map(|_| None).collect());
    let one_at_most = || {
        let held = held.borrow();
        let sure = held.iter().flatten().filter(|lock| lock.is_held());
        assert!(sure.count() <= 1, "two hold the lock in history {seed}");
    };
    let life = |number: usize| {
        let agent = &all[number];
        let mut random = fastrand::Rng::with_seed(seed * 1000 + number as u64);
        let (held, one_at_most) = (&held, &one_at_most);
        async move {
            for _ in 0..TURNS {
                steps(&mut random).await;
                if let Ok(lock) = agent.cluster.lock_mode(LONG).await {
                    held.borrow_mut()[number] = Some(lock);
                    one_at_most();
                    steps(&mut random).await;
                    one_at_most();
                    let lock = held.borrow_mut()[number].take();
                    match lock {
                        Some(lock) if random.bool() => lock.release().await,
                        _ => {}
                    }
                }
                agent.session.reconnect();
            }
        }
    };
    let trouble = async {
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..TURNS * AGENTS {
            steps(&mut random).await;
            let session = &all[random.usize(0..AGENTS)].session;
            match random.u8(0..6) {
                0 => session.expire(),
                1 => session.disconnect(),
                2 | 3 => session.reconnect(),
                _ => {}
            }
            one_at_most();
        }
        // Who waits behind a lost session waits for its return.
        for agent in &all {
            agent.session.reconnect();
        }
    };
    let [one, two, three, four] = std::array::from_fn::<_, AGENTS, _>(life);
    tokio::join!(trouble, one, two, three, four);
    for agent in &all {
        agent.session.reconnect();
        let lock = agent.cluster.lock_mode(LONG).await;
        lock.unwrap_or_else(|error| panic!("never free again in history {seed}: {error}"))
            .release()
            .await;
    }
}

#[tokio::test]
async fn no_two_hold_the_lock_whatever_happens_to_their_sessions() {
    for seed in 0..HISTORIES {
        history(seed).await;
    }
}

proptest! {
    #[test]
    fn no_bytes_in_a_node_are_too_strange(
        bytes in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..80),
            edited(r#"{"version":1,"agent":{"mode":"readOnly"},"belowFloor":true}"#),
            edited(r#"{"owner":"drain:j","mode":"readOnly","reason":"r","since":5}"#),
            edited(r#"{"g":{"a:1":{"rack":"/r","hostname":"a"}}}"#),
            edited(r#"{"overWarn":true,"full":false,"enforces":true,"at":7}"#),
            edited("BookieMetadataFormatVersion\t2\nquorumSize: 2\nensembleSize: 3\n"),
        ],
    ) {
        let _ = claims::summary(&bytes, 0);
        let _ = claims::claim("j", &bytes);
        let _ = agents::parse(&bytes);
        let _ = registration::racks(&bytes);
        let _ = registration::endpoints(&bytes);
        if let Some(size) = ensembles::ensemble_size(&bytes) {
            prop_assert!(0 < size);
        }
        let version3 = [b"BookieMetadataFormatVersion\t3\n", bytes.as_slice()].concat();
        let _ = ensembles::ensemble_size(&version3);
    }
}

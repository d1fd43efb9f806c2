//! Random histories of brokers that make, roll, trim and delete, and die in between, with scans that read one thing
//! after the other meanwhile: nothing in use is ever deletable, and all that was seen in use comes back.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::class::{Class, Facts, Maker, Named, Owner, Rules, Verdict, classify};
use super::evidence::{Known, Seen, Witness, compare};
use super::{DAY, HOUR, LedgerId, Millis};

#[derive(Debug, Clone, Copy)]
enum Step {
    /// A topic rolls over: the ledger is made first, and listed later.
    Make(u8),
    /// The oldest ledger that is made and not listed is listed.
    List(u8),
    /// The list of a topic loses its oldest ledger, which is deleted unless the broker dies.
    Trim(u8, bool),
    /// A topic goes, with its ledgers unless the broker dies.
    Delete(u8, bool),
    /// A scan begins: what ledgers there are.
    Look,
    /// It goes on: one more topic is read.
    Read,
    /// Time passes, in minutes.
    Pass(u16),
}

#[derive(Debug, Default)]
struct World {
    now: Millis,
    transaction: i64,
    next: LedgerId,
    /// When each was made, and by which topic.
    ledgers: BTreeMap<LedgerId, (Millis, u8)>,
    topics: BTreeMap<u8, Seen>,
    unlisted: Vec<(u8, LedgerId)>,
}

impl World {
    fn apply(&mut self, step: Step) {
        self.transaction += 1;
        match step {
            Step::Make(topic) => {
                self.next += 1;
                self.ledgers.insert(self.next, (self.now, topic));
                self.unlisted.push((topic, self.next));
            }
            Step::List(topic) => {
                if let Some(at) = self.unlisted.iter().position(|(of, _)| *of == topic) {
                    let (_, id) = self.unlisted.remove(at);
                    let made = Seen {
                        created: self.transaction,
                        version: -1,
                        ledgers: Vec::new(),
                    };
                    let seen = self.topics.entry(topic).or_insert(made);
                    seen.version += 1;
                    seen.ledgers.push(id);
                    seen.ledgers.sort_unstable();
                }
            }
            Step::Trim(topic, dies) => {
                if let Some(seen) = self.topics.get_mut(&topic)
                    && !seen.ledgers.is_empty()
                {
                    seen.version += 1;
                    let id = seen.ledgers.remove(0);
                    if !dies {
                        self.ledgers.remove(&id);
                    }
                }
            }
            Step::Delete(topic, dies) => {
                let seen = self.topics.remove(&topic).unwrap_or_default();
                for id in seen.ledgers.into_iter().filter(|_| !dies) {
                    self.ledgers.remove(&id);
                }
            }
            Step::Look | Step::Read => {}
            Step::Pass(minutes) => self.now += Millis::from(minutes) * 60_000,
        }
    }

    /// Those that somebody lists, or will.
    fn in_use(&self) -> BTreeSet<LedgerId> {
        let listed = self.topics.values().flat_map(|seen| seen.ledgers.clone());
        let unlisted = self.unlisted.iter().map(|(_, id)| *id);
        listed.chain(unlisted).collect()
    }
}

#[derive(Debug, Default)]
struct Scanner {
    known: BTreeMap<(u8, i64), Known>,
    witnessed: BTreeMap<LedgerId, Witness>,
    suspected: BTreeMap<LedgerId, (Millis, u32)>,
    /// Under way: what there was, and what was read since.
    found: Option<BTreeMap<LedgerId, (Millis, u8)>>,
    began: Millis,
    read: BTreeMap<u8, Option<Seen>>,
}

const TOPICS: u8 = 4;

impl Scanner {
    fn look(&mut self, world: &World) {
        self.found = Some(world.ledgers.clone());
        self.began = world.now;
        self.read.clear();
    }

    /// Reads a topic more; the verdicts once all are read.
    fn read(&mut self, world: &World) -> Option<Vec<(LedgerId, Class, Verdict)>> {
        self.found.as_ref()?;
        let next = u8::try_from(self.read.len()).unwrap();
        self.read.insert(next, world.topics.get(&next).cloned());
        if self.read.len() < usize::from(TOPICS) {
            return None;
        }
        let read = std::mem::take(&mut self.read);
        Some(self.finish(self.found.clone()?, &read, self.began))
    }

    fn finish(
        &mut self,
        found: BTreeMap<LedgerId, (Millis, u8)>,
        read: &BTreeMap<u8, Option<Seen>>,
        now: Millis,
    ) -> Vec<(LedgerId, Class, Verdict)> {
        self.found = None;
        let seen: BTreeMap<_, _> = read
            .iter()
            .filter_map(|(topic, seen)| Some(((*topic, seen.as_ref()?.created), seen.clone()?)))
            .collect();
        let keys: BTreeSet<_> = self.known.keys().chain(seen.keys()).copied().collect();
        for key in keys {
            let (kept, lost) = compare(self.known.remove(&key), seen.get(&key).cloned(), now);
            self.known.extend(kept.map(|kept| (key, kept)));
            self.witnessed.extend(lost);
        }
        let named: BTreeSet<_> = seen.values().flat_map(|seen| &seen.ledgers).collect();
        self.suspected
            .retain(|id, _| found.contains_key(id) && !named.contains(id));
        self.witnessed
            .retain(|id, _| found.contains_key(id) && !named.contains(id));
        let verdict = |(id, (made, topic)): (LedgerId, (Millis, u8))| {
            let named = if named.contains(&id) {
                Named::Hard
            } else {
                Named::Not
            };
            if named == Named::Not {
                self.suspected.entry(id).or_insert((now, 0)).1 += 1;
            }
            let facts = Facts {
                maker: Maker::Topic,
                named,
                owner: match read.get(&topic) {
                    Some(Some(_)) => Owner::Present,
                    _ => Owner::Absent,
                },
                all_read: true,
                all_clusters: true,
                namespace: false,
                is_written: false,
                witness: self.witnessed.get(&id).copied(),
                made,
                suspected: self.suspected.get(&id).copied(),
                now,
            };
            let (class, verdict) = classify(&facts, &Rules::default());
            (id, class, verdict)
        };
        found.into_iter().map(verdict).collect()
    }
}

fn step() -> impl Strategy<Value = Step> {
    let topic = 0..TOPICS;
    prop_oneof![
        3 => topic.clone().prop_map(Step::Make),
        4 => topic.clone().prop_map(Step::List),
        3 => (topic.clone(), any::<bool>()).prop_map(|(topic, dies)| Step::Trim(topic, dies)),
        1 => (topic, any::<bool>()).prop_map(|(topic, dies)| Step::Delete(topic, dies)),
        2 => Just(Step::Look),
        8 => Just(Step::Read),
        2 => (1..2000_u16).prop_map(Step::Pass),
    ]
}

/// No ledger of these worlds is listed later than this after it was made: the age that absence needs rests on it.
const LONGEST_UNLISTED: Millis = 7 * DAY;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn what_is_in_use_is_never_deletable(steps in proptest::collection::vec(step(), 1..120)) {
        let (mut world, mut scanner) = (World::default(), Scanner::default());
        let mut looked = BTreeMap::new();
        for step in steps {
            world.apply(step);
            let ledgers = &world.ledgers;
            // Who waits for longer has died.
            world.unlisted.retain(|(_, id)| world.now - ledgers[id].0 < LONGEST_UNLISTED);
            match step {
                Step::Look => {
                    scanner.look(&world);
                    looked.clone_from(&world.ledgers);
                }
                Step::Read => {
                    let in_use = world.in_use();
                    for (id, class, verdict) in scanner.read(&world).unwrap_or_default() {
                        let deletable = verdict == Verdict::Deletable;
                        prop_assert!(!(deletable && in_use.contains(&id)), "{} ({}) is in use", id, class);
                        prop_assert!(looked.contains_key(&id), "{} came after the look", id);
                    }
                }
                _ => {}
            }
        }
    }

    #[test]
    fn what_leaked_before_our_eyes_is_found(steps in proptest::collection::vec(step(), 1..80)) {
        let (mut world, mut scanner) = (World::default(), Scanner::default());
        for step in steps {
            world.apply(step);
        }
        let scan = |scanner: &mut Scanner, world: &World| {
            scanner.look(world);
            (0..TOPICS).find_map(|_| scanner.read(world)).unwrap()
        };
        let _ = scan(&mut scanner, &world);
        let before = world.in_use();
        for topic in 0..TOPICS {
            world.apply(Step::Trim(topic, true));
        }
        world.apply(Step::Delete(0, true));
        let leaked: BTreeSet<_> = before.difference(&world.in_use()).copied().collect();
        let mut found = BTreeSet::new();
        for _ in 0..3 {
            world.now += HOUR;
            let verdicts = scan(&mut scanner, &world);
            found = verdicts
                .into_iter()
                .filter(|(_, class, verdict)| {
                    matches!(class, Class::Trimmed | Class::OwnerGone) && *verdict == Verdict::Deletable
                })
                .map(|(id, ..)| id)
                .collect();
        }
        prop_assert_eq!(found, leaked);
    }
}

/// A topic's ledger that nobody names, old and long suspected.
fn orphan() -> Facts {
    Facts {
        maker: Maker::Topic,
        named: Named::Not,
        owner: Owner::Present,
        all_read: true,
        all_clusters: true,
        namespace: false,
        is_written: false,
        witness: None,
        made: 0,
        suspected: Some((28 * DAY, 3)),
        now: 30 * DAY,
    }
}

#[test]
fn each_class_and_why() {
    let gone = |scans, hours| Witness::Gone {
        created: 1,
        absence: super::evidence::Absence {
            since: 0,
            until: hours * HOUR,
            scans,
        },
    };
    let trimmed = Witness::Trimmed {
        created: 1,
        from: 1,
        to: 2,
        at: 0,
    };
    let told = [
        orphan(),
        Facts {
            named: Named::Hard,
            ..orphan()
        },
        Facts {
            named: Named::ByPosition,
            ..orphan()
        },
        Facts {
            named: Named::AsMoved,
            ..orphan()
        },
        Facts {
            named: Named::AsMoved,
            maker: Maker::Schema,
            ..orphan()
        },
        Facts {
            maker: Maker::Foreign,
            ..orphan()
        },
        Facts {
            maker: Maker::Foreign,
            witness: Some(trimmed),
            ..orphan()
        },
        Facts {
            maker: Maker::Compaction,
            all_read: false,
            ..orphan()
        },
        Facts {
            maker: Maker::Schema,
            all_read: false,
            witness: Some(trimmed),
            ..orphan()
        },
        Facts {
            witness: Some(trimmed),
            all_clusters: false,
            made: 30 * DAY,
            ..orphan()
        },
        Facts {
            witness: Some(trimmed),
            named: Named::ByPosition,
            ..orphan()
        },
        Facts {
            witness: Some(gone(1, 0)),
            ..orphan()
        },
        Facts {
            witness: Some(gone(2, 1)),
            ..orphan()
        },
        Facts {
            witness: Some(gone(2, 1)),
            all_clusters: false,
            ..orphan()
        },
        Facts {
            all_clusters: false,
            ..orphan()
        },
        Facts {
            is_written: true,
            ..orphan()
        },
        Facts {
            made: 29 * DAY,
            ..orphan()
        },
        Facts {
            suspected: Some((29 * DAY, 2)),
            ..orphan()
        },
        Facts {
            owner: Owner::Absent,
            namespace: true,
            ..orphan()
        },
        Facts {
            owner: Owner::Absent,
            ..orphan()
        },
    ]
    .map(|facts| {
        let (class, verdict) = classify(&facts, &Rules::default());
        format!("{class} {verdict:?}")
    });
    insta::assert_snapshot!(told.join("\n"), @r#"
    r3 Deletable
    r0 Keep("it is referenced")
    r3 Keep("a position names it")
    r5 Deletable
    r0 Keep("it is referenced")
    r8 Keep("it does not say that it is Pulsar's")
    r8 Keep("it does not say that it is Pulsar's")
    r6 Keep("its topic is loaded, and says only in a ledger which one is in use")
    r7 Keep("older versions of its schema are named in ledgers only")
    r1 Deletable
    r1 Deletable
    r2 Wait("its owner has to be absent in more scans, further apart")
    r2 Deletable
    r2 Keep("not every Pulsar cluster on these bookies was declared")
    r3 Keep("not every Pulsar cluster on these bookies was declared")
    r3 Keep("somebody may be writing it")
    r3 Wait("it is too young for that to mean anything")
    r3 Wait("it takes more scans over a longer time")
    r4 Keep("its namespace is there, or that is not known")
    r4 Deletable
    "#);
}

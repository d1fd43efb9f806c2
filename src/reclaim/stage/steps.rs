//! What brokers and operators do, one random step at a time.

use std::time::Duration;

use super::tally::Kind;
use super::{For, Name, ROOTS, Topic, World, wire};
use crate::cluster::store::MetaStore;
use crate::reclaim::plan::{DAY, LedgerId};

/// Topics of a cluster.
const TOPICS: u8 = 2;

/// A broker that waits for longer with a ledger that it made has died: the least age of what may go
/// without a witness rests on it.
const LONGEST_UNNAMED: i64 = 7 * DAY;

/// The shadow of topic 0 of its cluster.
const SHADOW: u8 = 9;

/// Whether nobody may name a ledger in the node with this path, made by this transaction, if it is there.
pub(in crate::reclaim) type Blocked<'a> = &'a dyn Fn(&str, Option<i64>) -> bool;

impl World {
    /// One step.
    pub(in crate::reclaim) fn step(&mut self, random: &mut fastrand::Rng, is_blocked: Blocked<'_>) {
        let name = (random.usize(0..ROOTS.len()), random.u8(0..TOPICS));
        match random.u8(0..46) {
            0..6 => self.begin(name, For::List, random),
            6..9 => self.begin(name, For::Cursor("s"), random),
            9..10 => self.begin(name, For::Cursor("__compaction"), random),
            10..11 => self.begin(name, For::Schema, random),
            11..13 => self.begin(name, For::Compaction, random),
            13..14 => self.begin(name, For::Bucket, random),
            14..23 => self.name_one(random),
            23..27 => self.trim(name),
            27..30 => self.delete_one(random),
            30 => self.close_cursor(name, random),
            31 => self.delete_topic(name, random),
            32 => self.die(name.0),
            33 => {
                self.make_foreign();
                self.tally.add(Kind::ForeignMade, 1);
            }
            34 => self.shadow(name.0),
            35 => self.offload(name),
            36 => self.delete_schema(name),
            37 => {
                let leaked = self.ledgers().into_iter();
                let leaked: Vec<_> = leaked.filter(|id| self.user(*id).is_none()).collect();
                if let Some(id) = random.choice(leaked) {
                    self.bring_back(id, is_blocked);
                }
            }
            38..41 => self.close_one(random),
            41 => self.namespace(name.0, random),
            42..44 => self.copy(random),
            _ => self.pass(random.u64(1..2000)),
        }
    }

    /// Somebody copies a snapshot of the store, which takes its time.
    fn copy(&mut self, random: &mut fastrand::Rng) {
        match self.begun.take() {
            None => self.begun = Some(self.server.copy()),
            Some(begun) => {
                let mixed = begun.or(&self.server, || random.bool());
                self.copied = Some((std::sync::Arc::new(mixed.connect()), self.now()));
            }
        }
    }

    /// A ledger that is in use is closed.
    fn close_one(&mut self, random: &mut fastrand::Rng) {
        let Some(id) = random.choice(self.open.keys().copied()) else {
            return;
        };
        if self.is_there(id) && self.user(id).is_some() {
            let (name, purpose) = self.open.remove(&id).unwrap();
            self.write_ledger(id, name, purpose);
        }
    }

    fn policies(cluster: usize) -> String {
        format!("{}/admin/policies/public/default", ROOTS[cluster])
    }

    /// The namespace of a cluster goes with all that is in it, or is made again.
    pub(in crate::reclaim) fn namespace(&mut self, cluster: usize, random: &mut fastrand::Rng) {
        let path = World::policies(cluster);
        if super::now(self.store_of(&path).stat(&path))
            .unwrap()
            .unwrap()
            .is_none()
        {
            self.put(&path, b"{}");
            return;
        }
        self.tally.add(Kind::NamespaceDeleted, 1);
        for number in 0..TOPICS {
            self.delete_schema((cluster, number));
            self.delete_topic((cluster, number), random);
        }
        self.take(&path);
    }

    pub(in crate::reclaim) fn pass(&mut self, minutes: u64) {
        self.all_pass(Duration::from_secs(minutes * 60));
        self.give_up();
    }

    /// Brokers that have waited for too long are dead.
    pub(super) fn give_up(&mut self) {
        let now = self.now();
        self.unnamed
            .retain(|(.., made)| now - made < LONGEST_UNNAMED);
    }

    fn begin(&mut self, name: Name, purpose: For, random: &mut fastrand::Rng) {
        let kind = match purpose {
            For::Schema => Some(Kind::SchemaMade),
            For::Compaction => Some(Kind::CompactionMade),
            For::Bucket => Some(Kind::BucketMade),
            For::List | For::Cursor(_) => None,
        };
        if let Some(kind) = kind {
            self.tally.add(kind, 1);
        }
        if random.u8(0..4) == 0 {
            self.open.insert(self.next + 1, (name, purpose));
            self.tally.add(Kind::OpenMade, 1);
        }
        let id = self.make(name, purpose);
        self.unnamed.push((name, purpose, id, self.now()));
    }

    /// A broker has what it made named, wherever the topic is by now.
    fn name_one(&mut self, random: &mut fastrand::Rng) {
        if self.unnamed.is_empty() {
            return;
        }
        let at = random.usize(0..self.unnamed.len());
        let (name, purpose, id, _) = self.unnamed.swap_remove(at);
        match purpose {
            For::List => {
                if !self.topics.contains_key(&name) {
                    self.put(&World::policies(name.0), b"{}");
                }
                self.topics.entry(name).or_default().list.push(id);
                self.write_list(name);
            }
            For::Schema => {
                let schema = self.schemas.entry(name).or_default();
                schema.push(id);
                let bytes = wire::locator(schema);
                self.put(&World::schema_path(name), &bytes);
            }
            _ => self.name_in_cursor(name, purpose, id),
        }
    }

    fn name_in_cursor(&mut self, name: Name, purpose: For, id: LedgerId) {
        let which = match purpose {
            For::Cursor(which) => which,
            For::Bucket => "s",
            _ => "__compaction",
        };
        // Without its topic nobody goes on: the ledger has leaked.
        let Some(topic) = self.topics.get_mut(&name) else {
            return;
        };
        let cursor = topic.cursors.entry(which).or_default();
        let old = match purpose {
            For::Cursor(_) => cursor.ledger.replace(id),
            For::Bucket => {
                cursor.buckets.push(id);
                None
            }
            _ => cursor.compacted.replace(id),
        };
        self.undeleted.extend(old.map(|old| (name.0, old)));
        // A compaction of a cursor with a ledger says so in that ledger only.
        if purpose != For::Compaction || self.topics[&name].cursors[which].ledger.is_none() {
            self.write_cursor(name, which);
        }
    }

    fn trim(&mut self, name: Name) {
        let Some(topic) = self.topics.get_mut(&name) else {
            return;
        };
        if topic.list.len() < 2 {
            return;
        }
        let backup = topic.clone();
        let old = topic.list.remove(0);
        topic.moved.retain(|id| *id != old);
        self.backups.push((name, backup));
        self.undeleted.push((name.0, old));
        self.write_list(name);
        self.tally.add(Kind::Trimmed, 1);
    }

    fn delete_one(&mut self, random: &mut fastrand::Rng) {
        if !self.undeleted.is_empty() {
            let at = random.usize(0..self.undeleted.len());
            let (_, id) = self.undeleted.swap_remove(at);
            if self.user(id).is_none() {
                self.take(&super::path_of(id));
            }
        }
    }

    fn close_cursor(&mut self, name: Name, random: &mut fastrand::Rng) {
        let which = if random.bool() { "s" } else { "__compaction" };
        let Some(topic) = self.topics.get_mut(&name) else {
            return;
        };
        let Some(cursor) = topic.cursors.get_mut(which) else {
            return;
        };
        let old = cursor.ledger.take();
        self.undeleted.extend(old.map(|old| (name.0, old)));
        self.write_cursor(name, which);
    }

    /// Cursors, the list, the node; the broker may die after each.
    fn delete_topic(&mut self, name: Name, random: &mut fastrand::Rng) {
        let Some(topic) = self.topics.get_mut(&name) else {
            return;
        };
        self.backups.push((name, topic.clone()));
        let path = format!("{}{}", ROOTS[name.0], World::topic_path(name));
        let mut gone = Vec::new();
        while let Some((which, cursor)) = topic.cursors.pop_first() {
            gone.extend(cursor.ledger);
            gone.extend(cursor.compacted);
            gone.extend(cursor.buckets);
            let cursor = format!("{path}/{which}");
            let store = if name.0 == 0 {
                &self.store
            } else {
                &self.other
            };
            let _ = super::now(store.delete(&cursor, None));
            if random.u8(0..6) == 0 {
                return;
            }
        }
        gone.append(&mut topic.list);
        topic.moved.clear();
        self.undeleted.extend(gone.iter().map(|id| (name.0, *id)));
        self.write_list(name);
        if random.u8(0..6) == 0 {
            return;
        }
        self.topics.remove(&name);
        self.take(&path);
        self.tally.add(Kind::TopicDeleted, 1);
        if random.bool() {
            self.undeleted.retain(|(_, id)| !gone.contains(id));
        }
    }

    fn delete_schema(&mut self, name: Name) {
        if let Some(ledgers) = self.schemas.remove(&name) {
            self.undeleted
                .extend(ledgers.into_iter().map(|id| (name.0, id)));
            self.take(&World::schema_path(name));
        }
    }

    /// The broker of a cluster dies: what it was about to do is not done.
    fn die(&mut self, cluster: usize) {
        self.tally.add(Kind::BrokerDied, 1);
        self.unnamed.retain(|(name, ..)| name.0 != cluster);
        self.undeleted.retain(|(other, _)| *other != cluster);
    }

    /// Its shadow lists what the topic does.
    pub(in crate::reclaim) fn shadow(&mut self, cluster: usize) {
        let source = self.topics.get(&(cluster, 0));
        let list = source.map_or_else(Vec::new, |topic| {
            let kept = topic.list.iter().filter(|id| !topic.moved.contains(id));
            kept.copied().collect()
        });
        let name = (cluster, SHADOW);
        let path = format!("{}{}", ROOTS[cluster], World::topic_path(name));
        self.put(&path, &wire::topic(&list, &[]));
        self.shadows.insert(name, list);
    }

    fn offload(&mut self, name: Name) {
        let Some(topic) = self.topics.get_mut(&name) else {
            return;
        };
        let kept = topic.list.iter().find(|id| !topic.moved.contains(id));
        if let Some(id) = kept.copied() {
            topic.moved.push(id);
            self.undeleted.push((name.0, id));
            self.write_list(name);
            self.tally.add(Kind::Moved, 1);
        }
    }

    /// An operator brings a list back that names a ledger, as far as its ledgers are there. Not that of a topic with
    /// a shadow: what a shadow copied from a list that came and went stands in no version of its source's.
    pub(in crate::reclaim) fn bring_back(&mut self, id: LedgerId, is_blocked: Blocked<'_>) {
        let named = |(name, backup): &(Name, Topic)| name.1 != 0 && backup.list.contains(&id);
        let Some(at) = self.backups.iter().position(named) else {
            return;
        };
        let name = self.backups[at].0;
        let path = format!("{}{}", ROOTS[name.0], World::topic_path(name));
        if is_blocked(&path, self.created(&path)) {
            return;
        }
        let (_, backup) = self.backups.swap_remove(at);
        let there = backup.list.into_iter().filter(|id| self.is_there(*id));
        let list: Vec<_> = there.collect();
        self.tally.add(Kind::Restored, 1);
        if !self.topics.contains_key(&name) {
            self.tally.add(Kind::OwnerBack, 1);
        }
        let topic = self.topics.entry(name).or_default();
        topic.moved.clear();
        topic.list = list;
        self.write_list(name);
    }

    /// Somebody names a ledger again whose owner is there. Not of a topic with a shadow, as above.
    pub(in crate::reclaim) fn name_again(&mut self, id: LedgerId, is_blocked: Blocked<'_>) {
        let Some((name, purpose)) = self.made_for.get(&id).copied() else {
            return;
        };
        let topic = format!("{}{}", ROOTS[name.0], World::topic_path(name));
        let path = match purpose {
            For::List => topic,
            For::Cursor(which) => format!("{topic}/{which}"),
            _ => format!("{topic}/s"),
        };
        if is_blocked(&path, self.created(&path)) {
            return;
        }
        let Some(topic) = self.topics.get_mut(&name).filter(|_| name.1 != 0) else {
            return;
        };
        if purpose == For::List {
            topic.moved.retain(|other| *other != id);
            topic.list.push(id);
            topic.list.sort_unstable();
            topic.list.dedup();
            self.write_list(name);
        } else {
            let which = match purpose {
                For::Cursor(which) => which,
                For::Bucket => "s",
                _ => return,
            };
            match topic.cursors.get_mut(which) {
                Some(cursor) if purpose == For::Bucket => cursor.buckets.push(id),
                Some(cursor) if cursor.ledger.is_none() => cursor.ledger = Some(id),
                _ => return,
            }
            self.write_cursor(name, which);
        }
        self.tally.add(Kind::NamedAgain, 1);
    }

    /// Everything comes to rest: brokers die, topics are unloaded, shadows follow.
    pub(in crate::reclaim) fn rest(&mut self) {
        self.set_right();
        for cluster in 0..ROOTS.len() {
            self.die(cluster);
            // What has no owner goes only if it has no namespace either.
            self.take(&World::policies(cluster));
            if self.shadows.contains_key(&(cluster, SHADOW)) {
                self.shadow(cluster);
            }
        }
        let names: Vec<_> = self.topics.keys().copied().collect();
        for name in names {
            let topic = self.topics.get_mut(&name).unwrap();
            let Some(cursor) = topic.cursors.get_mut("__compaction") else {
                continue;
            };
            if cursor.ledger.take().is_some() {
                self.write_cursor(name, "__compaction");
            }
        }
    }
}

//! Writes that are not known to be durable, oldest first, in bounded memory. While the writer is in
//! trouble they wait here; when it is well again they are sent once more from the oldest on.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use super::Appended;
use super::wire::Write;

/// Most bytes that wait: some 700 events of 1.5 KiB, which a node with a bad disk makes in hours,
/// and a tenth of the memory that the agent may have.
const BYTES_LIMIT: usize = 1024 * 1024;

/// Most writes that wait; acknowledgements are small and would otherwise be many.
const WRITES_LIMIT: usize = 4096;

/// What an entry takes beside the bytes of its write.
const ENTRY_BYTES: usize = 96;

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Tickets rise from front to back.
    entries: VecDeque<Entry>,
    /// So many at the front were sent.
    sent: usize,
    bytes: usize,
    last_ticket: u64,
    lost: u64,
}

#[derive(Debug)]
struct Entry {
    ticket: u64,
    write: Write,
    waiter: Option<oneshot::Sender<Appended>>,
}

impl Entry {
    fn bytes(&self) -> usize {
        self.write.size() + ENTRY_BYTES
    }

    fn resolve(self, appended: Appended) {
        if let Some(waiter) = self.waiter {
            // Whoever waited may have given up.
            let _ = waiter.send(appended);
        }
    }
}

impl Queue {
    /// Takes in a write and says its ticket. Makes room by dropping the oldest write that was not
    /// sent, claims last: what happened last matters most after a restart, and claims say who has
    /// to let go of a server.
    pub(super) fn push(&mut self, write: Write, waiter: Option<oneshot::Sender<Appended>>) -> u64 {
        self.last_ticket += 1;
        let entry = Entry {
            ticket: self.last_ticket,
            write,
            waiter,
        };
        self.bytes += entry.bytes();
        self.entries.push_back(entry);
        while self.bytes > BYTES_LIMIT || self.entries.len() > WRITES_LIMIT {
            self.drop_lost(self.least_needed());
        }
        self.last_ticket
    }

    /// Takes back what is not sent yet and now has no purpose; false when it was sent.
    pub(super) fn cancel_delivery(&mut self, listener: &str, seq: u64) -> bool {
        for Entry { write, .. } in self.entries.range_mut(self.sent..) {
            let before = write.size();
            if let Write::Append { event, listeners } = write
                && event.seq == seq
            {
                listeners.retain(|name| &**name != listener);
                self.bytes -= before - write.size();
                return true;
            }
        }
        false
    }

    /// Drops unsent writes of this pin: a newer one replaces them.
    pub(super) fn forget_pin(&mut self, pin: &[u8]) {
        self.forget_unsent(|write| match write {
            Write::PutPin { key, .. } | Write::RemovePin { key } => &**key == pin,
            _ => false,
        });
    }

    /// Drops unsent claims: newer ones replace them.
    pub(super) fn forget_claims(&mut self) {
        self.forget_unsent(|write| matches!(write, Write::PutClaims { .. }));
    }

    fn forget_unsent(&mut self, old: impl Fn(&Write) -> bool) {
        for entry in self.entries.split_off(self.sent) {
            if old(&entry.write) {
                self.bytes -= entry.bytes();
            } else {
                self.entries.push_back(entry);
            }
        }
    }

    /// The next write to send, which counts as sent from now on.
    pub(super) fn next_unsent(&mut self) -> Option<(u64, &Write)> {
        let entry = self.entries.get(self.sent)?;
        self.sent += 1;
        Some((entry.ticket, &entry.write))
    }

    /// Whatever was sent was sent in vain.
    pub(super) fn forget_sent(&mut self) {
        self.sent = 0;
    }

    /// Everything up to this ticket is durable.
    pub(super) fn durable(&mut self, ticket: u64) {
        while self
            .entries
            .front()
            .is_some_and(|first| first.ticket <= ticket)
        {
            if let Some(entry) = self.remove(0) {
                entry.resolve(Appended::Durable);
            }
        }
    }

    /// This one will never be durable.
    pub(super) fn refused(&mut self, ticket: u64) {
        let place = self
            .entries
            .binary_search_by_key(&ticket, |entry| entry.ticket);
        if let Some(entry) = place.ok().and_then(|place| self.remove(place)) {
            entry.resolve(Appended::NotDurable);
        }
    }

    /// Nobody waits any longer; the writes stay.
    pub(super) fn release_waiters(&mut self) {
        for entry in &mut self.entries {
            if let Some(waiter) = entry.waiter.take() {
                let _ = waiter.send(Appended::NotDurable);
            }
        }
    }

    /// The newest ticket that waits.
    pub(super) fn newest(&self) -> Option<u64> {
        self.entries.back().map(|entry| entry.ticket)
    }

    /// The oldest ticket that waits.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.entries.front().map(|entry| entry.ticket)
    }

    /// How many events wait.
    pub(super) fn events(&self) -> usize {
        let append = |entry: &&Entry| matches!(entry.write, Write::Append { .. });
        self.entries.iter().filter(append).count()
    }

    /// How many events did not fit, all in all.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    fn least_needed(&self) -> usize {
        let oldest = self.sent.min(self.entries.len() - 1);
        let mut unsent = self.entries.range(oldest..);
        let other = unsent.position(|entry| !matches!(entry.write, Write::PutClaims { .. }));
        oldest + other.unwrap_or(0)
    }

    fn drop_lost(&mut self, place: usize) {
        if let Some(entry) = self.remove(place) {
            // A lost acknowledgement only means that an event is delivered twice.
            if matches!(entry.write, Write::Append { .. }) {
                self.lost += 1;
            }
            entry.resolve(Appended::NotDurable);
        }
    }

    fn remove(&mut self, place: usize) -> Option<Entry> {
        let entry = self.entries.remove(place)?;
        self.bytes -= entry.bytes();
        if place < self.sent {
            self.sent -= 1;
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::Event;
    use super::*;

    fn append(seq: u64, bytes: usize) -> Write {
        Write::Append {
            event: Event {
                seq,
                json: "x".repeat(bytes).into(),
            },
            listeners: vec!["page".into(), "chat".into()],
        }
    }

    fn sent(queue: &mut Queue) -> Vec<u64> {
        std::iter::from_fn(|| queue.next_unsent().map(|(ticket, _)| ticket)).collect()
    }

    #[test]
    fn what_was_not_acknowledged_is_sent_again_in_order() {
        let mut queue = Queue::default();
        for seq in 1..=3 {
            queue.push(append(seq, 10), None);
        }
        assert_eq!(sent(&mut queue), [1, 2, 3]);
        queue.durable(1);
        queue.forget_sent();
        assert_eq!(sent(&mut queue), [2, 3]);
        queue.durable(3);
        assert_eq!((queue.oldest(), queue.bytes), (None, 0));
    }

    #[test]
    fn waiters_learn_what_became_of_their_event() {
        let mut queue = Queue::default();
        let mut waiters = Vec::new();
        for seq in 1..=3 {
            let (waiter, wait) = oneshot::channel();
            queue.push(append(seq, 10), Some(waiter));
            waiters.push(wait);
        }
        queue.durable(1);
        queue.refused(2);
        queue.release_waiters();
        let outcomes: Vec<_> = waiters.iter_mut().map(|wait| wait.try_recv()).collect();
        assert_eq!(
            outcomes,
            [
                Ok(Appended::Durable),
                Ok(Appended::NotDurable),
                Ok(Appended::NotDurable)
            ]
        );
        assert_eq!(queue.events(), 1);
    }

    #[test]
    fn what_does_not_fit_is_dropped_oldest_first_and_counted() {
        let mut queue = Queue::default();
        let quarter = BYTES_LIMIT / 4;
        for seq in 1..=5 {
            queue.push(append(seq, quarter), None);
        }
        assert_eq!((queue.lost(), sent(&mut queue)), (2, vec![3, 4, 5]));
        // All of them are on their way: the new one is the only one that can be dropped.
        queue.push(append(6, quarter), None);
        assert_eq!((queue.lost(), queue.newest()), (3, Some(5)));
    }

    #[test]
    fn an_acknowledgement_takes_back_a_delivery_that_was_not_sent() {
        let mut queue = Queue::default();
        queue.push(append(1, 10), None);
        queue.push(append(2, 10), None);
        queue.next_unsent();
        assert!(!queue.cancel_delivery("page", 1));
        assert!(queue.cancel_delivery("page", 2));
        let Some((2, Write::Append { listeners, .. })) = queue.next_unsent() else {
            panic!("the second event is not next");
        };
        assert_eq!(listeners, &[Box::from("chat")]);
        queue.durable(2);
        assert_eq!(queue.bytes, 0);
    }

    #[test]
    fn a_newer_pin_replaces_an_unsent_one() {
        let mut queue = Queue::default();
        let put = |value: &[u8]| Write::PutPin {
            key: b"key"[..].into(),
            value: value.into(),
        };
        queue.push(put(b"old"), None);
        queue.push(append(1, 10), None);
        queue.forget_pin(b"key");
        queue.push(put(b"new"), None);
        assert_eq!(sent(&mut queue), [2, 3]);
    }

    #[test]
    fn newer_claims_replace_unsent_ones_and_events_make_room_for_them() {
        let mut queue = Queue::default();
        let put = |value: &[u8]| Write::PutClaims {
            value: value.into(),
        };
        let (waiter, mut older) = oneshot::channel();
        queue.push(put(b"old"), Some(waiter));
        queue.forget_claims();
        assert_eq!(queue.bytes, 0);
        assert!(older.try_recv().is_err(), "nobody stores the older ones");
        queue.push(put(b"new"), None);
        let third = BYTES_LIMIT / 3;
        for seq in 1..=4 {
            queue.push(append(seq, third), None);
        }
        assert_eq!((queue.lost(), sent(&mut queue)), (2, vec![2, 5, 6]));
    }
}

//! Who gets a place when there is none: decides alone, from what the connections do. Clients that keep
//! the server waiting give way, first those that never asked; an address has its share, and those of
//! this machine keep some places whatever others do.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// What a connection does, by how willingly it gives way: the first gives way first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Doing {
    /// Has never sent a whole request.
    Silent,
    /// Is between two requests.
    Idle,
    /// Does not read an answer that waits for it.
    Stalled,
    /// Waits for the server, or follows the events.
    Served,
}

/// An open connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) source: IpAddr,
    pub(super) doing: Doing,
}

/// Where a new connection goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// There is a place.
    Free,
    /// This one gives way.
    Instead(usize),
    /// Nowhere.
    None,
}

/// How many connections there may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    /// In all.
    pub(super) all: usize,
}

impl Places {
    /// Half of all: programs behind one proxy have one address.
    fn of_one(self) -> usize {
        self.all / 2
    }

    /// An eighth is for clients on this machine alone: the bookie's own Prometheus agent, a kubelet, a
    /// person who looks what is going on.
    fn of_others(self) -> usize {
        self.all - self.all / 8
    }

    /// The place for a new connection beside those that are open, oldest first.
    pub(super) fn room(self, open: &[Place], newcomer: IpAddr) -> Room {
        let newcomer = source(newcomer);
        let count = |which: &dyn Fn(&Place) -> bool| open.iter().filter(|it| which(it)).count();
        let own = |it: &Place| it.source == newcomer;
        let other = |it: &Place| !it.source.is_loopback();
        if self.of_one() <= count(&own) {
            return oldest(open, &own).map_or(Room::None, Room::Instead);
        }
        let crowded = !newcomer.is_loopback() && self.of_others() <= count(&other);
        if !crowded && open.len() < self.all {
            return Room::Free;
        }
        let rival = |it: &Place| !crowded || other(it);
        if let Some(at) = oldest(open, &rival) {
            return Room::Instead(at);
        }
        // All are served: who has most gives one.
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for place in open.iter().filter(|it| rival(it)) {
            *counts.entry(place.source).or_default() += 1;
        }
        let Some((richest, most)) = counts.into_iter().max_by_key(|(_, count)| *count) else {
            return Room::None;
        };
        let at = open.iter().position(|it| it.source == richest);
        match at {
            Some(at) if count(&own) + 1 < most => Room::Instead(at),
            _ => Room::None,
        }
    }
}

/// The oldest of those that keep the server waiting most, if one does.
fn oldest(open: &[Place], which: &dyn Fn(&Place) -> bool) -> Option<usize> {
    let waited_for = open.iter().enumerate();
    let waited_for = waited_for.filter(|(_, it)| which(it) && it.doing != Doing::Served);
    waited_for
        .min_by_key(|(at, it)| (it.doing, *at))
        .map(|(at, _)| at)
}

/// What counts as one address: of IPv6 the network that a single customer is given.
pub(super) fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => {
            let network = u128::from(v6) >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from(network))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: Places = Places { all: 16 };

    fn place(source: &str, doing: Doing) -> Place {
        let source = source.parse().unwrap();
        Place { source, doing }
    }

    #[track_caller]
    fn check(open: &[Place], newcomer: &str, expected: Room) {
        assert_eq!(PLACES.room(open, newcomer.parse().unwrap()), expected);
    }

    /// As many as there may be, half of them of each.
    fn full(one: Place, other: Place) -> Vec<Place> {
        [vec![one; 8], vec![other; 8]].concat()
    }

    #[test]
    fn who_never_asked_gives_way_before_who_is_idle() {
        let mut open = full(
            place("127.0.0.1", Doing::Idle),
            place("127.0.0.2", Doing::Served),
        );
        check(&open, "127.0.0.3", Room::Instead(0));
        open[12].doing = Doing::Stalled;
        check(&open, "127.0.0.3", Room::Instead(0));
        open[13].doing = Doing::Silent;
        check(&open, "127.0.0.3", Room::Instead(13));
    }

    #[test]
    fn an_address_has_its_share_and_takes_from_itself_then() {
        let mut open = vec![place("192.0.2.1", Doing::Served); 8];
        check(&open, "192.0.2.2", Room::Free);
        check(&open, "192.0.2.1", Room::None);
        open[3].doing = Doing::Stalled;
        check(&open, "192.0.2.1", Room::Instead(3));
        check(&open, "::ffff:192.0.2.1", Room::Instead(3));
        let open = vec![place("2001:db8::", Doing::Silent); 8];
        check(&open, "2001:db8::7", Room::Instead(0));
        check(&open, "2001:db8:0:1::7", Room::Free);
    }

    #[test]
    fn this_machine_keeps_places() {
        let one = place("192.0.2.1", Doing::Served);
        let other = place("192.0.2.2", Doing::Served);
        let open = [vec![one; 7], vec![other; 7]].concat();
        check(&open, "192.0.2.3", Room::Instead(7));
        check(&open, "127.0.0.1", Room::Free);
    }

    #[test]
    fn where_all_are_served_the_richest_gives_one() {
        let few = place("127.0.0.1", Doing::Served);
        let many = place("127.0.0.2", Doing::Served);
        let other = place("127.0.0.4", Doing::Served);
        let open = [vec![few; 2], vec![many; 8], vec![other; 6]].concat();
        check(&open, "127.0.0.1", Room::Instead(2));
        let alone: Vec<Place> = (1..=16)
            .map(|last| place(&format!("127.0.1.{last}"), Doing::Served))
            .collect();
        check(&alone, "127.0.0.1", Room::None);
    }
}

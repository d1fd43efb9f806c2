//! Which Pulsar clusters a scan reads, against those of the scan before: what is remembered of owners goes by the
//! number of their cluster, and that is its place among those that were declared then.

use super::Pulsar;

/// The number that each cluster of the last scan has now; none of one that is not read.
pub(in crate::reclaim) fn numbers(before: &[String], now: &[String]) -> Vec<Option<u16>> {
    let number = |name: &String| {
        let at = now.iter().position(|other| is_same(name, other))?;
        u16::try_from(at).ok()
    };
    before.iter().map(number).collect()
}

/// A cluster of the last scan that is not read now.
pub(super) fn missing<'a>(before: &'a [String], now: &[Pulsar]) -> Option<&'a str> {
    let is_missing = |name: &&String| !now.iter().any(|one| is_same(name, &one.name));
    before.iter().find(is_missing).map(String::as_str)
}

/// Names are `zk://SERVERS=ROOT`. The same cluster has one server at least in both: servers come and go.
fn is_same(one: &str, other: &str) -> bool {
    let parts = |name| str::split_once(name, '=');
    let (Some((servers, root)), Some((others, other_root))) = (parts(one), parts(other)) else {
        return one == other;
    };
    let list = |servers| str::trim_start_matches(servers, "zk://").split(',');
    let is_shared = |server| list(others).any(|other| other == server);
    root == other_root && list(servers).any(is_shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_known_by_a_server_and_their_root() {
        let names = |names: &[&str]| {
            names
                .iter()
                .map(|&name| name.to_owned())
                .collect::<Vec<_>>()
        };
        let before = names(&["zk://a:1,b:1=", "zk://a:1,b:1=/x", "zk://c:1=", "here"]);
        let now = names(&["here", "zk://b:1,d:1=/x", "zk://e:1=", "zk://b:1="]);
        assert_eq!(numbers(&before, &now), [Some(3), Some(1), None, Some(0)]);
    }
}

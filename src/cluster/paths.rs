//! Where things lie in the store: BookKeeper's nodes below its ledgers root, and ours below
//! `<root>/<instance id>`, so that several clusters can share one ZooKeeper. Pure.

/// The names of one cluster's nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Paths {
    ledgers: String,
    own: String,
}

/// The child of `available` that is no bookie but the list of those that are read-only.
pub(super) const READ_ONLY: &str = "readonly";

/// Longest name that we put into a path: a host name has at most 253 bytes, a port 6 more.
const NAME_LIMIT: usize = 300;

impl Paths {
    /// Of the cluster with its ledgers there and that id. `root` is ours.
    pub(super) fn new(ledgers_root: &str, root: &str, instance: &str) -> Paths {
        Paths {
            ledgers: trimmed(ledgers_root).to_owned(),
            own: format!("{}/{instance}", trimmed(root)),
        }
    }

    /// Where the cluster says its id.
    pub(super) fn instance_id(ledgers_root: &str) -> String {
        format!("{}/INSTANCEID", trimmed(ledgers_root))
    }

    /// The ledgers root itself.
    pub(super) fn ledgers(&self) -> &str {
        &self.ledgers
    }

    /// One child for each bookie that was ever initialised.
    pub(super) fn cookies(&self) -> String {
        format!("{}/cookies", self.ledgers)
    }

    /// One child for each writable bookie.
    pub(super) fn available(&self) -> String {
        format!("{}/available", self.ledgers)
    }

    /// One child for each read-only bookie.
    pub(super) fn read_only(&self) -> String {
        format!("{}/available/{READ_ONLY}", self.ledgers)
    }

    /// Ledgers with too few replicas, four folders deep.
    pub(super) fn under_replicated(&self) -> String {
        format!("{}/underreplication/ledgers", self.ledgers)
    }

    /// Pulsar's map of racks: beside the ledgers, as Pulsar's own prefix is theirs too.
    pub(super) fn racks(&self) -> String {
        let above = self.ledgers.rsplit_once('/').map_or("", |(above, _)| above);
        format!("{above}/bookies")
    }

    /// The claims on bookies, one child for each.
    pub(super) fn claims(&self) -> String {
        format!("{}/claims", self.own)
    }

    /// The claims on one bookie: the agent's own is its data, those of others are its children.
    pub(super) fn claims_on(&self, bookie: &str) -> String {
        format!("{}/claims/{bookie}", self.own)
    }

    /// What agents say of their bookies.
    pub(super) fn agents(&self) -> String {
        format!("{}/agents", self.own)
    }

    /// What the agent of that bookie says.
    pub(super) fn agent(&self, bookie: &str) -> String {
        format!("{}/agents/{bookie}", self.own)
    }

    /// Who changes modes.
    pub(super) fn mode_lock(&self) -> String {
        format!("{}/mode-lock", self.own)
    }

    /// Bookies that were allowed to stop.
    pub(super) fn stopping(&self) -> String {
        format!("{}/stopping", self.own)
    }

    /// That this bookie was.
    pub(super) fn stopping_of(&self, bookie: &str) -> String {
        format!("{}/stopping/{bookie}", self.own)
    }

    /// The largest ensemble in use.
    pub(super) fn ensemble(&self) -> String {
        format!("{}/ensemble", self.own)
    }

    /// Who looks for it.
    pub(super) fn ensemble_walk(&self) -> String {
        format!("{}/ensemble-walk", self.own)
    }
}

fn trimmed(path: &str) -> &str {
    path.trim_end_matches('/')
}

/// Whether it can be the name of a node, and why not.
///
/// # Errors
/// The reason, in words.
pub fn check_name(name: &str) -> Result<(), String> {
    let refused = |c: char| {
        // As ZooKeeper does; the rest of what it refuses is no character.
        matches!(u32::from(c), 0x00..=0x1f | 0x7f..=0x9f | 0xe000..=0xf8ff | 0xfff0..=0xffff)
    };
    if name.is_empty() {
        return Err("it is empty".to_owned());
    }
    if NAME_LIMIT < name.len() {
        return Err(format!("it has more than {NAME_LIMIT} bytes"));
    }
    if name == "." || name == ".." {
        return Err("it is a relative path".to_owned());
    }
    if name.contains('/') {
        return Err("it has a slash, which would make a node below another".to_owned());
    }
    match name.chars().find(|c| refused(*c)) {
        Some(c) => Err(format!("it has the character U+{:04X}", u32::from(c))),
        None => Ok(()),
    }
}

/// Whether it can be a bookie's id, and why not.
///
/// # Errors
/// The reason, in words.
pub fn check_bookie(id: &str) -> Result<(), String> {
    check_name(id)?;
    if id == READ_ONLY {
        return Err("the list of read-only bookies is called so".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_nodes_are_below_our_root_and_racks_beside_the_ledgers() {
        let paths = Paths::new("/x/ledgers", "/dirkeeper", "5f2c");
        assert_eq!(paths.cookies(), "/x/ledgers/cookies");
        assert_eq!(paths.racks(), "/x/bookies");
        assert_eq!(paths.claims_on("b:1"), "/dirkeeper/5f2c/claims/b:1");
        let plain = Paths::new("/ledgers/", "/", "5f2c");
        assert_eq!(plain.racks(), "/bookies");
        assert_eq!(plain.mode_lock(), "/5f2c/mode-lock");
        assert_eq!(Paths::instance_id("/ledgers"), "/ledgers/INSTANCEID");
    }

    #[test]
    fn what_no_bookie_can_be_called() {
        for id in ["127.0.0.1:3181", "bookie-0.bookie", "[::1]:3181", "a b ä"] {
            assert_eq!(check_bookie(id), Ok(()), "{id}");
        }
        let why = |id: &str| check_bookie(id).unwrap_err();
        assert_eq!(why(""), "it is empty");
        assert!(why("a/b").contains("slash"));
        assert!(why("..").contains("relative"));
        assert!(why("readonly").contains("read-only"));
        assert_eq!(why("a\nb"), "it has the character U+000A");
        assert!(why(&"a".repeat(301)).contains("300 bytes"));
    }
}

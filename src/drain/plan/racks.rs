//! Where bookies stand, as Pulsar's map of racks says (`/bookies`). A map that cannot be understood is in the way of a job:
//! without it a drain could move all replicas into one rack.

use std::collections::BTreeMap;

use crate::cluster::{Place, racks};

/// The rack of a bookie that nobody gave one (`NetworkTopology.DEFAULT_RACK`).
const DEFAULT_RACK: &str = "/default-rack";

/// Places by the ids of bookies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Racks {
    places: BTreeMap<String, Place>,
}

impl Racks {
    /// Reads the node's data.
    ///
    /// # Errors
    /// It is no such map, in words.
    pub fn parse(bytes: &[u8]) -> Result<Racks, String> {
        racks(bytes).map(|places| Racks { places })
    }

    /// The bookie's rack, where somebody said one.
    #[must_use]
    pub fn rack(&self, bookie: &str) -> Option<&str> {
        self.places.get(bookie)?.rack.as_deref()
    }

    /// The bookie's isolation group, where somebody said one.
    #[must_use]
    pub fn group(&self, bookie: &str) -> Option<&str> {
        self.places.get(bookie)?.group.as_deref()
    }

    /// Every bookie of the map.
    pub fn bookies(&self) -> impl Iterator<Item = &str> {
        self.places.keys().map(String::as_str)
    }
}

/// A rack as it is compared: with the slash that Pulsar puts before it, and the default one for none.
pub(super) fn rack_of(rack: Option<&str>) -> &str {
    rack.map_or(DEFAULT_RACK, |rack| rack)
        .trim_start_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_by_bookie() {
        let racks = Racks::parse(
            br#"{"default": {"a:1": {"rack": "/r1"}}, "x": {"b:1": {"rack": "", "hostname": "b"}}}"#,
        )
        .unwrap();
        let told = |id| (racks.rack(id), racks.group(id));
        assert_eq!(told("a:1"), (Some("/r1"), Some("default")));
        assert_eq!(told("b:1"), (None, Some("x")));
        assert_eq!(told("c:1"), (None, None));
        assert_eq!(racks.bookies().collect::<Vec<_>>(), ["a:1", "b:1"]);
        assert!(Racks::parse(b"[1]").is_err());
        assert_eq!(Racks::parse(b" "), Ok(Racks::default()));
    }

    #[test]
    fn racks_are_compared_as_pulsar_means_them() {
        assert_eq!(rack_of(Some("/r1")), rack_of(Some("r1")));
        assert_eq!(rack_of(None), rack_of(Some("/default-rack")));
        assert_ne!(rack_of(Some("/a/r1")), rack_of(Some("/b/r1")));
    }
}

//! How many bookies must stay writable, and whether one more may go. Pure: decided by a view that was
//! read now, under the lock.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::health::beside::{ClusterView, Member};

/// What counts as the largest ensemble while nobody has looked through the ledgers: Pulsar's and
/// BookKeeper's usual one is 2 or 3.
pub(super) const ASSUMED_ENSEMBLE: u32 = 3;

/// Whether the bookie may leave the writable ones. `min_writable` overrides the floor. In an `emergency`
/// it may go although too few stay, if no other has done so. Those that are `stopping` count as gone.
///
/// # Errors
/// Why not, in words.
pub fn may_go(
    view: &ClusterView,
    stopping: &BTreeMap<String, Duration>,
    bookie: &str,
    min_writable: Option<u32>,
    emergency: bool,
) -> Result<(), String> {
    let this = view.members.iter().find(|member| member.id == bookie);
    // It has left already. In both lists it has not: clients still write to it.
    if this.is_some_and(|member| member.registration.read_only && !member.registration.writable) {
        return Ok(());
    }
    let Err(why) = enough((view, stopping), bookie, this, min_writable) else {
        return Ok(());
    };
    if !emergency {
        return Err(why);
    }
    let below = |member: &&Member| member.id != bookie && member.below_floor;
    match view.members.iter().find(below) {
        None => Ok(()),
        Some(other) => Err(format!(
            "{why}, and {} is read-only below the floor already: one at a time",
            other.id
        )),
    }
}

fn enough(
    (view, stopping): (&ClusterView, &BTreeMap<String, Duration>),
    bookie: &str,
    this: Option<&Member>,
    min_writable: Option<u32>,
) -> Result<(), String> {
    let others = view
        .members
        .iter()
        .filter(|member| member.id != bookie && member.is_writable());
    let (leaving, stay): (Vec<&Member>, Vec<&Member>) =
        others.partition(|member| stopping.contains_key(&member.id));
    left(view, this, &stay, min_writable).map_err(|why| {
        let leaving = leaving.iter().map(|member| &*member.id);
        let leaving: Vec<String> = leaving
            .map(|id| {
                let seconds = stopping[id].as_secs();
                format!("{id} was allowed to stop and counts as gone for another {seconds} s")
            })
            .collect();
        match leaving.is_empty() {
            true => why,
            false => format!("{why}: {}", leaving.join(", ")),
        }
    })
}

/// As [`enough`], of those that stay writable.
fn left(
    view: &ClusterView,
    this: Option<&Member>,
    stay: &[&Member],
    min_writable: Option<u32>,
) -> Result<(), String> {
    let (floor, because) = floor(view, min_writable);
    let too_few = |count: usize| u32::try_from(count).unwrap_or(u32::MAX) < floor;
    if too_few(stay.len()) {
        let count = stay.len();
        return Err(format!(
            "{count} other bookies are writable and {floor} must stay so ({because})"
        ));
    }
    if let Some(group) = this.and_then(|member| member.group.as_deref()) {
        let in_group = |member: &&&Member| member.group.as_deref() == Some(group);
        let count = stay.iter().filter(in_group).count();
        if too_few(count) {
            return Err(format!(
                "{count} other bookies of its isolation group {group} are writable and {floor} must \
                 stay so ({because})"
            ));
        }
    }
    if let Some(rack) = this.and_then(|member| member.rack.as_deref()) {
        let in_rack = |member: &&Member| member.rack.as_deref() == Some(rack);
        if !stay.iter().any(in_rack) && stay.iter().any(|member| member.rack.is_some()) {
            return Err(format!(
                "no other bookie of its rack {rack} is writable, and other racks have some"
            ));
        }
    }
    Ok(())
}

fn floor(view: &ClusterView, min_writable: Option<u32>) -> (u32, String) {
    match (min_writable, view.largest_ensemble) {
        (Some(floor), _) => (floor, "min_writable_bookies".to_owned()),
        (None, Some(largest)) => (
            largest.saturating_add(1),
            format!("the largest ensemble in use has {largest}, and one more"),
        ),
        (None, None) => (
            ASSUMED_ENSEMBLE + 1,
            format!(
                "the largest ensemble in use is not known yet; {ASSUMED_ENSEMBLE} is assumed, and one more"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::beside::Registration;

    /// Members as text: id, then `w` writable, `r` read-only, `b` below the floor, `/rack`, `@group`.
    fn view(members: &str, largest_ensemble: Option<u32>) -> ClusterView {
        let members = members.split_whitespace().map(|word| {
            let (id, rest) = word.split_once(':').unwrap();
            let (rest, group) = rest.split_once('@').unwrap_or((rest, ""));
            let (flags, rack) = rest.split_once('/').unwrap_or((rest, ""));
            let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            Member {
                id: id.to_owned(),
                registration: Registration {
                    writable: flags.contains('w'),
                    read_only: flags.contains('r'),
                },
                rack: some(rack),
                group: some(group),
                agent: None,
                claimed: false,
                below_floor: flags.contains('b'),
            }
        });
        ClusterView {
            members: members.collect(),
            largest_ensemble,
        }
    }

    fn none() -> BTreeMap<String, Duration> {
        BTreeMap::new()
    }

    fn ask(members: &str, largest: u32, emergency: bool) -> String {
        match may_go(&view(members, Some(largest)), &none(), "a", None, emergency) {
            Ok(()) => "may go".to_owned(),
            Err(why) => why,
        }
    }

    #[test]
    fn one_more_than_the_largest_ensemble_stays() {
        assert_eq!(ask("a:w b:w c:w d:w e:w", 3, false), "may go");
        assert_eq!(
            ask("a:w b:w c:w d:w e:r", 3, false),
            "3 other bookies are writable and 4 must stay so (the largest ensemble in use has 3, and one more)"
        );
        // In both lists is not writable; a cookie alone neither.
        assert!(ask("a:w b:w c:w d:w e:wr f:", 3, false).starts_with("3 other"));
        // It has left already, or was never there.
        assert_eq!(ask("a:r b:w", 3, false), "may go");
        assert!(ask("a:wr b:w", 3, false).starts_with("1 other"));
        assert!(ask("b:w", 3, false).starts_with("1 other"));
        assert!(ask("", u32::MAX, false).starts_with("0 other"));
    }

    #[test]
    fn an_unknown_ensemble_is_assumed_and_said() {
        let unknown =
            may_go(&view("a:w b:w c:w d:w", None), &none(), "a", None, false).unwrap_err();
        assert_eq!(
            unknown,
            "3 other bookies are writable and 4 must stay so (the largest ensemble in use is not \
             known yet; 3 is assumed, and one more)"
        );
        assert!(
            may_go(
                &view("a:w b:w c:w d:w e:w", None),
                &none(),
                "a",
                None,
                false
            )
            .is_ok()
        );
    }

    #[test]
    fn the_operators_number_counts_instead() {
        let small = view("a:w b:w", None);
        assert_eq!(may_go(&small, &none(), "a", Some(1), false), Ok(()));
        assert_eq!(
            may_go(&small, &none(), "a", Some(2), false).unwrap_err(),
            "1 other bookies are writable and 2 must stay so (min_writable_bookies)"
        );
    }

    #[test]
    fn the_floor_counts_within_the_group() {
        assert_eq!(
            ask("a:w@x b:w@x c:w@y d:w@y e:w@y f:w", 1, false),
            "1 other bookies of its isolation group x are writable and 2 must stay so (the largest \
             ensemble in use has 1, and one more)"
        );
        assert_eq!(ask("a:w b:w@x c:w@x d:w@y", 1, false), "may go");
    }

    #[test]
    fn no_rack_loses_its_last_one() {
        assert_eq!(
            ask("a:w/r1 b:r/r1 c:w/r2 d:w/r2 e:w", 2, false),
            "no other bookie of its rack r1 is writable, and other racks have some"
        );
        assert_eq!(ask("a:w/r1 b:w/r1 c:w/r2 d:w/r2", 2, false), "may go");
        assert_eq!(ask("a:w/r1 b:r/r2 c:w d:w e:w", 2, false), "may go");
    }

    #[test]
    fn in_an_emergency_one_at_a_time() {
        assert_eq!(ask("a:w b:w", 3, true), "may go");
        assert_eq!(ask("a:wb b:w", 3, true), "may go");
        assert!(
            ask("a:w b:rb", 3, true)
                .ends_with("and b is read-only below the floor already: one at a time")
        );
        // Above the floor nobody asks.
        assert_eq!(ask("a:w b:rb c:w d:w", 1, true), "may go");
    }

    #[test]
    fn one_that_was_allowed_to_stop_counts_as_gone_once() {
        let stopping = |ids: &[&str]| -> BTreeMap<String, Duration> {
            let ids = ids.iter().map(|id| (*id).to_owned());
            ids.zip([Duration::from_secs(290), Duration::from_secs(7)])
                .collect()
        };
        let ask = |members: &str, ids: &[&str], emergency| {
            may_go(
                &view(members, None),
                &stopping(ids),
                "a",
                Some(2),
                emergency,
            )
        };
        assert_eq!(ask("a:w b:w c:w", &[], false), Ok(()));
        assert_eq!(
            ask("a:w b:w c:w", &["b"], false).unwrap_err(),
            "1 other bookies are writable and 2 must stay so (min_writable_bookies): b was allowed to \
             stop and counts as gone for another 290 s"
        );
        // Who asks again is not in its own way, and who has gone already is not counted again.
        assert_eq!(ask("a:w b:w c:w", &["a"], false), Ok(()));
        assert_eq!(ask("a:w b:w c:w d:", &["d"], false), Ok(()));
        assert_eq!(
            ask("a:w b:w c:", &["c"], false).unwrap_err(),
            "1 other bookies are writable and 2 must stay so (min_writable_bookies)"
        );
        // Also where the group or the rack is what it lacks.
        let rack = ask("a:w/r1 b:w/r1 c:w/r2 d:w/r2", &["b"], false).unwrap_err();
        assert!(
            rack.ends_with(
                "other racks have some: b was allowed to stop and counts as gone for another 290 s"
            ),
            "{rack}"
        );
        assert_eq!(ask("a:w b:w c:w", &["b", "c"], true), Ok(()));
    }
}

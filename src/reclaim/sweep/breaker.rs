//! The circuit breaker: owners taken at random must still have every ledger that they name. If one has not, somebody
//! deletes what is in use, be it us or another, and nothing more may be deleted until people know why.

use super::names::Names;
use crate::cluster::ledger::Layout;
use crate::cluster::store::StoreError;
use crate::reclaim::acting::{Acting, LastScan, Stop, at};
use crate::reclaim::plan::LedgerId;
use crate::reclaim::plan::evidence::Vanished;
use crate::reclaim::scan::OwnerKey;

/// Owners of a sample: if one in ten is damaged, a look misses it in one of eight cases, and the next look follows soon.
pub(super) const OWNERS: usize = 20;

/// Ledgers of one owner that are looked for, so that a long list is no long stop.
const LEDGERS: usize = 50;

/// What speaks against any deletion.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Owners with a ledger that each names and that does not exist.
    pub(super) missing: Vec<(String, LedgerId)>,
    /// How many owners that the scan has seen are gone.
    pub(super) vanished: Vanished,
}

/// Looks at a sample of owners.
pub(super) async fn look(
    acting: &Acting<'_>,
    last: &LastScan,
    layout: Layout,
    owners: usize,
) -> Result<Found, Stop> {
    let mut found = Found::default();
    for key in fastrand::choose_multiple(&last.owners, owners) {
        let Some(mut ledgers) = named(acting, key).await? else {
            found.vanished.gone += 1;
            continue;
        };
        found.vanished.there += 1;
        fastrand::shuffle(&mut ledgers);
        ledgers.truncate(LEDGERS);
        for id in ledgers {
            if is_there(acting, layout, id).await? {
                continue;
            }
            // It may have been let go, and deleted, between the two reads.
            let still = named(acting, key).await?.unwrap_or_default();
            if still.contains(&id) && !is_there(acting, layout, id).await? {
                found.missing.push((key.path.clone(), id));
            }
        }
    }
    Ok(found)
}

/// None if the owner is gone.
async fn named(acting: &Acting<'_>, key: &OwnerKey) -> Result<Option<Vec<LedgerId>>, Stop> {
    let Some(pulsar) = acting.pulsars.get(usize::from(key.cluster)) else {
        return Ok(Some(Vec::new()));
    };
    let path = format!("{}{}", pulsar.root, key.path);
    match pulsar.store.get(&path).await {
        // What cannot be understood names nothing here: the next scan will say so.
        Ok((bytes, _)) => Ok(Some(Names::of(&key.path, &bytes).unwrap_or_default().hard)),
        Err(StoreError::NoNode) => Ok(None),
        Err(source) => at(&path, Err(source)),
    }
}

async fn is_there(acting: &Acting<'_>, layout: Layout, id: LedgerId) -> Result<bool, Stop> {
    let Some(path) = layout.path(id) else {
        return Ok(false);
    };
    let path = format!("{}/{path}", acting.ledgers.root);
    Ok(at(&path, acting.ledgers.store.stat(&path).await)?.is_some())
}

//! The circuit breaker: owners taken at random must still have every ledger that they name. If one has not, somebody
//! deletes what is in use, be it us or another, and nothing more may be deleted until people know why.

use super::names::Names;
use crate::cluster::ledger::Layout;
use crate::cluster::store::StoreError;
use crate::reclaim::acting::{Acting, LastScan, Stop, at};
use crate::reclaim::plan::LedgerId;
use crate::reclaim::scan::OwnerKey;

/// Owners of a sample: if one in ten is damaged, a look misses it in one of eight cases, and the next look follows soon.
pub(super) const OWNERS: usize = 20;

/// Ledgers of one owner that are looked for, so that a long list is no long stop.
const LEDGERS: usize = 50;

/// Looks at a sample of owners.
pub(super) async fn check(
    acting: &Acting<'_>,
    last: &LastScan,
    layout: Layout,
    owners: usize,
) -> Result<(), Stop> {
    for key in fastrand::choose_multiple(&last.owners, owners) {
        let mut ledgers = named(acting, key).await?;
        fastrand::shuffle(&mut ledgers);
        ledgers.truncate(LEDGERS);
        for id in ledgers {
            if is_there(acting, layout, id).await? {
                continue;
            }
            // It may have been let go, and deleted, between the two reads.
            if named(acting, key).await?.contains(&id) && !is_there(acting, layout, id).await? {
                let owner = key.path.clone();
                return Err(Stop::Missing { owner, id });
            }
        }
    }
    Ok(())
}

async fn named(acting: &Acting<'_>, key: &OwnerKey) -> Result<Vec<LedgerId>, Stop> {
    let Some(pulsar) = acting.pulsars.get(usize::from(key.cluster)) else {
        return Ok(Vec::new());
    };
    let path = format!("{}{}", pulsar.root, key.path);
    match pulsar.store.get(&path).await {
        // What cannot be understood names nothing here: the next scan will say so.
        Ok((bytes, _)) => Ok(Names::of(&key.path, &bytes).unwrap_or_default().hard),
        Err(StoreError::NoNode) => Ok(Vec::new()),
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

//! The cluster at one instant, put together from its lists. What cannot be understood is left out and
//! said; what cannot be read makes no view at all.

use std::collections::{BTreeMap, BTreeSet};

use super::agents;
use super::claims::{self, Summary};
use super::ensembles;
use super::paths::{Paths, READ_ONLY};
use super::registration::{self, Place};
use super::store::{MetaStore, StoreError, children_if_any, get_all};
use crate::health::beside::{AgentStatus, ClusterView, Member, Registration};
use crate::health::dir::printable;

/// A view, and what was in the way of a better one.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) view: ClusterView,
    pub(super) problems: Vec<String>,
}

/// Reads everything now.
pub(super) async fn read(store: &dyn MetaStore, paths: &Paths) -> Result<Seen, StoreError> {
    let mut problems = Vec::new();
    let cookies = children_if_any(store, &paths.cookies()).await?;
    let writable = names(store, &paths.available()).await?;
    let read_only = names(store, &paths.read_only()).await?;
    let places = places(store, paths, &mut problems).await?;
    let mut agents = agents(store, paths, &mut problems).await?;
    let claims = claims(store, paths).await?;
    let largest_ensemble = ensembles::largest(store, paths, &mut problems).await?;

    let mut ids: BTreeSet<String> = cookies.into_iter().collect();
    ids.extend(writable.iter().chain(&read_only).cloned());
    let members = ids
        .into_iter()
        .map(|id| {
            let Place { rack, group } = places.get(&id).cloned().unwrap_or_default();
            let Summary {
                claimed,
                below_floor,
            } = claims.get(&id).copied().unwrap_or_default();
            Member {
                registration: Registration {
                    writable: writable.contains(&id),
                    read_only: read_only.contains(&id),
                },
                rack,
                group,
                agent: agents.remove(&id),
                claimed,
                below_floor,
                id,
            }
        })
        .collect();
    let view = ClusterView {
        members,
        largest_ensemble,
    };
    Ok(Seen { view, problems })
}

async fn names(store: &dyn MetaStore, path: &str) -> Result<BTreeSet<String>, StoreError> {
    let names = children_if_any(store, path).await?;
    Ok(names.into_iter().filter(|name| name != READ_ONLY).collect())
}

async fn places(
    store: &dyn MetaStore,
    paths: &Paths,
    problems: &mut Vec<String>,
) -> Result<BTreeMap<String, Place>, StoreError> {
    let path = paths.racks();
    let bytes = match store.get(&path).await {
        Ok((bytes, _)) => bytes,
        Err(StoreError::NoNode) => return Ok(BTreeMap::new()),
        // Somebody else's node: the cluster can be seen without it.
        Err(StoreError::NoAuth) => {
            problems.push(format!("the racks in {path} may not be read"));
            return Ok(BTreeMap::new());
        }
        Err(error) => return Err(error),
    };
    Ok(registration::racks(&bytes).unwrap_or_else(|why| {
        problems.push(format!("the racks in {path} cannot be understood: {why}"));
        BTreeMap::new()
    }))
}

async fn agents(
    store: &dyn MetaStore,
    paths: &Paths,
    problems: &mut Vec<String>,
) -> Result<BTreeMap<String, AgentStatus>, StoreError> {
    let names = children_if_any(store, &paths.agents()).await?;
    let nodes: Vec<String> = names.iter().map(|name| paths.agent(name)).collect();
    let mut agents = BTreeMap::new();
    for (name, found) in names.into_iter().zip(get_all(store, &nodes).await?) {
        let Some((bytes, _)) = found else { continue };
        match agents::parse(&bytes) {
            Ok(status) => {
                agents.insert(name, status);
            }
            Err(why) => {
                let name = printable(&name);
                problems.push(format!("the status of the agent of {name}: {why}"));
            }
        }
    }
    Ok(agents)
}

async fn claims(
    store: &dyn MetaStore,
    paths: &Paths,
) -> Result<BTreeMap<String, Summary>, StoreError> {
    let names = children_if_any(store, &paths.claims()).await?;
    let nodes: Vec<String> = names.iter().map(|name| paths.claims_on(name)).collect();
    let found = get_all(store, &nodes).await?;
    Ok(names
        .into_iter()
        .zip(found)
        .filter_map(|(name, found)| {
            let (document, stat) = found?;
            Some((name, claims::summary(&document, stat.children)))
        })
        .collect())
}

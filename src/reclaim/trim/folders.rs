//! Where a pass is: the folders that hold topics, in an order that stays the same, so that a pass which was cut off can be
//! gone on with behind the last topic that was dealt with.

use std::collections::VecDeque;

use super::super::state::position::{Behind, TrimPosition};
use super::walk::{BATCH, Namespace, TOPICS};
use super::{Pass, TrimError, at};
use crate::cluster::broker::TopicName;
use crate::cluster::store::{children_if_any, get_all};

/// Folders above a topic: tenant, namespace, domain, and one more for names of old and for what is unknown.
const DEEPEST: usize = 5;

/// A folder and how many there are in it.
pub(super) struct Folder {
    pub(super) below: String,
    depth: usize,
    pub(super) children: u32,
}

/// What is still to be seen.
#[derive(Default)]
pub(super) struct Rest {
    pub(super) folders: VecDeque<Folder>,
    /// The folder that is looked at, by its path, what applies to it, and the names in it that are left.
    pub(super) current: Option<(String, Namespace)>,
    pub(super) names: VecDeque<String>,
    /// In the first folder topics up to this one were seen before.
    pub(super) skip: Option<String>,
    pub(super) behind: Option<Behind>,
    /// Nothing is left.
    pub(super) is_done: bool,
}

impl Pass<'_> {
    /// Everything that was asked for, or what of it is behind a position.
    pub(super) async fn rest(&self, position: Option<&TrimPosition>) -> Result<Rest, TrimError> {
        let folders = self.folders().await?;
        let all: u64 = folders.iter().map(|one| u64::from(one.children)).sum();
        let behind = position.and_then(|position| position.behind.as_ref());
        let before = position.map_or(0, |position| position.topics);
        self.progress.send_modify(|progress| {
            progress.all = Some(all.max(before));
            progress.before = before;
            progress.topics = before;
        });
        let Some(behind) = behind else {
            return Ok(Rest {
                folders: folders.into(),
                ..Rest::default()
            });
        };
        let is_left = |folder: &Folder| match &behind.topic {
            Some(_) => behind.folder <= folder.below,
            None => behind.folder < folder.below,
        };
        let folders: VecDeque<_> = folders.into_iter().filter(is_left).collect();
        let first = folders.front().map(|folder| &folder.below);
        Ok(Rest {
            skip: behind
                .topic
                .clone()
                .filter(|_| first == Some(&behind.folder)),
            folders,
            behind: Some(behind.clone()),
            ..Rest::default()
        })
    }

    /// The folders of topics, in their order.
    async fn folders(&self) -> Result<Vec<Folder>, TrimError> {
        let store = &*self.cluster.pulsar.store;
        let mut all = Vec::new();
        let mut open = vec![Folder {
            below: String::new(),
            depth: 0,
            children: 0,
        }];
        while let Some(folder) = open.pop() {
            let path = self.path(&folder.below);
            if DEEPEST < folder.depth {
                return Err(TrimError::TooDeep { path });
            }
            let names = at(&path, children_if_any(store, &path).await)?;
            for some in names.chunks(BATCH) {
                let below = |name: &String| match folder.below.as_str() {
                    "" => name.clone(),
                    above => format!("{above}/{name}"),
                };
                let below: Vec<_> = some.iter().map(below).collect();
                let paths: Vec<_> = below.iter().map(|below| self.path(below)).collect();
                let read = at(&path, get_all(store, &paths).await)?;
                for (below, node) in below.into_iter().zip(read) {
                    let Some((bytes, stat)) = node else { continue };
                    if !bytes.is_empty() || stat.children == 0 || !self.is_wanted(&below) {
                        continue;
                    }
                    let into = if is_of_topics(&below) {
                        &mut all
                    } else {
                        &mut open
                    };
                    into.push(Folder {
                        below,
                        depth: folder.depth + 1,
                        children: stat.children,
                    });
                }
            }
        }
        all.sort_unstable_by(|one, other| one.below.cmp(&other.below));
        Ok(all)
    }

    pub(super) fn path(&self, below: &str) -> String {
        let root = &self.cluster.pulsar.root;
        match below {
            "" => format!("{root}{TOPICS}"),
            below => format!("{root}{TOPICS}/{below}"),
        }
    }

    /// A folder that something is in which was asked for.
    fn is_wanted(&self, below: &str) -> bool {
        // Topics of Pulsar's own, among them one for each broker.
        if below == "pulsar" {
            return false;
        }
        let leads = |wanted: &str| {
            let longer = |long: &str, short: &str| {
                let rest = long.strip_prefix(short);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            longer(wanted, below) || longer(below, wanted)
        };
        let topics = || {
            self.options
                .topics
                .iter()
                .filter_map(|topic| namespace(topic))
        };
        let namespaces = &self.options.namespaces;
        (namespaces.is_empty() || namespaces.iter().any(|one| leads(one)))
            && (self.options.topics.is_empty() || topics().any(leads))
    }
}

fn is_of_topics(below: &str) -> bool {
    TopicName::of_node(&format!("{below}/topic")).is_some()
}

/// The first two words of a topic's name: tenant and namespace, or of names of old tenant and cluster.
fn namespace(topic: &str) -> Option<&str> {
    let name = topic.split_once("://")?.1;
    let end = name.match_indices('/').nth(1)?.0;
    Some(&name[..end])
}

//! The part of a cluster that a scan judges, for a first try.

use crate::reclaim::name;
use crate::reclaim::plan::class::Maker;

/// Namespaces and topics.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Part {
    /// As `tenant/namespace`.
    namespaces: Vec<String>,
    /// As `tenant/namespace/domain/topic`, the topic's name encoded.
    topics: Vec<String>,
}

impl Part {
    /// Namespaces are `tenant/namespace`, topics `persistent://tenant/namespace/topic` or a path below `/managed-ledgers`; of names
    /// of version 1, each with its cluster.
    #[must_use]
    pub fn new(namespaces: Vec<String>, topics: Vec<String>) -> Part {
        let topics = topics.iter().map(|topic| name::path(topic));
        Part {
            namespaces,
            topics: topics.collect(),
        }
    }

    /// As `tenant/namespace`.
    #[must_use]
    pub fn namespaces(&self) -> &[String] {
        &self.namespaces
    }

    /// As paths below `/managed-ledgers`.
    #[must_use]
    pub fn topics(&self) -> &[String] {
        &self.topics
    }

    /// Whether a ledger of that maker and owner belongs to it.
    #[must_use]
    pub fn has(&self, maker: Maker, owner: &str) -> bool {
        match maker {
            Maker::Foreign => false,
            Maker::Topic | Maker::Compaction => self.has_topic(owner),
            Maker::Schema => self.has_schema(owner),
        }
    }

    /// Whether a node, from `/managed-ledgers` or `/schemas` on, belongs to it.
    #[must_use]
    pub fn has_owner(&self, path: &str) -> bool {
        match (
            path.strip_prefix("/managed-ledgers/"),
            path.strip_prefix("/schemas/"),
        ) {
            (Some(topic), _) => self.has_topic(topic),
            (_, Some(schema)) => self.has_schema(schema),
            _ => false,
        }
    }

    fn has_topic(&self, path: &str) -> bool {
        let namespace = name::parts(path).map(|(namespace, _)| namespace);
        let is_named = |one: &String| namespace == Some(one.as_str());
        self.namespaces.iter().any(is_named) || self.topics.iter().any(|part| is_in(path, part))
    }

    /// A schema's path has no domain and no cluster, and is that of all partitions.
    fn has_schema(&self, path: &str) -> bool {
        let of_namespace = |one: &String| is_in(path, &name::schema_namespace(one));
        let of_topic = |topic: &String| {
            let schema = name::schema(topic);
            schema.is_some_and(|schema| is_in(path, &schema))
        };
        self.namespaces.iter().any(of_namespace) || self.topics.iter().any(of_topic)
    }
}

fn is_in(path: &str, part: &str) -> bool {
    path.strip_prefix(part)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_its_topics_with_all_that_is_theirs() {
        let part = Part::new(
            vec!["t/whole".to_owned()],
            vec!["persistent://t/n/a b-partition-3".to_owned()],
        );
        for inside in [
            "/managed-ledgers/t/whole/persistent/x/cursor",
            "/managed-ledgers/t/n/persistent/a+b-partition-3/s",
            "/schemas/t/whole/x",
            "/schemas/t/n/a+b",
        ] {
            assert!(part.has_owner(inside), "{inside}");
        }
        for outside in [
            "/managed-ledgers/t/whole2/persistent/x",
            "/managed-ledgers/t/n/persistent/a+b-partition-30",
            "/schemas/t/n/a",
            "/admin/policies/t/whole",
        ] {
            assert!(!part.has_owner(outside), "{outside}");
        }
        assert!(part.has(Maker::Compaction, "t/whole/persistent/x"));
        assert!(!part.has(Maker::Foreign, ""));
    }

    #[test]
    fn names_of_version_1_have_a_cluster() {
        let part = Part::new(
            vec!["t/c/whole".to_owned()],
            vec!["persistent://t/c/n/a b-partition-3".to_owned()],
        );
        for inside in [
            "/managed-ledgers/t/c/whole/persistent/x/cursor",
            "/managed-ledgers/t/c/n/persistent/a+b-partition-3/s",
            "/schemas/t/whole/x",
            "/schemas/t/n/a+b",
        ] {
            assert!(part.has_owner(inside), "{inside}");
        }
        for outside in [
            "/managed-ledgers/t/whole/persistent/x",
            "/managed-ledgers/t/d/whole/persistent/x",
            "/managed-ledgers/t/n/persistent/a+b-partition-3",
        ] {
            assert!(!part.has_owner(outside), "{outside}");
        }
        // A cluster is no namespace.
        let part = Part::new(vec!["t/c".to_owned()], Vec::new());
        assert!(part.has_owner("/managed-ledgers/t/c/persistent/x"));
        assert!(!part.has_owner("/managed-ledgers/t/c/whole/persistent/x"));
    }
}

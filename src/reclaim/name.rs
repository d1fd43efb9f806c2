//! The names by which ledgers call their owners, as paths in the metadata.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::plan::class::Maker;
use crate::cluster::pulsar::Component;

/// What Java's `URLEncoder` leaves as it is, beside letters and digits. A blank becomes `+`.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'.')
    .remove(b'-')
    .remove(b'*')
    .remove(b'_')
    .remove(b' ');

/// Who made a ledger, and its owner's path below `/managed-ledgers`, or below `/schemas` for a schema; empty for
/// nobody known.
pub(super) fn owner(component: Component<'_>) -> (Maker, String) {
    match component {
        Component::Topic(topic) | Component::Cursor { topic, .. } => {
            (Maker::Topic, topic.to_owned())
        }
        Component::Bucket(topic) => (Maker::Topic, path(topic)),
        Component::Compacted(topic) => (Maker::Compaction, path(topic)),
        Component::Schema(schema) => (Maker::Schema, schema.to_owned()),
        Component::Unknown | Component::Foreign => (Maker::Foreign, String::new()),
    }
}

/// `persistent://tenant/namespace/topic` as `tenant/namespace/persistent/topic`, the topic's name encoded
/// (`TopicName.getPersistenceNamingEncoding`). With one part more it is a name of version 1, whose namespace is `cluster/namespace`:
/// no other name has a slash in the topic's own. What is no such name stays as it is, and is found nowhere.
pub(super) fn path(topic: &str) -> String {
    let parts = || {
        let (domain, rest) = topic.split_once("://")?;
        let parts: Vec<&str> = rest.splitn(4, '/').collect();
        let [namespace @ .., local] = parts.as_slice() else {
            return None;
        };
        if namespace.len() < 2 {
            return None;
        }
        let local = utf8_percent_encode(local, ENCODED).to_string();
        let local = local.replace(' ', "+");
        Some(format!("{}/{domain}/{local}", namespace.join("/")))
    };
    parts().unwrap_or_else(|| topic.to_owned())
}

/// The namespace of a topic's path, and what is behind the domain; none of what is no topic's. As `TopicName::of_node` has it,
/// no namespace of version 1 is called like a domain.
pub(super) fn parts(path: &str) -> Option<(&str, &str)> {
    let ends = path.match_indices('/').map(|(at, _)| at);
    for end in ends.skip(1).take(2) {
        let (domain, local) = path[end + 1..].split_once('/')?;
        if matches!(domain, "persistent" | "non-persistent") {
            return Some((&path[..end], local));
        }
    }
    None
}

/// The path of the schema of all partitions of a topic, below `/schemas`: it leaves out the cluster of a name of version 1
/// (`TopicName.getSchemaName`).
pub(super) fn schema(topic: &str) -> Option<String> {
    let (namespace, local) = parts(topic)?;
    let is_number =
        |number: &str| !number.is_empty() && number.bytes().all(|one| one.is_ascii_digit());
    let local = match local.rsplit_once("-partition-") {
        Some((base, number)) if is_number(number) => base,
        _ => local,
    };
    Some(format!("{}/{local}", schema_namespace(namespace)))
}

/// Where the schemas of a namespace are, below `/schemas`.
pub(super) fn schema_namespace(namespace: &str) -> String {
    match namespace.splitn(3, '/').collect::<Vec<_>>().as_slice() {
        [tenant, _, namespace] => format!("{tenant}/{namespace}"),
        _ => namespace.to_owned(),
    }
}

/// The namespaces that a path may be in: tenant and namespace, and for names of old also the cluster between them.
pub(super) fn namespaces(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').map(|(at, _)| at).skip(1).take(2);
    ends.map(|end| &path[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_by_their_own_word() {
        let of = |component| owner(component).1;
        assert_eq!(
            of(Component::Topic("a/b/persistent/c%2Fd")),
            "a/b/persistent/c%2Fd"
        );
        assert_eq!(
            of(Component::Compacted("persistent://a/b/d é+*")),
            "a/b/persistent/d+%C3%A9%2B*"
        );
        assert_eq!(of(Component::Bucket("nonsense")), "nonsense");
        assert_eq!(of(Component::Foreign), "");
        let of: Vec<_> = namespaces("a/b/persistent/c").collect();
        assert_eq!(of, ["a/b", "a/b/persistent"]);
    }

    /// The compaction of a loaded topic is looked for at its node: at another one it would seem to need nothing.
    #[test]
    fn names_of_version_1() {
        let (of, name) = (|component| owner(component).1, "persistent://t/c/n/a b/d");
        for component in [Component::Compacted(name), Component::Bucket(name)] {
            assert_eq!(of(component), "t/c/n/persistent/a+b%2Fd");
        }
        for (path, namespace, schema_of) in [
            ("t/n/persistent/a-partition-12", "t/n", "t/n/a"),
            ("t/c/n/persistent/a-partition-12", "t/c/n", "t/n/a"),
            (
                "t/c/n/persistent/a-partition-b",
                "t/c/n",
                "t/n/a-partition-b",
            ),
            ("t/persistent/n/persistent/a", "t/persistent/n", "t/n/a"),
            (
                "t/persistent/persistent/a",
                "t/persistent",
                "t/persistent/a",
            ),
        ] {
            assert_eq!(parts(path).unwrap().0, namespace, "{path}");
            assert_eq!(schema(path).as_deref(), Some(schema_of), "{path}");
        }
        for path in ["t/n", "persistent/a", "t/a/b/c/persistent/x", ""] {
            assert_eq!(parts(path), None, "{path}");
        }
        assert_eq!(path("persistent://t/n"), "persistent://t/n");
    }
}

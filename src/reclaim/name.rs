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
/// (`TopicName.getPersistenceNamingEncoding`). What is no such name stays as it is, and is found nowhere.
pub(super) fn path(topic: &str) -> String {
    let parts = || {
        let (domain, rest) = topic.split_once("://")?;
        let mut parts = rest.splitn(3, '/');
        let (tenant, namespace, local) = (parts.next()?, parts.next()?, parts.next()?);
        let local = utf8_percent_encode(local, ENCODED).to_string();
        let local = local.replace(' ', "+");
        Some(format!("{tenant}/{namespace}/{domain}/{local}"))
    };
    parts().unwrap_or_else(|| topic.to_owned())
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
            of(Component::Compacted("persistent://a/b/c/d é+*")),
            "a/b/persistent/c%2Fd+%C3%A9%2B*"
        );
        assert_eq!(of(Component::Bucket("nonsense")), "nonsense");
        assert_eq!(of(Component::Foreign), "");
        let of: Vec<_> = namespaces("a/b/persistent/c").collect();
        assert_eq!(of, ["a/b", "a/b/persistent"]);
    }
}

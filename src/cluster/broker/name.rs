//! A topic's three names: the node below `/managed-ledgers`, what people and metrics call it, and its path at a broker.
//! The node and the path have the topic's own name as Java's `URLEncoder` wrote it; that is carried over as it is.

use std::fmt;

use percent_encoding::percent_decode_str;

/// The only kind of topic that has ledgers which a broker trims.
const DOMAIN: &str = "persistent";

/// A persistent topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName {
    /// Tenant and namespace; for names of old also the cluster between them.
    namespace: String,
    /// Its own name as it stands in nodes and paths.
    encoded: String,
    /// As people see it.
    full: String,
}

impl TopicName {
    /// Of a node, as the path below `/managed-ledgers`. None of a folder, a cursor, another kind of topic, or a name that no
    /// URL can hold.
    #[must_use]
    pub fn of_node(below: &str) -> Option<TopicName> {
        let parts: Vec<_> = below.split('/').collect();
        let (namespace, encoded) = match *parts.as_slice() {
            [tenant, namespace, DOMAIN, topic] => (format!("{tenant}/{namespace}"), topic),
            // As `cluster` is none that is called "persistent", so is no cursor taken for a topic.
            [tenant, cluster, namespace, DOMAIN, topic] if namespace != DOMAIN => {
                (format!("{tenant}/{cluster}/{namespace}"), topic)
            }
            _ => return None,
        };
        // URLs have a meaning of their own for these.
        if matches!(encoded, "" | "." | "..") || !namespace.split('/').all(is_plain) {
            return None;
        }
        let spaced = encoded.replace('+', " ");
        let local = percent_decode_str(&spaced).decode_utf8().ok()?;
        Some(TopicName {
            full: format!("{DOMAIN}://{namespace}/{local}"),
            encoded: encoded.to_owned(),
            namespace,
        })
    }

    /// Tenant and namespace, with a slash between them.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// As people and metrics call it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.full
    }

    /// It has a cluster in its name, as all had before version 2 of the REST interface. Such topics have no policies of
    /// their own.
    #[must_use]
    pub fn is_of_old(&self) -> bool {
        1 < self.namespace.matches('/').count()
    }

    /// Pulsar's own: some of them (transaction logs, pending acknowledgements) are in use by a broker without being
    /// loaded as topics, and a second broker that loads one takes it from the first.
    #[must_use]
    pub fn is_of_system(&self) -> bool {
        self.namespace.starts_with("pulsar/")
            || self.encoded.starts_with("__")
            || self.encoded.ends_with("__transaction_pending_ack")
    }

    /// The path of its node below `/managed-ledgers`.
    #[must_use]
    pub fn node(&self) -> String {
        format!("{}/{DOMAIN}/{}", self.namespace, self.encoded)
    }

    /// The path at a broker, without a final slash.
    pub(super) fn path(&self) -> String {
        let version = if self.is_of_old() { "" } else { "/v2" };
        let TopicName {
            namespace, encoded, ..
        } = self;
        format!("/admin{version}/{DOMAIN}/{namespace}/{encoded}")
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

/// What Pulsar allows in the names of tenants, clusters and namespaces, without those that URLs have a meaning for.
fn is_plain(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-=:._".contains(&byte);
    !matches!(name, "" | "." | "..") && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_names() {
        let told = |below: &str| match TopicName::of_node(below) {
            None => format!("{below}: none"),
            Some(name) => {
                let old = if name.is_of_old() { " (old)" } else { "" };
                let own = if name.is_of_system() { " (system)" } else { "" };
                assert_eq!(name.node(), below);
                format!("{below}: {name} at {}{old}{own}", name.path())
            }
        };
        let all = [
            "a/b/persistent/c",
            "a/b/persistent/c%2Fd+%C3%A9%2B*",
            "a/b/persistent/50%25",
            "a/b/persistent/c/cursor",
            "prop/cl/ns/persistent/c",
            "prop/cl/ns/persistent/c/cursor",
            "pulsar/lab/127.0.0.1:24171/persistent/healthcheck",
            "pulsar/system/persistent/__transaction_log_0",
            "a/b/persistent/__change_events",
            "a/b/persistent/t-s__transaction_pending_ack",
            "a/b/persistent/..",
            "a/b/persistent/%FF",
            "a/../persistent/c",
            "a/b?x/persistent/c",
            "a/b/segment/c",
            "a/b",
        ];
        insta::assert_snapshot!(all.map(told).join("\n"), @"
        a/b/persistent/c: persistent://a/b/c at /admin/v2/persistent/a/b/c
        a/b/persistent/c%2Fd+%C3%A9%2B*: persistent://a/b/c/d é+* at /admin/v2/persistent/a/b/c%2Fd+%C3%A9%2B*
        a/b/persistent/50%25: persistent://a/b/50% at /admin/v2/persistent/a/b/50%25
        a/b/persistent/c/cursor: none
        prop/cl/ns/persistent/c: persistent://prop/cl/ns/c at /admin/persistent/prop/cl/ns/c (old)
        prop/cl/ns/persistent/c/cursor: none
        pulsar/lab/127.0.0.1:24171/persistent/healthcheck: persistent://pulsar/lab/127.0.0.1:24171/healthcheck at /admin/persistent/pulsar/lab/127.0.0.1:24171/healthcheck (old) (system)
        pulsar/system/persistent/__transaction_log_0: persistent://pulsar/system/__transaction_log_0 at /admin/v2/persistent/pulsar/system/__transaction_log_0 (system)
        a/b/persistent/__change_events: persistent://a/b/__change_events at /admin/v2/persistent/a/b/__change_events (system)
        a/b/persistent/t-s__transaction_pending_ack: persistent://a/b/t-s__transaction_pending_ack at /admin/v2/persistent/a/b/t-s__transaction_pending_ack (system)
        a/b/persistent/..: none
        a/b/persistent/%FF: none
        a/../persistent/c: none
        a/b?x/persistent/c: none
        a/b/segment/c: none
        a/b: none
        ");
    }
}

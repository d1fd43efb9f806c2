//! `tls_server_config` to what rustls serves with. Words are those of Go, from which the format comes;
//! what rustls has under another name is translated, what it has not is said.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, RootCertStore, ServerConfig, SupportedProtocolVersion};

use super::yaml::Node;
use super::{Entries, Reader, Wrong};
use crate::config::keys::join;

const SECTION: &str = "tls_server_config";

const KEYS: [&str; 13] = [
    "cert",
    "key",
    "client_ca",
    "cert_file",
    "key_file",
    "client_ca_file",
    "client_auth_type",
    "client_allowed_sans",
    "min_version",
    "max_version",
    "cipher_suites",
    "prefer_server_cipher_suites",
    "curve_preferences",
];

/// What TLS is spoken with.
#[derive(Clone)]
pub struct WebTls {
    /// Certificate, key, versions and who may connect.
    pub config: Arc<ServerConfig>,
    /// Clients without a certificate are not let in.
    pub asks_clients: bool,
    /// Of all that it was made from.
    digest: u64,
}

impl PartialEq for WebTls {
    fn eq(&self, other: &WebTls) -> bool {
        self.digest == other.digest
    }
}

// A key has no place in a log.
impl std::fmt::Debug for WebTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebTls").finish_non_exhaustive()
    }
}

/// What the section says.
#[derive(Default)]
struct Settings {
    cert: Option<(usize, Vec<u8>)>,
    key: Option<(usize, Vec<u8>)>,
    client_ca: Option<(usize, Vec<u8>)>,
    /// Line, and whether clients without a certificate are let in.
    client_auth: Option<(usize, bool)>,
    min: Option<(usize, Version)>,
    max: Option<(usize, Version)>,
    suites: Vec<String>,
    client_order: bool,
    curves: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    Old,
    Tls12,
    Tls13,
}

/// Reads the section; none when something is wrong with it.
pub(super) fn read(reader: &mut Reader<'_>, line: usize, entries: &Entries) -> Option<WebTls> {
    let mut settings = Settings::default();
    for (name, line, node) in entries {
        one(reader, &mut settings, name, *line, node);
    }
    for (what, missing) in [
        ("cert_file", settings.cert.is_none()),
        ("key_file", settings.key.is_none()),
    ] {
        // One that cannot be read was said so.
        let said = entries.iter().any(|(name, ..)| name == what);
        if missing && !said {
            let wrong = Wrong::new("is missing", format!("write {what} below {SECTION}"));
            reader.error(line, &join(SECTION, what), wrong);
        }
    }
    made(reader, line, settings)
}

/// What rustls serves with; none when certificate and key are not there or of no use.
fn made(reader: &mut Reader<'_>, line: usize, settings: Settings) -> Option<WebTls> {
    let provider = provider(reader, line, &settings);
    let versions = versions(reader, line, &settings)?;
    let clients = clients(reader, &settings, &provider)?;
    let (cert_line, cert) = settings.cert?;
    let (key_line, key) = settings.key?;
    let mut hasher = DefaultHasher::new();
    (
        &cert,
        &key,
        &settings.client_ca,
        settings.client_auth,
        &settings.suites,
    )
        .hash(&mut hasher);
    (settings.client_order, &settings.curves, versions.len()).hash(&mut hasher);
    versions
        .first()
        .map(|version| u16::from(version.version))
        .hash(&mut hasher);

    let chain = certificates(reader, cert_line, "cert_file", &cert)?;
    let key = match PrivateKeyDer::from_pem_slice(&key) {
        Ok(key) => key,
        Err(_) => {
            let wrong = Wrong::new(
                "holds no private key in PEM form",
                "name the certificate's key",
            );
            reader.error(key_line, &join(SECTION, "key_file"), wrong);
            return None;
        }
    };
    let made = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .map(|builder| match clients {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        })
        .and_then(|builder| builder.with_single_cert(chain, key));
    match made {
        Ok(mut config) => {
            config.ignore_client_order = !settings.client_order;
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            Some(WebTls {
                config: Arc::new(config),
                asks_clients: matches!(settings.client_auth, Some((_, false))),
                digest: hasher.finish(),
            })
        }
        Err(error) => {
            let text = format!("certificate and key cannot be used: {error}");
            let wrong = Wrong::new(text, "name a certificate and the key that belongs to it");
            reader.error(line, SECTION, wrong);
            None
        }
    }
}

fn one(reader: &mut Reader<'_>, settings: &mut Settings, name: &str, line: usize, node: &Node) {
    let key = join(SECTION, name);
    let inline = |reader: &mut Reader<'_>| {
        let word = reader.word(&key, node)?;
        Some((line, word.as_bytes().to_vec()))
    };
    match name {
        "cert" => settings.cert = inline(reader),
        "client_ca" => settings.client_ca = inline(reader),
        "key" => {
            settings.key = inline(reader);
            let path = reader.path.to_owned();
            reader.guarded(&path, line, &key, "the private key");
        }
        "cert_file" => settings.cert = reader.file(&key, node).map(|(_, bytes)| (line, bytes)),
        "client_ca_file" => {
            settings.client_ca = reader.file(&key, node).map(|(_, bytes)| (line, bytes));
        }
        "key_file" => {
            if let Some((path, bytes)) = reader.file(&key, node) {
                reader.guarded(&path, line, &key, "the private key");
                settings.key = Some((line, bytes));
            }
        }
        "client_auth_type" => settings.client_auth = client_auth(reader, &key, line, node),
        "client_allowed_sans" => {
            if !reader.words(&key, node).is_empty() {
                let text = "is not done here: every certificate of client_ca is let in";
                let remedy = "use an authority of its own for those who may ask, or a proxy";
                reader.error(line, &key, Wrong::new(text, remedy));
            }
        }
        "min_version" => settings.min = version(reader, &key, line, node),
        "max_version" => settings.max = version(reader, &key, line, node),
        "cipher_suites" => settings.suites = owned(reader.words(&key, node)),
        "curve_preferences" => settings.curves = owned(reader.words(&key, node)),
        "prefer_server_cipher_suites" => {
            settings.client_order = reader.flag(&key, node) == Some(false);
        }
        _ => reader.unknown(line, name, SECTION, KEYS.into_iter()),
    }
}

fn owned(words: Vec<&str>) -> Vec<String> {
    words.into_iter().map(str::to_owned).collect()
}

fn client_auth(
    reader: &mut Reader<'_>,
    key: &str,
    line: usize,
    node: &Node,
) -> Option<(usize, bool)> {
    match reader.word(key, node)? {
        "" | "NoClientCert" => None,
        "VerifyClientCertIfGiven" => Some((line, true)),
        "RequireAndVerifyClientCert" => Some((line, false)),
        "RequestClientCert" | "RequireAnyClientCert" => {
            let text = "takes certificates of anybody, which proves nothing";
            reader.error(
                line,
                key,
                Wrong::new(text, "write RequireAndVerifyClientCert"),
            );
            None
        }
        _ => {
            let remedy =
                "write NoClientCert, VerifyClientCertIfGiven or RequireAndVerifyClientCert";
            reader.error(line, key, Wrong::new("is not known", remedy));
            None
        }
    }
}

fn version(
    reader: &mut Reader<'_>,
    key: &str,
    line: usize,
    node: &Node,
) -> Option<(usize, Version)> {
    let version = match reader.word(key, node)? {
        "TLS10" | "TLS11" => Version::Old,
        "TLS12" => Version::Tls12,
        "TLS13" => Version::Tls13,
        _ => {
            let wrong = Wrong::new("is not known", "write TLS12 or TLS13");
            reader.error(line, key, wrong);
            return None;
        }
    };
    Some((line, version))
}

fn versions(
    reader: &mut Reader<'_>,
    line: usize,
    settings: &Settings,
) -> Option<Vec<&'static SupportedProtocolVersion>> {
    let (min_line, min) = settings.min.unwrap_or((line, Version::Tls12));
    let (max_line, max) = settings.max.unwrap_or((line, Version::Tls13));
    if min == Version::Old {
        let wrong = Wrong::new("is not spoken here: TLS 1.2 is the least", "write TLS12");
        reader.warn(min_line, &join(SECTION, "min_version"), wrong);
    }
    if max == Version::Old || max < min {
        let wrong = Wrong::new("leaves no version that is spoken here", "write TLS13");
        reader.error(max_line, &join(SECTION, "max_version"), wrong);
        return None;
    }
    let all = [(Version::Tls12, &TLS12), (Version::Tls13, &TLS13)];
    let wanted = all.into_iter().filter(|(it, _)| min <= *it && *it <= max);
    Some(wanted.map(|(_, version)| version).collect())
}

/// ring's cryptography without what the section leaves out. As in Go, only suites of TLS 1.2 can be
/// chosen.
fn provider(reader: &mut Reader<'_>, line: usize, settings: &Settings) -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    let mut missing = Vec::new();
    if !settings.suites.is_empty() {
        let (chosen, unknown) = chosen(&settings.suites, |word| {
            let name = if word.ends_with("POLY1305") {
                format!("{word}_SHA256")
            } else {
                word.to_owned()
            };
            let suites = provider.cipher_suites.iter();
            suites
                .copied()
                .find(|suite| suite_name(suite.suite()) == name)
        });
        let is_13 = |suite: &rustls::SupportedCipherSuite| suite.tls13().is_some();
        provider.cipher_suites.retain(is_13);
        provider.cipher_suites.extend(chosen);
        missing.extend(unknown.into_iter().map(|word| ("cipher_suites", word)));
    }
    if !settings.curves.is_empty() {
        let (chosen, unknown) = chosen(&settings.curves, |word| {
            let name = match word {
                "CurveP256" => rustls::NamedGroup::secp256r1,
                "CurveP384" => rustls::NamedGroup::secp384r1,
                "X25519" => rustls::NamedGroup::X25519,
                _ => return None,
            };
            let groups = provider.kx_groups.iter();
            groups.copied().find(|group| group.name() == name)
        });
        if chosen.is_empty() {
            let wrong = Wrong::new("leaves no curve that is known here", "add X25519");
            reader.error(line, &join(SECTION, "curve_preferences"), wrong);
        }
        provider.kx_groups = chosen;
        missing.extend(unknown.into_iter().map(|word| ("curve_preferences", word)));
    }
    for (key, word) in missing {
        let wrong = Wrong::new(format!("{word} is not known here and left out"), "");
        reader.warn(line, &join(SECTION, key), wrong);
    }
    Arc::new(provider)
}

/// What the words mean, in their order, and those that mean nothing here.
fn chosen<T>(words: &[String], find: impl Fn(&str) -> Option<T>) -> (Vec<T>, Vec<&String>) {
    let mut unknown = Vec::new();
    let mut known = Vec::new();
    for word in words {
        match find(word) {
            Some(found) => known.push(found),
            None => unknown.push(word),
        }
    }
    (known, unknown)
}

fn suite_name(suite: CipherSuite) -> String {
    format!("{suite:?}")
}

/// Who checks the certificates of clients; none inside when nobody asks for one. Nothing at all when
/// that was wrong.
fn clients(
    reader: &mut Reader<'_>,
    settings: &Settings,
    provider: &Arc<CryptoProvider>,
) -> Option<Option<Arc<dyn ClientCertVerifier>>> {
    let key = join(SECTION, "client_auth_type");
    let (line, optional, (ca_line, ca)) = match (settings.client_auth, &settings.client_ca) {
        (None, None) => return Some(None),
        (Some((line, optional)), Some(ca)) => (line, optional, ca),
        (Some((line, _)), None) => {
            let wrong = Wrong::new("has no authority to check against", "set client_ca_file");
            reader.error(line, &key, wrong);
            return None;
        }
        (None, Some((line, _))) => {
            let remedy =
                "write client_auth_type: RequireAndVerifyClientCert, or leave client_ca out";
            let wrong = Wrong::new("is missing, so client_ca checks nobody", remedy);
            reader.error(*line, &key, wrong);
            return None;
        }
    };
    let mut roots = RootCertStore::empty();
    let authorities = certificates(reader, *ca_line, "client_ca_file", ca)?;
    let (added, _) = roots.add_parsable_certificates(authorities);
    let mut builder =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    if optional {
        builder = builder.allow_unauthenticated();
    }
    match builder.build() {
        Ok(verifier) if 0 < added => Some(Some(verifier)),
        _ => {
            let wrong = Wrong::new("holds no authority that can be used", "name another file");
            reader.error(line, &join(SECTION, "client_ca_file"), wrong);
            None
        }
    }
}

fn certificates(
    reader: &mut Reader<'_>,
    line: usize,
    name: &str,
    pem: &[u8],
) -> Option<Vec<CertificateDer<'static>>> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match read {
        Ok(certificates) if !certificates.is_empty() => Some(certificates),
        _ => {
            let wrong = Wrong::new("holds no certificate in PEM form", "name another file");
            reader.error(line, &join(SECTION, name), wrong);
            None
        }
    }
}

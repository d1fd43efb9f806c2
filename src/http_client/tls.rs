//! TLS of the HTTP client: rustls with ring's cryptography. Only the authorities that a caller hands
//! over are trusted; the machine's own are read only for who asks for them, so plain HTTP costs none.

use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::crypto::ring;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};

use super::HttpError;

/// Whom to trust, and who we are.
#[derive(Clone)]
pub struct TlsOptions {
    /// Certificates of the authorities that sign servers' certificates, in PEM form; those that this
    /// machine trusts where there are none.
    pub ca: Option<Vec<u8>>,
    /// Our own certificate with those that lead to its authority, and its key, both in PEM form.
    pub cert_and_key: Option<(Vec<u8>, Vec<u8>)>,
}

// A key has no place in a log.
impl std::fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsOptions").finish_non_exhaustive()
    }
}

/// Who may sign servers' certificates.
#[derive(Debug, Clone)]
pub struct Authorities(RootCertStore);

impl Authorities {
    /// Nobody: enough for plain HTTP.
    #[must_use]
    pub fn none() -> Authorities {
        Authorities(RootCertStore::empty())
    }

    /// Those of a file in PEM form.
    ///
    /// # Errors
    /// There is none in it that can be used.
    pub fn of_pem(pem: &[u8]) -> Result<Authorities, TlsError> {
        roots(Some(pem)).map(Authorities)
    }

    /// Those that this machine trusts. Reads its files, and may wait for their disk.
    ///
    /// # Errors
    /// There are none.
    pub fn of_system() -> Result<Authorities, TlsError> {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        let (added, _ignored) = roots.add_parsable_certificates(found.certs);
        if added == 0 {
            return Err(TlsError::Empty { what: SYSTEM });
        }
        Ok(Authorities(roots))
    }
}

/// Why there can be no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// One of the three cannot be read.
    #[error("{what} is not in PEM form")]
    Pem {
        /// Which.
        what: &'static str,
        /// Why.
        source: PemError,
    },
    /// One of them is empty.
    #[error("{what} holds no certificate in PEM form")]
    Empty {
        /// Which.
        what: &'static str,
    },
    /// One of them is read, and of no use.
    #[error("{what} cannot be used")]
    Unusable {
        /// Which.
        what: &'static str,
        /// Why.
        source: rustls::Error,
    },
    /// No client could be made of it.
    #[error("cannot use them")]
    Client(#[source] HttpError),
}

const AUTHORITIES: &str = "the file of authorities";
const SYSTEM: &str = "this machine's store of authorities";
const CERTIFICATE: &str = "the client certificate";
const KEY: &str = "the key of the client certificate";

/// Without options nobody is trusted: what every `https` address ends in.
pub(super) fn config(options: Option<&TlsOptions>) -> Result<ClientConfig, TlsError> {
    let roots = match options.map(|options| &options.ca) {
        Some(None) => Authorities::of_system()?.0,
        Some(Some(ca)) => roots(Some(ca))?,
        None => RootCertStore::empty(),
    };
    let config = builder(roots)?;
    let Some((chain, key)) = options.and_then(|options| options.cert_and_key.as_ref()) else {
        return Ok(config.with_no_client_auth());
    };
    let chain = certificates(CERTIFICATE, Some(chain))?;
    let key = PrivateKeyDer::from_pem_slice(key);
    let key = key.map_err(|source| TlsError::Pem { what: KEY, source })?;
    config
        .with_client_auth_cert(chain, key)
        .map_err(unusable(CERTIFICATE))
}

pub(super) fn trusting(authorities: &Authorities) -> Result<ClientConfig, TlsError> {
    Ok(builder(authorities.0.clone())?.with_no_client_auth())
}

fn unusable(what: &'static str) -> impl Fn(rustls::Error) -> TlsError {
    move |source| TlsError::Unusable { what, source }
}

fn roots(pem: Option<&[u8]>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(AUTHORITIES, pem)? {
        roots.add(authority).map_err(unusable(AUTHORITIES))?;
    }
    Ok(roots)
}

fn builder(roots: RootCertStore) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, TlsError> {
    // Said here and not process-wide: a library must not choose for the program that it is part of.
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(unusable("ring"))?;
    Ok(config.with_root_certificates(roots))
}

fn certificates(
    what: &'static str,
    pem: Option<&[u8]>,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let Some(pem) = pem else {
        return Ok(Vec::new());
    };
    let read: Result<Vec<_>, PemError> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = read.map_err(|source| TlsError::Pem { what, source })?;
    if certificates.is_empty() {
        return Err(TlsError::Empty { what });
    }
    Ok(certificates)
}

//! TLS of the HTTP client: rustls with ring's cryptography. Only the authorities that a caller hands
//! over are trusted; the machine's own are never read, so plain HTTP costs none of them.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::HttpError;

/// Whom to trust, and who we are.
#[derive(Clone)]
pub struct TlsOptions {
    /// Certificates of the authorities that sign servers' certificates, in PEM form.
    pub ca: Vec<u8>,
    /// Our own certificate with those that lead to its authority, and its key, both in PEM form.
    pub cert_and_key: Option<(Vec<u8>, Vec<u8>)>,
}

// A key has no place in a log.
impl std::fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsOptions").finish_non_exhaustive()
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
const CERTIFICATE: &str = "the client certificate";
const KEY: &str = "the key of the client certificate";

/// Without options nobody is trusted: what every `https` address ends in.
pub(super) fn config(options: Option<&TlsOptions>) -> Result<ClientConfig, TlsError> {
    let unusable = |what| move |source| TlsError::Unusable { what, source };
    let mut roots = RootCertStore::empty();
    for authority in certificates(AUTHORITIES, options.map(|options| &*options.ca))? {
        roots.add(authority).map_err(unusable(AUTHORITIES))?;
    }
    // Said here and not process-wide: a library must not choose for the program that it is part of.
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(unusable("ring"))?
        .with_root_certificates(roots);
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

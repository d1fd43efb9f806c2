//! The way from a plain connection to TLS: one request in plain text, and the handshake after its answer
//! (`START_TLS`, which bookies with `tlsProviderFactoryClass` know).

use std::sync::Arc;

use prost::Message;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::connection::frame;
use super::error::{BookieError, Code};
use super::messages::{Question, Response, framed, status};
use crate::cluster::Tls;

/// Bytes of the only answer in plain text, which has no body.
const ANSWER_LIMIT: usize = 4096;

/// How connections are secured.
pub(super) struct Secured(TlsConnector);

impl Secured {
    /// With these certificates, or why not.
    pub(super) fn new(tls: &Tls) -> Result<Secured, String> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&tls.ca)? {
            roots
                .add(certificate)
                .map_err(|error| format!("a certificate of the CA: {error}"))?;
        }
        // Two providers may be compiled in.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots);
        let config = match &tls.identity {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
                    .map_err(|error| format!("the private key: {error}"))?;
                config
                    .with_client_auth_cert(certificates(certificate)?, key)
                    .map_err(|error| error.to_string())?
            }
        };
        Ok(Secured(TlsConnector::from(Arc::new(config))))
    }

    /// Goes on in TLS over a new connection to that host.
    pub(super) async fn secure(
        &self,
        mut stream: TcpStream,
        host: &str,
    ) -> Result<TlsStream<TcpStream>, BookieError> {
        let ended = |error: std::io::Error| BookieError::Ended(error.to_string());
        let request = framed(&Question::StartTls.request(1));
        stream.write_all(&request).await.map_err(ended)?;
        let answer = frame(&mut stream, ANSWER_LIMIT).await;
        let answer = answer.map_err(BookieError::Ended)?;
        let answer = Response::decode(&answer[..])
            .map_err(|error| BookieError::Ended(format!("what came is no answer: {error}")))?;
        match status(answer.status, None) {
            Code::Ok => {}
            code => return Err(BookieError::NoTls(code)),
        }
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| BookieError::Tls(format!("{host} is no name that TLS can check")))?;
        let secured = self.0.connect(name, stream).await;
        secured.map_err(|error| BookieError::Tls(error.to_string()))
    }
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match read {
        Ok(found) if found.is_empty() => Err("there is no certificate in it".to_owned()),
        Ok(found) => Ok(found),
        Err(error) => Err(format!("a certificate: {error}")),
    }
}

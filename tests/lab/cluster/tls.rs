//! A ZooKeeper behind TLS: a server that asks for client certificates stands before the real one.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::*;
use dirkeeper::cluster::Tls;

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Authority(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    /// A certificate for 127.0.0.1 and its key.
    fn sign(&self) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap(), key)
    }

    fn identity(&self) -> (String, String) {
        let (certificate, key) = self.sign();
        (certificate.pem(), key.serialize_pem())
    }

    fn acceptor(&self) -> TlsAcceptor {
        let (certificate, key) = self.sign();
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let clients =
            WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients.build().unwrap())
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            );
        TlsAcceptor::from(Arc::new(config.unwrap()))
    }
}

/// Lets those through who show a certificate, and counts the others.
async fn door(tls: TlsAcceptor, server: String) -> (String, watch::Receiver<u32>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (refused, count) = watch::channel(0);
    tokio::spawn(async move {
        let refused = Arc::new(refused);
        while let Ok((client, _)) = listener.accept().await {
            let (tls, server, refused) = (tls.clone(), server.clone(), Arc::clone(&refused));
            tokio::spawn(async move {
                let Ok(mut client) = tls.accept(client).await else {
                    refused.send_modify(|count| *count += 1);
                    return;
                };
                let mut server = TcpStream::connect(server).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (address, count)
}

/// With the right certificates it is a ZooKeeper as any other; without them nobody gets in.
pub(crate) fn zookeeper_by_tls(bench: &Bench) {
    let lab = Setup::new(bench).bookies(0).up();
    run(async {
        let (ours, other) = (Authority::new("ours"), Authority::new("other"));
        let (address, mut refused) = door(ours.acceptor(), lab.zookeeper()).await;
        let start = |server: &str, ca: &Authority, own: Option<&Authority>| {
            let servers = Servers {
                servers: vec![server.to_owned()],
                digest: None,
                tls: Some(Tls {
                    ca: ca.0.pem(),
                    identity: own.map(Authority::identity),
                }),
            };
            ZooKeeper::start(servers, Clock::start())
        };
        let store = start(&address, &ours, Some(&ours));
        connected(&store).await;
        contract::nodes(&store).await;
        assert_eq!(*refused.borrow_and_update(), 0);
        for (ca, own) in [(&ours, None), (&ours, Some(&other)), (&other, Some(&ours))] {
            let store = start(&address, ca, own);
            let before = *refused.borrow_and_update();
            let once_more = refused.wait_for(|count| before < *count);
            let once_more = tokio::time::timeout(LIMIT, once_more).await;
            assert!(once_more.is_ok(), "nobody was refused within {LIMIT:?}");
            assert!(matches!(*store.link().borrow(), Link::Lost { .. }));
        }
    });
}

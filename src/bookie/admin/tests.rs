//! What the client makes of servers that are no bookie, or a bookie in trouble. What a real one says
//! is in `tests/lab/`.

use insta::assert_snapshot;

use super::*;
use crate::bookie::stub::{Reply, Stub};
use crate::report;

const WRITABLE: &str = r#"{"running":true,"readOnly":false,"shuttingDown":false}"#;

fn client(url: &str) -> AdminClient {
    let options = AdminOptions {
        url: url.to_owned(),
        ..AdminOptions::default()
    };
    AdminClient::new(options).unwrap()
}

async fn server(reply: impl Fn(&str) -> Reply + Send + Sync + 'static) -> (Stub, AdminClient) {
    let stub = Stub::start(None, reply).await;
    let client = client(&format!("http://127.0.0.1:{}", stub.port));
    (stub, client)
}

/// The error in words, with the address left out.
fn words(error: &AdminError, port: u16) -> String {
    let text = report::text(error);
    let text = text.replace(&format!("://127.0.0.1:{port}/api/v1/bookie/"), "://BOOKIE/");
    text.replace(&port.to_string(), "PORT")
}

#[tokio::test]
async fn a_bookie_is_asked_and_told() {
    let (stub, client) = server(|asked| {
        let is_gc = asked.starts_with("GET") && asked.ends_with("/gc");
        match asked {
            _ if is_gc => Reply::json(r#"{"is_in_force_gc":"true"}"#),
            _ if asked.contains("config") => Reply::json(r#"{"readOnlyModeEnabled":"false"}"#),
            _ if asked.contains("readonly") => Reply::json(r#"{"readOnly":true}"#),
            _ if asked.contains("suspend") => {
                Reply::json(r#"{"isMajorGcSuspended":"true","isMinorGcSuspended":"false"}"#)
            }
            _ if asked.contains("details") => Reply::json("[]"),
            _ if asked.starts_with("PUT") => Reply::json("\"done\""),
            _ => Reply::json(WRITABLE),
        }
    })
    .await;
    assert!(client.state().await.unwrap().running);
    assert!(!client.server_config().await.unwrap().read_only_enabled);
    client.set_read_only(true).await.unwrap();
    assert!(client.compaction().await.unwrap().unwrap().major_suspended);
    assert!(client.gc_details().await.unwrap().is_empty());
    assert!(client.forced_gc().await.unwrap());
    client.resume_compaction(true, false).await.unwrap();
    client.trigger_gc().await.unwrap();
    let refused = client.set_read_only(false).await.unwrap_err();
    assert!(!refused.is_refusal(), "{refused}");
    assert_snapshot!(stub.asked().join("\n"), @r#"
    GET /api/v1/bookie/state
    GET /api/v1/config/server_config
    PUT /api/v1/bookie/state/readonly {"readOnly":true}
    GET /api/v1/bookie/gc/suspend_compaction
    GET /api/v1/bookie/gc_details
    GET /api/v1/bookie/gc
    PUT /api/v1/bookie/gc/resume_compaction {"resumeMajor":true,"resumeMinor":false}
    PUT /api/v1/bookie/gc {"forceMajor":false,"forceMinor":false}
    PUT /api/v1/bookie/state/readonly {"readOnly":false}
    "#);
}

#[tokio::test]
async fn answers_that_are_none_are_named() {
    let replies = [
        Reply::Body(200, "<html>\u{1b}[2J welcome</html>".to_owned()),
        Reply::Body(404, "<html>".to_owned()),
        Reply::Body(400, "Bookie is disabled ReadOnly mode\n".to_owned()),
        Reply::Body(500, String::new()),
        Reply::Body(302, String::new()),
        Reply::Body(200, r#"{"readOnly":"perhaps"}"#.to_owned()),
        Reply::Body(200, r#"{"running":true}"#.to_owned()),
        Reply::Body(200, "x".repeat(16 << 20)),
        Reply::Raw("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"running\""),
        Reply::Raw("HTTP/1.1 200"),
        Reply::Raw("SSH-2.0-OpenSSH_9.2\r\n"),
        Reply::Raw(""),
    ];
    let mut lines = Vec::new();
    for reply in replies {
        let (stub, client) = server(move |_| reply.clone()).await;
        for error in [
            client.state().await.unwrap_err(),
            client.set_read_only(true).await.unwrap_err(),
        ] {
            lines.push(words(&error, stub.port));
        }
        // None of them is a reason to wait.
        assert!(!client.state().await.unwrap_err().was_not_asked());
    }
    assert_snapshot!(lines.join("\n"), @r#"
    the answer of http://BOOKIE/state is not a bookie's, it is no JSON (expected value at line 1 column 1): `<html>\x1b[2J welcome</html>` (does another program listen there?)
    the answer of http://BOOKIE/state/readonly is not a bookie's, it is no JSON (expected value at line 1 column 1): `<html>\x1b[2J welcome</html>` (does another program listen there?)
    http://BOOKIE/state answered 404 (this version of BookKeeper has no such call, or another program listens there)
    http://BOOKIE/state/readonly answered 404 (this version of BookKeeper has no such call, or another program listens there)
    http://BOOKIE/state answered 400: `Bookie is disabled ReadOnly mode`
    http://BOOKIE/state/readonly answered 400: `Bookie is disabled ReadOnly mode`
    http://BOOKIE/state answered 500
    http://BOOKIE/state/readonly answered 500
    http://BOOKIE/state answered 302: a redirect, which no bookie sends
    http://BOOKIE/state/readonly answered 302: a redirect, which no bookie sends
    the answer of http://BOOKIE/state is not a bookie's, `running` is missing (does another program listen there?)
    the answer of http://BOOKIE/state/readonly is not a bookie's, `readOnly` is not true or false but `"perhaps"` (does another program listen there?)
    the answer of http://BOOKIE/state is not a bookie's, `readOnly` is missing (does another program listen there?)
    the answer of http://BOOKIE/state/readonly is not a bookie's, `readOnly` is missing (does another program listen there?)
    the answer of http://BOOKIE/state is not a bookie's, it is over 524288 bytes (does another program listen there?)
    the answer of http://BOOKIE/state/readonly is not a bookie's, it is over 524288 bytes (does another program listen there?)
    the answer of http://BOOKIE/state broke off or is no HTTP (does the bookie end, or another program listen there?): end of file before message length reached
    the answer of http://BOOKIE/state/readonly broke off or is no HTTP (the order may have taken effect all the same): end of file before message length reached
    the answer of http://BOOKIE/state broke off or is no HTTP (does the bookie end, or another program listen there?): connection closed before message completed
    the answer of http://BOOKIE/state/readonly broke off or is no HTTP (the order may have taken effect all the same): connection closed before message completed
    the answer of http://BOOKIE/state broke off or is no HTTP (does the bookie end, or another program listen there?): invalid HTTP version parsed
    the answer of http://BOOKIE/state/readonly broke off or is no HTTP (the order may have taken effect all the same): invalid HTTP version parsed
    the answer of http://BOOKIE/state broke off or is no HTTP (does the bookie end, or another program listen there?): connection closed before message completed
    the answer of http://BOOKIE/state/readonly broke off or is no HTTP (the order may have taken effect all the same): connection closed before message completed
    "#);
}

#[tokio::test]
async fn a_call_that_a_version_lacks_is_no_error_where_nobody_needs_it() {
    let (_, client) = server(|_| Reply::Body(404, String::new())).await;
    assert_eq!(client.compaction().await.unwrap(), None);
    let put = client.set_read_only(true).await.unwrap_err();
    assert!(matches!(put, AdminError::Missing { .. }) && put.is_refusal());
}

#[tokio::test]
async fn who_never_answers_is_not_asked_in_a_loop() {
    let (stub, client) = server(|_| Reply::Silence).await;
    let mut lines = Vec::new();
    for _ in 0..2 {
        let error = client.state().await.unwrap_err();
        lines.push(words(&error, stub.port));
    }
    // An order is not held back by that, and nobody may call it failed.
    let order = client.set_read_only(true).await.unwrap_err();
    assert!(!order.is_refusal() && !order.was_not_asked(), "{order}");
    lines.push(words(&order, stub.port));
    let further = client.set_read_only(true).await.unwrap_err();
    assert!(further.was_not_asked(), "{further}");
    assert_eq!(stub.asked().len(), 2);
    let half = Reply::Stuck("HTTP/1.1 200 OK\r\ncontent-length: 54\r\n\r\n{\"running\":true,");
    let (_, client) = server(move |_| half.clone()).await;
    let half = client.state().await.unwrap_err();
    assert!(matches!(half, AdminError::TimedOut { .. }), "{half}");
    let paused = lines.remove(1);
    assert!(paused.contains("was not asked"), "{paused}");
    assert_snapshot!(lines.join("\n"), @r#"
    no answer from http://BOOKIE/state within 1s (it takes one request at a time, and hangs in one while its ZooKeeper is away)
    no answer from http://BOOKIE/state/readonly within 3s (the order may take effect all the same, even much later)
    "#);
}

#[tokio::test]
async fn one_request_is_in_flight_whoever_asks() {
    let (stub, client) = server(|asked| match asked.starts_with("PUT") {
        true => Reply::json(r#"{"readOnly":true}"#),
        false => Reply::json(WRITABLE),
    })
    .await;
    let mut tasks = Vec::new();
    for number in 0..20 {
        let client = client.clone();
        tasks.push(tokio::spawn(async move {
            match number % 4 {
                0 => client.set_read_only(true).await.map(drop),
                1 => match client.polling().state().await {
                    Err(error) if error.was_not_asked() => Ok(()),
                    other => other.map(drop),
                },
                _ => client.state().await.map(drop),
            }
        }));
    }
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!(stub.most_in_flight(), 1, "{:?}", stub.asked());
    let is_put = |asked: &String| asked.starts_with("PUT");
    let puts = stub
        .asked()
        .iter()
        .skip(1)
        .take_while(|asked| is_put(asked))
        .count();
    assert!(4 <= puts, "orders go first: {:?}", stub.asked());
}

#[tokio::test]
async fn nobody_at_the_address() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let error = client(&format!("http://localhost:{port}")).state().await;
    assert_snapshot!(words(&error.unwrap_err(), port), @"cannot connect to http://localhost:PORT/api/v1/bookie/state (does the bookie run, with httpServerEnabled=true and this port?): Connection refused (os error 111)");
}

#[test]
fn addresses_that_are_none() {
    let mut lines = Vec::new();
    for url in [
        "",
        "127.0.0.1:8080",
        "http://",
        "ftp://127.0.0.1",
        "https://127.0.0.1:8443",
    ] {
        let options = AdminOptions {
            url: url.to_owned(),
            ..AdminOptions::default()
        };
        lines.push(AdminClient::new(options).unwrap_err().to_string());
    }
    assert_snapshot!(lines.join("\n"), @r#"
    "" is no address of a bookie's admin server: write it like http://127.0.0.1:8080
    "127.0.0.1:8080" is no address of a bookie's admin server: write it like http://127.0.0.1:8080
    "http://" is no address of a bookie's admin server: write it like http://127.0.0.1:8080
    "ftp://127.0.0.1" is no address of a bookie's admin server: it must begin with http:// or https://
    "https://127.0.0.1:8443" is no address of a bookie's admin server: https needs admin_ca, the authorities of its certificate
    "#);
}

mod secure {
    use std::sync::Arc;

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
    use rustls::crypto::ring;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::server::WebPkiClientVerifier;
    use rustls::{RootCertStore, ServerConfig};
    use tokio_rustls::TlsAcceptor;

    use super::*;

    struct Authority(CertifiedIssuer<'static, KeyPair>);

    impl Authority {
        fn new(name: &str) -> Authority {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().unwrap();
            Authority(CertifiedIssuer::self_signed(params, key).unwrap())
        }

        fn pem(&self) -> Vec<u8> {
            self.0.pem().into_bytes()
        }

        /// A certificate for 127.0.0.1 and its key.
        fn sign(&self) -> (rcgen::Certificate, KeyPair) {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
            (params.signed_by(&key, &self.0).unwrap(), key)
        }

        fn client(&self) -> (Vec<u8>, Vec<u8>) {
            let (certificate, key) = self.sign();
            (certificate.pem().into(), key.serialize_pem().into())
        }

        /// A server that asks for client certificates of this authority.
        fn server(&self) -> TlsAcceptor {
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

    #[tokio::test]
    async fn a_bookie_that_asks_for_a_client_certificate() {
        let (ours, other) = (Authority::new("ours"), Authority::new("other"));
        let tls = ours.server();
        let stub = Stub::start(Some(tls), |_| Reply::json(WRITABLE)).await;
        let plain = Stub::start(None, |_| Reply::json(WRITABLE)).await;
        let ask = async |scheme: &str, port: u16, ca: &Authority, own: Option<&Authority>| {
            let client = AdminClient::new(AdminOptions {
                url: format!("{scheme}://127.0.0.1:{port}"),
                ca: Some(ca.pem()),
                cert_and_key: own.map(Authority::client),
            });
            let answer = client.unwrap().state().await;
            answer.map_err(|error| words(&error, port))
        };
        assert!(ask("https", stub.port, &ours, Some(&ours)).await.is_ok());
        let unready = ask("https", plain.port, &ours, Some(&ours)).await;
        let unready = unready.unwrap_err();
        assert!(
            unready.starts_with("cannot connect to https://"),
            "{unready}"
        );
        let wrong = [
            ask("https", stub.port, &ours, None).await,
            ask("https", stub.port, &ours, Some(&other)).await,
            ask("https", stub.port, &other, Some(&ours)).await,
            ask("http", stub.port, &ours, Some(&ours)).await,
        ];
        let lines: Vec<String> = wrong.into_iter().map(Result::unwrap_err).collect();
        assert_snapshot!(lines.join("\n"), @r#"
        no secure connection to https://BOOKIE/state (see httpServerTlsEnable of the bookie, and admin_ca, admin_cert and admin_key): received fatal alert: CertificateRequired
        no secure connection to https://BOOKIE/state (see httpServerTlsEnable of the bookie, and admin_ca, admin_cert and admin_key): received fatal alert: UnknownCA
        no secure connection to https://BOOKIE/state (see httpServerTlsEnable of the bookie, and admin_ca, admin_cert and admin_key): invalid peer certificate: UnknownIssuer
        the answer of http://BOOKIE/state broke off or is no HTTP (does the bookie end, or another program listen there?): invalid HTTP version parsed
        "#);
    }

    #[test]
    fn certificates_that_are_none() {
        let (ours, other) = (Authority::new("ours"), Authority::new("other"));
        let (certificate, key) = ours.client();
        let foreign_key = other.client().1;
        let mut lines = Vec::new();
        for (ca, cert_and_key) in [
            (b"".to_vec(), None),
            (
                b"-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----".to_vec(),
                None,
            ),
            (key.clone(), None),
            (ours.pem(), Some((b"x".to_vec(), key))),
            (ours.pem(), Some((certificate.clone(), b"x".to_vec()))),
            (ours.pem(), Some((certificate, foreign_key))),
        ] {
            let error = AdminClient::new(AdminOptions {
                url: "https://127.0.0.1".to_owned(),
                ca: Some(ca),
                cert_and_key,
            });
            lines.push(report::text(&error.unwrap_err()));
        }
        assert_snapshot!(lines.join("\n"), @r#"
        the certificates for the bookie's admin server are of no use: the file of authorities holds no certificate in PEM form
        the certificates for the bookie's admin server are of no use: the file of authorities is not in PEM form: base64 decode error: InvalidCharacter(63)
        the certificates for the bookie's admin server are of no use: the file of authorities holds no certificate in PEM form
        the certificates for the bookie's admin server are of no use: the client certificate holds no certificate in PEM form
        the certificates for the bookie's admin server are of no use: the key of the client certificate is not in PEM form: no items found
        the certificates for the bookie's admin server are of no use: the client certificate cannot be used: keys may not be consistent: KeyMismatch
        "#);
    }
}

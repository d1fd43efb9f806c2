//! Tests of what changes a bookie, and of what it costs: adds, their keys and refusals, and the way to TLS.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::fake::{Asked, Fake, Reply, answer, request};
use super::messages::framed;
use super::*;
use crate::clock::Clock;
use crate::cluster::Tls;
use crate::cluster::ledger::{DigestType, Secret};
use crate::cluster::memory::Memory;

const LEDGER: u64 = 7;

fn bookies() -> Bookies {
    waiting(Limits::default().answer)
}

fn waiting(answer: Duration) -> Bookies {
    let store = Memory::new(Clock::manual()).connect();
    let limits = Limits {
        answer,
        waits: (Duration::from_millis(1), Duration::from_millis(1)),
        rest: Duration::ZERO,
        ..Limits::default()
    };
    Bookies::new(Arc::new(store), "/ledgers", Clock::manual(), limits)
}

fn secret() -> Secret {
    Secret::new(DigestType::Crc32c, b"")
}

fn sealed(entry: u64, payload: &[u8]) -> Vec<u8> {
    Digest::of(&secret()).seal(LEDGER, entry, -1, payload)
}

fn told<T: std::fmt::Debug>(result: Result<T, BookieError>) -> String {
    match result {
        Ok(found) => format!("{found:?}"),
        Err(error) => crate::report::text(&error),
    }
}

#[tokio::test]
async fn entries_of_any_size_are_added_and_read_back_the_same() {
    let fake = Fake::start().await;
    let bookie = bookies().get(fake.id());
    let key = secret().master_key();
    for (entry, size) in [0, 1, 100, 70_000, 1 << 20, 5 << 20]
        .into_iter()
        .enumerate()
    {
        let (entry, raw) = (entry as u64, sealed(entry as u64, &vec![7; size]));
        bookie.add_entry(LEDGER, entry, &key, &raw).await.unwrap();
        // Again, as after an answer that was lost.
        bookie.add_entry(LEDGER, entry, &key, &raw).await.unwrap();
        assert_eq!(bookie.read_entry(LEDGER, entry).await.unwrap(), raw);
    }
    assert_eq!(fake.entries(LEDGER).len(), 6);
    bookie.force_ledger(LEDGER).await.unwrap();
}

#[tokio::test]
async fn many_adds_are_under_way_at_once_over_one_connection() {
    let fake = Fake::start().await;
    let bookie = bookies().get(fake.id());
    let key = secret().master_key();
    let raws: Vec<_> = (0..300).map(|entry| sealed(entry, b"some")).collect();
    let adds = raws.iter().zip(0..).map(|(raw, entry)| {
        let (bookie, key) = (&bookie, &key);
        Box::pin(async move { bookie.add_entry(LEDGER, entry, key, raw).await }) as _
    });
    let answers = crate::cluster::store::together(adds.collect()).await;
    assert_eq!(answers, vec![Ok(()); 300]);
    let kept: Vec<_> = fake.entries(LEDGER).into_values().collect();
    assert_eq!(kept, raws);
}

#[tokio::test]
async fn why_a_bookie_takes_no_entry() {
    let fake = Fake::start().await;
    let bookie = bookies().get(fake.id());
    let (key, raw) = (secret().master_key(), sealed(3, b"payload"));
    let add = async |key| told(bookie.add_entry(LEDGER, 3, key, &raw).await);
    fake.set_read_only(true);
    insta::assert_snapshot!(add(&key).await, @"it answered EREADONLY");
    fake.set_read_only(false);
    insta::assert_snapshot!(add(&key).await, @"()");
    let other = Secret::new(DigestType::Crc32c, b"another").master_key();
    insta::assert_snapshot!(add(&other).await, @"it answered EUA");
    // Only a writer is kept out.
    fake.fence(LEDGER);
    insta::assert_snapshot!(add(&key).await, @"()");
    fake.forget(LEDGER);
    insta::assert_snapshot!(add(&key).await, @"it answered EFENCED");
    fake.instead(|_| Some(Reply::Status(501)));
    insta::assert_snapshot!(add(&key).await, @"it answered EIO");
    fake.instead(|_| Some(Reply::Status(506)));
    insta::assert_snapshot!(add(&key).await, @"it answered ETOOMANYREQUESTS");
    fake.instead(|_| Some(Reply::Close));
    insta::assert_snapshot!(add(&key).await, @"the connection ended: the bookie closed it");
}

#[tokio::test]
async fn an_add_whose_connection_ends_is_made_once_more() {
    let fake = Fake::start().await;
    let bookie = bookies().get(fake.id());
    let (key, raw) = (secret().master_key(), sealed(3, b"payload"));
    let _ = bookie.read_entry(LEDGER, 3).await;
    let mut first = true;
    fake.instead(move |asked| {
        assert_eq!(
            asked,
            Asked::Add {
                ledger: LEDGER,
                entry: 3
            }
        );
        std::mem::replace(&mut first, false).then_some(Reply::Close)
    });
    assert_eq!(bookie.add_entry(LEDGER, 3, &key, &raw).await, Ok(()));
}

#[tokio::test]
async fn after_silence_nobody_knows_and_adding_again_is_harmless() {
    let fake = Fake::start().await;
    let bookie = waiting(Duration::from_millis(100)).get(fake.id());
    let key = secret().master_key();
    for (entry, silent, kept) in [(0, Reply::Silence, 0), (1, Reply::DoneInSilence, 2)] {
        let raw = sealed(entry, b"payload");
        fake.instead(move |_| Some(silent.clone()));
        let silence = bookie.add_entry(LEDGER, entry, &key, &raw).await;
        assert_eq!(told(silence), "there was no answer within 100ms");
        assert_eq!(fake.entries(LEDGER).len(), kept);
        fake.instead(|_| None);
        bookie.add_entry(LEDGER, entry, &key, &raw).await.unwrap();
        assert_eq!(bookie.read_entry(LEDGER, entry).await.unwrap(), raw);
    }
}

#[tokio::test]
async fn what_a_bookie_cannot_tell() {
    let fake = Fake::start().await;
    let bookie = waiting(Duration::from_millis(100)).get(fake.id());
    fake.has_space(100, 40);
    assert_eq!(told(bookie.space().await), "Space { total: 100, free: 40 }");
    fake.put(LEDGER, 0, b"x".to_vec());
    fake.has_no_lists();
    let held = bookie.entries_held(LEDGER).await.unwrap_err();
    assert!(!held.is_absent(), "{held}");
    assert_eq!(bookie.read_entry(LEDGER, 0).await, Ok(b"x".to_vec()));
}

/// What a peer does with one connection on which TLS is asked for.
async fn peer(listener: &TcpListener, status: i32, tls: Option<&TlsAcceptor>) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let asked = request(&mut stream).await.unwrap();
    assert!(asked.start_tls.is_some());
    stream
        .write_all(&framed(&answer(&asked, status)))
        .await
        .unwrap();
    if let Some(tls) = tls {
        serve_one(tls, stream).await;
    }
}

/// Says that it has nothing, in TLS.
async fn serve_one(tls: &TlsAcceptor, stream: TcpStream) {
    use prost::Message;
    use tokio::io::AsyncReadExt;
    let Ok(mut stream) = tls.accept(stream).await else {
        return;
    };
    let length = stream.read_u32().await.unwrap();
    let mut bytes = vec![0; length as usize];
    stream.read_exact(&mut bytes).await.unwrap();
    let asked = messages::Request::decode(&bytes[..]).unwrap();
    stream
        .write_all(&framed(&answer(&asked, 402)))
        .await
        .unwrap();
    stream.flush().await.unwrap();
}

fn acceptor(certified: &CertifiedKey<rcgen::KeyPair>) -> TlsAcceptor {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(
        certified.signing_key.serialize_der(),
    ));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

#[tokio::test]
async fn tls_is_started_before_anything_is_asked() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let id = listener.local_addr().unwrap().to_string();
    let certified = |name: &str| generate_simple_self_signed([name.to_owned()]).unwrap();
    let (own, other) = (certified("127.0.0.1"), certified("another.example.org"));
    let read = async |trusted: &CertifiedKey<rcgen::KeyPair>, status, server| {
        let tls = Tls {
            ca: trusted.cert.pem(),
            identity: None,
        };
        let bookie = bookies().with_tls(&tls).unwrap().get(&id);
        let (read, ()) = tokio::join!(
            bookie.read_entry(LEDGER, 3),
            peer(&listener, status, server)
        );
        told(read)
    };
    let acceptors = (acceptor(&own), acceptor(&other));
    insta::assert_snapshot!(read(&own, 0, Some(&acceptors.0)).await, @"it answered ENOLEDGER");
    insta::assert_snapshot!(read(&own, 404, None).await, @"TLS is wanted, and it answered EBADREQ to START_TLS");
    assert!(
        read(&own, 0, Some(&acceptors.1))
            .await
            .starts_with("TLS failed")
    );
    assert!(
        read(&other, 0, Some(&acceptors.1))
            .await
            .starts_with("TLS failed")
    );
}

#[test]
fn what_is_no_certificate_is_said() {
    let why = |ca: &str, identity: Option<(&str, &str)>| {
        let identity = identity.map(|(cert, key)| (cert.to_owned(), key.to_owned()));
        let ca = ca.to_owned();
        bookies().with_tls(&Tls { ca, identity }).unwrap_err()
    };
    let own = generate_simple_self_signed(["a".to_owned()]).unwrap();
    let pem = own.cert.pem();
    insta::assert_snapshot!(why("", None), @"there is no certificate in it");
    insta::assert_snapshot!(why(&pem, Some((&pem, "no key"))), @"the private key: no items found");
}

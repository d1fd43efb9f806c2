//! The client against servers that answer well, badly, or send it elsewhere.

use std::sync::{Arc, Mutex};

use super::stub::{Asked, Stub, said, sent_on};
use super::*;
use crate::report;

fn brokers(urls: Vec<Url>) -> Brokers {
    Brokers::new(BrokerOptions {
        urls,
        cluster: None,
        token: Some("secret".to_owned()),
        authorities: None,
    })
    .unwrap()
}

fn topic() -> TopicName {
    TopicName::of_node("public/default/persistent/a%2Fb+c").unwrap()
}

/// The error with addresses left out.
fn sentence(error: &BrokerError) -> String {
    let text = report::text(error);
    let words = text.split(' ').map(|word| match word.find("127.0.0.1:") {
        None => word.to_owned(),
        Some(at) => {
            let rest = word[at + 10..].trim_start_matches(|c: char| c.is_ascii_digit());
            format!("{}BROKER{rest}", &word[..at])
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn each_call_is_one_request_with_the_topics_own_encoding() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&asked);
    let stub = Stub::start(move |Asked { line, token }| {
        let body = match line.rsplit_once('/').unwrap().1 {
            "internal-info" => r#"{"version":3,"ledgers":[{"ledgerId":4,"entries":10,"size":1300,"offloaded":false},{"ledgerId":7}],"cursors":{}}"#,
            "retention?applied=true" => r#"{"retentionTimeInMinutes":1,"retentionSizeInMB":-1}"#,
            "messageTTL?applied=true" => "0",
            "stats" => r#"{"publishers":[{}],"subscriptions":{"s":{"consumers":[{},{}]},"t":{}}}"#,
            "leaderBroker" => r#"{"serviceUrl":"http://127.0.0.1:24171","brokerId":"x"}"#,
            _ => "",
        };
        let (verb, _) = line.split_once(' ').unwrap();
        let status = if verb == "GET" { 200 } else { 204 };
        heard.lock().unwrap().push(format!("{line} {}", token.unwrap_or_default()));
        Some(said(status, body))
    })
    .await;
    let brokers = brokers(vec![stub.url()]);
    let topic = topic();
    let ledgers = brokers.ledgers(&topic).await.unwrap();
    assert_eq!(
        ledgers
            .iter()
            .map(|l| (l.ledger_id, l.size))
            .collect::<Vec<_>>(),
        [(4, 1300), (7, 0)]
    );
    let kept = brokers.retention(&topic).await.unwrap().unwrap();
    assert_eq!((kept.minutes, kept.megabytes), (1, -1));
    assert_eq!(brokers.ttl(&topic).await.unwrap(), None);
    let usage = brokers.usage(&topic).await.unwrap();
    assert_eq!(
        (usage.producers, usage.consumers, usage.is_none()),
        (1, 2, false)
    );
    assert_eq!(brokers.leader().await.unwrap(), "http://127.0.0.1:24171");
    brokers.expire(&topic, 60).await.unwrap();
    brokers.trim(&topic).await.unwrap();
    brokers.unload(&topic).await.unwrap();
    let old = TopicName::of_node("prop/cl/ns/persistent/t").unwrap();
    brokers.unload(&old).await.unwrap();
    insta::assert_snapshot!(asked.lock().unwrap().join("\n"), @"
    GET /admin/v2/persistent/public/default/a%2Fb+c/internal-info secret
    GET /admin/v2/persistent/public/default/a%2Fb+c/retention?applied=true secret
    GET /admin/v2/persistent/public/default/a%2Fb+c/messageTTL?applied=true secret
    GET /admin/v2/persistent/public/default/a%2Fb+c/stats secret
    GET /admin/v2/brokers/leaderBroker secret
    POST /admin/v2/persistent/public/default/a%2Fb+c/all_subscription/expireMessages/60 secret
    POST /admin/v2/persistent/public/default/a%2Fb+c/trim secret
    PUT /admin/v2/persistent/public/default/a%2Fb+c/unload secret
    PUT /admin/persistent/prop/cl/ns/t/unload secret
    ");
}

#[tokio::test]
async fn bad_answers_are_one_sentence_each() {
    let bad = async |answer: String| {
        let stub = Stub::start(move |_| Some(answer.clone())).await;
        let brokers = brokers(vec![stub.url()]);
        sentence(&brokers.ledgers(&topic()).await.unwrap_err())
    };
    insta::assert_snapshot!(bad(said(401, "<html>")).await, @"http://BROKER/admin/v2/persistent/public/default/a%2Fb+c/internal-info wants a token, and knows none such (401)");
    insta::assert_snapshot!(bad(said(403, r#"{"reason":"Unauthorized to validateTopicOperation"}"#)).await, @"http://BROKER/admin/v2/persistent/public/default/a%2Fb+c/internal-info does not allow this to the role of our token (403): trim and unload take a tenant's admin, and metrics may need one too");
    insta::assert_snapshot!(bad(said(404, r#"{"reason":"Topic persistent://a/b/c not found"}"#)).await, @"http://BROKER/admin/v2/persistent/public/default/a%2Fb+c/internal-info knows no such thing (404): Topic persistent://a/b/c not found");
    insta::assert_snapshot!(bad(said(405, r#"{"reason":"Trim on a non-persistent topic is not allowed"}"#)).await, @"http://BROKER/admin/v2/persistent/public/default/a%2Fb+c/internal-info does not do this with such a topic (405): Trim on a non-persistent topic is not allowed");
    insta::assert_snapshot!(bad(said(500, "<html><h1>HTTP ERROR 500</h1></html>")).await, @"http://BROKER/admin/v2/persistent/public/default/a%2Fb+c/internal-info answered 500");
    insta::assert_snapshot!(bad(said(503, "busy\u{7}\nand more")).await, @r#"http://BROKER/admin/v2/persistent/public/default/a%2Fb+c/internal-info answered 503: busy\x07"#);
    insta::assert_snapshot!(bad(said(200, "<html>sign in</html>")).await, @"the answer of http://BROKER/admin/v2/persistent/public/default/a%2Fb+c/internal-info cannot be understood: expected value at line 1 column 1");
    insta::assert_snapshot!(bad(said(200, r#"{"ledgers":[{"ledgerId":-4}]}"#)).await, @"the answer of http://BROKER/admin/v2/persistent/public/default/a%2Fb+c/internal-info cannot be understood: invalid value: integer `-4`, expected u64 at line 1 column 26");
    insta::assert_snapshot!(bad(said(200, "")).await, @"the answer of http://BROKER/admin/v2/persistent/public/default/a%2Fb+c/internal-info cannot be understood: invalid type: null, expected struct Info at line 1 column 4");
    insta::assert_snapshot!(bad("HTTP/1.1 200 X\r\ncontent-length: 100\r\n\r\n{\"ledgers\":".to_owned()).await, @"the answer of http://BROKER/admin/v2/persistent/public/default/a%2Fb+c/internal-info broke off: end of file before message length reached");
    insta::assert_snapshot!(bad("SSH-2.0-OpenSSH\r\n".to_owned()).await, @"the answer of http://BROKER/admin/v2/persistent/public/default/a%2Fb+c/internal-info broke off: invalid HTTP version parsed");
    insta::assert_snapshot!(bad(sent_on("http://example.org/admin/v2")).await, @"http://BROKER/admin/v2/persistent/public/default/a%2Fb+c/internal-info sends us to http://example.org, which is no broker in the cluster's list and gets no token");
    insta::assert_snapshot!(bad(sent_on("file:///etc/passwd")).await, @"http://BROKER/admin/v2/persistent/public/default/a%2Fb+c/internal-info sends us to file:///etc/passwd, which is no broker in the cluster's list and gets no token");
    insta::assert_snapshot!(bad(sent_on("?authoritative=false")).await, @"http://BROKER/admin/v2/persistent/public/default/a%2Fb+c/internal-info was sent on more than 4 times: the brokers do not agree on who has the topic");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = Url::parse(&format!("http://{}", free.local_addr().unwrap())).unwrap();
    drop(free);
    let error = brokers(vec![url]).trim(&topic()).await.unwrap_err();
    insta::assert_snapshot!(sentence(&error), @"no answer from http://BROKER/admin/v2/persistent/public/default/a%2Fb+c/trim: Connection refused (os error 111)");
}

/// Two brokers that know of each other; `owner` is the one that has the topic.
async fn pair(listed: bool) -> (Stub, Stub, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&asked);
    let owner = Stub::start(move |Asked { line, token }| {
        heard
            .lock()
            .unwrap()
            .push(format!("owner: {line} {}", token.unwrap_or_default()));
        Some(match line.as_str() {
            "GET /metrics/" => said(200, "a{topic=\"persistent://public/default/two\"} 1\n"),
            _ => said(200, ""),
        })
    })
    .await;
    let heard = Arc::clone(&asked);
    let (other, ids) = (owner.url(), [owner.id()]);
    let first = Stub::start(move |Asked { line, .. }| {
        let (_, path) = line.split_once(' ').unwrap();
        heard.lock().unwrap().push(format!("first: {line}"));
        let mut all = vec!["127.0.0.1:1".to_owned()];
        all.extend(ids.iter().filter(|_| listed).cloned());
        Some(match path {
            "/admin/v2/clusters" => said(200, r#"["global","lab"]"#),
            "/admin/v2/brokers/lab" => said(200, &serde_json::to_string(&all).unwrap()),
            "/metrics/" => said(200, "a{topic=\"persistent://public/default/one\"} 1\n"),
            _ => sent_on(&format!("{}{}?authoritative=false", other, &path[1..])),
        })
    })
    .await;
    (first, owner, asked)
}

#[tokio::test]
async fn a_broker_of_the_list_gets_the_call_and_the_token_and_nobody_else() {
    let (first, _owner, asked) = pair(true).await;
    let known = brokers(vec![first.url()]);
    known.refresh().await.unwrap();
    known.trim(&topic()).await.unwrap();
    insta::assert_snapshot!(asked.lock().unwrap().join("\n"), @"
    first: GET /admin/v2/clusters
    first: GET /admin/v2/brokers/lab
    owner: POST /admin/v2/persistent/public/default/a%2Fb+c/trim secret
    ");
    let (first, _owner, asked) = pair(false).await;
    let unknown = brokers(vec![first.url()]);
    unknown.refresh().await.unwrap();
    let error = unknown.trim(&topic()).await.unwrap_err();
    insta::assert_snapshot!(sentence(&error), @"http://BROKER/admin/v2/persistent/public/default/a%2Fb+c/trim sends us to http://BROKER, which is no broker in the cluster's list and gets no token");
    assert!(
        !asked
            .lock()
            .unwrap()
            .iter()
            .any(|line| line.starts_with("owner"))
    );
}

#[tokio::test]
async fn loaded_topics_are_those_of_all_live_brokers_or_unknown() {
    let metrics = |topic: &str| format!("pulsar_producers_count{{topic=\"{topic}\"}} 0\n");
    let two = Stub::start({
        let page = metrics("persistent://a/b/two");
        move |_| Some(said(200, &page))
    })
    .await;
    let live = Arc::new(Mutex::new(vec![two.id()]));
    let ids = Arc::clone(&live);
    let one = Stub::start(move |asked| {
        Some(match asked.line.as_str() {
            "GET /admin/v2/clusters" => said(200, r#"["lab"]"#),
            "GET /admin/v2/brokers/lab" => {
                said(200, &serde_json::to_string(&*ids.lock().unwrap()).unwrap())
            }
            _ => said(200, &metrics("persistent://a/b/one")),
        })
    })
    .await;
    live.lock().unwrap().push(one.id());
    let all = brokers(vec![one.url()]);
    let loaded = all.loaded().await.unwrap();
    assert_eq!(loaded.len(), 2);
    assert!(loaded.contains("persistent://a/b/one") && loaded.contains("persistent://a/b/two"));
    // One that does not answer may have loaded anything.
    drop(two);
    let error = all.loaded().await.unwrap_err();
    assert!(matches!(error, BrokerError::Http(_)), "{error}");
    live.lock().unwrap().clear();
    let error = all.loaded().await.unwrap_err();
    insta::assert_snapshot!(sentence(&error), @"the answer of http://BROKER/ cannot be understood: it lists the brokers []");
}

#[test]
fn a_brokers_id_has_its_plain_port() {
    let of = |given: &[&str], id: &str| {
        let urls = given.iter().map(|url| Url::parse(url).unwrap()).collect();
        brokers(urls).url_of(id).map(|url| url.to_string())
    };
    let plain = of(&["http://a:8080"], "b:8081");
    assert_eq!(plain.as_deref(), Some("http://b:8081/"));
    // The secure one is known from what was given: of itself, or of the first one.
    let given = ["https://a:8443", "https://b:9443"];
    assert_eq!(of(&given, "b:8080").as_deref(), Some("https://b:9443/"));
    assert_eq!(of(&given, "c:8080").as_deref(), Some("https://c:8443/"));
    assert_eq!(of(&given, "/etc/passwd"), None);
    assert_eq!(of(&given, ""), None);
}

#[test]
fn addresses() {
    let refused = |urls: &[&str]| {
        let urls = urls.iter().map(|url| Url::parse(url).unwrap()).collect();
        let options = BrokerOptions {
            urls,
            cluster: None,
            token: None,
            authorities: None,
        };
        Brokers::new(options).unwrap_err().to_string()
    };
    insta::assert_snapshot!(refused(&[]), @"no address of a broker is given");
    insta::assert_snapshot!(refused(&["pulsar://a:6650"]), @"pulsar://a:6650 is no web service address of a broker: it is http:// or https://, a host and perhaps a port");
    insta::assert_snapshot!(refused(&["http://a:8080/admin"]), @"http://a:8080/admin is no web service address of a broker: it is http:// or https://, a host and perhaps a port");
}

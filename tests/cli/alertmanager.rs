//! Alerts as the real Alertmanager has them.

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;

use super::listeners::{configuration, signal, until};
use super::*;

/// As Debian's package calls it.
const ALERTMANAGER: &str = "prometheus-alertmanager";

fn is_installed() -> bool {
    let version = Command::new(ALERTMANAGER)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let found = version.is_ok();
    assert!(
        found || std::env::var_os("CI").is_none_or(|ci| ci != "true"),
        "{ALERTMANAGER} is not installed, and this is CI"
    );
    if !found {
        println!("skipped: {ALERTMANAGER} is not installed");
    }
    found
}

struct Alertmanager {
    _process: EndsWithTest,
    address: String,
}

impl Alertmanager {
    fn start(folder: &Path, name: &str) -> Alertmanager {
        let folder = folder.join(name);
        fs::create_dir(&folder).unwrap();
        let config = folder.join("alertmanager.yml");
        fs::write(
            &config,
            "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n",
        )
        .unwrap();
        // Free a moment ago; it takes no port of the system's choice.
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap().to_string();
        drop(free);
        let process = Command::new(ALERTMANAGER)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--cluster.listen-address=")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let process = EndsWithTest(process.unwrap());
        until("the Alertmanager answers", || {
            TcpStream::connect(&address).is_ok()
                && get(&address, "/-/ready").starts_with("HTTP/1.1 200 ")
        });
        Alertmanager {
            _process: process,
            address,
        }
    }

    /// The alerts that are not over.
    fn alerts(&self) -> Vec<serde_json::Value> {
        let answer = get(&self.address, "/api/v2/alerts");
        let start = answer.find("\r\n\r\n[").expect("a list");
        let end = answer.rfind(']').expect("a list");
        serde_json::from_str(&answer[start + 4..=end]).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let alerts = self.alerts();
        let names = alerts.iter().map(|alert| &alert["labels"]["alertname"]);
        names
            .map(|name| name.as_str().unwrap().to_owned())
            .collect()
    }
}

#[test]
fn alerts_are_there_while_it_is_bad_and_over_after_it_also_through_a_restart() {
    if !is_installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let one = Alertmanager::start(folder.path(), "one");
    let two = Alertmanager::start(folder.path(), "two");
    let urls = format!(
        "urls = [\"http://{}\", \"http://{}/\"]",
        one.address, two.address
    );
    let good = format!("[alertmanager]\n{urls}\n");
    // No disk has so much.
    let bad = format!("{good}[thresholds]\nwarn_available = \"1000PiB\"\n");
    let file = configuration(folder.path(), &bad);
    let arguments = ["run", "--config", &file];
    let (mut agent, address) = start(&arguments, folder.path());
    for instance in [&one, &two] {
        until("the alert is there, and its cause", || {
            let alerts = instance.alerts();
            alerts
                .first()
                .is_some_and(|alert| alert["annotations"]["cause"] == "bytes")
        });
        let alert = instance.alerts().remove(0);
        let labels = &alert["labels"];
        assert_eq!(labels["alertname"], "DirkeeperAlmostFull");
        assert_eq!(labels["severity"], "warning");
        assert_eq!(labels["role"], "ledger");
        assert_eq!(labels["dir"], folder.path().join("l1").to_str().unwrap());
        assert_eq!(instance.names().len(), 1);
    }
    let status = get(&address, "/api/v1/status");
    assert!(
        status.contains(r#""name":"alertmanager:2","kind":"alertmanager""#),
        "{status}"
    );

    configuration(folder.path(), &good);
    signal(&agent, Signal::SIGHUP);
    until("it is over", || {
        one.names().is_empty() && two.names().is_empty()
    });

    configuration(folder.path(), &bad);
    signal(&agent, Signal::SIGHUP);
    until("it is bad again", || {
        !one.names().is_empty() && !two.names().is_empty()
    });
    signal(&agent, Signal::SIGTERM);
    assert!(agent.0.wait().unwrap().success());
    assert_eq!(one.names(), ["DirkeeperAlmostFull"]);
    configuration(folder.path(), &good);
    let (agent, address) = start(&arguments, folder.path());
    // By itself it would last three minutes longer.
    until("what an earlier run left is over", || {
        one.names().is_empty() && two.names().is_empty()
    });

    drop(two);
    configuration(folder.path(), &bad);
    signal(&agent, Signal::SIGHUP);
    until("the other one is still told", || !one.names().is_empty());
    until("and the loss of one is a problem", || {
        get(&address, "/api/v1/status").contains("was not told: ")
    });
}

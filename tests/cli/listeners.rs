//! Who is told by the real agent beside hooks: webhooks, node_exporter's textfile.

use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::*;

/// A configuration of one directory, which is there, and these sections.
pub(super) fn configuration(folder: &Path, sections: &str) -> String {
    let dir = folder.join("l1");
    fs::create_dir_all(&dir).unwrap();
    let file = folder.join("dirkeeper.toml");
    let state = folder.join("state");
    // However full the machine of the test is.
    let toml = format!(
        "state_dir = {state:?}\n[[dir]]\npath = {dir:?}\nrole = \"ledger\"\nrequire_mount = false\n\
         warn = 0.9998\nfull = 0.9999\n{sections}"
    );
    fs::write(&file, toml).unwrap();
    file.to_str().unwrap().to_owned()
}

pub(super) fn signal(agent: &EndsWithTest, signal: Signal) {
    let pid = i32::try_from(agent.0.id()).unwrap();
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// Waits until it holds.
pub(super) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let clock = Clock::start();
    while !holds() {
        assert!(clock.elapsed() < PATIENCE, "never: {what}");
        thread::park_timeout(Duration::from_millis(10));
    }
}

#[test]
fn a_webhook_is_tried_and_not_shown_beyond_its_host() {
    let folder = tempfile::tempdir().unwrap();
    let server = Agent::start([Answer {
        status: "410 Gone",
        kind: "text/plain",
        body: "sorry".to_owned(),
    }]);
    let secret = folder.path().join("secret");
    fs::write(&secret, "s3cret\n").unwrap();
    let section = format!(
        "[[webhook]]\nname = \"chat\"\nurl = \"{}/hidden\"\nsecret_file = {secret:?}\n",
        server.url
    );
    let file = configuration(folder.path(), &section);
    let listed = run(&["hook", "list", "--config", &file]);
    let expected = format!("chat  all events  within 10s  {}\n", server.url);
    assert_eq!(text(&listed.stdout), expected);
    let output = run(&[
        "hook", "test", "chat", "--event", "diskFull", "--config", &file,
    ]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stdout);
    assert!(told.starts_with("status 410 after "), "{told}");
    assert!(told.ends_with("\noutput:\n  sorry\n"), "{told}");
    let asked = server.request();
    assert!(asked.starts_with("POST /hidden HTTP/1.1\r\n"), "{asked}");
    let signature = "\r\nx-dirkeeper-signature: sha256=";
    assert!(asked.contains(signature), "{asked}");

    fs::write(&secret, "\n").unwrap();
    let output = run(&["run", "--config", &file, "--listen", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(78));
    assert!(text(&output.stderr).contains("holds no secret"));
}

/// The events of a server's requests, oldest first: number, and how many were left out before it.
fn events<'a>(requests: impl Iterator<Item = &'a String>) -> Vec<(u64, u64)> {
    let bodies = requests.filter_map(|request| Some(request.split_once("\r\n\r\n")?.1));
    let number = |event: &serde_json::Value, key: &str| event[key].as_u64().unwrap();
    bodies
        .map(|body| serde_json::from_str(body).unwrap())
        .map(|event| (number(&event, "seq"), number(&event, "coalesced")))
        .collect()
}

#[test]
fn what_a_server_in_trouble_did_not_take_is_delivered_after_a_kill_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let answer = |status| Answer {
        status,
        kind: "text/plain",
        body: String::new(),
    };
    let troubled = Agent::start(std::iter::repeat_with(move || answer("503 Down")));
    let well = Agent::start(std::iter::repeat_with(move || answer("200 OK")));
    let section = |url: &str, full: bool| {
        let limit = if full { "1000PiB" } else { "0B" };
        format!(
            "[[webhook]]\nname = \"chat\"\nurl = \"{url}\"\n[thresholds]\nwarn_available = \"{limit}\"\n"
        )
    };
    let file = configuration(folder.path(), &section(&troubled.url, true));
    let (agent, address) = start(&["run", "--config", &file], folder.path());
    for (seq, full) in (1..).zip([false, true, false, true, false]) {
        let stored = format!("\"seq\":{seq},");
        let pages = || get(&address, "/api/v1/events?since=0&limit=1000");
        until("the event is in the log", || pages().contains(&stored));
        configuration(folder.path(), &section(&troubled.url, full));
        signal(&agent, Signal::SIGHUP);
    }
    let tried: Vec<String> = std::iter::repeat_with(|| troubled.request())
        .take(2)
        .collect();
    assert_eq!(
        events(tried.iter()),
        [(1, 0), (1, 0)],
        "the first is tried again"
    );
    signal(&agent, Signal::SIGKILL);
    drop(agent);

    // Its neighbour takes everything, under the same name.
    configuration(folder.path(), &section(&well.url, false));
    let _agent = start(&["run", "--config", &file], folder.path());
    let mut requests: Vec<String> = Vec::new();
    let mut taken = Vec::new();
    until("all of its events are taken or counted", || {
        requests.extend(well.requests.try_iter());
        taken = events(requests.iter());
        let told: u64 = taken.iter().map(|(_, left_out)| left_out + 1).sum();
        5 <= told && Some(told) == taken.last().map(|(seq, _)| *seq)
    });
    assert_eq!(taken[0], (1, 0));
    assert!(taken.is_sorted(), "{taken:?}");
}

/// Names of the metrics of an exposition.
fn families(text: &str) -> Vec<&str> {
    let lines = text.lines();
    lines
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .collect()
}

#[test]
fn a_textfile_has_the_metrics_follows_its_configuration_and_goes_with_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    fs::create_dir(&first).unwrap();
    fs::create_dir(&second).unwrap();
    let section = |path: &Path| format!("[textfile]\ndirectory = {path:?}\n");
    let file = configuration(folder.path(), &section(&first));
    let (mut agent, address) = start(&["run", "--config", &file], folder.path());
    let written = first.join("dirkeeper.prom");
    until("the textfile is there", || written.exists());
    let text = fs::read_to_string(&written).unwrap();
    let scraped = get(&address, "/metrics");
    let mut expected = families(&scraped);
    expected.retain(|line| !line.starts_with("process_"));
    assert_eq!(families(&text), expected);
    assert!(expected.len() > 20, "{scraped}");

    configuration(folder.path(), &section(&second));
    signal(&agent, Signal::SIGHUP);
    let moved = second.join("dirkeeper.prom");
    until("it is in the other directory", || moved.exists());
    until("and not in the first any more", || !written.exists());

    let missing = folder.path().join("missing");
    configuration(folder.path(), &section(&missing));
    signal(&agent, Signal::SIGHUP);
    let said = format!("the textfile in {} cannot be written", missing.display());
    until("a missing directory is a problem", || {
        get(&address, "/api/v1/status").contains(&said)
    });
    until("and nothing is left behind", || !moved.exists());
    assert!(get(&address, "/metrics").contains("dirkeeper_state_store_ok 1"));

    configuration(folder.path(), &section(&first));
    signal(&agent, Signal::SIGHUP);
    until("it is back", || written.exists());
    until("and no problem any more", || {
        !get(&address, "/api/v1/status").contains("the textfile in")
    });
    signal(&agent, Signal::SIGTERM);
    assert!(agent.0.wait().unwrap().success());
    until("it went with the agent", || !written.exists());
    assert_eq!(fs::read_dir(&first).unwrap().count(), 0);
}

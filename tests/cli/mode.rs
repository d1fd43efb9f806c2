//! `mode` against a made-up agent, one that is gone, and a real one without a bookie.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::*;

/// A file with a token that only its owner may use.
fn token_file(folder: &Path) -> String {
    let file = folder.join("token");
    fs::write(&file, "secret\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    file.to_str().unwrap().to_owned()
}

fn refusal(status: &'static str, text: &str) -> Answer {
    Answer {
        status,
        kind: "application/json",
        body: format!("{{\"error\":\"{text}\"}}\n"),
    }
}

fn taken(body: &str) -> Answer {
    Answer {
        status: "202 Accepted",
        kind: "application/json",
        body: format!("{body}\n"),
    }
}

#[test]
fn the_mode_is_shown_or_passed_through() {
    let mode = r#"{"wanted":"readOnly","observed":"readOnly","highPriorityWrites":false,"control":"enforce","claims":[{"owner":"agent","mode":"readOnly","reason":"/mnt/l1 is full","since":"2026-11-30T01:00:00.000Z","pending":true}],"held":null,"keyOfANewerAgent":1}"#;
    let old = r#"{"wanted":"writable","observed":"writable","highPriorityWrites":true,"control":"observe","claims":[]}"#;
    assert!(STATUS.contains(old));
    let agent = Agent::start([
        json(STATUS),
        json(STATUS.replace(old, mode)),
        json(STATUS.replace(old, mode)),
    ]);
    let show = ["mode", "show", "--url", &agent.url];
    let mut shown = text(&run(&show).stdout);
    shown += &text(&run(&show).stdout);
    insta::assert_snapshot!("mode_show", shown);
    let passed = run(&["mode", "show", "--output", "json", "--url", &agent.url]);
    assert_eq!(text(&passed.stdout), format!("{mode}\n"));
    assert_eq!(passed.status.code(), Some(0));
    assert!(agent.request().starts_with("GET /api/v1/status HTTP/1.1"));
}

#[test]
fn an_order_is_sent_with_token_and_reason_and_its_answer_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let token = token_file(folder.path());
    let answer = r#"{"accepted":true,"message":"read-only for the operator, as soon as the bookie says so"}"#;
    let agent = Agent::start([taken(answer), taken(answer), taken(r#"{"accepted":true}"#)]);
    let order = |line: &[&str]| {
        let common = ["--url", &agent.url, "--token-file", &token];
        let output = run(&[line, &common[..]].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let request = agent.request();
        assert!(
            request.contains("authorization: Bearer secret\r\n"),
            "{request}"
        );
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        let first = head.lines().next().unwrap();
        format!("{first}\n{body}\n{}", text(&output.stdout))
    };
    let set = ["mode", "set", "read-only", "--reason", " disk \"swap\" "];
    let mut orders = order(&set);
    orders += &order(&[
        "mode", "set", "writable", "--reason", "x", "--output", "json",
    ]);
    orders += &order(&["mode", "release"]);
    insta::assert_snapshot!("mode_orders", orders);
}

#[test]
fn whether_the_bookie_may_end_is_the_exit_code() {
    let yes = r#"{"mayStop":true,"reasons":[],"message":"it is reserved for 300 s, until 2026-11-30T01:02:03Z"}"#;
    let no = r#"{"mayStop":false,"reasons":["3 bookies would stay writable, and 4 are needed","ledger 7 has one copy\u001b"]}"#;
    let agent = Agent::start([json(yes), json(no), json(no), json("{}")]);
    let mut transcripts = String::new();
    for (form, code) in [("human", 0), ("human", 1), ("json", 1), ("human", 65)] {
        let line = ["mode", "may-stop", "--output", form, "--url", &agent.url];
        let output = run(&line);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let request = agent.request();
        assert!(
            request.starts_with("PUT /api/v1/mode/may-stop HTTP/1.1\r\n"),
            "{request}"
        );
        transcripts += &transcript(&line, &output).replace(&agent.url, "URL");
    }
    insta::assert_snapshot!("mode_may_stop", transcripts);
}

#[test]
fn each_refusal_has_its_code() {
    let folder = tempfile::tempdir().unwrap();
    let token = token_file(folder.path());
    let mut transcripts = String::new();
    for (status, why, code) in [
        ("401 Unauthorized", "the token is not the one", 77),
        ("403 Forbidden", "orders are off", 77),
        ("409 Conflict", "too few bookies would stay writable", 1),
        ("400 Bad Request", "the reason is missing", 1),
        ("501 Not Implemented", "no bookie is configured", 1),
        ("503 Service Unavailable", "the agent is busy", 69),
        ("504 Gateway Timeout", "not answered in time", 69),
    ] {
        let agent = Agent::start([refusal(status, why)]);
        let line = [
            "mode",
            "release",
            "--url",
            &agent.url,
            "--token-file",
            &token,
        ];
        let output = run(&line);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let said = transcript(&line, &output).replace(&agent.url, "URL");
        transcripts += &said.replace(&token, "TOKEN");
    }

    // Nobody is asked without a token, or with one that everybody may read.
    let set = |token: &str| {
        let line = [
            "mode",
            "set",
            "read-only",
            "--reason",
            "x",
            "--token-file",
            token,
        ];
        let output = run(&line);
        assert_eq!(output.status.code(), Some(77), "{output:?}");
        transcript(&line, &output).replace(token, "TOKEN")
    };
    transcripts += &set("/nowhere/token");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).unwrap();
    transcripts += &set(&token);
    insta::assert_snapshot!("mode_refusals", transcripts);

    let long = "x".repeat(100_000);
    let output = run(&["mode", "set", "read-only", "--reason", &long]);
    assert_eq!(output.status.code(), Some(64));
    insta::assert_snapshot!(
        text(&output.stderr),
        @"dirkeeper: the reason has 100000 characters, and 500 is the most"
    );
}

/// A real agent says what it has no bookie for, refuses a wrong token first, and is asked in vain
/// when it is gone.
#[test]
fn an_agent_without_a_bookie_says_so() {
    let home = tempfile::tempdir().unwrap();
    let token = token_file(home.path());
    let wrong = home.path().join("wrong");
    fs::copy(&token, &wrong).unwrap();
    fs::write(&wrong, "guess\n").unwrap();
    let watched = home.path().join("l1");
    fs::create_dir(&watched).unwrap();
    let config = home.path().join("dirkeeper.toml");
    let state = home.path().join("state");
    let toml = format!(
        "state_dir = {state:?}\ncontrol_token_file = {token:?}\n[[dir]]\npath = {watched:?}\nrole = \"ledger\"\n"
    );
    fs::write(&config, toml).unwrap();
    let (agent, address) = start(&["run", "--config", config.to_str().unwrap()], home.path());
    let url = format!("http://{address}");
    let mut transcripts = String::new();
    let mut ask = |line: &[&str], code: i32| {
        let output = run(&[line, &["--url", &url]].concat());
        assert_eq!(output.status.code(), Some(code), "{line:?}: {output:?}");
        let said = transcript(line, &output).replace(&url, "URL");
        transcripts += &said.replace(home.path().to_str().unwrap(), "HOME");
    };
    let set = ["mode", "set", "read-only", "--reason", "disk swap"];
    ask(&["mode", "may-stop"], 1);
    ask(&[&set[..], &["--token-file", &token]].concat(), 1);
    ask(&["mode", "release", "--token-file", &token], 1);
    ask(
        &[&set[..], &["--token-file", wrong.to_str().unwrap()]].concat(),
        77,
    );
    let shown = run(&["mode", "show", "--url", &url]);
    assert!(text(&shown.stdout).contains("nobody holds it"), "{shown:?}");
    a_bookie_is_added(&agent, &url, &config);
    drop(agent);
    ask(&["mode", "may-stop"], 69);
    ask(&[&set[..], &["--token-file", &token]].concat(), 69);
    insta::assert_snapshot!("mode_without_bookie", transcripts);
}

/// One that is named later is kept from then on, without a restart.
fn a_bookie_is_added(agent: &EndsWithTest, url: &str, config: &Path) {
    let without = fs::read_to_string(config).unwrap();
    let change = |bookie: &str, words: &str| {
        fs::write(config, format!("{without}{bookie}")).unwrap();
        let pid = Pid::from_raw(agent.0.id().try_into().unwrap());
        kill(pid, Signal::SIGHUP).unwrap();
        super::listeners::until(words, || {
            let status = run(&["status", "--output", "json", "--url", url]);
            text(&status.stdout).contains(words)
        });
    };
    let bookie = "[bookie]\nid = \"b:1\"\nadmin_url = \"http://127.0.0.1:1\"\n";
    // With a file that is no certificate, and then without it: a bookie that does not answer, in a cluster that nobody
    // knows.
    let with_ca = format!(
        "{}admin_ca = {config:?}\n",
        bookie.replace("http:", "https:")
    );
    change(
        &with_ca,
        "the bookie of the changed configuration is not kept",
    );
    change(bookie, "\"bookieUp\":false");
    super::listeners::until("the problem is over", || {
        let status = run(&["status", "--output", "json", "--url", url]);
        !text(&status.stdout).contains("is not kept")
    });
    let asked = run(&["mode", "may-stop", "--url", url]);
    assert_eq!(asked.status.code(), Some(1), "{asked:?}");
    let said = text(&asked.stdout);
    assert!(said.contains("no ZooKeeper is configured"), "{said}");
}

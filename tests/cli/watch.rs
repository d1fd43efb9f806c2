//! `status --watch` as its user sees it: the real program on a pseudo-terminal, beside a real agent
//! that changes, goes and comes back.

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;

use super::listeners::{signal, until};
use super::*;

#[path = "watch/picture.rs"]
mod picture;
#[path = "watch/pty.rs"]
mod pty;

use pty::Pty;

/// An address where nobody listens: bound, and given up again.
fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

/// A configuration of one directory that is full above this usage.
fn configure(folder: &Path, full: f64) -> String {
    let dir = folder.join("ledgers");
    fs::create_dir_all(&dir).unwrap();
    let file = folder.join("dirkeeper.toml");
    let state = folder.join("state");
    let toml = format!(
        "state_dir = {state:?}\n[thresholds]\nwarn = {warn}\nfull = {full}\nlow_watermark = {warn}\n\
         [[dir]]\npath = {dir:?}\nrole = \"ledger\"\nrequire_mount = false\n",
        warn = full / 2.0,
    );
    fs::write(&file, toml).unwrap();
    file.to_str().unwrap().to_owned()
}

/// An agent that listens there; its log is nobody's.
fn agent(config: &str, listen: &str) -> EndsWithTest {
    let agent = Command::new(PROGRAM)
        .args(["run", "--config", config, "--listen", listen])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let agent = EndsWithTest(agent.unwrap());
    until("the agent is ready", || {
        TcpStream::connect(listen).is_ok() && get(listen, "/readyz").starts_with("HTTP/1.1 200 ")
    });
    agent
}

fn view(url: &str) -> Pty {
    Pty::start(&[PROGRAM, "status", "--watch", "--url", url], 80, 24)
}

#[test]
fn a_directory_that_fills_up_is_seen_and_the_view_outlives_its_agent() {
    let folder = tempfile::tempdir().unwrap();
    let config = configure(folder.path(), 0.999_999);
    let url = nobody();
    let listen = url.trim_start_matches("http://");
    let first = agent(&config, listen);
    let mut view = view(&url);
    view.has("/ledgers");
    view.has("q quit");
    assert!(view.is_taken());
    view.wait("✖ full ", false);

    // Whatever is on this disk is more than it may be from now on.
    configure(folder.path(), 1e-9);
    signal(&first, Signal::SIGHUP);
    view.has("✖ full ");
    view.has("diskFull");
    view.press("\r");
    view.has("evidence");
    view.has("over full");
    view.press("l");
    view.wait("evidence", false);
    view.press("q");
    view.has("DIRECTORY");

    view.resize(60, 15);
    view.has("q quit  ? help");
    view.resize(80, 24);
    view.has("EVENTS");

    drop(first);
    view.has("NO ANSWER: what is shown is ");
    view.has("✖ full ");
    let again = agent(&config, listen);
    view.wait("NO ANSWER", false);
    view.wait("not followed", false);
    view.has("✖ full ");
    drop(again);
    view.press("q");
    assert_eq!(view.end().code(), Some(0));
}

#[test]
fn every_end_gives_the_terminal_back() {
    let url = nobody();
    for end in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let view = view(&url);
        view.has("NO ANSWER: ");
        assert!(view.is_taken());
        view.signal(end);
        assert_eq!(view.end().code(), Some(0), "{end}");
    }
    for end in ["q", "\u{3}", "?q\u{1b}"] {
        let mut view = view(&url);
        view.has("NO ANSWER: ");
        view.press(end);
        assert_eq!(view.end().code(), Some(0), "{end:?}");
    }
}

/// By a shell with job control, as a person does it.
#[test]
fn the_view_is_suspended_and_goes_on() {
    let script = format!(
        "{PROGRAM} status --watch --url {}; echo the-shell; read line; fg > /dev/null; echo ended",
        nobody()
    );
    let mut shell = Pty::start(&["sh", "-m", "-c", &script], 80, 24);
    shell.has("NO ANSWER: ");
    shell.press("\u{1a}");
    shell.has("the-shell");
    assert!(!shell.is_taken());
    shell.press("\n");
    shell.has("NO ANSWER: ");
    assert!(shell.is_taken());
    shell.press("q");
    shell.has("ended");
    assert_eq!(shell.end().code(), Some(0));
}

#[test]
fn without_a_terminal_it_says_what_would_do() {
    let mut transcripts = String::new();
    let line = ["status", "--watch"];
    transcripts.push_str(&transcript(&line, &run(&line)));
    insta::assert_snapshot!(transcripts, @r"
    $ dirkeeper status --watch
    dirkeeper: --watch needs a terminal to draw on and to read keys from
      try: --watch --output json for a program, or status without --watch
    [exit code 64]
    ");
    let words = ["env", "TERM=dumb", PROGRAM, "status", "--watch"];
    let dumb = Pty::start(&words, 80, 24);
    dumb.has("TERM names none");
    assert_eq!(dumb.end().code(), Some(64));
}

#[test]
fn each_change_is_a_line_of_json_and_a_reader_that_goes_ends_it() {
    let later = STATUS.replace("01:02:03.456Z", "01:02:04.456Z");
    let other = later.replace("88000000", "87000000");
    let answers = [STATUS.to_owned(), later, other.clone()];
    let busy = Answer {
        status: "503 Service Unavailable",
        kind: "text/plain",
        body: String::new(),
    };
    let changes = (0..).map(move |size| json(other.replace("87000000", &size.to_string())));
    let answers = answers.map(json).into_iter().chain([busy]).chain(changes);
    let agent = Agent::start(answers);
    let mut child = Command::new(PROGRAM)
        .args(["status", "--watch", "--output", "json", "--url", &agent.url])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = || {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        line
    };
    assert_eq!(line(), format!("{STATUS}\n"));
    assert!(line().contains(r#""availableBytes":87000000,"#));
    assert!(line().contains(r#""availableBytes":0,"#));
    drop(output);
    let mut errors = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut errors).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{errors}");
    insta::assert_snapshot!(errors.replace(&agent.url, "URL"), @r"
    dirkeeper: URL/api/v1/status answered 503; trying again
    dirkeeper: the agent is back
    ");
}

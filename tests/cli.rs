//! The program from outside: exit codes, what goes to which output, and talks with an agent. The
//! agent is made up here; that the real one speaks the same is tested with it.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // all of it is tests

#[path = "cli/alertmanager.rs"]
mod alertmanager;
#[path = "cli/drain.rs"]
mod drain;
#[path = "cli/listeners.rs"]
mod listeners;
#[path = "cli/mode.rs"]
mod mode;
#[path = "cli/reclaim.rs"]
mod reclaim;
#[path = "cli/systemd.rs"]
mod systemd;
#[path = "cli/watch.rs"]
mod watch;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use dirkeeper::clock::Clock;

const PROGRAM: &str = env!("CARGO_BIN_EXE_dirkeeper");

/// A test that waits for longer than this has failed.
const PATIENCE: Duration = Duration::from_secs(30);

const STATUS: &str = r#"{"host":"bk-3","version":"0.1.0","time":"2026-11-30T01:02:03.456Z","startedAt":"2026-11-30T00:00:00.000Z","semantics":"dirkeeper","status":"warning","mode":{"wanted":"writable","observed":"writable","highPriorityWrites":true,"control":"observe","claims":[]},"dirs":[{"path":"/mnt/l1","role":"ledger","status":"almostFull","since":"2026-11-30T01:00:00.000Z","severity":"warning","suspect":false,"axes":{"space":"almostFull","access":"ok","latency":"normal"},"cause":{"kind":"bytes","operation":"statvfs","errno":null,"message":"usage 0.912 is over warn 0.900"},"space":{"sizeBytes":1000000000,"availableBytes":88000000,"usageRatio":0.912,"inodes":null,"inodesFree":null,"warn":0.9,"full":0.95,"lowWatermark":0.9},"forecast":{"fullInSeconds":5400,"earliestSeconds":4000,"latestSeconds":null},"probe":{"lastSuccess":null,"durationsSeconds":{},"inFlightSeconds":0.0},"mount":null,"sources":["statvfs"],"evidence":[],"keyOfANewerAgent":1}],"listeners":[],"problems":[]}"#;

fn event(seq: u64, name: &str) -> String {
    format!(
        r#"{{"seq":{seq},"time":"2026-11-30T01:02:03.456Z","event":"{name}","severity":"critical","host":"bk-3","bookieId":null,"dir":"/mnt/l1","role":"ledger","axis":"space","from":"ok","to":"full","coalesced":0,"cause":null,"space":null,"node":{{"writable":[],"almostFull":[],"full":["/mnt/l1"],"unusable":[],"wantedMode":null,"highPriorityWrites":false}}}}"#
    )
}

fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Arguments, exit code and both outputs as one text.
fn transcript(arguments: &[&str], output: &Output) -> String {
    format!(
        "$ dirkeeper {}\n{}{}[exit code {}]\n",
        arguments.join(" "),
        text(&output.stdout),
        text(&output.stderr),
        output.status.code().unwrap()
    )
}

/// What an agent answers to one request.
struct Answer {
    status: &'static str,
    kind: &'static str,
    body: String,
}

fn json(body: impl Into<String>) -> Answer {
    Answer {
        status: "200 OK",
        kind: "application/json",
        body: body.into(),
    }
}

/// A made-up agent that answers one request after the other, each on a connection of its own.
struct Agent {
    url: String,
    requests: mpsc::Receiver<String>,
}

impl Agent {
    fn start(answers: impl IntoIterator<Item = Answer, IntoIter: Send> + Send + 'static) -> Agent {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (told, requests) = mpsc::channel();
        thread::spawn(move || {
            for answer in answers {
                let (mut connection, _) = listener.accept().unwrap();
                // A test that has ended does not ask for it.
                let _ = told.send(read_request(&connection));
                let head = format!(
                    "HTTP/1.1 {}\r\ncontent-type: {}\r\nconnection: close\r\n\r\n",
                    answer.status, answer.kind
                );
                connection.write_all(head.as_bytes()).unwrap();
                connection.write_all(answer.body.as_bytes()).unwrap();
            }
        });
        Agent { url, requests }
    }

    fn request(&self) -> String {
        self.requests.recv_timeout(PATIENCE).unwrap()
    }
}

/// A request, its body included.
fn read_request(connection: &TcpStream) -> String {
    let mut request = String::new();
    let mut reader = BufReader::new(connection);
    while !request.ends_with("\r\n\r\n") {
        reader.read_line(&mut request).unwrap();
    }
    let length = request
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let length = length.map_or(0, |length| length.parse().unwrap());
    reader.take(length).read_to_string(&mut request).unwrap();
    request
}

#[test]
fn bad_command_lines_end_with_64_and_say_what_would_be_right() {
    let lines: &[&[&str]] = &[
        &["paint"],
        &["check", "--dri", "ledger=/x"],
        &["check", "--dir", "/mnt/l1"],
        &["check", "--dir", "disk=/mnt/l1"],
        &["check", "--dir", "ledger="],
        &["check", "--timeout", "soon"],
        &["check", "--timeout", "0s"],
        &["check", "--output", "xml"],
        &["check", "--explain", "--output", "json"],
        &["run", "--listen", "9475"],
        &["status", "--url", "bk-3:port"],
        &["status", "--url", "ftp://bk-3"],
        &["events", "--event", "diskFul"],
        &["events", "--since", "yesterday"],
        &["events", "--state-dir", "/x", "--follow"],
        &["events", "--state-dir", "/x", "--url", "http://bk-3"],
        &["hook", "test", "page"],
        &["mode", "set", "read-only"],
        &["mode", "set", "readOnly", "--reason", "x"],
        &["mode", "set", "read-only", "--reason", " "],
        &["mode", "set", "read-only", "--reason", "two\nlines"],
        &["mode", "release", "--reason", "done"],
        &["mode", "may-stop", "--token-file", "x"],
        &["simulate"],
        &["completions", "tcsh"],
    ];
    let mut transcripts = String::new();
    for line in lines {
        let output = run(line);
        assert_eq!(output.status.code(), Some(64), "{line:?}");
        assert!(output.stdout.is_empty(), "{line:?}");
        transcripts.push_str(&transcript(line, &output));
        transcripts.push('\n');
    }
    insta::assert_snapshot!("bad_command_lines", transcripts);

    let nothing = run(&[]);
    assert_eq!(nothing.status.code(), Some(64));
    assert!(nothing.stdout.is_empty());
    assert!(text(&nothing.stderr).contains("Usage:"));
}

#[test]
fn help_and_version_are_results() {
    for line in [&["--help"][..], &["-h"], &["check", "--help"], &["man"]] {
        let output = run(line);
        assert_eq!(output.status.code(), Some(0), "{line:?}");
        assert!(output.stderr.is_empty(), "{line:?}");
        assert!(!text(&output.stdout).contains('\u{1b}'), "{line:?}");
    }
    let version = text(&run(&["--version"]).stdout);
    assert!(version.starts_with("dirkeeper 0."), "{version}");
    assert!(version.trim_end().ends_with(')'), "{version}");
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&run(&["completions", shell]).stdout);
        assert!(script.contains("diskAlmostFull"), "{shell}");
    }
}

/// Whatever reads the output of a check must find its line, for each error of our own.
#[test]
fn nagios_gets_its_line_for_bad_command_lines_too() {
    let mut transcripts = String::new();
    for line in [
        &["check", "--output", "nagios", "--dir", "/mnt/l1"][..],
        &["check", "--output=nagios", "--paint"],
        &["check", "--output", "nagios", "--explain"],
    ] {
        let output = run(line);
        assert_eq!(output.status.code(), Some(3), "{line:?}");
        assert!(output.stderr.is_empty(), "{line:?}");
        transcripts.push_str(&transcript(line, &output));
    }
    insta::assert_snapshot!("nagios", transcripts);
}

#[test]
fn no_agent_is_69_and_says_what_to_do() {
    // Bound and given up again: nobody listens there.
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let url = format!("http://{address}");
    let mut transcripts = String::new();
    for line in [
        &["status", "--url", &url][..],
        &["events", "--url", &url],
        &["events", "--url", &url, "--follow"],
        &["mode", "show", "--url", &url],
        &["mode", "may-stop", "--url", &url],
    ] {
        let output = run(line);
        assert_eq!(output.status.code(), Some(69), "{line:?}");
        transcripts.push_str(&transcript(line, &output).replace(&url, "URL"));
    }
    let folder = tempfile::tempdir().unwrap();
    let state_dir = folder.path().to_str().unwrap();
    let line = ["events", "--state-dir", state_dir];
    let output = run(&line);
    assert_eq!(output.status.code(), Some(74));
    transcripts.push_str(&transcript(&line, &output).replace(state_dir, "STATE_DIR"));
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    insta::assert_snapshot!("no_agent", transcripts);
}

#[test]
fn answers_that_are_none_have_their_codes() {
    let answers = [
        ("200 OK", "<html>"),
        ("404 Not Found", r#"{"error":"no such page"}"#),
        ("403 Forbidden", "go away"),
        ("503 Service Unavailable", ""),
        ("302 Found", ""),
    ];
    let mut transcripts = String::new();
    for (status, body) in answers {
        let agent = Agent::start(vec![Answer {
            status,
            kind: "text/plain",
            body: body.to_owned(),
        }]);
        let line = ["status", "--url", &agent.url];
        let output = run(&line);
        assert!(output.stdout.is_empty());
        transcripts.push_str(&transcript(&line, &output).replace(&agent.url, "URL"));
    }
    let agent = Agent::start(vec![json("[]")]);
    let line = ["events", "--follow", "--url", &agent.url];
    transcripts.push_str(&transcript(&line, &run(&line)).replace(&agent.url, "URL"));
    insta::assert_snapshot!("answers", transcripts);
}

#[test]
fn status_is_shown_or_passed_through() {
    let agent = Agent::start(vec![json(STATUS), json(format!("{STATUS}\n"))]);
    let human = run(&["status", "--url", &agent.url]);
    assert_eq!(human.status.code(), Some(0));
    assert!(agent.request().starts_with("GET /api/v1/status HTTP/1.1"));
    let shown = text(&human.stdout);
    // How old the picture is depends on this machine's clock.
    let shown: Vec<&str> = shown
        .lines()
        .filter(|line| !line.starts_with("this picture is"))
        .collect();
    insta::assert_snapshot!("status", shown.join("\n"));

    let document = run(&["status", "--output", "json", "--url", &agent.url]);
    assert_eq!(text(&document.stdout), format!("{STATUS}\n"));
}

#[test]
fn events_are_read_page_by_page_and_kept_as_they_are() {
    let page = |events: &[String]| {
        let events = events.join(",");
        json(format!(
            r#"{{"events":[{events}],"next":0,"problem":null}}"#
        ))
    };
    let pages = || {
        vec![
            page(&[event(8, "diskFull"), event(9, "diskHung")]),
            page(&[event(10, "ofANewerAgent")]),
            page(&[]),
        ]
    };
    let agent = Agent::start(pages());
    let output = run(&[
        "events", "--since", "7", "--output", "json", "--url", &agent.url,
    ]);
    let expected = [
        event(8, "diskFull"),
        event(9, "diskHung"),
        event(10, "ofANewerAgent"),
    ];
    assert_eq!(text(&output.stdout), expected.join("\n") + "\n");
    assert_eq!(output.status.code(), Some(0));
    for since in [7, 9, 10] {
        let wanted = format!("GET /api/v1/events?since={since}&limit=1000 ");
        assert!(agent.request().starts_with(&wanted), "{wanted}");
    }

    let agent = Agent::start(pages());
    let output = run(&["events", "--event", "diskHung", "--url", &agent.url]);
    insta::assert_snapshot!(
        text(&output.stdout),
        @"2026-11-30T01:02:03.456Z      9 critical diskHung         /mnt/l1 (ledger) space ok -> full"
    );
}

/// The connection breaks twice, once within an event; the reader gets each event once, and when
/// the reader goes, the command ends without a word.
#[test]
fn following_goes_on_after_a_loss_and_ends_with_its_reader() {
    let message = |seq: u64| format!("id: {seq}\nevent: x\ndata: {}\n\n", event(seq, "diskFull"));
    let stream = |body: String| Answer {
        status: "200 OK",
        kind: "text/event-stream",
        body,
    };
    let answers = [
        stream(message(1) + &message(2) + "id: 3\ndata: {\"se"),
        stream(format!(": hello\n\n{}", message(3))),
        stream("event: gap\ndata: {\"after\":3,\"before\":5}\n\n".to_owned() + &message(5)),
    ];
    let agent = Agent::start(
        answers
            .into_iter()
            .chain((6..).map(move |seq| stream(message(seq)))),
    );
    let mut child = Command::new(PROGRAM)
        .args([
            "events", "--follow", "--output", "json", "--url", &agent.url,
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    for seq in [1, 2, 3, 5] {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), event(seq, "diskFull"));
    }
    drop(output);
    let mut errors = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut errors).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{errors}");
    for since in [0, 2, 3] {
        let request = agent.request();
        assert!(request.contains(&format!("since={since} ")), "{request}");
        assert!(
            request.contains(&format!("last-event-id: {since}\r\n")),
            "{request}"
        );
    }
    let first: Vec<&str> = errors.lines().take(5).collect();
    insta::assert_snapshot!("following", first.join("\n").replace(&agent.url, "URL"));
}

#[test]
fn an_output_without_reader_is_no_error_and_a_full_one_is() {
    let mut child = Command::new(PROGRAM)
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stderr), "");

    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = Command::new(PROGRAM)
        .args(["completions", "bash"])
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(74));
    insta::assert_snapshot!(
        text(&output.stderr),
        @"dirkeeper: cannot write to standard output: No space left on device (os error 28)"
    );
}

#[test]
fn a_simulation_answers_or_says_which_line_is_wrong() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance/");
    let trace = format!("{folder}random-1-031.in.jsonl");
    let output = run(&["simulate", "--semantics", "bookkeeper", &trace]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout).lines().count(), 29);

    let mut transcripts = String::new();
    for line in [
        &["simulate", "/nowhere/observations.jsonl"][..],
        &["simulate", "--semantics", "bookkeeper", "-"],
    ] {
        transcripts.push_str(&transcript(line, &run(line)));
    }
    insta::assert_snapshot!("simulate", transcripts);
}

#[test]
fn a_configuration_is_checked_shown_and_its_hooks_are_tried() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dirkeeper.toml");
    let toml = r#"
state_dir = "/var/lib/dirkeeper"
[[dir]]
path = "/mnt/l1"
role = "ledger"
[[hook]]
name = "page"
events = ["diskFull"]
command = ["/bin/sh", "-c", "cat; echo; echo seen $DIRKEEPER_EVENT; exit ${CODE:-0}"]
[[hook]]
name = "gone"
command = ["/nowhere/page"]
[[hook]]
name = "text"
command = ["/etc/passwd"]
"#;
    std::fs::write(&file, toml).unwrap();
    let file = file.to_str().unwrap();
    let mut transcripts = String::new();
    let mut add = |arguments: &[&str]| {
        let output = run(arguments);
        let text = transcript(arguments, &output).replace(file, "FILE");
        transcripts.push_str(&text);
        transcripts.push('\n');
        output.status.code()
    };
    assert_eq!(add(&["config", "check", "--config", file]), Some(0));
    assert_eq!(
        add(&[
            "config",
            "check",
            "--config",
            "/nowhere",
            "--dir",
            "ledger=l1"
        ]),
        Some(78)
    );
    assert_eq!(add(&["config", "show", "--config", "/nowhere"]), Some(78));
    assert_eq!(add(&["hook", "list", "--config", file]), Some(0));
    assert_eq!(
        add(&[
            "hook", "test", "pager", "--event", "diskFull", "--config", file
        ]),
        Some(64)
    );
    insta::assert_snapshot!("configuration", transcripts);

    let line = ["check", "--output", "nagios", "--config", "/nowhere"];
    let output = run(&line);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stdout).starts_with("DIRKEEPER UNKNOWN: "));

    let shown = text(&run(&["config", "show", "--config", file]).stdout);
    assert!(shown.contains("/mnt/l1"), "{shown}");

    let test = [
        "hook", "test", "page", "--event", "diskFull", "--config", file,
    ];
    let output = run(&test);
    assert_eq!(output.status.code(), Some(0));
    let told = text(&output.stdout);
    assert!(told.contains("  {\"seq\":0,"), "{told}");
    assert!(told.contains("\n  seen diskFull\n"), "{told}");
    let refused = Command::new(PROGRAM)
        .args(test)
        .env("CODE", "3")
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
}

/// What the README promises first: with no file and no privilege, the agent has a verdict of a real
/// directory within a second.
#[test]
fn the_first_command_of_the_readme_has_a_verdict_within_a_second() {
    // Three times the promise, and one start of a few: other tests run beside this one.
    const LIMIT: Duration = Duration::from_secs(3);
    const STARTS: usize = 5;
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"));
    let readme = readme.unwrap();
    let command = readme
        .lines()
        .find_map(|line| line.strip_prefix("    cargo run --release -- "))
        .expect("the README begins with a command that runs the agent");
    let arguments: Vec<&str> = command.split_whitespace().collect();
    let in_time = (0..STARTS).any(|_| verdict(&arguments) < LIMIT);
    assert!(in_time, "none of {STARTS} starts had one within {LIMIT:?}");
}

/// How long it takes from such a start to verdicts of all directories.
fn verdict(arguments: &[&str]) -> Duration {
    let home = tempfile::tempdir().unwrap();
    let clock = Clock::start();
    let (_agent, address) = start(arguments, home.path());
    while !get(&address, "/readyz").starts_with("HTTP/1.1 200 ") {
        assert!(clock.elapsed() < PATIENCE, "never ready");
        thread::park_timeout(Duration::from_millis(5));
    }
    let status = get(&address, "/api/v1/status");
    let took = clock.elapsed();

    println!("a verdict {} ms after the start", took.as_millis());
    let (_, body) = status.split_once("\r\n\r\n").unwrap();
    let document: serde_json::Value = serde_json::from_str(body).unwrap();
    let dirs = document["dirs"].as_array().unwrap();
    assert!(!dirs.is_empty());
    for dir in dirs {
        assert_ne!(dir["axes"]["space"], "unknown", "{dir}");
        assert_ne!(dir["axes"]["access"], "unknown", "{dir}");
    }
    assert!(home.path().join("dirkeeper/state.redb").exists());
    took
}

/// Starts a real agent that keeps its state there, and says where it listens.
fn start(arguments: &[&str], home: &std::path::Path) -> (EndsWithTest, String) {
    let started = Command::new(PROGRAM)
        .args(arguments)
        .args(["--listen", "127.0.0.1:0"])
        .env("HOME", home)
        .env("XDG_STATE_HOME", home)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut agent = EndsWithTest(started.unwrap());
    let mut log = BufReader::new(agent.0.stderr.take().unwrap()).lines();
    let address = log
        .by_ref()
        .map(Result::unwrap)
        .find_map(|line| {
            let (_, after) = line.split_once("listening on ")?;
            Some(after.split(',').next()?.to_owned())
        })
        .expect("the log says where the agent listens");
    (agent, address)
}

/// An agent that ends with its test, also when that fails.
struct EndsWithTest(Child);

impl Drop for EndsWithTest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The whole answer to one request.
fn get(address: &str, path: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

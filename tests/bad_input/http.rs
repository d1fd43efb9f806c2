//! Requests that make no sense, and servers that are no agents.

use std::net::TcpListener;

use super::*;

fn agent(bench: &Bench) -> Agent<'_> {
    let watched = bench.dir("l1");
    bench.write("token", "secret\n");
    bench.set_mode("token", 0o600);
    let toml = format!(
        "listen = \"127.0.0.1:0\"\nstate_dir = {:?}\ncontrol_token_file = {:?}\n[[dir]]\npath = {watched:?}\nrole = \"ledger\"\n",
        bench.name("state"),
        bench.name("token")
    );
    bench.write("a.toml", toml);
    bench.agent(&["--config", "a.toml"])
}

#[test]
fn requests_that_make_no_sense_are_answered_with_what_is_wrong() {
    let bench = Bench::new();
    let agent = agent(&bench);
    let mut transcripts = String::new();
    let mut ask = |line: &str, headers: &str, body: &str| {
        let length = body.len();
        let request = format!(
            "{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        );
        let answer = agent.answer(request);
        let status = answer.lines().next().unwrap_or("no answer");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        let line = line.chars().take(60).collect::<String>();
        write!(transcripts, "{line}\n  {status}\n  {}\n", body.trim()).unwrap();
    };
    let token = "Authorization: Bearer secret\r\n";
    let huge = "x".repeat(60_000);
    ask("DELETE /", "", "");
    ask("BREW /", "", "");
    ask("POST /api/v1/status", "", "{}");
    ask("GET /nothing%00%ff", "", "");
    ask("GET /../../etc/passwd", "", "");
    ask("GET /api/v1/dirs/99", "", "");
    ask("GET /api/v1/dirs/-1", "", "");
    ask("GET /api/v1/dirs//etc/passwd", "", "");
    ask("GET /api/v1/dirs/%ff%00", "", "");
    ask("GET /api/v1/events?since=yesterday", "", "");
    ask("GET /api/v1/events?since=-1", "", "");
    ask("GET /api/v1/events?limit=99999999999999999999", "", "");
    ask("GET /api/v1/events?limit=0", "", "");
    ask("GET /api/v1/events?sicne=1", "", "");
    ask(
        "GET /api/v1/events",
        "Accept: text/event-stream\r\nLast-Event-ID: x\r\n",
        "",
    );
    ask("POST /api/v1/accept", "", r#"{"dir":"0"}"#);
    ask(
        "POST /api/v1/accept",
        "Authorization: Bearer secre\r\n",
        r#"{"dir":"0"}"#,
    );
    ask(
        "POST /api/v1/accept",
        "Authorization: Basic secret\r\n",
        r#"{"dir":"0"}"#,
    );
    ask("POST /api/v1/accept", token, "");
    ask("POST /api/v1/accept", token, r#"{"dir":"#);
    ask("POST /api/v1/accept", token, r#"{"dir":"/nowhere"}"#);
    ask("POST /api/v1/accept", token, r#"{"dir":"0","force":true}"#);
    ask("POST /api/v1/probe", token, "\u{0}\u{1}");
    ask("POST /api/v1/accept", token, &huge);
    ask("PUT /api/v1/mode", token, r#"{"mode":"off","reason":"x"}"#);
    ask("PUT /api/v1/mode", token, r#"{"mode":"readOnly"}"#);
    ask(
        "PUT /api/v1/mode",
        token,
        r#"{"mode":"readOnly","reason":" "}"#,
    );
    ask("PUT /api/v1/mode", token, r#"{"reason":"x"}"#);
    ask(
        "PUT /api/v1/mode",
        "",
        r#"{"mode":"readOnly","reason":"x"}"#,
    );
    ask(
        "PUT /api/v1/mode",
        token,
        r#"{"mode":"readOnly","reason":"x"}"#,
    );
    ask("GET /api/v1/mode/may-stop", "", "");
    ask("PUT /api/v1/mode/may-stop", token, "");
    ask("GET /", &format!("X: {huge}\r\n"), "");
    ask(&format!("GET /{huge}"), "", "");
    insta::assert_snapshot!("requests", transcripts);

    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello TLS\r\n\r\n"[..],
        b"garbage\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"GET / HTTP/1.1\r\nNo Colon\r\n\r\n",
        b"POST /api/v1/probe HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\nZZ\r\n",
    ] {
        let answer = agent.answer(garbage);
        let refused = answer.is_empty() || answer.starts_with("HTTP/1.1 4");
        assert!(refused, "{}: {answer}", text(garbage));
    }
    assert_eq!(agent.get("/livez").0, 200);
    agent.finish();
}

/// Requests with bytes that are changed, left out and doubled at random: each is answered or refused,
/// and the agent goes on.
#[test]
fn requests_that_are_nearly_right_are_answered_or_refused() {
    let bench = Bench::new();
    let agent = agent(&bench);
    let valid: [&[u8]; 5] = [
        b"GET /api/v1/dirs/%2Fmnt%2Fa?x=%ff HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        b"GET /api/v1/events?since=1&limit=10 HTTP/1.1\r\nHost: a\r\nConnection: close\r\nLast-Event-ID: 4\r\n\r\n",
        b"POST /api/v1/accept HTTP/1.0\r\nHost: a\r\nAuthorization: Bearer secret\r\nContent-Length: 11\r\n\r\n{\"dir\":\"0\"}",
        b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAccept-Encoding: gzip\r\nRange: bytes=0-\r\n\r\n",
        b"PUT /api/v1/mode HTTP/1.0\r\nHost: a\r\nAuthorization: Bearer secret\r\nContent-Length: 32\r\n\r\n{\"mode\":\"readOnly\",\"reason\":\"x\"}",
    ];
    let mut random = fastrand::Rng::with_seed(11);
    for _ in 0..400 {
        let mut request = random.choice(valid).unwrap().to_vec();
        for _ in 0..random.usize(1..5) {
            let at = random.usize(..request.len());
            match random.u8(..4) {
                0 => request[at] = random.u8(..),
                1 => request.insert(at, *random.choice(b"\r\n\0 /%?:&=").unwrap()),
                2 => drop(request.drain(at..(at + 5).min(request.len()))),
                _ => request.extend_from_within(at..),
            }
            if request.is_empty() {
                break;
            }
        }
        let mut stream = TcpStream::connect(("127.0.0.1", agent.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.write_all(&request);
        // No more will come, so it need not wait for the rest of a request that is cut.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let said = text(&answer);
        let refused = said.is_empty() || said.starts_with("HTTP/1.");
        assert!(refused, "{:?}: {said}", text(&request));
        assert!(
            !said.starts_with("HTTP/1.1 5") || said.contains(" 501 "),
            "{said}"
        );
    }
    assert_eq!(agent.get("/livez").0, 200);
    agent.finish();
}

/// A server that says this to everybody, whatever they ask.
fn server(greeting: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let _ = connection.read(&mut [0; 4096]);
        let _ = connection.write_all(greeting);
    });
    url
}

#[test]
fn a_server_that_is_no_agent_is_told_apart() {
    let bench = Bench::new();
    let mut transcripts = String::new();
    for (greeting, code) in [
        (&b""[..], 69),
        (b"SSH-2.0-OpenSSH_9.2\r\n", 69),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", 65),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n\xff\xfe", 65),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"host\"",
            69,
        ),
    ] {
        let url = server(greeting);
        let said = bench.refused(&["status", "--url", &url], code);
        transcripts += &said.replace(&url, "URL");
    }
    insta::assert_snapshot!("no_agents", transcripts);
}

#[test]
fn an_address_that_cannot_be_had() {
    let bench = Bench::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let run =
        |address: &str| ["run", "--dir", "ledger=/mnt/l1", "--listen", address].map(str::to_owned);
    let mut said = bench
        .refused(&run(&address), 74)
        .replace(&address, "ADDRESS");
    // Of the block for documentation: no machine has it.
    said += &bench.refused(&run("192.0.2.1:9475"), 74);
    let lowest = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap();
    // In some containers every port is free for everybody.
    if lowest.trim().parse::<u16>().unwrap() > 80 {
        let mut command = bench.unprivileged();
        command.args(run("127.0.0.1:80"));
        let refused = output(command);
        assert_eq!(refused.status.code(), Some(77));
        let refused = text(&refused.stderr);
        assert!(
            refused.contains("127.0.0.1:80 is not permitted: ports below 1024 need a privilege"),
            "{refused}"
        );
    }
    // The time before a warning.
    let said: Vec<_> = said
        .lines()
        .map(|line| line.find(" WARN").map_or(line, |at| &line[at..]))
        .collect();
    insta::assert_snapshot!("addresses", said.join("\n"));
}

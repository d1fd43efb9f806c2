//! An agent behind TLS and passwords: commands that know them are let in, others are not; certificates
//! and passwords change while it runs; and no secret is in anything that it says.

use super::*;

const PASSWORD: &str = "hunter2-password";
const TOKEN: &str = "very-secret-control-token";
const READ_TOKEN: &str = "very-secret-read-token";

fn private(bench: &Bench, name: &str, content: &str) -> String {
    let path = bench.write(name, content);
    bench.set_mode(name, 0o600);
    path
}

/// Writes a certificate of its own authority.
fn certificate(bench: &Bench) -> String {
    let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let key = made.signing_key.serialize_pem();
    private(bench, "key.pem", &key);
    bench.write("cert.pem", made.cert.pem());
    key
}

/// Files of a guarded agent; what its configuration says of them, and its private key.
pub(super) fn guarded(bench: &Bench) -> (String, String) {
    let key = certificate(bench);
    let hash = bcrypt::hash(PASSWORD, 4).unwrap();
    let web = format!(
        "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\nbasic_auth_users:\n  ann: {hash}\n"
    );
    private(bench, "web.yml", &web);
    private(bench, "auth", &format!("ann:{PASSWORD}\n"));
    private(bench, "order-token", &format!("{TOKEN}\n"));
    let read = private(bench, "read-token", &format!("{READ_TOKEN}\n"));
    let more = format!(
        "web_config_file = {:?}\nread_token_file = {read:?}\n",
        bench.name("web.yml")
    );
    (more, key)
}

fn config(bench: &Bench, more: &str) {
    let watched = bench.dir("l1");
    let toml = format!(
        "listen = \"127.0.0.1:0\"\nlog_level = \"trace\"\nstate_dir = {:?}\ncontrol_token_file = {:?}\n{more}[[dir]]\npath = {watched:?}\nrole = \"ledger\"\n",
        bench.name("state"),
        bench.name("order-token")
    );
    bench.write("a.toml", toml);
}

/// Starts an agent that cannot be asked without TLS.
pub(super) fn start(bench: &Bench) -> Agent<'_> {
    let mut command = bench.program();
    command.args(["run", "--config", "a.toml"]);
    let mut agent = bench.start(command);
    agent.wait_listening();
    wait_until("it answers", || {
        ask(bench, agent.port, &["status"]).status.code() == Some(0)
    });
    agent
}

/// A command with all that it needs to be let in.
pub(super) fn ask(bench: &Bench, port: u16, arguments: &[&str]) -> Output {
    let url = format!("https://127.0.0.1:{port}");
    let known = [
        "--url",
        &url,
        "--ca-file",
        "cert.pem",
        "--auth-file",
        "auth",
    ];
    bench.run(&[arguments, &known].concat())
}

#[test]
fn commands_that_know_the_password_are_let_in() {
    let bench = Bench::new();
    let (more, _) = guarded(&bench);
    config(&bench, &more);
    let agent = start(&bench);
    let token = ["--token-file", "order-token"];
    for (arguments, code, part) in [
        (&["status"][..], 0, "l1"),
        (&["events"], 0, ""),
        (&["mode", "show"], 0, "mode:"),
        (&["mode", "may-stop"], 1, "no bookie is configured"),
        (
            &[&["mode", "release"][..], &token].concat(),
            1,
            "no bookie is configured",
        ),
        (&[&["accept", "l1"][..], &token].concat(), 1, "not replaced"),
    ] {
        let said = ask(&bench, agent.port, arguments);
        let all = text(&said.stdout) + &text(&said.stderr);
        assert_eq!(said.status.code(), Some(code), "{arguments:?}: {all}");
        assert!(all.contains(part), "{arguments:?}: {all}");
    }
    // A token reads as well.
    private(&bench, "auth", READ_TOKEN);
    assert_eq!(ask(&bench, agent.port, &["status"]).status.code(), Some(0));
    for (name, wrong) in [("password", "ann:wrong"), ("token", "wrong")] {
        private(&bench, "auth", wrong);
        let said = ask(&bench, agent.port, &["status"]);
        assert_eq!(
            said.status.code(),
            Some(77),
            "{name}: {}",
            text(&said.stderr)
        );
    }
    // Without trust no password is sent, and plain HTTP is not spoken.
    let url = format!("https://127.0.0.1:{}", agent.port);
    let said = bench.run(&["status", "--url", &url, "--ca-file", "web.yml"]);
    assert_eq!(said.status.code(), Some(65), "{}", text(&said.stderr));
    let answer = agent.answer("GET /livez HTTP/1.0\r\n\r\n");
    assert!(!answer.contains("200"), "{answer}");
    agent.finish();
}

/// Each reason why there is no connection, or no answer, has its remedy.
#[test]
fn a_door_that_stays_closed_says_what_would_open_it() {
    let bench = Bench::new();
    let (more, _) = guarded(&bench);
    let key = fs::read_to_string(bench.path("key.pem")).unwrap();
    config(&bench, &more);
    let agent = start(&bench);
    let plain = agent_without_tls(&bench);
    let (secure, other) = (agent.port, plain.port);
    let of_authority = |names: &[&str], authority| {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        if authority {
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        }
        let made = params.self_signed(&rcgen::KeyPair::from_pem(&key).unwrap());
        bench.write("cert.pem", made.unwrap().pem());
    };
    let known = |url: String| {
        let line = ["status", "--url", &url, "--ca-file", "cert.pem"];
        bench.run(&line)
    };
    let said = |output: Output| {
        let said = text(&output.stderr);
        let said = said.replace(&secure.to_string(), "TLS");
        said.replace(&other.to_string(), "PLAIN")
    };
    let mut all = said(known(format!("https://127.0.0.1:{secure}")));
    all += &said(known(format!("https://127.0.0.1:{other}")));
    all += &said(bench.run(&["status", "--url", &format!("127.0.0.1:{secure}")]));
    all += &said(bench.run(&["status", "--url", &format!("https://127.0.0.1:{secure}")]));
    for (names, authority, words) in [
        (&["bk-3"][..], false, "for other names"),
        (&["127.0.0.1"], true, "basicConstraints=critical,CA:FALSE"),
    ] {
        of_authority(names, authority);
        let mut last = String::new();
        wait_until(words, || {
            last = said(known(format!("https://127.0.0.1:{secure}")));
            last.contains(words)
        });
        all += &last;
    }
    insta::assert_snapshot!("closed", all);
    assert!(
        bench.path("state2").exists(),
        "relative to the working directory"
    );
    plain.finish();
    agent.finish();
}

/// One that reads for everybody, in plain HTTP.
fn agent_without_tls(bench: &Bench) -> Agent<'_> {
    let dir = format!("ledger={}", bench.dir("l2"));
    bench.agent(&[
        "--dir",
        &dir,
        "--state-dir",
        "state2",
        "--listen",
        "127.0.0.1:0",
    ])
}

#[test]
fn certificates_and_passwords_change_while_it_runs() {
    let bench = Bench::new();
    let (more, _) = guarded(&bench);
    config(&bench, &more);
    let agent = start(&bench);
    let works = || ask(&bench, agent.port, &["status"]).status.code() == Some(0);
    certificate(&bench);
    wait_until("the new certificate is shown", works);

    let web = fs::read_to_string(bench.path("web.yml")).unwrap();
    private(
        &bench,
        "web.yml",
        &web.replace("basic_auth_users", "basic_auth_user"),
    );
    let refused = "basic_auth_user: there is no such key";
    wait_until("the wrong file is told", || agent.log().contains(refused));
    assert!(works(), "the old one counts");
    let status = text(&ask(&bench, agent.port, &["status"]).stdout);
    assert!(status.contains("is not valid"), "{status}");

    let other = bcrypt::hash("another", 4).unwrap();
    let (start, _) = web.split_once("  ann:").unwrap();
    private(&bench, "web.yml", &format!("{start}  ann: {other}\n"));
    wait_until("the old password is refused", || {
        ask(&bench, agent.port, &["status"]).status.code() == Some(77)
    });
    private(&bench, "auth", "ann:another");
    assert!(works());
    agent.finish();
}

/// The commands of docs/access.md make a certificate that other commands take.
#[test]
fn a_certificate_as_in_the_worked_example_is_taken() {
    let bench = Bench::new();
    let (more, _) = guarded(&bench);
    config(&bench, &more);
    let agent = start(&bench);
    let page = include_str!("../../docs/access.md");
    let (_, example) = page.split_once("    openssl req").unwrap();
    let (example, _) = example.split_once("\n    htpasswd").unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("openssl req{example}")]);
    shell.current_dir(bench.path(""));
    let made = output(shell);
    if made.status.code() == Some(127) && std::env::var_os("CI").is_none() {
        let _ = std::io::stderr().write_all(b"SKIPPED: it needs openssl\n");
        return;
    }
    assert!(made.status.success(), "{}", text(&made.stderr));
    let url = format!("https://localhost:{}", agent.port);
    let known = ["--ca-file", "cert.pem", "--auth-file", "auth"];
    let status = || bench.run(&[&["status", "--url", &url], &known[..]].concat());
    wait_until("the certificate is taken", || {
        status().status.code() == Some(0)
    });
    agent.finish();
}

#[test]
fn no_secret_is_in_anything_that_is_said() {
    let bench = Bench::new();
    let (more, key) = guarded(&bench);
    config(&bench, &more);
    let agent = start(&bench);
    let hash = fs::read_to_string(bench.path("web.yml")).unwrap();
    let hash = hash
        .lines()
        .last()
        .unwrap()
        .trim()
        .strip_prefix("ann: ")
        .unwrap();
    let mut said = String::new();
    for arguments in [
        &["status", "--output", "json"][..],
        &["events"],
        &["mode", "release", "--token-file", "order-token"],
        &["mode", "release", "--token-file", "auth"],
    ] {
        let output = ask(&bench, agent.port, arguments);
        said += &(text(&output.stdout) + &text(&output.stderr));
    }
    for arguments in [["config", "show"], ["config", "check"]] {
        let output = bench.run(&[&arguments[..], &["--config", "a.toml"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        said += &(text(&output.stdout) + &text(&output.stderr));
    }
    // A password in the place of its hash, and a key in the place of a certificate.
    let wrong = format!(
        "basic_auth_users:\n  ann: {PASSWORD}\ntls_server_config:\n  cert_file: key.pem\n  key_file: key.pem\n"
    );
    private(&bench, "web.yml", &wrong);
    let refused = "is not a bcrypt hash";
    wait_until("the wrong file is told", || agent.log().contains(refused));
    let output = bench.run(&["config", "check", "--config", "a.toml"]);
    assert_eq!(output.status.code(), Some(78));
    said += &text(&output.stdout);
    said += &text(&bench.run(&["run", "--config", "a.toml"]).stderr);
    said += &agent.finish();
    assert!(
        said.contains(refused) && said.contains("watching 1 directory"),
        "{said}"
    );
    let line = key.lines().nth(1).unwrap();
    for secret in [PASSWORD, TOKEN, READ_TOKEN, hash, line, &hash[7..]] {
        assert!(!said.contains(secret), "{secret} is in {said}");
    }
}

/// Values of files are never shown, places are; each is a bad configuration.
#[test]
fn wrong_web_configurations_keep_an_agent_from_starting() {
    let bench = Bench::new();
    let (more, _) = guarded(&bench);
    config(&bench, &more);
    let mut all = String::new();
    for web in [
        "tls_server_config:\n  cert_file: cert.pem\n",
        "tls_server_config:\n  cert_file: missing.pem\n  key_file: key.pem\n",
        "basic_auth_users:\n  ann: plain\n",
        "nonsense: 1\n",
        "a: [b\n",
    ] {
        private(&bench, "web.yml", web);
        all += &bench.refused(&["run", "--config", "a.toml"], 78);
    }
    let dir = format!("ledger={}", bench.name("l1"));
    // Who could read there is not known, and nothing is said of it.
    let flags = ["run", "--dir", &dir, "--web-config-file", "none.yml"];
    let open = ["--listen", "0.0.0.0:0"];
    all += &bench.refused(&[&flags[..], &open].concat(), 78);
    insta::assert_snapshot!("web_configurations", all);
}

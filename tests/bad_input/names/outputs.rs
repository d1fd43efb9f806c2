//! What every output says of directories, taken apart by its own grammar: the names come out as they
//! went in, and nothing steers.

use super::*;

/// What a text says, by the rule of the documentation: `\xNN` is the byte NN, all else is itself.
pub(super) fn said(text: &str) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, tail @ ..] = rest {
        let digits = rest.strip_prefix(b"\\x").and_then(|tail| tail.get(..2));
        let digits = digits.filter(|two| two.iter().all(u8::is_ascii_hexdigit));
        match digits {
            Some(two) => {
                let two = std::str::from_utf8(two).unwrap();
                bytes.push(u8::from_str_radix(two, 16).unwrap());
                rest = &rest[4..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

pub(super) fn set(paths: &[PathBuf]) -> BTreeSet<PathBuf> {
    paths.iter().cloned().collect()
}

fn percent(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("%{byte:02X}")).collect()
}

pub(super) fn check_quiet(what: &str, output: &str) {
    let steering = |line: &str| line.contains(steers);
    let line = output.split('\n').find(|line| steering(line));
    assert_eq!(line, None, "{what} steers");
}

/// Paths at this key of each object.
fn paths_in(list: &Value, key: &str) -> Vec<PathBuf> {
    let list = list.as_array().unwrap().iter();
    list.filter_map(|one| one[key].as_str()).map(said).collect()
}

pub(super) fn check_api(agent: &Agent, paths: &[PathBuf]) {
    let (code, body) = agent.get("/api/v1/status");
    assert_eq!(code, 200);
    check_quiet("the status", &body);
    let status: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(set(&paths_in(&status["dirs"], "path")), set(paths));
    for (index, dir) in status["dirs"].as_array().unwrap().iter().enumerate() {
        let text = dir["path"].as_str().unwrap();
        let path = said(text);
        for key in [
            index.to_string(),
            percent(text.as_bytes()),
            percent(shown(text).as_bytes()),
        ] {
            let (code, found) = agent.get(&format!("/api/v1/dirs/{key}"));
            assert_eq!(code, 200, "{text:?} by {key}");
            let found: Value = serde_json::from_str(&found).unwrap();
            assert_eq!(found["path"], dir["path"], "by {key}");
        }
        // The bytes themselves, where they are not the text of another one.
        let key = percent(path.as_os_str().as_bytes());
        let (code, found) = agent.get(&format!("/api/v1/dirs/{key}"));
        assert_eq!(code, 200, "{path:?}");
        let found: Value = serde_json::from_str(&found).unwrap();
        let found = said(found["path"].as_str().unwrap());
        let as_text = path.to_str().map(said);
        assert!(found == path || Some(found) == as_text, "{path:?}");
    }
}

/// A text of a document as people see it; another writing of the rule than the program's.
fn shown(text: &str) -> String {
    let mut shown = String::new();
    for character in text.chars() {
        if steers(character) {
            for byte in character.to_string().bytes() {
                write!(shown, "\\x{byte:02x}").unwrap();
            }
        } else {
            shown.push(character);
        }
    }
    shown
}

/// The labels of a line of the exposition, by its grammar, and what follows them.
fn labels(line: &str) -> (Vec<(String, String)>, &str) {
    let (_, mut rest) = line.split_once('{').unwrap();
    let mut labels = Vec::new();
    loop {
        if let Some(end) = rest.strip_prefix('}') {
            return (labels, end);
        }
        let (name, after) = rest.split_once("=\"").unwrap();
        let (mut value, mut chars) = (String::new(), after.chars());
        loop {
            match chars.next().expect("an end of the value") {
                '"' => break,
                '\\' => value.push(match chars.next().unwrap() {
                    'n' => '\n',
                    other @ ('\\' | '"') => other,
                    other => panic!("\\{other} in {line:?}"),
                }),
                other => value.push(other),
            }
        }
        labels.push((name.trim_start_matches(',').to_owned(), value));
        rest = chars.as_str();
    }
}

pub(super) fn check_metrics(agent: &Agent, paths: &[PathBuf]) {
    let (_, metrics) = agent.get("/metrics");
    let mut of_status = Vec::new();
    let mut seen = BTreeSet::new();
    for line in metrics.split('\n').filter(|line| line.contains('{')) {
        if line.starts_with('#') {
            continue;
        }
        let (labels, value) = labels(line);
        assert!(value.trim().parse::<f64>().is_ok(), "{line:?}");
        let name = line.split('{').next().unwrap();
        assert!(seen.insert((name, labels.clone())), "twice: {line:?}");
        if name == "dirkeeper_dir_status" && labels[2].1 == "vanished" {
            of_status.push(said(&labels[0].1));
        }
    }
    assert_eq!(set(&of_status), set(paths));
    assert_eq!(of_status.len(), paths.len());
    let Ok(mut promtool) = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
    else {
        return; // not installed here; the grammar above is the same
    };
    let mut input = promtool.stdin.take().unwrap();
    input.write_all(metrics.as_bytes()).unwrap();
    drop(input);
    let output = promtool.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

pub(super) fn check_page(agent: &Agent, paths: &[PathBuf]) {
    let (_, page) = agent.get("/");
    check_quiet("the page", &page);
    for tag in page.split('<').skip(1) {
        let name = tag
            .split(['>', ' '])
            .next()
            .unwrap()
            .trim_start_matches('/');
        let known = [
            "!doctype", "html", "head", "meta", "title", "style", "body", "br", "h1", "h2", "h3",
            "article", "p", "span", "dl", "dt", "dd", "ul", "li", "a", "details", "summary",
            "meter", "footer", "div", "table", "tr", "th", "td", "pre", "noscript", "link",
            "header", "nav", "main", "section", "strong", "time", "form", "label", "input",
            "select", "option", "output", "h3", "svg", "rect", "line", "path", "polyline", "thead",
            "tbody", "ol", "button", "code", "fieldset", "legend", "b",
        ];
        let own_script = ["script src=\"page.js\" type=\"module\">", "/script>"];
        let is_own = own_script.iter().any(|own| tag.trim_end() == *own);
        assert!(is_own || known.contains(&name), "<{tag}");
        let (attributes, _) = tag.split_once('>').unwrap();
        // A value in quotation marks may hold any name.
        let mut outside = attributes.split('"').step_by(2);
        assert!(!outside.any(|part| part.contains("onerror")), "<{tag}");
    }
    // Events name directories too, and the node.
    let (_, dirs) = page.split_once("<ul id=\"dir-list\">").unwrap();
    let (dirs, _) = dirs.split_once("</section>").unwrap();
    let named = dirs.split("<span class=\"path\">").skip(1);
    let named = named.map(|rest| {
        let text = rest.split('<').next().unwrap();
        let text = text.replace("&lt;", "<").replace("&gt;", ">");
        let text = text.replace("&quot;", "\"").replace("&#39;", "'");
        said(&text.replace("&amp;", "&"))
    });
    assert_eq!(named.collect::<BTreeSet<_>>(), set(paths));
}

/// The commands that ask an agent, or none.
pub(super) fn check_commands(bench: &Bench, agent: &Agent, paths: &[PathBuf], flags: &[OsString]) {
    let url = format!("http://127.0.0.1:{}", agent.port);
    let ask = |arguments: &[&str], rest: &[OsString]| {
        let mut command = bench.program();
        command.args(arguments).args(rest);
        let output = output(command);
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(
            output.status.code(),
            Some(0),
            "{arguments:?}: {stdout}{stderr}"
        );
        check_quiet(&format!("{arguments:?}"), &stdout);
        check_quiet(&format!("errors of {arguments:?}"), &stderr);
        stdout
    };
    let named = |table: &str, what: &str| {
        for path in paths {
            let bytes = path.as_os_str().as_bytes();
            let is_it = |line: &str| {
                let path = said(line);
                path.as_os_str()
                    .as_bytes()
                    .windows(bytes.len())
                    .any(|part| part == bytes)
            };
            assert!(table.lines().any(is_it), "{what} has no {path:?}: {table}");
        }
    };
    let json = |text: &str| {
        let status: Value = serde_json::from_str(text).unwrap();
        assert_eq!(set(&paths_in(&status["dirs"], "path")), set(paths));
    };
    named(&ask(&["status", "--url", &url], &[]), "status");
    json(&ask(&["status", "--output", "json", "--url", &url], &[]));
    named(&ask(&["check"], flags), "check");
    named(&ask(&["check", "--explain"], flags), "check --explain");
    json(&ask(&["check", "--output", "json"], flags));
    let line = ask(&["check", "--output", "nagios"], flags);
    assert_eq!(line.matches('\n').count(), 1, "{line}");
    assert_eq!(line.matches('|').count(), 1, "{line}");
    let (_, data) = line.split_once(" | ").unwrap();
    let mut labels = Vec::new();
    let mut rest = data.trim_end();
    while let Some(quoted) = rest.strip_prefix('\'') {
        // A quote is doubled, so the first one before an equals sign that is single ends it.
        let (label, after) = quoted.split_once("'=").unwrap();
        labels.push(said(&label.replace("''", "'")));
        rest = after.split_once(' ').map_or("", |(_, rest)| rest);
    }
    assert_eq!(set(&labels), set(paths));
}

pub(super) fn check_log(log: &str, paths: &[PathBuf]) {
    check_quiet("the log", log);
    for line in log.lines() {
        let has_time = line.starts_with("20") && line.contains("Z ");
        assert!(has_time, "a line that nobody logged: {line:?}");
        let forged = line
            .split("Z ")
            .nth(1)
            .is_some_and(|rest| rest.contains("ERROR forged"));
        assert!(!forged, "{line:?}");
    }
    for path in paths {
        let bytes = path.as_os_str().as_bytes();
        let told = log.lines().any(|line| {
            let line = said(line);
            line.as_os_str()
                .as_bytes()
                .windows(bytes.len())
                .any(|part| part == bytes)
        });
        assert!(told, "the log does not tell of {path:?}: {log}");
    }
}

/// What the hooks were told: the variable's bytes, and the document's text.
pub(super) fn check_hooks(heard: &Path, paths: &[PathBuf]) {
    let files = || {
        let files = fs::read_dir(heard).unwrap();
        let files = files.map(|file| file.unwrap().path());
        let dirs = files.filter(|file| file.extension() == Some(OsStr::new("dir")));
        dirs.collect::<Vec<_>>()
    };
    wait_until("a hook for each", || files().len() == paths.len());
    let mut told = BTreeSet::new();
    for file in files() {
        let raw: PathBuf = OsString::from_vec(fs::read(&file).unwrap()).into();
        let json = fs::read_to_string(file.with_extension("json")).unwrap();
        check_quiet("a hook's input", &json);
        assert_eq!(json.matches('\n').count(), 1);
        let event: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(said(event["dir"].as_str().unwrap()), raw);
        told.insert(raw);
    }
    assert_eq!(told, set(paths));
}

pub(super) fn check_events(bench: &Bench, agent: &Agent, paths: &[PathBuf]) {
    let url = format!("http://127.0.0.1:{}", agent.port);
    let human = bench.run(&["events", "--url", &url, "--event", "diskVanished"]);
    let human = text(&human.stdout);
    check_quiet("events", &human);
    assert_eq!(human.lines().count(), paths.len(), "{human}");
    let json = bench.run(&[
        "events",
        "--url",
        &url,
        "--event",
        "diskVanished",
        "--output",
        "json",
    ]);
    let json = text(&json.stdout);
    check_quiet("events as JSON", &json);
    let events = json.lines().map(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        said(event["dir"].as_str().unwrap())
    });
    assert_eq!(events.collect::<BTreeSet<_>>(), set(paths));
    let stream =
        "GET /api/v1/events?since=0 HTTP/1.0\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n";
    let mut follower = TcpStream::connect(("127.0.0.1", agent.port)).unwrap();
    follower.set_read_timeout(Some(PATIENCE)).unwrap();
    follower.write_all(stream.as_bytes()).unwrap();
    let mut heard = Vec::new();
    let count = |heard: &[u8]| text(heard).matches("\nevent: diskVanished\n").count();
    let mut piece = [0; 4096];
    while count(&heard) < paths.len() {
        let length = follower.read(&mut piece).unwrap();
        assert_ne!(length, 0, "the stream ended: {}", text(&heard));
        heard.extend(&piece[..length]);
    }
    assert!(!text(&heard).contains("\ndata: forged"));
}

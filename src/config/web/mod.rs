//! The file that `web_config_file` names: who may talk to the HTTP server and how, in the format that
//! the exporters of Prometheus share. Reads it and the files of certificates and keys that it names;
//! what it says that cannot be done here is an error where safety hangs on it, else a warning.

mod tls;
mod yaml;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

pub use tls::WebTls;

use super::keys::Key;
use super::layer::Layer;
use super::problem::{Place, Problems, Wrong};
use super::source::{self, SourceFile};
use super::value::{Secret, nearest};
use yaml::{Node, Value};

/// Who may ask, and how answers leave. Without a file: everybody, in plain HTTP.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WebConfig {
    /// What TLS is spoken with; none for plain HTTP.
    pub tls: Option<WebTls>,
    /// Users with the bcrypt hashes of their passwords; nobody is asked without.
    pub users: BTreeMap<String, Secret>,
    /// Headers of every answer, beside or instead of the usual ones.
    pub headers: Vec<(&'static str, String)>,
}

/// A bcrypt hash that takes longer to check than a scrape waits is a mistake: cost 14 is about a second.
const MAX_COST: u32 = 14;

/// As many users as a file may name: each is a person or a program, not a customer.
const MAX_USERS: usize = 1000;

/// Headers that the format knows, with the values that are taken; none for any.
const HEADERS: [(&str, &[&str]); 5] = [
    ("Content-Security-Policy", &[]),
    ("X-Frame-Options", &["deny", "sameorigin"]),
    ("X-Content-Type-Options", &["nosniff"]),
    ("X-XSS-Protection", &[]),
    ("Strict-Transport-Security", &[]),
];

const SECTIONS: [&str; 4] = [
    "tls_server_config",
    "http_server_config",
    "basic_auth_users",
    "rate_limit",
];

/// Reads the file that the configuration names, if it names one.
pub(super) fn settle(
    node: &Layer,
    files: &mut Vec<SourceFile>,
    problems: &mut Problems,
) -> WebConfig {
    let Some(path) = node.slot(Key::WebConfigFile).path() else {
        return WebConfig::default();
    };
    let remedy = "name a file that the agent can read with web_config_file or --web-config-file";
    let Some(bytes) = source::read(&path, remedy, files, problems) else {
        return WebConfig::default();
    };
    let mut reader = Reader {
        path: &path,
        files,
        problems,
    };
    let text = String::from_utf8_lossy(&bytes);
    match yaml::read(&text) {
        Ok(document) => reader.document(&document),
        Err(error) => {
            let wrong = Wrong::new(format!("is no YAML: {}", error.why), "correct the YAML");
            reader.error(error.line, "", wrong);
            WebConfig::default()
        }
    }
}

/// Keys and values of one section.
type Entries = [(String, usize, Node)];

/// Reads one file. Values are never repeated in what it says is wrong: many of them are secrets.
struct Reader<'a> {
    path: &'a Path,
    files: &'a mut Vec<SourceFile>,
    problems: &'a mut Problems,
}

impl Reader<'_> {
    fn error(&mut self, line: usize, key: &str, wrong: Wrong) {
        let problem = wrong.at(Place::file(self.path, line), key, "");
        self.problems.error(problem);
    }

    fn warn(&mut self, line: usize, key: &str, wrong: Wrong) {
        let problem = wrong.at(Place::file(self.path, line), key, "");
        self.problems.warn(problem);
    }

    fn document(&mut self, document: &Node) -> WebConfig {
        let mut web = WebConfig::default();
        for (name, line, value) in self.map("", document) {
            let Some(entries) = self.section(name, *line, value) else {
                continue;
            };
            match name.as_str() {
                "tls_server_config" => web.tls = tls::read(self, *line, entries),
                "http_server_config" => web.headers = self.http(entries),
                "basic_auth_users" => web.users = self.users(entries),
                _ => self.warn(
                    *line,
                    name,
                    Wrong::new(
                        "is not done here: each address has its share of the connections instead",
                        "leave it out",
                    ),
                ),
            }
        }
        if !web.users.is_empty() {
            let path = self.path.to_owned();
            self.guarded(&path, 1, "basic_auth_users", "the hashes of passwords");
        }
        web
    }

    /// The entries of a section that the format knows.
    fn section<'n>(&mut self, name: &str, line: usize, value: &'n Node) -> Option<&'n Entries> {
        if !SECTIONS.contains(&name) {
            self.unknown(line, name, "", SECTIONS.into_iter());
            return None;
        }
        Some(self.map(name, value))
    }

    fn unknown<'k>(
        &mut self,
        line: usize,
        name: &str,
        section: &str,
        known: impl Iterator<Item = &'k str> + Clone,
    ) {
        let remedy = match nearest(name, known.clone()) {
            Some(near) => format!("did you mean {near}"),
            None => format!("known here are {}", known.collect::<Vec<_>>().join(", ")),
        };
        let key = super::keys::join(section, name);
        self.error(line, &key, Wrong::new("there is no such key", remedy));
    }

    /// The entries of a mapping; none where there is nothing, and where there is something else.
    fn map<'n>(&mut self, key: &str, node: &'n Node) -> &'n Entries {
        match &node.value {
            Value::Map(entries) => entries,
            Value::Nothing => &[],
            Value::Word(_) | Value::List(_) => {
                let wrong = Wrong::new("is no mapping", "write keys below it, each with its value");
                self.error(node.line, key, wrong);
                &[]
            }
        }
    }

    /// A word; none where there is nothing, and where there is something else.
    fn word<'n>(&mut self, key: &str, node: &'n Node) -> Option<&'n str> {
        match &node.value {
            Value::Word(word) => Some(word),
            Value::Nothing => None,
            Value::Map(_) | Value::List(_) => {
                self.error(node.line, key, Wrong::new("is not one value", "write one"));
                None
            }
        }
    }

    fn words<'n>(&mut self, key: &str, node: &'n Node) -> Vec<&'n str> {
        match &node.value {
            Value::List(list) => {
                let words = list.iter().filter_map(|node| self.word(key, node));
                words.collect()
            }
            Value::Nothing => Vec::new(),
            Value::Map(_) | Value::Word(_) => {
                let wrong = Wrong::new("is no list", "write each value on a line with a dash");
                self.error(node.line, key, wrong);
                Vec::new()
            }
        }
    }

    fn flag(&mut self, key: &str, node: &Node) -> Option<bool> {
        match self.word(key, node)? {
            "true" => Some(true),
            "false" => Some(false),
            _ => {
                let wrong = Wrong::new("is not a switch", "write true or false");
                self.error(node.line, key, wrong);
                None
            }
        }
    }

    /// The bytes of a file that is named here; a relative name is one beside this file.
    fn file(&mut self, key: &str, node: &Node) -> Option<(PathBuf, Vec<u8>)> {
        let name = self.word(key, node)?;
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let path = folder.join(name);
        let remedy = format!("name a file that the agent can read as {key}");
        let bytes = source::read(&path, &remedy, self.files, self.problems)?;
        Some((path, bytes))
    }

    /// Warns when everybody on this machine can read a file of secrets.
    fn guarded(&mut self, path: &Path, line: usize, key: &str, what: &str) {
        let facts = std::fs::metadata(path);
        if facts.is_ok_and(|facts| facts.permissions().mode() & 0o004 != 0) {
            let file = crate::health::dir::shown(path);
            let problem = format!("everybody on this machine can read {what} in {file}");
            self.warn(line, key, Wrong::new(problem, format!("chmod 0640 {file}")));
        }
    }

    fn http(&mut self, entries: &Entries) -> Vec<(&'static str, String)> {
        const SECTION: &str = "http_server_config";
        let mut headers = Vec::new();
        for (name, line, node) in entries {
            let key = super::keys::join(SECTION, name);
            match name.as_str() {
                "http2" => {
                    if self.flag(&key, node) == Some(true) {
                        let text = "is not spoken here: clients are offered HTTP/1.1 alone";
                        self.warn(*line, &key, Wrong::new(text, "leave it out"));
                    }
                }
                "headers" => {
                    for (name, line, node) in self.map(&key, node) {
                        headers.extend(self.header(&key, name, *line, node));
                    }
                }
                _ => self.unknown(*line, name, SECTION, ["http2", "headers"].into_iter()),
            }
        }
        headers
    }

    fn header(
        &mut self,
        section: &str,
        name: &str,
        line: usize,
        node: &Node,
    ) -> Option<(&'static str, String)> {
        let known = HEADERS.iter().find(|(known, _)| *known == name);
        let Some((known, values)) = known else {
            let known = HEADERS.iter().map(|(known, _)| *known);
            self.unknown(line, name, section, known);
            return None;
        };
        let key = super::keys::join(section, name);
        // Blank is not set: the usual one stays.
        let value = self.word(&key, node).filter(|value| !value.is_empty())?;
        let lower = value.to_ascii_lowercase();
        if !values.is_empty() && !values.contains(&lower.as_str()) {
            let remedy = format!("write {}", values.join(" or "));
            self.error(line, &key, Wrong::new("has another value", remedy));
            return None;
        }
        if !value
            .bytes()
            .all(|byte| byte == b' ' || byte.is_ascii_graphic())
        {
            let wrong = Wrong::new("cannot be the value of a header", "write visible ASCII");
            self.error(line, &key, wrong);
            return None;
        }
        Some((known, value.to_owned()))
    }

    fn users(&mut self, entries: &Entries) -> BTreeMap<String, Secret> {
        let mut users = BTreeMap::new();
        if MAX_USERS < entries.len() {
            let text = format!("names more than {MAX_USERS} users");
            let wrong = Wrong::new(text, "ask a proxy in front of the agent to know them");
            self.error(entries[MAX_USERS].1, "basic_auth_users", wrong);
            return users;
        }
        for (user, line, node) in entries {
            let key = super::keys::join("basic_auth_users", user);
            if user.is_empty() || user.contains(':') || user.chars().any(char::is_control) {
                let wrong = Wrong::new("cannot be a user", "write a name without a colon");
                self.error(*line, &key, wrong);
                continue;
            }
            match bcrypt_hash(self.word(&key, node).unwrap_or_default()) {
                Ok(hash) => {
                    users.insert(user.clone(), hash);
                }
                Err(wrong) => self.error(*line, &key, wrong),
            }
        }
        users
    }
}

/// A hash as htpasswd -B makes it.
fn bcrypt_hash(text: &str) -> Result<Secret, Wrong> {
    let remedy = "make it with: htpasswd -nBC 10 USER, which prints USER:HASH";
    let wrong = || Wrong::new("is not a bcrypt hash", remedy);
    let known = ["$2a$", "$2b$", "$2y$"]
        .iter()
        .any(|kind| text.starts_with(kind));
    let parts: bcrypt::HashParts = text.parse().map_err(|_| wrong())?;
    if !known || text.len() != 60 {
        return Err(wrong());
    }
    if !(4..=MAX_COST).contains(&parts.get_cost()) {
        let text = format!("is a bcrypt hash of cost {}", parts.get_cost());
        return Err(Wrong::new(
            text,
            format!("choose a cost from 4 to {MAX_COST}"),
        ));
    }
    Ok(Secret(text.to_owned()))
}

#[cfg(test)]
mod tests;

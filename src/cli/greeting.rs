//! What `run` says on a terminal when it has started: what it watches, by which means, where to look.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use super::terminal::printable;
use crate::document::path_text;
use crate::health::dir::Role;

/// What there is to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GreetingFacts {
    /// What is watched, in configured order.
    pub dirs: Vec<(Role, PathBuf)>,
    /// Sources of observation that are active.
    pub sources: Vec<String>,
    /// Sources that are not, each with what it would take.
    pub inactive: Vec<String>,
    /// Where page, API and metrics are served.
    pub address: SocketAddr,
    /// Where events and pins are kept.
    pub state_dir: PathBuf,
    /// Names of the hooks.
    pub hooks: Vec<String>,
}

/// The greeting, for standard error. It says what is so, and nothing about how the disks are: that
/// is not known yet.
#[must_use]
pub fn greeting(facts: &GreetingFacts) -> String {
    let mut text = format!("dirkeeper {} watches\n", crate::VERSION);
    for (role, path) in &facts.dirs {
        let path = printable(&path_text(path));
        text.push_str(&format!("  {:<8}{path}\n", role.name()));
    }
    let mut say = |what: &str, value: &str| text.push_str(&format!("{what:<10}{value}\n"));
    say("by", &facts.sources.join(", "));
    for inactive in &facts.inactive {
        say("without", inactive);
    }
    if !facts.hooks.is_empty() {
        say("hooks", &printable(&facts.hooks.join(", ")));
    }
    say("page", &page(facts.address));
    say("metrics", &(url(facts.address) + "metrics"));
    say("state", &printable(&path_text(&facts.state_dir)));
    text
}

fn page(address: SocketAddr) -> String {
    let page = url(address);
    if address.ip().is_unspecified() {
        return format!("{page} and every other address of this machine");
    }
    page
}

/// An address that a browser on this machine can open.
fn url(mut address: SocketAddr) -> String {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    format!("http://{address}/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greeting_says_what_is_watched_and_where_to_look() {
        let mut facts = GreetingFacts {
            dirs: vec![
                (Role::Ledger, "/mnt/l1".into()),
                (Role::Journal, "/mnt/with\nline feed".into()),
            ],
            sources: vec!["statvfs".into(), "probe".into(), "mountinfo".into()],
            inactive: vec!["fanotify: it needs CAP_SYS_ADMIN".into()],
            address: "127.0.0.1:9475".parse().unwrap(),
            state_dir: "/var/lib/dirkeeper".into(),
            hooks: vec!["page".into(), "ticket".into()],
        };
        let first = greeting(&facts);
        facts.address = "[::]:80".parse().unwrap();
        facts.inactive.clear();
        facts.hooks.clear();
        insta::assert_snapshot!(first + "\n" + &greeting(&facts));
    }
}

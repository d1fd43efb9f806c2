//! What `run` says on a terminal when it has started: what it watches, by which means, where to look.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::terminal::printable;
use crate::app::Started;
use crate::document::shown;

/// Sources of observation that need no privilege. Which of them work for a directory is in the
/// snapshot.
const SOURCES: &str = "statvfs, probe, mountinfo, diskstats, sysfs-errors";

/// The greeting, for standard error. It says what is so, and nothing about how the disks are: that
/// is not known yet.
#[must_use]
pub fn greeting(started: &Started) -> String {
    let mut text = format!("dirkeeper {} watches\n", crate::VERSION);
    for (role, path) in &started.dirs {
        let path = shown(path);
        text.push_str(&format!("  {:<8}{path}\n", role.name()));
    }
    let mut say = |what: &str, value: &str| text.push_str(&format!("{what:<10}{value}\n"));
    say("by", SOURCES);
    if !started.hooks.is_empty() {
        say("hooks", &printable(&started.hooks.join(", ")));
    }
    say("page", &page(started.address));
    say("metrics", &(url(started.address) + "metrics"));
    say("state", &shown(&started.state_dir));
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
    use crate::health::dir::Role;

    #[test]
    fn the_greeting_says_what_is_watched_and_where_to_look() {
        let mut started = Started {
            dirs: vec![
                (Role::Ledger, "/mnt/l1".into()),
                (Role::Journal, "/mnt/with\nline feed".into()),
            ],
            address: "127.0.0.1:9475".parse().unwrap(),
            state_dir: "/var/lib/dirkeeper".into(),
            hooks: vec!["page".into(), "ticket".into()],
        };
        let first = greeting(&started);
        started.address = "[::]:80".parse().unwrap();
        started.hooks.clear();
        insta::assert_snapshot!(first + "\n" + &greeting(&started));
    }
}

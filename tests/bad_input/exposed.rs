//! An agent whose port is exposed, and clients that mean harm. Whatever they do, an honest client is
//! answered in time, the loop turns, memory stays bounded, and afterwards everything is as before.
#![allow(clippy::print_stdout)] // what each attack did, for whoever asks with --nocapture

mod attacks;
mod honest;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::*;
use attacks::{Attack, Target};
use honest::Honest;

/// Directories that are watched: their metrics are some hundred kilobytes.
const DIRS: usize = 40;

/// What an attack may cost in resident memory.
const GROWTH_KIB: u64 = 20 << 10;

/// The honest client's limit.
const IN_TIME: Duration = Duration::from_secs(1);

/// The loop turns each second, and so much later at most.
const TURN: Duration = Duration::from_millis(1100);

/// A machine that does other things meanwhile is given three times as long; `EXPOSED_STRICT=1` takes
/// that away.
fn limit(strict: Duration) -> Duration {
    match std::env::var_os("EXPOSED_STRICT") {
        Some(_) => strict,
        None => 3 * strict,
    }
}

fn config(bench: &Bench, more: &str) {
    bench.write("token", "secret\n");
    bench.set_mode("token", 0o600);
    let mut toml = format!(
        "listen = \"127.0.0.1:0\"\nstate_dir = {:?}\ncontrol_token_file = {:?}\n{more}",
        bench.name("state"),
        bench.name("token"),
    );
    for number in 0..DIRS {
        let path = bench.dir(&format!("l{number}"));
        // However full the machine of the test is.
        let keys = "role = \"ledger\"\nwarn = 0.9998\nfull = 0.9999";
        write!(toml, "[[dir]]\npath = {path:?}\n{keys}\n").unwrap();
    }
    bench.write("a.toml", toml);
}

impl Agent<'_> {
    fn proc(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.process.id()))
    }

    fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(self.proc("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.unwrap().trim().strip_suffix(" kB").unwrap();
        number.parse().unwrap()
    }

    fn descriptors(&self) -> usize {
        fs::read_dir(self.proc("fd")).unwrap().count()
    }

    fn target(&self) -> Target {
        Target(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)))
    }
}

/// An attack that was too slow for the honest client is made again: the machine may have been busy, and an
/// attack that works does so each time.
const TRIES: usize = 3;

/// What was not as it must be while the attack was made.
fn survives(agent: &Agent<'_>, attack: &Attack) -> Option<String> {
    let mut slow = None;
    for _ in 0..TRIES {
        let Attacked {
            line,
            is_sound,
            is_in_time,
        } = attacked(agent, attack);
        if !is_sound {
            return Some(line);
        }
        if is_in_time {
            return None;
        }
        slow = Some(line);
    }
    slow
}

/// What came of an attack.
struct Attacked {
    line: String,
    is_sound: bool,
    is_in_time: bool,
}

/// Makes the attack while an honest client goes on asking.
fn attacked(agent: &Agent<'_>, attack: &Attack) -> Attacked {
    let (resident, descriptors) = (agent.resident_kib(), agent.descriptors());
    let honest = Honest::start(agent.port);
    let seen = (attack.make)(&agent.target());
    let most = agent.resident_kib();
    let heard = honest.stop();
    let line = format!("{}: {seen}; {heard}; {resident} to {most} KiB", attack.name);
    println!("{line}");
    wait_until(&format!("descriptors come back after {line}"), || {
        agent.descriptors() <= descriptors
    });
    Attacked {
        line: format!("{line} {:?}", heard.failed),
        is_sound: heard.failed.is_empty() && most < resident + GROWTH_KIB,
        is_in_time: heard.slowest_of_hundred() < limit(IN_TIME) && heard.longest_turn < limit(TURN),
    }
}

#[test]
fn an_exposed_port_survives() {
    let bench = Bench::new();
    config(&bench, "");
    let agent = bench.agent(&["--config", "a.toml"]);
    wait_until("all are judged", || {
        agent.dirs().matches(": writable,").count() == DIRS
    });
    // What is allocated once is not growth.
    for _ in 0..20 {
        agent.get("/metrics");
    }
    let before = agent.status()["mode"].clone();
    let attacks = attacks::PLAIN.iter();
    let failed: Vec<String> = attacks.filter_map(|it| survives(&agent, it)).collect();
    assert_eq!(failed, Vec::<String>::new());
    assert_eq!(agent.status()["mode"], before);
    let log = agent.finish();
    assert!(!log.contains("secret"), "{log}");
    assert!(log.lines().count() < 20, "attacks fill the log: {log}");
}

#[test]
fn an_exposed_tls_port_survives() {
    let bench = Bench::new();
    let (more, _) = doors::guarded(&bench);
    config(&bench, &more);
    let agent = doors::start(&bench);
    for attack in attacks::TLS {
        let (resident, descriptors) = (agent.resident_kib(), agent.descriptors());
        let seen = (attack.make)(&agent.target());
        let began = Clock::start();
        let asked = doors::ask(&bench, agent.port, &["status", "--output", "json"]);
        let took = began.elapsed();
        let most = agent.resident_kib();
        let line = format!(
            "{}: {seen}; a command took {took:?}; {resident} to {most} KiB",
            attack.name
        );
        println!("{line}");
        assert_eq!(
            asked.status.code(),
            Some(0),
            "{line}: {}",
            text(&asked.stderr)
        );
        assert!(took < limit(2 * IN_TIME), "{line}");
        assert!(most < resident + GROWTH_KIB, "{line}");
        wait_until(&format!("descriptors come back after {line}"), || {
            agent.descriptors() <= descriptors
        });
    }
    agent.finish();
}

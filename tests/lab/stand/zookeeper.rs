//! The ZooKeeper of a Pulsar cluster: what it says of itself, how to cut it off from its quorum, and its snapshot files.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::lab::names_in;
use super::pulsar::Pulsar;
use crate::harness::run::{text, tool, wait_for};

/// From its start until it serves: without a quorum it waits two seconds before it serves reads only.
const SERVES: Duration = Duration::from_secs(60);

/// How long an answer of one line is waited for.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

impl Pulsar {
    /// Restarts ZooKeeper as one of two of which the other does not run, so that it serves reads only; `reads` is done
    /// then, and it is alone in its ensemble again.
    pub(crate) fn with_reads_only(&self, reads: impl FnOnce()) {
        let config = self.folder().join("zk/zoo.cfg");
        let id = self.folder().join("zk/data/myid");
        let alone = fs::read_to_string(&config).expect("it has a configuration");
        let port = |add: u16| self.zookeeper_port() + add;
        let two = format!(
            "{alone}initLimit=5\nsyncLimit=2\nserver.1=127.0.0.1:{}:{}\nserver.2=127.0.0.1:{}:{}\n",
            port(91),
            port(92),
            port(93),
            port(94)
        );
        self.stop("zk");
        fs::write(&config, two).expect("the folder is ours");
        fs::write(&id, "1\n").expect("the folder is ours");
        self.start("zk");
        self.wait_mode("read-only");
        reads();
        self.stop("zk");
        fs::write(&config, alone).expect("the folder is ours");
        fs::remove_file(&id).expect("the folder is ours");
        self.start("zk");
        self.wait_mode("standalone");
    }

    /// Restarts ZooKeeper, which begins with a snapshot of all that it has; a copy of that file.
    pub(crate) fn snapshot(&self, copy: &Path) {
        self.stop("zk");
        self.start("zk");
        // It does not serve before the file is whole.
        self.wait_mode("standalone");
        let newest = self.snapshots().pop().expect("there is a snapshot");
        // With its time, which says when it was written.
        tool("cp", ["-p", text(&newest), text(copy)]);
    }

    /// From the oldest to the newest.
    fn snapshots(&self) -> Vec<PathBuf> {
        let folder = self.folder().join("zk/data/version-2");
        let names = names_in(&folder).into_iter();
        let mut numbered: Vec<(u64, String)> = names
            .filter_map(|name| {
                let number = name.strip_prefix("snapshot.")?;
                Some((u64::from_str_radix(number, 16).ok()?, name))
            })
            .collect();
        numbered.sort();
        let files = numbered.into_iter().map(|(_, name)| folder.join(name));
        files.collect()
    }

    /// Packets that ZooKeeper has taken since its start, from whomever.
    pub(crate) fn packets(&self) -> u64 {
        self.told("Received: ", |number| number.parse().ok())
    }

    /// The number of the last write of whomever; one that was refused counts too.
    pub(crate) fn writes(&self) -> u64 {
        self.told("Zxid: 0x", |number| u64::from_str_radix(number, 16).ok())
    }

    fn told(&self, name: &str, number: impl Fn(&str) -> Option<u64>) -> u64 {
        let told = self.srvr().unwrap_or_default();
        let line = told.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(number)
            .unwrap_or_else(|| panic!("ZooKeeper says {told:?}"))
    }

    fn wait_mode(&self, mode: &str) {
        let line = format!("Mode: {mode}");
        wait_for(&format!("ZooKeeper says {line:?}"), SERVES, || {
            let told = self.srvr().unwrap_or_default();
            told.lines().any(|one| one == line).then_some(())
        });
    }

    fn srvr(&self) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.zookeeper())?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        stream.write_all(b"srvr")?;
        let mut told = String::new();
        stream.read_to_string(&mut told)?;
        Ok(told)
    }
}

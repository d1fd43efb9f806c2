//! A server that watches its own directories: it prints what happens and refuses writes while the
//! disks do not allow them.
//!
//!     cargo run --example embed -- /path/to/journal /path/to/ledgers

#![allow(clippy::print_stdout)]

use std::path::Path;

use dirkeeper::embed::{LedgerDirsListener, Monitor, become_child_if_asked};
use dirkeeper::health::dir::Role;
use dirkeeper::health::event::Event;
use dirkeeper::health::policy::Mode;
use dirkeeper::mode::MemorySwitch;

struct Printer;

impl LedgerDirsListener for Printer {
    fn event(&mut self, event: &Event) {
        let dir = event.dir.as_deref().unwrap_or(Path::new("node"));
        let why = event.reason.as_ref().map_or("", |reason| &reason.message);
        println!("{} {}: {why}", event.kind.name(), dir.display());
    }

    fn disk_full(&mut self, dir: &Path) {
        println!("the server would stop compaction in {}", dir.display());
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    become_child_if_asked();
    let mut dirs = std::env::args().skip(1);
    let (Some(journal), Some(ledgers)) = (dirs.next(), dirs.next()) else {
        return Err("give a journal directory and a ledger directory".into());
    };
    let mode = MemorySwitch::new();
    let monitor = Monitor::builder()
        .dir(Role::Journal, journal)
        .dir(Role::Ledger, ledgers)
        .listener(Printer)
        .mode_switch(mode.clone())
        .start()?;
    println!("each line of input is a write; the end of input stops the server");
    for line in std::io::stdin().lines() {
        line?;
        match mode.now().mode {
            Mode::Writable => println!("write taken"),
            Mode::ReadOnly => println!("write refused: {}", mode.reason()),
        }
    }
    monitor.stop();
    Ok(())
}

//! Looks that were refused as on a read-only file system while the mount table calls it writable.
//! Somebody is remounting it, which the kernel says last, or it gave the file system up, or neither:
//! the look waits for what the table says, so that it is understood by it.

use std::io;
use std::time::Duration;

use nix::errno::Errno;

use crate::health::dir::DirId;

use super::super::look::Found;
use super::watched::Watched;
use super::{Control, HEARTBEAT};

/// A look that waits for the table.
pub(super) struct Held {
    found: Found,
    since: Duration,
}

impl Watched {
    /// The table says why writing is refused.
    fn is_explained(&self) -> bool {
        let mount = self.mount.as_ref();
        mount.is_some_and(|mount| mount.read_only || mount.emergency.is_some())
    }

    /// One refusal that nobody explained is enough: those that follow are as old as they look.
    fn is_doubtful(&self, found: &Found) -> bool {
        let errno = found.look.failure.as_ref().and_then(|failed| failed.errno);
        errno == Some(Errno::EROFS as i32)
            && self.mount.is_some()
            && !self.is_explained()
            && !self.unexplained
    }
}

impl Control {
    /// Takes in a look, now or when the table explains it.
    pub(super) fn looked(&mut self, dir: DirId, found: Found) -> io::Result<()> {
        let since = self.time.clock.elapsed();
        match self.dirs.get_mut(&dir) {
            Some(watched) if watched.is_doubtful(&found) => {
                watched.held = Some(Held { found, since });
                self.kernel.doubt();
                Ok(())
            }
            _ => self.say_look(dir, found),
        }
    }

    /// After news of its mount.
    pub(super) fn release_if_explained(&mut self, dir: DirId) -> io::Result<()> {
        match self.dirs.get_mut(&dir) {
            Some(watched) if watched.is_explained() => self.release(dir),
            _ => Ok(()),
        }
    }

    /// Nothing is held for two heartbeats: the thread that reads the table may be stuck on another
    /// disk. Not less than one either, which a remount takes to write what the disk has not yet.
    pub(super) fn release_unexplained(&mut self, now: Duration) -> io::Result<()> {
        let is_over = |held: &Held| held.since + HEARTBEAT <= now;
        let dirs = self.dirs.iter_mut();
        let dirs = dirs.filter(|(_, each)| each.held.as_ref().is_some_and(is_over));
        let dirs = dirs.map(|(dir, each)| {
            each.unexplained = true;
            *dir
        });
        let dirs: Vec<DirId> = dirs.collect();
        dirs.into_iter().try_for_each(|dir| self.release(dir))
    }

    fn release(&mut self, dir: DirId) -> io::Result<()> {
        let watched = self.dirs.get_mut(&dir);
        match watched.and_then(|watched| watched.held.take()) {
            Some(held) => self.say_look(dir, held.found),
            None => Ok(()),
        }
    }
}

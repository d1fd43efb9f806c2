//! What the kernel tells by itself: changes of the mount table. Watched from a thread of its own,
//! because the table's text is made by the file systems, and one of them (btrfs, which looks up the
//! name of its subvolume) may have to ask its disk.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::clock::Clock;

use super::mount::Table;

/// The kernel wakes us for mounts, unmounts and remounts, but not when a file system gives itself
/// up (`emergency_ro`): for that the table is read this often, which keeps the budget of 100 ms.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(80);

/// A host with thousands of mounts takes milliseconds to write its table: then it is read less
/// often, so that no more than one part in this many of a core goes into it ...
const SHARE_OF_A_CORE: u32 = 2000;

/// ... but always within the second in which a file system that gave itself up must be noticed.
const LONGEST_INTERVAL: Duration = Duration::from_millis(800);

/// Needs little: the text is on the heap.
const STACK: usize = 64 * 1024;

/// Hands the table to `changed` now and after each change, until that says that nobody listens.
///
/// # Errors
/// There is no mount table, or the system gives us no thread.
pub(super) fn watch_mounts(
    clock: Clock,
    changed: impl Fn(Table) -> bool + Send + 'static,
) -> io::Result<()> {
    let file = File::open("/proc/self/mountinfo")?;
    let thread = thread::Builder::new()
        .name("mounts".into())
        .stack_size(STACK);
    thread
        .spawn(move || watch(file, &clock, &changed))
        .map(drop)
}

/// A table that cannot be read (the kernel lacks memory for its text) is read again later: without it
/// every unmount would go unseen.
fn watch(mut file: File, clock: &Clock, changed: &dyn Fn(Table) -> bool) -> Option<()> {
    let (mut text, mut last) = (Vec::new(), Vec::new());
    loop {
        let before = clock.elapsed();
        text.clear();
        let read = file.rewind().and_then(|()| file.read_to_end(&mut text));
        let cost = clock.elapsed().saturating_sub(before);
        if read.is_ok() && text != last {
            if !changed(Table::parse(&text)) {
                return None;
            }
            std::mem::swap(&mut text, &mut last);
        }
        let wait = (cost * SHARE_OF_A_CORE).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL);
        let wait = PollTimeout::try_from(wait).ok()?;
        let events = PollFlags::POLLPRI | PollFlags::POLLERR;
        match poll(&mut [PollFd::new(file.as_fd(), events)], wait) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return None,
        }
    }
}

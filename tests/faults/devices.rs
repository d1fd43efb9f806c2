//! Devices and daemons that answer wrongly, slowly or not at all: F09 to F11, F14 to F16, F21, F22, F33,
//! F37.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;

use crate::harness::agent::{Event, PATIENCE, Plan};
use crate::harness::bench::Bench;
use crate::harness::dying_disk::DyingDisk;
use crate::harness::memory_fs::{Effect, MemoryFs, Numbers, Operation};
use crate::harness::run::{pass, wait_for};

const SECOND: Duration = Duration::from_secs(1);
/// As all tests configure them.
const DWELL: Duration = Duration::from_secs(2);
const INTERVAL: Duration = Duration::from_secs(10);
/// The next probe, and more of them until the dwell time is over.
const RECOVERED: Duration = Duration::from_secs(10 + 2 + 1);
const DEADLINE: Duration = Duration::from_secs(5);
/// Statvfs of a network file system, FUSE among them, is asked so often.
const NETWORK_SPACE_INTERVAL: Duration = Duration::from_secs(5);

/// A device does this from now on, and its directory is failed with this cause; then it works again
/// (F33), and so does the directory, without a restart.
fn fails(bench: &Bench, effects: &[(Operation, Effect)], cause: &str) {
    // Without a journal, whose abort is another fault (F08) and may come first.
    let dying = DyingDisk::without_journal(bench, "failing", 64);
    let dir = dying.disk.path();
    let agent = Plan::new(bench).dir(dir).start();
    let from = bench.now();
    for (operation, effect) in effects {
        dying.device.set(*operation, *effect);
    }
    let event = agent.event("diskFailed", dir);
    bench.noticed(&event, from, INTERVAL + SECOND * 3);
    assert_eq!(event.cause(), cause);
    let repaired = bench.now();
    dying.device.release();
    let event = agent.event("diskRecovered", dir);
    bench.told(&event, repaired, DWELL, RECOVERED);
    assert_eq!(event.cause(), cause, "the cause is what has ended");
    assert_eq!(agent.names(dir), ["diskFailed", "diskRecovered"]);
    agent.finish(bench);
}

/// F09: writes end with EIO.
pub(crate) fn failing_writes(bench: &Bench) {
    let error = Effect::Fail(Errno::EIO);
    fails(
        bench,
        &[(Operation::Write, error), (Operation::Fsync, error)],
        "io",
    );
}

/// F10: only reads end with EIO.
pub(crate) fn failing_reads(bench: &Bench) {
    fails(bench, &[(Operation::Read, Effect::Fail(Errno::EIO))], "io");
}

/// F11: other bytes come back than were written.
pub(crate) fn corrupting(bench: &Bench) {
    // btrfs compares its own sums first, and refuses the read.
    let cause = match bench.kind() {
        "btrfs" => "io",
        _ => "corrupt",
    };
    fails(bench, &[(Operation::Write, Effect::Corrupt)], cause);
}

/// F14: statfs is never answered.
pub(crate) fn statfs_hangs(bench: &Bench) {
    let odd = MemoryFs::new(bench, "silent");
    let agent = Plan::new(bench).dir(odd.path()).start();
    let from = bench.now();
    odd.set(Operation::Statfs, Effect::Hold);
    let event = agent.event("diskHung", odd.path());
    bench.noticed(&event, from, NETWORK_SPACE_INTERVAL + DEADLINE + SECOND);
    assert_eq!(agent.names(odd.path()), ["diskHung"]);
    agent.finish(bench);
}

/// F15: the daemon of a FUSE mount is killed.
pub(crate) fn daemon_killed(bench: &Bench) {
    let odd = MemoryFs::new(bench, "orphaned");
    let agent = Plan::new(bench).dir(odd.path()).start();
    let from = bench.now();
    odd.disconnect();
    let event = agent.event("diskFailed", odd.path());
    bench.noticed(&event, from, SECOND * 6);
    assert_eq!(event.cause(), "disconnected");
    assert_eq!(agent.names(odd.path()), ["diskFailed"]);
    agent.finish(bench);
}

/// F16: every sync takes 300 ms for two minutes; where the limits are not strict, for two probes more
/// than it takes to say so.
pub(crate) fn slow_syncs(bench: &Bench) {
    let odd = MemoryFs::new(bench, "slow");
    let agent = Plan::new(bench).dir(odd.path()).start();
    let from = bench.now();
    odd.set(Operation::Fsync, Effect::Delay(Duration::from_millis(300)));
    let event = agent.event("diskSlow", odd.path());
    bench.noticed(&event, from, INTERVAL * 3 + SECOND);
    assert_eq!(event.json["axis"], "latency");
    let rest = Duration::from_secs(120).saturating_sub(bench.since(from));
    pass(if bench.is_strict() {
        rest
    } else {
        INTERVAL * 2
    });
    assert_eq!(agent.names(odd.path()), ["diskSlow"]);
    agent.finish(bench);
}

/// F16 among siblings: of six file systems of a kind one takes 120 ms for each sync, which is below the
/// limit and far from what the others take.
pub(crate) fn one_of_six_is_slow(bench: &Bench) {
    /// Siblings are compared so often, whatever the interval.
    const ROUND: Duration = Duration::from_secs(5);
    /// Five probes of nine move the middle.
    const MOVED: Duration = Duration::from_secs(5);
    let all: Vec<MemoryFs> = (0..6)
        .map(|number| MemoryFs::new(bench, &format!("sibling{number}")))
        .collect();
    let plan = Plan::new(bench).set("interval", "1s");
    let plan = all.iter().fold(plan, |plan, disk| plan.dir(disk.path()));
    let agent = plan.start();
    let (odd, others) = (&all[0], &all[1..]);
    let from = bench.now();
    odd.set(Operation::Fsync, Effect::Delay(Duration::from_millis(120)));
    let event = agent.event("diskSlow", odd.path());
    bench.noticed(&event, from, MOVED + ROUND * 3 + SECOND);
    assert_eq!(event.json["axis"], "latency");
    let message = event.json["cause"]["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("sync takes 1"), "{message}");
    assert!(
        message.ends_with("(5 network file systems): an outlier"),
        "{message}"
    );
    let ended = bench.now();
    odd.release();
    let event = agent.event("diskRecovered", odd.path());
    bench.told(&event, ended, DWELL, MOVED + ROUND * 2 + SECOND);
    assert_eq!(event.json["axis"], "latency");
    assert_eq!(agent.names(odd.path()), ["diskSlow", "diskRecovered"]);
    let others: Vec<&Path> = others.iter().map(MemoryFs::path).collect();
    agent.assert_quiet(&others);
    agent.finish(bench);
}

/// F21: writes end with EDQUOT while space is free.
pub(crate) fn quota_exceeded(bench: &Bench) {
    let odd = MemoryFs::new(bench, "limited");
    let agent = Plan::new(bench).dir(odd.path()).start();
    let from = bench.now();
    odd.set(Operation::Write, Effect::Fail(Errno::EDQUOT));
    let event = agent.event("diskFull", odd.path());
    bench.noticed(&event, from, INTERVAL + SECOND * 3);
    assert_eq!(event.cause(), "quota");
    assert_eq!(agent.names(odd.path()), ["diskFull"]);
    agent.finish(bench);
}

/// F22: a file system reports size 0 while writes work, the probe's too: unknown at every look, from the
/// first answer on.
pub(crate) fn size_zero(bench: &Bench) {
    let odd = MemoryFs::new(bench, "no-size");
    odd.report(Numbers { blocks: 0, free: 0 });
    let agent = Plan::new(bench)
        .set("interval", "2s")
        .dir(odd.path())
        .with_broken_dirs()
        .start();
    fs::write(odd.path().join("file"), "written").unwrap();
    let mut probed = BTreeSet::new();
    let verdict = wait_for("the third probe that writes", PATIENCE, || {
        let verdict = agent.dir(odd.path());
        assert_eq!(verdict["status"], "unknown");
        if probed.is_empty() && verdict["cause"].is_null() {
            // The first answer is still on its way.
            return None;
        }
        assert_eq!(verdict["cause"]["kind"], "noSize");
        let last = verdict["probe"]["lastSuccess"].as_str().map(str::to_owned);
        probed.extend(last);
        (probed.len() == 3).then_some(verdict)
    });
    bench.says("no event", &verdict, true);
    assert_eq!(agent.names(odd.path()), [""; 0]);
    agent.finish(bench);
}

/// F37: a directory crosses warn while it is slow and becomes full while it hangs; each axis has its
/// own event.
pub(crate) fn axes_are_independent(bench: &Bench) {
    const BLOCKS: u64 = 100_000;
    let at = |percent: u64| Numbers {
        blocks: BLOCKS,
        free: BLOCKS * (100 - percent) / 100,
    };
    let odd = MemoryFs::new(bench, "everything");
    odd.report(at(50));
    let agent = Plan::new(bench)
        .set("interval", "1s")
        .dir(odd.path())
        .start();
    let axis = |event: &Event| event.json["axis"].as_str().unwrap_or_default().to_owned();
    odd.set(Operation::Fsync, Effect::Delay(Duration::from_millis(400)));
    assert_eq!(axis(&agent.event("diskSlow", odd.path())), "latency");
    odd.report(at(92));
    assert_eq!(axis(&agent.event("diskAlmostFull", odd.path())), "space");
    odd.set(Operation::Fsync, Effect::Hold);
    let hung = agent.event("diskHung", odd.path());
    assert_eq!(axis(&hung), "access");
    odd.report(at(97));
    // Whether it is seen while the sync hangs or right after is the prober's business.
    pass(NETWORK_SPACE_INTERVAL);
    odd.release();
    assert_eq!(axis(&agent.event("diskFull", odd.path())), "space");
    let access_again = |event: &Event| event.name == "diskRecovered" && axis(event) == "access";
    agent.wait_status(odd.path(), "full");
    let events = agent.events();
    let own: Vec<&Event> = events
        .iter()
        .filter(|event| event.dir.as_deref() == Some(odd.path()))
        .collect();
    assert_eq!(own.iter().filter(|event| access_again(event)).count(), 1);
    for name in ["diskSlow", "diskAlmostFull", "diskHung", "diskFull"] {
        assert_eq!(
            own.iter().filter(|event| event.name == name).count(),
            1,
            "{name}: {own:?}"
        );
    }
    agent.finish(bench);
}

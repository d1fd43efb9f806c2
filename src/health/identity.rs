//! Is it still the same disk? Compares what a look found with the pin from the first good round.
//! The device number means something within one boot only; across boots it is the file system's
//! UUID and the bookie's cookie. A missing mount is told apart from a wrong one.

use std::path::{Path, PathBuf};

use super::dir::path_text;
use super::observation::{Cookie, Device, Identity, Mount, Operation};
use super::status::{AccessStatus, Cause, Reason};

/// What a directory was when it was first seen well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// Device, file system, cookie, resolved path.
    pub identity: Identity,
    /// Mount point under it.
    pub mount_point: PathBuf,
    /// What of its file system is mounted there: `/`, or another directory of a bind mount.
    pub mount_root: PathBuf,
    /// Device number as the mount table has it; differs from the directory's own on btrfs and
    /// overlay file systems.
    pub mount_device: Device,
    /// File system type.
    pub fs_type: String,
}

/// The outcome of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The same. `Some` when the pin should be brought up to date (new boot, new device number,
    /// cookie learnt).
    Same(Option<Box<Pin>>),
    /// Vanished or replaced, and why.
    Differs(AccessStatus, Reason),
}

/// Compares what a look and the mount table show with the pin.
#[must_use]
pub fn compare(pin: &Pin, seen: &Identity, mount: &Mount) -> Verdict {
    // Nearly every look of a life ends here, and nothing is copied for it.
    if is_all_known(pin, seen, mount) {
        return Verdict::Same(None);
    }
    let known = &pin.identity;
    if let Some(text) = other_bookie(&known.cookie, &seen.cookie) {
        return differs(AccessStatus::Replaced, Operation::Cookie, text);
    }
    if !same_file_system(pin, seen, mount) || is_another_part(pin, mount) {
        return missing_or_wrong(pin, mount);
    }
    if known.canonical != seen.canonical {
        let (was, is) = (path_text(&known.canonical), path_text(&seen.canonical));
        let text = format!("the path led to {was} and now leads to {is}");
        return differs(AccessStatus::Replaced, Operation::Open, text);
    }
    let learnt = learn(pin, seen, mount);
    Verdict::Same((learnt != *pin).then(|| Box::new(learnt)))
}

/// What the mount table alone shows: enough to say that a mount is gone or covered, never that
/// all is well. None when it is the pinned device, and when it may be the pinned file system under
/// another number, as after a lost cable or on another loop device: then the next look tells.
#[must_use]
pub fn compare_mount(pin: &Pin, boot_id: &str, mount: &Mount) -> Option<(AccessStatus, Reason)> {
    let known = &pin.identity;
    let same_device = pin.mount_device == mount.device;
    if known.boot_id != boot_id || (same_device && !is_another_part(pin, mount)) {
        return None;
    }
    let lasting = known.uuid.is_some() || fsid_is_lasting(&pin.fs_type);
    let may_be_same = lasting && pin.fs_type == mount.fs_type && pin.mount_point == mount.point;
    match missing_or_wrong(pin, mount) {
        Verdict::Differs(status, reason) if !may_be_same => Some((status, reason)),
        Verdict::Differs(..) | Verdict::Same(_) => None,
    }
}

/// A directory that must be a mount point and is not.
#[must_use]
pub fn not_mounted(path: &Path, mount: &Mount) -> Option<Reason> {
    if mount.point == path {
        return None;
    }
    let (path, point) = (path_text(path), path_text(&mount.point));
    Some(Reason {
        cause: Cause::Missing,
        operation: Operation::Mountinfo,
        errno: None,
        message: format!(
            "nothing is mounted at {path}: it is a folder of the file system at {point}, and require_mount is set"
        ),
    })
}

/// The pin that a good look makes.
#[must_use]
pub fn pin(seen: &Identity, mount: &Mount) -> Pin {
    Pin {
        identity: seen.clone(),
        mount_point: mount.point.clone(),
        mount_root: mount.root.clone(),
        mount_device: mount.device,
        fs_type: mount.fs_type.clone(),
    }
}

/// Nothing that was seen differs from the pin or is new.
fn is_all_known(pin: &Pin, seen: &Identity, mount: &Mount) -> bool {
    let known = &pin.identity;
    known.device.is_some()
        && known.device == seen.device
        && known.fsid == seen.fsid
        && known.boot_id == seen.boot_id
        && same_path(&known.canonical, &seen.canonical)
        && (seen.uuid.is_none() || seen.uuid == known.uuid)
        && (!matches!(seen.cookie, Cookie::Present { .. }) || seen.cookie == known.cookie)
        && pin.mount_device == mount.device
        && same_path(&pin.mount_point, &mount.point)
        && same_path(&pin.mount_root, &mount.root)
        && pin.fs_type == mount.fs_type
}

/// Byte for byte, which is quicker than by components, and what differs so is compared again.
fn same_path(one: &Path, other: &Path) -> bool {
    one.as_os_str() == other.as_os_str()
}

fn learn(pin: &Pin, seen: &Identity, mount: &Mount) -> Pin {
    let mut learnt = self::pin(seen, mount);
    // The id of the mount changes with each remount at the same place and tells no disk apart.
    learnt.identity.mount_id = pin.identity.mount_id.or(seen.mount_id);
    if !matches!(seen.cookie, Cookie::Present { .. }) {
        learnt.identity.cookie = pin.identity.cookie.clone();
    }
    if seen.uuid.is_none() {
        learnt.identity.uuid.clone_from(&pin.identity.uuid);
    }
    learnt
}

/// Two cookies of two bookies, or of two clusters. A cookie that appears, disappears or cannot be
/// read is not a proof of another disk.
fn other_bookie(known: &Cookie, seen: &Cookie) -> Option<String> {
    let (
        Cookie::Present {
            instance_id,
            bookie_host,
        },
        Cookie::Present {
            instance_id: seen_instance,
            bookie_host: seen_host,
        },
    ) = (known, seen)
    else {
        return None;
    };
    if bookie_host != seen_host {
        return Some(format!(
            "the cookie is of bookie {seen_host}, it was of {bookie_host}"
        ));
    }
    if instance_id != seen_instance && !instance_id.is_empty() {
        return Some(format!(
            "the cookie is of cluster instance {seen_instance}, it was of {instance_id}"
        ));
    }
    None
}

/// The strongest evidence that both sides have decides.
fn same_file_system(pin: &Pin, seen: &Identity, mount: &Mount) -> bool {
    let known = &pin.identity;
    if let (Some(was), Some(is)) = (&known.uuid, &seen.uuid) {
        return was == is;
    }
    let same_boot = known.boot_id == seen.boot_id;
    let same_id = pin.fs_type == mount.fs_type && known.fsid == seen.fsid;
    if same_boot && known.device.is_some() && known.device == seen.device {
        // The same number with another file system on it: it was made anew.
        return same_id || known.fsid == 0;
    }
    if known.fsid != 0 && fsid_is_lasting(&pin.fs_type) {
        return same_id;
    }
    if let (Cookie::Present { .. }, Cookie::Present { .. }) = (&known.cookie, &seen.cookie) {
        // `other_bookie` has compared them.
        return true;
    }
    // Nothing lasting is known of either: across boots the mount point has to do.
    !same_boot && pin.mount_point == mount.point
}

/// The right file system shows another of its directories at the path: a bind mount came or went.
/// Asked only when the mount point is another one, because a root is called anew when it is renamed.
fn is_another_part(pin: &Pin, mount: &Mount) -> bool {
    let within = |root: &Path, point: &Path| {
        let rest = pin.identity.canonical.strip_prefix(point).ok()?;
        Some(root.join(rest))
    };
    let was = within(&pin.mount_root, &pin.mount_point);
    let is = within(&mount.root, &mount.point);
    pin.mount_point != mount.point && was.is_some() && is.is_some() && was != is
}

/// File systems whose `f_fsid` is made from their UUID; elsewhere it is made from the device
/// number (xfs) or drawn at mount time (tmpfs). See `ext4_statfs`, `btrfs_statfs` in the kernel.
fn fsid_is_lasting(fs_type: &str) -> bool {
    matches!(fs_type, "ext2" | "ext3" | "ext4" | "btrfs" | "zfs")
}

fn missing_or_wrong(pin: &Pin, mount: &Mount) -> Verdict {
    let (pinned, point) = (&pin.mount_point, &mount.point);
    if pinned != point && pinned.starts_with(point) {
        let text = format!(
            "nothing is mounted at {} any more: the path is now a folder of the file system at {}",
            path_text(pinned),
            path_text(point)
        );
        return Verdict::Differs(AccessStatus::Vanished, reason(Cause::Missing, text));
    }
    let text = format!(
        "{} ({}) is mounted at {}, where {} was",
        mount.source,
        mount.fs_type,
        path_text(point),
        match pin.identity.device {
            Some(device) => format!("device {}:{}", device.major, device.minor),
            None => "another file system".to_owned(),
        }
    );
    Verdict::Differs(AccessStatus::Replaced, reason(Cause::WrongDevice, text))
}

fn differs(status: AccessStatus, operation: Operation, message: String) -> Verdict {
    let cause = Cause::WrongDevice;
    Verdict::Differs(
        status,
        Reason {
            cause,
            operation,
            errno: None,
            message,
        },
    )
}

fn reason(cause: Cause, message: String) -> Reason {
    Reason {
        cause,
        operation: Operation::Mountinfo,
        errno: None,
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::super::observation::Medium;
    use super::*;

    fn mount(point: &str, minor: u32, fs_type: &str) -> Mount {
        Mount {
            id: 7,
            device: Device { major: 8, minor },
            root: "/".into(),
            point: point.into(),
            source: format!("/dev/sd{minor}"),
            fs_type: fs_type.to_owned(),
            options: "rw".to_owned(),
            read_only: false,
            emergency: None,
            medium: Medium::Unknown,
        }
    }

    fn seen(minor: u32, fsid: u64, boot: &str) -> Identity {
        Identity {
            device: Some(Device { major: 8, minor }),
            mount_id: Some(7),
            fsid,
            canonical: "/mnt/l1".into(),
            boot_id: boot.to_owned(),
            ..Identity::default()
        }
    }

    fn cookie(host: &str, instance: &str) -> Cookie {
        Cookie::Present {
            instance_id: instance.to_owned(),
            bookie_host: host.to_owned(),
        }
    }

    fn word(verdict: Verdict) -> &'static str {
        match verdict {
            Verdict::Same(None) => "same",
            Verdict::Same(Some(_)) => "same, learnt",
            Verdict::Differs(status, _) => status.name(),
        }
    }

    #[test]
    fn within_a_boot_the_device_tells_and_the_mount_point_tells_gone_from_wrong() {
        let pin = pin(&seen(1, 11, "a"), &mount("/mnt/l1", 1, "xfs"));
        let cases = [
            (seen(1, 11, "a"), mount("/mnt/l1", 1, "xfs"), "same"),
            (seen(1, 12, "a"), mount("/mnt/l1", 1, "xfs"), "replaced"),
            (seen(2, 12, "a"), mount("/", 2, "xfs"), "vanished"),
            (seen(2, 12, "a"), mount("/mnt/l1", 2, "xfs"), "replaced"),
        ];
        for (seen, mount, expected) in cases {
            assert_eq!(word(compare(&pin, &seen, &mount)), expected, "{seen:?}");
        }
    }

    #[test]
    fn across_boots_the_uuid_or_the_lasting_id_tells_and_the_device_may_change() {
        let ext4 = pin(&seen(1, 11, "a"), &mount("/mnt/l1", 1, "ext4"));
        let moved = compare(&ext4, &seen(2, 11, "b"), &mount("/mnt/l1", 2, "ext4"));
        assert_eq!(word(moved), "same, learnt");
        let other = compare(&ext4, &seen(1, 99, "b"), &mount("/mnt/l1", 1, "ext4"));
        assert_eq!(word(other), "replaced");
        let gone = compare(&ext4, &seen(1, 99, "b"), &mount("/", 1, "ext4"));
        assert_eq!(word(gone), "vanished");
        let xfs = pin(&seen(1, 11, "a"), &mount("/mnt/l1", 1, "xfs"));
        let same = compare(&xfs, &seen(2, 22, "b"), &mount("/mnt/l1", 2, "xfs"));
        assert_eq!(word(same), "same, learnt");
    }

    #[test]
    fn a_cookie_that_appears_is_learnt_and_another_bookies_is_another_disk() {
        let mut first = seen(1, 11, "a");
        first.cookie = Cookie::Absent;
        let place = mount("/mnt/l1", 1, "ext4");
        let mut pinned = pin(&first, &place);
        let mut with_cookie = first.clone();
        with_cookie.cookie = cookie("10.0.0.1:3181", "i1");
        let Verdict::Same(Some(learnt)) = compare(&pinned, &with_cookie, &place) else {
            panic!("a new cookie is no other disk");
        };
        pinned = *learnt;
        assert_eq!(word(compare(&pinned, &first, &place)), "same");
        for other in [cookie("10.0.0.2:3181", "i1"), cookie("10.0.0.1:3181", "i2")] {
            with_cookie.cookie = other;
            assert_eq!(word(compare(&pinned, &with_cookie, &place)), "replaced");
        }
    }

    #[test]
    fn the_mount_table_alone_can_say_gone_but_never_the_same() {
        let pin = pin(&seen(1, 11, "a"), &mount("/mnt/l1", 1, "ext4"));
        assert_eq!(compare_mount(&pin, "a", &mount("/mnt/l1", 1, "ext4")), None);
        let (status, _) = compare_mount(&pin, "a", &mount("/", 9, "ext4")).unwrap();
        assert_eq!(status, AccessStatus::Vanished);
        assert_eq!(compare_mount(&pin, "b", &mount("/", 9, "ext4")), None);
    }

    #[test]
    fn a_bind_mount_that_goes_or_comes_shows_another_part_of_the_same_file_system() {
        let bound = |root: &str, point: &str| Mount {
            root: root.into(),
            ..mount(point, 1, "ext4")
        };
        let word = |was: &Mount, is: &Mount| {
            let pin = pin(&seen(1, 11, "a"), was);
            let early = compare_mount(&pin, "a", is).map_or("?", |(status, _)| status.name());
            let late = word(compare(&pin, &seen(1, 11, "a"), is));
            format!("{early} {late}")
        };
        let (whole, bind) = (bound("/", "/"), bound("/data/l1", "/mnt/l1"));
        assert_eq!(word(&bind, &whole), "vanished vanished");
        assert_eq!(word(&whole, &bind), "replaced replaced");
        assert_eq!(word(&whole, &bound("/mnt/l1", "/mnt/l1")), "? same, learnt");
        assert_eq!(word(&bind, &bound("/renamed", "/mnt/l1")), "? same, learnt");
    }

    #[test]
    fn a_file_system_that_comes_back_under_another_number_is_left_to_the_look() {
        let word = |fs_type: &str, now: &str| {
            let pin = pin(&seen(1, 11, "a"), &mount("/mnt/l1", 1, fs_type));
            let verdict = compare_mount(&pin, "a", &mount("/mnt/l1", 2, now));
            verdict.map_or("?", |(status, _)| status.name())
        };
        assert_eq!(word("ext4", "ext4"), "?");
        assert_eq!(word("ext4", "xfs"), "replaced");
        assert_eq!(word("tmpfs", "tmpfs"), "replaced");
    }
}

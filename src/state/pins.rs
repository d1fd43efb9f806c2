//! Identity pins as the store keeps them: a version, then postcard. A pin that cannot be read is
//! no pin: the directory's identity is learnt anew.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::health::dir::Role;
use crate::health::identity::Pin;
use crate::health::observation::{Cookie, Device, Identity};

/// Raised when the fields below change.
const VERSION: u8 = 2;

#[derive(Serialize, Deserialize)]
struct Record {
    device: Option<(u32, u32)>,
    mount_id: Option<u64>,
    fsid: u64,
    uuid: Option<String>,
    cookie: Option<(String, String)>,
    canonical: Vec<u8>,
    boot_id: String,
    mount_point: Vec<u8>,
    mount_root: Vec<u8>,
    mount_device: (u32, u32),
    fs_type: String,
}

/// The key of a directory's pin: its role and its configured path.
#[must_use]
pub fn key(role: Role, path: &Path) -> Vec<u8> {
    let mut key = format!("{}:", role.name()).into_bytes();
    key.extend_from_slice(path.as_os_str().as_bytes());
    key
}

/// A pin as it is stored.
#[must_use]
pub fn encode(pin: &Pin) -> Vec<u8> {
    let identity = &pin.identity;
    let numbers = |device: Device| (device.major, device.minor);
    let record = Record {
        device: identity.device.map(numbers),
        mount_id: identity.mount_id,
        fsid: identity.fsid,
        uuid: identity.uuid.clone(),
        cookie: match &identity.cookie {
            Cookie::Present {
                instance_id,
                bookie_host,
            } => Some((instance_id.clone(), bookie_host.clone())),
            Cookie::NotRead | Cookie::Absent | Cookie::Unreadable(_) => None,
        },
        canonical: bytes(&identity.canonical),
        boot_id: identity.boot_id.clone(),
        mount_point: bytes(&pin.mount_point),
        mount_root: bytes(&pin.mount_root),
        mount_device: numbers(pin.mount_device),
        fs_type: pin.fs_type.clone(),
    };
    // Only a type that postcard cannot write would fail, and there is none above.
    postcard::to_extend(&record, vec![VERSION]).unwrap_or_default()
}

/// A stored pin; none when it is of another version or damaged.
#[must_use]
pub fn decode(value: &[u8]) -> Option<Pin> {
    let (version, body) = value.split_first()?;
    if *version != VERSION {
        return None;
    }
    let record: Record = postcard::from_bytes(body).ok()?;
    let device = |(major, minor)| Device { major, minor };
    let path = |bytes| OsString::from_vec(bytes).into();
    Some(Pin {
        identity: Identity {
            device: record.device.map(device),
            mount_id: record.mount_id,
            fsid: record.fsid,
            uuid: record.uuid,
            cookie: match record.cookie {
                Some((instance_id, bookie_host)) => Cookie::Present {
                    instance_id,
                    bookie_host,
                },
                None => Cookie::Absent,
            },
            canonical: path(record.canonical),
            boot_id: record.boot_id,
        },
        mount_point: path(record.mount_point),
        mount_root: path(record.mount_root),
        mount_device: device(record.mount_device),
        fs_type: record.fs_type,
    })
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mutation::edited;

    fn a_pin() -> Pin {
        Pin {
            identity: Identity {
                device: Some(Device { major: 8, minor: 1 }),
                mount_id: Some(33),
                fsid: u64::MAX,
                uuid: Some("b5f2".to_owned()),
                cookie: Cookie::Present {
                    instance_id: "i".to_owned(),
                    bookie_host: "10.0.0.1:3181".to_owned(),
                },
                canonical: OsString::from_vec(b"/mnt/\xff l1".to_vec()).into(),
                boot_id: "boot".to_owned(),
            },
            mount_point: "/mnt".into(),
            mount_root: "/@l1".into(),
            mount_device: Device { major: 0, minor: 9 },
            fs_type: "btrfs".to_owned(),
        }
    }

    proptest! {
        #[test]
        fn any_stored_bytes_are_a_pin_or_none(
            bytes in prop_oneof![any::<Vec<u8>>(), edited(encode(&a_pin()))],
        ) {
            if let Some(pin) = decode(&bytes) {
                prop_assert_eq!(decode(&encode(&pin)), Some(pin));
            }
        }
    }

    #[test]
    fn a_pin_comes_back_as_it_was_and_damage_is_no_pin() {
        let pin = a_pin();
        let stored = encode(&pin);
        assert_eq!(decode(&stored), Some(pin));
        for length in 0..stored.len() {
            assert_eq!(decode(&stored[..length]), None, "cut to {length}");
        }
        let mut other = stored.clone();
        other[0] = VERSION + 1;
        assert_eq!(decode(&other), None);
    }
}

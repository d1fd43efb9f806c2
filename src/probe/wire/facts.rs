//! What was observed, in the form in which it crosses the pipe: one wire type for each value of
//! `health::observation`, and the conversions between both. No message is defined here.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::health::observation::{
    BookieFiles, Cookie, Device, Failure, Finding, Identity, JournalFile, Look, Mark, Medium,
    Mount, Space,
};

use super::{WirePath, device_of, operation_code, operation_of, pressure_code, pressure_of};

/// [`Look`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireLook {
    durations: Vec<(u8, Duration)>,
    space: Option<[u64; 4]>,
    identity: Option<WireIdentity>,
    probed: bool,
    bookie_files: Option<Box<WireBookieFiles>>,
    ballast: Option<u64>,
    pressure: Option<(u8, u8)>,
    failure: Option<WireFailure>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct WireBookieFiles {
    /// Journal, file, offset.
    marks: Vec<(Option<u32>, u64, u64)>,
    /// Number, length.
    journals: Vec<(u64, u64)>,
    left_out: u64,
    unreadable: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct WireIdentity {
    device: Option<(u32, u32)>,
    mount_id: Option<u64>,
    fsid: u64,
    uuid: Option<String>,
    cookie: WireCookie,
    canonical: WirePath,
    boot_id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum WireCookie {
    NotRead,
    Absent,
    Present { instance: String, bookie: String },
    Unreadable(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct WireFailure {
    operation: u8,
    errno: Option<i32>,
    detail: String,
    finding: WireFinding,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum WireFinding {
    Errno,
    WrongBytes,
    LeadsElsewhere,
    NotADirectory,
    OnlyUsRefused,
    ProberTrouble,
}

/// [`Mount`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireMount {
    id: u64,
    device: (u32, u32),
    root: WirePath,
    point: WirePath,
    source: String,
    fs_type: String,
    options: String,
    read_only: bool,
    emergency: Option<String>,
    medium: WireMedium,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum WireMedium {
    SolidState,
    Rotating,
    Network,
    Memory,
    Unknown,
}

fn numbers(device: Device) -> (u32, u32) {
    (device.major, device.minor)
}

impl From<Look> for WireLook {
    fn from(look: Look) -> Self {
        let durations = look.durations.iter();
        WireLook {
            durations: durations
                .map(|(operation, took)| (operation_code(*operation), *took))
                .collect(),
            space: look
                .space
                .map(|space| [space.size, space.available, space.inodes, space.inodes_free]),
            identity: look.identity.map(WireIdentity::from),
            probed: look.probed,
            bookie_files: look.bookie_files.map(|files| Box::new(files.into())),
            ballast: look.ballast,
            pressure: look.pressure.map(pressure_code),
            failure: look.failure.map(WireFailure::from),
        }
    }
}

impl From<WireLook> for Look {
    fn from(look: WireLook) -> Self {
        let durations = look.durations.into_iter();
        Look {
            durations: durations
                .map(|(code, took)| (operation_of(code), took))
                .collect(),
            space: look
                .space
                .map(|[size, available, inodes, inodes_free]| Space {
                    size,
                    available,
                    inodes,
                    inodes_free,
                }),
            identity: look.identity.map(Identity::from),
            probed: look.probed,
            bookie_files: look.bookie_files.map(|files| BookieFiles::from(*files)),
            ballast: look.ballast,
            pressure: look.pressure.map(pressure_of),
            failure: look.failure.map(Failure::from),
        }
    }
}

impl From<BookieFiles> for WireBookieFiles {
    fn from(files: BookieFiles) -> Self {
        let marks = files.marks.into_iter();
        let journals = files.journals.into_iter();
        WireBookieFiles {
            marks: marks
                .map(|mark| (mark.journal, mark.file, mark.offset))
                .collect(),
            journals: journals.map(|file| (file.id, file.bytes)).collect(),
            left_out: files.left_out,
            unreadable: files.unreadable,
        }
    }
}

impl From<WireBookieFiles> for BookieFiles {
    fn from(files: WireBookieFiles) -> Self {
        let marks = files.marks.into_iter();
        let journals = files.journals.into_iter();
        BookieFiles {
            marks: marks
                .map(|(journal, file, offset)| Mark {
                    journal,
                    file,
                    offset,
                })
                .collect(),
            journals: journals
                .map(|(id, bytes)| JournalFile { id, bytes })
                .collect(),
            left_out: files.left_out,
            unreadable: files.unreadable,
        }
    }
}

impl From<Identity> for WireIdentity {
    fn from(identity: Identity) -> Self {
        WireIdentity {
            device: identity.device.map(numbers),
            mount_id: identity.mount_id,
            fsid: identity.fsid,
            uuid: identity.uuid,
            cookie: match identity.cookie {
                Cookie::NotRead => WireCookie::NotRead,
                Cookie::Absent => WireCookie::Absent,
                Cookie::Present {
                    instance_id,
                    bookie_host,
                } => WireCookie::Present {
                    instance: instance_id,
                    bookie: bookie_host,
                },
                Cookie::Unreadable(why) => WireCookie::Unreadable(why),
            },
            canonical: identity.canonical.as_path().into(),
            boot_id: identity.boot_id,
        }
    }
}

impl From<WireIdentity> for Identity {
    fn from(identity: WireIdentity) -> Self {
        Identity {
            device: identity.device.map(device_of),
            mount_id: identity.mount_id,
            fsid: identity.fsid,
            uuid: identity.uuid,
            cookie: match identity.cookie {
                WireCookie::NotRead => Cookie::NotRead,
                WireCookie::Absent => Cookie::Absent,
                WireCookie::Present { instance, bookie } => Cookie::Present {
                    instance_id: instance,
                    bookie_host: bookie,
                },
                WireCookie::Unreadable(why) => Cookie::Unreadable(why),
            },
            canonical: identity.canonical.into(),
            boot_id: identity.boot_id,
        }
    }
}

impl From<Failure> for WireFailure {
    fn from(failure: Failure) -> Self {
        WireFailure {
            operation: operation_code(failure.operation),
            errno: failure.errno,
            detail: failure.detail,
            finding: match failure.finding {
                Finding::Errno => WireFinding::Errno,
                Finding::WrongBytes => WireFinding::WrongBytes,
                Finding::LeadsElsewhere => WireFinding::LeadsElsewhere,
                Finding::NotADirectory => WireFinding::NotADirectory,
                Finding::OnlyUsRefused => WireFinding::OnlyUsRefused,
                Finding::ProberTrouble => WireFinding::ProberTrouble,
            },
        }
    }
}

impl From<WireFailure> for Failure {
    fn from(failure: WireFailure) -> Self {
        Failure {
            operation: operation_of(failure.operation),
            errno: failure.errno,
            detail: failure.detail,
            finding: match failure.finding {
                WireFinding::Errno => Finding::Errno,
                WireFinding::WrongBytes => Finding::WrongBytes,
                WireFinding::LeadsElsewhere => Finding::LeadsElsewhere,
                WireFinding::NotADirectory => Finding::NotADirectory,
                WireFinding::OnlyUsRefused => Finding::OnlyUsRefused,
                WireFinding::ProberTrouble => Finding::ProberTrouble,
            },
        }
    }
}

impl From<&Mount> for WireMount {
    fn from(mount: &Mount) -> Self {
        WireMount {
            id: mount.id,
            device: numbers(mount.device),
            root: mount.root.as_path().into(),
            point: mount.point.as_path().into(),
            source: mount.source.clone(),
            fs_type: mount.fs_type.clone(),
            options: mount.options.clone(),
            read_only: mount.read_only,
            emergency: mount.emergency.clone(),
            medium: match mount.medium {
                Medium::SolidState => WireMedium::SolidState,
                Medium::Rotating => WireMedium::Rotating,
                Medium::Network => WireMedium::Network,
                Medium::Memory => WireMedium::Memory,
                Medium::Unknown => WireMedium::Unknown,
            },
        }
    }
}

impl From<WireMount> for Mount {
    fn from(mount: WireMount) -> Self {
        Mount {
            id: mount.id,
            device: device_of(mount.device),
            root: mount.root.into(),
            point: mount.point.into(),
            source: mount.source,
            fs_type: mount.fs_type,
            options: mount.options,
            read_only: mount.read_only,
            emergency: mount.emergency,
            medium: match mount.medium {
                WireMedium::SolidState => Medium::SolidState,
                WireMedium::Rotating => Medium::Rotating,
                WireMedium::Network => Medium::Network,
                WireMedium::Memory => Medium::Memory,
                WireMedium::Unknown => Medium::Unknown,
            },
        }
    }
}

//! What the agent and its prober say to each other through two pipes: postcard in the frames of
//! `child::frame`, after a greeting with the version. The types here are spoken nowhere else; what
//! was observed is converted to and from `health::observation` at this edge.

mod facts;

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::child::frame;
use crate::health::ballast::Order;
use crate::health::dir::Role;
use crate::health::observation::{Device, Operation, Pressure};

pub use facts::{WireLook, WireMount};

/// Version of everything below. Raised with each change of a message: agent and prober are the
/// same file, but that file may be replaced while an agent runs, and then the next prober is newer.
pub const VERSION: u32 = 4;

/// Longest frame. The longest message holds two paths (4 KiB each at most) and one line of the
/// mount table with its options (a page each); four times that leaves room for details.
pub const MAX_FRAME: usize = 64 * 1024;

/// What the agent asks. The greeting stays first in every version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// First message.
    Greeting {
        /// The agent's [`VERSION`].
        version: u32,
        /// Lock all pages of the child in memory.
        lock_memory: bool,
    },
    /// Watch this directory, or watch it with these settings from now on.
    Watch {
        /// Which.
        dir: u32,
        /// Configured path.
        path: WirePath,
        /// Place of its role in [`Role::ALL`].
        role: u8,
        /// Write nothing before `current/VERSION` exists.
        await_cookie: bool,
        /// Write nothing unless the directory is a mount point.
        require_mount: bool,
        /// Where the path led when it was first resolved.
        pinned: Option<WirePath>,
    },
    /// Forget this directory.
    Unwatch {
        /// Which.
        dir: u32,
    },
    /// Resolve the configured path anew at the next look.
    Resolve {
        /// Which.
        dir: u32,
    },
    /// Look at it; answered by [`Answer::Looked`].
    Look {
        /// Which.
        dir: u32,
        /// How closely.
        kind: Kind,
        /// The place that the last look showed: the child writes only there.
        expected: Option<Place>,
        /// What to do with the ballast file, in a full look.
        ballast: WireOrder,
    },
}

/// How closely to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// Open and ask for the space.
    Space,
    /// And read cookie and UUID, remove leftovers.
    Full,
    /// And write, sync, read back, compare.
    Probe,
}

/// What to do with the ballast file of a directory, [`Order`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WireOrder {
    /// Nothing.
    None,
    /// Say how much it occupies.
    Measure,
    /// Make it so large.
    Fill(u64),
    /// Remove it.
    Release,
}

/// Device and mount on which a directory was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Major and minor number.
    pub device: (u32, u32),
    /// Kernel's id of the mount.
    pub mount_id: Option<u64>,
}

/// What the prober says. The greeting stays first in every version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// First message.
    Greeting {
        /// The child's [`VERSION`].
        version: u32,
    },
    /// Still here; sent when nothing else was said for half a second.
    Heartbeat,
    /// A look ended.
    Looked {
        /// Which directory.
        dir: u32,
        /// What was found.
        look: WireLook,
        /// How the probe file was read back, when it was.
        reading: Option<Reading>,
    },
    /// A look is still running; repeated with each heartbeat.
    InFlight {
        /// Which directory.
        dir: u32,
        /// Index into [`Operation::ALL`].
        operation: u8,
        /// How long, on the child's attended clock.
        age: Duration,
        /// The device has completed writes since it has been reported.
        device_writes: bool,
        /// For how long the device has held requests and completed none.
        stalled: Option<Duration>,
        /// Percent of ten seconds in which some and all tasks waited for I/O.
        pressure: Option<(u8, u8)>,
        /// The directory of the same file system whose operation this one waits for.
        behind: Option<u32>,
    },
    /// The mount table has this for the directory.
    Mounted {
        /// Which directory.
        dir: u32,
        /// Its line.
        mount: WireMount,
    },
    /// These sources work for the directory; said when it changes. Others are not mentioned.
    Sources {
        /// Which directory.
        dir: u32,
        /// Each that was tried; with the reason why it does not work.
        sources: Vec<(KernelSource, Option<String>)>,
    },
    /// A device under the directory holds requests and completes none, or does so no more.
    Stalled {
        /// Which directory.
        dir: u32,
        /// In words; none at the end.
        what: Option<String>,
    },
    /// The file system has recorded errors of its own.
    Recorded {
        /// Which directory.
        dir: u32,
        /// How many, in words; none when they were set back.
        what: Option<String>,
    },
    /// The file system had an error.
    FileSystemError {
        /// Which directory.
        dir: u32,
        /// Which error, as far as known.
        what: String,
    },
    /// Something suspicious.
    Signal {
        /// Which directory.
        dir: u32,
        /// What.
        what: String,
    },
}

/// What the kernel may tell by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum KernelSource {
    /// Errors of file systems, as they happen.
    Fanotify,
    /// Counters of requests for each device.
    Diskstats,
    /// Counters of errors that a file system keeps.
    SysfsErrors,
    /// How much of the time tasks of the machine waited for any disk.
    Psi,
}

impl KernelSource {
    /// Its name in the snapshot.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            KernelSource::Fanotify => "fanotify",
            KernelSource::Diskstats => "diskstats",
            KernelSource::SysfsErrors => "sysfs-errors",
            KernelSource::Psi => "psi",
        }
    }
}

/// How a probe file was read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reading {
    /// From the device, past the page cache.
    Direct,
    /// Perhaps from the page cache: the file system refuses direct reads.
    Buffered,
}

/// A message as one frame, appended to `out`.
///
/// # Errors
/// The message is over [`MAX_FRAME`].
pub fn encode(message: &impl Serialize, out: &mut Vec<u8>) -> io::Result<()> {
    let body = postcard::to_stdvec(message).map_err(io::Error::other)?;
    frame::write(out, &body, MAX_FRAME)
}

/// The message in a frame.
///
/// # Errors
/// It is none that this version knows.
pub fn decode<'a, Message: Deserialize<'a>>(body: &'a [u8]) -> io::Result<Message> {
    postcard::from_bytes(body).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// A path as its bytes, whatever they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WirePath(Vec<u8>);

impl From<&Path> for WirePath {
    fn from(path: &Path) -> Self {
        WirePath(path.as_os_str().as_bytes().to_vec())
    }
}

impl From<WirePath> for PathBuf {
    fn from(path: WirePath) -> Self {
        PathBuf::from(OsString::from_vec(path.0))
    }
}

/// Percents of some and full.
#[must_use]
pub const fn pressure_code(pressure: Pressure) -> (u8, u8) {
    (pressure.some, pressure.full)
}

/// The pressure of such percents.
#[must_use]
pub const fn pressure_of((some, full): (u8, u8)) -> Pressure {
    Pressure { some, full }
}

/// Place of a role in [`Role::ALL`].
#[must_use]
pub fn role_code(role: Role) -> u8 {
    let place = Role::ALL.iter().position(|each| *each == role);
    place
        .and_then(|place| u8::try_from(place).ok())
        .unwrap_or(0)
}

/// The role at a place in [`Role::ALL`]; none for a place that does not exist.
#[must_use]
pub fn role_of(code: u8) -> Option<Role> {
    Role::ALL.get(usize::from(code)).copied()
}

/// Place of an operation in [`Operation::ALL`].
#[must_use]
pub fn operation_code(operation: Operation) -> u8 {
    let place = Operation::ALL.iter().position(|each| *each == operation);
    place
        .and_then(|place| u8::try_from(place).ok())
        .unwrap_or(0)
}

/// The operation at a place in [`Operation::ALL`]; a place that does not exist is taken for the
/// prober's own trouble.
#[must_use]
pub fn operation_of(code: u8) -> Operation {
    let known = Operation::ALL.get(usize::from(code)).copied();
    known.unwrap_or(Operation::Prober)
}

/// A device from its two numbers.
#[must_use]
pub const fn device_of((major, minor): (u32, u32)) -> Device {
    Device { major, minor }
}

impl From<Order> for WireOrder {
    fn from(order: Order) -> Self {
        match order {
            Order::None => WireOrder::None,
            Order::Measure => WireOrder::Measure,
            Order::Fill(bytes) => WireOrder::Fill(bytes),
            Order::Release => WireOrder::Release,
        }
    }
}

impl From<WireOrder> for Order {
    fn from(order: WireOrder) -> Self {
        match order {
            WireOrder::None => Order::None,
            WireOrder::Measure => Order::Measure,
            WireOrder::Fill(bytes) => Order::Fill(bytes),
            WireOrder::Release => Order::Release,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::health::observation::{
        BookieFiles, Cookie, Failure, Finding, Identity, JournalFile, Look, Mark, Medium, Mount,
        Space,
    };
    use crate::mutation::edited;

    fn a_look() -> Look {
        Look {
            durations: Operation::ALL
                .into_iter()
                .map(|each| (each, Duration::from_micros(7)))
                .collect(),
            space: Some(Space {
                size: u64::MAX,
                available: 2,
                inodes: 3,
                inodes_free: 4,
            }),
            identity: Some(Identity {
                device: Some(Device { major: 8, minor: 1 }),
                mount_id: Some(31),
                fsid: 5,
                uuid: Some("3c0f".to_owned()),
                cookie: Cookie::Present {
                    instance_id: "one".to_owned(),
                    bookie_host: "two:3181".to_owned(),
                },
                canonical: PathBuf::from(OsString::from_vec(b"/mnt/\xff".to_vec())),
                boot_id: "boot".to_owned(),
            }),
            probed: true,
            bookie_files: Some(BookieFiles {
                marks: vec![Mark {
                    journal: Some(1),
                    file: 2,
                    offset: 3,
                }],
                journals: vec![JournalFile { id: 2, bytes: 4 }],
                left_out: 6,
                unreadable: Some("text".to_owned()),
            }),
            ballast: Some(8),
            pressure: Some(Pressure { some: 9, full: 7 }),
            failure: Some(Failure {
                operation: Operation::Sync,
                errno: Some(5),
                detail: "text".to_owned(),
                finding: Finding::OnlyUsRefused,
            }),
        }
    }

    #[test]
    fn a_look_and_a_mount_survive_the_pipe_whole() {
        let look = a_look();
        let mount = Mount {
            id: 31,
            device: Device { major: 0, minor: 9 },
            root: "/".into(),
            point: PathBuf::from(OsString::from_vec(b"/mnt/\xfe".to_vec())),
            source: "/dev/sda1".to_owned(),
            fs_type: "ext4".to_owned(),
            options: "rw".to_owned(),
            read_only: false,
            emergency: Some("shutdown".to_owned()),
            medium: Medium::Network,
        };
        let sent = [
            Answer::Looked {
                dir: 3,
                look: look.clone().into(),
                reading: Some(Reading::Direct),
            },
            Answer::Mounted {
                dir: 3,
                mount: (&mount).into(),
            },
        ];
        let mut pipe = Vec::new();
        for answer in &sent {
            encode(answer, &mut pipe).unwrap();
        }
        let mut pipe = &pipe[..];
        for answer in sent {
            let body = frame::read(&mut pipe, MAX_FRAME).unwrap().unwrap();
            let got: Answer = decode(&body).unwrap();
            assert_eq!(got, answer);
            match got {
                Answer::Looked { look: got, .. } => assert_eq!(Look::from(got), look),
                Answer::Mounted { mount: got, .. } => assert_eq!(Mount::from(got), mount),
                other => panic!("{other:?}"),
            }
        }
    }

    fn an_answer() -> Vec<u8> {
        let answer = Answer::Looked {
            dir: 3,
            look: a_look().into(),
            reading: Some(Reading::Direct),
        };
        postcard::to_stdvec(&answer).unwrap()
    }

    /// Whatever the versions, both sides can read the other's greeting.
    #[test]
    fn the_greetings_keep_their_bytes() {
        let mut bytes = Vec::new();
        encode(&Answer::Greeting { version: 7 }, &mut bytes).unwrap();
        assert_eq!(bytes, [2, 0, 0, 0, 0, 7]);
        bytes.clear();
        let greeting = Request::Greeting {
            version: 7,
            lock_memory: true,
        };
        encode(&greeting, &mut bytes).unwrap();
        assert_eq!(bytes, [3, 0, 0, 0, 0, 7, 1]);
    }

    proptest! {
        #[test]
        fn bytes_that_mean_nothing_are_an_error_and_no_panic(
            bytes in prop_oneof![any::<Vec<u8>>(), edited(an_answer())],
        ) {
            let _ = decode::<Answer>(&bytes).map(|answer| match answer {
                Answer::Looked { look, .. } => drop(Look::from(look)),
                Answer::Mounted { mount, .. } => drop(Mount::from(mount)),
                _ => {}
            });
            let _ = decode::<Request>(&bytes);
        }
    }
}

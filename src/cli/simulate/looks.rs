//! What a line of `simulate` in our own semantics says about one directory, turned into the
//! observations that the prober would have made. Decides nothing.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::Problem;
use super::wire::{self, Object};
use crate::health::access::errno;
use crate::health::observation::{
    Cookie, Device, Durations, Failure, Finding, Identity, InFlight, Look, Medium, Mount,
    Observation, Operation, Space,
};

/// Names of error numbers that the input may use; others are given as numbers.
const ERRNOS: [(&str, i32); 21] = [
    ("EPERM", errno::EPERM),
    ("ENOENT", errno::ENOENT),
    ("EINTR", errno::EINTR),
    ("EIO", errno::EIO),
    ("ENXIO", errno::ENXIO),
    ("EAGAIN", errno::EAGAIN),
    ("ENOMEM", errno::ENOMEM),
    ("EACCES", errno::EACCES),
    ("ENODEV", errno::ENODEV),
    ("ENOTDIR", errno::ENOTDIR),
    ("ENFILE", errno::ENFILE),
    ("EMFILE", errno::EMFILE),
    ("ENOSPC", errno::ENOSPC),
    ("EROFS", errno::EROFS),
    ("ELOOP", errno::ELOOP),
    ("EBADMSG", errno::EBADMSG),
    ("ENOTCONN", errno::ENOTCONN),
    ("ESHUTDOWN", errno::ESHUTDOWN),
    ("ESTALE", errno::ESTALE),
    ("EUCLEAN", errno::EUCLEAN),
    ("EDQUOT", errno::EDQUOT),
];

/// How long a step took that the input gives no duration for, so that no probe is slow by default.
const QUICK: Duration = Duration::from_millis(1);

/// All that is seen of a directory at one time. What is left out is as on a healthy disk.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Seen {
    #[serde(default, deserialize_with = "wire::present")]
    total: Option<u64>,
    #[serde(default, deserialize_with = "wire::present")]
    usable: Option<u64>,
    #[serde(default, deserialize_with = "wire::present")]
    inodes: Option<u64>,
    #[serde(default, deserialize_with = "wire::present")]
    inodes_free: Option<u64>,
    /// BookKeeper's word for trouble.
    #[serde(default, deserialize_with = "wire::present")]
    error: Option<BookkeeperError>,
    #[serde(default, deserialize_with = "wire::present")]
    probe: Option<Probe>,
    /// Milliseconds by step.
    #[serde(default, deserialize_with = "wire::present")]
    durations: Option<wire::Entries<u64>>,
    #[serde(default, deserialize_with = "wire::present")]
    in_flight: Option<Object<Running>>,
    #[serde(default, deserialize_with = "wire::present")]
    mount: Option<Object<MountWire>>,
    #[serde(default, deserialize_with = "wire::present")]
    cookie: Option<Object<CookieWire>>,
    #[serde(default, deserialize_with = "wire::present")]
    prober: Option<ProberWire>,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum BookkeeperError {
    Io,
    Store,
}

/// `"ok"`, `"none"`, or how it failed.
#[derive(Debug, Clone, Deserialize)]
#[serde(
    untagged,
    expecting = "probe is \"ok\", \"none\", or an object with step and errno or finding"
)]
enum Probe {
    Word(ProbeWord),
    Failed(Object<FailedProbe>),
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ProbeWord {
    Ok,
    None,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct FailedProbe {
    step: String,
    #[serde(default, deserialize_with = "wire::present")]
    errno: Option<Errno>,
    #[serde(default, deserialize_with = "wire::present")]
    finding: Option<FindingWire>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "errno is a name like \"EIO\" or a number")]
enum Errno {
    Name(String),
    Number(i32),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
enum FindingWire {
    WrongBytes,
    LeadsElsewhere,
    NotADirectory,
    OnlyUsRefused,
    ProberTrouble,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Running {
    step: String,
    /// Milliseconds.
    age: u64,
    #[serde(default, deserialize_with = "wire::present")]
    behind: Option<PathBuf>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct MountWire {
    #[serde(default, deserialize_with = "wire::present")]
    point: Option<PathBuf>,
    #[serde(default, deserialize_with = "wire::present")]
    device: Option<String>,
    #[serde(default)]
    read_only: bool,
    #[serde(default, deserialize_with = "wire::present")]
    emergency: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct CookieWire {
    instance_id: String,
    bookie_host: String,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ProberWire {
    Lost,
}

/// Where a directory is while the input does not say otherwise.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    /// One number for each file system.
    pub(super) filesystem: u32,
    pub(super) medium: Medium,
}

/// One directory's observations, checked and ready to be made again at each line.
#[derive(Debug, Clone)]
pub(super) struct Observations {
    pub(super) mount: Mount,
    pub(super) seen: Observation,
}

impl Seen {
    /// What the prober would have sent.
    pub(super) fn convert(&self, place: &Place) -> Result<Observations, Problem> {
        let path = place.path.display();
        let mount = self.mount(place)?;
        let looked = self.total.is_some() || self.inodes.is_some() || self.error.is_some();
        if let Some(Object(running)) = &self.in_flight {
            if looked || self.probe.is_some() || self.prober.is_some() {
                let what = format!("\"{path}\" has inFlight and a result");
                return Err(Problem::new(
                    what,
                    "what has not ended has no numbers and no result",
                ));
            }
            let seen = Observation::InFlight(InFlight {
                behind: running.behind.clone(),
                ..InFlight::new(
                    operation(&running.step)?,
                    Duration::from_millis(running.age),
                )
            });
            return Ok(Observations { mount, seen });
        }
        let seen = match self.prober {
            Some(ProberWire::Lost) if looked || self.probe.is_some() => {
                let what = format!("\"{path}\" has a lost prober and a result");
                return Err(Problem::new(what, "leave numbers and probe out"));
            }
            Some(ProberWire::Lost) => Observation::ProberLost("the prober is gone".to_owned()),
            None => Observation::Looked(self.look(place, &mount)?),
        };
        Ok(Observations { mount, seen })
    }

    fn look(&self, place: &Place, mount: &Mount) -> Result<Look, Problem> {
        let failure = self.failure(place)?;
        let came_to = |step: Operation| failure.as_ref().is_none_or(|at| step < at.operation);
        let space = if came_to(Operation::Statvfs) {
            self.space(place)?
        } else {
            None
        };
        let probed = !matches!(self.probe, Some(Probe::Word(ProbeWord::None)));
        let cookie = match &self.cookie {
            _ if !probed => Cookie::NotRead,
            None => Cookie::Absent,
            Some(Object(cookie)) => Cookie::Present {
                instance_id: cookie.instance_id.clone(),
                bookie_host: cookie.bookie_host.clone(),
            },
        };
        let identity = came_to(Operation::Open).then(|| Identity {
            device: Some(mount.device),
            mount_id: Some(mount.id),
            fsid: u64::from(mount.device.major) << 32 | u64::from(mount.device.minor),
            uuid: None,
            cookie,
            canonical: place.path.clone(),
            boot_id: "simulated".to_owned(),
        });
        Ok(Look {
            durations: self.durations(probed, failure.as_ref())?,
            space,
            identity,
            probed,
            bookie_files: None,
            ballast: None,
            pressure: None,
            failure,
        })
    }

    fn space(&self, place: &Place) -> Result<Option<Space>, Problem> {
        let path = place.path.display();
        let (size, available) = match (self.total, self.usable) {
            (Some(size), Some(available)) => (size, available),
            (None, None) if self.error == Some(BookkeeperError::Io) => return Ok(None),
            (total, _) => {
                let key = if total.is_none() { "total" } else { "usable" };
                return Err(Problem::new(
                    format!("\"{path}\" has no {key}"),
                    "give total and usable, unless the look ended before statvfs",
                ));
            }
        };
        let (inodes, inodes_free) = match (self.inodes, self.inodes_free) {
            (Some(inodes), Some(free)) => (inodes, free),
            (None, None) => (0, 0),
            _ => {
                let what = format!("\"{path}\" has only one of inodes and inodesFree");
                return Err(Problem::new(what, "give both or neither"));
            }
        };
        for (part, of, names) in [
            (available, size, ("usable", "total")),
            (inodes_free, inodes, ("inodesFree", "inodes")),
        ] {
            if of < part {
                let (name, whole) = names;
                return Err(Problem::new(
                    format!("\"{path}\" has {name} {part}, more than its {whole}, {of}"),
                    format!("{name} is at most {whole}"),
                ));
            }
        }
        Ok(Some(Space {
            size,
            available,
            inodes,
            inodes_free,
        }))
    }

    fn failure(&self, place: &Place) -> Result<Option<Failure>, Problem> {
        let path = place.path.display();
        let failed = match (&self.probe, self.error) {
            (Some(_), Some(BookkeeperError::Io)) => {
                let what = format!("\"{path}\" has probe and \"error\":\"io\"");
                return Err(Problem::new(what, "give one of them"));
            }
            // BookKeeper's "not a readable, writable directory".
            (None, Some(BookkeeperError::Io)) => {
                return Ok(Some(failure(place, Operation::Create, Some(errno::EIO))));
            }
            (Some(Probe::Failed(Object(failed))), _) => failed,
            _ => return Ok(None),
        };
        let mut of = failure(place, operation(&failed.step)?, None);
        of.errno = failed.errno.as_ref().map(number).transpose()?;
        of.finding = match failed.finding {
            None if failed.errno.is_none() => {
                let what = format!("the failed probe of \"{path}\" has neither errno nor finding");
                return Err(Problem::new(
                    what,
                    "say how it failed, like \"errno\":\"EIO\"",
                ));
            }
            None => Finding::Errno,
            Some(FindingWire::WrongBytes) => Finding::WrongBytes,
            Some(FindingWire::LeadsElsewhere) => Finding::LeadsElsewhere,
            Some(FindingWire::NotADirectory) => Finding::NotADirectory,
            Some(FindingWire::OnlyUsRefused) => Finding::OnlyUsRefused,
            Some(FindingWire::ProberTrouble) => Finding::ProberTrouble,
        };
        Ok(Some(of))
    }

    /// Durations of the steps that ended well.
    fn durations(&self, probed: bool, failure: Option<&Failure>) -> Result<Durations, Problem> {
        let mut durations = Durations::new();
        for step in Operation::ALL {
            let is_part = probed || step <= Operation::Statvfs;
            if is_part && step < failure.map_or(Operation::Prober, |failure| failure.operation) {
                durations.insert(step, QUICK);
            }
        }
        for (step, millis) in self.durations.iter().flat_map(|given| &given.0) {
            let step = operation(step)?;
            let Some(duration) = durations.get_mut(&step) else {
                let what = format!("step \"{}\" has a duration and did not end", step.name());
                return Err(Problem::new(
                    what,
                    "give durations of steps that ended well",
                ));
            };
            *duration = Duration::from_millis(*millis);
        }
        Ok(durations)
    }

    fn mount(&self, place: &Place) -> Result<Mount, Problem> {
        let default = MountWire::default();
        let wire = self.mount.as_ref().map_or(&default, |mount| &mount.0);
        let device = match &wire.device {
            Some(text) => device(text)?,
            None => Device {
                major: 8,
                minor: place.filesystem,
            },
        };
        let point = wire.point.clone().unwrap_or_else(|| place.path.clone());
        let options = if wire.read_only { "ro" } else { "rw" };
        Ok(Mount {
            id: u64::from(device.major) << 32 | u64::from(device.minor),
            device,
            root: PathBuf::from("/"),
            point,
            source: format!("/dev/{}:{}", device.major, device.minor),
            fs_type: "ext4".to_owned(),
            options: options.to_owned(),
            read_only: wire.read_only,
            emergency: wire.emergency.clone(),
            medium: place.medium,
        })
    }
}

fn failure(place: &Place, operation: Operation, errno: Option<i32>) -> Failure {
    Failure {
        operation,
        errno,
        detail: format!("{} failed", place.path.display()),
        finding: Finding::Errno,
    }
}

fn operation(name: &str) -> Result<Operation, Problem> {
    let found = Operation::ALL.into_iter().find(|step| step.name() == name);
    found.ok_or_else(|| {
        let names = Operation::ALL.map(Operation::name).join(", ");
        Problem::new(
            format!("no step is called \"{name}\""),
            format!("one of {names}"),
        )
    })
}

fn number(errno: &Errno) -> Result<i32, Problem> {
    match errno {
        Errno::Number(number) if 0 < *number => Ok(*number),
        Errno::Number(number) => Err(Problem::new(
            format!("errno is {number}"),
            "error numbers are positive",
        )),
        Errno::Name(name) => ERRNOS
            .into_iter()
            .find(|(known, _)| known == name)
            .map(|(_, number)| number)
            .ok_or_else(|| {
                let names = ERRNOS.map(|(name, _)| name).join(", ");
                Problem::new(
                    format!("errno \"{name}\" is not known here"),
                    format!("one of {names}, or the number"),
                )
            }),
    }
}

fn device(text: &str) -> Result<Device, Problem> {
    text.split_once(':')
        .and_then(|(major, minor)| {
            Some(Device {
                major: major.parse().ok()?,
                minor: minor.parse().ok()?,
            })
        })
        .ok_or_else(|| {
            let what = format!("device is \"{text}\"");
            Problem::new(what, "a device is two numbers, like \"8:1\"")
        })
}

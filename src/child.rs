//! Children that can be left behind: how the agent starts one, how a process becomes one, and the
//! frames on the two pipes between them. A child inherits its two pipes and nothing else: a
//! dead disk may keep it in the kernel for ever, and it must then hold nothing of ours.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::mman::{MlockAllFlags, mlockall};

/// First argument of the hidden subcommands that turn the binary into a child.
pub const CHILD_ARGUMENT: &str = "__child";

/// The kernel's link to the file that a process runs.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// How the C library is to treat a child's memory; libraries other than GNU's do not read it. A lane is
/// a short thread that is started for each directory: with a heap for each of them, and with their
/// stacks kept for later ones, 500 directories cost ten megabytes more.
const MEMORY: [(&str, &str); 2] = [
    ("MALLOC_ARENA_MAX", "1"),
    ("GLIBC_TUNABLES", "glibc.pthread.stack_cache_size=0"),
];

/// A started child and the agent's ends of its pipes.
#[derive(Debug)]
pub struct Spawned {
    /// The process.
    pub process: Child,
    /// What is written here is read by the child.
    pub to: OwnedFd,
    /// What the child writes is read here.
    pub from: OwnedFd,
}

/// This very program, to be started as a child: the file that runs now, even when another was put in
/// its place or it was deleted since (an upgrade does both).
///
/// # Errors
/// There is no `/proc`, without which no child can work either.
pub fn own_program() -> io::Result<PathBuf> {
    fs::read_link(OWN_PROGRAM)?;
    Ok(OWN_PROGRAM.into())
}

/// Starts `program` as the child of that kind (`prober`, `writer`).
///
/// Blocks until the program was executed, which a dead disk under the program can prevent for
/// ever: call it from a thread that may be lost.
///
/// # Errors
/// The program cannot be started.
pub fn spawn(program: &Path, kind: &str, arguments: &[OsString]) -> io::Result<Spawned> {
    let mut command = Command::new(program);
    if program == Path::new(OWN_PROGRAM)
        && let Some(name) = std::env::args_os().next()
    {
        command.arg0(name);
    }
    // What an operator has set stands above it.
    let unset = MEMORY
        .into_iter()
        .filter(|(name, _)| std::env::var_os(name).is_none());
    let mut process = command
        .envs(unset)
        .arg(CHILD_ARGUMENT)
        .arg(kind)
        .args(arguments)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let missing = || io::Error::other("the child was started without its pipes");
    let to = process.stdin.take().ok_or_else(missing)?;
    let from = process.stdout.take().ok_or_else(missing)?;
    Ok(Spawned {
        process,
        to: to.into(),
        from: from.into(),
    })
}

/// The child's ends of its pipes.
#[derive(Debug)]
pub struct Pipes {
    /// Requests of the agent.
    pub requests: OwnedFd,
    /// Answers to the agent.
    pub answers: OwnedFd,
}

impl Pipes {
    /// Makes this process a child: takes the pipes from descriptors 0 and 1, puts `/dev/null` on
    /// 0 to 2, closes everything else that was inherited and moves to `/`. Call it first, before
    /// any thread is started or file opened.
    ///
    /// # Errors
    /// `/dev/null` or `/proc/self/fd` cannot be opened, or the pipes are missing.
    pub fn take() -> io::Result<Pipes> {
        let requests = io::stdin().as_fd().try_clone_to_owned()?;
        let answers = io::stdout().as_fd().try_clone_to_owned()?;
        let null = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/null")?;
        nix::unistd::dup2_stdin(&null)?;
        nix::unistd::dup2_stdout(&null)?;
        nix::unistd::dup2_stderr(&null)?;
        drop(null);
        close_inherited(&[requests.as_raw_fd(), answers.as_raw_fd()])?;
        std::env::set_current_dir("/")?;
        // Started through a link called `exe`, it should be found under its own name.
        if let Some(name) = std::env::args_os().next().as_ref().map(Path::new)
            && let Some(name) = name.file_name()
        {
            let _ = fs::write("/proc/self/comm", name.as_bytes());
        }
        Ok(Pipes { requests, answers })
    }
}

/// Closes every descriptor above 2 except these. A program that starts children calls it first: what
/// its parent left open would go on to them, and a stuck child would hold it for ever.
///
/// # Errors
/// `/proc/self/fd` cannot be read.
pub fn close_inherited(keep: &[RawFd]) -> io::Result<()> {
    // Collected first: the listing itself has a descriptor, which is gone when the closing begins
    // and whose number is then refused with EBADF.
    let open: Vec<RawFd> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for fd in open {
        if fd > 2 && !keep.contains(&fd) {
            let _ = nix::unistd::close(fd);
        }
    }
    Ok(())
}

/// Locks the pages of this process, present and future ones, so that a dead disk under its program
/// cannot stop it.
///
/// # Errors
/// A limit (`RLIMIT_MEMLOCK`) or the system does not allow it.
pub fn lock_memory() -> nix::Result<()> {
    mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE)
}

/// Frames: a length of four bytes, little end first, then so many bytes.
pub mod frame {
    use super::{Read, Write, io};

    /// Bytes of the length before each frame.
    const HEADER: usize = 4;

    /// Writes one frame with one call, so that frames of several threads do not mix as long as
    /// each is within the pipe's atomic size; longer ones need a lock around this call.
    ///
    /// # Errors
    /// The other side is gone, or the frame is over `limit`.
    pub fn write(mut pipe: impl Write, body: &[u8], limit: usize) -> io::Result<()> {
        check(body.len(), limit)?;
        let length = u32::try_from(body.len()).map_err(io::Error::other)?;
        let mut bytes = Vec::with_capacity(HEADER + body.len());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(body);
        pipe.write_all(&bytes)
    }

    /// Reads one frame; blocks until it is there. `None` when the other side closed its end
    /// between two frames.
    ///
    /// # Errors
    /// The other side closed within a frame, or announces one over `limit`.
    pub fn read(mut pipe: impl Read, limit: usize) -> io::Result<Option<Vec<u8>>> {
        let mut header = [0; HEADER];
        let mut filled = 0;
        while filled < HEADER {
            match pipe.read(&mut header[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let length = u32::from_le_bytes(header) as usize;
        check(length, limit)?;
        let mut body = vec![0; length];
        pipe.read_exact(&mut body)?;
        Ok(Some(body))
    }

    /// Puts frames together from pieces as they arrive.
    #[derive(Debug, Default)]
    pub struct Decoder {
        bytes: Vec<u8>,
    }

    impl Decoder {
        /// Takes in what arrived.
        pub fn push(&mut self, piece: &[u8]) {
            self.bytes.extend_from_slice(piece);
        }

        /// The next whole frame, if there is one.
        ///
        /// # Errors
        /// The other side announces a frame over `limit`; nothing after it can be understood.
        pub fn next_frame(&mut self, limit: usize) -> io::Result<Option<Vec<u8>>> {
            let Some(header) = self.bytes.first_chunk::<HEADER>() else {
                return Ok(None);
            };
            let length = u32::from_le_bytes(*header) as usize;
            check(length, limit)?;
            if self.bytes.len() < HEADER + length {
                return Ok(None);
            }
            let rest = self.bytes.split_off(HEADER + length);
            let mut frame = std::mem::replace(&mut self.bytes, rest);
            frame.drain(..HEADER);
            Ok(Some(frame))
        }
    }

    fn check(length: usize, limit: usize) -> io::Result<()> {
        if length > limit {
            let text = format!("a frame of {length} bytes is over the limit of {limit}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(())
    }

    #[cfg(test)]
    mod tests {
        use proptest::prelude::*;

        use super::*;
        use crate::mutation::{edited, lengths, pieces};

        #[test]
        fn frames_come_out_as_they_went_in_whatever_the_pieces() {
            let mut pipe = Vec::new();
            for body in [&b""[..], b"one", b"twenty-two"] {
                write(&mut pipe, body, 100).unwrap();
            }
            for piece in 1..pipe.len() {
                let mut decoder = Decoder::default();
                let mut frames = Vec::new();
                for part in pipe.chunks(piece) {
                    decoder.push(part);
                    while let Some(frame) = decoder.next_frame(100).unwrap() {
                        frames.push(frame);
                    }
                }
                assert_eq!(frames, [&b""[..], b"one", b"twenty-two"]);
            }
            let mut reader = &pipe[..];
            assert_eq!(read(&mut reader, 100).unwrap().as_deref(), Some(&b""[..]));
        }

        #[test]
        fn a_frame_over_the_limit_is_an_error_on_both_sides() {
            assert!(write(&mut Vec::new(), b"four", 3).is_err());
            assert!(read(&u32::MAX.to_le_bytes()[..], 3).is_err());
            let mut decoder = Decoder::default();
            decoder.push(&u32::MAX.to_le_bytes());
            assert!(decoder.next_frame(3).is_err());
        }

        #[test]
        fn an_end_within_a_frame_is_an_error_and_between_frames_is_not() {
            assert!(read(&[1, 0][..], 3).is_err());
            assert!(read(&[2, 0, 0, 0, 7][..], 3).is_err());
            assert_eq!(read(&[][..], 3).unwrap(), None);
        }

        fn three_frames() -> Vec<u8> {
            let mut pipe = Vec::new();
            for body in [&b""[..], b"one", b"twenty-two"] {
                write(&mut pipe, body, 100).unwrap();
            }
            pipe
        }

        proptest! {
            /// Both readers say the same of whatever arrives, in whatever pieces.
            #[test]
            fn any_bytes_are_the_same_frames_to_both_readers(
                bytes in prop_oneof![any::<Vec<u8>>(), edited(three_frames())],
                lengths in lengths(),
            ) {
                let (mut expected, mut rest) = (Vec::new(), &bytes[..]);
                let end = loop {
                    match read(&mut rest, 100) {
                        Ok(Some(frame)) => expected.push(frame),
                        Ok(None) => break None,
                        Err(error) => break Some(error.kind()),
                    }
                };
                let (mut frames, mut refused) = (Vec::new(), false);
                let mut decoder = Decoder::default();
                for piece in pieces(&bytes, &lengths) {
                    decoder.push(piece);
                    while let Ok(Some(frame)) = decoder.next_frame(100) {
                        frames.push(frame);
                    }
                    refused = decoder.next_frame(100).is_err();
                    if refused {
                        break;
                    }
                }
                prop_assert_eq!(frames, expected);
                prop_assert_eq!(refused, end == Some(io::ErrorKind::InvalidData));
                prop_assert!(decoder.bytes.len() <= bytes.len());
            }
        }
    }
}

//! The tokens of those who may give orders, or read: each read from its file once, at start.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use nix::fcntl::OFlag;

use super::StartError;
use crate::config::Config;

/// More than this is not a token.
const MAX_TOKEN: u64 = 4096;

/// Reads the token that this key names. May block on a disk.
///
/// # Errors
/// It cannot be read, others may use it, or it is no token.
pub fn read(key: &'static str, file: PathBuf) -> Result<Arc<str>, StartError> {
    let read = || -> Result<String, String> {
        // A pipe is not waited for.
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(OFlag::O_NONBLOCK.bits());
        let opened = options.open(&file).map_err(|error| error.to_string())?;
        let facts = opened.metadata().map_err(|error| error.to_string())?;
        if !facts.is_file() {
            return Err("it is not a file".to_owned());
        }
        let mode = facts.permissions().mode() & 0o777;
        if mode & 0o007 != 0 {
            return Err(format!("others may use it (mode {mode:03o})"));
        }
        let mut text = String::new();
        let mut limited = opened.take(MAX_TOKEN + 1);
        limited
            .read_to_string(&mut text)
            .map_err(|error| error.to_string())?;
        match text.trim() {
            "" => Err("it is empty".to_owned()),
            _ if text.len() as u64 > MAX_TOKEN => {
                Err(format!("it is longer than {MAX_TOKEN} bytes"))
            }
            // A header cannot carry anything else.
            token if !token.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Err("it holds more than one word of visible ASCII".to_owned())
            }
            token => Ok(token.to_owned()),
        }
    };
    read().map(Into::into).map_err(|why| StartError::Token {
        key,
        file: file.clone(),
        why,
    })
}

/// The keys that name a token, each with its file.
fn named(config: &Config) -> [(&'static str, &Option<PathBuf>); 2] {
    [
        ("control_token_file", &config.control_token_file),
        ("read_token_file", &config.read_token_file),
    ]
}

/// What would keep an agent from starting: keys whose file holds no token that may be used, and why.
/// May block on a disk.
#[must_use]
pub fn unusable(config: &Config) -> Vec<(&'static str, String)> {
    let why = |(key, file): (&'static str, &Option<PathBuf>)| match read(key, file.clone()?) {
        Err(StartError::Token { why, .. }) => Some((key, why)),
        _ => None,
    };
    named(config).into_iter().filter_map(why).collect()
}

//! The token of those who may give orders: read from its file once, at start.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::StartError;

/// More than this is not a token.
const MAX_TOKEN: u64 = 4096;

/// Reads the token.
pub(super) fn read(file: PathBuf) -> Result<Arc<str>, StartError> {
    let read = || -> Result<String, String> {
        let opened = std::fs::File::open(&file).map_err(|error| error.to_string())?;
        let facts = opened.metadata().map_err(|error| error.to_string())?;
        let mode = facts.permissions().mode() & 0o777;
        if mode & 0o007 != 0 {
            return Err(format!("others may use it (mode {mode:03o}): chmod 0640"));
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
            token => Ok(token.to_owned()),
        }
    };
    read().map(Into::into).map_err(|why| StartError::Token {
        file: file.clone(),
        why,
    })
}

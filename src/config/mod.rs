//! Being written.
#![allow(missing_docs)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::health::dir::{Dir, Role};

#[derive(Debug, Default)]
pub struct Sources {
    pub file: Option<PathBuf>,
    pub bookie_conf: Option<PathBuf>,
    pub dirs: Vec<(Role, PathBuf)>,
    pub listen: Option<SocketAddr>,
    pub state_dir: Option<PathBuf>,
}

#[derive(Debug)]
pub struct Config {
    pub dirs: Vec<Dir>,
    pub warnings: Vec<String>,
}

#[derive(Debug, Default, thiserror::Error)]
#[error("being written")]
pub struct Problems;

pub fn load(_: &Sources) -> Result<Config, Problems> {
    Err(Problems)
}

pub fn show(_: &Config) -> String {
    String::new()
}

pub fn import(_: &Path) -> Result<String, Problems> {
    Err(Problems)
}

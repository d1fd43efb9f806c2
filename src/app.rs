//! Being written.
#![allow(missing_docs, clippy::unused_async)]

use std::sync::Arc;
use std::time::Duration;

use crate::config::{Config, Sources};
use crate::health::snapshot::{SelfView, Snapshot};
use crate::listener::HookOptions;

#[derive(Debug)]
pub struct CheckOptions {
    pub sources: Sources,
    pub timeout: Duration,
}

pub async fn check(_: CheckOptions) -> Result<(Arc<Snapshot>, SelfView), anyhow::Error> {
    anyhow::bail!("being written")
}

pub async fn run(_: Sources) -> Result<(), anyhow::Error> {
    anyhow::bail!("being written")
}

pub fn hooks(_: &Config) -> Vec<HookOptions> {
    Vec::new()
}

pub fn host_name() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

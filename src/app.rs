//! Being written.
#![allow(missing_docs, clippy::unused_async)]

use std::sync::Arc;
use std::time::Duration;

use crate::config::Sources;
use crate::health::snapshot::{SelfView, Snapshot};

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

//! Which bookies a job ordered to be read-only, written down before each order: what a job did not begin it does not end, and
//! one that is over orders nothing.

use super::document::Phase;
use super::jobs::{JobError, Jobs, ORDERS, TRIES, failed};
use crate::cluster::store::{Kind, Op, StoreError};

impl Jobs {
    /// The step of a transaction that fails where the job is another by now.
    ///
    /// # Errors
    /// [`JobError::Phase`] where it is over.
    pub(in crate::drain) async fn going_on(&self, id: &str) -> Result<Op, JobError> {
        let (job, version) = self.versioned(id).await?;
        if job.phase.is_over() {
            let (id, phase) = (job.id, job.phase);
            return Err(JobError::Phase { id, phase });
        }
        let path = self.path(id);
        Ok(Op::Check { path, version })
    }

    /// The job was given up.
    pub(in crate::drain) async fn is_cancelled(&self, id: &str) -> Result<bool, JobError> {
        Ok(self.get(id).await?.phase == Phase::Cancelled)
    }

    fn order_path(&self, id: &str, bookie: &str) -> String {
        format!("{}/{ORDERS}/{bookie}", self.path(id))
    }

    /// Writes down that the job is about to order this bookie to be read-only.
    ///
    /// # Errors
    /// [`JobError::Phase`] where it is over; or it could not be written.
    pub(in crate::drain) async fn note_order(
        &self,
        id: &str,
        bookie: &str,
    ) -> Result<(), JobError> {
        let path = self.order_path(id, bookie);
        for _ in 0..TRIES {
            let going_on = self.going_on(id).await?;
            let create = Op::Create {
                path: path.clone(),
                data: Vec::new(),
                kind: Kind::Persistent,
            };
            match self.store.multi(&[going_on, create]).await {
                Ok(()) => return Ok(()),
                Err(StoreError::Step { at: 0, .. }) => {}
                Err(StoreError::Step { source, .. }) if *source == StoreError::NodeExists => {
                    return Ok(());
                }
                Err(source) => return Err(failed(&path, source)),
            }
        }
        Err(JobError::Contended { path })
    }

    /// Whether it ordered this bookie to be read-only.
    pub(in crate::drain) async fn has_ordered(
        &self,
        id: &str,
        bookie: &str,
    ) -> Result<bool, JobError> {
        let path = self.order_path(id, bookie);
        let stat = self.store.stat(&path).await;
        Ok(stat.map_err(|source| failed(&path, source))?.is_some())
    }

    /// The order was taken back.
    pub(in crate::drain) async fn forget_order(
        &self,
        id: &str,
        bookie: &str,
    ) -> Result<(), JobError> {
        let path = self.order_path(id, bookie);
        match self.store.delete(&path, None).await {
            Ok(()) | Err(StoreError::NoNode) => Ok(()),
            Err(source) => Err(failed(&path, source)),
        }
    }
}

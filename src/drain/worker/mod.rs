//! Works on a job.

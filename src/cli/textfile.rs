//! The metrics of a command as a file for node_exporter: put in place by a rename, so that nobody reads half
//! of it, and taken away at the end unless it is a pass of a timer.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A path whose name node_exporter reads.
///
/// # Errors
/// Another one, in words.
pub(super) fn parse(value: &str) -> Result<PathBuf, String> {
    match value.strip_suffix(".prom") {
        Some(name) if !name.is_empty() && !name.ends_with('/') => Ok(value.into()),
        _ => Err("node_exporter reads only files that end with .prom".to_owned()),
    }
}

/// The file.
pub(super) struct Textfile {
    path: PathBuf,
    stays: bool,
}

impl Textfile {
    pub(super) fn new(path: &Path, stays: bool) -> Textfile {
        let path = path.to_owned();
        Textfile { path, stays }
    }

    /// Blocks on the disk. What goes wrong is said and no reason to stop.
    pub(super) fn put(&self, text: &str) {
        if let Err(error) = self.write(text) {
            tracing::warn!("cannot write {}: {error}", self.path.display());
        }
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let mut name = OsString::from(".");
        name.push(self.path.file_name().unwrap_or_default());
        // Not what node_exporter reads, and of this process alone.
        name.push(format!(".{}", std::process::id()));
        let unfinished = self.path.with_file_name(name);
        fs::write(&unfinished, text)?;
        let renamed = fs::rename(&unfinished, &self.path);
        if renamed.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        renamed
    }
}

impl Drop for Textfile {
    fn drop(&mut self) {
        if !self.stays {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_whole_and_alone_and_goes_with_its_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dirkeeper_reclaim.prom");
        let file = Textfile::new(&path, false);
        file.put("a 1\n");
        file.put("a 2\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "a 2\n");
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
        drop(file);
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
        let missing = Textfile::new(&folder.path().join("no/x.prom"), true);
        assert!(missing.write("").is_err());
    }
}

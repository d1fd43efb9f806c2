//! For tests: files of the repository that are written from declarations in the code. `UPDATE=1
//! cargo test` writes them; without it a stale one fails.

use std::fs;
use std::path::Path;

/// Checks that the file says what the declarations say.
pub(crate) fn check(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    if std::env::var_os("UPDATE").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == text,
        "{name} is stale: UPDATE=1 cargo test rewrites it"
    );
}

//! The answers that come straight from the snapshot.

use std::future::{Ready, ready};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;
use serde::Serialize;

use super::Shared;
use super::problem::{Problem, json_answer};
use crate::document::{DirDocument, dir_document, json, path_text, shown, status_document};
use crate::health::snapshot::{DirView, Snapshot};

/// The list of `/api/v1/dirs`.
#[derive(Serialize)]
struct DirsDocument {
    dirs: Vec<DirDocument>,
}

pub(super) fn metrics(State(shared): State<Shared>) -> Ready<Response> {
    let kind = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    ready((kind, (shared.handles.metrics)()).into_response())
}

pub(super) fn livez(State(shared): State<Shared>) -> Ready<Response> {
    ready(match (shared.handles.live)() {
        Ok(()) => "ok\n".into_response(),
        Err(reason) => unavailable(&reason),
    })
}

pub(super) fn readyz(State(shared): State<Shared>) -> Ready<Response> {
    ready(if shared.snapshot().ready {
        "ok\n".into_response()
    } else {
        unavailable("not every directory was judged yet")
    })
}

fn unavailable(reason: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response()
}

pub(super) fn status(State(shared): State<Shared>) -> Ready<Response> {
    let own = (shared.handles.self_view)();
    let document = status_document(&shared.snapshot(), &own, &shared.handles.about);
    ready(json_answer(json(&document)))
}

pub(super) fn dirs(State(shared): State<Shared>) -> Ready<Response> {
    let snapshot = shared.snapshot();
    let dirs = snapshot.dirs.iter().map(|dir| dir_document(dir));
    ready(json_answer(json(&DirsDocument {
        dirs: dirs.collect(),
    })))
}

pub(super) fn dir(State(shared): State<Shared>, uri: Uri) -> Ready<Response> {
    // Not axum's path parameter: that would have to be UTF-8.
    let path = uri.path();
    let key = path.strip_prefix("/api/v1/dirs/").unwrap_or(path);
    let key: Vec<u8> = percent_decode_str(key).collect();
    ready(match find_dir(&shared.snapshot(), &key) {
        Ok(dir) => json_answer(json(&dir_document(&dir))),
        Err(problem) => problem.into_response(),
    })
}

/// The directory with this index or absolute path. A path is taken as the documents write it, as
/// outputs for people write it, or as its bytes, in this order: whatever was copied is found. A path
/// that has two roles is found with the first of them.
pub(super) fn find_dir(snapshot: &Snapshot, key: &[u8]) -> Result<Arc<DirView>, Problem> {
    let text = String::from_utf8_lossy(key);
    let found = match text.parse::<usize>() {
        Ok(index) => snapshot.dirs.get(index),
        Err(_) => {
            let ways: [&dyn Fn(&Path) -> bool; 3] = [
                &|path| path_text(path) == text,
                &|path| shown(path) == text,
                &|path| path.as_os_str().as_bytes() == key,
            ];
            let mut ways = ways.iter();
            ways.find_map(|is_it| snapshot.dirs.iter().find(|dir| is_it(&dir.path)))
        }
    };
    found.cloned().ok_or_else(|| {
        let count = snapshot.dirs.len();
        Problem::new(
            StatusCode::NOT_FOUND,
            format!(
                "no directory {text}: give an index below {count} or an absolute path, percent-encoded; /api/v1/dirs lists them"
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    use proptest::prelude::*;

    use super::*;
    use crate::document::sample;
    use crate::health::dir::Role;
    use crate::mutation::edited;

    /// Names of which one's text is another's bytes.
    const NAMES: [&[u8]; 6] = [
        b"/a\xff",
        b"/a\\xff",
        b"/a\\x5cxff",
        b"/b\n",
        b"/b\\x0a",
        b"/c",
    ];

    fn snapshot() -> Snapshot {
        let dirs = NAMES.iter().zip(0..).map(|(name, id)| {
            let mut dir = sample::writable_dir(id, "/", Role::Ledger);
            dir.path = OsString::from_vec(name.to_vec()).into();
            Arc::new(dir)
        });
        let mut snapshot = sample::snapshot();
        snapshot.dirs = dirs.collect();
        snapshot
    }

    #[test]
    fn a_directory_is_found_by_what_any_output_says_of_it() {
        let snapshot = snapshot();
        for dir in &snapshot.dirs {
            for text in [path_text(&dir.path), shown(&dir.path)] {
                let found = find_dir(&snapshot, text.as_bytes());
                assert_eq!(found.ok().unwrap().path, dir.path, "{text}");
            }
        }
        assert_eq!(
            find_dir(&snapshot, b"/a\xff").ok().unwrap().path,
            snapshot.dirs[0].path
        );
        assert_eq!(
            find_dir(&snapshot, b"/b\n").ok().unwrap().path,
            snapshot.dirs[3].path
        );
    }

    proptest! {
        #[test]
        fn any_key_finds_the_directory_that_it_names_or_none(
            key in prop_oneof![any::<Vec<u8>>(), prop::sample::select(NAMES.to_vec()).prop_flat_map(edited)],
        ) {
            let snapshot = snapshot();
            let names = |dir: &DirView| {
                let texts = [path_text(&dir.path).into_bytes(), shown(&dir.path).into_bytes()];
                dir.path.as_os_str().as_bytes() == key || texts.contains(&key)
            };
            let index = std::str::from_utf8(&key).ok().and_then(|key| key.parse::<usize>().ok());
            match (find_dir(&snapshot, &key), index) {
                (Ok(dir), Some(index)) => prop_assert_eq!(&dir.path, &snapshot.dirs[index].path),
                (Ok(dir), None) => prop_assert!(names(&dir)),
                (Err(_), Some(index)) => prop_assert!(snapshot.dirs.len() <= index),
                (Err(_), None) => prop_assert!(!snapshot.dirs.iter().any(|dir| names(dir))),
            }
        }
    }
}

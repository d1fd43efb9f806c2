//! Configurations that are nearly right: a problem is one line that names its place, and what is
//! taken is taken again from what `show` and `import` print.

use std::os::unix::ffi::OsStrExt;

use proptest::prelude::*;

use super::*;
use crate::config::problem::Place;
use crate::health::dir::steers;
use crate::mutation::edited;

const COMPLETE: &str = r#"listen = "127.0.0.1:9475"
state_dir = "/var/lib/dirkeeper"
semantics = "dirkeeper"
[thresholds]
warn = 0.8
full = 0.95
warn_available = "10GiB"
dwell = "1m 30s"
[thresholds.journal]
low_watermark = 0.5
[probe]
interval = "10s"
slow = "250ms"
[[dir]]
path = "/mnt/journal one"
role = "journal"
require_mount = true
[[dir]]
path = "/mnt/\u00e9\t\"l1\""
role = "ledger"
deadline = "5s"
[[hook]]
name = "page"
events = ["diskFailed", "allDisksFull"]
command = ["/usr/local/bin/page", "--team", "storage"]
timeout = "30s"
[[webhook]]
name = "chat"
url = "https://chat.example.com/hook/"
secret_file = "/etc/dirkeeper/chat.secret"
"#;

/// Each problem is one line, with a line of the file that there is, or the whole file.
fn check_problems(problems: &Problems, bytes: &[u8]) -> Result<(), TestCaseError> {
    let lines = bytes.split(|byte| *byte == b'\n' || *byte == b'\r').count();
    for problem in problems.errors.iter().chain(&problems.warnings) {
        let text = problem.to_string();
        prop_assert!(!text.contains(steers), "{:?}", text);
        prop_assert!(text.len() < 4000, "{} bytes: {}", text.len(), text);
        prop_assert!(
            !problem.problem.is_empty() && !problem.remedy.is_empty(),
            "{}",
            text
        );
        if let Place::File {
            line: Some(line), ..
        } = problem.place
        {
            prop_assert!(
                (1..=lines).contains(&line),
                "{} of {}: {}",
                line,
                lines,
                text
            );
        }
    }
    Ok(())
}

fn named(config: &Config) -> Vec<(Role, PathBuf)> {
    let dirs = config.dirs.iter();
    dirs.map(|dir| (dir.role, dir.path.clone())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_file_is_used_as_shown_or_refused_with_its_lines(bytes in edited(COMPLETE)) {
        let files = Files::new();
        let file = files.write("a.toml", &bytes);
        let sources = |file| Sources { file: Some(file), ..Sources::default() };
        match load(&sources(file)) {
            Err(problems) => {
                prop_assert!(!problems.errors.is_empty());
                check_problems(&problems, &bytes)?;
            }
            Ok(config) => {
                let shown = files.write("shown.toml", show(&config));
                let again = load(&sources(shown)).map_err(|problems| {
                    TestCaseError::fail(format!("{problems}\n{}", show(&config)))
                })?;
                prop_assert_eq!(again.dirs, config.dirs);
                prop_assert_eq!(again.policy, config.policy);
                prop_assert_eq!(again.hooks, config.hooks);
                prop_assert_eq!(again.webhooks, config.webhooks);
            }
        }
    }

    #[test]
    fn a_bookies_file_is_used_as_imported_or_refused_with_its_lines(bytes in edited(BOOKIE)) {
        let files = Files::new();
        let conf = files.write("bk.conf", &bytes);
        let sources = Sources { bookie_conf: Some(conf.clone()), ..Sources::default() };
        match load(&sources) {
            Err(problems) => check_problems(&problems, &bytes)?,
            Ok(config) => {
                let text = import(&conf, None).map_err(|problems| {
                    TestCaseError::fail(format!("only the import fails: {problems}"))
                })?;
                let file = Some(files.write("imported.toml", &text));
                let again = load(&Sources { file, ..Sources::default() }).map_err(|problems| {
                    TestCaseError::fail(format!("{problems}\n{text}"))
                })?;
                prop_assert_eq!(named(&again), named(&config));
                for (again, before) in again.dirs.iter().zip(&config.dirs) {
                    prop_assert_eq!(again.thresholds, before.thresholds);
                }
            }
        }
    }

    #[test]
    fn a_flags_path_is_taken_byte_for_byte(
        parts in prop::collection::vec(prop::collection::vec(1_u8.., 1..9), 1..4),
    ) {
        let parts = parts.into_iter().map(|part| {
            let name: Vec<u8> = part.into_iter().filter(|byte| *byte != b'/').collect();
            // What dots mean has tests of its own.
            if name.iter().all(|byte| *byte == b'.') { b"x".to_vec() } else { name }
        });
        let path = parts.fold(Vec::new(), |path, name| [&path[..], b"/", &name].concat());
        let flag = OsString::from_vec([b"ledger=".as_slice(), &path].concat());
        let config = load(&Sources { dirs: vec![flag], ..Sources::default() }).unwrap();
        prop_assert_eq!(config.dirs[0].path.as_os_str().as_bytes(), &path[..]);
    }

    #[test]
    fn a_flag_of_any_bytes_is_a_directory_or_a_problem(
        bytes in prop_oneof![any::<Vec<u8>>(), edited("journal=/mnt/a")],
    ) {
        let flag = OsString::from_vec(bytes);
        match load(&Sources { dirs: vec![flag], ..Sources::default() }) {
            Ok(config) => prop_assert!(config.dirs[0].path.is_absolute()),
            Err(problems) => check_problems(&problems, b"")?,
        }
    }
}

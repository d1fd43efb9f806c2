//! Configurations as text in, what they come to as text out.

mod bookie;
mod edited;
mod values;
mod zookeeper;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;
use crate::health::dir::{ProbePolicy, Role, Thresholds};

/// A folder with configuration files.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Files {
        Files(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The text with this folder's path left out.
    fn shorten(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.0.path().display()), "")
    }
}

fn load_toml(text: &str) -> (Files, Result<Config, Problems>) {
    let files = Files::new();
    let file = Some(files.write("dirkeeper.toml", text));
    let result = load(&Sources {
        file,
        ..Sources::default()
    });
    (files, result)
}

fn valid(text: &str) -> Config {
    load_toml(text)
        .1
        .unwrap_or_else(|problems| panic!("{problems}"))
}

/// What `config check` says about a file.
fn verdict(text: &str) -> String {
    let (files, result) = load_toml(text);
    files.shorten(&check_human(&result))
}

const MINIMAL: &str = "[[dir]]\npath = \"/mnt/l1\"\nrole = \"ledger\"\n";

const BOOKIE: &str = "\
journalDirectories=/mnt/journal
ledgerDirectories=/mnt/l1, /mnt/l2
diskUsageThreshold=0.92
diskUsageWarnThreshold=0.85
diskCheckInterval=5000
readOnlyModeOnAnyDiskFullEnabled=true
minUsableSizeForHighPriorityWrites=2147483648
httpServerEnabled=true
httpServerPort=8000
persistBookieStatusEnabled=true
bookieId=bk-3
httpServerKeyStorePassword=secret
";

#[test]
fn defaults_are_those_of_health() {
    let config = valid(MINIMAL);
    assert_eq!(config.dirs[0].thresholds, Thresholds::default());
    assert_eq!(config.dirs[0].probe, ProbePolicy::default());
    assert_eq!(config.policy, Policy::default());
    assert!(!config.dirs[0].await_cookie);
    assert_eq!(config.bookie, None);
    assert_eq!(config.warnings, []);
}

#[test]
fn the_reference_file_with_all_defaults_uncommented_is_the_default() {
    let uncommented: String = reference_file()
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(setting) if !setting.starts_with(' ') => format!("{setting}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let config = valid(&format!("{uncommented}{MINIMAL}"));
    let minimal = valid(MINIMAL);
    assert_eq!(config.bookie, Some(BookieConfig::default()));
    assert!(config.dirs[0].await_cookie, "there is a bookie");
    assert_eq!(config.dirs[0].thresholds, minimal.dirs[0].thresholds);
    assert_eq!(config.dirs[0].probe, minimal.dirs[0].probe);
    let same = Config {
        bookie: None,
        policy: Policy {
            journal_emergency: false,
            ..config.policy
        },
        dirs: minimal.dirs.clone(),
        warnings: Vec::new(),
        files: minimal.files.clone(),
        origin: minimal.origin.clone(),
        ..config
    };
    assert_eq!(same, minimal);
}

#[test]
fn the_reference_file_with_its_examples_uncommented_is_valid() {
    let uncommented: String = reference_file()
        .lines()
        .map(|line| {
            let bare = line.trim_start_matches(['#', ' ']);
            let word = bare.split(' ').next().unwrap_or_default();
            let key = word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            let setting = bare.starts_with('[') && bare.ends_with(']') && !bare.contains(' ')
                || key && bare.starts_with(&format!("{word} = "));
            if setting {
                format!("{bare}\n")
            } else {
                format!("{line}\n")
            }
        })
        .filter(|line| !line.starts_with("conf = ") && !line.starts_with("web_config_file = "))
        .collect();
    let config = valid(&uncommented);
    assert_eq!((config.dirs.len(), config.hooks.len()), (1, 1));
}

#[test]
fn an_overriding_order_from_dir_to_default() {
    let config = valid(
        r#"
        [thresholds]
        warn = 0.70
        dwell = "1m"
        [thresholds.journal]
        warn = 0.60
        [probe]
        deadline = "4s"
        [[dir]]
        path = "/mnt//j/./1/"
        role = "journal"
        [[dir]]
        path = "/mnt/j2"
        role = "journal"
        warn = 0.50
        full_available = "20GiB"
        warn_available = "30GB"
        deadline = "9s"
        require_mount = true
        [[dir]]
        path = "/mnt/l1"
        role = "ledger"
        "#,
    );
    let warn: Vec<f64> = config.dirs.iter().map(|dir| dir.thresholds.warn).collect();
    assert_eq!(warn, [0.60, 0.50, 0.70]);
    assert_eq!(config.dirs[0].path, Path::new("/mnt/j/1"));
    assert_eq!(config.dirs[0].probe.deadline, Some(Duration::from_secs(4)));
    let second = &config.dirs[1];
    assert_eq!(second.probe.deadline, Some(Duration::from_secs(9)));
    assert_eq!(second.thresholds.full_available, 20 << 30);
    assert_eq!(second.thresholds.warn_available, 30_000_000_000);
    assert_eq!(second.thresholds.dwell, Duration::from_secs(60));
    assert!(second.require_mount);
}

/// Many mistakes, all of them in one answer, in the order of the file.
#[test]
fn all_mistakes_are_reported_at_once() {
    insta::assert_snapshot!(verdict(include_str!("mistakes.toml")));
}

#[test]
fn syntax_errors_hide_no_other_mistakes() {
    insta::assert_snapshot!(verdict(
        "listen = 127.0.0.1\nfull = 0.9\n[thresholds]\nwarn = 95\nwarn = 0.8\n[[dir]\npath = \"x\"\n"
    ));
}

#[test]
fn a_mistake_in_json() {
    let (files, result) = load_toml(&format!("[thresholds]\nwarn = 95\n{MINIMAL}"));
    insta::assert_snapshot!(files.shorten(&check_json(&result)));
}

#[test]
fn nothing_to_watch_is_an_error() {
    insta::assert_snapshot!(verdict("listen = \"127.0.0.1:0\"\n"));
}

#[test]
fn sections_in_another_form_are_errors() {
    insta::assert_snapshot!(verdict(
        "probe = 1\nhook = [3]\nthreshold = 1\n[thresholds]\nwarn = 0.96\n[dir]\npath = \"/x\"\n[[events]]\n"
    ));
}

#[test]
fn unreadable_files_are_errors_with_their_place() {
    let files = Files::new();
    let not_utf8 = files.write("bad.toml", b"# a\nlisten = \"\xff\"\n");
    let missing = files.0.path().join("missing.conf");
    let result = load(&Sources {
        file: Some(not_utf8),
        bookie_conf: Some(missing),
        ..Sources::default()
    });
    insta::assert_snapshot!(files.shorten(&check_human(&result)));
}

#[test]
fn thresholds_that_do_not_belong_together() {
    insta::assert_snapshot!(verdict(
        r#"
[thresholds]
full = 0.80
[thresholds.journal]
warn = 0.97
full = 0.96
[thresholds.index]
low_watermark = 0.80
[[dir]]
path = "/mnt/l1"
role = "ledger"
[[dir]]
path = "/mnt/l2"
role = "ledger"
[[dir]]
path = "/mnt/j1"
role = "journal"
[[dir]]
path = "/mnt/i1"
role = "index"
warn_available = "1GiB"
full_available = "2GiB"
inodes_full = 0.5
"#
    ));
}

/// BookKeeper does not start with such a file; we start, and say what counts.
#[test]
fn a_full_threshold_below_the_default_of_warn_moves_what_is_not_set() {
    let config = valid(&format!("[thresholds]\nfull = 0.80\n{MINIMAL}"));
    let thresholds = config.dirs[0].thresholds;
    assert_eq!((thresholds.warn, thresholds.low_watermark), (0.75, 0.75));
    assert_eq!(config.warnings.len(), 2);
    let config = valid(&format!("[thresholds]\nfull = 0.02\n{MINIMAL}"));
    assert_eq!(config.dirs[0].thresholds.warn, 0.01);
}

#[test]
fn flags_override_the_file_and_are_checked_with_it() {
    let files = Files::new();
    let file = files.write("dirkeeper.toml", format!("listen = \"[::1]:1\"\n{MINIMAL}"));
    let mut sources = Sources {
        file: Some(file),
        listen: Some("127.0.0.1:2".to_owned()),
        state_dir: Some(PathBuf::from("/var/tmp/state")),
        dirs: vec!["journal=/mnt/j".into(), "ledger=/mnt/l1/".into()],
        ..Sources::default()
    };
    let config = load(&sources).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:2");
    assert_eq!(config.state_dir, Path::new("/var/tmp/state"));
    let paths: Vec<_> = config
        .dirs
        .iter()
        .map(|dir| (dir.role, dir.path.as_path()))
        .collect();
    assert_eq!(
        paths,
        [
            (Role::Ledger, Path::new("/mnt/l1")),
            (Role::Journal, Path::new("/mnt/j"))
        ]
    );

    sources.listen = Some("localhost:9475".to_owned());
    sources.state_dir = Some(PathBuf::from("../state"));
    sources.dirs = [
        "data=/x",
        "/x",
        "ledger=x",
        "ledger=",
        "index=/i",
        "index=/i/.",
    ]
    .map(OsString::from)
    .to_vec();
    insta::assert_snapshot!(files.shorten(&check_human(&load(&sources))));
}

#[test]
fn a_path_may_have_any_bytes_on_the_command_line() {
    let odd = OsString::from_vec(b"ledger=/mnt/\xff\xfe=x".to_vec());
    let sources = Sources {
        dirs: vec![odd],
        state_home: Some(PathBuf::from("/home/x/.local/state")),
        ..Sources::default()
    };
    let config = load(&sources).unwrap();
    assert_eq!(
        config.dirs[0].path.as_os_str().as_encoded_bytes(),
        b"/mnt/\xff\xfe=x"
    );
    assert_eq!(
        config.state_dir,
        Path::new("/home/x/.local/state/dirkeeper")
    );
    assert!(show(&config).contains("which TOML cannot express"));
}

#[test]
fn what_is_there_twice() {
    insta::assert_snapshot!(verdict(
        r#"
state_dir = "/mnt/l1/state"
control_token_file = "/etc/token"
listen = "0.0.0.0:9475"
[[dir]]
path = "/mnt/l1"
role = "ledger"
[[dir]]
path = "/mnt/./l1/"
role = "ledger"
[[dir]]
path = "/mnt/l1"
role = "index"
[[dir]]
path = "/mnt/l1"
role = "journal"
"#
    ));
}

/// Pulsar's file names its directories relative to where Pulsar is installed, and has no admin HTTP.
#[test]
fn the_effective_configuration_names_its_sources_and_can_be_read_back() {
    let files = Files::new();
    let conf = files.write("bk_server.conf", BOOKIE);
    let toml = format!(
        "[thresholds.journal]\nwarn = 0.6\n[bookie]\nconf = {conf:?}\n[[hook]]\nname = \"page\"\n\
         command = [\"/bin/page\", \"a \\\"b\\\"\"]\nevents = [\"diskFull\"]\n"
    );
    let sources = Sources {
        file: Some(files.write("dirkeeper.toml", toml)),
        dirs: vec!["index=/mnt/i".into()],
        ..Sources::default()
    };
    let config = load(&sources).unwrap();
    let shown = show(&config);
    insta::assert_snapshot!(files.shorten(&shown));

    let again = load(&Sources {
        file: Some(files.write("again.toml", shown)),
        ..Sources::default()
    })
    .unwrap();
    let same = Config {
        files: config.files.clone(),
        origin: config.origin.clone(),
        ..again
    };
    assert_eq!(same, config);
}

#[test]
fn a_reload_makes_the_agent_no_other_bookies() {
    let files = Files::new();
    let conf = |port: u32| {
        files.write(
            "bk_server.conf",
            format!(
                "advertisedAddress=10.0.0.1\nbookiePort={port}\njournalDirectories=/j\nledgerDirectories=/l\n"
            ),
        )
    };
    let path = conf(3181);
    let text = |admin: u32| {
        format!(
            "[bookie]\nconf = {path:?}\nversion = \"4.17.3\"\nadmin_url = \"http://127.0.0.1:{admin}\"\n"
        )
    };
    let sources = Sources {
        file: Some(files.write("dirkeeper.toml", text(8080))),
        ..Sources::default()
    };
    let old = load(&sources).unwrap();
    files.write("dirkeeper.toml", text(8081));
    let new = reload(&sources, &old).unwrap();
    let warned = new.warnings.iter().any(|warning| {
        let warning = warning.to_string();
        warning.contains("8081") && warning.contains("takes effect at restart")
    });
    assert!(warned, "{:?}", new.warnings);
    conf(3182);
    let refused = reload(&sources, &old).unwrap_err();
    let why = refused.errors[0].to_string();
    assert!(why.contains("the bookie 10.0.0.1:3182"), "{why}");
}

/// Nothing of a bookie runs before one is named; from then on it is that one, also while none is.
#[test]
fn a_reload_may_name_the_first_bookie() {
    let files = Files::new();
    let file = files.write("dirkeeper.toml", MINIMAL);
    let sources = Sources {
        file: Some(file),
        ..Sources::default()
    };
    let none = load(&sources).unwrap();
    let named = |port: u32| {
        let zookeeper =
            format!("[zookeeper]\nmetadata_service_uri = \"zk://127.0.0.1:{port}/ledgers\"\n");
        let bookie =
            format!("[bookie]\nid = \"b:{port}\"\nadmin_url = \"http://127.0.0.1:{port}\"\n");
        files.write("dirkeeper.toml", format!("{zookeeper}{bookie}{MINIMAL}"));
    };
    let shown = |config: &Config| {
        let bookie = config
            .bookie
            .as_ref()
            .and_then(|bookie| bookie.admin_url.clone());
        let zookeeper = config
            .zookeeper
            .as_ref()
            .map(|zookeeper| zookeeper.servers.join(","));
        let [bookie, zookeeper] = [bookie, zookeeper].map(Option::unwrap_or_default);
        let restarts = config.warnings.iter();
        let restarts = restarts.filter(|warning| warning.to_string().contains("at restart"));
        format!("{bookie} {zookeeper} {}", restarts.count())
    };
    named(1);
    let first = reload(&sources, &none).unwrap();
    assert_eq!(shown(&first), "http://127.0.0.1:1 127.0.0.1:1 0");
    files.write("dirkeeper.toml", MINIMAL);
    let mut running = reload(&sources, &first).unwrap();
    assert!(running.bookie.is_none());
    let mut forgotten = first.clone();
    forgotten.forget_bookie();
    running.keep_bookie_of(&first);
    named(2);
    let other = reload(&sources, &forgotten).unwrap();
    assert_eq!(shown(&other), "http://127.0.0.1:2 127.0.0.1:2 0");
    let later = reload(&sources, &running).unwrap();
    assert!(
        shown(&later).starts_with("http://127.0.0.1:1 127.0.0.1:1 "),
        "{}",
        shown(&later)
    );
    assert!(!shown(&later).ends_with(" 0"), "{}", shown(&later));
}

#[test]
fn a_reload_takes_effect_but_for_what_needs_a_restart() {
    let files = Files::new();
    let file = files.write("dirkeeper.toml", MINIMAL);
    let sources = Sources {
        file: Some(file),
        ..Sources::default()
    };
    let old = load(&sources).unwrap();
    files.write(
        "dirkeeper.toml",
        format!(
            "listen = \"127.0.0.1:1\"\nlock_memory = true\ncontrol_token_file = \"/t\"\n[thresholds]\nwarn = 0.5\n{MINIMAL}"
        ),
    );
    let new = reload(&sources, &old).unwrap();
    assert_eq!(new.dirs[0].thresholds.warn, 0.5);
    assert_eq!((new.listen, new.lock_memory), (old.listen, old.lock_memory));
    insta::assert_snapshot!(files.shorten(&check_human(&Ok(new.clone()))));

    // The old address stays until the restart, through any number of reloads.
    assert_eq!(reload(&sources, &new).unwrap(), new);
    files.write("dirkeeper.toml", "nonsense");
    assert!(reload(&sources, &new).is_err());
}

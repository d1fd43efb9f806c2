//! The bookie's own file: what it comes to, alone and beside ours.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::health::dir::Role;

/// A bookie's file, read with `--bookie-conf`.
fn load_bookie(text: &str) -> (Files, Result<Config, Problems>) {
    let files = Files::new();
    let bookie_conf = Some(files.write("bk_server.conf", text));
    let result = load(&Sources {
        bookie_conf,
        ..Sources::default()
    });
    (files, result)
}

fn bookie_verdict(text: &str) -> String {
    let (files, result) = load_bookie(text);
    files.shorten(&check_human(&result))
}

#[test]
fn ledger_and_index_at_one_path_are_one_ledger_directory() {
    let (_files, result) =
        load_bookie("ledgerDirectories=/l\nindexDirectories=/l\njournalDirectory=/j\n");
    let config = result.unwrap();
    let roles: Vec<_> = config.dirs.iter().map(|dir| dir.role).collect();
    assert_eq!(roles, [Role::Ledger, Role::Journal]);
}

#[test]
fn the_bookies_file_gives_directories_thresholds_and_the_admin_address() {
    let (_files, result) = load_bookie(BOOKIE);
    let config = result.unwrap();
    let dirs: Vec<_> = config
        .dirs
        .iter()
        .map(|dir| (dir.role, dir.path.to_str().unwrap()))
        .collect();
    assert_eq!(
        dirs,
        [
            (Role::Ledger, "/mnt/l1"),
            (Role::Ledger, "/mnt/l2"),
            (Role::Journal, "/mnt/journal")
        ]
    );
    let dir = &config.dirs[0];
    assert!(dir.await_cookie);
    assert_eq!(dir.thresholds.full, 0.92);
    assert_eq!(dir.thresholds.warn, 0.85);
    assert_eq!(dir.thresholds.low_watermark, 0.90, "our own default");
    assert_eq!(dir.thresholds.high_priority_reserve, 2 << 30);
    assert_eq!(dir.probe.interval, Duration::from_secs(5));
    let bookie = config.bookie.unwrap();
    assert_eq!(bookie.admin_url.as_deref(), Some("http://127.0.0.1:8000"));
    assert_eq!(bookie.file.persist_bookie_status_enabled, Some(true));
    assert_eq!(bookie.id.as_deref(), Some("bk-3"));
    assert_eq!(bookie.file.read_only_mode_enabled, None);
    assert_eq!(config.warnings, []);
}

/// The place in the bookie's list is the number in the name of its `lastMark`.
#[test]
fn journals_keep_the_order_of_the_bookies_file() {
    let files = Files::new();
    let text = "ledgerDirectories=/l\njournalDirectories=/j0,/j1,/j2\n";
    let conf = files.write("bk_server.conf", text);
    let text = format!(
        "[bookie]\nconf = {conf:?}\n\
         [[dir]]\npath = \"/j2\"\nrole = \"journal\"\n[[dir]]\npath = \"/j1\"\nrole = \"journal\"\n"
    );
    let config = load(&Sources {
        file: Some(files.write("dirkeeper.toml", text)),
        ..Sources::default()
    })
    .unwrap();
    let paths: Vec<_> = config
        .dirs
        .iter()
        .map(|dir| dir.path.to_str().unwrap())
        .collect();
    assert_eq!(paths, ["/j0", "/j1", "/l", "/j2"]);
    assert_eq!(config.policy.bookie.unwrap().journal_bytes, 12 << 30);
}

#[test]
fn a_dir_section_adds_to_what_the_bookies_file_names() {
    let files = Files::new();
    let conf = files.write("bk_server.conf", BOOKIE);
    let config = load(&Sources {
        file: Some(files.write(
            "dirkeeper.toml",
            format!(
                "[bookie]\nconf = {conf:?}\nadmin_url = \"https://bk:1/\"\n[thresholds]\nfull = 0.93\n\
                 [[dir]]\npath = \"/mnt/l2\"\nrole = \"ledger\"\nwarn = 0.5\n"
            ),
        )),
        ..Sources::default()
    })
    .unwrap();
    let warn: Vec<_> = config
        .dirs
        .iter()
        .map(|dir| {
            (
                dir.path.to_str().unwrap(),
                dir.thresholds.warn,
                dir.thresholds.full,
            )
        })
        .collect();
    assert_eq!(
        warn,
        [
            ("/mnt/l2", 0.5, 0.93),
            ("/mnt/l1", 0.85, 0.93),
            ("/mnt/journal", 0.85, 0.93)
        ]
    );
    assert_eq!(
        config.bookie.unwrap().admin_url.as_deref(),
        Some("https://bk:1")
    );
    assert_eq!(config.files.len(), 2);
}

#[test]
fn mistakes_in_the_bookies_file() {
    insta::assert_snapshot!(bookie_verdict(include_str!("mistakes.conf")));
}

#[test]
fn pulsars_relative_directories_need_a_home() {
    let conf = "journalDirectory=data/bookkeeper/journal\nledgerDirectories=data/bookkeeper/ledgers\n\
                advertisedAddress=\nprometheusStatsHttpPort=8000\n";
    insta::assert_snapshot!(bookie_verdict(conf));

    let files = Files::new();
    let path = files.write("bookkeeper.conf", conf);
    let toml = format!("[bookie]\nconf = {path:?}\nhome = \"/pulsar\"\nversion = \"4.17.3\"\n");
    let config = load(&Sources {
        file: Some(files.write("dirkeeper.toml", toml)),
        ..Sources::default()
    })
    .unwrap();
    assert_eq!(
        config.dirs[0].path,
        Path::new("/pulsar/data/bookkeeper/ledgers")
    );
    assert_eq!(config.bookie.unwrap().admin_url, None);
    assert!(!config.policy.any_full, "the default of 4.17");
}

#[test]
fn any_full_follows_key_version_and_our_own_setting() {
    let any_full = |key: &str, toml: &str| {
        let files = Files::new();
        let conf = files.write(
            "bk.conf",
            format!("ledgerDirectories=/l\njournalDirectories=/j\n{key}"),
        );
        let file = files.write(
            "dirkeeper.toml",
            format!("[bookie]\nconf = {conf:?}\n{toml}"),
        );
        let config = load(&Sources {
            file: Some(file),
            ..Sources::default()
        })
        .unwrap();
        config.policy.any_full
    };
    let (on, off) = (
        "readOnlyModeOnAnyDiskFullEnabled=true",
        "readOnlyModeOnAnyDiskFullEnabled=false",
    );
    assert!(any_full("", ""), "unknown: the most dangerous");
    assert!(any_full(on, "") && !any_full(off, ""));
    assert!(!any_full(on, "version = \"4.15.5\""), "ignored before 4.16");
    assert!(any_full(on, "version = \"4.16\""));
    assert!(!any_full("", "version = \"4.17.3\"") && any_full("", "version = \"4.18.0\""));
    assert!(any_full(off, "read_only_on_any_full = true"));
    assert!(any_full(
        off,
        "version = \"4.15\"\nread_only_on_any_full = true"
    ));
}

#[test]
fn an_imported_file_means_the_same() {
    let files = Files::new();
    let conf = files.write("bk_server.conf", BOOKIE);
    let imported = import(&conf, None).unwrap();
    insta::assert_snapshot!(files.shorten(&imported));

    let direct = load(&Sources {
        bookie_conf: Some(conf),
        ..Sources::default()
    })
    .unwrap();
    let file = files.write("imported.toml", imported);
    let imported = load(&Sources {
        file: Some(file),
        ..Sources::default()
    })
    .unwrap();
    assert_eq!(imported.dirs, direct.dirs);
    // A start, and the bookie's own watch, are judged by the bookie's file itself.
    let policy = crate::health::policy::Policy {
        bookie: None,
        beside: imported.policy.beside,
        ..direct.policy
    };
    assert_eq!(imported.policy, policy);
    let url = |config: Config| config.bookie.unwrap().admin_url;
    assert_eq!(url(imported), url(direct));
}

#[test]
fn the_bookies_id_comes_from_our_file_or_its_own() {
    let id = |line: &str, key: &str| {
        let files = Files::new();
        let text = format!("ledgerDirectories=/l\njournalDirectories=/j\n{line}\n");
        let conf = files.write("bk.conf", text);
        let config = valid(&format!("[bookie]\nconf = {conf:?}\n{key}\n"));
        config.bookie.unwrap().id
    };
    assert_eq!(id("", ""), None);
    assert_eq!(id("bookiePort=3182", ""), None, "its host is not known");
    assert_eq!(
        id("advertisedAddress=bk-3", "").as_deref(),
        Some("bk-3:3181")
    );
    assert_eq!(
        id("bookieId=b3", "id = \"10.0.0.3:3181\"").as_deref(),
        Some("10.0.0.3:3181")
    );
}

#[test]
fn a_bookie_without_an_id_in_a_zookeeper_is_warned_of() {
    let text = "ledgerDirectories=/l\njournalDirectories=/j\nmetadataServiceUri=zk://a\n";
    let verdict = bookie_verdict(text);
    let expected = "bookie.id: is not known: there is nothing of its cluster, and its mode cannot be set; set bookie.id";
    assert!(verdict.contains(expected), "{verdict}");
    assert!(!bookie_verdict(&format!("{text}bookieId=b3\n")).contains("bookie.id"));
}

/// Each need is said, with what meets it.
#[test]
fn enforce_needs_an_admin_server_a_zookeeper_and_an_id() {
    let enforce = format!("{MINIMAL}\n[bookie]\nversion = \"4.17.3\"\ncontrol = \"enforce\"\n");
    insta::assert_snapshot!(verdict(&enforce));
    let bad = verdict(&format!("{enforce}id = \"a/b\"\n"));
    assert!(bad.contains("bookie.id = \"a/b\": cannot be"), "{bad}");
    assert!(!bad.contains("neither file says it"), "{bad}");
    let unread = verdict(&format!("{enforce}conf = \"/nowhere/bk.conf\"\n"));
    let lines: Vec<_> = unread
        .lines()
        .filter(|line| line.starts_with("error"))
        .collect();
    assert!(
        lines.len() == 1 && lines[0].contains("cannot be read"),
        "{unread}"
    );
    let all = "admin_url = \"http://127.0.0.1:8080\"\nid = \"10.0.0.3:3181\"\n\
               [zookeeper]\nmetadata_service_uri = \"zk://a\"\n";
    let config = valid(&format!("{enforce}{all}"));
    assert!(config.bookie.unwrap().enforce);
}

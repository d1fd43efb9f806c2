//! `[zookeeper]`, and what the bookie's file says of it.

use std::os::unix::fs::PermissionsExt;

use super::*;

/// What a section comes to, in a line.
fn shown(config: &ZooKeeperConfig) -> String {
    let digest = config.digest.as_ref().map_or("-", |secret| &secret.0);
    let (servers, ledgers) = (config.servers.join(" "), &config.ledgers_root);
    format!("{servers} {ledgers} {} {digest}", config.root)
}

fn of(section: &str) -> Option<String> {
    let config = valid(&format!("{MINIMAL}\n[zookeeper]\n{section}\n"));
    config.zookeeper.as_ref().map(shown)
}

#[test]
fn servers_paths_and_users() {
    let check = |section: &str, expected: &str| {
        assert_eq!(of(section).as_deref(), Some(expected), "{section}");
    };
    check(
        "metadata_service_uri = \"zk+hierarchical://a:1;b/x/ledgers\"\nroot = \"/x/own\"",
        "a:1 b:2181 /x/ledgers /x/own -",
    );
    check(
        "metadata_service_uri = \"zk+null://a,b:2\"\nauth = \"digest:u:p:q\"",
        "a:2181 b:2 /ledgers /dirkeeper u:p:q",
    );
    check(
        "metadata_service_uri = \"metadata-store:zk:a:1,b:1/chroot/ledgers\"",
        "a:1 b:1 /chroot/ledgers /dirkeeper -",
    );
    assert_eq!(of("root = \"/a\""), None);
}

#[test]
fn what_is_wrong_with_it() {
    let check = |section: &str, expected: &str| {
        let text = verdict(&format!("{MINIMAL}\n[zookeeper]\n{section}\n"));
        assert!(text.contains(expected), "{expected}\nis not in\n{text}");
        assert!(!text.contains("secret"), "{text}");
    };
    for uri in [
        "etcd:http://a:2379/x",
        "metadata-store:oxia://a:6648/x",
        "zk:///x",
        "",
    ] {
        check(
            &format!("metadata_service_uri = {uri:?}"),
            ": is not a ZooKeeper; write it like",
        );
    }
    check(
        "metadata_service_uri = \"zk://a:99999\"",
        "has no port 99999",
    );
    check(
        "metadata_service_uri = \"zk://a/x//y\"",
        "has a part that is empty",
    );
    check(
        "root = \"dirkeeper\"",
        "zookeeper.root = \"dirkeeper\": does not begin with a slash",
    );
    check("root = \"/\"", "has a part that is empty");
    check(
        "auth = \"sasl:user:secret\"",
        "zookeeper.auth: is of a scheme that is not known",
    );
    check(
        "auth = \"digest:secret\"",
        "zookeeper.auth: has no user or no password",
    );
    check(
        "atuh = \"digest:user:secret\"",
        "zookeeper.atuh: there is no such key",
    );
    check(
        "auth = \"digest:user:secret",
        "in `auth = \"`; correct the TOML",
    );
    check(
        "tls_cert = \"/c\"",
        "zookeeper.tls_cert = \"/c\": is of no use without zookeeper.tls_key",
    );
    check(
        "tls_cert = \"/c\"\ntls_key = \"/k\"",
        "is of no use without zookeeper.tls_ca",
    );
}

#[test]
fn a_password_is_shown_nowhere_and_warned_of_where_all_can_read_it() {
    let section = "\n[zookeeper]\nmetadata_service_uri = \"zk://a\"\nauth = \"digest:u:secret\"\n";
    let (files, first) = load_toml(&format!("{MINIMAL}{section}"));
    let config = first.unwrap();
    let text = format!("{config:?}{}", show(&config));
    assert!(!text.contains("secret"), "{text}");
    assert!(
        files
            .shorten(&text)
            .contains("# auth is set by dirkeeper.toml:7, and not shown")
    );
    let warned = |mode: u32| {
        let path = files.0.path().join("dirkeeper.toml");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        let file = Some(path);
        let config = load(&Sources {
            file,
            ..Sources::default()
        });
        config
            .unwrap()
            .warnings
            .iter()
            .any(|problem| problem.key == "zookeeper.auth")
    };
    assert!(warned(0o644));
    assert!(!warned(0o640));
}

#[test]
fn files_beside_it() {
    let files = Files::new();
    let auth = files.write("auth", "digest:u:from-file\n");
    let ca = files.write("ca", "PEM");
    let section = |auth: &Path| {
        format!(
            "{MINIMAL}\n[zookeeper]\nmetadata_service_uri = \"zk://a\"\nauth_file = {auth:?}\ntls_ca = {ca:?}\n"
        )
    };
    let read = |text: &str| valid(text).zookeeper.unwrap().read_files();
    let found = read(&section(&auth)).unwrap();
    assert_eq!(found.digest, Some(Secret("u:from-file".to_owned())));
    assert_eq!(found.tls, Some(("PEM".to_owned(), None)));
    for (name, bytes) in [("bad", &b"nobody"[..]), ("bytes", b"\xff")] {
        let path = files.write(name, bytes);
        let problems = read(&section(&path)).unwrap_err();
        assert_eq!(problems.errors[0].key, "zookeeper.auth_file", "{problems}");
    }
    assert!(read(&section(Path::new("/nowhere"))).is_err());
}

#[test]
fn the_bookies_file_names_it_and_ours_counts_before() {
    let files = Files::new();
    let with = |line: &str, section: &str| {
        let conf = files.write("bk.conf", format!("{BOOKIE}{line}\n"));
        let text = format!("[bookie]\nconf = {conf:?}\n{section}\n");
        let config = valid(&text);
        let other = |problem: &&Problem| problem.problem.contains("observe only");
        let warned = config
            .warnings
            .iter()
            .find(other)
            .map(|problem| problem.problem.clone());
        (config.zookeeper.as_ref().map(shown), warned)
    };
    let plain = with("metadataServiceUri=zk+hierarchical://a:1;b:1/ledgers", "");
    assert_eq!(
        plain,
        (Some("a:1 b:1 /ledgers /dirkeeper -".to_owned()), None)
    );
    let older = with("zkServers=a:1,b:1\nzkLedgersRootPath=/my", "");
    assert_eq!(older.0.as_deref(), Some("a:1 b:1 /my /dirkeeper -"));
    let ours = with(
        "metadataServiceUri=zk://a:1/ledgers",
        "[zookeeper]\nmetadata_service_uri = \"zk://b:1/x\"\n",
    );
    assert_eq!(ours.0.as_deref(), Some("b:1 /x /dirkeeper -"));
    for uri in ["etcd:http://a:2379", "metadata-store:oxia://a:6648/x"] {
        let (found, warned) = with(&format!("metadataServiceUri={uri}"), "");
        assert_eq!(found, None);
        let expected = "is not a ZooKeeper: the agent works with observe only";
        assert_eq!(warned.as_deref(), Some(expected));
    }
}

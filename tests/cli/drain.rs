//! `drain` from outside: what it refuses. What it does with bookies is shown in the laboratory.

use super::*;

#[test]
fn what_cannot_be_meant_is_refused_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("drain.toml");
    std::fs::write(&config, "[drain]\nworkers = 0\nspeed = 3\n").unwrap();
    let config = config.to_str().unwrap();
    let uri = "--metadata-service-uri";
    let lines: &[(u8, &[&str])] = &[
        (64, &["drain"]),
        (64, &["drain", "plan"]),
        (64, &["drain", "plan", "--bookies", "bk1:3181"]),
        (64, &["drain", "plan", "--bookies", "bk1:3181,,bk2:3181"]),
        (64, &["drain", "plan", "--bookies", "a/b"]),
        (
            64,
            &[
                "drain",
                "plan",
                "--bookies",
                "bk1:3181",
                "--max-bytes-per-second",
                "fast",
            ],
        ),
        (
            64,
            &[
                "drain",
                "start",
                "--bookies",
                "bk1:3181",
                "--reader-gate",
                "hope",
            ],
        ),
        (
            64,
            &[
                "drain",
                "start",
                "--bookies",
                "bk1:3181",
                "--open-ledgers",
                "recover",
            ],
        ),
        (
            64,
            &[
                "drain",
                "start",
                "--bookies",
                "bk1:3181",
                "--admin",
                "bk1:3181",
            ],
        ),
        (64, &["drain", "run", "--workers", "0"]),
        (
            64,
            &["drain", "run", "--broker-url", "pulsar://broker:6650"],
        ),
        (64, &["drain", "run", "--broker-token-file", "t"]),
        (64, &["drain", "set"]),
        (64, &["drain", "cancel", "--execute"]),
        (64, &["drain", "finish"]),
        (64, &["drain", "status", uri, "zk1:2181"]),
        (78, &["drain", "status", uri, "etcd:http://a:2379/x"]),
        (78, &["drain", "status", "--config", config]),
    ];
    let mut transcripts = String::new();
    for (code, line) in lines {
        let output = run(line);
        let transcript = transcript(line, &output);
        assert_eq!(output.status.code(), Some(i32::from(*code)), "{transcript}");
        assert!(output.stdout.is_empty(), "{transcript}");
        transcripts.push_str(&transcript.replace(folder.path().to_str().unwrap(), "DIR"));
        transcripts.push('\n');
    }
    insta::assert_snapshot!("drain_refused", transcripts);
}

#[test]
fn a_zookeeper_that_is_not_there_is_69() {
    // Bound and given up again: nobody listens there.
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let uri = format!("zk+hierarchical://{address}/ledgers");
    let output = run(&["drain", "status", "--metadata-service-uri", &uri]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{said}");
    assert!(output.stdout.is_empty());
    let sentence = format!("dirkeeper: no ZooKeeper of {address} answered within 10 s\n");
    assert!(said.contains(&sentence), "{said}");
}

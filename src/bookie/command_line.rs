//! Reads the command line of a process: is it a bookie, by which file, of which version. Text only.
//!
//! `bin/bookkeeper bookie` and `bin/pulsar bookie` both end as
//! `java … -cp JARS … org.apache.bookkeeper.server.Main --conf FILE`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Main classes that are a bookie: of today, and before 4.8 (`BookieServer`).
const MAIN_CLASSES: [&str; 2] = [
    "org.apache.bookkeeper.server.Main",
    "org.apache.bookkeeper.proto.BookieServer",
];

/// Pulsar's own starters are one when they are told so.
const PULSAR: &[u8] = b"org.apache.pulsar.";

/// How BookKeeper's server options name the file (commons-cli takes either, with `=` or without).
const CONF_OPTIONS: [&str; 2] = ["--conf", "-c"];

/// What the server's jar is called in BookKeeper's and in Pulsar's distribution, up to the version.
const JARS: [&str; 2] = [
    "bookkeeper-server-",
    "org.apache.bookkeeper-bookkeeper-server-",
];

/// Whether the process is a bookie.
pub(super) fn is_bookie(arguments: &[OsString]) -> bool {
    let is_pulsar = |argument: &OsString| argument.as_bytes().starts_with(PULSAR);
    arguments.iter().any(is_main)
        || (arguments.iter().any(is_pulsar) && arguments.iter().any(|word| word == "bookie"))
}

fn is_main(argument: &OsString) -> bool {
    MAIN_CLASSES.iter().any(|class| argument == class)
}

/// The configuration file that it was started with, as it was written there. What stands before the
/// main class is for the virtual machine, or for a shell.
pub(super) fn conf(arguments: &[OsString]) -> Option<&OsStr> {
    let main = arguments.iter().position(is_main);
    let mut arguments = arguments[main.unwrap_or(0)..].iter();
    while let Some(argument) = arguments.next() {
        for option in CONF_OPTIONS {
            if argument == option {
                return arguments.next().map(OsString::as_os_str);
            }
            let value = argument.as_bytes().strip_prefix(option.as_bytes());
            if let Some(path) = value.and_then(|value| value.strip_prefix(b"=")) {
                return Some(OsStr::from_bytes(path));
            }
        }
    }
    None
}

/// Whether it was started with that file. What is relative there counts as the same when the end is:
/// where it is relative to cannot be asked without touching that directory.
pub(super) fn is_started_with(arguments: &[OsString], file: &Path) -> bool {
    if arguments
        .iter()
        .any(|argument| argument == file.as_os_str())
    {
        return true;
    }
    let Some(written) = conf(arguments).map(Path::new) else {
        return false;
    };
    let written = written.strip_prefix(".").unwrap_or(written);
    written == file || (written.is_relative() && file.ends_with(written))
}

/// BookKeeper's version, by the server's jar on its class path. That of `bin/bookkeeper` names each
/// jar, that of `bin/pulsar` is a wildcard, and then there is none.
pub(super) fn version(arguments: &[OsString]) -> Option<String> {
    let mut entries = arguments
        .iter()
        .flat_map(|argument| argument.as_bytes().split(|byte| *byte == b':'));
    entries.find_map(|entry| version_of_jar(Path::new(OsStr::from_bytes(entry))))
}

/// The version in the name of the server's jar; none for any other file.
pub(super) fn version_of_jar(file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?.strip_suffix(".jar")?;
    let version = JARS.iter().find_map(|jar| name.strip_prefix(jar))?;
    let is_version = version.starts_with(|letter: char| letter.is_ascii_digit());
    is_version.then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    const FILE: &str = "/etc/bookkeeper/bk_server.conf";

    #[test]
    fn bookies_are_told_from_what_runs_beside_them() {
        let bookies = [
            "java -cp a.jar org.apache.bookkeeper.server.Main --conf /etc/bookkeeper/bk_server.conf",
            "java org.apache.bookkeeper.proto.BookieServer -c /etc/bookkeeper/bk_server.conf",
            "java org.apache.bookkeeper.server.Main --conf=/etc/bookkeeper/bk_server.conf",
            "java org.apache.bookkeeper.server.Main --conf ./bookkeeper/bk_server.conf",
            "java org.apache.bookkeeper.server.Main -c bk_server.conf",
            "sh -c script java org.apache.bookkeeper.server.Main -c bk_server.conf",
            "java org.apache.pulsar.Starter bookie --conf /etc/bookkeeper/bk_server.conf",
        ];
        for line in bookies {
            let arguments = arguments(line);
            assert!(is_bookie(&arguments), "{line}");
            assert!(is_started_with(&arguments, Path::new(FILE)), "{line}");
        }
        let others = [
            "java org.apache.bookkeeper.replication.AutoRecoveryMain --conf /etc/bookkeeper/bk_server.conf",
            "java org.apache.bookkeeper.bookie.BookieShell -conf /etc/bookkeeper/bk_server.conf",
            "java org.apache.pulsar.PulsarBrokerStarter --broker-conf /etc/pulsar/broker.conf",
            "grep org.apache.bookkeeper.server.Main.java",
            "",
        ];
        for line in others {
            assert!(!is_bookie(&arguments(line)), "{line}");
        }
    }

    #[test]
    fn another_bookie_on_the_host_has_another_file() {
        for line in [
            "java org.apache.bookkeeper.server.Main --conf /etc/bookkeeper/bk_server.conf.2",
            "java org.apache.bookkeeper.server.Main --conf /srv/2/etc/bookkeeper/bk_server.conf",
            "java org.apache.bookkeeper.server.Main --conf r.conf",
            "java org.apache.bookkeeper.server.Main --conf",
            "java org.apache.bookkeeper.server.Main",
        ] {
            assert!(
                !is_started_with(&arguments(line), Path::new(FILE)),
                "{line}"
            );
        }
    }

    #[test]
    fn the_version_is_that_of_the_servers_jar() {
        let table = [
            (
                "java -cp /a/bookkeeper-common-4.1.0.jar:/a/bookkeeper-server-4.17.3.jar x",
                Some("4.17.3"),
            ),
            (
                "java -cp /p/lib/org.apache.bookkeeper-bookkeeper-server-4.16.6.jar:/p/conf x",
                Some("4.16.6"),
            ),
            (
                "java -classpath bookkeeper-server-4.18.0-SNAPSHOT.jar x",
                Some("4.18.0-SNAPSHOT"),
            ),
            (
                "java -cp /a/bookkeeper-server-shaded-4.17.3.jar:/a/lib/* x",
                None,
            ),
            ("java -cp /a/bookkeeper-server-4.17.3/lib/x.jar x", None),
        ];
        for (line, expected) in table {
            assert_eq!(version(&arguments(line)).as_deref(), expected, "{line}");
        }
    }
}

//! What other monitors say of a fault while it stands: Prometheus' node_exporter, and BookKeeper's own
//! DiskChecker. Both run beside the tests in the same name space; each is asked with a limit, because
//! no answer is an answer too.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::http;
use super::run::{text, try_for, wait_exit, wait_for};

/// How long an answer may take; Prometheus waits for 10 s by default, and most set less.
const LIMIT: Duration = Duration::from_secs(5);
/// A Java program that compiles itself first, on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Released by the end of the tests, both end at once.
const END_LIMIT: Duration = Duration::from_secs(5);
/// Usage over which numbers say something, for those who compare them.
const NOTABLE: f64 = 0.90;

/// The other monitors, those of them that are there.
#[derive(Debug)]
pub(crate) struct Peers {
    exporter: Option<Exporter>,
    checker: Option<Checker>,
}

impl Peers {
    /// Starts node_exporter as the program FAULT_NODE_EXPORTER, and a Java program with the class path
    /// FAULT_DISK_CHECKER.
    pub(crate) fn start(root: &Path) -> Peers {
        let folder = root.join("peers");
        fs::create_dir(&folder).expect("the root is ours");
        let exporter = std::env::var_os("FAULT_NODE_EXPORTER");
        let checker = std::env::var_os("FAULT_DISK_CHECKER");
        Peers {
            exporter: exporter.map(|program| Exporter::start(Path::new(&program), &folder)),
            checker: checker.map(|classes| Checker::start(Path::new(&classes), &folder)),
        }
    }

    /// All that node_exporter tells now.
    pub(crate) fn view(&self) -> Option<View> {
        self.exporter.as_ref()?.scrape()
    }

    /// What node_exporter tells of the file system of a directory, in a few words.
    pub(crate) fn node_exporter(&self, healthy: Option<&View>, dir: &Path) -> Option<String> {
        let Some(now) = self.exporter.as_ref()?.scrape() else {
            return Some("no answer in 5 s".to_owned());
        };
        Some(now.words(healthy, dir))
    }

    /// What DiskChecker says of a directory.
    pub(crate) fn disk_checker(&self, dir: &Path) -> Option<String> {
        let answer = self.checker.as_ref()?.ask(dir);
        Some(answer.unwrap_or_else(|| "no answer in 5 s".to_owned()))
    }
}

#[derive(Debug)]
struct Exporter {
    process: Child,
    port: u16,
}

impl Exporter {
    fn start(program: &Path, folder: &Path) -> Exporter {
        // It reads the mount table of process 1, which is not the one of our name space.
        let proc = folder.join("proc");
        fs::create_dir(&proc).expect("the folder is ours");
        for (name, target) in [("1", "/proc/self"), ("diskstats", "/proc/diskstats")] {
            symlink(target, proc.join(name)).expect("the folder is ours");
        }
        let log = folder.join("node_exporter.log");
        let process = Command::new(program)
            .args(["--web.listen-address=127.0.0.1:0"])
            .args(["--collector.disable-defaults", "--collector.filesystem"])
            .args(["--collector.diskstats", "--log.level=info"])
            // Loop devices are left out by default; here they are the disks.
            .arg("--collector.diskstats.device-exclude=^ram")
            .arg(format!("--path.procfs={}", text(&proc)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).expect("the folder is ours"))
            .spawn()
            .expect("FAULT_NODE_EXPORTER is a program");
        let port = wait_for("node_exporter listens", START_LIMIT, || {
            let log = fs::read_to_string(&log).ok()?;
            let (_, rest) = log.split_once("address=127.0.0.1:")?;
            rest.split_whitespace().next()?.parse().ok()
        });
        Exporter { process, port }
    }

    fn scrape(&self) -> Option<View> {
        let (status, text) = http::get(self.port, "/metrics").ok()?;
        (status == 200).then_some(View { text })
    }
}

/// An answer of node_exporter.
#[derive(Debug)]
pub(crate) struct View {
    text: String,
}

impl View {
    /// Labels and value of each series of that name that has this label.
    fn series(&self, name: &str, label: &str) -> Vec<(&str, f64)> {
        let lines = self.text.lines();
        let of_name = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'));
        let pairs = of_name.filter_map(|line| line.split_once("} "));
        pairs
            .filter(|(labels, _)| labels.contains(label))
            .filter_map(|(labels, value)| Some((labels, value.parse().ok()?)))
            .collect()
    }

    /// The mount point of a directory.
    fn mount_point(&self, dir: &Path) -> Option<PathBuf> {
        let points = self.series("node_filesystem_device_error", "mountpoint=");
        let points = points.iter().filter_map(|(labels, _)| {
            let (_, rest) = labels.split_once("mountpoint=\"")?;
            Some(PathBuf::from(rest.split_once('"')?.0))
        });
        points
            .filter(|point| dir.starts_with(point))
            .max_by_key(|point| point.components().count())
    }

    fn words(&self, healthy: Option<&View>, dir: &Path) -> String {
        let Some(point) = healthy.unwrap_or(self).mount_point(dir) else {
            return "mount not listed".to_owned();
        };
        let label = format!("mountpoint=\"{}\"", text(&point));
        let value = |name: &str| {
            let series = self.series(&format!("node_filesystem_{name}"), &label);
            series.last().map(|(_, value)| *value)
        };
        let errors = self.series("node_filesystem_device_error", &label);
        let Some((labels, _)) = errors.last() else {
            return "mount no longer listed".to_owned();
        };
        if errors.len() > 1 {
            return "a second mount listed on the mount point".to_owned();
        }
        if errors[0].1 == 1.0 {
            return "device_error=1".to_owned();
        }
        let mut words = Vec::new();
        if value("readonly") == Some(1.0) {
            words.push("readonly=1".to_owned());
        }
        if value("size_bytes") == Some(0.0) {
            words.push("size_bytes=0".to_owned());
        }
        for (rest, whole) in [("avail_bytes", "size_bytes"), ("files_free", "files")] {
            let share = value(rest).zip(value(whole)).map(|(rest, all)| rest / all);
            if let Some(share) = share.filter(|share| *share <= 1.0 - NOTABLE) {
                words.push(format!("{rest} {:.0} %, only the numbers", share * 100.0));
            }
        }
        if let Some((_, device)) = labels.split_once("device=\"/dev/") {
            let device = device.split('"').next().unwrap_or_default();
            let label = format!("device=\"{device}\"");
            let running = self.series("node_disk_io_now", &label);
            if let Some((_, count)) = running.first().filter(|(_, count)| *count > 0.0) {
                words.push(format!("io_now={count}, only the number"));
            }
        }
        if words.is_empty() {
            return "nothing".to_owned();
        }
        words.join("; ")
    }
}

#[derive(Debug)]
struct Checker {
    process: Child,
    questions: Mutex<ChildStdin>,
    answers: Arc<Mutex<HashMap<u64, String>>>,
    next: AtomicU64,
}

impl Checker {
    fn start(classes: &Path, folder: &Path) -> Checker {
        let source = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/faults/peers/DiskCheckerProbe.java"
        );
        let log = File::create(folder.join("disk_checker.log")).expect("the folder is ours");
        let mut process = Command::new("java")
            .args(["-Xmx64m", "-cp", text(classes), source])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("java is installed");
        let answers = Arc::new(Mutex::new(HashMap::new()));
        let lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let kept = answers.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let answer = line.split_once(' ');
                if let Some((Ok(number), text)) = answer.map(|(left, text)| (left.parse(), text)) {
                    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    kept.insert(number, text.to_owned());
                }
            }
        });
        let checker = Checker {
            questions: Mutex::new(process.stdin.take().expect("it is piped")),
            process,
            answers,
            next: AtomicU64::new(0),
        };
        let first = checker.ask_for(folder, START_LIMIT);
        assert!(first.is_some(), "DiskChecker does not answer");
        checker
    }

    fn ask(&self, dir: &Path) -> Option<String> {
        self.ask_for(dir, LIMIT)
    }

    fn ask_for(&self, dir: &Path, limit: Duration) -> Option<String> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let question = format!("{number} {}\n", text(dir));
        let mut questions = self
            .questions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        questions
            .write_all(question.as_bytes())
            .expect("it reads its input");
        drop(questions);
        try_for(limit, || {
            let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            answers.remove(&number)
        })
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        let exporter = self.exporter.as_mut().map(|exporter| &mut exporter.process);
        let checker = self.checker.as_mut().map(|checker| &mut checker.process);
        for process in exporter.into_iter().chain(checker) {
            let _ = process.kill();
            let _ = wait_exit(process, END_LIMIT);
        }
    }
}

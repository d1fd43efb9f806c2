//! The house as `tidy.rs` checks it: rooms and arrows between them, what is pure, and the exceptions,
//! each with its reason. A new room or exception is entered here and nowhere else.

/// What each room may use beside itself: a room, or one name in it. Leaves may be used by all but the
/// pure ones; `lib.rs` and `main.rs` by nobody.
pub(crate) const ARROWS: &[(&str, &[&str])] = &[
    ("health", &[]),
    ("prober", &["health", "probe::wire"]),
    // The word on its command line that turns the program into a prober.
    ("probe", &["health", "prober"]),
    ("monitor", &["health", "probe"]),
    ("state", &["health"]),
    ("mode", &["health", "state", "bookie", "cluster"]),
    ("listener", &["health", "state"]),
    ("bookie", &["health"]),
    // Mutation in tests.
    ("cluster", &["health", "mutation"]),
    ("reclaim", &["cluster", "state"]),
    ("drain", &["health", "cluster", "bookie"]),
    ("metrics", &["health"]),
    ("http", &["health"]),
    ("config", &["health"]),
    // A composition of its own, for another server.
    ("embed", &["*"]),
    ("app", &["*"]),
    ("cli", &["*", "app"]),
];

/// Rooms without rooms of their own, with what they may use all the same.
pub(crate) const LEAVES: &[(&str, &[&str])] = &[
    ("backoff", &[]),
    // Here and below, mutation in tests.
    ("child", &["mutation"]),
    ("clock", &["health"]),
    ("document", &["health", "generated"]),
    ("failpoint", &[]),
    // Tests only.
    ("generated", &[]),
    ("http_client", &["backoff", "clock", "mutation"]),
    // Tests only.
    ("mutation", &[]),
    ("report", &["health"]),
    ("shutdown", &[]),
];

/// Decide only: every line can be replayed by a scenario.
pub(crate) const PURE: &[&str] = &[
    "src/health/",
    "src/mode/plan",
    "src/reclaim/plan",
    "src/drain/plan",
    "src/cli/watch/model.rs",
    "src/cli/watch/keys.rs",
    "src/cli/watch/draw/",
];

/// What a pure file may not name: the world, and crates that bring it.
pub(crate) const IMPURE: &[&str] = &[
    "std::fs",
    "std::net",
    "std::io",
    "std::process",
    "std::thread",
    "std::env",
    "std::os",
    "tokio",
    "serde",
    "serde_json",
    "tracing",
    "nix",
    "axum",
    "redb",
    "reqwest",
    "sysinfo",
    "notify",
    "fastrand",
    "anyhow",
];

/// Ways to a file system.
pub(crate) const FILE_SYSTEM: &[&str] = &[
    "std::fs",
    "tokio::fs",
    "nix::dir",
    "nix::fcntl",
    "nix::mount",
    "nix::sys::stat",
    "nix::sys::statfs",
    "nix::sys::statvfs",
    "nix::sys::inotify",
    "nix::sys::fanotify",
    "sysinfo",
    "notify",
    "tempfile",
];

/// Who may go there, and why it is not a watched path or why it may wait for one.
pub(crate) const MAY_USE_FILES: &[(&str, &str)] = &[
    (
        "src/prober/",
        "the child that is made for it and can be left behind",
    ),
    (
        "src/state/writer",
        "the writer child writes all that is ours and can be left behind",
    ),
    ("src/child.rs", "/dev/null and its own /proc/self only"),
    ("src/probe/children.rs", "/proc of its own children only"),
    ("src/metrics/process.rs", "/proc of the agent itself only"),
    (
        "src/bookie/process.rs",
        "/proc only, from a thread that may be lost",
    ),
    ("src/state/place.rs", "the writer, or a command that reads"),
    (
        "src/state/overlay.rs",
        "the writer, or a command that reads",
    ),
    ("src/state/tables.rs", "the writer, or a command that reads"),
    (
        "src/cluster/snapshot_file",
        "a file that a user named on the command line of a short-lived command",
    ),
    (
        "src/config/",
        "its own files, at start and at a reload, from a thread that may be lost",
    ),
    ("src/app/token.rs", "the file of the token, once at start"),
    (
        "src/reclaim/state/",
        "the file of a command of its own, which nothing of the watch waits for",
    ),
    (
        "src/reclaim/crashes.rs",
        "tests only: the file of reclaim, through which its runs die and go on",
    ),
    (
        "src/generated.rs",
        "tests only: files of the repository itself",
    ),
    (
        "src/cli/",
        "files that a user named on the command line of a short-lived command",
    ),
];

/// Names beside them that say how a descriptor behaves, and open nothing.
pub(crate) const NO_FILE_SYSTEM: &[&str] = &[
    "nix::fcntl::FcntlArg",
    "nix::fcntl::OFlag",
    "nix::fcntl::fcntl",
];

/// Who may read a clock, and why.
pub(crate) const MAY_READ_CLOCKS: &[(&str, &str)] = &[
    ("src/clock.rs", "the one place"),
    (
        "tests/prober/",
        "how soon a real kernel makes itself heard is its subject",
    ),
];

/// Who may use a timer of the runtime, and why.
pub(crate) const MAY_SLEEP: &[(&str, &str)] = &[
    (
        "src/monitor/mod.rs",
        "the loop's own timer, beside its actions",
    ),
    (
        "src/http_client/",
        "the wait between two tries of a command that follows events",
    ),
    (
        "src/cli/watch/",
        "the pace of the questions of a live view, and the waits between two tries",
    ),
    (
        "src/cli/reclaim/",
        "the limit of a first answer and of the lock, the beats of progress, the rest between two passes",
    ),
    (
        "src/http/connection.rs",
        "the limits of a connection that is silent",
    ),
    (
        "src/http/impatient.rs",
        "the limit of a client that does not read",
    ),
    ("src/http/access.rs", "the rest after a wrong password"),
    (
        "src/http/orders.rs",
        "the rest after a question that takes the lock of the cluster",
    ),
    (
        "tests/bad_input/exposed/attacks.rs",
        "the pace of an attacker is its weapon",
    ),
    ("src/probe/supervisor.rs", "between two starts of the child"),
    ("src/state/process.rs", "between two starts of the child"),
    (
        "src/mode/keep.rs",
        "its beats, the limit of a registration, each beside its reason",
    ),
    (
        "src/drain/job/jobs.rs",
        "between two looks at limits that nobody tells",
    ),
    (
        "src/reclaim/trim/",
        "the pace of its visits, and between two looks at a list that is to become shorter",
    ),
    (
        "src/cluster/",
        "its looks, the waits between two tries, the pace of its walk and the deadline of each call",
    ),
    ("src/reclaim/sweep/mod.rs", "the pace of its deletions"),
    (
        "src/drain/hold.rs",
        "between two looks at the list that a bookie is to change into",
    ),
    ("src/drain/lock.rs", "between two tries to give a lock back"),
    (
        "src/drain/throttle.rs",
        "bytes of a second that are used up",
    ),
    (
        "src/drain/worker/",
        "the waits between two tries, of a lister that is silent, and between two looks at what has to wait",
    ),
    (
        "src/reclaim/scan/reach.rs",
        "the waits between two tries, and how long a store may be out of reach",
    ),
    (
        "tests/prober/",
        "its waits for a child, each with a deadline",
    ),
    (
        "tests/state/",
        "its one wait for conditions, and the pace of a killer",
    ),
];

/// Lines of a file, tests included: what a reader takes in at one sitting.
pub(crate) const FILE_LINES: usize = 600;
/// Lines of a function: a screen.
pub(crate) const FUNCTION_LINES: usize = 70;
/// Lines of the comment that begins a file.
pub(crate) const COMMENT_LINES: usize = 10;
/// The file whose comment is a page of the documentation, with an example.
pub(crate) const PAGE: &str = "src/embed.rs";

//! Passes over the ledgers of a cluster, whole and interrupted at each call.

use super::*;

/// Ledgers in the layout of BookKeeper: every third is on `a`, some are open, in recovery or empty.
async fn cluster(store: &dyn MetaStore, count: u64) {
    let put = async |path: &str, data: &[u8]| {
        let made = create_with_parents(store, path, data, Kind::Persistent).await;
        made.unwrap();
    };
    put(
        "/ledgers/LAYOUT",
        b"2\nx.HierarchicalLedgerManagerFactory:1",
    )
    .await;
    put("/ledgers/available/a", b"").await;
    put("/ledgers/cookies/00", b"").await;
    let layout = crate::cluster::ledger::Layout::Hierarchical;
    for nth in 0..count {
        // In many folders, also in that of long ids.
        let id = if nth % 5 == 4 {
            nth + (1 << 40)
        } else {
            nth * 3001
        };
        let first = if nth % 3 == 0 { "a" } else { "b" };
        let end = ["\n9\tCLOSED", "", "\n-102\tCLOSED", "\n-1\tCLOSED"][nth as usize / 3 % 4];
        let text = format!("BookieMetadataFormatVersion\t1\n2\n2\n100\n0\t{first}\tc{end}");
        put(
            &format!("/ledgers/{}", layout.path(id).unwrap()),
            text.as_bytes(),
        )
        .await;
    }
}

fn progress() -> watch::Sender<Progress> {
    watch::Sender::new(Progress::default())
}

/// What a job's tasks say, without the name of the job.
async fn tasks_of(jobs: &Jobs, id: &str) -> BTreeMap<u64, Task> {
    let mut all = BTreeMap::new();
    let tasks = jobs.tasks(id);
    let read = tasks.for_each(|stored| {
        assert_eq!(stored.version, 0);
        all.insert(stored.task.ledger, stored.task);
    });
    read.await.unwrap();
    all
}

#[tokio::test]
async fn every_ledger_that_names_a_bookie_has_a_task() {
    let Scene { store, jobs, .. } = scene();
    cluster(&*store, 300).await;
    let id = jobs.create(&new(&["a"]), &LIMITS).await.unwrap().id;
    let (tasks, progress) = (jobs.tasks(&id), progress());
    let filled = fill(&tasks, &*store, "/ledgers", &set(&["a"]), &progress)
        .await
        .unwrap();
    assert_eq!(
        (filled.progress.seen, filled.progress.named, filled.added),
        (300, 100, 100)
    );
    let all = tasks_of(&jobs, &id).await;
    let told = |ledger: u64| {
        let task = &all[&ledger];
        let fragments: Vec<_> = task
            .fragments
            .iter()
            .map(|one| format!("{}@{}={}", one.first, one.index, one.old))
            .collect();
        format!(
            "{} {:?} {:?} {}",
            task.status.name(),
            fragments,
            task.reason,
            task.bytes
        )
    };
    insta::assert_snapshot!(told(0), @r#"todo ["0@0=a"] None 100"#);
    insta::assert_snapshot!(told(3 * 3001), @r#"waitingOpen [] Some("its last fragment is still written") 0"#);
    insta::assert_snapshot!(told(6 * 3001), @r#"waitingRecovery [] Some("it is in recovery") 0"#);
    insta::assert_snapshot!(told((1 << 40) + 9), @r#"todo ["0@0=a"] None 0"#);
    assert_eq!(tasks.count().await, Ok(100));
    // Again: nothing is missing, and nothing is changed.
    let mut one = tasks.get(0).await.unwrap().unwrap();
    one.task.status = Status::Failed;
    save(&*store, &[], &tasks, &mut one).await.unwrap();
    let again = fill(&tasks, &*store, "/ledgers", &set(&["a"]), &progress)
        .await
        .unwrap();
    assert_eq!(again.added, 0);
    assert_eq!(tasks.get(0).await.unwrap().unwrap(), one);
    let alive = set(&["a", "b", "c"]);
    let survey = survey(&*store, "/ledgers", &set(&["a"]), &alive, &progress)
        .await
        .unwrap();
    assert_eq!((survey.seen, survey.ledgers), (300, 100));
    assert_eq!(
        (survey.open.count, survey.in_recovery.count, survey.empty),
        (25, 25, 25)
    );
    assert_eq!(survey.bytes(), 25 * 100);
    let other = set(&["z"]);
    let nobody = super::super::survey(&*store, "/ledgers", &other, &alive, &progress);
    assert_eq!(nobody.await.unwrap().ledgers, 0);
}

/// Dies at a call, before or after it took effect.
struct Dies {
    at: usize,
    made: bool,
    calls: AtomicUsize,
    /// It never is, if the death is not noticed.
    dead: tokio::sync::Notify,
}

impl Hook for Arc<Dies> {
    fn before(&self, call: &Call<'_>) -> Fate {
        let is_write = !matches!(call, Call::Read(_));
        if !is_write || self.calls.fetch_add(1, Ordering::SeqCst) != self.at {
            return Fate::Answered;
        }
        self.dead.notify_one();
        match self.made {
            true => Fate::MadeAndDies,
            false => Fate::Dies,
        }
    }
}

#[tokio::test]
async fn one_that_is_killed_anywhere_is_gone_on_with() {
    let whole = scene();
    cluster(&*whole.store, 750).await;
    let id = whole.jobs.create(&new(&["a"]), &LIMITS).await.unwrap().id;
    let drained = set(&["a"]);
    let (tasks, told_to) = (whole.jobs.tasks(&id), progress());
    let filled = fill(&tasks, &*whole.store, "/ledgers", &drained, &told_to);
    assert_eq!(filled.await.unwrap().added, 250);
    let expected = tasks_of(&whole.jobs, &id).await;
    let mut died = 0;
    for (at, made) in (0..4).flat_map(|at| [(at, false), (at, true)]) {
        let id = whole.jobs.create(&new(&["z"]), &LIMITS).await.unwrap().id;
        let hook = Arc::new(Dies {
            at,
            made,
            calls: AtomicUsize::new(0),
            dead: tokio::sync::Notify::new(),
        });
        let store = Arc::new(Hooked {
            store: whole.store.clone() as Arc<dyn MetaStore>,
            hook: hook.clone(),
        });
        let tasks = jobs(store.clone()).tasks(&id);
        let progress = progress();
        let first = tokio::select! {
            filled = fill(&tasks, &*store, "/ledgers", &drained, &progress) => filled.unwrap().added,
            () = hook.dead.notified() => {
                died += 1;
                0
            }
        };
        let before = whole.jobs.tasks(&id).count().await.unwrap();
        let second = fill(
            &whole.jobs.tasks(&id),
            &*whole.store,
            "/ledgers",
            &drained,
            &progress,
        )
        .await
        .unwrap();
        assert_eq!(before + second.added, 250, "killed at write {at}");
        assert!(first == 0 || before == 250);
        assert!(
            tasks_of(&whole.jobs, &id).await == expected,
            "killed at write {at}"
        );
        whole.jobs.cancel(&id).await.unwrap();
        whole.jobs.forget(&id).await.unwrap();
    }
    assert_eq!(died, 6, "before and after each of its three transactions");
}

/// Each call is answered with trouble once, and with what it asks for at the second time.
struct Trouble {
    calls: AtomicUsize,
    every: usize,
}

impl Hook for Trouble {
    fn before(&self, call: &Call<'_>) -> Fate {
        match call {
            Call::Read(_) if self.calls.fetch_add(1, Ordering::SeqCst) % self.every == 1 => {
                Fate::Lost
            }
            _ => Fate::Answered,
        }
    }
}

#[tokio::test]
async fn a_walk_outlives_lost_answers_and_ends_at_a_refusal() {
    let Scene { store, .. } = scene();
    cluster(&*store, 200).await;
    let through = |hook| Hooked {
        store: store.clone() as Arc<dyn MetaStore>,
        hook,
    };
    let trouble = through(Trouble {
        calls: AtomicUsize::new(0),
        every: 3,
    });
    let (drained, alive) = (set(&["a"]), set(&["a"]));
    let seen = super::super::survey(&trouble, "/ledgers", &drained, &alive, &progress()).await;
    assert_eq!(seen.unwrap().seen, 200);
    struct Refuses;
    impl Hook for Refuses {
        fn before(&self, call: &Call<'_>) -> Fate {
            match call {
                Call::Read(path) if path.contains("/L0") => Fate::Fails(StoreError::NoAuth),
                _ => Fate::Answered,
            }
        }
    }
    let refusing = Hooked {
        store: store.clone() as Arc<dyn MetaStore>,
        hook: Refuses,
    };
    let refused = super::super::survey(&refusing, "/ledgers", &drained, &alive, &progress()).await;
    let refused = told(refused);
    assert!(
        refused.ends_with("the server does not allow it (ACL)"),
        "{refused}"
    );
    let elsewhere = super::super::survey(&*store, "/other", &drained, &alive, &progress()).await;
    insta::assert_snapshot!(told(elsewhere), @"cannot go through the ledgers: cannot read /other/LAYOUT: there is no such node");
}

#[tokio::test]
async fn metadata_that_is_not_understood_is_counted_and_named() {
    let Scene { store, jobs, .. } = scene();
    cluster(&*store, 10).await;
    store
        .set("/ledgers/00/0000/L0000", b"garbage", None)
        .await
        .unwrap();
    let alive = set(&["a"]);
    let seen = super::super::survey(&*store, "/ledgers", &alive, &alive, &progress())
        .await
        .unwrap();
    let why = "it does not begin as the metadata of a ledger does".to_owned();
    assert_eq!(
        (seen.seen, &seen.unreadable.some),
        (10, &vec![(0, why.clone())])
    );
    let id = jobs.create(&new(&["a"]), &LIMITS).await.unwrap().id;
    let filled = fill(&jobs.tasks(&id), &*store, "/ledgers", &alive, &progress())
        .await
        .unwrap();
    assert_eq!((filled.added, filled.unreadable.some), (3, vec![(0, why)]));
}

#[tokio::test]
async fn large_tasks_are_written_in_small_transactions() {
    struct Small;
    impl Hook for Small {
        fn before(&self, call: &Call<'_>) -> Fate {
            let Call::Multi(ops) = call else {
                return Fate::Answered;
            };
            let size = ops.iter().map(|op| match op {
                Op::Create { data, .. } | Op::Set { data, .. } => data.len(),
                _ => 0,
            });
            assert!(size.sum::<usize>() < 900_000);
            Fate::Answered
        }
    }
    let Scene { store, .. } = scene();
    let jobs = jobs(Arc::new(Hooked { store, hook: Small }));
    let id = jobs.create(&new(&["a"]), &LIMITS).await.unwrap().id;
    let mut large = task(1);
    let fragment = |first| Fragment {
        first,
        index: 1,
        old: "a-bookie-with-a-long-name.example.org:3181".to_owned(),
        new: None,
    };
    large.fragments = (0..1500).map(fragment).collect();
    let all: Vec<_> = (0..40)
        .map(|ledger| Task {
            ledger,
            ..large.clone()
        })
        .collect();
    assert_eq!(jobs.tasks(&id).add_missing(&all).await, Ok(40));
    large.fragments = (0..50_000).map(fragment).collect();
    large.ledger = 99;
    assert_eq!(jobs.tasks(&id).add_missing(&[large]).await, Ok(1));
    let kept = jobs.tasks(&id).get(99).await.unwrap().unwrap();
    assert_eq!(
        kept.task.fragments,
        [],
        "a worker finds them in the metadata"
    );
}

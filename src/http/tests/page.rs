//! The status page: what it shows, that it escapes it, and the stream that keeps it up to date.

use std::time::Duration;

use super::*;
use crate::health::beside::BesideView;
use crate::health::dir::Role;
use crate::health::snapshot::ModeView;
use crate::http::page::{Hours, Scene, render};

/// A page that is kept up to date, and what it has been told.
struct Watching {
    following: Following,
}

impl Server {
    async fn watch(&self) -> Watching {
        Watching {
            following: self.open("/page/live", "").await,
        }
    }

    /// Publishes the sample with this change, some time later.
    fn publish_changed(&self, seconds: u64, change: impl FnOnce(&mut Snapshot)) {
        let mut snapshot = sample::snapshot();
        snapshot.elapsed += Duration::from_secs(seconds);
        change(&mut snapshot);
        self.publish.send_replace(Arc::new(snapshot));
    }
}

impl Watching {
    async fn news(&mut self) -> serde_json::Value {
        let seen = self.following.until("data:").await;
        let line = seen.lines().last().unwrap().strip_prefix("data: ").unwrap();
        serde_json::from_str(line).expect(line)
    }

    /// The next message that tells of parts, and their names.
    async fn changed(&mut self) -> (serde_json::Value, Vec<String>) {
        loop {
            let news = self.news().await;
            let parts = news["parts"].as_object().unwrap();
            let names: Vec<String> = parts.keys().cloned().collect();
            if !names.is_empty() {
                return (news, names);
            }
        }
    }
}

fn rendered(snapshot: &Snapshot, own: &SelfView, late: Option<&str>, orders: bool) -> String {
    render(&Scene {
        snapshot,
        own,
        about: &sample::about(),
        hours: &Hours::default(),
        late: late.map(str::to_owned),
        orders,
        ages: true,
    })
}

#[tokio::test]
async fn the_page_shows_everything_and_escapes_it() {
    let server = Server::start();
    let reply = server.get("/").await;
    assert_eq!(reply.headers["content-type"], "text/html; charset=utf-8");
    let body = reply.expect(200).body.clone();
    let own = "<script src=\"page.js\" type=\"module\"></script>";
    assert!(!body.replace(own, "").contains("<script"), "{body}");
    assert!(!body.contains("<b>") && !body.contains("://"), "{body}");
    insta::assert_snapshot!("page", body);
}

#[tokio::test]
async fn script_and_style_are_served_as_what_they_are() {
    let server = Server::start();
    for (path, kind) in [
        ("/page.js", "text/javascript; charset=utf-8"),
        ("/page.css", "text/css; charset=utf-8"),
    ] {
        let reply = server.get(path).await;
        assert_eq!(reply.expect(200).headers["content-type"], kind);
        let policy = &reply.headers["content-security-policy"];
        assert!(policy.contains("default-src 'none'; script-src 'self'; style-src 'self'"));
        for foreign in ["://", "eval(", "@import"] {
            assert!(!reply.body.contains(foreign), "{path} has {foreign}");
        }
    }
}

#[test]
fn the_page_of_a_node_that_knows_nothing_yet() {
    let mut snapshot = sample::snapshot();
    snapshot.dirs.clear();
    snapshot.recent_events = Arc::default();
    snapshot.problems.clear();
    snapshot.ready = false;
    snapshot.restart = None;
    snapshot.mode = ModeView::default();
    snapshot.beside = BesideView::default();
    let page = rendered(&snapshot, &SelfView::default(), None, false);
    let body = &page[page.find("<main>").unwrap()..];
    insta::assert_snapshot!("empty_page", body);
}

#[test]
fn a_loop_that_does_not_move_is_a_problem_of_the_agent() {
    let why = "the monitor loop has not moved for 12 s";
    let page = rendered(&sample::snapshot(), &sample::self_view(), Some(why), true);
    assert!(page.contains(&format!("<li>{why}</li>")), "{page}");
}

#[test]
fn of_many_directories_those_in_trouble_come_first_and_open() {
    let mut snapshot = sample::snapshot();
    let dirs = (0..500).map(|id| {
        let path = format!("/mnt/l{id}");
        Arc::new(match id {
            300..=330 => sample::full_dir(id, path, Role::Ledger),
            _ => sample::writable_dir(id, path, Role::Ledger),
        })
    });
    snapshot.dirs = dirs.collect();
    let page = rendered(&snapshot, &SelfView::default(), None, true);
    let at = |text: &str| page.find(text).expect(text);
    assert!(at("id=\"d300\"") < at("id=\"d0\"") && at("id=\"d330\"") < at("id=\"d0\""));
    assert!(at("id=\"d0\"") < at("id=\"d499\""));
    assert_eq!(page.matches(" open>").count(), 20);
    assert!(page.contains("✖ 31 full · ✓ 469 writable"));
    // About what is sent once: two megabytes would be slow on a phone.
    assert!(page.len() < 1_700_000, "{} bytes", page.len());
}

#[tokio::test]
async fn a_page_is_told_everything_once_and_then_what_changed() {
    let server = Server::start();
    let mut watching = server.watch().await;
    let (news, names) = watching.changed().await;
    assert_eq!(names.len(), 12, "{names:?}");
    assert_eq!(news["time"], "2026-11-30T01:02:03.456Z");
    assert_eq!(news["build"], "0.1.0 abc1234");
    assert_eq!(news["dirs"], serde_json::json!(["d2", "d1", "d3", "d0"]));
    let hung = news["parts"]["d2"].as_str().unwrap();
    assert!(
        hung.contains("&lt;script&gt;") && !hung.contains("<script"),
        "{hung}"
    );

    server.publish_changed(1, |snapshot| {
        Arc::make_mut(&mut snapshot.dirs[0]).usage_ratio = Some(0.7);
    });
    let (news, names) = watching.changed().await;
    assert_eq!(names, ["d0"], "{news}");
    assert!(news.get("dirs").is_none(), "{news}");

    server.publish_changed(2, |snapshot| snapshot.time.0 += 1000);
    let (news, names) = watching.changed().await;
    assert_eq!(names, ["clock", "d0"], "{news}");
    assert_eq!(news["time"], "2026-11-30T01:02:04.456Z");

    server.publish_changed(3, |snapshot| {
        snapshot.time.0 += 1000;
        snapshot.dirs.remove(2);
    });
    let (news, names) = watching.changed().await;
    assert_eq!(news["dirs"], serde_json::json!(["d1", "d3", "d0"]));
    assert_eq!(names, ["now"], "{news}");
}

#[tokio::test]
async fn of_many_directories_those_that_are_well_take_turns() {
    let server = Server::start();
    let many = |snapshot: &mut Snapshot, usage| {
        let dirs = (0..100).map(|id| {
            let mut dir = sample::writable_dir(id, format!("/mnt/l{id}"), Role::Ledger);
            dir.usage_ratio = Some(usage);
            Arc::new(dir)
        });
        snapshot.dirs = dirs.collect();
    };
    server.publish_changed(1, |snapshot| many(snapshot, 0.6));
    let mut watching = server.watch().await;
    let (_, names) = watching.changed().await;
    assert_eq!(names.len(), 108);
    server.publish_changed(2, |snapshot| many(snapshot, 0.7));
    let (_, names) = watching.changed().await;
    assert_eq!(names.len(), 10, "{names:?}");
    server.publish_changed(3, |snapshot| {
        many(snapshot, 0.8);
        snapshot.dirs[50] = Arc::new(sample::full_dir(50, "/mnt/l50", Role::Ledger));
    });
    let (_, names) = watching.changed().await;
    assert!(names.contains(&"d50".to_owned()), "{names:?}");
    server.publish_changed(13, |snapshot| many(snapshot, 0.9));
    let (_, names) = watching.changed().await;
    assert_eq!(names.len(), 101, "all, and the state of the node");
}

/// A loop that stands still is told by messages that tell nothing new.
#[tokio::test]
async fn a_page_hears_the_server_also_when_the_loop_is_silent() {
    let server = Server::start();
    let mut watching = server.watch().await;
    let first = watching.news().await;
    for _ in 0..2 {
        let beat = watching.news().await;
        assert_eq!(beat["time"], first["time"]);
        assert!(beat["parts"].as_object().unwrap().is_empty(), "{beat}");
    }
}

#[tokio::test]
async fn more_pages_than_fit_are_refused_and_others_are_served() {
    let server = Server::start();
    let mut pages = Vec::new();
    for _ in 0..16 {
        pages.push(server.watch().await);
    }
    let reply = server.get("/page/live").await;
    assert!(reply.expect(503).error().contains("16 pages"));
    server.get("/").await.expect(200);
    let mut follower = server.follow("", "").await;
    server.publish_events(43..=43);
    follower.until("data:").await;
    pages.clear();
    server.gives_back("/page/live").await;
}

#[tokio::test]
async fn a_page_that_is_watched_does_not_keep_the_server_from_its_end() {
    let server = Server::start();
    let mut watching = server.watch().await;
    watching.news().await;
    server.stop.send(()).unwrap();
    let ended = timeout(PATIENCE, server.task).await;
    ended.expect("the server stops").unwrap().unwrap();
    watching.following.rest().await;
}

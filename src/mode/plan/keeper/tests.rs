//! Stories: what happens, line by line, and after each `→` what the keeper does about it. A step is done at
//! once and shows in the bookie, unless the story says `fails`.

use super::*;
use crate::health::moment::Timestamp;

struct Story {
    keeper: Keeper,
    settings: Settings,
    world: World,
    second: u64,
    /// What comes of steps instead of success.
    fails: Option<Outcome>,
    mirrored: Book,
}

fn state(read_only: bool, running: bool) -> BookieState {
    BookieState {
        running,
        read_only,
        shutting_down: !running,
        high_priority_writes: Some(true),
    }
}

impl Story {
    fn new(control: Control) -> Story {
        let settings = Settings {
            control,
            ..Settings::default()
        };
        let mut story = Story {
            keeper: Keeper::new(settings.clone(), Book::default()),
            settings,
            world: World {
                wanted: Some(Mode::Writable),
                bookie: Some(state(false, true)),
                ..World::default()
            },
            second: 0,
            fails: None,
            mirrored: Book::default(),
        };
        story.keeper.found(story.now(), Book::default());
        story
    }

    fn now(&self) -> Moment {
        Moment {
            elapsed: Duration::from_secs(self.second),
            wall: Timestamp(1000 * self.second.cast_signed()),
        }
    }

    /// Makes one line happen and returns what was done about it.
    fn line(&mut self, line: &str) -> String {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match (word, rest) {
            ("disks", "full") => {
                self.world.wanted = Some(Mode::ReadOnly);
                self.world.reason = Some("/l1 is full".to_owned());
            }
            ("disks", "unknown") => self.world.wanted = None,
            ("disks", "well") => self.world.wanted = Some(Mode::Writable),
            ("bookie", "away") => self.world.bookie = None,
            ("bookie", "ending") => self.world.bookie = Some(state(true, false)),
            ("bookie", mode) => self.world.bookie = Some(state(mode == "read-only", true)),
            ("zookeeper", "away") => self.world.store_lost = Some("ZooKeeper is away".to_owned()),
            ("zookeeper", _) => self.world.store_lost = None,
            ("hung", dir) => self.world.hung = (dir != "none").then(|| format!("{dir} is hung")),
            ("drain", "starts") => {
                self.world.foreign = vec![Claim {
                    owner: Owner::Drain("7".to_owned()),
                    mode: Mode::ReadOnly,
                    reason: "drained".to_owned(),
                    since: Timestamp(0),
                    pending: false,
                    below_floor: false,
                }];
            }
            ("drain", _) => self.world.foreign.clear(),
            ("set", "read-only") => self
                .keeper
                .order(self.now(), Mode::ReadOnly, "me".to_owned()),
            ("set", _) => self
                .keeper
                .order(self.now(), Mode::Writable, "me".to_owned()),
            ("release", _) => assert!(self.keeper.release(), "{line}"),
            ("control", "enforce") => {
                self.configure(|settings| settings.control = Control::Enforce)
            }
            ("control", _) => self.configure(|settings| settings.control = Control::Observe),
            ("persists", _) => self.configure(|settings| settings.persists_status = true),
            ("never", why) => self.configure(|settings| settings.never = Some(why.to_owned())),
            ("agent", "restarts") => self.restart(self.keeper.book().clone()),
            ("agent", _) => self.restart(Book::default()),
            ("wait", seconds) => return self.wait(seconds.parse().unwrap()),
            ("fails", "no") => self.fails = None,
            ("fails", "refused") => self.fails = Some(Outcome::Refused("400".to_owned())),
            ("fails", why) => self.fails = Some(Outcome::Held(why.to_owned())),
            _ => panic!("unknown line {line}"),
        }
        self.act()
    }

    fn configure(&mut self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.settings);
        self.keeper.configure(self.settings.clone());
    }

    fn restart(&mut self, stored: Book) {
        self.keeper = Keeper::new(self.settings.clone(), stored);
        let theirs = self.mirrored.clone();
        self.keeper.found(self.now(), theirs);
    }

    /// Waits second by second; the moment of each step is said.
    fn wait(&mut self, seconds: u64) -> String {
        let start = self.second;
        let mut done = Vec::new();
        for _ in 0..seconds {
            self.second += 1;
            let act = self.act();
            if !act.is_empty() && !act.starts_with("held") {
                done.push(format!("after {} s {act}", self.second - start));
            }
        }
        if done.is_empty() {
            return self.act();
        }
        done.join(", ")
    }

    fn act(&mut self) -> String {
        let mut done = Vec::new();
        while let Some(step) = self.keeper.next(self.now(), &self.world) {
            let outcome = self.fails.clone().unwrap_or(Outcome::Done);
            let kept = matches!(step, Step::Keep(_));
            if step == Step::Enter
                && !matches!(outcome, Outcome::Held(_))
                && let Some(book) = self.keeper.begin(self.now(), &self.world, false)
            {
                done.push(format!("keep {}", words(&book)));
                self.mirrored = book.clone();
                let step = Step::Keep(book);
                self.keeper.done(self.now(), &step, Outcome::Done);
            }
            if outcome == Outcome::Done || kept {
                match &step {
                    Step::Keep(book) => self.mirrored = book.clone(),
                    Step::Enter => self.world.bookie = Some(state(true, true)),
                    Step::Leave => self.world.bookie = Some(state(false, true)),
                }
            }
            let outcome = if kept { Outcome::Done } else { outcome };
            done.push(match (&step, &outcome) {
                (Step::Keep(book), _) => format!("keep {}", words(book)),
                (Step::Enter, Outcome::Done) => "enter".to_owned(),
                (Step::Leave, Outcome::Done) => "leave".to_owned(),
                (Step::Enter, _) => "try to enter".to_owned(),
                (Step::Leave, _) => "try to leave".to_owned(),
            });
            self.keeper.done(self.now(), &step, outcome);
        }
        if let Some(held) = self.keeper.held() {
            done.push(format!("held: {}", held.text));
        }
        done.join(", ")
    }
}

fn words(book: &Book) -> String {
    let claims: Vec<String> = book
        .claims()
        .map(|claim| format!("{}={}", claim.owner.name(), claim.mode.name()))
        .collect();
    let ending = if book.releasing { " releasing" } else { "" };
    format!("[{}{ending}]", claims.join(" "))
}

/// Plays a story and compares it with itself as it should be.
fn tell(control: Control, expected: &str) {
    let mut story = Story::new(control);
    let lines = expected
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let mut played = Vec::new();
    let mut wanted = Vec::new();
    for line in lines {
        wanted.push(line.to_owned());
        let happens = line.split('→').next().unwrap_or(line).trim();
        let act = story.line(happens);
        played.push(if act.is_empty() {
            happens.to_owned()
        } else {
            format!("{happens} → {act}")
        });
    }
    assert_eq!(played.join("\n"), wanted.join("\n"));
}

#[test]
fn entering_is_at_once_and_leaving_waits() {
    tell(
        Control::Enforce,
        "disks full → keep [agent=readOnly], enter
         wait 100
         disks well → held: read-only ends when the disks have allowed writing for 10 s
         wait 60 → after 10 s leave, keep []
         disks full → keep [agent=readOnly], enter
         disks well → held: read-only ends when the disks have allowed writing for 10 s
         wait 80 → after 60 s leave, keep []",
    );
}

#[test]
fn observe_does_nothing_by_itself_and_follows_orders() {
    tell(
        Control::Observe,
        "disks full
         wait 10
         set read-only → keep [operator=readOnly], enter
         disks well
         wait 200
         release → keep [operator=readOnly releasing], leave, keep []",
    );
}

#[test]
fn a_bookie_that_is_read_only_by_itself_is_left_alone() {
    tell(
        Control::Enforce,
        "bookie read-only
         disks full
         disks well
         wait 100
         disks full
         bookie writable → keep [agent=readOnly], enter",
    );
}

#[test]
fn a_bookie_that_forgets_is_told_again() {
    tell(
        Control::Enforce,
        "disks full → keep [agent=readOnly], enter
         bookie away
         bookie ending
         bookie writable → enter
         bookie writable → enter
         agent restarts
         bookie writable → enter",
    );
}

#[test]
fn an_agent_that_lost_its_state_finds_its_claim_in_zookeeper() {
    tell(
        Control::Enforce,
        "disks full → keep [agent=readOnly], enter
         agent loses its state
         disks well → held: read-only ends when the disks have allowed writing for 10 s
         wait 70 → after 60 s leave, keep []",
    );
}

#[test]
fn while_the_floor_is_in_the_way_there_is_no_claim() {
    tell(
        Control::Enforce,
        "fails the floor
         disks full → try to enter, held: the floor
         bookie read-only
         disks well
         wait 100",
    );
}

#[test]
fn a_claim_without_its_put_ends_in_silence() {
    tell(
        Control::Enforce,
        "fails refused
         disks full → keep [agent=readOnly], try to enter, held: 400
         agent restarts → try to enter, held: 400
         disks well → keep []",
    );
}

#[test]
fn turned_to_observe_it_lets_go_when_the_disks_allow() {
    tell(
        Control::Enforce,
        "disks full → keep [agent=readOnly], enter
         wait 100
         control observe
         bookie writable → enter
         disks well → held: read-only ends when the disks have allowed writing for 10 s
         wait 20 → after 10 s leave, keep []
         disks full",
    );
}

#[test]
fn the_operators_word_and_the_agents_stand_beside_each_other() {
    tell(
        Control::Enforce,
        "disks full → keep [agent=readOnly], enter
         set read-only → keep [operator=readOnly agent=readOnly]
         wait 100
         disks well → keep [operator=readOnly]
         wait 100
         disks full → keep [operator=readOnly agent=readOnly]
         release → keep [agent=readOnly]
         wait 100
         disks well → held: read-only ends when the disks have allowed writing for 10 s
         wait 20 → after 10 s leave, keep []",
    );
}

#[test]
fn an_order_to_be_writable_is_followed_once_and_not_fought_over() {
    tell(
        Control::Enforce,
        "disks full → keep [agent=readOnly], enter
         set writable → keep [operator=writable agent=readOnly], leave, keep [operator=writable]
         bookie read-only
         wait 100
         bookie writable
         wait 100
         release → keep [], keep [agent=readOnly], enter",
    );
}

#[test]
fn a_drain_is_kept_under_enforce_and_never_ended() {
    tell(
        Control::Enforce,
        "drain starts → enter
         disks full → keep [agent=readOnly]
         disks well → keep []
         bookie writable → enter
         set read-only → keep [operator=readOnly]
         release → keep []
         drain ends
         wait 100",
    );
}

#[test]
fn without_zookeeper_nothing_is_sent() {
    tell(
        Control::Enforce,
        "zookeeper away
         disks full → held: ZooKeeper is away: a PUT would block the bookie's admin server and take effect later
         zookeeper back → keep [agent=readOnly], enter",
    );
}

#[test]
fn a_hung_directory_forbids_the_put_where_the_bookie_would_write_there() {
    tell(
        Control::Enforce,
        "persists its status
         hung /l1
         disks full → held: /l1 is hung: the bookie would write its status there and hang
         hung none → keep [agent=readOnly], enter",
    );
    tell(
        Control::Enforce,
        "hung /l1
         disks full → keep [agent=readOnly], enter",
    );
}

#[test]
fn a_version_that_a_put_would_end_is_never_sent_one() {
    tell(
        Control::Enforce,
        "never this version ends itself
         disks full → held: this version ends itself
         disks well",
    );
}

#[test]
fn what_is_in_the_way_is_tried_again_and_a_refusal_later() {
    tell(
        Control::Enforce,
        "fails the floor
         disks full → try to enter, held: the floor
         wait 10 → after 1 s try to enter, held: the floor, after 3 s try to enter, held: the floor, after 7 s try to enter, held: the floor
         fails no → held: the floor
         wait 10 → after 5 s keep [agent=readOnly], enter",
    );
    tell(
        Control::Enforce,
        "fails refused
         disks full → keep [agent=readOnly], try to enter, held: 400
         wait 59 → held: 400
         wait 1 → after 1 s try to enter, held: 400",
    );
}

#[test]
fn unknown_changes_nothing() {
    tell(
        Control::Enforce,
        "disks unknown
         wait 100
         disks full → keep [agent=readOnly], enter
         disks unknown
         wait 1000
         bookie writable → enter",
    );
}

/// The hold-off begins when the bookie is seen read-only: nobody else would ever say that it was entered.
#[test]
fn a_put_that_took_effect_late_is_ended_too() {
    let mut story = Story::new(Control::Enforce);
    story.world.wanted = Some(Mode::ReadOnly);
    let now = story.now();
    let step = story.keeper.next(now, &story.world).unwrap();
    assert_eq!(step, Step::Enter);
    let book = story.keeper.begin(now, &story.world, false).unwrap();
    story.mirrored = book.clone();
    let keep = Step::Keep(book);
    story.keeper.done(now, &keep, Outcome::Done);
    let unanswered = Outcome::Held("no answer within 3 s".to_owned());
    story.keeper.done(now, &step, unanswered);
    story.line("bookie read-only");
    story.line("disks well");
    assert_eq!(story.line("wait 80"), "after 60 s leave, keep []");
}

#[test]
fn of_two_books_with_one_revision_zookeepers_counts() {
    let mut story = Story::new(Control::Enforce);
    let now = story.now();
    let keeper = &mut story.keeper;
    keeper.order(now, Mode::ReadOnly, "mine".to_owned());
    let mine = keeper.book().clone();
    // Another agent of this bookie was faster.
    let mut theirs = mine.clone();
    theirs.operator.as_mut().unwrap().reason = "theirs".to_owned();
    keeper.found(now, theirs.clone());
    assert_eq!(keeper.book(), &theirs);
    assert!(keeper.is_durable());
    // Whether it was seen in effect is no difference.
    theirs.operator.as_mut().unwrap().pending = false;
    keeper.found(now, theirs);
    assert!(keeper.book().operator.as_ref().unwrap().pending);
    // The node was deleted: it has to be written again.
    keeper.found(now, Book::default());
    assert!(!keeper.is_durable() && keeper.book().operator.is_some());
}

#[test]
fn another_bookies_server_is_told_nothing() {
    let mut story = Story::new(Control::Enforce);
    story.keeper.is_stranger("it is another's".to_owned());
    assert_eq!(story.line("disks full"), "held: it is another's");
    assert!(story.keeper.held().unwrap().blocked);
}

/// The other agent was first: it writes the book and sends the PUTs.
#[test]
fn beside_another_agent_of_the_bookie_nothing_is_done() {
    for control in [Control::Enforce, Control::Observe] {
        let mut story = Story::new(control);
        let held = |text: &str| Held {
            text: text.to_owned(),
            blocked: true,
        };
        story.world.wanted = Some(Mode::ReadOnly);
        story.world.rival = Some(held("another one"));
        let now = story.now();
        assert_eq!(story.keeper.next(now, &story.world), None);
        // Who would do nothing is not kept from it.
        let concerned = (control == Control::Enforce).then(|| held("another one"));
        assert_eq!(story.keeper.held().cloned(), concerned);
        // Not even a book of its own is written.
        story
            .keeper
            .order(now, Mode::ReadOnly, "by hand".to_owned());
        assert_eq!(story.keeper.next(now, &story.world), None);
        story.world.rival = None;
        let next = story.keeper.next(now, &story.world);
        assert!(matches!(next, Some(Step::Keep(_))), "{next:?}");
    }
}

//! Scenarios of filling, as text: what the disk does, and what the forecast says at each `report`.

use std::fmt::Write as _;
use std::time::Duration;

use super::{Forecast, MIN_LOOK};
use crate::health::snapshot::ForecastView;

/// A directory of 1000 units of 1 MiB that is looked at each second and full at 50 available.
struct Disk {
    forecast: Forecast,
    size: f64,
    used: f64,
    noise: f64,
    seed: u64,
    now: f64,
    report: String,
}

const UNIT: f64 = 1_048_576.0;

fn bytes(units: f64) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let bytes = (units.max(0.0) * UNIT) as u64;
    bytes
}

impl Disk {
    fn look(&mut self) {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let random = f64::from(u32::try_from(self.seed >> 32).unwrap()) / f64::from(u32::MAX);
        let available = self.size - self.used - self.noise * random;
        let at = Duration::from_secs_f64(self.now);
        self.forecast
            .observe(at, bytes(self.size), bytes(available));
        self.forecast.estimate(bytes(50.0));
    }

    /// `fill RATE SECONDS`, `free UNITS`, `grow UNITS`, `noise UNITS`, `gap SECONDS`, `report`.
    fn run(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |index: usize| -> f64 { words[index].parse().unwrap() };
        match words[0] {
            "fill" => {
                let end = self.now + number(2);
                while self.now < end - 0.5 {
                    self.now += 1.0;
                    self.used += number(1);
                    self.look();
                }
            }
            "free" => self.used -= number(1),
            "grow" => self.size += number(1),
            "noise" => self.noise = number(1),
            "gap" => self.now += number(1),
            "report" => {
                let view = self.forecast.estimate(bytes(50.0));
                writeln!(self.report, "{:.0}: {}", self.now, text(view)).unwrap();
            }
            other => panic!("no such command: {other}"),
        }
    }
}

fn text(view: Option<ForecastView>) -> String {
    let Some(view) = view else {
        return "none".to_owned();
    };
    let latest = view.latest.map_or("never".to_owned(), |latest| {
        format!("{:.0}", latest.as_secs_f64())
    });
    let (expected, earliest) = (view.expected.as_secs_f64(), view.earliest.as_secs_f64());
    format!("{expected:.0} ({earliest:.0} to {latest})")
}

fn check(scenario: &str, expected: &str) {
    let mut disk = Disk {
        forecast: Forecast::new(),
        size: 1000.0,
        used: 0.0,
        noise: 0.0,
        seed: 1,
        now: 0.0,
        report: String::new(),
    };
    let mut lines: Vec<String> = Vec::new();
    for line in scenario
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        // `3 x: a; b` repeats a and b three times.
        match line.split_once(" x: ") {
            Some((times, block)) => {
                for _ in 0..times.parse::<usize>().unwrap() {
                    lines.extend(block.split("; ").map(str::to_owned));
                }
            }
            None => lines.push(line.to_owned()),
        }
    }
    lines.iter().for_each(|line| disk.run(line));
    let expected: Vec<&str> = expected
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let report: Vec<&str> = disk.report.lines().collect();
    assert_eq!(report, expected, "\n{}", disk.report);
}

#[test]
fn nothing_is_said_before_there_is_a_trend() {
    check(
        "report\nfill 1 3\nreport",
        "0: none
         3: none",
    );
}

#[test]
fn steady_fill_counts_down_and_stays_at_zero() {
    check(
        "fill 1 10\nreport\nfill 1 90\nreport\nfill 1 800\nreport\nfill 1 60\nreport",
        "10: 940 (940 to 940)
         100: 850 (850 to 850)
         900: 50 (50 to 50)
         960: 0 (0 to 0)",
    );
}

#[test]
fn noise_moves_it_little() {
    check(
        "noise 20
         fill 0.5 120\nreport
         3 x: fill 0.5 60; report",
        "120: 1868 (520 to 2050)
         180: 1687 (220 to 1971)
         240: 1605 (351 to 1805)
         300: 1548 (310 to 1737)",
    );
}

#[test]
fn noise_alone_is_no_filling() {
    check(
        "noise 20\n6 x: fill 0 61; report",
        "61: none
         122: none
         183: none
         244: none
         305: none
         366: none",
    );
}

// Compaction: the forecast is that of the filling until freeing is a habit, then that of the peaks,
// the same just before and just after each drop.
#[test]
fn saw_tooth_with_net_growth_is_forecast_by_its_peaks() {
    check(
        "4 x: fill 2 50; free 90; fill 2 5\n6 x: fill 2 50; report; free 90; fill 2 5; report",
        "270: 2118 (385 to 2118)
         275: 2112 (425 to 2112)
         325: 2062 (375 to 2062)
         330: 2058 (415 to 2058)
         380: 2008 (365 to 2418)
         385: 2002 (405 to 2412)
         435: 1952 (355 to 2352)
         440: 1948 (395 to 2346)
         490: 1898 (345 to 2171)
         495: 1892 (385 to 2166)
         545: 1842 (335 to 2048)
         550: 1838 (375 to 2043)",
    );
}

#[test]
fn slow_saw_tooth_is_learnt_too() {
    check(
        "10 x: fill 0.05 1000; free 45; fill 0.05 100\n3 x: fill 0.05 1000; report; free 45; fill 0.05 100; report",
        "12000: 88000 (16000 to 88000)
         12100: 87900 (16800 to 87900)
         13100: 86900 (15800 to 86900)
         13200: 86800 (16600 to 86800)
         14200: 85800 (15600 to 85800)
         14300: 85700 (16400 to 85700)",
    );
}

#[test]
fn saw_tooth_without_net_growth_never_fills() {
    check(
        "fill 10 50\n6 x: fill 2 30; free 60\n5 x: fill 2 30; report; free 60; fill 2 5; report; free 10",
        "260: none
         265: none
         295: none
         300: none
         330: none
         335: none
         365: none
         370: none
         400: none
         405: none",
    );
}

#[test]
fn end_of_filling_ends_the_forecast() {
    check(
        "fill 1 300\nreport\n4 x: fill 0 5; report",
        "300: 650 (650 to 650)
         305: 650 (650 to 1612)
         310: 650 (650 to 1600)
         315: none
         320: none",
    );
}

#[test]
fn begin_of_filling_after_hours_of_rest_is_noticed_in_seconds() {
    check(
        "fill 0 20000\nreport\n2 x: fill 1 10; report\n3 x: fill 1 100; report",
        "20000: none
         20010: none
         20020: 930 (930 to 1392)
         20120: 830 (830 to 830)
         20220: 730 (730 to 730)
         20320: 630 (630 to 630)",
    );
}

#[test]
fn change_of_rate_is_noticed() {
    check(
        "fill 0.1 3000\nreport\n4 x: fill 2 10; report",
        "3000: 6500 (6500 to 6500)
         3010: 461 (315 to 6300)
         3020: 305 (305 to 305)
         3030: 295 (295 to 295)
         3040: 285 (285 to 718)",
    );
}

// Freed once, by hand: the filling goes on, only from further away.
#[test]
fn freeing_once_does_not_end_the_forecast() {
    check(
        "fill 1 600\nreport\nfree 400\n2 x: fill 1 1; report\n3 x: fill 1 50; report",
        "600: 350 (350 to 350)
         601: 749 (749 to 749)
         602: 748 (748 to 748)
         652: 698 (698 to 698)
         702: 736 (648 to 1012)
         752: 679 (598 to 933)",
    );
}

#[test]
fn emptying_is_no_filling() {
    check(
        "fill 10 80\nreport\n3 x: fill -1 20; report",
        "80: 15 (15 to 15)
         100: none
         120: none
         140: none",
    );
}

#[test]
fn resize_changes_the_distance_and_not_the_rate() {
    check(
        "fill 1 300\nreport\ngrow 1000\nfill 1 1\nreport\nfill 1 50\nreport\ngrow -800\nfill 1 1\nreport",
        "300: 650 (650 to 650)
         301: 1649 (1649 to 1649)
         351: 1636 (1599 to 1706)
         352: 816 (798 to 850)",
    );
}

#[test]
fn time_gap_is_not_filled_with_guesses() {
    // Nothing was written in the gap; then what was written in one is spread over it.
    check(
        "fill 1 300\nreport\ngap 200\nfill 0 1\nreport\nfill 1 60\nreport",
        "300: 650 (650 to 650)
         501: 650 (650 to 650)
         561: 590 (590 to 1811)",
    );
    check(
        "fill 1 300\ngap 200\nfree -200\nfill 1 1\nreport\nfill 1 60\nreport",
        "501: 449 (449 to 449)
         561: 389 (389 to 389)",
    );
}

#[test]
fn late_and_senseless_looks_are_ignored() {
    let mut forecast = Forecast::new();
    for second in 1..20 {
        forecast.observe(Duration::from_secs(second), bytes(1000.0), bytes(900.0));
    }
    let before = format!("{forecast:?}");
    forecast.observe(Duration::from_secs(3), bytes(1000.0), bytes(1.0));
    forecast.observe(Duration::from_secs(20), 0, 0);
    assert_eq!(before, format!("{forecast:?}"));
}

#[test]
fn one_directory_takes_less_than_two_kibibytes() {
    assert!(size_of::<Forecast>() < 2048, "{}", size_of::<Forecast>());
}

/// Something fills `size` units from half, at `rate` units a second, beginning `begin` after a look.
/// Returns by how much each of the thresholds was crossed when it was noticed, and how many looks it
/// took.
fn race(size: f64, rate: f64, begin: f64) -> (Vec<f64>, usize) {
    let thresholds = [bytes(size * 0.10), bytes(size * 0.05)];
    let available = |now: f64| bytes(size / 2.0 - rate * (now - 10.0 - begin).max(0.0));
    let mut forecast = Forecast::new();
    let (mut now, mut looks) = (0.0, 0);
    let mut late = Vec::new();
    while late.len() < thresholds.len() {
        forecast.observe(Duration::from_secs_f64(now), bytes(size), available(now));
        while late.len() < thresholds.len() && available(now) < thresholds[late.len()] {
            let part = [0.40, 0.45][late.len()];
            late.push(now - 10.0 - begin - size * part / rate);
        }
        looks += usize::from(10.0 < now);
        now += forecast
            .next_look(&thresholds, Duration::from_secs(1))
            .as_secs_f64();
        assert!(now < 10_000.0);
    }
    (late, looks)
}

#[test]
fn crossing_is_noticed_at_once_whenever_the_filling_began() {
    for size in [4096.0, 8192.0, 65_536.0] {
        for step in 0..100 {
            let (late, looks) = race(size, 1000.0, f64::from(step) / 100.0);
            assert!(
                late.iter().all(|late| *late <= 0.1),
                "{size} {step}: {late:?}"
            );
            assert!(
                looks < 60 + bytes(size / 1000.0 / UNIT) as usize,
                "{size} {step}: {looks}"
            );
        }
    }
}

#[test]
fn looks_are_rare_again_when_nothing_fills_any_more() {
    let second = Duration::from_secs(1);
    let mut forecast = Forecast::new();
    let thresholds = [bytes(50.0)];
    forecast.observe(Duration::ZERO, bytes(1000.0), bytes(500.0));
    assert_eq!(forecast.next_look(&thresholds, second), second);
    forecast.observe(second, bytes(1000.0), bytes(100.0));
    assert_eq!(forecast.next_look(&thresholds, second), MIN_LOOK);
    let mut now = second;
    let mut looks = 0;
    while forecast.next_look(&thresholds, second) < second {
        now += forecast.next_look(&thresholds, second);
        forecast.observe(now, bytes(1000.0), bytes(100.0));
        looks += 1;
        assert!(looks < 1000);
    }
    assert!(now < Duration::from_secs(15), "{now:?}");
    // A directory that is past all thresholds has nothing to be caught at.
    forecast.observe(now + second, bytes(1000.0), bytes(10.0));
    assert_eq!(forecast.next_look(&thresholds, second), second);
}

#[test]
fn far_thresholds_need_no_hurry() {
    // 100 units a second, 200,000 ahead: half an hour; no look is earlier than usual.
    let mut forecast = Forecast::new();
    for now in 0..60 {
        forecast.observe(
            Duration::from_secs(now),
            bytes(4e6),
            bytes(400_000.0 - 100.0 * now as f64),
        );
        assert_eq!(
            forecast.next_look(&[bytes(200_000.0)], Duration::from_secs(1)),
            Duration::from_secs(1)
        );
    }
}

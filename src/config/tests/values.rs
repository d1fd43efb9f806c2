//! Values: what is written is read back, and nothing that is read panics.

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use toml::de::DeValue;

use crate::config::file;
use crate::config::keys::{KEYS, Key};
use crate::config::problem::Problems;
use crate::config::value::{Value, absolute, duration_text, quote, size_text};

fn read(key: Key, text: &str) -> Result<Value, String> {
    let raw = DeValue::parse(text).unwrap();
    let parsed = key.row().kind.parse(raw.get_ref());
    parsed.map_err(|wrong| wrong.problem)
}

#[test]
fn sizes_are_shown_in_the_unit_that_fits() {
    for (bytes, text) in [
        (0, "0B"),
        (1, "1B"),
        (1 << 30, "1GiB"),
        (1536 << 20, "1536MiB"),
        (2_000_000_000, "2GB"),
        (u64::MAX, "18446744073709551615B"),
    ] {
        assert_eq!(size_text(bytes), text);
    }
    let overflow = read(Key::WarnAvailable, "\"99999999PiB\"");
    assert_eq!(
        overflow,
        Err("is more bytes than can be counted".to_owned())
    );
    assert_eq!(read(Key::WarnAvailable, "\"1 kB\""), Ok(Value::Size(1000)));
}

#[test]
fn durations_are_shown_in_the_unit_that_fits() {
    for (millis, text) in [
        (0, "0s"),
        (250, "250ms"),
        (90_000, "90s"),
        (86_400_000, "1d"),
    ] {
        assert_eq!(duration_text(Duration::from_millis(millis)), text);
    }
    let parsed = read(Key::Interval, "\"1m 30s\"");
    assert_eq!(parsed, Ok(Value::Duration(Duration::from_secs(90))));
    assert!(read(Key::ReminderInterval, "\"0s\"").is_ok(), "off");
    assert!(read(Key::Interval, "\"0s\"").is_err());
}

#[test]
fn a_path_is_brought_into_one_form() {
    let form = |path: &str| absolute(Path::new(path)).map(|path| path.display().to_string());
    assert_eq!(form("//a/./b//"), Ok("/a/b".to_owned()));
    assert_eq!(form("/"), Ok("/".to_owned()));
    assert!(form("/a/../b").is_err() && form("a").is_err() && form("").is_err());
    assert!(form(&format!("/{}", "a".repeat(4096))).is_err());
}

proptest! {
    #[test]
    fn a_size_is_read_back(bytes in any::<u64>(), shift in 0..50u32) {
        let bytes = bytes >> shift << shift.min(20);
        let text = quote(&size_text(bytes));
        prop_assert_eq!(read(Key::WarnAvailable, &text), Ok(Value::Size(bytes)));
    }

    #[test]
    fn a_duration_is_read_back(millis in 100..3_600_000u64) {
        let value = Value::Duration(Duration::from_millis(millis));
        prop_assert_eq!(read(Key::Interval, &value.to_toml()), Ok(value));
    }

    #[test]
    fn a_ratio_is_read_back(ratio in f64::MIN_POSITIVE..=1.0) {
        let value = Value::Ratio(ratio);
        prop_assert_eq!(read(Key::Full, &value.to_toml()), Ok(value));
    }

    /// What is taken at all is written so that it is taken again, as the same.
    #[test]
    fn any_value_that_is_taken_is_read_back(
        row in 0..KEYS.len(),
        text in prop_oneof![
            "\"[0-9a-zA-Zµ. +-]{0,12}\"",
            "\"[0-9]{1,20}(\\.[0-9]{1,3})? ?(B|kB|MB|GB|KiB|MiB|GiB|PiB|ms|us|ns|s|m|h|d| )*\"",
            "-?[0-9]{1,3}(\\.[0-9]{1,20})?(e-?[0-9]{1,3})?",
            any::<String>().prop_map(|text| quote(&text)),
            prop::sample::select(vec![
                "true", "inf", "nan", "\"4.17.3\"", "\"[::1]:80\"", "\"http://a:1\"", "[\"a\"]",
            ]).prop_map(str::to_owned),
        ],
    ) {
        let key = KEYS[row].key;
        if DeValue::parse(&text).is_ok() && let Ok(value) = read(key, &text) {
            prop_assert_eq!(read(key, &value.to_toml()), Ok(value), "{}", text);
        }
    }

    #[test]
    fn a_quoted_string_is_read_back(text in any::<String>()) {
        let quoted = quote(&text);
        let raw = DeValue::parse(&quoted).unwrap();
        prop_assert_eq!(raw.get_ref().as_str(), Some(text.as_str()));
    }

    /// Whatever the bytes, there is an answer.
    #[test]
    fn no_file_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        file::read(Path::new("/f"), bytes, &mut Problems::default());
    }

    /// The same for files that are nearly right.
    #[test]
    fn no_value_of_a_key_panics(row in 0..KEYS.len(), value in "[\"\\[\\]{}0-9a-zé.,= -]{0,30}") {
        let row = &KEYS[row];
        let text = format!("{}\n{} = {value}\n", row.section.header(), row.name);
        file::read(Path::new("/f"), text.into_bytes(), &mut Problems::default());
    }
}

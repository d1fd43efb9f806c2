//! `/proc/pressure/io`: how much of the last ten seconds tasks waited for any disk. Proof for people,
//! never for a verdict: it does not say which disk.

use std::fs;

/// Percent in which some, and all, tasks waited. None where the kernel does not say (PSI is off, or
/// it is older than 4.20).
pub(super) fn read() -> Option<(u8, u8)> {
    parse(&fs::read_to_string("/proc/pressure/io").ok()?)
}

fn parse(text: &str) -> Option<(u8, u8)> {
    let percent = |kind: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
        let number = line.split(' ').find_map(|word| word.strip_prefix("avg10="));
        number?.split('.').next()?.parse::<u8>().ok()
    };
    Some((percent("some ")?.min(100), percent("full ")?.min(100)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_averages_of_ten_seconds_are_found() {
        let text = "some avg10=91.22 avg60=49.80 avg300=29.57 total=447268687\n\
                    full avg10=87.00 avg60=0.12 avg300=0.62 total=108473548\n";
        assert_eq!(parse(text), Some((91, 87)));
        assert_eq!(parse("some avg10=1.00\n"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text: String, number in "[0-9.]{0,9}") {
            let _ = parse(&text);
            let _ = parse(&format!("some avg10={number}\nfull avg10={number}\n"));
        }
    }
}

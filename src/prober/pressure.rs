//! `/proc/pressure/io`: how much of the last ten seconds tasks waited for any disk. Proof for people,
//! never for a verdict: it does not say which disk.

use std::{fs, io};

use crate::health::observation::Pressure;

/// Percent in which some, and all, tasks waited.
///
/// # Errors
/// The kernel does not say; in words.
pub(super) fn read() -> Result<Pressure, String> {
    let text = fs::read_to_string("/proc/pressure/io").map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "the kernel has no PSI (before Linux 4.20, or psi=0)".to_owned(),
        _ => format!("/proc/pressure/io cannot be read: {error}"),
    })?;
    parse(&text).ok_or_else(|| "/proc/pressure/io is not understood".to_owned())
}

fn parse(text: &str) -> Option<Pressure> {
    let percent = |kind: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
        let number = line.split(' ').find_map(|word| word.strip_prefix("avg10="));
        number?.split('.').next()?.parse::<u8>().ok()
    };
    Some(Pressure {
        some: percent("some ")?.min(100),
        full: percent("full ")?.min(100),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_averages_of_ten_seconds_are_found() {
        let text = "some avg10=91.22 avg60=49.80 avg300=29.57 total=447268687\n\
                    full avg10=87.00 avg60=0.12 avg300=0.62 total=108473548\n";
        assert_eq!(parse(text), Some(Pressure { some: 91, full: 87 }));
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

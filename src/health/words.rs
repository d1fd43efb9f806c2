//! Numbers and lists as people read them: one way for events, pages, the log and the terminal, so that the same
//! number looks the same wherever it is read.

use std::fmt::Display;

/// A number of bytes with a unit and one decimal, rounded to the nearest, such as `4.0 GiB`.
#[must_use]
pub fn bytes_text(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    // What would be shown as 1024.0 is one of the next unit.
    const NEXT: f64 = 1023.95;
    if count < 1024 {
        return format!("{count} B");
    }
    // What is lost beyond 2^53 cannot be seen.
    #[allow(clippy::cast_precision_loss)]
    let mut number = count as f64 / 1024.0;
    let mut unit = 0;
    while NEXT <= number && unit + 1 < UNITS.len() {
        number /= 1024.0;
        unit += 1;
    }
    format!("{number:.1} {}", UNITS[unit])
}

/// The number with its noun, or with all the words that change with it.
#[must_use]
pub fn counted<T: Display + PartialEq + From<u8>>(count: T, one: &str, many: &str) -> String {
    let noun = if count == T::from(1) { one } else { many };
    format!("{count} {noun}")
}

/// The first of so many, and how many more there are: `3, 5 and 8 more`.
#[must_use]
pub fn first_of(first: impl IntoIterator<Item = impl Display>, count: u64) -> String {
    let first: Vec<String> = first.into_iter().map(|one| one.to_string()).collect();
    let text = first.join(", ");
    match count.saturating_sub(first.len() as u64) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::{bytes_text, counted, first_of};

    #[test]
    fn numbers_have_the_words_that_fit() {
        let told = |count: u64| counted(count, "ledger is left", "ledgers are left");
        assert_eq!(
            [told(0), told(1), told(2)],
            [
                "0 ledgers are left",
                "1 ledger is left",
                "2 ledgers are left"
            ]
        );
    }

    #[test]
    fn lists_say_how_much_they_leave_out() {
        assert_eq!(first_of([3, 5], 10), "3, 5 and 8 more");
        assert_eq!(first_of([3, 5], 2), "3, 5");
        assert_eq!(first_of([3], 1), "3");
    }

    #[test]
    fn bytes_have_the_unit_that_fits_what_is_shown() {
        for (count, shown) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1 << 10, "1.0 KiB"),
            (1536, "1.5 KiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (1 << 20, "1.0 MiB"),
            ((1 << 30) - (1 << 20), "1023.0 MiB"),
            ((1 << 30) - 1, "1.0 GiB"),
            ((1 << 40) - 1, "1.0 TiB"),
            (3 << 40, "3.0 TiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes_text(count), shown, "{count}");
        }
    }
}

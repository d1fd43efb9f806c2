//! Numbers as people read them: one way for events, pages, the log and the terminal, so that the same
//! number looks the same wherever it is read.

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

#[cfg(test)]
mod tests {
    use super::bytes_text;

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

//! Values as words for people, and their escaping. Nothing else of the server needs them.

use std::fmt;
use std::time::Duration;

use crate::document::{printable, shown_usage};
use crate::health::moment::Timestamp;
use crate::health::snapshot::DirView;

/// Printable text with everything escaped that means something in HTML, inside attributes as well.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = printable(self.0);
        let mut rest = &*text;
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
            let (plain, special) = rest.split_at(at);
            f.write_str(plain)?;
            f.write_str(match special.as_bytes()[0] {
                b'&' => "&amp;",
                b'<' => "&lt;",
                b'>' => "&gt;",
                b'"' => "&quot;",
                _ => "&#39;",
            })?;
            rest = &special[1..];
        }
        f.write_str(rest)
    }
}

/// A ratio in percent, with as many digits as it has: one that is close to a threshold keeps the
/// digits that say on which side of it.
pub(super) fn percent(ratio: f64) -> String {
    let text = format!("{:.8}", ratio * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The directory's usage to a tenth of a percent, where that keeps it on the side of each threshold on which it
/// is: hundredths change each second beside a bookie that writes.
pub(super) fn usage(dir: &DirView) -> Option<f64> {
    let ratio = shown_usage(dir)?;
    let rough = (ratio * 1e3).round() / 1e3;
    let limits = &dir.thresholds;
    let limits = [limits.low_watermark, limits.warn, limits.full];
    let same_side = |limit: &f64| rough.partial_cmp(limit) == ratio.partial_cmp(limit);
    Some(if limits.iter().all(same_side) {
        rough
    } else {
        ratio
    })
}

/// A long time, roughly: seconds below two minutes, minutes below a day, else hours.
pub(super) fn about(time: Duration) -> String {
    let seconds = time.as_secs();
    let unit = match seconds {
        0..120 => 1,
        120..86_400 => 60,
        _ => 3600,
    };
    humantime::format_duration(Duration::from_secs(seconds / unit * unit)).to_string()
}

/// A short time in milliseconds, with two significant digits below ten.
pub(super) fn millis(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1e3;
    let digits = match millis {
        _ if 10.0 <= millis => 0,
        _ if 1.0 <= millis => 1,
        _ if 0.1 <= millis => 2,
        _ => 3,
    };
    format!("{millis:.digits$} ms")
}

/// How long ago `then` was at `now`; nothing when the wall clock was set back between them.
pub(super) fn age(then: Timestamp, now: Timestamp) -> Duration {
    Duration::from_millis(u64::try_from(now.0.saturating_sub(then.0)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::sample;
    use crate::health::dir::Role;

    #[test]
    fn html_is_escaped() {
        let text = Escaped("a<b> & \"c\" 'd'\n").to_string();
        assert_eq!(text, "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;\\x0a");
    }

    #[test]
    fn percent_keeps_the_side_of_a_threshold() {
        assert_eq!(percent(0.6), "60");
        assert_eq!(percent(0.9123), "91.23");
        assert_eq!(percent(0.949_999_9), "94.99999");
        assert_eq!(percent(0.949_96), "94.996");
    }

    #[test]
    fn usage_is_rough_only_where_no_threshold_is_near() {
        let usage_of = |ratio| {
            let mut dir = sample::writable_dir(0, "/l", Role::Ledger);
            dir.usage_ratio = Some(ratio);
            usage(&dir)
        };
        assert_eq!(usage_of(0.612_34), Some(0.612));
        assert_eq!(usage_of(0.950_01), Some(0.950_01));
        assert_eq!(usage_of(0.949_99), Some(0.949_99));
        assert_eq!(usage_of(0.95), Some(0.95));
        assert_eq!(usage_of(f64::NAN), None);
    }

    #[test]
    fn times_are_rough() {
        assert_eq!(about(Duration::from_millis(5_999)), "5s");
        assert_eq!(about(Duration::from_secs(5_430)), "1h 30m");
        assert_eq!(about(Duration::from_secs(100_000)), "1day 3h");
        assert_eq!(millis(Duration::from_micros(12)), "0.012 ms");
        assert_eq!(millis(Duration::from_micros(240)), "0.24 ms");
        assert_eq!(millis(Duration::from_millis(3)), "3.0 ms");
        assert_eq!(millis(Duration::from_millis(700)), "700 ms");
    }
}

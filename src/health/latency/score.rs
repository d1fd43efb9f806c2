//! The slow score: one number for how late a directory's probes have been lately, damped in both
//! directions. For people and graphs; no verdict hangs on it.

/// The score of a directory that is never late.
const LEAST: f64 = 1.0;

/// The score of one that always is.
const MOST: f64 = 100.0;

/// A late probe takes the score by this part of the way to the most: one late probe of a quiet
/// disk makes 26, three in a row, which make it slow by the limit, 58, eight 90.
const RISE: f64 = 0.25;

/// A probe in time takes this away: back from the most in thirty probes, five minutes at the
/// default interval, so that a disk that is late each tenth probe does not look like a good one.
const FALL: f64 = (MOST - LEAST) / 30.0;

/// From 1, never late, to 100, always late; unknown before the first probe.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Score(Option<f64>);

impl Score {
    pub(super) fn probe(&mut self, late: bool) {
        let score = self.0.unwrap_or(LEAST);
        self.0 = Some(if late {
            score + (MOST - score) * RISE
        } else {
            (score - FALL).max(LEAST)
        });
    }

    pub(super) fn get(self) -> Option<u8> {
        // Between the least and the most, so it fits.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        self.0.map(|score| score.round() as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(probes: &str) -> Option<u8> {
        let mut score = Score::default();
        for probe in probes.chars() {
            score.probe(probe == 'x');
        }
        score.get()
    }

    #[test]
    fn rises_with_late_probes_and_falls_slower() {
        assert_eq!(after(""), None);
        assert_eq!(after("...."), Some(1));
        assert_eq!(after("x"), Some(26));
        assert_eq!(after("xxx"), Some(58));
        assert_eq!(after("xxxxxxxx"), Some(90));
        assert_eq!(after(&"x".repeat(100)), Some(100));
        assert_eq!(after("x......"), Some(6));
        assert_eq!(after(&("x".repeat(100) + &".".repeat(29))), Some(4));
        assert_eq!(after(&("x".repeat(100) + &".".repeat(30))), Some(1));
    }
}

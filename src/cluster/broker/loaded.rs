//! Which topics a broker has loaded, from the page of its metrics, which is made from the topics at the moment it is
//! asked for (the list at `broker-stats/topics` is up to a minute old). Read as it comes: a broker with 100,000
//! topics has some hundred megabytes of it.

use std::collections::HashSet;

/// Longest line that is understood: a topic's name has at most some kilobytes.
const LONGEST_LINE: usize = 64 << 10;

/// The metric that counts a namespace's topics.
const TOPICS: &str = "pulsar_topics_count{";

/// Topics that are loaded by some broker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loaded {
    topics: HashSet<String>,
}

impl Loaded {
    /// Whether this one is, by the name that people see.
    #[must_use]
    pub fn contains(&self, topic: &str) -> bool {
        self.topics.contains(topic)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.topics.len()
    }

    /// There is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }
}

/// Takes in the page of one broker.
pub(super) struct Page<'a> {
    loaded: &'a mut Loaded,
    line: Vec<u8>,
    /// Some metric was there: it is a page of metrics.
    any: bool,
    /// A topic was named.
    named: bool,
    /// Topics were counted.
    counted: bool,
    /// A line was too long or no text, and may have named one.
    lost: bool,
}

impl<'a> Page<'a> {
    pub(super) fn new(loaded: &'a mut Loaded) -> Page<'a> {
        Page {
            loaded,
            line: Vec::new(),
            any: false,
            named: false,
            counted: false,
            lost: false,
        }
    }

    pub(super) fn take(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.keep(&rest[..end]);
            self.line();
            rest = &rest[end + 1..];
        }
        self.keep(rest);
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = (LONGEST_LINE + 1).saturating_sub(self.line.len());
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn line(&mut self) {
        let line = std::mem::take(&mut self.line);
        match std::str::from_utf8(&line) {
            Ok(line) if line.len() <= LONGEST_LINE => self.metric(line),
            _ => self.lost = true,
        }
        self.line = line;
        self.line.clear();
    }

    fn metric(&mut self, line: &str) {
        if line.starts_with('#') || !line.contains('{') {
            return;
        }
        self.any = true;
        if let Some(topic) = label(line, "topic") {
            self.named = true;
            let topic = match label(line, "partition") {
                Some(number) if number.parse::<u32>().is_ok() => {
                    format!("{topic}-partition-{number}")
                }
                _ => topic,
            };
            if !self.loaded.contains(&topic) {
                self.loaded.topics.insert(topic);
            }
        } else if line.starts_with(TOPICS) && label(line, "namespace").is_some() {
            let number = line.rsplit_once('}').and_then(|(_, rest)| {
                let number = rest.split_whitespace().next()?;
                number.parse::<f64>().ok()
            });
            self.counted |= number.is_none_or(|number| 0.0 < number);
        }
    }

    /// Why it cannot be told which topics are loaded, if so.
    pub(super) fn end(mut self) -> Option<&'static str> {
        if !self.line.is_empty() {
            self.line();
        }
        if !self.any {
            return Some("there are no metrics of a broker");
        }
        if self.lost {
            return Some("a line of it is over 64 KiB or no text");
        }
        (self.counted && !self.named).then_some(
            "it counts topics and names none (exposeTopicLevelMetricsInPrometheus is off)",
        )
    }
}

/// The value of a label of a line in the text format of Prometheus.
fn label(line: &str, name: &str) -> Option<String> {
    let mut rest = &line[line.find('{')? + 1..];
    loop {
        let (label, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\\') => match chars.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, other) => value.push(other),
            }
        };
        if label.trim_matches([',', ' ']) == name {
            return Some(value);
        }
        rest = &after[end + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(page: &str, piece: usize) -> (Vec<String>, Option<&'static str>) {
        let mut loaded = Loaded::default();
        let mut reader = Page::new(&mut loaded);
        for piece in page.as_bytes().chunks(piece) {
            reader.take(piece);
        }
        let why = reader.end();
        let mut topics: Vec<_> = loaded.topics.into_iter().collect();
        topics.sort();
        (topics, why)
    }

    #[test]
    fn topics_are_read_from_a_page_in_pieces() {
        let page = r##"# TYPE pulsar_topics_count gauge
pulsar_topics_count{cluster="lab"} 0
pulsar_topics_count{cluster="lab",namespace="public/default"} 3
pulsar_producers_count{cluster="lab",namespace="public/default",topic="persistent://public/default/a"} 0
pulsar_consumers_count{cluster="lab",namespace="public/default",topic="persistent://public/default/a"} 1
pulsar_producers_count{cluster="lab",namespace="public/default",topic="persistent://public/default/p",partition="3"} 0
pulsar_producers_count{cluster="lab",namespace="public/default",topic="persistent://public/default/q",partition="-1"} 0
x{y="topic=\"no\"", topic="persistent://a/b/say \"é\""} 1 1795999510587
no_labels 3"##;
        for piece in [1, 7, 1000] {
            let (topics, why) = read(page, piece);
            assert_eq!(why, None);
            insta::allow_duplicates! {
                insta::assert_snapshot!(topics.join("\n"), @r#"
                persistent://a/b/say "é"
                persistent://public/default/a
                persistent://public/default/p-partition-3
                persistent://public/default/q
                "#);
            }
        }
    }

    #[test]
    fn unknown_is_not_none() {
        let why = |page: &str| read(page, 100).1.unwrap_or("known");
        let counted = "pulsar_topics_count{cluster=\"lab\",namespace=\"a/b\"} 2\n";
        insta::assert_snapshot!(why(counted), @"it counts topics and names none (exposeTopicLevelMetricsInPrometheus is off)");
        insta::assert_snapshot!(why(""), @"there are no metrics of a broker");
        insta::assert_snapshot!(why("<html>sign in</html>"), @"there are no metrics of a broker");
        let long = format!("a{{topic=\"{}\"}} 1\n", "x".repeat(LONGEST_LINE));
        insta::assert_snapshot!(why(&format!("a{{b=\"c\"}} 1\n{long}")), @"a line of it is over 64 KiB or no text");
        insta::assert_snapshot!(why("pulsar_topics_count{cluster=\"lab\"} 0\n"), @"known");
    }
}

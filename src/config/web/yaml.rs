//! The small part of YAML that a web configuration is written in: mappings, lists and words, each
//! with its line. What could make a short text a large document (anchors, aliases) is refused.

use saphyr_parser::{Event, Parser, ScalarStyle};

/// Sections in sections: the format has three levels.
const DEPTH: usize = 8;

/// A value and where it stands.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) value: Value,
}

/// What stands there.
#[derive(Debug)]
pub(super) enum Value {
    /// Nothing, as after a key without a value.
    Nothing,
    Word(String),
    List(Vec<Node>),
    /// Keys with their lines, in the order of the file.
    Map(Vec<(String, usize, Node)>),
}

/// What is wrong with the text, and in which line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotYaml {
    pub(super) line: usize,
    pub(super) why: String,
}

/// A value that has begun and not ended.
struct Open {
    line: usize,
    value: Value,
    /// A key that waits for its value.
    key: Option<(String, usize)>,
}

/// Reads one document; an empty text is nothing.
pub(super) fn read(text: &str) -> Result<Node, NotYaml> {
    let mut open: Vec<Open> = Vec::new();
    let mut root = None;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| NotYaml {
            line: error.marker().line(),
            why: error.info().to_owned(),
        })?;
        let line = span.start.line();
        let refused = |why: &str| NotYaml {
            line,
            why: why.to_owned(),
        };
        let finished = match event {
            Event::Alias(_) => return Err(refused("an alias is not taken here")),
            Event::DocumentStart(_) if root.is_some() => {
                return Err(refused("a second document begins"));
            }
            Event::Scalar(_, _, anchor, _)
            | Event::SequenceStart(anchor, _)
            | Event::MappingStart(anchor, _)
                if anchor != 0 =>
            {
                return Err(refused("an anchor is not taken here"));
            }
            Event::SequenceStart(..) | Event::MappingStart(..) if DEPTH <= open.len() => {
                return Err(refused("too many levels"));
            }
            Event::SequenceStart(..) => {
                open.push(begun(line, Value::List(Vec::new())));
                continue;
            }
            Event::MappingStart(..) => {
                open.push(begun(line, Value::Map(Vec::new())));
                continue;
            }
            Event::Scalar(text, style, ..) => Node {
                line,
                value: word(&text, style),
            },
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(Open { line, value, .. }) => Node { line, value },
                None => return Err(refused("something ends that did not begin")),
            },
            _ => continue,
        };
        match open.last_mut() {
            None => root = Some(finished),
            Some(parent) => add(parent, finished)?,
        }
    }
    Ok(root.unwrap_or(Node {
        line: 1,
        value: Value::Nothing,
    }))
}

fn begun(line: usize, value: Value) -> Open {
    Open {
        line,
        value,
        key: None,
    }
}

fn word(text: &str, style: ScalarStyle) -> Value {
    let plain = matches!(style, ScalarStyle::Plain);
    if plain && matches!(text, "" | "~" | "null" | "Null" | "NULL") {
        return Value::Nothing;
    }
    Value::Word(text.to_owned())
}

fn add(parent: &mut Open, node: Node) -> Result<(), NotYaml> {
    let line = node.line;
    match (&mut parent.value, parent.key.take()) {
        (Value::List(list), _) => list.push(node),
        (Value::Map(map), Some((key, at))) => map.push((key, at, node)),
        (Value::Map(map), None) => {
            let Value::Word(key) = node.value else {
                let why = "a key is no word".to_owned();
                return Err(NotYaml { line, why });
            };
            if map.iter().any(|(known, ..)| *known == key) {
                let why = "a key is there twice".to_owned();
                return Err(NotYaml { line, why });
            }
            parent.key = Some((key, line));
        }
        (Value::Nothing | Value::Word(_), _) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> (usize, String) {
        let NotYaml { line, why } = read(text).expect_err(text);
        (line, why)
    }

    #[test]
    fn values_have_their_lines() {
        let node = read("# web\na:\n  b: [x, 'true']\nc:\n").unwrap();
        let Value::Map(map) = &node.value else {
            panic!("{node:?}");
        };
        let (key, line, section) = &map[0];
        assert_eq!((key.as_str(), *line), ("a", 2));
        let Value::Map(inner) = &section.value else {
            panic!("{section:?}");
        };
        assert!(matches!(&inner[0].2.value, Value::List(list) if list.len() == 2));
        assert!(matches!(map[1].2.value, Value::Nothing));
        assert!(matches!(read("").unwrap().value, Value::Nothing));
    }

    #[test]
    fn what_makes_much_of_little_is_refused() {
        assert_eq!(wrong("a: &x 1\n").1, "an anchor is not taken here");
        assert_eq!(wrong("a: 1\nb: *x\n").0, 2);
        assert_eq!(wrong(&"[".repeat(60)).1, "too many levels");
        assert_eq!(wrong("a: 1\n---\nb: 1\n").1, "a second document begins");
        assert_eq!(
            wrong("a: 1\nb: 2\na: 3\n"),
            (3, "a key is there twice".into())
        );
        assert_eq!(wrong("a: 1\n[x]: 2\n").1, "a key is no word");
        wrong("a: [1\n");
        wrong("a: \"x\n");
        wrong("a: 1\n b: 2\n");
    }
}

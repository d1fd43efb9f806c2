//! The documentation of the metrics, from their one table.

use std::fmt::Write;

use super::family::{FAMILIES, Family};
use super::{drain, reclaim};

/// The text of `docs/metrics.md`.
#[must_use]
pub fn reference() -> String {
    let mut text = String::from(
        "# Metrics\n\n\
         Written from the table in `src/metrics/family.rs`; do not edit. A directory's `dir` is its \
         path, with bytes that are not UTF-8 written `\\xNN`. A number that is not known has no \
         series, and is never 0.\n\n\
         | metric | type | labels | meaning |\n| --- | --- | --- | --- |\n",
    );
    for family in FAMILIES {
        row(&mut text, family);
    }
    text.push_str(
        "\n## Of `dirkeeper reclaim run`\n\n\
         With `--textfile FILE`; one process reclaims for a whole cluster. See [reclaim.md](reclaim.md).\n\n\
         | metric | type | labels | meaning |\n| --- | --- | --- | --- |\n",
    );
    for family in reclaim::FAMILIES {
        row(&mut text, family);
    }
    text.push_str(
        "\n## Of `dirkeeper drain run`\n\n\
         With `--textfile FILE`, of each worker. See [drain.md](drain.md).\n\n\
         | metric | type | labels | meaning |\n| --- | --- | --- | --- |\n",
    );
    for family in drain::FAMILIES {
        row(&mut text, family);
    }
    text
}

fn row<C>(text: &mut String, family: &Family<C>) {
    let kind = format!("{:?}", family.kind).to_lowercase();
    let labels: Vec<String> = family
        .labels
        .iter()
        .map(|name| format!("`{name}`"))
        .collect();
    let (name, labels, help) = (family.name, labels.join(", "), family.help);
    writeln!(text, "| `{name}` | {kind} | {labels} | {help} |").expect("memory takes every write");
}

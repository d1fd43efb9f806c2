//! The `dirkeeper` program. Does the steps in order and nothing else.

fn main() {}

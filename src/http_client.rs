//! Being written.

pub use reqwest::Url;

//! Addresses of servers in the configuration.

use toml::de::DeValue;

use super::problem::Wrong;
use super::value::{Value, not_a};

/// Checks that it is the URL of an HTTP server.
pub(super) fn url(text: &str) -> Result<(), Wrong> {
    let example = "write it like \"http://127.0.0.1:8080\"";
    let url = reqwest::Url::parse(text)
        .map_err(|error| Wrong::new(format!("is not a URL: {error}"), example))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(Wrong::new("is not the URL of an HTTP server", example));
    }
    Ok(())
}

/// A list of such URLs, without their last slash; none twice.
pub(super) fn urls(raw: &DeValue<'_>) -> Result<Value, Wrong> {
    let example = "write a list like [\"http://127.0.0.1:9093\"]";
    let Some(list) = raw.as_array() else {
        return Err(not_a("a list", raw, example));
    };
    let mut urls = Vec::new();
    for item in list {
        let Some(text) = item.get_ref().as_str() else {
            return Err(not_a("a list of strings", item.get_ref(), example));
        };
        url(text)?;
        let text = text.trim_end_matches('/').to_owned();
        if urls.contains(&text) {
            return Err(Wrong::new(format!("names {text} twice"), "name each once"));
        }
        urls.push(text);
    }
    if urls.is_empty() {
        return Err(Wrong::new("names nobody", example));
    }
    Ok(Value::Urls(urls))
}

//! Addresses of servers in the configuration.

use super::problem::Wrong;

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

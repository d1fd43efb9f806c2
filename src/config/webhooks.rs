//! `[[webhook]]` sections and `[alertmanager]` to values, and the files that they name.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use super::dirs::required;
use super::file::FileSettings;
use super::keys::{Key, Section};
use super::layer::Layer;
use super::problem::{Place, Problems, Wrong};
use super::source;
use super::value::Secret;
use crate::health::event::EventKind;

/// Each webhook has its own queue and threads; a person cannot follow more reactions than this.
const WEBHOOKS_LIMIT: usize = 64;

/// A server that is sent events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookConfig {
    /// Unique among the hooks and webhooks.
    pub name: String,
    /// Where it is.
    pub url: String,
    /// Which events it is sent; all if empty.
    pub events: Vec<EventKind>,
    /// File with the key of the signature.
    pub secret_file: Option<PathBuf>,
    /// File with the authorities for its certificate.
    pub ca: Option<PathBuf>,
    /// How long one request may take.
    pub timeout: Duration,
}

/// The Alertmanagers that are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertmanagerConfig {
    /// Their addresses; never empty.
    pub urls: Vec<String>,
    /// File with the authorities for their certificates.
    pub ca: Option<PathBuf>,
}

impl AlertmanagerConfig {
    /// Reads its file, if there is one. May block on its disk.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read_ca(&self) -> Result<Option<Vec<u8>>, Problems> {
        let Some(path) = &self.ca else {
            return Ok(None);
        };
        let mut problems = Problems::default();
        let remedy = "name a file that the agent can read";
        let bytes = source::read(path, remedy, &mut Vec::new(), &mut problems);
        bytes.map(Some).ok_or(problems)
    }
}

/// What the files of a webhook hold.
#[derive(Debug, Clone)]
pub struct WebhookFiles {
    /// The key of the signature.
    pub secret: Option<Secret>,
    /// Authorities in PEM form.
    pub ca: Option<Vec<u8>>,
}

impl WebhookConfig {
    /// Reads its files. May block on their disks.
    ///
    /// # Errors
    /// All that is wrong with them.
    pub fn read_files(&self) -> Result<WebhookFiles, Problems> {
        let mut problems = Problems::default();
        let mut read = |path: &Option<PathBuf>| {
            let remedy = "name a file that the agent can read";
            source::read(path.as_ref()?, remedy, &mut Vec::new(), &mut problems)
        };
        let (secret, ca) = (read(&self.secret_file), read(&self.ca));
        let secret = secret.map(|bytes| {
            let text = String::from_utf8(bytes).unwrap_or_default();
            let secret = text.trim();
            if secret.is_empty() {
                let wrong = Wrong::new("holds no secret", "write one line of text into it");
                let place = self
                    .secret_file
                    .as_deref()
                    .map_or(Place::Default, |path| Place::file(path, None));
                problems.error(wrong.at(place, "", ""));
            }
            Secret(secret.to_owned())
        });
        if problems.errors.is_empty() {
            Ok(WebhookFiles { secret, ca })
        } else {
            Err(problems.sorted())
        }
    }

    /// Says what is wrong with it beyond what its section shows.
    #[must_use]
    pub fn unusable(&self, why: impl std::fmt::Display) -> Problems {
        let mut problems = Problems::default();
        let place = self
            .ca
            .as_deref()
            .map_or(Place::Default, |path| Place::file(path, None));
        let wrong = Wrong::new(
            format!("is of no use for the webhook {}: {why}", self.name),
            "name a file with certificates in PEM form",
        );
        problems.error(wrong.at(place, "webhook.ca", ""));
        problems
    }
}

/// The webhooks with the slots from which they were made. `names` are taken already.
pub(super) fn settle(
    settings: &FileSettings,
    names: &mut BTreeSet<String>,
    problems: &mut Problems,
) -> (Vec<WebhookConfig>, Vec<Layer>) {
    let mut webhooks = Vec::new();
    let mut layers = Vec::new();
    for entry in &settings.webhooks {
        let place = entry.place.clone().unwrap_or(Place::Default);
        let name = required(&entry.layer, Key::WebhookName, &place, problems);
        let url = required(&entry.layer, Key::WebhookUrl, &place, problems).text();
        if name.text().is_some_and(|text| !names.insert(text)) {
            let wrong = Wrong::new("another hook or webhook has this name", "give each its own");
            problems.error(name.problem(Key::WebhookName, wrong));
        }
        let (Some(text), Some(url)) = (name.text(), url) else {
            continue;
        };
        let slot = |key| entry.layer.slot(key);
        webhooks.push(WebhookConfig {
            name: text,
            url,
            events: slot(Key::WebhookEvents).events().unwrap_or_default(),
            secret_file: slot(Key::WebhookSecretFile).path(),
            ca: slot(Key::WebhookCa).path(),
            timeout: slot(Key::WebhookTimeout).duration().unwrap_or_default(),
        });
        let mut layer = Layer::default();
        for key in Key::all_in(Section::Webhook) {
            layer.set(key, slot(key));
        }
        layers.push(layer);
    }
    if let Some(entry) = settings.webhooks.get(WEBHOOKS_LIMIT) {
        let place = entry.place.clone().unwrap_or(Place::Default);
        let remedy = format!("name at most {WEBHOOKS_LIMIT}");
        let wrong = Wrong::new("there are too many webhooks", remedy);
        problems.error(wrong.at(place, "webhook", ""));
    }
    (webhooks, layers)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::{Sources, load};

    fn loaded(sections: &str) -> Result<crate::config::Config, Problems> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("dirkeeper.toml");
        let text = format!("[[dir]]\npath = \"/mnt/l1\"\nrole = \"ledger\"\n{sections}");
        fs::write(&file, text).unwrap();
        load(&Sources {
            file: Some(file),
            ..Sources::default()
        })
    }

    #[test]
    fn hooks_and_webhooks_share_their_names_because_they_share_the_store() {
        let problems = loaded(
            "[[hook]]\nname = \"a\"\ncommand = [\"/bin/true\"]\n\
             [[webhook]]\nname = \"a\"\nurl = \"http://127.0.0.1/\"\n",
        )
        .unwrap_err();
        let problem = &problems.errors[0];
        assert_eq!(problem.key, "webhook.name");
        assert_eq!(problem.problem, "another hook or webhook has this name");
        assert_eq!(problems.errors.len(), 1);
    }

    #[test]
    fn a_url_keeps_its_last_slash_and_a_secret_loses_its_white_space() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        let config = loaded(&format!(
            "[[webhook]]\nname = \"a\"\nurl = \"http://127.0.0.1/x/\"\nsecret_file = {secret:?}\n"
        ));
        let webhook = config.unwrap().webhooks.remove(0);
        assert_eq!(webhook.url, "http://127.0.0.1/x/");
        assert_eq!(webhook.timeout, Duration::from_secs(10));
        let missing = webhook.read_files().unwrap_err();
        assert!(missing.errors[0].problem.starts_with("cannot be read"));
        fs::write(&secret, " \n").unwrap();
        let empty = webhook.read_files().unwrap_err();
        assert_eq!(empty.errors[0].problem, "holds no secret");
        fs::write(&secret, "s3cret\n").unwrap();
        let files = webhook.read_files().unwrap();
        assert_eq!(
            files.secret.map(|secret| secret.0).as_deref(),
            Some("s3cret")
        );
    }
}

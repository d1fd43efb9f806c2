//! The listeners of a configuration, as the listener room takes them. The files of webhooks are read
//! here, once for each configuration, from a thread that may wait for their disk.

use std::sync::Arc;

use tokio::sync::watch;

use crate::clock::Clock;
use crate::config::{Config, Problems, WebhookConfig};
use crate::document::Host;
use crate::health::snapshot::Snapshot;
use crate::http_client::{Authorities, Url};
use crate::listener::{
    Alertmanager, AlertmanagerOptions, HookOptions, Listener, Webhook, WebhookOptions,
};

/// The hooks of a configuration.
#[must_use]
pub fn hooks(config: &Config) -> Vec<HookOptions> {
    let hooks = config.hooks.iter().map(|hook| HookOptions {
        name: hook.name.clone(),
        events: hook.events.clone(),
        command: hook.command.clone(),
        timeout: hook.timeout,
    });
    hooks.collect()
}

/// A webhook of a configuration, with its files. May block on their disks.
///
/// # Errors
/// All that is wrong with them.
pub fn webhook(config: &WebhookConfig) -> Result<Webhook, Problems> {
    let files = config.read_files()?;
    let unusable =
        |error: &(dyn std::error::Error + 'static)| config.unusable(crate::report::text(error));
    let url = Url::parse(&config.url).map_err(|error| unusable(&error))?;
    let authorities = match (&files.ca, url.scheme()) {
        (Some(pem), _) => Authorities::of_pem(pem),
        (None, "https") => Authorities::of_system(),
        (None, _) => Ok(Authorities::none()),
    };
    let options = WebhookOptions {
        name: config.name.clone(),
        url,
        events: config.events.clone(),
        secret: files.secret.map(|secret| secret.0.into_bytes()),
        authorities: authorities.map_err(|error| unusable(&error))?,
        timeout: config.timeout,
    };
    Webhook::new(options).map_err(|error| unusable(&error))
}

/// Who is told of alerts, where somebody is. May block on a disk.
///
/// # Errors
/// The file with certificates cannot be used.
pub(super) fn alertmanager(
    config: &Config,
    snapshots: &watch::Receiver<Arc<Snapshot>>,
    host: &Host,
    clock: &Clock,
) -> Result<Option<Alertmanager>, anyhow::Error> {
    let Some(config) = &config.alertmanager else {
        return Ok(None);
    };
    let urls: Result<Vec<Url>, _> = config.urls.iter().map(|url| Url::parse(url)).collect();
    let urls = urls?;
    let authorities = match config.read_ca()? {
        Some(pem) => Authorities::of_pem(&pem)?,
        None if urls.iter().any(|url| url.scheme() == "https") => Authorities::of_system()?,
        None => Authorities::none(),
    };
    let options = AlertmanagerOptions { urls, authorities };
    let (snapshots, host) = (snapshots.clone(), host.clone());
    Ok(Some(Alertmanager::start(
        options,
        snapshots,
        host,
        clock.clone(),
    )?))
}

/// All listeners. May block on disks.
///
/// # Errors
/// A file that one of them needs cannot be used.
pub(super) fn all(config: &Config) -> Result<Vec<Listener>, Problems> {
    let mut listeners = vec![Listener::Log];
    listeners.extend(hooks(config).into_iter().map(Listener::Hook));
    for of in &config.webhooks {
        listeners.push(Listener::Webhook(webhook(of)?));
    }
    Ok(listeners)
}

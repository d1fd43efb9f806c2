//! `config`: says whether a configuration is valid, shows what takes effect, and translates a
//! bookie's file.

use super::args::{ConfigCommand, RolePath, RunArguments, SourceArguments};
use super::exit::{Exit, Failure};
use super::terminal::print;
use crate::config;

/// Runs the command.
///
/// # Errors
/// The configuration is not valid, or the result cannot be written.
pub fn run(command: ConfigCommand) -> Result<Exit, Failure> {
    match command {
        ConfigCommand::Check(sources) => {
            let config = load(sources.into())?;
            let count = config.dirs.len();
            print(&format!(
                "the configuration is valid: {count} directories\n"
            ))?;
        }
        ConfigCommand::Show(sources) => print(&config::show(&load(sources.into())?))?,
        ConfigCommand::Import(arguments) => {
            let imported = config::import(&arguments.file, arguments.home.as_deref());
            print(&imported.map_err(anyhow::Error::new)?)?;
        }
    }
    Ok(Exit::Ok)
}

/// The configuration; its warnings go to standard error.
///
/// # Errors
/// It is not valid; all that is wrong with it is in the error.
pub(super) fn load(sources: config::Sources) -> Result<config::Config, Failure> {
    let config = config::load(&sources).map_err(anyhow::Error::new)?;
    for warning in &config.warnings {
        eprintln!("dirkeeper: warning: {warning}");
    }
    Ok(config)
}

impl From<SourceArguments> for config::Sources {
    fn from(arguments: SourceArguments) -> config::Sources {
        let dirs = arguments.dirs.into_iter();
        config::Sources {
            file: arguments.config,
            bookie_conf: arguments.bookie_conf,
            dirs: dirs.map(RolePath::into_text).collect(),
            state_home: config::state_home(),
            ..config::Sources::default()
        }
    }
}

impl From<RunArguments> for config::Sources {
    fn from(arguments: RunArguments) -> config::Sources {
        config::Sources {
            listen: arguments.listen.map(|address| address.to_string()),
            state_dir: arguments.state_dir,
            ..arguments.sources.into()
        }
    }
}

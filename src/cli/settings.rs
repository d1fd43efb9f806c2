//! `config`: says whether a configuration is valid, shows what takes effect, and translates a
//! bookie's file. Also how every command gets its configuration.

use super::args::{
    ConfigCheckArguments, ConfigCommand, ImportArguments, Output, RunArguments, SourceArguments,
};
use super::block_on;
use super::exit::{Exit, Failure};
use super::terminal::print;
use crate::app;
use crate::config::{self, Config, Found, Sources};

/// Runs the command.
///
/// # Errors
/// The configuration is not valid, or the result cannot be written.
pub fn run(command: ConfigCommand) -> Result<Exit, Failure> {
    match command {
        ConfigCommand::Check(arguments) => check(arguments),
        ConfigCommand::Show(sources) => {
            print(&config::show(&load(sources.into())?))?;
            Ok(Exit::Ok)
        }
        ConfigCommand::Import(arguments) => import(&arguments),
    }
}

/// All that is wrong is the result here, and no error.
fn check(arguments: ConfigCheckArguments) -> Result<Exit, Failure> {
    let mut result = config::load(&arguments.sources.into());
    if let Ok(config) = result {
        let room = block_on(app::journal_room(&config))?;
        let tokens = app::unusable_tokens(&config);
        result = config::with_found(config, Found { room, tokens });
    }
    print(&match arguments.output {
        Output::Human => config::check_human(&result),
        Output::Json => config::check_json(&result).trim_end().to_owned() + "\n",
    })?;
    Ok(match result {
        Ok(_) => Exit::Ok,
        Err(_) => Exit::Config,
    })
}

fn import(arguments: &ImportArguments) -> Result<Exit, Failure> {
    let imported = config::import(&arguments.file, arguments.home.as_deref());
    print(&imported.map_err(anyhow::Error::new)?)?;
    Ok(Exit::Ok)
}

/// The configuration; its warnings go to standard error.
///
/// # Errors
/// It is not valid; all that is wrong with it is in the error.
pub(super) fn load(sources: Sources) -> Result<Config, Failure> {
    let config = config::load(&sources).map_err(anyhow::Error::new)?;
    for warning in &config.warnings {
        eprintln!("dirkeeper: warning: {warning}");
    }
    Ok(config)
}

impl From<SourceArguments> for Sources {
    fn from(arguments: SourceArguments) -> Sources {
        Sources {
            file: arguments.config,
            bookie_conf: arguments.bookie_conf,
            dirs: arguments.dirs,
            listen: None,
            state_dir: None,
            web_config_file: None,
            state_home: config::state_home(),
        }
    }
}

impl From<RunArguments> for Sources {
    fn from(arguments: RunArguments) -> Sources {
        Sources {
            listen: arguments.listen.map(|address| address.to_string()),
            state_dir: arguments.state_dir,
            web_config_file: arguments.web_config_file,
            ..arguments.sources.into()
        }
    }
}

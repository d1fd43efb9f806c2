//! `accept`: tells a running agent to take the disk that is there now as the right one. The agent
//! decides and remembers; nothing is touched here.

use super::args::AcceptArguments;
use super::exit::{Exit, Failure};
use super::remote::{self, Agent};
use super::terminal::{print, printable, words};
use super::{block_on, check};
use crate::document::{StatusDocument, path_text};
use crate::health::status::Status;

/// Runs the command.
///
/// # Errors
/// The token cannot be read; the agent does not answer, does not watch the directory, or sees the
/// right disk in it already.
pub fn run(arguments: AcceptArguments) -> Result<Exit, Failure> {
    let path = path_text(&check::absolute(arguments.dir)?);
    let token = remote::token(arguments.token_file)?;
    let agent = Agent::at(&arguments.remote)?;
    block_on(async {
        let document: StatusDocument = agent.parse(&agent.status().await?)?;
        let accepted = acceptable(&document, &path)?;
        agent.accept(&token, &path).await?;
        print(&format!(
            "{}: taken as the right disk from the next look on; it was told replaced: {accepted}\n",
            printable(&path)
        ))?;
        Ok::<Exit, Failure>(Exit::Ok)
    })
}

/// Why the directory counts as replaced. Only such a one is accepted: what would be pinned
/// otherwise is whatever the next look finds there.
fn acceptable(document: &StatusDocument, path: &str) -> Result<String, Failure> {
    let of_path = || document.dirs.iter().filter(|dir| dir.path == path);
    if let Some(dir) = of_path().find(|dir| dir.status == Status::Replaced.name()) {
        let message = dir.cause.as_ref().map(|cause| printable(&cause.message));
        return Ok(message.unwrap_or_default());
    }
    let error = match of_path().next() {
        Some(dir) => {
            let status = words(&dir.status);
            anyhow::anyhow!("{} is {status}, not replaced", printable(path))
        }
        None => anyhow::anyhow!("the agent does not watch {}", printable(path)),
    };
    Err(Failure::new(Exit::FAILED, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{sample, status_document};

    #[test]
    fn only_a_replaced_directory_is_accepted() {
        let about = sample::about();
        let mut document = status_document(&sample::snapshot(), &sample::self_view(), &about);
        let try_it = |document: &StatusDocument, path: &str| match acceptable(document, path) {
            Ok(why) => why,
            Err(failure) => failure.error.to_string(),
        };
        let journal = "/mnt/journal one";
        let said = try_it(&document, journal);
        assert_eq!(said, "/mnt/journal one is writable, not replaced");
        assert_eq!(try_it(&document, "/x"), "the agent does not watch /x");
        let hung = document.dirs.iter().position(|dir| dir.status == "hung");
        let dir = &mut document.dirs[hung.unwrap()];
        dir.status = "replaced".to_owned();
        let path = dir.path.clone();
        let why = dir.cause.as_ref().unwrap().message.clone();
        assert_eq!(try_it(&document, &path), why);
    }
}

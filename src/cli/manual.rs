//! What is derived from the command line's declaration: completions, the manual page, and
//! `docs/cli.md`.

use std::io;

use clap::{Arg, Command, CommandFactory};
use clap_mangen::Man;

use super::args::{Arguments, CompletionsArguments};
use super::exit::{Exit, Failure};
use super::terminal::print;

/// Prints a completion script.
///
/// # Errors
/// Standard output takes nothing.
pub fn completions(arguments: &CompletionsArguments) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut Arguments::command(),
        "dirkeeper",
        &mut script,
    );
    print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok)
}

/// Prints the manual page.
///
/// # Errors
/// Standard output takes nothing.
pub fn man() -> Result<Exit, Failure> {
    let page = page().map_err(|error| Failure::io("cannot make the manual page", error))?;
    print(&page)?;
    Ok(Exit::Ok)
}

/// The program with all that is inherited put in place, names of subcommands included.
fn program() -> Command {
    // Lines are wrapped by whoever shows them.
    let mut program = Arguments::command().term_width(usize::MAX);
    program.build();
    program
}

/// The commands that do something, in the order of the help: those without commands below them.
fn leaves(command: &Command) -> Vec<&Command> {
    let mut leaves = Vec::new();
    for below in command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
    {
        if below.has_subcommands() {
            leaves.extend(self::leaves(below));
        } else {
            leaves.push(below);
        }
    }
    leaves
}

/// The manual page: one page for the program, with a section for each command.
fn page() -> io::Result<String> {
    let program = program();
    let mut roff = Vec::new();
    let man = Man::new(program.clone())
        .section("1")
        .source(format!("dirkeeper {}", crate::VERSION))
        .manual("User Commands")
        .date("");
    man.render_title(&mut roff)?;
    man.render_name_section(&mut roff)?;
    man.render_synopsis_section(&mut roff)?;
    man.render_description_section(&mut roff)?;
    let mut page = text(roff);
    for command in leaves(&program) {
        page.push_str(&format!(".SH \"{}\"\n", name(command).to_uppercase()));
        let man = Man::new(command.clone());
        let mut roff = Vec::new();
        man.render_description_section(&mut roff)?;
        man.render_synopsis_section(&mut roff)?;
        man.render_options_section(&mut roff)?;
        // A section of its own page becomes a part of this section; its first has no heading.
        let section = text(roff)
            .replace(".SH DESCRIPTION\n", "")
            .replace(".SH ", ".SS ");
        page.push_str(&section);
        page.push_str(&literal(".SS", command));
    }
    page.push_str(&literal(".SH", &program));
    Ok(page)
}

fn text(roff: Vec<u8>) -> String {
    String::from_utf8_lossy(&roff).into_owned()
}

/// The end of a command's help as it stands. Lines that begin at the margin and end with a colon
/// are headings.
fn literal(heading: &str, command: &Command) -> String {
    let mut roff = String::new();
    let mut open = false;
    for line in end(command).lines() {
        let title = line.strip_suffix(':').filter(|_| !line.starts_with(' '));
        if title.is_some() && open {
            roff.push_str(".fi\n");
        }
        if let Some(title) = title {
            let title = title.to_uppercase();
            roff.push_str(&format!("{heading} \"{title}\"\n.nf\n"));
            open = true;
            continue;
        }
        if !open && !line.is_empty() {
            roff.push_str(".PP\n.nf\n");
            open = true;
        }
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        // A control character at the begin of a line would be an instruction.
        if line.starts_with(['.', '\'']) {
            roff.push_str("\\&");
        }
        roff.push_str(&line);
        roff.push('\n');
    }
    if open {
        roff.push_str(".fi\n");
    }
    roff
}

/// `docs/cli.md`.
#[must_use]
pub fn markdown() -> String {
    let program = program();
    let mut page = String::from(
        "# Command line\n\nGenerated from the program's own help; a test fails when it is stale \
         (`UPDATE=1 cargo test --lib cli::manual` rewrites it).\n\n",
    );
    page.push_str(&about(&program));
    page.push_str(&fenced(&end(&program)));
    for command in leaves(&program) {
        page.push_str(&format!("\n## {}\n\n{}", name(command), about(command)));
        let usage = command.clone().render_usage().to_string();
        page.push_str(&fenced(&usage));
        for argument in command.get_arguments().filter(|one| one.get_id() != "help") {
            page.push_str(&markdown_argument(argument));
        }
        if !end(command).is_empty() {
            page.push('\n');
            page.push_str(&fenced(&end(command)));
        }
    }
    page.replace("\n\n\n", "\n\n").trim_end().to_owned() + "\n"
}

fn markdown_argument(argument: &Arg) -> String {
    let help = argument.get_long_help().or(argument.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let mut name = argument.to_string();
    if let Some(short) = argument.get_short() {
        name = format!("-{short}, {name}");
    }
    let mut text = format!("- `{name}`: {}", help.trim().replace("\n\n", ". "));
    let values = argument.get_possible_values();
    let takes_value = argument.get_action().takes_values();
    if takes_value && !values.is_empty() {
        let names: Vec<String> = values
            .iter()
            .map(|value| format!("`{}`", value.get_name()))
            .collect();
        text.push_str(&format!(": {}", names.join(", ")));
    }
    let defaults = argument.get_default_values();
    if takes_value && !argument.is_hide_default_value_set() && !defaults.is_empty() {
        let default = defaults[0].to_string_lossy();
        text.push_str(&format!(" (default `{default}`)"));
    }
    text.push('\n');
    text
}

fn name(command: &Command) -> String {
    command
        .get_bin_name()
        .unwrap_or(command.get_name())
        .to_owned()
}

fn about(command: &Command) -> String {
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    format!("{}.\n\n", about.trim_end_matches('.'))
}

fn end(command: &Command) -> String {
    let end = command.get_after_long_help();
    end.map(|end| end.to_string().trim_end().to_owned())
        .unwrap_or_default()
}

fn fenced(text: &str) -> String {
    format!("```text\n{}\n```\n\n", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declaration_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_help_text_is_as_reviewed() {
        let mut texts = String::new();
        let mut program = Arguments::command().term_width(100);
        program.build();
        let commands = std::iter::once(&program).chain(leaves(&program));
        for command in commands {
            let mut command = command
                .clone()
                .version("0.0.0")
                .long_version("0.0.0 (revision)");
            let short = command.render_help();
            let long = command.render_long_help();
            let name = name(&command);
            texts.push_str(&format!(
                "==== {name} -h\n{short}\n==== {name} --help\n{long}\n"
            ));
        }
        insta::assert_snapshot!("help", texts);
    }

    #[test]
    fn the_manual_has_every_command() {
        let page = page().unwrap();
        for command in leaves(&program()) {
            let heading = format!(".SH \"{}\"\n", name(command).to_uppercase());
            assert!(page.contains(&heading), "{heading}");
        }
        insta::assert_snapshot!("man", page.replace(crate::VERSION, "VERSION"));
    }

    #[test]
    fn the_documentation_is_up_to_date() {
        crate::generated::check("docs/cli.md", &markdown());
    }
}

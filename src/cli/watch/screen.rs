//! The terminal as the live view holds it: taken, drawn on, and given back in every case, a panic
//! included. The keys are read by a thread of their own, because reading one waits without limit.

use std::io::{self, IsTerminal, Stdout, Write};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::signal::{Signal, raise};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use tokio::sync::mpsc;

use super::super::exit::{Exit, Failure};
use super::draw::{draw, look::Look};
use super::model::Model;

/// Keys that wait while a screen is drawn, which takes milliseconds: a paste of one line.
const KEYS_QUEUE: usize = 64;

/// Set while the terminal is ours.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal, ours until this is dropped.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    look: Look,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// There is none, or none that can be drawn on.
    pub(super) fn take() -> Result<Screen, Failure> {
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            let error =
                anyhow::anyhow!("--watch needs a terminal to draw on and to read keys from");
            let remedy = "--watch --output json for a program, or status without --watch";
            return Err(Failure::new(Exit::Usage, error).remedy(remedy));
        }
        if std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb") {
            let error = anyhow::anyhow!(
                "--watch needs a terminal that can be drawn on, and TERM names none"
            );
            let remedy = "set TERM to the name of this terminal, or status without --watch";
            return Err(Failure::new(Exit::Usage, error).remedy(remedy));
        }
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
        take_over().map_err(unusable)?;
        let backend = CrosstermBackend::new(io::stdout());
        let terminal = Terminal::new(backend).map_err(|error| {
            give_back();
            unusable(error)
        })?;
        let look = Look {
            colour: super::super::terminal::Terminal::stdout().colour,
            unicode: is_unicode(),
        };
        Ok(Screen { terminal, look })
    }

    /// Draws the model; only what has changed is written.
    ///
    /// # Errors
    /// The terminal takes nothing any more.
    pub(super) fn draw(&mut self, model: &mut Model) -> Result<(), Failure> {
        let look = self.look;
        let mut longest = 0;
        let drawn = self
            .terminal
            .draw(|frame| longest = draw(model, look, frame));
        let area = drawn.map_err(unusable)?.area;
        model.page = usize::from(area.height).saturating_sub(8).max(1);
        model.scroll = model.scroll.min(longest);
        Ok(())
    }

    /// Takes the terminal anew, whatever was done to it meanwhile.
    ///
    /// # Errors
    /// It is gone.
    pub(super) fn again(&mut self) -> Result<(), Failure> {
        give_back();
        take_over().map_err(unusable)?;
        // Not `clear`, which would ask the terminal where its cursor is, beside the thread that reads.
        let area = self.terminal.size().map_err(unusable)?;
        let resized = self
            .terminal
            .resize((ratatui::layout::Position::ORIGIN, area).into());
        resized.map_err(unusable)
    }

    /// Gives the terminal to the shell until that continues this program. Where nobody could, the
    /// kernel does not stop it.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(super) fn suspend(&mut self) -> Result<(), Failure> {
        give_back();
        let _ = raise(Signal::SIGTSTP);
        self.again()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn take_over() -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    execute!(io::stdout(), EnterAlternateScreen, Hide).inspect_err(|_| give_back())
}

/// As it was before. What cannot be done is not worth a word: the terminal is gone then.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
        let _ = io::stdout().flush();
    }
}

/// A terminal that has gone is the end that its user wanted.
fn unusable(error: io::Error) -> Failure {
    let gone = error.kind() == io::ErrorKind::BrokenPipe
        || error.raw_os_error() == Some(nix::errno::Errno::EIO as i32);
    if gone {
        return Failure::new(Exit::Ok, error);
    }
    Failure::io("cannot draw on the terminal", error)
}

/// The locale has UTF-8. The first variable that is set decides, as in every C library.
fn is_unicode() -> bool {
    let set = |name: &&str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set);
    locale.is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// Keys and changes of size, as they come. Ends when the terminal does.
///
/// # Errors
/// The system gives no thread.
pub(super) fn keys() -> Result<mpsc::Receiver<Event>, Failure> {
    let (told, keys) = mpsc::channel(KEYS_QUEUE);
    let thread = thread::Builder::new().name("keys".to_owned());
    let started = thread.spawn(move || {
        while let Ok(event) = event::read() {
            if told.blocking_send(event).is_err() {
                return;
            }
        }
    });
    started.map_err(|error| Failure::io("cannot start a thread for the keys", error))?;
    Ok(keys)
}

//! A program on a pseudo-terminal of its own, and what its user would see there.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use nix::pty::{Winsize, openpty};
use nix::sys::signal::Signal;
use nix::sys::termios::{Termios, tcgetattr};

use crate::listeners::{signal, until};
use crate::{EndsWithTest, PATIENCE};

/// A started program and its terminal.
pub(crate) struct Pty {
    program: EndsWithTest,
    keyboard: File,
    line: OwnedFd,
    before: Termios,
    parser: Arc<Mutex<vt100::Parser>>,
}

impl Pty {
    /// Starts a program with a terminal that speaks UTF-8 and that it is the owner of.
    pub(crate) fn start(words: &[&str], columns: u16, lines: u16) -> Pty {
        let size = Winsize {
            ws_row: lines,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(Some(&size), None).unwrap();
        let before = tcgetattr(&pty.slave).unwrap();
        let line = || Stdio::from(pty.slave.try_clone().unwrap());
        let program = Command::new("setsid")
            .arg("--ctty")
            .args(words)
            .env("TERM", "xterm-256color")
            .env("LC_ALL", "C.UTF-8")
            .env_remove("NO_COLOR")
            .stdin(line())
            .stdout(line())
            .stderr(line())
            .spawn();
        let parser = vt100::Parser::new(lines, columns, 0);
        let parser = Arc::new(Mutex::new(parser));
        let mut output = File::from(pty.master.try_clone().unwrap());
        let seen = parser.clone();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                let mut parser = seen.lock().unwrap_or_else(PoisonError::into_inner);
                parser.process(&bytes[..count]);
            }
        });
        Pty {
            program: EndsWithTest(program.unwrap()),
            keyboard: File::from(pty.master),
            line: pty.slave,
            before,
            parser,
        }
    }

    pub(crate) fn parser(&self) -> MutexGuard<'_, vt100::Parser> {
        self.parser.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The screen as text.
    pub(crate) fn screen(&self) -> String {
        self.parser().screen().contents()
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the screen holds this text, or until it does not.
    pub(crate) fn wait(&self, text: &str, is_there: bool) {
        let clock = dirkeeper::clock::Clock::start();
        while self.screen().contains(text) != is_there {
            let waited = clock.elapsed();
            let screen = self.screen();
            assert!(
                waited < PATIENCE,
                "{text:?} is there: {}\n{screen}",
                !is_there
            );
            thread::park_timeout(std::time::Duration::from_millis(10));
        }
    }

    pub(crate) fn has(&self, text: &str) {
        self.wait(text, true);
    }

    /// Changes the size of the window, as a user does with the mouse.
    pub(crate) fn resize(&self, columns: u16, lines: u16) {
        self.parser().screen_mut().set_size(lines, columns);
        let done = Command::new("stty")
            .args(["cols", &columns.to_string(), "rows", &lines.to_string()])
            .stdin(self.line.try_clone().unwrap())
            .status();
        assert!(done.unwrap().success());
    }

    pub(crate) fn signal(&self, which: Signal) {
        signal(&self.program, which);
    }

    /// The program holds the whole screen.
    pub(crate) fn is_taken(&self) -> bool {
        let parser = self.parser();
        parser.screen().alternate_screen() && parser.screen().hide_cursor()
    }

    /// Waits for the end, and for a terminal as it was before.
    pub(crate) fn end(mut self) -> ExitStatus {
        let mut status = None;
        until("the program ends", || {
            status = self.program.0.try_wait().unwrap();
            status.is_some()
        });
        until("the screen and the cursor are the shell's again", || {
            let parser = self.parser();
            !parser.screen().alternate_screen() && !parser.screen().hide_cursor()
        });
        assert_eq!(tcgetattr(&self.line).unwrap(), self.before);
        status.expect("it has ended")
    }
}

//! The terminal: taken over for as long as the screen is shown, and given back whatever happens.

use std::io::{self, IsTerminal as _, Stdout};
use std::panic;

use anyhow::Context as _;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};

use crate::failure::UserMistake;

/// The terminal, taken over. It is given back when this is dropped, and before a panic is reported.
pub struct Screen {
    /// What is drawn on.
    pub terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes the terminal over.
    ///
    /// # Errors
    /// It cannot be drawn on.
    pub fn take() -> anyhow::Result<Self> {
        let reported = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            give_back();
            reported(panic);
        }));
        // From here on it is given back, also where one of these steps fails.
        let guard = GivesBack;
        enable_raw_mode().context("cannot read keys from this terminal")?;
        execute!(io::stdout(), EnterAlternateScreen).context("cannot draw on this terminal")?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout())).context("cannot draw on this terminal")?;
        std::mem::forget(guard);
        Ok(Self { terminal })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

struct GivesBack;

impl Drop for GivesBack {
    fn drop(&mut self) {
        give_back();
    }
}

/// Gives the terminal back. What cannot be written any more, because it was closed, is of no interest.
fn give_back() {
    let _ = disable_raw_mode();
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
}

/// Whether there is a terminal that can be drawn on.
///
/// # Errors
/// There is none.
pub fn check() -> Result<(), UserMistake> {
    let help = "'trawl top --once' prints one picture as text; 'trawl scans list --json' and 'trawl workers --json' are for programs";
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(UserMistake::with_help(
            "'trawl top' draws on a terminal and reads keys from it, and this is none",
            help,
        ));
    }
    if std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
        return Err(UserMistake::with_help("this terminal cannot be drawn on: TERM is dumb", help));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use trawl_testing::Pty;

    use super::*;

    /// Set where this test runs on a terminal that it may take over.
    const ON_A_TERMINAL: &str = "TRAWL_TEST_TAKES_THE_TERMINAL";

    #[test]
    fn a_panic_is_reported_on_the_terminal_as_it_was() {
        if std::env::var_os(ON_A_TERMINAL).is_some() {
            let _screen = Screen::take().unwrap();
            panic!("something is wrong inside");
        }
        let terminal = Pty::open(120, 40);
        let before = format!("{:?}", terminal.modes());
        let mut this = Command::new(std::env::current_exe().unwrap());
        let name = "commands::top::terminal::tests::a_panic_is_reported_on_the_terminal_as_it_was";
        let mut program = terminal.start(this.args(["--exact", name, "--nocapture"]).env(ON_A_TERMINAL, "1"));
        assert!(!program.wait().unwrap().success());
        // The last that it writes, after which nothing is left to be read.
        let is_last = |line: &String| line.contains("test result");
        let screen = terminal.wait_for(Duration::from_secs(30), |screen| screen.lines().iter().any(is_last));
        assert!(!screen.alternate && !screen.cursor_hidden, "{screen:?}");
        // Behind the end of the alternate screen: it was not drawn over.
        let written = terminal.written();
        let (_, after) = written.split_once("\u{1b}[?1049l").unwrap_or_else(|| panic!("{screen:?}"));
        assert!(written.contains("\u{1b}[?1049h") && after.contains("something is wrong inside"), "{written:?}");
        assert_eq!(format!("{:?}", terminal.modes()), before);
    }
}

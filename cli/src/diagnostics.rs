//! Shows the user's mistakes, errors and warnings on stderr. What they look like is decided in `trawl_front::drawing`.

use std::io::{IsTerminal, Write};

use trawl_front::drawing;
use trawl_plan::Diagnostic;

/// Whether stderr takes colours: a terminal, `NO_COLOR` not set, and not a dumb one.
fn colour_on_stderr() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    std::io::stderr().is_terminal() && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
}

/// Draws every mistake on stderr, in order.
pub fn draw_all(diagnostics: &[Diagnostic]) {
    let _ = std::io::stderr().write_all(drawing::draw_all(diagnostics, colour_on_stderr()).as_bytes());
}

/// One error without a place: `error: message`, then a line of help.
pub fn error_line(message: &str, help: Option<&str>) {
    let _ = writeln!(std::io::stderr(), "{}", drawing::error_text(message, help, colour_on_stderr()));
}

/// A remark that does not stop the command: `warning: message`.
pub fn warning_line(message: &str) {
    let _ = writeln!(std::io::stderr(), "{}", drawing::warning_text(message, colour_on_stderr()));
}

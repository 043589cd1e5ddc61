//! How a command ends: its exit code, and the errors that the user can correct.
//!
//! Everything else that goes wrong travels as `anyhow::Error` and ends with [`NOT_DONE`].

use std::process::ExitCode;

use trawl_front::mistake::chain_text;
pub use trawl_front::mistake::{UserMistake, io_reason, of_market};

/// The job was done.
pub const DONE: u8 = 0;
/// The job was not done, or not completely.
pub const NOT_DONE: u8 = 1;
/// The user's mistake: usage, an expression, an unknown dataset, an unusable file name.
pub const USER_MISTAKE: u8 = 2;

/// Whether the command was stopped because its reader went away (`trawl ... | head`).
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
            || matches!(cause.downcast_ref::<csv::Error>().map(csv::Error::kind),
                Some(csv::ErrorKind::Io(e)) if e.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

/// Reports on stderr what went wrong, and returns the exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    if is_broken_pipe(error) {
        return ExitCode::from(DONE);
    }
    match error.chain().find_map(|cause| cause.downcast_ref::<UserMistake>()) {
        Some(UserMistake::Drawn(diagnostics)) => {
            crate::diagnostics::draw_all(diagnostics);
            ExitCode::from(USER_MISTAKE)
        }
        Some(UserMistake::Plain { help, .. }) => {
            crate::diagnostics::error_line(&chain_text(error), help.as_deref());
            ExitCode::from(USER_MISTAKE)
        }
        None => {
            crate::diagnostics::error_line(&chain_text(error), None);
            ExitCode::from(NOT_DONE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn a_reader_that_went_away_is_not_a_failure() {
        let broken = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let error = Err::<(), _>(broken).context("cannot write the table").unwrap_err();
        assert!(is_broken_pipe(&error));
        assert!(!is_broken_pipe(&anyhow::anyhow!("other")));
    }
}

//! What the user can correct, and how causes read as one sentence.

use std::fmt;
use std::io;

use trawl_market::{MarketError, MarketErrorKind};
use trawl_plan::Diagnostic;

/// Something that the user can correct.
#[derive(Debug)]
pub enum UserMistake {
    /// One sentence, with what was expected and a suggestion after it.
    Plain {
        /// What is wrong.
        message: String,
        /// What to do instead.
        help: Option<String>,
    },
    /// Places in expressions or in a document.
    Drawn(Vec<Diagnostic>),
}

impl UserMistake {
    /// A mistake without a place in a text.
    pub fn plain(message: impl Into<String>) -> Self {
        Self::Plain { message: message.into(), help: None }
    }

    /// The same with a line of advice.
    pub fn with_help(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Plain { message: message.into(), help: Some(help.into()) }
    }
}

impl fmt::Display for UserMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain { message, .. } => f.write_str(message),
            Self::Drawn(diagnostics) => {
                for (i, diagnostic) in diagnostics.iter().enumerate() {
                    if i > 0 {
                        f.write_str("\n")?;
                    }
                    write!(f, "{diagnostic}")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for UserMistake {}

/// Mistakes in the clauses of a scan, with advice that depends on how clauses are given.
pub fn drawn(mut mistakes: Vec<Diagnostic>) -> UserMistake {
    for mistake in &mut mistakes {
        let at_comma = mistake.text.get(mistake.span.clone()).is_some_and(|t| t.starts_with(','));
        if at_comma && mistake.help.is_none() && mistake.clause.starts_with("select[") {
            mistake.help = Some("give each column its own --select (in a document: its own string)".to_owned());
        }
    }
    UserMistake::Drawn(mistakes)
}

/// An error of market data: a user's mistake where the user can correct it.
pub fn of_market(error: MarketError) -> anyhow::Error {
    match error.kind() {
        MarketErrorKind::Invalid => match error {
            MarketError::BadCsv { file, why, expected } => {
                UserMistake::with_help(format!("{file}: {why}"), format!("expected {expected}")).into()
            }
            MarketError::UnknownDataset { .. } => UserMistake::with_help(
                error.to_string(),
                "'trawl data list' lists them; 'us5' and 'demo' are always available",
            )
            .into(),
            error => UserMistake::plain(chain_text(&error.into())).into(),
        },
        MarketErrorKind::Permanent | MarketErrorKind::Retryable => error.into(),
    }
}

/// `what was tried: why it failed: ...`, each cause once even where a Display repeats its source.
pub fn chain_text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let raw = cause.to_string();
        // The operating system's message without its number.
        let part = cause.downcast_ref::<std::io::Error>().map_or_else(|| raw.clone(), io_reason);
        if text.is_empty() {
            text = part;
        } else if text.ends_with(&raw) {
            text.truncate(text.len() - raw.len());
            text.push_str(&part);
        } else if !text.ends_with(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
    }
    text
}

/// An I/O error without its number and without the temporary file's name.
pub fn io_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or folder".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "it is a folder".to_owned(),
        io::ErrorKind::NotADirectory => "a part of its path is not a folder".to_owned(),
        io::ErrorKind::StorageFull => "no space left".to_owned(),
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only".to_owned(),
        _ => {
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or_default();
            let mut letters = text.chars();
            letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_cause_is_printed_once() {
        let inner = anyhow::anyhow!("no space left");
        assert_eq!(
            chain_text(&inner.context("cannot write a.csv: no space left")),
            "cannot write a.csv: no space left"
        );
        let inner = anyhow::anyhow!("no space left");
        assert_eq!(chain_text(&inner.context("cannot write a.csv")), "cannot write a.csv: no space left");
    }

    #[test]
    fn the_operating_systems_message_is_printed_once_and_without_its_number() {
        let in_use = || std::io::Error::from_raw_os_error(if cfg!(target_os = "macos") { 48 } else { 98 });
        let repeated = format!("cannot listen on 127.0.0.1:1: {}", in_use());
        let error = anyhow::Error::new(in_use()).context(repeated);
        assert_eq!(chain_text(&error), "cannot listen on 127.0.0.1:1: address already in use");
        let error = anyhow::Error::new(in_use()).context("cannot listen on 127.0.0.1:1");
        assert_eq!(chain_text(&error), "cannot listen on 127.0.0.1:1: address already in use");
    }
}

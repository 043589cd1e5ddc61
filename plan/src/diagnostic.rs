//! A user's mistake: its place, what was expected, and a suggestion.
//!
//! This room only describes the mistake; the command line draws it (and a server sends it as JSON),
//! so nothing here knows of terminals or colours.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// One mistake in a scan document or expression.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    /// What is wrong, in one lower-case sentence without a full stop.
    pub message: String,
    /// Which clause the text is from: `where`, `let.rs`, `select[2]`, `--expr` ...
    pub clause: String,
    /// The whole text of that clause.
    pub text: String,
    /// Byte range inside `text` that the message is about; may be empty (a place, not a word).
    pub span: Range<usize>,
    /// What stands at the place or was expected there, short.
    pub label: String,
    /// What to do, when that is known: the nearest name, the legal range, an example.
    pub help: Option<String>,
}

impl Diagnostic {
    /// About a whole clause; the message is to be filled in.
    pub(crate) fn whole(clause: &str, text: &str) -> Self {
        Self {
            message: String::new(),
            clause: clause.to_owned(),
            text: text.to_owned(),
            span: 0..text.len(),
            label: "here".to_owned(),
            help: None,
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column = self.text.get(..self.span.start).map_or(0, |s| s.chars().count()) + 1;
        write!(f, "{} ({}, column {column}: {})", self.message, self.clause, self.label)?;
        if let Some(help) = &self.help {
            write!(f, "; {help}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostic {}

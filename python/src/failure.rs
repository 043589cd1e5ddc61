//! Errors as the module `trawl.errors` receives them: one object, the same as the body of an error of the HTTP interface.

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use serde_json::{Value, json};
use trawl_coordinator::local::LocalError;
use trawl_front::UserMistake;
use trawl_front::drawing;
use trawl_front::mistake::chain_text;
use trawl_kernels::Cancelled;
use trawl_market::{MarketError, MarketErrorKind};
use trawl_plan::Diagnostic;

create_exception!(
    trawl._native,
    Failure,
    PyException,
    "An error of the engine; its argument is a JSON object, and `trawl.errors` makes an exception of it."
);

/// An error of the engine as an exception.
pub fn failure(error: &anyhow::Error) -> PyErr {
    Failure::new_err(body(error).to_string())
}

fn body(error: &anyhow::Error) -> Value {
    let message = chain_text(error);
    let mistake = error.chain().find_map(|cause| cause.downcast_ref::<UserMistake>());
    let (help, mistakes, drawing) = match mistake {
        Some(UserMistake::Drawn(mistakes)) => {
            let help = mistakes.iter().find_map(|mistake| mistake.help.clone());
            (help, mistakes.iter().map(placed).collect(), drawing::draw_all(mistakes, false).trim_end().to_owned())
        }
        Some(UserMistake::Plain { help, .. }) => {
            (help.clone(), Vec::new(), drawing::error_text(&message, help.as_deref(), false))
        }
        None => (None, Vec::new(), message.clone()),
    };
    let kind = if mistake.is_some() { "invalid" } else { kind(error) };
    json!({ "kind": kind, "message": message, "help": help, "mistakes": mistakes, "drawing": drawing })
}

/// A mistake with its place in characters of its text.
fn placed(mistake: &Diagnostic) -> Value {
    let characters = |end: usize| mistake.text.get(..end).map_or(0, |text| text.chars().count());
    json!({
        "message": mistake.message,
        "source": mistake.clause,
        "text": mistake.text,
        "start": characters(mistake.span.start),
        "end": characters(mistake.span.end),
        "expected": mistake.label,
        "help": mistake.help,
    })
}

fn kind(error: &anyhow::Error) -> &'static str {
    for cause in error.chain() {
        if cause.downcast_ref::<Cancelled>().is_some() {
            return "cancelled";
        }
        match cause.downcast_ref::<LocalError>() {
            Some(LocalError::Cancelled) => return "cancelled",
            Some(LocalError::DeadlineExceeded(_)) => return "deadline_exceeded",
            _ => {}
        }
        if let Some(error) = cause.downcast_ref::<MarketError>() {
            match error.kind() {
                MarketErrorKind::Invalid => return "invalid",
                MarketErrorKind::Retryable => return "unavailable",
                MarketErrorKind::Permanent => return "data",
            }
        }
    }
    "internal"
}

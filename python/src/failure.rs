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
use trawl_kernels::cuda::Fault;
use trawl_market::{MarketError, MarketErrorKind};
use trawl_plan::Diagnostic;

create_exception!(
    trawl._native,
    Failure,
    PyException,
    "An error of the engine; its argument is a JSON object, and `trawl.errors` makes an exception of it."
);

/// Options of the command line whose names in messages are those of arguments here, with what follows them.
const OPTIONS: [&str; 7] = ["tz", "calendar", "timeframe", "format", "symbol-from", "map", "columns"];
/// The same of options that nothing follows.
const FLAGS: [&str; 3] = ["month-first", "day-first", "decimal-comma"];

/// An error of the engine as an exception.
pub fn failure(error: &anyhow::Error) -> PyErr {
    Failure::new_err(body(error).to_string())
}

/// A message in which the command line's options are the arguments of Python: `tz='UTC'` for `--tz UTC`.
fn in_python(text: &str) -> String {
    let mut parts = text.split("--");
    let mut told = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = |text: &str, within: fn(char) -> bool| text.find(|c| !within(c)).unwrap_or(text.len());
        let (option, rest) = part.split_at(end(part, |c| c.is_ascii_lowercase() || c == '-'));
        let word = rest.strip_prefix(' ').unwrap_or_default();
        let (word, after) = word.split_at(end(word, |c| c.is_ascii_alphanumeric() || "/_+.=".contains(c)));
        let name = option.replace('-', "_");
        if FLAGS.contains(&option) {
            let (name, value) = if option == "day-first" { ("month_first", "False") } else { (&*name, "True") };
            told.push_str(&format!("{name}={value}{rest}"));
        } else if OPTIONS.contains(&option) && !word.is_empty() && option != "columns" {
            let value = match word.split_once('=') {
                Some((meaning, column)) => format!("{{'{meaning}': '{column}'}}"),
                None => format!("'{word}'"),
            };
            told.push_str(&format!("{name}={value}{after}"));
        } else if OPTIONS.contains(&option) {
            told.push_str(&format!("{name}{rest}"));
        } else {
            told.push_str(&format!("--{part}"));
        }
    }
    told
}

fn body(error: &anyhow::Error) -> Value {
    let message = in_python(&chain_text(error));
    let mistake = error.chain().find_map(|cause| cause.downcast_ref::<UserMistake>());
    let (help, mistakes, drawing) = match mistake {
        Some(UserMistake::Drawn(mistakes)) => {
            let help = mistakes.iter().find_map(|mistake| mistake.help.clone());
            (help, mistakes.iter().map(placed).collect(), drawing::draw_all(mistakes, false).trim_end().to_owned())
        }
        Some(UserMistake::Plain { help, .. }) => {
            let help = help.as_deref().map(in_python);
            let drawing = drawing::error_text(&message, help.as_deref(), false);
            (help, Vec::new(), drawing)
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
            Some(LocalError::DevicesLost(_)) => return "unavailable",
            _ => {}
        }
        if cause.downcast_ref::<Fault>().is_some() {
            return "unavailable";
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

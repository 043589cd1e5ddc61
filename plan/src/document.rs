//! The scan document: the clauses a user writes, in TOML, JSON or as flags.
//!
//! It holds text only. Nothing is parsed as an expression here; see `compile_scan`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::diagnostic::Diagnostic;

/// A scan as its user wrote it. Unknown keys are refused when it is read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScanDocument {
    /// Free text for people; not part of the plan's fingerprint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `NAME` or `NAME@SNAPSHOT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset: Option<String>,
    /// Must equal the dataset's timeframe when given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeframe: Option<String>,
    /// Condition that a symbol must fulfil to be looked at; all symbols when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub universe: Option<String>,
    /// The condition that is looked for.
    #[serde(rename = "where")]
    pub condition: String,
    /// `expr [asc|desc]{, expr [asc|desc]}`; descending when not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<String>,
    /// How many of the ranked matches are kept in the table; applied after sorting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// `expr [as name]` for each column wanted; `close` when empty and the dataset has one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub select: Vec<String>,
    /// Names for expressions, usable in every clause.
    #[serde(default, rename = "let", skip_serializing_if = "BTreeMap::is_empty")]
    pub lets: BTreeMap<String, String>,
}

impl ScanDocument {
    /// Reads a TOML document.
    ///
    /// # Errors
    /// A [`Diagnostic`] pointing into the TOML text for bad syntax, an unknown key or a wrong type.
    pub fn from_toml(text: &str) -> Result<Self, Box<Diagnostic>> {
        toml::from_str(text).map_err(|e| {
            let keys = ["name", "dataset", "timeframe", "universe", "where", "rank", "limit", "select", "let"];
            let span = e.span().unwrap_or(0..0);
            let word = text.get(span.clone()).unwrap_or("");
            Box::new(Diagnostic {
                message: e.message().lines().next().unwrap_or("not a scan document").to_owned(),
                clause: "document".to_owned(),
                text: text.to_owned(),
                span,
                label: "here".to_owned(),
                help: crate::diagnostic::suggest(word, keys).map(|k| format!("did you mean '{k}'?")),
            })
        })
    }

    /// The canonical JSON that travels between processes.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a document of strings serialises")
    }

    /// Reads what [`Self::to_json`] wrote.
    ///
    /// # Errors
    /// The JSON error, as text.
    pub fn from_json(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|e| e.to_string())
    }
}

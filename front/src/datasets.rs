//! What datasets hold, as it is written as JSON.

use schemars::JsonSchema;
use serde::Serialize;
use trawl_market::{Inspection, SymbolEntry};

/// An inspection, with the entries of all symbols if they are asked for.
#[derive(Debug, Serialize, JsonSchema)]
pub struct InspectionDocument<'a> {
    /// What was found.
    #[serde(flatten)]
    pub found: &'a Inspection,
    /// Every symbol, with its group, bars and times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<&'a [SymbolEntry]>,
}

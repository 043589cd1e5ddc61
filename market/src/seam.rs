//! SEAM: the public interface other rooms build against. Its owner splits it into real modules and keeps the names.

use std::path::PathBuf;
use std::sync::Arc;

/// Microseconds since 1970-01-01 UTC. A daily bar is labelled by its date at 00:00 UTC.
pub type TimeMicros = i64;

/// What can go wrong with market data; `kind` decides retry.
#[derive(Debug, thiserror::Error)]
pub enum MarketError {
    /// No such dataset; carries the nearest name.
    #[error("no dataset '{name}' under {root}{}", suggestion.as_ref().map(|s| format!(" (did you mean '{s}'?)")).unwrap_or_default())]
    UnknownDataset { name: String, root: String, suggestion: Option<String> },
}

/// One symbol of a snapshot.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct SymbolEntry {
    pub symbol: String,
    /// Stable group: hash(symbol) mod groups.
    pub group: u32,
    /// First row inside the group's file.
    pub row_start: u64,
    pub rows: u64,
    pub first_time: TimeMicros,
    pub last_time: TimeMicros,
}

/// A snapshot's table of contents (fields as needed by other rooms; more may be added).
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Manifest {
    pub name: String,
    /// Content-derived id, 64 hex digits; `NAME@` takes any unambiguous prefix of at least 8.
    pub snapshot: String,
    pub timeframe: String,
    /// True for generated markets: shown wherever the data are shown.
    pub synthetic: bool,
    /// Number of groups, fixed when the dataset was created.
    pub groups: u32,
    /// Numeric columns, lower case.
    pub columns: Vec<String>,
    /// Sorted by symbol.
    pub symbols: Vec<SymbolEntry>,
}

/// One symbol's bars, columns in the order asked for; times strictly increasing.
#[derive(Debug, Clone)]
pub struct SymbolBars {
    pub symbol: Arc<str>,
    pub times: Vec<TimeMicros>,
    pub columns: Vec<Vec<f64>>,
}

/// Root of datasets (a directory) plus the bundled ones.
#[derive(Debug, Clone)]
pub struct Store {
    pub root: PathBuf,
}

impl Store {
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }
    /// `NAME` or `NAME@SNAPSHOT`; paths and URLs are refused.
    pub fn open(&self, _reference: &str) -> Result<Dataset, MarketError> {
        todo!()
    }
}

/// An opened, pinned snapshot. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Dataset {
    pub manifest: Arc<Manifest>,
}

impl Dataset {
    /// The newest bar time in the dataset at or before `wanted` (the newest of all when `None`);
    /// `None` when there is no such bar.
    pub fn resolve_as_of(&self, _wanted: Option<TimeMicros>) -> Result<Option<TimeMicros>, MarketError> {
        todo!()
    }
    /// The bars of one group, symbols sorted by name, only `columns` read, checksum verified.
    pub fn load_group(&self, _group: u32, _columns: &[String]) -> Result<Vec<SymbolBars>, MarketError> {
        todo!()
    }
}

/// Parses every date spelling of DATA.md (`2013-02-22`, `1/4/1999`, `2021-09-27 14:45:00+01:00`, `01.01.2017 22:00:00.000` ...).
pub fn parse_time(_text: &str) -> Option<TimeMicros> {
    todo!()
}

/// A daily label as `2013-02-22`, any other time as RFC 3339 UTC.
pub fn format_time(_time: TimeMicros) -> String {
    todo!()
}

//! The first version of a segment's result, as sent by workers of protocol 1: read, and converted to the current
//! version.
//!
//! Nothing here changes any more. It has no points of a sweep, no steps of cross-sections and no flags: a segment of a
//! plan that needs them does not match what its scan expects, and is rejected like any other wrong result.

use rkyv::{Archive, Deserialize, Serialize};

use crate::result::{SegmentOutput, SegmentResultV2, Status, SymbolRow};

/// One symbol's part of the answer.
#[derive(Debug, Clone, PartialEq, Archive, Serialize, Deserialize)]
pub struct SymbolRowV1 {
    /// As [`SymbolRow::symbol`].
    pub symbol: String,
    /// As [`SymbolRow::status`].
    pub status: Status,
    /// As [`SymbolRow::reason`].
    pub reason: String,
    /// As [`SymbolRow::rank`].
    pub rank: Vec<f64>,
    /// As [`SymbolRow::values`].
    pub values: Vec<f64>,
}

/// Everything a segment answers, rows sorted by symbol.
#[derive(Debug, Clone, PartialEq, Archive, Serialize, Deserialize)]
pub struct SegmentResultV1 {
    /// Group id.
    pub segment: u32,
    /// One row for each symbol, sorted by symbol.
    pub rows: Vec<SymbolRowV1>,
}

impl From<SegmentResultV1> for SegmentResultV2 {
    fn from(old: SegmentResultV1) -> Self {
        let row = |row: SymbolRowV1| SymbolRow {
            point: 0,
            symbol: row.symbol,
            status: row.status,
            edge: false,
            provisional: false,
            reason: row.reason,
            rank: row.rank,
            values: row.values,
        };
        Self { segment: old.segment, output: SegmentOutput::Rows(old.rows.into_iter().map(row).collect()) }
    }
}

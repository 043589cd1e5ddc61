//! What a segment of a scan answers, and what the whole answer is.

use rkyv::{Archive, Deserialize, Serialize};

/// A symbol's status: the first that applies, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Archive, Serialize, Deserialize)]
#[repr(u8)]
pub enum Status {
    /// Its bars could not be read or evaluated; the reason is the error.
    Failed = 0,
    /// It has no bar at the as-of time.
    Stale = 1,
    /// The universe is false or NA.
    Outside = 2,
    /// The condition is NA.
    Unknown = 3,
    /// The condition is true.
    Matched = 4,
    /// The condition is false.
    NotMatched = 5,
}

impl Status {
    /// Every status, in order.
    pub const ALL: [Self; 6] =
        [Self::Failed, Self::Stale, Self::Outside, Self::Unknown, Self::Matched, Self::NotMatched];

    /// As written in outputs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Stale => "stale",
            Self::Outside => "outside",
            Self::Unknown => "unknown",
            Self::Matched => "matched",
            Self::NotMatched => "not_matched",
        }
    }
}

/// One symbol's part of the answer. It holds no time of day, host, attempt or cache fact.
#[derive(Debug, Clone, PartialEq, Archive, Serialize, Deserialize)]
pub struct SymbolRow {
    pub symbol: String,
    pub status: Status,
    /// Why, for every status but matched and not matched; empty there.
    pub reason: String,
    /// Rank keys of a match (NaN = NA); empty otherwise.
    pub rank: Vec<f64>,
    /// Select values of a match (NaN = NA); empty otherwise.
    pub values: Vec<f64>,
}

/// Everything a segment (one group of a snapshot) answers, rows sorted by symbol.
#[derive(Debug, Clone, PartialEq, Archive, Serialize, Deserialize)]
pub struct SegmentResultV1 {
    pub segment: u32,
    pub rows: Vec<SymbolRow>,
}

/// What makes an answer what it is: the same identity gives the same bytes.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Identity {
    pub plan: String,
    pub dataset: String,
    pub snapshot: String,
    /// RFC 3339 or date, as `market::format_time` writes it.
    pub as_of: String,
    pub engine: String,
    pub numerics: String,
    pub backend: String,
    pub precision: String,
}

/// The merged answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub identity: Identity,
    /// Headings of `AnswerRow::row.values`.
    pub select: Vec<String>,
    /// Matches first, in rank order; then all others by symbol. One row for every symbol of the dataset.
    pub rows: Vec<AnswerRow>,
}

/// A row and its place in the ranking.
#[derive(Debug, Clone, PartialEq)]
pub struct AnswerRow {
    /// 1-based place among the matches, `None` for the others and for matches beyond the limit.
    pub place: Option<u32>,
    pub row: SymbolRow,
}

impl Answer {
    /// Symbols per status, in the order of [`Status::ALL`]; they add up to the dataset's symbols.
    pub fn counts(&self) -> [usize; 6] {
        let mut counts = [0; 6];
        for row in &self.rows {
            counts[row.row.status as usize] += 1;
        }
        counts
    }
}

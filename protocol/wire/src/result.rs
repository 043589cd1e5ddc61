//! The result of a segment of a scan, and the whole answer.

use rkyv::{Archive, Deserialize, Serialize};
use trawl_plan::{ColumnKind, Setting};

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
    /// All variants, in order.
    pub const ALL: [Self; 6] =
        [Self::Failed, Self::Stale, Self::Outside, Self::Unknown, Self::Matched, Self::NotMatched];

    /// The name of this variant in outputs.
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

/// One symbol's part of the answer. Contains no time of day, host, attempt or cache information.
#[derive(Debug, Clone, PartialEq, Archive, Serialize, Deserialize)]
pub struct SymbolRow {
    /// Point of the scan's sweep; 0 without a sweep.
    pub point: u32,
    /// The symbol as the dataset names it.
    pub symbol: String,
    /// The first status that applies.
    pub status: Status,
    /// Whether a comparison behind the status is so close that rounding could reverse it.
    pub edge: bool,
    /// Whether the as-of bar is not closed yet.
    pub provisional: bool,
    /// The reason, for all statuses except matched and not matched, where it is empty.
    pub reason: String,
    /// Rank keys of a match (NaN = NA); empty otherwise.
    pub rank: Vec<f64>,
    /// Select values of a match (NaN = NA); empty otherwise.
    pub values: Vec<f64>,
}

/// The result of a segment (one group of a snapshot) in one step of a scan.
#[derive(Debug, Clone, PartialEq, Archive, Serialize, Deserialize)]
pub struct SegmentResultV2 {
    /// Group id.
    pub segment: u32,
    /// What the step gives.
    pub output: SegmentOutput,
}

/// The output of a step.
#[derive(Debug, Clone, PartialEq, Archive, Serialize, Deserialize)]
pub enum SegmentOutput {
    /// Times at which the segment's symbols read cross-sections.
    Times(Vec<CrossTimes>),
    /// Its symbols' values for cross-sections.
    Values(Vec<CrossValues>),
    /// The answer's rows, sorted by point and symbol.
    Rows(Vec<SymbolRow>),
}

/// Times at which one cross-section is needed.
#[derive(Debug, Clone, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct CrossTimes {
    /// Index into the plan's cross-sections.
    pub cross: u16,
    /// Microseconds since 1970, ascending.
    pub times: Vec<i64>,
}

/// The values of a segment's symbols for one cross-section.
#[derive(Debug, Clone, PartialEq, Archive, Serialize, Deserialize)]
pub struct CrossValues {
    /// Index into the plan's cross-sections.
    pub cross: u16,
    /// Microseconds since 1970, ascending.
    pub times: Vec<i64>,
    /// `[symbol][time]`, flattened, symbols in the order of the segment; NaN = not in the population.
    pub values: Vec<f64>,
}

/// The values of one cross-section, for its readers.
#[derive(Debug, Clone, PartialEq, Archive, Serialize, Deserialize)]
pub struct CrossTable {
    /// Index into the plan's cross-sections.
    pub cross: u16,
    /// Microseconds since 1970, ascending.
    pub times: Vec<i64>,
    /// Symbols or, for a market series, the values of its label, or one empty text without a label. Sorted.
    pub keys: Vec<String>,
    /// `[key][time]`, flattened; NaN = NA.
    pub values: Vec<f64>,
}

impl CrossTable {
    /// The values of one key.
    pub fn of(&self, key: &str) -> Option<&[f64]> {
        let at = self.keys.binary_search_by(|k| k.as_str().cmp(key)).ok()?;
        self.values.get(at * self.times.len()..(at + 1) * self.times.len())
    }
}

/// The input of a step besides the bars.
#[derive(Debug, Clone, Default, PartialEq, Archive, Serialize, Deserialize)]
pub struct StepInputV1 {
    /// Times at which the step's cross-sections are needed; empty in the last stage.
    pub wanted: Vec<CrossTimes>,
    /// Cross-sections computed by earlier stages.
    pub tables: Vec<CrossTable>,
}

/// Everything that determines an answer: the same identity gives the same bytes.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Identity {
    /// Fingerprint of the compiled plan.
    pub plan: String,
    /// Name of the dataset.
    pub dataset: String,
    /// Id of the snapshot.
    pub snapshot: String,
    /// RFC 3339 or date, as `market::format_time` writes it.
    pub as_of: String,
    /// What plans and results mean, [`ENGINE`](crate::limits::ENGINE).
    pub engine: String,
    /// Id of the arithmetic; equal ids give equal bits.
    pub numerics: String,
    /// Name of the backend that computed.
    pub backend: String,
    /// Name of the number type of the arithmetic.
    pub precision: String,
    /// Corrections of prices: `none`, `split@DATE`, `split+dividend@DATE`.
    pub adjustment: String,
    /// Whether symbols are missing, as allowed by the request, for reasons beyond the snapshot: another run may give
    /// another answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// The merged answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// What determines the answer.
    pub identity: Identity,
    /// Label of the bar that is looked at, in microseconds since 1970-01-01 UTC. It follows from the identity, and so it is
    /// not digested; `None` if a coordinator of an earlier release did not say it.
    pub time: Option<i64>,
    /// Label of the newest whole bar of the scan's timeframe, where such bars are built from the dataset's. It follows from the
    /// identity, and so it is not digested.
    pub bar: Option<i64>,
    /// Headings of `AnswerRow::row.values`.
    pub select: Vec<String>,
    /// For each heading what its values are. It follows from the plan and the snapshot, and so it is not digested; empty, all are
    /// numbers.
    pub kinds: Vec<ColumnKind>,
    /// Values of the sweep's variables at each point; one point without settings when there is no sweep.
    pub points: Vec<Vec<(String, Setting)>>,
    /// Whether each symbol has rows at its best points only.
    pub best: bool,
    /// Point by point (with `best` all together): matches first, in rank order; then all others by symbol. At each
    /// point one row for every symbol of the dataset; with `best` at least one in all.
    pub rows: Vec<AnswerRow>,
    /// Digest of the answer as those who made it show it, 64 hex digits; empty for one of many times.
    pub digest: String,
}

/// A row and its place in the ranking.
#[derive(Debug, Clone, PartialEq)]
pub struct AnswerRow {
    /// 1-based place among the matches, `None` for the others and for matches beyond the limit.
    pub place: Option<u32>,
    /// The symbol's part.
    pub row: SymbolRow,
}

impl Answer {
    /// Rows per status, in the order of [`Status::ALL`]; they add up to the dataset's symbols, once for each point.
    pub fn counts(&self) -> [usize; 6] {
        self.counts_where(|_| true)
    }

    /// Symbols per status at one point.
    pub fn counts_at(&self, point: u32) -> [usize; 6] {
        self.counts_where(|row| row.point == point)
    }

    fn counts_where(&self, wanted: impl Fn(&SymbolRow) -> bool) -> [usize; 6] {
        let mut counts = [0; 6];
        for row in self.rows.iter().filter(|r| wanted(&r.row)) {
            counts[row.row.status as usize] += 1;
        }
        counts
    }
}

//! What a scan means for a dataset: how many bars it needs, which symbols have too few, what it reads and costs. Only the
//! manifest is read, and nothing is run.

use schemars::JsonSchema;
use serde::Serialize;
use trawl_coordinator::{NearQuestion, PreparedScan};

/// Bytes of one value or time.
const VALUE_BYTES: u64 = 8;

/// What a scan needs, reads and costs.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Explanation {
    /// The scan's name, if it has one.
    pub name: Option<String>,
    /// `NAME@SNAPSHOT`.
    pub dataset: String,
    /// Timeframe of its bars, such as `1d`.
    pub timeframe: String,
    /// Whether it is a generated market.
    pub synthetic: bool,
    /// The bar, on the exchange's clock.
    pub as_of: String,
    /// The bar's time in UTC.
    pub time: String,
    /// What the user should know about the answer.
    pub warnings: Vec<String>,
    /// Combinations of a sweep; 1 without one.
    pub combinations: u64,
    /// Rows of the answer at most.
    pub rows_max: u64,
    /// Bytes of the answer in memory at most, about.
    pub answer_bytes: u64,
    /// Fewest and most bars of a symbol before the condition has a value, over the combinations.
    pub bars_needed: (u64, u64),
    /// The terms of the condition, and the bars that each needs; empty for a single term or a sweep.
    pub terms: Vec<TermNeeds>,
    /// Symbols that are scanned.
    pub symbols: u64,
    /// Symbols of the snapshot.
    pub symbols_stored: u64,
    /// Symbols with too few bars, those with the fewest first.
    pub too_short: Vec<ShortSymbol>,
    /// Whether there may be more: of bars that reach beyond the as-of it is not known how many are before it.
    pub too_short_at_least: bool,
    /// Segments of the scan.
    pub segments: u64,
    /// Bars of all symbols.
    pub bars: u64,
    /// Columns that are read.
    pub columns: Vec<String>,
    /// Bytes that are read.
    pub read_bytes: u64,
    /// Symbols that every process reads beside its segments.
    pub references: Vec<String>,
    /// Bytes of these.
    pub reference_bytes: u64,
    /// Cross-sections over all symbols.
    pub cross_sections: u64,
    /// Bytes that are gathered for each time at which they are read.
    pub cross_bytes: u64,
    /// Working memory of each thread in bytes, besides the bars.
    pub workspace_bytes: u64,
    /// Estimated nanoseconds of one core, without reading.
    pub cost_ns: f64,
    /// Number type of the arithmetic.
    pub precision: String,
    /// Fingerprint of the plan, 64 hex digits.
    pub plan: String,
    /// Number of its steps.
    pub steps: u64,
}

/// A term of a condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TermNeeds {
    /// As written.
    pub term: String,
    /// Bars before its first value.
    pub bars: u64,
}

/// A symbol with too few bars.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct ShortSymbol {
    /// Its bars.
    pub bars: u64,
    /// Its name.
    pub symbol: String,
}

impl Explanation {
    /// Of a prepared scan.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn of(prepared: &PreparedScan) -> anyhow::Result<Self> {
        let needed = prepared.executable.bars_needed();
        let least = needed.iter().min().copied().unwrap_or(0) as u64;
        let most = needed.iter().max().copied().unwrap_or(0) as u64;
        let mut explanation = Self::without_terms(prepared, (least, most));
        if explanation.combinations == 1 {
            let question = NearQuestion::new(prepared)?;
            if question.terms() > 1 {
                let needs = |(term, bars): (&str, usize)| TermNeeds { term: term.to_owned(), bars: bars as u64 };
                explanation.terms = question.needs().map(needs).collect();
            }
        }
        Ok(explanation)
    }

    fn without_terms(prepared: &PreparedScan, bars_needed: (u64, u64)) -> Self {
        let manifest = &prepared.dataset.manifest;
        let is_scanned = |group: &u32| prepared.segments.contains(group);
        let scanned: Vec<_> = manifest.symbols.iter().filter(|entry| is_scanned(&entry.group)).collect();
        let visible = |first: i64, rows: u64| if first > prepared.as_of { 0 } else { rows };
        let mut too_short: Vec<ShortSymbol> = scanned
            .iter()
            .map(|entry| (visible(entry.first_time, entry.rows), &entry.symbol))
            .filter(|(bars, _)| *bars < bars_needed.0)
            .map(|(bars, symbol)| ShortSymbol { bars, symbol: symbol.clone() })
            .collect();
        too_short.sort_unstable();
        let columns = prepared.plan.columns.len() as u64;
        let references: Vec<String> = prepared.plan.references().iter().map(ToString::to_string).collect();
        let rows = |name: &String| manifest.symbol(name).map_or(0, |entry| entry.rows);
        let reference_rows: u64 = references.iter().map(rows).sum();
        let crosses = prepared.plan.crosses.len() as u64;
        let bars = prepared.bar_count();
        Self {
            name: prepared.document.name.clone(),
            dataset: prepared.dataset_reference(),
            timeframe: manifest.timeframe.to_string(),
            synthetic: manifest.synthetic,
            as_of: prepared.shown_as_of(),
            time: prepared.identity.as_of.clone(),
            warnings: prepared.warnings.clone(),
            combinations: prepared.plan.points.len() as u64,
            rows_max: prepared.answer_rows(),
            answer_bytes: prepared.answer_bytes(),
            bars_needed,
            terms: Vec::new(),
            symbols: scanned.len() as u64,
            symbols_stored: prepared.symbol_count() as u64,
            too_short,
            too_short_at_least: scanned.iter().any(|entry| entry.last_time > prepared.as_of),
            segments: prepared.segments.len() as u64,
            bars,
            columns: prepared.plan.columns.clone(),
            read_bytes: bars * (columns + 1) * VALUE_BYTES,
            references,
            reference_bytes: reference_rows * (columns + 1) * VALUE_BYTES,
            cross_sections: crosses,
            cross_bytes: crosses * prepared.symbol_count() as u64 * VALUE_BYTES,
            workspace_bytes: prepared.workspace_bytes(),
            cost_ns: bars as f64 * prepared.plan.cost_ns_per_bar(),
            precision: prepared.identity.precision.clone(),
            plan: prepared.identity.plan.clone(),
            steps: prepared.plan.nodes().len() as u64,
        }
    }
}

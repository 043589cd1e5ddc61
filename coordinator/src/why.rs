//! Why one symbol is in an answer or not: the values of every part of the scan's conditions.

use trawl_market::MarketError;
use trawl_plan::explain_match::{ConditionPart, compile_parts, reasons};
use trawl_wire::{Answer, Status};
use trawl_worker::schema_of;

use crate::prepare::{PrepareError, PreparedScan, prepare_with};
use crate::series::{SeriesError, narrowed, resolve_symbol};

/// Why a symbol cannot be explained.
#[derive(Debug, thiserror::Error)]
pub enum WhyError {
    /// The symbol cannot be resolved.
    #[error(transparent)]
    Series(#[from] SeriesError),
    /// A sweep cannot be explained: each combination is a separate scan.
    #[error("the sweep has {0} combinations, and one scan is explained at a time")]
    Sweep(usize),
    /// The dataset cannot be read.
    #[error(transparent)]
    Market(#[from] MarketError),
    /// The scan of the parts cannot be prepared.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
}

/// A question about one symbol of a scan.
#[derive(Debug)]
pub struct Question {
    /// The scan that computes the values of the parts for every symbol.
    pub scan: PreparedScan,
    /// The symbol's name in the dataset.
    pub symbol: String,
    /// The symbol's labels at the as-of, and their values.
    pub labels: Vec<(String, Option<String>)>,
    parts: Vec<ConditionPart>,
    bars: usize,
    /// Whether there are more parts than returned.
    pub cut: bool,
}

/// One part of the conditions, and its value for the symbol.
#[derive(Debug, Clone, PartialEq)]
pub struct PartValue {
    /// The part as written, and where its value is.
    pub part: ConditionPart,
    /// Value; NaN for NA.
    pub value: f64,
    /// Bars since it was last true and last false, NaN if never or unknown.
    pub since: Option<[f64; 2]>,
    /// Whether its clause is not true because of it.
    pub reason: bool,
}

/// The explanation of the symbol at the as-of bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Explained {
    /// Empty if the symbol has no bar there.
    pub parts: Vec<PartValue>,
    /// Number of the symbol's own bars up to there.
    pub bars: u64,
}

impl Question {
    /// A question about `symbol` in a scan.
    ///
    /// # Errors
    /// [`WhyError`].
    pub fn new(prepared: &PreparedScan, symbol: &str) -> Result<Self, WhyError> {
        if prepared.plan.points.len() > 1 {
            return Err(WhyError::Sweep(prepared.plan.points.len()));
        }
        let (dataset, as_of) = (&prepared.dataset, prepared.as_of);
        let schema = schema_of(dataset, as_of)?;
        let symbol = resolve_symbol(prepared, symbol)?;
        let made = compile_parts(&prepared.document, &schema).map_err(PrepareError::Plan)?;
        let scan = prepare_with(dataset.clone(), &prepared.document, Some(as_of), |_| Ok(made.plan))?;
        let scan = narrowed(scan, &symbol);
        let table = dataset.symbol_table()?;
        let value = |label: &String| (label.clone(), table.label_at(&symbol, label, as_of).map(str::to_owned));
        let labels = table.labels().iter().map(value).collect();
        Ok(Self { scan, symbol, labels, parts: made.parts, bars: made.bars, cut: made.cut })
    }

    /// Extracts the explanation from the answer of [`Question::scan`].
    pub fn explained(&self, answer: &Answer) -> Explained {
        let row = answer.rows.iter().map(|r| &r.row).find(|r| r.symbol == self.symbol);
        let Some(values) = row.filter(|r| r.status == Status::Matched).map(|r| &r.values) else {
            return Explained { parts: Vec::new(), bars: 0 };
        };
        let of = |column: usize| values.get(column).copied().unwrap_or(f64::NAN);
        let own: Vec<f64> = self.parts.iter().map(|part| of(part.column)).collect();
        let parts = self.parts.iter().zip(&own).zip(reasons(&self.parts, &own)).map(|((part, value), reason)| {
            PartValue { part: part.clone(), value: *value, since: part.since.map(|s| s.map(of)), reason }
        });
        Explained { parts: parts.collect(), bars: of(self.bars).max(0.0) as u64 }
    }
}

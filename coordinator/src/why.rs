//! Why one symbol is in an answer or not: the values of every part of the scan's conditions; and which symbols almost are.

use std::collections::HashMap;

use trawl_market::MarketError;
use trawl_plan::BarsNeeded;
use trawl_plan::explain_match::{ConditionPart, Role, compile_parts, compile_terms, reasons};
use trawl_plan::graph::Kind;
use trawl_plan::limits::WHY_PARTS_MAX;
use trawl_wire::{Answer, Status, SymbolRow};
use trawl_worker::schema_of;

use crate::one_scan::Many;
use crate::prepare::{PrepareError, PreparedScan, prepare_with};
use crate::series::{SeriesError, narrowed, resolve_symbol};

/// Why a symbol cannot be explained.
#[derive(Debug, thiserror::Error)]
pub enum WhyError {
    /// The symbol cannot be resolved.
    #[error(transparent)]
    Series(#[from] SeriesError),
    /// Each combination or scan is a question of its own.
    #[error("{0}, and one scan is explained at a time")]
    Many(Many),
    /// More terms than are looked at: those left out could be the ones that fail.
    #[error("the condition has too many terms: at most {WHY_PARTS_MAX} of them and of their parts are looked at")]
    Terms,
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
        prepared.check_one().map_err(WhyError::Many)?;
        let document = prepared.document_of_one();
        let (dataset, as_of) = (&prepared.dataset, prepared.as_of);
        let schema = schema_of(dataset, as_of)?;
        let symbol = resolve_symbol(prepared, symbol)?;
        let made = compile_parts(&document, &schema).map_err(PrepareError::Plan)?;
        let scan = prepare_with(dataset.clone(), &document, Some(as_of), |_| Ok(made.plan))?;
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

/// A question about all symbols of a scan: which ones fail on few terms of its condition.
#[derive(Debug)]
pub struct NearQuestion {
    /// The scan that computes the values of the parts for every symbol.
    pub scan: PreparedScan,
    parts: Vec<ConditionPart>,
    /// Places of the terms among the parts.
    terms: Vec<usize>,
}

/// A symbol that does not match, and the terms that are not true for it.
#[derive(Debug, Clone, PartialEq)]
pub struct NearMiss {
    /// The symbol.
    pub symbol: String,
    /// The terms, in the order of the condition.
    pub fails: Vec<FailedTerm>,
}

/// A term of a condition that is not true.
#[derive(Debug, Clone, PartialEq)]
pub struct FailedTerm {
    /// As written.
    pub text: String,
    /// False or NA.
    pub is_na: bool,
    /// What the term directly looks at: the parts below it.
    pub sees: Vec<SeenPart>,
}

/// A part that a failed term looks at.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenPart {
    /// As written.
    pub text: String,
    /// Its value; of a condition 1, 0 or NA.
    pub value: f64,
    /// Whether it is a condition.
    pub is_condition: bool,
}

impl NearQuestion {
    /// A question about a scan.
    ///
    /// # Errors
    /// [`WhyError`].
    pub fn new(prepared: &PreparedScan) -> Result<Self, WhyError> {
        prepared.check_one().map_err(WhyError::Many)?;
        let document = prepared.document_of_one();
        let schema = schema_of(&prepared.dataset, prepared.as_of)?;
        let made = compile_terms(&document, &schema).map_err(PrepareError::Plan)?;
        if made.cut {
            return Err(WhyError::Terms);
        }
        let dataset = prepared.dataset.clone();
        let scan = prepare_with(dataset, &document, Some(prepared.as_of), |_| Ok(made.plan))?;
        let mut terms = Vec::new();
        if let Some(whole) = made.parts.iter().position(|part| part.clause == Some("where")) {
            push_terms(&made.parts, whole, &mut terms);
        }
        Ok(Self { scan, parts: made.parts, terms })
    }

    /// Number of terms: what is joined by `and`, also inside lets.
    pub fn terms(&self) -> usize {
        self.terms.len()
    }

    /// The terms as written, and how many bars of a symbol each needs before its first value.
    pub fn needs(&self) -> impl Iterator<Item = (&str, &BarsNeeded)> {
        self.terms.iter().map(|term| (self.parts[*term].text.as_str(), &self.parts[*term].needed))
    }

    /// The symbols that do not match in `answer`, the scan's own, and fail on at most `most` terms; `parts` is the answer of
    /// [`NearQuestion::scan`]. Those that fail on the fewest come first, then by term and symbol.
    pub fn misses(&self, answer: &Answer, parts: &Answer, most: usize) -> Vec<NearMiss> {
        let near = |row: &&SymbolRow| matches!(row.status, Status::NotMatched | Status::Unknown);
        let mut found: Vec<(Vec<usize>, NearMiss)> = Vec::new();
        let values: HashMap<&str, &[f64]> = parts
            .rows
            .iter()
            .filter(|row| row.row.status == Status::Matched)
            .map(|row| (row.row.symbol.as_str(), row.row.values.as_slice()))
            .collect();
        for row in answer.rows.iter().map(|row| &row.row).filter(near) {
            let Some(values) = values.get(row.symbol.as_str()) else { continue };
            let value = |part: usize| values.get(self.parts[part].column).copied().unwrap_or(f64::NAN);
            let fails: Vec<usize> = self.terms.iter().copied().filter(|term| value(*term) != 1.0).collect();
            if !(1..=most).contains(&fails.len()) {
                continue;
            }
            let seen = |part: usize| SeenPart {
                text: self.parts[part].text.clone(),
                value: value(part),
                is_condition: self.parts[part].kind == Kind::Bool,
            };
            let failed = |term: &usize| FailedTerm {
                text: self.parts[*term].text.clone(),
                is_na: value(*term).is_nan(),
                sees: below(&self.parts, *term).map(seen).collect(),
            };
            let miss = NearMiss { symbol: row.symbol.clone(), fails: fails.iter().map(failed).collect() };
            found.push((fails, miss));
        }
        found.sort_by(|(a, x), (b, y)| (a.len(), a, &x.symbol).cmp(&(b.len(), b, &y.symbol)));
        found.into_iter().map(|(_, miss)| miss).collect()
    }
}

/// Places of the parts directly below part `at`.
fn below(parts: &[ConditionPart], at: usize) -> impl Iterator<Item = usize> {
    let depth = parts[at].depth;
    let inside = parts[at + 1..].iter().position(|part| part.depth <= depth).map_or(parts.len(), |n| at + 1 + n);
    (at + 1..inside).filter(move |part| parts[*part].depth == depth + 1)
}

/// What is joined by `and` in part `at`, also inside lets.
fn push_terms(parts: &[ConditionPart], at: usize, terms: &mut Vec<usize>) {
    let inside: Vec<usize> = below(parts, at).collect();
    if parts[at].role == Role::And && !inside.is_empty() {
        inside.into_iter().for_each(|part| push_terms(parts, part, terms));
    } else {
        terms.push(at);
    }
}

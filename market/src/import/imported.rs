//! The bars of an import, once it is known what their times mean: symbol by symbol, loaded when they are needed.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;

use super::fit::{Fit, FitCount};
use super::inputs::ReadFile;
use super::order::{Ordered, order_rows};
use super::settle::Labels;
use super::spool::{Load, Spooled, SymbolRows};
use crate::arrow_file::SymbolBars;
use crate::error::MarketError;
use crate::limits::FIT_BARS_MAX;
use crate::quarantine::Reason;
use crate::reading::newest_first;
use crate::time::TimeMicros;

/// A symbol with at least one bar.
pub(crate) struct ImportedSymbol {
    pub name: Arc<str>,
    id: usize,
    pub bars: usize,
    pub first: TimeMicros,
    pub last: TimeMicros,
    /// Kept where the rows are in memory too.
    ordered: Option<Ordered>,
}

/// The bars of all files.
pub(crate) struct Imported {
    rows: Spooled,
    /// By name.
    pub symbols: Vec<ImportedSymbol>,
    labels: Labels,
    /// By file: whether it begins with its newest bar.
    turned: Vec<bool>,
    /// By file: the labels that it may have; empty where none is bound to a date.
    spans: Vec<Option<(TimeMicros, TimeMicros)>>,
}

/// Rows that are no bars because of their times: by file, line and reason.
pub(super) type LateRows = BTreeMap<usize, Vec<(u64, Reason)>>;

/// What became known of the bars.
pub(super) struct Settled {
    pub imported: Imported,
    pub fit: Fit,
    /// By the place of the file among those that were read.
    pub late: LateRows,
    /// Rows that do not fit their own file, by the same.
    pub unordered: BTreeMap<usize, usize>,
    /// Files that begin with their newest bar.
    pub turned: usize,
}

impl Imported {
    /// Labels and orders the rows of all symbols. `spans` has by file the labels that it may have, and is empty where none is bound.
    ///
    /// # Errors
    /// [`MarketError::Io`] where rows in files cannot be read.
    pub(super) fn settle(
        rows: Spooled,
        files: &[ReadFile],
        labels: Labels,
        spans: Vec<Option<(TimeMicros, TimeMicros)>>,
    ) -> Result<Settled, MarketError> {
        let turned = |file: &ReadFile| {
            newest_first(file.head.iter().map(|(symbol, local, offset)| (*symbol, labels.label(*local, *offset))))
        };
        let turned: Vec<bool> = files.iter().map(turned).collect();
        let mut ids: Vec<usize> = (0..rows.symbols.len()).collect();
        ids.sort_by(|a, b| rows.symbols[*a].cmp(&rows.symbols[*b]));
        let held = rows.is_held();
        let settle = |id: usize| {
            let ordered = order(&rows.load(id, Load::Times)?, labels, &turned, &spans);
            let late = match ordered.late.is_empty() {
                true => Vec::new(),
                false => {
                    let which = rows.load(id, Load::Rows)?.rows;
                    let line = |row: u32| rows.line(which[row as usize]);
                    ordered.late.iter().map(|late| (late.file, line(late.row), late.reason, late.own)).collect()
                }
            };
            let (name, bars) = (Arc::clone(&rows.symbols[id]), ordered.times.len());
            // Of a symbol without a bar the rows that are none count all the same.
            let Some((first, last)) = ordered.times.first().copied().zip(ordered.times.last().copied()) else {
                return Ok((None, late));
            };
            let count = FitCount::of(labels.calendar, labels.timeframe, &ordered.times);
            let ordered = held.then_some(ordered);
            Ok((Some((ImportedSymbol { name, id, bars, first, last, ordered }, count)), late))
        };
        let found = ids.into_par_iter().map(settle).collect::<Result<Vec<_>, MarketError>>()?;
        let mut fit = Fit::new(labels.calendar, labels.timeframe);
        let (mut symbols, mut all_late, mut unordered) = (Vec::new(), LateRows::new(), BTreeMap::new());
        for (symbol, late) in found {
            if let Some((symbol, count)) = symbol {
                fit.add(count);
                symbols.push(symbol);
            }
            for (file, line, reason, own) in late {
                all_late.entry(file).or_default().push((line, reason));
                *unordered.entry(file).or_default() += usize::from(own);
            }
        }
        let count = turned.iter().filter(|turned| **turned).count();
        let imported = Self { rows, symbols, labels, turned, spans };
        if fit.misfit().is_some() {
            fit.sample = imported.sample()?;
        }
        Ok(Settled { imported, fit, late: all_late, unordered, turned: count })
    }

    /// Bars of all symbols.
    pub fn bars(&self) -> u64 {
        self.symbols.iter().map(|symbol| symbol.bars as u64).sum()
    }

    /// Times of some bars, evenly from all of them.
    fn sample(&self) -> Result<Vec<TimeMicros>, MarketError> {
        let step = self.bars() as usize / FIT_BARS_MAX + 1;
        let (mut sample, mut before) = (Vec::new(), 0usize);
        for symbol in &self.symbols {
            let first = before.next_multiple_of(step) - before;
            if first < symbol.bars {
                sample.extend(self.times(symbol)?.iter().skip(first).step_by(step));
            }
            before += symbol.bars;
        }
        Ok(sample)
    }

    /// The times of a symbol's bars.
    ///
    /// # Errors
    /// [`MarketError::Io`] where its rows are in a file that cannot be read.
    pub fn times(&self, symbol: &ImportedSymbol) -> Result<Vec<TimeMicros>, MarketError> {
        match &symbol.ordered {
            Some(ordered) => Ok(ordered.times.clone()),
            None => Ok(order(&self.rows.load(symbol.id, Load::Times)?, self.labels, &self.turned, &self.spans).times),
        }
    }

    /// The bars of a symbol with these columns; NaN where a file does not have one.
    ///
    /// # Errors
    /// Those of [`Imported::times`].
    pub fn load(&self, symbol: &ImportedSymbol, columns: &[String]) -> Result<SymbolBars, MarketError> {
        let mut rows = self.rows.load(symbol.id, Load::Values(columns))?;
        let own;
        let ordered = match &symbol.ordered {
            Some(ordered) => ordered,
            None => {
                own = order(&rows, self.labels, &self.turned, &self.spans);
                &own
            }
        };
        let columns = std::mem::take(&mut rows.values).into_iter().map(|values| ordered.values(values)).collect();
        Ok(SymbolBars { symbol: Arc::clone(&symbol.name), times: ordered.times.clone(), columns })
    }
}

fn order(rows: &SymbolRows, labels: Labels, turned: &[bool], spans: &[Option<(TimeMicros, TimeMicros)>]) -> Ordered {
    let times = rows.local.iter().zip(&rows.offset).map(|(local, offset)| labels.label(*local, *offset)).collect();
    order_rows(&rows.files, times, |file| turned.get(file).copied().unwrap_or(false), spans)
}

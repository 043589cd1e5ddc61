//! A scan's columns along the bars of one symbol.

use trawl_kernels::Cancel;
use trawl_market::{MarketError, TimeMicros};
use trawl_wire::Status;
use trawl_worker::schema_of;

use crate::all_bars::{AllBarsError, CHUNK_BYTES_MAX, all_bars};
use crate::local::LocalOptions;
use crate::prepare::PreparedScan;

/// Why the series of a symbol could not be computed.
#[derive(Debug, thiserror::Error)]
pub enum SeriesError {
    /// The dataset has no such symbol as of the scan's time.
    #[error(transparent)]
    Symbol(#[from] NoSymbol),
    /// The dataset cannot be read.
    #[error(transparent)]
    Market(#[from] MarketError),
    /// The scan could not be computed along the bars.
    #[error(transparent)]
    AllBars(#[from] AllBarsError),
    /// Its bars cannot be read.
    #[error("{symbol}: {reason}")]
    Failed {
        /// The symbol as the dataset names it.
        symbol: String,
        /// The reason given by its rows.
        reason: String,
    },
}

/// No such symbol as of the scan's time.
#[derive(Debug, thiserror::Error)]
#[error("dataset '{dataset}' has no symbol '{symbol}'")]
pub struct NoSymbol {
    /// Name of the dataset.
    pub dataset: String,
    /// The requested symbol.
    pub symbol: String,
    /// A symbol with a similar name.
    pub near: Option<String>,
}

/// One symbol's own bars, oldest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SymbolSeries {
    /// The symbol as the dataset calls it.
    pub symbol: String,
    /// Time of each bar, ascending.
    pub times: Vec<TimeMicros>,
    /// A series for each column of the scan's `select`; NaN for NA.
    pub columns: Vec<Vec<f64>>,
}

/// The symbol as the dataset calls it as of the scan's time.
///
/// # Errors
/// [`SeriesError::Symbol`], [`SeriesError::Market`].
pub(crate) fn resolve_symbol(prepared: &PreparedScan, symbol: &str) -> Result<String, SeriesError> {
    let schema = schema_of(&prepared.dataset, prepared.as_of)?;
    let found = schema.directory.as_ref().map_or_else(|| Err(None), |d| d.symbol(symbol));
    Ok(found.map_err(|near| NoSymbol {
        dataset: prepared.dataset.manifest.name.clone(),
        symbol: symbol.to_owned(),
        near,
    })?)
}

/// The scan restricted to what one symbol's values need: cross-sections need every symbol, anything else its group.
pub(crate) fn narrowed(scan: PreparedScan, symbol: &str) -> PreparedScan {
    match scan.dataset.manifest.symbol(symbol).map(|entry| entry.group) {
        Some(group) if scan.plan.crosses.is_empty() => scan.only(group),
        _ => scan,
    }
}

/// Estimated nanoseconds of one core that the columns of a symbol take: of all symbols where an expression compares them.
///
/// # Errors
/// [`SeriesError::Symbol`], [`SeriesError::Market`].
pub fn series_cost_ns(prepared: &PreparedScan, symbol: &str) -> Result<u64, SeriesError> {
    let symbol = resolve_symbol(prepared, symbol)?;
    Ok(narrowed(prepared.clone(), &symbol).cost_ns())
}

/// The columns of `select` on the symbol's last `bars` bars up to the as-of on which the scan's condition is true; each
/// value is that of a scan as of that bar, but with all prices adjusted as of the last bar.
///
/// # Errors
/// [`SeriesError`].
pub fn symbol_series(
    prepared: &PreparedScan,
    symbol: &str,
    bars: usize,
    options: LocalOptions,
    cancel: &dyn Cancel,
) -> Result<SymbolSeries, SeriesError> {
    let symbol = resolve_symbol(prepared, symbol)?;
    let mut scan = narrowed(prepared.clone(), &symbol);
    // One continuous series: all prices adjusted as of the last bar.
    scan.adjustment.at_last = true;
    // Times of the symbol's own bars; the dataset has further times.
    let times = scan.dataset.load_symbol(&symbol, &[])?.times;
    let seen = &times[..times.partition_point(|t| *t <= scan.as_of)];
    let from = seen.get(seen.len().saturating_sub(bars)).copied();
    let mut series = SymbolSeries { symbol, times: Vec::new(), columns: vec![Vec::new(); scan.plan.headings.len()] };
    let mut failed = None;
    all_bars(&scan, options, from, CHUNK_BYTES_MAX, cancel, |time, answer| {
        let row = answer.rows.iter().map(|r| &r.row).find(|r| r.symbol == series.symbol);
        let Some(row) = row else { return Ok(()) };
        if row.status == Status::Failed {
            failed = Some(row.reason.clone());
        }
        if row.status == Status::Matched {
            series.times.push(time);
            series.columns.iter_mut().zip(&row.values).for_each(|(column, value)| column.push(*value));
        }
        Ok(())
    })?;
    match failed {
        Some(reason) => Err(SeriesError::Failed { symbol: series.symbol, reason }),
        None => Ok(series),
    }
}

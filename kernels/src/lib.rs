//! Runs a plan over tiles of bars. Knows nothing of networks, scans, datasets or files.
//!
//! `cpu` is the engine so far; the plan's primitives are defined at `trawl_plan::graph::Op`.

mod cpu;

use cpu::{LANES, Tile, Workspace};
use trawl_plan::Plan;

/// The backends' names enter the identity of an answer.
pub const BACKEND_CPU: &str = "cpu";
/// Precision of the arithmetic.
pub const PRECISION_F64: &str = "f64";
/// Changes whenever the same plan over the same bars could give other bits.
pub const NUMERICS_ID: &str = "n1";

/// One symbol's bars as the kernels see them.
#[derive(Debug, Clone)]
pub struct SymbolInput<'a> {
    /// One slice per entry of `plan.columns`, same order, all of one length; NaN = NA.
    pub columns: Vec<&'a [f64]>,
    /// How many of the bars are visible (as-of index + 1); at most the slices' length, at least 1.
    pub visible: usize,
}

/// Asked between strips of bars; a `true` stops the run.
pub trait Cancel: Sync {
    /// Whether the work is no longer wanted.
    fn cancelled(&self) -> bool;
}

/// Never cancels.
pub struct NoCancel;

impl Cancel for NoCancel {
    fn cancelled(&self) -> bool {
        false
    }
}

/// The run was cancelled; nothing was computed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the run was cancelled")]
pub struct Cancelled;

/// Values of a plan at each symbol's last visible bar.
#[derive(Debug, Clone, PartialEq)]
pub struct LastValues {
    /// 1, 0 or NaN; 1 when the plan has no universe.
    pub universe: f64,
    /// 1, 0 or NaN; NaN when the plan has no condition.
    pub condition: f64,
    /// One per rank key.
    pub rank: Vec<f64>,
    /// One per select column.
    pub select: Vec<f64>,
}

/// Evaluates `plan` at the last visible bar of each symbol, in the order of `symbols`, on the calling thread.
///
/// A symbol's values depend on that symbol's bars only: not on its neighbours, its place or the batch.
///
/// # Errors
/// [`Cancelled`].
pub fn evaluate_last(
    plan: &Plan,
    symbols: &[SymbolInput<'_>],
    cancel: &dyn Cancel,
) -> Result<Vec<LastValues>, Cancelled> {
    let empty = LastValues {
        universe: 1.0,
        condition: f64::NAN,
        rank: Vec::new(),
        select: Vec::new(),
    };
    let mut values = vec![empty; symbols.len()];
    // Symbols of like length share a tile, so that its last rows are few.
    let mut order: Vec<usize> = (0..symbols.len()).collect();
    order.sort_by_key(|&i| symbols[i].visible);
    let mut workspace = Workspace::new(plan);
    for chunk in order.chunks(LANES) {
        let lanes: Vec<&SymbolInput<'_>> = chunk.iter().map(|&i| &symbols[i]).collect();
        let (shortest, rows) = (lanes[0].visible, lanes[lanes.len() - 1].visible);
        let tile = Tile { symbols: &lanes };
        workspace.run(&tile, shortest.saturating_sub(1), cancel, |w, strip| {
            for (lane, &i) in chunk.iter().enumerate() {
                let Some(row) = lanes[lane]
                    .visible
                    .checked_sub(1)
                    .filter(|row| strip.contains(row))
                else {
                    continue;
                };
                let value = |id| w.value(id, lane, row, rows);
                values[i] = LastValues {
                    universe: plan.universe.map_or(1.0, value),
                    condition: plan.condition.map_or(f64::NAN, value),
                    rank: plan.rank.iter().map(|k| value(k.node)).collect(),
                    select: plan.select.iter().map(|o| value(o.node)).collect(),
                };
            }
        })?;
    }
    Ok(values)
}

/// Evaluates every `select` output of `plan` on every visible bar of one symbol: one series per output.
///
/// # Errors
/// [`Cancelled`].
pub fn evaluate_all(
    plan: &Plan,
    symbol: &SymbolInput<'_>,
    cancel: &dyn Cancel,
) -> Result<Vec<Vec<f64>>, Cancelled> {
    let rows = symbol.visible;
    let mut series: Vec<Vec<f64>> = plan
        .select
        .iter()
        .map(|_| Vec::with_capacity(rows))
        .collect();
    let mut workspace = Workspace::new(plan);
    workspace.run(&Tile { symbols: &[symbol] }, 0, cancel, |w, strip| {
        for (output, series) in plan.select.iter().zip(&mut series) {
            series.extend(strip.clone().map(|row| w.value(output.node, 0, row, rows)));
        }
    })?;
    Ok(series)
}

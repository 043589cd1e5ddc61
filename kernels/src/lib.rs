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

/// Bytes that one thread may need beside the bars; planning refuses what needs more (see [`workspace_bytes`]).
pub const WORKSPACE_BYTES_MAX: u64 = 1 << 30;

/// Bytes that one thread needs beside the bars to run `plan` over histories of up to `bars` bars.
pub fn workspace_bytes(plan: &Plan, bars: usize) -> u64 {
    cpu::workspace_bytes(plan, bars)
}

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

/// Values of a plan at a symbol's last visible bar. Those of a symbol without bars are the default: all NA.
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

impl Default for LastValues {
    fn default() -> Self {
        Self { universe: f64::NAN, condition: f64::NAN, rank: Vec::new(), select: Vec::new() }
    }
}

/// Bars of some symbols in the engine's layout, kept while several plans run over them.
#[derive(Debug)]
pub struct Tiles {
    names: Vec<String>,
    symbols: usize,
    /// The symbols of each tile, and their bars.
    tiles: Vec<(Vec<usize>, Tile)>,
}

impl Tiles {
    /// Lays out `symbols`, whose columns are called `names`, in that order.
    pub fn new(names: &[String], symbols: &[SymbolInput<'_>]) -> Self {
        let tiles = chunks(symbols).map(|chunk| {
            let lanes: Vec<&SymbolInput<'_>> = chunk.iter().map(|&i| &symbols[i]).collect();
            let tile = Tile::load(&lanes, vec![0; names.len()]);
            (chunk, tile)
        });
        Self { names: names.to_vec(), symbols: symbols.len(), tiles: tiles.collect() }
    }
}

/// Which bars are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bars {
    /// Those that the last bar needs.
    Needed,
    /// Every bar of every output.
    All,
}

/// Why tiles could not be evaluated.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TilesError {
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    #[error("the plan reads the column '{0}', which these tiles do not hold")]
    MissingColumn(String),
}

/// Symbols of like length share a tile, so that its last rows are few.
fn chunks(symbols: &[SymbolInput<'_>]) -> impl Iterator<Item = Vec<usize>> {
    let mut order: Vec<usize> = (0..symbols.len()).collect();
    order.sort_by_key(|&i| symbols[i].visible);
    (0..order.len().div_ceil(LANES)).map(move |i| order[i * LANES..((i + 1) * LANES).min(order.len())].to_vec())
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
    let mut values = vec![LastValues::default(); symbols.len()];
    let columns: Vec<usize> = (0..plan.columns.len()).collect();
    let mut workspace = Workspace::new(plan);
    for chunk in chunks(symbols) {
        let lanes: Vec<&SymbolInput<'_>> = chunk.iter().map(|&i| &symbols[i]).collect();
        let shortest = lanes.iter().map(|s| s.visible).min().unwrap_or(0);
        let tile = Tile::load(&lanes, workspace.column_begins(shortest.saturating_sub(1)));
        run_tile(&mut workspace, plan, &tile, &columns, Bars::Needed, cancel, |lane, v| values[chunk[lane]] = v)?;
    }
    Ok(values)
}

/// As [`evaluate_last`], over bars that are laid out already. With [`Bars::All`] every bar is computed and only the last
/// one's values are kept: what benchmarks of whole series time.
///
/// # Errors
/// See [`TilesError`].
pub fn evaluate_tiles(
    plan: &Plan,
    tiles: &Tiles,
    bars: Bars,
    cancel: &dyn Cancel,
) -> Result<Vec<LastValues>, TilesError> {
    let mut columns = Vec::with_capacity(plan.columns.len());
    for name in &plan.columns {
        let at = tiles.names.iter().position(|n| n == name);
        columns.push(at.ok_or_else(|| TilesError::MissingColumn(name.clone()))?);
    }
    let mut values = vec![LastValues::default(); tiles.symbols];
    let mut workspace = Workspace::new(plan);
    for (chunk, tile) in &tiles.tiles {
        run_tile(&mut workspace, plan, tile, &columns, bars, cancel, |lane, v| values[chunk[lane]] = v)?;
    }
    Ok(values)
}

/// Runs one tile and hands the last values of each lane to `keep`.
fn run_tile(
    workspace: &mut Workspace<'_>,
    plan: &Plan,
    tile: &Tile,
    columns: &[usize],
    bars: Bars,
    cancel: &dyn Cancel,
    mut keep: impl FnMut(usize, LastValues),
) -> Result<(), Cancelled> {
    let from = if bars == Bars::All { 0 } else { tile.shortest().saturating_sub(1) };
    workspace.run(tile, columns, from, cancel, |w, strip| {
        for (lane, visible) in tile.visible.iter().enumerate() {
            let Some(row) = visible.checked_sub(1).filter(|row| strip.contains(row)) else {
                continue;
            };
            let value = |id| w.value(tile, columns, id, lane, row);
            let last = LastValues {
                universe: plan.universe.map_or(1.0, value),
                condition: plan.condition.map_or(f64::NAN, value),
                rank: plan.rank.iter().map(|k| value(k.node)).collect(),
                select: plan.select.iter().map(|o| value(o.node)).collect(),
            };
            keep(lane, last);
        }
    })
}

/// Evaluates every `select` output of `plan` on every visible bar of one symbol: one series per output.
///
/// # Errors
/// [`Cancelled`].
pub fn evaluate_all(plan: &Plan, symbol: &SymbolInput<'_>, cancel: &dyn Cancel) -> Result<Vec<Vec<f64>>, Cancelled> {
    let columns: Vec<usize> = (0..plan.columns.len()).collect();
    let tile = Tile::load(&[symbol], vec![0; columns.len()]);
    let mut series: Vec<Vec<f64>> = plan.select.iter().map(|_| Vec::with_capacity(symbol.visible)).collect();
    Workspace::new(plan).run(&tile, &columns, 0, cancel, |w, strip| {
        for (output, series) in plan.select.iter().zip(&mut series) {
            series.extend(strip.clone().map(|row| w.value(&tile, &columns, output.node, 0, row)));
        }
    })?;
    Ok(series)
}

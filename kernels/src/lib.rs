//! Runs programs over tiles of bars. Knows nothing of networks, scans, datasets or files.
//!
//! `cpu` runs them here; `cuda` writes them as kernels. The plan's primitives are defined at `trawl_plan::graph::Op`.

mod cpu;
pub mod cuda;
mod engine;
mod resident;
mod resume;
pub mod stages;

use cpu::{LANES, Real, Tile, Workspace};
use trawl_plan::{Input, Program};

pub use engine::{Engine, EngineError};
pub use resident::{Resident, ResidentError};
pub use resume::{Resumed, Resuming, State, carried_inputs, carried_layout, evaluate_resuming, resumed_begins};

/// The backends' names enter the identity of an answer.
pub const BACKEND_CPU: &str = "cpu";
/// Precision of the arithmetic, as it is named in the identity of an answer.
pub const PRECISION_F64: &str = "f64";
/// See [`Precision::F32`].
pub const PRECISION_F32: &str = "f32";
/// Changes whenever the same plan over the same bars could give other bits.
pub const NUMERICS_ID: &str = "n5";

/// The number type that steps run in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// What the agreement with the references is promised for.
    #[default]
    F64,
    /// Bars and values of half the size. Running totals are unevaluated sums of two; the rarer steps run in `f64` between
    /// series of `f32`. How far the values are off is published, not promised: docs/precision.md.
    F32,
}

impl Precision {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::F64, Self::F32];

    /// That of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.name() == name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::F64 => PRECISION_F64,
            Self::F32 => PRECISION_F32,
        }
    }

    /// As [`evaluate_last`], in this precision: bars are rounded to it as they are laid out.
    ///
    /// # Errors
    /// [`Cancelled`].
    pub fn evaluate_last(
        self,
        program: &Program,
        symbols: &[SymbolInput<'_>],
        cancel: &dyn Cancel,
    ) -> Result<Vec<Vec<f64>>, Cancelled> {
        let last: Vec<usize> = symbols.iter().map(|s| s.visible.saturating_sub(1)).collect();
        let mut values = vec![vec![f64::NAN; program.outputs.len()]; symbols.len()];
        self.run_chunks(program, symbols, &last, cancel, |symbol, output, value| values[symbol][output] = value)?;
        Ok(values)
    }

    /// As [`evaluate_from`], in this precision.
    ///
    /// # Errors
    /// [`Cancelled`].
    pub fn evaluate_from(
        self,
        program: &Program,
        symbols: &[SymbolInput<'_>],
        from: &[usize],
        cancel: &dyn Cancel,
    ) -> Result<Vec<Vec<Vec<f64>>>, Cancelled> {
        let bars = |(symbol, from): (&SymbolInput<'_>, &usize)| symbol.visible.saturating_sub(*from);
        let empty = |bars| vec![Vec::with_capacity(bars); program.outputs.len()];
        let mut series: Vec<Vec<Vec<f64>>> = symbols.iter().zip(from).map(bars).map(empty).collect();
        self.run_chunks(program, symbols, from, cancel, |symbol, output, value| series[symbol][output].push(value))?;
        Ok(series)
    }

    fn run_chunks(
        self,
        program: &Program,
        symbols: &[SymbolInput<'_>],
        from: &[usize],
        cancel: &dyn Cancel,
        keep: impl FnMut(usize, usize, f64),
    ) -> Result<(), Cancelled> {
        match self {
            Self::F64 => run_chunks::<f64>(program, symbols, from, cancel, keep),
            Self::F32 => run_chunks::<f32>(program, symbols, from, cancel, keep),
        }
    }
}

/// Bytes that one thread may need beside the bars; planning refuses what needs more (see [`workspace_bytes`]).
pub const WORKSPACE_BYTES_MAX: u64 = 1 << 30;

/// Bytes that one thread needs beside the bars to run `program` over histories of up to `bars` bars.
pub fn workspace_bytes(program: &Program, bars: usize, precision: Precision) -> u64 {
    match precision {
        Precision::F64 => cpu::workspace_bytes::<f64>(program, bars),
        Precision::F32 => cpu::workspace_bytes::<f32>(program, bars),
    }
}

/// The first bar that each of the program's inputs must hold when its outputs are wanted from bar `wanted_from` on.
pub fn input_begins(program: &Program, wanted_from: usize) -> Vec<usize> {
    cpu::column_begins(program, wanted_from)
}

/// Where bars may begin that are given without those before `bar`, so that every value has the bits of the whole history: the
/// last bar at or before it whose number is a multiple of every window whose sums are cut into blocks. What lies between the
/// two is given as NA.
pub fn aligned_begin(program: &Program, bar: usize) -> usize {
    cpu::blocks_begin(program, bar)
}

/// One symbol's bars as the kernels see them.
#[derive(Debug, Clone)]
pub struct SymbolInput<'a> {
    /// One slice per input of the program, same order, all of one length; NaN = NA. Bars before those that
    /// [`input_begins`] gives are not looked at.
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
#[derive(Debug, Clone, Copy, thiserror::Error, PartialEq, Eq)]
#[error("the run was cancelled")]
pub struct Cancelled;

/// Bars of some symbols in the engine's layout, kept while several plans run over them.
#[derive(Debug)]
pub struct Tiles {
    names: Vec<String>,
    symbols: usize,
    tiles: Layout,
}

/// The symbols of each tile, and their bars.
#[derive(Debug)]
enum Layout {
    F64(Vec<(Vec<usize>, Tile<f64>)>),
    F32(Vec<(Vec<usize>, Tile<f32>)>),
}

impl Tiles {
    /// Lays out `symbols`, whose columns are called `names`, in that order.
    pub fn new(names: &[String], symbols: &[SymbolInput<'_>], precision: Precision) -> Self {
        let columns = names.len();
        let tiles = match precision {
            Precision::F64 => Layout::F64(lay_out(columns, symbols)),
            Precision::F32 => Layout::F32(lay_out(columns, symbols)),
        };
        Self { names: names.to_vec(), symbols: symbols.len(), tiles }
    }

    /// Bars of the longest symbol.
    pub fn bars(&self) -> usize {
        match &self.tiles {
            Layout::F64(tiles) => tiles.iter().map(|(_, tile)| tile.rows()).max(),
            Layout::F32(tiles) => tiles.iter().map(|(_, tile)| tile.rows()).max(),
        }
        .unwrap_or(0)
    }

    /// Bytes that the bars take.
    pub fn bytes(&self) -> u64 {
        match &self.tiles {
            Layout::F64(tiles) => tiles.iter().map(|(_, tile)| tile.bytes()).sum(),
            Layout::F32(tiles) => tiles.iter().map(|(_, tile)| tile.bytes()).sum(),
        }
    }
}

fn lay_out<T: Real>(columns: usize, symbols: &[SymbolInput<'_>]) -> Vec<(Vec<usize>, Tile<T>)> {
    let tiles = chunks(symbols).map(|chunk| {
        let lanes: Vec<&SymbolInput<'_>> = chunk.iter().map(|&i| &symbols[i]).collect();
        let tile = Tile::load(&lanes, vec![0; columns]);
        (chunk, tile)
    });
    tiles.collect()
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
    #[error("the program reads the column '{0}', which these tiles do not hold")]
    MissingColumn(String),
    #[error("the program reads more than columns of the symbol's own bars")]
    OtherInput,
}

/// Symbols of like length share a tile, so that its last rows are few.
fn chunks(symbols: &[SymbolInput<'_>]) -> impl Iterator<Item = Vec<usize>> {
    let mut order: Vec<usize> = (0..symbols.len()).collect();
    order.sort_by_key(|&i| symbols[i].visible);
    (0..order.len().div_ceil(LANES)).map(move |i| order[i * LANES..((i + 1) * LANES).min(order.len())].to_vec())
}

/// Evaluates the program's outputs at the last visible bar of each symbol, in the order of `symbols`, on the calling
/// thread: one value an output, NaN for a symbol without visible bars.
///
/// A symbol's values depend on that symbol's bars only: not on its neighbours, its place or the batch.
///
/// # Errors
/// [`Cancelled`].
pub fn evaluate_last(
    program: &Program,
    symbols: &[SymbolInput<'_>],
    cancel: &dyn Cancel,
) -> Result<Vec<Vec<f64>>, Cancelled> {
    Precision::F64.evaluate_last(program, symbols, cancel)
}

/// Evaluates the program's outputs on the bars `from[i]..visible` of each symbol i: `[symbol][output][bar - from]`.
///
/// # Errors
/// [`Cancelled`].
pub fn evaluate_from(
    program: &Program,
    symbols: &[SymbolInput<'_>],
    from: &[usize],
    cancel: &dyn Cancel,
) -> Result<Vec<Vec<Vec<f64>>>, Cancelled> {
    Precision::F64.evaluate_from(program, symbols, from, cancel)
}

/// Runs the symbols tile by tile and gives every value of the bars that are wanted, each symbol's in order of bars.
fn run_chunks<T: Real>(
    program: &Program,
    symbols: &[SymbolInput<'_>],
    from: &[usize],
    cancel: &dyn Cancel,
    mut keep: impl FnMut(usize, usize, f64),
) -> Result<(), Cancelled> {
    let columns: Vec<usize> = (0..program.inputs.len()).collect();
    let mut workspace = Workspace::<T>::new(program);
    for chunk in chunks(symbols) {
        let lanes: Vec<&SymbolInput<'_>> = chunk.iter().map(|&i| &symbols[i]).collect();
        let first = chunk.iter().map(|&i| from[i]).min().unwrap_or(0);
        let tile = Tile::load(&lanes, cpu::column_begins(program, first));
        workspace.run(&tile, &columns, first, cancel, |w, strip| {
            for (lane, visible) in tile.visible.iter().enumerate() {
                for row in strip.start.max(from[chunk[lane]])..strip.end.min(*visible) {
                    for output in 0..program.outputs.len() {
                        keep(chunk[lane], output, w.value(&tile, &columns, output, lane, row));
                    }
                }
            }
        })?;
    }
    Ok(())
}

/// As [`evaluate_last`], over bars that are laid out already. With [`Bars::All`] every bar is computed and only the last
/// one's values are kept: what benchmarks of whole series time.
///
/// # Errors
/// See [`TilesError`].
pub fn evaluate_tiles(
    program: &Program,
    tiles: &Tiles,
    bars: Bars,
    cancel: &dyn Cancel,
) -> Result<Vec<Vec<f64>>, TilesError> {
    let mut columns = Vec::with_capacity(program.inputs.len());
    for input in &program.inputs {
        let Input::Column(name) = input else { return Err(TilesError::OtherInput) };
        let at = tiles.names.iter().position(|n| n == name);
        columns.push(at.ok_or_else(|| TilesError::MissingColumn(name.clone()))?);
    }
    let mut values = vec![vec![f64::NAN; program.outputs.len()]; tiles.symbols];
    match &tiles.tiles {
        Layout::F64(tiles) => run_tiles(program, tiles, &columns, bars, cancel, &mut values)?,
        Layout::F32(tiles) => run_tiles(program, tiles, &columns, bars, cancel, &mut values)?,
    }
    Ok(values)
}

fn run_tiles<T: Real>(
    program: &Program,
    tiles: &[(Vec<usize>, Tile<T>)],
    columns: &[usize],
    bars: Bars,
    cancel: &dyn Cancel,
    values: &mut [Vec<f64>],
) -> Result<(), Cancelled> {
    let mut workspace = Workspace::<T>::new(program);
    for (chunk, tile) in tiles {
        let from = if bars == Bars::All { 0 } else { tile.shortest().saturating_sub(1) };
        workspace.run(tile, columns, from, cancel, |w, strip| {
            for (lane, visible) in tile.visible.iter().enumerate() {
                if let Some(row) = visible.checked_sub(1).filter(|row| strip.contains(row)) {
                    let value = |output| w.value(tile, columns, output, lane, row);
                    values[chunk[lane]] = (0..program.outputs.len()).map(value).collect();
                }
            }
        })?;
    }
    Ok(())
}

/// Evaluates every output of the program on every visible bar of one symbol: one series per output.
///
/// # Errors
/// [`Cancelled`].
pub fn evaluate_all(
    program: &Program,
    symbol: &SymbolInput<'_>,
    cancel: &dyn Cancel,
) -> Result<Vec<Vec<f64>>, Cancelled> {
    let mut series = evaluate_from(program, std::slice::from_ref(symbol), &[0], cancel)?;
    Ok(series.pop().unwrap_or_default())
}

//! Runs programs over tiles of bars. Knows nothing of networks, scans, datasets or files.
//!
//! `cpu` runs them on the host; `cuda` generates kernels for a device. The plan's primitives are defined at
//! `trawl_plan::graph::Op`.

mod cpu;
pub mod cuda;
mod engine;
mod executable;
mod forgetting;
mod pages;
mod resident;
mod resume;
mod routed;
mod routing;
pub mod stages;
mod streaming;
mod values;

use cpu::{LANES, Real, Tile};
use trawl_plan::Program;

pub use engine::{Engine, EngineError};
pub use executable::Executable;
pub use forgetting::Forgetting;
pub use pages::advise_large_pages;
pub use resident::{Resident, ResidentError};
pub use routed::{BARS_BEHIND_MAX, RoutedStates};
pub use routing::{Route, RouteUse, Router, Routing};
pub use trawl_terms::Precision;

pub use resume::{Resumed, Resuming, State};
pub use streaming::{Streaming, streamed};
pub use values::Values;

/// Name of the backend in the identity of an answer.
pub const BACKEND_CPU: &str = "cpu";
/// Changes whenever the same plan over the same bars could give other bits.
pub const NUMERICS_ID: &str = "n6";

/// Bytes that one thread may need beside the bars; planning rejects programs that need more (see
/// [`Executable::workspace_bytes`]).
pub const WORKSPACE_BYTES_MAX: u64 = 1 << 30;

/// One symbol's bars as the kernels see them.
#[derive(Debug, Clone)]
pub struct SymbolInput<'a> {
    /// One slice per input of the program, same order, all of one length; NaN = NA. Bars before
    /// [`Executable::input_begins`] are not read.
    pub columns: Vec<&'a [f64]>,
    /// How many of the bars are visible (as-of index + 1); at most the slices' length, at least 1.
    pub visible: usize,
}

impl SymbolInput<'_> {
    /// Whether it lacks any bars, where so many of the first ones were not read.
    pub fn is_unread(&self, unread: usize) -> bool {
        unread > 0 || self.columns.iter().any(|column| column.len() < self.visible)
    }

    /// How many bars its columns have, visible or not.
    pub(crate) fn laid(&self) -> usize {
        self.columns.iter().map(|column| column.len()).fold(self.visible, usize::max)
    }
}

/// Cooperative cancellation, polled between strips of bars.
pub trait Cancel: Sync {
    /// Returns `true` to stop the run.
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

/// Bars of a set of symbols in the engine's layout, reusable by several plans.
#[derive(Debug)]
pub struct Tiles {
    names: Vec<String>,
    symbols: usize,
    tiles: TypedTiles,
}

/// The symbols of each tile, and their bars.
#[derive(Debug)]
enum TypedTiles {
    F64(Vec<(Vec<usize>, Tile<f64>)>),
    F32(Vec<(Vec<usize>, Tile<f32>)>),
}

impl Tiles {
    /// Lays out `symbols`; `names` are the names of their columns, in the same order.
    pub fn new(names: &[String], symbols: &[SymbolInput<'_>], precision: Precision) -> Self {
        let columns = names.len();
        let tiles = match precision {
            Precision::F64 => TypedTiles::F64(lay_out(columns, symbols)),
            Precision::F32 => TypedTiles::F32(lay_out(columns, symbols)),
        };
        Self { names: names.to_vec(), symbols: symbols.len(), tiles }
    }

    /// Number of bars of the longest symbol.
    pub fn bars(&self) -> usize {
        match &self.tiles {
            TypedTiles::F64(tiles) => tiles.iter().map(|(_, tile)| tile.rows()).max(),
            TypedTiles::F32(tiles) => tiles.iter().map(|(_, tile)| tile.rows()).max(),
        }
        .unwrap_or(0)
    }

    /// Size of the bars in bytes.
    pub fn bytes(&self) -> u64 {
        match &self.tiles {
            TypedTiles::F64(tiles) => tiles.iter().map(|(_, tile)| tile.bytes()).sum(),
            TypedTiles::F32(tiles) => tiles.iter().map(|(_, tile)| tile.bytes()).sum(),
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
    /// Those that the last bar depends on.
    Needed,
    /// Every bar of every output.
    All,
}

/// Why tiles could not be evaluated.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TilesError {
    /// The run was cancelled; nothing was computed.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// The tiles lack this column of the program.
    #[error("the program reads the column '{0}', which these tiles do not hold")]
    MissingColumn(String),
    /// The program has inputs that are not columns of bars.
    #[error("the program reads more than columns of the symbol's own bars")]
    OtherInput,
}

/// Groups symbols of similar length into tiles, which keeps padding small.
fn chunks(symbols: &[SymbolInput<'_>]) -> impl Iterator<Item = Vec<usize>> {
    let mut order: Vec<usize> = (0..symbols.len()).collect();
    order.sort_by_key(|&i| symbols[i].visible);
    (0..order.len().div_ceil(LANES)).map(move |i| order[i * LANES..((i + 1) * LANES).min(order.len())].to_vec())
}

/// Lowers a program in `f64` and runs [`Executable::evaluate_last`] once.
///
/// # Errors
/// [`Cancelled`].
pub fn evaluate_last(
    program: &Program,
    symbols: &[SymbolInput<'_>],
    cancel: &dyn Cancel,
) -> Result<Vec<Vec<f64>>, Cancelled> {
    Executable::new(program, Precision::F64).evaluate_last(symbols, cancel)
}

/// Lowers a program in `f64` and runs [`Executable::evaluate_from`] once.
///
/// # Errors
/// [`Cancelled`].
pub fn evaluate_from(
    program: &Program,
    symbols: &[SymbolInput<'_>],
    from: &[usize],
    cancel: &dyn Cancel,
) -> Result<Values, Cancelled> {
    Executable::new(program, Precision::F64).evaluate_from(symbols, from, cancel)
}

/// Lowers a program in `f64` and evaluates every output at every visible bar of one symbol: `[output][bar]`.
///
/// # Errors
/// [`Cancelled`].
pub fn evaluate_all(
    program: &Program,
    symbol: &SymbolInput<'_>,
    cancel: &dyn Cancel,
) -> Result<Vec<Vec<f64>>, Cancelled> {
    let values = evaluate_from(program, std::slice::from_ref(symbol), &[0], cancel)?;
    Ok(values.nested().pop().unwrap_or_default())
}

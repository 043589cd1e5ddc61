//! What one stage of a plan is evaluated over, and the values of its pieces.

use std::collections::BTreeMap;
use std::sync::Arc;

use trawl_kernels::{Engine, Executable, Forgetting, Values};
use trawl_market::{AttributeTable, Calendar, SymbolTable, TimeMicros};
use trawl_plan::{Plan, Stage};
use trawl_wire::CrossTable;

use crate::axis::Axis;
use crate::checkpoints::Checkpoints;

/// The data over which one stage is evaluated.
pub(crate) struct StageRun<'a> {
    pub plan: &'a Plan,
    /// The lowered pieces of the stage.
    pub executables: &'a [Executable],
    pub engine: &'a Engine,
    /// Under what bars are kept on a device; `None` if they are not.
    pub source: Option<StageBars<'a>>,
    pub stage: &'a Stage,
    /// Index of the stage in the plan.
    pub number: usize,
    /// Shown for every axis of which bars were not read.
    pub forgetting: Option<&'a Forgetting>,
    /// States to resume from, and the place to save new ones.
    pub kept: Option<&'a Checkpoints>,
    /// The segment's symbols, then the references in the order of `references`.
    pub axes: &'a [Axis<'a>],
    /// How many of the axes are the segment's own.
    pub own: usize,
    /// Symbols of the other axes, ascending.
    pub references: &'a [String],
    pub labels: &'a SymbolTable,
    pub attributes: &'a AttributeTable,
    /// By which periods begin.
    pub calendar: Calendar,
    /// Whether base bars are of a day or longer.
    pub dated: bool,
    /// Tables of cross-sections, by index into the plan's.
    pub tables: BTreeMap<u16, &'a CrossTable>,
}

/// What bars are kept under on a device, besides their frame and symbol.
pub(crate) struct StageBars<'a> {
    /// Dataset, snapshot and way of adjusting.
    pub bars: &'a str,
    /// Bars of higher timeframes are those of the base bars until then.
    pub horizon: TimeMicros,
    /// By axis, how many events adjust its bars; empty where nothing does.
    pub events: Vec<usize>,
}

/// The rows of one axis that are passed to the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trim {
    /// The first row.
    pub given: usize,
    /// The first row in a limited history; rows before it are NA, and keep the blocks of sums aligned as in the whole
    /// history.
    pub there: usize,
}

impl Trim {
    /// For a limited history that begins at a row, before which an executable needs others.
    pub fn of(executable: &Executable, begin: usize) -> Self {
        let there = begin.saturating_sub(executable.reach());
        Self { given: executable.aligned_begin(there), there }
    }
}

/// Values of one piece for one axis, from row `from` on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Computed {
    pub from: usize,
    /// Shared by the axes that were computed together; for a reference, by all segments.
    values: Arc<Values>,
    /// The place of the axis among them.
    place: usize,
}

impl Computed {
    pub fn new(from: usize, values: &Arc<Values>, place: usize) -> Self {
        Self { from, values: Arc::clone(values), place }
    }

    /// Of an axis that was computed alone: `[output][row - from]`.
    pub fn alone(from: usize, outputs: Vec<Vec<f64>>) -> Self {
        Self::new(from, &Arc::new(outputs.into()), 0)
    }

    /// An output from row `from` on: empty if it stayed on a device, `None` if nothing was computed.
    pub fn series(&self, output: usize) -> Option<&[f64]> {
        self.values.get(self.place, output)
    }

    /// An output at a row; NaN where it was not computed.
    pub fn at(&self, output: usize, row: usize) -> f64 {
        let series = self.series(output);
        series.zip(row.checked_sub(self.from)).and_then(|(s, i)| s.get(i)).copied().unwrap_or(f64::NAN)
    }
}

//! One step of a scan for one segment: load the group's bars, run the stage, return its output.
//!
//! The result depends on (plan, snapshot, as-of, adjustment, precision, segment, step input) only. Nothing here knows
//! of attempts, caches or networks.

mod batched;
mod error;
mod rows;
mod step;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use trawl_kernels::stages::{EngineStage, StageSpan, Stages};
use trawl_kernels::{Cancel, Engine, Precision};
use trawl_market::{Adjustment, Dataset, MarketError, SymbolBars, TimeMicros, Timeframe, Vintage, higher_bars};
use trawl_plan::Plan;
use trawl_plan::frame::{BarSize, Frame};
use trawl_wire::{CrossTimes, CrossValues, SegmentOutput, SegmentResultV2, StepInputV1, SymbolRow};

use crate::axis::{Axis, Higher, Span};
use crate::checkpoints::Checkpoints;
use crate::executable::ExecutablePlan;
use step::StepRun;

pub use batched::{BatchEvent, Loaded};
pub use error::ExecuteError;
pub use step::reads_earlier_crosses;

/// Data shared by all steps and segments of a scan.
#[derive(Debug, Clone)]
pub struct ScanSource {
    /// The plan, lowered once for the precision of the scan.
    pub executable: ExecutablePlan,
    pub dataset: Dataset,
    /// Time of the as-of bar; later bars are not visible.
    pub as_of: TimeMicros,
    /// Adjustment as of a date, by default that of the scan.
    pub adjustment: Adjustment,
    /// The engine. Gives the same bits within one execution class.
    pub engine: Engine,
    /// States to resume from, if the scan is an update. They do not change values.
    pub checkpoints: Option<Arc<Checkpoints>>,
}

/// The kind of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    /// Returns the times at which its symbols read cross-sections.
    Times,
    /// Returns its symbols' values for the stage's cross-sections or, in the last stage, the rows of the answer.
    Values,
}

/// One step: a stage of the plan, and the kind of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanStep {
    /// Index into the plan's stages.
    pub stage: usize,
    pub kind: StepKind,
}

/// Bars of the symbols that the plan refers to, by symbol.
pub type References = BTreeMap<String, SymbolBars>;

impl ScanSource {
    /// The plan.
    pub fn plan(&self) -> &Plan {
        self.executable.plan()
    }

    /// Precision of the arithmetic.
    pub fn precision(&self) -> Precision {
        self.executable.precision()
    }

    /// Reads the columns of the plan for one segment's symbols, sorted by symbol.
    ///
    /// # Errors
    /// [`ExecuteError::Market`]; [`ExecuteError::Inconsistent`] if the shape is not the requested one.
    pub fn load_segment(&self, segment: u32) -> Result<Vec<SymbolBars>, ExecuteError> {
        let bars = self.dataset.load_group_adjusted(segment, &self.plan().columns, &self.adjustment)?;
        bars.iter().try_for_each(|symbol| self.check_shape(symbol))?;
        Ok(bars)
    }

    fn check_shape(&self, symbol: &SymbolBars) -> Result<(), ExecuteError> {
        let rows = symbol.times.len();
        if symbol.columns.len() != self.plan().columns.len() || symbol.columns.iter().any(|c| c.len() != rows) {
            let what = format!("columns of unequal length at symbol '{}'", symbol.symbol);
            return Err(ExecuteError::Inconsistent(what));
        }
        Ok(())
    }

    /// Reads the bars of every symbol that the plan refers to.
    ///
    /// # Errors
    /// [`ExecuteError::Reference`].
    pub fn load_references(&self) -> Result<References, ExecuteError> {
        let mut references = References::new();
        for symbol in self.plan().references() {
            let failed = |error| ExecuteError::Reference { symbol: symbol.to_owned(), error };
            let Some(entry) = self.dataset.manifest.symbol(symbol) else { continue };
            let group = self.dataset.load_group_adjusted(entry.group, &self.plan().columns, &self.adjustment);
            let found = group.map_err(failed)?.into_iter().find(|b| *b.symbol == *symbol);
            references.extend(found.map(|bars| (symbol.to_owned(), bars)));
        }
        Ok(references)
    }

    /// Loads and runs one step of one segment on the calling thread. Records its timing in `stages`.
    ///
    /// # Errors
    /// [`ExecuteError`].
    pub fn execute(
        &self,
        segment: u32,
        step: ScanStep,
        input: &StepInputV1,
        references: &References,
        cancel: &dyn Cancel,
        stages: &mut Stages,
    ) -> Result<SegmentResultV2, ExecuteError> {
        if cancel.cancelled() {
            return Err(ExecuteError::Cancelled);
        }
        let bars = stages.time(EngineStage::Load, 0, 0, || self.load_segment(segment))?;
        self.evaluate(segment, step, input, &bars, references, cancel, stages)
    }

    /// Runs one step over loaded bars. Records its timing in `stages`.
    ///
    /// # Errors
    /// [`ExecuteError::Cancelled`], [`ExecuteError::Inconsistent`], [`ExecuteError::Market`] for labels or calendar,
    /// [`ExecuteError::Device`].
    #[allow(clippy::too_many_arguments)]
    pub fn evaluate(
        &self,
        segment: u32,
        step: ScanStep,
        input: &StepInputV1,
        bars: &[SymbolBars],
        references: &References,
        cancel: &dyn Cancel,
        stages: &mut Stages,
    ) -> Result<SegmentResultV2, ExecuteError> {
        let times = [self.as_of];
        let output = self.run(step, input, &times, bars, references, cancel, stages)?;
        Ok(output.of(segment))
    }

    /// As [`Self::evaluate`], with the last stage's rows at each of `times` (ascending, at most the as-of).
    ///
    /// # Errors
    /// As [`Self::evaluate`].
    #[allow(clippy::too_many_arguments)]
    pub fn run(
        &self,
        step: ScanStep,
        input: &StepInputV1,
        times: &[TimeMicros],
        bars: &[SymbolBars],
        references: &References,
        cancel: &dyn Cancel,
        stages: &mut Stages,
    ) -> Result<StepOutput, ExecuteError> {
        let begun = Instant::now();
        let shared = StepRun::new(self, step, input, times, references)?;
        let axes = shared.axes(bars)?;
        self.run_along(&shared, &axes, bars.len(), begun, cancel, stages)
    }

    /// As [`Self::run`], each time adjusted as of itself: `vintages` cover the times. The values they read of the
    /// references' bars and of cross-sections must be the same at all of `times`; see [`reads_earlier_crosses`].
    ///
    /// # Errors
    /// As [`Self::evaluate`].
    #[allow(clippy::too_many_arguments)]
    pub fn run_vintages(
        &self,
        step: ScanStep,
        input: &StepInputV1,
        times: &[TimeMicros],
        vintages: &[Vintage],
        references: &References,
        cancel: &dyn Cancel,
        stages: &mut Stages,
    ) -> Result<StepOutput, ExecuteError> {
        let begun = Instant::now();
        let shared = StepRun::new(self, step, input, times, references)?;
        let axes = shared.axes_of_vintages(vintages)?;
        self.run_along(&shared, &axes, vintages.len(), begun, cancel, stages)
    }

    fn run_along(
        &self,
        shared: &StepRun<'_>,
        axes: &[Axis<'_>],
        own: usize,
        begun: Instant,
        cancel: &dyn Cancel,
        stages: &mut Stages,
    ) -> Result<StepOutput, ExecuteError> {
        let run = shared.stage_run(axes, own);
        let (needed, reads) = shared.needed(&run);
        if shared.kind == StepKind::Times {
            return Ok(StepRun::times(reads));
        }
        // Resampling and finding the needed rows count as loading.
        stages.record(StageSpan { stage: EngineStage::Load, part: 0, bytes: 0, started: begun, ended: Instant::now() });
        let computed = run.evaluate(&needed, cancel, stages)?;
        stages.time(EngineStage::Encode, 0, 0, || shared.said(&run, &computed))
    }

    /// Reads the vintages of one segment's symbols at the bars of a span, by symbol and time.
    ///
    /// # Errors
    /// As [`Self::load_segment`].
    pub fn load_vintages(&self, segment: u32, span: (TimeMicros, TimeMicros)) -> Result<Vec<Vintage>, ExecuteError> {
        let vintages = self.dataset.load_group_vintages(segment, &self.plan().columns, &self.adjustment, span)?;
        vintages.iter().try_for_each(|vintage| self.check_shape(&vintage.bars))?;
        Ok(vintages)
    }

    fn axis<'b>(&self, bars: &'b SymbolBars, span: Span) -> Result<Axis<'b>, MarketError> {
        let horizon = span.until;
        let visible = match bars.times.last() {
            // Most scans read the newest bar, for which one cache line suffices.
            Some(newest) if *newest <= horizon => bars.times.len(),
            _ => bars.times.partition_point(|t| *t <= horizon),
        };
        let mut higher = BTreeMap::new();
        let sizes = self.plan().frames.iter().filter_map(|frame: &Frame| match &frame.bars {
            BarSize::Base => None,
            BarSize::Higher { timeframe, .. } => Some(timeframe),
        });
        let manifest = &self.dataset.manifest;
        for timeframe in sizes {
            if higher.contains_key(timeframe) {
                continue;
            }
            let (base, wanted): (Timeframe, Timeframe) = (manifest.timeframe.parse()?, timeframe.parse()?);
            let built = higher_bars(&manifest.calendar(), base, wanted, &bars.times[..visible])?;
            let column = |(name, values): (&String, &Vec<f64>)| built.aggregate(name, &values[..visible]);
            let columns = self.plan().columns.iter().zip(&bars.columns).map(column).collect();
            higher.insert(timeframe.clone(), Higher { bars: built, columns });
        }
        let window = self.plan().history.map_or(0, |h| visible.saturating_sub(h.bars as usize));
        Ok(Axis { bars, visible, span, higher, window })
    }
}

/// The output of [`ScanSource::run`].
#[derive(Debug, Clone, PartialEq)]
pub enum StepOutput {
    /// Times at which the segment's symbols read cross-sections.
    Times(Vec<CrossTimes>),
    /// Its symbols' values for cross-sections.
    Values(Vec<CrossValues>),
    /// `[time][row]`: rows of all points, or of each symbol's best points, by point and symbol.
    Rows(Vec<Vec<SymbolRow>>),
}

impl StepOutput {
    /// Converts it to the result of a segment; rows must be of a single time.
    fn of(self, segment: u32) -> SegmentResultV2 {
        let output = match self {
            Self::Times(times) => SegmentOutput::Times(times),
            Self::Values(values) => SegmentOutput::Values(values),
            Self::Rows(mut rows) => SegmentOutput::Rows(rows.pop().unwrap_or_default()),
        };
        SegmentResultV2 { segment, output }
    }
}

#[cfg(test)]
mod tests;

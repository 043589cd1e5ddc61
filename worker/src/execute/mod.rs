//! One step of a scan for one segment: load the group's bars, run the stage, return its output.
//!
//! The result depends on (plan, snapshot, as-of, adjustment, precision, segment, step input) only. Nothing here knows
//! of attempts, caches or networks.

mod batched;
mod ends;
mod error;
mod held_on_device;
mod newest;
mod panel;
mod parts;
mod rows;
mod step;
mod whole_times;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use trawl_kernels::stages::{EngineStage, StageSpan, Stages};
use trawl_kernels::{Cancel, Engine, Forgetting, Precision};
use trawl_market::{Adjustment, Dataset, LoadedBars, MarketError, Series, TimeMicros, Vintage, higher_bars};
use trawl_plan::frame::{BarSize, Frame};
use trawl_plan::{Input, Plan};
use trawl_wire::{CrossTimes, CrossValues, RowTable, SegmentOutput, SegmentResult, SegmentResultV2, StepInputV1};

use crate::axis::{Axis, Higher, Span};
use crate::checkpoints::Checkpoints;
use crate::device_features::{DeviceFeatures, Keeping};
use crate::executable::ExecutablePlan;
use step::StepRun;

pub use batched::{BatchEvent, Loaded};
pub use error::ExecuteError;
pub use panel::SegmentPanel;
pub use step::reads_earlier_crosses;
pub use whole_times::ManifestTimes;

/// Data shared by all steps and segments of a scan.
#[derive(Debug, Clone)]
pub struct ScanSource {
    /// The plan, lowered once for the precision of the scan.
    pub executable: ExecutablePlan,
    /// The opened snapshot.
    pub dataset: Dataset,
    /// Time of the as-of bar; later bars are not visible.
    pub as_of: TimeMicros,
    /// Adjustment as of a date, by default that of the scan.
    pub adjustment: Adjustment,
    /// The engine. Gives the same bits within one execution class.
    pub engine: Engine,
    /// States to resume from, if the scan is an update. They do not change values.
    pub checkpoints: Option<Arc<Checkpoints>>,
    /// Whether panels have the values of all rows of the universe, and not those of matches alone.
    pub every_value: bool,
    /// Where the select columns of panels stay on a device; the engine's.
    pub features: Option<Arc<DeviceFeatures>>,
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
    /// What the step returns.
    pub kind: StepKind,
}

/// Bars of the symbols that the plan refers to, by symbol.
pub type References = BTreeMap<String, LoadedBars>;

impl ScanSource {
    /// The plan.
    pub fn plan(&self) -> &Plan {
        self.executable.plan()
    }

    /// How much older than the time at which it is read a bar of a frame may be. A period of higher bars holds the bars that a symbol
    /// has in it: one without any is not read late.
    fn max_age_of(&self, size: &BarSize) -> Option<i64> {
        self.plan().max_age.filter(|_| *size == BarSize::Base)
    }

    /// Precision of the arithmetic.
    pub fn precision(&self) -> Precision {
        self.executable.precision()
    }

    /// Reads the columns of the plan for one segment's symbols, sorted by symbol.
    ///
    /// # Errors
    /// [`ExecuteError::Market`]; [`ExecuteError::Inconsistent`] if the shape is not the requested one.
    pub fn load_segment(&self, segment: u32) -> Result<Vec<LoadedBars>, ExecuteError> {
        self.load_segment_newest(segment, None)
    }

    /// As [`Self::load_segment`], of each symbol only the `newest` bars, if that is given.
    ///
    /// # Errors
    /// As [`Self::load_segment`].
    pub fn load_segment_newest(&self, segment: u32, newest: Option<u64>) -> Result<Vec<LoadedBars>, ExecuteError> {
        let columns = &self.plan().columns;
        let bars = match newest {
            Some(newest) => self.dataset.load_group_newest(segment, columns, &self.adjustment, newest)?,
            None => self.dataset.load_group_adjusted(segment, columns, &self.adjustment)?,
        };
        bars.iter().try_for_each(|symbol| self.check_shape(symbol, self.plan().columns.len()))?;
        Ok(bars)
    }

    /// As [`Self::load_segment`], with what a step does not read left out: other columns are empty, older bars unread, times zeros.
    ///
    /// # Errors
    /// As [`Self::load_segment`].
    fn load_segment_for(
        &self,
        segment: u32,
        step: ScanStep,
        input: &StepInputV1,
        newest: Option<u64>,
    ) -> Result<Vec<LoadedBars>, ExecuteError> {
        let (read, names) = self.columns_read(step);
        let mut bars = match newest {
            Some(newest) => self.dataset.load_group_newest(segment, &names, &self.adjustment, newest)?,
            None if self.needs_last_times_alone(segment, step, input) => {
                self.dataset.load_group_untimed(segment, &names, &self.adjustment)?
            }
            None => self.dataset.load_group_adjusted(segment, &names, &self.adjustment)?,
        };
        bars.iter_mut().try_for_each(|symbol| self.spread(symbol, &read))?;
        Ok(bars)
    }

    /// As [`Self::load_segment_for`], all bars of the symbols at some places, ascending.
    fn load_part_for(&self, segment: u32, step: ScanStep, part: &[usize]) -> Result<Vec<LoadedBars>, ExecuteError> {
        let (read, names) = self.columns_read(step);
        let mut bars = self.dataset.load_group_part(segment, &names, &self.adjustment, part)?;
        bars.iter_mut().try_for_each(|symbol| self.spread(symbol, &read))?;
        Ok(bars)
    }

    /// What [`Self::execute`] reads of a segment: columns, and how many of the newest bars of each symbol; all if `None`.
    pub fn reads_of(&self, segment: u32, step: ScanStep, input: &StepInputV1) -> (Vec<String>, Option<u64>) {
        (self.columns_read(step).1, self.newest_bars_read(segment, step, input))
    }

    /// The plan's columns whose values a step reads: their indices, ascending, and their names.
    fn columns_read(&self, step: ScanStep) -> (Vec<usize>, Vec<String>) {
        let plan = self.plan();
        let stage = plan.stages().get(step.stage).filter(|_| step.kind == StepKind::Values);
        let inputs = || stage.into_iter().flat_map(|s| &s.pieces).flat_map(|piece| &piece.program.inputs);
        let reads = |name: &String| inputs().any(|input| matches!(input, Input::Column(read) if read == name));
        let read: Vec<usize> = (0..plan.columns.len()).filter(|at| reads(&plan.columns[*at])).collect();
        let names = read.iter().map(|at| plan.columns[*at].clone()).collect();
        (read, names)
    }

    /// Puts the columns that were read in their places among the plan's.
    fn spread(&self, bars: &mut LoadedBars, read: &[usize]) -> Result<(), ExecuteError> {
        self.check_shape(bars, read.len())?;
        let mut all = vec![Series::default(); self.plan().columns.len()];
        for (at, column) in read.iter().zip(std::mem::take(&mut bars.columns)) {
            all[*at] = column;
        }
        bars.columns = all;
        Ok(())
    }

    fn check_shape(&self, symbol: &LoadedBars, columns: usize) -> Result<(), ExecuteError> {
        let rows = symbol.times.len();
        if symbol.columns.len() != columns || symbol.columns.iter().any(|c| c.len() != rows) {
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
            if self.dataset.manifest.symbol(symbol).is_none() {
                continue;
            }
            let bars = self.dataset.load_symbol_adjusted(symbol, &self.plan().columns, &self.adjustment);
            references.insert(symbol.to_owned(), bars.map_err(failed)?);
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
    ) -> Result<SegmentResult, ExecuteError> {
        if cancel.cancelled() {
            return Err(ExecuteError::Cancelled);
        }
        let newest = self.newest_bars_read(segment, step, input);
        if newest.is_none()
            && let Some(parts) = self.parts_of(segment, step, parts::PART_BYTES)
        {
            return self.execute_parts((segment, parts), step, input, references, cancel, stages);
        }
        let bars = stages.time(EngineStage::Load, 0, 0, || self.load_segment_for(segment, step, input, newest))?;
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
        bars: &[LoadedBars],
        references: &References,
        cancel: &dyn Cancel,
        stages: &mut Stages,
    ) -> Result<SegmentResult, ExecuteError> {
        match self.forgetting(step).filter(|_| bars.iter().any(|bars| bars.unread > 0)) {
            Some(forgetting) => {
                self.run_over_ends((segment, forgetting), step, input, bars, references, cancel, stages)?.of(segment)
            }
            None => self.run_over(None, step, input, bars, references, cancel, stages)?.of(segment),
        }
    }

    /// Runs one step over loaded bars. With a `forgetting` that was shown for all of them, bars that were not read count for nothing.
    #[allow(clippy::too_many_arguments)]
    fn run_over(
        &self,
        forgetting: Option<&Forgetting>,
        step: ScanStep,
        input: &StepInputV1,
        bars: &[LoadedBars],
        references: &References,
        cancel: &dyn Cancel,
        stages: &mut Stages,
    ) -> Result<StepOutput, ExecuteError> {
        let (begun, times) = (Instant::now(), [self.as_of]);
        let shared = StepRun::new(self, step, input, &times, references)?.forgetting(forgetting);
        let axes = shared.axes(bars)?;
        self.run_along(&shared, &axes, bars.len(), begun, cancel, stages)
    }

    /// As [`Self::evaluate`], with the last stage's rows at each of `times` (ascending, at most the as-of), each time
    /// adjusted as of itself: `vintages` cover the times. The values they read of the references' bars and of
    /// cross-sections must be the same at all of `times`; see [`reads_earlier_crosses`].
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
        let shared = StepRun::new(self, step, input, times, references)?.into_panel();
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
        run.check_unread(&needed)?;
        if shared.kind == StepKind::Times {
            return Ok(StepRun::times(run.times_of(&reads)));
        }
        // Resampling and finding the needed rows count as loading.
        stages.record(StageSpan { stage: EngineStage::Load, part: 0, bytes: 0, started: begun, ended: Instant::now() });
        let Some(features) = self.features.as_ref().filter(|_| shared.is_panel()) else {
            let computed = run.evaluate(&needed, cancel, stages)?;
            return stages.time(EngineStage::Encode, 0, 0, || shared.output(&run, &computed));
        };
        let mut keeping = Keeping::new(&features.table, self.selected());
        let computed = run.evaluate_keeping(&needed, Some(&mut keeping), cancel, stages)?;
        stages.time(EngineStage::Encode, 0, 0, || {
            let output = shared.output(&run, &computed)?;
            if let StepOutput::Panel(panel) = &output {
                keeping
                    .put(&self.feature_rows(features, panel, &axes[..own], shared.row_times()))
                    .map_err(ExecuteError::Device)?;
            }
            Ok(output)
        })
    }

    /// Reads the vintages of a part of a segment's symbols (see [`Self::panel_parts`]) at the bars of a span, by symbol and time, with the
    /// columns that a step does not read left empty.
    ///
    /// # Errors
    /// As [`Self::load_segment`].
    pub fn load_vintages_for(
        &self,
        part: (u32, Range<usize>),
        span: (TimeMicros, TimeMicros),
        step: ScanStep,
    ) -> Result<Vec<Vintage>, ExecuteError> {
        let (read, names) = self.columns_read(step);
        let mut vintages = self.dataset.load_group_vintages(part, &names, &self.adjustment, span)?;
        vintages.iter_mut().try_for_each(|vintage| self.spread(&mut vintage.bars, &read))?;
        Ok(vintages)
    }

    /// `before` is the axis of the symbol before: symbols with the same times share their higher bars.
    fn axis<'b>(&self, bars: &'b LoadedBars, span: Span, before: Option<&Axis<'b>>) -> Result<Axis<'b>, MarketError> {
        let visible = visible_of(bars, span.until);
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
            let shared = before.filter(|before| before.visible == visible && before.bars.times.same_as(&bars.times));
            let built = match shared.and_then(|before| before.higher.get(timeframe)) {
                Some(shared) => Arc::clone(&shared.bars),
                None => {
                    let (calendar, times) = (manifest.calendar(), &bars.times[..visible]);
                    Arc::new(higher_bars(&calendar, manifest.timeframe, *timeframe, times)?)
                }
            };
            // A column that the step does not read is empty.
            let column = |(name, values): (&String, &Series<f64>)| {
                values.get(..visible).map_or_else(Vec::new, |values| built.aggregate(name, values))
            };
            let columns = self.plan().columns.iter().zip(&bars.columns).map(column).collect();
            higher.insert(*timeframe, Higher { bars: built, columns });
        }
        let window = self.plan().history.map_or(0, |h| visible.saturating_sub(h.bars as usize));
        Ok(Axis { bars, visible, span, higher, window, absent_max: 0 })
    }
}

/// Number of bars until a time.
fn visible_of(bars: &LoadedBars, horizon: TimeMicros) -> usize {
    match bars.times.last() {
        // Most scans read the newest bar, for which one cache line suffices.
        Some(newest) if *newest <= horizon => bars.times.len(),
        _ => bars.times.partition_point(|t| *t <= horizon),
    }
}

/// The output of a step for a segment.
#[derive(Debug, Clone, PartialEq)]
pub enum StepOutput {
    /// Times at which the segment's symbols read cross-sections.
    Times(Vec<CrossTimes>),
    /// Its symbols' values for cross-sections.
    Values(Vec<CrossValues>),
    /// Rows of all points, or of each symbol's best points, at one time.
    Rows(RowTable),
    /// The same at many times, by column.
    Panel(SegmentPanel),
}

impl StepOutput {
    /// Converts it to the result of a segment; fails for rows of many times.
    fn of(self, segment: u32) -> Result<SegmentResult, ExecuteError> {
        let output = match self {
            Self::Rows(rows) => {
                let columns = rows.into_columns(segment);
                return columns.map(SegmentResult::Rows).map_err(|e| ExecuteError::Inconsistent(e.to_string()));
            }
            Self::Times(times) => SegmentOutput::Times(times),
            Self::Values(values) => SegmentOutput::Values(values),
            Self::Panel(_) => {
                return Err(ExecuteError::Inconsistent("a result with the rows of many times".to_owned()));
            }
        };
        Ok(SegmentResult::Step(SegmentResultV2 { segment, output }))
    }
}

#[cfg(test)]
mod tests;

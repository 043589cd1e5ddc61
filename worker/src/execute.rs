//! One step of a scan for one segment: load the group's bars, run the stage, say what came of it.
//!
//! The result depends on (plan, snapshot, as-of, adjustment, precision, segment, step input) alone. Nothing here knows of attempts,
//! caches or networks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use trawl_kernels::cuda::Fault;
use trawl_kernels::stages::{Stage as Work, StageSpan, Stages};
use trawl_kernels::{Cancel, Engine, EngineError, Precision};
use trawl_market::{Adjustment, Dataset, MarketError, MarketErrorKind, SymbolBars, TimeMicros, Timeframe, higher_bars};
use trawl_plan::frame::{BarSize, Frame};
use trawl_plan::{Plan, PointValues};
use trawl_protocol::error::text_of;
use trawl_protocol::limits::bounded_reason;
use trawl_protocol::{
    CrossTimes, CrossValues, ErrorKind, Failure, SegmentOutput, SegmentResultV2, StepInputV1, SymbolRow,
};

use crate::axis::{Axis, Higher, first_from, row_at};
use crate::checkpoints::Checkpoints;
use crate::evaluate::{Computed, StageRun};
use crate::status;

/// Why a segment has no result.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// The group's bars could not be read.
    #[error(transparent)]
    Market(#[from] MarketError),
    /// The bars of a reference could not be read.
    #[error("reference {symbol}: {error}")]
    Reference { symbol: String, error: MarketError },
    /// Nobody wants the result any more.
    #[error("cancelled")]
    Cancelled,
    /// The device did not give the values; another worker's may.
    #[error("{0}")]
    Device(Fault),
    /// The bars are not what the manifest or the plan says.
    #[error("{0}")]
    Inconsistent(String),
}

impl ExecuteError {
    /// Whether another attempt may succeed.
    ///
    /// Damaged or missing bars are a property of the snapshot, the same everywhere.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Market(error) | Self::Reference { error, .. } if error.kind() == MarketErrorKind::Retryable => {
                ErrorKind::Retryable
            }
            Self::Device(Fault::OutOfMemory { .. }) => ErrorKind::OutOfMemory,
            Self::Device(fault) if fault.is_retryable() => ErrorKind::Retryable,
            Self::Market(_) | Self::Reference { .. } | Self::Inconsistent(_) | Self::Device(_) => ErrorKind::Permanent,
            Self::Cancelled => ErrorKind::Cancelled,
        }
    }
}

impl From<EngineError> for ExecuteError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Cancelled(_) => Self::Cancelled,
            EngineError::Device(fault) => Self::Device(fault),
        }
    }
}

impl From<ExecuteError> for Failure {
    fn from(error: ExecuteError) -> Self {
        Self::new(error.kind(), bounded_reason(text_of(&error)))
    }
}

/// What all steps and segments of a scan share.
#[derive(Debug, Clone)]
pub struct ScanSource {
    pub plan: Arc<Plan>,
    pub dataset: Dataset,
    /// Time of the bar that is looked at; nothing later is seen.
    pub as_of: TimeMicros,
    /// As of a date, with the scan's own filled in.
    pub adjustment: Adjustment,
    /// Of the arithmetic.
    pub precision: Precision,
    /// What computes. Of the same bits within one execution class.
    pub engine: Engine,
    /// States that symbols go on from, where the scan is an update. They change no value.
    pub checkpoints: Option<Arc<Checkpoints>>,
}

/// What a step of a scan does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    /// Says at which times its symbols read cross-sections.
    Times,
    /// Gives its symbols' values for the stage's cross-sections; of the last stage the answer's rows.
    Values,
}

/// One step: a stage of the plan, and what is done with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Index into the plan's stages.
    pub stage: usize,
    pub kind: StepKind,
}

/// Bars of the symbols that the plan refers to, by symbol.
pub type References = BTreeMap<String, SymbolBars>;

impl ScanSource {
    /// Reads the columns of the plan for one segment's symbols, sorted by symbol.
    ///
    /// # Errors
    /// [`ExecuteError::Market`]; [`ExecuteError::Inconsistent`] when the shape is not what was asked for.
    pub fn load_segment(&self, segment: u32) -> Result<Vec<SymbolBars>, ExecuteError> {
        let bars = self.dataset.load_group_adjusted(segment, &self.plan.columns, &self.adjustment)?;
        for symbol in &bars {
            let rows = symbol.times.len();
            if symbol.columns.len() != self.plan.columns.len() || symbol.columns.iter().any(|c| c.len() != rows) {
                let what = format!("columns of unequal length at symbol '{}'", symbol.symbol);
                return Err(ExecuteError::Inconsistent(what));
            }
        }
        Ok(bars)
    }

    /// Reads the bars of every symbol that the plan refers to.
    ///
    /// # Errors
    /// [`ExecuteError::Reference`].
    pub fn load_references(&self) -> Result<References, ExecuteError> {
        let mut references = References::new();
        for symbol in self.plan.references() {
            let failed = |error| ExecuteError::Reference { symbol: symbol.to_owned(), error };
            let Some(entry) = self.dataset.manifest.symbol(symbol) else { continue };
            let group = self.dataset.load_group_adjusted(entry.group, &self.plan.columns, &self.adjustment);
            let found = group.map_err(failed)?.into_iter().find(|b| *b.symbol == *symbol);
            references.extend(found.map(|bars| (symbol.to_owned(), bars)));
        }
        Ok(references)
    }

    /// Loads and runs one step of one segment on the calling thread. Where its time went is recorded in `stages`.
    ///
    /// # Errors
    /// [`ExecuteError`].
    pub fn execute(
        &self,
        segment: u32,
        step: Step,
        input: &StepInputV1,
        references: &References,
        cancel: &dyn Cancel,
        stages: &mut Stages,
    ) -> Result<SegmentResultV2, ExecuteError> {
        if cancel.cancelled() {
            return Err(ExecuteError::Cancelled);
        }
        let bars = stages.time(Work::Load, 0, 0, || self.load_segment(segment))?;
        self.evaluate(segment, step, input, &bars, references, cancel, stages)
    }

    /// Runs one step over loaded bars. Where its time went is recorded in `stages`.
    ///
    /// # Errors
    /// [`ExecuteError::Cancelled`], [`ExecuteError::Inconsistent`], [`ExecuteError::Market`] for labels or calendar,
    /// [`ExecuteError::Device`].
    #[allow(clippy::too_many_arguments)]
    pub fn evaluate(
        &self,
        segment: u32,
        step: Step,
        input: &StepInputV1,
        bars: &[SymbolBars],
        references: &References,
        cancel: &dyn Cancel,
        stages: &mut Stages,
    ) -> Result<SegmentResultV2, ExecuteError> {
        let times = [self.as_of];
        let output = self.run(step, input, &times, bars, references, cancel, stages)?;
        let output = match output {
            StepOutput::Times(times) => SegmentOutput::Times(times),
            StepOutput::Values(values) => SegmentOutput::Values(values),
            StepOutput::Rows(mut rows) => SegmentOutput::Rows(rows.pop().unwrap_or_default()),
        };
        Ok(SegmentResultV2 { segment, output })
    }

    /// As [`Self::evaluate`], with the last stage's rows at each of `times` (ascending, at most the as-of).
    ///
    /// # Errors
    /// As [`Self::evaluate`].
    #[allow(clippy::too_many_arguments)]
    pub fn run(
        &self,
        step: Step,
        input: &StepInputV1,
        times: &[TimeMicros],
        bars: &[SymbolBars],
        references: &References,
        cancel: &dyn Cancel,
        stages: &mut Stages,
    ) -> Result<StepOutput, ExecuteError> {
        let begun = Instant::now();
        let stage = self
            .plan
            .stages()
            .get(step.stage)
            .ok_or_else(|| ExecuteError::Inconsistent(format!("the plan has no stage {}", step.stage)))?;
        let last = step.stage + 1 == self.plan.stages().len();
        let horizon = times.last().copied().unwrap_or(self.as_of);
        let labels = self.dataset.symbol_table()?;
        let names: Vec<String> = references.keys().cloned().collect();
        let subjects = bars.iter().chain(references.values());
        let axes = subjects.map(|bars| self.axis(bars, horizon)).collect::<Result<Vec<_>, _>>()?;
        let manifest = &self.dataset.manifest;
        let calendar = manifest.calendar();
        let dated = manifest.timeframe.parse().is_ok_and(Timeframe::is_dated);
        // What the bars hang on, beside their frame.
        let source = format!("{}@{} {:?} {horizon}", manifest.name, manifest.snapshot, self.adjustment);
        let run = StageRun {
            plan: &self.plan,
            precision: self.precision,
            engine: &self.engine,
            bars: &source,
            stage,
            number: step.stage,
            kept: self.checkpoints.as_deref(),
            axes: &axes,
            own: bars.len(),
            references: &names,
            labels: &labels,
            calendar,
            dated,
            tables: input.tables.iter().map(|table| (table.cross, table)).collect(),
        };
        let wanted: BTreeMap<u16, &[TimeMicros]> = input.wanted.iter().map(|w| (w.cross, w.times.as_slice())).collect();
        let mut needed = run.nothing_needed();
        if last {
            let piece = stage.pieces.len() - 1;
            for (a, axis) in axes[..bars.len()].iter().enumerate() {
                let first = times.first().copied().unwrap_or(horizon);
                needed[piece][a] = first_from(axis.base_times(), first);
            }
        }
        for (cross, piece, _) in &stage.crosses {
            let Some(first) = wanted.get(cross).and_then(|times| times.first()) else { continue };
            let size = &self.plan.frames[stage.pieces[*piece].frame.index()].bars;
            for (a, axis) in axes[..bars.len()].iter().enumerate() {
                let row = first_from(axis.times(size), *first);
                needed[*piece][a] = needed[*piece][a].min(row);
            }
        }
        let reads = run.demand(&mut needed);
        if step.kind == StepKind::Times {
            let times = |(cross, times): (u16, std::collections::BTreeSet<TimeMicros>)| CrossTimes {
                cross,
                times: times.into_iter().collect(),
            };
            return Ok(StepOutput::Times(reads.into_iter().map(times).collect()));
        }
        // Higher bars and the rows that are needed belong to what is computed on.
        stages.record(StageSpan { stage: Work::Load, part: 0, bytes: 0, started: begun, ended: Instant::now() });
        let computed = run.evaluate(&needed, cancel, stages)?;
        if !last {
            let values = stages.time(Work::Encode, 0, 0, || self.values(&run, &wanted, &computed));
            return Ok(StepOutput::Values(values));
        }
        let outputs = computed.last().ok_or_else(|| ExecuteError::Inconsistent("a stage without pieces".to_owned()))?;
        let rows = stages.time(Work::Encode, 0, 0, || {
            times.iter().map(|time| self.rows(&axes, bars.len(), &names, outputs, *time)).collect()
        });
        Ok(StepOutput::Rows(rows))
    }

    fn axis<'b>(&self, bars: &'b SymbolBars, horizon: TimeMicros) -> Result<Axis<'b>, MarketError> {
        let visible = match bars.times.last() {
            // Most scans look at the newest bar: its line of memory is enough.
            Some(newest) if *newest <= horizon => bars.times.len(),
            _ => bars.times.partition_point(|t| *t <= horizon),
        };
        let mut higher = BTreeMap::new();
        let sizes = self.plan.frames.iter().filter_map(|frame: &Frame| match &frame.bars {
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
            let columns = self.plan.columns.iter().zip(&bars.columns).map(column).collect();
            higher.insert(timeframe.clone(), Higher { bars: built, columns });
        }
        let window = self.plan.history.map_or(0, |h| visible.saturating_sub(h.bars as usize));
        Ok(Axis { bars, visible, higher, window })
    }

    fn values(
        &self,
        run: &StageRun<'_>,
        wanted: &BTreeMap<u16, &[TimeMicros]>,
        computed: &[Vec<Computed>],
    ) -> Vec<CrossValues> {
        let mut all = Vec::with_capacity(run.stage.crosses.len());
        for (cross, piece, output) in &run.stage.crosses {
            let times = wanted.get(cross).copied().unwrap_or(&[]);
            let size = &self.plan.frames[run.stage.pieces[*piece].frame.index()].bars;
            let mut values = Vec::with_capacity(times.len() * run.own);
            for (a, axis) in run.axes[..run.own].iter().enumerate() {
                let rows = axis.times(size);
                values.extend(times.iter().map(|time| {
                    let row = row_at(rows, *time);
                    let value = row.map_or(f64::NAN, |row| computed[*piece][a].at(*output, row));
                    // An infinity is no value: it has no place among numbers.
                    if value.is_finite() { value } else { f64::NAN }
                }));
            }
            all.push(CrossValues { cross: *cross, times: times.to_vec(), values });
        }
        all
    }

    /// The rows of all points, or of each symbol's best, at one time, by point and symbol.
    fn rows(
        &self,
        axes: &[Axis<'_>],
        own: usize,
        references: &[String],
        computed: &[Computed],
        time: TimeMicros,
    ) -> Vec<SymbolRow> {
        let outputs: Vec<trawl_plan::graph::NodeId> = self.plan.outputs().collect();
        let provisional = self.dataset.is_forming(time);
        let missing = || {
            let absent = |axis: &&Axis<'_>| row_at(axis.base_times(), time).is_none();
            axes[own..].iter().zip(references).find(|(axis, _)| absent(axis)).map(|(_, name)| name.as_str())
        };
        let look_backs = self.plan.look_backs();
        let points = &self.plan.points;
        let needed: Vec<usize> =
            points.iter().map(|point| point.condition.map_or(0, |id| look_backs[id.index()]) + 1).collect();
        let mut rows =
            Vec::with_capacity(own * self.plan.best.map_or(points.len(), |best| best.keep.min(points.len())));
        for (axis, computed) in axes[..own].iter().zip(computed) {
            let mut keep = |point: usize, mut made: SymbolRow, provisional: bool| {
                made.point = u32::try_from(point).unwrap_or(u32::MAX);
                made.symbol = axis.bars.symbol.to_string();
                made.provisional = provisional;
                rows.push(made);
            };
            let Some(row) = row_at(axis.base_times(), time) else {
                let stale = status::stale(axis.base_times(), &axis.bars.times, time);
                // Without values no point is better than another.
                let kept = if self.plan.best.is_some() { 1 } else { points.len() };
                (0..kept).for_each(|point| keep(point, stale.clone(), false));
                continue;
            };
            let values: Vec<f64> = (0..outputs.len()).map(|output| computed.at(output, row)).collect();
            let mut values = values.iter();
            let mut given: Vec<Option<PointValues>> =
                points.iter().map(|point| Some(point.values(&mut values))).collect();
            let kept: Vec<usize> = match self.plan.best {
                None => (0..points.len()).collect(),
                Some(best) => {
                    let compared = given
                        .iter()
                        .flatten()
                        .map(|point| (point.universe == 1.0, point.select.last().copied().unwrap_or(f64::NAN)));
                    best.best(&compared.collect::<Vec<_>>())
                }
            };
            for point in kept {
                if let Some(values) = given[point].take() {
                    keep(point, status::of(values, row + 1, needed[point], &missing), provisional);
                }
            }
        }
        rows.sort_by(|a, b| (a.point, &a.symbol).cmp(&(b.point, &b.symbol)));
        rows
    }
}

/// What [`ScanSource::run`] gives.
#[derive(Debug, Clone, PartialEq)]
pub enum StepOutput {
    /// Times at which the segment's symbols read cross-sections.
    Times(Vec<CrossTimes>),
    /// What its symbols give to cross-sections.
    Values(Vec<CrossValues>),
    /// For each time the rows of all points, or of each symbol's best, by point and symbol.
    Rows(Vec<Vec<SymbolRow>>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use trawl_kernels::NoCancel;
    use trawl_market::{MemoryMarket, memory_dataset};
    use trawl_plan::{ScanDocument, Schema, compile_scan};
    use trawl_protocol::Status;

    const DAY: TimeMicros = 86_400_000_000;

    fn plan(universe: Option<&str>, condition: &str, rank: Option<&str>) -> Plan {
        let document = ScanDocument {
            universe: universe.map(str::to_owned),
            condition: condition.to_owned(),
            rank: rank.map(str::to_owned),
            ..ScanDocument::default()
        };
        let schema = Schema::of_columns(vec!["close".to_owned()]);
        compile_scan(&document, &schema).unwrap()
    }

    fn bars(symbol: &str, days: &[i64], close: &[f64]) -> SymbolBars {
        SymbolBars {
            symbol: Arc::from(symbol),
            times: days.iter().map(|d| d * DAY).collect(),
            columns: vec![close.to_vec()],
        }
    }

    /// The plan over a dataset that holds nothing of these bars: they are given.
    fn source(plan: &Plan, as_of: TimeMicros) -> ScanSource {
        let market = MemoryMarket {
            name: "m".to_owned(),
            timeframe: "1d".to_owned(),
            calendar: "weekdays".to_owned(),
            columns: vec!["close".to_owned()],
            bars: vec![bars("A", &[1_000], &[1.0])],
            ..MemoryMarket::default()
        };
        let dataset = memory_dataset(market).unwrap();
        ScanSource {
            plan: Arc::new(plan.clone()),
            dataset,
            as_of,
            adjustment: Adjustment::NONE,
            precision: Precision::F64,
            engine: Engine::Cpu,
            checkpoints: None,
        }
    }

    fn try_run(
        plan: &Plan,
        bars: &[SymbolBars],
        as_of: TimeMicros,
        cancel: &dyn Cancel,
    ) -> Result<Vec<SymbolRow>, ExecuteError> {
        let step = Step { stage: 0, kind: StepKind::Values };
        let result = source(plan, as_of).evaluate(
            3,
            step,
            &StepInputV1::default(),
            bars,
            &References::new(),
            cancel,
            &mut Stages::default(),
        )?;
        assert_eq!(result.segment, 3);
        match result.output {
            SegmentOutput::Rows(rows) => Ok(rows),
            other => panic!("{other:?}"),
        }
    }

    fn run(plan: &Plan, bars: &[SymbolBars], as_of_day: i64) -> Vec<SymbolRow> {
        try_run(plan, bars, as_of_day * DAY, &NoCancel).unwrap()
    }

    #[test]
    fn every_symbol_has_the_first_status_that_applies_and_a_reason() {
        let plan = plan(Some("close > 0"), "sma(close, 2) > 5", Some("close"));
        let negative_nan = f64::from_bits(f64::NAN.to_bits() | 1 << 63);
        let group = [
            bars("AHEAD", &[4], &[9.0]),
            bars("EMPTY", &[], &[]),
            bars("GAP", &[1, 4], &[9.0, 9.0]),
            bars("GONE", &[0, 1], &[9.0, 9.0]),
            bars("HIGH", &[1, 3], &[9.0, 9.0]),
            bars("HOLE", &[1, 2, 3], &[9.0, negative_nan, 9.0]),
            bars("LOW", &[1, 3], &[1.0, 1.0]),
            bars("MINUS", &[1, 3], &[9.0, -9.0]),
            bars("NA", &[1, 3], &[9.0, f64::NAN]),
            bars("SHORT", &[3], &[9.0]),
        ];
        let rows = run(&plan, &group, 3);
        let seen: Vec<(&str, Status, &str)> =
            rows.iter().map(|r| (r.symbol.as_str(), r.status, r.reason.as_str())).collect();
        assert_eq!(
            seen,
            [
                ("AHEAD", Status::Stale, "first bar is 1970-01-05, after the as-of"),
                ("EMPTY", Status::Stale, "no bars"),
                ("GAP", Status::Stale, "no bar at the as-of time 1970-01-04; the one before is 1970-01-02"),
                ("GONE", Status::Stale, "no bar since 1970-01-02"),
                ("HIGH", Status::Matched, ""),
                ("HOLE", Status::Unknown, "the condition is NA at the as-of bar"),
                ("LOW", Status::NotMatched, ""),
                ("MINUS", Status::Outside, "universe is false"),
                ("NA", Status::Outside, "universe is unknown (NA)"),
                ("SHORT", Status::Unknown, "too short: 1 bar, 2 needed"),
            ]
        );
        let filled: Vec<&str> = rows.iter().filter(|r| !r.values.is_empty()).map(|r| r.symbol.as_str()).collect();
        assert_eq!(filled, ["HIGH"]);
        assert_eq!((rows[4].rank.as_slice(), rows[4].values.as_slice()), (&[9.0][..], &[9.0][..]));
    }

    #[test]
    fn bars_after_the_as_of_change_nothing() {
        let plan = plan(None, "close > 5", None);
        let short = [bars("A", &[1, 2], &[1.0, 9.0])];
        let long = [bars("A", &[1, 2, 3], &[1.0, 9.0, -1.0])];
        assert_eq!(run(&plan, &short, 2), run(&plan, &long, 2));
    }

    #[test]
    fn every_na_in_a_result_has_the_same_bits() {
        let odd_nan = f64::from_bits(f64::NAN.to_bits() | 1 << 63 | 5);
        let document = ScanDocument {
            condition: "close > 5".to_owned(),
            rank: Some("volume".to_owned()),
            select: vec!["volume".to_owned()],
            ..ScanDocument::default()
        };
        let schema = Schema::of_columns(vec!["close".to_owned(), "volume".to_owned()]);
        let plan = compile_scan(&document, &schema).unwrap();
        let column = |name: &String| if name == "close" { vec![9.0] } else { vec![odd_nan] };
        let columns = plan.columns.iter().map(column).collect();
        let group = [SymbolBars { symbol: Arc::from("A"), times: vec![DAY], columns }];
        let rows = run(&plan, &group, 1);
        assert_eq!(rows[0].status, Status::Matched);
        let bits: Vec<u64> = rows[0].rank.iter().chain(&rows[0].values).map(|v| v.to_bits()).collect();
        assert_eq!(bits, [f64::NAN.to_bits(); 2]);
        // The engine of today makes no other NaN; what enters an answer does not depend on that.
        assert_eq!(status::canonical(vec![odd_nan, 1.0])[0].to_bits(), f64::NAN.to_bits());
    }

    #[test]
    fn a_cancelled_run_gives_nothing() {
        struct Always;
        impl Cancel for Always {
            fn cancelled(&self) -> bool {
                true
            }
        }
        let plan = plan(None, "close > 5", None);
        let error = try_run(&plan, &[bars("A", &[1], &[1.0])], DAY, &Always).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
    }
}

//! What all segments of one step share, and the way of one segment through it apart from the computing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use trawl_market::{Calendar, SymbolBars, SymbolTable, TimeMicros, Timeframe};
use trawl_plan::Stage;
use trawl_protocol::{CrossTable, CrossTimes, StepInputV1};

use super::{ExecuteError, References, ScanSource, Step, StepOutput};
use crate::axis::{Axis, first_from};
use crate::evaluate::{Computed, Needed, StageRun};

/// A step of a scan, at its times and with its references.
pub(super) struct StepRun<'a> {
    source: &'a ScanSource,
    pub stage: &'a Stage,
    number: usize,
    last: bool,
    /// At which rows are wanted, and the last of them.
    times: &'a [TimeMicros],
    horizon: TimeMicros,
    labels: Arc<SymbolTable>,
    references: &'a References,
    /// Symbols of the references, ascending.
    names: Vec<String>,
    /// What bars hang on beside their frame and their symbol.
    bars: String,
    calendar: Calendar,
    dated: bool,
    tables: BTreeMap<u16, &'a CrossTable>,
    wanted: BTreeMap<u16, &'a [TimeMicros]>,
}

impl<'a> StepRun<'a> {
    pub fn new(
        source: &'a ScanSource,
        step: Step,
        input: &'a StepInputV1,
        times: &'a [TimeMicros],
        references: &'a References,
    ) -> Result<Self, ExecuteError> {
        let stages = source.plan.stages();
        let unknown = || ExecuteError::Inconsistent(format!("the plan has no stage {}", step.stage));
        let manifest = &source.dataset.manifest;
        let horizon = times.last().copied().unwrap_or(source.as_of);
        Ok(Self {
            source,
            stage: stages.get(step.stage).ok_or_else(unknown)?,
            number: step.stage,
            last: step.stage + 1 == stages.len(),
            times,
            horizon,
            labels: source.dataset.symbol_table()?,
            references,
            names: references.keys().cloned().collect(),
            bars: format!("{}@{} {:?} {horizon}", manifest.name, manifest.snapshot, source.adjustment),
            calendar: manifest.calendar(),
            dated: manifest.timeframe.parse().is_ok_and(Timeframe::is_dated),
            tables: input.tables.iter().map(|table| (table.cross, table)).collect(),
            wanted: input.wanted.iter().map(|w| (w.cross, w.times.as_slice())).collect(),
        })
    }

    /// The axes of a segment's symbols, then those of the references.
    pub fn axes<'b>(&'b self, bars: &'b [SymbolBars]) -> Result<Vec<Axis<'b>>, ExecuteError> {
        let subjects = bars.iter().chain(self.references.values());
        Ok(subjects.map(|bars| self.source.axis(bars, self.horizon)).collect::<Result<_, _>>()?)
    }

    /// The stage over a segment's axes, `own` of which are its symbols'.
    pub fn stage_run<'b>(&'b self, axes: &'b [Axis<'b>], own: usize) -> StageRun<'b> {
        StageRun {
            plan: &self.source.plan,
            precision: self.source.precision,
            engine: &self.source.engine,
            bars: &self.bars,
            stage: self.stage,
            number: self.number,
            kept: self.source.checkpoints.as_deref(),
            axes,
            own,
            references: &self.names,
            labels: &self.labels,
            calendar: self.calendar,
            dated: self.dated,
            tables: self.tables.clone(),
        }
    }

    /// The rows that are needed of every piece, and the times at which cross-sections are read.
    pub fn needed(&self, run: &StageRun<'_>) -> (Needed, BTreeMap<u16, BTreeSet<TimeMicros>>) {
        let own = &run.axes[..run.own];
        let mut needed = run.nothing_needed();
        if let (true, Some(piece)) = (self.last, needed.last_mut()) {
            let first = self.times.first().copied().unwrap_or(self.horizon);
            for (needed, axis) in piece.iter_mut().zip(own) {
                *needed = first_from(axis.base_times(), first);
            }
        }
        for (cross, piece, _) in &self.stage.crosses {
            let Some(first) = self.wanted.get(cross).and_then(|times| times.first()) else { continue };
            let size = &self.source.plan.frames[self.stage.pieces[*piece].frame.index()].bars;
            for (needed, axis) in needed[*piece].iter_mut().zip(own) {
                *needed = (*needed).min(first_from(axis.times(size), *first));
            }
        }
        let reads = run.demand(&mut needed);
        (needed, reads)
    }

    /// What a step that asks for times gives.
    pub fn times(reads: BTreeMap<u16, BTreeSet<TimeMicros>>) -> StepOutput {
        let times =
            |(cross, times): (u16, BTreeSet<TimeMicros>)| CrossTimes { cross, times: times.into_iter().collect() };
        StepOutput::Times(reads.into_iter().map(times).collect())
    }

    /// What is said of values: rows, of the last stage, or what the symbols give to cross-sections.
    pub fn said(&self, run: &StageRun<'_>, computed: &[Vec<Computed>]) -> Result<StepOutput, ExecuteError> {
        if !self.last {
            return Ok(StepOutput::Values(self.source.values(run, &self.wanted, computed)));
        }
        let outputs = computed.last().ok_or_else(|| ExecuteError::Inconsistent("a stage without pieces".to_owned()))?;
        let rows = |time: &TimeMicros| self.source.rows(run.axes, run.own, &self.names, outputs, *time);
        Ok(StepOutput::Rows(self.times.iter().map(rows).collect()))
    }
}

//! Data shared by all segments of one step, and the parts of a segment's run other than computing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use trawl_kernels::{Engine, Forgetting};
use trawl_market::{AttributeTable, Calendar, LoadedBars, SymbolTable, TimeMicros, Vintage};
use trawl_plan::frame::{BarSize, Frame, Read};
use trawl_plan::{Input, Stage};
use trawl_wire::{CrossTable, CrossTimes, StepInputV1};

use super::{ExecuteError, References, ScanSource, ScanStep, StepKind, StepOutput};
use crate::axis::{Axis, Span};
use crate::evaluate::{CrossRead, Needed};
use crate::executable::ExecutablePlan;
use crate::piece::kept_under;
use crate::stage_run::{Computed, StageBars, StageRun};

/// A step of a scan, with its times and references.
pub(super) struct StepRun<'a> {
    source: &'a ScanSource,
    pub stage: &'a Stage,
    pub kind: StepKind,
    number: usize,
    last: bool,
    /// Whether the rows of all times are wanted, by column.
    panel: bool,
    /// Shown for every symbol of which bars were not read.
    forgetting: Option<&'a Forgetting>,
    /// Times at which rows are wanted; `horizon` is the last of them.
    times: &'a [TimeMicros],
    horizon: TimeMicros,
    labels: Arc<SymbolTable>,
    attributes: Arc<AttributeTable>,
    references: &'a References,
    /// Symbols of the references, ascending.
    names: Vec<String>,
    /// What bars depend on besides their frame and symbol; empty if they are not kept on a device.
    bars: String,
    calendar: Calendar,
    dated: bool,
    tables: BTreeMap<u16, &'a CrossTable>,
    wanted: BTreeMap<u16, &'a [TimeMicros]>,
}

impl<'a> StepRun<'a> {
    pub fn new(
        source: &'a ScanSource,
        step: ScanStep,
        input: &'a StepInputV1,
        times: &'a [TimeMicros],
        references: &'a References,
    ) -> Result<Self, ExecuteError> {
        let stages = source.plan().stages();
        let unknown = || ExecuteError::Inconsistent(format!("the plan has no stage {}", step.stage));
        let manifest = &source.dataset.manifest;
        let horizon = times.last().copied().unwrap_or(source.as_of);
        Ok(Self {
            source,
            stage: stages.get(step.stage).ok_or_else(unknown)?,
            kind: step.kind,
            number: step.stage,
            last: step.stage + 1 == stages.len(),
            panel: false,
            forgetting: None,
            times,
            horizon,
            labels: source.dataset.labels()?,
            attributes: source.dataset.attributes()?,
            references,
            names: references.keys().cloned().collect(),
            bars: match source.engine {
                Engine::Cpu => String::new(),
                _ => format!("{}@{} {:?}", manifest.name, manifest.snapshot, source.adjustment.mode),
            },
            calendar: manifest.calendar(),
            dated: manifest.is_dated(),
            tables: input.tables.iter().map(|table| (table.cross, table)).collect(),
            wanted: input.wanted.iter().map(|w| (w.cross, w.times.as_slice())).collect(),
        })
    }

    /// Under what the base bars of a frame are kept on devices.
    pub fn source_of(&self, frame: &Frame) -> Arc<str> {
        kept_under(&self.bars, frame, self.horizon)
    }

    /// The rows of the last stage at every one of the times, by column.
    pub fn into_panel(self) -> Self {
        // Bars that are adjusted as of several times are not kept on a device by name and length.
        Self { panel: true, bars: String::new(), ..self }
    }

    /// The same over the ends of histories, for which that was shown.
    pub fn forgetting(self, forgetting: Option<&'a Forgetting>) -> Self {
        Self { forgetting, ..self }
    }

    /// Whether its output is the rows of many times.
    pub fn is_panel(&self) -> bool {
        self.panel && self.last && self.kind == StepKind::Values
    }

    /// Times at which rows are wanted.
    pub fn row_times(&self) -> &'a [TimeMicros] {
        self.times
    }

    /// The axes of a segment's symbols, then those of the references.
    pub fn axes<'b>(&'b self, bars: &'b [LoadedBars]) -> Result<Vec<Axis<'b>>, ExecuteError> {
        self.axes_along(bars.iter().map(|bars| (bars, self.whole())))
    }

    /// The axes of a segment's vintages, then those of the references.
    pub fn axes_of_vintages<'b>(&'b self, vintages: &'b [Vintage]) -> Result<Vec<Axis<'b>>, ExecuteError> {
        // Bars before the first as-of are read as known at the first as-of.
        let first = self.times.first().copied().unwrap_or(self.horizon);
        let span = |v: &Vintage| Span {
            from: if v.from <= first { TimeMicros::MIN } else { v.from },
            until: v.until.min(self.horizon),
        };
        self.axes_along(vintages.iter().map(|vintage| (&vintage.bars, span(vintage))))
    }

    fn axes_along<'b>(
        &'b self,
        own: impl Iterator<Item = (&'b LoadedBars, Span)>,
    ) -> Result<Vec<Axis<'b>>, ExecuteError> {
        let references = self.references.values().map(|bars| (bars, self.whole()));
        let mut axes: Vec<Axis<'b>> = Vec::new();
        for (bars, span) in own.chain(references) {
            let axis = self.source.axis(bars, span, axes.last())?;
            axes.push(axis);
        }
        Ok(axes)
    }

    /// Every time up to the horizon.
    fn whole(&self) -> Span {
        Span { from: TimeMicros::MIN, until: self.horizon }
    }

    /// The stage over a segment's axes, `own` of which are its symbols'.
    pub fn stage_run<'b>(&'b self, axes: &'b [Axis<'b>], own: usize) -> StageRun<'b> {
        let symbols = axes.iter().map(|axis| &*axis.bars.symbol);
        let source = match self.bars.as_str() {
            "" => None,
            // The tables were read when bars were adjusted: without them there are no bars.
            bars => self.source.dataset.events_applied(symbols, &self.source.adjustment).ok().map(|events| StageBars {
                bars,
                horizon: self.horizon,
                events: events.unwrap_or_default(),
            }),
        };
        StageRun {
            plan: self.source.plan(),
            executables: self.source.executable.stage(self.number),
            engine: &self.source.engine,
            source,
            stage: self.stage,
            number: self.number,
            forgetting: self.forgetting,
            kept: self.source.checkpoints.as_deref(),
            axes,
            own,
            references: &self.names,
            labels: &self.labels,
            attributes: &self.attributes,
            calendar: self.calendar,
            dated: self.dated,
            tables: self.tables.clone(),
        }
    }

    /// The rows that are needed of every piece, and from which rows on cross-sections are read.
    pub fn needed(&self, run: &StageRun<'_>) -> (Needed, Vec<CrossRead>) {
        let own = &run.axes[..run.own];
        let mut needed = run.nothing_needed();
        if let (true, Some(piece)) = (self.last, needed.last_mut()) {
            let first = self.times.first().copied().unwrap_or(self.horizon);
            for (needed, axis) in piece.iter_mut().zip(own) {
                *needed = axis.first_within(&BarSize::Base, first.max(axis.span.from), run.plan.max_age);
            }
        }
        for (cross, piece, _) in &self.stage.crosses {
            let Some(first) = self.wanted.get(cross).and_then(|times| times.first()) else { continue };
            let size = &self.source.plan().frames[self.stage.pieces[*piece].frame.index()].bars;
            for (needed, axis) in needed[*piece].iter_mut().zip(own) {
                let from = axis.span.from.max(*first);
                *needed = (*needed).min(axis.first_within(size, from, self.source.max_age_of(size)));
            }
        }
        let reads = run.demand(&mut needed);
        (needed, reads)
    }

    /// The output of a step of kind [`StepKind::Times`].
    pub fn times(reads: BTreeMap<u16, BTreeSet<TimeMicros>>) -> StepOutput {
        let times =
            |(cross, times): (u16, BTreeSet<TimeMicros>)| CrossTimes { cross, times: times.into_iter().collect() };
        StepOutput::Times(reads.into_iter().map(times).collect())
    }

    /// The output for computed values: rows in the last stage, otherwise values for cross-sections.
    pub fn output(&self, run: &StageRun<'_>, computed: &[Vec<Computed>]) -> Result<StepOutput, ExecuteError> {
        if !self.last {
            return Ok(StepOutput::Values(self.source.values(run, &self.wanted, computed)));
        }
        let outputs = computed.last().ok_or_else(|| ExecuteError::Inconsistent("a stage without pieces".to_owned()))?;
        Ok(if self.panel {
            StepOutput::Panel(self.source.panel(run.axes, run.own, &self.names, outputs, self.times))
        } else {
            StepOutput::Rows(self.source.rows(run.axes, run.own, &self.names, outputs, self.horizon))
        })
    }
}

/// Whether a value at a time may depend on cross-sections at earlier times, as `within(xs_rank(x) <= 10, 3)` does, and any that is
/// read at an earlier bar.
pub fn reads_earlier_crosses(executable: &ExecutablePlan) -> bool {
    /// A row so late that no window reaches the first row from it.
    const FAR: usize = 1 << 40;
    if executable.plan().max_age.is_some() {
        return true;
    }
    executable.plan().stages().iter().enumerate().any(|(number, stage)| {
        // Per piece: whether it reads a cross-section, directly or through another piece.
        let mut reads: Vec<bool> = Vec::with_capacity(stage.pieces.len());
        for piece in &stage.pieces {
            let any = piece.program.inputs.iter().any(|input| match input {
                Input::Cross(_) => true,
                Input::Read { piece, .. } => reads[*piece],
                _ => false,
            });
            reads.push(any);
        }
        let executables = executable.stage(number);
        let mut back = vec![0; stage.pieces.len()];
        stage.pieces.iter().enumerate().rev().any(|(p, piece)| {
            let begins = executables[p].input_begins(FAR - back[p]);
            piece.program.inputs.iter().zip(begins).any(|(input, begin)| match input {
                Input::Cross(_) => begin < FAR,
                Input::Read { piece: source, how: Read::Same, .. } if reads[*source] => {
                    back[*source] = (FAR - begin).max(back[*source]);
                    false
                }
                Input::Read { piece: source, .. } => reads[*source],
                _ => false,
            })
        })
    })
}

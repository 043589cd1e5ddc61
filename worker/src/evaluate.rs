//! Runs one stage of a plan over the subjects of a segment: which rows are needed, then piece by piece their values.
//!
//! Rows that are not needed are not computed; the value of a row does not depend on which other rows are.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Instant;

use trawl_kernels::stages::{EngineStage, StageSpan, Stages};
use trawl_kernels::{Cancel, Engine, EngineError};
use trawl_market::{TimeMicros, Timeframe};
use trawl_plan::frame::{BarSize, Frame, Read, SYMBOL_LABEL, Subject};
use trawl_plan::{FrameProgram, Input};

use crate::axis::{Axis, Reader};
use crate::device_features::Keeping;
use crate::piece::{Forming, inputs_of_states, push_last};
use crate::stage_run::{Computed, StageRun, Trim};

/// Symbols whose inputs are made before they are computed, where inputs are series of their own: as many as the CPU
/// computes side by side. Those of a group of minutes would take as much memory as its bars.
const MADE_TOGETHER: usize = 16;
/// Number of states of a forming bar evaluated side by side.
const FORMING_BATCH: usize = 64;
/// No row is needed.
const NONE: usize = usize::MAX;

/// `[piece][axis]`: the first row that is needed.
pub(crate) type Needed = Vec<Vec<usize>>;

/// Rows of an axis on the frame of a piece that read a cross-section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CrossRead {
    pub cross: u16,
    pub axis: usize,
    pub piece: usize,
    pub rows: Range<usize>,
}

impl<'a> StageRun<'a> {
    pub fn frame(&self, piece: &FrameProgram) -> &'a Frame {
        &self.plan.frames[piece.frame.index()]
    }

    /// The axes that a frame's programs run along.
    pub fn axes_of(&self, frame: &Frame) -> Range<usize> {
        match &frame.subject {
            Subject::Own => 0..self.own,
            Subject::Reference(symbol) => match self.references.binary_search(symbol) {
                Ok(at) => self.own + at..self.own + at + 1,
                Err(_) => 0..0,
            },
        }
    }

    /// The rows that are passed to the kernels, beginning at the first block that a limited history needs.
    pub fn trim(&self, p: usize, axis: &Axis<'_>, from: usize) -> Trim {
        let frame = self.frame(&self.stage.pieces[p]);
        if self.plan.history.is_none() || frame.subject != Subject::Own {
            return Trim { given: 0, there: 0 };
        }
        // States of a forming bar are rows of base bars; their history is that of the higher bars. The first wanted
        // state may be in a period before that of the window; none of them reads fewer bars than were complete by then.
        let from = match &frame.bars {
            BarSize::Higher { timeframe, forming: true } => {
                let complete = axis.higher.get(timeframe).and_then(|h| h.bars.completed(from));
                complete.map_or(NONE, |complete| complete.saturating_sub(1 + axis.absent_max))
            }
            _ => from,
        };
        Trim::of(&self.executables[p], axis.window_row(&frame.bars).min(from))
    }

    fn reader(&self, frame: &Frame, a: usize, source: &Frame, how: Read) -> Option<(usize, Reader<'_>)> {
        let axis = &self.axes[a];
        let at = match &source.subject {
            subject if *subject == frame.subject => a,
            _ => self.axes_of(source).next()?,
        };
        let found = &self.axes[at];
        let between = match (&frame.bars, &source.bars) {
            (BarSize::Base, BarSize::Higher { timeframe, .. }) => axis.higher.get(timeframe).map(|h| &*h.bars),
            (BarSize::Higher { timeframe, .. }, BarSize::Base) => axis.higher.get(timeframe).map(|h| &*h.bars),
            _ => None,
        };
        let times = axis.times(&frame.bars);
        Some((at, Reader { how, times, source_times: found.times(&source.bars), higher: between }))
    }

    /// Extends `needed` from the wanted pieces to the pieces that they read, and returns from which rows on cross-sections
    /// are read.
    pub fn demand(&self, needed: &mut Needed) -> Vec<CrossRead> {
        let mut reads_crosses = Vec::new();
        for (p, piece) in self.stage.pieces.iter().enumerate().rev() {
            let frame = self.frame(piece);
            let reads = |i: &Input| matches!(i, Input::Read { .. } | Input::Cross(_));
            if !piece.program.inputs.iter().any(reads) {
                continue;
            }
            for a in self.axes_of(frame) {
                let axis = &self.axes[a];
                let (from, rows) = (needed[p][a], axis.rows(&frame.bars));
                if from >= rows {
                    continue;
                }
                let trim = self.trim(p, axis, from);
                let begins = self.executables[p].input_begins(from - trim.given);
                for (input, begin) in piece.program.inputs.iter().zip(begins) {
                    let begin = trim.there.max(trim.given + begin);
                    let begin = if begin < from { begin.saturating_sub(axis.absent_max) } else { begin };
                    match input {
                        Input::Read { piece: source, how, .. } => {
                            let source_frame = self.frame(&self.stage.pieces[*source]);
                            if let Some((at, reader)) = self.reader(frame, a, source_frame, *how) {
                                let first = match how {
                                    // By time, or the same row.
                                    Read::Same | Read::Forming => reader.first(begin),
                                    _ => reader.first(begin).saturating_sub(self.axes[at].absent_max),
                                };
                                needed[*source][at] = needed[*source][at].min(first);
                            }
                        }
                        Input::Cross(cross) => {
                            let rows = begin.min(rows)..rows;
                            reads_crosses.push(CrossRead { cross: *cross, axis: a, piece: p, rows });
                        }
                        Input::Column(_) | Input::Label(_) | Input::HistoryMask => {}
                        Input::Attribute(_) | Input::Begins(_) | Input::Clock(_) => {}
                    }
                }
            }
        }
        reads_crosses
    }

    /// The times of reads of cross-sections.
    pub fn times_of(&self, reads: &[CrossRead]) -> BTreeMap<u16, BTreeSet<TimeMicros>> {
        let mut times: BTreeMap<u16, BTreeSet<TimeMicros>> = BTreeMap::new();
        for CrossRead { cross, axis, piece, rows } in reads {
            let frame = self.frame(&self.stage.pieces[*piece]);
            times.entry(*cross).or_default().extend(&self.axes[*axis].times(&frame.bars)[rows.clone()]);
        }
        times
    }

    /// Computes every piece on the rows that are needed: `[piece][axis]`. Each is recorded as a kernel in `stages`,
    /// unless the engine records its stages itself.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn evaluate(
        &self,
        needed: &Needed,
        cancel: &dyn Cancel,
        stages: &mut Stages,
    ) -> Result<Vec<Vec<Computed>>, EngineError> {
        self.evaluate_keeping(needed, None, cancel, stages)
    }

    /// As [`Self::evaluate`]; some outputs of the last piece may stay on a device.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn evaluate_keeping(
        &self,
        needed: &Needed,
        mut keeping: Option<&mut Keeping<'_>>,
        cancel: &dyn Cancel,
        stages: &mut Stages,
    ) -> Result<Vec<Vec<Computed>>, EngineError> {
        let mut computed: Vec<Vec<Computed>> = Vec::with_capacity(self.stage.pieces.len());
        for (p, piece) in self.stage.pieces.iter().enumerate() {
            let (recorded, started) = (stages.spans().len(), Instant::now());
            let frame = self.frame(piece);
            // They share the memory of an empty one.
            let mut mine: Vec<Computed> = vec![Computed::default(); self.axes.len()];
            let wanted = self.wanted(frame, &needed[p]);
            let last = p + 1 == self.stage.pieces.len();
            if let Some(keeping) = keeping.as_deref_mut().filter(|_| last) {
                let read = self.inputs_of(p, wanted, &needed[p], &computed);
                let values = keeping.evaluate(&self.executables[p], &read, cancel, stages)?;
                read.keep(values, &mut mine);
            } else if let BarSize::Higher { timeframe, forming: true } = &frame.bars {
                for &a in &wanted {
                    mine[a] = self.forming(p, a, *timeframe, needed[p][a], cancel, stages)?;
                }
            } else if let Some(kept) = self.kept.filter(|kept| kept.keeps(self.number, p)) {
                self.whole_resuming(p, &wanted, &needed[p], &computed, kept, cancel, &mut mine)?;
            } else {
                self.whole(p, &self.given(frame, &needed[p]), &needed[p], &computed, (cancel, stages), &mut mine)?;
            }
            computed.push(mine);
            if stages.spans().len() == recorded {
                let part = u32::try_from(p).unwrap_or(u32::MAX);
                stages.record(StageSpan { stage: EngineStage::Kernel, part, bytes: 0, started, ended: Instant::now() });
            }
        }
        Ok(computed)
    }

    /// Computes one piece over the rows of its frame.
    fn whole(
        &self,
        p: usize,
        wanted: &[usize],
        needed: &[usize],
        computed: &[Vec<Computed>],
        (cancel, stages): (&dyn Cancel, &mut Stages),
        mine: &mut [Computed],
    ) -> Result<(), EngineError> {
        let piece = &self.stage.pieces[p];
        let made = piece.program.inputs.iter().any(|input| !matches!(input, Input::Column(_)));
        let mut order = wanted.to_vec();
        let together = match self.engine {
            Engine::Cpu if made => {
                // Histories of about the same length side by side, as the engine groups them itself.
                order.sort_by_key(|&a| self.axes[a].rows(&self.frame(piece).bars));
                MADE_TOGETHER
            }
            _ => order.len().max(1),
        };
        for axes in order.chunks(together) {
            let read = self.inputs_of(p, axes.to_vec(), needed, computed);
            let (symbols, source) = (read.symbols(), read.source());
            let values = self.engine.evaluate_from(
                &self.executables[p],
                &symbols,
                &read.from,
                source.as_ref(),
                cancel,
                stages,
            )?;
            read.keep(values, mine);
        }
        Ok(())
    }

    /// The axes that a piece is computed on.
    pub fn wanted(&self, frame: &Frame, needed: &[usize]) -> Vec<usize> {
        self.axes_of(frame).filter(|&a| needed[a] < self.axes[a].rows(&frame.bars)).collect()
    }

    /// The axes whose bars are passed to the engine for a piece: those on which it is computed or, where a device keeps bars, all beside them,
    /// so that which symbols share memory there does not depend on what is wanted of them.
    pub fn given(&self, frame: &Frame, needed: &[usize]) -> Vec<usize> {
        let wanted = self.wanted(frame, needed);
        let is_kept = self.source.is_some() && self.plan.history.is_none() && frame.bars == BarSize::Base;
        if is_kept && !wanted.is_empty() { self.axes_of(frame).collect() } else { wanted }
    }

    /// The rows of one input along a frame from `given` on, valid from row `begin` on.
    pub fn input(
        &self,
        frame: &Frame,
        a: usize,
        input: &Input,
        (given, begin): (usize, usize),
        computed: &[Vec<Computed>],
    ) -> Cow<'_, [f64]> {
        let axis = &self.axes[a];
        let rows = axis.rows(&frame.bars);
        // Nothing reads the rows before `begin`: memory that is zero already is not written there.
        let zeros = || vec![0.0; rows.saturating_sub(given)];
        let filled = |value: &mut dyn FnMut(usize) -> f64| {
            let mut series = zeros();
            for (row, slot) in (given..).zip(&mut series).skip(begin - given) {
                *slot = value(row);
            }
            Cow::Owned(series)
        };
        match input {
            Input::Column(name) => Cow::Borrowed(self.column(frame, axis, name).get(given..).unwrap_or_default()),
            Input::Label(test) => {
                let times = axis.times(&frame.bars);
                let number = |value: &str| match &test.value {
                    Some(wanted) => truth(value == wanted),
                    None => self.labels.number_of(&test.label, value),
                };
                filled(&mut |row| self.label(axis, &test.label, times[row]).map_or(f64::NAN, number))
            }
            Input::Attribute(name) => {
                let (times, known) = (axis.times(&frame.bars), self.attributes.of(&axis.bars.symbol, name));
                filled(&mut |row| {
                    let at = known.partition_point(|(from, _)| *from <= times[row]);
                    at.checked_sub(1).map_or(f64::NAN, |at| known[at].1)
                })
            }
            Input::HistoryMask => {
                let first = axis.window_row(&frame.bars);
                filled(&mut |row| if row >= first { 1.0 } else { f64::NAN })
            }
            Input::Begins(period) => {
                let dated = self.is_dated(frame);
                let begins = self.calendar.begins(*period, dated, axis.times(&frame.bars));
                filled(&mut |row| truth(begins[row]))
            }
            Input::Clock(clock) => {
                let mut reader = self.calendar.clock(*clock, self.is_dated(frame));
                let times = axis.times(&frame.bars);
                filled(&mut |row| reader.at(times[row]))
            }
            Input::Read { piece, output, how } => {
                let source = self.frame(&self.stage.pieces[*piece]);
                let Some((at, reader)) = self.reader(frame, a, source, *how) else { return filled(&mut |_| f64::NAN) };
                let found = &computed[*piece][at];
                if let (Read::Completed, Some(higher)) = (how, reader.higher) {
                    // Bar after bar reads the same value, until the next higher bar is complete.
                    let mut series = zeros();
                    for (bars, completed) in higher.completed_along(begin) {
                        let value = completed.checked_sub(1).map_or(f64::NAN, |last| found.at(*output, last));
                        series[bars.start - given..bars.end - given].fill(value);
                    }
                    return Cow::Owned(series);
                }
                filled(&mut |row| reader.row(row).map_or(f64::NAN, |source| found.at(*output, source)))
            }
            Input::Cross(cross) => {
                let times = axis.times(&frame.bars);
                let Some(table) = self.tables.get(cross) else { return filled(&mut |_| f64::NAN) };
                let section = &self.plan.crosses[usize::from(*cross)];
                // Of a symbol the same at every row.
                let of_symbol = match (section.function.is_market_series(), &section.by) {
                    (false, _) => Some(table.of(&axis.bars.symbol)),
                    (true, None) => Some(table.of("")),
                    (true, Some(_)) => None,
                };
                // Rows are asked for one after the other, and each usually has the table's next time.
                let mut next = 0;
                filled(&mut |row| {
                    let values = match (of_symbol, &section.by) {
                        (Some(values), _) => values,
                        (None, Some(by)) => self.label(axis, by, times[row]).and_then(|label| table.of(label)),
                        (None, None) => None,
                    };
                    let at = match table.times.get(next) == Some(&times[row]) {
                        true => Some(next),
                        false => table.times.binary_search(&times[row]).ok(),
                    };
                    next = at.map_or(next, |at| at + 1);
                    values.zip(at).map_or(f64::NAN, |(values, at)| values[at])
                })
            }
        }
    }

    /// Whether the times of a frame's bars are dates.
    fn is_dated(&self, frame: &Frame) -> bool {
        match &frame.bars {
            BarSize::Base => self.dated,
            BarSize::Higher { timeframe, .. } => timeframe.is_dated(),
        }
    }

    fn label<'s>(&'s self, axis: &'s Axis<'_>, label: &str, time: TimeMicros) -> Option<&'s str> {
        if label == SYMBOL_LABEL {
            return Some(&axis.bars.symbol);
        }
        self.labels.label_at(&axis.bars.symbol, label, time)
    }

    /// Index of a column; every column of a program is one of the plan's.
    pub fn column_at(&self, name: &str) -> usize {
        self.plan.columns.iter().position(|c| c == name).unwrap_or_default()
    }

    /// All base bars of an axis, visible or not; as far as the host has them.
    pub fn whole_column(&self, axis: &'a Axis<'a>, name: &str) -> &'a [f64] {
        &axis.bars.columns[self.column_at(name)]
    }

    fn column(&self, frame: &Frame, axis: &'a Axis<'a>, name: &str) -> &'a [f64] {
        let at = self.column_at(name);
        match &frame.bars {
            BarSize::Base => axis.bars.columns[at].get(..axis.visible).unwrap_or_default(),
            BarSize::Higher { timeframe, .. } => axis.higher.get(timeframe).map_or(&[][..], |h| &h.columns[at]),
        }
    }

    /// Computes a piece on the forming bar, one state per base bar.
    pub fn forming(
        &self,
        p: usize,
        a: usize,
        timeframe: Timeframe,
        from: usize,
        cancel: &dyn Cancel,
        stages: &mut Stages,
    ) -> Result<Computed, EngineError> {
        let Some(forming) = Forming::new(self, p, a, timeframe, from) else { return Ok(Computed::default()) };
        let visible = self.axes[a].visible;
        let mut outputs = vec![Vec::with_capacity(visible - from); self.executables[p].outputs.len()];
        let rows: Vec<usize> = (from..visible).collect();
        for batch in rows.chunks(FORMING_BATCH) {
            let states: Vec<Vec<Vec<f64>>> = batch.iter().map(|row| forming.state(*row)).collect();
            let (inputs, last) = inputs_of_states(&states);
            let values = self.engine.evaluate_from(&self.executables[p], &inputs, &last, None, cancel, stages)?;
            push_last(&mut outputs, &values);
        }
        Ok(Computed::alone(from, outputs))
    }

    /// [`Needed`] without any row.
    pub fn nothing_needed(&self) -> Needed {
        vec![vec![NONE; self.axes.len()]; self.stage.pieces.len()]
    }
}

fn truth(value: bool) -> f64 {
    f64::from(u8::from(value))
}

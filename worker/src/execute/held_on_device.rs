//! Segments whose bars a device has: the host reads what it needs itself, the ends of few columns, and no more.
//!
//! A device's memory is often larger than the host's cache. Where all columns that kernels read are there, reading, checking and adjusting
//! them again for every scan would take longer than the scan.

use std::ops::Range;

use trawl_kernels::cuda::{Fleet, RequestPart};
use trawl_market::{CHUNK_ROWS, LoadedBars};
use trawl_plan::frame::{BarSize, Subject};
use trawl_plan::{FrameProgram, Input};
use trawl_wire::StepInputV1;

use super::step::StepRun;
use super::{ExecuteError, References, ScanSource, ScanStep, StepKind};
use crate::stage_run::StageRun;

impl ScanSource {
    /// As [`ScanSource::load_segment`] for [`ScanSource::evaluate_together`]: where the devices hold all bars that kernels read, only the
    /// newest chunk of each symbol is loaded, and of the columns those alone that are passed on as they are; the others are empty. Of the
    /// symbols those at `part` are computed; `None`: all. What is evicted before it is needed fails with
    /// [`trawl_kernels::cuda::Fault::NotHeld`].
    ///
    /// # Errors
    /// As [`ScanSource::load_segment`].
    pub fn load_segment_beside(
        &self,
        fleet: &Fleet,
        (segment, part): (u32, Option<&Range<usize>>),
        step: ScanStep,
        input: &StepInputV1,
        references: &References,
    ) -> Result<Vec<LoadedBars>, ExecuteError> {
        // Whatever is wrong with it, reading the whole segment says so.
        let ends = self.ends_of(fleet, (segment, part), step, input, references);
        match ends {
            Ok(Some(bars)) => Ok(bars),
            Ok(None) | Err(_) => self.load_segment(segment),
        }
    }

    /// The ends alone, if the devices hold the rest.
    fn ends_of(
        &self,
        fleet: &Fleet,
        (segment, part): (u32, Option<&Range<usize>>),
        step: ScanStep,
        input: &StepInputV1,
        references: &References,
    ) -> Result<Option<Vec<LoadedBars>>, ExecuteError> {
        let times = [self.as_of];
        let shared = StepRun::new(self, step, input, &times, references)?;
        let own = shared.stage.pieces.iter().filter(|piece| self.is_own(piece));
        let mut sources = own.map(|piece| shared.source_of(&self.plan().frames[piece.frame.index()]));
        // Of a new snapshot there is nothing.
        if !sources.all(|source| fleet.holds_any(&source)) {
            return Ok(None);
        }
        let Some(read) = self.columns_passed_on(segment, step, input) else { return Ok(None) };
        let names: Vec<String> = read.iter().map(|at| self.plan().columns[*at].clone()).collect();
        let mut bars = self.dataset.load_group_newest(segment, &names, &self.adjustment, CHUNK_ROWS)?;
        bars.iter_mut().try_for_each(|symbol| self.spread(symbol, &read))?;
        let computed = part.map_or(bars.as_slice(), |part| bars.get(part.clone()).unwrap_or_default());
        Ok(if self.is_held(fleet, &shared, computed)? { Some(bars) } else { None })
    }

    /// The columns that the host needs where a device has all bars, ascending: those that a step passes on as they are. `None` where it
    /// may need more: other times than the newest, other bars than those of the dataset, or what it makes of them for kernels.
    fn columns_passed_on(&self, segment: u32, step: ScanStep, input: &StepInputV1) -> Option<Vec<usize>> {
        let plan = self.plan();
        let mut wanted = input.wanted.iter().flat_map(|wanted| &wanted.times);
        let is_plain = step.kind == StepKind::Values
            && plan.history.is_none()
            && plan.max_age.is_none()
            && plan.frames.iter().all(|frame| frame.bars == BarSize::Base)
            && wanted.all(|time| *time >= self.as_of)
            && self.dataset.symbols_of(segment).all(|entry| entry.last_time <= self.as_of);
        let stage = plan.stages().get(step.stage).filter(|_| is_plain)?;
        let mut read = Vec::new();
        for (piece, executable) in stage.pieces.iter().zip(self.executable.stage(step.stage)) {
            if !self.is_own(piece) {
                continue;
            }
            let inputs = &piece.program.inputs;
            // Series that the host makes of other values may need any of their bars.
            if inputs.iter().any(|input| matches!(input, Input::Read { .. })) {
                return None;
            }
            for column in executable.passed_on()? {
                if let Input::Column(name) = &inputs[column] {
                    read.push(plan.columns.iter().position(|column| column == name)?);
                }
            }
        }
        read.sort_unstable();
        read.dedup();
        Some(read)
    }

    fn is_own(&self, piece: &FrameProgram) -> bool {
        self.plan().frames[piece.frame.index()].subject == Subject::Own
    }

    /// Whether the devices hold every column that kernels read of these symbols, and the host has the rest.
    fn is_held(&self, fleet: &Fleet, shared: &StepRun<'_>, bars: &[LoadedBars]) -> Result<bool, ExecuteError> {
        let axes = shared.axes(bars)?;
        let run = shared.stage_run(&axes, bars.len());
        let (needed, _) = shared.needed(&run);
        let own = (0..shared.stage.pieces.len()).filter(|p| self.is_own(&shared.stage.pieces[*p]));
        Ok(own.into_iter().all(|p| {
            let frame = run.frame(&shared.stage.pieces[p]);
            if !run.reads_read_times(p, &run.wanted(frame, &needed[p]), &needed[p]) {
                return false;
            }
            let read = run.inputs_of(p, run.given(frame, &needed[p]), &needed[p], &[]);
            let part = RequestPart { symbols: read.symbols(), from: read.from.clone(), source: read.source() };
            fleet.holds(&run.executables[p], &part)
        }))
    }
}

impl StageRun<'_> {
    /// Whether all that the host makes for a piece is of bars whose times were read.
    fn reads_read_times(&self, p: usize, wanted: &[usize], needed: &[usize]) -> bool {
        wanted.iter().all(|&a| {
            let untimed = self.axes[a].bars.untimed;
            let inputs = self.stage.pieces[p].program.inputs.iter();
            let made = inputs.zip(self.executables[p].input_begins(needed[a]));
            needed[a] >= untimed
                && made.filter(|(input, _)| !matches!(input, Input::Column(_))).all(|(input, begin)| {
                    // Whether a period begins depends on the bar before.
                    let begin = if matches!(input, Input::Begins(_)) { begin.saturating_sub(1) } else { begin };
                    begin >= untimed
                })
        })
    }
}

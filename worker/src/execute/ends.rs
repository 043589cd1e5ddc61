//! The ends of long histories, for programs whose means have forgotten by then how their histories began. That is shown for each
//! symbol's bars (`trawl_kernels::Forgetting`); where it cannot be shown, the whole history of that symbol is read and computed.

use trawl_kernels::stages::{EngineStage, Stages};
use trawl_kernels::{Cancel, Engine, Forgetting, SymbolInput};
use trawl_market::{LoadedBars, largest_magnitude};
use trawl_plan::Input;
use trawl_plan::frame::{BarSize, Subject};
use trawl_wire::StepInputV1;

use super::parts::SIDE_BY_SIDE;
use super::{ExecuteError, References, ScanSource, ScanStep, StepKind, StepOutput, visible_of};

impl ScanSource {
    /// What a step's means forget, if nothing else of the step needs more than the ends of histories: of one program over the bars
    /// of its own symbols, by the CPU.
    pub(super) fn forgetting(&self, step: ScanStep) -> Option<&Forgetting> {
        let plan = self.plan();
        let is_plain = matches!(self.engine, Engine::Cpu) && self.checkpoints.is_none() && plan.history.is_none();
        let [stage] = plan.stages() else { return None };
        let [piece] = stage.pieces.as_slice() else { return None };
        let frame = &plan.frames[piece.frame.index()];
        let is_own = frame.bars == BarSize::Base && frame.subject == Subject::Own && plan.references().is_empty();
        if !is_plain || !is_own || step.stage != 0 || step.kind != StepKind::Values {
            return None;
        }
        self.executable.forgetting()
    }

    /// Runs a step over bars of which the oldest were not read.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn run_over_ends(
        &self,
        (segment, forgetting): (u32, &Forgetting),
        step: ScanStep,
        input: &StepInputV1,
        bars: &[LoadedBars],
        references: &References,
        cancel: &dyn Cancel,
        stages: &mut Stages,
    ) -> Result<StepOutput, ExecuteError> {
        let shown = || self.forgotten((segment, forgetting), step, bars, cancel);
        let forgotten = stages.time(EngineStage::Kernel, 0, 0, shown)?;
        let places = |wanted: bool| -> Vec<usize> {
            forgotten.iter().enumerate().filter(|(_, found)| **found == wanted).map(|(place, _)| place).collect()
        };
        let (ends, others) = (places(true), places(false));
        let run = |bars: &[LoadedBars], stages: &mut Stages| {
            self.run_over(Some(forgetting), step, input, bars, references, cancel, stages)
        };
        if others.is_empty() {
            return run(bars, stages);
        }
        let symbols: Vec<&str> = self.dataset.symbols_of(segment).map(|entry| entry.symbol.as_str()).collect();
        let place_of = |place: &usize| symbols.binary_search(&&*bars[*place].symbol).ok();
        // Whole histories are long: as many at a time as are computed side by side.
        let parts = others.chunks(SIDE_BY_SIDE).map(|part| part.iter().map(place_of).collect());
        let unknown = || ExecuteError::Inconsistent(format!("segment {segment} lacks symbols of its bars"));
        let parts = parts.collect::<Option<Vec<Vec<usize>>>>().ok_or_else(unknown)?;
        let whole = self.run_parts((segment, &parts), step, input, references, cancel, stages)?;
        if ends.is_empty() {
            return Ok(whole);
        }
        let end_bars: Vec<LoadedBars> = ends.iter().map(|place| bars[*place].clone()).collect();
        Ok(run(&end_bars, stages)?.followed_by(whole)?.in_order_of(&[ends, others].concat()))
    }

    /// By symbol, whether the values of its last bar follow from the bars that were read.
    pub(super) fn forgotten(
        &self,
        (segment, forgetting): (u32, &Forgetting),
        step: ScanStep,
        bars: &[LoadedBars],
        cancel: &dyn Cancel,
    ) -> Result<Vec<bool>, ExecuteError> {
        let (read, names) = self.columns_read(step);
        // Of a symbol without a bar at the as-of nothing is computed.
        let is_late = |bars: &LoadedBars| {
            self.plan().max_age.is_none() && bars.times.last().is_some_and(|last| *last < self.as_of)
        };
        let mut forgotten: Vec<bool> = bars.iter().map(|bars| bars.unread == 0 || is_late(bars)).collect();
        let Some(unread) = self.dataset.largest_unread(segment, &names, &self.adjustment, bars)? else {
            return Ok(forgotten);
        };
        let program = self.executable.pieces().next().map(|executable| executable.program());
        let columns = program.into_iter().flat_map(|program| &program.inputs).filter_map(|input| match input {
            Input::Column(name) => self.plan().columns.iter().position(|column| column == name),
            _ => None,
        });
        let columns: Vec<usize> = columns.collect();
        let (mut places, mut symbols, mut largest) = (Vec::new(), Vec::new(), Vec::new());
        for (place, (bars, unread)) in bars.iter().zip(&unread).enumerate().filter(|(place, _)| !forgotten[*place]) {
            let visible = visible_of(bars, self.as_of);
            let begin = forgetting.begin(bars.unread, visible);
            if begin >= visible {
                continue;
            }
            let of_column = |at: &usize| {
                let before = read.iter().position(|column| column == at).map_or(f64::INFINITY, |place| unread[place]);
                before.max(largest_magnitude(bars.columns[*at].get(bars.unread..).unwrap_or_default()))
            };
            places.push(place);
            largest.push(columns.iter().map(of_column).collect());
            symbols.push(SymbolInput {
                columns: columns.iter().map(|at| bars.columns[*at].get(begin..visible).unwrap_or_default()).collect(),
                visible: visible - begin,
            });
        }
        let found = forgetting.forgets(&symbols, &largest, cancel).map_err(|_| ExecuteError::Cancelled)?;
        for (place, found) in places.into_iter().zip(found) {
            forgotten[place] = found;
        }
        Ok(forgotten)
    }
}

#[cfg(test)]
#[path = "ends_tests.rs"]
mod tests;

//! How much of its bars a step reads. A condition of finite windows at the newest bar reads the end of each history, and one of means
//! does where they have forgotten the rest (see `ends`). The rest is left on disk, so that a scan of ten years of minutes takes as long
//! as one of a month.

use trawl_kernels::{Engine, Executable};
use trawl_market::{CHUNK_ROWS, SymbolEntry, TimeMicros};
use trawl_plan::Input;
use trawl_plan::frame::{BarSize, Frame, Read, Subject};
use trawl_wire::StepInputV1;

use super::{ExecuteError, ScanSource, ScanStep, StepKind};
use crate::stage_run::{StageRun, Trim};

/// Histories are so many times as long as the ends of them that are tried alone.
const ENDS_MIN_TIMES: u64 = 2;
/// No row is needed.
const NONE: usize = usize::MAX;

impl ScanSource {
    /// The number of newest bars, rounded up to whole chunks of a file, of which a step reads any; `None` where it reads more, or
    /// where that depends on times. Of symbols whose means turn out to remember, a step reads everything besides. Devices and updates keep whole histories.
    pub fn newest_bars_read(&self, segment: u32, step: ScanStep, input: &StepInputV1) -> Option<u64> {
        let plan = self.plan();
        let by_times = plan.frames.iter().any(|frame| frame.bars != BarSize::Base);
        if by_times || !matches!(self.engine, Engine::Cpu) || self.checkpoints.is_some() {
            return None;
        }
        if input.wanted.iter().any(|wanted| wanted.times.first().is_some_and(|time| *time < self.as_of)) {
            return None;
        }
        // Most histories are in one chunk, which is read whole.
        let longest = self.dataset.longest_of(segment);
        if longest <= CHUNK_ROWS {
            return None;
        }
        let mut most = 0;
        let mut rows_before = None;
        for entry in self.dataset.symbols_of(segment) {
            if entry.last_time > self.as_of {
                return None;
            }
            // Symbols of a group often have equally many bars.
            if rows_before.replace(entry.rows) != Some(entry.rows) {
                most = most.max(entry.rows - self.first_row_read(step, input, entry)?.min(entry.rows));
            }
        }
        let newest = most.max(1).next_multiple_of(CHUNK_ROWS);
        if newest < longest {
            return Some(newest);
        }
        // Where means turn out not to have forgotten, everything is read besides.
        let forgets = u64::try_from(self.forgetting(step)?.bars()).ok()?.checked_next_multiple_of(CHUNK_ROWS)?;
        (forgets <= longest / ENDS_MIN_TIMES && !self.dataset.lacks_largest(segment)).then_some(forgets)
    }

    /// Whether a step reads no time of its symbols but the last of each: where it computes at the newest bar from columns, and from
    /// whatever else has a value at that bar.
    pub(super) fn needs_last_times_alone(&self, segment: u32, step: ScanStep, input: &StepInputV1) -> bool {
        let plan = self.plan();
        let is_plain = matches!(self.engine, Engine::Cpu) && self.checkpoints.is_none() && plan.max_age.is_none();
        let is_own = |frame: &Frame| frame.bars == BarSize::Base && frame.subject == Subject::Own;
        if !is_plain || step.kind != StepKind::Values || !plan.frames.iter().all(is_own) {
            return false;
        }
        let is_newest = |time: &TimeMicros| *time >= self.as_of;
        if !input.wanted.iter().flat_map(|wanted| &wanted.times).all(is_newest) {
            return false;
        }
        let Some(stage) = plan.stages().get(step.stage) else { return false };
        let timed: Vec<usize> =
            (0..stage.pieces.len()).filter(|p| stage.pieces[*p].program.inputs.iter().any(is_by_time)).collect();
        let mut rows_before = None;
        self.dataset.symbols_of(segment).all(|entry| {
            let known = rows_before.replace(entry.rows) == Some(entry.rows);
            entry.last_time <= self.as_of
                && (known || timed.iter().all(|p| self.reads_last_times_alone(step, *p, entry)))
        })
    }

    /// Whether what a piece reads by time is read at the last of a symbol's rows alone.
    fn reads_last_times_alone(&self, step: ScanStep, piece: usize, entry: &SymbolEntry) -> bool {
        let Some(last) = usize::try_from(entry.rows).ok().and_then(|rows| rows.checked_sub(1)) else { return false };
        let inputs = &self.plan().stages()[step.stage].pieces[piece].program.inputs;
        let begins = self.input_begins(&self.executable.stage(step.stage)[piece], last + 1, last);
        inputs.iter().zip(begins).filter(|(input, _)| is_by_time(input)).all(|(input, begin)| match input {
            // Other rows are found by their times, and whether a period begins depends on the bar before.
            Input::Read { .. } | Input::Begins(_) => false,
            _ => begin >= last,
        })
    }

    /// By input of a program, the first of so many rows of a symbol that it reads where those from `from` on are wanted.
    fn input_begins(&self, executable: &Executable, rows: usize, from: usize) -> impl Iterator<Item = usize> + use<> {
        let trim = match self.plan().history {
            None => Trim { given: 0, there: 0 },
            Some(history) => Trim::of(executable, rows.saturating_sub(history.bars as usize).min(from)),
        };
        executable.input_begins(from - trim.given).into_iter().map(move |begin| trim.there.max(trim.given + begin))
    }

    /// The first of a symbol's rows that a step reads, if the newest is wanted.
    fn first_row_read(&self, step: ScanStep, input: &StepInputV1, entry: &SymbolEntry) -> Option<u64> {
        let plan = self.plan();
        let stage = plan.stages().get(step.stage)?;
        let executables = self.executable.stage(step.stage);
        let rows = usize::try_from(entry.rows).ok()?;
        let frame = |piece: usize| -> &Frame { &plan.frames[stage.pieces[piece].frame.index()] };
        let mut needed = vec![NONE; stage.pieces.len()];
        if step.stage + 1 == plan.stages().len() {
            *needed.last_mut()? = rows - 1;
        }
        for (cross, piece, _) in &stage.crosses {
            if input.wanted.iter().any(|wanted| wanted.cross == *cross && !wanted.times.is_empty()) {
                needed[*piece] = rows - 1;
            }
        }
        let mut first = rows;
        for p in (0..stage.pieces.len()).rev().filter(|p| frame(*p).subject == Subject::Own) {
            let from = needed[p];
            if from >= rows {
                continue;
            }
            let begins = self.input_begins(&executables[p], rows, from);
            for (input, begin) in stage.pieces[p].program.inputs.iter().zip(begins) {
                match input {
                    Input::Read { piece, how: Read::Same, .. } if frame(*piece).subject == Subject::Own => {
                        needed[*piece] = needed[*piece].min(begin);
                    }
                    // Which bar of another symbol is read depends on so many of its own times.
                    Input::Read { how: Read::AsOf(most), .. } => {
                        first = first.min(begin.saturating_sub(*most as usize + 1));
                    }
                    // Whether a period begins depends on the bar before.
                    Input::Begins(_) => first = first.min(begin.saturating_sub(1)),
                    _ => first = first.min(begin),
                }
            }
        }
        Some(first as u64)
    }
}

/// Whether an input depends on the times of its bars.
fn is_by_time(input: &Input) -> bool {
    !matches!(input, Input::Column(_) | Input::HistoryMask)
}

impl StageRun<'_> {
    /// Fails if a needed row would read a bar that was not loaded.
    ///
    /// # Errors
    /// [`ExecuteError::Inconsistent`].
    pub(super) fn check_unread(&self, needed: &crate::evaluate::Needed) -> Result<(), ExecuteError> {
        for (p, piece) in self.stage.pieces.iter().enumerate() {
            let frame = self.frame(piece);
            for a in self.axes_of(frame) {
                let (bars, from) = (self.axes[a].bars, needed[p][a]);
                let (unread, untimed) = (bars.unread, bars.untimed);
                if untimed == 0 || from >= self.axes[a].rows(&frame.bars) {
                    continue;
                }
                let trim = match self.forgetting {
                    Some(_) => self.shortened(p, &self.axes[a], from),
                    None => self.trim(p, &self.axes[a], from),
                };
                let begins = self.executables[p].input_begins(from - trim.given).into_iter();
                let begins: Vec<usize> = begins.map(|begin| trim.there.max(trim.given + begin)).collect();
                let first = begins.iter().copied().min().unwrap_or(from);
                let by_time = piece.program.inputs.iter().zip(&begins).filter(|(input, _)| is_by_time(input));
                let first_time = by_time.map(|(_, begin)| *begin).min().unwrap_or(from).min(from);
                let symbol = &bars.symbol;
                if frame.bars != BarSize::Base || first < unread {
                    let what = format!("bar {first} of '{symbol}' is needed, and the first {unread} were not loaded");
                    return Err(ExecuteError::Inconsistent(what));
                }
                if first_time < untimed {
                    let what = format!(
                        "the time of bar {first_time} of '{symbol}' is needed, and the first {untimed} were not loaded"
                    );
                    return Err(ExecuteError::Inconsistent(what));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "newest_tests.rs"]
pub(super) mod tests;

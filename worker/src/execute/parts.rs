//! Segments with long histories, some symbols at a time: a thread reads as many as it computes side by side, into memory that it
//! used for those before. Whole groups of minutes would be cleared page by page, and have left its caches when they are computed.

use std::ops::Range;

use trawl_kernels::stages::{EngineStage, Stages};
use trawl_kernels::{Cancel, Engine};
use trawl_market::Reads;
use trawl_wire::{SegmentResult, StepInputV1};

use super::{ExecuteError, References, ScanSource, ScanStep, StepKind, StepOutput};

/// Symbols that the CPU computes side by side.
pub(super) const SIDE_BY_SIDE: usize = 16;
/// Bytes of times and values of a segment that are read at once. Of more, so many symbols are read at a time, or [`SIDE_BY_SIDE`].
pub(super) const PART_BYTES: u64 = 8 << 20;
const VALUE_BYTES: u64 = 8;

impl ScanSource {
    /// The parts of a segment, as places of its symbols, ascending in each, if it is run in several: only by the CPU, and only where
    /// nothing that parts share is computed again for each. A part has symbols with histories of similar length: from the end of the
    /// shortest to that of the longest one every bar's values are wanted, where otherwise the state of a recursive step suffices.
    pub(super) fn parts_of(&self, segment: u32, step: ScanStep, part_bytes: u64) -> Option<Vec<Vec<usize>>> {
        let plain = matches!(self.engine, Engine::Cpu) && self.checkpoints.is_none() && !self.dataset.keeps_columns();
        if !plain || step.kind != StepKind::Values || !self.plan().references().is_empty() {
            return None;
        }
        let together = self.symbols_together(segment, step, part_bytes)?;
        let mut places: Vec<(u64, usize)> =
            self.dataset.symbols_of(segment).enumerate().map(|(place, entry)| (entry.rows, place)).collect();
        places.sort_unstable();
        let part = |symbols: &[(u64, usize)]| {
            let mut part: Vec<usize> = symbols.iter().map(|(_, place)| *place).collect();
            part.sort_unstable();
            part
        };
        Some(places.chunks(together).map(part).collect())
    }

    /// The parts in which a segment is computed at every bar, as places of its symbols: as many symbols as have so many bytes of times,
    /// values and results, or [`SIDE_BY_SIDE`], so that memory does not depend on how long histories are. References are computed again
    /// for each part.
    pub fn panel_parts(&self, segment: u32, step: ScanStep, part_bytes: u64) -> Vec<Range<usize>> {
        let whole = || std::iter::once(0..usize::MAX).collect();
        let is_plain = step.kind == StepKind::Values && self.plan().references().is_empty();
        let Some(together) = is_plain.then(|| self.symbols_together(segment, step, part_bytes)).flatten() else {
            return whole();
        };
        let symbols = self.dataset.symbols_of(segment).count();
        (0..symbols).step_by(together).map(|from| from..symbols.min(from.saturating_add(together))).collect()
    }

    /// Number of symbols of a part; `None` if the segment is one.
    fn symbols_together(&self, segment: u32, step: ScanStep, part_bytes: u64) -> Option<usize> {
        let columns = self.columns_read(step).0.len() as u64 + 1;
        let (symbols, rows) = self
            .dataset
            .symbols_of(segment)
            .fold((0usize, 0u64), |(symbols, rows), entry| (symbols + 1, rows + entry.rows));
        let a_symbol = (rows / symbols.max(1) as u64).saturating_mul(columns * VALUE_BYTES).max(1);
        let fitting = usize::try_from(part_bytes / a_symbol).unwrap_or(usize::MAX);
        let together = (fitting / SIDE_BY_SIDE).max(1).saturating_mul(SIDE_BY_SIDE);
        (together < symbols).then_some(together)
    }

    /// As [`ScanSource::execute`], part by part.
    pub(super) fn execute_parts(
        &self,
        (segment, parts): (u32, Vec<Vec<usize>>),
        step: ScanStep,
        input: &StepInputV1,
        references: &References,
        cancel: &dyn Cancel,
        stages: &mut Stages,
    ) -> Result<SegmentResult, ExecuteError> {
        let joined = self.run_parts((segment, &parts), step, input, references, cancel, stages)?;
        joined.in_order_of(&parts.concat()).of(segment)
    }

    /// The output for the symbols of parts, in their order.
    pub(super) fn run_parts(
        &self,
        (segment, parts): (u32, &[Vec<usize>]),
        step: ScanStep,
        input: &StepInputV1,
        references: &References,
        cancel: &dyn Cancel,
        stages: &mut Stages,
    ) -> Result<StepOutput, ExecuteError> {
        let (_, names) = self.columns_read(step);
        let mut joined: Option<StepOutput> = None;
        let mut held = None;
        for part in parts {
            let load = || {
                // Also of a file that the cache cannot keep, there is one fetch for all parts.
                if held.is_none() {
                    let reads = Reads { columns: &names, adjustment: &self.adjustment, newest: None };
                    held = self.dataset.hold_group(segment, &reads)?;
                }
                self.load_part_for(segment, step, part)
            };
            let bars = stages.time(EngineStage::Load, 0, 0, load)?;
            let output = self.run_over(None, step, input, &bars, references, cancel, stages)?;
            joined = Some(match joined {
                None => output,
                Some(before) => before.followed_by(output)?,
            });
        }
        joined.ok_or_else(|| ExecuteError::Inconsistent("a segment without symbols".to_owned()))
    }
}

impl StepOutput {
    /// Joins the output for symbols of a segment with that for those after them.
    ///
    /// # Errors
    /// [`ExecuteError::Inconsistent`] for outputs of different kinds, of times, and of many times.
    pub fn followed_by(self, next: Self) -> Result<Self, ExecuteError> {
        Ok(match (self, next) {
            (Self::Rows(mut rows), Self::Rows(more)) => {
                rows.append(more);
                Self::Rows(rows)
            }
            (Self::Values(mut values), Self::Values(more)) if values.len() == more.len() => {
                for (values, more) in values.iter_mut().zip(more) {
                    values.values.extend(more.values);
                }
                Self::Values(values)
            }
            _ => return Err(ExecuteError::Inconsistent("parts of a segment with different outputs".to_owned())),
        })
    }

    /// Rows and values by ascending places of their symbols, which are at these.
    pub(super) fn in_order_of(self, places: &[usize]) -> Self {
        if places.is_sorted() {
            return self;
        }
        let mut order: Vec<usize> = (0..places.len()).collect();
        order.sort_unstable_by_key(|at| places[*at]);
        match self {
            // Places ascend with symbols.
            Self::Rows(rows) => Self::Rows(rows.by_symbol()),
            Self::Values(mut all) => {
                for values in &mut all {
                    let times = values.times.len();
                    let of = |at: &usize| values.values.get(at * times..(at + 1) * times).unwrap_or_default();
                    values.values = order.iter().flat_map(of).copied().collect();
                }
                Self::Values(all)
            }
            other => other,
        }
    }
}

#[cfg(test)]
#[path = "parts_tests.rs"]
mod tests;

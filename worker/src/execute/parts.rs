//! Segments with long histories, some symbols at a time: a thread reads as many as it computes side by side, into memory that it
//! used for those before. Whole groups of minutes would be cleared page by page, and have left its caches when they are computed.

use std::ops::Range;

use trawl_kernels::stages::{EngineStage, Stages};
use trawl_kernels::{Cancel, Engine};
use trawl_market::Reads;
use trawl_wire::{SegmentResult, StepInputV1};

use super::{ExecuteError, References, ScanSource, ScanStep, StepKind, StepOutput};

/// Symbols that the CPU computes side by side.
const SIDE_BY_SIDE: usize = 16;
/// Bytes of times and values of a segment that are read at once. Of more, so many symbols are read at a time, or [`SIDE_BY_SIDE`].
pub(super) const PART_BYTES: u64 = 8 << 20;
const VALUE_BYTES: u64 = 8;

impl ScanSource {
    /// The parts of a segment, as places of its symbols, if it is run in several: only by the CPU, and only where nothing that parts
    /// share is computed again for each.
    pub(super) fn parts_of(&self, segment: u32, step: ScanStep, part_bytes: u64) -> Option<Vec<Range<usize>>> {
        let plain = matches!(self.engine, Engine::Cpu) && self.checkpoints.is_none() && !self.dataset.keeps_columns();
        if !plain || step.kind != StepKind::Values || !self.plan().references().is_empty() {
            return None;
        }
        self.parts_within(segment, step, part_bytes)
    }

    /// The parts in which a segment is computed at every bar, as places of its symbols: as many symbols as have so many bytes of times,
    /// values and results, or [`SIDE_BY_SIDE`], so that memory does not depend on how long histories are. References are computed again
    /// for each part.
    pub fn panel_parts(&self, segment: u32, step: ScanStep, part_bytes: u64) -> Vec<Range<usize>> {
        let whole = || std::iter::once(0..usize::MAX).collect();
        let is_plain = step.kind == StepKind::Values && self.plan().references().is_empty();
        is_plain.then(|| self.parts_within(segment, step, part_bytes)).flatten().unwrap_or_else(whole)
    }

    fn parts_within(&self, segment: u32, step: ScanStep, part_bytes: u64) -> Option<Vec<Range<usize>>> {
        let columns = self.columns_read(step).0.len() as u64 + 1;
        let (symbols, rows) = self
            .dataset
            .symbols_of(segment)
            .fold((0usize, 0u64), |(symbols, rows), entry| (symbols + 1, rows + entry.rows));
        let a_symbol = (rows / symbols.max(1) as u64).saturating_mul(columns * VALUE_BYTES).max(1);
        let fitting = usize::try_from(part_bytes / a_symbol).unwrap_or(usize::MAX);
        let together = (fitting / SIDE_BY_SIDE).max(1).saturating_mul(SIDE_BY_SIDE);
        let parts = || (0..symbols).step_by(together).map(|from| from..symbols.min(from.saturating_add(together)));
        (together < symbols).then(|| parts().collect())
    }

    /// As [`ScanSource::execute`], part by part.
    pub(super) fn execute_parts(
        &self,
        (segment, parts): (u32, Vec<Range<usize>>),
        step: ScanStep,
        input: &StepInputV1,
        references: &References,
        cancel: &dyn Cancel,
        stages: &mut Stages,
    ) -> Result<SegmentResult, ExecuteError> {
        let (read, names) = self.columns_read(step);
        let mut joined: Option<StepOutput> = None;
        let mut held = None;
        for part in parts {
            let load = || {
                // Also of a file that the cache cannot keep, there is one fetch for all parts.
                if held.is_none() {
                    let reads = Reads { columns: &names, adjustment: &self.adjustment, newest: None };
                    held = self.dataset.hold_group(segment, &reads)?;
                }
                let mut bars = self.dataset.load_group_part(segment, &names, &self.adjustment, part)?;
                bars.iter_mut().try_for_each(|symbol| self.spread(symbol, &read))?;
                Ok::<_, ExecuteError>(bars)
            };
            let bars = stages.time(EngineStage::Load, 0, 0, load)?;
            let output = self.run_over(step, input, &bars, references, cancel, stages)?;
            joined = Some(match joined {
                None => output,
                Some(before) => before.followed_by(output)?,
            });
        }
        joined.ok_or_else(|| ExecuteError::Inconsistent("a segment without symbols".to_owned()))?.of(segment)
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
}

#[cfg(test)]
#[path = "parts_tests.rs"]
mod tests;

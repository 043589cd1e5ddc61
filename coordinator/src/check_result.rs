//! Checks that what a worker or the store gives is a result of this scan: its step, its segment, exactly its symbols.

use std::collections::BTreeMap;

use trawl_plan::Choice;
use trawl_wire::columns::View;
use trawl_wire::{Columns, CrossTimes, RowView, SegmentOutput, SegmentResult};
use trawl_worker::{ScanStep, StepKind};

use crate::prepare::PreparedScan;
use crate::scheduler::Piece;

impl PreparedScan {
    /// The rows of a result of the last step, for exactly the symbols of its segment at every point, with the plan's number of
    /// values.
    ///
    /// # Errors
    /// A message that states what is wrong with it.
    pub fn rows_of(&self, result: SegmentResult) -> Result<Columns, String> {
        match result {
            SegmentResult::Rows(columns) => {
                self.check_columns(self.whole(columns.segment()), &columns)?;
                Ok(columns)
            }
            SegmentResult::Step(result) => Err(format!("the result of segment {} has no rows", result.segment)),
        }
    }

    fn check_columns(&self, piece: Piece, columns: &Columns) -> Result<(), String> {
        let (view, segment) = (columns.view().map_err(|error| error.to_string())?, columns.segment());
        if !self.has(segment) {
            return Err(format!("segment {segment} is none of this scan's"));
        }
        let there = match self.plan.best {
            None => self.has_all(piece, view),
            Some(best) => self.keeps_the_best(best, self.piece_names(piece), &view.rows().collect::<Vec<_>>()),
        };
        if !there {
            return Err(format!("the result of segment {segment} is not about its symbols"));
        }
        let widths = (self.plan.rank.len(), self.plan.headings.len());
        if view.widths().is_some_and(|found| found != widths) {
            return Err(format!("the result of segment {segment} has another number of values"));
        }
        Ok(())
    }

    /// Whether every symbol of the piece has a row at every point, and no other has one.
    fn has_all(&self, piece: Piece, view: View<'_>) -> bool {
        let Some(names) = self.dataset.joined_names(piece.segment) else { return view.is_empty() };
        let first = (piece.first as usize).min(names.ends.len());
        let end = first.saturating_add(piece.count as usize).min(names.ends.len());
        let place = |symbols: usize| symbols.checked_sub(1).map_or(0, |last| names.ends[last]);
        let text = names.text.get(place(first) as usize..place(end) as usize);
        text.is_some_and(|text| view.is_of_all(self.plan.points.len(), text, &names.ends[first..end], place(first)))
    }

    /// Whether every symbol has rows at as many points as it keeps, in order, or one row if it has no value.
    fn keeps_the_best<'s>(&self, best: Choice, symbols: impl Iterator<Item = &'s str>, rows: &[RowView<'_>]) -> bool {
        let ordered = rows.is_sorted_by(|a, b| (a.point, a.symbol) < (b.point, b.symbol));
        let known = rows.iter().all(|r| (r.point as usize) < self.plan.points.len());
        let mut counts: BTreeMap<&str, (usize, bool)> = symbols.map(|symbol| (symbol, (0, false))).collect();
        for row in rows {
            let Some(count) = counts.get_mut(row.symbol) else { return false };
            let without = matches!(row.status, trawl_wire::Status::Stale | trawl_wire::Status::Failed);
            *count = (count.0 + 1, without);
        }
        let kept = best.keep.min(self.plan.points.len());
        ordered && known && counts.values().all(|&(count, without)| count == if without { 1 } else { kept })
    }

    /// Checks that a result has the shape of `step` for its segment.
    ///
    /// # Errors
    /// A message that states what is wrong with it.
    pub fn check_step(&self, step: ScanStep, result: &SegmentResult) -> Result<(), String> {
        self.check_piece(step, self.whole(result.segment()), result)
    }

    /// As [`Self::check_step`], for a piece of a segment.
    pub(crate) fn check_piece(&self, step: ScanStep, piece: Piece, result: &SegmentResult) -> Result<(), String> {
        let segment = result.segment();
        let last = step.stage + 1 == self.plan.stages().len() && step.kind == StepKind::Values;
        let output = match result {
            SegmentResult::Rows(columns) if last => return self.check_columns(piece, columns),
            SegmentResult::Step(_) if last => return Err(format!("the result of segment {segment} has no rows")),
            SegmentResult::Rows(_) => None,
            SegmentResult::Step(result) => Some(&result.output),
        };
        if !self.has(segment) {
            return Err(format!("segment {segment} is none of this scan's"));
        }
        let symbols = self.piece_names(piece).count();
        let known = |cross: u16| usize::from(cross) < self.plan.crosses.len();
        let fits = match (output, step.kind) {
            (Some(SegmentOutput::Times(needs)), StepKind::Times) => needs.iter().all(|n| known(n.cross)),
            (Some(SegmentOutput::Values(given)), StepKind::Values) => {
                given.iter().all(|v| known(v.cross) && v.values.len() == v.times.len() * symbols)
            }
            _ => false,
        };
        if fits { Ok(()) } else { Err(format!("the result of segment {segment} is none of this step's")) }
    }

    /// Checks that the values of a cross-section's step are of the times that were asked for.
    pub(crate) fn check_times(wanted: &[CrossTimes], result: &SegmentResult) -> Result<(), String> {
        let SegmentResult::Step(result) = result else { return Ok(()) };
        let SegmentOutput::Values(given) = &result.output else { return Ok(()) };
        let there = |want: &CrossTimes| given.iter().any(|have| have.cross == want.cross && have.times == want.times);
        // A cross-section that is not read has no times, and no values.
        match wanted.iter().find(|want| !want.times.is_empty() && !there(want)) {
            None => Ok(()),
            Some(want) => {
                let segment = result.segment;
                Err(format!(
                    "the result of segment {segment} has other times of cross-section {} than asked",
                    want.cross
                ))
            }
        }
    }
}

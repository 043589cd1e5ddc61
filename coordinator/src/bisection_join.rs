//! Joins the parts of a bisected segment, so that no other module handles parts.
//!
//! Pure. In the last step, symbols that failed get a row with status `failed`. In earlier steps, where a missing value
//! would change every symbol's values, a segment with a failed part fails.

use std::collections::BTreeMap;

use trawl_wire::{CrossTimes, CrossValues, Failure, SegmentOutput, SegmentResultV2};

use crate::merge::{FailedSegment, failed_rows};
use crate::prepare::PreparedScan;
use crate::scheduler::Piece;

/// The result of a piece.
pub(crate) type PieceResult = Result<SegmentResultV2, Failure>;

/// The parts of one scan's bisected segments; their number is bounded by the number of symbols.
#[derive(Debug, Default)]
pub(crate) struct BisectionJoin {
    segments: BTreeMap<u32, BTreeMap<Piece, PieceResult>>,
}

impl BisectionJoin {
    /// Adds the result of a piece. Returns the whole segment once all its parts are present, and again when one is
    /// replaced. `last`: whether the step returns the answer's rows.
    pub fn take(
        &mut self,
        prepared: &PreparedScan,
        piece: Piece,
        part: PieceResult,
        last: bool,
    ) -> Option<PieceResult> {
        let segment = piece.segment;
        let whole = prepared.whole(segment);
        if piece == whole {
            return Some(part);
        }
        let parts = self.segments.entry(segment).or_default();
        parts.insert(piece, part);
        if parts.keys().map(|p| u64::from(p.count)).sum::<u64>() < u64::from(whole.count) {
            return None;
        }
        let failed = parts.values().find_map(|part| part.as_ref().err());
        match failed {
            Some(failure) if !last || parts.values().all(Result::is_err) => Some(Err(failure.clone())),
            _ => Some(Ok(SegmentResultV2 { segment, output: glued(prepared, parts) })),
        }
    }
}

/// Joins parts, which are in the order of their symbols; at least one has not failed.
fn glued(prepared: &PreparedScan, parts: &BTreeMap<Piece, PieceResult>) -> SegmentOutput {
    let (mut rows, mut times, mut values) = (Vec::new(), Vec::new(), Vec::new());
    let mut kind = SegmentOutput::Rows(Vec::new());
    for (piece, part) in parts {
        match part.as_ref().map(|result| &result.output) {
            Ok(SegmentOutput::Rows(more)) => rows.extend(more.iter().cloned()),
            Ok(SegmentOutput::Times(more)) => {
                kind = SegmentOutput::Times(Vec::new());
                more.iter().for_each(|need| add_times(&mut times, need));
            }
            Ok(SegmentOutput::Values(more)) => {
                kind = SegmentOutput::Values(Vec::new());
                more.iter().for_each(|given| add_values(&mut values, given));
            }
            Err(Failure { kind, message }) => {
                let symbols = prepared.symbols_of_piece(*piece);
                let failed = FailedSegment { segment: piece.segment, symbols, kind: *kind, message: message.clone() };
                rows.extend(failed_rows(&failed, &prepared.merge_spec()).map(|row| row.to_row()));
            }
        }
    }
    match kind {
        SegmentOutput::Rows(_) => {
            rows.sort_by(|a, b| (a.point, &a.symbol).cmp(&(b.point, &b.symbol)));
            SegmentOutput::Rows(rows)
        }
        SegmentOutput::Times(_) => SegmentOutput::Times(times),
        SegmentOutput::Values(_) => SegmentOutput::Values(values),
    }
}

fn add_times(all: &mut Vec<CrossTimes>, need: &CrossTimes) {
    match all.binary_search_by_key(&need.cross, |n| n.cross) {
        Ok(at) => {
            let times = &mut all[at].times;
            times.extend(&need.times);
            times.sort_unstable();
            times.dedup();
        }
        Err(at) => all.insert(at, need.clone()),
    }
}

/// Appends values, which are grouped by symbol, at the same times in every part.
fn add_values(all: &mut Vec<CrossValues>, given: &CrossValues) {
    match all.iter_mut().find(|v| v.cross == given.cross) {
        Some(before) => before.values.extend(&given.values),
        None => all.push(given.clone()),
    }
}

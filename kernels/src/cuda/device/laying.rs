//! Lays out bars as kernels read them: rows of a group's symbols side by side.

use std::ops::Range;

use crate::SymbolInput;
use crate::cpu::PADDING;
use crate::cuda::device::arguments::{GROUP_LANES, Market};

/// Lanes whose bars are laid out side by side: a cache line of numbers of 8 bytes.
const LAID_LANES: usize = 8;
/// Rows that are laid out before those of the next lanes: 64 KiB.
const LAID_ROWS: usize = 256;

impl Market {
    /// Writes cells `first..first + to.len()` of a column, whole rows: bars, or padding. A few lanes at a time, so that whole parts of
    /// rows are written, and a few rows, so that they are in the core's cache when the next lanes follow: ADR 72 has figures.
    pub(crate) fn lay<T: Copy>(
        &self,
        symbols: &[SymbolInput<'_>],
        column: usize,
        first: usize,
        to: &mut [T],
        cell: impl Fn(f64) -> T,
    ) {
        let (first, end) = (first / GROUP_LANES, (first + to.len()) / GROUP_LANES);
        let begins = |row: usize| self.first_row.partition_point(|begin| (*begin as usize) <= row);
        let groups = begins(first).saturating_sub(1)..begins(end.saturating_sub(1)).min(self.groups());
        let lanes = self.bars_of_lanes(symbols, column, &groups);
        for (group, lanes) in groups.zip(lanes.chunks(GROUP_LANES)) {
            let begin = self.first_row[group] as usize;
            let rows = begin.max(first)..(self.first_row[group + 1] as usize).min(end);
            for at in rows.clone().step_by(LAID_ROWS) {
                let stop = (at + LAID_ROWS).min(rows.end);
                let (rows, _) = to[(at - first) * GROUP_LANES..(stop - first) * GROUP_LANES].as_chunks_mut();
                lay_rows(lanes, at - begin, rows, &cell);
            }
        }
    }

    /// The bars that a column has in each lane of some groups.
    pub(super) fn bars_of_lanes<'a>(
        &self,
        symbols: &[SymbolInput<'a>],
        column: usize,
        groups: &Range<usize>,
    ) -> Vec<&'a [f64]> {
        let mut lanes: Vec<&[f64]> = vec![&[]; groups.len() * GROUP_LANES];
        for (symbol, lane) in symbols.iter().zip(&self.lanes) {
            let known = lane.checked_sub(groups.start * GROUP_LANES).and_then(|at| lanes.get_mut(at));
            if let (Some(lane_bars), Some(series)) = (known, symbol.columns.get(column)) {
                let bars = usize::try_from(self.visible[*lane]).unwrap_or(0);
                *lane_bars = series.get(..bars).unwrap_or_default();
            }
        }
        lanes
    }
}

/// Writes rows of one group: of each lane the bars from `from` on, then padding.
fn lay_rows<T: Copy>(lanes: &[&[f64]], from: usize, rows: &mut [[T; GROUP_LANES]], cell: &impl Fn(f64) -> T) {
    for (first, lanes) in (0..).step_by(LAID_LANES).zip(lanes.as_chunks::<LAID_LANES>().0) {
        let bars = lanes.map(|bars| bars.get(from..).unwrap_or_default());
        let (all, some) = rows.split_at_mut(bars.iter().map(|bars| bars.len()).min().unwrap_or(0).min(rows.len()));
        let of_all = bars.map(|bars| &bars[..all.len()]);
        for (at, row) in all.iter_mut().enumerate() {
            for (to, bars) in row[first..first + LAID_LANES].iter_mut().zip(&of_all) {
                *to = cell(bars[at]);
            }
        }
        let done = all.len();
        for (lane, bars) in (first..).zip(bars) {
            let rest = bars[done..].iter().copied().chain(std::iter::repeat(PADDING));
            some.iter_mut().zip(rest).for_each(|(row, x)| row[lane] = cell(x));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cuda::device::arguments::Laid;

    proptest! {
        /// Whatever the pieces: several go to the device one after the other, by several threads.
        #[test]
        fn each_bar_is_laid_in_its_lane_and_the_rest_is_padding(
            groups in prop::collection::vec(prop::collection::vec(0usize..700, 1..=GROUP_LANES), 1..5),
            piece in 1usize..900,
            whole in any::<bool>(),
        ) {
            let bars: Vec<Vec<Vec<f64>>> = groups.iter().enumerate().map(|(group, symbols)| {
                symbols.iter().enumerate().map(|(lane, bars)| {
                    (0..*bars).map(|bar| (group * 100_000_000 + lane * 1_000_000 + bar) as f64).collect()
                }).collect()
            }).collect();
            let visible = |bars: usize| if whole { bars } else { bars.div_ceil(3) };
            let inputs: Vec<Vec<SymbolInput<'_>>> = bars.iter().map(|group| {
                group.iter().map(|bars| SymbolInput { columns: vec![&[][..], bars], visible: visible(bars.len()) }).collect()
            }).collect();
            let laid = if whole { Laid::Whole } else { Laid::Visible };
            let market = Market::of_groups_by(inputs.iter().map(|group| (group.as_slice(), laid)));
            let mut expected = vec![PADDING.to_bits(); market.rows() * GROUP_LANES];
            for (group, symbols) in bars.iter().enumerate() {
                for (lane, series) in symbols.iter().enumerate() {
                    for (bar, x) in series[..visible(series.len())].iter().enumerate() {
                        expected[(market.first_row[group] as usize + bar) * GROUP_LANES + lane] = x.to_bits();
                    }
                }
            }
            let symbols: Vec<SymbolInput<'_>> = inputs.concat();
            // Whatever was in the memory before.
            let mut found = vec![7u64; expected.len()];
            for (at, to) in found.chunks_mut(piece * GROUP_LANES).enumerate() {
                market.lay(&symbols, 1, at * piece * GROUP_LANES, to, f64::to_bits);
            }
            prop_assert!(found == expected);
            let mut single = vec![7f32; expected.len()];
            market.lay(&symbols, 1, 0, &mut single, |x| x as f32);
            prop_assert!(single.iter().zip(&expected).all(|(x, y)| x.to_bits() == (f64::from_bits(*y) as f32).to_bits()));
            let mut missing = vec![7u64; expected.len()];
            market.lay(&symbols, 0, 0, &mut missing, f64::to_bits);
            prop_assert!(missing.iter().all(|cell| *cell == PADDING.to_bits()));
        }
    }
}

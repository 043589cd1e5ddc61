//! Order statistics of a window.

use std::ops::Range;

use crate::cpu::primitives::rolling_sums::window_start;
use crate::cpu::simd::state_io::carries_nothing;
use crate::cpu::simd::vector::{LANES, Out, Row, Step, View};

/// The `rank`-th smallest value of the window, which is kept sorted lane by lane: a value enters and one leaves by
/// binary search. Values are only moved, so results do not depend on where evaluation began.
pub(crate) struct Ranked {
    p: usize,
    rank: usize,
    /// The defined values of the window, ascending.
    sorted: [Vec<f64>; LANES],
    next: usize,
}

impl Ranked {
    /// `rank` is from 1 to `p`.
    pub fn new(p: u32, rank: u32) -> Self {
        Self { p: p as usize, rank: rank as usize, sorted: std::array::from_fn(|_| Vec::new()), next: usize::MAX }
    }
}

/// Normalises -0.0 to 0.0: the order of two zeros would otherwise depend on the history.
fn ordered(x: f64) -> f64 {
    x + 0.0
}

fn enter(sorted: &mut Vec<f64>, x: f64) {
    if x.is_finite() {
        let x = ordered(x);
        let at = sorted.partition_point(|y| *y <= x);
        sorted.insert(at, x);
    }
}

fn leave(sorted: &mut Vec<f64>, x: f64) {
    if x.is_finite() {
        let x = ordered(x);
        let at = sorted.partition_point(|y| *y < x);
        if at < sorted.len() {
            sorted.remove(at);
        }
    }
}

impl Step for Ranked {
    carries_nothing!();

    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let (input, p) = (&inputs[0], self.p);
        if rows.start != self.next {
            self.sorted.iter_mut().for_each(Vec::clear);
            let known = window_start(rows.start, p)..rows.start;
            for row in known.map(|j| input.row(j)) {
                for (lane, sorted) in self.sorted.iter_mut().enumerate() {
                    if row.0[lane].is_finite() {
                        sorted.push(ordered(row.0[lane]));
                    }
                }
            }
            self.sorted.iter_mut().for_each(|sorted| sorted.sort_unstable_by(f64::total_cmp));
        }
        for t in rows.clone() {
            // The value that leaves was removed at the end of the previous bar, so that the step reads no further back
            // than the window.
            let now = input.row(t);
            let row = Row::NA.map(|lane, _| {
                let sorted = &mut self.sorted[lane];
                enter(sorted, now.0[lane]);
                if sorted.len() == p { sorted[self.rank - 1] } else { f64::NAN }
            });
            out.set(t, row);
            if t + 1 >= p {
                let oldest = input.row(t + 1 - p);
                for (lane, sorted) in self.sorted.iter_mut().enumerate() {
                    leave(sorted, oldest.0[lane]);
                }
            }
        }
        self.next = rows.end;
    }
}

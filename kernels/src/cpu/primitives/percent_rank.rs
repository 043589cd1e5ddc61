//! Windows that are read in full at every bar: cost grows with the period; there is no drift and no state.

use std::ops::Range;

use crate::cpu::simd::float::Real;
use crate::cpu::simd::pack::Pack;
use crate::cpu::simd::state_io::carries_nothing;
use crate::cpu::simd::vector::{Kernel, Out, RowOf, View};

/// Bars whose windows are traversed together, so that shared values are loaded once.
const TOGETHER: usize = 4;

/// 0 of a defined value, NaN of any other.
#[inline(always)]
#[expect(clippy::eq_op, reason = "an infinity less itself is NaN")]
fn gap<T: Real, V: Pack<T>>(x: V) -> V {
    x - x
}

/// Share of the `p` values before the current one that are below it, in percent.
pub(crate) struct PercentRank {
    pub p: usize,
}

impl<T: Real> Kernel<T> for PercentRank {
    carries_nothing!();

    #[inline(always)]
    fn run<V: Pack<T>>(&mut self, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>) {
        let defined = rows.start.max(self.p).min(rows.end);
        for t in rows.start..defined {
            outs[0].from(t)[0] = RowOf::NA;
        }
        let mut t = defined;
        while t < rows.end {
            if t + TOGETHER <= rows.end && self.p >= TOGETHER {
                self.bars::<T, V, TOGETHER>(&inputs[0], &mut outs[0], t);
                t += TOGETHER;
            } else {
                self.bars::<T, V, 1>(&inputs[0], &mut outs[0], t);
                t += 1;
            }
        }
    }
}

impl PercentRank {
    /// Bars `t..t + K`, `K` at most the period.
    #[inline(always)]
    fn bars<T: Real, V: Pack<T>, const K: usize>(&self, input: &View<'_, T>, out: &mut Out<'_, T>, t: usize) {
        let mut now = [V::zero(); K];
        // Counts; where a value of the window is not defined, NaN.
        let mut below = [V::zero(); K];
        for (k, now) in now.iter_mut().enumerate() {
            *now = V::load(input.at(t + k));
        }
        // Oldest first: bars in some of the windows, bars in all of them, and again bars in some.
        let first = t - self.p;
        for j in 0..K - 1 {
            let x = V::load(input.at(first + j));
            for k in 0..=j {
                below[k] = below[k] + (V::truth(x.lt(now[k])) + gap::<T, V>(x));
            }
        }
        let mut undefined = V::zero();
        let mut j = first + K - 1;
        while j < t {
            let from = input.from(j);
            let n = from.len().min(t - j);
            for x in &from[..n] {
                let x = V::load(x);
                undefined = undefined + gap::<T, V>(x);
                for k in 0..K {
                    below[k] = below[k] + V::truth(x.lt(now[k]));
                }
            }
            j += n;
        }
        for j in 0..K - 1 {
            for k in j + 1..K {
                below[k] = below[k] + (V::truth(now[j].lt(now[k])) + gap::<T, V>(now[j]));
            }
        }
        for k in 0..K {
            let below = below[k] + undefined + gap::<T, V>(now[k]);
            (below / V::of(self.p as f64) * V::of(100.0)).store(&mut out.from(t + k)[0]);
        }
    }
}

//! Window maxima and minima, and conditions over a window: comparisons only, no rounding.

use std::ops::Range;

use crate::cpu::primitives::rolling_sums::{tail_bars, window_start};
use crate::cpu::simd::float::Real;
use crate::cpu::simd::pack::Pack;
use crate::cpu::simd::state_io::carries_nothing;
use crate::cpu::simd::vector::{Kernel, LANES, Out, Row, RowOf, Step, View};

/// Window maximum, or with `LOWEST` minimum: extremes from the window's start to the last block border (`tail`, one row
/// an offset) and from there to now (`head`), in blocks of `p` bars: three comparisons per bar whatever the period.
pub(crate) struct Extreme<T, const LOWEST: bool> {
    p: usize,
    tail: Vec<RowOf<T>>,
    head: RowOf<T>,
    next: usize,
}

impl<T: Real, const LOWEST: bool> Extreme<T, LOWEST> {
    pub fn new(p: u32, bars: usize) -> Self {
        let p = p as usize;
        Self { p, tail: vec![RowOf::NA; tail_bars(p, bars)], head: RowOf::NA, next: usize::MAX }
    }

    /// The neutral element of the comparison.
    #[inline(always)]
    fn least<V: Pack<T>>() -> V {
        if LOWEST { V::splat(T::INFINITY) } else { V::splat(-T::INFINITY) }
    }

    /// The more extreme of both. Unless `CLEAN`, NA where one is NA.
    #[inline(always)]
    fn further<V: Pack<T>, const CLEAN: bool>(a: V, b: V) -> V {
        let further = if LOWEST { a.smaller(b) } else { a.larger(b) };
        if CLEAN { further } else { V::select(a.is_nan(), a, further) }
    }

    #[inline(always)]
    fn value<V: Pack<T>, const CLEAN: bool>(row: &RowOf<T>) -> V {
        if CLEAN { V::load(row) } else { V::load(row).defined() }
    }

    /// `CLEAN`: every window of `rows` is known to hold finite values alone.
    #[inline(always)]
    fn part<V: Pack<T>, const CLEAN: bool>(
        &mut self,
        input: &View<'_, T>,
        out: &mut Out<'_, T>,
        rows: Range<usize>,
        mut fresh: bool,
    ) {
        let p = self.p;
        let mut t = rows.start;
        while t < rows.end {
            let offset = t % p;
            let block = t - offset;
            if offset == 0 || fresh {
                fresh = false;
                let mut extreme = Self::least::<V>();
                for j in (window_start(t, p)..block).rev() {
                    extreme = Self::further::<V, CLEAN>(extreme, Self::value::<V, CLEAN>(input.at(j)));
                    extreme.store(&mut self.tail[j + p - block]);
                }
                if block == 0 {
                    // No bars before the first: such windows are NA.
                    self.tail.fill(RowOf::NA);
                }
                if let Some(whole) = self.tail.get_mut(p) {
                    Self::least::<V>().store(whole);
                }
                let mut head = Self::least::<V>();
                for j in block..t {
                    head = Self::further::<V, CLEAN>(head, Self::value::<V, CLEAN>(input.at(j)));
                }
                head.store(&mut self.head);
            }
            let (from, out) = (input.from(t), out.from(t));
            let n = (p - offset).min(rows.end - t).min(from.len()).min(out.len());
            let tail = &self.tail[offset + 1..][..n];
            let mut head = V::load(&self.head);
            for ((x, tail), out) in from[..n].iter().zip(tail).zip(&mut out[..n]) {
                head = Self::further::<V, CLEAN>(head, Self::value::<V, CLEAN>(x));
                Self::further::<V, CLEAN>(V::load(tail), head).store(out);
            }
            head.store(&mut self.head);
            t += n;
        }
    }
}

impl<T: Real, const LOWEST: bool> Kernel<T> for Extreme<T, LOWEST> {
    carries_nothing!();

    #[inline(always)]
    fn run<V: Pack<T>>(&mut self, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>) {
        let [out] = outs else { return };
        let fresh = rows.start != self.next;
        self.next = rows.end;
        let clean_from = inputs[0].defined_from().saturating_add(self.p - 1).clamp(rows.start, rows.end);
        if clean_from > rows.start {
            self.part::<V, false>(&inputs[0], out, rows.start..clean_from, fresh);
        }
        self.part::<V, true>(&inputs[0], out, clean_from..rows.end, fresh && clean_from == rows.start);
    }
}

/// Kleene or (`wanted` 1) or and (`wanted` 0) of the last `p` bars: `wanted` if one of them is; otherwise NA if one is
/// NA (bars before the first are); otherwise the opposite.
pub(crate) struct Fold {
    p: usize,
    wanted: f64,
    last_wanted: Row,
    last_na: Row,
    next: usize,
}

impl Fold {
    pub fn within(p: u32) -> Self {
        Self::new(p, 1.0)
    }

    pub fn streak(p: u32) -> Self {
        Self::new(p, 0.0)
    }

    fn new(p: u32, wanted: f64) -> Self {
        Self { p: p as usize, wanted, last_wanted: Row::NA, last_na: Row::NA, next: usize::MAX }
    }

    #[inline(always)]
    fn see(&mut self, t: usize, row: &Row) {
        let now = t as f64;
        for lane in 0..LANES {
            let x = row.0[lane];
            self.last_wanted.0[lane] = if x == self.wanted { now } else { self.last_wanted.0[lane] };
            self.last_na.0[lane] = if x.is_nan() { now } else { self.last_na.0[lane] };
        }
    }
}

impl Step for Fold {
    carries_nothing!();

    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let p = self.p as f64;
        if rows.start != self.next {
            self.last_wanted = Row([f64::NEG_INFINITY; LANES]);
            self.last_na = Row([-1.0; LANES]);
            for t in window_start(rows.start, self.p)..rows.start {
                self.see(t, &inputs[0].row(t));
            }
        }
        self.next = rows.end;
        for t in rows {
            self.see(t, &inputs[0].row(t));
            let (now, wanted) = (t as f64, self.wanted);
            let na = self.last_na;
            out.set(
                t,
                self.last_wanted.map(|lane, last| {
                    let otherwise = if now - na.0[lane] < p { f64::NAN } else { 1.0 - wanted };
                    if now - last < p { wanted } else { otherwise }
                }),
            );
        }
    }
}

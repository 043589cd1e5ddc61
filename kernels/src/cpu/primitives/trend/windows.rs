//! Averages of nested windows: linearly weighted (WMA), Hull's (HMA), the end of the least-squares line (LSMA).
//!
//! With d_k the difference of the value k bars ago to the current one, let S(L) = d_1 + ... + d_(L-1), and let T(L) be the
//! sum of S(2) to S(L). The weighted mean of L bars is the current value + T/(L(L+1)/2); the end of the line is the current
//! value + (6T - 2(L+1)S)/(L(L+1)). One walk back in time gives both for every L.

use std::ops::Range;

use trawl_plan::family::Trend;

use super::{Recent, TrendMean};
use crate::cpu::simd::float::Real;
use crate::cpu::simd::pack::Pack;
use crate::cpu::simd::state_io::carries_nothing;
use crate::cpu::simd::vector::{Kernel, Out, RowOf, View};

/// A length at which the walk stops.
struct Stop {
    len: usize,
    /// Whether the weighted mean is needed: by an output or by Hull's average.
    weighted: bool,
    wma: Option<usize>,
    lsma: Option<usize>,
}

/// One of Hull's averages.
struct Hull<T> {
    out: usize,
    /// Stops of its two windows.
    half: usize,
    whole: usize,
    smooth: usize,
    /// The series to be smoothed; bar t is at index t mod length.
    raw: Vec<RowOf<T>>,
}

pub(crate) struct Windows<T> {
    /// By length, ascending.
    stops: Vec<Stop>,
    hulls: Vec<Hull<T>>,
    recent: Recent<T>,
    /// Weighted means of the current bar, by stop.
    means: Vec<RowOf<T>>,
    next: usize,
}

impl<T: Real> Windows<T> {
    /// Over at most `bars` bars.
    pub fn new(averages: &[TrendMean], bars: usize) -> Self {
        let mut lens: Vec<usize> = averages.iter().map(|m| m.bars()).collect();
        let hulls = || averages.iter().enumerate().filter(|(_, m)| m.family == Trend::Hma);
        lens.extend(hulls().map(|(_, m)| m.hull_half()));
        lens.sort_unstable();
        lens.dedup();
        let out = |family, len| averages.iter().position(|m| m.family == family && m.bars() == len);
        let stop = |&len: &usize| Stop {
            len,
            weighted: out(Trend::Wma, len).is_some() || hulls().any(|(_, m)| [m.bars(), m.hull_half()].contains(&len)),
            wma: out(Trend::Wma, len),
            lsma: out(Trend::Lsma, len),
        };
        let stops: Vec<Stop> = lens.iter().map(stop).collect();
        let at = |len| lens.iter().position(|l| *l == len).unwrap_or(0);
        let hull = |(out, m): (usize, &TrendMean)| Hull {
            out,
            half: at(m.hull_half()),
            whole: at(m.bars()),
            smooth: m.hull_smooth(),
            raw: vec![RowOf::NA; m.hull_smooth().min(bars.max(1)).next_power_of_two()],
        };
        let hulls: Vec<Hull<T>> = hulls().map(hull).collect();
        let back = lens.last().map_or(0, |len| (len - 1).min(bars));
        let means = vec![RowOf::NA; stops.len()];
        Self { stops, hulls, recent: Recent::new(back), means, next: usize::MAX }
    }

    /// Computes the means of bar `at` and writes them to `outs` at bar `t`, if given.
    #[inline(always)]
    fn walk<V: Pack<T>>(&mut self, at: usize, outs: Option<(&mut [Out<'_, T>], usize)>) {
        let until = self.recent.until(at);
        let (x, before) = match until.split_last() {
            Some((x, before)) => (V::load(x), before),
            None => return,
        };
        let (mut sum, mut sums) = (V::zero(), V::zero());
        let mut older = before.iter().rev();
        let mut age = 1;
        let mut outs = outs;
        for (stop, mean) in self.stops.iter().zip(&mut self.means) {
            for row in older.by_ref().take(stop.len - age) {
                sum = sum + (V::load(row) - x);
                sums = sums + sum;
            }
            age = stop.len;
            let len = stop.len as f64;
            // Longer than any history.
            let there = stop.len <= until.len();
            if stop.weighted {
                let weighted = x + sums / V::of(len * (len + 1.0) / 2.0);
                let weighted = if there { weighted.defined() } else { V::na() };
                weighted.store(mean);
                if let (Some(out), Some((outs, t))) = (stop.wma, &mut outs) {
                    weighted.store(&mut outs[out].from(*t)[0]);
                }
            }
            if let (Some(out), Some((outs, t))) = (stop.lsma, &mut outs) {
                let line = (sums * V::of(6.0) - sum * V::of(2.0 * (len + 1.0))) / V::of(len * (len + 1.0));
                // No line goes through one point.
                let line = if there && stop.len > 1 { (x + line).defined() } else { V::na() };
                line.store(&mut outs[out].from(*t)[0]);
            }
        }
    }
}

impl<T: Real> Hull<T> {
    /// The value of bar `t`, whose two means are there.
    #[inline(always)]
    fn next<V: Pack<T>>(&mut self, means: &[RowOf<T>], t: usize) -> V {
        let mask = self.raw.len() - 1;
        let raw = V::of(2.0) * V::load(&means[self.half]) - V::load(&means[self.whole]);
        raw.store(&mut self.raw[t & mask]);
        if t + 1 < self.smooth {
            return V::na();
        }
        let (mut sum, mut sums) = (V::zero(), V::zero());
        for age in 1..self.smooth {
            sum = sum + (V::load(&self.raw[(t - age) & mask]) - raw);
            sums = sums + sum;
        }
        let smooth = self.smooth as f64;
        (raw + sums / V::of(smooth * (smooth + 1.0) / 2.0)).defined()
    }
}

impl<T: Real> Kernel<T> for Windows<T> {
    carries_nothing!();

    #[inline(always)]
    fn run<V: Pack<T>>(&mut self, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>) {
        if rows.start != self.next {
            // Fill the smoothing windows from the bars before.
            let warm = self.hulls.iter().map(|h| h.smooth - 1).max().unwrap_or(0).min(rows.start);
            self.hulls.iter_mut().for_each(|h| h.raw.fill(RowOf::NA));
            let mut t = rows.start - warm;
            while t < rows.start {
                let end = rows.start.min(t + T::STRIP_BARS);
                self.recent.take::<V>(&inputs[0], t, end);
                for at in 0..end - t {
                    self.walk::<V>(at, None);
                    for hull in &mut self.hulls {
                        hull.next::<V>(&self.means, t + at);
                    }
                }
                t = end;
            }
        }
        self.next = rows.end;
        self.recent.take::<V>(&inputs[0], rows.start, rows.end);
        for t in rows.clone() {
            self.walk::<V>(t - rows.start, Some((&mut *outs, t)));
            for hull in &mut self.hulls {
                hull.next::<V>(&self.means, t).store(&mut outs[hull.out].from(t)[0]);
            }
        }
    }
}

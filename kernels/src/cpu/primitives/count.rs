//! On how many of the last bars a comparison of two series held, without a series of the comparison.
//!
//! The numbers that are added are 0 and 1, so every order of adding them gives the same bits, and a value that leaves
//! the window may be subtracted: the sum of the comparison's series, in blocks as in `rolling_sums`, is the same. A
//! window of thousands of bars is then read once, from the two series, which settings of a sweep share.

use std::ops::Range;

use trawl_plan::ast::CompareOp;

use crate::cpu::primitives::rolling_sums::window_start;
use crate::cpu::simd::float::Real;
use crate::cpu::simd::pack::Pack;
use crate::cpu::simd::state_io::carries_nothing;
use crate::cpu::simd::vector::{Kernel, Out, RowOf, View};

/// Longest window that is counted: every smaller whole number is exact in `f32` too.
pub(crate) const COUNTED_BARS_MAX: u32 = 1 << 24;

/// What is counted, of series a and b; NA where one of them is NA or infinite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    Compare(CompareOp),
    /// a > b, and a <= b one bar ago.
    CrossesAbove,
    /// The same with a and b exchanged.
    CrossesBelow,
}

impl Counted {
    /// Bars before the current one that it reads.
    pub fn reads_back(self) -> usize {
        match self {
            Self::Compare(_) => 0,
            Self::CrossesAbove | Self::CrossesBelow => 1,
        }
    }
}

/// What is known of a bar: by it the bar itself and the next one are decided.
#[derive(Clone, Copy)]
pub(crate) struct Seen<M> {
    /// The comparison.
    now: M,
    /// What has to hold at a bar for a crossing at the next one.
    before: M,
    finite: M,
}

/// A comparison of a and b.
pub(crate) trait Condition: Send {
    /// Whether the bar before decides too.
    const CROSSES: bool;

    fn see<T: Real, V: Pack<T>>(&self, a: V, b: V) -> Seen<V::Mask>;
}

/// Declares comparisons: name, whether it is a crossing, what holds now, and before.
macro_rules! conditions {
    ($($name:ident, $crosses:literal, |$a:ident, $b:ident| $now:expr, $before:expr;)+) => {$(
        pub(crate) struct $name;
        impl Condition for $name {
            const CROSSES: bool = $crosses;

            #[inline(always)]
            fn see<T: Real, V: Pack<T>>(&self, $a: V, $b: V) -> Seen<V::Mask> {
                Seen { now: $now, before: $before, finite: $a.is_finite() & $b.is_finite() }
            }
        }
    )+};
}

conditions! {
    Less, false, |a, b| a.lt(b), a.lt(b);
    LessEqual, false, |a, b| a.le(b), a.le(b);
    Greater, false, |a, b| b.lt(a), b.lt(a);
    GreaterEqual, false, |a, b| b.le(a), b.le(a);
    Equal, false, |a, b| a.eq(b), a.eq(b);
    NotEqual, false, |a, b| a.lt(b) | b.lt(a), a.lt(b) | b.lt(a);
    Above, true, |a, b| b.lt(a), a.le(b);
    Below, true, |a, b| a.lt(b), b.le(a);
}

/// Counts over windows of `p` bars. Inputs a, b.
pub(crate) struct Count<T, C> {
    p: usize,
    condition: C,
    /// Over the window of the next bar, without that bar: bars on which the condition held, and was NA.
    held: RowOf<T>,
    missing: RowOf<T>,
    next: usize,
}

impl<T: Real, C: Condition> Count<T, C> {
    pub fn new(condition: C, p: u32) -> Self {
        Self { p: p as usize, condition, held: RowOf::ZERO, missing: RowOf::ZERO, next: usize::MAX }
    }

    #[inline(always)]
    fn seen<V: Pack<T>>(&self, [a, b]: [&View<'_, T>; 2], t: usize) -> Seen<V::Mask> {
        self.condition.see::<T, V>(V::load(a.at(t)), V::load(b.at(t)))
    }

    /// What is known of the bar before `t`; nothing for a comparison, and before the first bar.
    #[inline(always)]
    fn before<V: Pack<T>>(&self, views: [&View<'_, T>; 2], t: usize) -> Seen<V::Mask> {
        match t.checked_sub(1) {
            Some(before) if C::CROSSES => self.seen::<V>(views, before),
            _ => self.condition.see::<T, V>(V::na(), V::na()),
        }
    }

    /// 1 where the condition holds at a bar, and 1 where it is NA.
    #[inline(always)]
    fn truth<V: Pack<T>>(now: Seen<V::Mask>, before: Seen<V::Mask>) -> [V; 2] {
        let (holds, finite) = match C::CROSSES {
            true => (now.now & before.before, now.finite & before.finite),
            false => (now.now, now.finite),
        };
        // Comparisons with NaN do not hold, those with an infinity might.
        [V::truth(holds & finite), V::select(finite, V::zero(), V::of(1.0))]
    }
}

impl<T: Real, C: Condition> Kernel<T> for Count<T, C> {
    carries_nothing!();

    #[inline(always)]
    fn run<V: Pack<T>>(&mut self, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>) {
        let (views, p) = ([&inputs[0], &inputs[1]], self.p);
        let (mut held, mut missing) = (V::load(&self.held), V::load(&self.missing));
        if rows.start != self.next {
            (held, missing) = (V::zero(), V::zero());
            let first = window_start(rows.start, p);
            let mut before = self.before::<V>(views, first);
            for t in first..rows.start {
                let now = self.seen::<V>(views, t);
                let [holds, na] = Self::truth::<V>(now, before);
                (held, missing) = (held + holds, missing + na);
                before = now;
            }
        }
        self.next = rows.end;
        let mut before = self.before::<V>(views, rows.start);
        // What leaves the window, one bar after the other.
        let mut left = self.before::<V>(views, window_start(rows.start, p));
        for t in rows {
            let now = self.seen::<V>(views, t);
            let [holds, na] = Self::truth::<V>(now, before);
            (held, missing) = (held + holds, missing + na);
            before = now;
            let out = &mut outs[0].from(t)[0];
            // Bars before the first are NA.
            if t + 1 < p {
                *out = RowOf::NA;
                continue;
            }
            held.only(missing.eq(V::zero())).store(out);
            let leaving = self.seen::<V>(views, t + 1 - p);
            let [holds, na] = Self::truth::<V>(leaving, left);
            (held, missing) = (held - holds, missing - na);
            left = leaving;
        }
        held.store(&mut self.held);
        missing.store(&mut self.missing);
    }
}

//! On how many of the last bars a comparison of two series held, without a series of the comparison.
//!
//! The numbers that are added are 0 and 1, so every order of adding them gives the same bits, and a value that leaves
//! the window may be subtracted: the sum of the comparison's series, in blocks as in `rolling_sums`, is the same.
//!
//! Along a history, a count begins a window before its first wanted bar and takes bar after bar: the two series, which
//! settings of a sweep share, stay in the cache of a core, where a window of thousands of bars would not. What leaves the
//! window is then known from one bit a lane. In tiles that stay in memory, where no bar comes before the first one, it
//! reads the whole window once instead.

use std::ops::Range;

use trawl_plan::ast::CompareOp;

use crate::cpu::primitives::rolling_sums::window_start;
use crate::cpu::simd::float::Real;
use crate::cpu::simd::pack::{LaneBits, Mask, Pack};
use crate::cpu::simd::state_io::carries_nothing;
use crate::cpu::simd::vector::{Kernel, Out, RowOf, UNLIMITED, View};

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

/// Bars of a window on which the condition held, and on which it was NA.
#[derive(Debug, Clone, Copy, Default)]
struct Truths {
    held: LaneBits,
    missing: LaneBits,
}

/// Bytes of the truths that a count over `p` bars of a history of `bars` bars keeps at most.
pub(crate) fn count_bytes(p: usize, bars: usize) -> usize {
    kept(p, 0, bars) * size_of::<Truths>()
}

/// Bars whose truths are kept at a time by a count that begins at bar `first`: those that leave the window before the history
/// ends.
fn kept(p: usize, first: usize, bars: usize) -> usize {
    p.min(bars.saturating_sub(first.saturating_add(p)))
}

/// Counts over windows of `p` bars. Inputs a, b.
pub(crate) struct Count<T, C> {
    p: usize,
    condition: C,
    /// Number of bars of a history; [`UNLIMITED`] in a tile that stays in memory.
    bars: usize,
    /// The bar from which on it counts.
    first: usize,
    /// Over the window of the next bar, without that bar: bars on which the condition held, and was NA.
    held: RowOf<T>,
    missing: RowOf<T>,
    /// Along a history, the truths of the bars that will leave the window, a ring from bar `first` on.
    window: Vec<Truths>,
    next: usize,
}

impl<T: Real, C: Condition> Count<T, C> {
    pub fn new(condition: C, p: u32, bars: usize) -> Self {
        let (held, missing) = (RowOf::ZERO, RowOf::ZERO);
        Self { p: p as usize, condition, bars, first: 0, held, missing, window: Vec::new(), next: usize::MAX }
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

    /// Where the condition holds at a bar, and where it is defined.
    #[inline(always)]
    fn truth<V: Pack<T>>(now: Seen<V::Mask>, before: Seen<V::Mask>) -> [V::Mask; 2] {
        let (holds, finite) = match C::CROSSES {
            true => (now.now & before.before, now.finite & before.finite),
            false => (now.now, now.finite),
        };
        // Comparisons with NaN do not hold, those with an infinity might.
        [holds & finite, finite]
    }

    /// Begins with the window of the bar before `rows`, which is read, or along a history with nothing.
    #[inline(always)]
    fn begin<V: Pack<T>>(&mut self, views: [&View<'_, T>; 2], start: usize) {
        let (mut held, mut missing) = (V::zero(), V::zero());
        let one = V::of(1.0);
        if self.bars == UNLIMITED {
            let first = window_start(start, self.p);
            let mut before = self.before::<V>(views, first);
            for t in first..start {
                let now = self.seen::<V>(views, t);
                let [holds, finite] = Self::truth::<V>(now, before);
                (held, missing) = (held.counted(holds, one), missing + V::select(finite, V::zero(), one));
                before = now;
            }
        } else {
            self.first = start;
            self.window.resize(kept(self.p, start, self.bars), Truths::default());
        }
        held.store(&mut self.held);
        missing.store(&mut self.missing);
    }

    /// Whether a bar leaves the window before the history ends.
    fn leaves(&self, t: usize) -> bool {
        t.saturating_add(self.p) < self.bars
    }

    /// Counts bars up to `end`, as long as their windows are not whole, none of them leaves one, and all values of a and b are
    /// finite. Returns the bar after the last one that was counted.
    #[inline(always)]
    fn count_finite<V: Pack<T>>(
        &mut self,
        [a, b]: [&View<'_, T>; 2],
        out: &mut Out<'_, T>,
        Range { start: t, end }: Range<usize>,
    ) -> usize {
        let end = end.min((self.first + self.p).saturating_sub(1));
        if t >= end || self.leaves(t) {
            return t;
        }
        let before = self.before::<V>([a, b], t);
        if C::CROSSES && !before.finite.all() {
            return t;
        }
        let (a, b) = (a.from(t), b.from(t));
        let n = (end - t).min(a.len()).min(b.len());
        let (mut held, one) = (V::load(&self.held), V::of(1.0));
        let (mut last, mut total) = (before.now, V::zero());
        for (a, b) in a[..n].iter().zip(&b[..n]) {
            let (a, b) = (V::load(a), V::load(b));
            // Not finite if one of the values is not.
            total = total + (a - b);
            let now = self.condition.see::<T, V>(a, b).now;
            // Of finite values, what must hold before a crossing is the opposite of what holds after it.
            held = held.counted(if C::CROSSES { now.and_not(last) } else { now }, one);
            last = now;
        }
        if !total.is_finite().all() {
            return t;
        }
        held.store(&mut self.held);
        // Nobody reads what comes before the first wanted bar, which is before a whole window only at a history's beginning.
        if self.first == 0 {
            (t..t + n).for_each(|t| out.set(t, RowOf::NA));
        }
        t + n
    }

    /// Counts the bars of a strip one by one.
    #[inline(always)]
    fn count_each<V: Pack<T>>(&mut self, views: [&View<'_, T>; 2], out: &mut Out<'_, T>, rows: Range<usize>) {
        let p = self.p;
        let (mut held, mut missing, one) = (V::load(&self.held), V::load(&self.missing), V::of(1.0));
        let mut before = self.before::<V>(views, rows.start);
        let resident = self.bars == UNLIMITED;
        // What leaves the window, one bar after the other.
        let mut left = self.before::<V>(views, if resident { window_start(rows.start, p) } else { 0 });
        for t in rows {
            let now = self.seen::<V>(views, t);
            let [holds, finite] = Self::truth::<V>(now, before);
            (held, missing) = (held.counted(holds, one), missing + V::select(finite, V::zero(), one));
            before = now;
            // Bars before the first are NA.
            let whole = t + 1 >= p;
            let row = if whole { held.only(missing.eq(V::zero())) } else { V::na() };
            row.store(&mut out.from(t)[0]);
            let leaving = if resident {
                whole.then(|| {
                    let leaving = self.seen::<V>(views, t + 1 - p);
                    let [holds, finite] = Self::truth::<V>(leaving, left);
                    left = leaving;
                    [V::truth(holds), V::select(finite, V::zero(), one)]
                })
            } else {
                let ring = self.window.len();
                if self.leaves(t) {
                    self.window[(t - self.first) % ring] = Truths { held: holds.bits(), missing: !finite.bits() };
                }
                // Which bar leaves, if it was counted.
                let leaving = (t + 1).checked_sub(self.first + p).filter(|_| self.leaves(t + 1 - p));
                leaving.map(|leaving| {
                    let Truths { held, missing } = self.window[leaving % ring];
                    [held, missing].map(|bits| V::truth(<V::Mask as Mask>::of_bits(bits)))
                })
            };
            if let Some([holds, na]) = leaving {
                (held, missing) = (held - holds, missing - na);
            }
        }
        held.store(&mut self.held);
        missing.store(&mut self.missing);
    }
}

impl<T: Real, C: Condition> Kernel<T> for Count<T, C> {
    carries_nothing!();

    #[inline(always)]
    fn run<V: Pack<T>>(&mut self, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>) {
        let views = [&inputs[0], &inputs[1]];
        if rows.start != self.next {
            self.begin::<V>(views, rows.start);
        }
        self.next = rows.end;
        let mut t = rows.start;
        while t < rows.end {
            let counted = match self.bars {
                UNLIMITED => t,
                _ => self.count_finite::<V>(views, &mut outs[0], t..rows.end),
            };
            if counted == t {
                self.count_each::<V>(views, &mut outs[0], t..rows.end);
                return;
            }
            t = counted;
        }
    }
}

//! Window steps. Each value depends only on its window and its bar number, never on where evaluation began:
//! sliding sums are compensated and summed anew at every bar number divisible by [`REBASE_BARS`], and evaluation of a
//! sum always begins at such a bar. So the last bar alone, strips, and the whole history agree bit for bit.

use std::ops::Range;

use super::lanes::{LANES, Out, Row, Step, View};

/// Sliding sums are summed anew at multiples of this bar number.
pub(crate) const REBASE_BARS: usize = 256;

/// Adds `x` to the unevaluated sum `hi + lo` without losing what rounds away (Knuth's two-sum).
#[inline(always)]
pub(crate) fn add(hi: &mut f64, lo: &mut f64, x: f64) {
    let sum = *hi + x;
    let part = sum - *hi;
    *lo += (*hi - (sum - part)) + (x - part);
    *hi = sum;
}

/// Largest magnitude that sliding sums take for defined: sums of `PERIOD_MAX` weighted such values stay finite.
pub(crate) const SUMMAND_MAX: f64 = f64::MAX / (1u64 << 40) as f64;

/// What a sum adds for `x`: 0 for what [`Gaps`] counts as undefined.
#[inline(always)]
fn or_zero(x: f64) -> f64 {
    if x.abs() <= SUMMAND_MAX { x } else { 0.0 }
}

/// Per lane the last bar whose input was undefined, -1 when none was: bars before the first count as undefined.
#[derive(Clone, Copy)]
struct Gaps {
    last: Row,
    /// Magnitudes beyond it count as undefined.
    most: f64,
}

impl Gaps {
    const fn new(most: f64) -> Self {
        Self { last: Row([-1.0; LANES]), most }
    }

    /// What is known after the bars `rows`.
    #[inline(always)]
    fn scan(most: f64, input: &View<'_>, rows: Range<usize>) -> Self {
        let mut gaps = Self::new(most);
        for t in rows {
            gaps.see(t, &input.row(t));
        }
        gaps
    }

    #[inline(always)]
    fn see(&mut self, t: usize, row: &Row) {
        let now = t as f64;
        for lane in 0..LANES {
            self.last.0[lane] = if row.0[lane].abs() <= self.most { self.last.0[lane] } else { now };
        }
    }

    /// `values` where the last `p` bars were all defined, else NA.
    #[inline(always)]
    fn guard(&self, t: usize, p: usize, values: Row) -> Row {
        let (now, p) = (t as f64, p as f64);
        values.map(|lane, x| if now - self.last.0[lane] >= p { x } else { f64::NAN })
    }
}

/// First bar of the window that ends at `t`, cut off at the first bar of all.
#[inline(always)]
pub(crate) fn window_start(t: usize, p: usize) -> usize {
    (t + 1).saturating_sub(p)
}

/// The sliding sum, over a divisor: 1 gives the sum, `p` the mean.
pub(crate) struct Sum {
    p: usize,
    divisor: f64,
    hi: Row,
    lo: Row,
    gaps: Gaps,
    next: usize,
}

impl Sum {
    /// The sum of `p` bars over `divisor`.
    pub fn new(p: u32, divisor: f64) -> Self {
        Self { p: p as usize, divisor, hi: Row::ZERO, lo: Row::ZERO, gaps: Gaps::new(SUMMAND_MAX), next: usize::MAX }
    }
}

/// The compensated sum of a window from scratch.
#[inline(always)]
fn sum_window(input: &View<'_>, rows: Range<usize>) -> (Row, Row) {
    let (mut hi, mut lo) = (Row::ZERO, Row::ZERO);
    for t in rows {
        let x = input.row(t);
        for lane in 0..LANES {
            add(&mut hi.0[lane], &mut lo.0[lane], or_zero(x.0[lane]));
        }
    }
    (hi, lo)
}

impl Step for Sum {
    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let input = &inputs[0];
        let p = self.p;
        let fresh = rows.start != self.next;
        if fresh {
            self.gaps = Gaps::scan(SUMMAND_MAX, input, window_start(rows.start, p)..rows.start);
        }
        self.next = rows.end;
        let (mut hi, mut lo, mut gaps) = (self.hi, self.lo, self.gaps);
        for t in rows.clone() {
            let x = input.row(t);
            gaps.see(t, &x);
            if t % REBASE_BARS == 0 || (fresh && t == rows.start) {
                (hi, lo) = sum_window(input, window_start(t, p)..t + 1);
            } else {
                let gone = if t >= p { input.row(t - p) } else { Row::ZERO };
                for lane in 0..LANES {
                    add(&mut hi.0[lane], &mut lo.0[lane], or_zero(x.0[lane]));
                    add(&mut hi.0[lane], &mut lo.0[lane], -or_zero(gone.0[lane]));
                }
            }
            let total = hi.map(|lane, h| (h + lo.0[lane]) / self.divisor);
            out.set(t, gaps.guard(t, p, total));
        }
        (self.hi, self.lo, self.gaps) = (hi, lo, gaps);
    }
}

/// `k * x` as an unevaluated sum of two exact products: `x` is split so that each half has bits to spare for `k`.
#[inline(always)]
fn exact_product(k: f64, x: f64) -> (f64, f64) {
    let high = f64::from_bits(x.to_bits() & !0x07ff_ffff);
    (k * high, k * (x - high))
}

/// The linearly weighted mean.
pub(crate) struct WeightedMean {
    p: usize,
    weighted: (Row, Row),
    plain: (Row, Row),
    gaps: Gaps,
    next: usize,
}

impl WeightedMean {
    pub fn new(p: u32) -> Self {
        let zero = (Row::ZERO, Row::ZERO);
        Self { p: p as usize, weighted: zero, plain: zero, gaps: Gaps::new(SUMMAND_MAX), next: usize::MAX }
    }
}

impl Step for WeightedMean {
    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let input = &inputs[0];
        let p = self.p;
        let fresh = rows.start != self.next;
        if fresh {
            self.gaps = Gaps::scan(SUMMAND_MAX, input, window_start(rows.start, p)..rows.start);
        }
        self.next = rows.end;
        let weights = (p * (p + 1)) as f64 / 2.0;
        let (mut w, mut s, mut gaps) = (self.weighted, self.plain, self.gaps);
        for t in rows.clone() {
            let x = input.row(t);
            gaps.see(t, &x);
            if t % REBASE_BARS == 0 || (fresh && t == rows.start) {
                let first = window_start(t, p);
                s = sum_window(input, first..t + 1);
                w = (Row::ZERO, Row::ZERO);
                for j in first..=t {
                    let (k, y) = ((p - (t - j)) as f64, input.row(j));
                    for lane in 0..LANES {
                        let (a, b) = exact_product(k, or_zero(y.0[lane]));
                        add(&mut w.0.0[lane], &mut w.1.0[lane], a);
                        add(&mut w.0.0[lane], &mut w.1.0[lane], b);
                    }
                }
            } else {
                let gone = if t >= p { input.row(t - p) } else { Row::ZERO };
                for lane in 0..LANES {
                    let x = or_zero(x.0[lane]);
                    let (a, b) = exact_product(p as f64, x);
                    let (whi, wlo) = (&mut w.0.0[lane], &mut w.1.0[lane]);
                    let (shi, slo) = (&mut s.0.0[lane], &mut s.1.0[lane]);
                    // Every weight falls by one, the new bar enters with weight p.
                    add(whi, wlo, -*shi);
                    add(whi, wlo, -*slo);
                    add(whi, wlo, a);
                    add(whi, wlo, b);
                    add(shi, slo, x);
                    add(shi, slo, -or_zero(gone.0[lane]));
                }
            }
            let mean = w.0.map(|lane, h| (h + w.1.0[lane]) / weights);
            out.set(t, gaps.guard(t, p, mean));
        }
        (self.weighted, self.plain, self.gaps) = (w, s, gaps);
    }
}

/// Window maximum, or with `sign` -1 minimum: extremes from the window's start to the last block border (`tail`, one
/// row an offset) and from there to now (`head`), blocks of `p` bars: three comparisons a bar whatever the period.
pub(crate) struct Extreme {
    p: usize,
    sign: f64,
    tail: Vec<Row>,
    head: Row,
    gaps: Gaps,
    next: usize,
}

impl Extreme {
    pub fn new(p: u32, sign: f64, bars: usize) -> Self {
        let p = p as usize;
        let lowest = Row([f64::NEG_INFINITY; LANES]);
        Self {
            p,
            sign,
            tail: vec![lowest; tail_bars(p, bars)],
            head: lowest,
            gaps: Gaps::new(f64::MAX),
            next: usize::MAX,
        }
    }
}

/// Entries of a tail over `bars` bars: offsets that are reached.
pub(crate) fn tail_bars(p: usize, bars: usize) -> usize {
    p.min(bars + 1)
}

#[inline(always)]
fn larger(a: Row, b: &Row) -> Row {
    a.map(|lane, x| if x > b.0[lane] { x } else { b.0[lane] })
}

impl Step for Extreme {
    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let input = &inputs[0];
        let (p, sign) = (self.p, self.sign);
        let lowest = Row([f64::NEG_INFINITY; LANES]);
        let ordered = |row: Row| row.map(|_, x| if x.is_finite() { sign * x } else { f64::NEG_INFINITY });
        let fresh = rows.start != self.next;
        if fresh {
            self.gaps = Gaps::scan(f64::MAX, input, window_start(rows.start, p)..rows.start);
        }
        self.next = rows.end;
        for t in rows.clone() {
            let offset = t % p;
            if offset == 0 || (fresh && t == rows.start) {
                let block = t - offset;
                let first = window_start(t, p);
                let mut extreme = lowest;
                for j in (first..block).rev() {
                    extreme = larger(ordered(input.row(j)), &extreme);
                    self.tail[j % p] = extreme;
                }
                if block < p {
                    self.tail.fill(lowest);
                }
                self.head = lowest;
                for j in block..t {
                    self.head = larger(ordered(input.row(j)), &self.head);
                }
            }
            let x = input.row(t);
            self.gaps.see(t, &x);
            self.head = larger(ordered(x), &self.head);
            let extreme = if offset + 1 == p { self.head } else { larger(self.tail[offset + 1], &self.head) };
            out.set(t, self.gaps.guard(t, p, extreme.map(|_, x| sign * x)));
        }
    }
}

/// Mean and sum of squared differences to it, of so many values (the same number in every lane).
#[derive(Clone, Copy)]
struct Moments {
    mean: Row,
    squares: Row,
}

impl Moments {
    const NONE: Self = Self { mean: Row::ZERO, squares: Row::ZERO };

    /// Welford's update: `x` is the `n`-th value.
    #[inline(always)]
    fn see(&mut self, x: &Row, n: usize) {
        let share = 1.0 / n as f64;
        for lane in 0..LANES {
            let x = or_zero(x.0[lane]);
            let apart = x - self.mean.0[lane];
            self.mean.0[lane] += apart * share;
            self.squares.0[lane] += apart * (x - self.mean.0[lane]);
        }
    }

    /// Chan's union of `a` and `b` values: a row of sums of squared differences.
    #[inline(always)]
    fn union_squares(&self, a: usize, other: &Self, b: usize) -> Row {
        let weight = (a as f64 * b as f64) / (a + b) as f64;
        self.squares.map(|lane, squares| {
            let apart = other.mean.0[lane] - self.mean.0[lane];
            squares + other.squares.0[lane] + apart * apart * weight
        })
    }
}

/// Population standard deviation. As with [`Extreme`], a window is what is left of the block of `p` bars before (`tail`,
/// one entry an offset) and the block so far (`head`): nothing is ever taken away, so nothing cancels and nothing drifts.
pub(crate) struct Deviation {
    p: usize,
    tail: Vec<Moments>,
    head: Moments,
    gaps: Gaps,
    next: usize,
}

impl Deviation {
    pub fn new(p: u32, bars: usize) -> Self {
        let p = p as usize;
        Self {
            p,
            tail: vec![Moments::NONE; tail_bars(p, bars)],
            head: Moments::NONE,
            gaps: Gaps::new(SUMMAND_MAX),
            next: usize::MAX,
        }
    }
}

impl Step for Deviation {
    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let (input, p) = (&inputs[0], self.p);
        let fresh = rows.start != self.next;
        if fresh {
            self.gaps = Gaps::scan(SUMMAND_MAX, input, window_start(rows.start, p)..rows.start);
        }
        self.next = rows.end;
        for t in rows.clone() {
            let offset = t % p;
            if offset == 0 || (fresh && t == rows.start) {
                let block = t - offset;
                let mut moments = Moments::NONE;
                for (n, j) in (window_start(t, p)..block).rev().enumerate() {
                    moments.see(&input.row(j), n + 1);
                    self.tail[j % p] = moments;
                }
                self.head = Moments::NONE;
                for (n, j) in (block..t).enumerate() {
                    self.head.see(&input.row(j), n + 1);
                }
            }
            let x = input.row(t);
            self.gaps.see(t, &x);
            self.head.see(&x, offset + 1);
            let squares = if offset + 1 == p {
                self.head.squares
            } else {
                self.tail[offset + 1].union_squares(p - 1 - offset, &self.head, offset + 1)
            };
            let deviation = squares.map(|_, s| (s / p as f64).sqrt());
            out.set(t, self.gaps.guard(t, p, deviation));
        }
    }
}

/// Inputs x, m: mean of |x_j - m_t| over the window.
pub(crate) struct MeanDeviation {
    pub p: usize,
}

impl Step for MeanDeviation {
    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let (input, p) = (&inputs[0], self.p);
        let mut gaps = Gaps::scan(f64::MAX, input, window_start(rows.start, p)..rows.start);
        for t in rows {
            gaps.see(t, &input.row(t));
            if t + 1 < p {
                out.set(t, Row::NA);
                continue;
            }
            let mean = inputs[1].row(t);
            let mut total = Row::ZERO;
            for j in window_start(t, p)..t + 1 {
                let x = input.row(j);
                for lane in 0..LANES {
                    total.0[lane] += (x.0[lane] - mean.0[lane]).abs();
                }
            }
            out.set(t, gaps.guard(t, p, total.map(|_, sum| sum / p as f64)));
        }
    }
}

/// Kleene or (`wanted` 1) or and (`wanted` 0) of the last `p` bars: the answer is `wanted` when one of them is, NA when
/// one is NA (bars before the first are), else the opposite.
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

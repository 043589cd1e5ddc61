//! Steps without state: functions of the current bar. Each is specified at `trawl_plan::graph::Op`; this file
//! implements them over packs, without branches, with the same bits as `trawl_plan::scalar`.

use std::ops::Range;

use trawl_plan::scalar::{EDGE_TOLERANCE, TALIB_EPSILON};

use crate::cpu::simd::float::Real;
use crate::cpu::simd::pack::Pack;
use crate::cpu::simd::state_io::carries_nothing;
use crate::cpu::simd::vector::{Kernel, LANES, Out, Row, RowOf, Step, View};

/// A function of `K` series at one bar.
pub(crate) trait Function<const K: usize>: Send {
    /// The value for the `K` inputs at one bar of all lanes of a pack.
    fn at<T: Real, V: Pack<T>>(&self, x: [V; K]) -> V;
}

/// A function at every bar.
pub(crate) struct Map<F, const K: usize>(pub F);

impl<T: Real, F: Function<K>, const K: usize> Kernel<T> for Map<F, K> {
    carries_nothing!();

    #[inline(always)]
    fn run<V: Pack<T>>(&mut self, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>) {
        let mut t = rows.start;
        while t < rows.end {
            let out = outs[0].from(t);
            let mut n = out.len().min(rows.end - t);
            let mut from: [&[RowOf<T>]; K] = [&[]; K];
            for k in 0..K {
                from[k] = inputs[k].from(t);
                n = n.min(from[k].len());
            }
            for slice in &mut from {
                *slice = &slice[..n];
            }
            for (i, out) in out[..n].iter_mut().enumerate() {
                let mut x = [V::zero(); K];
                for k in 0..K {
                    x[k] = V::load(&from[k][i]);
                }
                self.0.at::<T, V>(x).store(out);
            }
            t += n;
        }
    }
}

/// Declares functions over packs: name, arguments, body. `V` and `T` are the pack and its number type.
macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident($($arg:ident),+) $body:block)+) => {$(
        $(#[$doc])*
        pub(crate) struct $name;
        impl Function<{ [$(stringify!($arg)),+].len() }> for $name {
            #[inline(always)]
            fn at<T: Real, V: Pack<T>>(&self, [$($arg),+]: [V; [$(stringify!($arg)),+].len()]) -> V $body
        }
    )+};
}

/// `truth` as 1 or 0; NA where `a` or `b` is NA or infinite.
#[inline(always)]
fn comparison<T: Real, V: Pack<T>>(a: V, b: V, truth: V::Mask) -> V {
    V::truth(truth).only(a.is_finite() & b.is_finite())
}

/// TA-Lib's quotient: `a / b`, but 0 where `nothing` (the divisor counts as zero) and `a` is finite.
#[inline(always)]
pub(crate) fn ratio<T: Real, V: Pack<T>>(a: V, b: V, nothing: V::Mask) -> V {
    V::select(nothing & a.is_finite(), V::zero(), a / b)
}

/// Whether `x` counts as zero in TA-Lib.
#[inline(always)]
pub(crate) fn vanishes<T: Real, V: Pack<T>>(x: V) -> V::Mask {
    x.abs().lt(V::of(TALIB_EPSILON))
}

/// The larger of both; NA where either is NA.
#[inline(always)]
pub(crate) fn maximum<T: Real, V: Pack<T>>(a: V, b: V) -> V {
    V::select(a.is_nan(), a, a.larger(b))
}

functions! {
    Negate(a) { a.negate() }
    Abs(a) { a.abs() }
    Sqrt(a) { a.sqrt() }
    Sign(a) {
        let below = V::select(a.lt(V::zero()), V::of(-1.0), a + V::zero());
        V::select(V::zero().lt(a), V::of(1.0), below)
    }
    /// Adding and taking away 2^52 (of `f64`) rounds to an integer in the current mode, which is half to even.
    Round(a) {
        let whole = V::splat(T::INTEGER);
        let rounded = (a.abs() + whole) - whole;
        // Preserve the sign of -0.0 and of values that round to it.
        let signed = V::select(a.lt(V::zero()) | (V::of(1.0) / a).lt(V::zero()), rounded.negate(), rounded);
        V::select(a.abs().lt(whole), signed, a)
    }
    Add(a, b) { a + b }
    Subtract(a, b) { a - b }
    Multiply(a, b) { a * b }
    Divide(a, b) { V::select(b.eq(V::zero()), V::na(), a / b) }
    Maximum(a, b) { maximum(a, b) }
    Minimum(a, b) { V::select(a.is_nan(), a, a.smaller(b)) }
    RatioOrZero(a, b) { ratio(a, b, b.eq(V::zero())) }
    RatioOrZeroEpsilon(a, b) { ratio(a, b, vanishes(b)) }
    Gate(a, b) { a.only(b.is_finite()) }
    OrElse(a, b) { V::select(a.is_nan(), b, a) }
    Near(a, b) {
        let most = V::of(1.0).larger(a.abs()).larger(b.abs());
        comparison(a, b, (a - b).abs().le(V::of(EDGE_TOLERANCE) * most))
    }
    Less(a, b) { comparison(a, b, a.lt(b)) }
    LessEqual(a, b) { comparison(a, b, a.le(b)) }
    Greater(a, b) { comparison(a, b, b.lt(a)) }
    GreaterEqual(a, b) { comparison(a, b, b.le(a)) }
    Equal(a, b) { comparison(a, b, a.eq(b)) }
    NotEqual(a, b) { comparison(a, b, a.lt(b) | b.lt(a)) }
    And(a, b) { V::select(a.eq(V::zero()) | b.eq(V::zero()), V::zero(), a * b) }
    Or(a, b) {
        let one = V::of(1.0);
        V::select(a.eq(one) | b.eq(one), one, a + b)
    }
    Not(a) { V::of(1.0) - a }
    Select(c, a, b) {
        let otherwise = b.only(c.eq(V::zero()));
        V::select(c.eq(V::of(1.0)), a, otherwise)
    }
}

/// A function of one series, evaluated lane by lane.
pub(crate) struct Scalar1<F>(pub F);

impl<T: Real, F: Fn(f64) -> f64 + Send> Step<T> for Scalar1<F> {
    carries_nothing!();

    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_, T>], out: &mut Out<'_, T>, rows: Range<usize>) {
        for t in rows {
            out.set(t, inputs[0].row(t).map(|_, x| T::of((self.0)(x.wide()))));
        }
    }
}

/// A function of two series, evaluated lane by lane.
pub(crate) struct Scalar2<F>(pub F);

impl<T: Real, F: Fn(f64, f64) -> f64 + Send> Step<T> for Scalar2<F> {
    carries_nothing!();

    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_, T>], out: &mut Out<'_, T>, rows: Range<usize>) {
        for t in rows {
            let (mut a, b) = (inputs[0].row(t), inputs[1].row(t));
            for lane in 0..LANES {
                a.0[lane] = T::of((self.0)(a.0[lane].wide(), b.0[lane].wide()));
            }
            out.set(t, a);
        }
    }
}

/// a crosses b: `above(now)` and the opposite one bar ago; NA when one of the four is not finite.
pub(crate) struct Crosses {
    pub above: bool,
}

impl Step for Crosses {
    carries_nothing!();

    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let (a, b) = if self.above { (inputs[0], inputs[1]) } else { (inputs[1], inputs[0]) };
        for t in rows {
            let (x, y, before_x, before_y) = (a.row(t), b.row(t), a.back(t, 1), b.back(t, 1));
            let mut row = Row::NA;
            for lane in 0..LANES {
                let four = [x.0[lane], y.0[lane], before_x.0[lane], before_y.0[lane]];
                let truth = f64::from(u8::from(four[0] > four[1] && four[2] <= four[3]));
                let defined = four[0].is_finite() & four[1].is_finite() & four[2].is_finite() & four[3].is_finite();
                row.0[lane] = if defined { truth } else { f64::NAN };
            }
            out.set(t, row);
        }
    }
}

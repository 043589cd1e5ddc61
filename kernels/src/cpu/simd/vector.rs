//! Rows of lanes and how steps see them: one lane is one symbol, one row is one bar.

use std::ops::Range;

use crate::cpu::simd::float::Real;
use crate::cpu::simd::pack::{One, Pack};
use crate::cpu::simd::state_io::Carrier;

/// Symbols evaluated side by side: two AVX-512 registers of `f64`, for two dependency chains in a recurrence; one
/// register of `f32`.
pub(crate) const LANES: usize = 16;
/// Histories that nothing limits.
pub(crate) const UNLIMITED: usize = usize::MAX;

/// One bar of every lane.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct RowOf<T>(pub [T; LANES]);

/// One bar of every lane in `f64`.
pub(crate) type Row = RowOf<f64>;

/// A row of `f64` values.
#[allow(non_snake_case, reason = "constructs a row, as the name of a type with one field would")]
#[inline(always)]
pub(crate) const fn Row(lanes: [f64; LANES]) -> Row {
    RowOf(lanes)
}

impl<T: Real> RowOf<T> {
    pub const NA: Self = Self([T::NAN; LANES]);
    pub const ZERO: Self = Self([T::ZERO; LANES]);

    /// The same value in every lane.
    #[inline(always)]
    pub const fn splat(x: T) -> Self {
        Self([x; LANES])
    }

    #[inline(always)]
    pub fn map(mut self, mut f: impl FnMut(usize, T) -> T) -> Self {
        for lane in 0..LANES {
            self.0[lane] = f(lane, self.0[lane]);
        }
        self
    }
}

/// A step's view of a series: a whole column, the last rows of a computed series, or a constant; optionally delayed by
/// some bars.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a, T: 'static = f64> {
    rows: &'a [RowOf<T>],
    mask: usize,
    base: usize,
    lag: usize,
    defined_from: usize,
}

impl<'a, T: Real> View<'a, T> {
    /// An empty view, for unused inputs.
    pub const EMPTY: Self = Self { rows: &[], mask: 0, base: 0, lag: 0, defined_from: usize::MAX };

    /// A view of bars `base..` of a column.
    pub fn column((rows, base): (&'a [RowOf<T>], usize)) -> Self {
        Self { rows, mask: usize::MAX, base, ..Self::EMPTY }
    }

    /// A view of a ring whose length is a power of two: bar t is at index t mod length.
    pub fn ring(rows: &'a [RowOf<T>]) -> Self {
        Self { rows, mask: rows.len().wrapping_sub(1), ..Self::EMPTY }
    }

    /// The same series, each value `bars` bars later.
    pub fn late(self, bars: usize) -> Self {
        Self { lag: self.lag.saturating_add(bars), ..self }
    }

    /// The same series, with the guarantee that every value from bar `bar` to the end of the strip is finite.
    pub fn defined(self, bar: usize) -> Self {
        Self { defined_from: bar, ..self }
    }

    /// The bar from which every value of every lane is known to be finite, up to the end of the strip.
    #[inline(always)]
    pub fn defined_from(&self) -> usize {
        self.defined_from.saturating_add(self.lag)
    }

    /// The row of bar `t`.
    #[inline(always)]
    pub fn row(&self, t: usize) -> RowOf<T> {
        if t < self.lag { RowOf::NA } else { self.rows[(t - self.lag - self.base) & self.mask] }
    }

    /// A reference to the row of bar `t`.
    #[inline(always)]
    pub fn at(&self, t: usize) -> &'a RowOf<T> {
        if t < self.lag { &T::NA_ROWS[0] } else { &self.rows[(t - self.lag - self.base) & self.mask] }
    }

    /// The row `back` bars before `t`; NA before the first bar.
    #[inline(always)]
    pub fn back(&self, t: usize, back: usize) -> RowOf<T> {
        if t >= back { self.row(t - back) } else { RowOf::NA }
    }

    /// The contiguous rows from bar `t` on.
    #[inline(always)]
    pub fn from(&self, t: usize) -> &'a [RowOf<T>] {
        if t < self.lag {
            let rows = T::NA_ROWS;
            return &rows[..rows.len().min(self.lag - t)];
        }
        &self.rows[(t - self.lag - self.base) & self.mask..]
    }
}

/// The ring that a step writes.
pub(crate) struct Out<'a, T = f64> {
    rows: &'a mut [RowOf<T>],
}

impl<'a, T: Real> Out<'a, T> {
    pub fn new(rows: &'a mut [RowOf<T>]) -> Self {
        Self { rows }
    }

    #[inline(always)]
    pub fn set(&mut self, t: usize, row: RowOf<T>) {
        let mask = self.rows.len() - 1;
        self.rows[t & mask] = row;
    }

    /// The contiguous rows from bar `t` on.
    #[inline(always)]
    pub fn from(&mut self, t: usize) -> &mut [RowOf<T>] {
        let mask = self.rows.len() - 1;
        &mut self.rows[t & mask..]
    }
}

/// A step primitive. Calls process consecutive ranges of rows; a call whose range does not continue the previous one
/// restarts the step.
pub(crate) trait Step<T: Real = f64>: Send {
    /// Implementations are `#[inline(always)]`, so that they are compiled once per instruction set.
    fn run(&mut self, inputs: &[View<'_, T>], out: &mut Out<'_, T>, rows: Range<usize>);

    /// Loads or saves the state of a lane that a restart would not restore; see [`crate::cpu::simd::state_io`].
    fn carry(&mut self, lane: usize, carrier: &mut Carrier<'_>);

    /// Whether it can now run without outputs, where nobody reads them.
    fn may_be_silent(&self) -> bool {
        false
    }

    /// [`Self::run`] where the first lane alone is read. A step that takes its lanes one by one does no more than that.
    fn first_lane(&mut self, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>) {
        self.strip_on(Isa::detect(), inputs, outs, rows);
    }

    /// [`Self::run`] with the code of `isa`, which this machine must support.
    fn strip_on(&mut self, isa: Isa, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>) {
        if isa == Isa::OneLane {
            return self.first_lane(inputs, outs, rows);
        }
        let [out] = outs else { return };
        match isa {
            Isa::Portable | Isa::OneLane => self.run(inputs, out, rows),
            // SAFETY: `Isa::detect` has these only where the CPU has the features.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { run_avx2(self, inputs, out, rows) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => unsafe { run_avx512(self, inputs, out, rows) },
        }
    }
}

/// As [`Step`], written over packs, with as many outputs as it needs.
pub(crate) trait Kernel<T: Real>: Send {
    /// Implementations are `#[inline(always)]`.
    fn run<V: Pack<T>>(&mut self, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>);

    /// As [`Step::carry`].
    fn carry(&mut self, lane: usize, carrier: &mut Carrier<'_>);

    /// As [`Step::may_be_silent`].
    fn may_be_silent(&self) -> bool {
        false
    }
}

/// Adapts a [`Kernel`] to a step.
pub(crate) struct Packed<K>(pub K);

impl<T: Real, K: Kernel<T>> Step<T> for Packed<K> {
    fn run(&mut self, inputs: &[View<'_, T>], out: &mut Out<'_, T>, rows: Range<usize>) {
        self.0.run::<T::Portable>(inputs, std::slice::from_mut(out), rows);
    }

    fn carry(&mut self, lane: usize, carrier: &mut Carrier<'_>) {
        self.0.carry(lane, carrier);
    }

    fn may_be_silent(&self) -> bool {
        self.0.may_be_silent()
    }

    fn strip_on(&mut self, isa: Isa, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>) {
        match isa {
            Isa::Portable => self.0.run::<T::Portable>(inputs, outs, rows),
            Isa::OneLane => self.0.run::<One<T>>(inputs, outs, rows),
            // SAFETY: `Isa::detect` has these only where the CPU has the features.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { pack_avx2(&mut self.0, inputs, outs, rows) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => unsafe { pack_avx512(&mut self.0, inputs, outs, rows) },
        }
    }
}

/// An object-safe step, compiled for each instruction set.
pub(crate) trait AnyStep<T: Real = f64>: Send {
    fn strip(&mut self, isa: Isa, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>);

    /// See [`Step::carry`].
    fn carry_lane(&mut self, lane: usize, carrier: &mut Carrier<'_>);

    /// Whether the next strip may be run without outputs: see [`Step::may_be_silent`].
    fn is_silent(&self) -> bool;
}

impl<T: Real, S: Step<T>> AnyStep<T> for S {
    fn strip(&mut self, isa: Isa, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>) {
        self.strip_on(isa, inputs, outs, rows);
    }

    fn carry_lane(&mut self, lane: usize, carrier: &mut Carrier<'_>) {
        self.carry(lane, carrier);
    }

    fn is_silent(&self) -> bool {
        self.may_be_silent()
    }
}

/// Instruction sets with specialised code. All give the same bits: fused multiply-add is not used where it would round
/// differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isa {
    Portable,
    /// Any machine, the first lane alone: for tiles of a single symbol. Steps that are not written over packs compute every lane.
    OneLane,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Isa {
    /// Instruction sets that this machine supports, the best last.
    #[cfg(test)]
    pub fn all() -> Vec<Self> {
        #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut, reason = "there is but one"))]
        let mut all = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                all.push(Self::Avx2);
            }
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") {
                all.push(Self::Avx512);
            }
        }
        all
    }

    /// Whether a tile of a single symbol may be run by [`Self::OneLane`] instead.
    pub fn may_be_one_lane(self) -> bool {
        // Tests name the portable code and mean it.
        self != Self::Portable || Self::detect() == Self::Portable
    }

    /// The best instruction set that this machine supports.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") {
                return Self::Avx512;
            }
            if is_x86_feature_detected!("avx2") {
                return Self::Avx2;
            }
        }
        Self::Portable
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn run_avx2<T: Real, S: Step<T> + ?Sized>(
    step: &mut S,
    inputs: &[View<'_, T>],
    out: &mut Out<'_, T>,
    rows: Range<usize>,
) {
    step.run(inputs, out, rows);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq")]
fn run_avx512<T: Real, S: Step<T> + ?Sized>(
    step: &mut S,
    inputs: &[View<'_, T>],
    out: &mut Out<'_, T>,
    rows: Range<usize>,
) {
    step.run(inputs, out, rows);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn pack_avx2<T: Real, K: Kernel<T>>(k: &mut K, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>) {
    k.run::<T::Avx2>(inputs, outs, rows);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq")]
fn pack_avx512<T: Real, K: Kernel<T>>(k: &mut K, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>) {
    k.run::<T::Avx512>(inputs, outs, rows);
}

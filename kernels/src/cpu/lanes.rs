//! Rows of lanes and how steps see them: one lane is one symbol, one row is one bar.

use std::ops::Range;

/// Symbols evaluated side by side: one AVX-512 register of `f64`, two of AVX2, four of NEON.
pub(crate) const LANES: usize = 8;

/// One bar of every lane.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Row(pub [f64; LANES]);

impl Row {
    pub const NA: Self = Self([f64::NAN; LANES]);
    pub const ZERO: Self = Self([0.0; LANES]);

    #[inline(always)]
    pub fn map(mut self, mut f: impl FnMut(usize, f64) -> f64) -> Self {
        for lane in 0..LANES {
            self.0[lane] = f(lane, self.0[lane]);
        }
        self
    }
}

/// A series as a step reads it: the whole of a column, the last rows of a computed series, or a constant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    rows: &'a [Row],
    mask: usize,
    base: usize,
}

impl<'a> View<'a> {
    /// Of nothing: fills unused places.
    pub const EMPTY: Self = Self { rows: &[], mask: 0, base: 0 };

    /// Bars `base..` of a column.
    pub fn column((rows, base): (&'a [Row], usize)) -> Self {
        Self { rows, mask: usize::MAX, base }
    }

    /// A ring whose length is a power of two: bar t lies at t mod length.
    pub fn ring(rows: &'a [Row]) -> Self {
        Self { rows, mask: rows.len() - 1, base: 0 }
    }

    /// The row of bar `t`.
    #[inline(always)]
    pub fn row(&self, t: usize) -> Row {
        self.rows[(t - self.base) & self.mask]
    }

    /// The row `back` bars before `t`; NA before the first bar.
    #[inline(always)]
    pub fn back(&self, t: usize, back: usize) -> Row {
        if t >= back { self.row(t - back) } else { Row::NA }
    }
}

/// The ring that a step writes.
pub(crate) struct Out<'a> {
    rows: &'a mut [Row],
}

impl<'a> Out<'a> {
    pub fn new(rows: &'a mut [Row]) -> Self {
        Self { rows }
    }

    #[inline(always)]
    pub fn set(&mut self, t: usize, row: Row) {
        let mask = self.rows.len() - 1;
        self.rows[t & mask] = row;
    }
}

/// A step primitive over rows `rows`, which follow those of the call before; a call that does not follow starts afresh.
pub(crate) trait Step: Send {
    /// Implementations are `#[inline(always)]`, so that they are compiled once per instruction set.
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>);
}

/// A step behind a pointer, compiled for the instruction set that this machine has.
pub(crate) trait AnyStep: Send {
    fn strip(&mut self, isa: Isa, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>);
}

/// Instruction sets with code of their own. The bits are the same in each: no fused multiply-add anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isa {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Isa {
    /// The best that this machine has.
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

impl<S: Step> AnyStep for S {
    fn strip(&mut self, isa: Isa, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        match isa {
            Isa::Portable => self.run(inputs, out, rows),
            // SAFETY: `Isa::detect` returns these only where the processor has the features.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { run_avx2(self, inputs, out, rows) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => unsafe { run_avx512(self, inputs, out, rows) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn run_avx2<S: Step>(step: &mut S, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
    step.run(inputs, out, rows);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq")]
fn run_avx512<S: Step>(step: &mut S, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
    step.run(inputs, out, rows);
}

//! Bars in the engine's layout: one row per bar and one lane per symbol in each column, left-aligned.

use crate::SymbolInput;
use crate::cpu::simd::float::Real;
use crate::cpu::simd::pack::{Mask as _, Pack};
use crate::cpu::simd::vector::{Isa, LANES, RowOf};

/// Fills lanes without a symbol and rows after a symbol's last visible bar, which are never read. A number, so that
/// such lanes do not prevent the faster paths for defined values.
pub(crate) const PADDING: f64 = 1.0;

/// Rows that are transposed at a time: few enough that they stay in the cache of a core while lane after lane is written.
/// Whole columns would be read from memory and written to it again for each lane.
const ROWS_AT_ONCE: usize = 128;

/// Bars of up to [`LANES`] symbols where they are: one series for each symbol and column.
#[derive(Debug)]
pub(crate) struct Lanes<'a> {
    columns: Vec<LaneColumn<'a>>,
    /// Number of visible bars of each lane that has a symbol.
    pub visible: Vec<usize>,
}

/// What is visible of a column from bar `base` on.
#[derive(Debug)]
struct LaneColumn<'a> {
    base: usize,
    /// Per lane that has a symbol; `None` where the symbol has no such column.
    lanes: Vec<Option<&'a [f64]>>,
}

impl<'a> Lanes<'a> {
    /// The bars of each column from `bases[column]` on.
    pub fn of(symbols: &[&'a SymbolInput<'_>], bases: Vec<usize>) -> Self {
        debug_assert!(symbols.len() <= LANES, "there are {LANES} lanes");
        let column = |(column, base): (usize, usize)| {
            let bars = |s: &&'a SymbolInput<'_>| s.columns.get(column).and_then(|c| c.get(base..s.visible));
            LaneColumn { base, lanes: symbols.iter().map(bars).collect() }
        };
        let visible = symbols.iter().map(|s| s.visible).collect();
        Self { columns: bases.into_iter().enumerate().map(column).collect(), visible }
    }

    /// Number of visible bars of the longest lane.
    pub fn rows(&self) -> usize {
        self.visible.iter().copied().max().unwrap_or(0)
    }

    /// The first bar of a column.
    pub fn base(&self, column: usize) -> usize {
        self.columns[column].base
    }

    /// Transposes the bars `from..from + to.len()` of a column; `from` is not before the column's first bar.
    pub fn lay<T: Real>(&self, column: usize, from: usize, to: &mut [RowOf<T>]) {
        if let Some(bars) = self.full(column, from, to.len()) {
            for (at, row) in to.iter_mut().enumerate() {
                for (value, bars) in row.0.iter_mut().zip(&bars) {
                    *value = T::of(bars[at]);
                }
            }
            return;
        }
        // Whole rows at once: lane by lane it would take longer than the bars.
        to.fill(RowOf::splat(T::of(PADDING)));
        for lane in 0..self.visible.len() {
            self.lay_lane(lane, column, from, to);
        }
    }

    /// The bars `from..from + rows` of a column, if all lanes have all of them.
    fn full(&self, column: usize, from: usize, rows: usize) -> Option<[&'a [f64]; LANES]> {
        let LaneColumn { base, lanes } = &self.columns[column];
        let mut full: [&[f64]; LANES] = [&[]; LANES];
        for (lane, bars) in full.iter_mut().enumerate() {
            *bars = (*lanes.get(lane)?)?.get(from - base..from - base + rows)?;
        }
        Some(full)
    }

    /// As [`Self::lay`], of one lane; the others stay as they are, and so do rows after its last visible bar.
    pub fn lay_lane<T: Real>(&self, lane: usize, column: usize, from: usize, to: &mut [RowOf<T>]) {
        let LaneColumn { base, lanes } = &self.columns[column];
        let there = self.visible[lane].saturating_sub(from).min(to.len());
        match lanes[lane] {
            Some(bars) => {
                let bars = bars.get(from - base..).unwrap_or_default();
                for (row, value) in to[..there].iter_mut().zip(bars) {
                    row.0[lane] = T::of(*value);
                }
            }
            None => to[..there].iter_mut().for_each(|row| row.0[lane] = T::NAN),
        }
    }

    /// Prefetches the bars `from..from + bars` of a column: of so many series at once, hardware does not.
    pub fn prefetch(&self, column: usize, from: usize, bars: usize) {
        let LaneColumn { base, lanes } = &self.columns[column];
        let from = from - base;
        for series in lanes.iter().flatten() {
            let end = series.len().min(from + bars);
            for at in (from..end).step_by(CACHE_LINE_BYTES / size_of::<f64>()) {
                prefetch(&series[at]);
            }
        }
    }
}

/// Bytes that are fetched from memory at once.
const CACHE_LINE_BYTES: usize = 64;

/// Asks for the memory of a value that is read soon.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..size_of::<T>()).step_by(CACHE_LINE_BYTES) {
        // SAFETY: a hint; the address lies in the value.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
                std::ptr::from_ref(value).cast::<i8>().add(line),
            )
        };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// The bar from which all values are finite up to the end of `rows`, the first of which is of bar `first`; `from` is that
/// of the rows before. With the code of `isa`, which this machine must support.
pub(crate) fn defined_after<T: Real>(isa: Isa, rows: &[RowOf<T>], first: usize, from: usize) -> usize {
    let last = match isa {
        Isa::Portable => last_undefined::<T, T::Portable>(rows),
        Isa::OneLane => rows.iter().rposition(|row| !row.0[0].is_finite()),
        // SAFETY: `Isa::detect` has these only where the CPU has the features.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { last_undefined_avx2(rows) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { last_undefined_avx512(rows) },
    };
    last.map_or(from, |last| first + last + 1)
}

/// The last row with a value that is not finite.
#[inline(always)]
fn last_undefined<T: Real, V: Pack<T>>(rows: &[RowOf<T>]) -> Option<usize> {
    rows.iter().rposition(|row| !V::load(row).is_finite().all())
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn last_undefined_avx2<T: Real>(rows: &[RowOf<T>]) -> Option<usize> {
    last_undefined::<T, T::Avx2>(rows)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq")]
fn last_undefined_avx512<T: Real>(rows: &[RowOf<T>]) -> Option<usize> {
    last_undefined::<T, T::Avx512>(rows)
}

/// Bars of up to [`LANES`] symbols.
#[derive(Debug)]
pub(crate) struct Tile<T = f64> {
    columns: Vec<Column<T>>,
    /// Number of visible bars of each lane that has a symbol.
    pub visible: Vec<usize>,
}

/// The rows of bars `base..`.
#[derive(Debug)]
struct Column<T> {
    rows: Vec<RowOf<T>>,
    base: usize,
    /// Per strip, from the first bar on: the bar from which all values are finite up to the strip's end.
    defined_from: Vec<usize>,
}

impl<T: Real> Column<T> {
    fn new(rows: Vec<RowOf<T>>, base: usize) -> Self {
        let end = base + rows.len();
        let mut defined_from = Vec::with_capacity(end.div_ceil(T::STRIP_BARS));
        let isa = Isa::detect();
        let mut from = base;
        for strip in (0..end).step_by(T::STRIP_BARS) {
            let first = strip.max(base);
            let last = (strip + T::STRIP_BARS).min(end).max(first);
            from = defined_after(isa, &rows[first - base..last - base], first, from);
            defined_from.push(from);
        }
        Self { rows, base, defined_from }
    }
}

impl<T: Real> Tile<T> {
    /// Transposes the bars of each column from `bases[column]` on.
    pub fn load(symbols: &[&SymbolInput<'_>], bases: Vec<usize>) -> Self {
        let lanes = Lanes::of(symbols, bases);
        let rows = lanes.rows();
        let column = |column: usize| {
            let base = lanes.base(column);
            let end = rows.saturating_sub(base);
            let mut buffer = Vec::with_capacity(end);
            for from in (0..end).step_by(ROWS_AT_ONCE) {
                buffer.resize(end.min(from + ROWS_AT_ONCE), RowOf::splat(T::of(PADDING)));
                lanes.lay(column, base + from, &mut buffer[from..]);
            }
            Column::new(buffer, base)
        };
        let columns = (0..lanes.columns.len()).map(column).collect();
        Self { columns, visible: lanes.visible }
    }

    /// Size of the columns in bytes.
    pub fn bytes(&self) -> u64 {
        let rows: usize = self.columns.iter().map(|c| c.rows.len()).sum();
        (rows * size_of::<RowOf<T>>()) as u64
    }

    /// Number of visible bars of the longest lane.
    pub fn rows(&self) -> usize {
        self.visible.iter().copied().max().unwrap_or(0)
    }

    /// Number of visible bars of the shortest lane.
    pub fn shortest(&self) -> usize {
        self.visible.iter().copied().min().unwrap_or(0)
    }

    /// A column's rows and the bar of the first of them.
    pub fn column(&self, column: usize) -> (&[RowOf<T>], usize) {
        (&self.columns[column].rows, self.columns[column].base)
    }

    /// The bar from which the column is finite in every lane, up to the end of the strip that holds bar `t`;
    /// `usize::MAX` (unknown) if there is no such column.
    pub fn defined_from(&self, column: usize, t: usize) -> usize {
        let strips = self.columns.get(column).map(|c| c.defined_from.as_slice()).unwrap_or_default();
        strips.get(t / T::STRIP_BARS).copied().unwrap_or(usize::MAX)
    }
}

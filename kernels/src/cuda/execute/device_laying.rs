//! Columns that are laid out by the device: the host gives it bars one symbol after the other, as it has them, or where it has them.
//!
//! A column has the same bits as one that the host lays ([`cells::lay`](super::cells::lay)). The host lays where the kernel is not ready
//! yet, where a column is small, and where memory is short.

use crate::cuda::codegen::fixed::{FIXED_THREADS, lay_rows};
use crate::cuda::device::arguments::{GROUP_LANES, Market};
use crate::cuda::device::strips::{STRIP_CELLS, STRIP_ROWS, Strip, padding};
use crate::cuda::device::{CELL_BYTES, Fault, Function};
use crate::cuda::execute::cells::{lay, row_cells, write_bars};
use crate::cuda::execute::programs::Programs;
use crate::cuda::execute::transfer::{DeviceBuffer, Track};
use crate::{Precision, SymbolInput};

/// Default least bytes of a column that the device lays out: below it, a thread of the host takes some 0.5 ms. Where launches pay was not
/// measured.
pub(super) const LAID_BY_DEVICE_MIN: u64 = 2 << 20;

/// Cells of a strip with its description, at most.
const CELLS_OF_STRIP: usize = STRIP_CELLS + STRIP_ROWS * GROUP_LANES;

/// The kernels that lay columns out, and when they do.
pub(super) struct LayingKernels<'a> {
    pub programs: &'a Programs,
    /// Whether to wait for them to be compiled.
    pub waits: bool,
    /// Least bytes of a column.
    pub bytes_min: u64,
}

/// A column that is to be where kernels read it.
pub(super) struct Laying<'a> {
    pub market: &'a Market,
    pub symbols: &'a [SymbolInput<'a>],
    pub column: usize,
    pub precision: Precision,
    pub kernels: &'a LayingKernels<'a>,
}

/// Where the kernel finds bars.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BarsAt {
    /// In the device's memory, where they are copied.
    Device,
    /// In host memory, where they are.
    Host,
}

impl LayingKernels<'_> {
    /// The kernel for a column of so many bytes; `None` if the host lays it.
    fn kernel(&self, precision: Precision, bytes: u64) -> Option<Function> {
        if bytes < self.bytes_min {
            return None;
        }
        let kernel = lay_rows(precision);
        if self.waits { self.programs.kernel(kernel).ok() } else { self.programs.kernel_at_hand(kernel) }
    }
}

impl Laying<'_> {
    /// Cells of the column.
    pub fn cells(&self) -> usize {
        self.market.rows() * row_cells(self.precision)
    }

    /// Writes cells from `first` on: on the host, rows as kernels read them.
    pub fn lay(&self, first: usize, to: &mut [u64]) {
        lay(self.market, self.symbols, (self.column, self.precision), first, to);
    }

    fn strips(&self) -> impl Iterator<Item = Strip<'_>> {
        self.market.strips(self.symbols, self.column)
    }

    /// The kernel by which the device lays the column out; `None` if the host has to.
    pub fn kernel(&self, track: &Track, at: BarsAt) -> Option<Function> {
        // What the host has is of this precision alone.
        let can = at == BarsAt::Device || self.precision == Precision::F64;
        let bytes = (self.cells() * CELL_BYTES) as u64;
        if can && track.staging_cells >= CELLS_OF_STRIP { self.kernels.kernel(self.precision, bytes) } else { None }
    }

    /// Lets the device lay the column out in memory of its own; the bytes of bars that came to it, or `None` if there is no memory for
    /// what comes beside it. Later work of the track's stream may read the column.
    pub fn lay_on_device(
        &self,
        track: &mut Track,
        kernel: Function,
        held: &DeviceBuffer,
        at: BarsAt,
    ) -> Result<Option<u64>, Fault> {
        let cells_of =
            |strip: &Strip<'_>| STRIP_CELLS + if at == BarsAt::Device { strip.bar_cells(self.precision) } else { 0 };
        let room = self.strips().map(|strip| cells_of(&strip)).sum::<usize>().min(track.staging_cells);
        let landing = match track.allocate(room) {
            Ok(landing) => landing,
            Err(Fault::OutOfMemory { .. }) => return Ok(None),
            Err(fault) => return Err(fault),
        };
        let mut run =
            Run { track, kernel, landing: &landing, column: held.memory().at(0), at, precision: self.precision };
        let mut came = 0;
        let (mut together, mut cells): (Vec<Strip<'_>>, usize) = (Vec::new(), 0);
        for strip in self.strips() {
            let more = cells_of(&strip);
            if cells + more > room {
                came += run.lay(&together, cells)?;
                together.clear();
                cells = 0;
            }
            cells += more;
            together.push(strip);
        }
        came += run.lay(&together, cells)?;
        if at == BarsAt::Host {
            // Their owner may release them once this returns.
            run.track.mark()?.wait()?;
        }
        Ok(Some(came))
    }
}

/// A column that the device is laying out.
struct Run<'a> {
    track: &'a mut Track,
    kernel: Function,
    /// Where descriptions of strips are copied, and bars behind them. The stream's order keeps pieces apart.
    landing: &'a DeviceBuffer,
    /// Address of its first row.
    column: u64,
    at: BarsAt,
    precision: Precision,
}

impl Run<'_> {
    /// Lays out some strips, which take so many cells; the bytes of bars that come to the device.
    fn lay(&mut self, strips: &[Strip<'_>], cells: usize) -> Result<u64, Fault> {
        if strips.is_empty() {
            return Ok(0);
        }
        let (landing, of_host) = (self.landing.memory().at(0), self.at == BarsAt::Host);
        let (column, precision) = (self.column, self.precision);
        self.track.send_together(self.landing.memory(), cells, &mut |cells| {
            let (descriptions, bars) = cells.split_at_mut(strips.len() * STRIP_CELLS);
            let mut at = landing + size_of_val(descriptions) as u64;
            for (strip, to) in strips.iter().zip(descriptions.as_chunks_mut().0) {
                strip.describe(to, column, (!of_host).then_some(at), precision);
                at += (strip.bar_cells(precision) * CELL_BYTES) as u64;
            }
            if !of_host {
                write_bars(strips, precision, bars);
            }
        })?;
        let size = (strips.len(), FIXED_THREADS);
        self.track.device.launch_plain(self.track.stream, self.kernel, size, &[landing, padding(precision)])?;
        let of_host = || strips.iter().map(Strip::host_bytes).sum();
        Ok(if self.at == BarsAt::Host { of_host() } else { (cells * CELL_BYTES) as u64 })
    }
}

//! Arguments of a kernel: a market's layout in memory, and the parameters of one plan over it.

use std::sync::Arc;

use crate::cpu::{circle_table, growth_of};
use crate::cuda::codegen::lower::Lowered;
use crate::cuda::codegen::number::{row_bytes, rows_of_slot};
use crate::cuda::codegen::ring_slots::RingSlots;
use crate::cuda::codegen::step_abi::Table;
use crate::cuda::time_chunks::plan::{Chunks, Cut, Lane};
use crate::{Precision, SymbolInput};

/// Number of symbols of a group: the threads of a warp.
pub const GROUP_LANES: usize = 32;

/// Flag in a kernel's arguments: a ring is in scratch memory.
const IN_SCRATCH: u32 = 1 << 31;

/// Bytes of a multiprocessor's shared memory that the system reserves per block.
const SYSTEM_SHARED_BYTES: usize = 1024;

/// Resources of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum bytes of shared memory per block.
    pub shared_bytes: usize,
    /// Number of multiprocessors.
    pub multiprocessors: usize,
}

impl Default for Limits {
    /// The resources of compute capability 9.0.
    fn default() -> Self {
        Self { shared_bytes: 227 * 1024, multiprocessors: 132 }
    }
}

/// Bars of symbols in the layout read by kernels: groups of [`GROUP_LANES`] symbols, per column one row per bar and one
/// lane per symbol, left-aligned.
#[derive(Debug, Clone)]
pub struct Market {
    /// Per column: the rows of all groups, concatenated; empty if the bars are stored elsewhere.
    pub columns: Vec<Vec<f64>>,
    /// First row of each group, and the end of the last one.
    pub first_row: Vec<i64>,
    /// Number of bars of each lane, those that its symbol sees or, of columns that are laid whole, all; 0 for lanes without a symbol.
    pub visible: Vec<i32>,
    /// The lane of each symbol, counted over all groups.
    pub lanes: Vec<usize>,
    /// The bars of each lane, if lanes are chunks of symbols.
    pub chunks: Option<Arc<Chunks>>,
}

impl Market {
    /// Lays out `columns` columns of each symbol. Symbols of similar length share a group.
    pub fn new(columns: usize, symbols: &[SymbolInput<'_>]) -> Self {
        Self::places(symbols).with_columns(columns, symbols)
    }

    /// Fills in the bars of symbols that already have places.
    pub fn with_columns(self, columns: usize, symbols: &[SymbolInput<'_>]) -> Self {
        let mut market = self;
        let cells = market.rows() * GROUP_LANES;
        for column in 0..columns {
            let mut laid = vec![0.0; cells];
            market.lay(symbols, column, 0, &mut laid, |x| x);
            market.columns.push(laid);
        }
        market
    }

    /// The layout of symbols, without their bars. Symbols of similar length share a group.
    pub fn places(symbols: &[SymbolInput<'_>]) -> Self {
        let mut order: Vec<usize> = (0..symbols.len()).collect();
        order.sort_by_key(|&i| symbols[i].visible);
        let groups = order.len().div_ceil(GROUP_LANES);
        let mut first_row = vec![0i64];
        let mut visible = vec![0i32; groups * GROUP_LANES];
        let mut lanes = vec![0; symbols.len()];
        for (lane, symbol) in order.iter().enumerate() {
            visible[lane] = i32::try_from(symbols[*symbol].visible).unwrap_or(i32::MAX);
            lanes[*symbol] = lane;
        }
        for group in visible.chunks(GROUP_LANES) {
            let rows = group.iter().copied().max().unwrap_or(0);
            first_row.push(first_row[first_row.len() - 1] + i64::from(rows));
        }
        Self { columns: Vec::new(), first_row, visible, lanes, chunks: None }
    }

    /// The layout of symbols that are already grouped, at most [`GROUP_LANES`] per group, without their bars: lanes
    /// follow their order, so that a symbol's position within its group does not depend on other groups.
    pub(crate) fn of_groups<'a>(groups: impl Iterator<Item = &'a [SymbolInput<'a>]>) -> Self {
        Self::of_groups_by(groups.map(|symbols| (symbols, Laid::Visible)))
    }

    /// The same; each group has so many of its symbols' bars.
    pub(crate) fn of_groups_by<'a>(groups: impl Iterator<Item = (&'a [SymbolInput<'a>], Laid)>) -> Self {
        let mut market =
            Self { columns: Vec::new(), first_row: vec![0], visible: Vec::new(), lanes: Vec::new(), chunks: None };
        let mut end = 0i64;
        for (symbols, laid) in groups {
            let begin = market.visible.len();
            market.visible.resize(begin + GROUP_LANES, 0);
            for (lane, symbol) in market.visible[begin..].iter_mut().zip(symbols) {
                let bars = if laid == Laid::Whole { symbol.laid() } else { symbol.visible };
                *lane = i32::try_from(bars).unwrap_or(i32::MAX);
            }
            market.lanes.extend(begin..begin + symbols.len().min(GROUP_LANES));
            end += i64::from(market.visible[begin..].iter().copied().max().unwrap_or(0));
            market.first_row.push(end);
        }
        market
    }

    /// Number of groups of symbols.
    pub fn groups(&self) -> usize {
        self.first_row.len() - 1
    }

    /// Number of rows of all groups.
    pub fn rows(&self) -> usize {
        self.first_row.last().map_or(0, |rows| *rows as usize)
    }

    /// Number of rows of the longest group.
    pub fn longest(&self) -> usize {
        self.first_row.windows(2).map(|pair| (pair[1] - pair[0]) as usize).max().unwrap_or(0)
    }

    /// Index of the element of output `output` for bar `bar` of a symbol.
    pub fn place(&self, wanted: Wanted, output: usize, symbol: usize, bar: usize) -> usize {
        let (group, lane) = (self.lanes[symbol] / GROUP_LANES, self.lanes[symbol] % GROUP_LANES);
        let row = match wanted {
            Wanted::All => self.first_row[group] as usize + bar,
            Wanted::Last => group,
        };
        output * self.output_stride(wanted) + row * GROUP_LANES + lane
    }

    /// The last visible bar of each symbol, of a series of every bar.
    pub fn last_bars(&self, series: &[f64]) -> Vec<f64> {
        let mut last = vec![f64::NAN; self.output_stride(Wanted::Last)];
        for (symbol, lane) in self.lanes.iter().enumerate() {
            if let Some(bar) = usize::try_from(self.visible[*lane]).ok().and_then(|bars| bars.checked_sub(1)) {
                last[self.place(Wanted::Last, 0, symbol, bar)] = series[self.place(Wanted::All, 0, symbol, bar)];
            }
        }
        last
    }

    /// Number of elements of one output.
    pub fn output_stride(&self, wanted: Wanted) -> usize {
        GROUP_LANES * if wanted == Wanted::All { self.rows() } else { self.groups() }
    }
}

/// Which bars of a symbol a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Laid {
    /// Those that it sees.
    Visible,
    /// All that the host has of it: a scan as of another bar finds them.
    Whole,
}

/// Which bars' values are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The last visible one of each symbol.
    Last,
    /// Every bar of each symbol.
    All,
}

/// Flag of a column's address: it points to a table of addresses, one per group, because the rows are not contiguous.
pub const SCATTERED: u64 = 1;

/// Addresses in the device's memory.
#[derive(Debug, Clone, Default)]
pub struct Pointers {
    /// Per column of the kernel: address of its first row or, with [`SCATTERED`], of a table.
    pub columns: Vec<u64>,
    /// Address of the outputs, one after the other.
    pub out: u64,
    /// Address of the rings that do not fit into shared memory.
    pub scratch: u64,
    /// Address of [`Launch::table`].
    pub table: u64,
    /// Address of [`Market::first_row`].
    pub first_row: u64,
    /// Address of [`Market::visible`].
    pub visible: u64,
    /// Address of [`Launch::tail`].
    pub tail: u64,
}

/// One launch of a kernel, without the addresses of its data.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Number of blocks, one per group.
    pub blocks: usize,
    /// Threads of a block.
    pub threads: usize,
    /// Bytes of shared memory of a block.
    pub shared_bytes: usize,
    /// Number of elements of the outputs, in the kernel's number type.
    pub out_len: usize,
    /// Number of elements of the scratch memory, in the same.
    pub scratch_len: usize,
    /// Tables computed by the host, concatenated.
    pub table: Vec<f64>,
    /// Per group: the first bar at which steps with finite windows are needed.
    pub tail: Vec<i32>,
    /// The bars of each lane, if lanes are chunks.
    pub chunks: Option<Arc<Chunks>>,
    pub(super) out_stride: i64,
    pub(super) scratch_slots: i64,
    pub(super) ring_slots: i32,
    pub(super) all: i32,
    /// Bars before the last one of a lane that steps with finite windows are needed at.
    pub(super) reach: i32,
    pub(super) precision: Precision,
    pub(super) doubles: Vec<f64>,
    pub(super) wides: Vec<f64>,
    pub(super) ints: Vec<i32>,
    pub(super) rings: Vec<u32>,
}

impl Lowered {
    /// The launch of this plan over a market.
    pub fn launch(&self, market: &Market, wanted: Wanted, limits: Limits) -> Launch {
        let longest = market.longest();
        let precision = self.kernel.precision;
        let row_bytes = row_bytes(precision);
        let series_bytes = self.kernel.series_rows * row_bytes;
        // As many concurrent blocks as the kernel allows and the market has.
        let blocks = market.groups().div_ceil(limits.multiprocessors.max(1)).clamp(1, self.kernel.blocks.max(1));
        let of_block = (limits.shared_bytes + SYSTEM_SHARED_BYTES) / blocks;
        let room = of_block.saturating_sub(SYSTEM_SHARED_BYTES + series_bytes) / row_bytes;
        let (mut shared, mut scratch) = (0usize, 0usize);
        let mut rings = vec![0u32; 2 * self.values.rings.len()];
        // First the rings that must be in shared memory, then the others as far as they fit.
        for must in [true, false] {
            for (ring, place) in self.values.rings.iter().zip(rings.chunks_exact_mut(2)) {
                if ring.shared != must {
                    continue;
                }
                // The offset after the last bar is accessed too.
                let used = |slots: usize| slots.min(longest + 1);
                let (slots, rows) = match ring.slots {
                    RingSlots::UpTo(slots) => (used(slots), used(slots)),
                    RingSlots::Again { slots, again } => (used(slots), used(slots) + again),
                    RingSlots::Exactly(slots) => (slots, slots),
                    RingSlots::Rows { slots, more, each } => (used(slots) + more, (used(slots) + more) * each),
                };
                let rows = rows * rows_of_slot(precision, ring.wide);
                let (at, taken) = if must || shared + rows <= room {
                    (shared as u32, &mut shared)
                } else {
                    (scratch as u32 | IN_SCRATCH, &mut scratch)
                };
                place.copy_from_slice(&[at, slots as u32]);
                *taken += rows;
            }
        }
        let (table, ints) = self.tables_of(market.longest(), market.chunks.as_deref());
        let reach = match wanted {
            Wanted::All => i32::MAX / 2,
            Wanted::Last => i32::try_from(self.reach).unwrap_or(i32::MAX).min(i32::MAX / 2),
        };
        let tail = |group: &[i32]| match group.iter().copied().filter(|bars| *bars > 0).min() {
            Some(shortest) => (shortest - 1).saturating_sub(reach).max(0),
            None => 0,
        };
        Launch {
            blocks: market.groups(),
            threads: self.kernel.warps * GROUP_LANES,
            shared_bytes: series_bytes + shared * row_bytes,
            out_len: self.kernel.outputs * market.output_stride(wanted),
            scratch_len: scratch * GROUP_LANES * market.groups(),
            table,
            tail: market.visible.chunks(GROUP_LANES).map(tail).collect(),
            chunks: market.chunks.clone(),
            out_stride: market.output_stride(wanted) as i64,
            scratch_slots: scratch as i64,
            ring_slots: shared as i32,
            all: i32::from(wanted == Wanted::All),
            reach,
            precision,
            doubles: self.values.doubles.clone(),
            wides: self.values.wides.clone(),
            ints,
            rings,
        }
    }

    /// The tables over so many bars, concatenated, and the integers with their offsets.
    pub(super) fn tables_of(&self, bars: usize, chunks: Option<&Chunks>) -> (Vec<f64>, Vec<i32>) {
        let mut ints = self.values.ints.clone();
        let mut table: Vec<f64> = Vec::new();
        let mut made: Vec<(Table, usize)> = Vec::new();
        for used in &self.values.tables {
            let known = made.iter().find(|(known, _)| *known == used.table).map(|(_, at)| *at);
            let at = known.unwrap_or_else(|| {
                let at = table.len();
                match used.table {
                    Table::Circles => table.extend(circle_table()),
                    Table::Lanes => table.extend(chunks.iter().flat_map(|chunks| chunks.table())),
                    Table::Growth { rate, cutout } => {
                        table.extend((0..bars.max(1)).map(|bar| growth_of(rate.value(), cutout, bar)));
                    }
                }
                made.push((used.table, at));
                at
            });
            ints[used.at] = at as i32;
            if let Some(length) = used.bars {
                ints[length] = bars.max(1) as i32;
            }
        }
        (table, ints)
    }
}

impl Launch {
    /// The bars whose values the launch computes.
    pub fn wanted(&self) -> Wanted {
        if self.all != 0 { Wanted::All } else { Wanted::Last }
    }

    /// Number of elements of one output.
    pub fn output_stride(&self) -> usize {
        usize::try_from(self.out_stride).unwrap_or(0)
    }

    /// The number type of the kernel's series: columns, outputs, scratch memory.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// The kernel's argument as bytes: the struct `Run` of run.cuh, then columns, floating-point numbers (in `f32` first
    /// those of wide steps), integers, rings.
    pub fn arguments(&self, pointers: &Pointers) -> Vec<u8> {
        let mut bytes = Vec::new();
        let heads =
            [pointers.out, pointers.scratch, pointers.table, pointers.first_row, pointers.visible, pointers.tail];
        heads.iter().for_each(|p| bytes.extend(p.to_ne_bytes()));
        bytes.extend(self.out_stride.to_ne_bytes());
        bytes.extend(self.scratch_slots.to_ne_bytes());
        bytes.extend(self.ring_slots.to_ne_bytes());
        bytes.extend(self.all.to_ne_bytes());
        // The last one is unused: addresses of eight bytes follow.
        [self.reach, 0].iter().for_each(|x| bytes.extend(x.to_ne_bytes()));
        // C++ has no empty arrays: each has at least one element.
        pointers.columns.iter().for_each(|p| bytes.extend(p.to_ne_bytes()));
        bytes.resize(bytes.len() + if pointers.columns.is_empty() { 8 } else { 0 }, 0);
        let wide = |bytes: &mut Vec<u8>, numbers: &[f64]| {
            numbers.iter().for_each(|x| bytes.extend(x.to_ne_bytes()));
            bytes.resize(bytes.len() + if numbers.is_empty() { 8 } else { 0 }, 0);
        };
        match self.precision {
            Precision::F64 => wide(&mut bytes, &self.doubles),
            Precision::F32 => {
                wide(&mut bytes, &self.wides);
                self.doubles.iter().for_each(|x| bytes.extend((*x as f32).to_ne_bytes()));
                bytes.resize(bytes.len() + if self.doubles.is_empty() { 4 } else { 0 }, 0);
            }
        }
        self.ints.iter().for_each(|x| bytes.extend(x.to_ne_bytes()));
        bytes.resize(bytes.len() + if self.ints.is_empty() { 4 } else { 0 }, 0);
        self.rings.iter().for_each(|x| bytes.extend(x.to_ne_bytes()));
        bytes.resize(bytes.len() + if self.rings.is_empty() { 4 } else { 0 }, 0);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }
}

impl Cut {
    /// The layout of lanes: in order, regardless of their lengths.
    pub fn places(&self, lanes: &[Lane]) -> Market {
        let groups = lanes.len().div_ceil(GROUP_LANES);
        let of = |lane: usize| lanes.get(lane).copied();
        let number = |x: i64| i32::try_from(x).unwrap_or(i32::MAX);
        let all = 0..groups * GROUP_LANES;
        let visible: Vec<i32> = all.clone().map(|lane| of(lane).map_or(0, |lane| number(lane.rows as i64))).collect();
        let first_bar = all.map(|lane| of(lane).map_or(-number(self.lead as i64), |lane| number(lane.first_bar)));
        let chunks = Chunks { width: self.width, lead: self.lead, first_bar: first_bar.collect() };
        let mut first_row = vec![0i64];
        for group in visible.chunks(GROUP_LANES) {
            let rows = group.iter().copied().max().unwrap_or(0);
            first_row.push(first_row[first_row.len() - 1] + i64::from(rows));
        }
        let lanes = (0..lanes.len()).collect();
        Market { columns: Vec::new(), first_row, visible, lanes, chunks: Some(chunks.into()) }
    }
}

//! One batch on a device: groups of symbols are copied in, a sequence of kernels runs over them, values are copied out.
//! All work is enqueued in one stream at once; values are fetched when the batch is finished.

mod kernels;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cuda::device::arguments::{GROUP_LANES, Laid, Market, Wanted};
use crate::cuda::device::{CELL_BYTES, Fault, Place};
use crate::cuda::execute::cells::row_cells;
use crate::cuda::execute::column_cache::{CachedColumn, ColumnKey, Neighbours, ResidentColumns};
use crate::cuda::execute::device_laying::{Laying, LayingKernels};
use crate::cuda::execute::graphs::{Graphs, LaunchedGraph};
use crate::cuda::execute::held::{HeldBatch, Holding, RowsOf};
use crate::cuda::execute::placement::Placement;
use crate::cuda::execute::programs::Ready;
use crate::cuda::execute::transfer::{DeviceBuffer, Lent, OwnMark};
use crate::stages::{EngineStage, Launches, StageSpan, Stages};
use crate::{Precision, SymbolInput};

/// The work of a batch.
pub(super) struct Task<'a> {
    pub wanted: Wanted,
    /// Cache for columns of bars with a known source.
    pub resident: Option<&'a ResidentColumns>,
    pub placement: &'a dyn Placement,
    /// For columns that the device lays out.
    pub laying: LayingKernels<'a>,
    /// For sequences of many kernels.
    pub graphs: &'a Arc<Graphs>,
    /// Whether values are fetched; `false` to measure the device's time only, and if they stay on the device.
    pub fetch: bool,
    /// Where the outputs stay on the device.
    pub holding: Option<&'a Holding>,
}

/// One group of a request in a batch.
pub(super) struct Batched<'a> {
    /// Its index among the request's groups.
    pub group: usize,
    pub part: usize,
    /// Symbols, in the order of their lanes.
    pub symbols: Vec<SymbolInput<'a>>,
    /// Their indices among the part's symbols.
    pub members: Vec<usize>,
    /// Cache keys of its columns, one per column of the program, or `None`.
    pub keys: Vec<Option<ColumnKey>>,
    /// Which bars its columns with a key hold; others hold those that are visible.
    pub holds: Laid,
    /// Whether the host lacks bars of its symbols: columns with a key have to be there.
    pub is_unread: bool,
}

/// Location of a column's rows, per group.
type Column = Vec<CachedColumn>;

/// Groups whose bars are laid out, and their layout.
type LaidOut<'a> = (Vec<(usize, Laid)>, Market, Vec<SymbolInput<'a>>);

/// Contiguous series on the device.
struct Extent {
    held: Arc<DeviceBuffer>,
    /// First cell; `cells` is their number.
    at: usize,
    cells: usize,
    /// The outputs they hold, in order.
    outputs: Vec<usize>,
}

/// A run of cells of an extent, copied together with others.
struct CopyRun {
    extent: usize,
    at: usize,
    cells: usize,
    staging_at: usize,
}

/// A batch in progress.
pub(super) struct Batch {
    number: u32,
    precision: Precision,
    market: Market,
    /// The request's groups that it contains.
    pub groups: Vec<usize>,
    /// Per lane: part and symbol of the request.
    owners: Vec<Option<(usize, usize)>>,
    wanted: Wanted,
    extents: Vec<Extent>,
    /// Runs of cells that fit into one pinned buffer together.
    parcels: Vec<Vec<CopyRun>>,
    /// Marks after the parcels whose copy was enqueued.
    fetched: Vec<OwnMark>,
    /// Columns to be cached once they have been copied.
    keep: Vec<(Arc<DeviceBuffer>, Neighbours)>,
    /// Cached memory that is read again, and its copy in the device's own.
    promoted: Vec<(Arc<DeviceBuffer>, Arc<DeviceBuffer>)>,
    columns: Vec<Option<Column>>,
    /// Marks before all work, after the copies in, and after the kernels.
    marks: Vec<OwnMark>,
    bytes_in: u64,
    /// Kernels launched, and calls that launched them.
    launches: Launches,
    /// Outputs that stay on the device, and the mark behind their copies.
    held: Option<HeldBatch>,
    left: Option<OwnMark>,
    settled: bool,
    /// The graph of its kernels: not used by another batch before this one has ended. Returned before the track,
    /// so that whoever gets that finds it.
    graph: Option<LaunchedGraph>,
    lent: Lent,
}

/// Timing of a batch.
pub(super) struct Ran {
    /// Duration of its kernels.
    pub computing: Duration,
    /// From its first copy to its last.
    pub began: Instant,
    pub ended: Instant,
    /// Its outputs, if they stay on the device.
    pub held: Option<HeldBatch>,
}

impl Batch {
    /// Enqueues all work in the stream. `market`: layout of the groups.
    pub fn start(
        ready: &Ready,
        task: &Task<'_>,
        market: Market,
        groups: &[Batched<'_>],
        number: u32,
        lent: Lent,
    ) -> Result<Self, Fault> {
        let owners = groups.iter().flat_map(|group| {
            let mine = group.members.iter().map(|symbol| Some((group.part, *symbol)));
            mine.chain(std::iter::repeat(None)).take(GROUP_LANES)
        });
        let mut batch = Self {
            number,
            precision: ready.sequence.precision,
            market,
            groups: groups.iter().map(|group| group.group).collect(),
            owners: owners.collect(),
            wanted: task.wanted,
            extents: Vec::new(),
            parcels: Vec::new(),
            fetched: Vec::new(),
            keep: Vec::new(),
            promoted: Vec::new(),
            columns: Vec::new(),
            marks: Vec::new(),
            bytes_in: 0,
            launches: Launches::default(),
            held: None,
            left: None,
            settled: false,
            lent,
            graph: None,
        };
        batch.marks.push(batch.lent.mark()?);
        batch.send_columns(ready, task, groups)?;
        batch.compute(ready, task.graphs)?;
        batch.marks.push(batch.lent.mark()?);
        if let Some(holding) = task.holding {
            batch.hold(holding)?;
        }
        if task.fetch {
            batch.cut_parcels();
            for parcel in 0..batch.parcels.len().min(2) {
                batch.fetch(parcel)?;
            }
        }
        Ok(batch)
    }

    fn send_columns(&mut self, ready: &Ready, task: &Task<'_>, groups: &[Batched<'_>]) -> Result<(), Fault> {
        let count = groups.iter().find_map(|group| group.symbols.first()).map_or(0, |symbol| symbol.columns.len());
        // Mostly the same groups are missing from one column as from the next.
        let mut laid: Option<LaidOut<'_>> = None;
        for column in 0..count {
            if !ready.uses.columns.contains(&column) {
                self.columns.push(None);
                continue;
            }
            let key = |group: &Batched<'_>| group.keys.get(column).cloned().flatten();
            let there = |group: &Batched<'_>| task.resident.zip(key(group)).and_then(|(kept, key)| kept.get(&key));
            let mut places: Vec<Option<CachedColumn>> = groups.iter().map(there).collect();
            // Kernels that walk from chunk to chunk need a column in one piece.
            let known: Option<Column> = places.iter().cloned().collect();
            if self.market.chunks.is_some() && !known.is_some_and(|known| self.is_whole(&known)) {
                places = vec![None; groups.len()];
            }
            let holds = |group: &Batched<'_>| if key(group).is_some() { group.holds } else { Laid::Visible };
            let missing = (0..groups.len()).filter(|group| places[*group].is_none());
            let missing: Vec<(usize, Laid)> = missing.map(|group| (group, holds(&groups[group]))).collect();
            if missing.iter().any(|(group, _)| groups[*group].is_unread && key(&groups[*group]).is_some()) {
                return Err(Fault::NotHeld);
            }
            if !missing.is_empty() {
                let (_, market, symbols) = match laid.take() {
                    Some(known) if known.0 == missing => laid.insert(known),
                    _ => {
                        let of_group = |(group, laid): &(usize, Laid)| (groups[*group].symbols.as_slice(), *laid);
                        let market = Market::of_groups_by(missing.iter().map(of_group));
                        let symbols = missing.iter().flat_map(|(group, _)| groups[*group].symbols.clone()).collect();
                        laid.insert((missing.clone(), market, symbols))
                    }
                };
                let (row_cells, precision) = (row_cells(self.precision), self.precision);
                let laying = Laying { market, symbols, column, precision, kernels: &task.laying };
                let (held, bytes) = task.placement.place(&mut self.lent, &laying)?;
                let held = Arc::new(held);
                self.bytes_in += bytes;
                let mut known = Neighbours::new();
                for ((group, _), first_row) in missing.iter().zip(&market.first_row) {
                    let cell = *first_row as usize * row_cells;
                    known.extend(key(&groups[*group]).map(|key| (key, cell)));
                    places[*group] = Some((Arc::clone(&held), cell));
                }
                self.keep.push((held, known));
            }
            self.promote(task, &mut places)?;
            self.columns.push(places.into_iter().collect());
        }
        Ok(())
    }

    /// Replaces cached memory that is read again by copies in the device's own, where the placement makes them.
    fn promote(&mut self, task: &Task<'_>, places: &mut [Option<CachedColumn>]) -> Result<(), Fault> {
        for (held, _) in places.iter_mut().flatten() {
            let is_new = self.keep.iter().any(|(own, _)| Arc::ptr_eq(own, held));
            if is_new || held.memory().place() == Place::Device {
                continue;
            }
            let known = self.promoted.iter().find(|(old, _)| Arc::ptr_eq(old, held));
            if let Some((_, own)) = known {
                *held = Arc::clone(own);
            } else if let Some(own) = task.placement.promote(&self.lent, held)? {
                self.bytes_in += (own.memory().cells() * CELL_BYTES) as u64;
                let own = Arc::new(own);
                self.promoted.push((Arc::clone(held), Arc::clone(&own)));
                *held = own;
            }
        }
        Ok(())
    }

    /// Copies the outputs to where they stay.
    fn hold(&mut self, holding: &Holding) -> Result<(), Fault> {
        let mut extents = Vec::with_capacity(self.extents.len());
        for extent in &self.extents {
            let at = holding.reserve(extent.cells)?;
            let (from, to) = ((extent.held.memory(), extent.at), (holding.block.memory(), at));
            self.lent.device.copy_within(self.lent.stream, from, to, extent.cells)?;
            extents.push((at, extent.cells, extent.outputs.clone()));
        }
        let (market, owners) = (self.market.clone(), self.owners.clone());
        self.held = Some(HeldBatch { precision: self.precision, market, owners, wanted: self.wanted, extents });
        // Behind the copies: what waits for the batch waits for them.
        self.left = Some(self.lent.mark()?);
        Ok(())
    }

    fn cut_parcels(&mut self) {
        let room = self.lent.staging_cells;
        let mut used = room;
        for (number, extent) in self.extents.iter().enumerate() {
            let mut at = 0;
            while at < extent.cells {
                if used == room {
                    self.parcels.push(Vec::new());
                    used = 0;
                }
                let cells = (room - used).min(extent.cells - at);
                if let Some(parcel) = self.parcels.last_mut() {
                    parcel.push(CopyRun { extent: number, at, cells, staging_at: used });
                }
                used += cells;
                at += cells;
            }
        }
    }

    fn fetch(&mut self, parcel: usize) -> Result<(), Fault> {
        for piece in &self.parcels[parcel] {
            let extent = &self.extents[piece.extent];
            let from = (extent.held.memory(), extent.at + piece.at);
            let to = (&self.lent.outward[parcel % 2], piece.staging_at);
            self.lent.device.copy_out(self.lent.stream, from, to, piece.cells)?;
        }
        self.fetched.push(self.lent.mark()?);
        Ok(())
    }

    /// Waits, passes every value to `value` (part and symbol, output, bar, value), and returns the timing.
    pub fn finish(
        mut self,
        kept: Option<&ResidentColumns>,
        stages: &mut Stages,
        value: &mut dyn FnMut((usize, usize), usize, usize, f64),
    ) -> Result<Ran, Fault> {
        let mut bytes_out = 0;
        for parcel in 0..self.parcels.len() {
            self.fetched[parcel].wait()?;
            for piece in &self.parcels[parcel] {
                bytes_out += (piece.cells * CELL_BYTES) as u64;
                let staging = &self.lent.outward[parcel % 2];
                let outputs = &self.extents[piece.extent].outputs;
                let read = &mut |cells: &[u64]| self.rows().read(outputs, piece.at, cells, value);
                self.lent.device.read(staging, piece.staging_at, piece.cells, read);
            }
            if parcel + 2 < self.parcels.len() {
                self.fetch(parcel + 2)?;
            }
        }
        for mark in self.marks.iter().chain(&self.left) {
            mark.wait()?;
        }
        self.lent.settled();
        self.settled = true;
        if let Some(kept) = kept {
            self.keep.iter().for_each(|(held, columns)| kept.keep(columns, held));
            self.promoted.iter().for_each(|(old, own)| kept.replace(old, own));
        }
        let [started, sent, computed] = self.marks.as_slice() else {
            return Err(Fault::Failed("a batch without its marks".to_owned()));
        };
        stages.launched(self.launches);
        let mut record = |stage, bytes, started, ended| {
            stages.record(StageSpan { stage, part: self.number, bytes, started, ended });
        };
        let (began, computing, computed_at) = (started.time()?, sent.time()?, computed.time()?);
        record(EngineStage::HostToDevice, self.bytes_in, began, computing);
        record(EngineStage::Kernel, 0, computing, computed_at);
        let mut ended = computed_at;
        if let Some(done) = self.fetched.last() {
            ended = done.time()?;
            record(EngineStage::DeviceToHost, bytes_out, computed_at, ended);
        }
        let computing = self.lent.device.between(sent.mark(), computed.mark())?;
        Ok(Ran { computing, began, ended, held: self.held.take() })
    }

    fn rows(&self) -> RowsOf<'_> {
        RowsOf { precision: self.precision, market: &self.market, owners: &self.owners, wanted: self.wanted }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // Memory and buffers are reused by other batches, so all work must have ended. Errors have already been
        // reported.
        if !self.settled {
            let _ = self.lent.settle();
        }
    }
}

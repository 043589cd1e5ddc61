//! Runs programs over chunks of symbols on a device. All chunks of a symbol are in one batch, since each takes its
//! state from the preceding ones; otherwise a batch treats a chunk like a symbol.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use trawl_plan::Program;

use crate::cuda::device::arguments::{GROUP_LANES, Laid, Wanted};
use crate::cuda::device::{CELL_BYTES, Fault, Urgency};
use crate::cuda::execute::batch::{Batch, Batched, Task};
use crate::cuda::execute::column_cache::ColumnKey;
use crate::cuda::execute::device_queue::{Executor, RESIDENT_SHARE};
use crate::cuda::execute::policy::Lowering;
use crate::cuda::execute::programs::Ready;
use crate::cuda::execute::request::{BarsSource, RequestPart, keys_by, of_host};
use crate::cuda::time_chunks::plan::{CHUNK_BARS, Cut, Lane};
use crate::stages::Stages;
use crate::{Cancel, Executable, SymbolInput, Values};

/// One request and its results so far.
struct ChunkedRequest<'a> {
    program: &'a Program,
    part: RequestPart<'a>,
    cut: Cut,
    lanes: Vec<Lane>,
    ready: Arc<Ready>,
    task: Task<'a>,
    values: Values,
    next_batch: u32,
}

impl Executor {
    /// As [`Executor::evaluate_from`], each symbol's bars in chunks side by side: for few symbols with long histories.
    /// Values agree with those of the CPU to 1e-12 where steps are recursive. A program without such kernels fails with
    /// [`crate::cuda::LowerError::Serial`]. `fetch`: whether to fetch values, or only measure the device's time.
    ///
    /// # Errors
    /// [`Fault`].
    #[allow(clippy::too_many_arguments)]
    pub fn evaluate_in_chunks(
        &self,
        program: &Executable,
        symbols: &[SymbolInput<'_>],
        from: &[usize],
        source: Option<&BarsSource<'_>>,
        cancel: &dyn Cancel,
        stages: &mut Stages,
        fetch: bool,
    ) -> Result<Values, Fault> {
        self.still_used()?;
        let part = RequestPart { symbols: symbols.to_vec(), from: from.to_vec(), source: source.cloned() };
        if part.is_unread() {
            return Err(Fault::NotHeld);
        }
        let done = self.programs.ready(program, Lowering::Chunks, self.options.wait_for_fused).and_then(|ready| {
            let cut = Cut { width: CHUNK_BARS, lead: ready.sequence.lead.unwrap_or(0) };
            let last = symbols.iter().zip(from).all(|(symbol, from)| from + 1 >= symbol.visible);
            let wanted = if last { Wanted::Last } else { Wanted::All };
            let known = source.is_some_and(|source| source.symbols.len() == symbols.len());
            let task = Task {
                wanted,
                resident: known.then_some(&self.resident),
                placement: &*self.placement,
                laying: self.laying_kernels(),
                graphs: &self.graphs,
                fetch,
                holding: None,
            };
            let lanes = cut.lanes(symbols.iter().map(|symbol| symbol.visible));
            let values = if fetch { of_host(program, &part, &ready.sequence, &(0..0)) } else { Values::default() };
            let call =
                ChunkedRequest { program, part, cut, lanes, ready: Arc::clone(&ready), task, values, next_batch: 0 };
            self.run_chunks(call, cancel, stages)
        });
        if let Err(fault) = &done {
            self.notice(fault);
        }
        done
    }

    fn run_chunks(
        &self,
        mut call: ChunkedRequest<'_>,
        cancel: &dyn Cancel,
        stages: &mut Stages,
    ) -> Result<Values, Fault> {
        let most = self.options.batch_bytes_max.unwrap_or(self.budget.bytes_max / RESIDENT_SHARE);
        let mut waiting: Vec<Range<usize>> = Vec::new();
        for symbol in
            (0..call.part.symbols.len()).filter(|symbol| call.part.from[*symbol] < call.part.symbols[*symbol].visible)
        {
            match waiting.last_mut().filter(|last| call.bytes(&(last.start..symbol + 1)) <= most) {
                Some(last) => last.end = symbol + 1,
                None => waiting.push(symbol..symbol + 1),
            }
        }
        waiting.reverse();
        while let Some(symbols) = waiting.pop() {
            if cancel.cancelled() {
                return Err(Fault::Cancelled);
            }
            match self.run_batch(&mut call, &symbols, stages) {
                Err(Fault::OutOfMemory { .. }) if symbols.len() > 1 => {
                    let middle = symbols.start + symbols.len() / 2;
                    waiting.push(middle..symbols.end);
                    waiting.push(symbols.start..middle);
                }
                done => done?,
            }
            self.still_used()?;
        }
        Ok(call.values)
    }

    /// Runs a batch of whole symbols. If it does not fit into memory, cached bars are evicted; for a single symbol it
    /// also waits for other requests' batches.
    fn run_batch(
        &self,
        call: &mut ChunkedRequest<'_>,
        symbols: &Range<usize>,
        stages: &mut Stages,
    ) -> Result<(), Fault> {
        let of_batch = &call.part.symbols[symbols.clone()];
        let heads = call.cut.heads(of_batch);
        let first = call.lanes.partition_point(|lane| lane.symbol < symbols.start);
        let end = call.lanes.partition_point(|lane| lane.symbol < symbols.end);
        let own = |lane: &Lane| Lane { symbol: lane.symbol - symbols.start, ..*lane };
        let lanes: Vec<Lane> = call.lanes[first..end].iter().map(own).collect();
        let pieces = call.cut.pieces(of_batch, &heads, &lanes);
        let groups: Vec<Batched<'_>> = pieces
            .chunks(GROUP_LANES)
            .enumerate()
            .map(|(group, pieces)| {
                let first = first + group * GROUP_LANES;
                let members: Vec<usize> = (first..first + pieces.len()).collect();
                Batched {
                    group,
                    part: 0,
                    symbols: pieces.to_vec(),
                    keys: call.keys(&members),
                    members,
                    holds: Laid::Whole,
                    is_unread: false,
                }
            })
            .collect();
        let (mut alone, mut trimmed) = (None, false);
        let batch = loop {
            let returns = self.pool.returns();
            let Some(lent) = self.pool.lend(Urgency::Batch, true)? else { continue };
            match Batch::start(&call.ready, &call.task, call.cut.places(&lanes), &groups, call.next_batch, lent) {
                Err(Fault::OutOfMemory { .. }) if self.resident.let_go_of_one() => {}
                Err(Fault::OutOfMemory { .. }) if !trimmed => {
                    self.trim()?;
                    trimmed = true;
                }
                Err(fault @ Fault::OutOfMemory { .. }) => {
                    alone.get_or_insert_with(|| self.tight.lock().unwrap_or_else(PoisonError::into_inner));
                    if symbols.len() > 1 || !self.pool.wait_for_return(returns) {
                        return Err(fault.needing(call.bytes(symbols)));
                    }
                    trimmed = false;
                }
                started => break started?,
            }
        };
        drop(alone);
        call.next_batch += 1;
        let (lanes, from, values, lead) = (&call.lanes, &call.part.from, &mut call.values, call.cut.lead);
        let mut keep = |(_, lane): (usize, usize), output: usize, row: usize, value: f64| {
            let lane = lanes[lane];
            let at = lane.own_bar(row, lead).and_then(|bar| bar.checked_sub(from[lane.symbol]));
            if let Some(at) = at {
                values.put(lane.symbol, output, at, value);
            }
        };
        let took = batch.finish(call.task.resident, stages, &mut keep)?.computing;
        let allowed = self.options.batch_time_max;
        if took > allowed { Err(Fault::Late { took, allowed }) } else { Ok(()) }
    }
}

impl ChunkedRequest<'_> {
    /// Peak bytes of device memory for the series of some symbols.
    fn bytes(&self, symbols: &Range<usize>) -> u64 {
        let lanes: usize = self.part.symbols[symbols.clone()].iter().map(|s| s.visible.div_ceil(self.cut.width)).sum();
        let rows = (lanes.div_ceil(GROUP_LANES) * (self.cut.width + self.cut.lead)) as u64;
        rows * self.ready.uses.series_at_once(self.task.wanted) as u64 * (GROUP_LANES * CELL_BYTES) as u64
    }

    /// Cache keys of the columns of a group of lanes, whose layout differs from the same bars of whole symbols.
    fn keys(&self, members: &[usize]) -> Vec<Option<ColumnKey>> {
        let Some(source) = self.part.source.as_ref().filter(|_| self.task.resident.is_some()) else {
            return Vec::new();
        };
        let bars = format!("{} in chunks of {} behind {}", source.bars, self.cut.width, self.cut.lead);
        let source = BarsSource { bars: Arc::from(bars), ..source.clone() };
        let lane = |lane: &Lane| {
            // A lane's first bar and number of rows identify its bars; both are below 2^32.
            let number = (lane.first_bar.cast_unsigned() << 32) ^ lane.rows as u64;
            (number, source.symbols[lane.symbol])
        };
        keys_by(self.program, self.ready.sequence.precision, &source, members.iter().map(|at| lane(&self.lanes[*at])))
    }
}

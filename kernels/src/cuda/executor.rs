//! Runs programs on a device: cuts symbols into batches, keeps two or three under way, halves one that finds no memory, ends
//! where it was cancelled or took too long, and gives the device up once it is lost.
//!
//! None of that shows in a value: groups of symbols are computed each for itself.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use trawl_plan::{Input, Program};
use twox_hash::XxHash3_128;

use super::batch::{Batch, Task};
use super::cache::Cache;
use super::device::{CELL_BYTES, Device, Facts, Fault};
use super::launch::{GROUP_LANES, Market, Wanted};
use super::lowering::Lowering;
use super::programs::{Programs, Ready};
use super::resident::{ColumnKey, ResidentColumns};
use super::sequence::Series;
use super::transfer::{Budget, Lent, Pool};
use crate::stages::Stages;
use crate::{Cancel, SymbolInput};

/// Batches of one call that are under way at once: one goes in, one is computed, one comes out.
const UNDER_WAY_MAX: usize = 3;
/// Largest batch whose bars go in and are not kept: small enough that copying and computing overlap.
const BATCH_BYTES_MAX: u64 = 512 << 20;
/// Share of the budget that is for columns that stay.
pub(super) const RESIDENT_SHARE: u64 = 2;
/// Streams when nothing else is said.
const STREAMS_DEFAULT: usize = 4;
/// Pinned memory of one buffer when nothing else is said.
const STAGING_BYTES: usize = 8 << 20;
/// How long one batch may run on the device when nothing else is said.
const BATCH_TIME_MAX: Duration = Duration::from_secs(10);
/// Of free memory, what is taken when nothing else is said: in tenths.
const SHARE_OF_FREE: u64 = 9;

/// How an engine uses its device.
#[derive(Debug, Clone)]
pub struct ExecutorOptions {
    /// Bytes of the device that it may take; nine tenths of what is free when `None`.
    pub device_memory_bytes: Option<u64>,
    pub streams: usize,
    /// Of each of the four pinned buffers of a stream.
    pub staging_bytes: usize,
    /// How long one batch may run on the device.
    pub batch_time_max: Duration,
    /// Bytes of series of one batch; what fits well when `None`.
    pub batch_bytes_max: Option<u64>,
    /// Waits for fused kernels instead of answering a primitive at a time meanwhile.
    pub wait_for_fused: bool,
}

impl Default for ExecutorOptions {
    fn default() -> Self {
        Self {
            device_memory_bytes: None,
            streams: STREAMS_DEFAULT,
            staging_bytes: STAGING_BYTES,
            batch_time_max: BATCH_TIME_MAX,
            batch_bytes_max: None,
            wait_for_fused: false,
        }
    }
}

/// What bars are of, so that they can stay on the device.
#[derive(Debug, Clone)]
pub struct Source<'a> {
    /// Dataset, snapshot, adjustment, frame, as-of: whatever the bars depend on beside what follows.
    pub bars: Arc<str>,
    pub group: u32,
    /// Names of the symbols, in the order of the call's.
    pub symbols: &'a [&'a str],
}

/// What is told when a device is lost.
type OnLost = Box<dyn FnOnce(&str) + Send>;

/// A device and what runs on it.
pub struct Executor {
    device: Arc<dyn Device>,
    pub(super) options: ExecutorOptions,
    pub(super) budget: Arc<Budget>,
    pub(super) pool: Arc<Pool>,
    pub(super) programs: Programs,
    pub(super) resident: ResidentColumns,
    /// Held by the one call that waits for other calls' memory: two would wake each other for nothing.
    pub(super) tight: Mutex<()>,
    lost: OnceLock<String>,
    on_lost: Mutex<Option<OnLost>>,
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executor").field("device", &self.device).field("options", &self.options).finish_non_exhaustive()
    }
}

/// One call, and what came of it so far.
struct Call<'a> {
    symbols: &'a [SymbolInput<'a>],
    from: &'a [usize],
    ready: Arc<Ready>,
    task: Task<'a>,
    /// Symbols that have bars, the shortest histories first.
    order: Vec<usize>,
    values: Vec<Vec<Vec<f64>>>,
    next_batch: u32,
}

impl Executor {
    /// Takes a device.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn new(device: Arc<dyn Device>, cache: Cache, options: ExecutorOptions) -> Result<Self, Fault> {
        let bytes_max = match options.device_memory_bytes {
            Some(bytes) => bytes,
            None => device.free_bytes()? / 10 * SHARE_OF_FREE,
        };
        let budget = Arc::new(Budget::new(bytes_max));
        Ok(Self {
            pool: Arc::new(Pool::new(Arc::clone(&device), Arc::clone(&budget), options.streams, options.staging_bytes)),
            programs: Programs::new(Arc::clone(&device), cache)?,
            resident: ResidentColumns::new(bytes_max / RESIDENT_SHARE),
            budget,
            device,
            options,
            tight: Mutex::default(),
            lost: OnceLock::new(),
            on_lost: Mutex::default(),
        })
    }

    pub fn facts(&self) -> &Facts {
        self.device.facts()
    }

    /// Bytes of the device that it may take.
    pub fn device_memory_bytes(&self) -> u64 {
        self.budget.bytes_max
    }

    /// Bytes of columns that stay on the device now.
    pub fn resident_bytes(&self) -> u64 {
        self.resident.bytes()
    }

    /// Why the device is used no more.
    pub fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// Has `tell` told, once, when the device is lost; at once when it is already.
    pub fn on_lost(&self, tell: impl FnOnce(&str) + Send + 'static) {
        *self.on_lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(tell));
        if let Some(why) = self.lost() {
            self.tell_lost(why);
        }
    }

    fn tell_lost(&self, why: &str) {
        let tell = self.on_lost.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(tell) = tell {
            tell(why);
        }
    }

    /// Whether the fused kernels of a program answer.
    pub fn is_fused(&self, program: &Program) -> bool {
        self.programs.ready(program, Lowering::Serial, false).is_ok_and(|ready| ready.fused)
    }

    /// Compiles what answers a program until its fused kernel is there; how many kernels that are.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn warm(&self, program: &Program) -> Result<usize, Fault> {
        self.programs.warm(program)
    }

    /// Evaluates the program's outputs on the bars `from[i]..visible` of each symbol i: `[symbol][output][bar - from]`, as
    /// [`crate::evaluate_from`]. Bars of a known `source` stay on the device.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn evaluate_from(
        &self,
        program: &Program,
        symbols: &[SymbolInput<'_>],
        from: &[usize],
        source: Option<&Source<'_>>,
        cancel: &dyn Cancel,
        stages: &mut Stages,
    ) -> Result<Vec<Vec<Vec<f64>>>, Fault> {
        self.evaluate(program, symbols, from, source, cancel, stages, true)
    }

    /// As [`Self::evaluate_from`], and fetches nothing: for measuring the device.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn compute_only(
        &self,
        program: &Program,
        symbols: &[SymbolInput<'_>],
        from: &[usize],
        source: Option<&Source<'_>>,
        stages: &mut Stages,
    ) -> Result<(), Fault> {
        self.evaluate(program, symbols, from, source, &crate::NoCancel, stages, false).map(drop)
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn evaluate(
        &self,
        program: &Program,
        symbols: &[SymbolInput<'_>],
        from: &[usize],
        source: Option<&Source<'_>>,
        cancel: &dyn Cancel,
        stages: &mut Stages,
        fetch: bool,
    ) -> Result<Vec<Vec<Vec<f64>>>, Fault> {
        if let Some(why) = self.lost() {
            return Err(Fault::Lost(why.to_owned()));
        }
        let waits = self.options.wait_for_fused;
        let done = self.programs.ready(program, Lowering::Serial, waits).and_then(|ready| {
            let last = symbols.iter().zip(from).all(|(symbol, from)| from + 1 >= symbol.visible);
            let wanted = if last { Wanted::Last } else { Wanted::All };
            let keys = source.map(|source| keys_of(program, symbols.len(), source));
            let resident = keys.map(|keys| (&self.resident, keys));
            let task = Task { ready: &ready, wanted, resident, fetch };
            let mut order: Vec<usize> = (0..symbols.len()).filter(|i| symbols[*i].visible > 0).collect();
            order.sort_by_key(|i| symbols[*i].visible);
            let values = if fetch { of_host(program, symbols, from, &ready.sequence.outputs) } else { Vec::new() };
            let call = Call { symbols, from, ready: Arc::clone(&ready), task, order, values, next_batch: 0 };
            self.run(call, cancel, stages)
        });
        self.noted(done)
    }

    /// Gives the device up where it is lost.
    pub(super) fn noted<T>(&self, done: Result<T, Fault>) -> Result<T, Fault> {
        if let Err(Fault::Lost(why)) = &done {
            // The first reason counts.
            let why = self.lost.get_or_init(|| why.clone());
            self.tell_lost(why);
        }
        done
    }

    fn run(&self, mut call: Call<'_>, cancel: &dyn Cancel, stages: &mut Stages) -> Result<Vec<Vec<Vec<f64>>>, Fault> {
        let mut waiting = self.cut(&call);
        let mut under_way: VecDeque<Batch> = VecDeque::new();
        loop {
            if cancel.cancelled() {
                return Err(Fault::Cancelled);
            }
            let room = under_way.len() < UNDER_WAY_MAX;
            let next = if room { waiting.pop_front() } else { None };
            let Some(groups) = next else {
                let Some(batch) = under_way.pop_front() else { break };
                self.finish(batch, &mut call, stages)?;
                continue;
            };
            // Without waiting where something of this call is under way: two calls must not wait for each other.
            let Some(lent) = self.pool.lend(under_way.is_empty())? else {
                waiting.push_front(groups);
                if let Some(batch) = under_way.pop_front() {
                    self.finish(batch, &mut call, stages)?;
                }
                continue;
            };
            match self.start(&mut call, groups.clone(), lent) {
                Ok(batch) => under_way.push_back(batch),
                Err(Fault::OutOfMemory { .. }) if self.resident.let_go_of_one() => waiting.push_front(groups),
                Err(Fault::OutOfMemory { .. }) if !under_way.is_empty() => {
                    waiting.push_front(groups);
                    if let Some(batch) = under_way.pop_front() {
                        self.finish(batch, &mut call, stages)?;
                    }
                }
                Err(Fault::OutOfMemory { .. }) if groups.len() > 1 => {
                    let middle = groups.start + groups.len() / 2;
                    waiting.push_front(middle..groups.end);
                    waiting.push_front(groups.start..middle);
                }
                Err(Fault::OutOfMemory { .. }) => under_way.push_back(self.start_when_others_end(&mut call, groups)?),
                Err(fault) => return Err(fault),
            }
        }
        Ok(call.values)
    }

    /// Starts a batch of one group that found no memory although nothing of its call is under way: other calls' batches end.
    fn start_when_others_end(&self, call: &mut Call<'_>, groups: Range<usize>) -> Result<Batch, Fault> {
        let _alone = self.tight.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let returns = self.pool.returns();
            let Some(lent) = self.pool.lend(true)? else { continue };
            match self.start(call, groups.clone(), lent) {
                Err(Fault::OutOfMemory { needed_bytes, free_bytes }) => {
                    if !self.resident.let_go_of_one() && !self.pool.wait_for_return(returns) {
                        let needed_bytes = needed_bytes.max(self.bytes_of(call, &groups));
                        return Err(Fault::OutOfMemory { needed_bytes, free_bytes });
                    }
                }
                started => return started,
            }
        }
    }

    /// Groups of symbols by batch.
    fn cut(&self, call: &Call<'_>) -> VecDeque<Range<usize>> {
        let groups = call.order.len().div_ceil(GROUP_LANES);
        let free = self.budget.bytes_max / RESIDENT_SHARE / UNDER_WAY_MAX as u64;
        let most = match (self.options.batch_bytes_max, &call.task.resident) {
            (Some(bytes), _) => bytes,
            (None, Some(_)) => free,
            (None, None) => free.min(BATCH_BYTES_MAX),
        };
        let mut batches: VecDeque<Range<usize>> = VecDeque::new();
        let mut bytes = 0;
        for group in 0..groups {
            let more = self.bytes_of(call, &(group..group + 1));
            bytes += more;
            match batches.back_mut().filter(|_| bytes <= most) {
                Some(batch) => batch.end = group + 1,
                None => {
                    bytes = more;
                    batches.push_back(group..group + 1);
                }
            }
        }
        batches
    }

    /// Bytes of the series of some groups that lie on the device at once.
    fn bytes_of(&self, call: &Call<'_>, groups: &Range<usize>) -> u64 {
        let longest = |group: usize| {
            let last = ((group + 1) * GROUP_LANES).min(call.order.len()) - 1;
            call.symbols[call.order[last]].visible as u64
        };
        let rows: u64 = groups.clone().map(longest).sum();
        let series = call.ready.uses.series_at_once(call.task.wanted) as u64;
        rows * series * (GROUP_LANES * CELL_BYTES) as u64
    }

    fn start(&self, call: &mut Call<'_>, groups: Range<usize>, lent: Lent) -> Result<Batch, Fault> {
        let end = (groups.end * GROUP_LANES).min(call.order.len());
        let members = &call.order[groups.start * GROUP_LANES..end];
        let symbols: Vec<SymbolInput<'_>> = members.iter().map(|i| call.symbols[*i].clone()).collect();
        let number = call.next_batch;
        call.next_batch += 1;
        Batch::start(&call.task, Market::places(&symbols), &symbols, members, number, lent)
    }

    fn finish(&self, batch: Batch, call: &mut Call<'_>, stages: &mut Stages) -> Result<(), Fault> {
        let (values, from) = (&mut call.values, call.from);
        let mut keep = |symbol: usize, output: usize, bar: usize, value: f64| {
            if let Some(at) = bar.checked_sub(from[symbol]) {
                values[symbol][output][at] = value;
            }
        };
        let took = batch.finish(call.task.resident.as_ref().map(|(kept, _)| *kept), stages, &mut keep)?;
        if took > self.options.batch_time_max {
            return Err(Fault::Late { took, allowed: self.options.batch_time_max });
        }
        Ok(())
    }
}

/// Room for all values; those that are columns or constants are there already.
pub(super) fn of_host(
    program: &Program,
    symbols: &[SymbolInput<'_>],
    from: &[usize],
    outputs: &[Series],
) -> Vec<Vec<Vec<f64>>> {
    let of_symbol = |(symbol, from): (&SymbolInput<'_>, &usize)| {
        let bars = symbol.visible.saturating_sub(*from);
        let series = |output: &Series| match *output {
            Series::Column(column) => {
                let told = symbol.columns.get(column).and_then(|c| c.get(*from..symbol.visible)).unwrap_or_default();
                told.iter().map(|x| if x.is_nan() { f64::NAN } else { *x }).collect()
            }
            Series::Constant(value) => vec![value; bars],
            Series::Made { .. } => vec![f64::NAN; bars],
        };
        debug_assert_eq!(outputs.len(), program.outputs.len(), "an output is told once");
        outputs.iter().map(series).collect()
    };
    symbols.iter().zip(from).map(of_symbol).collect()
}

/// What the columns of a source are known by; only columns of bars stay.
pub(super) fn keys_of(program: &Program, symbols: usize, source: &Source<'_>) -> Vec<Option<ColumnKey>> {
    if source.symbols.len() != symbols {
        return Vec::new();
    }
    let names: Vec<u8> = source.symbols.iter().flat_map(|name| name.bytes().chain([0])).collect();
    let shape = XxHash3_128::oneshot(&names);
    let key = |input: &Input| match input {
        Input::Column(name) => Some(ColumnKey {
            source: Arc::clone(&source.bars),
            group: source.group,
            column: Arc::from(name.as_str()),
            shape,
        }),
        _ => None,
    };
    program.inputs.iter().map(key).collect()
}

//! Runs programs on a device: cuts symbols into batches, keeps up to three in flight, halves a batch that does not fit
//! into memory, stops on cancellation or timeout, and gives up the device once it is lost.
//!
//! Values do not depend on any of this: each group of symbols is computed independently.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use trawl_plan::Program;

use crate::cuda::codegen::fixed::lay_rows;
use crate::cuda::compile::cache::Cache;
use crate::cuda::device::arguments::{Market, Wanted};
use crate::cuda::device::memory_mode::MemoryMode;
use crate::cuda::device::{Device, Facts, Fault, Stream, Urgency};
use crate::cuda::execute::batch::{Batch, Task};
use crate::cuda::execute::column_cache::ResidentColumns;
use crate::cuda::execute::device_laying::{LAID_BY_DEVICE_MIN, LayingKernels};
use crate::cuda::execute::graphs::Graphs;
use crate::cuda::execute::held::Holding;
use crate::cuda::execute::paying::Paying;
use crate::cuda::execute::placement::{self, Placement};
use crate::cuda::execute::policy::Lowering;
use crate::cuda::execute::programs::Programs;
use crate::cuda::execute::request::{BarsSource, Request, RequestEvent, RequestPart};
use crate::cuda::execute::state_streams::StateStreams;
use crate::cuda::execute::transfer::{Budget, Lent, Pool};
use crate::stages::Stages;
use crate::{Cancel, Executable, Precision, SymbolInput, Values};

/// Maximum batches of one request in flight: one copied in, one computed, one copied out.
const UNDER_WAY_MAX: usize = 3;
/// The same on a device that copies in one direction at a time.
const UNDER_WAY_ONE_ENGINE: usize = 2;
/// Default maximum bytes of the series of a request that counts as small.
const INTERACTIVE_BYTES_MAX: u64 = 32 << 20;
/// Default maximum bytes that one batch copies to the device: small enough that copying and computing overlap.
const BYTES_IN_MAX: u64 = 128 << 20;
/// Cached columns may take 1/`RESIDENT_SHARE` of the budget.
pub(super) const RESIDENT_SHARE: u64 = 2;
/// Default number of streams.
const STREAMS_DEFAULT: usize = 4;
/// Default number of streams for small requests.
const INTERACTIVE_STREAMS_DEFAULT: usize = 2;
/// Number of streams that bring bars before they are asked for.
const PREFETCH_STREAMS: usize = 1;
/// Default bytes of one pinned buffer.
const STAGING_BYTES: usize = 8 << 20;
/// Default maximum bytes of pinned memory.
const PINNED_BYTES_MAX: usize = 256 << 20;
/// Default time limit of one batch on the device.
const BATCH_TIME_MAX: Duration = Duration::from_secs(10);
/// Default share of free memory that is used, in tenths.
const SHARE_OF_FREE: u64 = 9;

/// How an engine uses its device.
#[derive(Debug, Clone)]
pub struct ExecutorOptions {
    /// Maximum bytes of device memory; `None` for nine tenths of the free memory.
    pub device_memory_bytes: Option<u64>,
    /// How bars reach the device; `None` chooses by what the device allows.
    pub memory_mode: Option<MemoryMode>,
    /// Number of streams for large requests, which work side by side.
    pub streams: usize,
    /// Number of streams for small requests.
    pub interactive_streams: usize,
    /// Maximum bytes of the series of a request that counts as small.
    pub interactive_bytes_max: u64,
    /// Maximum batches of one request in flight; `None` chooses by the device's copy engines.
    pub batches_in_flight: Option<usize>,
    /// Bytes of each of the four pinned buffers of a stream.
    pub staging_bytes: usize,
    /// Maximum bytes of all pinned buffers together: those of a stream are smaller if necessary.
    pub pinned_bytes_max: usize,
    /// Time limit of one batch on the device.
    pub batch_time_max: Duration,
    /// Maximum bytes of the series of one batch; `None` chooses by the available memory.
    pub batch_bytes_max: Option<u64>,
    /// Maximum bytes that one batch copies to the device.
    pub batch_in_bytes_max: u64,
    /// Whether to wait for fused kernels instead of using kernels of single primitives meanwhile.
    pub wait_for_fused: bool,
    /// Whether sequences of five and more kernels that run again are launched by one call, as CUDA graphs.
    pub graphs: bool,
    /// Least bytes of a column that the device lays out itself; smaller ones are laid by the host.
    pub laid_by_device_bytes_min: u64,
    /// Whether bars are brought before a request asks for them, where [`Executor::prefetch`] is called and as long as it pays.
    pub prefetch: bool,
}

impl Default for ExecutorOptions {
    fn default() -> Self {
        Self {
            device_memory_bytes: None,
            memory_mode: None,
            streams: STREAMS_DEFAULT,
            interactive_streams: INTERACTIVE_STREAMS_DEFAULT,
            interactive_bytes_max: INTERACTIVE_BYTES_MAX,
            batches_in_flight: None,
            staging_bytes: STAGING_BYTES,
            pinned_bytes_max: PINNED_BYTES_MAX,
            batch_time_max: BATCH_TIME_MAX,
            batch_bytes_max: None,
            batch_in_bytes_max: BYTES_IN_MAX,
            wait_for_fused: false,
            graphs: true,
            laid_by_device_bytes_min: LAID_BY_DEVICE_MIN,
            prefetch: true,
        }
    }
}

/// Callback for the loss of a device.
type OnLost = Box<dyn FnOnce(&str) + Send>;

/// A device with its kernels, memory and streams.
pub struct Executor {
    pub(super) device: Arc<dyn Device>,
    pub(super) options: ExecutorOptions,
    pub(super) budget: Arc<Budget>,
    pub(super) pool: Arc<Pool>,
    pub(super) programs: Programs,
    pub(super) resident: ResidentColumns,
    pub(super) placement: Box<dyn Placement>,
    pub(super) graphs: Arc<Graphs>,
    pub(super) paying: Paying,
    pub(super) state_streams: Arc<StateStreams>,
    /// Why it has its memory mode.
    mode_reason: &'static str,
    /// Maximum batches of one request in flight.
    pub(super) in_flight_max: usize,
    /// In which tensors are made and released, once there are any.
    pub(super) tensor_stream: Mutex<Option<Stream>>,
    /// Held by the one request that waits for memory of other requests: two would wake each other in vain.
    pub(super) tight: Mutex<()>,
    lost: OnceLock<String>,
    on_lost: Mutex<Option<OnLost>>,
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executor").field("device", &self.device).field("options", &self.options).finish_non_exhaustive()
    }
}

impl Executor {
    /// An executor on `device`. Executors of several devices may share the cache of compiled kernels.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn new(device: Arc<dyn Device>, cache: impl Into<Arc<Cache>>, options: ExecutorOptions) -> Result<Self, Fault> {
        let bytes_max = match options.device_memory_bytes {
            Some(bytes) => bytes,
            None => device.free_bytes()? / 10 * SHARE_OF_FREE,
        };
        let access = device.facts().access;
        let (mode, mode_reason) = MemoryMode::choose(access, options.memory_mode).map_err(Fault::Failed)?;
        let budget = Arc::new(Budget::new(bytes_max));
        // In the order of urgency.
        let streams = [options.interactive_streams, options.streams, PREFETCH_STREAMS];
        let pinned = (options.staging_bytes, options.pinned_bytes_max);
        let in_flight = if access.copy_engines >= 2 { UNDER_WAY_MAX } else { UNDER_WAY_ONE_ENGINE };
        Ok(Self {
            pool: Arc::new(Pool::new(Arc::clone(&device), Arc::clone(&budget), streams, pinned)),
            placement: placement::of(mode),
            mode_reason,
            in_flight_max: options.batches_in_flight.unwrap_or(in_flight).max(1),
            programs: Programs::new(Arc::clone(&device), cache.into())?,
            resident: ResidentColumns::new(bytes_max / RESIDENT_SHARE),
            paying: Paying::default(),
            state_streams: Arc::default(),
            graphs: Arc::new(Graphs::new(Arc::clone(&device), options.graphs)),
            budget,
            device,
            options,
            tensor_stream: Mutex::default(),
            tight: Mutex::default(),
            lost: OnceLock::new(),
            on_lost: Mutex::default(),
        })
    }

    /// Properties of its device.
    pub fn facts(&self) -> &Facts {
        self.device.facts()
    }

    /// How bars reach the device, and why so.
    pub fn memory_mode(&self) -> (MemoryMode, &'static str) {
        (self.placement.mode(), self.mode_reason)
    }

    /// Maximum bytes of device memory that it may use.
    pub fn device_memory_bytes(&self) -> u64 {
        self.budget.bytes_max
    }

    /// Bytes of columns currently cached on the device.
    pub fn resident_bytes(&self) -> u64 {
        self.resident.bytes()
    }

    /// Free bytes of its device's memory, whoever uses the rest.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn free_bytes(&self) -> Result<u64, Fault> {
        self.still_used()?;
        self.device.free_bytes()
    }

    /// Launch graphs that are kept for later batches.
    pub fn idle_graphs(&self) -> usize {
        self.graphs.idle()
    }

    /// Why the device is no longer used; `None` while it is.
    pub fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// Calls `notify` once when the device is lost, or immediately if it is lost already.
    pub fn on_lost(&self, notify: impl FnOnce(&str) + Send + 'static) {
        *self.on_lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(notify));
        if let Some(why) = self.lost() {
            self.notify_lost(why);
        }
    }

    /// Asks the device whether it still answers, and gives it up if it does not.
    ///
    /// # Errors
    /// [`Fault::Lost`] if it is given up, now or before; [`Fault::Failed`] if one call failed.
    pub fn probe(&self) -> Result<(), Fault> {
        if let Some(why) = self.lost() {
            // What requests had when the device was lost they have returned by now.
            self.let_go();
            return Err(Fault::Lost(why.to_owned()));
        }
        self.device.probe().inspect_err(|fault| self.notice(fault))
    }

    /// Bytes of host memory that are allocated for its device: pinned, and read by kernels in place.
    pub fn host_bytes(&self) -> u64 {
        self.device.host_bytes()
    }

    /// Releases what a device that is no longer used holds, as far as nothing may use it any more; called again when requests have
    /// ended.
    pub(super) fn let_go(&self) {
        self.resident.close();
        // Calls that wait for a device would wait for ever for a silent one.
        if self.pool.close() {
            self.graphs.clear();
            // Of a context that has ended the host's memory alone is released.
            let _ = self.device.trim();
        }
    }

    /// Gives up the device although it answers: requests that are under way fail with [`Fault::Lost`], and there are no more.
    pub fn quarantine(&self, why: &str) {
        self.notice(&Fault::Lost(why.to_owned()));
    }

    /// An error once the device is given up: values that it may have computed wrongly are not delivered.
    pub(super) fn still_used(&self) -> Result<(), Fault> {
        self.lost().map_or(Ok(()), |why| Err(Fault::Lost(why.to_owned())))
    }

    fn notify_lost(&self, why: &str) {
        let notify = self.on_lost.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(notify) = notify {
            notify(why);
        }
    }

    /// Whether the fused kernels of a program are in use.
    pub fn is_fused(&self, program: &Executable) -> bool {
        self.programs.ready(program, Lowering::Serial, false).is_ok_and(|ready| ready.fused)
    }

    /// What lays columns out on the device.
    pub(super) fn laying_kernels(&self) -> LayingKernels<'_> {
        LayingKernels {
            programs: &self.programs,
            waits: self.options.wait_for_fused,
            bytes_min: self.options.laid_by_device_bytes_min,
        }
    }

    /// Starts compiling the kernels of single primitives of `programs` in the background, so that new plans do not wait
    /// for them, and the one that lays out bars. Returns immediately.
    pub fn warm(&self, programs: Vec<Program>) {
        self.programs.kernel_at_hand(lay_rows(Precision::F64));
        self.programs.warm(programs);
    }

    /// Evaluates the program's outputs on the bars `from[i]..visible` of each symbol i, as [`Executable::evaluate_from`]. Bars of a
    /// known `source` are cached on the device.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn evaluate_from(
        &self,
        program: &Executable,
        symbols: &[SymbolInput<'_>],
        from: &[usize],
        source: Option<&BarsSource<'_>>,
        cancel: &dyn Cancel,
        stages: &mut Stages,
    ) -> Result<Values, Fault> {
        let part = RequestPart { symbols: symbols.to_vec(), from: from.to_vec(), source: source.cloned() };
        self.evaluate_one(program, &part, cancel, stages, true)
    }

    /// As [`Self::evaluate_from`], without fetching values: for benchmarks of the device.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn compute_only(
        &self,
        program: &Executable,
        symbols: &[SymbolInput<'_>],
        from: &[usize],
        source: Option<&BarsSource<'_>>,
        stages: &mut Stages,
    ) -> Result<(), Fault> {
        let part = RequestPart { symbols: symbols.to_vec(), from: from.to_vec(), source: source.cloned() };
        self.evaluate_one(program, &part, &crate::NoCancel, stages, false).map(drop)
    }

    fn evaluate_one(
        &self,
        program: &Executable,
        part: &RequestPart<'_>,
        cancel: &dyn Cancel,
        stages: &mut Stages,
        fetch: bool,
    ) -> Result<Values, Fault> {
        let mut came = Err(Fault::Failed("a call reported nothing".to_owned()));
        let hold = (fetch, None);
        self.evaluate(program, std::slice::from_ref(part), cancel, hold, &mut |event| match event {
            RequestEvent::Stages(batch) => stages.extend(batch),
            RequestEvent::Part { values, .. } => came = values,
        });
        came
    }

    /// Evaluates the program's outputs on all parts in one call: batches span them. Each part is reported once, as soon
    /// as it has values or has failed; an error in one group of symbols fails only its part if the device can continue.
    /// Values do not depend on which parts share a call.
    pub fn evaluate_parts(
        &self,
        program: &Executable,
        parts: &[RequestPart<'_>],
        cancel: &dyn Cancel,
        report: &mut dyn FnMut(RequestEvent<'_>),
    ) {
        self.evaluate(program, parts, cancel, (true, None), report);
    }

    /// As [`Self::evaluate_parts`]; with a place for the outputs they stay on the device, and parts have no values.
    pub(super) fn evaluate_share(
        &self,
        program: &Executable,
        parts: &[RequestPart<'_>],
        cancel: &dyn Cancel,
        holding: Option<&Holding>,
        report: &mut dyn FnMut(RequestEvent<'_>),
    ) {
        self.evaluate(program, parts, cancel, (holding.is_none(), holding), report);
    }

    fn evaluate(
        &self,
        program: &Executable,
        parts: &[RequestPart<'_>],
        cancel: &dyn Cancel,
        (fetch, holding): (bool, Option<&Holding>),
        report: &mut dyn FnMut(RequestEvent<'_>),
    ) {
        let all_fail = |fault: &Fault, report: &mut dyn FnMut(RequestEvent<'_>)| {
            (0..parts.len())
                .for_each(|part| report(RequestEvent::Part { part, values: Err(fault.clone()), took: Duration::ZERO }));
        };
        if let Some(why) = self.lost() {
            return all_fail(&Fault::Lost(why.to_owned()), report);
        }
        let ready = match self.programs.ready(program, Lowering::Serial, self.options.wait_for_fused) {
            Ok(ready) => ready,
            Err(fault) => {
                self.notice(&fault);
                return all_fail(&fault, report);
            }
        };
        let is_last =
            |part: &RequestPart<'_>| part.symbols.iter().zip(&part.from).all(|(s, from)| from + 1 >= s.visible);
        let wanted = if parts.iter().all(is_last) { Wanted::Last } else { Wanted::All };
        let known = parts.iter().any(|part| part.source.is_some());
        let task = Task {
            wanted,
            resident: known.then_some(&self.resident),
            placement: &*self.placement,
            laying: self.laying_kernels(),
            graphs: &self.graphs,
            fetch,
            holding,
        };
        if let Some(holding) = holding {
            holding.begin(&ready);
        }
        let mut call = Request::new(program, parts, &ready, task);
        call.report_empty(report);
        call.fail_not_held(report);
        if let Err(fault) = self.run(&mut call, cancel, report) {
            self.notice(&fault);
            call.fail(0..call.groups.len(), &fault, report);
        }
        // Another request may have lost it meanwhile.
        if self.lost().is_some() {
            self.let_go();
        }
    }

    /// Returns what is kept for later work to the device.
    pub(super) fn trim(&self) -> Result<(), Fault> {
        self.graphs.clear();
        self.device.trim()
    }

    /// Gives up the device if the fault means that it is lost.
    pub(super) fn notice(&self, fault: &Fault) {
        if let Fault::Lost(why) = fault {
            // The first reason counts.
            let why = self.lost.get_or_init(|| why.clone());
            self.let_go();
            self.notify_lost(why);
        }
    }

    fn run(
        &self,
        call: &mut Request<'_>,
        cancel: &dyn Cancel,
        report: &mut dyn FnMut(RequestEvent<'_>),
    ) -> Result<(), Fault> {
        let mut waiting = self.cut(call);
        let urgency = call.urgency(self.options.interactive_bytes_max);
        let mut under_way: VecDeque<Batch> = VecDeque::new();
        // Whether the device was trimmed since a batch was last started.
        let mut trimmed = false;
        loop {
            if cancel.cancelled() {
                return Err(Fault::Cancelled);
            }
            self.still_used()?;
            let room = under_way.len() < self.in_flight_max;
            let next = if room { waiting.pop_front() } else { None };
            let Some(groups) = next else {
                let Some(batch) = under_way.pop_front() else { break };
                self.finish(batch, call, report)?;
                continue;
            };
            // Do not wait while a batch of this request is in flight: two requests must not wait for each other.
            let Some(lent) = self.pool.lend(urgency, under_way.is_empty())? else {
                waiting.push_front(groups);
                if let Some(batch) = under_way.pop_front() {
                    self.finish(batch, call, report)?;
                }
                continue;
            };
            match self.start(call, groups.clone(), lent) {
                Ok(batch) => {
                    trimmed = false;
                    under_way.extend(batch);
                }
                Err(Fault::OutOfMemory { .. }) if self.resident.let_go_of_one() => waiting.push_front(groups),
                Err(Fault::OutOfMemory { .. }) if !under_way.is_empty() => {
                    waiting.push_front(groups);
                    if let Some(batch) = under_way.pop_front() {
                        self.finish(batch, call, report)?;
                    }
                }
                Err(Fault::OutOfMemory { .. }) if !trimmed => {
                    // Released memory is kept in allocations of other sizes.
                    self.trim()?;
                    trimmed = true;
                    waiting.push_front(groups);
                }
                Err(Fault::OutOfMemory { .. }) if groups.len() > 1 => {
                    let middle = groups.start + groups.len() / 2;
                    waiting.push_front(middle..groups.end);
                    waiting.push_front(groups.start..middle);
                }
                Err(Fault::OutOfMemory { .. }) => match self.start_when_others_end(call, groups.clone()) {
                    Ok(batch) => under_way.extend(batch),
                    // Other groups may fit.
                    Err(fault @ (Fault::OutOfMemory { .. } | Fault::NotHeld)) => call.fail(groups, &fault, report),
                    Err(fault) => return Err(fault),
                },
                // Evicted since the request began.
                Err(Fault::NotHeld) => call.fail(groups, &Fault::NotHeld, report),
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// Starts a batch of one group that did not fit into memory although no batch of its request is in flight, after
    /// batches of other requests have ended.
    fn start_when_others_end(&self, call: &mut Request<'_>, groups: Range<usize>) -> Result<Option<Batch>, Fault> {
        let _alone = self.tight.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // Memory that other requests have released since.
            self.trim()?;
            let returns = self.pool.returns();
            let Some(lent) = self.pool.lend(Urgency::Batch, true)? else { continue };
            match self.start(call, groups.clone(), lent) {
                Err(fault @ Fault::OutOfMemory { .. }) => {
                    if !self.resident.let_go_of_one() && !self.pool.wait_for_return(returns) {
                        return Err(fault.needing(call.bytes_of(&groups)));
                    }
                }
                started => return started,
            }
        }
    }

    /// Cuts the groups of symbols into batches.
    fn cut(&self, call: &Request<'_>) -> VecDeque<Range<usize>> {
        let fits = self.budget.bytes_max / RESIDENT_SHARE / self.in_flight_max as u64;
        let fits = self.options.batch_bytes_max.unwrap_or(fits);
        let mut batches: VecDeque<Range<usize>> = VecDeque::new();
        let (mut bytes, mut bytes_in) = (0, 0);
        for group in 0..call.groups.len() {
            let (more, more_in) = (call.bytes_of(&(group..group + 1)), call.bytes_in(group));
            (bytes, bytes_in) = (bytes + more, bytes_in + more_in);
            match batches.back_mut().filter(|_| bytes <= fits && bytes_in <= self.options.batch_in_bytes_max) {
                Some(batch) => batch.end = group + 1,
                None => {
                    (bytes, bytes_in) = (more, more_in);
                    batches.push_back(group..group + 1);
                }
            }
        }
        batches
    }

    /// Starts a batch; `None` if all of its parts have failed meanwhile.
    fn start(&self, call: &mut Request<'_>, groups: Range<usize>, lent: Lent) -> Result<Option<Batch>, Fault> {
        let (number, batched) = call.batch(groups);
        if batched.is_empty() {
            return Ok(None);
        }
        let market = Market::of_groups(batched.iter().map(|group| group.symbols.as_slice()));
        Batch::start(call.ready, &call.task, market, &batched, number, lent).map(Some)
    }

    fn finish(
        &self,
        batch: Batch,
        call: &mut Request<'_>,
        report: &mut dyn FnMut(RequestEvent<'_>),
    ) -> Result<(), Fault> {
        let (groups, resident, mut stages) = (batch.groups.clone(), call.task.resident, Stages::default());
        let holding = call.task.holding;
        let mut keep = |owner: (usize, usize), output: usize, bar: usize, value: f64| {
            call.keep(owner, output, bar, value);
        };
        let mut ran = batch.finish(resident, &mut stages, &mut keep)?;
        self.still_used()?;
        if let Some((holding, held)) = holding.zip(ran.held.take()) {
            holding.keep(held);
        }
        report(RequestEvent::Stages(&stages));
        if ran.computing > self.options.batch_time_max {
            return Err(Fault::Late { took: ran.computing, allowed: self.options.batch_time_max });
        }
        call.done(&groups, (ran.began, ran.ended), report);
        Ok(())
    }
}

//! The CUDA driver as a [`Device`]. No call into it is made before `device_probe` has found it.

use std::ffi::{CString, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cudarc::driver::{CudaContext, DriverError, result, sys};

use crate::cuda::codegen::lower::{Kernel, Lowered};
use crate::cuda::compile::device_probe::{Gpu, has_function};
use crate::cuda::device::arguments::{Launch, Pointers};
use crate::cuda::device::driver_setup::{MANAGED_FUNCTIONS, access_of, priorities, set_up_pool};
use crate::cuda::device::event_pool::EventPool;
use crate::cuda::device::graph::{GRAPH_FUNCTIONS, LaunchGraphs};
use crate::cuda::device::numa::on_node;
use crate::cuda::device::shared_memory::{Owner, SharedMemory, block_bytes, prefetch};
use crate::cuda::device::tensor::{TENSOR_FUNCTIONS, TensorDevice};
use crate::cuda::device::{CELL_BYTES, Device, Facts, Fault, Function, Mark, Memory, Place, Staging, Stream, Urgency};
use crate::cuda::{BACKEND_CUDA, Compiler};

/// Age after which the device's clock is compared with the host's again: events measure milliseconds in 24 bits.
const ANCHOR_AGE_MAX: Duration = Duration::from_secs(1);

/// How long a wait spins before it sleeps between polls.
const SPIN: Duration = Duration::from_micros(100);
/// Sleep between polls of a mark.
const POLL: Duration = Duration::from_micros(30);

/// Share of a multiprocessor's memory, which is divided between its cache and shared memory, requested as shared
/// memory: tiles are read once, so a cache would not be reused.
const CARVE_OUT_PERCENT: i32 = 100;

/// The functions that allocate memory, as faults name them.
const DEVICE_FUNCTION: &str = "cuMemAllocAsync";
const PINNED_FUNCTION: &str = "cuMemHostAlloc";
const MANAGED_FUNCTION: &str = MANAGED_FUNCTIONS[0];

/// The same moment on the device and on the host.
struct Anchor {
    event: sys::CUevent,
    at: Instant,
}

/// A CUDA device.
pub struct Cuda {
    facts: Facts,
    compiler: Compiler,
    /// Keeps the primary context alive.
    context: std::sync::Arc<CudaContext>,
    device: sys::CUdevice,
    /// A stream that is always idle: events recorded in it are reached at once.
    idle: sys::CUstream,
    /// Priorities of streams: the least, and the greatest, which is the lower number.
    priorities: (i32, i32),
    /// Whether the driver has graphs.
    has_graphs: bool,
    /// Whether the driver lets streams of others wait for ours.
    has_tensors: bool,
    shared: SharedMemory,
    events: EventPool,
    /// Bytes of pinned memory.
    pinned_bytes: AtomicU64,
    anchor: Mutex<Anchor>,
}

// SAFETY: driver handles may be used by any thread whose current context is theirs; every call binds it first.
unsafe impl Send for Cuda {}
// SAFETY: as above; the driver serialises where necessary.
unsafe impl Sync for Cuda {}

impl std::fmt::Debug for Cuda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cuda").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// Maps an error that occurs before there is a device.
fn opening(error: DriverError) -> Fault {
    Fault::Failed(format!("{error:?}"))
}

impl Cuda {
    /// Opens the device found by the probe.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn open(gpu: &Gpu) -> Result<Self, Fault> {
        let context = CudaContext::new(gpu.ordinal).map_err(opening)?;
        context.bind_to_thread().map_err(opening)?;
        let ordinal = i32::try_from(gpu.ordinal).unwrap_or(0);
        let device = result::device::get(ordinal).map_err(opening)?;
        set_up_pool(device).map_err(opening)?;
        let idle = result::stream::create(result::stream::StreamKind::NonBlocking).map_err(opening)?;
        let anchor = Anchor { event: new_event().map_err(opening)?, at: Instant::now() };
        let multiprocessors = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        let ratio = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO;
        let facts = Facts {
            name: gpu.name.clone(),
            uuid: gpu.uuid.clone(),
            slice: gpu.slice.clone(),
            backend: BACKEND_CUDA,
            ordinal: gpu.ordinal,
            capability: gpu.capability,
            driver: gpu.driver.clone(),
            compiler: gpu.compiler.version,
            memory_bytes: gpu.memory_bytes,
            shared_bytes: gpu.shared_bytes,
            multiprocessors: context.attribute(multiprocessors).map_err(opening)?.unsigned_abs(),
            f32_per_f64: context.attribute(ratio).map_or(0, i32::unsigned_abs),
            access: access_of(&context, device),
        };
        let device = Self {
            facts,
            compiler: gpu.compiler,
            context,
            device,
            idle,
            priorities: priorities(),
            has_graphs: GRAPH_FUNCTIONS.iter().all(|function| has_function(function)),
            has_tensors: TENSOR_FUNCTIONS.iter().all(|function| has_function(function)),
            shared: SharedMemory::default(),
            events: EventPool::default(),
            pinned_bytes: AtomicU64::new(0),
            anchor: Mutex::new(anchor),
        };
        device.renew(&mut device.anchor.lock().unwrap_or_else(PoisonError::into_inner)).map_err(opening)?;
        Ok(device)
    }

    pub(super) fn bind(&self) -> Result<(), Fault> {
        self.context.bind_to_thread().map_err(|e| self.fault(e))
    }

    /// Classifies an unexpected error: all calls fail from now on, or only this one did. Which errors end a context
    /// depends on the driver's version, so the driver is queried.
    pub(super) fn fault(&self, error: DriverError) -> Fault {
        let text = format!("{error:?}");
        // SAFETY: context and stream are owned and live as long as `self`.
        let state = unsafe {
            match sys::cuCtxSetCurrent(self.context.cu_ctx()) {
                sys::CUresult::CUDA_SUCCESS => sys::cuStreamQuery(self.idle),
                lost => lost,
            }
        };
        match state {
            // Busy or idle, the stream still works.
            sys::CUresult::CUDA_SUCCESS | sys::CUresult::CUDA_ERROR_NOT_READY => Fault::Failed(text),
            _ => Fault::Lost(text),
        }
    }

    /// As [`Self::fault`], for a call that loads a kernel's code: it fails for lack of memory, or because of the code.
    fn refused(&self, error: DriverError) -> Fault {
        match self.fault(error) {
            Fault::Failed(text) if error.0 != sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => Fault::Code(text),
            fault => fault,
        }
    }

    /// A mark behind the work of a stream. The context is current.
    ///
    /// # Safety
    /// The stream lives, or the driver knows that it does not.
    pub(super) unsafe fn mark_in(&self, stream: sys::CUstream) -> Result<Mark, Fault> {
        let event = match self.events.take() {
            Some(event) => event as sys::CUevent,
            None => new_event().map_err(|e| self.fault(e))?,
        };
        // SAFETY: the event lives; the stream by the caller's promise.
        match unsafe { result::event::record(event, stream) } {
            Ok(()) => Ok(Mark(event as u64)),
            Err(error) => {
                self.forget(Mark(event as u64));
                Err(self.fault(error))
            }
        }
    }

    /// Lets `work` on shared memory ask what it has to know of the device.
    fn with_owner<T>(&self, work: impl FnOnce(&Owner<'_>) -> T) -> T {
        let has_ended = |error: DriverError| matches!(self.fault(error), Fault::Lost(_));
        work(&Owner { events: &self.events, has_ended: &has_ended })
    }

    /// Destroys the events that nobody uses. The context is current.
    fn destroy_events(&self) {
        while let Some(event) = self.events.take() {
            // SAFETY: nobody else has it, and it is destroyed once.
            let _ = unsafe { result::event::destroy(event as sys::CUevent) };
        }
    }

    /// Compares the clocks of device and host.
    fn renew(&self, anchor: &mut Anchor) -> Result<(), DriverError> {
        let before = Instant::now();
        // SAFETY: event and stream are owned and live as long as `self`.
        unsafe {
            result::event::record(anchor.event, self.idle)?;
            result::event::synchronize(anchor.event)?;
        }
        anchor.at = before + before.elapsed() / 2;
        Ok(())
    }

    /// The lack of so many cells, which `function` refused.
    fn out_of_memory(&self, cells: usize, function: &'static str) -> Fault {
        let free_bytes = result::mem_get_info().map_or(0, |(free, _)| free as u64);
        let needed_bytes = (cells * CELL_BYTES) as u64;
        let is_of_host = function == PINNED_FUNCTION;
        let refused_by = (is_of_host || needed_bytes <= free_bytes).then_some(function);
        Fault::OutOfMemory { needed_bytes, free_bytes, refused_by }
    }
}

fn new_event() -> Result<sys::CUevent, DriverError> {
    result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT)
}

/// Milliseconds between two reached events.
fn elapsed(first: sys::CUevent, last: sys::CUevent) -> Result<f32, DriverError> {
    // SAFETY: owned, live events. An event that was not reached is an error.
    unsafe { result::event::elapsed(first, last) }
}

/// Splits a device duration, which may be negative, into sign and magnitude.
fn milliseconds(ms: f32) -> (bool, Duration) {
    let seconds = f64::from(ms) / 1e3;
    (seconds < 0.0, Duration::try_from_secs_f64(seconds.abs()).unwrap_or_default())
}

impl Drop for Cuda {
    fn drop(&mut self) {
        if self.bind().is_ok() {
            self.with_owner(|owner| self.shared.close(owner));
            self.destroy_events();
        }
    }
}

impl Device for Cuda {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn free_bytes(&self) -> Result<u64, Fault> {
        self.bind()?;
        Ok(result::mem_get_info().map_err(|e| self.fault(e))?.0 as u64)
    }

    fn host_bytes(&self) -> u64 {
        self.pinned_bytes.load(Ordering::Relaxed) + self.shared.host_bytes()
    }

    fn probe(&self) -> Result<(), Fault> {
        self.bind()?;
        // SAFETY: the stream is owned and lives as long as `self`.
        match unsafe { sys::cuStreamQuery(self.idle) } {
            sys::CUresult::CUDA_SUCCESS | sys::CUresult::CUDA_ERROR_NOT_READY => Ok(()),
            error => Err(self.fault(DriverError(error))),
        }
    }

    fn trim(&self) -> Result<(), Fault> {
        self.bind().inspect_err(|fault| {
            if matches!(fault, Fault::Lost(_)) {
                self.shared.abandon_all();
            }
        })?;
        self.with_owner(|owner| self.shared.empty(owner));
        self.destroy_events();
        // SAFETY: the device and its pool live.
        unsafe { result::device::get_mem_pool(self.device).and_then(|pool| result::mem_pool::trim_to(pool, 0)) }
            .map_err(|e| self.fault(e))
    }

    fn stream(&self, urgency: Urgency) -> Result<Stream, Fault> {
        self.bind()?;
        let kind = result::stream::StreamKind::NonBlocking;
        let (least, greatest) = self.priorities;
        let priority = match urgency {
            Urgency::Interactive => greatest,
            Urgency::Batch => least.midpoint(greatest),
            Urgency::Prefetch => least,
        };
        let stream = match least == greatest {
            true => result::stream::create(kind),
            false => result::stream::create_with_priority(kind, priority),
        };
        Ok(Stream(stream.map_err(|e| self.fault(e))? as u64))
    }

    fn stage(&self, cells: usize) -> Result<Staging, Fault> {
        self.bind()?;
        // SAFETY: released by `unstage` alone. Not write-combined, since results are read.
        let allocate = || unsafe { result::malloc_host(cells * CELL_BYTES, sys::CU_MEMHOSTALLOC_PORTABLE) };
        let address = on_node(self.facts.access.numa_node, allocate).map_err(|error| match error {
            DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY) => self.out_of_memory(cells, PINNED_FUNCTION),
            error => self.fault(error),
        })?;
        // SAFETY: that many bytes were just allocated; zeroes are valid cells.
        unsafe { address.cast::<u64>().write_bytes(0, cells) };
        self.pinned_bytes.fetch_add((cells * CELL_BYTES) as u64, Ordering::Relaxed);
        Ok(Staging { address: address as u64, cells })
    }

    fn unstage(&self, staging: Staging) {
        // SAFETY: allocated by `stage` and released once, since a handle has no copies; no copy in progress uses it.
        if self.bind().is_ok() && unsafe { result::free_host(staging.address as *mut c_void) }.is_ok() {
            self.pinned_bytes.fetch_sub((staging.cells * CELL_BYTES) as u64, Ordering::Relaxed);
        }
    }

    fn fill(&self, staging: &mut Staging, at: usize, cells: usize, work: &mut dyn FnMut(&mut [u64])) {
        let end = staging.cells.min(at.saturating_add(cells));
        let at = at.min(end);
        // SAFETY: the cells are within memory that lives as long as the device; the caller holds the only handle of it,
        // and no copy in progress reads them.
        work(unsafe { std::slice::from_raw_parts_mut((staging.address as *mut u64).add(at), end - at) });
    }

    fn read(&self, staging: &Staging, at: usize, cells: usize, work: &mut dyn FnMut(&[u64])) {
        let end = staging.cells.min(at.saturating_add(cells));
        let at = at.min(end);
        // SAFETY: as in `fill`; no copy in progress writes them.
        work(unsafe { std::slice::from_raw_parts((staging.address as *const u64).add(at), end - at) });
    }

    fn allocate(&self, stream: Stream, cells: usize) -> Result<Memory, Fault> {
        self.bind()?;
        // The driver rejects allocations of 0 bytes.
        let bytes = cells.max(1) * CELL_BYTES;
        // SAFETY: the stream lives; the memory is not read before it is written.
        match unsafe { result::malloc_async(stream.0 as sys::CUstream, bytes) } {
            Ok(address) => Ok(Memory { address, cells, place: Place::Device }),
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                Err(self.out_of_memory(cells, DEVICE_FUNCTION))
            }
            Err(error) => Err(self.fault(error)),
        }
    }

    fn allocate_shared(&self, place: Place, cells: usize) -> Result<Memory, Fault> {
        self.bind()?;
        let access = self.facts.access;
        if !(place == Place::Host && access.is_coherent || place == Place::Managed && access.is_managed) {
            return Err(Fault::Failed(format!("this device does not read memory of the kind {place:?}")));
        }
        if let Some(memory) = self.with_owner(|owner| self.shared.again(place, cells, owner)) {
            return Ok(memory);
        }
        // Managed memory beyond what is free would push out what kernels read.
        let lacks = || Ok::<bool, Fault>(place == Place::Managed && self.free_bytes()? < block_bytes(cells));
        if lacks()? {
            self.with_owner(|owner| self.shared.empty(owner));
            if lacks()? {
                return Err(self.out_of_memory(cells, MANAGED_FUNCTION));
            }
        }
        let function = if place == Place::Managed { MANAGED_FUNCTION } else { "the host" };
        match self.shared.allocate(place, cells, self.facts.ordinal) {
            Ok(Some(memory)) => Ok(memory),
            Ok(None) | Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                Err(self.out_of_memory(cells, function))
            }
            Err(error) => Err(self.fault(error)),
        }
    }

    fn write(&self, memory: &mut Memory, work: &mut dyn FnMut(&mut [u64])) {
        if memory.place == Place::Device {
            return;
        }
        // SAFETY: host or managed memory of that many cells, to which the caller holds the only handle; no work of the
        // device that reads it has been enqueued.
        work(unsafe { std::slice::from_raw_parts_mut(memory.address as *mut u64, memory.cells) });
    }

    fn prefetch(&self, stream: Stream, memory: &Memory) -> Result<(), Fault> {
        if memory.place != Place::Managed {
            return Err(Fault::Failed("only managed memory is moved".to_owned()));
        }
        self.bind()?;
        // SAFETY: managed memory, which is released behind the work in the stream.
        unsafe { prefetch(memory, self.facts.ordinal, stream.0 as sys::CUstream) }.map_err(|e| self.fault(e))
    }

    fn release(&self, stream: Stream, memory: Memory) {
        if memory.place != Place::Device {
            match self.mark(stream) {
                Ok(mark) => self.with_owner(|owner| self.shared.release(mark.0 as sys::CUevent, &memory, owner)),
                // In a context that has ended nothing runs.
                Err(Fault::Lost(_)) => self.shared.abandon(&memory),
                // Without a mark it is kept: the device may still read it.
                Err(_) => {}
            }
            return;
        }
        if self.bind().is_ok() {
            // SAFETY: allocated by `allocate` and released once, since a handle has no copies. A failure is reported by
            // the next wait.
            let _ = unsafe { result::free_async(memory.address, stream.0 as sys::CUstream) };
        }
    }

    fn copy_in(
        &self,
        stream: Stream,
        from: (&Staging, usize),
        to: (&Memory, usize),
        cells: usize,
    ) -> Result<(), Fault> {
        within(from, to, cells)?;
        self.bind()?;
        // SAFETY: both ends are within their memory, and the host's lives as long as the device.
        unsafe {
            let host = std::slice::from_raw_parts((from.0.address as *const u64).add(from.1), cells);
            result::memcpy_htod_async(to.0.at(to.1), host, stream.0 as sys::CUstream)
        }
        .map_err(|e| self.fault(e))
    }

    fn copy_out(
        &self,
        stream: Stream,
        from: (&Memory, usize),
        to: (&Staging, usize),
        cells: usize,
    ) -> Result<(), Fault> {
        within(to, from, cells)?;
        self.bind()?;
        // SAFETY: as above. The host's cells are not read before a later mark is reached.
        unsafe {
            let host = (to.0.address as *mut u64).add(to.1).cast::<c_void>();
            let bytes = cells * CELL_BYTES;
            sys::cuMemcpyDtoHAsync_v2(host, from.0.at(from.1), bytes, stream.0 as sys::CUstream).result()
        }
        .map_err(|e| self.fault(e))
    }

    fn copy_within(
        &self,
        stream: Stream,
        from: (&Memory, usize),
        to: (&Memory, usize),
        cells: usize,
    ) -> Result<(), Fault> {
        let fits = |(memory, at): (&Memory, usize)| at.checked_add(cells).is_some_and(|end| end <= memory.cells);
        if !fits(from) || !fits(to) {
            return Err(Fault::Failed("a copy beyond its memory".to_owned()));
        }
        self.bind()?;
        let (bytes, stream) = (cells * CELL_BYTES, stream.0 as sys::CUstream);
        // SAFETY: both ends are within their memory.
        let copied = unsafe {
            if from.0.place == Place::Host {
                let host = std::slice::from_raw_parts(from.0.at(from.1) as *const u64, cells);
                result::memcpy_htod_async(to.0.at(to.1), host, stream)
            } else {
                result::memcpy_dtod_async(to.0.at(to.1), from.0.at(from.1), bytes, stream)
            }
        };
        copied.map_err(|e| self.fault(e))
    }

    fn compile(&self, kernel: &Kernel) -> Result<Vec<u8>, Fault> {
        let made = self.compiler.compile(kernel, self.facts.architecture());
        Ok(made.map_err(|e| Fault::Code(e.to_string()))?.cubin)
    }

    fn load(&self, kernel: &Kernel, code: &[u8]) -> Result<Function, Fault> {
        self.bind()?;
        let name = CString::new(kernel.name.as_str()).map_err(|e| Fault::Failed(e.to_string()))?;
        let most = i32::try_from(self.facts.shared_bytes).unwrap_or(i32::MAX);
        let shared = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let carve_out = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
        // SAFETY: the code is an image compiled for this device (the cache verifies checksums); it is never unloaded.
        unsafe {
            let module = result::module::load_data(code.as_ptr().cast()).map_err(|e| self.refused(e))?;
            let function = result::module::get_function(module, name).map_err(|e| self.refused(e))?;
            result::function::set_function_attribute(function, shared, most).map_err(|e| self.refused(e))?;
            // A hint: otherwise the driver divides the memory by its own rules.
            let _ = result::function::set_function_attribute(function, carve_out, CARVE_OUT_PERCENT);
            Ok(Function(function as u64))
        }
    }

    fn launch(
        &self,
        stream: Stream,
        function: Function,
        _lowered: &Lowered,
        launch: &Launch,
        pointers: &Pointers,
    ) -> Result<(), Fault> {
        let size = (launch.blocks, launch.threads, launch.shared_bytes);
        self.enqueue(stream, function, size, &mut launch.arguments(pointers))
    }

    fn launch_plain(
        &self,
        stream: Stream,
        function: Function,
        (blocks, threads): (usize, usize),
        argument: &[u64],
    ) -> Result<(), Fault> {
        self.enqueue(stream, function, (blocks, threads, 0), &mut argument.to_vec())
    }

    fn graphs(&self) -> Option<&dyn LaunchGraphs> {
        self.has_graphs.then_some(self)
    }

    fn tensors(&self) -> Option<&dyn TensorDevice> {
        self.has_tensors.then_some(self)
    }

    fn mark(&self, stream: Stream) -> Result<Mark, Fault> {
        self.bind()?;
        // SAFETY: a stream of this device, which lives as long.
        unsafe { self.mark_in(stream.0 as sys::CUstream) }
    }

    fn wait(&self, mark: &Mark, until: Instant) -> Result<bool, Fault> {
        self.bind()?;
        let started = Instant::now();
        loop {
            // SAFETY: a mark's event lives until `forget`.
            match unsafe { result::event::query(mark.0 as sys::CUevent) } {
                Ok(()) => {
                    // Errors of calls that could not report them.
                    self.context.check_err().map_err(|e| self.fault(e))?;
                    return Ok(true);
                }
                Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => {}
                Err(error) => return Err(self.fault(error)),
            }
            let now = Instant::now();
            if now >= until {
                return Ok(false);
            }
            if now - started < SPIN {
                std::hint::spin_loop();
            } else {
                std::thread::sleep(POLL);
            }
        }
    }

    fn time(&self, mark: &Mark) -> Result<Instant, Fault> {
        self.bind()?;
        let mut anchor = self.anchor.lock().unwrap_or_else(PoisonError::into_inner);
        if anchor.at.elapsed() > ANCHOR_AGE_MAX {
            self.renew(&mut anchor).map_err(|e| self.fault(e))?;
        }
        let ms = elapsed(anchor.event, mark.0 as sys::CUevent).map_err(|e| self.fault(e))?;
        let (before, distance) = milliseconds(ms);
        let at = if before { anchor.at.checked_sub(distance) } else { anchor.at.checked_add(distance) };
        Ok(at.unwrap_or(anchor.at))
    }

    fn between(&self, first: &Mark, last: &Mark) -> Result<Duration, Fault> {
        self.bind()?;
        let ms = elapsed(first.0 as sys::CUevent, last.0 as sys::CUevent).map_err(|e| self.fault(e))?;
        Ok(milliseconds(ms).1)
    }

    fn forget(&self, mark: Mark) {
        // A later record replaces one that was not reached.
        if !self.events.keep(mark.0) && self.bind().is_ok() {
            // SAFETY: created by `mark` and released once, since a mark has no copies.
            let _ = unsafe { result::event::destroy(mark.0 as sys::CUevent) };
        }
    }
}

/// Whether a copy stays within both ends.
fn within(host: (&Staging, usize), device: (&Memory, usize), cells: usize) -> Result<(), Fault> {
    let fits = |at: usize, all: usize| at.checked_add(cells).is_some_and(|end| end <= all);
    if fits(host.1, host.0.cells) && fits(device.1, device.0.cells) {
        return Ok(());
    }
    Err(Fault::Failed("a copy beyond its memory".to_owned()))
}

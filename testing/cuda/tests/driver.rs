//! The test driver is as strict as NVIDIA's: what is wrong is refused with its results, work happens when it may at the latest, and
//! every result can be had of every call.

use std::ffi::{CStr, CString, c_void};
use std::ptr;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{self, CUresult};
use trawl_kernels::cuda::{CompileError, Compiler, Search};
use trawl_test_driver::{Driver, TestDevice};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;
const INVALID_VALUE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
const NO_MEMORY: CUresult = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
const INVALID_HANDLE: CUresult = CUresult::CUDA_ERROR_INVALID_HANDLE;
const NOT_READY: CUresult = CUresult::CUDA_ERROR_NOT_READY;
const ILLEGAL: CUresult = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;

/// Calls a function of the driver.
macro_rules! call {
    ($function:ident($($argument:expr),*)) => {
        // SAFETY: the test driver checks every handle and every device's address; host addresses are of memory that lives.
        unsafe { sys::$function($($argument),*) }
    };
}

/// A new handle or address, of a call that has to succeed.
macro_rules! made {
    ($function:ident($($argument:expr),*)) => {{
        // SAFETY: all zeroes are a valid handle, address and number.
        let mut made = unsafe { std::mem::zeroed() };
        assert_eq!(call!($function(&raw mut made $(, $argument)*)), SUCCESS, stringify!($function));
        made
    }};
}

/// A device whose context is this thread's current one.
struct World {
    device: TestDevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
}

fn on(settings: &str) -> World {
    let device = TestDevice::new(settings);
    assert_eq!(call!(cuInit(0)), SUCCESS);
    let handle: sys::CUdevice = made!(cuDeviceGet(device.ordinal() as i32));
    let context = made!(cuDevicePrimaryCtxRetain(handle));
    assert_eq!(call!(cuCtxSetCurrent(context)), SUCCESS);
    World { device, context, stream: made!(cuStreamCreate(1)) }
}

impl World {
    fn allocate(&self, bytes: usize) -> u64 {
        made!(cuMemAllocAsync(bytes, self.stream))
    }

    fn synchronise(&self) -> CUresult {
        call!(cuStreamSynchronize(self.stream))
    }

    /// The only kernel of a text, loaded.
    fn load(&self, name: &str, text: &str) -> sys::CUfunction {
        let code = compiled(text, 90).expect("a text");
        let module = made!(cuModuleLoadData(code.as_ptr().cast()));
        let name = CString::new(name).expect("a name");
        made!(cuModuleGetFunction(module, name.as_ptr()))
    }

    fn launch(&self, function: sys::CUfunction, threads: u32, shared: u32, arguments: &mut [u64]) -> CUresult {
        let mut parameters: [*mut c_void; 1] = [arguments.as_mut_ptr().cast()];
        let (stream, nothing) = (self.stream, ptr::null_mut());
        call!(cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, shared, stream, parameters.as_mut_ptr(), nothing))
    }
}

/// Pinned memory of so many numbers.
fn pinned(count: usize) -> &'static mut [f64] {
    let address: *mut c_void = made!(cuMemHostAlloc(count * 8, 1));
    // SAFETY: so many bytes were just allocated, and are never freed.
    unsafe { std::slice::from_raw_parts_mut(address.cast(), count) }
}

fn compiled(text: &str, architecture: u32) -> Result<Vec<u8>, CompileError> {
    let search = Search { folders: vec![Driver::built().folder().to_path_buf()] };
    let compiler = Compiler::find(&search).expect("the test compiler");
    Ok(compiler.compile_text("text", text, architecture)?.cubin)
}

fn text_of(result: CUresult) -> String {
    let mut text = ptr::null();
    assert_eq!(call!(cuGetErrorString(result, &raw mut text)), SUCCESS);
    // SAFETY: a text that lives until this thread's next call.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Writes the number 1.5 at an offset of an address, reads at another.
const MOVE: &str = r#"#include "kernel.cuh"
struct move_arguments { double* to; i64 at; const double* from; };
extern "C" __global__ void __launch_bounds__(64, 1) move(const __grid_constant__ move_arguments a) {
    if (threadIdx.x == 0) a.to[a.at] = 1.5 + *a.from;
}
TRAWL_ENTRY(move, move_arguments)
"#;

#[test]
fn what_is_no_memory_no_handle_and_no_context_is_refused() {
    let world = on("");
    let (memory, host) = (world.allocate(800), pinned(200));
    let (own, beyond) = (host.as_ptr(), host[190..].as_mut_ptr());
    let copy = |to: u64, bytes: usize| call!(cuMemcpyHtoDAsync_v2(to, own.cast(), bytes, world.stream));
    assert_eq!(copy(memory, 800), SUCCESS);
    assert_eq!(copy(memory + 8, 792), SUCCESS);
    assert_eq!(copy(memory + 8, 800), INVALID_VALUE, "beyond its end");
    assert_eq!(copy(memory - 8, 8), INVALID_VALUE, "in front of it");
    assert_eq!(copy(own as u64, 8), INVALID_VALUE, "memory of the host");
    let outcome = call!(cuMemcpyDtoHAsync_v2(beyond.cast(), memory, 100, world.stream));
    assert_eq!(outcome, INVALID_VALUE, "beyond pinned memory");
    assert_eq!(call!(cuMemFreeAsync(memory + 8, world.stream)), INVALID_VALUE);
    assert_eq!(call!(cuMemFreeAsync(memory, world.stream)), SUCCESS);
    assert_eq!(copy(memory, 8), INVALID_VALUE, "after its release");
    assert_eq!(call!(cuMemFreeAsync(memory, world.stream)), INVALID_VALUE, "twice");
    let nothing: *mut c_void = ptr::without_provenance_mut(8);
    assert_eq!(call!(cuStreamQuery(nothing.cast())), INVALID_HANDLE);
    assert_eq!(call!(cuEventQuery(nothing.cast())), INVALID_HANDLE);
    assert_eq!(call!(cuCtxSetCurrent(nothing.cast())), CUresult::CUDA_ERROR_INVALID_CONTEXT);
    // A stream of another device's context.
    let other = on("");
    assert_eq!(call!(cuStreamQuery(world.stream)), INVALID_HANDLE);
    assert_eq!(call!(cuStreamQuery(other.stream)), SUCCESS);
    std::thread::scope(|scope| {
        let stream = world.stream as usize;
        let query = move || call!(cuStreamQuery(ptr::without_provenance_mut(stream)));
        let outcome = scope.spawn(query).join().expect("no panic");
        assert_eq!(outcome, CUresult::CUDA_ERROR_INVALID_CONTEXT, "a thread without a context");
    });
    // What was the context's is gone with it.
    let stream = other.stream;
    assert_eq!(call!(cuDevicePrimaryCtxRelease_v2(other.device.ordinal() as i32)), SUCCESS);
    assert_eq!(call!(cuStreamQuery(stream)), CUresult::CUDA_ERROR_INVALID_CONTEXT);
    assert_eq!(call!(cuCtxSetCurrent(world.context)), SUCCESS);
    assert_eq!(world.synchronise(), SUCCESS, "the other device is as it was");
}

#[test]
fn work_happens_when_it_is_waited_for_or_at_once_as_a_test_wants() {
    for (settings, is_late) in [("when=late", true), ("when=early", false)] {
        let world = on(settings);
        let memory = world.allocate(16);
        let (from, to) = (pinned(2), pinned(2));
        (from[0], from[1], to[0]) = (1.0, 2.0, 0.0);
        assert_eq!(call!(cuMemcpyHtoDAsync_v2(memory, from.as_ptr().cast(), 16, world.stream)), SUCCESS);
        // Changed before the copy was waited for.
        from[0] = 5.0;
        assert_eq!(call!(cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), memory, 16, world.stream)), SUCCESS);
        assert_eq!(to[0] == 0.0, is_late, "{settings}");
        assert_eq!(world.synchronise(), SUCCESS);
        assert_eq!(to[..], if is_late { [5.0, 2.0] } else { [1.0, 2.0] }, "{settings}");
        // Memory that is not pinned is read when the call is made, and written before it returns.
        let (mut own, mut back) = (vec![7.0, 8.0], vec![0.0, 0.0]);
        assert_eq!(call!(cuMemcpyHtoDAsync_v2(memory, own.as_ptr().cast(), 16, world.stream)), SUCCESS);
        own.fill(9.0);
        assert_eq!(call!(cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), memory, 16, world.stream)), SUCCESS);
        assert_eq!(back, [7.0, 8.0]);
        let counts = world.device.counts();
        assert_eq!((counts.copies_in, counts.copied_in_bytes, counts.copied_out_bytes), (2, 32, 32));
    }
}

#[test]
fn kernels_do_nothing_while_there_is_the_file_that_says_so() {
    let blank = std::env::temp_dir().join(format!("trawl-blank-{}", std::process::id()));
    let world = on(&format!("when=early blank={}", blank.display()));
    let function = world.load("move", MOVE);
    let (memory, host) = (world.allocate(16), pinned(2));
    let mut runs = |input: f64| {
        (host[0], host[1]) = (input, 0.0);
        assert_eq!(call!(cuMemcpyHtoDAsync_v2(memory, host.as_ptr().cast(), 16, world.stream)), SUCCESS);
        assert_eq!(world.launch(function, 64, 0, &mut [memory, 1, memory]), SUCCESS);
        assert_eq!(call!(cuMemcpyDtoHAsync_v2(host.as_mut_ptr().cast(), memory, 16, world.stream)), SUCCESS);
        assert_eq!(world.synchronise(), SUCCESS);
        host[1]
    };
    assert_eq!(runs(1.0), 2.5);
    std::fs::write(&blank, "").expect("a file");
    let while_blank = runs(2.0);
    std::fs::remove_file(&blank).expect("the file");
    assert_eq!((while_blank, runs(3.0)), (0.0, 4.5));
}

#[test]
fn a_missing_wait_between_streams_is_an_illegal_access_and_a_wait_makes_it_legal() {
    for waits in [true, false] {
        let world = on("when=late copy_bytes_per_s=1000000");
        let other: sys::CUstream = made!(cuStreamCreate(1));
        let (first, host) = (world.allocate(80), pinned(10));
        assert_eq!(call!(cuMemcpyHtoDAsync_v2(first, host.as_ptr().cast(), 80, world.stream)), SUCCESS);
        // Behind a copy that has not happened yet.
        let memory = world.allocate(80);
        let event: sys::CUevent = made!(cuEventCreate(0));
        assert_eq!(call!(cuEventRecord(event, world.stream)), SUCCESS);
        if waits {
            assert_eq!(call!(cuStreamWaitEvent(other, event, 0)), SUCCESS);
        }
        // What waits for an event waits for its last record when the call was made, whatever becomes of the event.
        let third: sys::CUstream = made!(cuStreamCreate(1));
        for again in [third, other] {
            assert_eq!(call!(cuEventRecord(event, again)), SUCCESS);
        }
        assert_eq!(call!(cuEventDestroy_v2(event)), SUCCESS);
        assert_eq!(call!(cuMemcpyHtoDAsync_v2(memory, host.as_ptr().cast(), 80, other)), SUCCESS);
        let outcome = call!(cuStreamSynchronize(other));
        assert_eq!(outcome, if waits { SUCCESS } else { ILLEGAL });
        // Of an error of this kind no context recovers.
        assert_eq!(world.synchronise(), outcome);
        let mut address = 0;
        assert_eq!(call!(cuMemAllocAsync(&raw mut address, 8, world.stream)), outcome);
        if !waits {
            let text = text_of(outcome);
            assert!(text.contains("illegal memory access") && text.contains("another stream"), "{text}");
        }
    }
}

#[test]
fn kernels_that_access_what_is_not_theirs_end_their_context() {
    // Within the memory, the bytes right behind it, the page behind it, and far from everything.
    for (at, from, outcome) in
        [(9, 0, SUCCESS), (10, 0, ILLEGAL), (1 << 12, 0, ILLEGAL), (0, 1 << 30, ILLEGAL), (-600, 0, ILLEGAL)]
    {
        let world = on("");
        let memory = world.allocate(80);
        let function = world.load("move", MOVE);
        let mut arguments = [memory, i64::from(at).cast_unsigned(), memory + from];
        assert_eq!(world.launch(function, 32, 0, &mut arguments), SUCCESS);
        assert_eq!(world.synchronise(), outcome, "{at} {from}");
        assert_eq!(world.synchronise(), outcome, "it stays so");
    }
    // Memory that was released.
    let world = on("");
    let (memory, other) = (world.allocate(80), world.allocate(80));
    let function = world.load("move", MOVE);
    assert_eq!(call!(cuMemFreeAsync(other, world.stream)), SUCCESS);
    assert_eq!(world.launch(function, 32, 0, &mut [memory, 0, other]), SUCCESS);
    assert_eq!(world.synchronise(), ILLEGAL);
    // Another device of the process is none the worse for it, with the same kernel.
    let world = on("");
    let memory = world.allocate(80);
    let function = world.load("move", MOVE);
    assert_eq!(world.launch(function, 32, 0, &mut [memory, 0, memory]), SUCCESS);
    assert_eq!(world.synchronise(), SUCCESS);
}

#[test]
fn launches_beyond_the_limits_of_device_and_kernel_are_refused() {
    let world = on("");
    let memory = world.allocate(80);
    let function = world.load("move", MOVE);
    let launch = |threads, shared| world.launch(function, threads, shared, &mut [memory, 0, memory]);
    assert_eq!(launch(64, 48 * 1024), SUCCESS);
    assert_eq!(launch(96, 0), INVALID_VALUE, "more threads than the text bounds a block to");
    assert_eq!(launch(2048, 0), INVALID_VALUE);
    assert_eq!(launch(0, 0), INVALID_VALUE);
    assert_eq!(launch(64, 48 * 1024 + 8), INVALID_VALUE, "shared memory that was not asked for");
    let most = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    assert_eq!(call!(cuFuncSetAttribute(function, most, 232_449)), INVALID_VALUE, "more than a multiprocessor has");
    assert_eq!(call!(cuFuncSetAttribute(function, most, 232_448)), SUCCESS);
    assert_eq!(launch(64, 232_448), SUCCESS);
    assert_eq!(world.synchronise(), SUCCESS);
    assert_eq!(world.device.counts().launches, 2);
}

#[test]
fn code_that_is_damaged_of_another_architecture_or_without_the_kernel_is_refused() {
    let _world = on("");
    let load = |code: &[u8]| {
        let mut module = ptr::null_mut();
        (call!(cuModuleLoadData(&raw mut module, code.as_ptr().cast())), module)
    };
    let mut code = compiled(MOVE, 90).expect("a text");
    let (outcome, module) = load(&code);
    assert_eq!(outcome, SUCCESS);
    let mut function = ptr::null_mut();
    let outcome = call!(cuModuleGetFunction(&raw mut function, module, c"other".as_ptr()));
    assert_eq!(outcome, CUresult::CUDA_ERROR_NOT_FOUND);
    *code.last_mut().expect("code") ^= 1;
    assert_eq!(load(&code).0, CUresult::CUDA_ERROR_INVALID_IMAGE);
    let ampere = compiled(MOVE, 80).expect("a text");
    assert_eq!(load(&ampere).0, CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU);
    let wrong = compiled("#include \"kernel.cuh\"\nint x = nothing;\n", 90);
    let Err(CompileError::Failed { code, log }) = wrong else { panic!("{wrong:?}") };
    assert!(code == "NVRTC_ERROR_COMPILATION" && log.contains("nothing") && log.contains("text.cu:2"), "{code} {log}");
}

#[test]
fn memory_has_a_capacity_and_released_memory_is_had_in_the_order_of_its_stream() {
    let world = on("memory=1000448 copy_bytes_per_s=1000000");
    let info = || {
        let (mut free, mut total) = (0usize, 0usize);
        assert_eq!(call!(cuMemGetInfo_v2(&raw mut free, &raw mut total)), SUCCESS);
        (free, total)
    };
    assert_eq!(info(), (1_000_448, 1_000_448));
    let memory = world.allocate(600_000);
    assert_eq!(memory % 256, 0);
    let allocate = |stream| {
        let mut address = 0;
        call!(cuMemAllocAsync(&raw mut address, 600_000, stream))
    };
    assert_eq!(allocate(world.stream), NO_MEMORY);
    // Behind a copy its release has not happened yet: other streams do not have it.
    let host = pinned(10);
    assert_eq!(call!(cuMemcpyHtoDAsync_v2(memory, host.as_ptr().cast(), 80, world.stream)), SUCCESS);
    assert_eq!(call!(cuMemFreeAsync(memory, world.stream)), SUCCESS);
    let other = made!(cuStreamCreate(1));
    assert_eq!(allocate(other), NO_MEMORY);
    assert_eq!(allocate(world.stream), SUCCESS);
    assert_eq!(world.synchronise(), SUCCESS);
    let counts = world.device.counts();
    assert_eq!((counts.used_bytes, counts.live_allocations), (600_000, 1));
    let mut address = 0;
    assert_eq!(call!(cuMemAllocAsync(&raw mut address, 0, world.stream)), INVALID_VALUE, "of nothing");
}

#[test]
fn events_are_reached_when_the_work_before_them_takes_its_time() {
    let world = on("kernel_us=150000 slow=2:300");
    let memory = world.allocate(80);
    let function = world.load("move", MOVE);
    let event = || -> sys::CUevent {
        let event = made!(cuEventCreate(0));
        assert_eq!(call!(cuEventRecord(event, world.stream)), SUCCESS);
        event
    };
    let first = event();
    let begun = Instant::now();
    let mut times = Vec::new();
    for _ in 0..2 {
        assert_eq!(world.launch(function, 32, 0, &mut [memory, 0, memory]), SUCCESS);
        times.push(event());
    }
    let between = |one, other| {
        let mut ms = 0f32;
        (call!(cuEventElapsedTime_v2(&raw mut ms, one, other)), ms)
    };
    assert_eq!(call!(cuEventQuery(times[1])), NOT_READY);
    assert_eq!(between(first, times[1]).0, NOT_READY);
    assert_eq!(call!(cuEventSynchronize(times[1])), SUCCESS);
    assert!(begun.elapsed() >= Duration::from_millis(450), "{:?}", begun.elapsed());
    assert_eq!(call!(cuEventQuery(first)), SUCCESS);
    let (outcome, ms) = between(times[0], times[1]);
    assert!(outcome == SUCCESS && (ms - 300.0).abs() < 1.0, "{ms}");
    let untimed = made!(cuEventCreate(2));
    assert_eq!(between(first, untimed).0, INVALID_HANDLE);
    // What depends on a device's clock may be looked at before it was waited for, and is done then.
    assert_eq!(world.synchronise(), SUCCESS);
}

#[test]
fn every_result_can_be_had_of_the_call_that_a_test_names() {
    let ecc = CUresult::CUDA_ERROR_ECC_UNCORRECTABLE;
    let world = on("fault=cuMemAllocAsync:2:2 fault=cuEventCreate:3:214");
    let allocate = || {
        let mut address = 0;
        call!(cuMemAllocAsync(&raw mut address, 8, world.stream))
    };
    assert_eq!([allocate(), allocate(), allocate()], [SUCCESS, NO_MEMORY, SUCCESS]);
    let create = || {
        let mut event = ptr::null_mut();
        call!(cuEventCreate(&raw mut event, 0))
    };
    assert_eq!([create(), create(), create(), create()], [SUCCESS, SUCCESS, ecc, ecc]);
    assert_eq!(allocate(), ecc, "an error that ends the context");
    assert_eq!(world.device.calls("cuMemAllocAsync"), 4);
    let world = on("fault=cuStreamQuery:2+:719");
    let failed = CUresult::CUDA_ERROR_LAUNCH_FAILED;
    let query = || call!(cuStreamQuery(world.stream));
    assert_eq!([query(), query(), query()], [SUCCESS, failed, failed]);
}

/// The parameters of a kernel on one block, which point to `parameters`.
fn node_of(function: sys::CUfunction, threads: u32, parameters: &mut [*mut c_void; 1]) -> sys::CUDA_KERNEL_NODE_PARAMS {
    sys::CUDA_KERNEL_NODE_PARAMS {
        func: function,
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: threads,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        kernelParams: parameters.as_mut_ptr(),
        extra: ptr::null_mut(),
        kern: ptr::null_mut(),
        ctx: ptr::null_mut(),
    }
}

#[test]
fn a_graph_launches_what_its_nodes_were_when_it_was_launched_and_refuses_what_is_not_its_own() {
    let world = on("when=late");
    let (memory, function) = (world.allocate(80), world.load("move", MOVE));
    let host = pinned(10);
    host.fill(0.0);
    assert_eq!(call!(cuMemcpyHtoDAsync_v2(memory, host.as_ptr().cast(), 80, world.stream)), SUCCESS);
    // Adds 1.5 to the number at `from`, and writes the sum to the one behind it.
    let arguments = |from: u64| [memory + 8 * (from + 1), 0, memory + 8 * from];
    let graph: sys::CUgraph = made!(cuGraphCreate(0));
    let other: sys::CUgraph = made!(cuGraphCreate(0));
    let mut unmade: sys::CUgraph = ptr::null_mut();
    assert_eq!(call!(cuGraphCreate(&raw mut unmade, 1)), INVALID_VALUE, "there are no flags");
    let add = |to: sys::CUgraph, behind: &[sys::CUgraphNode], threads: u32, arguments: &mut [u64; 3]| {
        let mut parameters: [*mut c_void; 1] = [arguments.as_mut_ptr().cast()];
        let (node, mut made) = (node_of(function, threads, &mut parameters), ptr::null_mut());
        let outcome = call!(cuGraphAddKernelNode_v2(&raw mut made, to, behind.as_ptr(), behind.len(), &raw const node));
        (outcome, made)
    };
    let mut own = arguments(0);
    let (outcome, first) = add(graph, &[], 32, &mut own);
    assert_eq!(outcome, SUCCESS);
    own.fill(0);
    let (outcome, second) = add(graph, &[first], 32, &mut arguments(1));
    assert_eq!(outcome, SUCCESS);
    assert_eq!(add(other, &[first], 32, &mut arguments(0)).0, INVALID_VALUE, "a node of another graph");
    assert_eq!(add(graph, &[first, first], 32, &mut arguments(0)).0, INVALID_VALUE, "twice the same");
    assert_eq!(add(graph, &[], 96, &mut arguments(0)).0, INVALID_VALUE, "more threads than the text bounds a block to");
    let nothing: sys::CUgraph = ptr::without_provenance_mut(8);
    assert_eq!(add(nothing, &[], 32, &mut arguments(0)).0, INVALID_VALUE);
    let mut unmade: sys::CUgraphExec = ptr::null_mut();
    assert_eq!(call!(cuGraphInstantiateWithFlags(&raw mut unmade, graph, 16)), INVALID_VALUE);
    let instance: sys::CUgraphExec = made!(cuGraphInstantiateWithFlags(graph, 0));
    assert_eq!(call!(cuGraphLaunch(instance, world.stream)), SUCCESS);
    // A change affects later launches alone; here the second kernel reads what the first wrote 2 numbers further on.
    let change = |instance: sys::CUgraphExec, node: sys::CUgraphNode, function, arguments: &mut [u64; 3]| {
        let mut parameters: [*mut c_void; 1] = [arguments.as_mut_ptr().cast()];
        let node_of = node_of(function, 32, &mut parameters);
        call!(cuGraphExecKernelNodeSetParams_v2(instance, node, &raw const node_of))
    };
    assert_eq!(change(instance, second, function, &mut [memory + 32, 0, memory + 16]), SUCCESS);
    assert_eq!(change(instance, ptr::without_provenance_mut(8), function, &mut arguments(0)), INVALID_VALUE);
    let stranger = {
        let there = on("");
        let function = there.load("move", MOVE);
        assert_eq!(call!(cuGraphLaunch(instance, there.stream)), INVALID_VALUE, "of another context");
        assert_eq!(call!(cuCtxSetCurrent(world.context)), SUCCESS);
        function
    };
    assert_eq!(change(instance, second, stranger, &mut arguments(0)), INVALID_VALUE, "of another context");
    // In another stream, behind the first launch although nothing else orders the streams.
    let beside: sys::CUstream = made!(cuStreamCreate(1));
    assert_eq!(call!(cuGraphLaunch(instance, beside)), SUCCESS);
    assert_eq!(call!(cuGraphExecDestroy(instance)), SUCCESS);
    assert_eq!(call!(cuGraphExecDestroy(instance)), INVALID_VALUE, "twice");
    assert_eq!(call!(cuStreamSynchronize(beside)), SUCCESS, "what is under way is done");
    assert_eq!(call!(cuMemcpyDtoHAsync_v2(host.as_mut_ptr().cast(), memory, 80, world.stream)), SUCCESS);
    assert_eq!(world.synchronise(), SUCCESS);
    assert_eq!(host[..5], [0.0, 1.5, 3.0, 0.0, 4.5]);
    // Kernels of a graph that was destroyed are not changed any more.
    let instance: sys::CUgraphExec = made!(cuGraphInstantiateWithFlags(graph, 0));
    assert_eq!(call!(cuGraphDestroy(graph)), SUCCESS);
    assert_eq!(call!(cuGraphDestroy(graph)), INVALID_VALUE, "twice");
    assert_eq!(change(instance, first, function, &mut arguments(0)), INVALID_VALUE);
    assert_eq!(call!(cuGraphLaunch(instance, world.stream)), SUCCESS);
    assert_eq!(world.synchronise(), SUCCESS);
    let counts = world.device.counts();
    assert_eq!((counts.launches, counts.kernels, counts.graph_launches), (0, 6, 3));
    assert_eq!(counts.live_graphs, 2);
}

#[test]
fn kernels_of_a_graph_that_do_not_depend_on_each_other_have_no_order() {
    let world = on("");
    let (memory, function) = (world.allocate(80), world.load("move", MOVE));
    let host = pinned(10);
    host.fill(0.0);
    assert_eq!(call!(cuMemcpyHtoDAsync_v2(memory, host.as_ptr().cast(), 80, world.stream)), SUCCESS);
    let graph: sys::CUgraph = made!(cuGraphCreate(0));
    for from in 0..2u64 {
        let mut arguments = [memory + 8 * (from + 1), 0, memory + 8 * from];
        let mut parameters: [*mut c_void; 1] = [arguments.as_mut_ptr().cast()];
        let node = node_of(function, 32, &mut parameters);
        let _: sys::CUgraphNode = made!(cuGraphAddKernelNode_v2(graph, ptr::null(), 0, &raw const node));
    }
    let instance: sys::CUgraphExec = made!(cuGraphInstantiateWithFlags(graph, 0));
    assert_eq!(call!(cuGraphLaunch(instance, world.stream)), SUCCESS);
    assert_eq!(call!(cuMemcpyDtoHAsync_v2(host.as_mut_ptr().cast(), memory, 80, world.stream)), SUCCESS);
    assert_eq!(world.synchronise(), SUCCESS);
    assert_eq!(host[..3], [0.0, 1.5, 1.5], "the second did not wait for the first");
}

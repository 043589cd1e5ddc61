//! What a device and its host keep: nothing grows over thousands of batches, nothing is allocated in the steady state, and a lost device
//! returns what nothing may use any more.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use trawl_kernels::cuda::{
    BarsSource, Cache, Device as _, Executor, ExecutorOptions, Fault, MemoryMode, Place, Sequence, SourceSymbol,
    Urgency,
};
use trawl_kernels::stages::Stages;
use trawl_kernels::{NoCancel, SymbolInput, evaluate_from};
use trawl_plan::Program;

use crate::device::{World, bits, last_of, plan, waits, world};
use crate::fused::{inputs, lowered, market, program};
use crate::watched::Watched;

/// Set in the process in which the leak test is alone.
const ALONE: &str = "TRAWL_DEVICE_ALONE";
/// Most that the resident memory of a process grows over all batches of a mode: pages that allocators keep.
const GROWN_KIB_MAX: u64 = 16 << 10;

/// Values at the last bars of a known source.
fn last(world: &World, program: &Program, symbols: &[SymbolInput<'_>], bars: &str) -> Result<Vec<u64>, Fault> {
    let names: Vec<String> = (0..symbols.len()).map(|i| format!("S{i}")).collect();
    let names: Vec<SourceSymbol<'_>> = names.iter().map(|name| name.as_str().into()).collect();
    let source = BarsSource { bars: Arc::from(bars), group: 0, symbols: &names };
    let (from, stages) = (last_of(symbols), &mut Stages::default());
    let values = world.executor.evaluate_from(&lowered(program), symbols, &from, Some(&source), &NoCancel, stages)?;
    Ok(bits(&values))
}

fn batches() -> u64 {
    std::env::var("TRAWL_DEVICE_BATCHES").ok().and_then(|text| text.parse().ok()).unwrap_or(10_000)
}

/// Memory of this process that is resident.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    line.and_then(|line| line.split_whitespace().nth(1)).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Other tests of this process take memory and give it back meanwhile, so it runs in one of its own.
#[test]
fn nothing_is_left_after_thousands_of_batches() {
    if std::env::var_os(ALONE).is_none() {
        let mut alone = Command::new(std::env::current_exe().expect("this executable"));
        alone.args(["--exact", "leaks::nothing_is_left_after_thousands_of_batches", "--nocapture"]).env(ALONE, "1");
        let ended = alone.output().expect("a process");
        let text = String::from_utf8_lossy(&ended.stdout);
        text.lines().filter(|line| line.contains("more after")).for_each(|line| println!("{line}"));
        assert!(ended.status.success(), "{text}{}", String::from_utf8_lossy(&ended.stderr));
        return;
    }
    let program = program(&["close - open".to_owned()]);
    let bars = market(&[3; 2], 5);
    let symbols = inputs(&program, &bars, &[]);
    for mode in MemoryMode::ALL {
        let world = world("card=gh200 when=random seed=8", ExecutorOptions { memory_mode: Some(mode), ..waits() });
        // The same bars again and others by turns.
        let run = |batch: u64| {
            let bars = if batch.is_multiple_of(2) { "0".to_owned() } else { (batch % 8).to_string() };
            last(&world, &program, &symbols, &bars).expect("a healthy device");
        };
        (0..16).for_each(run);
        let (before, host, rss) = (world.device.counts(), world.executor.host_bytes(), resident_kib());
        assert!(before.pinned_bytes > 0 && host >= before.pinned_bytes, "{mode}: {host} {before:?}");
        (0..batches()).for_each(run);
        let (after, grown) = (world.device.counts(), resident_kib().saturating_sub(rss));
        let of = |counts: &trawl_test_driver::Counts| {
            [counts.live_events, counts.live_allocations, counts.live_graphs, counts.pinned_bytes, counts.used_bytes]
        };
        assert_eq!((of(&after), world.executor.host_bytes()), (of(&before), host), "{mode}");
        println!("{mode}: {grown} KiB more after {} batches", batches());
        assert!(grown < GROWN_KIB_MAX, "{mode}: {grown} KiB");
    }
    // Five kernels of one primitive: launched as graphs, while the fused kernel is never there.
    let text = (0..5).fold("close".to_owned(), |text, _| format!("sma({text},3)"));
    let nested = crate::fused::program(&[text]);
    let symbols = inputs(&nested, &bars, &[]);
    let world = world("when=random seed=9", ExecutorOptions::default());
    let fused = Sequence::fused(&nested).expect("a window");
    let _letting_go = world.device.letting_go();
    fused.calls.iter().for_each(|call| world.device.hold(call.lowered.kernel.fingerprint));
    (0..4).for_each(|_| drop(last(&world, &nested, &symbols, "0").expect("a healthy device")));
    let (before, rss) = (world.device.counts(), resident_kib());
    assert!(before.live_graphs > 0, "{before:?}");
    let count = batches() / 10;
    (0..count).for_each(|_| drop(last(&world, &nested, &symbols, "0").expect("a healthy device")));
    let (after, grown) = (world.device.counts(), resident_kib().saturating_sub(rss));
    println!("graphs: {grown} KiB more after {count} batches");
    world.device.let_go();
    assert_eq!(after.graph_launches - before.graph_launches, count);
    assert_eq!((after.live_graphs, after.live_events), (before.live_graphs, before.live_events));
    assert!(grown < GROWN_KIB_MAX, "{grown} KiB");
}

/// Functions of the driver that allocate, release or create, but for those of the pool in the order of a stream.
const ALLOCATING: [&str; 9] = [
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuMemAllocManaged",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuStreamCreate",
    "cuStreamCreateWithPriority",
    "cuMemGetInfo_v2",
];

#[test]
fn in_the_steady_state_nothing_is_created_allocated_or_released() {
    let (program, bars) = (plan(), market(&[240; 64], 5));
    let symbols = inputs(&program, &bars, &[]);
    let want = bits(&evaluate_from(&program, &symbols, &last_of(&symbols), &NoCancel).expect("not cancelled"));
    // A column of each market, and what two batches have under way.
    let column = 64 * 240 * 8;
    for mode in MemoryMode::ALL {
        // Room for the bars of few markets, so that those of others are evicted all the time.
        let options = ExecutorOptions { memory_mode: Some(mode), device_memory_bytes: Some(40 * column), ..waits() };
        let world = world("card=gh200 when=random seed=11", options);
        let run = |rounds: u64, first: u64| {
            for round in 0..rounds {
                // A market comes again before it is evicted, or does not come again.
                let bars = format!("m{}", (first + round) / 2);
                assert!(last(&world, &program, &symbols, &bars).expect("a healthy device") == want, "{mode} {round}");
            }
        };
        run(60, 0);
        let calls = || ALLOCATING.map(|function| world.device.calls(function));
        let (before, host) = (calls(), world.executor.host_bytes());
        let kernels = world.device.counts().kernels;
        run(400, 60);
        assert!(world.device.counts().kernels - kernels >= 400);
        assert_eq!(calls(), before, "{mode}: calls of {ALLOCATING:?}");
        assert_eq!(world.executor.host_bytes(), host, "{mode}");
    }
}

#[test]
fn threads_that_place_bars_at_once_need_a_bounded_number_of_blocks_and_events() {
    let (program, bars) = (plan(), market(&[240; 64], 5));
    let symbols = inputs(&program, &bars, &[]);
    let want = bits(&evaluate_from(&program, &symbols, &last_of(&symbols), &NoCancel).expect("not cancelled"));
    for mode in [MemoryMode::Managed, MemoryMode::Coherent] {
        let column = 64 * 240 * 8;
        let options = ExecutorOptions { memory_mode: Some(mode), device_memory_bytes: Some(80 * column), ..waits() };
        let world = world("card=gh200 when=random seed=12", options);
        let next = AtomicU64::new(0);
        let run = |rounds: u64| {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..rounds {
                            let bars = format!("m{}", next.fetch_add(1, Ordering::Relaxed));
                            assert!(last(&world, &program, &symbols, &bars).expect("a healthy device") == want);
                        }
                    });
                }
            });
        };
        run(25);
        let allocated = || world.device.calls("cuMemAllocManaged");
        let (before, events) = (allocated(), world.device.calls("cuEventCreate"));
        run(100);
        // Threads meet in other ways now and then; nothing grows with the number of batches, of which there were 400.
        let more = allocated() - before;
        assert!(more <= 16, "{more} blocks more");
        assert!(world.executor.host_bytes() < 3 * 80 * column + world.device.counts().pinned_bytes);
        assert!(world.device.calls("cuEventCreate") - events <= 64);
    }
}

fn host_bytes(world: &World) -> u64 {
    world.executor.host_bytes()
}

#[test]
fn a_lost_device_returns_the_memory_of_the_host_that_nothing_may_use_any_more() {
    let (program, bars) = (plan(), market(&[240; 200], 5));
    let symbols = inputs(&program, &bars, &[]);
    let small = |mode| ExecutorOptions { memory_mode: Some(mode), batch_bytes_max: Some(1 << 20), ..waits() };
    let column_bytes = 240 * 7 * 32 * 8;
    // The third request meets an error that ends the context.
    let faulty = |mode| {
        let first = world("card=gh200", small(mode));
        last(&first, &program, &symbols, "a").expect("a healthy device");
        let kernels = first.device.counts().kernels;
        world(&format!("card=gh200 when=random seed=5 fault=kernel:{}:700", 2 * kernels + 2), small(mode))
    };
    for mode in MemoryMode::ALL {
        let world = faulty(mode);
        last(&world, &program, &symbols, "a").expect("a healthy device");
        last(&world, &program, &symbols, "b").expect("a healthy device");
        let (counts, resident) = (world.device.counts(), world.executor.resident_bytes());
        assert!(resident > 2 * column_bytes, "{mode}: {resident}");
        if mode == MemoryMode::Coherent {
            assert!(host_bytes(&world) > counts.pinned_bytes + 2 * column_bytes, "{}", host_bytes(&world));
        }
        let lost = last(&world, &program, &symbols, "c").expect_err("an illegal address");
        assert!(matches!(lost, Fault::Lost(_)), "{lost}");
        assert_eq!(world.executor.resident_bytes(), 0, "{mode}");
        // What was pinned in a context that has ended the driver does not take back.
        assert_eq!(host_bytes(&world), world.device.counts().pinned_bytes, "{mode}");
        assert!(last(&world, &program, &symbols, "d").is_err() && world.executor.resident_bytes() == 0);
    }
    // One that answers, and is given up for what NVML says: nothing at all stays, on the device either.
    for mode in MemoryMode::ALL {
        let world = world("card=gh200 when=random seed=6", small(mode));
        for bars in ["a", "b"] {
            last(&world, &program, &symbols, bars).expect("a healthy device");
        }
        assert!(host_bytes(&world) > 0 && world.executor.resident_bytes() > 0);
        world.executor.quarantine("its memory errs");
        assert!(world.executor.probe().is_err(), "as the thread that watches devices does");
        let counts = world.device.counts();
        assert_eq!((host_bytes(&world), world.executor.resident_bytes()), (0, 0), "{mode}");
        assert_eq!((counts.pinned_bytes, counts.used_bytes), (0, 0), "{mode}: {counts:?}");
        assert_eq!(counts.live_events, 1, "that by which clocks are compared: {counts:?}");
    }
}

#[test]
fn a_device_that_is_silent_keeps_what_it_may_still_read() {
    let (program, bars) = (plan(), market(&[240; 32], 5));
    let symbols = inputs(&program, &bars, &[]);
    let options = || ExecutorOptions { memory_mode: Some(MemoryMode::Coherent), ..waits() };
    let hangs = Watched::new("card=gh200 slow=2:1000000000").impatient(std::time::Duration::from_millis(300));
    let device = Arc::new(hangs);
    let executor = Executor::new(device.clone(), Cache::in_memory(), options()).expect("a device");
    let world = World { device, executor };
    last(&world, &program, &symbols, "a").expect("it answers");
    let lost = last(&world, &program, &symbols, "b").expect_err("it does not");
    assert!(matches!(lost, Fault::Lost(_)), "{lost}");
    let pinned = world.device.counts().pinned_bytes;
    assert!(pinned > 0 && host_bytes(&world) > pinned, "columns that its kernel may read");
    assert!(world.executor.probe().is_err());
    assert_eq!(world.device.counts().pinned_bytes, pinned);
}

#[test]
fn a_request_makes_do_with_the_pinned_memory_that_there_is() {
    let (program, bars) = (plan(), market(&[240; 200], 5));
    let symbols = inputs(&program, &bars, &[]);
    let want = bits(&evaluate_from(&program, &symbols, &last_of(&symbols), &NoCancel).expect("not cancelled"));
    let options = || ExecutorOptions { staging_bytes: 1 << 20, batch_bytes_max: Some(1 << 20), ..waits() };
    // Each of the first buffers: halved, or with one stream less. Then several in a row.
    let faults = (1..=6).map(|at| format!("fault=cuMemHostAlloc:{at}:2"));
    let several = "fault=cuMemHostAlloc:1:2 fault=cuMemHostAlloc:2:2 fault=cuMemHostAlloc:4:2".to_owned();
    for at in faults.chain([several]) {
        let refused = world(&at, options());
        assert!(last(&refused, &program, &symbols, "a").expect("less is enough") == want, "{at}");
        let counts = refused.device.counts();
        assert_eq!(host_bytes(&refused), counts.pinned_bytes, "{at}: everything is counted");
        assert!(counts.pinned_bytes > 0 && counts.pinned_bytes <= 8 << 20, "{at}: {counts:?}");
    }
    // A stream that is refused gives its buffers back, each time.
    let none = world("fault=cuStreamCreateWithPriority:1:1 fault=cuStreamCreateWithPriority:2:1", options());
    for _ in 0..2 {
        assert!(matches!(last(&none, &program, &symbols, "a"), Err(Fault::Failed(_))));
        assert_eq!((none.device.counts().pinned_bytes, host_bytes(&none)), (0, 0));
    }
    assert!(last(&none, &program, &symbols, "a").expect("a stream") == want);
    // Without any the message says what was refused, and nothing stays pinned.
    let never = world("fault=cuMemHostAlloc:1+:2", options());
    let fault = last(&never, &program, &symbols, "a").expect_err("nothing is pinned");
    assert!(matches!(fault, Fault::OutOfMemory { refused_by: Some("cuMemHostAlloc"), .. }), "{fault}");
    assert!(never.executor.lost().is_none() && host_bytes(&never) == 0);
}

#[test]
fn what_the_driver_refuses_is_named() {
    let (program, bars) = (plan(), market(&[240; 64], 5));
    let symbols = inputs(&program, &bars, &[]);
    let managed = ExecutorOptions { memory_mode: Some(MemoryMode::Managed), ..waits() };
    for (settings, options, function) in [
        ("fault=cuMemAllocManaged:1+:2", managed, "cuMemAllocManaged"),
        ("fault=cuMemAllocAsync:1+:2", waits(), "cuMemAllocAsync"),
    ] {
        let world = world(settings, options);
        let fault = last(&world, &program, &symbols, "a").expect_err("refused");
        let text = fault.to_string();
        assert!(text.contains(&format!("the driver's {function} refuses")), "{text}");
        let Fault::OutOfMemory { needed_bytes, free_bytes, .. } = fault else { panic!("{text}") };
        assert!(needed_bytes < free_bytes, "{text}");
        assert_eq!(world.device.counts().used_bytes, 0);
        world.device.trim().expect("a healthy device");
    }
}

#[test]
fn shared_memory_is_not_used_again_before_the_work_in_front_of_its_release_is_over() {
    const CELLS: usize = 1_000;
    for place in [Place::Host, Place::Managed] {
        // The copy takes a second.
        let device = Watched::new("card=gh200 copy_bytes_per_s=8000");
        let stream = device.stream(Urgency::Batch).expect("a stream");
        let staging = device.stage(CELLS).expect("pinned memory");
        let to = device.allocate(stream, CELLS).expect("memory");
        let of_size = || device.allocate_shared(place, CELLS).expect("shared memory");
        let first = of_size();
        let address = first.at(0);
        device.copy_in(stream, (&staging, 0), (&to, 0), CELLS).expect("a copy");
        device.release(stream, first);
        let second = of_size();
        assert_ne!(second.at(0), address, "{place:?}: what the stream may still read is used again");
        let mark = device.mark(stream).expect("a mark");
        assert!(device.wait(&mark, Instant::now() + Duration::from_secs(60)).expect("a healthy device"));
        let third = of_size();
        assert_eq!(third.at(0), address, "{place:?}: what nobody reads any more is not used again");
        [to, second, third].into_iter().for_each(|memory| device.release(stream, memory));
        device.forget(mark);
        device.unstage(staging);
    }
}

//! Where bars lie when kernels read them, and how requests share a device: the same bits in every mode, with every number of
//! streams and devices; what is moved when; small requests beside large ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use trawl_kernels::cuda::{BarsSource, Cache, Device, Executor, ExecutorOptions, Fault, MemoryMode, SourceSymbol};
use trawl_kernels::stages::{EngineStage, Stages};
use trawl_kernels::{NoCancel, SymbolInput, evaluate_from};
use trawl_plan::Program;

use crate::device::{World, bits, last_of, plan, waits, world};
use crate::fused::{inputs, lowered, market};

/// Batches of about two groups.
fn small() -> ExecutorOptions {
    ExecutorOptions { batch_bytes_max: Some(1 << 20), ..waits() }
}

fn in_mode(mode: MemoryMode) -> ExecutorOptions {
    ExecutorOptions { memory_mode: Some(mode), ..small() }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("S{i}")).collect()
}

/// Values at the last bars of a known source.
fn last(world: &World, program: &Program, symbols: &[SymbolInput<'_>], bars: &str) -> Result<Vec<u64>, Fault> {
    let names = names(symbols.len());
    let names: Vec<SourceSymbol<'_>> = names.iter().map(|name| name.as_str().into()).collect();
    let source = BarsSource { bars: Arc::from(bars), group: 0, symbols: &names };
    let from = last_of(symbols);
    let stages = &mut Stages::default();
    let values = world.executor.evaluate_from(&lowered(program), symbols, &from, Some(&source), &NoCancel, stages)?;
    Ok(bits(&values))
}

fn expected(program: &Program, symbols: &[SymbolInput<'_>]) -> Vec<u64> {
    bits(&evaluate_from(program, symbols, &last_of(symbols), &NoCancel).expect("not cancelled"))
}

#[test]
fn bars_reach_the_kernels_as_the_mode_says() {
    let (program, bars) = (plan(), market(&[240; 200], 5));
    let symbols = inputs(&program, &bars, &[]);
    let want = expected(&program, &symbols);
    // Of a call: bytes copied in, and bytes of managed memory moved.
    let run = |world: &World, bars: &str| {
        let before = world.device.counts();
        assert!(last(world, &program, &symbols, bars).expect("a healthy device") == want);
        let after = world.device.counts();
        (after.copied_in_bytes - before.copied_in_bytes, after.moved_bytes - before.moved_bytes)
    };
    let column_bytes = 240 * 7 * 32 * 8;
    for when in ["when=late", "when=early", "when=random seed=1", "when=random seed=2 order=reverse"] {
        let world = |mode| world(&format!("card=gh200 {when}"), in_mode(mode));
        let pinned = world(MemoryMode::Pinned);
        let (copied, moved) = run(&pinned, "a");
        assert!(copied > column_bytes && moved == 0, "{copied} {moved}");
        assert!(run(&pinned, "a").0 < column_bytes / 4, "only arguments");

        let managed = world(MemoryMode::Managed);
        let (copied, moved) = run(&managed, "a");
        assert!(copied < column_bytes / 4 && moved > column_bytes, "{copied} {moved}");
        let (copied, moved) = run(&managed, "a");
        assert!(copied < column_bytes / 4 && moved == 0, "{copied} {moved}");

        // Read in place, copied by the second use, and there for the third.
        let coherent = world(MemoryMode::Coherent);
        assert_eq!(coherent.executor.memory_mode(), (MemoryMode::Coherent, "requested"));
        let arguments = run(&coherent, "a").0;
        assert!(arguments < column_bytes / 4, "{arguments}");
        assert_eq!(coherent.device.counts().used_bytes, 0, "columns are not on the device");
        assert!(run(&coherent, "a").0 > column_bytes);
        assert!(run(&coherent, "a").0 < column_bytes / 4);
        assert_eq!(coherent.device.counts().used_bytes, coherent.executor.resident_bytes());
        // Other bars begin anew.
        assert!(run(&coherent, "b").0 < column_bytes / 4);
    }
    // What a device allows decides, unless a mode is asked for.
    let modes = [("card=gh200", MemoryMode::Coherent), ("hmm=1", MemoryMode::Pinned), ("", MemoryMode::Pinned)];
    for (settings, mode) in modes {
        assert_eq!(world(settings, waits()).executor.memory_mode().0, mode, "{settings}");
    }
    let device = Arc::new(trawl_test_driver::TestDevice::new("hmm=1").open());
    let refused = Executor::new(device, Cache::in_memory(), in_mode(MemoryMode::Coherent)).expect_err("by page faults");
    assert!(refused.to_string().contains("HMM"), "{refused}");
}

#[test]
fn memory_outside_of_the_devices_own_is_bounded_and_released() {
    let program = plan();
    // Room for one column of them, so that batches are halved, columns evicted and promotions refused.
    let bars = market(&[240; 200], 5);
    let symbols = inputs(&program, &bars, &[]);
    let want = expected(&program, &symbols);
    for mode in MemoryMode::ALL {
        let options = ExecutorOptions { device_memory_bytes: Some(3 << 20), ..in_mode(mode) };
        let tight = world("card=gh200 memory=4194304 when=random seed=3", options);
        for round in 0..12 {
            let bars = ["a", "a", "b"][round % 3];
            assert!(last(&tight, &program, &symbols, bars).expect("a healthy device") == want, "{mode} {round}");
        }
        assert!(tight.device.counts().most_bytes <= 4 << 20, "{mode}: {:?}", tight.device.counts());
        let World { device, executor } = tight;
        drop(executor);
        // The last events are reached within the time of a kernel.
        let until = Instant::now() + Duration::from_secs(20);
        while device.counts().used_bytes > 0 {
            assert!(Instant::now() < until, "{mode}: {:?}", device.counts());
            device.trim().expect("a healthy device");
        }
    }
    // Managed memory is refused beyond what is free, in the words of any other lack of memory.
    let refused = world("memory=1048576", in_mode(MemoryMode::Managed));
    let long = market(&[20_000; 32], 1);
    let fault = last(&refused, &program, &inputs(&program, &long, &[]), "long").expect_err("five times the memory");
    assert!(matches!(fault, Fault::OutOfMemory { .. }), "{fault}");
}

/// Runs of a request that other processes may disturb.
const TRIES_MAX: usize = 3;
/// The modelled clock's settings, whether every bar is wanted, symbols, and which of copies in, kernels and copies out takes longest.
const SLOWEST: [(u64, u64, bool, usize, usize); 3] =
    [(150_000, 60_000_000, false, 1600, 1), (40_000, 8_000_000, false, 1600, 0), (20_000, 3_000_000, true, 480, 2)];

#[test]
fn the_slowest_of_copies_and_kernels_decides_how_long_a_request_takes() {
    let program = plan();
    // Slower than the emulator, so that the modelled clock decides; each of the three is the slowest once.
    for slowest in SLOWEST {
        // Other processes may take the emulator's time: the least disturbed of some runs counts.
        assert!((0..TRIES_MAX).any(|_| is_as_fast_as_the_slowest(&program, slowest)), "{slowest:?}");
    }
}

/// Whether a request takes hardly longer than what is slowest of its copies in, kernels and copies out.
fn is_as_fast_as_the_slowest(
    program: &Program,
    (kernel_us, copy_bytes_per_s, every_bar, count, slowest): (u64, u64, bool, usize, usize),
) -> bool {
    let bars = market(&vec![240; count], 5);
    let symbols = inputs(program, &bars, &[]);
    let from = if every_bar { vec![0; symbols.len()] } else { last_of(&symbols) };
    let settings = format!("kernel_us={kernel_us} copy_bytes_per_s={copy_bytes_per_s}");
    let world = world(&settings, small());
    let mut stages = Stages::default();
    let run =
        |stages: &mut Stages| world.executor.evaluate_from(&lowered(program), &symbols, &from, None, &NoCancel, stages);
    run(&mut stages).expect("a healthy device");
    let spans = |stage| stages.spans().iter().filter(move |span| span.stage == stage).copied();
    let kernels: Vec<_> = spans(EngineStage::Kernel).collect();
    assert!(kernels.len() >= 5, "{} batches have no steady state", kernels.len());
    let began = spans(EngineStage::HostToDevice).map(|span| span.started).min().expect("copies");
    let ended = stages.spans().iter().map(|span| span.ended).max().expect("spans");
    // The steady state begins when the first batch is in and ends when the last begins to go out.
    let (first, last) = (kernels[0].started, kernels[kernels.len() - 1].started);
    let steady = last - first;
    let seconds = |bytes: u64| Duration::from_secs_f64(bytes as f64 / copy_bytes_per_s as f64);
    let inward = seconds(spans(EngineStage::HostToDevice).skip(1).map(|span| span.bytes).sum());
    let outward = seconds(spans(EngineStage::DeviceToHost).skip(1).map(|span| span.bytes).sum());
    let computing = Duration::from_micros(kernel_us) * (kernels.len() as u32 - 1);
    let each = [inward, computing, outward];
    let bound = each[slowest];
    assert_eq!(each.iter().max(), Some(&bound), "{settings}: {each:?}");
    println!("{settings}: {} batches, {steady:?} of {:?}, bound {bound:?}", kernels.len(), ended - began);
    steady < bound.mul_f64(1.2)
}

#[test]
fn a_small_request_does_not_wait_for_large_ones() {
    let program = plan();
    let (large, few) = (market(&[240; 1600], 5), market(&[240; 32], 7));
    let (large, few) = (inputs(&program, &large, &[]), inputs(&program, &few, &[]));
    let want = expected(&program, &few);
    // Many batches of 60 ms each: the large requests have all of their streams at any time.
    let limits = ExecutorOptions { batch_bytes_max: Some(512 << 10), interactive_bytes_max: 1 << 20, ..waits() };
    let world = world("kernel_us=60000", ExecutorOptions { streams: 2, ..limits });
    last(&world, &program, &few, "warm").expect("a healthy device");
    let (over, began) = (AtomicBool::new(false), Instant::now());
    let mut waited = Vec::new();
    std::thread::scope(|scope| {
        let run = || {
            let from = last_of(&large);
            let stages = &mut Stages::default();
            let done = world.executor.evaluate_from(&lowered(&program), &large, &from, None, &NoCancel, stages);
            over.store(true, Ordering::Relaxed);
            done.map(drop)
        };
        let requests = [scope.spawn(run), scope.spawn(run)];
        std::thread::sleep(Duration::from_millis(150));
        for _ in 0..3 {
            let started = Instant::now();
            assert!(last(&world, &program, &few, "few").expect("a healthy device") == want);
            waited.push(started.elapsed());
            assert!(!over.load(Ordering::Relaxed), "the large requests have ended already: {waited:?}");
        }
        for request in requests {
            request.join().expect("no panic").expect("a healthy device");
        }
    });
    // A few kernels are before it on the device; what the large requests have not enqueued is not.
    let all = began.elapsed();
    assert!(waited.iter().all(|waited| *waited < all / 3), "{waited:?} of {all:?}");
    // Streams of its own, which the device prefers.
    assert!(world.device.calls("cuStreamCreateWithPriority") >= 1);
}

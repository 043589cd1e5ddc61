//! Bars that are brought before a request asks for them: what a request then copies, what it costs others, when it is left out.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use trawl_kernels::cuda::{
    Ahead, BarsSource, ExecutorOptions, Fault, MemoryMode, Prefetches, RequestPart, SourceSymbol,
};
use trawl_kernels::stages::{EngineStage, Stages};
use trawl_kernels::{Cancel, NoCancel, SymbolInput, evaluate_from};
use trawl_plan::Program;

use crate::device::{World, bits, last_of, plan, waits, world};
use crate::fleet::devices;
use crate::fused::{inputs, lowered, market, program};
use crate::parts::{PARTS, shard};

/// Batches of about two groups.
fn small() -> ExecutorOptions {
    ExecutorOptions { batch_bytes_max: Some(1 << 20), ..waits() }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("S{i}")).collect()
}

struct StopsAfter(usize, AtomicUsize);

impl Cancel for StopsAfter {
    fn cancelled(&self) -> bool {
        self.1.fetch_add(1, Ordering::Relaxed) >= self.0
    }
}

/// Bars of a known source.
struct Bars<'a> {
    program: &'a Program,
    symbols: Vec<SymbolInput<'a>>,
    names: Vec<SourceSymbol<'a>>,
}

impl Bars<'_> {
    fn source(&self, bars: &str) -> BarsSource<'_> {
        BarsSource { bars: Arc::from(bars), group: 0, symbols: &self.names }
    }

    fn prefetch(&self, world: &World, bars: &str, cancel: &dyn Cancel) -> Result<u64, Fault> {
        self.prefetch_for(world, bars, Ahead::NextCall, cancel)
    }

    fn prefetch_for(&self, world: &World, bars: &str, ahead: Ahead<'_>, cancel: &dyn Cancel) -> Result<u64, Fault> {
        let (symbols, from) = (self.symbols.clone(), last_of(&self.symbols));
        let part = RequestPart { symbols, from, source: Some(self.source(bars)) };
        world.executor.prefetch(&lowered(self.program), std::slice::from_ref(&part), ahead, cancel)
    }

    /// Bytes that a request copies; its values are the CPU's.
    fn request(&self, world: &World, bars: &str) -> u64 {
        let from = last_of(&self.symbols);
        let want = bits(&evaluate_from(self.program, &self.symbols, &from, &NoCancel).expect("not cancelled"));
        let before = world.device.counts().copied_in_bytes;
        let (source, stages) = (self.source(bars), &mut Stages::default());
        let executable = lowered(self.program);
        let got = world.executor.evaluate_from(&executable, &self.symbols, &from, Some(&source), &NoCancel, stages);
        assert!(bits(&got.expect("a healthy device")) == want, "{bars}");
        world.device.counts().copied_in_bytes - before
    }
}

#[test]
fn a_request_copies_nothing_that_was_brought_ahead() {
    let (program, market) = (plan(), market(&[240; 200], 5));
    let names = names(200);
    let bars = Bars {
        program: &program,
        symbols: inputs(&program, &market, &[]),
        names: names.iter().map(|name| name.as_str().into()).collect(),
    };
    let column_bytes = 240 * 7 * 32 * 8;
    for when in ["when=late", "when=early", "when=random seed=1", "when=random seed=2 order=reverse"] {
        let world = world(when, small());
        let alone = bars.request(&world, "a");
        assert!(alone > column_bytes, "{alone}");
        let brought = bars.prefetch(&world, "b", &NoCancel).expect("a healthy device");
        assert!(brought >= column_bytes && brought < alone, "{brought} of {alone}");
        assert_eq!(bars.prefetch(&world, "b", &NoCancel), Ok(0), "what is there is not brought again");
        let left = bars.request(&world, "b");
        assert!(left < alone / 10, "only arguments: {left} of {alone}");
        let Prefetches { brought_bytes, read_bytes, copied_bytes, left_out } = world.executor.prefetches();
        assert_eq!((brought_bytes, read_bytes, copied_bytes, left_out), (brought, brought, brought, 0));
        assert!((world.executor.prefetches().hidden_share() - 0.5).abs() < 1e-12, "one of two requests");
        // A second read hides nothing more.
        bars.request(&world, "b");
        assert_eq!(world.executor.prefetches().read_bytes, brought);
    }
}

#[test]
fn columns_that_no_kernel_reads_are_not_brought() {
    let program = program(&["sma(close,5)".to_owned(), "high".to_owned()]);
    let (market, names) = (market(&[240; 64], 5), names(64));
    let symbols = inputs(&program, &market, &[]);
    let bars = Bars { program: &program, symbols, names: names.iter().map(|name| name.as_str().into()).collect() };
    let world = world("", small());
    assert_eq!(bars.prefetch(&world, "a", &NoCancel), Ok(240 * 64 * 8), "the close");
    assert!(bars.request(&world, "a") < 240 * 64 * 8 / 10);
}

#[test]
fn it_takes_free_memory_alone_and_stops_when_cancelled() {
    let (program, market) = (plan(), market(&[240; 200], 5));
    let names = names(200);
    let bars = Bars {
        program: &program,
        symbols: inputs(&program, &market, &[]),
        names: names.iter().map(|name| name.as_str().into()).collect(),
    };
    // Cached columns may take half of it: those of one source and a part of another.
    let probe = world("", small());
    let columns = bars.prefetch(&probe, "a", &NoCancel).expect("a healthy device");
    let tight = world("", ExecutorOptions { device_memory_bytes: Some(columns * 3), ..small() });
    bars.request(&tight, "a");
    let resident = tight.executor.resident_bytes();
    assert_eq!(resident, columns);
    let some = bars.prefetch(&tight, "b", &NoCancel).expect("a healthy device");
    assert!(some > 0 && some < columns, "{some} of {columns}");
    assert_eq!(tight.executor.resident_bytes(), resident + some);
    assert!(bars.request(&tight, "a") < columns / 4, "nothing was evicted");
    // Cancelled between columns.
    let stopped = bars.prefetch(&probe, "c", &StopsAfter(3, AtomicUsize::new(0))).expect("a healthy device");
    assert!(stopped > 0 && stopped < columns / 2, "{stopped} of {columns}");
    // Switched off, and where bars are read in place.
    let off = world("", ExecutorOptions { prefetch: false, ..small() });
    let coherent = ExecutorOptions { memory_mode: Some(MemoryMode::Coherent), ..small() };
    for world in [off, world("card=gh200", coherent)] {
        assert_eq!(bars.prefetch(&world, "a", &NoCancel), Ok(0));
        bars.request(&world, "a");
    }
    let managed = world("", ExecutorOptions { memory_mode: Some(MemoryMode::Managed), ..small() });
    assert_eq!(bars.prefetch(&managed, "a", &NoCancel), Ok(columns));
    bars.request(&managed, "a");
    assert_eq!(managed.executor.prefetches().read_bytes, columns);
}

#[test]
fn bars_of_expected_scans_take_the_place_of_superseded_ones_alone_and_are_counted_by_round() {
    let (program, market) = (plan(), market(&[240; 200], 5));
    let names = names(200);
    let bars = Bars {
        program: &program,
        symbols: inputs(&program, &market, &[]),
        names: names.iter().map(|name| name.as_str().into()).collect(),
    };
    let columns = bars.prefetch(&world("", small()), "a", &NoCancel).expect("a healthy device");
    // Cached columns may take half of it: those of two sources and a part of another.
    let tight = world("", ExecutorOptions { device_memory_bytes: Some(columns * 5), ..small() });
    bars.request(&tight, "other");
    bars.request(&tight, "m@1 raw");
    let expect = |round: u64, of: &str| {
        let is_superseded = |source: &str| source.starts_with("m@") && !source.starts_with("m@2 ");
        let ahead = Ahead::Expected { round, is_superseded: &is_superseded };
        bars.prefetch_for(&tight, of, ahead, &NoCancel).expect("a healthy device")
    };
    assert_eq!(expect(7, "m@2 raw"), columns, "those of the snapshot before make room");
    assert!(tight.executor.resident_bytes() <= columns * 5 / 2);
    let more = expect(8, "m@2 adjusted");
    assert!(more < columns, "nothing else does: {more} of {columns}");
    assert!(bars.request(&tight, "m@2 raw") < columns / 4, "they are there");
    let Prefetches { brought_bytes, read_bytes, .. } = tight.executor.prefetches();
    assert_eq!((brought_bytes, read_bytes), (columns + more, columns));
    assert_eq!([7, 7, 8].map(|round| tight.executor.end_round(round)), [columns, 0, 0]);
    assert!(bars.request(&tight, "other") < columns / 4, "what others may read is still there");
    // A round that has ended is not counted.
    bars.request(&tight, "m@2 adjusted");
    assert_eq!(tight.executor.end_round(8), 0);
}

/// A stretch of a device's time.
type Stretch = (Instant, Instant);

/// The same time as stretches that do not overlap: a kernel's begins where it waits for another stream's.
fn merged(mut stretches: Vec<Stretch>) -> Vec<Stretch> {
    stretches.sort_unstable();
    let mut merged: Vec<Stretch> = Vec::new();
    for (from, to) in stretches {
        match merged.last_mut().filter(|last| last.1 >= from) {
            Some(last) => last.1 = last.1.max(to),
            None => merged.push((from, to)),
        }
    }
    merged
}

/// How much of the stretches `of` lies within those of `by`, which do not overlap each other.
fn within(of: &[Stretch], by: &[Stretch]) -> Duration {
    let shared = |(a, b): (&Stretch, &Stretch)| a.1.min(b.1).saturating_duration_since(a.0.max(b.0));
    of.iter().flat_map(|a| by.iter().map(move |b| (a, b))).map(shared).sum()
}

/// Requests over bars that no device has, each of one batch, whose copies take less time than its kernel, made by so many threads: the share of
/// the copies' time that a kernel hides, and the time of all over that of the kernels.
fn one_after_another(threads: usize) -> (f64, f64) {
    const REQUESTS: usize = 10;
    let (program, market) = (plan(), market(&[240; 64], 5));
    let symbols = inputs(&program, &market, &[]);
    let from = last_of(&symbols);
    let world = world("kernel_us=80000 copy_bytes_per_s=6000000", waits());
    let run = || {
        let stages = &mut Stages::default();
        let executable = lowered(&program);
        world.executor.evaluate_from(&executable, &symbols, &from, None, &NoCancel, stages).expect("a healthy device");
        std::mem::take(stages)
    };
    // Compiles.
    run();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while next.fetch_add(1, Ordering::Relaxed) < REQUESTS {
                    let stages = run();
                    done.lock().expect("no panic").push(stages);
                }
            });
        }
    });
    let done = done.into_inner().expect("no panic");
    let of = |stage: EngineStage| -> Vec<Stretch> {
        let spans = done.iter().flat_map(|stages| stages.spans()).filter(|span| span.stage == stage);
        spans.map(|span| (span.started, span.ended)).collect()
    };
    let (copies, kernels) = (merged(of(EngineStage::HostToDevice)), of(EngineStage::Kernel));
    assert_eq!(kernels.len(), REQUESTS);
    let kernels = merged(kernels);
    let time = |stretches: &[Stretch]| stretches.iter().map(|(from, to)| *to - *from).sum::<Duration>().as_secs_f64();
    let all = || copies.iter().chain(&kernels);
    let (begun, ended) = (all().map(|s| s.0).min().expect("some"), all().map(|s| s.1).max().expect("some"));
    let hidden = within(&copies, &kernels).as_secs_f64() / time(&copies);
    (hidden, (ended - begun).as_secs_f64() / time(&kernels))
}

/// Why nothing is brought for shards that wait for a worker: it runs two at once, and the kernels of one hide the copies of the other.
#[test]
fn two_requests_at_once_hide_the_copies_of_those_that_wait() {
    let [(alone, slow), (hidden, ratio)] = [1, 2].map(one_after_another);
    println!("hidden: {alone:.2} one at a time, {hidden:.2} two at a time; time over kernels {slow:.2}, {ratio:.2}");
    assert!(alone < 0.05, "{alone}");
    // All but the first one's on a quiet machine, as ADR 65 says; fewer where threads wait for cores.
    assert!(hidden > alone + 0.3 && ratio < slow, "{hidden} {ratio}");
}

#[test]
fn its_faults_are_those_of_the_device_and_lack_of_memory_is_none() {
    let (program, market) = (plan(), market(&[240; 200], 5));
    let names = names(200);
    let bars = Bars {
        program: &program,
        symbols: inputs(&program, &market, &[]),
        names: names.iter().map(|name| name.as_str().into()).collect(),
    };
    let short = world("fault=cuMemAllocAsync:3:2", small());
    let some = bars.prefetch(&short, "a", &NoCancel).expect("no error");
    assert!(some > 0 && short.executor.lost().is_none());
    bars.request(&short, "a");
    let failed = world("fault=cuMemcpyHtoDAsync_v2:3:1", small());
    assert!(matches!(bars.prefetch(&failed, "a", &NoCancel), Err(Fault::Failed(_))));
    bars.request(&failed, "a");
    let lost = world("fault=cuMemcpyHtoDAsync_v2:3:700", small());
    assert!(matches!(bars.prefetch(&lost, "a", &NoCancel), Err(Fault::Lost(_))));
    assert!(lost.executor.lost().is_some());
    assert_eq!(bars.prefetch(&lost, "a", &NoCancel), Ok(0));
}

#[test]
fn no_bit_depends_on_what_is_brought_while_requests_run() {
    let (program, shard) = (plan(), shard());
    for count in [1, 2, 3] {
        let settings: Vec<String> = (0..count).map(|i| format!("when=random seed={}", count * 5 + i)).collect();
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let devices = devices(&settings, &small());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                shard.run_on(&program, 0..PARTS, &|| 0, &mut |parts, report| {
                    devices.fleet().prefetch(&lowered(&program), parts, Ahead::NextCall, &NoCancel);
                    devices.fleet().evaluate_parts(&lowered(&program), parts, &NoCancel, report);
                })
            });
            for _ in 0..2 {
                let came = devices.run(&shard, &program);
                assert!(came.failed().is_empty(), "{:?}", came.failed());
                shard.agrees(&program, &came);
            }
        });
        // The next one finds everything, whoever brought it.
        let before: u64 = devices.each().iter().map(|device| device.counts().copied_in_bytes).sum();
        shard.agrees(&program, &devices.run(&shard, &program));
        let after: u64 = devices.each().iter().map(|device| device.counts().copied_in_bytes).sum();
        assert!(after - before < before / 4, "{before} {after}");
        assert!(devices.each()[0].calls("cuStreamCreateWithPriority") >= 1);
    }
}

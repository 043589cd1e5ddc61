//! Bars that are brought before a request asks for them: what a request then copies, what it costs others, when it is left out.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use trawl_kernels::cuda::{BarsSource, ExecutorOptions, Fault, MemoryMode, Prefetches, RequestPart};
use trawl_kernels::stages::Stages;
use trawl_kernels::{Cancel, NoCancel, SymbolInput, evaluate_from};
use trawl_plan::Program;

use crate::device::{World, bits, last_of, plan, waits, world};
use crate::fleet::devices;
use crate::fused::{inputs, lowered, market};
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
    names: Vec<&'a str>,
}

impl Bars<'_> {
    fn source(&self, bars: &str) -> BarsSource<'_> {
        BarsSource { bars: Arc::from(bars), group: 0, symbols: &self.names }
    }

    fn prefetch(&self, world: &World, bars: &str, cancel: &dyn Cancel) -> Result<u64, Fault> {
        let (symbols, from) = (self.symbols.clone(), last_of(&self.symbols));
        let part = RequestPart { symbols, from, source: Some(self.source(bars)) };
        world.executor.prefetch(&lowered(self.program), std::slice::from_ref(&part), cancel)
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
        names: names.iter().map(String::as_str).collect(),
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
fn it_takes_free_memory_alone_and_stops_when_cancelled() {
    let (program, market) = (plan(), market(&[240; 200], 5));
    let names = names(200);
    let bars = Bars {
        program: &program,
        symbols: inputs(&program, &market, &[]),
        names: names.iter().map(String::as_str).collect(),
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
fn its_faults_are_those_of_the_device_and_lack_of_memory_is_none() {
    let (program, market) = (plan(), market(&[240; 200], 5));
    let names = names(200);
    let bars = Bars {
        program: &program,
        symbols: inputs(&program, &market, &[]),
        names: names.iter().map(String::as_str).collect(),
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
                    devices.fleet().prefetch(&lowered(&program), parts, &NoCancel);
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

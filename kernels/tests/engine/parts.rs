//! Requests of many parts, as a worker makes for a shard's segments: batches span parts, each part is reported once and
//! as soon as it is complete, its bars are found in the cache whatever shares its request, and errors affect no more
//! parts than necessary.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use trawl_kernels::cuda::{
    BarsSource, ExecutorOptions, Fault, KernelCall, Limits, Market, Pointers, RequestEvent, RequestPart, Sequence,
    SourceSymbol, Wanted,
};
use trawl_kernels::stages::{EngineStage, Stages};
use trawl_kernels::{Cancel, Executable, NoCancel, SymbolInput, Values};
use trawl_plan::graph::{Binary, Graph, Kind, Op};
use trawl_plan::{Input, Program};

use crate::device::{Asked, World, bits, last_of, plan, waits, world};
use crate::emulator::Emulator;
use crate::fused::{inputs, lowered, market};

/// Segments of one shard.
pub const PARTS: usize = 24;

/// Symbols of each part, and their bars: two groups each, the second of them not full; parts of one symbol and of none.
pub struct Shard {
    bars: Vec<Vec<Vec<Vec<f64>>>>,
    names: Vec<Vec<String>>,
}

pub fn shard() -> Shard {
    let symbols = |part: usize| match part {
        5 => 0,
        9 => 1,
        part => 40 + part % 7,
    };
    let lengths = |part: usize| (0..symbols(part)).map(|i| 1 + (i * 37 + part * 11) % 240).collect::<Vec<_>>();
    let bars = (0..PARTS).map(|part| market(&lengths(part), 5 + part as u64)).collect();
    let names = (0..PARTS).map(|part| (0..symbols(part)).map(|i| format!("S{part}.{i}")).collect()).collect();
    Shard { bars, names }
}

/// Evaluates parts, and reports them.
pub type Evaluate<'e> = &'e mut dyn FnMut(&[RequestPart<'_>], &mut dyn FnMut(RequestEvent<'_>));

/// The outcome of a request.
#[derive(Default)]
pub struct Came {
    pub parts: BTreeMap<usize, Result<Values, Fault>>,
    took: Duration,
    pub stages: Stages,
    /// Number of launches made when each part was reported.
    launches: Vec<u64>,
}

impl Came {
    pub fn failed(&self) -> Vec<usize> {
        self.parts.iter().filter(|(_, values)| values.is_err()).map(|(part, _)| *part).collect()
    }
}

impl Shard {
    fn inputs(&self, program: &Program, part: usize) -> Vec<SymbolInput<'_>> {
        inputs(program, &self.bars[part], &[])
    }

    /// A part's values on the CPU, at the last bar.
    fn on_cpu(&self, executable: &Executable, part: usize) -> Vec<u64> {
        let symbols = self.inputs(executable, part);
        bits(&executable.evaluate_from(&symbols, &last_of(&symbols), &NoCancel).expect("not cancelled"))
    }

    /// Runs some parts in one call, of a known source.
    fn run(&self, world: &World, program: &Program, parts: Range<usize>, cancel: &dyn Cancel) -> Came {
        self.run_on(program, parts, &|| world.device.counts().launches, &mut |parts, report| {
            world.executor.evaluate_parts(&lowered(program), parts, cancel, report);
        })
    }

    /// Passes some parts, of a known source, to `evaluate` in one call. `launches`: number of launches so far.
    pub fn run_on(
        &self,
        program: &Program,
        parts: Range<usize>,
        launches: &dyn Fn() -> u64,
        evaluate: Evaluate<'_>,
    ) -> Came {
        let of_part = |part: usize| self.names[part].iter().map(|name| name.as_str().into()).collect();
        let names: Vec<Vec<SourceSymbol<'_>>> = parts.clone().map(of_part).collect();
        let given: Vec<RequestPart<'_>> = parts
            .clone()
            .zip(&names)
            .map(|(part, names)| {
                let symbols = self.inputs(program, part);
                let source = BarsSource { bars: Arc::from("m@1"), group: 0, symbols: names };
                RequestPart { from: last_of(&symbols), symbols, source: Some(source) }
            })
            .collect();
        let mut came = Came::default();
        evaluate(&given, &mut |event| match event {
            RequestEvent::Stages(stages) => came.stages.extend(stages),
            RequestEvent::Part { part, values, took } => {
                came.took += took;
                came.launches.push(launches());
                assert!(came.parts.insert(parts.start + part, values).is_none(), "part {part} was reported twice");
            }
        });
        assert_eq!(came.parts.len(), parts.len(), "every part is reported");
        came
    }

    /// Asserts that values equal the CPU's, except for failed parts.
    pub fn agrees(&self, program: &Program, came: &Came) {
        self.agrees_in(&lowered(program), came);
    }

    /// As [`Self::agrees`], in a precision.
    pub fn agrees_in(&self, executable: &Executable, came: &Came) {
        for (part, values) in &came.parts {
            if let Ok(values) = values {
                assert!(bits(values) == self.on_cpu(executable, *part), "part {part}");
            }
        }
    }
}

/// Batches of about six groups.
fn batches() -> ExecutorOptions {
    ExecutorOptions { batch_bytes_max: Some(1 << 20), ..waits() }
}

#[test]
fn batches_span_parts_and_each_part_has_the_values_that_it_has_alone() {
    let (program, shard) = (plan(), shard());
    let together = world("", waits());
    let came = shard.run(&together, &program, 0..PARTS, &NoCancel);
    assert!(came.failed().is_empty());
    shard.agrees(&program, &came);
    let counts = together.device.counts();
    // Columns of all parts together are long enough for the device to lay them out.
    let (laid, columns) = (together.device.plain(), 3);
    assert_eq!((laid, counts.launches - laid), (columns, 1), "one kernel");
    assert_eq!(came.stages.spans().len(), 3, "one batch: in, kernel, out");
    let apart = world("", waits());
    for part in 0..PARTS {
        let alone = shard.run(&apart, &program, part..part + 1, &NoCancel);
        let [alone, shared] = [&alone, &came].map(|came| came.parts[&part].as_ref().map(bits));
        assert!(alone == shared, "part {part}");
    }
    let each = apart.device.counts();
    // One has no symbols.
    assert_eq!(each.launches, PARTS as u64 - 1);
    assert!(each.copies_in > 10 * counts.copies_in, "{} copies, {} together", each.copies_in, counts.copies_in);
    assert_eq!(counts.used_bytes, together.executor.resident_bytes(), "only what stays");
}

#[test]
fn parts_are_reported_when_their_batch_is_done_and_share_its_time() {
    let (program, shard) = (plan(), shard());
    let world = world("kernel_us=100000", batches());
    let came = shard.run(&world, &program, 0..PARTS, &NoCancel);
    shard.agrees(&program, &came);
    let launches = world.device.counts().launches;
    assert!((6..PARTS as u64 - 1).contains(&launches), "{launches} batches");
    assert_eq!(came.launches[0], 0, "a part without bars waits for nobody");
    assert!(came.launches[1] <= 3, "the first parts are reported with {} batches begun", came.launches[1]);
    assert!(came.launches.is_sorted());
    // Overlapping time is not counted twice.
    let spans = came.stages.spans();
    let whole = spans.iter().map(|s| s.ended).max().unwrap() - spans.iter().map(|s| s.started).min().unwrap();
    assert!(came.took > whole / 2 && came.took <= whole + Duration::from_millis(1), "{:?} of {whole:?}", came.took);
    assert_eq!(
        spans.iter().filter(|s| s.stage == EngineStage::Kernel).count() as u64,
        launches,
        "a span a batch, not a part"
    );
}

#[test]
fn bars_that_stay_are_found_whatever_shares_a_call_with_them() {
    let (program, shard) = (plan(), shard());
    let world = world("", waits());
    let copied = |parts: Range<usize>| {
        let before = world.device.counts().copied_in_bytes;
        let came = shard.run(&world, &program, parts, &NoCancel);
        assert!(came.failed().is_empty());
        shard.agrees(&program, &came);
        world.device.counts().copied_in_bytes - before
    };
    let (some, others) = (copied(0..10), copied(14..PARTS));
    assert!(some > 1_000_000 && others > 1_000_000, "{some} {others}");
    // From two allocations, and some newly copied.
    let new = copied(6..20);
    assert!(new > 200_000 && new < some / 2, "{new}");
    let all = copied(0..PARTS);
    assert!(all < 50_000, "{all} bytes went in again");
    for part in 0..PARTS {
        assert!(copied(part..part + 1) < 5_000, "part {part} alone");
    }
}

#[test]
fn kernels_read_columns_that_lie_group_by_group() {
    let (program, shard) = (plan(), shard());
    let symbols = shard.inputs(&program, 3);
    let market = Market::new(program.inputs.len(), &symbols);
    assert!(market.groups() > 1);
    let fused = Sequence::fused(&program).expect("every primitive");
    let mut emulator = Emulator::new(&fused.kernels());
    let mut run = |scattered| {
        emulator.scattered = scattered;
        let out = fused.run(&emulator, &market, Wanted::Last, Limits::default());
        out.expect("it runs").concat().iter().map(|x| x.to_bits()).collect::<Vec<u64>>()
    };
    assert!(run(true) == run(false));
}

#[test]
fn a_lost_device_costs_what_was_not_reported_and_nothing_else() {
    let (program, shard) = (plan(), shard());
    let broken = world("fault=kernel:5:700", batches());
    let came = shard.run(&broken, &program, 0..PARTS, &NoCancel);
    shard.agrees(&program, &came);
    let failed = came.failed();
    // Two batches were in flight after the four that were reported.
    assert!(failed.len() > 4 && failed.len() < PARTS - 6, "{failed:?}");
    let first = failed[0];
    assert_eq!(failed, (first..PARTS).filter(|part| *part != 5).collect::<Vec<_>>());
    assert!(came.parts[&first].as_ref().is_err_and(|fault| matches!(fault, Fault::Lost(_))));
    let again = shard.run(&broken, &program, 0..1, &NoCancel);
    assert!(matches!(again.parts[&0], Err(Fault::Lost(_))));
}

#[test]
fn a_batch_that_is_late_ends_its_call_and_the_next_call_runs() {
    let (program, shard) = (plan(), shard());
    let hurried = ExecutorOptions { batch_time_max: Duration::from_millis(200), ..batches() };
    let world = world("slow=4:700", hurried);
    let came = shard.run(&world, &program, 0..PARTS, &NoCancel);
    shard.agrees(&program, &came);
    let failed = came.failed();
    assert!(failed.len() > 6 && failed.len() < PARTS - 4, "{failed:?}");
    assert!(failed.iter().all(|part| matches!(came.parts[part], Err(Fault::Late { .. }))));
    let again = shard.run(&world, &program, failed[0]..PARTS, &NoCancel);
    assert!(again.failed().is_empty());
    shard.agrees(&program, &again);
}

#[test]
fn one_part_that_does_not_fit_fails_alone() {
    let program = plan();
    let mut shard = shard();
    shard.bars[7] = market(&[9_000; 33], 3);
    shard.names[7] = (0..33).map(|i| format!("L{i}")).collect();
    // Memory for each of the others, not for a group of the long ones.
    let tight = world("memory=5242880", waits());
    let came = shard.run(&tight, &program, 0..PARTS, &NoCancel);
    assert_eq!(came.failed(), [7]);
    let Err(Fault::OutOfMemory { needed_bytes, .. }) = &came.parts[&7] else { panic!("{:?}", came.parts[&7]) };
    assert!(*needed_bytes > 5 << 20, "{needed_bytes}");
    shard.agrees(&program, &came);
    let counts = tight.device.counts();
    assert!(counts.most_bytes <= 5 << 20 && counts.used_bytes == tight.executor.resident_bytes(), "{counts:?}");
    // At each allocation in turn: nothing is lost or reported twice.
    for at in 1..=12 {
        let short = world(&format!("fault=cuMemAllocAsync:{at}:2"), batches());
        let came = shard.run(&short, &program, 0..6, &NoCancel);
        assert!(came.failed().is_empty());
        shard.agrees(&program, &came);
    }
}

#[test]
fn a_cancelled_call_tells_the_rest_so() {
    let (program, shard) = (plan(), shard());
    let world = world("", batches());
    let came = shard.run(&world, &program, 0..PARTS, &Asked(AtomicUsize::new(6)));
    shard.agrees(&program, &came);
    let failed = came.failed();
    assert!(failed.len() > 6 && failed.len() < PARTS, "{failed:?}");
    assert!(failed.iter().all(|part| came.parts[part] == Err(Fault::Cancelled)));
    assert!(world.device.counts().launches < 6);
    assert_eq!(world.device.counts().used_bytes, world.executor.resident_bytes());
}

/// A plan of more numbers than the 32 KiB of arguments that a kernel takes.
pub fn many_numbers() -> Program {
    let mut graph = Graph::default();
    let mut sum = graph.add(Op::Column(0), &[], Kind::Num);
    for i in 0..5_000 {
        let number = graph.num(f64::from(i) + 0.5);
        sum = graph.add(Op::Binary(Binary::Add), &[sum, number], Kind::Num);
    }
    Program::over(vec![Input::Column("close".to_owned())], graph, vec![sum])
}

#[test]
fn a_plan_of_more_numbers_than_a_kernel_takes_is_several_kernels_that_each_take_theirs() {
    let (program, shard) = (many_numbers(), shard());
    let symbols = shard.inputs(&program, 3);
    let market = Market::new(program.inputs.len(), &symbols);
    let fused = Sequence::fused(&program).expect("every primitive");
    let bytes = |call: &KernelCall| {
        let pointers = Pointers { columns: vec![0; call.lowered.kernel.columns], ..Pointers::default() };
        call.lowered.launch(&market, Wanted::Last, Limits::default()).arguments(&pointers).len()
    };
    let bytes: Vec<usize> = fused.calls.iter().map(bytes).collect();
    assert!(bytes.iter().sum::<usize>() > 40_000 && bytes.iter().all(|bytes| *bytes < 32_764), "{bytes:?}");
    let world = world("", waits());
    let came = shard.run(&world, &program, 0..3, &NoCancel);
    assert!(came.failed().is_empty());
    shard.agrees(&program, &came);
    assert_eq!(world.device.counts().launches, fused.calls.len() as u64, "the device ran it, in one batch");
}

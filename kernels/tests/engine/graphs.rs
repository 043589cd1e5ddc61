//! Kernels launched by one call: the same bits as one by one whatever fails, whatever else is switched, and however much is
//! under way; launches that are saved; graphs that are bounded and released.

use std::sync::Arc;

use trawl_kernels::cuda::{CHUNK_BARS, Executor, ExecutorOptions, Fault, Sequence};
use trawl_kernels::stages::{EngineStage, Launches, Stages};
use trawl_kernels::{NoCancel, SymbolInput, evaluate_from};
use trawl_plan::Program;

use crate::device::{World, bits, last_of, waits, world};
use crate::fused::{inputs, lowered, market, program};

/// Recursive steps at three levels, windows, a column and a constant: six kernels over chunks, and two for last bars.
const PLAN: &[&str] =
    &["rsi(close,14)", "sma(close,20)", "ema(ema(sma(close,20),9),7)", "close", "1 + 1", "ema(close,5) > ema(close,9)"];

const WHEN: [&str; 4] = ["when=late", "when=early", "when=random seed=1", "when=random seed=2 order=reverse"];

pub fn plan() -> Program {
    program(&PLAN.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>())
}

fn with(graphs: bool) -> ExecutorOptions {
    ExecutorOptions { graphs, ..waits() }
}

/// Of one request over chunks: its values, and how its kernels were launched.
fn run(
    executor: &Executor,
    program: &Program,
    symbols: &[SymbolInput<'_>],
    from: &[usize],
) -> Result<(Vec<u64>, Launches, Stages), Fault> {
    let mut stages = Stages::default();
    let values = executor.evaluate_in_chunks(&lowered(program), symbols, from, None, &NoCancel, &mut stages, true)?;
    Ok((bits(&values), stages.launches(), stages))
}

/// Bits of the values over chunks, launched one by one, at the last bars and at all.
pub fn one_by_one(program: &Program, symbols: &[SymbolInput<'_>]) -> [Vec<u64>; 2] {
    let plain = world("", with(false));
    let bits = [last_of(symbols), vec![0; symbols.len()]]
        .map(|from| run(&plain.executor, program, symbols, &from).expect("a healthy device").0);
    assert_eq!(plain.device.counts().graph_launches, 0);
    bits
}

#[test]
fn a_sequence_that_runs_again_is_launched_by_one_call() {
    let program = plan();
    let bars = market(&[2_600, 1, CHUNK_BARS + 1, 1_900], 8);
    let symbols = inputs(&program, &bars, &[]);
    let want = one_by_one(&program, &symbols);
    for when in WHEN {
        let world = world(when, with(true));
        for (from, want) in [last_of(&symbols), vec![0; symbols.len()]].iter().zip(&want) {
            let before = world.device.counts();
            let mut launches = Vec::new();
            for _ in 0..4 {
                let (got, launched, _) = run(&world.executor, &program, &symbols, from).expect("a healthy device");
                assert!(got == *want, "{when}");
                launches.push(launched);
            }
            let kernels = launches[0].kernels;
            assert!(kernels >= 6 && launches[0].calls == kernels, "{launches:?}");
            assert!(launches[1..].iter().all(|later| *later == Launches { kernels, calls: 1 }), "{launches:?}");
            assert_eq!(launches[1].saved(), kernels - 1);
            let after = world.device.counts();
            assert_eq!(after.launches - before.launches, kernels, "only the first time");
            assert_eq!(
                (after.graph_launches - before.graph_launches, after.kernels - before.kernels),
                (3, 4 * kernels)
            );
        }
        // Fewer symbols of other lengths take the same graph: every kernel is replaced.
        let fewer = inputs(&program, &bars[..1], &[]);
        let from = last_of(&fewer);
        let want = one_by_one(&program, &fewer);
        let built = world.device.calls("cuGraphInstantiateWithFlags");
        let (got, launched, _) = run(&world.executor, &program, &fewer, &from).expect("a healthy device");
        assert!(got == want[0] && launched.calls == 1, "{when}");
        assert_eq!((built, world.device.calls("cuGraphInstantiateWithFlags")), (2, 2));
        let World { device, executor } = world;
        assert_eq!(executor.idle_graphs(), 2);
        drop(executor);
        assert_eq!((device.counts().live_graphs, device.counts().used_bytes), (0, 0));
    }
}

#[test]
fn kernels_of_single_primitives_are_launched_together_and_give_the_cpus_bits() {
    let program = plan();
    let bars = market(&[240, 17, 33, 100, 1, 239], 3);
    let symbols = inputs(&program, &bars, &[]);
    let world = world("when=random seed=6", ExecutorOptions::default());
    let fused = Sequence::fused(&program).expect("every primitive");
    let _letting_go = world.device.letting_go();
    fused.calls.iter().for_each(|call| world.device.hold(call.lowered.kernel.fingerprint));
    for from in [last_of(&symbols), vec![0; symbols.len()], last_of(&symbols)] {
        let want = bits(&evaluate_from(&program, &symbols, &from, &NoCancel).expect("not cancelled"));
        for _ in 0..2 {
            let stages = &mut Stages::default();
            let got = world.executor.evaluate_from(&lowered(&program), &symbols, &from, None, &NoCancel, stages);
            assert!(bits(&got.expect("a healthy device")) == want);
        }
    }
    assert!(!world.executor.is_fused(&lowered(&program)));
    // The second of each kind of two, and both of the last.
    assert_eq!(world.device.counts().graph_launches, 4);
    world.device.let_go();
}

#[test]
fn whatever_fails_about_a_graph_the_kernels_are_launched_one_by_one() {
    let program = plan();
    let bars = market(&[2_600, 1_900], 8);
    let symbols = inputs(&program, &bars, &[]);
    let from = last_of(&symbols);
    let [want, _] = one_by_one(&program, &symbols);
    // Of a call: which one fails, with which result.
    let faults = [
        "cuGraphCreate:1:2",
        "cuGraphAddKernelNode_v2:1:1",
        "cuGraphAddKernelNode_v2:5:2",
        "cuGraphInstantiateWithFlags:1:2",
        "cuGraphExecKernelNodeSetParams_v2:1:1",
        "cuGraphExecKernelNodeSetParams_v2:3:801",
        "cuGraphLaunch:1:1",
        "cuGraphLaunch:2:2",
        "cuGraphExecDestroy:1:1",
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        let world = world(&format!("when=random seed={number} fault={fault}"), with(true));
        let single: Vec<bool> = (0..5)
            .map(|_| {
                let (got, launches, _) = run(&world.executor, &program, &symbols, &from).expect("a healthy device");
                assert!(got == want, "{fault}");
                launches.calls > 1
            })
            .collect();
        // The first time, and when it failed; what was released is not a failure.
        let failed = single.iter().filter(|single| **single).count();
        let is_used = fault.contains("Destroy");
        assert!(failed == if is_used { 1 } else { 2 }, "{fault}: {single:?}");
        let World { device, executor } = world;
        drop(executor);
        let left = device.counts().live_graphs;
        assert!(left == u64::from(is_used), "{fault}: {left}");
    }
    // A driver whose graphs never work is not asked for long.
    let world = world("fault=cuGraphLaunch:1+:1", with(true));
    for _ in 0..6 {
        assert!(run(&world.executor, &program, &symbols, &from).expect("a healthy device").0 == want);
    }
    assert_eq!(world.device.calls("cuGraphLaunch"), 3);
}

#[test]
fn a_fault_that_ends_the_context_is_no_reason_for_single_launches() {
    let program = plan();
    let bars = market(&[2_600], 8);
    let symbols = inputs(&program, &bars, &[]);
    let from = last_of(&symbols);
    let plain = world("", with(false));
    let kernels = run(&plain.executor, &program, &symbols, &from).expect("a healthy device").1.kernels;
    let within = format!("fault=kernel:{}:700", kernels + 3);
    for fault in ["fault=cuGraphLaunch:1:719", "fault=cuGraphAddKernelNode_v2:2:214", &within] {
        let world = world(fault, with(true));
        run(&world.executor, &program, &symbols, &from).expect("one by one");
        let lost = run(&world.executor, &program, &symbols, &from).expect_err("the device is lost");
        assert!(matches!(lost, Fault::Lost(_)), "{fault}: {lost}");
        assert!(world.executor.lost().is_some());
        assert_eq!(world.device.counts().launches, kernels, "{fault}: nothing more is tried");
    }
}

#[test]
fn a_graph_whose_memory_is_not_there_at_once_is_launched_one_by_one() {
    let program = plan();
    let bars = market(&[2_600], 8);
    let symbols = inputs(&program, &bars, &[]);
    let from = last_of(&symbols);
    let [want, _] = one_by_one(&program, &symbols);
    let first = world("", with(true));
    run(&first.executor, &program, &symbols, &from).expect("a healthy device");
    let allocations = first.device.calls("cuMemAllocAsync");
    for later in [allocations / 2, allocations - 1] {
        let world = world(&format!("fault=cuMemAllocAsync:{}:2", allocations + later), with(true));
        let launched: Vec<Launches> = (0..3)
            .map(|_| {
                let (got, launches, _) = run(&world.executor, &program, &symbols, &from).expect("a healthy device");
                assert!(got == want);
                launches
            })
            .collect();
        assert_eq!(launched[1], launched[0], "one by one, in one batch");
        assert_eq!(launched[2].calls, 1);
        assert_eq!(world.device.counts().trims, 0);
    }
}

#[test]
fn batches_that_are_under_way_at_once_have_graphs_of_their_own() {
    let program = plan();
    let bars = market(&[1_700; 8], 8);
    let symbols = inputs(&program, &bars, &[]);
    let from = last_of(&symbols);
    let [want, _] = one_by_one(&program, &symbols);
    // Several requests of several batches each.
    let world = world("when=random seed=9", ExecutorOptions { batch_bytes_max: Some(1), ..with(true) });
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..3 {
                    let (got, _, _) = run(&world.executor, &program, &symbols, &from).expect("a healthy device");
                    assert!(got == want);
                }
            });
        }
    });
    let idle = world.executor.idle_graphs();
    assert!((1..=3).contains(&idle), "{idle}");
    assert_eq!(world.device.calls("cuGraphInstantiateWithFlags"), idle as u64, "each is used again");
}

#[test]
fn what_is_kept_is_bounded() {
    let world = world("", ExecutorOptions::default());
    let bars = market(&[240; 3], 8);
    // The one thread that compiles fused kernels waits at the first: all others are kernels of single primitives.
    let nested = |depth: usize| {
        let text = (0..depth).fold("close".to_owned(), |text, _| format!("sma({text},3)"));
        program(&[text])
    };
    let first = Sequence::fused(&nested(5)).expect("a window");
    let _letting_go = world.device.letting_go();
    first.calls.iter().for_each(|call| world.device.hold(call.lowered.kernel.fingerprint));
    for depth in 5..45 {
        let program = nested(depth);
        let symbols = inputs(&program, &bars, &[]);
        let from = last_of(&symbols);
        let want = bits(&evaluate_from(&program, &symbols, &from, &NoCancel).expect("not cancelled"));
        for _ in 0..2 {
            let stages = &mut Stages::default();
            let got = world.executor.evaluate_from(&lowered(&program), &symbols, &from, None, &NoCancel, stages);
            assert!(bits(&got.expect("a healthy device")) == want, "{depth}");
        }
    }
    assert_eq!(world.device.counts().graph_launches, 40);
    assert_eq!(world.executor.idle_graphs(), 32);
    assert_eq!(world.device.counts().live_graphs, 64, "a graph and its instance each");
    world.device.let_go();
}

#[test]
fn by_the_modelled_clock_a_graph_saves_what_its_launches_take() {
    let program = plan();
    let bars = market(&[1_700], 8);
    let symbols = inputs(&program, &bars, &[]);
    let from = last_of(&symbols);
    // Whatever the host takes between two calls is added, so that only a run that is not interrupted has the exact time.
    let mut seen = Vec::new();
    for _ in 0..20 {
        let world = world("launch_us=20000 kernel_us=1000", with(true));
        let computing = [(); 2].map(|()| {
            let (_, launches, stages) = run(&world.executor, &program, &symbols, &from).expect("a healthy device");
            let kernels = stages.spans().iter().filter(|span| span.stage == EngineStage::Kernel);
            let ms: f64 = kernels.map(|span| (span.ended - span.started).as_secs_f64() * 1e3).sum();
            (ms, launches.kernels as f64)
        });
        let [(single, kernels), (together, _)] = computing;
        let beyond = [single - kernels * 21.0, together - 20.0 - kernels];
        assert!(beyond.iter().all(|&ms| ms > -1.0), "{computing:?}");
        if beyond.iter().all(|&ms| ms < 1.0) {
            return;
        }
        seen.push(beyond);
    }
    panic!("milliseconds beyond what the launches take: {seen:?}");
}

#[test]
fn a_device_without_graphs_launches_one_by_one() {
    let program = plan();
    let bars = market(&[1_700], 8);
    let symbols = inputs(&program, &bars, &[]);
    let [want, _] = one_by_one(&program, &symbols);
    let shared = Arc::new(crate::watched::Watched::new("").without_graphs());
    let executor = Executor::new(shared, trawl_kernels::cuda::Cache::in_memory(), with(true)).expect("a device");
    for _ in 0..3 {
        let (got, launches, _) = run(&executor, &program, &symbols, &last_of(&symbols)).expect("a healthy device");
        assert!(got == want && launches.saved() == 0);
    }
}

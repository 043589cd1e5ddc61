//! States on a device of the test driver beside those of the CPU: push by push the same bits whenever the device's work happens,
//! by every route, and when any call fails; no bar is lost, and nothing is left behind.

use std::sync::Arc;

use trawl_kernels::cuda::{Executor, Fault, Fleet, NewBar};
use trawl_kernels::{
    BARS_BEHIND_MAX, Cancel, Cancelled, Engine, Executable, NoCancel, Precision, Resident, ResidentError, Route,
    RoutedStates, SymbolInput,
};
use trawl_plan::graph::{Bits, Graph, Kind, Op};
use trawl_plan::{Input, Program};
use trawl_test_driver::Counts;

use crate::device::{World, plan, waits, world};
use crate::fused::{inputs, lowered, market};
use crate::parts::many_numbers;
use crate::resume::Random;

/// Bars that come one at a time, at most.
const LAST_BARS: usize = 20;

const WHEN: [&str; 4] = ["when=late", "when=early", "when=random seed=1", "when=random seed=2 order=reverse"];

fn bars() -> Vec<Vec<Vec<f64>>> {
    let lengths: Vec<usize> = (0..70).map(|i| 1 + (i * 37) % 240).collect();
    market(&lengths, 5)
}

/// States of both kinds and the bars to come.
struct Market<'a> {
    program: &'a Program,
    symbols: Vec<SymbolInput<'a>>,
    seen: Vec<usize>,
    cpu: Resident,
    random: Random,
}

impl<'a> Market<'a> {
    fn new(program: &'a Program, bars: &'a [Vec<Vec<f64>>]) -> Self {
        let (symbols, mut random) = (inputs(program, bars, &[]), Random(0x2545_f491));
        let seen: Vec<usize> = symbols.iter().map(|s| s.visible.saturating_sub(1 + random.below(LAST_BARS))).collect();
        let first = Self::first(&symbols, &seen);
        let cpu = Resident::new(&lowered(program), &first, &NoCancel).expect("not cancelled");
        Self { program, symbols, seen, cpu, random }
    }

    fn first(symbols: &[SymbolInput<'a>], seen: &[usize]) -> Vec<SymbolInput<'a>> {
        symbols.iter().zip(seen).map(|(s, n)| SymbolInput { visible: *n, ..s.clone() }).collect()
    }

    fn states(&self, engine: &Engine) -> RoutedStates {
        let first = Self::first(&self.symbols, &self.seen);
        RoutedStates::new(&lowered(self.program), &first, engine, &NoCancel).expect("not cancelled")
    }

    /// Adds a bar to some symbols, or to all; returns the route, or `None` if there are no more.
    fn push(&mut self, states: &mut RoutedStates) -> Option<Route> {
        let left: Vec<bool> = self.seen.iter().zip(&self.symbols).map(|(n, s)| *n < s.visible).collect();
        if !left.contains(&true) {
            return None;
        }
        let present: Vec<bool> = left.iter().map(|left| *left && self.random.below(6) > 0).collect();
        let column = |c: usize| -> Vec<f64> {
            let of = |(s, n): (&SymbolInput<'_>, &usize)| s.columns[c].get(*n).copied().unwrap_or(-3e7);
            self.symbols.iter().zip(&self.seen).map(of).collect()
        };
        let columns: Vec<Vec<f64>> = (0..self.program.inputs.len()).map(column).collect();
        let columns: Vec<&[f64]> = columns.iter().map(Vec::as_slice).collect();
        let present = present.contains(&false).then_some(present);
        self.cpu.push(&columns, present.as_deref()).expect("fits");
        let route = states.push(&columns, present.as_deref()).expect("fits");
        let has_bar = |symbol: usize| present.as_ref().is_none_or(|present| present[symbol]);
        self.seen.iter_mut().enumerate().for_each(|(symbol, n)| *n += usize::from(has_bar(symbol)));
        Some(route)
    }

    fn agrees(&self, states: &RoutedStates, note: &str) {
        for symbol in 0..self.symbols.len() {
            assert_eq!(states.bars(symbol), self.seen[symbol], "{note}");
            for output in 0..self.program.outputs.len() {
                let (want, got) = (self.cpu.value(symbol, output), states.value(symbol, output));
                assert!(want.to_bits() == got.to_bits(), "{note}: symbol {symbol}, output {output}: {want} {got}");
            }
        }
    }
}

fn engine(executor: Executor) -> Engine {
    Engine::Device(Arc::new(Fleet::from(executor)))
}

#[test]
fn a_devices_states_have_the_cpus_bits_push_by_push() {
    let (program, bars) = (plan(), bars());
    for when in WHEN {
        let World { device, executor } = world(when, waits());
        let mut market = Market::new(&program, &bars);
        let mut states = market.states(&engine(executor));
        assert_eq!(states.without_device(), None);
        states.take_only(Some(Route::Device));
        market.agrees(&states, when);
        let before = device.counts();
        let mut pushes = 0;
        while let Some(route) = market.push(&mut states) {
            pushes += 1;
            assert_eq!(route, Route::Device);
            market.agrees(&states, when);
            if pushes % 7 == 0 {
                states.catch_up();
                assert_eq!(states.bars_behind(), 0);
                market.agrees(&states, when);
            }
        }
        let after = device.counts();
        // One launch a push, and nothing is copied, allocated or created.
        assert_eq!((after.launches - before.launches, after.kernels - before.kernels), (pushes, pushes));
        let copies = |counts: &Counts| (counts.copies_in, counts.copies_out, counts.allocations);
        assert_eq!(copies(&after), copies(&before));
        states.catch_up();
        market.agrees(&states, when);
        drop(states);
        let counts = device.counts();
        assert_eq!((counts.used_bytes, counts.pinned_bytes), (0, 0), "{when}");
    }
}

#[test]
fn every_route_and_any_order_of_routes_gives_the_same_bits() {
    let (program, bars) = (plan(), bars());
    for seed in 1..6u64 {
        let World { executor, .. } = world(&format!("when=random seed={seed}"), waits());
        let mut market = Market::new(&program, &bars);
        let mut states = market.states(&engine(executor));
        let mut random = Random(seed);
        loop {
            let only = [None, Some(Route::Sequential), Some(Route::Threads), Some(Route::Device)][random.below(4)];
            states.take_only(only);
            let Some(route) = market.push(&mut states) else { break };
            assert!(only.is_none_or(|only| only == route));
            market.agrees(&states, "any order");
        }
        let routing = states.routing();
        assert!(routing.routes.iter().all(|used| used.pushes > 0), "{routing:?}");
        assert_eq!(routing.routes.iter().map(|used| used.pushes).sum::<u64>(), routing.pushes);
        assert!(routing.best.is_some() && routing.regret.is_finite(), "{routing:?}");
    }
}

#[test]
fn whatever_fails_the_cpu_goes_on_and_no_bar_is_lost() {
    let (program, bars) = (plan(), bars());
    // Of a call: which one fails, with which result. The first kernel walks the histories.
    let faults = [
        "kernel:1:700",
        "kernel:2:700",
        "kernel:5:719",
        "kernel:9:702",
        "cuLaunchKernel:1:1",
        "cuLaunchKernel:4:1",
        "cuLaunchKernel:6:2",
        "cuEventRecord:4:700",
        "cuEventQuery:5:719",
        "cuMemHostAlloc:1:2",
        "cuMemHostAlloc:2:2",
        "cuMemAllocAsync:1:2",
        "cuMemAllocAsync:2:2",
        "cuModuleLoadData:1:200",
        "cuStreamCreateWithPriority:1:2",
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        let World { device, executor } = world(&format!("when=random seed={number} fault={fault}"), waits());
        let mut market = Market::new(&program, &bars);
        let mut states = market.states(&engine(executor));
        states.take_only(Some(Route::Device));
        market.agrees(&states, fault);
        while market.push(&mut states).is_some() {
            market.agrees(&states, fault);
        }
        assert!(states.without_device().is_some(), "{fault}");
        assert_eq!(states.bars_behind(), 0);
        // Of a context that has ended the driver takes back nothing.
        let is_lost = states.without_device().is_some_and(|why| why.contains("lost for this process"));
        drop(states);
        assert!(is_lost || device.counts().pinned_bytes == 0, "{fault}");
    }
}

#[test]
fn a_device_in_quarantine_is_left() {
    let (program, bars) = (plan(), bars());
    let World { executor, .. } = world("", waits());
    let fleet = Arc::new(Fleet::from(executor));
    let mut market = Market::new(&program, &bars);
    let mut states = market.states(&Engine::Device(Arc::clone(&fleet)));
    states.take_only(Some(Route::Device));
    assert_eq!(market.push(&mut states), Some(Route::Device));
    fleet.executors()[0].quarantine("memory errors");
    assert_ne!(market.push(&mut states), Some(Route::Device));
    market.agrees(&states, "quarantine");
    assert!(states.without_device().is_some_and(|why| why.contains("memory errors")), "{:?}", states.without_device());
}

#[test]
fn what_no_device_takes_the_cpu_computes_with_the_reason() {
    let bars = bars();
    let large = many_numbers();
    let World { executor, .. } = world("", waits());
    let engine = engine(executor);
    let states = Market::new(&large, &bars[1..3]).states(&engine);
    assert!(states.without_device().is_some_and(|why| why.contains("the plan's numbers take")));
    let Engine::Device(fleet) = &engine else { panic!("a device") };
    let (program, symbols) = (plan(), inputs(&plan(), &bars, &[]));
    let short = Executable::new(&program, Precision::F32);
    assert!(matches!(fleet.executors()[0].states(&short, &symbols, &NoCancel), Err(Fault::Code(_))));
    struct Now;
    impl Cancel for Now {
        fn cancelled(&self) -> bool {
            true
        }
    }
    assert_eq!(RoutedStates::new(&lowered(&program), &symbols, &engine, &Now).err(), Some(Cancelled));
    assert!(
        RoutedStates::new(&lowered(&program), &symbols, &Engine::Cpu, &NoCancel)
            .is_ok_and(|states| states.without_device().is_some())
    );
}

#[test]
fn bars_that_wait_are_bounded_and_other_shapes_change_nothing() {
    let program = plan();
    let bars = market(&[BARS_BEHIND_MAX * 3 + 10; 4], 3);
    let World { executor, .. } = world("", waits());
    let symbols = inputs(&program, &bars, &[]);
    let first: Vec<SymbolInput<'_>> = symbols.iter().map(|s| SymbolInput { visible: 5, ..s.clone() }).collect();
    let engine = engine(executor);
    let mut states = RoutedStates::new(&lowered(&program), &first, &engine, &NoCancel).expect("not cancelled");
    let mut cpu = Resident::new(&lowered(&program), &first, &NoCancel).expect("not cancelled");
    let mut most = 0;
    for (bar, only) in (5..symbols[0].visible).zip([Route::Device; 100].into_iter().chain([Route::Sequential; 200])) {
        states.take_only(Some(only));
        let columns: Vec<Vec<f64>> =
            (0..program.inputs.len()).map(|c| symbols.iter().map(|s| s.columns[c][bar]).collect()).collect();
        let columns: Vec<&[f64]> = columns.iter().map(Vec::as_slice).collect();
        assert!(matches!(states.push(&columns[1..], None), Err(ResidentError::Columns { .. })));
        assert_eq!(states.push(&columns, None), Ok(only));
        cpu.push(&columns, None).expect("fits");
        most = most.max(states.bars_behind());
        for (symbol, output) in (0..4).flat_map(|s| (0..states.outputs()).map(move |o| (s, o))) {
            assert_eq!(states.value(symbol, output).to_bits(), cpu.value(symbol, output).to_bits(), "{bar}");
        }
    }
    assert_eq!(most, BARS_BEHIND_MAX);
    assert!(states.routing().behind_seconds > 0.0);
}

#[test]
fn several_bars_at_once_are_one_launch_and_each_symbol_has_the_values_of_its_last_one() {
    let (program, bars) = (plan(), market(&[60; 40], 9));
    let World { device, executor } = world("when=random seed=4", waits());
    let symbols = inputs(&program, &bars, &[]);
    let first: Vec<SymbolInput<'_>> = symbols.iter().map(|s| SymbolInput { visible: 50, ..s.clone() }).collect();
    let mut states = executor.states(&lowered(&program), &first, &NoCancel).expect("a healthy device");
    let mut cpu = Resident::new(&lowered(&program), &first, &NoCancel).expect("not cancelled");
    let new = |row: usize| NewBar {
        columns: symbols[0]
            .columns
            .iter()
            .enumerate()
            .map(|(c, _)| symbols.iter().map(|s| s.columns[c][50 + row]).collect())
            .collect(),
        // Every third symbol's last bar is another row's.
        present: Some((0..symbols.len()).map(|symbol| symbol % 3 != row).collect()),
    };
    let bars: Vec<NewBar> = (0..3).map(new).collect();
    let launches = device.counts().launches;
    executor.push(&mut states, &bars).expect("a healthy device");
    assert_eq!(device.counts().launches - launches, 1);
    for bar in &bars {
        let columns: Vec<&[f64]> = bar.columns.iter().map(Vec::as_slice).collect();
        cpu.push(&columns, bar.present.as_deref()).expect("fits");
    }
    for (symbol, output) in (0..symbols.len()).flat_map(|s| (0..cpu.outputs()).map(move |o| (s, o))) {
        assert_eq!(states.bars(symbol), 52);
        assert_eq!(states.value(symbol, output).to_bits(), cpu.value(symbol, output).to_bits(), "{symbol} {output}");
    }
}

#[test]
fn tables_grow_with_the_bars() {
    // Growth factors by bar, whose table has 4,096 bars at first; the bar's number is in the second column.
    let mut graph = Graph::default();
    let [close, number] = [0, 1].map(|column| graph.add(Op::Column(column), &[], Kind::Num));
    let before = graph.add(Op::Lag(1), &[close], Kind::Num);
    let step = Op::GrownReturn { rate: Bits::from(0.001), cutout: 3 };
    let growth = graph.add(step, &[close, before, number], Kind::Num);
    let names = ["close", "volume"].map(|name| Input::Column(name.to_owned()));
    let program = Program::over(names.to_vec(), graph, vec![growth]);
    let mut bars = market(&[4_110, 4_100], 3);
    for columns in &mut bars {
        columns[4] = (1..=columns[0].len()).map(|t| t as f64).collect();
    }
    let World { executor, .. } = world("", waits());
    let mut market = Market::new(&program, &bars);
    market.seen = vec![4_090, 4_090];
    let first = Market::first(&market.symbols, &market.seen);
    market.cpu = Resident::new(&lowered(&program), &first, &NoCancel).expect("not cancelled");
    let mut states = market.states(&engine(executor));
    states.take_only(Some(Route::Device));
    while market.push(&mut states).is_some() {
        market.agrees(&states, "a table that grows");
    }
    assert_eq!(states.without_device(), None);
}

//! Kernels over chunks of histories, on the emulator and through the executor: every function that has such kernels
//! agrees with the CPU engine, bit for bit without recursion and to 1e-12 otherwise, for histories around multiples of
//! a chunk, missing values and numbers that overflow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use trawl_kernels::cuda::{
    BarsSource, CHUNK_BARS, Cache, Cut, Executor, ExecutorOptions, FEW_SYMBOLS_MAX, Fault, HEADERS, LONG_BARS_MIN,
    Lane, Limits, Lowering, Market, Sequence, SourceSymbol, Wanted,
};
use trawl_kernels::stages::Stages;
use trawl_kernels::{Engine, NoCancel, Precision, SymbolInput, Values, evaluate_all};
use trawl_plan::Program;
use trawl_plan::catalogue::{Function, functions, sample};
use trawl_plan::graph::{Binary, Op};

use crate::emulator::{Emulator, Order};
use crate::fused::{inputs, lowered, market, program};
use crate::watched::Watched;

/// Guaranteed tolerance of recursive steps, relative to the value.
const TOLERANCE: f64 = 1e-12;

/// What the page on parity says of a function over chunks.
pub fn promised(function: &Function) -> &'static str {
    let program = program(&sample(function));
    match Sequence::in_chunks(&program, false) {
        Err(_) => "whole",
        Ok(_) if !is_recursive(&program) => "bit for bit",
        Ok(_) if of_terms(function, &program) => "1e-12 of terms",
        Ok(_) => "1e-12",
    }
}

/// The same of an expression without recursion.
pub fn promised_of(item: &str) -> &'static str {
    let program = program(&[item.to_owned()]);
    assert!(!is_recursive(&program), "{item}");
    if Sequence::in_chunks(&program, false).is_ok() { "bit for bit" } else { "whole" }
}

/// Whether values may be much smaller than what they are made of: sums of both signs, as the declaration says, and differences
/// of recursive values. To these the tolerance is relative to the largest value.
fn of_terms(function: &Function, program: &Program) -> bool {
    let mut recursive = Vec::new();
    let mut differs = function.sums_signed;
    for node in program.nodes() {
        let of_recursive = node.inputs.iter().any(|input| recursive[input.index()]);
        differs |= of_recursive && node.op == Op::Binary(Binary::Subtract);
        recursive.push(of_recursive || node.op.facts().is_recursive());
    }
    differs
}

fn is_recursive(program: &Program) -> bool {
    program.nodes().iter().any(|node| node.op.facts().is_recursive())
}

/// The largest difference of a plan's chunks from the CPU.
#[derive(Debug, Clone, Default)]
#[allow(dead_code)] // Shown by Debug.
struct Worst {
    error: f64,
    text: String,
}

struct Plan {
    items: Vec<String>,
    program: Program,
    sequence: Sequence,
}

fn plan(items: Vec<String>, apart: bool) -> Option<Plan> {
    let program = program(&items);
    let sequence = Sequence::in_chunks(&program, apart).ok()?;
    Some(Plan { items, program, sequence })
}

fn emulator<'a>(plans: impl IntoIterator<Item = &'a Plan>) -> Emulator {
    let kernels: BTreeMap<String, String> = plans.into_iter().flat_map(|plan| plan.sequence.kernels()).collect();
    Emulator::new(&kernels)
}

/// The error: 0 for equal bits, infinite if only one value is defined.
fn error(want: f64, got: f64) -> f64 {
    if want.to_bits() == got.to_bits() || want == got {
        0.0
    } else if want.is_nan() || got.is_nan() {
        f64::INFINITY
    } else {
        (want - got).abs() / want.abs().max(got.abs())
    }
}

impl Plan {
    /// The narrowest chunks that this plan can be cut to, at least `width` bars.
    fn cut(&self, width: usize) -> Cut {
        let lead = self.sequence.lead.expect("over chunks");
        Cut { width: width.max(lead), lead }
    }

    /// Each output's worst difference at all bars, and at the last ones. `of_largest`: relative to the output's largest
    /// value.
    fn compare(&self, device: &Emulator, cut: Cut, symbols: &[SymbolInput<'_>], of_largest: bool) -> Vec<Worst> {
        let lanes = cut.lanes(symbols.iter().map(|s| s.visible));
        let heads = cut.heads(symbols);
        let pieces = cut.pieces(symbols, &heads, &lanes);
        let market: Market = cut.places(&lanes).with_columns(self.program.inputs.len(), &pieces);
        let bits_only = !is_recursive(&self.program);
        let cpu: Vec<_> = symbols.iter().map(|s| evaluate_all(&self.program, s, &NoCancel).expect("it runs")).collect();
        let mut worst = vec![Worst::default(); self.items.len()];
        let largest =
            |series: &Vec<f64>| series.iter().filter(|x| x.is_finite()).fold(0.0f64, |max, x| max.max(x.abs()));
        let largest: Vec<Vec<f64>> = cpu.iter().map(|outputs| outputs.iter().map(largest).collect()).collect();
        for wanted in [Wanted::All, Wanted::Last] {
            let out = self.sequence.run(device, &market, wanted, Limits::default()).unwrap_or_else(|e| panic!("{e}"));
            for (number, lane) in lanes.iter().enumerate() {
                for row in 0..lane.rows {
                    let Some(bar) = lane.own_bar(row, cut.lead) else { continue };
                    if wanted == Wanted::Last && bar + 1 < symbols[lane.symbol].visible {
                        continue;
                    }
                    for (output, worst) in worst.iter_mut().enumerate() {
                        let want = cpu[lane.symbol][output][bar];
                        let got = out[output][market.place(wanted, 0, number, row)];
                        let mut error = error(want, got);
                        let largest = largest[lane.symbol][output];
                        if of_largest && error > 0.0 && error.is_finite() && largest > 0.0 {
                            error = (want - got).abs() / largest;
                        }
                        if bits_only && want.to_bits() != got.to_bits() {
                            error = f64::INFINITY;
                        }
                        if error > worst.error || error.is_nan() {
                            let symbol = lane.symbol;
                            let text = format!("{cut:?} {wanted:?} symbol {symbol} bar {bar}: {want:?}, {got:?}");
                            *worst = Worst { error, text };
                        }
                    }
                }
            }
        }
        worst
    }
}

/// Histories around chunks of `width` bars.
fn lengths(width: usize) -> Vec<usize> {
    vec![3 * width + 7, 5 * width, width - 1, width, width + 1, 1, 2 * width, 33 * width + 5, 2, 4 * width - 1]
}

/// A market with runs of missing bars, of some bars and of more than two chunks.
fn with_runs(width: usize, seed: u64) -> Vec<Vec<Vec<f64>>> {
    let mut bars = market(&lengths(width), seed);
    for (number, symbol) in bars.iter_mut().enumerate() {
        let all = symbol[0].len();
        let runs = [(0, number * 3), (width - 5, 11), (width + width / 2, 2 * width + 9)];
        for (first, count) in runs.into_iter().filter(|_| number % 2 == 0) {
            for column in symbol.iter_mut() {
                column[first.min(all)..(first + count).min(all)].fill(f64::NAN);
            }
        }
    }
    bars
}

/// Primitives that go through bars one after another: functions with one of them are not cut. The list may not grow unseen.
const WHOLE: [&str; 12] = [
    "FamilySignal",
    "GrownReturn",
    "Hilbert",
    "MaxIndex",
    "Mesa",
    "MinIndex",
    "Parabolic",
    "Product",
    "SignalEquity",
    "SuperTrend",
    "TrendMean",
    "TrendVote",
];

/// The primitives of a program by name.
fn primitives(program: &Program) -> BTreeSet<String> {
    let name = |op: Op| format!("{op:?}").split(['(', ' ']).next().unwrap_or_default().to_owned();
    program.nodes().iter().map(|node| name(node.op)).collect()
}

#[test]
fn the_whole_catalogue_over_chunks_agrees_with_the_cpu() {
    let mut whole = Vec::new();
    let mut plans = Vec::new();
    for function in functions() {
        match plan(sample(function), false) {
            Some(plan) => plans.push((function, plan)),
            None => whole.push((function.name, primitives(&program(&sample(function))))),
        }
    }
    let cut: BTreeSet<String> = plans.iter().flat_map(|(_, plan)| primitives(&plan.program)).collect();
    let (listed, mut found) = (BTreeSet::from(WHOLE.map(str::to_owned)), BTreeSet::new());
    for (name, primitives) in whole {
        let serial: Vec<String> = primitives.difference(&cut).cloned().collect();
        assert!(!serial.is_empty(), "{name} is not cut, and each of its primitives is elsewhere");
        found.extend(serial);
    }
    assert_eq!(found, listed);
    let mut device = emulator(plans.iter().map(|(_, plan)| plan));
    let (mut wrong, mut most) = (BTreeMap::new(), 0.0f64);
    for (i, (function, plan)) in plans.iter().enumerate() {
        device.order = [Order::Random, Order::Reverse, Order::Forward][i % 3];
        let cut = plan.cut(61);
        let begins: Vec<f64> = (0..40 * cut.width).map(|t| f64::from(u8::from(t % 11 == 0))).collect();
        let bars = with_runs(cut.width, 3);
        let symbols = inputs(&plan.program, &bars, &begins);
        for worst in plan.compare(&device, cut, &symbols, of_terms(function, &plan.program)) {
            most = most.max(worst.error);
            if worst.error > TOLERANCE {
                wrong.entry(function.name).or_insert(worst);
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} functions differ: {wrong:#?}", wrong.len(), plans.len());
    println!("{} functions, the largest difference {most:.1e}", plans.len());
}

fn named(items: &[&str]) -> Vec<String> {
    items.iter().map(|item| (*item).to_owned()).collect()
}

/// Seeds longer than chunks, states that depend on single bars, steps over steps over steps.
const STATES: &[&str] = &[
    "ema(close,500)",
    "rma(close,200)",
    "ema(ema(ema(close,5),7),200)",
    "sma(ema(close,9),20)",
    "cumsum(volume)",
    "obv()",
    "since(close > open)",
    "valuewhen(close > open, high)",
    "crosses_above(ema(close,5), close)",
    "avwap('weekly')",
    "ema(cap,20)",
];

#[test]
fn states_go_from_chunk_to_chunk() {
    let items = STATES;
    for apart in [false, true] {
        let plan = plan(named(items), apart).expect("it is cut");
        let device = emulator([&plan]);
        for (width, seed) in [(61, 5), (64, 6), (840, 7)] {
            let cut = plan.cut(width);
            let bars = with_runs(cut.width, seed);
            let begins: Vec<f64> = (0..40 * cut.width).map(|t| f64::from(u8::from(t % 311 == 0))).collect();
            let symbols = inputs(&plan.program, &bars, &begins);
            for (item, worst) in items.iter().zip(plan.compare(&device, cut, &symbols, false)) {
                assert!(worst.error <= TOLERANCE, "{item}, width {width}, apart {apart}: {worst:?}");
            }
        }
    }
}

#[test]
fn attributes_are_cut_as_columns_are() {
    let items = ["days_to(earnings)", "days_since(earnings)", "sma(cap,5)"];
    let plan = plan(named(&items), false).expect("it is cut");
    let (device, cut) = (emulator([&plan]), plan.cut(61));
    let bars = with_runs(cut.width, 11);
    let symbols = inputs(&plan.program, &bars, &[]);
    for (item, worst) in items.iter().zip(plan.compare(&device, cut, &symbols, false)) {
        assert!(worst.error == 0.0, "{item}: {worst:?}");
    }
}

#[test]
fn fused_and_a_primitive_at_a_time_have_the_same_bits() {
    let run = |apart: bool| {
        let plan = plan(named(STATES), apart).expect("it is cut");
        let (device, cut) = (emulator([&plan]), plan.cut(61));
        let bars = with_runs(cut.width, 9);
        let begins: Vec<f64> = (0..40 * cut.width).map(|t| f64::from(u8::from(t % 311 == 0))).collect();
        let symbols = inputs(&plan.program, &bars, &begins);
        let lanes = cut.lanes(symbols.iter().map(|s| s.visible));
        let heads = cut.heads(&symbols);
        let pieces = cut.pieces(&symbols, &heads, &lanes);
        let market = cut.places(&lanes).with_columns(plan.program.inputs.len(), &pieces);
        let out = plan.sequence.run(&device, &market, Wanted::All, Limits::default()).expect("it runs");
        let of = |(number, lane): (usize, &Lane)| -> Vec<(usize, usize)> {
            (cut.lead..lane.rows).map(|row| (number, row)).collect()
        };
        let rows: Vec<(usize, usize)> = lanes.iter().enumerate().flat_map(of).collect();
        let series = |series: &Vec<f64>| -> Vec<u64> {
            rows.iter().map(|(lane, row)| series[market.place(Wanted::All, 0, *lane, *row)].to_bits()).collect()
        };
        out.iter().map(series).collect::<Vec<_>>()
    };
    assert!(run(false) == run(true));
}

#[test]
fn prices_that_stand_still_for_many_chunks_have_the_values_of_the_cpu() {
    let items = named(&[
        "ema(close,20)",
        "rsi(close,14)",
        "kama(close,10)",
        "adx(14)",
        "macd().hist",
        "cci(20)",
        "rsi(close,2)",
    ]);
    let plan = plan(items.clone(), false).expect("it is cut");
    let device = emulator([&plan]);
    let cut = plan.cut(840);
    // Constant from the start, and after some moving bars: until averages of gains have decayed.
    let still = |moving: usize| -> Vec<Vec<f64>> {
        let price =
            |t: usize, odd: usize| if t < moving { 50.0 + ((t * t * 31 + odd) % 701) as f64 / 100.0 } else { 53.17 };
        let column = |c: usize| (0..20 * 840).map(|t| price(t, if t < moving { c * 7 } else { 0 })).collect();
        (0..5).map(column).collect()
    };
    let bars = [still(0), still(700), still(2_000)];
    let symbols = inputs(&plan.program, &bars, &[]);
    let strict = plan.compare(&device, cut, &symbols, false);
    let of_largest = plan.compare(&device, cut, &symbols, true);
    for (item, (strict, of_largest)) in items.iter().zip(strict.into_iter().zip(of_largest)) {
        // Differences of equal averages are rounding errors, which vary.
        let worst = if item.starts_with("macd") { of_largest } else { strict };
        assert!(worst.error <= TOLERANCE, "{item}: {worst:?}");
    }
}

#[test]
fn the_screen_over_chunks_of_the_usual_width_agrees_with_the_cpu() {
    let items = named(crate::compile::SCREEN);
    let plan = plan(items.clone(), false).expect("it is cut");
    let device = emulator([&plan]);
    let cut = Cut { width: CHUNK_BARS, ..plan.cut(1) };
    let names: Vec<usize> = plan.sequence.calls.iter().map(|call| call.lowered.kernel.warps).collect();
    println!("{} kernels of {names:?} warps, lead {}", names.len(), cut.lead);
    let bars = market(&[30_000, 1, CHUNK_BARS - 1, CHUNK_BARS, CHUNK_BARS + 1, 7_000], 4);
    let symbols = inputs(&plan.program, &bars, &[]);
    let strict = plan.compare(&device, cut, &symbols, false);
    let of_largest = plan.compare(&device, cut, &symbols, true);
    for (item, (strict, of_largest)) in items.iter().zip(strict.into_iter().zip(of_largest)) {
        let worst = if item.starts_with("macd") { of_largest } else { strict };
        println!("{item}: {:.1e}", worst.error);
        assert!(worst.error <= TOLERANCE, "{item}: {worst:?}");
    }
}

/// Kernels with a place of their text, or of the headers, changed.
fn changed(kernels: BTreeMap<String, String>, from: &str, to: &str) -> BTreeMap<String, String> {
    // Each header includes earlier ones only, so that all of them are a text.
    let lines = HEADERS.iter().flat_map(|(_, header)| header.lines());
    let lines: Vec<&str> =
        lines.filter(|line| !line.starts_with("#include") && !line.starts_with("#pragma once")).collect();
    // The emulator compiles texts with the same first line together: only one has the headers.
    let mut headers = Some(lines.join("\n"));
    let of = |(name, text): (String, String)| {
        let begin = format!("// With headers.\n{}", headers.take().unwrap_or_default());
        (name, text.replace("#include \"kernel.cuh\"", &begin).replace(from, to))
    };
    kernels.into_iter().map(of).collect()
}

#[test]
fn another_state_at_the_border_of_a_chunk_is_noticed() {
    let plan = plan(named(&["ema(close,20)"]), false).expect("it is cut");
    // More chunks than maps of a batch.
    let bars = market(&[1_300], 4);
    let symbols = inputs(&plan.program, &bars, &[]);
    let error = |from: &str, to: &str| {
        let device = Emulator::new(&changed(plan.sequence.kernels(), from, to));
        plan.compare(&device, plan.cut(61), &symbols, false)[0].error
    };
    assert!(error("nothing of this", "") <= TOLERANCE);
    // Mutations that leave out the last chunk, the first chunk, a chunk after a batch and a bar of each chunk; that apply a
    // map eight times, keep the state of a batch that is not valid, and read the first row of each batch of rows again.
    for (from, to) in [
        ("of < lane;)", "of + 1 < lane;)"),
        ("int of = first()", "int of = first() + 1"),
        ("of += MAPS_AHEAD;", "of += MAPS_AHEAD + 1;"),
        ("b.end(b.lane, from)", "b.end(b.lane, from) - 1"),
        ("map_of<Map>(words, of + i)", "map_of<Map>(words, of)"),
        ("bars.step = before;", ""),
        ("least(row + AHEAD, last), following", "row, following"),
    ] {
        let error = error(from, to);
        assert!(error > TOLERANCE, "{from} -> {to}: {error}");
    }
}

#[test]
fn a_map_within_a_batch_that_is_not_valid_for_the_state_is_noticed_and_its_chunk_walked() {
    let items = named(&["ema(close,20)", "rma(close,200)"]);
    let plan = plan(items.clone(), false).expect("it is cut");
    let (device, cut) = (emulator([&plan]), plan.cut(61));
    let mut bars = market(&[30 * cut.width, 30 * cut.width], 4);
    for column in &mut bars[0] {
        // The steps overflow between two chunks, neither of which overflows by itself.
        (column[13 * cut.width - 1], column[13 * cut.width]) = (f64::MAX, -f64::MAX);
    }
    for column in &mut bars[1] {
        // Means are seeded in the middle of a batch.
        column[..3 * cut.width + 20].fill(f64::NAN);
    }
    let symbols = inputs(&plan.program, &bars, &[]);
    for (item, worst) in items.iter().zip(plan.compare(&device, cut, &symbols, false)) {
        assert!(worst.error <= TOLERANCE, "{item}: {worst:?}");
    }
}

/// Items run on a device.
const EXECUTED: &[&str] = &[
    "rsi(close,14)",
    "sma(close,20)",
    "close > sma(close,20)",
    "close",
    "1 + 1",
    "crosses_above(ema(close,5), ema(close,9))",
];

struct World {
    device: Arc<Watched>,
    executor: Executor,
}

fn world(settings: &str, options: ExecutorOptions) -> World {
    let device = Arc::new(Watched::new(settings));
    let executor = Executor::new(device.clone(), Cache::in_memory(), options).expect("a device");
    World { device, executor }
}

fn waits() -> ExecutorOptions {
    ExecutorOptions { wait_for_fused: true, ..ExecutorOptions::default() }
}

impl World {
    fn values(&self, program: &Program, symbols: &[SymbolInput<'_>], from: &[usize], stays: bool) -> Values {
        let names: Vec<String> = (0..symbols.len()).map(|i| i.to_string()).collect();
        let names: Vec<SourceSymbol<'_>> = names.iter().map(|name| name.as_str().into()).collect();
        let source = BarsSource { bars: Arc::from("bars"), group: 0, symbols: &names };
        let source = stays.then_some(&source);
        let done = self.executor.evaluate_in_chunks(
            &lowered(program),
            symbols,
            from,
            source,
            &NoCancel,
            &mut Stages::default(),
            true,
        );
        done.expect("a healthy device")
    }
}

fn bits(values: &Values) -> Vec<Vec<Vec<u64>>> {
    let series = |series: &Vec<f64>| series.iter().map(|x| x.to_bits()).collect();
    values.nested().iter().map(|outputs| outputs.iter().map(series).collect()).collect()
}

#[test]
fn an_executor_gives_the_same_bits_whatever_is_wanted_and_however_batches_are_cut() {
    let program = program(&named(EXECUTED));
    let bars = market(&[2_600, 1, CHUNK_BARS - 1, CHUNK_BARS, CHUNK_BARS + 1, 0, 1_900], 8);
    let symbols = inputs(&program, &bars, &[]);
    let whole = world("when=random", waits());
    let all = whole.values(&program, &symbols, &vec![0; symbols.len()], false);
    for (symbol, outputs) in symbols.iter().zip(&all.nested()) {
        let cpu = evaluate_all(&program, symbol, &NoCancel).expect("it runs");
        for (output, (want, got)) in cpu.iter().zip(outputs).enumerate() {
            assert_eq!(want.len(), got.len());
            for (bar, (want, got)) in want.iter().zip(got).enumerate() {
                assert!(error(*want, *got) <= TOLERANCE, "{} bar {bar}: {want:?}, {got:?}", EXECUTED[output]);
            }
        }
    }
    let all = bits(&all);
    let from = |of: fn(usize) -> usize| symbols.iter().map(|s| of(s.visible)).collect::<Vec<usize>>();
    let one_at_a_time = ExecutorOptions { batch_bytes_max: Some(1), staging_bytes: 20_000, ..waits() };
    for world in [whole, world("", one_at_a_time)] {
        for (from, stays) in [(from(|n| n.saturating_sub(1)), false), (from(|n| n / 2), true), (from(|_| 0), true)] {
            let some = bits(&world.values(&program, &symbols, &from, stays));
            for ((all, some), from) in all.iter().zip(&some).zip(&from) {
                all.iter().zip(some).for_each(|(all, some)| assert!(all[*from..] == some[..], "from {from}"));
            }
        }
        // Cached bars are not copied again.
        let before = world.device.counts().copied_in_bytes;
        world.values(&program, &symbols, &from(|_| 0), true);
        let brought = world.device.counts().copied_in_bytes - before;
        assert!(brought < 60_000, "{brought} bytes");
    }
}

#[test]
fn a_symbol_that_finds_no_memory_is_reported_with_bytes() {
    let program = program(&named(EXECUTED));
    let bars = market(&[5_000, 5_000, 5_000], 8);
    let symbols = inputs(&program, &bars, &[]);
    let from = vec![0; symbols.len()];
    // Memory for one symbol, not for three.
    let world = world("memory=6000000", ExecutorOptions { batch_bytes_max: Some(u64::MAX), ..waits() });
    let got = world.values(&program, &symbols, &from, true);
    for (symbol, outputs) in symbols.iter().zip(&got.nested()) {
        let want = evaluate_all(&program, symbol, &NoCancel).expect("it runs").concat();
        let got = outputs.concat();
        assert!(want.len() == got.len() && want.iter().zip(&got).all(|(want, got)| error(*want, *got) <= TOLERANCE));
    }
    let small = self::world("memory=900000", waits());
    let (cancel, stages) = (&NoCancel, &mut Stages::default());
    let failed = small.executor.evaluate_in_chunks(&lowered(&program), &symbols, &from, None, cancel, stages, true);
    assert!(matches!(failed, Err(Fault::OutOfMemory { needed_bytes, .. }) if needed_bytes > 900_000), "{failed:?}");
    assert_eq!(small.device.counts().used_bytes, 0);
}

#[test]
fn what_is_cut_hangs_on_the_scan_alone() {
    let of =
        |items: &[&str], symbols, bars| Lowering::of_scan([&program(&named(items))], symbols, bars, Precision::F64);
    let (chunks, why) = of(EXECUTED, FEW_SYMBOLS_MAX, LONG_BARS_MIN);
    assert_eq!((chunks, why.is_some()), (Lowering::Chunks, true));
    assert_eq!(of(EXECUTED, FEW_SYMBOLS_MAX + 1, LONG_BARS_MIN), (Lowering::Serial, None));
    assert_eq!(of(EXECUTED, 1, LONG_BARS_MIN - 1), (Lowering::Serial, None));
    let (serial, why) = of(&["rsi(close,14)", "sar()"], 1, 1_000_000);
    assert!(serial == Lowering::Serial && why.as_ref().is_some_and(|why| why.contains("one after another")), "{why:?}");
    let (serial, why) = of(&["sma(close,2000)"], 1, 1_000_000);
    assert!(serial == Lowering::Serial && why.as_ref().is_some_and(|why| why.contains("looks back")), "{why:?}");
    let single = Lowering::of_scan([&program(&named(EXECUTED))], 1, LONG_BARS_MIN, Precision::F32);
    assert!(single.0 == Lowering::Serial && single.1.is_some_and(|why| why.contains("f64 only")));
    assert_ne!(Lowering::Serial.numerics(), Lowering::Chunks.numerics());
}

#[test]
fn an_engine_over_chunks_says_so_in_its_numerics() {
    let device = world("", waits());
    let engine = Engine::Device(Arc::new(device.executor.into())).lowered(Lowering::Chunks);
    assert_eq!(engine.numerics(Precision::F64), Lowering::Chunks.numerics());
    assert_eq!(engine.numerics(Precision::F32), Lowering::Serial.numerics());
    assert_eq!(engine.clone().lowered(Lowering::Serial).numerics(Precision::F64), Lowering::Serial.numerics());
    assert_eq!(Engine::Cpu.lowered(Lowering::Chunks).numerics(Precision::F64), Lowering::Serial.numerics());
    let program = program(&named(&["ema(close,9)", "sma(close,5)"]));
    let bars = market(&[3_000], 8);
    let symbols = inputs(&program, &bars, &[]);
    let mut stages = Stages::default();
    let got = engine.evaluate_from(&lowered(&program), &symbols, &[0], None, &NoCancel, &mut stages);
    assert_eq!(bits(&got.expect("it runs"))[0].len(), 2);
    // Maps, values and the rest of the plan.
    assert_eq!(device.device.counts().launches, 3);
}

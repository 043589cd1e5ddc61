//! The engine on a device of the test driver: values equal the CPU's whatever the device's resources and whenever its work
//! happens, copies and kernels overlap, bars are cached, and all faults are reported.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use trawl_kernels::cuda::{
    BarsSource, Cache, Constants, Device as _, Executor, ExecutorOptions, Fault, Sequence, SourceSymbol,
};
use trawl_kernels::stages::{EngineStage, StageSpan, Stages};
use trawl_kernels::{
    Cancel, Cancelled, Engine, EngineError, Executable, NoCancel, Precision, SymbolInput, Values, evaluate_from,
};
use trawl_plan::Program;

use crate::fused::{inputs, lowered, market, program};
use crate::watched::Watched;

/// Timeout of background work: the compiler takes seconds for a kernel where others have the CPU.
const BOUND: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(1);

/// Settings of orders in which work happens: a result that is read too early, memory that is used too early or too long, a
/// source that is changed too early give wrong values in one of them.
const WHEN: [&str; 4] = ["when=late", "when=early", "when=random seed=1", "when=random seed=2 order=reverse"];

/// Among the outputs are series that other steps read, a column and a constant.
const PLAN: &[&str] = &[
    "rsi(close,14)",
    "sma(close,20)",
    "close > sma(close,20)",
    "ema(sma(close,20),9)",
    "close",
    "1 + 1",
    "atr(14)",
    "crosses_above(ema(close,5), ema(close,9))",
];

pub fn plan() -> Program {
    program(&PLAN.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>())
}

/// Two hundred symbols of up to 240 bars: seven groups.
fn bars() -> Vec<Vec<Vec<f64>>> {
    let lengths: Vec<usize> = (0..200).map(|i| 1 + (i * 37) % 240).collect();
    market(&lengths, 5)
}

pub struct World {
    pub device: Arc<Watched>,
    pub executor: Executor,
}

pub fn world(settings: &str, options: ExecutorOptions) -> World {
    on(Arc::new(Watched::new(settings)), options)
}

fn on(device: Arc<Watched>, options: ExecutorOptions) -> World {
    let executor = Executor::new(device.clone(), Cache::in_memory(), options).expect("a device");
    World { device, executor }
}

pub fn waits() -> ExecutorOptions {
    ExecutorOptions { wait_for_fused: true, ..ExecutorOptions::default() }
}

/// Small batches: two groups each.
fn small() -> ExecutorOptions {
    ExecutorOptions { batch_bytes_max: Some(1 << 20), ..waits() }
}

pub fn last_of(symbols: &[SymbolInput<'_>]) -> Vec<usize> {
    symbols.iter().map(|symbol| symbol.visible.saturating_sub(1)).collect()
}

pub fn bits(values: &Values) -> Vec<u64> {
    values.iter().map(f64::to_bits).collect()
}

impl World {
    fn values(&self, program: &Program, symbols: &[SymbolInput<'_>], from: &[usize]) -> Result<Values, Fault> {
        self.executor.evaluate_from(&lowered(program), symbols, from, None, &NoCancel, &mut Stages::default())
    }

    /// Asserts that the values of a plan, at the last bar and at all bars, equal the CPU's.
    fn agrees(&self, program: &Program, bars: &[Vec<Vec<f64>>]) {
        self.agrees_in(Precision::F64, program, bars);
    }

    /// As [`Self::agrees`], in a precision.
    fn agrees_in(&self, precision: Precision, program: &Program, bars: &[Vec<Vec<f64>>]) {
        let symbols = inputs(program, bars, &[]);
        let executable = Executable::new(program, precision);
        let middle = symbols.iter().map(|symbol| symbol.visible / 2).collect();
        for from in [last_of(&symbols), vec![0; symbols.len()], middle] {
            let want = executable.evaluate_from(&symbols, &from, &NoCancel).expect("not cancelled");
            let stages = &mut Stages::default();
            let got = self.executor.evaluate_from(&executable, &symbols, &from, None, &NoCancel, stages);
            let got = got.expect("a healthy device");
            assert_eq!((got.symbols(), got.outputs()), (want.symbols(), want.outputs()));
            assert!(bits(&got) == bits(&want), "from {:?}", &from[..3]);
        }
    }
}

#[test]
fn values_are_those_of_the_cpu_in_one_batch_and_in_many() {
    let bars = bars();
    // Buffers so small that they are filled many times per batch, down to one row.
    let [cramped, row] = [20_000, 1].map(|staging_bytes| ExecutorOptions { staging_bytes, ..small() });
    for options in [waits(), small(), ExecutorOptions { streams: 1, interactive_streams: 1, ..small() }, cramped, row] {
        let world = world("", options);
        Precision::ALL.into_iter().for_each(|precision| world.agrees_in(precision, &plan(), &bars));
    }
    for when in WHEN {
        let world = world(when, small());
        Precision::ALL.into_iter().for_each(|precision| world.agrees_in(precision, &plan(), &bars));
    }
}

#[test]
fn long_columns_are_laid_out_by_several_threads() {
    let program = program(&["ema(close,9)".to_owned(), "close - open".to_owned()]);
    let (world, bars) = (world("", waits()), market(&[5_000; 61], 9));
    Precision::ALL.into_iter().for_each(|precision| world.agrees_in(precision, &program, &bars));
}

#[test]
fn the_kernels_of_primitives_answer_where_no_fused_one_is_ready() {
    let device = Arc::new(Watched::new(""));
    let items = ["rsi(close,14)", "wma(close,9)", "atc().signal", "rsi(close,14) > 50", "ht_dcperiod(close)"]
        .map(str::to_owned);
    let program = program(&items);
    let bars = market(&[240, 17, 33, 100, 1, 239], 3);
    on(Arc::clone(&device), waits()).agrees(&program, &bars);
    // With kernels of single primitives: the fused kernel is never ready, and is not waited for even if one of its
    // kernels is a single primitive.
    let fused = Sequence::fused(&program).expect("every primitive");
    let apart = Sequence::apart(&program).expect("every primitive").kernels();
    let constant = Sequence::fused_with(&program, Constants::Lengths).expect("every primitive");
    let held = fused
        .calls
        .iter()
        .chain(&constant.calls)
        .map(|call| &call.lowered.kernel)
        .filter(|kernel| !apart.contains_key(&kernel.name));
    held.for_each(|kernel| device.hold(kernel.fingerprint));
    let world = on(Arc::clone(&device), ExecutorOptions::default());
    let _letting_go = device.letting_go();
    world.agrees(&program, &bars);
    assert!(!world.executor.is_fused(&lowered(&program)));
    // Otherwise its executor would wait for its compiler forever.
    device.let_go();
}

#[test]
fn symbols_without_bars_and_calls_without_symbols_have_no_values() {
    let world = world("", waits());
    let program = plan();
    assert_eq!(world.values(&program, &[], &[]).expect("a healthy device").symbols(), 0);
    let nothing = SymbolInput { columns: vec![&[][..]; program.inputs.len()], visible: 0 };
    let values = world.values(&program, std::slice::from_ref(&nothing), &[0]).expect("nothing to do");
    assert!(values.iter().next().is_none() && (values.symbols(), values.outputs()) == (1, PLAN.len()));
    let constant = crate::fused::program(&["1 + 1".to_owned(), "close".to_owned()]);
    world.agrees(&constant, &bars());
    assert_eq!(world.device.counts().launches, 0, "what the host knows is not computed");
}

fn spans(stages: &Stages, stage: EngineStage) -> Vec<StageSpan> {
    stages.spans().iter().filter(|span| span.stage == stage).copied().collect()
}

#[test]
fn one_batch_goes_in_while_another_is_computed() {
    // Slower than the emulator, which computes while the host waits for a result.
    let world = world("copy_bytes_per_s=10000000 kernel_us=300000", small());
    let (program, bars) = (plan(), bars());
    let symbols = inputs(&program, &bars, &[]);
    let mut stages = Stages::default();
    let from = vec![0; symbols.len()];
    world
        .executor
        .evaluate_from(&lowered(&program), &symbols, &from, None, &NoCancel, &mut stages)
        .expect("a healthy device");
    let [inward, kernels, outward] =
        [EngineStage::HostToDevice, EngineStage::Kernel, EngineStage::DeviceToHost].map(|stage| spans(&stages, stage));
    assert!(kernels.len() >= 3, "{} batches overlap little", kernels.len());
    assert_eq!((inward.len(), outward.len()), (kernels.len(), kernels.len()));
    let mut overlaps = 0;
    for batch in 0..kernels.len() - 1 {
        overlaps += usize::from(inward[batch + 1].started < kernels[batch].ended);
        assert!(inward[batch].ended <= kernels[batch].started && kernels[batch].ended <= outward[batch].started);
        assert!(inward[batch].bytes > 0 && outward[batch].bytes > 0);
    }
    assert!(overlaps >= kernels.len() - 2, "{overlaps} of {} overlap", kernels.len());
    let busy = |spans: &[StageSpan]| spans.iter().map(|s| s.ended - s.started).sum::<Duration>();
    let whole = outward[outward.len() - 1].ended - inward[0].started;
    assert!(whole < busy(&inward) + busy(&kernels) + busy(&outward), "{whole:?}");
}

#[test]
fn bars_of_a_known_source_stay_on_the_device_until_others_need_the_room() {
    let (program, bars) = (plan(), bars());
    let symbols = inputs(&program, &bars, &[]);
    let from = last_of(&symbols);
    let want = bits(&evaluate_from(&program, &symbols, &from, &NoCancel).expect("not cancelled"));
    let names: Vec<String> = (0..symbols.len()).map(|i| format!("S{i}")).collect();
    let names: Vec<SourceSymbol<'_>> = names.iter().map(|name| name.as_str().into()).collect();
    let world = world("memory=12582912", waits());
    let run = |bars: &str, group: u32, symbols: &[SymbolInput<'_>], names: &[SourceSymbol<'_>]| {
        let before = world.device.counts().copied_in_bytes;
        let source = BarsSource { bars: Arc::from(bars), group, symbols: names };
        let stages = &mut Stages::default();
        let from = last_of(symbols);
        let values = world.executor.evaluate_from(&lowered(&program), symbols, &from, Some(&source), &NoCancel, stages);
        (bits(&values.expect("a healthy device")), world.device.counts().copied_in_bytes - before)
    };
    let (values, first) = run("a@1", 0, &symbols, &names);
    assert!(values == want && first > 500_000, "{first}");
    let (values, again) = run("a@1", 0, &symbols, &names);
    assert!(values == want && again < 50_000, "{again} bytes went in again");
    // Another group, other bars, other symbols of the same lengths: no entry is mistaken for another.
    for (bars, group) in [("a@1", 1), ("a@2", 0)] {
        assert!(run(bars, group, &symbols, &names).1 >= first);
    }
    let other: Vec<String> = (0..symbols.len()).map(|i| format!("T{i}")).collect();
    let other: Vec<SourceSymbol<'_>> = other.iter().map(|name| name.as_str().into()).collect();
    assert!(run("a@1", 0, &symbols, &other).1 >= first);
    // Memory for some of them: the oldest are evicted, and memory stays within its bound.
    for group in 2..12 {
        assert!(run("a@1", group, &symbols, &names).0 == want);
    }
    let counts = world.device.counts();
    assert!(world.executor.resident_bytes() > 1 << 20 && counts.most_bytes <= 12 << 20, "{counts:?}");
    assert!(run("a@1", 11, &symbols, &names).1 < 50_000, "the youngest is there");
    assert!(run("a@1", 2, &symbols, &names).1 >= first, "the eldest is not");
}

/// Symbols of which the host has only the last bars: what it gives of the first is wrong.
fn ends_of(bars: &[Vec<Vec<f64>>], unread: usize) -> Vec<Vec<Vec<f64>>> {
    let end = |series: &Vec<f64>| {
        let lacking = unread.min(series.len().saturating_sub(1));
        std::iter::repeat_n(-7.0, lacking).chain(series[lacking..].iter().copied()).collect()
    };
    bars.iter().map(|columns| columns.iter().map(end).collect()).collect()
}

#[test]
fn columns_serve_scans_as_of_any_bar() {
    let (program, bars) = (plan(), bars());
    let world = world("", waits());
    let names: Vec<String> = (0..bars.len()).map(|i| format!("S{i}")).collect();
    let names: Vec<SourceSymbol<'_>> = names.iter().map(|name| name.as_str().into()).collect();
    // Some of the symbols' bars are visible, of some none; the columns are whole.
    let as_of = |back: usize, all: bool| {
        let mut symbols = inputs(&program, &bars, &[]);
        symbols.iter_mut().for_each(|symbol| symbol.visible = symbol.visible.saturating_sub(back));
        let from = if all { vec![0; symbols.len()] } else { last_of(&symbols) };
        let want = bits(&evaluate_from(&program, &symbols, &from, &NoCancel).expect("not cancelled"));
        let before = world.device.counts().copied_in_bytes;
        let source = BarsSource { bars: Arc::from("a@1"), group: 0, symbols: &names };
        let stages = &mut Stages::default();
        let got = world.executor.evaluate_from(&lowered(&program), &symbols, &from, Some(&source), &NoCancel, stages);
        assert!(bits(&got.expect("a healthy device")) == want, "{back} bars back");
        world.device.counts().copied_in_bytes - before
    };
    // The first is as of an earlier bar, at which every group has a symbol with bars: it brings the later ones too.
    let first = as_of(10, false);
    assert!(first > 500_000, "{first} bytes");
    // Nothing but arguments and tables of places: fewer bytes than a column of the smallest group takes.
    for (back, all) in [(0, false), (1, false), (17, true), (7, false), (0, true)] {
        let again = as_of(back, all);
        assert!(again < 9_000, "{again} bytes went in again for {back} bars back");
    }
    // Of a bar at which a group has few of its bars, those that are visible come by themselves; where nothing is visible, nothing comes.
    assert!((9_000..first).contains(&as_of(150, false)));
    assert!(as_of(150, false) < 9_000 && as_of(500, true) == 0);
    // A symbol that one more event adjusts has other bars.
    let adjusted: Vec<SourceSymbol<'_>> =
        names.iter().enumerate().map(|(at, name)| SourceSymbol { version: u64::from(at == 3), ..*name }).collect();
    let symbols = inputs(&program, &bars, &[]);
    let before = world.device.counts().copied_in_bytes;
    let source = BarsSource { bars: Arc::from("a@1"), group: 0, symbols: &adjusted };
    let (from, stages) = (last_of(&symbols), &mut Stages::default());
    let got = world.executor.evaluate_from(&lowered(&program), &symbols, &from, Some(&source), &NoCancel, stages);
    got.expect("a healthy device");
    let copied = world.device.counts().copied_in_bytes - before;
    assert!(copied > 10_000 && copied < first / 2, "{copied} bytes: its group's");
}

#[test]
fn bars_that_only_the_device_has_are_read_there_or_reported_as_missing() {
    let (program, bars) = (plan(), bars());
    let world = world("memory=12582912", waits());
    let names: Vec<String> = (0..bars.len()).map(|i| format!("S{i}")).collect();
    let read: Vec<SourceSymbol<'_>> = names.iter().map(|name| name.as_str().into()).collect();
    let lacking = |most: usize| -> Vec<SourceSymbol<'_>> {
        let unread = |bars: &Vec<Vec<f64>>| most.min(bars[0].len().saturating_sub(1));
        read.iter().zip(&bars).map(|(symbol, bars)| SourceSymbol { unread: unread(bars), ..*symbol }).collect()
    };
    let unread = lacking(20);
    let ends = ends_of(&bars, 20);
    let (symbols, of_ends) = (inputs(&program, &bars, &[]), inputs(&program, &ends, &[]));
    let from = last_of(&symbols);
    let want = bits(&evaluate_from(&program, &symbols, &from, &NoCancel).expect("not cancelled"));
    let run = |source: &str, given: &[SymbolInput<'_>], from: &[usize], symbols: &[SourceSymbol<'_>]| {
        let source = BarsSource { bars: Arc::from(source), group: 0, symbols };
        let stages = &mut Stages::default();
        world.executor.evaluate_from(&lowered(&program), given, from, Some(&source), &NoCancel, stages)
    };
    let missing = |got: Result<Values, Fault>| assert_eq!(got.expect_err("the host lacks bars"), Fault::NotHeld);
    missing(run("a@1", &of_ends, &from, &unread));
    assert!(bits(&run("a@1", &symbols, &from, &read).expect("a healthy device")) == want);
    let before = world.device.counts().copied_in_bytes;
    // The column that is passed on as it is comes from the host, which has its last bar.
    assert!(bits(&run("a@1", &of_ends, &from, &unread).expect("they are on the device")) == want);
    let copied = world.device.counts().copied_in_bytes - before;
    assert!(copied < 60_000, "{copied} bytes");
    // Bars that are wanted of that column, and not read.
    missing(run("a@1", &of_ends, &vec![0; from.len()], &unread));
    // Other bars of these symbols are not there.
    missing(run("a@2", &of_ends, &from, &unread));
    // They are evicted: the request learns of it, and one that brings all bars goes on.
    for other in 3..15 {
        assert!(bits(&run(&format!("a@{other}"), &symbols, &from, &read).expect("a healthy device")) == want);
    }
    missing(run("a@1", &of_ends, &from, &unread));
    assert!(bits(&run("a@1", &symbols, &from, &read).expect("a healthy device")) == want);
}

#[test]
fn a_batch_that_finds_no_memory_is_halved_and_goes_on() {
    let (program, bars) = (plan(), bars());
    let plenty = world("", waits());
    plenty.agrees(&program, &bars);
    // At each allocation in turn.
    for at in 1..=plenty.device.counts().allocations {
        world(&format!("fault=cuMemAllocAsync:{at}:2"), waits()).agrees(&program, &bars);
    }
    // Far less than the symbols need together.
    let tight = world("memory=2097152", waits());
    tight.agrees(&program, &bars);
    tight.device.trim().expect("a healthy device");
    let counts = tight.device.counts();
    assert!(counts.most_bytes <= 2 << 20 && counts.used_bytes == 0, "{counts:?}");
    assert_eq!(counts.live_events, 1, "but for the one that the clocks are compared by: {counts:?}");
    assert!(counts.launches > plenty.device.counts().launches, "{counts:?}");
    // The same with a budget within a device that has more.
    let budget = ExecutorOptions { device_memory_bytes: Some(2 << 20), ..waits() };
    let bounded = world("", budget);
    bounded.agrees(&program, &bars);
    assert!(bounded.device.counts().most_bytes <= 2 << 20);
}

#[test]
fn memory_that_was_given_back_in_other_sizes_is_had_before_a_batch_is_halved() {
    let program = plan();
    // One batch each, regardless of memory.
    let whole = || ExecutorOptions { batch_bytes_max: Some(u64::MAX), ..waits() };
    let markets = [market(&[240; 200], 5), market(&[300; 170], 6)];
    // Each alone on a device with plenty of memory: its peak memory and its launches.
    let alone = markets.each_ref().map(|bars| {
        let world = world("", whole());
        world.agrees(&program, bars);
        world.device.counts()
    });
    let memory_bytes = alone[0].most_bytes.max(alone[1].most_bytes) * 5 / 4;
    assert!(memory_bytes < alone[0].most_bytes + alone[1].most_bytes);
    let keeps = world(&format!("memory={memory_bytes} fragments=1"), whole());
    markets.iter().for_each(|bars| keeps.agrees(&program, bars));
    let counts = keeps.device.counts();
    assert!(counts.trims > 0, "{counts:?}");
    assert_eq!(counts.launches, alone[0].launches + alone[1].launches, "no batch was halved");
}

#[test]
fn a_program_whose_kernel_is_refused_is_computed_by_the_cpu() {
    let (program, bars) = (plan(), bars());
    let symbols = inputs(&program, &bars, &[]);
    let from = vec![0; symbols.len()];
    // As a driver says of code that it does not know: no kernel image for this device.
    let World { device, executor } = world("fault=cuModuleLoadData:1+:209", waits());
    let executable = lowered(&program);
    let (cancel, stages) = (&NoCancel, &mut Stages::default());
    let refused = executor.evaluate_from(&executable, &symbols, &from, None, cancel, stages).expect_err("refused");
    assert!(matches!(refused, Fault::Code(_)) && !refused.is_retryable(), "{refused}");
    assert_eq!(executor.lost(), None);
    let want = evaluate_from(&program, &symbols, &from, &NoCancel).expect("not cancelled");
    let engine = Engine::Device(Arc::new(executor.into()));
    let got = engine.evaluate_from(&executable, &symbols, &from, None, cancel, stages).expect("the CPU's values");
    assert!(bits(&got) == bits(&want));
    assert_eq!(device.counts().launches, 0);
}

#[test]
fn one_group_that_does_not_fit_is_an_error_that_names_bytes() {
    let (program, bars) = (plan(), bars());
    let symbols = inputs(&program, &bars, &[]);
    let tiny = world("memory=100000", waits());
    let fault = tiny.values(&program, &symbols, &vec![0; symbols.len()]).expect_err("no room");
    let Fault::OutOfMemory { needed_bytes, free_bytes, refused_by: None } = fault else { panic!("{fault}") };
    assert!(needed_bytes > 100_000 && free_bytes <= 90_000, "{needed_bytes} {free_bytes}");
    assert!(fault.to_string().contains(&needed_bytes.to_string()) && fault.is_retryable());
    assert_eq!(tiny.device.counts().used_bytes, 0, "nothing stays behind");
}

#[test]
fn a_batch_that_runs_too_long_ends_the_call_at_its_end() {
    let (program, bars) = (plan(), bars());
    let symbols = inputs(&program, &bars, &[]);
    let one = ExecutorOptions { interactive_streams: 1, batch_time_max: Duration::from_millis(200), ..small() };
    let world = world("slow=1:700", one);
    let fault = world.values(&program, &symbols, &vec![0; symbols.len()]).expect_err("too late");
    assert!(matches!(fault, Fault::Late { took, .. } if took >= Duration::from_millis(700)), "{fault}");
    assert!(fault.is_retryable());
    assert_eq!(world.device.counts().launches, 1, "nothing behind it was begun");
    assert_eq!(world.executor.lost(), None);
    world.agrees(&program, &bars);
    assert_eq!(world.device.counts().used_bytes, 0);
}

#[test]
fn a_device_that_says_nothing_for_too_long_is_lost() {
    let (program, bars) = (plan(), bars());
    let symbols = inputs(&program, &bars, &[]);
    // Waiting ends sooner than it would for a device.
    let hangs = Watched::new("slow=1:1000000000").impatient(Duration::from_secs(1));
    let world = on(Arc::new(hangs), waits());
    let fault = world.values(&program, &symbols, &vec![0; symbols.len()]).expect_err("it hangs");
    assert!(matches!(fault, Fault::Lost(_)), "{fault}");
}

#[test]
fn a_sticky_error_gives_the_device_up_and_tells_so_once() {
    let (program, bars) = (plan(), bars());
    let symbols = inputs(&program, &bars, &[]);
    let world = world("fault=kernel:2:700", small());
    let notices = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&notices);
    world.executor.on_lost(move |why| sink.lock().expect("held shortly").push(why.to_owned()));
    let from = vec![0; symbols.len()];
    let first = world.values(&program, &symbols, &from).expect_err("an illegal address");
    assert!(matches!(&first, Fault::Lost(why) if why.contains("illegal")), "{first}");
    let launches = world.device.counts().launches;
    assert_eq!(world.values(&program, &symbols, &from), Err(first), "every later call");
    assert_eq!(world.device.counts().launches, launches, "nothing more is tried");
    assert_eq!(notices.lock().expect("held shortly").len(), 1);
    assert!(world.executor.lost().is_some());
    // A callback registered late is called too.
    let late = Arc::clone(&notices);
    world.executor.on_lost(move |why| late.lock().expect("held shortly").push(why.to_owned()));
    assert_eq!(notices.lock().expect("held shortly").len(), 2);
}

/// Cancels after this many polls.
pub struct Asked(pub AtomicUsize);

impl Cancel for Asked {
    fn cancelled(&self) -> bool {
        self.0.fetch_sub(1, Ordering::Relaxed) <= 1
    }
}

#[test]
fn a_cancelled_call_ends_between_batches() {
    let (program, bars) = (plan(), bars());
    let symbols = inputs(&program, &bars, &[]);
    let world = world("", small());
    let from = vec![0; symbols.len()];
    let cancel = Asked(AtomicUsize::new(3));
    let outcome =
        world.executor.evaluate_from(&lowered(&program), &symbols, &from, None, &cancel, &mut Stages::default());
    assert_eq!(outcome, Err(Fault::Cancelled));
    assert!((1..=2).contains(&world.device.counts().launches));
    assert_eq!(world.device.counts().used_bytes, 0);
}

#[test]
fn a_primitive_at_a_time_answers_until_the_fused_kernel_is_compiled() {
    let (program, bars) = (plan(), bars());
    let world = world("", ExecutorOptions::default());
    let fused = Sequence::fused(&program).expect("every primitive");
    let _letting_go = world.device.letting_go();
    fused.calls.iter().for_each(|call| world.device.hold(call.lowered.kernel.fingerprint));
    world.agrees(&program, &bars);
    let apart = world.device.counts().launches;
    assert!(!world.executor.is_fused(&lowered(&program)));
    assert!(apart > 10 * 3, "{apart} launches");
    world.device.let_go();
    let until = Instant::now() + BOUND;
    while !world.executor.is_fused(&lowered(&program)) {
        assert!(Instant::now() < until, "the fused kernel was not compiled");
        std::thread::sleep(POLL);
    }
    world.agrees(&program, &bars);
    assert_eq!(world.device.counts().launches - apart, 3, "one kernel at a time");
    // Other periods and thresholds need no compilation.
    let compiled = world.device.compiled();
    let other: Vec<String> = PLAN.iter().map(|item| item.replace("20", "30").replace("14", "7")).collect();
    world.agrees(&crate::fused::program(&other), &bars);
    assert_eq!(world.device.compiled(), compiled);
    assert_eq!(world.device.counts().launches - apart, 6);
}

#[test]
fn lengths_become_constants_when_a_program_runs_again() {
    let bars = bars();
    let of = |len: usize| program(&[format!("atc(close, {len}).signal")]);
    let world = world("", ExecutorOptions::default());
    let program = of(28);
    let fingerprints = |sequence: &Sequence| -> Vec<u128> {
        sequence.calls.iter().map(|call| call.lowered.kernel.fingerprint).collect()
    };
    let fused = fingerprints(&Sequence::fused(&program).expect("every primitive"));
    let constant = fingerprints(&Sequence::fused_with(&program, Constants::Lengths).expect("every primitive"));
    let _letting_go = world.device.letting_go();
    constant.iter().for_each(|kernel| world.device.hold(*kernel));
    let until = Instant::now() + BOUND;
    let until_ran = |kernels: &[u128]| {
        let mut ran = Vec::new();
        while !kernels.iter().all(|kernel| ran.contains(kernel)) {
            if Instant::now() > until {
                // Otherwise the executor would wait for its compiler forever.
                world.device.let_go();
                panic!("its kernels were not compiled");
            }
            world.agrees(&program, &bars);
            ran.extend(world.device.take_launched());
        }
        ran
    };
    // The kernels of the shape are used until those with constants are ready.
    let early = until_ran(&fused).contains(&constant[0]);
    world.device.let_go();
    assert!(!early);
    until_ran(&constant);
    world.agrees(&program, &bars);
    assert!(world.device.take_launched().iter().all(|kernel| constant.contains(kernel)));
    // A sweep over lengths, each once, compiles nothing.
    let compiled = world.device.compiled();
    let once = |program: &Program| {
        let symbols = inputs(program, &bars, &[]);
        world.values(program, &symbols, &last_of(&symbols)).expect("a healthy device");
    };
    (8..16).for_each(|len| once(&of(len)));
    assert_eq!(world.device.compiled(), compiled);
}

#[test]
fn who_waits_for_fused_kernels_has_those_with_constants_at_once() {
    let world = world("", waits());
    let program = program(&["atc().signal".to_owned()]);
    world.agrees(&program, &bars());
    let constant = Sequence::fused_with(&program, Constants::Lengths).expect("every primitive");
    let fingerprints: Vec<u128> = constant.calls.iter().map(|call| call.lowered.kernel.fingerprint).collect();
    assert!(world.device.take_launched().iter().all(|kernel| fingerprints.contains(kernel)));
    assert_eq!(world.device.compiled(), fingerprints.len() as u64);
}

#[test]
fn primitives_that_were_compiled_ahead_answer_a_new_plan_at_once() {
    let (program, bars) = (plan(), bars());
    let world = world("", ExecutorOptions::default());
    let fused = Sequence::fused(&program).expect("every primitive");
    let _letting_go = world.device.letting_go();
    fused.calls.iter().for_each(|call| world.device.hold(call.lowered.kernel.fingerprint));
    // And the one that lays out bars.
    let ahead = Sequence::apart(&program).expect("every primitive").kernels().len() as u64 + 1;
    world.executor.warm(vec![program.clone()]);
    let until = Instant::now() + BOUND;
    // One that was compiled and is not yet in the cache would be compiled again.
    while world.device.loaded() < ahead {
        assert!(Instant::now() < until, "{} of {ahead} were loaded", world.device.loaded());
        std::thread::sleep(POLL);
    }
    world.agrees(&program, &bars);
    // Besides them only the one that picks last bars of series that others read.
    assert!(world.device.compiled() <= ahead + 1, "{}", world.device.compiled());
    // The background threads end with the executor, once the held compilation is released.
    world.device.let_go();
}

#[test]
fn threads_share_a_device() {
    let (program, bars) = (plan(), bars());
    // Memory for little more than one group at a time: each waits until others are done.
    let world = world("memory=1200000", small());
    std::thread::scope(|scope| {
        (0..8).for_each(|_| drop(scope.spawn(|| world.agrees(&program, &bars))));
    });
    assert_eq!(world.device.counts().used_bytes, 0);
}

#[test]
fn threads_that_ask_for_the_same_bars_at_once_find_them_when_they_have_arrived() {
    let (program, bars) = (plan(), bars());
    let symbols = inputs(&program, &bars, &[]);
    let from = last_of(&symbols);
    let want = bits(&evaluate_from(&program, &symbols, &from, &NoCancel).expect("not cancelled"));
    let names: Vec<String> = (0..symbols.len()).map(|i| format!("S{i}")).collect();
    let names: Vec<SourceSymbol<'_>> = names.iter().map(|name| name.as_str().into()).collect();
    // Kernels take long enough that calls meet.
    let world = world("when=late kernel_us=100000", waits());
    world.agrees(&program, &bars);
    let run = || {
        let (executable, stages) = (lowered(&program), &mut Stages::default());
        let source = BarsSource { bars: Arc::from("a@1"), group: 0, symbols: &names };
        let made = world.executor.evaluate_from(&executable, &symbols, &from, Some(&source), &NoCancel, stages);
        assert!(bits(&made.expect("a healthy device")) == want);
    };
    let run = &run;
    std::thread::scope(|scope| {
        for number in 0..4 {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(20 * number));
                run();
            });
        }
    });
}

#[test]
fn an_engine_of_a_device_gives_what_only_the_cpu_can_do_to_it() {
    let (program, bars) = (plan(), bars());
    let symbols = inputs(&program, &bars, &[]);
    let from = last_of(&symbols);
    let World { device, executor } = world("", waits());
    let engine = Engine::Device(Arc::new(executor.into()));
    let run = |engine: &Engine, precision: Precision, cancel: &dyn Cancel| {
        engine.evaluate_from(
            &Executable::new(&program, precision),
            &symbols,
            &from,
            None,
            cancel,
            &mut Stages::default(),
        )
    };
    for precision in Precision::ALL {
        let [one, other] = [&engine, &Engine::Cpu].map(|e| bits(&run(e, precision, &NoCancel).expect("it runs")));
        assert!(one == other, "{precision:?}");
    }
    assert_eq!(device.counts().launches, 2, "one in each precision");
    assert_eq!(engine.backend(), "cuda");
    let cancelled = Asked(AtomicUsize::new(1));
    assert_eq!(run(&engine, Precision::F64, &cancelled), Err(EngineError::Cancelled(Cancelled)));
}

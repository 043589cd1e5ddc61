//! Generated kernels on the emulator equal the CPU engine, bit for bit: every function of the catalogue, random plans,
//! lengths around tiles and warps, missing and infinite values, groups of unequal histories.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use trawl_kernels::cuda::{Constants, Limits, Market, Sequence, Wanted};
use trawl_kernels::{Executable, NoCancel, Precision, SymbolInput};
use trawl_plan::catalogue::{FORMS, Form, FormKind, Function, Reference, functions, sample};
use trawl_plan::{AttributeKind, Clock, Input, Program, compile_expressions};

use crate::emulator::{Emulator, Order};
use crate::properties::{self, schema};

const COLUMNS: [&str; 5] = ["open", "high", "low", "close", "volume"];

/// Lengths around batch sizes: bars of a tile, lanes of a warp, blocks of windows.
const LENGTHS: [usize; 12] = [1, 2, 15, 16, 17, 31, 32, 33, 47, 100, 161, 240];

/// Bars of the golden data: past the warm-up of every function.
const GOLDEN_BARS: usize = 400;

/// Functions of the catalogue in one plan.
const TOGETHER: usize = 12;

/// Random plans that are run a primitive at a time, and those that are fused.
const RANDOM_PLANS: usize = 160;
const RANDOM_FUSED: usize = 16;

/// Functions that the GPU does not support, and why. Additions have to be deliberate, and supported functions must not
/// be listed.
const MISSING: &[(&str, &str)] = &[];

/// A lowered program.
pub fn lowered(program: &Program) -> Executable {
    Executable::new(program, Precision::F64)
}

pub fn program(items: &[String]) -> Program {
    let named: Vec<String> = items.iter().enumerate().map(|(i, item)| format!("{item} as o{i}")).collect();
    compile_expressions(&named, "test", &schema()).unwrap_or_else(|d| panic!("{items:?}: {}", d[0])).program().clone()
}

/// The next of Marsaglia's xorshift numbers; not after 0.
fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Symbols of many lengths on a cent grid, flat stretches and bars without volume; some are dirty: missing values,
/// infinities, prices that are huge, tiny, zero or negative.
pub fn market(lengths: &[usize], seed: u64) -> Vec<Vec<Vec<f64>>> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move |below: u64| ((next_random(&mut state) >> 11) % below) as i64;
    let mut symbols = Vec::new();
    for (number, bars) in lengths.iter().enumerate() {
        let mut columns = vec![Vec::new(); COLUMNS.len()];
        let mut cents = 2_000 + random(9_000);
        let mut still = 0;
        for _ in 0..*bars {
            still = if still > 0 { still - 1 } else { random(9) / 8 * random(20) };
            let flat = still > 0;
            let open = cents;
            cents = (cents + if flat { 0 } else { random(201) - 100 }).max(40);
            let (up, down) = if flat { (0, 0) } else { (random(60), random(40).min(30)) };
            let volume = if random(9) == 0 { 0 } else { random(100_000) * 100 };
            let row = [open, open.max(cents) + up, open.min(cents) - down, cents, volume];
            for (column, value) in columns.iter_mut().zip(row) {
                let odd = match (number % 4, random(90)) {
                    (1, 0..4) => Some(f64::NAN),
                    (2, 0) => Some(f64::INFINITY),
                    (2, 1) => Some(f64::NEG_INFINITY),
                    (3, 0) => Some(1e308),
                    (3, 1) => Some(5e-324),
                    (3, 2) => Some(-0.0),
                    (3, 3) => Some(0.0),
                    _ => None,
                };
                column.push(odd.unwrap_or(value as f64 / 100.0));
            }
        }
        symbols.push(columns);
    }
    symbols
}

/// Where periods begin: every eleventh bar.
fn begins(bars: usize) -> Vec<f64> {
    (0..bars).map(|t| f64::from(u8::from(t % 11 == 0))).collect()
}

/// Minutes of sessions of eight bars, with three bars after each that are in none; whether a bar is in one; its day.
static CLOCK: LazyLock<[Vec<f64>; 3]> = LazyLock::new(|| {
    let minutes = |t: usize| if t % 11 < 8 { (t % 11) as f64 * 10.0 } else { f64::NAN };
    let is_inside = |t: usize| f64::from(u8::from(t % 11 < 8));
    let day = |t: usize| (15_000 + t / 11) as f64;
    [(0..200_000).map(minutes).collect(), (0..200_000).map(is_inside).collect(), (0..200_000).map(day).collect()]
});

/// Attributes of every symbol.
pub const ATTRIBUTES: [(&str, AttributeKind); 2] = [("cap", AttributeKind::Number), ("earnings", AttributeKind::Date)];

/// Their values: unknown at first, and again later; a day that is ahead, and then over.
static KNOWN: LazyLock<[Vec<f64>; 2]> = LazyLock::new(|| {
    let is_known = |t: usize| t >= 9 && !(70..75).contains(&t);
    let cap = |t: usize| if is_known(t) { 1e9 + (t / 13) as f64 * 0.1 } else { f64::NAN };
    let earnings = |t: usize| if is_known(t) { (15_004 + t / 130 * 12) as f64 } else { f64::NAN };
    [(0..200_000).map(cap).collect(), (0..200_000).map(earnings).collect()]
});

/// What a clock says of so many bars.
pub fn clock(clock: Clock, bars: usize) -> &'static [f64] {
    let of = match clock {
        Clock::InSession => 1,
        Clock::Date => 2,
        _ => 0,
    };
    &CLOCK[of][..bars]
}

pub fn inputs<'a>(program: &Program, bars: &'a [Vec<Vec<f64>>], begins: &'a [f64]) -> Vec<SymbolInput<'a>> {
    let symbol = |columns: &'a Vec<Vec<f64>>| {
        let series = |input: &Input| match input {
            Input::Column(name) => columns[COLUMNS.iter().position(|c| c == name).expect("a column")].as_slice(),
            Input::Begins(_) => &begins[..columns[0].len()],
            Input::Clock(of) => clock(*of, columns[0].len()),
            Input::Attribute(name) => {
                let of = ATTRIBUTES.iter().position(|(known, _)| known == name).expect("an attribute");
                &KNOWN[of][..columns[0].len()]
            }
            other => panic!("{other:?} in a bare expression"),
        };
        SymbolInput { columns: program.inputs.iter().map(series).collect(), visible: columns[0].len() }
    };
    bars.iter().map(symbol).collect()
}

/// Both engines' values of every output, and where they first differ.
pub struct Comparison {
    /// Output, symbol, bar, the CPU's value, the other's.
    pub differs: Vec<(usize, usize, usize, f64, f64)>,
    pub values: usize,
}

fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits()
}

/// The CPU's values of every symbol in a precision: `[symbol][output][bar]`.
fn on_cpu(program: &Program, symbols: &[SymbolInput<'_>], precision: Precision) -> Vec<Vec<Vec<f64>>> {
    let executable = Executable::new(program, precision);
    let of = |symbol| executable.evaluate_from(std::slice::from_ref(symbol), &[0], &NoCancel).expect("not cancelled");
    symbols.iter().flat_map(|symbol| of(symbol).nested()).collect()
}

/// Compares a device's values with the CPU's; only the first difference per output and symbol is recorded.
fn compare(market: &Market, wanted: Wanted, cpu: &[Vec<Vec<f64>>], value: impl Fn(usize, usize) -> f64) -> Comparison {
    let mut comparison = Comparison { differs: Vec::new(), values: 0 };
    for (symbol, outputs) in cpu.iter().enumerate() {
        for (output, series) in outputs.iter().enumerate() {
            let first = if wanted == Wanted::Last { series.len() - 1 } else { 0 };
            for (bar, want) in series.iter().enumerate().skip(first) {
                comparison.values += 1;
                let got = value(output, market.place(wanted, 0, symbol, bar));
                if !same(*want, got) {
                    comparison.differs.push((output, symbol, bar, *want, got));
                    break;
                }
            }
        }
    }
    comparison
}

/// Runs a plan at every bar and at the last one, and compares with the CPU in the same precision.
pub fn check(
    device: &Emulator,
    program: &Program,
    plan: &Sequence,
    bars: &[Vec<Vec<f64>>],
    limits: Limits,
) -> Comparison {
    let begins = begins(5_000);
    let symbols = inputs(program, bars, &begins);
    let market = Market::new(program.inputs.len(), &symbols);
    let cpu = on_cpu(program, &symbols, plan.precision);
    let mut whole = Comparison { differs: Vec::new(), values: 0 };
    for wanted in [Wanted::All, Wanted::Last] {
        let out = plan.run(device, &market, wanted, limits).unwrap_or_else(|e| panic!("{e}\n{:#?}", plan.kernels()));
        let part = compare(&market, wanted, &cpu, |output, place| out[output][place]);
        whole.values += part.values;
        whole.differs.extend(part.differs);
    }
    whole
}

/// The catalogue in plans of some functions each.
pub fn catalogue() -> Vec<Vec<String>> {
    let mut all: Vec<&Function> = functions().filter(|f| !MISSING.iter().any(|(name, _)| *name == f.name)).collect();
    // Last those that are not TA-Lib's and bring values of their own: a new one leaves the others' kernels as they are.
    all.sort_by_key(|f| matches!(f.source, Reference::Values(..)));
    let plans = all.chunks(TOGETHER).map(|chunk| chunk.iter().flat_map(|f| sample(f)).collect());
    plans.chain([of_attributes()]).collect()
}

/// What is written with attributes: the functions of dates, and a number as any other.
fn of_attributes() -> Vec<String> {
    let days = forms_of_days().map(|form| format!("{}(earnings)", form.name));
    days.chain(["cap", "cap > 1e9 and days_to(earnings) > 3", "sma(cap, 5) - cap[1]"].map(str::to_owned)).collect()
}

/// Functions of dates, which are no functions of the catalogue: what they read is no series.
fn forms_of_days() -> impl Iterator<Item = &'static Form> {
    FORMS.iter().filter(|form| matches!(form.kind, FormKind::Days(_)))
}

/// Groups that are ragged and of more than one warp, dirt in every fourth symbol.
pub fn ragged() -> Vec<usize> {
    let mut lengths: Vec<usize> = LENGTHS.iter().flat_map(|n| [*n; 4]).collect();
    // One lane in the last group.
    lengths.truncate(33);
    lengths.extend([240, 239, 100, 161]);
    lengths
}

/// Symbols of the golden data: a stock, constant prices, days without trade.
fn golden() -> Vec<Vec<Vec<f64>>> {
    let symbol = |name: &str| {
        let table = crate::golden::read(&format!("{name}.input.csv.gz"));
        let first = |cells: &Vec<Option<f64>>| cells.iter().take(GOLDEN_BARS).map(|x| x.unwrap_or(f64::NAN)).collect();
        COLUMNS.iter().map(|column| first(&table[*column])).collect()
    };
    ["AAPL", "EDGE_FLAT", "EDGE_ZEROVOL_DEADBARS"].map(symbol).into()
}

#[test]
fn every_function_of_the_catalogue_is_run_by_the_gpu() {
    let mut missing: BTreeMap<&str, String> = BTreeMap::new();
    for function in functions() {
        let program = program(&sample(function));
        if let Err(e) = Sequence::apart(&program) {
            missing.insert(function.name, e.to_string());
        }
    }
    let listed: BTreeSet<&str> = MISSING.iter().map(|(name, _)| *name).collect();
    let found: BTreeSet<&str> = missing.keys().copied().collect();
    assert_eq!(found, listed, "what the GPU does not run is listed at MISSING: {missing:#?}");
}

/// The page that states for each function how a GPU's values agree with the CPU's.
fn parity_page() -> String {
    let mut page = "# How a GPU's values agree with the CPU's\n\n\
        Written by a test from the declarations (`TRAWL_BLESS_PARITY=1 cargo test -p trawl-kernels parity_page`); what is said\n\
        here is tested on the emulator for every line (`kernels/tests/engine/fused.rs`), and shown on a device by `trawl bench gpu`.\n\n\
        *Bit for bit*: every step runs in the number type and in the order of the CPU engine, without contraction; logarithms, exponentials, angles and\n\
        powers are the engine's own, the same operations on both ([ADR 22](adr/0022-own-elementary-functions.md)). It holds in f64 and in f32 ([ADR 59](adr/0059-float-on-a-device.md)).\n\n\
        *Over chunks*: what is promised in f64 where a scan of few symbols with long histories is computed in chunks side by side\n\
        ([gpu.md](gpu.md)). *1e-12*: relative to the value. *1e-12 of terms*: relative to the largest value of\n\
        the history, where values are differences of averages or sums and as exact as those.\n\
        *Whole*: a scan with this function is not cut. Which bars have a value is always the same. What jumps (a rank, a comparison,\n\
        rounding to whole numbers) may jump elsewhere where its input is within 1e-12 of the step; comparisons say so (`edge`).\n\n\
        | Function | Outputs | Agreement | Over chunks |\n|---|---|---|---|\n"
        .to_owned();
    let of_function =
        |function: &'static Function| (function.name, function.outputs.len(), crate::chunks::promised(function));
    let of_form = |form: &'static Form| (form.name, 1, crate::chunks::promised_of(&format!("{}(earnings)", form.name)));
    let mut all: Vec<(&str, usize, &str)> = functions().map(of_function).chain(forms_of_days().map(of_form)).collect();
    all.sort_by_key(|(name, ..)| *name);
    for (function, outputs, chunks) in all {
        let missing = MISSING.iter().find(|(name, _)| *name == function);
        let agreement = missing.map_or("bit for bit".to_owned(), |(_, why)| format!("not on a GPU: {why}"));
        page += &format!("| `{function}` | {outputs} | {agreement} | {chunks} |\n");
    }
    page
}

#[test]
fn the_parity_page_is_what_the_declarations_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/parity.md");
    let page = parity_page();
    if std::env::var_os("TRAWL_BLESS_PARITY").is_some() {
        std::fs::write(path, &page).expect("docs/parity.md");
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(written == page, "docs/parity.md is old: run this test with TRAWL_BLESS_PARITY=1 (just parity)");
}

#[test]
fn fused_kernels_of_the_whole_catalogue_have_the_bits_of_the_cpu() {
    check_catalogue(Precision::F64);
}

#[test]
fn fused_kernels_of_the_whole_catalogue_have_the_bits_of_the_cpu_in_f32() {
    check_catalogue(Precision::F32);
}

fn check_catalogue(precision: Precision) {
    let plans: Vec<(Vec<String>, Program, Sequence)> = catalogue()
        .into_iter()
        .map(|items| {
            let program = program(&items);
            let plan = Sequence::fused_in(&program, Constants::None, precision);
            let plan = plan.unwrap_or_else(|e| panic!("{items:?}: {e}"));
            (items, program, plan)
        })
        .collect();
    let kernels = plans.iter().flat_map(|(.., plan)| plan.kernels()).collect();
    let mut device = Emulator::new(&kernels);
    let mut bars = market(&ragged(), 7);
    bars.extend(golden());
    let mut wrong: BTreeMap<String, String> = BTreeMap::new();
    let (mut values, mut outputs) = (0, 0);
    // Little shared memory: most rings are in scratch memory. Order and memory differ from plan to plan.
    let small = Limits { shared_bytes: 90 * 1024, ..Limits::default() };
    for (i, (items, program, plan)) in plans.iter().enumerate() {
        device.order = order(i);
        let limits = if i % 2 == 0 { Limits::default() } else { small };
        let comparison = check(&device, program, plan, &bars, limits);
        values += comparison.values;
        outputs += items.len();
        for (output, symbol, bar, want, got) in comparison.differs {
            let difference = format!("symbol {symbol} bar {bar}: CPU {want:?}, GPU {got:?}");
            wrong.entry(items[output].clone()).or_insert(difference);
        }
    }
    assert!(wrong.is_empty(), "{} of {outputs} outputs differ: {wrong:#?}", wrong.len());
    println!("{outputs} outputs of {} functions, {values} values in {precision:?}: bit for bit", functions().count());
}

/// A number from an environment variable, for recipes with more cases than CI has.
pub(crate) fn number_in(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The order in which threads and blocks run: that of the environment, or another from plan to plan.
fn order(plan: usize) -> Order {
    match std::env::var("TRAWL_EMULATOR_ORDER").as_deref() {
        Ok("forward") => Order::Forward,
        Ok("reverse") => Order::Reverse,
        Ok("random") => Order::Random,
        _ => [Order::Random, Order::Reverse, Order::Forward][plan % 3],
    }
}

/// Random expressions, from the generators of the CPU engine's property tests.
fn random_plans(count: usize, depth: u32) -> Vec<(String, Program)> {
    let seed = number_in("TRAWL_EMULATOR_SEED").unwrap_or(0);
    let mut bytes = [0u8; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let strategy = properties::number(depth);
    (0..count)
        .map(|_| {
            let item = strategy.new_tree(&mut runner).expect("a plan").current();
            (item.clone(), program(&[item]))
        })
        .collect()
}

/// Checks random plans, each over a market of its own.
fn check_random(count: usize, depth: u32, cut: impl Fn(&Program) -> Sequence) {
    let plans: Vec<(String, Program, Sequence)> = random_plans(count, depth)
        .into_iter()
        .map(|(item, program)| {
            let plan = cut(&program);
            (item, program, plan)
        })
        .collect();
    let kernels: BTreeMap<String, String> = plans.iter().flat_map(|(.., plan)| plan.kernels()).collect();
    let mut device = Emulator::new(&kernels);
    let (mut wrong, mut values) = (Vec::new(), 0);
    for (i, (item, program, plan)) in plans.iter().enumerate() {
        device.seed = i as u64;
        device.order = order(i);
        let bars = market(&LENGTHS[i % 6..], i as u64);
        let comparison = check(&device, program, plan, &bars, Limits::default());
        values += comparison.values;
        wrong.extend(comparison.differs.first().map(|d| format!("{item}: {d:?}")));
    }
    assert!(wrong.is_empty(), "{} of {} plans differ: {wrong:#?}", wrong.len(), plans.len());
    println!("{} plans of {} kernels, {values} values: bit for bit", plans.len(), kernels.len());
}

#[test]
fn random_plans_have_the_bits_of_the_cpu_a_primitive_at_a_time() {
    let count = number_in("TRAWL_EMULATOR_PLANS").map_or(RANDOM_PLANS, |plans| plans as usize);
    check_random(count, 3, |program| Sequence::apart(program).expect("every primitive"));
}

#[test]
fn random_plans_have_the_bits_of_the_cpu_fused() {
    let count = number_in("TRAWL_EMULATOR_PLANS").map_or(RANDOM_FUSED, |plans| plans as usize / 10);
    check_random(count, 4, |program| Sequence::fused(program).expect("every primitive"));
}

#[test]
fn random_plans_have_the_bits_of_the_cpu_a_primitive_at_a_time_in_f32() {
    let count = number_in("TRAWL_EMULATOR_PLANS").map_or(RANDOM_PLANS, |plans| plans as usize);
    check_random(count, 3, |program| Sequence::apart_in(program, Precision::F32).expect("every primitive"));
}

#[test]
fn random_plans_have_the_bits_of_the_cpu_fused_in_f32() {
    let count = number_in("TRAWL_EMULATOR_PLANS").map_or(RANDOM_FUSED, |plans| plans as usize / 10);
    let fused = |program: &Program| Sequence::fused_in(program, Constants::None, Precision::F32);
    check_random(count, 4, |program| fused(program).expect("every primitive"));
}

#[test]
fn what_no_later_bar_needs_is_computed_where_values_are_wanted() {
    let text = |item: &str| -> String {
        let fused = Sequence::fused(&program(&[item.to_owned()])).expect("every primitive");
        fused.kernels().into_values().collect()
    };
    let apart = |text: &str| {
        let lines = text.lines().filter(|line| line.contains("mean_deviation(") || line.contains("if (b.wants(t)) {"));
        lines.map(|line| line.contains("b.wants(")).collect::<Vec<bool>>()
    };
    // The deviation from the mean keeps nothing: only the bars of its window are kept.
    let once = apart(&text("cci(20)"));
    assert!(!once.is_empty() && once.chunks(2).all(|lines| lines == [true, false]), "{once:?}");
    // A recursive step needs it at every bar.
    assert_eq!(apart(&text("ema(cci(20),3)")).first(), Some(&false));
}

/// Symbols whose prices are numbers of every size, sign and kind.
fn numbers_of_every_size(precision: Precision) -> Vec<Vec<Vec<f64>>> {
    const EDGES: [f64; 16] = [
        0.0,
        -0.0,
        1.0,
        -3.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MAX,
        f64::MIN_POSITIVE,
        5e-324,
        -5e-324,
        1e-45,
        1e-38,
        3e38,
        1.9e-211,
        1.8e-211,
    ];
    let mut state = 0x5eed_u64;
    let mut random = move || next_random(&mut state);
    let mut price = || match (random() % 4, precision) {
        (0, _) => EDGES[(random() >> 20) as usize % EDGES.len()],
        (1, _) => (random() % 1_000_000) as f64 / 100.0,
        (_, Precision::F64) => f64::from_bits(random()),
        (_, Precision::F32) => f64::from(f32::from_bits(random() as u32)),
    };
    (0..40).map(|_| vec![(0..150).map(|_| price()).collect::<Vec<f64>>(); COLUMNS.len()]).collect()
}

#[test]
fn divisions_by_whole_numbers_have_the_bits_of_the_cpu() {
    let items = [
        "close/3",
        "close/7",
        "close/10",
        "close/1",
        "close/1000000",
        "close/2.5",
        "cumsum(close/3)",
        "ema(close/7,3)",
    ];
    let program = program(&items.map(str::to_owned));
    for precision in Precision::ALL {
        let fused = Sequence::fused_in(&program, Constants::None, precision).expect("every primitive");
        let text: String = fused.kernels().into_values().collect();
        assert!(text.contains("divided_by_whole(") && text.contains("DividedByWhole::quotient("), "{text}");
        assert!(text.contains("step_divide("), "2.5 is no whole number: {text}");
        let device = Emulator::new(&fused.kernels());
        let comparison = check(&device, &program, &fused, &numbers_of_every_size(precision), Limits::default());
        assert!(comparison.differs.is_empty(), "{precision:?}: {:?}", comparison.differs.first());
        assert!(comparison.values > 10_000);
    }
}

#[test]
fn other_numbers_compile_nothing() {
    let shape = |items: &[&str]| {
        let items: Vec<String> = items.iter().map(|item| (*item).to_owned()).collect();
        Sequence::fused(&program(&items)).expect("every primitive").kernels()
    };
    let one = shape(&["rsi(close,14) < 30 and close > sma(close,20)", "bbands(close,20,2).upper"]);
    let other = shape(&["rsi(close,9) < 41.5 and close > sma(close,50)", "bbands(close,50,2.5).upper"]);
    assert_eq!(one, other);
    let turned = shape(&["rsi(close,14) > 30 and close > sma(close,20)", "bbands(close,20,2).upper"]);
    assert_ne!(one, turned);
}

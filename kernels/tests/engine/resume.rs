//! Resuming from a saved state gives the bits of the whole history: for every function of the catalogue, for random
//! plans, at any cut, and beside other symbols.

use proptest::prelude::*;
use trawl_kernels::{Executable, NoCancel, Precision, Resuming, State, SymbolInput};
use trawl_plan::catalogue::{ParamDefault, ParamType, functions};
use trawl_plan::graph::Kind;
use trawl_plan::{Input, Program, ScanDocument, compile_expressions, compile_scan};

use crate::calls::{INDICATORS, TRANSFORMS, WINDOWS};
use crate::fused::lowered;
use crate::properties::{bars, condition, input, number, schema};

/// Value of bars that must not be read.
const POISON: f64 = -7.25e9;

/// Helpers, groups of steps that are run together, and averages that restart with a period.
const MORE: [&str; 24] = [
    "since(close > open)",
    "valuewhen(close > open, high)",
    "iff(within(crosses_above(close, sma(close,5)), 4), 1, 0)",
    "iff(streak(close >= low, 3), 1, 0)",
    "sma(ema(sma(ema(close,5),7),9),11)",
    "max(rsi(ema(close,4),6)[31],9)",
    "maxindex(kama(close,5),17)",
    "minindex(ema(volume,3)[2],40)",
    "macd(close,12,26,9).line",
    "macd(close,12,26,9).signal",
    "macd(close,3,6,4).hist[50]",
    "adx(2)",
    "atr(1)",
    "stoch(5,3,3,slowk_matype='ema',slowd_matype='wma').d",
    "percentile(close,13,20)",
    "avwap('history')",
    "avwap('high')",
    "avwap('prev_low')",
    "avwap_bands('weekly', 5).l2",
    "mavp(close, high % 9, 1, 7, matype='dema')",
    "sarext(-48, 0, 0.1, 0.05, 0.4, 0.01, 0.02, 0.3)",
    "cmf(5)",
    "beta(close,open,9)",
    "close[40]",
];

/// Trend classifications whose lengths, windows and counted bars lie apart.
const CLASSIFICATIONS: [&str; 6] = [
    "atc()",
    "atc(close, 12, robustness='wide', cutout=50, strategy_mode=true)",
    "atc(high, 9, hma_len=16, wma_len=70, dema_len=7, lsma_len=40, kama_len=33, la=0.5, de=3, cutout=17)",
    "atc(close, 6, robustness='narrow', hma_len=90, ema_w=0.3, kama_w=4, de=100, la=-2, strategy_mode=true)",
    "atc(volume, 20, long=0.4, short=-0.3, kama_len=120, la=4, cutout=130)",
    "atc(close[11], 10, ema_len=60, robustness='wide', lsma_len=8, cutout=1)",
];

const CLASSIFIED: [&str; 14] = [
    "signal",
    "trend",
    "ema",
    "hma",
    "wma",
    "dema",
    "lsma",
    "kama",
    "ema_equity",
    "hma_equity",
    "wma_equity",
    "dema_equity",
    "lsma_equity",
    "kama_equity",
];

/// Each classification with all outputs: over whole series, and as in scans.
pub fn classifications() -> Vec<(&'static str, Program)> {
    let compiled = |call: &&'static str| {
        let items: Vec<String> = CLASSIFIED.iter().map(|output| format!("{call}.{output}")).collect();
        let document =
            ScanDocument { condition: "close > 1".to_owned(), select: items.clone(), ..ScanDocument::default() };
        let scan = compile_scan(&document, &schema()).unwrap_or_else(|all| panic!("{}", all[0]));
        [(*call, program(&items)), (*call, scan.program().clone())]
    };
    CLASSIFICATIONS.iter().flat_map(compiled).collect()
}

/// Every output of a call of every function with its defaults, each choice of it, and more.
pub fn catalogue() -> Vec<String> {
    let mut calls: Vec<String> = MORE.iter().chain(&INDICATORS).map(|call| (*call).to_owned()).collect();
    calls.extend(WINDOWS.map(|f| format!("{f}(close, 7)")));
    calls.extend(TRANSFORMS.map(|f| format!("{f}(close)")));
    for function in functions() {
        let series = function.series.iter().filter(|s| s.default.is_none()).map(|s| match s.kind {
            Kind::Num => format!("{}=close", s.name),
            Kind::Bool => format!("{}=(close > open)", s.name),
        });
        let required = function.params.iter().filter(|p| p.default == ParamDefault::Required);
        let given: Vec<String> = series.chain(required.map(|p| format!("{}=3", p.name))).collect();
        let mut variants = vec![given.clone()];
        for param in function.params {
            if let ParamType::Choice(words) = param.kind {
                let with = |word: &&str| [given.clone(), vec![format!("{}='{word}'", param.name)]].concat();
                variants.extend(words.iter().map(with));
            }
        }
        for output in function.outputs {
            let field = if function.outputs.len() > 1 { format!(".{}", output.name) } else { String::new() };
            for given in &variants {
                let call = format!("{}({}){field}", function.name, given.join(", "));
                calls.push(if output.kind == Kind::Bool { format!("iff({call}, 1, 0)") } else { call });
            }
        }
    }
    calls
}

pub fn program(items: &[String]) -> Program {
    let named: Vec<String> = items.iter().enumerate().map(|(i, item)| format!("{item} as o{i}")).collect();
    let plan = compile_expressions(&named, "test", &schema());
    plan.unwrap_or_else(|all| panic!("{}", all[0])).program().clone()
}

pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % below.max(1)
    }
}

/// Ragged symbols with gaps and zero volume.
pub fn market(symbols: usize, longest: usize, random: &mut Random) -> Vec<Vec<Vec<f64>>> {
    let mut symbol = |i: usize| {
        let mut columns = vec![Vec::new(); 5];
        let mut cents = 5_000;
        for _ in 0..(longest - i * longest / (symbols + 2)).max(1) {
            let open = cents;
            cents = (cents + random.below(201)).saturating_sub(100).max(50);
            let volume = if random.below(9) == 0 { 0 } else { random.below(100_000) };
            let row = [open, open.max(cents) + random.below(60), open.min(cents) - random.below(40), cents, volume];
            for (column, value) in columns.iter_mut().zip(row) {
                column.push(if i % 3 == 1 && random.below(70) == 0 { f64::NAN } else { value as f64 / 100.0 });
            }
        }
        columns
    };
    (0..symbols).map(&mut symbol).collect()
}

fn bits(x: f64) -> u64 {
    if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() }
}

/// Runs the symbols in parts, each part from the state of the one before, in an order and among symbols that change
/// from part to part. Returns symbol, output and bar that differ from the whole history, if any.
fn differs_in_parts(
    precision: Precision,
    program: &Program,
    market: &[Vec<Vec<f64>>],
    random: &mut Random,
) -> Option<(usize, usize, usize)> {
    let executable = Executable::new(program, precision);
    let symbols = market.len();
    let last: Vec<usize> = market.iter().map(|bars| bars[0].len()).collect();
    let whole: Vec<Vec<Vec<f64>>> = market
        .iter()
        .zip(&last)
        .map(|(bars, visible)| {
            let one = input(program, bars, *visible);
            executable.evaluate_from(&[one], &[0], &NoCancel).expect("not cancelled").nested().remove(0)
        })
        .collect();
    let mut states: Vec<Option<State>> = vec![None; symbols];
    for part in 1..=4 {
        // Some symbols keep their states for later.
        let mut order: Vec<usize> = (0..symbols).filter(|_| part == 4 || random.below(5) > 0).collect();
        (0..order.len()).for_each(|i| order.swap(i, random.below(symbols).min(i)));
        let mut poisoned: Vec<Vec<Vec<f64>>> = Vec::new();
        let mut bounds: Vec<[usize; 3]> = Vec::new();
        for &i in &order {
            let begun = states[i].as_ref().map_or(0, |state| state.bars);
            let visible = if part == 4 { last[i] } else { (begun + random.below(last[i] - begun) + 1).min(last[i]) };
            let save = begun + random.below(visible - begun + 1);
            bounds.push([visible, begun + random.below(visible - begun + 1), save]);
            let whole = input(program, &market[i], last[i]);
            let mut columns: Vec<Vec<f64>> = whole.columns.iter().map(|column| column[..visible].to_vec()).collect();
            if states[i].is_some() {
                for (column, begin) in columns.iter_mut().zip(executable.resumed_begins(begun)) {
                    column[..begin.min(visible)].fill(POISON);
                }
            }
            poisoned.push(columns);
        }
        let resuming: Vec<Resuming<'_>> = order
            .iter()
            .zip(&poisoned)
            .zip(&bounds)
            .map(|((&i, columns), [visible, from, save])| Resuming {
                input: SymbolInput { columns: columns.iter().map(Vec::as_slice).collect(), visible: *visible },
                from: *from,
                state: states[i].as_ref(),
                save: Some(*save),
            })
            .collect();
        let results = executable.evaluate_resuming(&resuming, &NoCancel).expect("not cancelled");
        for ((&i, result), [visible, from, save]) in order.iter().zip(results).zip(&bounds) {
            assert_eq!(result.resumed, states[i].is_some(), "the state of symbol {i} was taken");
            for (output, series) in result.series.iter().enumerate() {
                assert_eq!(series.len(), visible - from);
                let expected = &whole[i][output][*from..*visible];
                if let Some(at) = series.iter().zip(expected).position(|(a, b)| bits(*a) != bits(*b)) {
                    return Some((i, output, from + at));
                }
            }
            let state = result.state.expect("was asked for");
            assert_eq!(state.bars, *save);
            states[i] = Some(state);
        }
    }
    None
}

#[test]
fn every_function_goes_on_with_the_bits_of_the_whole_history() {
    let calls = catalogue();
    assert!(calls.len() > 250, "{}", calls.len());
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut carrying = 0;
    for items in calls.chunks(12) {
        let program = program(items);
        carrying += usize::from(!lowered(&program).carried_layout().is_empty());
        for (precision, symbols) in Precision::ALL.into_iter().flat_map(|p| [(p, 3), (p, 19)]) {
            let market = market(symbols, 330, &mut random);
            let differs = differs_in_parts(precision, &program, &market, &mut random);
            assert_eq!(differs.map(|(symbol, output, bar)| (precision, symbol, &items[output], bar)), None);
        }
    }
    assert!(carrying > 8, "{carrying}");
}

#[test]
fn classifications_go_on_with_the_bits_of_the_whole_history() {
    let mut random = Random(0x5851_f42d_4c95_7f2d);
    for (call, program) in classifications() {
        for precision in Precision::ALL {
            for symbols in [1, 3, 19, 40] {
                let market = market(symbols, 460, &mut random);
                let differs = differs_in_parts(precision, &program, &market, &mut random);
                assert_eq!(differs, None, "{call} {precision:?}");
            }
        }
    }
}

#[test]
fn a_state_that_does_not_fit_is_not_taken() {
    let program = program(&["ema(close, 5)".to_owned(), "rsi(close, 7)".to_owned()]);
    let executable = lowered(&program);
    let bars = market(1, 90, &mut Random(3)).remove(0);
    let run = |from, state: Option<&State>, save| {
        let one = Resuming { input: input(&program, &bars, bars[0].len()), from, state, save };
        executable.evaluate_resuming(&[one], &NoCancel).expect("not cancelled").remove(0)
    };
    let whole = run(40, None, Some(30));
    let state = whole.state.clone().expect("was asked for");
    assert!(run(40, Some(&state), None).resumed);
    let short = State { words: state.words[1..].to_vec(), ..state.clone() };
    let late = State { bars: 41, ..state.clone() };
    for (state, save) in [(&short, None), (&late, None), (&state, Some(29))] {
        let result = run(40, Some(state), save);
        assert!(!result.resumed);
        let same = |(a, b): (&Vec<f64>, &Vec<f64>)| a.iter().zip(b).all(|(a, b)| bits(*a) == bits(*b));
        assert!(result.series.iter().zip(&whole.series).all(same));
    }
}

#[test]
fn words_of_any_value_are_taken_without_a_panic() {
    let mut random = Random(17);
    let market = market(2, 120, &mut random);
    let programs = catalogue().chunks(40).map(program).collect::<Vec<_>>();
    for program in programs.into_iter().chain(classifications().into_iter().map(|(_, program)| program)) {
        let executable = lowered(&program);
        let run = |state: Option<&State>| {
            let one = Resuming { input: input(&program, &market[0], 120), from: 60, state, save: Some(60) };
            executable.evaluate_resuming(&[one], &NoCancel).expect("not cancelled").remove(0)
        };
        let saved = run(None).state;
        let mut state = saved.expect("was asked for");
        for word in [u64::MAX, 1 << 63, 1, 0x7fef_ffff_ffff_ffff, u64::from(u32::MAX), 0] {
            state.words.fill(word);
            assert!(run(Some(&state)).resumed);
        }
    }
}

#[test]
fn inputs_enter_states_through_recursive_steps_alone() {
    let enters = |items: &[&str]| {
        let items: Vec<String> = items.iter().map(|item| (*item).to_owned()).collect();
        let executable = lowered(&program(&items));
        let names = executable.inputs.iter().zip(executable.carried_inputs()).filter(|(_, enters)| **enters);
        let mut names: Vec<String> = names
            .map(|(input, _)| match input {
                Input::Column(name) => name.clone(),
                other => format!("{other:?}"),
            })
            .collect();
        names.sort_unstable();
        names
    };
    assert_eq!(enters(&["sma(close, 5)", "max(high, 9)"]), Vec::<String>::new());
    assert_eq!(enters(&["ema(sma(close, 5), 3) + open", "max(high, 9)"]), ["close"]);
    assert_eq!(enters(&["max(ema(volume, 3), 9)", "atr(3)"]), ["close", "high", "low", "volume"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]

    #[test]
    fn random_plans_go_on_with_the_bits_of_the_whole_history(
        where_ in condition(3),
        value in number(3),
        market in prop::collection::vec(bars(500), 1..20),
        seed in any::<u64>(),
    ) {
        let document = ScanDocument { condition: where_, rank: Some(value.clone()), select: vec![value], ..ScanDocument::default() };
        let plan = compile_scan(&document, &schema()).map_err(|d| TestCaseError::fail(d[0].to_string()))?;
        for precision in Precision::ALL {
            prop_assert_eq!(differs_in_parts(precision, plan.program(), &market, &mut Random(seed | 1)), None);
        }
    }
}

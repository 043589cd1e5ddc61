//! Laws of scale: all prices, or all volumes, times a power of two scale every output by a power of it, bit for bit.
//! Every function is held to what its declaration says.

use std::collections::{BTreeMap, BTreeSet};

use trawl_kernels::{NoCancel, SymbolInput, evaluate_all};
use trawl_plan::catalogue::{Function, OutputDecl, ParamDefault, Scaling, functions};
use trawl_plan::graph::Kind;
use trawl_plan::{Input, Schema, compile_expressions};

use crate::fused::clock;

const COLUMNS: [&str; 5] = ["open", "high", "low", "close", "volume"];
const BARS: usize = 700;
/// Even, so that a root scales exactly too.
const EXPONENTS: [i32; 4] = [-80, -6, 4, 80];

/// Walks on a cent grid with flat stretches and bars without volume.
fn bars(symbol: u64) -> Vec<Vec<f64>> {
    let mut state = 0x5ca1e ^ symbol.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 11) % below) as i64
    };
    let mut columns = vec![Vec::new(); COLUMNS.len()];
    let mut cents = 3_000 + random(20_000);
    let mut still = 0;
    for _ in 0..BARS {
        still = if still > 0 {
            still - 1
        } else if random(40) == 0 {
            random(25)
        } else {
            0
        };
        let open = cents + if still > 0 { 0 } else { random(7) - 3 };
        cents = (cents + if still > 0 { 0 } else { random(201) - 100 }).max(500);
        let (up, down) = if still > 0 { (0, 0) } else { (random(60), random(60)) };
        let volume = if random(12) == 0 { 0 } else { random(900_000) * 100 };
        let row = [open, open.max(cents) + up, open.min(cents) - down, cents, volume];
        columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value as f64 / 100.0));
    }
    columns
}

/// A call with every argument's default, and something for those that must be given.
fn call(function: &Function) -> String {
    let mut numbers = ["close", "high", "low"].into_iter().cycle();
    let mut given: Vec<String> = Vec::new();
    for series in function.series.iter().filter(|s| s.default.is_none()) {
        let value = match (series.name, series.kind) {
            (_, Kind::Bool) => "close > open",
            ("periods", _) => "iff(close > open, 5, 9)",
            ("low", _) => "low + 0.25 * (high - low)",
            ("high", _) => "high - 0.25 * (high - low)",
            _ => numbers.next().expect("endless"),
        };
        given.push(format!("{}={value}", series.name));
    }
    let required = function.params.iter().filter(|p| p.default == ParamDefault::Required);
    given.extend(required.map(|p| format!("{}=7", p.name)));
    format!("{}({})", function.name, given.join(", "))
}

/// Every output of the catalogue.
fn outputs(bars: &[Vec<f64>]) -> Vec<(&'static Function, &'static OutputDecl, Vec<f64>)> {
    let schema = Schema::of_columns(COLUMNS.map(str::to_owned).to_vec());
    let begins: Vec<f64> = (0..BARS).map(|t| f64::from(u8::from(t % 11 == 0))).collect();
    let mut found = Vec::new();
    for function in functions() {
        let field = |name: &str| if function.outputs.len() > 1 { format!(".{name}") } else { String::new() };
        let item = |o: &OutputDecl| format!("{}{}", call(function), field(o.name));
        let items: Vec<String> = function.outputs.iter().map(item).collect();
        let plan = compile_expressions(&items, "test", &schema).unwrap_or_else(|d| panic!("{items:?}: {}", d[0]));
        let program = plan.program();
        let column = |input: &Input| match input {
            Input::Column(name) => bars[COLUMNS.iter().position(|c| c == name).expect("a column")].as_slice(),
            Input::Begins(_) => begins.as_slice(),
            Input::Clock(of) => clock(*of, BARS),
            other => panic!("{other:?} in a bare expression"),
        };
        let input = SymbolInput { columns: program.inputs.iter().map(column).collect(), visible: BARS };
        let series = evaluate_all(program, &input, &NoCancel).expect("not cancelled");
        found.extend(function.outputs.iter().zip(series).map(|(o, s)| (function, o, s)));
    }
    found
}

/// `x` times 2 to the power of `exponent`, which is whole.
fn scaled(x: f64, exponent: f64) -> f64 {
    x * exponent.exp2()
}

#[test]
fn outputs_scale_with_prices_and_volumes_bit_for_bit() {
    let mut wrong: BTreeMap<String, String> = BTreeMap::new();
    let is_lawless = |f: &&Function| matches!(f.scaling, Scaling::Lawless(_));
    let mut lawful: Vec<&str> = functions().filter(is_lawless).map(|f| f.name).collect();
    let mut floored: BTreeSet<&str> = BTreeSet::new();
    let mut defined: BTreeMap<&str, usize> = BTreeMap::new();
    for symbol in 0..4 {
        let plain_bars = bars(symbol);
        let plain = outputs(&plain_bars);
        for (function, _, series) in &plain {
            *defined.entry(function.name).or_default() += series.iter().filter(|x| x.is_finite()).count();
        }
        for exponent in EXPONENTS {
            for volumes in [false, true] {
                let changes = |c: usize| (COLUMNS[c] == "volume") == volumes;
                let scale = |(c, column): (usize, &Vec<f64>)| {
                    let by = if changes(c) { f64::from(exponent) } else { 0.0 };
                    column.iter().map(|x| scaled(*x, by)).collect::<Vec<f64>>()
                };
                let moved_bars: Vec<Vec<f64>> = plain_bars.iter().enumerate().map(scale).collect();
                for ((function, output, before), (.., after)) in plain.iter().zip(outputs(&moved_bars)) {
                    let Scaling::Powers { prices: price, volumes: volume } = function.scaling else {
                        let same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits();
                        if !volumes && !before.iter().zip(&after).all(same) {
                            lawful.retain(|lawful| *lawful != function.name);
                        }
                        continue;
                    };
                    let power = match (output.pure, volumes) {
                        (true, _) => 0.0,
                        (false, true) => volume,
                        (false, false) => price,
                    };
                    let differs = (0..BARS).find(|t| {
                        let want = scaled(before[*t], power * f64::from(exponent));
                        want.to_bits() != after[*t].to_bits() && !(want.is_nan() && after[*t].is_nan())
                    });
                    if function.scales_from.is_some_and(|(least, _)| exponent < least) {
                        floored.extend(differs.map(|_| function.name));
                    } else if let Some(t) = differs {
                        let what = if volumes { "volumes" } else { "prices" };
                        let difference =
                            format!("{what} times 2^{exponent}, bar {t}: {:?} became {:?}", before[t], after[t]);
                        wrong.entry(format!("{}.{}", function.name, output.name)).or_insert(difference);
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(lawful.is_empty(), "these do not change with prices at all: {lawful:?}");
    let limited = functions().filter(|f| f.scales_from.is_some()).map(|f| f.name);
    assert_eq!(limited.collect::<BTreeSet<_>>(), floored, "these stop scaling");
    // `acos` and `asin` have no value at any price.
    let empty: Vec<&&str> =
        defined.iter().filter(|(name, n)| **n == 0 && !["acos", "asin"].contains(name)).map(|d| d.0).collect();
    assert!(empty.is_empty(), "no value at all: {empty:?}");
}

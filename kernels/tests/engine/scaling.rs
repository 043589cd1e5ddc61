//! Laws of scale: all prices, or all volumes, times a power of two scale every output by a power of it, bit for bit.
//! Every function of the catalogue is in one of the lists here.

use std::collections::{BTreeMap, BTreeSet};

use trawl_kernels::{NoCancel, SymbolInput, evaluate_all};
use trawl_plan::catalogue::{Function, ParamDefault, functions};
use trawl_plan::graph::Kind;
use trawl_plan::{Input, Schema, compile_expressions};

const COLUMNS: [&str; 5] = ["open", "high", "low", "close", "volume"];
const BARS: usize = 700;
/// Even, so that a root scales exactly too.
const EXPONENTS: [i32; 4] = [-80, -6, 4, 80];

/// Powers of the prices' and of the volumes' factor, and the functions whose outputs scale by them.
const LAWS: &[(f64, f64, &str)] = &[
    (
        1.0,
        0.0,
        "accbands bbands dema donchian ema hma ht_trendline kama kc ma mama mavp midpoint midprice rma sar sarext \
         sma supertrend t3 tema trima vwma wma zlema ac ao apo dpo eri macd macdext macdfix minus_dm plus_dm mom \
         qstick wad adr atr trange avwap avwap_bands vwap ht_phasor avgdev avgprice ha medprice typprice wclprice \
         linearreg linearreg_intercept linearreg_slope tsf stddev percentile add sub cumsum max min minmax sum \
         abs clamp highest lowest maximum minimum iff nz valuewhen",
    ),
    (
        0.0,
        0.0,
        "adx adxr aroon aroonosc bop cci cmo cmou coppock dx er fosc fractal imi kdj mfi minus_di plus_di ppo roc \
         rocp rocr rocr100 rsi smi stoch stochf stochrsi trix tsi ultosc vhf vortex willr cvi massi natr rvi cmf \
         nvi pvi pvo rvol ht_dcperiod ht_dcphase ht_sine ht_trendmode beta correl percentrank div maxindex \
         minindex minmaxindex count crosses_above crosses_below since streak within highestbars lowestbars sign \
         zscore atc",
    ),
    (2.0, 0.0, "var mult"),
    (0.5, 0.0, "sqrt"),
    (0.0, 1.0, "ad adosc obv pvt"),
    (1.0, 1.0, "efi"),
    (1.0, -1.0, "marketfi"),
];

/// Outputs that scale otherwise than their function's others.
const OUTPUTS: [(&str, &str, f64); 1] = [("supertrend", "trend", 0.0)];

/// Candle patterns compare parts of candles with averages of such parts.
const PATTERNS: &str = "cdl";

/// Functions that have no such law, and why.
const LAWLESS: &[(&str, &str)] = &[
    ("acos", "of a pure number"),
    ("asin", "of a pure number"),
    ("atan", "of a pure number"),
    ("cos", "of a pure number"),
    ("cosh", "of a pure number"),
    ("exp", "of a pure number"),
    ("ln", "a factor becomes a term"),
    ("log", "a factor becomes a term"),
    ("log10", "a factor becomes a term"),
    ("pow", "of a pure number"),
    ("sin", "of a pure number"),
    ("sinh", "of a pure number"),
    ("tan", "of a pure number"),
    ("tanh", "of a pure number"),
    ("ceil", "whole numbers are spaced absolutely"),
    ("floor", "whole numbers are spaced absolutely"),
    ("round", "whole numbers are spaced absolutely"),
    ("linearreg_angle", "the angle of a slope in price a bar"),
];

/// Functions that scale down to some smallest exponent only, and why.
const DOWN_TO: &[(&str, i32, &str)] = &[
    ("accbands", -6, "as TA-Lib, 0 for a ratio whose divisor is below 1e-14"),
    ("ppo", -6, "as TA-Lib, 0 for a ratio whose divisor is below 1e-14"),
    ("pvo", -6, "as TA-Lib, 0 for a ratio whose divisor is below 1e-14"),
];

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

/// Every output of the catalogue: function, output, series.
fn outputs(bars: &[Vec<f64>]) -> Vec<(&'static str, &'static str, Vec<f64>)> {
    let schema = Schema::of_columns(COLUMNS.map(str::to_owned).to_vec());
    let begins: Vec<f64> = (0..BARS).map(|t| f64::from(u8::from(t % 11 == 0))).collect();
    let mut found = Vec::new();
    for function in functions() {
        let field = |name: &str| if function.outputs.len() > 1 { format!(".{name}") } else { String::new() };
        let item = |o: &trawl_plan::catalogue::OutputDecl| format!("{}{}", call(function), field(o.name));
        let items: Vec<String> = function.outputs.iter().map(item).collect();
        let plan = compile_expressions(&items, "test", &schema).unwrap_or_else(|d| panic!("{items:?}: {}", d[0]));
        let program = plan.program();
        let column = |input: &Input| match input {
            Input::Column(name) => bars[COLUMNS.iter().position(|c| c == name).expect("a column")].as_slice(),
            Input::Begins(_) => begins.as_slice(),
            other => panic!("{other:?} in a bare expression"),
        };
        let input = SymbolInput { columns: program.inputs.iter().map(column).collect(), visible: BARS };
        let series = evaluate_all(program, &input, &NoCancel).expect("not cancelled");
        found.extend(function.outputs.iter().zip(series).map(|(o, s)| (function.name, o.name, s)));
    }
    found
}

/// Per function the powers of the prices' and the volumes' factor; `None` for those without a law.
fn laws() -> BTreeMap<&'static str, Option<(f64, f64)>> {
    let mut laws = BTreeMap::new();
    let listed = LAWS
        .iter()
        .flat_map(|(price, volume, names)| names.split_whitespace().map(|name| (name, Some((*price, *volume)))));
    let patterns = functions().filter(|f| f.name.starts_with(PATTERNS)).map(|f| (f.name, Some((0.0, 0.0))));
    for (name, law) in listed.chain(patterns).chain(LAWLESS.iter().map(|(name, _)| (*name, None))) {
        assert!(laws.insert(name, law).is_none(), "{name} is listed twice");
        assert!(functions().any(|f| f.name == name), "{name} is no function");
    }
    laws
}

/// `x` times 2 to the power of `exponent`, which is whole.
fn scaled(x: f64, exponent: f64) -> f64 {
    x * exponent.exp2()
}

#[test]
fn every_function_is_in_one_of_the_lists() {
    let laws = laws();
    let missing: Vec<&str> = functions().map(|f| f.name).filter(|name| !laws.contains_key(name)).collect();
    assert!(missing.is_empty(), "say how these scale: {missing:?}");
}

#[test]
fn outputs_scale_with_prices_and_volumes_bit_for_bit() {
    let laws = laws();
    let mut wrong: BTreeMap<String, String> = BTreeMap::new();
    let mut lawful: Vec<&str> = LAWLESS.iter().map(|(name, _)| *name).collect();
    let mut floored: BTreeSet<&str> = BTreeSet::new();
    let mut defined: BTreeMap<&str, usize> = BTreeMap::new();
    for symbol in 0..4 {
        let plain_bars = bars(symbol);
        let plain = outputs(&plain_bars);
        for (name, _, series) in &plain {
            *defined.entry(name).or_default() += series.iter().filter(|x| x.is_finite()).count();
        }
        for exponent in EXPONENTS {
            for volumes in [false, true] {
                let changes = |c: usize| (COLUMNS[c] == "volume") == volumes;
                let scale = |(c, column): (usize, &Vec<f64>)| {
                    let by = if changes(c) { f64::from(exponent) } else { 0.0 };
                    column.iter().map(|x| scaled(*x, by)).collect::<Vec<f64>>()
                };
                let moved_bars: Vec<Vec<f64>> = plain_bars.iter().enumerate().map(scale).collect();
                for ((name, output, before), (.., after)) in plain.iter().zip(outputs(&moved_bars)) {
                    let Some((price, volume)) = laws[name] else {
                        let same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits();
                        if !volumes && !before.iter().zip(&after).all(same) {
                            lawful.retain(|lawful| lawful != name);
                        }
                        continue;
                    };
                    let own = OUTPUTS.iter().find(|o| (o.0, o.1) == (*name, *output)).map(|o| o.2);
                    let power = if volumes { volume } else { own.unwrap_or(price) };
                    let differs = (0..BARS).find(|t| {
                        let want = scaled(before[*t], power * f64::from(exponent));
                        want.to_bits() != after[*t].to_bits() && !(want.is_nan() && after[*t].is_nan())
                    });
                    if DOWN_TO.iter().any(|(floored, least, _)| floored == name && exponent < *least) {
                        floored.extend(differs.map(|_| *name));
                    } else if let Some(t) = differs {
                        let what = if volumes { "volumes" } else { "prices" };
                        let told = format!("{what} times 2^{exponent}, bar {t}: {:?} became {:?}", before[t], after[t]);
                        wrong.entry(format!("{name}.{output}")).or_insert(told);
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(lawful.is_empty(), "these do not change with prices at all: {lawful:?}");
    assert!(DOWN_TO.iter().all(|d| floored.contains(d.0)), "only these stop scaling: {floored:?}");
    // `acos` and `asin` have no value at any price.
    let empty: Vec<&&str> =
        defined.iter().filter(|(name, n)| **n == 0 && !["acos", "asin"].contains(name)).map(|d| d.0).collect();
    assert!(empty.is_empty(), "no value at all: {empty:?}");
}

//! Random plans over random, ragged, gappy bars: the engine against the oracle, and against itself.

use std::sync::LazyLock;

use proptest::prelude::*;
use trawl_kernels::{Executable, NoCancel, Precision, SymbolInput, WORKSPACE_BYTES_MAX, evaluate_all, evaluate_last};
use trawl_plan::catalogue::functions;
use trawl_plan::graph::{Kind, NodeId, Op};
use trawl_plan::{Input, Program, ScanDocument, Schema, compile_expressions, compile_scan};

use crate::calls::{INDICATORS, TRANSFORMS, WINDOWS};
use crate::fused::{clock, lowered};
use crate::oracle;

const COLUMNS: [&str; 5] = ["open", "high", "low", "close", "volume"];

pub fn schema() -> Schema {
    let attributes = crate::fused::ATTRIBUTES.map(|(name, kind)| (name.to_owned(), kind));
    Schema { attributes: attributes.into(), ..Schema::of_columns(COLUMNS.map(str::to_owned).to_vec()) }
}

/// A numeric expression of at most `depth` levels.
pub fn number(depth: u32) -> BoxedStrategy<String> {
    let column = prop::sample::select(vec!["open", "high", "low", "close", "volume", "hl2", "hlc3", "ohlc4"]);
    let leaf = prop_oneof![
        4 => column.prop_map(str::to_owned),
        1 => (0u32..2000).prop_map(|n| format!("{}", f64::from(n) / 10.0)),
    ];
    if depth == 0 {
        return leaf.boxed();
    }
    let sub = move || number(depth - 1);
    let period = || prop_oneof![3 => 2u32..25, 1 => 25u32..320];
    prop_oneof![
        1 => leaf,
        3 => (sub(), prop::sample::select(vec!["+", "-", "*", "/", "%"]), sub())
            .prop_map(|(a, op, b)| format!("({a} {op} {b})")),
        1 => (prop::sample::select(vec!["-", "abs", "sqrt", "log", "sign", "round"]), sub())
            .prop_map(|(f, a)| format!("{f}({a})")),
        1 => (prop::sample::select(vec!["maximum", "minimum"]), sub(), sub()).prop_map(|(f, a, b)| format!("{f}({a}, {b})")),
        4 => (prop::sample::select(vec!["sma", "ema", "wma", "rsi", "kama", "max", "min", "roc", "stddev"]), sub(), period())
            .prop_map(|(f, a, p)| format!("{f}(real={a}, timeperiod={p})")),
        2 => (prop::sample::select(vec!["atr", "adx", "cci", "mfi"]), period()).prop_map(|(f, p)| format!("{f}({p})")),
        1 => prop::sample::select(vec![
            "obv()", "vwap()", "macd().hist", "macd(close,5,9,4).line", "stoch(14,3,3).k",
            "stoch(5,3,4,slowk_matype='ema',slowd_matype=2).d", "bbands(close,20,2).upper", "bbands(10,1.5,2.5,matype='wma').lower",
            "donchian(20).middle",
        ]).prop_map(str::to_owned),
        2 => talib(sub(), period()),
        1 => prop::sample::select(patterns()),
        2 => (sub(), 0u32..70).prop_map(|(a, n)| format!("({a})[{n}]")),
        1 => (condition(depth - 1), 1u32..30).prop_map(|(c, n)| format!("count({c}, {n})")),
        1 => condition(depth - 1).prop_map(|c| format!("since({c})")),
        1 => (condition(depth - 1), sub()).prop_map(|(c, x)| format!("valuewhen({c}, {x})")),
        1 => (condition(depth - 1), sub(), sub()).prop_map(|(c, a, b)| format!("iff({c}, {a}, {b})")),
        1 => (sub(), 2u32..40).prop_map(|(a, n)| format!("zscore(x={a}, n={n})")),
        1 => (prop::sample::select(vec!["highestbars", "lowestbars"]), sub(), 1u32..40)
            .prop_map(|(f, a, n)| format!("{f}(x={a}, n={n})")),
        1 => (prop::sample::select(vec!["correl", "beta"]), sub(), sub(), 2u32..40)
            .prop_map(|(f, a, b, n)| format!("{f}(real0={a}, real1={b}, timeperiod={n})")),
        2 => (prop::sample::select(WINDOWS.to_vec()), sub(), period())
            .prop_map(|(f, a, p)| format!("{f}(real={a}, timeperiod={p})")),
        1 => (prop::sample::select(TRANSFORMS.to_vec()), sub()).prop_map(|(f, a)| format!("{f}(real={a})")),
        2 => prop::sample::select(INDICATORS.to_vec()).prop_map(str::to_owned),
        1 => (sub(), 0u32..9).prop_map(|(a, n)| format!("nz(({a})[1], {n})")),
        1 => (prop::sample::select(vec!["highest", "lowest"]), sub(), 1u32..60).prop_map(|(f, a, n)| format!("{f}(x={a}, n={n})")),
    ]
    .boxed()
}

/// Averages, cycles, stops and volatility.
fn talib(x: BoxedStrategy<String>, period: impl Strategy<Value = u32> + 'static) -> BoxedStrategy<String> {
    let averages = vec!["dema", "tema", "trima", "hma", "zlema", "rma", "t3", "vwma", "midpoint", "avgdev", "rvi"];
    let cycles = vec![
        "ht_dcperiod(X)",
        "ht_dcphase(X)",
        "ht_phasor(X).inphase",
        "ht_phasor(X).quadrature",
        "ht_sine(X).sine",
        "ht_sine(X).lead",
        "ht_trendmode(X)",
        "ht_trendline(X)",
        "mama(X).mama",
        "mama(X, 0.3, 0.2).fama",
        "ma(X, 9, matype='mama')",
        "mavp(X, close % 12)",
        "mavp(X, high % 9, 1, 7, matype='dema')",
    ];
    let bars = vec![
        "sar()",
        "sar(0.3, 0.25)",
        "sarext(offsetonreverse=0.01)",
        "sarext(-48, 0, 0.1, 0.05, 0.4, 0.01, 0.02, 0.3)",
        "sar(hlc3, close)",
        "supertrend(4, 1).line",
        "supertrend(3, 0.5).trend",
        "supertrend(close, open, hl2, 2, 0).line",
        "ha().open",
        "ha().low",
        "ha().high",
        "accbands(6).upper",
        "kc(5, 9).middle",
        "kc(9, 3, 1.5).lower",
        "midprice(7)",
        "adr(4)",
        "cvi(4, 3)",
        "massi(4, 6)",
        "natr(1)",
        "natr(6)",
        "trange()",
        "avgprice()",
        "wclprice()",
    ];
    prop_oneof![
        2 => (prop::sample::select(averages), x.clone(), period)
            .prop_map(|(f, x, p)| format!("{f}(real={x}, timeperiod={p})")),
        // The phase of a constant price is determined by rounding errors of its sums: see EDGE_FLAT's golden vectors.
        3 => (prop::sample::select(cycles), x).prop_map(|(f, x)| f.replace('X', &format!("({x}) + close"))),
        3 => prop::sample::select(bars).prop_map(str::to_owned),
    ]
    .boxed()
}

/// Calls of every candle pattern.
fn patterns() -> Vec<String> {
    functions().filter(|f| f.name.starts_with("cdl")).map(|f| format!("{}()", f.name)).collect()
}

/// A condition of at most `depth` levels.
pub fn condition(depth: u32) -> BoxedStrategy<String> {
    let compare =
        (number(depth.min(1)), prop::sample::select(vec!["<", "<=", ">", ">=", "==", "!="]), number(depth.min(1)))
            .prop_map(|(a, op, b)| format!("({a} {op} {b})"));
    if depth == 0 {
        return compare.boxed();
    }
    let sub = move || condition(depth - 1);
    prop_oneof![
        3 => compare,
        2 => (sub(), prop::sample::select(vec!["and", "or"]), sub()).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
        1 => sub().prop_map(|a| format!("(not {a})")),
        1 => (number(depth - 1), number(depth - 1), prop::bool::ANY)
            .prop_map(|(a, b, up)| format!("crosses_{}({a}, {b})", if up { "above" } else { "below" })),
        1 => (prop::sample::select(vec!["within", "streak"]), sub(), 1u32..40).prop_map(|(f, c, n)| format!("{f}({c}, {n})")),
        1 => (sub(), 0u32..5).prop_map(|(c, n)| format!("({c})[{n}]")),
    ]
    .boxed()
}

/// One symbol's five columns: walks on a cent grid with flat stretches, gaps of NA, zero volume.
pub fn bars(most: usize) -> impl Strategy<Value = Vec<Vec<f64>>> {
    (1..most, any::<u64>(), 0u32..4).prop_map(|(n, seed, dirt)| {
        let mut state = seed | 1;
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % below
        };
        let mut columns: Vec<Vec<f64>> = vec![Vec::new(); 5];
        let mut cents = 5_000i64;
        for _ in 0..n {
            let flat = random(5) == 0;
            let open = cents;
            cents = (cents + if flat { 0 } else { random(201) as i64 - 100 }).max(50);
            let (up, down) = if flat { (0, 0) } else { (random(60) as i64, random(40) as i64) };
            let high = open.max(cents) + up;
            let low = (open.min(cents) - down).max(1);
            let volume = if random(12) == 0 { 0.0 } else { random(100_000) as f64 };
            let row = [open as f64 / 100.0, high as f64 / 100.0, low as f64 / 100.0, cents as f64 / 100.0, volume];
            for (column, value) in columns.iter_mut().zip(row) {
                let gap = dirt > 1 && random(60) == 0;
                column.push(if gap { f64::NAN } else { value });
            }
            if dirt == 3 && random(150) == 0 {
                columns.iter_mut().for_each(|c| *c.last_mut().expect("a bar") = f64::NAN);
            }
        }
        columns
    })
}

/// Where periods begin: every eleventh bar.
static BEGINS: LazyLock<Vec<f64>> = LazyLock::new(|| (0..5_000).map(|t| f64::from(u8::from(t % 11 == 0))).collect());

pub fn input<'a>(program: &Program, bars: &'a [Vec<f64>], visible: usize) -> SymbolInput<'a> {
    let column = |name: &String| COLUMNS.iter().position(|c| c == name).expect("a known column");
    let series = |input: &Input| match input {
        Input::Column(name) => bars[column(name)].as_slice(),
        Input::Begins(_) => &BEGINS[..bars[0].len()],
        Input::Clock(of) => clock(*of, bars[0].len()),
        other => panic!("{other:?} in a program of bare expressions"),
    };
    SymbolInput { columns: program.inputs.iter().map(series).collect(), visible }
}

fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

fn close(a: f64, b: f64) -> bool {
    same(a, b) || a == b || (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

/// Each primitive of the plan, given the ENGINE's own inputs, equals its definition: decisions exactly, numbers to
/// 1e-9. Feeding the engine's inputs keeps a near-tie upstream from excusing or spoiling anything downstream.
fn check_against_oracle(expressions: &[String], bars: &[Vec<f64>]) -> Result<(), TestCaseError> {
    let plan =
        compile_expressions(expressions, "test", &schema()).map_err(|d| TestCaseError::fail(d[0].to_string()))?;
    let plan = plan.program();
    let every = plan.with_outputs((0..plan.nodes().len() as u32).map(NodeId).collect());
    let visible = bars[0].len();
    let got = evaluate_all(&every, &input(&every, bars, visible), &NoCancel).expect("not cancelled");
    for (i, node) in plan.nodes().iter().enumerate() {
        if matches!(node.op, Op::Column(_) | Op::Constant(_)) {
            continue;
        }
        let inputs: Vec<&[f64]> = node.inputs.iter().map(|id| got[id.index()].as_slice()).collect();
        let want = oracle::primitive(node.op, &inputs, visible);
        let scale = inputs.iter().flat_map(|x| x.iter()).filter(|x| x.is_finite()).fold(1.0f64, |a, x| a.max(x.abs()));
        for t in 0..visible {
            let (g, w) = (got[i][t], want[t]);
            let agree = match node.kind {
                Kind::Bool => same(g, w),
                // Sums of mixed signs cancel: their error is relative to the terms.
                Kind::Num => close(g, w) || (g - w).abs() <= 1e-12 * scale,
            };
            prop_assert!(agree, "{:?} of {:?} at bar {t}: engine {g:?}, oracle {w:?}", node.op, expressions);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_step_equals_its_definition(
        numbers in prop::collection::vec(number(3), 1..3),
        conditions in prop::collection::vec(condition(3), 1..3),
        data in bars(700),
    ) {
        let items: Vec<String> = numbers.into_iter().chain(conditions).enumerate().map(|(i, e)| format!("{e} as o{i}")).collect();
        check_against_oracle(&items, &data)?;
    }

    #[test]
    fn anchored_averages_equal_their_definition(
        anchor in prop::sample::select(vec![
            "session", "daily", "weekly", "monthly", "high", "low", "hvol", "prev_high", "prev_low", "prev_hvol", "history",
        ]),
        data in bars(120),
    ) {
        let items = [format!("avwap('{anchor}') as a"), format!("avwap_bands('{anchor}', 5).l2 as b")];
        check_against_oracle(&items, &data)?;
    }

    #[test]
    fn the_last_bar_alone_equals_that_bar_of_the_whole_history(
        where_ in condition(3),
        value in number(3),
        market in prop::collection::vec(bars(700), 1..20),
        cut in 0usize..200,
    ) {
        let document = ScanDocument { condition: where_, rank: Some(value.clone()), select: vec![value], ..ScanDocument::default() };
        let plan = compile_scan(&document, &schema()).map_err(|d| TestCaseError::fail(d[0].to_string()))?;
        let plan = plan.program();
        let inputs: Vec<SymbolInput<'_>> = market.iter().map(|b| input(plan, b, b[0].len().saturating_sub(cut).max(1))).collect();
        let together = evaluate_last(plan, &inputs, &NoCancel).expect("not cancelled");
        for (symbol, got) in inputs.iter().zip(&together) {
            // Alone: other tile mates, another lane.
            let alone = &evaluate_last(plan, std::slice::from_ref(symbol), &NoCancel).expect("not cancelled")[0];
            let whole = evaluate_all(plan, symbol, &NoCancel).expect("not cancelled");
            prop_assert!(equal(got, alone), "{got:?} among others, {alone:?} alone");
            let last: Vec<f64> = whole.iter().map(|series| series[symbol.visible - 1]).collect();
            prop_assert!(equal(got, &last), "{got:?} at the last bar, {last:?} over the whole history");
            let short = shortened_last(plan, symbol);
            prop_assert!(equal(got, &short), "{got:?} at the last bar, {short:?} over the history that it needs");
        }
    }

    #[test]
    fn values_are_defined_from_the_look_back_on_when_bars_have_no_gaps(p in 2u32..60, q in 1u32..20) {
        let items = vec![format!("sma(wma(close,{p}),{q})[3] as a"), format!("streak(rsi({p}) > 50, {q}) as b")];
        let plan = compile_expressions(&items, "test", &schema()).expect("legal");
        let plan = plan.program();
        let data: Vec<Vec<f64>> = (0..5).map(|c| (0..200).map(|t| f64::from((t * 7 + c) % 13) + 20.0).collect()).collect();
        let got = evaluate_all(plan, &input(plan, &data, 200), &NoCancel).expect("not cancelled");
        for ((output, got), name) in plan.outputs.iter().zip(&got).zip(["a", "b"]) {
            let look_back = plan.look_back_of(*output);
            prop_assert!(got[look_back..].iter().all(|x| !x.is_nan()), "{} has NA after {look_back}", name);
            if name == "a" {
                prop_assert!(got[..look_back].iter().all(|x| x.is_nan()), "{} is defined before {look_back}", name);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Magnitudes so far apart that even compensated sums round: only beginning at fixed bars makes them agree.
    #[test]
    fn sliding_sums_do_not_depend_on_where_evaluation_began(
        values in prop::collection::vec((1.0f64..10.0, -12i32..18), 300..1200),
        p in 2u32..60,
        f in prop::sample::select(vec!["sma", "wma", "stddev"]),
    ) {
        let plan = compile_expressions(&[format!("{f}(close, {p})")], "test", &schema()).expect("legal");
        let plan = plan.program();
        let close: Vec<f64> = values.iter().map(|(m, e)| m * 10f64.powi(*e)).collect();
        let data = vec![close; 5];
        let whole = evaluate_all(plan, &input(plan, &data, data[0].len()), &NoCancel).expect("not cancelled");
        for visible in (p as usize..data[0].len()).step_by(7) {
            let last = evaluate_last(plan, &[input(plan, &data, visible)], &NoCancel).expect("not cancelled");
            prop_assert!(same(last[0][0], whole[0][visible - 1]), "bar {}", visible - 1);
            let symbol = input(plan, &data, visible);
            prop_assert!(same(shortened_last(plan, &symbol)[0], whole[0][visible - 1]), "bar {} of few", visible - 1);
            let begin = Executable::new(plan, Precision::F64).shortened_begin(visible - 1);
            prop_assert!(visible - begin <= 3 * p as usize, "{} bars for a window of {p}", visible - begin);
        }
    }
}

/// The last bar from a history that begins where it has to, numbered from there.
fn shortened_last(program: &Program, symbol: &SymbolInput<'_>) -> Vec<f64> {
    let begin = Executable::new(program, Precision::F64).shortened_begin(symbol.visible - 1);
    let columns = symbol.columns.iter().map(|column| &column[begin..]).collect();
    let short = SymbolInput { columns, visible: symbol.visible - begin };
    evaluate_last(program, &[short], &NoCancel).expect("not cancelled").remove(0)
}

#[test]
fn a_shortened_history_begins_before_all_that_is_counted_or_looked_back_at() {
    let data = vec![(0..900).map(|t| f64::from(t % 17) + 1.0).collect::<Vec<f64>>(); 5];
    for (expression, begins) in [
        ("close > open", Some(899)),
        ("sma(close, 50) > sma(close, 200)", Some(600)),
        ("(ceil(0))[3] < close", None),
        ("within(1 < 2, 7)", None),
        ("ema(close, 3) > close", Some(0)),
        ("since(close > 0) > close", Some(0)),
        ("cumsum(1) > close", Some(0)),
    ] {
        let plan = compile_expressions(&[format!("{expression} as a")], "test", &schema()).expect(expression);
        let program = plan.program();
        let symbol = input(program, &data, 900);
        let whole = evaluate_all(program, &symbol, &NoCancel).expect("not cancelled");
        assert!(same(shortened_last(program, &symbol)[0], whole[0][899]), "{expression}");
        let begin = Executable::new(program, Precision::F64).shortened_begin(899);
        assert!(begins.is_none_or(|bar| bar == begin), "{expression}: {begin}");
    }
}

fn equal(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(*a, *b))
}

/// Every function's outputs over bars in which some cells are replaced, infinities in the output taken for NA.
fn outputs_with(bars: &[Vec<f64>], cells: &[(usize, usize)], value: f64) -> Vec<(String, Vec<f64>)> {
    let mut bars = bars.to_vec();
    for (column, bar) in cells {
        bars[*column][*bar] = value;
    }
    let items = [
        "sma(5)",
        "ema(5)",
        "wma(5)",
        "kama(5)",
        "rsi(5)",
        "macd(close,3,6,4).line",
        "macd(close,3,6,4).signal",
        "macd(close,3,6,4).hist",
        "stoch(5,3,3).k",
        "stoch(5,3,3,slowk_matype='ema',slowd_matype='wma').d",
        "adx(4)",
        "cci(5)",
        "mfi(5)",
        "roc(5)",
        "atr(5)",
        "bbands(5).upper",
        "bbands(5,2,matype='ema').lower",
        "donchian(5).middle",
        "stddev(5)",
        "max(5)",
        "min(5)",
        "obv()",
        "vwap()",
        "beta(high, low, timeperiod=4)",
        "correl(high, low, timeperiod=4)",
        "highestbars(high, 5)",
        "lowestbars(low, 5)",
        "dema(3)",
        "t3(2)",
        "hma(5)",
        "zlema(5)",
        "vwma(5)",
        "mama().fama",
        "mavp(close, volume, 2, 9)",
        "mavp(close, high, 2, 5, matype='rma')",
        "ht_dcphase()",
        "ht_trendmode()",
        "sar()",
        "sarext(0, 0.1)",
        "supertrend(3, 1).line",
        "supertrend(3, 1).trend",
        "accbands(5).upper",
        "accbands(5).middle",
        "kc(5, 3).upper",
        "ha().high",
        "ha().close",
        "rvi(3, 4)",
        "natr(4)",
        "cvi(4, 3)",
        "massi(3, 4)",
        "avgdev(4)",
    ];
    let windows = WINDOWS.map(|f| format!("{f}(real=close, timeperiod=5)"));
    let indicators = INDICATORS.iter().chain(&items).map(|item| (*item).to_owned());
    let items: Vec<String> = windows.into_iter().chain(indicators).chain(patterns()).collect();
    let plan = compile_expressions(&items, "test", &schema()).expect("legal");
    let plan = plan.program();
    let got = evaluate_all(plan, &input(plan, &bars, bars[0].len()), &NoCancel).expect("not cancelled");
    let defined = |x: f64| if x.is_finite() { x } else { f64::NAN };
    items.into_iter().zip(got.into_iter().map(|s| s.into_iter().map(defined).collect())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_infinity_in_the_bars_counts_as_na_in_every_indicator(
        data in bars(200),
        cells in prop::collection::vec((0usize..5, 0usize..200), 1..4),
        up in prop::bool::ANY,
    ) {
        let cells: Vec<(usize, usize)> = cells.into_iter().filter(|(_, bar)| *bar < data[0].len()).collect();
        let infinity = if up { f64::INFINITY } else { f64::NEG_INFINITY };
        let gaps = outputs_with(&data, &cells, f64::NAN);
        for ((name, with_gaps), (_, with_infinities)) in gaps.iter().zip(outputs_with(&data, &cells, infinity)) {
            let differs = with_gaps.iter().zip(&with_infinities).position(|(a, b)| !same(*a, *b));
            prop_assert!(differs.is_none(), "{name} at bar {differs:?}: {:?} {:?}", with_gaps, with_infinities);
        }
    }
}

#[test]
fn a_sum_that_would_overflow_leaves_nothing_behind() {
    let mut close = vec![1.0, 1e308, 1e308];
    close.extend((0..300).map(|i| f64::from(i % 7)));
    let data = vec![close; 5];
    let items = ["sma(2)", "wma(2)", "stddev(2)", "ema(2)"].map(str::to_owned).to_vec();
    let plan = compile_expressions(&items, "test", &schema()).expect("legal");
    let plan = plan.program();
    let got = evaluate_all(plan, &input(plan, &data, 303), &NoCancel).expect("not cancelled");
    for (name, series) in items.iter().zip(&got) {
        assert!(series[4..].iter().all(|x| x.is_finite()), "{name}: {:?}", &series[..8]);
    }
}

#[test]
fn the_parts_of_an_indicator_skip_the_same_bars() {
    // A hair's breadth in one low beside a missing high must not move the index.
    let at = |nudge: f64| {
        let walk = |t: usize| 50.0 + ((t * 7919) % 13) as f64 - ((t * 104_729) % 11) as f64;
        let close: Vec<f64> = (0..40).map(walk).collect();
        let mut high: Vec<f64> = close.iter().map(|c| c + 2.0).collect();
        let mut low: Vec<f64> = close.iter().map(|c| c - 2.0).collect();
        high[15] = f64::NAN;
        low[15] = low[14] + nudge;
        let data = vec![close.clone(), high, low, close, vec![1.0; 40]];
        let plan = compile_expressions(&["adx(3)".to_owned()], "test", &schema()).expect("legal");
        let plan = plan.program();
        evaluate_all(plan, &input(plan, &data, 40), &NoCancel).expect("not cancelled")[0][20]
    };
    assert!((at(1e-9) - at(-1e-9)).abs() < 1e-6, "{} {}", at(1e-9), at(-1e-9));
}

#[test]
fn periods_longer_than_the_history_give_na_and_cost_no_memory() {
    let items: Vec<String> = (0..300)
        .map(|i| {
            format!(
                "(max(close,{p}) + stddev(close,{p}) + sma(close,{p}) + wma(close,{p}) + cci({p}))[{p}] as x{i}",
                p = 99_000 + i
            )
        })
        .collect();
    for bars in [1usize, 2, 63, 64, 65, 300] {
        let plan = compile_expressions(&items[..200], "test", &schema()).expect("legal");
        let plan = plan.program();
        let data = vec![vec![5.0; bars]; 5];
        let got = evaluate_all(plan, &input(plan, &data, bars), &NoCancel).expect("not cancelled");
        assert!(got.iter().all(|s| s.len() == bars && s.iter().all(|x| x.is_nan())));
        assert!(
            lowered(plan).workspace_bytes(bars) < 200 << 20,
            "{bars} bars: {} bytes",
            lowered(plan).workspace_bytes(bars)
        );
    }
    let plan = compile_expressions(&items[..200], "test", &schema()).expect("legal");
    let plan = plan.program();
    assert!(lowered(plan).workspace_bytes(1_000_000) > WORKSPACE_BYTES_MAX);
}

#[test]
fn an_as_of_in_the_past_sees_no_later_bar() {
    let plan = compile_expressions(&["ema(close,5) + max(high,9)".to_owned()], "test", &schema()).expect("legal");
    let plan = plan.program();
    let long: Vec<Vec<f64>> = (0..5).map(|c| (0..300).map(|t| f64::from((t * 5 + c) % 17) + 9.0).collect()).collect();
    let mut changed = long.clone();
    changed.iter_mut().for_each(|c| c[200..].fill(1e9));
    let at = |bars: &[Vec<f64>]| evaluate_last(plan, &[input(plan, bars, 200)], &NoCancel).expect("not cancelled");
    assert!(equal(&at(&long)[0], &at(&changed)[0]));
}

#[test]
fn what_is_made_together_may_be_wanted_from_different_bars() {
    let items = [
        "bbands(close,20,2).upper as a",
        "bbands(close,20,2).middle[3] as b",
        "max(bbands(close,20,2).lower[150],9) as c",
        "macd(close,5,9,4).line[90] as d",
        "macd(close,5,9,4).signal as e",
        "macd(close,5,9,4).hist as f",
        "mfi(7)[40] as g",
        "rsi(5)[200] as h",
    ];
    let plan = compile_expressions(&items.map(str::to_owned), "test", &schema()).expect("legal");
    let plan = plan.program();
    let bars: Vec<Vec<f64>> =
        (0..5).map(|c| (0..300).map(|t| f64::from((t * 7919 + c * 31) % 97) + 50.0).collect()).collect();
    let whole = evaluate_all(plan, &input(plan, &bars, 300), &NoCancel).expect("not cancelled");
    for visible in [220, 250, 299, 300] {
        let last = evaluate_last(plan, &[input(plan, &bars, visible)], &NoCancel).expect("not cancelled");
        let there: Vec<f64> = whole.iter().map(|series| series[visible - 1]).collect();
        assert!(equal(&last[0], &there), "{:?} {there:?}", last[0]);
    }
}

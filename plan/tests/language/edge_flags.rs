//! Where the `edge` flag looks: which comparisons rounding could turn, and which are never flagged (docs/adr/0009).

use trawl_plan::graph::{Binary, Kind, Op};
use trawl_plan::{ScanDocument, Schema, compile_scan};

use crate::{plan, schema};

/// Comparisons of a plan that may be flagged.
fn near(condition: &str) -> usize {
    // Words of the time of day are legal over bars shorter than a day.
    let any = Schema { timeframe: None, ..schema() };
    let document = ScanDocument { condition: condition.to_owned(), ..ScanDocument::default() };
    let plan = compile_scan(&document, &any).unwrap_or_else(|d| panic!("{condition}: {}", d[0]));
    let found = plan.nodes().iter().filter(|n| n.op == Op::Binary(Binary::Near)).count();
    assert_eq!(plan.points[0].edge.is_some(), found > 0, "{condition}");
    found
}

#[test]
fn comparisons_of_exact_values_are_never_flagged() {
    for condition in [
        "close > 5",
        "close >= highest(close, 20)",
        "low <= lowest(low, 20)[1] and max(high, 5) == high[3]",
        "maximum(high, low) == minimum(open, close)",
        "valuewhen(close > open, high) < close",
        "ref('SPY', close) > ref('SPY', close[1])",
        "tf('1w', high) > tf('1w', high[1])",
        "iff(close > open, close, open) == high",
        "nz(close, 5) > 5 and percentile(close, 5, 0.5) == close",
        "count(close > open, 10) >= 7 and since(close > open) == 3",
        "highestbars(high, 20) == 0 and lowestbars(low, 20) > 3",
        "count(close > open, 10) + 2*count(open > close, 5) - 1 > 9",
        "aroon(14).up == 50",
        "xs_rank(rsi()) <= 10 and xs_pct(rsi()) >= 0.9 and xs_top(rsi(), 5)",
        "breadth(close > open) > 0.5",
        "round(sma(close, 5)) == 12 and sma(xs_rank(roc(close, 20)), 5) == 86.8",
        "cdlengulfing() != 0 and cdldoji() == 100 and cdlmorningstar() > 0",
        "fractal().low == 100",
        "atc().trend == 1 and atc().ema > 0.1",
        "ht_trendmode(close) == 1",
        "round(nvi()) > 0",
        // The sign of a difference is that of the comparison.
        "close - close[1] > 0 and 0 < roc(close, 20) and mom(close, 5) != 0",
        "close*2 == high and close / 4 > open",
        "volume > 0 and sma(volume, 20) > 0 and tf('1w', volume) > 0",
        "crosses_above(close, highest(high, 20)[1])",
        "er(close, 10) == er(close, 10)",
        "sector == 'Tech'",
        // A date is a whole number of days, an attribute as it was written.
        "days_to(earnings) > 3 and days_since(earnings) != close",
        "cap > 1e10 and cap - close > 0",
    ] {
        assert_eq!(near(condition), 0, "{condition}");
    }
}

#[test]
fn comparisons_that_rounding_could_turn_are_flagged() {
    for (condition, flagged) in [
        ("close > 1.03*close[1]", 1),
        ("close > sma(close, 20)", 1),
        ("20 < rsi() < 30", 2),
        ("crosses_above(sma(close, 50), sma(close, 200))", 1),
        ("close - open > 0.5", 1),
        ("cap - close > 0.5", 1),
        ("sma(close, 5) - close > 0", 1),
        ("close > xs_quantile(close, 0.5)", 1),
        ("xs_z(close) > 1", 1),
        ("tf('1w', volume) > 1e6", 1),
        ("macd().hist > 0", 1),
        // A share in percent is rounded twice: 7 of 50 are 14.000000000000002.
        ("percentrank(close, 50) <= 14", 1),
        // The greatest of the others, not the value itself: that would be near always.
        ("rsi() >= highest(rsi(), 20)", 1),
        // Narrowest range of seven: 10.03 - 9.98 and 10.05 - 10.00 are one range, and two doubles.
        ("high - low == lowest(high - low, 7)", 1),
        // Decisions inside.
        ("supertrend().trend == 1", 1),
        ("fractal(sma(high, 3), sma(low, 3)).high == 100", 2),
        ("obv(sma(close, 3), volume) > obv(sma(close, 3), volume)[1]", 2),
        ("within(close > sma(close, 5), 3) and count(rsi() > 70, 5) > 2", 2),
        ("iff(rsi() > 70, close, open) > 10", 1),
        // What leaves room for rounding itself, and movements whose share fades, are not looked into.
        ("mfi(14) > 20", 1),
        ("adx(14) > 25", 1),
        ("cci(14) > 100", 1),
        ("stoch().k > 80", 1),
    ] {
        assert_eq!(near(condition), flagged, "{condition}");
    }
}

#[test]
fn a_window_extreme_of_its_own_series_is_compared_with_the_others() {
    let plan = plan("rsi() >= highest(rsi(), 20)");
    let nodes = plan.nodes();
    let flag = nodes.iter().find(|n| n.op == Op::Binary(Binary::Near)).expect("a flag");
    let others = &nodes[flag.inputs[1].index()];
    assert_eq!(others.op, Op::Max(19));
    assert_eq!(nodes[others.inputs[0].index()].op, Op::Lag(1));
}

#[test]
fn adjusted_prices_are_flagged_where_they_miss_each_other_by_a_little_and_not_where_they_are_equal() {
    let flags = |adjust: Option<&str>, condition: &str| {
        let adjust = adjust.map(str::to_owned);
        let document = ScanDocument { condition: condition.to_owned(), adjust, ..ScanDocument::default() };
        let plan = compile_scan(&document, &schema()).expect("legal");
        let edge = plan.points[0].edge.map(|id| plan.nodes()[id.index()].clone());
        edge.map(|node| (node.op, node.inputs.iter().map(|i| plan.nodes()[i.index()].op).collect::<Vec<_>>()))
    };
    let condition = "close >= highest(close, 20)[1]";
    assert_eq!(flags(None, condition), None);
    assert_eq!(flags(Some("none"), condition), None);
    let (op, behind) = flags(Some("split"), condition).expect("a flag");
    assert_eq!(op, Op::And);
    assert!(behind.contains(&Op::Binary(Binary::Near)) && matches!(behind[1], Op::Compare(_)), "{behind:?}");
    assert_eq!(flags(Some("split"), "count(rsi() > 70, 5) > 2").map(|f| f.0), Some(Op::Within(5)));
}

#[test]
fn every_function_with_conditions_inside_decides_what_is_flagged_by_its_inputs() {
    // Over bars as stored no function is flagged inside but those whose own values decide, of TA-Lib's and the language's own.
    let inside: Vec<&str> = trawl_plan::catalogue::functions()
        .filter(|f| !matches!(f.source, trawl_plan::catalogue::Reference::Values(..)))
        .filter(|f| f.series.iter().all(|s| s.default.is_some() && s.kind == Kind::Num))
        .filter(|f| f.params.iter().all(|p| !matches!(p.default, trawl_plan::catalogue::ParamDefault::Required)))
        .filter(|f| {
            let field = if f.outputs.len() > 1 { format!(".{}", f.outputs[0].name) } else { String::new() };
            let output = format!("{}(){field}", f.name);
            near(&match f.outputs[0].kind {
                Kind::Num => format!("count(round({output}) > 0, 2) > 1"),
                Kind::Bool => format!("count({output}, 2) > 1"),
            }) > 0
        })
        .map(|f| f.name)
        .collect();
    assert_eq!(inside, ["supertrend"]);
}

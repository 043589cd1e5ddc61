//! References, timeframes, cross-sections, labels, sweeps and limited histories: what they become and what is refused.

use std::collections::BTreeMap;

use trawl_plan::frame::{BarSize, Read, Subject};
use trawl_plan::graph::Op;
use trawl_plan::{Diagnostic, History, Plan, ScanDocument, Setting, SweepRange, SweepValues, compile_scan};

use crate::{mistake, plan, schema};

fn compiled(document: &ScanDocument) -> Result<Plan, Vec<Diagnostic>> {
    compile_scan(document, &schema())
}

fn document(condition: &str) -> ScanDocument {
    ScanDocument { condition: condition.to_owned(), ..ScanDocument::default() }
}

#[test]
fn a_plan_without_cross_sections_has_one_stage_and_one_with_has_more() {
    assert_eq!(plan("sma(close, 20) > 5").stages().len(), 1);
    assert_eq!(plan("xs_pct(roc(close, 20)) > 0.9").stages().len(), 2);
    let nested = plan("xs_rank(close - xs_quantile(close, 0.5)) <= 3");
    assert_eq!(nested.stages().len(), 3);
    // Side by side they are made in one exchange.
    assert_eq!(plan("xs_rank(close) <= 3 and breadth(close > open) > 0.5").stages().len(), 2);
}

#[test]
fn what_is_needed_counts_cross_sections_references_and_longer_bars() {
    let needed = |condition: &str| {
        let plan = plan(condition);
        let of = plan.bars_needed_by(&[plan.points[0].condition.expect("a condition")]).remove(0);
        let others = of.others.iter().map(|(frame, bars)| format!(", {bars} of {}", frame.title()));
        format!("{}{}", of.own, others.collect::<String>())
    };
    assert_eq!(needed("close > sma(close, 50)"), "50");
    assert_eq!(needed("close > 5"), "1");
    assert_eq!(needed("xs_rank(roc(close, 63)) <= 5"), "64");
    assert_eq!(needed("within(xs_rank(roc(close, 63)) <= 5, 3)"), "66");
    // One value for all: a young symbol reads it too.
    assert_eq!(needed("close > xs_quantile(sma(close, 63), 0.5)"), "1");
    assert_eq!(needed("roc(close, 20) > ref('SPY', roc(close, 63))"), "21, 64 of SPY");
    assert_eq!(needed("tf('1w', roc(close, 10)) > 0"), "1, 11 of 1w");
    assert_eq!(needed("ref('SPY', tf('1w', sma(close, 9))) > close[4]"), "5, 9 of SPY 1w, 1 of SPY");
    let weekly = compiled(&ScanDocument { timeframe: Some("1w".to_owned()), ..document("close > sma(close, 9)") });
    let weekly = weekly.expect("legal");
    let of = weekly.bars_needed_by(&[weekly.points[0].condition.expect("a condition")]).remove(0);
    assert_eq!((of.own, of.others[0].0.title(), of.others[0].1), (1, "1w".to_owned(), 9));
}

#[test]
fn equal_cross_sections_are_one() {
    let shared = plan("xs_pct(close) > 0.5 and within(xs_pct(close) > 0.9, 3)");
    assert_eq!(shared.crosses.len(), 1);
    let grouped = plan("xs_pct(close) > 0.5 and xs_pct(close, by=sector) > 0.5");
    assert_eq!(grouped.crosses.len(), 2);
}

#[test]
fn the_universe_is_the_population_of_other_clauses_and_not_its_own() {
    let with = ScanDocument { universe: Some("xs_pct(volume) > 0.5".to_owned()), ..document("xs_pct(volume) > 0.5") };
    let found = compiled(&with).expect("legal");
    assert_eq!(found.crosses.len(), 2, "the same words mean another population");
    assert_eq!(found.stages().len(), 3, "the universe's comes first");
}

#[test]
fn a_let_means_the_bars_of_the_place_where_it_is_used() {
    let lets = BTreeMap::from([("up".to_owned(), "close > sma(close, 3)".to_owned())]);
    let found = compiled(&ScanDocument { lets, ..document("up and tf('1w', up) and ref('SPY', up)") }).expect("legal");
    let means = found.nodes().iter().filter(|n| matches!(n.op, Op::Mean(3))).count();
    assert_eq!(means, 3);
    assert_eq!(found.frames.len(), 3);
}

#[test]
fn a_reference_inside_a_timeframe_has_that_timeframe() {
    let found = plan("tf('1w', close > ref('SPY', close))");
    let spy = found.frames.iter().find(|f| f.subject == Subject::Reference("SPY".to_owned())).expect("a frame of SPY");
    assert!(matches!(&spy.bars, BarSize::Higher { timeframe, forming: false } if timeframe.to_string() == "1w"));
    assert!(found.nodes().iter().any(|n| n.op == Op::Read(Read::Same)));
    assert_eq!(found.references(), ["SPY"]);
}

#[test]
fn offsets_after_a_frame_count_own_bars_and_inside_it_the_others() {
    let (outside, inside) = (plan("tf('1w', close)[1] > 5"), plan("tf('1w', close[1]) > 5"));
    let lag = |p: &Plan| p.nodes().iter().find(|n| n.op == Op::Lag(1)).expect("a lag").frame;
    assert_eq!(lag(&outside).0, 0);
    assert_ne!(lag(&inside).0, 0);
}

#[test]
fn labels_are_compared_with_strings() {
    assert_eq!(plan("sector == 'Tech'").labels.len(), 1);
    assert_eq!(plan("sector in ('Tech', 'Energy') and not (sector != 'Tech')").labels.len(), 2);
    for (text, why) in [
        ("sector", "the label 'sector' is no series"),
        ("sector == 'Tehc'", "no symbol's sector is 'Tehc'"),
        ("sector > 'Tech'", "takes only"),
        ("sector == close", "is compared with a string"),
        ("close in ('a')", "a number is compared with a string"),
        ("sector in (1)", "the label 'sector' is compared with strings"),
        ("close in (1, close)", "is not expected here"),
        ("(close > 1) in (1)", "what 'in' follows"),
        ("weekday in ('Moonday')", "'Moonday' is not"),
        ("sector in 'Tech'", "a string is not expected here"),
        ("xs_rank(close, by='sector') < 3", "takes a label, not a string"),
        ("xs_rank(close, by=close) < 3", "takes the name of a label"),
    ] {
        let found = mistake(text);
        assert!(found.message.contains(why), "{text}: {found}");
    }
    for (one, other) in [
        ("weekday in (1, 'fri')", "weekday == 1 or weekday == 'fri'"),
        ("close in (1, -2.5)", "close == 1 or close == -2.5"),
    ] {
        assert_eq!(plan(one).fingerprint(), plan(other).fingerprint(), "{one}");
    }
    assert_eq!(mistake("sector == 'Tehc'").help.as_deref(), Some("did you mean 'Tech'?"));
}

#[test]
fn what_cannot_be_looked_at_is_refused_with_its_place() {
    for (text, why, place) in [
        ("ref('SPX', close) > 1", "no symbol 'SPX'", 4..9),
        ("ref(close, close) > 1", "takes a string first", 4..9),
        ("ref('SPY') > 1", "needs 'e'", 0..10),
        ("ref('SPY', close, asof=-1) > 1", "-1 is not legal for 'asof'", 23..25),
        ("tf('7d', close) > 1", "cannot be built", 3..7),
        ("tf('1w', tf('1mo', close)) > 1", "inside tf", 9..25),
        ("tf('1w', ref('SPY', close), partial=true) > 1", "inside tf(..., partial=true)", 9..26),
        ("xs_top(close, 0.5)", "0.5 is not legal for 'k'", 14..17),
        ("xs_quantile(close, 2) > 1", "2 is not legal for 'q'", 19..20),
        ("breadth(close) > 1", "must be a condition", 8..13),
        ("xs_rank(close, 3) > 1", "too many arguments", 15..16),
        ("xs_rank(close, wheer=open > 1) > 1", "did you mean 'where'", 15..20),
    ] {
        let found = mistake(text);
        assert!(found.message.contains(why), "{text}: {found}");
        assert_eq!(found.span, place, "{text}: {found}");
    }
}

#[test]
fn a_sweep_gives_a_point_for_every_combination_and_shares_what_does_not_change() {
    let sweep = BTreeMap::from([
        ("fast".to_owned(), SweepValues::List(vec![5.0.into(), 10.0.into()])),
        ("slow".to_owned(), SweepValues::Range(SweepRange { from: 50.0, to: 70.0, step: 10.0 })),
    ]);
    let found = compiled(&ScanDocument { sweep, ..document("sma(close, fast) > sma(close, slow)") }).expect("legal");
    let settings: Vec<Vec<Setting>> =
        found.points.iter().map(|p| p.settings.iter().map(|s| s.1.clone()).collect()).collect();
    assert_eq!(settings.len(), 6);
    assert_eq!(settings[1], [5.0, 60.0].map(Setting::from));
    assert_eq!(found.nodes().iter().filter(|n| matches!(n.op, Op::Mean(_))).count(), 5);
    let shared = found.sharing();
    assert_eq!((shared.combinations, shared.averages, shared.averages_computed), (6, 12, 5));
    let steps = SweepValues::Range(SweepRange { from: 0.1, to: 0.3, step: 0.1 });
    assert_eq!(steps.values().expect("legal"), [0.1, 0.2, 0.3].map(Setting::from));
    for (from, to, step) in [(1.0, 5.0, -1.0), (1.0, 5.0, 0.0), (0.0, 1e9, 1.0), (f64::NAN, 1.0, 1.0)] {
        assert!(SweepValues::Range(SweepRange { from, to, step }).values().is_err(), "{from} {to} {step}");
    }
    let clash = BTreeMap::from([("close".to_owned(), SweepValues::List(vec![1.0.into()]))]);
    let refused = compiled(&ScanDocument { sweep: clash, ..document("close > 1") }).expect_err("a clash");
    assert!(refused[0].message.contains("is a column already"));
}

#[test]
fn under_a_limited_history_what_never_forgets_needs_an_origin() {
    let limited = |origin, condition: &str| {
        compiled(&ScanDocument { history: Some(History { bars: 500, origin }), ..document(condition) })
    };
    for condition in [
        "kama(close, 10) > 1",
        "obv() > 1",
        "vwap() > 1",
        "sar() > 1",
        "ht_dcperiod() > 1",
        "ma(9, matype='mama') > 1",
        "supertrend().trend > 0",
        "ha().close > ha().open",
        "since(close > open) < 3",
        "valuewhen(close > open, close) > 1",
    ] {
        let refused = limited(false, condition).expect_err(condition);
        assert!(refused[0].message.contains("depends on where the history begins"), "{condition}: {}", refused[0]);
        let found = limited(true, condition).expect(condition);
        assert!(found.nodes().iter().any(|n| n.op == Op::HistoryMask), "{condition}");
    }
    let bounded = limited(false, "rsi(close, 14) < 30 and macd().hist > 0 and adx(14) > 20").expect("legal");
    assert!(!bounded.nodes().iter().any(|n| n.op == Op::HistoryMask));
    // 14 periods of look-back, 12 times that of warm-up.
    assert!(bounded.program().reach() > 12 * 14);
    // A reference is seen whole.
    assert!(limited(false, "ref('SPY', obv()) > 1").is_ok());
}

#[test]
fn a_plan_does_not_depend_on_how_it_is_written() {
    let a = plan("xs_pct(close, where=volume > 5) > 0.5 and tf('1w', close) > ref('SPY', close)");
    let b = plan("( xs_pct(where=volume>5, e=close)>0.5 ) and tf('1w',e=close) > ref('SPY',e=close)");
    assert_eq!(a.fingerprint(), b.fingerprint());
    assert_ne!(
        a.fingerprint(),
        plan("xs_pct(close, where=volume > 5) > 0.5 and tf('1w', close) > ref('QQQ', close)").fingerprint()
    );
}

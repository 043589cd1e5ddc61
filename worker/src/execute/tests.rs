//! The rows of a segment.

use super::*;
use std::sync::Arc;
use trawl_kernels::NoCancel;
use trawl_market::Timeframe;
use trawl_market::{MemoryMarket, memory_dataset};
use trawl_plan::{ScanDocument, Schema, compile_scan};
use trawl_wire::{ErrorKind, RowMarks, Status, SymbolRow};

use crate::schema::schema_of;

const DAY: TimeMicros = 86_400_000_000;

fn plan(universe: Option<&str>, condition: &str, rank: Option<&str>) -> Plan {
    let document = ScanDocument {
        universe: universe.map(str::to_owned),
        condition: condition.to_owned(),
        rank: rank.map(str::to_owned),
        ..ScanDocument::default()
    };
    let schema = Schema::of_columns(vec!["close".to_owned()]);
    compile_scan(&document, &schema).unwrap()
}

fn bars(symbol: &str, days: &[i64], close: &[f64]) -> LoadedBars {
    LoadedBars {
        symbol: Arc::from(symbol),
        times: days.iter().map(|d| d * DAY).collect(),
        columns: vec![close.to_vec().into()],
        unread: 0,
        untimed: 0,
    }
}

/// The plan over a dataset without these bars, which tests pass in directly.
fn source(plan: &Plan, as_of: TimeMicros) -> ScanSource {
    let market = MemoryMarket {
        name: "m".to_owned(),
        timeframe: Timeframe::DAY,
        calendar: "weekdays".to_owned(),
        columns: vec!["close".to_owned()],
        bars: vec![bars("A", &[1_000], &[1.0]).into()],
        ..MemoryMarket::default()
    };
    let dataset = memory_dataset(market).unwrap();
    ScanSource {
        executable: ExecutablePlan::new(Arc::new(plan.clone()), Precision::F64),
        dataset,
        as_of,
        adjustment: Adjustment::NONE,
        engine: Engine::Cpu,
        checkpoints: None,
        every_value: false,
        features: None,
    }
}

fn try_run(
    plan: &Plan,
    bars: &[LoadedBars],
    as_of: TimeMicros,
    cancel: &dyn Cancel,
) -> Result<Vec<SymbolRow>, ExecuteError> {
    let step = ScanStep { stage: 0, kind: StepKind::Values };
    let result = source(plan, as_of).evaluate(
        3,
        step,
        &StepInputV1::default(),
        bars,
        &References::new(),
        cancel,
        &mut Stages::default(),
    )?;
    assert_eq!(result.segment(), 3);
    match result.into_v2().unwrap().output {
        SegmentOutput::Rows(rows) => Ok(rows),
        other => panic!("{other:?}"),
    }
}

fn run(plan: &Plan, bars: &[LoadedBars], as_of_day: i64) -> Vec<SymbolRow> {
    try_run(plan, bars, as_of_day * DAY, &NoCancel).unwrap()
}

#[test]
fn every_symbol_has_the_first_status_that_applies_and_a_reason() {
    let plan = plan(Some("close > 0"), "sma(close, 2) > 5", Some("close"));
    let negative_nan = f64::from_bits(f64::NAN.to_bits() | 1 << 63);
    let group = [
        bars("AHEAD", &[4], &[9.0]),
        bars("EMPTY", &[], &[]),
        bars("GAP", &[1, 4], &[9.0, 9.0]),
        bars("GONE", &[0, 1], &[9.0, 9.0]),
        bars("HIGH", &[1, 3], &[9.0, 9.0]),
        bars("HOLE", &[1, 2, 3], &[9.0, negative_nan, 9.0]),
        bars("LOW", &[1, 3], &[1.0, 1.0]),
        bars("MINUS", &[1, 3], &[9.0, -9.0]),
        bars("NA", &[1, 3], &[9.0, f64::NAN]),
        bars("SHORT", &[3], &[9.0]),
    ];
    let rows = run(&plan, &group, 3);
    let seen: Vec<(&str, Status, &str)> =
        rows.iter().map(|r| (r.symbol.as_str(), r.status, r.reason.as_str())).collect();
    assert_eq!(
        seen,
        [
            ("AHEAD", Status::Stale, "no bar yet"),
            ("EMPTY", Status::Stale, "no bar yet"),
            ("GAP", Status::Stale, "no bar since 1970-01-02"),
            ("GONE", Status::Stale, "no bar since 1970-01-02"),
            ("HIGH", Status::Matched, ""),
            ("HOLE", Status::Unknown, "the condition is NA at the as-of bar"),
            ("LOW", Status::NotMatched, ""),
            ("MINUS", Status::Outside, "universe is false"),
            ("NA", Status::Outside, "universe is unknown (NA)"),
            ("SHORT", Status::Unknown, "too short: 1 bar, 2 needed"),
        ]
    );
    let filled: Vec<&str> = rows.iter().filter(|r| !r.values.is_empty()).map(|r| r.symbol.as_str()).collect();
    assert_eq!(filled, ["HIGH"]);
    assert_eq!((rows[4].rank.as_slice(), rows[4].values.as_slice()), (&[9.0][..], &[9.0][..]));
}

#[test]
fn bars_after_the_as_of_change_nothing() {
    let plan = plan(None, "close > 5", None);
    let short = [bars("A", &[1, 2], &[1.0, 9.0])];
    let long = [bars("A", &[1, 2, 3], &[1.0, 9.0, -1.0])];
    assert_eq!(run(&plan, &short, 2), run(&plan, &long, 2));
}

#[test]
fn every_na_in_a_result_has_the_same_bits() {
    let odd_nan = f64::from_bits(f64::NAN.to_bits() | 1 << 63 | 5);
    let document = ScanDocument {
        condition: "close > 5".to_owned(),
        rank: Some("volume".to_owned()),
        select: vec!["volume".to_owned()],
        ..ScanDocument::default()
    };
    let schema = Schema::of_columns(vec!["close".to_owned(), "volume".to_owned()]);
    let plan = compile_scan(&document, &schema).unwrap();
    let column = |name: &String| if name == "close" { vec![9.0].into() } else { vec![odd_nan].into() };
    let columns = plan.columns.iter().map(column).collect();
    let group = [LoadedBars { symbol: Arc::from("A"), times: vec![DAY].into(), columns, unread: 0, untimed: 0 }];
    let rows = run(&plan, &group, 1);
    assert_eq!(rows[0].status, Status::Matched);
    let bits: Vec<u64> = rows[0].rank.iter().chain(&rows[0].values).map(|v| v.to_bits()).collect();
    assert_eq!(bits, [f64::NAN.to_bits(); 2]);
    // The current engine makes no other NaN; answers must not depend on that.
    let mut table = RowTable::new((1, 1), (1, 1));
    table.begin(&Arc::from("A"));
    table.matched(RowMarks::default(), &[odd_nan], &[odd_nan]);
    let rows = table.into_columns(0).unwrap().to_rows().unwrap();
    let bits: Vec<u64> = rows[0].rank.iter().chain(&rows[0].values).map(|v| v.to_bits()).collect();
    assert_eq!(bits, [f64::NAN.to_bits(); 2]);
}

#[test]
fn a_cancelled_run_gives_nothing() {
    struct Always;
    impl Cancel for Always {
        fn cancelled(&self) -> bool {
            true
        }
    }
    let plan = plan(None, "close > 5", None);
    let error = try_run(&plan, &[bars("A", &[1], &[1.0])], DAY, &Always).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
}

/// Values that reveal rounding: a tenth has no finite binary representation.
fn prices(count: usize) -> Vec<f64> {
    let mut state = 7u64;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        80.0 + (state >> 45) as f64 * 0.1
    };
    (0..count).map(next).collect()
}

#[test]
fn a_limited_history_keeps_every_bit_of_windows() {
    let count = 400;
    let (days, close): (Vec<i64>, Vec<f64>) = ((0..count as i64).collect(), prices(count));
    let exact = [
        "sma(close, 7)",
        "stddev(close, 5)",
        "wma(close, 12)",
        "linearreg_slope(close, 30)",
        "cci(close, close, close, 9)",
    ];
    let wide =
        ["sma(close, 97)", "correl(close, close[3], 101)", "beta(close, close[2], 13)", "sma(stddev(close, 11), 19)"];
    let framed = ["tf('1w', sma(close, 6))", "tf('1w', wma(close, 7), partial=true)", "tf('1w', stddev(close, 5))[1]"];
    // A filter beside the windows begins at its own bar, independent of block boundaries.
    let filters = ["ema(close, 9)"];
    let schema = schema_of(&source(&plan(None, "close > 0", None), 0).dataset, i64::MAX).unwrap();
    for text in exact.iter().chain(&wide).chain(&framed).chain(&filters) {
        for bars_seen in [1, 2, 5, 40, 100] {
            for last in [count - 1, count - 2, count - 5, count - 6] {
                let with = |history| {
                    let document = ScanDocument {
                        condition: "true".to_owned(),
                        select: vec![format!("{text} as x"), exact[0].to_owned(), exact[2].to_owned()],
                        history,
                        ..ScanDocument::default()
                    };
                    let plan = compile_scan(&document, &schema).unwrap();
                    let rows = run(&plan, &[bars("A", &days, &close)], last as i64);
                    rows[0].values.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
                };
                let limited = with(Some(trawl_plan::History { bars: bars_seen, origin: false }));
                let whole = with(None);
                let skipped = usize::from(filters.contains(text));
                assert_eq!(limited[skipped..], whole[skipped..], "{text}, {bars_seen} bars to {last}");
                assert!(whole.iter().all(|x| !f64::from_bits(*x).is_nan()), "{text} has a value");
            }
        }
    }
}

#[test]
fn bars_before_a_limited_history_are_not_looked_at() {
    let count = 400;
    let days: Vec<i64> = (0..count as i64).collect();
    let document = ScanDocument {
        condition: "true".to_owned(),
        select: ["ema(close, 5)", "sma(close, 7)", "wma(close, 11)"].map(str::to_owned).to_vec(),
        history: Some(trawl_plan::History { bars: 10, origin: false }),
        ..ScanDocument::default()
    };
    let plan = compile_scan(&document, &Schema::of_columns(vec!["close".to_owned()])).unwrap();
    // 10 bars, preceded by 4 of look-back and 12 periods of warm-up.
    let seen = count - 10 - 4 - 12 * 5;
    let values = |from: usize| {
        let mut close = prices(count);
        close[..from].iter_mut().for_each(|x| *x *= 1e9);
        let rows = run(&plan, &[bars("A", &days, &close)], count as i64 - 1);
        rows[0].values.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
    };
    assert_eq!(values(seen), values(0));
    assert_ne!(values(seen + 1), values(0), "one bar later the filter sees it");
}

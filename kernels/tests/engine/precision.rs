//! `f32` against `f64`: the errors that docs/precision.md publishes; and beside it on a device.

use std::sync::Arc;

use trawl_kernels::cuda::{BarsSource, SourceSymbol};
use trawl_kernels::stages::Stages;
use trawl_kernels::{Bars, Executable, NoCancel, Precision, SymbolInput, Tiles};
use trawl_plan::{Input, Schema, compile_expressions};

use crate::calls::{INDICATORS, WINDOWS};
use crate::device::{bits, last_of, plan, waits, world};
use crate::fused::{inputs, market};

const COLUMNS: [&str; 5] = ["open", "high", "low", "close", "volume"];
const PUBLISHED: &str = include_str!("../../../docs/precision.md");

/// One symbol's bars: a seeded walk on a cent grid, volumes up to a million.
fn walk(symbol: u64, bars: usize) -> Vec<Vec<f64>> {
    let mut state = (0x5eed ^ symbol.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 11) % below) as i64
    };
    let mut columns = vec![Vec::new(); 5];
    let mut cents = 2_000 + random(40_000);
    for _ in 0..bars {
        let open = cents;
        cents = (cents + random(201) - 100).max(500);
        let (high, low) = (open.max(cents) + random(80), open.min(cents) - random(80));
        let row = [open, high, low, cents, (random(900_000) + 100_000) * 100];
        columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value as f64 / 100.0));
    }
    columns
}

/// Rows of the published table: expression, what the error is relative to, the largest error.
fn rows() -> Vec<(String, String, f64)> {
    let cells = |line: &'static str| line.split('|').map(str::trim).collect::<Vec<&str>>();
    let row = |cells: Vec<&str>| match cells[..] {
        ["", expression, unit, most, ""] => {
            most.parse().ok().map(|most| (expression.trim_matches('`').to_owned(), unit.to_owned(), most))
        }
        _ => None,
    };
    PUBLISHED.lines().map(cells).filter_map(row).collect()
}

/// The last bar computed alone, and symbols computed together, have the bits of the whole history of one symbol.
#[test]
fn what_is_computed_beside_does_not_change_a_bit_of_f32() {
    let windows = WINDOWS.map(|f| format!("{f}(real=close, timeperiod=5)"));
    let more = ["correl(high, low, 7)", "beta(high, low)", "ht_dcphase()", "sar()", "since(close > open)"];
    let more = more.into_iter().chain(INDICATORS).map(str::to_owned);
    let items: Vec<String> = windows.into_iter().chain(more).collect();
    let plan = compile_expressions(&items, "test", &Schema::of_columns(COLUMNS.map(str::to_owned).to_vec()));
    let plan = plan.unwrap_or_else(|d| panic!("{}", d[0]));
    let program = plan.program();
    let narrow = Executable::new(program, Precision::F32);
    let market: Vec<Vec<Vec<f64>>> = (0..20).map(|i| walk(i, 90 + 37 * i as usize)).collect();
    let column = |bars: &'_ [Vec<f64>], input: &Input| match input {
        Input::Column(name) => COLUMNS.iter().position(|c| c == name).map(|c| bars[c].clone()).expect("a column"),
        other => panic!("{other:?} in a bare expression"),
    };
    let columns: Vec<Vec<Vec<f64>>> =
        market.iter().map(|bars| program.inputs.iter().map(|i| column(bars, i)).collect()).collect();
    let inputs: Vec<SymbolInput<'_>> = columns
        .iter()
        .map(|c| SymbolInput { columns: c.iter().map(Vec::as_slice).collect(), visible: c[0].len() })
        .collect();
    let together = narrow.evaluate_last(&inputs, &NoCancel).expect("not cancelled");
    let wide = Executable::new(program, Precision::F64).evaluate_last(&inputs, &NoCancel).expect("not cancelled");
    assert_ne!(together, wide, "it is another precision");
    for (input, got) in inputs.iter().zip(&together) {
        let whole = narrow.evaluate_from(std::slice::from_ref(input), &[0], &NoCancel);
        for ((item, series), got) in items.iter().zip(&whole.expect("not cancelled").nested()[0]).zip(got) {
            let last = series.last().expect("a bar");
            assert!(last.to_bits() == got.to_bits(), "{item}: {last} of the whole history, {got} among others");
            assert!(got.is_nan() || f64::from(*got as f32) == *got, "{item}: {got} is no f32");
        }
    }
}

#[test]
fn f32_is_off_by_no_more_than_is_published() {
    let rows = rows();
    assert!(rows.len() > 15, "the table is there");
    let market: Vec<Vec<Vec<f64>>> = (0..640).map(|i| walk(i, 300 + 3 * i as usize)).collect();
    let inputs: Vec<SymbolInput<'_>> = market
        .iter()
        .map(|bars| SymbolInput { columns: bars.iter().map(Vec::as_slice).collect(), visible: bars[0].len() })
        .collect();
    let names = COLUMNS.map(str::to_owned);
    let tiles = [Precision::F64, Precision::F32].map(|precision| Tiles::new(&names, &inputs, precision));
    let schema = Schema::of_columns(names.to_vec());
    let mut wrong = Vec::new();
    for (expression, unit, published) in rows {
        let plan = compile_expressions(std::slice::from_ref(&expression), "test", &schema).expect("legal");
        let executable = Executable::new(plan.program(), Precision::F64);
        let [exact, short] = [&tiles[0], &tiles[1]]
            .map(|tiles| executable.evaluate_tiles(tiles, Bars::All, &NoCancel).expect("not cancelled"));
        let mut most = 0.0f64;
        for ((exact, short), bars) in exact.iter().zip(&short).zip(&market) {
            let scale = match unit.as_str() {
                "price" => *bars[3].last().expect("a bar"),
                "volume" => bars[4].iter().sum(),
                _ => 1.0,
            };
            assert!(exact[0].is_finite() && short[0].is_finite(), "{expression}");
            most = most.max((exact[0] - short[0]).abs() / scale);
        }
        if most > published || most < published / 100.0 {
            wrong.push(format!("{expression}: {most:.1e} of a {unit}, published {published:.0e}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The same bars, as numbers of 8 and of 4 bytes: neither is taken for the other, whichever comes first, and each is found
/// again.
#[test]
fn bars_of_both_precisions_stay_on_the_device_beside_each_other() {
    let (program, bars) = (plan(), market(&[240, 17, 33, 100, 1, 239].repeat(9), 5));
    let symbols = inputs(&program, &bars, &[]);
    let names: Vec<String> = (0..symbols.len()).map(|i| format!("S{i}")).collect();
    let names: Vec<SourceSymbol<'_>> = names.iter().map(|name| name.as_str().into()).collect();
    let from = last_of(&symbols);
    for order in [[Precision::F64, Precision::F32], [Precision::F32, Precision::F64]] {
        let world = world("", waits());
        let mut resident = Vec::new();
        for precision in [order, order].concat() {
            let executable = Executable::new(&program, precision);
            let source = BarsSource { bars: Arc::from("a@1"), group: 0, symbols: &names };
            let stages = &mut Stages::default();
            let got = world.executor.evaluate_from(&executable, &symbols, &from, Some(&source), &NoCancel, stages);
            let want = executable.evaluate_from(&symbols, &from, &NoCancel).expect("not cancelled");
            assert!(bits(&got.expect("a healthy device")) == bits(&want), "{precision:?} of {order:?}");
            resident.push(world.executor.resident_bytes());
        }
        let bytes = |at: usize| (resident[at] - if at > 0 { resident[at - 1] } else { 0 }) as f64;
        let halves = if order[0] == Precision::F64 { bytes(0) / bytes(1) } else { bytes(1) / bytes(0) };
        assert_eq!(halves, 2.0, "{resident:?}");
        assert_eq!(resident[1], resident[3], "all were found again");
    }
}

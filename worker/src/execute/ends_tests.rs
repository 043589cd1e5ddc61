//! Symbols that forget, that do not, and whose bars say less than is needed, in one segment: the bits of whole histories.

use std::fmt::Write as _;
use std::fs;

use trawl_kernels::NoCancel;
use trawl_market::{Adjustment, Appending, ImportOptions, Store, import_files};
use trawl_plan::ScanDocument;

use crate::execute::newest::tests::{Market, selecting};
use crate::execute::{ScanStep, StepKind};

/// Minutes: two chunks and a part of one.
const BARS: i64 = 9_000;
const MINUTE: i64 = 60_000_000;
/// Steps of the last stage of a scan without cross-sections.
const STEP: ScanStep = ScanStep { stage: 0, kind: StepKind::Values };

/// Prices of six symbols: one moves, one stopped moving, one was a million times as dear before, one has missing bids, one has no bar at
/// the end, and one is short. The last bars were appended.
fn market(splits: &str) -> Market {
    let folder = tempfile::tempdir().unwrap();
    let header = "symbol,time,open,high,low,close,volume,bid\n";
    let (mut bars, mut appended, mut state) = (header.to_owned(), header.to_owned(), 1u64);
    for (symbol, first) in [("DEAR", 0), ("FLAT", 0), ("GAPS", 0), ("GONE", 0), ("MOVE", 0), ("TINY", BARS - 500)] {
        let mut close = 100.0;
        for bar in first..BARS {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let step = ((state >> 33) % 201) as f64 / 100.0 - 1.0;
            let open = close;
            close = f64::max(close + if symbol == "FLAT" && bar > 2_000 { 0.0 } else { step }, 1.0);
            let by = if symbol == "DEAR" && bar < 1_000 { 1e6 } else { 1.0 };
            let [open, high, low, last] = [open, open.max(close) + 0.5, open.min(close) - 0.5, close].map(|v| v * by);
            let bid = if symbol == "GAPS" && bar % 61 == 7 { String::new() } else { low.to_string() };
            if symbol == "GONE" && bar > BARS - 100 {
                break;
            }
            let time = trawl_market::format_time(1_700_000_000_000_000 / MINUTE * MINUTE + bar * MINUTE);
            let to = if bar < BARS - 50 { &mut bars } else { &mut appended };
            writeln!(to, "{symbol},{time},{open},{high},{low},{last},{},{bid}", 1 + state % 1000).unwrap();
        }
    }
    let [file, later, factors] = ["bars.csv", "later.csv", "splits.csv"].map(|name| folder.path().join(name));
    for (file, text) in [(&file, &*bars), (&later, &*appended), (&factors, splits)] {
        fs::write(file, text).unwrap();
    }
    let store = Store::new(folder.path().join("data"));
    let options = ImportOptions {
        dataset: "m".to_owned(),
        files: vec![file],
        timeframe: "1m".parse().ok(),
        calendar: Some("24/7".to_owned()),
        factors: (!splits.is_empty()).then_some(factors),
        ..ImportOptions::default()
    };
    import_files(&store, &options).unwrap();
    let more = ImportOptions { files: vec![later], factors: None, appending: Appending::Always, ..options };
    import_files(&store, &more).unwrap();
    Market { folder, dataset: store.open("m").unwrap(), adjustment: Adjustment::NONE }
}

/// Per symbol of the market's only group, whether its end suffices.
fn forgotten(market: &Market, text: &str) -> Vec<(String, bool)> {
    let source = market.source(&selecting(vec![format!("{text} as x")]));
    let newest = source.newest_bars_read(0, STEP, &Default::default());
    let bars = source.load_segment_newest(0, newest).unwrap();
    let found = source.forgotten((0, source.forgetting(STEP).unwrap()), STEP, &bars, &NoCancel).unwrap();
    bars.iter().map(|bars| bars.symbol.to_string()).zip(found).collect()
}

const FUNCTIONS: [&str; 6] =
    ["rsi(close, 14)", "ema(close, 20)", "macd().hist", "atr(14)", "ema(bid, 9)", "close / ema(sma(close, 20), 9)"];

#[test]
fn symbols_that_do_not_forget_are_read_whole() {
    let market = market("");
    for text in FUNCTIONS {
        assert_eq!(market.compare(&selecting(vec![format!("{text} as x")])), [Some(4_096)], "{text}");
    }
    let sweep = "where = 'close > ema(close, n)'\nselect = ['rsi(close, n) as r']\n[sweep]\nn = [5, 9, 14]\n";
    assert_eq!(market.compare(&ScanDocument::from_toml(sweep).unwrap()), [Some(4_096)]);
    let of = |text: &str| {
        let found = forgotten(&market, text).into_iter().filter(|(_, found)| *found);
        found.map(|(symbol, _)| symbol).collect::<Vec<_>>()
    };
    // Gains of what does not move are zeros, to which every number shrinks alike; and a mean of one price stays beside it, above or
    // below, wherever it came from.
    assert_eq!(of("rsi(close, 14)"), ["DEAR", "GAPS", "GONE", "MOVE", "TINY"]);
    assert_eq!(of("ema(close, 20)"), ["DEAR", "GAPS", "GONE", "MOVE", "TINY"]);
    assert_eq!(of("ema(close, 2)"), ["DEAR", "FLAT", "GAPS", "GONE", "MOVE", "TINY"]);
}

#[test]
fn splits_raise_what_may_have_been() {
    let mut market = market("symbol,date,split\nMOVE,2023-11-16,0.001\nGAPS,2023-11-15,7\n");
    // With dividends everything is read: they are compared with closes.
    for (adjustment, suffice) in [("none", 5), ("split", 5), ("split+dividend", 6)] {
        market.adjustment = Adjustment::parse(adjustment).unwrap();
        for text in FUNCTIONS {
            assert_eq!(market.compare(&selecting(vec![format!("{text} as x")])), [Some(4_096)], "{text}");
        }
        let found = forgotten(&market, "ema(close, 20)");
        assert_eq!(found.iter().filter(|(_, found)| *found).count(), suffice, "{adjustment}: {found:?}");
    }
}

#[test]
fn without_magnitudes_of_what_is_not_read_everything_is_read() {
    let market = market("");
    for file in fs::read_dir(market.folder.path().join("data/m/files")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "sums") {
            fs::remove_file(path).unwrap();
        }
    }
    let dataset = Store::new(market.folder.path().join("data")).open("m").unwrap();
    let market = Market { dataset, ..market };
    let source = market.source(&selecting(vec!["rsi(close, 14) as x".to_owned()]));
    assert_eq!(source.newest_bars_read(0, STEP, &Default::default()), None, "the ends would be read besides");
    // What is read whole is given its magnitudes in memory.
    let document = selecting(vec!["rsi(close, 14) as x".to_owned()]);
    assert_eq!(market.compare(&document), [Some(4_096)]);
}

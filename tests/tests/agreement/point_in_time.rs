//! With an answer at every bar, each row is that of a scan as of that bar, whatever splits and dividends become known
//! between the bars. Random markets with random factor tables, byte for byte.

use trawl_coordinator::local::LocalOptions;
use trawl_coordinator::{all_bars, answer_digest, prepare_opened};
use trawl_kernels::NoCancel;
use trawl_market::{Dataset, FactorRow, MemoryMarket, SymbolBars, TimeMicros, format_time, memory_dataset, parse_time};
use trawl_plan::ScanDocument;
use trawl_tests::reference::random::Random;

use super::every_bar::digest;

const DAY: TimeMicros = 86_400_000_000;
const MINUTE: TimeMicros = 60_000_000;
const COLUMNS: [&str; 5] = ["open", "high", "low", "close", "volume"];

/// Scans with every kind of access to history: windows, recursions, references, higher bars, cross-sections at the
/// as-of and before it, one within another.
const SCANS: [(&str, Option<&str>, &str); 8] = [
    ("close > sma(close, 7)", None, "volume"),
    ("rsi(close, 5) < 60", Some("close > 4"), "ema(close, 9)"),
    ("roc(close, 3) > roc(ref('S0', close), 3)", None, "ref('S1', sma(close, 4))"),
    ("xs_rank(close) <= 3", Some("close > 3"), "xs_pct(roc(close, 5))"),
    ("within(xs_rank(close * volume) <= 2, 3)", None, "xs_z(close)[2]"),
    ("xs_rank(sma(xs_pct(close), 3)) <= 3", None, "breadth(close > close[1])"),
    ("tf('1w', close) > tf('1w', sma(close, 2))", None, "highest(high, 10)"),
    ("obv(close, volume) > 0 and close > vwap()", None, "xs_rank(ref('S0', close) - close)"),
];

/// Daily bars, or half-hour bars of XNYS, of a few symbols, all with splits and dividends.
fn market(random: &mut Random, dated: bool) -> Dataset {
    let symbols = 3 + random.below(5) as usize;
    let start = parse_time("2024-02-26").expect("a date");
    let calendar = trawl_market::Calendar::XNYS;
    let mut times = Vec::new();
    let mut date = start;
    while times.len() < 60 {
        if let Some(session) = calendar.session_on(date) {
            if dated {
                times.push(date);
            } else {
                // A bar before the open, two in the session, one after the close past midnight UTC.
                times.extend([session.open - 5 * 60 * MINUTE, session.open, session.open + 30 * MINUTE]);
                times.push(session.close + 4 * 60 * MINUTE + 30 * MINUTE);
            }
        }
        date += DAY;
    }
    let bars = |n: usize| {
        let mut price = 4.0 + random_f64(random) * 100.0;
        let kept: Vec<TimeMicros> = times.iter().copied().filter(|_| random.below(12) > 0).collect();
        let mut columns = vec![Vec::new(); COLUMNS.len()];
        for _ in &kept {
            price *= 0.95 + 0.1 * random_f64(random);
            let close = (price * 100.0).round() / 100.0;
            let row = [close, close + 0.25, close - 0.25, close, (random.below(9000) + 1) as f64];
            columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
        }
        SymbolBars { symbol: format!("S{n}").as_str().into(), times: kept, columns }
    };
    let bars: Vec<SymbolBars> = (0..symbols).map(bars).collect();
    let mut factors: Vec<FactorRow> = Vec::new();
    for n in 0..symbols {
        for _ in 0..random.below(5) {
            let date = start + random.below(95) as i64 * DAY;
            if factors.iter().all(|f| f.date != date || f.symbol != format!("S{n}")) {
                let split = [1.0, 1.0, 2.0, 0.1, 1.5][random.below(5) as usize];
                let dividend = if split == 1.0 { 0.3 } else { 0.0 };
                factors.push(FactorRow { symbol: format!("S{n}"), date, split, dividend });
            }
        }
    }
    memory_dataset(MemoryMarket {
        name: "pit".to_owned(),
        timeframe: if dated { "1d" } else { "30m" }.parse().unwrap(),
        calendar: "XNYS".to_owned(),
        columns: COLUMNS.map(str::to_owned).to_vec(),
        bars,
        factors,
        groups: Some(2),
        ..MemoryMarket::default()
    })
    .expect("a market")
}

fn random_f64(random: &mut Random) -> f64 {
    random.below(1 << 20) as f64 / f64::from(1 << 20)
}

#[test]
fn a_row_of_all_bars_is_the_answer_as_of_that_bar_over_random_splits_and_dividends() {
    let mut differ_from_last = 0;
    for seed in 0..12u64 {
        let mut random = Random::new(7_000 + seed);
        let dataset = market(&mut random, seed % 3 != 0);
        for (n, (condition, universe, select)) in SCANS.into_iter().enumerate() {
            let adjust = ["split", "split+dividend"][(seed as usize + n) % 2];
            let document = ScanDocument {
                dataset: Some("pit".to_owned()),
                condition: condition.to_owned(),
                universe: universe.map(str::to_owned),
                select: vec!["close".to_owned(), select.to_owned()],
                adjust: Some(adjust.to_owned()),
                ..ScanDocument::default()
            };
            let walked = walk(&dataset, &document);
            assert_eq!(walked.len(), dataset.times().expect("times").len());
            for (time, expected) in &walked {
                let plain = prepare_opened(dataset.clone(), &document, Some(*time)).expect("a scan");
                assert_eq!(
                    digest(&plain, 2),
                    *expected,
                    "seed {seed}: '{condition}' with {adjust} as of {}",
                    format_time(*time)
                );
            }
            let last = ScanDocument { adjust: Some(format!("{adjust}@last")), ..document };
            let looked_ahead = walk(&dataset, &last);
            assert_eq!(looked_ahead.last(), walked.last(), "at the last bar there is nothing ahead");
            differ_from_last += usize::from(looked_ahead != walked);
        }
    }
    assert!(differ_from_last > 60, "only {differ_from_last} scans saw a split or a dividend");
}

fn walk(dataset: &Dataset, document: &ScanDocument) -> Vec<(TimeMicros, String)> {
    let prepared = prepare_opened(dataset.clone(), document, None).expect("a scan");
    let options = LocalOptions { threads: 2, ..LocalOptions::default() };
    let mut walked = Vec::new();
    // Small chunks, so that their borders are crossed.
    all_bars(&prepared, options, None, 32 << 10, &NoCancel, |time, answer| {
        walked.push((time, answer_digest(&answer)));
        Ok(())
    })
    .expect("every bar");
    walked
}

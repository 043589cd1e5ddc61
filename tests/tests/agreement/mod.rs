//! The engine against the reference: random scans on random markets, every symbol at every bar.
//!
//! Statuses and flags must be equal and values within 1e-9. Where rounding alone could decide, the two may differ: a
//! decision whose row is flagged `edge`, or a value or decision that the reference itself changes when its arithmetic
//! is disturbed in the twelfth digit. Both kinds are counted and must stay rare.
//!
//! `TRAWL_AGREEMENT_CASES` and `TRAWL_AGREEMENT_SEED` choose how many scans and which; `just agreement` runs 100,000.

mod compare;
mod cut;
mod engine;
mod every_bar;
mod history;
mod point_in_time;
mod rules;
mod why;

use std::collections::BTreeMap;

use compare::{DISTURBED_MAX, Disagreement, Tally, compare};
use engine::GRAMMAR;
use trawl_tests::reference::minimise::minimise;
use trawl_tests::reference::random::Random;
use trawl_tests::reference::{Market, Scan, generate, generate_market};

/// Default number of scans: well below two minutes on two cores.
const CASES: u64 = 2_000;
/// Of bars of minutes: one for so many of the others.
const MINUTES_SHARE: u64 = 8;
/// Scans that share a market.
const SCANS_PER_MARKET: u64 = 8;
/// Excused rows per thousand, above which the excuses would hide something.
const EXCUSED_PER_MILLE_MAX: u64 = 5;
/// Rows per million that took more than the first disturbed references to explain.
const SEARCHED_PER_MILLION_MAX: u64 = 50;
/// Disagreements shown in full.
const SHOWN_MAX: usize = 5;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// A random market and a scan of it.
type Case = fn(u64) -> (Market, Scan);

fn case(seed: u64) -> (Market, Scan) {
    let market = generate_market::market(&mut Random::new(seed / SCANS_PER_MARKET));
    let scan = generate::scan(&mut Random::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d)), GRAMMAR, &market);
    (market, scan)
}

/// Of minutes, where longer bars have five.
fn case_of_minutes(seed: u64) -> (Market, Scan) {
    let market = generate_market::minutes(&mut Random::new(seed / SCANS_PER_MARKET));
    let scan = generate::scan(&mut Random::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d)), GRAMMAR, &market);
    (market, scan)
}

/// A minimised disagreement, as text.
fn report(seed: u64, first: &Disagreement, market: Market, scan: Scan) -> String {
    let kind = first.kind;
    let same = |m: &Market, s: &Scan| compare(m, s, 64).is_err_and(|(d, _)| d.kind == kind);
    let (market, scan) = minimise(market, scan, same);
    let again = compare(&market, &scan, 0).err().map_or_else(|| first.text.clone(), |(d, _)| d.text);
    let bars: usize = market.symbols.iter().map(|s| s.days.len()).sum();
    let mut text = format!("seed {seed}, {kind}: {again}\n{}", scan.text());
    if bars <= 100 {
        for symbol in &market.symbols {
            text += &format!("  {} {:?} {:?}\n", symbol.name, symbol.labels, symbol.events);
            for (day, row) in symbol.days.iter().zip(&symbol.bars) {
                text += &format!("    {day} {row:?}\n");
            }
        }
    } else {
        text += &format!("  ({bars} bars of {} symbols)\n", market.symbols.len());
    }
    text
}

#[test]
fn the_engine_agrees_with_the_reference_on_random_scans_and_markets() {
    agrees("days", case, number("TRAWL_AGREEMENT_CASES", CASES));
}

#[test]
fn the_engine_agrees_with_the_reference_on_random_scans_of_minutes() {
    agrees("minutes", case_of_minutes, number("TRAWL_AGREEMENT_CASES", CASES).div_ceil(MINUTES_SHARE));
}

/// That all cases of a kind agree, and that few of them are excused.
fn agrees(bars: &str, case: Case, cases: u64) {
    let first = number("TRAWL_AGREEMENT_SEED", 1_000_000);
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let results: Vec<(Tally, BTreeMap<u64, Disagreement>)> = std::thread::scope(|scope| {
        let part = |thread: u64| {
            let mut tally = Tally::default();
            let mut failures = BTreeMap::new();
            for seed in (first + thread..first + cases).step_by(threads as usize) {
                let (market, scan) = case(seed);
                match compare(&market, &scan, DISTURBED_MAX) {
                    Ok(one) => tally.add(&one),
                    Err((disagreement, one)) => {
                        tally.add(&one);
                        failures.insert(seed, disagreement);
                    }
                }
            }
            (tally, failures)
        };
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || part(thread))).collect();
        handles.into_iter().map(|handle| handle.join().expect("a thread of the comparison")).collect()
    });
    let mut tally = Tally::default();
    let mut failures = BTreeMap::new();
    for (one, more) in results {
        tally.add(&one);
        failures.extend(more);
    }
    println!("{cases} scans of {bars} from seed {first}: {tally}");
    // One of each kind first, because the same bug fails many scans.
    let mut kinds: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (seed, disagreement) in &failures {
        kinds.entry(disagreement.kind).or_default().push(*seed);
    }
    let shown = kinds.values().flat_map(|seeds| seeds.iter().take(SHOWN_MAX.div_ceil(kinds.len())));
    let texts: Vec<String> = shown
        .map(|seed| {
            let (market, scan) = case(*seed);
            report(*seed, &failures[seed], market, scan)
        })
        .collect();
    assert!(failures.is_empty(), "{} of {cases} scans disagree: {tally}\n\n{}", failures.len(), texts.join("\n"));
    assert!(tally.matched > 0 && tally.values > 0, "nothing was compared: {tally}");
    assert!(tally.excused() * 1000 <= tally.rows * EXCUSED_PER_MILLE_MAX, "rounding decides too many rows: {tally}");
    assert!(
        tally.searched * 1_000_000 <= tally.rows * SEARCHED_PER_MILLION_MAX + 1_000_000,
        "too many searches: {tally}"
    );
}

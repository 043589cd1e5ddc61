//! `history = { bars = N }` compared with the whole history: rule 9.
//!
//! Windows are unaffected: the same decisions but for those flagged `edge`, and values within 1e-12. Exponential and
//! Wilder filters start [`PERIODS`] periods early, and the remaining difference is known: a filter that is started at
//! another bar differs by the difference of its states there, times its decay over the bars since. So `ema`, `atr` and
//! `rsi` are compared with that number itself; `macd` and `adx`, which consist of several filters, with its upper
//! bound. Functions that never forget begin at the window's first bar, as on bars that are cut there, or are refused.

use std::collections::BTreeSet;

use trawl_plan::{History, ScanDocument};
use trawl_tests::reference::evaluate::UNBOUNDED;
use trawl_tests::reference::expression::{Expr, Node};
use trawl_tests::reference::generate::{Grammar, scan};
use trawl_tests::reference::generate_market::market;
use trawl_tests::reference::market::{Symbol, new_york_sessions};
use trawl_tests::reference::minimise::minimise;
use trawl_tests::reference::random::Random;
use trawl_tests::reference::{Market, Scan};

use super::compare::{Disturbed, close};
use super::engine::{EngineRow, dataset, document, engine_answer, engine_answers};
use super::number;

/// Periods of warm-up that are promised.
const PERIODS: u32 = 12;
/// Default number of random scans of windows.
const CASES: u64 = 500;
/// Days on which each of them is evaluated.
const DAYS: u64 = 3;
/// Relative difference of values that agree.
const TOLERANCE: f64 = 1e-12;
/// Rows per thousand that may depend on rounding.
const EXCUSED_PER_MILLE_MAX: u64 = 2;

fn limited(bars: u32, origin: bool) -> Option<History> {
    Some(History { bars, origin })
}

/// What was compared.
#[derive(Debug, Default)]
struct Tally {
    rows: u64,
    values: u64,
    /// Values whose bits differ.
    rounded: u64,
    edges: u64,
    /// Decisions and values that disturbed arithmetic changes too.
    excused: u64,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.values += other.values;
        self.rounded += other.rounded;
        self.edges += other.edges;
        self.excused += other.excused;
    }
}

/// One scan at some days under a limit; the disagreement as text.
fn compare(market: &Market, scan: &Scan, seed: u64, tally: &mut Tally) -> Result<(), String> {
    let whole = engine_answers(market, scan)?;
    let data = dataset(market)?;
    let mut random = Random::new(seed);
    let disturbed = Disturbed::new(market, scan, market.days(), 0);
    for _ in 0..DAYS {
        let at = random.below(whole.len() as u64) as usize;
        let bars = random.pick(&[1, 1, 1, 2, 5, 30]);
        let (day, whole) = &whole[at];
        let limited = ScanDocument { history: limited(bars, false), ..document(scan) };
        let seen = engine_answer(&data, &limited, *day)?;
        if seen.len() != whole.len() {
            return Err(format!("day {day}: {} rows instead of {}", seen.len(), whole.len()));
        }
        for whole in whole {
            let seen = seen.iter().find(|row| row.symbol == whole.symbol).ok_or("a row is missing")?;
            let symbol = market.find(&whole.symbol).ok_or("an unexpected row")?;
            let rows = || disturbed.rows(at, symbol);
            let place = format!("{} on day {day}, {bars} bars", whole.symbol);
            tally.rows += 1;
            if seen.status != whole.status {
                if seen.edge == Some(true) || whole.edge == Some(true) {
                    tally.edges += 1;
                } else if rows().iter().any(|row| row.status == seen.status) {
                    tally.excused += 1;
                } else {
                    return Err(format!("{place}: {:?} instead of {:?}", seen.status, whole.status));
                }
                continue;
            }
            let both = |row: &EngineRow| [&row.rank[..], &row.select].concat();
            for (i, (a, b)) in both(seen).into_iter().zip(both(whole)).enumerate() {
                tally.values += 1;
                tally.rounded += u64::from(a.to_bits() != b.to_bits() && !(a.is_nan() && b.is_nan()));
                if close(a, b, TOLERANCE) {
                    continue;
                }
                // Decided by the twelfth digit inside the expression: a sign, a rounding, a place.
                let value = |row: &&trawl_tests::reference::Row| {
                    row.rank.iter().chain(&row.select).nth(i).copied().flatten().unwrap_or(f64::NAN)
                };
                let others: Vec<f64> = rows().iter().map(value).collect();
                if others.iter().all(|o| close(*o, b, 1e3 * TOLERANCE)) {
                    return Err(format!("{place}: value {i} is {a:?} instead of {b:?}; disturbed {others:?}"));
                }
                tally.excused += 1;
            }
        }
    }
    Ok(())
}

/// One random scan; a disagreement is minimised and reported.
fn check(seed: u64, tally: &mut Tally) {
    let grammar = Grammar { frames: true, helpers: true, finite: true, mixed: false };
    let whole = market(&mut Random::new(seed / 8));
    let scan = scan(&mut Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a)), grammar, &whole);
    if let Err(first) = compare(&whole, &scan, seed, tally) {
        let fails = |m: &Market, s: &Scan| compare(m, s, seed, &mut Tally::default()).is_err();
        let (market, scan) = minimise(whole, scan, fails);
        let again = compare(&market, &scan, seed, &mut Tally::default());
        panic!("seed {seed}: {first}\nsmaller: {again:?}\n{}", scan.text());
    }
}

#[test]
fn windows_are_unaffected_by_a_limited_history() {
    let cases = number("TRAWL_AGREEMENT_CASES", CASES);
    let first = number("TRAWL_AGREEMENT_SEED", 0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let mut tally = Tally::default();
    std::thread::scope(|scope| {
        let part = |thread: u64| {
            let mut tally = Tally::default();
            (first + thread..first + cases).step_by(threads as usize).for_each(|seed| check(seed, &mut tally));
            tally
        };
        let parts: Vec<_> = (0..threads).map(|thread| scope.spawn(move || part(thread))).collect();
        parts.into_iter().for_each(|part| tally.add(&part.join().expect("a thread of the comparison")));
    });
    println!("{tally:?}");
    assert!(tally.values > 0 && tally.excused * 1000 <= tally.rows * EXCUSED_PER_MILLE_MAX, "{tally:?}");
}

/// Two symbols that move by 0.25 to 1.5 at every bar, whose bars always extend beyond the previous ones: no mean of
/// gains and losses comes near 0, so that the remaining effect of a filter's start stays small in comparison.
fn walks(random: &mut Random) -> Market {
    let sessions = new_york_sessions();
    let symbol = |random: &mut Random, name: &str, bars: usize| {
        let mut symbol = Symbol { name: name.to_owned(), ..Symbol::default() };
        let mut price: f64 = 100.0;
        for day in &sessions[50..50 + bars] {
            let step = random.between(1, 6) as f64 * 0.25;
            let up = if price > 110.0 { false } else { price < 90.0 || random.once_in(2) };
            let open = price;
            price += if up { step } else { -step };
            symbol.days.push(*day);
            symbol.bars.push([open, price + 0.25, price - 0.25, price, 100.0]);
        }
        symbol
    };
    let symbols = vec![symbol(random, "LONG", 520), symbol(random, "SHORT", 480)];
    Market { symbols, sessions, ..Market::default() }
}

/// Values of `select` on a day, in the market's order.
fn values(data: &trawl_market::Dataset, select: &[String], history: Option<History>, day: i64) -> Vec<Vec<f64>> {
    let named = |(i, text): (usize, &String)| format!("{text} as c{i}");
    let document = ScanDocument {
        dataset: Some("market".to_owned()),
        condition: "true".to_owned(),
        select: select.iter().enumerate().map(named).collect(),
        history,
        ..ScanDocument::default()
    };
    let mut rows = engine_answer(data, &document, day).expect("a legal scan");
    rows.sort_by(|a, b| a.symbol.cmp(&b.symbol));
    rows.into_iter().map(|row| row.select).collect()
}

/// Wilder's mean of a series that is never negative, in the language: the true range of bars from 0 to it.
fn wilder(x: &str, p: u32) -> String {
    format!("atr(high={x}, low=0*close, close=0*close, timeperiod={p})")
}

const RANGE: &str = "maximum(maximum(high - low, abs(high - close[1])), abs(low - close[1]))";
const GAIN: &str = "maximum(close - close[1], 0)";
const LOSS: &str = "maximum(close[1] - close, 0)";

#[test]
fn filters_are_warmed_up_for_twelve_periods_and_no_bar_less() {
    let mut most = 0.0f64;
    for seed in 0..120u64 {
        let mut random = Random::new(seed);
        let market = walks(&mut random);
        let data = dataset(&market).expect("a market");
        let day = *market.symbols[1].days.last().expect("bars") - random.below(20) as i64;
        let (p, bars) = (random.between(2, 20) as u32, random.pick(&[1, 1, 2, 7, 40]));
        // Bars from the filter's first value to the bar that is compared.
        let k = PERIODS * p + bars - 1;
        let period = f64::from(p);
        let (exponential, wilders) = ((period - 1.0) / (period + 1.0), (period - 1.0) / period);
        // The filter, its input's mean and itself when it was started, and how fast it forgets.
        let part = |filter: String, x: &str| {
            let mean = format!("sma({x}, {p})[{k}]");
            [filter.clone(), mean, format!("{filter}[{k}]")]
        };
        let (gain, loss) = (wilder(GAIN, p), wilder(LOSS, p));
        for (text, parts, decay) in [
            (
                format!("ema(close - 100, {p})"),
                part(format!("ema(close - 100, {p})"), "(close - 100)").to_vec(),
                exponential,
            ),
            (format!("atr({p})"), part(format!("atr({p})"), RANGE).to_vec(), wilders),
            (format!("rsi({p})"), [part(gain, GAIN), part(loss, LOSS)].concat(), wilders),
        ] {
            let whole = values(&data, &[&[text.clone()][..], &parts].concat(), None, day);
            let seen = values(&data, std::slice::from_ref(&text), limited(bars, false), day);
            for (whole, seen) in whole.iter().zip(&seen) {
                let left = decay.powi(k as i32);
                let started = |part: &[f64]| part[0] + left * (part[1] - part[2]);
                let wanted = match &whole[1..] {
                    [a, b, c] => started(&[*a, *b, *c]),
                    both => 100.0 * started(&both[..3]) / (started(&both[..3]) + started(&both[3..])),
                };
                // Rounding of a few steps for each bar that the filter remembers.
                let rounding = 8.0 * period * f64::EPSILON * wanted.abs().max(10.0);
                assert!(
                    (seen[0] - wanted).abs() <= rounding,
                    "seed {seed}, {bars} bars: {text} is {:?}, on all bars {:?}, started {k} bars before {wanted:?}",
                    seen[0],
                    whole[0]
                );
                most = most.max((seen[0] - whole[0]).abs());
            }
        }
    }
    // The history was really limited.
    assert!(most > 1e-6, "{most:e}");
}

#[test]
fn filters_of_filters_stay_within_what_twelve_periods_leave() {
    // The largest step, true range and directional movement of `walks`, and the smallest movement.
    let (largest, smallest) = (1.5, 0.25);
    // Prices stay within 24 of each other, so any two means of them do.
    let spread = 24.0;
    for seed in 0..120u64 {
        let mut random = Random::new(seed);
        let market = walks(&mut random);
        let data = dataset(&market).expect("a market");
        let day = *market.symbols[1].days.last().expect("bars");
        let p = random.between(3, 14) as u32;
        let bars = random.pick(&[1, 1, 2, 7, 40]);
        let left = |decay: f64| decay.powi((PERIODS * p) as i32);
        let period = f64::from(p);
        // Two means of prices differ by the spread at most, each keeps so much of its start; the signal is a mean of
        // the difference, and the histogram has both.
        let macd = 4.0 * spread * left((period - 1.0) / (period + 1.0)) + 1e-11;
        // dx = 100*|u - d|/(u + d): sums of p movements whose start is wrong by at most p*largest, compared with at
        // least p*smallest (one less while the sum builds up). adx keeps so much of a start that is wrong by at most
        // 100.
        let wilders = left((period - 1.0) / period);
        let dx = 200.0 * period * largest / ((period - 1.0) * smallest) * wilders;
        let adx = 100.0 * wilders + dx;
        let fast = random.between(2, u64::from(p) - 1);
        let both = format!("macd(fastperiod={fast}, slowperiod={p}, signalperiod={p})");
        for (text, bound) in [
            (format!("{both}.line"), macd),
            (format!("{both}.signal"), macd),
            (format!("{both}.hist"), macd),
            (format!("bbands({p}, matype='ema').middle"), macd),
            (format!("adx({p})"), adx),
        ] {
            let text = [text];
            let whole = values(&data, &text, None, day);
            let seen = values(&data, &text, limited(bars, false), day);
            for (whole, seen) in whole.iter().zip(&seen) {
                let apart = (whole[0] - seen[0]).abs();
                assert!(apart <= bound, "seed {seed}, {bars} bars: {text:?} is off by {apart:e}, more than {bound:e}");
            }
        }
    }
}

/// Random expressions of functions that never forget, such that neither a window outside their parentheses nor a
/// function inside them sees bars before the first one of the history.
struct Unbounded<'r>(&'r mut Random);

impl Unbounded<'_> {
    fn leaf(&mut self) -> String {
        let leaves = ["close", "high", "hl2", "open", "nz(volume, 1)", "(close - open)", "maximum(close, open)"];
        self.0.pick(&leaves).to_owned()
    }

    /// Without sums, so that no bit depends on where bars are counted from.
    fn exact(&mut self, depth: u32) -> String {
        if depth == 0 {
            return self.leaf();
        }
        let (x, leaf) = (self.exact(depth - 1), self.leaf());
        let grown = match self.0.below(7) {
            0 => format!("obv({x}, volume)"),
            1 => format!("vwap(close={x})"),
            2 => format!("since({x} > {leaf})"),
            3 => format!("valuewhen({leaf} > open, {x})"),
            4 => format!("maxindex({x}, 3)"),
            5 => format!("crsi({x}, 3, 2, 3)"),
            _ => format!("valuewhen({x} > {leaf}, {leaf})"),
        };
        let n = self.0.between(1, 6);
        match self.0.below(7) {
            0 => format!("highest({grown}, {n})"),
            1 => format!("({grown} - {grown}[{n}])"),
            2 => format!("iff(close > open, {grown}, {leaf})"),
            3 => format!("xs_demean({grown})"),
            4 => format!("ema({grown}, {})", n + 1),
            _ => grown,
        }
    }

    fn with_sums(&mut self, depth: u32) -> String {
        let (x, n) = (self.exact(depth), self.0.between(2, 6));
        let name = self.0.pick(&["kama", "kama", "sma", "wma"]);
        let inner = if name == "kama" { x } else { format!("obv({x}, volume)") };
        format!("{name}({inner}, {n})")
    }
}

#[test]
fn with_an_origin_the_first_bar_of_the_window_is_the_beginning() {
    let (mut defined, mut differs) = (0, 0);
    for seed in 0..600u64 {
        let whole = market(&mut Random::new(seed / 8));
        let mut random = Random::new(seed);
        let days = whole.days();
        let day = days[random.below(days.len() as u64) as usize];
        let bars = random.pick(&[1, 2, 5, 12, 30, 60]);
        let mut cut = whole.clone();
        for symbol in &mut cut.symbols {
            let visible = symbol.days.partition_point(|d| *d <= day);
            // A symbol without a bar so far keeps the later ones: the dataset is the same, and they are not seen.
            if visible > 0 {
                symbol.days.drain(..visible.saturating_sub(bars as usize));
                symbol.bars.drain(..visible.saturating_sub(bars as usize));
            }
        }
        let depth = random.between(1, 3) as u32;
        let sums = random.once_in(3);
        let mut make = Unbounded(&mut random);
        let text = [if sums { make.with_sums(depth) } else { make.exact(depth) }];
        let (data, cut) = (dataset(&whole).expect("a market"), dataset(&cut).expect("a market"));
        let seen = values(&data, &text, limited(bars, true), day);
        let wanted = values(&cut, &text, None, day);
        let unlimited = values(&data, &text, None, day);
        assert_eq!(seen.len(), wanted.len());
        for (i, (seen, wanted)) in seen.iter().zip(&wanted).enumerate() {
            let (Some(&a), Some(&b)) = (seen.first(), wanted.first()) else {
                assert!(seen.is_empty() && wanted.is_empty(), "seed {seed}: {text:?}");
                continue;
            };
            let same =
                if sums { close(a, b, TOLERANCE) } else { a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()) };
            assert!(same, "seed {seed}, {bars} bars to day {day}: {text:?} is {a:?}, on cut bars {b:?}");
            defined += u32::from(!a.is_nan());
            differs += u32::from(unlimited[i].first().is_some_and(|whole| whole.to_bits() != a.to_bits()));
        }
    }
    println!("{defined} values, {differs} other than on all bars");
    assert!(defined > 500 && differs > 500, "{defined} values, {differs} other than on all bars");
}

/// Whether a tree needs the whole history of scanned symbols. References are seen in full; a cross-section looks at the
/// scanned symbols again. Lets that are used are noted.
fn needs_all(node: &Node, of_reference: bool, met: &mut BTreeSet<String>) -> bool {
    let mut found = false;
    let inside = match &**node {
        Expr::Ref { .. } => true,
        Expr::Cross { .. } => false,
        _ => of_reference,
    };
    match &**node {
        Expr::Let(name, _) => {
            met.insert(name.clone());
        }
        Expr::Call(call) => {
            let never_forgets = UNBOUNDED.contains(&call.name);
            found = !of_reference && (never_forgets || call.averages.iter().any(|a| a.1 == "kama"));
        }
        _ => {}
    }
    node.children().into_iter().fold(found, |found, child| needs_all(child, inside, met) || found)
}

#[test]
fn what_never_forgets_is_refused_unless_there_is_an_origin() {
    let grammar = Grammar { frames: true, helpers: true, finite: false, mixed: false };
    let mut refused = 0;
    for seed in 0..600u64 {
        let whole = market(&mut Random::new(seed / 8));
        let scan = scan(&mut Random::new(seed.wrapping_mul(0x51ed_270b)), grammar, &whole);
        let mut met = BTreeSet::new();
        let mut needs = false;
        for node in scan.roots() {
            needs |= needs_all(node, false, &mut met);
        }
        // A let that nothing uses is evaluated on the symbol's own bars.
        for (name, node) in &scan.lets {
            if met.insert(name.clone()) {
                needs |= needs_all(node, false, &mut met);
            }
        }
        let data = dataset(&whole).expect("a market");
        let day = whole.days()[0];
        let with = |origin| ScanDocument { history: limited(20, origin), ..document(&scan) };
        match engine_answer(&data, &with(false), day) {
            Ok(_) => assert!(!needs, "seed {seed} is not refused\n{}", scan.text()),
            Err(why) => {
                assert!(needs && why.contains("where the history begins"), "seed {seed}: {why}\n{}", scan.text());
                refused += 1;
            }
        }
        engine_answer(&data, &with(true), day).unwrap_or_else(|why| panic!("seed {seed}: {why}\n{}", scan.text()));
    }
    assert!((100..500).contains(&refused), "{refused} of 600 are refused");
}

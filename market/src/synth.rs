//! Synthetic markets of any size, marked as such wherever they are shown.
//!
//! Symbol k of a seed has the same bars on every machine, however many symbols there are: each symbol draws from its
//! own ChaCha stream, and the arithmetic uses only + - * / and square roots (not libm, whose last bits differ). The
//! bars look like stocks (volatility in clusters, fat tails, prices in cents, volume that follows the range; about one
//! symbol in ten listed late, some delisted early, some halted for a while) but say nothing about any real market. Days
//! are Monday to Friday without holidays; a session is 14:30 to 21:00 UTC all year.

use rayon::prelude::*;

use crate::arrow_file::SymbolBars;
use crate::calendar::Calendar;
use crate::draws::{Draws, cents, growth};
use crate::error::MarketError;
use crate::group::{group_of, groups_for};
use crate::group_writer::store_group;
use crate::limits::{GROUPS_MAX, SYMBOLS_MAX, SYMBOLS_PER_GROUP, SYNTH_BARS_MAX, SYNTH_GROUP_ROWS_MAX, SYNTH_ROWS_MAX};
use crate::manifest::Manifest;
use crate::snapshot::{Heading, WriteLock, assemble, unite};
use crate::store::Store;
use crate::time::{DAY, MINUTE, TimeMicros, add_months, parse_time};
use trawl_terms::{TimeUnit, Timeframe};

/// The market to generate.
#[derive(Debug, Clone, PartialEq)]
pub struct SynthOptions {
    /// Name of the new dataset.
    pub name: String,
    /// 1 to [`SYMBOLS_MAX`]; named `SYN00000` and so on.
    pub symbols: u32,
    /// Length of the market in bars, 1 to [`SYNTH_BARS_MAX`]; a symbol may have fewer.
    pub bars: u32,
    /// The same seed gives the same market.
    pub seed: u64,
    /// Such as `1d`; minutes and hours up to one session of 390 minutes.
    pub timeframe: Timeframe,
}

/// The generated market.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct SynthReport {
    /// Name.
    pub dataset: String,
    /// Its id.
    pub snapshot: String,
    /// Number of symbols.
    pub symbols: u64,
    /// Bars of all symbols.
    pub bars: u64,
    /// Number of groups.
    pub groups: u32,
    /// Bytes of its files.
    pub bytes: u64,
    /// Earliest bar.
    pub first_time: TimeMicros,
    /// Latest bar.
    pub last_time: TimeMicros,
}

/// Columns of a synthetic market.
const COLUMNS: [&str; 5] = ["open", "high", "low", "close", "volume"];
/// A Monday.
const FIRST_DAY: &str = "2000-01-03";
const SESSION_START: i64 = (14 * 60 + 30) * MINUTE;
const SESSION_MINUTES: u32 = 390;
/// Version of the generator: part of the origin, so of the snapshot id.
const GENERATOR: &str = "synth-1";

/// Generates a market and stores it as a new dataset (or finds that the same one exists).
///
/// Built group by group, so the memory needed is that of a few groups.
///
/// # Errors
/// [`MarketError::BadName`], [`MarketError::Limit`]; [`MarketError::Refused`] when the name is taken by other data;
/// [`MarketError::Io`], [`MarketError::Busy`].
pub fn synthesise(store: &Store, options: &SynthOptions) -> Result<SynthReport, MarketError> {
    crate::import::check_writable_name(&options.name)?;
    let timeframe = options.timeframe;
    check_limits(options, timeframe)?;
    let times = calendar(timeframe, options.bars);
    let groups = groups_for(options.symbols as usize);
    let mut members: Vec<Vec<u32>> = vec![Vec::new(); groups as usize];
    for k in 0..options.symbols {
        members[group_of(&symbol_name(k), groups) as usize].push(k);
    }
    let path = store.directory(&options.name);
    let name = &options.name;
    let _lock = WriteLock::take(&path, name)?;
    let origin = format!(
        "{GENERATOR} symbols={} bars={} seed={} timeframe={timeframe}",
        options.symbols, options.bars, options.seed
    );
    let head = store.newest(name)?;
    // The same market is generated again: that repairs damaged files.
    if head.is_some() && !store.open(name).is_ok_and(|d| d.manifest.origin == origin) {
        return Err(taken(name));
    }
    let sink = store.sink(name, None)?;
    let columns: Vec<String> = COLUMNS.map(str::to_owned).to_vec();
    let stored = (0..groups)
        .into_par_iter()
        .filter(|&group| !members[group as usize].is_empty())
        .map(|group| {
            let mut bars: Vec<SymbolBars> =
                members[group as usize].iter().map(|&k| symbol_bars(options.seed, k, &times)).collect();
            bars.sort_by(|a, b| a.symbol.cmp(&b.symbol));
            store_group(&sink, group, &columns, &bars)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut all_times = Vec::new();
    let mut files = Vec::with_capacity(stored.len());
    for group in stored {
        all_times = unite(all_times, &group.times);
        files.push((group.file, group.symbols));
    }
    let heading = Heading {
        name: name.clone(),
        timeframe,
        synthetic: true,
        origin,
        groups,
        columns,
        calendar: Calendar::WEEKDAYS,
        complete_to: None,
        factors: None,
        symbol_table: None,
        attributes: None,
    };
    let manifest = assemble(&sink, heading, files, all_times)?;
    match &head {
        Some(head) if head.snapshot != manifest.snapshot => return Err(taken(name)),
        head => sink.publish(&manifest, head.as_ref())?,
    }
    Ok(report(&manifest))
}

fn taken(name: &str) -> MarketError {
    MarketError::Refused(format!("dataset '{name}' exists already and holds other bars: choose another name"))
}

fn report(manifest: &Manifest) -> SynthReport {
    SynthReport {
        dataset: manifest.name.clone(),
        snapshot: manifest.snapshot.clone(),
        symbols: manifest.symbols.len() as u64,
        bars: manifest.bars,
        groups: manifest.groups,
        bytes: manifest.files.iter().map(|f| f.bytes).sum::<u64>() + manifest.times.bytes,
        first_time: manifest.first_time,
        last_time: manifest.last_time,
    }
}

fn check_limits(options: &SynthOptions, timeframe: Timeframe) -> Result<(), MarketError> {
    let at_most = |what: &str, found: u64, limit: u64| {
        if found <= limit { Ok(()) } else { Err(MarketError::Limit { what: what.to_owned(), found, limit }) }
    };
    let (symbols, bars) = (u64::from(options.symbols), u64::from(options.bars));
    if symbols == 0 || bars == 0 {
        let what = if symbols == 0 { "symbols" } else { "bars" };
        return Err(MarketError::Refused(format!("a synthetic market needs at least one of its {what}")));
    }
    at_most("symbols", symbols, SYMBOLS_MAX as u64)?;
    at_most("bars per symbol", bars, u64::from(SYNTH_BARS_MAX))?;
    at_most("bars of all symbols", symbols * bars, SYNTH_ROWS_MAX)?;
    at_most("groups", u64::from(groups_for(options.symbols as usize)), u64::from(GROUPS_MAX))?;
    at_most("bars of a group", symbols.min(SYMBOLS_PER_GROUP as u64) * bars, SYNTH_GROUP_ROWS_MAX)?;
    /// The last day of a market lies within some four hundred years.
    const DAYS_MAX: u64 = 150_000;
    let (count, bars) = (u64::from(timeframe.count), u64::from(options.bars));
    let days = match timeframe.unit {
        TimeUnit::Month => bars * count * 31,
        TimeUnit::Week => bars * count * 7,
        TimeUnit::Day => bars * count * 7 / 5,
        TimeUnit::Minute | TimeUnit::Hour => {
            let minutes = bar_minutes(timeframe);
            at_most("minutes of a bar", u64::from(minutes), u64::from(SESSION_MINUTES))?;
            bars / u64::from(SESSION_MINUTES.div_ceil(minutes)) * 7 / 5
        }
    };
    at_most("days from the first bar to the last", days, DAYS_MAX)
}

fn bar_minutes(timeframe: Timeframe) -> u32 {
    if timeframe.unit == TimeUnit::Hour { timeframe.count.saturating_mul(60) } else { timeframe.count }
}

fn symbol_name(k: u32) -> String {
    format!("SYN{k:05}")
}

/// Times of the market's bars; longer markets begin with the same times.
fn calendar(timeframe: Timeframe, bars: u32) -> Vec<TimeMicros> {
    let first = parse_time(FIRST_DAY).unwrap_or(0);
    let business_day = |n: i64| first + (n / 5 * 7 + n % 5) * DAY;
    let count = i64::from(timeframe.count);
    let at = |i: i64| match timeframe.unit {
        TimeUnit::Month => add_months(first, i * count),
        TimeUnit::Week => first + i * count * 7 * DAY,
        TimeUnit::Day => business_day(i * count),
        TimeUnit::Minute | TimeUnit::Hour => {
            let minutes = bar_minutes(timeframe);
            let a_day = i64::from(SESSION_MINUTES.div_ceil(minutes));
            business_day(i / a_day) + SESSION_START + i % a_day * i64::from(minutes) * MINUTE
        }
    };
    (0..i64::from(bars)).map(at).collect()
}

/// Bars at which a symbol trades: listed late (one in ten), delisted early (one in thirty), halted at times (one in
/// eight), always at least one bar.
fn trading(draws: &mut Draws, bars: usize) -> (usize, usize, Vec<(usize, usize)>) {
    let mut first = 0;
    let mut end = bars;
    if draws.uniform() < 0.1 {
        first = draws.below(bars * 9 / 10 + 1).min(bars - 1);
    }
    if draws.uniform() < 1.0 / 30.0 {
        end = bars - draws.below(bars / 2 + 1);
    }
    let end = end.max(first + 1);
    let mut halts = Vec::new();
    if draws.uniform() < 0.125 {
        for _ in 0..1 + draws.below(3) {
            let from = first + 1 + draws.below(end - first);
            halts.push((from, from + 1 + draws.below(10)));
        }
    }
    (first, end, halts)
}

fn symbol_bars(seed: u64, k: u32, times: &[TimeMicros]) -> SymbolBars {
    let mut draws = Draws::new(seed, k);
    let (first, end, halts) = trading(&mut draws, times.len());
    // Between about 3 and 300, most near 30.
    let mut close = cents(30.0 * growth(draws.normal() * 0.8));
    let base_volume = 400_000.0 * growth(draws.normal() * 1.2);
    let usual = 0.008 + 0.022 * draws.uniform();
    let drift = 0.0003 * draws.normal();
    let mut variance = usual * usual;
    let mut bars = SymbolBars {
        symbol: symbol_name(k).into(),
        times: Vec::with_capacity(end - first),
        columns: vec![Vec::with_capacity(end - first); COLUMNS.len()],
    };
    for (i, &time) in times.iter().enumerate().take(end).skip(first) {
        if halts.iter().any(|&(from, to)| (from..to).contains(&i)) {
            continue;
        }
        let deviation = variance.sqrt();
        // One bar in two hundred has news: four times the move.
        let news = if draws.uniform() < 0.005 { 4.0 } else { 1.0 };
        let shock = (deviation * news * draws.normal()).clamp(-0.25, 0.25);
        let gap = (0.4 * deviation * draws.normal()).clamp(-0.1, 0.1);
        let open = cents(close * (1.0 + gap));
        // A price that has drifted to an extreme is pulled back, so that a history never ends in pennies or billions.
        let pull = if close < 2.0 {
            0.01
        } else if close > 2_000.0 {
            -0.01
        } else {
            0.0
        };
        let next = cents(close * (1.0 + drift + pull + shock));
        let above = 0.6 * deviation * draws.uniform();
        let below = 0.6 * deviation * draws.uniform();
        let high = cents(open.max(next) * (1.0 + above)).max(open.max(next));
        let low = cents(open.min(next) * (1.0 - below)).min(open.min(next));
        let activity = shock.abs() / usual;
        let volume = (base_volume * growth(0.35 * draws.normal() + 0.25 * activity.min(6.0))).floor().max(1.0);
        bars.times.push(time);
        for (column, value) in bars.columns.iter_mut().zip([open, high, low, next, volume]) {
            column.push(value);
        }
        // Volatility comes in clusters: GARCH(1,1), kept within bounds.
        variance = 0.05 * usual * usual + 0.08 * shock * shock + 0.87 * variance;
        variance = variance.clamp(0.1 * usual * usual, 16.0 * usual * usual);
        close = next;
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;

    fn days(bars: u32) -> Vec<TimeMicros> {
        calendar("1d".parse().unwrap(), bars)
    }

    #[test]
    fn every_bar_is_a_good_bar() {
        for k in 0..300 {
            let b = symbol_bars(7, k, &days(400));
            assert!(!b.times.is_empty() && b.times.is_sorted_by(|a, b| a < b));
            for i in 0..b.times.len() {
                let [open, high, low, close, volume] = [0, 1, 2, 3, 4].map(|c| b.columns[c][i]);
                assert!(low > 0.0 && low <= open.min(close) && high >= open.max(close) && volume >= 1.0);
            }
        }
    }

    #[test]
    fn some_symbols_are_late_some_leave_early_some_have_gaps() {
        let times = days(500);
        let all: Vec<SymbolBars> = (0..1000).map(|k| symbol_bars(1, k, &times)).collect();
        let late = all.iter().filter(|b| b.times[0] != times[0]).count();
        let gone = all.iter().filter(|b| b.times.last() != times.last()).count();
        let full = all.iter().filter(|b| b.times.len() == times.len()).count();
        assert!((60..140).contains(&late), "{late}");
        assert!((10..90).contains(&gone), "{gone}");
        assert!((600..900).contains(&full), "{full}");
    }

    #[test]
    fn one_bar_is_enough() {
        for k in 0..200 {
            assert_eq!(symbol_bars(3, k, &days(1)).times.len(), 1);
        }
    }

    #[test]
    fn returns_have_clusters_and_a_sane_size() {
        let b = symbol_bars(11, 2, &days(20_000));
        let close = &b.columns[3];
        let returns: Vec<f64> = close.windows(2).map(|w| w[1] / w[0] - 1.0).collect();
        let n = returns.len() as f64;
        let variance = returns.iter().map(|r| r * r).sum::<f64>() / n;
        assert!((0.005..0.06).contains(&variance.sqrt()), "{}", variance.sqrt());
        let fourth = returns.iter().map(|r| r * r * r * r).sum::<f64>() / n;
        assert!(fourth / (variance * variance) > 3.2, "fat tails");
    }

    #[test]
    fn sessions_hold_whole_bars_on_business_days() {
        let times = calendar("15m".parse().unwrap(), 27);
        assert_eq!(crate::format_time(times[0]), "2000-01-03T14:30:00Z");
        assert_eq!(crate::format_time(times[25]), "2000-01-03T20:45:00Z");
        assert_eq!(crate::format_time(times[26]), "2000-01-04T14:30:00Z");
        assert_eq!(crate::format_time(days(6)[5]), "2000-01-10");
        assert_eq!(crate::format_time(calendar("1w".parse().unwrap(), 2)[1]), "2000-01-10");
    }

    #[test]
    fn the_bits_of_a_symbol_never_change() {
        let b = symbol_bars(42, 5, &days(50));
        let mut bytes = Vec::new();
        for column in &b.columns {
            bytes.extend(column.iter().flat_map(|v| v.to_bits().to_le_bytes()));
        }
        assert_eq!(
            crate::manifest::sha256_hex(&bytes),
            "d04eda69e559935069ae8d2492ed21fcffeea3b141ff1182ce74c59cc961c1b8"
        );
    }
}

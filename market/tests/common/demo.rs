//! The invented market: its days are aggregated from its minutes, and it has what the examples need.

use std::collections::BTreeMap;

use trawl_market::{
    Adjustment, AsOf, Calendar, Dataset, LoadedBars, Store, Timeframe, check_resampling, format_time, higher_bars,
    parse_time,
};

const COLUMNS: [&str; 5] = ["open", "high", "low", "close", "volume"];

fn open(name: &str) -> Dataset {
    Store::new("/nonexistent/trawl-data".into()).open(name).unwrap()
}

fn all(dataset: &Dataset) -> BTreeMap<String, LoadedBars> {
    let columns = COLUMNS.map(str::to_owned);
    let groups = (0..dataset.manifest.groups).flat_map(|g| dataset.load_group(g, &columns).unwrap());
    groups.map(|b| (b.symbol.to_string(), b)).collect()
}

/// Simple returns by time.
fn returns(bars: &LoadedBars) -> BTreeMap<i64, f64> {
    let closes = &bars.columns[3];
    (1..closes.len()).map(|i| (bars.times[i], closes[i] / closes[i - 1] - 1.0)).collect()
}

fn correlation(a: &BTreeMap<i64, f64>, b: &BTreeMap<i64, f64>) -> f64 {
    let pairs: Vec<(f64, f64)> = a.iter().filter_map(|(t, &x)| Some((x, *b.get(t)?))).collect();
    let n = pairs.len() as f64;
    let (ma, mb) = (pairs.iter().map(|p| p.0).sum::<f64>() / n, pairs.iter().map(|p| p.1).sum::<f64>() / n);
    let cov: f64 = pairs.iter().map(|p| (p.0 - ma) * (p.1 - mb)).sum();
    let (va, vb): (f64, f64) =
        pairs.iter().fold((0.0, 0.0), |(u, v), p| (u + (p.0 - ma).powi(2), v + (p.1 - mb).powi(2)));
    cov / (va * vb).sqrt()
}

#[test]
fn demo_has_sixty_companies_with_sectors_and_an_index() {
    let demo = open("demo");
    let manifest = &demo.manifest;
    assert_eq!((manifest.symbols.len(), manifest.synthetic, manifest.timeframe.to_string().as_str()), (61, true, "1d"));
    assert_eq!(manifest.calendar(), Calendar::XNYS);
    assert_eq!(format_time(manifest.first_time), "2021-01-04");
    let newest = demo.resolve_as_of(&AsOf::Newest, false, 0).unwrap();
    assert_eq!(newest.map(|found| found.bar), parse_time("2024-12-06"));
    let table = demo.symbol_table().unwrap();
    assert_eq!(table.labels(), ["industry", "sector"]);
    assert_eq!(table.values("sector").len(), 9);
    assert_eq!(table.label_at("SPY", "sector", manifest.last_time), Some("Index"));
    for entry in &manifest.symbols {
        assert!(table.label_at(&entry.symbol, "sector", entry.last_time).is_some(), "{}", entry.symbol);
    }
    assert_eq!(table.resolve("OLDBY", parse_time("2022-01-03").unwrap()), Some("BYTEO"));
    assert!(demo.is_bundled() && demo.verify().is_empty());
}

#[test]
fn every_bar_of_demo_is_a_good_bar_of_a_session() {
    for name in ["demo", "demo-1m"] {
        let dataset = open(name);
        let calendar = dataset.manifest.calendar();
        for (symbol, bars) in all(&dataset) {
            for (i, &time) in bars.times.iter().enumerate() {
                let [open, high, low, close, volume] = [0, 1, 2, 3, 4].map(|c| bars.columns[c][i]);
                let good = low > 0.0 && low <= open.min(close) && high >= open.max(close) && volume >= 1.0;
                assert!(good && calendar.session_on(time).is_some(), "{symbol} {}", format_time(time));
            }
        }
    }
}

#[test]
fn the_days_of_demo_are_the_sums_of_its_minutes() {
    let (daily, minutes) = (all(&open("demo")), all(&open("demo-1m")));
    let (base, day) = ("1m".parse().unwrap(), check_resampling(Timeframe::MINUTE, "1d").unwrap());
    let mut compared = 0;
    for (symbol, bars) in &minutes {
        let built = higher_bars(&Calendar::XNYS, base, day, &bars.times).unwrap();
        assert_eq!(built.times.len(), 10, "{symbol}");
        let days = &daily[symbol];
        for (c, column) in COLUMNS.iter().enumerate() {
            for (time, value) in built.times.iter().zip(built.aggregate(column, &bars.columns[c])) {
                let i = days.times.binary_search(time).unwrap();
                assert_eq!(days.columns[c][i], value, "{symbol} {column} {}", format_time(*time));
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 60 * 10 * 5);
}

#[test]
fn the_minutes_have_a_holiday_a_half_day_pre_market_bars_and_holes() {
    let minutes = all(&open("demo-1m"));
    let on = |bars: &LoadedBars, date: &str| {
        let day = parse_time(date).unwrap();
        let regular = bars.times.iter().filter(|&&t| Calendar::XNYS.is_regular(t));
        regular.filter(|&&t| (day..day + 86_400_000_000).contains(&t)).count()
    };
    let spy = &minutes["SPY"];
    assert_eq!(["2024-11-27", "2024-11-28", "2024-11-29"].map(|d| on(spy, d)), [390, 0, 210]);
    let thin = minutes.values().filter(|b| on(b, "2024-12-06") < 300).count();
    assert_eq!(thin, 8);
    let early = minutes.values().filter(|b| b.times.iter().any(|&t| !Calendar::XNYS.is_regular(t))).count();
    assert!((5..40).contains(&early), "{early}");
}

#[test]
fn histories_differ_as_those_of_a_market_do() {
    let demo = open("demo");
    let bars = all(&demo);
    let (first, last) = (demo.manifest.first_time, demo.manifest.last_time);
    assert_eq!(bars.values().filter(|b| b.times[0] > first).count(), 4, "listed late");
    assert_eq!(bars.values().filter(|b| *b.times.last().unwrap() < last).count(), 1, "delisted");
    let spy = returns(&bars["SPY"]);
    let with_index: Vec<f64> = bars.values().map(|b| correlation(&returns(b), &spy).abs()).collect();
    assert!(with_index.iter().filter(|&&c| c < 0.2).count() >= 6, "{with_index:?}");
    assert!(with_index.iter().filter(|&&c| c > 0.4).count() >= 30, "{with_index:?}");
}

#[test]
fn the_split_of_demo_vanishes_when_it_is_adjusted() {
    let demo = open("demo");
    let entry = demo.manifest.symbol("CHIPO").unwrap();
    let columns = ["close", "volume"].map(str::to_owned);
    let load = |how: &str| {
        let group = demo.load_group_adjusted(entry.group, &columns, &Adjustment::parse(how).unwrap()).unwrap();
        group.into_iter().find(|b| &*b.symbol == "CHIPO").unwrap()
    };
    let at = parse_time("2023-06-12").unwrap();
    let (raw, split, unknown) = (load("none"), load("split"), load("split@2023-06-09"));
    assert_eq!(raw, unknown);
    let i = raw.times.binary_search(&at).unwrap();
    let step = |b: &LoadedBars| b.columns[0][i] / b.columns[0][i - 1];
    assert!(step(&raw) < 0.3 && step(&split) > 0.7, "{} {}", step(&raw), step(&split));
    assert_eq!(split.columns[0][i - 1], raw.columns[0][i - 1] / 4.0);
    assert_eq!(split.columns[1][i - 1], raw.columns[1][i - 1] * 4.0);
    assert_eq!(demo.factors().unwrap().iter().filter(|f| f.dividend > 0.0).count(), 5 * 15);
}

#[test]
fn the_bits_of_demo_never_change() {
    assert_eq!(&open("demo").manifest.snapshot[..12], "05b9eb100cbb");
    assert_eq!(&open("demo-1m").manifest.snapshot[..12], "471712eec19b");
}

#[test]
fn a_sibling_has_the_timeframe_that_is_wanted() {
    let store = Store::new("/nonexistent/trawl-data".into());
    for (name, timeframe, opened) in [
        ("demo", "1d", "demo"),
        ("demo", "1m", "demo-1m"),
        ("demo-1m", "1m", "demo-1m"),
        ("demo", "5m", "demo"),
        ("us5", "1m", "us5"),
    ] {
        assert_eq!(
            store.sibling(name, timeframe.parse().unwrap()).unwrap().manifest.name,
            opened,
            "{name} {timeframe}"
        );
    }
    assert!(store.sibling("none", Timeframe::MINUTE).is_err());
}

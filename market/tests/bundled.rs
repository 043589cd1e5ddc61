//! The bundled datasets: `us5` has exactly the published bars, `demo` what the examples need; each has the same id on
//! every machine.

#[path = "common/demo.rs"]
mod demo;

use std::path::PathBuf;

use trawl_market::{AsOf, MarketError, Store, format_time};

fn store() -> Store {
    Store::new(PathBuf::from("/nonexistent/trawl-data"))
}

fn names(columns: &[&str]) -> Vec<String> {
    columns.iter().map(|c| (*c).to_owned()).collect()
}

#[test]
fn it_has_12154_bars_of_five_symbols() {
    let us5 = store().open("us5").unwrap();
    let manifest = &us5.manifest;
    let rows: Vec<(&str, u64)> = manifest.symbols.iter().map(|s| (s.symbol.as_str(), s.rows)).collect();
    assert_eq!(rows, [("AAPL", 3270), ("FB", 196), ("GOOG", 2148), ("IBM", 3270), ("MSFT", 3270)]);
    assert_eq!(manifest.bars, 12_154);
    assert_eq!(manifest.columns, names(&["open", "high", "low", "close", "volume", "adj_close"]));
    assert_eq!((manifest.timeframe.to_string().as_str(), manifest.groups, manifest.synthetic), ("1d", 1, false));
    assert_eq!(format_time(manifest.first_time), "2000-03-01");
    assert_eq!(format_time(manifest.last_time), "2013-03-01");
    assert!(us5.is_bundled() && us5.verify().is_empty());
}

#[test]
fn its_bars_are_the_published_ones() {
    let us5 = store().open("us5").unwrap();
    let bars = us5.load_group(0, &names(&["volume", "close"])).unwrap();
    let loaded: Vec<&str> = bars.iter().map(|b| &*b.symbol).collect();
    assert_eq!(loaded, ["AAPL", "FB", "GOOG", "IBM", "MSFT"]);
    assert_eq!((bars[0].columns[0][0], bars[0].columns[1][0]), (38_478_000.0, 130.31));
    let fb = us5.load_symbol("FB", &names(&["open", "adj_close"])).unwrap();
    assert_eq!(format_time(fb.times[0]), "2012-05-18");
    assert_eq!((fb.columns[0][0], fb.columns[1][0]), (42.05, 38.23));
}

#[test]
fn a_date_is_the_newest_bar_at_or_before_it() {
    let us5 = store().open("us5").unwrap();
    let resolve = |as_of: &AsOf| us5.resolve_as_of(as_of, false, 0).unwrap().map(|found| format_time(found.bar));
    let resolved = |text: &str| resolve(&AsOf::parse(text).unwrap());
    assert_eq!(resolved("2013-02-22").as_deref(), Some("2013-02-22"));
    // A Saturday, a Sunday, a holiday.
    for day in ["2013-02-16", "2013-02-17", "2013-02-18"] {
        assert_eq!(resolved(day).as_deref(), Some("2013-02-15"));
    }
    assert_eq!(resolved("2030-01-01").as_deref(), Some("2013-03-01"));
    assert_eq!(resolved("2000-02-29"), None);
    assert_eq!(resolve(&AsOf::Newest).as_deref(), Some("2013-03-01"));
}

#[test]
fn its_snapshot_is_pinned() {
    let us5 = store().open("us5").unwrap();
    // Another id means that the bars, the layout or the Arrow writer changed: record that in the CHANGELOG.
    assert_eq!(us5.manifest.snapshot, "31cca4a2f028f6db8d25eca6bd5186570dfdd84b183fadc40dbf1e4ca80f8c87");
    let again = store().open(&format!("us5@{}", &us5.manifest.snapshot[..8])).unwrap();
    assert_eq!(again.manifest, us5.manifest);
    assert!(matches!(store().open("us5@00000000"), Err(MarketError::UnknownSnapshot { .. })));
}

#[test]
fn unknown_names_are_refused_with_a_suggestion() {
    let us5 = store().open("us5").unwrap();
    let error = us5.load_group(0, &names(&["clsoe"])).unwrap_err();
    assert!(error.to_string().ends_with("(did you mean 'close'?)"), "{error}");
    assert!(matches!(us5.load_group(1, &[]), Err(MarketError::UnknownGroup { .. })));
    let error = us5.load_symbol("MSF", &[]).unwrap_err();
    assert!(error.to_string().ends_with("(did you mean 'MSFT'?)"), "{error}");
    let error = store().open("us").unwrap_err();
    assert_eq!(error.to_string(), "no dataset 'us' under /nonexistent/trawl-data (did you mean 'us5'?)");
    for bad in ["../us5", "/etc", "file:///x", "s3://bucket/x", "US5", ""] {
        assert!(matches!(store().open(bad), Err(MarketError::BadName { .. })), "{bad}");
    }
}

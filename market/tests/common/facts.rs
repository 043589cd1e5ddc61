//! Data of a dataset besides bars: tables, calendar, up to when it is complete.

use trawl_market::Timeframe;
use trawl_market::{
    Adjustment, AsOf, Calendar, Dataset, FactorRow, ImportOptions, ImportReport, ListingRow, MemoryMarket, SymbolBars,
    format_time, import_files, memory_dataset, parse_time,
};

use crate::common::{Place, names, options};

const DAYS: &str = "symbol,date,close,volume\n\
    FB,2022-06-07,190,10\nFB,2022-06-08,200,10\nFB,2022-06-09,100,20\nBRK.B,2022-06-09,300,5\n";
const SYMBOLS: &str =
    "symbol,ticker,from,to,sector\nFB,FB,,2022-06-09,Tech\nFB,META,2022-06-09,,Media\nBRK-B,,,,Money\n";
const FACTORS: &str = "symbol,date,split,dividend\nMETA,2022-06-09,2,\n";

fn at(text: &str) -> i64 {
    parse_time(text).unwrap()
}

fn imported(place: &Place, change: impl FnOnce(&mut ImportOptions)) -> Result<ImportReport, String> {
    let mut options = options("d", &[]);
    change(&mut options);
    import_files(&place.store, &options).map_err(|e| e.to_string())
}

fn open(place: &Place) -> Dataset {
    place.store.open("d").unwrap()
}

fn closes(dataset: &Dataset, how: &str) -> Vec<f64> {
    let how = Adjustment::parse(how).unwrap();
    let mut groups = (0..dataset.manifest.groups)
        .flat_map(|g| dataset.load_group_adjusted(g, &names(&["close"]), &how).unwrap())
        .collect::<Vec<_>>();
    groups.retain(|b| &*b.symbol == "FB");
    groups[0].columns[0].to_vec()
}

#[test]
fn tables_come_with_bars_or_alone_and_give_the_same_snapshot() {
    let (together, alone) = (Place::new(), Place::new());
    let write = |p: &Place| [p.write("d.csv", DAYS), p.write("s.csv", SYMBOLS), p.write("f.csv", FACTORS)];
    let [bars, symbols, factors] = write(&together);
    let at_once = imported(&together, |o| {
        (o.files, o.symbols, o.factors) = (vec![bars], Some(symbols), Some(factors));
    });
    let at_once = at_once.unwrap();
    assert_eq!((at_once.symbol_rows, at_once.factors, at_once.notes.len()), (3, 1, 0), "{:?}", at_once.notes);
    let [bars, symbols, factors] = write(&alone);
    let plain = imported(&alone, |o| o.files = vec![bars]).unwrap();
    assert_eq!(open(&alone).manifest.version, 1);
    imported(&alone, |o| o.factors = Some(factors)).unwrap();
    let last = imported(&alone, |o| o.symbols = Some(symbols.clone())).unwrap();
    assert_eq!((last.rows_read, &last.snapshot), (0, &at_once.snapshot));
    assert_ne!(plain.snapshot, last.snapshot);
    assert!(imported(&alone, |o| o.symbols = Some(symbols)).unwrap().unchanged);
    let dataset = open(&alone);
    assert_eq!((dataset.manifest.version, dataset.manifest.labels()), (2, &names(&["sector"])[..]));
    assert_eq!(closes(&dataset, "split"), [95.0, 100.0, 100.0]);
    assert_eq!(closes(&dataset, "split@2022-06-08"), [190.0, 200.0, 100.0]);
    let table = dataset.symbol_table().unwrap();
    assert_eq!(table.resolve("META", at("2022-06-09")), Some("FB"));
    assert_eq!(table.label_at("BRK.B", "sector", at("2022-06-09")), Some("Money"));
    assert_eq!(dataset.verify().len(), 0);
    // A damaged table is noticed.
    let file = dataset.manifest.factors.as_ref().unwrap().sha256.clone();
    std::fs::write(alone.store.root.join(format!("d/files/{file}.csv")), "symbol\n").unwrap();
    assert_eq!((open(&alone).verify().len(), open(&alone).factors().is_err()), (1, true));
}

#[test]
fn tables_that_cannot_be_are_refused_and_change_nothing() {
    let place = Place::new();
    let bars = place.write("d.csv", DAYS);
    let file = |name: &str, text: &str| Some(place.write(name, text));
    let message = imported(&place, |o| o.factors = file("f.csv", FACTORS)).unwrap_err();
    assert!(message.contains("no dataset 'd' yet"), "{message}");
    let before = imported(&place, |o| o.files = vec![bars]).unwrap().snapshot;
    for (text, expected) in [
        ("symbol,close\nFB,x\n", "label 'close' has the name of a column"),
        ("symbol,from,to\nFB,2020-01-01,\nFB,2021-01-01,\n", "line 3: symbol 'FB' has two rows"),
    ] {
        let message = imported(&place, |o| o.symbols = file("s.csv", text)).unwrap_err();
        assert!(message.contains(expected), "{message}");
    }
    let message = imported(&place, |o| o.calendar = Some("NYSE".to_owned())).unwrap_err();
    assert!(message.contains("did you mean 'XNYS'"), "{message}");
    assert_eq!(open(&place).manifest.snapshot, before);
    let unknown = imported(&place, |o| o.factors = file("f.csv", "symbol,date,split\nZZZ,2020-01-02,2\n")).unwrap();
    assert_eq!(unknown.notes, ["1 of 1 splits and dividends refer to symbols without bars"]);
    for bundled in ["us5", "demo", "demo-1m"] {
        let message = imported(&place, |o| (o.dataset, o.calendar) = (bundled.to_owned(), Some("24/7".to_owned())));
        assert!(message.unwrap_err().contains("bundled"));
    }
}

#[test]
fn a_forming_bar_is_seen_only_when_asked_for() {
    let place = Place::new();
    let bars = place.write("d.csv", DAYS);
    let noon = Some(at("2022-06-09 16:00"));
    let report =
        imported(&place, |o| (o.files, o.complete_to) = (vec![bars.clone()], noon.map(AsOf::Instant))).unwrap();
    assert_eq!(Some(report.complete_to), noon);
    let dataset = open(&place);
    let resolved = |wanted: Option<&str>, forming: bool| {
        let wanted = wanted.map_or(AsOf::Newest, |text| AsOf::parse(text).unwrap());
        dataset.resolve_as_of(&wanted, forming, 0).unwrap().map(|found| format_time(found.bar))
    };
    assert!(dataset.is_forming(at("2022-06-09")) && !dataset.is_forming(at("2022-06-08")));
    assert_eq!(resolved(None, false).as_deref(), Some("2022-06-08"));
    assert_eq!(resolved(None, true).as_deref(), Some("2022-06-09"));
    assert_eq!(resolved(Some("2022-07-01"), false).as_deref(), Some("2022-06-08"));
    assert_eq!(resolved(Some("2022-07-01"), true).as_deref(), Some("2022-06-09"));
    assert_eq!(resolved(Some("2022-06-07"), true).as_deref(), Some("2022-06-07"));
    assert_eq!(resolved(Some("2022-06-06"), true), None);
    // An import of reference data alone keeps it; with bars that end later, everything up to their end is complete.
    let kept = imported(&place, |o| o.calendar = Some("24/7".to_owned())).unwrap();
    assert_eq!((Some(kept.complete_to), kept.calendar.as_str()), (noon, "24/7"));
    imported(&place, |o| o.calendar = Some("XNYS".to_owned())).unwrap();
    let again = imported(&place, |o| o.files = vec![bars]).unwrap();
    assert_eq!(format_time(again.complete_to), "2022-06-09T20:00:00Z");
}

#[test]
fn a_later_import_closes_no_bar_of_the_future_and_names_bars_that_did_not_come_again() {
    let place = Place::new();
    let file = |symbol: &str, close: &str| {
        let text = format!("symbol,date,close\n{symbol},2022-06-08,10\n{symbol},2022-06-09,{close}\n");
        place.write(&format!("{symbol}.csv"), &text)
    };
    let import = |path: std::path::PathBuf, clock: &str| {
        imported(&place, |o| (o.files, o.clock) = (vec![path], Some(at(clock)))).unwrap()
    };
    let noon = import(file("AAA", "11"), "2022-06-09 16:00");
    assert_eq!(format_time(noon.complete_to), "2022-06-08T20:00:00Z");
    // One bar of another symbol that has closed does not close the first one's.
    let early = place.write("CCC.csv", "symbol,date,close\nCCC,2022-06-07,5\nCCC,2022-06-08,6\n");
    let earlier = import(early, "2022-06-09 16:00");
    assert_eq!(format_time(earlier.complete_to), "2022-06-08T20:00:00Z");
    // After the close only the other symbol comes: the first one's bar is still that of noon.
    let other = import(file("BBB", "20"), "2022-06-09 21:00");
    assert_eq!(format_time(other.complete_to), "2022-06-09T20:00:00Z");
    assert!(other.notes.iter().any(|note| note.contains("the last bar of AAA ended after")), "{:?}", other.notes);
    let whole = import(file("AAA", "12"), "2022-06-09 21:00");
    assert_eq!(format_time(whole.complete_to), "2022-06-09T20:00:00Z");
    let dates = imported(&place, |o| o.complete_to = Some(AsOf::parse("2022-06-08").unwrap())).unwrap();
    assert_eq!(format_time(dates.complete_to), "2022-06-09T04:00:00Z");
    let refused = imported(&place, |o| o.complete_to = Some(AsOf::LastSession)).unwrap_err();
    assert!(refused.contains("not a date or a time"), "{refused}");
}

fn minutes(times: &[&str]) -> MemoryMarket {
    let bars = SymbolBars {
        symbol: "A".into(),
        times: times.iter().map(|t| at(t)).collect(),
        columns: vec![vec![1.0; times.len()]],
    };
    MemoryMarket {
        name: "m".to_owned(),
        timeframe: Timeframe::MINUTE,
        calendar: "XNYS".to_owned(),
        columns: names(&["close"]),
        bars: vec![bars],
        ..MemoryMarket::default()
    }
}

#[test]
fn the_last_session_is_the_last_that_is_complete() {
    let resolve = |market: MemoryMarket| {
        let dataset = memory_dataset(market).unwrap();
        dataset.resolve_as_of(&AsOf::LastSession, false, 0).unwrap().map(|found| format_time(found.bar))
    };
    let half_day = "2024-11-29 17:59";
    // A session in progress is skipped, and so are bars after the close.
    let under_way = minutes(&["2024-11-27 20:59", half_day, "2024-12-02 09:00", "2024-12-02 15:00"]);
    assert_eq!(resolve(under_way).as_deref(), Some("2024-11-29T17:59:00Z"));
    let after_hours = minutes(&["2024-11-27 20:59", half_day, "2024-11-29 18:30", "2024-12-02 01:30"]);
    assert_eq!(resolve(after_hours).as_deref(), Some("2024-11-29T17:59:00Z"));
    // There was no trade in the last minute, but the snapshot says that it is complete.
    let quiet = minutes(&["2024-11-27 20:59", "2024-11-29 17:30"]);
    assert_eq!(resolve(quiet.clone()).as_deref(), Some("2024-11-27T20:59:00Z"));
    let complete = MemoryMarket { complete_to: Some(at("2024-11-29 18:00")), ..quiet };
    assert_eq!(resolve(complete).as_deref(), Some("2024-11-29T17:30:00Z"));
    // No session is complete.
    let begun = MemoryMarket {
        complete_to: Some(at("2024-11-29 15:00")),
        ..minutes(&["2024-11-29 14:58", "2024-11-29 15:00"])
    };
    assert_eq!(resolve(begun), None);
}

#[test]
fn a_market_in_memory_is_checked_and_has_one_id() {
    let good = minutes(&["2024-11-29 14:58", "2024-11-29 15:00"]);
    let tables = MemoryMarket {
        symbols: vec![ListingRow { symbol: "A".to_owned(), ..ListingRow::default() }],
        factors: vec![FactorRow { symbol: "A".to_owned(), date: at("2024-11-29"), split: 2.0, dividend: 0.0 }],
        groups: Some(3),
        ..good.clone()
    };
    let made = memory_dataset(tables.clone()).unwrap();
    assert_eq!(made.manifest.snapshot, memory_dataset(tables).unwrap().manifest.snapshot);
    assert_eq!((made.manifest.groups, made.is_bundled(), made.manifest.calendar()), (3, false, Calendar::XNYS));
    assert_eq!(made.load_symbol("A", &names(&["close"])).unwrap().columns[0][..], [1.0, 1.0]);
    let bad: [fn(&mut MemoryMarket); 8] = [
        |m| m.bars.clear(),
        |m| m.bars.push(m.bars[0].clone()),
        |m| m.bars[0].columns.clear(),
        |m| m.bars[0].times.reverse(),
        |m| m.columns[0] = "Close".to_owned(),
        |m| m.name = "../x".to_owned(),
        |m| m.groups = Some(0),
        |m| m.calendar = "moon".to_owned(),
    ];
    for (i, spoil) in bad.into_iter().enumerate() {
        let mut market = good.clone();
        spoil(&mut market);
        assert!(memory_dataset(market).is_err(), "{i}");
    }
}

#[test]
fn a_manifest_of_a_newer_version_is_recognised() {
    let place = Place::new();
    let bars = place.write("d.csv", DAYS);
    let report = imported(&place, |o| o.files = vec![bars]).unwrap();
    let path = place.store.root.join(format!("d/snapshots/{}.json", report.snapshot));
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"version\": 1", "\"version\": 5")).unwrap();
    let message = place.store.open("d").unwrap_err().to_string();
    assert!(message.contains("its version is 5, but this program reads 1 to 4"), "{message}");
}

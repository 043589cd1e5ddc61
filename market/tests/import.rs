//! Importing CSV files: what is kept, what goes to quarantine, and what a snapshot's id depends on.

mod common;

use std::fs;
use std::io::Write;

use common::{Place, load_all, names, options, quarantine};
use proptest::prelude::*;
use trawl_market::Timeframe;
use trawl_market::{
    AsOf, DateOrder, ImportFormat, ImportOptions, MarketError, MarketErrorKind, ReadOptions, format_time, import_files,
};

const YAHOO: &str = "Date,Open,High,Low,Close,Adj Close,Volume\n\
    2013-01-02,10,12,9,11,5.5,1000\n\
    2013-01-03,11,13,10,12,6,1100.5\n\
    2013-01-04,12,14,11,13,6.5,0\n";

#[test]
fn yahoo_files_become_a_dataset_of_their_names() {
    let place = Place::new();
    let files = [place.write("AAA.csv", YAHOO), place.write("BRK.B.csv", YAHOO.replace(",11,5.5", ",11.25,5.5"))];
    let read = ReadOptions { format: ImportFormat::Yfinance, ..ReadOptions::default() };
    let yahoo = ImportOptions { read, ..options("small", &files) };
    let report = import_files(&place.store, &yahoo).unwrap();
    assert!(report.created && !report.unchanged);
    assert_eq!((report.rows_read, report.rows_kept, report.rows_added, report.rows_quarantined), (6, 6, 6, 0));
    assert_eq!(report.quarantine_file, None);
    let dataset = place.store.open("small").unwrap();
    assert_eq!(dataset.manifest.snapshot, report.snapshot);
    assert_eq!(dataset.manifest.columns, names(&["open", "high", "low", "close", "volume", "adj_close"]));
    let bars = load_all(&dataset);
    assert_eq!((&*bars[0].symbol, &*bars[1].symbol), ("AAA", "BRK.B"));
    assert_eq!(bars[1].columns[3], [11.25, 12.0, 13.0]);
    assert_eq!(bars[0].columns[4], [1000.0, 1100.5, 0.0]);
    assert_eq!(
        bars[0].times.iter().map(|&t| format_time(t)).collect::<Vec<_>>(),
        ["2013-01-02", "2013-01-03", "2013-01-04"]
    );
}

#[test]
fn one_file_of_many_symbols_is_read_by_its_symbol_column() {
    let place = Place::new();
    let polygon = "ticker,volume,open,close,high,low,window_start,transactions\n\
        B,5.5,1,1,1,1,1632743100000000000,3\nA,1,2,2,2,2,1632743100000000000,1\nB,1,1,1,1,1,1632743160000000000,1\n";
    let file = place.write("day.csv", polygon);
    let minute = ImportOptions { timeframe: Some(Timeframe::MINUTE), ..options("minutes", &[file]) };
    let report = import_files(&place.store, &minute).unwrap();
    assert_eq!(report.rows_quarantined, 0);
    let dataset = place.store.open("minutes").unwrap();
    let b = dataset.load_symbol("B", &names(&["volume", "transactions"])).unwrap();
    assert_eq!([&b.columns[0][..], &b.columns[1]], [[5.5, 1.0], [3.0, 1.0]]);
    assert_eq!(format_time(b.times[1]), "2021-09-27T11:46:00Z");
    let at = dataset.resolve_as_of(&AsOf::Bar(b.times[1] - 1), false, 0).unwrap();
    assert_eq!(at.map(|found| found.bar), Some(b.times[0]));
}

#[test]
fn every_kind_of_bad_row_is_counted_and_kept_with_its_reason() {
    let place = Place::new();
    let rows: [(&[u8], &str); 20] = [
        (b"2013-01-02,10,12,9,11,100,x", ""),
        (b"2013-01-03,10,8,9,8.5,100,x", "high below low"),
        (b"2013-01-03,13,12,9,11,100,x", "open outside low to high"),
        (b"2013-01-03,10,12,9,8,100,x", "close outside low to high"),
        (b"2013-01-03,0,12,0,11,100,x", "zero or negative price"),
        (b"2013-01-03,10,12,9,-11,100,x", "zero or negative price"),
        (b"2013-01-03,10,12,9,NaN,100,x", "NaN"),
        (b"2013-01-03,10,12,9,inf,100,x", "not a number"),
        (b"2013-01-03,10,12,9,eleven,100,x", "not a number"),
        (b"2013-01-03,10,12,9,,100,x", "empty cell"),
        (b"2013-01-03,10,12,9,11,-1,x", "negative volume"),
        (b"2013-01-03,10,12,9,11,100", "wrong number of cells"),
        (b"2013-01-03,10,12,9,11,100,x,y", "wrong number of cells"),
        (b"2013-01-03,10,12,9,11,100,\"x", "quote that does not close"),
        (b"2013-01-03,10,12,9,11,100,\xff", "not UTF-8"),
        (b"yesterday,10,12,9,11,100,x", "unreadable time"),
        (b"2013-01-04,10,12,9,11,100,x", ""),
        (b"2013-01-04,10,12,9,11,100,x", "duplicate time"),
        (b"2013-01-03,10,12,9,11,100,x", "time out of order"),
        (b"Date,Open,High,Low,Close,Volume,Note", "unreadable time"),
    ];
    let mut content = b"Date,Open,High,Low,Close,Volume,Note\n".to_vec();
    for (row, _) in &rows {
        content.extend_from_slice(row);
        content.extend_from_slice(b"\r\n\n");
    }
    content.extend_from_slice(&[b'1'; trawl_market::limits::CSV_LINE_BYTES_MAX + 1]);
    let report = place.import("dirty", &[place.write("X.csv", content)]).unwrap();
    assert_eq!((report.rows_read, report.rows_kept, report.rows_quarantined), (21, 2, 19));
    assert_eq!(report.quarantined.values().sum::<u64>(), 19);
    assert_eq!(report.quarantined["line too long"], 1);
    assert_eq!(report.ignored_columns, ["Note"]);
    let kept = quarantine(&place.store, &report);
    for (i, (row, reason)) in rows.iter().enumerate().filter(|(_, r)| !r.1.is_empty()) {
        let line = (2 + 2 * i).to_string();
        let found = kept.iter().find(|k| k[1] == line).unwrap();
        let expected = String::from_utf8_lossy(row);
        assert_eq!([&found[0], &found[2], &found[3]], ["X.csv", *reason, &*expected], "line {line}");
    }
    // Importing again neither loses nor duplicates rows in quarantine.
    let again = place.import("dirty", &[place.directory.path().join("X.csv")]).unwrap();
    assert!(again.unchanged);
    assert_eq!((again.rows_unchanged, again.rows_added), (2, 0));
    assert_eq!(quarantine(&place.store, &again), kept);
}

#[test]
fn missing_further_numbers_are_kept_as_missing() {
    let place = Place::new();
    let file =
        place.write("X.csv", "time,close,eps\n2013-01-02,1,\n2013-01-03,2,0.5\n2013-01-04,3,n/a\n2013-01-05,4,?\n");
    let report = place.import("sparse", &[file]).unwrap();
    assert_eq!((report.rows_kept, report.rows_quarantined), (3, 1));
    let dataset = place.store.open("sparse").unwrap();
    assert_eq!(dataset.manifest.columns, names(&["close", "eps"]));
    let eps = &load_all(&dataset)[0].columns[1];
    assert!(eps[0].is_nan() && eps[1] == 0.5 && eps[2].is_nan());
}

#[test]
fn days_of_an_exchange_keep_the_date_that_was_written() {
    let place = Place::new();
    let file = place.write("X.csv", "Date,Close\n2021-09-27 00:00:00-04:00,1\n2021-09-28 00:00:00-04:00,2\n");
    place.import("zoned", &[file]).unwrap();
    let bars = load_all(&place.store.open("zoned").unwrap());
    assert_eq!(format_time(bars[0].times[0]), "2021-09-27");
    let file = place.write("Y.csv", "Date,Time,Close\n27.09.2021,14:45,1\n27.09.2021,14:50:30.5,2\n");
    let minutes = ImportOptions { timeframe: "5m".parse().ok(), ..options("clock", &[file]) };
    import_files(&place.store, &minutes).unwrap();
    let bars = load_all(&place.store.open("clock").unwrap());
    assert_eq!(format_time(bars[0].times[1]), "2021-09-27T14:50:30.500000Z");
}

#[test]
fn the_order_of_day_and_month_is_inferred_from_all_dates_together() {
    let place = Place::new();
    let first = |dataset: &str| format_time(load_all(&place.store.open(dataset).unwrap())[0].times[0]);
    let silent = place.write("A.csv", "Date,Close\n1/4/1999,1\n2/4/1999,2\n");
    let report = place.import("alone", std::slice::from_ref(&silent)).unwrap();
    assert_eq!(first("alone"), "1999-01-04");
    assert_eq!(report.notes, ["dates such as 1/4/1999 were read month first"]);
    // Another file of the same import shows that days come first.
    let day_first = place.write("B.csv", "Date,Close\n30/3/1999,1\n1/4/1999,2\n");
    place.import("together", &[silent.clone(), day_first.clone()]).unwrap();
    assert_eq!(first("together"), "1999-04-01");
    // A third one contradicts it: then the order cannot be known.
    let other = place.write("C.csv", "Date,Close\n3/30/1999,1\n");
    let error = place.import("never", &[silent.clone(), day_first, other]).unwrap_err().to_string();
    assert!(error.contains("name the order with"), "{error}");
    let read = ReadOptions { date_order: Some(DateOrder::DayFirst), ..ReadOptions::default() };
    let day_first = ImportOptions { read, ..options("forced", &[silent]) };
    import_files(&place.store, &day_first).unwrap();
    assert_eq!(first("forced"), "1999-04-01");
}

#[test]
fn a_file_with_its_newest_bar_first_is_reversed() {
    let place = Place::new();
    let file = place.write("X.csv", "Date,Close\n2013-01-04,3\n2013-01-03,bad\n2013-01-03,2\n2013-01-02,1\n");
    let report = place.import("newest", &[file]).unwrap();
    assert_eq!((report.rows_kept, report.rows_quarantined), (3, 1));
    assert_eq!(quarantine(&place.store, &report)[0][1], "3");
    assert_eq!(load_all(&place.store.open("newest").unwrap())[0].columns[0], [1.0, 2.0, 3.0]);
}

#[test]
fn gzip_is_recognised_by_its_bytes_and_a_truncated_file_is_refused() {
    let place = Place::new();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(YAHOO.as_bytes()).unwrap();
    let bytes = gzip.finish().unwrap();
    let plain = place.import("plain", &[place.write("X.csv", YAHOO)]).unwrap();
    let packed = place.import("packed", &[place.write("X.csv.gz", &bytes)]).unwrap();
    assert_eq!(plain.snapshot, packed.snapshot, "the id is of the content, not of the dataset's name");
    let error = place.import("cut", &[place.write("Y.csv.gz", &bytes[..bytes.len() / 2])]).unwrap_err();
    assert!(matches!(error, MarketError::Input { .. }), "{error}");
    assert_eq!(error.kind(), MarketErrorKind::Invalid);
}

#[test]
fn adding_bars_shares_the_files_of_untouched_groups() {
    let place = Place::new();
    let file = |k: usize, rows: usize| {
        let body: String = (1..=rows).map(|d| format!("2013-01-{d:02},{},{k}\n", k + d)).collect();
        format!("Date,Close,Volume\n{body}")
    };
    let files: Vec<_> = (0..200).map(|k| place.write(&format!("S{k:03}.csv"), file(k, 5))).collect();
    let first = place.import("grow", &files).unwrap();
    let before = place.store.open("grow").unwrap();
    assert_eq!(before.manifest.groups, 4);
    assert_eq!((first.files_written, first.files_shared), (4, 0));
    let more = place.write("S007.csv", file(7, 8).replace("2013-01-02,9,", "2013-01-02,9.5,"));
    let second = place.import("grow", &[more]).unwrap();
    assert_eq!((second.files_written, second.files_shared), (1, 3));
    assert_eq!((second.rows_added, second.rows_unchanged, second.rows_revised), (3, 4, 1));
    let after = place.store.open("grow").unwrap();
    assert_ne!(before.manifest.snapshot, after.manifest.snapshot);
    assert_eq!(after.manifest.symbol("S007").unwrap().rows, 8);
    assert_eq!(after.load_symbol("S007", &names(&["close"])).unwrap().columns[0][1], 9.5);
    assert_eq!(format_time(after.manifest.last_time), "2013-01-08");
    // The older snapshot is still whole, and can be opened by a prefix.
    let pinned = place.store.open(&format!("grow@{}", &first.snapshot[..12])).unwrap();
    assert_eq!(pinned.manifest, before.manifest);
    assert!(pinned.verify().is_empty() && after.verify().is_empty());
    // A new column is added to every group; symbols without it have NaN.
    let wide = place.write("S007.csv", "Date,Close,Eps\n2013-01-01,8,0.5\n");
    let third = place.import("grow", &[wide]).unwrap();
    assert_eq!((third.files_written, third.rows_revised), (4, 1));
    let all = load_all(&place.store.open("grow").unwrap());
    assert!(all.iter().filter(|b| &*b.symbol != "S007").all(|b| b.columns[2].iter().all(|v| v.is_nan())));
    assert_eq!(all[7].columns[2][0], 0.5);
    assert_eq!(all[7].columns[1][0], 7.0, "a missing volume does not replace a known one");
}

#[test]
fn jumps_are_reported_and_kept() {
    let place = Place::new();
    let file = place.write("X.csv", "Date,Close\n2013-01-02,100\n2013-01-03,14\n2013-01-04,15\n");
    let report = place.import("split", &[file]).unwrap();
    assert_eq!((report.jumps, report.rows_kept), (1, 3));
    assert_eq!((report.jumps_listed[0].before, report.jumps_listed[0].close), (100.0, 14.0));
}

#[test]
fn a_file_that_cannot_be_imported_is_refused_and_changes_nothing() {
    let place = Place::new();
    let good = place.write("X.csv", YAHOO);
    for (name, content, expected) in [
        ("empty.csv", "", "it is empty"),
        ("bare.csv", "2013-01-02,1,2\n", "no header"),
        ("other.csv", "a,b\n1,2\n", "no date or time"),
        ("none.csv", "Date,Close\n", "no rows"),
        (
            "garbage.csv",
            "Date,Close\nx,y\nz\n",
            "none of its 2 rows is usable (line 2, column 'Date': 'x' is not a date or time",
        ),
    ] {
        let files = [good.clone(), place.write(name, content)];
        let strict = ImportOptions { strict: true, ..options("refused", &files) };
        let error = import_files(&place.store, &strict).unwrap_err();
        assert_eq!(error.kind(), MarketErrorKind::Invalid);
        let text = error.to_string();
        assert!(text.contains(name) && text.contains(expected) && text.contains("; expected "), "{text}");
    }
    for name in ["us5", "../x", "A", "", "a/b"] {
        assert_eq!(
            place.import(name, std::slice::from_ref(&good)).unwrap_err().kind(),
            MarketErrorKind::Invalid,
            "{name}"
        );
    }
    let absent = place.import("refused", &[place.directory.path().join("absent.csv")]).unwrap_err();
    assert_eq!(absent.kind(), MarketErrorKind::Invalid);
    assert!(place.import("refused", &[place.directory.path().to_owned()]).is_err());
    assert!(place.import("refused", &[]).is_err());
    assert!(!place.store.root.exists(), "nothing was written");
    place.import("daily", std::slice::from_ref(&good)).unwrap();
    let hourly = ImportOptions { timeframe: "1h".parse().ok(), ..options("daily", &[good]) };
    let error = import_files(&place.store, &hourly).unwrap_err().to_string();
    assert!(error.starts_with("dataset 'daily' holds bars of 1d, and bars of 1h cannot be added"), "{error}");
    assert!(error.contains("--dataset daily-1h") && error.contains("trawl data rm daily"), "{error}");
}

#[test]
fn the_same_bar_in_two_files_is_kept_once() {
    let place = Place::new();
    let rows = |close: &str| format!("Symbol,Date,Close\nX,2013-01-02,1\nX,2013-01-03,{close}\n");
    let files = [place.write("a.csv", rows("2")), place.write("b.csv", rows("2") + "X,2013-01-04,3\n")];
    let report = place.import("twice", &files).unwrap();
    assert_eq!((report.rows_read, report.rows_kept, report.quarantined["duplicate time"]), (5, 3, 2));
    let kept = quarantine(&place.store, &report);
    assert_eq!(kept[0], ["b.csv", "2", "duplicate time", "X,2013-01-02,1"]);
}

#[test]
fn one_bad_file_of_many_is_left_out_and_reported() {
    let place = Place::new();
    let files = [place.write("A.csv", YAHOO), place.write("B.csv", b"\0\x01")];
    let report = place.import("most", &files).unwrap();
    assert_eq!((report.files, report.rows_kept, report.skipped.len()), (2, 3, 1));
    assert!(
        report.skipped[0].file.ends_with("B.csv") && report.skipped[0].why.starts_with("its first line is not text")
    );
}

#[test]
fn bars_of_two_timeframes_are_not_one_dataset() {
    let place = Place::new();
    let daily = (1..=5).map(|d| format!("2013-01-0{d},1\n")).collect::<String>();
    let minutes = (10..50).map(|m| format!("2013-01-02 15:{m}Z,1\n")).collect::<String>();
    let files =
        [place.write("A.csv", format!("time,close\n{daily}")), place.write("B.csv", format!("time,close\n{minutes}"))];
    let error = place.import("mixed", &files).unwrap_err().to_string();
    assert!(error.contains("A.csv: the bars are 1d apart, but those of the other files are 1m apart"), "{error}");
    assert_eq!(place.import("minutes", &files[1..]).unwrap().timeframe, Timeframe::MINUTE);
    let error = place.import("minutes", &files[..1]).unwrap_err().to_string();
    assert!(error.contains("dataset 'minutes' holds bars of 1m, and the bars are 1d apart in"), "{error}");
}

#[test]
fn a_day_that_is_written_as_an_instant_is_the_exchanges() {
    let place = Place::new();
    // Midnight in Tokyo is 15:00 UTC of the day before; New York's is 04:00 or 05:00 UTC.
    let rows = ["2024-06-09T15:00:00Z,1", "2024-06-10T15:00:00Z,2", "2024-06-11T15:00:00Z,3"].join("\n");
    let file = place.write("X.csv", format!("time,close\n{rows}\n"));
    let read = ReadOptions { zone: Some(trawl_market::Zone::named("Asia/Tokyo").unwrap()), ..ReadOptions::default() };
    let options = ImportOptions { read, ..options("tokyo", &[file]) };
    import_files(&place.store, &options).unwrap();
    assert_eq!(format_time(load_all(&place.store.open("tokyo").unwrap())[0].times[0]), "2024-06-10");
}

#[derive(Debug, Clone)]
struct Market(Vec<Vec<(i64, f64)>>);

fn markets() -> impl Strategy<Value = Market> {
    let rows = proptest::collection::btree_map(0i64..20_000, 0.01f64..1e6, 1..30);
    let symbols = proptest::collection::vec(rows.prop_map(|r| r.into_iter().collect()), 1..90);
    symbols.prop_map(Market)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn imported_bars_are_loaded_bit_for_bit_whatever_the_order_of_files(market in markets(), turn in 0usize..90) {
        let place = Place::new();
        let day = |d: i64| format_time(d * 86_400_000_000);
        let mut files: Vec<_> = market.0.iter().enumerate().map(|(k, rows)| {
            let body: String = rows.iter().map(|(d, v)| format!("{v:?},{}\n", day(*d))).collect();
            place.write(&format!("S{k}.csv"), format!("close,date\n{body}"))
        }).collect();
        // Arbitrary dates: no exchange's.
        let import = |dataset: &str, files: &[std::path::PathBuf]| {
            let calendar = Some("24/7".to_owned());
            import_files(&place.store, &ImportOptions { calendar, ..options(dataset, files) }).unwrap()
        };
        let first = import("one", &files);
        let turn = turn % files.len();
        files.rotate_left(turn);
        let second = import("two", &files);
        prop_assert_eq!(&first.snapshot, &second.snapshot);
        // In two steps the bars are the same too, though there may be fewer groups.
        import("three", &files[..1]);
        import("three", &files);
        let (one, three) = (place.store.open("one").unwrap(), place.store.open("three").unwrap());
        let loaded = load_all(&one);
        prop_assert_eq!(&loaded, &load_all(&three));
        prop_assert_eq!(loaded.len(), market.0.len());
        for bars in loaded {
            let rows = &market.0[bars.symbol[1..].parse::<usize>().unwrap()];
            prop_assert_eq!(&bars.times, &rows.iter().map(|r| r.0 * 86_400_000_000).collect::<Vec<_>>());
            prop_assert_eq!(&bars.columns[0], &rows.iter().map(|r| r.1).collect::<Vec<_>>());
        }
    }

    #[test]
    fn garbage_never_causes_a_panic_and_every_row_is_counted(
        garbage in proptest::collection::vec(any::<u8>(), 0..400),
        words in proptest::collection::vec("(2013-01-0[1-9]|1[0-9]{0,2}|,|,|\"|\n|\n|;|x|NaN|-1|1e309){0,6}", 0..60),
        symbols in any::<bool>(),
    ) {
        let place = Place::new();
        let header: &[u8] = if symbols { b"symbol,date,close\n" } else { b"date,close\n" };
        let good: &[u8] = if symbols { b"Q,1999-12-31,5\n" } else { b"1999-12-31,5\n" };
        let words = words.concat().into_bytes();
        for (i, body) in [&garbage, &words].into_iter().enumerate() {
            let _ = place.import("raw", &[place.write("R.csv", body)]);
            let content = [header, good, body].concat();
            let report = match place.import(&format!("g{i}"), &[place.write("G.csv", &content)]) {
                Ok(report) => report,
                // Numbers that are epochs may have a spacing that is not a timeframe.
                Err(MarketError::Refused(message)) if message.contains("timeframe") => continue,
                Err(error) => panic!("{error}"),
            };
            prop_assert_eq!(report.rows_read, report.rows_kept + report.rows_quarantined);
            prop_assert_eq!(report.rows_quarantined, report.quarantined.values().sum::<u64>());
            prop_assert_eq!(report.rows_kept, report.bars);
            let lines = content.split(|&c| c == b'\n').skip(1).filter(|l| !l.trim_ascii().is_empty()).count();
            prop_assert_eq!(report.rows_read, lines as u64);
            if report.rows_quarantined > 0 {
                prop_assert_eq!(quarantine(&place.store, &report).len() as u64, report.rows_quarantined);
            }
        }
    }
}

#[test]
fn only_one_import_into_a_dataset_runs_at_a_time() {
    let place = Place::new();
    let file = place.write("X.csv", YAHOO);
    place.import("busy", std::slice::from_ref(&file)).unwrap();
    let lock = fs::File::options().write(true).open(place.store.root.join("busy/.lock")).unwrap();
    lock.lock().unwrap();
    assert!(matches!(place.import("busy", std::slice::from_ref(&file)), Err(MarketError::Busy { .. })));
    drop(lock);
    place.import("busy", &[file]).unwrap();
}

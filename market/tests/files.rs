//! What files leave open is recognised or refused, with place and advice: never guessed in silence.

mod common;

use std::path::PathBuf;
use std::slice::from_ref;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, Date32Array, DictionaryArray, DurationSecondArray, Float64Array, Int16Array, Int32Array, Int64Array,
    RecordBatch, StringArray, Time32SecondArray, Time64MicrosecondArray, Time64NanosecondArray,
    TimestampMicrosecondArray,
};
use common::{Place, load_all, options, quarantine};
use trawl_market::Timeframe;
use trawl_market::{
    Calendar, FileSeries, ImportOptions, ImportReport, MarketError, ReadOptions, Zone, format_time, import_files,
    read_series,
};

fn parquet(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let frame = RecordBatch::try_from_iter(columns).unwrap();
    let mut bytes = Vec::new();
    let mut writer = parquet::arrow::ArrowWriter::try_new(&mut bytes, frame.schema(), None).unwrap();
    writer.write(&frame).unwrap();
    writer.close().unwrap();
    bytes
}

fn arrow(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let frame = RecordBatch::try_from_iter(columns).unwrap();
    let mut file = arrow_ipc::writer::FileWriter::try_new(Vec::new(), &frame.schema()).unwrap();
    file.write(&frame).unwrap();
    file.into_inner().unwrap()
}

fn closes(count: usize) -> ArrayRef {
    Arc::new(Float64Array::from_iter_values((0..count).map(|i| 100.0 + i as f64)))
}

/// Days since 1970 of 2024-06-20.
const DAY: i32 = 19_894;
const MICROS_OF_DAY: i64 = 86_400_000_000;

/// Imports with more options.
fn import(
    place: &Place,
    dataset: &str,
    files: &[PathBuf],
    set: impl FnOnce(&mut ImportOptions),
) -> Result<ImportReport, MarketError> {
    let mut wanted = options(dataset, files);
    set(&mut wanted);
    import_files(&place.store, &wanted)
}

fn times(place: &Place, dataset: &str) -> Vec<String> {
    load_all(&place.store.open(dataset).unwrap())[0].times.iter().map(|t| format_time(*t)).collect()
}

fn refused<T: std::fmt::Debug>(result: Result<T, MarketError>, expected: &[&str]) {
    let message = result.unwrap_err().to_string();
    expected.iter().for_each(|words| assert!(message.contains(words), "{words:?} is missing in: {message}"));
}

fn compute(place: &Place, name: &str, text: &str) -> Result<FileSeries, MarketError> {
    read_series(place.write(name, text), &ReadOptions::default())
}

#[test]
fn categories_may_be_of_any_type_and_there_may_be_none() {
    let place = Place::new();
    let dictionary = |keys: &[Option<i32>], values: ArrayRef| -> ArrayRef {
        Arc::new(DictionaryArray::try_new(Int32Array::from(keys.to_vec()), values).unwrap())
    };
    let dates =
        |days: &[i32]| -> ArrayRef { Arc::new(Date32Array::from_iter_values(days.iter().map(|day| DAY + day))) };
    let keys = [Some(0), Some(0), Some(1), Some(1)];
    let prices = dictionary(&[Some(1), Some(0), Some(1), Some(1)], Arc::new(Float64Array::from(vec![2.5, 7.0])));
    for (name, names) in [
        ("text.arrow", Arc::new(StringArray::from(vec!["1", "22"])) as ArrayRef),
        ("whole.arrow", Arc::new(Int64Array::from(vec![1, 22]))),
        ("short.arrow", Arc::new(Int16Array::from(vec![1, 22]))),
    ] {
        let columns =
            vec![("symbol", dictionary(&keys, names)), ("date", dates(&[0, 1, 0, 1])), ("close", Arc::clone(&prices))];
        let file = place.write(name, arrow(columns));
        let dataset = name.trim_end_matches(".arrow");
        import(&place, dataset, &[file], |_| {}).unwrap();
        let found = load_all(&place.store.open(dataset).unwrap());
        assert_eq!(found.iter().map(|bars| &*bars.symbol).collect::<Vec<_>>(), ["1", "22"], "{name}");
    }
    // Rows without a category, and no row at all, where there are no categories.
    for (name, keys) in [("missing.arrow", &[None, None][..]), ("empty.arrow", &[])] {
        let none: ArrayRef = Arc::new(StringArray::from(Vec::<&str>::new()));
        let days: Vec<i32> = (0..keys.len() as i32).collect();
        let columns = vec![("symbol", dictionary(keys, none)), ("date", dates(&days)), ("close", closes(keys.len()))];
        refused(import(&place, "none", &[place.write(name, arrow(columns))], |_| {}), &["row"]);
    }
}

#[cfg(unix)]
#[test]
fn a_pipe_is_read_whole_and_only_once() {
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;
    let place = Place::new();
    let piped = |text: &str| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(text.as_bytes()).unwrap();
        let path = PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
        (reader, path)
    };
    let (_reader, path) = piped("symbol,date,close\nA,2024-06-20,5\nA,2024-06-21,6\n");
    let report = place.import("piped", &[path]).unwrap();
    assert_eq!((report.rows_read, report.rows_kept), (2, 2));
    let (_reader, path) = piped("date,close\n2024-06-20,5\n");
    let series = read_series(path, &ReadOptions::default()).unwrap();
    assert_eq!(series.symbols[0].values[0], [5.0]);
    // The number of a descriptor is not a symbol.
    let (_reader, path) = piped("date,close\n2024-06-20,5\n");
    refused(place.import("nameless", &[path]), &["neither a name nor a column of symbols", "--map symbol=COLUMN"]);
}

#[test]
fn a_time_of_day_in_a_column_of_its_own_is_added_to_the_date() {
    let place = Place::new();
    let clock = |i: i64| (9 * 60 + 30 + i) * 60;
    let days = || -> ArrayRef { Arc::new(Date32Array::from(vec![DAY; 5])) };
    let texts = || -> ArrayRef { Arc::new(StringArray::from(vec!["2024-06-20"; 5])) };
    let stamps = || -> ArrayRef { Arc::new(TimestampMicrosecondArray::from(vec![i64::from(DAY) * MICROS_OF_DAY; 5])) };
    // Midnight in New York.
    let zoned = || -> ArrayRef {
        let midnight = i64::from(DAY) * MICROS_OF_DAY + 4 * 3_600_000_000;
        Arc::new(TimestampMicrosecondArray::from(vec![midnight; 5]).with_timezone("America/New_York"))
    };
    let seconds = || -> ArrayRef { Arc::new(Time32SecondArray::from_iter_values((0..5).map(|i| clock(i) as i32))) };
    let micros =
        || -> ArrayRef { Arc::new(Time64MicrosecondArray::from_iter_values((0..5).map(|i| clock(i) * 1_000_000))) };
    let nanos =
        || -> ArrayRef { Arc::new(Time64NanosecondArray::from_iter_values((0..5).map(|i| clock(i) * 1_000_000_000))) };
    let words = || -> ArrayRef {
        Arc::new(StringArray::from_iter_values(
            (0..5).map(|i| format!("{:02}:{:02}", clock(i) / 3600, clock(i) / 60 % 60)),
        ))
    };
    let pairs = [
        (days(), micros()),
        (days(), seconds()),
        (days(), nanos()),
        (days(), words()),
        (texts(), micros()),
        (texts(), words()),
        (stamps(), micros()),
        (zoned(), seconds()),
    ];
    for (i, (date, time)) in pairs.into_iter().enumerate() {
        let bytes = parquet(vec![("date", date), ("time", time), ("close", closes(5))]);
        let file = place.write(&format!("{i}/SPY.parquet"), bytes);
        let dataset = format!("clock{i}");
        let report = import(&place, &dataset, from_ref(&file), |o| o.read.zone = Some(Zone::NEW_YORK)).unwrap();
        assert_eq!(
            (report.timeframe.to_string().as_str(), report.rows_added, report.rows_quarantined),
            ("1m", 5, 0),
            "{i}"
        );
        assert_eq!(times(&place, &dataset)[..2], ["2024-06-20T13:30:00Z", "2024-06-20T13:31:00Z"], "{i}");
        let series = read_series(file, &ReadOptions::default()).unwrap();
        assert!(series.symbols[0].texts[1].contains(if i == 7 { "13:31" } else { "09:31" }), "{i}");
    }
}

#[test]
fn a_time_of_day_that_cannot_be_read_is_refused() {
    let place = Place::new();
    let days: ArrayRef = Arc::new(Date32Array::from(vec![DAY, DAY]));
    let bytes = parquet(vec![
        ("date", Arc::clone(&days)),
        ("time", Arc::new(DurationSecondArray::from(vec![1, 2]))),
        ("close", closes(2)),
    ]);
    let file = place.write("A.parquet", bytes);
    refused(place.import("a", &[file]), &["column 'time' has a type that is not read as a time of day", "time64"]);
    let bytes = parquet(vec![
        ("date", Arc::clone(&days)),
        ("time", Arc::new(Int64Array::from(vec![930, 931]))),
        ("close", closes(2)),
    ]);
    let file = place.write("A.parquet", bytes);
    refused(place.import("a", &[file]), &["none of its 2 rows is usable", "line 1, column 'time': '930' is not"]);
    let bytes = parquet(vec![
        ("date", days),
        ("time", Arc::new(StringArray::from(vec![Some("09:30"), None]))),
        ("close", closes(2)),
    ]);
    let file = place.write("A.parquet", bytes);
    let minute = |o: &mut ImportOptions| {
        (o.timeframe, o.read.zone) = (Some(Timeframe::MINUTE), Some(Zone::NEW_YORK));
    };
    let report = import(&place, "a", &[file], minute).unwrap();
    assert_eq!(
        (report.rows_kept, report.quarantined["unreadable time"]),
        (1, 1),
        "a bar without a time is not midnight's"
    );
    // A column without any time is as good as none.
    let file = place.write("B.csv", "date,time,close\n2024-06-20,,1\n2024-06-21,,2\n");
    assert_eq!(place.import("b", &[file]).unwrap().rows_kept, 2);
}

const DAILY: &str = "symbol,date,close\nA,2024-06-18,1\nA,2024-06-20,2\nB,2024-06-18,3\nB,2024-06-20,4\n";

#[test]
fn one_minute_of_each_symbol_does_not_replace_daily_bars() {
    let place = Place::new();
    let daily = place.write("days.csv", DAILY);
    place.import("d", &[daily]).unwrap();
    let minute = place.write("live.csv", "symbol,time,close\nA,2024-06-20T14:31:00Z,20\nB,2024-06-20T14:31:00Z,40\n");
    let expected =
        ["live.csv, line 2: the bar at 2024-06-20T14:31:00Z has a time of day", "--timeframe 1d", "of their own"];
    refused(place.import("d", from_ref(&minute)), &expected);
    let two = "symbol,time,close\nA,2024-06-20T14:31:00Z,20\nA,2024-06-20T14:32:00Z,40\n";
    refused(place.import("d", &[place.write("two.csv", two)]), &["the bars are 1m apart", "holds bars of 1d"]);
    assert_eq!(load_all(&place.store.open("d").unwrap())[0].columns[0], [1.0, 2.0]);
    // Midnight of the exchange is the date of a bar, and who says that these are days is believed.
    let midnight = place.write("m.csv", "symbol,time,close\nA,2024-06-21T04:00:00Z,5\n");
    assert_eq!(place.import("d", &[midnight]).unwrap().rows_added, 1);
    let report = import(&place, "d", &[minute], |o| o.timeframe = Some(Timeframe::DAY)).unwrap();
    assert_eq!(report.rows_revised, 2);
    // Daily bars that are labelled by their close follow each other.
    let at_close = (17..=21).filter(|day| *day != 19).map(|day| format!("C,2024-06-{day}T20:00:00Z,7\n"));
    let file = place.write("c.csv", format!("symbol,time,close\n{}", at_close.collect::<String>()));
    assert_eq!(place.import("d", &[file]).unwrap().rows_added, 4);
}

#[test]
fn rows_with_one_time_are_not_joined_to_one_symbol() {
    let place = Place::new();
    let text = "date,stock,close\n2024-06-18,A,1\n2024-06-18,B,10\n2024-06-20,A,2\n2024-06-20,B,20\n";
    let expected = ["line 3: the time '2024-06-18' is that of the bar before it", "--map symbol=stock"];
    refused(compute(&place, "joined.csv", text), &expected);
    let file = place.write("A.csv", text);
    let expected = ["A.csv: 2 of its 4 rows have the time of another row", "--map symbol=stock"];
    refused(place.import("joined", from_ref(&file)), &expected);
    let named = |o: &mut ImportOptions| o.read.map = vec![("symbol".to_owned(), "stock".to_owned())];
    assert_eq!(import(&place, "named", &[file], named).unwrap().symbols, 2);
    // One double row of many is a row in quarantine, and a remark is not a symbol.
    let rows: String = (1..=28).map(|day| format!("2024-02-{day:02},x,{day}\n")).collect();
    let file = place.write("B.csv", format!("date,remark,close\n{rows}2024-02-28,x,29\n"));
    let report = import(&place, "one", &[file], |o| o.calendar = Some("24/7".to_owned())).unwrap();
    assert_eq!((report.rows_kept, report.rows_quarantined), (28, 1));
}

/// Minutes of 2024-06-20 from an hour and minute on, as a clock without a zone.
fn minutes(from: i64, count: i64) -> String {
    let clock = |i: i64| format!("2024-06-20 {:02}:{:02}", (from + i) / 60, (from + i) % 60);
    (0..count).map(|i| format!("{},{}\n", clock(i), i + 1)).collect()
}

#[test]
fn compute_asks_for_the_zone_where_a_calendar_depends_on_it() {
    let place = Place::new();
    let local = format!("time,close\n{}", minutes(9 * 60 + 30, 390));
    let series = compute(&place, "X.csv", &local).unwrap();
    refused(series.check_zone(Calendar::XNYS), &["outside the regular sessions of XNYS", "--tz America/New_York"]);
    let read = ReadOptions { zone: Some(Zone::NEW_YORK), ..ReadOptions::default() };
    let series = read_series(place.write("X.csv", &local), &read).unwrap();
    assert_eq!(series.check_zone(Calendar::XNYS).unwrap(), None);
    let utc = format!("time,close\n{}", minutes(13 * 60 + 30, 390));
    let note = compute(&place, "Y.csv", &utc).unwrap().check_zone(Calendar::XNYS).unwrap().unwrap();
    assert!(note.contains("were read as UTC"), "{note}");
    let days = compute(&place, "D.csv", "date,close\n2024-06-18,1\n2024-06-20,2\n").unwrap();
    assert_eq!(days.check_zone(Calendar::XNYS).unwrap(), None);
    // LEAN's times are those of New York.
    let lean: String =
        (0..5).map(|i| format!("{},1000000,1010000,990000,1000000,5\n", 34_200_000 + 60_000 * i)).collect();
    let series = compute(&place, "20240620_spy_minute_trade.csv", &lean).unwrap();
    assert_eq!(format_time(series.symbols[0].times.as_ref().unwrap()[0]), "2024-06-20T13:30:00Z");
    assert!(series.notes.iter().any(|note| note.contains("divided by 10,000")), "{:?}", series.notes);
}

#[test]
fn a_decimal_sign_that_a_file_does_not_show_is_refused_unless_it_is_named() {
    let place = Place::new();
    let tab = place.write("T.csv", "date\tclose\tvolume\n2024-06-18\t1,234\t123,400\n2024-06-20\t1,235\t123,500\n");
    let expected = ["T.csv: '1,234' may be 1234 or have a decimal comma", "--decimal-comma"];
    refused(place.import("t", from_ref(&tab)), &expected);
    refused(read_series(tab.clone(), &ReadOptions::default()), &expected);
    let report = import(&place, "t", &[tab], |o| o.read.decimal_comma = true).unwrap();
    assert_eq!(report.rows_kept, 2);
    assert_eq!(load_all(&place.store.open("t").unwrap())[0].columns[0], [1.234, 1.235]);
    let mixed = place.write("S.csv", "date;close;volume\n2024-06-18;1.085;12,345\n2024-06-20;1.086;12,346\n");
    refused(place.import("s", &[mixed]), &["'12,345' may be 12345 or have a decimal comma"]);
    let both = place.write("B.csv", "date;close;volume\n2024-06-18;1,5;1,25\n2024-06-20;1.5;2,5\n");
    refused(place.import("b", &[both]), &["'1,5' has a decimal comma, and '1.5' a decimal point"]);
    // Both commands say how they decided.
    let comma = "date;close\n2024-06-18;1,5\n2024-06-20;1.234,5\n";
    assert!(compute(&place, "C.csv", comma).unwrap().notes.iter().any(|note| note.contains("decimal comma")));
}

#[test]
fn a_file_without_a_header_is_leans_only_if_it_is_written_like_them() {
    let place = Place::new();
    let text = "20240618 00:00,500,502,499,501,5\n20240620 00:00,501,503,500,502,6\n";
    refused(place.import("a", &[place.write("SPY.csv", text)]), &["it has no header", "--columns"]);
    let intraday = "20240618 09:31,500,502,499,501,5\n20240618 09:32,501,503,500,502,6\n";
    refused(place.import("a", &[place.write("spy.csv", intraday)]), &["it has no header", "--columns"]);
    let report = place.import("a", &[place.write("spy.csv", text)]).unwrap();
    assert!(report.notes.iter().any(|note| note.contains("divided by 10,000")), "{:?}", report.notes);
}

#[test]
fn weekly_bars_are_recognised_by_few_and_do_not_become_daily_ones() {
    let place = Place::new();
    let weeks = |count: i64| {
        let first = 1_717_372_800_000_000; // 2024-06-03
        (0..count).map(|i| format!("{},{}\n", format_time(first + i * 7 * MICROS_OF_DAY), i + 1)).collect::<String>()
    };
    let file = |name: &str, count: i64| place.write(name, format!("date,close\n{}", weeks(count)));
    let report = place.import("w", &[file("W.csv", 3)]).unwrap();
    assert_eq!((report.timeframe.to_string().as_str(), report.timeframe_inferred), ("1w", true));
    place.import("d", &[place.write("days.csv", DAILY)]).unwrap();
    for count in [3, 15] {
        let expected = ["dataset 'd' holds bars of 1d", "the bars are 1w apart", "--dataset d-1w"];
        refused(place.import("d", &[file("X.csv", count)]), &expected);
    }
    // A symbol that is seldom traded: the user knows better.
    let report = import(&place, "d", &[file("X.csv", 3)], |o| o.timeframe = Some(Timeframe::DAY)).unwrap();
    assert_eq!(report.rows_added, 3);
    let alone = place.import("one", &[place.write("O.csv", "date,close\n2024-06-20,1\n")]).unwrap();
    assert!(alone.notes.iter().any(|note| note.contains("taken for daily bars")), "{:?}", alone.notes);
}

#[test]
fn nothing_ambiguous_is_added_to_a_dataset_by_guess() {
    let place = Place::new();
    place.import("d", &[place.write("X.csv", "date,close\n28/06/2024,1\n01/07/2024,2\n")]).unwrap();
    let next = place.write("X.csv", "date,close\n02/07/2024,3\n");
    refused(place.import("d", from_ref(&next)), &["'02/07/2024' may have its day or its month first", "--day-first"]);
    let read = |o: &mut ImportOptions| o.read.date_order = Some(trawl_market::DateOrder::DayFirst);
    import(&place, "d", &[next], read).unwrap();
    assert_eq!(times(&place, "d"), ["2024-06-28", "2024-07-01", "2024-07-02"]);
    assert_eq!(place.import("d", &[place.write("X.csv", "date,close\n07/07/2024,4\n")]).unwrap().rows_added, 1);
    // Minutes of New York in the afternoon are inside the session as UTC too.
    let file = |name: &str, text: &str| place.write(name, format!("time,close\n{text}"));
    let new_york = |o: &mut ImportOptions| o.read.zone = Some(Zone::NEW_YORK);
    import(&place, "m", &[file("M.csv", &minutes(9 * 60 + 30, 60))], new_york).unwrap();
    let more = file("M.csv", &minutes(14 * 60, 60));
    let expected = ["times without a zone", "dataset 'm' exists", "--tz America/New_York, or --tz UTC"];
    refused(place.import("m", from_ref(&more)), &expected);
    assert_eq!(import(&place, "m", &[more], new_york).unwrap().rows_added, 60);
    // A whole session fits one zone only.
    place.import("u", &[file("U.csv", &minutes(13 * 60 + 30, 390))]).unwrap();
    let day = minutes(13 * 60 + 30, 390).replace("2024-06-20", "2024-06-21");
    assert_eq!(place.import("u", &[file("U.csv", &day)]).unwrap().rows_added, 390);
}

#[test]
fn a_column_of_numbers_is_not_the_symbols_of_a_file_named_after_one() {
    let place = Place::new();
    let file = place.write("COD.csv", "date,code,close\n2024-06-18,0,1\n2024-06-20,1,2\n2024-06-21,0,3\n");
    let report = place.import("c", from_ref(&file)).unwrap();
    let bars = load_all(&place.store.open("c").unwrap());
    assert_eq!((&*bars[0].symbol, bars.len(), report.columns), ("COD", 1, vec!["close".to_owned(), "code".to_owned()]));
    assert_eq!(bars[0].columns[1], [0.0, 1.0, 0.0]);
    assert_eq!(read_series(file, &ReadOptions::default()).unwrap().symbol_heading, None);
    // Codes of several stocks.
    let file = place.write("TOKYO.csv", "date,code,close\n2024-06-18,7203,1\n2024-06-18,6758,2\n");
    refused(place.import("t", &[file]), &["--map symbol=code"]);
    let words = place.write("ALL.csv", "date,code,close\n2024-06-18,A,1\n2024-06-18,B,2\n");
    assert_eq!(place.import("w", &[words]).unwrap().symbols, 2);
}

#[test]
fn timestamps_are_read_in_the_years_of_text() {
    let place = Place::new();
    let good = i64::from(DAY) * MICROS_OF_DAY;
    let year_9999 = 253_370_764_800_000_000;
    for (i, bad) in [i64::MAX, i64::MIN, year_9999].into_iter().enumerate() {
        for zone in [None, Some("America/New_York"), Some("+02:00")] {
            let stamps = TimestampMicrosecondArray::from(vec![bad, good, good + MICROS_OF_DAY]);
            let stamps: ArrayRef = Arc::new(stamps.with_timezone_opt(zone));
            let file = place.write("A.parquet", parquet(vec![("time", stamps), ("close", closes(3))]));
            let dataset = format!("y{i}{}", zone.map_or(0, str::len));
            let report = import(&place, &dataset, &[file], |o| o.timeframe = Some(Timeframe::DAY)).unwrap();
            assert_eq!((report.rows_kept, report.quarantined["unreadable time"]), (2, 1), "{bad} {zone:?}");
        }
    }
    let days: ArrayRef = Arc::new(Date32Array::from(vec![i32::MAX, DAY]));
    let file = place.write("A.parquet", parquet(vec![("date", days), ("close", closes(2))]));
    assert_eq!(place.import("days", &[file]).unwrap().rows_kept, 1);
}

#[test]
fn every_row_of_a_table_of_several_symbols_is_counted() {
    let place = Place::new();
    let row = |date: &str, a: f64, b: f64| format!("{date},{a},{b},{a},{b},{a},{b},{a},{b}\n");
    let text = [
        "Price,Open,Open,High,High,Low,Low,Close,Close\nTicker,A,B,A,B,A,B,A,B\nDate,,,,,,,,\n".to_owned(),
        row("2024-06-18", 1.0, 10.0),
        row("2024-06-20", 2.0, 20.0),
        row("2024-06-18", 3.0, 30.0),
    ]
    .concat();
    let report = place.import("wide", &[place.write("wide.csv", &text)]).unwrap();
    assert_eq!((report.rows_read, report.rows_kept, report.rows_quarantined), (6, 4, 2));
    assert_eq!(report.rows_kept, report.rows_added + report.rows_unchanged + report.rows_revised);
    assert_eq!(quarantine(&place.store, &report).len(), 2);
    let again = [place.write("a.csv", &text), place.write("b.csv", &text)];
    let report = place.import("twice", &again).unwrap();
    assert_eq!(report.rows_kept, report.rows_added + report.rows_unchanged + report.rows_revised);
    assert_eq!((report.rows_read, report.rows_kept), (12, 4));
}

#[test]
fn files_with_different_orders_of_day_and_month_are_named() {
    let place = Place::new();
    let day = place.write("D.csv", "date,close\n13/06/2024,1\n14/06/2024,2\n");
    let month = place.write("M.csv", "date,close\n06/13/2024,1\n06/14/2024,2\n");
    let report = place.import("both", &[day, month]).unwrap();
    let expected = "dates such as 1/4/1999 were read as each file shows: day first in D.csv, month first in M.csv";
    assert_eq!(report.notes, [expected]);
    let series = compute(&place, "X.csv", "date,close\n06/13/2024,1\n14/06/2024,2\n").unwrap();
    assert!(series.notes[0].contains("have both orders of day and month"), "{:?}", series.notes);
}

#[test]
fn of_rows_with_one_time_the_first_is_kept_in_either_direction() {
    let place = Place::new();
    let oldest = "date,close\n2024-06-17,1\n2024-06-18,2\n2024-06-18,3\n2024-06-20,4\n";
    let newest = "date,close\n2024-06-20,4\n2024-06-18,2\n2024-06-18,3\n2024-06-17,1\n";
    for (name, text, line) in [("O", oldest, "4"), ("N", newest, "4")] {
        let dataset = name.to_lowercase();
        let report = place.import(&dataset, &[place.write(&format!("{name}.csv"), text)]).unwrap();
        assert_eq!(load_all(&place.store.open(&dataset).unwrap())[0].columns[0], [1.0, 2.0, 4.0], "{name}");
        assert_eq!(quarantine(&place.store, &report)[0][1], line, "{name}");
    }
}

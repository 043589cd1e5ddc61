//! Files as vendors and libraries write them, imported at the first attempt, or refused with advice. Every file is
//! created here, in the format that its source documents.

use std::io::Write as _;
use std::process::Stdio;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, Date32Array, DictionaryArray, Float64Array, Int64Array, LargeStringArray, RecordBatch,
    TimestampNanosecondArray,
};
use trawl_tests::home::Home;
use trawl_tests::process::Ended;

/// Sessions of New York in a row; the 19th was a holiday.
const DAYS: [&str; 8] =
    ["2024-06-10", "2024-06-11", "2024-06-12", "2024-06-13", "2024-06-14", "2024-06-17", "2024-06-18", "2024-06-20"];
/// 2024-06-20 00:00 UTC in seconds since 1970.
const MIDNIGHT: i64 = 1_718_841_600;
/// The open of New York on that day.
const OPEN: i64 = MIDNIGHT + (13 * 60 + 30) * 60;

/// open,high,low,close,volume of the bar at a place.
fn bar(i: usize) -> String {
    let close = 100.0 + i as f64 / 4.0;
    format!("{},{},{},{close},{}", close - 0.25, close + 0.5, close - 0.5, 1000 + i)
}

fn lines(header: &str, rows: impl Iterator<Item = String>) -> String {
    std::iter::once(header.to_owned())
        .chain(rows)
        .filter(|line| !line.is_empty())
        .fold(String::new(), |all, line| all + &line + "\n")
}

fn write(home: &Home, name: &str, bytes: &[u8]) {
    let path = home.path(name);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    std::fs::write(path, bytes).expect("the file can be written");
}

fn gzip(text: &str) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(text.as_bytes()).expect("gzip");
    packed.finish().expect("gzip")
}

fn archive(members: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, text) in members {
        archive.start_file(*name, zip::write::SimpleFileOptions::default()).expect("a member");
        archive.write_all(text.as_bytes()).expect("a member");
    }
    archive.finish().expect("an archive").into_inner()
}

/// Imports into the dataset `mine`, and expects these words in the output.
#[track_caller]
fn imports(home: &Home, arguments: &[&str], expected: &[&str]) -> String {
    let ended = home.trawl(&[&["import", "--dataset", "mine"], arguments].concat()).expect_code(0);
    let printed = format!("{}{}", ended.stdout, ended.stderr);
    expected.iter().for_each(|words| assert!(printed.contains(words), "{words:?} is missing in: {printed}"));
    printed
}

#[track_caller]
fn refuses(home: &Home, arguments: &[&str], expected: &[&str]) {
    let ended = home.trawl(&[&["import", "--dataset", "mine"], arguments].concat()).expect_code(2);
    expected
        .iter()
        .for_each(|words| assert!(ended.stderr.contains(words), "{words:?} is missing in: {}", ended.stderr));
    assert!(!home.data_root().join("mine").exists(), "nothing was written");
}

/// Symbol and values at the newest bar of `mine`.
#[track_caller]
fn newest(home: &Home, select: &[&str]) -> Vec<String> {
    let mut arguments = vec!["scan", "--dataset", "mine", "--where", "close > 0", "--output", "out.csv"];
    select.iter().for_each(|item| arguments.extend(["--select", item]));
    home.trawl(&arguments).expect_code(0);
    let text = String::from_utf8(home.read("out.csv")).expect("text");
    let cells = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        [&cells[2..3], &cells[7..]].concat().join(" ")
    };
    text.lines().skip(1).map(cells).collect()
}

fn daily(header: &str) -> String {
    lines(header, DAYS.iter().enumerate().map(|(i, day)| format!("{day},{}", bar(i))))
}

/// Minutes from the open of 2024-06-20, with the time written by `time`.
fn minutes(count: usize, header: &str, time: impl Fn(i64) -> String) -> String {
    lines(header, (0..count).map(|i| format!("{},{}", time(OPEN + 60 * i as i64), bar(i))))
}

#[test]
fn a_long_table_has_a_column_of_symbols() {
    let home = Home::new();
    let rows = ["AAA", "BBB"]
        .iter()
        .flat_map(|symbol| DAYS.iter().enumerate().map(move |(i, day)| format!("{symbol},{day},{}", bar(i))));
    home.write("long.csv", &lines("symbol,date,open,high,low,close,volume", rows));
    imports(
        &home,
        &["long.csv"],
        &["2 symbols, 16 bars of 1d (inferred from their spacing), 2024-06-10 to 2024-06-20"],
    );
    assert_eq!(newest(&home, &["volume"]), ["AAA 1007", "BBB 1007"]);
}

#[test]
fn json_lines_give_the_dataset_of_the_same_rows_as_csv() {
    let home = Home::new();
    let header = "date,open,high,low,close,volume";
    // Keys in another order from line to line; digits of which every one counts.
    let object = |at: usize, line: &str| {
        let names = header.split(',').zip(line.split(',')).collect::<Vec<_>>();
        let mut pairs: Vec<String> = names
            .iter()
            .map(|(name, value)| match *name {
                "date" => format!("{name:?}: {value:?}"),
                _ => format!("{name:?}:{value}"),
            })
            .collect();
        pairs.rotate_left(at % 3);
        pairs.push(format!("\"extra\": {{\"note\": [null, \"{at}\"]}}"));
        format!("{{{}}}", pairs.join(", "))
    };
    let text = daily(header).replace("100.25", "100.2500000000000142");
    let objects: String = text.lines().skip(1).enumerate().map(|(at, line)| object(at, line) + "\r\n").collect();
    write(&home, "csv/AAA.csv", text.as_bytes());
    write(&home, "json/AAA.jsonl", objects.as_bytes());
    write(&home, "packed/AAA.ndjson.gz", &gzip(&format!("\u{feff}{objects}")));
    let exported = ["csv", "json", "packed"].map(|folder| {
        home.trawl(&["import", "--dataset", folder, folder]).expect_code(0);
        home.trawl(&["data", "export", folder, "--symbol", "AAA", "-o", "-"]).expect_code(0).stdout
    });
    assert!(exported[0].contains("100.25000000000001") && exported[0].lines().count() == 1 + DAYS.len());
    assert_eq!([&exported[1], &exported[2]], [&exported[0]; 2]);
}

#[test]
fn lines_that_are_no_rows_of_json_are_in_quarantine_with_their_reasons() {
    let home = Home::new();
    let row = |i: usize, more: &str| {
        let time = 1_718_000_000_000 + 86_400_000 * i as i64;
        format!("{{\"t\":{time},\"o\":1,\"h\":2,\"l\":1,\"c\":\"1.5\"{more}}}\n")
    };
    // More lines than those that decide the columns.
    let mut text: String = (0..600).map(|i| row(i, "")).collect();
    text += &row(600, ",\"late\":1");
    text += &row(601, ",\"c\":1");
    text += "{\"t\":\n";
    text += &row(603, "");
    home.write("AAA.jsonl", &text);
    let reasons = ["key that the first lines lack", "key given twice", "not a JSON object", "601 bars"];
    imports(&home, &["AAA.jsonl", "--timeframe", "1d", "--calendar", "24/7"], &reasons);
    let columns = ["AAA.jsonl", "--columns", "t,o,h,l,c"];
    let ended = home.trawl(&[&["import", "--dataset", "other"], &columns[..]].concat()).expect_code(2);
    assert!(ended.stderr.contains("its lines name their values"), "{}", ended.stderr);
}

#[test]
fn frames_of_yfinance_are_read_with_one_header_line_or_two() {
    let home = Home::new();
    let row = |(i, day): (usize, &&str)| format!("{day} 00:00:00-04:00,{},0.0,0.0", bar(i));
    let text = lines("Date,Open,High,Low,Close,Volume,Dividends,Stock Splits", DAYS.iter().enumerate().map(row));
    home.write("hist_AAPL.csv", &text);
    let expected =
        ["recognised yfinance", "1 symbol, 8 bars of 1d (inferred from their spacing), 2024-06-10 to 2024-06-20"];
    imports(&home, &["hist_AAPL.csv", "--symbol-from", r"hist_(.*)\.csv"], &expected);
    assert_eq!(newest(&home, &["close"]), ["AAPL 101.75"]);
    // download('AAPL'), and download(['AAPL', 'MSFT']) where one was not traded on a day.
    let home = Home::new();
    let text = "Price,Close,High,Low,Open,Volume\nTicker,AAPL,AAPL,AAPL,AAPL,AAPL\nDate,,,,,\n\
                2024-06-18,10,11,9,10,5\n2024-06-20,11,12,10,11,6\n";
    home.write("one.csv", text);
    imports(
        &home,
        &["one.csv"],
        &["recognised yfinance", "1 symbol, 2 bars of 1d (inferred from their spacing), 2024-06-18 to 2024-06-20"],
    );
    assert_eq!(newest(&home, &["close", "volume"]), ["AAPL 11 6"]);
    let home = Home::new();
    let text = "Price,Close,Close,High,High,Low,Low,Open,Open,Volume,Volume\n\
                Ticker,AAPL,MSFT,AAPL,MSFT,AAPL,MSFT,AAPL,MSFT,AAPL,MSFT\nDate,,,,,,,,,,\n\
                2024-06-18,10,,11,,9,,10,,5,\n2024-06-20,11,400,12,401,10,399,11,400,6,7\n";
    home.write("many.csv", text);
    imports(&home, &["many.csv"], &["read 3 rows of 2 symbols", "2 symbols, 3 bars of 1d"]);
    assert_eq!(newest(&home, &["close", "volume"]), ["AAPL 11 6", "MSFT 400 7"]);
}

#[test]
fn files_of_stooq_are_named_and_headed_as_it_does() {
    let home = Home::new();
    home.write("aapl_us_d.csv", &daily("Date,Open,High,Low,Close,Volume"));
    imports(&home, &["aapl_us_d.csv"], &["1 symbol, 8 bars of 1d"]);
    assert_eq!(newest(&home, &["volume"]), ["AAPL 1007"]);
    let home = Home::new();
    let row = |(i, day): (usize, &&str)| format!("AAPL.US,D,{},000000,{},0", day.replace('-', ""), bar(i));
    let header = "<TICKER>,<PER>,<DATE>,<TIME>,<OPEN>,<HIGH>,<LOW>,<CLOSE>,<VOL>,<OPENINT>";
    let text = lines(header, DAYS.iter().enumerate().map(row));
    write(&home, "bulk/aapl.us.txt", text.as_bytes());
    write(&home, "bulk/readme.md", b"not bars");
    write(&home, "more.zip", &archive(&[("daily/us/ibm.us.txt", &text.replace("AAPL", "IBM"))]));
    imports(&home, &["bulk", "more.zip"], &["recognised stooq", "2 symbols, 16 bars of 1d"]);
    assert_eq!(newest(&home, &["volume"]), ["AAPL 1007", "IBM 1007"]);
}

#[test]
fn klines_of_binance_need_no_header_and_no_calendar() {
    let home = Home::new();
    let kline = |start: i64, unit: i64, i: usize| {
        let time = (start + 60 * i as i64) * unit;
        format!("{time},{},{},1,3,0,0,0", bar(i), time + 60 * unit - 1)
    };
    let may = lines("", (0..90).map(|i| kline(MIDNIGHT - 40 * 86_400, 1_000, i)));
    let header = "open_time,open,high,low,close,volume,close_time,quote_volume,count,taker_buy_volume,\
                  taker_buy_quote_volume,ignore";
    let june = lines(header, (0..90).map(|i| kline(MIDNIGHT, 1_000_000, i)));
    home.write("BTCUSDT-1m-2024-05.csv", &may);
    write(&home, "BTCUSDT-1m-2024-06.zip", &archive(&[("BTCUSDT-1m-2024-06.csv", &june)]));
    let printed = imports(
        &home,
        &["BTCUSDT-1m-2024-05.csv", "BTCUSDT-1m-2024-06.zip"],
        &["recognised binance", "1 symbol, 180 bars of 1m", "calendar 24/7", "close_time, ignore"],
    );
    assert!(!printed.contains("quarantine"), "{printed}");
    assert_eq!(newest(&home, &["volume", "quote_volume"]), ["BTCUSDT 1089 1"]);
    // Any other file without a header is refused with advice.
    let home = Home::new();
    home.write("bare.csv", &daily(""));
    refuses(&home, &["bare.csv"], &["it has no header", "--columns time,open,high,low,close,volume"]);
    imports(&home, &["bare.csv", "--columns", "time,open,high,low,close,volume"], &["1 symbol, 8 bars of 1d"]);
}

#[test]
fn the_timeframe_of_flat_files_of_polygon_is_inferred_from_their_spacing() {
    let home = Home::new();
    for (i, day) in DAYS.iter().enumerate() {
        // Midnight in New York, in nanoseconds; one bar for each symbol in a file.
        let time = (MIDNIGHT - (20 - day[8..].parse::<i64>().expect("a day")) * 86_400 + 4 * 3_600) * 1_000_000_000;
        let rows = ["AAPL", "IBM"].iter().map(|t| format!("{t},1000,10,{},12,9,{time},5", 10.5 + i as f64 / 8.0));
        let text = lines("ticker,volume,open,close,high,low,window_start,transactions", rows);
        write(&home, &format!("days/{day}.csv.gz"), &gzip(&text));
    }
    imports(
        &home,
        &["days"],
        &["recognised polygon", "2 symbols, 16 bars of 1d (inferred from their spacing), 2024-06-10 to 2024-06-20"],
    );
    let home = Home::new();
    let rows = (0..60).map(|i| format!("AAPL,1000,10,10.5,12,9,{},5", (OPEN + 60 * i) * 1_000_000_000));
    let text = lines("ticker,volume,open,close,high,low,window_start,transactions", rows);
    write(&home, "2024-06-20.csv.gz", &gzip(&text));
    imports(&home, &["2024-06-20.csv.gz"], &["1 symbol, 60 bars of 1m", "2024-06-20T13:30:00Z to"]);
}

#[test]
fn alpaca_lean_and_metatrader_are_recognised() {
    let home = Home::new();
    let row = |i: usize| format!("AAPL,2024-06-20 13:{:02}:00+00:00,{},5,100.1", 30 + i, bar(i));
    let header = "symbol,timestamp,open,high,low,close,volume,trade_count,vwap";
    home.write("alpaca.csv", &lines(header, (0..20).map(row)));
    imports(&home, &["alpaca.csv"], &["recognised alpaca", "1 symbol, 20 bars of 1m", "2024-06-20T13:30:00Z to"]);
    // Milliseconds since midnight in New York, prices times 10,000.
    let home = Home::new();
    let row = |i: i64| format!("{},1234500,1235000,1234000,1234600,{}", 34_200_000 + 60_000 * i, 100 + i);
    let member = lines("", (0..30).map(row));
    write(&home, "20240620_trade.zip", &archive(&[("20240620_spy_minute_trade.csv", &member)]));
    let expected = ["recognised lean", "1 symbol, 30 bars of 1m", "2024-06-20T13:30:00Z to 2024-06-20T13:59:00Z"];
    imports(&home, &["20240620_trade.zip"], &expected);
    assert_eq!(newest(&home, &["close"]), ["SPY 123.46"]);
    // A broker's server time, whose zone cannot be known.
    let home = Home::new();
    let row =
        |i: i64| format!("2024.06.20\t{:02}:{:02}:00\t10\t11\t9\t10.5\t50\t7\t1", 16 + (30 + i) / 60, (30 + i) % 60);
    let header = "<DATE>\t<TIME>\t<OPEN>\t<HIGH>\t<LOW>\t<CLOSE>\t<TICKVOL>\t<VOL>\t<SPREAD>";
    home.write("US500_M1_202406201630_202406202259.csv", &lines(header, (0..390).map(row)));
    let file = "US500_M1_202406201630_202406202259.csv";
    refuses(&home, &[file], &["are outside the regular sessions of XNYS", "set --tz Europe/Athens"]);
    let expected = ["recognised metatrader", "390 bars of 1m", "2024-06-20T13:30:00Z to 2024-06-20T19:59:00Z"];
    imports(&home, &[file, "--tz", "Europe/Athens"], &expected);
    assert_eq!(newest(&home, &["volume", "tickvol"]), ["US500 7 50"]);
}

fn frame(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter(columns).expect("columns of one length")
}

fn parquet(frame: &RecordBatch, compression: parquet::basic::Compression) -> Vec<u8> {
    let properties = parquet::file::properties::WriterProperties::builder().set_compression(compression).build();
    let mut bytes = Vec::new();
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(&mut bytes, frame.schema(), Some(properties)).expect("Parquet");
    writer.write(frame).expect("Parquet");
    writer.close().expect("Parquet");
    bytes
}

fn floats(count: usize, first: f64) -> ArrayRef {
    Arc::new((0..count).map(|i| Some(first + i as f64 / 4.0)).collect::<Float64Array>())
}

#[test]
fn parquet_and_arrow_of_pandas_and_polars_are_read() {
    // pandas: an index of nanoseconds in a zone, a column of plain text; pyarrow compresses with Snappy.
    let home = Home::new();
    let times: Vec<i64> = (0..60).map(|i| (OPEN + 60 * i) * 1_000_000_000).collect();
    let index = TimestampNanosecondArray::from(times).with_timezone("America/New_York");
    let symbols: DictionaryArray<Int32Type> = std::iter::repeat_n("AAPL", 60).collect();
    let pandas = frame(vec![
        ("symbol", Arc::new(symbols) as ArrayRef),
        ("close", floats(60, 100.0)),
        ("volume", Arc::new(Int64Array::from_iter_values(1000..1060))),
        ("__index_level_0__", Arc::new(index)),
    ]);
    write(&home, "pandas.parquet", &parquet(&pandas, parquet::basic::Compression::SNAPPY));
    let expected = ["1 symbol, 60 bars of 1m", "2024-06-20T13:30:00Z to 2024-06-20T14:29:00Z"];
    imports(&home, &["pandas.parquet"], &expected);
    assert_eq!(newest(&home, &["close", "volume"]), ["AAPL 114.75 1059"]);
    // polars: dates, large strings, zstd. A bad row is quarantined by its number.
    let home = Home::new();
    let days = DAYS.iter().map(|day| (MIDNIGHT / 86_400) as i32 - (20 - day[8..].parse::<i32>().expect("a day")));
    let mut closes: Vec<f64> = (0..8).map(|i| 10.0 + f64::from(i)).collect();
    closes[2] = -1.0;
    let polars = frame(vec![
        ("ticker", Arc::new(LargeStringArray::from(vec!["IBM"; 8])) as ArrayRef),
        ("date", Arc::new(Date32Array::from_iter_values(days))),
        ("close", Arc::new(Float64Array::from(closes))),
    ]);
    let zstd = parquet::basic::Compression::ZSTD(parquet::basic::ZstdLevel::default());
    write(&home, "polars.parquet", &parquet(&polars, zstd));
    imports(
        &home,
        &["polars.parquet"],
        &["7 bars of 1d (inferred from their spacing), 2024-06-10 to 2024-06-20", "1 zero or negative price"],
    );
    let dry = home.trawl(&["import", "polars.parquet", "--dataset", "other", "--dry-run"]).expect_code(0).stdout;
    assert!(dry.contains("polars.parquet, line 3, zero or negative price: IBM,2024-06-12,-1"), "{dry}");
    // Feather, which is an Arrow file that pandas compresses with LZ4; and a stream on standard input.
    let home = Home::new();
    let lz4 = arrow_ipc::writer::IpcWriteOptions::default()
        .try_with_compression(Some(arrow_ipc::CompressionType::LZ4_FRAME))
        .expect("LZ4 is known");
    let mut bytes = Vec::new();
    let mut file =
        arrow_ipc::writer::FileWriter::try_new_with_options(&mut bytes, &pandas.schema(), lz4).expect("Arrow");
    file.write(&pandas).and_then(|()| file.finish()).expect("Arrow");
    drop(file);
    write(&home, "bars.feather", &bytes);
    imports(&home, &["bars.feather"], &["1 symbol, 60 bars of 1m"]);
    let mut bytes = Vec::new();
    let mut stream = arrow_ipc::writer::StreamWriter::try_new(&mut bytes, &polars.schema()).expect("Arrow");
    stream.write(&polars).and_then(|()| stream.finish()).expect("Arrow");
    drop(stream);
    let ended = piped(&home, &["import", "-", "--dataset", "piped"], &bytes);
    assert!(ended.contains("1 symbol, 7 bars of 1d"), "{ended}");
    let ended = piped(&home, &["import", "-", "--dataset", "text"], b"symbol,date,close\nA,2024-06-20,5\n");
    assert!(ended.contains("1 symbol, 1 bar of 1d"), "{ended}");
}

/// The output of `trawl` for these bytes on its standard input.
#[track_caller]
fn piped(home: &Home, arguments: &[&str], bytes: &[u8]) -> String {
    let mut child = home.command(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    child.stdin.take().expect("a pipe").write_all(bytes).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_file_that_cannot_be_read_is_refused_with_advice() {
    let home = Home::new();
    for (name, bytes, expected) in [
        (
            "bars.duckdb",
            &b"\0\0\0\0\0\0\0\0DUCK\x40\0\0\0"[..],
            &["DuckDB database", "copy TABLE to 'bars.parquet'"][..],
        ),
        ("frame.pkl", b"\x80\x04\x95\x00\x01", &["Python pickle", "to_parquet"]),
        ("bars.json", b"[{\"close\": 1}]", &["it is a JSON array", "an object on each line", "jq -c '.[]' FILE"]),
        ("pretty.json", b"{\n  \"close\": 1\n}\n", &["no objects with values", "an object on each line"]),
        ("old.feather", b"FEA1\0\0", &["Feather file of version 1"]),
        ("cut.parquet", b"PAR1\x15\x04", &["it cannot be read", "whole Parquet"]),
        ("page.csv", b"<!DOCTYPE html><html>", &["it is a web page"]),
    ] {
        write(&home, name, bytes);
        refuses(&home, &[name], expected);
    }
    write(&home, "book.xlsx", &archive(&[("xl/workbook.xml", "<xml/>")]));
    refuses(&home, &["book.xlsx"], &["Excel workbook", "saved as CSV"]);
    home.write("suffix.csv", "date,close,volume\n2024-06-20,5,1.25M\n");
    let expected = ["none of its 1 rows is usable", "line 2, column 'volume': '1.25M' is not a number: a suffix"];
    refuses(&home, &["suffix.csv"], &expected);
}

#[test]
fn a_decimal_comma_and_thousands_separators_are_distinguished() {
    let home = Home::new();
    let rows = DAYS.iter().enumerate().map(|(i, day)| {
        let date: Vec<&str> = day.split('-').collect();
        format!("{}.{}.{};1.2{i}4,50;10.000", date[2], date[1], date[0])
    });
    home.write("XYZ.csv", &lines("Date;Close;Volume", rows));
    let expected =
        ["1 symbol, 8 bars of 1d (inferred from their spacing), 2024-06-10 to 2024-06-20", "read with a decimal comma"];
    imports(&home, &["XYZ.csv"], &expected);
    assert_eq!(newest(&home, &["close", "volume"]), ["XYZ 1274.5 10000"]);
}

#[test]
fn minutes_are_never_imported_as_days_and_a_local_clock_never_as_utc() {
    let home = Home::new();
    home.write("MIN.csv", &session());
    let expected = [
        "% of the bars are outside the regular sessions of XNYS",
        "read in America/New_York it would be 0 %: set --tz",
    ];
    refuses(&home, &["MIN.csv"], &expected);
    let expected = ["the bars are 1m apart, which contradicts --timeframe 1d", "--timeframe 1m, or none"];
    refuses(&home, &["MIN.csv", "--timeframe", "1d", "--tz", "America/New_York"], &expected);
    let dry = home.trawl(&["import", "MIN.csv", "--dataset", "mine", "--tz", "America/New_York", "--dry-run"]);
    for words in
        ["time", "-> time", "timeframe  1m (inferred from the spacing", "zone       America/New_York", "all bars fit"]
    {
        assert!(dry.stdout.contains(words), "{words:?} is missing in: {}", dry.stdout);
    }
    assert!(!home.data_root().join("mine").exists(), "nothing was written");
    let expected = ["390 bars of 1m (inferred from their spacing), 2024-06-20T13:30:00Z to 2024-06-20T19:59:00Z"];
    imports(&home, &["MIN.csv", "--tz", "America/New_York"], &expected);
    // Daily bars cannot be added to a dataset of minutes, and the message gives advice.
    home.write("DAY.csv", &daily("date,open,high,low,close,volume"));
    let ended = home.trawl(&["import", "DAY.csv", "--dataset", "mine", "--timeframe", "1d"]).expect_code(2);
    for words in ["dataset 'mine' holds bars of 1m", "--dataset mine-1d", "trawl data rm mine"] {
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
    // Bars on every day of the week are not bars of New York.
    let home = Home::new();
    let all = lines("date,close", (1..=30).map(|day| format!("2024-06-{day:02},{day}")));
    home.write("BTC.csv", &all);
    let expected = ["are on dates on which XNYS has no session", "2024-06-01 (Saturday)", "use --calendar 24/7"];
    refuses(&home, &["BTC.csv"], &expected);
    imports(&home, &["BTC.csv", "--calendar", "24/7"], &["30 bars of 1d", "calendar 24/7"]);
}

#[test]
fn one_unreadable_file_of_a_folder_is_left_out_and_reported() {
    let home = Home::new();
    write(&home, "in/AAA.csv", daily("date,open,high,low,close,volume").as_bytes());
    write(&home, "in/BAD.csv", b"\0\x01\x02\x03");
    refuses(&home, &["in", "--strict"], &["BAD.csv"]);
    let expected =
        ["left out in/BAD.csv: its first line is not text", "1 of 2 files could not be read", "8 bars of 1d"];
    imports(&home, &["in"], &expected);
}

#[test]
fn compute_writes_the_format_of_its_outputs_extension() {
    let home = Home::new();
    home.write("A.csv", &daily("date,open,high,low,close,volume"));
    let compute = |output: &str| -> Ended {
        home.trawl(&["compute", "--input", "A.csv", "--expr", "sma(2) as m", "--output", output])
    };
    compute("m.parquet").expect_code(0);
    compute("m.arrow").expect_code(0);
    compute("m.json").expect_code(0);
    assert!(compute("m.xlsx").expect_code(2).stderr.contains(".csv, .json, .jsonl, .parquet or .arrow"));
    assert!(home.read("m.parquet").starts_with(b"PAR1") && home.read("m.arrow").starts_with(b"ARROW1"));
    let rows: serde_json::Value = serde_json::from_slice(&home.read("m.json")).expect("JSON");
    assert_eq!(rows[1], serde_json::json!({"date": "2024-06-11", "m": 100.125}));
    compute("m.ndjson").expect_code(0);
    let lines = String::from_utf8(home.read("m.ndjson")).expect("text");
    let lines: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(rows.as_array(), Some(&lines));
    // What it writes it reads.
    let args = ["compute", "--input", "m.parquet", "--map", "close=m", "--expr", "close as c"];
    assert_eq!(home.trawl(&args).expect_code(0).stdout.lines().nth(2), Some("2024-06-11,100.125"));
}

/// A day of minutes in New York, on its own clock.
fn session() -> String {
    let local = |time: i64| {
        let minute = (time - MIDNIGHT) / 60 - 4 * 60;
        format!("2024-06-20 {:02}:{:02}", minute / 60, minute % 60)
    };
    minutes(390, "time,open,high,low,close,volume", local)
}

#[test]
fn a_pipe_is_read_whole_under_whatever_path() {
    let home = Home::new();
    let text = b"symbol,date,close\nA,2024-06-18,5\nA,2024-06-20,6\n";
    for path in ["-", "/dev/stdin"] {
        let ended = piped(&home, &["import", path, "--dataset", "piped"], text);
        assert!(ended.contains("read 2 rows of 1 symbol"), "{path}: {ended}");
    }
    let ended = piped(&home, &["compute", "--input", "/dev/stdin", "--expr", "close"], b"date,close\n2024-06-20,5\n");
    assert_eq!(ended, "date,close\n2024-06-20,5\n");
}

#[test]
fn compute_refuses_what_an_import_refuses() {
    let home = Home::new();
    home.write("MIN.csv", &session());
    let compute = |more: &[&str]| home.trawl(&[&["compute", "--input"], more].concat());
    let average = ["MIN.csv", "--expr", "avwap('session')"];
    let ended = compute(&average).expect_code(2);
    assert!(ended.stderr.contains("outside the regular sessions of XNYS"), "{}", ended.stderr);
    assert!(ended.stderr.contains("set --tz America/New_York"), "{}", ended.stderr);
    compute(&[&average[..], &["--tz", "America/New_York"]].concat()).expect_code(0);
    compute(&["MIN.csv", "--expr", "sma(2)"]).expect_code(0);
    home.write("two.csv", "date,stock,close\n2024-06-18,A,1\n2024-06-18,B,10\n");
    let ended = compute(&["two.csv", "--expr", "sma(2)"]).expect_code(2);
    assert!(ended.stderr.contains("--map symbol=stock"), "{}", ended.stderr);
    home.write("tab.csv", "date\tclose\n2024-06-18\t1,234\n");
    let ended = compute(&["tab.csv", "--expr", "close"]).expect_code(2);
    assert!(ended.stderr.contains("--decimal-comma"), "{}", ended.stderr);
    let ended = compute(&["tab.csv", "--expr", "close", "--decimal-comma"]).expect_code(0);
    assert_eq!(ended.stdout.lines().last(), Some("2024-06-18,1.234"));
    assert!(ended.stderr.contains("read with a decimal comma"), "{}", ended.stderr);
}

#[test]
fn an_inferred_timeframe_is_always_reported_and_daily_bars_are_not_replaced_by_minutes() {
    let home = Home::new();
    home.write("W.csv", "date,close\n2024-06-03,1\n2024-06-10,2\n2024-06-17,3\n");
    imports(&home, &["W.csv"], &["3 bars of 1w (inferred from their spacing)"]);
    let home = Home::new();
    home.write("A.csv", &daily("date,open,high,low,close,volume"));
    imports(&home, &["A.csv"], &["8 bars of 1d (inferred from their spacing)"]);
    let before = newest(&home, &["close"]);
    home.write("A.csv", "time,open,high,low,close,volume\n2024-06-20T14:31:00Z,7,7,7,7,7\n");
    let ended = home.trawl(&["import", "A.csv", "--dataset", "mine"]).expect_code(2);
    for words in ["A.csv, line 2: the bar at 2024-06-20T14:31:00Z has a time of day", "--timeframe 1d"] {
        assert!(ended.stderr.contains(words), "{words:?} is missing in: {}", ended.stderr);
    }
    assert_eq!(newest(&home, &["close"]), before);
}

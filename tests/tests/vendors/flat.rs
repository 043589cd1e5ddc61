//! Flat files: each day once, a day that is published again replaced, an import that is killed continued, damage refused.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use trawl_tests::home::Home;
use trawl_tests::process::{self, Ended};
use trawl_tests::s3::{BUCKET, S3};

use super::{bars, gzip, json, killed_at_random, matched, no_secret, snapshot};

const HEADER: &str = "ticker,volume,open,close,high,low,window_start,transactions";
/// Midnight in New York of 2024-01-02, nanoseconds.
const FIRST: i64 = 1_704_171_600_000_000_000;
const DAY: i64 = 86_400_000_000_000;
/// Sessions of the first two weeks of 2024, as days after the first.
const SESSIONS: [i64; 9] = [0, 1, 2, 3, 6, 7, 8, 9, 10];

/// Symbols with their last session; volumes have fractions.
const SYMBOLS: [(&str, usize); 4] = [("AAPL", 8), ("BACpB", 8), ("BRK.B", 8), ("DEAD", 3)];

fn date(session: usize) -> String {
    format!("2024-01-{:02}", 2 + SESSIONS[session])
}

fn row(symbol: &str, session: usize) -> String {
    let k = symbol.len() as f64 + session as f64;
    let start = FIRST + SESSIONS[session] * DAY;
    format!("{symbol},{}.25,{k},{},{},{},{start},7", 1000 + session, k + 0.5, k + 1.0, k - 1.0)
}

fn day(session: usize) -> String {
    let rows = SYMBOLS.iter().filter(|(_, last)| session <= *last).map(|(symbol, _)| row(symbol, session) + "\n");
    format!("{HEADER}\n{}", rows.collect::<String>())
}

/// The same columns the other way round.
fn reversed(text: &str) -> String {
    let line = |line: &str| line.split(',').rev().collect::<Vec<_>>().join(",") + "\n";
    text.lines().map(line).collect()
}

fn place(folder: &Path, session: usize) -> PathBuf {
    let path = folder.join(format!("us_stocks_sip/day_aggs_v1/2024/01/{}.csv.gz", date(session)));
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("the folder can be made");
    path
}

fn write(folder: &Path, session: usize, text: &str) {
    std::fs::write(place(folder, session), gzip(text)).expect("the folder can be written");
}

/// Files of all sessions but those that are not wanted, one with another order of columns.
fn market(folder: &Path, without: &[usize]) {
    for session in (0..SESSIONS.len()).filter(|session| !without.contains(session)) {
        write(folder, session, &if session == 1 { reversed(&day(session)) } else { day(session) });
    }
}

/// What an export of these days is.
fn expected(rows: impl Fn(&str, usize) -> bool) -> String {
    let mut text = "symbol,time,open,high,low,close,volume,transactions\n".to_owned();
    for (symbol, last) in SYMBOLS {
        for session in (0..=last).filter(|session| rows(symbol, *session)) {
            let k = symbol.len() as f64 + session as f64;
            let (date, volume) = (date(session), 1000 + session);
            text += &format!("{symbol},{date},{k},{},{},{},{volume}.25,7\n", k + 1.0, k - 1.0, k + 0.5);
        }
    }
    text
}

fn import<'a>(place: &'a str, dataset: &'a str) -> [&'a str; 7] {
    ["data", "import", "polygon-flat", place, "--dataset", dataset, "--json"]
}

#[test]
fn each_day_is_imported_once_and_replaced_when_it_is_published_again() {
    let home = Home::new();
    let folder = home.path("flat");
    market(&folder, &[4]);
    let from = folder.display().to_string();
    let words = import(&from, "us");
    let made = json(home.trawl(&[&words[..], &["--to", "2024-01-10"]].concat()));
    assert_eq!((&made["days"]["new"], &made["days"]["missing"][0]), (&6.into(), &"2024-01-08".into()), "{made}");
    assert_eq!((&made["import"]["timeframe"], &made["import"]["calendar"]), (&"1d".into(), &"XNYS".into()));
    assert_eq!(bars(&home, "us"), expected(|_, session| session < 7 && session != 4));

    // The rest; what is known is not read again: it may as well be no longer readable.
    for session in 0..3 {
        let path = place(&folder, session);
        let (length, modified) =
            (std::fs::metadata(&path).unwrap().len(), std::fs::metadata(&path).unwrap().modified());
        std::fs::write(&path, vec![b'x'; length as usize]).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(modified.unwrap()).unwrap();
    }
    let more = json(home.trawl(&words));
    assert_eq!((&more["days"]["new"], &more["days"]["unchanged"]), (&2.into(), &6.into()), "{more}");
    market(&folder, &[]);
    let before = snapshot(&home, "us");
    let same = json(home.trawl(&[&words[..], &["--from", "2024-01-11"]].concat()));
    assert_eq!((&same["days"]["republished"].as_array().unwrap().len(), &same["days"]["unchanged"]), (&2, &0.into()));
    assert_eq!(same["import"]["unchanged"], true, "the files are new, their bars are not: {same}");
    home.trawl(&words).expect_code(0);
    let whole = bars(&home, "us");
    assert_eq!(whole, expected(|_, _| true));

    // A day that is published again: one bar has other values, two are gone, of a symbol that has no other bar too.
    write(&folder, 8, &format!("{}ONCE,1,1,1,1,1,{},1\n", day(8), FIRST + SESSIONS[8] * DAY));
    home.trawl(&words).expect_code(0);
    assert!(bars(&home, "us").contains("ONCE"));
    let old = snapshot(&home, "us");
    write(&folder, 8, &day(8).replace(&(row("BRK.B", 8) + "\n"), "").replace("AAPL,1008.25", "AAPL,1.5"));
    let replaced = json(home.trawl(&words));
    assert_eq!(replaced["days"]["republished"], serde_json::json!(["2024-01-12"]));
    assert_eq!((&replaced["import"]["rows_removed"], &replaced["import"]["rows_revised"]), (&2.into(), &1.into()));
    let now = bars(&home, "us");
    let wanted = expected(|symbol, session| (symbol, session) != ("BRK.B", 8))
        .replace("AAPL,2024-01-12,12,13,11,12.5,1008.25", "AAPL,2024-01-12,12,13,11,12.5,1.5");
    assert_eq!(now, wanted);
    assert!(bars(&home, &format!("us@{old}")).contains("ONCE"), "the old snapshot has the old bars");
    assert!(bars(&home, &format!("us@{before}")).lines().count() > 20);
    json(home.trawl(&import(&from, "anew")));
    assert_eq!(snapshot(&home, "anew"), snapshot(&home, "us"), "the same bars in one import");
    home.trawl(&["data", "inspect", "us", "--verify"]).expect_code(0);

    // What was noted is believed only as it was written: a tag of a file that was not imported hides nothing.
    let noted = home.data_root().join("us/vendor.json");
    let text = std::fs::read_to_string(&noted).unwrap();
    write(&folder, 8, &day(8));
    let path = place(&folder, 8);
    let file = std::fs::metadata(&path).unwrap();
    let modified = file.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    let mut note: serde_json::Value = serde_json::from_str(&text).unwrap();
    note["days"]["2024-01-12"] = serde_json::json!({ "bytes": file.len(), "tag": format!("modified {modified}") });
    std::fs::write(&noted, note.to_string()).unwrap();
    json(home.trawl(&words));
    assert_eq!(bars(&home, "us"), expected(|_, _| true));

    // Text, a dry run, and days again by choice.
    let text = home.trawl(&["data", "import", "polygon-flat", &from, "--dataset", "us"]).expect_code(0).stdout;
    assert_eq!(text, "9 days: 0 new, 0 published again, 9 unchanged\nnothing to import\n");
    let dry = home.trawl(&["data", "import", "polygon-flat", &from, "--dataset", "us", "--again", "--dry-run"]);
    assert!(
        dry.expect_code(0).stdout.starts_with("9 days: 0 new, 9 published again, 0 unchanged\nwould be replaced: ")
    );
    // A dataset that was deleted and made anew has none of the days, whatever was noted.
    home.trawl(&["data", "rm", "us"]).expect_code(0);
    assert_eq!(json(home.trawl(&words))["days"]["new"], 9);
}

#[test]
fn sessions_without_files_are_reported_and_tables_are_taken_without_days() {
    let home = Home::new();
    let folder = home.path("flat");
    market(&folder, &[0, 8]);
    std::fs::create_dir_all(folder.join("1/2/3/4/5/6/7")).unwrap();
    let from = folder.display().to_string();
    let words = import(&from, "us");
    let ended = home.trawl(&[&words[..], &["--from", "2024-01-02", "--to", "2024-01-12"]].concat());
    assert!(ended.stderr.contains("1/2/3/4/5/6/7 was not searched for files of days"), "{}", ended.stderr);
    let made = json(ended);
    assert_eq!(made["days"]["missing"], serde_json::json!(["2024-01-02", "2024-01-12"]));
    assert_eq!(json(home.trawl(&words))["days"]["missing"], serde_json::json!([]));

    home.write("names.csv", "symbol,sector\nAAPL,Tech\n");
    let named = json(home.trawl(&[&words[..], &["--symbols", "names.csv"]].concat()));
    assert_eq!((&named["days"]["new"], &named["import"]["symbol_rows"]), (&0.into(), &1.into()), "{named}");
    let calendar = [&words[..], &["--calendar", "weekdays"]].concat();
    assert_eq!(json(home.trawl(&calendar))["import"]["calendar"], "weekdays");
    assert_eq!(json(home.trawl(&calendar))["import"], serde_json::Value::Null);
    assert_eq!(bars(&home, "us"), expected(|_, session| (1..8).contains(&session)));
}

#[test]
fn a_scan_of_a_past_day_has_the_symbols_that_are_delisted_since() {
    let home = Home::new();
    let folder = home.path("flat");
    market(&folder, &[]);
    home.trawl(&import(&folder.display().to_string(), "us")).expect_code(0);
    let scan = |as_of: &[&str]| {
        let words = ["scan", "--dataset", "us", "--where", "close > 0", "--format", "csv", "--quiet", "--output", "-"];
        let ended = home.trawl(&[&words[..], as_of].concat()).expect_code(0);
        matched(&ended.stdout)
    };
    assert_eq!(scan(&["--as-of", &date(3)]), ["AAPL", "BACpB", "BRK.B", "DEAD"]);
    assert_eq!(scan(&["--as-of", &date(4)]), ["AAPL", "BACpB", "BRK.B"]);
    assert_eq!(scan(&[]), ["AAPL", "BACpB", "BRK.B"]);
}

#[test]
fn a_ticker_is_the_symbol_that_has_it_on_the_day() {
    let home = Home::new();
    let folder = home.path("flat");
    for session in 0..SESSIONS.len() {
        // FB is Meta for four sessions, and an other company from the seventh on.
        let tickers = match session {
            0..4 => &["FB", "BRK/B"][..],
            4..6 => &["META", "BRK.B"],
            _ => &["META", "FB", "BRK.B"],
        };
        let rows: String = tickers.iter().map(|ticker| row(ticker, session) + "\n").collect();
        write(&folder, session, &format!("{HEADER}\n{rows}"));
    }
    home.write(
        "names.csv",
        "symbol,ticker,from,to,sector\nMETA,FB,,2024-01-08,Tech\nMETA,META,2024-01-08,,Media\nXFB,FB,2024-01-10,,Funds\nBRK-B,,,,Insurance\n",
    );
    let from = folder.display().to_string();
    let words = import(&from, "us");
    json(home.trawl(&[&words[..], &["--symbols", "names.csv", "--to", "2024-01-09"]].concat()));
    // The table of the dataset counts for what comes later.
    let made = json(home.trawl(&words));
    assert_eq!((&made["days"]["new"], &made["import"]["symbols"]), (&3.into(), &3.into()), "{made}");
    let text = bars(&home, "us");
    let count = |symbol: &str| text.lines().filter(|line| line.starts_with(&format!("{symbol},"))).count();
    assert_eq!((count("META"), count("XFB"), count("BRK-B"), count("FB")), (9, 3, 9, 0), "{text}");
}

#[test]
fn minutes_are_mapped_to_sessions_by_the_calendar() {
    let home = Home::new();
    let folder = home.path("minutes");
    // Before the market, at its open, after it, and past midnight in UTC.
    let minutes = [4 * 60, 9 * 60 + 30, 16 * 60 + 5, 19 * 60 + 59];
    for (session, day) in SESSIONS.into_iter().enumerate().take(3) {
        let path = folder.join(format!("minute_aggs_v1/2024/01/{}.csv.gz", date(session)));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let rows = minutes.map(|minute| {
            let start = FIRST + day * DAY + minute * 60_000_000_000;
            format!("X,10.5,1,1,1,1,{start},2\n")
        });
        std::fs::write(path, gzip(&format!("{HEADER}\n{}", rows.concat()))).unwrap();
    }
    let from = folder.display().to_string();
    let made = json(home.trawl(&import(&from, "us-1m")));
    assert_eq!((&made["import"]["timeframe"], &made["import"]["bars"]), (&"1m".into(), &12.into()), "{made}");
    assert!(made["import"]["fit"].as_str().unwrap().contains("9 bars (75 %) lie outside the regular sessions"));
    // The last bar of a day is of its file's day, though it is past midnight in UTC.
    let path = folder.join("minute_aggs_v1/2024/01/2024-01-03.csv.gz");
    std::fs::write(path, gzip(&format!("{HEADER}\nX,1,1,1,1,1,{},2\n", FIRST + DAY + 34_200_000_000_000))).unwrap();
    let made = json(home.trawl(&import(&from, "us-1m")));
    assert_eq!(made["import"]["rows_removed"], 3, "{made}");
    let left = bars(&home, "us-1m");
    let times: Vec<&str> = left.lines().skip(1).map(|line| line.split(',').nth(1).unwrap()).collect();
    assert_eq!(times.len(), 9, "{left}");
    assert!(times.contains(&"2024-01-03T00:59:00Z") && !times.contains(&"2024-01-04T00:59:00Z"), "{left}");
}

#[test]
fn each_kind_of_damage_has_its_own_message_with_file_and_place() {
    const ALL: &str = "expected the columns ticker, volume, open, close, high, low, window_start";
    let home = Home::new();
    let folder = home.path("flat");
    market(&folder, &[]);
    let from = folder.display().to_string();
    home.trawl(&import(&from, "us")).expect_code(0);
    let before = snapshot(&home, "us");
    let long: String = (0..20_000).map(|k| format!("S{k},1,1,1,1,1,{FIRST},1\n")).collect();
    let whole = gzip(&format!("{HEADER}\n{long}"));
    let mut flipped = whole.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x55;
    let no_close = day(3).replace("close", "shut");
    let zoo: Vec<(&str, Vec<u8>, &[&str])> = vec![
        (
            "cut off",
            whole[..whole.len() / 2].to_vec(),
            &["cannot decompress", "it is cut off, in line ", " bytes of text"],
        ),
        ("cut off in its head", gzip(&day(3))[..40].to_vec(), &["cannot decompress", "it is cut off, in line "]),
        (
            "bytes behind it",
            [gzip(&day(3)), b"xyz".to_vec()].concat(),
            &["cannot decompress", "other bytes follow its compressed data, in line "],
        ),
        ("changed", flipped, &["cannot decompress", ", in line "]),
        ("empty", Vec::new(), &["2024-01-05.csv.gz: it is empty"]),
        ("header only", gzip(&format!("{HEADER}\n")), &["it has a header but no rows"]),
        ("no close", gzip(&no_close), &["no column 'close'"]),
        ("no ticker", gzip(&day(3).replace("ticker,", "tick,")), &["'tick,volume,", "no column 'ticker'", ALL]),
        ("no volume", gzip(&day(3).replace("volume,", "traded,")), &["'ticker,traded,", "no column 'volume'", ALL]),
        (
            "no prices",
            gzip(&day(3).replace("open,close,high,low", "a,b,c,d")),
            &["has no columns 'open', 'close', 'high', 'low'", ALL],
        ),
        ("no time", gzip(&day(3).replace("window_start", "date")), &["no column 'window_start'", ALL]),
        ("web page", b"<!DOCTYPE html><html>denied</html>".to_vec(), &["it is a web page"]),
        (
            "answer of a bucket",
            b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>".to_vec(),
            &["web page"],
        ),
        (
            "no bar",
            gzip(&format!("{HEADER}\nX,1,-1,-1,-1,-1,{FIRST},1\n")),
            &["none of its 1 rows is usable (line 2, column 'open': '-1' is not a price above zero)"],
        ),
        (
            "another day",
            gzip(&day(2)),
            &["none of its 4 bars is of the date in its name", "expected the bars of that date"],
        ),
        ("bzip2", b"BZh91AY&SY".to_vec(), &["it is compressed with bzip2"]),
    ];
    for (what, bytes, words) in zoo {
        std::fs::write(place(&folder, 3), bytes).unwrap();
        let ended = home.trawl(&import(&from, "us")).expect_code(2);
        assert!(ended.stderr.contains("2024-01-05.csv.gz"), "{what}: {}", ended.stderr);
        for word in words {
            assert!(ended.stderr.contains(word), "{what}: {word}: {}", ended.stderr);
        }
        assert_eq!(snapshot(&home, "us"), before, "{what}");
    }
    // A bad row is put into quarantine, and counted.
    let start = FIRST + SESSIONS[3] * DAY;
    write(&folder, 3, &format!("{}BAD,1,5,5,4,6,{start},1\nX,1,1\nY,1,1,1,1,1,{FIRST},1\n", day(3)));
    let made = json(home.trawl(&import(&from, "us")));
    let quarantined =
        serde_json::json!({ "high below low": 1, "wrong number of cells": 1, "not of the file's date": 1 });
    assert_eq!(made["import"]["quarantined"], quarantined);
    for (words, message) in [
        (vec!["data", "import", "polygon-flat", "nowhere", "-d", "x"], "cannot list 'nowhere'"),
        (vec!["data", "import", "polygon-flat", "s3://key:hunter2@b", "-d", "x"], "credentials and options"),
        (vec!["data", "import", "polygon-flat", &from, "-d", "x", "--from", "2025-01-01"], "has no file of a day"),
        (vec!["data", "import", "polygon-flat", &from, "-d", "x", "--from", "1/2/2025"], "a date is expected"),
        (
            vec!["data", "import", "polygon-flat", &from, "-d", "x", "--from", "2024-02-01", "--to", "2024-01-01"],
            "is after",
        ),
        // No file has two bars of a symbol: which of them is out of place cannot be said.
        (
            vec!["data", "import", "polygon-flat", &from, "-d", "x", "--timeframe", "1m"],
            "2024-01-02.csv.gz (and 8 more): the bars are 1d apart",
        ),
    ] {
        let ended = home.trawl(&words).expect_code(2);
        assert!(ended.stderr.contains(message) && !ended.stderr.contains("hunter2"), "{message}: {}", ended.stderr);
    }
}

/// A user of the bucket, whose data root is a folder.
struct Machine<'a> {
    home: &'a Home,
    variables: Vec<(String, String)>,
    cache: tempfile::TempDir,
}

impl<'a> Machine<'a> {
    fn new(home: &'a Home, s3: &S3) -> Self {
        let variables =
            s3.variables().into_iter().map(|(name, value)| (format!("TRAWL_SOURCE_{name}"), value)).collect();
        let cache = tempfile::Builder::new().prefix("trawl-test-cache-").tempdir().expect("a temporary directory");
        Self { home, variables, cache }
    }

    fn command(&self, dataset: &str) -> Command {
        let place = format!("s3://{BUCKET}/raw/us_stocks_sip/day_aggs_v1");
        let mut command = self.home.command(&import(&place, dataset));
        command
            .envs(self.variables.iter().cloned())
            .env("TRAWL_DATA_CACHE", self.cache.path())
            .env("TRAWL_LOG", "trace");
        command
    }

    fn run(&self, dataset: &str) -> Ended {
        process::run(&mut self.command(dataset))
    }
}

#[test]
fn an_import_from_a_bucket_that_is_killed_at_any_time_ends_with_the_same_bytes() {
    let (home, s3) = (Home::new(), S3::start());
    let folder = home.path("flat");
    market(&folder, &[]);
    s3.put(&folder, "raw");
    json(home.trawl(&import(&folder.display().to_string(), "local")));
    let machine = Machine::new(&home, &s3);

    // Some calls are refused, some answers cut off, all slow.
    s3.faults(r#"{"refuse_every": 7, "cut_every": 5, "delay_s": 0.05}"#);
    let mut printed = killed_at_random(&home, |dataset| machine.command(dataset), "local");
    assert_eq!(bars(&home, "us"), expected(|_, _| true));
    assert_eq!(snapshot(&home, "us"), snapshot(&home, "local"));
    let files = |dataset: &str| -> BTreeMap<PathBuf, Vec<u8>> {
        let root = home.data_root().join(dataset);
        let named = |path: PathBuf| (path.strip_prefix(&root).unwrap().to_owned(), std::fs::read(&path).unwrap());
        super::files_below(&root.join("files")).into_iter().map(named).collect()
    };
    assert_eq!(files("us"), files("local"));
    assert!(super::files_below(&machine.cache.path().join("inbox")).is_empty(), "what was imported is deleted");

    // Of an import from a bucket, files are read while others are fetched: the first four come together, the others later. What is here
    // already is read without waiting.
    s3.faults(r#"{"refuse_every": 0, "cut_every": 0}"#);
    let made = json(machine.run("overlapped"));
    let early = made["days"]["read_early"].as_u64().expect("a count");
    assert!((1..9).contains(&early), "{made}");
    assert_eq!(
        json(home.trawl(&[&import(&folder.display().to_string(), "again")[..]].concat()))["days"]["read_early"],
        0
    );
    // Nothing is fetched again; of a day that was published again this day alone.
    s3.faults(r#"{"refuse_every": 0, "cut_every": 0, "delay_s": 0}"#);
    let same = json(machine.run("us"));
    assert_eq!((&same["days"]["unchanged"], &same["import"]), (&9.into(), &serde_json::Value::Null));
    assert_eq!(same["days"]["bytes_fetched"], 0);
    let again = home.path("again");
    write(&again, 2, &day(2).replace("AAPL,1002.25", "AAPL,7.5"));
    s3.put(&again, "raw");
    let replaced = json(machine.run("us"));
    assert_eq!(replaced["days"]["republished"], serde_json::json!(["2024-01-04"]));
    assert_eq!((&replaced["import"]["rows_revised"], &replaced["days"]["unchanged"]), (&1.into(), &8.into()));
    let bytes = std::fs::metadata(place(&again, 2)).unwrap().len();
    assert_eq!(replaced["days"]["bytes_fetched"], bytes);

    // A cut-off file is refused by the bucket's name for it.
    let whole = std::fs::read(place(&folder, 5)).unwrap();
    std::fs::write(place(&again, 5), &whole[..whole.len() - 12]).unwrap();
    s3.put(&again, "raw");
    let refused = machine.run("us").expect_code(2);
    let name = format!("s3://{BUCKET}/raw/us_stocks_sip/day_aggs_v1/2024/01/2024-01-09.csv.gz");
    assert!(
        refused.stderr.contains(&format!("cannot decompress {name}: it is cut off, in line ")),
        "{}",
        refused.stderr
    );
    printed += &refused.stderr;
    no_secret(&[&home.data_root(), machine.cache.path()], &[&printed, &replaced.to_string()], &["hunter2"]);
}

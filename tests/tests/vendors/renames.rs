//! Companies that were renamed, and tickers that several companies used, over HTTP.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde_json::json;
use trawl_tests::home::Home;
use trawl_tests::polygon::{Faults, Market, Polygon};
use trawl_tests::process::Background;

use super::rest::{DAY, FIRST, MINUTE, User, bar, words};
use super::{bars, files_below, json as parsed, matched, snapshot};

/// A company that is FB for two sessions and META from then on; a fund that is META on the first session and METV from then on; a fund that
/// is FB on the last session; one that is delisted. All are known by their FIGI.
fn renaming() -> Market {
    let held: [(&'static str, &'static str, &'static [i64]); 6] = [
        ("M", "FB", &[0, 1]),
        ("M", "META", &[2, 3]),
        ("R", "META", &[0]),
        ("R", "METV", &[1, 2, 3]),
        ("P", "FB", &[3]),
        ("D", "DEAD", &[0, 1]),
    ];
    let close = |figi: &str, session: i64| match figi {
        "M" => 200.0 + session as f64,
        "R" => 15.0 + session as f64,
        "P" => 40.0,
        _ => 7.0,
    };
    let each = || {
        held.iter().flat_map(|(figi, ticker, sessions)| sessions.iter().map(move |session| (*figi, *ticker, *session)))
    };
    let day = |(figi, ticker, session): (&'static str, &'static str, i64)| {
        bar(ticker, FIRST + session * DAY, close(figi, session))
    };
    let minutes = |(figi, ticker, session): (&'static str, &'static str, i64)| {
        (0..30).map(move |minute| {
            bar(ticker, FIRST + session * DAY + (570 + minute) * MINUTE, close(figi, session) + minute as f64)
        })
    };
    let ticker = |figi: &str, ticker: &str, name: &str, from: Option<&str>, until: Option<&str>| json!({ "ticker": ticker, "name": name, "composite_figi": figi, "primary_exchange": "XNAS", "type": "CS", "from": from, "until": until });
    let mut gone = ticker("D", "DEAD", "Gone", None, None);
    gone["delisted_utc"] = json!("2024-01-04T00:00:00Z");
    let split =
        |ticker: &str, day: &str| json!({ "ticker": ticker, "execution_date": day, "split_from": 1, "split_to": 2 });
    Market {
        days: each().map(day).collect(),
        minutes: each().flat_map(minutes).collect(),
        splits: vec![split("FB", "2024-01-03"), split("FB", "2024-01-05")],
        tickers: vec![
            ticker("M", "FB", "Facebook", None, Some("2024-01-04")),
            ticker("M", "META", "Meta Platforms", Some("2024-01-04"), None),
            ticker("R", "META", "Ball Metaverse", None, Some("2024-01-03")),
            ticker("R", "METV", "Ball Metaverse", Some("2024-01-03"), None),
            ticker("P", "FB", "S&P 500 Dynamic Buffer", Some("2024-01-05"), None),
            gone,
        ],
        changes: BTreeMap::from([
            ("M", vec![("2012-05-18", "FB"), ("2024-01-04", "META")]),
            ("R", vec![("2021-06-30", "META"), ("2024-01-03", "METV")]),
        ]),
        ..Market::default()
    }
}

/// Bars of each symbol, as `SYMBOL DATE CLOSE` without the cents, sorted.
fn closes(home: &Home, dataset: &str) -> Vec<String> {
    let exported = bars(home, dataset);
    let header: Vec<&str> = exported.lines().next().expect("a header").split(',').collect();
    let close = header.iter().position(|column| *column == "close").expect("a close");
    let line = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        format!("{} {} {}", cells[0], cells[1], cells[close].split('.').next().expect("digits"))
    };
    exported.lines().skip(1).map(line).collect()
}

const RENAMED: [&str; 11] = [
    "DEAD 2024-01-02 7",
    "DEAD 2024-01-03 7",
    "FB 2024-01-05 40",
    "META 2024-01-02 200",
    "META 2024-01-03 201",
    "META 2024-01-04 202",
    "META 2024-01-05 203",
    "METV 2024-01-02 15",
    "METV 2024-01-03 16",
    "METV 2024-01-04 17",
    "METV 2024-01-05 18",
];

#[test]
fn a_company_that_was_renamed_is_one_symbol_with_its_history() {
    let home = Home::new();
    let server = Polygon::start(renaming(), Faults { page: 2, ..Faults::default() });
    let user = User::new(&home, &server);
    let made = parsed(user.run(&words("us", &["--universe", "--listings", "--corporate-actions"])));
    assert_eq!((&made["asked"]["renamed"], &made["import"]["symbols"]), (&2.into(), &4.into()), "{made:#}");
    assert_eq!(closes(&home, "us"), RENAMED);
    let asked = server.log().iter().filter(|(path, _)| path.starts_with("/vX/")).count();
    assert_eq!(asked, 2, "only companies with several tickers are asked for: {:?}", server.log());

    // A scan as of a day before: the company is there under the name that it had, with what it became, and the dead one too.
    let scan = |more: &[&str]| {
        let words = ["scan", "--dataset", "us", "--where", "close > 0", "--format", "csv", "--quiet", "--output", "-"];
        matched(&home.trawl(&[&words[..], more].concat()).expect_code(0).stdout)
    };
    assert_eq!(scan(&["--as-of", "2024-01-03"]), ["DEAD", "META", "METV"]);
    assert_eq!(scan(&[]), ["FB", "META", "METV"]);
    // `FB` is the company's ticker on the third, and that of a fund on the fifth.
    for (as_of, twice) in [("2024-01-03", "META"), ("2024-01-05", "FB")] {
        let where_ = "close > 0.99 * ref('FB', close) and close < 1.01 * ref('FB', close)";
        let words = ["scan", "--dataset", "us", "--where", where_, "--as-of", as_of, "--format", "csv", "--quiet"];
        let ended = home.trawl(&[&words[..], &["--output", "-"]].concat()).expect_code(0);
        assert_eq!(matched(&ended.stdout), [twice], "{as_of}");
    }
    let listing =
        parsed(home.trawl(&["data", "inspect", "us", "--symbol", "META", "--json"]))["symbol"]["listing"].clone();
    let names = |row: &serde_json::Value| [row["ticker"].clone(), row["labels"]["name"].clone()];
    assert_eq!(names(&listing[0]), [json!("FB"), json!("Facebook")], "{listing}");
    assert_eq!(names(&listing[1]), [json!("META"), json!("Meta Platforms")], "{listing}");
    // The split of the third is the company's, that of the fifth is the fund's: the company's close of the second is halved once.
    let adjusted =
        home.trawl(&["data", "export", "us", "--symbol", "META", "--adjust", "split", "-o", "-"]).expect_code(0);
    let first = adjusted.stdout.lines().nth(1).expect("a bar").to_owned();
    assert!(first.starts_with("META,2024-01-02,100,"), "{first}");

    // The same by name and from minutes; a name means the company that has it on the last day.
    let each =
        parsed(user.run(&words("each", &["--symbols", "DEAD,FB,META,METV", "--listings", "--corporate-actions"])));
    assert_eq!(closes(&home, "each"), RENAMED);
    let notes = each["asked"]["notes"].to_string();
    assert!(notes.contains("FB was the ticker of META until 2024-01-04"), "{notes}");
    assert!(notes.contains("META was the ticker of METV until 2024-01-03"), "{notes}");
    let one = parsed(user.run(&words("one", &["--symbols", "META", "--listings", "--corporate-actions"])));
    assert_eq!((&one["import"]["bars"], &one["import"]["factors"]), (&4.into(), &1.into()), "{one:#}");
    parsed(user.run(&words("minutes", &["--universe", "--timeframe", "1m", "--listings"])));
    let minutes = closes(&home, "minutes");
    let day = |line: &String| {
        let (symbol, time) = line.split_once(' ').expect("a time");
        format!("{symbol} {}", &time[..10])
    };
    let days: BTreeSet<String> = minutes.iter().map(day).collect();
    let expected: BTreeSet<String> =
        RENAMED.iter().map(|line| line.rsplit_once(' ').expect("a close").0.to_owned()).collect();
    assert_eq!((days, minutes.len()), (expected, 30 * RENAMED.len()));
}

#[test]
fn a_dataset_from_before_a_company_was_renamed_goes_on_with_the_same_symbol() {
    let home = Home::new();
    let server = Polygon::start(renaming(), Faults::default());
    let user = User::new(&home, &server);
    let days = |from, to, more: &[&'static str]| {
        let words = [&["--dataset", "us", "--universe", "--from", from, "--to", to][..], more].concat();
        parsed(user.run(&words))
    };
    // On the first day without a table of symbols, on the second with one, then both changes and the fund that is FB now.
    days("2024-01-02", "2024-01-02", &[]);
    days("2024-01-02", "2024-01-03", &["--listings"]);
    let table = home.trawl(&["data", "inspect", "us", "--symbol", "FB", "--json"]);
    assert_eq!(parsed(table)["symbol"]["listing"][0]["ticker"], "FB");
    days("2024-01-03", "2024-01-05", &["--listings"]);
    let renamed = |line: &&str| line.replace("FB ", "FB-2 ").replace("META ", "FB ").replace("METV ", "META ");
    let mut expected: Vec<String> = RENAMED.iter().map(renamed).collect();
    expected.sort();
    let mut found = closes(&home, "us");
    found.sort();
    assert_eq!(found, expected, "symbols keep their first names");
    // Their tickers are those of the day: META is the company, whose symbol is FB.
    let where_ = "close > 0.99 * ref('META', close) and close < 1.01 * ref('META', close)";
    let words = ["scan", "--dataset", "us", "--where", where_, "--format", "csv", "--quiet", "--output", "-"];
    assert_eq!(matched(&home.trawl(&words).expect_code(0).stdout), ["FB"]);
    // What was imported is not changed by importing it again.
    let before = snapshot(&home, "us");
    days("2024-01-03", "2024-01-05", &["--listings"]);
    assert_eq!(snapshot(&home, "us"), before);
}

#[test]
fn changes_that_polygon_does_not_know_or_contradicts_are_reported() {
    let home = Home::new();
    for (changes, why) in [
        (None, "FB, META are one company, and Polygon has no date of the change: they stay apart"),
        (Some(vec![("2012-05-18", "FB")]), "Polygon's changes end with FB, its listing with META"),
    ] {
        let mut market = renaming();
        market.changes.remove("M");
        market.changes.extend(changes.map(|changes| ("M", changes)));
        let server = Polygon::start(market, Faults::default());
        let dataset = format!("d{}", why.len());
        let made = parsed(User::new(&home, &server).run(&words(&dataset, &["--universe", "--listings"])));
        let notes = made["asked"]["notes"].to_string();
        assert!(notes.contains(why), "{notes}");
        assert_eq!(made["import"]["bars"], 11, "no bar is lost");
    }
}

#[test]
fn minutes_of_all_stocks_are_those_of_every_ticker_of_the_span_without_listings_too() {
    let home = Home::new();
    let mut market = renaming();
    // Listed on the second session, and renamed before the last one: in no listing of the first or the last day.
    let between = [(1, "MID"), (2, "MID"), (3, "NOW")];
    for (session, ticker) in between {
        let start = FIRST + session * DAY;
        market.days.push(bar(ticker, start, 30.0));
        market.minutes.extend((0..30).map(|minute| bar(ticker, start + (570 + minute) * MINUTE, 30.0)));
    }
    let listed = |ticker: &str, from: &str, until: Option<&str>| json!({ "ticker": ticker, "name": "Between", "composite_figi": "N", "from": from, "until": until });
    market.tickers.push(listed("MID", "2024-01-03", Some("2024-01-05")));
    market.tickers.push(listed("NOW", "2024-01-05", None));
    // Nobody has FB after Meta.
    market.tickers.retain(|ticker| ticker["composite_figi"] != "P");
    market.days.retain(|bar| (bar.ticker, bar.t) != ("FB", FIRST + 3 * DAY));
    market.minutes.retain(|bar| bar.ticker != "FB" || bar.t < FIRST + 3 * DAY);
    let expected = market.minutes.len();
    let server = Polygon::start(market, Faults { page: 7, ..Faults::default() });
    let made = parsed(User::new(&home, &server).run(&words("us", &["--universe", "--timeframe", "1m"])));
    assert_eq!((made["import"]["bars"].as_u64(), made["import"]["rows_quarantined"].as_u64()), (Some(390), Some(0)));
    assert_eq!(expected, 390, "the server's bars are all there");
    let count =
        |symbol: &str| closes(&home, "us").iter().filter(|line| line.starts_with(&format!("{symbol} "))).count();
    assert_eq!(["DEAD", "FB", "META", "METV", "MID", "NOW"].map(count), [60, 60, 90, 90, 60, 30]);
    let scan = |more: &[&str]| {
        let words = ["scan", "--dataset", "us", "--where", "close > 0", "--format", "csv", "--quiet", "--output", "-"];
        matched(&home.trawl(&[&words[..], more].concat()).expect_code(0).stdout)
    };
    let (then, now) = (scan(&["--as-of", "2024-01-03"]), scan(&[]));
    for symbol in ["DEAD", "FB", "METV", "MID"] {
        assert!(then.iter().any(|other| other == symbol), "{symbol}: no survivorship bias at a past day: {then:?}");
    }
    assert!(!now.iter().any(|symbol| ["DEAD", "FB", "MID"].contains(&symbol.as_str())), "{now:?}");
}

#[test]
fn an_answer_with_bars_of_other_days_is_refused() {
    let home = Home::new();
    let server = Polygon::start(renaming(), Faults { ignores_days: true, ..Faults::default() });
    let user = User::new(&home, &server);
    // Until the third, META is the ticker of a fund: its bar would be one of the company.
    for more in [
        &["--symbols", "META", "--listings"][..],
        &["--symbols", "META", "--listings", "--timeframe", "1m"],
        &["--universe"],
    ] {
        let refused = user.run(&words("us", more)).expect_code(1);
        let parts = ["in the answer to /v2/aggs/", "a bar is of 2024-01-0", "which is outside of 2024-01-0"];
        assert!(parts.iter().all(|part| refused.stderr.contains(part)), "{more:?}: {}", refused.stderr);
        home.trawl(&["data", "inspect", "us"]).expect_code(2);
    }
}

#[test]
fn an_import_that_is_killed_after_every_answer_asks_for_each_of_them_once() {
    let home = Home::new();
    let server = Polygon::start(renaming(), Faults::default());
    let user = User::new(&home, &server);
    let asked = |dataset| words(dataset, &["--symbols", "DEAD,FB,META,METV", "--listings", "--corporate-actions"]);
    parsed(user.run(&asked("expected")));
    let whole = server.log();
    let kinds =
        ["/v3/reference/tickers", "/vX/reference/tickers", "/stocks/v1/splits", "/stocks/v1/dividends", "/v2/aggs"];
    let count = |log: &[(String, u16)]| kinds.map(|kind| log.iter().filter(|(path, _)| path.starts_with(kind)).count());
    let [tables @ .., bars] = count(&whole);
    assert!(tables == [3, 2, 1, 1] && bars >= 6, "{whole:?}");

    let kept = || -> Vec<PathBuf> {
        let is_answer = |path: &PathBuf| path.extension().is_some_and(|end| end == "csv" || end == "json");
        files_below(&user.cache_folder()).into_iter().filter(is_answer).collect()
    };
    for killed in 1..whole.len() {
        server.fail(Faults { silent_after: 1, ..Faults::default() });
        let mut running = Background::start("an import", &mut user.command(&asked("us")));
        let is_kept = || (kept().len() >= killed).then_some(());
        trawl_tests::wait::until(Duration::from_secs(60), is_kept).expect("one more answer is kept");
        running.kill();
        assert_eq!(kept().len(), killed, "one answer, and no more");
    }
    // What is older than a week is asked for again.
    let old = kept().into_iter().find(|path| path.extension().is_some_and(|end| end == "json")).expect("an answer");
    let then = SystemTime::now() - Duration::from_secs(8 * 24 * 3600);
    std::fs::File::options().write(true).open(&old).unwrap().set_modified(then).unwrap();
    server.fail(Faults::default());
    parsed(user.run(&asked("us")));
    assert_eq!(snapshot(&home, "us"), snapshot(&home, "expected"));
    let resumed = server.log().split_off(whole.len());
    let paths: BTreeSet<&String> = resumed.iter().map(|(path, _)| path).collect();
    assert_eq!((paths.len(), resumed.len()), (whole.len(), whole.len() + 1), "{resumed:?}");
    assert!(kept().is_empty(), "nothing is left");
}

//! Polygon's HTTP interface: every page, whatever fails; a killed import continued; the key nowhere; corporate actions and listings.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;
use trawl_tests::home::Home;
use trawl_tests::polygon::{Bar, Faults, KEY, Market, Polygon};
use trawl_tests::process::{self, Background, Ended};

use super::{bars, json as parsed, killed_at_random, matched, no_secret, snapshot};

/// Midnight in New York of 2024-01-02, milliseconds.
pub(super) const FIRST: i64 = 1_704_171_600_000;
pub(super) const DAY: i64 = 86_400_000;
pub(super) const MINUTE: i64 = 60_000;
/// Sessions of the first week, as days after the first.
const SESSIONS: [i64; 4] = [0, 1, 2, 3];

pub(super) fn bar(ticker: &'static str, t: i64, close: f64) -> Bar {
    Bar { ticker, t, prices: [close, close + 1.0, close - 1.0, close + 0.1], volume: 10.5 + close }
}

/// Two stocks and one that is delisted after the second session; a split and dividends.
fn market() -> Market {
    let day = |session: i64| {
        let t = FIRST + session * DAY;
        let gone = (session < 2).then(|| bar("DEAD", t, 7.0 + session as f64));
        [bar("AAPL", t, 100.0 + session as f64), bar("BRK.B", t, 50.1 + session as f64)].into_iter().chain(gone)
    };
    let minutes = |ticker| {
        let of_day = move |session: i64| {
            (0..90).map(move |minute| {
                bar(ticker, FIRST + session * DAY + (570 + minute) * MINUTE, 20.0 + minute as f64 / 8.0)
            })
        };
        SESSIONS.into_iter().flat_map(of_day)
    };
    let ticker = |ticker: &str, name: &str, delisted: Option<&str>| json!({ "ticker": ticker, "name": name, "market": "stocks", "primary_exchange": "XNYS", "type": "CS", "delisted_utc": delisted });
    Market {
        minutes: minutes("AAPL").chain(minutes("BRK.B")).collect(),
        days: SESSIONS.into_iter().flat_map(day).collect(),
        splits: vec![
            json!({ "ticker": "AAPL", "execution_date": "2024-01-04", "split_from": 1, "split_to": 2, "historical_adjustment_factor": 0.5 }),
        ],
        dividends: vec![
            json!({ "ticker": "BRK.B", "ex_dividend_date": "2024-01-03", "cash_amount": 0.25, "currency": "USD" }),
            json!({ "ticker": "BRK.B", "ex_dividend_date": "2024-01-03", "cash_amount": 0.5, "currency": "USD" }),
            json!({ "ticker": "BRK.B", "ex_dividend_date": "2023-01-03", "cash_amount": 9.5, "currency": "USD" }),
        ],
        tickers: vec![
            ticker("AAPL", "Apple Inc.", None),
            ticker("BRK.B", "Berkshire Hathaway, Class B", None),
            ticker("DEAD", "Gone", Some("2024-01-04T00:00:00Z")),
            ticker("OLD", "Long gone", Some("2019-01-04T00:00:00Z")),
        ],
        ..Market::default()
    }
}

pub(super) struct User<'a> {
    home: &'a Home,
    cache: tempfile::TempDir,
    url: String,
}

impl<'a> User<'a> {
    pub(super) fn new(home: &'a Home, server: &Polygon) -> Self {
        let cache = tempfile::Builder::new().prefix("trawl-test-cache-").tempdir().expect("a temporary directory");
        Self { home, cache, url: server.url.clone() }
    }

    pub(super) fn cache_folder(&self) -> std::path::PathBuf {
        self.cache.path().to_owned()
    }

    pub(super) fn command(&self, words: &[&str]) -> Command {
        self.command_to(&self.url, words)
    }

    fn command_to(&self, url: &str, words: &[&str]) -> Command {
        let common = ["data", "import", "polygon-rest", "--endpoint", url, "--requests-per-minute", "0", "--json"];
        let mut command = self.home.command(&[&common[..], words].concat());
        command.env("POLYGON_API_KEY", KEY).env("TRAWL_DATA_CACHE", self.cache.path()).env("TRAWL_LOG", "trace");
        command
    }

    pub(super) fn run(&self, words: &[&str]) -> Ended {
        process::run(&mut self.command(words))
    }
}

const DAYS: [&str; 4] = ["--from", "2024-01-02", "--to", "2024-01-05"];

pub(super) fn words<'a>(dataset: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["--dataset", dataset][..], more, &DAYS].concat()
}

#[test]
fn every_page_is_read_whatever_fails() {
    let home = Home::new();
    let server = Polygon::start(market(), Faults::default());
    let user = User::new(&home, &server);
    let minutes = ["--symbols", "AAPL,BRK.B,NONE,AAPL", "--timeframe", "1m"];
    let whole = parsed(user.run(&words("whole", &minutes)));
    assert_eq!((&whole["import"]["bars"], &whole["asked"]["symbols_without_bars"]), (&720.into(), &json!(["NONE"])));
    assert_eq!(server.log().len(), 3, "{:?}", server.log());

    let failing = Faults {
        page: 50,
        too_many_every: 11,
        broken_every: 7,
        cut_every: 5,
        delay: Duration::from_millis(20),
        ..Faults::default()
    };
    server.fail(failing);
    let started = Instant::now();
    let ended = user.run(&words("paged", &minutes));
    let stderr = ended.stderr.clone();
    parsed(ended);
    assert_eq!(snapshot(&home, "paged"), snapshot(&home, "whole"));
    assert_eq!(bars(&home, "paged").lines().count(), 721);
    assert!(server.count(429) > 0 && server.count(500) > 0, "{:?}", server.log());
    assert!(started.elapsed() > Duration::from_secs(1), "Retry-After is kept");
    // Higher bars: the limit counts base bars.
    server.fail(Faults { page: 7, ..Faults::default() });
    let quarter = parsed(user.run(&words("quarter", &["--symbols", "AAPL", "--timeframe", "15m"])));
    assert_eq!(quarter["import"]["bars"], 24);

    // Numbers keep their digits; volumes have fractions.
    let text = bars(&home, "whole");
    assert!(text.contains("AAPL,2024-01-02T14:31:00Z,20.125,21.125,19.125,20.225,30.625,3,20.125\n"), "{text}");
    for (path, status) in server.log() {
        assert!(status != 400 && !path.contains(KEY), "{path}");
    }
    no_secret(&[&home.data_root(), user.cache.path()], &[&stderr], &[KEY]);

    // Pages without an end, a wrong key, a question that is refused.
    server.fail(Faults { page: 50, endless: true, ..Faults::default() });
    let endless = user.run(&words("x", &minutes)).expect_code(1);
    assert!(endless.stderr.contains("do not end"), "{}", endless.stderr);
    server.fail(Faults::default());
    let mut command = user.command(&words("x", &minutes));
    let wrong = process::run(command.env("POLYGON_API_KEY", "wrong-key-hunter3")).expect_code(2);
    assert!(wrong.stderr.contains("answered 401") && wrong.stderr.contains("Unknown API Key"), "{}", wrong.stderr);
    let mut command = user.command(&words("x", &minutes));
    let none = process::run(command.env_remove("POLYGON_API_KEY")).expect_code(2);
    assert!(none.stderr.contains("there is no key") && none.stderr.contains("--api-key-file"), "{}", none.stderr);
    let file = home.write("key", &format!("{KEY}\n")).display().to_string();
    let mut command = user.command(&words("by-file", &[&minutes[..], &["--api-key-file", &file]].concat()));
    parsed(process::run(command.env_remove("POLYGON_API_KEY")));
    for (more, message) in [
        (&["--symbols", "A B"][..], "'A B' is no ticker"),
        (&[][..], "nothing to ask for"),
        (&["--universe", "--timeframe", "1w"][..], "bars of a day or less"),
    ] {
        let ended = user.run(&words("x", more)).expect_code(2);
        assert!(ended.stderr.contains(message), "{message}: {}", ended.stderr);
    }
    // What would be refused in the end is refused before anything is asked for.
    let before = server.log().len();
    for (dataset, timeframe, message) in
        [("whole", "5m", "holds bars of 1m"), ("us5", "1d", "us5"), ("A B", "1d", "'A B'")]
    {
        let ended = user.run(&words(dataset, &["--symbols", "AAPL", "--timeframe", timeframe])).expect_code(2);
        assert!(ended.stderr.contains(message), "{message}: {}", ended.stderr);
    }
    assert_eq!(server.log().len(), before);
    let elsewhere = User { home: &home, cache: user.cache, url: "http://example.com".to_owned() };
    let plain = elsewhere.run(&words("x", &["--universe"])).expect_code(2);
    assert!(plain.stderr.contains("--endpoint would send the key in plain text"), "{}", plain.stderr);
    no_secret(&[&home.data_root()], &[&endless.stderr, &wrong.stderr, &none.stderr], &[KEY, "hunter3"]);
}

#[test]
fn the_market_of_a_day_with_its_splits_dividends_and_listings_has_no_survivorship_bias() {
    let home = Home::new();
    let server = Polygon::start(market(), Faults { page: 1, ..Faults::default() });
    let user = User::new(&home, &server);
    let made = parsed(user.run(&words("us", &["--universe", "--corporate-actions", "--listings"])));
    assert_eq!((&made["import"]["bars"], &made["import"]["symbols"]), (&10.into(), &3.into()), "{made}");
    assert_eq!((&made["asked"]["corporate_actions"], &made["asked"]["listings"]), (&2.into(), &3.into()));
    let grouped = server.log().iter().filter(|(path, _)| path.contains("/grouped/")).count();
    assert_eq!(grouped, 4, "one request for each session");

    let scan = |more: &[&str]| {
        let words = ["scan", "--dataset", "us", "--where", "close > 0", "--format", "csv", "--quiet", "--output", "-"];
        home.trawl(&[&words[..], more].concat()).expect_code(0).stdout
    };
    assert_eq!(matched(&scan(&["--as-of", "2024-01-03"])), ["AAPL", "BRK.B", "DEAD"]);
    assert_eq!(matched(&scan(&[])), ["AAPL", "BRK.B"], "what is delisted is not in today's answer");
    let adjusted = home.trawl(&["data", "export", "us", "--symbol", "AAPL", "--adjust", "split", "-o", "-"]);
    assert!(
        adjusted.expect_code(0).stdout.contains("AAPL,2024-01-02,50,50.5,49.5,50.05,221,3,"),
        "halved before the split"
    );
    let shown = parsed(home.trawl(&["data", "inspect", "us", "--symbol", "BRK.B", "--json"]));
    assert_eq!(shown["symbol"]["factors"][0]["dividend"], 0.75, "two dividends of a day are one");
    assert_eq!(shown["symbol"]["listing"][0]["labels"]["name"], "Berkshire Hathaway, Class B");
    let gone = parsed(home.trawl(&["data", "inspect", "us", "--symbol", "DEAD", "--json"]));
    assert!(gone["symbol"]["listing"][0]["to"].is_i64(), "{gone}");
    for spelling in ["BRK-B", "BRK/B", "BRK.B"] {
        let where_ = format!("close > 0.5 * ref('{spelling}', close)");
        let ended =
            home.trawl(&["scan", "--dataset", "us", "--where", &where_, "--format", "csv", "--quiet", "--output", "-"]);
        assert_eq!(matched(&ended.expect_code(0).stdout), ["AAPL", "BRK.B"], "{spelling}");
    }

    // The same bars, asked for symbol by symbol; then the tables alone.
    let each = parsed(user.run(&words("each", &["--symbols", "AAPL,BRK.B,DEAD"])));
    assert_eq!(each["import"]["bars"], 10);
    assert_eq!(bars(&home, "each"), bars(&home, "us"));
    let tables = parsed(user.run(&words("each", &["--corporate-actions", "--listings"])));
    assert_eq!((&tables["import"]["factors"], &tables["import"]["symbol_rows"]), (&2.into(), &3.into()), "{tables}");
    assert_eq!(snapshot(&home, "each"), snapshot(&home, "us"));
}

#[test]
fn an_import_over_http_that_is_killed_at_any_time_ends_with_the_same_bytes() {
    let home = Home::new();
    let server = Polygon::start(market(), Faults::default());
    let user = User::new(&home, &server);
    let words = words("us", &["--symbols", "AAPL,BRK.B", "--timeframe", "1m"]);
    let mut other = words.clone();
    other[1] = "expected";
    parsed(user.run(&other));
    let asked = server.log().len();
    // Each process gets some pages more than the one before, and then no answer.
    let mut printed = String::new();
    for answers in 1..5 {
        server.fail(Faults { page: 90, silent_after: answers, ..Faults::default() });
        let before = server.log().len();
        let mut running = Background::start("an import", &mut user.command(&words));
        let reached = || (server.log().len() - before >= answers as usize).then_some(());
        trawl_tests::wait::until(Duration::from_secs(60), reached).expect("the answers are given");
        assert!(running.running());
        running.kill();
        printed += &running.output();
        home.trawl(&["data", "inspect", "us"]).expect_code(2);
    }
    server.fail(Faults { page: 90, ..Faults::default() });
    printed += &user.run(&words).expect_code(0).stderr;
    assert_eq!(snapshot(&home, "us"), snapshot(&home, "expected"));
    assert!(server.log().len() > asked + 8);
    // And at random, while the server has its faults.
    home.trawl(&["data", "rm", "us"]).expect_code(0);
    let delay = Duration::from_millis(20);
    server.fail(Faults { page: 90, cut_every: 7, broken_every: 11, delay, ..Faults::default() });
    let start = |dataset: &str| {
        let mut words = words.clone();
        words[1] = dataset;
        user.command(&words)
    };
    printed += &killed_at_random(&home, start, "expected");

    // What was answered whole is not asked for again.
    let mut other = words.clone();
    other[1] = "later";
    server.fail(Faults { silent_after: 1, ..Faults::default() });
    let mut running = Background::start("an import", &mut user.command(&other));
    let kept = || super::files_below(user.cache.path()).iter().any(|path| path.extension().is_some_and(|e| e == "csv"));
    trawl_tests::wait::until(Duration::from_secs(60), || kept().then_some(())).expect("an answer is kept");
    running.kill();
    // Another server is asked for everything.
    let second = Polygon::start(market(), Faults::default());
    parsed(process::run(&mut user.command_to(&second.url, &other)));
    assert_eq!(second.log().len(), 2, "{:?}", second.log());
    home.trawl(&["data", "rm", "later"]).expect_code(0);
    server.fail(Faults::default());
    let before = server.log().len();
    parsed(user.run(&other));
    assert_eq!(server.log().len() - before, 1);
    assert_eq!(snapshot(&home, "later"), snapshot(&home, "expected"));
    no_secret(&[&home.data_root(), user.cache.path()], &[&printed], &[KEY]);
}

#[test]
fn listings_are_merged_into_the_table_that_there_is() {
    let home = Home::new();
    let server = Polygon::start(market(), Faults::default());
    let user = User::new(&home, &server);
    parsed(user.run(&words("us", &["--universe", "--listings"])));
    let sectors =
        "symbol,to,name,sector\nAAPL,,Apple Inc.,Tech\nBRK.B,,Berkshire,Insurance\nDEAD,2024-01-04,Gone,Mining\n";
    let sectors = home.write("sectors.csv", sectors).display().to_string();
    parsed(home.trawl(&["data", "import", "--dataset", "us", "--symbols", &sectors, "--json"]));
    // A year later what is delisted is in no answer.
    let mut later = market();
    later.tickers.retain(|ticker| ticker["ticker"] != "DEAD");
    let later = Polygon::start(later, Faults::default());
    parsed(process::run(&mut user.command_to(&later.url, &words("us", &["--listings"]))));
    let listing = |symbol: &str| {
        parsed(home.trawl(&["data", "inspect", "us", "--symbol", symbol, "--json"]))["symbol"]["listing"].clone()
    };
    let labels = |row: &serde_json::Value| {
        ["name", "exchange", "sector"].map(|label| row["labels"][label].as_str().unwrap_or_default().to_owned())
    };
    let dead = listing("DEAD");
    assert_eq!(labels(&dead[0]), ["Gone", "", "Mining"], "{dead}");
    assert!(dead[0]["to"].is_i64(), "{dead}");
    let rows = listing("BRK.B");
    assert_eq!(labels(&rows[0]), ["Berkshire", "", "Insurance"], "before the days asked for: {rows}");
    assert_eq!(labels(&rows[1]), ["Berkshire Hathaway, Class B", "XNYS", "Insurance"], "{rows}");
    assert_eq!((&rows[1]["from"].is_i64(), &rows[1]["to"]), (&true, &serde_json::Value::Null));
    let scan = ["scan", "--dataset", "us", "--where", "sector == 'Mining'", "--as-of", "2024-01-03", "--format", "csv"];
    let ended = home.trawl(&[&scan[..], &["--quiet", "--output", "-"]].concat()).expect_code(0);
    assert_eq!(matched(&ended.stdout), ["DEAD"], "no survivorship bias at a past day");
    // The same answer once more changes nothing.
    let before = snapshot(&home, "us");
    parsed(process::run(&mut user.command_to(&later.url, &words("us", &["--listings"]))));
    assert_eq!(snapshot(&home, "us"), before);
}

#[test]
fn a_delisting_without_a_date_leaves_the_labels_on_the_days_before_the_last() {
    let home = Home::new();
    let mut market = market();
    market.tickers[1]["active"] = json!(false);
    let server = Polygon::start(market, Faults::default());
    parsed(User::new(&home, &server).run(&words("us", &["--universe", "--listings"])));
    let scan = ["scan", "--dataset", "us", "--where", "exchange == 'XNYS'", "--as-of", "2024-01-04", "--format", "csv"];
    let ended = home.trawl(&[&scan[..], &["--quiet", "--output", "-"]].concat()).expect_code(0);
    assert_eq!(matched(&ended.stdout), ["AAPL", "BRK.B"]);
    let gone = parsed(home.trawl(&["data", "inspect", "us", "--symbol", "BRK.B", "--json"]));
    assert!(gone["symbol"]["listing"][0]["to"].is_i64(), "{gone}");
}

#[test]
fn a_bar_that_lacks_a_value_is_put_into_quarantine() {
    let home = Home::new();
    let mut market = market();
    // Written as null.
    market.days[0].volume = f64::NAN;
    let server = Polygon::start(market, Faults::default());
    let made = parsed(User::new(&home, &server).run(&words("us", &["--universe"])));
    assert_eq!((&made["import"]["bars"], &made["import"]["quarantined"]), (&9.into(), &json!({ "empty cell": 1 })));
}

#[test]
fn a_small_import_keeps_the_answers_of_an_interrupted_larger_one() {
    let home = Home::new();
    let server = Polygon::start(market(), Faults { silent_after: 1, ..Faults::default() });
    let user = User::new(&home, &server);
    let large = words("us", &["--symbols", "AAPL,BRK.B", "--timeframe", "1m"]);
    let small = words("us", &["--symbols", "NONE", "--timeframe", "1m"]);
    let mut running = Background::start("an import", &mut user.command(&large));
    let kept = || super::files_below(user.cache.path()).iter().any(|path| path.extension().is_some_and(|e| e == "csv"));
    trawl_tests::wait::until(Duration::from_secs(60), || kept().then_some(())).expect("an answer is kept");
    let refused = user.run(&small).expect_code(2);
    let why = "another import of this kind into 'us' is running on this machine";
    assert!(refused.stderr.contains(why), "{}", refused.stderr);
    running.kill();
    server.fail(Faults::default());
    parsed(user.run(&small));
    let before = server.log().len();
    assert_eq!(parsed(user.run(&large))["import"]["bars"], 720);
    assert_eq!(server.log().len() - before, 1, "{:?}", server.log());
}

#[test]
fn a_day_that_is_asked_for_again_may_lose_bars() {
    let home = Home::new();
    let server = Polygon::start(market(), Faults::default());
    let user = User::new(&home, &server);
    parsed(user.run(&words("us", &["--universe"])));
    // The first day was withdrawn for one symbol, and the server has lost the last day.
    let mut amended = market();
    amended.days.retain(|bar| (bar.ticker, bar.t) != ("BRK.B", FIRST) && bar.t != FIRST + 3 * DAY);
    let amended = Polygon::start(amended, Faults::default());
    let kept = parsed(process::run(&mut user.command_to(&amended.url, &words("us", &["--universe"]))));
    assert_eq!(kept["import"]["bars"], 10, "without --again nothing is removed");
    let again = parsed(process::run(&mut user.command_to(&amended.url, &words("us", &["--universe", "--again"]))));
    assert_eq!(again["import"]["bars"], 9, "the withdrawn bar is gone; a day without an answer keeps its bars");
    let exported = bars(&home, "us");
    assert_eq!(exported.lines().filter(|line| line.contains("BRK.B")).count(), 3, "{exported}");
    for (words, why) in [
        (words("us", &["--symbols", "AAPL", "--again"]), "--again without --universe"),
        (words("m", &["--universe", "--timeframe", "1m", "--again"]), "--again with bars of 1m"),
    ] {
        let refused = user.run(&words).expect_code(2);
        assert!(refused.stderr.contains(why), "{}", refused.stderr);
    }
}

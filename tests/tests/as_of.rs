//! Which bar each command answers for, on minutes of two sessions of which the second is in progress.

use trawl_tests::cluster::Cluster;
use trawl_tests::home::Home;

/// Bars of 30 minutes of 27 June 2024 and of 28 June up to 10:30 in New York, of two symbols.
fn half_hours(home: &Home) {
    let mut text = String::from("symbol,time,open,high,low,close,volume\n");
    for (symbol, base) in [("AAA", 100), ("BBB", 50)] {
        let mut push = |time: &str, n: usize| {
            let close = base + n;
            text += &format!("{symbol},{time},{close},{close},{close},{close},10\n");
        };
        for n in 0..13 {
            let minutes = 13 * 60 + 30 + 30 * n;
            push(&format!("2024-06-27T{:02}:{:02}:00Z", minutes / 60, minutes % 60), n);
        }
        push("2024-06-28T13:30:00Z", 20);
        push("2024-06-28T14:00:00Z", 21);
    }
    home.write("mid.csv", &text);
    home.trawl(&["import", "mid.csv", "--dataset", "mid", "--timeframe", "30m"]).expect_code(0);
}

const SCAN: [&str; 7] = ["scan", "--dataset", "mid", "--where", "close > 0", "--select", "close"];

#[test]
fn in_the_middle_of_a_session_every_command_answers_for_the_newest_closed_bar() {
    let home = Home::new();
    half_hours(&home);
    let scan = home.trawl(&SCAN).expect_code(0);
    assert!(scan.stdout.contains("as of 2024-06-28 10:30 EDT") && scan.stdout.contains("121"), "{}", scan.stdout);
    assert!(scan.stderr.is_empty(), "{}", scan.stderr);
    home.trawl(&[&SCAN[..], &["--output", "now.csv"]].concat()).expect_code(0);
    let identity = String::from_utf8(home.read("now.csv.identity.json")).expect("text");
    assert!(identity.contains("\"2024-06-28T14:30:00Z\""), "{identity}");
    // The printed as-of, used as an option, selects the same bar: the same bytes.
    for printed in ["2024-06-28 10:30 EDT", "2024-06-28T14:30:00Z", "2024-06-28 10:30"] {
        home.trawl(&[&SCAN[..], &["--output", "again.csv", "--as-of", printed]].concat()).expect_code(0);
        assert!(home.read("again.csv") == home.read("now.csv"), "{printed}");
        assert!(home.read("again.csv.identity.json") == home.read("now.csv.identity.json"), "{printed}");
    }
    let why = home.trawl(&[&SCAN[..5], &["--why", "AAA"]].concat()).expect_code(0);
    assert!(why.stdout.contains("as of 2024-06-28 10:30 EDT"), "{}", why.stdout);
    let update = ["update", "--dataset", "mid", "--where", "close > 0", "--state", "kept"];
    let updated = home.trawl(&update).expect_code(0);
    assert!(updated.stdout.contains("as of 2024-06-28 10:30 EDT"), "{}", updated.stdout);
    home.trawl(&[&SCAN[..], &["--all-bars", "bars.csv"]].concat()).expect_code(0);
    let bars = String::from_utf8(home.read("bars.csv")).expect("text");
    assert!(bars.lines().last().is_some_and(|line| line.starts_with("2024-06-28T14:00:00Z")), "{bars}");
    let chart = ["chart", "AAA", "--dataset", "mid", "--as-of", "last-session"];
    let chart = home.trawl(&chart).expect_code(0);
    assert!(chart.stderr.contains("2024-06-27 16:00 EDT"), "{}", chart.stderr);
    assert!(chart.stdout.contains("13 bars"), "{}", chart.stdout);
}

#[test]
fn an_as_of_is_a_date_a_time_or_a_word_and_warns_when_it_is_not_the_newest() {
    let home = Home::new();
    half_hours(&home);
    let ask = |as_of: &str| home.trawl(&[&SCAN[..], &["--as-of", as_of]].concat());
    for (as_of, shown, warned) in [
        ("2024-06-27", "2024-06-27 16:00 EDT", "newest closed bar is that of 2024-06-28 10:30 EDT"),
        ("last-session", "2024-06-27 16:00 EDT", "newest closed bar is that of 2024-06-28 10:30 EDT"),
        // Bars are selected by their end.
        ("2024-06-28 10:29", "2024-06-28 10:00 EDT", "newest closed bar is that of 2024-06-28 10:30 EDT"),
        ("2024-06-28", "2024-06-28 10:30 EDT", "is after the data"),
        ("now", "2024-06-28 10:30 EDT", "is after the data"),
        ("today", "2024-06-28 10:30 EDT", "is after the data"),
        ("2030-01-01", "2024-06-28 10:30 EDT", "the as-of 2030-01-01 is after the data"),
    ] {
        let ended = ask(as_of).expect_code(0);
        assert!(ended.stdout.contains(&format!("as of {shown}\n")), "{as_of}: {}", ended.stdout);
        assert!(ended.stderr.contains(warned), "{as_of}: {}", ended.stderr);
    }
    for (as_of, expected) in [
        ("05/06/2024", "2024-06-05 or 2024-05-06"),
        ("13/06/2024", "2024-06-13"),
        ("13.06.2024", "2024-06-13"),
        ("yesterday", "now, today or last-session"),
        ("2024-06-28 10:30 CET", "America/New_York"),
        ("2024-06-26", "its first bar is that of 2024-06-27 10:00 EDT"),
    ] {
        let refused = ask(as_of).expect_code(2);
        assert!(refused.stderr.contains(expected), "{as_of}: {}", refused.stderr);
    }
}

#[test]
fn a_bar_that_has_not_ended_by_the_clock_of_its_import_is_forming() {
    let home = Home::new();
    let hour = 3_600_000_000_i64;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock").as_micros() as i64;
    let forming = now - now.rem_euclid(hour);
    let mut text = String::from("time,open,high,low,close,volume\n");
    for n in (0..5).rev() {
        text += &format!("{},{n},{n},{n},{n},1\n", forming - n * hour).replace(",0", ",9");
    }
    home.write("COIN.csv", &text);
    let import = ["import", "COIN.csv", "--dataset", "coin", "--timeframe", "1h", "--calendar", "24/7"];
    let imported = home.trawl(&import).expect_code(0);
    assert!(imported.stdout.contains("1 of the imported bars end after the present"), "{}", imported.stdout);
    let again = home.trawl(&import).expect_code(0);
    assert!(again.stdout.contains("(unchanged)"), "{}", again.stdout);
    let scan = ["scan", "--dataset", "coin", "--where", "close > 0", "--select", "close"];
    let closed = home.trawl(&scan).expect_code(0);
    // Even if the clock has reached the next hour meanwhile, the same bars are what the import saw.
    assert!(
        closed.stdout.lines().any(|line| line.contains("COIN") && line.trim_end().ends_with(" 1")),
        "{}",
        closed.stdout
    );
    let asked = home.trawl(&[&scan[..], &["--as-of", "now"]].concat()).expect_code(0);
    assert_eq!(asked.stdout, closed.stdout);
    let seen = home.trawl(&[&scan[..], &["--forming"]].concat()).expect_code(0);
    assert!(seen.stdout.contains("provisional"), "{}", seen.stdout);
    home.trawl(&[&import[..], &["--complete-to", "2100-01-01"]].concat()).expect_code(0);
    let complete = home.trawl(&scan).expect_code(0);
    assert!(!complete.stdout.contains("provisional"), "{}", complete.stdout);
    assert!(
        complete.stdout.lines().any(|line| line.contains("COIN") && line.trim_end().ends_with(" 9")),
        "{}",
        complete.stdout
    );
}

#[test]
fn a_cluster_resolves_an_as_of_as_one_process_does() {
    let home = Home::new();
    half_hours(&home);
    let cluster = Cluster::start(&home, 1);
    for as_of in ["", "last-session", "2024-06-27", "2024-06-28 10:29", "2024-06-28T14:30:00Z", "today", "2030-01-01"] {
        let mut here: Vec<&str> = SCAN.to_vec();
        if !as_of.is_empty() {
            here.extend(["--as-of", as_of]);
        }
        let there = [&here[..], &["--coordinator", &cluster.url]].concat();
        let (here, there) = (home.trawl(&here).expect_code(0), home.trawl(&there).expect_code(0));
        assert_eq!((here.stdout, here.stderr), (there.stdout, there.stderr), "as of '{as_of}'");
    }
}

/// Half hours of one session; CCC has no bar in the last two of them, BBB none in the last, and 140 symbols, in groups between
/// theirs, have the first alone.
fn thin(home: &Home) {
    let mut text = String::from("symbol,time,open,high,low,close,volume\n");
    let others = (0..140).map(|n| (format!("{}{n:03}", if n % 2 == 0 { "AB" } else { "BC" }), 400, 1));
    let three = [("AAA", 100, 13), ("BBB", 200, 12), ("CCC", 300, 11)];
    for (symbol, base, bars) in
        three.map(|(symbol, base, bars)| (symbol.to_owned(), base, bars)).into_iter().chain(others)
    {
        for n in 0..bars {
            let (minutes, close) = (13 * 60 + 30 + 30 * n, base + n);
            let time = format!("2024-06-27T{:02}:{:02}:00Z", minutes / 60, minutes % 60);
            text += &format!("{symbol},{time},{close},{close},{close},{close},10\n");
        }
    }
    home.write("thin.csv", &text);
    home.trawl(&["import", "thin.csv", "--dataset", "thin", "--timeframe", "30m"]).expect_code(0);
}

#[test]
fn a_symbol_without_a_bar_is_read_at_its_newest_one_if_that_is_young_enough() {
    let home = Home::new();
    thin(&home);
    let scan = ["scan", "--dataset", "thin", "--where", "close > 0", "--rank", "close asc", "--quiet"];
    let select = ["--select", "close", "--select", "xs_rank(close) as place_now", "--select", "time_of_day as at"];
    let run = |more: &[&str]| {
        let ended = home.trawl(&[&scan[..], &select, &["--output", "-"], more].concat()).expect_code(0);
        let rows = ended.stdout.lines().filter(|line| ["AAA", "BBB", "CCC"].iter().any(|symbol| line.contains(symbol)));
        rows.map(|line| line.replace("2024-06-27T19:30:00Z,", "")).collect::<Vec<String>>()
    };
    let (here, since) = ("1,AAA,matched,false,false,,112,1,930", "stale,false,false,no bar since 2024-06-27T");
    assert_eq!(run(&[]), [here.to_owned(), format!(",BBB,{since}19:00:00Z,,,"), format!(",CCC,{since}18:30:00Z,,,")]);
    // Exactly as old as is allowed. AAA is ranked among those of its time, BBB among those of its own bar.
    let young = run(&["--max-age", "30m"]);
    assert_eq!(young[..2], ["1,AAA,matched,false,false,,112,2,930", "2,BBB,matched,false,false,,211,2,900"]);
    assert_eq!(young[2], format!(",CCC,{since}18:30:00Z,,,"));
    assert_eq!(run(&["--max-age", "29m"]), run(&[]));
    let all = run(&["--max-age", "1h"]);
    assert_eq!(all[0], "1,AAA,matched,false,false,,112,3,930");
    assert_eq!(all[2], "3,CCC,matched,false,false,,310,1,870");
    // The same in a cluster, in which each group is computed elsewhere, and as a row of the history.
    let cluster = Cluster::start(&home, 3);
    for age in ["29m", "30m", "1h"] {
        let aged = ["--max-age", age, "--coordinator", &cluster.url, "--shards", "per-group"];
        assert_eq!(run(&aged), run(&aged[..2]), "{age}");
        home.trawl(&[&scan[..], &select, &["--all-bars", "all.csv", "--max-age", age]].concat()).expect_code(0);
        let history = String::from_utf8(home.read("all.csv")).expect("text");
        let last = history.lines().filter_map(|line| line.strip_prefix("2024-06-27T19:30:00Z,"));
        let mut last: Vec<&str> =
            last.filter(|line| ["AAA", "BBB", "CCC"].iter().any(|symbol| line.contains(symbol))).collect();
        last.sort_unstable();
        let mut answer = run(&aged[..2]);
        answer.sort_unstable();
        assert_eq!(last, answer, "{age}");
    }
    let why = home.trawl(&[&scan[..7], &["--max-age", "1h", "--why", "CCC"]].concat()).expect_code(0);
    assert!(why.stdout.contains("310"), "{}", why.stdout);
    for (age, expected) in
        [("5x", "such as max_age"), ("1mo", "m, h, d or w"), ("-5m", "such as max_age"), ("", "such as max_age")]
    {
        let refused = home.trawl(&[&scan[..], &[&format!("--max-age={age}")]].concat()).expect_code(2);
        assert!(refused.stderr.contains(expected), "{age}: {}", refused.stderr);
    }
}

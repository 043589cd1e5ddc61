//! Managing datasets: deleting, pruning, exporting and inspecting them; calendars of other exchanges.

use trawl_tests::home::Home;

const FIRST: &str = "Date,Open,High,Low,Close,Volume,Adj Close\n\
                     2020-01-02,10,11,9,10.1,100,1\n\
                     2020-01-03,10.5,12,10,11.333333333333334,50,\n\
                     2020-01-06,11.5,12,11,11.75,1e9,2\n";

/// The snapshot of a dataset.
fn snapshot(home: &Home, dataset: &str) -> String {
    let text = home.trawl(&["inspect", dataset, "--json"]).expect_code(0).stdout;
    let inspected: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    inspected["snapshot"].as_str().expect("a snapshot").to_owned()
}

#[test]
fn an_export_imported_again_is_the_same_snapshot() {
    let home = Home::new();
    home.write("BBB.csv", FIRST);
    home.write("AAA.csv", &FIRST.replace("11.75", "11.1234567890123456789"));
    home.trawl(&["import", "BBB.csv", "AAA.csv", "--dataset", "days"]).expect_code(0);
    // From an evening in Chicago on: sessions over midnight, and one bar at 00:00 UTC.
    let clock = |k: i64| format!("2025-01-0{}T{:02}:{:02}:00Z", 5 + k / 24, k % 24, 0);
    let rows: String = (23..40).map(|k| format!("{},1,{k}\n", clock(k))).collect();
    home.write("ES.csv", &format!("time,close,volume\n{rows}"));
    home.trawl(&["import", "ES.csv", "--dataset", "hours", "--timeframe", "1h", "--calendar", "cmes"]).expect_code(0);
    for (dataset, more) in [("days", vec![]), ("hours", vec!["--timeframe", "1h", "--calendar", "CMES"])] {
        home.trawl(&["datasets", "export", dataset, "-o", "out.csv"]).expect_code(0);
        home.trawl(&[&["import", "out.csv", "--dataset", "again"], &more[..]].concat()).expect_code(0);
        assert_eq!(snapshot(&home, "again"), snapshot(&home, dataset), "{dataset}");
        home.trawl(&["datasets", "rm", "again"]).expect_code(0);
    }
    let text =
        home.trawl(&["export", "days", "--symbol", "BBB", "--from", "2020-01-03", "-o", "-"]).expect_code(0).stdout;
    assert_eq!(
        text,
        "symbol,time,open,high,low,close,volume,adj_close\nBBB,2020-01-03,10.5,12,10,11.333333333333334,50,\n\
         BBB,2020-01-06,11.5,12,11,11.75,1000000000,2\n"
    );
    for name in ["out.parquet", "out.arrow"] {
        let printed =
            home.trawl(&["datasets", "export", "us5", "--to", "2001-01-31", "-o", name]).expect_code(0).stdout;
        assert!(printed.contains(" bars of 3 symbols to "), "{printed}");
        let bytes = home.read(name);
        assert!(bytes.starts_with(if name.ends_with("arrow") { b"ARROW1" } else { b"PAR1" }), "{name}");
    }
    let ended = home.trawl(&["datasets", "export", "us5", "-o", "bars.xlsx"]).expect_code(2);
    assert!(ended.stderr.contains(".csv, .parquet or .arrow"), "{}", ended.stderr);
    let ended = home.trawl(&["datasets", "export", "us5", "--symbol", "IBN", "-o", "-"]).expect_code(2);
    assert!(ended.stderr.contains("did you mean 'IBM'"), "{}", ended.stderr);
}

#[test]
fn snapshots_and_datasets_are_deleted_and_the_freed_space_is_reported() {
    let home = Home::new();
    let mut ids = Vec::new();
    for name in ["AAA", "BBB", "CCC"] {
        home.write(&format!("{name}.csv"), FIRST);
        home.trawl(&["import", &format!("{name}.csv"), "--dataset", "mine"]).expect_code(0);
        ids.push(snapshot(&home, "mine"));
    }
    let printed = home.trawl(&["prune", "mine", "--keep", "2"]).expect_code(0).stdout;
    assert!(
        printed.contains("deleted 1 snapshot of mine, 2 snapshots left: ") && printed.contains(" freed"),
        "{printed}"
    );
    let gone = home.trawl(&["inspect", &format!("mine@{}", &ids[0][..12])]).expect_code(2);
    assert!(gone.stderr.contains("has no snapshot"), "{}", gone.stderr);
    home.trawl(&["datasets", "rm", &format!("mine@{}", &ids[2][..12])]).expect_code(0);
    assert_eq!(snapshot(&home, "mine"), ids[1]);
    home.trawl(&["inspect", "mine", "--verify"]).expect_code(0);
    let printed = home.trawl(&["datasets", "rm", "mine", "--json"]).expect_code(0).stdout;
    assert!(printed.contains("\"whole\": true"), "{printed}");
    home.trawl(&["inspect", "mine"]).expect_code(2);
    let ended = home.trawl(&["datasets", "rm", "demo"]).expect_code(2);
    assert!(ended.stderr.contains("dataset 'demo' is bundled"), "{}", ended.stderr);
}

#[test]
fn a_symbol_is_shown_with_its_labels_splits_and_dividends() {
    let home = Home::new();
    home.write("AAA.csv", FIRST);
    home.write(
        "splits.csv",
        "symbol,date,split,dividend\nOLD,2020-01-02,4,\nAAA,2020-01-06,,0.25\nBBB,2020-01-06,3,\n",
    );
    home.write("names.csv", "symbol,ticker,from,to,sector\nAAA,OLD,,2020-01-03,Tech\nAAA,AAA,2020-01-03,,Media\n");
    let tables = ["--factors", "splits.csv", "--symbols", "names.csv"];
    home.trawl(&[&["import", "AAA.csv", "--dataset", "mine"], &tables[..]].concat()).expect_code(0);
    let shown = home.trawl(&["inspect", "mine", "--symbol", "AAA"]).expect_code(0).stdout;
    let lines: Vec<String> = shown.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in ["OLD 2020-01-03 Tech", "AAA 2020-01-03 Media", "2020-01-02 4", "2020-01-06 0.25"] {
        assert!(lines.iter().any(|l| l == line), "{line}: {shown}");
    }
    let text = home.trawl(&["inspect", "mine", "--symbol", "AAA", "--json"]).expect_code(0).stdout;
    let inspected: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(inspected["symbol"]["listing"][0]["labels"]["sector"], "Tech");
    assert_eq!(inspected["symbol"]["factors"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_calendar_has_its_exchanges_code_and_its_years_are_reported_where_bars_are_outside() {
    let home = Home::new();
    home.write("AAA.csv", FIRST);
    let ended = home.trawl(&["import", "AAA.csv", "--dataset", "mine", "--calendar", "LSE"]).expect_code(2);
    assert!(ended.stderr.contains("did you mean 'XLON' (London Stock Exchange)?"), "{}", ended.stderr);
    // Fridays and Mondays around New Year, before New York's calendar begins.
    home.write(
        "OLD.csv",
        "Date,Open,High,Low,Close,Volume\n1969-12-19,1,1,1,1,1\n1969-12-22,1,2,1,2,1\n1969-12-26,1,3,1,3,1\n\
         1969-12-29,1,4,1,4,1\n",
    );
    let ended = home.trawl(&["import", "OLD.csv", "--dataset", "old"]).expect_code(0);
    let warning = "calendar XNYS covers 1970-01-01 to 2035-12-31";
    assert!(format!("{}{}", ended.stdout, ended.stderr).contains(warning), "{ended:?}");
    let scan = ["scan", "--dataset", "old", "--where", "close > 0", "--output", "out.csv"];
    let plain = home.trawl(&scan).expect_code(0);
    assert!(!plain.stderr.contains(warning), "the calendar is not used: {}", plain.stderr);
    let weekly = home.trawl(&[&scan[..], &["--select", "tf('1w', close)"]].concat()).expect_code(0);
    assert!(weekly.stderr.contains(warning), "{}", weekly.stderr);
    let rows = String::from_utf8(home.read("out.csv")).expect("text");
    assert!(rows.contains("OLD,matched,false,false,,3"), "the week before is complete: {rows}");
    let ended = home.trawl(&[&scan[..], &["--select", "tf('3d', close)"]].concat());
    assert!(format!("{}{}", ended.stdout, ended.stderr).contains("1970-01-01 to 2035-12-31"), "{ended:?}");
}

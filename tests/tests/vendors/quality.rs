//! What `inspect --quality` finds in bars whose faults are known.

use serde_json::json;
use trawl_tests::home::Home;

use super::json as parsed;

/// Sessions of XNYS from 2024-01-02 to 2024-01-18, as days of January; the 15th is a holiday.
const SESSIONS: [u32; 12] = [2, 3, 4, 5, 8, 9, 10, 11, 12, 16, 17, 18];

/// Microseconds of a date of January 2024.
fn at(day: i64) -> i64 {
    1_704_067_200_000_000 + (day - 1) * 86_400_000_000
}

#[test]
fn gaps_thin_days_stale_symbols_jumps_and_the_quarantine_are_counted() {
    let home = Home::new();
    let mut text = "date,symbol,open,high,low,close,volume\n".to_owned();
    let mut bar = |symbol: &str, day: u32, close: f64| {
        text += &format!("2024-01-{day:02},{symbol},{close},{},{},{close},100\n", close + 1.0, close - 1.0);
    };
    // Nobody has a bar on the 17th, GAPS has none on the 4th and 5th either; the 6th is a Saturday.
    for day in SESSIONS.into_iter().filter(|day| *day != 17) {
        if day == 8 {
            bar("JUMPS", 6, 40.0);
        }
        if ![4, 5].contains(&day) {
            bar("GAPS", day, 10.0);
        }
        if day <= 8 {
            bar("STALE", day, 20.0);
        }
        if day <= 5 {
            bar("ENDED", day, 30.0);
        }
        bar("JUMPS", day, if day < 10 { 40.0 } else { 210.0 });
    }
    text += "2024-01-09,GAPS,10,9,11,10,100\n";
    home.write("bars.csv", &text);
    home.write("names.csv", "symbol,ticker,from,to\nENDED,ENDED,,2024-01-06\n");
    let import = ["data", "import", "bars.csv", "--dataset", "d", "--timeframe", "1d", "--symbols", "names.csv"];
    home.trawl(&import).expect_code(0);
    // The same rows once more are counted once.
    let first = super::snapshot(&home, "d");
    home.write("more.csv", "date,symbol,close\n2024-01-02,OTHER,1\n2024-01-18,OTHER,1\n2024-01-17,OTHER,-1\n");
    home.trawl(&["data", "import", "more.csv", "bars.csv", "--dataset", "d", "--timeframe", "1d"]).expect_code(0);

    let words = ["data", "inspect", "d", "--quality"];
    let found = &parsed(home.trawl(&[&words[..], &["--json"]].concat()))["quality"];
    let is = |name: &str, expected: serde_json::Value| assert_eq!(found[name], expected, "{name}: {found:#}");
    is("sessions", 12.into());
    is("sessions_without_bars", 1.into());
    is("sessions_without_bars_listed", json!([at(17)]));
    is("dates_without_session", 1.into());
    is("dates_without_session_listed", json!([at(6)]));
    is("bars_without_session", 1.into());
    // 3 and 1 of the above, and 10 of OTHER.
    is("gaps", 14.into());
    is("symbols_with_gaps", 3.into());
    assert_eq!(found["gaps_listed"][0], json!({ "symbol": "OTHER", "after": at(2), "before": at(18), "sessions": 10 }));
    is("stale", 1.into());
    is("stale_listed", json!([{ "symbol": "STALE", "last": at(8), "sessions": 7 }]));
    is("ended", 1.into());
    // OTHER has closes alone.
    is("missing_cells", json!({ "high": 2, "low": 2, "open": 2, "volume": 2 }));
    is("short_sessions", 0.into());
    is("jumps", 1.into());
    assert_eq!(found["jumps_listed"][0]["symbol"], "JUMPS");
    let all = json!({ "high below low": 1, "zero or negative price": 1 });
    is("quarantined", all.clone());
    is("quarantined_in_all", all.clone());
    let named = format!("d@{first}");
    let earlier = &parsed(home.trawl(&["data", "inspect", &named, "--quality", "--json"]))["quality"];
    assert_eq!((&earlier["quarantined"], &earlier["quarantined_in_all"]), (&json!({ "high below low": 1 }), &all));
    let shown = home.trawl(&["data", "inspect", &named, "--quality"]).expect_code(0).stdout;
    assert!(shown.contains("  2 rows of all imports whose snapshots are kept\n    1 high below low\n"), "{shown}");
    let day = |date: i64| found["days"].as_array().unwrap().iter().find(|day| day["date"] == at(date)).unwrap().clone();
    assert_eq!(day(4), json!({ "date": at(4), "symbols": 3, "expected": 5, "bars": 3 }));
    assert_eq!(day(9), json!({ "date": at(9), "symbols": 2, "expected": 3, "bars": 2 }));

    let shown = home.trawl(&words).expect_code(0).stdout;
    for line in [
        "sessions: 12, 1 without any bar: 2024-01-17\n",
        "1 bar on dates without a session: 2024-01-06\n",
        "  2024-01-04: 3 of 5 symbols, 3 bars\n",
        "gaps: 14 sessions of 3 symbols without a bar, between others that have one\n",
        "  GAPS: 2 sessions after 2024-01-03 and before 2024-01-08\n",
        "cells without a number: 2 of high, 2 of low, 2 of open, 2 of volume\n",
        "ended: 1 symbol, as the table of symbols has it\n",
        "stale: 1 symbol without recent bars\n  STALE: last on 2024-01-08, 7 sessions ago\n",
        "quarantine: 2 rows of the import that made this snapshot\n  1 high below low\n  1 zero or negative price\n",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
}

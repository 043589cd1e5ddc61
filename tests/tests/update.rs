//! `trawl update`: after every new bar the answer equals that of a scan, byte for byte, whatever happened to the
//! symbols and the state.

use std::collections::BTreeMap;

use serde_json::Value;
use trawl_tests::home::Home;

const SYMBOLS: usize = 14;
/// Listed while the test runs.
const NEW: usize = 11;
/// Has no bar from some day on.
const GONE: usize = 12;
/// Has no bar on every third day.
const RARE: usize = 13;
/// Days before the first update.
const BEGIN: usize = 160;

/// Weekdays from 2021-01-04 on.
fn date(day: usize) -> String {
    const MONTHS: [usize; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut days = 3 + day / 5 * 7 + day % 5;
    for (month, length) in MONTHS.iter().enumerate() {
        if days < *length {
            return format!("2021-{:02}-{:02}", month + 1, days + 1);
        }
        days -= length;
    }
    unreachable!("the test is about one year")
}

fn has_bar(symbol: usize, day: usize) -> bool {
    match symbol {
        NEW => day > BEGIN + 1,
        GONE => day < BEGIN + 2,
        RARE => day % 3 != 1,
        _ => day >= symbol * 7,
    }
}

/// Prices of a walk that goes its own way for each symbol.
fn row(symbol: usize, day: usize) -> String {
    let noise = |salt: usize| ((symbol * 7919 + day * 104_729 + salt * 1_299_709) ^ (day * symbol + 31)) % 997;
    let close = 60.0 + 20.0 * ((day as f64 / (5.0 + symbol as f64)).sin()) + noise(1) as f64 / 100.0;
    let open = close + noise(2) as f64 / 200.0 - 2.5;
    let (high, low) = (open.max(close) + noise(3) as f64 / 300.0, open.min(close) - noise(4) as f64 / 300.0);
    format!("S{symbol:02},{},{open:.2},{high:.2},{low:.2},{close:.2},{}\n", date(day), 1000 + noise(5) * 13)
}

fn import(home: &Home, days: std::ops::Range<usize>) {
    let mut text = "symbol,date,open,high,low,close,volume\n".to_owned();
    for day in days {
        (0..SYMBOLS).filter(|s| has_bar(*s, day)).for_each(|s| text.push_str(&row(s, day)));
    }
    home.write("bars.csv", &text);
    home.trawl(&["import", "bars.csv", "--dataset", "m", "--calendar", "weekdays"]).expect_code(0);
}

/// Name, clauses.
const SCANS: [(&str, &[&str]); 10] = [
    (
        "screen",
        &[
            "--where",
            "rsi(close,14) < 65",
            "--rank",
            "macd().hist",
            "--select",
            "atr(14)",
            "--select",
            "adx(14)",
            "--select",
            "obv()",
            "--select",
            "vwap()",
            "--select",
            "kama(close,10)",
            "--select",
            "stoch(14,3,3).k",
            "--select",
            "cci(20)",
            "--select",
            "mfi(14)",
            "--select",
            "bbands(close,20,2).upper",
            "--select",
            "donchian(20).upper",
            "--select",
            "sar()",
            "--select",
            "ht_dcperiod()",
        ],
    ),
    (
        "crosses",
        &["--where", "within(crosses_above(ema(close,5), ema(close,13)), 6)", "--select", "since(close > open)"],
    ),
    (
        "sections",
        &["--where", "within(xs_pct(rsi(close,7)) > 0.6, 4)", "--rank", "xs_rank(ema(close,9))", "--select", "obv()"],
    ),
    (
        "split",
        &["--where", "close > ema(close,20)", "--adjust", "split", "--select", "ema(close,20)", "--select", "close"],
    ),
    (
        "weeks",
        &[
            "--where",
            "tf('1w', ema(close,4)) < close",
            "--select",
            "ema(close,9)",
            "--select",
            "ref('S01', ema(close,5))",
        ],
    ),
    (
        "running",
        &["--where", "ema(xs_pct(close),5) > 0.4", "--select", "ema(ref('S02', close),5)", "--select", "vwap()"],
    ),
    ("windows", &["--where", "sma(close,10) > sma(close,30)", "--select", "highest(high,20)"]),
    (
        "trend",
        &[
            "--where",
            "atc(close, 12, hma_len=9, wma_len=30, robustness='narrow', cutout=20).signal > 0",
            "--rank",
            "atc(close, 9, la=0.5, strategy_mode=true).signal",
            "--select",
            "atc(high, 14, robustness='wide').kama",
            "--select",
            "atc(high, 14, robustness='wide').dema_equity",
            "--select",
            "correl(close,volume,12)",
            "--select",
            "percentrank(ema(close,3),15)",
        ],
    ),
    (
        "short",
        &[
            "--precision",
            "f32",
            "--where",
            "rsi(close,14) < 65",
            "--rank",
            "atc(close, 12, de=1).signal",
            "--select",
            "macd().hist",
            "--select",
            "obv()",
            "--select",
            "sar()",
            "--select",
            "correl(ema(close,4),volume,12)",
        ],
    ),
    (
        "best",
        &[
            "--where",
            "close > ma(close, m, matype=kind)",
            "--universe",
            "rsi(close, n) < 80",
            "--sweep",
            "n=5:13:4",
            "--sweep",
            "m=10,30",
            "--sweep",
            "kind=sma,ema",
            "--best",
            "roc(ema(close, n), m) desc",
            "--keep",
            "2",
            "--select",
            "atc(close, n, robustness='narrow').signal",
        ],
    ),
];

/// Runs the update and the scan, compares their output and files, and returns the update's report.
#[track_caller]
fn same_as_scan(home: &Home, name: &str, clauses: &[&str], more: &[&str]) -> Value {
    for file in ["answer.csv", "answer.json"] {
        let with = |command: &str, output: &str, extra: &[&str]| {
            let begin = [command, "--dataset", "m", "--output", output];
            home.trawl(&[&begin[..], clauses, more, extra].concat())
        };
        let scanned = with("scan", file, &[]).expect_code(0);
        let expected = home.read(file);
        std::fs::remove_file(home.path(file)).expect("was written");
        let state = format!("states/{name}");
        let updated = with("update", file, &["--state", &state, "--report", "report.json"]).expect_code(0);
        assert!(home.read(file) == expected, "{name}: {file} differs");
        let table =
            |text: &str| text.lines().filter(|l| !l.starts_with("wrote ")).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(table(&updated.stdout), table(&scanned.stdout), "{name}");
    }
    let report: Value = serde_json::from_slice(&home.read("report.json")).expect("JSON");
    report["update"].clone()
}

#[test]
fn after_every_new_bar_an_update_gives_the_bytes_of_a_scan() {
    let home = Home::new();
    import(&home, 0..BEGIN);
    let all = |more: &[&str]| -> BTreeMap<&str, Value> {
        SCANS.iter().map(|(name, clauses)| (*name, same_as_scan(&home, name, clauses, more))).collect()
    };
    let first = all(&[]);
    assert_eq!(first["windows"]["resumed"], 0);
    // What needs no state is not reported as one that is lost, also where an update has run before.
    for _ in 0..2 {
        let windows = [&["update", "--dataset", "m", "--state", "states/windows"], SCANS[6].1].concat();
        let said = home.trawl(&windows).expect_code(0).stderr;
        assert_eq!(said, "update: the scan needs no state: no value of it runs on from bar to bar\n");
        assert_eq!(first["windows"]["state"], "not needed");
    }
    for day in BEGIN..BEGIN + 9 {
        import(&home, day..day + 1);
        if day == BEGIN + 4 {
            home.write("splits.csv", &format!("symbol,date,split,dividend\nS03,{},2,\n", date(day)));
            home.trawl(&["import", "--dataset", "m", "--factors", "splits.csv"]).expect_code(0);
        }
        let (clauses, state) = (SCANS[3].1, "states/reported");
        let ended = home
            .trawl(&[&["update", "--dataset", "m", "--state", state, "--report", "reported.json"], clauses].concat());
        ended.expect_code(0);
        let report: Value = serde_json::from_slice(&home.read("reported.json")).expect("JSON");
        let recomputed = &report["update"]["recomputed"];
        if day == BEGIN + 4 {
            assert_eq!(recomputed["its past has changed"], 1, "{report}");
        } else if day > BEGIN {
            assert_eq!(recomputed["its past has changed"], Value::Null, "{day}: {recomputed}");
        }
        let reports = all(&[]);
        for name in ["screen", "trend", "short", "best"] {
            assert!(reports[name]["resumed"].as_u64() >= Some(11), "{name}: {}", reports[name]);
            assert_eq!(reports[name]["state"], "taken");
            assert_eq!(reports[name]["in_full"], Value::Array(Vec::new()), "{name}");
        }
        let refused = reports["running"]["in_full"].to_string();
        assert!(refused.contains("cross-section"), "{refused}");
    }
    // For an earlier as-of the states cannot be used; for a later one they can.
    let earlier = same_as_scan(&home, "screen", SCANS[0].1, &["--as-of", &date(BEGIN - 40)]);
    assert!(earlier["resumed"].as_u64() > Some(0), "the second run of the same as-of: {earlier}");
    same_as_scan(&home, "screen", SCANS[0].1, &[]);
}

/// Attributes are read by running values, and symbols without a new bar are looked at where they are not too old.
#[test]
fn updates_with_attributes_and_with_symbols_that_lag_give_the_bytes_of_a_scan() {
    let home = Home::new();
    import(&home, 0..BEGIN);
    let known = |from: usize, days: std::ops::Range<usize>| {
        let row = |day: usize| {
            let symbol = (day * 5) % SYMBOLS;
            format!("S{symbol:02},{},{},{}\n", date(day), 100 + (day * 37 + symbol * 11) % 900, date(day + from))
        };
        format!("symbol,date,cap,earnings\n{}", days.map(row).collect::<String>())
    };
    home.write("known.csv", &known(7, 0..BEGIN));
    home.trawl(&["import", "--dataset", "m", "--attributes", "known.csv"]).expect_code(0);
    let scans: [(&str, &[&str]); 2] = [
        (
            "attributes",
            &[
                "--where",
                "ema(cap, 5) > 300 and days_to(earnings) < 20",
                "--rank",
                "cap",
                "--select",
                "ema(close/cap, 9)",
                "--select",
                "since(days_since(earnings) >= 0)",
                "--select",
                "earnings",
            ],
        ),
        (
            "lagging",
            &["--max-age", "2d", "--where", "ema(close, 9) > 0", "--select", "rsi(14)", "--select", "ema(cap, 3)"],
        ),
    ];
    for day in BEGIN..BEGIN + 7 {
        import(&home, day..day + 1);
        home.write("known.csv", &known(9, day..day + 1));
        home.trawl(&["import", "--dataset", "m", "--attributes", "known.csv"]).expect_code(0);
        let reports: Vec<Value> = scans.iter().map(|(name, clauses)| same_as_scan(&home, name, clauses, &[])).collect();
        if day > BEGIN {
            let resumed = |report: &Value| report["resumed"].as_u64().unwrap_or(0);
            assert!(
                reports.iter().all(|report| report["state"] == "taken" && resumed(report) > 8),
                "{day}: {reports:?}"
            );
        }
    }
    // A value that becomes known late for a day that the states have seen is a change of the past.
    home.write("known.csv", &format!("symbol,date,cap\nS04,{},555\n", date(BEGIN - 30)));
    home.trawl(&["import", "--dataset", "m", "--attributes", "known.csv"]).expect_code(0);
    let (name, clauses) = scans[0];
    let begin = ["update", "--dataset", "m", "--state", "states/attributes", "--output", "u.csv"];
    let printed = home.trawl(&[&begin[..], clauses].concat()).expect_code(0).stderr;
    assert!(printed.contains("1 symbol recomputed (its past has changed)"), "{name}: {printed}");
    same_as_scan(&home, name, clauses, &[]);
}

#[test]
fn a_correction_of_history_is_noticed() {
    let home = Home::new();
    import(&home, 0..BEGIN);
    let (name, clauses) = SCANS[0];
    same_as_scan(&home, name, clauses, &[]);
    home.write("fix.csv", &format!("symbol,date,open,high,low,close,volume\nS05,{},50,90,40,70,5\n", date(BEGIN - 30)));
    home.trawl(&["import", "fix.csv", "--dataset", "m"]).expect_code(0);
    let update = ["update", "--dataset", "m", "--state", "states/screen", "--output", "u.csv"];
    let printed = home.trawl(&[&update[..], clauses].concat()).expect_code(0).stderr;
    assert!(printed.contains("1 symbol recomputed (its past has changed)"), "{printed}");
    home.trawl(&[&["scan", "--dataset", "m", "--output", "s.csv"], clauses].concat()).expect_code(0);
    assert_eq!(home.read("u.csv"), home.read("s.csv"));
}

#[test]
fn a_damaged_state_is_reported_and_replaced_and_the_state_of_another_scan_is_refused() {
    let home = Home::new();
    import(&home, 0..BEGIN);
    let (name, clauses) = SCANS[0];
    same_as_scan(&home, name, clauses, &[]);
    let path = home.path("states/screen/state.trawl");
    let good = std::fs::read(&path).expect("a state");
    for damage in [&good[..good.len() - 1], &good[..40], b"", b"something else, long enough for a checksum"] {
        std::fs::write(&path, damage).expect("can be written");
        let update = ["update", "--dataset", "m", "--state", "states/screen", "--quiet", "--output", "u.csv"];
        let printed = home.trawl(&[&update[..], clauses].concat()).expect_code(0).stderr;
        assert!(printed.contains("warning: ") && printed.contains("the state is damaged"), "{printed}");
        home.trawl(&[&["scan", "--dataset", "m", "--output", "s.csv"], clauses].concat()).expect_code(0);
        assert_eq!(home.read("u.csv"), home.read("s.csv"));
        assert_eq!(std::fs::read(&path).expect("a state"), good);
    }
    let other = ["update", "--dataset", "m", "--state", "states/screen", "--where", "ema(close, 3) > 1"];
    let printed = home.trawl(&other).expect_code(2).stderr;
    assert!(
        printed.contains("the state is of a scan with other clauses") && printed.contains("a folder of its own"),
        "{printed}"
    );
    assert_eq!(std::fs::read(&path).expect("a state"), good);
    let short = ["update", "--dataset", "m", "--state", "states/screen", "--precision", "f32"];
    let printed = home.trawl(&[&short[..], clauses].concat()).expect_code(2).stderr;
    assert!(printed.contains("the state is of another precision: 'f64'"), "{printed}");
    assert_eq!(std::fs::read(&path).expect("a state"), good);
    home.write("file", "");
    let printed =
        home.trawl(&["update", "--dataset", "m", "--state", "file", "--where", "close > 1"]).expect_code(2).stderr;
    assert!(printed.contains("cannot use 'file'"), "{printed}");
}

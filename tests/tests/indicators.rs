//! `trawl indicators`, its pages and its sets: complete, up to date, and every example runs.

use std::collections::BTreeSet;
use std::path::Path;

use trawl_tests::executable::repository;
use trawl_tests::home::Home;

/// Columns of one scan.
const COLUMNS: usize = 120;

fn catalogue(home: &Home) -> Vec<serde_json::Value> {
    let text = home.trawl(&["indicators", "--json"]).expect_code(0).stdout;
    serde_json::from_str(&text).expect("a list of functions")
}

fn text<'v>(value: &'v serde_json::Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

#[test]
fn all_201_functions_of_talib_are_there_with_its_outputs() {
    let golden = repository().join("tests/golden/talib/functions.json");
    let golden: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(golden).expect("golden vectors")).expect("JSON");
    let home = Home::new();
    let ours = catalogue(&home);
    let mut missing = Vec::new();
    let theirs = golden["functions"].as_array().expect("functions");
    assert_eq!(theirs.len(), 201);
    for function in theirs {
        let name = text(function, "name").to_lowercase();
        let Some(found) = ours.iter().find(|f| text(f, "name") == name && text(f, "reference").starts_with("TA-Lib"))
        else {
            missing.push(name);
            continue;
        };
        let outputs: Vec<&str> =
            found["outputs"].as_array().expect("outputs").iter().map(|o| text(o, "name")).collect();
        let wanted: Vec<&str> =
            function["outputs"].as_array().expect("outputs").iter().map(|o| o.as_str().unwrap_or("")).collect();
        assert_eq!(outputs, wanted, "{name}");
        let parameters: BTreeSet<&str> =
            found["parameters"].as_array().expect("parameters").iter().map(|p| text(p, "name")).collect();
        let wanted: BTreeSet<&str> =
            function["params"].as_object().expect("params").keys().map(String::as_str).collect();
        assert_eq!(parameters, wanted, "{name}");
    }
    assert!(missing.is_empty(), "{} of 201 are missing: {missing:?}", missing.len());
}

#[test]
fn every_example_runs() {
    let home = Home::new();
    let (mut items, mut of_clock) = (Vec::new(), Vec::new());
    for function in catalogue(&home) {
        // Functions over other symbols have their examples in the language's reference.
        let example = text(&function, "example");
        let outputs = function["outputs"].as_array().expect("outputs");
        for output in outputs.iter().filter(|_| !example.is_empty()) {
            let field = if outputs.len() > 1 { format!(".{}", text(output, "name")) } else { String::new() };
            let item = format!("{example}{field}");
            match text(&function, "group") == "Time and sessions" {
                true => of_clock.push(item),
                false => items.push(item),
            }
        }
    }
    assert!(items.len() > 250, "{}", items.len());
    // Days have no time of day.
    let select = of_clock.iter().flat_map(|item| ["--select", item]);
    let minutes = ["scan", "--dataset", "demo-1m", "--where", "true", "--output", "m.json", "--quiet"];
    home.trawl(&minutes.into_iter().chain(select).collect::<Vec<_>>()).expect_code(0);
    for chunk in items.chunks(COLUMNS) {
        let named: Vec<String> = chunk.iter().enumerate().map(|(i, item)| format!("{item} as c{i}")).collect();
        let select = named.iter().flat_map(|item| ["--select", item]);
        let scan = ["scan", "--dataset", "us5", "--where", "true", "--output", "a.json", "--quiet"];
        home.trawl(&scan.into_iter().chain(select).collect::<Vec<_>>()).expect_code(0);
        let answer: serde_json::Value = serde_json::from_slice(&home.read("a.json")).expect("an answer");
        let ibm = answer["rows"].as_array().expect("rows").iter().find(|r| r["symbol"] == "IBM").expect("IBM");
        for (i, item) in chunk.iter().enumerate() {
            let value = ibm.get(format!("c{i}")).expect("a column");
            // A price has no arc sine.
            let defined = !item.starts_with("acos(") && !item.starts_with("asin(");
            assert!(!value.is_null() || !defined, "{item} is NA for a symbol with 3,270 bars");
        }
    }
}

#[test]
fn the_pages_match_the_declarations() {
    let home = Home::new();
    home.trawl(&["indicators", "--pages", "pages"]).expect_code(0);
    let committed = files(&repository().join("docs/indicators"));
    let written = files(&home.path("pages"));
    assert_eq!(committed.keys().collect::<Vec<_>>(), written.keys().collect::<Vec<_>>(), "run `just docs`");
    for (name, text) in &written {
        assert!(committed[name] == *text, "docs/indicators/{name} is out of date: run `just docs`");
    }
}

fn files(folder: &Path) -> std::collections::BTreeMap<String, String> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let file = |entry: std::fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        (name, std::fs::read_to_string(entry.path()).expect("a page"))
    };
    entries.flatten().map(file).collect()
}

#[test]
fn one_word_selects_all_111_features() {
    let home = Home::new();
    let scan = ["scan", "--dataset", "demo", "--where", "true", "--quiet", "--select", "seed111", "--output", "a.json"];
    home.trawl(&scan).expect_code(0);
    let answer: serde_json::Value = serde_json::from_slice(&home.read("a.json")).expect("an answer");
    let spy = answer["rows"].as_array().expect("rows").iter().find(|r| r["symbol"] == "SPY").expect("SPY");
    let fixed = ["time", "place", "symbol", "status", "edge", "provisional", "reason"];
    let names: BTreeSet<&str> =
        spy.as_object().expect("a row").keys().map(String::as_str).filter(|n| !fixed.contains(n)).collect();
    assert_eq!(names.len(), 111);
    for wanted in [
        "sma_200",
        "ema_1000",
        "rsi_25",
        "macd_3_10_16",
        "atr_30",
        "bb_width_50",
        "obv",
        "vwap",
        "support_resistance_50",
        "avwap_prev_hvol",
        "vwap_u3",
        "avwap_monthly_l2",
    ] {
        assert!(names.contains(wanted), "{wanted}");
    }
    // It has 989 bars: all but the mean of 1,000.
    let missing: Vec<&&str> = names.iter().filter(|n| spy[**n].is_null()).collect();
    assert_eq!(missing, [&"ema_1000"]);
}

#[test]
fn a_session_average_is_the_volume_weighted_mean_since_the_open() {
    let home = Home::new();
    // Two sessions of New York in winter, with an early bar before the second.
    let rows = [
        ("2024-01-08T20:58:00Z", 10.0, 5.0),
        ("2024-01-08T20:59:00Z", 13.0, 10.0),
        ("2024-01-09T13:00:00Z", 20.0, 1.0),
        ("2024-01-09T14:30:00Z", 30.0, 2.0),
        ("2024-01-09T14:31:00Z", 36.0, 1.0),
        ("2024-01-09T14:32:00Z", 33.0, 3.0),
    ];
    let lines: Vec<String> =
        rows.iter().map(|(time, price, volume)| format!("{time},{price},{price},{price},{volume}\n")).collect();
    home.write("bars.csv", &format!("date,high,low,close,volume\n{}", lines.concat()));
    let anchors = ["session", "daily", "high", "prev_high", "hvol"];
    let exprs: Vec<String> = anchors.iter().map(|a| format!("avwap('{a}') as {a}")).collect();
    let mut command = vec!["compute", "--input", "bars.csv"];
    command.extend(exprs.iter().flat_map(|e| ["--expr", e]));
    let shown = home.trawl(&command).expect_code(0).stdout;
    let column = |at: usize| -> Vec<f64> {
        shown.lines().skip(1).map(|l| l.split(',').nth(at).and_then(|c| c.parse().ok()).unwrap_or(f64::NAN)).collect()
    };
    let near = |got: &[f64], want: &[f64]| {
        let same = |(g, w): (&f64, &f64)| (g - w).abs() < 1e-12 * w.abs() || g.is_nan() && w.is_nan();
        assert!(got.len() == want.len() && got.iter().zip(want).all(same), "{got:?}, expected {want:?}");
    };
    let nan = f64::NAN;
    let session = (10.0 * 5.0 + 13.0 * 10.0 + 20.0) / 16.0;
    near(&column(1), &[10.0, 12.0, session, 30.0, 32.0, (60.0 + 36.0 + 99.0) / 6.0]);
    near(&column(2), &[10.0, 12.0, 20.0, 80.0 / 3.0, 29.0, (20.0 + 60.0 + 36.0 + 99.0) / 7.0]);
    // It restarts with each higher high of the day: 30 exceeds 20, 36 exceeds 30, 33 does not.
    near(&column(3), &[10.0, 13.0, 20.0, 30.0, 36.0, (36.0 + 99.0) / 4.0]);
    near(&column(4), &[nan, nan, 150.0 / 11.0, 210.0 / 13.0, 246.0 / 14.0, 345.0 / 17.0]);
    near(&column(5), &[10.0, 13.0, 20.0, 30.0, 32.0, 33.0]);
}

#[test]
fn bands_begin_with_the_first_bar_of_the_period_that_counts() {
    let home = Home::new();
    let bands = |file: &str, rows: &[&str]| -> Vec<String> {
        home.write(file, &format!("date,high,low,close,volume\n{}\n", rows.join("\n")));
        let exprs = ["avwap_bands('history').u1 as a", "avwap_bands('session').l2 as b"];
        let shown =
            home.trawl(&["compute", "--input", file, "--expr", exprs[0], "--expr", exprs[1]]).expect_code(0).stdout;
        shown.lines().skip(1).map(|line| line.split_once(',').expect("values").1.to_owned()).collect()
    };
    let counted = ["2024-01-08T14:33:00Z,341,340,340.5,5", "2024-01-08T14:34:00Z,345,336,339,8"];
    // Without a price, without a volume, and far away without a share: none of them has a part in the average.
    let before =
        ["2024-01-08T14:30:00Z,,1,1,7", "2024-01-08T14:31:00Z,150,149,149,", "2024-01-08T14:32:00Z,150,149,149,0"];
    let alone = bands("alone.csv", &counted);
    assert!(alone.iter().all(|values| values.split(',').all(|value| value.parse::<f64>().is_ok())), "{alone:?}");
    assert_eq!(alone[0], "340.5,340.5", "of one bar, exactly");
    let all = bands("all.csv", &[before.as_slice(), &counted].concat());
    assert_eq!(all[before.len()..], alone);
}

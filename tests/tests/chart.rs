//! `trawl chart`: the picture shows what was requested, with the values of the scan engine.

use trawl_tests::executable::repository;
use trawl_tests::home::Home;

/// Elements of a kind in an SVG file.
fn count(svg: &str, element: &str) -> usize {
    svg.matches(&format!("<{element} ")).count()
}

/// Texts in the order in which they were written.
fn texts(svg: &str) -> Vec<&str> {
    let inside = svg.split("<text ").skip(1).filter_map(|part| part.split_once('>'));
    inside.filter_map(|(_, rest)| rest.split_once("</text>")).map(|(text, _)| text.trim()).collect()
}

#[test]
fn candles_averages_panels_and_conditions_are_drawn() {
    let home = Home::new();
    let ended = home.trawl(&[
        "chart",
        "IBM",
        "--dataset",
        "us5",
        "--as-of",
        "2013-02-22",
        "--bars",
        "100",
        "--expr",
        "sma(close, 50)",
        "--expr",
        "macd().macd as line; macd().signal as slow",
        "--expr",
        "rsi()",
        "--expr",
        "close > highest(high, 20)[1] as breakout",
    ]);
    assert_eq!(ended.expect_code(0).stdout, "wrote IBM.svg: 100 bars of IBM\n");
    let svg = std::fs::read_to_string(home.path("IBM.svg")).expect("a file");
    let written = texts(&svg);
    for name in ["IBM  (us5 1d)", "sma(close, 50)", "line", "slow", "rsi()", "breakout", "2012-09-27 to 2013-02-22"] {
        assert!(written.contains(&name), "{name} in {written:?}");
    }
    // The scan engine's values of the condition on these bars, counted as runs.
    let all = [
        "scan",
        "--dataset",
        "us5",
        "--as-of",
        "2013-02-22",
        "--where",
        "close > highest(high, 20)[1]",
        "--all-bars",
        "all.csv",
        "--quiet",
    ];
    home.trawl(&all).expect_code(0);
    let mut reader = csv::Reader::from_path(home.path("all.csv")).expect("a CSV");
    let rows: Vec<csv::StringRecord> = reader.records().map(|r| r.expect("a row")).collect();
    let mut states: Vec<(String, bool)> = rows
        .iter()
        .filter(|r| r.iter().any(|cell| cell == "IBM"))
        .map(|r| (r[0].to_owned(), r.iter().any(|cell| cell == "matched")))
        .collect();
    states.sort();
    let shown: Vec<bool> = states.iter().rev().take(100).rev().map(|s| s.1).collect();
    let stretches = shown.iter().zip(std::iter::once(&false).chain(&shown)).filter(|(now, before)| **now && !**before);
    let stretches = stretches.count();
    assert!(stretches > 0, "the condition is true somewhere");
    // Background, a square for each of six names, a body and a volume for each bar, a box for each run, the last values of price,
    // mean, both lines and the oscillator, none of which covers another.
    assert_eq!(count(&svg, "rect"), 1 + 6 + 100 + 100 + stretches + 5);
    let levels = texts(&svg);
    assert!(levels.contains(&"30") && levels.contains(&"70"), "{levels:?}");
    home.trawl(&["chart", "IBM", "-d", "us5", "--bars", "100", "--as-of", "2013-02-22", "--no-volume"]).expect_code(0);
    let plain = std::fs::read_to_string(home.path("IBM.svg")).expect("a file");
    assert_eq!(count(&plain, "rect"), 1 + 100 + 1, "background, bodies, the last value");
}

/// Texts right of the plot, with their heights: labels and last values of the axes.
fn on_axis(svg: &str) -> Vec<(i32, String)> {
    let of = |part: &str, name: &str| -> Option<i32> {
        part.split_once(&format!("{name}=\""))?.1.split('"').next()?.parse().ok()
    };
    let inside = svg.split("<text ").skip(1).filter_map(|part| part.split_once('>'));
    let right = inside.filter(|(attributes, _)| of(attributes, " x").or(of(attributes, "x")) > Some(1310));
    right
        .filter_map(|(attributes, rest)| Some((of(attributes, " y")?, rest.split_once("</text>")?.0.trim().to_owned())))
        .collect()
}

#[test]
fn last_values_that_are_near_each_other_are_all_there_and_every_panel_has_numbers() {
    let home = Home::new();
    let chart = [
        "chart",
        "IBM",
        "--dataset",
        "us5",
        "--bars",
        "100",
        "--overlay",
        "close * 1.0001 as near; close * 1.0002 as nearer; close as same",
        "--expr",
        "macd().line as macd; macd().signal as signal; macd().hist as histogram",
    ];
    home.trawl(&chart).expect_code(0);
    let svg = std::fs::read_to_string(home.path("IBM.svg")).expect("a file");
    let mut axis = on_axis(&svg);
    axis.sort();
    assert!(axis.windows(2).all(|pair| pair[1].0 - pair[0].0 >= 12), "{axis:?}");
    let written: Vec<&str> = axis.iter().map(|(_, text)| text.as_str()).collect();
    // 202.91, that again, and 202.93 and 202.95 beside it.
    assert_eq!(written.iter().filter(|text| text.starts_with("202.9")).count(), 4, "{written:?}");
    for value in ["0.6385", "0.6802", "-0.04163"] {
        assert!(written.contains(&value), "{value}: {written:?}");
    }
    // The volume's panel, and the one of the differences: labels besides their last values.
    assert!(written.contains(&"0") && written.iter().any(|text| text.ends_with('M')), "{written:?}");
    let below = written.iter().rev().take_while(|text| !text.ends_with('M') && **text != "0");
    let round = below.filter(|text| text.trim_start_matches('-').len() <= 3).count();
    assert!(round >= 2, "{written:?}");
}

/// Writes the pictures of docs/charts.md anew.
const BLESS: &str = "TRAWL_BLESS_CHARTS";

#[test]
fn the_pictures_of_the_page_are_those_that_its_commands_make() {
    let home = Home::new();
    let docs = repository().join("docs");
    let page = std::fs::read_to_string(docs.join("charts.md")).expect("the page");
    let commands: Vec<&str> = page.lines().filter(|line| line.starts_with("trawl chart")).collect();
    assert_eq!(commands.len(), 2, "{commands:?}");
    for command in commands {
        let parts = command.split('\'').enumerate().flat_map(|(i, part)| match i % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        });
        let examples = repository().join("examples");
        let given = |word: String| word.replace("examples", examples.to_str().expect("a path"));
        let words: Vec<String> = parts.skip(1).map(given).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        home.trawl(&words).expect_code(0);
        let name = words.last().expect("a file");
        assert!(page.contains(&format!("]({name})")), "{name}");
        let drawn = home.read(name);
        assert!(drawn.len() < 200_000, "{name}: {} bytes", drawn.len());
        if std::env::var_os(BLESS).is_some() {
            std::fs::write(docs.join(name), &drawn).expect("docs can be written");
        }
        assert!(
            std::fs::read(docs.join(name)).ok().as_ref() == Some(&drawn),
            "docs/{name} is old: run this test with {BLESS}=1"
        );
    }
}

#[test]
fn a_scan_marks_its_bars_and_its_first_matches_are_a_sheet() {
    let home = Home::new();
    home.write("scan.toml", "name = 'breakout'\ndataset = 'demo'\nuniverse = 'close > 5'\nwhere = 'xs_rank(roc(close, 20)) <= 7'\nrank = 'close'\n");
    home.trawl(&["scan", "-f", "scan.toml", "--all-bars", "all.csv", "-q"]).expect_code(0);
    let mut reader = csv::Reader::from_path(home.path("all.csv")).expect("a CSV");
    let rows: Vec<std::collections::HashMap<String, String>> =
        reader.deserialize().map(|r| r.expect("a row")).collect();
    let last = rows.last().map(|row| row["time"].clone()).expect("a row");
    let matches: Vec<&str> = rows
        .iter()
        .filter(|row| row["time"] == last && !row["place"].is_empty())
        .map(|row| row["symbol"].as_str())
        .collect();
    assert_eq!(matches.len(), 7);
    let symbol = matches[0];
    let sheet = home.trawl(&["chart", "--scan", "scan.toml", "-o", "sheet.svg"]).expect_code(0).stdout;
    assert_eq!(sheet, "wrote sheet.svg: the first 7 matches\n");
    let svg = std::fs::read_to_string(home.path("sheet.svg")).expect("a file");
    let titles: Vec<&str> = texts(&svg)
        .into_iter()
        .filter_map(|text| text.strip_suffix("  SYNTHETIC"))
        .filter(|text| matches.contains(text))
        .collect();
    assert_eq!(titles, matches, "in the order of the answer");
    home.trawl(&["chart", symbol, "--scan", "scan.toml", "--bars", "60", "-o", "one.svg"]).expect_code(0);
    let svg = std::fs::read_to_string(home.path("one.svg")).expect("a file");
    assert!(texts(&svg).contains(&"breakout"));
    let of_symbol: Vec<&std::collections::HashMap<String, String>> =
        rows.iter().filter(|row| row["symbol"] == symbol).collect();
    let with_bar: Vec<_> = of_symbol.iter().filter(|row| row["status"] != "stale").collect();
    let marked = with_bar.iter().rev().take(60).filter(|row| row["status"] == "matched").count();
    assert!(marked > 0);
    assert_eq!(count(&svg, "polygon"), marked, "a triangle for each bar at which it matches");
    // The same picture as pixels.
    home.trawl(&["chart", symbol, "--scan", "scan.toml", "--bars", "60", "-o", "one.png", "--size", "900x600"])
        .expect_code(0);
    let png = home.read("one.png");
    assert_eq!((&png[..8], &png[16..24]), (&b"\x89PNG\r\n\x1a\n"[..], &[0, 0, 3, 132, 0, 0, 2, 88][..]));
    assert!(png.len() > 10_000, "{}", png.len());
}

#[test]
fn many_bars_are_a_line_with_gaps_at_na() {
    let home = Home::new();
    let far = [
        "chart",
        "IBM",
        "--dataset",
        "us5",
        "--bars",
        "600",
        "--no-volume",
        "--output",
        "far.svg",
        "--size",
        "800x600",
    ];
    let ended = home.trawl(&[&far[..], &["--expr", "sma(close, 5000)"]].concat()).expect_code(0);
    assert!(ended.stdout.contains("as a line: candles fit with --bars 286 or --size 1584x600"), "{}", ended.stdout);
    let expected = "'sma(close, 5000)' has no value and is left out: it needs 5 000 bars, and 'IBM' has 32";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    let svg = std::fs::read_to_string(home.path("far.svg")).expect("a file");
    assert!(svg.contains("width=\"800\" height=\"600\""), "the size asked for");
    assert!(texts(&svg).contains(&"close"));
    assert!(count(&svg, "rect") < 10, "no candles");
}

#[test]
fn an_oscillator_has_a_panel_of_its_own_even_where_a_split_makes_it_as_large_as_the_price() {
    let home = Home::new();
    let height = |name: &str, expression: &str| {
        let output = format!("{name}.svg");
        let chart = ["chart", "CHIPO", "--dataset", "demo", "--bars", "700", "--expr", expression, "--output", &output];
        home.trawl(&chart).expect_code(0);
        let svg = std::fs::read_to_string(home.path(&output)).expect("a file");
        svg.split("height=\"").nth(1).and_then(|rest| rest.split('"').next()).map(str::to_owned)
    };
    let (alone, over, below) = (height("a", "close > 1"), height("b", "sma(close, 50)"), height("c", "macd().line"));
    assert_eq!(alone, over);
    assert_ne!(alone, below);
}

#[test]
fn a_thin_symbol_has_as_many_bars_as_were_asked_for() {
    let home = Home::new();
    let mut bars = "symbol,date,close\n".to_owned();
    for day in 1..=28 {
        bars.push_str(&format!("AAA,2021-02-{day:02},{day}\n"));
        if day % 5 == 0 {
            bars.push_str(&format!("BBB,2021-02-{day:02},{day}\n"));
        }
    }
    home.write("bars.csv", &bars);
    home.trawl(&["import", "bars.csv", "--dataset", "thin", "--calendar", "24/7"]).expect_code(0);
    let ended = home.trawl(&["chart", "BBB", "--dataset", "thin", "--bars", "4"]).expect_code(0);
    assert!(ended.stdout.starts_with("wrote BBB.svg: 4 bars of BBB"), "{}", ended.stdout);
    // Its newest bar is three days older than the dataset's.
    let ended = home.trawl(&["chart", "BBB", "--dataset", "thin", "--bars", "2", "--output", "b.svg"]).expect_code(0);
    assert!(ended.stdout.starts_with("wrote b.svg: 2 bars of BBB"), "{}", ended.stdout);
}

#[test]
fn mistakes_have_their_place() {
    let home = Home::new();
    let mistakes: [(&[&str], &str); 10] = [
        (&["chart", "IBN", "--dataset", "us5"], "did you mean 'IBM'?"),
        (&["chart", "IBM", "--dataset", "us55"], "did you mean 'us5'?"),
        (&["chart", "IBM", "--dataset", "us5", "--expr", "close; clsoe"], "--expr[2]"),
        (&["chart", "IBM", "--dataset", "us5", "--output", "a.gif"], "end its name in .svg or .png"),
        (&["chart", "IBM", "--dataset", "us5", "--expr", "close", "--panel", "clsoe"], "--panel[1]"),
        (&["chart", "IBM", "--dataset", "us5", "--scan", "none.toml"], "cannot read 'none.toml'"),
        (&["chart"], "SYMBOL"),
        (&["chart", "IBM", "--dataset", "us5", "--expr", "seed111"], "a named set"),
        (&["chart", "IBM", "--dataset", "us5", "--as-of", "1900-01-01"], "no closed bar as of"),
        (&["chart", "IBM", "--dataset", "us5", "--size", "1x1"], "1400x900"),
    ];
    for (arguments, expected) in mistakes {
        let ended = home.trawl(arguments).expect_code(2);
        assert!(ended.stderr.contains(expected) && !ended.panicked(), "{arguments:?}: {}", ended.stderr);
    }
    assert!(!home.path("IBM.svg").exists(), "nothing was written");
}

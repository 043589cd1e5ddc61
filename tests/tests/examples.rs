//! Every document of examples/ runs on the bundled bars, and the README's scan finds what the README shows.

use trawl_tests::executable::repository;
use trawl_tests::home::Home;

fn answer(home: &Home, name: &str) -> serde_json::Value {
    serde_json::from_slice(&home.read(name)).expect("an answer is JSON")
}

#[test]
fn every_example_has_a_row_for_every_symbol() {
    let mut documents: Vec<_> = std::fs::read_dir(repository().join("examples"))
        .expect("examples/")
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .collect();
    documents.sort();
    assert!(documents.len() >= 15, "{documents:?}");
    for document in documents {
        let home = Home::new();
        let file = document.to_str().expect("a path");
        home.trawl(&["scan", "--file", file, "--output", "a.json"]).expect_code(0);
        let answer = answer(&home, "a.json");
        let symbols = match answer["identity"]["dataset"].as_str() {
            Some("us5") => 5,
            Some("demo-1m") => 60,
            _ => 61,
        };
        assert_eq!(answer["rows"].as_array().map(Vec::len), Some(symbols), "{file}");
        assert_eq!(answer["counts"]["symbols"], symbols, "{file}");
        assert_eq!(answer["counts"]["failed"], 0, "{file}");
    }
}

/// Scans that a trader would really want, each short enough to be read at a glance.
const WANTED: [&str; 12] = [
    "minervini",
    "squeeze-fired",
    "base-breakout",
    "rsi-divergence",
    "sector-leaders",
    "gap-and-go",
    "macd-timeframes",
    "nr7",
    "connors",
    "vwap-reclaim",
    "atr-percent",
    "pair-spread",
];

#[test]
fn scans_that_are_wanted_have_fewer_than_ten_lines() {
    for name in WANTED {
        let path = repository().join("examples").join(name).with_extension("toml");
        let lines = std::fs::read_to_string(&path).expect("an example").lines().count();
        assert!(lines < 10, "{name}: {lines} lines");
    }
}

/// A block of commands of a page, and what they print where the page shows it.
pub struct Shown {
    pub lines: Vec<String>,
    pub printed: Option<String>,
}

/// The blocks ```` ```sh ```` of a page. A block ```` ```text ```` right behind one is what its commands print.
pub fn shown(page: &str) -> Vec<Shown> {
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split_once("```"));
    let block = |(commands, rest): (&str, &str)| Shown {
        lines: commands.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect(),
        printed: rest
            .trim_start()
            .strip_prefix("```text\n")
            .and_then(|text| text.split_once("```"))
            .map(|(printed, _)| printed.to_owned()),
    };
    blocks.map(block).collect()
}

/// Without spaces at the ends of lines, which editors remove.
pub fn trimmed(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Runs the commands of a page in a fresh clone, those aside that other tests run or nothing here can (`elsewhere`, by
/// their beginnings), and compares what they print with what the page shows. `TRAWL_BLESS_PAGES=1` writes it there instead.
fn run_page(name: &str, elsewhere: &[&str]) -> (usize, String) {
    let home = Home::new();
    for name in ["examples", "market"] {
        std::os::unix::fs::symlink(repository().join(name), home.path(name)).expect("a link");
    }
    std::os::unix::fs::symlink(trawl_tests::executable::trawl(), home.path("trawl")).expect("a link");
    let mut page = std::fs::read_to_string(repository().join(name)).expect("a page");
    let (mut run, mut left, mut all) = (0, Vec::new(), String::new());
    for block in shown(&page) {
        let mut printed = String::new();
        for line in &block.lines {
            if elsewhere.iter().any(|begin| line.starts_with(begin)) {
                left.push(line.clone());
                continue;
            }
            let line = line.replace("cargo run --release -- ", "trawl ");
            let path = format!("{}:{}", home.path("").display(), std::env::var("PATH").unwrap_or_default());
            let mut shell = std::process::Command::new("sh");
            shell.env_clear().env("PATH", path).env("HOME", home.path("")).env("TRAWL_DATA_ROOT", home.data_root());
            shell.args(["-ec", &line]).current_dir(home.path(""));
            let ended = trawl_tests::process::run(&mut shell).expect_code(0);
            assert!(!ended.stderr.contains("error"), "{line}: {}", ended.stderr);
            printed.push_str(&ended.stdout);
            run += 1;
        }
        let Some(wanted) = &block.printed else { continue };
        let printed = trimmed(&printed);
        if std::env::var_os("TRAWL_BLESS_PAGES").is_some() {
            page = page.replacen(&format!("```text\n{wanted}```"), &format!("```text\n{printed}```"), 1);
        } else {
            assert!(*wanted == printed, "{name} shows of {:?}\n{wanted}\nbut it prints\n{printed}", block.lines);
        }
        all.push_str(&printed);
    }
    if std::env::var_os("TRAWL_BLESS_PAGES").is_some() {
        std::fs::write(repository().join(name), &page).expect("the page can be written");
    }
    assert_eq!(left.len(), elsewhere.len(), "{name}: {left:?}");
    (run, all)
}

#[test]
fn every_line_of_the_readme_runs_in_a_fresh_clone_and_prints_what_it_shows() {
    let (run, printed) = run_page("README.md", &[]);
    assert!(run >= 2, "{run}");
    // A match, one that does not match, one that is too short, and the values behind both.
    for shown in ["IBM      201.09", "3 not matched", "AAPL  not matched", "FB  unknown: too short", "what decided"] {
        assert!(printed.contains(shown), "the README shows no '{shown}'");
    }
    let lines = std::fs::read_to_string(repository().join("README.md")).expect("README.md").lines().count();
    assert!(lines < 120, "the README has {lines} lines");
}

#[test]
fn every_line_of_the_tour_runs_in_a_fresh_clone_and_prints_what_it_shows() {
    let elsewhere = ["tools/get-etcd", "trawl cluster up", "trawl demo", "trawl scan --coordinator"];
    let (run, printed) = run_page("docs/tour.md", &elsewhere);
    assert!(run > 15 && printed.contains("still there"), "{run}");
}

#[test]
fn every_line_of_the_page_of_panels_runs() {
    let (run, _) = run_page("docs/panel.md", &[]);
    assert_eq!(run, 4);
}

#[test]
fn the_first_command_of_the_readme_finds_ibm() {
    let home = Home::new();
    let condition = "within(crosses_above(sma(close,50), sma(close,200)), 3)";
    let scan = ["scan", "--dataset", "us5", "--as-of", "2013-02-22", "--where", condition];
    let shown = home.trawl(&scan).expect_code(0).stdout;
    assert!(shown.contains("IBM"), "{shown}");
    home.trawl(&[&scan[..], &["--output", "a.json"]].concat()).expect_code(0);
    let answer = answer(&home, "a.json");
    let rows = answer["rows"].as_array().expect("rows");
    let status: Vec<(&str, &str)> =
        rows.iter().map(|r| (r["symbol"].as_str().unwrap_or(""), r["status"].as_str().unwrap_or(""))).collect();
    assert_eq!(
        status,
        [
            ("IBM", "matched"),
            ("AAPL", "not_matched"),
            ("FB", "unknown"),
            ("GOOG", "not_matched"),
            ("MSFT", "not_matched")
        ]
    );
}

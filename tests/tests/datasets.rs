//! Import, synthetic markets, quarantine, and other tools that read the files.

use trawl_tests::home::Home;
use trawl_tests::process;

const GOOD: &str = "Date,Open,High,Low,Close,Volume,Adj Close\n\
                    2020-01-02,10,11,9,10.5,100,10.5\n\
                    2020-01-03,10.5,12,10,11.5,100,11.5\n\
                    2020-01-06,11.5,12,11,11.75,100,11.75\n";
/// Two good rows, and one of each kind of garbage.
const GARBAGE: &str = "Date,Open,High,Low,Close,Volume,Adj Close\n\
                       2020-01-02,10,11,9,10.5,100,10.5\n\
                       2020-01-03,10.5,9,10,11.5,100,11.5\n\
                       2020-01-06,11.5,12,11,-11.75,100,11.75\n\
                       not a date,11.5,12,11,11.75,100,11.75\n\
                       2020-01-07,abc,12,11,11.75,100,11.75\n\
                       2020-01-08\n\
                       2020-01-09,11.5,12,11,11.75,100,11.75\n\
                       2020-01-09,11.5,12,11,11.75,100,11.75\n";

fn files(folder: &std::path::Path, extensions: &[&str]) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| extensions.iter().any(|x| e == *x)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn imported_bars_are_scanned() {
    let home = Home::new();
    home.write("AAA.csv", GOOD);
    home.write("BBB.csv", &GOOD.replace("11.75,100", "11.25,100"));
    home.trawl(&["import", "AAA.csv", "BBB.csv", "--dataset", "mine"]).expect_code(0);
    let listed = home.trawl(&["datasets"]).expect_code(0).stdout;
    assert!(listed.contains("mine") && listed.contains("us5"), "{listed}");
    let inspected = home.trawl(&["inspect", "mine"]).expect_code(0).stdout;
    assert!(inspected.contains("AAA") && inspected.contains("BBB"), "{inspected}");
    home.trawl(&["inspect", "mine", "--verify"]).expect_code(0);
    home.trawl(&["scan", "--dataset", "mine", "--where", "close > 11.5", "--output", "out.csv"]).expect_code(0);
    let rows = String::from_utf8(home.read("out.csv")).expect("text");
    assert_eq!(
        rows,
        "time,place,symbol,status,edge,provisional,reason,close\n2020-01-06,1,AAA,matched,false,false,,11.75\n\
         2020-01-06,,BBB,not_matched,false,false,,\n"
    );
}

#[test]
fn a_directory_means_the_files_of_bars_in_it() {
    let home = Home::new();
    let folder = home.path("incoming");
    std::fs::create_dir_all(folder.join("older.csv")).expect("a folder");
    for (name, text) in [("BBB.csv", GOOD), ("AAA.csv", GOOD), ("CCC.CSV", GOOD), ("notes.txt", "not,a,bar\n")] {
        home.write(&format!("incoming/{name}"), text);
    }
    home.write("DDD.csv", GOOD);
    home.trawl(&["import", "incoming", "DDD.csv", "--dataset", "mine"]).expect_code(0);
    let inspected = home.trawl(&["inspect", "mine"]).expect_code(0).stdout;
    assert!(["AAA", "BBB", "CCC", "DDD"].iter().all(|symbol| inspected.contains(symbol)), "{inspected}");
    std::fs::create_dir_all(home.path("empty")).expect("a folder");
    let ended = home.trawl(&["import", "empty", "--dataset", "mine"]).expect_code(2);
    assert!(ended.stderr.contains("the directory 'empty' contains no file of bars"), "{}", ended.stderr);
}

#[test]
fn garbage_rows_are_quarantined_and_counted() {
    let home = Home::new();
    home.write("BAD.csv", GARBAGE);
    let ended = home.trawl(&["import", "BAD.csv", "--dataset", "bad"]).expect_code(0);
    let printed = format!("{}{}", ended.stdout, ended.stderr);
    assert!(printed.contains("read 8 rows") && printed.contains("put 6 bad rows into quarantine"), "{printed}");
    let quarantined: Vec<_> = files(&home.data_root(), &["csv"]);
    assert_eq!(quarantined.len(), 1, "{quarantined:?}");
    let kept = std::fs::read_to_string(&quarantined[0]).expect("text");
    assert!(kept.contains("not a date") && kept.contains("abc"), "{kept}");
    home.trawl(&["scan", "--dataset", "bad", "--where", "close > 0", "--output", "out.csv"]).expect_code(0);
    assert!(String::from_utf8(home.read("out.csv")).expect("text").contains("1,BAD,matched,false,false,,11.75"));
}

#[test]
fn a_file_without_any_good_row_creates_no_dataset() {
    let home = Home::new();
    home.write("BAD.csv", "Date,Open,High,Low,Close,Volume\nx,y,z,a,b,c\n");
    let ended = home.trawl(&["import", "BAD.csv", "--dataset", "bad"]);
    assert!(matches!(ended.code, Some(1 | 2)) && !ended.panicked(), "{ended:?}");
    let ended = home.trawl(&["scan", "--dataset", "bad", "--where", "close > 0"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
}

#[test]
fn the_same_input_is_the_same_snapshot() {
    let snapshot = |names: [&str; 2]| {
        let home = Home::new();
        home.write("AAA.csv", GOOD);
        home.write("BBB.csv", &GOOD.replace("11.75,100", "11.25,100"));
        home.trawl(&["import", names[0], names[1], "--dataset", "mine"]).expect_code(0);
        home.trawl(&["scan", "--dataset", "mine", "--where", "close > 11.5", "--output", "o.json"]).expect_code(0);
        let answer: serde_json::Value = serde_json::from_slice(&home.read("o.json")).expect("JSON");
        answer["identity"]["snapshot"].as_str().expect("a snapshot").to_owned()
    };
    assert_eq!(snapshot(["AAA.csv", "BBB.csv"]), snapshot(["BBB.csv", "AAA.csv"]));
}

#[test]
fn a_synthetic_market_is_marked_as_such_and_decided_by_its_seed() {
    let made = |seed: &str| {
        let home = Home::new();
        home.trawl(&["synth", "--symbols", "20", "--bars", "30", "--seed", seed, "--dataset", "m"]).expect_code(0);
        let scan = ["scan", "--dataset", "m", "--where", "close > 0", "--output", "o.csv"];
        let ended = home.trawl(&scan).expect_code(0);
        let printed = format!("{}{}", ended.stdout, ended.stderr).to_lowercase();
        assert!(printed.contains("synthetic"), "{printed}");
        home.read("o.csv")
    };
    assert_eq!(made("1"), made("1"));
    assert_ne!(made("1"), made("2"));
}

#[test]
fn another_tool_reads_datasets_and_answers() {
    let python = std::env::var_os("TRAWL_PYTHON")
        .map(std::path::PathBuf::from)
        .unwrap_or_else(|| trawl_tests::executable::repository().join("target/venv/bin/python"));
    assert!(python.is_file(), "no Python environment: run ./test, or tools/get-venv once");
    let home = Home::new();
    home.synth("market", 30, 40);
    let scan = ["scan", "--dataset", "market", "--where", "close > 0", "--select", "close"];
    for name in ["a.parquet", "a.arrow"] {
        home.trawl(&[&scan[..], &["--output", name]].concat()).expect_code(0);
    }
    let script = home.write(
        "read.py",
        "import sys, pathlib, pyarrow as pa, pyarrow.parquet as pq\n\
         def read(path):\n\
         \x20   if path.endswith('.parquet'): return pq.read_table(path)\n\
         \x20   return pa.ipc.open_file(path).read_all()\n\
         for path in sys.argv[1:]:\n\
         \x20   table = read(path)\n\
         \x20   keys = sorted(k.decode() for k in (table.schema.metadata or {}))\n\
         \x20   print(pathlib.Path(path).suffix, table.num_rows, 'close' in table.column_names, keys)\n",
    );
    let answers = process::run(std::process::Command::new(&python).args([
        &script,
        &home.path("a.parquet"),
        &home.path("a.arrow"),
    ]))
    .expect_code(0);
    for line in answers.stdout.lines() {
        assert!(line.contains(" 30 True") && line.contains("trawl.identity"), "{line}");
    }
    let groups = files(&home.data_root(), &["parquet", "arrow", "ipc"]);
    assert!(!groups.is_empty(), "a dataset holds Arrow or Parquet files");
    let bars = process::run(std::process::Command::new(&python).arg(&script).args(&groups)).expect_code(0);
    let rows: u64 = bars.stdout.lines().map(|l| l.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)).sum();
    assert!(rows > 0 && rows <= 30 * 40, "{}", bars.stdout);
}

#[test]
fn splits_names_and_labels_are_imported_and_reported() {
    let home = Home::new();
    home.write("AAA.csv", GOOD);
    home.write("splits.csv", "symbol,date,split,dividend\nAAA,2020-01-03,2,\nAAA,2020-01-06,,0.25\n");
    home.write("names.csv", "symbol,ticker,from,to,sector\nAAA,OLD,,2020-01-03,Tech\nAAA,AAA,2020-01-03,,Media\n");
    home.trawl(&["import", "AAA.csv", "--dataset", "mine"]).expect_code(0);
    let alone = ["import", "--dataset", "mine", "--factors", "splits.csv", "--symbols", "names.csv"];
    let printed = home.trawl(&alone).expect_code(0).stdout;
    assert!(printed.contains("calendar XNYS, complete to 2020-01-06T21:00:00Z"), "{printed}");
    assert!(printed.contains("symbol table of 2 rows, labels: sector"), "{printed}");
    assert!(printed.contains("2 rows of splits and dividends"), "{printed}");
    let inspected = home.trawl(&["inspect", "mine", "--verify"]).expect_code(0).stdout;
    for line in ["calendar     XNYS", "labels       sector", "complete to  2020-01-06T21:00:00Z", "verified: 4 files"] {
        assert!(inspected.contains(line), "{inspected}");
    }
    let listed = home.trawl(&["datasets"]).expect_code(0).stdout;
    assert!(listed.contains("labels sector") && listed.contains("2 factor rows"), "{listed}");
    // A mistake in a table is reported with its line, as the user's.
    home.write("splits.csv", "symbol,date,split\nAAA,2020-01-03,-2\n");
    let ended = home.trawl(&["import", "--dataset", "mine", "--factors", "splits.csv"]).expect_code(2);
    assert!(ended.stderr.contains("splits.csv: line 2: a split of -2"), "{}", ended.stderr);
}

#[test]
fn a_forming_bar_waits_until_it_is_closed() {
    let home = Home::new();
    home.write("AAA.csv", GOOD);
    home.trawl(&["import", "AAA.csv", "--dataset", "mine", "--complete-to", "2020-01-06 11:00"]).expect_code(0);
    let scanned = |more: &[&str]| {
        let scan = ["scan", "--dataset", "mine", "--where", "close > 0", "--output", "out.csv"];
        home.trawl(&[&scan[..], more].concat()).expect_code(0);
        String::from_utf8(home.read("out.csv")).expect("text")
    };
    let close = || scanned(&[]);
    assert!(close().contains("matched,false,false,,11.5\n"), "{}", close());
    let provisional = scanned(&["--forming"]);
    assert!(provisional.contains("matched,false,true,,11.75\n"), "{provisional}");
    home.trawl(&["import", "--dataset", "mine", "--complete-to", "2020-01-06 16:00"]).expect_code(0);
    assert!(close().contains("matched,false,false,,11.75\n"), "{}", close());
}

#[test]
fn demo_is_listed_as_synthetic_and_cannot_be_imported_into() {
    let home = Home::new();
    let listed = home.trawl(&["datasets"]).expect_code(0).stdout;
    let demo = |line: &&str| line.contains("demo") && line.contains("SYNTHETIC");
    assert_eq!(listed.lines().filter(demo).count(), 2, "{listed}");
    home.write("AAA.csv", GOOD);
    for name in ["demo", "demo-1m"] {
        let ended = home.trawl(&["import", "AAA.csv", "--dataset", name]).expect_code(2);
        assert!(ended.stderr.contains("bundled"), "{}", ended.stderr);
        home.trawl(&["synth", "--symbols", "2", "--bars", "2", "--dataset", name]).expect_code(2);
    }
}

#[test]
fn the_answers_of_every_bar_end_with_the_answer_of_the_last() {
    let home = Home::new();
    let scan = [
        "scan",
        "--dataset",
        "demo",
        "--where",
        "xs_pct(close) > 0.9 or tf('1w', rsi(close, 5)) > 60",
        "--rank",
        "close",
    ];
    home.trawl(&[&scan[..], &["--output", "last.csv"]].concat()).expect_code(0);
    let shown = home.trawl(&[&scan[..], &["--all-bars", "all.csv"]].concat()).expect_code(0).stdout;
    assert!(shown.contains("SYNTHETIC") && shown.contains("989 bars"), "{shown}");
    let text = |name: &str| String::from_utf8(home.read(name)).expect("text");
    let (last, all) = (text("last.csv"), text("all.csv"));
    assert_eq!(all.lines().next(), Some("time,place,symbol,status,edge,provisional,reason,close"));
    let of_last: Vec<&str> = all.lines().filter(|line| line.starts_with("2024-12-06,")).collect();
    assert_eq!(of_last, last.lines().skip(1).collect::<Vec<_>>());
    // The same rows as JSON lines.
    home.trawl(&[&scan[..], &["--output", "last.jsonl"]].concat()).expect_code(0);
    home.trawl(&[&scan[..], &["--all-bars", "all.jsonl"]].concat()).expect_code(0);
    let (last_lines, all_lines) = (text("last.jsonl"), text("all.jsonl"));
    assert_eq!((last_lines.lines().count(), all_lines.lines().count()), (of_last.len(), all.lines().count() - 1));
    let of_last = all_lines.lines().filter(|line| line.starts_with("{\"time\":\"2024-12-06\","));
    assert!(of_last.eq(last_lines.lines()));
    for format in ["parquet", "arrow"] {
        let name = format!("all.{format}");
        home.trawl(&[&scan[..], &["--all-bars", &name]].concat()).expect_code(0);
        assert!(home.read(&name).len() > 100_000, "{name}");
    }
    home.trawl(&[&scan[..], &["--all-bars", "all.csv", "--history", "50"]].concat()).expect_code(2);
}

#[test]
fn a_sweep_answers_once_for_every_combination() {
    let home = Home::new();
    let scan = ["scan", "--dataset", "demo", "--where", "xs_rank(close) <= n", "--sweep", "n=1:3", "--output", "a.csv"];
    let shown = home.trawl(&scan).expect_code(0).stdout;
    assert!(shown.contains(" n   matched\n"), "{shown}");
    let text = String::from_utf8(home.read("a.csv")).expect("text");
    assert!(text.starts_with("time,n,place,symbol,status,"), "{text}");
    assert_eq!(text.lines().count(), 1 + 3 * 61);
    assert_eq!(text.lines().filter(|l| l.contains(",matched,")).count(), 1 + 2 + 3);
    home.trawl(&["scan", "--dataset", "demo", "--where", "close > n", "--sweep", "n=3:1"]).expect_code(2);
    let report = [
        "scan",
        "--dataset",
        "demo",
        "--where",
        "close > sma(n) * f",
        "--sweep",
        "n=5,9",
        "--sweep",
        "f=1:3",
        "--report",
        "r.json",
    ];
    home.trawl(&report).expect_code(0);
    let report: serde_json::Value = serde_json::from_slice(&home.read("r.json")).expect("JSON");
    let shared = &report["sharing"];
    assert_eq!(
        (&shared["combinations"], &shared["averages"], &shared["averages_computed"]),
        (&6.into(), &6.into(), &2.into())
    );
    home.trawl(&["scan", "--dataset", "demo", "--where", "close > n", "--sweep", "n"]).expect_code(2);
}

#[test]
fn a_ticker_that_passed_to_another_symbol_is_refused_at_every_bar_and_read_at_one() {
    let home = Home::new();
    let rows = |symbol: &str, close: u32| {
        (2..8)
            .filter(|day| ![4, 5].contains(day))
            .map(|d| format!("{symbol},2020-01-0{d},{close}\n"))
            .collect::<String>()
    };
    home.write("bars.csv", &format!("symbol,date,close\n{}{}", rows("AAA", 10), rows("BBB", 20)));
    home.write("names.csv", "symbol,ticker,from,to\nAAA,NEW,,2020-01-06\nAAA,OLD,2020-01-06,\nBBB,NEW,2020-01-06,\n");
    home.trawl(&["data", "import", "bars.csv", "-d", "mine", "--symbols", "names.csv"]).expect_code(0);
    let scan = ["scan", "-d", "mine", "--where", "close < ref('NEW', close)", "--select", "ref('NEW', close) as c"];
    let at = |date: &str| home.trawl(&[&scan[..], &["--as-of", date, "-o", "-"]].concat()).expect_code(0).stdout;
    assert!(!at("2020-01-03").contains("1,AAA,matched"), "{}", at("2020-01-03"));
    assert!(at("2020-01-07").contains("1,AAA,matched"), "{}", at("2020-01-07"));
    let refused = home.trawl(&[&scan[..], &["--all-bars", "all.csv"]].concat()).expect_code(2).stderr;
    assert!(refused.contains("'NEW' is the ticker of AAA and of BBB at different times"), "{refused}");
    // Over bars at which it means one symbol, nothing is refused.
    home.trawl(&[&scan[..], &["--as-of", "2020-01-03", "--all-bars", "all.csv"]].concat()).expect_code(0);
}

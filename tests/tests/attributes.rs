//! Attributes of symbols: imported, known from their date on, used in every clause, kept by what rewrites a dataset.

use trawl_security::{ClientSecurity, Role};
use trawl_tests::cluster::{Cluster, block_on, channel_to};
use trawl_tests::home::Home;
use trawl_wire::limits::PROTOCOL_VERSION;
use trawl_wire::pb::ScanRequest;
use trawl_wire::pb::coordinator_client::CoordinatorClient;

const BARS: &str = "symbol,date,close\nAAA,2024-06-03,10\nAAA,2024-06-04,11\nAAA,2024-06-05,12\nBBB,2024-06-03,20\nBBB,2024-06-04,21\n\
                    BBB,2024-06-05,22\nCCC,2024-06-03,30\nCCC,2024-06-04,31\nCCC,2024-06-05,32\n";
const FIRST: &str = "symbol,date,cap,earnings\nAAA,2024-06-01,100,2024-06-10\nBBB,2024-06-04,300,2024-06-07\n";
const SECOND: &str = "symbol,date,cap,earnings\nAAA,2024-06-05,,2024-09-10\nBBB,2024-06-05,50,\n";

fn market(home: &Home) {
    home.write("bars.csv", BARS);
    home.write("first.csv", FIRST);
    home.write("second.csv", SECOND);
    let import = ["import", "bars.csv", "--dataset", "m", "--attributes", "first.csv"];
    let imported = home.trawl(&import).expect_code(0);
    assert!(imported.stdout.contains("attributes: cap, earnings"), "{}", imported.stdout);
    home.trawl(&["import", "--dataset", "m", "--attributes", "second.csv"]).expect_code(0);
}

/// The answer of a scan as CSV, without its metadata.
fn answer(home: &Home, more: &[&str]) -> String {
    let scan =
        ["scan", "--dataset", "m", "--output", "answer.csv", "--select", "cap", "--select", "days_to(earnings) as to"];
    home.trawl(&[&scan[..], more].concat()).expect_code(0);
    String::from_utf8(home.read("answer.csv")).expect("text")
}

fn has(text: &str, symbol: &str, status: &str, values: &str) {
    let row = text.lines().find(|line| line.contains(symbol)).unwrap_or_default();
    assert!(row.contains(status) && row.ends_with(values), "{symbol} {status} {values}: {text}");
}

#[test]
fn a_scan_knows_the_attributes_of_its_as_of() {
    let home = Home::new();
    market(&home);
    let newest = answer(&home, &["--where", "cap > 0"]);
    has(&newest, "AAA", "matched", ",100,97");
    has(&newest, "BBB", "matched", ",50,2");
    has(&newest, "CCC", "unknown", ",,");
    let before = answer(&home, &["--where", "cap > 0", "--as-of", "2024-06-04"]);
    has(&before, "AAA", "matched", ",100,6");
    has(&before, "BBB", "matched", ",300,3");
    let first = answer(&home, &["--where", "cap > 0", "--as-of", "2024-06-03"]);
    has(&first, "BBB", "unknown", ",,");
    // At every bar what was known then, in any clause; a reference has its own.
    let clauses = [
        "--where",
        "xs_rank(cap) == 1 and days_since(earnings) < 0 and ref('AAA', cap) == 100",
        "--rank",
        "cap",
        "--all-bars",
        "all.csv",
    ];
    home.trawl(&[&["scan", "--dataset", "m"], &clauses[..]].concat()).expect_code(0);
    let all = String::from_utf8(home.read("all.csv")).expect("text");
    for (day, symbol) in [("2024-06-03", "AAA"), ("2024-06-04", "BBB"), ("2024-06-05", "AAA")] {
        let matched: Vec<&str> =
            all.lines().filter(|line| line.starts_with(day) && line.contains(",matched")).collect();
        assert!(matched.len() == 1 && matched[0].contains(symbol), "{day}: {all}");
    }
}

#[test]
fn labels_and_dates_are_columns_of_their_own_kinds_in_every_output_and_in_a_cluster() {
    let home = Home::new();
    market(&home);
    home.write("symbols.csv", "symbol,from,to,sector\nAAA,,2024-06-05,Tech\nAAA,2024-06-05,,Banks\nBBB,,,Energy\n");
    home.trawl(&["import", "--dataset", "m", "--symbols", "symbols.csv"]).expect_code(0);
    let scan = ["scan", "--dataset", "m", "--where", "true", "--quiet"];
    let select = ["--select", "sector", "--select", "earnings as next", "--select", "close"];
    let run = |more: &[&str]| home.trawl(&[&scan[..], &select, more].concat()).expect_code(0).stdout;
    let csv = run(&["--output", "-"]);
    has(&csv, "AAA", "matched", ",Banks,2024-09-10,12");
    has(&csv, "BBB", "matched", ",Energy,2024-06-07,22");
    has(&csv, "CCC", "matched", ",,,32");
    let lines = run(&["--output", "-", "--format", "ndjson"]);
    let rows: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).expect("a row")).collect();
    assert_eq!(rows[0]["sector"], "Banks");
    assert_eq!(rows[0]["next"], "2024-09-10");
    assert!(rows[2]["sector"].is_null() && rows[2]["next"].is_null(), "{lines}");
    let table = home.trawl(&[&scan[..5], &select].concat()).expect_code(0).stdout;
    assert!(table.contains("Energy") && table.contains("2024-09-10"), "{table}");
    // As known at each bar.
    let all = run(&["--all-bars", "-"]);
    for (begin, end) in [("2024-06-03,1,AAA,", ",Tech,2024-06-10,10"), ("2024-06-05,1,AAA,", ",Banks,2024-09-10,12")] {
        assert!(all.lines().any(|line| line.starts_with(begin) && line.ends_with(end)), "{begin}: {all}");
    }
    for name in ["a.parquet", "a.arrow", "a.json"] {
        run(&["--output", name]);
        home.write("a.csv", &csv);
        // Texts and dates are read and not compared.
        let same = home.trawl(&["diff", name, name]).expect_code(0).stdout;
        assert!(same.contains("0 entered, 0 left, 3 still there"), "{same}");
        run(&["--all-bars", &format!("all-{name}")]);
    }
    let panel = ["panel", "--dataset", "m", "--where", "true", "--output", "-"];
    let panel = home.trawl(&[&panel[..], &select].concat()).expect_code(0).stdout;
    assert!(panel.contains("2024-06-03,AAA,Tech,2024-06-10,10,true"), "{panel}");
    let refused = home.trawl(&[&scan[..], &["--rank", "symbol"]].concat()).expect_code(2).stderr;
    assert!(refused.contains("equal ranks are ordered by it") && refused.contains("rank"), "{refused}");
    // The same bytes from several groups, whoever computes them.
    let more = (0..140).map(|n| format!("{}{n:03},2024-06-05,{n}\n", if n % 2 == 0 { "AB" } else { "BC" }));
    home.write("more.csv", &format!("symbol,date,close\n{}", more.collect::<String>()));
    home.trawl(&["import", "more.csv", "--dataset", "m"]).expect_code(0);
    let labels = (0..140).filter(|n| n % 3 > 0).map(|n| {
        format!("{}{n:03},,,{}\n", if n % 2 == 0 { "AB" } else { "BC" }, ["Tech", "Energy", "Air", "Banks"][n % 4])
    });
    let labels = format!("symbol,from,to,sector\n{}BBB,,,Energy\n", labels.collect::<String>());
    home.write("symbols.csv", &labels);
    home.trawl(&["import", "--dataset", "m", "--symbols", "symbols.csv"]).expect_code(0);
    let csv = run(&["--output", "-"]);
    has(&csv, "AB002", "matched", ",Air,,2");
    has(&csv, "BC139", "matched", ",Banks,,139");
    let cluster = Cluster::start(&home, 3);
    let there = ["--output", "-", "--coordinator", &cluster.url];
    assert_eq!(run(&there), csv);
    let ranked = ["--output", "-", "--rank", "sector desc, earnings"];
    assert_eq!(run(&[&ranked[..], &there[2..]].concat()), run(&ranked));
    assert_eq!(run(&[&there[..], &["--shards", "per-group", "--fresh"]].concat()), csv);
    // A client that would show places and days as numbers gets a reason instead.
    let refusal = |kinds, select: &str| {
        let request = ScanRequest {
            protocol_version: PROTOCOL_VERSION,
            document_json: format!(r#"{{"dataset":"m","where":"true","select":["{select}"]}}"#),
            columns: true,
            kinds,
            ..ScanRequest::default()
        };
        block_on(async {
            let channel = channel_to(&cluster.url, &ClientSecurity::default(), Role::Coordinator);
            let mut events = CoordinatorClient::new(channel).scan(request).await?.into_inner();
            while events.message().await?.is_some() {}
            Ok::<_, tonic::Status>(())
        })
    };
    for select in ["sector", "earnings"] {
        let refused = refusal(false, select).expect_err("it is refused");
        assert!(refused.message().contains("columns of labels or dates"), "{refused}");
        refusal(true, select).expect("an answer");
    }
    refusal(false, "close").expect("an answer");
}

#[test]
fn labels_and_dates_order_the_matches_and_a_quote_in_a_label_is_doubled() {
    let home = Home::new();
    market(&home);
    home.write("labels.csv", "symbol,sector\nAAA,Tech\nBBB,O'Reilly\nCCC,Energy\n");
    home.trawl(&["import", "--dataset", "m", "--symbols", "labels.csv"]).expect_code(0);
    let order = |rank: &str| {
        let text = answer(&home, &["--where", "close > 0", "--rank", rank]);
        let symbols = text.lines().skip(1).filter_map(|line| line.split(',').nth(2)).collect::<Vec<_>>();
        symbols.join(" ")
    };
    assert_eq!(order("sector asc"), "CCC BBB AAA");
    assert_eq!(order("sector desc"), "AAA BBB CCC");
    // CCC has no earnings: last in both.
    assert_eq!(order("earnings asc, close"), "BBB AAA CCC");
    assert_eq!(order("earnings desc, close"), "AAA BBB CCC");
    let quoted = answer(&home, &["--where", "sector == 'O''Reilly' or sector in ('Energy')"]);
    has(&quoted, "BBB", ",matched,", ",50,2");
    has(&quoted, "CCC", ",matched,", ",,");
    let misspelt = home.trawl(&["scan", "--dataset", "m", "--where", "sector == 'O''Reily'"]).expect_code(2);
    assert!(misspelt.stderr.contains("did you mean 'O''Reilly'?"), "{}", misspelt.stderr);
    let symbol = home.trawl(&["scan", "--dataset", "m", "--where", "close > 0", "--select", "symbol"]).expect_code(2);
    assert!(symbol.stderr.contains("answers have a column 'symbol'"), "{}", symbol.stderr);
}

#[test]
fn attributes_outlive_imports_and_compaction() {
    let home = Home::new();
    market(&home);
    let known = answer(&home, &["--where", "cap > 0"]);
    home.write("more.csv", "symbol,date,close\nAAA,2024-06-06,13\nBBB,2024-06-06,23\nCCC,2024-06-06,33\n");
    home.trawl(&["import", "more.csv", "--dataset", "m"]).expect_code(0);
    home.trawl(&["data", "compact", "m"]).expect_code(0);
    let verified = home.trawl(&["data", "inspect", "m", "--verify"]).expect_code(0);
    assert!(verified.stdout.contains("cap, earnings (4 rows)"), "{}", verified.stdout);
    let again = answer(&home, &["--where", "cap > 0", "--as-of", "2024-06-05"]);
    assert_eq!(again, known);
}

#[test]
fn mistakes_say_what_is_there() {
    let home = Home::new();
    market(&home);
    for (condition, expected) in [
        ("earnings > 5", "write days_to(earnings) or days_since(earnings)"),
        ("days_to(cap) > 5", "attributes of dates: earnings"),
        ("captial > 5", "attributes: cap, earnings"),
        ("cap == 'large'", "is no series"),
    ] {
        let refused = home.trawl(&["scan", "--dataset", "m", "--where", condition]).expect_code(2);
        assert!(refused.stderr.contains(expected), "{condition}: {}", refused.stderr);
    }
    home.write("texts.csv", "symbol,date,sector\nAAA,2024-06-03,Tech\n");
    let refused = home.trawl(&["import", "--dataset", "m", "--attributes", "texts.csv"]).expect_code(2);
    assert!(refused.stderr.contains("texts are labels, which --symbols reads"), "{}", refused.stderr);
    home.write("taken.csv", "symbol,date,close\nAAA,2024-06-03,5\n");
    let refused = home.trawl(&["import", "--dataset", "m", "--attributes", "taken.csv"]).expect_code(2);
    assert!(refused.stderr.contains("attribute 'close' has the name of a column"), "{}", refused.stderr);
}

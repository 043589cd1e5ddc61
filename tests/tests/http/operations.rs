//! Each operation by the command line and by HTTP, from one table: the same bytes, or the same JSON.

use arrow_array::cast::AsArray as _;
use arrow_array::types::Float32Type;
use arrow_ipc::reader::{FileReader, StreamReader};
use serde_json::{Value, json};
use trawl_tests::cluster::{Cluster, Options};
use trawl_tests::etcd;
use trawl_tests::executable::repository;
use trawl_tests::home::Home;
use trawl_tests::http::{JSON, Reply, Server, request};

use super::{CONDITION, market, scan};
use crate::examples::{shown, trimmed};

/// How two doors are compared.
#[derive(Debug, Clone, Copy)]
enum Same {
    /// Byte for byte.
    Bytes,
    /// As JSON.
    Json,
    /// The command prints a line for each object, the reply has a list under this key.
    Lines(&'static str),
    /// A file of Arrow and a stream of it: the same schema, metadata and rows.
    Arrow,
    /// The first so many columns of the CSV that the command prints.
    FirstColumns(usize),
    /// The command writes a folder of tensors, the reply is a stream of windows: the same numbers.
    Tensors,
    /// Every word of this reply's field is in the command's text.
    Says(&'static [&'static str]),
}

/// One operation, by both doors.
struct Operation {
    name: &'static str,
    /// Arguments of the command, some with `|` between them; it prints to standard output, or writes `file`.
    command: &'static [&'static str],
    /// What the command writes.
    file: Option<&'static str>,
    method: &'static str,
    path: &'static str,
    accept: &'static str,
    body: fn() -> Value,
    same: Same,
    /// Whether the command takes `--coordinator`.
    remote: bool,
}

fn none() -> Value {
    Value::Null
}

fn explain() -> Value {
    json!({ "document": scan()["document"] })
}

fn why() -> Value {
    json!({ "document": scan()["document"], "symbols": ["SYN00001", "SYN00007"] })
}

fn near() -> Value {
    json!({ "document": scan()["document"], "most": 1 })
}

const SELECT: [&str; 4] = ["--select", "close", "--select", "rsi(close, 14) as rsi"];

const fn answer(name: &'static str, format: &'static str, accept: &'static str, same: Same) -> Operation {
    let command: &[&str] = match format.as_bytes() {
        b"csv" => &["scan", "--quiet", "--output", "-", "--format", "csv"],
        b"json" => &["scan", "--quiet", "--output", "-", "--format", "json"],
        b"ndjson" => &["scan", "--quiet", "--output", "-", "--format", "ndjson"],
        b"parquet" => &["scan", "--quiet", "--output", "-", "--format", "parquet"],
        _ => &["scan", "--quiet", "--output", "-", "--format", "arrow"],
    };
    Operation { name, command, method: "POST", path: "/v1/answers", accept, body: scan, same, remote: true, file: None }
}

const fn get(name: &'static str, command: &'static [&'static str], path: &'static str, same: Same) -> Operation {
    Operation { name, command, method: "GET", path, accept: "", body: none, same, remote: false, file: None }
}

/// Where panels and signals begin: some months before the market's last bar.
const FROM: &str = "2007-05-01";

fn span() -> Value {
    json!({ "document": scan()["document"], "from": FROM, "to": "2007-08-24" })
}

fn panel() -> Value {
    let mut body = span();
    for (key, value) in [("forward", json!([5, 1])), ("split", json!("2007-07-02")), ("embargo", json!(2))] {
        body[key] = value;
    }
    body
}

fn scaled_panel() -> Value {
    let mut body = panel();
    (body["scale"], body["matches_only"]) = (json!(true), json!(true));
    body
}

fn folds() -> Value {
    let mut body = span();
    (body["folds"], body["forward"]) = (json!(3), json!([2]));
    body
}

fn tensors() -> Value {
    let mut body = panel();
    body["window"] = json!(4);
    body
}

fn matches() -> Value {
    let mut body = span();
    body["wide"] = json!(false);
    let _ = body["document"].as_object_mut().map(|document| document.remove("select"));
    body
}

fn study() -> Value {
    let mut body = span();
    (body["horizons"], body["by"]) = (json!([1, 5]), json!("month"));
    body
}

fn chart() -> Value {
    let exprs = ["sma(close, 20)", "rsi(close, 14) as rsi"];
    json!({
        "dataset": "market", "symbol": "SYN00003", "exprs": exprs, "panel": ["roc(10)"], "overlay": ["highest(high, 20)"],
        "bars": 120, "size": [900, 700], "as_of": "2007-08-24", "adjust": "split",
    })
}

/// A question about history or a picture: the command and the file that it writes, the path and the format, the body.
const fn question(
    name: &'static str,
    command: &'static [&'static str],
    file: Option<&'static str>,
    (path, accept): (&'static str, &'static str),
    body: fn() -> Value,
    same: Same,
) -> Operation {
    Operation { name, command, method: "POST", path, accept, body, same, remote: false, file }
}

const CSV: &str = "text/csv";
const ARROW: &str = "application/vnd.apache.arrow.stream";
const PARQUET: &str = "application/vnd.apache.parquet";
const LABELLED: &str = "panel|--quiet|--from|2007-05-01|--to|2007-08-24|--forward|1,5|--split|2007-07-02|--embargo|2";
const SPAN: &str = "panel|--quiet|--from|2007-05-01|--to|2007-08-24";
const DRAWN: &str = "chart|SYN00003|--dataset|market|--expr|sma(close, 20)|--expr|rsi(close, 14) as rsi|--panel|roc(10)|--overlay|\
                     highest(high, 20)|--bars|120|--size|900x700|--as-of|2007-08-24|--adjust|split|--output";

/// Questions about history, and pictures.
const HISTORY: [Operation; 11] = [
    question("panel as CSV", &[LABELLED, "--output|-|--format|csv"], None, ("/v1/panel", CSV), panel, Same::Bytes),
    question(
        "panel as Arrow",
        &[LABELLED, "--output|-|--format|arrow"],
        None,
        ("/v1/panel", ARROW),
        panel,
        Same::Arrow,
    ),
    question(
        "panel as Parquet",
        &[LABELLED, "--output|-|--format|parquet"],
        None,
        ("/v1/panel", PARQUET),
        panel,
        Same::Bytes,
    ),
    question(
        "scaled matches",
        &[LABELLED, "--matches-only|--scaler|scaler.json|--output|-|--format|csv"],
        None,
        ("/v1/panel", CSV),
        scaled_panel,
        Same::Bytes,
    ),
    question(
        "folds",
        &[SPAN, "--folds|3|--forward|2|--output|-|--format|csv"],
        None,
        ("/v1/panel", CSV),
        folds,
        Same::Bytes,
    ),
    question(
        "signals",
        &[SPAN, "--wide|--output|wide.csv"],
        Some("wide.matched.csv"),
        ("/v1/signals", CSV),
        span,
        Same::Bytes,
    ),
    question(
        "matches",
        &[SPAN, "--matches-only|--output|-|--format|csv"],
        None,
        ("/v1/signals", CSV),
        matches,
        Same::FirstColumns(2),
    ),
    question(
        "features",
        &[LABELLED, "--window|4|--tensors|tensors"],
        Some("tensors/features.npy"),
        ("/v1/features", ARROW),
        tensors,
        Same::Tensors,
    ),
    question(
        "study",
        &["study|--from|2007-05-01|--as-of|2007-08-24|--horizons|1,5|--by|month|--json"],
        None,
        ("/v1/study", ""),
        study,
        Same::Json,
    ),
    question(
        "chart as SVG",
        &[DRAWN, "chart.svg"],
        Some("chart.svg"),
        ("/v1/chart", "image/svg+xml"),
        chart,
        Same::Bytes,
    ),
    question("chart as PNG", &[DRAWN, "chart.png"], Some("chart.png"), ("/v1/chart", "image/png"), chart, Same::Bytes),
];

/// The operations. Of another door only the function that asks it is needed.
const OPERATIONS: [Operation; 15] = [
    answer("answer as CSV", "csv", "text/csv", Same::Bytes),
    answer("answer as JSON", "json", "application/json", Same::Bytes),
    answer("answer as JSON lines", "ndjson", "application/x-ndjson", Same::Bytes),
    answer("answer as Parquet", "parquet", "application/vnd.apache.parquet", Same::Bytes),
    answer("answer as Arrow", "arrow", "application/vnd.apache.arrow.stream", Same::Arrow),
    Operation {
        name: "why",
        command: &["scan", "--why", "SYN00001,SYN00007", "--json"],
        method: "POST",
        path: "/v1/why",
        accept: "",
        body: why,
        same: Same::Json,
        remote: false,
        file: None,
    },
    Operation {
        name: "near",
        command: &["scan", "--near", "1", "--json"],
        method: "POST",
        path: "/v1/near",
        accept: "",
        body: near,
        same: Same::Json,
        remote: false,
        file: None,
    },
    Operation {
        name: "explain",
        command: &["scan", "--explain"],
        method: "POST",
        path: "/v1/explain",
        accept: "",
        body: explain,
        same: Same::Says(&["dataset", "as_of", "precision"]),
        remote: false,
        file: None,
    },
    get("indicators", &["indicators", "--json"], "/v1/indicators", Same::Json),
    get("an indicator", &["indicators", "macd", "--json"], "/v1/indicators/MACD", Same::Json),
    get("datasets", &["data", "list", "--json"], "/v1/datasets", Same::Json),
    get("a dataset", &["data", "inspect", "market", "--json"], "/v1/datasets/market", Same::Json),
    get("every symbol", &["data", "inspect", "market", "--json", "--all"], "/v1/datasets/market?all=true", Same::Json),
    get(
        "a symbol",
        &["data", "inspect", "market", "--json", "--symbol", "SYN00001"],
        "/v1/datasets/market?symbol=SYN00001",
        Same::Json,
    ),
    get(
        "coverage",
        &["data", "inspect", "market", "--json", "--quality"],
        "/v1/datasets/market/coverage",
        Same::Lines(""),
    ),
];

impl Operation {
    /// What the command prints, or writes.
    fn by_command(&self, home: &Home, coordinator: Option<&str>) -> Vec<u8> {
        let given: Vec<&str> = self.command.iter().flat_map(|words| words.split('|')).collect();
        let mut command = home.command(&given);
        if matches!(given[0], "scan" | "panel" | "study") {
            command.args(["--dataset", "market", "--where", CONDITION]);
        }
        if given[0] == "scan" || (given[0] == "panel" && self.name != "matches") {
            command.args(SELECT);
        }
        if let Some(url) = coordinator.filter(|_| self.remote) {
            command.args(["--coordinator", url]);
        }
        let printed = command.output().expect("the command runs");
        assert!(printed.status.success(), "{}: {}", self.name, String::from_utf8_lossy(&printed.stderr));
        match self.file {
            Some(name) => std::fs::read(home.path(name)).expect("the command writes it"),
            None => printed.stdout,
        }
    }

    fn by_http(&self, address: &str) -> Reply {
        let body = (self.body)();
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let mut headers = Vec::new();
        headers.extend((!self.accept.is_empty()).then_some(("Accept", self.accept)));
        headers.extend((self.method == "POST").then_some(JSON));
        request(address, self.method, self.path, &headers, &body).expect(200)
    }

    #[track_caller]
    fn compare(&self, printed: &[u8], reply: &Reply) {
        let parsed = |bytes: &[u8]| -> Value { serde_json::from_slice(bytes).expect("JSON") };
        let name = self.name;
        match self.same {
            Same::Bytes => assert!(printed == reply.body, "{name}: {}", reply.text()),
            Same::Json => assert_eq!(parsed(printed), reply.json(), "{name}"),
            Same::Lines("") => assert_eq!(parsed(printed)["quality"]["days"], reply.json()["days"], "{name}"),
            Same::Lines(key) => {
                let text = String::from_utf8_lossy(printed);
                let lines: Vec<Value> = text.lines().map(|line| parsed(line.as_bytes())).collect();
                assert_eq!(Value::from(lines), reply.json()[key], "{name}");
            }
            Same::Arrow => {
                let file = FileReader::try_new(std::io::Cursor::new(printed), None).expect("a file of Arrow");
                let stream = StreamReader::try_new(&reply.body[..], None).expect("a stream of Arrow");
                assert_eq!(file.schema(), stream.schema(), "{name}");
                let rows = |batches: Vec<_>| batches.into_iter().map(Result::unwrap).collect::<Vec<_>>();
                assert_eq!(rows(file.collect()), rows(stream.collect()), "{name}");
            }
            Same::FirstColumns(count) => {
                let first = |line: &str| line.split(',').take(count).collect::<Vec<_>>().join(",") + "\n";
                let text = String::from_utf8_lossy(printed).lines().map(first).collect::<String>();
                assert!(text == reply.text() && text.lines().count() > 1000, "{name}");
            }
            Same::Tensors => {
                let stream = StreamReader::try_new(&reply.body[..], None).expect("a stream of Arrow");
                let mut bytes = Vec::new();
                for batch in stream {
                    let batch = batch.expect("a batch");
                    let windows = batch.column_by_name("features").expect("a column").as_fixed_size_list().values();
                    let values = windows.as_fixed_size_list().values().as_primitive::<Float32Type>();
                    bytes.extend(values.iter().flat_map(|value| value.unwrap_or(0.0).to_le_bytes()));
                }
                assert!(bytes.len() > 100_000 && printed.ends_with(&bytes), "{name}: {} bytes", bytes.len());
                assert_eq!(printed.len() - bytes.len(), 192, "{name}: what is in front is the header alone");
            }
            Same::Says(fields) => {
                let (text, reply) = (String::from_utf8_lossy(printed), reply.json());
                for field in fields {
                    let value = reply[field].as_str().unwrap_or_else(|| panic!("{name}: no {field} in {reply}"));
                    assert!(text.contains(value), "{name}: {field} is '{value}'\n{text}");
                }
                let plan = reply["plan"].as_str().and_then(|plan| plan.get(..12)).expect("a plan");
                assert!(text.contains(plan), "{name}: {plan}\n{text}");
            }
        }
    }
}

#[test]
fn each_operation_is_the_same_by_command_line_and_by_trawl_serve() {
    let home = market();
    let server = Server::start(&home, &[]);
    for operation in OPERATIONS.iter().chain(&HISTORY) {
        operation.compare(&operation.by_command(&home, None), &operation.by_http(&server.address));
    }
    // What the command line warns of, and of what the table is.
    let mut limited = span();
    limited["document"]["limit"] = json!(3);
    let reply = server.post("/v1/signals", &limited).expect(200);
    assert!(reply.headers["trawl-warnings"].contains("the scan's limit is not used"), "{:?}", reply.headers);
    let identity: Value = serde_json::from_str(&reply.headers["trawl-identity"]).expect("JSON");
    assert_eq!((&identity["dataset"], &identity["as_of"]), (&json!("market"), &json!("2007-08-24")));
    // Of a server without a cluster.
    for (path, key) in [("/v1/workers", "workers"), ("/v1/coordinators", "coordinators")] {
        assert_eq!(server.get(path).expect(200).json()[key], json!([]));
    }
    let version = server.get("/v1/version").expect(200).json();
    assert_eq!((&version["mode"], &version["api"]), (&json!("serve"), &json!("1")));
    assert_eq!(server.get("/healthz").expect(200).text(), "ok\n");
}

#[test]
fn each_operation_is_the_same_by_command_line_and_by_a_coordinator_with_three_workers() {
    let home = market();
    let options = Options { coordinator: vec!["--http".to_owned(), "127.0.0.1:0".to_owned()], ..Options::default() };
    let mut cluster = Cluster::start_as(&home, 3, &etcd::endpoint(), &[], options);
    let address = super::life::http_of(&mut cluster.coordinator);
    for operation in OPERATIONS.iter().chain(&HISTORY) {
        // Without a coordinator, then with it: the answers of both are those of HTTP.
        let reply = operation.by_http(&address);
        operation.compare(&operation.by_command(&home, None), &reply);
        if operation.remote {
            operation.compare(&operation.by_command(&home, Some(&cluster.url)), &reply);
        }
    }
    let listed = [
        get("scans", &["scans", "list", "--json", "--limit", "100"], "/v1/scans?limit=100", Same::Lines("scans")),
        get("coordinators", &["coordinators", "--json"], "/v1/coordinators", Same::Lines("coordinators")),
    ];
    for operation in listed {
        let mut command = home.command(operation.command);
        let printed = command.args(["--coordinator", &cluster.url]).output().expect("the command runs").stdout;
        operation.compare(&printed, &operation.by_http(&address));
    }
    // What workers hold changes from moment to moment.
    let workers = request(&address, "GET", "/v1/workers", &[], b"").expect(200).json();
    let names = |list: &Value| -> Vec<Value> {
        list.as_array().expect("a list").iter().map(|worker| worker["worker"].clone()).collect()
    };
    assert_eq!(names(&workers["workers"]).len(), 3);
    // A recorded scan: submitted, awaited, given in each format with its digest.
    let key = ("Idempotency-Key", "one-request");
    let submit = || request(&address, "POST", "/v1/scans", &[JSON, key], scan().to_string().as_bytes());
    let (first, second) = (submit().expect(202).json(), submit().expect(202).json());
    assert_eq!(first["scan"], second["scan"]);
    assert_eq!(first["durable"], true);
    let id = first["scan"].as_str().expect("an id");
    let reply = request(&address, "GET", &format!("/v1/scans/{id}/answer?wait_s=60&format=csv"), &[], b"").expect(200);
    let ended = request(&address, "GET", &format!("/v1/scans/{id}"), &[], b"").expect(200).json();
    assert_eq!(ended["state"], "done");
    assert_eq!(ended["answer_digest"].as_str(), reply.headers.get("trawl-answer-digest").map(String::as_str));
    OPERATIONS[0].compare(&OPERATIONS[0].by_command(&home, None), &reply);
    let report = request(&address, "GET", &format!("/v1/scans/{id}/report"), &[], b"").expect(200).json();
    assert_eq!(report["mode"], "cluster");
}

#[test]
fn series_are_the_values_that_compute_gives() {
    let home = market();
    let server = Server::start(&home, &[]);
    let body = json!({ "dataset": "market", "symbol": "SYN00003", "exprs": ["rsi(close, 14) as rsi"], "bars": true });
    let all = server.post("/v1/series", &body).expect(200).json();
    assert_eq!(all["symbol"], "SYN00003");
    let columns = all["columns"].as_object().expect("columns");
    assert_eq!(columns.len(), 6, "{columns:?}");
    let bars = all["times"].as_array().expect("times").len();
    assert!(columns.values().all(|values| values.as_array().is_some_and(|values| values.len() == bars)));
    // The last value is that of a scan.
    let row = ["scan", "--dataset", "market", "--where", "symbol == 'SYN00003'", "--select", "rsi(close, 14) as rsi"];
    let row = home.trawl(&[&row[..], &["--quiet", "--output", "-", "--format", "ndjson"]].concat()).expect_code(0);
    let row = row.stdout.lines().find(|line| line.contains("\"matched\"")).expect("it matches");
    let row: Value = serde_json::from_str(row).expect("JSON");
    assert_eq!(columns["rsi"].as_array().and_then(|values| values.last()), Some(&row["rsi"]));
    // A part of it, in the other formats.
    let from = all["times"][bars - 10].as_str().expect("a time").get(..10).expect("a date");
    let mut part = body.clone();
    part["from"] = from.into();
    let csv = request(&server.address, "POST", "/v1/series?format=csv", &[JSON], part.to_string().as_bytes());
    assert_eq!(csv.expect(200).text().lines().count(), 11);
    let arrow = request(&server.address, "POST", "/v1/series?format=arrow", &[JSON], part.to_string().as_bytes());
    let rows: usize = StreamReader::try_new(&arrow.expect(200).body[..], None)
        .expect("a stream of Arrow")
        .map(|batch| batch.expect("a batch").num_rows())
        .sum();
    assert_eq!(rows, 10);
    let unknown = json!({ "dataset": "market", "symbol": "SYN0003", "exprs": ["close"] });
    // The words and the arithmetic are those of the scan whose series they are.
    let mut own =
        json!({ "dataset": "market", "symbol": "SYN00003", "exprs": ["twice(close) as d"], "let": { "k": "2" } });
    own["def"] = json!({ "twice(x)": "x * k" });
    let doubled = server.post("/v1/series", &own).expect(200).json();
    let plain = json!({ "dataset": "market", "symbol": "SYN00003", "exprs": ["close * 2 as d", "close / 3 as t"] });
    let exact = server.post("/v1/series", &plain).expect(200).json();
    assert_eq!(doubled["columns"]["d"], exact["columns"]["d"]);
    let mut single = plain.clone();
    single["precision"] = "f32".into();
    let single = server.post("/v1/series", &single).expect(200).json();
    assert_ne!(single["columns"]["t"], exact["columns"]["t"], "other arithmetic, other values");
    for (key, value) in [("history", json!({ "bars": 50 })), ("timeframe", json!("1w"))] {
        let mut other = plain.clone();
        other[key] = value;
        server.post("/v1/series", &other).expect(422);
    }
    let refused = server.post("/v1/series", &unknown).expect(422).json();
    assert!(refused["error"]["help"].as_str().is_some_and(|help| help.contains("did you mean")), "{refused}");
}

/// Where `trawl serve` listens if nothing else is asked for, as the page writes it.
const USUAL_ADDRESS: &str = "127.0.0.1:7410";

#[test]
fn every_line_of_the_page_about_http_runs_and_prints_what_it_shows() {
    let home = Home::new();
    let server = Server::start(&home, &[]);
    let page = std::fs::read_to_string(repository().join("docs/http.md")).expect("a page");
    let mut run = 0;
    for block in shown(&page) {
        let mut printed = String::new();
        for line in block.lines.iter().filter(|line| *line != "trawl serve") {
            let line = line.replace(USUAL_ADDRESS, &server.address);
            let mut shell = std::process::Command::new("sh");
            shell.args(["-ec", &line]).current_dir(home.path(""));
            printed.push_str(&trawl_tests::process::run(&mut shell).expect_code(0).stdout);
            run += 1;
        }
        assert!(!printed.contains("\"error\""), "{printed}");
        if let Some(wanted) = &block.printed {
            assert_eq!(*wanted, trimmed(&printed), "of {:?}", block.lines);
        }
    }
    assert_eq!(run, 4);
}

//! The life of a scan by HTTP: progress, cancelling, keys of requests, mistakes, limits, the end of the server.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trawl_tests::cluster::{Cluster, Options};
use trawl_tests::etcd;
use trawl_tests::http::{JSON, Server, connect, events, request};
use trawl_tests::process::Background;
use trawl_tests::scrape::{self, Samples};
use trawl_tests::wait;

use super::{CONDITION, long_scan, market, scan};

/// Longest that anything here may take.
pub const BOUND: Duration = Duration::from_secs(120);
/// A cancelled scan ends within this, whatever it computes.
const CANCEL_BOUND: Duration = Duration::from_secs(20);
/// Clients that watch one scan.
pub const WATCHERS: usize = 200;

/// Where a coordinator with --http listens.
pub fn http_of(coordinator: &mut Background) -> String {
    coordinator.wait_for_line(BOUND, |line| {
        let words = line.strip_prefix("ready coordinator ")?;
        words.split_whitespace().find_map(|word| word.strip_prefix("http=http://")).map(str::to_owned)
    })
}

/// The text of a JSON value.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

#[test]
fn a_long_scan_is_watched_and_cancelled_and_stops() {
    let home = market();
    let server = Server::start(&home, &["--scans-running-max", "1"]);
    let submitted = server.post("/v1/scans", &long_scan()).expect(202);
    let id = text(&submitted.json()["scan"]).to_owned();
    assert_eq!(submitted.headers["location"], format!("/v1/scans/{id}"));
    let waiting = text(&server.post("/v1/scans", &scan()).expect(202).json()["scan"]).to_owned();
    let address = server.address.clone();
    let path = format!("/v1/scans/{id}/events");
    let watching = std::thread::spawn(move || events(&address, &path, &[]));
    let running = || (server.get(&format!("/v1/scans/{id}")).json()["state"] == "running").then_some(());
    wait::until(BOUND, running).expect("it runs");
    server.get(&format!("/v1/scans/{id}/answer")).expect(409);
    assert_eq!(server.get("/v1/scans?active=true").json()["scans"].as_array().map(Vec::len), Some(2));
    let began = Instant::now();
    let cancelled = request(&server.address, "DELETE", &format!("/v1/scans/{id}"), &[], b"").expect(200).json();
    assert_eq!(cancelled["state"], "cancelled", "{cancelled}");
    assert!(began.elapsed() < CANCEL_BOUND, "it took {:?}", began.elapsed());
    let names: Vec<(String, Value)> = watching.join().expect("the events end");
    assert_eq!(names.first().map(|(name, _)| name.as_str()), Some("accepted"));
    assert_eq!(names.last().map(|(name, data)| (name.as_str(), &data["state"])), Some(("ended", &json!("cancelled"))));
    // The next one gets its turn, and the cancelled one has no answer.
    server.get(&format!("/v1/scans/{waiting}/answer?wait_s=60")).expect(200);
    let refused = server.get(&format!("/v1/scans/{id}/answer")).expect(409).json();
    assert_eq!(refused["error"]["kind"], "cancelled");
    server.get("/v1/scans/no-such-scan").expect(404);
}

#[test]
fn a_scan_whose_answer_could_fill_the_memory_is_refused_before_it_runs() {
    let home = market();
    let server = Server::start(&home, &["--results-memory-bytes", "1048576"]);
    let mut large = scan();
    large["document"]["where"] = "close > sma(close, n)".into();
    large["document"]["sweep"] = json!({ "n": { "from": 2, "to": 400, "step": 1 } });
    for path in ["/v1/scans", "/v1/answers"] {
        let refused = server.post(path, &large).expect(413).json();
        assert_eq!(refused["error"]["kind"], "too_large");
        assert!(text(&refused["error"]["help"]).contains("--results-memory-bytes"), "{refused}");
    }
    server.post("/v1/answers", &scan()).expect(200);
}

/// The option `--config` has the other one, so that both are tried.
#[test]
fn serve_keeps_an_audit_log_of_requests_and_scans() {
    let home = market();
    let log = home.path("audit.jsonl");
    let config = home.write("serve.toml", &format!("audit = '{}'\nscans-running-max = 1\n", log.display()));
    let server = Server::start(&home, &["--config", &config.display().to_string()]);
    let id = text(&server.post("/v1/scans", &scan()).expect(202).json()["scan"]).to_owned();
    server.get(&format!("/v1/scans/{id}/answer?wait_s=60")).expect(200);
    let mut why = scan();
    why["symbols"] = json!(["SYN00001"]);
    server.post("/v1/why", &why).expect(200);
    server.post("/v1/scans", &json!({ "document": { "dataset": "market", "where": "clos > 1" } })).expect(422);
    server.get("/v1/version").expect(200);
    request(&server.address, "GET", "/v1/scans", &[("Origin", "http://evil.example")], b"").expect(403);
    drop(server);
    let lines: Vec<Value> = trawl_tests::home::text(&log)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let field = |line: &Value, key: &str| line["fields"].get(key).unwrap_or(&line[key]).clone();
    let found = |wanted: &[(&str, &str)]| {
        let fits = |line: &&Value| wanted.iter().all(|(key, value)| field(line, key) == **value);
        assert!(lines.iter().any(|line| fits(&line)), "{wanted:?} of {lines:#?}");
    };
    found(&[("action", "/v1/scans"), ("outcome", "done"), ("subject", &id), ("caller", "local")]);
    found(&[("action", "/v1/scans/{scan}/answer"), ("outcome", "done"), ("subject", &id)]);
    found(&[("action", "/v1/why"), ("outcome", "done"), ("subject", "market")]);
    found(&[("action", "/v1/scans"), ("outcome", "failed"), ("caller", "local")]);
    found(&[("action", "/v1/scans"), ("outcome", "refused")]);
    found(&[("message", "scan accepted"), ("scan", &id), ("caller", "local")]);
    found(&[("message", "scan ended"), ("scan", &id), ("outcome", "done")]);
    assert!(lines.iter().all(|line| field(line, "action") != "/v1/version"), "everybody may read the version");
}

#[test]
fn a_request_that_goes_away_ends_its_ephemeral_scan() {
    use std::io::Write as _;
    let home = market();
    let server = Server::start(&home, &["--scans-running-max", "1"]);
    let mut body = long_scan();
    body["ephemeral"] = true.into();
    let refused = server.post("/v1/scans", &body).expect(422).json();
    assert!(text(&refused["error"]["help"]).contains("/v1/answers"), "{refused}");
    let body = body.to_string();
    let head = format!(
        "POST /v1/answers HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        server.address,
        body.len()
    );
    let mut stream = connect(&server.address);
    stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).expect("it is sent");
    std::thread::sleep(Duration::from_millis(500));
    drop(stream);
    // The only place is free again.
    let began = Instant::now();
    server.post("/v1/answers", &scan()).expect(200);
    assert!(began.elapsed() < CANCEL_BOUND, "it took {:?}", began.elapsed());
    assert_eq!(server.get("/v1/scans").json()["scans"].as_array().map(Vec::len), Some(1), "it is not listed");
}

#[test]
fn progress_is_reported_and_keys_and_deadlines_hold() {
    let home = market();
    let server = Server::start(&home, &[]);
    let keyed = |key: &str, body: &Value| {
        let headers = [JSON, ("Idempotency-Key", key)];
        request(&server.address, "POST", "/v1/scans", &headers, body.to_string().as_bytes())
    };
    let first = keyed("k1", &scan()).expect(202).json();
    assert_eq!(keyed("k1", &scan()).expect(202).json()["scan"], first["scan"]);
    let mut other = scan();
    other["as_of"] = "2020-01-02".into();
    assert_eq!(keyed("k1", &other).expect(409).json()["error"]["kind"], "conflict");
    assert_ne!(keyed("k2", &scan()).expect(202).json()["scan"], first["scan"]);
    keyed("not a key", &scan()).expect(400);
    let seen = events(&server.address, &format!("/v1/scans/{}/events", text(&first["scan"])), &[]);
    let (name, data) = seen.last().expect("events");
    assert_eq!((name.as_str(), &data["state"]), ("ended", &json!("done")), "{seen:?}");
    assert_eq!(data["segments_ended"], data["segments"]);
    let report = server.get(&format!("/v1/scans/{}/report", text(&first["scan"]))).expect(200).json();
    assert_eq!((&report["mode"], &report["scan"]), (&json!("embedded"), &first["scan"]));
    // A deadline ends a scan, and is another kind of error than a mistake.
    let mut late = long_scan();
    late["deadline_s"] = 0.2.into();
    let refused = server.post("/v1/answers", &late).expect(504).json();
    assert_eq!(refused["error"]["kind"], "deadline_exceeded");
}

#[test]
fn mistakes_have_their_place_and_suggestion() {
    let home = market();
    let server = Server::start(&home, &[]);
    let misspelt = json!({ "document": { "dataset": "market", "where": "smaa(close, 50) > 10" } });
    for path in ["/v1/scans", "/v1/answers", "/v1/explain"] {
        let refused = server.post(path, &misspelt).expect(422).json();
        let mistake = &refused["error"]["mistakes"][0];
        assert_eq!((&mistake["source"], &mistake["start"], &mistake["end"]), (&json!("where"), &json!(0), &json!(4)));
        assert_eq!(mistake["help"], "did you mean 'sma'?", "{refused}");
    }
    let text = "dataset = 'market'\nwhere = 'smaa(close, 50) > 10'\n";
    let refused = server.post("/v1/scans", &json!({ "text": text })).expect(422).json();
    let mistake = &refused["error"]["mistakes"][0];
    let at = |key: &str| mistake[key].as_u64().map(|at| at as usize).expect("a place");
    assert_eq!(text.get(at("start")..at("end")), Some("smaa"), "{refused}");
    let refused = server.post("/v1/scans", &json!({ "document": { "dataset": "markt", "where": "close > 1" } }));
    assert_eq!(refused.expect(422).json()["error"]["kind"], "invalid");
    server.get("/v1/datasets/markt").expect(404);
    let refused = server.get("/v1/indicators/smaa").expect(404).json();
    assert_eq!(refused["error"]["help"], "did you mean 'sma'?");
}

/// New bars that come between an answer and the questions about it are none of the answer's.
#[test]
fn questions_about_an_answer_are_about_the_bars_that_it_is_of() {
    let home = market();
    let csv = |name: &str, days: std::ops::Range<u32>, a: fn(u32) -> f64| {
        let row = |symbol: &str, day: u32, close: f64| format!("{symbol},2024-01-{day:02},{close}\n");
        let rows = days.flat_map(|day| [row("A", day, a(day)), row("B", day, 200.0 - a(day))]);
        home.write(name, &format!("symbol,date,close\n{}", rows.collect::<String>()))
    };
    // A rises and B falls, until the day that is added.
    let first = csv("first.csv", 2..12, |day| 10.0 + f64::from(day));
    let second = csv("second.csv", 12..13, |_| 1.0);
    let import = |dataset: &str, file: &std::path::Path| {
        let file = file.display().to_string();
        home.trawl(&["data", "import", &file, "--dataset", dataset, "--calendar", "24/7"]).expect_code(0);
    };
    let options = Options { coordinator: vec!["--http".to_owned(), "127.0.0.1:0".to_owned()], ..Options::default() };
    let server = Server::start(&home, &[]);
    let mut cluster = Cluster::start_as(&home, 1, &etcd::endpoint(), &[], options);
    for (dataset, address) in [("mine", server.address.clone()), ("ours", http_of(&mut cluster.coordinator))] {
        import(dataset, &first);
        let ask = |path: &str, body: &Value| request(&address, "POST", path, &[JSON], body.to_string().as_bytes());
        // Its last term keeps B out alone.
        let document = json!({ "document": { "dataset": dataset, "where": "close > 0 and close > sma(3)" } });
        let id = text(&ask("/v1/scans", &document).expect(202).json()["scan"]).to_owned();
        let path = format!("/v1/scans/{id}/answer?wait_s=60");
        let answer = request(&address, "GET", &path, &[], b"").expect(200).json();
        assert_eq!(answer["rows"][0]["status"], "matched", "{answer}");
        let why = || ask("/v1/why", &json!({ "scan": id, "symbols": ["A", "B"] })).expect(200).json();
        let near = || ask("/v1/near", &json!({ "scan": id })).expect(200).json();
        let (why_before, near_before) = (why(), near());
        assert_eq!((&why_before[0]["status"], &near_before[0]["symbol"]), (&json!("matched"), &json!("B")));
        import(dataset, &second);
        assert_eq!((why(), near()), (why_before, near_before), "of {address}");
        // A scan that is described is about the newest bars, as of a scan that is submitted now.
        let mut now = document.clone();
        now["symbols"] = json!(["A"]);
        assert_eq!(ask("/v1/why", &now).expect(200).json()[0]["status"], "not_matched");
        // What names no answer, or two things.
        ask("/v1/why", &json!({ "scan": "none", "symbols": ["A"] })).expect(404);
        let mut both = now.clone();
        both["scan"] = json!(id);
        assert!(text(&ask("/v1/why", &both).expect(422).json()["error"]["message"]).contains("scan: "));
    }
    let long = text(&server.post("/v1/scans", &long_scan()).expect(202).json()["scan"]).to_owned();
    let early = server.post("/v1/why", &json!({ "scan": long, "symbols": ["SYN00001"] })).expect(409).json();
    assert_eq!(early["error"]["kind"], "conflict");
}

#[test]
fn a_full_server_refuses_and_a_stopping_one_finishes() {
    let home = market();
    let limits = ["--scans-running-max", "1", "--scans-waiting-max", "1", "--drain-timeout-s", "100"];
    let mut server = Server::start(&home, &[&limits[..], &["--metrics", "0"]].concat());
    let metrics = scrape::address_of(&mut server.process);
    let requests = || Samples::of(&metrics).get("trawl_http_requests_total");
    let id = text(&server.post("/v1/scans", &long_scan()).expect(202).json()["scan"]).to_owned();
    let state = |id: &str| server.get(&format!("/v1/scans/{id}")).json()["state"].clone();
    wait::until(BOUND, || (state(&id) == "running").then_some(())).expect("it runs");
    let waiting = text(&server.post("/v1/scans", &scan()).expect(202).json()["scan"]).to_owned();
    let refused = server.post("/v1/scans", &scan()).expect(429);
    assert_eq!(refused.headers["retry-after"], "5");
    // Whoever waits for an answer gets it, although the server was asked to stop.
    let (address, path) = (server.address.clone(), format!("/v1/scans/{waiting}/answer?wait_s=60"));
    let before = requests();
    let answered = std::thread::spawn(move || request(&address, "GET", &path, &[], b""));
    wait::until(BOUND, || (requests() > before).then_some(())).expect("it is read");
    request(&server.address, "DELETE", &format!("/v1/scans/{id}"), &[], b"").expect(200);
    server.process.signal("TERM");
    answered.join().expect("a reply").expect(200);
    let ended = server.process.wait(BOUND);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn a_cluster_is_watched_and_its_scans_are_cancelled_by_http() {
    let home = market();
    let options = Options {
        coordinator: vec!["--http".to_owned(), "127.0.0.1:0".to_owned()],
        worker: vec!["--fault-delay-ms-per-segment".to_owned(), "2000".to_owned()],
        ..Options::default()
    };
    let mut cluster = Cluster::start_as(&home, 1, &etcd::endpoint(), &[], options);
    let address = http_of(&mut cluster.coordinator);
    let body = scan().to_string();
    let submit = || request(&address, "POST", "/v1/scans", &[JSON], body.as_bytes()).expect(202).json();
    let submitted = submit();
    let id = text(&submitted["scan"]).to_owned();
    let watchers: Vec<_> = (0..WATCHERS)
        .map(|_| {
            let (address, path) = (address.clone(), format!("/v1/scans/{id}/events"));
            std::thread::spawn(move || events(&address, &path, &[]))
        })
        .collect();
    for watcher in watchers {
        let seen = watcher.join().expect("the events end");
        assert_eq!(seen.first().map(|(name, _)| name.as_str()), Some("accepted"), "{seen:?}");
        assert!(seen.iter().any(|(name, _)| name == "progress"), "{seen:?}");
        let (name, data) = seen.last().expect("events");
        assert_eq!((name.as_str(), &data["state"]), ("ended", &json!("done")));
    }
    // Known now: given at once. Another one is cancelled while it runs.
    let other =
        json!({ "document": { "dataset": "market", "where": format!("{CONDITION} and close > 3") } }).to_string();
    let other = request(&address, "POST", "/v1/scans", &[JSON], other.as_bytes()).expect(202).json();
    let path = format!("/v1/scans/{}", text(&other["scan"]));
    let cancelled = request(&address, "DELETE", &path, &[], b"").expect(200).json();
    assert_eq!(cancelled["state"], "cancelled");
    let mistaken = json!({ "document": { "dataset": "market", "where": "smaa(close, 50) > 10" } }).to_string();
    let refused = request(&address, "POST", "/v1/scans", &[JSON], mistaken.as_bytes()).expect(422).json();
    assert_eq!(refused["error"]["mistakes"][0]["help"], "did you mean 'sma'?");
    // An ephemeral one leaves nothing.
    let mut ephemeral = scan();
    ephemeral["ephemeral"] = true.into();
    request(&address, "POST", "/v1/answers", &[JSON], ephemeral.to_string().as_bytes()).expect(200);
    let listed = request(&address, "GET", "/v1/scans?limit=50", &[], b"").expect(200).json();
    let durable = |scan: &Value| scan["durable"] == true;
    assert!(
        listed["scans"].as_array().is_some_and(|scans| scans.iter().filter(|s| durable(s)).count() == 2),
        "{listed}"
    );
}

//! What strangers, browsers and broken clients send: refused, logged, counted, and nobody else notices.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trawl_security::{ClientSecurity, Token};
use trawl_tests::certs::{Authority, Files};
use trawl_tests::cluster::{Cluster, Options};
use trawl_tests::etcd;
use trawl_tests::http::{JSON, Server, connect, raw, request};
use trawl_tests::scrape::Samples;
use trawl_tests::wait;

use super::{long_scan, market, scan};
use crate::security::connection_of;

/// The server closes a connection that is stuck within this: its time-outs, and room for a loaded machine.
const STUCK_BOUND: Duration = Duration::from_secs(60);

/// A request whose head is written here as it is sent.
fn head(lines: &str) -> Vec<u8> {
    lines.replace('\n', "\r\n").into_bytes()
}

#[test]
fn hostile_requests_are_refused_and_nothing_else_is_disturbed() {
    let home = market();
    let audit = home.path("audit.jsonl");
    let mut server = Server::start(&home, &["--metrics", "0", "--audit", &audit.display().to_string()]);
    let metrics = trawl_tests::scrape::address_of(&mut server.process);
    let address = server.address.clone();
    let body = scan().to_string();
    let post = |headers: &[(&str, &str)], body: &[u8]| request(&address, "POST", "/v1/scans", headers, body).status;
    // Bodies.
    assert_eq!(post(&[JSON], b"{"), 400);
    assert_eq!(post(&[JSON], b"\xff\xfe\x00"), 400);
    assert_eq!(post(&[JSON], "[".repeat(100_000).as_bytes()), 400);
    assert_eq!(post(&[JSON], b"{\"document\": {}, \"document\": {}}"), 400);
    assert_eq!(post(&[JSON], b"null"), 400);
    assert_eq!(post(&[JSON], &vec![b' '; 5 << 20]), 413);
    let long = json!({ "text": format!("# {}", "x".repeat(1 << 20)) }).to_string();
    assert_eq!(post(&[JSON], long.as_bytes()), 413);
    for media in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp", ""] {
        assert_eq!(post(&[("Content-Type", media)], body.as_bytes()), 415, "{media}");
    }
    assert_eq!(post(&[], body.as_bytes()), 415);
    // Other sites.
    let ours = format!("http://{address}");
    for origin in ["https://evil.example", "null", "http://localhost:1", "file://"] {
        assert_eq!(post(&[JSON, ("Origin", origin)], body.as_bytes()), 403, "{origin}");
    }
    assert_eq!(post(&[JSON, ("Sec-Fetch-Site", "cross-site")], body.as_bytes()), 403);
    assert_eq!(post(&[JSON, ("Origin", &ours), ("Sec-Fetch-Site", "same-origin")], body.as_bytes()), 202);
    let preflight = [("Origin", "https://evil.example"), ("Access-Control-Request-Method", "POST")];
    let reply = request(&address, "OPTIONS", "/v1/scans", &preflight, b"").expect(403);
    assert!(!reply.headers.keys().any(|name| name.starts_with("access-control")), "{:?}", reply.headers);
    // Names that were made to lead here.
    for host in ["evil.example", "localhost.evil.example:80", "127.0.0.1.evil.example", "0.0.0.0"] {
        let reply = raw(&address, &head(&format!("GET /v1/scans HTTP/1.1\nHost: {host}\nConnection: close\n\n")));
        assert_eq!(reply.expect("a reply").expect(403).json()["error"]["kind"], "denied", "{host}");
    }
    for host in ["", "Host: localhost\nHost: evil.example\n"] {
        let reply = raw(&address, &head(&format!("GET /v1/scans HTTP/1.1\n{host}Connection: close\n\n")));
        assert!(matches!(reply.expect("a reply").status, 400 | 403), "{host}");
    }
    let reply =
        raw(&address, &head("GET http://evil.example/v1/scans HTTP/1.1\nHost: localhost\nConnection: close\n\n"));
    reply.expect("a reply").expect(403);
    // Paths.
    for (path, statuses) in [
        ("/v1/scans/../../etc/passwd", &[404][..]),
        ("/v1/scans/%2e%2e", &[400, 404]),
        ("/v1/scans/%2e%2e%2f%2e%2e%2fetc%2fpasswd", &[400, 404]),
        ("/v1/scans/a%00b", &[400, 404]),
        ("/v1/scans/%ff", &[400, 404]),
        ("/v1/datasets/..%2F..%2Fetc", &[400, 404]),
        ("/v1/datasets/%2e%2e", &[400, 404]),
        ("/v1/datasets/market%00", &[400, 404]),
        ("/v1/datasets/C:%5cx", &[400, 404]),
        ("//v1/scans", &[404]),
        ("/V1/scans", &[404]),
        ("/v1/scans/", &[404]),
        ("/v2/scans", &[404]),
        ("/nothing", &[404]),
        ("/v1/scans?limit=-1", &[400]),
        ("/v1/scans?limit=99999", &[422]),
        ("/v1/scans?wat=1", &[400]),
    ] {
        let reply = request(&address, "GET", path, &[], b"");
        assert!(statuses.contains(&reply.status), "{path}: {} {}", reply.status, reply.text());
        assert!(reply.json()["error"]["message"].is_string(), "{path}");
    }
    request(&address, "GET", &format!("/v1/scans/{}", "a".repeat(1000)), &[], b"").expect(400);
    request(&address, "PUT", "/v1/scans", &[], b"").expect(405);
    request(&address, "GET", "/v1/answers", &[], b"").expect(405);
    // Heads.
    for bytes in [
        head("GARBAGE\n\n"),
        head("GET / HTTP/9.9\n\n"),
        b"\x16\x03\x01\x02\x00\x01\x00".to_vec(),
        head(&format!("GET /healthz HTTP/1.1\nHost: localhost\nX: {}\n\n", "x".repeat(64 << 10))),
        head(&format!("GET /healthz HTTP/1.1\nHost: localhost\n{}\n", "X: 1\n".repeat(500))),
        head(&format!("GET /{} HTTP/1.1\nHost: localhost\n\n", "x".repeat(64 << 10))),
    ] {
        let status = raw(&address, &bytes).map_or(0, |reply| reply.status);
        assert!(matches!(status, 0 | 400 | 414 | 431), "{status}");
    }
    // Nothing else is disturbed, and it is known what happened.
    server.post("/v1/answers", &scan()).expect(200);
    let output = server.process.output();
    for said in ["does not name this machine", "comes from another site"] {
        assert!(output.contains(said), "{output}");
    }
    assert!(!output.contains("panicked"), "{output}");
    let audited = refusals_in(&audit);
    for status in [400, 403, 404, 405, 413, 415] {
        let shown = warnings_of(&output, status);
        assert!(shown > 0, "{status} is not shown:\n{output}");
        let kept = audited.iter().filter(|line| line["status"] == status).count();
        assert!(kept >= shown, "{status}: {kept} in the audit log, {shown} shown");
    }
    // The heads that are no requests, too.
    assert!(audited.iter().any(|line| line["status"] == 400 && line["action"] == ""), "{audited:#?}");
    let samples = Samples::of(&metrics);
    for reason in ["host", "origin", "path", "content_type", "too_large", "malformed"] {
        let count = samples.get(&format!("trawl_http_refusals_total{{reason=\"{reason}\"}}"));
        assert!(count > 0.0, "{reason}");
    }
    assert!(samples.get("trawl_http_requests_total") > 40.0);
}

/// The refusals in the file of the audit log.
fn refusals_in(audit: &std::path::Path) -> Vec<Value> {
    let lines = trawl_tests::home::text(audit);
    let read = |line: &str| serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let fields = lines.lines().map(|line| read(line)["fields"].clone());
    fields.filter(|fields| fields["outcome"] == "refused").collect()
}

/// How many refusals with a status are on stderr as warnings, which are shown unless somebody asks for less.
fn warnings_of(output: &str, status: u16) -> usize {
    let ours = format!("status={status} ");
    let is_one = |line: &&str| line.contains(" WARN trawl::audit") && line.contains("outcome=\"refused\"");
    output.lines().filter(is_one).filter(|line| format!("{line} ").contains(&ours)).count()
}

#[test]
fn whoever_sends_many_bad_requests_neither_fills_the_log_nor_hides_others_in_it() {
    /// Requests that are refused for the same reason.
    const FLOOD: usize = 300;
    /// As many of a status are shown within ten seconds.
    const SHOWN_MAX: usize = 20;
    let home = market();
    let audit = home.path("audit.jsonl");
    let server = Server::start(&home, &["--audit", &audit.display().to_string()]);
    let began = Instant::now();
    for _ in 0..FLOOD {
        server.get("/wp-login.php").expect(404);
    }
    let windows = began.elapsed().as_secs() as usize / 10 + 1;
    request(&server.address, "PUT", "/v1/scans", &[], b"").expect(405);
    let shown = wait::until(STUCK_BOUND, || (warnings_of(&server.process.output(), 405) == 1).then_some(()));
    let output = server.process.output();
    assert!(shown.is_some(), "{output}");
    let flooded = warnings_of(&output, 404);
    assert!((1..=SHOWN_MAX * windows).contains(&flooded), "{flooded} lines in {windows} windows");
    let kept = refusals_in(&audit);
    assert_eq!(kept.iter().filter(|line| line["status"] == 404 && line["action"] == "/wp-login.php").count(), FLOOD);
    // A caller's mistake in a scan is none of it.
    server.post("/v1/scans", &json!({ "document": { "dataset": "market", "where": "clos > 1" } })).expect(422);
    server.get("/v1/scans/none").expect(404);
    assert_eq!(refusals_in(&audit).len(), FLOOD + 1);
}

#[test]
fn whoever_guesses_tokens_neither_fills_the_log_nor_hides_others_in_it() {
    /// Guesses, and as many refusals of a kind as are shown within ten seconds.
    const FLOOD: usize = 200;
    const SHOWN_MAX: usize = 20;
    let home = market();
    let token = Token::fresh().expect("a token");
    let tokens = home.write("tokens", &format!("ben read {}\n", hex::encode(token.digest())));
    let audit = home.path("audit.jsonl");
    let options = ["--tokens", tokens.to_str().expect("a path"), "--audit", &audit.display().to_string()];
    let server = Server::start(&home, &options);
    let with = |method: &str, bearer: &str, body: &[u8]| {
        request(&server.address, method, "/v1/scans", &[JSON, ("Authorization", bearer)], body)
    };
    let began = Instant::now();
    for guess in 0..FLOOD {
        with("GET", &format!("Bearer trawl_{guess:064x}"), b"").expect(401);
    }
    let windows = began.elapsed().as_secs() as usize / 10 + 1;
    with("POST", &format!("Bearer {}", token.secret()), scan().to_string().as_bytes()).expect(403);
    let lines = |output: &str, level: &str, of: &str| {
        let is_one = |line: &&str| line.contains(&format!(" {level} trawl::audit")) && line.contains(of);
        output.lines().filter(is_one).count()
    };
    let denied = || (lines(&server.process.output(), "WARN", "code=PermissionDenied") == 1).then_some(());
    assert!(wait::until(STUCK_BOUND, denied).is_some(), "{}", server.process.output());
    let output = server.process.output();
    for (level, of) in [("WARN", "code=Unauthenticated"), ("INFO", "status=401")] {
        let shown = lines(&output, level, of);
        assert!((1..=SHOWN_MAX * windows).contains(&shown), "{shown} lines with {of} in {windows} windows");
    }
    // Each guess is in the audit log's file, and the next line that is shown says how many were not.
    let kept = refusals_in(&audit);
    assert_eq!(kept.iter().filter(|line| line["status"] == 401).count(), FLOOD);
    std::thread::sleep(Duration::from_secs(10));
    with("GET", "Bearer trawl_0", b"").expect(401);
    let counted = || (lines(&server.process.output(), "WARN", "not_shown=") > 0).then_some(());
    assert!(wait::until(STUCK_BOUND, counted).is_some(), "{}", server.process.output());
}

#[test]
fn clients_that_stop_in_the_middle_are_disconnected() {
    let home = market();
    let server = Server::start(&home, &[]);
    // An answer that does not fit into the buffers of a connection: every symbol for many combinations.
    let document = json!({
        "dataset": "market",
        "where": "close > sma(close, n)",
        "select": ["close", "sma(close, n) as average", "open", "high", "low", "volume"],
        "sweep": { "n": { "from": 2, "to": 200, "step": 1 } },
    });
    let body = json!({ "document": document }).to_string();
    let whole = request(&server.address, "POST", "/v1/answers", &[JSON], body.as_bytes()).expect(200).body.len();
    assert!(whole > 12 << 20, "{whole} bytes");
    let mut slow = connect(&server.address);
    let sent = format!(
        "POST /v1/answers HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        server.address,
        body.len()
    );
    slow.write_all(sent.as_bytes()).expect("it is sent");
    // Half a head, half a body, and nothing.
    let halves = [
        "GET /v1/sc",
        "POST /v1/scans HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
        "",
    ];
    let mut stuck: Vec<_> = halves
        .iter()
        .map(|half| {
            let mut stream = connect(&server.address);
            stream.write_all(half.as_bytes()).expect("it is sent");
            stream
        })
        .collect();
    // Others are served meanwhile.
    for _ in 0..5 {
        server.post("/v1/answers", &scan()).expect(200);
    }
    let began = Instant::now();
    let closed = wait::until(STUCK_BOUND, || server.process.output().contains("did not read its reply").then_some(()));
    assert!(closed.is_some(), "{}", server.process.output());
    let mut read = Vec::new();
    let _ = slow.read_to_end(&mut read);
    assert!(read.len() < whole, "a part is not the whole: {} of {whole}", read.len());
    for stream in &mut stuck {
        stream.set_read_timeout(Some(STUCK_BOUND)).expect("a socket takes a timeout");
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        let text = String::from_utf8_lossy(&text);
        assert!(text.is_empty() || text.contains(" 408 ") || text.contains(" 400 "), "{text}");
    }
    assert!(began.elapsed() < STUCK_BOUND, "{:?}", began.elapsed());
    server.post("/v1/answers", &scan()).expect(200);
}

#[test]
fn tables_whose_clients_stop_reading_keep_no_turn_from_others_for_long() {
    let home = market();
    let server = Server::start(&home, &[]);
    let document =
        json!({ "dataset": "market", "where": "true", "select": ["close", "sma(close, 20) as average", "open"] });
    let body = json!({ "document": document }).to_string();
    let sent = format!(
        "POST /v1/panel HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        server.address,
        body.len()
    );
    let begin = || {
        let mut stream = connect(&server.address);
        stream.write_all(sent.as_bytes()).expect("it is sent");
        // The first bytes are there: it is being written.
        let mut first = [0; 12];
        stream.read_exact(&mut first).expect("a status");
        assert_eq!(&first, b"HTTP/1.1 200");
        stream
    };
    // As many as are written at once, each larger than the buffers of a connection: nobody reads them.
    let stuck = [begin(), begin()];
    // Other questions have turns of their own.
    let document = &scan()["document"];
    let why = json!({ "document": document, "symbols": ["SYN00001"] });
    server.post("/v1/why", &why).expect(200);
    server.post("/v1/study", &json!({ "document": document, "from": "2007-08-20" })).expect(200);
    let table = json!({ "document": document, "from": "2007-08-20" });
    let busy = server.post("/v1/signals", &table).expect(429).json();
    assert_eq!(busy["error"]["kind"], "too_many");
    // Whoever goes away gives its turn back, and the computing ends.
    drop(stuck);
    let taken = wait::until(STUCK_BOUND, || (server.post("/v1/signals", &table).status == 200).then_some(()));
    assert!(taken.is_some(), "{}", server.process.output());
    assert!(!server.process.output().contains("broke off"), "nobody is interested in it");
}

#[test]
fn tokens_and_rights_are_those_of_grpc() {
    let home = market();
    let token = |name: &str, roles: &str| {
        let token = Token::fresh().expect("a token");
        (format!("{name} {roles} {}\n", hex::encode(token.digest())), format!("Bearer {}", token.secret()))
    };
    let (ana_line, ana) = token("ana", "submit,read");
    let (ben_line, ben) = token("ben", "read");
    let (carl_line, carl) = token("carl", "admin");
    let tokens = home.write("tokens", &format!("{ana_line}{ben_line}{carl_line}"));
    let tokens = tokens.to_str().expect("a path");
    let serve = Server::start(&home, &["--tokens", tokens]);
    let options = Options {
        coordinator: ["--http", "127.0.0.1:0", "--tokens", tokens].map(str::to_owned).to_vec(),
        security: ClientSecurity { token: Token::parse(carl.trim_start_matches("Bearer ")), ..Default::default() },
        ..Options::default()
    };
    let mut cluster = Cluster::start_as(&home, 1, &etcd::endpoint(), &[], options);
    let addresses = [serve.address.clone(), super::life::http_of(&mut cluster.coordinator)];
    for address in &addresses {
        let with = |method: &str, path: &str, token: &str, body: &Value| {
            let body = if body.is_null() { String::new() } else { body.to_string() };
            let mut headers = vec![JSON];
            headers.extend((!token.is_empty()).then_some(("Authorization", token)));
            request(address, method, path, &headers, body.as_bytes())
        };
        let none = Value::Null;
        for bad in
            ["", "Bearer", "Bearer x", "Basic YTpi", &format!("{ana}0"), &format!("Bearer trawl_{}", "0".repeat(64))]
        {
            let refused = with("GET", "/v1/scans", bad, &none).expect(401);
            assert_eq!(refused.headers["www-authenticate"], "Bearer");
            assert_eq!(refused.json()["error"]["kind"], "unauthenticated");
        }
        // What everybody may read.
        with("GET", "/v1/version", "", &none).expect(200);
        let submitted = with("POST", "/v1/scans", &ana, &scan()).expect(202).json();
        assert_eq!(submitted["owner"], "user ana");
        let path = format!("/v1/scans/{}", submitted["scan"].as_str().expect("an id"));
        with("GET", &format!("{path}/answer?wait_s=60"), &ana, &none).expect(200);
        // Ben reads his own scans alone, and submits none; Carl may do everything.
        assert_eq!(with("POST", "/v1/scans", &ben, &scan()).expect(403).json()["error"]["kind"], "denied");
        for path in ["why", "near", "series", "chart", "panel", "signals", "features", "study"] {
            with("POST", &format!("/v1/{path}"), &ben, &none).expect(403);
        }
        with("GET", &path, &ben, &none).expect(404);
        with("GET", &format!("{path}/events"), &ben, &none).expect(404);
        with("GET", &format!("{path}/answer"), &ben, &none).expect(404);
        assert_eq!(with("GET", "/v1/scans", &ben, &none).expect(200).json()["scans"], json!([]));
        with("GET", &path, &carl, &none).expect(200);
        with("DELETE", &path, &carl, &none).expect(200);
    }
    let log = serve.process.output() + &cluster.coordinator.output();
    for secret in [&ana, &ben, &carl] {
        assert!(!log.contains(secret.trim_start_matches("Bearer ")), "a token is in the log");
    }
}

#[test]
fn a_token_reads_its_own_datasets_alone_whatever_it_asks() {
    let home = market();
    let token = Token::fresh().expect("a token");
    let line = format!("eve submit,read {} datasets=us5\n", hex::encode(token.digest()));
    let tokens = home.write("tokens", &line);
    let server = Server::start(&home, &["--tokens", tokens.to_str().expect("a path")]);
    let bearer = format!("Bearer {}", token.secret());
    let ask = |path: &str, body: &Value| {
        let body = body.to_string();
        request(&server.address, "POST", path, &[JSON, ("Authorization", &bearer)], body.as_bytes())
    };
    let questions = |dataset: &str, symbol: &str| {
        let scan = json!({ "document": { "dataset": dataset, "where": "close > 1", "select": ["close"] } });
        let with = |key: &str, value: Value| {
            let mut body = scan.clone();
            body[key] = value;
            body
        };
        [
            ("/v1/explain", scan.clone()),
            ("/v1/why", with("symbols", json!([symbol]))),
            ("/v1/near", scan.clone()),
            ("/v1/panel", scan.clone()),
            ("/v1/signals", scan.clone()),
            ("/v1/features", with("window", json!(2))),
            ("/v1/study", scan.clone()),
            ("/v1/series", json!({ "dataset": dataset, "symbol": symbol, "bars": true })),
            ("/v1/chart", json!({ "dataset": dataset, "symbol": symbol })),
            ("/v1/chart", json!({ "dataset": dataset, "symbol": symbol, "marks": { "where": "close > 1" } })),
        ]
    };
    for (path, body) in questions("us5", "IBM") {
        ask(path, &body).expect(200);
    }
    for (path, body) in questions("market", "SYN00001") {
        let refused = ask(path, &body).expect(403).json();
        assert_eq!(refused["error"]["kind"], "denied", "{path}");
    }
}

#[test]
fn a_token_may_have_as_many_scans_as_it_says() {
    let home = market();
    let token = Token::fresh().expect("a token");
    let line = format!("dora submit,read {} scans=1 submissions-per-minute=3\n", hex::encode(token.digest()));
    let tokens = home.write("tokens", &line);
    let server = Server::start(&home, &["--tokens", tokens.to_str().expect("a path")]);
    let bearer = format!("Bearer {}", token.secret());
    let ask = |method: &str, path: &str, body: &str| {
        request(&server.address, method, path, &[JSON, ("Authorization", &bearer)], body.as_bytes())
    };
    let long = ask("POST", "/v1/scans", &long_scan().to_string()).expect(202).json();
    let refused = ask("POST", "/v1/scans", &scan().to_string()).expect(429);
    assert!(refused.headers.contains_key("retry-after") && refused.json()["error"]["kind"] == "too_many");
    let path = format!("/v1/scans/{}", long["scan"].as_str().expect("an id"));
    assert_eq!(ask("DELETE", &path, "").expect(200).json()["state"], "cancelled");
    // One that has ended does not count any more, and one that cannot be compiled never did.
    ask("POST", "/v1/scans", r#"{"document": {"dataset": "market", "where": "clos > 1"}}"#).expect(422);
    // A slow machine takes so long for a scan that another one is allowed.
    let often = (0..10).map(|_| ask("POST", "/v1/answers", &scan().to_string())).find(|reply| reply.status != 200);
    let often = often.expect("one is refused").expect(429).json();
    assert!(often["error"]["message"].as_str().is_some_and(|why| why.contains("too often")), "{often}");
}

#[test]
fn a_certificate_identifies_its_owner_as_by_grpc() {
    let home = market();
    let authority = Authority::new(&home.path(""), "Test CA");
    let valid = (-1, 30);
    let [coordinator, worker, alice, ben, root] =
        [("coordinator", "c1"), ("worker", "fleet"), ("client", "alice"), ("client", "ben"), ("operator", "root")]
            .map(|(role, name)| authority.issue(name, &[&format!("trawl://{role}/{name}")], valid));
    let http = ["--http".to_owned(), "127.0.0.1:0".to_owned()];
    let options = Options {
        coordinator: coordinator.flags().into_iter().chain(http).collect(),
        worker: worker.flags(),
        security: ClientSecurity { tls: Some(alice.credentials()), token: None, insecure: false },
    };
    let mut cluster = Cluster::start_as(&home, 1, &etcd::endpoint(), &[], options);
    let address = cluster.coordinator.wait_for_line(STUCK_BOUND, |line| {
        line.split_whitespace().find_map(|word| word.strip_prefix("http=https://")).map(str::to_owned)
    });
    let ask = |files: &Files, method: &str, path: &str, body: &str| {
        let mut stream = connection_of(&address, Some(files), b"http/1.1");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: coordinator.example\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("it is sent");
        trawl_tests::http::read(stream).expect("a reply")
    };
    let submitted = ask(&alice, "POST", "/v1/scans", &scan().to_string()).expect(202).json();
    assert_eq!(submitted["owner"], "trawl://client/alice");
    let path = format!("/v1/scans/{}", submitted["scan"].as_str().expect("an id"));
    ask(&alice, "GET", &format!("{path}/answer?wait_s=60"), "").expect(200);
    ask(&ben, "GET", &path, "").expect(404);
    ask(&root, "GET", &path, "").expect(200);
    ask(&worker, "GET", &path, "").expect(403);
    // Without a certificate, and in plain text, there is no conversation.
    let mut stranger = connection_of(&address, None, b"http/1.1");
    let _ = stranger.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(stranger.read(&mut [0; 1]).is_err());
    let mut plain = connect(&address);
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it is sent");
    let mut bytes = Vec::new();
    let _ = plain.read_to_end(&mut bytes);
    assert!(!bytes.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&bytes));
}

#[test]
fn every_path_of_the_description_answers_as_described() {
    let home = market();
    let server = Server::start(&home, &[]);
    let described = server.get("/openapi.json").expect(200).json();
    assert_eq!(described["openapi"], "3.1.0");
    let paths = described["paths"].as_object().expect("paths");
    let mut count = 0;
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().expect("methods") {
            count += 1;
            let real = path.replace("{scan}", "none").replace("{dataset}", "market").replace("{name}", "sma");
            let statuses = operation["responses"].as_object().expect("responses");
            let body = if operation["requestBody"].is_null() { Vec::new() } else { b"{}".to_vec() };
            let reply = request(&server.address, &method.to_uppercase(), &real, &[JSON], &body);
            assert!(statuses.contains_key(&reply.status.to_string()), "{method} {real}: {}", reply.status);
            assert!(reply.status != 405 && reply.status < 500, "{method} {real}: {}", reply.status);
            let success = statuses.keys().find(|status| status.starts_with('2')).expect("a success");
            if reply.status.to_string() == *success {
                let media = reply.headers["content-type"].split(';').next().unwrap_or_default().to_owned();
                assert!(statuses[success]["content"].get(&media).is_some(), "{method} {real}: {media}");
            }
        }
    }
    assert_eq!(count, 27);
}

//! `trawl scan --notify`: signed, repeated when that helps, bounded, and never an obstacle to the answer.

use std::io::Write as _;
use std::process::{Command, Stdio};

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use trawl_tests::etcd::free_port;
use trawl_tests::executable::repository;
use trawl_tests::home::Home;
use trawl_tests::process::{self, Ended};
use trawl_tests::receiver::{Posted, Receiver, Reply};

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const SCAN: [&str; 7] = ["scan", "--dataset", "us5", "--where", "close > 0", "--select", "close"];

/// Runs the scan with a notification and keeps the answer in `a.json`.
fn notify(home: &Home, url: &str, more: &[&str]) -> Ended {
    let arguments = [&SCAN[..], &["--output", "a.json", "--notify", url], more].concat();
    process::run(home.command(&arguments).env("TRAWL_NOTIFY_SECRET", SECRET).env("TRAWL_LOG", "trace"))
}

fn answer(home: &Home) -> Value {
    serde_json::from_slice(&home.read("a.json")).expect("an answer is JSON")
}

#[track_caller]
fn assert_signed(posted: &Posted, secret: &str) {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key");
    mac.update(posted.headers["trawl-timestamp"].as_bytes());
    mac.update(b".");
    mac.update(&posted.body);
    let digest = hex::encode(mac.finalize().into_bytes());
    assert_eq!(posted.headers["trawl-signature"], format!("v1={digest}"));
}

#[test]
fn the_matches_are_posted_signed_once_the_answer_is_there() {
    let home = Home::new();
    let receiver = Receiver::http(vec![Reply::status(204, "")]);
    let ended = notify(&home, &format!("{}/hooks/7?token=s3cret", receiver.url), &[]).expect_code(0);
    assert!(ended.stdout.ends_with(&format!("notified {}/hooks/7\n", receiver.url)), "{}", ended.stdout);
    let printed = format!("{}{}", ended.stdout, ended.stderr);
    assert!(!printed.contains("s3cret") && !printed.contains(SECRET), "{printed}");

    let posted = receiver.posted();
    assert_eq!(posted.len(), 1);
    assert_eq!(posted[0].line, "POST /hooks/7?token=s3cret HTTP/1.1");
    assert_eq!(posted[0].headers["content-type"], "application/json");
    assert_signed(&posted[0], SECRET);
    let body: Value = serde_json::from_slice(&posted[0].body).expect("JSON");
    let answer = answer(&home);
    for field in ["identity", "answer_digest", "counts", "scan"] {
        assert_eq!(body[field], answer[field], "{field}");
    }
    let row = |row: &Value| json!({"place": row["place"], "symbol": row["symbol"], "values": {"close": row["close"]}});
    let rows: Vec<Value> = answer["rows"].as_array().expect("rows").iter().map(row).collect();
    assert_eq!(rows.len(), 5);
    assert_eq!((&body["matches"], &body["truncated"]), (&json!(rows), &json!(false)));
}

#[test]
fn the_verification_in_the_documentation_accepts_it_and_nothing_else() {
    let home = Home::new();
    let receiver = Receiver::http(vec![Reply::status(200, "")]);
    notify(&home, &receiver.url, &[]).expect_code(0);
    let posted = receiver.posted().remove(0);
    let page = std::fs::read_to_string(repository().join("docs/notify.md")).expect("docs/notify.md");
    let example = page.split("```python\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let driver = "import json, sys\nheaders, body, secret = json.load(sys.stdin)\n\
                  print(verify(headers, body.encode(), secret.encode()))\n";
    let verified = |headers: &Value, body: &str, secret: &str| {
        let python = std::env::var_os("TRAWL_PYTHON").unwrap_or_else(|| "python3".into());
        let mut command = Command::new(python);
        command.arg("-c").arg(format!("{example}\n{driver}")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("Python, which the tests need");
        let input = serde_json::to_vec(&json!([headers, body, secret])).expect("JSON");
        child.stdin.take().expect("a pipe").write_all(&input).expect("Python reads");
        String::from_utf8(child.wait_with_output().expect("Python ends").stdout).expect("text").trim().to_owned()
    };
    let text = |name: &str| posted.headers[&name.to_lowercase()].clone();
    let headers = json!({"Trawl-Timestamp": text("Trawl-Timestamp"), "Trawl-Signature": text("Trawl-Signature")});
    let body = String::from_utf8(posted.body.clone()).expect("text");
    assert_eq!(verified(&headers, &body, SECRET), "True");
    assert_eq!(verified(&headers, &format!("{body} "), SECRET), "False");
    assert_eq!(verified(&headers, &body, "another secret of 32 characters."), "False");
    let old = json!({"Trawl-Timestamp": "1700000000", "Trawl-Signature": text("Trawl-Signature")});
    assert_eq!(verified(&old, &body, SECRET), "False");
}

#[test]
fn a_receiver_that_fails_is_tried_again_with_the_same_key_and_body() {
    let home = Home::new();
    let receiver = Receiver::http(vec![
        Reply::status(500, ""),
        Reply::HangUp,
        Reply::status(429, "Retry-After: 1\r\n"),
        Reply::status(200, ""),
    ]);
    notify(&home, &receiver.url, &["--quiet"]).expect_code(0);
    let posted = receiver.posted();
    assert_eq!(posted.len(), 4);
    for again in &posted {
        assert_eq!(again.body, posted[0].body);
        assert_eq!(again.headers["idempotency-key"], posted[0].headers["idempotency-key"]);
        assert_signed(again, SECRET);
    }
    // The same answer from another run has the same key; another answer and another URL do not.
    let key = |url: &str, more: &[&str]| {
        notify(&home, url, more).expect_code(0);
        receiver.posted().pop().expect("a post").headers["idempotency-key"].clone()
    };
    assert_eq!(key(&receiver.url, &["--threads", "1"]), posted[0].headers["idempotency-key"]);
    assert_ne!(key(&receiver.url, &["--as-of", "2012-02-22"]), posted[0].headers["idempotency-key"]);
    assert_ne!(key(&format!("{}/other", receiver.url), &[]), posted[0].headers["idempotency-key"]);
}

#[test]
fn a_refusal_is_reported_and_not_tried_again() {
    let no_such = Reply::Http("HTTP/1.1 400 X\r\nContent-Length: 12\r\n\r\nno such hook".to_owned());
    let elsewhere = Receiver::http(vec![Reply::status(200, "")]);
    let moved = Reply::status(307, &format!("Location: {}/\r\n", elsewhere.url));
    let large = Reply::status(200, &format!("Large: {}\r\n", "x".repeat(100_000)));
    for (reply, expected) in [
        (no_such, "it answered 400 Bad Request: no such hook"),
        (moved, "it answered 307 Temporary Redirect, and redirects are not followed"),
        (Reply::Raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n".to_vec()), "is not HTTP"),
        (Reply::EndlessBody(403), "it answered 403 Forbidden: endless endless"),
        (large, "larger than 16384 bytes"),
    ] {
        let home = Home::new();
        let receiver = Receiver::http(vec![reply]);
        let ended = notify(&home, &format!("{}/hook", receiver.url), &[]).expect_code(1);
        let line = format!("error: the notification was not delivered to {}/hook: ", receiver.url);
        assert!(ended.stderr.contains(&line) && ended.stderr.contains(expected), "{expected}: {}", ended.stderr);
        assert_eq!(receiver.posted().len(), 1, "{expected}");
        assert_eq!(answer(&home)["rows"].as_array().map(Vec::len), Some(5), "the answer file stays");
    }
    assert!(elsewhere.posted().is_empty(), "a redirect was followed");
}

#[test]
fn a_good_status_is_enough_however_long_its_body_is() {
    let home = Home::new();
    let receiver = Receiver::http(vec![Reply::EndlessBody(200)]);
    notify(&home, &receiver.url, &[]).expect_code(0);
}

#[test]
fn a_missing_receiver_is_reported_and_the_answer_is_kept() {
    let home = Home::new();
    let url = format!("http://127.0.0.1:{}/hook?token=s3cret", free_port());
    let ended = notify(&home, &url, &["--notify-timeout", "1.2"]).expect_code(1);
    assert!(ended.stderr.contains("connection refused"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("s3cret"), "{}", ended.stderr);
    assert!(ended.stdout.contains("wrote "), "{}", ended.stdout);
    assert_eq!(answer(&home)["rows"].as_array().map(Vec::len), Some(5));
}

#[test]
fn a_receiver_that_does_not_answer_or_asks_for_a_long_wait_is_given_up() {
    let home = Home::new();
    let receiver = Receiver::http(vec![Reply::Silence]);
    let ended = notify(&home, &receiver.url, &["--notify-timeout", "0.7"]).expect_code(1);
    assert!(ended.stderr.contains("it did not answer in time"), "{}", ended.stderr);
    let receiver = Receiver::http(vec![Reply::status(503, "Retry-After: 3600\r\n")]);
    let ended = notify(&home, &receiver.url, &[]).expect_code(1);
    let expected =
        "it answered 503 Service Unavailable; it asks to wait 3600 s, which is longer than this command waits";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    assert_eq!(receiver.posted().len(), 1);
}

#[test]
fn an_answer_without_matches_is_posted_unless_matches_alone_are_wanted() {
    let home = Home::new();
    home.write("none.toml", "name = 'nothing'\nwhere = 'close < 0'\n");
    let receiver = Receiver::http(vec![Reply::status(200, "")]);
    let scan = ["scan", "--dataset", "us5", "--file", "none.toml", "--notify", &receiver.url];
    let run = |more: &[&str]| {
        let mut command = home.command(&[&scan[..], more].concat());
        process::run(command.env("TRAWL_NOTIFY_SECRET", SECRET)).expect_code(0).stdout
    };
    assert!(run(&["--notify-matches-only"]).ends_with("nothing matched, so nothing was posted\n"));
    assert!(receiver.posted().is_empty());
    run(&[]);
    let body: Value = serde_json::from_slice(&receiver.posted()[0].body).expect("JSON");
    assert_eq!((&body["scan"]["name"], &body["matches"]), (&json!("nothing"), &json!([])));
}

#[test]
fn https_is_used_only_with_a_trusted_receiver() {
    let home = Home::new();
    let receiver = Receiver::https(vec![Reply::status(200, "")]);
    home.write("ca.pem", receiver.authority.as_deref().expect("a certificate"));
    notify(&home, &receiver.url, &["--notify-ca-file", "ca.pem"]).expect_code(0);
    assert_signed(&receiver.posted()[0], SECRET);
    let ended = notify(&home, &receiver.url, &[]).expect_code(1);
    assert!(ended.stderr.contains("certificate"), "{}", ended.stderr);
    assert_eq!(receiver.posted().len(), 1, "nothing is sent to an untrusted receiver, and it is not tried again");
    // TLS to a receiver in plain text.
    let plain = Receiver::http(vec![Reply::status(200, "")]);
    let url = plain.url.replace("http://127.0.0.1", "https://localhost");
    notify(&home, &url, &["--notify-timeout", "1"]).expect_code(1);
    assert!(plain.posted().is_empty());
}

#[test]
fn the_secret_may_come_from_a_file_which_takes_precedence_over_the_environment() {
    let home = Home::new();
    let receiver = Receiver::http(vec![Reply::status(200, "")]);
    home.write("secret", "another secret of 32 characters.\n");
    notify(&home, &receiver.url, &["--notify-secret-file", "secret"]).expect_code(0);
    assert_signed(&receiver.posted()[0], "another secret of 32 characters.");
}

#[test]
fn a_reader_that_went_away_does_not_stop_the_notification() {
    let home = Home::new();
    let receiver = Receiver::http(vec![Reply::status(200, "")]);
    let arguments = [&SCAN[..], &["--notify", &receiver.url]].concat();
    let mut command = home.command(&arguments);
    command.env("TRAWL_NOTIFY_SECRET", SECRET).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("trawl");
    drop(child.stdout.take());
    assert!(child.wait().expect("it ends").success());
    assert_eq!(receiver.posted().len(), 1);
}

#[test]
fn a_scan_that_is_refused_posts_nothing() {
    let home = Home::new();
    let receiver = Receiver::http(vec![Reply::status(200, "")]);
    let scan = ["scan", "--dataset", "us5", "--where", "smaa(close, 5) > 0", "--notify", &receiver.url];
    process::run(home.command(&scan).env("TRAWL_NOTIFY_SECRET", SECRET)).expect_code(2);
    assert!(receiver.posted().is_empty());
}

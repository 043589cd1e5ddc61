//! The keys of the HTTP interface and of buckets are in nothing that a process prints, sends or writes, whatever the server answers and however it ends.

use std::process::Command;
use std::time::Duration;

use trawl_tests::cluster::Cluster;
use trawl_tests::home::Home;
use trawl_tests::polygon::{Faults, KEY, Market, Polygon};
use trawl_tests::process::{self, Background};
use trawl_tests::receiver::{Receiver, Reply};
use trawl_tests::s3::{BUCKET, S3};

use super::{files_below, no_secret};

/// Longest wait for a line, and for the end of a process.
const BOUND: Duration = Duration::from_secs(30);

fn answered(body: &str) -> Reply {
    Reply::Http(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len()))
}

/// A user whose processes log everything, and send their spans and events to a receiver.
struct User {
    home: Home,
    cache: tempfile::TempDir,
    collector: Receiver,
}

impl User {
    fn new() -> Self {
        let cache = tempfile::Builder::new().prefix("trawl-test-cache-").tempdir().expect("a temporary directory");
        Self { home: Home::new(), cache, collector: Receiver::http(vec![Reply::status(200, "")]) }
    }

    fn command(&self, url: &str, more: &[&str]) -> Command {
        let words = [
            &["data", "import", "polygon-rest", "--dataset", "us", "--symbols", "AAPL", "--requests-per-minute", "0"][..],
            &["--from", "2024-01-02", "--to", "2024-01-05", "--endpoint", url],
            more,
        ];
        let mut command = self.logging(&words.concat());
        command.env("POLYGON_API_KEY", KEY);
        command
    }

    /// A process that logs everything.
    fn logging(&self, words: &[&str]) -> Command {
        let mut command = self.home.command(words);
        command
            .env("TRAWL_DATA_CACHE", self.cache.path())
            .env("TRAWL_LOG", "trace")
            .env("RUST_BACKTRACE", "full")
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", &self.collector.url)
            .env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
            .env("OTEL_BSP_SCHEDULE_DELAY", "50");
        command
    }

    /// That the key is in nothing that was printed, exported or written.
    #[track_caller]
    fn no_key(&self, printed: &[&str]) {
        no_secret(&[&self.home.data_root(), &self.home.path(""), self.cache.path()], printed, &[KEY]);
        for posted in self.collector.posted() {
            let text = format!("{}{:?}{}", posted.line, posted.headers, String::from_utf8_lossy(&posted.body));
            assert!(!text.contains(KEY), "the key was exported: {text}");
        }
    }
}

#[test]
fn an_answer_that_repeats_the_key_is_reported_without_it() {
    let user = User::new();
    let refused = format!("HTTP/1.1 400 X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n{KEY}");
    let next = format!(r#"{{"results":[],"next_url":"https://x/v2/{KEY}?cursor=1&apiKey={KEY}"}}"#);
    let encoded = KEY.replace('-', "%2d").replace('h', "%68");
    let cases: [(Vec<Reply>, &str); 11] = [
        (
            vec![answered(&format!(r#"{{"status":"ERROR","error":"the key {KEY} is blocked"}}"#))],
            "the key ... is blocked",
        ),
        (vec![answered(&format!(r#"{{"status":"{KEY}"}}"#))], "has the status ..."),
        (vec![answered(&format!(r#"{{"results":"{KEY}"}}"#))], "invalid type: string \"...\""),
        (vec![answered(&format!(r#"{{"status":"OK","ticker":"{KEY}"}}"#))], "the bars are those of ..."),
        (vec![answered(&format!(r#"{{"status":"OK","ticker":"{encoded}"}}"#))], "the bars are those of ..."),
        (
            vec![answered(&format!(r#"{{"message":"Too many requests of {KEY}, {encoded}"}}"#))],
            "/v2/aggs/ticker/AAPL/range/1/day/2024-01-02/2024-01-05 has neither a status nor results: Too many requests of ..., ...",
        ),
        (vec![answered("{}")], "has neither a status nor results"),
        (vec![answered(r#"{"results":null}"#)], "has neither a status nor results"),
        (vec![answered(&next), Reply::Http(refused)], "answered 400 Bad Request to /v2/..."),
        (vec![answered(&next), answered("{")], "the answer to /v2/... is not the expected JSON"),
        (vec![Reply::Http(format!("HTTP/1.1 301 X\r\nLocation: https://x/{KEY}\r\nContent-Length: 0\r\n\r\n"))], "301"),
    ];
    for (replies, message) in cases {
        let server = Receiver::http(replies);
        let ended = process::run(&mut user.command(&server.url, &[]));
        user.no_key(&[&ended.stdout, &ended.stderr]);
        assert!(!ended.stderr.contains(&encoded), "{}", ended.stderr);
        assert!(ended.stderr.contains(message) && ended.code != Some(0), "{message}: {}", ended.stderr);
        assert!(!ended.panicked(), "{}", ended.stderr);
    }
    // The key was sent all the same.
    assert!(files_below(&user.home.data_root()).is_empty());
}

#[test]
fn the_key_is_not_shown_by_a_process_that_waits_or_crashes_nor_given_to_a_proxy() {
    let user = User::new();
    let silent = Receiver::http(vec![Reply::Silence]);
    let mut running = Background::start("an import", &mut user.command(&silent.url, &["--request-timeout", "1"]));
    running.wait_for_line(BOUND, |line| line.contains("no answer within 1 s").then_some(()));
    let of_process = |file: &str| std::fs::read(format!("/proc/{}/{file}", running.id())).unwrap_or_default();
    if cfg!(target_os = "linux") {
        let line = String::from_utf8_lossy(&of_process("cmdline")).into_owned();
        assert!(line.contains("polygon-rest") && !line.contains(KEY), "{line}");
    }
    running.signal("ABRT");
    let crashed = running.wait(BOUND);
    user.no_key(&[&crashed.stdout, &crashed.stderr]);
    assert_eq!(crashed.code, None, "it ended by the signal");

    let help = process::run(&mut user.command(&silent.url, &["--help"])).expect_code(0);
    user.no_key(&[&help.stdout, &help.stderr]);
    assert!(help.stdout.contains("--api-key-file") && help.stdout.contains("--request-timeout"));

    // A proxy of the environment would read what is not encrypted.
    let (proxy, server) = (Receiver::http(vec![answered("{}")]), Polygon::start(Market::default(), Faults::default()));
    let mut command = user.command(&server.url, &[]);
    let ended = process::run(command.envs(["HTTP_PROXY", "http_proxy", "ALL_PROXY"].map(|name| (name, &proxy.url))));
    let ended = ended.expect_code(0);
    user.no_key(&[&ended.stdout, &ended.stderr]);
    assert_eq!((proxy.posted().len(), server.count(200)), (0, 1));
}

/// The results of scans are in a bucket, bars are not: this bucket is opened by the coordinator alone, at its start and by whoever leads next.
#[test]
fn the_key_of_the_bucket_of_results_is_in_nothing_that_a_cluster_prints_sends_or_writes() {
    let (home, s3) = (Home::new(), S3::start());
    let collector = Receiver::http(vec![Reply::status(200, "")]);
    let results = format!("s3://{BUCKET}/results");
    let variables = |secret: Option<&str>| -> Vec<(String, String)> {
        let own = s3.variables().into_iter().map(|(name, value)| match (name.as_str(), secret) {
            ("AWS_SECRET_ACCESS_KEY", Some(secret)) => (name, secret.to_owned()),
            _ => (name, value),
        });
        let more = [
            ("TRAWL_LOG", "trace"),
            ("RUST_BACKTRACE", "full"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &*collector.url),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_BSP_SCHEDULE_DELAY", "50"),
            ("TRAWL_RESULTS", &*results),
        ];
        own.chain(more.map(|(name, value)| (name.to_owned(), value.to_owned()))).collect()
    };
    let all = variables(None);
    let secret = all.iter().find(|(name, _)| name == "AWS_SECRET_ACCESS_KEY").expect("a secret").1.clone();
    let borrowed: Vec<(&str, &str)> = all.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let mut cluster = Cluster::start_with(&home, 1, &trawl_tests::etcd::endpoint(), &borrowed);
    let mut printed = Vec::new();
    let scan = |cluster: &Cluster| {
        let words = ["scan", "--dataset", "us5", "--where", "close > sma(20)", "--coordinator", &cluster.url];
        process::run(home.command(&words).envs(all.iter().cloned())).expect_code(0)
    };
    let ended = scan(&cluster);
    printed.extend([ended.stdout, ended.stderr]);
    // The next leader opens it too, and finds what the first one has put there.
    printed.push(cluster.coordinator.output());
    cluster.replace_coordinator(&home, &borrowed);
    cluster.wait_for_workers(1);
    let ended = scan(&cluster);
    printed.extend([ended.stdout, ended.stderr]);
    assert!(s3.faults("{}")["bytes_in"].as_u64() > Some(100), "the results are in the bucket");
    cluster.coordinator.signal("ABRT");
    let crashed = cluster.coordinator.wait(BOUND);
    printed.extend([crashed.stdout, crashed.stderr]);
    printed.extend(cluster.workers.iter().map(Background::output));
    // A store that cannot be used refuses the start, and the message names no key.
    let nowhere = "http://127.0.0.1:9";
    let words =
        ["coordinator", "--etcd", &trawl_tests::etcd::endpoint(), "--cluster-name", "other", "--listen", "127.0.0.1:0"];
    let refused = process::run(home.command(&words).envs(variables(None)).env("AWS_ENDPOINT_URL", nowhere));
    assert!(refused.code != Some(0) && refused.stderr.contains(&results), "{}", refused.stderr);
    printed.extend([refused.stdout, refused.stderr]);

    let texts: Vec<&str> = printed.iter().map(String::as_str).collect();
    no_secret(&[&home.data_root(), &home.path("")], &texts, &[&secret]);
    assert!(texts.iter().any(|text| text.contains(&results)), "the bucket itself is named in the log");
    for posted in collector.posted() {
        let text = format!("{}{:?}{}", posted.line, posted.headers, String::from_utf8_lossy(&posted.body));
        assert!(!text.contains(&secret), "the key was exported: {text}");
    }
}

/// The bucket from which files are imported: its variables are of their own.
#[test]
fn the_key_of_the_bucket_of_files_is_in_nothing_that_an_import_prints_sends_or_writes() {
    let (user, s3) = (User::new(), S3::start());
    let rows = "ticker,volume,open,close,high,low,window_start,transactions\nX,1.5,1,1,1,1,1704171600000000000,2\n";
    let folder = user.home.path("flat/2024/01");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("2024-01-02.csv.gz"), super::gzip(rows)).expect("a file");
    s3.put(&user.home.path("flat"), "raw/day_aggs_v1");
    let source: Vec<(String, String)> =
        s3.variables().into_iter().map(|(name, value)| (format!("TRAWL_SOURCE_{name}"), value)).collect();
    let own = |end: &str| source.iter().find(|(name, _)| name.ends_with(end)).expect("a variable").1.clone();
    let (secret, bad) = (own("SECRET_ACCESS_KEY"), "hunter3wrong");
    let place = format!("s3://{BUCKET}/raw/day_aggs_v1");
    let command = |more: &[(&str, &str)]| {
        let words = ["data", "import", "polygon-flat", &place, "--dataset", "us"];
        let mut command = user.logging(&words);
        command.envs(source.iter().cloned()).envs(more.iter().copied());
        command
    };
    let mut printed = Vec::new();
    let mut keep = |ended: process::Ended| printed.extend([ended.stdout, ended.stderr]);
    // A store that is slow, while the import waits for its answer and crashes.
    s3.faults(r#"{"delay_s": 30}"#);
    let running = Background::start("an import", &mut command(&[]));
    let asked = || (s3.faults("{}")["at_once"].as_u64() > Some(0)).then_some(());
    trawl_tests::wait::until(BOUND, asked).expect("the import asks the store");
    if cfg!(target_os = "linux") {
        let line = std::fs::read(format!("/proc/{}/cmdline", running.id())).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&line).contains(&secret));
    }
    running.signal("ABRT");
    let crashed = running.wait(BOUND);
    assert_eq!(crashed.code, None, "it ended by the signal");
    keep(crashed);
    // One that refuses and cuts off; one that denies, which is sent a signature and not the key.
    s3.faults(r#"{"delay_s": 0, "refuse_every": 2, "cut_every": 3}"#);
    keep(process::run(&mut command(&[])).expect_code(0));
    let head = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let denies = Receiver::http(vec![Reply::Http(head.to_owned())]);
    let other = [("TRAWL_SOURCE_AWS_SECRET_ACCESS_KEY", bad), ("TRAWL_SOURCE_AWS_ENDPOINT_URL", &*denies.url)];
    let denied = process::run(&mut command(&other));
    assert!(denied.code != Some(0) && denied.stderr.contains(&place), "{}", denied.stderr);
    keep(denied);
    // An import exports no spans; a scan does, with these variables in its environment.
    let words = ["scan", "--dataset", "us", "--where", "close > 0", "--quiet"];
    keep(process::run(user.logging(&words).envs(source.iter().cloned())).expect_code(0));

    let texts: Vec<&str> = printed.iter().map(String::as_str).collect();
    assert!(texts.iter().any(|text| text.contains(&place)), "the bucket itself is named");
    let secrets = [secret.as_str(), bad];
    no_secret(&[&user.home.data_root(), &user.home.path(""), user.cache.path()], &texts, &secrets);
    assert!(!user.collector.posted().is_empty() && !denies.posted().is_empty(), "spans and requests were sent");
    for posted in user.collector.posted().into_iter().chain(denies.posted()) {
        let text = format!("{}{:?}{}", posted.line, posted.headers, String::from_utf8_lossy(&posted.body));
        assert!(secrets.iter().all(|secret| !text.contains(secret)), "the key was exported: {text}");
    }
}

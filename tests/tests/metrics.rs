//! Metrics of real processes: counts match what happened, and `/metrics` withstands bad clients.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use trawl_security::ClientSecurity;
use trawl_tests::certs::{Authority, Files};
use trawl_tests::cluster::{Cluster, Options};
use trawl_tests::etcd;
use trawl_tests::home::Home;
use trawl_tests::otlp_metrics::{MetricsSink, Reading};
use trawl_tests::process::{self, Background};
use trawl_tests::scrape::{Samples, address_of, get, send};
use trawl_tests::wait;

/// Longest that anything here may take on a loaded machine.
const BOUND: Duration = Duration::from_secs(120);
/// One step: metrics that are counted once per step are counted once.
const PLAIN: [&str; 2] = ["--where", "close > sma(close, 20)"];
const SYMBOLS: u32 = 1200;
const BARS: u32 = 100;
const OPEN_METRICS: &str = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";

fn with_metrics() -> Options {
    let flags = || ["--metrics", "0"].map(str::to_owned).to_vec();
    Options { coordinator: flags(), worker: flags(), ..Options::default() }
}

fn start(home: &Home, workers: usize, environment: &[(&str, &str)]) -> Cluster {
    home.synth("market", SYMBOLS, BARS);
    Cluster::start_as(home, workers, &etcd::endpoint(), environment, with_metrics())
}

fn report(home: &Home) -> serde_json::Value {
    serde_json::from_slice(&home.read("report.json")).expect("a report is JSON")
}

fn scan<'a>(cluster: &'a Cluster, more: &[&'a str]) -> Vec<&'a str> {
    let flags = ["scan", "--dataset", "market", "--coordinator", &cluster.url, "--shards", "per-group"];
    [&flags[..], &["--report", "report.json"], more].concat()
}

/// Scrapes until metrics that are counted asynchronously have their value.
#[track_caller]
fn until(address: &str, holds: impl Fn(&Samples) -> bool) -> Samples {
    let found = wait::until(BOUND, || Some(Samples::of(address)).filter(&holds));
    found.unwrap_or_else(|| panic!("the condition never held; at last: {:#?}", Samples::of(address)))
}

fn settled(samples: &Samples) -> bool {
    samples.get("trawl_shards_in_flight") == 0.0
        && samples.get("trawl_work_remaining_seconds") == 0.0
        && samples.sum("trawl_client_streams_opened_total") == samples.sum("trawl_client_streams_ended_total")
}

#[test]
fn the_metrics_match_the_scan() {
    let home = Home::new();
    let mut cluster = start(&home, 2, &[]);
    let coordinator = address_of(&mut cluster.coordinator);
    let workers: Vec<String> = cluster.workers.iter_mut().map(address_of).collect();
    let before = Samples::of(&coordinator);
    assert_eq!((before.get("trawl_leader"), before.sum("trawl_scans_accepted_total")), (1.0, 0.0));
    until(&coordinator, |s| s.get("trawl_workers{state=\"serving\"}") == 2.0);

    home.trawl(&scan(&cluster, &PLAIN)).expect_code(0);
    home.trawl(&scan(&cluster, &PLAIN)).expect_code(0);
    let report = report(&home);
    let count = |key: &str| report[key].as_f64().expect(key);
    let shards = report["shard_runs"].as_array().expect("runs").len() as f64;

    let seen = until(&coordinator, settled);
    assert_eq!(seen.get("trawl_scans_accepted_total{origin=\"client\"}"), 2.0);
    assert_eq!(seen.get("trawl_scans_ended_total{state=\"done\"}"), 2.0);
    assert_eq!(seen.get("trawl_scan_duration_seconds_count{state=\"done\"}"), 2.0);
    assert_eq!(seen.get("trawl_scan_wait_duration_seconds_count"), 2.0);
    assert_eq!(seen.get("trawl_segments_ended_total{outcome=\"result\"}"), 2.0 * count("segments"));
    assert_eq!(seen.sum("trawl_segments_ended_total"), 2.0 * count("segments"), "none failed");
    assert_eq!(seen.get("trawl_shards_dispatched_total{purpose=\"work\"}"), 2.0 * shards);
    assert_eq!(seen.get("trawl_shards_dispatched_total{purpose=\"retry\"}"), 0.0);
    assert_eq!(seen.sum("trawl_shards_ended_total"), seen.sum("trawl_shards_dispatched_total"));
    assert_eq!(seen.sum("trawl_shard_duration_seconds_count"), seen.sum("trawl_shards_ended_total"));
    // Counted a moment after the shards.
    let all_ended = |s: &Samples| {
        let work = s.get("trawl_work_submitted_seconds_total");
        work > 0.0 && (s.get("trawl_work_ended_seconds_total") / work - 1.0).abs() < 1e-6
    };
    until(&coordinator, all_ended);
    assert!(seen.get("trawl_etcd_call_duration_seconds_count{call=\"commit\"}") > 0.0);
    assert_eq!(seen.sum("trawl_etcd_call_failures_total"), 0.0);
    assert!(seen.get("trawl_result_store_put_bytes_total") > 0.0, "a recorded scan was stored");
    assert_eq!(seen.get("trawl_result_store_put_failures_total"), 0.0);
    assert_eq!(seen.sum("trawl_refusals_total") + seen.sum("trawl_auth_failures_total"), 0.0);
    let limit = seen.get("trawl_memory_limit_bytes");
    assert!(seen.get("process_resident_memory_bytes") < limit);

    let of_workers: Vec<Samples> = workers.iter().map(|worker| Samples::of(worker)).collect();
    let all = |name: &str| of_workers.iter().map(|samples| samples.sum(name)).sum::<f64>();
    assert_eq!(all("trawl_segments_run_total"), 2.0 * count("segments"));
    assert_eq!(all("trawl_segment_duration_seconds_count"), 2.0 * count("segments"));
    assert_eq!(all("trawl_symbols_processed_total"), 2.0 * count("symbols"));
    assert_eq!(all("trawl_bars_processed_total"), 2.0 * count("bars"));
    assert_eq!(all("trawl_worker_shards_started_total"), 2.0 * shards);
    let misses = of_workers.iter().map(|s| s.get("trawl_cache_misses_total{level=\"memory\"}")).sum::<f64>();
    assert!(misses >= count("segments"), "nothing was in memory before the first scan");
    assert_eq!(misses + all("trawl_cache_hits_total"), 2.0 * count("segments"));
    assert!(all("trawl_cache_resident_bytes") > 8.0 * count("bars") && all("trawl_compute_seconds_total") > 0.0);
    for stage in ["load", "kernel", "encode"] {
        let series = format!("trawl_stage_seconds_total{{stage=\"{stage}\"}}");
        assert!(of_workers.iter().map(|samples| samples.get(&series)).sum::<f64>() > 0.0, "{stage}");
    }
    assert_eq!(all("trawl_draining"), 0.0);
    until(&workers[0], |s| s.get("trawl_lease_renewals_total") > 0.0);

    // Refused submissions are counted by reason, and the names in the requests appear nowhere.
    home.trawl(&["scan", "--dataset", "nowhere_ltd", "--where", "close > 1", "--coordinator", &cluster.url])
        .expect_code(2);
    let seen = until(&coordinator, |s| s.get("trawl_refusals_total{reason=\"not_accepted\"}") == 1.0);
    assert_eq!(seen.sum("trawl_scans_accepted_total"), 2.0, "it was never accepted as a scan");
    for address in workers.iter().chain([&coordinator]) {
        let text = get(address, "/metrics", OPEN_METRICS).body;
        for name in ["market", "nowhere_ltd", "SYN", "local", &cluster.name] {
            assert!(!text.contains(name), "{name} is in the metrics of {address}");
        }
    }
}

#[test]
fn a_killed_worker_is_a_loss_and_its_shards_are_retries() {
    let home = Home::new();
    let mut cluster = start(&home, 3, &[]);
    let coordinator = address_of(&mut cluster.coordinator);
    cluster.workers[1].signal("STOP");
    let scan = Background::start("scan", &mut home.command(&scan(&cluster, &PLAIN)));
    let in_flight = wait::until(BOUND, || cluster.registered().into_iter().find(|(id, n)| id == "w2" && *n > 0));
    assert!(in_flight.is_some(), "w2 was never given work: {:?}", cluster.registered());
    // Work is left while a shard runs; each metric is updated on its own, so one may be a moment behind the other.
    let runs = |s: &Samples| s.get("trawl_shards_in_flight") > 0.0 && s.get("trawl_work_remaining_seconds") > 0.0;
    until(&coordinator, runs);
    cluster.workers[1].kill();
    scan.wait(BOUND).expect_code(0);
    let seen = until(&coordinator, |s| settled(s) && s.get("trawl_workers_lost_total{reason=\"died\"}") == 1.0);
    // A hedge may have been faster than noticing the loss: either way the work was sent twice.
    let again =
        ["retry", "hedge", "isolation"].map(|why| format!("trawl_shards_dispatched_total{{purpose=\"{why}\"}}"));
    assert!(again.iter().map(|series| seen.get(series)).sum::<f64>() > 0.0);
    let [broken, stopped] = ["broken", "stopped"].map(|how| format!("trawl_shards_ended_total{{outcome=\"{how}\"}}"));
    assert!(seen.get(&broken) + seen.get(&stopped) > 0.0);
    assert_eq!(seen.sum("trawl_shards_ended_total"), seen.sum("trawl_shards_dispatched_total"));
    let segments = report(&home)["segments"].as_f64().expect("a count");
    assert_eq!(seen.sum("trawl_segments_ended_total"), segments, "each counts once, however often it ran");
    until(&coordinator, |s| s.get("trawl_workers{state=\"serving\"}") == 2.0);
}

#[test]
fn a_standby_and_its_takeover_are_visible_in_the_metrics() {
    let home = Home::new();
    let mut cluster = start(&home, 1, &[]);
    let leader = address_of(&mut cluster.coordinator);
    let endpoint = etcd::endpoint();
    let flags = ["coordinator", "--etcd", &endpoint, "--cluster-name", &cluster.name, "--listen", "127.0.0.1:0"];
    let results = home.data_root().join(".results").display().to_string();
    let more = ["--results", &results, "--results-shared", "--metrics", "0", "--leader-lease-ttl-s", "2"];
    let mut standby = Background::start("standby", &mut home.command(&[&flags[..], &more].concat()));
    let standby_address = address_of(&mut standby);
    let epoch = Samples::of(&leader).get("trawl_leader_epoch");
    let waits = Samples::of(&standby_address);
    assert_eq!((waits.get("trawl_leader"), waits.get("trawl_elections_won_total")), (0.0, 0.0));
    assert_eq!(waits.sum("trawl_workers"), 0.0, "a coordinator that does not lead has no workers");
    cluster.coordinator.signal("TERM");
    let leads = until(&standby_address, |s| s.get("trawl_leader") == 1.0);
    assert!(leads.get("trawl_leader_epoch") > epoch && leads.get("trawl_elections_won_total") == 1.0);
    until(&standby_address, |s| s.get("trawl_workers{state=\"serving\"}") == 1.0);
}

#[test]
fn certificates_and_refused_clients_are_in_the_metrics() {
    let home = Home::new();
    let authority = Authority::new(&home.path(""), "Test CA");
    let files = authority.issue("coordinator", &["trawl://coordinator/c1"], (-1, 30));
    let client = authority.issue("client", &["trawl://client/alice"], (-1, 30));
    let worker = authority.issue("worker", &["trawl://worker/w"], (-1, 30));
    let stranger = Authority::new(&home.path(""), "Other CA").issue("other", &["trawl://client/eve"], (-1, 30));
    let options = Options {
        coordinator: [files.flags(), with_metrics().coordinator].concat(),
        security: ClientSecurity { tls: Some(client.credentials()), ..ClientSecurity::default() },
        ..Options::default()
    };
    let mut cluster = Cluster::start_as(&home, 0, &etcd::endpoint(), &[], options);
    let address = address_of(&mut cluster.coordinator);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs_f64();
    let left = Samples::of(&address).get("trawl_certificate_expiry_timestamp_seconds") - now;
    assert!((28.0..=31.0).contains(&(left / 86_400.0)), "{left} s of 30 days are left");
    // The metrics themselves stay in plain text: a client without a certificate can read them.
    assert_eq!(Samples::of(&address).sum("trawl_auth_failures_total"), 0.0);
    let list = |files: &Files| {
        let flags = files.flags();
        let mut arguments = vec!["workers", "--coordinator", &cluster.url];
        arguments.extend(flags.iter().map(String::as_str));
        home.trawl(&arguments)
    };
    list(&client).expect_code(0);
    list(&worker).expect_code(2);
    until(&address, |s| s.get("trawl_auth_failures_total{reason=\"denied\"}") == 1.0);
    // A client with a certificate of another CA is refused by its own program; one without TLS gets as far as the
    // handshake.
    list(&stranger.trusting(&files.ca)).expect_code(2);
    let door = cluster.url.trim_start_matches("https://");
    let mut plain = std::net::TcpStream::connect(door).expect("a connection");
    std::io::Write::write_all(&mut plain, b"GET / HTTP/1.1\r\n\r\n").expect("written");
    until(&address, |s| s.get("trawl_auth_failures_total{reason=\"handshake\"}") >= 1.0);
}

#[test]
fn an_independent_parser_accepts_both_formats() {
    let home = Home::new();
    let mut cluster = start(&home, 1, &[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:9")]);
    let coordinator = address_of(&mut cluster.coordinator);
    let worker = address_of(&mut cluster.workers[0]);
    home.trawl(&scan(&cluster, &PLAIN)).expect_code(0);
    until(&coordinator, settled);
    let python = std::env::var("TRAWL_PYTHON").expect("TRAWL_PYTHON: tools/get-venv prints it");
    for address in [coordinator, worker] {
        let open = get(&address, "/metrics", OPEN_METRICS);
        assert!(open.head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"));
        assert!(open.body.contains(" # {trace_id=\""), "traces are exported, so durations have exemplars");
        let plain = get(&address, "/metrics", "");
        assert!(plain.head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"));
        for (format, text) in [("openmetrics", open.body), ("prometheus", plain.body)] {
            let file = home.write(&format!("{format}.txt"), &text);
            let script = concat!(env!("CARGO_MANIFEST_DIR"), "/python/read_metrics.py");
            let ended = process::run(Command::new(&python).arg(script).arg(format).arg(file)).expect_code(0);
            let families: usize = ended.stdout.trim().parse().expect("a count");
            assert!(families > 25, "{format} of {address}: {families}");
        }
    }
}

#[test]
fn only_metrics_are_served_and_bad_clients_do_no_harm() {
    let home = Home::new();
    let mut cluster = Cluster::start_as(&home, 0, &etcd::endpoint(), &[], with_metrics());
    let address = address_of(&mut cluster.coordinator);
    assert_eq!(get(&address, "/", "").status, 404);
    assert_eq!(get(&address, "/metrics/x", "").status, 404);
    let posted = send(&address, b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").expect("an answer");
    assert!(posted.status == 405 && posted.head.contains("allow: get"), "{posted:?}");
    let long = format!("GET /metrics HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "x".repeat(1 << 20));
    assert!(send(&address, long.as_bytes()).is_none_or(|answer| answer.status == 431), "the head is limited");
    assert!(send(&address, b"\x16\x03\x01 nonsense\r\n\r\n").is_none_or(|answer| answer.status == 400));
    // More silent connections than are accepted: they are closed, and the scrape gets its turn.
    let silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(&address).expect("a connection")).collect();
    assert_eq!(get(&address, "/metrics", "").status, 200);
    for mut stream in silent {
        stream.set_read_timeout(Some(BOUND)).expect("a socket takes a timeout");
        let _ = stream.write_all(b"GET /met");
        let mut received = Vec::new();
        assert!(stream.read_to_end(&mut received).is_ok() || received.is_empty(), "it is closed");
    }
}

#[test]
fn a_port_that_is_taken_is_reported_before_anything_starts() {
    let home = Home::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("an address").port().to_string();
    for role in ["coordinator", "worker"] {
        // There is no etcd either: the port is reported first, and at once.
        let flags = [role, "--etcd", "http://127.0.0.1:9", "--etcd-timeout-s", "3600", "--metrics", &port];
        let ended = home.trawl(&flags).expect_code(1);
        let wanted = format!("cannot serve metrics on 127.0.0.1:{port}: address already in use");
        assert!(ended.stderr.contains(&wanted) && ended.stdout.is_empty(), "{ended:?}");
    }
    let wrong = home.trawl(&["worker", "--metrics", "everywhere"]).expect_code(2);
    assert!(wrong.stderr.contains("write 9464, or 0.0.0.0:9464 for others to read"), "{}", wrong.stderr);
}

#[test]
fn metrics_go_out_by_otlp_under_the_same_names() {
    let home = Home::new();
    let sink = MetricsSink::start();
    let variables =
        [("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", sink.url.as_str()), ("OTEL_METRIC_EXPORT_INTERVAL", "200")];
    let cluster = start(&home, 1, &variables);
    home.trawl(&scan(&cluster, &PLAIN)).expect_code(0);
    let segments = report(&home)["segments"].as_f64().expect("a count");
    let key = |service: &str, name: &str, labels: &str| (service.to_owned(), name.to_owned(), labels.to_owned());
    let ended = key("trawl-coordinator", "trawl_scans_ended", "state=done");
    let lasted = key("trawl-coordinator", "trawl_scan_duration_seconds", "state=done");
    let ran = key("trawl-worker", "trawl_segments_run", "outcome=result");
    let version = key("trawl-worker", "trawl_build_info", "");
    let arrived = wait::until(BOUND, || {
        let points = sink.points();
        let counted = |key, n| points.get(key).is_some_and(|point| point.value == Reading::Counter(n));
        (counted(&ended, 1.0) && counted(&ran, segments) && points.contains_key(&lasted)).then_some(points)
    });
    let points = arrived.unwrap_or_else(|| panic!("it never arrived: {:#?}", sink.points()));
    let lasted = &points[&lasted];
    let Reading::Histogram(bounds, counts, sum) = &lasted.value else { panic!("{lasted:?}") };
    assert!(bounds.len() + 1 == counts.len() && counts.iter().sum::<u64>() == 1 && *sum > 0.0, "{lasted:?}");
    assert_eq!(lasted.unit, "s");
    assert!(points.keys().any(|(service, name, _)| (service, name) == (&version.0, &version.1)));
    let of = |service: &str, name: &str| points.keys().any(|key| key.0 == service && key.1 == name);
    assert!(!of("trawl-worker", "trawl_scans_ended") && !of("trawl-coordinator", "trawl_segments_run"));
}

#[test]
fn metrics_are_not_sent_when_they_are_turned_off() {
    let home = Home::new();
    let sink = MetricsSink::start();
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", sink.url.as_str()),
        ("OTEL_METRICS_EXPORTER", "none"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "100"),
    ];
    let cluster = start(&home, 1, &variables);
    home.trawl(&scan(&cluster, &PLAIN)).expect_code(0);
    assert!(sink.points().is_empty());
    // The same with an exporter that does not exist: it is reported, and nothing else changes.
    let variables = [variables[0], ("OTEL_METRICS_EXPORTER", "prometheus")];
    let cluster = Cluster::start_as(&home, 0, &etcd::endpoint(), &variables, Options::default());
    assert!(cluster.coordinator.output().contains("metrics are not exported: OTEL_METRICS_EXPORTER is 'prometheus'"));
}

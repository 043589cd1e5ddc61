//! Datasets in a bucket: no folder is shared, the store fails in every way, and the answers are those of a directory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use trawl_tests::cluster::{Cluster, Options};
use trawl_tests::etcd;
use trawl_tests::home::Home;
use trawl_tests::process::{self, Ended};
use trawl_tests::s3::{BUCKET, S3};
use trawl_tests::scrape::{Samples, address_of};

/// How long the store does not answer at all, unless `TRAWL_STORE_AWAY_S` has another number of seconds.
const AWAY: Duration = Duration::from_secs(4);

fn away() -> Duration {
    let seconds = std::env::var("TRAWL_STORE_AWAY_S").ok().map(|text| text.parse().expect("a number of seconds"));
    seconds.map_or(AWAY, Duration::from_secs)
}

/// A user of a bucket.
struct Machine<'a> {
    home: &'a Home,
    s3: &'a S3,
    cache: tempfile::TempDir,
}

impl<'a> Machine<'a> {
    fn new(home: &'a Home, s3: &'a S3) -> Self {
        let cache = tempfile::Builder::new().prefix("trawl-test-cache-").tempdir().expect("a temporary directory");
        Self { home, s3, cache }
    }

    fn variables(&self) -> Vec<(String, String)> {
        let mut variables = self.s3.variables();
        variables.push(("TRAWL_DATA_ROOT".to_owned(), format!("s3://{BUCKET}/data")));
        variables.push(("TRAWL_DATA_CACHE".to_owned(), self.cache.path().display().to_string()));
        variables
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.home.command(arguments);
        command.envs(self.variables());
        command
    }

    #[track_caller]
    fn trawl(&self, arguments: &[&str]) -> Ended {
        process::run(&mut self.command(arguments))
    }

    /// Files of bars in its cache.
    fn cached(&self) -> Vec<PathBuf> {
        below(&self.cache.path().join("files"))
            .into_iter()
            .filter(|p| p.extension().is_some_and(|e| e == "arrow"))
            .collect()
    }

    /// Flips a byte in each of its cached files of bars; sizes and times stay. Returns how many there are.
    fn flip(&self) -> usize {
        let files = self.cached();
        for file in &files {
            let modified = std::fs::metadata(file).and_then(|found| found.modified()).expect("a cached file");
            let mut bytes = std::fs::read(file).expect("a cached file");
            // Columns are in the order of the file: here are closes, which the scans read.
            let at = bytes.len() / 4 * 3;
            bytes[at] ^= 4;
            std::fs::write(file, bytes).expect("a cached file");
            let opened = std::fs::File::options().write(true).open(file).expect("a cached file");
            opened.set_modified(modified).expect("a cached file");
        }
        files.len()
    }
}

fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { below(&path) } else { vec![path] }).collect()
}

/// A series, summed over the workers, whose metrics are at these addresses.
fn sum(workers: &[String], series: &str) -> f64 {
    workers.iter().map(|address| Samples::of(address).get(series)).sum()
}

fn borrowed(variables: &[(String, String)]) -> Vec<(&str, &str)> {
    variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

#[test]
fn a_cluster_on_a_failing_store_gives_the_bytes_of_one_process_on_a_directory() {
    let (home, s3) = (Home::new(), S3::start());
    home.synth("market", 500, 300);
    let scan = ["scan", "--dataset", "market", "--where", "close > sma(close, 50) and xs_rank(volume) > 0.2"];
    let output = ["--quiet", "--format", "csv", "--output", "-"];
    let expected = home.trawl(&[&scan[..], &output].concat()).expect_code(0).stdout;
    assert!(expected.lines().count() > 500);

    // Some calls get 503, some answers are cut off, all are slow.
    // The store makes the first objects that are only created if absent, and nobody hears of it.
    s3.faults(r#"{"refuse_every": 11, "cut_every": 3, "lose_puts": 3, "delay_s": 0.003}"#);
    let importer = Machine::new(&home, &s3);
    let synth = ["data", "synth", "--symbols", "500", "--bars", "300", "--seed", "7", "--dataset", "market"];
    importer.trawl(&synth).expect_code(0);
    let snapshot = |listed: Ended| -> String {
        let list: serde_json::Value = serde_json::from_str(&listed.expect_code(0).stdout).expect("JSON");
        let list = list.as_array().expect("a list");
        let found = list.iter().find(|dataset| dataset["name"] == "market").expect("the dataset");
        found["snapshot"].as_str().expect("an id").to_owned()
    };
    let id = snapshot(home.trawl(&["data", "list", "--json"]));
    assert_eq!(snapshot(importer.trawl(&["data", "list", "--json"])), id);
    assert_eq!(importer.trawl(&[&scan[..], &output].concat()).expect_code(0).stdout, expected, "in one process");

    // Nothing is shared: the coordinator and each worker have a cache of their own. Bars are not kept in memory.
    let machines: Vec<Machine<'_>> = (0..4).map(|_| Machine::new(&home, &s3)).collect();
    let worker = ["--cache-bytes", "0", "--threads", "1", "--metrics", "127.0.0.1:0"].map(str::to_owned);
    let options = Options { worker: worker.into(), ..Options::default() };
    let [own, others @ ..] = &machines[..] else { unreachable!("four machines") };
    let mut cluster = Cluster::start_as(&home, 0, &etcd::endpoint(), &borrowed(&own.variables()), options);
    for machine in others {
        cluster.start_worker(&home, &borrowed(&machine.variables()));
    }
    let workers: Vec<String> = cluster.workers.iter_mut().map(address_of).collect();
    cluster.wait_for_workers(3);
    let url = cluster.url.clone();
    let there = [&scan[..], &output, &["--coordinator", &url]].concat();
    assert_eq!(home.trawl(&there).expect_code(0).stdout, expected, "everything is fetched");
    let counters = s3.faults("{}");
    for (fault, times) in [("refused", 4), ("cut", 4), ("lost_puts", 3)] {
        assert!(counters[fault].as_u64() >= Some(times), "{fault}: {counters}");
    }
    assert!(sum(&workers, "trawl_cache_fetched_bytes_total") > 0.0);

    // The second scan is served from the caches. An idle worker may take a segment that another one has.
    s3.faults(r#"{"refuse_every": 0, "cut_every": 0, "delay_s": 0}"#);
    let disk = |metric: &str| sum(&workers, &format!("{metric}{{level=\"disk\"}}"));
    let counts = || (disk("trawl_cache_hits_total"), disk("trawl_cache_misses_total"));
    let first = counts();
    assert_eq!(home.trawl(&there).expect_code(0).stdout, expected);
    let second = counts();
    assert!(first.1 >= 16.0 && second.0 >= first.0 + 8.0, "{first:?}, {second:?}");
    assert!(second.1 - first.1 <= first.1 / 2.0, "{first:?}, {second:?}");
    assert!(disk("trawl_cache_resident_bytes") > 0.0 && disk("trawl_cache_budget_bytes") > 1e9);

    // Bit rot on every machine.
    let flipped: usize = others.iter().map(Machine::flip).sum();
    assert!(flipped >= 8, "{flipped} files");
    assert_eq!(home.trawl(&there).expect_code(0).stdout, expected, "no flipped byte reaches an answer");
    let damaged = sum(&workers, "trawl_cache_damaged_files_total");
    assert!(damaged >= 4.0, "{damaged} found of {flipped}");
    assert_eq!(sum(&workers, "trawl_worker_damaged_reads_total"), 0.0, "the copies were repaired");

    // Nothing is cached, and the store is away for some seconds. The coordinator knows the snapshot; the workers need its files.
    let reference = format!("market@{id}");
    let pinned = [&scan[..2], &[reference.as_str()], &scan[3..], &output].concat();
    let expected = home.trawl(&pinned).expect_code(0).stdout;
    for machine in others {
        std::fs::remove_dir_all(machine.cache.path().join("files")).expect("the cache");
    }
    let failures = sum(&workers, "trawl_data_root_failures_total");
    s3.faults(r#"{"away": true}"#);
    let answered = std::thread::scope(|scope| {
        let scanning = scope.spawn(|| home.trawl(&[&pinned[..], &["--coordinator", &url]].concat()));
        std::thread::sleep(away());
        let dropped = s3.faults(r#"{"away": false}"#)["dropped"].as_u64();
        assert!(dropped > Some(0), "calls came meanwhile");
        scanning.join().expect("no panic")
    });
    assert_eq!(answered.expect_code(0).stdout, expected, "the scan waited");
    assert!(sum(&workers, "trawl_data_root_failures_total") > failures);
    for process in cluster.workers.iter().chain([&cluster.coordinator]) {
        assert!(!process.output().contains("hunter2"), "{}", process.output());
    }
}

#[test]
fn of_long_histories_the_parts_that_a_scan_reads_are_fetched() {
    let (home, s3) = (Home::new(), S3::start());
    let synth = [
        "data",
        "synth",
        "--symbols",
        "40",
        "--bars",
        "12000",
        "--seed",
        "5",
        "--timeframe",
        "1m",
        "--dataset",
        "long",
    ];
    home.trawl(&synth).expect_code(0);
    let importer = Machine::new(&home, &s3);
    importer.trawl(&synth).expect_code(0);
    let bytes = |machine: &Machine<'_>| -> u64 {
        let files = below(&machine.cache.path().join("files"));
        files.iter().map(|file| std::fs::metadata(file).map_or(0, |found| found.len())).sum()
    };
    let output = ["--quiet", "--format", "csv", "--output", "-"];
    let scan = |condition: &str| {
        [&["scan", "--dataset", "long", "--where", condition][..], &output]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<String>>()
    };
    let run = |machine: &Machine<'_>, scan: &[String], more: &[&str]| {
        let scan: Vec<&str> = scan.iter().map(String::as_str).chain(more.iter().copied()).collect();
        machine.trawl(&scan).expect_code(0).stdout
    };
    s3.faults(r#"{"refuse_every": 11, "cut_every": 3, "delay_s": 0.003}"#);
    let stored: u64 = 40 * 12_000 * 7 * 8;
    for (condition, part) in [
        // Two chunks of three of one column of seven, and the times once.
        ("close > sma(close, 50)", 8),
        // A column whose every bar counts.
        ("close > ema(close, 50)", 5),
    ] {
        let expected =
            home.trawl(&scan(condition).iter().map(String::as_str).collect::<Vec<_>>()).expect_code(0).stdout;
        assert!(expected.lines().count() > 1, "{condition}");
        let alone = Machine::new(&home, &s3);
        assert_eq!(run(&alone, &scan(condition), &[]), expected, "{condition}");
        let taken = bytes(&alone);
        assert!(taken > 0 && taken < stored / part, "{condition}: {taken} of {stored} bytes");

        let machines = [Machine::new(&home, &s3), Machine::new(&home, &s3)];
        let options = Options { worker: vec!["--threads".to_owned(), "2".to_owned()], ..Options::default() };
        let [own, other] = &machines;
        let mut cluster = Cluster::start_as(&home, 0, &etcd::endpoint(), &borrowed(&own.variables()), options);
        cluster.start_worker(&home, &borrowed(&other.variables()));
        cluster.wait_for_workers(1);
        let url = cluster.url.clone();
        assert_eq!(run(&alone, &scan(condition), &["--coordinator", &url]), expected, "{condition}");
        let taken = bytes(other);
        assert!(taken > 0 && taken < stored / part, "{condition}: a worker took {taken} of {stored} bytes");
    }
}

#[test]
fn datasets_are_imported_appended_compacted_and_exported_in_a_bucket() {
    let (home, s3) = (Home::new(), S3::start());
    let (here, there) = (Machine::new(&home, &s3), Machine::new(&home, &s3));
    let days = |days: std::ops::Range<u32>| {
        let rows = days.flat_map(|day| (0..40).map(move |k| format!("2024-01-{day:02},S{k:02},{}\n", day * 10 + k)));
        format!("date,symbol,close\n{}", rows.collect::<String>())
    };
    home.write("first.csv", &days(1..20));
    home.write("later.csv", &days(20..25));
    let import = ["data", "import", "--dataset", "mine", "--calendar", "24/7"];
    let both = |file: &str, machine: &Machine<'_>| {
        let words = [&import[..], &[file]].concat();
        let (made, local) = (machine.trawl(&words).expect_code(0), home.trawl(&words).expect_code(0));
        assert_eq!(made.stdout, local.stdout);
    };
    both("first.csv", &here);
    both("later.csv", &there);
    let inspect = |words: &[&str]| {
        let words = [&["data", "inspect", "mine"], words].concat();
        assert_eq!(here.trawl(&words).expect_code(0).stdout, home.trawl(&words).expect_code(0).stdout);
    };
    inspect(&["--json"]);
    inspect(&["--symbol", "S07"]);
    inspect(&["--verify"]);
    let printed = there.trawl(&["data", "compact", "mine"]).expect_code(0).stdout;
    assert_eq!(printed, home.trawl(&["data", "compact", "mine"]).expect_code(0).stdout);
    let export = ["data", "export", "mine", "-o", "-"];
    assert_eq!(here.trawl(&export).expect_code(0).stdout, home.trawl(&export).expect_code(0).stdout);
    let list = here.trawl(&["data", "list"]).expect_code(0).stdout;
    assert!(list.contains("mine") && list.contains(&format!("data root s3://{BUCKET}/data")), "{list}");

    let unknown = here.trawl(&["scan", "--dataset", "min", "--where", "close > 1"]).expect_code(2).stderr;
    assert!(unknown.contains("did you mean 'mine'?"), "{unknown}");
}

#[test]
fn snapshots_and_datasets_are_removed_from_a_bucket() {
    let (home, s3) = (Home::new(), S3::start());
    let (here, there) = (Machine::new(&home, &s3), Machine::new(&home, &s3));
    s3.faults(r#"{"refuse_every": 13, "cut_every": 17}"#);
    let import = |machine: &Machine<'_>, close: u32| {
        let rows = (1..20).map(|day| format!("2024-01-{day:02},A,{}\n", day * close));
        home.write("bars.csv", &format!("date,symbol,close\n{}", rows.collect::<String>()));
        machine.trawl(&["data", "import", "--dataset", "mine", "--calendar", "24/7", "bars.csv"]).expect_code(0);
    };
    (1..4).for_each(|close| import(&here, close));
    let json =
        |ended: Ended| -> serde_json::Value { serde_json::from_str(&ended.expect_code(0).stdout).expect("JSON") };
    let prune = ["data", "prune", "mine", "--keep", "2"];
    let report = json(there.trawl(&[&prune[..], &["--json"]].concat()));
    assert_eq!((report["removed"].as_array().map(Vec::len), report["files"].as_u64()), (Some(1), Some(0)), "{report}");
    let until = report["pending"]["until"].as_str().expect("a time").to_owned();
    let printed = here.trawl(&prune).expect_code(0).stdout;
    assert!(
        printed.contains("pending: ") && printed.contains(&format!("until {until}: 'trawl data prune mine --keep 2'")),
        "{printed}"
    );
    let printed = here.trawl(&[&prune[..], &["--grace", "0s"]].concat()).expect_code(0).stdout;
    assert!(
        printed.contains("deleted 0 snapshots of mine, 2 snapshots left: ") && !printed.contains("0 files"),
        "{printed}"
    );
    // The newest one goes; the dataset goes; another one takes its name.
    let newest =
        |machine: &Machine<'_>| machine.trawl(&["data", "inspect", "mine", "--symbol", "A"]).expect_code(0).stdout;
    let before = newest(&here);
    let snapshot =
        json(here.trawl(&["data", "inspect", "mine", "--json"]))["snapshot"].as_str().expect("an id").to_owned();
    there.trawl(&["data", "rm", &format!("mine@{snapshot}")]).expect_code(0);
    assert_ne!(newest(&here), before);
    there.trawl(&["data", "inspect", "mine", "--verify"]).expect_code(0);
    let printed = there.trawl(&["data", "rm", "mine"]).expect_code(0).stdout;
    assert!(
        printed.contains("deleted dataset mine with 1 snapshot") && printed.contains("'trawl data rm mine'"),
        "{printed}"
    );
    let unknown = here.trawl(&["data", "inspect", "mine"]).expect_code(2).stderr;
    assert!(unknown.contains("no dataset 'mine'"), "{unknown}");
    import(&here, 3);
    assert_eq!(newest(&there), before);
    there.trawl(&["data", "prune", "mine", "--keep", "1", "--grace", "0s"]).expect_code(0);
    there.trawl(&["data", "inspect", "mine", "--verify"]).expect_code(0);
    let refused = here.trawl(&["data", "rm", "mine", "--grace", "31d"]).expect_code(2).stderr;
    assert!(refused.contains("--grace") && refused.contains("up to 30d"), "{refused}");
}

#[test]
fn a_data_root_that_cannot_be_used_is_refused_at_start() {
    let (home, s3) = (Home::new(), S3::start());
    let machine = Machine::new(&home, &s3);
    let missing = home.path("missing").display().to_string();
    let cases = [
        (missing.as_str(), "does not exist", "make it"),
        ("s3://no-such-bucket/data", "bucket that does not exist", "AWS_ENDPOINT_URL"),
        (
            "abfs://bucket/data",
            "expected a directory, file:///DIRECTORY, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX",
            "--data-root",
        ),
        ("az://bucket/data", "Account must be specified", "--data-root"),
        ("file://data", "three slashes", "--data-root"),
        ("s3://id:sesame@bucket", "credentials", "--data-root"),
    ];
    for server in ["worker", "coordinator"] {
        for (root, what, help) in cases {
            let words = ["--data-root", root, server, "--etcd", "http://127.0.0.1:1", "--listen", "127.0.0.1:0"];
            let ended = machine.trawl(&words).expect_code(2);
            assert!(ended.stderr.contains(what) && ended.stderr.contains(help), "{root}: {}", ended.stderr);
            assert!(!ended.stderr.contains("sesame"), "{}", ended.stderr);
        }
    }
    // A directory by its URL is a directory.
    home.synth("market", 20, 20);
    let root = format!("file://{}", home.data_root().display());
    let listed = machine.trawl(&["--data-root", &root, "data", "list"]).expect_code(0).stdout;
    assert!(listed.contains("market"), "{listed}");
}

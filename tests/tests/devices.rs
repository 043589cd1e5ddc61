//! Choosing what computes: `--backend`, `trawl devices`, `trawl bench gpu`. NVIDIA's libraries are those of the test driver, on
//! which everything runs as on a GPU; what works without one is tested without one.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use trawl_test_driver::{Driver, REPORT_VARIABLE};
use trawl_tests::executable::repository;
use trawl_tests::home::Home;
use trawl_tests::process::{self, Ended};

/// Large enough for everything here.
const DEVICE: &str = "memory=100000000";

/// `trawl` with a device of these settings of the test driver; the last line of `driver.jsonl` is what it did.
#[track_caller]
fn on_device(home: &Home, settings: &str, arguments: &[&str]) -> Ended {
    let report = home.path("driver.jsonl");
    process::run(home.command(arguments).envs(Driver::built().environment(settings)).env(REPORT_VARIABLE, report))
}

/// What the device of the last process did.
#[track_caller]
fn did(home: &Home) -> Value {
    let lines = String::from_utf8(home.read("driver.jsonl")).expect("text");
    serde_json::from_str(lines.lines().last().expect("a line")).expect("JSON")
}

fn python() -> PathBuf {
    let python = std::env::var_os("TRAWL_PYTHON").map(PathBuf::from);
    let python = python.unwrap_or_else(|| repository().join("target/venv/bin/python"));
    assert!(python.is_file(), "no Python environment: run ./test, or tools/get-venv once");
    python
}

#[track_caller]
fn json(home: &Home, file: &str) -> Value {
    serde_json::from_slice(&home.read(file)).expect("JSON")
}

const SCAN: [&str; 13] = [
    "scan",
    "--dataset",
    "us5",
    "--as-of",
    "2013-02-22",
    "--where",
    "within(crosses_above(sma(close,50), sma(close,200)), 30) or rsi(close,14) > 70",
    "--rank",
    "macd().hist",
    "--select",
    "close",
    "--select",
    "atr(14)",
];

#[test]
fn a_scan_on_a_device_gives_the_rows_of_the_cpu_and_reports_where_it_ran() {
    let home = Home::new();
    let run = |arguments: &[&str]| on_device(&home, DEVICE, &[&SCAN[..], arguments].concat()).expect_code(0);
    run(&["--backend", "cpu", "--output", "cpu.csv", "--report", "cpu.json"]);
    run(&["--backend", "cuda", "--output", "device.csv", "--report", "device.json"]);
    assert_eq!(home.read("cpu.csv"), home.read("device.csv"));
    let first = did(&home);
    assert!(first["launches"].as_u64() > Some(10) && first["bytes_in"].as_u64() > Some(500_000), "{first}");
    assert_eq!(first["ended"], 0);
    // Its kernels are in this user's cache now, the fused one among them.
    run(&["--backend", "cuda", "--output", "again.csv"]);
    assert_eq!(home.read("cpu.csv"), home.read("again.csv"));
    assert_eq!((&did(&home)["launches"], &did(&home)["modules"]), (&1.into(), &1.into()), "{}", did(&home));
    // Whenever work happens, and in whatever order threads run.
    for when in ["when=early order=forward", "when=random seed=3 order=reverse"] {
        let arguments = ["--backend", "cuda", "--output", "when.csv"];
        on_device(&home, &format!("{DEVICE} {when}"), &[&SCAN[..], &arguments].concat()).expect_code(0);
        assert_eq!(home.read("cpu.csv"), home.read("when.csv"), "{when}");
    }
    let [cpu, device] = ["cpu", "device"].map(|name| json(&home, &format!("{name}.csv.identity.json")));
    let backend =
        |identity: &Value| identity["identity"]["backend"].as_str().or(identity["backend"].as_str()).map(str::to_owned);
    assert_eq!((backend(&cpu).as_deref(), backend(&device).as_deref()), (Some("cpu"), Some("cuda")));
    let report = json(&home, "device.json");
    assert_eq!(
        (report["backend"].as_str(), report["backend_reason"].as_str()),
        (Some("cuda"), Some("requested with --backend"))
    );
    // Small scans are not worth a device.
    run(&["--output", "auto.csv", "--report", "auto.json"]);
    let report = json(&home, "auto.json");
    assert_eq!(report["backend"], "cpu");
    assert_eq!(report["backend_reason"], "the scan finishes before a GPU would be ready");
}

/// In f32 too the rows are the CPU's, from kernels of their own: those of f64 are not taken for them, nor their bars.
#[test]
fn a_scan_in_f32_on_a_device_gives_the_rows_of_the_cpu_in_f32() {
    let home = Home::new();
    let run = |name: &str, arguments: &[&str]| {
        let output = format!("{name}.csv");
        let options = ["--output", &output, "--select", "obv()", "--select", "vwap()"];
        on_device(&home, DEVICE, &[&SCAN[..], &options[..], arguments].concat()).expect_code(0);
        home.read(&output)
    };
    let single = ["--precision", "f32"];
    let cpu = run("cpu", &[&single[..], &["--backend", "cpu"]].concat());
    for (name, shards) in [("one", "1"), ("three", "3")] {
        let device = run(name, &[&single[..], &["--backend", "cuda", "--shards", shards]].concat());
        assert!(cpu == device, "{shards} shards");
        assert!(did(&home)["launches"].as_u64() > Some(0), "{}", did(&home));
    }
    let modules = did(&home)["modules"].clone();
    let double = run("double", &["--backend", "cuda"]);
    assert_ne!(double, cpu, "it is another precision");
    assert_eq!(did(&home)["ended"], 0);
    assert!(modules.as_u64() > Some(0), "{modules}");
    assert!(run("again", &["--backend", "cpu"]) == double);
    let identity = json(&home, "three.csv.identity.json");
    let of = |field: &str| identity["identity"][field].as_str().or(identity[field].as_str()).map(str::to_owned);
    assert_eq!((of("backend").as_deref(), of("precision").as_deref()), (Some("cuda"), Some("f32")));
}

#[test]
fn attributes_of_symbols_reach_the_device_as_they_are_known_at_each_bar() {
    let home = Home::new();
    let bars = (1..=120).flat_map(|day| {
        let date = format!("2024-{:02}-{:02}", 1 + (day - 1) / 28, 1 + (day - 1) % 28);
        (0..70).filter(move |n| day > *n).map(move |n| format!("T{n:02},{date},{}\n", 20 + (day * 7 + n * 13) % 50))
    });
    home.write("bars.csv", &format!("symbol,date,close\n{}", bars.collect::<String>()));
    let known = (0..70).filter(|n| n % 9 > 0).map(|n| {
        let first = format!("T{n:02},2024-02-{:02},{},2024-05-{:02}\n", 1 + n % 28, n * 100, 1 + n % 30);
        format!("{first}T{n:02},2024-04-{:02},{},2024-06-{:02}\n", 1 + n % 27, n * 90 + 7, 1 + n % 30)
    });
    home.write("known.csv", &format!("symbol,date,cap,earnings\n{}", known.collect::<String>()));
    let import = ["import", "bars.csv", "--dataset", "m", "--calendar", "24/7", "--attributes", "known.csv"];
    home.trawl(&import).expect_code(0);
    let scan = [
        "scan",
        "--dataset",
        "m",
        "--where",
        "cap > 900 and days_to(earnings) > -20 and xs_rank(cap) <= 60",
        "--rank",
        "earnings asc, cap",
        "--select",
        "days_since(earnings)",
        "--select",
        "ema(close/cap, 9)",
        "--select",
        "earnings",
    ];
    for precision in ["f64", "f32"] {
        let run = |backend: &str| {
            let output = format!("{backend}.csv");
            let options = ["--backend", backend, "--precision", precision, "--output", &output];
            on_device(&home, DEVICE, &[&scan[..], &options].concat()).expect_code(0);
            home.read(&output)
        };
        let cpu = run("cpu");
        assert!(run("cuda") == cpu, "{precision}");
        assert!(did(&home)["launches"].as_u64() > Some(0), "{}", did(&home));
        let matched = String::from_utf8(cpu).expect("text").lines().filter(|row| row.contains(",matched,")).count();
        assert!(matched > 10, "{matched}");
    }
}

#[test]
fn long_histories_of_few_symbols_are_divided_on_a_device_whatever_the_shards() {
    let home = Home::new();
    let synth = ["synth", "--symbols", "3", "--bars", "60000", "--timeframe", "1m", "--dataset", "long"];
    home.trawl(&synth).expect_code(0);
    let scan = |backend: &str, shards: &str, select: &str, name: &str| {
        let files = [format!("{name}.csv"), format!("{name}.json")];
        let scan = ["scan", "--dataset", "long", "--where", "close > 0", "--select", select, "--backend", backend];
        let options = ["--shards", shards, "--output", &files[0], "--report", &files[1]];
        on_device(&home, DEVICE, &[&scan[..], &options[..]].concat()).expect_code(0);
        let identity = json(&home, &format!("{name}.csv.identity.json"));
        let numerics = identity["identity"]["numerics"].as_str().or(identity["numerics"].as_str()).map(str::to_owned);
        (home.read(&files[0]), numerics.expect("numerics"), json(&home, &files[1])["backend_reason"].to_string())
    };
    // The number in the last column of each row.
    let numbers = |rows: &[u8]| -> Vec<f64> {
        let rows = std::str::from_utf8(rows).expect("text").lines().skip(1);
        rows.map(|row| row.rsplit(',').next().and_then(|cell| cell.parse().ok()).expect("a number")).collect()
    };
    let (rows, whole, _) = scan("cpu", "1", "rsi(close,14)", "cpu");
    let mut first = None;
    for shards in ["1", "3"] {
        let (cut_rows, cut, reason) = scan("cuda", shards, "rsi(close,14)", &format!("cut{shards}"));
        let (want, got) = (numbers(&rows), numbers(&cut_rows));
        assert_eq!((want.len(), got.len()), (3, 3));
        assert!(want.iter().zip(&got).all(|(want, got)| (want - got).abs() <= 1e-12 * want.abs()), "{want:?} {got:?}");
        assert!(*first.get_or_insert_with(|| cut_rows.clone()) == cut_rows, "{shards} shards");
        assert_eq!(cut, format!("{whole}+chunks840"));
        assert!(reason.contains("chunks of 840 bars"), "{reason}");
    }
    let (_, numerics, reason) = scan("cuda", "2", "sar()", "whole");
    assert_eq!(numerics, whole);
    assert!(reason.contains("serially"), "{reason}");
    let single =
        ["scan", "--dataset", "long", "--where", "close > 0", "--select", "rsi(close,14)", "--precision", "f32"];
    let scan = |backend: &str, name: &str| {
        let files = [format!("{name}.csv"), format!("{name}.json")];
        let options = ["--backend", backend, "--output", &files[0], "--report", &files[1]];
        on_device(&home, DEVICE, &[&single[..], &options[..]].concat()).expect_code(0);
        (home.read(&files[0]), json(&home, &files[1])["backend_reason"].to_string())
    };
    let ((want, _), (got, reason)) = (scan("cpu", "cpu32"), scan("cuda", "device32"));
    assert!(want == got && reason.contains("chunks in f64 only"), "{reason}");
}

#[test]
fn a_device_that_cannot_be_had_is_an_error_where_it_was_asked_for() {
    let home = Home::new();
    for (settings, why) in [
        ("fault=cuInit:1:100", "the NVIDIA driver finds no device: DriverError(CUDA_ERROR_NO_DEVICE"),
        ("card=t4", "has compute capability 7.5, and 8.0 is the least"),
        ("fault=cuStreamCreate:1:2", "CUDA_ERROR_OUT_OF_MEMORY"),
    ] {
        let refused = on_device(&home, settings, &[&SCAN[..], &["--backend", "cuda"]].concat()).expect_code(2);
        let message = &refused.stderr;
        let told = message.contains("--backend cuda: ") && message.contains(why) && message.contains("trawl devices");
        assert!(told, "{message}");
    }
    let tiny = on_device(&home, "memory=30000", &[&SCAN[..], &["--backend", "cuda"]].concat()).expect_code(1);
    assert!(tiny.stderr.contains("bytes are needed at once"), "{}", tiny.stderr);
    // The only one is lost: nothing is tried again on it, and the reason is given.
    let lost = on_device(&home, "fault=kernel:1:700", &[&SCAN[..], &["--backend", "cuda"]].concat()).expect_code(1);
    assert!(lost.stderr.contains("the device is lost"), "{}", lost.stderr);
    let reason = "no device is left to compute on: device 0, H100 of the test driver (emulated): ";
    assert!(lost.stderr.contains(reason) && !lost.stderr.contains("failed 5 times"), "{}", lost.stderr);
    let managed = ["--backend", "cuda", "--memory-mode", "managed"];
    let settings = format!("{DEVICE} fault=cuMemAllocManaged:1+:2");
    let refused = on_device(&home, &settings, &[&SCAN[..], &managed].concat()).expect_code(1);
    assert!(refused.stderr.contains("the driver's cuMemAllocManaged refuses"), "{}", refused.stderr);
}

#[test]
fn devices_lists_the_devices_and_what_would_compute() {
    let home = Home::new();
    let listed = on_device(&home, DEVICE, &["devices"]).expect_code(0).stdout;
    assert!(listed.contains("H100 of the test driver (emulated)") && listed.contains("computes on: cuda"), "{listed}");
    let listed = on_device(&home, DEVICE, &["devices", "--json"]).expect_code(0).stdout;
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!((&listed["backend"], &listed["devices"][0]["chosen"]), (&"cuda".into(), &true.into()));
    assert_eq!((&listed["driver"], &listed["compiler"]), (&"13.0".into(), &"13.99".into()));
    assert_eq!(listed["devices"][0]["free_bytes"], 100_000_000);
    // Where none can be used the reason is given once, and no version of what is not used.
    for (settings, why) in [
        ("card=t4;card=t4", "compute capability 7.5, and 8.0 is the least"),
        ("fault=cuStreamCreate:1:2", "CUDA_ERROR_OUT_OF_MEMORY"),
    ] {
        let text = on_device(&home, settings, &["devices"]).expect_code(0).stdout;
        assert!(text.matches(why).count() == 1 && text.contains("computes on: cpu ("), "{text}");
        assert!(text.contains("not used") && !text.contains("run-time compiler"), "{text}");
    }
    // Whatever devices this machine has.
    let listed: Value = serde_json::from_str(&home.trawl(&["devices", "--json"]).expect_code(0).stdout).expect("JSON");
    assert!(["cpu", "cuda"].contains(&listed["backend"].as_str().expect("a backend")), "{listed}");
    assert!(!listed["reason"].as_str().expect("a reason").is_empty());
    if listed["backend"] == "cpu" {
        let refused = home.trawl(&[&SCAN[..], &["--backend", "cuda"]].concat()).expect_code(2);
        assert!(refused.stderr.contains(listed["reason"].as_str().expect("a reason")), "{}", refused.stderr);
        let none = home.trawl(&["bench", "gpu", "--report", "gpu.json"]).expect_code(1);
        assert!(none.stderr.contains("no GPU, so no figures") && none.stdout.is_empty(), "{}", none.stderr);
        assert!(!home.path("gpu.json").exists());
    }
}

#[test]
fn the_benchmark_of_a_gpu_runs_on_the_test_driver_and_says_that_nothing_was_measured() {
    let home = Home::new();
    let small = ["--symbols=70", "--bars=40", "--long-bars=300", "--repeats=2", "--functions=12"];
    let arguments = [&["bench", "gpu", "--report", "gpu.json"], &small[..]].concat();
    // Bars of the largest market stay.
    let ended = on_device(&home, "memory=200000000", &arguments).expect_code(0);
    assert!(ended.stdout.contains("SIMULATED"), "{}", ended.stdout);
    let report = json(&home, "gpu.json");
    assert_eq!(report["simulated"], true);
    let sections = report["sections"].as_array().expect("sections");
    let names: Vec<&str> = sections.iter().map(|s| s["name"].as_str().expect("a name")).collect();
    let f64_names = ["copy", "screen", "atc", "long", "first", "waves", "parity", "functions"];
    assert_eq!(names, [&f64_names[..], &["screen-f32", "atc-f32", "functions-f32"]].concat());
    sections.iter().for_each(|section| assert_eq!(section["ending"], "done", "{section}"));
    let parity = &sections[6]["figures"];
    for differences in ["differences", "apart_differences", "chunks_differences"] {
        assert_eq!(parity[differences], 0);
    }
    assert!(parity["values"].as_u64().expect("a number") > 50_000 && parity["functions"] == 12, "{parity}");
    assert_eq!(parity["apart_values"], parity["values"]);
    assert_eq!(sections[7]["figures"]["each"].as_array().expect("functions").len(), 12);
    for (section, figure) in [
        (0, "copy_bytes_per_s"),
        (1, "w1_last_bar_ms"),
        (2, "atc_last_bar_ms"),
        (3, "times_one_core"),
        (4, "first_answer_warm_cache_ms"),
        (5, "w1_4224_symbols_ms"),
        (7, "memory_sum_ms"),
        (8, "w1_last_bar_ms"),
        (9, "atc_last_bar_ms"),
        (10, "memory_sum_ms"),
    ] {
        assert!(sections[section]["figures"][figure].as_f64().is_some_and(|x| x > 0.0), "{figure}");
    }
    let [double, single] = [1, 8].map(|at: usize| sections[at]["figures"]["input_bytes"].as_f64().expect("bytes"));
    assert_eq!(double, 2.0 * single, "half the bytes in f32");
}

/// The values that others' programs for a GPU are compared with, and one such program, on NumPy in place of CuPy.
#[test]
fn bars_and_values_of_the_benchmark_are_files_that_an_independent_program_agrees_with() {
    let home = Home::new();
    let dump = home.path("dump").display().to_string();
    on_device(&home, DEVICE, &["bench", "gpu", "--symbols=6", "--bars=300", "--dump", &dump]).expect_code(0);
    let mut python = Command::new(python());
    python.arg(repository().join("benches/gpu_peers.py")).arg(&dump).args(["--peers", "numpy", "--report"]);
    process::run(python.arg(home.path("peers.json")).env("PYTHONDONTWRITEBYTECODE", "1")).expect_code(0);
    let numpy = &json(&home, "peers.json")["peers"]["numpy"];
    assert_eq!((&numpy["ending"], &numpy["simulated"]), (&"done".into(), &true.into()), "{numpy}");
    for (plan, outputs) in [("w1", 22), ("atc", 1)] {
        let compared = &numpy[plan]["compared"];
        assert_eq!(compared["cells"], outputs * 6 * 300);
        assert_eq!(compared["beyond_1e_9"], 0, "{plan}: {compared}");
    }
}

#[test]
fn a_section_of_the_benchmark_that_loses_the_device_loses_no_other() {
    let home = Home::new();
    let small = ["--symbols=40", "--bars=60", "--repeats=1", "--sections=copy,screen"];
    let arguments = [&["bench", "gpu", "--report", "gpu.json"], &small[..]].concat();
    let ended = on_device(&home, &format!("{DEVICE} fault=kernel:1:700"), &arguments).expect_code(1);
    assert!(ended.stdout.contains("FAILED: the device is lost"), "{}", ended.stdout);
    let report = json(&home, "gpu.json");
    assert_eq!(
        (&report["sections"][0]["ending"], &report["sections"][1]["ending"]),
        (&"done".into(), &"failed".into())
    );
}

#[test]
fn several_devices_compute_together_in_any_memory_mode_and_one_may_be_lost() {
    let home = Home::new();
    let cuda = ["--backend", "cuda", "--output"];
    let run = |settings: &str, arguments: &[&str]| on_device(&home, settings, &[&SCAN[..], &cuda, arguments].concat());
    run(DEVICE, &["one.csv"]).expect_code(0);
    let two = format!("{DEVICE} card=gh200;{DEVICE} card=gh200 when=random seed=3");
    for mode in ["pinned", "managed", "coherent"] {
        run(&two, &["two.csv", "--memory-mode", mode, "--shards", "per-group"]).expect_code(0);
        assert_eq!(home.read("one.csv"), home.read("two.csv"), "{mode}");
    }
    // The second one ends with its first kernel: the first computes its part too.
    let ends = format!("{DEVICE};{DEVICE} fault=kernel:1:700");
    let said = run(&ends, &["left.csv", "--devices", "1,0", "--report", "left.json"]).expect_code(0);
    assert_eq!(home.read("one.csv"), home.read("left.csv"));
    let sentence =
        "a GPU is lost: device 1, H100 of the test driver (emulated): DriverError(CUDA_ERROR_ILLEGAL_ADDRESS";
    let again = "device 0 computed one segment again";
    assert!(said.stderr.contains(sentence) && said.stderr.contains(again), "{}", said.stderr);
    let report = json(&home, "left.json");
    let [lost] = report["devices_lost"].as_array().expect("a list").as_slice() else { panic!("{report}") };
    assert_eq!((&lost["device"], &lost["again"][0]["device"]), (&1.into(), &0.into()), "{lost}");
    assert!(lost["why"].as_str().is_some_and(|why| why.contains("ILLEGAL_ADDRESS")), "{lost}");
    assert_eq!(report["backend_reason"], "requested with --backend; device 1 was lost meanwhile");
    assert_eq!(report["shard_runs"][0]["timings"]["device"], "cuda", "{report}");
    let lines = String::from_utf8(home.read("driver.jsonl")).expect("text");
    let ended: Vec<Value> = lines.lines().rev().take(2).map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let did = |device: usize, what: &str| ended[device][what].as_u64().expect("a count");
    assert!(did(0, "launches") == 1 && did(0, "bytes_out") == 0 && did(1, "bytes_out") > 0, "{ended:?}");
    let well = run(&two, &["two.csv", "--report", "two.json"]).expect_code(0);
    assert!(!well.stderr.contains("lost"), "{}", well.stderr);
    assert!(json(&home, "two.json")["devices_lost"].is_null());
    // Mistakes.
    let refused = |settings: &str, arguments: &[&str], why: &str| {
        let ended = run(settings, &[&["no.csv"], arguments].concat()).expect_code(2);
        assert!(ended.stderr.contains(why), "{}", ended.stderr);
    };
    refused(DEVICE, &["--memory-mode", "coherent"], "does not read host memory");
    refused(DEVICE, &["--memory-mode", "unified"], "'managed'");
    refused(DEVICE, &["--devices", "2"], "there is no device 2");
    refused(DEVICE, &["--devices", "0,0"], "device 0 is named twice");
    refused(&format!("{DEVICE} card=t4;{DEVICE}"), &["--devices", "0"], "8.0");
}

#[test]
fn devices_shows_which_ones_are_used_together() {
    let home = Home::new();
    let settings = format!("{DEVICE} card=t4;{DEVICE} card=gh200;{DEVICE} card=h100;{DEVICE} card=gh200");
    let run =
        |arguments: &[&str]| on_device(&home, &settings, &[&["devices", "--json"], arguments].concat()).expect_code(0);
    let chosen = |ended: &Ended| -> Vec<u64> {
        let shown: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        let devices = shown["devices"].as_array().expect("devices").iter();
        devices.filter(|device| device["chosen"] == true).filter_map(|device| device["ordinal"].as_u64()).collect()
    };
    let shown = run(&[]);
    // The first that is new enough, and those of its name.
    assert_eq!(chosen(&shown), [1, 3]);
    assert!(shown.stdout.contains("\"memory_mode\": \"coherent\""), "{}", shown.stdout);
    assert_eq!(chosen(&run(&["--devices", "2,3"])), [2, 3]);
    assert!(run(&["--memory-mode", "managed"]).stdout.contains("\"memory_mode\": \"managed\""));
    let refused = run(&["--devices", "2", "--memory-mode", "coherent"]);
    assert!(chosen(&refused).is_empty() && refused.stdout.contains("does not read host memory"), "{}", refused.stdout);
    let text = on_device(&home, &settings, &["devices"]).expect_code(0).stdout;
    assert!(
        text.contains("2 GPUs were found: GH200") && text.contains("memory mode: coherent (the device reads"),
        "{text}"
    );
}

#[test]
fn devices_shows_the_state_of_each_and_one_whose_memory_errs_is_not_used() {
    let home = Home::new();
    let shown = |settings: &str| -> (Value, String) {
        let json = on_device(&home, settings, &["devices", "--json"]).expect_code(0).stdout;
        let text = on_device(&home, settings, &["devices"]).expect_code(0).stdout;
        (serde_json::from_str(&json).expect("JSON"), text)
    };
    let settings = format!("{DEVICE} ecc=2;{DEVICE} throttle=hot+cap");
    let (json, text) = shown(&settings);
    let of = |at: usize, what: &str| json["devices"][at][what].clone();
    assert_eq!((of(0, "is_quarantined"), of(0, "chosen")), (true.into(), false.into()), "{json}");
    assert!(of(0, "why_not").as_str().is_some_and(|why| why.contains("--gpu-reset")), "{json}");
    assert_eq!(of(0, "health"), "quarantined: 2 memory errors that could not be corrected");
    assert_eq!((of(1, "is_quarantined"), of(1, "chosen")), (false.into(), true.into()), "{json}");
    assert!(text.contains("slowed by heat beyond what the hardware allows") && text.contains("quarantined"), "{text}");
    // The other one computes, unless this one is asked for.
    let run = |settings: &str, arguments: &[&str]| on_device(&home, settings, &[&SCAN[..], arguments].concat());
    run(&settings, &["--backend", "cuda", "--output", "other.csv"]).expect_code(0);
    let lines = String::from_utf8(home.read("driver.jsonl")).expect("text");
    let did: Vec<Value> = lines.lines().rev().take(2).map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(did[0]["launches"].as_u64() > Some(0) && did[1]["launches"] == 0, "{did:?}");
    run(DEVICE, &["--backend", "cpu", "--output", "cpu.csv"]).expect_code(0);
    assert_eq!(home.read("cpu.csv"), home.read("other.csv"));
    let refused = run(&settings, &["--backend", "cuda", "--devices", "0"]).expect_code(2).stderr;
    assert!(refused.contains("2 memory errors") && refused.contains("nvidia-smi --gpu-reset"), "{refused}");
    let (json, _) = shown(&format!("{DEVICE} ecc=1"));
    assert_eq!(json["backend"], "cpu");
    assert!(json["reason"].as_str().is_some_and(|why| why.contains("1 memory error")), "{json}");
    // NVML that does not start, and a machine without it.
    let (json, text) = shown(&format!("{DEVICE} fault=nvmlInit_v2:1+:9"));
    assert_eq!((&json["backend"], &json["devices"][0]["chosen"]), (&"cuda".into(), &true.into()));
    assert_eq!(text.matches("NVML does not start: Driver Not Loaded").count(), 1, "{text}");
    if !std::path::Path::new("/proc/driver/nvidia").exists() {
        let folder = home.path("libraries");
        std::fs::create_dir(&folder).expect("a folder");
        for library in ["libcuda.so.1", "libnvrtc.so.13"] {
            std::fs::copy(Driver::built().folder().join(library), folder.join(library)).expect("a copy");
        }
        let mut command = home.command(&["devices"]);
        command.envs(Driver::built().environment(DEVICE)).env("TRAWL_CUDA_LIBRARIES", &folder);
        let text = process::run(&mut command).expect_code(0).stdout;
        assert_eq!(text.matches("NVML (libnvidia-ml.so.1) was not found").count(), 1, "{text}");
        assert!(text.contains("computes on: cuda"), "{text}");
    }
}

#[test]
fn a_slice_of_a_gpu_is_shown_and_named_as_cuda_names_it() {
    let home = Home::new();
    let slice = "memory=12000000 slice=1g.10gb:16";
    let json: Value =
        serde_json::from_str(&on_device(&home, slice, &["devices", "--json"]).expect_code(0).stdout).expect("JSON");
    let device = &json["devices"][0];
    assert_eq!((&device["slice"], &device["multiprocessors"]), (&"1g.10gb".into(), &16.into()), "{json}");
    assert_eq!((&device["memory_bytes"], &device["chosen"]), (&12_000_000.into(), &true.into()), "{json}");
    let uuid = device["uuid"].as_str().expect("a UUID").to_owned();
    assert!(uuid.starts_with("MIG-7e57d21e-"), "{uuid}");
    let text = on_device(&home, slice, &["devices"]).expect_code(0).stdout;
    assert!(text.contains(&format!("device 0 is a MIG slice, 1g.10gb with 16 multiprocessors: {uuid}")), "{text}");
    let run = |name: &str| {
        let arguments = ["--backend", "cuda", "--output", "slice.csv", "--devices", name];
        on_device(&home, slice, &[&SCAN[..], &arguments].concat())
    };
    // In the slice's memory, and by the beginning of its UUID too.
    run(&uuid).expect_code(0);
    run("MIG-7e57").expect_code(0);
    on_device(&home, DEVICE, &[&SCAN[..], &["--backend", "cpu", "--output", "cpu.csv"]].concat()).expect_code(0);
    assert_eq!(home.read("cpu.csv"), home.read("slice.csv"));
    for (name, why) in [
        ("MIG-11111111", "CUDA_VISIBLE_DEVICES=MIG-11111111"),
        ("GPU-11111111", "the driver shows MIG-7e57"),
        ("MIG-GPU-11111111/1/0", "the slice's own UUID"),
        ("0:1", "a number of 'trawl devices' is expected"),
    ] {
        let refused = run(name).expect_code(2).stderr;
        assert!(refused.contains(why), "{name}: {refused}");
    }
}

#[test]
fn a_card_with_few_units_of_f64_gets_a_hint_and_the_benchmark_measures_the_named_device() {
    let home = Home::new();
    let text = |card: &str| on_device(&home, &format!("{DEVICE} card={card}"), &["devices"]).expect_code(0).stdout;
    assert!(text("l4").contains("64 operations in f32 in the time of one in f64: --precision f32"), "{}", text("l4"));
    assert!(!text("h100").contains("--precision f32"));
    let two = format!("{DEVICE};{DEVICE} card=gh200");
    let report = ["bench", "gpu", "--sections", "copy", "--report", "copy.json", "--devices", "1"];
    on_device(&home, &two, &report).expect_code(0);
    let device = json(&home, "copy.json")["device"]["name"].to_string();
    assert!(device.contains("GH200"), "{device}");
}

#[test]
fn settings_are_measured_stored_and_used_and_change_no_bit() {
    let home = Home::new();
    let scan = |name: &str, arguments: &[&str]| {
        let options = ["--backend", "cuda", "--output", name, "--shards", "per-group"];
        let mut command = home.command(&[&SCAN[..], &options, arguments].concat());
        let ended = process::run(command.envs(Driver::built().environment(DEVICE)).env("TRAWL_LOG", "info"));
        (home.read(name), ended.expect_code(0).stderr)
    };
    let shown = || on_device(&home, DEVICE, &["devices"]).expect_code(0).stdout;
    let (want, log) = scan("usual.csv", &[]);
    assert!(!log.contains("uses measured settings") && !shown().contains("is tuned"), "{log}");
    let tune = ["devices", "tune", "--symbols=70", "--bars=40"];
    let tuned = on_device(&home, DEVICE, &tune).expect_code(0).stdout;
    assert!(tuned.contains("settings were compared") && tuned.contains("simulated"), "{tuned}");
    assert!(!tuned.contains("measured"), "{tuned}");
    let file = PathBuf::from(tuned.lines().last().and_then(|line| line.strip_prefix("stored in ")).expect("a file"));
    let stored: Value = serde_json::from_slice(&std::fs::read(&file).expect("a file")).expect("JSON");
    assert_eq!((&stored["driver"], &stored["memory_mode"]), (&"580.00.0 13.0".into(), &"pinned".into()), "{stored}");
    assert!(shown().contains("device 0 is tuned: "), "{}", shown());
    // Whatever is stored, of what there is to choose from.
    let store = |field: &str, value: Value| {
        let mut stored = stored.clone();
        (stored["streams"], stored["batches_in_flight"], stored["batch_in_bytes_max"]) =
            (6.into(), 4.into(), (32 << 20).into());
        stored[field] = value;
        std::fs::write(&file, stored.to_string()).expect("a file");
    };
    store("how", "simulated".into());
    let (rows, log) = scan("tuned.csv", &[]);
    assert!(rows == want && log.contains("6 streams, 4 batches in flight of at most 32 MiB"), "{log}");
    let (rows, log) = scan("off.csv", &["--device-tuning", "off"]);
    assert!(rows == want && !log.contains("uses measured settings"), "{log}");
    // Of another driver, build or device, of this mode's file for another, or of none that this build knows.
    for (field, value) in [
        ("driver", "590.1 13.1".into()),
        ("build", "0".into()),
        ("device", "GPU-0".into()),
        ("memory_mode", "managed".into()),
        ("streams", 7.into()),
        ("batch_in_bytes_max", Value::Null),
    ] {
        store(field, value);
        let (rows, log) = scan("other.csv", &[]);
        assert!(rows == want && !log.contains("uses measured settings"), "{field}: {log}");
    }
}

#[test]
fn what_devices_gain_is_shown_and_called_simulated_on_the_test_driver() {
    let home = Home::new();
    let size = ["--symbols=70", "--bars=40", "--repeats=1"];
    let run = |settings: &str| {
        let arguments = [&["bench", "devices", "--report", "devices.json"], &size[..]].concat();
        let shown = on_device(&home, settings, &arguments).expect_code(0).stdout;
        assert!(shown.contains("SIMULATED") && shown.contains(" ms simulated"), "{shown}");
        assert!(!shown.contains(" ms measured"), "{shown}");
        json(&home, "devices.json")
    };
    let report = run(&format!("{DEVICE} card=gh200;{DEVICE} card=gh200"));
    assert_eq!((&report["how"], report["devices"].as_array().map(Vec::len)), (&"simulated".into(), Some(2)));
    let figure = |name: &str| report["figures"][name].as_f64().unwrap_or_else(|| panic!("{name}: {report}"));
    for name in ["copied_1_streams_ms", "copied_6_streams_ms", "devices_2_ms", "managed_second_ms", "kernels_busy_ms"] {
        assert!(figure(name) > 0.0, "{name}");
    }
    assert!(figure("overlap_4_streams_ratio") >= 1.0);
    assert!(figure("graphs_on_launches_saved") >= 4.0 && figure("graphs_off_launches_saved") == 0.0, "{report}");
    for devices in [1, 2] {
        let gathers = &report["figures"][format!("gathers_by_nccl_{devices}")];
        assert_eq!((&gathers["by_devices"], &gathers["by_host"]), (&2.into(), &0.into()), "{report}");
    }
    // One new bar by each route; the first tries of five bars are most of the routed ones.
    for name in ["one_bar_sequential_ms", "one_bar_threads_ms", "one_bar_device_ms", "one_bar_routed_ms"] {
        assert!(figure(name) > 0.0, "{name}");
    }
    let routed = ["sequential", "threads", "device"].map(|route| figure(&format!("one_bar_routed_{route}")));
    assert!(routed.iter().sum::<f64>() == 5.0 && routed.iter().all(|pushes| *pushes >= 1.0), "{report}");
    assert!(figure("one_bar_regret").is_finite() && figure("one_bar_regret_by_router") >= -1.0, "{report}");
    assert!(figure("pinned_second_copied_bytes") < figure("pinned_first_copied_bytes") / 2.0, "{report}");
    assert!(figure("coherent_first_copied_bytes") < figure("pinned_first_copied_bytes") / 2.0, "{report}");
    // Kernels that take long enough to bring bars meanwhile; how many come depends on how busy this machine is.
    let report = run(&format!("{DEVICE} kernel_us=30000"));
    let share = |name: &str| report["figures"][format!("prefetch_{name}_hidden_share")].as_f64().expect("a share");
    assert!(share("on") > 0.0 && share("off") == 0.0, "{report}");
    assert!(report["figures"]["coherent_refused"].as_str().is_some_and(|why| why.contains("GH200")), "{report}");
    // Every way over and over: nothing grows.
    let soak = ["bench", "devices", "--soak=2", "--report", "soak.json", "--symbols=70", "--bars=40"];
    let shown = on_device(&home, &format!("{DEVICE} card=gh200"), &soak).expect_code(0).stdout;
    assert!(shown.contains("soak, mode coherent") && shown.contains("SIMULATED"), "{shown}");
    let report = json(&home, "soak.json");
    assert_eq!(report["figures"]["soak_grown"], serde_json::json!([]), "{report}");
    let managed = &report["figures"]["soak_managed"];
    assert!(managed["rounds"].as_u64() >= Some(6) && managed["launches_saved"].as_u64() > Some(0), "{managed}");
    // Without a GPU there are no figures.
    let none = on_device(&home, "fault=cuInit:1+:100", &["bench", "devices"]).expect_code(1);
    assert!(none.stderr.contains("no GPU, so no figures") && none.stdout.is_empty(), "{}", none.stderr);
}

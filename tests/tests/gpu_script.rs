//! `benches/gpu.sh` as it is run on a machine with a GPU, on the test driver: what breaks there costs the time of that machine.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use trawl_test_driver::Driver;
use trawl_tests::executable::{repository, trawl};
use trawl_tests::home::Home;
use trawl_tests::process;

/// A section of the figures, each of which other tests run, and a size that the emulator can do.
const SMALL: [&str; 4] = ["--sections=screen", "--symbols=70", "--bars=40", "--repeats=1"];

/// A program that runs the one under test, compressed as it is taken along.
fn compressed(home: &Home) -> PathBuf {
    let path = home.path("trawl.gz");
    let file = std::fs::File::create(&path).expect("a file");
    let mut gzip = Command::new("gzip").arg("-c").stdin(Stdio::piped()).stdout(file).spawn().expect("gzip");
    let text = format!("#!/bin/sh\nexec '{}' \"$@\"\n", trawl().display());
    gzip.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
    assert!(gzip.wait().expect("it ends").success());
    path
}

fn script(home: &Home, scratch: &Path, arguments: &[&str]) -> Command {
    // The environment of a home, without its program.
    let environment = home.command(&[]);
    let mut script = Command::new(repository().join("benches/gpu.sh"));
    script.env_clear().envs(environment.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let python = std::env::var_os("TRAWL_PYTHON").map(PathBuf::from);
    script.env("PYTHON", python.unwrap_or_else(|| repository().join("target/venv/bin/python")));
    script.envs(Driver::built().environment("memory=200000000"));
    script.arg("--executable").arg(home.path("trawl.gz")).arg("--scratch").arg(scratch).args(arguments);
    script
}

#[test]
fn every_step_runs_on_the_test_driver_and_nothing_simulated_is_kept() {
    let home = Home::new();
    let scratch = home.path("scratch");
    let path = compressed(&home);
    assert!(
        std::fs::metadata(&path).expect("a file").permissions().mode() & 0o111 == 0,
        "the script makes it a program"
    );
    process::run(script(&home, &scratch, &["--dry-run"]).args(SMALL)).expect_code(0);
    let files = || std::fs::read_dir(&scratch).expect("a folder").map(|entry| entry.expect("an entry").path());
    let is_kept = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("gpu-"));
    let kept: Vec<PathBuf> = files().filter(is_kept).collect();
    let [kept] = kept.as_slice() else { panic!("one report: {kept:?}") };
    let report: Value = serde_json::from_slice(&std::fs::read(kept).expect("a file")).expect("JSON");
    assert_eq!(report["simulated"], true);
    let sections = report["sections"].as_array().expect("sections");
    let endings: Vec<_> = sections.iter().map(|s| (s["name"].as_str(), s["ending"].as_str())).collect();
    let [screen, (Some("sanitizer"), _)] = endings[..] else { panic!("{endings:?}") };
    assert_eq!(screen, (Some("screen"), Some("done")));
    for (part, figure) in [("devices", "overlap_4_streams_ratio"), ("soak", "soak_pinned")] {
        assert_eq!(report[part]["how"], "simulated", "{part}");
        assert!(!report[part]["figures"][figure].is_null(), "{part}: {report}");
    }
    assert!(report["peers"]["peers"].is_object(), "{report}");
    // The same steps' results without --dry-run: nothing is kept anywhere.
    let elsewhere = home.path("elsewhere");
    let steps = ["--steps", "keep", "--keep-in", elsewhere.to_str().expect("text")];
    let refused = process::run(&mut script(&home, &scratch, &steps)).expect_code(1);
    assert!(refused.stderr.contains("simulated, so nothing is kept"), "{}", refused.stderr);
    assert_eq!(std::fs::read_dir(elsewhere).expect("a folder").count(), 0);
}

/// A measured report gets the static model's value beside each figure that the model has one of.
#[test]
fn a_report_has_what_the_static_model_says_beside_what_was_measured() {
    let home = Home::new();
    let (measured, kept) = (home.path("figures.json"), home.path("kept.json"));
    let section = |name: &str, figures: Value| json!({"name": name, "ending": "done", "figures": figures});
    let mut report = json!({
        "simulated": false, "symbols": 10_000, "bars": 2_000, "long_bars": 1_000_000,
        "device": {"name": "H100", "compute_capability": "9.0", "multiprocessors": 132},
        "sections": [
            section("screen", json!({"w1_last_bar_ms": 1.0, "w1_all_bars_ms": 3.0, "input_bytes": 1})),
            section("functions", json!({"each": [{"function": "ema", "ms": 1.0}, {"function": "none", "ms": 1.0}]})),
        ],
    });
    let combined = |report: &Value| {
        std::fs::write(&measured, report.to_string()).expect("a file");
        let python = std::env::var_os("TRAWL_PYTHON").unwrap_or_else(|| "python3".into());
        let mut command = Command::new(python);
        command.arg(repository().join("benches/gpu_report.py")).args([&kept, &measured]);
        let said = process::run(&mut command).expect_code(0).stdout;
        (said, serde_json::from_slice::<Value>(&std::fs::read(&kept).expect("a file")).expect("JSON"))
    };
    let (said, with) = combined(&report);
    for (section, figure) in [(0, "w1_last_bar_ms"), (0, "w1_all_bars_ms"), (1, "ema")] {
        let section = &with["sections"][section];
        let modelled = section["modelled"][figure].as_f64().unwrap_or_else(|| panic!("{figure}: {section}"));
        let ratio = section["measured_by_modelled"][figure].as_f64().expect("a ratio");
        let ms = if figure == "w1_all_bars_ms" { 3.0 } else { 1.0 };
        assert!((ratio * modelled / ms - 1.0).abs() < 0.01, "{figure}: {modelled} {ratio}");
        assert!(said.contains(figure) && said.contains("ms modelled"), "{said}");
    }
    assert!(with["sections"][1]["modelled"]["none"].is_null());
    report["device"]["multiprocessors"] = 114.into();
    let (said, without) = combined(&report);
    assert!(said.contains("no figures of this device"), "{said}");
    assert!(without["sections"][0]["modelled"].is_null());
}

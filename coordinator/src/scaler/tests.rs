//! The numbers themselves, and a simulated cluster under an autoscaler as Kubernetes has it.

mod simulation;

use super::*;

fn goal(target_s: f64, hold_s: u64) -> Goal {
    Goal { target_s, hold_s, ..Goal::default() }
}

fn sample(work_s: f64, done_s: f64) -> Sample {
    Sample { work_s, done_s, expected_s: 0.0, scans: usize::from(work_s > 0.0), workers: 2, threads: 8 }
}

#[test]
fn nothing_known_is_nothing_to_do() {
    assert_eq!(Demand::default().reading(&Goal::default()), Reading { active: false, work_s: 0.0 });
}

#[test]
fn work_is_counted_in_seconds_of_one_worker() {
    let mut demand = Demand::default();
    demand.note(1, sample(400.0, 0.0));
    // Four threads each.
    assert_eq!(demand.reading(&Goal::default()), Reading { active: true, work_s: 100.0 });
    let single = Goal { threads_per_worker: Some(1.0), ..Goal::default() };
    assert_eq!(demand.reading(&single).work_s, 400.0);
    // Without workers, the last known number of threads counts.
    demand.note(2, Sample { workers: 0, threads: 0, ..sample(800.0, 0.0) });
    assert_eq!(demand.reading(&Goal::default()).work_s, 200.0);
}

#[test]
fn a_peak_is_held_and_then_forgotten() {
    let mut demand = Demand::default();
    demand.note(10, sample(400.0, 0.0));
    for second in 11..=200 {
        demand.note(second, Sample { scans: 0, ..sample(0.0, 0.0) });
        let reading = demand.reading(&goal(30.0, 60));
        let held = second - 10 <= 60;
        assert_eq!(reading, Reading { active: held, work_s: if held { 100.0 } else { 0.0 } }, "second {second}");
    }
}

#[test]
fn short_scans_that_no_sample_sees_count_by_what_was_computed() {
    let mut demand = Demand::default();
    // Four cores are busy; no sample finds anything left.
    for second in 0..=120 {
        demand.note(second, Sample { scans: 1, ..sample(0.0, 4.0 * second as f64) });
    }
    let reading = demand.reading(&goal(30.0, 60));
    // One worker of four threads is busy for 30 of 30 seconds; it should be for 80 % of them.
    assert!((reading.work_s - 30.0 / BUSY_SHARE).abs() < 1e-9, "{reading:?}");
}

#[test]
fn estimates_are_corrected_by_what_proved_right() {
    let reading = |done_s, expected_s| {
        let mut demand = Demand::default();
        demand.note(1_000, Sample { expected_s, ..sample(400.0, done_s) });
        demand.reading(&Goal::default()).work_s
    };
    assert_eq!(reading(0.0, 0.0), 100.0);
    assert_eq!(reading(30.0, 10.0), 300.0);
    assert_eq!(reading(5.0, 10.0), 50.0);
    // A single short scan, and impossible values.
    assert_eq!(reading(1.0, 1e-6), 100.0);
    assert_eq!(reading(1e9, 1.0), 10_000.0);
}

#[test]
fn samples_are_bounded_and_time_that_runs_backwards_replaces_the_last() {
    let mut demand = Demand::default();
    for second in 0..10_000 {
        demand.note(second, sample(1.0, 0.0));
    }
    assert_eq!(demand.samples.len(), SAMPLES_MAX);
    demand.note(5, sample(99.0, 0.0));
    assert_eq!((demand.samples.len(), demand.samples.back().unwrap().0), (SAMPLES_MAX, 9_999));
    // A counter that decreased counts as no work done.
    demand.note(10_000, sample(0.0, -5.0));
    assert!(demand.reading(&Goal::default()).work_s >= 0.0);
}

#[test]
fn metadata_is_read_and_mistakes_are_reported() {
    let of = |pairs: &[(&str, &str)]| Goal::of(pairs.iter().copied());
    assert_eq!(of(&[("scalerAddress", "trawl:7400")]), Ok(Goal::default()));
    assert_eq!(of(&[("backend", "")]), Ok(Goal::default()));
    assert_eq!(of(&[("backend", "cuda")]).unwrap().backend.as_deref(), Some("cuda"));
    assert_eq!(of(&[("backend", "gpu")]).unwrap_err().to_string(), "backend is 'gpu': 'cpu' or 'cuda' is expected");
    let read = of(&[("targetSecondsPerWorker", "12.5"), ("holdSeconds", "0"), ("threadsPerWorker", "16")]);
    assert_eq!(read, Ok(Goal { target_s: 12.5, hold_s: 0, threads_per_worker: Some(16.0), backend: None }));
    for bad in ["", "abc", "0", "-1", "NaN", "inf", "1e9"] {
        let message = of(&[("targetSecondsPerWorker", bad)]).unwrap_err().to_string();
        assert_eq!(message, format!("targetSecondsPerWorker is '{bad}': a number from 0.1 to 3600 is expected"));
    }
    let message = of(&[("target_seconds_per_worker", "3")]).unwrap_err().to_string();
    assert_eq!(message, "there is no metadata 'target_seconds_per_worker': did you mean 'targetSecondsPerWorker'?");
}

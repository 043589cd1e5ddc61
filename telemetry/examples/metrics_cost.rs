//! Measures what counting and a scrape cost: nanoseconds of each on this machine. `just bench metrics`
//!
//! Each figure is the best of several runs, with one thread and with as many threads as cores counting in the same
//! cell.

use std::time::{Duration, Instant};

use trawl_telemetry::metrics::catalogue::coordinator::DispatchPurpose;
use trawl_telemetry::metrics::catalogue::coordinator::{SCAN_DURATION, SHARDS_DISPATCHED, ScanEnd};
use trawl_telemetry::metrics::{Format, Place, render, trace_of};

const CALLS: u32 = 2_000_000;
const RUNS: usize = 5;

/// Nanoseconds per call, the best of several runs.
fn best(calls: u32, run: impl Fn()) -> f64 {
    let each = || {
        let started = Instant::now();
        run();
        started.elapsed().as_nanos() as f64 / f64::from(calls)
    };
    (0..RUNS).map(|_| each()).fold(f64::INFINITY, f64::min)
}

fn main() {
    let trace = trace_of("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let count = || (0..CALLS).for_each(|_| SHARDS_DISPATCHED.of(std::hint::black_box(DispatchPurpose::Work)).inc());
    let observe = |trace| {
        move || {
            let took = std::hint::black_box(Duration::from_millis(3));
            (0..CALLS).for_each(|_| SCAN_DURATION.observe(ScanEnd::Done, took, trace));
        }
    };
    let together = |run: &(dyn Fn() + Sync)| {
        std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(run))));
    };
    println!("counter                        {:8.1} ns", best(CALLS, count));
    println!("counter, {threads:2} threads on one     {:8.1} ns", best(CALLS, || together(&count)));
    println!("histogram                      {:8.1} ns", best(CALLS, observe(None)));
    println!("histogram with an exemplar     {:8.1} ns", best(CALLS, observe(trace)));
    for place in [Place::Coordinator, Place::Worker] {
        let bytes = render(place, Format::OpenMetrics).len();
        let scrape = best(100, || (0..100).for_each(|_| drop(render(place, Format::OpenMetrics))));
        println!("scrape of a {place:11?}        {scrape:8.0} ns, {bytes} bytes");
    }
}

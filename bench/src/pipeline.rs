//! `trawl bench pipeline`: a scan whose bars are in a bucket, its files fetched in three ways.
//!
//! Sequential: every file is fetched, one after another, then the scan runs. Overlapped: each thread fetches the files of its segment,
//! then computes, so that some compute while others wait for the network. Prefetched, as scans do: threads of their own fetch
//! the next files while the others compute. The ways take turns, each time with an empty cache on this machine, and the answers have to be
//! the same bytes. The store itself may have its own caches, which the first turn, not counted, fills.

// Part of the `trawl` executable.
#![deny(clippy::print_stdout)]

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use trawl_coordinator::local::{self, LocalOptions};
use trawl_coordinator::{NoProgress, PreparedScan, answer_digest, prepare};
use trawl_kernels::{Engine, NoCancel};
use trawl_market::{AsOf, FetchedGroup, Reads, Store};
use trawl_plan::ScanDocument;
use trawl_wire::StepInputV1;
use trawl_wire::error::text_of;
use trawl_worker::{ExecuteError, ScanSource, ScanStep, StepKind};

use super::{Machine, machine};

/// Arguments of `trawl bench pipeline`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Dataset of a data root in a bucket
    #[arg(long, short, value_name = "NAME")]
    dataset: String,

    /// The scan's condition
    #[arg(
        long,
        value_name = "CONDITION",
        default_value = "crosses_above(macd(close, 12, 26, 9).line, macd(close, 12, 26, 9).signal)"
    )]
    r#where: String,

    /// Threads that compute [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,

    /// Times each way is measured
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,

    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// How the files of a scan are fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Sequential,
    Overlapped,
    Prefetched,
}

const WAYS: [Way; 3] = [Way::Sequential, Way::Overlapped, Way::Prefetched];

#[derive(Serialize)]
struct Report {
    benchmark: &'static str,
    dataset: String,
    snapshot: String,
    condition: String,
    backend: String,
    /// Name of the device, where one computes.
    device: Option<String>,
    /// The device is that of the driver for tests, whose clock is modelled: times say how the parts of a scan are ordered, and are no
    /// measurement of a device.
    simulated: bool,
    threads: usize,
    repeats: u32,
    symbols: usize,
    bars: u64,
    /// Files of groups, and their bytes.
    files: usize,
    bytes: u64,
    machine: Machine,
    sequential: Times,
    overlapped: Times,
    prefetched: Times,
    /// The scan alone, with all files on this machine: the smallest of the times behind a sequential fetch.
    computing_s: f64,
}

/// Seconds of each turn of a way, and what was fetched ahead in it.
#[derive(Debug, Clone, Default, Serialize)]
struct Times {
    median_s: f64,
    all_s: Vec<f64>,
    /// Segments whose file was away when the scan began, and on this machine when the segment was: fetched while others were
    /// computed.
    fetched_ahead: Vec<usize>,
}

impl Times {
    fn of(turns: Vec<(f64, usize)>) -> Self {
        let (all_s, fetched_ahead): (Vec<f64>, _) = turns.into_iter().unzip();
        let mut sorted = all_s.clone();
        sorted.sort_by(f64::total_cmp);
        Self { median_s: sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN), all_s, fetched_ahead }
    }
}

/// What one turn took: all of it, and the scan alone.
struct Turn {
    seconds: f64,
    scan_s: f64,
    fetched_ahead: usize,
    digest: String,
    backend: String,
    /// The device that computed, and whether there is none such.
    device: Option<(String, bool)>,
}

/// Measures. `open` opens the data root with its cache in a folder, `choose` says what computes, and refuses a dataset that is in no bucket.
///
/// # Errors
/// Those of `open` and `choose`; a dataset that cannot be read; a scan that fails; answers that differ.
pub fn run(
    args: &Args,
    open: impl Fn(&Path) -> Result<Store>,
    choose: impl Fn(&PreparedScan) -> Result<Engine>,
) -> Result<ExitCode> {
    let document = ScanDocument {
        dataset: Some(args.dataset.clone()),
        condition: args.r#where.clone(),
        ..ScanDocument::default()
    };
    let threads = args.threads.map_or_else(|| machine().cores, |threads| threads as usize);
    let scratch = tempfile::Builder::new().prefix("trawl-pipeline-").tempdir().context("no temporary folder")?;
    let turn = |number: usize, way: Way| -> Result<(Turn, PreparedScan)> {
        let folder = scratch.path().join(number.to_string());
        let prepared = prepare(&open(&folder)?, &document, AsOf::LastSession)?;
        let engine = choose(&prepared)?;
        let prepared = prepared.clone().on(engine.backend());
        let turn = measure(&prepared, engine, way, threads)?;
        // The next turn fetches again, and the disk has room for it.
        std::fs::remove_dir_all(&folder).context("cannot empty the cache")?;
        Ok((turn, prepared))
    };
    // A slow store takes minutes: each turn is reported as it ends.
    let turns = 1 + WAYS.len() * args.repeats as usize;
    let ended = |number: usize, way: Way, turn: &Turn| {
        eprintln!(
            "{} of {turns}: {way:?} took {:.1} s{}",
            number + 1,
            turn.seconds,
            if number == 0 { ", not counted" } else { "" }
        );
    };
    let (first, prepared) = turn(0, Way::Prefetched)?;
    ended(0, Way::Prefetched, &first);
    let mut all: [Vec<(f64, usize)>; 3] = Default::default();
    let mut computing = f64::INFINITY;
    for number in 0..args.repeats as usize {
        for (at, way) in WAYS.into_iter().enumerate() {
            let number = 1 + WAYS.len() * number + at;
            let (found, _) = turn(number, way)?;
            ended(number, way, &found);
            ensure!(found.digest == first.digest, "the answer of {way:?} differs from that of the first turn");
            all[at].push((found.seconds, found.fetched_ahead));
            if way == Way::Sequential {
                computing = computing.min(found.scan_s);
            }
        }
    }
    let [sequential, overlapped, prefetched] = all.map(Times::of);
    let manifest = &prepared.dataset.manifest;
    let report = Report {
        benchmark: "pipeline",
        dataset: args.dataset.clone(),
        snapshot: prepared.identity.snapshot.clone(),
        condition: args.r#where.clone(),
        backend: first.backend,
        simulated: first.device.as_ref().is_some_and(|(_, is_emulated)| *is_emulated),
        device: first.device.map(|(name, _)| name),
        threads,
        repeats: args.repeats,
        symbols: manifest.symbols.len(),
        bars: manifest.bars,
        files: manifest.files.len(),
        bytes: manifest.files.iter().map(|file| file.bytes).sum(),
        machine: machine(),
        sequential,
        overlapped,
        prefetched,
        computing_s: computing,
    };
    let text = if args.json { serde_json::to_string_pretty(&report)? + "\n" } else { table(&report) };
    io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// One turn of a prepared scan whose files are not on this machine.
fn measure(prepared: &PreparedScan, engine: Engine, way: Way, threads: usize) -> Result<Turn> {
    let (lowering, _) = prepared.lowering();
    let device = match &engine {
        Engine::Cpu => None,
        Engine::Device(executor) | Engine::Chunks(executor) => {
            Some((executor.facts().name.clone(), executor.facts().is_emulated()))
        }
    };
    let source = ScanSource { engine: engine.lowered(lowering), ..prepared.source() };
    let began = Instant::now();
    // What the last step reads, which the ones before it read as well in the plans that are worth measuring.
    let step = ScanStep { stage: prepared.plan.stages().len().saturating_sub(1), kind: StepKind::Values };
    let of = |segment: u32| source.reads_of(segment, step, &StepInputV1::default());
    let is_here = |segment: u32| {
        let (columns, newest) = of(segment);
        prepared.dataset.is_here(segment, &Reads { columns: &columns, adjustment: &source.adjustment, newest })
    };
    if way == Way::Sequential {
        for segment in prepared.segments.iter().copied() {
            let (columns, newest) = of(segment);
            let reads = Reads { columns: &columns, adjustment: &source.adjustment, newest };
            let fetched = prepared.dataset.fetch_group(segment, &reads)?;
            ensure!(fetched == FetchedGroup::Here, "the cache is too small: raise --data-cache-bytes");
        }
    }
    let away: BTreeSet<u32> = prepared.segments.iter().copied().filter(|segment| !is_here(*segment)).collect();
    let fetched_ahead = AtomicUsize::new(0);
    let scanning = Instant::now();
    let failed = |error: &ExecuteError| (error.kind(), text_of(error));
    let references = source.load_references();
    let execute = |segment, step, input: &_, stages: &mut _| {
        let was_fetched = away.contains(&segment) && is_here(segment);
        fetched_ahead.fetch_add(usize::from(was_fetched), Ordering::Relaxed);
        let references = references.as_ref().map_err(failed)?;
        source.execute(segment, step, input, references, &NoCancel, stages).map_err(|error| failed(&error))
    };
    let options = LocalOptions {
        threads,
        whole_histories: device.is_some(),
        no_prefetch: way == Way::Overlapped,
        ..LocalOptions::default()
    };
    let (answer, report) = local::run(prepared, options, execute, &NoProgress)?;
    let (seconds, scan_s) = (began.elapsed().as_secs_f64(), scanning.elapsed().as_secs_f64());
    let fetched_ahead = fetched_ahead.into_inner();
    Ok(Turn { seconds, scan_s, fetched_ahead, digest: answer_digest(&answer), backend: report.backend, device })
}

fn table(report: &Report) -> String {
    let device = report.device.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
    let simulated = if report.simulated {
        "SIMULATED: the device's clock is modelled, nothing here was measured on one\n"
    } else {
        ""
    };
    let mut text = format!(
        "{simulated}{} of {} symbols, {} bars in {} files of {:.1} MB, on {}{device} with {} threads\n",
        report.dataset,
        report.symbols,
        report.bars,
        report.files,
        report.bytes as f64 / 1e6,
        report.backend,
        report.threads
    );
    let ways =
        [("sequential", &report.sequential), ("overlapped", &report.overlapped), ("prefetched", &report.prefetched)];
    for (name, times) in ways {
        let all: Vec<String> = times.all_s.iter().map(|seconds| format!("{seconds:.3}")).collect();
        let ratio = report.sequential.median_s / times.median_s;
        let ahead = times.fetched_ahead.iter().max().copied().unwrap_or(0);
        text += &format!(
            "  {name:<11} {:>9.3} s  {ratio:>5.2}x  ({}), {ahead} files fetched ahead\n",
            times.median_s,
            all.join(", ")
        );
    }
    text += &format!("  {:<11} {:>9.3} s  with all files here\n", "scan alone", report.computing_s);
    text
}

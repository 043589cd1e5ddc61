//! Times on the device, by its own clock, compared with what its memory bandwidth allows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use rayon::prelude::*;
use trawl_kernels::cuda::{BarsSource, CELL_BYTES, Device, Executor, Lowering, SourceSymbol, Urgency};
use trawl_kernels::stages::{EngineStage, Stages};
use trawl_kernels::{Executable, NoCancel, Precision, SymbolInput, Values};
use trawl_plan::{Input, Plan, Program, Schema, compile_expressions};

use super::{Ending, Outcome, Size};
use crate::walk;
use crate::{COLUMNS, SCREEN};

/// Cells that are copied: 2 GiB on a device that has them, or a quarter of its memory.
const COPY_CELLS_MAX: usize = 1 << 28;
/// Largest allowed difference from the CPU's values over chunks of a history, relative to the output's largest value.
pub(super) const CHUNK_ERROR_MAX: f64 = 1e-12;
/// Times a copy is measured, at least.
const COPIES: usize = 10;
/// How long a device computes before it is measured, and how long that may take with all that is beside it.
const WARM_UP: Duration = Duration::from_millis(300);
const WARM_UP_MAX: Duration = Duration::from_secs(2);

pub(crate) fn compiled(items: &[&str]) -> Result<Plan> {
    let items: Vec<String> = items.iter().enumerate().map(|(i, item)| format!("{item} as o{i}")).collect();
    let schema = Schema::of_columns(COLUMNS.map(str::to_owned).to_vec());
    compile_expressions(&items, "bench", &schema).map_err(|d| anyhow!("{}", d[0]))
}

/// Adaptive Trend Classification at its default settings.
pub(super) const ATC: &str = "atc().signal";

pub(crate) fn screen_items() -> Vec<&'static str> {
    SCREEN.iter().flat_map(|(_, items)| items.iter().copied()).collect()
}

/// The synthetic market.
pub(crate) fn market(symbols: u32, bars: u32) -> Vec<[Vec<f64>; 5]> {
    (0..u64::from(symbols)).into_par_iter().map(|symbol| walk(symbol, bars as usize)).collect()
}

pub(crate) fn inputs<'a>(program: &Program, market: &'a [[Vec<f64>; 5]]) -> Result<Vec<SymbolInput<'a>>> {
    let columns = program.inputs.iter().map(|input| match input {
        Input::Column(name) => COLUMNS.iter().position(|c| c == name),
        _ => None,
    });
    let columns: Option<Vec<usize>> = columns.collect();
    let columns = columns.ok_or_else(|| anyhow!("the plan reads more than columns"))?;
    let symbol = |symbol: &'a [Vec<f64>; 5]| SymbolInput {
        columns: columns.iter().map(|c| symbol[*c].as_slice()).collect(),
        visible: symbol[0].len(),
    };
    Ok(market.iter().map(symbol).collect())
}

/// A program over a market whose bars stay on the device.
struct Measured<'a> {
    executor: &'a Executor,
    program: &'a Executable,
    symbols: &'a [SymbolInput<'a>],
    /// Names by which bars are known on the device.
    names: Vec<String>,
    from: Vec<usize>,
    lowering: Lowering,
}

impl<'a> Measured<'a> {
    /// `all`: every bar, otherwise the last.
    fn new(executor: &'a Executor, program: &'a Executable, symbols: &'a [SymbolInput<'a>], all: bool) -> Self {
        let names = (0..symbols.len()).map(|i| i.to_string()).collect();
        let from = symbols.iter().map(|s| if all { 0 } else { s.visible - 1 }).collect();
        Self { executor, program, symbols, names, from, lowering: Lowering::Serial }
    }

    /// Time of the kernels of one run. The first run uploads the bars.
    fn once(&self) -> Result<Duration> {
        let (executor, program, symbols, from) = (self.executor, self.program, self.symbols, &self.from);
        let names: Vec<SourceSymbol<'_>> = self.names.iter().map(|name| name.as_str().into()).collect();
        let source = BarsSource { bars: Arc::from("bench"), group: 0, symbols: &names };
        let (source, mut stages) = (Some(&source), Stages::default());
        match self.lowering {
            Lowering::Serial => executor.compute_only(program, symbols, from, source, &mut stages)?,
            Lowering::Chunks => {
                executor.evaluate_in_chunks(program, symbols, from, source, &NoCancel, &mut stages, false)?;
            }
        }
        let spans = stages.spans().iter().filter(|span| span.stage == EngineStage::Kernel);
        Ok(spans.map(|span| span.ended.saturating_duration_since(span.started)).sum())
    }

    /// Computes until the device's clock has risen: idle, it runs at a fifth of its speed. An emulated one has no clock.
    fn warm_up(&self) -> Result<()> {
        let has_clock = !self.executor.facts().is_emulated();
        let (begun, mut computed) = (Instant::now(), self.once()?);
        while has_clock && computed < WARM_UP && begun.elapsed() < WARM_UP_MAX {
            computed += self.once()?;
        }
        Ok(())
    }

    /// Times of repeated runs, ascending.
    fn times(&self, repeats: u32) -> Result<Vec<Duration>> {
        let mut times = (0..repeats).map(|_| self.once()).collect::<Result<Vec<Duration>>>()?;
        times.sort_unstable();
        Ok(times)
    }
}

/// Kernel times of repeated runs on a device that is warm, ascending. `all`: every bar, otherwise the last.
pub(super) fn kernel_times(
    executor: &Executor,
    program: &Executable,
    symbols: &[SymbolInput<'_>],
    all: bool,
    repeats: u32,
) -> Result<Vec<Duration>> {
    let measured = Measured::new(executor, program, symbols, all);
    measured.warm_up()?;
    measured.times(repeats)
}

/// As [`kernel_times`] of last bars, where the device is warm already: after one run that is not counted.
pub(super) fn warm_times(
    executor: &Executor,
    program: &Executable,
    symbols: &[SymbolInput<'_>],
    repeats: u32,
) -> Result<Vec<Duration>> {
    let measured = Measured::new(executor, program, symbols, false);
    measured.once()?;
    measured.times(repeats)
}

pub(super) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Adds the figures of one measurement: fastest and median time, and bytes per second of the fastest.
/// `targets`: what the project requires and aims at, in f64 on an H100 or H200, as words; empty without any.
fn record(outcome: &mut Outcome, name: &str, times: &[Duration], bytes: f64, targets: &str) {
    let (Some(best), middle) = (times.first(), times[times.len() / 2]) else { return };
    let rate = bytes / best.as_secs_f64().max(1e-9);
    outcome.figure(&format!("{name}_ms"), ms(*best));
    outcome.figure(&format!("{name}_median_ms"), ms(middle));
    outcome.figure(&format!("{name}_bytes_per_s"), rate);
    outcome.line(name, format!("{:.3} ms ({:.3} median{targets}), {:.2} TB/s", ms(*best), ms(middle), rate / 1e12));
}

/// The fastest copy within a device.
pub(super) struct Copied {
    bytes: usize,
    /// Read and written.
    pub bytes_per_s: f64,
}

/// Copies within the device.
///
/// # Errors
/// The device fails, or a copy does not end.
pub(super) fn copied(device: &dyn Device) -> Result<Copied> {
    let stream = device.stream(Urgency::Batch)?;
    let free = usize::try_from(device.free_bytes()?).unwrap_or(usize::MAX) / CELL_BYTES;
    let cells = COPY_CELLS_MAX.min(free / 4).max(1);
    let (from, to) = (device.allocate(stream, cells)?, device.allocate(stream, cells)?);
    let (begun, mut done, mut best) = (Instant::now(), 0, Duration::MAX);
    while done < COPIES || !device.facts().is_emulated() && begun.elapsed() < WARM_UP {
        let first = device.mark(stream)?;
        device.copy_within(stream, (&from, 0), (&to, 0), cells)?;
        let last = device.mark(stream)?;
        ensure!(device.wait(&last, device.now() + Duration::from_secs(20))?, "a copy did not end");
        best = best.min(device.between(&first, &last)?);
        device.forget(first);
        device.forget(last);
        done += 1;
    }
    device.release(stream, from);
    device.release(stream, to);
    let bytes = cells * CELL_BYTES;
    Ok(Copied { bytes, bytes_per_s: 2.0 * bytes as f64 / best.as_secs_f64().max(1e-9) })
}

/// A copy within the device: bytes read and written per second.
pub(super) fn copy(device: &dyn Device) -> Result<Outcome> {
    let Copied { bytes, bytes_per_s } = copied(device)?;
    let mut outcome = Outcome::done();
    outcome.figure("copied_bytes", bytes);
    outcome.figure("copy_bytes_per_s", bytes_per_s);
    outcome.line("copy within the device, read and written", format!("{:.2} TB/s", bytes_per_s / 1e12));
    Ok(outcome)
}

/// Bytes of a number.
pub(super) fn number_bytes(precision: Precision) -> usize {
    match precision {
        Precision::F64 => size_of::<f64>(),
        Precision::F32 => size_of::<f32>(),
    }
}

/// Targets that are those of f64.
fn in_f64(precision: Precision, targets: &'static str) -> &'static str {
    match precision {
        Precision::F64 => targets,
        Precision::F32 => "",
    }
}

/// The screen W1 over a market that is resident on the device.
pub(super) fn screen(executor: &Executor, size: &Size, precision: Precision) -> Result<Outcome> {
    let plan = compiled(&screen_items())?;
    let program = &Executable::new(plan.program(), precision);
    let market = market(size.symbols, size.bars);
    let symbols = inputs(program, &market)?;
    let cells = f64::from(size.symbols) * f64::from(size.bars) * number_bytes(precision) as f64;
    let (read, written) = (cells * program.inputs.len() as f64, cells * program.outputs.len() as f64);
    let mut outcome = Outcome::done();
    outcome.figure("input_bytes", read);
    let last = kernel_times(executor, program, &symbols, false, size.repeats)?;
    record(&mut outcome, "w1_last_bar", &last, read, in_f64(precision, ", required 0.6, goal 0.4"));
    let all = kernel_times(executor, program, &symbols, true, size.repeats.min(5))?;
    record(&mut outcome, "w1_all_bars", &all, read + written, in_f64(precision, ", required twice the memory's time"));
    Ok(outcome)
}

/// Adaptive Trend Classification over a market that is resident on the device.
pub(super) fn atc(executor: &Executor, size: &Size, precision: Precision) -> Result<Outcome> {
    let plan = compiled(&[ATC])?;
    let program = &Executable::new(plan.program(), precision);
    let market = market(size.symbols, size.bars);
    let symbols = inputs(program, &market)?;
    let bar_bytes = number_bytes(precision) * program.inputs.len();
    let read = f64::from(size.symbols) * f64::from(size.bars) * bar_bytes as f64;
    let mut outcome = Outcome::done();
    let times = kernel_times(executor, program, &symbols, false, size.repeats.min(5))?;
    record(&mut outcome, "atc_last_bar", &times, read, in_f64(precision, ", required 6, goal 4"));
    Ok(outcome)
}

/// One symbol with a long history, every bar of the screen, compared with one core.
pub(super) fn long(executor: &Executor, size: &Size) -> Result<Outcome> {
    let plan = compiled(&screen_items())?;
    let program = &Executable::new(plan.program(), Precision::F64);
    let market = market(1, size.long_bars);
    let symbols = inputs(program, &market)?;
    let begun = Instant::now();
    let cpu = program.evaluate_from(&symbols, &[0], &NoCancel)?;
    let core = begun.elapsed();
    let chunks = Measured { lowering: Lowering::Chunks, ..Measured::new(executor, program, &symbols, true) };
    chunks.warm_up()?;
    let times = chunks.times(size.repeats)?;
    let mut stages = Stages::default();
    let device = executor.evaluate_in_chunks(program, &symbols, &[0], None, &NoCancel, &mut stages, true)?;
    let mut outcome = Outcome::done();
    let bytes = f64::from(size.long_bars) * (CELL_BYTES * (program.inputs.len() + program.outputs.len())) as f64;
    record(&mut outcome, "w1_one_symbol", &times, bytes, ", required 4");
    // A single thread that goes through all bars may exceed the time limit of a batch.
    if let Ok(serial) = Measured::new(executor, program, &symbols, true).times(1) {
        record(&mut outcome, "w1_one_symbol_serial", &serial, bytes, "");
    }
    let ratio = core.as_secs_f64() / times[0].as_secs_f64().max(1e-9);
    outcome.figure("one_core_ms", ms(core));
    outcome.figure("times_one_core", ratio);
    outcome.line("times as fast as one core", format!("{ratio:.1}, required 20"));
    let error = largest_error(&cpu, &device);
    outcome.figure("largest_error", error);
    outcome.line("largest difference to the CPU", format!("{error:.1e} of an output's largest value, allowed 1e-12"));
    if error.is_nan() || error > CHUNK_ERROR_MAX {
        (outcome.ending, outcome.why) = (Ending::Failed, "values differ from the CPU's".to_owned());
    }
    Ok(outcome)
}

/// The largest difference, relative to the largest value of the same output; NaN where one value is defined and the
/// other is not.
pub(super) fn largest_error(a: &Values, b: &Values) -> f64 {
    let mut largest = 0.0f64;
    let all = (0..a.symbols()).flat_map(|symbol| (0..a.outputs()).map(move |output| (symbol, output)));
    for (symbol, output) in all {
        let (a, b) = (a.series(symbol, output), b.series(symbol, output));
        let scale = a.iter().filter(|x| x.is_finite()).fold(0.0f64, |scale, x| scale.max(x.abs()));
        for (a, b) in a.iter().zip(b).filter(|(a, b)| a.to_bits() != b.to_bits()) {
            if a.is_nan() || b.is_nan() {
                return f64::NAN;
            }
            largest = largest.max((a - b).abs() / scale.max(f64::MIN_POSITIVE));
        }
    }
    largest
}

//! How long a plan that nobody has run before takes to answer: on a machine without compiled kernels, on one that has those of the
//! primitives, and with other numbers in a plan that is known. Kernels are warmed as a worker warms them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use trawl_kernels::cuda::{BarsSource, Cache, Device, Executor, ExecutorOptions, Key, Sequence, SourceSymbol};
use trawl_kernels::stages::{EngineStage, Stages};
use trawl_kernels::{Executable, NoCancel, Precision};
use trawl_plan::Program;
use trawl_plan::catalogue::samples;

use super::figures::{compiled, inputs, market, ms};
use super::{Outcome, Size};

/// How long the compiler may take for one plan's kernel, and for those of all primitives.
const FUSED_MAX: Duration = Duration::from_secs(20);
const PRIMITIVES_MAX: Duration = Duration::from_secs(90);
/// Between looks at what was compiled.
const POLL: Duration = Duration::from_millis(5);
/// Runs of a known plan with other numbers.
const OTHER_NUMBERS: u32 = 5;

/// A plan of two outputs with the numbers `a` and `b`.
fn cold(a: u32, b: u32) -> [String; 2] {
    [
        format!("rsi(close,{a}) < {b} and close > sma(close,{b}) and adx({a}) > 20"),
        format!("macd(close,{a},{b},9).hist"),
    ]
}

/// Another of the same size.
fn warm(a: u32, b: u32) -> [String; 2] {
    [
        format!("mfi({a}) < {b} and close > ema(close,{b}) and cci({a}) > 20"),
        format!("bbands(close,{b},2).upper - atr({a})"),
    ]
}

/// Reads every column, so that all bars are on the device afterwards.
fn columns() -> [String; 2] {
    ["open + high + low".to_owned(), "close * volume".to_owned()]
}

/// What a worker warms when it starts, or a part of it.
fn primitives(functions: Option<usize>) -> Vec<Program> {
    let program = |items: &Vec<String>| {
        let items: Vec<&str> = items.iter().map(String::as_str).collect();
        Some(compiled(&items).ok()?.program().clone())
    };
    samples().iter().take(functions.unwrap_or(usize::MAX)).filter_map(program).collect()
}

fn program(items: &[String; 2]) -> Result<Executable> {
    Ok(Executable::new(compiled(&items.each_ref().map(String::as_str))?.program(), Precision::F64))
}

struct World<'a> {
    executor: Executor,
    market: &'a [[Vec<f64>; 5]],
}

impl<'a> World<'a> {
    /// An executor that warms its primitives, as a worker has one.
    fn start(
        device: &Arc<dyn Device>,
        cache: Cache,
        market: &'a [[Vec<f64>; 5]],
        functions: Option<usize>,
    ) -> Result<Self> {
        let executor = Executor::new(Arc::clone(device), cache, ExecutorOptions::default())?;
        executor.warm(primitives(functions));
        Ok(Self { executor, market })
    }

    /// The time of an answer of last bars, and the device's share of it.
    fn scan(&self, items: &[String; 2]) -> Result<(Duration, Duration)> {
        let names: Vec<String> = (0..self.market.len()).map(|i| i.to_string()).collect();
        let names: Vec<SourceSymbol<'_>> = names.iter().map(|name| name.as_str().into()).collect();
        let source = BarsSource { bars: Arc::from("bench"), group: 0, symbols: &names };
        let (begun, mut stages) = (Instant::now(), Stages::default());
        let executable = program(items)?;
        let symbols = inputs(&executable, self.market)?;
        let from: Vec<usize> = symbols.iter().map(|s| s.visible - 1).collect();
        self.executor.evaluate_from(&executable, &symbols, &from, Some(&source), &NoCancel, &mut stages)?;
        let spans = stages.spans().iter().filter(|span| span.stage == EngineStage::Kernel);
        let kernel = spans.map(|span| span.ended.saturating_duration_since(span.started)).sum();
        Ok((begun.elapsed(), kernel))
    }
}

/// Waits until a condition holds.
fn until(what: &str, limit: Duration, holds: impl Fn() -> bool) -> Result<()> {
    let end = Instant::now() + limit;
    while !holds() {
        if Instant::now() >= end {
            bail!("{what} within {} s", limit.as_secs());
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// Waits until `cache` holds every kernel of the primitives.
fn all_primitives(cache: &Cache, device: &dyn Device, functions: Option<usize>) -> Result<()> {
    let facts = device.facts();
    let mut keys: Vec<Key> = Vec::new();
    for program in primitives(functions) {
        let Ok(apart) = Sequence::apart(&program) else { continue };
        keys.extend(apart.calls.iter().map(|call| Key {
            fingerprint: call.lowered.kernel.fingerprint,
            architecture: facts.architecture(),
            compiler: facts.compiler,
        }));
    }
    let what = "the kernels of all primitives were not compiled";
    until(what, PRIMITIVES_MAX, || keys.iter().all(|key| cache.known(*key).is_some()))
}

/// The section.
pub(super) fn first(device: &Arc<dyn Device>, size: &Size) -> Result<Outcome> {
    let folder = tempfile::tempdir().context("a folder for kernels")?;
    // A folder within it: the cache makes its own, which nobody else may enter.
    let cache = || Cache::in_folder(&folder.path().join("kernels")).map_err(|e| anyhow!(e));
    let market = market(size.symbols, size.bars);
    let mut outcome = Outcome::done();

    let world = World::start(device, cache()?, &market, size.functions)?;
    let begun = Instant::now();
    let (answered, _) = world.scan(&cold(14, 30))?;
    outcome.figure("first_answer_ms", ms(answered));
    outcome.line("first scan, nothing compiled, with upload", format!("{:.0} ms, required 3000", ms(answered)));
    let known = program(&cold(14, 30))?;
    until("the fused kernel was not compiled", FUSED_MAX, || world.executor.is_fused(&known))?;
    outcome.figure("fused_after_ms", ms(begun.elapsed()));
    outcome.line("until its fused kernel answers", format!("{:.0} ms", ms(begun.elapsed())));
    let mut best = Duration::MAX;
    for other in 1..=OTHER_NUMBERS {
        let (answered, kernel) = world.scan(&cold(14 + other, 30 + other))?;
        best = best.min(answered.saturating_sub(kernel));
    }
    outcome.figure("new_numbers_beyond_compute_ms", ms(best));
    outcome.line("the same with other numbers, beyond compute", format!("{:.2} ms, required 5", ms(best)));
    all_primitives(&cache()?, device.as_ref(), size.functions)?;
    outcome.figure("primitives_after_ms", ms(begun.elapsed()));
    outcome.line("until all primitives are compiled", format!("{:.0} ms", ms(begun.elapsed())));
    drop(world);

    // A process that starts where others have run.
    let world = World::start(device, cache()?, &market, size.functions)?;
    world.scan(&columns())?;
    let (answered, kernel) = world.scan(&warm(14, 30))?;
    outcome.figure("first_answer_warm_cache_ms", ms(answered));
    outcome.figure("first_answer_warm_cache_kernel_ms", ms(kernel));
    let text = format!("{:.1} ms ({:.1} of them kernels), required 50", ms(answered), ms(kernel));
    outcome.line("first scan of a new plan, warm cache, bars there", text);
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use trawl_test_driver::TestDevice;

    use super::*;

    #[test]
    fn a_cold_cache_and_a_warm_one_are_measured_apart() {
        let device: Arc<dyn Device> = Arc::new(TestDevice::new("").open());
        let size = Size { symbols: 40, bars: 60, long_bars: 1, repeats: 1, functions: Some(3) };
        let outcome = first(&device, &size).unwrap();
        for name in ["first_answer_ms", "fused_after_ms", "primitives_after_ms", "first_answer_warm_cache_ms"] {
            assert!(outcome.figures[name].as_f64().unwrap() >= 0.0, "{name}");
        }
    }
}

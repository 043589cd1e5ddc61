//! The same measurement many times over: W1 by the number of symbols, and each function of the catalogue by itself.

use std::time::Duration;

use anyhow::Result;
use rayon::prelude::*;
use serde_json::json;
use trawl_kernels::cuda::{Device, Executor};
use trawl_kernels::{Executable, Precision};
use trawl_plan::Input;
use trawl_plan::catalogue::{Function, functions, sample};

use super::figures::{compiled, copied, inputs, kernel_times, market, ms, number_bytes, screen_items, warm_times};
use super::{Outcome, Size};

/// Symbols in whole rounds of blocks of 32 on 132 multiprocessors: 1, 2, 3 and 4 blocks on each.
const WAVES: [u32; 4] = [4_224, 8_448, 12_672, 16_896];
/// Runs of one function; the fastest counts.
const RUNS: u32 = 3;
/// A function that takes longer than so many times what its bars take to read is listed.
const TIMES_MEMORY_MAX: f64 = 3.0;
/// Symbols of the market over which kernels are compiled ahead.
const COMPILED_OVER: usize = 32;

/// W1's last bar by the number of symbols, whatever `--symbols` says.
pub(super) fn waves(executor: &Executor, size: &Size) -> Result<Outcome> {
    let plan = compiled(&screen_items())?;
    let program = &Executable::new(plan.program(), Precision::F64);
    let market = market(WAVES.into_iter().max().unwrap_or(0), size.bars);
    let symbols = inputs(program, &market)?;
    let mut outcome = Outcome::done();
    for count in WAVES {
        let times = kernel_times(executor, program, &symbols[..count as usize], false, size.repeats)?;
        outcome.figure(&format!("w1_{count}_symbols_ms"), ms(times[0]));
        outcome.figure(&format!("w1_{count}_symbols_median_ms"), ms(times[times.len() / 2]));
        outcome.line(format!("W1, last bar, {count} symbols"), format!("{:.3} ms", ms(times[0])));
    }
    Ok(outcome)
}

/// A function of the catalogue: its name, and what computes its outputs.
struct Alone {
    name: &'static str,
    executable: Executable,
}

/// Functions that read columns of bars alone.
fn alone(function: &Function, precision: Precision) -> Option<Alone> {
    let items = sample(function);
    let items: Vec<&str> = items.iter().map(String::as_str).collect();
    let executable = Executable::new(compiled(&items).ok()?.program(), precision);
    let columns = executable.inputs.iter().all(|input| matches!(input, Input::Column(_)));
    (columns && !executable.inputs.is_empty()).then_some(Alone { name: function.name, executable })
}

/// The last bar of each function by itself, beside the time that its bars take to read.
pub(super) fn each_function(
    device: &dyn Device,
    executor: &Executor,
    size: &Size,
    precision: Precision,
) -> Result<Outcome> {
    let wanted = functions().take(size.functions.unwrap_or(usize::MAX));
    let all: Vec<Alone> = wanted.filter_map(|function| alone(function, precision)).collect();
    let market = market(size.symbols, size.bars);
    let few = &market[..market.len().min(COMPILED_OVER)];
    // Compiled first, several at a time.
    all.par_iter().try_for_each(|one| {
        let symbols = inputs(&one.executable, few)?;
        warm_times(executor, &one.executable, &symbols, 0).map(drop)
    })?;
    let rate = copied(device)?.bytes_per_s;
    let bar_bytes = f64::from(size.symbols) * f64::from(size.bars) * number_bytes(precision) as f64;
    if let Some(one) = all.first() {
        kernel_times(executor, &one.executable, &inputs(&one.executable, &market)?, false, 1)?;
    }
    let (mut rows, mut slow, mut sum, mut memory_sum) = (Vec::new(), Vec::new(), Duration::ZERO, 0.0);
    for Alone { name, executable } in &all {
        let times = warm_times(executor, executable, &inputs(executable, &market)?, RUNS)?;
        // A copy reads and writes: its rate counts both.
        let memory_ms = 1e3 * bar_bytes * executable.inputs.len() as f64 / rate;
        let times_memory = ms(times[0]) / memory_ms;
        (sum, memory_sum) = (sum + times[0], memory_sum + memory_ms);
        rows.push(
            json!({ "function": name, "ms": ms(times[0]), "memory_ms": memory_ms, "times_memory": times_memory }),
        );
        if times_memory > TIMES_MEMORY_MAX {
            slow.push((times_memory, *name, ms(times[0])));
        }
    }
    slow.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut outcome = Outcome::done();
    outcome.figure("functions", rows.len());
    outcome.figure("sum_ms", ms(sum));
    outcome.figure("memory_sum_ms", memory_sum);
    outcome.figure("slower_than_3_times_memory", slow.len());
    outcome.figure("each", rows);
    let text = format!("{}, {:.1} ms, {memory_sum:.1} ms", all.len(), ms(sum));
    outcome.line("functions, sum of times, of memory times", text);
    outcome.line("slower than 3 times memory", slow.len().to_string());
    for (times_memory, name, ms) in slow {
        outcome.line(format!("  {name}"), format!("{ms:.3} ms, {times_memory:.1} times"));
    }
    Ok(outcome)
}

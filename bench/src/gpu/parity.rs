//! Whether the device gives the CPU engine's values: every function of the catalogue over synthetic bars, fused in both
//! precisions and one primitive at a time with the same bits, and over chunks of longer histories, where it can be cut, to their tolerance.

use std::sync::{Arc, Mutex};

use anyhow::{Result, anyhow, ensure};
use rayon::prelude::*;
use trawl_kernels::cuda::{CHUNK_BARS, Device, Executor, Sequence};
use trawl_kernels::stages::Stages;
use trawl_kernels::{Executable, NoCancel, Precision, SymbolInput};
use trawl_plan::catalogue::{Function, functions, sample};
use trawl_plan::{Input, Program};

use super::figures::{CHUNK_ERROR_MAX, compiled, largest_error};
use super::unfused::Unfused;
use super::{Ending, Outcome, Size, executor};
use crate::COLUMNS;
use crate::walk;

/// Functions in one plan.
const TOGETHER: usize = 12;
/// Bars of the longest symbol.
const BARS: usize = 500;
/// Most differences that are reported.
const SHOWN_MAX: usize = 20;

/// Symbols with lengths around the sizes of tiles and warps; some with missing and infinite values, constant prices,
/// days without trades, and prices at both ends of the number range.
fn market() -> Vec<[Vec<f64>; 5]> {
    let lengths = [1, 2, 15, 16, 17, 31, 32, 33, 47, 100, 161, BARS];
    let symbols = lengths.iter().cycle().take(70).enumerate();
    symbols
        .map(|(number, bars)| {
            let mut columns = walk(number as u64, *bars);
            let at = |k: usize| (0..*bars).skip(k).step_by(23);
            match number % 6 {
                1 => at(3).for_each(|bar| columns[number % 5][bar] = f64::NAN),
                2 => at(5).for_each(|bar| columns[number % 5][bar] = f64::INFINITY),
                3 => columns.iter_mut().take(4).for_each(|column| column.fill(25.0)),
                4 => at(0).for_each(|bar| columns[4][bar] = 0.0),
                5 => at(7).for_each(|bar| columns[number % 5][bar] = if bar % 2 == 0 { 1e308 } else { 5e-324 }),
                _ => {}
            }
            columns
        })
        .collect()
}

/// How a plan is computed.
#[derive(Clone, Copy)]
enum Way<'a> {
    Fused(&'a Executor),
    /// Fused, in `f32`.
    Short(&'a Executor),
    Apart(&'a Executor, &'a Unfused),
}

/// The result of comparing a plan.
struct Compared {
    values: u64,
    differs: Vec<String>,
}

fn compare(way: Way<'_>, items: &[String], market: &[[Vec<f64>; 5]], begins: &[f64]) -> Result<Compared> {
    let texts: Vec<&str> = items.iter().map(String::as_str).collect();
    let plan = compiled(&texts)?;
    let precision = if matches!(way, Way::Short(_)) { Precision::F32 } else { Precision::F64 };
    let program = &Executable::new(plan.program(), precision);
    let symbols = market.iter().map(|columns| input(program, columns, begins)).collect::<Result<Vec<_>>>()?;
    let (executor, is_unfused) = match way {
        Way::Fused(executor) | Way::Short(executor) => (executor, false),
        Way::Apart(executor, unfused) => (executor, unfused.refuse_fused(program)?),
    };
    let mut compared = Compared { values: 0, differs: Vec::new() };
    for last in [false, true] {
        let from: Vec<usize> = symbols.iter().map(|s| if last { s.visible - 1 } else { 0 }).collect();
        let cpu = program.evaluate_from(&symbols, &from, &NoCancel)?;
        let device = executor.evaluate_from(program, &symbols, &from, None, &NoCancel, &mut Stages::default())?;
        for symbol in 0..symbols.len() {
            for (output, item) in items.iter().enumerate() {
                let (cpu, device) = (cpu.series(symbol, output), device.series(symbol, output));
                compared.values += cpu.len() as u64;
                let other = |(a, b): (&f64, &f64)| a.to_bits() != b.to_bits();
                if let Some(bar) = cpu.iter().zip(device).position(other) {
                    let (a, b) = (cpu[bar], device[bar]);
                    compared.differs.push(format!("{item}: symbol {symbol} bar {bar}: CPU {a:?}, device {b:?}"));
                }
            }
        }
    }
    ensure!(!(is_unfused && executor.is_fused(program)), "a fused kernel answered for a primitive at a time");
    Ok(compared)
}

fn input<'a>(program: &Program, columns: &'a [Vec<f64>; 5], begins: &'a [f64]) -> Result<SymbolInput<'a>> {
    let bars = columns[0].len();
    let series = |input: &Input| match input {
        Input::Column(name) => COLUMNS.iter().position(|c| c == name).map(|c| columns[c].as_slice()),
        Input::Begins(_) | Input::Clock(_) => begins.get(..bars),
        _ => None,
    };
    let columns: Option<Vec<&[f64]>> = program.inputs.iter().map(series).collect();
    Ok(SymbolInput { columns: columns.ok_or_else(|| anyhow!("a plan reads more than bars"))?, visible: bars })
}

/// Every function of the catalogue.
pub(super) fn catalogue(device: &Arc<dyn Device>, size: &Size) -> Result<Outcome> {
    let all: Vec<&Function> = functions().take(size.functions.unwrap_or(usize::MAX)).collect();
    let plans: Vec<Vec<String>> =
        all.chunks(TOGETHER).map(|chunk| chunk.iter().flat_map(|f| sample(f)).collect()).collect();
    let mut outcome = Outcome::done();
    outcome.figure("functions", all.len());
    compared(Way::Fused(&executor(device, true)?), &plans, "", &mut outcome)?;
    compared(Way::Short(&executor(device, true)?), &plans, "f32_", &mut outcome)?;
    let unfused = Arc::new(Unfused::new(Arc::clone(device)));
    let apart = executor(&(Arc::clone(&unfused) as Arc<dyn Device>), false)?;
    compared(Way::Apart(&apart, &unfused), &plans, "apart_", &mut outcome)?;
    drop(apart);
    in_chunks(&executor(device, true)?, &all, &mut outcome)?;
    Ok(outcome)
}

/// A few plans of every family.
pub(super) fn small(executor: &Executor) -> Result<Outcome> {
    let plans: [&[&str]; 4] = [
        &["rsi(close,14)", "sma(close,20)", "bbands(close,20,2).upper", "adx(14)"],
        &["ht_trendmode(close)", "mama(close).fama", "sar()", "supertrend(7,3).line"],
        &["correl(close,open,30)", "linearreg(close,14)", "percentile(close,50,0.5)", "pow(close,1.5)"],
        &["atc().signal"],
    ];
    let plans: Vec<Vec<String>> = plans.iter().map(|p| p.iter().map(|item| (*item).to_owned()).collect()).collect();
    let mut outcome = Outcome::done();
    compared(Way::Fused(executor), &plans, "", &mut outcome)?;
    Ok(outcome)
}

/// Compares plans; figures begin with `prefix`.
fn compared(way: Way<'_>, plans: &[Vec<String>], prefix: &str, outcome: &mut Outcome) -> Result<()> {
    let (market, begins) = (market(), (0..BARS).map(|t| f64::from(u8::from(t % 11 == 0))).collect::<Vec<f64>>());
    let total = Mutex::new(Compared { values: 0, differs: Vec::new() });
    // Several at a time: compiling takes longer than computing.
    let done: Result<Vec<()>> = plans
        .par_iter()
        .map(|items| {
            let made = compare(way, items, &market, &begins)?;
            let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            total.values += made.values;
            total.differs.extend(made.differs);
            Ok(())
        })
        .collect();
    done?;
    let Compared { values, differs } = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let outputs: usize = plans.iter().map(Vec::len).sum();
    outcome.figure(&format!("{prefix}outputs"), outputs);
    outcome.figure(&format!("{prefix}values"), values);
    outcome.figure(&format!("{prefix}differences"), differs.len());
    let how = match way {
        Way::Fused(_) => "fused",
        Way::Short(_) => "fused, in f32",
        Way::Apart(..) => "a primitive at a time",
    };
    outcome.line(format!("{how}: outputs, values, differences"), format!("{outputs}, {values}, {}", differs.len()));
    fail(outcome, prefix, "series differ from the CPU's", differs);
    Ok(())
}

/// Notes the differences that were found, if any.
fn fail(outcome: &mut Outcome, prefix: &str, what: &str, differs: Vec<String>) {
    if differs.is_empty() {
        return;
    }
    (outcome.ending, outcome.why) = (Ending::Failed, format!("{} {what}", differs.len()));
    let shown: Vec<String> = differs.into_iter().take(SHOWN_MAX).collect();
    shown.iter().for_each(|line| outcome.line("differs", line.clone()));
    outcome.figure(&format!("{prefix}first_differences"), shown);
}

/// Histories around chunks, every second one with runs of missing bars.
fn long_market() -> Vec<[Vec<f64>; 5]> {
    let lengths = [3 * CHUNK_BARS + 7, CHUNK_BARS - 1, CHUNK_BARS, CHUNK_BARS + 1, 5 * CHUNK_BARS, 1];
    let symbol = |(number, bars): (usize, &usize)| {
        let mut columns = walk(number as u64, *bars);
        let runs = [(0, 3), (CHUNK_BARS - 5, 11), (CHUNK_BARS + CHUNK_BARS / 2, 2 * CHUNK_BARS)];
        for (first, count) in runs.into_iter().filter(|_| number % 2 == 1) {
            let missing = first.min(*bars)..(first + count).min(*bars);
            columns.iter_mut().for_each(|column| column[missing.clone()].fill(f64::NAN));
        }
        columns
    };
    lengths.iter().enumerate().map(symbol).collect()
}

/// Functions whose histories can be cut, over chunks.
fn in_chunks(executor: &Executor, all: &[&Function], outcome: &mut Outcome) -> Result<()> {
    let market = long_market();
    let longest = market.iter().map(|columns| columns[0].len()).max().unwrap_or(0);
    let begins: Vec<f64> = (0..longest).map(|t| f64::from(u8::from(t % 11 == 0))).collect();
    // The largest difference; `None` where the function goes through bars one after another.
    let one = |function: &&Function| -> Result<Option<(f64, String)>> {
        let items = sample(function);
        let plan = compiled(&items.iter().map(String::as_str).collect::<Vec<_>>())?;
        if Sequence::in_chunks(plan.program(), false).is_err() {
            return Ok(None);
        }
        let program = &Executable::new(plan.program(), Precision::F64);
        let symbols = market.iter().map(|columns| input(program, columns, &begins)).collect::<Result<Vec<_>>>()?;
        let from = vec![0; symbols.len()];
        let cpu = program.evaluate_from(&symbols, &from, &NoCancel)?;
        let (stages, cancel) = (&mut Stages::default(), &NoCancel);
        let device = executor.evaluate_in_chunks(program, &symbols, &from, None, cancel, stages, true)?;
        Ok(Some((largest_error(&cpu, &device), function.name.to_owned())))
    };
    let cut: Vec<(f64, String)> = all.par_iter().map(one).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
    let largest = cut.iter().map(|(error, _)| *error).fold(0.0, f64::max);
    // Not a number: defined in one of the two alone.
    let differs = cut.iter().filter(|(error, _)| error.is_nan() || *error > CHUNK_ERROR_MAX);
    let differs: Vec<String> = differs.map(|(error, name)| format!("{name} over chunks: {error:.1e}")).collect();
    outcome.figure("chunks_functions", cut.len());
    outcome.figure("chunks_largest_error", largest);
    outcome.figure("chunks_differences", differs.len());
    let text = format!("{}, {largest:.1e} of an output's largest value, allowed 1e-12", cut.len());
    outcome.line("over chunks: functions, largest difference", text);
    fail(outcome, "chunks_", "functions differ over chunks", differs);
    Ok(())
}

#[cfg(test)]
mod tests {
    use trawl_test_driver::TestDevice;

    use super::*;

    fn of(settings: &str) -> Outcome {
        let size = Size { symbols: 1, bars: 1, long_bars: 1, repeats: 1, functions: Some(3) };
        catalogue(&(Arc::new(TestDevice::new(settings).open()) as Arc<dyn Device>), &size).unwrap()
    }

    #[test]
    fn every_way_to_compute_a_plan_is_compared() {
        let outcome = of("");
        assert_eq!((outcome.ending, outcome.why.as_str()), (Ending::Done, ""));
        let number = |name: &str| outcome.figures[name].as_u64().unwrap();
        assert!(number("values") > 1000 && number("apart_values") == number("values"));
        assert_eq!(number("f32_values"), number("values"));
        assert!(number("chunks_functions") > 0);
    }

    #[test]
    fn wrong_kernels_of_every_way_are_found() {
        let outcome = of("damage=1");
        assert_eq!(outcome.ending, Ending::Failed);
        for name in ["differences", "apart_differences", "chunks_differences"] {
            assert!(outcome.figures[name].as_u64().unwrap() > 0, "{name}");
        }
    }
}

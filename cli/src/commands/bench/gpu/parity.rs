//! Whether the device gives the same bits as the CPU engine: every function of the catalogue over real and synthetic
//! bars, fused and one primitive at a time.

use std::sync::Mutex;

use anyhow::{Result, anyhow};
use rayon::prelude::*;
use trawl_kernels::cuda::Executor;
use trawl_kernels::stages::Stages;
use trawl_kernels::{Executable, NoCancel, Precision, SymbolInput};
use trawl_plan::catalogue::{Function, functions, sample};
use trawl_plan::{Input, Program};

use super::super::screen::COLUMNS;
use super::super::walk;
use super::figures::compiled;
use super::{Ending, Outcome, Size};

/// Functions in one plan.
const TOGETHER: usize = 12;
/// Bars of the longest symbol.
const BARS: usize = 500;
/// Most differences that are reported.
const TOLD_MAX: usize = 20;

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

/// The largest difference, relative to the largest value of the same output; NaN where one value is defined and the
/// other is not.
pub(super) fn largest_error(a: &[Vec<Vec<f64>>], b: &[Vec<Vec<f64>>]) -> f64 {
    let mut largest = 0.0f64;
    for (a, b) in a.iter().flatten().zip(b.iter().flatten()) {
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

/// The result of comparing a plan.
struct Compared {
    values: u64,
    differs: Vec<String>,
}

fn compare(executor: &Executor, items: &[String], market: &[[Vec<f64>; 5]], begins: &[f64]) -> Result<Compared> {
    let texts: Vec<&str> = items.iter().map(String::as_str).collect();
    let plan = compiled(&texts)?;
    let program = &Executable::new(plan.program(), Precision::F64);
    let symbols = market.iter().map(|columns| input(program, columns, begins)).collect::<Result<Vec<_>>>()?;
    let mut compared = Compared { values: 0, differs: Vec::new() };
    for last in [false, true] {
        let from: Vec<usize> = symbols.iter().map(|s| if last { s.visible - 1 } else { 0 }).collect();
        let cpu = program.evaluate_from(&symbols, &from, &NoCancel)?;
        let device = executor.evaluate_from(program, &symbols, &from, None, &NoCancel, &mut Stages::default())?;
        for (symbol, (cpu, device)) in cpu.iter().zip(&device).enumerate() {
            for (item, (cpu, device)) in items.iter().zip(cpu.iter().zip(device)) {
                compared.values += cpu.len() as u64;
                let other = |(a, b): (&f64, &f64)| a.to_bits() != b.to_bits();
                if let Some(bar) = cpu.iter().zip(device).position(other) {
                    let (a, b) = (cpu[bar], device[bar]);
                    compared.differs.push(format!("{item}: symbol {symbol} bar {bar}: CPU {a:?}, device {b:?}"));
                }
            }
        }
    }
    Ok(compared)
}

fn input<'a>(program: &Program, columns: &'a [Vec<f64>; 5], begins: &'a [f64]) -> Result<SymbolInput<'a>> {
    let bars = columns[0].len();
    let series = |input: &Input| match input {
        Input::Column(name) => COLUMNS.iter().position(|c| c == name).map(|c| columns[c].as_slice()),
        Input::Begins(_) => begins.get(..bars),
        _ => None,
    };
    let columns: Option<Vec<&[f64]>> = program.inputs.iter().map(series).collect();
    Ok(SymbolInput { columns: columns.ok_or_else(|| anyhow!("a plan reads more than bars"))?, visible: bars })
}

/// Every function of the catalogue.
pub(super) fn catalogue(executor: &Executor, size: &Size) -> Result<Outcome> {
    let all: Vec<&Function> = functions().take(size.functions.unwrap_or(usize::MAX)).collect();
    let plans: Vec<Vec<String>> =
        all.chunks(TOGETHER).map(|chunk| chunk.iter().flat_map(|f| sample(f)).collect()).collect();
    let mut outcome = compared(executor, &plans)?;
    outcome.figure("functions", all.len());
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
    compared(executor, &plans)
}

fn compared(executor: &Executor, plans: &[Vec<String>]) -> Result<Outcome> {
    let (market, begins) = (market(), (0..BARS).map(|t| f64::from(u8::from(t % 11 == 0))).collect::<Vec<f64>>());
    let total = Mutex::new(Compared { values: 0, differs: Vec::new() });
    // Several at a time: compiling takes longer than computing.
    let done: Result<Vec<()>> = plans
        .par_iter()
        .map(|items| {
            let made = compare(executor, items, &market, &begins)?;
            let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            total.values += made.values;
            total.differs.extend(made.differs);
            Ok(())
        })
        .collect();
    done?;
    let Compared { values, differs } = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut outcome = Outcome::done();
    let outputs: usize = plans.iter().map(Vec::len).sum();
    outcome.figure("outputs", outputs);
    outcome.figure("values", values);
    outcome.figure("differences", differs.len());
    outcome.line("outputs, values, differences", format!("{outputs}, {values}, {}", differs.len()));
    if !differs.is_empty() {
        (outcome.ending, outcome.why) = (Ending::Failed, format!("{} series differ from the CPU's", differs.len()));
        let shown: Vec<String> = differs.into_iter().take(TOLD_MAX).collect();
        shown.iter().for_each(|line| outcome.line("differs", line.clone()));
        outcome.figure("first_differences", shown);
    }
    Ok(outcome)
}

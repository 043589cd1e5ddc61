//! Kernels over chunks of histories on the emulator: every function that has them agrees with the CPU engine, in the bits where
//! nothing is recursive and to 1e-12 elsewhere, at histories around chunks, over missing values and over numbers that overflow.

use std::collections::{BTreeMap, BTreeSet};

use trawl_kernels::cuda::{Cut, Limits, Market, Sequence, Wanted};
use trawl_kernels::{NoCancel, SymbolInput, evaluate_all};
use trawl_plan::Program;
use trawl_plan::catalogue::functions;

use crate::emulator::{Emulator, Order};
use crate::fused::{inputs, items, market, program};

/// Promised for recursive steps, relative to the value.
const TOLERANCE: f64 = 1e-12;

/// Where a plan's chunks differ most from the CPU.
#[derive(Debug, Clone, Default)]
struct Worst {
    error: f64,
    told: String,
}

struct Plan {
    items: Vec<String>,
    program: Program,
    sequence: Sequence,
}

fn plan(items: Vec<String>, apart: bool) -> Option<Plan> {
    let program = program(&items);
    let sequence = Sequence::in_chunks(&program, apart).ok()?;
    Some(Plan { items, program, sequence })
}

fn emulator<'a>(plans: impl IntoIterator<Item = &'a Plan>) -> Emulator {
    let kernels: BTreeMap<String, String> = plans.into_iter().flat_map(|plan| plan.sequence.kernels()).collect();
    Emulator::new(&kernels)
}

/// 0 for the same bits; infinite where one is defined and the other not.
fn error(want: f64, got: f64) -> f64 {
    if want.to_bits() == got.to_bits() || want == got {
        0.0
    } else if want.is_nan() || got.is_nan() {
        f64::INFINITY
    } else {
        (want - got).abs() / want.abs().max(got.abs())
    }
}

impl Plan {
    /// The narrowest chunks that this plan can be cut to, at least `width` bars.
    fn cut(&self, width: usize) -> Cut {
        let lead = self.sequence.lead.expect("over chunks");
        Cut { width: width.max(lead), lead }
    }

    /// Each output's worst difference at all bars, and at the last ones.
    fn compare(&self, device: &Emulator, cut: Cut, symbols: &[SymbolInput<'_>]) -> Vec<Worst> {
        let lanes = cut.lanes(symbols.iter().map(|s| s.visible));
        let heads = cut.heads(symbols);
        let pieces = cut.pieces(symbols, &heads, &lanes);
        let market: Market = cut.places(&lanes).with_columns(self.program.inputs.len(), &pieces);
        let cpu: Vec<_> = symbols.iter().map(|s| evaluate_all(&self.program, s, &NoCancel).expect("it runs")).collect();
        let mut worst = vec![Worst::default(); self.items.len()];
        for wanted in [Wanted::All, Wanted::Last] {
            let out = self.sequence.run(device, &market, wanted, Limits::default()).unwrap_or_else(|e| panic!("{e}"));
            for (number, lane) in lanes.iter().enumerate() {
                for row in 0..lane.rows {
                    let Some(bar) = lane.own_bar(row, cut.lead) else { continue };
                    if wanted == Wanted::Last && bar + 1 < symbols[lane.symbol].visible {
                        continue;
                    }
                    for (output, worst) in worst.iter_mut().enumerate() {
                        let want = cpu[lane.symbol][output][bar];
                        let got = out[output][market.place(wanted, 0, number, row)];
                        let error = error(want, got);
                        if error > worst.error || error.is_nan() {
                            let symbol = lane.symbol;
                            let told = format!("{cut:?} {wanted:?} symbol {symbol} bar {bar}: {want:?}, {got:?}");
                            *worst = Worst { error, told };
                        }
                    }
                }
            }
        }
        worst
    }
}

/// Histories around chunks of `width` bars.
fn lengths(width: usize) -> Vec<usize> {
    vec![3 * width + 7, 5 * width, width - 1, width, width + 1, 1, 2 * width, 33 * width + 5, 2, 4 * width - 1]
}

/// A market with runs of missing bars, of some bars and of more than two chunks.
fn with_runs(width: usize, seed: u64) -> Vec<Vec<Vec<f64>>> {
    let mut bars = market(&lengths(width), seed);
    for (number, symbol) in bars.iter_mut().enumerate() {
        let all = symbol[0].len();
        let runs = [(0, number * 3), (width - 5, 11), (width + width / 2, 2 * width + 9)];
        for (first, count) in runs.into_iter().filter(|_| number % 2 == 0) {
            for column in symbol.iter_mut() {
                column[first.min(all)..(first + count).min(all)].fill(f64::NAN);
            }
        }
    }
    bars
}

#[test]
fn the_whole_catalogue_over_chunks_agrees_with_the_cpu() {
    let mut serial = BTreeSet::new();
    let mut plans = Vec::new();
    for function in functions() {
        match plan(items(function), false) {
            Some(plan) => plans.push((function.name, plan)),
            None => drop(serial.insert(function.name)),
        }
    }
    println!("serial: {serial:?}");
    let mut device = emulator(plans.iter().map(|(_, plan)| plan));
    let mut wrong = BTreeMap::new();
    for (i, (name, plan)) in plans.iter().enumerate() {
        device.order = [Order::Random, Order::Reverse, Order::Forward][i % 3];
        let cut = plan.cut(61);
        let begins: Vec<f64> = (0..40 * cut.width).map(|t| f64::from(u8::from(t % 11 == 0))).collect();
        let bars = with_runs(cut.width, 3);
        let symbols = inputs(&plan.program, &bars, &begins);
        for worst in plan.compare(&device, cut, &symbols) {
            if worst.error > TOLERANCE {
                wrong.entry(*name).or_insert(worst);
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} functions differ: {wrong:#?}", wrong.len(), plans.len());
}

//! Averages that only feed the signal of their family are computed by its step: nine windows in one walk, nine
//! recursive averages side by side (`kernels/cuda/family.cuh`). They are recognised here, in the steps of a program; an
//! average with other readers also remains a separate step. Nothing is folded in kernels of single primitives.

use trawl_plan::family::{Trend, hull_half};
use trawl_plan::graph::Op;

use crate::Precision;
use crate::cuda::codegen::averages::{Averages, Constants, Means};
use crate::cuda::codegen::number::{divisor, rounded};
use crate::cuda::codegen::ring_slots::RingSlots;
use crate::cuda::codegen::steps::{KernelStep, KernelSteps, StepInput};

/// Maximum number of signals that read the same averages. With more, as in a sweep over growth or decay, computing the
/// averages once and passing them on costs less than a walk per signal.
const SIGNALS_MAX: usize = 4;

/// Maximum look-back, in bars, of an average whose length is a constant of the text: each bar is unrolled code.
const CONSTANT_BARS_MAX: u32 = 128;

impl Averages {
    pub fn means(&self, constants: Constants, precision: Precision) -> Means {
        let means = self.of_arguments(precision);
        let fixed = match self.family {
            Trend::Wma => "FixedWeightedMeans",
            Trend::Lsma => "FixedLineMeans",
            Trend::Hma => "FixedHullMeans",
            Trend::Kama => "FixedKaufmanMeans",
            // Their lengths are factors.
            Trend::Ema | Trend::Dema => return means,
        };
        let longest = means.ints.iter().copied().max().unwrap_or(0);
        if constants == Constants::None || longest > int(CONSTANT_BARS_MAX) {
            return means;
        }
        let lens: Vec<String> = means.ints.iter().map(i32::to_string).collect();
        Means { name: format!("{fixed}<Lengths<{}>>", lens.join(", ")), constant: true, ..means }
    }

    fn of_arguments(&self, precision: Precision) -> Means {
        let count = self.lens.len();
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|at| self.lens[*at]);
        let lens: Vec<u32> = order.iter().map(|at| self.lens[*at]).collect();
        let mut places = vec![0; count];
        order.iter().enumerate().for_each(|(place, at)| places[*at] = place);
        let longest = lens.last().copied().unwrap_or(1);
        let window = longest.saturating_sub(1) as usize;
        let means = |name: &str, registers: usize, operations: usize| Means {
            name: name.replace('#', &count.to_string()),
            registers,
            past: None,
            ints: lens.iter().copied().map(int).collect(),
            doubles: Vec::new(),
            ring: None,
            places: places.clone(),
            load: count * operations,
            constant: false,
        };
        let doubles = |of: &dyn Fn(u32) -> Vec<f64>| lens.iter().copied().flat_map(of).collect::<Vec<f64>>();
        match self.family {
            Trend::Wma => Means {
                past: Some(window),
                doubles: doubles(&|len| divisor(weights(len), precision).to_vec()),
                ..means("WeightedMeans<#>", 1, 26)
            },
            Trend::Lsma => Means {
                past: Some(window),
                doubles: doubles(&|len| {
                    let [by, share, rest] = divisor(2 * weights(len), precision);
                    vec![by, share, rest, 2.0 * (f64::from(len) + 1.0)]
                }),
                ..means("LineMeans<#>", 1, 29)
            },
            Trend::Hma => {
                let halves = lens.iter().map(|len| hull_half(*len));
                let smooths = lens.iter().map(|len| len.isqrt());
                let all: Vec<u32> = lens.iter().copied().chain(halves.clone()).chain(smooths.clone()).collect();
                let half = halves.max().unwrap_or(1).saturating_sub(1) as usize;
                let slots = smooths.max().unwrap_or(1).max(1) as usize;
                Means {
                    past: Some(window.max(half)),
                    doubles: all.iter().flat_map(|len| divisor(weights(*len), precision)).collect(),
                    ints: all.iter().copied().map(int).collect(),
                    ring: Some(RingSlots::Rows { slots, more: 0, each: count }),
                    ..means("HullMeans<#>", 2, 48)
                }
            }
            Trend::Ema | Trend::Dema => {
                let double = self.family == Trend::Dema;
                let (registers, operations) = if double { (7 + 6 * count, 21) } else { (7 + 4 * count, 15) };
                Means {
                    doubles: doubles(&|len| {
                        let factor = rounded(precision, 2.0 / (f64::from(len) + 1.0));
                        vec![f64::from(len), factor, 1.0 - factor]
                    }),
                    ..means(&format!("ExponentialMeans<#, {double}>"), registers, operations)
                }
            }
            Trend::Kama => Means {
                past: Some(longest as usize),
                doubles: doubles(&|len| vec![f64::from(len)]),
                ..means("KaufmanMeans<#>", 2 * count, 36)
            },
        }
    }
}

fn int(x: u32) -> i32 {
    i32::try_from(x).unwrap_or(i32::MAX)
}

/// Sum of the weights of a linearly weighted mean.
fn weights(len: u32) -> u64 {
    u64::from(len) * (u64::from(len) + 1) / 2
}

/// Folds averages into the steps of their signals, and places the steps that follow a signal after it.
pub(crate) fn fold(steps: KernelSteps) -> KernelSteps {
    let mut steps = steps;
    let mut readers = vec![0usize; steps.steps.len()];
    for step in &steps.steps {
        let mut read: Vec<usize> = step.inputs.iter().filter_map(|input| input.step()).collect();
        read.sort_unstable();
        read.dedup();
        read.iter().filter(|_| matches!(step.op, Op::FamilySignal { .. })).for_each(|read| readers[*read] += 1);
    }
    let folded: Vec<Option<KernelStep>> =
        steps.steps.iter().map(|step| family_of(step, &steps.steps, &readers)).collect();
    let some = folded.iter().any(Option::is_some);
    for (step, folded) in steps.steps.iter_mut().zip(folded) {
        if let Some(folded) = folded {
            *step = folded;
        }
    }
    if some { arranged(&steps) } else { steps }
}

/// The step of a signal with its averages folded in, if they are of one family over one series.
fn family_of(step: &KernelStep, steps: &[KernelStep], readers: &[usize]) -> Option<KernelStep> {
    let Op::FamilySignal { .. } = step.op else { return None };
    let (shared, averages) = step.inputs.split_at_checked(3)?;
    let mut found: Option<(Trend, StepInput)> = None;
    let mut lens = Vec::with_capacity(averages.len());
    for average in averages {
        let at = average.step()?;
        let made = steps.get(at)?;
        let Op::TrendMean { family, len } = made.op else { return None };
        let x = *made.inputs.first()?;
        // The averages must use the same bar numbers as the signal.
        if made.inputs.get(1).is_some_and(|number| *number != shared[2]) || readers[at] > SIGNALS_MAX {
            return None;
        }
        if *found.get_or_insert((family, x)) != (family, x) {
            return None;
        }
        lens.push(len);
    }
    let (family, x) = found?;
    let inputs = [&[x], shared].concat();
    Some(KernelStep { op: step.op, inputs, averages: Some(Averages { family, lens }) })
}

/// The steps that outputs still need, each equity after its signal.
fn arranged(steps: &KernelSteps) -> KernelSteps {
    let all = &steps.steps;
    let mut wanted = vec![false; all.len()];
    steps.outputs.iter().filter_map(|output| output.step()).for_each(|step| wanted[step] = true);
    for at in (0..all.len()).rev().filter(|at| wanted[*at]).collect::<Vec<_>>() {
        // Already marked by a later step, or wanted itself.
        mark(all, &mut wanted, at);
    }
    let follows = |at: usize| {
        let (Op::SignalEquity { .. }, Some(StepInput::Step(signal))) = (all[at].op, all[at].inputs.first()) else {
            return None;
        };
        // Its other inputs are read by the signal too.
        let known = |input: &StepInput| input.step().is_none_or(|step| step < *signal);
        let all_known = || all[at].inputs[1..].iter().all(known);
        (all[*signal].averages.is_some() && all_known()).then_some(*signal)
    };
    let mut order: Vec<usize> = Vec::with_capacity(all.len());
    for at in (0..all.len()).filter(|at| wanted[*at] && follows(*at).is_none()) {
        order.push(at);
        if all[at].averages.is_some() {
            order.extend((at + 1..all.len()).filter(|later| wanted[*later] && follows(*later) == Some(at)));
        }
    }
    let mut place = vec![0; all.len()];
    order.iter().enumerate().for_each(|(to, from)| place[*from] = to);
    let moved = |source: &StepInput| match *source {
        StepInput::Step(step) => StepInput::Step(place[step]),
        other => other,
    };
    let step = |at: &usize| {
        let step = &all[*at];
        KernelStep { inputs: step.inputs.iter().map(moved).collect(), ..step.clone() }
    };
    KernelSteps {
        columns: steps.columns,
        steps: order.iter().map(step).collect(),
        outputs: steps.outputs.iter().map(moved).collect(),
    }
}

fn mark(steps: &[KernelStep], wanted: &mut [bool], from: usize) {
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        for read in steps[at].inputs.iter().filter_map(|input| input.step()) {
            if !std::mem::replace(&mut wanted[read], true) {
                open.push(read);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_by_whole_numbers_are_rounded_as_a_division_rounds() {
        let mut state = 0x5eed_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let most = weights(trawl_plan::limits::PERIOD_MAX) * 2;
        let divisors = (1..400).map(weights).chain((0..2_000).map(|_| random() % most + 1)).collect::<Vec<u64>>();
        let (mut values, mut naive) = (0, 0);
        for by in divisors {
            let [by, share, rest] = divisor(by, Precision::F64);
            for _ in 0..500 {
                let bits = random();
                // Any sign and digits, and any magnitude that is not tiny.
                let x = f64::from_bits(bits & !(0x7ff << 52) | ((random() % 1_400 + 340) << 52));
                assert_eq!(x.mul_add(share, x * rest).to_bits(), (x / by).to_bits(), "{x:e} / {by}");
                values += 1;
                naive += usize::from(x * share == x / by);
            }
        }
        assert!(naive < values, "the inverse alone would do");
    }

    /// As `divided` of base.cuh computes it in `f32`.
    fn divided(x: f32, [by, share, _]: [f64; 3]) -> f32 {
        let (by, share) = (by as f32, share as f32);
        let near = x * share;
        let nearer = (-near).mul_add(by, x).mul_add(share, near);
        (-nearer).mul_add(by, x).mul_add(share, nearer)
    }

    #[test]
    fn quotients_of_floats_by_whole_numbers_are_rounded_as_a_division_rounds() {
        let mut once = 0usize;
        // Every significand, of numbers of the size of the least and the largest sums.
        for (by, exponent) in [(3, 127), (378, 127), (435, 44), (10, 250), (5_000_050_000, 100), (16_777_217, 127)] {
            let numbers = divisor(by, Precision::F32);
            for significand in 0..1u32 << 23 {
                let x = f32::from_bits(exponent << 23 | significand);
                let exact = x / numbers[0] as f32;
                assert_eq!(divided(x, numbers).to_bits(), exact.to_bits(), "{x:e} / {by}");
                once += usize::from((x * numbers[1] as f32).to_bits() == exact.to_bits());
            }
        }
        assert!(once < 6 << 23, "the inverse alone would do");
        for by in 1..3_000 {
            let numbers = divisor(weights(by), Precision::F32);
            for x in (0..600u32).map(|i| f32::from_bits(0x3f80_0000 + i * 13_981)) {
                assert_eq!(divided(x, numbers).to_bits(), (x / numbers[0] as f32).to_bits(), "{x:e} / {by}");
                assert_eq!(divided(-x, numbers).to_bits(), (-x / numbers[0] as f32).to_bits(), "-{x:e} / {by}");
            }
        }
    }

    /// As `quotient_plain` of base.cuh computes it in `f32`, from a reciprocal that is off by some last places.
    fn quotient(a: f32, b: f32, off: i32) -> f32 {
        let near = f32::from_bits((1.0 / b).to_bits().wrapping_add_signed(off));
        let inverse = near.mul_add(near.mul_add(-b, 1.0), near);
        let first = a * inverse;
        let second = inverse.mul_add(first.mul_add(-b, a), first);
        inverse.mul_add(second.mul_add(-b, a), second)
    }

    #[test]
    fn short_quotients_of_floats_are_rounded_as_a_division_rounds() {
        let mut state = 0x5eed_u64;
        for _ in 0..4_000_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Sizes from 2^-40 to 2^40: their quotients are usual.
            let number =
                |bits: u64| f32::from_bits((bits as u32 & 0x7f_ffff) | ((87 + (bits >> 23 & 63) as u32) << 23));
            let (a, b) = (number(state), number(state >> 32));
            for off in -1..=1 {
                assert_eq!(quotient(a, b, off).to_bits(), (a / b).to_bits(), "{a:e} / {b:e}, {off}");
            }
        }
    }
}

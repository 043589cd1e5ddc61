//! Which step runs a primitive and how far back it reads.

use trawl_plan::ast::CompareOp;
use trawl_plan::graph::{Binary, Op, Unary};
use trawl_plan::scalar;

use super::afresh::{Correlation, PercentRank};
use super::composite::*;
use super::elementwise::*;
use super::extremes::{Extreme, Fold};
use super::fuse::Work;
use super::lanes::{AnyStep, Packed};
use super::real::Real;
use super::recurrence::{
    Along, Cumulative, Ever, Kaufman, OnBalance, Recurrence, Since, Smoothed, ValueWhen, WilderRatio, WilderSum,
};
use super::window::{Blocks, Deviation, MeanDeviation, Short, Total, Weighted, is_short, tail_bars};

/// A fresh step for `work` over at most `bars` bars; `None` for columns and constants, which are read in place.
pub(crate) fn step_for<T: Real>(work: Work, bars: usize) -> Option<Box<dyn AnyStep<T>>> {
    let op = match work {
        Work::Op(op) => op,
        group => return Some(group_for(group)),
    };
    Some(match op {
        Op::Unary(u) => unary(u),
        Op::Binary(b) => binary(b),
        Op::Compare(c) => compare(c),
        Op::And => map(And),
        Op::Or => map(Or),
        Op::Not => map(Not),
        Op::Select => map(Select),
        Op::Sum(p) if is_short(p) => Box::new(Packed(Short { p: p as usize, total: Total::sum(p) })),
        Op::Mean(p) if is_short(p) => Box::new(Packed(Short { p: p as usize, total: Total::mean(p) })),
        Op::Sum(p) => Box::new(Packed(Blocks::new(Total::sum(p), p, bars))),
        Op::Mean(p) => Box::new(Packed(Blocks::new(Total::mean(p), p, bars))),
        Op::WeightedMean(p) => Box::new(Packed(Blocks::new(Weighted::new(p), p, bars))),
        Op::Deviation(p) => Box::new(Packed(Blocks::new(Deviation::talib(p), p, bars))),
        Op::Spread(p) => Box::new(Packed(Blocks::new(Deviation::exact(p), p, bars))),
        Op::Max(p) => Box::new(Packed(Extreme::<T, false>::new(p, bars))),
        Op::Min(p) => Box::new(Packed(Extreme::<T, true>::new(p, bars))),
        Op::MeanDeviation(p) => Box::new(Packed(MeanDeviation::new(p))),
        Op::Exponential { p, delay } => along(Smoothed::exponential(p, delay)),
        Op::Wilder(p) => along(Smoothed::wilder(p)),
        Op::WilderSum(p) => along(WilderSum { p: f64::from(p) }),
        Op::WilderRatio(p) => along(WilderRatio { p: f64::from(p) }),
        Op::Kaufman => along(Kaufman),
        Op::Cumulative => along(Cumulative),
        Op::OnBalance => along(OnBalance),
        op => T::narrow(wide_step_for(op)?, reads_back(op), bars),
    })
}

/// Steps that are there in `f64` alone.
fn wide_step_for(op: Op) -> Option<Box<dyn AnyStep>> {
    Some(match op {
        Op::CrossesAbove => Box::new(Crosses { above: true }),
        Op::CrossesBelow => Box::new(Crosses { above: false }),
        Op::Within(p) => Box::new(Fold::within(p)),
        Op::Streak(p) => Box::new(Fold::streak(p)),
        Op::Since => Box::new(Since::new()),
        Op::ValueWhen => Box::new(ValueWhen::new()),
        Op::Ever => Box::new(Ever::new()),
        Op::EverSince => Box::new(Ever::since()),
        Op::PercentRank(p) => Box::new(PercentRank { p: p as usize }),
        Op::Correlation(p) => Box::new(Correlation { p: p as usize }),
        // Columns and constants are read in place; programs hold inputs in their places, so a plan's own leaves never
        // reach the kernels.
        _ => return None,
    })
}

/// A fresh step for a group.
fn group_for<T: Real>(work: Work) -> Box<dyn AnyStep<T>> {
    match work {
        Work::Op(_) | Work::Weighed => along(Weighed),
        Work::TrueRange => map(TrueRange),
        Work::SumOver(divisor) => map(SumOver { divisor: divisor.value() }),
        Work::PairOver(divisor) => map(PairOver { divisor: divisor.value() }),
        Work::Apart => map(Apart),
        Work::PlusScaled(factor) => map(PlusScaled { factor: factor.value() }),
        Work::MinusScaled(factor) => map(MinusScaled { factor: factor.value() }),
        Work::Within(divisor) => map(Within { divisor: divisor.value() }),
        Work::Standing(factor) => map(Standing { factor: factor.value() }),
        Work::Flows => along(Flows),
        Work::Bands { up, down } => along(Bands { up: up.value(), down: down.value() }),
        Work::FlowIndex => map(FlowIndex),
        Work::AverageRange(p) => along(AverageRange { mean: Smoothed::wilder(p) }),
        Work::Strength(p) => along(Strength { mean: Smoothed::wilder(p) }),
        Work::Convergence { fast, delay, slow, signal } => along(Convergence {
            fast: Smoothed::exponential(fast, delay),
            slow: Smoothed::exponential(slow, 0),
            signal: Smoothed::exponential(signal, 0),
        }),
        Work::Directional(p) => {
            let p = f64::from(p);
            along(Directional { sum: WilderSum { p }, ratio: WilderRatio { p } })
        }
    }
}

fn along<T: Real, R, const I: usize, const O: usize, const N: usize>(recurrence: R) -> Box<dyn AnyStep<T>>
where
    R: Recurrence<T, I, O, N> + 'static,
{
    Box::new(Packed(Along::new(recurrence)))
}

fn map<T: Real, F: Function<K> + 'static, const K: usize>(function: F) -> Box<dyn AnyStep<T>> {
    Box::new(Packed(Map(function)))
}

fn unary<T: Real>(op: Unary) -> Box<dyn AnyStep<T>> {
    match op {
        Unary::Negate => map(Negate),
        Unary::Abs => map(Abs),
        Unary::Sqrt => map(Sqrt),
        Unary::Sign => map(Sign),
        Unary::Round => map(Round),
        Unary::Log => Box::new(Scalar1(|x| scalar::unary(Unary::Log, x))),
        Unary::Exp => Box::new(Scalar1(|x| scalar::unary(Unary::Exp, x))),
    }
}

fn binary<T: Real>(op: Binary) -> Box<dyn AnyStep<T>> {
    match op {
        Binary::Add => map(Add),
        Binary::Subtract => map(Subtract),
        Binary::Multiply => map(Multiply),
        Binary::Divide => map(Divide),
        Binary::Maximum => map(Maximum),
        Binary::Minimum => map(Minimum),
        Binary::RatioOrZero => map(RatioOrZero),
        Binary::RatioOrZeroEpsilon => map(RatioOrZeroEpsilon),
        Binary::Gate => map(Gate),
        Binary::OrElse => map(OrElse),
        Binary::Near => map(Near),
        Binary::Remainder => Box::new(Scalar2(|a, b| scalar::binary(Binary::Remainder, a, b))),
        Binary::Power => Box::new(Scalar2(|a, b| scalar::binary(Binary::Power, a, b))),
    }
}

fn compare<T: Real>(op: CompareOp) -> Box<dyn AnyStep<T>> {
    match op {
        CompareOp::Less => map(Less),
        CompareOp::LessEqual => map(LessEqual),
        CompareOp::Greater => map(Greater),
        CompareOp::GreaterEqual => map(GreaterEqual),
        CompareOp::Equal => map(Equal),
        CompareOp::NotEqual => map(NotEqual),
    }
}

/// Rows before the current one that a step reads of its inputs.
pub(crate) fn reads_back(op: Op) -> usize {
    if op.is_recursive() { 0 } else { op.look_back() }
}

/// Rows that a step keeps for itself, beyond a few, over `bars` bars.
pub(crate) fn tail_rows(work: Work, bars: usize) -> usize {
    match work {
        Work::Op(Op::Max(p) | Op::Min(p) | Op::Sum(p) | Op::Mean(p)) => tail_bars(p as usize, bars),
        // Two sums.
        Work::Op(Op::Deviation(p) | Op::Spread(p) | Op::WeightedMean(p)) => 2 * tail_bars(p as usize, bars),
        _ => 0,
    }
}

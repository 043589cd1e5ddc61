//! Which step runs a primitive and how far back it reads.

use trawl_plan::ast::CompareOp;
use trawl_plan::graph::{Binary, Op, Unary};
use trawl_plan::scalar;

use super::afresh::{Correlation, PercentRank};
use super::elementwise::*;
use super::extremes::{Extreme, Fold};
use super::fuse::Work;
use super::lanes::{AnyStep, Packed};
use super::real::Real;
use super::recurrence::{Cumulative, Ever, Kaufman, OnBalance, Since, Smoothed, ValueWhen, WilderRatio, WilderSum};
use super::window::{Blocks, Deviation, MeanDeviation, Short, Total, Weighted, is_short, tail_bars};

/// A fresh step for `work` over at most `bars` bars; `None` for columns and constants, which are read in place.
pub(crate) fn step_for<T: Real>(work: Work, bars: usize) -> Option<Box<dyn AnyStep<T>>> {
    let Work::Op(op) = work;
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
        Op::Max(p) => Box::new(Packed(Extreme::<T, false>::new(p, bars))),
        Op::Min(p) => Box::new(Packed(Extreme::<T, true>::new(p, bars))),
        Op::MeanDeviation(p) => Box::new(Packed(MeanDeviation { p: p as usize })),
        Op::Exponential { p, delay } => Box::new(Packed(Smoothed::exponential(p, delay))),
        Op::Wilder(p) => Box::new(Packed(Smoothed::wilder(p))),
        Op::WilderSum(p) => Box::new(Packed(WilderSum::new(p))),
        Op::WilderRatio(p) => Box::new(Packed(WilderRatio::new(p))),
        Op::Kaufman => Box::new(Packed(Kaufman::new())),
        op => T::narrow(wide_step_for(op)?, reads_back(op), bars),
    })
}

/// Steps that are there in `f64` alone.
fn wide_step_for(op: Op) -> Option<Box<dyn AnyStep>> {
    Some(match op {
        Op::Cumulative => Box::new(Packed(Cumulative::new())),
        Op::OnBalance => Box::new(Packed(OnBalance::new())),
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
        Work::Op(Op::Deviation(p) | Op::WeightedMean(p)) => 2 * tail_bars(p as usize, bars),
        _ => 0,
    }
}

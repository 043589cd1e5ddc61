//! Which step runs a primitive and how far back it reads.

#![warn(clippy::wildcard_enum_match_arm)]

use trawl_plan::ast::CompareOp;
use trawl_plan::graph::{Binary, Op, Unary};
use trawl_plan::scalar;

use crate::cpu::lower::fused_op::FusedOp;
use crate::cpu::primitives::anchored::AnchoredMean;
use crate::cpu::primitives::argmax::{ExtremeIndex, SinceExtreme};
use crate::cpu::primitives::composite::*;
use crate::cpu::primitives::count::{self, Count, Counted};
use crate::cpu::primitives::covariance::{Beta, Correlation, Joint, SUMS};
use crate::cpu::primitives::cumulative::{Previous, Product, WilderTotal};
use crate::cpu::primitives::cycle::{Adaptive, Hilbert};
use crate::cpu::primitives::elementwise::*;
use crate::cpu::primitives::order_statistics::Ranked;
use crate::cpu::primitives::percent_rank::PercentRank;
use crate::cpu::primitives::recurrence::{
    Along, Cumulative, Ever, ExtremeSince, Kaufman, OnBalance, Recurrence, Since, Smoothed, ValueWhen, WilderRatio,
    WilderSum,
};
use crate::cpu::primitives::regression::Slope;
use crate::cpu::primitives::rolling_extremes::{Extreme, Fold};
use crate::cpu::primitives::rolling_sums::{
    Blocks, Deviation, Mean, MeanDeviation, Plain, Short, Sum, Weighted, is_short, tail_bars,
};
use crate::cpu::primitives::scalar_step::PerLane;
use crate::cpu::primitives::selection::{HeikinAshi, Skip, VariableMean};
use crate::cpu::primitives::stops::{Parabolic, Super};
use crate::cpu::primitives::trend::{
    self, Exponentials, FamilySignal, GrownReturn, Kaufmans, Pass, SignalEquity, Tables, TrendMean, TrendVote, Windows,
    pass_of,
};
use crate::cpu::simd::float::Real;
use crate::cpu::simd::vector::{AnyStep, Packed, Row, RowOf};
use crate::cpu::simd::widened::widened_bytes;

/// A new step for `work` with `inputs` inputs over at most `bars` bars; `None` for columns and constants, which are
/// read in place.
pub(crate) fn step_for<T: Real>(
    work: &FusedOp,
    inputs: usize,
    bars: usize,
    tables: &mut Tables,
) -> Option<Box<dyn AnyStep<T>>> {
    let op = match work {
        FusedOp::Op(op) => *op,
        FusedOp::TrendMeans(means) => return Some(trend_means(means, bars)),
        FusedOp::TrueRange
        | FusedOp::SumOver(_)
        | FusedOp::PairOver(_)
        | FusedOp::Apart
        | FusedOp::PlusScaled(_)
        | FusedOp::MinusScaled(_)
        | FusedOp::Within
        | FusedOp::ZScore(_)
        | FusedOp::Flows
        | FusedOp::Share
        | FusedOp::Bands { .. }
        | FusedOp::AverageRange(_)
        | FusedOp::Strength(_)
        | FusedOp::Convergence { .. }
        | FusedOp::Directional(_)
        | FusedOp::Weighed => return Some(group_for(work)),
        FusedOp::Count { of, p } => return Some(count(*of, *p, bars)),
    };
    match step_of(op, inputs, bars, tables) {
        Made::Any(step) => Some(step),
        Made::Wide(step) => Some(T::narrow(step, op.facts().reads_back, bars)),
        Made::InPlace => None,
    }
}

/// The step of a primitive.
enum Made<T: Real> {
    /// Implemented in every precision.
    Any(Box<dyn AnyStep<T>>),
    /// Implemented in `f64` only.
    Wide(Box<dyn AnyStep>),
    /// No step: read in place. Programs contain inputs instead of a plan's own leaves, so those never reach the
    /// kernels.
    InPlace,
}

/// A new step for a primitive. The match covers every [`Op`] and has no default arm.
fn step_of<T: Real>(op: Op, inputs: usize, bars: usize, tables: &mut Tables) -> Made<T> {
    let wide = |step: Box<dyn AnyStep>| Made::Wide(step);
    Made::Any(match op {
        Op::Column(_)
        | Op::Constant(_)
        | Op::Label(_)
        | Op::HistoryMask
        | Op::Begins(_)
        | Op::Clock(_)
        | Op::Attribute(_)
        | Op::Cross(_)
        | Op::Read(_)
        | Op::Lag(_) => return Made::InPlace,
        Op::Unary(u) => unary(u),
        Op::Binary(b) => binary(b),
        Op::Compare(c) => compare(c),
        Op::And => map(And),
        Op::Or => map(Or),
        Op::Not => map(Not),
        Op::Select => map(Select),
        Op::Sum(p) if is_short(p) => Box::new(Packed(Short { p: p as usize, total: Sum::new(p) })),
        Op::Mean(p) if is_short(p) => Box::new(Packed(Short { p: p as usize, total: Mean::new(p) })),
        Op::Sum(p) => Box::new(Packed(Blocks::new(Plain(Sum::new(p)), p, bars))),
        Op::Mean(p) => Box::new(Packed(Blocks::new(Plain(Mean::new(p)), p, bars))),
        Op::WeightedMean(p) => Box::new(Packed(Blocks::new(Weighted::new(p), p, bars))),
        Op::StdDev(p) => Box::new(Packed(Blocks::new(Deviation::new(p), p, bars))),
        Op::Max(p) => Box::new(Packed(Extreme::<T, false>::new(p, bars))),
        Op::Min(p) => Box::new(Packed(Extreme::<T, true>::new(p, bars))),
        Op::MeanAbsDev(p) => Box::new(Packed(MeanDeviation::new(p))),
        Op::PercentRank(p) => Box::new(Packed(PercentRank { p: p as usize })),
        Op::Ema { p, delay } => along(Smoothed::exponential(p, delay)),
        Op::Wilder(p) => along(Smoothed::wilder(p)),
        Op::EmaBy { p, delay, factor } => along(Smoothed::new(p, delay, factor.value())),
        Op::WilderSum(p) => along(WilderSum { p: f64::from(p) }),
        Op::WilderRatio(p) => along(WilderRatio { p: f64::from(p) }),
        Op::Kaufman => along(Kaufman),
        Op::Cumulative => along(Cumulative),
        Op::OnBalance => along(OnBalance),
        Op::TrendMean { family, len } => trend_means(&[TrendMean { family, len }], bars),
        Op::GrownReturn { rate, cutout } => Box::new(Packed(GrownReturn { growth: tables.growth(rate, cutout, bars) })),
        Op::FamilySignal { decay, cutout } => {
            // All inputs but price, return and bar number are averages.
            Box::new(Packed(FamilySignal::new(decay.value(), cutout, inputs.saturating_sub(3))))
        }
        Op::SignalEquity { start, decay, cutout } => {
            along(SignalEquity { start: start.value(), decay: decay.value(), cutout: f64::from(cutout) })
        }
        Op::TrendVote { long, short } => map(TrendVote { long: long.value(), short: short.value() }),

        Op::Skip(p) => return wide(Box::new(PerLane::new(Skip(p)))),
        Op::Hilbert(result) => return wide(Box::new(PerLane::new(Hilbert(result)))),
        Op::Mesa { fast, slow, result } => {
            return wide(Box::new(PerLane::new(Adaptive { fast: fast.value(), slow: slow.value(), result })));
        }
        Op::Parabolic(constants) => return wide(Box::new(PerLane::new(Parabolic::new(constants)))),
        Op::SuperTrend(result) => return wide(Box::new(PerLane::new(Super(result)))),
        Op::HeikinAshi => return wide(Box::new(PerLane::new(HeikinAshi))),
        Op::VariableMean { least, most } => return wide(Box::new(VariableMean { least, most })),
        Op::AnchoredMean { anchor, previous } => {
            return wide(Box::new(PerLane::new(AnchoredMean { anchor, previous })));
        }
        Op::CrossesAbove => return wide(Box::new(Crosses { above: true })),
        Op::CrossesBelow => return wide(Box::new(Crosses { above: false })),
        Op::Within(p) => return wide(Box::new(Fold::within(p))),
        Op::Streak(p) => return wide(Box::new(Fold::streak(p))),
        Op::Since => return wide(Box::new(Since::new())),
        Op::ValueWhen => return wide(Box::new(ValueWhen::new())),
        Op::MaxSince => return wide(Box::new(ExtremeSince::new(true))),
        Op::MinSince => return wide(Box::new(ExtremeSince::new(false))),
        Op::Ever => return wide(Box::new(Ever::new())),
        Op::EverSince => return wide(Box::new(Ever::since())),
        Op::BarsSinceMax(p) => return wide(Box::new(SinceExtreme::new(p, 1.0, bars))),
        Op::BarsSinceMin(p) => return wide(Box::new(SinceExtreme::new(p, -1.0, bars))),
        Op::MaxIndex(p) => return wide(Box::new(ExtremeIndex::new(p, 1.0))),
        Op::MinIndex(p) => return wide(Box::new(ExtremeIndex::new(p, -1.0))),
        Op::Slope(p) => return wide(Box::new(Slope::new(p, bars))),
        Op::Beta(p) => return wide(Box::new(Packed(Joint::<f64, Beta>::new(p, bars)))),
        Op::OrderStatistic { p, rank } => return wide(Box::new(Ranked::new(p, rank))),
        Op::WilderTotal(p) => return wide(Box::new(PerLane::new(WilderTotal(p)))),
        Op::Product => return wide(Box::new(PerLane::new(Product))),
        Op::Previous => return wide(Box::new(PerLane::new(Previous))),
        Op::Correlation(p) => return wide(Box::new(Packed(Joint::<f64, Correlation>::new(p, bars)))),
    })
}

/// A new step for averages computed in one pass.
fn trend_means<T: Real>(means: &[TrendMean], bars: usize) -> Box<dyn AnyStep<T>> {
    match means.first().map(|m| pass_of(m.family)) {
        Some(Pass::Exponential) => Box::new(Packed(Exponentials::new(means))),
        Some(Pass::Kaufman) => Box::new(Packed(Kaufmans::new(means, bars))),
        Some(Pass::Window) | None => Box::new(Packed(Windows::new(means, bars))),
    }
}

/// A new step for a count over `p` bars.
fn count<T: Real>(of: Counted, p: u32, bars: usize) -> Box<dyn AnyStep<T>> {
    match of {
        Counted::Compare(CompareOp::Less) => Box::new(Packed(Count::new(count::Less, p, bars))),
        Counted::Compare(CompareOp::LessEqual) => Box::new(Packed(Count::new(count::LessEqual, p, bars))),
        Counted::Compare(CompareOp::Greater) => Box::new(Packed(Count::new(count::Greater, p, bars))),
        Counted::Compare(CompareOp::GreaterEqual) => Box::new(Packed(Count::new(count::GreaterEqual, p, bars))),
        Counted::Compare(CompareOp::Equal) => Box::new(Packed(Count::new(count::Equal, p, bars))),
        Counted::Compare(CompareOp::NotEqual) => Box::new(Packed(Count::new(count::NotEqual, p, bars))),
        Counted::CrossesAbove => Box::new(Packed(Count::new(count::Above, p, bars))),
        Counted::CrossesBelow => Box::new(Packed(Count::new(count::Below, p, bars))),
    }
}

/// A new step for a group.
fn group_for<T: Real>(work: &FusedOp) -> Box<dyn AnyStep<T>> {
    match work {
        FusedOp::Op(_) | FusedOp::TrendMeans(_) | FusedOp::Count { .. } | FusedOp::Weighed => along(Weighed),
        FusedOp::TrueRange => map(TrueRange),
        FusedOp::SumOver(divisor) => map(SumOver { divisor: divisor.value() }),
        FusedOp::PairOver(divisor) => map(PairOver { divisor: divisor.value() }),
        FusedOp::Apart => map(Apart),
        FusedOp::PlusScaled(factor) => map(PlusScaled { factor: factor.value() }),
        FusedOp::MinusScaled(factor) => map(MinusScaled { factor: factor.value() }),
        FusedOp::Within => map(Within),
        FusedOp::ZScore(factor) => map(ZScore { factor: factor.value() }),
        FusedOp::Flows => along(Flows),
        FusedOp::Bands { up, down } => along(Bands { up: up.value(), down: down.value() }),
        FusedOp::Share => map(Share),
        FusedOp::AverageRange(p) => along(AverageRange { mean: Smoothed::wilder(*p) }),
        FusedOp::Strength(p) => along(Strength { mean: Smoothed::wilder(*p) }),
        FusedOp::Convergence { fast, delay, slow, signal } => along(Convergence {
            fast: Smoothed::exponential(*fast, *delay),
            slow: Smoothed::exponential(*slow, 0),
            signal: Smoothed::exponential(*signal, 0),
        }),
        FusedOp::Directional(p) => {
            let p = f64::from(*p);
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
    /// A closure per function, so that the choice is made once and not at every bar.
    macro_rules! one {
        ($name:ident) => {
            Box::new(Scalar1(|x| scalar::unary(Unary::$name, x)))
        };
    }
    match op {
        Unary::Negate => map(Negate),
        Unary::Abs => map(Abs),
        Unary::Sqrt => map(Sqrt),
        Unary::Sign => map(Sign),
        Unary::Round => map(Round),
        Unary::Log => one!(Log),
        Unary::Exp => one!(Exp),
        Unary::Ceil => one!(Ceil),
        Unary::Floor => one!(Floor),
        Unary::Ln => one!(Ln),
        Unary::Log10 => one!(Log10),
        Unary::Sin => one!(Sin),
        Unary::Cos => one!(Cos),
        Unary::Tan => one!(Tan),
        Unary::Asin => one!(Asin),
        Unary::Acos => one!(Acos),
        Unary::Atan => one!(Atan),
        Unary::Sinh => one!(Sinh),
        Unary::Cosh => one!(Cosh),
        Unary::Tanh => one!(Tanh),
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
        Binary::MaskUndefined => map(Gate),
        Binary::Coalesce => map(OrElse),
        Binary::Near => map(Near),
        Binary::Quotient => Box::new(Scalar2(|a, b| scalar::binary(Binary::Quotient, a, b))),
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

/// Bytes of private state of a step with `inputs` inputs over `bars` bars, not counting a few rows.
pub(crate) fn step_bytes<T: Real>(work: &FusedOp, inputs: usize, bars: usize) -> usize {
    if let FusedOp::Count { p, .. } = work {
        return count::count_bytes(*p as usize, bars);
    }
    let rows = tail_rows(work, bars);
    let is_wide = |op: Op| matches!(step_of::<T>(op, inputs, 1, &mut Tables::default()), Made::Wide(_));
    if let FusedOp::Op(op) = work
        && T::SHORT
        && is_wide(*op)
    {
        return rows * size_of::<Row>() + widened_bytes(inputs, op.facts().reads_back, bars);
    }
    rows * size_of::<RowOf<T>>()
}

/// Rows of private state of a step over `bars` bars, not counting a few.
fn tail_rows(work: &FusedOp, bars: usize) -> usize {
    let op = match work {
        FusedOp::TrendMeans(means) => return trend::rows(means, bars),
        FusedOp::Op(op) => *op,
        FusedOp::TrueRange
        | FusedOp::SumOver(_)
        | FusedOp::PairOver(_)
        | FusedOp::Apart
        | FusedOp::PlusScaled(_)
        | FusedOp::MinusScaled(_)
        | FusedOp::Within
        | FusedOp::ZScore(_)
        | FusedOp::Flows
        | FusedOp::Share
        | FusedOp::Bands { .. }
        | FusedOp::AverageRange(_)
        | FusedOp::Strength(_)
        | FusedOp::Convergence { .. }
        | FusedOp::Directional(_)
        | FusedOp::Weighed
        | FusedOp::Count { .. } => return 0,
    };
    match op {
        Op::TrendMean { family, len } => trend::rows(&[TrendMean { family, len }], bars),
        Op::Max(p) | Op::Min(p) | Op::Sum(p) | Op::Mean(p) | Op::OrderStatistic { p, .. } => {
            tail_bars(p as usize, bars)
        }
        // Two sums; a value and its bar.
        Op::StdDev(p) | Op::WeightedMean(p) | Op::Slope(p) | Op::BarsSinceMax(p) | Op::BarsSinceMin(p) => {
            2 * tail_bars(p as usize, bars)
        }
        Op::Correlation(p) | Op::Beta(p) => SUMS * tail_bars(p as usize, bars),
        Op::Column(_)
        | Op::Constant(_)
        | Op::Label(_)
        | Op::HistoryMask
        | Op::Begins(_)
        | Op::Clock(_)
        | Op::Attribute(_)
        | Op::Cross(_)
        | Op::Read(_)
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::Compare(_)
        | Op::And
        | Op::Or
        | Op::Not
        | Op::Select
        | Op::Lag(_)
        | Op::Skip(_)
        | Op::MeanAbsDev(_)
        | Op::PercentRank(_)
        | Op::Ema { .. }
        | Op::EmaBy { .. }
        | Op::Wilder(_)
        | Op::WilderSum(_)
        | Op::WilderTotal(_)
        | Op::WilderRatio(_)
        | Op::Kaufman
        | Op::Hilbert(_)
        | Op::Mesa { .. }
        | Op::Parabolic(_)
        | Op::SuperTrend(_)
        | Op::HeikinAshi
        | Op::VariableMean { .. }
        | Op::Cumulative
        | Op::AnchoredMean { .. }
        | Op::Product
        | Op::Previous
        | Op::MaxIndex(_)
        | Op::MinIndex(_)
        | Op::OnBalance
        | Op::GrownReturn { .. }
        | Op::FamilySignal { .. }
        | Op::SignalEquity { .. }
        | Op::TrendVote { .. }
        | Op::CrossesAbove
        | Op::CrossesBelow
        | Op::Within(_)
        | Op::Streak(_)
        | Op::Since
        | Op::ValueWhen
        | Op::MaxSince
        | Op::MinSince
        | Op::Ever
        | Op::EverSince => 0,
    }
}

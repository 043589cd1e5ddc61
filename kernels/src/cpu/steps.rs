//! Which step runs a primitive, how far back it reads, and where it may begin.

use trawl_plan::ast::CompareOp;
use trawl_plan::graph::{Binary, Op, Unary};
use trawl_plan::scalar;

use super::afresh::{Beta, Correlation, PercentRank};
use super::anchored::AnchoredMean;
use super::cycle::{Adaptive, Hilbert};
use super::elementwise::{Crosses, Lag, Map1, Map2, Map3};
use super::index::{ExtremeIndex, SinceExtreme};
use super::lane::PerLane;
use super::lanes::AnyStep;
use super::pick::{HeikinAshi, Skip, VariableMean};
use super::ranked::Ranked;
use super::recurrence::{Cumulative, Ever, Kaufman, OnBalance, Since, Smoothed, ValueWhen, WilderRatio, WilderSum};
use super::regression::Slope;
use super::running::{Previous, Product, WilderTotal};
use super::stops::{Parabolic, Super};
use super::window::{Deviation, Extreme, Fold, MeanDeviation, REBASE_BARS, Sum, WeightedMean, tail_bars};

/// A fresh step for `op` over at most `bars` bars; `None` for columns and constants, which are read in place.
pub(crate) fn step_for(op: Op, bars: usize) -> Option<Box<dyn AnyStep>> {
    Some(match op {
        Op::Column(_) | Op::Constant(_) => return None,
        // Programs hold inputs in their places; a plan's own leaves never reach the kernels.
        Op::Label(_) | Op::Window | Op::Begins(_) | Op::Cross(_) | Op::Read(_) => return None,
        Op::Unary(u) => unary(u),
        Op::Binary(b) => binary(b),
        Op::Compare(c) => compare(c),
        Op::And => Box::new(Map2(scalar::and)),
        Op::Or => Box::new(Map2(scalar::or)),
        Op::Not => Box::new(Map1(scalar::not)),
        Op::Select => Box::new(Map3(scalar::select)),
        Op::Lag(p) => Box::new(Lag(p as usize)),
        Op::Skip(p) => Box::new(PerLane::new(Skip(p))),
        Op::Sum(p) => Box::new(Sum::new(p, 1.0)),
        Op::Mean(p) => Box::new(Sum::new(p, f64::from(p))),
        Op::WeightedMean(p) => Box::new(WeightedMean::new(p)),
        Op::Max(p) => Box::new(Extreme::new(p, 1.0, bars)),
        Op::Min(p) => Box::new(Extreme::new(p, -1.0, bars)),
        Op::Deviation(p) => Box::new(Deviation::new(p, bars)),
        Op::MeanDeviation(p) => Box::new(MeanDeviation { p: p as usize }),
        Op::Exponential { p, delay } => Box::new(Smoothed::exponential(p, delay)),
        Op::Wilder(p) => Box::new(Smoothed::wilder(p)),
        Op::WilderSum(p) => Box::new(WilderSum::new(p)),
        Op::WilderRatio(p) => Box::new(WilderRatio::new(p)),
        Op::Kaufman => Box::new(Kaufman::new()),
        Op::Hilbert(result) => Box::new(PerLane::new(Hilbert(result))),
        Op::Mesa { fast, slow, result } => {
            Box::new(PerLane::new(Adaptive { fast: fast.value(), slow: slow.value(), result }))
        }
        Op::Parabolic(constants) => Box::new(PerLane::new(Parabolic::new(constants))),
        Op::SuperTrend(result) => Box::new(PerLane::new(Super(result))),
        Op::HeikinAshi => Box::new(PerLane::new(HeikinAshi)),
        Op::VariableMean { least, most } => Box::new(VariableMean { least, most }),
        Op::Cumulative => Box::new(Cumulative::new()),
        Op::AnchoredMean { anchor, previous } => Box::new(PerLane::new(AnchoredMean { anchor, previous })),
        Op::OnBalance => Box::new(OnBalance::new()),
        Op::CrossesAbove => Box::new(Crosses { above: true }),
        Op::CrossesBelow => Box::new(Crosses { above: false }),
        Op::Within(p) => Box::new(Fold::within(p)),
        Op::Streak(p) => Box::new(Fold::streak(p)),
        Op::Since => Box::new(Since::new()),
        Op::ValueWhen => Box::new(ValueWhen::new()),
        Op::Ever => Box::new(Ever::new()),
        Op::EverSince => Box::new(Ever::since()),
        Op::SinceMax(p) => Box::new(SinceExtreme::new(p, 1.0, bars)),
        Op::SinceMin(p) => Box::new(SinceExtreme::new(p, -1.0, bars)),
        Op::MaxIndex(p) => Box::new(ExtremeIndex::new(p, 1.0)),
        Op::MinIndex(p) => Box::new(ExtremeIndex::new(p, -1.0)),
        Op::Slope(p) => Box::new(Slope::new(p, bars)),
        Op::Beta(p) => Box::new(Beta { p: p as usize }),
        Op::Ranked { p, rank } => Box::new(Ranked::new(p, rank)),
        Op::ExponentialBy { p, delay, factor } => Box::new(Smoothed::new(p, delay, factor.value())),
        Op::WilderTotal(p) => Box::new(PerLane::new(WilderTotal(p))),
        Op::Product => Box::new(PerLane::new(Product)),
        Op::Previous => Box::new(PerLane::new(Previous)),
        Op::PercentRank(p) => Box::new(PercentRank { p: p as usize }),
        Op::Correlation(p) => Box::new(Correlation { p: p as usize }),
    })
}

/// One closure a function, so that the choice is made once and not at every bar.
macro_rules! choose {
    ($op:expr, $map:ident(|$a:ident| $scalar:path), $kind:ident: $($variant:ident),+) => {
        match $op {
            $($kind::$variant => Box::new($map(|$a: f64| $scalar($kind::$variant, $a))),)+
        }
    };
    ($op:expr, $map:ident(|$a:ident, $b:ident| $scalar:path), $kind:ident: $($variant:ident),+) => {
        match $op {
            $($kind::$variant => Box::new($map(|$a: f64, $b: f64| $scalar($kind::$variant, $a, $b))),)+
        }
    };
}

fn unary(op: Unary) -> Box<dyn AnyStep> {
    choose!(op, Map1(|x| scalar::unary), Unary: 
        Negate, Abs, Sqrt, Log, Exp, Sign, Round, Ceil, Floor, Ln, Log10, Sin, Cos, Tan, Asin, Acos, Atan, Sinh, Cosh,
        Tanh)
}

fn binary(op: Binary) -> Box<dyn AnyStep> {
    choose!(op, Map2(|a, b| scalar::binary), Binary:
        Add, Subtract, Multiply, Divide, Quotient, Remainder, Maximum, Minimum, Power, RatioOrZero, RatioOrZeroEpsilon, Gate,
        OrElse, Near)
}

fn compare(op: CompareOp) -> Box<dyn AnyStep> {
    choose!(op, Map2(|a, b| scalar::compare), CompareOp: Less, LessEqual, Greater, GreaterEqual, Equal, NotEqual)
}

/// Rows before the current one that a step reads of its inputs.
pub(crate) fn reads_back(op: Op) -> usize {
    match op {
        // Sliding sums also read the bar that leaves the window.
        Op::Sum(p) | Op::Mean(p) | Op::WeightedMean(p) => p as usize,
        Op::MaxIndex(_) | Op::MinIndex(_) => op.look_back(),
        op if op.is_recursive() => 0,
        op => op.look_back(),
    }
}

/// The first row that a step must run so that row `wanted` is right.
pub(crate) fn begin(op: Op, wanted: usize) -> usize {
    match op {
        Op::Sum(_) | Op::Mean(_) | Op::WeightedMean(_) => wanted / REBASE_BARS * REBASE_BARS,
        op if op.is_recursive() => 0,
        _ => wanted,
    }
}

/// Rows that a step keeps for itself, beyond a few, over `bars` bars.
pub(crate) fn tail_rows(op: Op, bars: usize) -> usize {
    match op {
        Op::Max(p) | Op::Min(p) => tail_bars(p as usize, bars),
        // A mean and a sum of squares; two sums; a value and its bar.
        Op::Deviation(p) | Op::Slope(p) | Op::SinceMax(p) | Op::SinceMin(p) => 2 * tail_bars(p as usize, bars),
        Op::Ranked { p, .. } => tail_bars(p as usize, bars),
        _ => 0,
    }
}

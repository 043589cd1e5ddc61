//! How large the values of a program's nodes can be.

#![warn(clippy::wildcard_enum_match_arm)]

use trawl_plan::Program;
use trawl_plan::graph::{Binary, Node, Op, Unary};

/// Roundings make a value larger than its bound by less than that: sums of a thousand bars by a part in 10^13.
const SLACK: f64 = 1.0 + 1e-9;
/// No logarithm of a number is larger.
const LOGARITHM: f64 = 1100.0;

/// By node, what no finite value of it is larger than in magnitude, where inputs' finite values are not larger than `inputs`, beside
/// which they may be missing or infinite; NaN where no bound is known.
pub(super) fn largest(program: &Program, inputs: &[f64]) -> Vec<f64> {
    let mut known: Vec<f64> = Vec::with_capacity(program.nodes().len());
    for node in program.nodes() {
        known.push(of_node(node, inputs, &known) * SLACK);
    }
    known
}

fn of_node(node: &Node, inputs: &[f64], known: &[f64]) -> f64 {
    let of = |input: usize| node.inputs.get(input).map_or(f64::NAN, |id| known[id.index()]);
    // NaN stays NaN, where f64::max would drop it.
    let larger = |a: f64, b: f64| if a < b || b.is_nan() { b } else { a };
    let bars = |p: u32| f64::from(p);
    match node.op {
        Op::Column(input) => inputs.get(usize::from(input)).copied().unwrap_or(f64::NAN),
        Op::Constant(bits) => bits.value().abs(),
        Op::Unary(unary) => match unary {
            Unary::Negate | Unary::Abs => of(0),
            Unary::Sqrt => larger(of(0), 1.0),
            Unary::Sign | Unary::Sin | Unary::Cos | Unary::Tanh => 1.0,
            Unary::Round | Unary::Ceil | Unary::Floor => of(0) + 1.0,
            Unary::Log | Unary::Ln | Unary::Log10 => LOGARITHM,
            Unary::Asin | Unary::Acos | Unary::Atan => 4.0,
            Unary::Exp | Unary::Tan | Unary::Sinh | Unary::Cosh => f64::NAN,
        },
        Op::Binary(binary) => match binary {
            Binary::Add | Binary::Subtract => of(0) + of(1),
            Binary::Multiply => of(0) * of(1),
            // Divided by an infinity, a number stays what it is.
            Binary::Remainder => larger(of(0), of(1)),
            Binary::Maximum | Binary::Minimum | Binary::Coalesce => larger(of(0), of(1)),
            Binary::MaskUndefined => of(0),
            Binary::Near => 1.0,
            Binary::Divide | Binary::Quotient | Binary::RatioOrZero | Binary::RatioOrZeroEpsilon | Binary::Power => {
                f64::NAN
            }
        },
        Op::Compare(_) | Op::And | Op::Or | Op::Not | Op::CrossesAbove | Op::CrossesBelow | Op::Within(_) => 1.0,
        Op::Select => larger(of(1), of(2)),
        Op::Lag(_) | Op::Max(_) | Op::Min(_) | Op::OrderStatistic { .. } => of(0),
        // A weighted mean and a mean of what lies between others are no larger than those; with rounding, less than twice.
        Op::Mean(_) | Op::WeightedMean(_) | Op::StdDev(_) => 2.0 * of(0),
        Op::MeanAbsDev(_) => 2.0 * (of(0) + of(1)),
        Op::Ema { .. } | Op::EmaBy { .. } | Op::Wilder(_) => super::fading::SEED_SPAN * of(0),
        Op::Sum(p) => bars(p) * of(0),
        Op::PercentRank(_) => 100.0,
        Op::BarsSinceMax(p) | Op::BarsSinceMin(p) | Op::Streak(p) => bars(p),
        // What they are made of says little of how large they are, or is nothing that a program has.
        Op::Label(_)
        | Op::Attribute(_)
        | Op::HistoryMask
        | Op::Begins(_)
        | Op::Clock(_)
        | Op::Cross(_)
        | Op::Read(_)
        | Op::Skip(_)
        | Op::Slope(_)
        | Op::Beta(_)
        | Op::Correlation(_)
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
        | Op::TrendMean { .. }
        | Op::GrownReturn { .. }
        | Op::FamilySignal { .. }
        | Op::SignalEquity { .. }
        | Op::TrendVote { .. }
        | Op::Since
        | Op::ValueWhen
        | Op::MaxSince
        | Op::MinSince
        | Op::Ever
        | Op::EverSince => f64::NAN,
    }
}

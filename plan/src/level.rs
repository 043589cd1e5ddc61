//! Whether a value lies where prices lie: how it moves when every price is raised by the same amount.
//!
//! A moving average moves by as much (1), an oscillator not at all (0), `2 * close` by twice as much. What is not known, as
//! for the product of two series, is `None`. A chart draws over the price what moves with it.

use crate::graph::{Binary, NodeId, Op, Unary};
use crate::scan_plan::Plan;

/// Columns that are prices.
const PRICES: [&str; 6] = ["open", "high", "low", "close", "vwap", "adj_close"];

impl Plan {
    /// For each node, by how much it rises when every price rises by one; `None` where that depends on the values.
    pub fn rises(&self) -> Vec<Option<f64>> {
        let mut rises: Vec<Option<f64>> = Vec::with_capacity(self.nodes().len());
        for node in self.nodes() {
            let of = |i: usize| node.inputs.get(i).and_then(|id: &NodeId| rises[id.index()]);
            let constant = |i: usize| node.inputs.get(i).and_then(|id| self.graph.constant(*id));
            let equal = |a: usize, b: usize| of(a).filter(|rise| of(b) == Some(*rise));
            let still = node.inputs.iter().all(|id| rises[id.index()] == Some(0.0));
            let rise = match node.op {
                Op::Column(i) => {
                    let price = self.columns.get(usize::from(i)).is_some_and(|c| PRICES.contains(&c.as_str()));
                    Some(f64::from(u8::from(price)))
                }
                Op::Binary(Binary::Add) => of(0).zip(of(1)).map(|(a, b)| a + b),
                Op::Binary(Binary::Subtract) => of(0).zip(of(1)).map(|(a, b)| a - b),
                Op::Binary(Binary::Maximum | Binary::Minimum) => equal(0, 1),
                Op::Binary(Binary::Gate | Binary::OrElse) => of(0),
                Op::Select => equal(1, 2),
                Op::Cross(_) => None,
                _ if still => Some(0.0),
                Op::Binary(Binary::Multiply) => match (constant(0), constant(1)) {
                    (Some(factor), _) => of(1).map(|rise| rise * factor),
                    (_, Some(factor)) => of(0).map(|rise| rise * factor),
                    _ => None,
                },
                Op::Binary(Binary::Divide | Binary::Quotient) => {
                    constant(1).and_then(|divisor| of(0).map(|rise| rise / divisor))
                }
                Op::Unary(Unary::Negate) => of(0).map(|rise| -rise),
                Op::Unary(Unary::Abs | Unary::Round | Unary::Ceil | Unary::Floor)
                | Op::Lag(_)
                | Op::Skip(_)
                | Op::Read(_)
                | Op::Previous
                | Op::Mean(_)
                | Op::WeightedMean(_)
                | Op::Max(_)
                | Op::Min(_)
                | Op::Ranked { .. }
                | Op::Exponential { .. }
                | Op::ExponentialBy { .. }
                | Op::Wilder(_)
                | Op::Kaufman
                | Op::Mesa { .. }
                | Op::VariableMean { .. }
                | Op::TrendMean { .. } => of(0),
                Op::ValueWhen => of(1),
                Op::AnchoredMean { .. } => of(2),
                Op::Sum(p) => of(0).map(|rise| rise * f64::from(p)),
                Op::HeikinAshi => Some(1.0),
                // Differences, places and conditions do not see the level of their inputs.
                Op::Deviation(_)
                | Op::MeanDeviation(_)
                | Op::PercentRank(_)
                | Op::SinceMax(_)
                | Op::SinceMin(_)
                | Op::MaxIndex(_)
                | Op::MinIndex(_)
                | Op::Slope(_)
                | Op::Beta(_)
                | Op::Correlation(_) => Some(0.0),
                _ => None,
            };
            rises.push(rise);
        }
        rises
    }
}

#[cfg(test)]
mod tests {
    use crate::{Schema, compile_expressions};

    #[test]
    fn averages_move_with_the_price_and_oscillators_do_not() {
        let schema = Schema::of_columns(["open", "high", "low", "close", "volume"].map(str::to_owned).to_vec());
        for (text, expected) in [
            ("sma(close, 20)", Some(1.0)),
            ("hma(close, 20)", Some(1.0)),
            ("bbands(close, 20).upper", Some(1.0)),
            ("highest(high, 20)[1]", Some(1.0)),
            ("2 * close", Some(2.0)),
            ("macd().line", Some(0.0)),
            ("macd().hist", Some(0.0)),
            ("rsi()", Some(0.0)),
            ("atr()", Some(0.0)),
            ("stoch().slowk", Some(0.0)),
            ("close - sma(close, 9)", Some(0.0)),
            ("sma(volume, 20)", Some(0.0)),
            ("close * volume", None),
        ] {
            let plan = compile_expressions(&[text.to_owned()], "--expr", &schema).expect(text);
            let rise = plan.rises()[plan.points[0].select[0].index()];
            let near = rise.zip(expected).map_or(rise == expected, |(a, b)| (a - b).abs() < 1e-9);
            assert!(near, "{text}: {rise:?}");
        }
    }
}

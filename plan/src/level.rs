//! Whether a value lies where prices lie: how it moves when every price is raised by the same amount.
//!
//! A moving average moves by as much (1), an oscillator not at all (0), `2 * close` by twice as much. What is not known, as
//! for the product of two series, is `None`. A chart draws over the price what moves with it.

use crate::graph::{Binary, Class, Leaf, NodeId, Pointwise, Unary};
use crate::op_facts::Shift;
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
            let rise = match node.op.facts().class {
                Class::Leaf(leaf) => match leaf {
                    Leaf::Column(i) => {
                        let price = self.columns.get(usize::from(i)).is_some_and(|c| PRICES.contains(&c.as_str()));
                        Some(f64::from(u8::from(price)))
                    }
                    Leaf::Constant(_)
                    | Leaf::Label(_)
                    | Leaf::HistoryMask
                    | Leaf::Begins(_)
                    | Leaf::Clock(_)
                    | Leaf::Attribute(_) => Some(0.0),
                    Leaf::Read(_) => of(0),
                    Leaf::Cross(_) => None,
                },
                // Of what does not rise nothing rises.
                Class::Pointwise(_) | Class::StepFacts(_) if still => Some(0.0),
                Class::Pointwise(function) => match function {
                    Pointwise::Unary(op) => match op {
                        Unary::Negate => of(0).map(|rise| -rise),
                        Unary::Abs | Unary::Round | Unary::Ceil | Unary::Floor => of(0),
                        Unary::Sqrt
                        | Unary::Log
                        | Unary::Exp
                        | Unary::Sign
                        | Unary::Ln
                        | Unary::Log10
                        | Unary::Sin
                        | Unary::Cos
                        | Unary::Tan
                        | Unary::Asin
                        | Unary::Acos
                        | Unary::Atan
                        | Unary::Sinh
                        | Unary::Cosh
                        | Unary::Tanh => None,
                    },
                    Pointwise::Binary(op) => match op {
                        Binary::Add => of(0).zip(of(1)).map(|(a, b)| a + b),
                        Binary::Subtract => of(0).zip(of(1)).map(|(a, b)| a - b),
                        Binary::Maximum | Binary::Minimum => equal(0, 1),
                        Binary::MaskUndefined | Binary::Coalesce => of(0),
                        Binary::Multiply => match (constant(0), constant(1)) {
                            (Some(factor), _) => of(1).map(|rise| rise * factor),
                            (_, Some(factor)) => of(0).map(|rise| rise * factor),
                            _ => None,
                        },
                        Binary::Divide | Binary::Quotient => {
                            constant(1).and_then(|divisor| of(0).map(|rise| rise / divisor))
                        }
                        Binary::Remainder
                        | Binary::Power
                        | Binary::RatioOrZero
                        | Binary::RatioOrZeroEpsilon
                        | Binary::Near => None,
                    },
                    // NA has no level.
                    Pointwise::Select => match [1, 2].map(|i| constant(i).is_some_and(f64::is_nan)) {
                        [true, _] => of(2),
                        [_, true] => of(1),
                        _ => equal(1, 2),
                    },
                    Pointwise::Compare(_) | Pointwise::And | Pointwise::Or | Pointwise::Not => None,
                },
                Class::StepFacts(step) => match step.shift {
                    Shift::Of(input) => of(input),
                    Shift::Times(times) => of(0).map(|rise| rise * f64::from(times)),
                    Shift::One => Some(1.0),
                    Shift::None => Some(0.0),
                    Shift::Unknown => None,
                },
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
            ("session.open", Some(1.0)),
            ("prev_session.high", Some(1.0)),
            ("iff(close > open, close, volume)", None),
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

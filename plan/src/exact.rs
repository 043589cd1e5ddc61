//! Which series rounding can have touched: a static property of each node, for the `edge` flag.
//!
//! A comparison of two exact values is never turned by rounding; nor is one of 0 with a value whose sign is exact. What
//! counts as which, and why, is decided in docs/adr/0009; of a step it is a column of the table of primitives
//! (`op_facts::Values`).

use crate::frame::{BarSize, CrossFunction};
use crate::graph::{Binary, Class, Graph, Leaf, NodeId, Pointwise, Unary};
use crate::op_facts::Values;
use crate::resolve::Resolver;
use trawl_terms::{AttributeKind, Clock};

/// How much of a value is exact, most first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// A whole number, as far as a double holds those.
    Whole,
    /// As stored, or one correctly rounded quotient of whole numbers.
    Exact,
    /// Rounded, but its sign and its zeros are right: a difference of two exact values.
    Signed,
    Rounded,
}

/// What is known of a node's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exactness {
    pub level: Level,
    /// Never below 0.
    positive: bool,
    /// Made of prices or volumes that adjustment has multiplied: equal numbers are no rounding, numbers next to each
    /// other are.
    pub adjusted: bool,
}

impl Exactness {
    const WHOLE: Self = Self { level: Level::Whole, positive: true, adjusted: false };
    const EXACT: Self = Self { level: Level::Exact, positive: true, adjusted: false };
    pub const ROUNDED: Self = Self { level: Level::Rounded, positive: false, adjusted: false };

    fn constant(value: f64) -> Self {
        let level = if value.fract() == 0.0 { Level::Whole } else { Level::Exact };
        Self { level, positive: value >= 0.0, adjusted: false }
    }

    /// Either of two values as it is.
    fn selected(self, other: Self) -> Self {
        Self { level: self.level.max(other.level), positive: self.positive && other.positive, ..self.beside(other) }
    }

    /// With what both are made of.
    fn beside(self, other: Self) -> Self {
        Self { adjusted: self.adjusted || other.adjusted, ..self }
    }

    fn at(self, level: Level) -> Self {
        Self { level, ..self }
    }

    /// A sum of values of this kind.
    fn summed(self) -> Self {
        self.at(match self.level {
            Level::Whole => Level::Whole,
            // Values of one sign do not cancel.
            Level::Exact | Level::Signed if self.positive => Level::Signed,
            Level::Exact | Level::Signed | Level::Rounded => Level::Rounded,
        })
    }

    /// A mean of values of this kind with weights above 0, rounded on the way.
    fn averaged(self) -> Self {
        self.at(self.level.max(Level::Exact)).summed()
    }

    /// A product or quotient with `other`.
    fn scaled(self, other: Self, level_of_wholes: Level) -> Self {
        let level = match self.level.max(other.level) {
            Level::Whole => level_of_wholes,
            Level::Exact | Level::Signed => Level::Signed,
            Level::Rounded => Level::Rounded,
        };
        Self { level, positive: self.positive && other.positive, ..self.beside(other) }
    }
}

/// What a node is, given what its inputs are.
pub(crate) fn exactness(facts: &Facts, graph: &Graph, id: NodeId, inputs: &[Exactness]) -> Exactness {
    let node = graph.node(id);
    let of = |i: usize| inputs.get(i).copied().unwrap_or(Exactness::ROUNDED);
    match node.op.facts().class {
        Class::Leaf(leaf) => match leaf {
            Leaf::Column(i) => facts.column(i, node.frame.index()),
            Leaf::Constant(bits) => Exactness::constant(bits.value()),
            Leaf::Label(_) | Leaf::HistoryMask | Leaf::Begins(_) => Exactness::WHOLE,
            Leaf::Attribute(i) => facts.attribute(i),
            // Minutes may have a fraction, in bars of seconds: every symbol has the same one at the same time.
            Leaf::Clock(Clock::SinceOpen | Clock::ToClose | Clock::TimeOfDay) => Exactness::EXACT,
            Leaf::Clock(Clock::InSession | Clock::Weekday | Clock::Month | Clock::Date) => Exactness::WHOLE,
            Leaf::Cross(i) => match facts.function(i) {
                CrossFunction::Rank => Exactness::WHOLE,
                // One quotient of whole numbers.
                CrossFunction::Percent | CrossFunction::Breadth => Exactness::EXACT,
                CrossFunction::Score | CrossFunction::Demean | CrossFunction::Quantile(_) => Exactness::ROUNDED,
            },
            Leaf::Read(_) => of(0),
        },
        Class::Pointwise(function) => match function {
            Pointwise::Unary(op) => unary(op, of(0)),
            Pointwise::Binary(op) => {
                let constant = |i: usize| node.inputs.get(i).and_then(|id| graph.constant(*id));
                let same = node.inputs.first() == node.inputs.get(1);
                binary(op, [of(0), of(1)], [constant(0), constant(1)], same)
            }
            Pointwise::Compare(_) | Pointwise::And | Pointwise::Or | Pointwise::Not => Exactness::WHOLE,
            Pointwise::Select => of(1).selected(of(2)),
        },
        Class::StepFacts(step) => match step.values {
            Values::Whole => Exactness::WHOLE,
            Values::WholeOfEitherSign => Exactness { positive: false, ..Exactness::WHOLE },
            Values::ExactOfEitherSign => Exactness { positive: false, ..Exactness::EXACT },
            Values::Share => Exactness { level: Level::Signed, ..Exactness::EXACT },
            Values::Of(input) => of(input),
            Values::SumOf(input) => of(input).summed(),
            Values::SumOfEitherSign(input) => Exactness { positive: false, ..of(input) }.summed(),
            Values::Mean if of(0).level == Level::Whole => of(0).at(Level::Exact),
            Values::Mean | Values::Averaged => of(0).averaged(),
            Values::Rounded => Exactness::ROUNDED,
        },
    }
}

fn unary(op: Unary, x: Exactness) -> Exactness {
    match op {
        Unary::Negate => Exactness { positive: false, ..x },
        Unary::Abs => Exactness { positive: true, ..x },
        Unary::Sign | Unary::Round | Unary::Ceil | Unary::Floor => Exactness { positive: false, ..Exactness::WHOLE },
        Unary::Sqrt => x.at(x.level.max(Level::Signed)),
        Unary::Log
        | Unary::Exp
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
        | Unary::Tanh => Exactness::ROUNDED,
    }
}

/// Whether multiplying and dividing by it rounds nothing.
fn is_power_of_two(constant: Option<f64>) -> bool {
    constant.is_some_and(|c| c.is_normal() && c.to_bits().trailing_zeros() >= f64::MANTISSA_DIGITS - 1)
}

fn binary(op: Binary, [a, b]: [Exactness; 2], constants: [Option<f64>; 2], same: bool) -> Exactness {
    let wholes = a.level.max(b.level) == Level::Whole;
    match op {
        Binary::Add if wholes => a.selected(b),
        Binary::Add => a.selected(b).at(Level::Exact.max(a.level).max(b.level)).summed(),
        Binary::Subtract if wholes => Exactness { positive: false, ..a },
        Binary::Subtract => {
            let level = if a.level.max(b.level) <= Level::Exact { Level::Signed } else { Level::Rounded };
            Exactness { level, positive: false, ..a.beside(b) }
        }
        Binary::Multiply if is_power_of_two(constants[0]) => Exactness { positive: a.positive && b.positive, ..b }
            .at(b.level.max(if constants[0].is_some_and(|c| c.abs() >= 1.0) { Level::Whole } else { Level::Exact })),
        Binary::Multiply if is_power_of_two(constants[1]) => binary(op, [b, a], [constants[1], constants[0]], same),
        Binary::Multiply => {
            let product = a.scaled(b, Level::Whole);
            Exactness { positive: product.positive || same, ..product }
        }
        Binary::Divide | Binary::Quotient | Binary::RatioOrZero if is_power_of_two(constants[1]) => {
            Exactness { positive: a.positive && b.positive, ..a }.at(a.level.max(Level::Exact))
        }
        Binary::Divide | Binary::Quotient | Binary::RatioOrZero => a.scaled(b, Level::Exact),
        // Where the divisor counts as none is itself rounded.
        Binary::RatioOrZeroEpsilon | Binary::Power => Exactness::ROUNDED,
        Binary::Remainder if wholes => Exactness { positive: b.positive, ..a },
        Binary::Remainder => Exactness::ROUNDED,
        Binary::Maximum => Exactness { positive: a.positive || b.positive, ..a.selected(b) },
        Binary::Minimum | Binary::Coalesce => a.selected(b),
        Binary::MaskUndefined => a,
        Binary::Near => Exactness::WHOLE,
    }
}

/// What a leaf's exactness depends on besides the graph.
pub(crate) struct Facts {
    columns: Vec<String>,
    /// Of each frame, whether its bars are built from others.
    higher: Vec<bool>,
    functions: Vec<CrossFunction>,
    /// Of each attribute, whether its values are dates.
    dates: Vec<bool>,
    /// Whether the scan adjusts prices and volumes.
    adjusted: bool,
}

/// Columns that a higher bar takes from one of its bars; the others may be sums.
const SELECTED: [&str; 4] = ["open", "high", "low", "close"];
/// What is never below 0, so that its sums do not cancel.
const VOLUME: &str = "volume";

impl Facts {
    /// What `resolver` knows so far.
    pub fn of(resolver: &Resolver<'_>) -> Self {
        let higher = |frame: &crate::frame::Frame| frame.bars != BarSize::Base;
        let is_date = |name: &String| resolver.schema.attributes.get(name) == Some(&AttributeKind::Date);
        Self {
            columns: resolver.columns.clone(),
            higher: resolver.frames.iter().map(higher).collect(),
            functions: resolver.crosses.iter().map(|c| c.function).collect(),
            dates: resolver.attributes.iter().map(is_date).collect(),
            adjusted: resolver.adjusted,
        }
    }

    fn column(&self, column: u16, frame: usize) -> Exactness {
        let name = self.columns.get(usize::from(column)).map_or("", String::as_str);
        let stored = Exactness { positive: name == VOLUME, adjusted: self.adjusted, ..Exactness::EXACT };
        let summed = self.higher.get(frame) == Some(&true) && !SELECTED.contains(&name);
        if summed { stored.summed() } else { stored }
    }

    /// A date is a whole number of days, a number is as it was written; either may be below 0.
    fn attribute(&self, attribute: u16) -> Exactness {
        let kind =
            if self.dates.get(usize::from(attribute)) == Some(&true) { Exactness::WHOLE } else { Exactness::EXACT };
        Exactness { positive: false, ..kind }
    }

    fn function(&self, cross: u16) -> CrossFunction {
        self.functions.get(usize::from(cross)).copied().unwrap_or(CrossFunction::Demean)
    }
}

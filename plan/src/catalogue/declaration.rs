//! How a function of the language is declared: [`declare`], what differs from the usual, and its formula, which ends it.
//!
//! What is true of one function is in its declaration and nowhere else: engine, documentation and tests read it here.

use super::expression::{Num, Truth};
use super::formula::Formula;
use super::patterns::{Candles, shape};
use crate::graph::{Kind, NodeId};
use trawl_terms::Clock;

/// A function of the language.
#[derive(Debug)]
pub struct Function {
    /// Lower case, as it is called.
    pub name: &'static str,
    /// Other names for the same function.
    pub aliases: &'static [&'static str],
    /// Heading under which it is listed.
    pub group: &'static str,
    /// One line: what it tells.
    pub summary: &'static str,
    /// The formula in words and symbols.
    pub formula: &'static str,
    /// Where the definition is from, as it is shown.
    pub reference: &'static str,
    /// Where the definition is from, and what its values are compared with.
    pub source: Reference,
    /// Series arguments, in order.
    pub series: &'static [SeriesArg],
    /// Parameters, in order.
    pub params: &'static [Param],
    /// Outputs in order; the call needs no field when there is one.
    pub outputs: &'static [OutputDecl],
    /// Pairs of parameters of which the first must not exceed the second.
    pub at_most: &'static [(&'static str, &'static str)],
    /// Groups of steps that the CPU engine runs in one pass when the function is called with its defaults.
    pub fused: &'static [Fused],
    /// What factors of prices and volumes do to the outputs.
    pub scaling: Scaling,
    /// The smallest exponent of two for a factor under which `scaling` holds, and why; any when `None`.
    pub scales_from: Option<(i32, &'static str)>,
    /// Whether terms of both signs add up: kernels over chunks of histories are then as exact as the largest value.
    pub sums_signed: bool,
    /// Whether it is a word, written without parentheses.
    pub is_bare: bool,
    /// What it reads of the time of a bar, if that is all or decides all.
    pub clock: Option<Clock>,
    /// Whether it looks at its condition over a window: an explained match then shows since when that holds.
    pub watches_condition: bool,
    check: Option<Check>,
    build: Build,
}

/// Where a definition is from, and so what its values are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference {
    /// TA-Lib 0.8 and its columns in `tests/golden/talib`.
    TaLib,
    /// The scan language itself, defined by the tests' oracle.
    Language,
    /// A source whose definition a test of its own computes.
    Source(&'static str),
    /// A source, and values by an independent program: a file under `tests/golden`, described in its README.
    Values(&'static str, &'static str),
}

impl Reference {
    const fn text(self) -> &'static str {
        match self {
            Self::TaLib => "TA-Lib 0.8",
            Self::Language => "scan language",
            Self::Source(source) | Self::Values(source, _) => source,
        }
    }
}

/// What factors of all prices, or of all volumes, do to a function's outputs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scaling {
    /// Outputs are multiplied by these powers of the prices' and of the volumes' factor.
    Powers {
        /// 0 for outputs that are the same at any level of prices.
        prices: f64,
        /// 0 for outputs that are the same at any level of volumes.
        volumes: f64,
    },
    /// They follow no such law, and why.
    Lawless(&'static str),
}

impl Scaling {
    /// Outputs are prices.
    pub const PRICES: Self = Self::Powers { prices: 1.0, volumes: 0.0 };
    /// Outputs are volumes.
    pub const VOLUMES: Self = Self::Powers { prices: 0.0, volumes: 1.0 };
    /// Outputs are plain numbers.
    pub const PURE: Self = Self::Powers { prices: 0.0, volumes: 0.0 };
}

/// Groups of steps that the CPU engine runs in one pass (`kernels/src/cpu/lower/fuse.rs` finds them by their shape).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fused {
    /// True range.
    TrueRange,
    /// A sum of three series over a constant.
    SumOver,
    /// A sum of two series over a constant.
    PairOver,
    /// Distance of two series.
    Apart,
    /// A series and another one times a constant.
    PlusScaled,
    /// A series less another one times a constant.
    MinusScaled,
    /// Stochastic %K: the place in a range.
    Within,
    /// Distance from a mean in deviations.
    ZScore,
    /// Money flow of both directions.
    Flows,
    /// One of two parts in percent of both.
    Share,
    /// Two bands and the line between.
    Bands,
    /// Average true range.
    AverageRange,
    /// Relative strength.
    Strength,
    /// Convergence/divergence with its signal.
    Convergence,
    /// Average directional index.
    Directional,
    /// Running volume-weighted mean.
    Weighed,
    /// Averages of a trend classification that read the same series.
    TrendMeans,
}

/// A series argument.
#[derive(Debug)]
pub struct SeriesArg {
    /// For naming it in a call.
    pub name: &'static str,
    /// Column used when it is not given; required when `None`.
    pub default: Option<&'static str>,
    /// A number or a condition.
    pub kind: Kind,
    /// Whether it is always its default and no argument.
    pub fixed: bool,
}

/// What a parameter may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ParamType {
    /// A whole number, both ends legal.
    Integer {
        /// The least legal value.
        min: u32,
        /// The largest legal value.
        max: u32,
    },
    /// A number, both ends legal.
    Real {
        /// The least legal value.
        min: f64,
        /// The largest legal value.
        max: f64,
    },
    /// A moving average's name or TA-Lib number; by keyword only.
    Average,
    /// One of these words, in any case; its value is its place among them.
    Choice(&'static [&'static str]),
    /// `true` or `false`.
    Truth,
}

/// What a parameter is when the call does not say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ParamDefault {
    /// Nothing: a call without it is rejected.
    Required,
    /// This value; of a [`ParamType::Choice`] the place among its words, of a truth 0 or 1.
    Value(f64),
    /// The value of another, earlier parameter.
    SameAs(&'static str),
}

/// A parameter.
#[derive(Debug)]
pub struct Param {
    /// TA-Lib's name where it is TA-Lib's function.
    pub name: &'static str,
    /// What values are legal.
    pub kind: ParamType,
    /// Its value in a call without it.
    pub default: ParamDefault,
}

/// An output.
#[derive(Debug)]
pub struct OutputDecl {
    /// TA-Lib's name.
    pub name: &'static str,
    /// Customary names.
    pub aliases: &'static [&'static str],
    /// A number or a condition.
    pub kind: Kind,
    /// Whether it is a plain number beside outputs that scale with prices.
    pub pure: bool,
}

/// Parameters of one call that do not fit one another.
pub(crate) struct Conflict {
    /// Parameters that may have caused it: the first that the call gives is shown.
    pub places: Vec<&'static str>,
    pub message: String,
    pub label: String,
    pub help: String,
}

/// What finds conflicts among the parameters of a function, given in order.
pub(crate) type Check = fn(&[f64]) -> Option<Conflict>;

/// What a function is built by.
#[derive(Debug, Clone, Copy)]
enum Build {
    Number(for<'f> fn(&'f Formula) -> Num<'f>),
    Condition(for<'f> fn(&'f Formula) -> Truth<'f>),
    Numbers(for<'f> fn(&'f Formula) -> Vec<Num<'f>>),
    /// Bars before the current one that a candle pattern covers, and the pattern.
    Pattern(u32, for<'c> fn(&'c Candles<'c>) -> Num<'c>),
}

/// The single output of most functions.
const ONE: &[OutputDecl] = &[output("real", &[])];
/// The single output of candle patterns and other whole numbers.
const INTEGER: &[OutputDecl] = &[output("integer", &[])];
/// The single output of conditions.
const TRUTH: &[OutputDecl] = &[OutputDecl { name: "truth", aliases: &[], kind: Kind::Bool, pure: true }];

/// An output with its customary names.
pub(super) const fn output(name: &'static str, aliases: &'static [&'static str]) -> OutputDecl {
    OutputDecl { name, aliases, kind: Kind::Num, pure: false }
}

impl OutputDecl {
    /// The output as a condition.
    pub(super) const fn truth(self) -> Self {
        Self { kind: Kind::Bool, pure: true, ..self }
    }

    /// The output as a plain number.
    pub(super) const fn pure(self) -> Self {
        Self { pure: true, ..self }
    }
}

/// A function that has no formula yet; what is usual is left out.
pub(super) struct Declaration(Function);

/// Begins the declaration of a function of TA-Lib with one output that scales as prices do.
pub(super) const fn declare(name: &'static str, group: &'static str) -> Declaration {
    Declaration(Function {
        name,
        aliases: &[],
        group,
        summary: "",
        formula: "",
        reference: Reference::TaLib.text(),
        source: Reference::TaLib,
        series: &[],
        params: &[],
        outputs: ONE,
        at_most: &[],
        fused: &[],
        scaling: Scaling::PRICES,
        scales_from: None,
        sums_signed: false,
        is_bare: false,
        clock: None,
        watches_condition: false,
        check: None,
        build: Build::Number(|f| f.x()),
    })
}

impl Declaration {
    pub(super) const fn aliases(self, aliases: &'static [&'static str]) -> Self {
        Self(Function { aliases, ..self.0 })
    }

    pub(super) const fn summary(self, summary: &'static str) -> Self {
        Self(Function { summary, ..self.0 })
    }

    pub(super) const fn formula(self, formula: &'static str) -> Self {
        Self(Function { formula, ..self.0 })
    }

    pub(super) const fn reference(self, source: Reference) -> Self {
        Self(Function { reference: source.text(), source, ..self.0 })
    }

    pub(super) const fn series(self, series: &'static [SeriesArg]) -> Self {
        Self(Function { series, ..self.0 })
    }

    pub(super) const fn params(self, params: &'static [Param]) -> Self {
        Self(Function { params, ..self.0 })
    }

    pub(super) const fn outputs(self, outputs: &'static [OutputDecl]) -> Self {
        Self(Function { outputs, ..self.0 })
    }

    /// The output is a whole number.
    pub(super) const fn integer(self) -> Self {
        Self(Function { outputs: INTEGER, ..self.0 })
    }

    pub(super) const fn at_most(self, at_most: &'static [(&'static str, &'static str)]) -> Self {
        Self(Function { at_most, ..self.0 })
    }

    /// What finds conflicts among the parameters that no range tells.
    pub(super) const fn check(self, check: Check) -> Self {
        Self(Function { check: Some(check), ..self.0 })
    }

    pub(super) const fn fused(self, fused: &'static [Fused]) -> Self {
        Self(Function { fused, ..self.0 })
    }

    pub(super) const fn scaling(self, scaling: Scaling) -> Self {
        Self(Function { scaling, ..self.0 })
    }

    pub(super) const fn scales_from(self, exponent: i32, why: &'static str) -> Self {
        Self(Function { scales_from: Some((exponent, why)), ..self.0 })
    }

    pub(super) const fn sums_signed(self) -> Self {
        Self(Function { sums_signed: true, ..self.0 })
    }

    /// It is a word, written without parentheses.
    pub(super) const fn written_bare(self) -> Self {
        Self(Function { is_bare: true, ..self.0 })
    }

    /// It depends on this of the time of a bar.
    pub(super) const fn of_clock(self, clock: Clock) -> Self {
        Self(Function { clock: Some(clock), ..self.0 })
    }

    pub(super) const fn watches_condition(self) -> Self {
        Self(Function { watches_condition: true, ..self.0 })
    }

    /// The formula of one number.
    pub(super) const fn number(self, build: for<'f> fn(&'f Formula) -> Num<'f>) -> Function {
        self.built(Build::Number(build))
    }

    /// The formula of a condition.
    pub(super) const fn condition(self, build: for<'f> fn(&'f Formula) -> Truth<'f>) -> Function {
        Function { outputs: TRUTH, ..self.built(Build::Condition(build)) }
    }

    /// The formula of several numbers, in the order of the outputs.
    pub(super) const fn numbers(self, build: for<'f> fn(&'f Formula) -> Vec<Num<'f>>) -> Function {
        self.built(Build::Numbers(build))
    }

    /// The formula of a candle pattern of the current bar and `look_back` bars before it.
    pub(super) const fn pattern(self, look_back: u32, build: for<'c> fn(&'c Candles<'c>) -> Num<'c>) -> Function {
        self.built(Build::Pattern(look_back, build))
    }

    const fn built(self, build: Build) -> Function {
        let declared = self.0;
        assert!(!declared.summary.is_empty() && !declared.formula.is_empty());
        assert!(!declared.series.is_empty() || declared.clock.is_some());
        Function { build, ..declared }
    }
}

impl Function {
    /// The series that a call may give, in order, with their places among all.
    pub fn given_series(&self) -> impl DoubleEndedIterator<Item = (usize, &'static SeriesArg)> + Clone {
        let all: &'static [SeriesArg] = self.series;
        all.iter().enumerate().filter(|(_, s)| !s.fixed)
    }

    /// What does not fit among parameters that are legal each by itself.
    pub(crate) fn conflict(&self, params: &[f64]) -> Option<Conflict> {
        self.check.and_then(|check| check(params))
    }

    /// Adds the formula's nodes; one node per output.
    pub(crate) fn nodes(&self, formula: &Formula) -> Vec<NodeId> {
        let nodes = match self.build {
            Build::Number(build) => vec![build(formula).id],
            Build::Condition(build) => vec![build(formula).id],
            Build::Numbers(build) => build(formula).into_iter().map(|x| x.id).collect(),
            Build::Pattern(look_back, build) => vec![shape(formula, look_back, build)],
        };
        debug_assert_eq!(nodes.len(), self.outputs.len(), "outputs of {}", self.name);
        nodes
    }
}

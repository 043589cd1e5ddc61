//! Every function of the language, declared once: name, arguments, outputs, reference, formula over primitives.
//!
//! The resolver, the documentation, `trawl indicators` and the golden tests all read these declarations. A new
//! indicator is one more [`Function`] in one of the lists below; nothing else has to change.

mod anchored;
mod averages;
mod bands;
mod change;
mod conditions;
mod cycle;
mod directional;
mod facts;
mod forms;
mod formula;
mod gap;
mod helpers;
mod math;
mod momentum;
mod moving;
mod oscillators;
mod overlap;
mod patterns;
mod prices;
mod sample;
mod sets;
mod statistics;
mod stochastics;
mod trend;
mod volatility;
mod volume;

pub use facts::{Facts, facts};
pub use forms::{CrossForm, FORMS, Form, FormKind, find_form};
pub use formula::Formula;
pub use gap::{Gap, There, gaps};
pub use sample::{sample, samples};
pub use sets::{NamedSet, SETS, find_set};

use crate::graph::{Kind, NodeId};
use crate::limits::PERIOD_MAX;

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
    /// Where the definition is from.
    pub reference: &'static str,
    /// Series arguments, in order.
    pub series: &'static [SeriesArg],
    /// Parameters, in order.
    pub params: &'static [Param],
    /// Outputs in order; the call needs no field when there is one.
    pub outputs: &'static [OutputDecl],
    /// Adds the formula's nodes; returns one node per output.
    pub build: fn(&mut Formula<'_>) -> Vec<NodeId>,
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
    Integer { min: u32, max: u32 },
    /// A number, both ends legal.
    Real { min: f64, max: f64 },
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
    Required,
    Value(f64),
    /// The value of another, earlier parameter.
    SameAs(&'static str),
}

impl Function {
    /// The series that a call may give, in order, with their places among all.
    pub fn given_series(&self) -> impl DoubleEndedIterator<Item = (usize, &'static SeriesArg)> + Clone {
        let all: &'static [SeriesArg] = self.series;
        all.iter().enumerate().filter(|(_, s)| !s.fixed)
    }
}

/// A parameter.
#[derive(Debug)]
pub struct Param {
    /// TA-Lib's name where it is TA-Lib's function.
    pub name: &'static str,
    pub kind: ParamType,
    pub default: ParamDefault,
}

/// An output.
#[derive(Debug)]
pub struct OutputDecl {
    /// TA-Lib's name.
    pub name: &'static str,
    /// Customary names.
    pub aliases: &'static [&'static str],
    pub kind: Kind,
}

/// Moving averages that `*matype` parameters choose among, with TA-Lib's numbers. `disabled` is the series itself,
/// `default` what the function takes when nothing is said.
pub const AVERAGES: [(&str, u32); 14] = [
    ("sma", 0),
    ("ema", 1),
    ("wma", 2),
    ("dema", 3),
    ("tema", 4),
    ("trima", 5),
    ("kama", 6),
    ("mama", 7),
    ("t3", 8),
    ("hma", 9),
    ("disabled", 10),
    ("default", 11),
    ("zlema", 12),
    ("rma", 13),
];

/// Parameters that must not exceed another: function, parameter, the other one.
pub const AT_MOST: [(&str, &str, &str); 1] = [("mavp", "minperiod", "maxperiod")];

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

/// Functions whose parameters depend on one another.
pub(crate) const CHECKS: [(&str, Check); 1] = [("atc", trend::conflict)];

/// The number of `default` in [`AVERAGES`]; calls put the function's own in its place.
pub(crate) const AVERAGE_DEFAULT: f64 = 11.0;

const REAL: SeriesArg = num("real", Some("close"));
const OPEN: SeriesArg = num("open", Some("open"));
const HIGH: SeriesArg = num("high", Some("high"));
const LOW: SeriesArg = num("low", Some("low"));
const CLOSE: SeriesArg = num("close", Some("close"));
const VOLUME: SeriesArg = num("volume", Some("volume"));

const fn num(name: &'static str, default: Option<&'static str>) -> SeriesArg {
    SeriesArg { name, default, kind: Kind::Num, fixed: false }
}

const fn condition(name: &'static str) -> SeriesArg {
    SeriesArg { name, default: None, kind: Kind::Bool, fixed: false }
}

/// A column that is read whatever the call says.
const fn always(column: &'static str) -> SeriesArg {
    SeriesArg { name: column, default: Some(column), kind: Kind::Num, fixed: true }
}

const fn period(default: u32, min: u32) -> Param {
    bars("timeperiod", default, min)
}

const fn bars(name: &'static str, default: u32, min: u32) -> Param {
    Param { name, kind: ParamType::Integer { min, max: PERIOD_MAX }, default: ParamDefault::Value(default as f64) }
}

const fn count_of_bars() -> Param {
    Param { name: "n", kind: ParamType::Integer { min: 1, max: PERIOD_MAX }, default: ParamDefault::Required }
}

const fn average(name: &'static str) -> Param {
    average_or(name, 0)
}

/// A moving average's parameter whose default is TA-Lib's number `kind`.
const fn average_or(name: &'static str, kind: u32) -> Param {
    Param { name, kind: ParamType::Average, default: ParamDefault::Value(kind as f64) }
}

const fn output(name: &'static str, aliases: &'static [&'static str]) -> OutputDecl {
    OutputDecl { name, aliases, kind: Kind::Num }
}

/// TA-Lib's range of real parameters.
const REAL_RANGE: ParamType = ParamType::Real { min: -3e37, max: 3e37 };

/// The single output of most functions.
const ONE: &[OutputDecl] = &[output("real", &[])];
/// The single output of candle patterns.
const INTEGER: &[OutputDecl] = &[output("integer", &[])];
/// The single output of conditions.
const TRUTH: &[OutputDecl] = &[OutputDecl { name: "truth", aliases: &[], kind: Kind::Bool }];

/// Where TA-Lib's definitions are from.
const TALIB: &str = "TA-Lib 0.8";
/// Functions of the scan language itself.
const LANGUAGE: &str = "scan language";

/// All functions, in the order of their groups.
pub fn functions() -> impl Iterator<Item = &'static Function> {
    [
        averages::LIST,
        overlap::LIST,
        bands::LIST,
        momentum::LIST,
        change::LIST,
        oscillators::LIST,
        stochastics::LIST,
        directional::LIST,
        trend::LIST,
        volatility::LIST,
        cycle::LIST,
        volume::LIST,
        anchored::LIST,
        prices::LIST,
        statistics::LIST,
        math::LIST,
        patterns::single::LIST,
        patterns::pairs::LIST,
        patterns::triples::LIST,
        patterns::longer::LIST,
        conditions::LIST,
        helpers::LIST,
    ]
    .into_iter()
    .flatten()
}

/// What the words in a group's formulas mean; `None` where they mean what they say.
pub fn group_note(group: &str) -> Option<&'static str> {
    (group == patterns::GROUP).then_some(patterns::NOTE)
}

/// The function called `name`, by name or alias.
pub fn find(name: &str) -> Option<&'static Function> {
    functions().find(|f| f.name == name || f.aliases.contains(&name))
}

/// Columns computed from others: name, what they need, formula.
pub(crate) const DERIVED: [(&str, &[&str]); 3] =
    [("hl2", &["high", "low"]), ("hlc3", &["high", "low", "close"]), ("ohlc4", &["open", "high", "low", "close"])];

//! Every function of the language, declared once: name, arguments, outputs, reference, formula over primitives.
//!
//! The resolver, the documentation, `trawl indicators` and the tests all read these declarations. A new indicator is one more
//! [`Function`] in one of the lists below and reference values; nothing else has to change.

mod anchored;
mod averages;
mod bands;
mod change;
mod conditions;
mod cycle;
mod declaration;
mod directional;
mod expression;
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
mod session;
mod sets;
mod statistics;
mod steps;
mod stochastics;
mod trend;
mod volatility;
mod volume;

pub(crate) use declaration::Conflict;
pub use declaration::{Function, Fused, OutputDecl, Param, ParamDefault, ParamType, Reference, Scaling, SeriesArg};
pub use facts::{Facts, facts};
pub use forms::{CrossForm, FORMS, Form, FormKind, find_form};
pub(crate) use formula::{Arguments, Formula};
pub use gap::{Gap, There, gaps};
pub use sample::{sample, samples};
pub use sets::{NamedSet, SETS, find_set};

// What declarations and their formulas are written in: the lists begin with `use super::*`.
use declaration::{declare, output};
use expression::{Num, Truth};
use moving::{
    DEFAULT, DEMA, DISABLED, EMA, HMA, KAMA, MAMA, MESA_FAST, MESA_SLOW, RMA, SMA, T3, T3_FACTOR, TEMA, TRIMA, WMA,
    ZLEMA, average_look_back,
};
use steps::{true_range, typical};

use trawl_terms::{Clock, Period};

use crate::family::{Acceleration, Anchor, Cycle, Mesa, Parabolic, SuperTrend, Trend};
use crate::graph::{Binary, Kind, Op, Unary};
use crate::limits::{PERIOD_MAX, PLAN_NODES_MAX};
use crate::scalar::TALIB_EPSILON;

/// Moving averages that `*matype` parameters choose among, with TA-Lib's numbers. `disabled` is the series itself,
/// `default` what the function takes when nothing is given.
pub const AVERAGES: [(&str, u32); 14] = [
    ("sma", SMA),
    ("ema", EMA),
    ("wma", WMA),
    ("dema", DEMA),
    ("tema", TEMA),
    ("trima", TRIMA),
    ("kama", KAMA),
    ("mama", MAMA),
    ("t3", T3),
    ("hma", HMA),
    ("disabled", DISABLED),
    ("default", DEFAULT),
    ("zlema", ZLEMA),
    ("rma", RMA),
];

/// The number of `default` in [`AVERAGES`]; calls put the function's own in its place.
pub(crate) const AVERAGE_DEFAULT: f64 = DEFAULT as f64;

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

/// A parameter whose default is `default`.
const fn param(name: &'static str, kind: ParamType, default: f64) -> Param {
    Param { name, kind, default: ParamDefault::Value(default) }
}

/// The number of values of a window, which must be given.
const fn count_of_bars(min: u32) -> Param {
    Param { name: "n", kind: ParamType::Integer { min, max: PERIOD_MAX }, default: ParamDefault::Required }
}

const fn average(name: &'static str) -> Param {
    average_or(name, SMA)
}

/// A moving average's parameter whose default is TA-Lib's number `kind`.
const fn average_or(name: &'static str, kind: u32) -> Param {
    Param { name, kind: ParamType::Average, default: ParamDefault::Value(kind as f64) }
}

/// TA-Lib's range of real parameters.
const REAL_RANGE: ParamType = ParamType::Real { min: -3e37, max: 3e37 };
/// TA-Lib's range of those that are not negative.
const NON_NEGATIVE: ParamType = ParamType::Real { min: 0.0, max: 3e37 };
/// The lines of a channel.
const CHANNEL: &[OutputDecl] =
    &[output("upperband", &["upper"]), output("middleband", &["middle"]), output("lowerband", &["lower"])];

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
        session::LIST,
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

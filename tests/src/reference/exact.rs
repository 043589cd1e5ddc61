//! Which values rounding may have changed: a comparison between exact values is never near.
//!
//! Exact are bars as stored and selections of them, whole numbers, ranks and shares of counts. The sign of a difference
//! of exact values is right, so that 0 is not near it. The result of several operations is rounded. Where only the
//! engine's formulas could decide, a grade is open, and a flag may be set or not.

use super::evaluate::{Axis, Frame};
use super::expression::{Arithmetic, Call, Cross, Expr, Node};

/// How exact a series is, most first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    Whole,
    Stored,
    /// Rounded, with the right sign.
    Signed,
    /// Rounded, perhaps with the right sign.
    Open,
    Rounded,
    /// Undecided: a constant that is computed.
    Unknown,
}

use Grade::{Open, Rounded, Signed, Stored, Unknown, Whole};

/// A grade, and whether values below 0 are impossible.
type Known = (Grade, bool);

/// The value of a number as written.
fn literal(node: &Node) -> Option<f64> {
    match &**node {
        Expr::Number(n) => Some(*n),
        Expr::Negate(of) => literal(of).map(|n| -n),
        Expr::Let(_, of) => literal(of),
        _ => None,
    }
}

/// Whether `node` is the literal 0.
pub fn is_zero(node: &Node) -> bool {
    literal(node) == Some(0.0)
}

/// The expression without the names that refer to it, and without an offset of no bars.
pub fn unnamed(node: &Node) -> &Node {
    match &**node {
        Expr::Let(_, of) | Expr::Offset(of, 0) => unnamed(of),
        _ => node,
    }
}

/// The grade of a series along a frame.
pub fn grade(node: &Node, frame: Frame) -> Grade {
    known(node, frame).0
}

fn known(node: &Node, frame: Frame) -> Known {
    if node.is_constant() && literal(node).is_none() && !node.is_condition() {
        return (Unknown, false);
    }
    let of = |node: &Node| known(node, frame);
    match &**node {
        Expr::Number(n) if n.fract() == 0.0 => (Whole, true),
        Expr::Number(_) => (Stored, true),
        Expr::Name(name) => column(name, frame),
        Expr::Let(_, inner) | Expr::Offset(inner, _) | Expr::Ref { of: inner, .. } => of(inner),
        Expr::Week { of, .. } => known(of, Frame { axis: Axis::Week, ..frame }),
        Expr::Negate(x) => (of(x).0, false),
        Expr::Arithmetic(op, a, b) => arithmetic(*op, a, b, [of(a), of(b)]),
        Expr::Call(call) => function(call, frame),
        Expr::Cross { kind: Cross::Rank | Cross::Top(_), .. } => (Whole, true),
        Expr::Cross { kind: Cross::Pct | Cross::Breadth, .. } => (Stored, true),
        Expr::Cross { kind: Cross::Z | Cross::Demean | Cross::Quantile(_), .. } => (Rounded, false),
        Expr::Truth(_)
        | Expr::Not(_)
        | Expr::And(..)
        | Expr::Or(..)
        | Expr::Chain(..)
        | Expr::LabelIs { .. }
        | Expr::LabelIn { .. }
        | Expr::LabelValue(_)
        | Expr::In { .. } => (Whole, true),
    }
}

fn column(name: &str, frame: Frame) -> Known {
    match (name, frame.axis) {
        ("open" | "high" | "low" | "close", _) => (Stored, false),
        ("weekday" | "month" | "minutes_since_open" | "minutes_to_close" | "session_bar" | "time_of_day", _) => {
            (Whole, true)
        }
        (range, _) if range.starts_with("opening_range(") => (Stored, false),
        ("days_to(earnings)" | "days_since(earnings)" | "earnings", _) => (Whole, false),
        ("cap", _) => (Stored, false),
        (average, _) if average.starts_with("avwap") => (Open, false),
        (session, _) if session.contains("session.") => (Stored, false),
        ("volume", Axis::Base) => (Stored, true),
        // A sum that cannot cancel.
        ("volume", _) => (Signed, true),
        _ => (Open, false),
    }
}

fn arithmetic(op: Arithmetic, a: &Node, b: &Node, [x, y]: [Known; 2]) -> Known {
    let worst = x.0.max(y.0);
    let positive = x.1 && y.1;
    // Powers of two among the generator's constants round nothing.
    let harmless = |node: &Node| literal(node).is_some_and(|n| [0.5, 1.0, 2.0].contains(&n.abs()));
    let rounded = if worst <= Signed { Signed } else { worst.max(Open) };
    match op {
        Arithmetic::Add if worst == Whole => (Whole, positive),
        Arithmetic::Add => (if positive { rounded } else { worst.max(Open) }, positive),
        Arithmetic::Subtract if worst == Whole => (Whole, false),
        Arithmetic::Subtract if worst == Stored => (Signed, false),
        Arithmetic::Subtract => (worst.max(Rounded), false),
        Arithmetic::Multiply if worst == Whole => (Whole, positive),
        Arithmetic::Multiply if harmless(a) => (y.0.max(x.0), positive),
        Arithmetic::Multiply if harmless(b) => (x.0.max(y.0), positive),
        Arithmetic::Divide if harmless(b) => (x.0.max(Stored), positive),
        Arithmetic::Divide if worst == Whole => (Stored, positive),
        Arithmetic::Multiply | Arithmetic::Divide => (rounded, positive),
        Arithmetic::Remainder if worst == Whole => (Whole, y.1),
        Arithmetic::Remainder => (worst.max(Open), false),
    }
}

fn function(call: &Call, frame: Frame) -> Known {
    let of = |i: usize| match &call.series[i] {
        (_, Some(node)) => known(node, frame),
        (name, None) => column(if *name == "real" { "close" } else { name }, frame),
    };
    let worst = |all: &[usize]| {
        let each = all.iter().map(|i| of(*i));
        each.fold((Whole, true), |one, other| (one.0.max(other.0), one.1 && other.1))
    };
    let within = |grade: Grade, bound: Grade| if grade == Unknown { Unknown } else { grade.max(bound) };
    match call.name {
        "crosses_above" | "crosses_below" | "within" | "streak" | "count" | "since" => (Whole, true),
        "sign" | "round" | "cdlengulfing" => (Whole, false),
        // A share in percent is rounded twice: 7 of 50 are 14.000000000000002.
        "percentrank" => (Signed, true),
        "highest" | "lowest" | "max" | "min" | "highest_since" | "lowest_since" => of(0),
        "donchian" if call.field.is_some_and(|f| f.starts_with("upper")) => of(0),
        "donchian" if call.field.is_some_and(|f| f.starts_with("lower")) => of(1),
        "valuewhen" => of(1),
        "iff" => worst(&[1, 2]),
        "nz" => (of(0).0, false),
        "abs" => (of(0).0, true),
        "maximum" | "minimum" => (worst(&[0, 1]).0, false),
        "clamp" => (worst(&[0, 1, 2]).0, false),
        "sqrt" => (within(of(0).0, Signed), false),
        "sma" if of(0).0 == Whole => (Stored, of(0).1),
        // One of the values, or half the sum of two.
        "median" if call.params.first().is_some_and(|(_, n)| n % 2.0 == 1.0) => of(0),
        "median" if of(0).0 == Whole => (Stored, of(0).1),
        "bbands" if call.is_simple_middle() && of(0).0 == Whole => (Stored, of(0).1),
        "roc" if of(0).0 <= Stored => (Signed, false),
        "macd" | "zscore" | "correl" | "log" | "exp" | "pow" => (Rounded, false),
        "obv" if of(1).0 == Whole => (Whole, false),
        _ => (Open, false),
    }
}

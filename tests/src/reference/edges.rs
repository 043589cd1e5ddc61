//! The `edge` flag: whether a comparison that a value covers is so close that rounding could turn it.
//!
//! Between exact values (see [`super::exact`]) none is. Decisions where the specification is silent: both crossings are
//! comparisons, and so is what `obv` does with a close that is not exact; `ref` and `tf` cover the bars they read; of a
//! cross-section the symbol's own comparisons count, in the argument and in `where=`; a value is compared with the
//! extreme of its own window's other values. What a value covers is not always one set of bars (does `since` cover the
//! bars before its condition was true?): therefore a flag consists of two, for the bars that are certainly covered and
//! for those that may be.

use std::rc::Rc;

use super::evaluate::{Axis, Frame, Reference};
use super::exact::{Grade, grade, is_zero, unnamed};
use super::expression::{Call, Expr, Node};
use super::indicators::{Value, finite};

/// Whether a flag must and may be set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Edge {
    pub must: bool,
    pub may: bool,
}

impl std::ops::BitOr for Edge {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self { must: self.must || other.must, may: self.may || other.may }
    }
}

/// Relative distance below which two sides are near. The last percents are left open for rounding.
const TOLERANCE: f64 = 1e-9;

fn near(a: Value, b: Value) -> Edge {
    let (Some(a), Some(b)) = (finite(a), finite(b)) else { return Edge::default() };
    let bound = TOLERANCE * a.abs().max(b.abs()).max(1.0);
    let apart = (a - b).abs();
    Edge { must: apart <= 0.99 * bound, may: apart <= 1.01 * bound }
}

/// How far back a function's value depends on its series: certainly, and at most.
fn coverage(call: &Call, series: usize, t: usize) -> (Vec<usize>, Vec<usize>) {
    let n = call.params.first().map_or(0, |p| p.1 as usize);
    let all = || (0..=t).collect::<Vec<usize>>();
    let last = |n: usize| ((t + 1).saturating_sub(n)..=t).collect::<Vec<usize>>();
    let same = |bars: Vec<usize>| (bars.clone(), bars);
    match call.name {
        // One band implies nothing about the other series.
        "donchian" if !call.field.is_some_and(|f| f.starts_with("middle")) => {
            let own = usize::from(call.field.is_some_and(|f| f.starts_with("lower")));
            (if own == series { last(n) } else { Vec::new() }, last(n))
        }
        "sma" | "wma" | "stddev" | "max" | "min" | "highest" | "lowest" | "donchian" | "within" | "streak"
        | "count" | "zscore" | "correl" | "median" | "alma" => same(last(n)),
        "percentrank" => same(last(n + 1)),
        "cci" => same(last(n)),
        "mfi" => (last(n), last(n + 1)),
        "bbands" if matches!(call.averages[0].1, "ema" | "kama") => (last(n), all()),
        "bbands" => same(last(n)),
        // Ranges take the close of the bar before.
        "atr" | "adx" if series == 2 => ((0..t).collect(), all()),
        "ema" | "kama" | "rsi" | "macd" | "atr" | "adx" | "obv" | "vwap" => same(all()),
        // Each output implies something else about each series.
        "ichimoku" | "chandelier" | "squeeze" | "crsi" => (Vec::new(), all()),
        "cdlengulfing" => same(last(3)),
        "since" => (last(1), all()),
        "highest_since" | "lowest_since" => (if series == 1 { last(1) } else { Vec::new() }, all()),
        "valuewhen" => (if series == 0 { last(1) } else { Vec::new() }, all()),
        "stoch" => (last(1), all()),
        "roc" => (t.checked_sub(n).into_iter().chain([t]).collect(), last(n + 1)),
        "crosses_above" | "crosses_below" => same(last(2)),
        _ => same(last(1)),
    }
}

impl Reference<'_> {
    /// The flag of `node` at each bar.
    pub fn edges(&self, node: &Node, symbol: usize, frame: Frame) -> Rc<Vec<Edge>> {
        let key = (Rc::as_ptr(node), symbol, frame);
        if let Some(edges) = self.edges.borrow().get(&key) {
            return Rc::clone(edges);
        }
        // Keeps the tree, whose address is the key.
        self.series(node, symbol, frame);
        let edges = Rc::new(self.flag(node, symbol, frame));
        self.edges.borrow_mut().insert(key, Rc::clone(&edges));
        edges
    }

    fn flag(&self, node: &Node, symbol: usize, frame: Frame) -> Vec<Edge> {
        let count = self.bars(symbol, frame.axis).keys.len();
        let mut edges = vec![Edge::default(); count];
        let of = |node: &Node| self.edges(node, symbol, frame);
        // What is read at the same bar.
        if !matches!(**node, Expr::Offset(..) | Expr::Call(_) | Expr::Ref { .. } | Expr::Week { .. }) {
            for child in node.children() {
                let inner = of(child);
                for (edge, inner) in edges.iter_mut().zip(inner.iter()) {
                    *edge = *edge | *inner;
                }
            }
        }
        match &**node {
            Expr::Chain(operands, _) => {
                for pair in operands.windows(2) {
                    let near = self.near(&pair[0], &pair[1], symbol, frame);
                    for (edge, near) in edges.iter_mut().zip(near) {
                        *edge = *edge | near;
                    }
                }
            }
            // As comparisons with each.
            Expr::In { of: x, values, .. } => {
                for value in values {
                    let near = self.near(x, &Rc::new(Expr::Number(*value)), symbol, frame);
                    for (edge, near) in edges.iter_mut().zip(near) {
                        *edge = *edge | near;
                    }
                }
            }
            Expr::Offset(inner, n) => {
                let inner = of(inner);
                for (t, edge) in edges.iter_mut().enumerate().skip(*n as usize) {
                    *edge = inner[t - *n as usize];
                }
            }
            Expr::Call(call) => self.flag_call(call, symbol, frame, &mut edges),
            Expr::Ref { symbol: name, of, asof } => {
                let other = self.market.find(name).expect("the generator refers to symbols of the market");
                let inner = self.edges(of, other, Frame { referred: true, ..frame });
                for (t, edge) in edges.iter_mut().enumerate() {
                    if let Some(at) = self.reference_bar(symbol, other, frame.axis, t, *asof) {
                        *edge = inner[at];
                    }
                }
            }
            Expr::Week { of, partial } => {
                for (t, edge) in edges.iter_mut().enumerate() {
                    let inner = if *partial {
                        self.edges(of, symbol, Frame { axis: Axis::Forming(t), ..frame }).last().copied()
                    } else {
                        let weeks = self.edges(of, symbol, Frame { axis: Axis::Week, ..frame });
                        self.complete_week(symbol, t).map(|week| weeks[week])
                    };
                    *edge = inner.unwrap_or_default();
                }
            }
            _ => {}
        }
        edges
    }

    /// At each bar whether rounding could turn a comparison of `a` with `b`.
    fn near(&self, a: &Node, b: &Node, symbol: usize, frame: Frame) -> Vec<Edge> {
        let (x, y) = (self.series(a, symbol, frame), self.series(b, symbol, frame));
        let [left, right] = [a, b].map(|node| grade(node, frame));
        let worst = left.max(right);
        // Of two sides that are written in the same way, one is the other.
        let same = |a: &Node, b: &Node| unnamed(a).text() == unnamed(b).text();
        let against_zero = if is_zero(a) { Some(right) } else { is_zero(b).then_some(left) };
        let exact = same(a, b) || worst <= Grade::Stored || against_zero.is_some_and(|grade| grade <= Grade::Signed);
        let extreme = |x: &Node, of: &Node| match &**unnamed(of) {
            Expr::Call(call) if matches!(call.name, "highest" | "lowest" | "max" | "min") => {
                let series = call.series[0].1.clone();
                Some((call.clone(), series.is_some_and(|series| same(x, &series))))
            }
            Expr::Call(call) if call.name == "donchian" && !call.field.is_some_and(|f| f.starts_with("middle")) => {
                let own = usize::from(call.field.is_some_and(|f| f.starts_with("lower")));
                let series = call.series[own].1.clone();
                Some((call.clone(), series.is_some_and(|series| same(x, &series))))
            }
            _ => None,
        };
        let window = extreme(a, b).map(|w| (w, &x)).or_else(|| extreme(b, a).map(|w| (w, &y)));
        // The same series by another name, such as `kama(5)` and `kama(close, 5)`, are one node to the engine; seen up to each bar.
        let mut alike = true;
        let twins: Vec<bool> = x.iter().zip(y.iter()).map(|(x, y)| (alike &= x == y, alike).1).collect();
        let at = |t: usize| match &window {
            // Adjusted values that differ only by rounding, unless they are not prices at all.
            _ if exact && self.adjusted && worst >= Grade::Stored && x[t] != y[t] => {
                Edge { must: false, ..near(x[t], y[t]) }
            }
            _ if exact => Edge::default(),
            Some(((call, true), own)) => {
                let n = call.params.first().map_or(1, |p| p.1 as usize);
                let highest = matches!(call.name, "highest" | "max")
                    || call.name == "donchian" && !call.field.is_some_and(|f| f.starts_with("lower"));
                let others = (t + 1).checked_sub(n).map_or(&[][..], |first| &own[first..t]);
                let others: Option<Vec<f64>> = others.iter().map(|v| finite(*v)).collect();
                let better = |a: f64, b: f64| if highest { a.max(b) } else { a.min(b) };
                near(own[t], others.and_then(|others| others.into_iter().reduce(better)))
            }
            // It may contain the other side under another name.
            Some(((_, false), _)) => Edge { must: false, ..near(x[t], y[t]) },
            None => {
                let edge = near(x[t], y[t]);
                Edge { must: edge.must && !twins[t], ..edge }
            }
        };
        let open = worst == Grade::Unknown || against_zero.is_some_and(|grade| grade == Grade::Open);
        (0..x.len()).map(at).map(|edge| Edge { must: edge.must && !open, ..edge }).collect()
    }

    fn flag_call(&self, call: &Call, symbol: usize, frame: Frame, edges: &mut [Edge]) {
        let first = self.first_bar(call.name, symbol, frame);
        for (i, series) in call.series.iter().enumerate() {
            let Some(series) = &series.1 else { continue };
            let inner = self.edges(series, symbol, frame);
            if !inner.iter().any(|e| e.may) {
                continue;
            }
            for (t, edge) in edges.iter_mut().enumerate() {
                let (surely, at_most) = coverage(call, i, t);
                edge.must |= surely.iter().any(|at| *at >= first && inner[*at].must);
                edge.may |= at_most.iter().any(|at| inner[*at].may);
            }
        }
        let inexact = |s: &(&str, Option<Node>)| s.1.as_ref().is_some_and(|s| grade(s, frame) > Grade::Stored);
        let compares = match call.name {
            // The engine shares its comparisons with equal ones that the scan contains, which count.
            "cdlengulfing" | "crsi" => call.series.iter().any(inexact),
            // Its bands and its channel are rounded.
            "squeeze" => true,
            _ => false,
        };
        if compares {
            edges.iter_mut().for_each(|edge| edge.may = true);
        }
        if call.name == "obv"
            && let Some(close) = &call.series[0].1
            && grade(close, frame) > Grade::Stored
        {
            let close = self.series(close, symbol, frame);
            let mut before = None;
            let mut any = Edge::default();
            for (t, edge) in edges.iter_mut().enumerate() {
                // Over bars without a close a flag may depend on earlier bars.
                let beside = near(close[t], before);
                let next = t > first && finite(close[t - 1]).is_some();
                any = any | Edge { must: beside.must && next, ..beside };
                before = finite(close[t]).or(before);
                *edge = *edge | any;
            }
        }
        if matches!(call.name, "crosses_above" | "crosses_below") {
            let (Some(a), Some(b)) = (&call.series[0].1, &call.series[1].1) else { return };
            let beside = self.near(a, b, symbol, frame);
            let (a, b) = (self.series(a, symbol, frame), self.series(b, symbol, frame));
            for (t, edge) in edges.iter_mut().enumerate() {
                let either = beside[t] | t.checked_sub(1).map_or_else(Edge::default, |then| beside[then]);
                // Where one of the four is NA there is no decision; the comparison of the other two may still count.
                let decided = t > 0 && [a[t], b[t], a[t - 1], b[t - 1]].iter().all(|v| finite(*v).is_some());
                *edge = *edge | Edge { must: either.must && decided, may: either.may };
            }
        }
    }
}

//! The `edge` flag: whether a comparison that a value covers is so close that rounding could turn it.
//!
//! Decisions where the specification is silent: both crossings and `xs_top` (which is `xs_rank(e) <= k`) are
//! comparisons; `ref` and `tf` cover the bars they read; of a cross-section the symbol's own comparisons count, in the
//! argument and in `where=`. What a value covers is not always one set of bars (does `since` cover the bars before it
//! was true?): so a flag is told as two, the bars that are surely covered and those that may be.

use std::rc::Rc;

use super::evaluate::{Axis, Frame, Reference};
use super::expression::{Call, Cross, Expr, Node};
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

/// How far back a function's value reaches into its series: surely, and at most.
fn coverage(call: &Call, series: usize, t: usize) -> (Vec<usize>, Vec<usize>) {
    let n = call.params.first().map_or(0, |p| p.1 as usize);
    let all = || (0..=t).collect::<Vec<usize>>();
    let last = |n: usize| ((t + 1).saturating_sub(n)..=t).collect::<Vec<usize>>();
    let same = |bars: Vec<usize>| (bars.clone(), bars);
    match call.name {
        "sma" | "wma" | "stddev" | "max" | "min" | "highest" | "lowest" | "donchian" | "within" | "streak"
        | "count" | "zscore" | "correl" => same(last(n)),
        "percentrank" => same(last(n + 1)),
        "cci" => same(last(n)),
        "mfi" => (last(n), last(n + 1)),
        "bbands" if matches!(call.averages[0].1, "ema" | "kama") => (last(n), all()),
        "bbands" => same(last(n)),
        "ema" | "kama" | "rsi" | "macd" | "atr" | "adx" | "obv" | "vwap" => same(all()),
        "cdlengulfing" => same(last(3)),
        "since" => (last(1), all()),
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
        // Keeps the tree's address.
        self.series(node, symbol, frame);
        let edges = Rc::new(self.flag(node, symbol, frame));
        self.edges.borrow_mut().insert(key, Rc::clone(&edges));
        edges
    }

    fn flag(&self, node: &Node, symbol: usize, frame: Frame) -> Vec<Edge> {
        let count = self.bars(symbol, frame.axis).keys.len();
        let mut edges = vec![Edge::default(); count];
        let of = |node: &Node| self.edges(node, symbol, frame);
        let value = |node: &Node| self.series(node, symbol, frame);
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
                    let (a, b) = (value(&pair[0]), value(&pair[1]));
                    for (t, edge) in edges.iter_mut().enumerate() {
                        *edge = *edge | near(a[t], b[t]);
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
                let inner = self.edges(of, other, frame);
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
            Expr::Cross { kind: Cross::Top(k), of, by, only } => {
                let kind = Cross::Rank;
                let rank: Node = Rc::new(Expr::Cross { kind, of: Rc::clone(of), by: *by, only: only.clone() });
                let rank = self.series(&rank, symbol, frame);
                for (edge, rank) in edges.iter_mut().zip(rank.iter()) {
                    *edge = *edge | near(*rank, Some(f64::from(*k)));
                }
            }
            _ => {}
        }
        edges
    }

    fn flag_call(&self, call: &Call, symbol: usize, frame: Frame, edges: &mut [Edge]) {
        for (i, series) in call.series.iter().enumerate() {
            let Some(series) = &series.1 else { continue };
            let inner = self.edges(series, symbol, frame);
            if !inner.iter().any(|e| e.may) {
                continue;
            }
            for (t, edge) in edges.iter_mut().enumerate() {
                let (surely, at_most) = coverage(call, i, t);
                edge.must |= surely.iter().any(|at| inner[*at].must);
                edge.may |= at_most.iter().any(|at| inner[*at].may);
            }
        }
        if matches!(call.name, "crosses_above" | "crosses_below") {
            let side = |i: usize| call.series[i].1.as_ref().map(|s| self.series(s, symbol, frame));
            let (Some(a), Some(b)) = (side(0), side(1)) else { return };
            for (t, edge) in edges.iter_mut().enumerate() {
                let now = near(a[t], b[t]);
                let then = t.checked_sub(1).map_or_else(Edge::default, |then| near(a[then], b[then]));
                let either = now | then;
                // Where one of the four is NA there is no decision; the comparison of the other two may still count.
                let decided = t > 0 && [a[t], b[t], a[t - 1], b[t - 1]].iter().all(|v| finite(*v).is_some());
                *edge = *edge | Edge { must: either.must && decided, may: either.may };
            }
        }
    }
}

//! The last stage's rows of a segment at many times, by column instead of by row: what `--all-bars` consists of.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use trawl_market::TimeMicros;
use trawl_plan::Point;
use trawl_wire::Status;

use super::ScanSource;
use crate::axis::{Axis, first_from};
use crate::stage_run::Computed;
use crate::status::{Reason, status_of};

/// A segment's rows at some times. A cell is a row: `(time * symbols + symbol) * points + point`.
#[derive(Debug, Clone, PartialEq)]
pub struct SegmentPanel {
    /// The segment's symbols, ascending.
    pub symbols: Vec<Arc<str>>,
    /// Points of the scan's sweep.
    pub points: usize,
    /// By cell; `None` where a symbol does not keep the point.
    pub status: Vec<Option<Status>>,
    /// By cell.
    pub edge: Vec<bool>,
    /// By cell: index into `reasons`.
    pub reason: Vec<u32>,
    /// Reasons; the first is empty.
    pub reasons: Vec<String>,
    /// Rank keys, `[key][cell]`; NaN for NA and for rows that do not match.
    pub rank: Vec<Vec<f64>>,
    /// Select columns, `[column][cell]`; NaN for NA and for rows that do not match.
    pub values: Vec<Vec<f64>>,
}

impl SegmentPanel {
    /// Rows of symbols that all failed for one reason, at each of `times`.
    pub fn failed(symbols: Vec<Arc<str>>, times: usize, reason: String, source: &ScanSource) -> Self {
        let mut panel = Self::empty(symbols, times, source);
        let first_only = source.plan().best.is_some();
        for (cell, status) in panel.status.iter_mut().enumerate() {
            *status = (!first_only || cell % panel.points == 0).then_some(Status::Failed);
        }
        panel.reason.fill(1);
        panel.reasons.push(reason);
        panel
    }

    fn empty(symbols: Vec<Arc<str>>, times: usize, source: &ScanSource) -> Self {
        let plan = source.plan();
        let points = plan.points.len();
        let cells = times * symbols.len() * points;
        Self {
            symbols,
            points,
            status: vec![None; cells],
            edge: vec![false; cells],
            reason: vec![0; cells],
            reasons: vec![String::new()],
            rank: vec![vec![f64::NAN; cells]; plan.rank.len()],
            values: vec![vec![f64::NAN; cells]; plan.headings.len()],
        }
    }

    /// The rows at one time: a range of cells.
    pub fn at(&self, time: usize) -> Range<usize> {
        let cells = self.symbols.len() * self.points;
        time * cells..(time + 1) * cells
    }
}

/// Indices of a point's outputs among those of the last stage.
struct PointOutputs {
    universe: Option<usize>,
    condition: Option<usize>,
    edge: Option<usize>,
    rank: Range<usize>,
    select: Range<usize>,
}

impl PointOutputs {
    /// As [`Point::values`] takes them.
    fn all(points: &[Point]) -> Vec<Self> {
        let mut next = 0;
        let mut take = |count: usize| {
            next += count;
            next - count..next
        };
        let of = |point: &Point| {
            let mut one = |there: bool| Some(take(usize::from(there)).start).filter(|_| there);
            let (universe, condition) = (one(point.universe.is_some()), one(point.condition.is_some()));
            let edge = one(point.edge.is_some());
            Self { universe, condition, edge, rank: take(point.rank.len()), select: take(point.select.len()) }
        };
        points.iter().map(of).collect()
    }
}

/// The reasons of a panel, each once.
#[derive(Default)]
struct Reasons {
    texts: Vec<String>,
    known: HashMap<Reason, u32>,
}

impl Reasons {
    fn index(&mut self, reason: Reason, text: impl FnOnce(&Reason) -> String) -> u32 {
        if reason == Reason::None {
            return 0;
        }
        let texts = &mut self.texts;
        *self.known.entry(reason).or_insert_with_key(|reason| {
            texts.push(text(reason));
            u32::try_from(texts.len() - 1).unwrap_or(0)
        })
    }
}

/// One canonical NaN, so that equal answers have equal bytes.
fn canonical(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value }
}

impl ScanSource {
    /// The rows of a segment's own axes at `times`, which ascend.
    pub(super) fn panel(
        &self,
        axes: &[Axis<'_>],
        own: usize,
        references: &[String],
        computed: &[Computed],
        times: &[TimeMicros],
    ) -> SegmentPanel {
        let plan = self.plan();
        let mut symbols: Vec<Arc<str>> = Vec::new();
        // A symbol has one axis for each of its vintages, one after the other.
        let place: Vec<usize> = axes[..own]
            .iter()
            .map(|axis| {
                if symbols.last() != Some(&axis.bars.symbol) {
                    symbols.push(Arc::clone(&axis.bars.symbol));
                }
                symbols.len() - 1
            })
            .collect();
        let outputs = PointOutputs::all(&plan.points);
        let needed = self.executable.bars_needed();
        let mut panel = SegmentPanel::empty(symbols, times.len(), self);
        let mut reasons = Reasons { texts: vec![String::new()], known: HashMap::new() };
        let (width, points) = (panel.symbols.len(), panel.points);
        let mut compared = Vec::new();
        for ((axis, computed), symbol) in axes[..own].iter().zip(computed).zip(place) {
            let bars = axis.base_times();
            let of = |output: Option<usize>| output.and_then(|output| computed.outputs.get(output));
            let at = |series: Option<&Vec<f64>>, row: usize, otherwise: f64| match series {
                Some(series) => row.checked_sub(computed.from).and_then(|i| series.get(i)).copied().unwrap_or(f64::NAN),
                None => otherwise,
            };
            let first = times.partition_point(|time| *time < axis.span.from);
            let mut row = times.get(first).map_or(0, |time| first_from(bars, *time));
            for (t, &time) in times.iter().enumerate().skip(first).take_while(|(_, time)| **time <= axis.span.until) {
                while bars.get(row).is_some_and(|bar| *bar < time) {
                    row += 1;
                }
                let cell = (t * width + symbol) * points;
                if bars.get(row) != Some(&time) {
                    let since = row.checked_sub(1).and_then(|before| bars.get(before)).copied();
                    let reason = reasons.index(Reason::Stale(since), |reason| reason.text(""));
                    // Without values all points are equal.
                    for cell in cell..cell + if plan.best.is_some() { 1 } else { points } {
                        (panel.status[cell], panel.reason[cell]) = (Some(Status::Stale), reason);
                    }
                    continue;
                }
                let kept = plan.best.map(|best| {
                    compared.clear();
                    compared.extend(outputs.iter().map(|point| {
                        let universe = at(of(point.universe), row, 1.0) == 1.0;
                        let last = point.select.clone().last();
                        (universe, last.map_or(f64::NAN, |last| at(of(Some(last)), row, f64::NAN)))
                    }));
                    best.best(&compared)
                });
                for (p, point) in outputs.iter().enumerate() {
                    if kept.as_ref().is_some_and(|kept| !kept.contains(&p)) {
                        continue;
                    }
                    let universe = at(of(point.universe), row, 1.0);
                    let condition = at(of(point.condition), row, f64::NAN);
                    let missing = || {
                        let absent = |axis: &Axis<'_>| crate::axis::row_at(axis.base_times(), time).is_none();
                        axes[own..].iter().position(absent)
                    };
                    let (status, reason) = status_of(universe, condition, (row + 1, needed[p]), missing);
                    let cell = cell + p;
                    panel.status[cell] = Some(status);
                    panel.edge[cell] = at(of(point.edge), row, 0.0) == 1.0;
                    panel.reason[cell] = reasons.index(reason, |reason| {
                        let name = reason.missing().and_then(|at| references.get(at)).map_or("", String::as_str);
                        reason.text(name)
                    });
                    if status == Status::Matched {
                        for (keys, output) in panel.rank.iter_mut().zip(point.rank.clone()) {
                            keys[cell] = canonical(at(of(Some(output)), row, f64::NAN));
                        }
                        for (values, output) in panel.values.iter_mut().zip(point.select.clone()) {
                            values[cell] = canonical(at(of(Some(output)), row, f64::NAN));
                        }
                    }
                }
            }
        }
        panel.reasons = reasons.texts;
        panel
    }
}

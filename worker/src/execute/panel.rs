//! The last stage's rows of a segment at many times, by column instead of by row: what `--all-bars` consists of.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use trawl_market::TimeMicros;
use trawl_plan::Point;
use trawl_wire::Status;

use super::ScanSource;
use crate::axis::{Axis, first_from, late_row, row_at};
use crate::device_features::DeviceFeatures;
use crate::stage_run::Computed;
use crate::status::{Reason, status_of};

/// Times that all symbols take before the next ones: their cells stay in the cache of a core meanwhile.
const TIMES_TOGETHER: usize = 32;

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
    /// By cell: the number of a match, which has no reason; index into `reasons` for every other row.
    pub detail: Vec<u32>,
    /// Reasons; the first is empty.
    pub reasons: Vec<String>,
    /// Rank keys, `[key][match]`; NaN for NA.
    pub rank: Vec<Vec<f64>>,
    /// Select columns, `[column][match]`; NaN for NA. Few rows match in most scans.
    pub values: Vec<Vec<f64>>,
    /// Select columns, `[column][cell]`, of all rows that have a bar and are in the universe; NaN for NA and for the others. Empty
    /// unless [`ScanSource::every_value`] asks for it.
    pub every: Vec<Vec<f64>>,
}

impl SegmentPanel {
    /// Rows of symbols that all failed for one reason, at each of `times`.
    pub fn failed(symbols: Vec<Arc<str>>, times: usize, reason: String, source: &ScanSource) -> Self {
        let mut panel = Self::empty(symbols, times, source);
        let first_only = source.plan().best.is_some();
        for (cell, status) in panel.status.iter_mut().enumerate() {
            *status = (!first_only || cell % panel.points == 0).then_some(Status::Failed);
        }
        panel.detail.fill(1);
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
            detail: vec![0; cells],
            reasons: vec![String::new()],
            rank: vec![Vec::new(); plan.rank.len()],
            values: vec![Vec::new(); plan.headings.len()],
            every: Vec::new(),
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
struct Reasons {
    texts: Vec<String>,
    known: HashMap<Reason, u32>,
    /// The reason of the row before, and by time that of the last symbol that had one: most reasons are one of the two.
    before: (Reason, u32),
    beside: Vec<(Reason, u32)>,
    /// By number of bars, that of having too few for the only point of a scan; 0 for one that has no row yet.
    short: Vec<u32>,
}

impl Reasons {
    fn new(times: usize) -> Self {
        let none = (Reason::None, 0);
        let (texts, known) = (vec![String::new()], HashMap::new());
        Self { texts, known, before: none, beside: vec![none; times], short: Vec::new() }
    }

    fn index(&mut self, reason: Reason, time: usize, text: impl FnOnce(&Reason) -> String) -> u32 {
        if reason == Reason::None {
            return 0;
        }
        if self.before.0 != reason {
            self.before = match self.beside[time] {
                beside if beside.0 == reason => beside,
                _ => (reason, self.looked_up(reason, text)),
            };
        }
        self.beside[time] = self.before;
        self.before.1
    }

    /// Of having `bars` bars where `needed` are needed, which is always the same number.
    fn too_short(&mut self, bars: usize, needed: usize) -> u32 {
        if self.short.len() <= bars {
            self.short.resize(needed.max(bars + 1), 0);
        }
        if self.short[bars] == 0 {
            self.short[bars] = self.looked_up(Reason::TooShort(bars, needed), |reason| reason.text(""));
        }
        self.short[bars]
    }

    fn looked_up(&mut self, reason: Reason, text: impl FnOnce(&Reason) -> String) -> u32 {
        let texts = &mut self.texts;
        *self.known.entry(reason).or_insert_with_key(|reason| {
            texts.push(text(reason));
            u32::try_from(texts.len() - 1).unwrap_or(0)
        })
    }
}

/// The values that decide about a point's rows along an axis; `None` for what the point does not have.
struct Deciding<'a> {
    universe: Option<&'a [f64]>,
    condition: Option<&'a [f64]>,
    edge: Option<&'a [f64]>,
}

/// An axis with what is next on it.
struct Cursor<'a> {
    axis: &'a Axis<'a>,
    computed: &'a Computed,
    /// Index of its symbol.
    symbol: usize,
    /// By point.
    deciding: Vec<Deciding<'a>>,
    /// Index of the next time, and the first bar that is not before it.
    time: usize,
    row: usize,
}

impl<'a> Cursor<'a> {
    fn new(
        axis: &'a Axis<'a>,
        computed: &'a Computed,
        symbol: usize,
        points: &[PointOutputs],
        times: &[TimeMicros],
    ) -> Self {
        let time = times.partition_point(|time| *time < axis.span.from);
        let row = times.get(time).map_or(0, |time| first_from(axis.base_times(), *time));
        let of = |output: Option<usize>| computed.series(output?);
        let deciding = |point: &PointOutputs| Deciding {
            universe: of(point.universe),
            condition: of(point.condition),
            edge: of(point.edge),
        };
        Self { axis, computed, symbol, deciding: points.iter().map(deciding).collect(), time, row }
    }

    /// How many of the next times, up to number `end`, have the next bars, one each.
    fn in_step(&self, times: &[TimeMicros], end: usize) -> usize {
        let bars = self.axis.base_times().get(self.row..).unwrap_or_default();
        let times = &times[self.time..end];
        let times = &times[..times.len().min(bars.len())];
        // Most symbols have a bar at every time: comparing all of them has no branch.
        let same = match times == &bars[..times.len()] {
            true => times.len(),
            false => times.iter().zip(bars).take_while(|(time, bar)| time == bar).count(),
        };
        match times[..same].last() {
            Some(last) if *last > self.axis.span.until => times[..same].partition_point(|t| *t <= self.axis.span.until),
            _ => same,
        }
    }

    /// Takes the next times, up to number `end`, that have the next bars, as long as the condition is false there, or as long as it
    /// is NA for want of bars; puts their rows into cells that are `width` apart. Most rows of most scans are such ones. For a scan
    /// with one point, which needs `needed` bars.
    fn take_plain(
        &mut self,
        panel: &mut SegmentPanel,
        reasons: &mut Reasons,
        times: &[TimeMicros],
        (end, width, needed): (usize, usize, usize),
    ) -> bool {
        let [Deciding { universe: None, condition: Some(condition), edge }] = &self.deciding[..] else { return false };
        let at = self.row.wrapping_sub(self.computed.from);
        let conditions = condition.get(at..).unwrap_or_default();
        let conditions = &conditions[..conditions.len().min(self.in_step(times, end))];
        let first = self.time * width + self.symbol;
        let false_at = conditions.iter().position(|c| c.is_nan() || *c == 1.0).unwrap_or(conditions.len());
        let mut taken = false_at;
        if taken > 0 {
            let cells = panel.status[first..].iter_mut().step_by(width);
            cells.take(taken).for_each(|status| *status = Some(Status::NotMatched));
        } else {
            let most = needed.saturating_sub(self.row + 1).min(conditions.len());
            taken = conditions[..most].iter().position(|c| !c.is_nan()).unwrap_or(most);
            let status = panel.status[first..].iter_mut().step_by(width);
            let cells = status.zip(panel.detail[first..].iter_mut().step_by(width)).take(taken);
            for (bars, (status, detail)) in (self.row + 1..).zip(cells) {
                *status = Some(Status::Unknown);
                *detail = reasons.too_short(bars, needed);
            }
        }
        let edges = edge.and_then(|edge| edge.get(at..)).unwrap_or_default();
        for (i, edge) in edges.iter().take(taken).enumerate() {
            if *edge == 1.0 {
                panel.edge[first + i * width] = true;
            }
        }
        self.time += taken;
        self.row += taken;
        taken > 0
    }

    /// Takes the next times, up to number `end`, as long as they are before the next bar, to which the cursor has moved; `each` of
    /// the cells of a time gets the reason.
    fn take_absent(
        &mut self,
        panel: &mut SegmentPanel,
        reasons: &mut Reasons,
        times: &[TimeMicros],
        (end, width, each): (usize, usize, usize),
    ) -> bool {
        let (bars, until) = (self.axis.base_times(), self.axis.span.until);
        let next = bars.get(self.row).copied();
        let is_absent = |time: &&TimeMicros| **time <= until && next.is_none_or(|next| **time < next);
        let absent = times[self.time..end].iter().take_while(is_absent).count();
        if absent == 0 {
            return false;
        }
        let since = self.row.checked_sub(1).and_then(|before| bars.get(before)).copied();
        let reason = reasons.index(Reason::Stale(since), self.time, |reason| reason.text(""));
        for t in self.time..self.time + absent {
            let first = (t * width + self.symbol) * panel.points;
            panel.status[first..first + each].fill(Some(Status::Stale));
            panel.detail[first..first + each].fill(reason);
        }
        self.time += absent;
        true
    }

    /// The bar before `time` that is read then, where there is none at it; the cursor has moved to the next one.
    fn late(&self, time: TimeMicros, max_age: Option<i64>) -> Option<usize> {
        late_row(self.axis.base_times(), self.row, time, max_age)
    }

    /// An output, `at` rows after the first one that was computed.
    fn output(&self, output: usize, at: usize) -> f64 {
        value_at(self.computed.series(output), at, f64::NAN)
    }
}

/// A cell that has values, and the bar that they are of.
struct ValuedBar {
    /// Indices of the axis, and of its symbol, time and point in the panel.
    axis: usize,
    symbol: usize,
    time: usize,
    point: usize,
    cell: usize,
    /// Index of the bar on the axis.
    row: usize,
}

/// The value of a row that is `at` rows after the first one that was computed; NaN if it was not.
fn value_at(series: Option<&[f64]>, at: usize, otherwise: f64) -> f64 {
    series.map_or(otherwise, |series| series.get(at).copied().unwrap_or(f64::NAN))
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
        // Of the only point, if there is but one.
        let least = needed.first().copied().unwrap_or(0);
        let mut panel = SegmentPanel::empty(symbols, times.len(), self);
        let mut reasons = Reasons::new(times.len());
        let (width, points) = (panel.symbols.len(), panel.points);
        let mut compared = Vec::new();
        let mut matches = 0u32;
        let cursor = |((axis, computed), symbol)| Cursor::new(axis, computed, symbol, &outputs, times);
        let mut cursors: Vec<Cursor<'_>> = axes[..own].iter().zip(computed).zip(place).map(cursor).collect();
        for together in (0..times.len()).step_by(TIMES_TOGETHER) {
            let end = times.len().min(together + TIMES_TOGETHER);
            for cursor in &mut cursors {
                let (bars, until) = (cursor.axis.base_times(), cursor.axis.span.until);
                while cursor.time < end && times[cursor.time] <= until {
                    if plan.best.is_none() && cursor.take_plain(&mut panel, &mut reasons, times, (end, width, least)) {
                        continue;
                    }
                    let (t, time) = (cursor.time, times[cursor.time]);
                    while bars.get(cursor.row).is_some_and(|bar| *bar < time) {
                        cursor.row += 1;
                    }
                    // Without values all points are equal.
                    let each = if plan.best.is_some() { 1 } else { points };
                    let late = cursor.late(time, plan.max_age);
                    if late.is_none() && cursor.take_absent(&mut panel, &mut reasons, times, (end, width, each)) {
                        continue;
                    }
                    cursor.time += 1;
                    let row = late.unwrap_or(cursor.row);
                    let first = (t * width + cursor.symbol) * points;
                    // Rows before the first one that was computed wrap to an index that no series has.
                    let at = row.wrapping_sub(cursor.computed.from);
                    let kept = plan.best.map(|best| {
                        compared.clear();
                        compared.extend(outputs.iter().zip(&cursor.deciding).map(|(point, deciding)| {
                            let universe = value_at(deciding.universe, at, 1.0) == 1.0;
                            let last = point.select.clone().last();
                            (universe, last.map_or(f64::NAN, |last| cursor.output(last, at)))
                        }));
                        best.best(&compared)
                    });
                    for (p, (point, deciding)) in outputs.iter().zip(&cursor.deciding).enumerate() {
                        if kept.as_ref().is_some_and(|kept| !kept.contains(&p)) {
                            continue;
                        }
                        let universe = value_at(deciding.universe, at, 1.0);
                        let condition = value_at(deciding.condition, at, f64::NAN);
                        let missing = || {
                            let absent = |axis: &Axis<'_>| row_at(axis.base_times(), bars[row]).is_none();
                            axes[own..].iter().position(absent)
                        };
                        let (status, reason) = status_of(universe, condition, (row + 1, needed[p]), missing);
                        let cell = first + p;
                        panel.status[cell] = Some(status);
                        panel.edge[cell] = value_at(deciding.edge, at, 0.0) == 1.0;
                        if status == Status::Matched {
                            panel.detail[cell] = matches;
                            matches += 1;
                            for (keys, output) in panel.rank.iter_mut().zip(point.rank.clone()) {
                                keys.push(canonical(cursor.output(output, at)));
                            }
                            for (values, output) in panel.values.iter_mut().zip(point.select.clone()) {
                                values.push(canonical(cursor.output(output, at)));
                            }
                            continue;
                        }
                        panel.detail[cell] = reasons.index(reason, t, |reason| {
                            let name = reason.missing().and_then(|at| references.get(at)).map_or("", String::as_str);
                            reason.text(name)
                        });
                    }
                }
            }
        }
        panel.reasons = reasons.texts;
        if self.every_value {
            self.push_every(&mut panel, &axes[..own], computed, &outputs, times);
        }
        panel
    }

    /// Fills [`SegmentPanel::every`].
    fn push_every(
        &self,
        panel: &mut SegmentPanel,
        axes: &[Axis<'_>],
        computed: &[Computed],
        outputs: &[PointOutputs],
        times: &[TimeMicros],
    ) {
        let mut every = vec![vec![f64::NAN; panel.status.len()]; self.plan().headings.len()];
        self.each_valued(panel, axes, times, |bar| {
            let computed = &computed[bar.axis];
            let at = bar.row.wrapping_sub(computed.from);
            for (values, output) in every.iter_mut().zip(outputs[bar.point].select.clone()) {
                values[bar.cell] = canonical(value_at(computed.series(output), at, f64::NAN));
            }
        });
        panel.every = every;
    }

    /// The rows of a table of features: those of the bars that have values, of a scan with one point.
    pub(super) fn feature_rows(
        &self,
        features: &DeviceFeatures,
        panel: &SegmentPanel,
        axes: &[Axis<'_>],
        times: &[TimeMicros],
    ) -> Vec<(usize, usize, u64)> {
        let width = features.symbols.len() as u64;
        // The times of the panel are some of the table's, one after the other.
        let first = times.first().map_or(0, |first| features.times.partition_point(|time| time < first)) as u64;
        let place = |symbol: &Arc<str>| features.symbols.binary_search_by(|known| (**known).cmp(symbol)).ok();
        let places: Vec<Option<usize>> = panel.symbols.iter().map(place).collect();
        let mut rows = Vec::new();
        self.each_valued(panel, axes, times, |bar| {
            if let Some(symbol) = places[bar.symbol] {
                rows.push((bar.axis, bar.row, (first + bar.time as u64) * width + symbol as u64));
            }
        });
        rows
    }

    /// The select outputs among those of the last stage, of a scan with one point.
    pub(super) fn selected(&self) -> Range<usize> {
        PointOutputs::all(&self.plan().points).first().map_or(0..0, |point| point.select.clone())
    }

    /// Calls `take` for each cell that has a bar and is in the universe, with the bar that it reads.
    fn each_valued(
        &self,
        panel: &SegmentPanel,
        axes: &[Axis<'_>],
        times: &[TimeMicros],
        mut take: impl FnMut(ValuedBar),
    ) {
        let (width, points, max_age) = (panel.symbols.len(), panel.points, self.plan().max_age);
        for (number, axis) in axes.iter().enumerate() {
            let Some(symbol) = panel.symbols.iter().position(|symbol| *symbol == axis.bars.symbol) else { continue };
            let bars = axis.base_times();
            let first = times.partition_point(|time| *time < axis.span.from);
            let mut row = times.get(first).map_or(0, |time| first_from(bars, *time));
            for (t, time) in times.iter().enumerate().skip(first).take_while(|(_, time)| **time <= axis.span.until) {
                while bars.get(row).is_some_and(|bar| *bar < *time) {
                    row += 1;
                }
                let here = (bars.get(row) == Some(time)).then_some(row);
                let Some(row) = here.or_else(|| late_row(bars, row, *time, max_age)) else { continue };
                for point in 0..points {
                    let cell = (t * width + symbol) * points + point;
                    if matches!(panel.status[cell], Some(Status::Matched | Status::NotMatched | Status::Unknown)) {
                        take(ValuedBar { axis: number, symbol, time: t, point, cell, row });
                    }
                }
            }
        }
    }
}

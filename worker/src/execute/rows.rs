//! The output of a step for a segment from its computed values: values for cross-sections, or the rows at one time.

use std::collections::{BTreeMap, HashMap};

use trawl_market::TimeMicros;
use trawl_plan::PointValues;
use trawl_wire::{CrossValues, RowMarks, RowTable, Status};

use super::ScanSource;
use crate::axis::{Axis, row_at, row_within};
use crate::stage_run::{Computed, StageRun};
use crate::status::{self, Reason};

impl ScanSource {
    pub(super) fn values(
        &self,
        run: &StageRun<'_>,
        wanted: &BTreeMap<u16, &[TimeMicros]>,
        computed: &[Vec<Computed>],
    ) -> Vec<CrossValues> {
        let mut all = Vec::with_capacity(run.stage.crosses.len());
        for (cross, piece, output) in &run.stage.crosses {
            let times = wanted.get(cross).copied().unwrap_or(&[]);
            let size = &self.plan().frames[run.stage.pieces[*piece].frame.index()].bars;
            let max_age = self.max_age_of(size);
            let mut values = Vec::with_capacity(times.len() * run.own);
            let axes: Vec<usize> = (0..run.own).collect();
            let symbol = |a: &usize| &run.axes[*a].bars.symbol;
            for vintages in axes.chunk_by(|a, b| symbol(a) == symbol(b)) {
                values.extend(times.iter().map(|time| {
                    let a = vintages.iter().find(|a| run.axes[**a].span.contains(*time));
                    let value = a.and_then(|a| Some((*a, row_within(run.axes[*a].times(size), *time, max_age)?)));
                    let value = value.map_or(f64::NAN, |(a, row)| computed[*piece][a].at(*output, row));
                    // An infinity counts as NA: it cannot be ranked among numbers.
                    if value.is_finite() { value } else { f64::NAN }
                }));
            }
            all.push(CrossValues { cross: *cross, times: times.to_vec(), values });
        }
        all
    }

    /// The rows of all points, or of each symbol's best points, at one time.
    pub(super) fn rows(
        &self,
        axes: &[Axis<'_>],
        own: usize,
        references: &[String],
        computed: &[Computed],
        time: TimeMicros,
    ) -> RowTable {
        let plan = self.plan();
        let provisional = self.dataset.is_forming(time);
        let missing = |at: TimeMicros| {
            let absent = |axis: &Axis<'_>| row_at(axis.base_times(), at).is_none();
            axes[own..].iter().position(absent)
        };
        let points = &plan.points;
        let needed = self.executable.bars_needed();
        let rows = own * plan.best.map_or(points.len(), |best| best.keep.min(points.len()));
        let mut table = RowTable::new((own, rows), (plan.rank.len(), plan.headings.len()));
        let mut reasons: HashMap<Reason, usize> = HashMap::new();
        let mut reason_at = |table: &mut RowTable, reason: Reason| {
            let name = || reason.missing().and_then(|at| references.get(at)).map_or("", String::as_str);
            *reasons.entry(reason).or_insert_with(|| table.reason(&reason.text(name())))
        };
        let mut outputs = vec![f64::NAN; self.executable.outputs()];
        for (axis, computed) in axes[..own].iter().zip(computed).filter(|(axis, _)| axis.span.contains(time)) {
            table.begin(&axis.bars.symbol);
            let marks =
                |point: usize| RowMarks { point: u32::try_from(point).unwrap_or(u32::MAX), ..RowMarks::default() };
            let Some(row) = row_within(axis.base_times(), time, plan.max_age) else {
                let reason = reason_at(&mut table, status::stale(axis.base_times(), time));
                // Without values all points are equal.
                let kept = if plan.best.is_some() { 1 } else { points.len() };
                (0..kept).for_each(|point| table.without_values(marks(point), Status::Stale, reason));
                continue;
            };
            outputs.iter_mut().enumerate().for_each(|(output, value)| *value = computed.at(output, row));
            let mut keep = |point: usize, values: PointValues<'_>| {
                let marks = RowMarks { edge: values.edge, provisional, ..marks(point) };
                let bars = (row + 1, needed[point]);
                match status::status_of(values.universe, values.condition, bars, || missing(axis.base_times()[row])) {
                    (Status::Matched, _) => table.matched(marks, values.rank, values.select),
                    (Status::NotMatched, _) => table.not_matched(marks),
                    (status, reason) => {
                        let reason = reason_at(&mut table, reason);
                        table.without_values(marks, status, reason);
                    }
                }
            };
            let mut rest = outputs.as_slice();
            match plan.best {
                None => points.iter().enumerate().for_each(|(at, point)| keep(at, point.values(&mut rest))),
                Some(best) => {
                    let given: Vec<PointValues<'_>> = points.iter().map(|point| point.values(&mut rest)).collect();
                    let compared = |point: &PointValues<'_>| {
                        (point.universe == 1.0, point.select.last().copied().unwrap_or(f64::NAN))
                    };
                    let compared: Vec<(bool, f64)> = given.iter().map(compared).collect();
                    best.best(&compared).into_iter().for_each(|point| keep(point, given[point]));
                }
            }
        }
        table
    }
}

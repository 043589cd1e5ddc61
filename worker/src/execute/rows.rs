//! The output of a step for a segment from its computed values: values for cross-sections, or the rows at one time.

use std::collections::BTreeMap;

use trawl_market::TimeMicros;
use trawl_plan::PointValues;
use trawl_wire::{CrossValues, SymbolRow};

use super::ScanSource;
use crate::axis::{Axis, row_at};
use crate::stage_run::{Computed, StageRun};
use crate::status;

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
            let mut values = Vec::with_capacity(times.len() * run.own);
            let axes: Vec<usize> = (0..run.own).collect();
            let symbol = |a: &usize| &run.axes[*a].bars.symbol;
            for vintages in axes.chunk_by(|a, b| symbol(a) == symbol(b)) {
                values.extend(times.iter().map(|time| {
                    let a = vintages.iter().find(|a| run.axes[**a].span.contains(*time));
                    let value = a.and_then(|a| Some((*a, row_at(run.axes[*a].times(size), *time)?)));
                    let value = value.map_or(f64::NAN, |(a, row)| computed[*piece][a].at(*output, row));
                    // An infinity counts as NA: it cannot be ranked among numbers.
                    if value.is_finite() { value } else { f64::NAN }
                }));
            }
            all.push(CrossValues { cross: *cross, times: times.to_vec(), values });
        }
        all
    }

    /// The rows of all points, or of each symbol's best points, at one time, by point and symbol.
    pub(super) fn rows(
        &self,
        axes: &[Axis<'_>],
        own: usize,
        references: &[String],
        computed: &[Computed],
        time: TimeMicros,
    ) -> Vec<SymbolRow> {
        let plan = self.plan();
        let provisional = self.dataset.is_forming(time);
        let missing = || {
            let absent = |axis: &&Axis<'_>| row_at(axis.base_times(), time).is_none();
            axes[own..].iter().position(|axis| absent(&axis))
        };
        let name = |at: usize| references.get(at).cloned().unwrap_or_default();
        let points = &plan.points;
        let needed = self.executable.bars_needed();
        let mut rows = Vec::with_capacity(own * plan.best.map_or(points.len(), |best| best.keep.min(points.len())));
        for (axis, computed) in axes[..own].iter().zip(computed).filter(|(axis, _)| axis.span.contains(time)) {
            let mut keep = |point: usize, mut made: SymbolRow, provisional: bool| {
                made.point = u32::try_from(point).unwrap_or(u32::MAX);
                made.symbol = axis.bars.symbol.to_string();
                made.provisional = provisional;
                rows.push(made);
            };
            let Some(row) = row_at(axis.base_times(), time) else {
                let stale = status::stale(axis.base_times(), time);
                // Without values all points are equal.
                let kept = if plan.best.is_some() { 1 } else { points.len() };
                (0..kept).for_each(|point| keep(point, stale.clone(), false));
                continue;
            };
            let values: Vec<f64> = (0..self.executable.outputs()).map(|output| computed.at(output, row)).collect();
            let mut values = values.iter();
            let mut given: Vec<Option<PointValues>> =
                points.iter().map(|point| Some(point.values(&mut values))).collect();
            let kept: Vec<usize> = match plan.best {
                None => (0..points.len()).collect(),
                Some(best) => {
                    let compared = given
                        .iter()
                        .flatten()
                        .map(|point| (point.universe == 1.0, point.select.last().copied().unwrap_or(f64::NAN)));
                    best.best(&compared.collect::<Vec<_>>())
                }
            };
            for point in kept {
                if let Some(values) = given[point].take() {
                    keep(point, status::of(values, row + 1, needed[point], missing, name), provisional);
                }
            }
        }
        rows.sort_by(|a, b| (a.point, &a.symbol).cmp(&(b.point, &b.symbol)));
        rows
    }
}

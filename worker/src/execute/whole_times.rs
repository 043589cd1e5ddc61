//! The times at which cross-sections are read, without reading bars.
//!
//! Which rows of a symbol read a cross-section depends on the plan and on the times of its bars; and a symbol that has a bar at every time
//! of the dataset from its first to its last one, as those of most markets have, has times that the manifest says. So a pass over all
//! segments, which only collects times, is left out where all symbols are such.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use trawl_market::{LoadedBars, Series, TimeMicros};
use trawl_plan::frame::Frame;
use trawl_wire::{CrossTimes, StepInputV1};

use super::step::StepRun;
use super::{ExecuteError, References, ScanSource, ScanStep, StepKind};
use crate::evaluate::CrossRead;

impl ScanSource {
    /// What a step of kind [`StepKind::Times`] gives for all segments together. `all` are the times of all bars of the dataset, ascending.
    /// `None` where it depends on bars: a symbol lacks one, or the plan reads higher bars or those of a reference.
    ///
    /// # Errors
    /// [`ExecuteError::Market`] for the labels; [`ExecuteError::Inconsistent`].
    pub fn times_without_bars(
        &self,
        step: ScanStep,
        input: &StepInputV1,
        all: &Series<TimeMicros>,
    ) -> Result<Option<Vec<CrossTimes>>, ExecuteError> {
        if step.kind != StepKind::Times || self.plan().frames.iter().any(|frame| *frame != Frame::OWN) {
            return Ok(None);
        }
        let Some(spans) = self.whole_spans(all) else { return Ok(None) };
        let bars = |(first, end): &(usize, usize)| LoadedBars {
            symbol: Arc::from(""),
            times: all.part(*first..*end),
            columns: vec![Series::default(); self.plan().columns.len()],
            unread: 0,
        };
        let bars: Vec<LoadedBars> = spans.iter().map(bars).collect();
        let (times, references) = ([self.as_of], References::new());
        let shared = StepRun::new(self, step, input, &times, &references)?;
        let axes = shared.axes(&bars)?;
        let (_, reads) = shared.needed(&shared.stage_run(&axes, axes.len()));
        // By cross-section: how many more symbols read at a time than at the time before.
        let mut steps: BTreeMap<u16, Vec<i64>> = BTreeMap::new();
        for CrossRead { cross, axis, rows, .. } in reads {
            let of_cross = steps.entry(cross).or_insert_with(|| vec![0; all.len() + 1]);
            let first = spans[axis].0;
            of_cross[first + rows.start] += 1;
            of_cross[first + rows.end] -= 1;
        }
        let times_of = |(cross, steps): (u16, Vec<i64>)| {
            let mut readers = 0;
            let read = all.iter().zip(steps).filter(|(_, step)| {
                readers += step;
                readers > 0
            });
            CrossTimes { cross, times: read.map(|(time, _)| *time).collect() }
        };
        Ok(Some(steps.into_iter().map(times_of).collect()))
    }

    /// The places of the first bar, and behind the last bar, among all times of the dataset, of every symbol; each once. `None` if a symbol has
    /// no bar at a time between.
    fn whole_spans(&self, all: &[TimeMicros]) -> Option<Vec<(usize, usize)>> {
        let mut spans = BTreeSet::new();
        for entry in &self.dataset.manifest.symbols {
            let first = all.binary_search(&entry.first_time).ok()?;
            let end = all.binary_search(&entry.last_time).ok()? + 1;
            if entry.rows != end.checked_sub(first)? as u64 {
                return None;
            }
            spans.insert((first, end));
        }
        Some(spans.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use trawl_kernels::stages::Stages;
    use trawl_kernels::{Engine, NoCancel, Precision};
    use trawl_market::{Adjustment, MemoryMarket, Timeframe, memory_dataset};
    use trawl_plan::{History, ScanDocument, compile_scan};
    use trawl_wire::{SegmentOutput, SegmentResult};

    use super::*;
    use crate::ExecutablePlan;
    use crate::schema::schema_of;

    const DAY: TimeMicros = 86_400_000_000;

    /// Bars on these days; close is made.
    fn bars(symbol: &str, days: &[i64]) -> trawl_market::SymbolBars {
        LoadedBars {
            symbol: Arc::from(symbol),
            times: days.iter().map(|day| day * DAY).collect(),
            columns: vec![days.iter().map(|day| 1.0 + (day * 7 % 5) as f64).collect::<Vec<f64>>().into()],
            unread: 0,
        }
        .into()
    }

    fn source(document: &ScanDocument, symbols: &[(&str, Vec<i64>)], as_of: i64) -> ScanSource {
        let market = MemoryMarket {
            name: "m".to_owned(),
            timeframe: Timeframe::DAY,
            calendar: "24/7".to_owned(),
            columns: vec!["close".to_owned()],
            bars: symbols.iter().map(|(name, days)| bars(name, days)).collect(),
            ..MemoryMarket::default()
        };
        let dataset = memory_dataset(market).unwrap();
        let plan = compile_scan(document, &schema_of(&dataset, as_of * DAY).unwrap()).unwrap();
        ScanSource {
            executable: ExecutablePlan::new(Arc::new(plan), Precision::F64),
            dataset,
            as_of: as_of * DAY,
            adjustment: Adjustment::NONE,
            engine: Engine::Cpu,
            checkpoints: None,
            every_value: false,
        }
    }

    fn document(condition: &str, history: Option<u32>, max_age: Option<&str>) -> ScanDocument {
        ScanDocument {
            condition: condition.to_owned(),
            history: history.map(|bars| History { bars, origin: true }),
            max_age: max_age.map(str::to_owned),
            ..ScanDocument::default()
        }
    }

    /// All steps that collect times, from bars and without them: those that differ.
    fn compare(source: &ScanSource) -> (usize, bool) {
        let all: Series<TimeMicros> = source.dataset.times().unwrap().into();
        let mut known: BTreeMap<u16, BTreeSet<TimeMicros>> = BTreeMap::new();
        let (mut steps, mut without) = (0, true);
        for stage in (1..source.plan().stages().len()).rev() {
            let step = ScanStep { stage, kind: StepKind::Times };
            let of = |(cross, ..): &(u16, usize, usize)| CrossTimes {
                cross: *cross,
                times: known.get(cross).map_or_else(Vec::new, |times| times.iter().copied().collect()),
            };
            let wanted = source.plan().stages()[stage].crosses.iter().map(of).collect();
            let input = StepInputV1 { wanted, tables: Vec::new() };
            let mut read: BTreeMap<u16, BTreeSet<TimeMicros>> = BTreeMap::new();
            for (segment, _) in source.dataset.group_bars() {
                let (references, mut stages) = (References::new(), Stages::default());
                let ran = source.execute(segment, step, &input, &references, &NoCancel, &mut stages).unwrap();
                let SegmentResult::Step(result) = ran else { panic!("rows") };
                let SegmentOutput::Times(times) = result.output else { panic!("values") };
                times.into_iter().for_each(|read_by| read.entry(read_by.cross).or_default().extend(read_by.times));
            }
            match source.times_without_bars(step, &input, &all).unwrap() {
                None => without = false,
                Some(times) => {
                    let times: BTreeMap<u16, BTreeSet<TimeMicros>> =
                        times.into_iter().map(|own| (own.cross, own.times.into_iter().collect())).collect();
                    assert_eq!(times, read, "stage {stage}");
                }
            }
            read.into_iter().for_each(|(cross, times)| known.entry(cross).or_default().extend(times));
            steps += 1;
        }
        (steps, without)
    }

    const CONDITIONS: [&str; 6] = [
        "xs_rank(close) <= 2",
        "within(xs_pct(close) > 0.5, 3)",
        "sma(xs_pct(close), 4) > 0.2",
        "ema(xs_demean(close), 3) > 0",
        "xs_rank(sma(xs_pct(roc(close, 2)), 3)) <= 1",
        "xs_pct(ema(xs_rank(close), 5)) > 0.3 and xs_rank(close[2]) > 1",
    ];

    #[test]
    fn the_times_of_symbols_without_gaps_are_those_that_their_bars_give() {
        let market = [
            ("A", (100..140).collect()),
            ("B", (120..140).collect()),
            ("C", (100..131).collect()),
            ("D", vec![139]),
            ("E", (105..139).collect()),
        ];
        for condition in CONDITIONS {
            for (history, max_age) in [(None, None), (Some(7), None), (None, Some("3d"))] {
                for as_of in [139, 130, 104, 100] {
                    let source = source(&document(condition, history, max_age), &market, as_of);
                    let (steps, without) = compare(&source);
                    assert!(steps > 0 && without, "{condition} {history:?} {max_age:?} {as_of}");
                }
            }
        }
    }

    #[test]
    fn a_symbol_that_lacks_a_bar_and_a_plan_of_other_bars_need_their_bars() {
        let whole = ("A", (100..140).collect::<Vec<i64>>());
        let gap = ("B", (100..140).filter(|day| *day != 131).collect::<Vec<i64>>());
        for condition in CONDITIONS {
            let document = document(condition, None, None);
            assert!(!compare(&source(&document, &[whole.clone(), gap.clone()], 139)).1, "{condition}");
            // Alone, it lacks nothing.
            assert!(compare(&source(&document, std::slice::from_ref(&gap), 139)).1, "{condition}");
        }
        let weekly = document("tf('1w', xs_rank(close)) <= 2", None, None);
        assert!(!compare(&source(&weekly, &[whole], 139)).1);
    }
}

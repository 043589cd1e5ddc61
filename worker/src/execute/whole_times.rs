//! The times at which cross-sections are read, without reading bars.
//!
//! Which rows of a symbol read a cross-section depends on the plan and on the times of its bars. The manifest says when a symbol's first and
//! last bars are and how many it has; the dataset, all times at which any symbol has one. So it is known which times a symbol may have bars
//! at, and how many of these it lacks. What the newest bar reads is known with that, and more so for symbols that lack none. Of the others,
//! rows that are found by counting bars back are at most as many rows earlier as bars may be absent. So there are times beside those that are
//! read. They change no value, since no value of a cross-section depends on its values at other times; they cost their computation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use trawl_market::{LoadedBars, Series, TimeMicros};
use trawl_plan::Input;
use trawl_plan::frame::{BarSize, Subject};
use trawl_wire::{CrossTimes, StepInputV1};

use super::step::StepRun;
use super::{ExecuteError, References, ScanSource, ScanStep, StepKind};
use crate::evaluate::CrossRead;

/// Bars of all symbols of which higher bars are made to learn their times; beyond, reading them in parallel is quicker.
const RESAMPLED_BARS_MAX: usize = 1 << 21;

/// The times of a step of kind [`StepKind::Times`] that follow from plan and manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestTimes {
    /// By cross-section: all times that the bars would give, ascending.
    pub times: Vec<CrossTimes>,
    /// How many of them, over all cross-sections, may be read by nobody. 0: they are those that the bars would give.
    pub uncertain: usize,
}

/// Times of one cross-section, found symbol by symbol.
struct Found {
    /// At each of the dataset's times, how many more symbols read there than at the time before.
    steps: Vec<i64>,
    /// The same of those that read there for sure.
    certain_steps: Vec<i64>,
    /// Of higher bars, which have times of their own; and whether any is read for sure.
    labels: BTreeMap<TimeMicros, bool>,
}

impl Found {
    fn new(times: usize) -> Self {
        Self { steps: vec![0; times + 1], certain_steps: vec![0; times + 1], labels: BTreeMap::new() }
    }

    /// All times, ascending, and whether each is read for sure. `all`: the dataset's.
    fn times(self, all: &[TimeMicros]) -> BTreeMap<TimeMicros, bool> {
        let (mut readers, mut certain, mut times) = (0, 0, self.labels);
        for ((time, step), certain_step) in all.iter().zip(self.steps).zip(self.certain_steps) {
            readers += step;
            certain += certain_step;
            if readers > 0 {
                *times.entry(*time).or_default() |= certain > 0;
            }
        }
        times
    }
}

/// Where a symbol may have bars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Extent {
    /// Place of its first bar among the dataset's times.
    first: usize,
    /// Place behind its last bar.
    end: usize,
    /// At how many of the times between it has none.
    absent: usize,
}

impl ScanSource {
    /// What a step of kind [`StepKind::Times`] gives for all segments together, and perhaps times beside. `all` are the times of all bars of the
    /// dataset, ascending. `None` where bars have to be read: for cross-sections along a reference, and for very many higher bars.
    ///
    /// # Errors
    /// [`ExecuteError::Market`] for the labels; [`ExecuteError::Inconsistent`].
    pub fn times_without_bars(
        &self,
        step: ScanStep,
        input: &StepInputV1,
        all: &Series<TimeMicros>,
    ) -> Result<Option<ManifestTimes>, ExecuteError> {
        let Some(stage) = self.plan().stages().get(step.stage).filter(|_| step.kind == StepKind::Times) else {
            return Ok(None);
        };
        let frame = |piece: usize| &self.plan().frames[stage.pieces[piece].frame.index()];
        let by_reference = stage.pieces.iter().enumerate().any(|(at, piece)| {
            frame(at).subject != Subject::Own
                && piece.program.inputs.iter().any(|input| matches!(input, Input::Cross(_)))
        });
        let Some(extents) = self.extents(all).filter(|_| !by_reference) else { return Ok(None) };
        let bars = |extent: &Extent| LoadedBars {
            symbol: Arc::from(""),
            times: all.part(extent.first..extent.end),
            columns: vec![Series::default(); self.plan().columns.len()],
            unread: 0,
            untimed: 0,
        };
        let bars: Vec<LoadedBars> = extents.iter().map(bars).collect();
        let resampled = self.plan().frames.iter().any(|frame| frame.bars != BarSize::Base);
        if resampled {
            // Those with the same bars share their higher ones.
            let spans: BTreeSet<(usize, usize)> = extents.iter().map(|extent| (extent.first, extent.end)).collect();
            if spans.iter().map(|(first, end)| end - first).sum::<usize>() > RESAMPLED_BARS_MAX {
                return Ok(None);
            }
        }
        let (times, references) = ([self.as_of], References::new());
        let shared = StepRun::new(self, step, input, &times, &references)?;
        let mut axes = shared.axes(&bars)?;
        for (axis, extent) in axes.iter_mut().zip(&extents) {
            axis.absent_max = extent.absent;
        }
        let (_, reads) = shared.needed(&shared.stage_run(&axes, axes.len()));
        let mut found: BTreeMap<u16, Found> = BTreeMap::new();
        for CrossRead { cross, axis: at, piece, rows } in reads {
            let (extent, axis, found) =
                (extents[at], &axes[at], found.entry(cross).or_insert_with(|| Found::new(all.len())));
            if let size @ BarSize::Higher { forming: false, .. } = &frame(piece).bars {
                for time in &axis.times(size)[rows] {
                    *found.labels.entry(*time).or_default() |= extent.absent == 0;
                }
                continue;
            }
            let (from, end) = (extent.first + rows.start, extent.first + rows.end);
            found.steps[from] += 1;
            found.steps[end] -= 1;
            // Its last bar is there, and what is read of it is not read through higher bars that may be missing.
            let is_last = !resampled && axis.visible == axis.bars.times.len() && from < end;
            let newest = if is_last { end - 1 } else { end };
            let certain = if extent.absent == 0 { from } else { newest };
            found.certain_steps[certain] += 1;
            found.certain_steps[end] -= 1;
        }
        let (mut times, mut uncertain) = (Vec::new(), 0);
        for (cross, found) in found {
            let found = found.times(all);
            uncertain += found.values().filter(|certain| !**certain).count();
            times.push(CrossTimes { cross, times: found.into_keys().collect() });
        }
        Ok(Some(ManifestTimes { times, uncertain }))
    }

    /// Where the symbols may have bars up to the as-of; each extent once, ascending. `None` if that contradicts the dataset's times.
    fn extents(&self, all: &[TimeMicros]) -> Option<Vec<Extent>> {
        let mut extents = BTreeSet::new();
        for entry in self.dataset.manifest.symbols.iter().filter(|entry| entry.first_time <= self.as_of) {
            let first = all.binary_search(&entry.first_time).ok()?;
            let end = all.binary_search(&entry.last_time).ok()? + 1;
            let absent = end.checked_sub(first)?.checked_sub(usize::try_from(entry.rows).ok()?)?;
            extents.insert(Extent { first, end, absent });
        }
        Some(extents.into_iter().collect())
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
            untimed: 0,
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
            features: None,
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

    /// What [`compare`] found.
    #[derive(Debug, Default)]
    struct Compared {
        steps: usize,
        /// Steps whose times did not follow from the manifest.
        by_bars: usize,
        /// Times that nobody reads, and how many of them were expected to be so at most.
        beside: usize,
        uncertain: usize,
    }

    /// All steps that collect times, from bars and without them. What is wanted by a step are the times given without bars, if there are any:
    /// so each step is compared for what it is asked for in a scan.
    fn compare(source: &ScanSource) -> Compared {
        let all: Series<TimeMicros> = source.dataset.times().unwrap().into();
        let mut known: BTreeMap<u16, BTreeSet<TimeMicros>> = BTreeMap::new();
        let mut compared = Compared::default();
        let loaded = source.load_references().unwrap();
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
                let mut stages = Stages::default();
                let ran = source.execute(segment, step, &input, &loaded, &NoCancel, &mut stages).unwrap();
                let SegmentResult::Step(result) = ran else { panic!("rows") };
                let SegmentOutput::Times(times) = result.output else { panic!("values") };
                times.into_iter().for_each(|read_by| read.entry(read_by.cross).or_default().extend(read_by.times));
            }
            compared.steps += 1;
            let given = source.times_without_bars(step, &input, &all).unwrap();
            compared.by_bars += usize::from(given.is_none());
            if let Some(ManifestTimes { times, uncertain }) = given {
                let given: BTreeMap<u16, BTreeSet<TimeMicros>> =
                    times.into_iter().map(|own| (own.cross, own.times.into_iter().collect())).collect();
                let none = BTreeSet::new();
                for (cross, times) in &read {
                    let missing: Vec<_> = times.difference(given.get(cross).unwrap_or(&none)).collect();
                    assert!(missing.is_empty(), "stage {stage} reads {cross} at {missing:?}");
                }
                let beside =
                    |(cross, given): (&u16, &BTreeSet<_>)| given.difference(read.get(cross).unwrap_or(&none)).count();
                let beside: usize = given.iter().map(beside).sum();
                assert!(
                    beside <= uncertain,
                    "stage {stage}: {beside} times that nobody reads, {uncertain} are uncertain"
                );
                compared.beside += beside;
                compared.uncertain += uncertain;
                read = given;
            }
            read.into_iter().for_each(|(cross, times)| known.entry(cross).or_default().extend(times));
        }
        compared
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
                    let Compared { steps, by_bars, beside, uncertain } = compare(&source);
                    assert!(steps > 0, "{condition}");
                    assert_eq!((by_bars, beside, uncertain), (0, 0, 0), "{condition} {history:?} {max_age:?} {as_of}");
                }
            }
        }
    }

    #[test]
    fn the_newest_bar_of_a_symbol_that_lacks_bars_is_known_and_what_is_counted_back_from_it_is_bounded() {
        let whole = ("A", (100..140).collect::<Vec<i64>>());
        let gap = ("B", (100..140).filter(|day| ![131, 132].contains(day)).collect::<Vec<i64>>());
        let ended = ("C", (100..130).filter(|day| day % 3 > 0).collect::<Vec<i64>>());
        let market = [whole, gap.clone(), ended];
        for condition in ["xs_rank(close) <= 2", "xs_rank(roc(close, 20)) <= 2 and close > sma(close, 3)"] {
            for (history, max_age) in [(None, None), (Some(7), None), (None, Some("3d"))] {
                let compared = compare(&source(&document(condition, history, max_age), &market, 139));
                assert_eq!((compared.by_bars, compared.beside), (0, 0), "{condition} {history:?} {max_age:?}");
                assert_eq!(compared.uncertain, 0, "{condition} {history:?} {max_age:?}");
            }
        }
        // Without a symbol that has them all, too.
        let other = ("D", (100..140).filter(|day| *day != 120).collect::<Vec<i64>>());
        let without = compare(&source(&document("xs_rank(close) <= 2", None, None), &[gap, other], 139));
        assert_eq!((without.steps, without.by_bars, without.uncertain), (1, 0, 0));
        let window = compare(&source(&document("sma(xs_pct(close), 4) > 0.2", None, None), &market, 139));
        assert_eq!((window.by_bars, window.uncertain), (0, 2), "as many as the symbol that has a bar then may lack");
        let from_first = compare(&source(&document("ema(xs_pct(close), 4) > 0.2", None, None), &market, 139));
        assert_eq!((from_first.by_bars, from_first.uncertain), (0, 0), "A has all of them");
    }

    #[test]
    fn higher_bars_are_those_of_the_times_and_references_that_read_cross_sections_need_their_bars() {
        let whole = [("A", (100..140).collect::<Vec<i64>>()), ("B", (117..140).collect::<Vec<i64>>())];
        for condition in [WEEKLY.as_slice(), &CONDITIONS].concat() {
            let compared = compare(&source(&document(condition, None, None), &whole, 139));
            assert_eq!((compared.by_bars, compared.beside, compared.uncertain), (0, 0, 0), "{condition}");
        }
        let along = compare(&source(&document("ref('A', xs_rank(close)) <= 2", None, None), &whole, 139));
        assert_eq!((along.steps, along.by_bars), (1, 1));
    }

    /// Conditions on other bars than the symbol's own.
    const WEEKLY: [&str; 8] = [
        "tf('1w', xs_rank(close)) <= 2",
        "within(tf('1w', xs_pct(close)) > 0.5, 3)",
        "tf('1w', sma(xs_pct(close), 2)) > 0.2",
        "xs_rank(tf('1w', close, partial=true)) <= 2 and sma(xs_pct(close), 3) > 0.1",
        "xs_rank(tf('1w', sma(close, 2))) <= 2",
        "xs_rank(sma(tf('1w', xs_pct(close)), 3)) <= 2",
        "xs_rank(close) <= 2 and close > ref('A', close)",
        "sma(xs_pct(close - ref('A', close)), 3) > 0.1",
    ];

    #[test]
    fn in_no_market_does_a_symbol_read_a_cross_section_at_a_time_that_was_left_out() {
        const DAYS: std::ops::Range<i64> = 100..170;
        let mut state = 22_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let (mut gaps, mut uncertain) = (0, 0);
        for _ in 0..60 {
            let mut market: Vec<(&str, Vec<i64>)> = Vec::new();
            for name in ["A", "B", "C", "D"] {
                let first = DAYS.start + random(40) as i64;
                let end = DAYS.end - random(3) as i64 * random(20) as i64;
                // From none to most of its days.
                let absent = random(4) * random(25);
                // Perhaps it was halted for some weeks.
                let halt = first + random(70) as i64;
                let halt = halt..halt + (random(2) * random(25)) as i64;
                let traded =
                    |day: &i64, random: &mut dyn FnMut(u64) -> u64| !halt.contains(day) && random(100) >= absent;
                let mut days: Vec<i64> = (first..end.max(first + 1)).filter(|day| traded(day, &mut random)).collect();
                if days.is_empty() {
                    days.push(first);
                }
                gaps += usize::from(days.len() as i64 != days[days.len() - 1] - days[0] + 1);
                market.push((name, days));
            }
            let times: BTreeSet<i64> = market.iter().flat_map(|(_, days)| days.iter().copied()).collect();
            let times: Vec<i64> = times.into_iter().collect();
            let as_of = times[times.len() - 1 - random(3) as usize * random(times.len() as u64 / 3) as usize];
            for condition in WEEKLY.iter().chain(&CONDITIONS) {
                let history = (random(3) == 0).then(|| 2 + random(12) as u32);
                let max_age = (random(3) == 0).then_some("5d");
                let compared = compare(&source(&document(condition, history, max_age), &market, as_of));
                assert_eq!(compared.by_bars, 0, "{condition}");
                uncertain += compared.beside;
            }
        }
        assert!(gaps > 100 && uncertain > 100, "{gaps} {uncertain}");
    }
}

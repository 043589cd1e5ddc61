//! A scan at every bar: the answer at each time of the dataset up to the as-of, in chunks of times.
//!
//! Each time's answer is the one that a scan as of that time gives, prices adjusted as of that time: history is cut
//! where a split or a dividend becomes known, and each part computed from bars adjusted as of it
//! (`trawl_market::Vintage`). `@last` adjusts all of it as of the last bar instead. Memory holds one chunk of rows and
//! the bars of as many parts of segments as there are threads.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use trawl_kernels::stages::Stages;
use trawl_kernels::{Cancel, Engine};
use trawl_market::{Adjustment, MarketError, TimeMicros, Timeframe};
use trawl_wire::error::text_of;
use trawl_wire::limits::bounded_reason;
use trawl_wire::{Answer, ErrorKind, Identity, SegmentOutput, SegmentResultV2};
use trawl_worker::{
    DeviceFeatures, ExecuteError, References, ScanSource, SegmentPanel, StepOutput, adjustment_text, changing_name,
    reads_earlier_crosses,
};

use crate::local::LocalOptions;
use crate::merge::FailedSegment;
use crate::panel::PanelChunk;
use crate::prepare::{KEPT_BYTES_MAX, PreparedScan};
use crate::scan_steps::{PassError, Passes};

/// Maximum bytes of rows held at once.
pub const CHUNK_BYTES_MAX: u64 = 256 << 20;
/// Bytes of a row in a panel besides its values: status, edge and reason.
const ROW_BYTES: u64 = 6;
const VALUE_BYTES: u64 = 8;
/// Maximum bytes of one segment's vintages, besides its bars.
const VINTAGES_BYTES_MAX: u64 = 256 << 20;

/// Bytes of times and values of a segment that a thread reads at once, besides those of its first 16 symbols.
const PART_BYTES_MAX: u64 = 32 << 20;

/// Why the answers end early.
#[derive(Debug, thiserror::Error)]
pub enum AllBarsError {
    /// A mistake of the user.
    #[error("'history' limits what one as-of sees, and every bar has its own: leave one of the two out")]
    History,
    /// A mistake of the user: one plan serves all bars.
    #[error(
        "'{name}' is the ticker of {} at different times, and every bar has its own: name the symbol instead",
        symbols.join(" and of ")
    )]
    Renamed {
        /// The name as written in the document.
        name: String,
        /// The symbols that it refers to, in alphabetical order.
        symbols: Vec<String>,
    },
    /// A mistake of the user: at each of the dataset's bars, the newest complete longer bar would be repeated.
    #[error(
        "the bars of {wanted} are built from the dataset's bars of {own}, and what is wanted at every bar is wanted at every one of those: \
         leave the timeframe out and write tf('{wanted}', ...), or import bars of {wanted}"
    )]
    Timeframe {
        /// The timeframe of the document.
        wanted: String,
        /// That of the dataset.
        own: Timeframe,
    },
    /// The operating system gave no threads.
    #[error("cannot start the threads of the scan")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// The file of times cannot be read.
    #[error(transparent)]
    Market(#[from] MarketError),
    /// The cross-sections could not be made.
    #[error(transparent)]
    Pass(#[from] PassError),
    /// A segment could not be read; another run may succeed.
    #[error(transparent)]
    Execute(ExecuteError),
    /// The consumer of the answers failed.
    #[error("{0}")]
    Taker(String),
}

/// Runs the scan at every time of the dataset from `from` (the first when `None`) up to its as-of and passes each
/// time's answer to `take`, in order of time; see [`all_bars_by_column`].
///
/// # Errors
/// [`AllBarsError`]; [`AllBarsError::Taker`] with the error of `take`.
pub fn all_bars(
    prepared: &PreparedScan,
    options: LocalOptions,
    from: Option<TimeMicros>,
    chunk_bytes_max: u64,
    cancel: &dyn Cancel,
    mut take: impl FnMut(TimeMicros, Answer) -> Result<(), String> + Send,
) -> Result<(), AllBarsError> {
    all_bars_by_column(prepared, options, from, chunk_bytes_max, cancel, |chunk| {
        (0..chunk.times.len()).try_for_each(|time| take(chunk.times[time], answer_at(prepared, chunk, time)))
    })
}

/// The answer at one time of a chunk.
pub fn answer_at(prepared: &PreparedScan, chunk: &PanelChunk, time: usize) -> Answer {
    let (spec, at) = (prepared.merge_spec(), chunk.times[time]);
    let adjustment = prepared.adjustment;
    let known = if adjustment.at_last { adjustment } else { adjustment.known_at(at) };
    let as_of = prepared.dataset.manifest.as_of_text(at);
    Answer {
        identity: Identity { as_of, adjustment: adjustment_text(known), ..spec.identity },
        time: Some(at),
        bar: spec.bar,
        rows: chunk.answer_rows(time),
        select: spec.select,
        kinds: spec.kinds,
        points: spec.points,
        best: spec.best,
        digest: String::new(),
    }
}

/// That the scan is one of the dataset's own bars, not of longer bars that are built from them.
///
/// # Errors
/// [`AllBarsError::Timeframe`].
pub(crate) fn check_own_bars(prepared: &PreparedScan) -> Result<(), AllBarsError> {
    let own = prepared.dataset.manifest.timeframe;
    match &prepared.document.timeframe {
        Some(wanted) if wanted.parse().ok() != Some(own) => {
            Err(AllBarsError::Timeframe { wanted: wanted.clone(), own })
        }
        _ => Ok(()),
    }
}

/// Runs the scan at every time of the dataset from `from` (the first when `None`) up to its as-of and passes the rows
/// of chunks of times to `take`, in order of time. `take` is called inside the pool of the scan's threads.
///
/// # Errors
/// [`AllBarsError`]; [`AllBarsError::Taker`] with the error of `take`.
pub fn all_bars_by_column(
    prepared: &PreparedScan,
    options: LocalOptions,
    from: Option<TimeMicros>,
    chunk_bytes_max: u64,
    cancel: &dyn Cancel,
    take: impl FnMut(&PanelChunk) -> Result<(), String> + Send,
) -> Result<(), AllBarsError> {
    all_bars_on((&Engine::Cpu, None), prepared, options, from, chunk_bytes_max, cancel, take)
}

/// As [`all_bars_by_column`], computed by an engine, on whose device the select columns may stay: the rows have none then.
///
/// # Errors
/// [`AllBarsError`].
pub(crate) fn all_bars_on(
    (engine, features): (&Engine, Option<&Arc<DeviceFeatures>>),
    prepared: &PreparedScan,
    options: LocalOptions,
    from: Option<TimeMicros>,
    chunk_bytes_max: u64,
    cancel: &dyn Cancel,
    mut take: impl FnMut(&PanelChunk) -> Result<(), String> + Send,
) -> Result<(), AllBarsError> {
    if prepared.plan.history.is_some() {
        return Err(AllBarsError::History);
    }
    check_own_bars(prepared)?;
    let times = prepared.dataset.times()?;
    let wanted =
        times.partition_point(|t| from.is_some_and(|from| *t < from))..times.partition_point(|t| *t <= prepared.as_of);
    if let (Some(&first), Some(&last)) = (times.get(wanted.start), times.get(wanted.end.saturating_sub(1)))
        && let Some((name, symbols)) = changing_name(&prepared.dataset, &prepared.document, (first, last))?
    {
        return Err(AllBarsError::Renamed { name, symbols });
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(options.threads).build()?;
    let times = times.get(wanted).unwrap_or(&[]);
    let columns = (prepared.plan.rank.len() + prepared.plan.headings.len()) as u64;
    let row = ROW_BYTES + VALUE_BYTES * columns;
    let a_time = row * prepared.symbol_count() as u64 * prepared.plan.points.len() as u64;
    let chunk = (chunk_bytes_max / a_time.max(1)).max(1) as usize;
    let part_bytes = chunk_bytes_max.min(PART_BYTES_MAX);
    let parts = Parts::new(prepared, times)?;
    let spec = Arc::new(prepared.merge_spec());
    let mut symbols: Vec<String> = prepared.segments.iter().flat_map(|s| prepared.symbols_of(*s)).collect();
    symbols.sort_unstable();
    let symbols = Arc::new(symbols);
    // All chunks read the same bars.
    let dataset = match times.len() <= chunk {
        true => prepared.source().dataset,
        false => prepared.dataset.clone().keeping_columns(prepared.plan.columns.clone(), KEPT_BYTES_MAX),
    };
    for chunk in parts.of(times).flat_map(|part| part.chunks(chunk)) {
        let adjustment = parts.adjustment_at(chunk);
        let every_value = options.every_value;
        let (engine, features) = (engine.clone(), features.cloned());
        let source =
            ScanSource { adjustment, dataset: dataset.clone(), every_value, engine, features, ..prepared.source() };
        let references = source.load_references();
        let provisional = chunk.iter().map(|time| prepared.dataset.is_forming(*time)).collect();
        let segments = pool.install(|| {
            Chunk { prepared, source: &source, references: &references, cancel, times: chunk, part_bytes }.panels()
        })?;
        let unexpected = || {
            let what = "the symbols of the segments are not those of the scan".to_owned();
            AllBarsError::Execute(ExecuteError::Inconsistent(what))
        };
        let chunk = PanelChunk::new(chunk.to_vec(), provisional, &symbols, segments, &spec).ok_or_else(unexpected)?;
        pool.install(|| take(&chunk)).map_err(AllBarsError::Taker)?;
    }
    Ok(())
}

/// Which times may be computed together.
struct Parts<'a> {
    prepared: &'a PreparedScan,
    /// Times at which a new part begins.
    cuts: Vec<TimeMicros>,
}

impl<'a> Parts<'a> {
    /// A part ends where data shared by all symbols changes: the bars of a reference, or cross-sections at times before
    /// the as-of, which any symbol's split changes. It ends too where the vintages of a segment would take too much
    /// memory.
    fn new(prepared: &'a PreparedScan, times: &[TimeMicros]) -> Result<Self, MarketError> {
        let (Some(&first), Some(&last)) = (times.first(), times.last()) else {
            return Ok(Self { prepared, cuts: Vec::new() });
        };
        let plan = &prepared.plan;
        let all = !plan.crosses.is_empty() && reads_earlier_crosses(&prepared.executable);
        let references = plan.references();
        let manifest = &prepared.dataset.manifest;
        let mut bytes: BTreeMap<u32, u64> = BTreeMap::new();
        let mut cuts = Vec::new();
        for (time, symbol) in prepared.dataset.adjustment_changes(&prepared.adjustment, None, (first, last))? {
            let Some(entry) = manifest.symbol(&symbol) else { continue };
            let held = bytes.entry(entry.group).or_default();
            *held += entry.rows * VALUE_BYTES * (plan.columns.len() as u64 + 2);
            if all || references.contains(&symbol.as_str()) || *held > VINTAGES_BYTES_MAX {
                cuts.push(time);
                bytes.clear();
            }
        }
        cuts.dedup();
        Ok(Self { prepared, cuts })
    }

    /// Splits the times into non-empty runs that may be computed together.
    fn of<'t>(&'t self, times: &'t [TimeMicros]) -> impl Iterator<Item = &'t [TimeMicros]> {
        times.chunk_by(|before, after| {
            let next = self.cuts.partition_point(|cut| cut <= before);
            self.cuts.get(next).is_none_or(|cut| cut > after)
        })
    }

    /// The adjustment known at the first of `times`; each vintage adds what becomes known later.
    fn adjustment_at(&self, times: &[TimeMicros]) -> Adjustment {
        let adjustment = self.prepared.adjustment;
        match times.first() {
            Some(first) if !adjustment.at_last => adjustment.known_at(*first),
            _ => adjustment,
        }
    }
}

/// Some times that are computed together.
struct Chunk<'a> {
    prepared: &'a PreparedScan,
    /// Adjusted as of the first of the times.
    source: &'a ScanSource,
    references: &'a Result<References, ExecuteError>,
    cancel: &'a dyn Cancel,
    times: &'a [TimeMicros],
    /// Bytes that a thread reads at once.
    part_bytes: u64,
}

impl Chunk<'_> {
    /// The rows of all segments at each time, of each in one or several panels.
    fn panels(&self) -> Result<Vec<SegmentPanel>, AllBarsError> {
        let mut passes = Passes::new(self.prepared)?;
        loop {
            let outputs = self.pass(&passes)?;
            if passes.is_last() {
                return Ok(self.gathered(outputs));
            }
            let (mut results, mut failures) = (Vec::new(), Vec::new());
            for (segment, output) in outputs {
                let output = match output {
                    Ok(StepOutput::Times(times)) => SegmentOutput::Times(times),
                    Ok(StepOutput::Values(values)) => SegmentOutput::Values(values),
                    Ok(StepOutput::Rows(_) | StepOutput::Panel(_)) => continue,
                    Err(message) => {
                        failures.push(self.failed(segment, message));
                        continue;
                    }
                };
                results.push(SegmentResultV2 { segment, output });
            }
            passes.advance(results, &failures, false)?;
        }
    }

    /// Runs the current step for every segment, the last one for each part of one. Damaged segments are returned with the reason.
    fn pass(&self, passes: &Passes) -> Result<Vec<PartOutput>, AllBarsError> {
        let step = passes.step();
        let input = passes.input(&self.prepared.segments);
        let known = ScanSource { adjustment: self.prepared.adjustment, ..self.source.clone() };
        let span = self.times.first().copied().zip(self.times.last().copied()).unwrap_or_default();
        let run = |(segment, part): (u32, Range<usize>)| {
            let output = match self.references {
                Ok(references) => known.load_vintages_for((segment, part), span, step).and_then(|vintages| {
                    let mut unreported = Stages::default();
                    known.run_vintages(step, &input, self.times, &vintages, references, self.cancel, &mut unreported)
                }),
                Err(error) if !fails_only_its_symbols(error.kind()) => {
                    return Err(AllBarsError::Taker(text_of(error)));
                }
                Err(error) => return Ok((segment, Err(bounded_reason(text_of(error))))),
            };
            match output {
                Ok(output) => Ok((segment, Ok(output))),
                Err(error) if fails_only_its_symbols(error.kind()) => {
                    Ok((segment, Err(bounded_reason(text_of(&error)))))
                }
                Err(error) => Err(AllBarsError::Execute(error)),
            }
        };
        let parts = |segment: &u32| {
            let parts = known.panel_parts(*segment, step, self.part_bytes).into_iter();
            parts.map(|part| (*segment, part)).collect::<Vec<_>>()
        };
        let parts: Vec<(u32, Range<usize>)> = self.prepared.segments.iter().flat_map(parts).collect();
        let outputs: Vec<_> = parts.into_par_iter().map(run).collect::<Result<_, AllBarsError>>()?;
        if passes.is_last() { Ok(whole_or_failed(outputs)) } else { joined(outputs) }
    }

    fn failed(&self, segment: u32, message: String) -> FailedSegment {
        let symbols = self.prepared.symbols_of(segment);
        FailedSegment { segment, symbols, kind: ErrorKind::Permanent, message }
    }

    fn gathered(&self, outputs: Vec<PartOutput>) -> Vec<SegmentPanel> {
        let panel = |(segment, output)| match output {
            Ok(StepOutput::Panel(panel)) => panel,
            Ok(_) => self.failed_panel(segment, format!("segment {segment} has no result")),
            Err(reason) => self.failed_panel(segment, reason),
        };
        outputs.into_iter().map(panel).collect()
    }

    fn failed_panel(&self, segment: u32, reason: String) -> SegmentPanel {
        let symbols = self.prepared.symbols_of(segment).into_iter().map(Arc::from).collect();
        SegmentPanel::failed(symbols, self.times.len(), reason, self.source)
    }
}

/// What became of a part of a segment.
type PartOutput = (u32, Result<StepOutput, String>);

/// The outputs of parts, and for a segment of which any failed only that.
fn whole_or_failed(outputs: Vec<PartOutput>) -> Vec<PartOutput> {
    let failed: BTreeMap<u32, String> =
        outputs.iter().filter_map(|(segment, output)| Some((*segment, output.as_ref().err()?.clone()))).collect();
    let mut kept: Vec<PartOutput> = outputs.into_iter().filter(|(segment, _)| !failed.contains_key(segment)).collect();
    kept.extend(failed.into_iter().map(|(segment, reason)| (segment, Err(reason))));
    kept
}

/// One output for each segment.
fn joined(outputs: Vec<PartOutput>) -> Result<Vec<PartOutput>, AllBarsError> {
    let mut all: Vec<PartOutput> = Vec::new();
    for (segment, output) in whole_or_failed(outputs) {
        match (all.pop_if(|(before, _)| *before == segment), output) {
            (Some((_, Ok(before))), Ok(output)) => {
                let both = before.followed_by(output).map_err(AllBarsError::Execute)?;
                all.push((segment, Ok(both)));
            }
            (_, output) => all.push((segment, output)),
        }
    }
    Ok(all)
}

/// Whether every attempt fails in the same way. This process's copy is the only one here, so damage of it counts as the
/// snapshot's.
fn fails_only_its_symbols(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Permanent | ErrorKind::Damaged)
}

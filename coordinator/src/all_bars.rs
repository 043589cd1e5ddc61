//! A scan at every bar: the answer at each time of the dataset up to the as-of, in chunks of times.
//!
//! Each time's answer is the one that a scan as of that time gives, prices adjusted as of the last. Memory holds one
//! chunk of rows and the bars of as many segments as there are threads.

use rayon::prelude::*;
use trawl_kernels::Cancel;
use trawl_kernels::stages::Stages;
use trawl_market::{MarketError, TimeMicros};
use trawl_protocol::error::text_of;
use trawl_protocol::limits::bounded_reason;
use trawl_protocol::{Answer, ErrorKind, Identity, SegmentOutput, SegmentResultV2, SymbolRow};
use trawl_worker::{ExecuteError, References, StepOutput};

use crate::local::LocalOptions;
use crate::merge::{FailedSegment, failed_rows, place_rows};
use crate::passes::{PassError, Passes};
use crate::prepare::PreparedScan;

/// Bytes of the rows that are held at once.
pub const CHUNK_BYTES_MAX: u64 = 256 << 20;
/// What a row takes beside its values: name, reason, vectors, allocator.
const ROW_BYTES: u64 = 160;
const VALUE_BYTES: u64 = 8;

/// Why the answers end early.
#[derive(Debug, thiserror::Error)]
pub enum AllBarsError {
    /// The user's to mend.
    #[error("'history' limits what one as-of sees, and every bar has its own: leave one of the two out")]
    History,
    /// The operating system gave no threads.
    #[error("cannot start the threads of the scan")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// The file of times cannot be read.
    #[error(transparent)]
    Market(#[from] MarketError),
    /// The cross-sections could not be made.
    #[error(transparent)]
    Pass(#[from] PassError),
    /// A segment could not be read now; another run may.
    #[error(transparent)]
    Execute(ExecuteError),
    /// Who takes the answers cannot.
    #[error("{0}")]
    Taker(String),
}

/// Runs the scan at every time of the dataset from `from` (the first when `None`) up to its as-of and gives each time's
/// answer to `take`, in order of time.
///
/// # Errors
/// [`AllBarsError`]; [`AllBarsError::Taker`] with what `take` says.
pub fn all_bars(
    prepared: &PreparedScan,
    options: LocalOptions,
    from: Option<TimeMicros>,
    chunk_bytes_max: u64,
    cancel: &dyn Cancel,
    mut take: impl FnMut(TimeMicros, Answer) -> Result<(), String>,
) -> Result<(), AllBarsError> {
    if prepared.plan.history.is_some() {
        return Err(AllBarsError::History);
    }
    let times = prepared.dataset.times()?;
    let wanted =
        times.partition_point(|t| from.is_some_and(|from| *t < from))..times.partition_point(|t| *t <= prepared.as_of);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(options.threads).build()?;
    let references = prepared.source().load_references();
    let columns = (prepared.plan.rank.len() + prepared.plan.headings.len()) as u64;
    let row = ROW_BYTES + VALUE_BYTES * columns;
    let a_time = row * prepared.symbol_count() as u64 * prepared.plan.points.len() as u64;
    let chunk = (chunk_bytes_max / a_time.max(1)).max(1) as usize;
    for chunk in times.get(wanted).unwrap_or(&[]).chunks(chunk) {
        let rows = pool.install(|| Chunk { prepared, references: &references, cancel, times: chunk }.rows())?;
        for (time, rows) in chunk.iter().zip(rows) {
            let spec = prepared.merge_spec();
            let answer = Answer {
                identity: Identity { as_of: prepared.dataset.manifest.as_of_text(*time), ..spec.identity.clone() },
                rows: place_rows(rows, &spec),
                select: spec.select,
                points: spec.points,
                best: spec.best,
            };
            take(*time, answer).map_err(AllBarsError::Taker)?;
        }
    }
    Ok(())
}

/// Some times that are computed together.
struct Chunk<'a> {
    prepared: &'a PreparedScan,
    references: &'a Result<References, ExecuteError>,
    cancel: &'a dyn Cancel,
    times: &'a [TimeMicros],
}

impl Chunk<'_> {
    /// The rows of all symbols at each time.
    fn rows(&self) -> Result<Vec<Vec<SymbolRow>>, AllBarsError> {
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
                    Ok(StepOutput::Rows(_)) => continue,
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

    /// The present step for every segment; damaged ones with the reason.
    #[allow(clippy::type_complexity)]
    fn pass(&self, passes: &Passes) -> Result<Vec<(u32, Result<StepOutput, String>)>, AllBarsError> {
        let (step, source) = (passes.step(), self.prepared.source());
        let input = passes.input(&self.prepared.segments);
        let run = |segment: &u32| {
            let output = match self.references {
                Ok(references) => source.load_segment(*segment).and_then(|bars| {
                    let mut untold = Stages::default();
                    source.run(step, &input, self.times, &bars, references, self.cancel, &mut untold)
                }),
                Err(error) if error.kind() != ErrorKind::Permanent => {
                    return Err(AllBarsError::Taker(text_of(error)));
                }
                Err(error) => return Ok((*segment, Err(bounded_reason(text_of(error))))),
            };
            match output {
                Ok(output) => Ok((*segment, Ok(output))),
                Err(error) if error.kind() == ErrorKind::Permanent => {
                    Ok((*segment, Err(bounded_reason(text_of(&error)))))
                }
                Err(error) => Err(AllBarsError::Execute(error)),
            }
        };
        self.prepared.segments.par_iter().map(run).collect()
    }

    fn failed(&self, segment: u32, message: String) -> FailedSegment {
        let symbols = self.prepared.symbols_of(segment);
        FailedSegment { segment, symbols, kind: ErrorKind::Permanent, message }
    }

    fn gathered(&self, outputs: Vec<(u32, Result<StepOutput, String>)>) -> Vec<Vec<SymbolRow>> {
        let mut rows: Vec<Vec<SymbolRow>> = vec![Vec::new(); self.times.len()];
        let spec = self.prepared.merge_spec();
        for (segment, output) in outputs {
            match output {
                Ok(StepOutput::Rows(of_times)) => {
                    rows.iter_mut().zip(of_times).for_each(|(all, mine)| all.extend(mine));
                }
                Ok(StepOutput::Times(_) | StepOutput::Values(_)) => {}
                Err(reason) => {
                    let failed = self.failed(segment, reason);
                    for all in &mut rows {
                        all.extend(failed_rows(&failed, &spec));
                    }
                }
            }
        }
        rows
    }
}

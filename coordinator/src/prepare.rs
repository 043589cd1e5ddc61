//! Prepares a scan document: resolves what all shards of the scan share (snapshot, plan, as-of, identity, segments).
//!
//! Everything that could differ between attempts is resolved here, once.

use std::sync::Arc;

use tracing::field::Empty;
use trawl_kernels::cuda::Lowering;
use trawl_kernels::{BACKEND_CPU, Engine, Precision};
use trawl_market::{
    Adjustment, AsOf, Dataset, Manifest, MarketError, Store, TimeMicros, Timeframe, format_time, higher_bars, now,
};
use trawl_plan::frame::BarSize;
use trawl_plan::{Diagnostic, Direction, Input, Plan, ScanDocument, Schema, Stage, compile_scan};
use trawl_telemetry::names::{attribute, span as name};
use trawl_wire::Identity;
use trawl_wire::limits::SEGMENTS_MAX;
use trawl_wire::record::ExecutionClass;
use trawl_worker::{
    ExecutablePlan, ScanSource, adjustment_of, adjustment_text, execution_class_in, lowering_of, precision_of,
    schema_of,
};

use crate::answer_size::{ANSWER_ROWS_MAX, bytes_of, rows_of};
use crate::merge_spec::MergeSpec;
use crate::planner::SegmentCost;
use crate::scheduler::Piece;
use crate::worker_class::{ClassNeeds, WorkerClass};

/// Maximum bytes of bars that a scan of several steps in this process keeps in memory.
pub const KEPT_BYTES_MAX: u64 = 256 << 20;

/// Bytes of a segment: its number, here and where it is run.
const SEGMENT_BYTES: usize = 64;

/// Why a scan cannot begin. All variants except [`PrepareError::Dataset`] are mistakes of the user.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The document names no dataset.
    #[error("no dataset is named: give one with --dataset NAME, or 'dataset = \"NAME\"' in the document")]
    NoDataset,
    /// The dataset does not exist or cannot be read.
    #[error("{0}")]
    Dataset(#[from] MarketError),
    /// Mistakes in the document's clauses.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Plan(Vec<Diagnostic>),
    /// No closed bar is old enough.
    #[error("dataset '{dataset}' has no closed bar {}", if as_of.is_empty() { "at all".to_owned() } else { format!("as of {as_of}") })]
    NoBar {
        /// Name of the dataset.
        dataset: String,
        /// The requested as-of; empty for the newest bar.
        as_of: String,
    },
    /// Too many long windows over long histories.
    #[error(
        "this scan needs {needed} bytes of each thread beside the bars, at most {} are taken; \
         use shorter windows or split it into several scans",
        trawl_kernels::WORKSPACE_BYTES_MAX
    )]
    TooMuchMemory {
        /// Bytes per thread.
        needed: u64,
    },
    /// More groups than a scan may have.
    #[error("dataset '{dataset}' has {found} groups, at most {SEGMENTS_MAX} are scanned")]
    TooManySegments {
        /// Name of the dataset.
        dataset: String,
        /// Number of groups with a symbol.
        found: usize,
    },
    /// More rows than an answer may have.
    #[error(
        "the answer of this sweep would have {rows} rows, of {combinations} combinations and {symbols} symbols; at most \
         {ANSWER_ROWS_MAX} are made: sweep over fewer values, or let each symbol keep its best combinations"
    )]
    TooManyRows {
        /// Rows that it would have at most.
        rows: u64,
        /// Combinations of the sweep.
        combinations: u64,
        /// Symbols of the dataset.
        symbols: u64,
    },
}

/// A scan ready to be cut into shards. Cheap to clone.
#[derive(Debug, Clone)]
pub struct PreparedScan {
    /// The user's document; `dataset` is set.
    pub document: Arc<ScanDocument>,
    /// The opened snapshot.
    pub dataset: Dataset,
    /// The compiled document.
    pub plan: Arc<Plan>,
    /// The plan lowered for this precision, shared by all segments and threads.
    pub executable: ExecutablePlan,
    /// Start time of the as-of bar, resolved.
    pub as_of: TimeMicros,
    /// Warnings for the user: an as-of other than the newest closed bar or beyond the data, an adjustment with nothing
    /// to adjust, sessions in years that the calendar does not cover.
    pub warnings: Vec<String>,
    /// Whether the first warning is that there is a newer closed bar.
    is_past: bool,
    /// Corrections of prices, as of a date.
    pub adjustment: Adjustment,
    /// Precision of the arithmetic.
    pub precision: Precision,
    /// The identity of the answer.
    pub identity: Identity,
    /// The groups with a symbol, ascending.
    pub segments: Arc<Vec<u32>>,
}

/// Opens the dataset, compiles the plan and resolves the as-of; `None` is the newest closed bar, a time the newest bar
/// that starts at or before it.
///
/// # Errors
/// [`PrepareError`].
pub fn prepare(store: &Store, document: &ScanDocument, as_of: impl Into<AsOf>) -> Result<PreparedScan, PrepareError> {
    let span = tracing::info_span!(name::PLAN, { attribute::DATASET } = Empty, { attribute::SEGMENTS } = Empty);
    let _entered = span.enter();
    prepare_opened(open(store, document)?, document, as_of)
}

/// Opens the dataset that a document names.
fn open(store: &Store, document: &ScanDocument) -> Result<Dataset, PrepareError> {
    let reference = document.dataset.as_deref().ok_or(PrepareError::NoDataset)?;
    tracing::Span::current().record(attribute::DATASET, reference);
    Ok(match document.timeframe.as_deref().and_then(|t| t.parse().ok()) {
        Some(timeframe) => store.sibling(reference, timeframe)?,
        None => store.open(reference)?,
    })
}

/// As [`prepare`], over an open dataset.
///
/// # Errors
/// [`PrepareError`].
pub fn prepare_opened(
    dataset: Dataset,
    document: &ScanDocument,
    as_of: impl Into<AsOf>,
) -> Result<PreparedScan, PrepareError> {
    prepare_with(dataset, document, as_of, |schema| compile_scan(document, schema))
}

/// As [`prepare_opened`], with another plan of the document.
pub(crate) fn prepare_with(
    dataset: Dataset,
    document: &ScanDocument,
    as_of: impl Into<AsOf>,
    compile: impl FnOnce(&Schema) -> Result<Plan, Vec<Diagnostic>>,
) -> Result<PreparedScan, PrepareError> {
    let span = tracing::Span::current();
    let manifest = Arc::clone(&dataset.manifest);
    let wanted = as_of.into();
    let resolved = dataset
        .resolve_as_of(&wanted, document.forming, now())?
        .ok_or_else(|| PrepareError::NoBar { dataset: manifest.name.clone(), as_of: wanted.to_string() })?;
    let as_of = resolved.bar;
    let adjustment = adjustment_of(document, &manifest, as_of)?;
    let is_past = resolved.is_past;
    let mut warnings: Vec<String> = resolved.warning.into_iter().collect();
    if !adjustment.is_none() && manifest.factors.is_none() {
        warnings.push(format!(
            "dataset '{}' has no splits or dividends: prices are not adjusted; 'trawl data import --factors' adds them",
            manifest.name
        ));
    }
    let schema = schema_of(&dataset, as_of)?;
    let plan = compile(&schema).map_err(PrepareError::Plan)?;
    warnings.extend(coverage_warning(&plan, &manifest, as_of)?);
    check_answer_rows(&plan, manifest.symbols.len())?;
    let precision = precision_of(document);
    let executable = ExecutablePlan::new(Arc::new(plan), precision);
    let needed = workspace_bytes(&executable, &dataset);
    if needed > trawl_kernels::WORKSPACE_BYTES_MAX {
        return Err(PrepareError::TooMuchMemory { needed });
    }
    let segments: Vec<u32> = dataset.group_bars().map(|(group, _)| group).collect();
    if segments.len() > SEGMENTS_MAX {
        return Err(PrepareError::TooManySegments { dataset: manifest.name.clone(), found: segments.len() });
    }
    span.record(attribute::SEGMENTS, trawl_telemetry::spans::number(segments.len() as u64));
    let class = execution_class_in(precision);
    let identity = Identity {
        plan: executable.fingerprint().to_owned(),
        dataset: manifest.name.clone(),
        snapshot: manifest.snapshot.clone(),
        as_of: manifest.as_of_text(as_of),
        engine: class.engine,
        numerics: class.numerics,
        backend: class.backend,
        precision: class.precision,
        adjustment: adjustment_text(adjustment),
        partial: false,
    };
    Ok(PreparedScan {
        document: Arc::new(document.clone()),
        dataset,
        plan: Arc::clone(executable.plan()),
        executable,
        as_of,
        warnings,
        is_past,
        adjustment,
        precision,
        identity,
        segments: Arc::new(segments),
    })
}

/// Refuses a plan whose answer would have too many rows.
///
/// # Errors
/// [`PrepareError::TooManyRows`].
pub(crate) fn check_answer_rows(plan: &Plan, symbols: usize) -> Result<(), PrepareError> {
    let rows = rows_of(plan, symbols);
    if rows <= ANSWER_ROWS_MAX {
        return Ok(());
    }
    Err(PrepareError::TooManyRows { rows, combinations: plan.points.len() as u64, symbols: symbols as u64 })
}

/// A warning when the plan asks the calendar for sessions of years that it does not cover.
fn coverage_warning(plan: &Plan, manifest: &Manifest, as_of: TimeMicros) -> Result<Option<String>, MarketError> {
    let timeframe = manifest.timeframe;
    let begins = |input: &Input| matches!(input, Input::Begins(_) | Input::Clock(_));
    let mut pieces = plan.stages().iter().flat_map(|stage| &stage.pieces);
    let asked = plan.frames.iter().any(|frame| frame.bars != BarSize::Base)
        || (!timeframe.is_dated() && pieces.any(|piece| piece.program.inputs.iter().any(begins)));
    Ok(if asked { manifest.calendar().coverage_warning(timeframe, manifest.first_time, as_of) } else { None })
}

/// Working memory in bytes per thread, besides the bars: a function of the plan and the longest history.
fn workspace_bytes(executable: &ExecutablePlan, dataset: &Dataset) -> u64 {
    executable.workspace_bytes(usize::try_from(dataset.longest()).unwrap_or(usize::MAX))
}

impl PreparedScan {
    /// The warnings for a user who gave the as-of as the end of a span: not that there are newer bars.
    pub fn span_warnings(&self) -> impl Iterator<Item = &str> {
        self.warnings.iter().skip(usize::from(self.is_past)).map(String::as_str)
    }

    /// The same scan, restricted to one segment.
    pub(crate) fn only(mut self, segment: u32) -> Self {
        self.segments = Arc::new(self.segments.iter().copied().filter(|s| *s == segment).collect());
        self
    }

    /// The same scan on another backend of this build, which changes the identity.
    pub fn on(self, backend: &str) -> Self {
        self.in_class(&WorkerClass::own(backend))
    }

    /// The same scan in a class of workers, which changes the identity.
    pub fn in_class(mut self, class: &WorkerClass) -> Self {
        let on_device = class.backend != BACKEND_CPU;
        let lowering = if on_device { self.lowering().0 } else { Lowering::Serial };
        self.identity.backend.clone_from(&class.backend);
        self.identity.engine.clone_from(&class.engine);
        self.identity.numerics = class.numerics_of(lowering);
        self
    }

    /// What the scan asks of the class that it runs in. `backend`: the only one to take, if one is named.
    pub fn class_needs(&self, backend: Option<&str>) -> ClassNeeds {
        ClassNeeds {
            precision: self.precision,
            own_numerics: self.plan.stages().len() > 1,
            backend: backend.map(str::to_owned),
            unfit: Vec::new(),
        }
    }

    /// The lowering for a device, and the reason if it is not obvious.
    pub fn lowering(&self) -> (Lowering, Option<String>) {
        lowering_of(&self.plan, self.precision, &self.dataset.manifest)
    }

    /// The as-of on the exchange's clock, with its zone.
    pub fn shown_as_of(&self) -> String {
        self.dataset.manifest.shown_as_of(self.as_of)
    }

    /// The same, and which bar is read where a scan's bars are built from the dataset's: the newest that is whole.
    pub fn shown_bars(&self) -> String {
        let shown = self.shown_as_of();
        let Some((timeframe, bar)) = self.newest_whole_bar() else { return shown };
        let zone = self.dataset.manifest.calendar().zone();
        let bar = if timeframe.is_dated() { format_time(bar) } else { zone.format(bar) };
        format!("{shown} (the newest whole bar of {timeframe} is that of {bar})")
    }

    /// The newest bar of the scan's timeframe that is whole at the as-of, if such bars are built.
    fn newest_whole_bar(&self) -> Option<(Timeframe, TimeMicros)> {
        let manifest = &self.dataset.manifest;
        let timeframe: Timeframe = self.document.timeframe.as_deref()?.parse().ok()?;
        if timeframe == manifest.timeframe {
            return None;
        }
        let times = self.dataset.times().ok()?;
        let times = &times[..times.partition_point(|time| *time <= self.as_of)];
        let bars = higher_bars(&manifest.calendar(), manifest.timeframe, timeframe, times).ok()?;
        let bar = *bars.times.get(bars.completed(times.len().checked_sub(1)?)?.checked_sub(1)?)?;
        Some((timeframe, bar))
    }

    /// The zone of the exchange, where bars are shorter than a day; else empty.
    pub fn zone(&self) -> String {
        let manifest = &self.dataset.manifest;
        if manifest.is_dated() { String::new() } else { manifest.calendar().zone().name().to_owned() }
    }

    /// The execution class, which determines the bits of the answer.
    pub fn class(&self) -> ExecutionClass {
        ExecutionClass {
            engine: self.identity.engine.clone(),
            numerics: self.identity.numerics.clone(),
            backend: self.identity.backend.clone(),
            precision: self.identity.precision.clone(),
        }
    }

    /// Bytes that it takes in memory beside the document and the manifest, about.
    pub fn bytes(&self) -> usize {
        self.executable.bytes() + self.segments.len() * SEGMENT_BYTES
    }

    /// The source for executing steps of the scan; on the CPU unless another engine is set. Steps after the first find
    /// the bars in memory, as far as [`KEPT_BYTES_MAX`] allows.
    pub fn source(&self) -> ScanSource {
        let dataset = match self.plan.stages().len() {
            0 | 1 => self.dataset.clone(),
            _ => self.dataset.clone().keeping_columns(self.columns_read_again(), KEPT_BYTES_MAX),
        };
        ScanSource {
            engine: Engine::Cpu,
            executable: self.executable.clone(),
            dataset,
            as_of: self.as_of,
            adjustment: self.adjustment,
            checkpoints: None,
            every_value: false,
            features: None,
        }
    }

    /// Columns that more than one stage reads.
    fn columns_read_again(&self) -> impl Iterator<Item = String> {
        let reads = |stage: &Stage, name: &str| {
            let mut inputs = stage.pieces.iter().flat_map(|piece| &piece.program.inputs);
            inputs.any(|input| matches!(input, Input::Column(read) if read == name))
        };
        let again = move |name: &&String| self.plan.stages().iter().filter(|stage| reads(stage, name)).count() > 1;
        self.plan.columns.iter().filter(again).cloned()
    }

    /// `NAME@SNAPSHOT`, with the full snapshot id, as opened by every worker.
    pub fn dataset_reference(&self) -> String {
        format!("{}@{}", self.identity.dataset, self.identity.snapshot)
    }

    /// Symbols of a segment, sorted; empty if the scan has no such segment.
    pub fn symbols_of(&self, segment: u32) -> Vec<String> {
        self.symbol_names(segment).map(str::to_owned).collect()
    }

    fn symbol_names(&self, segment: u32) -> impl Iterator<Item = &str> {
        let there = self.has(segment).then(|| self.dataset.symbols_of(segment));
        there.into_iter().flatten().map(|entry| entry.symbol.as_str())
    }

    /// The places of a segment's symbols among those of the snapshot, ascending.
    pub(crate) fn places_of(&self, segment: u32) -> impl Iterator<Item = usize> {
        let there = self.has(segment).then(|| self.dataset.members(segment));
        there.into_iter().flatten().map(|place| *place as usize)
    }

    /// Whether a segment is one of this scan's.
    pub(crate) fn has(&self, segment: u32) -> bool {
        self.segments.binary_search(&segment).is_ok()
    }

    /// Symbols of a piece: those of its segment, or a run of them.
    pub(crate) fn symbols_of_piece(&self, piece: Piece) -> Vec<String> {
        self.piece_names(piece).map(str::to_owned).collect()
    }

    pub(crate) fn piece_names(&self, piece: Piece) -> impl Iterator<Item = &str> {
        self.symbol_names(piece.segment).skip(piece.first as usize).take(piece.count as usize)
    }

    /// The piece that covers a whole segment.
    pub(crate) fn whole(&self, segment: u32) -> Piece {
        Piece { segment, first: 0, count: u32::try_from(self.size_of(segment).0).unwrap_or(u32::MAX) }
    }

    /// Number of symbols of the whole scan.
    pub fn symbol_count(&self) -> usize {
        self.dataset.manifest.symbols.len()
    }

    /// Working memory in bytes per thread, besides the bars.
    pub fn workspace_bytes(&self) -> u64 {
        workspace_bytes(&self.executable, &self.dataset)
    }

    /// Number of bars of all symbols of the scan.
    pub fn bar_count(&self) -> u64 {
        self.dataset.group_bars().fold(0, |sum, (_, bars)| sum.saturating_add(bars))
    }

    /// Estimated nanoseconds of one core per segment, ascending by segment.
    pub fn segment_costs(&self) -> Vec<SegmentCost> {
        let cost_ns = self.cost_of_bars();
        self.segment_bars().map(|(segment, bars)| SegmentCost { segment, cost: cost_ns(bars) }).collect()
    }

    /// The segments, ascending, with the number of their bars.
    pub(crate) fn segment_bars(&self) -> impl Iterator<Item = (u32, u64)> {
        self.dataset.group_bars().filter(|(segment, _)| self.has(*segment))
    }

    /// Estimated nanoseconds of one core for so many bars, at least 1.
    pub(crate) fn cost_of_bars(&self) -> impl Fn(u64) -> u64 + use<> {
        let per_bar = self.plan.cost_ns_per_bar().max(1.0);
        // Saturates.
        move |bars| ((bars as f64 * per_bar) as u64).max(1)
    }

    /// Number of symbols of a segment, and of their bars.
    pub(crate) fn size_of(&self, segment: u32) -> (u64, u64) {
        let (symbols, bars) = if self.has(segment) { self.dataset.size_of(segment) } else { (0, 0) };
        (symbols as u64, bars)
    }

    /// Estimated nanoseconds of one core for all segments.
    pub fn cost_ns(&self) -> u64 {
        let cost_ns = self.cost_of_bars();
        self.segment_bars().fold(0, |sum, (_, bars)| sum.saturating_add(cost_ns(bars)))
    }

    /// The specification for merging the results.
    pub fn merge_spec(&self) -> MergeSpec {
        MergeSpec {
            identity: self.identity.clone(),
            time: Some(self.as_of),
            bar: self.newest_whole_bar().map(|(_, bar)| bar),
            select: self.plan.headings.clone(),
            kinds: self.plan.kinds(),
            points: self.plan.points.iter().map(|p| p.settings.clone()).collect(),
            best: self.plan.best.is_some(),
            descending: self.plan.rank.iter().map(|d| *d == Direction::Descending).collect(),
            limit: self.plan.limit,
        }
    }

    /// Rows that the answer has at most: one for each symbol and combination of a sweep that is kept.
    pub fn answer_rows(&self) -> u64 {
        rows_of(&self.plan, self.symbol_count())
    }

    /// Bytes that the answer takes in memory if every row matches, about.
    pub fn answer_bytes(&self) -> u64 {
        bytes_of(&self.plan, &self.dataset.manifest.symbols)
    }
}

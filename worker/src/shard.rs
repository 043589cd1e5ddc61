//! A shard: a request that was checked, with the scan that it belongs to.

use std::ops::Range;
use std::sync::Arc;

use trawl_kernels::cuda::Lowering;
use trawl_kernels::{BACKEND_CPU, Engine};
use trawl_market::{Adjustment, AsOf, ColumnCache, Dataset, MarketError, Reads, Store, now};
use trawl_plan::{ScanDocument, compile_scan};
use trawl_telemetry::metrics::catalogue::worker::DAMAGED_READS;
use trawl_wire::error::{other_plan, text_of};
use trawl_wire::limits::{DOCUMENT_BYTES_MAX, SEGMENTS_MAX, bounded_reason, speaks, spoken};
use trawl_wire::record::ExecutionClass;
use trawl_wire::{ErrorKind, Failure, SegmentResult, StepInputV1, envelope, pb};

use crate::cache::Source;
use crate::copy_check::CopyCheck;
use crate::executable::ExecutablePlan;
use crate::execute::{ExecuteError, ScanSource, ScanStep, StepKind};
use crate::prepared::{BAR_VALUE_BYTES, Prepared, PreparedScans};
use crate::snapshots::Snapshots;
use crate::{adjustment_of, adjustment_text, execution_class_on, lowering_of, precision_of};

/// A request whose input has at most so many bytes is read where it arrives: handing it to another thread would take longer.
const INPUT_BYTES_AT_ONCE: usize = 64 * 1024;

/// A validated request.
pub(crate) struct Shard {
    /// Shared by all shards of the scan.
    pub scan: Arc<Prepared>,
    pub step: ScanStep,
    pub input: StepInputV1,
    pub segments: Vec<u32>,
    /// Those of them whose files only an object store had when the shard arrived, ascending.
    away: Vec<u32>,
    /// Whether rows are replied as columns.
    pub columns_wanted: bool,
    /// Which of the one segment's symbols are wanted; all when `None`.
    pub part: Option<Range<usize>>,
}

pub(crate) fn invalid(message: impl Into<String>) -> Failure {
    Failure::new(ErrorKind::Invalid, bounded_reason(message.into()))
}

/// Whether checking a request of a scan that is prepared takes no time worth another thread.
pub(crate) fn is_small(request: &pb::ShardRequest) -> bool {
    request.input.as_ref().is_none_or(|input| input.payload.len() <= INPUT_BYTES_AT_ONCE)
}

/// What all shards of a worker share: the data, the engine, and the scans that are prepared.
#[derive(Debug)]
pub(crate) struct Scans {
    /// The worker's id.
    worker: String,
    store: Store,
    /// Bars in memory.
    pub cache: Arc<ColumnCache>,
    /// The engine, unless a scan requests the CPU.
    engine: Engine,
    pub snapshots: Snapshots,
    pub prepared: PreparedScans,
    copy_check: CopyCheck,
}

impl Scans {
    pub fn new(worker: String, store: Store, cache: Arc<ColumnCache>, engine: Engine) -> Self {
        Self {
            worker,
            store,
            cache,
            engine,
            snapshots: Snapshots::default(),
            prepared: PreparedScans::default(),
            copy_check: CopyCheck::default(),
        }
    }

    /// Checks a request. `known`: its scan, if that is prepared; otherwise this compiles its document, and blocks on the dataset's
    /// files.
    pub fn check(&self, request: pb::ShardRequest, known: Option<Arc<Prepared>>) -> Result<Shard, Failure> {
        if !speaks(request.protocol_version) {
            let asked = request.protocol_version;
            return Err(invalid(format!("protocol version {asked} was asked for, this worker speaks {}", spoken())));
        }
        if request.document_json.len() > DOCUMENT_BYTES_MAX || request.segments.len() > SEGMENTS_MAX {
            return Err(invalid("the document or the list of segments is too long"));
        }
        if request.segments.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(invalid("segments have to ascend"));
        }
        let first = request.part_first as usize;
        let part = (request.part_count > 0).then(|| first..first.saturating_add(request.part_count as usize));
        if part.is_some() && request.segments.len() != 1 {
            return Err(invalid("a part is of one segment"));
        }
        let scan = match known {
            Some(known) => known,
            None => self.prepared.prepared(&request, || self.prepare(&request))?,
        };
        let input = request.input.as_ref().map(envelope::decode_input).transpose().map_err(Failure::from)?;
        let kind = if request.times_only { StepKind::Times } else { StepKind::Values };
        self.snapshots.used(&request.dataset, &scan.source.dataset);
        let mut shard = Shard {
            scan,
            step: ScanStep { stage: request.stage as usize, kind },
            input: input.unwrap_or_default(),
            away: Vec::new(),
            segments: request.segments,
            columns_wanted: request.columns,
            part,
        };
        if shard.scan.source.dataset.is_in_objects() {
            let is_away = |segment: &u32| !shard.is_here(*segment, &shard.reads(*segment));
            shard.away = shard.segments.iter().copied().filter(is_away).collect();
        }
        Ok(shard)
    }

    /// The id of a dataset's newest snapshot.
    ///
    /// # Errors
    /// Those of [`Store::newest_snapshot`].
    pub fn newest_snapshot(&self, name: &str) -> Result<Option<String>, MarketError> {
        self.store.newest_snapshot(name)
    }

    /// The same scan over another snapshot of its dataset, as of the newest bar of that, as a coordinator would ask for it; `None` for a
    /// scan that named its snapshot or was as of an earlier bar.
    ///
    /// # Errors
    /// Those of a request, which a scan that comes will have too.
    pub fn expected(&self, last: &Prepared, snapshot: &str) -> Result<Option<Arc<Prepared>>, Failure> {
        let document = ScanDocument::from_json(&last.document)
            .map_err(|error| invalid(format!("the scan document cannot be read: {error}")))?;
        let unreadable = |error: MarketError| Failure::from(ExecuteError::from(error));
        let newest = |dataset: &Dataset| {
            let resolved = dataset.resolve_as_of(&AsOf::Newest, document.forming, now()).map_err(unreadable)?;
            Ok::<_, Failure>(resolved.map(|resolved| resolved.bar))
        };
        let before = &last.source.dataset;
        let is_pinned = document.dataset.as_deref().is_some_and(|name| name.contains('@'));
        if is_pinned || newest(before)? != Some(last.source.as_of) {
            return Ok(None);
        }
        let reference = format!("{}@{snapshot}", before.manifest.name);
        let dataset = self.snapshots.open(&self.store, &reference, &self.cache)?;
        let Some(as_of) = newest(&dataset)? else { return Ok(None) };
        let adjustment = adjustment_of(&document, &dataset.manifest, as_of).map_err(unreadable)?;
        let request = pb::ShardRequest {
            plan_fingerprint: last.key.plan.clone(),
            dataset: reference,
            as_of_us: as_of,
            adjustment: adjustment_text(adjustment),
            execution_class: last.key.class.clone(),
            document_json: last.document.clone(),
            ..Default::default()
        };
        self.prepared.prepared(&request, || self.prepare(&request)).map(Some)
    }

    /// Everything of a request that depends on its scan alone.
    fn prepare(&self, request: &pb::ShardRequest) -> Result<Prepared, Failure> {
        let document = ScanDocument::from_json(&request.document_json)
            .map_err(|error| invalid(format!("the scan document cannot be read: {error}")))?;
        // The requested class must agree with the document, otherwise they are not of one scan.
        let precision = precision_of(&document);
        let class = request.execution_class.clone().map(ExecutionClass::from);
        let processors = class.as_ref().is_some_and(|class| class.backend == BACKEND_CPU);
        let engine = if processors { Engine::Cpu } else { self.engine.clone() };
        let refused = |own: &ExecutionClass| {
            let asked = class.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
            invalid(format!("class '{asked}' was asked for, this worker's is '{own}' for this document"))
        };
        // Which one it is depends on the plan.
        let ways = [Lowering::Serial, Lowering::Chunks];
        let [own, other] = ways.map(|way| execution_class_on(&engine.clone().lowered(way), precision));
        if class.as_ref().is_none_or(|class| *class != own && *class != other) {
            return Err(refused(&own));
        }
        let dataset = self.snapshots.open(&self.store, &request.dataset, &self.cache)?;
        let unreadable = |error: MarketError| Failure::from(ExecuteError::from(error));
        let schema = crate::schema_of(&dataset, request.as_of_us).map_err(unreadable)?;
        let plan = compile_scan(&document, &schema).map_err(|mistakes| {
            let mistake = mistakes.first().map(ToString::to_string);
            invalid(mistake.unwrap_or_else(|| "the document does not compile".to_owned()))
        })?;
        let executable = ExecutablePlan::new(Arc::new(plan), precision);
        if executable.fingerprint() != request.plan_fingerprint {
            return Err(invalid(other_plan(&request.plan_fingerprint, executable.fingerprint())));
        }
        let engine = engine.lowered(lowering_of(executable.plan(), executable.precision(), &dataset.manifest).0);
        let own = execution_class_on(&engine, precision);
        if class.as_ref() != Some(&own) {
            return Err(refused(&own));
        }
        let adjustment = match request.adjustment.as_str() {
            "" => Adjustment::NONE,
            how => Adjustment::parse(how).map_err(unreadable)?,
        };
        let source = ScanSource {
            executable,
            dataset,
            as_of: request.as_of_us,
            adjustment,
            engine,
            checkpoints: None,
            every_value: false,
            features: None,
        };
        let dataset = source.dataset.clone();
        Ok(Prepared::new(request, source).inspect_err(|error| self.log_damage(&dataset, error))?)
    }

    /// Logs that a file in this worker's data root has changed since it was imported, which an operator has to repair, and
    /// checks the others.
    pub fn log_damage(&self, dataset: &Dataset, error: &ExecuteError) {
        if error.kind() == ErrorKind::Damaged {
            DAMAGED_READS.inc();
            tracing::warn!(
                worker = self.worker,
                error = text_of(error),
                "a file of this worker's data root is damaged; another copy is asked for"
            );
            self.copy_check.begin(&self.worker, dataset);
        }
    }
}

impl Shard {
    /// How many of the newest bars of each symbol this step reads of a segment; all if `None`.
    pub fn newest(&self, segment: u32) -> Option<u64> {
        self.scan.source.newest_bars_read(segment, self.step, &self.input)
    }

    /// What this step reads of a segment.
    pub fn reads(&self, segment: u32) -> Reads<'_> {
        let adjustment = &self.scan.source.adjustment;
        Reads { columns: &self.scan.columns, adjustment, newest: self.newest(segment) }
    }

    /// Whether the files with a segment's bars are on this machine.
    pub fn is_here(&self, segment: u32, reads: &Reads<'_>) -> bool {
        self.scan.source.dataset.is_here(segment, reads)
    }

    /// Whether a segment's bars are in memory.
    pub fn is_resident(&self, segment: u32, reads: &Reads<'_>) -> bool {
        self.scan.source.dataset.is_resident(segment, reads)
    }

    /// Where a segment's bars were when the shard arrived.
    pub fn source_of(&self, segment: u32, resident: bool) -> Source {
        if resident {
            Source::Memory
        } else if self.away.binary_search(&segment).is_ok() {
            Source::DataRoot
        } else {
            Source::Disk
        }
    }

    /// A result in the form that was asked for.
    pub fn encode(&self, result: SegmentResult) -> Result<pb::Envelope, trawl_wire::EnvelopeError> {
        if self.columns_wanted { envelope::seal_result(&result) } else { envelope::encode(&result.into_v2()?) }
    }

    /// Bytes of `bars` loaded bars.
    pub fn bytes_of(&self, bars: u64) -> u64 {
        bars * (self.scan.columns.len() as u64 + 1) * BAR_VALUE_BYTES
    }
}

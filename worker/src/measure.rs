//! Metrics of a worker's segments. Has no effect on them.

use std::time::Duration;

use trawl_kernels::cuda::{Executor, Fleet};
use trawl_kernels::stages::{EngineStage, Stages};
use trawl_telemetry::metrics::catalogue::worker::{
    BAR_BYTES, BARS, COMPUTE_TIME, DEVICE_COPIED, DEVICE_KERNELS, DEVICE_LAUNCHES_SAVED, DEVICE_PREFETCHED,
    DEVICE_PREFETCHED_READ, DEVICE_QUARANTINES, DEVICES, RunEnd, SEGMENT_DURATION, SEGMENTS_RUN, STAGE_TIME, SYMBOLS,
    StageName,
};
use trawl_telemetry::metrics::current_trace;
use trawl_wire::{ErrorKind, Failure, pb};

use crate::timeline::SegmentRecord;

/// Records the end of a segment, from its reply and its timings. Must be called inside the shard's span.
pub(crate) fn segment(reply: &pb::SegmentReply, record: &SegmentRecord, took: Duration) {
    let end = match &reply.outcome {
        Some(pb::segment_reply::Outcome::Result(_)) => RunEnd::Result,
        // Only a panic has no timings.
        _ if reply.timings.is_none() => RunEnd::Panicked,
        Some(pb::segment_reply::Outcome::Failure(failure)) => match Failure::from(failure.clone()).kind {
            ErrorKind::Cancelled => RunEnd::Cancelled,
            _ => RunEnd::Failed,
        },
        None => RunEnd::Failed,
    };
    SEGMENTS_RUN.of(end).inc();
    SEGMENT_DURATION.observe((), took, current_trace());
    stages(&record.stages);
    let Some(timings) = &reply.timings else { return };
    COMPUTE_TIME.add_time(Duration::from_micros(timings.compute_us));
    SYMBOLS.add(timings.symbols);
    BARS.add(timings.bars);
    BAR_BYTES.add(record.bytes);
}

/// Records the stages of a segment's threads or of a device's batch.
pub(crate) fn stages(stages: &Stages) {
    for span in stages.spans() {
        STAGE_TIME.of(named(span.stage)).add_time(span.ended.saturating_duration_since(span.started));
    }
    let launches = stages.launches();
    DEVICE_KERNELS.add(launches.kernels);
    DEVICE_LAUNCHES_SAVED.add(launches.saved());
}

/// Records the device, by its public id.
pub(crate) fn device(executor: &Executor) {
    let (facts, (mode, _)) = (executor.facts(), executor.memory_mode());
    let (major, minor) = facts.capability;
    // Drivers from before they said it.
    let known = trawl_telemetry::gpus();
    let named = known.get(facts.ordinal).map_or("", String::as_str);
    let uuid = if facts.uuid.is_empty() { named } else { &facts.uuid };
    DEVICES.add(&[uuid, &facts.name, &format!("{major}.{minor}"), mode.name()]);
}

/// Records what prefetching did since the last call.
pub(crate) fn prefetches(fleet: &Fleet) {
    let some = fleet.take_prefetches();
    DEVICE_PREFETCHED.add(some.brought_bytes);
    DEVICE_PREFETCHED_READ.add(some.read_bytes);
    DEVICE_COPIED.add(some.copied_bytes);
}

/// Records that the device is no longer used.
pub(crate) fn device_lost() {
    DEVICE_QUARANTINES.inc();
}

fn named(stage: EngineStage) -> StageName {
    match stage {
        EngineStage::Load => StageName::Load,
        EngineStage::HostToDevice => StageName::HostToDevice,
        EngineStage::Kernel => StageName::Kernel,
        EngineStage::DeviceToHost => StageName::DeviceToHost,
        EngineStage::Encode => StageName::Encode,
    }
}

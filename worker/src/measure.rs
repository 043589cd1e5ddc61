//! What a worker counts of its segments. It changes nothing about them.

use std::time::Duration;

use trawl_kernels::cuda::Facts as DeviceFacts;
use trawl_kernels::stages::{EngineStage, Stages};
use trawl_telemetry::metrics::catalogue::worker::{
    BAR_BYTES, BARS, COMPUTE_TIME, DEVICE_QUARANTINES, DEVICES, RunEnd, SEGMENT_DURATION, SEGMENTS_RUN, STAGE_TIME,
    SYMBOLS, StageName,
};
use trawl_telemetry::metrics::current_trace;
use trawl_wire::{ErrorKind, Failure, pb};

use crate::timeline::SegmentTold;

/// How bars come to a device: copied from pinned memory of the host.
const MEMORY_MODE: &str = "pinned";

/// A segment has ended, by its reply and by what was told of it on the way. Call it inside the shard's span.
pub(crate) fn segment(reply: &pb::SegmentReply, told: &SegmentTold, took: Duration) {
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
    stages(&told.stages);
    let Some(timings) = &reply.timings else { return };
    COMPUTE_TIME.add_time(Duration::from_micros(timings.compute_us));
    SYMBOLS.add(timings.symbols);
    BARS.add(timings.bars);
    BAR_BYTES.add(told.bytes);
}

/// What a segment's threads did, or a batch of a device.
pub(crate) fn stages(stages: &Stages) {
    for span in stages.spans() {
        STAGE_TIME.of(named(span.stage)).add_time(span.ended.saturating_duration_since(span.started));
    }
}

/// Which device computes, by the id that others know it by too.
pub(crate) fn device(facts: &DeviceFacts) {
    let (major, minor) = facts.capability;
    let known = trawl_telemetry::gpus();
    let uuid = known.get(facts.ordinal).map_or("", String::as_str);
    DEVICES.add(&[uuid, &facts.name, &format!("{major}.{minor}"), MEMORY_MODE]);
}

/// The device is used no more.
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

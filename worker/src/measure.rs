//! What a worker counts of its segments. It changes nothing about them.

use std::time::{Duration, Instant};

use trawl_protocol::{ErrorKind, Failure, pb};
use trawl_telemetry::metrics::catalogue::worker::{
    BAR_BYTES, BARS, COMPUTE_TIME, RunEnd, SEGMENT_DURATION, SEGMENTS_RUN, STAGE_TIME, SYMBOLS, StageName,
};
use trawl_telemetry::metrics::current_trace;

/// Bytes of a time or a value.
const VALUE_BYTES: u64 = 8;

/// A segment has ended; its bars have so many columns beside their times. Call it inside the shard's span.
pub(crate) fn segment(reply: &pb::SegmentReply, columns: usize, took: Duration) {
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
    let Some(timings) = &reply.timings else { return };
    let compute = Duration::from_micros(timings.compute_us);
    STAGE_TIME.of(StageName::Load).add_time(Duration::from_micros(timings.load_us));
    STAGE_TIME.of(StageName::Kernel).add_time(compute);
    COMPUTE_TIME.add_time(compute);
    SYMBOLS.add(timings.symbols);
    BARS.add(timings.bars);
    BAR_BYTES.add(timings.bars.saturating_mul(VALUE_BYTES).saturating_mul(columns as u64 + 1));
}

/// Runs the encoding of a result.
pub(crate) fn encoding<T>(encode: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let encoded = encode();
    STAGE_TIME.of(StageName::Encode).add_time(started.elapsed());
    encoded
}

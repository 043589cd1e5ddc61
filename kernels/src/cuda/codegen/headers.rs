//! The hand-written steps of `kernels/cuda`, embedded in the executable: NVRTC includes them from memory.

/// Name and text of the headers that kernels include, ordered so that each includes earlier ones only.
pub const HEADERS: [(&str, &str); 21] = [
    ("base.cuh", include_str!("../../../cuda/base.cuh")),
    ("run.cuh", include_str!("../../../cuda/run.cuh")),
    ("elementwise.cuh", include_str!("../../../cuda/elementwise.cuh")),
    ("math_tables.cuh", include_str!("../../../cuda/math_tables.cuh")),
    ("math.cuh", include_str!("../../../cuda/math.cuh")),
    ("angle.cuh", include_str!("../../../cuda/angle.cuh")),
    ("power.cuh", include_str!("../../../cuda/power.cuh")),
    ("window.cuh", include_str!("../../../cuda/window.cuh")),
    ("extremes.cuh", include_str!("../../../cuda/extremes.cuh")),
    ("joint.cuh", include_str!("../../../cuda/joint.cuh")),
    ("recurrence.cuh", include_str!("../../../cuda/recurrence.cuh")),
    ("events.cuh", include_str!("../../../cuda/events.cuh")),
    ("stops.cuh", include_str!("../../../cuda/stops.cuh")),
    ("anchored.cuh", include_str!("../../../cuda/anchored.cuh")),
    ("cycle.cuh", include_str!("../../../cuda/cycle.cuh")),
    ("trend.cuh", include_str!("../../../cuda/trend.cuh")),
    ("chunk_lanes.cuh", include_str!("../../../cuda/chunk_lanes.cuh")),
    ("chunked.cuh", include_str!("../../../cuda/chunked.cuh")),
    ("family.cuh", include_str!("../../../cuda/family.cuh")),
    ("lengths.cuh", include_str!("../../../cuda/lengths.cuh")),
    ("kernel.cuh", include_str!("../../../cuda/kernel.cuh")),
];

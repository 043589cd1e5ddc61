//! Runs segments of scans: as a function (embedded mode) and as a server that registers in etcd.
//!
//! A worker computes pure functions of (plan, snapshot, as-of, segment). It knows nothing of other workers, of the
//! other segments of a scan, or of the client.

#![forbid(unsafe_code)]

mod adjusting;
mod axis;
pub mod cache;
mod checkpoints;
mod copy_check;
pub mod data_root;
mod device_features;
mod device_health;
mod evaluate;
mod executable;
mod execute;
mod expected;
mod gathering;
mod measure;
mod piece;
pub mod prefetch;
mod prepared;
pub mod registration;
mod replies;
mod resuming;
mod schema;
pub mod scrub;
pub mod server;
mod service;
mod shard;
mod shard_on_device;
mod snapshots;
mod stage_run;
mod status;
pub mod timeline;
mod warm;
mod watchdog;

pub use adjusting::{adjustment_of, adjustment_text};
pub use axis::late_row;
pub use checkpoints::{Checkpoint, Checkpoints, OPEN_BARS, Outcome, STATE_BYTES_MAX, StateError};
pub use device_features::DeviceFeatures;
pub use executable::ExecutablePlan;
pub use execute::{
    BatchEvent, ExecuteError, Loaded, ManifestTimes, References, ScanSource, ScanStep, SegmentPanel, StepKind,
    StepOutput, reads_earlier_crosses,
};
pub use expected::EXPECTED_LOOK_INTERVAL;
pub use schema::{changing_name, schema_of};
pub use watchdog::STALL_TIMEOUT;

use trawl_kernels::cuda::Lowering;
use trawl_kernels::{Engine, Precision};
use trawl_market::Manifest;
use trawl_plan::{Plan, ScanDocument};
use trawl_wire::record::ExecutionClass;

/// The precision that a document asks for; the default for a value that the compiler rejects.
pub fn precision_of(document: &ScanDocument) -> Precision {
    document.precision.as_deref().and_then(Precision::named).unwrap_or_default()
}

/// The execution class of this build in the default precision, as registered by workers.
pub fn execution_class() -> ExecutionClass {
    execution_class_in(Precision::F64)
}

/// The execution class of this build in `precision` on the CPU. Every worker supports all of them, including workers
/// with a device.
pub fn execution_class_in(precision: Precision) -> ExecutionClass {
    execution_class_on(&Engine::Cpu, precision)
}

/// The lowering of a scan on a device, and the reason if it is not obvious. A function of plan, precision and snapshot.
pub fn lowering_of(plan: &Plan, precision: Precision, manifest: &Manifest) -> (Lowering, Option<String>) {
    let programs = plan.stages().iter().flat_map(|stage| &stage.pieces).map(|piece| &piece.program);
    let longest = manifest.symbols.iter().map(|symbol| symbol.rows).max().unwrap_or(0);
    Lowering::of_scan(programs, manifest.symbols.len() as u64, longest, precision)
}

/// The execution class of this build in `precision` on `engine`.
pub fn execution_class_on(engine: &Engine, precision: Precision) -> ExecutionClass {
    ExecutionClass {
        engine: trawl_wire::limits::ENGINE.to_owned(),
        numerics: engine.numerics(precision),
        backend: engine.backend().to_owned(),
        precision: precision.name().to_owned(),
    }
}

//! What a fleet gathers cross-sections with, and how it went so far.

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::cuda::execute::gather_queue::{GATHER_TIME_MAX, GatherQueue};

/// Least bytes of values for which devices gather: below it, the fixed time of a collective on every device (some 30 us) is
/// more than a copy of its own from each device takes. Modelled, not measured.
pub const GATHER_BYTES_MIN: u64 = 1 << 20;

/// How cross-sections are gathered by devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GatherOptions {
    /// Least bytes of values; smaller cross-sections are gathered by the host.
    pub bytes_min: u64,
    /// How long one gathering may take.
    pub time_max: Duration,
}

impl Default for GatherOptions {
    fn default() -> Self {
        Self { bytes_min: GATHER_BYTES_MIN, time_max: GATHER_TIME_MAX }
    }
}

/// How cross-sections were gathered so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gathers {
    /// By the devices.
    pub by_devices: u64,
    /// By the host, after the devices had failed to.
    pub by_host: u64,
}

/// Callback for a gathering that failed.
pub(super) type OnFailure = Box<dyn FnMut(&str) + Send>;

/// What a fleet gathers with.
pub(super) struct Gatherer {
    pub queue: GatherQueue,
    pub options: GatherOptions,
    pub by_devices: AtomicU64,
    pub by_host: AtomicU64,
    pub on_failure: Mutex<Option<OnFailure>>,
}

impl std::fmt::Debug for Gatherer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gatherer").field("queue", &self.queue).field("options", &self.options).finish_non_exhaustive()
    }
}

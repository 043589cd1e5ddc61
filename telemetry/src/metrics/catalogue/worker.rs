//! Metrics of a worker.

use std::sync::Mutex;

use crate::metrics::kinds::{Declared, Facts, Metric};
use crate::metrics::labels::label;
use crate::metrics::{Counter, Gauge, Histogram, Place, Unit};

label! {
    /// How a segment ended at a worker.
    pub enum RunEnd("outcome") {
        Result = "result",
        Failed = "failed",
        /// Its result was no longer needed.
        Cancelled = "cancelled",
        /// A bug in the program.
        Panicked = "panicked",
    }
}

label! {
    /// A stage of a segment in the engine, as in traces.
    pub enum StageName("stage") {
        Load = "load",
        HostToDevice = "h2d",
        Kernel = "kernel",
        DeviceToHost = "d2h",
        Encode = "encode",
    }
}

label! {
    /// Where bars are kept between scans.
    pub enum CacheLevel("level") {
        /// The process's memory.
        Memory = "memory",
        /// A device's memory.
        Device = "device",
        /// A disk of this machine, for files of a data root in an object store.
        Disk = "disk",
    }
}

label! {
    /// Why a worker refused a shard.
    pub enum ShardRefusal("reason") {
        Leaving = "leaving",
        Full = "full",
        /// From a leader that has been replaced.
        OldEpoch = "old_epoch",
        /// This worker cannot run it.
        Invalid = "invalid",
    }
}

label! {
    /// What a probe of a device found.
    pub enum DeviceFinding("finding") {
        /// Errors of memory that could not be corrected.
        MemoryError = "memory_error",
        /// A row of memory could not be replaced.
        RepairFailed = "repair_failed",
        /// NVML does not reach it.
        Unreachable = "unreachable",
        /// Its context answers every call with an error.
        StickyError = "sticky_error",
        /// An error that the driver logs.
        Xid = "xid",
        /// Rows or pages of memory are replaced at the next reset.
        RepairPending = "repair_pending",
        Throttled = "throttled",
    }
}

label! {
    /// Why a device's clocks are low.
    pub enum ThrottleReason("reason") {
        /// The limit of its power, as is usual under load.
        PowerCap = "power_cap",
        /// The driver lowers the clocks of a hot device.
        Thermal = "thermal",
        /// The hardware lowers the clocks of a device that is too hot.
        HotHardware = "hot_hardware",
        /// The power supply asks for less.
        PowerBrake = "power_brake",
        /// The hardware, for another reason.
        Slowdown = "slowdown",
    }
}

super::metrics! { Worker;
    /// Shards that were taken.
    SHARDS_STARTED: Counter = "trawl_worker_shards_started", None;
    /// Shards that ended; the difference to those taken is what runs or waits here.
    SHARDS_FINISHED: Counter = "trawl_worker_shards_ended", None;
    /// Shards that were turned down.
    SHARDS_REFUSED: Counter<ShardRefusal, { ShardRefusal::COUNT }> = "trawl_worker_shards_refused", None;
    /// Reads of bars that found a damaged file in this worker's data root.
    DAMAGED_READS: Counter = "trawl_worker_damaged_reads", None;
    /// Damaged or missing files of this worker's copies, found by the checks that follow a damaged read.
    DAMAGED_FILES: Gauge = "trawl_worker_damaged_files", None;
    /// Segments that were run.
    SEGMENTS_RUN: Counter<RunEnd, { RunEnd::COUNT }> = "trawl_segments_run", None;
    /// From the beginning of a segment to its encoded result.
    SEGMENT_DURATION: Histogram = "trawl_segment_duration_seconds", Seconds;
    /// Time that threads spent on evaluating plans, summed over threads.
    COMPUTE_TIME: Counter = "trawl_compute_seconds", Seconds;
    /// Time by stage, summed over segments.
    STAGE_TIME: Counter<StageName, { StageName::COUNT }> = "trawl_stage_seconds", Seconds;
    /// Symbols that were evaluated.
    SYMBOLS: Counter = "trawl_symbols_processed", None;
    /// Bars that were evaluated.
    BARS: Counter = "trawl_bars_processed", None;
    /// Bytes of those bars, in the columns that the plans read.
    BAR_BYTES: Counter = "trawl_bars_processed_bytes", Bytes;
    /// Groups of bars, or files of them on disk, that were where they were looked for.
    CACHE_HITS: Counter<CacheLevel, { CacheLevel::COUNT }> = "trawl_cache_hits", None;
    /// Groups of bars, or files of them on disk, that were not, and had to be fetched from the level below.
    CACHE_MISSES: Counter<CacheLevel, { CacheLevel::COUNT }> = "trawl_cache_misses", None;
    /// Bytes of bars that are kept.
    CACHE_RESIDENT: Gauge<CacheLevel, { CacheLevel::COUNT }> = "trawl_cache_resident_bytes", Bytes;
    /// Bytes of bars that may be kept.
    CACHE_BUDGET: Gauge<CacheLevel, { CacheLevel::COUNT }> = "trawl_cache_budget_bytes", Bytes;
    /// Bytes that were fetched from a data root in an object store.
    CACHE_FETCHED: Counter = "trawl_cache_fetched_bytes", Bytes;
    /// Time of these fetches, summed over threads.
    CACHE_FETCH_TIME: Counter = "trawl_cache_fetch_seconds", Seconds;
    /// Time of loads that had to wait for such files; the rest of the fetches was hidden behind computing.
    CACHE_WAIT_TIME: Counter = "trawl_cache_wait_seconds", Seconds;
    /// Files that were deleted from the disk to make room for others.
    CACHE_EVICTIONS: Counter = "trawl_cache_evictions", None;
    /// Files from a data root in an object store that were not as they were written, on disk or on arrival, and were fetched again.
    CACHE_DAMAGED: Counter = "trawl_cache_damaged_files", None;
    /// Calls of a data root in an object store that failed, and were tried again or given up.
    DATA_ROOT_FAILURES: Counter = "trawl_data_root_failures", None;
    /// Renewals of this worker's lease.
    LEASE_RENEWALS: Counter = "trawl_lease_renewals", None;
    /// Renewals that failed, and are tried again.
    LEASE_FAILURES: Counter = "trawl_lease_failures", None;
    /// Times that the lease had expired and the worker registered again.
    LEASES_LOST: Counter = "trawl_leases_lost", None;
    /// 1 while this worker is leaving.
    DRAINING: Gauge = "trawl_draining", None;
    /// Kernels that devices were given.
    DEVICE_KERNELS: Counter = "trawl_device_kernels", None;
    /// Launches of such kernels that were saved: several kernels launched by one call.
    DEVICE_LAUNCHES_SAVED: Counter = "trawl_device_launches_saved", None;
    /// Bytes of bars that requests copied to devices themselves, where they may stay.
    DEVICE_COPIED: Counter = "trawl_device_copied_bytes", Bytes;
    /// Bytes of bars that were brought to devices before a request asked for them.
    DEVICE_PREFETCHED: Counter = "trawl_device_prefetched_bytes", Bytes;
    /// Bytes of those that a request then read: its copies were hidden.
    DEVICE_PREFETCHED_READ: Counter = "trawl_device_prefetched_read_bytes", Bytes;
    /// Devices that were given up after an error.
    DEVICE_QUARANTINES: Counter = "trawl_device_quarantines", None;
    /// Times that the health of all devices was probed.
    DEVICE_PROBES: Counter = "trawl_device_probes", None;
    /// What these probes found that was not so before; an XID counts once by its number.
    DEVICE_FINDINGS: Counter<DeviceFinding, { DeviceFinding::COUNT }> = "trawl_device_findings", None;
    /// Time for which devices were seen with lowered clocks, summed over devices.
    DEVICE_THROTTLED: Counter<ThrottleReason, { ThrottleReason::COUNT }> = "trawl_device_throttled_seconds", Seconds;
    /// Devices that need a reset, so that rows or pages of their memory are replaced.
    DEVICES_WAITING: Gauge = "trawl_devices_waiting_for_reset", None;
}

/// The devices of this worker, by the id that NVIDIA's DCGM calls `UUID`.
pub static DEVICES: Facts = Facts {
    declared: Declared {
        name: "trawl_device",
        meaning: "A device of this worker; `gpu_uuid` is the `UUID` of NVIDIA's DCGM exporter.",
        unit: Unit::None,
        place: Place::Worker,
    },
    labels: &[("gpu_uuid", &[]), ("name", &[]), ("compute_capability", &[]), ("memory_mode", &[])],
    rows: Mutex::new(Vec::new()),
};

/// Metrics that the macro cannot declare.
pub(super) static MORE: &[&dyn Metric] = &[&DEVICES];

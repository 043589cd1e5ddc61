//! Scans, workers and coordinators as they are written as JSON, one object for each.

use schemars::JsonSchema;
use serde::Serialize;
use trawl_plan::suggest;
use trawl_wire::{Failure, pb};

/// The states of a scan.
pub const STATES: [pb::ScanState; 5] = [
    pb::ScanState::Queued,
    pb::ScanState::Running,
    pb::ScanState::Done,
    pb::ScanState::Failed,
    pb::ScanState::Cancelled,
];

/// A state by its name.
///
/// # Errors
/// The names.
pub fn parse_state(text: &str) -> Result<pb::ScanState, String> {
    let names = STATES.map(state_name);
    STATES.into_iter().find(|state| state_name(*state) == text).ok_or_else(|| {
        let near = suggest(text, names).map_or_else(String::new, |near| format!("; did you mean '{near}'?"));
        format!("one of {} is expected{near}", names.join(", "))
    })
}

/// The name of a state.
pub fn state_name(state: pb::ScanState) -> &'static str {
    match state {
        pb::ScanState::Unspecified => "unknown",
        pb::ScanState::Queued => "queued",
        pb::ScanState::Running => "running",
        pb::ScanState::Done => "done",
        pb::ScanState::Failed => "failed",
        pb::ScanState::Cancelled => "cancelled",
    }
}

fn priority_name(priority: pb::Priority) -> &'static str {
    match priority {
        pb::Priority::Normal => "normal",
        pb::Priority::Low => "low",
        pb::Priority::High => "high",
    }
}

/// One scan, as it is printed as JSON.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ScanLine<'a> {
    /// Its id.
    pub scan: &'a str,
    /// `queued`, `running`, `done`, `failed` or `cancelled`.
    pub state: &'a str,
    /// Who submitted it.
    pub owner: &'a str,
    /// Whether it is recorded.
    pub durable: bool,
    /// How often it was begun anew, after upgrades.
    pub generation: u32,
    /// `low`, `normal` or `high`.
    pub priority: &'a str,
    /// When, in UTC.
    pub submitted: String,
    /// When it ended, in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// `NAME@SNAPSHOT`.
    pub dataset: &'a str,
    /// Its condition, cut where it is long.
    pub condition: &'a str,
    /// 1-based; several where there are cross-sections.
    pub step: u32,
    /// Segments of each step.
    pub segments: u32,
    /// Those of the present step that have ended.
    pub segments_ended: u32,
    /// Why it ended without an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<FailureSchema>")]
    pub failure: Option<Failure>,
    /// 64 hex digits, of one that is done.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub answer_digest: &'a str,
    /// Symbols whose row says failed, of one that is done.
    #[serde(skip_serializing_if = "is_zero")]
    pub failed_symbols: u64,
    /// The class of workers that it waits for.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub waits_for: &'a str,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl<'a> ScanLine<'a> {
    /// That of a scan.
    pub fn of(info: &'a pb::ScanInfo) -> Self {
        Self {
            scan: &info.scan_id,
            state: state_name(info.state()),
            owner: &info.owner,
            durable: info.durable,
            generation: info.generation,
            priority: priority_name(info.priority()),
            submitted: instant(info.submitted_us),
            ended: info.ended_us.map(instant),
            dataset: &info.dataset,
            condition: &info.condition,
            step: info.step,
            segments: info.segments,
            segments_ended: info.segments_ended,
            failure: info.failure.clone().map(Failure::from),
            answer_digest: &info.answer_digest,
            failed_symbols: info.failed_symbols,
            waits_for: &info.waits_for,
        }
    }
}

/// A time to the second, in UTC.
pub fn instant(us: i64) -> String {
    const SECOND_US: i64 = 1_000_000;
    trawl_market::format_time(us - us.rem_euclid(SECOND_US))
}

/// One coordinator, as it is printed as JSON.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CoordinatorLine<'a> {
    coordinator: &'a str,
    leads: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<i64>,
    address: &'a str,
    boot: &'a str,
}

impl<'a> CoordinatorLine<'a> {
    /// That of a coordinator.
    pub fn of(found: &'a pb::CoordinatorInfo) -> Self {
        Self {
            coordinator: &found.id,
            leads: found.leads,
            epoch: found.leads.then_some(found.epoch),
            address: &found.address,
            boot: &found.boot,
        }
    }
}

/// One worker, as it is printed as JSON.
#[derive(Debug, Serialize, JsonSchema)]
pub struct WorkerLine<'a> {
    worker: &'a str,
    state: &'a str,
    address: &'a str,
    threads: u32,
    shards_in_flight: u32,
    class: &'a str,
    boot: &'a str,
    /// Bytes of bars that it keeps in memory at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_bytes: Option<u64>,
    /// What computes besides the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<DeviceLine<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    loads: Option<LoadsLine>,
}

/// The device of a worker.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DeviceLine<'a> {
    /// Such as `NVIDIA H200`.
    name: &'a str,
    /// Bytes of its memory that the worker may take.
    memory_bytes: u64,
    /// Its state, such as `healthy`.
    #[serde(skip_serializing_if = "str::is_empty")]
    health: &'a str,
}

/// Where the bars of a worker's segments were since it was started, and how much of the fetching computing hid.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LoadsLine {
    /// Segments whose bars were in memory.
    pub memory: u64,
    /// Segments whose bars were on a disk.
    pub disk: u64,
    /// Segments whose bars an object store had.
    pub data_root: u64,
    /// Seconds of fetching, summed over threads.
    pub fetch_s: f64,
    /// Seconds of loads that waited for it.
    pub wait_s: f64,
    /// Share of the fetching that computing hid, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<f64>,
}

impl LoadsLine {
    /// Those of a worker.
    pub fn of(loads: &pb::CacheLoads) -> Self {
        let seconds = |us: u64| us as f64 / 1e6;
        let (fetch_s, wait_s) = (seconds(loads.fetch_us), seconds(loads.wait_us));
        let hidden = (fetch_s > 0.0).then(|| (1.0 - wait_s / fetch_s).max(0.0));
        Self { memory: loads.memory, disk: loads.disk, data_root: loads.data_root, fetch_s, wait_s, hidden }
    }
}

impl<'a> WorkerLine<'a> {
    /// That of a worker.
    pub fn of(found: &'a pb::WorkerInfo) -> Self {
        Self {
            worker: &found.id,
            state: &found.state,
            address: &found.address,
            threads: found.threads,
            shards_in_flight: found.shards_in_flight,
            class: &found.execution_class,
            boot: &found.boot,
            cache_bytes: Some(found.cache_bytes).filter(|bytes| *bytes > 0),
            device: (!found.device.is_empty()).then(|| DeviceLine {
                name: &found.device,
                memory_bytes: found.device_memory_bytes,
                health: &found.device_health,
            }),
            loads: found.loads.as_ref().map(LoadsLine::of),
        }
    }
}

/// For the schema: a failure as it is written.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "its fields are the schema's")]
struct FailureSchema {
    /// `invalid`, `retryable`, `permanent`, `cancelled`, `poisoned`, `out_of_memory`, `deadline_exceeded` or `damaged`.
    kind: String,
    /// Why.
    message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_has_its_memory_and_its_device_if_it_has_one() {
        let mut worker = pb::WorkerInfo { id: "w".to_owned(), cache_bytes: 1 << 30, ..pb::WorkerInfo::default() };
        let plain = serde_json::to_value(WorkerLine::of(&worker)).unwrap();
        assert_eq!((plain["cache_bytes"].as_u64(), plain.get("device")), (Some(1 << 30), None));
        (worker.device, worker.device_memory_bytes) = ("NVIDIA H200".to_owned(), 7);
        let with = serde_json::to_value(WorkerLine::of(&worker)).unwrap();
        assert_eq!(with["device"], serde_json::json!({ "name": "NVIDIA H200", "memory_bytes": 7 }));
        worker.device_health = "healthy".to_owned();
        assert_eq!(serde_json::to_value(WorkerLine::of(&worker)).unwrap()["device"]["health"], "healthy");
        worker.cache_bytes = 0;
        assert!(serde_json::to_value(WorkerLine::of(&worker)).unwrap().get("cache_bytes").is_none(), "it is not known");
    }
}

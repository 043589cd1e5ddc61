//! What workers and the leading coordinator write about themselves into the control store, and where.

use serde::{Deserialize, Serialize};

use crate::limits::NAME_BYTES_MAX;
use crate::pb;

/// What pins the bits of an answer: all attempts of a scan run in one class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionClass {
    /// Program and version.
    pub engine: String,
    /// Changes whenever the same plan over the same bars could give other bits.
    pub numerics: String,
    /// `cpu`, `cuda`.
    pub backend: String,
    /// `f64`.
    pub precision: String,
}

impl From<ExecutionClass> for pb::ExecutionClass {
    fn from(c: ExecutionClass) -> Self {
        Self { engine: c.engine, numerics: c.numerics, backend: c.backend, precision: c.precision }
    }
}

impl From<pb::ExecutionClass> for ExecutionClass {
    fn from(c: pb::ExecutionClass) -> Self {
        Self { engine: c.engine, numerics: c.numerics, backend: c.backend, precision: c.precision }
    }
}

impl std::fmt::Display for ExecutionClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {} {}", self.engine, self.numerics, self.backend, self.precision)
    }
}

/// A worker's registration, JSON under [`worker_key`]. Unknown keys are ignored, so that newer workers can say more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRecord {
    /// Unique in the cluster.
    pub id: String,
    /// `IP:PORT` of its gRPC service.
    pub address: String,
    /// New at every start of the process: tells a restarted worker from the one before.
    pub boot: String,
    /// [`crate::limits::PROTOCOL_VERSION`] of its build.
    pub protocol_version: u32,
    /// [`crate::envelope::schema_fingerprint`] of the result type it sends, 16 hex digits.
    pub result_schema: String,
    /// What bits it gives.
    pub class: ExecutionClass,
    /// Threads that compute.
    pub threads: u32,
    /// Bytes of bars it keeps in memory at most.
    pub cache_bytes: u64,
    /// What computes, where that is not its processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceRecord>,
    /// Whether it is leaving: it finishes what it has and is to be given nothing more.
    #[serde(default)]
    pub draining: bool,
}

/// A device of a worker's, as it registers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRecord {
    /// Such as `NVIDIA H200`.
    pub name: String,
    /// Bytes of its memory that the worker may take.
    pub memory_bytes: u64,
}

/// What the coordinator that leads says about itself, JSON under [`leader_key`]. The store's revision when the key was
/// created is the epoch of its reign. Unknown keys are ignored, so that newer coordinators can say more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderRecord {
    /// Unique in the cluster.
    pub id: String,
    /// New at every start of the process.
    pub boot: String,
    /// `HOST:PORT` of its gRPC service, as clients and other coordinators reach it.
    pub address: String,
    /// [`crate::limits::PROTOCOL_VERSION`] of its build.
    pub protocol_version: u32,
    /// Counts the campaigns of this life of the process: with `boot` it tells whose write stands under the key, also from an
    /// earlier one of the same process.
    pub campaign: u64,
}

/// A new id for a process's life, 16 hex digits: random, and mixed with the time and the process's number.
pub fn fresh_boot() -> String {
    use std::hash::{BuildHasher as _, Hasher as _, RandomState};
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    hasher.write_u128(since.as_nanos());
    format!("{:016x}", hasher.finish())
}

/// Prefix of all coordinators of a cluster.
pub fn coordinators_prefix(cluster_name: &str) -> String {
    format!("{cluster_name}/coordinators/")
}

/// Prefix of all workers of a cluster.
pub fn workers_prefix(cluster_name: &str) -> String {
    format!("{cluster_name}/workers/")
}

/// Key of one worker.
pub fn worker_key(cluster_name: &str, id: &str) -> String {
    format!("{}{id}", workers_prefix(cluster_name))
}

/// Key of the coordinator that leads.
pub fn leader_key(cluster_name: &str) -> String {
    format!("{cluster_name}/leader")
}

/// A cluster's name or a worker's id: letters, digits, `-`, `_`, `.`; it becomes part of a key.
///
/// # Errors
/// A sentence that says what is expected.
pub fn checked_name(name: &str) -> Result<String, String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(legal) {
        return Err(format!("expected 1 to {NAME_BYTES_MAX} letters, digits, '-', '_' or '.'"));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_key() {
        assert!(checked_name("trawl-test_1.a").is_ok());
        for bad in ["", "a/b", "a b", "é", &"x".repeat(65)] {
            assert!(checked_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_record_with_unknown_keys_is_read() {
        let record = WorkerRecord {
            id: "w1".into(),
            address: "127.0.0.1:1".into(),
            boot: "b".into(),
            protocol_version: 1,
            result_schema: "00".into(),
            class: ExecutionClass {
                engine: "e".into(),
                numerics: "n".into(),
                backend: "cpu".into(),
                precision: "f64".into(),
            },
            threads: 2,
            cache_bytes: 3,
            device: Some(DeviceRecord { name: "d".into(), memory_bytes: 4 }),
            draining: false,
        };
        let mut json = serde_json::to_value(&record).unwrap();
        json["later"] = 1.into();
        assert_eq!(serde_json::from_value::<WorkerRecord>(json).unwrap(), record);
    }
}

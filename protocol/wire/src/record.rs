//! Records that workers and the leading coordinator write about themselves into the control store, and their keys.

use serde::{Deserialize, Serialize};

use crate::limits::{NAME_BYTES_MAX, PROTOCOL_VERSION, PROTOCOL_VERSION_OLDEST};
use crate::pb;

/// Everything that determines the bits of an answer: all attempts of a scan run in one class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionClass {
    /// Program and version.
    pub engine: String,
    /// Changes whenever the same plan over the same bars could give other bits.
    pub numerics: String,
    /// Backend: `cpu`, `cuda`.
    pub backend: String,
    /// Precision: `f64`.
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

/// A worker's registration, JSON under [`worker_key`]. Unknown keys are ignored, so that newer workers can add fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRecord {
    /// Unique in the cluster.
    pub id: String,
    /// `IP:PORT` of its gRPC service.
    pub address: String,
    /// New at every start of the process: distinguishes a restarted worker from its predecessor.
    pub boot: String,
    /// [`crate::limits::PROTOCOL_VERSION`] of its build.
    pub protocol_version: u32,
    /// [`crate::limits::PROTOCOL_VERSION_OLDEST`] of its build; 0 in records of 0.1.0, see [`WorkerRecord::common_protocol`].
    #[serde(default)]
    pub protocol_oldest: u32,
    /// [`crate::envelope::schema_fingerprint`] of the result type it sends, 16 hex digits.
    pub result_schema: String,
    /// The same of the result types that it sends to coordinators of earlier protocols.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub result_schemas_earlier: Vec<String>,
    /// Its execution class.
    pub class: ExecutionClass,
    /// Number of computing threads.
    pub threads: u32,
    /// Maximum bytes of bars that it keeps in memory.
    pub cache_bytes: u64,
    /// The device that computes; `None` if it is the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceRecord>,
    /// Whether it is leaving: it finishes its shards and must not receive more.
    #[serde(default)]
    pub draining: bool,
}

impl WorkerRecord {
    /// The newest protocol that this build and the worker speak: also with a worker of a later release, which still
    /// speaks this build's.
    pub fn common_protocol(&self) -> Option<u32> {
        let oldest = if self.protocol_oldest == 0 { self.protocol_version } else { self.protocol_oldest };
        let common = self.protocol_version.min(PROTOCOL_VERSION);
        (common >= oldest.max(PROTOCOL_VERSION_OLDEST)).then_some(common)
    }
}

/// The devices of a worker, as registered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRecord {
    /// Name, such as `NVIDIA H200`, or `2 x NVIDIA H200`.
    pub name: String,
    /// Bytes of their memory that the worker may take.
    pub memory_bytes: u64,
    /// How many there are. Workers from before it was reported have one.
    #[serde(default = "one")]
    pub count: u32,
    /// How many multiprocessors they have together: few, if they are slices of a GPU. 0 if it is not known.
    #[serde(default)]
    pub multiprocessors: u32,
    /// Whether one of them has few units of `f64` beside those of `f32`, as cards for inference and graphics have: the slowest counts,
    /// since segments are divided evenly.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_few_f64_units: bool,
    /// Their state in one line, such as `healthy`; empty while it is not known. It may change while the worker is registered.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub health: String,
}

fn one() -> u32 {
    1
}

/// The record of the leading coordinator, JSON under [`leader_key`]. The create revision of the key is the epoch of its
/// term. Unknown keys are ignored, so that newer coordinators can add fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderRecord {
    /// Unique in the cluster.
    pub id: String,
    /// New at every start of the process.
    pub boot: String,
    /// `HOST:PORT` of its gRPC service, under which clients and other coordinators reach it.
    pub address: String,
    /// [`crate::limits::PROTOCOL_VERSION`] of its build.
    pub protocol_version: u32,
    /// Number of the campaign since the process started. Together with `boot` it identifies the write under the key,
    /// also among those of the same process.
    pub campaign: u64,
}

/// A new boot id, 16 hex digits: random, and mixed with the time and the process's number.
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

/// Key of the leading coordinator.
pub fn leader_key(cluster_name: &str) -> String {
    format!("{cluster_name}/leader")
}

/// Validates a cluster's name or a worker's id: letters, digits, `-`, `_`, `.`; it becomes part of a key.
///
/// # Errors
/// A sentence stating what is expected.
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
            protocol_oldest: 1,
            result_schema: "00".into(),
            result_schemas_earlier: Vec::new(),
            class: ExecutionClass {
                engine: "e".into(),
                numerics: "n".into(),
                backend: "cpu".into(),
                precision: "f64".into(),
            },
            threads: 2,
            cache_bytes: 3,
            device: Some(DeviceRecord {
                name: "d".into(),
                memory_bytes: 4,
                count: 2,
                multiprocessors: 264,
                has_few_f64_units: true,
                health: String::new(),
            }),
            draining: false,
        };
        let mut json = serde_json::to_value(&record).unwrap();
        json["later"] = 1.into();
        assert_eq!(serde_json::from_value::<WorkerRecord>(json).unwrap(), record);

        let speaks = |oldest, version| {
            WorkerRecord { protocol_oldest: oldest, protocol_version: version, ..record.clone() }.common_protocol()
        };
        assert_eq!(speaks(0, PROTOCOL_VERSION), Some(PROTOCOL_VERSION));
        assert_eq!(speaks(0, PROTOCOL_VERSION_OLDEST), Some(PROTOCOL_VERSION_OLDEST));
        assert_eq!(speaks(PROTOCOL_VERSION, PROTOCOL_VERSION + 1), Some(PROTOCOL_VERSION), "of the next release");
        assert_eq!(speaks(PROTOCOL_VERSION + 1, PROTOCOL_VERSION + 2), None);
        assert_eq!(speaks(0, PROTOCOL_VERSION + 1), None, "it does not say so");
        assert_eq!(speaks(0, PROTOCOL_VERSION_OLDEST - 1), None);
    }
}

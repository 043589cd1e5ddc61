//! The records of a scan in the control store: header, progress, end, and the tombstone that marks it for deletion.
//!
//! Each is JSON with a version. Unknown keys are ignored, so that fields can be added; an unknown version is rejected,
//! since ignoring its content could lose a scan. Golden pairs are in `records_tests.rs`.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use trawl_terms::Priority;
use trawl_wire::limits::NAME_BYTES_MAX;
use trawl_wire::record::{ExecutionClass, checked_name};
use trawl_wire::{ErrorKind, Failure, pb};

use crate::planner::ShardSpec;

/// Version of every record that this build writes.
pub const RECORD_VERSION: u32 = 1;
/// Maximum bytes of a header in the control store.
pub const HEADER_BYTES_MAX: usize = 64 * 1024;
/// Maximum bytes of a document stored in the header itself; a longer one is an object in the result store. Earlier
/// releases stored up to 16 KiB there, and those headers are still read.
pub const INLINE_DOCUMENT_BYTES_MAX: usize = 2 * 1024;
/// Maximum number of segments in the bitmap of a progress record; for a larger scan only the count is stored.
pub const PROGRESS_SEGMENTS_MAX: u32 = 128 * 1024;
/// Maximum bytes of any record that is read.
const RECORD_BYTES_MAX: usize = 128 * 1024;

/// Why a record was not written, or was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Written by a newer program.
    #[error(
        "the {what} of scan '{scan}' has version {found}, this program reads up to {RECORD_VERSION}: a newer one wrote it"
    )]
    Version {
        /// Name of the record, [`Record::WHAT`].
        what: &'static str,
        /// Id of the scan.
        scan: String,
        /// Version in the record.
        found: u32,
    },
    /// Not JSON, or not of this shape.
    #[error("the {what} of scan '{scan}' cannot be read: {why}")]
    Malformed {
        /// Name of the record, [`Record::WHAT`].
        what: &'static str,
        /// Id of the scan.
        scan: String,
        /// The parser's error.
        why: String,
    },
    /// Beyond its bound.
    #[error("the {what} of scan '{scan}' has {found} bytes, at most {limit} are kept in the control store")]
    TooLarge {
        /// Name of the record, [`Record::WHAT`].
        what: &'static str,
        /// Id of the scan.
        scan: String,
        /// Bytes of the record.
        found: usize,
        /// Maximum bytes, [`Record::BYTES_MAX`].
        limit: usize,
    },
}

/// A record with its name in messages.
pub trait Record: Serialize + DeserializeOwned {
    /// `header`, `end`, ...
    const WHAT: &'static str;
    /// Maximum bytes of the record.
    const BYTES_MAX: usize = RECORD_BYTES_MAX;

    /// Serialises the record.
    ///
    /// # Errors
    /// [`RecordError::TooLarge`], [`RecordError::Malformed`].
    fn to_bytes(&self, scan: &str) -> Result<Vec<u8>, RecordError> {
        let what = Self::WHAT;
        let malformed =
            |e: serde_json::Error| RecordError::Malformed { what, scan: scan.to_owned(), why: e.to_string() };
        let mut json = serde_json::to_value(self).map_err(malformed)?;
        if let Some(fields) = json.as_object_mut() {
            fields.insert("version".to_owned(), RECORD_VERSION.into());
        }
        let bytes = serde_json::to_vec(&json).map_err(malformed)?;
        if bytes.len() > Self::BYTES_MAX {
            let (found, limit) = (bytes.len(), Self::BYTES_MAX);
            return Err(RecordError::TooLarge { what, scan: scan.to_owned(), found, limit });
        }
        Ok(bytes)
    }

    /// Reads what [`Record::to_bytes`] wrote, in this version.
    ///
    /// # Errors
    /// [`RecordError`]; the version is checked first.
    fn from_bytes(scan: &str, bytes: &[u8]) -> Result<Self, RecordError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let (what, scan) = (Self::WHAT, scan.to_owned());
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(RecordError::TooLarge { what, scan, found: bytes.len(), limit: RECORD_BYTES_MAX });
        }
        let malformed = |e: serde_json::Error| RecordError::Malformed { what, scan: scan.clone(), why: e.to_string() };
        let Versioned { version } = serde_json::from_slice(bytes).map_err(malformed)?;
        if version != RECORD_VERSION {
            return Err(RecordError::Version { what, scan, found: version });
        }
        serde_json::from_slice(bytes).map_err(malformed)
    }
}

/// Where a scan's document is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DocumentPlace {
    /// Canonical JSON, at most [`INLINE_DOCUMENT_BYTES_MAX`].
    Inline(String),
    /// The object `document` of the scan in the result store.
    Object {
        /// SHA-256 of the canonical JSON, 64 hex digits.
        sha256: String,
        /// Its length in bytes.
        bytes: u64,
    },
}

impl DocumentPlace {
    /// The place of a document with this JSON. An object must be stored before the header is recorded.
    pub fn of(json: &str) -> Self {
        if json.len() <= INLINE_DOCUMENT_BYTES_MAX {
            return Self::Inline(json.to_owned());
        }
        Self::Object { sha256: sha256_hex(json.as_bytes()), bytes: json.len() as u64 }
    }
}

/// A client's idempotency key: sending a request twice makes one scan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestMark {
    /// SHA-256 of owner and key, 64 hex digits: the place of the record, which does not reveal the key.
    pub slot: String,
    /// SHA-256 of the content of the request, 64 hex digits.
    pub digest: String,
}

impl RequestMark {
    /// The mark of `key` as `owner` uses it, for a request that is described by `parts`.
    pub fn new(owner: &str, key: &str, parts: &[&[u8]]) -> Self {
        let hash = |parts: &[&[u8]]| {
            let mut hasher = Sha256::new();
            for part in parts {
                // Lengths keep ("ab", "c") apart from ("a", "bc").
                hasher.update((part.len() as u64).to_le_bytes());
                hasher.update(part);
            }
            hex::encode(hasher.finalize())
        };
        Self { slot: hash(&[owner.as_bytes(), key.as_bytes()]), digest: hash(parts) }
    }
}

/// The requested cut of a scan into shards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shards {
    /// [`ShardSpec::Automatic`].
    #[default]
    Automatic,
    /// [`ShardSpec::Count`].
    Count(u32),
    /// [`ShardSpec::PerSegment`].
    PerSegment,
}

impl From<ShardSpec> for Shards {
    fn from(spec: ShardSpec) -> Self {
        match spec {
            ShardSpec::Automatic => Self::Automatic,
            ShardSpec::Count(count) => Self::Count(count),
            ShardSpec::PerSegment => Self::PerSegment,
        }
    }
}

impl From<Shards> for ShardSpec {
    fn from(shards: Shards) -> Self {
        match shards {
            Shards::Automatic => Self::Automatic,
            Shards::Count(count) => Self::Count(count),
            Shards::PerSegment => Self::PerSegment,
        }
    }
}

/// A scan's priority.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// [`Priority::Low`].
    Low,
    /// [`Priority::Normal`].
    #[default]
    Normal,
    /// [`Priority::High`].
    High,
}

impl From<Priority> for Level {
    fn from(priority: Priority) -> Self {
        match priority {
            Priority::Low => Self::Low,
            Priority::Normal => Self::Normal,
            Priority::High => Self::High,
        }
    }
}

impl From<Level> for Priority {
    fn from(level: Level) -> Self {
        match level {
            Level::Low => Self::Low,
            Level::Normal => Self::Normal,
            Level::High => Self::High,
        }
    }
}

/// The trace context of a scan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRecord {
    /// W3C `traceparent`.
    pub traceparent: String,
    /// W3C `tracestate`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tracestate: String,
}

impl From<pb::TraceContext> for TraceRecord {
    fn from(trace: pb::TraceContext) -> Self {
        Self { traceparent: trace.traceparent, tracestate: trace.tracestate }
    }
}

impl From<TraceRecord> for pb::TraceContext {
    fn from(trace: TraceRecord) -> Self {
        Self { traceparent: trace.traceparent, tracestate: trace.tracestate }
    }
}

/// Everything that a coordinator needs to run a scan from scratch. Written when the scan is accepted, and rewritten for
/// each generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Its id.
    pub scan: String,
    /// 0 at first; incremented each time the scan restarts in another class.
    pub generation: u32,
    /// Who submitted it: the identity of the caller.
    pub owner: String,
    /// The scan document.
    pub document: DocumentPlace,
    /// `NAME@SNAPSHOT`, the snapshot in full.
    pub dataset: String,
    /// Microseconds since 1970, resolved to a bar's time.
    pub as_of_us: i64,
    /// Corrections of prices, as in the answer's identity.
    pub adjustment: String,
    /// Execution class of all attempts of this generation.
    pub class: ExecutionClass,
    /// Whether workers of that class served when it was chosen. Otherwise the class is only this coordinator's own, and
    /// another may be chosen as soon as workers serve.
    #[serde(default = "placed", skip_serializing_if = "is_placed")]
    pub placed: bool,
    /// The only backend to take, if the user names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Fingerprint of the compiled plan.
    pub plan: String,
    /// Number of segments.
    pub segments: u32,
    /// Number of symbols.
    pub symbols: u64,
    /// The requested cut into shards.
    #[serde(default)]
    pub shards: Shards,
    /// Share of the workers' time.
    #[serde(default)]
    pub priority: Level,
    /// Microseconds since 1970.
    pub submitted_us: i64,
    /// Microseconds since 1970; no limit when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_us: Option<i64>,
    /// Whether an answer without some symbols is acceptable.
    #[serde(default)]
    pub allow_partial: bool,
    /// The client's idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestMark>,
    /// The trace it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceRecord>,
}

/// Headers of earlier releases are of scans whose class was chosen at once.
fn placed() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref)] // Serde's signature.
fn is_placed(placed: &bool) -> bool {
    *placed
}

impl Record for Header {
    const WHAT: &'static str = "header";
    const BYTES_MAX: usize = HEADER_BYTES_MAX;
}

/// Which part of a scan's current stage is in the result store. A hint for people and standbys; the objects are
/// authoritative.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Generation of the scan.
    pub generation: u32,
    /// Which pass over the segments, from 0.
    pub stage: u32,
    /// How many segments are stored.
    pub stored: u32,
    /// Bit i of byte i/8 (lowest first), in hex: segment i is stored. Empty beyond [`PROGRESS_SEGMENTS_MAX`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bitmap: String,
}

impl Record for Progress {
    const WHAT: &'static str = "progress";
}

impl Progress {
    /// The progress with `stored` segments.
    pub fn new(generation: u32, stage: u32, stored: &std::collections::BTreeSet<u32>) -> Self {
        let count = u32::try_from(stored.len()).unwrap_or(u32::MAX);
        let mut bits = Vec::new();
        if let Some(&last) = stored.last().filter(|last| **last < PROGRESS_SEGMENTS_MAX) {
            bits = vec![0u8; last as usize / 8 + 1];
            for segment in stored {
                if let Some(byte) = bits.get_mut(*segment as usize / 8) {
                    *byte |= 1 << (segment % 8);
                }
            }
        }
        Self { generation, stage, stored: count, bitmap: hex::encode(bits) }
    }

    /// The segments whose bit is set; none for a bitmap that is left out or damaged.
    pub fn segments(&self) -> Vec<u32> {
        let digits = self.bitmap.as_bytes().chunks(2);
        let bytes = digits.map(|pair| std::str::from_utf8(pair).ok().and_then(|p| u8::from_str_radix(p, 16).ok()));
        let Some(bytes) = bytes.collect::<Option<Vec<u8>>>() else { return Vec::new() };
        let set =
            (0u32..).zip(bytes).flat_map(|(at, byte)| (0..8).map(move |bit| (at * 8 + bit, byte >> bit & 1 == 1)));
        set.filter_map(|(segment, is_set)| is_set.then_some(segment)).collect()
    }
}

/// How a scan ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndOutcome {
    /// It has an answer.
    Complete {
        /// Digest of the answer, 64 hex digits.
        answer_digest: String,
        /// Number of symbols with status `failed`.
        failed_symbols: u64,
        /// Whether two workers returned different results and it could not be settled which is right.
        #[serde(default)]
        disputed: bool,
    },
    /// It has no answer.
    Failed {
        /// What a client may do about it.
        kind: ErrorKind,
        /// Lower case, without a full stop.
        message: String,
    },
    /// It was cancelled.
    Cancelled,
}

impl From<Failure> for EndOutcome {
    fn from(failure: Failure) -> Self {
        match failure.kind {
            ErrorKind::Cancelled => Self::Cancelled,
            kind => Self::Failed { kind, message: trawl_wire::limits::bounded_reason(failure.message) },
        }
    }
}

/// The end of a scan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Generation that ended.
    pub generation: u32,
    /// How it ended.
    pub outcome: EndOutcome,
    /// Microseconds since 1970.
    pub ended_us: i64,
}

impl Record for End {
    const WHAT: &'static str = "end";
}

/// A scan that has ended, under one key: it replaces the header in the transaction that ends the scan, so that headers
/// exist for open scans only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    /// The header, without its trace.
    pub header: Header,
    /// Its end.
    pub end: End,
}

impl Record for Closed {
    const WHAT: &'static str = "closed record";
}

/// Marks a scan whose objects are going to be deleted. Never removed before the deletion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// Epoch of the leader that will delete; another leader writes a new tombstone and waits again.
    pub epoch: i64,
    /// Microseconds since 1970.
    pub marked_us: i64,
}

impl Record for Tombstone {
    const WHAT: &'static str = "tombstone";
}

/// The record of a client's idempotency key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// The scan that it became.
    pub scan: String,
    /// [`RequestMark::digest`].
    pub digest: String,
}

impl Record for RequestRecord {
    const WHAT: &'static str = "request";
}

/// The keys of a cluster's scans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    /// `{cluster}/scans/`.
    scans: String,
    /// `{cluster}/ended/`.
    ended: String,
    /// `{cluster}/requests/`.
    requests: String,
}

/// The kind of a key under `{cluster}/scans/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// A scan that was accepted.
    Header,
    /// Which of its segments are done.
    Progress,
    /// How it ended.
    End,
    /// Its objects are going to be deleted.
    Tombstone,
}

impl KeyKind {
    /// All variants.
    pub const ALL: [Self; 4] = [Self::Header, Self::Progress, Self::End, Self::Tombstone];

    /// The last component of the key.
    pub fn name(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Progress => "progress",
            Self::End => "end",
            Self::Tombstone => "tombstone",
        }
    }
}

impl Keys {
    /// The keys of a cluster whose name has been validated.
    pub fn new(cluster_name: &str) -> Self {
        let under = |what: &str| format!("{cluster_name}/{what}/");
        Self { scans: under("scans"), ended: under("ended"), requests: under("requests") }
    }

    /// Prefix of open scans, tombstones, and records that earlier releases left of ended scans.
    pub fn scans(&self) -> &str {
        &self.scans
    }

    /// Prefix of the scans that have ended.
    pub fn all_ended(&self) -> &str {
        &self.ended
    }

    /// Key of a scan that has ended.
    pub fn ended(&self, scan: &str) -> String {
        format!("{}{scan}", self.ended)
    }

    /// Scan of a key under [`Keys::all_ended`]; `None` for any other key.
    pub fn parse_ended<'k>(&self, key: &'k str) -> Option<&'k str> {
        key.strip_prefix(&self.ended).filter(|scan| is_scan_id(scan))
    }

    /// Prefix of one scan.
    pub fn scan(&self, scan: &str) -> String {
        format!("{}{scan}/", self.scans)
    }

    /// Key of a part of a scan.
    pub fn part(&self, scan: &str, part: KeyKind) -> String {
        format!("{}{scan}/{}", self.scans, part.name())
    }

    /// Key of the record of an idempotency key.
    pub fn request(&self, slot: &str) -> String {
        format!("{}{slot}", self.requests)
    }

    /// Scan and part of a key under [`Keys::scans`]; `None` for any other key.
    pub fn parse<'k>(&self, key: &'k str) -> Option<(&'k str, KeyKind)> {
        let (scan, part) = key.strip_prefix(&self.scans)?.split_once('/')?;
        let part = KeyKind::ALL.into_iter().find(|p| p.name() == part)?;
        is_scan_id(scan).then_some((scan, part))
    }
}

/// Whether a text may be a scan's id: it becomes part of keys and of objects' paths.
pub fn is_scan_id(text: &str) -> bool {
    text.len() <= NAME_BYTES_MAX && !text.starts_with('.') && checked_name(text).is_ok()
}

/// Lower-case hex of a SHA-256.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;

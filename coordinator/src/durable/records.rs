//! What stands in the control store about a scan: its header, its progress, its end, and what marks it for deletion.
//!
//! JSON with a version each. Keys that a reader does not know are ignored, so that a newer version may say more; a version
//! it does not know is refused, since leaving out what it says could lose a scan. Golden pairs are in `records_tests.rs`.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use trawl_wire::digest::to_hex;
use trawl_wire::limits::NAME_BYTES_MAX;
use trawl_wire::record::{ExecutionClass, checked_name};
use trawl_wire::{ErrorKind, Failure, pb};

use crate::planner::ShardSpec;
use crate::scheduler::Priority;

/// Version of every record that this build writes.
pub const RECORD_VERSION: u32 = 1;
/// Bytes of a header in the control store.
pub const HEADER_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a document that is written into the header itself; a longer one is an object in the result store. Releases
/// before wrote up to 16 KiB there, and those headers are read.
pub const INLINE_DOCUMENT_BYTES_MAX: usize = 2 * 1024;
/// Segments whose bits are written down in a progress record; of a larger scan it holds the count alone.
pub const PROGRESS_SEGMENTS_MAX: u32 = 128 * 1024;
/// Bytes of any record that is read.
const RECORD_BYTES_MAX: usize = 128 * 1024;

/// Why a record is not written or not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Written by a newer program.
    #[error(
        "the {what} of scan '{scan}' has version {found}, this program reads up to {RECORD_VERSION}: a newer one wrote it"
    )]
    Version { what: &'static str, scan: String, found: u32 },
    /// Not JSON, or not of this shape.
    #[error("the {what} of scan '{scan}' cannot be read: {why}")]
    Malformed { what: &'static str, scan: String, why: String },
    /// Beyond its bound.
    #[error("the {what} of scan '{scan}' has {found} bytes, at most {limit} are kept in the control store")]
    TooLarge { what: &'static str, scan: String, found: usize, limit: usize },
}

/// A record with its name in messages.
pub trait Record: Serialize + DeserializeOwned {
    /// `header`, `end`, ...
    const WHAT: &'static str;
    /// Bytes at most.
    const BYTES_MAX: usize = RECORD_BYTES_MAX;

    /// As it is stored.
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
    /// [`RecordError`]; the version is looked at first.
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

/// Where a scan's document is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DocumentPlace {
    /// Canonical JSON, at most [`INLINE_DOCUMENT_BYTES_MAX`].
    Inline(String),
    /// The object `document` of the scan in the result store.
    Object {
        /// SHA-256 of the canonical JSON, 64 hex digits.
        sha256: String,
        /// Its length.
        bytes: u64,
    },
}

impl DocumentPlace {
    /// Where a document of this JSON goes. The object is to be put before the header is recorded.
    pub fn of(json: &str) -> Self {
        if json.len() <= INLINE_DOCUMENT_BYTES_MAX {
            return Self::Inline(json.to_owned());
        }
        Self::Object { sha256: sha256_hex(json.as_bytes()), bytes: json.len() as u64 }
    }
}

/// A client's own name for a request, so that sending it twice makes one scan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestMark {
    /// SHA-256 of owner and key, 64 hex digits: the key's place, which tells nobody the key.
    pub slot: String,
    /// SHA-256 of everything that makes the request what it is, 64 hex digits.
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
            to_hex(&hasher.finalize())
        };
        Self { slot: hash(&[owner.as_bytes(), key.as_bytes()]), digest: hash(parts) }
    }
}

/// How a scan was asked to be cut.
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

/// The trace that a scan belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRecord {
    /// W3C.
    pub traceparent: String,
    /// W3C.
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

/// Everything a coordinator needs to run a scan again from nothing. Written when it is accepted, anew with a generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Its id.
    pub scan: String,
    /// 0; one more each time it begins anew in another class.
    pub generation: u32,
    /// Who submitted it: the identity of the caller.
    pub owner: String,
    /// What was asked.
    pub document: DocumentPlace,
    /// `NAME@SNAPSHOT`, the snapshot in full.
    pub dataset: String,
    /// Microseconds since 1970, resolved to a bar's time.
    pub as_of_us: i64,
    /// Corrections of prices, as in the answer's identity.
    pub adjustment: String,
    /// All attempts of this generation stay in it.
    pub class: ExecutionClass,
    /// Fingerprint of the compiled plan.
    pub plan: String,
    /// Segments of the scan.
    pub segments: u32,
    /// Symbols of the scan.
    pub symbols: u64,
    /// How it was asked to be cut.
    #[serde(default)]
    pub shards: Shards,
    /// Of the workers' time.
    #[serde(default)]
    pub priority: Level,
    /// Microseconds since 1970.
    pub submitted_us: i64,
    /// Microseconds since 1970; no limit when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_us: Option<i64>,
    /// Whether an answer without some symbols is wanted too.
    #[serde(default)]
    pub allow_partial: bool,
    /// The client's own name for the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestMark>,
    /// The trace it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceRecord>,
}

impl Record for Header {
    const WHAT: &'static str = "header";
    const BYTES_MAX: usize = HEADER_BYTES_MAX;
}

/// What of a scan's present stage is in the result store; a hint for people and standbys, the objects are the truth.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Of the scan.
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
    /// Of segments that are stored.
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
        Self { generation, stage, stored: count, bitmap: to_hex(&bits) }
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
        /// Symbols whose row says `failed`.
        failed_symbols: u64,
        /// Whether two workers gave different results and nobody could settle which is right.
        #[serde(default)]
        disputed: bool,
    },
    /// It has none, and why.
    Failed {
        /// What a client may do about it.
        kind: ErrorKind,
        /// Lower case, without a full stop.
        message: String,
    },
    /// Nobody wanted it any more.
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

/// The last word about a scan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// In which generation.
    pub generation: u32,
    /// How.
    pub outcome: EndOutcome,
    /// Microseconds since 1970.
    pub ended_us: i64,
}

impl Record for End {
    const WHAT: &'static str = "end";
}

/// A scan that has ended, under one key: it takes the place of the header in the transaction that ends the scan, so that
/// the headers that are there are those of open scans.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    /// As it was, without its trace.
    pub header: Header,
    /// Its last word.
    pub end: End,
}

impl Record for Closed {
    const WHAT: &'static str = "closed record";
}

/// Marks a scan whose objects are going to be deleted. It is never taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// The leader that will delete; another marks it anew and waits again.
    pub epoch: i64,
    /// Microseconds since 1970.
    pub marked_us: i64,
}

impl Record for Tombstone {
    const WHAT: &'static str = "tombstone";
}

/// What stands under a client's own name for a request.
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

/// What a key under `{cluster}/scans/` is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    Header,
    Progress,
    End,
    Tombstone,
}

impl KeyKind {
    /// Every part.
    pub const ALL: [Self; 4] = [Self::Header, Self::Progress, Self::End, Self::Tombstone];

    /// Last part of its key.
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
    /// Of a cluster whose name was checked.
    pub fn new(cluster_name: &str) -> Self {
        let under = |what: &str| format!("{cluster_name}/{what}/");
        Self { scans: under("scans"), ended: under("ended"), requests: under("requests") }
    }

    /// Prefix of the scans that are open, of tombstones, and of what releases before left of scans that ended.
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

    /// Scan of a key under [`Keys::all_ended`]; `None` for what is not ours.
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

    /// Key of a client's own name for a request.
    pub fn request(&self, slot: &str) -> String {
        format!("{}{slot}", self.requests)
    }

    /// Scan and part of a key under [`Keys::scans`]; `None` for what is not ours.
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
    to_hex(&Sha256::digest(bytes))
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;

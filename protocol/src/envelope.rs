//! The envelope of a result: protobuf {version, schema fingerprint, length, checksum} around an rkyv archive.
//!
//! Nothing of the payload is trusted before version, schema, length and checksum agree and bytecheck has walked the
//! archive in aligned memory. A second version of the result type gets its own number, fingerprint and functions
//! beside these; none of them changes.

use rkyv::rancor;
use rkyv::util::AlignedVec;
use sha2::{Digest, Sha256};

use crate::error::{ErrorKind, Failure};
use crate::limits::{PAYLOAD_BYTES_MAX, REASON_BYTES_MAX};
use crate::pb;
use crate::result::{SegmentResultV1, Status};

/// Version of [`SegmentResultV1`].
pub const SEGMENT_RESULT_V1: u32 = 1;

/// The type written down, with everything that moves a byte of its archive. Change it whenever the type changes.
const SEGMENT_RESULT_V1_SCHEMA: &str = "rkyv 0.8 little-endian aligned pointer32 \
    SegmentResultV1{segment:u32,rows:[SymbolRow{symbol:str,status:u8(failed,stale,outside,unknown,matched,not_matched),\
    reason:str,rank:[f64],values:[f64]}]}";

/// Why an envelope is refused. All are retryable: another attempt may arrive whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// Not this type's version.
    #[error("result version {found}, expected {SEGMENT_RESULT_V1}")]
    Version { found: u32 },
    /// The sender's type has other fields.
    #[error("result schema {found:016x}, expected {expected:016x}")]
    Schema { found: u64, expected: u64 },
    /// Truncated or padded.
    #[error("payload of {found} bytes where the header says {expected}")]
    Length { found: u64, expected: u64 },
    /// Longer than [`PAYLOAD_BYTES_MAX`].
    #[error("payload of {found} bytes, at most {PAYLOAD_BYTES_MAX} are taken")]
    TooLong { found: u64 },
    /// Damaged on the way.
    #[error("checksum {found:08x} where the header says {expected:08x}")]
    Checksum { found: u32, expected: u32 },
    /// bytecheck refused the archive.
    #[error("not an archive of a result: {0}")]
    Archive(String),
    /// A well-formed archive that cannot be a result.
    #[error("not a result: {0}")]
    Content(String),
    /// The result could not be archived.
    #[error("the result could not be archived: {0}")]
    Encode(String),
}

impl From<EnvelopeError> for Failure {
    fn from(error: EnvelopeError) -> Self {
        Self::new(ErrorKind::Retryable, error.to_string())
    }
}

/// Fingerprint of [`SegmentResultV1`], compared in every envelope and at registration.
pub fn schema_fingerprint() -> u64 {
    let digest = Sha256::digest(SEGMENT_RESULT_V1_SCHEMA.as_bytes());
    digest.iter().take(8).fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn checksum(version: u32, schema: u64, length: u64, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&version.to_le_bytes());
    hasher.update(&schema.to_le_bytes());
    hasher.update(&length.to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

/// Archives a result.
///
/// # Errors
/// [`EnvelopeError::TooLong`], [`EnvelopeError::Content`] for a result a reader would refuse, [`EnvelopeError::Encode`].
pub fn encode(result: &SegmentResultV1) -> Result<pb::Envelope, EnvelopeError> {
    check_content(result)?;
    let payload = rkyv::to_bytes::<rancor::Error>(result).map_err(|e| EnvelopeError::Encode(e.to_string()))?;
    if payload.len() > PAYLOAD_BYTES_MAX {
        return Err(EnvelopeError::TooLong { found: payload.len() as u64 });
    }
    let (schema, length) = (schema_fingerprint(), payload.len() as u64);
    let checksum = checksum(SEGMENT_RESULT_V1, schema, length, &payload);
    Ok(pb::Envelope { version: SEGMENT_RESULT_V1, schema, length, checksum, payload: payload.into_vec() })
}

/// Reads what [`encode`] wrote.
///
/// # Errors
/// [`EnvelopeError`], the first check that fails: version, schema, length, checksum, archive, content.
pub fn decode(envelope: &pb::Envelope) -> Result<SegmentResultV1, EnvelopeError> {
    if envelope.version != SEGMENT_RESULT_V1 {
        return Err(EnvelopeError::Version { found: envelope.version });
    }
    let expected = schema_fingerprint();
    if envelope.schema != expected {
        return Err(EnvelopeError::Schema { found: envelope.schema, expected });
    }
    let found = envelope.payload.len() as u64;
    if found != envelope.length {
        return Err(EnvelopeError::Length { found, expected: envelope.length });
    }
    if envelope.payload.len() > PAYLOAD_BYTES_MAX {
        return Err(EnvelopeError::TooLong { found });
    }
    let found = checksum(envelope.version, envelope.schema, envelope.length, &envelope.payload);
    if found != envelope.checksum {
        return Err(EnvelopeError::Checksum { found, expected: envelope.checksum });
    }
    // Protobuf gives the payload at any address; an archive has to lie aligned.
    let mut aligned: AlignedVec = AlignedVec::with_capacity(envelope.payload.len());
    aligned.extend_from_slice(&envelope.payload);
    let result = rkyv::from_bytes::<SegmentResultV1, rancor::Error>(&aligned)
        .map_err(|e| EnvelopeError::Archive(e.to_string()))?;
    check_content(&result)?;
    Ok(result)
}

/// What every result fulfils, checked where it is written and where it is read.
fn check_content(result: &SegmentResultV1) -> Result<(), EnvelopeError> {
    let refuse = |what: &str, symbol: &str| Err(EnvelopeError::Content(format!("{what} at symbol '{symbol}'")));
    for pair in result.rows.windows(2) {
        if pair[0].symbol >= pair[1].symbol {
            return refuse("rows out of order", &pair[1].symbol);
        }
    }
    let mut widths = None;
    for row in &result.rows {
        let decided = matches!(row.status, Status::Matched | Status::NotMatched);
        if row.reason.is_empty() != decided {
            return refuse("a reason where none belongs, or none where one does", &row.symbol);
        }
        if row.reason.len() > REASON_BYTES_MAX {
            return refuse("a reason too long", &row.symbol);
        }
        if row.status == Status::Matched {
            let found = (row.rank.len(), row.values.len());
            if *widths.get_or_insert(found) != found {
                return refuse("rows of different widths", &row.symbol);
            }
        } else if !row.rank.is_empty() || !row.values.is_empty() {
            return refuse("values of a symbol that does not match", &row.symbol);
        }
    }
    Ok(())
}

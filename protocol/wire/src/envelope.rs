//! The envelope of a result: protobuf {version, schema fingerprint, length, checksum} around an rkyv archive.
//!
//! No part of the payload is trusted before version, schema, length and checksum match and bytecheck has validated the
//! archive in aligned memory. A new version of a type gets its own number, fingerprint and functions; existing ones
//! never change (`result_v1` is the first version, which is still read).

use std::sync::LazyLock;

use bytes::Bytes;
use rkyv::rancor;
use rkyv::util::AlignedVec;
use sha2::{Digest, Sha256};

use crate::columns::Columns;
use crate::content::{EnvelopeError, check_content, check_input};
use crate::digest::segment_digest;
use crate::limits::PAYLOAD_BYTES_MAX;
use crate::pb;
use crate::result::{SegmentResultV2, StepInputV1};
use crate::result_v1::SegmentResultV1;
use crate::segment_result::SegmentResult;

/// Version of [`SegmentResultV1`].
pub const SEGMENT_RESULT_V1: u32 = 1;
/// Version of [`SegmentResultV2`].
pub const SEGMENT_RESULT_V2: u32 = 2;
/// Version of [`StepInputV1`].
pub const STEP_INPUT_V1: u32 = 3;
/// Version of [`SegmentColumnsV3`](crate::columns::SegmentColumnsV3).
pub const SEGMENT_COLUMNS_V3: u32 = 4;

/// As below, for the previous version.
const SEGMENT_RESULT_V1_SCHEMA: &str = "rkyv 0.8 little-endian aligned pointer32 \
    SegmentResultV1{segment:u32,rows:[SymbolRow{symbol:str,status:u8(failed,stale,outside,unknown,matched,not_matched),\
    reason:str,rank:[f64],values:[f64]}]}";

/// The type as text, with everything that affects its archive's bytes. Change it whenever the type changes.
const SEGMENT_RESULT_V2_SCHEMA: &str = "rkyv 0.8 little-endian aligned pointer32 \
    SegmentResultV2{segment:u32,output:Times([{cross:u16,times:[i64]}])|Values([{cross:u16,times:[i64],values:[f64]}])|\
    Rows([SymbolRow{point:u32,symbol:str,status:u8(failed,stale,outside,unknown,matched,not_matched),edge:bool,\
    provisional:bool,reason:str,rank:[f64],values:[f64]}])}";

/// As above.
const SEGMENT_COLUMNS_V3_SCHEMA: &str = "rkyv 0.8 little-endian aligned pointer32 \
    SegmentColumnsV3{segment:u32,points:[u32],rows_at:[u32],names:str,name_ends:[u32],symbols:[u32],\
    states:[u8(status:3(failed,stale,outside,unknown,matched,not_matched),edge:1,provisional:1)],reasons:str,\
    reason_ends:[u32],reason_of:[u32],rank_width:u32,value_width:u32,rank:[f64],values:[f64]}";

/// As above.
const STEP_INPUT_V1_SCHEMA: &str = "rkyv 0.8 little-endian aligned pointer32 \
    StepInputV1{wanted:[{cross:u16,times:[i64]}],tables:[{cross:u16,times:[i64],keys:[str],values:[f64]}]}";

static SEGMENT_RESULT_V1_FINGERPRINT: LazyLock<u64> = LazyLock::new(|| fingerprint(SEGMENT_RESULT_V1_SCHEMA));
static SEGMENT_RESULT_V2_FINGERPRINT: LazyLock<u64> = LazyLock::new(|| fingerprint(SEGMENT_RESULT_V2_SCHEMA));
static SEGMENT_COLUMNS_V3_FINGERPRINT: LazyLock<u64> = LazyLock::new(|| fingerprint(SEGMENT_COLUMNS_V3_SCHEMA));
static STEP_INPUT_V1_FINGERPRINT: LazyLock<u64> = LazyLock::new(|| fingerprint(STEP_INPUT_V1_SCHEMA));

/// Fingerprint of [`SegmentResultV2`], compared in every envelope and at registration.
pub fn schema_fingerprint() -> u64 {
    *SEGMENT_RESULT_V2_FINGERPRINT
}

/// Fingerprint of [`SegmentResultV1`], which is also accepted.
pub fn schema_fingerprint_v1() -> u64 {
    *SEGMENT_RESULT_V1_FINGERPRINT
}

fn fingerprint(schema: &str) -> u64 {
    let digest = Sha256::digest(schema.as_bytes());
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

/// Archives a result and puts it into an envelope.
///
/// # Errors
/// [`EnvelopeError::TooLong`], [`EnvelopeError::Content`] for a result that a reader would reject,
/// [`EnvelopeError::Encode`].
pub fn encode(result: &SegmentResultV2) -> Result<pb::Envelope, EnvelopeError> {
    check_content(result)?;
    let payload = rkyv::to_bytes::<rancor::Error>(result).map_err(|e| EnvelopeError::Encode(e.to_string()))?;
    seal(SEGMENT_RESULT_V2, schema_fingerprint(), Bytes::from_owner(payload))
}

/// As [`encode`], with rows as columns.
///
/// # Errors
/// Those of [`encode`].
pub fn encode_columns(result: SegmentResultV2) -> Result<pb::Envelope, EnvelopeError> {
    seal_result(&SegmentResult::of(result)?)
}

/// Puts a result into an envelope, rows as columns.
///
/// # Errors
/// Those of [`encode`].
pub fn seal_result(result: &SegmentResult) -> Result<pb::Envelope, EnvelopeError> {
    match result {
        SegmentResult::Rows(columns) => seal_columns(columns),
        SegmentResult::Step(result) => encode(result),
    }
}

/// Puts columns into an envelope, which shares their memory.
///
/// # Errors
/// [`EnvelopeError::TooLong`].
pub fn seal_columns(columns: &Columns) -> Result<pb::Envelope, EnvelopeError> {
    seal(SEGMENT_COLUMNS_V3, *SEGMENT_COLUMNS_V3_FINGERPRINT, columns.payload().clone())
}

/// As [`seal_columns`], for columns that came in an envelope: if it is one of columns, its checksum is that of the same bytes.
///
/// # Errors
/// Those of [`seal_columns`].
pub fn seal_again(columns: &Columns, came: &pb::Envelope) -> Result<pb::Envelope, EnvelopeError> {
    if came.version != SEGMENT_COLUMNS_V3 {
        return seal_columns(columns);
    }
    let pb::Envelope { version, schema, length, checksum, payload: _ } = *came;
    Ok(pb::Envelope { version, schema, length, checksum, payload: columns.payload().clone() })
}

/// Archives a result of the previous version, as workers of protocol 1 do.
///
/// # Errors
/// As [`encode`].
pub fn encode_v1(result: &SegmentResultV1) -> Result<pb::Envelope, EnvelopeError> {
    check_content(&result.clone().into())?;
    let payload = rkyv::to_bytes::<rancor::Error>(result).map_err(|e| EnvelopeError::Encode(e.to_string()))?;
    seal(SEGMENT_RESULT_V1, schema_fingerprint_v1(), Bytes::from_owner(payload))
}

/// Reads an envelope of any version of a result; rows are columns then, in whichever form they came. The memory is the result's
/// own, not a part of the envelope's.
///
/// # Errors
/// [`EnvelopeError`], the first check that fails: version, schema, length, checksum, archive, content.
pub fn read(envelope: &pb::Envelope) -> Result<SegmentResult, EnvelopeError> {
    if envelope.version == SEGMENT_COLUMNS_V3 {
        check_header(envelope, SEGMENT_COLUMNS_V3, *SEGMENT_COLUMNS_V3_FINGERPRINT)?;
        return Columns::read(&envelope.payload).map(SegmentResult::Rows);
    }
    SegmentResult::of(decode(envelope)?)
}

/// As [`read`], with the digest that was sent or stored with the envelope.
///
/// # Errors
/// Those of [`read`], and [`EnvelopeError::Digest`].
pub fn read_checked(envelope: &pb::Envelope, digest: &[u8]) -> Result<SegmentResult, EnvelopeError> {
    let (result, found) = if envelope.version == SEGMENT_COLUMNS_V3 {
        let result = read(envelope)?;
        let found = result.digest();
        (result, found)
    } else {
        // The digest is of the form in which it was sent.
        let result = decode(envelope)?;
        let found = segment_digest(&result);
        (SegmentResult::of(result)?, found)
    };
    if found[..] == *digest { Ok(result) } else { Err(EnvelopeError::Digest) }
}

/// Reads an envelope written by [`encode`], [`encode_v1`] or [`encode_columns`], with its rows as objects.
///
/// # Errors
/// Those of [`read`].
pub fn decode(envelope: &pb::Envelope) -> Result<SegmentResultV2, EnvelopeError> {
    if envelope.version == SEGMENT_COLUMNS_V3 {
        return read(envelope)?.into_v2();
    }
    if envelope.version == SEGMENT_RESULT_V1 {
        let aligned = open(envelope, SEGMENT_RESULT_V1, schema_fingerprint_v1())?;
        let result = rkyv::from_bytes::<SegmentResultV1, rancor::Error>(&aligned)
            .map_err(|e| EnvelopeError::Archive(e.to_string()))?;
        let result = result.into();
        check_content(&result)?;
        return Ok(result);
    }
    let aligned = open(envelope, SEGMENT_RESULT_V2, schema_fingerprint())?;
    let result = rkyv::from_bytes::<SegmentResultV2, rancor::Error>(&aligned)
        .map_err(|e| EnvelopeError::Archive(e.to_string()))?;
    check_content(&result)?;
    Ok(result)
}

/// Archives the input of a step.
///
/// # Errors
/// As [`encode`].
pub fn encode_input(input: &StepInputV1) -> Result<pb::Envelope, EnvelopeError> {
    check_input(input)?;
    let payload = rkyv::to_bytes::<rancor::Error>(input).map_err(|e| EnvelopeError::Encode(e.to_string()))?;
    seal(STEP_INPUT_V1, *STEP_INPUT_V1_FINGERPRINT, Bytes::from_owner(payload))
}

/// Reads an envelope written by [`encode_input`].
///
/// # Errors
/// As [`decode`].
pub fn decode_input(envelope: &pb::Envelope) -> Result<StepInputV1, EnvelopeError> {
    let aligned = open(envelope, STEP_INPUT_V1, *STEP_INPUT_V1_FINGERPRINT)?;
    let input =
        rkyv::from_bytes::<StepInputV1, rancor::Error>(&aligned).map_err(|e| EnvelopeError::Archive(e.to_string()))?;
    check_input(&input)?;
    Ok(input)
}

fn seal(version: u32, schema: u64, payload: Bytes) -> Result<pb::Envelope, EnvelopeError> {
    if payload.len() > PAYLOAD_BYTES_MAX {
        return Err(EnvelopeError::TooLong { found: payload.len() as u64 });
    }
    let length = payload.len() as u64;
    let checksum = checksum(version, schema, length, &payload);
    Ok(pb::Envelope { version, schema, length, checksum, payload })
}

/// Validates everything around the payload.
fn check_header(envelope: &pb::Envelope, version: u32, schema: u64) -> Result<(), EnvelopeError> {
    if envelope.version != version {
        return Err(EnvelopeError::Version { found: envelope.version, expected: version });
    }
    if envelope.schema != schema {
        return Err(EnvelopeError::Schema { found: envelope.schema, expected: schema });
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
    Ok(())
}

/// As [`check_header`], and copies the payload to aligned memory.
fn open(envelope: &pb::Envelope, version: u32, schema: u64) -> Result<AlignedVec, EnvelopeError> {
    check_header(envelope, version, schema)?;
    let mut aligned = AlignedVec::new();
    aligned.extend_from_slice(&envelope.payload);
    Ok(aligned)
}

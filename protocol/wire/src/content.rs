//! What makes a result or an input valid, in whichever form it is written, and why one is rejected.

use crate::error::{ErrorKind, Failure};
use crate::limits::{PAYLOAD_BYTES_MAX, REASON_BYTES_MAX};
use crate::result::{SegmentOutput, SegmentResultV2, Status, StepInputV1, SymbolRow};

/// Why an envelope was rejected. All are retryable: another attempt may arrive intact.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// Not this type's version.
    #[error("message version {found}, expected {expected}")]
    Version {
        /// Version in the envelope.
        found: u32,
        /// The version that is read here.
        expected: u32,
    },
    /// The sender's type has other fields.
    #[error("result schema {found:016x}, expected {expected:016x}")]
    Schema {
        /// Fingerprint in the envelope.
        found: u64,
        /// Fingerprint of the receiver's type.
        expected: u64,
    },
    /// Truncated or padded.
    #[error("payload of {found} bytes where the header says {expected}")]
    Length {
        /// Bytes received.
        found: u64,
        /// Bytes that the envelope states.
        expected: u64,
    },
    /// Longer than [`PAYLOAD_BYTES_MAX`].
    #[error("payload of {found} bytes, at most {PAYLOAD_BYTES_MAX} are taken")]
    TooLong {
        /// Bytes of the payload.
        found: u64,
    },
    /// Damaged in transit.
    #[error("checksum {found:08x} where the header says {expected:08x}")]
    Checksum {
        /// CRC-32 of the version, schema, length and payload received.
        found: u32,
        /// CRC-32 in the envelope.
        expected: u32,
    },
    /// bytecheck rejected the archive.
    #[error("not an archive of a result: {0}")]
    Archive(String),
    /// A well-formed archive that is not a valid result.
    #[error("not a result: {0}")]
    Content(String),
    /// The digest that came with the result is another one's.
    #[error("the result's digest is not the one that came with it")]
    Digest,
    /// The result could not be archived.
    #[error("the result could not be archived: {0}")]
    Encode(String),
}

impl From<EnvelopeError> for Failure {
    fn from(error: EnvelopeError) -> Self {
        Self::new(ErrorKind::Retryable, error.to_string())
    }
}

pub(crate) fn content(what: impl Into<String>) -> EnvelopeError {
    EnvelopeError::Content(what.into())
}

/// Checks that times ascend.
fn check_times(times: &[i64]) -> Result<(), EnvelopeError> {
    if times.is_sorted_by(|a, b| a < b) { Ok(()) } else { Err(content("times out of order")) }
}

pub(crate) fn check_input(input: &StepInputV1) -> Result<(), EnvelopeError> {
    input.wanted.iter().try_for_each(|w| check_times(&w.times))?;
    for table in &input.tables {
        check_times(&table.times)?;
        if !table.keys.is_sorted_by(|a, b| a < b) || table.keys.len() * table.times.len() != table.values.len() {
            return Err(content("a cross-section of another shape"));
        }
    }
    Ok(())
}

/// Checks the invariants of results, when writing and when reading.
pub(crate) fn check_content(result: &SegmentResultV2) -> Result<(), EnvelopeError> {
    let rows = match &result.output {
        SegmentOutput::Times(needs) => return needs.iter().try_for_each(|n| check_times(&n.times)),
        SegmentOutput::Values(given) => {
            for one in given {
                check_times(&one.times)?;
                if one.values.len() % one.times.len().max(1) != 0 {
                    return Err(content("values that do not fit their times"));
                }
            }
            return Ok(());
        }
        SegmentOutput::Rows(rows) => rows,
    };
    check_rows(rows)
}

/// Checks the invariants of a segment's rows.
pub(crate) fn check_rows(rows: &[SymbolRow]) -> Result<(), EnvelopeError> {
    let refuse = |what: &str, symbol: &str| Err(content(format!("{what} at symbol '{symbol}'")));
    for pair in rows.windows(2) {
        if (pair[0].point, &pair[0].symbol) >= (pair[1].point, &pair[1].symbol) {
            return refuse("rows out of order", &pair[1].symbol);
        }
    }
    let mut widths = None;
    for row in rows {
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

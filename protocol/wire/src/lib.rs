//! The protocol between processes: services, envelope, records, error kinds, limits, digests, trace context.
//!
//! It does no I/O and decides nothing about scans; `worker` and `coordinator` do.

#![forbid(unsafe_code)]

pub mod columns;
mod content;
pub mod digest;
pub mod envelope;
pub mod error;
pub mod group_bits;
pub mod limits;
pub mod loopback;
pub mod plan_key;
mod priority;
pub mod record;
pub mod result;
pub mod result_v1;
mod row_table;
mod segment_result;
pub mod trace;

/// Generated from `proto/trawl.proto`.
#[allow(clippy::all, clippy::pedantic, missing_docs, reason = "the generator decides what it writes")]
pub mod pb {
    tonic::include_proto!("trawl.v1");
}

/// Generated from `proto/externalscaler.proto`: the requests of KEDA.
#[allow(clippy::all, clippy::pedantic, missing_docs, reason = "the generator decides what it writes")]
pub mod keda {
    tonic::include_proto!("externalscaler");
}

pub use columns::{Columns, RowView};
pub use content::EnvelopeError;
pub use digest::{answer_digest, request_digest, segment_digest};
pub use error::{ErrorKind, Failure};
pub use record::{LeaderRecord, WorkerRecord};
pub use result::*;
pub use result_v1::{SegmentResultV1, SymbolRowV1};
pub use row_table::{RowMarks, RowTable};
pub use segment_result::SegmentResult;

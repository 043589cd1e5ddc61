//! The result of a segment as processes pass it on: rows are columns, what an earlier step gives is an object.

use crate::columns::Columns;
use crate::content::EnvelopeError;
use crate::digest::segment_digest;
use crate::result::{SegmentOutput, SegmentResultV2};

/// The result of a segment as processes pass it on.
#[derive(Debug, Clone)]
pub enum SegmentResult {
    /// The answer's rows.
    Rows(Columns),
    /// What an earlier step gives.
    Step(SegmentResultV2),
}

impl SegmentResult {
    /// From a result of whichever step.
    ///
    /// # Errors
    /// Those of [`Columns::of_rows`].
    pub fn of(result: SegmentResultV2) -> Result<Self, EnvelopeError> {
        match &result.output {
            SegmentOutput::Rows(rows) => Columns::of_rows(result.segment, rows).map(Self::Rows),
            SegmentOutput::Times(_) | SegmentOutput::Values(_) => Ok(Self::Step(result)),
        }
    }

    /// Group id.
    pub fn segment(&self) -> u32 {
        match self {
            Self::Rows(columns) => columns.segment(),
            Self::Step(result) => result.segment,
        }
    }

    /// Digest of the result.
    pub fn digest(&self) -> [u8; 32] {
        match self {
            Self::Rows(columns) => columns.digest(),
            Self::Step(result) => segment_digest(result),
        }
    }

    /// The result with its rows as objects.
    ///
    /// # Errors
    /// Those of [`Columns::view`].
    pub fn into_v2(self) -> Result<SegmentResultV2, EnvelopeError> {
        match self {
            Self::Rows(columns) => {
                let (segment, rows) = (columns.segment(), columns.to_rows()?);
                Ok(SegmentResultV2 { segment, output: SegmentOutput::Rows(rows) })
            }
            Self::Step(result) => Ok(result),
        }
    }
}

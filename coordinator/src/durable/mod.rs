//! The durable state of scans, which survives the death of any process.
//!
//! A scan is accepted, and ended, by one transaction in the control store (`records` defines the records, `ledger`
//! writes them under the epoch of one leader, `found` reads them). Its results are groups of segments in the result
//! store (`results` the store, `group` one object, `writer` the group commit). From both a new leader decides how to
//! resume each scan (`recovery`, pure), and expired scans are deleted (`retention`). `docs/durability.md` is the
//! operator's page, ADR 13 the reasons.
//!
//! Nothing here plans, schedules, merges or talks to clients.

mod found;
pub mod group;
pub mod ledger;
pub mod pins;
pub mod placement;
mod recorded;
pub mod records;
pub mod recovery;
pub mod results;
pub mod retention;
mod store_error;
#[cfg(test)]
mod testing;
pub mod writer;

pub use found::EndedPages;
pub use group::{AnswerEnds, GroupName, Outcome, Stored};
pub use ledger::{Acceptance, Ledger, LedgerError, Recorded, Term};
pub use pins::{PIN_REFRESH, Pin, Pins};
pub use placement::{PlacementError, check_placement};
pub use records::{End, EndOutcome, HEADER_BYTES_MAX, Header, Progress, RecordError, RequestMark, Tombstone};
pub use recovery::{Decision, Situation, decide};
pub use results::{Damage, Named, ResultStore, ScanContents, StageContents};
pub use retention::{RetentionPolicy, SweepReport, sweep};
pub use store_error::StoreError;
pub use writer::{Writer, WriterLimits};

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod s3_tests;

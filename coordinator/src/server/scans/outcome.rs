//! How a scan ended.

use trawl_wire::{Failure, pb};

use super::known_answers::AnswerKey;

/// The summary of an answered scan, and what is recorded of it.
#[derive(Debug, Clone)]
pub(super) struct Answered {
    pub summary: pb::Summary,
    /// Number of symbols with status `failed`.
    pub failed_symbols: u64,
    pub disputed: bool,
    /// Under which other scans may be given it, and the dispatcher's doubts when it was computed; `None` for an answer that is not
    /// complete, or was disputed.
    pub reusable: Option<(AnswerKey, u64)>,
}

/// Why a scan has no answer.
pub(super) enum Ended {
    /// It failed; clients are notified.
    Failed(pb::Refused),
    /// The term is over: another coordinator continues it.
    Over,
    /// It begins anew in another class: no worker serves its own any more.
    OtherClass,
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::Failed(pb::Refused { failure: Some(failure.into()), diagnostics_json: String::new() })
    }
}

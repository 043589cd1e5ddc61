//! Decides what a new leader does with each recorded scan: a pure function of records, stored segments and the current
//! time.
//!
//! It uses no clock, no I/O and no randomness, so that a simulator can drive it through every history.

use std::collections::{BTreeMap, BTreeSet};

use trawl_wire::record::ExecutionClass;
use trawl_wire::{ErrorKind, Failure};

use super::ledger::Recorded;

/// Generations of one scan: beyond it, upgrades are more frequent than scans end.
pub const GENERATIONS_MAX: u32 = 8;

/// Whether this coordinator can run a scan's document over its snapshot.
#[derive(Debug, Clone, PartialEq)]
pub enum Situation {
    /// It can be run here.
    Ready {
        /// The execution class in which this coordinator would run it.
        class: ExecutionClass,
        /// Fingerprint of the plan that it compiles to here.
        plan: String,
        /// Its segments, ascending.
        segments: Vec<u32>,
    },
    /// It cannot be run: the snapshot is missing, or the document is not understood.
    Refused(Failure),
}

/// The decision about a scan.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Nothing: it ended, or is being deleted.
    Nothing,
    /// Run what is missing, from `stage` on. If nothing is missing the stage is complete: its results are read,
    /// followed by the next stage or, after the last one, the end.
    Resume {
        /// The first stage that is not complete, or the one after the last that is stored.
        stage: u32,
        /// Segments of `stage` that are not stored, ascending. Later stages may be stored in part: see [`missing`].
        missing: Vec<u32>,
    },
    /// Restart as the next generation: its results so far are of another class or plan.
    Restart {
        /// The next generation.
        generation: u32,
        /// For the log and the client.
        why: String,
    },
    /// End it as failed.
    Fail(Failure),
    /// Try again later: the obstacle may be temporary.
    Later(Failure),
}

/// The segments of a stage that have to be run.
pub fn missing(segments: &[u32], stored: Option<&BTreeSet<u32>>) -> Vec<u32> {
    segments.iter().copied().filter(|segment| !stored.is_some_and(|s| s.contains(segment))).collect()
}

/// Decides what to do with one scan.
///
/// `stored`: the segments of the header's generation that are whole in the result store, by stage. `now_us`:
/// microseconds since 1970.
pub fn decide(
    recorded: &Recorded,
    stored: &BTreeMap<u32, BTreeSet<u32>>,
    situation: &Situation,
    now_us: i64,
) -> Decision {
    let Some(header) = recorded.header.as_ref().filter(|_| recorded.end.is_none() && recorded.tombstone.is_none())
    else {
        return Decision::Nothing;
    };
    if header.deadline_us.is_some_and(|deadline| deadline <= now_us) {
        let message = "the scan was not done within its deadline; a coordinator was replaced while it ran";
        return Decision::Fail(Failure::new(ErrorKind::DeadlineExceeded, message));
    }
    let (class, plan, segments) = match situation {
        Situation::Refused(failure) if failure.kind.is_retried() => return Decision::Later(failure.clone()),
        Situation::Refused(failure) => return Decision::Fail(failure.clone()),
        Situation::Ready { class, plan, segments } => (class, plan, segments),
    };
    if *class != header.class || *plan != header.plan {
        let why = if *class == header.class {
            format!("its document compiles to another plan here ({plan}, it was {})", header.plan)
        } else {
            format!("it ran in class '{}', this coordinator runs '{class}'", header.class)
        };
        let generation = header.generation.saturating_add(1);
        if generation >= GENERATIONS_MAX {
            let message = format!("the scan began anew {GENERATIONS_MAX} times without an end: {why}");
            return Decision::Fail(Failure::new(ErrorKind::Retryable, message));
        }
        return Decision::Restart { generation, why };
    }
    if u32::try_from(segments.len()) != Ok(header.segments) {
        let message = format!("the scan had {} segments, and {} are found now", header.segments, segments.len());
        return Decision::Fail(Failure::new(ErrorKind::Permanent, message));
    }
    // A stage begins when the previous one is complete, so a gap before a later stage means a lost object.
    let last = stored.keys().next_back().copied().unwrap_or(0);
    let stages = (0..=last).map(|stage| (stage, missing(segments, stored.get(&stage))));
    let first = stages.into_iter().find(|(_, missing)| !missing.is_empty());
    let (stage, missing) = first.unwrap_or((last, Vec::new()));
    Decision::Resume { stage, missing }
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;

//! What a scan gives to the dispatcher, and what it hears from it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use trawl_terms::Priority;
use trawl_wire::{Failure, SegmentResult, pb};

use crate::planner::ShardSpec;
use crate::prepare::PreparedScan;
use crate::report::{RunPurpose, SegmentRun};
use crate::scan_steps::Passes;
use crate::scheduler::{AttemptId, Digest, Outcome, Piece, ScanId};
use crate::server::transit_bytes::TransitPermit;
use crate::worker_class::ClassNeeds;

/// A message from the dispatcher to one scan; their number is bounded by the scan's segments and attempts.
#[derive(Debug)]
pub(crate) enum News {
    Started {
        attempt: AttemptId,
        worker: String,
        segments: Vec<u32>,
        purpose: RunPurpose,
        /// How long its segments waited for a worker.
        queued: Duration,
        slow_after: Option<Duration>,
    },
    Timed {
        attempt: AttemptId,
        timings: Box<pb::ShardTimings>,
    },
    Over {
        attempt: AttemptId,
        ending: String,
    },
    Result {
        piece: Piece,
        result: SegmentResult,
        digest: Digest,
        envelope: pb::Envelope,
        run: SegmentRun,
        replaces: bool,
        /// Kept until the result is where it stays.
        transit: Option<TransitPermit>,
    },
    Failed {
        piece: Piece,
        failure: Failure,
        attempts: u32,
        /// The worker that reported the failure or sent what cannot be used; empty if none did.
        worker: String,
    },
    WorkerLost {
        worker: String,
    },
    Contested {
        segment: u32,
    },
    Quarantined {
        worker: String,
    },
    /// The class it waits for because no worker serves it; `None` once one does.
    Waits(Option<String>),
    /// No worker has served its class for long, and workers of another class could run it: it is to begin anew.
    OtherClass,
    End(Outcome),
}

impl News {
    /// Takes out a result's share of the bytes under way.
    pub fn take_transit(&mut self) -> Option<TransitPermit> {
        match self {
            Self::Result { transit, .. } => transit.take(),
            _ => None,
        }
    }
}

/// A step of a scan, as submitted to the dispatcher.
pub(crate) struct Submission {
    pub scan_name: String,
    /// Generation of the scan.
    pub generation: u32,
    pub prepared: Arc<PreparedScan>,
    /// Segments to run; the others already have results.
    pub segments: Arc<BTreeSet<u32>>,
    /// Index of the step, from 0.
    pub number: u32,
    /// The steps of the scan, of which this is the current one.
    pub passes: Arc<Passes>,
    pub shards: ShardSpec,
    pub priority: Priority,
    /// Hash of its caller's name.
    pub caller: u64,
    /// Whether it waits without limit while no worker serves its class.
    pub waits: bool,
    /// The classes that it may run in.
    pub needs: ClassNeeds,
    /// How long its class may be without workers before it moves to another.
    pub class_patience: Duration,
    /// Time at which it ends, finished or not.
    pub deadline: Option<Instant>,
    /// Parent of every shard's span.
    pub trace: Option<pb::TraceContext>,
    /// Whether the stages of every shard are in its trace.
    pub profile: bool,
    pub news: mpsc::UnboundedSender<News>,
}

/// The immediate reply to a submission.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Submitted {
    pub scan: ScanId,
    pub shards: usize,
    /// Number of threads of all workers.
    pub threads: u32,
}

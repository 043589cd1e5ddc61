//! Handles of the dispatcher: how the rest of a term asks its task.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use trawl_security::Connector;
use trawl_wire::{Failure, pb};

use super::{INBOX_MAX, State, Submission, Submitted};
use crate::membership::Member;
use crate::prepare::PreparedScan;
use crate::scheduler::{Check, Limits, Piece, ScanId};
use crate::server::attempt;
use crate::server::heartbeat::Heartbeat;
use crate::server::work::RemainingWork;
use crate::worker_class::{BACKEND_COUNTERS, ClassNeeds, WorkerClass};

/// A question to the task, or what it has to know.
pub(super) enum Ask {
    Submit(Box<Submission>, oneshot::Sender<Submitted>),
    Choose(ClassNeeds, oneshot::Sender<Option<WorkerClass>>),
    WorkerOf(WorkerClass, oneshot::Sender<Option<WorkerContact>>),
    Cancel(ScanId),
    List { all: bool, reply: oneshot::Sender<Vec<pb::WorkerInfo>> },
    Capacity(oneshot::Sender<[Capacity; BACKEND_COUNTERS]>),
    Leave { id: String, reply: oneshot::Sender<Option<LeaveAsked>> },
    Answers { id: String, boot: String },
    Silent { id: String, boot: String },
    Holds { id: String, boot: String, report: Box<pb::CacheReport> },
    Checked { scan: ScanId, piece: Piece, found: Check },
}

/// A cheap handle. The dispatcher ends when the last one is dropped.
#[derive(Clone)]
pub(crate) struct Dispatcher {
    asks: mpsc::Sender<Ask>,
    work: Arc<RemainingWork>,
    computed: Arc<Computed>,
    /// How often results of a worker turned out to be wrong, or unconfirmed after the end of their scan.
    doubts: Arc<AtomicU64>,
    /// Closed once the task has ended.
    running: watch::Receiver<()>,
}

/// The workers that receive work, of all backends or of one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Capacity {
    pub workers: u32,
    pub threads: u32,
}

/// Computing time of accepted results in this term, by the [`counter_of`](crate::worker_class::counter_of) their workers' backends.
#[derive(Debug, Default)]
pub(super) struct Computed {
    /// As reported by workers, in microseconds.
    pub reported_us: [AtomicU64; BACKEND_COUNTERS],
    /// As estimated, in nanoseconds.
    pub expected_ns: [AtomicU64; BACKEND_COUNTERS],
}

/// The sum of all counters for 0, else one of them.
fn counted(counters: &[AtomicU64; BACKEND_COUNTERS], counter: usize) -> u64 {
    match counter {
        0 => counters.iter().fold(0, |sum, one| sum.saturating_add(one.load(Ordering::Relaxed))),
        one => counters[one].load(Ordering::Relaxed),
    }
}

impl Dispatcher {
    /// Completes when the task ends: after the last handle is dropped, or earlier if the task fails.
    pub async fn ended(&self) {
        let mut running = self.running.clone();
        while running.changed().await.is_ok() {}
    }

    /// Starts the task; `members` receives changes from [`crate::membership::follow`], `connector` connects to workers,
    /// `epoch` is that of the term. Each tick is a beat of `heartbeat`.
    pub fn start(
        limits: Limits,
        members: mpsc::Receiver<Member>,
        (connector, epoch): (Connector, i64),
        heartbeat: Heartbeat,
    ) -> Self {
        let (asks, asked) = mpsc::channel(INBOX_MAX);
        let (events, incoming) = mpsc::channel(INBOX_MAX);
        let (runs, running) = watch::channel(());
        let state = State::new(limits, (connector, epoch), heartbeat, (events, asks.downgrade()));
        let work = Arc::clone(&state.work);
        let (computed, doubts) = (Arc::clone(&state.computed), Arc::clone(&state.doubts));
        tokio::spawn(async move {
            // Dropped when the task ends in any way.
            let _runs = runs;
            state.run(asked, incoming, members).await;
        });
        Self { asks, work, computed, doubts, running }
    }

    /// How often results turned out to be wrong, or unconfirmed after the end of their scan. Whenever it grows, answers that were computed before
    /// are not certain any more.
    pub fn doubts(&self) -> u64 {
        self.doubts.load(Ordering::Acquire)
    }

    /// The remaining work of this term. Scans that wait for admission add theirs.
    pub fn work(&self) -> &Arc<RemainingWork> {
        &self.work
    }

    /// Time of one core estimated for the results in [`Self::computed`].
    pub fn expected(&self, counter: usize) -> Duration {
        Duration::from_nanos(counted(&self.computed.expected_ns, counter))
    }

    /// Time of one core that workers of a backend, by [`counter_of`](crate::worker_class::counter_of), report for accepted results in this term; of all
    /// workers for 0.
    pub fn computed(&self, counter: usize) -> Duration {
        Duration::from_micros(counted(&self.computed.reported_us, counter))
    }

    /// Submits a step of a scan; news follow on its channel. `None` if the dispatcher has ended.
    pub async fn submit(&self, submission: Submission) -> Option<Submitted> {
        let (reply, replied) = oneshot::channel();
        self.asks.send(Ask::Submit(Box::new(submission), reply)).await.ok()?;
        replied.await.ok()
    }

    /// The class for a scan that starts now; `None` if no worker serves one that it may run in.
    pub async fn choose(&self, needs: ClassNeeds) -> Option<WorkerClass> {
        let (reply, replied) = oneshot::channel();
        let _ = self.asks.send(Ask::Choose(needs, reply)).await;
        replied.await.ok().flatten()
    }

    /// Asks a worker of a class for the fingerprint of the plan that it compiles a scan's document to; `None` if no worker
    /// of the class serves.
    ///
    /// # Errors
    /// Why that worker cannot run the document, or does not answer.
    pub async fn plan_of(&self, class: &WorkerClass, prepared: &PreparedScan) -> Option<Result<String, Failure>> {
        let (reply, replied) = oneshot::channel();
        let _ = self.asks.send(Ask::WorkerOf(class.clone(), reply)).await;
        let WorkerContact { channel, epoch, protocol_version } = replied.await.ok()??;
        let request = pb::ShardRequest {
            protocol_version,
            document_json: prepared.document.to_json(),
            dataset: prepared.dataset_reference(),
            as_of_us: prepared.as_of,
            execution_class: Some(prepared.class().into()),
            adjustment: prepared.identity.adjustment.clone(),
            epoch,
            ..pb::ShardRequest::default()
        };
        Some(attempt::plan_of(channel, request).await)
    }

    /// Cancels a scan.
    pub async fn cancel(&self, scan: ScanId) {
        let _ = self.asks.send(Ask::Cancel(scan)).await;
    }

    /// The workers that receive work, or `all` registered ones.
    pub async fn list(&self, all: bool) -> Vec<pb::WorkerInfo> {
        let (reply, replied) = oneshot::channel();
        let _ = self.asks.send(Ask::List { all, reply }).await;
        replied.await.unwrap_or_default()
    }

    /// What receives work, by [`counter_of`](crate::worker_class::counter_of); of all backends at 0.
    pub async fn capacity(&self) -> [Capacity; BACKEND_COUNTERS] {
        let (reply, replied) = oneshot::channel();
        let _ = self.asks.send(Ask::Capacity(reply)).await;
        replied.await.unwrap_or_default()
    }

    /// Asks a worker to leave; returns how many shards it still has. `None` if there is no such worker.
    ///
    /// # Errors
    /// The worker's error, or why it could not be asked.
    pub async fn ask_to_leave(&self, id: String) -> Option<Result<u32, tonic::Status>> {
        let (reply, replied) = oneshot::channel();
        let _ = self.asks.send(Ask::Leave { id, reply }).await;
        let LeaveAsked { channel, epoch, shards_in_flight } = replied.await.ok()??;
        Some(attempt::ask_to_leave(channel, epoch).await.map(|()| shards_in_flight))
    }
}

/// What a call to a worker needs besides its message.
pub(super) struct WorkerContact {
    pub channel: tonic::transport::Channel,
    pub epoch: i64,
    pub protocol_version: u32,
}

/// A request to ask a worker to leave.
pub(super) struct LeaveAsked {
    pub channel: tonic::transport::Channel,
    pub epoch: i64,
    pub shards_in_flight: u32,
}

//! The door of `trawl serve`: scans run in this process, on few threads, and a bounded number is kept. Nothing is recorded: what
//! is here ends with the process.

mod table;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Semaphore, watch};
use trawl_coordinator::client::Scanned;
use trawl_coordinator::server::{QuotaLimits, Quotas, RunningPermit};
use trawl_coordinator::{PreparedScan, Progress};
use trawl_market::{DatasetSummary, Store};
use trawl_security::{Caller, Right};
use trawl_telemetry::AUDIT_TARGET;
use trawl_wire::record::fresh_boot;
use trawl_wire::{ErrorKind, Failure, pb};

use super::answer::turn;
use super::door::Submission;
use super::door::{Call, Door, MODE_EMBEDDED, has_ended, until_ended};
use super::problem::{Kind, Problem};
use super::questions::{Inspected, QuestionLimits, Questions, prepared};
use crate::human;
use crate::mistake::UserMistake;
use crate::run::{self, CancelFlag, Chosen, RunOptions};
use table::{Held, Table};

pub use table::TableLimits;

/// Scans that are compiled at once.
const PREPARING_MAX: usize = 2;
/// How long a submission waits to be compiled.
const PREPARE_WAIT: Duration = Duration::from_secs(20);
/// Characters of a condition in a list.
const CONDITION_SHOWN_MAX: usize = 200;
/// How long a cancelled scan may take to end before the reply says that it is being cancelled.
const CANCEL_WAIT: Duration = Duration::from_secs(10);
/// Longest wait for the end of an ephemeral scan without a deadline: as long as the longest deadline.
const EPHEMERAL_WAIT: Duration = Duration::from_secs(30 * 24 * 3600);

/// Chooses what computes a scan: `cpu`, `cuda` or, with none, what fits it.
pub type Choose = dyn Fn(Option<&str>, &PreparedScan) -> Result<Chosen, UserMistake> + Send + Sync;

/// How much a server of this kind does at once, and keeps.
#[derive(Debug, Clone, Copy)]
pub struct EmbeddedLimits {
    /// Scans.
    pub scans: TableLimits,
    /// Questions beside them.
    pub questions: QuestionLimits,
}

/// Runs scans in this process. Cheap to clone.
#[derive(Clone)]
pub struct Embedded(Arc<Shared>);

struct Shared {
    store: Store,
    questions: Questions,
    choose: Box<Choose>,
    preparing: Arc<Semaphore>,
    /// Estimated bytes of the largest answer.
    answer_bytes_max: u64,
    /// As in a coordinator: what a token allows is what it allows here.
    quotas: Quotas,
    /// Set once no further scan is taken.
    closed: AtomicBool,
    /// Part of the scans' ids: unique across restarts.
    boot: String,
    table: Mutex<Table>,
}

/// One scan. Its state is in a channel, which whoever waits for it watches.
pub(super) struct Scan {
    pub(super) id: String,
    pub(super) owner: String,
    pub(super) state: watch::Sender<pb::ScanInfo>,
    pub(super) cancel: CancelFlag,
    /// Counts it as one of its owner's until it ends.
    pub(super) permit: Mutex<Option<RunningPermit>>,
    /// Until it begins.
    pub(super) work: Mutex<Option<Box<Work>>>,
    /// Once it has ended.
    pub(super) outcome: Mutex<Option<Result<Arc<Scanned>, Problem>>>,
}

/// What a scan needs to run.
pub(super) struct Work {
    prepared: PreparedScan,
    options: RunOptions,
}

struct Reported<'a>(&'a watch::Sender<pb::ScanInfo>);

impl Progress for Reported<'_> {
    fn accepted(&self, segments: usize, _symbols: usize) {
        self.0.send_modify(|info| {
            info.segments = u32::try_from(segments).unwrap_or(u32::MAX);
            (info.segments_ended, info.step) = (0, info.step + 1);
        });
    }

    fn segment_ended(&self, _segment: u32, done: usize) {
        self.0.send_modify(|info| info.segments_ended = u32::try_from(done).unwrap_or(u32::MAX));
    }
}

fn now_us() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

fn may_see(caller: &Caller, owner: &str) -> bool {
    caller.name == owner || caller.rights.iter().any(|right| right.covers(Right::ReadAll))
}

/// Cancels an ephemeral scan whose request went away, and forgets it.
struct EndsWithRequest {
    door: Embedded,
    scan: Arc<Scan>,
}

impl Drop for EndsWithRequest {
    fn drop(&mut self) {
        self.door.stop(&self.scan);
        self.door.table().forget(&self.scan.id);
    }
}

impl Embedded {
    /// Over the datasets of a store.
    pub fn new(store: Store, limits: EmbeddedLimits, choose: Box<Choose>) -> Self {
        Self(Arc::new(Shared {
            questions: Questions::new(store.clone(), limits.questions),
            store,
            choose,
            preparing: Arc::new(Semaphore::new(PREPARING_MAX)),
            answer_bytes_max: limits.scans.kept_bytes,
            quotas: Quotas::new(QuotaLimits::default()),
            closed: AtomicBool::new(false),
            boot: fresh_boot(),
            table: Mutex::new(Table::new(limits.scans)),
        }))
    }

    fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes no further scan, and waits until none runs or waits, at most so long; what is left is cancelled.
    pub async fn drain(&self, wait: Duration) {
        self.0.closed.store(true, Ordering::Relaxed);
        let idle = async {
            loop {
                let Some(scan) = self.table().unfinished().into_iter().next() else { return };
                until_ended(scan.state.subscribe(), wait).await;
            }
        };
        if tokio::time::timeout(wait, idle).await.is_err() {
            for scan in self.table().unfinished() {
                tracing::warn!(scan = scan.id, "a scan did not finish, and is cancelled");
                self.stop(&scan);
            }
        }
    }

    async fn begin(&self, call: &Call, submission: Submission) -> Result<Arc<Scan>, Problem> {
        if self.0.closed.load(Ordering::Relaxed) {
            return Err(Problem::new(Kind::Unavailable, "this server is ending, and takes no further scan"));
        }
        let digest = submission.idempotency_key.as_ref().map(|_| request_digest(&submission));
        let key = submission.idempotency_key.clone().map(|key| (call.caller.name.clone(), key));
        if let (Some(key), Some(digest)) = (&key, digest)
            && let Some(known) = self.table().known(key, &digest)?
        {
            return Ok(known);
        }
        if submission.priority > call.caller.allowance.priority {
            let (asked, limit) = (submission.priority.name(), call.caller.allowance.priority.name());
            let message = format!("priority {asked} is not granted to {}: at most {limit}", call.caller.name);
            return Err(Problem::new(Kind::Denied, message));
        }
        let bytes = submission.asked.document.to_json().len();
        let running = self.0.quotas.admit(&call.caller, bytes, Instant::now());
        let running = running.map_err(|status| Problem::of_status(&status))?;
        let permit = turn(&self.0.preparing, PREPARE_WAIT).await?;
        let (door, caller) = (self.clone(), call.caller.clone());
        let compiling = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            door.compiled(&caller, submission)
        });
        let internal = |_| Err(Problem::new(Kind::Internal, "internal error while the scan was prepared"));
        let (work, mut info, ephemeral) = compiling.await.unwrap_or_else(internal)?;
        let bytes = work.prepared.answer_bytes();
        let cancel = work.options.cancel.clone().unwrap_or_default();
        let mut table = self.table();
        info.scan_id = format!("{}-{}", self.0.boot, table.next_number());
        info.owner.clone_from(&call.caller.name);
        let scan = Arc::new(Scan {
            id: info.scan_id.clone(),
            owner: info.owner.clone(),
            state: watch::Sender::new(info),
            cancel,
            permit: Mutex::new(Some(running)),
            work: Mutex::new(Some(Box::new(work))),
            outcome: Mutex::default(),
        });
        let key = key.zip(digest);
        let added = table.add(Held { scan: Arc::clone(&scan), bytes, key, ephemeral });
        drop(table);
        let added = added?;
        if added.is_none() {
            let (caller, info) = (&scan.owner, scan.state.borrow().clone());
            let (dataset, segments) = (info.dataset, info.segments);
            tracing::info!(target: AUDIT_TARGET, scan = scan.id, caller, dataset, segments, durable = false, "scan accepted");
        }
        self.start_next();
        Ok(added.unwrap_or(scan))
    }

    /// Compiles a scan. Blocks.
    fn compiled(&self, caller: &Caller, submission: Submission) -> Result<(Work, pb::ScanInfo, bool), Problem> {
        let Submission { asked, priority, deadline, ephemeral, allow_partial, backend, shards, .. } = submission;
        let condition: String = asked.document.condition.chars().take(CONDITION_SHOWN_MAX).collect();
        let prepared = prepared(&self.0.store, caller, asked)?;
        let (bytes, most) = (prepared.answer_bytes(), self.0.answer_bytes_max);
        if bytes > most {
            let (size, limit) = (human::bytes(bytes), human::bytes(most));
            let message = format!("the answer may have {size}, and at most {limit} are kept here");
            let help = "keep fewer rows or columns, such as with 'best', or start the server with a larger --results-memory-bytes";
            return Err(Problem::new(Kind::TooLarge, message).help(help));
        }
        let chosen = (self.0.choose)(backend, &prepared).map_err(|mistake| Problem::of_mistake(&mistake))?;
        let cancel = Some(CancelFlag::default());
        let options = RunOptions { shards, deadline, allow_partial, chosen, cancel, threads: None, checkpoints: None };
        let info = pb::ScanInfo {
            state: pb::ScanState::Queued.into(),
            priority: pb::Priority::from(priority).into(),
            submitted_us: now_us(),
            dataset: prepared.dataset_reference(),
            condition,
            segments: u32::try_from(prepared.segments.len()).unwrap_or(u32::MAX),
            ..pb::ScanInfo::default()
        };
        Ok((Work { prepared, options }, info, ephemeral))
    }

    /// Begins the scans whose turn it is.
    fn start_next(&self) {
        loop {
            let Some(scan) = self.table().take_next() else { return };
            let door = self.clone();
            tokio::spawn(async move {
                let running = Arc::clone(&scan);
                // A panic is reported by its thread.
                let outcome = tokio::task::spawn_blocking(move || run_scan(&running))
                    .await
                    .unwrap_or_else(|_| Err(Problem::new(Kind::Internal, "internal error while the scan ran")));
                door.end(&scan, outcome);
                door.table().ended_running();
                door.start_next();
            });
        }
    }

    /// Records how a scan ended.
    fn end(&self, scan: &Scan, outcome: Result<Scanned, Problem>) {
        scan.permit.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Of a scan that never began.
        scan.work.lock().unwrap_or_else(PoisonError::into_inner).take();
        let outcome = outcome.map(Arc::new);
        let ended = outcome.clone();
        *scan.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        let failed = ended.as_ref().err().map(|problem| (problem.error.kind, problem.error.message.clone()));
        scan.state.send_modify(|info| {
            info.ended_us = Some(now_us());
            match ended {
                Ok(scanned) => {
                    info.state = pb::ScanState::Done.into();
                    info.answer_digest.clone_from(&scanned.answer.digest);
                    info.failed_symbols = scanned.answer.counts()[trawl_wire::Status::Failed as usize] as u64;
                }
                Err(problem) if problem.error.kind == Kind::Cancelled => {
                    info.state = pb::ScanState::Cancelled.into();
                }
                Err(problem) => {
                    info.state = pb::ScanState::Failed.into();
                    info.failure = Some(failure_of(&problem).into());
                }
            }
        });
        self.table().relieve();
        let (caller, info) = (&scan.owner, scan.state.borrow().clone());
        let seconds = info.ended_us.unwrap_or(info.submitted_us).saturating_sub(info.submitted_us) as f64 / 1e6;
        let (outcome, why) = match failed {
            None => ("done", String::new()),
            Some((Kind::Cancelled, why)) => ("cancelled", why),
            Some((_, why)) => ("failed", why),
        };
        let (dataset, digest, failed_symbols) = (info.dataset, info.answer_digest, info.failed_symbols);
        tracing::info!(target: AUDIT_TARGET, scan = scan.id, caller, dataset, outcome, failed_symbols, seconds, digest, why, "scan ended");
    }

    /// Cancels a scan, which ends soon; one that waits ends at once.
    fn stop(&self, scan: &Arc<Scan>) {
        scan.cancel.set();
        if self.table().withdraw(&scan.id) {
            self.end(scan, Err(Problem::new(Kind::Cancelled, "the scan was cancelled")));
        }
    }

    fn find(&self, call: &Call, id: &str) -> Result<Arc<Scan>, Problem> {
        let found = self.table().get(id).filter(|scan| may_see(&call.caller, &scan.owner));
        found.ok_or_else(|| {
            let id: String = id.chars().filter(|c| !c.is_control()).take(64).collect();
            Problem::new(Kind::NotFound, format!("no scan '{id}' is known here"))
                .help("GET /v1/scans lists those that are; ended ones are kept as long as there is room")
        })
    }
}

/// Runs a scan to its end. Blocks.
fn run_scan(scan: &Scan) -> Result<Scanned, Problem> {
    let work = scan.work.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(work) = work else { return Err(Problem::new(Kind::Internal, "the scan was begun twice")) };
    scan.state.send_modify(|info| info.state = pb::ScanState::Running.into());
    let ran = run::embedded(&work.prepared, work.options, &Reported(&scan.state));
    let outcome = ran.map_err(|error| Problem::of_error(&error.into()))?;
    let mut report = outcome.report;
    report.scan.clone_from(&scan.id);
    for lost in &report.devices_lost {
        tracing::error!(scan = scan.id, "{}", lost.sentence());
    }
    Ok(Scanned {
        answer: outcome.answer,
        report,
        synthetic: outcome.synthetic,
        timeframe: outcome.timeframe,
        document: outcome.document,
    })
}

/// The failure in a scan's state.
fn failure_of(problem: &Problem) -> Failure {
    let kind = match problem.error.kind {
        Kind::Invalid => ErrorKind::Invalid,
        Kind::DeadlineExceeded => ErrorKind::DeadlineExceeded,
        Kind::Unavailable | Kind::TooMany => ErrorKind::Retryable,
        _ => ErrorKind::Permanent,
    };
    Failure::new(kind, problem.error.message.clone())
}

/// Digest of all that makes two requests the same.
fn request_digest(submission: &Submission) -> [u8; 32] {
    let Submission { asked, priority, deadline, ephemeral, allow_partial, fresh, profile, backend, shards, .. } =
        submission;
    let options = (priority.name(), deadline, ephemeral, allow_partial, fresh, profile, backend, shards);
    let text = format!("{}\n{}\n{options:?}", asked.document.to_json(), asked.as_of);
    Sha256::digest(text).into()
}

#[tonic::async_trait]
impl Door for Embedded {
    fn mode(&self) -> &'static str {
        MODE_EMBEDDED
    }

    async fn submit(&self, call: &Call, submission: Submission) -> Result<pb::ScanInfo, Problem> {
        let scan = self.begin(call, submission).await?;
        let info = scan.state.borrow().clone();
        Ok(info)
    }

    async fn run_ephemeral(&self, call: &Call, submission: Submission) -> Result<Scanned, Problem> {
        let scan = self.begin(call, submission).await?;
        let ends = EndsWithRequest { door: self.clone(), scan };
        until_ended(ends.scan.state.subscribe(), EPHEMERAL_WAIT).await;
        let outcome = ends.scan.outcome.lock().unwrap_or_else(PoisonError::into_inner).take();
        let scanned = outcome.unwrap_or_else(|| Err(Problem::new(Kind::Unavailable, "the scan did not end")))?;
        Ok(Arc::unwrap_or_clone(scanned))
    }

    async fn answer(&self, call: &Call, scan: &str) -> Result<Arc<Scanned>, Problem> {
        let scan = self.find(call, scan)?;
        let outcome = scan.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone();
        outcome.unwrap_or_else(|| Err(Problem::new(Kind::Conflict, format!("scan {} has not ended", scan.id))))
    }

    async fn status(&self, call: &Call, scan: &str) -> Result<pb::ScanInfo, Problem> {
        let info = self.find(call, scan)?.state.borrow().clone();
        Ok(info)
    }

    async fn list(&self, call: &Call, wanted: pb::ListScansRequest) -> Result<Vec<pb::ScanInfo>, Problem> {
        let scans = self.table().all();
        let seen = scans.iter().rev().filter(|scan| may_see(&call.caller, &scan.owner));
        let wants = |info: &pb::ScanInfo| table::is_wanted(&wanted, info);
        let most = if wanted.limit == 0 { usize::MAX } else { wanted.limit as usize };
        Ok(seen.map(|scan| scan.state.borrow().clone()).filter(wants).take(most).collect())
    }

    async fn cancel(&self, call: &Call, scan: &str) -> Result<pb::ScanInfo, Problem> {
        let scan = self.find(call, scan)?;
        if scan.owner != call.caller.name && !call.caller.rights.contains(&Right::Admin) {
            let message = format!("scan {} is not {}'s: that takes the role admin", scan.id, call.caller.name);
            return Err(Problem::new(Kind::Denied, message));
        }
        self.stop(&scan);
        let ended = until_ended(scan.state.subscribe(), CANCEL_WAIT).await;
        Ok(ended.unwrap_or_else(|| scan.state.borrow().clone()))
    }

    async fn watch(&self, call: &Call, scan: &str) -> Result<watch::Receiver<pb::ScanInfo>, Problem> {
        Ok(self.find(call, scan)?.state.subscribe())
    }

    async fn report(&self, call: &Call, scan: &str) -> Result<Value, Problem> {
        let scanned = self.answer(call, scan).await?;
        serde_json::to_value(&scanned.report).map_err(|error| Problem::of_error(&error.into()))
    }

    fn questions(&self) -> &Questions {
        &self.0.questions
    }

    async fn datasets(&self, call: &Call) -> Result<Vec<DatasetSummary>, Problem> {
        self.0.questions.datasets(&call.caller).await
    }

    async fn inspect(&self, call: &Call, dataset: &str, symbol: Option<String>) -> Result<Inspected, Problem> {
        self.0.questions.inspect(&call.caller, dataset.to_owned(), symbol, false).await
    }

    async fn workers(&self, _: &Call) -> Result<Vec<pb::WorkerInfo>, Problem> {
        Ok(Vec::new())
    }

    async fn coordinators(&self, _: &Call) -> Result<Vec<pb::CoordinatorInfo>, Problem> {
        Ok(Vec::new())
    }
}

/// Whether a scan has ended, for the table.
pub(super) fn ended(scan: &Scan) -> bool {
    has_ended(&scan.state.borrow())
}

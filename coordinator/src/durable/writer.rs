//! Group commit: writes the results of a scan's segments to the result store, many segments per object.
//!
//! One task per scan and generation. Finished segments wait in a channel that is bounded by their bytes: a slow store
//! applies backpressure and never fills the memory. A group is closed when it is old or large enough; a put is retried
//! under the same name with the same bytes, so it does not matter which try arrived. If the store stays unavailable or
//! is full, the writer fails with its reason, and so does the scan. The last group has the ends of the answer, so that a small scan is
//! one object.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use trawl_cluster_store::{Backoff, ControlStore};
use trawl_wire::{ErrorKind, Failure};

use super::group::{AnswerEnds, COMMIT_BYTES_MAX, GroupName, Stored};
use super::ledger::{Ledger, Written};
use super::records::Progress;
use super::results::ResultStore;
use super::store_error::StoreError;

/// How long a segment waits for others before its group is closed.
pub const COMMIT_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum bytes of segments waiting to be stored, per scan.
pub const BUFFER_BYTES_MAX: usize = 4 * COMMIT_BYTES_MAX;
/// Time before the first progress record of a scan: one that ends sooner has none.
pub const PROGRESS_DELAY: Duration = Duration::from_secs(1);
/// Minimum time between two progress records of a scan.
pub const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum tries of one put. With the waits below a store that refuses at once is asked for half a minute.
pub const PUT_TRIES_MAX: u32 = 14;
/// Longest that one try may take.
pub const PUT_TIMEOUT: Duration = Duration::from_secs(30);
/// Wait before the second try; doubles with each.
pub const BACK_OFF: Duration = Duration::from_millis(100);
/// Longest wait between two tries.
pub const BACK_OFF_MAX: Duration = Duration::from_secs(5);
/// How long the result store may be unavailable when only the last group of a scan remains to be stored: a short outage must not cost
/// hours of work.
pub const LAST_PUT_PATIENCE: Duration = Duration::from_secs(600);
/// Bytes of a group that may have the ends of the answer too: of more, they are in a group of their own, so that they can be read without
/// the results.
const GROUP_WITH_ENDS_BYTES_MAX: usize = 512 * 1024;
/// Names that are tried for one group while others have them.
const NAMES_TAKEN_MAX: u32 = 1024;
/// Maximum number of waiting segments, however small they are.
const SEGMENTS_WAITING_MAX: usize = 4096;
/// Bytes per permit of the budget.
const PERMIT_BYTES: usize = 1024;

/// Bounds of a writer, which tests make smaller.
#[derive(Debug, Clone, Copy)]
pub struct WriterLimits {
    /// See [`COMMIT_INTERVAL`].
    pub commit_interval: Duration,
    /// See [`COMMIT_BYTES_MAX`].
    pub commit_bytes_max: usize,
    /// See [`BUFFER_BYTES_MAX`].
    pub buffer_bytes_max: usize,
    /// See [`PROGRESS_DELAY`].
    pub progress_delay: Duration,
    /// See [`PROGRESS_INTERVAL`].
    pub progress_interval: Duration,
    /// See [`PUT_TRIES_MAX`].
    pub put_tries_max: u32,
    /// See [`PUT_TIMEOUT`].
    pub put_timeout: Duration,
    /// See [`LAST_PUT_PATIENCE`].
    pub last_put_patience: Duration,
    /// See [`BACK_OFF`].
    pub back_off: Duration,
}

impl Default for WriterLimits {
    fn default() -> Self {
        Self {
            commit_interval: COMMIT_INTERVAL,
            commit_bytes_max: COMMIT_BYTES_MAX,
            buffer_bytes_max: BUFFER_BYTES_MAX,
            progress_delay: PROGRESS_DELAY,
            progress_interval: PROGRESS_INTERVAL,
            put_tries_max: PUT_TRIES_MAX,
            put_timeout: PUT_TIMEOUT,
            last_put_patience: LAST_PUT_PATIENCE,
            back_off: BACK_OFF,
        }
    }
}

/// What is held until a segment is stored, such as its share of a budget of the caller.
pub type HeldUntilStored = Box<dyn Send + Sync>;

enum Ask {
    Store { stage: u32, stored: Stored, permit: (OwnedSemaphorePermit, Option<HeldUntilStored>) },
    Flush(oneshot::Sender<()>),
    Finish(Box<AnswerEnds>, oneshot::Sender<()>),
}

/// Hands segments of one scan to the task that stores them. Dropping it gives up what has not been stored.
#[derive(Debug)]
pub struct Writer {
    asks: mpsc::Sender<Ask>,
    budget: Arc<Semaphore>,
    permits_max: usize,
    failed: watch::Receiver<Option<Failure>>,
    tasks: [AbortHandle; 2],
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Writer {
    /// Starts the tasks of a generation of a scan. `stored`: the segments of its current stage, `stage`, that are
    /// already stored.
    pub fn start<S: ControlStore>(
        store: ResultStore,
        ledger: Ledger<S>,
        scan: &str,
        generation: u32,
        (stage, stored): (u32, BTreeSet<u32>),
        limits: WriterLimits,
    ) -> Self {
        let (asks, asked) = mpsc::channel(SEGMENTS_WAITING_MAX);
        let permits_max = (limits.buffer_bytes_max / PERMIT_BYTES).clamp(1, Semaphore::MAX_PERMITS);
        let budget = Arc::new(Semaphore::new(permits_max));
        let (fail, failed) = watch::channel(None);
        let fail = Arc::new(fail);
        let (progress, noted) = watch::channel(Progress::new(generation, stage, &stored));
        let paces = (limits.progress_delay, limits.progress_interval);
        let noting = note(ledger.clone(), scan.to_owned(), noted, paces, Arc::clone(&fail));
        let committer = Committer {
            store,
            scan: scan.to_owned(),
            generation,
            epoch: u64::try_from(ledger.term().epoch).unwrap_or_default(),
            numbers: ledger.groups(),
            limits,
            stage,
            stored,
            held: Vec::new(),
            permits: Vec::new(),
            bytes: 0,
            since: None,
            progress,
            making: None,
        };
        let closed = Arc::clone(&budget);
        let committing = async move {
            if let Err(failure) = committer.run(asked).await {
                tracing::warn!(%failure, "results of a scan cannot be stored");
                fail.send_if_modified(|known| known.is_none() && known.replace(failure).is_none());
            }
            closed.close();
        };
        let tasks = [tokio::spawn(committing).abort_handle(), tokio::spawn(noting).abort_handle()];
        Self { asks, budget, permits_max, failed, tasks }
    }

    /// Queues a segment's outcome; waits while the buffer is full. It is stored once [`Writer::flush`] returns. `held` is
    /// dropped when it is stored.
    ///
    /// # Errors
    /// Why the scan cannot continue.
    pub async fn store(&self, stage: u32, stored: Stored, held: Option<HeldUntilStored>) -> Result<(), Failure> {
        self.check()?;
        // One that is larger than the whole budget waits until nothing else is waiting.
        let permits = stored.bytes().div_ceil(PERMIT_BYTES).clamp(1, self.permits_max);
        let permits = u32::try_from(permits).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.budget).acquire_many_owned(permits).await;
        let Ok(permit) = permit else { return Err(self.reason().await) };
        let sent = self.asks.send(Ask::Store { stage, stored, permit: (permit, held) }).await;
        if sent.is_err() { Err(self.reason().await) } else { Ok(()) }
    }

    /// Waits until everything queued is stored.
    ///
    /// # Errors
    /// Why the scan cannot continue.
    pub async fn flush(&self) -> Result<(), Failure> {
        self.check()?;
        let (reply, replied) = oneshot::channel();
        if self.asks.send(Ask::Flush(reply)).await.is_err() || replied.await.is_err() {
            return Err(self.reason().await);
        }
        self.check()
    }

    /// Stores everything queued, and with the last of it the ends of the answer; nothing may be queued after it.
    ///
    /// # Errors
    /// Why the scan cannot continue.
    pub async fn finish(&self, ends: AnswerEnds) -> Result<(), Failure> {
        self.check()?;
        let (reply, replied) = oneshot::channel();
        if self.asks.send(Ask::Finish(Box::new(ends), reply)).await.is_err() || replied.await.is_err() {
            return Err(self.reason().await);
        }
        self.check()
    }

    /// Ends when the writer fails, with the reason.
    pub async fn failure(&self) -> Failure {
        let mut failed = self.failed.clone();
        let known = failed.wait_for(Option::is_some).await.ok().and_then(|known| known.clone());
        match known {
            Some(failure) => failure,
            // The tasks ended without a failure: nothing more will come.
            None => std::future::pending().await,
        }
    }

    fn check(&self) -> Result<(), Failure> {
        self.failed.borrow().clone().map_or(Ok(()), Err)
    }

    /// Why the task that stores has ended. It lets go of what waits for it a moment before it says why.
    async fn reason(&self) -> Failure {
        let mut failed = self.failed.clone();
        let known = failed.wait_for(Option::is_some).await.ok().and_then(|known| known.clone());
        known.unwrap_or_else(|| Failure::new(ErrorKind::Retryable, "the task that stores results ended"))
    }
}

/// Writes progress records, the newest at most once an interval.
async fn note<S: ControlStore>(
    ledger: Ledger<S>,
    scan: String,
    mut noted: watch::Receiver<Progress>,
    (delay, interval): (Duration, Duration),
    fail: Arc<watch::Sender<Option<Failure>>>,
) {
    sleep(delay).await;
    while noted.changed().await.is_ok() {
        let progress = noted.borrow_and_update().clone();
        match ledger.progress(&scan, &progress).await {
            Ok(Written::Done | Written::Over) => {}
            Ok(Written::NotLeader) => {
                let failure = Failure::new(ErrorKind::Retryable, "another coordinator leads by now");
                fail.send_if_modified(|known| known.is_none() && known.replace(failure).is_none());
                return;
            }
            // Progress is a hint: losing it is harmless.
            Err(error) => tracing::debug!(scan, %error, "progress was not recorded"),
        }
        sleep(interval).await;
    }
}

/// Owns what waits to be stored.
struct Committer {
    store: ResultStore,
    scan: String,
    generation: u32,
    epoch: u64,
    /// The last group number used in this term.
    numbers: Arc<AtomicU32>,
    limits: WriterLimits,
    /// Stage of `held` and `stored`.
    stage: u32,
    stored: BTreeSet<u32>,
    held: Vec<Stored>,
    /// Released when their segments are stored.
    permits: Vec<(OwnedSemaphorePermit, Option<HeldUntilStored>)>,
    bytes: usize,
    /// When the group in hand is closed.
    since: Option<Instant>,
    progress: watch::Sender<Progress>,
    /// Makes the directory of the first stage's groups, while the first segments are computed.
    making: Option<JoinHandle<()>>,
}

impl Committer {
    async fn run(mut self, mut asked: mpsc::Receiver<Ask>) -> Result<(), Failure> {
        let (store, scan, generation, stage) = (self.store.clone(), self.scan.clone(), self.generation, self.stage);
        self.making = Some(tokio::spawn(async move { store.make_directory(&scan, generation, stage).await }));
        loop {
            let ask = match self.since {
                None => asked.recv().await,
                Some(since) => match timeout_at(since + self.limits.commit_interval, asked.recv()).await {
                    Ok(ask) => ask,
                    Err(_) => {
                        self.commit().await?;
                        continue;
                    }
                },
            };
            match ask {
                None => return Ok(()),
                Some(Ask::Flush(reply)) => {
                    self.commit().await?;
                    let _ = reply.send(());
                }
                Some(Ask::Finish(ends, reply)) => {
                    if self.bytes > GROUP_WITH_ENDS_BYTES_MAX {
                        self.commit().await?;
                    }
                    self.finish(&ends).await?;
                    let _ = reply.send(());
                }
                Some(Ask::Store { stage, stored, permit }) => {
                    if stage != self.stage {
                        self.commit().await?;
                        (self.stage, self.stored) = (stage, BTreeSet::new());
                    }
                    self.since.get_or_insert_with(Instant::now);
                    self.bytes += stored.bytes();
                    self.held.push(stored);
                    self.permits.push(permit);
                    if self.bytes >= self.limits.commit_bytes_max {
                        self.commit().await?;
                    }
                }
            }
        }
    }

    /// Stores the group in hand, if there is one.
    async fn commit(&mut self) -> Result<(), Failure> {
        self.since = None;
        if self.held.is_empty() {
            return Ok(());
        }
        self.put(None).await?;
        self.taken();
        self.progress.send_replace(Progress::new(self.generation, self.stage, &self.stored));
        Ok(())
    }

    /// The group in hand is stored.
    fn taken(&mut self) {
        self.stored.extend(self.held.drain(..).map(|stored| stored.segment));
        self.permits.clear();
        self.bytes = 0;
    }

    /// Stores the group in hand with the ends of the answer, and is patient about it.
    async fn finish(&mut self, ends: &AnswerEnds) -> Result<(), Failure> {
        self.since = None;
        let began = Instant::now();
        loop {
            match self.put(Some(ends)).await {
                Ok(()) => break,
                Err(error) if !error.is_retried() || began.elapsed() >= self.limits.last_put_patience => {
                    return Err(error.into());
                }
                Err(error) => {
                    tracing::warn!(scan = self.scan, %error, "the last results of a scan are not stored yet, trying on");
                }
            }
        }
        self.taken();
        Ok(())
    }

    /// Stores the group in hand under the next name. After a restore from a backup, etcd gives epochs again: an earlier
    /// leader may have used the name. What it stored is kept, and the name after it is tried.
    async fn put(&mut self, ends: Option<&AnswerEnds>) -> Result<(), StoreError> {
        if let Some(making) = self.making.take() {
            let _ = making.await;
        }
        let mut taken = 0;
        loop {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            let name = GroupName { stage: self.stage, epoch: self.epoch, number };
            let put = || self.store.put_group_with(&self.scan, self.generation, name, &self.held, ends);
            match put_patiently(&self.store, &self.limits, put).await {
                Err(error @ StoreError::Conflict { .. }) if taken < NAMES_TAKEN_MAX => {
                    taken += 1;
                    tracing::warn!(%error, "an earlier leader used this name in an epoch of the same number, trying the next");
                }
                done => return done,
            }
        }
    }
}

/// Retries a put of `store` until it succeeds, fails permanently, or is out of tries.
///
/// # Errors
/// The error of the last try.
pub(crate) async fn put_patiently<T, F: Future<Output = Result<T, StoreError>>>(
    store: &ResultStore,
    limits: &WriterLimits,
    put: impl Fn() -> F,
) -> Result<T, StoreError> {
    let mut backoff = Backoff::new(limits.back_off, BACK_OFF_MAX);
    let mut tried = 0;
    loop {
        tried += 1;
        let error = match timeout(limits.put_timeout, put()).await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) => error,
            Err(_) => StoreError::Unreachable {
                store: store.shown().to_owned(),
                cause: format!("no answer within {} s", limits.put_timeout.as_secs_f64()),
            },
        };
        if tried >= limits.put_tries_max || !error.is_retried() {
            return Err(error);
        }
        tracing::debug!(%error, tried, "an object was not stored yet");
        backoff.wait().await;
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;

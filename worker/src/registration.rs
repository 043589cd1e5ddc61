//! Keeps a worker's record in the control store for as long as the process lives.
//!
//! It has its own thread, runtime and client, so that neither a busy executor nor a full network to a coordinator makes
//! a living worker look dead. An expired lease (reported by the store, or because it was unreachable for too long) is
//! replaced by a new one and the record is put again: workers compute pure functions, so results computed meanwhile are
//! still valid.

use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use trawl_cluster_store::{
    Backoff, ControlError, ControlStore, Guard, HISTORY_CHECK_INTERVAL, HistoryCheck, HistoryLost, LeaseId, Write,
};
use trawl_telemetry::metrics::catalogue::worker::{LEASE_FAILURES, LEASE_RENEWALS, LEASES_LOST};
use trawl_wire::WorkerRecord;
use trawl_wire::record::worker_key;

/// Time to live of a worker's lease.
pub const LEASE_TTL_DEFAULT: Duration = Duration::from_secs(5);
/// Renewals of a lease within its time to live.
const RENEWALS_PER_TTL: u32 = 3;
/// Wait before the first registration is retried; doubles up to [`BACK_OFF_MAX`].
const BACK_OFF: Duration = Duration::from_millis(100);
/// Longest wait between tries.
const BACK_OFF_MAX: Duration = Duration::from_secs(2);
/// Timeout of leaving: if the store is unavailable, the lease expires by itself.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);

/// The configuration of a registration.
#[derive(Debug, Clone)]
pub struct Registration {
    /// Prefix of every key.
    pub cluster_name: String,
    /// The record to register.
    pub record: WorkerRecord,
    /// See [`LEASE_TTL_DEFAULT`]; whole seconds.
    pub lease_ttl: Duration,
    /// How long the first registration may take; later outages of the store are waited out.
    pub start_timeout: Duration,
}

/// Why a registered worker must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Superseded {
    /// Another process has registered under its id.
    Replaced,
    /// The store lost what it had acknowledged: the epochs that this worker knows are of the past.
    HistoryLost(HistoryLost),
}

/// A change to the record of a registered worker.
#[derive(Debug)]
enum RecordChange {
    /// It leaves.
    Draining,
    /// The state of its devices.
    DeviceHealth(String),
}

/// A registered worker. Ends with [`Registered::leave`], or with the process.
#[derive(Debug)]
pub struct Registered {
    stop: oneshot::Sender<()>,
    /// Requests that the record be changed; the reply is sent once it is stored.
    changes: mpsc::Sender<(RecordChange, oneshot::Sender<()>)>,
    /// Why this process must end, once it must.
    superseded: watch::Receiver<Option<Superseded>>,
    thread: JoinHandle<()>,
}

/// Registers, and returns once the record is stored.
///
/// # Errors
/// The store's error, if it could not be reached within `start_timeout`.
pub async fn register(store: impl ControlStore, registration: Registration) -> Result<Registered, ControlError> {
    let (stop, stopped) = oneshot::channel();
    let (changes, changed) = mpsc::channel(1);
    let (answer, answered) = oneshot::channel();
    let (supersede, superseded) = watch::channel(None);
    let thread = std::thread::Builder::new().name("trawl-lease".to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(keep(store, registration, answer, (stopped, changed), &supersede)),
            Err(error) => {
                let _ = answer.send(Err(no_thread(&error)));
            }
        }
    });
    let thread = thread.map_err(|error| no_thread(&error))?;
    // The sender is dropped only by a thread that died.
    answered.await.unwrap_or_else(|error| Err(no_thread(&error)))?;
    Ok(Registered { stop, changes, superseded, thread })
}

fn no_thread(error: &dyn std::error::Error) -> ControlError {
    ControlError::Unreachable { endpoints: "this process".to_owned(), cause: format!("the lease thread: {error}") }
}

impl Registered {
    /// Marks the record as draining; bounded in time. The lease is kept.
    pub async fn drain(&self) {
        if !self.change(RecordChange::Draining).await {
            tracing::warn!("the record could not be changed; whoever sends work here is refused");
        }
    }

    /// Writes the state of its devices into the record, for whoever lists workers; bounded in time. If it cannot be written, it
    /// is when the record is next put.
    pub async fn device_health(&self, health: String) {
        self.change(RecordChange::DeviceHealth(health)).await;
    }

    /// Whether a change was stored in time.
    async fn change(&self, change: RecordChange) -> bool {
        let (answer, answered) = oneshot::channel();
        // The thread has ended if it does not take the change.
        self.changes.send((change, answer)).await.is_err()
            || matches!(tokio::time::timeout(LEAVE_TIMEOUT, answered).await, Ok(Ok(())))
    }

    /// Completes once this process must end, with the reason.
    pub async fn superseded(&self) -> Superseded {
        let mut superseded = self.superseded.clone();
        let known = superseded.wait_for(Option::is_some).await.ok().and_then(|known| *known);
        match known {
            Some(why) => why,
            // The thread has ended: nothing is known any more.
            None => std::future::pending().await,
        }
    }

    /// Deletes the record (bounded in time) and ends the thread.
    pub async fn leave(self) {
        let _ = self.stop.send(());
        let _ = tokio::task::spawn_blocking(move || self.thread.join()).await;
    }
}

async fn keep(
    store: impl ControlStore,
    mut registration: Registration,
    answer: oneshot::Sender<Result<(), ControlError>>,
    (mut stopped, mut changes): (oneshot::Receiver<()>, mpsc::Receiver<(RecordChange, oneshot::Sender<()>)>),
    supersede: &watch::Sender<Option<Superseded>>,
) {
    let key = worker_key(&registration.cluster_name, &registration.record.id);
    let first = tokio::time::timeout(registration.start_timeout, first_lease(&store, &key, &registration));
    let (check, mut lease) = match first.await {
        Ok(first) => first,
        // Timed out: one last try yields the reason.
        Err(_) => match begin(&store, &key, &registration).await {
            Ok(first) => first,
            Err(error) => {
                let _ = answer.send(Err(error));
                return;
            }
        },
    };
    let _ = answer.send(Ok(()));
    let period = registration.lease_ttl / RENEWALS_PER_TTL;
    let (mut wait, mut backoff) = (period, Backoff::new(BACK_OFF, period));
    let history = check.lost(&store, &key, HISTORY_CHECK_INTERVAL);
    tokio::pin!(history);
    loop {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            lost = &mut history, if supersede.borrow().is_none() => {
                tracing::error!(worker = registration.record.id, "{lost}");
                supersede.send_replace(Some(Superseded::HistoryLost(lost)));
                continue;
            }
            // Also when the handle was dropped without leaving.
            _ = &mut stopped => break,
            Some((change, answer)) = changes.recv() => {
                match (change, &mut registration.record.device) {
                    (RecordChange::Draining, _) => registration.record.draining = true,
                    (RecordChange::DeviceHealth(health), Some(devices)) => devices.health = health,
                    (RecordChange::DeviceHealth(_), None) => {}
                }
                let record = serde_json::to_vec(&registration.record).unwrap_or_default();
                match store.put(&key, record, Some(lease)).await {
                    Ok(()) => drop(answer.send(())),
                    Err(error) => tracing::warn!(%error, "the record could not be changed"),
                }
            }
        }
        let renewed = async {
            let kept = match store.keep_alive(lease).await {
                Err(ControlError::LeaseOver) => {
                    LEASES_LOST.inc();
                    tracing::warn!(worker = registration.record.id, "the lease is over");
                    None
                }
                kept => {
                    kept?;
                    Some(lease)
                }
            };
            match (whose(&store, &key, &registration).await?, kept) {
                (Whose::Own(_), Some(lease)) => Ok(lease),
                (Whose::Others, kept) => {
                    tracing::error!(
                        worker = registration.record.id,
                        "another process has registered under this worker's id: this one ends"
                    );
                    supersede.send_replace(Some(Superseded::Replaced));
                    Ok(kept.unwrap_or(lease))
                }
                (Whose::Own(_) | Whose::Nobodys, kept) => {
                    tracing::warn!(worker = registration.record.id, "the record is gone, registering again");
                    match kept {
                        Some(lease) => put_under(&store, &key, &registration, lease).await.map(|()| lease),
                        None => put_record(&store, &key, &registration).await,
                    }
                }
            }
        };
        // A call that is not answered must not delay leaving.
        let renewed = tokio::select! {
            renewed = renewed => renewed,
            _ = &mut stopped => break,
        };
        match renewed {
            Ok(kept) => {
                LEASE_RENEWALS.inc();
                (lease, wait) = (kept, period);
                backoff.reset();
            }
            Err(error) => {
                LEASE_FAILURES.inc();
                tracing::warn!(%error, "the lease could not be renewed, trying again");
                // Soon at first, since the lease is running out.
                wait = backoff.next_wait();
            }
        }
    }
    let leave = async {
        // The record of another process is not deleted.
        if let Whose::Own(revision) = whose(&store, &key, &registration).await? {
            let own = Guard::Created { key: key.clone(), revision };
            store.commit(&[own], vec![Write::Delete { key: key.clone() }]).await?;
        }
        store.revoke(lease).await
    };
    if !matches!(tokio::time::timeout(LEAVE_TIMEOUT, leave).await, Ok(Ok(()))) {
        tracing::warn!("the record could not be deleted; it goes when its lease ends");
    }
}

/// The owner of the record under a worker's key.
enum Whose {
    /// This process; the key was created at this revision.
    Own(i64),
    Nobodys,
    Others,
}

async fn whose(store: &impl ControlStore, key: &str, registration: &Registration) -> Result<Whose, ControlError> {
    let Some(entry) = store.get(key).await? else { return Ok(Whose::Nobodys) };
    let there = serde_json::from_slice::<WorkerRecord>(&entry.value);
    let own = there.is_ok_and(|record| record.boot == registration.record.boot);
    Ok(if own { Whose::Own(entry.created) } else { Whose::Others })
}

/// Registers for the first time, retrying without limit.
async fn first_lease(store: &impl ControlStore, key: &str, registration: &Registration) -> (HistoryCheck, LeaseId) {
    let mut backoff = Backoff::new(BACK_OFF, BACK_OFF_MAX);
    loop {
        match begin(store, key, registration).await {
            Ok(first) => return first,
            Err(error) => tracing::debug!(%error, "not registered yet"),
        }
        backoff.wait().await;
    }
}

async fn begin(
    store: &impl ControlStore,
    key: &str,
    registration: &Registration,
) -> Result<(HistoryCheck, LeaseId), ControlError> {
    let check = HistoryCheck::begin(store, key).await?;
    put_record(store, key, registration).await.map(|lease| (check, lease))
}

async fn put_record(
    store: &impl ControlStore,
    key: &str,
    registration: &Registration,
) -> Result<LeaseId, ControlError> {
    let lease = store.grant(registration.lease_ttl).await?;
    put_under(store, key, registration, lease).await.map(|()| lease)
}

async fn put_under(
    store: &impl ControlStore,
    key: &str,
    registration: &Registration,
    lease: LeaseId,
) -> Result<(), ControlError> {
    let record = serde_json::to_vec(&registration.record).unwrap_or_default();
    store.put(key, record, Some(lease)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Instant;
    use trawl_cluster_store::Change;
    use trawl_testing::MemoryStore;

    /// Timeout of every awaited change.
    const BOUND: Duration = Duration::from_secs(10);

    fn registration() -> Registration {
        let record = WorkerRecord {
            id: "w1".to_owned(),
            address: "127.0.0.1:1".to_owned(),
            boot: "b1".to_owned(),
            protocol_version: 1,
            protocol_oldest: 0,
            result_schema: "0".to_owned(),
            result_schemas_earlier: Vec::new(),
            class: crate::execution_class(),
            threads: 1,
            cache_bytes: 0,
            device: None,
            draining: false,
        };
        let lease_ttl = Duration::from_millis(150);
        Registration { cluster_name: "c".to_owned(), record, lease_ttl, start_timeout: Duration::from_millis(400) }
    }

    #[tokio::test]
    async fn a_worker_registers_again_when_its_lease_is_over_and_leaves_nothing_behind() {
        let store = Arc::new(MemoryStore::default());
        let mut watch = store.watch("c/workers/", 0).await.unwrap();
        let registered = register(store.clone(), registration()).await.unwrap();
        let is_record = |change: Option<Change>| matches!(change, Some(Change::Put(e)) if e.key == "c/workers/w1");
        let mut next = async || tokio::time::timeout(BOUND, watch.recv()).await.expect("a change in time");
        assert!(is_record(next().await));
        store.expire_leases();
        assert!(matches!(next().await, Some(Change::Deleted { .. })));
        assert!(is_record(next().await), "it comes back by itself");
        registered.drain().await;
        let says_so = |change| matches!(change, Some(Change::Put(e)) if String::from_utf8_lossy(&e.value).contains("\"draining\":true"));
        assert!(says_so(next().await), "the record says that it drains");
        registered.leave().await;
        assert_eq!(store.list("c/").await.unwrap().entries, []);
    }

    #[tokio::test]
    async fn a_record_that_somebody_deleted_comes_back() {
        let store = Arc::new(MemoryStore::default());
        let registered = register(store.clone(), registration()).await.unwrap();
        let mut watch = store.watch("c/workers/", store.list("c/").await.unwrap().revision).await.unwrap();
        store.delete("c/workers/w1").await.unwrap();
        let mut next = async || tokio::time::timeout(BOUND, watch.recv()).await.expect("a change in time");
        assert!(matches!(next().await, Some(Change::Deleted { .. })));
        assert!(matches!(next().await, Some(Change::Put(_))));
        registered.leave().await;
        assert_eq!(store.list("c/").await.unwrap().entries, []);
    }

    #[tokio::test]
    async fn of_two_processes_of_one_id_the_older_ends_and_takes_nothing_of_the_newer_along() {
        let store = Arc::new(MemoryStore::default());
        let older = register(store.clone(), registration()).await.unwrap();
        let mut other = registration();
        other.record.boot = "b2".to_owned();
        let newer = register(store.clone(), other).await.unwrap();
        let why = tokio::time::timeout(BOUND, older.superseded()).await.expect("it notices");
        assert_eq!(why, Superseded::Replaced);
        older.leave().await;
        let record = store.get("c/workers/w1").await.unwrap().expect("the newer one's record stays");
        assert!(String::from_utf8_lossy(&record.value).contains("b2"));
        assert!(tokio::time::timeout(Duration::from_millis(400), newer.superseded()).await.is_err());
        newer.leave().await;
        assert_eq!(store.list("c/").await.unwrap().entries, []);
    }

    #[tokio::test]
    async fn a_store_that_is_away_at_the_start_is_an_error_in_bounded_time() {
        let store = Arc::new(MemoryStore::default());
        store.set_away(true);
        let started = Instant::now();
        assert!(matches!(register(store, registration()).await, Err(ControlError::Unreachable { .. })));
        assert!(started.elapsed() < Duration::from_secs(5));
    }

    #[tokio::test]
    async fn a_store_that_comes_late_is_waited_for() {
        let store = Arc::new(MemoryStore::default());
        store.set_away(true);
        let (late, away) = (store.clone(), registration());
        let registering = tokio::spawn(register(late, away));
        tokio::time::sleep(Duration::from_millis(50)).await;
        store.set_away(false);
        registering.await.unwrap().unwrap().leave().await;
    }
}

//! The registered coordinators: each keeps a record under a lease for as long as it lives.
//!
//! For people (`trawl coordinators`), and for two decisions that may briefly be wrong without harm: whether a result
//! store that is a directory is rejected, and whether there is another coordinator to hand over to. The leader is
//! elected elsewhere (`leadership`). One id belongs to one process: a second one waits for the lease of a process that
//! died, and gives up if that one lives; a process whose record is another's ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use trawl_cluster_store::{ControlError, ControlStore, Guard, LeaseId, Write};
use trawl_wire::record::{coordinators_prefix, leader_key};
use trawl_wire::{LeaderRecord, pb};

/// Renewals of the lease within its time to live.
const RENEWALS_PER_TTL: u32 = 3;
/// Timeout of leaving.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Times of a registration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RegistryTimes {
    /// Time to live of the record.
    lease_ttl: Duration,
    /// How long a start waits for the record of a process of the same id: longer than the lease of one that died, with
    /// the time that etcd takes to end it.
    predecessor_timeout: Duration,
    /// Interval of looking for that record, and of tries while the control store does not take it.
    predecessor_poll: Duration,
    /// How long a control store that is full or away is waited for.
    start_timeout: Duration,
}

impl RegistryTimes {
    /// The usual times, with a limit for the start.
    pub fn within(start_timeout: Duration) -> Self {
        Self { start_timeout, ..Self::default() }
    }
}

impl Default for RegistryTimes {
    fn default() -> Self {
        Self {
            lease_ttl: Duration::from_secs(5),
            predecessor_timeout: Duration::from_secs(10),
            predecessor_poll: Duration::from_millis(250),
            start_timeout: Duration::ZERO,
        }
    }
}

/// Why a coordinator could not register.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegisterError {
    /// The control store failed.
    #[error("{0}")]
    Control(#[from] ControlError),
    /// Another process of this id lives.
    #[error("a coordinator at {0} runs under the same id")]
    Taken(String),
}

/// The record of a coordinator. Unknown keys are ignored, so that newer ones can add fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct CoordinatorRecord {
    address: String,
    /// New at every start of the process; empty in records of earlier releases, which were only an address.
    #[serde(default)]
    boot: String,
}

impl CoordinatorRecord {
    fn read(value: &[u8]) -> Self {
        let plain = || Self { address: String::from_utf8_lossy(value).into_owned(), boot: String::new() };
        serde_json::from_slice(value).unwrap_or_else(|_| plain())
    }
}

/// The registration of this coordinator.
pub(crate) struct Registered {
    control: Arc<dyn ControlStore>,
    prefix: String,
    key: String,
    task: tokio::task::JoinHandle<()>,
    /// Whether another process has registered under this id.
    replaced: watch::Receiver<bool>,
}

/// Puts the record if there is none. An own record counts as put: the reply of an earlier try was lost.
async fn put(
    control: &dyn ControlStore,
    key: &str,
    record: &CoordinatorRecord,
    ttl: Duration,
) -> Result<LeaseId, RegisterError> {
    let lease = control.grant(ttl).await?;
    let value = serde_json::to_vec(record).unwrap_or_default();
    let write = Write::Put { key: key.to_owned(), value, lease: Some(lease) };
    let committed = control.commit(&[Guard::Absent { key: key.to_owned() }], vec![write]).await?;
    if committed.applied {
        return Ok(lease);
    }
    match control.get(key).await?.map(|entry| CoordinatorRecord::read(&entry.value)) {
        // A try whose reply was lost had put it.
        Some(there) if there.boot == record.boot => Ok(lease),
        there => {
            control.revoke(lease).await?;
            Err(RegisterError::Taken(there.map_or_else(String::new, |there| there.address)))
        }
    }
}

/// Registers this coordinator, and keeps the record until [`Registered::leave`].
///
/// # Errors
/// [`RegisterError`].
pub(crate) async fn register(
    control: Arc<dyn ControlStore>,
    cluster_name: &str,
    id: &str,
    (boot, address): (&str, &str),
    times: RegistryTimes,
) -> Result<Registered, RegisterError> {
    let prefix = coordinators_prefix(cluster_name);
    let key = format!("{prefix}{id}");
    let record = CoordinatorRecord { address: address.to_owned(), boot: boot.to_owned() };
    let (since, mut logged) = (Instant::now(), false);
    let lease = loop {
        match put(&*control, &key, &record, times.lease_ttl).await {
            Err(RegisterError::Taken(there)) if since.elapsed() < times.predecessor_timeout => {
                if !std::mem::replace(&mut logged, true) {
                    tracing::info!(id, address = there, "waits for the lease of another process of this id to end");
                }
                tokio::time::sleep(times.predecessor_poll).await;
            }
            Err(RegisterError::Control(error @ (ControlError::NoSpace(_) | ControlError::Unreachable { .. })))
                if since.elapsed() < times.start_timeout =>
            {
                if !std::mem::replace(&mut logged, true) {
                    tracing::warn!(%error, "this coordinator cannot register yet, trying again");
                }
                tokio::time::sleep(times.predecessor_poll).await;
            }
            registered => break registered?,
        }
    };
    let (replace, replaced) = watch::channel(false);
    let task = tokio::spawn(keep((Arc::clone(&control), key.clone()), record, (lease, times.lease_ttl), replace));
    Ok(Registered { control, prefix, key, task, replaced })
}

/// Renews the lease, and puts the record again when it is gone, until another process has it.
async fn keep(
    (control, key): (Arc<dyn ControlStore>, String),
    record: CoordinatorRecord,
    (mut lease, ttl): (LeaseId, Duration),
    replace: watch::Sender<bool>,
) {
    loop {
        tokio::time::sleep(ttl / RENEWALS_PER_TTL).await;
        let there = match control.get(&key).await {
            Ok(entry) => entry.map(|entry| CoordinatorRecord::read(&entry.value)),
            Err(error) => {
                tracing::debug!(%error, "this coordinator's record cannot be read");
                continue;
            }
        };
        let renewed = match there {
            Some(there) if there.boot != record.boot => {
                tracing::error!(address = there.address, "another process has registered under this coordinator's id");
                replace.send_replace(true);
                return;
            }
            Some(_) => match control.keep_alive(lease).await {
                // Put again by the next turn, when the record is gone.
                Ok(()) | Err(ControlError::LeaseOver) => Ok(lease),
                Err(error) => Err(RegisterError::Control(error)),
            },
            None => put(&*control, &key, &record, ttl).await,
        };
        match renewed {
            Ok(kept) => lease = kept,
            Err(error) => tracing::debug!(%error, "this coordinator is not registered"),
        }
    }
}

impl Registered {
    /// Number of registered coordinators, including this one.
    pub async fn count(&self) -> Result<usize, ControlError> {
        let listed = self.control.list(&self.prefix).await?;
        Ok(listed.entries.iter().filter(|entry| entry.key != self.key).count() + 1)
    }

    /// Completes once another process has registered under this id.
    pub async fn replaced(&self) {
        let mut replaced = self.replaced.clone();
        if replaced.wait_for(|replaced| *replaced).await.is_err() {
            // The task has ended: nothing is known any more.
            std::future::pending::<()>().await;
        }
    }

    /// Removes the record, bounded in time, unless it is another's.
    pub async fn leave(self) {
        self.task.abort();
        if !*self.replaced.borrow() {
            let _ = tokio::time::timeout(LEAVE_TIMEOUT, self.control.delete(&self.key)).await;
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Lists the coordinators of a cluster. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Coordinators {
    pub control: Arc<dyn ControlStore>,
    pub cluster_name: String,
}

impl Coordinators {
    /// All registered coordinators, by id, and which of them leads.
    ///
    /// # Errors
    /// The control store's error.
    pub async fn list(&self) -> Result<Vec<pb::CoordinatorInfo>, ControlError> {
        let prefix = coordinators_prefix(&self.cluster_name);
        let leader = self.control.get(&leader_key(&self.cluster_name)).await?;
        let epoch = leader.as_ref().map_or(0, |entry| entry.created);
        let leader = leader.and_then(|entry| serde_json::from_slice::<LeaderRecord>(&entry.value).ok());
        let listed = self.control.list(&prefix).await?;
        let info = |entry: trawl_cluster_store::Entry| {
            let record = CoordinatorRecord::read(&entry.value);
            let id = entry.key.strip_prefix(&prefix).unwrap_or_default().to_owned();
            let leads = leader.as_ref().is_some_and(|leader| leader.id == id);
            pb::CoordinatorInfo {
                leads,
                epoch: if leads { epoch } else { 0 },
                address: record.address,
                boot: record.boot,
                id,
            }
        };
        Ok(listed.entries.into_iter().map(info).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trawl_testing::MemoryStore;

    const TIMES: RegistryTimes = RegistryTimes {
        lease_ttl: Duration::from_millis(60),
        predecessor_timeout: Duration::from_millis(400),
        predecessor_poll: Duration::from_millis(5),
        start_timeout: Duration::ZERO,
    };

    async fn registered(store: &Arc<MemoryStore>, boot: &str) -> Result<Registered, RegisterError> {
        let control: Arc<dyn ControlStore> = Arc::clone(store) as _;
        register(control, "c", "c1", (boot, "here:1"), TIMES).await
    }

    #[tokio::test]
    async fn a_second_process_of_one_id_is_refused_and_one_that_follows_a_dead_one_is_not() {
        let store = Arc::new(MemoryStore::default());
        let first = registered(&store, "b1").await.unwrap();
        let error = registered(&store, "b2").await.err().expect("the first one lives");
        assert!(error.to_string().contains("at here:1"), "{error}");
        // It dies: its lease ends while the next one waits.
        first.task.abort();
        let dying = Arc::clone(&store);
        let ends = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            dying.expire_leases();
        });
        let second = registered(&store, "b2").await.unwrap();
        ends.await.unwrap();
        assert_eq!(second.count().await.unwrap(), 1);
        second.leave().await;
        assert_eq!(store.list("c/").await.unwrap().entries, []);
    }

    #[tokio::test]
    async fn a_process_whose_record_is_anothers_is_notified_and_one_whose_record_is_gone_puts_it_again() {
        let store = Arc::new(MemoryStore::default());
        let first = registered(&store, "b1").await.unwrap();
        store.expire_leases();
        let listing = Coordinators { control: Arc::clone(&store) as _, cluster_name: "c".to_owned() };
        let again = async {
            loop {
                if let Some(there) = listing.list().await.unwrap().pop() {
                    return there;
                }
                tokio::time::sleep(TIMES.predecessor_poll).await;
            }
        };
        let there = tokio::time::timeout(Duration::from_secs(20), again).await.expect("in time");
        assert_eq!((there.id.as_str(), there.boot.as_str(), there.leads), ("c1", "b1", false));
        let other = serde_json::to_vec(&CoordinatorRecord { address: "there:1".to_owned(), boot: "b2".to_owned() });
        store.put("c/coordinators/c1", other.unwrap(), None).await.unwrap();
        tokio::time::timeout(Duration::from_secs(20), first.replaced()).await.expect("in time");
        first.leave().await;
        assert_eq!(listing.list().await.unwrap().len(), 1, "the other's record stays");
    }

    #[test]
    fn records_of_earlier_releases_are_addresses() {
        let read = CoordinatorRecord::read(b"10.0.0.1:7400");
        assert_eq!((read.address.as_str(), read.boot.as_str()), ("10.0.0.1:7400", ""));
    }
}

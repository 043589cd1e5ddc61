//! Follows the workers' records in the control store.
//!
//! A watch that breaks does not resume by itself, so the records are listed again and compared with the known ones.
//! While the store is unavailable the last known workers are kept: the data path also shows whether they are alive.
//! Which workers remain members when records disappear is decided in `crate::membership`.

use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use trawl_cluster_store::{Backoff, Change, ControlError, ControlStore};
use trawl_wire::WorkerRecord;
use trawl_wire::limits::WORKER_RECORD_BYTES_MAX;
use trawl_wire::record::workers_prefix;

use crate::membership::{Event, Member, Roster};

/// Wait before the store is queried again; doubles up to [`BACK_OFF_MAX`].
const BACK_OFF: Duration = Duration::from_millis(100);
/// Longest wait.
const BACK_OFF_MAX: Duration = Duration::from_secs(2);

/// How long a watch is relied on before the records are listed again.
const LIST_INTERVAL: Duration = Duration::from_secs(30);

/// Follows the workers of a cluster until the receiver is dropped. Lists once before it returns.
///
/// # Errors
/// The store's error, if it cannot be listed within `start_timeout`.
pub(crate) async fn follow(
    store: impl ControlStore,
    cluster_name: &str,
    start_timeout: Duration,
    news: mpsc::Sender<Member>,
) -> Result<(), ControlError> {
    let prefix = workers_prefix(cluster_name);
    let mut following = Following::new(news, LIST_INTERVAL);
    reachable(&store, cluster_name, start_timeout).await?;
    tokio::spawn(async move {
        let mut backoff = Backoff::new(BACK_OFF, BACK_OFF_MAX);
        while !following.news.is_closed() {
            match following.once(&store, &prefix).await {
                Ok(()) => backoff.reset(),
                Err(error) => {
                    tracing::warn!(%error, "cannot see which workers are registered, trying again");
                    following.step(Event::Away).await;
                }
            }
            backoff.wait().await;
        }
    });
    Ok(())
}

/// Waits until the control store answers.
///
/// # Errors
/// The store's error, if it does not answer within `timeout`.
pub(crate) async fn reachable(
    store: &impl ControlStore,
    cluster_name: &str,
    timeout: Duration,
) -> Result<(), ControlError> {
    let prefix = workers_prefix(cluster_name);
    let first = async {
        let mut backoff = Backoff::new(BACK_OFF, BACK_OFF_MAX);
        while let Err(error) = store.list(&prefix).await {
            tracing::debug!(%error, "the control store is not there yet");
            backoff.wait().await;
        }
    };
    if tokio::time::timeout(timeout, first).await.is_err() {
        // Timed out: one last try yields the reason.
        store.list(&prefix).await?;
    }
    Ok(())
}

struct Following {
    roster: Roster,
    started: Instant,
    news: mpsc::Sender<Member>,
    /// See [`LIST_INTERVAL`].
    list_interval: Duration,
}

impl Following {
    fn new(news: mpsc::Sender<Member>, list_interval: Duration) -> Self {
        Self { roster: Roster::default(), started: Instant::now(), news, list_interval }
    }

    /// Lists the records, reports the differences, and then reports changes until the watch breaks or is old: it may have
    /// become silent without an end.
    async fn once(&mut self, store: &impl ControlStore, prefix: &str) -> Result<(), ControlError> {
        let listing = store.list(prefix).await?;
        let there = listing.entries.into_iter().map(|e| (e.key.clone(), record_in(&e.key, &e.value)));
        self.step(Event::Listed(there.collect())).await;
        let mut watch = store.watch(prefix, listing.revision).await?;
        let mut listed_again = std::pin::pin!(tokio::time::sleep(self.list_interval));
        loop {
            let wake = self.roster.wake_ms().map(|ms| self.started + Duration::from_millis(ms));
            let suspects_over = async {
                match wake {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            let change = tokio::select! {
                change = watch.recv() => change,
                () = suspects_over => {
                    self.step(Event::Tick).await;
                    continue;
                }
                () = &mut listed_again => return Ok(()),
                () = self.news.closed() => return Ok(()),
            };
            match change {
                Some(Change::Put(entry)) => {
                    let record = record_in(&entry.key, &entry.value);
                    self.step(Event::Put(entry.key, record)).await;
                }
                Some(Change::Deleted { key, .. }) => self.step(Event::Deleted(key)).await,
                None => {
                    self.step(Event::Away).await;
                    return Ok(());
                }
            }
        }
    }

    async fn step(&mut self, event: Event) {
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let changes = self.roster.step(event, now_ms);
        if changes.iter().any(|change| matches!(change, Member::Suspect(_))) {
            let (registered, suspects) = self.roster.counts();
            tracing::error!(
                suspects,
                registered,
                "most workers' leases ended at once: look after etcd. They are kept while they answer, for a limited time"
            );
        }
        for change in changes {
            // Fails only when the receiver is dropped.
            let _ = self.news.send(change).await;
        }
    }
}

fn record_in(key: &str, value: &[u8]) -> Option<WorkerRecord> {
    let record: Option<WorkerRecord> =
        (value.len() <= WORKER_RECORD_BYTES_MAX).then(|| serde_json::from_slice(value).ok()).flatten();
    let record = record.filter(|record| key.ends_with(&format!("/{}", record.id)));
    if record.is_none() {
        tracing::warn!(key, "a worker's record cannot be read and is left out");
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use trawl_testing::MemoryStore;
    use trawl_wire::record::worker_key;
    use trawl_worker::execution_class;

    fn record(id: &str, boot: &str) -> WorkerRecord {
        WorkerRecord {
            id: id.to_owned(),
            address: "127.0.0.1:1".to_owned(),
            boot: boot.to_owned(),
            protocol_version: 1,
            protocol_oldest: 0,
            result_schema: "0".to_owned(),
            result_schemas_earlier: Vec::new(),
            class: execution_class(),
            threads: 1,
            cache_bytes: 0,
            device: None,
            draining: false,
        }
    }

    async fn put(store: &MemoryStore, id: &str, boot: &str) {
        let value = serde_json::to_vec(&record(id, boot)).unwrap();
        store.put(&worker_key("c", id), value, None).await.unwrap();
    }

    async fn next(news: &mut mpsc::Receiver<Member>) -> Option<Member> {
        tokio::time::timeout(Duration::from_secs(10), news.recv()).await.expect("news in time")
    }

    fn gone(id: &str, boot: &str) -> Option<Member> {
        Some(Member::Gone { id: id.to_owned(), boot: boot.to_owned() })
    }

    fn here(id: &str, boot: &str) -> Option<Member> {
        Some(Member::Here(record(id, boot)))
    }

    #[tokio::test]
    async fn changes_are_reported_also_those_made_while_the_watch_was_broken() {
        let store = Arc::new(MemoryStore::default());
        put(&store, "w1", "a").await;
        let (sender, mut news) = mpsc::channel(16);
        follow(Arc::clone(&store), "c", Duration::from_secs(1), sender).await.unwrap();
        assert_eq!(next(&mut news).await, here("w1", "a"));
        put(&store, "w2", "b").await;
        assert_eq!(next(&mut news).await, here("w2", "b"));
        // Restarted under the same id.
        put(&store, "w2", "c").await;
        assert_eq!(next(&mut news).await, gone("w2", "b"));
        assert_eq!(next(&mut news).await, here("w2", "c"));
        store.break_watches();
        store.delete(&worker_key("c", "w1")).await.unwrap();
        put(&store, "w3", "d").await;
        assert_eq!(next(&mut news).await, gone("w1", "a"));
        assert_eq!(next(&mut news).await, here("w3", "d"));
    }

    #[tokio::test]
    async fn a_watch_that_became_silent_is_not_relied_on_for_long() {
        let store = Arc::new(MemoryStore::default());
        put(&store, "w1", "a").await;
        let (sender, mut news) = mpsc::channel(16);
        let mut following = Following::new(sender, Duration::from_secs(1));
        let watched = Arc::clone(&store);
        let once =
            tokio::spawn(async move { following.once(&watched, &workers_prefix("c")).await.map(|()| following) });
        assert_eq!(next(&mut news).await, here("w1", "a"));
        put(&store, "w2", "b").await;
        assert_eq!(next(&mut news).await, here("w2", "b"));
        store.silence_watches();
        put(&store, "w3", "c").await;
        let mut following =
            tokio::time::timeout(Duration::from_secs(10), once).await.expect("it ends").unwrap().unwrap();
        assert!(news.try_recv().is_err(), "the watch was silent");
        tokio::spawn(async move { following.once(&store, &workers_prefix("c")).await });
        assert_eq!(next(&mut news).await, here("w3", "c"));
    }

    #[tokio::test]
    async fn a_worker_that_drains_is_reported_as_such_and_not_as_gone() {
        let store = Arc::new(MemoryStore::default());
        put(&store, "w1", "a").await;
        let (sender, mut news) = mpsc::channel(16);
        follow(Arc::clone(&store), "c", Duration::from_secs(1), sender).await.unwrap();
        assert_eq!(next(&mut news).await, here("w1", "a"));
        let leaving = serde_json::to_vec(&WorkerRecord { draining: true, ..record("w1", "a") }).unwrap();
        store.put(&worker_key("c", "w1"), leaving, None).await.unwrap();
        let draining = Member::Draining { id: "w1".to_owned(), boot: "a".to_owned() };
        assert_eq!(next(&mut news).await, Some(draining));
        store.delete(&worker_key("c", "w1")).await.unwrap();
        assert_eq!(next(&mut news).await, gone("w1", "a"));
    }

    #[tokio::test]
    async fn a_store_that_goes_away_loses_no_worker() {
        let store = Arc::new(MemoryStore::default());
        put(&store, "w1", "a").await;
        let (sender, mut news) = mpsc::channel(16);
        follow(Arc::clone(&store), "c", Duration::from_secs(1), sender).await.unwrap();
        assert_eq!(next(&mut news).await, here("w1", "a"));
        store.set_away(true);
        store.break_watches();
        tokio::time::sleep(Duration::from_millis(250)).await;
        assert!(news.try_recv().is_err());
        store.set_away(false);
        put(&store, "w2", "b").await;
        assert_eq!(next(&mut news).await, here("w2", "b"));
    }

    #[tokio::test]
    async fn leases_that_end_together_make_suspects_who_are_members_again_when_they_register() {
        let store = Arc::new(MemoryStore::default());
        put(&store, "w1", "a").await;
        put(&store, "w2", "b").await;
        let (sender, mut news) = mpsc::channel(16);
        follow(Arc::clone(&store), "c", Duration::from_secs(1), sender).await.unwrap();
        assert_eq!(next(&mut news).await, here("w1", "a"));
        assert_eq!(next(&mut news).await, here("w2", "b"));
        store.break_watches();
        store.delete(&worker_key("c", "w1")).await.unwrap();
        store.delete(&worker_key("c", "w2")).await.unwrap();
        // The events that the broken watch missed are compacted as well, so a new listing is needed.
        store.compact();
        assert_eq!(next(&mut news).await, Some(Member::Suspect(record("w1", "a"))));
        assert_eq!(next(&mut news).await, Some(Member::Suspect(record("w2", "b"))));
        put(&store, "w2", "b").await;
        put(&store, "w3", "c").await;
        assert_eq!(next(&mut news).await, here("w3", "c"));
    }

    #[tokio::test]
    async fn what_is_no_record_is_left_out() {
        let store = Arc::new(MemoryStore::default());
        store.put("c/workers/x", b"{}".to_vec(), None).await.unwrap();
        let stolen = serde_json::to_vec(&record("w9", "a")).unwrap();
        store.put("c/workers/w1", stolen, None).await.unwrap();
        put(&store, "w2", "b").await;
        let (sender, mut news) = mpsc::channel(16);
        follow(Arc::clone(&store), "c", Duration::from_secs(1), sender).await.unwrap();
        assert_eq!(next(&mut news).await, here("w2", "b"));
    }
}

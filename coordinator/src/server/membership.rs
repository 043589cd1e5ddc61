//! Who is registered: follows the workers' records in the control store.
//!
//! A watch that breaks never resumes by itself, so it is listed anew and compared with what was known. While the store
//! is away the last known workers stay: that they are alive is seen on the data path as well.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::mpsc;
use trawl_protocol::WorkerRecord;
use trawl_protocol::control::{Change, ControlError, ControlStore};
use trawl_protocol::limits::WORKER_RECORD_BYTES_MAX;
use trawl_protocol::record::workers_prefix;

/// Wait before the store is asked again; doubles up to [`BACK_OFF_MAX`].
const BACK_OFF: Duration = Duration::from_millis(100);
/// Longest wait.
const BACK_OFF_MAX: Duration = Duration::from_secs(2);

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Member {
    /// A worker's record is there: it came, or came back.
    Here(WorkerRecord),
    /// A worker's record says that it leaves.
    Draining {
        /// Its id.
        id: String,
        /// Which of its lives.
        boot: String,
    },
    /// A worker's record is gone.
    Gone {
        /// Its id.
        id: String,
        /// Which of its lives.
        boot: String,
    },
}

/// What is known: key -> record.
type Known = BTreeMap<String, WorkerRecord>;

/// Follows the workers of a cluster until nobody listens. Lists once before it returns.
///
/// # Errors
/// The store's, when it cannot be listed within `start_timeout`.
pub(crate) async fn follow(
    store: impl ControlStore,
    cluster_name: &str,
    start_timeout: Duration,
    news: mpsc::Sender<Member>,
) -> Result<(), ControlError> {
    let prefix = workers_prefix(cluster_name);
    let mut known = Known::new();
    reachable(&store, cluster_name, start_timeout).await?;
    tokio::spawn(async move {
        let mut wait = BACK_OFF;
        while !news.is_closed() {
            match follow_once(&store, &prefix, &mut known, &news).await {
                Ok(()) => wait = BACK_OFF,
                Err(error) => {
                    tracing::warn!(%error, "cannot see which workers are registered, trying again");
                    wait = (wait * 2).min(BACK_OFF_MAX);
                }
            }
            tokio::time::sleep(wait).await;
        }
    });
    Ok(())
}

/// Waits until the control store answers.
///
/// # Errors
/// The store's, when it does not within `timeout`.
pub(crate) async fn reachable(
    store: &impl ControlStore,
    cluster_name: &str,
    timeout: Duration,
) -> Result<(), ControlError> {
    let prefix = workers_prefix(cluster_name);
    let first = async {
        let mut wait = BACK_OFF;
        while let Err(error) = store.list(&prefix).await {
            tracing::debug!(%error, "the control store is not there yet");
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(BACK_OFF_MAX);
        }
    };
    if tokio::time::timeout(timeout, first).await.is_err() {
        // The time is over: one last try says why.
        store.list(&prefix).await?;
    }
    Ok(())
}

/// Lists, tells the differences, and tells changes until the watch breaks.
async fn follow_once(
    store: &impl ControlStore,
    prefix: &str,
    known: &mut Known,
    news: &mpsc::Sender<Member>,
) -> Result<(), ControlError> {
    let listing = store.list(prefix).await?;
    let there: BTreeMap<&str, &[u8]> = listing.entries.iter().map(|e| (e.key.as_str(), e.value.as_slice())).collect();
    let gone: Vec<String> = known.keys().filter(|key| !there.contains_key(key.as_str())).cloned().collect();
    for key in gone {
        forget(known, &key, news).await;
    }
    for (key, value) in there {
        learn(known, key, value, news).await;
    }
    let mut watch = store.watch(prefix, listing.revision).await?;
    loop {
        let change = tokio::select! {
            change = watch.recv() => change,
            () = news.closed() => return Ok(()),
        };
        match change {
            Some(Change::Put(entry)) => learn(known, &entry.key, &entry.value, news).await,
            Some(Change::Deleted { key, .. }) => forget(known, &key, news).await,
            None => return Ok(()),
        }
    }
}

async fn learn(known: &mut Known, key: &str, value: &[u8], news: &mpsc::Sender<Member>) {
    let record: Option<WorkerRecord> =
        (value.len() <= WORKER_RECORD_BYTES_MAX).then(|| serde_json::from_slice(value).ok()).flatten();
    let Some(record) = record.filter(|record| key.ends_with(&format!("/{}", record.id))) else {
        tracing::warn!(key, "a worker's record cannot be read and is left out");
        return forget(known, key, news).await;
    };
    if known.get(key) == Some(&record) {
        return;
    }
    if let Some(before) = known.get_mut(key)
        && record.draining
        && (WorkerRecord { draining: true, ..before.clone() }) == record
    {
        before.draining = true;
        let _ = news.send(Member::Draining { id: record.id, boot: record.boot }).await;
        return;
    }
    // The same id with another boot: the worker was started anew, the one before is gone.
    forget(known, key, news).await;
    known.insert(key.to_owned(), record.clone());
    // Refused only when nobody listens.
    let _ = news.send(Member::Here(record)).await;
}

async fn forget(known: &mut Known, key: &str, news: &mpsc::Sender<Member>) {
    if let Some(record) = known.remove(key) {
        let _ = news.send(Member::Gone { id: record.id, boot: record.boot }).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use trawl_protocol::control::MemoryStore;
    use trawl_protocol::record::worker_key;
    use trawl_worker::execution_class;

    fn record(id: &str, boot: &str) -> WorkerRecord {
        WorkerRecord {
            id: id.to_owned(),
            address: "127.0.0.1:1".to_owned(),
            boot: boot.to_owned(),
            protocol_version: 1,
            result_schema: "0".to_owned(),
            class: execution_class(),
            threads: 1,
            cache_bytes: 0,
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
    async fn changes_are_told_also_those_made_while_the_watch_was_broken() {
        let store = Arc::new(MemoryStore::default());
        put(&store, "w1", "a").await;
        let (sender, mut news) = mpsc::channel(16);
        follow(Arc::clone(&store), "c", Duration::from_secs(1), sender).await.unwrap();
        assert_eq!(next(&mut news).await, here("w1", "a"));
        put(&store, "w2", "b").await;
        assert_eq!(next(&mut news).await, here("w2", "b"));
        // Started anew under its old id.
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
    async fn a_worker_that_drains_is_told_as_such_and_not_as_gone() {
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

//! How a coordinator learns what is registered: the leader's key and the workers, listed and watched, and whether the
//! store went back. As the real shell does, with a look from time to time at what a watch may not have reported.

use std::sync::{Arc, Mutex};

use trawl_cluster_store::{Change, ControlError, ControlStore as _, Entry, HistoryCheck, Watch};
use trawl_coordinator::election::{Event, Incumbent};
use trawl_coordinator::membership;
use trawl_wire::WorkerRecord;
use trawl_wire::record::{leader_key, workers_prefix};

use crate::control::Handle;
use crate::coordinators::{BACK_OFF_MS, Done};
use crate::laws::CLUSTER;

/// How long a watch may be silent before the store is read.
const LOOK_MS: u64 = 1_000;
/// Interval of the reads of the store's version.
pub const HISTORY_CHECK_MS: u64 = 1_000;

/// An observation of a follower.
// Handled one at a time, never stored.
#[allow(clippy::large_enum_variant)]
pub enum View {
    Leader(Event),
    Workers(membership::Event),
}

/// What a watch yields next.
enum Heard {
    Change(Change),
    Nothing,
    End,
}

/// `trusting`: waits for as long as it takes.
async fn hear(handle: &Handle, watch: &mut Watch, trusting: bool) -> Heard {
    tokio::select! {
        biased;
        change = watch.recv() => change.map_or(Heard::End, Heard::Change),
        () = handle.sleep(LOOK_MS), if !trusting => Heard::Nothing,
    }
}

fn incumbent(entry: &Entry) -> Incumbent {
    Incumbent { epoch: entry.created, record: serde_json::from_slice(&entry.value).ok() }
}

pub async fn look(handle: &Handle) -> Result<Event, ControlError> {
    let key = leader_key(CLUSTER);
    let listing = handle.list(&key).await?;
    Ok(Event::Seen { leader: listing.entries.first().map(incumbent), revision: listing.revision })
}

pub async fn follow_leader(handle: Handle, views: Arc<Mutex<Vec<View>>>, trusting: bool) -> Done {
    loop {
        // The watch ended, or a call failed.
        let _ = follow_leader_once(&handle, &views, trusting).await;
        handle.sleep(BACK_OFF_MS).await;
    }
}

async fn follow_leader_once(handle: &Handle, views: &Mutex<Vec<View>>, trusting: bool) -> Result<(), ControlError> {
    let seen = look(handle).await?;
    let Event::Seen { revision, .. } = seen else { return Ok(()) };
    views.lock().unwrap().push(View::Leader(seen));
    let mut watch = handle.watch(&leader_key(CLUSTER), revision).await?;
    loop {
        let seen = match hear(handle, &mut watch, trusting).await {
            Heard::Change(Change::Put(entry)) => {
                Event::Seen { revision: entry.created, leader: Some(incumbent(&entry)) }
            }
            Heard::Change(Change::Deleted { revision, .. }) => Event::Seen { leader: None, revision },
            Heard::Nothing => look(handle).await?,
            Heard::End => return Ok(()),
        };
        views.lock().unwrap().push(View::Leader(seen));
    }
}

pub async fn follow_workers(handle: Handle, views: Arc<Mutex<Vec<View>>>, trusting: bool) -> Done {
    loop {
        if follow_workers_once(&handle, &views, trusting).await.is_err() {
            views.lock().unwrap().push(View::Workers(membership::Event::Away));
        }
        handle.sleep(BACK_OFF_MS).await;
    }
}

async fn follow_workers_once(handle: &Handle, views: &Mutex<Vec<View>>, trusting: bool) -> Result<(), ControlError> {
    let record = |value: &[u8]| -> Option<WorkerRecord> { serde_json::from_slice(value).ok() };
    let prefix = workers_prefix(CLUSTER);
    let listing = handle.list(&prefix).await?;
    let there = listing.entries.into_iter().map(|e| (e.key, record(&e.value))).collect();
    views.lock().unwrap().push(View::Workers(membership::Event::Listed(there)));
    let mut watch = handle.watch(&prefix, listing.revision).await?;
    loop {
        let event = match hear(handle, &mut watch, trusting).await {
            Heard::Change(Change::Put(entry)) => membership::Event::Put(entry.key, record(&entry.value)),
            Heard::Change(Change::Deleted { key, .. }) => membership::Event::Deleted(key),
            // Listed and watched anew.
            Heard::Nothing => return Ok(()),
            Heard::End => membership::Event::Away,
        };
        let ended = event == membership::Event::Away;
        views.lock().unwrap().push(View::Workers(event));
        if ended {
            return Ok(());
        }
    }
}

/// Reads the store's version before anything else.
pub async fn begin(handle: Handle) -> Done {
    loop {
        if let Ok(check) = HistoryCheck::begin(&handle, &leader_key(CLUSTER)).await {
            return Done::Started(check);
        }
        handle.sleep(BACK_OFF_MS).await;
    }
}

pub async fn watch_history(handle: Handle, mut check: HistoryCheck) -> Done {
    while check.read(&handle, &leader_key(CLUSTER)).await.is_none() {
        handle.sleep(HISTORY_CHECK_MS).await;
    }
    Done::HistoryLost
}

//! The snapshots that open scans read are pinned: without their files a scan could neither continue nor be run again.
//!
//! One pin for each snapshot and term of a leader, not one for each scan: one task writes them in order, renews them
//! every [`PIN_REFRESH`] and then removes those that no scan needs any more. What a term leaves behind expires. A data
//! root that cannot be written is reported and leaves the scans running: `trawl data rm` and `prune` on other machines
//! then do not see them. In a bucket the files of a snapshot outlast its removal by a day, or what `--grace` says.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use trawl_market::{MarketError, Store, TimeMicros};

/// Interval of renewing pins.
pub const PIN_REFRESH: Duration = Duration::from_secs(5 * 60);
/// Lifetime of a pin: how long a cluster may be without a leader before its snapshots may be deleted.
pub const PIN_HELD: Duration = Duration::from_secs(6 * 60 * 60);

/// The pins of one term. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Pins(mpsc::UnboundedSender<Change>);

/// A scan begins to need a snapshot, `NAME@SNAPSHOT`, or needs it no longer. There are at most two for each scan.
#[derive(Debug)]
enum Change {
    Needed(String),
    NotNeeded(String),
}

/// A scan's need of a snapshot, until it is dropped.
#[derive(Debug)]
pub struct Pin {
    dataset: String,
    pins: Pins,
}

impl Pins {
    /// Starts the task of a term. It ends when all handles are dropped, and then leaves the pins to expire: the next
    /// leader may need them.
    pub fn start(store: Store, epoch: i64, refresh: Duration) -> Self {
        let (changes, changed) = mpsc::unbounded_channel();
        tokio::spawn(keep(
            PinFiles { store, holder: format!("leader-{epoch}"), needed: BTreeMap::new() },
            changed,
            refresh,
        ));
        Self(changes)
    }

    /// Pins a snapshot, `NAME@SNAPSHOT`, for a scan.
    pub fn hold(&self, dataset: &str) -> Pin {
        // The task lives as long as this handle.
        let _ = self.0.send(Change::Needed(dataset.to_owned()));
        Pin { dataset: dataset.to_owned(), pins: self.clone() }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let _ = self.pins.0.send(Change::NotNeeded(std::mem::take(&mut self.dataset)));
    }
}

async fn keep(mut files: PinFiles, mut changed: mpsc::UnboundedReceiver<Change>, refresh: Duration) {
    let mut ticks = tokio::time::interval(refresh);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let change = tokio::select! {
            change = changed.recv() => match change {
                Some(change) => Some(change),
                None => return,
            },
            _ = ticks.tick() => None,
        };
        // Files are slow, and may hang: not on the threads of the runtime.
        let worked = tokio::task::spawn_blocking(move || {
            let done = match change {
                Some(change) => files.take(change),
                None => files.refresh(),
            };
            if let Err(error) = done {
                tracing::warn!(%error, "a snapshot cannot be pinned: whoever deletes snapshots may take one of a scan");
            }
            files
        });
        match worked.await {
            Ok(returned) => files = returned,
            Err(_) => return,
        }
    }
}

/// The files of one term.
struct PinFiles {
    store: Store,
    holder: String,
    /// How many scans need each snapshot; 0 until its pin is removed.
    needed: BTreeMap<String, usize>,
}

impl PinFiles {
    fn take(&mut self, change: Change) -> Result<(), MarketError> {
        match change {
            Change::Needed(dataset) => {
                let known = self.needed.contains_key(&dataset);
                *self.needed.entry(dataset.clone()).or_default() += 1;
                if known { Ok(()) } else { self.pin(&dataset) }
            }
            Change::NotNeeded(dataset) => {
                if let Some(scans) = self.needed.get_mut(&dataset) {
                    *scans = scans.saturating_sub(1);
                }
                Ok(())
            }
        }
    }

    fn pin(&self, dataset: &str) -> Result<(), MarketError> {
        let held = i64::try_from(PIN_HELD.as_micros()).unwrap_or(i64::MAX);
        self.store.pin(dataset, &self.holder, now_us().saturating_add(held))
    }

    /// Renews the pins, removes those that no scan needs, and those that have expired; returns the first error.
    fn refresh(&mut self) -> Result<(), MarketError> {
        let mut done = Ok(());
        let unneeded: Vec<String> =
            self.needed.extract_if(.., |_, scans| *scans == 0).map(|(dataset, _)| dataset).collect();
        for dataset in &unneeded {
            done = done.and(self.store.unpin(dataset, &self.holder));
        }
        for dataset in self.needed.keys() {
            done = done.and(self.pin(dataset));
        }
        for dataset in unneeded.iter().chain(self.needed.keys()) {
            // What fails here is found by the next call.
            let _ = self.store.drop_old_pins(dataset.split('@').next().unwrap_or_default(), now_us());
        }
        done
    }
}

fn now_us() -> TimeMicros {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits until so many snapshots are pinned.
    async fn until_pinned(store: &Store, count: usize) {
        let pinned = || store.pinned("d", now_us()).unwrap().len() == count;
        for _ in 0..1000 {
            if pinned() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{:?}", store.pinned("d", now_us()));
    }

    #[tokio::test]
    async fn a_snapshot_is_pinned_once_for_all_its_scans_and_until_the_last_has_ended() {
        let root = tempfile::tempdir().unwrap();
        let snapshots = ["ab", "cd"].map(|digits| digits.repeat(32));
        std::fs::create_dir_all(root.path().join("d/snapshots")).unwrap();
        for snapshot in &snapshots {
            std::fs::write(root.path().join(format!("d/snapshots/{snapshot}.json")), b"{}").unwrap();
        }
        let store = Store::new(root.path().to_owned());
        let pins = Pins::start(store.clone(), 7, Duration::from_millis(20));
        let dataset = format!("d@{}", snapshots[0]);
        let scans: Vec<Pin> = (0..3).map(|_| pins.hold(&dataset)).collect();
        let other = pins.hold(&format!("d@{}", snapshots[1]));
        until_pinned(&store, 2).await;
        // A pin that is being renewed has a file beside it until it is whole.
        let is_whole = |entry: &std::fs::DirEntry| !entry.file_name().as_encoded_bytes().starts_with(b".");
        let entries = std::fs::read_dir(root.path().join("d/pins")).unwrap().map(Result::unwrap);
        let files = entries.filter(is_whole).count();
        assert_eq!(files, 2, "one for each snapshot");
        drop(other);
        until_pinned(&store, 1).await;
        let mut scans = scans.into_iter();
        drop((scans.next(), scans.next()));
        let last = scans.next().unwrap();
        tokio::time::sleep(Duration::from_millis(60)).await;
        until_pinned(&store, 1).await;
        drop(last);
        until_pinned(&store, 0).await;
        // A snapshot that is missing is reported and harms nothing.
        let _missing = pins.hold(&format!("d@{}", "ef".repeat(32)));
        let _again = pins.hold(&dataset);
        until_pinned(&store, 1).await;
    }
}

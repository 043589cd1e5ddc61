//! What this process reads of its own copy of the data, when one worker alone says that a piece fails: the scheduler asks, and
//! hears whether the bytes are those of the manifest.

use std::sync::Arc;
use std::time::Duration;

use trawl_wire::{ErrorKind, Failure};
use trawl_worker::ScanSource;

use super::{Ask, News, State};
use crate::scheduler::{AttemptId, Check, HostId, Piece, ScanId};

/// Groups that are read at once.
pub(super) const CHECKS_AT_ONCE: usize = 2;
/// How long a group may take, with the wait for others; a file system that hangs proves nothing.
const CHECK_TIMEOUT: Duration = Duration::from_secs(60);

/// Reads a group of the snapshot, digests included. Blocks on files.
fn read(source: &ScanSource, segment: u32) -> Check {
    match source.load_segment(segment) {
        Ok(_) => Check::Sound,
        Err(error) if error.kind() == ErrorKind::Damaged => Check::Damaged,
        Err(_) => Check::Unknown,
    }
}

impl State {
    /// Reads what a worker says is damaged, and tells the scheduler.
    pub(super) fn check(&self, scan: ScanId, piece: Piece) {
        let Some(submission) = self.scans.get(&scan).map(|scan| &scan.submission) else { return };
        let (source, permits, asks) = (submission.prepared.source(), Arc::clone(&self.checks), self.asks.clone());
        tokio::spawn(async move {
            let reading = async {
                let _permit = permits.acquire_owned().await.ok()?;
                tokio::task::spawn_blocking(move || read(&source, piece.segment)).await.ok()
            };
            let found = tokio::time::timeout(CHECK_TIMEOUT, reading).await.ok().flatten().unwrap_or(Check::Unknown);
            if let Some(asks) = asks.upgrade() {
                // Refused only when the term is over.
                let _ = asks.send(Ask::Checked { scan, piece, found }).await;
            }
        });
    }

    /// A worker says that a file of its is damaged.
    pub(super) fn tell_damage(&self, attempt: AttemptId, scan: ScanId, piece: Piece, failure: &Failure) {
        let worker = self.attempts.get(&attempt).and_then(|running| self.workers.get(&running.worker));
        let scan = self.scans.get(&scan).map_or("", |scan| scan.submission.scan_name.as_str());
        let worker = worker.map_or("", String::as_str);
        tracing::warn!(worker, scan, segment = piece.segment, %failure, "a worker's copy of the data is damaged; others are asked");
    }

    /// A worker failed what is sound elsewhere. What it computed otherwise is believed; it joins again once it is started anew.
    pub(super) fn distrust(&mut self, host: HostId, scan: ScanId, piece: Piece) {
        let Some((id, worker)) = self.registered.iter_mut().find(|(_, w)| w.host == host) else { return };
        worker.quarantined = true;
        let id = id.clone();
        let name = self.scans.get(&scan).map_or("", |scan| scan.submission.scan_name.as_str());
        tracing::error!(
            worker = id,
            scan = name,
            segment = piece.segment,
            "this worker fails what is sound elsewhere, it is given nothing more: check its copy of the data and its machine, \
             then start it anew"
        );
        self.tell(scan, News::Quarantined { worker: id });
    }
}

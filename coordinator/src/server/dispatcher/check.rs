//! Checks this process's own copy of the data when only one worker reports that a piece fails: the scheduler requests
//! the check and receives whether the bytes match the manifest.

use std::sync::Arc;
use std::time::Duration;

use trawl_wire::{ErrorKind, Failure};
use trawl_worker::ScanSource;

use super::{Ask, News, State};
use crate::scheduler::{AttemptId, Check, HostId, Piece, ScanId};

/// Number of groups read concurrently.
pub(super) const CHECKS_AT_ONCE: usize = 2;
/// Timeout of one check, including the wait for others; a hanging file system proves nothing.
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
    /// Reads a group that a worker reports as damaged, and reports the result to the scheduler.
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
                // Fails only when the term is over.
                let _ = asks.send(Ask::Checked { scan, piece, found }).await;
            }
        });
    }

    /// Logs a worker's report that a file of its copy is damaged.
    pub(super) fn log_damage(&self, attempt: AttemptId, scan: ScanId, piece: Piece, failure: &Failure) {
        let worker = self.attempts.get(attempt).and_then(|running| self.workers.get(&running.worker));
        let scan = self.scans.get(&scan).map_or("", |scan| scan.submission.scan_name.as_str());
        let worker = worker.map_or("", String::as_str);
        tracing::warn!(worker, scan, segment = piece.segment, %failure, "a worker's copy of the data is damaged; others are asked");
    }

    /// Logs that a worker has no result of a piece, or one that is damaged, not well-formed or of something else.
    pub(super) fn log_failed(&self, attempt: AttemptId, scan: ScanId, piece: Piece, failure: &Failure) {
        let worker = self.attempts.get(attempt).and_then(|running| self.workers.get(&running.worker));
        let scan = self.scans.get(&scan).map_or("", |scan| scan.submission.scan_name.as_str());
        let worker = worker.map_or("", String::as_str);
        tracing::warn!(worker, scan, segment = piece.segment, %failure, "a segment has no usable result yet; it is asked for again");
    }

    /// Takes a worker out of service that failed data that are sound elsewhere. Its other results still count; it joins
    /// again once it is restarted.
    pub(super) fn distrust(&mut self, host: HostId, scan: ScanId, piece: Piece) {
        let Some((id, worker)) = self.registered.iter_mut().find(|(_, w)| w.host == host) else { return };
        worker.quarantined = true;
        self.roster.changed();
        let id = id.clone();
        let name = self.scans.get(&scan).map_or("", |scan| scan.submission.scan_name.as_str());
        tracing::error!(
            worker = id,
            scan = name,
            segment = piece.segment,
            "this worker fails what is sound elsewhere, it is given nothing more: check its copy of the data and its machine, \
             then start it anew"
        );
        self.send_news(scan, News::Quarantined { worker: id });
    }
}

//! Decides when a failure of a piece is final: the report of one host is not proof.
//!
//! A worker that reports a permanent failure of a piece may itself be the cause: a damaged copy of a file, or a broken
//! machine. So another host of the class is asked. If that host fails the piece too, the piece has failed; if it
//! returns a result, the first host is distrusted: it receives nothing more, but its other results still count, since
//! results are compared by their digests. If there is no other host, the coordinator reads its own copy of the data.

use trawl_wire::ErrorKind;

use super::state::PieceState;
use super::wait_queue::QueuedWork;
use super::{AGREEING_HOSTS, Check, Command, HostId, Piece, ScanId, Scheduler};

/// The kind of a proven failure: damage found by all hosts is a property of the snapshot.
fn proven(kind: ErrorKind) -> ErrorKind {
    if kind == ErrorKind::Damaged { ErrorKind::Permanent } else { kind }
}

impl Scheduler {
    /// Handles a host's report that a piece fails permanently.
    pub(super) fn accuse(
        &mut self,
        (id, piece): (ScanId, Piece),
        host: HostId,
        (kind, avoid): (ErrorKind, Vec<HostId>),
        out: &mut Vec<Command>,
    ) {
        let attempts_max = self.limits.attempts_max;
        let Some(scan) = self.scans.get_mut(&id) else { return };
        let Some(progress) = scan.pieces.get_mut(&piece) else { return };
        if !matches!(progress.standing, PieceState::Open) {
            return;
        }
        if !progress.accusers.contains(&host) {
            progress.accusers.push(host);
        }
        if progress.accusers.len() >= AGREEING_HOSTS {
            return self.fail(id, piece, proven(kind), out);
        }
        // Other attempts at it are running and will report.
        if !progress.running.is_empty() || progress.checking.is_some() {
            return;
        }
        let others = self.fleet.serves_beside(scan.class, &progress.accusers);
        if others && progress.tries < attempts_max {
            let work = QueuedWork { pieces: vec![piece], avoid, claim: progress.claim() };
            scan.line.push(work, 0);
            return self.queue(id);
        }
        progress.checking = Some(kind);
        out.push(Command::Check { scan: id, piece });
    }

    /// Handles the result of the coordinator's check of its own copy of the data of a piece that one host failed.
    pub(super) fn checked(&mut self, id: ScanId, piece: Piece, found: Check, now_ms: u64, out: &mut Vec<Command>) {
        let Some(progress) = self.scans.get_mut(&id).and_then(|scan| scan.pieces.get_mut(&piece)) else { return };
        let Some(kind) = progress.checking.take() else { return };
        if !matches!(progress.standing, PieceState::Open) {
            return;
        }
        match found {
            Check::Damaged => self.fail(id, piece, proven(kind), out),
            // The data are sound, so damage is on the host; any other failure is a property of the plan over these
            // data.
            Check::Sound if kind != ErrorKind::Damaged => self.fail(id, piece, kind, out),
            Check::Sound => {
                let accusers = std::mem::take(&mut progress.accusers);
                let mut avoid = accusers.clone();
                avoid.sort_unstable();
                accusers.into_iter().for_each(|accuser| self.distrust(accuser, (id, piece), now_ms, out));
                self.retry(id, vec![piece], (ErrorKind::Retryable, avoid, true), now_ms, out);
            }
            // Nothing is proven: no answer rather than a wrong one.
            Check::Unknown => self.fail(id, piece, ErrorKind::Retryable, out),
        }
    }

    /// Takes a host out of service whose copy of the data, or whose machine, differs from others.
    pub(super) fn distrust(&mut self, host: HostId, (id, piece): (ScanId, Piece), now_ms: u64, out: &mut Vec<Command>) {
        if !self.fleet.is_trusted(host) {
            return;
        }
        let workers = self.fleet.quarantine(host, now_ms);
        out.push(Command::Distrust { host, scan: id, piece });
        for worker in workers {
            self.orphan(worker);
            let running = self.fleet.get(worker).map_or_else(Vec::new, |w| w.in_flight.iter().copied().collect());
            for attempt in running {
                self.call_off(attempt, now_ms, out);
            }
        }
    }
}

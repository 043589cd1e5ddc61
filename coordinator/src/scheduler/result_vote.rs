//! Verification of results: compares the digests of one piece from different hosts.
//!
//! A piece is settled when all trusted hosts agree on it. When they differ, hosts that have not answered are asked
//! until one digest has more votes than any other and at least two; hosts with other digests are quarantined and none
//! of their results count any more, so pieces that only they answered are requested again. A result that proves wrong
//! is replaced before its scan ends. A piece that cannot be settled in time marks the scan disputed; for a delivered
//! scan a doubt is reported.

use std::collections::BTreeMap;

use super::state::{Delivered, PieceState, Scan};
use super::wait_queue::{Claim, QueuedWork};
use super::{Command, DELIVERED_KEPT, Digest, HostId, Piece, ScanId, Scheduler, VOTES_MAX};

/// The outcome of counting the votes on a piece.
enum Finding {
    Settled,
    /// The accepted result is wrong, and the one just reported is right.
    Replaced,
    Asking,
    /// Hosts that contradict the majority.
    Wrong(Vec<HostId>),
}

impl Scheduler {
    /// Records one more result of an accepted piece.
    pub(super) fn vote(
        &mut self,
        id: ScanId,
        piece: Piece,
        host: HostId,
        digest: Digest,
        now_ms: u64,
        out: &mut Vec<Command>,
    ) {
        let Some(verdict) = self.verdict_mut(id, piece) else { return };
        match verdict.votes.iter().find(|(voter, _)| *voter == host).map(|(_, before)| *before == digest) {
            Some(true) => {}
            // A host that contradicts itself is wrong at least once.
            Some(false) => {
                self.unsettle(host, now_ms);
                self.quarantine(host, (id, piece), now_ms, out);
                self.settle(id, piece, None, now_ms, out);
            }
            None => {
                verdict.votes.push((host, digest));
                self.disprove_malformed((id, piece), Some(digest), now_ms, out);
            }
        }
    }

    /// Hosts that were asked for a vote did not answer.
    pub(super) fn decline(&mut self, id: ScanId, piece: Piece, hosts: &[HostId]) {
        let Some(verdict) = self.verdict_mut(id, piece) else { return };
        for host in hosts {
            if !verdict.declined.contains(host) {
                verdict.declined.push(*host);
            }
        }
    }

    /// Counts the votes again. `fresh` is the digest of the result being reported.
    fn settle(&mut self, id: ScanId, piece: Piece, fresh: Option<Digest>, now_ms: u64, out: &mut Vec<Command>) {
        match self.find(id, piece, fresh, out) {
            None => {}
            Some(Finding::Asking) => self.doubt(id, piece, now_ms, out),
            Some(Finding::Wrong(hosts)) => {
                // Each of them may settle this piece and unsettle others: no scan ends before all are processed.
                hosts.iter().for_each(|host| self.unsettle(*host, now_ms));
                for host in hosts {
                    self.quarantine(host, (id, piece), now_ms, out);
                }
                self.settle(id, piece, fresh, now_ms, out);
            }
            Some(finding) => {
                if let (Finding::Replaced, Some(digest), Some(verdict)) = (&finding, fresh, self.verdict_mut(id, piece))
                {
                    verdict.accepted = digest;
                    out.push(Command::Replace { scan: id, piece });
                }
                if let Some(scan) = self.scans.get_mut(&id) {
                    scan.unsettled.remove(&piece);
                }
                self.end_if_complete(id, out);
            }
        }
    }

    fn find(&mut self, id: ScanId, piece: Piece, fresh: Option<Digest>, out: &mut Vec<Command>) -> Option<Finding> {
        let quarantined = &self.quarantined;
        let verdict = self.scans.get_mut(&id)?.pieces.get_mut(&piece)?.verdict()?;
        let mut counts: BTreeMap<Digest, usize> = BTreeMap::new();
        for (_, digest) in verdict.votes.iter().filter(|(host, _)| !quarantined.contains(host)) {
            *counts.entry(*digest).or_default() += 1;
        }
        let most = counts.values().copied().max().unwrap_or(0);
        let leaders: Vec<Digest> = counts.iter().filter(|(_, n)| **n == most).map(|(digest, _)| *digest).collect();
        match (counts.len(), leaders.as_slice()) {
            (1, [digest]) if *digest == verdict.accepted => Some(Finding::Settled),
            (1, [digest]) if Some(*digest) == fresh => Some(Finding::Replaced),
            (0 | 1, _) => Some(Finding::Asking),
            (_, leaders) => {
                if !verdict.contested {
                    verdict.contested = true;
                    out.push(Command::Contest { scan: id, piece });
                }
                let [leader] = leaders else { return Some(Finding::Asking) };
                let wrong = verdict.votes.iter().filter(|(host, d)| d != leader && !quarantined.contains(host));
                Some(Finding::Wrong(wrong.map(|(host, _)| *host).collect()))
            }
        }
    }

    /// Marks a piece as unconfirmed, if it was not, and asks another host.
    fn doubt(&mut self, id: ScanId, piece: Piece, now_ms: u64, out: &mut Vec<Command>) {
        let Some(scan) = self.scans.get_mut(&id) else { return };
        if scan.unsettled.insert(piece)
            && let Some(verdict) = self.verdict_mut(id, piece)
        {
            verdict.since_ms = now_ms;
        }
        self.ask_if_unsettled(id, piece, out);
    }

    /// Asks one more host about an unconfirmed piece; gives up after [`VOTES_MAX`].
    pub(super) fn ask_if_unsettled(&mut self, id: ScanId, piece: Piece, out: &mut Vec<Command>) {
        let Some(scan) = self.scans.get_mut(&id) else { return };
        if !scan.unsettled.contains(&piece) {
            return;
        }
        let Some(progress) = scan.pieces.get_mut(&piece) else { return };
        // Other attempts at it are running and will report.
        if !progress.running.is_empty() {
            return;
        }
        let Some(verdict) = progress.verdict() else { return };
        if verdict.asking {
            return;
        }
        if verdict.asked >= VOTES_MAX {
            return self.leave_open(id, piece, out);
        }
        let mut avoid: Vec<HostId> = verdict.votes.iter().map(|(host, _)| *host).collect();
        avoid.extend(&verdict.declined);
        avoid.sort_unstable();
        avoid.dedup();
        verdict.asking = true;
        scan.line.push(QueuedWork { pieces: vec![piece], avoid, claim: Claim::Others }, 0);
        self.queue(id);
    }

    /// It cannot be settled: the scan ends as disputed.
    fn leave_open(&mut self, id: ScanId, piece: Piece, out: &mut Vec<Command>) {
        if let Some(scan) = self.scans.get_mut(&id) {
            scan.disputed = true;
            scan.unsettled.remove(&piece);
        }
        self.end_if_complete(id, out);
    }

    /// Gives up on pieces that have been unconfirmed for too long.
    pub(super) fn give_up_disputes(&mut self, now_ms: u64, out: &mut Vec<Command>) {
        let mut over = Vec::new();
        for (id, scan) in &mut self.scans {
            for piece in &scan.unsettled {
                let since_ms = scan.pieces.get_mut(piece).and_then(|p| p.verdict()).map_or(0, |v| v.since_ms);
                if now_ms.saturating_sub(since_ms) >= self.limits.dispute_timeout_ms {
                    over.push((*id, *piece));
                }
            }
        }
        for (id, piece) in over {
            self.leave_open(id, piece, out);
        }
    }

    /// Marks every accepted piece that a host has voted on as unconfirmed, until it is settled without that vote.
    fn unsettle(&mut self, host: HostId, now_ms: u64) {
        for scan in self.scans.values_mut() {
            for (piece, progress) in &mut scan.pieces {
                let verdict = progress.verdict().filter(|v| v.votes.iter().any(|(voter, _)| *voter == host));
                if let Some(verdict) = verdict
                    && scan.unsettled.insert(*piece)
                {
                    verdict.since_ms = now_ms;
                }
            }
        }
    }

    /// Discards all results of hosts that answered an accepted piece with what cannot be its result, as far as another host has one; and
    /// counts the votes again. `fresh` as in [`Self::settle`].
    pub(super) fn disprove_malformed(
        &mut self,
        (id, piece): (ScanId, Piece),
        fresh: Option<Digest>,
        now_ms: u64,
        out: &mut Vec<Command>,
    ) {
        let Some(scan) = self.scans.get_mut(&id) else { return };
        let Some(progress) = scan.pieces.get_mut(&piece) else { return };
        let PieceState::Accepted(verdict) = &mut progress.standing else { return };
        let trusted: Vec<HostId> = {
            let voters = verdict.votes.iter().map(|(voter, _)| *voter);
            voters.filter(|voter| !self.quarantined.contains(voter)).collect()
        };
        let wrong = |host: &HostId| trusted.iter().any(|voter| voter != host);
        let hosts: Vec<HostId> = progress.malformed.extract_if(.., |host| wrong(host)).collect();
        if !hosts.is_empty() && scan.unsettled.insert(piece) {
            // The scan does not end before the votes on this piece are counted again.
            verdict.since_ms = now_ms;
        }
        // Nor before all of them are processed.
        hosts.iter().for_each(|host| self.unsettle(*host, now_ms));
        for host in hosts {
            self.quarantine(host, (id, piece), now_ms, out);
        }
        self.settle(id, piece, fresh, now_ms, out);
    }

    /// Discards all past and future results of this host.
    fn quarantine(&mut self, host: HostId, (id, piece): (ScanId, Piece), now_ms: u64, out: &mut Vec<Command>) {
        if !self.quarantined.insert(host) {
            return;
        }
        out.push(Command::Quarantine { host, scan: id, piece });
        for worker in self.fleet.quarantine(host, now_ms) {
            self.orphan(worker);
            let running = self.fleet.get(worker).map_or_else(Vec::new, |w| w.in_flight.iter().copied().collect());
            for attempt in running {
                self.call_off(attempt, now_ms, out);
            }
        }
        let mut its = Vec::new();
        for (scan, state) in &mut self.scans {
            for (piece, progress) in &mut state.pieces {
                if progress.verdict().is_some_and(|v| v.votes.iter().any(|(voter, _)| *voter == host)) {
                    its.push((*scan, *piece));
                }
            }
        }
        for (scan, other) in its {
            if (scan, other) != (id, piece) {
                self.settle(scan, other, None, now_ms, out);
            }
        }
        let of_host = |d: &Delivered| d.pieces.values().any(|(voter, _)| *voter == host);
        for delivered in self.delivered.iter_mut().filter(|d| !d.doubted && of_host(d)) {
            delivered.doubted = true;
            out.push(Command::Doubt { scan: delivered.scan });
        }
    }

    /// Keeps the digests of a scan that ended complete.
    pub(super) fn deliver(&mut self, id: ScanId, scan: Scan, disputed: bool) {
        let mut pieces = BTreeMap::new();
        for (piece, progress) in scan.pieces {
            if let PieceState::Accepted(verdict) = progress.standing {
                let agreeing = verdict.votes.iter().find(|(_, digest)| *digest == verdict.accepted);
                pieces.extend(agreeing.map(|(host, digest)| (piece, (*host, *digest))));
            }
        }
        if self.delivered.len() == DELIVERED_KEPT {
            self.delivered.pop_front();
        }
        self.delivered.push_back(Delivered { scan: id, pieces, doubted: disputed });
    }

    /// Compares a result that arrives after its scan has ended.
    pub(super) fn compare_delivered(
        &mut self,
        id: ScanId,
        host: HostId,
        (piece, digest): (Piece, Digest),
        out: &mut Vec<Command>,
    ) {
        let Some(delivered) = self.delivered.iter_mut().find(|d| d.scan == id) else { return };
        let differs = delivered.pieces.get(&piece).is_some_and(|(other, known)| *other != host && *known != digest);
        if differs && !delivered.doubted {
            delivered.doubted = true;
            out.push(Command::Doubt { scan: id });
        }
    }

    fn verdict_mut(&mut self, id: ScanId, piece: Piece) -> Option<&mut super::state::Verdict> {
        self.scans.get_mut(&id)?.pieces.get_mut(&piece)?.verdict()
    }
}

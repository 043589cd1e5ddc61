//! Whether results can be believed: digests of one piece are compared, whoever gave them.
//!
//! A piece is settled when all hosts that are believed say the same of it. When they differ, hosts that have not
//! answered are asked until one digest has more votes than any other and at least two; those who said otherwise are
//! quarantined, and nothing they said is believed any more, so that pieces that only they answered are asked for again.
//! A result that proves wrong is replaced before its scan ends. What cannot be settled in time marks the scan disputed;
//! a delivered scan is doubted.

use std::collections::BTreeMap;

use super::state::{Delivered, PieceState, Scan};
use super::wait_queue::{Claim, QueuedWork};
use super::{Command, DELIVERED_KEPT, Digest, HostId, Piece, ScanId, Scheduler, VOTES_MAX};

/// What is to be done with a piece.
enum Finding {
    Settled,
    /// The accepted result is wrong, and the one at hand is right.
    Replaced,
    Asking,
    /// Those who said otherwise than most.
    Wrong(Vec<HostId>),
}

impl Scheduler {
    /// One more result of an accepted piece.
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
                self.settle(id, piece, Some(digest), now_ms, out);
            }
        }
    }

    /// A host that was asked for a vote gave none.
    pub(super) fn decline(&mut self, id: ScanId, piece: Piece, hosts: &[HostId]) {
        let Some(verdict) = self.verdict_mut(id, piece) else { return };
        for host in hosts {
            if !verdict.declined.contains(host) {
                verdict.declined.push(*host);
            }
        }
    }

    /// Looks at the votes again. `fresh` is the digest of the result that is being reported.
    fn settle(&mut self, id: ScanId, piece: Piece, fresh: Option<Digest>, now_ms: u64, out: &mut Vec<Command>) {
        match self.find(id, piece, fresh, out) {
            None => {}
            Some(Finding::Asking) => self.doubt(id, piece, now_ms, out),
            Some(Finding::Wrong(hosts)) => {
                // Each of them may settle this piece, and unsettle others: no scan ends before all are looked at.
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

    /// A piece is in doubt from now on, if it was not, and another host is asked.
    fn doubt(&mut self, id: ScanId, piece: Piece, now_ms: u64, out: &mut Vec<Command>) {
        let Some(scan) = self.scans.get_mut(&id) else { return };
        if scan.unsettled.insert(piece)
            && let Some(verdict) = self.verdict_mut(id, piece)
        {
            verdict.since_ms = now_ms;
        }
        self.ask_if_unsettled(id, piece, out);
    }

    /// Asks one more host about a piece in doubt; gives up after [`VOTES_MAX`].
    pub(super) fn ask_if_unsettled(&mut self, id: ScanId, piece: Piece, out: &mut Vec<Command>) {
        let Some(scan) = self.scans.get_mut(&id) else { return };
        if !scan.unsettled.contains(&piece) {
            return;
        }
        let Some(progress) = scan.pieces.get_mut(&piece) else { return };
        // Others that run it will say.
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

    /// Nobody can settle it: the scan ends with a doubt.
    fn leave_open(&mut self, id: ScanId, piece: Piece, out: &mut Vec<Command>) {
        if let Some(scan) = self.scans.get_mut(&id) {
            scan.disputed = true;
            scan.unsettled.remove(&piece);
        }
        self.end_if_complete(id, out);
    }

    /// Leaves open what has been in doubt for too long.
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

    /// Every accepted piece that a host has voted on is in doubt, until it is settled without that vote.
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

    /// Nothing this host says or said is believed any more.
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

    /// A result that comes after its scan has ended.
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

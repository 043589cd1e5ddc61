//! The election of the leading coordinator: `step(event, now) -> commands`, one instance in each coordinator.
//!
//! Pure: no I/O, no clock, no randomness. `server::leadership` runs it around a control store, the simulator around a
//! simulated one. For the required properties see `README.md` of this crate.
//!
//! A candidate takes a lease, puts its record under the leader's key if the key is absent, and renews the lease. The
//! revision at which the key was created is its epoch; every write it makes as a leader is guarded by that epoch, so
//! that a leader which has been replaced without noticing cannot write. It also stops by its own clock: a lease counts
//! from when its renewal was SENT and ends a margin early, so that the leader stops before the store can release the key.
//!
//! A leader whose lease was not renewed in time is suspended: most often the store is away for everybody, and its lease
//! goes on when the store is back. It keeps its lease and its work, and leads on in the same epoch as soon as a renewal
//! has succeeded and its key has been read. It steps down when the lease is over or the key is not its own any more.
//!
//! The shell answers every call once, with its result or [`Event::Failed`]. An answer may arrive late, when it is no
//! longer awaited. A failed call may have been applied, or may be applied later, so the key is read until it is known
//! who leads, and a record carries the number of its campaign, to distinguish a candidate's current write from its
//! earlier ones.

mod messages;
#[cfg(test)]
mod tests;

use trawl_cluster_store::LeaseId;
use trawl_wire::LeaderRecord;

pub use messages::{Command, ElectionRole, Event, Incumbent, Reason, StoreCall};

/// Time to live of a leader's lease: approximately the longest time without a leader after one has died.
pub const LEADER_LEASE_TTL_MS: u64 = 5_000;
/// A lease counts as over 1/`MARGIN_OF_TTL` of its time to live early, to allow for clock drift and for the time
/// between reading the clock and acting.
const MARGIN_OF_TTL: u64 = 5;
/// Renewals of a lease within its time to live.
const RENEWALS_PER_TTL: u64 = 3;
/// Wait after a failed call, which has already made its own retries.
pub const RETRY_MS: u64 = 200;
/// How long a leader that cannot renew its lease may remain suspended. While the store is away nobody can succeed it, and
/// workers refuse its work once they know a successor.
pub const SUSPENDED_MAX_MS: u64 = 300_000;

#[derive(Debug, Clone, Copy)]
struct Lease {
    id: LeaseId,
    deadline_ms: u64,
}

#[derive(Debug, Clone, Copy)]
enum Renewal {
    DueAt { at_ms: u64 },
    Sent { sent_ms: u64 },
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Campaigns when the key is vacant, but not before.
    Standby {
        retry_ms: u64,
    },
    /// A lease was asked for.
    Granting {
        sent_ms: u64,
    },
    /// The record is being put.
    Committing {
        lease: Lease,
    },
    /// The record may have been put: the key is being read.
    Looking {
        lease: Lease,
    },
    /// As `Looking`, but the key could not be read; it is tried again later.
    Unsure {
        lease: Lease,
        retry_ms: u64,
    },
    Leading {
        epoch: i64,
        lease: Lease,
        renewal: Renewal,
    },
    /// The lease was not renewed in time; it is tried on.
    Suspended {
        epoch: i64,
        lease: Lease,
        renewal: Renewal,
        until_ms: u64,
        /// A renewal succeeded, and the key is being read.
        looking: bool,
    },
    Resigning,
    Resigned,
}

/// The known state of the key.
#[derive(Debug, Clone)]
enum Seen {
    Nothing,
    Vacant,
    Held(Incumbent),
}

/// The state of one coordinator; see the module's header.
#[derive(Debug)]
pub struct Election {
    /// This candidate's record, with the number of its current or last campaign.
    record: LeaderRecord,
    ttl_ms: u64,
    seen: Seen,
    /// Revision of the newest view of the key; older views that arrive late are ignored.
    seen_revision: i64,
    phase: Phase,
}

impl Election {
    /// A standby without any view of the key. Campaigns are numbered on from that of `record`.
    pub fn new(record: LeaderRecord, lease_ttl_ms: u64) -> Self {
        Self {
            record,
            ttl_ms: lease_ttl_ms,
            seen: Seen::Nothing,
            seen_revision: 0,
            phase: Phase::Standby { retry_ms: 0 },
        }
    }

    /// Its role as of the last step. Callers that act as the leader must check the deadline themselves.
    pub fn standing(&self) -> ElectionRole {
        match self.phase {
            Phase::Standby { .. } => ElectionRole::Standby { leader: self.leader() },
            Phase::Granting { .. } | Phase::Committing { .. } | Phase::Looking { .. } | Phase::Unsure { .. } => {
                ElectionRole::Campaigning
            }
            Phase::Leading { epoch, lease, .. } => ElectionRole::Leading { epoch, deadline_ms: lease.deadline_ms },
            Phase::Suspended { epoch, .. } => ElectionRole::Suspended { epoch },
            Phase::Resigning => ElectionRole::Resigning,
            Phase::Resigned => ElectionRole::Resigned,
        }
    }

    /// The record of another leader, if known.
    fn leader(&self) -> Option<LeaderRecord> {
        match &self.seen {
            Seen::Held(incumbent) => incumbent.record.clone().filter(|record| record.boot != self.record.boot),
            Seen::Nothing | Seen::Vacant => None,
        }
    }

    /// When the next tick has something to do.
    pub fn wake_ms(&self) -> Option<u64> {
        match self.phase {
            Phase::Standby { retry_ms } => matches!(self.seen, Seen::Vacant).then_some(retry_ms),
            Phase::Committing { lease } | Phase::Looking { lease } => Some(lease.deadline_ms),
            Phase::Unsure { lease, retry_ms } => Some(retry_ms.min(lease.deadline_ms)),
            Phase::Leading { lease, renewal: Renewal::DueAt { at_ms }, .. } => Some(at_ms.min(lease.deadline_ms)),
            Phase::Leading { lease, renewal: Renewal::Sent { .. }, .. } => Some(lease.deadline_ms),
            Phase::Suspended { renewal: Renewal::DueAt { at_ms }, until_ms, .. } => Some(at_ms.min(until_ms)),
            Phase::Suspended { renewal: Renewal::Sent { .. }, until_ms, .. } => Some(until_ms),
            Phase::Granting { .. } | Phase::Resigning | Phase::Resigned => None,
        }
    }

    /// Handles one event and returns the commands to execute. `now_ms` never decreases; it may stop and jump ahead.
    pub fn step(&mut self, event: Event, now_ms: u64) -> Vec<Command> {
        let mut commands = Vec::new();
        let out = &mut commands;
        // First: a process that was stopped past its deadline must not act on this event as the leader.
        self.keep_deadlines(now_ms, out);
        match event {
            Event::Seen { leader, revision } => self.see(leader, revision, now_ms, out),
            Event::Granted { lease, sent_ms } => self.granted(lease, sent_ms, now_ms, out),
            Event::Committed { campaign, applied, revision } => {
                self.committed(campaign, applied, revision, now_ms, out);
            }
            Event::Renewed { lease, sent_ms } => self.renewed(lease, sent_ms, out),
            Event::LeaseOver { lease } => self.lease_over(lease, now_ms, out),
            Event::Failed { call } => self.failed(call, now_ms),
            Event::Succeeded => {
                if let Phase::Suspended { .. } = self.phase {
                    self.withdraw(Reason::Deposed, now_ms, out);
                }
            }
            Event::Abdicated => {
                if let Phase::Resigning = self.phase {
                    self.phase = Phase::Resigned;
                }
            }
            Event::Resign => self.resign(out),
            Event::Tick => {}
        }
        self.act(now_ms, out);
        commands
    }

    /// The time, by its own clock, at which a lease requested or renewed at `sent_ms` ends.
    fn deadline_ms(&self, sent_ms: u64) -> u64 {
        sent_ms.saturating_add(self.ttl_ms - self.ttl_ms / MARGIN_OF_TTL)
    }

    fn renewal_after(&self, sent_ms: u64) -> Renewal {
        Renewal::DueAt { at_ms: sent_ms.saturating_add(self.ttl_ms / RENEWALS_PER_TTL) }
    }

    /// The lease that is held in any phase.
    fn lease(&self) -> Option<Lease> {
        match self.phase {
            Phase::Committing { lease }
            | Phase::Looking { lease }
            | Phase::Unsure { lease, .. }
            | Phase::Leading { lease, .. }
            | Phase::Suspended { lease, .. } => Some(lease),
            Phase::Standby { .. } | Phase::Granting { .. } | Phase::Resigning | Phase::Resigned => None,
        }
    }

    fn keep_deadlines(&mut self, now_ms: u64, out: &mut Vec<Command>) {
        match self.phase {
            Phase::Leading { epoch, lease, renewal } if now_ms >= lease.deadline_ms => {
                let until_ms = now_ms.saturating_add(SUSPENDED_MAX_MS);
                self.phase = Phase::Suspended { epoch, lease, renewal, until_ms, looking: false };
                out.push(Command::Suspend { epoch });
            }
            Phase::Suspended { until_ms, .. } if now_ms >= until_ms => {
                self.withdraw(Reason::NotRenewed, now_ms.saturating_add(RETRY_MS), out);
            }
            Phase::Committing { lease } | Phase::Looking { lease } | Phase::Unsure { lease, .. }
                if now_ms >= lease.deadline_ms =>
            {
                self.withdraw(Reason::NotRenewed, now_ms.saturating_add(RETRY_MS), out);
            }
            _ => {}
        }
    }

    /// Returns to standby from any phase, and revokes the lease together with any record it put.
    fn withdraw(&mut self, reason: Reason, retry_ms: u64, out: &mut Vec<Command>) {
        if let Phase::Leading { epoch, .. } | Phase::Suspended { epoch, .. } = self.phase {
            out.push(Command::StepDown { epoch, reason });
        }
        if let Some(lease) = self.lease().filter(|_| reason != Reason::LeaseOver) {
            out.push(Command::RevokeLease { lease: lease.id });
        }
        self.phase = Phase::Standby { retry_ms };
    }

    fn see(&mut self, leader: Option<Incumbent>, revision: i64, now_ms: u64, out: &mut Vec<Command>) {
        if revision < self.seen_revision {
            return;
        }
        self.seen_revision = revision;
        self.seen = leader.map_or(Seen::Vacant, Seen::Held);
        match (self.phase, &self.seen) {
            (Phase::Suspended { epoch, lease, renewal, looking: true, .. }, Seen::Held(incumbent))
                if incumbent.epoch == epoch && now_ms < lease.deadline_ms =>
            {
                self.phase = Phase::Leading { epoch, lease, renewal };
                out.push(Command::Resume { epoch });
            }
            (Phase::Leading { epoch, .. } | Phase::Suspended { epoch, .. }, Seen::Held(incumbent))
                if incumbent.epoch == epoch => {}
            (Phase::Leading { .. } | Phase::Suspended { .. }, Seen::Held(_)) => {
                self.withdraw(Reason::Deposed, now_ms, out);
            }
            (Phase::Leading { .. } | Phase::Suspended { .. }, Seen::Vacant) => {
                self.withdraw(Reason::KeyGone, now_ms, out);
            }
            (
                Phase::Committing { lease } | Phase::Looking { lease } | Phase::Unsure { lease, .. },
                Seen::Held(incumbent),
            ) => {
                // A record of an earlier campaign disappears with its own lease, not with this one.
                if incumbent.record.as_ref() == Some(&self.record) {
                    self.lead(incumbent.epoch, lease, out);
                } else {
                    self.withdraw(Reason::Deposed, now_ms, out);
                }
            }
            (Phase::Looking { lease } | Phase::Unsure { lease, .. }, Seen::Vacant) => self.commit(lease, out),
            (Phase::Granting { .. }, Seen::Held(_)) => self.phase = Phase::Standby { retry_ms: now_ms },
            _ => {}
        }
    }

    fn granted(&mut self, id: LeaseId, sent_ms: u64, now_ms: u64, out: &mut Vec<Command>) {
        let lease = Lease { id, deadline_ms: self.deadline_ms(sent_ms) };
        match self.phase {
            Phase::Granting { sent_ms: awaited_ms } if awaited_ms == sent_ms => {
                if now_ms >= lease.deadline_ms {
                    out.push(Command::RevokeLease { lease: id });
                    self.phase = Phase::Standby { retry_ms: now_ms };
                } else {
                    self.record.campaign += 1;
                    self.commit(lease, out);
                }
            }
            // No longer needed.
            _ => out.push(Command::RevokeLease { lease: id }),
        }
    }

    /// Puts the record. Repeating it for the same campaign and lease is harmless: the guard lets only one put apply.
    fn commit(&mut self, lease: Lease, out: &mut Vec<Command>) {
        self.phase = Phase::Committing { lease };
        out.push(Command::Campaign { lease: lease.id, record: self.record.clone() });
    }

    fn committed(&mut self, campaign: u64, applied: bool, revision: i64, now_ms: u64, out: &mut Vec<Command>) {
        let Phase::Committing { lease } = self.phase else { return };
        if campaign != self.record.campaign {
            return;
        }
        let is_its = matches!(&self.seen, Seen::Held(incumbent) if incumbent.epoch == revision);
        if applied && self.seen_revision > revision && !is_its {
            // The known state of the key is newer than this answer: the record was put, and is gone again.
            return self.withdraw(Reason::KeyGone, now_ms, out);
        }
        if applied {
            self.lead(revision, lease, out);
        } else {
            // A record exists, perhaps its own from a try that was not answered.
            self.seen_revision = self.seen_revision.max(revision);
            self.phase = Phase::Looking { lease };
            out.push(Command::Look);
        }
    }

    fn lead(&mut self, epoch: i64, lease: Lease, out: &mut Vec<Command>) {
        self.seen = Seen::Held(Incumbent { epoch, record: Some(self.record.clone()) });
        self.seen_revision = self.seen_revision.max(epoch);
        let granted_ms = lease.deadline_ms.saturating_sub(self.deadline_ms(0));
        self.phase = Phase::Leading { epoch, lease, renewal: self.renewal_after(granted_ms) };
        out.push(Command::BecomeLeader { epoch });
    }

    fn renewed(&mut self, id: LeaseId, answered_ms: u64, out: &mut Vec<Command>) {
        let (next, until_ms) = (self.renewal_after(answered_ms), self.deadline_ms(answered_ms));
        let (Phase::Leading { lease, renewal, .. } | Phase::Suspended { lease, renewal, .. }) = &mut self.phase else {
            return;
        };
        if lease.id == id && matches!(renewal, Renewal::Sent { sent_ms } if *sent_ms == answered_ms) {
            lease.deadline_ms = lease.deadline_ms.max(until_ms);
            *renewal = next;
            if let Phase::Suspended { looking, .. } = &mut self.phase {
                // The lease may have outlived the key.
                *looking = true;
                out.push(Command::Look);
            }
        }
    }

    fn lease_over(&mut self, id: LeaseId, now_ms: u64, out: &mut Vec<Command>) {
        if self.lease().is_some_and(|lease| lease.id == id) {
            self.withdraw(Reason::LeaseOver, now_ms, out);
        }
    }

    fn failed(&mut self, call: StoreCall, now_ms: u64) {
        let retry_ms = now_ms.saturating_add(RETRY_MS);
        self.phase = match (self.phase, call) {
            (Phase::Granting { sent_ms }, StoreCall::Grant { sent_ms: failed_ms }) if sent_ms == failed_ms => {
                Phase::Standby { retry_ms }
            }
            (Phase::Committing { lease }, StoreCall::Campaign { campaign }) if campaign == self.record.campaign => {
                Phase::Unsure { lease, retry_ms }
            }
            (Phase::Looking { lease }, StoreCall::Look) => Phase::Unsure { lease, retry_ms },
            (
                Phase::Leading { epoch, lease, renewal: Renewal::Sent { sent_ms } },
                StoreCall::KeepAlive { sent_ms: failed_ms },
            ) if sent_ms == failed_ms => Phase::Leading { epoch, lease, renewal: Renewal::DueAt { at_ms: retry_ms } },
            (
                Phase::Suspended { epoch, lease, renewal: Renewal::Sent { sent_ms }, until_ms, looking },
                StoreCall::KeepAlive { sent_ms: failed_ms },
            ) if sent_ms == failed_ms => {
                Phase::Suspended { epoch, lease, renewal: Renewal::DueAt { at_ms: retry_ms }, until_ms, looking }
            }
            (Phase::Suspended { epoch, lease, until_ms, looking: true, .. }, StoreCall::Look) => {
                // Renewed and read again.
                let renewal = Renewal::DueAt { at_ms: retry_ms };
                Phase::Suspended { epoch, lease, renewal, until_ms, looking: false }
            }
            (phase, _) => phase,
        };
    }

    fn resign(&mut self, out: &mut Vec<Command>) {
        self.phase = match self.phase {
            Phase::Leading { epoch, lease, .. } | Phase::Suspended { epoch, lease, .. } => {
                out.push(Command::StepDown { epoch, reason: Reason::Resigned });
                out.push(Command::Abdicate { epoch, lease: lease.id });
                Phase::Resigning
            }
            Phase::Resigning => Phase::Resigning,
            _ => {
                out.extend(self.lease().map(|lease| Command::RevokeLease { lease: lease.id }));
                Phase::Resigned
            }
        };
    }

    /// Performs the actions due at `now_ms`.
    fn act(&mut self, now_ms: u64, out: &mut Vec<Command>) {
        match &mut self.phase {
            Phase::Standby { retry_ms } if matches!(self.seen, Seen::Vacant) && now_ms >= *retry_ms => {
                self.phase = Phase::Granting { sent_ms: now_ms };
                out.push(Command::GrantLease { sent_ms: now_ms });
            }
            Phase::Unsure { lease, retry_ms } if now_ms >= *retry_ms => {
                self.phase = Phase::Looking { lease: *lease };
                out.push(Command::Look);
            }
            Phase::Leading { lease, renewal, .. } | Phase::Suspended { lease, renewal, .. } => {
                if let Renewal::DueAt { at_ms } = *renewal
                    && now_ms >= at_ms
                {
                    *renewal = Renewal::Sent { sent_ms: now_ms };
                    out.push(Command::KeepAlive { lease: lease.id, sent_ms: now_ms });
                }
            }
            _ => {}
        }
    }
}

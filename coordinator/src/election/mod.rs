//! Which coordinator leads: `step(event, now) -> commands`, one of these in each coordinator.
//!
//! Pure: no I/O, no clock, no randomness. `server::leadership` runs it around a control store, the simulator around a
//! simulated one. Wanted properties: see `README.md` beside this room's sources.
//!
//! A candidate takes a lease, puts its record under the leader's key if the key is absent, and renews the lease. The
//! revision at which the key was created is its epoch; every write it makes as a leader is guarded by it, so that a leader
//! which does not know yet that it is one no more cannot write. Besides, it stops by its own clock: a lease counts from
//! when its renewal was SENT and ends a margin early, so that it has stepped down before the store can give the key away.
//!
//! The shell answers every call once, with its result or [`Event::Failed`]. An answer may come late, when nothing waits for
//! it any more. A call that failed may have been made, now or later: so the key is read until it says who leads, and a
//! record carries the number of its campaign, to tell a candidate's own write from one of its earlier ones.

#[cfg(test)]
mod tests;

use trawl_cluster_store::LeaseId;
use trawl_wire::LeaderRecord;

/// Time to live of a leader's lease: for so long nobody leads after a leader died, at worst and about.
pub const LEADER_LEASE_TTL_MS: u64 = 5_000;
/// A lease counts as over that part of its time to live early: clocks that run at different rates, and the time between
/// a look at the clock and what is done then.
const MARGIN_OF_TTL: u64 = 5;
/// A lease is renewed so many times in its time to live.
const RENEWALS_PER_TTL: u64 = 3;
/// Wait after a call that failed, which made its own tries.
pub const RETRY_MS: u64 = 200;

/// Who holds the leader's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incumbent {
    /// The store's revision when the key was created.
    pub epoch: i64,
    /// What stands under the key; `None` when it cannot be read. Nobody leads then, and nobody else may.
    pub record: Option<LeaderRecord>,
}

/// A call of the shell, as its failure names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreCall {
    /// [`Command::GrantLease`].
    Grant { sent_ms: u64 },
    /// [`Command::Campaign`].
    Campaign { campaign: u64 },
    /// [`Command::Look`].
    Look,
    /// [`Command::KeepAlive`].
    KeepAlive { sent_ms: u64 },
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// What stood under the leader's key at a revision of the store: listed, read, or told by a watch.
    Seen { leader: Option<Incumbent>, revision: i64 },
    /// The lease that was asked for at `sent_ms`.
    Granted { lease: LeaseId, sent_ms: u64 },
    /// How the put of a campaign's record ended. Not applied: perhaps an earlier try of it was.
    Committed { campaign: u64, applied: bool, revision: i64 },
    /// The keep-alive that was sent at `sent_ms` was answered.
    Renewed { lease: LeaseId, sent_ms: u64 },
    /// The store says that a lease is over.
    LeaseOver { lease: LeaseId },
    /// A call failed; it may have been made.
    Failed { call: StoreCall },
    /// The key was given back and the lease revoked, or neither could be.
    Abdicated,
    /// This process leaves: it hands over and never leads again.
    Resign,
    /// Time went by.
    Tick,
}

/// Why a leader stops to be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// No keep-alive that was sent in time was answered.
    NotRenewed,
    /// The store says that the lease is over.
    LeaseOver,
    /// Its key is gone.
    KeyGone,
    /// The key is another's.
    Deposed,
    /// It leaves.
    Resigned,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotRenewed => "its lease was not renewed in time",
            Self::LeaseOver => "its lease is over",
            Self::KeyGone => "its key is gone",
            Self::Deposed => "another has taken its key",
            Self::Resigned => "it hands over",
        })
    }
}

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Take a lease of the time to live this election was made with.
    GrantLease { sent_ms: u64 },
    /// Put the record under the leader's key with this lease, if the key is absent.
    Campaign { lease: LeaseId, record: LeaderRecord },
    /// Read the leader's key.
    Look,
    /// Renew the lease; the answer names `sent_ms`.
    KeepAlive { lease: LeaseId, sent_ms: u64 },
    /// From now on this coordinator leads; until when says [`Election::standing`], anew after every step.
    BecomeLeader { epoch: i64 },
    /// It leads no more. Always before whatever else a step says.
    StepDown { epoch: i64, reason: Reason },
    /// Delete the key if it is still of this epoch, then revoke the lease.
    Abdicate { epoch: i64, lease: LeaseId },
    /// End the lease, and with it what it may have put; unanswered, since it ends by itself too.
    RevokeLease { lease: LeaseId },
}

/// Where a coordinator stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElectionRole {
    /// It does not lead; who does, if that is known and another.
    Standby {
        /// The leader's record.
        leader: Option<LeaderRecord>,
    },
    /// Nobody leads as far as it knows, and it tries to.
    Campaigning,
    /// It leads.
    Leading {
        /// The revision of its key.
        epoch: i64,
        /// By its own clock; renewals move it on.
        deadline_ms: u64,
    },
    /// It gives its leadership back.
    Resigning,
    /// It will never lead again.
    Resigned,
}

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
    /// It may have been put: the key is being read.
    Looking {
        lease: Lease,
    },
    /// The same, and the key could not be read; when it is tried again.
    Unsure {
        lease: Lease,
        retry_ms: u64,
    },
    Leading {
        epoch: i64,
        lease: Lease,
        renewal: Renewal,
    },
    Resigning,
    Resigned,
}

/// What is known of the key.
#[derive(Debug, Clone)]
enum Seen {
    Nothing,
    Vacant,
    Held(Incumbent),
}

/// The state of one coordinator; see the module's header.
#[derive(Debug)]
pub struct Election {
    /// Its own; the campaign is the current or last one.
    record: LeaderRecord,
    ttl_ms: u64,
    seen: Seen,
    /// Of the newest view of the key: older ones come late and are nothing new.
    seen_revision: i64,
    phase: Phase,
}

impl Election {
    /// A standby that knows nothing yet. `record`'s campaign is counted on.
    pub fn new(record: LeaderRecord, lease_ttl_ms: u64) -> Self {
        Self {
            record,
            ttl_ms: lease_ttl_ms,
            seen: Seen::Nothing,
            seen_revision: 0,
            phase: Phase::Standby { retry_ms: 0 },
        }
    }

    /// Where it stands, as of the last step: whoever acts on it looks at the deadline himself.
    pub fn standing(&self) -> ElectionRole {
        match self.phase {
            Phase::Standby { .. } => ElectionRole::Standby { leader: self.leader() },
            Phase::Granting { .. } | Phase::Committing { .. } | Phase::Looking { .. } | Phase::Unsure { .. } => {
                ElectionRole::Campaigning
            }
            Phase::Leading { epoch, lease, .. } => ElectionRole::Leading { epoch, deadline_ms: lease.deadline_ms },
            Phase::Resigning => ElectionRole::Resigning,
            Phase::Resigned => ElectionRole::Resigned,
        }
    }

    /// Another that leads.
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
            Phase::Granting { .. } | Phase::Resigning | Phase::Resigned => None,
        }
    }

    /// Takes one event and says what to do. `now_ms` never goes back; it may stand still and jump ahead.
    pub fn step(&mut self, event: Event, now_ms: u64) -> Vec<Command> {
        let mut commands = Vec::new();
        let out = &mut commands;
        // First of all: whoever was stopped past its deadline does not act on what it hears now.
        self.keep_deadlines(now_ms, out);
        match event {
            Event::Seen { leader, revision } => self.see(leader, revision, now_ms, out),
            Event::Granted { lease, sent_ms } => self.granted(lease, sent_ms, now_ms, out),
            Event::Committed { campaign, applied, revision } => {
                self.committed(campaign, applied, revision, now_ms, out);
            }
            Event::Renewed { lease, sent_ms } => self.renewed(lease, sent_ms),
            Event::LeaseOver { lease } => self.lease_over(lease, now_ms, out),
            Event::Failed { call } => self.failed(call, now_ms),
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

    /// By its own clock a lease that was asked for or renewed at `sent_ms` ends then.
    fn deadline_ms(&self, sent_ms: u64) -> u64 {
        sent_ms.saturating_add(self.ttl_ms - self.ttl_ms / MARGIN_OF_TTL)
    }

    fn renewal_after(&self, sent_ms: u64) -> Renewal {
        Renewal::DueAt { at_ms: sent_ms.saturating_add(self.ttl_ms / RENEWALS_PER_TTL) }
    }

    /// The lease that is held, whatever for.
    fn lease(&self) -> Option<Lease> {
        match self.phase {
            Phase::Committing { lease }
            | Phase::Looking { lease }
            | Phase::Unsure { lease, .. }
            | Phase::Leading { lease, .. } => Some(lease),
            Phase::Standby { .. } | Phase::Granting { .. } | Phase::Resigning | Phase::Resigned => None,
        }
    }

    fn keep_deadlines(&mut self, now_ms: u64, out: &mut Vec<Command>) {
        if self.lease().is_some_and(|lease| now_ms >= lease.deadline_ms) {
            self.withdraw(Reason::NotRenewed, now_ms.saturating_add(RETRY_MS), out);
        }
    }

    /// Back to standby from wherever it was; the lease goes, and with it what it may have put.
    fn withdraw(&mut self, reason: Reason, retry_ms: u64, out: &mut Vec<Command>) {
        if let Phase::Leading { epoch, .. } = self.phase {
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
            (Phase::Leading { epoch, .. }, Seen::Held(incumbent)) if incumbent.epoch == epoch => {}
            (Phase::Leading { .. }, Seen::Held(_)) => self.withdraw(Reason::Deposed, now_ms, out),
            (Phase::Leading { .. }, Seen::Vacant) => self.withdraw(Reason::KeyGone, now_ms, out),
            (
                Phase::Committing { lease } | Phase::Looking { lease } | Phase::Unsure { lease, .. },
                Seen::Held(incumbent),
            ) => {
                // An earlier campaign's record goes with its lease: it is not this lease that keeps it.
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
            // Nobody wants it any more.
            _ => out.push(Command::RevokeLease { lease: id }),
        }
    }

    /// Puts the record. Made again for the same campaign and lease it does no harm: the guard lets one put apply.
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
            // What is known of the key is newer than this answer: the record was there, and is gone again.
            return self.withdraw(Reason::KeyGone, now_ms, out);
        }
        if applied {
            self.lead(revision, lease, out);
        } else {
            // Somebody's record is there, perhaps its own from a try that was not answered.
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

    fn renewed(&mut self, id: LeaseId, answered_ms: u64) {
        let (next, until_ms) = (self.renewal_after(answered_ms), self.deadline_ms(answered_ms));
        if let Phase::Leading { lease, renewal, .. } = &mut self.phase
            && lease.id == id
            && matches!(renewal, Renewal::Sent { sent_ms } if *sent_ms == answered_ms)
        {
            lease.deadline_ms = lease.deadline_ms.max(until_ms);
            *renewal = next;
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
            (phase, _) => phase,
        };
    }

    fn resign(&mut self, out: &mut Vec<Command>) {
        self.phase = match self.phase {
            Phase::Leading { epoch, lease, .. } => {
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

    /// What is due.
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
            Phase::Leading { lease, renewal, .. } => {
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

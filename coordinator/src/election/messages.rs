//! What the election hears and says: events, commands, roles.

use trawl_cluster_store::LeaseId;
use trawl_wire::LeaderRecord;

/// Who holds the leader's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incumbent {
    /// The store's revision when the key was created.
    pub epoch: i64,
    /// The record under the key; `None` if it cannot be decoded. Nobody leads then, and no other candidate may.
    pub record: Option<LeaderRecord>,
}

/// Identifies a call of the shell in [`Event::Failed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreCall {
    /// [`Command::GrantLease`].
    Grant {
        /// As in the command.
        sent_ms: u64,
    },
    /// [`Command::Campaign`].
    Campaign {
        /// Number of the campaign in the record.
        campaign: u64,
    },
    /// [`Command::Look`].
    Look,
    /// [`Command::KeepAlive`].
    KeepAlive {
        /// As in the command.
        sent_ms: u64,
    },
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The record under the leader's key at a revision of the store: listed, read, or from a watch.
    Seen {
        /// The incumbent; `None` if the key is absent.
        leader: Option<Incumbent>,
        /// The store's revision of this view.
        revision: i64,
    },
    /// The lease that was asked for at `sent_ms`.
    Granted {
        /// The lease granted.
        lease: LeaseId,
        /// As in [`Command::GrantLease`].
        sent_ms: u64,
    },
    /// The outcome of the put of a campaign's record. If not `applied`, an earlier try of it may have been.
    Committed {
        /// Number of the campaign in the record.
        campaign: u64,
        /// Whether this put created the key.
        applied: bool,
        /// The store's revision afterwards; if applied, the epoch.
        revision: i64,
    },
    /// The keep-alive that was sent at `sent_ms` was answered.
    Renewed {
        /// The lease renewed.
        lease: LeaseId,
        /// As in [`Command::KeepAlive`].
        sent_ms: u64,
    },
    /// The store reports that a lease is over.
    LeaseOver {
        /// The lease that is over.
        lease: LeaseId,
    },
    /// A call failed; it may have been applied.
    Failed {
        /// The call that failed.
        call: StoreCall,
    },
    /// A worker knows a leader of a later epoch than this one's.
    Succeeded,
    /// The key was deleted and the lease revoked, or neither was possible.
    Abdicated,
    /// This process leaves: it hands over and never leads again.
    Resign,
    /// Time has passed.
    Tick,
}

/// Why a leader steps down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// No keep-alive was answered for [`SUSPENDED_MAX_MS`](super::SUSPENDED_MAX_MS) after the last one.
    NotRenewed,
    /// The store reports that the lease is over.
    LeaseOver,
    /// Its key is gone.
    KeyGone,
    /// Another candidate holds the key, or held it.
    Deposed,
    /// It resigned.
    Resigned,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotRenewed => "its lease could not be renewed for too long",
            Self::LeaseOver => "its lease is over",
            Self::KeyGone => "its key is gone",
            Self::Deposed => "another has taken its key",
            Self::Resigned => "it hands over",
        })
    }
}

/// An action of the shell; commands are to be executed in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Take a lease of the time to live this election was made with.
    GrantLease {
        /// When it was asked for, by the candidate's clock in milliseconds.
        sent_ms: u64,
    },
    /// Put the record under the leader's key with this lease, if the key is absent.
    Campaign {
        /// The lease that the record depends on.
        lease: LeaseId,
        /// The record to put, with the number of its campaign.
        record: LeaderRecord,
    },
    /// Read the leader's key.
    Look,
    /// Renew the lease; the answer names `sent_ms`.
    KeepAlive {
        /// The lease to renew.
        lease: LeaseId,
        /// When it is sent, by the candidate's clock in milliseconds.
        sent_ms: u64,
    },
    /// From now on this coordinator leads, until the deadline in [`Election::standing`], which every step may extend.
    BecomeLeader {
        /// The revision at which its key was created.
        epoch: i64,
    },
    /// Its lease was not renewed in time: another coordinator may lead soon, or none can. What runs in its epoch goes on;
    /// nothing that has to be recorded begins. `Resume` or `StepDown` follows.
    Suspend {
        /// The epoch in which it led.
        epoch: i64,
    },
    /// Its lease and its key outlived the suspension: it leads on in the same epoch.
    Resume {
        /// The revision at which its key was created.
        epoch: i64,
    },
    /// It no longer leads, or is no longer suspended. Always the first command of a step, after `Suspend` at most.
    StepDown {
        /// The epoch in which it led.
        epoch: i64,
        /// Why it steps down.
        reason: Reason,
    },
    /// Delete the key if it is still of this epoch, then revoke the lease.
    Abdicate {
        /// The revision at which its key was created.
        epoch: i64,
        /// The lease to revoke.
        lease: LeaseId,
    },
    /// Revoke the lease, and with it any record it put. Not answered, since the lease also expires by itself.
    RevokeLease {
        /// The lease to revoke.
        lease: LeaseId,
    },
}

/// The role of a coordinator in the election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElectionRole {
    /// It does not lead.
    Standby {
        /// The leader's record, if another coordinator is known to lead.
        leader: Option<LeaderRecord>,
    },
    /// No leader is known, and it tries to become one.
    Campaigning,
    /// It leads.
    Leading {
        /// The revision of its key.
        epoch: i64,
        /// By its own clock, in milliseconds; extended by renewals.
        deadline_ms: u64,
    },
    /// It led, its lease was not renewed in time, and it does not know whether it is over.
    Suspended {
        /// The revision of its key.
        epoch: i64,
    },
    /// It is giving up its leadership.
    Resigning,
    /// It will never lead again.
    Resigned,
}

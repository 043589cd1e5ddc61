//! Runs for leadership for as long as the process lives: an [`Election`] around a control store.
//!
//! It has its own thread, runtime and store client, so that neither busy scans nor slow clients make a leader miss its
//! renewals. The rest of the process watches a [`Leadership`].

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use trawl_cluster_store::{Backoff, Change, ControlError, ControlStore, Entry, Guard, LeaseId, Write};
use trawl_telemetry::metrics::catalogue::coordinator::{ELECTIONS_WON, LEADER, LEADER_EPOCH, TERMS_ENDED};
use trawl_wire::LeaderRecord;
use trawl_wire::limits::{LEADER_RECORD_BYTES_MAX, PROTOCOL_VERSION};
use trawl_wire::record::leader_key;

use super::heartbeat::Heartbeat;
use crate::election::{Command, Election, ElectionRole, Event, Incumbent, LEADER_LEASE_TTL_MS, Reason, StoreCall};

/// Time to live of a leader's lease.
pub const LEADER_LEASE_TTL_DEFAULT: Duration = Duration::from_millis(LEADER_LEASE_TTL_MS);
/// Capacity of the channel of key views to the election.
const VIEWS_WAITING_MAX: usize = 16;
/// Wait before listing and watching the key again.
const BACK_OFF: Duration = Duration::from_millis(100);
/// Longest such wait.
const BACK_OFF_MAX: Duration = Duration::from_secs(2);
/// Interval of reading the leader's key while its watch is silent.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// Interval of log messages while the store does not answer.
const BLIND_REMINDER: Duration = Duration::from_secs(30);
/// A keep-alive not answered within the time to live divided by this number is given up and sent again, to another
/// endpoint.
const KEEP_ALIVES_PER_TTL: u32 = 3;
/// How long a leader's work may make no progress before it hands over. Above the longest step of the dispatcher, so
/// that a busy leader keeps leading.
pub const WORK_STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of handing over: if the store is unavailable, the lease expires by itself.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Whether this coordinator leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leadership {
    /// It does not lead.
    Standby {
        /// The leader, if known.
        leader: Option<LeaderRecord>,
    },
    /// It leads for this term.
    Leading(Term),
    /// It led in this epoch and could not renew its lease in time: its work goes on, and it may lead on in the same epoch.
    Suspended {
        /// See [`Term::epoch`].
        epoch: i64,
    },
}

impl Leadership {
    /// The epoch in which this coordinator leads, or led until it was suspended.
    pub fn epoch(&self) -> Option<i64> {
        match self {
            Self::Leading(Term { epoch, .. }) | Self::Suspended { epoch } => Some(*epoch),
            Self::Standby { .. } => None,
        }
    }
}

/// The right to act as a leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// Create revision of the leader's key; increases from leader to leader.
    pub epoch: i64,
    /// The key whose create revision is the epoch.
    pub leader_key: Arc<str>,
}

impl Term {
    /// Guard for every write made as this leader, which prevents writes by a leader that has been replaced, independent of
    /// all clocks.
    pub fn guard(&self) -> Guard {
        Guard::Created { key: self.leader_key.to_string(), revision: self.epoch }
    }
}

/// How a coordinator presents itself in the election.
#[derive(Debug, Clone)]
pub struct Candidacy {
    /// Prefix of every key.
    pub cluster_name: String,
    /// Unique in the cluster.
    pub id: String,
    /// New at every start of the process.
    pub boot: String,
    /// `HOST:PORT` under which clients and other coordinators reach it.
    pub address: String,
    /// See [`LEADER_LEASE_TTL_DEFAULT`].
    pub lease_ttl: Duration,
    /// See [`WORK_STALL_TIMEOUT`].
    pub stall_timeout: Duration,
}

/// A running candidate. Dropping it hands over as [`Candidate::resign`] does, without waiting.
#[derive(Debug)]
pub struct Candidate {
    leadership: watch::Receiver<Leadership>,
    heartbeat: Heartbeat,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

/// Starts a candidate with its own store client.
///
/// # Errors
/// When the thread cannot be started.
pub fn stand(store: impl ControlStore, candidacy: Candidacy) -> std::io::Result<Candidate> {
    let (stop, stopped) = oneshot::channel();
    let (sender, leadership) = watch::channel(Leadership::Standby { leader: None });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let heartbeat = Heartbeat::default();
    let watched = heartbeat.clone();
    let thread = std::thread::Builder::new().name("trawl-election".to_owned());
    let thread = thread.spawn(move || runtime.block_on(run(Arc::new(store), candidacy, sender, (stopped, watched))))?;
    Ok(Candidate { leadership, heartbeat, stop, thread })
}

impl Candidate {
    /// Whether this coordinator leads, as a watch channel.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// Where the leader's work shows its progress; without it this candidate hands over and leads no more.
    pub fn heartbeat(&self) -> Heartbeat {
        self.heartbeat.clone()
    }

    /// Hands over if it leads (bounded in time), and never leads again. All work as the leader must have stopped.
    pub async fn resign(self) {
        let _ = self.stop.send(());
        let _ = tokio::task::spawn_blocking(move || self.thread.join()).await;
    }
}

async fn run<S: ControlStore>(
    store: Arc<S>,
    candidacy: Candidacy,
    sender: watch::Sender<Leadership>,
    (mut stopped, heartbeat): (oneshot::Receiver<()>, Heartbeat),
) {
    let started = Instant::now();
    let key: Arc<str> = leader_key(&candidacy.cluster_name).into();
    let Candidacy { id, boot, address, lease_ttl, stall_timeout, .. } = candidacy;
    let record = LeaderRecord { id, boot, address, protocol_version: PROTOCOL_VERSION, campaign: 0 };
    let mut election = Election::new(record, u64::try_from(lease_ttl.as_millis()).unwrap_or(u64::MAX));
    let (views, mut viewed) = mpsc::channel(VIEWS_WAITING_MAX);
    let mut background = JoinSet::new();
    background.spawn(follow_key(Arc::clone(&store), Arc::clone(&key), views));
    let mut calls: JoinSet<Option<Event>> = JoinSet::new();
    let mut resigned = false;
    while !matches!(election.standing(), ElectionRole::Resigned) {
        let wake = election.wake_ms().map(|ms| started + Duration::from_millis(ms));
        let event = tokio::select! {
            _ = &mut stopped, if !resigned => {
                resigned = true;
                Event::Resign
            }
            Some(answered) = calls.join_next() => match answered {
                Ok(Some(event)) => event,
                _ => continue,
            },
            Some(view) = viewed.recv() => view,
            () = sleep_until(wake) => Event::Tick,
        };
        let leads = matches!(election.standing(), ElectionRole::Leading { .. } | ElectionRole::Suspended { .. });
        let stuck = leads && heartbeat.age() > stall_timeout;
        let event = if stuck && !resigned {
            tracing::error!(
                after_s = heartbeat.age().as_secs(),
                "internal error: the leader's work is stuck, this coordinator hands over and ends"
            );
            resigned = true;
            Event::Resign
        } else if let ElectionRole::Suspended { epoch } = election.standing()
            && heartbeat.is_succeeded(epoch)
            && !matches!(event, Event::Resign)
        {
            Event::Succeeded
        } else {
            event
        };
        let now_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        for command in election.step(event, now_ms) {
            if matches!(command, Command::BecomeLeader { .. }) {
                heartbeat.beat();
            }
            say(&command);
            calls.spawn(perform(Arc::clone(&store), Arc::clone(&key), command, lease_ttl));
        }
        let leadership = match election.standing() {
            ElectionRole::Leading { epoch, .. } => Leadership::Leading(Term { epoch, leader_key: Arc::clone(&key) }),
            ElectionRole::Suspended { epoch } => Leadership::Suspended { epoch },
            ElectionRole::Standby { leader } => Leadership::Standby { leader },
            ElectionRole::Campaigning | ElectionRole::Resigning | ElectionRole::Resigned => {
                Leadership::Standby { leader: None }
            }
        };
        sender.send_if_modified(|known| {
            let changed = *known != leadership;
            *known = leadership;
            changed
        });
    }
    let last = async { while calls.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(LEAVE_TIMEOUT, last).await;
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

fn say(command: &Command) {
    match command {
        Command::BecomeLeader { epoch } => {
            LEADER.set(1);
            LEADER_EPOCH.set(*epoch);
            ELECTIONS_WON.inc();
        }
        Command::Suspend { .. } => LEADER.set(0),
        Command::Resume { .. } => LEADER.set(1),
        Command::StepDown { .. } => {
            LEADER.set(0);
            TERMS_ENDED.inc();
        }
        _ => {}
    }
    match command {
        Command::BecomeLeader { epoch } => tracing::info!(epoch, "leads the cluster"),
        Command::Suspend { epoch } => tracing::warn!(
            epoch,
            "cannot renew its lease in time: what runs goes on, nothing new begins until etcd answers"
        ),
        Command::Resume { epoch } => tracing::info!(epoch, "its lease is renewed, it leads the cluster on"),
        Command::StepDown { epoch, reason: Reason::Resigned } => tracing::info!(epoch, "hands the lead over"),
        Command::StepDown { epoch, reason } => tracing::warn!(epoch, %reason, "leads the cluster no more"),
        _ => {}
    }
}

/// Executes one command as a call on the store; returns the event that answers it.
async fn perform<S: ControlStore>(
    store: Arc<S>,
    key: Arc<str>,
    command: Command,
    lease_ttl: Duration,
) -> Option<Event> {
    match command {
        Command::GrantLease { sent_ms } => Some(match store.grant(lease_ttl).await {
            Ok(lease) => Event::Granted { lease, sent_ms },
            Err(error) => failed(&error, StoreCall::Grant { sent_ms }, None),
        }),
        Command::Campaign { lease, record } => {
            let campaign = record.campaign;
            let value = serde_json::to_vec(&record).unwrap_or_default();
            let put = Write::Put { key: key.to_string(), value, lease: Some(lease) };
            let committed = store.commit(&[Guard::Absent { key: key.to_string() }], vec![put]).await;
            Some(match committed {
                Ok(committed) => {
                    Event::Committed { campaign, applied: committed.applied, revision: committed.revision }
                }
                Err(error) => failed(&error, StoreCall::Campaign { campaign }, Some(lease)),
            })
        }
        Command::Look => Some(match view(&*store, &key).await {
            Ok(view) => view,
            Err(error) => failed(&error, StoreCall::Look, None),
        }),
        Command::KeepAlive { lease, sent_ms } => {
            let call = StoreCall::KeepAlive { sent_ms };
            let renewal = tokio::time::timeout(lease_ttl / KEEP_ALIVES_PER_TTL, store.keep_alive(lease)).await;
            Some(match renewal {
                Ok(Ok(())) => Event::Renewed { lease, sent_ms },
                Ok(Err(error)) => failed(&error, call, Some(lease)),
                Err(_) => {
                    tracing::warn!("a keep-alive of the leader's lease is not answered in time, trying again");
                    Event::Failed { call }
                }
            })
        }
        Command::Abdicate { epoch, lease } => {
            let guard = Guard::Created { key: key.to_string(), revision: epoch };
            let leave = async {
                store.commit(&[guard], vec![Write::Delete { key: key.to_string() }]).await?;
                store.revoke(lease).await
            };
            if !matches!(tokio::time::timeout(LEAVE_TIMEOUT, leave).await, Ok(Ok(()))) {
                tracing::warn!("the lead could not be handed over; another takes it when the lease ends");
            }
            Some(Event::Abdicated)
        }
        Command::RevokeLease { lease } => {
            if let Err(error) = store.revoke(lease).await {
                tracing::debug!(%error, "a lease could not be revoked, it ends by itself");
            }
            None
        }
        Command::BecomeLeader { .. } | Command::Suspend { .. } | Command::Resume { .. } | Command::StepDown { .. } => {
            None
        }
    }
}

fn failed(error: &ControlError, call: StoreCall, lease: Option<LeaseId>) -> Event {
    match (error, lease) {
        (ControlError::LeaseOver, Some(lease)) => Event::LeaseOver { lease },
        _ => {
            tracing::warn!(%error, ?call, "a call of the election failed, trying again");
            Event::Failed { call }
        }
    }
}

/// Reads the record under the key.
async fn view(store: &impl ControlStore, key: &str) -> Result<Event, ControlError> {
    // A listing, unlike a read of one key, includes its revision.
    let listing = store.list(key).await?;
    let leader = listing.entries.iter().find(|entry| entry.key == key).map(incumbent);
    Ok(Event::Seen { leader, revision: listing.revision })
}

fn incumbent(entry: &Entry) -> Incumbent {
    let short = entry.value.len() <= LEADER_RECORD_BYTES_MAX;
    let record: Option<LeaderRecord> = short.then(|| serde_json::from_slice(&entry.value).ok()).flatten();
    if record.is_none() {
        tracing::error!(key = entry.key, "the leader's record cannot be read: nobody leads until the key is deleted");
    }
    Incumbent { epoch: entry.created, record }
}

/// Lists and watches the key until the receiver is dropped. A broken watch is followed by a new listing.
async fn follow_key<S: ControlStore>(store: Arc<S>, key: Arc<str>, views: mpsc::Sender<Event>) {
    let (mut backoff, mut logged) = (Backoff::new(BACK_OFF, BACK_OFF_MAX), None::<Instant>);
    while !views.is_closed() {
        match follow_key_once(&*store, &key, &views).await {
            Ok(()) => {
                backoff.reset();
                if logged.take().is_some() {
                    tracing::info!("sees again who leads");
                }
            }
            Err(error) => {
                // Log it at once and then periodically: a silent standby looks healthy.
                if logged.is_none_or(|at| at.elapsed() >= BLIND_REMINDER) {
                    logged = Some(Instant::now());
                    tracing::warn!(%error, "cannot see who leads, trying again");
                }
            }
        }
        backoff.wait().await;
    }
}

async fn follow_key_once(
    store: &impl ControlStore,
    key: &str,
    views: &mpsc::Sender<Event>,
) -> Result<(), ControlError> {
    let seen = view(store, key).await?;
    let Event::Seen { revision, .. } = seen else { return Ok(()) };
    // Fails only when the receiver is dropped.
    let _ = views.send(seen).await;
    let mut watch = store.watch(key, revision).await?;
    loop {
        let change = match tokio::time::timeout(LOOK_INTERVAL, watch.recv()).await {
            Ok(Some(change)) => change,
            Ok(None) => return Ok(()),
            // A watch of a stopped store is silent, whereas a call times out.
            Err(_) => {
                let _ = views.send(view(store, key).await?).await;
                continue;
            }
        };
        if change.key() != key {
            continue;
        }
        let view = match change {
            // A leader's key is put only once.
            Change::Put(entry) => Event::Seen { revision: entry.created, leader: Some(incumbent(&entry)) },
            Change::Deleted { revision, .. } => Event::Seen { leader: None, revision },
        };
        let _ = views.send(view).await;
    }
}

#[cfg(test)]
#[path = "leadership_tests.rs"]
mod tests;

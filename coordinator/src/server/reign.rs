//! What a coordinator does while it leads: one term after the other, each with a dispatcher, scans and records of its own.
//!
//! At the beginning of a term everything that was accepted before is taken over. At its end everything stops at once:
//! nothing is said to clients, recorded or dispatched by one that leads no longer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, mpsc, watch};
use tracing::Instrument as _;
use trawl_market::Store;
use trawl_protocol::control::{ControlError, ControlStore};
use trawl_protocol::security::Connector;
use trawl_protocol::{pb, trace};
use trawl_telemetry::names::{attribute, span as name};

use super::dispatcher::Dispatcher;
use super::leadership::{Leadership, Term};
use super::scans::{Archive, Asked, Environment, Gate, HELD_BYTES_MAX, Held, Scan, Scans, asked_of, drive, now_us};
use super::service::Standing;
use super::{ScanLimits, membership};
use crate::durable::{
    self, Ledger, LedgerError, PIN_REFRESH, Recorded, ResultStore, RetentionPolicy, recovery, refresh_pins, sweep,
};
use crate::scheduler::Limits;

/// Changes of membership that wait for the dispatcher.
const MEMBERS_WAITING_MAX: usize = 256;
/// Documents that are compiled at once.
const PREPARING_MAX: usize = 4;
/// Wait before a term's beginning is tried again.
const BACK_OFF: Duration = Duration::from_millis(200);
/// How often is looked for what is to be deleted, and for scans that nobody runs.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// What all terms share.
pub(crate) struct Realm {
    pub store: Store,
    pub control: Arc<dyn ControlStore>,
    pub cluster_name: String,
    pub results: ResultStore,
    pub retention: RetentionPolicy,
    /// How workers are reached.
    pub connector: Connector,
    pub scans: ScanLimits,
    pub limits: Limits,
    pub start_timeout: Duration,
}

/// Why a term could not begin yet.
#[derive(Debug, thiserror::Error)]
enum BeginError {
    #[error("{0}")]
    Control(#[from] ControlError),
    #[error("{0}")]
    Ledger(#[from] LedgerError),
}

/// Leads whenever it is this coordinator's turn, until `quit`. What it is at present is told to `standing`.
pub(crate) async fn govern(
    realm: Realm,
    mut leadership: watch::Receiver<Leadership>,
    standing: watch::Sender<Standing>,
    mut quit: watch::Receiver<bool>,
) {
    loop {
        let now = leadership.borrow_and_update().clone();
        match now {
            Leadership::Standby { leader } => {
                standing.send_replace(Standing::Following(leader.map(|leader| leader.address)));
                tokio::select! {
                    changed = leadership.changed() => if changed.is_err() { return },
                    _ = quit.wait_for(|quit| *quit) => return,
                }
            }
            Leadership::Leading(term) => {
                let (over, is_over) = watch::channel(false);
                tracing::info!(epoch = term.epoch, "this coordinator leads");
                let reign = async {
                    let environment = begin(&realm, &term, is_over).await;
                    standing.send_replace(Standing::Leading(Box::new(environment.clone())));
                    keep_tidy(&realm, environment).await;
                };
                let left = tokio::select! {
                    () = reign => false,
                    _ = leadership.wait_for(|now| !matches!(now, Leadership::Leading(t) if t.epoch == term.epoch)) => false,
                    _ = quit.wait_for(|quit| *quit) => true,
                };
                over.send_replace(true);
                standing.send_replace(Standing::Following(None));
                tracing::info!(epoch = term.epoch, "this coordinator leads no longer");
                if left {
                    return;
                }
            }
        }
    }
}

/// Begins a term, however often it takes.
async fn begin(realm: &Realm, term: &Term, over: watch::Receiver<bool>) -> Environment {
    loop {
        match try_begin(realm, term, over.clone()).await {
            Ok(environment) => return environment,
            Err(error) => tracing::warn!(%error, "this coordinator cannot take over yet"),
        }
        tokio::time::sleep(BACK_OFF).await;
    }
}

async fn try_begin(realm: &Realm, term: &Term, over: watch::Receiver<bool>) -> Result<Environment, BeginError> {
    let (members, told) = mpsc::channel(MEMBERS_WAITING_MAX);
    let control = Arc::clone(&realm.control);
    membership::follow(control, &realm.cluster_name, realm.start_timeout, members).await?;
    let held = Held::default();
    let durable_term = durable::Term { key: term.leader_key.to_string(), epoch: term.epoch };
    let environment = Environment {
        store: realm.store.clone(),
        dispatcher: Dispatcher::start(realm.limits, told, realm.connector.clone(), term.epoch),
        scans: Arc::new(Scans::new(realm.scans)),
        gate: Gate::new(realm.scans.running, HELD_BYTES_MAX, held.clone()),
        held,
        archive: Archive {
            ledger: Ledger::new(Arc::new(Arc::clone(&realm.control)), &realm.cluster_name, durable_term),
            results: realm.results.clone(),
        },
        preparing: Arc::new(Semaphore::new(PREPARING_MAX)),
        no_worker_timeout_ms: realm.limits.no_worker_timeout_ms,
        over,
    };
    let loaded = environment.archive.ledger.load().await?;
    for (scan, error) in &loaded.unreadable {
        tracing::error!(scan, %error, "this scan's record cannot be read: it is neither run nor deleted");
    }
    let (mut open, mut ended) = (0, 0);
    for recorded in loaded.scans {
        match adopt(&environment, recorded).await {
            Some(true) => open += 1,
            Some(false) => ended += 1,
            None => {}
        }
    }
    if open + ended > 0 {
        tracing::info!(open, ended, "took over the scans that were accepted before");
    }
    Ok(environment)
}

/// Takes a scan over: whether it goes on; `None` for one that is being deleted or cannot be read.
async fn adopt(environment: &Environment, recorded: Recorded) -> Option<bool> {
    let header = recorded.header.as_ref().filter(|_| recorded.tombstone.is_none())?;
    let open = recorded.end.is_none();
    let asked = match asked_of(header, &environment.archive.results).await {
        Ok(asked) => asked,
        // What it was is told without its document; its end stands.
        Err(_) if !open => Asked::of_header(header, String::new()),
        Err(failure) => {
            tracing::error!(scan = recorded.scan, %failure, "this scan cannot go on yet: its document cannot be had");
            return None;
        }
    };
    let scan = Arc::new(Scan::of_record(&recorded, asked, environment.held.clone())?);
    environment.scans.adopt(Arc::clone(&scan));
    if open {
        // In the trace of who submitted it.
        let span = tracing::info_span!(name::SUBMIT, { attribute::SCAN_ID } = scan.name);
        trace::set_parent(&span, [header.trace.clone().map(pb::TraceContext::from).as_ref(), None]);
        tokio::spawn(drive(environment.clone(), scan, Some(recorded)).instrument(span));
    }
    Some(open)
}

/// Deletes what nobody wants any more, and takes up scans that stand in the records and that nobody runs: an acceptance that
/// was given up may have come to stand after all.
async fn keep_tidy(realm: &Realm, environment: Environment) {
    let Archive { ledger, results } = &environment.archive;
    let mut pinned = Instant::now();
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        match sweep(ledger, results, &realm.retention, now_us()).await {
            Ok(report) => {
                report.deleted.iter().for_each(|scan| environment.scans.forget(scan));
                if !report.deleted.is_empty() {
                    tracing::info!(scans = report.deleted.len(), objects = report.objects, "deleted old results");
                }
            }
            Err(error) => tracing::warn!(%error, "old results could not be deleted"),
        }
        let known: BTreeSet<String> = environment.scans.all().iter().map(|scan| scan.name.clone()).collect();
        match ledger.load().await {
            Ok(loaded) => {
                for recorded in recovery::unclaimed(&loaded.scans, &known) {
                    tracing::warn!(scan = recorded.scan, "takes up a scan that stands in the records and does not run");
                    adopt(&environment, recorded.clone()).await;
                }
                if pinned.elapsed() >= PIN_REFRESH {
                    pinned = Instant::now();
                    let store = realm.store.clone();
                    let renewed =
                        tokio::task::spawn_blocking(move || refresh_pins(&store, &loaded.scans, now_us())).await;
                    if let Some((scan, error)) = renewed.ok().and_then(|report| report.failed.into_iter().next()) {
                        tracing::warn!(scan, %error, "a snapshot cannot be pinned");
                    }
                }
            }
            Err(error) => tracing::debug!(%error, "the records cannot be read"),
        }
    }
}

//! The terms of a leader, one after another, each with its own dispatcher, scans and records.
//!
//! A term begins as soon as the workers are followed; earlier scans are taken over during the term (`upkeep`). While a
//! leader is suspended (it could not renew its lease in time), its scans go on and are read; nothing new is accepted. At
//! the end of a term everything stops at once: a coordinator that no longer leads sends nothing to clients, records
//! nothing and dispatches nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, watch};
use trawl_cluster_store::{Backoff, ControlError};

use super::cluster_context::ClusterContext;
use super::data_care::care;
use super::dispatcher::Dispatcher;
use super::leadership::{Leadership, Term};
use super::membership;
use super::record_budget::RecordBudget;
use super::scans::{Admission, Archive, Environment, ScanMemory, Scans, TakenOver};
use super::service::CoordinatorRole;
use super::upkeep::{keep_tidy, take_over};
use crate::durable::{self, Ledger, PIN_REFRESH, Pins};

/// Capacity of the channel of membership changes to the dispatcher.
const MEMBERS_WAITING_MAX: usize = 256;
/// Number of documents compiled concurrently.
const PREPARING_MAX: usize = 4;
/// Number of documents of taken-over scans compiled concurrently, in addition.
const RESUMING_MAX: usize = 2;
/// Wait before retrying to begin a term; doubles up to [`BACK_OFF_MAX`].
const BACK_OFF: Duration = Duration::from_millis(200);
/// See [`BACK_OFF`].
const BACK_OFF_MAX: Duration = Duration::from_secs(2);

/// A task that a leader depends on ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken;

/// Leads whenever this coordinator is elected, until `quit`. Publishes its current role to `standing`.
pub(crate) async fn lead(
    cluster: ClusterContext,
    mut leadership: watch::Receiver<Leadership>,
    standing: watch::Sender<CoordinatorRole>,
    mut quit: watch::Receiver<bool>,
) -> Result<(), Broken> {
    loop {
        let now = leadership.borrow_and_update().clone();
        match now {
            // Its term was over before it began here.
            Leadership::Suspended { .. } => {
                standing.send_replace(CoordinatorRole::Following(None));
                tokio::select! {
                    changed = leadership.changed() => if changed.is_err() { return Ok(()) },
                    _ = quit.wait_for(|quit| *quit) => return Ok(()),
                }
            }
            Leadership::Standby { leader } => {
                standing.send_replace(CoordinatorRole::Following(leader.map(|leader| leader.address)));
                tokio::select! {
                    changed = leadership.changed() => if changed.is_err() { return Ok(()) },
                    _ = quit.wait_for(|quit| *quit) => return Ok(()),
                }
            }
            Leadership::Leading(term) => {
                let (over, is_over) = watch::channel(false);
                tracing::info!(epoch = term.epoch, "this coordinator leads");
                let (progress, taken_over) = watch::channel(TakenOver::Nothing);
                let mut watched = leadership.clone();
                let reign = async {
                    let environment = begin(&cluster, &term, (is_over, taken_over));
                    let environment = cluster.heartbeat.during(environment).await;
                    let shown = show(leadership.clone(), &standing, &environment);
                    let tidy = async {
                        take_over(&cluster, &environment, &progress).await;
                        keep_tidy(&cluster, &environment).await;
                    };
                    tokio::select! {
                        () = tidy => {}
                        never = care(cluster.store.clone(), cluster.data_care) => match never {},
                        () = shown => {}
                        () = environment.dispatcher.ended() => {}
                    }
                };
                let left = tokio::select! {
                    // These tasks do not end by themselves. A leader without one of them would hold its lease and do
                    // nothing.
                    () = reign => {
                        over.send_replace(true);
                        standing.send_replace(CoordinatorRole::Following(None));
                        tracing::error!(epoch = term.epoch, "internal error: a task of the leader ended, this coordinator resigns");
                        return Err(Broken);
                    }
                    _ = watched.wait_for(|now| now.epoch() != Some(term.epoch)) => false,
                    _ = quit.wait_for(|quit| *quit) => true,
                };
                over.send_replace(true);
                standing.send_replace(CoordinatorRole::Following(None));
                tracing::info!(epoch = term.epoch, "this coordinator leads no longer");
                if left {
                    return Ok(());
                }
            }
        }
    }
}

/// Publishes whether this coordinator leads or is suspended, for as long as it does not step down.
async fn show(
    mut leadership: watch::Receiver<Leadership>,
    standing: &watch::Sender<CoordinatorRole>,
    environment: &Environment,
) {
    loop {
        let suspended = matches!(*leadership.borrow_and_update(), Leadership::Suspended { .. });
        let environment = Box::new(environment.clone());
        standing.send_replace(match suspended {
            true => CoordinatorRole::Suspended(environment),
            false => CoordinatorRole::Leading(environment),
        });
        if leadership.changed().await.is_err() {
            // The election ended: so does the term.
            return std::future::pending().await;
        }
    }
}

/// Begins a term, retrying until it succeeds.
async fn begin(
    cluster: &ClusterContext,
    term: &Term,
    (over, taken_over): (watch::Receiver<bool>, watch::Receiver<TakenOver>),
) -> Environment {
    let mut backoff = Backoff::new(BACK_OFF, BACK_OFF_MAX);
    loop {
        match try_begin(cluster, term, (over.clone(), taken_over.clone())).await {
            Ok(environment) => return environment,
            Err(error) => tracing::warn!(%error, "this coordinator cannot take over yet"),
        }
        backoff.wait().await;
    }
}

async fn try_begin(
    cluster: &ClusterContext,
    term: &Term,
    (over, taken_over): (watch::Receiver<bool>, watch::Receiver<TakenOver>),
) -> Result<Environment, ControlError> {
    let (members, changes) = mpsc::channel(MEMBERS_WAITING_MAX);
    let control = Arc::clone(&cluster.control);
    membership::follow(control, &cluster.cluster_name, cluster.start_timeout, members).await?;
    let memory = ScanMemory::new(cluster.scans.results_memory_bytes, cluster.spool.clone());
    let durable_term = durable::Term { key: term.leader_key.to_string(), epoch: term.epoch };
    Ok(Environment {
        pins: Pins::start(cluster.store.clone(), term.epoch, PIN_REFRESH),
        store: cluster.store.clone(),
        dispatcher: Dispatcher::start(
            cluster.limits,
            changes,
            (cluster.connector.clone(), term.epoch),
            cluster.heartbeat.clone(),
        ),
        scans: Arc::new(Scans::new(cluster.scans)),
        gate: Admission::new(cluster.scans.running, memory.spool.clone()),
        memory,
        archive: Archive {
            ledger: Ledger::new(Arc::new(Arc::clone(&cluster.control)), &cluster.cluster_name, durable_term),
            results: cluster.results.clone(),
            room: RecordBudget::default(),
        },
        preparing: Arc::new(Semaphore::new(PREPARING_MAX)),
        resuming: Arc::new(Semaphore::new(RESUMING_MAX)),
        no_worker_timeout_ms: cluster.limits.no_worker_timeout_ms,
        default_backend: cluster.default_backend.clone(),
        class_patience: cluster.class_patience,
        over,
        taken_over,
    })
}

//! Compiles a scan's document and chooses the class of workers that runs it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use trawl_kernels::BACKEND_CPU;
use trawl_market::{AsOf, MarketErrorKind, Store};
use trawl_plan::ScanDocument;
use trawl_wire::error::text_of;
use trawl_wire::{ErrorKind, Failure, pb};

use super::environment::{Environment, cancelled, late, until};
use super::outcome::Ended;
use super::record;
use super::{Placement, Scan, failure};
use crate::prepare::{PrepareError, PreparedScan, prepare, prepare_opened};
use crate::server::dispatcher::no_worker;
use crate::worker_class::{ClassNeeds, WorkerClass};

/// Wait before workers are asked again for their plan.
const PLAN_BACK_OFF: Duration = Duration::from_millis(200);
/// Maximum tries of asking workers of a class for their plan of a scan.
const PLAN_TRIES_MAX: u32 = 20;
/// Interval at which a scan that no worker can run looks for one.
const CLASS_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// What a scan asks of its class: the user's wish, then the cluster's default.
pub(super) fn needs_of(environment: &Environment, scan: &Scan, prepared: &PreparedScan) -> ClassNeeds {
    let default = environment.default_backend.as_deref();
    ClassNeeds { unfit: scan.unfit().clone(), ..prepared.class_needs(scan.asked.backend.as_deref().or(default)) }
}

/// Waits until workers of a class that the scan may run in serve, and chooses the class: an ephemeral scan for a limited
/// time, a recorded one until its deadline.
pub(super) async fn placed(environment: &Environment, scan: &Arc<Scan>, needs: &ClassNeeds) -> Result<(), Ended> {
    let patience = Duration::from_millis(environment.no_worker_timeout_ms);
    let (since, mut logged) = (Instant::now(), false);
    loop {
        if let Some(class) = environment.dispatcher.choose(needs.clone()).await {
            scan.place(Some(Placement { class, plan: None }));
            if logged {
                scan.waits_for(None);
            }
            return Ok(());
        }
        if !std::mem::replace(&mut logged, true) {
            scan.waits_for(Some(needs.to_string()));
        }
        if !scan.asked.durable && since.elapsed() >= patience {
            return Err(no_worker(environment.no_worker_timeout_ms, needs).into());
        }
        tokio::select! {
            () = tokio::time::sleep(CLASS_POLL_INTERVAL) => {}
            () = scan.until_cancelled() => return Err(cancelled().into()),
            () = until(scan.deadline()) => return Err(late(scan).into()),
        }
    }
}

/// Compiles the document, over the newest snapshot or the one chosen earlier.
pub(super) async fn compiled(
    environment: &Environment,
    permits: &Arc<Semaphore>,
    scan: &Arc<Scan>,
    snapshot: Option<String>,
) -> Result<PreparedScan, Ended> {
    let permit = tokio::select! {
        permit = Arc::clone(permits).acquire_owned() => permit,
        () = scan.until_cancelled() => return Err(cancelled().into()),
        () = until(scan.deadline()) => return Err(late(scan).into()),
    };
    let document = record::document_of(&environment.archive, scan).await?;
    let (store, owned, span) = (environment.store.clone(), Arc::clone(scan), tracing::Span::current());
    let preparing = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        span.in_scope(|| prepare_document(&store, &document, &owned.asked.as_of, snapshot.as_deref()))
    });
    let prepared = tokio::select! {
        prepared = preparing => prepared,
        // Hanging files block their thread, not the scan.
        () = until(scan.deadline()) => return Err(late(scan).into()),
    };
    let internal = |_| Failure::new(ErrorKind::Permanent, "internal error while the scan was prepared");
    let prepared = prepared.map_err(internal)?.map_err(Ended::Failed)?;
    // The dataset of another timeframe has a name of its own.
    let (granted, dataset) = (&scan.asked.datasets, &prepared.identity.dataset);
    if !granted.is_empty() && !granted.contains(dataset) {
        let message = format!("dataset '{dataset}' is not granted to {}: {}", scan.owner, granted.join(", "));
        return Err(failure(ErrorKind::Invalid, message).into());
    }
    Ok(in_its_class(environment, scan, prepared).await)
}

/// Reads and prepares a document; blocks on the dataset's files.
fn prepare_document(
    store: &Store,
    document_json: &str,
    as_of: &AsOf,
    snapshot: Option<&str>,
) -> Result<PreparedScan, pb::Refused> {
    let refused = |failure: Failure, diagnostics_json| pb::Refused { failure: Some(failure.into()), diagnostics_json };
    let document = ScanDocument::from_json(document_json).map_err(|error| {
        let message = format!("the scan document cannot be read: {error}");
        refused(failure(ErrorKind::Invalid, message), String::new())
    })?;
    let prepared = match snapshot {
        None => prepare(store, &document, as_of.clone()),
        // The snapshot chosen earlier, regardless of later imports.
        Some(snapshot) => store
            .open(snapshot)
            .map_err(PrepareError::from)
            .and_then(|dataset| prepare_opened(dataset, &document, as_of.clone())),
    };
    prepared.map_err(|error| {
        let kind = match &error {
            PrepareError::Dataset(error) => match error.kind() {
                MarketErrorKind::Invalid => ErrorKind::Invalid,
                MarketErrorKind::Permanent => ErrorKind::Permanent,
                MarketErrorKind::Retryable => ErrorKind::Retryable,
            },
            _ => ErrorKind::Invalid,
        };
        let diagnostics_json = match &error {
            PrepareError::Plan(mistakes) => serde_json::to_string(mistakes).unwrap_or_default(),
            _ => String::new(),
        };
        refused(failure(kind, text_of(&error)), diagnostics_json)
    })
}

/// The scan in the class that it runs in, which is chosen if it has none. While no worker serves it is in a class of this
/// build, and has no placement.
async fn in_its_class(environment: &Environment, scan: &Scan, prepared: PreparedScan) -> PreparedScan {
    let mut tries = 0;
    loop {
        let needs = needs_of(environment, scan, &prepared);
        let placement = match scan.placement().filter(|placement| needs.admit(&placement.class)) {
            Some(placement) => Some(placement),
            None => environment.dispatcher.choose(needs.clone()).await.map(|class| Placement { class, plan: None }),
        };
        let Some(Placement { class, plan }) = placement else {
            scan.place(None);
            return prepared.in_class(&WorkerClass::own(needs.backend.as_deref().unwrap_or(BACKEND_CPU)));
        };
        if class.has_own_numerics() {
            scan.place(Some(Placement { class: class.clone(), plan: None }));
            return prepared.in_class(&class);
        }
        // Another build compiles the document by itself, and names the plan.
        let mut placed = prepared.clone().in_class(&class);
        let plan = match plan {
            Some(plan) => Some(Ok(plan)),
            None => environment.dispatcher.plan_of(&class, &placed).await,
        };
        match plan {
            Some(Ok(plan)) => {
                placed.identity.plan.clone_from(&plan);
                scan.place(Some(Placement { class, plan: Some(plan) }));
                return placed;
            }
            Some(Err(failure)) if failure.kind.is_retried() && tries < PLAN_TRIES_MAX => {
                tries += 1;
                tokio::time::sleep(PLAN_BACK_OFF).await;
            }
            Some(Err(failure)) => {
                tracing::warn!(scan = scan.name, %class, %failure, "workers of this class cannot run a scan");
                scan.place(None);
                scan.unfit().push(class);
            }
            // Its last worker has left meanwhile.
            None => scan.place(None),
        }
    }
}

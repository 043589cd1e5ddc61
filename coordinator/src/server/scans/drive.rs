//! One scan from its request to its end: prepare, record, wait for a turn, run step by step, merge.
//!
//! It decides nothing about shards or attempts (the scheduler does) and nothing about clients: what it has to say goes
//! into the scan's log.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{Semaphore, mpsc, watch};
use tonic::Status;
use trawl_market::{MarketErrorKind, Store};
use trawl_plan::ScanDocument;
use trawl_protocol::error::text_of;
use trawl_protocol::limits::bounded_reason;
use trawl_protocol::pb::scan_event::Event;
use trawl_protocol::{ErrorKind, Failure, pb, trace};

use super::running::{Followed, RunningScan, Stopped};
use super::{Gate, Held, Scan, Scans, failure};
use crate::local::seconds;
use crate::passes::{PassError, Passes};
use crate::prepare::{PrepareError, PreparedScan, prepare};
use crate::server::dispatcher::{Dispatcher, Submission};

/// What the scans of one term share.
#[derive(Clone)]
pub(crate) struct Environment {
    pub store: Store,
    pub dispatcher: Dispatcher,
    pub scans: Arc<Scans>,
    pub gate: Gate,
    pub held: Held,
    /// Plans that are compiled at once.
    pub preparing: Arc<Semaphore>,
    pub no_worker_timeout_ms: u64,
    /// Set once, when the term is over: nothing more is said, recorded or dispatched.
    pub over: watch::Receiver<bool>,
}

/// Why a scan has no answer.
enum Ended {
    /// It is told so.
    Failed(pb::Refused),
    /// The term is over: another coordinator goes on with it.
    Over,
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::Failed(pb::Refused { failure: Some(failure.into()), diagnostics_json: String::new() })
    }
}

/// Runs a scan. Its log is closed at the end, whatever happens.
pub(crate) async fn drive(environment: Environment, scan: Arc<Scan>) {
    match run(&environment, &scan).await {
        Ok(summary) => {
            scan.ended(Ok(&summary.answer_digest));
            scan.log.close(Event::Summary(summary));
        }
        Err(Ended::Failed(refused)) => {
            let failure = Failure::from(refused.failure.clone().unwrap_or_default());
            scan.ended(Err(&failure));
            scan.log.close(Event::Refused(refused));
        }
        Err(Ended::Over) => {
            scan.log.abandon(Status::unavailable("this coordinator no longer leads"));
        }
    }
    environment.scans.end(&scan.name);
}

/// Ends when the term does.
async fn until_over(over: &watch::Receiver<bool>) {
    // A sender that is gone is a term that is over.
    let _ = over.clone().wait_for(|over| *over).await;
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

fn late(scan: &Scan) -> Failure {
    let message = format!("the scan was not done within {}", seconds(scan.asked.allowed.unwrap_or_default()));
    Failure::new(ErrorKind::DeadlineExceeded, message)
}

fn cancelled() -> Failure {
    Failure::new(ErrorKind::Cancelled, "the scan was cancelled")
}

async fn run(environment: &Environment, scan: &Arc<Scan>) -> Result<pb::Summary, Ended> {
    let mut prepared = prepared(environment, scan, None).await?;
    scan.describe(&prepared);
    let turn = match environment.gate.try_enter() {
        Some(turn) => turn,
        None => {
            // What was compiled would fill the memory while it waits.
            let snapshot = prepared.dataset_reference();
            drop(prepared);
            let turn = tokio::select! {
                turn = environment.gate.enter(scan.asked.priority) => turn,
                () = scan.until_cancelled() => return Err(cancelled().into()),
                () = until(scan.asked.deadline) => return Err(late(scan).into()),
                () = until_over(&environment.over) => return Err(Ended::Over),
            };
            prepared = self::prepared(environment, scan, Some(snapshot)).await?;
            turn
        }
    };
    let summary = steps(environment, scan, Arc::new(prepared)).await;
    drop(turn);
    summary
}

/// Compiles the document, over the newest snapshot or the one that was taken before.
async fn prepared(
    environment: &Environment,
    scan: &Arc<Scan>,
    snapshot: Option<String>,
) -> Result<PreparedScan, Ended> {
    let permit = tokio::select! {
        permit = Arc::clone(&environment.preparing).acquire_owned() => permit,
        () = scan.until_cancelled() => return Err(cancelled().into()),
    };
    let (store, scan, span) = (environment.store.clone(), Arc::clone(scan), tracing::Span::current());
    let preparing = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        span.in_scope(|| prepare_document(&store, &scan.asked.document_json, scan.asked.as_of_us, snapshot))
    });
    match preparing.await {
        Ok(prepared) => prepared.map_err(Ended::Failed),
        Err(_) => Err(Failure::new(ErrorKind::Permanent, "internal error while the scan was prepared").into()),
    }
}

/// Reads and prepares a document; blocks on the dataset's files.
fn prepare_document(
    store: &Store,
    document_json: &str,
    as_of_us: Option<i64>,
    snapshot: Option<String>,
) -> Result<PreparedScan, pb::Refused> {
    let refused = |failure: Failure, diagnostics_json| pb::Refused { failure: Some(failure.into()), diagnostics_json };
    let mut document = ScanDocument::from_json(document_json).map_err(|error| {
        let message = format!("the scan document cannot be read: {error}");
        refused(failure(ErrorKind::Invalid, message), String::new())
    })?;
    if let Some(snapshot) = snapshot {
        document.dataset = Some(snapshot);
    }
    prepare(store, &document, as_of_us).map_err(|error| {
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

fn of_pass(error: &PassError) -> Failure {
    let kind = match error {
        PassError::TooLarge { .. } => ErrorKind::Invalid,
        PassError::Incomplete { kind, .. } => *kind,
        PassError::Labels(_) => ErrorKind::Permanent,
    };
    Failure::new(kind, bounded_reason(text_of(error)))
}

/// The steps one after the other, and the merge.
async fn steps(environment: &Environment, scan: &Arc<Scan>, prepared: Arc<PreparedScan>) -> Result<pb::Summary, Ended> {
    let span = tracing::Span::current();
    let mut passes = Arc::new(Passes::new(&prepared).map_err(|error| of_pass(&error))?);
    let mut running: Option<RunningScan> = None;
    let mut number = 0;
    loop {
        number += 1;
        let (news, told) = mpsc::unbounded_channel();
        let submission = Submission {
            scan_name: scan.name.clone(),
            generation: 0,
            prepared: Arc::clone(&prepared),
            segments: Arc::new(prepared.segments.iter().copied().collect::<BTreeSet<u32>>()),
            passes: Arc::clone(&passes),
            shards: scan.asked.shards,
            priority: scan.asked.priority,
            deadline: scan.asked.deadline,
            trace: trace::context_of(&span),
            news,
        };
        let Some(submitted) = environment.dispatcher.submit(submission).await else { return Err(Ended::Over) };
        scan.runs(number, 0);
        let running = running.get_or_insert_with(|| {
            let running = RunningScan::new(Arc::clone(scan), Arc::clone(&prepared), submitted);
            scan.log.push(running.header());
            scan.log.show();
            running
        });
        running.begin(passes.is_last());
        let followed = tokio::select! {
            followed = running.follow(told, environment.no_worker_timeout_ms) => followed,
            () = scan.until_cancelled() => Err(Stopped::Failed(cancelled())),
            () = until_over(&environment.over) => Err(Stopped::Over),
        };
        match followed {
            Ok(Followed::Answered) => return Ok(running.summary()?),
            Ok(Followed::StepDone) => {}
            Err(Stopped::Late) => return Err(late(scan).into()),
            Err(Stopped::Failed(failure)) => {
                environment.dispatcher.cancel(submitted.scan).await;
                return Err(failure.into());
            }
            Err(Stopped::Over) => return Err(Ended::Over),
        }
        let (results, failures) = running.take_step();
        let allow_partial = scan.asked.allow_partial;
        let advanced = tokio::task::spawn_blocking(move || {
            // The dispatcher may hold its share of the step before for a moment longer.
            let mut passes = Arc::try_unwrap(passes).unwrap_or_else(|shared| Passes::clone(&shared));
            passes.advance(results, &failures, allow_partial).map(|()| Arc::new(passes))
        });
        passes = match advanced.await {
            Ok(advanced) => advanced.map_err(|error| of_pass(&error))?,
            Err(_) => {
                let message = "internal error while cross-sections were made";
                return Err(Failure::new(ErrorKind::Permanent, message).into());
            }
        };
    }
}

//! One scan from its request to its end: prepare, record, wait for a turn, run step by step, merge.
//!
//! It decides nothing about shards or attempts (the scheduler does) and nothing about clients: its events go into the
//! scan's log.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use tokio::sync::{mpsc, watch};
use tonic::Code;
use tracing::Instrument as _;
use trawl_cluster_store::Backoff;
use trawl_telemetry::metrics::catalogue::coordinator::{
    REFUSALS, Refusal, SCAN_DURATION, SCAN_WAIT, SCANS_ENDED, ScanEnd,
};
use trawl_telemetry::metrics::current_trace;
use trawl_telemetry::names::{attribute, span as name};
use trawl_telemetry::spans;
use trawl_wire::error::{status_of, text_of};
use trawl_wire::limits::bounded_reason;
use trawl_wire::pb::scan_event::Event;
use trawl_wire::{ErrorKind, Failure, pb, trace};

use super::answers::answer_again;
use super::environment::{Environment, cancelled, late, until};
use super::outcome::{Answered, Ended};
use super::prepare_scan::{compiled, needs_of, placed};
use super::record::{self, Accepting, Recorder, StoredSteps, accepted, end_of, header_of};
use super::running::{RunningScan, Stopped};
use super::{Document, Scan};
use crate::durable::recovery::GENERATIONS_MAX;
use crate::durable::{Pin, Recorded};
use crate::planner::name_key;
use crate::prepare::PreparedScan;
use crate::report::{FailedRun, ms_since};
use crate::scan_steps::{PassError, Passes};
use crate::server::dispatcher::{Submission, no_worker};
use crate::server::work::WorkShare;

/// How long the data and stores of a taken-over scan may be unavailable.
const PATIENCE: Duration = Duration::from_secs(300);
/// Wait before they are tried again; doubles up to [`PATIENCE_BACK_OFF_MAX`].
const PATIENCE_BACK_OFF: Duration = Duration::from_millis(200);
/// Longest wait.
const PATIENCE_BACK_OFF_MAX: Duration = Duration::from_secs(10);

/// Runs a scan, from scratch or from what an earlier leader `recorded`. Its log is closed at the end in any case.
pub(crate) async fn drive(environment: Environment, scan: Arc<Scan>, recorded: Option<Recorded>) {
    let driven = AssertUnwindSafe(drive_to_end(&environment, &scan, recorded)).catch_unwind();
    let ended = tokio::select! {
        ended = driven => match ended {
            Ok(ended) => ended,
            Err(_) => end_after_panic(&environment, &scan).await,
        },
        () = until_over(&environment.over) => Err(Ended::Over),
    };
    let mut known = None;
    let end = match ended {
        Ok(Ok(Answered { summary, failed_symbols, reusable, .. })) => {
            known = reusable;
            scan.ended(Ok((&summary.answer_digest, failed_symbols)));
            scan.log.close(Event::Summary(summary));
            scan.forget_report();
            ScanEnd::Done
        }
        Ok(Err(refused)) => {
            let failure = Failure::from(refused.failure.clone().unwrap_or_default());
            scan.ended(Err(&failure));
            // Traces of failed scans are kept regardless of sampling; a cancelled scan has not failed.
            if failure.kind != ErrorKind::Cancelled {
                let span = tracing::Span::current();
                spans::fail(&span, failure.kind.name(), failure.message.clone());
                spans::keep(&span);
            }
            scan.log.close(Event::Refused(refused));
            if failure.kind == ErrorKind::Cancelled { ScanEnd::Cancelled } else { ScanEnd::Failed }
        }
        Err(_) => {
            let why = if scan.is_recorded() {
                "this coordinator leads no longer; the next leader continues the scan"
            } else {
                "this coordinator leads no longer, and the scan was not recorded: submit it again"
            };
            scan.log.abandon(status_of(Code::Unavailable, ErrorKind::Retryable, why));
            ScanEnd::HandedOver
        }
    };
    if !scan.is_recorded() {
        scan.document.replace(Document::Dropped);
    }
    if scan.was_accepted() {
        // A recorded scan that could not continue was nevertheless accepted.
        scan.accepted();
        scan.tell_end(end);
        SCANS_ENDED.of(end).inc();
        SCAN_DURATION.observe(end, scan.asked.received.elapsed(), current_trace());
        if scan.asked.durable && !scan.is_recorded() {
            // Recording failed: a repeated request is a new scan, or finds the record if it was written after all.
            environment.scans.forget(&scan.name);
        } else {
            environment.scans.end(&scan.name);
            if let Some(key) = known {
                environment.scans.keep_answer(key, &scan.name);
            }
        }
    } else {
        // Rejected: it was never accepted.
        REFUSALS.of(Refusal::NotAccepted).inc();
        environment.scans.forget(&scan.name);
    }
}

/// A bug in this program ends the affected scan only.
async fn end_after_panic(environment: &Environment, scan: &Arc<Scan>) -> Result<Result<Answered, pb::Refused>, Ended> {
    tracing::error!(scan = scan.name, "internal error: the task of a scan panicked; the scan ends as failed");
    let failure = Failure::new(ErrorKind::Permanent, "internal error: the task of this scan panicked");
    if scan.is_recorded() {
        let end = end_of(scan.generation(), Err(failure.clone()));
        tokio::select! {
            ended = record::end(&environment.archive, &scan.name, end) => ended?,
            () = until_over(&environment.over) => return Err(Ended::Over),
        }
    }
    let failure = Some(failure.into());
    Ok(Err(pb::Refused { failure, diagnostics_json: String::new() }))
}

/// Runs a scan and records its end, if it is recorded at all.
async fn drive_to_end(
    environment: &Environment,
    scan: &Arc<Scan>,
    recorded: Option<Recorded>,
) -> Result<Result<Answered, pb::Refused>, Ended> {
    // Its snapshot is pinned until its end is recorded.
    let (mut recorded, mut pin) = (recorded, None);
    let answered = loop {
        match run(environment, scan, recorded.take(), &mut pin).await {
            Ok(answered) => break Ok(answered),
            Err(Ended::Failed(refused)) => break Err(refused),
            Err(Ended::Over) => return Err(Ended::Over),
            Err(Ended::OtherClass) => {
                scan.place(None);
                if scan.is_recorded() {
                    recorded = Some(record::read_again(&environment.archive, &scan.name).await?);
                } else {
                    scan.begin_generation(scan.generation().saturating_add(1));
                }
            }
        }
    };
    if scan.is_recorded() {
        let outcome = answered.as_ref().map_err(|r| Failure::from(r.failure.clone().unwrap_or_default()));
        record::end(&environment.archive, &scan.name, end_of(scan.generation(), outcome)).await?;
    }
    Ok(answered)
}

/// Completes when the term is over.
async fn until_over(over: &watch::Receiver<bool>) {
    // A dropped sender also means that the term is over.
    let _ = over.clone().wait_for(|over| *over).await;
}

async fn run(
    environment: &Environment,
    scan: &Arc<Scan>,
    recorded: Option<Recorded>,
    pin: &mut Option<Pin>,
) -> Result<Answered, Ended> {
    let mut recorded = recorded;
    let header = recorded.as_ref().and_then(|r| r.header.as_ref());
    // A scan that begins anew stays with its snapshot.
    let known = header.map(|header| header.dataset.clone());
    let known = known.or_else(|| (scan.generation() > 0).then(|| scan.info().dataset));
    let mut retries = RetryBudget::new(recorded.is_some());
    let permits = if recorded.is_some() { &environment.resuming } else { &environment.preparing };
    let mut prepared = loop {
        match compiled(environment, permits, scan, known.clone()).await {
            Err(Ended::Failed(refused)) => retries.allow(scan, refused).await?,
            other => break other?,
        }
    };
    scan.describe(&prepared);
    if scan.asked.durable && pin.is_none() {
        *pin = Some(environment.pins.hold(&prepared.dataset_reference()));
    }
    let mut accepting = match (&recorded, scan.asked.durable) {
        (None, true) => {
            let header = header_of(scan, &prepared, trace::context_of(&tracing::Span::current()));
            Accepting::start(&environment.archive, scan, header)
        }
        _ => Accepting::none(),
    };
    let unplaced = scan.placement().is_none();
    if unplaced && scan.asked.durable && recorded.is_none() {
        scan.log.push(Event::Accepted(accepted(scan, &prepared)));
        accepting.done(scan).await?;
        scan.accepted();
    }
    while scan.placement().is_none() {
        let needs = needs_of(environment, scan, &prepared);
        let waits = WorkShare::of(environment.dispatcher.work(), prepared.cost_ns(), needs.backend.as_deref());
        let snapshot = prepared.dataset_reference();
        drop(prepared);
        placed(environment, scan, &needs).await?;
        drop(waits);
        prepared = compiled(environment, &environment.preparing, scan, Some(snapshot)).await?;
    }
    if unplaced && scan.asked.durable && recorded.is_none() {
        // The class that was recorded is only this build's own: it may begin as the next generation.
        recorded = Some(record::read_again(&environment.archive, &scan.name).await?);
    }
    if !scan.asked.fresh
        && recorded.is_none()
        && scan.log.is_empty()
        && let Some(answered) = answer_again(environment, scan, &prepared, &mut accepting).await?
    {
        return Ok(answered);
    }
    let waiting = Instant::now();
    let turn = match environment.gate.try_enter(&scan.owner) {
        Some(turn) => {
            SCAN_WAIT.observe((), Duration::ZERO, current_trace());
            turn
        }
        None => {
            let backend = scan.backend(environment.default_backend.as_deref());
            let asked = Instant::now();
            let waits = WorkShare::of(environment.dispatcher.work(), prepared.cost_ns(), backend.as_deref());
            let snapshot = prepared.dataset_reference();
            scan.log.push(Event::Accepted(accepted(scan, &prepared)));
            // Beyond a budget, compiled plans do not occupy memory while their scans wait.
            let plans = &environment.memory.waiting_plans;
            let kept = (!plans.is_full()).then(|| plans.share().with(prepared.bytes())).map(|share| (prepared, share));
            accepting.done(scan).await?;
            scan.accepted();
            let turn = tokio::select! {
                turn = environment.gate.enter(&scan.owner, scan.asked.priority).instrument(tracing::info_span!(name::QUEUE)) => turn,
                () = scan.until_cancelled() => return Err(cancelled().into()),
                () = until(scan.deadline()) => return Err(late(scan).into()),
            };
            drop(waits);
            SCAN_WAIT.observe((), asked.elapsed(), current_trace());
            prepared = match kept {
                Some((prepared, _)) => prepared,
                None => compiled(environment, &environment.preparing, scan, Some(snapshot)).await?,
            };
            turn
        }
    };
    let waited = waiting.elapsed();
    let stored = match &recorded {
        Some(recorded) => {
            let mut retries = RetryBudget::new(true);
            loop {
                match record::resume((&environment.archive, &environment.memory), scan, recorded, &prepared).await {
                    Err(Ended::Failed(refused)) => retries.allow(scan, refused).await?,
                    other => break other?,
                }
            }
        }
        None => StoredSteps::default(),
    };
    scan.accepted();
    if scan.log.is_empty() {
        scan.log.push(Event::Accepted(accepted(scan, &prepared)));
    }
    let answered = steps(environment, scan, Arc::new(prepared), &mut accepting, (stored, waited)).await;
    drop(turn);
    // Wait for the recording even if the scan fails first: otherwise it would restart when the commit arrives.
    accepting.done(scan).await?;
    answered
}

/// Retry state of a taken-over scan whose data or stores are temporarily unavailable.
struct RetryBudget {
    accepted: bool,
    since: Instant,
    backoff: Backoff,
}

impl RetryBudget {
    fn new(accepted: bool) -> Self {
        Self { accepted, since: Instant::now(), backoff: Backoff::new(PATIENCE_BACK_OFF, PATIENCE_BACK_OFF_MAX) }
    }

    /// Waits before another try, or returns the error once [`PATIENCE`] is used up.
    async fn allow(&mut self, scan: &Scan, refused: pb::Refused) -> Result<(), Ended> {
        let failure = Failure::from(refused.failure.clone().unwrap_or_default());
        let late = self.since.elapsed() > PATIENCE || scan.asked.deadline.is_some_and(|at| at <= Instant::now());
        if !self.accepted || failure.kind != ErrorKind::Retryable || late {
            return Err(Ended::Failed(refused));
        }
        tracing::warn!(scan = scan.name, %failure, "an accepted scan cannot go on yet");
        tokio::select! {
            () = self.backoff.wait() => {}
            () = scan.until_cancelled() => return Err(cancelled().into()),
        }
        Ok(())
    }
}

fn of_pass(error: &PassError) -> Failure {
    let kind = match error {
        PassError::TooLarge { .. } => ErrorKind::Invalid,
        PassError::Incomplete { kind, .. } => *kind,
        PassError::Labels(_) => ErrorKind::Permanent,
    };
    Failure::new(kind, bounded_reason(text_of(error)))
}

/// As [`of_pass`], with the worker at which the segment failed.
fn of_step(error: PassError, failed: &[FailedRun]) -> Failure {
    let at = |of: u32| failed.iter().rev().find(|run| run.segment == of && !run.worker.is_empty());
    of_pass(&match error {
        PassError::Incomplete { segment, kind, message } => {
            let worker = at(segment).map_or_else(String::new, |run| format!("worker '{}': ", run.worker));
            PassError::Incomplete { segment, kind, message: worker + &message }
        }
        error => error,
    })
}

/// Bytes of a running scan beside its plan and its results: its task, spans and the states of its shards. 17 KiB were measured
/// with 500 symbols, 34 KiB with 10,000.
const RUNNING_BYTES: usize = 16 << 10;

/// The first step that needs the workers, and its number.
async fn first_pass(prepared: Arc<PreparedScan>, recorded: bool) -> Result<(Passes, u32), Failure> {
    let several = prepared.plan.stages().len() > 1;
    let first = move || {
        let mut passes = Passes::new(&prepared)?;
        let left_out = passes.leave_out_times(recorded)?;
        Ok((passes, left_out))
    };
    let first = match several {
        // It may read the times of all bars.
        true => tokio::task::spawn_blocking(first)
            .await
            .map_err(|_| Failure::new(ErrorKind::Permanent, "internal error while the steps of a scan were made"))?,
        false => first(),
    };
    first.map_err(|error| of_pass(&error))
}

/// Runs the steps in order, then merges.
pub(super) async fn steps(
    environment: &Environment,
    scan: &Arc<Scan>,
    prepared: Arc<PreparedScan>,
    accepting: &mut Accepting,
    (mut stored, waited): (StoredSteps, Duration),
) -> Result<Answered, Ended> {
    let span = tracing::Span::current();
    let _plan = environment.memory.plans.share().with(prepared.bytes() + RUNNING_BYTES);
    let (passes, left_out) = first_pass(Arc::clone(&prepared), scan.asked.durable).await?;
    let mut passes = Arc::new(passes);
    let recorder = scan.asked.durable.then(|| Recorder::new(&environment.archive, scan, stored.ends.as_ref()));
    let head = accepted(scan, &prepared);
    let budgets = (waited, &environment.memory);
    let mut running = RunningScan::new(Arc::clone(scan), Arc::clone(&prepared), head, recorder, budgets);
    let (mut number, mut working) = (left_out, None);
    loop {
        let step = (passes.step(), &*passes.wanted_now());
        running.begin(number, step, passes.is_last(), stored.take(number)).await?;
        if working.is_none() && !passes.is_last() && passes.bytes_needed() > 0 {
            working = Some(tokio::select! {
                permit = environment.memory.work_on(passes.bytes_needed()) => permit,
                () = scan.until_cancelled() => return Err(cancelled().into()),
                () = until(scan.deadline()) => return Err(late(scan).into()),
            });
        }
        let missing = running.missing();
        if missing.is_empty() {
            accepting.done(scan).await?;
        } else {
            let (news, inbox) = mpsc::unbounded_channel();
            let submission = Submission {
                scan_name: scan.name.clone(),
                generation: scan.generation(),
                prepared: Arc::clone(&prepared),
                segments: Arc::new(missing),
                number,
                passes: Arc::clone(&passes),
                shards: scan.asked.shards,
                priority: scan.asked.priority,
                caller: name_key(&scan.owner),
                waits: scan.asked.durable,
                needs: needs_of(environment, scan, &prepared),
                class_patience: class_patience(environment, scan),
                deadline: scan.deadline(),
                trace: trace::context_of(&span),
                profile: scan.asked.profile,
                news,
            };
            let no_worker = no_worker(environment.no_worker_timeout_ms, &submission.needs);
            let Some(submitted) = environment.dispatcher.submit(submission).await else { return Err(Ended::Over) };
            running.planned(submitted);
            let stopped = tokio::select! {
                // Work continues while the scan is being recorded; clients see nothing before that.
                followed = async {
                    let (followed, accepted) =
                        tokio::join!(running.follow(inbox, &no_worker), accepting.done(scan));
                    accepted.map(|()| followed)
                } => match followed {
                    Ok(Ok(())) => None,
                    Ok(Err(stopped)) => Some(stopped.into_ended(scan)),
                    Err(ended) => Some(ended),
                },
                () = scan.until_cancelled() => Some(cancelled().into()),
            };
            if let Some(ended) = stopped {
                environment.dispatcher.cancel(submitted.scan).await;
                return Err(ended);
            }
        }
        if passes.is_last() {
            drop((passes, working));
            let doubts = environment.dispatcher.doubts();
            return tokio::select! {
                answered = running.answer(doubts) => Ok(answered?),
                () = scan.until_cancelled() => Err(cancelled().into()),
                () = until(scan.deadline()) => Err(late(scan).into()),
            };
        }
        let (results, failures) = running.take_step();
        let allow_partial = scan.asked.allow_partial;
        let (began, span) =
            (Instant::now(), tracing::info_span!(name::CROSS_SECTION, { attribute::STEP } = i64::from(number) + 1));
        let advanced = tokio::task::spawn_blocking(move || {
            let _entered = span.entered();
            // The dispatcher may hold its reference to the previous step a little longer.
            let mut passes = Arc::try_unwrap(passes).unwrap_or_else(|shared| Passes::clone(&shared));
            passes.advance(results, &failures, allow_partial).map(|()| Arc::new(passes))
        });
        passes = match advanced.await {
            Ok(advanced) => advanced.map_err(|error| of_step(error, &scan.report().failed))?,
            Err(_) => {
                let message = "internal error while cross-sections were made";
                return Err(Failure::new(ErrorKind::Permanent, message).into());
            }
        };
        scan.report().cross_ms += ms_since(began);
        number += 1;
    }
}

/// How long a scan's class may be without workers before it begins anew in another.
fn class_patience(environment: &Environment, scan: &Scan) -> Duration {
    if scan.generation().saturating_add(1) >= GENERATIONS_MAX {
        Duration::MAX
    } else if scan.asked.durable {
        environment.class_patience
    } else {
        Duration::from_millis(environment.no_worker_timeout_ms / 2)
    }
}

impl Stopped {
    fn into_ended(self, scan: &Scan) -> Ended {
        match self {
            Self::Late => late(scan).into(),
            Self::Failed(failure) => failure.into(),
            Self::Over => Ended::Over,
            Self::OtherClass => Ended::OtherClass,
        }
    }
}

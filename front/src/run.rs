//! A prepared scan, run in this process.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use trawl_coordinator::client::Scanned;
use trawl_coordinator::local::{self, LocalOptions};
use trawl_coordinator::{PrepareError, PreparedScan, Progress, Route, RunReport, ShardSpec, estimated_ns, route};
use trawl_kernels::stages::Stages;
use trawl_kernels::{BACKEND_CPU, Cancel, Engine, NoCancel};
use trawl_market::{AsOf, Store};
use trawl_plan::ScanDocument;
use trawl_wire::error::text_of;
use trawl_wire::limits::bounded_reason;
use trawl_wire::{Answer, Failure, StepInputV1};
use trawl_worker::{Checkpoints, ExecuteError, ScanSource};

use crate::mistake::{UserMistake, drawn, of_market};

/// How a scan runs here. None of it changes a byte of the answer.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// How the work is divided.
    pub shards: ShardSpec,
    /// Threads to run on; `None`: as many as the scan's estimated cost justifies.
    pub threads: Option<usize>,
    /// How long it may take.
    pub deadline: Option<Duration>,
    /// Whether segments that fail for reasons other than their data are left out.
    pub allow_partial: bool,
    /// What computes.
    pub chosen: Chosen,
    /// States that an update resumes from.
    pub checkpoints: Option<Arc<Checkpoints>>,
    /// Ends the run soon after it is set; what computes asks it too.
    pub cancel: Option<CancelFlag>,
}

/// Cancels a run from another thread. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    /// Cancels.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Cancel for CancelFlag {
    fn cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Cancels what computes when whoever waited for it goes away.
pub struct CancelOnDrop(pub CancelFlag);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

impl Default for RunOptions {
    fn default() -> Self {
        let chosen = Chosen { engine: Engine::Cpu, reason: "the CPU of this process".to_owned() };
        Self {
            shards: ShardSpec::Automatic,
            threads: None,
            deadline: None,
            allow_partial: false,
            chosen,
            checkpoints: None,
            cancel: None,
        }
    }
}

/// What computes, and why.
#[derive(Debug, Clone)]
pub struct Chosen {
    /// What computes.
    pub engine: Engine,
    /// Why, as a sentence.
    pub reason: String,
}

/// The answer, and what is shown beside it.
pub struct Outcome {
    /// The answer.
    pub answer: Answer,
    /// How the run went.
    pub report: RunReport,
    /// Whether the dataset is a generated market.
    pub synthetic: bool,
    /// Timeframe of the dataset's bars, as `1d`.
    pub timeframe: String,
    /// What was scanned; `None` if not known.
    pub document: Option<ScanDocument>,
    /// What computed here. Kept until everything is shown: a device's compiler must finish before the device is
    /// released.
    pub engine: Engine,
}

impl From<Scanned> for Outcome {
    fn from(scanned: Scanned) -> Self {
        let Scanned { answer, report, synthetic, timeframe, document } = scanned;
        Self { answer, report, synthetic, timeframe, document, engine: Engine::Cpu }
    }
}

/// Opens the dataset and compiles; the only place that turns errors of preparing into mistakes of users.
///
/// # Errors
/// A [`UserMistake`]; a dataset that cannot be read.
pub fn prepared(store: &Store, document: &ScanDocument, as_of: AsOf) -> anyhow::Result<PreparedScan> {
    trawl_coordinator::prepare(store, document, as_of).map_err(|error| match error {
        PrepareError::Plan(mistakes) => drawn(mistakes).into(),
        PrepareError::Dataset(error) => of_market(error),
        PrepareError::NoBar { .. } => {
            let dataset = document.dataset.as_deref().and_then(|name| store.open(name).ok());
            let help =
                dataset.map(|d| format!("its first bar is that of {}", d.manifest.shown_as_of(d.manifest.first_time)));
            UserMistake::Plain { message: error.to_string(), help }.into()
        }
        error => UserMistake::plain(error.to_string()).into(),
    })
}

/// The requested number of threads, else the number that the scan's cost justifies.
#[must_use]
pub fn routed(threads: Option<usize>, prepared: &PreparedScan) -> Route {
    match threads {
        Some(0 | 1) => Route::Sequential,
        Some(threads) => Route::Threads(threads),
        None => route(prepared, std::thread::available_parallelism().map_or(1, NonZero::get)),
    }
}

/// The estimated work, in nanoseconds of one core.
#[must_use]
pub fn estimated_work_ns(prepared: &PreparedScan) -> f64 {
    estimated_ns(prepared)
}

/// Runs the scan on threads of this process. Blocks.
///
/// # Errors
/// A segment failed and `allow_partial` is off; the deadline passed.
pub fn embedded(
    prepared: &PreparedScan,
    options: RunOptions,
    progress: &dyn Progress,
) -> Result<Outcome, local::LocalError> {
    let RunOptions { shards, threads, deadline, allow_partial, chosen, checkpoints, cancel } = options;
    let cancel: &dyn Cancel = cancel.as_ref().map_or(&NoCancel, |flag| flag);
    let threads = routed(threads, prepared).threads();
    let whole_histories = checkpoints.is_some() || !matches!(chosen.engine, Engine::Cpu);
    let local_options =
        LocalOptions { shards, threads, deadline, allow_partial, whole_histories, ..LocalOptions::default() };
    let on_backend = prepared.clone().on(chosen.engine.backend());
    let prepared = &on_backend;
    let (lowering, why_lowering) = prepared.lowering();
    let source = ScanSource { checkpoints, engine: chosen.engine.clone().lowered(lowering), ..prepared.source() };
    // Worded as a worker of a cluster does: the reason is part of the answer.
    let failure_of = |error: &ExecuteError| {
        let failure = Failure::new(error.kind(), bounded_reason(text_of(error)));
        (failure.kind, failure.message)
    };
    let references = source.load_references();
    let execute = |segment, step, input: &StepInputV1, stages: &mut Stages| {
        let references = references.as_ref().map_err(failure_of)?;
        source.execute(segment, step, input, references, cancel, stages).map_err(|error| failure_of(&error))
    };
    let (answer, mut report) = local::run_until(prepared, local_options, execute, progress, cancel)?;
    report.backend_reason = match why_lowering.filter(|_| report.backend != BACKEND_CPU) {
        Some(why) => format!("{}; {why}", chosen.reason),
        None => chosen.reason,
    };
    let manifest = &prepared.dataset.manifest;
    let (synthetic, timeframe) = (manifest.synthetic, manifest.timeframe.to_string());
    let document = Some((*prepared.document).clone());
    Ok(Outcome { answer, report, synthetic, timeframe, document, engine: chosen.engine })
}

#[cfg(test)]
mod tests {
    use super::*;
    use trawl_coordinator::NoProgress;
    use trawl_coordinator::local::LocalError;

    fn scan() -> PreparedScan {
        let folder = tempfile::tempdir().unwrap();
        let document = ScanDocument {
            dataset: Some("us5".to_owned()),
            condition: "xs_rank(close) > 0.5 and rsi(close, 14) < 60".to_owned(),
            ..ScanDocument::default()
        };
        prepared(&Store::new(folder.path().to_owned()), &document, AsOf::Newest).expect("the scan compiles")
    }

    #[test]
    fn a_cancelled_run_ends_without_an_answer_and_another_one_is_not_concerned() {
        let scan = scan();
        let run = |cancel: &CancelFlag| {
            let options = RunOptions { cancel: Some(cancel.clone()), ..RunOptions::default() };
            embedded(&scan, options, &NoProgress)
        };
        let (cancelled, other) = (CancelFlag::default(), CancelFlag::default());
        cancelled.set();
        assert!(matches!(run(&cancelled), Err(LocalError::Cancelled)));
        assert_eq!(run(&other).unwrap().answer.rows.len(), 5);
    }

    #[test]
    fn mistakes_of_preparing_are_the_users() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().to_owned());
        for (dataset, condition) in [("us5", "clsoe > 1"), ("us6", "close > 1"), ("us5", "1 +")] {
            let document = ScanDocument {
                dataset: Some(dataset.to_owned()),
                condition: condition.to_owned(),
                ..ScanDocument::default()
            };
            let error = prepared(&store, &document, AsOf::Newest).unwrap_err();
            assert!(error.downcast_ref::<UserMistake>().is_some(), "{condition}: {error}");
        }
    }
}

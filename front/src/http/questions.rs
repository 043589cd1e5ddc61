//! Questions that are answered by computing in this process: explaining a scan, why symbols match or not, series, pictures, tables and
//! studies over history, coverage.
//!
//! Few at a time, each on a bounded number of threads: a coordinator's own work must not wait for them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{Semaphore, mpsc};
use trawl_coordinator::local::LocalOptions;
use trawl_coordinator::{HorizonStudy, NoProgress, PreparedScan};
use trawl_market::{
    DatasetSummary, DayCoverage, InspectOptions, Inspection, MarketErrorKind, Store, SymbolEntry, inspect,
};
use trawl_security::{Allowance, Caller};
use trawl_wire::Answer;

use super::answer::{PARTS_AHEAD_MAX, turn};
use super::asked::Asked;
use super::history::{HistoryQuestion, HistoryReply, Part, study_work_ns};
use super::picture::{ChartQuestion, Picture};
use super::problem::{Kind, Problem};
use super::series::{SeriesColumns, SeriesQuestion};
use crate::explain::Explanation;
use crate::history::{Names, StudyWanted, studied};
use crate::human::duration_ns;
use crate::mistake::UserMistake;
use crate::run::{self, CancelFlag, CancelOnDrop, RunOptions, estimated_work_ns};
use crate::why::{Near, Why};

/// How long a question waits for its turn.
const TURN_WAIT: Duration = Duration::from_secs(10);
/// Name of the document of a request in messages.
const DOCUMENT: &str = "text";

/// How much questions may compute.
#[derive(Debug, Clone, Copy)]
pub struct QuestionLimits {
    /// Questions that compute at once; as many read beside them.
    pub at_once: usize,
    /// Threads of each.
    pub threads: usize,
    /// Estimated nanoseconds of one core that a question may take.
    pub work_ns_max: f64,
}

/// Answers questions about the datasets of a store.
#[derive(Debug, Clone)]
pub struct Questions {
    store: Store,
    limits: QuestionLimits,
    computing: Arc<Semaphore>,
    /// Of questions that read manifests alone: they do not wait for those that compute.
    reading: Arc<Semaphore>,
    /// Of tables over history, which last as long as their clients read: nobody else waits for these.
    tables: Arc<Semaphore>,
}

/// What an inspection found, and every symbol of the snapshot.
pub type Inspected = (Inspection, Vec<SymbolEntry>);

/// Checks that a caller may scan a dataset.
pub(super) fn check_dataset(allowance: &Allowance, caller: &str, dataset: &str) -> Result<(), Problem> {
    let name = dataset.split('@').next().unwrap_or_default();
    if allowance.admits_dataset(name) {
        return Ok(());
    }
    let granted = allowance.datasets.join(", ");
    Err(Problem::new(Kind::Denied, format!("dataset '{name}' is not granted to {caller}: {granted}")))
}

/// What a question's thread needs.
struct Asking {
    store: Store,
    limits: QuestionLimits,
    caller: Caller,
    cancel: CancelFlag,
}

impl Asking {
    /// Prepares a scan that the caller may run, and that is not too much work.
    fn prepared(&self, asked: Asked) -> Result<PreparedScan, Problem> {
        let prepared = prepared(&self.store, &self.caller, asked)?;
        self.check_work(estimated_work_ns(&prepared), "ask 'trawl scan' with --why or --near")?;
        Ok(prepared)
    }

    /// That a question is not too much work for this server; `instead` is what does it elsewhere.
    fn check_work(&self, work_ns: f64, instead: &str) -> Result<(), Problem> {
        if work_ns <= self.limits.work_ns_max {
            return Ok(());
        }
        let (work, most) = (duration_ns(work_ns), duration_ns(self.limits.work_ns_max));
        let message = format!("this takes about {work} of one core, and at most {most} are spent here on a question");
        let help = format!("{instead}, or 'trawl serve', on a machine that reads the same data root");
        Err(Problem::new(Kind::TooLarge, message).help(help))
    }

    fn run(&self, scan: &PreparedScan) -> anyhow::Result<Answer> {
        let threads = Some(run::routed(None, scan).threads().min(self.limits.threads));
        let options = RunOptions { threads, cancel: Some(self.cancel.clone()), ..RunOptions::default() };
        Ok(run::embedded(scan, options, &NoProgress)?.answer)
    }
}

/// Opens and compiles what a caller asks for. Blocks.
pub(super) fn prepared(store: &Store, caller: &Caller, asked: Asked) -> Result<PreparedScan, Problem> {
    let Asked { document, text, as_of } = asked;
    let dataset = document.dataset.as_deref().unwrap_or_default();
    if !dataset.is_empty() {
        check_dataset(&caller.allowance, &caller.name, dataset)?;
    }
    let prepared = run::prepared(store, &document, as_of).map_err(|error| match error.downcast::<UserMistake>() {
        Ok(mistake) => Problem::of_mistake(&placed(mistake, text.as_deref())),
        Err(error) => Problem::of_error(&error),
    })?;
    // The dataset of another timeframe has a name of its own.
    check_dataset(&caller.allowance, &caller.name, &prepared.identity.dataset)?;
    Ok(prepared)
}

/// A mistake in a clause, with its place in the TOML document if the scan came as one.
pub(super) fn placed(mistake: UserMistake, text: Option<&str>) -> UserMistake {
    match (mistake, text) {
        (UserMistake::Drawn(mistakes), Some(text)) => {
            let place = |mistake| trawl_plan::ScanDocument::placed(mistake, DOCUMENT, text);
            UserMistake::Drawn(mistakes.into_iter().map(place).collect())
        }
        (mistake, _) => mistake,
    }
}

impl Questions {
    /// Over the datasets of a store.
    pub fn new(store: Store, limits: QuestionLimits) -> Self {
        let [computing, reading, tables] = [0, 1, 2].map(|_| Arc::new(Semaphore::new(limits.at_once)));
        Self { store, limits, computing, reading, tables }
    }

    /// Runs a question on a thread of its own, once it is its turn.
    async fn ask<T: Send + 'static>(
        &self,
        turns: &Arc<Semaphore>,
        caller: &Caller,
        question: impl FnOnce(&Asking) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let permit = turn(turns, TURN_WAIT).await?;
        let cancel = CancelOnDrop(CancelFlag::default());
        let asking = self.asking(caller, &cancel);
        let answered = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            question(&asking)
        });
        // A panic is reported by its thread.
        answered
            .await
            .unwrap_or_else(|_| Err(Problem::new(Kind::Internal, "internal error while a question was answered")))
    }

    fn asking(&self, caller: &Caller, cancel: &CancelOnDrop) -> Asking {
        Asking { store: self.store.clone(), limits: self.limits, caller: caller.clone(), cancel: cancel.0.clone() }
    }

    /// What a scan needs, reads and costs, and its steps.
    pub async fn explain(&self, caller: &Caller, asked: Asked) -> Result<(Explanation, Vec<String>), Problem> {
        self.ask(&self.reading, caller, |asking| {
            let prepared = prepared(&asking.store, &asking.caller, asked)?;
            let explanation = Explanation::of(&prepared).map_err(|error| Problem::of_error(&error))?;
            Ok((explanation, prepared.plan.explain().lines().map(str::to_owned).collect()))
        })
        .await
    }

    /// Why symbols are in the answer or not.
    pub async fn why(&self, caller: &Caller, asked: Asked, symbols: Vec<String>) -> Result<Vec<Value>, Problem> {
        self.ask(&self.computing, caller, move |asking| {
            let prepared = asking.prepared(asked)?;
            let why = Why::ask(&prepared, symbols.iter().map(String::as_str), &mut |scan| asking.run(scan));
            Ok(why.map_err(|error| Problem::of_error(&error))?.json())
        })
        .await
    }

    /// Which symbols almost match, as the JSON of a list.
    pub async fn near(&self, caller: &Caller, asked: Asked, most: u32) -> Result<String, Problem> {
        self.ask(&self.computing, caller, move |asking| {
            let prepared = asking.prepared(asked)?;
            let near = Near::ask(&prepared, most, &mut |scan| asking.run(scan));
            let near = near.map_err(|error| Problem::of_error(&error))?;
            serde_json::to_string(&near.lines()).map_err(|error| Problem::of_error(&error.into()))
        })
        .await
    }

    /// Columns along the bars of a symbol.
    pub async fn series(&self, caller: &Caller, question: SeriesQuestion) -> Result<SeriesColumns, Problem> {
        check_dataset(&caller.allowance, &caller.name, &question.dataset)?;
        self.ask(&self.computing, caller, move |asking| {
            let failed = |error: anyhow::Error| Problem::of_error(&error);
            let prepared = question.prepared(&asking.store).map_err(failed)?;
            // The dataset of another timeframe has a name of its own.
            check_dataset(&asking.caller.allowance, &asking.caller.name, &prepared.scan.identity.dataset)?;
            asking.check_work(prepared.work_ns().map_err(failed)?, "ask 'trawl chart' or 'trawl panel'")?;
            prepared.computed(asking.limits.threads, &asking.cancel).map_err(failed)
        })
        .await
    }

    /// A table over history, which is written while it is computed.
    pub async fn history(&self, caller: &Caller, question: HistoryQuestion) -> Result<HistoryReply, Problem> {
        let permit = turn(&self.tables, TURN_WAIT).await?;
        let cancel = CancelOnDrop(CancelFlag::default());
        let asking = self.asking(caller, &cancel);
        let (sender, receiver) = mpsc::channel(PARTS_AHEAD_MAX);
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let table = prepared(&asking.store, &asking.caller, question.asked.clone())
                .and_then(|prepared| question.of(prepared))
                .and_then(|table| asking.check_work(table.work_ns()?, "ask 'trawl panel'").map(|()| table));
            match table {
                Ok(table) => table.send(asking.limits.threads, &asking.cancel, &sender),
                Err(problem) => drop(sender.blocking_send(Part::Failed(problem))),
            }
        });
        HistoryReply::begin(receiver, cancel).await
    }

    /// What followed the matches of a scan.
    pub async fn study(
        &self,
        caller: &Caller,
        asked: Asked,
        wanted: StudyWanted,
    ) -> Result<Vec<HorizonStudy>, Problem> {
        self.ask(&self.computing, caller, move |asking| {
            let failed = |error: anyhow::Error| Problem::of_error(&error);
            let prepared = prepared(&asking.store, &asking.caller, asked)?;
            let options = wanted.options(&prepared, Names::HTTP).map_err(failed)?;
            let work = study_work_ns(&prepared, options.horizons.len(), options.from)?;
            asking.check_work(work, "ask 'trawl study'")?;
            let local = LocalOptions { threads: asking.limits.threads, ..LocalOptions::default() };
            studied(&prepared, local, &options, &asking.cancel).map_err(failed)
        })
        .await
    }

    /// A picture of a symbol.
    pub async fn chart(&self, caller: &Caller, question: ChartQuestion) -> Result<Picture, Problem> {
        self.ask(&self.computing, caller, move |asking| {
            let marked = question.marked.clone();
            let marked = marked.map(|asked| prepared(&asking.store, &asking.caller, asked)).transpose()?;
            check_dataset(&asking.caller.allowance, &asking.caller.name, &question.wanted.dataset)?;
            let check = |work_ns| asking.check_work(work_ns, "ask 'trawl chart'");
            question.drawn(&asking.store, marked, (asking.limits.threads, &asking.cancel), check)
        })
        .await
    }

    /// The datasets that a caller may scan.
    pub async fn datasets(&self, caller: &Caller) -> Result<Vec<DatasetSummary>, Problem> {
        self.ask(&self.reading, caller, |asking| {
            let mut list = asking.store.list().map_err(|error| Problem::of_error(&error.into()))?;
            list.retain(|found| asking.caller.allowance.admits_dataset(&found.name));
            Ok(list)
        })
        .await
    }

    /// What a dataset holds; `quality`: every bar is looked at.
    pub async fn inspect(
        &self,
        caller: &Caller,
        dataset: String,
        symbol: Option<String>,
        quality: bool,
    ) -> Result<Inspected, Problem> {
        check_dataset(&caller.allowance, &caller.name, &dataset)?;
        let turns = if quality { &self.computing } else { &self.reading };
        self.ask(turns, caller, move |asking| {
            let failed = |error: trawl_market::MarketError| match error.kind() {
                MarketErrorKind::Invalid => Problem::new(Kind::NotFound, error.to_string()),
                _ => Problem::of_error(&error.into()),
            };
            let dataset = asking.store.open(&dataset).map_err(failed)?;
            let options = InspectOptions { symbol: symbol.as_deref(), quality, ..InspectOptions::default() };
            let found = inspect(&dataset, options).map_err(failed)?;
            Ok((found, dataset.manifest.symbols.clone()))
        })
        .await
    }

    /// Symbols and bars of each day.
    pub async fn coverage(&self, caller: &Caller, dataset: String) -> Result<Vec<DayCoverage>, Problem> {
        let (found, _) = self.inspect(caller, dataset, None, true).await?;
        Ok(found.quality.map(|quality| quality.days).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;
    use trawl_plan::ScanDocument;

    use super::super::answer::Encoding;
    use super::super::bodies::{ChartBody, PanelBody, StudyBody};
    use super::super::history::Table;
    use super::*;

    #[tokio::test]
    async fn series_that_are_too_much_work_are_refused_and_those_of_one_symbol_cost_its_group() {
        let folder = tempfile::tempdir().unwrap();
        let caller = Caller { name: "local".to_owned(), rights: Vec::new(), allowance: Allowance::unlimited() };
        let ask = async |work_ns_max: f64, text: &str, symbol: &str| {
            let limits = QuestionLimits { at_once: 1, threads: 1, work_ns_max };
            let questions = Questions::new(Store::new(folder.path().to_owned()), limits);
            let (symbol, select) = (symbol.to_owned(), vec![text.to_owned()]);
            let times = (None, trawl_market::AsOf::Newest);
            let question =
                SeriesQuestion::new("us5".to_owned(), symbol, select, false, ScanDocument::default(), times).unwrap();
            questions.series(&caller, question).await
        };
        assert_eq!(ask(f64::INFINITY, "close", "IBM").await.unwrap().columns.len(), 1);
        let refused = ask(1.0, "close", "IBM").await.unwrap_err();
        assert_eq!((refused.status.as_u16(), refused.error.kind), (413, Kind::TooLarge));
        assert!(refused.error.help.unwrap().contains("trawl serve"));
        assert_eq!(ask(1.0, "close", "IBMM").await.unwrap_err().error.kind, Kind::Invalid);
    }

    #[tokio::test]
    async fn tables_studies_and_charts_that_are_too_much_work_are_refused_and_so_are_datasets_of_others() {
        let folder = tempfile::tempdir().unwrap();
        let scan = r#""document": {"dataset": "us5", "where": "close > 1", "select": ["close"]}"#;
        let ask = async |work_ns_max: f64, granted: &str| {
            let limits = QuestionLimits { at_once: 1, threads: 1, work_ns_max };
            let questions = Questions::new(Store::new(folder.path().to_owned()), limits);
            let allowance = Allowance { datasets: vec![granted.to_owned()], ..Allowance::unlimited() };
            let caller = Caller { name: "local".to_owned(), rights: Vec::new(), allowance };
            let panel: PanelBody = serde_json::from_str(&format!("{{{scan}}}")).unwrap();
            let study: StudyBody = serde_json::from_str(&format!("{{{scan}}}")).unwrap();
            let chart: ChartBody = serde_json::from_str(r#"{"dataset": "us5", "symbol": "IBM"}"#).unwrap();
            let table = panel.question(Table::Panel, Encoding::Csv).unwrap();
            let (asked, wanted) = study.question().unwrap();
            let chart = chart.question(None, &HeaderMap::new()).unwrap();
            [
                questions.history(&caller, table).await.map(drop),
                questions.study(&caller, asked, wanted).await.map(drop),
                questions.chart(&caller, chart).await.map(drop),
            ]
        };
        assert!(ask(f64::INFINITY, "us5").await.iter().all(Result::is_ok));
        for refused in ask(1.0, "us5").await {
            let problem = refused.unwrap_err();
            assert_eq!((problem.status.as_u16(), problem.error.kind), (413, Kind::TooLarge));
        }
        for refused in ask(f64::INFINITY, "demo").await {
            assert_eq!(refused.unwrap_err().error.kind, Kind::Denied);
        }
    }
}

//! A scan of a dataset: its answer, why symbols are in it, and what it gives over history.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::json;
use trawl_coordinator::features::{FeatureOptions, FeaturePanel};
use trawl_coordinator::local::LocalOptions;
use trawl_coordinator::{PreparedScan, prepare_opened};
use trawl_front::document::document_at;
use trawl_front::explain::Explanation;
use trawl_front::history::{Names, PanelWanted, StudyWanted, span_from, studied};
use trawl_front::include::included;
use trawl_front::output::columnar::batches;
use trawl_front::output::panel_table::PanelTable;
use trawl_front::output::signals_table::SignalsTable;
use trawl_front::output::{About, AnswerFile, Counts, Format, time_text};
use trawl_front::run::{CancelFlag, Outcome, RunOptions, embedded, prepared, routed};
use trawl_front::why::{Near, Why};
use trawl_front::{UserMistake, every_value, refused};
use trawl_market::{AsOf, Store, TimeMicros};
use trawl_plan::ScanDocument;
use trawl_wire::Status;

use crate::arrow_c::Table;
use crate::device;
use crate::engine::text_of;
use crate::failure::failure;
use crate::features::{self, Tensors};
use crate::interruptible::{self, Counts as Progress};

/// A scan that was opened and compiled.
#[pyclass(frozen, module = "trawl._native")]
#[derive(Debug)]
pub struct Scan {
    prepared: PreparedScan,
    /// The TOML document that it is from: its name, its text.
    placed: Option<(String, String)>,
}

/// A time of Python's: its text, and its date where it is midnight. Frames have the times of days as midnights, so that for bars of days
/// such a time is its date; otherwise it is the instant.
pub type When = (String, Option<String>);

/// A [`When`] as users write it, for bars that are dated or not.
///
/// # Errors
/// A mistake that lists the accepted forms.
pub fn parsed_when((instant, date): &When, is_dated: bool) -> Result<AsOf, UserMistake> {
    parsed(date.as_deref().filter(|_| is_dated).unwrap_or(instant))
}

impl Scan {
    /// Opens the dataset and compiles.
    ///
    /// # Errors
    /// A [`UserMistake`] with its place; a dataset that cannot be read.
    pub fn new(
        store: &Store,
        document: &str,
        as_of: Option<&When>,
        placed: Option<(String, String)>,
    ) -> anyhow::Result<Self> {
        let document = ScanDocument::from_json(document).map_err(|why| UserMistake::plain(format!("scan: {why}")))?;
        let as_of = match as_of {
            Some(when) => {
                let name = document.dataset.as_deref().unwrap_or_default();
                // A name that is none is refused below, with its place.
                let is_dated = when.1.is_some() && store.open(name).is_ok_and(|opened| opened.manifest.is_dated());
                parsed_when(when, is_dated)?
            }
            None => AsOf::Newest,
        };
        let prepared = prepared(store, &document, as_of).map_err(|error| in_place(error, placed.as_ref()))?;
        Ok(Self { prepared, placed })
    }

    /// The same scan, whose answer says that it is of another document: the one without the snapshot, of an answer whose bars are meant.
    ///
    /// # Errors
    /// It is no document.
    pub fn shown_as(mut self, document: &str) -> anyhow::Result<Self> {
        let document = ScanDocument::from_json(document).map_err(|why| UserMistake::plain(format!("scan: {why}")))?;
        self.prepared.document = Arc::new(document);
        Ok(self)
    }

    /// What was opened and compiled.
    pub fn prepared(&self) -> &PreparedScan {
        &self.prepared
    }

    /// Options of runs over history.
    fn local(&self, threads: Option<usize>) -> LocalOptions {
        LocalOptions { threads: routed(threads, &self.prepared).threads(), ..LocalOptions::default() }
    }

    fn start(&self, from: Option<&When>) -> anyhow::Result<Option<TimeMicros>> {
        span_from(&self.prepared, when_of(&self.prepared, from)?.as_ref(), Names::PYTHON)
    }
}

/// A time as users write it.
///
/// # Errors
/// A mistake that lists the accepted forms.
fn parsed(text: &str) -> Result<AsOf, UserMistake> {
    AsOf::parse(text).map_err(|mistake| UserMistake::with_help(format!("as_of: {mistake}"), mistake.help))
}

/// Mistakes with their places in the document that the clauses are from.
fn in_place(error: anyhow::Error, placed: Option<&(String, String)>) -> anyhow::Error {
    let Some((name, text)) = placed else { return error };
    match error.downcast::<UserMistake>() {
        Ok(UserMistake::Drawn(mistakes)) => {
            let placed = mistakes.into_iter().map(|mistake| ScanDocument::placed(mistake, name, text));
            UserMistake::Drawn(placed.collect()).into()
        }
        Ok(other) => other.into(),
        Err(error) => error,
    }
}

/// Runs a scan on threads of this process.
fn ran(
    prepared: &PreparedScan,
    (threads, deadline, allow_partial): (Option<usize>, Option<Duration>, bool),
    cancel: &CancelFlag,
    progress: &Progress,
) -> anyhow::Result<Outcome> {
    let options =
        RunOptions { threads, deadline, allow_partial, cancel: Some(cancel.clone()), ..RunOptions::default() };
    Ok(embedded(prepared, options, progress)?)
}

#[pymethods]
impl Scan {
    /// Warnings about the answer.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.prepared.warnings.clone()
    }

    /// What the scan needs and costs, as JSON, and the steps of its plan as text.
    fn explain(&self, py: Python<'_>) -> PyResult<(String, String)> {
        let explained =
            py.detach(|| Explanation::of(&self.prepared).map(|found| (found, self.prepared.plan.explain())));
        let (explanation, steps) = explained.map_err(|error| failure(&error))?;
        Ok((text_of(&explanation)?, steps))
    }

    /// The answer. `every_value`: select columns have values for all symbols, not matches alone.
    #[pyo3(signature = (threads=None, deadline_s=None, allow_partial=false, every_value=false, tick=None))]
    fn run(
        &self,
        py: Python<'_>,
        threads: Option<usize>,
        deadline_s: Option<f64>,
        allow_partial: bool,
        every_value: bool,
        tick: Option<Py<PyAny>>,
    ) -> PyResult<Answer> {
        let deadline = deadline_s.map(Duration::try_from_secs_f64).transpose().map_err(|_| {
            failure(&UserMistake::with_help("deadline_s is not a time", "give seconds above 0, such as 30").into())
        })?;
        let prepared = self.prepared.clone();
        let how = (threads, deadline, allow_partial);
        let outcome = interruptible::run(py, tick.as_ref(), move |cancel, progress| -> anyhow::Result<Outcome> {
            let mut outcome = ran(&prepared, how, cancel, progress)?;
            if every_value {
                let (document, bar) = (every_value::of_all(&prepared.document), AsOf::Bar(prepared.as_of));
                let of_all = prepare_opened(prepared.dataset.clone(), &document, bar)?;
                let of_all = ran(&of_all, how, cancel, progress)?;
                every_value::fill(&mut outcome.answer, &of_all.answer);
            }
            Ok(outcome)
        })?;
        Ok(Answer { outcome: Arc::new(outcome.map_err(|error| failure(&error))?) })
    }

    /// Why symbols are in the answer or not, as `--why --json`.
    fn why(&self, py: Python<'_>, symbols: Vec<String>) -> PyResult<String> {
        let prepared = self.prepared.clone();
        let found = interruptible::run(py, None, move |cancel, progress| {
            let mut run = |scan: &PreparedScan| Ok(ran(scan, (None, None, false), cancel, progress)?.answer);
            Why::ask(&prepared, symbols.iter().map(String::as_str), &mut run).map(|why| why.json())
        })?;
        text_of(&found.map_err(|error| failure(&in_place(error, self.placed.as_ref())))?)
    }

    /// Symbols that fail on at most `most` terms, as `--near --json`.
    fn near(&self, py: Python<'_>, most: u32) -> PyResult<String> {
        let prepared = self.prepared.clone();
        let found = interruptible::run(py, None, move |cancel, progress| {
            let mut run = |scan: &PreparedScan| Ok(ran(scan, (None, None, false), cancel, progress)?.answer);
            Near::ask(&prepared, most, &mut run)
        })?;
        text_of(&found.map_err(|error| failure(&in_place(error, self.placed.as_ref())))?.lines())
    }

    /// The scan over history as a table, as `trawl panel` writes it.
    #[pyo3(signature = (start, forward, matches_only, split, folds, embargo, scaled, threads=None, tick=None))]
    #[expect(clippy::too_many_arguments, reason = "they are the keyword arguments of trawl.panel")]
    fn panel(
        &self,
        py: Python<'_>,
        start: Option<When>,
        forward: Vec<u32>,
        matches_only: bool,
        split: Option<When>,
        folds: Option<u32>,
        embargo: u32,
        scaled: bool,
        threads: Option<usize>,
        tick: Option<Py<PyAny>>,
    ) -> PyResult<(Table, Option<String>)> {
        let options =
            self.panel_options(start.as_ref(), (forward, matches_only), (split.as_ref(), folds, embargo), None);
        let options = options.map_err(|error| failure(&error))?;
        let (prepared, local) = (self.prepared.clone(), self.local(threads));
        let made = interruptible::run(py, tick.as_ref(), move |cancel, _| -> anyhow::Result<_> {
            let panel = FeaturePanel::new(&prepared, local, options).map_err(refused::of_panel)?;
            let about = About::of_many(&prepared.identity, &prepared.document);
            let table = PanelTable::new(&panel, matches_only, &about);
            let scaler = scaled.then(|| panel.fit(cancel)).transpose().map_err(refused::of_panel)?;
            let mut batches = Vec::new();
            let taken = panel.each_chunk(cancel, |mut chunk| {
                if let Some(scaler) = &scaler {
                    scaler.apply(&mut chunk);
                }
                for batch in table.batches(&chunk) {
                    batches.push(batch.map_err(|error| format!("{error:#}"))?);
                }
                Ok(())
            });
            taken.map_err(refused::of_panel)?;
            let scaler = scaler.map(|scaler| serde_json::to_string(&scaler.features)).transpose()?;
            Ok((Table { schema: Arc::clone(table.schema()), batches }, scaler))
        })?;
        made.map_err(|error| failure(&error))
    }

    /// The scan over history as tensors, as `trawl panel --tensors` writes them: features, mask, labels, the index, names of features and
    /// labels, the scaler as JSON.
    #[pyo3(signature = (start, forward, matches_only, split, folds, embargo, scaled, window, device=None, threads=None, tick=None))]
    #[expect(clippy::too_many_arguments, reason = "they are the keyword arguments of trawl.features")]
    fn features(
        &self,
        py: Python<'_>,
        start: Option<When>,
        forward: Vec<u32>,
        matches_only: bool,
        split: Option<When>,
        folds: Option<u32>,
        embargo: u32,
        scaled: bool,
        window: usize,
        device: Option<(String, PathBuf)>,
        threads: Option<usize>,
        tick: Option<Py<PyAny>>,
    ) -> PyResult<Tensors> {
        // A number that does not fit is refused as one that is too large.
        let window = Some(u32::try_from(window).unwrap_or(u32::MAX));
        let parts = (split.as_ref(), folds, embargo);
        let options = self.panel_options(start.as_ref(), (forward, matches_only), parts, window);
        let options = options.map_err(|error| failure(&error))?;
        let (prepared, local) = (self.prepared.clone(), self.local(threads));
        let made = interruptible::run(py, tick.as_ref(), move |cancel, _| {
            let fleet = device.map(|(device, cache)| device::fleet(&device, Some(&cache))).transpose()?;
            features::made(&prepared, local, options, scaled, fleet.as_ref(), cancel)
        })?;
        Ok(made.map_err(|error| failure(&error))?.into())
    }

    /// Which symbols match at each bar: a column of conditions for each symbol, or a row for each match.
    #[pyo3(signature = (start, wide, threads=None, tick=None))]
    fn signals(
        &self,
        py: Python<'_>,
        start: Option<When>,
        wide: bool,
        threads: Option<usize>,
        tick: Option<Py<PyAny>>,
    ) -> PyResult<Table> {
        let from = self.start(start.as_ref()).map_err(|error| failure(&error))?;
        let (prepared, local) = (self.prepared.clone(), self.local(threads));
        let made =
            interruptible::run(py, tick.as_ref(), move |cancel, _| signals(&prepared, local, from, wide, cancel))?;
        made.map_err(|error| failure(&error))
    }

    /// What followed the matches, as `trawl study --json`.
    #[pyo3(signature = (horizons, by=None, start=None, threads=None, tick=None))]
    fn study(
        &self,
        py: Python<'_>,
        horizons: Vec<u32>,
        by: Option<String>,
        start: Option<When>,
        threads: Option<usize>,
        tick: Option<Py<PyAny>>,
    ) -> PyResult<String> {
        let options = when_of(&self.prepared, start.as_ref())
            .and_then(|from| StudyWanted { horizons, by, from }.options(&self.prepared, Names::PYTHON));
        let options = options.map_err(|error| failure(&error))?;
        let (prepared, local) = (self.prepared.clone(), self.local(threads));
        let found =
            interruptible::run(py, tick.as_ref(), move |cancel, _| studied(&prepared, local, &options, cancel))?;
        text_of(&found.map_err(|error| failure(&error))?)
    }
}

/// A time of a span as users write it, for the scan's bars.
fn when_of(prepared: &PreparedScan, when: Option<&When>) -> anyhow::Result<Option<AsOf>> {
    let is_dated = prepared.dataset.manifest.is_dated();
    Ok(when.map(|when| parsed_when(when, is_dated)).transpose()?)
}

impl Scan {
    fn panel_options(
        &self,
        start: Option<&When>,
        (forward, matches_only): (Vec<u32>, bool),
        (split, folds, embargo): (Option<&When>, Option<u32>, u32),
        window: Option<u32>,
    ) -> anyhow::Result<FeatureOptions> {
        let (from, split) = (when_of(&self.prepared, start)?, when_of(&self.prepared, split)?);
        let wanted = PanelWanted { from, forward, matches_only, split, folds, embargo, window };
        wanted.options(&self.prepared, Names::PYTHON)
    }
}

/// Where the scan matches, as a table.
fn signals(
    prepared: &PreparedScan,
    local: LocalOptions,
    from: Option<TimeMicros>,
    wide: bool,
    cancel: &CancelFlag,
) -> anyhow::Result<Table> {
    let options = FeatureOptions { from, matches_only: true, ..FeatureOptions::default() };
    let panel = FeaturePanel::new(prepared, local, options).map_err(refused::of_panel)?;
    let table = SignalsTable::new(&panel, wide, &About::of_many(&prepared.identity, &prepared.document));
    let mut batches = Vec::new();
    let taken = panel.each_chunk(cancel, |chunk| {
        batches.push(table.batch(&chunk).map_err(|error| format!("{error:#}"))?);
        Ok(())
    });
    taken.map_err(refused::of_panel)?;
    Ok(Table { schema: Arc::clone(table.schema()), batches })
}

/// The TOML document of a file with what it includes, as JSON, and its text.
#[pyfunction]
pub fn read_document(path: PathBuf) -> PyResult<(String, String)> {
    let read = |path: &Path| -> Result<(String, String), UserMistake> {
        let unreadable = |why: String| UserMistake::plain(format!("cannot read '{}': {why}", path.display()));
        let (mut document, text) = document_at(path, unreadable)?;
        included(&mut document, path)?;
        Ok((document.to_json(), text))
    };
    read(&path).map_err(|error| failure(&error.into()))
}

/// The answer of a scan.
#[pyclass(frozen, module = "trawl._native")]
pub struct Answer {
    outcome: Arc<Outcome>,
}

impl Answer {
    fn about(&self) -> About<'_> {
        About::new(&self.outcome.answer, self.outcome.document.as_ref())
    }
}

#[pymethods]
impl Answer {
    /// Every row as a table.
    fn table(&self, py: Python<'_>) -> PyResult<Table> {
        let made = py.detach(|| batches(&self.outcome.answer, &self.about()));
        let (schema, batches) = made.map_err(|error| failure(&error))?;
        Ok(Table { schema, batches })
    }

    /// The bytes of a file of it, in the format `csv`, `json`, `ndjson`, `parquet` or `arrow`.
    fn bytes<'py>(&self, py: Python<'py>, format: &str) -> PyResult<Bound<'py, PyBytes>> {
        let Some(format) = Format::named(format) else {
            let help = Format::ALL.map(Format::name).join(", ");
            return Err(failure(&UserMistake::with_help(format!("format '{format}' is not known"), help).into()));
        };
        let written = py.detach(|| {
            let mut bytes = Vec::new();
            format.write(&self.outcome.answer, &self.about(), &mut bytes).map(|()| bytes)
        });
        Ok(PyBytes::new(py, &written.map_err(|error| failure(&error))?))
    }

    /// Writes a file in the format of its extension; the paths of what was written.
    fn write(&self, py: Python<'_>, path: PathBuf) -> PyResult<Vec<PathBuf>> {
        let written = py.detach(|| -> anyhow::Result<_> {
            AnswerFile::prepare(&path)?.write(&self.outcome.answer, self.outcome.document.as_ref())
        });
        written.map_err(|error| failure(&error))
    }

    /// What describes it, as JSON: identity, digest, counts, time, headings, the scan, the report.
    fn about_json(&self) -> PyResult<String> {
        let Outcome { answer, report, synthetic, timeframe, document, .. } = &*self.outcome;
        let counts = Counts::of(answer);
        text_of(&json!({
            "identity": answer.identity,
            "digest": answer.digest,
            "counts": counts,
            "rows": answer.rows.len(),
            "time": time_text(answer),
            "select": answer.select,
            "synthetic": synthetic,
            "timeframe": timeframe,
            "as_of_shown": report.as_of_shown,
            "warnings": report.warnings,
            "failed": answer.counts()[Status::Failed as usize],
            "scan": document,
            "report": report,
        }))
    }
}

/// Cores that a run may have.
#[pyfunction]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

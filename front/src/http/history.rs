//! Scans over history: panels, signals and tensors as tables that are written while they are computed, and studies.
//!
//! Until its first part is there a table may be refused with a status. If one breaks off after it, the connection is reset, so that a
//! part is never taken for the whole; neither is one whose writer ended without a word.

use std::io;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue};
use futures::Stream;
use tokio::sync::mpsc;
use trawl_coordinator::PreparedScan;
use trawl_coordinator::features::{FeatureChunk, FeatureOptions, FeaturePanel, Scaler};
use trawl_coordinator::local::LocalOptions;

use super::answer::{Encoding, Parts, gone};
use super::asked::Asked;
use super::problem::{Kind, Problem};
use crate::history::{Names, PanelWanted, unused_limit};
use crate::output::batches::BatchFile;
use crate::output::panel_table::PanelTable;
use crate::output::signals_table::SignalsTable;
use crate::output::tensor_table::TensorTable;
use crate::output::{About, Format};
use crate::refused::of_panel;
use crate::run::{CancelFlag, CancelOnDrop, estimated_work_ns};

/// Bytes of the rows that are in memory at once for a table.
const CHUNK_BYTES_MAX: u64 = 32 << 20;
/// Bytes of the features that the windows of tensors keep in memory.
const WINDOW_BYTES_MAX: u64 = 256 << 20;
/// Bytes that a study may take in memory.
const STUDY_BYTES_MAX: u64 = 1 << 30;
/// Bytes of a value.
const VALUE_BYTES: u64 = 8;
/// Estimated nanoseconds of one core for a value of a table, besides computing it.
const VALUE_NS: f64 = 10.0;
/// Bytes of the warnings that a header has.
const WARNINGS_BYTES_MAX: usize = 8 << 10;

/// Which table is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// A row for each symbol and bar.
    Panel,
    /// Where the scan matches: a column for each symbol, or a row for each match.
    Signals {
        /// A column for each symbol.
        wide: bool,
    },
    /// Windows of the features.
    Tensors,
}

/// A table over history, checked as far as that needs no dataset.
#[derive(Debug, Clone)]
pub struct HistoryQuestion {
    /// The scan, as of its last bar.
    pub asked: Asked,
    /// Which table.
    pub table: Table,
    /// What it has.
    pub wanted: PanelWanted,
    /// Whether the features are scaled.
    pub scaled: bool,
    /// How it is given.
    pub encoding: Encoding,
}

/// Times of a span up to the as-of, times symbols.
fn cells(prepared: &PreparedScan, from: Option<i64>) -> anyhow::Result<u64> {
    let times = prepared.dataset.times()?;
    let end = times.partition_point(|time| *time <= prepared.as_of);
    let first = times.partition_point(|time| from.is_some_and(|from| *time < from));
    Ok(end.saturating_sub(first) as u64 * prepared.symbol_count() as u64)
}

/// The estimated work of a study, in nanoseconds of one core; refused if it needs more memory than one may take.
pub(super) fn study_work_ns(prepared: &PreparedScan, horizons: usize, from: Option<i64>) -> Result<f64, Problem> {
    let cells = cells(prepared, from).map_err(|error| Problem::of_error(&error))?;
    // If everything matches.
    let bytes = cells.saturating_mul(1 + VALUE_BYTES * horizons as u64);
    if bytes > STUDY_BYTES_MAX {
        let message = format!("{cells} symbols at bars with {horizons} horizons are too many for a study here");
        return Err(
            Problem::new(Kind::TooLarge, message).help("take a shorter span or fewer horizons, or 'trawl study'")
        );
    }
    Ok(estimated_work_ns(prepared) + VALUE_NS * (cells as f64) * (1 + horizons) as f64)
}

/// A question whose scan was opened and compiled.
pub(super) struct PreparedTable {
    question: HistoryQuestion,
    prepared: PreparedScan,
    options: FeatureOptions,
}

impl HistoryQuestion {
    /// The asked scan, and the rest once it is prepared.
    ///
    /// # Errors
    /// A mistake of the user; windows that need more memory than they may take.
    pub(super) fn of(self, prepared: PreparedScan) -> Result<PreparedTable, Problem> {
        let options = self.wanted.options(&prepared, Names::HTTP).map_err(|error| Problem::of_error(&error))?;
        let columns = prepared.plan.headings.len() as u64;
        let held = options.window as u64 * prepared.symbol_count() as u64 * columns * VALUE_BYTES;
        if held > WINDOW_BYTES_MAX {
            let message =
                format!("windows of {} bars of all symbols and columns take {held} bytes of memory", options.window);
            let help = format!(
                "at most {WINDOW_BYTES_MAX} are taken here: select less, or write them by 'trawl panel --tensors'"
            );
            return Err(Problem::new(Kind::TooLarge, message).help(help));
        }
        Ok(PreparedTable { question: self, prepared, options })
    }
}

impl PreparedTable {
    /// The estimated work, in nanoseconds of one core.
    pub fn work_ns(&self) -> Result<f64, Problem> {
        let cells = cells(&self.prepared, self.options.from).map_err(|error| Problem::of_error(&error))?;
        let columns = self.prepared.plan.headings.len() * self.options.window.max(1) + self.options.horizons.len() + 1;
        let passes = if self.question.scaled { 2.0 } else { 1.0 };
        Ok(passes * estimated_work_ns(&self.prepared) + VALUE_NS * cells as f64 * columns as f64)
    }

    /// What describes the table.
    fn headers(&self) -> HeaderMap {
        let identity = serde_json::to_string(&self.prepared.identity).unwrap_or_default();
        let unused = unused_limit(&self.prepared.document);
        let warnings = self.prepared.span_warnings().chain(unused);
        let mut headers = HeaderMap::new();
        let named = [("trawl-identity", Some(identity)), ("trawl-warnings", warnings_text(warnings))];
        for (name, value) in named {
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(&value).ok()) {
                headers.insert(name, value);
            }
        }
        headers
    }

    /// Computes the table and sends it. Blocks.
    pub fn send(self, threads: usize, cancel: &CancelFlag, sender: &mpsc::Sender<Part>) {
        let mut begun = false;
        let mut parts = Parts::new(|part| {
            begun = true;
            sender.blocking_send(Part::Bytes(part)).map_err(gone)
        });
        let head = || sender.blocking_send(Part::Head(self.headers())).map_err(gone);
        let written = self.write(threads, cancel, head, &mut parts).and_then(|()| Ok(parts.finish()?));
        let last = match written {
            Ok(()) => Part::Done,
            Err(error) => Part::Failed(Problem::of_error(&error)),
        };
        // Nobody is interested in how it ended once the client is gone.
        if !sender.is_closed() {
            if let (true, Part::Failed(problem)) = (begun, &last) {
                tracing::error!(why = problem.error.message, "a table of HTTP broke off");
            }
            let _ = sender.blocking_send(last);
        }
    }

    /// Computes the table and writes it; `head` is called once it is known that there will be one.
    fn write(
        &self,
        threads: usize,
        cancel: &CancelFlag,
        head: impl FnOnce() -> io::Result<()>,
        writer: &mut (impl io::Write + Send),
    ) -> anyhow::Result<()> {
        let Self { question, prepared, options } = self;
        let local = LocalOptions { threads, ..LocalOptions::default() };
        let panel = FeaturePanel::new(prepared, local, options.clone()).map_err(of_panel)?;
        let panel = panel.in_chunks_of(CHUNK_BYTES_MAX);
        let scaler = question.scaled.then(|| panel.fit(cancel)).transpose().map_err(of_panel)?;
        let mut rows = Rows::begin(self, &panel, scaler.as_ref())?;
        head()?;
        let mut file = match question.encoding {
            Encoding::Csv => BatchFile::begin(Format::Csv, rows.schema(), panel.is_dated(), writer)?,
            Encoding::Parquet => BatchFile::begin(Format::Parquet, rows.schema(), panel.is_dated(), writer)?,
            _ => BatchFile::begin_stream(rows.schema(), writer)?,
        };
        let taken = panel.each_chunk(cancel, |mut chunk| {
            if let Some(scaler) = &scaler {
                scaler.apply(&mut chunk);
            }
            rows.push(&chunk, &mut file).map_err(|error| format!("{error:#}"))
        });
        taken.map_err(of_panel)?;
        file.finish()?;
        Ok(())
    }
}

/// The rows of a table.
enum Rows {
    Panel(PanelTable),
    Signals(SignalsTable),
    Tensors(TensorTable),
}

impl Rows {
    fn begin(table: &PreparedTable, panel: &FeaturePanel<'_>, scaler: Option<&Scaler>) -> anyhow::Result<Self> {
        let about = About::of_many(&table.prepared.identity, &table.prepared.document);
        Ok(match table.question.table {
            Table::Panel => Self::Panel(PanelTable::new(panel, table.options.matches_only, &about)),
            Table::Signals { wide } => Self::Signals(SignalsTable::new(panel, wide, &about)),
            Table::Tensors => Self::Tensors(TensorTable::new(panel, table.options.window, scaler, &about)?),
        })
    }

    fn schema(&self) -> &std::sync::Arc<arrow_schema::Schema> {
        match self {
            Self::Panel(table) => table.schema(),
            Self::Signals(table) => table.schema(),
            Self::Tensors(table) => table.schema(),
        }
    }

    fn push<W: io::Write + Send>(&mut self, chunk: &FeatureChunk, file: &mut BatchFile<W>) -> anyhow::Result<()> {
        match self {
            Self::Panel(table) => table.batches(chunk).try_for_each(|batch| file.push(&batch?)),
            Self::Signals(table) => file.push(&table.batch(chunk)?),
            Self::Tensors(table) => table.push(chunk, |batch| file.push(batch)),
        }
    }
}

/// Warnings as a list of JSON in ASCII; the first ones, where there are many.
pub(super) fn warnings_text<'a>(warnings: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut kept: Vec<&str> = Vec::new();
    let mut bytes = 0;
    for warning in warnings {
        // A character is six bytes at most, or twelve for two of UTF-16.
        bytes += 6 * warning.len();
        if bytes > WARNINGS_BYTES_MAX {
            break;
        }
        kept.push(warning);
    }
    if kept.is_empty() {
        return None;
    }
    let json = serde_json::to_string(&kept).ok()?;
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        match character.is_ascii() {
            true => text.push(character),
            false => {
                character.encode_utf16(&mut [0; 2]).iter().for_each(|unit| text.push_str(&format!("\\u{unit:04x}")))
            }
        }
    }
    Some(text)
}

/// What the thread that computes a table sends.
pub(super) enum Part {
    /// There will be a table.
    Head(HeaderMap),
    /// The next bytes of it.
    Bytes(Bytes),
    /// That was all.
    Done,
    /// There is no table, or no further part of it.
    Failed(Problem),
}

/// A table that is being written.
pub struct HistoryReply {
    /// What describes it.
    pub headers: HeaderMap,
    rest: Rest,
}

struct Rest {
    /// The part that was waited for.
    ahead: Option<Part>,
    receiver: mpsc::Receiver<Part>,
    /// Ends the computing when nobody reads any more.
    _cancel: CancelOnDrop,
}

impl HistoryReply {
    /// Waits for the first part.
    pub(super) async fn begin(mut receiver: mpsc::Receiver<Part>, cancel: CancelOnDrop) -> Result<Self, Problem> {
        let unexpected = || Err(Problem::new(Kind::Internal, "internal error while a table was made"));
        let headers = match receiver.recv().await {
            Some(Part::Head(headers)) => headers,
            Some(Part::Failed(problem)) => return Err(problem),
            _ => return unexpected(),
        };
        let ahead = match receiver.recv().await {
            Some(Part::Failed(problem)) => return Err(problem),
            Some(part) => Some(part),
            None => return unexpected(),
        };
        Ok(Self { headers, rest: Rest { ahead, receiver, _cancel: cancel } })
    }

    /// Its bytes; an error if it breaks off.
    pub(super) fn bytes(self) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        futures::stream::unfold(Some(self.rest), |rest| async move {
            let mut rest = rest?;
            let part = match rest.ahead.take() {
                Some(part) => Some(part),
                None => rest.receiver.recv().await,
            };
            match part {
                Some(Part::Bytes(bytes)) => Some((Ok(bytes), Some(rest))),
                Some(Part::Done) => None,
                _ => Some((Err(io::Error::other("the table broke off")), None)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt as _;

    use super::*;

    async fn read(parts: Vec<Part>) -> Result<Result<Vec<Bytes>, io::Error>, Problem> {
        let (sender, receiver) = mpsc::channel(8);
        for part in parts {
            sender.send(part).await.unwrap_or_else(|_| panic!("there is room"));
        }
        drop(sender);
        let reply = HistoryReply::begin(receiver, CancelOnDrop(CancelFlag::default())).await?;
        Ok(reply.bytes().try_collect().await)
    }

    #[tokio::test]
    async fn a_table_is_whole_only_if_its_writer_says_so() {
        let head = || Part::Head(HeaderMap::new());
        let bytes = || Part::Bytes(Bytes::from_static(b"row"));
        let failed = || Part::Failed(Problem::new(Kind::Invalid, "why"));
        assert_eq!(read(vec![head(), bytes(), bytes(), Part::Done]).await.unwrap().unwrap().len(), 2);
        assert!(read(vec![head(), Part::Done]).await.unwrap().unwrap().is_empty());
        // What is known before the first part has a status; a thread that ended in between is an error.
        assert_eq!(read(vec![failed()]).await.err().unwrap().error.kind, Kind::Invalid);
        assert_eq!(read(vec![head(), failed()]).await.err().unwrap().error.kind, Kind::Invalid);
        assert_eq!(read(vec![]).await.err().unwrap().error.kind, Kind::Internal);
        assert_eq!(read(vec![head()]).await.err().unwrap().error.kind, Kind::Internal);
        assert!(read(vec![head(), bytes(), failed()]).await.unwrap().is_err());
        assert!(read(vec![head(), bytes()]).await.unwrap().is_err());
    }

    #[test]
    fn warnings_are_a_list_in_ascii_of_a_bounded_length() {
        assert_eq!(warnings_text([].into_iter()), None);
        let text = warnings_text(["caf\u{e9} \u{1d11e}", "\"two\"\n"].into_iter()).unwrap();
        assert!(text.is_ascii() && !text.contains('\n'), "{text}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), ["caf\u{e9} \u{1d11e}", "\"two\"\n"]);
        let long = "x".repeat(1000);
        let text = warnings_text(std::iter::repeat_n(long.as_str(), 100)).unwrap();
        assert!(text.len() <= WARNINGS_BYTES_MAX);
    }
}

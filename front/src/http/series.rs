//! Columns along the bars of one symbol, for charts and notebooks.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use schemars::JsonSchema;
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use trawl_coordinator::local::LocalOptions;
use trawl_coordinator::{PreparedScan, series_cost_ns, symbol_series};
use trawl_kernels::Cancel;
use trawl_market::{AsOf, Store, TimeMicros, format_label};
use trawl_plan::{ColumnKind, ScanDocument};

use super::problem::{Kind, Problem};
use crate::history::{Names, span_from};
use crate::mistake::{UserMistake, of_market};
use crate::output::columnar::{select_array, select_type};
use crate::output::json::{Cell, CellSchema};
use crate::output::select_text;
use crate::refused::of_series;
use crate::run::prepared;

/// Maximum expressions of one question.
const EXPRESSIONS_MAX: usize = 64;
/// Maximum values of one reply: columns times bars of the symbol.
const CELLS_MAX: u64 = 8 << 20;
/// The columns of bars, in order.
const BARS: [&str; 5] = ["open", "high", "low", "close", "volume"];

/// What is asked, checked as far as that needs no dataset.
#[derive(Debug, Clone)]
pub struct SeriesQuestion {
    /// `NAME` or `NAME@SNAPSHOT`.
    pub dataset: String,
    symbol: String,
    document: ScanDocument,
    bars: bool,
    from: Option<AsOf>,
    to: AsOf,
}

/// The columns.
#[derive(Debug)]
pub struct SeriesColumns {
    /// `NAME@SNAPSHOT`.
    pub dataset: String,
    /// The symbol as the dataset calls it.
    pub symbol: String,
    /// Time of each bar.
    pub times: Vec<TimeMicros>,
    /// Whether bars cover a day or longer, and have a date in place of a time.
    pub dated: bool,
    /// Name, kind, and a value for each bar.
    pub columns: Vec<(String, ColumnKind, Vec<f64>)>,
}

impl SeriesQuestion {
    /// Checks what is asked. `document` has the words and the arithmetic of the expressions: lets, functions, adjustment, precision,
    /// timeframe, history.
    pub(super) fn new(
        dataset: String,
        symbol: String,
        select: Vec<String>,
        bars: bool,
        document: ScanDocument,
        (from, to): (Option<AsOf>, AsOf),
    ) -> Result<Self, Problem> {
        if select.len() > EXPRESSIONS_MAX {
            let message = format!("exprs: at most {EXPRESSIONS_MAX} are taken, there are {}", select.len());
            return Err(Problem::new(Kind::Invalid, message));
        }
        if select.is_empty() && !bars {
            let problem = Problem::new(Kind::Invalid, "nothing is asked for");
            return Err(problem.help("give exprs, or bars: true for the dataset's own columns"));
        }
        let document = ScanDocument {
            dataset: Some(dataset.clone()),
            // A condition that is true at every bar.
            condition: "1 == 1".to_owned(),
            select,
            ..document
        };
        Ok(Self { dataset, symbol, document, bars, from, to })
    }

    /// Opens and compiles. Blocks.
    ///
    /// # Errors
    /// A [`UserMistake`]; a dataset that cannot be read.
    pub fn prepared(mut self, store: &Store) -> anyhow::Result<PreparedSeries> {
        if self.bars {
            let manifest = store.open(&self.dataset).map_err(of_market)?.manifest;
            let has = |name: &&str| manifest.columns.iter().any(|column| column == name);
            let bars = BARS.into_iter().filter(has).map(str::to_owned);
            self.document.select = bars.chain(std::mem::take(&mut self.document.select)).collect();
        }
        let scan = prepared(store, &self.document, self.to)?;
        let manifest = &scan.dataset.manifest;
        let from = span_from(&scan, self.from.as_ref(), Names::HTTP)?;
        let rows = manifest.symbols.iter().map(|entry| entry.rows).max().unwrap_or(0);
        let cells = rows.saturating_mul(scan.plan.headings.len() as u64);
        if cells > CELLS_MAX {
            let message = format!("the series may have {cells} values, at most {CELLS_MAX} are given at once");
            return Err(UserMistake::with_help(message, "ask for fewer expressions at a time").into());
        }
        Ok(PreparedSeries { scan, symbol: self.symbol, from })
    }
}

/// A question that was opened and compiled.
#[derive(Debug)]
pub struct PreparedSeries {
    /// The scan whose columns are asked for.
    pub scan: PreparedScan,
    symbol: String,
    from: Option<TimeMicros>,
}

impl PreparedSeries {
    /// The estimated work, in nanoseconds of one core.
    ///
    /// # Errors
    /// No such symbol; a dataset that cannot be read.
    pub fn work_ns(&self) -> anyhow::Result<f64> {
        series_cost_ns(&self.scan, &self.symbol).map(|ns| ns as f64).map_err(of_series)
    }

    /// Computes the columns. Blocks.
    ///
    /// # Errors
    /// A [`UserMistake`]; a dataset that cannot be read; cancelled.
    pub fn computed(self, threads: usize, cancel: &dyn Cancel) -> anyhow::Result<SeriesColumns> {
        let Self { scan, symbol, from } = self;
        let options = LocalOptions { threads, ..LocalOptions::default() };
        let found = symbol_series(&scan, &symbol, usize::MAX, options, cancel).map_err(of_series)?;
        let first = from.map_or(0, |from| found.times.partition_point(|time| *time < from));
        let kinds = scan.plan.kinds();
        let named = scan.plan.headings.iter().cloned().zip(kinds).zip(found.columns);
        Ok(SeriesColumns {
            dataset: scan.dataset_reference(),
            symbol: found.symbol,
            times: found.times.get(first..).unwrap_or_default().to_vec(),
            dated: scan.dataset.manifest.is_dated(),
            columns: named
                .map(|((name, kind), values)| (name, kind, values.get(first..).unwrap_or_default().to_vec()))
                .collect(),
        })
    }
}

/// For the schema: the columns as they are written.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Series")]
#[allow(dead_code, reason = "its fields are the schema's")]
pub struct SeriesSchema {
    /// `NAME@SNAPSHOT`.
    dataset: String,
    /// The symbol as the dataset calls it.
    symbol: String,
    /// The bar of each value.
    times: Vec<String>,
    /// By the name of the column: a value for each bar.
    columns: BTreeMap<String, Vec<CellSchema>>,
}

/// `{"dataset": ..., "symbol": ..., "times": [...], "columns": {NAME: [...]}}`.
impl Serialize for SeriesColumns {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Columns<'a>(&'a SeriesColumns);
        impl Serialize for Columns<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(Some(self.0.columns.len()))?;
                for (name, kind, values) in &self.0.columns {
                    let cells: Vec<Cell<'_>> = values.iter().map(|value| Cell { value: *value, kind }).collect();
                    map.serialize_entry(name, &cells)?;
                }
                map.end()
            }
        }
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry("dataset", &self.dataset)?;
        map.serialize_entry("symbol", &self.symbol)?;
        map.serialize_entry(
            "times",
            &self.times.iter().map(|time| format_label(*time, self.dated)).collect::<Vec<_>>(),
        )?;
        map.serialize_entry("columns", &Columns(self))?;
        map.end()
    }
}

impl SeriesColumns {
    /// As CSV: a row for each bar.
    ///
    /// # Errors
    /// None but for lack of memory.
    pub fn csv(&self) -> anyhow::Result<Vec<u8>> {
        let mut out = ::csv::Writer::from_writer(Vec::new());
        out.write_record(std::iter::once("time").chain(self.columns.iter().map(|(name, ..)| name.as_str())))?;
        for (row, time) in self.times.iter().enumerate() {
            out.write_field(format_label(*time, self.dated))?;
            for (_, kind, values) in &self.columns {
                let mut text = select_text(kind, values[row]).unwrap_or_default();
                if text.is_empty() && matches!(kind, ColumnKind::Number) {
                    crate::human::push_exact(&mut text, values[row]);
                }
                out.write_field(&text)?;
            }
            out.write_record(None::<&[u8]>)?;
        }
        Ok(out.into_inner().map_err(|error| error.into_error())?)
    }

    /// The columns as Arrow.
    fn batch(&self) -> anyhow::Result<RecordBatch> {
        let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let mut fields = vec![Field::new("time", time, false)];
        fields.extend(self.columns.iter().map(|(name, kind, _)| Field::new(name, select_type(kind), true)));
        let metadata = [("trawl.dataset", &self.dataset), ("trawl.symbol", &self.symbol)];
        let metadata = metadata.map(|(key, value)| (key.to_owned(), value.clone()));
        let schema = Schema::new(fields).with_metadata(arrow_schema::Metadata::from_iter(metadata));
        let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(self.times.clone()).with_timezone("UTC"));
        let values = self.columns.iter().map(|(_, kind, values)| select_array(kind, values.iter().copied()));
        Ok(RecordBatch::try_new(Arc::new(schema), std::iter::once(times).chain(values).collect())?)
    }

    /// As an Arrow IPC stream.
    ///
    /// # Errors
    /// None but for lack of memory.
    pub fn arrow_stream(&self) -> anyhow::Result<Vec<u8>> {
        let batch = self.batch()?;
        let mut stream = arrow_ipc::writer::StreamWriter::try_new(Vec::new(), &batch.schema())?;
        stream.write(&batch)?;
        Ok(stream.into_inner()?)
    }

    /// As Parquet.
    ///
    /// # Errors
    /// None but for lack of memory.
    pub fn parquet(&self) -> anyhow::Result<Vec<u8>> {
        let batch = self.batch()?;
        let mut file = parquet::arrow::ArrowWriter::try_new(Vec::new(), batch.schema(), None)?;
        file.write(&batch)?;
        Ok(file.into_inner()?)
    }
}

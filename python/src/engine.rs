//! The datasets of a data root, and importing into them.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use pyo3::prelude::*;
use serde::Deserialize;
use trawl_front::UserMistake;
use trawl_front::mistake::of_market;
use trawl_market::{
    AsOf, CacheOptions, Calendar, DateOrder, ImportFormat, ImportOptions, InspectOptions, ReadOptions, Store,
    SymbolPattern, Zone, import_files, inspect, now,
};
use trawl_worker::data_root;

use crate::arrow_c::Table;
use crate::failure::failure;
use crate::interruptible;
use crate::scan::{Scan, When};

/// What a frame is called in messages.
const FRAME: &str = "the frame";

/// The datasets of a data root.
#[pyclass(frozen, module = "trawl._native")]
#[derive(Debug)]
pub struct Engine {
    pub(crate) store: Store,
}

/// How an import reads, as `trawl data import` has it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Import {
    dataset: String,
    map: Vec<(String, String)>,
    columns: Option<Vec<String>>,
    format: Option<String>,
    tz: Option<String>,
    symbol_from: Option<String>,
    decimal_comma: bool,
    month_first: Option<bool>,
    timeframe: Option<String>,
    calendar: Option<String>,
    complete_to: Option<String>,
    factors: Option<PathBuf>,
    symbols: Option<PathBuf>,
    attributes: Option<PathBuf>,
    strict: bool,
}

impl Import {
    fn options(self, files: Vec<PathBuf>) -> Result<ImportOptions, UserMistake> {
        let format = match &self.format {
            Some(format) => format.parse().map_err(|_| {
                let help = format!("{} is expected", ImportFormat::names().join(", "));
                UserMistake::with_help(format!("format '{format}' is not known"), help)
            })?,
            None => ImportFormat::default(),
        };
        let plain = |what: &str, why: String| UserMistake::plain(format!("{what}: {why}"));
        let zone = self.tz.as_deref().map(Zone::named).transpose().map_err(|e| plain("tz", e.to_string()))?;
        let symbol_from = self.symbol_from.as_deref().map(str::parse::<SymbolPattern>).transpose();
        let timeframe = self.timeframe.as_deref().map(str::parse).transpose();
        let calendar = self.calendar.as_deref().map(Calendar::named).transpose();
        let complete_to = self.complete_to.as_deref().map(AsOf::parse).transpose();
        let order = |first: bool| if first { DateOrder::MonthFirst } else { DateOrder::DayFirst };
        Ok(ImportOptions {
            dataset: self.dataset,
            files,
            read: ReadOptions {
                format,
                columns: self.columns,
                map: self.map,
                date_order: self.month_first.map(order),
                decimal_comma: self.decimal_comma,
                zone,
                symbol_from: symbol_from.map_err(|e| plain("symbol_from", e.to_string()))?,
                ..ReadOptions::default()
            },
            timeframe: timeframe.map_err(|e| plain("timeframe", format!("{e}")))?,
            strict: self.strict,
            calendar: calendar.map_err(|e| plain("calendar", e.to_string()))?.map(|c| c.name().to_owned()),
            complete_to: complete_to.map_err(|e| UserMistake::with_help(format!("complete_to: {e}"), e.help))?,
            clock: Some(now()),
            factors: self.factors,
            symbols: self.symbols,
            attributes: self.attributes,
            ..ImportOptions::default()
        })
    }
}

#[pymethods]
impl Engine {
    /// The datasets at `root`, a directory or an address, and those that are in the wheel.
    #[new]
    fn new(py: Python<'_>, root: PathBuf, cache: PathBuf, cache_bytes: Option<u64>) -> PyResult<Self> {
        let bytes_max = cache_bytes.unwrap_or(data_root::DISK_CACHE_BYTES_DEFAULT);
        let options = CacheOptions::new(cache, bytes_max);
        // One in a bucket is asked for.
        match py.detach(|| data_root::open(&root, &options)) {
            Ok(store) => Ok(Self { store }),
            Err(error) => Err(failure(&UserMistake::plain(error.to_string()).into())),
        }
    }

    /// The datasets as JSON, as `trawl data list --json`.
    fn datasets(&self, py: Python<'_>) -> PyResult<String> {
        let list = py.detach(|| self.store.list()).map_err(|e| failure(&of_market(e)))?;
        text_of(&list)
    }

    /// A dataset as JSON, as `trawl data inspect --json`.
    #[pyo3(signature = (dataset, symbol=None, verify=false, quality=false))]
    fn inspect(
        &self,
        py: Python<'_>,
        dataset: &str,
        symbol: Option<&str>,
        verify: bool,
        quality: bool,
    ) -> PyResult<String> {
        let found = py.detach(|| {
            let dataset = self.store.open(dataset)?;
            inspect(&dataset, InspectOptions { symbol, verify, quality })
        });
        text_of(&found.map_err(|e| failure(&of_market(e)))?)
    }

    /// Name and snapshot of a dataset.
    fn open(&self, py: Python<'_>, dataset: &str) -> PyResult<(String, String)> {
        let opened = py.detach(|| self.store.open(dataset)).map_err(|e| failure(&of_market(e)))?;
        Ok((opened.manifest.name.clone(), opened.manifest.snapshot.clone()))
    }

    /// Symbols of a dataset, ascending.
    fn symbols(&self, py: Python<'_>, dataset: &str) -> PyResult<Vec<String>> {
        let opened = py.detach(|| self.store.open(dataset)).map_err(|e| failure(&of_market(e)))?;
        Ok(opened.manifest.symbols.iter().map(|entry| entry.symbol.clone()).collect())
    }

    /// Imports files, and a table if there is one; the report as JSON, as `trawl data import --json`.
    #[pyo3(signature = (options, files, table=None, tick=None))]
    fn import_(
        &self,
        py: Python<'_>,
        options: &str,
        files: Vec<PathBuf>,
        table: Option<&Bound<'_, PyAny>>,
        tick: Option<Py<PyAny>>,
    ) -> PyResult<String> {
        let wrong = |e: serde_json::Error| failure(&UserMistake::plain(format!("import: {e}")).into());
        let import: Import = serde_json::from_str(options).map_err(wrong)?;
        let mut options = import.options(files).map_err(|e| failure(&e.into()))?;
        let table = table.map(Table::of).transpose()?;
        let store = self.store.clone();
        let imported = interruptible::run(py, tick.as_ref(), move |_, _| -> anyhow::Result<_> {
            // The frame takes the way of every file, so that its rows are checked as those are.
            let folder = table.as_ref().map(|_| tempfile::tempdir()).transpose()?;
            if let (Some(table), Some(folder)) = (&table, &folder) {
                let path = folder.path().join("frame.arrow");
                let mut file =
                    arrow_ipc::writer::FileWriter::try_new(BufWriter::new(File::create(&path)?), &table.schema)?;
                table.batches.iter().try_for_each(|batch| file.write(batch))?;
                file.finish()?;
                options.shown.insert(path.clone(), FRAME.to_owned());
                options.files.push(path);
                options.strict = true;
            }
            import_files(&store, &options).map_err(of_market)
        })?;
        text_of(&imported.map_err(|error| failure(&error))?)
    }

    /// Opens and compiles a scan; `document` is JSON. `file` and `text` are the TOML document that it is from, `shown` is the document that
    /// its answer has, if that is another one.
    #[pyo3(signature = (document, as_of=None, file=None, text=None, shown=None))]
    fn prepare(
        &self,
        py: Python<'_>,
        document: &str,
        as_of: Option<When>,
        file: Option<String>,
        text: Option<String>,
        shown: Option<&str>,
    ) -> PyResult<Scan> {
        let prepared = || {
            let scan = Scan::new(&self.store, document, as_of.as_ref(), file.zip(text))?;
            match shown {
                Some(shown) => scan.shown_as(shown),
                None => Ok(scan),
            }
        };
        py.detach(prepared).map_err(|error| failure(&error))
    }
}

/// A value as JSON.
pub fn text_of(value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| failure(&error.into()))
}

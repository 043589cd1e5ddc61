//! `trawl.compute`: expressions over the columns of a frame.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef, BooleanArray, Float64Array, RecordBatch};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_schema::{Field, Schema};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};
use trawl_front::UserMistake;
use trawl_front::compute::{Compute, SymbolBars, Wording};
use trawl_front::mistake::of_market;
use trawl_front::run::CancelFlag;
use trawl_kernels::{Precision, advise_large_pages};
use trawl_market::{Calendar, Zone, check_times_without_zone};

use crate::arrow_c::{Numbers, Table, numbers_of};
use crate::failure::failure;
use crate::frame::{ROWS_AT_ONCE, Rows, rows_of};
use crate::interruptible;

const WORDING: Wording<'static> = Wording {
    clause: "exprs",
    table: "the frame",
    compare: "make it a dataset and scan it: trawl.panel(trawl.Dataset.from_polars(frame), select=[...])",
};

/// Numbers of a cache line: results begin at one, since strips of rows that cross lines would be written in parts.
const LINE: usize = 64 / size_of::<f64>();

/// Values that are computed on the calling thread: starting others would take longer, and so few need no Ctrl-C.
const INLINE_CELLS_MAX: usize = 1 << 17;

/// Expressions compiled over columns of these names.
#[pyclass(frozen, module = "trawl._native")]
#[derive(Debug)]
pub struct Expressions(Arc<Compute>);

#[pymethods]
impl Expressions {
    /// `copied` are names of columns that are beside the results.
    #[new]
    fn new(columns: Vec<String>, exprs: Vec<String>, copied: Vec<String>, precision: &str) -> PyResult<Self> {
        let wrong =
            || failure(&UserMistake::with_help(format!("precision '{precision}' is not known"), "f64 or f32").into());
        let precision = Precision::named(precision).ok_or_else(wrong)?;
        let copied: Vec<&str> = copied.iter().map(String::as_str).collect();
        let compute = Compute::new(columns, &exprs, &copied, precision, WORDING);
        Ok(Self(Arc::new(compute.map_err(|error| failure(&error.into()))?)))
    }

    /// Columns that are read.
    #[getter]
    fn needs(&self) -> Vec<String> {
        self.0.needs().map(str::to_owned).collect()
    }

    /// Whether times are read.
    #[getter]
    fn needs_times(&self) -> bool {
        self.0.needs_times()
    }

    /// Names of the results.
    #[getter]
    fn headings(&self) -> Vec<String> {
        self.0.headings().to_vec()
    }

    /// For each result whether it is a condition.
    #[getter]
    fn conditions(&self) -> Vec<bool> {
        self.0.conditions()
    }

    /// Computes the results: a table with a row for each row of `table`, in its order. `symbols` is its column of symbols, `time` that
    /// of times, `zone` that of times without one.
    #[pyo3(signature = (table, symbols, time, calendar, threads, nulls, zone=None))]
    #[expect(clippy::too_many_arguments, reason = "they are the keyword arguments of trawl.compute")]
    fn run(
        &self,
        py: Python<'_>,
        table: &Bound<'_, PyAny>,
        symbols: Option<String>,
        time: Option<String>,
        calendar: &str,
        threads: usize,
        nulls: bool,
        zone: Option<&str>,
    ) -> PyResult<Table> {
        let table = Table::of(table)?;
        let calendar = Calendar::named(calendar).map_err(|e| failure(&UserMistake::plain(e.to_string()).into()))?;
        let zone = zone.map(Zone::named).transpose();
        let zone = zone.map_err(|e| failure(&UserMistake::plain(format!("tz: {e}")).into()))?;
        let compute = Arc::clone(&self.0);
        if table.rows() * self.0.headings().len() <= INLINE_CELLS_MAX {
            let (named, how) = ((symbols.as_deref(), time.as_deref()), (1, nulls));
            let done = py.detach(|| computed(&compute, &table, named, (calendar, zone), how, &CancelFlag::default()));
            return done.map_err(|error| failure(&error));
        }
        let done = interruptible::run(py, None, move |cancel, _| {
            let named = (symbols.as_deref(), time.as_deref());
            computed(&compute, &table, named, (calendar, zone), (threads, nulls), cancel)
        })?;
        done.map_err(|error| failure(&error))
    }

    /// Computes the results of one symbol without times, from an array for each column; an array for each result.
    fn run_series(&self, py: Python<'_>, columns: Vec<Bound<'_, PyAny>>) -> PyResult<Vec<Numbers>> {
        let columns = columns.iter().map(numbers_of).collect::<PyResult<Vec<ScalarBuffer<f64>>>>()?;
        let rows = columns.first().map_or(0, |column| column.len());
        if columns.len() != self.0.columns().len() || columns.iter().any(|column| column.len() != rows) {
            return Err(PyValueError::new_err("an array of one length is expected for each column"));
        }
        let compute = Arc::clone(&self.0);
        let done = if rows * self.0.headings().len() <= INLINE_CELLS_MAX {
            py.detach(|| computed_alone(&compute, &columns, &CancelFlag::default()))
        } else {
            interruptible::run(py, None, move |cancel, _| computed_alone(&compute, &columns, cancel))?
        };
        Ok(done.map_err(|error| failure(&error))?.into_iter().map(Numbers::own).collect())
    }
}

/// Memory for the results of `height` rows, which begin at a cache line.
struct Output {
    values: Vec<f64>,
    begin: usize,
    height: usize,
}

impl Output {
    fn new(height: usize) -> Self {
        let mut values = vec![0.0; height + LINE - 1];
        advise_large_pages(&mut values);
        let at = values.as_ptr().addr() / size_of::<f64>();
        Self { values, begin: at.next_multiple_of(LINE) - at, height }
    }

    fn rows(&mut self) -> &mut [f64] {
        &mut self.values[self.begin..self.begin + self.height]
    }

    fn finished(self) -> ScalarBuffer<f64> {
        ScalarBuffer::new(Buffer::from_vec(self.values), self.begin, self.height)
    }
}

/// The results of one symbol of which nothing but these columns is known, in the order of the expressions.
fn computed_alone(
    compute: &Compute,
    columns: &[ScalarBuffer<f64>],
    cancel: &CancelFlag,
) -> anyhow::Result<Vec<ScalarBuffer<f64>>> {
    let rows = columns.first().map_or(0, |column| column.len());
    let bars = SymbolBars { name: "", rows, times: None, columns: columns.iter().map(|column| &column[..]).collect() };
    compute.check(std::slice::from_ref(&bars), WORDING)?;
    let mut outputs: Vec<Output> = compute.headings().iter().map(|_| Output::new(rows)).collect();
    let slots = outputs.iter_mut().map(Output::rows).collect();
    compute.evaluate(std::slice::from_ref(&bars), vec![slots], Calendar::XNYS, 1, cancel)?;
    Ok(outputs.into_iter().map(Output::finished).collect())
}

/// Computes, on all threads that it may have.
fn computed(
    compute: &Compute,
    table: &Table,
    (symbols, time): (Option<&str>, Option<&str>),
    (calendar, zone): (Calendar, Option<Zone>),
    (threads, nulls): (usize, bool),
    cancel: &CancelFlag,
) -> anyhow::Result<Table> {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = if threads == 0 { cores() } else { threads };
    let pool = (table.rows() > ROWS_AT_ONCE)
        .then(|| {
            let named = |i| format!("trawl-frame-{i}");
            rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(named).build()
        })
        .transpose()?;
    let rows = || rows_of(table, symbols, time, zone);
    let rows = pool.as_ref().map_or_else(rows, |pool| pool.install(rows))?;
    if let (true, true, Some(times)) = (compute.needs_times(), rows.without_zone, &rows.times) {
        check_times_without_zone(times, calendar).map_err(of_market)?;
    }
    let fields = table.schema.fields();
    let named = |name: &str| fields.iter().find(|field| field.name().to_lowercase() == name);
    let columns: HashMap<&str, Float64Array> = compute
        .needs()
        .filter_map(|name| Some((name, named(name)?)))
        .map(|(name, field)| Ok((name, rows.numbers(table, field.name())?)))
        .collect::<anyhow::Result<_>>()?;
    // Columns that no expression reads have no bars.
    let of = |name: &String| columns.get(name.as_str()).map_or(&[][..], |array| &array.values()[..]);
    let series: Vec<&[f64]> = compute.columns().iter().map(of).collect();
    let bars: Vec<SymbolBars<'_>> = rows
        .spans
        .iter()
        .map(|(name, span)| SymbolBars {
            name: name.as_str(),
            rows: span.len(),
            times: rows.times.as_ref().map(|times| &times[span.clone()]),
            columns: series.iter().map(|all| all.get(span.clone()).unwrap_or(&[])).collect(),
        })
        .collect();
    compute.check(&bars, WORDING)?;
    let height = rows.height;
    let headings = compute.headings();
    let mut outputs: Vec<Output> = headings.iter().map(|_| Output::new(height)).collect();
    let mut rests: Vec<&mut [f64]> = outputs.iter_mut().map(Output::rows).collect();
    let mut parts = Vec::with_capacity(bars.len());
    for of in &bars {
        let mut part = Vec::with_capacity(rests.len());
        for rest in &mut rests {
            let (now, later) = std::mem::take(rest).split_at_mut(of.rows);
            part.push(now);
            *rest = later;
        }
        parts.push(part);
    }
    let missing = compute.evaluate(&bars, parts, calendar, threads, cancel)?;
    drop(columns);
    let conditions = compute.conditions();
    let of = |(output, (values, condition)): (usize, (Output, bool))| {
        let values = values.finished();
        let runs = missing.runs(output).filter(|_| rows.is_in_frame_order());
        let known = || match runs {
            Some(runs) => rows.known(runs),
            None => known_of(&values),
        };
        let known = (nulls && !condition).then(known);
        finished(values, condition, &rows, known)
    };
    let columns: Vec<_> = outputs.into_iter().zip(conditions).enumerate().collect();
    let arrays: Vec<ArrayRef> = match &pool {
        Some(pool) => pool.install(|| columns.into_par_iter().map(of).collect()),
        None => columns.into_iter().map(of).collect(),
    };
    let made = headings.iter().zip(&arrays).map(|(name, array)| Field::new(name, array.data_type().clone(), true));
    let schema = Arc::new(Schema::new(made.collect::<Vec<_>>()));
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays)?;
    Ok(Table { schema, batches: vec![batch] })
}

/// Which values of the order by symbol are known.
fn known_of(values: &[f64]) -> BooleanBuffer {
    BooleanBuffer::collect_bool(values.len(), |i| !values[i].is_nan())
}

/// A result in the order of the frame's rows, with NA as null where it is said which values are known.
fn finished(values: ScalarBuffer<f64>, condition: bool, rows: &Rows, known: Option<BooleanBuffer>) -> ArrayRef {
    if condition {
        let values = rows.in_frame_order(values);
        let flags = BooleanBuffer::collect_bool(values.len(), |i| values[i] == 1.0);
        let known = NullBuffer::new(known_of(&values));
        return Arc::new(BooleanArray::new(flags, Some(known).filter(|known| known.null_count() > 0)));
    }
    let mixed = !rows.is_in_frame_order();
    let values = rows.in_frame_order(values);
    let known = known.map(|known| if mixed { known_of(&values) } else { known });
    let known = known.map(NullBuffer::new).filter(|known| known.null_count() > 0);
    Arc::new(Float64Array::new(values, known))
}

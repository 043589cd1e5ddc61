//! Parquet, and Arrow IPC as a file (also called Feather) or as a stream: typed columns. Everything that pandas, polars
//! and DuckDB write for texts, numbers and times is converted to one of five types.

use std::io::{BufReader, Cursor, Read, Seek};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal128Type, Float16Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, Time32MillisecondType, Time32SecondType, Time64MicrosecondType,
    Time64NanosecondType, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, Float64Array, Int64Array, NullArray, RecordBatch, StringArray, Time64MicrosecondArray,
    TimestampMicrosecondArray,
};
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::errors::ParquetError;
use parquet::file::reader::ChunkReader;

use super::{BarSource, Content, OpenOptions, Piece};
use crate::error::MarketError;
use crate::limits::{COLUMNS_MAX, SOURCE_BATCH_ROWS};
use crate::quarantine::shown;
use crate::reading::ImportFormat;

type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>;

#[derive(Clone, Copy)]
enum Kind {
    Parquet,
    ArrowFile,
    ArrowStream,
}

/// The content of a file of typed columns, which is read from several places.
#[derive(Clone)]
enum Stored {
    /// As it is on the disk.
    File(Content),
    Held(Bytes),
}

/// What is read from any place.
trait Seekable: Read + Seek + Send {}
impl<T: Read + Seek + Send> Seekable for T {}

/// A Parquet or Arrow file.
pub(super) struct Columnar {
    shown: String,
    stored: Stored,
    kind: Kind,
    format: ImportFormat,
    columns: Vec<String>,
    wanted: Vec<bool>,
    batches: Option<Batches>,
    rows_read: u64,
}

impl Columnar {
    pub(super) fn parquet(shown: &str, content: Content, options: OpenOptions<'_>) -> Result<Self, MarketError> {
        Self::open(shown, content, Kind::Parquet, options)
    }

    /// A file or a stream.
    pub(super) fn arrow(shown: &str, content: Content, options: OpenOptions<'_>) -> Result<Self, MarketError> {
        let mut start = Vec::new();
        let magic = b"ARROW1";
        content.reader()?.take(magic.len() as u64).read_to_end(&mut start).map_err(|e| content.failed(e))?;
        let kind = if start == magic { Kind::ArrowFile } else { Kind::ArrowStream };
        Self::open(shown, content, kind, options)
    }

    fn open(shown: &str, content: Content, kind: Kind, options: OpenOptions<'_>) -> Result<Self, MarketError> {
        let mut this = Self {
            shown: shown.to_owned(),
            stored: match content.is_plain_file() {
                true => Stored::File(content),
                false => Stored::Held(content.whole()?.into()),
            },
            kind,
            format: options.format,
            columns: Vec::new(),
            wanted: Vec::new(),
            batches: None,
            rows_read: 0,
        };
        let (schema, _) = this.reader(None)?;
        this.columns = schema.fields().iter().map(|f| f.name().clone()).collect();
        if let Some(names) = options.columns {
            if names.len() != this.columns.len() {
                let why = format!("it has {} columns, but --columns names {}", this.columns.len(), names.len());
                return Err(this.bad(why));
            }
            this.columns = names.to_vec();
        }
        if this.columns.iter().any(|name| name.starts_with("('")) {
            let why = format!("its columns have two names each, such as {}", this.columns[0]);
            let expected = "one row for each symbol and time: pandas' stack(level='Ticker', future_stack=True) \
                            makes them";
            return Err(MarketError::BadCsv { file: this.shown, why, expected: expected.to_owned() });
        }
        if this.columns.len() > COLUMNS_MAX {
            let what = format!("columns of {shown}");
            return Err(MarketError::Limit { what, found: this.columns.len() as u64, limit: COLUMNS_MAX as u64 });
        }
        this.wanted = vec![true; this.columns.len()];
        Ok(this)
    }

    fn bad(&self, why: String) -> MarketError {
        let expected = "a whole Parquet or Arrow file".to_owned();
        MarketError::BadCsv { file: self.shown.clone(), why, expected }
    }

    /// The schema of the file, and batches of the requested columns.
    fn reader(&self, wanted: Option<&[bool]>) -> Result<(SchemaRef, Batches), MarketError> {
        let unreadable = |e: ArrowError| self.bad(format!("it cannot be read: {e}"));
        let chosen = |wanted: &[bool]| wanted.iter().zip(0..).filter(|(w, _)| **w).map(|(_, i)| i).collect();
        let indices: Option<Vec<usize>> = wanted.map(chosen);
        Ok(match self.kind {
            Kind::Parquet => match &self.stored {
                Stored::Held(bytes) => self.parquet_batches(bytes.clone(), indices)?,
                Stored::File(content) => self.parquet_batches(content.plain_file()?, indices)?,
            },
            Kind::ArrowFile => {
                let schema = FileReader::try_new(self.seekable()?, None).map_err(unreadable)?.schema();
                let batches = FileReader::try_new(self.seekable()?, indices).map_err(unreadable)?;
                (schema, Box::new(batches))
            }
            Kind::ArrowStream => {
                let schema = StreamReader::try_new(self.seekable()?, None).map_err(unreadable)?.schema();
                let batches = StreamReader::try_new(self.seekable()?, indices).map_err(unreadable)?;
                (schema, Box::new(batches))
            }
        })
    }

    fn seekable(&self) -> Result<Box<dyn Seekable>, MarketError> {
        Ok(match &self.stored {
            Stored::Held(bytes) => Box::new(Cursor::new(bytes.clone())),
            Stored::File(content) => Box::new(BufReader::new(content.plain_file()?)),
        })
    }

    fn parquet_batches(
        &self,
        stored: impl ChunkReader + 'static,
        indices: Option<Vec<usize>>,
    ) -> Result<(SchemaRef, Batches), MarketError> {
        let unreadable = |e: ParquetError| self.bad(format!("it cannot be read: {e}"));
        let mut builder = ParquetRecordBatchReaderBuilder::try_new(stored).map_err(unreadable)?;
        let schema = Arc::clone(builder.schema());
        if let Some(indices) = indices {
            let mask = ProjectionMask::roots(builder.parquet_schema(), indices);
            builder = builder.with_projection(mask);
        }
        let batches = builder.with_batch_size(SOURCE_BATCH_ROWS).build().map_err(unreadable)?;
        Ok((schema, Box::new(batches)))
    }
}

impl Columnar {
    /// The next rows with the number of the first; `None` at the end.
    fn next_rows(&mut self) -> Result<Option<(u64, RecordBatch)>, MarketError> {
        let mut batches = match self.batches.take() {
            Some(batches) => batches,
            None => self.reader(Some(&self.wanted))?.1,
        };
        let Some(next) = batches.next() else { return Ok(None) };
        let next = next.map_err(|e| self.bad(format!("it cannot be read: {e}")))?;
        self.batches = Some(batches);
        let mut read = next.columns().iter();
        let rows = next.num_rows();
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.columns.len());
        for wanted in &self.wanted {
            let array = if *wanted { read.next() } else { None };
            arrays.push(array.and_then(plain).unwrap_or_else(|| Arc::new(NullArray::new(rows))));
        }
        let fields: Vec<Field> =
            self.columns.iter().zip(&arrays).map(|(n, a)| Field::new(n, a.data_type().clone(), true)).collect();
        let rows = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).map_err(|e| self.bad(e.to_string()))?;
        let first = self.rows_read + 1;
        self.rows_read += rows.num_rows() as u64;
        Ok(Some((first, rows)))
    }
}

impl BarSource for Columnar {
    fn columns(&self) -> &[String] {
        &self.columns
    }

    fn format(&self) -> ImportFormat {
        match self.format {
            ImportFormat::Auto => ImportFormat::of_header(&self.columns),
            given => given,
        }
    }

    fn kind(&self) -> &'static str {
        match self.kind {
            Kind::Parquet => "parquet",
            Kind::ArrowFile | Kind::ArrowStream => "arrow",
        }
    }

    fn want(&mut self, wanted: Vec<bool>) {
        self.wanted = wanted;
    }

    fn next_piece(&mut self, _: usize) -> Result<Option<Piece>, MarketError> {
        let next = self.next_rows()?;
        Ok(next.map(|(first, rows)| Piece::Rows(first, rows)))
    }

    fn rewind(&mut self) {
        (self.batches, self.rows_read) = (None, 0);
    }

    fn raw(&self, lines: &[u64]) -> Result<Vec<String>, MarketError> {
        let mut again = Self {
            shown: self.shown.clone(),
            stored: self.stored.clone(),
            columns: self.columns.clone(),
            wanted: vec![true; self.columns.len()],
            batches: None,
            rows_read: 0,
            ..*self
        };
        let mut rows = Vec::with_capacity(lines.len());
        let mut wanted = lines.iter().peekable();
        while wanted.peek().is_some() {
            let Some((first, batch)) = again.next_rows()? else { break };
            while let Some(line) = wanted.next_if(|line| **line < first + batch.num_rows() as u64) {
                let row = usize::try_from(line.saturating_sub(first)).unwrap_or(usize::MAX);
                let cells: Vec<String> = batch.columns().iter().map(|a| cell(a, row)).collect();
                rows.push(shown(cells.join(",").as_bytes()));
            }
        }
        rows.resize(lines.len(), String::new());
        Ok(rows)
    }
}

/// A cell as text, for the quarantine.
fn cell(array: &ArrayRef, row: usize) -> String {
    if row >= array.len() || array.is_null(row) {
        return String::new();
    }
    if let Some(text) = array.as_string_opt::<i32>() {
        return text.value(row).to_owned();
    }
    if let Some(values) = array.as_primitive_opt::<Float64Type>() {
        return values.value(row).to_string();
    }
    if let Some(values) = array.as_primitive_opt::<Int64Type>() {
        return values.value(row).to_string();
    }
    if let Some(values) = array.as_primitive_opt::<Time64MicrosecondType>() {
        return crate::time::format_of_day(values.value(row));
    }
    let times = array.as_primitive_opt::<TimestampMicrosecondType>();
    times.map_or_else(String::new, |t| crate::time::format_time(t.value(row)))
}

fn floats<T: ArrowPrimitiveType>(array: &ArrayRef, to: impl Fn(T::Native) -> f64) -> Option<ArrayRef> {
    let values: Float64Array = array.as_primitive_opt::<T>()?.iter().map(|v| v.map(&to)).collect();
    Some(Arc::new(values))
}

fn wholes<T: ArrowPrimitiveType>(array: &ArrayRef) -> Option<ArrayRef>
where
    T::Native: Into<i64>,
{
    let values: Int64Array = array.as_primitive_opt::<T>()?.iter().map(|v| v.map(Into::into)).collect();
    Some(Arc::new(values))
}

fn stamps<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    zone: Option<&Arc<str>>,
    to: impl Fn(T::Native) -> i64,
) -> Option<ArrayRef> {
    let micros: TimestampMicrosecondArray = array.as_primitive_opt::<T>()?.iter().map(|v| v.map(&to)).collect();
    Some(Arc::new(micros.with_timezone_opt(zone.cloned())))
}

fn clocks<T: ArrowPrimitiveType>(array: &ArrayRef, to: impl Fn(T::Native) -> i64) -> Option<ArrayRef> {
    let micros: Time64MicrosecondArray = array.as_primitive_opt::<T>()?.iter().map(|v| v.map(&to)).collect();
    Some(Arc::new(micros))
}

/// One of the five types of a [`Batch`]; `None` for a type that cannot be converted.
fn plain(array: &ArrayRef) -> Option<ArrayRef> {
    const DAY: i64 = crate::time::DAY;
    match array.data_type() {
        DataType::Utf8 | DataType::Int64 | DataType::Float64 => Some(Arc::clone(array)),
        DataType::LargeUtf8 => Some(Arc::new(array.as_string::<i64>().iter().collect::<StringArray>())),
        DataType::Utf8View => Some(Arc::new(array.as_string_view().iter().collect::<StringArray>())),
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary_opt()?;
            let values = plain(dictionary.values())?;
            // No keys are normalised where there are no values: all rows are NA.
            let keys = if values.is_empty() { vec![0; array.len()] } else { dictionary.normalized_keys() };
            let known = |(row, key): (usize, &usize)| {
                (array.is_valid(row) && *key < values.len() && values.is_valid(*key)).then_some(*key)
            };
            let keys = keys.iter().enumerate().map(known);
            Some(match values.data_type() {
                DataType::Utf8 => {
                    let texts = values.as_string::<i32>();
                    Arc::new(keys.map(|key| key.map(|key| texts.value(key))).collect::<StringArray>())
                }
                DataType::Int64 => {
                    let whole = values.as_primitive::<Int64Type>();
                    Arc::new(keys.map(|key| key.map(|key| whole.value(key))).collect::<Int64Array>())
                }
                DataType::Float64 => {
                    let numbers = values.as_primitive::<Float64Type>();
                    Arc::new(keys.map(|key| key.map(|key| numbers.value(key))).collect::<Float64Array>())
                }
                _ => return None,
            })
        }
        DataType::Boolean => {
            let values = array.as_boolean().iter().map(|v| v.map(|b| f64::from(u8::from(b))));
            Some(Arc::new(values.collect::<Float64Array>()))
        }
        DataType::Float16 => floats::<Float16Type>(array, |v| v.to_f64()),
        DataType::Float32 => floats::<Float32Type>(array, f64::from),
        DataType::Int8 => wholes::<Int8Type>(array),
        DataType::Int16 => wholes::<Int16Type>(array),
        DataType::Int32 => wholes::<Int32Type>(array),
        DataType::UInt8 => wholes::<UInt8Type>(array),
        DataType::UInt16 => wholes::<UInt16Type>(array),
        DataType::UInt32 => wholes::<UInt32Type>(array),
        DataType::UInt64 => floats::<UInt64Type>(array, |v| v as f64),
        DataType::Decimal128(..) => {
            let values = array.as_primitive_opt::<Decimal128Type>()?;
            // Parsed from its digits, which give the nearest number; a division would round twice.
            let number = |row| values.is_valid(row).then(|| values.value_as_string(row).parse().unwrap_or(f64::NAN));
            Some(Arc::new((0..values.len()).map(number).collect::<Float64Array>()))
        }
        DataType::Date32 => stamps::<Date32Type>(array, None, |days| i64::from(days).saturating_mul(DAY)),
        DataType::Date64 => stamps::<Date64Type>(array, None, |ms| ms.saturating_mul(1_000)),
        DataType::Time32(TimeUnit::Second) => clocks::<Time32SecondType>(array, |t| i64::from(t) * 1_000_000),
        DataType::Time32(_) => clocks::<Time32MillisecondType>(array, |t| i64::from(t) * 1_000),
        DataType::Time64(TimeUnit::Nanosecond) => clocks::<Time64NanosecondType>(array, |t| t.div_euclid(1_000)),
        DataType::Time64(_) => clocks::<Time64MicrosecondType>(array, |t| t),
        DataType::Timestamp(unit, zone) => {
            let zone = zone.as_ref();
            match unit {
                TimeUnit::Second => stamps::<TimestampSecondType>(array, zone, |t| t.saturating_mul(1_000_000)),
                TimeUnit::Millisecond => stamps::<TimestampMillisecondType>(array, zone, |t| t.saturating_mul(1_000)),
                TimeUnit::Microsecond => stamps::<TimestampMicrosecondType>(array, zone, |t| t),
                TimeUnit::Nanosecond => stamps::<TimestampNanosecondType>(array, zone, |t| t.div_euclid(1_000)),
            }
        }
        _ => None,
    }
}

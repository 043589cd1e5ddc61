//! The Arrow IPC files of a snapshot: bars of a group, and the distinct times.
//!
//! A group's file has the columns `symbol` (dictionary of utf8), `time` (timestamp in microseconds, UTC) and one
//! float64 per numeric column; rows sorted by (symbol, time); no nulls, a missing number is NaN. The same bars are
//! always the same bytes: no metadata, no compression, fixed batches.

use std::io::Cursor;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Float64Array, Int32Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow_ipc::reader::FileReader;
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema, TimeUnit};

use crate::limits::BATCH_ROWS_MAX;
use crate::time::TimeMicros;

const SYMBOL: &str = "symbol";
const TIME: &str = "time";

/// One symbol's bars, columns in the requested order; times strictly increasing.
#[derive(Debug, Clone, PartialEq)]
pub struct SymbolBars {
    /// As in the manifest.
    pub symbol: Arc<str>,
    /// One per bar.
    pub times: Vec<TimeMicros>,
    /// One vector per column, one value per bar; NaN where missing.
    pub columns: Vec<Vec<f64>>,
}

fn time_field() -> Field {
    Field::new(TIME, DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), false)
}

/// Writes the bars of a group, symbols in the order given.
pub(crate) fn encode_group(columns: &[String], bars: &[SymbolBars]) -> Result<Vec<u8>, ArrowError> {
    let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let mut fields = vec![Field::new(SYMBOL, dictionary, false), time_field()];
    fields.extend(columns.iter().map(|c| Field::new(c, DataType::Float64, false)));
    let rows: usize = bars.iter().map(|b| b.times.len()).sum();
    let names: ArrayRef = Arc::new(StringArray::from_iter_values(bars.iter().map(|b| &*b.symbol)));
    let mut keys = Vec::with_capacity(rows);
    let mut times = Vec::with_capacity(rows);
    for (key, b) in (0i32..).zip(bars) {
        keys.resize(keys.len() + b.times.len(), key);
        times.extend_from_slice(&b.times);
    }
    let keys = DictionaryArray::<Int32Type>::try_new(Int32Array::from(keys), names)?;
    let mut arrays: Vec<ArrayRef> =
        vec![Arc::new(keys), Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC"))];
    for c in 0..columns.len() {
        let mut values = Vec::with_capacity(rows);
        for b in bars {
            values.extend_from_slice(&b.columns[c]);
        }
        arrays.push(Arc::new(Float64Array::from(values)));
    }
    encode(Schema::new(fields), arrays)
}

/// Writes the distinct times.
pub(crate) fn encode_times(times: Vec<TimeMicros>) -> Result<Vec<u8>, ArrowError> {
    let array = TimestampMicrosecondArray::from(times).with_timezone("UTC");
    encode(Schema::new(vec![time_field()]), vec![Arc::new(array)])
}

fn encode(schema: Schema, arrays: Vec<ArrayRef>) -> Result<Vec<u8>, ArrowError> {
    let batch = RecordBatch::try_new(Arc::new(schema), arrays)?;
    let mut bytes = Vec::new();
    let mut writer = FileWriter::try_new(&mut bytes, &batch.schema())?;
    for start in (0..batch.num_rows()).step_by(BATCH_ROWS_MAX) {
        writer.write(&batch.slice(start, BATCH_ROWS_MAX.min(batch.num_rows() - start)))?;
    }
    writer.finish()?;
    drop(writer);
    Ok(bytes)
}

/// The result of [`decode`]: the times and the requested columns, one symbol after the other.
pub(crate) struct Decoded {
    pub times: Vec<TimeMicros>,
    pub columns: Vec<Vec<f64>>,
}

/// Decodes the times and some columns; the other columns are skipped. The error says what is wrong with the bytes.
pub(crate) fn decode(bytes: &[u8], columns: &[String]) -> Result<Decoded, String> {
    let message = |e: ArrowError| e.to_string();
    let schema = FileReader::try_new(Cursor::new(bytes), None).map_err(message)?.schema();
    let index = |name: &str| schema.index_of(name).map_err(|_| format!("it has no column '{name}'"));
    let mut projection = vec![index(TIME)?];
    for column in columns {
        projection.push(index(column)?);
    }
    projection.sort_unstable();
    projection.dedup();
    let reader = FileReader::try_new(Cursor::new(bytes), Some(projection)).map_err(message)?;
    let mut decoded = Decoded { times: Vec::new(), columns: vec![Vec::new(); columns.len()] };
    for batch in reader {
        let batch = batch.map_err(message)?;
        let times = column_of::<TimestampMicrosecondArray>(&batch, TIME)?;
        decoded.times.extend_from_slice(times.values());
        for (values, name) in decoded.columns.iter_mut().zip(columns) {
            values.extend_from_slice(column_of::<Float64Array>(&batch, name)?.values());
        }
    }
    Ok(decoded)
}

fn column_of<'a, T: Array + 'static>(batch: &'a RecordBatch, name: &str) -> Result<&'a T, String> {
    let column = batch.column_by_name(name).ok_or_else(|| format!("it has no column '{name}'"))?;
    if column.null_count() > 0 {
        return Err(format!("its column '{name}' has nulls"));
    }
    column.as_any().downcast_ref().ok_or_else(|| format!("its column '{name}' has type {}", column.data_type()))
}

//! The Arrow IPC files of a snapshot: bars of a group, and the distinct times.
//!
//! A group's file has the columns `symbol` (dictionary of utf8), `time` (timestamp in microseconds, UTC) and one
//! float64 per numeric column; rows sorted by (symbol, time); no nulls, a missing number is NaN. The same bars are
//! always the same bytes: no metadata, no compression, fixed batches.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, TimestampMicrosecondArray};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema, TimeUnit};

use zerocopy::IntoBytes as _;

use crate::limits::BATCH_ROWS_MAX;
use crate::series::{Series, VALUE_BYTES, Value};
use crate::time::TimeMicros;

const SYMBOL: &str = "symbol";
/// The column of times.
pub(crate) const TIME: &str = "time";

/// One symbol's bars that are being made; times strictly increasing.
#[derive(Debug, Clone, PartialEq)]
pub struct SymbolBars {
    /// As in the manifest.
    pub symbol: Arc<str>,
    /// One per bar.
    pub times: Vec<TimeMicros>,
    /// One vector per column, one value per bar; NaN where missing.
    pub columns: Vec<Vec<f64>>,
}

/// One symbol's bars as they were loaded, columns in the requested order; times strictly increasing. Shares its values
/// with the other symbols of its group.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedBars {
    /// As in the manifest.
    pub symbol: Arc<str>,
    /// One per bar.
    pub times: Series<TimeMicros>,
    /// One series per column, one value per bar; NaN where missing.
    pub columns: Vec<Series<f64>>,
    /// Number of bars at the beginning that were not read: their times are zeros, their values arbitrary.
    pub unread: usize,
    /// Number of bars at the beginning whose times are zeros; at least [`Self::unread`].
    pub untimed: usize,
}

impl From<SymbolBars> for LoadedBars {
    fn from(bars: SymbolBars) -> Self {
        let columns = bars.columns.into_iter().map(Series::from).collect();
        Self { symbol: bars.symbol, times: bars.times.into(), columns, unread: 0, untimed: 0 }
    }
}

impl From<LoadedBars> for SymbolBars {
    fn from(bars: LoadedBars) -> Self {
        let columns = bars.columns.iter().map(|column| column.to_vec()).collect();
        Self { symbol: bars.symbol, times: bars.times.to_vec(), columns }
    }
}

fn time_field() -> Field {
    Field::new(TIME, DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), false)
}

/// The columns of a group's file.
pub(crate) fn group_schema(columns: &[String]) -> Schema {
    let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let mut fields = vec![Field::new(SYMBOL, dictionary, false), time_field()];
    fields.extend(columns.iter().map(|c| Field::new(c, DataType::Float64, false)));
    Schema::new(fields)
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

/// Where the values of a column are in a file: as many bytes in a row as the segment has rows of eight bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ColumnPlace {
    /// `time`, or a numeric column.
    pub name: String,
    /// Offset in the file, and number of rows; in order of the rows.
    pub segments: Vec<(u64, u64)>,
}

impl ColumnPlace {
    /// All rows.
    pub fn rows(&self) -> u64 {
        self.segments.iter().fold(0, |sum, (_, rows)| sum.saturating_add(*rows))
    }

    /// Ranges of bytes in the file that contain a range of rows.
    pub fn bytes_of(&self, rows: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let mut first = 0;
        self.segments.iter().filter_map(move |&(offset, count)| {
            let (from, to) = (rows.start.max(first), rows.end.min(first + count));
            let range = (from < to).then(|| offset + (from - first) * VALUE_BYTES..offset + (to - first) * VALUE_BYTES);
            first += count;
            range
        })
    }

    /// Copies a range of rows from the content of the file.
    pub fn copy<T: Value>(&self, bytes: &[u8], rows: Range<u64>, to: &mut [T]) -> Result<(), String> {
        let mut rest = to.as_mut_bytes();
        for range in self.bytes_of(rows) {
            let from = bytes.get(range.start as usize..range.end as usize).ok_or("it is too short")?;
            let (part, behind) = rest.split_at_mut_checked(from.len()).ok_or("it has too many rows")?;
            part.copy_from_slice(from);
            rest = behind;
        }
        in_own_order(to);
        Ok(())
    }
}

/// Converts values as read from a file to the byte order of this machine.
pub(crate) fn in_own_order<T: Value>(values: &mut [T]) {
    if cfg!(target_endian = "big") {
        values.iter_mut().for_each(|value| *value = value.in_native_order());
    }
}

/// Finds the times and the numeric columns in the content of a file that `group_writer` wrote. The error says what is wrong
/// with the bytes; every range that is returned is inside them.
pub(crate) fn places(bytes: &[u8]) -> Result<Vec<ColumnPlace>, String> {
    places_in(bytes.len() as u64, |from, length| bytes.get(from as usize..(from + length) as usize))
}

/// The same for a file of `bytes` bytes, parts of which are read: their offset and length lie inside it.
pub(crate) fn places_in<P: AsRef<[u8]>>(
    bytes: u64,
    read: impl FnMut(u64, u64) -> Option<P>,
) -> Result<Vec<ColumnPlace>, String> {
    const TRAILER: u64 = 10;
    const ENDING: &[u8] = b"ARROW1";
    let mut read = read;
    let short = || "it is too short".to_owned();
    let inside = |offset: i64, length: i64| {
        let (from, length) = (u64::try_from(offset).ok()?, u64::try_from(length).ok()?);
        (from.checked_add(length)? <= bytes).then_some((from, length))
    };
    let mut at = |offset: i64, length: i64| inside(offset, length).and_then(|(from, length)| read(from, length));
    let start = bytes.checked_sub(TRAILER).ok_or_else(short)? as i64;
    let trailer = at(start, TRAILER as i64).ok_or_else(short)?;
    let (length, ending) = trailer.as_ref().split_first_chunk::<4>().ok_or_else(short)?;
    if ending != ENDING {
        return Err("it does not end as an Arrow file".to_owned());
    }
    let length = i64::from(i32::from_le_bytes(*length));
    let footer = at(start - length, length).ok_or_else(short)?;
    let footer = arrow_ipc::root_as_footer(footer.as_ref()).map_err(|e| e.to_string())?;
    let schema =
        arrow_ipc::convert::try_fb_to_schema(footer.schema().ok_or("it has no schema")?).map_err(|e| e.to_string())?;
    let mut places = Vec::new();
    for (index, field) in schema.fields().iter().enumerate() {
        match field.data_type() {
            DataType::Dictionary(..) => continue,
            DataType::Float64 | DataType::Timestamp(TimeUnit::Microsecond, _) => {}
            other => return Err(format!("its column '{}' has type {other}", field.name())),
        }
        places.push((index, ColumnPlace { name: field.name().clone(), segments: Vec::new() }));
    }
    for block in footer.recordBatches().iter().flatten() {
        let head = at(block.offset(), i64::from(block.metaDataLength())).ok_or_else(short)?;
        // A mark and the length of the message come first.
        let message =
            arrow_ipc::root_as_message(head.as_ref().get(8..).ok_or_else(short)?).map_err(|e| e.to_string())?;
        let batch = message.header_as_record_batch().ok_or("it has a block that is no record batch")?;
        let (Some(nodes), Some(buffers), None) = (batch.nodes(), batch.buffers(), batch.compression()) else {
            return Err("it is compressed, or has no buffers".to_owned());
        };
        // Each field has two buffers, its nulls and its values.
        if nodes.len() != schema.fields().len() || buffers.len() != 2 * schema.fields().len() {
            return Err("its columns are not as they were written".to_owned());
        }
        let body = block.offset() + i64::from(block.metaDataLength());
        for (index, place) in &mut places {
            let (node, values) = (nodes.get(*index), buffers.get(2 * *index + 1));
            if node.null_count() > 0 {
                return Err(format!("its column '{}' has nulls", place.name));
            }
            let offset = body.checked_add(values.offset()).ok_or_else(short)?;
            let length = node.length().checked_mul(VALUE_BYTES as i64).ok_or_else(short)?;
            inside(offset, length).ok_or_else(short)?;
            place.segments.push((offset as u64, node.length() as u64));
        }
    }
    Ok(places.into_iter().map(|(_, place)| place).collect())
}

/// The times of a file of distinct times.
pub(crate) fn decode_times(bytes: &[u8]) -> Result<Vec<TimeMicros>, String> {
    let places = places(bytes)?;
    let place = places.iter().find(|place| place.name == TIME).ok_or_else(|| format!("it has no column '{TIME}'"))?;
    let mut times = vec![0; place.rows() as usize];
    place.copy(bytes, 0..place.rows(), &mut times)?;
    Ok(times)
}

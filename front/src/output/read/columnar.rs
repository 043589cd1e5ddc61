//! Answers in Arrow IPC and Parquet files.
//!
//! Both are read from memory, where every offset of a damaged file is checked against the length. Columns of types that
//! an answer never has are refused before any of their bytes is read.

use std::collections::HashMap;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    Date32Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType, UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::reader::{FileDecoder, read_footer_length};
use arrow_schema::{DataType, Schema, SchemaRef, TimeUnit};
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use trawl_market::format_time;

use super::{AboutRead, AnswerTable, Builder, Cell, Damage};
use crate::output::{DAY_US, DIGEST_KEY, IDENTITY_KEY, SCAN_KEY};

/// Rows decoded at once from a Parquet file.
const BATCH_ROWS: usize = 8192;
/// Bytes at the end of an Arrow file: the footer's length and the magic.
const ARROW_TRAILER_BYTES: usize = 10;

fn unreadable(what: &str) -> Damage {
    Damage::new(format!("it is not a {what} file, or it is truncated or damaged"))
}

/// The answer in an Arrow IPC file.
pub fn arrow(bytes: Vec<u8>) -> Result<AnswerTable, Damage> {
    let damage = || unreadable("Arrow");
    let file = Buffer::from_vec(bytes);
    let trailer = file.len().checked_sub(ARROW_TRAILER_BYTES).ok_or_else(damage)?;
    let length = file[trailer..].try_into().map_err(|_| damage())?;
    let length = read_footer_length(length).map_err(|_| damage())?;
    let start = trailer.checked_sub(length).ok_or_else(damage)?;
    let footer = arrow_ipc::root_as_footer(&file[start..trailer]).map_err(|_| damage())?;
    let schema = arrow_ipc::convert::try_fb_to_schema(footer.schema().ok_or_else(damage)?).map_err(|_| damage())?;
    let mut columns = Columns::new(&schema)?;
    let decoder = FileDecoder::new(SchemaRef::new(schema), footer.version());
    for block in footer.recordBatches().iter().flatten() {
        let (head, body) = (usize::try_from(block.metaDataLength()), usize::try_from(block.bodyLength()));
        let (Ok(offset), Ok(head), Ok(body)) = (usize::try_from(block.offset()), head, body) else {
            return Err(damage());
        };
        let length = head.checked_add(body).ok_or_else(damage)?;
        if offset.checked_add(length).is_none_or(|end| end > file.len()) {
            return Err(damage());
        }
        let data = file.slice_with_length(offset, length);
        let batch = decoder.read_record_batch(block, &data).map_err(|_| damage())?;
        columns.push(&batch.ok_or_else(damage)?)?;
    }
    columns.finish()
}

/// The answer in a Parquet file.
pub fn parquet(bytes: Vec<u8>) -> Result<AnswerTable, Damage> {
    let damage = || unreadable("Parquet");
    let builder = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(bytes)).map_err(|_| damage())?;
    let mut columns = Columns::new(builder.schema())?;
    for batch in builder.with_batch_size(BATCH_ROWS).build().map_err(|_| damage())? {
        columns.push(&batch.map_err(|_| damage())?)?;
    }
    columns.finish()
}

/// Rows gathered from record batches.
struct Columns {
    builder: Builder,
    about: AboutRead,
    cells: Vec<Cell>,
}

impl Columns {
    fn new(schema: &Schema) -> Result<Self, Damage> {
        let names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
        let builder = Builder::new(&names, None)?;
        let readable = |kind: &DataType| {
            use DataType::{Boolean, Date32, Float64, Int32, Int64, Timestamp, UInt32, UInt64, Utf8};
            matches!(kind, Boolean | Date32 | Float64 | Int32 | Int64 | UInt32 | UInt64 | Utf8)
                || matches!(kind, Timestamp(TimeUnit::Microsecond, Some(zone)) if &**zone == "UTC")
        };
        if let Some(strange) = schema.fields().iter().find(|field| !readable(field.data_type())) {
            let why = format!(
                "its column '{}' is of type {}, which an answer never has",
                strange.name(),
                strange.data_type()
            );
            return Err(Damage::new(why));
        }
        let pairs: HashMap<&str, &str> =
            schema.metadata().iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let Some(identity) = pairs.get(IDENTITY_KEY) else {
            return Err(Damage::new(format!("it is not an answer of a scan: its metadata lack '{IDENTITY_KEY}'")));
        };
        let identity = serde_json::from_str(identity).map_err(|_| Damage::new("its identity is damaged"))?;
        let digest = pairs.get(DIGEST_KEY).map(|&text| text.to_owned());
        let scan = pairs.get(SCAN_KEY).and_then(|scan| serde_json::from_str(scan).ok());
        let about = AboutRead { identity: Some(identity), answer_digest: digest, scan, ..AboutRead::default() };
        Ok(Self { builder, about, cells: Vec::new() })
    }

    fn push(&mut self, batch: &RecordBatch) -> Result<(), Damage> {
        for i in 0..batch.num_rows() {
            self.cells.clear();
            self.cells.extend(batch.columns().iter().map(|column| cell(column.as_ref(), i)));
            let row = self.builder.table.rows.len() + 1;
            self.builder.push(&mut self.cells).map_err(|why| Damage::at(format!("row {row}"), why))?;
        }
        Ok(())
    }

    fn finish(self) -> Result<AnswerTable, Damage> {
        self.builder.finish(Some(self.about))
    }
}

fn cell(column: &dyn Array, i: usize) -> Cell {
    if column.is_null(i) {
        return Cell::Empty;
    }
    match column.data_type() {
        DataType::Utf8 => Cell::Text(column.as_string::<i32>().value(i).to_owned()),
        DataType::Date32 => {
            let days = column.as_primitive::<Date32Type>().value(i);
            Cell::Text(format_time(i64::from(days).saturating_mul(DAY_US)))
        }
        DataType::Boolean => Cell::Bool(column.as_boolean().value(i)),
        DataType::Float64 => Cell::Number(column.as_primitive::<Float64Type>().value(i)),
        DataType::UInt32 => Cell::Number(f64::from(column.as_primitive::<UInt32Type>().value(i))),
        DataType::Int32 => Cell::Number(f64::from(column.as_primitive::<Int32Type>().value(i))),
        DataType::Int64 => Cell::Number(column.as_primitive::<Int64Type>().value(i) as f64),
        DataType::Timestamp(..) => Cell::Text(format_time(column.as_primitive::<TimestampMicrosecondType>().value(i))),
        DataType::UInt64 => Cell::Number(column.as_primitive::<UInt64Type>().value(i) as f64),
        _ => Cell::Empty,
    }
}

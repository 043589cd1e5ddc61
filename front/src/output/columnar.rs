//! The answer as Arrow IPC and Parquet files, with the identity in the schema's metadata.
//!
//! Columns: `time` (microseconds, UTC), the sweep's variables (text, i64 where all values are whole, else f64), `place` (u32,
//! null without one), `symbol`, `status` (text), `edge`, `provisional` (boolean), `reason` (text), then each select column
//! (boolean for a condition, text for a label, a date for a dated attribute, else f64; null for NA). No compression: any reader
//! opens them, and answers are small.

use std::io::Write;
use std::sync::Arc;

use anyhow::Context as _;
use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
    UInt32Array,
};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use trawl_plan::{ANSWER_COLUMNS, ANSWER_TIME, ColumnKind, Setting};
use trawl_wire::{Answer, AnswerRow};

use super::{
    About, BAR_KEY, DIGEST_KEY, IDENTITY_KEY, Kind, SCAN_KEY, select_kind, setting_kind, setting_names, settings_of,
    time_of, whole,
};

/// Rows in one record batch.
const BATCH_ROWS: usize = 64 * 1024;

/// Identity, scan and digest as pairs.
pub fn metadata(about: &About<'_>) -> Vec<(String, String)> {
    let pair = |key: &str, value: String| (key.to_owned(), value);
    let mut pairs = Vec::with_capacity(4);
    pairs.extend(about.answer_digest.map(|digest| pair(DIGEST_KEY, digest.to_owned())));
    pairs.push(pair(IDENTITY_KEY, about.identity_json()));
    pairs.extend(about.scan.map(|scan| pair(SCAN_KEY, scan.to_json())));
    pairs.extend(about.bar.as_ref().map(|bar| pair(BAR_KEY, serde_json::to_string(bar).unwrap_or_default())));
    pairs
}

/// The type of a column.
fn data_type(kind: Kind) -> DataType {
    match kind {
        Kind::Text => DataType::Utf8,
        Kind::Whole => DataType::Int64,
        Kind::Number => DataType::Float64,
    }
}

/// The type of a select column.
pub fn select_type(kind: &ColumnKind) -> DataType {
    match kind {
        ColumnKind::Number => DataType::Float64,
        ColumnKind::Condition => DataType::Boolean,
        ColumnKind::Date => DataType::Date32,
        ColumnKind::Text(_) => DataType::Utf8,
    }
}

/// Values of a select column, NaN as null.
pub fn select_array(kind: &ColumnKind, values: impl Iterator<Item = f64>) -> ArrayRef {
    let known = values.map(|value| (!value.is_nan()).then_some(value));
    match kind {
        ColumnKind::Number => Arc::new(known.collect::<Float64Array>()),
        ColumnKind::Condition => Arc::new(known.map(|value| value.map(|v| v == 1.0)).collect::<BooleanArray>()),
        ColumnKind::Date => Arc::new(known.map(|value| value.map(|days| days as i32)).collect::<Date32Array>()),
        ColumnKind::Text(_) => {
            Arc::new(known.map(|value| value.and_then(|value| kind.text(value))).collect::<StringArray>())
        }
    }
}

/// The schema of a file with one answer.
pub(super) fn schema(answer: &Answer, about: &About<'_>) -> Arc<Schema> {
    use DataType::{Boolean, UInt32, Utf8};
    let fixed = ANSWER_COLUMNS.into_iter().zip([UInt32, Utf8, Utf8, Boolean, Boolean, Utf8]).enumerate();
    let setting = |(i, name): (usize, &str)| Field::new(name, data_type(setting_kind(answer, i)), false);
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let mut fields = vec![Field::new(ANSWER_TIME, time, false)];
    fields.extend(setting_names(answer).into_iter().enumerate().map(setting));
    fields.extend(fixed.map(|(i, (name, kind))| Field::new(name, kind, i == 0)));
    let select = |(i, name): (usize, &String)| Field::new(name, select_type(select_kind(answer, i)), true);
    fields.extend(answer.select.iter().enumerate().map(select));
    Arc::new(Schema::new(fields).with_metadata(arrow_schema::Metadata::from_iter(metadata(about))))
}

fn batch(schema: &Arc<Schema>, answer: &Answer, rows: &[AnswerRow]) -> anyhow::Result<RecordBatch> {
    let text =
        |of: fn(&AnswerRow) -> &str| -> ArrayRef { Arc::new(StringArray::from_iter_values(rows.iter().map(of))) };
    let flag = |of: fn(&AnswerRow) -> bool| -> ArrayRef {
        Arc::new(rows.iter().map(|r| Some(of(r))).collect::<BooleanArray>())
    };
    let setting = |i: usize| -> ArrayRef {
        let value = |row| settings_of(answer, row).get(i).map(|(_, value)| value);
        let number = |row| match value(row) {
            Some(Setting::Number(value)) => *value,
            _ => f64::NAN,
        };
        match setting_kind(answer, i) {
            Kind::Text => {
                let words = rows.iter().map(|row| value(row).map_or_else(String::new, ToString::to_string));
                Arc::new(StringArray::from_iter_values(words))
            }
            Kind::Whole => {
                Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| whole(number(row)).unwrap_or(0))))
            }
            Kind::Number => Arc::new(Float64Array::from_iter_values(rows.iter().map(number))),
        }
    };
    let time = time_of(answer).context("the answer has no time")?;
    let times = TimestampMicrosecondArray::from_value(time, rows.len()).with_timezone("UTC");
    let mut columns: Vec<ArrayRef> = vec![Arc::new(times)];
    columns.extend((0..setting_names(answer).len()).map(setting));
    columns.extend([
        Arc::new(rows.iter().map(|r| r.place).collect::<UInt32Array>()) as ArrayRef,
        text(|r| &r.row.symbol),
        text(|r| r.row.status.name()),
        flag(|r| r.row.edge),
        flag(|r| r.row.provisional),
        text(|r| &r.row.reason),
    ]);
    for i in 0..answer.select.len() {
        let values = rows.iter().map(|r| r.row.values.get(i).copied().unwrap_or(f64::NAN));
        columns.push(select_array(select_kind(answer, i), values));
    }
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

/// The answer as record batches, with the identity in the schema's metadata.
///
/// # Errors
/// The answer has no time.
pub fn batches(answer: &Answer, about: &About<'_>) -> anyhow::Result<(Arc<Schema>, Vec<RecordBatch>)> {
    let schema = schema(answer, about);
    let batches = answer.rows.chunks(BATCH_ROWS).map(|rows| batch(&schema, answer, rows)).collect::<Result<_, _>>()?;
    Ok((schema, batches))
}

/// Writes an Arrow IPC file.
///
/// # Errors
/// The writer's error.
pub fn write_arrow(answer: &Answer, about: &About<'_>, writer: &mut impl Write) -> anyhow::Result<()> {
    let schema = schema(answer, about);
    let mut file = arrow_ipc::writer::FileWriter::try_new(writer, &schema)?;
    for rows in answer.rows.chunks(BATCH_ROWS) {
        file.write(&batch(&schema, answer, rows)?)?;
    }
    file.finish()?;
    Ok(())
}

/// Writes an Arrow IPC stream: the batches of the file, without its index at the end.
///
/// # Errors
/// The writer's error.
pub fn write_arrow_stream(answer: &Answer, about: &About<'_>, writer: &mut impl Write) -> anyhow::Result<()> {
    let schema = schema(answer, about);
    let mut stream = arrow_ipc::writer::StreamWriter::try_new(writer, &schema)?;
    for rows in answer.rows.chunks(BATCH_ROWS) {
        stream.write(&batch(&schema, answer, rows)?)?;
    }
    stream.finish()?;
    Ok(())
}

/// Writes a Parquet file. The metadata are in the file's own key-value list too, for readers that do not decode the
/// Arrow schema.
///
/// # Errors
/// The writer's error.
pub fn write_parquet(answer: &Answer, about: &About<'_>, writer: &mut (impl Write + Send)) -> anyhow::Result<()> {
    let schema = schema(answer, about);
    let pairs = metadata(about).into_iter().map(|(key, value)| KeyValue { key, value: Some(value) }).collect();
    let properties = WriterProperties::builder().set_key_value_metadata(Some(pairs)).build();
    let mut file = ArrowWriter::try_new(writer, Arc::clone(&schema), Some(properties))?;
    for rows in answer.rows.chunks(BATCH_ROWS) {
        file.write(&batch(&schema, answer, rows)?)?;
    }
    file.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Array as _;
    use arrow_array::cast::AsArray as _;
    use arrow_array::types::{Float64Type, UInt32Type};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use std::fs::File;
    use trawl_plan::ScanDocument;
    use trawl_testing::sample_answer as sample;

    fn assert_same_rows(answer: &Answer, batches: &[RecordBatch]) {
        let schema = batches[0].schema();
        let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        assert_eq!(names, ["time", "place", "symbol", "status", "edge", "provisional", "reason", "close", "a, \"b\""]);
        let mut at = 0;
        for batch in batches {
            let place = batch.column(1).as_primitive::<UInt32Type>();
            for i in 0..batch.num_rows() {
                let row = &answer.rows[at];
                assert_eq!(place.is_valid(i).then(|| place.value(i)), row.place);
                assert_eq!(batch.column(2).as_string::<i32>().value(i), row.row.symbol);
                assert_eq!(batch.column(3).as_string::<i32>().value(i), row.row.status.name());
                assert_eq!(batch.column(4).as_boolean().value(i), row.row.edge);
                assert_eq!(batch.column(5).as_boolean().value(i), row.row.provisional);
                assert_eq!(batch.column(6).as_string::<i32>().value(i), row.row.reason);
                for (j, column) in batch.columns()[7..].iter().enumerate() {
                    let column = column.as_primitive::<Float64Type>();
                    let read = if column.is_valid(i) { column.value(i) } else { f64::NAN };
                    let wrote = row.row.values.get(j).copied().unwrap_or(f64::NAN);
                    assert!(read.to_bits() == wrote.to_bits() || read.is_nan() && wrote.is_nan());
                }
                at += 1;
            }
        }
        assert_eq!(at, answer.rows.len());
    }

    fn assert_identity(answer: &Answer, value: Option<&String>) {
        let read: trawl_wire::Identity = serde_json::from_str(value.unwrap()).unwrap();
        assert_eq!(read, answer.identity);
    }

    #[test]
    fn an_arrow_file_is_read_back_as_the_same_rows_with_its_identity() {
        let answer = sample();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.arrow");
        write_arrow(&answer, &About::new(&answer, None), &mut File::create(&path).unwrap()).unwrap();
        let reader = arrow_ipc::reader::FileReader::try_new(File::open(&path).unwrap(), None).unwrap();
        let schema = reader.schema();
        assert_identity(&answer, schema.metadata().get(IDENTITY_KEY));
        assert_eq!(schema.metadata().get(DIGEST_KEY).unwrap(), "d1");
        assert_same_rows(&answer, &reader.collect::<Result<Vec<_>, _>>().unwrap());
    }

    #[test]
    fn a_parquet_file_is_read_back_as_the_same_rows_with_its_identity() {
        let answer = sample();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        write_parquet(&answer, &About::new(&answer, None), &mut File::create(&path).unwrap()).unwrap();
        let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap();
        assert_identity(&answer, builder.schema().metadata().get(IDENTITY_KEY));
        let pairs = builder.metadata().file_metadata().key_value_metadata().unwrap();
        assert_identity(&answer, pairs.iter().find(|p| p.key == IDENTITY_KEY).unwrap().value.as_ref());
        assert_eq!(pairs.iter().find(|p| p.key == DIGEST_KEY).unwrap().value.as_deref(), Some("d1"));
        assert_same_rows(&answer, &builder.build().unwrap().collect::<Result<Vec<_>, _>>().unwrap());
    }

    #[test]
    fn columns_have_the_types_of_their_values_and_the_scan_is_in_the_metadata() {
        let point = |n: f64, f: f64| vec![("n".to_owned(), Setting::Number(n)), ("f".to_owned(), Setting::Number(f))];
        let mut answer = Answer { points: vec![point(10.0, 0.5), point(-3.0, 2.0)], ..sample() };
        answer.kinds = vec![ColumnKind::Number, ColumnKind::Condition];
        answer.rows.truncate(4);
        for (row, (point, holds)) in answer.rows.iter_mut().zip([(0, 1.0), (1, 0.0), (1, f64::NAN)]) {
            row.row.point = point;
            row.row.values[1] = holds;
        }
        let scan = ScanDocument { name: Some("morning".to_owned()), ..ScanDocument::default() };
        let mut bytes = Vec::new();
        write_arrow(&answer, &About::new(&answer, Some(&scan)), &mut bytes).unwrap();
        let reader = arrow_ipc::reader::FileReader::try_new(std::io::Cursor::new(bytes), None).unwrap();
        let schema = reader.schema();
        assert_eq!(ScanDocument::from_json(schema.metadata().get(SCAN_KEY).unwrap()).unwrap(), scan);
        let batches = reader.collect::<Result<Vec<_>, _>>().unwrap();
        let column = |name: &str| batches[0].column_by_name(name).unwrap();
        let time = column("time").as_primitive::<arrow_array::types::TimestampMicrosecondType>();
        assert_eq!((time.value(0), time.timezone()), (1_361_491_200_000_000, Some("UTC")));
        assert_eq!(column("n").as_primitive::<arrow_array::types::Int64Type>().values()[..2], [10, -3]);
        assert_eq!(column("f").as_primitive::<Float64Type>().values()[..2], [0.5, 2.0]);
        let holds: Vec<Option<bool>> = column("a, \"b\"").as_boolean().iter().collect();
        assert_eq!(holds, [Some(true), Some(false), None, None]);
    }

    #[test]
    fn an_answer_without_rows_is_still_a_file_with_a_schema() {
        let answer = Answer { rows: Vec::new(), ..sample() };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        write_parquet(&answer, &About::new(&answer, None), &mut File::create(&path).unwrap()).unwrap();
        let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap();
        assert_eq!(builder.schema().fields().len(), 9);
    }
}

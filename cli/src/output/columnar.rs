//! The answer as Arrow IPC and Parquet files, with the identity in the schema's metadata.
//!
//! Columns: the sweep's variables (f64), `place` (u32, null without one), `symbol`, `status` (text), `edge`,
//! `provisional` (boolean), `reason` (text), then each select column
//! (f64, null for NA). No compression: any reader opens them, and answers are small.

use std::io::Write;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Float64Array, RecordBatch, StringArray, UInt32Array};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use trawl_plan::{ANSWER_COLUMNS, Setting};
use trawl_wire::{Answer, AnswerRow};

use super::{About, DIGEST_KEY, IDENTITY_KEY, setting_names, settings_of};

/// Rows in one record batch.
const BATCH_ROWS: usize = 64 * 1024;

pub(super) fn metadata(about: &About<'_>) -> [(String, String); 2] {
    [(DIGEST_KEY.to_owned(), about.answer_digest.to_owned()), (IDENTITY_KEY.to_owned(), about.identity_json())]
}

/// Whether a sweep's variable is text at any point.
pub(super) fn is_word(answer: &Answer, variable: usize) -> bool {
    answer.points.iter().any(|point| matches!(point.get(variable), Some((_, Setting::Text(_)))))
}

/// The schema of a file with one answer.
pub(super) fn schema(answer: &Answer, about: &About<'_>) -> Arc<Schema> {
    use DataType::{Boolean, UInt32, Utf8};
    let fixed = ANSWER_COLUMNS.into_iter().zip([UInt32, Utf8, Utf8, Boolean, Boolean, Utf8]).enumerate();
    let kind = |i| if is_word(answer, i) { Utf8 } else { DataType::Float64 };
    let settings = setting_names(answer).into_iter().enumerate().map(|(i, name)| Field::new(name, kind(i), false));
    let mut fields: Vec<Field> = settings.collect();
    fields.extend(fixed.map(|(i, (name, kind))| Field::new(name, kind, i == 0)));
    fields.extend(answer.select.iter().map(|name| Field::new(name, DataType::Float64, true)));
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
        if is_word(answer, i) {
            let words = rows.iter().map(|row| value(row).map_or_else(String::new, ToString::to_string));
            return Arc::new(StringArray::from_iter_values(words));
        }
        let number = |row| match value(row) {
            Some(Setting::Number(value)) => *value,
            _ => f64::NAN,
        };
        Arc::new(Float64Array::from_iter_values(rows.iter().map(number)))
    };
    let mut columns: Vec<ArrayRef> = (0..setting_names(answer).len()).map(setting).collect();
    columns.extend([
        Arc::new(rows.iter().map(|r| r.place).collect::<UInt32Array>()) as ArrayRef,
        text(|r| &r.row.symbol),
        text(|r| r.row.status.name()),
        flag(|r| r.row.edge),
        flag(|r| r.row.provisional),
        text(|r| &r.row.reason),
    ]);
    for i in 0..answer.select.len() {
        let values = rows.iter().map(|r| r.row.values.get(i).copied().filter(|v| !v.is_nan()));
        columns.push(Arc::new(values.collect::<Float64Array>()));
    }
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
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
    use super::super::tests::sample;
    use super::*;
    use arrow_array::Array as _;
    use arrow_array::cast::AsArray as _;
    use arrow_array::types::{Float64Type, UInt32Type};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use std::fs::File;

    fn assert_same_rows(answer: &Answer, batches: &[RecordBatch]) {
        let schema = batches[0].schema();
        let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        assert_eq!(names, ["place", "symbol", "status", "edge", "provisional", "reason", "close", "a, \"b\""]);
        let mut at = 0;
        for batch in batches {
            let place = batch.column(0).as_primitive::<UInt32Type>();
            for i in 0..batch.num_rows() {
                let row = &answer.rows[at];
                assert_eq!(place.is_valid(i).then(|| place.value(i)), row.place);
                assert_eq!(batch.column(1).as_string::<i32>().value(i), row.row.symbol);
                assert_eq!(batch.column(2).as_string::<i32>().value(i), row.row.status.name());
                assert_eq!(batch.column(3).as_boolean().value(i), row.row.edge);
                assert_eq!(batch.column(4).as_boolean().value(i), row.row.provisional);
                assert_eq!(batch.column(5).as_string::<i32>().value(i), row.row.reason);
                for (j, column) in batch.columns()[6..].iter().enumerate() {
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
        write_arrow(&answer, &About::new(&answer, "d1"), &mut File::create(&path).unwrap()).unwrap();
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
        write_parquet(&answer, &About::new(&answer, "d1"), &mut File::create(&path).unwrap()).unwrap();
        let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap();
        assert_identity(&answer, builder.schema().metadata().get(IDENTITY_KEY));
        let pairs = builder.metadata().file_metadata().key_value_metadata().unwrap();
        assert_identity(&answer, pairs.iter().find(|p| p.key == IDENTITY_KEY).unwrap().value.as_ref());
        assert_eq!(pairs.iter().find(|p| p.key == DIGEST_KEY).unwrap().value.as_deref(), Some("d1"));
        assert_same_rows(&answer, &builder.build().unwrap().collect::<Result<Vec<_>, _>>().unwrap());
    }

    #[test]
    fn an_answer_without_rows_is_still_a_file_with_a_schema() {
        let answer = Answer { rows: Vec::new(), ..sample() };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        write_parquet(&answer, &About::new(&answer, "d1"), &mut File::create(&path).unwrap()).unwrap();
        let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap();
        assert_eq!(builder.schema().fields().len(), 8);
    }
}

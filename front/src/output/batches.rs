//! Tables as CSV, Arrow or Parquet files, batch by batch: a table of any length in the memory of one batch.

use std::io::Write;
use std::sync::Arc;

use anyhow::Context as _;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Date32Type, Float64Type, TimestampMicrosecondType};
use arrow_array::{Array as _, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Schema};
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use trawl_market::{format_label, format_time};

use super::{DAY_US, Format};
use crate::human::push_exact;

/// A file being written.
pub enum BatchFile<W: Write + Send> {
    /// Text, and whether its bars have a date alone.
    Csv(Box<::csv::Writer<W>>, bool),
    /// An Arrow IPC stream.
    ArrowStream(Box<arrow_ipc::writer::StreamWriter<W>>),
    /// An Arrow IPC file.
    Arrow(Box<arrow_ipc::writer::FileWriter<W>>),
    /// A Parquet file.
    Parquet(Box<ArrowWriter<W>>),
}

impl<W: Write + Send> BatchFile<W> {
    /// Starts a file; the metadata are those of the schema. `dated`: its times are those of bars of a day or longer.
    ///
    /// # Errors
    /// The writer's error, or a format that is none of the three.
    pub fn begin(format: Format, schema: &Arc<Schema>, dated: bool, writer: W) -> anyhow::Result<Self> {
        Ok(match format {
            Format::Csv => {
                let mut file = ::csv::Writer::from_writer(writer);
                file.write_record(schema.fields().iter().map(|field| field.name()))?;
                Self::Csv(Box::new(file), dated)
            }
            Format::Arrow => Self::Arrow(Box::new(arrow_ipc::writer::FileWriter::try_new(writer, schema)?)),
            Format::Parquet => {
                let pair = |(key, value): (&String, &String)| KeyValue { key: key.clone(), value: Some(value.clone()) };
                let pairs: Vec<KeyValue> = schema.metadata().iter().map(pair).collect();
                let properties = WriterProperties::builder().set_key_value_metadata(Some(pairs)).build();
                let file = ArrowWriter::try_new(writer, Arc::clone(schema), Some(properties))?;
                Self::Parquet(Box::new(file))
            }
            Format::Json | Format::JsonLines => anyhow::bail!("JSON has no tables"),
        })
    }

    /// Starts an Arrow IPC stream, for a reader that does not wait for the end.
    ///
    /// # Errors
    /// The writer's error.
    pub fn begin_stream(schema: &Arc<Schema>, writer: W) -> anyhow::Result<Self> {
        Ok(Self::ArrowStream(Box::new(arrow_ipc::writer::StreamWriter::try_new(writer, schema)?)))
    }

    /// Appends rows: a row group of Parquet.
    ///
    /// # Errors
    /// The writer's error.
    pub fn push(&mut self, batch: &RecordBatch) -> anyhow::Result<()> {
        match self {
            Self::Csv(file, dated) => {
                let mut text = String::new();
                for row in 0..batch.num_rows() {
                    for column in batch.columns() {
                        text.clear();
                        push_cell(&mut text, (column, row), *dated)?;
                        file.write_field(&text)?;
                    }
                    file.write_record(None::<&[u8]>)?;
                }
            }
            Self::ArrowStream(stream) => stream.write(batch)?,
            Self::Arrow(file) => file.write(batch)?,
            Self::Parquet(file) => {
                file.write(batch)?;
                file.flush()?;
            }
        }
        Ok(())
    }

    /// Finishes the file and returns the writer.
    ///
    /// # Errors
    /// The writer's error.
    pub fn finish(self) -> anyhow::Result<W> {
        Ok(match self {
            Self::Csv(file, _) => file.into_inner().map_err(|error| anyhow::anyhow!("{}", error.error()))?,
            Self::ArrowStream(mut stream) => {
                stream.finish()?;
                stream.into_inner()?
            }
            Self::Arrow(mut file) => {
                file.finish()?;
                file.into_inner()?
            }
            Self::Parquet(file) => file.into_inner()?,
        })
    }
}

/// A value as in CSV files of answers.
fn push_cell(text: &mut String, (column, row): (&ArrayRef, usize), dated: bool) -> anyhow::Result<()> {
    if column.is_null(row) {
        return Ok(());
    }
    match column.data_type() {
        DataType::Utf8 => text.push_str(column.as_string::<i32>().value(row)),
        DataType::Boolean => text.push_str(if column.as_boolean().value(row) { "true" } else { "false" }),
        DataType::Float64 => push_exact(text, column.as_primitive::<Float64Type>().value(row)),
        DataType::Date32 => {
            let days = column.as_primitive::<Date32Type>().value(row);
            text.push_str(&format_time(i64::from(days).saturating_mul(DAY_US)));
        }
        DataType::Timestamp(..) => {
            let time = column.as_primitive_opt::<TimestampMicrosecondType>().context("a time in another unit")?;
            text.push_str(&format_label(time.value(row), dated));
        }
        other => anyhow::bail!("no CSV of a column of type {other}"),
    }
    Ok(())
}

//! Series as a file: a row for each bar with its time, its symbol where there are several, and a column for each
//! expression. CSV, JSON (an array of objects), JSON lines, Arrow or Parquet.

use std::io::Write;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use parquet::arrow::ArrowWriter;
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use trawl_market::{FileSeries, SymbolSeries};

use super::Format;
use super::json::Number;
use crate::human::push_exact;

/// A file, and the values computed for each of its symbols: a column for each heading.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a> {
    /// The file's bars.
    pub file: &'a FileSeries,
    /// One for each expression, in order.
    pub headings: &'a [String],
    /// By symbol of the file, then by heading.
    pub outputs: &'a [Vec<Vec<f64>>],
}

/// Writes the table.
///
/// # Errors
/// The writer's error.
pub fn write(table: Table<'_>, format: Format, writer: &mut (impl Write + Send)) -> anyhow::Result<()> {
    match format {
        Format::Csv => write_csv(table, writer),
        Format::Json => {
            serde_json::to_writer_pretty(&mut *writer, &table)?;
            Ok(writer.write_all(b"\n")?)
        }
        Format::JsonLines => {
            for row in rows(table) {
                serde_json::to_writer(&mut *writer, &row)?;
                writer.write_all(b"\n")?;
            }
            Ok(())
        }
        Format::Arrow => {
            let mut file = arrow_ipc::writer::FileWriter::try_new(writer, &schema(table))?;
            for part in table.file.symbols.iter().zip(table.outputs) {
                file.write(&batch(table, part)?)?;
            }
            Ok(file.finish()?)
        }
        Format::Parquet => {
            let mut file = ArrowWriter::try_new(writer, schema(table), None)?;
            for part in table.file.symbols.iter().zip(table.outputs) {
                file.write(&batch(table, part)?)?;
            }
            file.close()?;
            Ok(())
        }
    }
}

fn write_csv(table: Table<'_>, writer: &mut impl Write) -> anyhow::Result<()> {
    let mut out = ::csv::Writer::from_writer(writer);
    let fixed = std::iter::once(&table.file.time_heading).chain(&table.file.symbol_heading);
    out.write_record(fixed.chain(table.headings))?;
    let mut text = String::new();
    for (series, outputs) in table.file.symbols.iter().zip(table.outputs) {
        for (row, time) in series.texts.iter().enumerate() {
            out.write_field(time)?;
            if table.file.symbol_heading.is_some() {
                out.write_field(&*series.symbol)?;
            }
            for output in outputs {
                text.clear();
                push_exact(&mut text, output[row]);
                out.write_field(&text)?;
            }
            out.write_record(None::<&[u8]>)?;
        }
    }
    out.flush()?;
    Ok(())
}

/// One row of a table, as an object.
struct Row<'a> {
    table: Table<'a>,
    series: &'a SymbolSeries,
    outputs: &'a [Vec<f64>],
    at: usize,
}

fn rows(table: Table<'_>) -> impl Iterator<Item = Row<'_>> {
    let symbols = table.file.symbols.iter().zip(table.outputs);
    symbols.flat_map(move |(series, outputs)| (0..series.texts.len()).map(move |at| Row { table, series, outputs, at }))
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(&self.table.file.time_heading, &self.series.texts[self.at])?;
        if let Some(heading) = &self.table.file.symbol_heading {
            map.serialize_entry(heading, &*self.series.symbol)?;
        }
        for (heading, output) in self.table.headings.iter().zip(self.outputs) {
            map.serialize_entry(heading, &Number(output[self.at]))?;
        }
        map.end()
    }
}

impl Serialize for Table<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(rows(*self))
    }
}

/// Times are timestamps where all of them are times, else the text of the file.
fn timed(table: Table<'_>) -> bool {
    table.file.symbols.iter().all(|series| series.times.is_some())
}

fn schema(table: Table<'_>) -> Arc<Schema> {
    let kind = match timed(table) {
        true => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        false => DataType::Utf8,
    };
    let mut fields = vec![Field::new(&table.file.time_heading, kind, false)];
    fields.extend(table.file.symbol_heading.as_ref().map(|heading| Field::new(heading, DataType::Utf8, false)));
    fields.extend(table.headings.iter().map(|heading| Field::new(heading, DataType::Float64, true)));
    Arc::new(Schema::new(fields))
}

fn batch(table: Table<'_>, (series, outputs): (&SymbolSeries, &Vec<Vec<f64>>)) -> anyhow::Result<RecordBatch> {
    let times: ArrayRef = match &series.times {
        Some(times) if timed(table) => Arc::new(TimestampMicrosecondArray::from(times.clone()).with_timezone("UTC")),
        _ => Arc::new(StringArray::from_iter_values(&series.texts)),
    };
    let mut columns = vec![times];
    if table.file.symbol_heading.is_some() {
        let symbols = std::iter::repeat_n(&*series.symbol, series.texts.len());
        columns.push(Arc::new(StringArray::from_iter_values(symbols)));
    }
    for output in outputs {
        let values = output.iter().map(|v| Some(*v).filter(|v| !v.is_nan()));
        columns.push(Arc::new(values.collect::<Float64Array>()));
    }
    Ok(RecordBatch::try_new(schema(table), columns)?)
}

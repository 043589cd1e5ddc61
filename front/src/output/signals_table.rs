//! Where a scan matches over history as record batches: a column of conditions for each symbol, or a row for each match.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Metadata, Schema, TimeUnit};
use trawl_coordinator::features::{FeatureChunk, FeaturePanel};
use trawl_wire::Status;

use super::About;
use super::columnar::metadata;

/// The columns of a table of signals.
#[derive(Debug)]
pub struct SignalsTable {
    schema: Arc<Schema>,
    wide: bool,
}

impl SignalsTable {
    /// `wide`: a row for each time and a column for each symbol; else a row with time and symbol for each match.
    pub fn new(panel: &FeaturePanel<'_>, wide: bool, about: &About<'_>) -> Self {
        let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let mut fields = vec![Field::new("time", time, false)];
        match wide {
            true => {
                fields.extend(panel.symbols().iter().map(|symbol| Field::new(symbol, DataType::Boolean, false)));
            }
            false => fields.push(Field::new("symbol", DataType::Utf8, false)),
        }
        let schema = Arc::new(Schema::new(fields).with_metadata(Metadata::from_iter(metadata(about))));
        Self { schema, wide }
    }

    /// Names and types of the columns, with the identity in the metadata.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// The rows of a chunk.
    ///
    /// # Errors
    /// None but for lack of memory.
    pub fn batch(&self, chunk: &FeatureChunk) -> anyhow::Result<RecordBatch> {
        let width = chunk.symbols.len();
        let matches = |cell: usize| chunk.status[cell] == Status::Matched;
        let mut columns: Vec<ArrayRef> = Vec::new();
        if self.wide {
            let times = TimestampMicrosecondArray::from(chunk.times[chunk.own.clone()].to_vec());
            columns.push(Arc::new(times.with_timezone("UTC")));
            columns.extend((0..width).map(|symbol| {
                let flags = chunk.own.clone().map(|time| Some(matches(time * width + symbol)));
                Arc::new(flags.collect::<BooleanArray>()) as ArrayRef
            }));
        } else {
            let rows: Vec<usize> = chunk.rows().filter(|cell| matches(*cell)).collect();
            let times = TimestampMicrosecondArray::from_iter_values(rows.iter().map(|cell| chunk.times[cell / width]));
            columns.push(Arc::new(times.with_timezone("UTC")));
            let symbols = rows.iter().map(|cell| &chunk.symbols[cell % width]);
            columns.push(Arc::new(StringArray::from_iter_values(symbols)));
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

//! Rows of a panel as record batches: a row for each symbol and bar, with its features, whether it matches, and its labels.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Metadata, Schema, TimeUnit};
use trawl_coordinator::features::{FeatureChunk, FeaturePanel};
use trawl_plan::ColumnKind;
use trawl_wire::Status;

use super::About;
use super::columnar::{metadata, select_array, select_type};

/// Rows of a batch.
const BATCH_ROWS: usize = 128 * 1024;

/// The columns of a panel's table.
#[derive(Debug)]
pub struct PanelTable {
    schema: Arc<Schema>,
    kinds: Vec<ColumnKind>,
    /// Without it all rows match.
    matched: bool,
}

impl PanelTable {
    /// It says which rows match unless only those are rows.
    pub fn new(panel: &FeaturePanel<'_>, matches_only: bool, about: &About<'_>) -> Self {
        let kinds = panel.kinds();
        let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let mut fields = vec![Field::new("time", time, false), Field::new("symbol", DataType::Utf8, false)];
        let features = panel.features().iter().zip(&kinds);
        fields.extend(features.map(|(name, kind)| Field::new(name, select_type(kind), true)));
        if !matches_only {
            fields.push(Field::new("matched", DataType::Boolean, false));
        }
        fields.extend(panel.labels().into_iter().map(|name| Field::new(name, DataType::Float64, true)));
        fields.extend(panel.parts().all.iter().map(|part| Field::new(&part.name, DataType::Utf8, false)));
        let schema = Arc::new(Schema::new(fields).with_metadata(Metadata::from_iter(metadata(about))));
        Self { schema, kinds, matched: !matches_only }
    }

    /// Names and types of the columns, with the identity in the metadata.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// The rows of a chunk, batch by batch.
    pub fn batches(&self, chunk: &FeatureChunk) -> impl Iterator<Item = anyhow::Result<RecordBatch>> {
        let rows: Vec<usize> = chunk.rows().collect();
        let parts = rows.len().div_ceil(BATCH_ROWS);
        (0..parts).map(move |part| {
            let rows = &rows[part * BATCH_ROWS..rows.len().min((part + 1) * BATCH_ROWS)];
            Ok(RecordBatch::try_new(Arc::clone(&self.schema), self.columns(chunk, rows))?)
        })
    }

    fn columns(&self, chunk: &FeatureChunk, rows: &[usize]) -> Vec<ArrayRef> {
        let width = chunk.symbols.len();
        let times = TimestampMicrosecondArray::from_iter_values(rows.iter().map(|cell| chunk.times[cell / width]));
        let symbols = StringArray::from_iter_values(rows.iter().map(|cell| &chunk.symbols[cell % width]));
        let mut columns: Vec<ArrayRef> = vec![Arc::new(times.with_timezone("UTC")), Arc::new(symbols)];
        let features = chunk.features.iter().zip(&self.kinds);
        columns.extend(features.map(|(values, kind)| select_array(kind, rows.iter().map(|cell| values[*cell]))));
        if self.matched {
            let matched = |cell: &usize| Some(chunk.status[*cell] == Status::Matched);
            columns.push(Arc::new(rows.iter().map(matched).collect::<BooleanArray>()));
        }
        let label = |values: &Vec<f64>| select_array(&ColumnKind::Number, rows.iter().map(|cell| values[*cell]));
        columns.extend(chunk.forward.iter().map(label));
        for uses in &chunk.uses {
            columns.push(Arc::new(StringArray::from_iter_values(rows.iter().map(|cell| uses[*cell].name()))));
        }
        columns
    }
}

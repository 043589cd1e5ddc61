//! A panel as one table: a row for each symbol and bar.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Metadata, Schema};
use trawl_coordinator::features::{FeatureChunk, FeaturePanel};
use trawl_plan::ColumnKind;
use trawl_wire::Status;

use super::super::all_bars::Target;
use super::time_type;
use trawl_front::output::batches::BatchFile;
use trawl_front::output::columnar::{metadata, select_array, select_type};
use trawl_front::output::{About, Format};

/// Rows of a batch.
const BATCH_ROWS: usize = 128 * 1024;

/// The file being written.
pub struct Tidy {
    schema: Arc<Schema>,
    file: BatchFile<Target>,
    kinds: Vec<ColumnKind>,
    /// Without it all rows match.
    matched: bool,
}

impl Tidy {
    /// Starts the file; it says which rows match unless only those are rows.
    pub fn begin(
        path: &Path,
        format: Format,
        (panel, matches_only): (&FeaturePanel<'_>, bool),
        about: &About<'_>,
    ) -> anyhow::Result<Self> {
        let kinds = panel.kinds();
        let mut fields = vec![Field::new("time", time_type(), false), Field::new("symbol", DataType::Utf8, false)];
        let features = panel.features().iter().zip(&kinds);
        fields.extend(features.map(|(name, kind)| Field::new(name, select_type(kind), true)));
        if !matches_only {
            fields.push(Field::new("matched", DataType::Boolean, false));
        }
        fields.extend(panel.labels().into_iter().map(|name| Field::new(name, DataType::Float64, true)));
        fields.extend(panel.parts().all.iter().map(|part| Field::new(&part.name, DataType::Utf8, false)));
        let schema = Arc::new(Schema::new(fields).with_metadata(Metadata::from_iter(metadata(about))));
        let file = BatchFile::begin(format, &schema, Target::of(path)?)?;
        Ok(Self { schema, file, kinds, matched: !matches_only })
    }

    /// Appends the rows of a chunk.
    pub fn push(&mut self, chunk: &FeatureChunk) -> anyhow::Result<()> {
        let rows: Vec<usize> = chunk.rows().collect();
        for rows in rows.chunks(BATCH_ROWS) {
            self.file.push(&RecordBatch::try_new(Arc::clone(&self.schema), self.columns(chunk, rows))?)?;
        }
        Ok(())
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

    /// Finishes the file.
    pub fn finish(self) -> anyhow::Result<()> {
        self.file.finish()?.keep()
    }
}

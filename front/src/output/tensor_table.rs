//! Windows of features as record batches: a row for each sample, as a stream that is written while it is computed.
//!
//! `features` is a list of `window` lists of a value for each feature, in single precision and null where there is none; then the labels,
//! null where they are not known, and what the sample is for. Without nulls these are the numbers of `trawl panel --tensors`.

use std::sync::Arc;

use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, Metadata, Schema, TimeUnit};
use trawl_coordinator::features::{FeatureChunk, FeaturePanel, Scaler, Windows};
use trawl_market::TimeMicros;
use trawl_plan::ColumnKind;

use super::About;
use super::columnar::{metadata, select_array};

/// Name of the column of windows.
pub const FEATURES_COLUMN: &str = "features";
/// Keys of the metadata: names of the features and of the labels, and the scaler, as JSON.
pub const FEATURES_KEY: &str = "trawl.features";
/// See [`FEATURES_KEY`].
pub const LABELS_KEY: &str = "trawl.labels";
/// See [`FEATURES_KEY`].
pub const SCALER_KEY: &str = "trawl.scaler";
/// Values of the windows of one batch: 16 MiB.
const BATCH_VALUES_MAX: usize = 4 << 20;

/// The table of the windows of a panel.
pub struct TensorTable {
    schema: Arc<Schema>,
    windows: Windows,
    /// Bars of a window, and features.
    shape: (usize, usize),
}

impl TensorTable {
    /// Of windows of `window` bars, whose features `scaler` has scaled.
    ///
    /// # Errors
    /// None but for lack of memory.
    pub fn new(
        panel: &FeaturePanel<'_>,
        window: usize,
        scaler: Option<&Scaler>,
        about: &About<'_>,
    ) -> anyhow::Result<Self> {
        let shape = (window, panel.features().len());
        let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let windows = DataType::FixedSizeList(bar_field(shape.1)?, length(window)?);
        let mut fields = vec![Field::new("time", time, false), Field::new("symbol", DataType::Utf8, false)];
        fields.push(Field::new(FEATURES_COLUMN, windows, false));
        let labels = panel.labels();
        fields.extend(labels.iter().map(|name| Field::new(name, DataType::Float64, true)));
        fields.extend(panel.parts().all.iter().map(|part| Field::new(&part.name, DataType::Utf8, false)));
        let mut pairs = metadata(about);
        pairs.push((FEATURES_KEY.to_owned(), serde_json::to_string(panel.features())?));
        pairs.push((LABELS_KEY.to_owned(), serde_json::to_string(&labels)?));
        if let Some(scaler) = scaler {
            pairs.push((SCALER_KEY.to_owned(), serde_json::to_string(&scaler.features)?));
        }
        let schema = Arc::new(Schema::new(fields).with_metadata(Metadata::from_iter(pairs)));
        Ok(Self { schema, windows: Windows::new(window), shape })
    }

    /// Names and types of the columns, with the identity in the metadata.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Gives the samples of a chunk to `take`, batch by batch. Chunks come in the order of time.
    ///
    /// # Errors
    /// That of `take`.
    pub fn push(
        &mut self,
        chunk: &FeatureChunk,
        mut take: impl FnMut(&RecordBatch) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let Self { schema, windows, shape } = self;
        let (window, features) = *shape;
        let most = (BATCH_VALUES_MAX / (window * features).max(1)).max(1);
        let table = (&*schema, *shape);
        let mut samples = Samples::default();
        windows.push(chunk, |cell, sample| -> anyhow::Result<()> {
            samples.push(chunk, cell, sample);
            if samples.cells.len() == most {
                take(&std::mem::take(&mut samples).batch(table, chunk)?)?;
            }
            Ok(())
        })?;
        if !samples.cells.is_empty() {
            take(&samples.batch(table, chunk)?)?;
        }
        Ok(())
    }
}

/// The samples of a batch.
#[derive(Default)]
struct Samples {
    values: Vec<f32>,
    /// Which of the values there are.
    known: Vec<bool>,
    times: Vec<TimeMicros>,
    cells: Vec<usize>,
}

impl Samples {
    fn push(&mut self, chunk: &FeatureChunk, cell: usize, sample: &[f64]) {
        for value in sample {
            // As in files of tensors: a value without bits in single precision is none.
            let short = *value as f32;
            self.known.push(short.is_finite());
            self.values.push(if short.is_finite() { short } else { 0.0 });
        }
        self.times.push(chunk.times[cell / chunk.symbols.len()]);
        self.cells.push(cell);
    }

    /// The batch.
    fn batch(self, table: (&Arc<Schema>, (usize, usize)), chunk: &FeatureChunk) -> anyhow::Result<RecordBatch> {
        let (schema, (window, features)) = table;
        let Self { values, known, times, cells } = self;
        let samples = cells.len();
        let values = Float32Array::new(values.into(), Some(NullBuffer::from(known)));
        let (item, bar) = (value_field(), bar_field(features)?);
        let bars =
            FixedSizeListArray::try_new_with_length(item, length(features)?, Arc::new(values), None, samples * window)?;
        let windows = FixedSizeListArray::try_new_with_length(bar, length(window)?, Arc::new(bars), None, samples)?;
        let times = TimestampMicrosecondArray::from(times).with_timezone("UTC");
        let width = chunk.symbols.len();
        let symbols = StringArray::from_iter_values(cells.iter().map(|cell| &chunk.symbols[cell % width]));
        let mut columns: Vec<ArrayRef> = vec![Arc::new(times), Arc::new(symbols), Arc::new(windows)];
        let label = |values: &Vec<f64>| select_array(&ColumnKind::Number, cells.iter().map(|cell| values[*cell]));
        columns.extend(chunk.forward.iter().map(label));
        for uses in &chunk.uses {
            columns.push(Arc::new(StringArray::from_iter_values(cells.iter().map(|cell| uses[*cell].name()))));
        }
        Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
    }
}

/// A value of a bar of a window.
fn value_field() -> Arc<Field> {
    Arc::new(Field::new("item", DataType::Float32, true))
}

/// A bar of a window: a value for each feature.
fn bar_field(features: usize) -> anyhow::Result<Arc<Field>> {
    let kind = DataType::FixedSizeList(value_field(), length(features)?);
    Ok(Arc::new(Field::new("item", kind, false)))
}

/// A length as Arrow has it.
fn length(length: usize) -> anyhow::Result<i32> {
    Ok(i32::try_from(length)?)
}

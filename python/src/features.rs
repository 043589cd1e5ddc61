//! `trawl.features`: a scan over history as tensors, those of `trawl panel --tensors`.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array as _, ArrayRef, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_schema::{ArrowError, DataType, Field, Metadata, Schema, TimeUnit};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use trawl_coordinator::PreparedScan;
use trawl_coordinator::features::{FeatureChunk, FeatureError, FeatureOptions, FeaturePanel, Scaler, Windows};
use trawl_coordinator::local::LocalOptions;
use trawl_front::output::tensor_table::{FEATURES_COLUMN, FEATURES_KEY, LABELS_KEY, SCALER_KEY};
use trawl_front::refused;
use trawl_front::run::CancelFlag;
use trawl_kernels::cuda::Fleet;
use trawl_market::TimeMicros;

use crate::arrow_c::{Table, arrow, table_of_ipc};
use crate::tensor::{Kind, Tensor, Values};

/// Most bytes of the tensors of one call.
const BYTES_MAX: u64 = 256 << 30;

/// What `trawl.features` gives.
pub struct Made {
    /// `[sample, window, feature]`, single precision; 0 without a value.
    pub features: Tensor,
    /// Of the same shape: whether there is a value.
    pub mask: Tensor,
    /// `[sample, horizon]`; NaN where not known.
    pub labels: Tensor,
    /// Time, symbol, and what each sample is for.
    pub index: Table,
    /// Names of features and of labels.
    pub names: (Vec<String>, Vec<String>),
    /// Means and deviations that the features were scaled by, as JSON.
    pub scaler: Option<String>,
}

/// Computes them, on a GPU if there is one to use. Blocks.
///
/// # Errors
/// A [`trawl_front::UserMistake`]: also for more than there is memory for; a dataset that cannot be read; cancelled.
pub fn made(
    prepared: &PreparedScan,
    local: LocalOptions,
    options: FeatureOptions,
    scaled: bool,
    device: Option<&Arc<Fleet>>,
    cancel: &CancelFlag,
) -> anyhow::Result<Made> {
    let window = options.window;
    let panel = FeaturePanel::new(prepared, local, options).map_err(refused::of_panel)?;
    let (columns, horizons) = (panel.features().len(), panel.labels().len());
    let scaler: Option<Scaler> = scaled.then(|| panel.fit(cancel)).transpose().map_err(refused::of_panel)?;
    let parts: Vec<String> = panel.parts().all.iter().map(|part| part.name.clone()).collect();
    let mut gathered = Gathered { uses: vec![Vec::new(); parts.len()], ..Gathered::default() };
    let tensors = match device {
        Some(fleet) => gathered.on_device(&panel, fleet, scaler.as_ref(), window, cancel),
        None => gathered.on_host(&panel, scaler.as_ref(), window, cancel),
    };
    let (features, mask, labels) = tensors.map_err(refused::of_panel)?;
    let samples = gathered.times.len();
    let index = gathered.index(&parts)?;
    let shape = vec![samples, window, columns];
    Ok(Made {
        features: Tensor::new(features, shape.clone()),
        mask: Tensor::new(mask, shape),
        labels: Tensor::new(labels, vec![samples, horizons]),
        index,
        names: (panel.features().to_vec(), panel.labels().to_vec()),
        scaler: scaler.map(|scaler| serde_json::to_string(&scaler.features)).transpose()?,
    })
}

/// The samples so far.
#[derive(Default)]
struct Gathered {
    features: Vec<f32>,
    mask: Vec<u8>,
    labels: Vec<f64>,
    times: Vec<TimeMicros>,
    symbols: Vec<String>,
    /// What each sample is for, by part.
    uses: Vec<Vec<&'static str>>,
}

/// Features, mask and labels.
type Gained = (Values, Values, Values);

impl Gathered {
    fn on_host(
        &mut self,
        panel: &FeaturePanel<'_>,
        scaler: Option<&Scaler>,
        window: usize,
        cancel: &CancelFlag,
    ) -> Result<Gained, FeatureError> {
        let mut windows = Windows::new(window);
        panel.each_chunk(cancel, |mut chunk| {
            if let Some(scaler) = scaler {
                scaler.apply(&mut chunk);
            }
            windows.push(&chunk, |cell, sample| {
                self.room(sample.len(), chunk.forward.len())?;
                for value in sample {
                    // As files have it: a value without bits in single precision is none.
                    let short = *value as f32;
                    self.mask.push(u8::from(short.is_finite()));
                    self.features.push(if short.is_finite() { short } else { 0.0 });
                }
                self.note(&chunk, cell);
                Ok(())
            })
        })?;
        let take = std::mem::take::<Vec<f64>>;
        let (features, mask) = (std::mem::take(&mut self.features), std::mem::take(&mut self.mask));
        Ok((Values::F32(features), Values::Bool(mask), Values::F64(take(&mut self.labels))))
    }

    /// Features and mask never are in main memory; labels, which are returns of closes, are sent.
    fn on_device(
        &mut self,
        panel: &FeaturePanel<'_>,
        fleet: &Arc<Fleet>,
        scaler: Option<&Scaler>,
        window: usize,
        cancel: &CancelFlag,
    ) -> Result<Gained, FeatureError> {
        let device = panel.on_device(fleet, scaler)?;
        let mut cells: Vec<u32> = Vec::new();
        panel.each_chunk_on(&device, cancel, |chunk| {
            let before = chunk.first * chunk.symbols.len();
            for cell in chunk.rows() {
                self.room(1, chunk.forward.len())?;
                let place = u32::try_from(before + cell).map_err(|_| "there are too many bars and symbols")?;
                cells.push(place);
                self.note(&chunk, cell);
            }
            Ok(())
        })?;
        let (features, mask) = device.windows(&cells, window)?;
        let labels = device.upload(&self.labels)?;
        let of = Values::Device;
        Ok((of(features, Kind::F32), of(mask, Kind::Bool), of(labels, Kind::F64)))
    }

    /// Everything of a sample but its features.
    fn note(&mut self, chunk: &FeatureChunk, cell: usize) {
        let width = chunk.symbols.len();
        self.labels.extend(chunk.forward.iter().map(|column| column[cell]));
        self.times.push(chunk.times[cell / width]);
        self.symbols.push(chunk.symbols[cell % width].clone());
        for (names, uses) in self.uses.iter_mut().zip(&chunk.uses) {
            names.push(uses[cell].name());
        }
    }

    /// A row for each sample.
    fn index(self, parts: &[String]) -> anyhow::Result<Table> {
        let mut fields = vec![
            Field::new("time", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), false),
            Field::new("symbol", DataType::Utf8, false),
        ];
        fields.extend(parts.iter().map(|name| Field::new(name, DataType::Utf8, false)));
        let schema = Arc::new(Schema::new(fields));
        let times = TimestampMicrosecondArray::from(self.times).with_timezone("UTC");
        let texts = |names: Vec<&str>| Arc::new(StringArray::from(names)) as ArrayRef;
        let symbols = StringArray::from_iter_values(&self.symbols);
        let mut arrays: Vec<ArrayRef> = vec![Arc::new(times), Arc::new(symbols)];
        arrays.extend(self.uses.into_iter().map(texts));
        Ok(Table { schema: Arc::clone(&schema), batches: vec![RecordBatch::try_new(schema, arrays)?] })
    }

    /// Makes room for one more sample.
    fn room(&mut self, values: usize, labels: usize) -> Result<(), String> {
        let bytes = (self.features.len() + values) as u64 * 5 + self.labels.len() as u64 * 8;
        let reserved = self.features.try_reserve(values).is_ok()
            && self.mask.try_reserve(values).is_ok()
            && self.labels.try_reserve(labels).is_ok();
        match reserved && bytes <= BYTES_MAX {
            true => Ok(()),
            false => Err(format!(
                "the tensors do not fit into memory after {} samples: take fewer bars, features or symbols",
                self.times.len()
            )),
        }
    }
}

/// What Python gets of them.
pub type Tensors = (Tensor, Tensor, Tensor, Table, Vec<String>, Vec<String>, Option<String>);

impl From<Made> for Tensors {
    fn from(made: Made) -> Self {
        let Made { features, mask, labels, index, names, scaler } = made;
        (features, mask, labels, index, names.0, names.1, scaler)
    }
}

/// The tensors in the bytes of an Arrow IPC stream, as a server sends them.
#[pyfunction]
pub fn features_of_ipc(py: Python<'_>, bytes: &Bound<'_, PyBytes>) -> PyResult<Tensors> {
    let table = table_of_ipc(py, bytes)?;
    Ok(py.detach(|| made_of(&table)).map_err(arrow)?.into())
}

/// The tensors of a table of `trawl_front::output::tensor_table`.
fn made_of(table: &Table) -> Result<Made, ArrowError> {
    let schema = &table.schema;
    let unknown = |what: &str| ArrowError::SchemaError(format!("a table of tensors has {what}"));
    let said = |key: &str| schema.metadata().get(key).cloned();
    let names = |key: &str| -> Result<Vec<String>, ArrowError> {
        let text = said(key).ok_or_else(|| unknown(key))?;
        serde_json::from_str(&text).map_err(|error| ArrowError::ParseError(error.to_string()))
    };
    let (names, labels) = (names(FEATURES_KEY)?, names(LABELS_KEY)?);
    let (at, field) = schema.column_with_name(FEATURES_COLUMN).ok_or_else(|| unknown("the column of windows"))?;
    let DataType::FixedSizeList(_, window) = field.data_type() else { return Err(unknown("windows of one length")) };
    let window = usize::try_from(*window).map_err(|_| unknown("windows of one length"))?;
    let label_at: Vec<usize> = labels.iter().map(|name| schema.index_of(name)).collect::<Result<_, _>>()?;
    let samples: usize = table.batches.iter().map(RecordBatch::num_rows).sum();
    let count = samples * window * names.len();
    let (mut features, mut mask) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let mut forward = Vec::with_capacity(samples * labels.len());
    for batch in &table.batches {
        let bars = batch.column(at).as_fixed_size_list().values().as_fixed_size_list_opt();
        let values = bars.and_then(|bars| bars.values().as_primitive_opt::<Float32Type>());
        let values = values.ok_or_else(|| unknown("values in single precision"))?;
        for value in values {
            mask.push(u8::from(value.is_some()));
            features.push(value.unwrap_or(0.0));
        }
        let columns = label_at.iter().map(|at| batch.column(*at).as_primitive_opt::<Float64Type>());
        let columns: Vec<_> = columns.collect::<Option<_>>().ok_or_else(|| unknown("labels in double precision"))?;
        for row in 0..batch.num_rows() {
            let value =
                |column: &&arrow_array::Float64Array| if column.is_null(row) { f64::NAN } else { column.value(row) };
            forward.extend(columns.iter().map(value));
        }
    }
    if features.len() != count || forward.len() != samples * labels.len() {
        return Err(unknown("a value for each place"));
    }
    let kept: Vec<usize> =
        (0..schema.fields().len()).filter(|column| *column != at && !label_at.contains(column)).collect();
    let projected = Arc::new(schema.project(&kept)?.with_metadata(Metadata::default()));
    let batches = table.batches.iter().map(|batch| {
        RecordBatch::try_new(
            Arc::clone(&projected),
            kept.iter().map(|column| Arc::clone(batch.column(*column))).collect(),
        )
    });
    let shape = vec![samples, window, names.len()];
    Ok(Made {
        features: Tensor::new(Values::F32(features), shape.clone()),
        mask: Tensor::new(Values::Bool(mask), shape),
        labels: Tensor::new(Values::F64(forward), vec![samples, labels.len()]),
        index: Table { schema: Arc::clone(&projected), batches: batches.collect::<Result<_, _>>()? },
        names: (names, labels),
        scaler: said(SCALER_KEY),
    })
}

//! `trawl.features`: a scan over history as tensors, those of `trawl panel --tensors`.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use trawl_coordinator::PreparedScan;
use trawl_coordinator::features::{FeatureOptions, FeaturePanel, Scaler, Windows};
use trawl_coordinator::local::LocalOptions;
use trawl_front::run::CancelFlag;
use trawl_front::{UserMistake, refused};
use trawl_market::TimeMicros;

use crate::arrow_c::Table;
use crate::tensor::{Tensor, Values};

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

/// Computes them. Blocks.
///
/// # Errors
/// A [`UserMistake`]: also for more than there is memory for; a dataset that cannot be read; cancelled.
pub fn made(
    prepared: &PreparedScan,
    local: LocalOptions,
    options: FeatureOptions,
    scaled: bool,
    cancel: &CancelFlag,
) -> anyhow::Result<Made> {
    let window = options.window;
    let panel = FeaturePanel::new(prepared, local, options).map_err(refused::of_panel)?;
    let (columns, horizons) = (panel.features().len(), panel.labels().len());
    let scaler: Option<Scaler> = scaled.then(|| panel.fit(cancel)).transpose().map_err(refused::of_panel)?;
    let parts: Vec<String> = panel.parts().all.iter().map(|part| part.name.clone()).collect();
    let mut gathered = Gathered { uses: vec![Vec::new(); parts.len()], ..Gathered::default() };
    let mut windows = Windows::new(window);
    let taken = panel.each_chunk(cancel, |mut chunk| {
        if let Some(scaler) = &scaler {
            scaler.apply(&mut chunk);
        }
        let width = chunk.symbols.len();
        windows.push(&chunk, |cell, sample| {
            gathered.room(sample.len(), horizons)?;
            for value in sample {
                // As files have it: a value without bits in single precision is none.
                let short = *value as f32;
                gathered.mask.push(u8::from(short.is_finite()));
                gathered.features.push(if short.is_finite() { short } else { 0.0 });
            }
            gathered.labels.extend(chunk.forward.iter().map(|column| column[cell]));
            gathered.times.push(chunk.times[cell / width]);
            gathered.symbols.push(chunk.symbols[cell % width].clone());
            for (names, uses) in gathered.uses.iter_mut().zip(&chunk.uses) {
                names.push(uses[cell].name());
            }
            Ok(())
        })
    });
    taken.map_err(refused::of_panel)?;
    let samples = gathered.times.len();
    let mut fields = vec![
        Field::new("time", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), false),
        Field::new("symbol", DataType::Utf8, false),
    ];
    fields.extend(parts.iter().map(|name| Field::new(name, DataType::Utf8, false)));
    let schema = Arc::new(Schema::new(fields));
    let times = TimestampMicrosecondArray::from(gathered.times).with_timezone("UTC");
    let texts = |names: Vec<&str>| Arc::new(StringArray::from(names)) as ArrayRef;
    let symbols = StringArray::from_iter_values(&gathered.symbols);
    let mut arrays: Vec<ArrayRef> = vec![Arc::new(times), Arc::new(symbols)];
    arrays.extend(gathered.uses.into_iter().map(texts));
    let index = Table { schema: Arc::clone(&schema), batches: vec![RecordBatch::try_new(schema, arrays)?] };
    let shape = vec![samples, window, columns];
    Ok(Made {
        features: Tensor::new(Values::F32(gathered.features), shape.clone()),
        mask: Tensor::new(Values::Bool(gathered.mask), shape),
        labels: Tensor::new(Values::F64(gathered.labels), vec![samples, horizons]),
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

impl Gathered {
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

/// A number of bars of a window.
///
/// # Errors
/// A [`UserMistake`].
pub fn window_of(bars: usize) -> Result<usize, UserMistake> {
    use trawl_coordinator::features::WINDOW_MAX;
    match (1..=WINDOW_MAX).contains(&bars) {
        true => Ok(bars),
        false => Err(UserMistake::plain(format!("window={bars} is not a number of bars from 1 to {WINDOW_MAX}"))),
    }
}

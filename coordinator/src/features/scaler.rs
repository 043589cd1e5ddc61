//! Means and standard deviations of features, over training rows alone.

use serde::Serialize;
use trawl_plan::ColumnKind;

use super::{FeatureChunk, Use};

/// What scales a panel: a feature less its mean, over its standard deviation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scaler {
    /// In the order of the features, without conditions, texts and dates.
    pub features: Vec<ScalerColumn>,
}

/// Of one feature.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScalerColumn {
    /// Name of the feature.
    pub name: String,
    /// Its number among all features.
    #[serde(skip)]
    at: usize,
    /// Training rows that have a value.
    pub count: u64,
    /// Their mean; 0 without rows.
    pub mean: f64,
    /// Their population standard deviation; 1 where they do not vary, so that it can always be divided by.
    pub standard_deviation: f64,
    /// Sum of squared deviations from the mean, while it is learned.
    #[serde(skip)]
    squares: f64,
}

impl Scaler {
    pub(super) fn of(features: &[String], kinds: &[ColumnKind]) -> Self {
        let column = |(at, name): (usize, &String)| ScalerColumn {
            name: name.clone(),
            at,
            count: 0,
            mean: 0.0,
            standard_deviation: 1.0,
            squares: 0.0,
        };
        let numbers = |(at, _): &(usize, &String)| kinds.get(*at) == Some(&ColumnKind::Number);
        Self { features: features.iter().enumerate().filter(numbers).map(column).collect() }
    }

    /// Takes the training rows of a chunk, one after the other: the result does not depend on how times are cut into chunks.
    pub(super) fn learn(&mut self, chunk: &FeatureChunk) {
        let Some(uses) = chunk.uses.first() else { return };
        for column in &mut self.features {
            let values = &chunk.features[column.at];
            for cell in chunk.rows().filter(|cell| uses[*cell] == Use::Train) {
                column.learn(values[cell]);
            }
        }
    }

    /// What a feature is scaled by: what is subtracted, and what the difference is divided by. `None` for one that is not scaled.
    pub fn scale(&self, feature: usize) -> Option<(f64, f64)> {
        let column = self.features.iter().find(|column| column.at == feature)?;
        Some((column.mean, column.standard_deviation))
    }

    /// Scales the features of a chunk.
    pub fn apply(&self, chunk: &mut FeatureChunk) {
        for column in &self.features {
            for value in &mut chunk.features[column.at] {
                *value = (*value - column.mean) / column.standard_deviation;
            }
        }
    }
}

impl ScalerColumn {
    /// Welford's update.
    fn learn(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        self.count += 1;
        let off = value - self.mean;
        self.mean += off / self.count as f64;
        self.squares += off * (value - self.mean);
        let deviation = (self.squares / self.count as f64).sqrt();
        self.standard_deviation = if deviation > 0.0 { deviation } else { 1.0 };
    }
}

//! Features that stay on a device: the panel without them, and their windows as tensors there.

use std::sync::Arc;

use trawl_kernels::cuda::{DeviceTensor, FeatureTable, Fleet};
use trawl_kernels::{Cancel, Engine};
use trawl_worker::DeviceFeatures;

use super::{FeatureChunk, FeatureError, FeaturePanel, Scaler};

/// The features of a panel on a device.
#[derive(Debug)]
pub struct DevicePanel {
    pub(super) engine: Engine,
    pub(super) features: Arc<DeviceFeatures>,
}

impl DevicePanel {
    /// Windows of `window` bars that end at these cells, which are counted over all times of the panel:
    /// `[sample, window, feature]` in single precision, 0 where there is no value, and a byte for each that says whether there is one.
    ///
    /// # Errors
    /// [`FeatureError::Device`].
    pub fn windows(&self, cells: &[u32], window: usize) -> Result<(DeviceTensor, DeviceTensor), FeatureError> {
        let width = self.features.symbols.len();
        self.features.table.windows(cells, window.max(1), width).map_err(FeatureError::Device)
    }

    /// Labels on the device.
    ///
    /// # Errors
    /// [`FeatureError::Device`].
    pub fn upload(&self, labels: &[f64]) -> Result<DeviceTensor, FeatureError> {
        self.features.table.upload(labels).map_err(FeatureError::Device)
    }
}

impl FeaturePanel<'_> {
    /// An empty table for its features on a device, which scales them as `scaler` says.
    ///
    /// # Errors
    /// [`FeatureError::Device`].
    pub fn on_device(&self, fleet: &Arc<Fleet>, scaler: Option<&Scaler>) -> Result<DevicePanel, FeatureError> {
        let symbols = Arc::new(self.symbols());
        let scales: Vec<_> = (0..self.features().len()).map(|at| scaler.and_then(|scaler| scaler.scale(at))).collect();
        let rows = self.times.len().saturating_mul(symbols.len());
        let table = FeatureTable::new(fleet, rows, &scales).map_err(FeatureError::Device)?;
        let features = Arc::new(DeviceFeatures { table, symbols, times: self.times.clone() });
        Ok(DevicePanel { engine: Engine::Device(Arc::clone(fleet)), features })
    }

    /// As [`Self::each_chunk`]; the features are computed into the table of a device, and the chunks have none.
    ///
    /// # Errors
    /// [`FeatureError`].
    pub fn each_chunk_on(
        &self,
        device: &DevicePanel,
        cancel: &dyn Cancel,
        take: impl FnMut(FeatureChunk) -> Result<(), String> + Send,
    ) -> Result<(), FeatureError> {
        self.each_chunk_by(Some(device), cancel, take)
    }
}

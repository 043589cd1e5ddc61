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

#[cfg(test)]
mod tests {
    use trawl_kernels::NoCancel;
    use trawl_kernels::cuda::{Cache, Executor, ExecutorOptions};
    use trawl_market::{Store, TimeMicros};
    use trawl_plan::ScanDocument;
    use trawl_test_driver::TestDevice;

    use super::*;
    use crate::features::{FeatureOptions, SplitBy, Windows};
    use crate::local::LocalOptions;
    use crate::{PreparedScan, prepare};

    const WINDOW: usize = 4;

    fn prepared(text: &str) -> PreparedScan {
        let document = ScanDocument::from_toml(&format!("dataset = 'us5'\n{text}")).unwrap();
        prepare(&Store::new("/nowhere".into()), &document, None).unwrap()
    }

    /// What tensors are made of, by the host: bits of the values, mask, and the sample's time, symbol and labels.
    type Sample = (Vec<u32>, Vec<u8>, (TimeMicros, String, Vec<u64>));

    fn about(chunk: &FeatureChunk, cell: usize) -> (TimeMicros, String, Vec<u64>) {
        let width = chunk.symbols.len();
        let labels = chunk.forward.iter().map(|column| column[cell].to_bits()).collect();
        (chunk.times[cell / width], chunk.symbols[cell % width].clone(), labels)
    }

    fn on_host(panel: &FeaturePanel<'_>, scaler: Option<&Scaler>) -> Vec<Sample> {
        let (mut all, mut windows) = (Vec::new(), Windows::new(WINDOW));
        let ran = panel.each_chunk(&NoCancel, |mut chunk| {
            if let Some(scaler) = scaler {
                scaler.apply(&mut chunk);
            }
            windows.push(&chunk, |cell, sample| {
                let shorts: Vec<f32> = sample.iter().map(|value| *value as f32).collect();
                let value = |short: &f32| if short.is_finite() { short.to_bits() } else { 0 };
                let mask = shorts.iter().map(|short| u8::from(short.is_finite())).collect();
                all.push((shorts.iter().map(value).collect(), mask, about(&chunk, cell)));
                Ok(())
            })
        });
        ran.unwrap();
        all
    }

    fn on_device(
        panel: &FeaturePanel<'_>,
        scaler: Option<&Scaler>,
        (device, fleet): (&TestDevice, &Arc<Fleet>),
    ) -> Vec<Sample> {
        let table = panel.on_device(fleet, scaler).unwrap();
        let (mut cells, mut index) = (Vec::new(), Vec::new());
        let ran = panel.each_chunk_on(&table, &NoCancel, |chunk| {
            for cell in chunk.rows() {
                cells.push(u32::try_from(chunk.first * chunk.symbols.len() + cell).unwrap());
                index.push(about(&chunk, cell));
            }
            Ok(())
        });
        ran.unwrap();
        let (values, mask) = table.windows(&cells, WINDOW).unwrap();
        let each = WINDOW * panel.features().len();
        let count = each * cells.len();
        let values = device.read(values.address(), 4 * count).unwrap();
        let mask = device.read(mask.address(), count).unwrap();
        let bits = |four: &[u8]| u32::from_ne_bytes([four[0], four[1], four[2], four[3]]);
        let values: Vec<u32> = values.chunks_exact(4).map(bits).collect();
        let samples = values.chunks(each).zip(mask.chunks(each)).zip(index);
        samples.map(|((values, mask), about)| (values.to_vec(), mask.to_vec(), about)).collect()
    }

    /// Columns and constants, cross-sections, bars of weeks, adjusted bars, rows that are read late, one precision and the other.
    const SCANS: [&str; 5] = [
        "where = 'close > sma(20)'\nselect = ['roc(5) as roc', 'close > sma(50) as up', 'xs_rank(roc(10)) as strength']",
        "where = '1 == 1'\nselect = ['close', '1 + 1 as two', \"tf('1w', rsi(5)) as weekly\", 'rsi(14) as r', 'ln(close - 200) as l']",
        "where = 'volume > sma(volume, 20)'\nuniverse = 'close > 50'\nmax_age = '3d'\nselect = ['atr(14) as a', 'sma(20) as s']",
        "where = '1 == 1'\nprecision = 'f32'\nselect = ['ema(close, 20) as e', 'close as c', 'macd().hist as h']",
        "where = 'rsi(14) < 40'\nadjust = 'none'\nselect = ['bbands(close, 20, 2).upper as b', \"ref('IBM', roc(5)) as i\", 'roc(5) as r']",
    ];

    #[test]
    fn tensors_of_a_device_are_those_of_the_host_however_they_are_cut() {
        let device = TestDevice::new("when=random seed=9");
        let options = ExecutorOptions { batch_bytes_max: Some(300_000), ..ExecutorOptions::default() };
        let executor = Executor::new(Arc::new(device.open()), Cache::in_memory(), options).unwrap();
        let fleet = Arc::new(executor.into());
        for (number, scan) in SCANS.iter().enumerate() {
            let scan = prepared(scan);
            let times = scan.dataset.times().unwrap();
            let options = FeatureOptions {
                horizons: vec![1, 5],
                // From the first bar, before which there are none, and from a later one.
                from: (number % 2 == 0).then(|| times[300]),
                matches_only: number == 4,
                split: Some(SplitBy::Time(times[400])),
                window: WINDOW,
                ..FeatureOptions::default()
            };
            let local = LocalOptions { threads: 2, ..LocalOptions::default() };
            let panel = || FeaturePanel::new(&scan, local, options.clone()).unwrap();
            let scaler = (number < 2).then(|| panel().fit(&NoCancel).unwrap());
            let want = on_host(&panel(), scaler.as_ref());
            assert!(want.len() > 100 && want.iter().any(|(_, mask, _)| mask.contains(&1)), "{number}");
            for panel in [panel(), panel().in_chunks_of(20_000)] {
                let got = on_device(&panel, scaler.as_ref(), (&device, &fleet));
                assert_eq!(got.len(), want.len(), "{number}");
                let first = got.iter().zip(&want).find(|(got, want)| got != want);
                assert!(first.is_none(), "{number}: {first:?}");
            }
        }
        assert_eq!(device.counts().used_bytes, fleet_bytes(&fleet), "nothing is left behind");
    }

    fn fleet_bytes(fleet: &Fleet) -> u64 {
        fleet.executors()[0].probe().unwrap();
        fleet.resident_bytes()
    }
}

//! A scan over history as features and labels: `trawl panel`.
//!
//! Features are the select columns of the scan at every bar, each computed as of that bar. Labels are returns over the bars that
//! follow ([`crate::forward`]): they are computed apart, from closes alone, and no feature can name one. Memory holds one
//! chunk of times and the closes of a few groups.

mod device;
mod parts;
mod scaler;
mod windows;

pub use device::DevicePanel;
pub use parts::{FOLDS_MAX, Part, Parts, SplitBy, Use};
pub use scaler::{Scaler, ScalerColumn};
pub use windows::Windows;

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use trawl_kernels::cuda::Fault;
use trawl_kernels::{Cancel, Engine};
use trawl_market::{MarketError, TimeMicros};
use trawl_plan::ColumnKind;
use trawl_wire::Status;
use trawl_worker::late_row;

use crate::all_bars::{AllBarsError, CHUNK_BYTES_MAX, all_bars_on, check_own_bars};
use crate::forward::Closes;
use crate::local::LocalOptions;
use crate::one_scan::Many;
use crate::panel::PanelChunk;
use crate::prepare::PreparedScan;

/// Beginning of the names of labels; no feature may have it.
pub const FORWARD_PREFIX: &str = "forward_";
/// Most bars of a window.
pub const WINDOW_MAX: usize = 10_000;
/// Most bytes of the features that windows keep in memory.
const WINDOW_BYTES_MAX: u64 = 1 << 30;
/// Groups of symbols whose closes are in memory at once, for each thread.
const GROUPS_PER_THREAD: usize = 2;
/// Bytes of a row besides features and labels, here and in the answers that it is made of.
const ROW_BYTES: u64 = 32;
const VALUE_BYTES: u64 = 8;

/// Why there is no panel.
#[derive(Debug, thiserror::Error)]
pub enum FeatureError {
    /// A mistake of the user.
    #[error("{0}, and a panel follows one condition")]
    Many(Many),
    /// A mistake of the user.
    #[error("forward returns need the column 'close', which this dataset does not have")]
    NoClose,
    /// A mistake of the user.
    #[error("the column '{0}' has a name of the panel's own: give it another with 'as'")]
    Name(String),
    /// A mistake of the user.
    #[error("{0}")]
    Split(String),
    /// Too much for memory.
    #[error("windows of {0} bars of all symbols and columns take more than {WINDOW_BYTES_MAX} bytes: select less")]
    Window(usize),
    /// A mistake of the user: the training rows of one fold are test rows of others.
    #[error(
        "a scaler is fitted on the training rows of one split, and this panel has {0} folds: give one split, or leave the scaler out"
    )]
    Folds(usize),
    /// A mistake of the user.
    #[error("the span has no bar")]
    Empty,
    /// The device failed.
    #[error("{0}")]
    Device(Fault),
    /// The answers could not be computed.
    #[error(transparent)]
    AllBars(#[from] AllBarsError),
    /// Bars could not be read.
    #[error(transparent)]
    Market(#[from] MarketError),
}

/// What a panel has.
#[derive(Debug, Clone, Default)]
pub struct FeatureOptions {
    /// Bars ahead of the labels, ascending, each at least 1.
    pub horizons: Vec<u32>,
    /// The first bar.
    pub from: Option<TimeMicros>,
    /// Whether only matches are rows.
    pub matches_only: bool,
    /// Which rows a model is trained and tested on.
    pub split: Option<SplitBy>,
    /// Bars between training and test rows, besides those that labels read.
    pub embargo: u32,
    /// Bars of a window, for tensors; 0 for none.
    pub window: usize,
}

/// A panel that is about to be computed.
pub struct FeaturePanel<'a> {
    prepared: &'a PreparedScan,
    local: LocalOptions,
    options: FeatureOptions,
    /// Every time of the panel, and before them those that only windows read.
    times: Vec<TimeMicros>,
    lead: usize,
    parts: Parts,
    chunk_bytes_max: u64,
}

/// Some times of a panel. A cell is `time * symbols + symbol`.
#[derive(Debug)]
pub struct FeatureChunk {
    /// Starts of the bars, ascending.
    pub times: Vec<TimeMicros>,
    /// Every symbol of the scan, ascending.
    pub symbols: Arc<Vec<String>>,
    /// By cell: what became of the symbol.
    pub status: Vec<Status>,
    /// `[feature][cell]`; NaN for NA.
    pub features: Vec<Vec<f64>>,
    /// Number of its first time among all of the panel, those for windows included.
    pub first: usize,
    /// `[horizon][cell]`; NaN where the return is not known.
    pub forward: Vec<Vec<f64>>,
    /// `[part][cell]`.
    pub uses: Vec<Vec<Use>>,
    /// The times that have rows; those before are for windows.
    pub own: Range<usize>,
    /// Whether only matches are rows.
    matches_only: bool,
}

impl FeatureChunk {
    /// Whether a cell is a row of the panel.
    pub fn is_row(&self, cell: usize) -> bool {
        match self.status[cell] {
            Status::Matched => true,
            Status::NotMatched | Status::Unknown => !self.matches_only,
            Status::Stale | Status::Outside | Status::Failed => false,
        }
    }

    /// The cells of a time.
    pub fn cells(&self, time: usize) -> Range<usize> {
        time * self.symbols.len()..(time + 1) * self.symbols.len()
    }

    /// The cells that are rows, by time and symbol.
    pub fn rows(&self) -> impl Iterator<Item = usize> + '_ {
        let cells = self.own.start * self.symbols.len()..self.own.end * self.symbols.len();
        cells.filter(|cell| self.is_row(*cell))
    }
}

impl<'a> FeaturePanel<'a> {
    /// Checks what is asked for.
    ///
    /// # Errors
    /// [`FeatureError`] for a mistake of the user, or a file that cannot be read.
    pub fn new(prepared: &'a PreparedScan, local: LocalOptions, options: FeatureOptions) -> Result<Self, FeatureError> {
        prepared.check_one().map_err(FeatureError::Many)?;
        if !options.horizons.is_empty() && !Closes::are_in(prepared) {
            return Err(FeatureError::NoClose);
        }
        check_own_bars(prepared)?;
        let own = |name: &&String| name.starts_with(FORWARD_PREFIX) || name.starts_with("split") || *name == "matched";
        if let Some(name) = prepared.plan.headings.iter().find(own) {
            return Err(FeatureError::Name(name.clone()));
        }
        let columns = prepared.plan.headings.len() as u64;
        let held = options.window as u64 * prepared.symbol_count() as u64 * columns * VALUE_BYTES;
        if options.window > WINDOW_MAX || held > WINDOW_BYTES_MAX {
            return Err(FeatureError::Window(options.window));
        }
        let all = prepared.dataset.times()?;
        let end = all.partition_point(|time| *time <= prepared.as_of);
        let first = all.partition_point(|time| options.from.is_some_and(|from| *time < from));
        if first >= end {
            return Err(FeatureError::Empty);
        }
        let lead = options.window.saturating_sub(1).min(first);
        let times = all[first - lead..end].to_vec();
        let furthest = options.horizons.last().copied().unwrap_or(0);
        let parts = match options.split {
            None => Parts::default(),
            Some(by) => Parts::new(prepared, &all, first..end, (by, furthest, options.embargo))?,
        };
        Ok(Self { prepared, local, options, times, lead, parts, chunk_bytes_max: CHUNK_BYTES_MAX })
    }

    /// With chunks of at most so many bytes; the panel does not depend on it.
    #[must_use]
    pub fn in_chunks_of(self, bytes_max: u64) -> Self {
        Self { chunk_bytes_max: bytes_max, ..self }
    }

    /// Whether the dataset's bars cover a day or longer, and have a date in place of a time.
    pub fn is_dated(&self) -> bool {
        self.prepared.dataset.manifest.is_dated()
    }

    /// Names of the features.
    pub fn features(&self) -> &[String] {
        &self.prepared.plan.headings
    }

    /// What the values of each feature are.
    pub fn kinds(&self) -> Vec<ColumnKind> {
        self.prepared.plan.kinds()
    }

    /// Names of the labels.
    pub fn labels(&self) -> Vec<String> {
        self.options.horizons.iter().map(|horizon| format!("{FORWARD_PREFIX}{horizon}")).collect()
    }

    /// The parts into which rows are split.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Every symbol of the scan, ascending.
    pub fn symbols(&self) -> Vec<String> {
        let of = |segment: &u32| self.prepared.symbols_of(*segment);
        let mut symbols: Vec<String> = self.prepared.segments.iter().flat_map(of).collect();
        symbols.sort_unstable();
        symbols
    }

    /// Means and deviations of the features over the training rows of the only part, in the order of time.
    ///
    /// # Errors
    /// Those of [`FeaturePanel::each_chunk`]; [`FeatureError::Folds`] for several parts.
    pub fn fit(&self, cancel: &dyn Cancel) -> Result<Scaler, FeatureError> {
        if self.parts.all.len() > 1 {
            return Err(FeatureError::Folds(self.parts.all.len()));
        }
        let mut scaler = Scaler::of(self.features(), &self.kinds());
        self.each_chunk(cancel, |chunk| {
            scaler.learn(&chunk);
            Ok(())
        })?;
        Ok(scaler)
    }

    /// Computes the panel and passes chunks of times to `take`, in order of time.
    ///
    /// # Errors
    /// [`FeatureError`]; [`AllBarsError::Taker`] with the error of `take`.
    pub fn each_chunk(
        &self,
        cancel: &dyn Cancel,
        take: impl FnMut(FeatureChunk) -> Result<(), String> + Send,
    ) -> Result<(), FeatureError> {
        self.each_chunk_by(None, cancel, take)
    }

    fn each_chunk_by(
        &self,
        device: Option<&DevicePanel>,
        cancel: &dyn Cancel,
        mut take: impl FnMut(FeatureChunk) -> Result<(), String> + Send,
    ) -> Result<(), FeatureError> {
        let every_value = device.is_none() && (!self.options.matches_only || self.options.window > 0);
        let local = LocalOptions { every_value, ..self.local };
        // The chunk of answers and the panel made of it are in memory together.
        let columns = self.prepared.plan.headings.len() as u64;
        let answer = VALUE_BYTES * (columns + self.prepared.plan.rank.len() as u64);
        let own = VALUE_BYTES * (2 * columns + 2 * self.options.horizons.len() as u64);
        let bytes = self.chunk_bytes_max.saturating_mul(answer + ROW_BYTES) / (answer + own + 2 * ROW_BYTES);
        let mut before = 0;
        let from = self.times.first().copied();
        let on = device.map_or((&Engine::Cpu, None), |device| (&device.engine, Some(&device.features)));
        all_bars_on(on, self.prepared, local, from, bytes, cancel, |chunk| {
            let mut features = self.features_of(chunk, self.lead.saturating_sub(before), device.is_none());
            features.first = before;
            before += chunk.times.len();
            self.push_labels(&mut features).map_err(|error| trawl_wire::error::text_of(&error))?;
            take(features)
        })?;
        Ok(())
    }

    /// The rows of a chunk of answers, `lead` times of which are for windows only; without features if they are elsewhere.
    fn features_of(&self, chunk: &PanelChunk, lead: usize, with_features: bool) -> FeatureChunk {
        let width = chunk.symbols.len();
        let cells = chunk.times.len() * width;
        let mut features = FeatureChunk {
            times: chunk.times.clone(),
            symbols: Arc::clone(&chunk.symbols),
            status: vec![Status::Failed; cells],
            features: vec![vec![f64::NAN; cells]; if with_features { self.prepared.plan.headings.len() } else { 0 }],
            first: 0,
            forward: vec![Vec::new(); self.options.horizons.len()],
            uses: Vec::new(),
            own: lead.min(chunk.times.len())..chunk.times.len(),
            matches_only: self.options.matches_only,
        };
        // A time at a time: a chunk's rows are in memory once.
        for time in 0..chunk.times.len() {
            let rows = chunk.rows(time..time + 1);
            for (symbol, status) in rows.symbol.iter().zip(&rows.status) {
                features.status[time * width + *symbol as usize] = *status;
            }
            for (column, values) in features.features.iter_mut().zip(&rows.values) {
                let valued = rows.valued.iter().flat_map(Clone::clone);
                for (row, value) in valued.zip(values) {
                    column[time * width + rows.symbol[row] as usize] = *value;
                }
            }
        }
        features
    }

    /// Adds the labels, and what each row is used for.
    fn push_labels(&self, chunk: &mut FeatureChunk) -> Result<(), MarketError> {
        let width = chunk.symbols.len();
        let furthest = self.options.horizons.last().copied().unwrap_or(0);
        let cells = chunk.status.len();
        chunk.forward = vec![vec![f64::NAN; cells]; self.options.horizons.len()];
        chunk.uses = vec![vec![Use::Train; cells]; self.parts.all.len()];
        if chunk.forward.is_empty() && chunk.uses.is_empty() {
            return Ok(());
        }
        let together = rayon::current_num_threads() * GROUPS_PER_THREAD;
        for groups in self.prepared.segments.chunks(together) {
            let read = |group: &u32| Closes::of_group(self.prepared, *group);
            let found: Vec<Result<Vec<Closes>, MarketError>> = groups.par_iter().map(read).collect();
            for closes in found {
                for closes in closes? {
                    let Ok(symbol) = chunk.symbols.binary_search_by(|name| (**name).cmp(closes.symbol())) else {
                        continue;
                    };
                    let bars = closes.times();
                    let mut at = bars.partition_point(|bar| chunk.times.first().is_some_and(|first| bar < first));
                    for (time, start) in chunk.times.iter().enumerate() {
                        while bars.get(at).is_some_and(|bar| bar < start) {
                            at += 1;
                        }
                        let here = (bars.get(at) == Some(start)).then_some(at);
                        let read = here.or_else(|| late_row(bars, at, *start, self.prepared.plan.max_age));
                        let Some(at) = read else { continue };
                        let cell = time * width + symbol;
                        for (column, horizon) in chunk.forward.iter_mut().zip(&self.options.horizons) {
                            column[cell] = closes.forward(at, *horizon);
                        }
                        let read_until = closes.read_until(at, furthest);
                        for (column, part) in chunk.uses.iter_mut().zip(&self.parts.all) {
                            column[cell] = part.use_of(*start, read_until);
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use trawl_kernels::NoCancel;
    use trawl_market::Store;
    use trawl_plan::ScanDocument;

    use super::*;
    use crate::prepare;

    const SCAN: &str = "dataset = 'us5'\nwhere = 'close > sma(20)'\nselect = ['roc(5) as roc', 'close > sma(50) as up', \
                        'xs_rank(roc(10)) as strength']";

    fn prepared(text: &str) -> PreparedScan {
        prepare(&Store::new("/nowhere".into()), &ScanDocument::from_toml(text).unwrap(), None).unwrap()
    }

    /// Bits of everything that a panel has, row by row, with the windows of its samples.
    fn everything(panel: &FeaturePanel<'_>, scaler: Option<&Scaler>) -> Vec<(TimeMicros, String, Vec<u64>)> {
        let (mut all, mut windows) = (Vec::new(), Windows::new(4));
        let ran = panel.each_chunk(&NoCancel, |mut chunk| {
            if let Some(scaler) = scaler {
                scaler.apply(&mut chunk);
            }
            let width = chunk.symbols.len();
            let mut push = |cell: usize, sample: &[f64]| {
                let labels = chunk.forward.iter().map(|column| column[cell]);
                let mut bits: Vec<u64> = sample.iter().copied().chain(labels).map(f64::to_bits).collect();
                bits.extend(chunk.uses.iter().map(|column| column[cell] as u64));
                bits.push(chunk.status[cell] as u64);
                all.push((chunk.times[cell / width], chunk.symbols[cell % width].clone(), bits));
                Ok::<(), String>(())
            };
            windows.push(&chunk, &mut push)
        });
        ran.unwrap();
        all
    }

    #[test]
    fn a_panel_does_not_depend_on_chunks_or_threads() {
        let scan = prepared(SCAN);
        let times = scan.dataset.times().unwrap();
        let options = FeatureOptions {
            horizons: vec![1, 5],
            from: Some(times[200]),
            split: Some(SplitBy::Time(times[400])),
            embargo: 3,
            window: 4,
            ..FeatureOptions::default()
        };
        let panel = |threads| {
            let local = LocalOptions { threads, ..LocalOptions::default() };
            FeaturePanel::new(&scan, local, options.clone()).unwrap()
        };
        let (whole, cut) = (panel(2), panel(1).in_chunks_of(1));
        let (scaler, same) = (whole.fit(&NoCancel).unwrap(), cut.fit(&NoCancel).unwrap());
        assert_eq!(scaler, same);
        assert!(scaler.features.iter().map(|column| column.name.as_str()).eq(["roc", "strength"]));
        let (whole, cut) = (everything(&whole, Some(&scaler)), everything(&cut, Some(&scaler)));
        assert!(whole.len() > 1000 && whole[0].0 == times[200]);
        assert!(whole == cut);
    }

    #[test]
    fn a_panel_of_a_sweep_or_with_a_name_of_its_own_is_refused() {
        let refused = |text: &str| {
            let scan = prepared(text);
            FeaturePanel::new(&scan, LocalOptions::default(), FeatureOptions::default()).err().unwrap().to_string()
        };
        let sweep = refused("dataset = 'us5'\nwhere = 'close > sma(n)'\n[sweep]\nn = [5, 9]");
        assert!(sweep.contains("2 combinations"), "{sweep}");
        let name = refused("dataset = 'us5'\nwhere = 'true'\nselect = ['close as forward_1']");
        assert!(name.contains("'forward_1'"), "{name}");
    }
}

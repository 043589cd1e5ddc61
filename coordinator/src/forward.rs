//! Returns over the bars that follow: labels of studies and of panels, never part of an answer.
//!
//! The return over `h` bars at a bar is that of the symbol's own close `h` of its bars later. Closes are adjusted by every split
//! that the dataset has, and by dividends where the scan adjusts by them: a label may know what a feature must not.

use std::sync::Arc;

use trawl_market::{Adjustment, AdjustmentMode, LoadedBars, MarketError, TimeMicros};

use crate::prepare::PreparedScan;

const CLOSE: &str = "close";

/// The closes of one symbol.
pub(crate) struct Closes {
    bars: LoadedBars,
}

impl Closes {
    /// Whether a dataset has closes.
    pub(crate) fn are_in(prepared: &PreparedScan) -> bool {
        prepared.dataset.manifest.columns.iter().any(|column| column == CLOSE)
    }

    /// The closes of a group's symbols.
    pub(crate) fn of_group(prepared: &PreparedScan, group: u32) -> Result<Vec<Self>, MarketError> {
        let mode = match prepared.adjustment.mode {
            AdjustmentMode::None => AdjustmentMode::Split,
            mode => mode,
        };
        let adjustment = Adjustment { mode, at_last: true, ..Adjustment::NONE };
        let loaded = prepared.dataset.load_group_adjusted(group, &[CLOSE.to_owned()], &adjustment)?;
        Ok(loaded.into_iter().map(|bars| Self { bars }).collect())
    }

    pub(crate) fn symbol(&self) -> &Arc<str> {
        &self.bars.symbol
    }

    /// Starts of the bars, ascending.
    pub(crate) fn times(&self) -> &[TimeMicros] {
        &self.bars.times
    }

    /// The return over the `horizon` bars after bar number `at`; NaN where there is none.
    pub(crate) fn forward(&self, at: usize, horizon: u32) -> f64 {
        let close = &self.bars.columns[0];
        let later = close.get(at + horizon as usize).copied().unwrap_or(f64::NAN);
        if close[at] > 0.0 { later / close[at] - 1.0 } else { f64::NAN }
    }

    /// The last bar that the returns over up to `horizon` bars after bar number `at` read.
    pub(crate) fn read_until(&self, at: usize, horizon: u32) -> TimeMicros {
        let times = self.times();
        times[(at + horizon as usize).min(times.len() - 1)]
    }
}

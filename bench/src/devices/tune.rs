//! Which streams, batches in flight and bytes of a batch are fastest on a device: `trawl devices tune`.

use std::time::{Duration, Instant};

use anyhow::Result;
use trawl_kernels::cuda::{Executor, ExecutorOptions, Fault, Fleet, Tuned, Tuning};

use super::Size;
use super::work::{Market, Work};

/// Time limit of one device, beside compiling.
pub const TUNING_TIME_MAX: Duration = Duration::from_secs(20);
/// Runs with each choice; the middle one counts.
const RUNS: usize = 3;

/// Finds the best settings. `open` opens the device anew with given options, since what an executor has pinned stays until its device is
/// closed. `None` if the time was over before the usual settings were measured.
///
/// # Errors
/// The device fails, or gives other bits with other settings.
pub fn tune(
    size: &Size,
    usual: &ExecutorOptions,
    open: &dyn Fn(&ExecutorOptions) -> Result<Executor, Fault>,
) -> Result<Option<Tuned>> {
    let market = Market::new(size.symbols, size.bars);
    let work = Work::new(&market)?;
    let usual = ExecutorOptions { wait_for_fused: true, ..usual.clone() };
    let first = open(&usual)?;
    let tuning = first.tuning();
    let (first, mut want) = (Fleet::from(first), Vec::new());
    // Compiles: by the first run, however long that takes.
    work.checked(&first, false, &mut want)?;
    let (mut first, until) = (Some(first), Instant::now() + TUNING_TIME_MAX);
    let measure = |tuning: Tuning| -> Result<Option<Duration>, Fault> {
        if Instant::now() >= until {
            return Ok(None);
        }
        let fleet = match first.take() {
            Some(first) => first,
            None => Fleet::from(open(&tuning.applied(&usual))?),
        };
        let mut times = Vec::with_capacity(RUNS);
        // The first run loads the kernels.
        for run in 0..=RUNS {
            let run_of = work.checked(&fleet, false, &mut want).map_err(|e| Fault::Failed(format!("{e:#}")))?;
            if run > 0 {
                times.push(run_of.took);
            }
        }
        times.sort_unstable();
        Ok(Some(times[RUNS / 2]))
    };
    Ok(Tuning::best(tuning, measure)?)
}

impl Default for Size {
    /// Some 500 MB of bars.
    fn default() -> Self {
        Self { symbols: 8_192, bars: 2_000 }
    }
}

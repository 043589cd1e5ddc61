//! Settings of an executor that depend on the device and change no bit: which there are to choose from, and how the best is found from
//! measured times. Measuring and storing is up to the caller.

use std::time::Duration;

use crate::cuda::device::Fault;
use crate::cuda::execute::device_queue::{Executor, ExecutorOptions};

/// A choice replaces another one if it takes at least this share less time, in thousandths: less may be noise.
const GAIN_LEAST: u32 = 30;

/// Settings of an executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tuning {
    /// As [`ExecutorOptions::streams`].
    pub streams: usize,
    /// As [`ExecutorOptions::batches_in_flight`].
    pub batches_in_flight: usize,
    /// As [`ExecutorOptions::batch_in_bytes_max`].
    pub batch_in_bytes_max: u64,
}

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuned {
    /// The best settings.
    pub tuning: Tuning,
    /// Time of the workload with them.
    pub took: Duration,
    /// Time of the workload with the usual settings.
    pub usual: Duration,
    /// How many settings were measured.
    pub measured: usize,
    /// Whether all were; otherwise the time was over before.
    pub is_complete: bool,
}

impl Tuning {
    /// Numbers of streams to choose from.
    pub const STREAMS: [usize; 4] = [2, 3, 4, 6];
    /// Numbers of batches in flight to choose from.
    pub const BATCHES_IN_FLIGHT: [usize; 3] = [2, 3, 4];
    /// Bytes of a batch to choose from.
    pub const BATCH_IN_BYTES_MAX: [u64; 4] = [32 << 20, 64 << 20, 128 << 20, 256 << 20];

    /// Whether the numbers are among those to choose from: others were not stored by this build.
    pub fn is_known(&self) -> bool {
        Self::STREAMS.contains(&self.streams)
            && Self::BATCHES_IN_FLIGHT.contains(&self.batches_in_flight)
            && Self::BATCH_IN_BYTES_MAX.contains(&self.batch_in_bytes_max)
    }

    /// These settings in place of those of `options`.
    #[must_use]
    pub fn applied(self, options: &ExecutorOptions) -> ExecutorOptions {
        ExecutorOptions {
            streams: self.streams,
            batches_in_flight: Some(self.batches_in_flight),
            batch_in_bytes_max: self.batch_in_bytes_max,
            ..options.clone()
        }
    }

    /// The best settings: one setting after another is varied, and the best is kept, beginning with the usual ones, which are kept in
    /// the end unless the best are better once more. `measure` gives the time of a workload, or `None` once there is no time left:
    /// then the usual ones are kept.
    ///
    /// # Errors
    /// Those of `measure`.
    pub fn best(
        usual: Self,
        mut measure: impl FnMut(Self) -> Result<Option<Duration>, Fault>,
    ) -> Result<Option<Tuned>, Fault> {
        let Some(first) = measure(usual)? else { return Ok(None) };
        let mut best = Tuned { tuning: usual, took: first, usual: first, measured: 1, is_complete: true };
        let varied = |of: usize, best: Self| -> Vec<Self> {
            match of {
                0 => Self::STREAMS.map(|streams| Self { streams, ..best }).to_vec(),
                1 => Self::BATCHES_IN_FLIGHT.map(|batches| Self { batches_in_flight: batches, ..best }).to_vec(),
                _ => Self::BATCH_IN_BYTES_MAX.map(|bytes| Self { batch_in_bytes_max: bytes, ..best }).to_vec(),
            }
        };
        for of in 0..3 {
            let centre = best.tuning;
            for tuning in varied(of, centre).into_iter().filter(|tuning| *tuning != centre) {
                let Some(took) = measure(tuning)? else {
                    return Ok(Some(Tuned { tuning: usual, took: first, is_complete: false, ..best }));
                };
                best.measured += 1;
                if is_gain(best.took, took) {
                    (best.tuning, best.took) = (tuning, took);
                }
            }
        }
        if best.tuning == usual {
            return Ok(Some(best));
        }
        // The best of many is often the luckiest: both are measured again.
        Ok(Some(match (measure(usual)?, measure(best.tuning)?) {
            (Some(before), Some(took)) if is_gain(before, took) => Tuned { usual: before, took, ..best },
            (Some(before), Some(_)) => Tuned { tuning: usual, usual: before, took: before, ..best },
            _ => Tuned { tuning: usual, took: first, is_complete: false, ..best },
        }))
    }
}

/// Whether a time is so much less than the one before that it is no noise.
fn is_gain(before: Duration, took: Duration) -> bool {
    took * 1000 <= before * (1000 - GAIN_LEAST)
}

impl Executor {
    /// The settings that depend on the device and change no bit.
    pub fn tuning(&self) -> Tuning {
        Tuning {
            streams: self.options.streams,
            batches_in_flight: self.in_flight_max,
            batch_in_bytes_max: self.options.batch_in_bytes_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Tuning = Tuning { streams: 4, batches_in_flight: 3, batch_in_bytes_max: 128 << 20 };

    fn found(measure: impl Fn(Tuning) -> u64) -> Tuned {
        let tuned = Tuning::best(USUAL, |tuning| Ok(Some(Duration::from_micros(measure(tuning)))));
        tuned.expect("no fault").expect("time")
    }

    #[test]
    fn the_best_of_each_setting_is_found_and_noise_changes_nothing() {
        let slow = |tuning: Tuning| {
            let streams = if tuning.streams == 6 { 0 } else { 1_000 };
            let batches = 400 * tuning.batches_in_flight as u64;
            10_000 + streams + batches + (tuning.batch_in_bytes_max >> 20)
        };
        let best = found(slow);
        let want = Tuning { streams: 6, batches_in_flight: 2, ..USUAL };
        assert_eq!((best.tuning, best.is_complete), (want, true), "96 us of 10.9 ms for smaller batches are noise");
        assert_eq!((best.usual.as_micros(), best.took.as_micros()), (12_328, 10_928));
        assert_eq!(best.measured, 1 + 3 + 2 + 3);
        assert_eq!(found(|_| 5).tuning, USUAL);
        assert_eq!(found(|tuning| if tuning == USUAL { 1_000 } else { 980 }).tuning, USUAL);
        assert!(best.tuning.is_known() && !Tuning { streams: 5, ..USUAL }.is_known());
    }

    #[test]
    fn without_time_the_usual_settings_stay_and_so_they_do_where_luck_is_not_repeated() {
        let mut left = 3;
        let tuned = Tuning::best(USUAL, |tuning| {
            left -= 1;
            Ok((left > 0).then(|| Duration::from_micros(10 * tuning.streams as u64)))
        });
        let tuned = tuned.expect("no fault").expect("time for two");
        assert_eq!((tuned.tuning, tuned.measured, tuned.is_complete), (USUAL, 2, false));
        // Six streams are fast when they are first measured.
        let mut lucky = 1;
        let tuned = Tuning::best(USUAL, |tuning| {
            let is_lucky = tuning.streams == 6 && std::mem::take(&mut lucky) == 1;
            Ok(Some(Duration::from_micros(if is_lucky { 100 } else { 1_000 })))
        });
        let tuned = tuned.expect("no fault").expect("time");
        assert_eq!((tuned.tuning, tuned.took, tuned.is_complete), (USUAL, tuned.usual, true));
        assert_eq!(Tuning::best(USUAL, |_| Ok(None)), Ok(None));
        let fault = Fault::Failed("it failed".to_owned());
        assert_eq!(Tuning::best(USUAL, |_| Err(fault.clone())), Err(fault.clone()));
    }
}

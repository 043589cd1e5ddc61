//! Which bar a scan answers for.
//!
//! A bar is visible once it is closed, that is when it ends no later than the instant up to which the snapshot is
//! complete. Resolved once, from the snapshot alone: no clock is asked.

use crate::dataset::Dataset;
use crate::error::MarketError;
use crate::time::{DAY, TimeMicros};

/// Which bar is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AsOf {
    /// The newest bar that starts at or before this time; `None` for the last bar of the last complete session.
    pub wanted: Option<TimeMicros>,
    /// Bars that are not closed yet will do.
    pub forming: bool,
}

impl From<Option<TimeMicros>> for AsOf {
    fn from(wanted: Option<TimeMicros>) -> Self {
        Self { wanted, forming: false }
    }
}

impl Dataset {
    /// The time of the bar that is meant:
    /// - `wanted`: the newest closed bar that starts at or before it;
    /// - nothing wanted, dated bars: the newest closed bar;
    /// - nothing wanted, minutes and hours: the last bar of the last regular session that the snapshot completes; the
    ///   newest closed bar when it completes none;
    /// - `forming`: closed or not, the newest bar (at or before `wanted`).
    ///
    /// `None` when there is no such bar.
    ///
    /// # Errors
    /// [`MarketError::Checksum`], [`MarketError::Corrupt`] or [`MarketError::Io`] for the file of times, which is read
    /// only where the manifest does not tell.
    pub fn resolve_as_of(&self, as_of: impl Into<AsOf>) -> Result<Option<TimeMicros>, MarketError> {
        let AsOf { wanted, forming } = as_of.into();
        let manifest = &*self.manifest;
        let last = manifest.last_time;
        if wanted.is_some_and(|wanted| wanted < manifest.first_time) {
            return Ok(None);
        }
        let newest_will_do = forming || !self.is_forming(last);
        if wanted.is_none() && !forming && !self.is_dated() {
            let complete = |t| manifest.calendar().session_at(t).is_some_and(|s| s.close <= manifest.complete_to());
            if complete(last) {
                return Ok(Some(last));
            }
            let times = self.times()?;
            return Ok(self.last_of_session(&times).or_else(|| self.newest(&times, last, false)));
        }
        if newest_will_do && wanted.is_none_or(|wanted| wanted >= last) {
            return Ok(Some(last));
        }
        Ok(self.newest(&self.times()?, wanted.unwrap_or(last), forming))
    }

    /// Whether a bar that starts at a time is not closed yet.
    pub fn is_forming(&self, time: TimeMicros) -> bool {
        self.manifest.bar_end(time) > self.manifest.complete_to()
    }

    fn is_dated(&self) -> bool {
        self.manifest.timeframe.parse::<crate::name::Timeframe>().is_ok_and(crate::name::Timeframe::is_dated)
    }

    fn newest(&self, times: &[TimeMicros], wanted: TimeMicros, forming: bool) -> Option<TimeMicros> {
        // Ends of bars ascend as their starts do.
        let after = times.partition_point(|&t| t <= wanted && (forming || !self.is_forming(t)));
        times[..after].last().copied()
    }

    /// The last bar of the last regular session that is complete and has a bar.
    fn last_of_session(&self, times: &[TimeMicros]) -> Option<TimeMicros> {
        let (calendar, complete_to) = (self.manifest.calendar(), self.manifest.complete_to());
        let mut left = times;
        loop {
            let &newest = left.last()?;
            let session = calendar.session_on(newest).filter(|s| s.open <= newest);
            let session =
                session.or_else(|| calendar.previous_session(newest.saturating_sub(newest.rem_euclid(DAY))))?;
            let (from, to) =
                (left.partition_point(|&t| t < session.open), left.partition_point(|&t| t < session.close));
            if session.close <= complete_to && from < to {
                return Some(left[to - 1]);
            }
            left = &left[..from];
        }
    }
}

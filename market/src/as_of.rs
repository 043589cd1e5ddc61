//! Which bar a scan answers for: what a user may ask for, and the bar of a snapshot that it selects.
//!
//! A bar is visible once it is closed, that is when it ends no later than the instant up to which the snapshot is
//! complete. An as-of is an instant, and selects bars by their END; a date means the end of that day on the exchange's
//! clock. [`Dataset::resolve_as_of`] alone resolves it, once, for every command and for the cluster. The system clock
//! is read only for `now` and `today`.

mod request;

pub use request::{AsOf, AsOfMistake};

use crate::calendar::{Calendar, day};
use crate::dataset::Dataset;
use crate::error::MarketError;
use crate::manifest::Manifest;
use crate::time::{DAY, TimeMicros, add_months, format_time};
use trawl_terms::{TimeUnit, Timeframe};

/// The bar that an as-of selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedAsOf {
    /// The bar's time, that is its start.
    pub bar: TimeMicros,
    /// Set when the bar is not the newest closed one, or when the as-of is after the data: both times, in words.
    pub warning: Option<String>,
    /// Whether the warning is that there is a newer closed bar, which is nothing new for whoever asked for the end of a span.
    pub is_past: bool,
}

impl Dataset {
    /// The selected bar:
    /// - [`AsOf::Newest`]: the newest closed bar, also in the middle of a session;
    /// - [`AsOf::LastSession`]: the last bar of the last regular session that the snapshot covers completely; for bars
    ///   of a day or longer the newest closed one;
    /// - a date or a time: the newest closed bar that ends at or before it;
    /// - with `forming`: the newest bar, closed or not (that begins before the time).
    ///
    /// `clock` is the current time, for `now` and `today`. `None` when there is no such bar.
    ///
    /// # Errors
    /// [`MarketError::Checksum`], [`MarketError::Corrupt`] or [`MarketError::Io`] for the file of times, which is read
    /// only where the manifest is not sufficient; [`MarketError::BadName`] for a time zone abbreviation that the
    /// exchange's zone does not use.
    pub fn resolve_as_of(
        &self,
        as_of: &AsOf,
        forming: bool,
        clock: TimeMicros,
    ) -> Result<Option<ResolvedAsOf>, MarketError> {
        let manifest = &*self.manifest;
        let wanted = as_of.instant(manifest.calendar(), clock)?;
        let bar = match (as_of, wanted) {
            (AsOf::LastSession, _) if !manifest.is_dated() && !forming => self.last_of_session()?,
            (AsOf::Bar(start), _) => self.newest(|t| t <= *start && (forming || !self.is_forming(t)))?,
            (_, Some(at)) if forming => self.newest(|t| manifest.bar_begin(t) < at)?,
            (_, Some(at)) => self.newest(|t| manifest.bar_end(t) <= at && !self.is_forming(t))?,
            (_, None) => self.newest(|t| forming || !self.is_forming(t))?,
        };
        let Some(bar) = bar else { return Ok(None) };
        // A bar that was resolved before was warned about then.
        if matches!(as_of, AsOf::Bar(_)) {
            return Ok(Some(ResolvedAsOf { bar, warning: None, is_past: false }));
        }
        let newest = self.newest(|t| !self.is_forming(t))?.filter(|newest| *newest > bar);
        let warning = match newest {
            Some(newest) => {
                let (at, closed) = (manifest.shown_as_of(bar), manifest.shown_as_of(newest));
                Some(format!("the answer is as of {at}; the newest closed bar is that of {closed}"))
            }
            None => manifest.beyond(as_of, bar, wanted),
        };
        Ok(Some(ResolvedAsOf { bar, warning, is_past: newest.is_some() }))
    }

    /// Whether a bar that starts at a time is not closed yet.
    pub fn is_forming(&self, time: TimeMicros) -> bool {
        self.manifest.bar_end(time) > self.manifest.complete_to()
    }

    /// The last of the snapshot's times that fulfils `wanted`, which must hold for all times before one that fulfils
    /// it.
    fn newest(&self, wanted: impl Fn(TimeMicros) -> bool) -> Result<Option<TimeMicros>, MarketError> {
        let manifest = &*self.manifest;
        if wanted(manifest.last_time) {
            return Ok(Some(manifest.last_time));
        }
        if !wanted(manifest.first_time) {
            return Ok(None);
        }
        let times = self.times()?;
        Ok(times[..times.partition_point(|&t| wanted(t))].last().copied())
    }

    /// The last bar of the last regular session that is complete and has a bar.
    fn last_of_session(&self) -> Result<Option<TimeMicros>, MarketError> {
        let (calendar, complete_to) = (self.manifest.calendar(), self.manifest.complete_to());
        let times = self.times()?;
        let mut left = &times[..];
        while let Some(&newest) = left.last() {
            let session = match calendar.session_at(newest) {
                Some(session) => session,
                // In every time zone the session dated two days later closes after this bar: the search starts there.
                None => {
                    let mut before = calendar.previous_session(day(newest).saturating_add(2 * DAY));
                    while let Some(session) = before.filter(|s| s.open > newest) {
                        before = calendar.previous_session(session.date);
                    }
                    let Some(session) = before else { return Ok(None) };
                    session
                }
            };
            let from = left.partition_point(|&t| t < session.open);
            let to = left.partition_point(|&t| t < session.close);
            if session.close <= complete_to && from < to {
                return Ok(Some(left[to - 1]));
            }
            left = &left[..from];
        }
        Ok(None)
    }
}

impl Manifest {
    /// The warning that an as-of is after the data.
    fn beyond(&self, as_of: &AsOf, bar: TimeMicros, wanted: Option<TimeMicros>) -> Option<String> {
        let (at, missed) = (wanted?, self.expected_after(bar)?);
        (missed <= at).then(|| {
            format!(
                "the as-of {} is after the data: the answer is as of {}, the newest closed bar",
                as_of.shown(self.calendar(), at),
                self.shown_as_of(bar)
            )
        })
    }

    /// The first time of bars in a span that begins with a date or a time: a date is the label of dated bars, else it
    /// begins at midnight on the exchange's clock.
    ///
    /// # Errors
    /// [`MarketError::BadName`] for a time zone abbreviation that the exchange's zone does not use,
    /// [`MarketError::Refused`] for an as-of that is neither a date nor a time.
    pub fn span_start(&self, from: &AsOf) -> Result<TimeMicros, MarketError> {
        match from {
            AsOf::Date(date) if self.is_dated() => Ok(*date),
            AsOf::Date(date) => Ok(self.calendar().zone().to_utc(*date)),
            other => other.fixed(self.calendar(), crate::time::now()),
        }
    }

    /// The last time of bars in a span that ends with a date or a time, both inclusive; otherwise as
    /// [`Manifest::span_start`].
    ///
    /// # Errors
    /// Those of [`Manifest::span_start`].
    pub fn span_end(&self, to: &AsOf) -> Result<TimeMicros, MarketError> {
        match to {
            AsOf::Date(date) if self.is_dated() => Ok(*date),
            AsOf::Date(date) => Ok(self.calendar().zone().end_of_day(*date) - 1),
            other => other.fixed(self.calendar(), crate::time::now()),
        }
    }

    /// The as-of of a bar in identities and files; used as an as-of again it selects the same bar: its end in RFC 3339
    /// UTC, for bars of a day or longer the last date that they cover.
    pub fn as_of_text(&self, bar: TimeMicros) -> String {
        // An instant at midnight is not a date.
        if self.is_dated() { format_time(self.last_date(bar)) } else { AsOf::Instant(self.bar_end(bar)).to_string() }
    }

    /// The same for people: on the exchange's clock, with its zone, as in `2024-06-28 10:31 EDT`.
    pub fn shown_as_of(&self, bar: TimeMicros) -> String {
        if self.is_dated() {
            format_time(self.last_date(bar))
        } else {
            self.calendar().zone().format(self.bar_end(bar))
        }
    }

    /// Whether a bar covers a day or longer, and is therefore labelled by a date.
    pub fn is_dated(&self) -> bool {
        self.timeframe.is_dated()
    }

    /// The date on the exchange's clock at which a bar ends.
    fn last_date(&self, bar: TimeMicros) -> TimeMicros {
        let before_end = self.bar_end(bar).saturating_sub(1);
        day(self.calendar().zone().wall(before_end)).max(day(bar))
    }

    /// When a bar begins: dated ones with their first session, those without a session with their day.
    fn bar_begin(&self, start: TimeMicros) -> TimeMicros {
        if !self.is_dated() {
            return start;
        }
        let calendar = self.calendar();
        let first_date = calendar.period_start(self.timeframe, start);
        let first = calendar.session_on(first_date).or_else(|| calendar.next_session(first_date));
        let end = self.bar_end(start);
        first.filter(|s| s.open < end).map_or_else(|| calendar.zone().to_utc(first_date), |s| s.open)
    }

    /// When the bar that should follow a given one ends, by the calendar; `None` beyond the calendar's years.
    fn expected_after(&self, bar: TimeMicros) -> Option<TimeMicros> {
        let timeframe = self.timeframe;
        let calendar = self.calendar();
        let next = next_start(calendar, timeframe, bar)?;
        calendar.check_known(next).ok()?;
        Some(calendar.bar_end(timeframe, next))
    }
}

/// Where the next regular bar starts.
fn next_start(calendar: Calendar, timeframe: Timeframe, bar: TimeMicros) -> Option<TimeMicros> {
    let count = i64::from(timeframe.count);
    match timeframe.unit {
        TimeUnit::Minute | TimeUnit::Hour => calendar.next_regular(calendar.bar_end(timeframe, bar)),
        // The ordinal of a date without a session is that of the next one.
        TimeUnit::Day => {
            let next = calendar.ordinal(bar).checked_add(count - i64::from(calendar.session_on(bar).is_none()))?;
            calendar.nth(next).map(|s| s.date)
        }
        TimeUnit::Week => bar.checked_add(count * 7 * DAY),
        TimeUnit::Month => Some(add_months(bar, count)),
    }
}

#[cfg(test)]
mod tests;

//! When a bar ends: after its length, or at the session's close or break if that comes first; dated bars at the close
//! of the last session that they cover.

use super::{Calendar, day, weekday};
use crate::time::{DAY, MINUTE, TimeMicros, add_months};
use trawl_terms::{TimeUnit, Timeframe};

impl Calendar {
    /// The instant from which a bar is closed, and therefore visible.
    ///
    /// Minutes and hours: start plus length, but no later than the close of the regular session that contains the
    /// start, or the break after it. Days: the close of the last of its sessions; weeks and months: the close of the
    /// last session within. Where the calendar has no session (a holiday, a weekend, out of range): the end of the date
    /// or the period on the exchange's clock.
    pub fn bar_end(&self, timeframe: Timeframe, start: TimeMicros) -> TimeMicros {
        let count = i64::from(timeframe.count);
        let over = match timeframe.unit {
            TimeUnit::Minute | TimeUnit::Hour => {
                let end = start.saturating_add(timeframe.minutes().unwrap_or(0) * MINUTE);
                return self.session_at(start).map_or(end, |s| end.min(s.stretch(start).1));
            }
            TimeUnit::Day => match self.session_on(start) {
                Some(first) => {
                    let last = self.nth(self.ordinal(first.date).saturating_add(count - 1));
                    return last.map_or_else(|| first.close.saturating_add((count - 1) * DAY), |s| s.close);
                }
                None => day(start).saturating_add(count * DAY),
            },
            TimeUnit::Week => self.period_start(timeframe, start).saturating_add(count * 7 * DAY),
            TimeUnit::Month => add_months(start, count),
        };
        match self.previous_session(over) {
            Some(last) if last.date >= self.period_start(timeframe, start) && self.check_known(over).is_ok() => {
                last.close
            }
            _ => self.zone().to_utc(over),
        }
    }

    /// The first date that a dated bar covers: its label; of weeks the Monday of the label's week and of months the
    /// first, since vendors label them by any day.
    pub(crate) fn period_start(&self, timeframe: Timeframe, label: TimeMicros) -> TimeMicros {
        let date = day(label);
        match timeframe.unit {
            TimeUnit::Week => date.saturating_sub(weekday(date) * DAY),
            TimeUnit::Month => add_months(date, 0),
            TimeUnit::Minute | TimeUnit::Hour | TimeUnit::Day => date,
        }
    }
}

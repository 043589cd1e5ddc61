//! Exchange calendars: which sessions there are, and when each opens and closes.
//!
//! `XNYS` is the New York Stock Exchange, read from a table that comes with the program (holidays, early closes, the
//! change of the clocks); `24/7` has one session per UTC day; `weekdays` is the plain calendar of synthetic markets,
//! Monday to Friday from 14:30 to 21:00 UTC. A bar belongs to the session that holds its start, never to the day in
//! some time zone. Knows nothing of bars that were or were not traded.

mod bar_end;
mod periods;
mod table;

use std::fmt;

pub use periods::CalendarPeriod;

use crate::error::MarketError;
use crate::time::{DAY, MINUTE, TimeMicros, format_time};
use crate::zone::Zone;

/// One regular session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// Its date, as the label of a daily bar: 00:00 UTC.
    pub date: TimeMicros,
    /// First instant.
    pub open: TimeMicros,
    /// First instant after it; at an early close, that one.
    pub close: TimeMicros,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Xnys,
    Always,
    Weekdays,
}

/// A calendar; cheap to copy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Calendar {
    kind: Kind,
}

/// Names that [`Calendar::named`] knows.
pub const CALENDARS: [&str; 3] = ["XNYS", "24/7", "weekdays"];

/// Sessions of the plain weekdays.
const WEEKDAYS_OPEN: i64 = (14 * 60 + 30) * MINUTE;
const WEEKDAYS_CLOSE: i64 = 21 * 60 * MINUTE;
/// Years 1600 to 2500, those that a bar's time may have.
const FIRST_DAY: TimeMicros = -135_140 * DAY;
const LAST_DAY: TimeMicros = 193_943 * DAY;
/// Pre-market trading in New York begins at 04:00, five and a half hours before the regular open.
const XNYS_EARLY: i64 = (5 * 60 + 30) * MINUTE;

impl Calendar {
    /// New York Stock Exchange.
    pub const XNYS: Self = Self { kind: Kind::Xnys };
    /// Every UTC day is a session.
    pub const ALWAYS: Self = Self { kind: Kind::Always };
    /// Monday to Friday, 14:30 to 21:00 UTC.
    pub const WEEKDAYS: Self = Self { kind: Kind::Weekdays };

    /// `XNYS`, `24/7` or `weekdays`.
    ///
    /// # Errors
    /// [`MarketError::BadName`] that lists them.
    pub fn named(name: &str) -> Result<Self, MarketError> {
        match CALENDARS.iter().position(|c| c.eq_ignore_ascii_case(name)) {
            Some(0) => Ok(Self::XNYS),
            Some(1) => Ok(Self::ALWAYS),
            Some(_) => Ok(Self::WEEKDAYS),
            None => Err(MarketError::BadName {
                text: crate::name::shortened(name),
                what: "calendar",
                expected: format!("expected {}", CALENDARS.join(", ")),
            }),
        }
    }

    /// As [`Calendar::named`] takes it.
    pub fn name(&self) -> &'static str {
        match self.kind {
            Kind::Xnys => CALENDARS[0],
            Kind::Always => CALENDARS[1],
            Kind::Weekdays => CALENDARS[2],
        }
    }

    /// The zone whose clock the exchange goes by: New York for `XNYS`, UTC for the others.
    pub fn zone(&self) -> Zone {
        match self.kind {
            Kind::Xnys => Zone::NEW_YORK,
            Kind::Always | Kind::Weekdays => Zone::UTC,
        }
    }

    /// First and last date that the calendar knows (00:00 UTC, both inside). `XNYS`: 1970-01-01 to 2035-12-31.
    pub fn range(&self) -> (TimeMicros, TimeMicros) {
        match self.kind {
            Kind::Xnys => table::xnys().range,
            Kind::Always | Kind::Weekdays => (FIRST_DAY, LAST_DAY),
        }
    }

    /// Refuses an instant whose UTC date the calendar does not know.
    ///
    /// # Errors
    /// [`MarketError::Refused`] that names the range.
    pub fn check_known(&self, t: TimeMicros) -> Result<(), MarketError> {
        let (first, last) = self.range();
        if (first..last.saturating_add(DAY)).contains(&t) {
            return Ok(());
        }
        Err(MarketError::Refused(format!(
            "calendar {} knows the sessions from {} to {}, so not the bar at {}",
            self.name(),
            format_time(first),
            format_time(last),
            format_time(t)
        )))
    }

    /// The session of a date; `None` for holidays, weekends and dates out of range. The clock of `date` is ignored.
    pub fn session_on(&self, date: TimeMicros) -> Option<Session> {
        let date = day(date);
        match self.kind {
            Kind::Xnys => {
                let sessions = &table::xnys().sessions;
                sessions.binary_search_by_key(&date, |s| s.date).ok().map(|i| sessions[i])
            }
            _ if !(FIRST_DAY..=LAST_DAY).contains(&date) => None,
            Kind::Always => Some(Session { date, open: date, close: date + DAY }),
            Kind::Weekdays => (weekday(date) < 5).then_some(Session {
                date,
                open: date + WEEKDAYS_OPEN,
                close: date + WEEKDAYS_CLOSE,
            }),
        }
    }

    /// The regular session that holds an instant: `open <= t < close`.
    pub fn session_at(&self, t: TimeMicros) -> Option<Session> {
        // No session here reaches over midnight UTC.
        self.session_on(t).filter(|s| (s.open..s.close).contains(&t))
    }

    /// Whether an instant lies in a regular session.
    pub fn is_regular(&self, t: TimeMicros) -> bool {
        self.session_at(t).is_some()
    }

    /// The first session after a date; `None` beyond the range.
    pub fn next_session(&self, after_date: TimeMicros) -> Option<Session> {
        let date = day(after_date);
        match self.kind {
            Kind::Xnys => {
                let known = table::xnys();
                let at = known.sessions.partition_point(|s| s.date <= date);
                known.sessions.get(at).copied()
            }
            _ if date < FIRST_DAY => self.session_on(FIRST_DAY).or_else(|| self.next_session(FIRST_DAY)),
            _ => (1..=3).find_map(|days| self.session_on(date.checked_add(days * DAY)?)),
        }
    }

    /// The last session before a date; `None` beyond the range.
    pub fn previous_session(&self, before_date: TimeMicros) -> Option<Session> {
        let date = day(before_date);
        match self.kind {
            Kind::Xnys => {
                let known = table::xnys();
                let at = known.sessions.partition_point(|s| s.date < date);
                at.checked_sub(1).map(|i| known.sessions[i])
            }
            _ if date > LAST_DAY => self.session_on(LAST_DAY).or_else(|| self.previous_session(LAST_DAY)),
            _ => (1..=3).find_map(|days| self.session_on(date.checked_sub(days * DAY)?)),
        }
    }

    /// Number of sessions from 1970-01-01 to before a date; negative before 1970. What multi-day bars are counted by.
    pub(crate) fn ordinal(&self, date: TimeMicros) -> i64 {
        let days = date.div_euclid(DAY);
        match self.kind {
            // The table begins in 1970.
            Kind::Xnys => table::xnys().sessions.partition_point(|s| s.date < day(date)) as i64,
            Kind::Always => days,
            Kind::Weekdays => {
                // Counted from Monday 1969-12-29, three weekdays before.
                let since = days + 3;
                since.div_euclid(7) * 5 + since.rem_euclid(7).min(5) - 3
            }
        }
    }

    /// The session of an ordinal, when the calendar knows it.
    pub(crate) fn nth(&self, ordinal: i64) -> Option<Session> {
        match self.kind {
            Kind::Xnys => table::xnys().sessions.get(usize::try_from(ordinal).ok()?).copied(),
            Kind::Always => self.session_on(ordinal.checked_mul(DAY)?),
            Kind::Weekdays => {
                let since = ordinal.checked_add(3)?;
                let days = since.div_euclid(5).checked_mul(7)? + since.rem_euclid(5) - 3;
                self.session_on(days.checked_mul(DAY)?)
            }
        }
    }

    /// The instant from which trading counts towards a date: where a split or a dividend takes effect. In New York the
    /// beginning of pre-market trading (after-hours bars of the evening before lie before it, even when they lie after
    /// midnight UTC), else 00:00 UTC.
    pub fn trading_day_start(&self, date: TimeMicros) -> TimeMicros {
        let date = day(date);
        let session = self.session_on(date).or_else(|| self.next_session(date));
        match (self.kind, session) {
            (Kind::Xnys, Some(session)) => session.open - XNYS_EARLY,
            _ => date,
        }
    }
}

impl fmt::Debug for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Calendar({})", self.name())
    }
}

/// 00:00 UTC of an instant's date.
pub(crate) fn day(t: TimeMicros) -> TimeMicros {
    t.saturating_sub(t.rem_euclid(DAY))
}

/// 0 for Monday to 6 for Sunday.
pub(crate) fn weekday(date: TimeMicros) -> i64 {
    (date.div_euclid(DAY) + 3).rem_euclid(7)
}

#[cfg(test)]
mod tests;

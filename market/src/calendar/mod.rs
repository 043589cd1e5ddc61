//! Exchange calendars: the sessions, and when each opens, pauses and closes.
//!
//! A calendar is a file of market/data/calendars, which the build finds: adding a calendar means adding a file. `XNYS`
//! is the New York Stock Exchange; `24/7` has one session per UTC day; `weekdays` is the simple calendar of synthetic
//! markets. A bar belongs to the session that contains its start, never to the day in some time zone. A session's date
//! is the trading date, also where it opens on the evening before. A calendar does not know which bars were traded.

mod bar_end;
mod clock;
mod coverage;
mod file;
mod names;
mod periods;
mod sessions;

use std::fmt;

use crate::error::MarketError;
use crate::time::{DAY, TimeMicros, format_time};
use crate::zone::Zone;

include!(concat!(env!("OUT_DIR"), "/calendars.rs"));

/// One regular session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// Its date, as the label of a daily bar: 00:00 UTC.
    pub date: TimeMicros,
    /// First instant; may lie on the date before.
    pub open: TimeMicros,
    /// First instant after it; at an early close, that one.
    pub close: TimeMicros,
    /// A break inside it (lunch): its first instant, and the first after it.
    pub pause: Option<(TimeMicros, TimeMicros)>,
}

impl Session {
    /// A date without a known session is a session of its own, from 00:00 to 24:00 UTC.
    pub(crate) fn of_date(date: TimeMicros) -> Self {
        Self { date, open: date, close: date.saturating_add(DAY), pause: None }
    }

    /// Whether there is trading at an instant: `open <= t < close`, and no break.
    pub fn holds(&self, t: TimeMicros) -> bool {
        (self.open..self.close).contains(&t) && !self.pause.is_some_and(|(from, to)| (from..to).contains(&t))
    }

    /// The uninterrupted range of trading that contains an instant of the session: start and end.
    pub fn stretch(&self, t: TimeMicros) -> (TimeMicros, TimeMicros) {
        match self.pause {
            Some((from, _)) if t < from => (self.open, from),
            Some((_, to)) => (to, self.close),
            None => (self.open, self.close),
        }
    }
}

/// A calendar; cheap to copy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Calendar {
    /// Index into [`CALENDARS`].
    index: u8,
}

impl Calendar {
    /// New York Stock Exchange.
    pub const XNYS: Self = Self::of_file("XNYS");
    /// Every UTC day is a session.
    pub const ALWAYS: Self = Self::of_file("24/7");
    /// Monday to Friday, 14:30 to 21:00 UTC.
    pub const WEEKDAYS: Self = Self::of_file("weekdays");

    // Evaluated only at compile time, where a panic is a build error.
    const fn of_file(name: &str) -> Self {
        let mut index = 0;
        while index < CALENDARS.len() {
            let (known, wanted) = (CALENDARS[index].as_bytes(), name.as_bytes());
            let mut same = 0;
            while same < known.len() && same < wanted.len() && known[same] == wanted[same] {
                same += 1;
            }
            if same == known.len() && same == wanted.len() {
                return Self { index: index as u8 };
            }
            index += 1;
        }
        panic!("the program uses a calendar without a file in data/calendars")
    }

    /// All calendars.
    pub fn all() -> impl Iterator<Item = Self> {
        // The index is one byte; there is a file for each.
        (0..CALENDARS.len()).map(|index| Self { index: index as u8 })
    }

    /// The name that [`Calendar::named`] accepts.
    pub fn name(&self) -> &'static str {
        CALENDARS[usize::from(self.index)]
    }

    /// Full name of the exchange.
    pub fn title(&self) -> &'static str {
        &self.table().rules.title
    }

    /// The time zone of the exchange.
    pub fn zone(&self) -> Zone {
        self.table().rules.zone
    }

    /// First and last date of the calendar (00:00 UTC, both inclusive). `XNYS`: 1970-01-01 to 2035-12-31.
    pub fn range(&self) -> (TimeMicros, TimeMicros) {
        self.table().rules.range
    }

    /// Whether a date lies within the range.
    pub(crate) fn covers(&self, date: TimeMicros) -> bool {
        self.table().covers(day(date))
    }

    /// Refuses an instant for which the calendar does not know whether there is a session.
    ///
    /// # Errors
    /// [`MarketError::Refused`] that names the range.
    pub fn check_known(&self, t: TimeMicros) -> Result<(), MarketError> {
        if self.covers(t) || self.session_at(t).is_some() {
            return Ok(());
        }
        let (first, last) = self.range();
        Err(MarketError::Refused(format!(
            "calendar {} knows the sessions from {} to {}, so not the bar at {}",
            self.name(),
            format_time(first),
            format_time(last),
            format_time(t)
        )))
    }

    /// The session of a date; `None` for holidays, weekends and dates out of range. The time of day of `date` is
    /// ignored.
    pub fn session_on(&self, date: TimeMicros) -> Option<Session> {
        self.table().on(day(date))
    }

    /// The regular session with trading at an instant: `open <= t < close`, and no break.
    pub fn session_at(&self, t: TimeMicros) -> Option<Session> {
        self.table().at(t)
    }

    /// Whether an instant is in a regular session, and in none of its breaks.
    pub fn is_regular(&self, t: TimeMicros) -> bool {
        self.session_at(t).is_some()
    }

    /// The first session after a date; `None` beyond the range.
    pub fn next_session(&self, after_date: TimeMicros) -> Option<Session> {
        self.table().after(day(after_date))
    }

    /// The last session before a date; `None` beyond the range.
    pub fn previous_session(&self, before_date: TimeMicros) -> Option<Session> {
        self.table().before(day(before_date))
    }

    /// The first instant at or after `t` with trading; `None` beyond the range.
    pub(crate) fn next_regular(&self, t: TimeMicros) -> Option<TimeMicros> {
        // The previous session may last until the day after its date.
        let mut session = self.next_session(day(t).saturating_sub(2 * DAY))?;
        while session.close <= t {
            session = self.next_session(session.date)?;
        }
        Some(match session.pause {
            Some((from, to)) if (from..to).contains(&t) => to,
            _ => session.open.max(t),
        })
    }

    /// Number of sessions from 1970-01-01 (or the calendar's first) to before a date; negative before 1970. Multi-day
    /// bars are counted by it.
    pub(crate) fn ordinal(&self, date: TimeMicros) -> i64 {
        self.table().ordinal(day(date))
    }

    /// The session with an ordinal, if it is in the calendar's range.
    pub(crate) fn nth(&self, ordinal: i64) -> Option<Session> {
        self.table().nth(ordinal)
    }

    /// The instant from which trading counts towards a date: where a split or a dividend takes effect. The start of
    /// early trading where the calendar has it (04:00 in New York: after-hours bars of the evening before are before
    /// it, even when they are after midnight UTC), else midnight local time, or the open if that comes first; for a
    /// date without a session, that of the next one. Beyond the calendar's range midnight local time.
    pub fn trading_day_start(&self, date: TimeMicros) -> TimeMicros {
        let (date, table) = (day(date), self.table());
        let midnight = table.rules.zone.to_utc(date);
        if table.is_weekly() || !table.covers(date) {
            return midnight;
        }
        let session = table.on(date).or_else(|| table.after(date));
        session.map_or(midnight, |s| table.rules.zone.to_utc(s.date + table.rules.day_start).min(s.open))
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

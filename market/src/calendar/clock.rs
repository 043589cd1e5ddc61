//! What the calendar says of the time of a bar: how long ago the session opened, the time of day, the day of the week.

use trawl_terms::Clock;

use super::{Calendar, Session, day, weekday};
use crate::time::{DAY, TimeMicros, month_index};

const MINUTE: f64 = 60e6;
const MONTHS: i64 = 12;

/// Remembers the last session and day found, because bars come in order of time.
pub struct ClockReader {
    calendar: Calendar,
    clock: Clock,
    dated: bool,
    session: Option<Session>,
    /// A trading day's date, and the range of times that belong to it.
    day: Option<(TimeMicros, TimeMicros, TimeMicros)>,
}

impl Calendar {
    /// What `clock` says of times. With `dated` the times are dates of bars of a day or longer.
    pub fn clock(&self, clock: Clock, dated: bool) -> ClockReader {
        ClockReader { calendar: *self, clock, dated, session: None, day: None }
    }
}

impl ClockReader {
    /// In minutes, or the number of a day or month. NaN outside of regular sessions and for the time of day of a date.
    pub fn at(&mut self, time: TimeMicros) -> f64 {
        if self.dated && self.clock.is_within_day() {
            return f64::NAN;
        }
        let minutes = |micros: i64| micros as f64 / MINUTE;
        match self.clock {
            Clock::InSession => f64::from(u8::from(self.dated || self.session(time).is_some())),
            Clock::SinceOpen => self.session(time).map_or(f64::NAN, |s| minutes(time - s.open)),
            Clock::ToClose => self.session(time).map_or(f64::NAN, |s| minutes(s.close - time)),
            Clock::TimeOfDay => minutes(self.calendar.zone().wall(time).rem_euclid(DAY)),
            Clock::Weekday => (weekday(self.date(time)) + 1) as f64,
            Clock::Date => self.date(time).div_euclid(DAY) as f64,
            Clock::Month => (month_index(self.date(time)).rem_euclid(MONTHS) + 1) as f64,
        }
    }

    /// The regular session with trading at an instant.
    fn session(&mut self, time: TimeMicros) -> Option<Session> {
        if !self.session.is_some_and(|s| s.holds(time)) {
            self.session = self.calendar.session_at(time);
        }
        self.session
    }

    /// The trading day that an instant belongs to; the date in UTC beyond the calendar's range.
    fn date(&mut self, time: TimeMicros) -> TimeMicros {
        if self.dated {
            return day(time);
        }
        if let Some((date, from, to)) = self.day
            && (from..to).contains(&time)
        {
            return date;
        }
        let found = self.calendar.trading_day(time);
        self.day = Some(found);
        found.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::parse_time;

    fn clock(calendar: Calendar, clock: Clock, dated: bool, times: &[&str]) -> Vec<f64> {
        let mut reader = calendar.clock(clock, dated);
        times.iter().map(|t| reader.at(parse_time(t).expect("a time"))).collect()
    }

    fn shown(values: &[f64]) -> String {
        values.iter().map(f64::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn minutes_count_from_the_open_and_to_an_early_close() {
        // In summer and in winter New York opens at 13:30 and 14:30 UTC; on 2024-07-03 it closed at 13:00 there.
        let times = [
            "2024-07-03T13:29:00Z",
            "2024-07-03T13:30:00Z",
            "2024-07-03T16:59:00Z",
            "2024-07-03T17:00:00Z",
            "2024-12-06T14:30:30Z",
            "2024-12-07T15:00:00Z",
        ];
        assert_eq!(shown(&clock(Calendar::XNYS, Clock::SinceOpen, false, &times)), "NaN 0 209 NaN 0.5 NaN");
        assert_eq!(shown(&clock(Calendar::XNYS, Clock::ToClose, false, &times)), "NaN 210 1 NaN 389.5 NaN");
        assert_eq!(shown(&clock(Calendar::XNYS, Clock::TimeOfDay, false, &times)), "569 570 779 780 570.5 600");
        assert_eq!(shown(&clock(Calendar::XNYS, Clock::SinceOpen, true, &["2024-07-03"])), "NaN");
    }

    #[test]
    fn days_and_months_are_those_of_the_trading_day() {
        // After-hours trading of Friday the 31st ends on Saturday in UTC.
        let times = ["2024-05-31T20:30:00Z", "2024-06-01T00:30:00Z", "2024-06-03T08:00:00Z"];
        assert_eq!(shown(&clock(Calendar::XNYS, Clock::Weekday, false, &times)), "5 5 1");
        assert_eq!(shown(&clock(Calendar::XNYS, Clock::Month, false, &times)), "5 5 6");
        assert_eq!(shown(&clock(Calendar::ALWAYS, Clock::Weekday, false, &times)), "5 6 1");
        assert_eq!(shown(&clock(Calendar::XNYS, Clock::Weekday, true, &["2024-06-01", "2024-12-31"])), "6 2");
        assert_eq!(shown(&clock(Calendar::XNYS, Clock::Month, true, &["2024-06-01", "2024-12-31"])), "6 12");
    }
}

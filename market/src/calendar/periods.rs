//! Which bars are the first of a session, a day, a week, a month.

use trawl_terms::Period;

use super::{Calendar, day, weekday};
use crate::time::{DAY, TimeMicros, month_index};

/// Remembers the last day found, because bars come in order of time.
struct Days<'a> {
    calendar: &'a Calendar,
    session: bool,
    /// A day's date, and the range of times that belong to it.
    known: Option<(TimeMicros, TimeMicros, TimeMicros)>,
}

impl Days<'_> {
    fn begin(&self, date: TimeMicros) -> TimeMicros {
        match self.calendar.session_on(date) {
            Some(session) if self.session => session.open,
            _ => self.calendar.trading_day_start(date),
        }
    }

    /// The date of the last session that had begun by `time`; beyond the calendar's range the date in UTC.
    fn date(&mut self, time: TimeMicros) -> TimeMicros {
        if let Some((date, from, to)) = self.known
            && (from..to).contains(&time)
        {
            return date;
        }
        let found = self.find(time);
        self.known = Some(found);
        found.0
    }

    /// That date, and from when to when it is the date.
    fn find(&self, time: TimeMicros) -> (TimeMicros, TimeMicros, TimeMicros) {
        // A session may begin on the day before its date.
        let mut found = self.calendar.previous_session(day(time).saturating_add(2 * DAY));
        while let Some(session) = found.filter(|s| self.begin(s.date) > time) {
            found = self.calendar.previous_session(session.date);
        }
        let last = self.calendar.range().1.saturating_add(DAY);
        let Some(found) = found.filter(|s| time < last.max(s.close)) else {
            let date = day(time);
            return (date, date, date.saturating_add(DAY));
        };
        let to = self.calendar.next_session(found.date).map_or(last, |s| self.begin(s.date));
        (found.date, self.begin(found.date), to)
    }
}

impl Calendar {
    /// The date of the trading day that an instant belongs to, and the instants from which and to which it does; beyond the
    /// calendar's range the date in UTC.
    pub(super) fn trading_day(&self, time: TimeMicros) -> (TimeMicros, TimeMicros, TimeMicros) {
        Days { calendar: self, session: false, known: None }.find(time)
    }

    /// For each of `times`, which ascend, whether it is the first of its period. With `dated` the times are dates of
    /// bars of a day or longer.
    pub fn begins(&self, period: Period, dated: bool, times: &[TimeMicros]) -> Vec<bool> {
        let mut days = Days { calendar: self, session: period == Period::Session, known: None };
        let mut before = None;
        let begins = times.iter().map(|&time| {
            let date = if dated { day(time) } else { days.date(time) };
            let name = match period {
                Period::Session | Period::Day => date,
                Period::Week => date - weekday(date) * DAY,
                Period::Month => month_index(date),
            };
            before.replace(name) != Some(name)
        });
        begins.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::parse_time;

    fn begins(calendar: Calendar, period: Period, times: &[&str]) -> String {
        let times: Vec<TimeMicros> = times.iter().map(|t| parse_time(t).expect("a time")).collect();
        let dated = times.iter().all(|t| t % DAY == 0);
        calendar.begins(period, dated, &times).iter().map(|b| if *b { '1' } else { '0' }).collect()
    }

    #[test]
    fn sessions_begin_at_the_open_and_days_with_early_trading() {
        // New York in winter: open 14:30 UTC, early trading from 09:00; after-hours end past midnight UTC.
        let times = [
            "2024-01-05T20:59:00Z",
            "2024-01-05T23:30:00Z",
            "2024-01-06T00:30:00Z",
            "2024-01-08T09:00:00Z",
            "2024-01-08T14:29:00Z",
            "2024-01-08T14:30:00Z",
            "2024-01-08T14:31:00Z",
            "2024-01-09T14:30:00Z",
        ];
        assert_eq!(begins(Calendar::XNYS, Period::Session, &times), "10000101");
        assert_eq!(begins(Calendar::XNYS, Period::Day, &times), "10010001");
        assert_eq!(begins(Calendar::XNYS, Period::Week, &times), "10010000");
        assert_eq!(begins(Calendar::XNYS, Period::Month, &times), "10000000");
    }

    #[test]
    fn weeks_of_different_years_are_different_and_a_missing_first_bar_changes_nothing() {
        // Week 1 of two years; Monday 2025-12-29 is of the week of 2026-01-02.
        let dates = ["2024-12-31", "2025-01-02", "2025-01-06", "2025-12-29", "2026-01-02", "2026-01-05"];
        assert_eq!(begins(Calendar::XNYS, Period::Week, &dates), "101101");
        assert_eq!(begins(Calendar::XNYS, Period::Month, &dates), "110110");
        assert_eq!(begins(Calendar::XNYS, Period::Session, &dates), "111111");
        // The session's first minutes are missing.
        let late = ["2024-01-08T20:00:00Z", "2024-01-09T15:10:00Z", "2024-01-09T15:11:00Z"];
        assert_eq!(begins(Calendar::XNYS, Period::Session, &late), "110");
    }

    #[test]
    fn days_of_a_market_around_the_clock_are_utc_days() {
        let times = ["2024-01-07T23:59:00Z", "2024-01-08T00:00:00Z", "2024-01-08T12:00:00Z"];
        assert_eq!(begins(Calendar::ALWAYS, Period::Session, &times), "110");
        assert_eq!(begins(Calendar::ALWAYS, Period::Week, &times), "110");
    }
}

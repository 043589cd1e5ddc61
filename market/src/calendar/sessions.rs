//! The sessions of a calendar, computed from the rules of its file at first use and kept for the life of the process.
//!
//! Rules in UTC without holidays are evaluated arithmetically, so that they cover all years that a bar may have; for
//! other calendars every session is listed.

use std::sync::OnceLock;

use super::file::Rules;
use super::{CALENDARS, Calendar, Session, TEXTS, day};
use crate::time::{DAY, TimeMicros};
use crate::zone::Zone;

/// A parsed calendar.
#[derive(Debug)]
pub(super) struct Table {
    pub rules: Rules,
    sessions: Sessions,
}

#[derive(Debug)]
enum Sessions {
    /// The same hours on the same weekdays of every week, in microseconds since 00:00 UTC.
    Weekly { days: [bool; 7], open: i64, close: i64 },
    /// Every session, ascending.
    Listed(Vec<Session>),
}

/// Days from Monday 1969-12-29, the start of week counting, to 1970-01-01.
const DAYS_BEFORE_1970: i64 = 3;

impl Calendar {
    pub(super) fn table(self) -> &'static Table {
        static READ: [OnceLock<Table>; CALENDARS.len()] = [const { OnceLock::new() }; CALENDARS.len()];
        let at = usize::from(self.index);
        READ[at].get_or_init(|| Table::new(Rules::read(TEXTS[at])))
    }
}

impl Table {
    pub fn new(rules: Rules) -> Self {
        let plain = rules.zone == Zone::UTC && rules.closed.is_empty() && rules.special.is_empty();
        let sessions = match rules.hours[..] {
            [(_, h)] if plain && h.pause.is_none() && h.open >= 0 && h.close <= DAY && rules.days.contains(&true) => {
                Sessions::Weekly { days: rules.days, open: h.open, close: h.close }
            }
            _ => Sessions::Listed(list(&rules)),
        };
        Self { rules, sessions }
    }

    /// Whether every week has the same sessions in UTC.
    pub fn is_weekly(&self) -> bool {
        matches!(self.sessions, Sessions::Weekly { .. })
    }

    /// Whether a date (00:00 UTC) is covered.
    pub fn covers(&self, date: TimeMicros) -> bool {
        (self.rules.range.0..=self.rules.range.1).contains(&date)
    }

    pub fn on(&self, date: TimeMicros) -> Option<Session> {
        match &self.sessions {
            Sessions::Weekly { days, open, close } => (self.covers(date) && days[super::weekday(date) as usize])
                .then(|| Session { date, open: date + open, close: date + close, pause: None }),
            Sessions::Listed(list) => list.binary_search_by_key(&date, |s| s.date).ok().map(|i| list[i]),
        }
    }

    /// The session that contains an instant, breaks excluded.
    pub fn at(&self, t: TimeMicros) -> Option<Session> {
        let session = match &self.sessions {
            Sessions::Weekly { .. } => self.on(day(t)),
            Sessions::Listed(list) => {
                list.partition_point(|s| s.open <= t).checked_sub(1).and_then(|i| list.get(i).copied())
            }
        };
        session.filter(|s| s.holds(t))
    }

    /// The first session after a date.
    pub fn after(&self, date: TimeMicros) -> Option<Session> {
        match &self.sessions {
            Sessions::Weekly { .. } => {
                let from = date.max(self.rules.range.0 - DAY);
                (1..=7).find_map(|days| self.on(from.checked_add(days * DAY)?))
            }
            Sessions::Listed(list) => list.get(list.partition_point(|s| s.date <= date)).copied(),
        }
    }

    /// The last session before a date.
    pub fn before(&self, date: TimeMicros) -> Option<Session> {
        match &self.sessions {
            Sessions::Weekly { .. } => {
                let from = date.min(self.rules.range.1 + DAY);
                (1..=7).find_map(|days| self.on(from.checked_sub(days * DAY)?))
            }
            Sessions::Listed(list) => list.partition_point(|s| s.date < date).checked_sub(1).map(|i| list[i]),
        }
    }

    /// Number of sessions from 1970-01-01, or from the first that is listed, to before a date; negative before 1970.
    pub fn ordinal(&self, date: TimeMicros) -> i64 {
        match &self.sessions {
            Sessions::Weekly { days, .. } => {
                let before = |weekday: i64| days.iter().zip(0..weekday).filter(|(open, _)| **open).count() as i64;
                let since = date.div_euclid(DAY) + DAYS_BEFORE_1970;
                since.div_euclid(7) * before(7) + before(since.rem_euclid(7)) - before(DAYS_BEFORE_1970)
            }
            Sessions::Listed(list) => list.partition_point(|s| s.date < date) as i64,
        }
    }

    /// The session with an ordinal, if it is in the calendar's range.
    pub fn nth(&self, ordinal: i64) -> Option<Session> {
        match &self.sessions {
            Sessions::Weekly { days, .. } => {
                let mut open = (0i64..).zip(days).filter(|(_, open)| **open).map(|(weekday, _)| weekday);
                let skipped = open.clone().filter(|weekday| *weekday < DAYS_BEFORE_1970).count() as i64;
                let (since, week) = (ordinal.checked_add(skipped)?, open.clone().count() as i64);
                let weekday = open.nth(usize::try_from(since.rem_euclid(week)).ok()?)?;
                let days = since.div_euclid(week).checked_mul(7)?.checked_add(weekday - DAYS_BEFORE_1970)?;
                self.on(days.checked_mul(DAY)?)
            }
            Sessions::Listed(list) => list.get(usize::try_from(ordinal).ok()?).copied(),
        }
    }
}

/// Every session of the range, converted from local time to UTC.
fn list(rules: &Rules) -> Vec<Session> {
    let mut clock = Clock { zone: rules.zone, stretch: (0, 0), offset: None };
    let mut sessions = Vec::new();
    let mut date = rules.range.0;
    while date <= rules.range.1 {
        if let Some(hours) = rules.hours_of(date) {
            let mut utc = |of_day: i64| clock.utc(date + of_day);
            let pause = hours.pause.map(|(from, to)| (utc(from), utc(to)));
            sessions.push(Session { date, open: utc(hours.open), close: utc(hours.close), pause });
        }
        date += DAY;
    }
    debug_assert!(sessions.is_sorted_by(|a, b| a.close <= b.open));
    sessions
}

/// Converts local times that mostly ascend; looks up the zone once per interval of constant offset.
struct Clock {
    zone: Zone,
    stretch: (TimeMicros, TimeMicros),
    offset: Option<i64>,
}

impl Clock {
    /// Within so short a time no zone changes its offset twice and ends with the first one; a test compares every
    /// session.
    const STRETCH: i64 = 14 * DAY;

    fn utc(&mut self, wall: TimeMicros) -> TimeMicros {
        if !(self.stretch.0..self.stretch.1).contains(&wall) {
            let from = day(wall) - DAY;
            self.stretch = (from, from + Self::STRETCH);
            let [first, last] = [from, from + Self::STRETCH].map(|wall| wall - self.zone.to_utc(wall));
            self.offset = (first == last).then_some(first);
        }
        self.offset.map_or_else(|| self.zone.to_utc(wall), |offset| wall - offset)
    }
}

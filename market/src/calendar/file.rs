//! Parser for a file of market/data/calendars: rules in the exchange's local time (docs/calendars.md).
//!
//! The files are part of the program, so lines that cannot be read are skipped; a test checks that there are none.

use std::collections::BTreeMap;

use super::weekday;
use crate::time::{DAY, MINUTE, TimeMicros, parse_time};
use crate::zone::Zone;

/// Trading hours of a date in the exchange's local time, in microseconds since 00:00 of it; negative on the evening
/// before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hours {
    pub open: i64,
    pub close: i64,
    /// A break: start and end.
    pub pause: Option<(i64, i64)>,
}

/// A file's content.
#[derive(Debug)]
pub(super) struct Rules {
    /// Full name of the exchange.
    pub title: String,
    /// Other common names of it.
    pub also: Vec<String>,
    pub zone: Zone,
    /// First and last date.
    pub range: (TimeMicros, TimeMicros),
    /// Before this date the exchange's actual hours are not known.
    pub hours_known: TimeMicros,
    /// When trading begins to count towards a date, in microseconds since 00:00 local time.
    pub day_start: i64,
    /// Weekdays with a session, Monday first.
    pub days: [bool; 7],
    /// Hours from a date on, ascending.
    pub hours: Vec<(TimeMicros, Hours)>,
    pub closed: Vec<TimeMicros>,
    /// Dates with exceptional hours; may be weekends.
    pub special: BTreeMap<TimeMicros, Hours>,
    /// Lines that could not be read.
    pub unread: Vec<String>,
}

const WEEKDAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

impl Rules {
    pub fn read(text: &str) -> Self {
        let mut rules = Self {
            title: String::new(),
            also: Vec::new(),
            zone: Zone::UTC,
            // Later than any date.
            range: (0, -DAY),
            hours_known: TimeMicros::MIN,
            day_start: 0,
            days: [true, true, true, true, true, false, false],
            hours: Vec::new(),
            closed: Vec::new(),
            special: BTreeMap::new(),
            unread: Vec::new(),
        };
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
            if rules.line(key, rest).is_none() {
                rules.unread.push(line.to_owned());
            }
        }
        rules.closed.sort_unstable();
        rules
    }

    fn line(&mut self, key: &str, rest: &str) -> Option<()> {
        let words: Vec<&str> = rest.split_ascii_whitespace().collect();
        match (key, &words[..]) {
            ("name", [_]) => {}
            ("title", [_, ..]) => rest.clone_into(&mut self.title),
            ("also", names) => self.also.extend(names.iter().map(|name| (*name).to_owned())),
            ("zone", [name]) => self.zone = Zone::named(name).ok()?,
            ("range", [first, last]) => self.range = (parse_time(first)?, parse_time(last)?),
            ("hours-known", [date]) => self.hours_known = parse_time(date)?,
            ("day-start", [time]) => self.day_start = clock(time)?,
            ("days", names) => self.days = WEEKDAYS.map(|day| names.contains(&day)),
            ("hours", [date, stretches @ ..]) => {
                let since = parse_time(date)?;
                if self.hours.last().is_some_and(|(before, _)| *before >= since) {
                    return None;
                }
                self.hours.push((since, hours(stretches)?));
            }
            ("closed", [year, days @ ..]) => {
                for date in days {
                    self.closed.push(day_of(year, date)?);
                }
            }
            ("special", [year, rest @ ..]) => {
                let (stretches, days): (Vec<&str>, Vec<&str>) = rest.iter().partition(|word| word.contains(':'));
                let hours = hours(&stretches)?;
                for date in days {
                    self.special.insert(day_of(year, date)?, hours);
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// The hours of a date, if it has a session.
    pub fn hours_of(&self, date: TimeMicros) -> Option<Hours> {
        if let Some(hours) = self.special.get(&date) {
            return Some(*hours);
        }
        // Below 7.
        if !self.days[weekday(date) as usize] || self.closed.binary_search(&date).is_ok() {
            return None;
        }
        // Dates before the first rule use that one.
        let after = self.hours.partition_point(|(since, _)| *since <= date);
        self.hours.get(after.saturating_sub(1)).map(|(_, hours)| *hours)
    }
}

fn day_of(year: &str, date: &str) -> Option<TimeMicros> {
    parse_time(&format!("{year}-{date}"))
}

/// `09:00-15:30`, or two ranges with a break between them.
fn hours(stretches: &[&str]) -> Option<Hours> {
    let hours = match stretches {
        [one] => {
            let (open, close) = stretch(one)?;
            Hours { open, close, pause: None }
        }
        [morning, afternoon] => {
            let ((open, pause), (resumed, close)) = (stretch(morning)?, stretch(afternoon)?);
            Hours { open, close, pause: Some((pause, resumed)) }
        }
        _ => return None,
    };
    let ordered = hours.pause.is_none_or(|(from, to)| hours.open < from && from < to && to < hours.close);
    (ordered && hours.open < hours.close).then_some(hours)
}

fn stretch(text: &str) -> Option<(i64, i64)> {
    let (open, close) = text.rsplit_once('-')?;
    Some((clock(open)?, clock(close)?))
}

/// `09:30`; `-1d17:00` is on the evening before, `26:00` is two o'clock in the following night.
fn clock(text: &str) -> Option<i64> {
    let (days, text) = text.strip_prefix("-1d").map_or((0, text), |text| (-1, text));
    let (hours, minutes) = text.split_once(':')?;
    let (hours, minutes) = (hours.parse::<u8>().ok()?, minutes.parse::<u8>().ok()?);
    (hours < 48 && minutes < 60).then_some(days * DAY + (i64::from(hours) * 60 + i64::from(minutes)) * MINUTE)
}

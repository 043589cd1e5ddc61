//! The forms of an as-of that a user may write.

use std::fmt;

use crate::calendar::{Calendar, day};
use crate::error::MarketError;
use crate::name::shortened;
use crate::time::{DAY, TimeMicros, YearFirst, format_time, parse_year_first};

/// The as-of of a scan, before it is known which snapshot it applies to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AsOf {
    /// The newest closed bar.
    #[default]
    Newest,
    /// The last bar of the last complete regular session.
    LastSession,
    /// The current time.
    Now,
    /// The end of the current day on the exchange's clock.
    Today,
    /// The end of a date (its 00:00 UTC) on the exchange's clock.
    Date(TimeMicros),
    /// An instant.
    Instant(TimeMicros),
    /// A time on the exchange's clock, with its abbreviation if one was written.
    Wall(TimeMicros, Option<String>),
    /// The bar that starts at a time, or the newest before it: an as-of that was resolved already.
    Bar(TimeMicros),
}

/// A bar that was resolved before, else the newest closed one.
impl From<Option<TimeMicros>> for AsOf {
    fn from(bar: Option<TimeMicros>) -> Self {
        bar.map_or(Self::Newest, Self::Bar)
    }
}

/// The keywords and their meaning.
const WORDS: [(&str, AsOf); 3] = [("now", AsOf::Now), ("today", AsOf::Today), ("last-session", AsOf::LastSession)];

/// A text that is not an as-of.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AsOfMistake {
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: String,
}

impl AsOf {
    /// Parses `now`, `today`, `last-session`, a date (`2024-06-28`), a time on the exchange's clock (`2024-06-28
    /// 10:31`, `2024-06-28 10:31 EDT`), or an instant (`2024-06-28T14:31:00Z`, with an offset, or an epoch). Dates have
    /// the year first or the month by name.
    ///
    /// # Errors
    /// [`AsOfMistake`] for anything else, in particular for dates whose day and month could be exchanged.
    pub fn parse(text: &str) -> Result<Self, AsOfMistake> {
        const HELP: &str = "write a date as 2013-02-22 (to the end of that day), a time on the exchange's clock as \
            '2013-02-22 14:30', an instant as 2013-02-22T14:30:00Z or with its offset, or now, today or last-session";
        let text = text.trim();
        if let Some((_, word)) = WORDS.iter().find(|(word, _)| word.eq_ignore_ascii_case(text)) {
            return Ok(word.clone());
        }
        if let Some(read) = parse_year_first(text) {
            return Ok(match read {
                YearFirst::Date(date) => Self::Date(date),
                YearFirst::Instant(at) => Self::Instant(at),
                YearFirst::Wall(at, zone) => Self::Wall(at, zone),
            });
        }
        let shown = shortened(text);
        Err(match both_orders(text) {
            Some(help) => AsOfMistake {
                message: format!("the date '{shown}' does not say which number is the month"),
                help: format!("write the year first: {help}"),
            },
            None => AsOfMistake { message: format!("'{shown}' is not a date or a time"), help: HELP.to_owned() },
        })
    }

    /// The instant on an exchange's clock; `None` where it depends on the bars.
    pub(super) fn instant(&self, calendar: Calendar, clock: TimeMicros) -> Result<Option<TimeMicros>, MarketError> {
        let zone = calendar.zone();
        Ok(Some(match self {
            Self::Newest | Self::LastSession | Self::Bar(_) => return Ok(None),
            Self::Now => clock,
            Self::Today => zone.end_of_day(day(zone.wall(clock))),
            Self::Date(date) => zone.end_of_day(*date),
            Self::Instant(at) => *at,
            Self::Wall(wall, None) => zone.to_utc(*wall),
            Self::Wall(wall, Some(name)) => zone.to_utc_named(*wall, name).ok_or_else(|| MarketError::BadName {
                text: shortened(name),
                what: "time zone of the as-of",
                expected: format!(
                    "calendar {} uses {}, which is {} at that time; write an offset such as -05:00 for another zone",
                    calendar.name(),
                    zone.name(),
                    zone.abbreviation(zone.to_utc(*wall))
                ),
            })?,
        }))
    }

    /// The instant of a date or a time, whatever the bars are.
    ///
    /// # Errors
    /// [`MarketError::Refused`] where it depends on the bars; [`MarketError::BadName`] for a time zone abbreviation that
    /// the exchange's zone does not use.
    pub(crate) fn fixed(&self, calendar: Calendar, clock: TimeMicros) -> Result<TimeMicros, MarketError> {
        let refused = || MarketError::Refused(format!("'{self}' is not a date or a time"));
        self.instant(calendar, clock)?.ok_or_else(refused)
    }

    /// The as-of as the user wrote it, with the exchange's zone if it is a time.
    pub(super) fn shown(&self, calendar: Calendar, at: TimeMicros) -> String {
        match self {
            Self::Date(date) => format_time(*date),
            _ => calendar.zone().format(at),
        }
    }
}

/// Accepted by [`AsOf::parse`]; [`AsOf::Newest`] is empty.
impl fmt::Display for AsOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((word, _)) = WORDS.iter().find(|(_, as_of)| as_of == self) {
            return f.write_str(word);
        }
        match self {
            Self::Date(date) => f.write_str(&format_time(*date)),
            // A date alone would mean the end of the day.
            Self::Instant(at) | Self::Bar(at) if at.rem_euclid(DAY) == 0 => {
                write!(f, "{}T00:00:00Z", format_time(*at))
            }
            Self::Instant(at) | Self::Bar(at) => f.write_str(&format_time(*at)),
            Self::Wall(wall, zone) => {
                let text = match wall.rem_euclid(DAY) {
                    0 => format!("{}T00:00:00", format_time(*wall)),
                    _ => format_time(*wall).trim_end_matches('Z').to_owned(),
                };
                f.write_str(&text)?;
                zone.as_ref().map_or(Ok(()), |zone| write!(f, " {zone}"))
            }
            _ => Ok(()),
        }
    }
}

/// A date with the year last, rewritten in the two ways that it could mean.
fn both_orders(text: &str) -> Option<String> {
    use crate::time::{DateOrder, parse_time_in_order};
    let date = text.split([' ', 'T']).next().filter(|date| parse_year_first(date).is_none())?;
    let read = |order| parse_time_in_order(date, order).map(|t| format_time(day(t)));
    let mut meant: Vec<String> = [DateOrder::DayFirst, DateOrder::MonthFirst].into_iter().filter_map(read).collect();
    meant.dedup();
    (!meant.is_empty()).then(|| meant.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::parse_time;

    fn at(text: &str) -> TimeMicros {
        parse_time(text).unwrap()
    }

    #[test]
    fn every_way_to_write_an_as_of_is_read_and_written_back() {
        for (text, expected) in [
            ("now", AsOf::Now),
            ("Today", AsOf::Today),
            ("last-session", AsOf::LastSession),
            ("2024-06-28", AsOf::Date(at("2024-06-28"))),
            ("20240628", AsOf::Date(at("2024-06-28"))),
            ("28-Jun-2024", AsOf::Date(at("2024-06-28"))),
            ("2024-06-28T14:31:00Z", AsOf::Instant(at("2024-06-28 14:31"))),
            ("2024-06-28T00:00:00Z", AsOf::Instant(at("2024-06-28"))),
            ("2024-06-28 10:31-04:00", AsOf::Instant(at("2024-06-28 14:31"))),
            ("1719585060", AsOf::Instant(at("2024-06-28 14:31"))),
            ("2024-06-28 10:31", AsOf::Wall(at("2024-06-28 10:31"), None)),
            ("2024-06-28 00:00", AsOf::Wall(at("2024-06-28"), None)),
            ("2024-06-28 10:31 EDT", AsOf::Wall(at("2024-06-28 10:31"), Some("EDT".to_owned()))),
        ] {
            let read = AsOf::parse(text).unwrap();
            assert_eq!(read, expected, "{text}");
            assert_eq!(AsOf::parse(&read.to_string()).unwrap(), expected, "{text} written as {read}");
        }
    }

    #[test]
    fn a_date_that_could_be_read_in_two_ways_is_refused_with_both() {
        let mistake = AsOf::parse("05/06/2024").unwrap_err();
        assert!(mistake.help.contains("2024-06-05 or 2024-05-06"), "{mistake:?}");
        for (text, meant) in [("13/06/2024", "2024-06-13"), ("13.06.2024", "2024-06-13"), ("5-6-2024 10:30", "or")] {
            assert!(AsOf::parse(text).unwrap_err().help.contains(meant), "{text}");
        }
        for text in ["", "yesterday", "2024-13-01", "12", "now and then", "2024-06-28 25:00"] {
            assert!(AsOf::parse(text).unwrap_err().help.contains("last-session"), "{text}");
        }
    }
}

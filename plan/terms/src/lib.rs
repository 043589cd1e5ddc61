//! Terms that plans, bars and kernels share: parsed once where a text comes in, passed on as types. No I/O.

#![forbid(unsafe_code)]

mod precision;
mod priority;
mod suggest;
mod timeframe;

use std::ops::RangeInclusive;

pub use precision::Precision;
pub use priority::Priority;
pub use suggest::suggest;
pub use timeframe::{TimeUnit, Timeframe, TimeframeError};

/// Periods of time by which bars are grouped, by the dataset's calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Period {
    /// From the open of a regular session to the next open.
    Session,
    /// A trading day, its early and late trading included.
    Day,
    /// Monday to Sunday, by the trading day.
    Week,
    /// A calendar month, by the trading day.
    Month,
}

/// What the values of an attribute of symbols are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributeKind {
    /// Numbers.
    Number,
    /// Dates, in days since 1970-01-01.
    Date,
}

/// What an exchange's calendar says of the time of a bar, its start. Of bars of a day and longer the days alone are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Clock {
    /// 1 in a regular session, 0 outside of it. Dates are in one.
    InSession,
    /// Minutes from the open of the regular session; NA outside of it.
    SinceOpen,
    /// Minutes to the close of the regular session; NA outside of it.
    ToClose,
    /// Minutes since midnight on the exchange's clock.
    TimeOfDay,
    /// Day of the week of the trading day: 1 for Monday to 7 for Sunday.
    Weekday,
    /// Month of the trading day: 1 to 12.
    Month,
    /// The trading day, in days since 1970-01-01.
    Date,
}

impl Clock {
    /// Whether days have none: bars must be shorter than a day.
    pub fn is_within_day(self) -> bool {
        match self {
            Self::SinceOpen | Self::ToClose | Self::TimeOfDay => true,
            Self::InSession | Self::Weekday | Self::Month | Self::Date => false,
        }
    }

    /// Its name as it is written, and the numbers that it takes; `None` where any may come.
    pub fn numbers(self) -> Option<(&'static str, RangeInclusive<f64>, &'static str)> {
        match self {
            Self::TimeOfDay => Some((
                "time_of_day",
                0.0..=1440.0,
                "minutes since midnight, 0 to 1440: write '10:30' for half past ten",
            )),
            Self::Weekday => Some(("weekday", 1.0..=7.0, "1 for Monday to 7 for Sunday, or a name such as 'friday'")),
            Self::Month => Some(("month", 1.0..=12.0, "1 for January to 12 for December, or a name such as 'march'")),
            Self::InSession | Self::SinceOpen | Self::ToClose | Self::Date => None,
        }
    }

    /// The number of what it is compared with as text: `10:30` of a time of day, `friday`, `january`.
    ///
    /// # Errors
    /// What is expected.
    pub fn number_of(self, text: &str) -> Result<f64, &'static str> {
        let lower = text.trim().to_lowercase();
        let named = |names: &[&str]| {
            let is_it = |name: &&str| **name == *lower || name[..3] == *lower;
            names.iter().position(is_it).map(|at| (at + 1) as f64)
        };
        match self {
            Self::TimeOfDay => minutes_of(&lower).ok_or("a time from '00:00' to '24:00'"),
            Self::Weekday => named(&WEEKDAYS).ok_or("a day's name, such as 'friday' or 'fri'"),
            Self::Month => named(&MONTHS).ok_or("a month's name, such as 'january' or 'jan'"),
            Self::InSession | Self::SinceOpen | Self::ToClose | Self::Date => Err("a number"),
        }
    }
}

const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// Minutes of `HH:MM` or `H:MM`.
fn minutes_of(text: &str) -> Option<f64> {
    let (hours, minutes) = text.split_once(':')?;
    let digits = |part: &str, most: usize| (1..=most).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    if !digits(hours, 2) || minutes.len() != 2 || !digits(minutes, 2) {
        return None;
    }
    let (hours, minutes): (u32, u32) = (hours.parse().ok()?, minutes.parse().ok()?);
    let all = hours * 60 + minutes;
    (minutes < 60 && all <= 24 * 60).then_some(f64::from(all))
}

/// Which end of a sort key comes first. NA is after every number in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Smallest first.
    Ascending,
    /// Largest first.
    Descending,
}

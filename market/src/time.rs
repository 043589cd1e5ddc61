//! Bar times: parsing the notations of real files, and writing times.
//!
//! It knows neither calendars nor time zones by name: an offset is read where it is written, otherwise the time is UTC.

use chrono::{DateTime, Datelike, NaiveDate};

use crate::words::{ONES, ZEROS, are_digits, number_of};

/// Microseconds since 1970-01-01 UTC. A daily bar is labelled by its date at 00:00 UTC.
pub type TimeMicros = i64;

pub(crate) const SECOND: i64 = 1_000_000;
pub(crate) const MINUTE: i64 = 60 * SECOND;
pub(crate) const HOUR: i64 = 60 * MINUTE;
pub(crate) const DAY: i64 = 24 * HOUR;
const EPOCH_DAYS_FROM_CE: i32 = 719_163;
/// Years outside this range are treated as garbage.
const YEARS: std::ops::RangeInclusive<i32> = 1600..=2500;
/// Bytes of the longest notation.
const SPELLING_BYTES_MAX: usize = 64;

/// What comes first in dates such as `1/4/1999` and `1-4-1999`. Dates with dots are always day first (`01.01.2017`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DateOrder {
    /// `1/4/1999` is the fourth of January.
    MonthFirst,
    /// `1/4/1999` is the first of April.
    DayFirst,
}

/// A time as written: local time and offset from UTC, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    pub local: i64,
    /// `None` where no zone was written. Epochs are UTC.
    pub offset: Option<i64>,
}

impl Written {
    /// The instant; without a zone the time is taken as UTC.
    pub(crate) fn utc(self) -> TimeMicros {
        self.local - self.offset.unwrap_or(0)
    }
}

/// Reads a time: `2013-02-22`, `2013/02/22`, `20130222`, `1/4/1999`, `01.01.2017 22:00:00.000`, `22-Feb-2013`,
/// `2021-09-27 14:45:00+01:00`, `2021-09-27T13:45:00Z`, `9/27/2021 2:45 PM`, or an epoch in seconds (9 to 11 digits),
/// milliseconds (12 to 14), microseconds (15 to 17) or nanoseconds (18 to 19).
///
/// `1/4/1999` is the fourth of January; only if the first number cannot be a month is it the day (`22/2/2013`).
/// Importing a file checks all its dates before deciding (see [`DateOrder`]). `None` for anything else, and for years
/// outside 1600 to 2500.
pub fn parse_time(text: &str) -> Option<TimeMicros> {
    parse_written(text, DateOrder::MonthFirst).or_else(|| parse_written(text, DateOrder::DayFirst)).map(Written::utc)
}

/// Like [`parse_time`], but strictly in one order.
pub fn parse_time_in_order(text: &str, order: DateOrder) -> Option<TimeMicros> {
    parse_written(text, order).map(Written::utc)
}

/// A daily label as `2013-02-22`, any other time as RFC 3339 UTC.
pub fn format_time(time: TimeMicros) -> String {
    let Some(at) = DateTime::from_timestamp_micros(time) else {
        return format!("{time} us");
    };
    if time.rem_euclid(DAY) == 0 {
        at.format("%Y-%m-%d").to_string()
    } else if time.rem_euclid(SECOND) == 0 {
        at.format("%Y-%m-%dT%H:%M:%SZ").to_string()
    } else {
        at.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
    }
}

/// The label of a bar in a column of times: as [`format_time`], and for bars within a day with the time of day at midnight
/// too, so that a column has one form and readers take it for times.
pub fn format_label(time: TimeMicros, dated: bool) -> String {
    let mut text = format_time(time);
    if !dated && time.rem_euclid(DAY) == 0 {
        text.push_str("T00:00:00Z");
    }
    text
}

/// Whether an instant lies in the years that are read.
pub(crate) fn is_in_years(time: TimeMicros) -> bool {
    /// Days from 1970 to the first day of [`YEARS`], and to the day after their last.
    const DAYS: std::ops::Range<i64> = -135_140..193_944;
    (DAYS.start * DAY..DAYS.end * DAY).contains(&time)
}

/// Months from year 0 to the month of an instant (January 1970 is 23,640).
pub(crate) fn month_index(time: TimeMicros) -> i64 {
    DateTime::from_timestamp_micros(time).map_or(0, |t| i64::from(t.year()) * 12 + i64::from(t.month0()))
}

/// 00:00 UTC of the first day of a month; the smallest or largest time for years out of range.
pub(crate) fn month_start(index: i64) -> TimeMicros {
    let year = i32::try_from(index.div_euclid(12)).ok();
    // A remainder below 12.
    let first = year.and_then(|year| NaiveDate::from_ymd_opt(year, index.rem_euclid(12) as u32 + 1, 1));
    let beyond = if index < 0 { TimeMicros::MIN } else { TimeMicros::MAX };
    first.map_or(beyond, |d| i64::from(d.num_days_from_ce() - EPOCH_DAYS_FROM_CE).saturating_mul(DAY))
}

/// The first day of the month that comes so many months after that of `time`.
pub(crate) fn add_months(time: TimeMicros, months: i64) -> TimeMicros {
    month_start(month_index(time) + months)
}

pub(crate) fn parse_written(text: &str, order: DateOrder) -> Option<Written> {
    if let Some(time) = parse_usual(text.as_bytes()) {
        return Some(time);
    }
    let text = text.trim();
    if text.is_empty() || text.len() > SPELLING_BYTES_MAX || !text.is_ascii() {
        return None;
    }
    if let Some(time) = parse_digits(text) {
        return Some(time);
    }
    let (date, clock) = split_clock(text);
    let days = parse_date(date, order)?;
    let (of_day, offset) = if clock.is_empty() { (0, None) } else { parse_clock(clock)? };
    Some(Written { local: days * DAY + of_day, offset })
}

/// The notations of most files, without what the others need: `2013-02-22`, followed by nothing, by `14:45` or by `14:45:00`
/// after a space or a `T`. `None` for any other notation, and for dates that do not exist: the caller decides.
#[inline]
pub(crate) fn parse_usual(text: &[u8]) -> Option<Written> {
    let (date, clock) = text.split_first_chunk::<10>()?;
    let seconds = match clock.len() {
        0 => 0,
        6 | 9 => seconds_of(clock)?,
        _ => return None,
    };
    Some(Written { local: day_of(date)? * DAY + seconds * SECOND, offset: None })
}

/// An epoch of digits alone, as [`parse_written`] reads it. `None` for any other notation, for years that are not read, and for 14 digits, which
/// may be a date and a time of day: the caller decides.
#[inline]
pub(crate) fn parse_epoch(text: &[u8]) -> Option<TimeMicros> {
    if !matches!(text.len(), 9..=13 | 15..=19) {
        return None;
    }
    let (mut front, mut value, mut power) = (text, 0, 1);
    while let Some((before, eight)) = front.split_last_chunk::<8>() {
        let digits = u64::from_le_bytes(*eight) ^ ZEROS;
        if !are_digits(digits) {
            return None;
        }
        // Nineteen digits fit 64 bits.
        value += number_of(digits) * power;
        power *= 100_000_000;
        front = before;
    }
    let mut first = 0;
    for byte in front {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        first = first * 10 + u64::from(digit);
    }
    epoch_micros(i64::try_from(value + first * power).ok()?, text.len())
}

/// The time of an epoch, whose unit follows from the number of its digits; `None` for years that are not read.
#[inline]
fn epoch_micros(value: i64, digits: usize) -> Option<TimeMicros> {
    let time = match digits {
        9..=11 => value * SECOND,
        12..=14 => value * 1_000,
        15..=17 => value,
        18..=19 => value / 1_000,
        _ => return None,
    };
    is_in_years(time).then_some(time)
}

/// Two digits.
#[inline]
fn two_digits(tens: u8, ones: u8) -> Option<u32> {
    let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
    (tens < 10 && ones < 10).then(|| u32::from(tens) * 10 + u32::from(ones))
}

/// The day of a date such as `2013-02-22`.
#[inline]
fn day_of(date: &[u8; 10]) -> Option<i64> {
    /// Digits, and what is between them.
    const FORM: u64 = u64::from_le_bytes(*b"0000-00-");
    /// What makes a byte over nine, or one that is not the hyphen, overflow into its highest bit.
    const OVER: u64 = u64::from_le_bytes([0x76, 0x76, 0x76, 0x76, 0x7f, 0x76, 0x76, 0x7f]);
    let [front @ .., tens, ones] = date;
    let values = u64::from_le_bytes(*front) ^ FORM;
    if (values.wrapping_add(OVER) | values) & (ONES * 0x80) != 0 {
        return None;
    }
    // Each byte with the one behind it as two digits.
    let pairs = values.wrapping_mul(10).wrapping_add(values >> 8);
    let pair = |at: u32| (pairs >> (8 * at) & 0xff) as u32;
    days(pair(0) * 100 + pair(2), pair(5), two_digits(*tens, *ones)?)
}

/// The seconds of ` 14:45` and of ` 14:45:00`.
#[inline]
fn seconds_of(clock: &[u8]) -> Option<i64> {
    let (front, back) = clock.split_first_chunk::<6>()?;
    let [b' ' | b'T', hour_tens, hour_ones, b':', minute_tens, minute_ones] = front else { return None };
    let (hour, minute) = (two_digits(*hour_tens, *hour_ones)?, two_digits(*minute_tens, *minute_ones)?);
    let second = match back {
        [] => 0,
        [b':', tens, ones] => two_digits(*tens, *ones)?,
        _ => return None,
    };
    let exists = hour < 24 && minute < 60 && second < 60;
    exists.then(|| i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second))
}

/// A time whose notation is unambiguous.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum YearFirst {
    /// A date alone, as its 00:00 UTC.
    Date(TimeMicros),
    /// An epoch, or a local time with an offset.
    Instant(TimeMicros),
    /// A local time without an offset, and the zone abbreviation that was written after it.
    Wall(TimeMicros, Option<String>),
}

/// Parses what [`parse_time`] parses, except dates whose day and month could be exchanged: the year comes first, or the
/// month is a name.
pub(crate) fn parse_year_first(text: &str) -> Option<YearFirst> {
    let text = text.trim();
    if text.is_empty() || text.len() > SPELLING_BYTES_MAX || !text.is_ascii() {
        return None;
    }
    if let Some(time) = parse_digits(text) {
        return Some(match text.len() {
            8 => YearFirst::Date(time.local),
            14 if text.starts_with("19") || text.starts_with("20") => YearFirst::Wall(time.local, None),
            _ => YearFirst::Instant(time.local),
        });
    }
    let (date, clock) = split_clock(text);
    let by_name = fields(date, &['-', '/', '.']).is_some_and(|[a, b, _]| a.len() == 4 || b.len() == 3);
    let by_place = date.len() == 8 && date.bytes().all(|c| c.is_ascii_digit());
    if !by_name && !by_place {
        return None;
    }
    let start = parse_date(date, DateOrder::MonthFirst)?.checked_mul(DAY)?;
    if clock.is_empty() {
        return Some(YearFirst::Date(start));
    }
    let (of_day, zone) = split_zone(clock)?;
    let wall = start + of_day;
    Some(match parse_zone(zone) {
        _ if zone.is_empty() => YearFirst::Wall(wall, None),
        Some(offset) => YearFirst::Instant(wall - offset),
        None if zone.bytes().all(|c| c.is_ascii_alphabetic()) => YearFirst::Wall(wall, Some(zone.to_owned())),
        None => return None,
    })
}

/// The current time, in microseconds since 1970-01-01 UTC.
pub fn now() -> TimeMicros {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.ok().and_then(|d| i64::try_from(d.as_micros()).ok()).unwrap_or(0)
}

/// The two leading numbers of a date with an ambiguous order (`1/4/1999`, `1-4-1999`), else `None`.
pub(crate) fn open_order(text: &str) -> Option<(u32, u32)> {
    let text = text.trim();
    // The year comes first.
    if text.as_bytes().get(4) == Some(&b'-') && text.as_bytes()[..4].iter().all(u8::is_ascii_digit) {
        return None;
    }
    if text.len() > SPELLING_BYTES_MAX || !text.is_ascii() {
        return None;
    }
    let [a, b, year] = fields(split_clock(text).0, &['/', '-'])?;
    if year.len() != 4 || a.len() > 2 || b.len() > 2 {
        return None;
    }
    Some((number(a)?, number(b)?))
}

fn split_clock(text: &str) -> (&str, &str) {
    let bytes = text.as_bytes();
    let at = (1..bytes.len()).find(|&i| match bytes[i] {
        b' ' => true,
        b'T' | b't' => bytes[i - 1].is_ascii_digit() && bytes.get(i + 1).is_some_and(u8::is_ascii_digit),
        _ => false,
    });
    at.map_or((text, ""), |i| (&text[..i], text[i + 1..].trim_start()))
}

fn number(digits: &str) -> Option<u32> {
    let plain = (1..=9).contains(&digits.len()) && digits.bytes().all(|c| c.is_ascii_digit());
    if plain { digits.parse().ok() } else { None }
}

fn fields<'a>(date: &'a str, separators: &[char]) -> Option<[&'a str; 3]> {
    let separator = date.chars().find(|c| separators.contains(c))?;
    let mut parts = date.split(separator);
    let three = [parts.next()?, parts.next()?, parts.next()?];
    parts.next().is_none().then_some(three)
}

/// Days since 1970-01-01 of a date in the years that are read, if it exists.
#[inline]
fn days(year: u32, month: u32, day: u32) -> Option<i64> {
    /// Days of the months before each, where the year begins in March, so that a leap day is its last day.
    const BEFORE: [u32; 13] = [0, 306, 337, 0, 31, 61, 92, 122, 153, 184, 214, 245, 275];
    /// Days from the first of March of the year 0 to 1970.
    const EPOCH: u32 = 719_468;
    let known = i32::try_from(year).is_ok_and(|year| YEARS.contains(&year));
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let last = match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !known || !(1..=last).contains(&day) {
        return None;
    }
    let year = year - u32::from(month < 3);
    let before = 365 * year + year / 4 - year / 100 + year / 400;
    Some(i64::from(before + BEFORE[month as usize] + day - 1) - i64::from(EPOCH))
}

fn parse_date(date: &str, order: DateOrder) -> Option<i64> {
    if date.len() == 8 && date.bytes().all(|c| c.is_ascii_digit()) {
        return days(number(&date[..4])?, number(&date[4..6])?, number(&date[6..])?);
    }
    let [a, b, c] = fields(date, &['-', '/', '.'])?;
    if a.len() == 4 {
        return days(number(a)?, month(b)?, short(c)?);
    }
    if c.len() != 4 {
        return None;
    }
    let year = number(c)?;
    if b.len() == 3 {
        return days(year, month(b)?, short(a)?);
    }
    match (date.contains('.'), order) {
        (false, DateOrder::MonthFirst) => days(year, short(a)?, short(b)?),
        (true, _) | (false, DateOrder::DayFirst) => days(year, short(b)?, short(a)?),
    }
}

fn short(digits: &str) -> Option<u32> {
    if digits.len() <= 2 { number(digits) } else { None }
}

fn month(text: &str) -> Option<u32> {
    const MONTHS: &str = "janfebmaraprmayjunjulaugsepoctnovdec";
    if text.len() == 3 {
        let at = MONTHS.find(&text.to_ascii_lowercase())?;
        // Below 12.
        return (at % 3 == 0).then_some(at as u32 / 3 + 1);
    }
    short(text)
}

/// A time of day on its own: microseconds of the day, offset from UTC if one is written.
pub(crate) fn parse_of_day(text: &str) -> Option<(i64, Option<i64>)> {
    let text = text.trim();
    if text.is_empty() || text.len() > SPELLING_BYTES_MAX || !text.is_ascii() { None } else { parse_clock(text) }
}

/// A time of day as [`parse_of_day`] reads it.
pub(crate) fn format_of_day(micros: i64) -> String {
    let (seconds, fraction) = (micros.div_euclid(SECOND), micros.rem_euclid(SECOND));
    let clock = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if fraction == 0 { clock } else { format!("{clock}.{fraction:06}") }
}

/// `HH:MM[:SS[.fraction]] [AM|PM] [zone]` or `HHMMSS`: microseconds of the day, offset from UTC if one is written.
fn parse_clock(clock: &str) -> Option<(i64, Option<i64>)> {
    if clock.len() == 6 && clock.bytes().all(|c| c.is_ascii_digit()) {
        return parse_clock(&format!("{}:{}:{}", &clock[..2], &clock[2..4], &clock[4..]));
    }
    let (of_day, zone) = split_zone(clock)?;
    Some((of_day, if zone.is_empty() { None } else { Some(parse_zone(zone)?) }))
}

/// The same with the zone as written.
fn split_zone(clock: &str) -> Option<(i64, &str)> {
    let end = clock.find(|c: char| !c.is_ascii_digit() && !matches!(c, ':' | '.' | ',')).unwrap_or(clock.len());
    let (digits, mut rest) = (&clock[..end], clock[end..].trim());
    let mut parts = digits.splitn(3, ':');
    let mut hour = short(parts.next()?)?;
    let minute = short(parts.next()?).filter(|&m| m < 60)?;
    let (second, fraction) = match parts.next() {
        None => (0, 0),
        Some(seconds) => {
            let (whole, fraction) = seconds.split_once(['.', ',']).unwrap_or((seconds, "0"));
            (short(whole).filter(|&s| s < 60)?, micros(fraction)?)
        }
    };
    let lower = rest.to_ascii_lowercase();
    if lower.starts_with("am") || lower.starts_with("pm") {
        if !(1..=12).contains(&hour) {
            return None;
        }
        hour = hour % 12 + if lower.starts_with("pm") { 12 } else { 0 };
        rest = rest[2..].trim_start();
    }
    if hour > 23 {
        return None;
    }
    let seconds = i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second);
    Some((seconds * SECOND + fraction, rest))
}

/// Digits after the point as microseconds; finer ones are cut off.
fn micros(fraction: &str) -> Option<i64> {
    number(fraction)?;
    let padded: String = fraction.chars().chain("000000".chars()).take(6).collect();
    padded.parse().ok()
}

fn parse_zone(zone: &str) -> Option<i64> {
    /// Bound above the widest existing offset.
    const OFFSET_MAX: i64 = 18 * 60 * MINUTE;
    if zone.is_empty() || ["z", "utc", "gmt"].iter().any(|z| zone.eq_ignore_ascii_case(z)) {
        return Some(0);
    }
    let sign = match zone.as_bytes()[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let rest = &zone[1..];
    let (hours, minutes) = match rest.split_once(':') {
        Some((h, m)) => (h, m),
        None if rest.len() == 4 => rest.split_at(2),
        None => (rest, "0"),
    };
    let minutes = short(minutes).filter(|&m| m < 60)?;
    let offset = (i64::from(short(hours)?) * 60 + i64::from(minutes)) * MINUTE;
    (offset <= OFFSET_MAX).then_some(sign * offset)
}

/// Times written as digits alone: `20130222`, `20130222153000`, epochs (a zero fraction is allowed).
fn parse_digits(text: &str) -> Option<Written> {
    let digits = match text.split_once('.') {
        Some((whole, fraction)) if !fraction.is_empty() && fraction.bytes().all(|c| c == b'0') => whole,
        Some(_) => return None,
        None => text,
    };
    if !digits.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let at = |local| Some(Written { local, offset: None });
    if digits.len() == 8 && digits.len() == text.len() {
        return at(parse_date(digits, DateOrder::MonthFirst)? * DAY);
    }
    if digits.len() == 14 && digits.len() == text.len() && (digits.starts_with("19") || digits.starts_with("20")) {
        let clock = format!("{}:{}:{}", &digits[8..10], &digits[10..12], &digits[12..]);
        return at(parse_date(&digits[..8], DateOrder::MonthFirst)? * DAY + parse_clock(&clock)?.0);
    }
    let value: i64 = digits.parse().ok()?;
    epoch_micros(value, digits.len()).map(|local| Written { local, offset: Some(0) })
}

#[cfg(test)]
#[path = "time_tests.rs"]
mod tests;

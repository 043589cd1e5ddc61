//! The cells of a batch as text, as numbers and as times.

use std::borrow::Cow;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, Time64MicrosecondType, TimestampMicrosecondType};
use arrow_array::{Array, Float64Array, Int64Array, StringArray, Time64MicrosecondArray, TimestampMicrosecondArray};
use arrow_schema::DataType;

use super::bind::Binding;
use super::number::{Cell, parse_number};
use crate::sources::{Column, TextCells};
use crate::time::{DateOrder, SECOND, TimeMicros, format_of_day, format_time, is_in_years, parse_written};
use crate::zone::Zone;

/// Offset of a time that was written without a zone.
pub(crate) const NAIVE: i32 = i32::MIN;

/// One column of a batch.
pub(super) enum Cells<'a> {
    /// Of a file of text.
    Lines(&'a TextCells<'a>),
    Text(&'a StringArray),
    Float(&'a Float64Array),
    Whole(&'a Int64Array),
    Time(&'a TimestampMicrosecondArray),
    /// Times of the day.
    Clock(&'a Time64MicrosecondArray),
    /// Not requested, or of a type that is neither number nor text.
    Other,
}

impl<'a> Cells<'a> {
    pub fn new(column: &'a Column<'a>) -> Self {
        let array = match column {
            Column::Text(cells) => return Self::Lines(cells),
            Column::Array(array) => array,
        };
        match array.data_type() {
            DataType::Utf8 => Self::Text(array.as_string()),
            DataType::Float64 => Self::Float(array.as_primitive::<Float64Type>()),
            DataType::Int64 => Self::Whole(array.as_primitive::<Int64Type>()),
            DataType::Timestamp(..) => Self::Time(array.as_primitive::<TimestampMicrosecondType>()),
            DataType::Time64(_) => Self::Clock(array.as_primitive::<Time64MicrosecondType>()),
            _ => Self::Other,
        }
    }

    /// The text of a column of text as it is; `None` for other columns.
    pub fn written(&self, row: usize) -> Option<&'a str> {
        match self {
            Self::Lines(cells) => Some(cells.value(row)),
            Self::Text(texts) => Some(texts.value(row)),
            _ => None,
        }
    }

    #[inline]
    pub fn number(&self, row: usize, comma: bool) -> Cell {
        let of = |value: f64| if value.is_nan() { Cell::Missing } else { Cell::Number(value) };
        match self {
            Self::Lines(cells) => parse_number(cells.value(row), comma),
            Self::Text(texts) if texts.is_null(row) => Cell::Missing,
            Self::Text(texts) => parse_number(texts.value(row), comma),
            Self::Float(values) => {
                if values.is_null(row) {
                    Cell::Missing
                } else {
                    of(values.value(row))
                }
            }
            Self::Whole(values) => {
                if values.is_null(row) {
                    Cell::Missing
                } else {
                    of(values.value(row) as f64)
                }
            }
            Self::Time(_) | Self::Clock(_) => Cell::Text,
            Self::Other => Cell::Missing,
        }
    }

    /// Whether a cell without a number has NaN in it, and is not empty.
    pub fn is_nan(&self, row: usize) -> bool {
        match self {
            Self::Float(values) => values.is_valid(row) && values.value(row).is_nan(),
            Self::Lines(_) | Self::Text(_) => self.text(row).trim().parse::<f64>().is_ok_and(f64::is_nan),
            _ => false,
        }
    }

    #[inline]
    pub fn text(&self, row: usize) -> Cow<'a, str> {
        match self {
            Self::Lines(cells) => Cow::Borrowed(cells.value(row)),
            Self::Text(texts) if texts.is_valid(row) => Cow::Borrowed(texts.value(row)),
            Self::Float(values) if values.is_valid(row) => Cow::Owned(values.value(row).to_string()),
            Self::Whole(values) if values.is_valid(row) => Cow::Owned(values.value(row).to_string()),
            Self::Time(values) if values.is_valid(row) => Cow::Owned(format_time(values.value(row))),
            Self::Clock(values) if values.is_valid(row) => Cow::Owned(format_of_day(values.value(row))),
            _ => Cow::Borrowed(""),
        }
    }
}

/// How the zone of a column of timestamps is given.
#[derive(Clone, Copy)]
pub(super) enum Stamp {
    Naive,
    /// Seconds ahead of UTC.
    Fixed(i32),
    Zone(Zone),
}

impl Stamp {
    /// The local time and its offset; `None` in years that are not read, as in text.
    pub fn read(self, time: TimeMicros) -> Option<(TimeMicros, i32)> {
        is_in_years(time).then(|| match self {
            Self::Naive => (time, NAIVE),
            Self::Fixed(seconds) => (time + i64::from(seconds) * SECOND, seconds),
            Self::Zone(zone) => {
                let wall = zone.wall(time);
                (wall, ((wall - time) / SECOND) as i32)
            }
        })
    }

    /// The same for a local time, such as a date and a time of day from two columns.
    pub fn local(self, local: TimeMicros) -> (TimeMicros, i32) {
        let offset = match self {
            Self::Naive => NAIVE,
            Self::Fixed(seconds) => seconds,
            Self::Zone(zone) => ((local - zone.to_utc(local)) / SECOND) as i32,
        };
        (local, offset)
    }
}

/// How the column of times is read.
pub(super) enum TimeCells {
    Stamp(Stamp),
    Text,
}

impl TimeCells {
    /// The error is the name of an unknown zone.
    pub fn new(column: &Column<'_>) -> Result<Self, String> {
        let Column::Array(array) = column else { return Ok(Self::Text) };
        let DataType::Timestamp(_, zone) = array.data_type() else { return Ok(Self::Text) };
        let Some(zone) = zone else { return Ok(Self::Stamp(Stamp::Naive)) };
        // Offsets such as +02:00 are read like those of a written time.
        let fixed = parse_written(&format!("2000-01-01 00:00{zone}"), DateOrder::MonthFirst).and_then(|w| w.offset);
        Ok(Self::Stamp(match fixed {
            Some(offset) => Stamp::Fixed((offset / SECOND) as i32),
            None => Stamp::Zone(Zone::named(zone).map_err(|_| zone.to_string())?),
        }))
    }

    /// The time of a row as written, including the time of day.
    pub fn text<'c>(&self, row: usize, columns: &[Cells<'c>], binding: &Binding) -> Cow<'c, str> {
        let date = columns[binding.time].text(row);
        match (self, binding.clock.map(|clock| columns[clock].text(row))) {
            (Self::Text, Some(clock)) if !clock.trim().is_empty() => {
                Cow::Owned(format!("{} {}", date.trim(), clock.trim()))
            }
            _ => date,
        }
    }
}

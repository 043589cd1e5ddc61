//! The time of a row: from one column, or from one of dates and one of times of the day.

use arrow_array::Array as _;

use super::Shape;
use crate::reading::cells::{Cells, NAIVE, Stamp, TimeCells};
use crate::reading::number::Cell;
use crate::time::{DAY, SECOND, TimeMicros, format_time, parse_of_day, parse_written};

impl Shape<'_> {
    /// The local time, and its offset from UTC in seconds; the error is the cell that cannot be read.
    pub(super) fn time(&self, row: usize, columns: &[Cells<'_>], time: &TimeCells) -> Result<(TimeMicros, i32), usize> {
        let at = self.binding.time;
        let clock = self.binding.clock.map(|cell| (cell, columns[cell].text(row)));
        // A bar without a time of day among bars that have one is not at midnight.
        let clock = match clock {
            Some((cell, text)) if text.trim().is_empty() == self.has_clock => return Err(cell),
            clock => clock.filter(|_| self.has_clock),
        };
        if let (Cells::Time(times), TimeCells::Stamp(stamp)) = (&columns[at], time) {
            let read = if times.is_valid(row) { stamp.read(times.value(row)) } else { None };
            let (local, offset) = read.ok_or(at)?;
            let Some((cell, text)) = clock else { return Ok((local, offset)) };
            let (of_day, zone) = parse_of_day(&text).ok_or(cell)?;
            let own = local.rem_euclid(DAY);
            return match (zone, stamp) {
                // A date that has a time of day itself is not another one.
                _ if own != 0 && own != of_day => Err(cell),
                (None, stamp) => Ok(stamp.local(local - own + of_day)),
                (Some(zone), Stamp::Naive) => Ok((local - own + of_day, (zone / SECOND) as i32)),
                (Some(_), _) => Err(cell),
            };
        }
        if let Some(midnight) = self.midnight {
            return match columns[at].number(row, false) {
                Cell::Number(millis) if (0.0..=86_400_000.0).contains(&millis) && millis.fract() == 0.0 => {
                    Ok((midnight + millis as i64 * 1_000, NAIVE))
                }
                _ => Err(at),
            };
        }
        let written = parse_written(&time.text(row, columns, &self.binding), self.order);
        let Some(written) = written else {
            let date = parse_written(&columns[at].text(row), self.order);
            return Err(clock.filter(|_| date.is_some()).map_or(at, |(cell, _)| cell));
        };
        // Offsets are less than a day.
        Ok((written.local, written.offset.map_or(NAIVE, |offset| (offset / SECOND) as i32)))
    }

    /// The time as written; a date and a time of day from columns without text as one time.
    pub(super) fn time_text(
        &self,
        row: usize,
        columns: &[Cells<'_>],
        time: &TimeCells,
        read: Option<(TimeMicros, i32)>,
    ) -> String {
        match (time, self.binding.clock, read) {
            (TimeCells::Stamp(_), Some(_), Some((local, NAIVE))) => format_time(local),
            (TimeCells::Stamp(_), Some(_), Some((local, offset))) => format_time(local - i64::from(offset) * SECOND),
            _ => time.text(row, columns, &self.binding).into_owned(),
        }
    }
}

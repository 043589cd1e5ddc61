//! The bars of one subject of a scan, a scanned symbol or a reference, on every frame that the plan uses.
//!
//! Defines rows and times, and which row of one axis a row of another axis reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use trawl_market::{HigherBars, LoadedBars, TimeMicros, Timeframe};
use trawl_plan::frame::{BarSize, Read};

/// Higher bars of one timeframe, and their columns in the order of the loaded ones.
#[derive(Debug)]
pub(crate) struct Higher {
    pub bars: Arc<HigherBars>,
    pub columns: Vec<Vec<f64>>,
}

/// The as-ofs (ascending times of bars) for which a subject's bars are adjusted; all as-ofs if it has only one vintage.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub from: TimeMicros,
    pub until: TimeMicros,
}

impl Span {
    pub fn contains(&self, time: TimeMicros) -> bool {
        (self.from..=self.until).contains(&time)
    }
}

/// One subject's bars up to the horizon.
#[derive(Debug)]
pub(crate) struct Axis<'a> {
    pub bars: &'a LoadedBars,
    /// Number of visible base bars.
    pub visible: usize,
    /// The times at which this axis applies; a symbol has one axis per vintage.
    pub span: Span,
    pub higher: BTreeMap<Timeframe, Higher>,
    /// First base bar of a limited history; 0 without a limit.
    pub window: usize,
    /// Up to how many of the base bars the symbol may lack; which, is not known. 0 where its bars were read: otherwise rows are those at
    /// which it may have bars, and a row that is found by counting bars may be so many rows earlier.
    pub absent_max: usize,
}

/// Index of the first of ascending `times` that is not before `time`. Checks the newest time first, since most scans
/// read the newest bar: that touches a single cache line.
pub(crate) fn first_from(times: &[TimeMicros], time: TimeMicros) -> usize {
    match times {
        [.., before, newest] if *before < time && time <= *newest => times.len() - 1,
        _ => times.partition_point(|t| *t < time),
    }
}

/// The row of `time` among ascending `times`; as fast as [`first_from`].
pub(crate) fn row_at(times: &[TimeMicros], time: TimeMicros) -> Option<usize> {
    let row = first_from(times, time);
    times.get(row).is_some_and(|found| *found == time).then_some(row)
}

/// The row that is read at `time`: that of a bar then or, with a `max_age` in microseconds, of the newest bar before it that is no
/// older than that.
pub(crate) fn row_within(times: &[TimeMicros], time: TimeMicros, max_age: Option<i64>) -> Option<usize> {
    let row = first_from(times, time);
    let here = times.get(row) == Some(&time);
    if here { Some(row) } else { late_row(times, row, time, max_age) }
}

/// The row of the newest bar before `time`, if there is none then and that one is at most `max_age` older; `row` is the first that is
/// not before `time`.
pub fn late_row(times: &[TimeMicros], row: usize, time: TimeMicros, max_age: Option<i64>) -> Option<usize> {
    let oldest = time.saturating_sub(max_age?);
    row.checked_sub(1).filter(|before| times.get(row) != Some(&time) && times[*before] >= oldest)
}

/// The first row that is read at any time from `time` on, as [`row_within`] reads.
pub(crate) fn first_within(times: &[TimeMicros], time: TimeMicros, max_age: Option<i64>) -> usize {
    row_within(times, time, max_age).unwrap_or_else(|| first_from(times, time))
}

impl Axis<'_> {
    /// Times of the visible base bars.
    pub fn base_times(&self) -> &[TimeMicros] {
        &self.bars.times[..self.visible]
    }

    /// The first row of a frame that is read at any time from `time` on, as [`first_within`] finds it.
    pub fn first_within(&self, size: &BarSize, time: TimeMicros, max_age: Option<i64>) -> usize {
        let times = self.times(size);
        let first = first_within(times, time, max_age);
        // The last bar of all is not one that may be absent.
        let last = self.visible == self.bars.times.len() && times.last().is_none_or(|last| *last <= time);
        if max_age.is_some() && !last { first.saturating_sub(self.absent_max) } else { first }
    }

    fn higher(&self, timeframe: &Timeframe) -> Option<&Higher> {
        self.higher.get(timeframe)
    }

    /// Number of rows on a frame: its bars or, for a forming frame, its states, one per base bar.
    pub fn rows(&self, size: &BarSize) -> usize {
        match size {
            BarSize::Base | BarSize::Higher { forming: true, .. } => self.visible,
            BarSize::Higher { timeframe, .. } => self.higher(timeframe).map_or(0, |h| h.bars.times.len()),
        }
    }

    /// Times of the rows of a frame that is not forming.
    pub fn times(&self, size: &BarSize) -> &[TimeMicros] {
        match size {
            BarSize::Base | BarSize::Higher { forming: true, .. } => self.base_times(),
            BarSize::Higher { timeframe, .. } => self.higher(timeframe).map_or(&[][..], |h| &h.bars.times),
        }
    }

    /// First row of a limited history.
    pub fn window_row(&self, size: &BarSize) -> usize {
        match size {
            BarSize::Base => self.window,
            BarSize::Higher { timeframe, .. } => self.higher(timeframe).map_or(0, |h| {
                let inside = |row: &usize| h.bars.last_base_bar(*row).is_some_and(|last| last >= self.window);
                (0..h.bars.times.len()).find(inside).unwrap_or(h.bars.times.len())
            }),
        }
    }
}

/// Maps rows of a reader to the rows of a source that they read.
pub(crate) struct Reader<'a> {
    pub how: Read,
    /// Times of the reader's rows.
    pub times: &'a [TimeMicros],
    /// Times of the source's rows.
    pub source_times: &'a [TimeMicros],
    /// The higher bars between reader and source, for reads within one subject.
    pub higher: Option<&'a HigherBars>,
}

impl Reader<'_> {
    /// The source row that the reader's row `row` reads, if any.
    pub fn row(&self, row: usize) -> Option<usize> {
        match self.how {
            Read::Same => self.source_times.binary_search(self.times.get(row)?).ok(),
            Read::AsOf(most) => {
                let time = *self.times.get(row)?;
                let source = self.source_times.partition_point(|t| *t <= time).checked_sub(1)?;
                let later = row + 1 - self.times.partition_point(|t| *t <= self.source_times[source]).min(row + 1);
                (later <= most as usize).then_some(source)
            }
            Read::Completed => self.higher?.completed(row)?.checked_sub(1),
            Read::Forming => Some(row),
            Read::Inside => self.higher?.last_base_bar(row),
        }
    }

    /// The first source row that any of the reader's rows from `row` on may read.
    pub fn first(&self, row: usize) -> usize {
        match self.how {
            Read::Same => self.times.get(row).map_or(usize::MAX, |t| self.source_times.partition_point(|s| s < t)),
            // Source rows never decrease as reader rows increase.
            _ => self.row(row).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader<'a>(how: Read, times: &'a [i64], source_times: &'a [i64]) -> Reader<'a> {
        Reader { how, times, source_times, higher: None }
    }

    #[test]
    fn a_reference_is_read_at_the_same_time_only() {
        let r = reader(Read::Same, &[10, 20, 30], &[5, 20, 25, 30]);
        assert_eq!([0, 1, 2].map(|row| r.row(row)), [None, Some(1), Some(3)]);
        assert_eq!([0, 1, 2].map(|row| r.first(row)), [1, 1, 3]);
    }

    #[test]
    fn a_bar_is_read_late_up_to_its_age() {
        let times = [10, 20, 40];
        let rows = |age| [5, 10, 25, 30, 39, 40, 60, 61].map(|time| row_within(&times, time, age));
        assert_eq!(rows(None), [None, Some(0), None, None, None, Some(2), None, None]);
        assert_eq!(rows(Some(5)), [None, Some(0), Some(1), None, None, Some(2), None, None]);
        assert_eq!(rows(Some(20)), [None, Some(0), Some(1), Some(1), Some(1), Some(2), Some(2), None]);
        assert_eq!([25, 30, 61].map(|time| first_within(&times, time, Some(5))), [1, 2, 3]);
        assert_eq!(row_within(&times, i64::MIN, Some(i64::MAX)), None);
        assert_eq!(row_within(&[], 7, Some(7)), None);
    }

    #[test]
    fn as_of_counts_the_readers_own_bars() {
        let r = reader(Read::AsOf(1), &[10, 20, 30, 40], &[10, 15]);
        // At 20 the source's 15 lies between: one bar of the reader (20 itself) is later than it.
        assert_eq!([0, 1, 2, 3].map(|row| r.row(row)), [Some(0), Some(1), None, None]);
        let exact = reader(Read::AsOf(0), &[10, 20], &[10, 15]);
        assert_eq!([0, 1].map(|row| exact.row(row)), [Some(0), None]);
        assert_eq!(reader(Read::AsOf(9), &[1], &[5]).row(0), None);
    }
}

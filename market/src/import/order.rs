//! The bars of a symbol from the rows of several files: labelled, in order of time, one for each time. Of rows with one time
//! the first of a file is kept, and of several files that of the first.

use std::ops::Range;

use super::settle::Labels;
use crate::arrow_file::SymbolBars;
use crate::quarantine::Reason;
use crate::reading::{RawRows, Rows, newest_first};
use crate::time::TimeMicros;

/// A row that is no bar because of its time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Late {
    pub file: usize,
    /// Among the rows that were given.
    pub row: u32,
    pub reason: Reason,
    /// It does not fit its own file, whatever is in the others.
    pub own: bool,
}

/// Bars in order of time.
#[derive(Debug, Default)]
pub(super) struct Ordered {
    pub times: Vec<TimeMicros>,
    /// The row of each bar; `None` if all rows are bars, in their order.
    pub rows: Option<Vec<u32>>,
    pub late: Vec<Late>,
}

impl Ordered {
    /// Values of the bars from those of the rows.
    pub fn values(&self, values: Vec<f64>) -> Vec<f64> {
        match &self.rows {
            None => values,
            Some(rows) => rows.iter().map(|row| values[*row as usize]).collect(),
        }
    }
}

/// Orders the rows of a symbol, whose labels are given file by file; `turned` tells files that begin with their newest bar, `spans` has
/// by file the labels that it may have, and is empty where none is bound to a date.
pub(super) fn order_rows(
    files: &[(usize, Range<usize>)],
    labels: Vec<TimeMicros>,
    turned: impl Fn(usize) -> bool,
    spans: &[Option<(TimeMicros, TimeMicros)>],
) -> Ordered {
    let is_outside = |file: usize, time: TimeMicros| {
        spans.get(file).copied().flatten().is_some_and(|(from, to)| !(from..to).contains(&time))
    };
    let straight = files.iter().all(|(file, rows)| rows.len() < 2 || !turned(*file));
    let all_inside = || {
        spans.is_empty() || files.iter().all(|(file, rows)| labels[rows.clone()].iter().all(|t| !is_outside(*file, *t)))
    };
    if straight && labels.is_sorted_by(|a, b| a < b) && all_inside() {
        return Ordered { times: labels, rows: None, late: Vec::new() };
    }
    let mut late = Vec::new();
    // Rows are fewer than 2^32: their labels are in memory.
    let mut kept: Vec<u32> = Vec::with_capacity(labels.len());
    for (file, rows) in files {
        let (file, begin, turned) = (*file, kept.len(), turned(*file));
        let mut push = |row: usize| {
            let (time, before) = (labels[row], &mut kept[begin..]);
            if is_outside(file, time) {
                late.push(Late { file, row: row as u32, reason: Reason::OtherDate, own: false });
                return;
            }
            if before.last().is_some_and(|last| time <= labels[*last as usize]) {
                let found = before.binary_search_by_key(&time, |row| labels[*row as usize]);
                let (row, reason) = match found {
                    Ok(known) if turned => (std::mem::replace(&mut before[known], row as u32), Reason::DuplicateTime),
                    Ok(_) => (row as u32, Reason::DuplicateTime),
                    Err(_) => (row as u32, Reason::TimeOutOfOrder),
                };
                late.push(Late { file, row, reason, own: true });
                return;
            }
            kept.push(row as u32);
        };
        match turned {
            true => rows.clone().rev().for_each(&mut push),
            false => rows.clone().for_each(&mut push),
        }
    }
    let time = |row: &u32| labels[*row as usize];
    if !kept.is_sorted_by_key(time) {
        // Files are in order, so that the first of equal times stays the first.
        kept.sort_by_key(time);
    }
    let file_of = |row: u32| {
        let at = files.partition_point(|(_, rows)| rows.end <= row as usize);
        files.get(at).map_or(0, |(file, _)| *file)
    };
    let mut last = None;
    kept.retain(|row| {
        let new = last != Some(time(row));
        last = Some(time(row));
        if !new {
            late.push(Late { file: file_of(*row), row: *row, reason: Reason::DuplicateTime, own: false });
        }
        new
    });
    Ordered { times: kept.iter().map(time).collect(), rows: Some(kept), late }
}

/// The bars of one file, by symbol in the order of their first rows; rows that are no bars are left out.
pub(crate) fn bars_of(rows: Rows, labels: Labels) -> Vec<SymbolBars> {
    let RawRows { of, local, offset, values, .. } = rows.rows;
    let times: Vec<TimeMicros> =
        local.iter().zip(&offset).map(|(local, offset)| labels.label(*local, *offset)).collect();
    let turned = newest_first(of.iter().copied().zip(times.iter().copied()));
    let bars = |(id, symbol): (u32, std::sync::Arc<str>)| {
        let own: Vec<usize> = (0..of.len()).filter(|row| of[*row] == id).collect();
        let labels: Vec<TimeMicros> = own.iter().map(|row| times[*row]).collect();
        let ordered = order_rows(&[(0, 0..own.len())], labels, |_| turned, &[]);
        let column = |values: &Vec<f64>| ordered.values(own.iter().map(|row| values[*row]).collect());
        SymbolBars { symbol, columns: values.iter().map(column).collect(), times: ordered.times }
    };
    let mut all: Vec<SymbolBars> = (0u32..).zip(rows.symbols).map(bars).collect();
    all.retain(|bars| !bars.times.is_empty());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of the bars, and late rows as (file, row, reason).
    fn ordered(files: &[&[TimeMicros]], turned: &[usize]) -> (Vec<u32>, Vec<(usize, u32, Reason)>) {
        let (mut ranges, mut labels) = (Vec::new(), Vec::new());
        for (file, times) in files.iter().enumerate() {
            ranges.push((file, labels.len()..labels.len() + times.len()));
            labels.extend_from_slice(times);
        }
        let all = (0..labels.len() as u32).collect();
        let found = order_rows(&ranges, labels, |file| turned.contains(&file), &[]);
        let late = found.late.iter().map(|late| (late.file, late.row, late.reason)).collect();
        (found.rows.unwrap_or(all), late)
    }

    #[test]
    fn a_file_of_a_day_has_bars_of_its_date_alone() {
        let spans = [Some((0, 10)), None];
        let files = [(0, 0..3), (1, 3..5)];
        let found = order_rows(&files, vec![1, 9, 10, 11, 99], |_| false, &spans);
        assert_eq!(found.rows, Some(vec![0, 1, 3, 4]));
        assert_eq!(found.late, [Late { file: 0, row: 2, reason: Reason::OtherDate, own: false }]);
        assert_eq!(order_rows(&files[..1], vec![1, 2, 9], |_| false, &spans).rows, None);
    }

    #[test]
    fn of_two_files_with_one_bar_the_first_is_kept() {
        let (rows, late) = ordered(&[&[1, 3], &[2, 3, 4]], &[]);
        assert_eq!(rows, [0, 2, 1, 4]);
        assert_eq!(late, [(1, 3, Reason::DuplicateTime)]);
    }

    #[test]
    fn of_rows_with_one_time_the_first_of_the_file_is_kept_also_where_it_begins_with_the_newest() {
        use Reason::{DuplicateTime, TimeOutOfOrder};
        assert_eq!(
            ordered(&[&[1, 2, 2, 1, 3, 0]], &[]),
            (vec![0, 1, 4], vec![(0, 2, DuplicateTime), (0, 3, DuplicateTime), (0, 5, TimeOutOfOrder),])
        );
        assert_eq!(ordered(&[&[3, 2, 2, 1]], &[0]), (vec![3, 1, 0], vec![(0, 2, DuplicateTime)]));
        assert_eq!(ordered(&[&[3, 2, 1], &[4, 5]], &[0]), (vec![2, 1, 0, 3, 4], vec![]));
        assert_eq!(ordered(&[&[1, 2], &[3]], &[1]), (vec![0, 1, 2], vec![]));
    }
}

//! Reads the bars of a group: the requested columns of the requested symbols, straight into the buffers that a scan
//! computes from.
//!
//! With the checksums of the group's file (see [`crate::sums`]) every chunk is checked right after it is read, while it
//! is in the CPU's cache. Without them, or as soon as one does not match, the file is read whole and its sha256
//! compared with the manifest, which decides. Symbols of a group often trade at the same times: times with the same
//! checksums are read once and shared.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use zerocopy::IntoBytes as _;

use crate::arrow_file::{ColumnPlace, TIME, in_own_order};
use crate::column_parts::ColumnParts;
use crate::limits::SUMS_KEPT_BYTES_MAX;
use crate::read_at::{Unchecked, read_at, read_rows};
use crate::series::{Buffer, Series, Value};
use crate::sums::{ColumnSums, Run, SUMS_BYTES_MAX, Sums, sum_of};
use crate::time::TimeMicros;

/// Values that are read, and then checked, at a time: they stay in the cache of a core.
const READ_VALUES: u64 = 32 << 10;

/// Columns of some symbols of a group.
pub(crate) struct Columns {
    /// By symbol.
    pub times: Vec<Series<TimeMicros>>,
    /// By column, then by symbol.
    pub values: Vec<Vec<Series<f64>>>,
}

/// Bars of the same symbols that are later than those of the file.
#[derive(Debug, Default)]
pub(crate) struct Added {
    /// By symbol; nothing at all where no symbol has any.
    pub rows: Vec<usize>,
    /// By symbol.
    pub times: Vec<TimeMicros>,
    /// By column, then by symbol.
    pub values: Vec<Vec<f64>>,
}

impl Added {
    /// Where the rows of a symbol are.
    pub fn range(&self, symbol: usize) -> Range<usize> {
        let from = self.rows.get(..symbol).unwrap_or_default().iter().sum();
        from..from + self.rows.get(symbol).copied().unwrap_or(0)
    }
}

/// A column of [`Added`] for some runs: how many values follow those of each run, and the values.
struct Behind<'a, T> {
    rows: &'a [usize],
    values: &'a [T],
}

impl<T: Value> Behind<'_, T> {
    /// The part of a buffer for each run, with what follows it. The room for rows that are not read is that of others.
    fn layout(&self, runs: &[Run], unread: &[usize]) -> (usize, Vec<Range<usize>>) {
        let unread_rows = |(at, run): (usize, &Run)| run.rows_of(unread.get(at).copied().unwrap_or(0)) as usize;
        let mut ends = runs.iter().enumerate().map(unread_rows).max().unwrap_or(0);
        let range = |(at, run): (usize, &Run)| {
            let from = ends - unread_rows((at, run));
            ends = from + run.rows as usize + self.rows.get(at).copied().unwrap_or(0);
            from..ends
        };
        let ranges = runs.iter().enumerate().map(range).collect();
        (ends, ranges)
    }

    /// Writes what follows each run.
    fn put(&self, ranges: &[Range<usize>], to: &mut [T]) {
        let mut rest = self.values;
        for (range, rows) in ranges.iter().zip(self.rows) {
            let Some((own, others)) = rest.split_at_checked(*rows) else { return };
            to[range.end - rows..range.end].copy_from_slice(own);
            rest = others;
        }
    }
}

/// Checksums of the groups whose files were read, within [`SUMS_KEPT_BYTES_MAX`].
#[derive(Debug, Default)]
pub(crate) struct KnownSums(Mutex<(HashMap<u32, Arc<Sums>>, u64)>);

impl KnownSums {
    pub fn of(&self, group: u32) -> Option<Arc<Sums>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.get(&group).cloned()
    }

    /// Keeps checksums as long as there is room.
    pub fn keep(&self, group: u32, sums: &Arc<Sums>) {
        let (known, bytes) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let replaced = known.remove(&group).map_or(0, |old| old.bytes());
        *bytes -= replaced;
        if *bytes + sums.bytes() <= SUMS_KEPT_BYTES_MAX {
            *bytes += sums.bytes();
            known.insert(group, Arc::clone(sums));
        }
    }
}

/// Reads a file of checksums; `None` if there is none that can be used.
pub(crate) fn read_sums(file: &fs::File, sha256: &str, file_bytes: u64, runs: &[Run]) -> Option<Sums> {
    let size = file.metadata().ok().map(|m| m.len()).filter(|size| *size <= SUMS_BYTES_MAX)?;
    let mut bytes = vec![0; size as usize];
    read_at(file, &mut bytes, 0).ok()?;
    Sums::decode(&bytes, sha256, file_bytes, runs)
}

/// Where the columns of a group are read.
#[derive(Clone, Copy)]
pub(crate) enum Bars<'a> {
    /// In the group's file.
    File(&'a fs::File),
    /// In copies of what is needed of it.
    Parts(&'a ColumnParts),
}

impl Bars<'_> {
    /// Reads a range of rows in the byte order of the file.
    fn read<T: Value>(&self, place: &ColumnPlace, rows: Range<u64>, to: &mut [T]) -> Result<(), Unchecked> {
        match self {
            Self::File(file) => read_rows(file, place, rows, to),
            Self::Parts(parts) => parts.of(&place.name).ok_or(Unchecked)?.read(rows, to.as_mut_bytes()),
        }
    }

    /// Asks for rows that lie apart to be in memory soon. Parts have what is needed in a row.
    fn announce(&self, place: &ColumnPlace, rows: impl Iterator<Item = Range<u64>>) {
        if let Self::File(file) = self {
            announce(file, place, rows);
        }
    }
}

/// Reads columns of the symbols whose runs are given, checks them, and lays the added bars behind them. Of each run, so many chunks at
/// its beginning are not read; of none if `unread` is empty.
pub(crate) fn read_checked(
    bars: Bars<'_>,
    sums: &Sums,
    names: &[String],
    (runs, unread): (&[Run], &[usize]),
    added: &Added,
) -> Result<Columns, Unchecked> {
    let times = sums.column(TIME).ok_or(Unchecked)?;
    let values = read_values(bars, sums, names, (runs, unread), added)?;
    // The runs whose times are read, and for each symbol which of them has its times.
    let mut distinct: Vec<Run> = Vec::with_capacity(runs.len());
    let (mut rows, mut behind, mut unread_of) = (Vec::new(), Vec::new(), Vec::new());
    let mut known = HashMap::new();
    let mut which = Vec::with_capacity(runs.len());
    let mut from = 0;
    for (at, run) in runs.iter().enumerate() {
        let sums = times.sums.get(run.chunk..run.chunk + run.chunks()).ok_or(Unchecked)?;
        let skipped = unread.get(at).copied().unwrap_or(0);
        let later = added.rows.get(at).copied().unwrap_or(0);
        let later = added.times.get(from..from + later).ok_or(Unchecked)?;
        from += later.len();
        which.push(*known.entry((run.rows, skipped, sums, later)).or_insert_with(|| {
            distinct.push(*run);
            unread_of.push(skipped);
            rows.push(later.len());
            behind.extend_from_slice(later);
            distinct.len() - 1
        }));
    }
    let behind = Behind { rows: &rows, values: &behind };
    // Times are searched: each symbol has zeros before those that are read.
    let (ends, ranges) = behind.layout(&distinct, &[]);
    let buffer = if unread.iter().any(|chunks| *chunks > 0) { Buffer::zeros(ends) } else { Buffer::of(ends) };
    let buffer = read_runs(bars, times, (&distinct, &unread_of), &behind, buffer, &ranges)?;
    let times = which.into_iter().map(|at| Series::of(&buffer, ranges[at].clone())).collect();
    Ok(Columns { times, values })
}

/// As [`read_checked`], without times: by column, then by symbol.
pub(crate) fn read_values(
    bars: Bars<'_>,
    sums: &Sums,
    names: &[String],
    (runs, unread): (&[Run], &[usize]),
    added: &Added,
) -> Result<Vec<Vec<Series<f64>>>, Unchecked> {
    let values = names.iter().enumerate().map(|(at, name)| {
        let behind = Behind { rows: &added.rows, values: added.values.get(at).map_or(&[], Vec::as_slice) };
        let (ends, ranges) = behind.layout(runs, unread);
        let column = sums.column(name).ok_or(Unchecked)?;
        let buffer = read_runs(bars, column, (runs, unread), &behind, Buffer::of(ends), &ranges)?;
        Ok(ranges.into_iter().map(|range| Series::of(&buffer, range)).collect())
    });
    values.collect()
}

/// Times of which only the last of each symbol is known; those before are zeros. Symbols share them.
pub(crate) fn last_times(lasts: &[(u64, TimeMicros)]) -> Vec<Series<TimeMicros>> {
    let mut longest: HashMap<TimeMicros, usize> = HashMap::new();
    for (rows, last) in lasts {
        let known = longest.entry(*last).or_default();
        *known = (*known).max(*rows as usize);
    }
    let made = longest.into_iter().map(|(last, rows)| {
        let mut buffer = Buffer::zeros(rows);
        buffer.values_mut().last_mut().into_iter().for_each(|value| *value = last);
        (last, (Arc::new(buffer), rows))
    });
    let made: HashMap<TimeMicros, (Arc<Buffer<TimeMicros>>, usize)> = made.collect();
    let of = |(rows, last): &(u64, TimeMicros)| {
        made.get(last).map_or_else(Series::default, |(buffer, all)| Series::of(buffer, all - *rows as usize..*all))
    };
    lasts.iter().map(of).collect()
}

/// Columns that are in memory, with the added bars laid behind them. Nothing is copied of rows that were not read.
pub(crate) fn lay_behind(base: &Columns, (runs, unread): (&[Run], &[usize]), added: &Added) -> Columns {
    let values = base.values.iter().enumerate().map(|(at, series)| {
        let behind = Behind { rows: &added.rows, values: added.values.get(at).map_or(&[], Vec::as_slice) };
        let (ends, ranges) = behind.layout(runs, unread);
        let buffer = lay_runs(series, (runs, unread), &behind, Buffer::of(ends), &ranges);
        ranges.into_iter().map(|range| Series::of(&buffer, range)).collect()
    });
    let values = values.collect();
    // As when they are read: symbols with the same times share them.
    let (mut distinct, mut distinct_series, mut unread_of) = (Vec::new(), Vec::new(), Vec::new());
    let (mut rows, mut behind): (Vec<usize>, Vec<TimeMicros>) = (Vec::new(), Vec::new());
    let mut known: HashMap<(usize, &[TimeMicros]), usize> = HashMap::new();
    let mut first_of: Vec<usize> = Vec::with_capacity(runs.len());
    let mut which = Vec::with_capacity(runs.len());
    for (at, (run, times)) in runs.iter().zip(&base.times).enumerate() {
        let later = added.times.get(added.range(at)).unwrap_or_default();
        let same = |other: &&usize| base.times[**other].same_as(times);
        let first = first_of.iter().find(same).copied().unwrap_or(at);
        if first == at {
            first_of.push(at);
        }
        which.push(*known.entry((first, later)).or_insert_with(|| {
            distinct.push(*run);
            distinct_series.push(times.clone());
            unread_of.push(unread.get(at).copied().unwrap_or(0));
            rows.push(later.len());
            behind.extend_from_slice(later);
            distinct.len() - 1
        }));
    }
    let behind = Behind { rows: &rows, values: &behind };
    let (ends, ranges) = behind.layout(&distinct, &[]);
    let buffer = if unread_of.iter().any(|chunks| *chunks > 0) { Buffer::zeros(ends) } else { Buffer::of(ends) };
    let buffer = lay_runs(&distinct_series, (&distinct, &unread_of), &behind, buffer, &ranges);
    let times = which.into_iter().map(|at| Series::of(&buffer, ranges[at].clone())).collect();
    Columns { times, values }
}

/// Copies what was read of runs into one buffer, each to its range, with what is behind it.
fn lay_runs<T: Value>(
    series: &[Series<T>],
    (runs, unread): (&[Run], &[usize]),
    behind: &Behind<'_, T>,
    mut buffer: Buffer<T>,
    ranges: &[Range<usize>],
) -> Arc<Buffer<T>> {
    let all = buffer.values_mut();
    for (at, ((run, values), range)) in runs.iter().zip(series).zip(ranges).enumerate() {
        let skipped = run.rows_of(unread.get(at).copied().unwrap_or(0)) as usize;
        let from = values.get(skipped..run.rows as usize).unwrap_or_default();
        if let Some(to) = all.get_mut(range.start + skipped..range.start + skipped + from.len()) {
            to.copy_from_slice(from);
        }
    }
    behind.put(ranges, all);
    Arc::new(buffer)
}

/// Reads runs of a column into one buffer, each to its range, with what is behind it. The parts of the ranges that are read follow
/// one another.
fn read_runs<T: Value>(
    bars: Bars<'_>,
    column: &ColumnSums,
    (runs, unread): (&[Run], &[usize]),
    behind: &Behind<'_, T>,
    mut buffer: Buffer<T>,
    ranges: &[Range<usize>],
) -> Result<Arc<Buffer<T>>, Unchecked> {
    let all = buffer.values_mut();
    // Rows in the file, their checksum, and where they belong in the buffer.
    let mut chunks = Vec::new();
    for (at, (run, range)) in runs.iter().zip(ranges).enumerate() {
        let skipped = unread.get(at).copied().unwrap_or(0);
        for (rows, sum) in run.parts().zip(column.sums.get(run.chunk..).ok_or(Unchecked)?).skip(skipped) {
            let to = range.start + (rows.start - run.row) as usize;
            chunks.push((rows, *sum, to));
        }
    }
    if unread.iter().any(|chunks| *chunks > 0) {
        bars.announce(&column.place, chunks.iter().map(|(rows, ..)| rows.clone()));
    }
    let mut at = 0;
    while let Some((first, _, to)) = chunks.get(at) {
        // As many chunks as lie in a row in the file.
        let (mut rows, mut next) = (first.clone(), at + 1);
        while let Some((more, ..)) = chunks.get(next).filter(|(more, ..)| more.start == rows.end) {
            if more.end - rows.start > READ_VALUES {
                break;
            }
            rows.end = more.end;
            next += 1;
        }
        let part = all.get_mut(*to..*to + (rows.end - rows.start) as usize).ok_or(Unchecked)?;
        bars.read(&column.place, rows.clone(), part)?;
        let mut checked: &[T] = part;
        for (rows, sum, _) in &chunks[at..next] {
            let (chunk, others) = checked.split_at((rows.end - rows.start) as usize);
            if sum_of(chunk.as_bytes()) != *sum {
                return Err(Unchecked);
            }
            checked = others;
        }
        in_own_order(part);
        // Room for what is behind each run: the last chunk moves first, so that none is overwritten.
        for (own, _, goal) in chunks[at..next].iter().rev() {
            let from = to + (own.start - rows.start) as usize;
            if from != *goal {
                all.copy_within(from..from + (own.end - own.start) as usize, *goal);
            }
        }
        at = next;
    }
    behind.put(ranges, all);
    Ok(Arc::new(buffer))
}

/// Asks the kernel to have these rows of a file in memory soon. They lie apart, so that it would not read ahead by itself, and a disk is
/// much faster with many requests at once.
#[cfg(target_os = "linux")]
fn announce(file: &fs::File, place: &ColumnPlace, rows: impl Iterator<Item = Range<u64>>) {
    for range in rows.flat_map(|rows| place.bytes_of(rows)) {
        let length = std::num::NonZero::new(range.end - range.start);
        // It is only a wish.
        let _ = rustix::fs::fadvise(file, range.start, length, rustix::fs::Advice::WillNeed);
    }
}

/// Other systems read when they are asked.
#[cfg(not(target_os = "linux"))]
fn announce(_file: &fs::File, _place: &ColumnPlace, _rows: impl Iterator<Item = Range<u64>>) {}

/// Copies columns of the symbols whose runs are given from the content of a file, whose sha256 is known to be right, and lays the
/// added bars behind them.
pub(crate) fn copy_columns(bytes: &[u8], names: &[String], runs: &[Run], added: &Added) -> Result<Columns, String> {
    let places = crate::arrow_file::places(bytes)?;
    let rows = places.first().map_or(0, ColumnPlace::rows);
    let needed = runs.last().map_or(0, |run| run.row + run.rows);
    let place = |name: &str| {
        let place =
            places.iter().find(|place| place.name == name).ok_or_else(|| format!("it has no column '{name}'"))?;
        if place.rows() == rows && rows >= needed {
            Ok(place)
        } else {
            Err(format!("it has {rows} rows, not {needed}"))
        }
    };
    let copied = |name: &String| Ok(Some(place(name)?));
    lay_columns(names.iter().map(copied).collect::<Result<_, String>>()?, Some(place(TIME)?), bytes, runs, added)
}

/// The added bars alone, of symbols that have no others.
pub(crate) fn added_columns(columns: usize, runs: &[Run], added: &Added) -> Result<Columns, String> {
    lay_columns(vec![None; columns], None, &[], runs, added)
}

fn lay_columns(
    places: Vec<Option<&ColumnPlace>>,
    times: Option<&ColumnPlace>,
    bytes: &[u8],
    runs: &[Run],
    added: &Added,
) -> Result<Columns, String> {
    let behind = |at: usize| Behind { rows: &added.rows, values: added.values.get(at).map_or(&[], Vec::as_slice) };
    let values = places.into_iter().enumerate().map(|(at, place)| copy_runs(bytes, place, runs, &behind(at)));
    let values = values.collect::<Result<_, String>>()?;
    let behind = Behind { rows: &added.rows, values: &added.times };
    Ok(Columns { times: copy_runs(bytes, times, runs, &behind)?, values })
}

fn copy_runs<T: Value>(
    bytes: &[u8],
    place: Option<&ColumnPlace>,
    runs: &[Run],
    behind: &Behind<'_, T>,
) -> Result<Vec<Series<T>>, String> {
    let (ends, ranges) = behind.layout(runs, &[]);
    let mut buffer = Buffer::of(ends);
    let all = buffer.values_mut();
    for (run, range) in runs.iter().zip(&ranges).filter(|(run, _)| run.rows > 0) {
        let part = all.get_mut(range.start..range.start + run.rows as usize).ok_or("it has too many rows")?;
        place.ok_or("it is missing")?.copy(bytes, run.row..run.row + run.rows, part)?;
    }
    behind.put(&ranges, all);
    let buffer = Arc::new(buffer);
    Ok(ranges.into_iter().map(|range| Series::of(&buffer, range)).collect())
}

//! Reads the bars of a group: the requested columns of the requested symbols, straight into the buffers that a scan
//! computes from.
//!
//! With the checksums of the group's file (see [`crate::sums`]) every chunk is checked right after it is read, while it
//! is in the CPU's cache. Without them, or as soon as one does not match, the file is read whole and its sha256
//! compared with the manifest, which decides. Symbols of a group often trade at the same times: times with the same
//! checksums are read once and shared.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use zerocopy::IntoBytes as _;

use crate::arrow_file::{ColumnPlace, TIME, in_own_order};
use crate::limits::SUMS_KEPT_BYTES_MAX;
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

/// Why the checked columns could not be had; the whole file has to be read.
#[derive(Debug)]
pub(crate) struct Unchecked;

impl From<io::Error> for Unchecked {
    fn from(_: io::Error) -> Self {
        Self
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
pub(crate) fn read_sums(path: &std::path::Path, sha256: &str, file_bytes: u64, runs: &[Run]) -> Option<Sums> {
    let file = fs::File::open(path).ok()?;
    let size = file.metadata().ok().map(|m| m.len()).filter(|size| *size <= SUMS_BYTES_MAX)?;
    let mut bytes = vec![0; size as usize];
    read_at(&file, &mut bytes, 0).ok()?;
    Sums::decode(&bytes, sha256, file_bytes, runs)
}

/// Reads columns of the symbols whose runs are given, and checks them.
pub(crate) fn read_checked(file: &fs::File, sums: &Sums, names: &[String], runs: &[Run]) -> Result<Columns, Unchecked> {
    let times = sums.column(TIME).ok_or(Unchecked)?;
    let values = names.iter().map(|name| {
        let (buffer, ranges) = read_runs(file, sums.column(name).ok_or(Unchecked)?, runs)?;
        Ok(ranges.into_iter().map(|range| Series::of(&buffer, range)).collect())
    });
    let values = values.collect::<Result<_, Unchecked>>()?;
    // The runs whose times are read, and for each symbol which of them has its times.
    let mut distinct: Vec<Run> = Vec::with_capacity(runs.len());
    let mut known: HashMap<(u64, &[u64]), usize> = HashMap::new();
    let mut which = Vec::with_capacity(runs.len());
    for run in runs {
        let sums = times.sums.get(run.chunk..run.chunk + run.chunks()).ok_or(Unchecked)?;
        which.push(*known.entry((run.rows, sums)).or_insert_with(|| {
            distinct.push(*run);
            distinct.len() - 1
        }));
    }
    let (buffer, ranges) = read_runs(file, times, &distinct)?;
    let times = which.into_iter().map(|at| Series::of(&buffer, ranges[at].clone())).collect();
    Ok(Columns { times, values })
}

/// Reads runs of a column into one buffer, one after the other; returns where each of them is.
#[allow(clippy::type_complexity)]
fn read_runs<T: Value>(
    file: &fs::File,
    column: &ColumnSums,
    runs: &[Run],
) -> Result<(Arc<Buffer<T>>, Vec<Range<usize>>), Unchecked> {
    let mut ends = 0;
    let ranges: Vec<Range<usize>> = runs
        .iter()
        .map(|run| {
            let from = ends;
            ends += run.rows as usize;
            from..ends
        })
        .collect();
    let mut buffer = Buffer::of(ends);
    let mut rest = buffer.values_mut();
    let mut chunks = Vec::new();
    for run in runs {
        for (rows, sum) in run.parts().zip(column.sums.get(run.chunk..).ok_or(Unchecked)?) {
            chunks.push((rows, *sum));
        }
    }
    let mut at = 0;
    while let Some((first, _)) = chunks.get(at) {
        // As many chunks as lie in a row in the file.
        let (mut rows, mut next) = (first.clone(), at + 1);
        while let Some((more, _)) = chunks.get(next).filter(|(more, _)| more.start == rows.end) {
            if more.end - rows.start > READ_VALUES {
                break;
            }
            rows.end = more.end;
            next += 1;
        }
        let (part, behind) = std::mem::take(&mut rest).split_at_mut((rows.end - rows.start) as usize);
        read_rows(file, &column.place, rows, part)?;
        let mut checked: &[T] = part;
        for (rows, sum) in &chunks[at..next] {
            let (chunk, others) = checked.split_at((rows.end - rows.start) as usize);
            if sum_of(chunk.as_bytes()) != *sum {
                return Err(Unchecked);
            }
            checked = others;
        }
        in_own_order(part);
        (rest, at) = (behind, next);
    }
    Ok((Arc::new(buffer), ranges))
}

/// Reads a range of rows in the byte order of the file.
fn read_rows<T: Value>(file: &fs::File, place: &ColumnPlace, rows: Range<u64>, to: &mut [T]) -> Result<(), Unchecked> {
    let mut rest = to.as_mut_bytes();
    for range in place.bytes_of(rows) {
        let (part, behind) = rest.split_at_mut_checked((range.end - range.start) as usize).ok_or(Unchecked)?;
        read_at(file, part, range.start)?;
        rest = behind;
    }
    if rest.is_empty() { Ok(()) } else { Err(Unchecked) }
}

/// Fills a buffer from an offset of a file.
#[cfg(unix)]
fn read_at(file: &fs::File, to: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, to, offset)
}

/// Fills a buffer from an offset of a file, which nobody else reads meanwhile.
#[cfg(not(unix))]
fn read_at(mut file: &fs::File, to: &mut [u8], offset: u64) -> io::Result<()> {
    use std::io::{Read as _, Seek as _};
    file.seek(io::SeekFrom::Start(offset))?;
    file.read_exact(to)
}

/// Copies columns of the symbols whose runs are given from the content of a file, whose sha256 is known to be right.
pub(crate) fn copy_columns(bytes: &[u8], names: &[String], runs: &[Run]) -> Result<Columns, String> {
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
    let values = names.iter().map(|name| copy_runs(bytes, place(name)?, runs)).collect::<Result<_, String>>()?;
    Ok(Columns { times: copy_runs(bytes, place(TIME)?, runs)?, values })
}

fn copy_runs<T: Value>(bytes: &[u8], place: &ColumnPlace, runs: &[Run]) -> Result<Vec<Series<T>>, String> {
    let all: u64 = runs.iter().map(|run| run.rows).sum();
    let mut buffer = Buffer::of(all as usize);
    let mut rest = buffer.values_mut();
    for run in runs {
        let (part, behind) = std::mem::take(&mut rest).split_at_mut(run.rows as usize);
        place.copy(bytes, run.row..run.row + run.rows, part)?;
        rest = behind;
    }
    let buffer = Arc::new(buffer);
    let mut end = 0;
    Ok(runs
        .iter()
        .map(|run| {
            let from = end;
            end += run.rows as usize;
            Series::of(&buffer, from..end)
        })
        .collect())
}

//! Parts of a group's columns, copied from an object store: what a scan needs of a file that is much larger than that.
//!
//! A file with the years of minutes of a group has gigabytes, of which a condition at the newest bar needs the end of one or two columns
//! of each symbol. Each such part is a file of the cache of its own, named by the column and the rows that it has. Its chunks are
//! compared with the checksums of the group's file as it arrives and whenever it is read.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::arrow_file::TIME;
use crate::read_at::{Unchecked, read_at};
use crate::series::VALUE_BYTES;
use crate::sums::{CHUNK_ROWS, ColumnSums, Run, sum_of};

/// Hex digits of a part's name.
const NAME_DIGITS: usize = 32;

/// Rows of a symbol that are in a part.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    /// In the group's file.
    rows: Range<u64>,
    /// The place of the first among the rows of the part. Symbols that have the same times share them.
    at: u64,
}

/// Which rows of a column a part has.
#[derive(Debug)]
pub(crate) struct PartPlan<'a> {
    column: &'a ColumnSums,
    /// By symbol.
    pieces: Vec<Piece>,
    /// Rows in the group's file and the checksum of each chunk, in the order of the part.
    chunks: Vec<(Range<u64>, u64)>,
}

impl<'a> PartPlan<'a> {
    /// The rows of runs of which so many chunks at the beginning are not needed; of none if `unread` is empty.
    pub fn new(column: &'a ColumnSums, (runs, unread): (&[Run], &[usize])) -> Option<Self> {
        let mut known: HashMap<(u64, usize, &[u64]), u64> = HashMap::new();
        let (mut pieces, mut chunks, mut rows) = (Vec::with_capacity(runs.len()), Vec::new(), 0);
        for (at, run) in runs.iter().enumerate() {
            let skipped = unread.get(at).copied().unwrap_or(0);
            let sums = column.sums.get(run.chunk..run.chunk + run.chunks())?;
            let needed = run.row + run.rows_of(skipped)..run.row + run.rows;
            let is_shared = column.place.name == TIME;
            let place = is_shared.then(|| known.get(&(run.rows, skipped, sums)).copied()).flatten();
            let at = place.unwrap_or(rows);
            if place.is_none() {
                known.insert((run.rows, skipped, sums), at);
                chunks.extend(run.parts().zip(sums.iter().copied()).skip(skipped));
                rows += needed.end - needed.start;
            }
            if !needed.is_empty() {
                pieces.push(Piece { rows: needed, at });
            }
        }
        pieces.sort_unstable_by_key(|piece| piece.rows.start);
        Some(Self { column, pieces, chunks })
    }

    /// Bytes of the part.
    pub fn bytes(&self) -> u64 {
        self.chunks.iter().map(|(rows, _)| (rows.end - rows.start) * VALUE_BYTES).sum()
    }

    /// The part's name, which no other part of the same file has.
    pub fn name(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(self.column.place.name.as_bytes());
        for (rows, _) in &self.chunks {
            hash.update([rows.start, rows.end].map(u64::to_le_bytes).as_flattened());
        }
        let mut name = hex::encode(hash.finalize());
        name.truncate(NAME_DIGITS);
        name
    }

    /// Where its bytes are in the group's file: ranges that ascend and do not touch.
    pub fn ranges(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for range in self.chunks.iter().flat_map(|(rows, _)| self.column.place.bytes_of(rows.clone())) {
            match ranges.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => ranges.push(range),
            }
        }
        ranges
    }

    /// Whether a file is this part: each chunk has its checksum, and there is nothing else.
    pub fn is_right(&self, file: &fs::File) -> bool {
        let mut chunk = vec![0; (CHUNK_ROWS * VALUE_BYTES) as usize];
        let mut offset = 0;
        let mut matches = |(rows, sum): &(Range<u64>, u64)| {
            let bytes = (rows.end - rows.start) * VALUE_BYTES;
            let Some(chunk) = chunk.get_mut(..bytes as usize) else { return false };
            let is_read = read_at(file, chunk, offset).is_ok();
            offset += bytes;
            is_read && sum_of(chunk) == *sum
        };
        self.chunks.iter().all(&mut matches) && file.metadata().is_ok_and(|found| found.len() == self.bytes())
    }

    /// The part, once its file is here.
    pub fn with(self, file: Arc<fs::File>) -> ColumnPart {
        ColumnPart { column: self.column.place.name.clone(), pieces: self.pieces, file }
    }
}

/// A part of a column that is on this machine.
#[derive(Debug)]
pub(crate) struct ColumnPart {
    column: String,
    pieces: Vec<Piece>,
    pub file: Arc<fs::File>,
}

impl ColumnPart {
    /// Reads rows of the group's file, which are rows of symbols that the part has.
    pub fn read(&self, rows: Range<u64>, to: &mut [u8]) -> Result<(), Unchecked> {
        let (mut next, mut rest) = (rows.start, to);
        while next < rows.end {
            let behind = self.pieces.partition_point(|piece| piece.rows.start <= next);
            let piece = behind.checked_sub(1).and_then(|at| self.pieces.get(at)).filter(|piece| next < piece.rows.end);
            let piece = piece.ok_or(Unchecked)?;
            let end = rows.end.min(piece.rows.end);
            let (part, others) = rest.split_at_mut_checked(((end - next) * VALUE_BYTES) as usize).ok_or(Unchecked)?;
            read_at(&self.file, part, (piece.at + next - piece.rows.start) * VALUE_BYTES)?;
            (next, rest) = (end, others);
        }
        if rest.is_empty() { Ok(()) } else { Err(Unchecked) }
    }
}

/// Parts of some columns of a group.
#[derive(Debug)]
pub(crate) struct ColumnParts(pub Vec<(String, ColumnPart)>);

impl ColumnParts {
    /// The part of a column.
    pub fn of(&self, column: &str) -> Option<&ColumnPart> {
        self.0.iter().map(|(_, part)| part).find(|part| part.column == column)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::arrow_file::ColumnPlace;

    /// A column of a file whose bytes begin at 40 and go on at 100,000 behind so many rows.
    fn column(name: &str, values: &[u64], runs: &[Run]) -> (Vec<u8>, ColumnSums) {
        let (first, second) = values.split_at(values.len() / 3);
        let segments = vec![(40, first.len() as u64), (2_000_000, second.len() as u64)];
        let mut file = vec![0; 2_000_000 + second.len() * 8];
        for (values, (offset, _)) in [first, second].into_iter().zip(&segments) {
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            file[*offset as usize..*offset as usize + bytes.len()].copy_from_slice(&bytes);
        }
        let place = ColumnPlace { name: name.to_owned(), segments };
        let sum = |rows: Range<u64>| {
            let bytes: Vec<u8> =
                values[rows.start as usize..rows.end as usize].iter().flat_map(|v| v.to_le_bytes()).collect();
            sum_of(&bytes)
        };
        let sums = runs.iter().flat_map(|run| run.parts()).map(sum).collect();
        (file, ColumnSums { place, sums, largest: Vec::new() })
    }

    fn file_of(content: &[u8]) -> fs::File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file
    }

    #[test]
    fn a_part_has_what_is_needed_once_and_gives_the_rows_of_the_file() {
        let runs = Run::of([10_000, 10_000, 0, 9_000, 300].into_iter());
        // Two symbols with the same times, one with others.
        let values: Vec<u64> = (0..10_000).chain(0..10_000).chain(50_000..59_000).chain(7_000..7_300).collect();
        for (name, unread, expected) in [
            (TIME, vec![2, 2, 0, 1, 0], 10_000 - 8_192 + 9_000 - 4_096 + 300),
            ("close", vec![2, 2, 0, 1, 0], 2 * (10_000 - 8_192) + 9_000 - 4_096 + 300),
            (TIME, vec![1, 2, 0, 3, 0], (10_000 - 4_096) + (10_000 - 8_192) + 300),
            ("close", Vec::new(), values.len() as u64),
        ] {
            let (content, sums) = column(name, &values, &runs);
            let plan = PartPlan::new(&sums, (&runs, &unread)).unwrap();
            assert_eq!(plan.bytes(), expected * 8, "{name} {unread:?}");
            let ranges = plan.ranges();
            assert!(ranges.windows(2).all(|two| two[0].end < two[1].start), "{ranges:?}");
            let mut part: Vec<u8> =
                ranges.iter().flat_map(|range| content[range.start as usize..range.end as usize].to_vec()).collect();
            let file = file_of(&part);
            assert!(plan.is_right(&file));
            let other = PartPlan::new(&sums, (&runs, &[2, 2, 0, 2, 0])).unwrap();
            assert_ne!(plan.name(), other.name());
            assert!(!other.is_right(&file));
            let middle = part.len() / 2;
            part[middle] ^= 4;
            assert!(!plan.is_right(&file_of(&part)) && !plan.is_right(&file_of(&part[..middle])));
            let read = plan.with(Arc::new(file));
            for (at, run) in runs.iter().enumerate() {
                let from = run.row + run.rows_of(unread.get(at).copied().unwrap_or(0));
                for rows in [from..run.row + run.rows, from + run.rows.min(7)..(from + 100).min(run.row + run.rows)] {
                    if rows.is_empty() {
                        continue;
                    }
                    let mut to = vec![0; (rows.end - rows.start) as usize * 8];
                    read.read(rows.clone(), &mut to).unwrap();
                    let expected = &values[rows.start as usize..rows.end as usize];
                    let found: Vec<u64> =
                        to.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
                    assert_eq!(found, expected, "{name} {rows:?}");
                }
            }
            if unread.first().is_some_and(|chunks| *chunks > 0) {
                assert!(read.read(0..1, &mut [0; 8]).is_err(), "the first row is not in it");
            }
        }
    }

    #[test]
    fn rows_of_symbols_that_follow_one_another_are_read_at_once() {
        let runs = Run::of([5_000, 5_000].into_iter());
        let values: Vec<u64> = (0..10_000).collect();
        let (content, sums) = column("close", &values, &runs);
        let plan = PartPlan::new(&sums, (&runs, &[1, 0])).unwrap();
        let part: Vec<u8> =
            plan.ranges().iter().flat_map(|r| content[r.start as usize..r.end as usize].to_vec()).collect();
        let read = plan.with(Arc::new(file_of(&part)));
        let mut to = vec![0; 1_500 * 8];
        read.read(4_500..6_000, &mut to).unwrap();
        let found: Vec<u64> = to.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        assert_eq!(found, &values[4_500..6_000]);
        assert!(read.read(4_000..6_000, &mut [0; 16_000]).is_err());
    }
}

//! The rows of one piece of a file, symbol by symbol.

use crate::limits::CLASSIFY_ROWS;
use crate::reading::{NAIVE, RawRows};
use crate::time::TimeMicros;

/// Offsets from UTC of rows.
#[derive(Debug, Clone)]
pub(super) enum Offsets {
    /// The same for all.
    All(i32),
    Each(Vec<i32>),
}

impl Offsets {
    fn of(offsets: Vec<i32>) -> Self {
        match offsets.first() {
            Some(&first) if offsets.iter().all(|offset| *offset == first) => Self::All(first),
            _ => Self::Each(offsets),
        }
    }

    /// Adds those of some rows.
    pub fn copy(&self, start: usize, rows: usize, to: &mut Vec<i32>) {
        match self {
            Self::All(offset) if rows == 1 => to.push(*offset),
            Self::All(offset) => to.resize(to.len() + rows, *offset),
            Self::Each(offsets) => to.extend_from_slice(&offsets[start..start + rows]),
        }
    }
}

/// Which rows of a block have a time without a zone.
#[derive(Debug, Clone)]
pub(super) enum Naive {
    All,
    None,
    /// Numbers of the rows.
    Some(Vec<u32>),
}

/// What is known of a block besides its rows; kept in memory also when the rows are not.
#[derive(Debug)]
pub(super) struct BlockFacts {
    /// The reading of a file that it belongs to.
    pub pass: u32,
    /// Line of the first row.
    first_line: u64,
    /// Rows whose line is not the one after that of the row before, with their lines relative to the first.
    breaks: Vec<(u32, u32)>,
    naive: Naive,
    /// Rows without a zone before it in the file.
    pub naive_before: u64,
    /// Its rows.
    pub rows: u32,
}

impl BlockFacts {
    /// The line of a row, by its number.
    pub fn line(&self, row: u32) -> u64 {
        let before = self.breaks.partition_point(|(at, _)| *at <= row);
        let (at, line) = before.checked_sub(1).map_or((0, 0), |before| self.breaks[before]);
        self.first_line + u64::from(line) + u64::from(row - at)
    }

    /// How many rows of the file without a zone come before this one; `None` if it has a zone.
    pub fn naive_rank(&self, row: u32) -> Option<u64> {
        let rank = match &self.naive {
            Naive::All => Some(u64::from(row)),
            Naive::None => None,
            Naive::Some(rows) => rows.binary_search(&row).ok().map(|at| at as u64),
        };
        rank.map(|rank| self.naive_before + rank)
    }

    /// Rows without a zone.
    pub fn naive_rows(&self) -> u64 {
        match &self.naive {
            Naive::All => u64::from(self.rows),
            Naive::None => 0,
            Naive::Some(rows) => rows.len() as u64,
        }
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> u64 {
        let naive = if let Naive::Some(rows) = &self.naive { 4 * rows.len() } else { 0 };
        (size_of::<Self>() + 8 * self.breaks.len() + naive) as u64
    }
}

/// The rows of a block, all rows of a symbol side by side and in the file's order.
#[derive(Debug)]
pub(super) struct BlockRows {
    /// Number of each row in the block as it was read; `None` where that is its place.
    numbers: Option<Vec<u32>>,
    pub local: Vec<TimeMicros>,
    pub offset: Offsets,
    /// By column.
    pub values: Vec<Vec<f64>>,
}

impl BlockRows {
    /// The number of a row, by its place.
    pub fn number(&self, place: usize) -> u32 {
        // A block has fewer rows than 2^32.
        self.numbers.as_ref().map_or(place as u32, |numbers| numbers[place])
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> u64 {
        let offsets = if let Offsets::Each(offsets) = &self.offset { 4 * offsets.len() } else { 0 };
        let numbers = self.numbers.as_ref().map_or(0, |numbers| 4 * numbers.len());
        (size_of::<Self>() + self.local.len() * 8 * (1 + self.values.len()) + offsets + numbers) as u64
    }
}

/// The rows of a piece, as the thread that read them arranged them.
pub(super) struct Block {
    pub facts: BlockFacts,
    pub rows: BlockRows,
    /// Provisional id of a symbol, its first row, number of its rows.
    pub symbols: Vec<(u32, u32, u32)>,
    /// The first rows of the file's order: provisional id, local time, offset.
    pub head: Vec<(u32, TimeMicros, i32)>,
}

impl Block {
    /// Arranges rows by symbol.
    pub fn of(rows: RawRows) -> Self {
        let RawRows { of, local, offset, lines, values, .. } = rows;
        let head =
            of.iter().zip(&local).zip(&offset).take(CLASSIFY_ROWS).map(|((of, local), offset)| (*of, *local, *offset));
        let head = head.collect();
        let first_line = lines.first().copied().unwrap_or(0);
        // Lines of a piece are less than 2^32 apart: each has a byte or more.
        let relative = |line: u64| (line - first_line) as u32;
        let broken = |pair: &[u64]| pair[1] != pair[0] + 1;
        let breaks = (1u32..).zip(lines.windows(2)).filter(|(_, pair)| broken(pair));
        let breaks: Vec<(u32, u32)> = breaks.map(|(at, pair)| (at, relative(pair[1]))).collect();
        let count = offset.iter().filter(|offset| **offset == NAIVE).count();
        let naive = match count {
            0 => Naive::None,
            all if all == offset.len() => Naive::All,
            _ => Naive::Some((0u32..).zip(&offset).filter(|(_, o)| **o == NAIVE).map(|(row, _)| row).collect()),
        };
        let facts = BlockFacts { pass: 0, first_line, breaks, naive, naive_before: 0, rows: of.len() as u32 };
        let offset = Offsets::of(offset);
        if of.is_sorted() {
            let mut symbols: Vec<(u32, u32, u32)> = Vec::new();
            for (row, symbol) in (0u32..).zip(&of) {
                match symbols.last_mut() {
                    Some((last, _, rows)) if last == symbol => *rows += 1,
                    _ => symbols.push((*symbol, row, 1)),
                }
            }
            return Self { facts, rows: BlockRows { numbers: None, local, offset, values }, symbols, head };
        }
        // Counted by symbol, then each row is put where its symbol's next one belongs.
        let mut next = vec![0u32; of.iter().max().map_or(0, |most| *most as usize + 1)];
        of.iter().for_each(|symbol| next[*symbol as usize] += 1);
        let (mut symbols, mut start) = (Vec::new(), 0);
        for (symbol, next) in (0u32..).zip(&mut next) {
            let rows = std::mem::replace(next, start);
            if rows > 0 {
                symbols.push((symbol, start, rows));
                start += rows;
            }
        }
        let mut numbers = vec![0u32; of.len()];
        for (row, symbol) in (0u32..).zip(&of) {
            let place = &mut next[*symbol as usize];
            numbers[*place as usize] = row;
            *place += 1;
        }
        let arranged = |values: &[f64]| numbers.iter().map(|row| values[*row as usize]).collect();
        let values = values.iter().map(|values| arranged(values)).collect();
        let local = numbers.iter().map(|row| local[*row as usize]).collect();
        let offset = match offset {
            Offsets::All(offset) => Offsets::All(offset),
            Offsets::Each(each) => Offsets::Each(numbers.iter().map(|row| each[*row as usize]).collect()),
        };
        Self { facts, rows: BlockRows { numbers: Some(numbers), local, offset, values }, symbols, head }
    }
}

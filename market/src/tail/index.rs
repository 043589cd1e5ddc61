//! The index of a file of appended bars: which rows are whose, with times, counts and checksums.
//!
//! The manifest names it by its sha256, so its content is trusted once that was compared, but still checked: what reads by it
//! relies on nothing else. Numbers are of variable length (see [`put_number`]) if nothing else is said; those with a sign are
//! zigzag-encoded.
//!
//! [`MAGIC`]; the sha256 of the file of bars (32 bytes); its bytes; its rows; columns, and for each, times first: the length of its
//! name, its name, its segments, for each segment its offset in the file and its rows; distinct times, the first one, then the
//! differences; groups, and for each: its number (the first) or the difference to the one before, symbols, and for each symbol: how
//! many bytes of its name are those of the one before, how many follow, these, its rows, the place of its first time among the
//! distinct ones, and how many places later the last is; then for each column a checksum (XXH3, 64 bits, little-endian) for each
//! [`CHUNK_ROWS`] rows of the group, or what is left of them.

use std::ops::Range;

use crate::arrow_file::ColumnPlace;
use crate::cursor::{Cursor, put_number};
use crate::limits::COLUMNS_MAX;
use crate::manifest::TailFile;
use crate::name::is_symbol;
use crate::series::VALUE_BYTES;
use crate::sums::{CHUNK_ROWS, digest_bytes};
use crate::time::TimeMicros;

/// The first bytes of an index, with the version of what follows.
pub(crate) const MAGIC: &[u8; 8] = b"TRAWLTL1";

/// The index of one file of appended bars.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TailIndex {
    /// The times, then the numeric columns.
    pub columns: Vec<ColumnPlace>,
    /// All different times, ascending.
    pub times: Vec<TimeMicros>,
    /// Ascending, in the order of the rows.
    pub groups: Vec<TailGroup>,
    /// Names of all symbols, one after the other.
    pub names: String,
}

/// The rows of one group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TailGroup {
    pub group: u32,
    /// First row in the file.
    pub row: u64,
    pub rows: u64,
    /// By name, in the order of the rows.
    pub symbols: Vec<TailSymbol>,
    /// Checksums by column, then by chunk.
    pub sums: Vec<u64>,
}

/// The rows of one symbol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TailSymbol {
    /// In [`TailIndex::names`].
    pub name: Range<usize>,
    /// At least one.
    pub rows: u64,
    pub first: TimeMicros,
    pub last: TimeMicros,
}

/// Chunks of so many rows of a group.
pub(crate) fn chunks(rows: u64) -> usize {
    rows.div_ceil(CHUNK_ROWS) as usize
}

impl TailIndex {
    /// The name of a symbol.
    pub fn name(&self, symbol: &TailSymbol) -> &str {
        self.names.get(symbol.name.clone()).unwrap_or_default()
    }

    /// The content of the index of a file of bars.
    pub fn encode(&self, sha256: &str, bytes: u64, rows: u64) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&digest_bytes(sha256));
        put_number(&mut out, bytes);
        put_number(&mut out, rows);
        put_number(&mut out, self.columns.len() as u64);
        for column in &self.columns {
            put_number(&mut out, column.name.len() as u64);
            out.extend_from_slice(column.name.as_bytes());
            put_number(&mut out, column.segments.len() as u64);
            for (offset, rows) in &column.segments {
                put_number(&mut out, *offset);
                put_number(&mut out, *rows);
            }
        }
        put_number(&mut out, self.times.len() as u64);
        let mut before = None;
        for &time in &self.times {
            put_number(&mut out, before.map_or_else(|| zigzag(time), |before| time.abs_diff(before)));
            before = Some(time);
        }
        put_number(&mut out, self.groups.len() as u64);
        let mut before = 0;
        // Times are among the distinct ones: the writer collected them from these very bars.
        let place = |time: TimeMicros| self.times.partition_point(|t| *t < time) as u64;
        for group in &self.groups {
            put_number(&mut out, u64::from(group.group - before));
            before = group.group;
            put_number(&mut out, group.symbols.len() as u64);
            let mut known = "";
            for symbol in &group.symbols {
                let name = self.name(symbol);
                let mut shared = known.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
                while !name.is_char_boundary(shared) {
                    shared -= 1;
                }
                put_number(&mut out, shared as u64);
                put_number(&mut out, (name.len() - shared) as u64);
                out.extend_from_slice(&name.as_bytes()[shared..]);
                known = name;
                let (first, last) = (place(symbol.first), place(symbol.last));
                [symbol.rows, first, last - first].into_iter().for_each(|number| put_number(&mut out, number));
            }
            group.sums.iter().for_each(|sum| out.extend(sum.to_le_bytes()));
        }
        out
    }

    /// Reads the index of a file of bars; the error says what is wrong with it.
    pub fn decode(bytes: &[u8], file: &TailFile) -> Result<Self, String> {
        let wrong = || "it is no index of this file of appended bars".to_owned();
        let content = bytes.strip_prefix(MAGIC).and_then(|rest| rest.strip_prefix(&digest_bytes(&file.sha256)[..]));
        let mut rest = Cursor::new(content.ok_or_else(wrong)?);
        if (rest.number(), rest.number()) != (Some(file.bytes), Some(file.rows)) {
            return Err(wrong());
        }
        Self::content(&mut rest, file).filter(|_| rest.is_empty()).ok_or_else(wrong)
    }

    fn content(rest: &mut Cursor<'_>, file: &TailFile) -> Option<Self> {
        let mut index = Self::default();
        let columns = rest.count(1).filter(|count| (1..=COLUMNS_MAX + 1).contains(count))?;
        for _ in 0..columns {
            index.columns.push(column(rest, file)?);
        }
        let times = rest.count(1)?;
        index.times.reserve(times);
        for at in 0..times {
            let number = rest.number()?;
            index.times.push(match index.times.last() {
                None => unzigzag(number),
                Some(before) => before.checked_add_unsigned(number).filter(|_| at > 0 && number > 0)?,
            });
        }
        let groups = rest.count(1)?;
        index.groups.reserve(groups);
        let mut row = 0u64;
        for at in 0..groups {
            let step = u32::try_from(rest.number()?).ok().filter(|step| at == 0 || *step > 0)?;
            let group = index.groups.last().map_or(0, |before| before.group).checked_add(step)?;
            let mut group = TailGroup { group, row, ..TailGroup::default() };
            index.symbols_of(&mut group, rest)?;
            row = row.checked_add(group.rows).filter(|row| *row <= file.rows)?;
            let sums = rest.take(chunks(group.rows).checked_mul(columns)?.checked_mul(size_of::<u64>())?)?;
            group.sums = sums.as_chunks::<8>().0.iter().map(|sum| u64::from_le_bytes(*sum)).collect();
            index.groups.push(group);
        }
        (row == file.rows).then_some(index)
    }

    fn symbols_of(&mut self, group: &mut TailGroup, rest: &mut Cursor<'_>) -> Option<()> {
        let symbols = rest.count(1).filter(|count| *count > 0)?;
        group.symbols.reserve(symbols);
        for _ in 0..symbols {
            let known = group.symbols.last().map_or(0..0, |before| before.name.clone());
            let shared = usize::try_from(rest.number()?).ok().filter(|shared| *shared <= known.len())?;
            let more = rest.count(1)?;
            let more = std::str::from_utf8(rest.take(more)?).ok()?;
            let from = self.names.len();
            let shared = known.start..known.start + shared;
            // None that is cut inside a character.
            self.names.get(shared.clone())?;
            self.names.extend_from_within(shared);
            self.names.push_str(more);
            let name = from..self.names.len();
            let text = self.names.get(name.clone())?;
            if !is_symbol(text) || self.names.get(known.clone())? >= text {
                return None;
            }
            let rows = rest.number().filter(|rows| *rows > 0)?;
            let first = usize::try_from(rest.number()?).ok()?;
            let later = rest.number()?;
            let last = usize::try_from(later).ok().and_then(|later| first.checked_add(later))?;
            // As many rows as there are times at most.
            if rows > later.checked_add(1)? || (rows > 1) != (later > 0) {
                return None;
            }
            let (first, last) = (*self.times.get(first)?, *self.times.get(last)?);
            group.rows = group.rows.checked_add(rows)?;
            group.symbols.push(TailSymbol { name, rows, first, last });
        }
        Some(())
    }
}

/// Where a column is in the file of bars, inside of it and with all rows.
fn column(rest: &mut Cursor<'_>, file: &TailFile) -> Option<ColumnPlace> {
    let length = rest.count(1)?;
    let name = std::str::from_utf8(rest.take(length)?).ok()?.to_owned();
    let segments = rest.count(2)?;
    let mut place = ColumnPlace { name, segments: Vec::with_capacity(segments) };
    for _ in 0..segments {
        let (offset, rows) = (rest.number()?, rest.number()?);
        rows.checked_mul(VALUE_BYTES)?.checked_add(offset).filter(|end| *end <= file.bytes)?;
        place.segments.push((offset, rows));
    }
    (place.rows() == file.rows).then_some(place)
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> (TailIndex, TailFile, Vec<u8>) {
        let mut index = TailIndex { times: vec![-5, 0, 1 << 50], ..TailIndex::default() };
        index.columns.push(ColumnPlace { name: "time".to_owned(), segments: vec![(8, 3), (64, 3)] });
        index.columns.push(ColumnPlace { name: "close".to_owned(), segments: vec![(32, 3), (88, 3)] });
        let mut symbol = |name: &str, rows, first, last| {
            let from = index.names.len();
            index.names.push_str(name);
            TailSymbol { name: from..index.names.len(), rows, first, last }
        };
        let (a, b, c) = (symbol("AAPé", 1, 0, 0), symbol("AAPü", 2, -5, 1 << 50), symbol("B", 3, -5, 1 << 50));
        index.groups = vec![
            TailGroup { group: 3, row: 0, rows: 3, symbols: vec![a, b], sums: vec![1, 2] },
            TailGroup { group: 9, row: 3, rows: 3, symbols: vec![c], sums: vec![3, u64::MAX] },
        ];
        let file =
            TailFile { sha256: "ab".repeat(32), bytes: 200, rows: 6, index: "cd".repeat(32), index_bytes: 0, level: 0 };
        let bytes = index.encode(&file.sha256, file.bytes, file.rows);
        (index, file, bytes)
    }

    #[test]
    fn an_index_is_read_as_it_was_written_and_belongs_to_its_file() {
        let (index, file, bytes) = example();
        assert_eq!(TailIndex::decode(&bytes, &file), Ok(index));
        for other in [
            TailFile { sha256: "ef".repeat(32), ..file.clone() },
            TailFile { bytes: 100, ..file.clone() },
            TailFile { rows: 7, ..file.clone() },
        ] {
            assert!(TailIndex::decode(&bytes, &other).is_err(), "{other:?}");
        }
    }

    #[test]
    fn damage_of_any_byte_and_any_cut_gives_an_error_or_another_index_inside_its_bounds_and_never_a_panic() {
        let (_, file, bytes) = example();
        for at in 0..bytes.len() {
            assert!(TailIndex::decode(&bytes[..at], &file).is_err(), "cut at {at}");
            for value in 0..=u8::MAX {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                let Ok(read) = TailIndex::decode(&damaged, &file) else { continue };
                assert_eq!(read.groups.iter().map(|group| group.rows).sum::<u64>(), file.rows);
                for group in &read.groups {
                    assert_eq!(group.symbols.iter().map(|symbol| symbol.rows).sum::<u64>(), group.rows);
                    assert!(group.sums.len() == 2 * chunks(group.rows) && group.row + group.rows <= file.rows);
                    assert!(group.symbols.iter().all(|symbol| symbol.first <= symbol.last));
                }
            }
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(TailIndex::decode(&longer, &file).is_err());
    }

    #[test]
    fn times_of_all_signs_have_a_form_without_a_sign() {
        for value in [0, -1, 1, i64::MIN, i64::MAX] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
    }
}

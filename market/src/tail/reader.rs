//! Reads the rows of a group in a file of appended bars, checked chunk by chunk.

use std::fs;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use zerocopy::IntoBytes as _;

use super::index::chunks;
use super::open::{OpenGroup, OpenTail};
use crate::limits::{TAIL_COLUMN_HELD_BYTES_MAX, TAILS_HELD_BYTES_MAX};
use crate::read_at::{Unchecked, read_at, read_rows};
use crate::series::{VALUE_BYTES, Value};
use crate::sums::{CHUNK_ROWS, sum_of};

/// Rows of some symbols of a group in one file.
pub(crate) struct Pieces<'a> {
    pub tail: &'a OpenTail,
    pub group: &'a OpenGroup,
    /// Place of the symbol among those that are wanted, and its rows relative to the group's first.
    pub pieces: Vec<(usize, Range<u64>)>,
}

impl OpenTail {
    /// Where the rows of the symbols at these places are, which ascend; `None` if they have none.
    pub fn pieces(&self, group: u32, wanted: &[u32]) -> Option<Pieces<'_>> {
        let group = self.group(group)?;
        let mut pieces = Vec::with_capacity(wanted.len().min(group.symbols.len()));
        let (mut at, mut row) = (0, 0);
        for (place, rows) in &group.symbols {
            while wanted.get(at).is_some_and(|wanted| wanted < place) {
                at += 1;
            }
            if wanted.get(at) == Some(place) {
                pieces.push((at, row..row + rows));
            }
            row += rows;
        }
        (!pieces.is_empty()).then_some(Pieces { tail: self, group, pieces })
    }
}

impl Pieces<'_> {
    /// The rows from the first to the last that are wanted, in whole chunks, relative to the group's first.
    pub fn span(&self) -> Range<u64> {
        let from = self.pieces.first().map_or(0, |(_, rows)| rows.start);
        let to = self.pieces.last().map_or(0, |(_, rows)| rows.end);
        from - from % CHUNK_ROWS..to.next_multiple_of(CHUNK_ROWS).min(self.group.rows)
    }

    /// The values of a column (0 is the times) in the [`Pieces::span`], each chunk compared with its checksum. Of a small file the
    /// whole column is read, and kept for the next groups as long as `held` is within its bound: a read for each of them would
    /// cost more than what it reads.
    pub fn read<'f, T: Value>(
        &self,
        file: impl Fn() -> Option<&'f fs::File>,
        column: usize,
        held: &AtomicU64,
    ) -> Result<Vec<T>, Unchecked> {
        let place = self.tail.columns.get(column).ok_or(Unchecked)?;
        let span = self.span();
        let rows = self.group.row + span.start..self.group.row + span.end;
        let mut values = vec![T::default(); (span.end - span.start) as usize];
        match self.column(&file, column, held) {
            Some(bytes) => {
                let own = (rows.start * VALUE_BYTES) as usize..(rows.end * VALUE_BYTES) as usize;
                values.as_mut_bytes().copy_from_slice(bytes.get(own).ok_or(Unchecked)?);
            }
            None => read_rows(file().ok_or(Unchecked)?, place, rows, &mut values)?,
        }
        let first = column * chunks(self.group.rows) + (span.start / CHUNK_ROWS) as usize;
        for (at, chunk) in values.chunks(CHUNK_ROWS as usize).enumerate() {
            if self.group.sums.get(first + at) != Some(&sum_of(chunk.as_bytes())) {
                return Err(Unchecked);
            }
        }
        crate::arrow_file::in_own_order(&mut values);
        Ok(values)
    }

    /// A whole column as it is in the file, if it is small and there is room for it.
    fn column<'f>(&self, file: impl Fn() -> Option<&'f fs::File>, column: usize, held: &AtomicU64) -> Option<&[u8]> {
        let (place, kept) = (self.tail.columns.get(column)?, self.tail.held.get(column)?);
        if let Some(bytes) = kept.get() {
            return Some(bytes);
        }
        let bytes = self.tail.file.rows.checked_mul(VALUE_BYTES)?;
        if bytes > TAIL_COLUMN_HELD_BYTES_MAX || held.load(Ordering::Relaxed) + bytes > TAILS_HELD_BYTES_MAX {
            return None;
        }
        let mut all = vec![0u8; bytes as usize];
        let (file, mut rest) = (file()?, &mut all[..]);
        for range in place.bytes_of(0..self.tail.file.rows) {
            let (part, behind) = rest.split_at_mut_checked((range.end - range.start) as usize)?;
            read_at(file, part, range.start).ok()?;
            rest = behind;
        }
        if kept.set(all).is_ok() {
            held.fetch_add(bytes, Ordering::Relaxed);
        }
        kept.get().map(Vec::as_slice)
    }

    /// The same from the content of the file, whose sha256 is known to be right.
    pub fn copy<T: Value>(&self, bytes: &[u8], column: usize) -> Result<Vec<T>, String> {
        let place = self.tail.columns.get(column).ok_or("it lacks a column")?;
        let span = self.span();
        let mut values = vec![T::default(); (span.end - span.start) as usize];
        place.copy(bytes, self.group.row + span.start..self.group.row + span.end, &mut values)?;
        Ok(values)
    }
}

//! Checksums of a group's bars, by column, symbol and chunk of bars: `files/<sha256>.sums` beside `files/<sha256>.arrow`.
//!
//! The sha256 of a file proves that it is the one that the manifest names, but the whole file must be read for it, at a
//! tenth of the speed of memory. A file of checksums is derived from a file of bars whose sha256 is right, and from then
//! on each read checks what it reads, and nothing else. It also says where in the file each column's values are. It is
//! never trusted more than the bars that are read: it names the file it belongs to, ends in a checksum of its own, and when
//! anything does not match, the sha256 of the file of bars decides. How large numbers of other chunks are is believed (ADR 71). Without it the file of bars is read whole.
//!
//! All numbers are little-endian: [`MAGIC`]; the sha256 (32 bytes); bytes of the file of bars (u64); its rows (u64);
//! columns (u32); for each column, times first: the length of its name (u32), its name, its segments (u32), for each
//! segment its offset in the file (u64) and its rows (u64), its number of checksums (u64), the checksums (u64 each), and for
//! all but the times the largest magnitude of each chunk (f64 each); the checksum of everything before it (u64). A checksum is
//! XXH3 (64 bits) of a chunk: of [`CHUNK_ROWS`] values of one symbol, or of what is left of them. The first version had no
//! magnitudes.

use std::ops::Range;

use twox_hash::XxHash3_64;
use zerocopy::IntoBytes as _;

use crate::arrow_file::ColumnPlace;
use crate::cursor::Cursor;
use crate::series::VALUE_BYTES;
use crate::time::TimeMicros;

/// The first bytes of a file of checksums, with the version of what follows.
pub(crate) const MAGIC: &[u8; 8] = b"TRAWLSM2";
/// Those of the first version.
const MAGIC_1: &[u8; 8] = b"TRAWLSM1";
/// Bars of a chunk.
pub const CHUNK_ROWS: u64 = 4096;
/// Bytes of a file of checksums that is read.
pub(crate) const SUMS_BYTES_MAX: u64 = 256 << 20;

/// Checksums of one file of bars.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sums {
    /// The times, then the numeric columns.
    pub columns: Vec<ColumnSums>,
}

/// Where a column's values are, and the checksums of its chunks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ColumnSums {
    pub place: ColumnPlace,
    /// By symbol, then by chunk.
    pub sums: Vec<u64>,
    /// In the same order the magnitudes of [`largest_magnitude`]; none of times, and where a file of the first version has none.
    pub largest: Vec<f64>,
}

/// The rows of one symbol in a file, and its chunks among those of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub row: u64,
    pub rows: u64,
    /// Index of the first chunk.
    pub chunk: usize,
}

impl Run {
    /// The runs of a group's symbols, of which each has so many rows, in the order of the file.
    pub fn of(rows: impl Iterator<Item = u64>) -> Vec<Self> {
        let (mut row, mut chunk) = (0, 0);
        let run = |rows: u64| {
            let run = Self { row, rows, chunk };
            row += rows;
            chunk += run.chunks();
            run
        };
        rows.map(run).collect()
    }

    /// Number of chunks.
    pub fn chunks(&self) -> usize {
        self.rows.div_ceil(CHUNK_ROWS) as usize
    }

    /// Number of chunks that hold none of the rows from `row` of the run on.
    pub fn chunks_before(&self, row: u64) -> usize {
        if row >= self.rows { self.chunks() } else { (row / CHUNK_ROWS) as usize }
    }

    /// Number of rows in so many chunks at the beginning.
    pub fn rows_of(&self, chunks: usize) -> u64 {
        (chunks as u64 * CHUNK_ROWS).min(self.rows)
    }

    /// The rows of each chunk, relative to the file.
    pub fn parts(self) -> impl Iterator<Item = Range<u64>> {
        let end = self.row + self.rows;
        (0..self.chunks() as u64).map(move |i| {
            let from = self.row + i * CHUNK_ROWS;
            from..(from + CHUNK_ROWS).min(end)
        })
    }
}

/// The checksum of a chunk's values, as they are in a file.
pub(crate) fn sum_of(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// The checksum of a chunk of times.
pub(crate) fn sum_of_times(chunk: &[TimeMicros]) -> u64 {
    match cfg!(target_endian = "big") {
        true => sum_of(chunk.iter().map(|v| v.to_le()).collect::<Vec<_>>().as_bytes()),
        false => sum_of(chunk.as_bytes()),
    }
}

/// The checksum of a chunk of numbers.
pub(crate) fn sum_of_values(chunk: &[f64]) -> u64 {
    match cfg!(target_endian = "big") {
        true => sum_of(chunk.iter().map(|v| v.to_bits().to_le()).collect::<Vec<_>>().as_bytes()),
        false => sum_of(chunk.as_bytes()),
    }
}

/// The largest magnitude among the finite ones of some numbers; 0 if there is none.
pub fn largest_magnitude(numbers: &[f64]) -> f64 {
    // Magnitudes are ordered as their bits are. Eight at a time do not wait for each other.
    let bits = |number: f64| if number.is_finite() { number.abs().to_bits() } else { 0 };
    let (eights, rest) = numbers.as_chunks::<8>();
    let mut largest = [0; 8];
    for eight in eights {
        for (largest, number) in largest.iter_mut().zip(eight) {
            *largest = bits(*number).max(*largest);
        }
    }
    f64::from_bits(largest.into_iter().chain(rest.iter().map(|number| bits(*number))).max().unwrap_or(0))
}

impl Sums {
    /// Checksums of a file of bars, whose sha256 is known to be right. The error says what is wrong with the file.
    pub fn of(bytes: &[u8], runs: &[Run]) -> Result<Self, String> {
        let places = crate::arrow_file::places(bytes)?;
        let rows: u64 = runs.iter().map(|run| run.rows).sum();
        let column = |(at, place): (usize, ColumnPlace)| {
            if place.rows() != rows {
                return Err(format!("it has {} rows, not {rows}", place.rows()));
            }
            let chunks = runs.iter().map(Run::chunks).sum();
            let mut sums = Vec::with_capacity(chunks);
            let mut largest = Vec::with_capacity(if at == 0 { 0 } else { chunks });
            let mut chunk = Vec::with_capacity((CHUNK_ROWS * VALUE_BYTES) as usize);
            for rows in runs.iter().flat_map(|run| run.parts()) {
                chunk.clear();
                for bytes_of in place.bytes_of(rows) {
                    // Within the file: `places` checked it.
                    let range = bytes_of.start as usize..bytes_of.end as usize;
                    chunk.extend_from_slice(bytes.get(range).ok_or("it is too short")?);
                }
                sums.push(sum_of(&chunk));
                // The times come first.
                if at > 0 {
                    let (values, _) = chunk.as_chunks::<8>();
                    largest.push(largest_magnitude(&values.iter().map(|v| f64::from_le_bytes(*v)).collect::<Vec<_>>()));
                }
            }
            Ok(ColumnSums { place, sums, largest })
        };
        Ok(Self { columns: places.into_iter().enumerate().map(column).collect::<Result<_, String>>()? })
    }

    /// The content of the file of checksums of a file of bars.
    pub fn encode(&self, sha256: &str, bytes: u64, rows: u64) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&digest_bytes(sha256));
        out.extend([bytes, rows].map(u64::to_le_bytes).as_flattened());
        out.extend((self.columns.len() as u32).to_le_bytes());
        for ColumnSums { place, sums, largest } in &self.columns {
            out.extend((place.name.len() as u32).to_le_bytes());
            out.extend(place.name.as_bytes());
            out.extend((place.segments.len() as u32).to_le_bytes());
            for (offset, rows) in &place.segments {
                out.extend([*offset, *rows].map(u64::to_le_bytes).as_flattened());
            }
            out.extend((sums.len() as u64).to_le_bytes());
            sums.iter().for_each(|sum| out.extend(sum.to_le_bytes()));
            largest.iter().for_each(|value| out.extend(value.to_le_bytes()));
        }
        let own = sum_of(&out);
        out.extend(own.to_le_bytes());
        out
    }

    /// Reads a file of checksums; `None` if it is damaged, of another version, or of another file of bars.
    pub fn decode(bytes: &[u8], sha256: &str, file_bytes: u64, runs: &[Run]) -> Option<Self> {
        let (content, own) = bytes.split_last_chunk::<8>()?;
        if u64::from_le_bytes(*own) != sum_of(content) {
            return None;
        }
        let (content, has_largest) = match content.strip_prefix(MAGIC) {
            Some(content) => (content, true),
            None => (content.strip_prefix(MAGIC_1)?, false),
        };
        let mut rest = Cursor::new(content.strip_prefix(&digest_bytes(sha256)[..])?);
        let rows: u64 = runs.iter().map(|run| run.rows).sum();
        let chunks: usize = runs.iter().map(Run::chunks).sum();
        if (rest.u64()?, rest.u64()?) != (file_bytes, rows) {
            return None;
        }
        let mut columns = Vec::new();
        for at in 0..rest.u32()? {
            let length = rest.u32()? as usize;
            let name = std::str::from_utf8(rest.take(length)?).ok()?.to_owned();
            let segments = (0..rest.u32()?).map(|_| Some((rest.u64()?, rest.u64()?))).collect::<Option<Vec<_>>>()?;
            let place = ColumnPlace { name, segments };
            let inside = |(offset, rows): &(u64, u64)| {
                rows.checked_mul(VALUE_BYTES)
                    .and_then(|bytes| bytes.checked_add(*offset))
                    .is_some_and(|e| e <= file_bytes)
            };
            if !place.segments.iter().all(inside) || place.rows() != rows || rest.u64()? != chunks as u64 {
                return None;
            }
            let numbers = |rest: &mut Cursor<'_>, count: usize| {
                let numbers = rest.take(count.checked_mul(size_of::<u64>())?)?.as_chunks::<8>().0;
                Some(numbers.iter().map(|number| u64::from_le_bytes(*number)).collect::<Vec<u64>>())
            };
            let sums = numbers(&mut rest, chunks)?;
            let largest = numbers(&mut rest, if has_largest && at > 0 { chunks } else { 0 })?;
            columns.push(ColumnSums { place, sums, largest: largest.into_iter().map(f64::from_bits).collect() });
        }
        rest.is_empty().then_some(Self { columns })
    }

    /// A column by name.
    pub fn column(&self, name: &str) -> Option<&ColumnSums> {
        self.columns.iter().find(|column| column.place.name == name)
    }

    /// Approximate bytes in memory.
    pub fn bytes(&self) -> u64 {
        self.columns.iter().map(|c| (c.sums.len() as u64 + c.largest.len() as u64 + 16) * VALUE_BYTES).sum()
    }
}

/// The 32 bytes of a digest in hex; zeros for anything else, which no file has.
pub(crate) fn digest_bytes(digest: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    match hex::decode_to_slice(digest, &mut bytes) {
        Ok(()) => bytes,
        Err(_) => [0; 32],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_first_version_have_checksums_and_no_magnitudes() {
        let runs = Run::of([5000, 3].into_iter());
        let place = |name: &str, at: u64| ColumnPlace { name: name.to_owned(), segments: vec![(at, 5003)] };
        let times = ColumnSums { place: place("time", 0), sums: vec![1, 2, 3], largest: Vec::new() };
        let close = ColumnSums { place: place("close", 40024), sums: vec![4, 5, 6], largest: vec![7.5, 0.0, 1e300] };
        let sums = Sums { columns: vec![times.clone(), close.clone()] };
        let (sha256, bytes) = ("ab".repeat(32), 80048);
        let encoded = sums.encode(&sha256, bytes, 5003);
        assert_eq!(Sums::decode(&encoded, &sha256, bytes, &runs).as_ref(), Some(&sums));
        assert_eq!(Sums::decode(&encoded, &"ac".repeat(32), bytes, &runs), None);

        let first = Sums { columns: vec![times, ColumnSums { largest: Vec::new(), ..close }] };
        let mut encoded = first.encode(&sha256, bytes, 5003);
        assert_eq!(Sums::decode(&encoded, &sha256, bytes, &runs), None, "the second version has magnitudes");
        encoded[..8].copy_from_slice(MAGIC_1);
        let content = encoded.len() - 8;
        let own = sum_of(&encoded[..content]).to_le_bytes();
        encoded[content..].copy_from_slice(&own);
        assert_eq!(Sums::decode(&encoded, &sha256, bytes, &runs), Some(first));
    }

    #[test]
    fn the_largest_of_a_chunk_is_finite() {
        assert_eq!(largest_magnitude(&[1.0, -3.5, f64::NAN, f64::NEG_INFINITY, 2.0]), 3.5);
        assert_eq!(largest_magnitude(&[f64::NAN, f64::INFINITY]), 0.0);
    }
}

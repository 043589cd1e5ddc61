//! A run: rows sorted by symbol in a file without a name. The rows of a symbol are stored column by column: block and number of
//! each row, local times, offsets, values, in the byte order of the machine that also reads them.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::ops::Range;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::block::BlockRows;
use crate::series::VALUE_BYTES;
use crate::time::TimeMicros;

/// Bytes that are written at once.
const WRITE_BYTES: usize = 1 << 20;
/// Bytes of a row before its values: block and number, local time, offset.
const KEY_BYTES: u64 = 8 + 8 + 4;

/// Where the rows of a symbol with one list of columns are.
pub(super) struct RunPlace {
    pub run: u32,
    /// Index of the list of columns.
    pub layout: u32,
    at: u64,
    rows: u64,
}

/// Rows as they are read back.
pub(super) struct RunRows {
    /// Block, and number in the block.
    pub rows: Vec<(u32, u32)>,
    pub local: Vec<TimeMicros>,
    pub offset: Vec<i32>,
    /// By column.
    pub values: Vec<Vec<f64>>,
}

/// Writes a run.
pub(super) struct RunWriter<'f> {
    file: BufWriter<&'f File>,
    at: u64,
    offsets: Vec<i32>,
    pairs: Vec<u32>,
}

impl<'f> RunWriter<'f> {
    pub fn new(file: &'f File) -> Self {
        Self { file: BufWriter::with_capacity(WRITE_BYTES, file), at: 0, offsets: Vec::new(), pairs: Vec::new() }
    }

    /// Writes the rows of a symbol: parts of blocks with the same columns.
    pub fn write(
        &mut self,
        parts: &[(u32, &BlockRows, Range<usize>)],
        layout: u32,
        columns: usize,
    ) -> io::Result<RunPlace> {
        let rows: usize = parts.iter().map(|(_, _, range)| range.len()).sum();
        let place = RunPlace { run: 0, layout, at: self.at, rows: rows as u64 };
        self.pairs.clear();
        self.offsets.clear();
        for (block, source, range) in parts {
            range.clone().for_each(|place| self.pairs.extend([*block, source.number(place)]));
            source.offset.copy(range.start, range.len(), &mut self.offsets);
        }
        self.file.write_all(self.pairs.as_bytes())?;
        for (_, source, range) in parts {
            self.file.write_all(source.local[range.clone()].as_bytes())?;
        }
        self.file.write_all(self.offsets.as_bytes())?;
        for column in 0..columns {
            for (_, source, range) in parts {
                self.file.write_all(source.values[column][range.clone()].as_bytes())?;
            }
        }
        self.at += place.rows * (KEY_BYTES + VALUE_BYTES * columns as u64);
        Ok(place)
    }

    pub fn finish(mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A run that is written.
pub(super) struct Run {
    file: Shared,
}

impl Run {
    pub fn new(file: File) -> Self {
        Self { file: Shared::new(file) }
    }

    /// The rows of a symbol, with the values of its first `columns` columns.
    pub fn read(&self, place: &RunPlace, columns: usize) -> io::Result<RunRows> {
        let rows = place.rows as usize;
        let pairs: Vec<u32> = self.numbers(place.at, 2 * rows)?;
        let mut at = place.at + 8 * place.rows;
        let local = self.numbers(at, rows)?;
        at += 8 * place.rows;
        let offset = self.numbers(at, rows)?;
        at += 4 * place.rows;
        let values = (0..columns as u64).map(|column| self.numbers(at + column * VALUE_BYTES * place.rows, rows));
        let values = values.collect::<io::Result<_>>()?;
        Ok(RunRows {
            rows: pairs.as_chunks().0.iter().map(|&[block, row]| (block, row)).collect(),
            local,
            offset,
            values,
        })
    }

    fn numbers<T: Copy + Default + FromBytes + IntoBytes + Immutable>(
        &self,
        at: u64,
        count: usize,
    ) -> io::Result<Vec<T>> {
        let mut numbers = vec![T::default(); count];
        self.file.read_at(numbers.as_mut_bytes(), at)?;
        Ok(numbers)
    }
}

/// A file that several threads read from.
#[cfg(unix)]
struct Shared(File);

#[cfg(unix)]
impl Shared {
    fn new(file: File) -> Self {
        Self(file)
    }

    fn read_at(&self, to: &mut [u8], at: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.0, to, at)
    }
}

/// A file that several threads read from, one after the other.
#[cfg(not(unix))]
struct Shared(std::sync::Mutex<File>);

#[cfg(not(unix))]
impl Shared {
    fn new(file: File) -> Self {
        Self(std::sync::Mutex::new(file))
    }

    fn read_at(&self, to: &mut [u8], at: u64) -> io::Result<()> {
        use std::io::{Read as _, Seek as _};
        let mut file = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.seek(io::SeekFrom::Start(at))?;
        file.read_exact(to)
    }
}

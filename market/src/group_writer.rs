//! Writes the file of a group symbol by symbol: batch after batch is encoded, so that a group may be larger than memory. The
//! same bars are always the same bytes, however they come.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write};
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    Array as _, ArrayRef, DictionaryArray, Float64Array, Int32Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use arrow_ipc::writer::FileWriter;
use arrow_schema::ArrowError;
use sha2::{Digest as _, Sha256};
use zerocopy::IntoBytes as _;

use crate::arrow_file::{SymbolBars, group_schema, places_in};
use crate::error::MarketError;
use crate::limits::BATCH_ROWS_MAX;
use crate::manifest::{GroupFile, SymbolEntry};
use crate::snapshot::{Sink, file_path, store_sums, sums_path, unite};
use crate::sums::{CHUNK_ROWS, ColumnSums, Sums, sum_of};
use crate::time::TimeMicros;

/// Bytes of a file that is made in memory; a longer one is written as it is made.
pub(crate) const HELD_BYTES_MAX: usize = 16 << 20;

/// One group, stored.
#[derive(Debug, Clone)]
pub(crate) struct StoredGroup {
    pub file: GroupFile,
    pub symbols: Vec<SymbolEntry>,
    /// Sorted, distinct.
    pub times: Vec<TimeMicros>,
    /// False when the same file existed already.
    pub new: bool,
}

/// Stores the bars of one group, which are sorted by symbol, each with at least one bar.
pub(crate) fn store_group(
    sink: &Sink,
    group: u32,
    columns: &[String],
    bars: &[SymbolBars],
) -> Result<StoredGroup, MarketError> {
    let rows = bars.iter().map(|b| b.times.len() as u64).sum();
    let mut writer = GroupWriter::new(sink, group, columns, (bars.iter().map(|b| &*b.symbol), rows))?;
    bars.iter().try_for_each(|bars| writer.push(bars))?;
    writer.finish()
}

/// Writes one group.
pub(crate) struct GroupWriter<'a> {
    sink: &'a Sink,
    group: u32,
    writer: FileWriter<Output>,
    names: ArrayRef,
    /// Number of the next symbol among the names.
    key: i32,
    keys: Vec<i32>,
    times: Vec<TimeMicros>,
    /// By column.
    values: Vec<Vec<f64>>,
    symbols: Vec<SymbolEntry>,
    rows: u64,
    /// How many rows are expected.
    expected: u64,
    /// All different times.
    distinct: Vec<TimeMicros>,
    /// Checksums of the times, then of each column.
    sums: Vec<Vec<u64>>,
}

impl<'a> GroupWriter<'a> {
    /// Begins a group with these symbols, which ascend, and about so many rows, for which room is made.
    pub fn new<'n>(
        sink: &'a Sink,
        group: u32,
        columns: &[String],
        (names, expected): (impl Iterator<Item = &'n str>, u64),
    ) -> Result<Self, MarketError> {
        let output = Output { digest: Sha256::new(), bytes: 0, place: Place::Held(Vec::new()), files: sink.files() };
        let writer = FileWriter::try_new(output, &group_schema(columns)).map_err(|e| failed(sink, group, e))?;
        Ok(Self {
            sink,
            group,
            writer,
            names: Arc::new(StringArray::from_iter_values(names)),
            key: 0,
            keys: Vec::new(),
            times: Vec::new(),
            values: vec![Vec::new(); columns.len()],
            symbols: Vec::new(),
            rows: 0,
            expected,
            distinct: Vec::new(),
            sums: vec![Vec::new(); columns.len() + 1],
        })
    }

    /// Adds the bars of the next symbol, of which there is at least one.
    pub fn push(&mut self, bars: &SymbolBars) -> Result<(), MarketError> {
        debug_assert!(bars.times.is_sorted_by(|a, b| a < b) && bars.columns.len() == self.values.len());
        let key = self.key;
        self.key += 1;
        let (Some(&first_time), Some(&last_time)) = (bars.times.first(), bars.times.last()) else { return Ok(()) };
        let rows = bars.times.len();
        self.symbols.push(SymbolEntry {
            symbol: bars.symbol.to_string(),
            group: self.group,
            row_start: self.rows,
            rows: rows as u64,
            first_time,
            last_time,
        });
        self.rows += rows as u64;
        self.distinct = unite(std::mem::take(&mut self.distinct), &bars.times);
        let chunk = CHUNK_ROWS as usize;
        self.sums[0].extend(bars.times.chunks(chunk).map(sum_of_times));
        for (sums, column) in self.sums[1..].iter_mut().zip(&bars.columns) {
            sums.extend(column.chunks(chunk).map(sum_of_values));
        }
        let mut at = 0;
        while at < rows {
            if self.keys.is_empty() {
                self.make_room(rows - at);
            }
            let end = rows.min(at + BATCH_ROWS_MAX - self.keys.len());
            self.keys.resize(self.keys.len() + end - at, key);
            self.times.extend_from_slice(&bars.times[at..end]);
            for (to, from) in self.values.iter_mut().zip(&bars.columns) {
                to.extend_from_slice(&from[at..end]);
            }
            at = end;
            if self.keys.len() == BATCH_ROWS_MAX {
                self.write()?;
            }
        }
        Ok(())
    }

    /// Makes room for a batch, of which there are so many rows at least: a vector that grows takes up to twice its bytes.
    fn make_room(&mut self, least: usize) {
        let written: u64 = self.rows - least as u64;
        let rows = self.expected.saturating_sub(written).clamp(least as u64, BATCH_ROWS_MAX.max(least) as u64) as usize;
        let rows = rows.min(BATCH_ROWS_MAX);
        self.keys.reserve_exact(rows);
        self.times.reserve_exact(rows);
        self.values.iter_mut().for_each(|values| values.reserve_exact(rows));
    }

    /// Writes the rows so far as one batch.
    fn write(&mut self) -> Result<(), MarketError> {
        let mut batch = || {
            let keys = Int32Array::from(std::mem::take(&mut self.keys));
            let keys = DictionaryArray::<Int32Type>::try_new(keys, Arc::clone(&self.names))?;
            let times = TimestampMicrosecondArray::from(std::mem::take(&mut self.times)).with_timezone("UTC");
            let mut arrays: Vec<ArrayRef> = vec![Arc::new(keys), Arc::new(times)];
            for values in &mut self.values {
                arrays.push(Arc::new(Float64Array::from(std::mem::take(values))));
            }
            self.writer.write(&RecordBatch::try_new(Arc::clone(self.writer.schema()), arrays)?)
        };
        batch().map_err(|e| failed(self.sink, self.group, e))
    }

    /// Stores the file and its checksums.
    pub fn finish(mut self) -> Result<StoredGroup, MarketError> {
        debug_assert!(self.key as usize == self.names.len());
        if !self.keys.is_empty() {
            self.write()?;
        }
        let (sink, group) = (self.sink, self.group);
        let mut output = self.writer.into_inner().map_err(|e| failed(sink, group, e))?;
        let digest = std::mem::take(&mut output.digest).finalize();
        let file = GroupFile { group, sha256: hex::encode(digest), bytes: output.bytes, rows: self.rows };
        let refused = |why: String| MarketError::Refused(format!("group {group}: {why}"));
        let Some((path, name)) = sink.directory() else {
            let new = match output.place {
                Place::Held(bytes) => sink.put(&file.sha256, &file_path(&file.sha256), bytes)?,
                Place::File(_) => return Err(refused("a dataset in memory has no files".to_owned())),
            };
            return Ok(StoredGroup { file, symbols: self.symbols, times: self.distinct, new });
        };
        let places = match &mut output.place {
            Place::Held(bytes) => places_in(bytes.len() as u64, |at, length| {
                Some(bytes.get(at as usize..(at + length) as usize)?.to_vec())
            }),
            Place::File(staged) => places_in(output.bytes, |at, length| {
                let mut part = vec![0; length as usize];
                let file = staged.as_file_mut();
                file.seek(io::SeekFrom::Start(at)).and_then(|_| file.read_exact(&mut part)).ok()?;
                Some(part)
            }),
        };
        let places = places.map_err(refused)?;
        let columns = places.into_iter().zip(self.sums).map(|(place, sums)| ColumnSums { place, sums }).collect();
        store_sums(path, &file, &Sums { columns })
            .map_err(MarketError::io("write", format!("{name}/{}", sums_path(&file.sha256))))?;
        let relative = file_path(&file.sha256);
        let new = match output.place {
            Place::Held(bytes) => sink.put(&file.sha256, &relative, bytes)?,
            Place::File(staged) => sink.put_file(&relative, staged)?,
        };
        Ok(StoredGroup { file, symbols: self.symbols, times: self.distinct, new })
    }
}

fn sum_of_times(chunk: &[TimeMicros]) -> u64 {
    match cfg!(target_endian = "big") {
        true => sum_of(chunk.iter().map(|v| v.to_le()).collect::<Vec<_>>().as_bytes()),
        false => sum_of(chunk.as_bytes()),
    }
}

fn sum_of_values(chunk: &[f64]) -> u64 {
    match cfg!(target_endian = "big") {
        true => sum_of(chunk.iter().map(|v| v.to_bits().to_le()).collect::<Vec<_>>().as_bytes()),
        false => sum_of(chunk.as_bytes()),
    }
}

/// An error of the encoder, or of the disk below it.
fn failed(sink: &Sink, group: u32, error: ArrowError) -> MarketError {
    match (error, sink.directory()) {
        (ArrowError::IoError(_, error), Some((_, name))) => MarketError::io("write", format!("{name}/files"))(error),
        (error, _) => MarketError::Refused(format!("group {group}: {error}")),
    }
}

/// The bytes of a file that is being made, and their digest.
struct Output {
    digest: Sha256,
    bytes: u64,
    place: Place,
    /// Where long files go; `None` keeps all in memory.
    files: Option<PathBuf>,
}

enum Place {
    Held(Vec<u8>),
    File(tempfile::NamedTempFile<File>),
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.digest.update(bytes);
        self.bytes += bytes.len() as u64;
        if let (Place::Held(held), Some(folder)) = (&self.place, &self.files)
            && held.len() + bytes.len() > HELD_BYTES_MAX
        {
            std::fs::create_dir_all(folder)?;
            let mut staged = tempfile::NamedTempFile::new_in(folder)?;
            staged.write_all(held)?;
            self.place = Place::File(staged);
        }
        match &mut self.place {
            Place::Held(held) => {
                held.extend_from_slice(bytes);
                Ok(())
            }
            Place::File(staged) => staged.write_all(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

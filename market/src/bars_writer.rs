//! Encodes bars symbol by symbol as one Arrow file: batch after batch, so that a file may be larger than memory. The same bars
//! are always the same bytes, however they come. What the file is part of is decided by those who write it: the file of a group
//! (`group_writer`), or the bars that an append adds to all groups (`tail`).

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Seek as _, Write};
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

use crate::arrow_file::{ColumnPlace, SymbolBars, group_schema, places_in};
use crate::error::MarketError;
use crate::limits::BATCH_ROWS_MAX;
use crate::snapshot::{Sink, file_path};
use crate::time::TimeMicros;

/// Bytes of the small parts of a file that are written together.
const WRITE_BYTES: usize = 64 << 10;

/// Writes one file of bars.
pub(crate) struct BarsWriter<'a> {
    sink: &'a Sink,
    /// For messages: what the file holds, such as `group 7`.
    what: String,
    writer: FileWriter<Output>,
    names: ArrayRef,
    /// Number of the next symbol among the names.
    key: i32,
    keys: Vec<i32>,
    times: Vec<TimeMicros>,
    /// By column.
    values: Vec<Vec<f64>>,
    rows: u64,
    /// How many rows are expected.
    expected: u64,
}

impl<'a> BarsWriter<'a> {
    /// Begins a file with these symbols, in the order in which they are pushed, and about so many rows, for which room is made.
    pub fn new<'n>(
        sink: &'a Sink,
        what: String,
        columns: &[String],
        (names, expected): (impl Iterator<Item = &'n str>, u64),
    ) -> Result<Self, MarketError> {
        let output = Output { digest: Sha256::new(), bytes: 0, place: Place::Held(Vec::new()), files: sink.files() };
        let writer = FileWriter::try_new(output, &group_schema(columns)).map_err(|e| failed(sink, &what, e))?;
        Ok(Self {
            sink,
            what,
            writer,
            names: Arc::new(StringArray::from_iter_values(names)),
            key: 0,
            keys: Vec::new(),
            times: Vec::new(),
            values: vec![Vec::new(); columns.len()],
            rows: 0,
            expected,
        })
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds the bars of the next symbol.
    pub fn push(&mut self, bars: &SymbolBars) -> Result<(), MarketError> {
        debug_assert!(bars.times.is_sorted_by(|a, b| a < b) && bars.columns.len() == self.values.len());
        let key = self.key;
        self.key += 1;
        let rows = bars.times.len();
        self.rows += rows as u64;
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
        batch().map_err(|e| failed(self.sink, &self.what, e))
    }

    /// Encodes what is left. The file has no name yet: see [`EncodedBars::store`].
    pub fn finish(mut self) -> Result<EncodedBars<'a>, MarketError> {
        debug_assert!(self.key as usize == self.names.len());
        if !self.keys.is_empty() {
            self.write()?;
        }
        let (sink, what) = (self.sink, self.what);
        let mut output = self.writer.into_inner().map_err(|e| failed(sink, &what, e))?;
        let digest = std::mem::take(&mut output.digest).finalize();
        let places = match &mut output.place {
            Place::Held(bytes) => places_in(bytes.len() as u64, |at, length| {
                Some(bytes.get(at as usize..(at + length) as usize)?.to_vec())
            }),
            Place::File(staged) => places_in(output.bytes, |at, length| {
                let mut part = vec![0; length as usize];
                let file = staged.get_mut().as_file_mut();
                file.seek(io::SeekFrom::Start(at)).and_then(|_| file.read_exact(&mut part)).ok()?;
                Some(part)
            }),
        };
        let places = places.map_err(|why| MarketError::Refused(format!("{what}: {why}")))?;
        let (sha256, bytes, rows) = (hex::encode(digest), output.bytes, self.rows);
        Ok(EncodedBars { sink, sha256, bytes, rows, places, place: output.place })
    }
}

/// A file of bars that has no name yet.
pub(crate) struct EncodedBars<'a> {
    sink: &'a Sink,
    /// Of the whole file, in hex.
    pub sha256: String,
    /// Size of the file.
    pub bytes: u64,
    /// Bars in it.
    pub rows: u64,
    /// The times, then the numeric columns.
    pub places: Vec<ColumnPlace>,
    place: Place,
}

impl EncodedBars<'_> {
    /// Stores the file under its sha256; returns whether it was new.
    pub fn store(self) -> Result<bool, MarketError> {
        let relative = file_path(&self.sha256);
        match self.place {
            Place::Held(bytes) => self.sink.put(&self.sha256, &relative, bytes),
            // Everything was flushed when the encoder ended.
            Place::File(staged) => self.sink.put_file(&relative, staged.into_parts().0),
        }
    }
}

/// An error of the encoder, or of the disk below it.
fn failed(sink: &Sink, what: &str, error: ArrowError) -> MarketError {
    match (error, sink.directory()) {
        (ArrowError::IoError(_, error), Some((_, name))) => MarketError::io("write", format!("{name}/files"))(error),
        (error, _) => MarketError::Refused(format!("{what}: {error}")),
    }
}

/// The bytes of a file that is being made, and their digest.
struct Output {
    digest: Sha256,
    bytes: u64,
    place: Place,
    /// Where files are made; `None` keeps all in memory.
    files: Option<PathBuf>,
}

enum Place {
    Held(Vec<u8>),
    /// Columns are longer than its buffer, and are written as they are.
    File(BufWriter<tempfile::NamedTempFile<File>>),
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.digest.update(bytes);
        self.bytes += bytes.len() as u64;
        if let Some(folder) = self.files.take() {
            std::fs::create_dir_all(&folder)?;
            let staged = tempfile::NamedTempFile::new_in(folder)?;
            self.place = Place::File(BufWriter::with_capacity(WRITE_BYTES, staged));
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
        match &mut self.place {
            Place::Held(_) => Ok(()),
            Place::File(staged) => staged.flush(),
        }
    }
}

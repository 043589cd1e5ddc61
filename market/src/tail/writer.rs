//! Writes a file of appended bars and its index, group after group and symbol by symbol.

use crate::arrow_file::SymbolBars;
use crate::bars_writer::BarsWriter;
use crate::error::MarketError;
use crate::limits::TAIL_INDEX_BYTES_MAX;
use crate::manifest::{TailFile, sha256_hex};
use crate::snapshot::{Sink, tail_index_path, unite};
use crate::sums::{CHUNK_ROWS, sum_of_times, sum_of_values};
use crate::tail::index::{TailGroup, TailIndex, TailSymbol};
use crate::time::TimeMicros;

/// Writes one file of appended bars.
pub(crate) struct TailWriter<'a> {
    sink: &'a Sink,
    level: u32,
    bars: BarsWriter<'a>,
    index: TailIndex,
    /// The chunk that is being filled: times, then the values of each column.
    times: Vec<TimeMicros>,
    values: Vec<Vec<f64>>,
    /// Checksums of the group's chunks: of the times, then of each column.
    sums: Vec<Vec<u64>>,
}

impl<'a> TailWriter<'a> {
    /// Begins a file with these symbols, by group and name, and so many rows.
    pub fn new<'n>(
        sink: &'a Sink,
        level: u32,
        columns: &[String],
        expected: (impl Iterator<Item = &'n str>, u64),
    ) -> Result<Self, MarketError> {
        Ok(Self {
            sink,
            level,
            bars: BarsWriter::new(sink, "appended bars".to_owned(), columns, expected)?,
            index: TailIndex::default(),
            times: Vec::with_capacity(CHUNK_ROWS as usize),
            values: vec![Vec::with_capacity(CHUNK_ROWS as usize); columns.len()],
            sums: vec![Vec::new(); columns.len() + 1],
        })
    }

    /// Adds the bars of the next symbol, of which there is at least one; groups ascend, and names in each of them.
    pub fn push(&mut self, group: u32, bars: &SymbolBars) -> Result<(), MarketError> {
        if self.index.groups.last().is_none_or(|last| last.group != group) {
            debug_assert!(self.index.groups.last().is_none_or(|last| last.group < group));
            self.end_group();
            let row = self.bars.rows();
            self.index.groups.push(TailGroup { group, row, ..TailGroup::default() });
        }
        let from = self.index.names.len();
        self.index.names.push_str(&bars.symbol);
        let name = from..self.index.names.len();
        let rows = bars.times.len();
        if let (Some(own), Some(&first), Some(&last)) =
            (self.index.groups.last_mut(), bars.times.first(), bars.times.last())
        {
            own.rows += rows as u64;
            own.symbols.push(TailSymbol { name, rows: rows as u64, first, last });
        }
        self.index.times = unite(std::mem::take(&mut self.index.times), &bars.times);
        let mut at = 0;
        while at < rows {
            let end = rows.min(at + CHUNK_ROWS as usize - self.times.len());
            self.times.extend_from_slice(&bars.times[at..end]);
            for (to, from) in self.values.iter_mut().zip(&bars.columns) {
                to.extend_from_slice(&from[at..end]);
            }
            at = end;
            if self.times.len() == CHUNK_ROWS as usize {
                self.end_chunk();
            }
        }
        self.bars.push(bars)
    }

    fn end_chunk(&mut self) {
        if self.times.is_empty() {
            return;
        }
        self.sums[0].push(sum_of_times(&self.times));
        self.times.clear();
        for (sums, values) in self.sums[1..].iter_mut().zip(&mut self.values) {
            sums.push(sum_of_values(values));
            values.clear();
        }
    }

    fn end_group(&mut self) {
        self.end_chunk();
        if let Some(group) = self.index.groups.last_mut() {
            group.sums = self.sums.iter_mut().flat_map(|sums| sums.drain(..)).collect();
        }
    }

    /// Stores the file and its index; returns also the distinct times.
    pub fn finish(mut self) -> Result<(TailFile, Vec<TimeMicros>), MarketError> {
        self.end_group();
        let mut encoded = self.bars.finish()?;
        self.index.columns = std::mem::take(&mut encoded.places);
        let (sha256, bytes, rows) = (encoded.sha256.clone(), encoded.bytes, encoded.rows);
        let index = self.index.encode(&sha256, bytes, rows);
        let (digest, index_bytes) = (sha256_hex(&index), index.len() as u64);
        if index_bytes > TAIL_INDEX_BYTES_MAX {
            let what = "bytes of the index of appended bars".to_owned();
            return Err(MarketError::Limit { what, found: index_bytes, limit: TAIL_INDEX_BYTES_MAX });
        }
        encoded.store()?;
        self.sink.put(&digest, &tail_index_path(&digest), index)?;
        Ok((TailFile { sha256, bytes, rows, index: digest, index_bytes, level: self.level }, self.index.times))
    }
}

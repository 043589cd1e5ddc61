//! Writes the file of a group symbol by symbol, with its checksums.

use crate::arrow_file::SymbolBars;
use crate::bars_writer::BarsWriter;
use crate::error::MarketError;
use crate::manifest::{GroupFile, SymbolEntry};
use crate::snapshot::{Sink, store_sums, sums_path, unite};
use crate::sums::{CHUNK_ROWS, ColumnSums, Sums, largest_magnitude, sum_of_times, sum_of_values};
use crate::time::TimeMicros;

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
    bars: BarsWriter<'a>,
    symbols: Vec<SymbolEntry>,
    /// All different times.
    distinct: Vec<TimeMicros>,
    /// Checksums of the times, then of each column.
    sums: Vec<Vec<u64>>,
    /// Largest magnitudes of the same chunks, of each column; of the times none.
    largest: Vec<Vec<f64>>,
}

impl<'a> GroupWriter<'a> {
    /// Begins a group with these symbols, which ascend, and about so many rows, for which room is made.
    pub fn new<'n>(
        sink: &'a Sink,
        group: u32,
        columns: &[String],
        expected: (impl Iterator<Item = &'n str>, u64),
    ) -> Result<Self, MarketError> {
        let bars = BarsWriter::new(sink, format!("group {group}"), columns, expected)?;
        let (sums, largest) = (vec![Vec::new(); columns.len() + 1], vec![Vec::new(); columns.len() + 1]);
        Ok(Self { sink, group, bars, symbols: Vec::new(), distinct: Vec::new(), sums, largest })
    }

    /// Adds the bars of the next symbol, of which there is at least one.
    pub fn push(&mut self, bars: &SymbolBars) -> Result<(), MarketError> {
        if let (Some(&first_time), Some(&last_time)) = (bars.times.first(), bars.times.last()) {
            self.symbols.push(SymbolEntry {
                symbol: bars.symbol.to_string(),
                group: self.group,
                row_start: self.bars.rows(),
                rows: bars.times.len() as u64,
                first_time,
                last_time,
            });
            self.distinct = unite(std::mem::take(&mut self.distinct), &bars.times);
            let chunk = CHUNK_ROWS as usize;
            self.sums[0].extend(bars.times.chunks(chunk).map(sum_of_times));
            let numbers = self.sums[1..].iter_mut().zip(&mut self.largest[1..]);
            for ((sums, largest), column) in numbers.zip(&bars.columns) {
                sums.extend(column.chunks(chunk).map(sum_of_values));
                largest.extend(column.chunks(chunk).map(largest_magnitude));
            }
        }
        self.bars.push(bars)
    }

    /// Stores the file and its checksums.
    pub fn finish(self) -> Result<StoredGroup, MarketError> {
        let mut encoded = self.bars.finish()?;
        let (sha256, bytes, rows) = (encoded.sha256.clone(), encoded.bytes, encoded.rows);
        let file = GroupFile { group: self.group, sha256, bytes, rows };
        if let Some((path, name)) = self.sink.directory() {
            let places = std::mem::take(&mut encoded.places).into_iter();
            let columns = places.zip(self.sums.into_iter().zip(self.largest));
            let columns = columns.map(|(place, (sums, largest))| ColumnSums { place, sums, largest }).collect();
            let (sums, relative) = (Sums { columns }, sums_path(&file.sha256));
            let failed = MarketError::io("write", format!("{name}/{relative}"));
            self.sink.making(&relative, || store_sums(path, &file, &sums).map_err(failed))?;
        }
        let new = encoded.store()?;
        Ok(StoredGroup { file, symbols: self.symbols, times: self.distinct, new })
    }
}

//! An opened snapshot: the bar that an as-of selects, and the bars of a group.
//!
//! Every file's sha256 is compared with the manifest before its content is used.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, PoisonError};

use crate::arrow_file::{SymbolBars, decode};
use crate::bundled_names::is_bundled;
use crate::error::{MarketError, nearest};
use crate::manifest::{Manifest, TableFile, sha256_hex};
use crate::reference::{
    Adjustment, AdjustmentMode, FactorRow, FactorTable, Listing, SymbolTable, adjust, decode_factors, decode_listing,
};
use crate::snapshot::{MemoryFiles, file_path, table_path};
use crate::time::TimeMicros;

/// Where a snapshot's files are.
#[derive(Debug, Clone)]
pub(crate) enum Files {
    /// The dataset's directory.
    Directory(PathBuf),
    /// Bundled with the program, or created by the caller.
    Memory(Arc<MemoryFiles>),
}

/// An opened, pinned snapshot. Cheap to clone; may be used from many threads.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// Table of contents.
    pub manifest: Arc<Manifest>,
    files: Files,
    /// Read at first use; shared by all clones.
    tables: Arc<Tables>,
    /// The manifest's file, locked so that the snapshot is not deleted meanwhile.
    _reading: Option<Arc<fs::File>>,
}

#[derive(Debug, Default)]
struct Tables {
    symbols: OnceLock<Arc<SymbolTable>>,
    factors: OnceLock<Arc<FactorTable>>,
}

impl Dataset {
    pub(crate) fn new(manifest: Arc<Manifest>, files: Files) -> Self {
        Self { manifest, files, tables: Arc::default(), _reading: None }
    }

    /// Keeps a file open, and with it its lock, as long as the dataset exists.
    pub(crate) fn reading(self, file: fs::File) -> Self {
        Self { _reading: Some(Arc::new(file)), ..self }
    }

    /// Whether it is bundled with the program.
    pub fn is_bundled(&self) -> bool {
        matches!(self.files, Files::Memory(_)) && is_bundled(&self.manifest.name)
    }

    /// The distinct bar times of all symbols, ascending.
    ///
    /// # Errors
    /// [`MarketError::Checksum`], [`MarketError::Corrupt`] or [`MarketError::Io`].
    pub fn times(&self) -> Result<Vec<TimeMicros>, MarketError> {
        let file = &self.manifest.times;
        let decoded = decode(&self.read(&file.sha256, &file_path(&file.sha256))?, &[])
            .map_err(|why| self.corrupt(&file.sha256, why))?;
        if decoded.times.len() as u64 != file.rows || !decoded.times.is_sorted_by(|a, b| a < b) {
            return Err(self.corrupt(&file.sha256, "it does not have the times that the manifest lists".to_owned()));
        }
        Ok(decoded.times)
    }

    /// The bars of one group, symbols sorted by name, with only `columns` decoded; empty for a group without symbols.
    ///
    /// # Errors
    /// [`MarketError::UnknownGroup`], [`MarketError::UnknownColumn`]; [`MarketError::Checksum`],
    /// [`MarketError::Corrupt`] or [`MarketError::Io`] for the group's file.
    pub fn load_group(&self, group: u32, columns: &[String]) -> Result<Vec<SymbolBars>, MarketError> {
        let manifest = &*self.manifest;
        if group >= manifest.groups {
            let dataset = manifest.name.clone();
            return Err(MarketError::UnknownGroup { dataset, group, groups: manifest.groups });
        }
        if let Some(unknown) = columns.iter().find(|c| !manifest.columns.contains(c)) {
            return Err(MarketError::UnknownColumn {
                dataset: manifest.name.clone(),
                column: unknown.clone(),
                available: manifest.columns.clone(),
                suggestion: nearest(unknown, manifest.columns.iter().map(String::as_str)),
            });
        }
        let Some(file) = manifest.file(group) else { return Ok(Vec::new()) };
        let decoded = decode(&self.read(&file.sha256, &file_path(&file.sha256))?, columns)
            .map_err(|why| self.corrupt(&file.sha256, why))?;
        let rows = decoded.times.len();
        if rows as u64 != file.rows || decoded.columns.iter().any(|c| c.len() != rows) {
            return Err(self.corrupt(&file.sha256, format!("it has {rows} rows, not {}", file.rows)));
        }
        let mut bars = Vec::new();
        for entry in manifest.symbols.iter().filter(|s| s.group == group) {
            // Within `rows`, which is a usize: the ranges of the manifest were checked to add up to it.
            let range = entry.row_start as usize..(entry.row_start + entry.rows) as usize;
            let times = decoded.times[range.clone()].to_vec();
            let ends = (times.first(), times.last());
            if ends != (Some(&entry.first_time), Some(&entry.last_time)) || !times.is_sorted_by(|a, b| a < b) {
                return Err(self.corrupt(&file.sha256, format!("the times of {} are not as listed", entry.symbol)));
            }
            let columns = decoded.columns.iter().map(|c| c[range.clone()].to_vec()).collect();
            bars.push(SymbolBars { symbol: entry.symbol.as_str().into(), times, columns });
        }
        Ok(bars)
    }

    /// Like [`Dataset::load_group`], adjusted for splits and dividends: open, high, low, close and vwap in the terms of
    /// the newest event that `adjustment` includes, volume in its number of shares; other columns are unchanged.
    ///
    /// # Errors
    /// Those of [`Dataset::load_group`], also for the tables of factors and symbols; [`MarketError::UnknownColumn`]
    /// when dividends are requested and there is no close to compare them with.
    pub fn load_group_adjusted(
        &self,
        group: u32,
        columns: &[String],
        adjustment: &Adjustment,
    ) -> Result<Vec<SymbolBars>, MarketError> {
        if adjustment.is_none() || self.manifest.factors.is_none() {
            return self.load_group(group, columns);
        }
        let factors = self.factor_table()?;
        let (wanted, close) = self.with_close(columns, adjustment);
        let when = (self.manifest.calendar(), self.manifest.timeframe.parse()?);
        let mut group = self.load_group(group, &wanted)?;
        for bars in &mut group {
            let events = factors.of(&bars.symbol);
            if !events.is_empty() {
                let raw = close.map(|i| bars.columns[i].clone());
                adjust(bars, &wanted, raw.as_deref(), events, adjustment, when);
            }
            bars.columns.truncate(columns.len());
        }
        Ok(group)
    }

    /// The columns, with the close appended where dividends need it, and the index of the close.
    pub(crate) fn with_close(&self, columns: &[String], adjustment: &Adjustment) -> (Vec<String>, Option<usize>) {
        const CLOSE: &str = "close";
        let mut wanted = columns.to_vec();
        if adjustment.mode != AdjustmentMode::SplitAndDividend {
            return (wanted, None);
        }
        if !columns.iter().any(|c| c == CLOSE) {
            wanted.push(CLOSE.to_owned());
        }
        let close = wanted.iter().position(|c| c == CLOSE);
        (wanted, close)
    }

    /// Tickers and labels of symbols over time; empty when none were imported.
    ///
    /// # Errors
    /// [`MarketError::Checksum`], [`MarketError::Corrupt`] or [`MarketError::Io`] for the table's file.
    pub fn symbol_table(&self) -> Result<Arc<SymbolTable>, MarketError> {
        if let Some(known) = self.tables.symbols.get() {
            return Ok(Arc::clone(known));
        }
        let symbols = self.manifest.symbols.iter().map(|s| s.symbol.as_str());
        let table = Arc::new(SymbolTable::new(self.listing()?, symbols));
        Ok(Arc::clone(self.tables.symbols.get_or_init(|| table)))
    }

    /// Rows of the table of splits and dividends, sorted by symbol and date; none when none were imported.
    ///
    /// # Errors
    /// Those of [`Dataset::symbol_table`].
    pub fn factors(&self) -> Result<Vec<FactorRow>, MarketError> {
        match &self.manifest.factors {
            Some(file) => self.read_table(file, decode_factors, Vec::len),
            None => Ok(Vec::new()),
        }
    }

    /// The symbol table as stored.
    pub(crate) fn listing(&self) -> Result<Listing, MarketError> {
        match &self.manifest.symbol_table {
            Some(file) => self.read_table(file, decode_listing, |l| l.rows.len()),
            None => Ok(Listing::default()),
        }
    }

    pub(crate) fn factor_table(&self) -> Result<Arc<FactorTable>, MarketError> {
        if let Some(known) = self.tables.factors.get() {
            return Ok(Arc::clone(known));
        }
        let table = Arc::new(FactorTable::new(self.factors()?, &*self.symbol_table()?));
        Ok(Arc::clone(self.tables.factors.get_or_init(|| table)))
    }

    fn read_table<T>(
        &self,
        file: &TableFile,
        decode: fn(&str, &[u8]) -> Result<T, MarketError>,
        rows: fn(&T) -> usize,
    ) -> Result<T, MarketError> {
        let relative = table_path(&file.sha256);
        let corrupt = |why| MarketError::Corrupt { file: format!("{}/{relative}", self.manifest.name), why };
        let table = decode(&relative, &self.read(&file.sha256, &relative)?).map_err(|e| corrupt(e.to_string()))?;
        if rows(&table) as u64 == file.rows {
            Ok(table)
        } else {
            Err(corrupt(format!("it has {} rows, not {}", rows(&table), file.rows)))
        }
    }

    /// The bars of one symbol; its whole group is read.
    ///
    /// # Errors
    /// [`MarketError::UnknownSymbol`] with the nearest one; those of [`Dataset::load_group`].
    pub fn load_symbol(&self, symbol: &str, columns: &[String]) -> Result<SymbolBars, MarketError> {
        let unknown = || MarketError::UnknownSymbol {
            dataset: self.manifest.name.clone(),
            symbol: symbol.to_owned(),
            suggestion: nearest(symbol, self.manifest.symbols.iter().map(|s| s.symbol.as_str())),
        };
        let entry = self.manifest.symbol(symbol).ok_or_else(unknown)?;
        let group = self.load_group(entry.group, columns)?;
        group.into_iter().find(|b| *b.symbol == *symbol).ok_or_else(unknown)
    }

    /// Reads every file and compares its checksum; the errors found, in group order.
    pub fn verify(&self) -> Vec<MarketError> {
        let manifest = &*self.manifest;
        let bars = manifest.files.iter().map(|f| &f.sha256).chain([&manifest.times.sha256]);
        let tables = manifest.factors.iter().chain(&manifest.symbol_table).map(|t| &t.sha256);
        let bars = bars.filter_map(|sha256| self.read(sha256, &file_path(sha256)).err());
        bars.chain(tables.filter_map(|sha256| self.read(sha256, &table_path(sha256)).err())).collect()
    }

    /// A file's content, verified.
    fn read(&self, sha256: &str, relative: &str) -> Result<Arc<Vec<u8>>, MarketError> {
        let file = format!("{}/{relative}", self.manifest.name);
        let bytes = match &self.files {
            Files::Directory(path) => Arc::new(fs::read(path.join(relative)).map_err(MarketError::io("read", &file))?),
            Files::Memory(files) => {
                let files = files.lock().unwrap_or_else(PoisonError::into_inner);
                // Built in, therefore already trusted.
                return files.get(sha256).cloned().ok_or_else(|| MarketError::Corrupt {
                    file,
                    why: "it is missing from the dataset in memory".to_owned(),
                });
            }
        };
        let found = sha256_hex(&bytes);
        if found != sha256 {
            return Err(MarketError::Checksum { file, expected: sha256.to_owned(), found });
        }
        Ok(bytes)
    }

    fn corrupt(&self, sha256: &str, why: String) -> MarketError {
        MarketError::Corrupt { file: format!("{}/{}", self.manifest.name, file_path(sha256)), why }
    }
}

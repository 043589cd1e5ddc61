//! An opened snapshot: the bar that an as-of selects, and the bars of a group.
//!
//! Nothing is used unchecked: the sha256 of a file is compared with the manifest, or checksums that were derived from a
//! file whose sha256 was right with what is read (see [`crate::sums`]).

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, PoisonError};

use crate::arrow_file::{LoadedBars, TIME, decode_times};
use crate::bundled_names::is_bundled;
use trawl_terms::suggest;

use crate::column_cache::{Column, ColumnCache};
use crate::error::MarketError;
use crate::group_reader::{Columns, KnownSums, copy_columns, read_checked, read_sums};
use crate::manifest::{GroupFile, Manifest, SymbolEntry, TableFile, sha256_hex};
use crate::reference::{
    Adjustment, AdjustmentMode, FactorRow, FactorTable, Listing, SymbolTable, adjust, decode_factors, decode_listing,
};
use crate::series::Series;
use crate::snapshot::{MemoryFiles, file_path, store_sums, sums_path, table_path};
use crate::sums::{Run, Sums};
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
    /// Columns that were read, if they are kept.
    cache: Option<Arc<ColumnCache>>,
    /// The manifest's file, locked so that the snapshot is not deleted meanwhile.
    _reading: Option<Arc<fs::File>>,
}

#[derive(Debug, Default)]
struct Tables {
    symbols: OnceLock<Arc<SymbolTable>>,
    factors: OnceLock<Arc<FactorTable>>,
    /// Indices of the symbols of each group.
    members: OnceLock<HashMap<u32, Vec<u32>>>,
    sums: KnownSums,
}

impl Dataset {
    pub(crate) fn new(manifest: Arc<Manifest>, files: Files) -> Self {
        Self { manifest, files, tables: Arc::default(), cache: None, _reading: None }
    }

    /// Keeps a file open, and with it its lock, as long as the dataset exists.
    pub(crate) fn reading(self, file: fs::File) -> Self {
        Self { _reading: Some(Arc::new(file)), ..self }
    }

    /// Keeps these columns of whole groups, and the times, in memory once they are read, at most so many bytes: for
    /// scans that read the same bars in several steps. Clones share them.
    pub fn keeping_columns(self, columns: impl IntoIterator<Item = String>, bytes_max: u64) -> Self {
        let columns = columns.into_iter().chain([TIME.to_owned()]);
        Self { cache: Some(Arc::new(ColumnCache::new(columns, bytes_max))), ..self }
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
        let bytes = self.read(&file.sha256, &file_path(&file.sha256))?;
        let times = decode_times(&bytes).map_err(|why| self.corrupt(&file.sha256, why))?;
        if times.len() as u64 != file.rows || !times.is_sorted_by(|a, b| a < b) {
            return Err(self.corrupt(&file.sha256, "it does not have the times that the manifest lists".to_owned()));
        }
        Ok(times)
    }

    /// The bars of one group, symbols sorted by name, with only `columns` decoded; empty for a group without symbols.
    ///
    /// # Errors
    /// [`MarketError::UnknownGroup`], [`MarketError::UnknownColumn`]; [`MarketError::Checksum`],
    /// [`MarketError::Corrupt`] or [`MarketError::Io`] for the group's file.
    pub fn load_group(&self, group: u32, columns: &[String]) -> Result<Vec<LoadedBars>, MarketError> {
        let manifest = &*self.manifest;
        if group >= manifest.groups {
            let dataset = manifest.name.clone();
            return Err(MarketError::UnknownGroup { dataset, group, groups: manifest.groups });
        }
        self.check_columns(columns)?;
        self.load(group, columns, None)
    }

    fn check_columns(&self, columns: &[String]) -> Result<(), MarketError> {
        let manifest = &*self.manifest;
        let Some(unknown) = columns.iter().find(|c| !manifest.columns.contains(c)) else { return Ok(()) };
        Err(MarketError::UnknownColumn {
            dataset: manifest.name.clone(),
            column: unknown.clone(),
            available: manifest.columns.clone(),
            suggestion: suggest(unknown, manifest.columns.iter().map(String::as_str)).map(str::to_owned),
        })
    }

    /// The bars of a group's symbols, or of one of them; columns are known to exist.
    fn load(&self, group: u32, columns: &[String], only: Option<&str>) -> Result<Vec<LoadedBars>, MarketError> {
        let Some(file) = self.manifest.file(group) else { return Ok(Vec::new()) };
        let entries: Vec<&SymbolEntry> = self.members(group).collect();
        let all = Run::all(entries.iter().copied());
        let wanted: Vec<usize> =
            (0..entries.len()).filter(|at| only.is_none_or(|only| entries[*at].symbol == only)).collect();
        let runs: Vec<Run> = wanted.iter().map(|at| all[*at]).collect();
        let Columns { times, mut values } = self.columns_of(file, columns, &all, &runs)?;
        values.iter_mut().for_each(|column| column.reverse());
        let mut bars = Vec::with_capacity(wanted.len());
        let mut before: Option<&Series<TimeMicros>> = None;
        for (at, times) in wanted.iter().zip(&times) {
            let entry = entries[*at];
            let ends = (times.first(), times.last());
            // Symbols that share their times share what was found out about them.
            let ascends = before.is_some_and(|before| before.same_as(times)) || times.is_sorted_by(|a, b| a < b);
            if ends != (Some(&entry.first_time), Some(&entry.last_time)) || !ascends {
                return Err(self.corrupt(&file.sha256, format!("the times of {} are not as listed", entry.symbol)));
            }
            before = Some(times);
            let columns = values.iter_mut().filter_map(Vec::pop).collect();
            bars.push(LoadedBars { symbol: entry.symbol.as_str().into(), times: times.clone(), columns });
        }
        Ok(bars)
    }

    /// The symbols of a group, in the order of its file.
    fn members(&self, group: u32) -> impl Iterator<Item = &SymbolEntry> {
        let symbols = &self.manifest.symbols;
        let members = self.tables.members.get_or_init(|| {
            let mut members: HashMap<u32, Vec<u32>> = HashMap::new();
            for (at, entry) in (0u32..).zip(symbols) {
                members.entry(entry.group).or_default().push(at);
            }
            members
        });
        members.get(&group).into_iter().flatten().filter_map(|at| symbols.get(*at as usize))
    }

    /// Columns of some symbols of a file: those that are kept in memory, and the others from the file.
    fn columns_of(
        &self,
        file: &GroupFile,
        columns: &[String],
        all: &[Run],
        runs: &[Run],
    ) -> Result<Columns, MarketError> {
        let Some(cache) = self.cache.as_ref().filter(|_| all.len() == runs.len()) else {
            return self.columns_from_file(file, columns, all, runs);
        };
        let held = |name: &str| cache.get(&file.sha256, name);
        let times = match held(TIME) {
            Some(Column::Times(times)) => Some(times),
            _ => None,
        };
        let mut values: Vec<Option<Vec<Series<f64>>>> = Vec::with_capacity(columns.len());
        values.extend(columns.iter().map(|name| match held(name) {
            Some(Column::Values(values)) => Some(values),
            _ => None,
        }));
        let missing: Vec<String> =
            columns.iter().zip(&values).filter(|(_, held)| held.is_none()).map(|(name, _)| name.clone()).collect();
        if let (Some(times), true) = (&times, missing.is_empty()) {
            return Ok(Columns { times: times.clone(), values: values.into_iter().flatten().collect() });
        }
        let read = self.columns_from_file(file, &missing, all, runs)?;
        if times.is_none() {
            cache.keep(&file.sha256, TIME, &Column::Times(read.times.clone()));
        }
        let mut found = missing.iter().zip(read.values);
        for column in values.iter_mut().filter(|held| held.is_none()) {
            if let Some((name, series)) = found.next() {
                cache.keep(&file.sha256, name, &Column::Values(series.clone()));
                *column = Some(series);
            }
        }
        Ok(Columns { times: times.unwrap_or(read.times), values: values.into_iter().flatten().collect() })
    }

    /// Columns of some symbols, read from the file and checked: by the checksums of what is read if there are any that
    /// match, else by the sha256 of the whole file.
    fn columns_from_file(
        &self,
        file: &GroupFile,
        columns: &[String],
        all: &[Run],
        runs: &[Run],
    ) -> Result<Columns, MarketError> {
        let relative = file_path(&file.sha256);
        if let Some((sums, path)) = self.sums_of(file, all).zip(self.directory())
            && let Ok(opened) = fs::File::open(path.join(&relative))
            && opened.metadata().is_ok_and(|found| found.len() == file.bytes)
            && let Ok(read) = read_checked(&opened, &sums, columns, runs)
        {
            return Ok(read);
        }
        let bytes = self.read(&file.sha256, &relative)?;
        let corrupt = |why| self.corrupt(&file.sha256, why);
        if self.directory().is_some() {
            let sums = Arc::new(Sums::of(&bytes, all).map_err(corrupt)?);
            self.tables.sums.keep(file.group, &sums);
        }
        copy_columns(&bytes, columns, runs).map_err(corrupt)
    }

    /// The checksums of a group's file, if there are any.
    fn sums_of(&self, file: &GroupFile, runs: &[Run]) -> Option<Arc<Sums>> {
        if let Some(known) = self.tables.sums.of(file.group) {
            return Some(known);
        }
        let path = self.directory()?.join(sums_path(&file.sha256));
        let sums = Arc::new(read_sums(&path, &file.sha256, file.bytes, runs)?);
        self.tables.sums.keep(file.group, &sums);
        Some(sums)
    }

    fn directory(&self) -> Option<&Path> {
        match &self.files {
            Files::Directory(path) => Some(path),
            Files::Memory(_) => None,
        }
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
    ) -> Result<Vec<LoadedBars>, MarketError> {
        self.adjusted(columns, adjustment, |columns| self.load_group(group, columns))
    }

    /// As [`Dataset::load_symbol`], adjusted as by [`Dataset::load_group_adjusted`].
    ///
    /// # Errors
    /// Those of both.
    pub fn load_symbol_adjusted(
        &self,
        symbol: &str,
        columns: &[String],
        adjustment: &Adjustment,
    ) -> Result<LoadedBars, MarketError> {
        let load = |columns: &[String]| Ok(vec![self.load_symbol(symbol, columns)?]);
        let loaded = self.adjusted(columns, adjustment, load)?.pop();
        loaded.ok_or_else(|| MarketError::Refused(format!("'{symbol}' was not loaded")))
    }

    fn adjusted(
        &self,
        columns: &[String],
        adjustment: &Adjustment,
        load: impl FnOnce(&[String]) -> Result<Vec<LoadedBars>, MarketError>,
    ) -> Result<Vec<LoadedBars>, MarketError> {
        if adjustment.is_none() || self.manifest.factors.is_none() {
            return load(columns);
        }
        let factors = self.factor_table()?;
        let (wanted, close) = self.with_close(columns, adjustment);
        let when = (self.manifest.calendar(), self.manifest.timeframe);
        let mut loaded = load(&wanted)?;
        for bars in &mut loaded {
            let events = factors.of(&bars.symbol);
            if !events.is_empty() {
                let raw = close.map(|i| bars.columns[i].clone());
                adjust(bars, &wanted, raw.as_deref(), events, adjustment, when);
            }
            bars.columns.truncate(columns.len());
        }
        Ok(loaded)
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

    /// The bars of one symbol; nothing else of its group is read, unless the group's file has no checksums.
    ///
    /// # Errors
    /// [`MarketError::UnknownSymbol`] with the nearest one; those of [`Dataset::load_group`].
    pub fn load_symbol(&self, symbol: &str, columns: &[String]) -> Result<LoadedBars, MarketError> {
        let unknown = || MarketError::UnknownSymbol {
            dataset: self.manifest.name.clone(),
            symbol: symbol.to_owned(),
            suggestion: suggest(symbol, self.manifest.symbols.iter().map(|s| s.symbol.as_str())).map(str::to_owned),
        };
        let entry = self.manifest.symbol(symbol).ok_or_else(unknown)?;
        self.check_columns(columns)?;
        self.load(entry.group, columns, Some(symbol))?.pop().ok_or_else(unknown)
    }

    /// Reads every file and compares its sha256; the errors found, in group order. An intact file of bars whose file of
    /// checksums is missing or damaged is given one, if the dataset can be written to.
    pub fn verify(&self) -> Vec<MarketError> {
        let manifest = &*self.manifest;
        let mut errors: Vec<MarketError> = manifest.files.iter().filter_map(|f| self.verify_group(f).err()).collect();
        let times = [(&manifest.times.sha256, file_path(&manifest.times.sha256))];
        let tables = manifest.factors.iter().chain(&manifest.symbol_table).map(|t| (&t.sha256, table_path(&t.sha256)));
        errors.extend(times.into_iter().chain(tables).filter_map(|(sha256, path)| self.read(sha256, &path).err()));
        errors
    }

    fn verify_group(&self, file: &GroupFile) -> Result<(), MarketError> {
        let bytes = self.read(&file.sha256, &file_path(&file.sha256))?;
        let runs = Run::all(self.members(file.group));
        let sums = Sums::of(&bytes, &runs).map_err(|why| self.corrupt(&file.sha256, why))?;
        if let Some(path) = self.directory() {
            let known = read_sums(&path.join(sums_path(&file.sha256)), &file.sha256, file.bytes, &runs);
            if known.as_ref() != Some(&sums) {
                // Only speed depends on it: a dataset that cannot be written to has none.
                let _ = store_sums(path, file, &sums);
            }
        }
        Ok(())
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

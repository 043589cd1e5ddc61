//! An opened snapshot: the bar that an as-of selects, and the bars of a group.
//!
//! Nothing is used unchecked: the sha256 of a file is compared with the manifest, or checksums that were derived from a
//! file whose sha256 was right with what is read (see [`crate::sums`]). How the bars of a group are read is in `load`.

mod copies;
mod groups;
mod largest;
mod load;

pub use self::copies::{FetchedGroup, HeldGroup, Reads};

use std::borrow::Cow;
use std::fs;
use std::sync::{Arc, OnceLock};

use crate::arrow_file::{LoadedBars, SymbolBars, TIME, decode_times};
use crate::bundled_names::is_bundled;
use trawl_terms::suggest;

use crate::column_cache::ColumnCache;
use crate::error::MarketError;
use crate::files::Files;
use crate::group_reader::KnownSums;
use crate::manifest::{Manifest, TableFile};
use crate::reference::{
    Adjustment, AdjustmentMode, AttributeTable, Attributes, FactorRow, FactorTable, Listing, SymbolTable, adjust,
    decode_attributes, decode_factors, decode_listing, known_events,
};
use crate::snapshot::{file_path, manifest_path, table_path, tail_index_path, unite};
use crate::tail::Tails;
use crate::time::TimeMicros;

use load::Only;

/// An opened, pinned snapshot. Cheap to clone; may be used from many threads.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// Table of contents.
    pub manifest: Arc<Manifest>,
    files: Files,
    /// Read at first use; shared by all clones.
    tables: Arc<Tables>,
    /// Bars that were appended to the files of the groups.
    tails: Option<Arc<Tails>>,
    /// Columns that were read, if they are kept.
    cache: Option<Arc<ColumnCache>>,
    /// The manifest's file, locked so that the snapshot is not deleted meanwhile.
    _reading: Option<Arc<fs::File>>,
}

#[derive(Debug, Default)]
struct Tables {
    symbols: OnceLock<Arc<SymbolTable>>,
    factors: OnceLock<Arc<FactorTable>>,
    attributes: OnceLock<Arc<AttributeTable>>,
    groups: groups::Groups,
    sums: KnownSums,
}

impl Dataset {
    pub(crate) fn new(manifest: Arc<Manifest>, files: Files) -> Self {
        Self { manifest, files, tables: Arc::default(), tails: None, cache: None, _reading: None }
    }

    /// A snapshot with appended bars: its manifest has all of its symbols and bars.
    pub(crate) fn with_tails(self, tails: Option<Tails>) -> Self {
        Self { tails: tails.map(Arc::new), ..self }
    }

    /// Where its files are.
    pub(crate) fn files(&self) -> &Files {
        &self.files
    }

    /// The appended bars.
    pub(crate) fn tails(&self) -> Option<&Tails> {
        self.tails.as_deref()
    }

    /// Keeps a file open, and with it its lock, as long as the dataset exists.
    pub(crate) fn reading(self, file: Arc<fs::File>) -> Self {
        Self { _reading: Some(file), ..self }
    }

    /// Keeps these columns of whole groups, and the times, in memory once they are read, at most so many bytes: for
    /// scans that read the same bars in several steps. Clones share them.
    pub fn keeping_columns(self, columns: impl IntoIterator<Item = String>, bytes_max: u64) -> Self {
        let columns = columns.into_iter().chain([TIME.to_owned()]);
        Self { cache: Some(Arc::new(ColumnCache::of(columns, bytes_max))), ..self }
    }

    /// Keeps what is read of whole groups in a cache that other snapshots and datasets share.
    pub fn sharing_columns(self, cache: &Arc<ColumnCache>) -> Self {
        Self { cache: Some(Arc::clone(cache)), ..self }
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
        let Some(tails) = self.tails() else { return Ok(times) };
        let times = unite(times, &tails.times);
        if times.len() as u64 != self.manifest.distinct_times() {
            let file = format!("{}/{}", self.manifest.name, manifest_path(&self.manifest.snapshot));
            return Err(MarketError::Corrupt { file, why: "its number of distinct times is wrong".to_owned() });
        }
        Ok(times)
    }

    /// The bars of one group, symbols sorted by name, with only `columns` decoded; empty for a group without symbols.
    ///
    /// # Errors
    /// [`MarketError::UnknownGroup`], [`MarketError::UnknownColumn`]; [`MarketError::Checksum`],
    /// [`MarketError::Corrupt`] or [`MarketError::Io`] for the group's file.
    pub fn load_group(&self, group: u32, columns: &[String]) -> Result<Vec<LoadedBars>, MarketError> {
        self.load_some(group, columns, Only::All, None)
    }

    fn load_some(
        &self,
        group: u32,
        columns: &[String],
        only: Only<'_>,
        newest: Option<u64>,
    ) -> Result<Vec<LoadedBars>, MarketError> {
        let manifest = &*self.manifest;
        if group >= manifest.groups {
            let dataset = manifest.name.clone();
            return Err(MarketError::UnknownGroup { dataset, group, groups: manifest.groups });
        }
        self.check_columns(columns)?;
        self.load(group, columns, only, newest)
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

    /// As [`Dataset::load_group_adjusted`], but of each symbol at least the `newest` bars: [`LoadedBars::unread`] tells how many
    /// before them were not read. The time that it takes does not depend on how long the history is. Dividends are compared with
    /// the close before them, wherever that is: with such an adjustment everything is read.
    ///
    /// # Errors
    /// Those of [`Dataset::load_group_adjusted`].
    pub fn load_group_newest(
        &self,
        group: u32,
        columns: &[String],
        adjustment: &Adjustment,
        newest: u64,
    ) -> Result<Vec<LoadedBars>, MarketError> {
        let newest = self.newest_read(group, adjustment, Some(newest));
        self.adjusted(columns, adjustment, |columns| self.load_some(group, columns, Only::All, newest))
    }

    /// As [`Dataset::load_group_adjusted`] for who needs no time but the last of each symbol: others may be zeros, as
    /// [`LoadedBars::untimed`] tells, and are not read then.
    ///
    /// # Errors
    /// Those of [`Dataset::load_group_adjusted`].
    pub fn load_group_untimed(
        &self,
        group: u32,
        columns: &[String],
        adjustment: &Adjustment,
    ) -> Result<Vec<LoadedBars>, MarketError> {
        // Factors are looked up by time.
        if adjustment.is_none() || self.manifest.factors.is_none() {
            self.check_columns(columns)?;
            if let Some(bars) = self.load_untimed(group, columns)? {
                return Ok(bars);
            }
        }
        self.load_group_adjusted(group, columns, adjustment)
    }

    /// How many of the newest bars are read where so many are wanted; `None`: all.
    fn newest_read(&self, group: u32, adjustment: &Adjustment, newest: Option<u64>) -> Option<u64> {
        let dividends = adjustment.mode == AdjustmentMode::SplitAndDividend && self.manifest.factors.is_some();
        // Times that were not read are those of 1970 to whoever searches for one.
        let whole = dividends || self.group(group).is_some_and(|group| group.before_1970);
        newest.filter(|_| !whole)
    }

    /// Whether all of these bars are in memory: what [`Dataset::load_group_newest`] or [`Dataset::load_group_adjusted`] would return. Of
    /// files of appended bars it does not say whether they are.
    pub fn is_resident(&self, group: u32, reads: &Reads<'_>) -> bool {
        let (columns, newest) = self.read_of_files(group, reads);
        self.holds(group, &columns, newest)
    }

    /// The columns that are read of a group's file, and how many of the newest bars; all if `None`.
    fn read_of_files<'r>(&self, group: u32, reads: &Reads<'r>) -> (Cow<'r, [String]>, Option<u64>) {
        let adjusts = !reads.adjustment.is_none() && self.manifest.factors.is_some();
        let columns = match adjusts {
            true => Cow::Owned(self.with_close(reads.columns, reads.adjustment).0),
            false => Cow::Borrowed(reads.columns),
        };
        (columns, self.newest_read(group, reads.adjustment, reads.newest))
    }

    /// As [`Dataset::load_group_adjusted`], of the symbols at some places of [`Dataset::symbols_of`] alone, which ascend. Parts are not
    /// kept in memory.
    ///
    /// # Errors
    /// Those of [`Dataset::load_group_adjusted`].
    pub fn load_group_part(
        &self,
        group: u32,
        columns: &[String],
        adjustment: &Adjustment,
        part: &[usize],
    ) -> Result<Vec<LoadedBars>, MarketError> {
        self.adjusted(columns, adjustment, |columns| self.load_some(group, columns, Only::Part(part), None))
    }

    /// Whether columns are kept in memory once they are read: see [`Dataset::keeping_columns`].
    pub fn keeps_columns(&self) -> bool {
        self.cache.is_some()
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

    /// How many events adjust the bars of each of these symbols: with the snapshot, all that they depend on beside how they are
    /// adjusted. `None` where nothing is adjusted.
    ///
    /// # Errors
    /// Those of [`Dataset::load_group_adjusted`] for the tables of factors and symbols.
    pub fn events_applied<'s>(
        &self,
        symbols: impl Iterator<Item = &'s str>,
        adjustment: &Adjustment,
    ) -> Result<Option<Vec<usize>>, MarketError> {
        if adjustment.is_none() || self.manifest.factors.is_none() {
            return Ok(None);
        }
        let (factors, when) = (self.factor_table()?, (self.manifest.calendar(), self.manifest.timeframe));
        Ok(Some(symbols.map(|symbol| known_events(factors.of(symbol), adjustment, when).count()).collect()))
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

    /// As [`Dataset::symbol_table`] for who looks up labels and no names: without an imported table there are none of them.
    ///
    /// # Errors
    /// Those of [`Dataset::symbol_table`].
    pub fn labels(&self) -> Result<Arc<SymbolTable>, MarketError> {
        match self.manifest.symbol_table {
            Some(_) => self.symbol_table(),
            None => Ok(Arc::default()),
        }
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

    /// The attribute table as stored.
    pub(crate) fn read_attributes(&self) -> Result<Attributes, MarketError> {
        match &self.manifest.attributes {
            Some(file) => self.read_table(file, decode_attributes, |a| a.rows.len()),
            None => Ok(Attributes::default()),
        }
    }

    /// Attributes of symbols over time; empty when none were imported.
    ///
    /// # Errors
    /// Those of [`Dataset::symbol_table`].
    pub fn attributes(&self) -> Result<Arc<AttributeTable>, MarketError> {
        if let Some(known) = self.tables.attributes.get() {
            return Ok(Arc::clone(known));
        }
        let manifest = &self.manifest;
        if manifest.attributes.is_none() {
            return Ok(Arc::default());
        }
        let (read, symbols) = (self.read_attributes()?, self.symbol_table()?);
        let table = Arc::new(AttributeTable::new(read, &symbols, manifest.calendar(), manifest.timeframe));
        Ok(Arc::clone(self.tables.attributes.get_or_init(|| table)))
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

    /// The bars of one symbol, from memory if all of its group is there; nothing else of its group is read, unless the group's file has
    /// no checksums.
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
        if self.holds(entry.group, columns, None) {
            let group = self.load(entry.group, columns, Only::All, None)?;
            let bars = group.into_iter().find(|bars| *bars.symbol == *symbol).ok_or_else(unknown)?;
            // A share in the group's buffers would keep them in memory as a whole, whatever the cache's bound is.
            return Ok(SymbolBars::from(bars).into());
        }
        self.load(entry.group, columns, Only::Symbol(symbol), None)?.pop().ok_or_else(unknown)
    }

    /// Reads every file and compares its sha256; the errors found, in group order. An intact file of bars whose file of
    /// checksums is missing or damaged is given one, if the dataset can be written to.
    pub fn verify(&self) -> Vec<MarketError> {
        let mut errors: Vec<MarketError> =
            self.manifest.files.iter().filter_map(|f| self.verify_group(f).err()).collect();
        errors.extend(self.other_files().filter_map(|(sha256, path)| self.read(sha256, &path).err()));
        errors
    }

    /// Files of the snapshot besides those of its groups: their sha256, and where they are in the dataset.
    fn other_files(&self) -> impl Iterator<Item = (&String, String)> {
        let manifest = &*self.manifest;
        let times = [(&manifest.times.sha256, file_path(&manifest.times.sha256))];
        let tables = manifest.tables().map(|t| (&t.sha256, table_path(&t.sha256)));
        let tails = manifest.tails().iter().map(|t| (&t.sha256, file_path(&t.sha256)));
        let indices = manifest.tails().iter().map(|t| (&t.index, tail_index_path(&t.index)));
        times.into_iter().chain(tables).chain(tails).chain(indices)
    }

    /// All files of the snapshot whose sha256 it names, with where they are in the dataset.
    pub(crate) fn all_files(&self) -> impl Iterator<Item = (&String, String)> {
        self.manifest.files.iter().map(|f| (&f.sha256, file_path(&f.sha256))).chain(self.other_files())
    }

    /// A file's content, verified.
    fn read(&self, sha256: &str, relative: &str) -> Result<Arc<Vec<u8>>, MarketError> {
        self.files.read(&self.manifest.name, relative, sha256)
    }

    fn corrupt(&self, sha256: &str, why: String) -> MarketError {
        MarketError::Corrupt { file: format!("{}/{}", self.manifest.name, file_path(sha256)), why }
    }
}

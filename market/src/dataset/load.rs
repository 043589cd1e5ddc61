//! Bars of a group: the columns of its symbols from the group's file, and behind them what was appended.

use std::cell::{Cell, OnceCell};
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::Dataset;
use crate::arrow_file::{LoadedBars, TIME};
use crate::column_cache::{Column, ColumnCache, GroupPart};
use crate::error::MarketError;
use crate::group_reader::{
    Added, Bars, Columns, added_columns, copy_columns, last_times, lay_behind, read_checked, read_sums, read_values,
};
use crate::manifest::{GroupFile, SymbolEntry};
use crate::read_at::Unchecked;
use crate::series::{Series, Value};
use crate::snapshot::{file_path, store_sums, sums_path};
use crate::sums::{CHUNK_ROWS, Run, Sums};
use crate::tail::OpenTail;
use crate::tail::reader::Pieces;
use crate::time::TimeMicros;

/// Reads of parts of columns of which some were damaged; then the group's file decides.
const PART_READS_MAX: usize = 2;

/// Which symbols of a group are read.
#[derive(Debug, Clone)]
pub(super) enum Only<'a> {
    All,
    Symbol(&'a str),
    /// By their places in the group, ascending.
    Part(&'a [usize]),
}

/// Of each symbol, the number of chunks at its beginning that hold none of so many newest bars.
pub(super) fn unread_of<'e>(
    runs: &[Run],
    entries: impl Iterator<Item = &'e SymbolEntry>,
    newest: Option<u64>,
) -> Vec<usize> {
    let Some(newest) = newest else { return Vec::new() };
    let skipped = |(run, entry): (&Run, &SymbolEntry)| run.chunks_before(entry.rows.saturating_sub(newest));
    runs.iter().zip(entries).map(skipped).collect()
}

fn picked_of<T: Clone>(all: &[T], places: &[usize]) -> Vec<T> {
    places.iter().filter_map(|at| all.get(*at).cloned()).collect()
}

/// Columns of symbols of a group.
struct Kept {
    columns: Columns,
    /// Whether the times of each symbol are known to ascend.
    ordered: bool,
}

impl Kept {
    /// Columns whose times have not been looked at.
    fn unknown(columns: Columns) -> Self {
        Self { columns, ordered: false }
    }
}

/// Columns of all symbols of a group: those that are kept, and the others, which are read and kept. Times are kept only if they ascend,
/// so that they are looked at once.
fn kept_columns(
    cache: &ColumnCache,
    content: &str,
    columns: &[String],
    rows: &Rows<'_>,
    read: impl FnOnce(&[String]) -> Result<Columns, MarketError>,
) -> Result<Kept, MarketError> {
    let part = GroupPart::new(content, rows.unread);
    let times = match cache.get(&part, TIME) {
        Some(Column::Times(times)) => Some(times),
        _ => None,
    };
    let mut values: Vec<Option<Vec<Series<f64>>>> = Vec::with_capacity(columns.len());
    values.extend(columns.iter().map(|name| match cache.get(&part, name) {
        Some(Column::Values(values)) => Some(values),
        _ => None,
    }));
    let missing: Vec<String> =
        columns.iter().zip(&values).filter(|(_, held)| held.is_none()).map(|(name, _)| name.clone()).collect();
    let times = match times {
        Some(times) if missing.is_empty() => {
            let columns = Columns { times, values: values.into_iter().flatten().collect() };
            return Ok(Kept { columns, ordered: true });
        }
        times => times,
    };
    let unread = |(run, chunks): (&Run, &usize)| run.rows_of(*chunks);
    let unread: Vec<u64> = rows.wanted.iter().zip(rows.unread).map(unread).collect();
    let read = read(&missing)?;
    let ordered = times.is_some() || rows.ascend(&read.times);
    if times.is_none() && ordered {
        cache.keep(&part, TIME, &Column::Times(read.times.clone()), &unread);
    }
    let mut found = missing.iter().zip(read.values);
    for column in values.iter_mut().filter(|held| held.is_none()) {
        if let Some((name, series)) = found.next() {
            cache.keep(&part, name, &Column::Values(series.clone()), &unread);
            *column = Some(series);
        }
    }
    let columns = Columns { times: times.unwrap_or(read.times), values: values.into_iter().flatten().collect() };
    Ok(Kept { columns, ordered })
}

/// Which rows of a group are read.
struct Rows<'a> {
    group: u32,
    /// Of all symbols in the group's file, in its order.
    all: &'a [Run],
    /// Of those that are read.
    wanted: &'a [Run],
    /// The places of these among the snapshot's symbols.
    places: &'a [u32],
    /// Of each that is read, the number of chunks at its beginning that are not; empty if all are.
    unread: &'a [usize],
    /// The runs whose rows are fetched together from an object store, with the chunks of each that are not.
    together: (&'a [Run], &'a [usize]),
}

impl Rows<'_> {
    /// Number of rows at the beginning of a symbol that are not read.
    fn unread_of(&self, at: usize) -> usize {
        self.unread.get(at).zip(self.wanted.get(at)).map_or(0, |(chunks, run)| run.rows_of(*chunks)) as usize
    }

    /// Whether the times that were read of each symbol ascend.
    fn ascend(&self, times: &[Series<TimeMicros>]) -> bool {
        let mut before: Option<&Series<TimeMicros>> = None;
        times.iter().enumerate().all(|(at, times)| {
            // Symbols that share their times share what was found out about them.
            let known = before.replace(times).is_some_and(|before| before.same_as(times));
            known || times.get(self.unread_of(at)..).unwrap_or_default().is_sorted_by(|a, b| a < b)
        })
    }
}

impl Dataset {
    /// The bars of a group's symbols, or of some of them; columns are known to exist. With `newest`, only the chunks that hold
    /// any of so many newest bars are read.
    pub(super) fn load(
        &self,
        group: u32,
        columns: &[String],
        only: Only<'_>,
        newest: Option<u64>,
    ) -> Result<Vec<LoadedBars>, MarketError> {
        let (members, all, names) = (self.members(group), self.runs(group), self.names_of(group));
        let only_one;
        let chosen = match &only {
            Only::All => None,
            Only::Symbol(only) => {
                only_one = names.binary_search_by(|name| (**name).cmp(*only)).ok();
                Some(only_one.as_slice())
            }
            Only::Part(part) => Some(*part),
        };
        let picked = chosen.map(|part| (picked_of(members, part), picked_of(all, part), picked_of(names, part)));
        let (places, runs, names) =
            picked.as_ref().map_or((members, all, names), |(places, runs, names)| (places, runs, names));
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let entries = || places.iter().filter_map(|place| self.manifest.symbols.get(*place as usize));
        let unread = unread_of(runs, entries(), newest);
        // All parts of a group are fetched at once.
        let is_part = matches!(only, Only::Part(_));
        let others = if is_part { unread_of(all, self.symbols_of(group), newest) } else { Vec::new() };
        let together = if is_part { (all, &*others) } else { (runs, &*unread) };
        let rows = Rows { group, all, wanted: runs, places, unread: &unread, together };
        let Kept { columns: Columns { times, values }, ordered } = self.columns_of(columns, &rows)?;
        let mut values: Vec<_> = values.into_iter().map(Vec::into_iter).collect();
        let mut bars = Vec::with_capacity(places.len());
        let mut before: Option<Series<TimeMicros>> = None;
        for (at, ((entry, name), times)) in entries().zip(names).zip(times).enumerate() {
            let unread = rows.unread_of(at);
            let read = times.get(unread..).unwrap_or_default();
            let begins = unread > 0 || read.first() == Some(&entry.first_time);
            // Symbols that share their times share what was found out about them.
            let ascends = ordered
                || before.as_ref().is_some_and(|before| before.same_as(&times))
                || read.is_sorted_by(|a, b| a < b);
            if !begins || read.last() != Some(&entry.last_time) || !ascends {
                return Err(self.misplaced(group, &entry.symbol));
            }
            if !ordered {
                before = Some(times.clone());
            }
            let columns = values.iter_mut().filter_map(Iterator::next).collect();
            bars.push(LoadedBars { symbol: Arc::clone(name), times, columns, unread, untimed: unread });
        }
        Ok(bars)
    }

    /// The bars of a group's symbols with the last of their times alone, which the manifest lists. `None` where times come with the
    /// rest: in memory, from an object store, with appended bars; where a checksum does not match, which [`Self::load`] reports; and of
    /// bars before 1970, since who searches for a time takes zeros for earlier ones.
    pub(super) fn load_untimed(&self, group: u32, columns: &[String]) -> Result<Option<Vec<LoadedBars>>, MarketError> {
        let Some(file) = self.manifest.file(group) else { return Ok(None) };
        let before_1970 = self.group(group).is_some_and(|group| group.before_1970);
        if before_1970 || self.cache.is_some() || self.tails().is_some() || !self.files.are_on_disk() {
            return Ok(None);
        }
        let runs = self.runs(group);
        let Some(sums) = self.sums_of(file, runs)? else { return Ok(None) };
        let Some(opened) = self.opened_whole(file)? else { return Ok(None) };
        let Ok(values) = read_values(Bars::File(&opened), &sums, columns, (runs, &[]), &Added::default()) else {
            return Ok(None);
        };
        let lasts: Vec<(u64, TimeMicros)> = self.symbols_of(group).map(|entry| (entry.rows, entry.last_time)).collect();
        let mut values: Vec<_> = values.into_iter().map(Vec::into_iter).collect();
        let bars = self.names_of(group).iter().zip(last_times(&lasts)).map(|(name, times)| {
            let columns = values.iter_mut().filter_map(Iterator::next).collect();
            let untimed = times.len().saturating_sub(1);
            LoadedBars { symbol: Arc::clone(name), times, columns, unread: 0, untimed }
        });
        Ok(Some(bars.collect()))
    }

    fn misplaced(&self, group: u32, symbol: &str) -> MarketError {
        let tail = || self.manifest.tails().first().map(|tail| &tail.sha256);
        let file = self.manifest.file(group).map(|file| &file.sha256).or_else(tail);
        self.corrupt(file.map_or("", String::as_str), format!("the times of {symbol} are not as listed"))
    }

    /// Columns of some symbols of a group: those that are kept in memory, and the others from files.
    fn columns_of(&self, columns: &[String], rows: &Rows<'_>) -> Result<Kept, MarketError> {
        let all = rows.all.len() == rows.wanted.len();
        let part = rows.unread.iter().any(|chunks| *chunks > 0);
        let Some(cache) = self.cache.as_ref().filter(|cache| all && (cache.is_shared() || !part)) else {
            return self.columns_from_files(columns, rows).map(Kept::unknown);
        };
        let from_files = |missing: &[String]| self.columns_from_files(missing, rows);
        // What a file holds is part of every snapshot that names it.
        match (self.manifest.file(rows.group), self.tails()) {
            (Some(file), None) => kept_columns(cache, &file.sha256, columns, rows, from_files),
            (Some(file), Some(tails)) if cache.is_shared() => {
                let base = kept_columns(cache, &file.sha256, columns, rows, |missing| {
                    let none = Added::default();
                    self.columns_from_file(file, missing, rows.all, (rows.wanted, rows.unread), rows.together, &none)
                })?;
                let added = self.added(&tails.files, rows.group, columns, rows.places)?;
                match added.rows.iter().all(|rows| *rows == 0) {
                    true => Ok(base),
                    false => Ok(Kept::unknown(lay_behind(&base.columns, (rows.wanted, rows.unread), &added))),
                }
            }
            (None, _) if cache.is_shared() => from_files(columns).map(Kept::unknown),
            // With what was appended, of this snapshot alone.
            _ => {
                let content = format!("{}/{}", self.manifest.snapshot, rows.group);
                kept_columns(cache, &content, columns, rows, from_files)
            }
        }
    }

    /// Whether the shared cache has all of these columns of a group's file.
    pub(super) fn holds(&self, group: u32, columns: &[String], newest: Option<u64>) -> bool {
        let (Some(cache), Some(file)) = (self.cache.as_ref(), self.manifest.file(group)) else { return false };
        let part = GroupPart::new(&file.sha256, &unread_of(self.runs(group), self.symbols_of(group), newest));
        cache.holds(&part, TIME) && columns.iter().all(|column| cache.holds(&part, column))
    }

    /// Columns of some symbols, read from the files.
    fn columns_from_files(&self, columns: &[String], rows: &Rows<'_>) -> Result<Columns, MarketError> {
        let added = match self.tails() {
            Some(tails) => self.added(&tails.files, rows.group, columns, rows.places)?,
            None => Added::default(),
        };
        match self.manifest.file(rows.group) {
            Some(file) => {
                let wanted = (rows.wanted, rows.unread);
                self.columns_from_file(file, columns, rows.all, wanted, rows.together, &added)
            }
            None => added_columns(columns.len(), rows.wanted, &added).map_err(|why| self.corrupt("", why)),
        }
    }

    /// Columns of some symbols, read from the group's file and checked: by the checksums of what is read if there are any that
    /// match, else by the sha256 of the whole file.
    fn columns_from_file(
        &self,
        file: &GroupFile,
        columns: &[String],
        all: &[Run],
        (runs, unread): (&[Run], &[usize]),
        together: (&[Run], &[usize]),
        added: &Added,
    ) -> Result<Columns, MarketError> {
        let relative = file_path(&file.sha256);
        if let Some(sums) = self.sums_of(file, all)? {
            // Parts that turn out to be damaged are fetched again, once.
            for _ in 0..PART_READS_MAX {
                let Some(parts) = self.parts_of(file, &sums, columns, together)? else { break };
                match read_checked(Bars::Parts(&parts), &sums, columns, (runs, unread), added) {
                    Ok(read) => return Ok(read),
                    Err(Unchecked) => self.discard_parts(&parts),
                }
            }
            if let Some(opened) = self.opened_whole(file)?
                && let Ok(read) = read_checked(Bars::File(&opened), &sums, columns, (runs, unread), added)
            {
                return Ok(read);
            }
        }
        let bytes = self.read(&file.sha256, &relative)?;
        let corrupt = |why| self.corrupt(&file.sha256, why);
        if self.files.are_on_disk() {
            let sums = Arc::new(Sums::of(&bytes, all).map_err(corrupt)?);
            self.tables.sums.keep(file.group, &sums);
        }
        copy_columns(&bytes, columns, runs, added).map_err(corrupt)
    }

    /// The groups of which columns are in memory, ascending; their appended bars may not be.
    pub fn groups_in_memory(&self) -> Vec<u32> {
        let files = self.manifest.files.iter().map(|file| (file.group, file.sha256.as_str()));
        self.cache.as_ref().map_or_else(Vec::new, |cache| cache.with_columns(files))
    }

    /// A file that is read by checksums; `None` where it has to be read whole, which says why.
    ///
    /// # Errors
    /// An object store that fails: reading it whole would fail as well, and take as long again.
    pub(super) fn opened(&self, relative: &str, sha256: &str) -> Result<Option<Arc<fs::File>>, MarketError> {
        match self.files.open(&self.manifest.name, relative, Some(sha256)) {
            Ok(file) => Ok(Some(file)),
            Err(error @ MarketError::DataRoot { .. }) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// As [`Dataset::opened`], the file of a group that is as long as listed.
    fn opened_whole(&self, file: &GroupFile) -> Result<Option<Arc<fs::File>>, MarketError> {
        let opened = self.opened(&file_path(&file.sha256), &file.sha256)?;
        Ok(opened.filter(|opened| opened.metadata().is_ok_and(|found| found.len() == file.bytes)))
    }

    /// The checksums of a group's file, if there are any.
    ///
    /// # Errors
    /// Those of [`Dataset::opened`].
    pub(super) fn sums_of(&self, file: &GroupFile, runs: &[Run]) -> Result<Option<Arc<Sums>>, MarketError> {
        if let Some(known) = self.tables.sums.of(file.group) {
            return Ok(Some(known));
        }
        let sums = self.stored_sums(file, runs)?.map(Arc::new);
        if let Some(sums) = &sums {
            self.tables.sums.keep(file.group, sums);
        }
        Ok(sums)
    }

    /// The checksums of a group's file, as they are stored. Their own checksum is inside: the manifest does not name them.
    fn stored_sums(&self, file: &GroupFile, runs: &[Run]) -> Result<Option<Sums>, MarketError> {
        let (name, relative) = (&self.manifest.name, sums_path(&file.sha256));
        let read = self.files.read_with(name, &relative, None, |opened| {
            let damaged = || MarketError::Corrupt { file: format!("{name}/{relative}"), why: String::new() };
            read_sums(opened, &file.sha256, file.bytes, runs).ok_or_else(damaged)
        });
        match read {
            Ok(sums) => Ok(Some(sums)),
            Err(error @ MarketError::DataRoot { .. }) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Reads a group's file, compares its sha256, and gives it the checksums that it lacks.
    pub(super) fn verify_group(&self, file: &GroupFile) -> Result<(), MarketError> {
        let bytes = self.read(&file.sha256, &file_path(&file.sha256))?;
        let runs = self.runs(file.group);
        let sums = Sums::of(&bytes, runs).map_err(|why| self.corrupt(&file.sha256, why))?;
        if let Some(path) = self.files.directory()
            && self.stored_sums(file, runs)?.as_ref() != Some(&sums)
        {
            // Only speed depends on it: a dataset that cannot be written to has none.
            let _ = store_sums(path, file, &sums);
        }
        Ok(())
    }

    /// The bars that files of appended bars have of some symbols of a group, whose places ascend.
    ///
    /// # Errors
    /// [`MarketError::Checksum`], [`MarketError::Corrupt`] or [`MarketError::Io`] for one of these files.
    pub(crate) fn added(
        &self,
        files: &[OpenTail],
        group: u32,
        columns: &[String],
        places: &[u32],
    ) -> Result<Added, MarketError> {
        let parts: Vec<Pieces<'_>> = files.iter().filter_map(|tail| tail.pieces(group, places)).collect();
        if parts.is_empty() {
            return Ok(Added::default());
        }
        let mut rows = vec![0usize; places.len()];
        for (symbol, range) in parts.iter().flat_map(|part| &part.pieces) {
            rows[*symbol] += (range.end - range.start) as usize;
        }
        let all: usize = rows.iter().sum();
        let mut added = Added { rows, times: vec![0; all], values: vec![vec![f64::NAN; all]; columns.len()] };
        // Where the next rows of each symbol go.
        let mut next: Vec<usize> = Vec::with_capacity(places.len());
        let mut from = 0;
        for rows in &added.rows {
            next.push(from);
            from += rows;
        }
        let none = AtomicU64::new(u64::MAX / 2);
        let held = self.tails().map_or(&none, |tails| &tails.held_bytes);
        for part in &parts {
            let source = Source { dataset: self, part, held, file: OnceCell::new(), failed: Cell::new(None) };
            put(&source.column(0)?, part, &next, &mut added.times);
            for (name, values) in columns.iter().zip(&mut added.values) {
                let place = part.tail.columns.iter().position(|column| column.name == *name);
                put(&source.column(place.unwrap_or(usize::MAX))?, part, &next, values);
            }
            for (symbol, range) in &part.pieces {
                next[*symbol] += (range.end - range.start) as usize;
            }
        }
        Ok(added)
    }

    /// The newest value of a column that is not missing, with its time, for symbols of a group whose places ascend; not found
    /// where the last [`CHUNK_ROWS`] bars of the group's file and all that was appended lack it.
    ///
    /// # Errors
    /// Those of [`Dataset::load_group`].
    pub(crate) fn newest_values(
        &self,
        group: u32,
        column: &str,
        places: &[u32],
    ) -> Result<BTreeMap<u32, (TimeMicros, f64)>, MarketError> {
        let columns = [column.to_owned()];
        let mut found = BTreeMap::new();
        let mut left = places.to_vec();
        let mut keep = |left: &mut Vec<u32>, times: &dyn Fn(usize) -> Option<(TimeMicros, f64)>| {
            let newest: Vec<(u32, Option<(TimeMicros, f64)>)> =
                left.iter().enumerate().map(|(at, place)| (*place, times(at))).collect();
            *left = newest.iter().filter(|(_, value)| value.is_none()).map(|(place, _)| *place).collect();
            found.extend(newest.into_iter().filter_map(|(place, value)| Some((place, value?))));
        };
        for tail in self.tails().map_or(&[][..], |tails| &tails.files).iter().rev() {
            if left.is_empty() {
                return Ok(found);
            }
            let added = self.added(std::slice::from_ref(tail), group, &columns, &left)?;
            keep(&mut left, &|at| {
                let range = added.range(at);
                newest(added.times.get(range.clone())?, added.values.first()?.get(range)?)
            });
        }
        let Some(file) = self.manifest.file(group).filter(|_| !left.is_empty()) else { return Ok(found) };
        let (members, all) = (self.members(group), self.runs(group));
        let run = |place: &u32| {
            let run = all.get(members.binary_search(place).ok()?).filter(|run| run.rows > 0)?;
            let chunk = run.chunks() - 1;
            let before = chunk as u64 * CHUNK_ROWS;
            Some((*place, Run { row: run.row + before, rows: run.rows - before, chunk: run.chunk + chunk }))
        };
        let (mut left, runs): (Vec<u32>, Vec<Run>) = left.iter().filter_map(run).unzip();
        let Columns { times, values } =
            self.columns_from_file(file, &columns, all, (&runs, &[]), (&runs, &[]), &Added::default())?;
        keep(&mut left, &|at| newest(times.get(at)?, values.first()?.get(at)?));
        Ok(found)
    }
}

/// The last value that is not missing.
fn newest(times: &[TimeMicros], values: &[f64]) -> Option<(TimeMicros, f64)> {
    times.iter().copied().zip(values.iter().copied()).rfind(|(_, value)| !value.is_nan())
}

/// Copies the rows of each symbol to where they go.
fn put<T: Value>(from: &[T], part: &Pieces<'_>, next: &[usize], to: &mut [T]) {
    let first = part.span().start;
    for (symbol, rows) in &part.pieces {
        let own = (rows.start - first) as usize..(rows.end - first) as usize;
        to[next[*symbol]..next[*symbol] + own.len()].copy_from_slice(&from[own]);
    }
}

/// A file of appended bars that is being read: by its checksums as long as they match, else whole.
struct Source<'a> {
    dataset: &'a Dataset,
    part: &'a Pieces<'a>,
    held: &'a AtomicU64,
    /// Opened when it is needed.
    file: OnceCell<Option<Arc<fs::File>>>,
    /// Why it could not be fetched.
    failed: Cell<Option<MarketError>>,
}

impl Source<'_> {
    /// The values of a column, 0 is the times.
    fn column<T: Value>(&self, column: usize) -> Result<Vec<T>, MarketError> {
        let sha256 = &self.part.tail.file.sha256;
        let relative = file_path(sha256);
        let open = || match self.dataset.opened(&relative, sha256) {
            Ok(file) => file,
            Err(error) => {
                self.failed.set(Some(error));
                None
            }
        };
        let file = || self.file.get_or_init(open).as_deref();
        if let Ok(values) = self.part.read(file, column, self.held) {
            return Ok(values);
        }
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let bytes = self.dataset.read(sha256, &relative)?;
        self.part.copy(&bytes, column).map_err(|why| self.dataset.corrupt(sha256, why))
    }
}

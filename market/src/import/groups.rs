//! Merges imported bars with those of a dataset, group by group; unchanged groups keep their files. Groups to which bars were
//! appended are written whole.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::imported::{Imported, ImportedSymbol};
use super::replaced::Spans;
use super::threads::try_in_parallel;
use crate::arrow_file::{LoadedBars, SymbolBars};
use crate::dataset::Dataset;
use crate::error::MarketError;
use crate::group::{group_of, groups_for};
use crate::group_writer::{GroupWriter, StoredGroup};
use crate::jumps::{Jump, find_jumps};
use crate::limits::{BATCH_ROWS_MAX, COLUMNS_MAX, SYMBOLS_MAX};
use crate::manifest::{GroupFile, SymbolEntry};
use crate::merge::{MergeCounts, merge_bars};
use crate::reading::CORE;
use crate::series::VALUE_BYTES;
use crate::snapshot::{Sink, unite};
use crate::tail::Tails;
use crate::time::TimeMicros;

/// Threads for each core that make groups: while some wait until their files are on the disk, others compute.
const WRITERS: usize = 4;

/// Core columns in their order, then the others by name.
pub(super) fn united_columns<'a>(columns: impl Iterator<Item = &'a String>) -> Result<Vec<String>, MarketError> {
    let mut names: BTreeSet<&str> = columns.map(String::as_str).collect();
    let mut united: Vec<String> = CORE.iter().filter(|c| names.remove(**c)).map(|c| (*c).to_owned()).collect();
    united.extend(names.into_iter().map(str::to_owned));
    if united.len() > COLUMNS_MAX {
        let (found, limit) = (united.len() as u64, COLUMNS_MAX as u64);
        return Err(MarketError::Limit { what: "columns of a dataset".to_owned(), found, limit });
    }
    Ok(united)
}

/// Columns in another order; missing columns are filled with NaN.
pub(super) fn spread(mut values: Vec<Vec<f64>>, from: &[String], to: &[String], rows: usize) -> Vec<Vec<f64>> {
    let mut take = |column: &String| from.iter().position(|c| c == column).map(|i| std::mem::take(&mut values[i]));
    to.iter().map(|column| take(column).unwrap_or_else(|| vec![f64::NAN; rows])).collect()
}

pub(crate) struct Merged {
    pub(crate) groups: u32,
    pub(crate) columns: Vec<String>,
    pub(crate) files: Vec<(GroupFile, Vec<SymbolEntry>)>,
    pub(crate) times: Vec<TimeMicros>,
    pub(crate) counts: MergeCounts,
    pub(crate) jumps: Vec<Jump>,
    pub(crate) files_written: u64,
    pub(crate) files_shared: u64,
}

struct MergedGroup {
    stored: StoredGroup,
    counts: MergeCounts,
    jumps: Vec<Jump>,
}

/// What the groups of an import are made of.
struct Merging<'a> {
    sink: &'a Sink,
    existing: Option<&'a Dataset>,
    /// Columns of the dataset before, and after.
    old_columns: &'a [String],
    columns: &'a [String],
    /// None where a dataset's own bars are written anew.
    imported: Option<&'a Imported>,
    /// Spans whose bars are those of the import alone.
    replaced: &'a Spans,
}

/// Stores the groups that change, and reuses the files of those that do not; groups that take `memory` bytes together are
/// made side by side. In spans that are replaced no bar of the dataset stays that does not come again.
pub(crate) fn merge_into(
    sink: &Sink,
    existing: Option<&Dataset>,
    columns: &[String],
    (imported, replaced): (Option<&Imported>, &Spans),
    memory: u64,
) -> Result<Merged, MarketError> {
    let old = existing.map(|d| &*d.manifest);
    let old_columns = old.map(|m| m.columns.clone()).unwrap_or_default();
    let all_columns = united_columns(old_columns.iter().chain(columns))?;
    let known = |symbol: &str| old.is_some_and(|m| m.symbol(symbol).is_some());
    let added = imported.map_or(&[][..], |imported| &imported.symbols);
    let symbols = old.map_or(0, |m| m.symbols.len()) + added.iter().filter(|s| !known(&s.name)).count();
    if symbols > SYMBOLS_MAX {
        let (found, limit) = (symbols as u64, SYMBOLS_MAX as u64);
        return Err(MarketError::Limit { what: "symbols of a dataset".to_owned(), found, limit });
    }
    let groups = old.map_or_else(|| groups_for(symbols), |m| m.groups);
    let mut by_group: BTreeMap<u32, Vec<&ImportedSymbol>> = BTreeMap::new();
    for symbol in added {
        by_group.entry(group_of(&symbol.name, groups)).or_default().push(symbol);
    }
    let mut merged = Merged {
        groups,
        columns: all_columns,
        files: Vec::new(),
        times: Vec::new(),
        counts: MergeCounts::default(),
        jumps: Vec::new(),
        files_written: 0,
        files_shared: 0,
    };
    // A new column changes every file.
    let rewrite_all = old_columns != merged.columns;
    let mut entries: BTreeMap<u32, Vec<&SymbolEntry>> = BTreeMap::new();
    if let (Some(dataset), Some(manifest)) = (existing, old) {
        merged.times = dataset.times()?;
        // The groups that have bars there are written again, and add what is left.
        merged.times.retain(|time| !replaced.holds(*time));
        for entry in &manifest.symbols {
            if replaced.touches(entry.first_time, entry.last_time) {
                by_group.entry(entry.group).or_default();
            }
            entries.entry(entry.group).or_default().push(entry);
        }
        for group in dataset.tails().map(Tails::groups).into_iter().flatten() {
            by_group.entry(group).or_default();
        }
        for file in &manifest.files {
            if rewrite_all {
                by_group.entry(file.group).or_default();
            } else if !by_group.contains_key(&file.group) {
                let entries = entries.get(&file.group).into_iter().flatten();
                merged.files.push((file.clone(), entries.map(|entry| (*entry).clone()).collect()));
                merged.files_shared += 1;
            }
        }
    }
    let merging = Merging { sink, existing, old_columns: &old_columns, columns: &merged.columns, imported, replaced };
    let width = 1 + merged.columns.len() as u64;
    let mut stored = Vec::with_capacity(by_group.len());
    let mut waiting = by_group.into_iter().peekable();
    while waiting.peek().is_some() {
        // At least one, however large it is.
        let (mut wave, mut bytes) = (Vec::new(), 0);
        while let Some((group, new)) = waiting.next_if(|_| wave.is_empty() || bytes < memory) {
            let old = entries.remove(&group).unwrap_or_default();
            bytes += bytes_of(&old, &new, width);
            wave.push((group, old, new));
        }
        stored.extend(try_in_parallel(wave.len(), WRITERS * rayon::current_num_threads(), |at| {
            let (group, old, new) = &wave[at];
            merging.merge(*group, old, new)
        })?);
    }
    for group in stored.into_iter().flatten() {
        merged.times = unite(merged.times, &group.stored.times);
        if group.stored.new {
            merged.files_written += 1
        } else {
            merged.files_shared += 1
        }
        merged.files.push((group.stored.file, group.stored.symbols));
        merged.counts += group.counts;
        merged.jumps.extend(group.jumps);
    }
    merged.jumps.sort_by(|a, b| (&a.symbol, a.time).cmp(&(&b.symbol, b.time)));
    Ok(merged)
}

/// Rows of each symbol of a group, those of the dataset and those that come.
fn rows_of<'a>(old: &'a [&SymbolEntry], new: &'a [&ImportedSymbol]) -> impl Iterator<Item = u64> + 'a {
    old.iter().map(|entry| entry.rows).chain(new.iter().map(|symbol| symbol.bars as u64))
}

/// Bytes of memory that making a group takes: a batch of its rows as they are collected and encoded, and a symbol's rows as they are
/// read, in order, and merged.
fn bytes_of(old: &[&SymbolEntry], new: &[&ImportedSymbol], width: u64) -> u64 {
    let (all, largest) = (rows_of(old, new).sum::<u64>(), rows_of(old, new).max().unwrap_or(0));
    VALUE_BYTES * width * (2 * all.min(BATCH_ROWS_MAX as u64) + 4 * largest)
}

impl Merging<'_> {
    /// Merges a group symbol by symbol; `None` where no bar is left in it.
    fn merge(
        &self,
        group: u32,
        old: &[&SymbolEntry],
        new: &[&ImportedSymbol],
    ) -> Result<Option<MergedGroup>, MarketError> {
        let mut names: BTreeSet<&str> =
            old.iter().map(|entry| entry.symbol.as_str()).chain(new.iter().map(|symbol| &*symbol.name)).collect();
        let added: BTreeMap<&str, &ImportedSymbol> = new.iter().map(|symbol| (&*symbol.name, *symbol)).collect();
        let mut counts = MergeCounts::default();
        for entry in old.iter().filter(|entry| !added.contains_key(entry.symbol.as_str())) {
            if self.vanishes(entry)? {
                names.remove(entry.symbol.as_str());
                counts.removed += entry.rows;
            }
        }
        if names.is_empty() {
            return Ok(None);
        }
        let mut known = Known::of(self, group, old)?;
        let mut writer =
            GroupWriter::new(self.sink, group, self.columns, (names.iter().copied(), rows_of(old, new).sum()))?;
        let mut jumps = Vec::new();
        let close = self.columns.iter().position(|c| c == "close");
        for name in names {
            let before = known.take(self, name)?;
            let Some((added, imported)) = added.get(name).zip(self.imported) else {
                if let Some(before) = before {
                    writer.push(&self.kept(before, &mut counts))?;
                }
                continue;
            };
            let added = imported.load(added, self.columns)?;
            let since = added.times.first().copied().unwrap_or(TimeMicros::MIN);
            let united = match before {
                Some(before) => merge_bars(before, added, self.replaced, &mut counts),
                None => {
                    counts.added += added.times.len() as u64;
                    added
                }
            };
            if let Some(close) = close {
                jumps.extend(find_jumps(&united.symbol, &united.times, &united.columns[close], since));
            }
            writer.push(&united)?;
        }
        Ok(Some(MergedGroup { stored: writer.finish()?, counts, jumps }))
    }

    /// Whether all bars of a symbol that does not come again are replaced.
    fn vanishes(&self, entry: &SymbolEntry) -> Result<bool, MarketError> {
        let Some(existing) = self.existing else { return Ok(false) };
        if !(self.replaced.holds(entry.first_time) && self.replaced.holds(entry.last_time)) {
            return Ok(false);
        }
        let times = existing.load_symbol(&entry.symbol, &[])?.times;
        Ok(times.iter().all(|time| self.replaced.holds(*time)))
    }

    /// The bars of a symbol that does not come again, without those that are replaced.
    fn kept(&self, bars: SymbolBars, counts: &mut MergeCounts) -> SymbolBars {
        match (bars.times.first(), bars.times.last()) {
            (Some(&first), Some(&last)) if self.replaced.touches(first, last) => {}
            _ => return bars,
        }
        let columns = vec![Vec::new(); bars.columns.len()];
        let none = SymbolBars { symbol: Arc::clone(&bars.symbol), times: Vec::new(), columns };
        merge_bars(bars, none, self.replaced, counts)
    }
}

/// The bars that the dataset has of a group: all at once, or one symbol after the other where they are many.
enum Known<'a> {
    All(BTreeMap<Arc<str>, LoadedBars>),
    Each(&'a [&'a SymbolEntry]),
}

impl<'a> Known<'a> {
    fn of(merging: &Merging<'_>, group: u32, old: &'a [&'a SymbolEntry]) -> Result<Self, MarketError> {
        let rows: u64 = old.iter().map(|entry| entry.rows).sum();
        match merging.existing {
            Some(dataset) if rows <= BATCH_ROWS_MAX as u64 => {
                let bars = dataset.load_group(group, merging.old_columns)?;
                Ok(Self::All(bars.into_iter().map(|bars| (Arc::clone(&bars.symbol), bars)).collect()))
            }
            _ => Ok(Self::Each(old)),
        }
    }

    /// The bars of a symbol in the new columns.
    fn take(&mut self, merging: &Merging<'_>, symbol: &str) -> Result<Option<SymbolBars>, MarketError> {
        let loaded = match (self, merging.existing) {
            (Self::All(bars), _) => bars.remove(symbol),
            (Self::Each(old), Some(dataset)) if old.iter().any(|entry| entry.symbol == symbol) => {
                Some(dataset.load_symbol(symbol, merging.old_columns)?)
            }
            _ => None,
        };
        Ok(loaded.map(|loaded| {
            let mut bars = SymbolBars::from(loaded);
            let values = std::mem::take(&mut bars.columns);
            bars.columns = spread(values, merging.old_columns, merging.columns, bars.times.len());
            bars
        }))
    }
}

//! Puts the symbols of a snapshot together from its base and its appended bars.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use crate::arrow_file::{ColumnPlace, TIME};
use crate::error::MarketError;
use crate::group::group_of;
use crate::limits::{SYMBOLS_MAX, TAIL_INDEX_BYTES_MAX};
use crate::manifest::{Manifest, SymbolEntry, TailFile};
use crate::snapshot::{manifest_path, tail_index_path, unite};
use crate::tail::index::TailIndex;
use crate::time::TimeMicros;

/// The appended bars of an opened snapshot.
#[derive(Debug)]
pub(crate) struct Tails {
    /// The snapshot that was written whole.
    pub base: Arc<Manifest>,
    /// How many of each symbol's bars are in the base; by place among the snapshot's symbols.
    pub base_rows: Vec<u64>,
    /// The distinct times of all appended bars.
    pub times: Vec<TimeMicros>,
    /// In order.
    pub files: Vec<OpenTail>,
    /// Bytes of columns that are kept in memory, see [`OpenTail::held`].
    pub held_bytes: AtomicU64,
}

/// One file of appended bars, and which rows are whose.
#[derive(Debug)]
pub(crate) struct OpenTail {
    pub file: TailFile,
    /// The times, then the numeric columns.
    pub columns: Vec<ColumnPlace>,
    /// Ascending.
    pub groups: Vec<OpenGroup>,
    /// Columns of a small file as they are in it, once a group was read; by place among the columns.
    pub held: Vec<OnceLock<Vec<u8>>>,
}

/// The rows of one group.
#[derive(Debug)]
pub(crate) struct OpenGroup {
    pub group: u32,
    /// First row in the file.
    pub row: u64,
    pub rows: u64,
    /// Places among the snapshot's symbols, ascending, and how many rows each has: in the order of the rows.
    pub symbols: Vec<(u32, u64)>,
    /// Checksums by column, then by chunk.
    pub sums: Vec<u64>,
}

impl OpenTail {
    /// The rows of a group.
    pub fn group(&self, group: u32) -> Option<&OpenGroup> {
        self.groups.get(self.groups.binary_search_by_key(&group, |g| g.group).ok()?)
    }
}

impl Tails {
    /// The groups that have appended bars, ascending.
    pub fn groups(&self) -> Vec<u32> {
        let mut groups: Vec<u32> = self.files.iter().flat_map(|tail| tail.groups.iter().map(|g| g.group)).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }
}

/// Completes the manifest of a snapshot with appended bars: its files are those of the base, its symbols have all bars. `read`
/// gives the content of a file of the dataset, by its path and its sha256.
///
/// # Errors
/// Those of `read`; [`MarketError::Corrupt`] for an index that does not fit the bars before it.
pub(crate) fn open(
    stored: Manifest,
    base: Arc<Manifest>,
    read: impl Fn(&str, &str) -> Result<Vec<u8>, MarketError>,
) -> Result<(Manifest, Tails), MarketError> {
    let own = format!("{}/{}", stored.name, manifest_path(&stored.snapshot));
    let corrupt = |why: &str| MarketError::Corrupt { file: own.clone(), why: why.to_owned() };
    let fits = stored.timeframe == base.timeframe
        && (stored.groups, &stored.columns, &stored.times) == (base.groups, &base.columns, &base.times)
        && (stored.synthetic, &stored.origin) == (base.synthetic, &base.origin)
        && base.appended.is_none();
    if !fits {
        return Err(corrupt("its bars are not of the kind of those of its base"));
    }
    let mut table = Table::of(&base);
    let (mut files, mut times) = (Vec::new(), Vec::new());
    for file in stored.tails() {
        let relative = tail_index_path(&file.index);
        let shown = format!("{}/{relative}", stored.name);
        if file.index_bytes > TAIL_INDEX_BYTES_MAX {
            let (found, limit) = (file.index_bytes, TAIL_INDEX_BYTES_MAX);
            return Err(MarketError::Limit { what: format!("bytes of {shown}"), found, limit });
        }
        let bytes = read(&relative, &file.index)?;
        let corrupt = |why| MarketError::Corrupt { file: shown.clone(), why };
        let index = TailIndex::decode(&bytes, file).map_err(corrupt)?;
        if !index.columns.iter().map(|c| c.name.as_str()).eq([TIME].into_iter().chain(names(&stored.columns))) {
            return Err(corrupt("its columns are not those of the dataset".to_owned()));
        }
        times = unite(times, &index.times);
        files.push(table.add(index, file).map_err(|why| corrupt(why.to_owned()))?);
    }
    table.sort(&mut files);
    let entries = table.entries;
    let total = entries.iter().try_fold(0u64, |sum, entry| sum.checked_add(entry.rows));
    let first = entries.iter().map(|entry| entry.first_time).min();
    let last = entries.iter().map(|entry| entry.last_time).max();
    if (total, first, last) != (Some(stored.bars), Some(stored.first_time), Some(stored.last_time)) {
        return Err(corrupt("its number of bars, or its range of times, is wrong"));
    }
    let manifest = Manifest { files: base.files.clone(), symbols: entries, ..stored };
    let held_bytes = AtomicU64::new(0);
    Ok((manifest, Tails { base, base_rows: table.base_rows, times, files, held_bytes }))
}

fn names(columns: &[String]) -> impl Iterator<Item = &str> {
    columns.iter().map(String::as_str)
}

/// Symbols as they become known: those of the base, then those that were appended.
struct Table {
    entries: Vec<SymbolEntry>,
    base_rows: Vec<u64>,
    /// By group, then by name: places among the entries.
    members: Vec<Vec<u32>>,
    known: usize,
}

impl Table {
    fn of(base: &Manifest) -> Self {
        let mut members = vec![Vec::new(); base.groups as usize];
        for (place, entry) in (0u32..).zip(&base.symbols) {
            // Checked with the base: a group below their number.
            if let Some(group) = members.get_mut(entry.group as usize) {
                group.push(place);
            }
        }
        let base_rows = base.symbols.iter().map(|entry| entry.rows).collect();
        Self { entries: base.symbols.clone(), base_rows, members, known: base.symbols.len() }
    }

    /// Adds the bars of a file.
    fn add(&mut self, index: TailIndex, file: &TailFile) -> Result<OpenTail, &'static str> {
        let count = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        let mut groups = Vec::with_capacity(index.groups.len());
        for group in &index.groups {
            let members = self.members.get_mut(group.group as usize).ok_or("it has a group that the dataset lacks")?;
            let mut symbols = Vec::with_capacity(group.symbols.len());
            let mut at = 0;
            for added in &group.symbols {
                let name = index.name(added);
                // Both ascend by name.
                while members.get(at).is_some_and(|place| self.entries[*place as usize].symbol.as_str() < name) {
                    at += 1;
                }
                let known = members.get(at).copied().filter(|place| self.entries[*place as usize].symbol == name);
                let place = known.unwrap_or(self.entries.len() as u32);
                if let Some(entry) = known.and_then(|place| self.entries.get_mut(place as usize)) {
                    if added.first <= entry.last_time {
                        return Err("it has bars that are not later than those before");
                    }
                    entry.rows = entry.rows.checked_add(added.rows).ok_or("its row counts overflow")?;
                    entry.last_time = added.last;
                } else {
                    if group_of(name, count) != group.group || self.entries.len() >= SYMBOLS_MAX {
                        return Err("it has a symbol in the wrong group, or too many");
                    }
                    members.insert(at, place);
                    self.base_rows.push(0);
                    self.entries.push(SymbolEntry {
                        symbol: name.to_owned(),
                        group: group.group,
                        row_start: 0,
                        rows: added.rows,
                        first_time: added.first,
                        last_time: added.last,
                    });
                }
                symbols.push((place, added.rows));
                at += 1;
            }
            let (row, rows, sums) = (group.row, group.rows, group.sums.clone());
            groups.push(OpenGroup { group: group.group, row, rows, symbols, sums });
        }
        let held = index.columns.iter().map(|_| OnceLock::new()).collect();
        Ok(OpenTail { file: file.clone(), columns: index.columns, groups, held })
    }

    /// Puts the symbols in the order of their names, and their rows one after the other in each group.
    fn sort(&mut self, files: &mut [OpenTail]) {
        for members in &self.members {
            let mut row = 0u64;
            for place in members {
                let entry = &mut self.entries[*place as usize];
                entry.row_start = row;
                row = row.saturating_add(entry.rows);
            }
        }
        if self.entries.len() == self.known {
            return;
        }
        let mut order: Vec<u32> = (0..self.entries.len() as u32).collect();
        order.sort_by(|a, b| self.entries[*a as usize].symbol.cmp(&self.entries[*b as usize].symbol));
        let mut rank = vec![0u32; order.len()];
        for (at, place) in (0u32..).zip(&order) {
            rank[*place as usize] = at;
        }
        self.base_rows = order.iter().map(|place| self.base_rows[*place as usize]).collect();
        self.entries.sort_by(|a, b| a.symbol.cmp(&b.symbol));
        let groups = files.iter_mut().flat_map(|file| &mut file.groups);
        for (place, _) in groups.flat_map(|group| &mut group.symbols) {
            *place = rank[*place as usize];
        }
    }
}

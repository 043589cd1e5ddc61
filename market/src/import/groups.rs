//! Merges imported bars with those of a dataset, group by group; unchanged groups keep their files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rayon::prelude::*;

use crate::arrow_file::SymbolBars;
use crate::dataset::Dataset;
use crate::error::MarketError;
use crate::group::{group_of, groups_for};
use crate::jumps::{Jump, find_jumps};
use crate::limits::{COLUMNS_MAX, SYMBOLS_MAX};
use crate::manifest::{GroupFile, SymbolEntry};
use crate::merge::{MergeCounts, merge_bars};
use crate::reading::CORE;
use crate::snapshot::{Sink, StoredGroup, store_group, unite};
use crate::time::TimeMicros;

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

pub(super) struct Merged {
    pub(super) groups: u32,
    pub(super) columns: Vec<String>,
    pub(super) files: Vec<(GroupFile, Vec<SymbolEntry>)>,
    pub(super) times: Vec<TimeMicros>,
    pub(super) counts: MergeCounts,
    pub(super) jumps: Vec<Jump>,
    pub(super) files_written: u64,
    pub(super) files_shared: u64,
}

pub(super) struct MergedGroup {
    pub(super) stored: StoredGroup,
    pub(super) counts: MergeCounts,
    pub(super) jumps: Vec<Jump>,
}

/// Stores the groups that change, and reuses the files of those that do not.
pub(super) fn merge_into(
    sink: &Sink,
    existing: Option<&Dataset>,
    columns: Vec<String>,
    imported: BTreeMap<Arc<str>, SymbolBars>,
) -> Result<Merged, MarketError> {
    let old = existing.map(|d| &*d.manifest);
    let old_columns = old.map(|m| m.columns.clone()).unwrap_or_default();
    let all_columns = united_columns(old_columns.iter().chain(&columns))?;
    let known = |symbol: &str| old.is_some_and(|m| m.symbol(symbol).is_some());
    let symbols = old.map_or(0, |m| m.symbols.len()) + imported.keys().filter(|s| !known(s)).count();
    if symbols > SYMBOLS_MAX {
        let (found, limit) = (symbols as u64, SYMBOLS_MAX as u64);
        return Err(MarketError::Limit { what: "symbols of a dataset".to_owned(), found, limit });
    }
    let groups = old.map_or_else(|| groups_for(symbols), |m| m.groups);
    let mut by_group: BTreeMap<u32, Vec<SymbolBars>> = BTreeMap::new();
    for (symbol, mut bars) in imported {
        bars.columns = spread(bars.columns, &columns, &all_columns, bars.times.len());
        by_group.entry(group_of(&symbol, groups)).or_default().push(bars);
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
    if let (Some(dataset), Some(manifest)) = (existing, old) {
        merged.times = dataset.times()?;
        for file in &manifest.files {
            if rewrite_all {
                by_group.entry(file.group).or_default();
            } else if !by_group.contains_key(&file.group) {
                let entries = manifest.symbols.iter().filter(|s| s.group == file.group).cloned().collect();
                merged.files.push((file.clone(), entries));
                merged.files_shared += 1;
            }
        }
    }
    let columns = &merged.columns;
    let stored = by_group
        .into_par_iter()
        .map(|(group, new)| {
            let mut old = match existing {
                Some(dataset) => dataset.load_group(group, &old_columns)?.into_iter().map(SymbolBars::from).collect(),
                None => Vec::new(),
            };
            for bars in &mut old {
                let values = std::mem::take(&mut bars.columns);
                bars.columns = spread(values, &old_columns, columns, bars.times.len());
            }
            merge_group(sink, group, columns, old, new)
        })
        .collect::<Result<Vec<MergedGroup>, MarketError>>()?;
    for group in stored {
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

pub(super) fn merge_group(
    sink: &Sink,
    group: u32,
    columns: &[String],
    old: Vec<SymbolBars>,
    new: Vec<SymbolBars>,
) -> Result<MergedGroup, MarketError> {
    let mut bars: BTreeMap<Arc<str>, SymbolBars> = old.into_iter().map(|b| (Arc::clone(&b.symbol), b)).collect();
    let mut counts = MergeCounts::default();
    let mut jumps = Vec::new();
    let close = columns.iter().position(|c| c == "close");
    for added in new {
        let since = added.times.first().copied().unwrap_or(TimeMicros::MIN);
        let symbol = Arc::clone(&added.symbol);
        let united = match bars.remove(&symbol) {
            Some(known) => merge_bars(known, added, &mut counts),
            None => {
                counts.added += added.times.len() as u64;
                added
            }
        };
        if let Some(close) = close {
            jumps.extend(find_jumps(&united.symbol, &united.times, &united.columns[close], since));
        }
        bars.insert(symbol, united);
    }
    let bars: Vec<SymbolBars> = bars.into_values().collect();
    Ok(MergedGroup { stored: store_group(sink, group, columns, &bars)?, counts, jumps })
}

//! Merges files of appended bars, so that there are few: as soon as [`TAILS_MERGED`] files have one level, they become one of
//! the next. Each bar is written once for each level, and the levels are the logarithm of the appends.

use std::collections::BTreeMap;

use crate::arrow_file::SymbolBars;
use crate::dataset::Dataset;
use crate::error::MarketError;
use crate::limits::TAILS_MERGED;
use crate::manifest::TailFile;
use crate::snapshot::Sink;
use crate::tail::open::OpenTail;
use crate::tail::writer::TailWriter;

/// The number of files at the end that are to be merged now; 0 for none.
pub(crate) fn due(files: &[TailFile]) -> usize {
    let Some(last) = files.last() else { return 0 };
    let same = files.iter().rev().take_while(|file| file.level == last.level).count();
    if same >= TAILS_MERGED { same } else { 0 }
}

/// Writes the bars of the last `count` files of a snapshot as one file of the next level.
///
/// # Errors
/// Those of reading the files, and [`MarketError::Io`] for writing.
pub(crate) fn merge(dataset: &Dataset, sink: &Sink, count: usize) -> Result<TailFile, MarketError> {
    let manifest = &*dataset.manifest;
    let files: &[OpenTail] = dataset.tails().map_or(&[], |tails| &tails.files);
    let files = &files[files.len().saturating_sub(count)..];
    let level = files.iter().map(|tail| tail.file.level).max().unwrap_or(0) + 1;
    // Rows by group and symbol.
    let mut members: BTreeMap<u32, BTreeMap<u32, u64>> = BTreeMap::new();
    for group in files.iter().flat_map(|tail| &tail.groups) {
        let members = members.entry(group.group).or_default();
        for (place, rows) in &group.symbols {
            *members.entry(*place).or_default() += rows;
        }
    }
    let name = |place: &u32| manifest.symbols.get(*place as usize).map_or("", |entry| entry.symbol.as_str());
    let names = members.values().flat_map(|members| members.keys().map(name));
    let rows = members.values().flat_map(|members| members.values()).sum();
    let mut writer = TailWriter::new(sink, level, &manifest.columns, (names, rows))?;
    for (group, members) in &members {
        let places: Vec<u32> = members.keys().copied().collect();
        let added = dataset.added(files, *group, &manifest.columns, &places)?;
        for (at, place) in places.iter().enumerate() {
            let range = added.range(at);
            writer.push(
                *group,
                &SymbolBars {
                    symbol: name(place).into(),
                    times: added.times[range.clone()].to_vec(),
                    columns: added.values.iter().map(|values| values[range.clone()].to_vec()).collect(),
                },
            )?;
        }
    }
    Ok(writer.finish()?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(levels: &[u32]) -> Vec<TailFile> {
        let file = |level: &u32| TailFile {
            sha256: String::new(),
            bytes: 0,
            rows: 1,
            index: String::new(),
            index_bytes: 0,
            level: *level,
        };
        levels.iter().map(file).collect()
    }

    #[test]
    fn any_number_of_appends_leaves_few_files_and_writes_each_bar_once_for_each_level() {
        let mut levels = Vec::new();
        let (mut written, mut most) = (0u64, 0);
        let mut sizes: Vec<u64> = Vec::new();
        const APPENDS: u64 = 40_000;
        for _ in 0..APPENDS {
            levels.push(0);
            sizes.push(1);
            written += 1;
            loop {
                let count = due(&files(&levels));
                if count == 0 {
                    break;
                }
                let level = levels[levels.len() - 1] + 1;
                levels.truncate(levels.len() - count);
                levels.push(level);
                let size = sizes.drain(sizes.len() - count..).sum();
                sizes.push(size);
                written += size;
            }
            most = most.max(levels.len());
        }
        assert!(most < 4 * TAILS_MERGED, "{most} files");
        assert!(written <= 4 * APPENDS, "{written} bars written");
        assert_eq!(sizes.iter().sum::<u64>(), APPENDS);
    }
}

//! Importing CSV files: parse them all, merge them with what the dataset has, make one new snapshot.
//!
//! The order in which files are named never matters. A bar that is there already and comes again with other values is
//! revised: the new values win, except that a missing number never takes away a known one. Nothing is written before
//! every file has been read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;

use crate::arrow_file::SymbolBars;
use crate::bundled::is_bundled;
use crate::calendar::Calendar;
use crate::csv_file::{read_file, stem};
use crate::csv_header::{CORE, ImportFormat};
use crate::csv_rows::{CsvRules, DateOrderKey, OrderEvidence, ParsedCsv, SymbolRows, parse_csv};
use crate::dataset::Dataset;
use crate::error::MarketError;
use crate::group::{group_of, groups_for};
use crate::jumps::{Jump, find_jumps};
use crate::limits::{COLUMNS_MAX, IMPORT_FILES_MAX, IMPORT_ROWS_MAX, JUMPS_LISTED_MAX, SYMBOLS_MAX};
use crate::manifest::{GroupFile, SymbolEntry};
use crate::merge::{MergeCounts, combine_files, merge_bars};
use crate::name::{Timeframe, check_dataset_name};
use crate::quarantine::{QuarantinedRow, write_quarantine};
use crate::snapshot::{Heading, Sink, StoredGroup, WriteLock, assemble, publish, store_group, unite};
use crate::store::Store;
use crate::time::{DateOrder, TimeMicros};

/// What a manifest says about imported bars.
pub(crate) const ORIGIN_IMPORT: &str = "import";
const TIMEFRAME_DEFAULT: &str = "1d";

/// What to import and how to read it.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// A new dataset, or one that is added to.
    pub dataset: String,
    /// CSV files, plain or gzip.
    pub files: Vec<PathBuf>,
    /// How they spell bars.
    pub format: ImportFormat,
    /// Such as `1d`; `None` takes that of the dataset, `1d` for a new one.
    pub timeframe: Option<String>,
    /// (meaning, header): `("close", "price")` reads the close from the column `price`.
    pub map: Vec<(String, String)>,
    /// How dates such as `1/4/1999` are meant; `None` looks at all dates of the files.
    pub date_order: Option<DateOrder>,
}

/// What an import did. `rows_read = rows_kept + rows_quarantined` and `rows_kept = added + unchanged + revised`.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct ImportReport {
    /// Name.
    pub dataset: String,
    /// Id of the dataset's newest snapshot after the import.
    pub snapshot: String,
    /// The dataset is new.
    pub created: bool,
    /// The dataset held all this already; no snapshot was made.
    pub unchanged: bool,
    /// Length of a bar.
    pub timeframe: String,
    /// Number of input files.
    pub files: u64,
    /// Data rows in them.
    pub rows_read: u64,
    /// Good rows.
    pub rows_kept: u64,
    /// Bad rows.
    pub rows_quarantined: u64,
    /// Bad rows by reason.
    pub quarantined: BTreeMap<String, u64>,
    /// Where the bad rows are, relative to the data root.
    pub quarantine_file: Option<String>,
    /// Good rows that are new bars.
    pub rows_added: u64,
    /// Good rows that were there already.
    pub rows_unchanged: u64,
    /// Good rows that replaced other values.
    pub rows_revised: u64,
    /// Symbols in the input.
    pub symbols_imported: u64,
    /// Symbols in the snapshot.
    pub symbols: u64,
    /// Bars in the snapshot.
    pub bars: u64,
    /// Earliest bar in the snapshot.
    pub first_time: TimeMicros,
    /// Latest bar in the snapshot.
    pub last_time: TimeMicros,
    /// Columns of the snapshot.
    pub columns: Vec<String>,
    /// Headers whose columns hold no numbers, or that have no usable name.
    pub ignored_columns: Vec<String>,
    /// Number of jumps of the close by more than three times among the imported bars; none is removed.
    pub jumps: u64,
    /// The first of them, by symbol and time.
    pub jumps_listed: Vec<Jump>,
    /// Group files that were written.
    pub files_written: u64,
    /// Group files that the new snapshot shares with older ones.
    pub files_shared: u64,
    /// What was decided on the way and should be known.
    pub notes: Vec<String>,
}

/// Refuses names that no dataset of the user's may have.
pub(crate) fn check_writable_name(name: &str) -> Result<(), MarketError> {
    check_dataset_name(name)?;
    if is_bundled(name) {
        return Err(MarketError::Refused(format!(
            "dataset '{name}' is bundled and cannot be changed: choose another name"
        )));
    }
    Ok(())
}

struct InputFile<'a> {
    path: &'a Path,
    /// As the user named it.
    shown: String,
    file_name: String,
}

/// Imports CSV files as one new snapshot of `options.dataset`.
///
/// # Errors
/// [`MarketError::BadCsv`] for a file without a usable header or without a single good row,
/// [`MarketError::BadName`], [`MarketError::Refused`], [`MarketError::Limit`], [`MarketError::Busy`],
/// [`MarketError::Io`]; [`MarketError::Checksum`] and its like when the dataset that is added to is damaged.
/// Nothing is changed then.
pub fn import_files(store: &Store, options: &ImportOptions) -> Result<ImportReport, MarketError> {
    let name = &options.dataset;
    check_writable_name(name)?;
    let timeframe = choose_timeframe(store, options)?;
    let inputs = input_files(&options.files)?;
    let (parsed, mut notes) = parse_all(&inputs, options, timeframe)?;
    let rows_read: u64 = parsed.iter().map(|p| p.rows_read).sum();
    let ignored: BTreeSet<String> = parsed.iter().flat_map(|p| p.ignored.iter().cloned()).collect();
    let columns = united_columns(parsed.iter().flat_map(|p| &p.columns))?;
    let mut bad: Vec<QuarantinedRow> = Vec::new();
    let mut by_symbol: BTreeMap<Arc<str>, Vec<(usize, SymbolRows)>> = BTreeMap::new();
    for (file, one) in parsed.into_iter().enumerate() {
        let source = &inputs[file].file_name;
        bad.extend(one.bad.into_iter().map(|row| QuarantinedRow { file: source.clone(), row }));
        for (symbol, mut rows) in one.symbols {
            rows.bars.columns = spread(rows.bars.columns, &one.columns, &columns, rows.bars.times.len());
            by_symbol.entry(symbol).or_default().push((file, rows));
        }
    }
    let (imported, duplicates) = combine_files(by_symbol);
    for (file, bad_row) in reread_duplicates(&inputs, duplicates)? {
        bad.push(QuarantinedRow { file: inputs[file].file_name.clone(), row: bad_row });
    }
    bad.sort_by(|a, b| (&a.file, a.row.line, &a.row.row).cmp(&(&b.file, b.row.line, &b.row.row)));

    let directory = store.directory(name);
    let _lock = WriteLock::take(&directory, name)?;
    let existing = match store.head(name)? {
        Some(_) => Some(store.open(name)?),
        None => None,
    };
    if let Some(existing) = &existing {
        check_compatible(existing, timeframe)?;
    }
    let symbols_imported = imported.len() as u64;
    let sink = Sink::Directory { path: directory.clone(), name: name.clone() };
    let merged = merge_into(&sink, existing.as_ref(), columns, imported)?;
    let heading = Heading {
        name: name.clone(),
        timeframe: timeframe.to_string(),
        synthetic: false,
        origin: ORIGIN_IMPORT.to_owned(),
        groups: merged.groups,
        columns: merged.columns,
        calendar: Calendar::XNYS,
        complete_to: None,
        factors: None,
        symbol_table: None,
    };
    let manifest = assemble(&sink, heading, merged.files, merged.times)?;
    let quarantine_file = write_quarantine(&directory, name, &manifest.snapshot, &bad)?;
    let unchanged = existing.as_ref().is_some_and(|e| e.manifest.snapshot == manifest.snapshot);
    if !unchanged {
        publish(&directory, &manifest)?;
    }
    let mut quarantined: BTreeMap<String, u64> = BTreeMap::new();
    for row in &bad {
        *quarantined.entry(row.row.reason.text().to_owned()).or_default() += 1;
    }
    notes.sort();
    Ok(ImportReport {
        dataset: name.clone(),
        snapshot: manifest.snapshot,
        created: existing.is_none(),
        unchanged,
        timeframe: manifest.timeframe,
        files: inputs.len() as u64,
        rows_read,
        rows_kept: rows_read - bad.len() as u64,
        rows_quarantined: bad.len() as u64,
        quarantined,
        quarantine_file,
        rows_added: merged.counts.added,
        rows_unchanged: merged.counts.unchanged,
        rows_revised: merged.counts.revised,
        symbols_imported,
        symbols: manifest.symbols.len() as u64,
        bars: manifest.bars,
        first_time: manifest.first_time,
        last_time: manifest.last_time,
        columns: manifest.columns,
        ignored_columns: ignored.into_iter().collect(),
        jumps: merged.jumps.len() as u64,
        jumps_listed: merged.jumps.into_iter().take(JUMPS_LISTED_MAX).collect(),
        files_written: merged.files_written,
        files_shared: merged.files_shared,
        notes,
    })
}

/// The one asked for, else the dataset's, else `1d`. The manifest is looked at again under the lock.
fn choose_timeframe(store: &Store, options: &ImportOptions) -> Result<Timeframe, MarketError> {
    match &options.timeframe {
        Some(text) => text.parse(),
        None if store.head(&options.dataset)?.is_some() => store.open(&options.dataset)?.manifest.timeframe.parse(),
        None => TIMEFRAME_DEFAULT.parse(),
    }
}

fn check_compatible(existing: &Dataset, timeframe: Timeframe) -> Result<(), MarketError> {
    let manifest = &existing.manifest;
    if manifest.synthetic {
        let told = format!("dataset '{}' is synthetic: real bars are not mixed into it", manifest.name);
        return Err(MarketError::Refused(told));
    }
    if manifest.timeframe != timeframe.to_string() {
        return Err(MarketError::Refused(format!(
            "dataset '{}' holds bars of {}, so bars of {timeframe} cannot be added",
            manifest.name, manifest.timeframe
        )));
    }
    Ok(())
}

/// The files in an order of their own, so that the order in which they are named does not matter.
fn input_files(paths: &[PathBuf]) -> Result<Vec<InputFile<'_>>, MarketError> {
    if paths.is_empty() {
        return Err(MarketError::Refused("no file was given to import".to_owned()));
    }
    if paths.len() > IMPORT_FILES_MAX {
        let (found, limit) = (paths.len() as u64, IMPORT_FILES_MAX as u64);
        return Err(MarketError::Limit { what: "files of one import".to_owned(), found, limit });
    }
    let mut inputs = Vec::with_capacity(paths.len());
    for path in paths {
        let shown = path.display().to_string();
        let file_name = path.file_name().map(|n| n.to_string_lossy().into_owned()).ok_or_else(|| {
            let expected = "the path of a CSV file".to_owned();
            MarketError::BadCsv { file: shown.clone(), why: "it names no file".to_owned(), expected }
        })?;
        inputs.push(InputFile { path, shown, file_name });
    }
    inputs.sort_by(|a, b| (&a.file_name, a.path).cmp(&(&b.file_name, b.path)));
    Ok(inputs)
}

fn parse_all(
    inputs: &[InputFile<'_>],
    options: &ImportOptions,
    timeframe: Timeframe,
) -> Result<(Vec<ParsedCsv>, Vec<String>), MarketError> {
    let parse = |input: &InputFile<'_>, order| {
        let rules = CsvRules { format: options.format, map: &options.map, timeframe, order };
        let content = read_file(input.path, &input.shown)?;
        parse_csv(&input.shown, stem(&input.file_name), &content, rules)
    };
    let mut parsed = inputs.par_iter().map(|input| parse(input, options.date_order)).collect::<Result<Vec<_>, _>>()?;
    let mut notes = Vec::new();
    if options.date_order.is_none() {
        settle_date_order(inputs, &mut parsed, &mut notes, |input| parse(input, Some(DateOrder::DayFirst)))?;
    }
    for (input, one) in inputs.iter().zip(&parsed) {
        if one.symbols.is_empty() {
            let why = match one.bad.first() {
                None => "it has a header but no rows".to_owned(),
                Some(bad) => {
                    format!("none of its {} rows is usable (line {}: {})", one.rows_read, bad.line, bad.reason.text())
                }
            };
            let expected = "at least one good bar".to_owned();
            return Err(MarketError::BadCsv { file: input.shown.clone(), why, expected });
        }
    }
    let reversed = parsed.iter().filter(|p| p.newest_first).count();
    if reversed > 0 {
        notes.push(format!("{reversed} of {} files had their newest bar first and were turned round", inputs.len()));
    }
    let rows: u64 = parsed.iter().map(|p| p.rows_read).sum();
    if rows > IMPORT_ROWS_MAX {
        return Err(MarketError::Limit { what: "rows of one import".to_owned(), found: rows, limit: IMPORT_ROWS_MAX });
    }
    Ok((parsed, notes))
}

/// Files whose dates leave the order of day and month open follow those that tell it.
fn settle_date_order(
    inputs: &[InputFile<'_>],
    parsed: &mut [ParsedCsv],
    notes: &mut Vec<String>,
    parse_day_first: impl Fn(&InputFile<'_>) -> Result<ParsedCsv, MarketError>,
) -> Result<(), MarketError> {
    let find = |wanted: OrderEvidence| parsed.iter().position(|p| p.evidence == wanted);
    if let Some(mixed) = find(OrderEvidence::Mixed) {
        let file = &inputs[mixed].file_name;
        notes.push(format!("{file} has dates of both orders; day-first ones are in quarantine"));
    }
    let day = find(OrderEvidence::Told(DateOrderKey::DayFirst));
    let month = find(OrderEvidence::Told(DateOrderKey::MonthFirst));
    match (day, month, find(OrderEvidence::Silent)) {
        (Some(day), Some(month), Some(silent)) => Err(MarketError::Refused(format!(
            "{} has its dates day first, {} month first, and {} does not tell: say which order is meant",
            inputs[day].shown, inputs[month].shown, inputs[silent].shown
        ))),
        (Some(_), None, Some(_)) => {
            notes.push("dates such as 1/4/1999 were read day first".to_owned());
            for (input, one) in inputs.iter().zip(parsed.iter_mut()) {
                if one.evidence == OrderEvidence::Silent {
                    *one = parse_day_first(input)?;
                }
            }
            Ok(())
        }
        (Some(_), None, None) => {
            notes.push("dates such as 1/4/1999 were read day first".to_owned());
            Ok(())
        }
        (_, _, Some(_)) | (_, Some(_), _) => {
            notes.push("dates such as 1/4/1999 were read month first".to_owned());
            Ok(())
        }
        (None, None, None) => Ok(()),
    }
}

/// Core columns in their order, then the others by name.
fn united_columns<'a>(columns: impl Iterator<Item = &'a String>) -> Result<Vec<String>, MarketError> {
    let mut names: BTreeSet<&str> = columns.map(String::as_str).collect();
    let mut united: Vec<String> = CORE.iter().filter(|c| names.remove(**c)).map(|c| (*c).to_owned()).collect();
    united.extend(names.into_iter().map(str::to_owned));
    if united.len() > COLUMNS_MAX {
        let (found, limit) = (united.len() as u64, COLUMNS_MAX as u64);
        return Err(MarketError::Limit { what: "columns of a dataset".to_owned(), found, limit });
    }
    Ok(united)
}

/// Columns in another order; those that are not there hold NaN.
fn spread(mut values: Vec<Vec<f64>>, from: &[String], to: &[String], rows: usize) -> Vec<Vec<f64>> {
    let mut take = |column: &String| from.iter().position(|c| c == column).map(|i| std::mem::take(&mut values[i]));
    to.iter().map(|column| take(column).unwrap_or_else(|| vec![f64::NAN; rows])).collect()
}

/// Bars that another file gave before go to quarantine as they stand, so their files are read once more.
fn reread_duplicates(
    inputs: &[InputFile<'_>],
    duplicates: BTreeMap<usize, BTreeSet<u64>>,
) -> Result<Vec<(usize, crate::csv_rows::BadRow)>, MarketError> {
    let mut rows = Vec::new();
    for (file, lines) in duplicates {
        let content = read_file(inputs[file].path, &inputs[file].shown)?;
        let all: Vec<&[u8]> = content.split(|&c| c == b'\n').collect();
        for line in lines {
            // Counted from 1; gone if the file was cut short meanwhile.
            let found = usize::try_from(line - 1).ok().and_then(|i| all.get(i)).copied().unwrap_or_default();
            rows.push((file, crate::csv_rows::BadRow::duplicate(line, found)));
        }
    }
    Ok(rows)
}

struct Merged {
    groups: u32,
    columns: Vec<String>,
    files: Vec<(GroupFile, Vec<SymbolEntry>)>,
    times: Vec<TimeMicros>,
    counts: MergeCounts,
    jumps: Vec<Jump>,
    files_written: u64,
    files_shared: u64,
}

struct MergedGroup {
    stored: StoredGroup,
    counts: MergeCounts,
    jumps: Vec<Jump>,
}

/// Stores the groups that change, and takes over the files of those that do not.
fn merge_into(
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
                Some(dataset) => dataset.load_group(group, &old_columns)?,
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

fn merge_group(
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

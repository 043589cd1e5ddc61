//! Importing CSV files: parse them all, merge them with what the dataset has, make one new snapshot. Tables of symbols
//! and of splits and dividends come the same way, with bars or alone.
//!
//! The order in which files are named never matters. A bar that is there already and comes again with other values is
//! revised: the new values win, except that a missing number never takes away a known one. Nothing is written before
//! every file has been read.

mod closed;
mod groups;
mod inputs;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use self::closed::Closed;
use self::groups::{merge_into, spread, united_columns};
use self::inputs::{input_files, parse_all, reread_duplicates};
use self::tables::{NewTables, read_tables, store_tables};
use crate::bundled::is_bundled;
use crate::calendar::Calendar;
use crate::csv_header::ImportFormat;
use crate::csv_rows::SymbolRows;
use crate::dataset::{Dataset, Files};
use crate::error::MarketError;
use crate::jumps::Jump;
use crate::limits::JUMPS_LISTED_MAX;
use crate::merge::combine_files;
use crate::name::{Timeframe, check_dataset_name};
use crate::quarantine::{QuarantinedRow, write_quarantine};
use crate::snapshot::{Heading, Sink, WriteLock, assemble, publish};
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
    /// CSV files of bars, plain or gzip; none when only what is below is to change in a dataset that exists.
    pub files: Vec<PathBuf>,
    /// How they spell bars.
    pub format: ImportFormat,
    /// Such as `1d`; `None` takes that of the dataset, `1d` for a new one.
    pub timeframe: Option<String>,
    /// (meaning, header): `("close", "price")` reads the close from the column `price`.
    pub map: Vec<(String, String)>,
    /// How dates such as `1/4/1999` are meant; `None` looks at all dates of the files.
    pub date_order: Option<DateOrder>,
    /// Name of the exchange calendar; `None` keeps the dataset's, and is `XNYS` for a new one.
    pub calendar: Option<String>,
    /// Up to which instant the bars are complete; `None` means the end of the last bar (see [`import_files`]).
    pub complete_to: Option<TimeMicros>,
    /// The present: bars that end later are forming, unless `complete_to` says otherwise. `None`: none is too young.
    pub clock: Option<TimeMicros>,
    /// CSV file of splits and dividends, which is added to the dataset's table.
    pub factors: Option<PathBuf>,
    /// CSV file of names and labels, which replaces the dataset's table.
    pub symbols: Option<PathBuf>,
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
    /// Name of the exchange calendar.
    pub calendar: String,
    /// Up to which instant the snapshot is complete.
    pub complete_to: TimeMicros,
    /// Rows of the snapshot's table of symbols.
    pub symbol_rows: u64,
    /// Names of its labels.
    pub labels: Vec<String>,
    /// Splits and dividends in the snapshot.
    pub factors: u64,
    /// Number of jumps of the close among the imported bars, by more than three times or as by a split of a usual ratio,
    /// that no split of the dataset explains; none is removed.
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

/// Imports CSV files as one new snapshot of `options.dataset`.
///
/// Where `complete_to` is not said, the dataset's own is kept as long as none of the imported bars ends after it; else
/// the bars are taken to be complete to the end of the last one that ends no later than `clock`.
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
    if let Some(calendar) = &options.calendar {
        Calendar::named(calendar)?;
    }
    let new_tables = read_tables(options)?;
    let only_facts = new_tables.factors.is_some()
        || new_tables.listing.is_some()
        || options.calendar.is_some()
        || options.complete_to.is_some();
    if options.files.is_empty() && only_facts && store.head(name)?.is_none() {
        let told = format!("there is no dataset '{name}' yet: give files of bars too");
        return Err(MarketError::Refused(told));
    }
    let inputs = if options.files.is_empty() && only_facts { Vec::new() } else { input_files(&options.files)? };
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
    let old = existing.as_ref().map(|d| &*d.manifest);
    let calendar = match (&options.calendar, old) {
        (Some(named), _) => Calendar::named(named)?,
        (None, Some(old)) => old.calendar(),
        (None, None) => Calendar::XNYS,
    };
    let closed = Closed::of(imported.values().map(|b| b.times.as_slice()), options.clock, (calendar, timeframe));
    let sink = Sink::Directory { path: directory.clone(), name: name.clone() };
    let mut merged = merge_into(&sink, existing.as_ref(), columns, imported)?;
    let complete_to = closed.complete_to(options.complete_to, old);
    notes.extend(closed.note(options, calendar));
    let NewTables { factors, listing } = new_tables;
    let stored = store_tables(&sink, existing.as_ref(), factors, listing, &merged.columns)?;
    let heading = Heading {
        name: name.clone(),
        timeframe: timeframe.to_string(),
        synthetic: false,
        origin: ORIGIN_IMPORT.to_owned(),
        groups: merged.groups,
        columns: merged.columns,
        calendar,
        complete_to,
        factors: stored.factors,
        symbol_table: stored.symbol_table,
    };
    let manifest = assemble(&sink, heading, merged.files, merged.times)?;
    notes.extend(tables::notes(&directory, &manifest)?);
    let made = Dataset::new(Arc::new(manifest.clone()), Files::Directory(directory.clone()));
    made.retain_unadjusted(&mut merged.jumps)?;
    notes.extend(calendar.coverage_warning(timeframe, manifest.first_time, manifest.last_time));
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
        calendar: calendar.name().to_owned(),
        complete_to: manifest.complete_to(),
        symbol_rows: manifest.symbol_table.as_ref().map_or(0, |t| t.rows),
        labels: manifest.labels().to_vec(),
        factors: manifest.factors.as_ref().map_or(0, |t| t.rows),
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

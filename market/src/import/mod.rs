//! Importing files of bars: read them all, merge them with the dataset's bars, create one new snapshot. Tables of
//! symbols and of splits and dividends are imported the same way, with bars or alone.
//!
//! The order in which files are named does not matter. A bar that exists already and is imported again with other
//! values is revised: the new values win, except that a missing number never replaces a known one. Nothing is written
//! before every file has been read, except to files without a name, which hold the rows that do not fit into memory.
//!
//! Files are cut into pieces, which are parsed side by side (`reading`); their rows are collected by symbol (`spool`). Once all
//! are read, the meaning of their times is decided, the rows of each symbol are put in order (`imported`), and group after
//! group is merged with the dataset's and written.

mod append;
mod block;
mod closed;
mod fit;
pub(crate) mod groups;
mod imported;
mod inputs;
pub(crate) mod memory;
mod order;
mod prepare;
mod replaced;
mod run;
mod settle;
mod spool;
mod tables;
mod threads;
mod zones;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use self::append::Appending;
use self::append::append;
use self::closed::Closed;
use self::groups::merge_into;
pub use self::inputs::SkippedFile;
use self::memory::MemoryPlan;
pub(crate) use self::order::bars_of;
pub use self::prepare::{FileLayout, ImportPreview, PreviewBar, preview_files};
use self::prepare::{Prepared, by_reason, prepare};
pub(crate) use self::replaced::Spans;
pub(crate) use self::settle::Labels;
use self::settle::other_timeframe;
use self::tables::{read_tables, store_tables};
pub use self::zones::check_times_without_zone;
use trawl_terms::Timeframe;

use crate::as_of::AsOf;
use crate::bundled_names::is_bundled;
use crate::dataset::Dataset;
use crate::error::MarketError;
use crate::jumps::Jump;
use crate::limits::JUMPS_LISTED_MAX;
use crate::manifest::ORIGIN_IMPORT;
use crate::name::check_dataset_name;
use crate::quarantine::{quarantine_path, write_quarantine};
use crate::reading::ReadOptions;
use crate::reference::attribute_name;
use crate::snapshot::{CompactionLock, Heading, Sink, WriteLock, assemble};
use crate::sources::Arrivals;
use crate::store::Store;
use crate::time::{TimeMicros, now};
use crate::unfinished::sweep_unfinished;

/// What to import and how to read it.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// A new dataset, or an existing one to add to.
    pub dataset: String,
    /// Files of bars: delimited text, Parquet or Arrow, plain, gzip or in zip archives, `-` for standard input; empty
    /// to change only what is below in an existing dataset.
    pub files: Vec<PathBuf>,
    /// What messages call a file that is a copy; its path otherwise.
    pub shown: BTreeMap<PathBuf, String>,
    /// The files may still be on their way: each is waited for before it is read. They are no archives.
    pub arrivals: Option<Arc<dyn Arrivals>>,
    /// The names of the files begin with dates: bars of other dates on the exchange's clock are no bars.
    pub dated_files: bool,
    /// The names of the files begin with dates: the symbol of a bar is that which has its ticker on the date of its file
    /// ([`SymbolTable::symbol_of_ticker`]), by the table of symbols that is imported, else the dataset's.
    ///
    /// [`SymbolTable::symbol_of_ticker`]: crate::SymbolTable::symbol_of_ticker
    pub ticker_dates: bool,
    /// Dates on the exchange's clock, as midnights in UTC, whose bars in the dataset are replaced by those of the files: what does
    /// not come again is removed, of all symbols. For daily and shorter bars.
    pub replaced_dates: Vec<TimeMicros>,
    /// How to read the files.
    pub read: ReadOptions,
    /// Such as `1d`; `None` takes that of the dataset; for a new one it is inferred from the spacing of the bars.
    pub timeframe: Option<Timeframe>,
    /// Refuses the import for a file that cannot be read, which otherwise is left out and reported.
    pub strict: bool,
    /// Name of the exchange calendar; `None` keeps the dataset's; for a new one it is that of the files' format, or
    /// `XNYS`.
    pub calendar: Option<String>,
    /// The date (its end) or the time up to which the bars are complete, on the exchange's clock; `None` means the end of
    /// the last bar (see [`import_files`]).
    pub complete_to: Option<AsOf>,
    /// The current time: bars that end later are forming, unless `complete_to` is set. `None`: no bar is treated as
    /// forming.
    pub clock: Option<TimeMicros>,
    /// CSV file of splits and dividends, which are added to the dataset's table.
    pub factors: Option<PathBuf>,
    /// CSV file of names and labels, which replaces the dataset's table.
    pub symbols: Option<PathBuf>,
    /// CSV file of attributes of symbols, which are added to the dataset's table.
    pub attributes: Option<PathBuf>,
    /// Memory that the import may use, in bytes, within which rows that do not fit go to files in the data root; `None` takes
    /// half of what the machine has left. The result does not depend on it.
    pub memory: Option<u64>,
    /// Whether bars are appended to those of an existing dataset, or the groups that change are written again. The bars are the
    /// same, the snapshot's id is not.
    pub appending: Appending,
}

/// The result of an import. `rows_read = rows_kept + rows_quarantined` and `rows_kept = added + unchanged + revised`.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct ImportReport {
    /// Name.
    pub dataset: String,
    /// Id of the dataset's newest snapshot after the import.
    pub snapshot: String,
    /// The dataset is new.
    pub created: bool,
    /// The dataset had all this already; no snapshot was created.
    pub unchanged: bool,
    /// Length of a bar.
    pub timeframe: Timeframe,
    /// The timeframe was inferred from the bars.
    pub timeframe_inferred: bool,
    /// The zone of times without one; `None` where it was not given.
    pub zone: Option<String>,
    /// Number of input files by the format that they were recognised as: that of a vendor, else the kind of file.
    pub formats: BTreeMap<String, u64>,
    /// Number of input files.
    pub files: u64,
    /// Input files that were left out.
    pub skipped: Vec<SkippedFile>,
    /// How many bars lie outside the calendar's sessions, in words; `None` when all fit.
    pub fit: Option<String>,
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
    /// Good rows that existed already.
    pub rows_unchanged: u64,
    /// Good rows that replaced other values.
    pub rows_revised: u64,
    /// Bars of replaced dates that the dataset had, and that did not come again.
    #[serde(skip_serializing_if = "is_zero")]
    pub rows_removed: u64,
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
    /// Headers whose columns are not kept: they contain no numbers, have no usable name, or have no meaning in their
    /// format.
    pub ignored_columns: Vec<String>,
    /// Name of the exchange calendar.
    pub calendar: String,
    /// The instant up to which the snapshot is complete.
    pub complete_to: TimeMicros,
    /// Rows of the snapshot's table of symbols.
    pub symbol_rows: u64,
    /// Names of its labels.
    pub labels: Vec<String>,
    /// Names of attributes of symbols in the snapshot.
    pub attributes: Vec<String>,
    /// Splits and dividends in the snapshot.
    pub factors: u64,
    /// Number of jumps of the close among the imported bars, by more than a factor of three or by a usual split ratio,
    /// that the dataset's splits do not explain; none is removed.
    pub jumps: u64,
    /// The first of them, by symbol and time.
    pub jumps_listed: Vec<Jump>,
    /// Files of bars that were written: of groups, or of appended bars.
    pub files_written: u64,
    /// Files of bars that the new snapshot shares with older ones.
    pub files_shared: u64,
    /// Decisions made during the import that the user should know.
    pub notes: Vec<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Refuses names that a user's dataset may not have.
pub(crate) fn check_writable_name(name: &str) -> Result<(), MarketError> {
    check_dataset_name(name)?;
    if is_bundled(name) {
        return Err(MarketError::Refused(format!(
            "dataset '{name}' is bundled and cannot be changed: choose another name"
        )));
    }
    Ok(())
}

/// What an import holds while it writes.
struct Writing {
    sink: Sink,
    _lock: WriteLock,
}

impl Writing {
    /// Deletes what was written so far. A compaction that is running may use the same files, and keeps them.
    fn undo(&self, directory: &Path, name: &str) {
        if let Ok(_no_compaction) = CompactionLock::take(directory, name) {
            self.sink.undo();
        }
    }
}

/// Imports files of bars as one new snapshot of `options.dataset`. A file that cannot be read is left out and reported,
/// unless `strict` is set or none can be read.
///
/// Without `complete_to` the dataset's own is kept as long as none of the imported bars ends after it; otherwise the
/// bars are taken to be complete up to the end of the last one that ends no later than `clock`.
///
/// # Errors
/// [`MarketError::BadCsv`] for a file without a usable header or without a single good row,
/// [`MarketError::BadName`], [`MarketError::Refused`], [`MarketError::Limit`], [`MarketError::Busy`],
/// [`MarketError::Io`]; [`MarketError::Full`], and what was written by then is deleted; [`MarketError::Checksum`] and its like
/// when the existing dataset is damaged. Then nothing is changed.
pub fn import_files(store: &Store, options: &ImportOptions) -> Result<ImportReport, MarketError> {
    let mut writing = None;
    let imported = import_holding(store, options, &mut writing);
    if let (Err(MarketError::Full { .. }), Some(writing)) = (&imported, &writing) {
        writing.undo(&store.directory(&options.dataset), &options.dataset);
    }
    imported
}

/// The same; what it holds while it writes is left in `writing`.
fn import_holding(
    store: &Store,
    options: &ImportOptions,
    writing: &mut Option<Writing>,
) -> Result<ImportReport, MarketError> {
    let name = &options.dataset;
    check_writable_name(name)?;
    let new_tables = read_tables(options)?;
    let only_facts = new_tables.factors.is_some()
        || new_tables.listing.is_some()
        || new_tables.attributes.is_some()
        || options.calendar.is_some()
        || options.complete_to.is_some();
    if options.files.is_empty() && only_facts && store.head(name)?.is_none() {
        let message = format!("there is no dataset '{name}' yet: give files of bars too");
        return Err(MarketError::Refused(message));
    }
    if options.files.is_empty() && !only_facts {
        return Err(MarketError::Refused("no file was given to import".to_owned()));
    }
    let known = existing(store, name)?;
    let memory = MemoryPlan::of(options.memory);
    let prepared = prepare(store, options, &memory, (known.as_ref(), new_tables.listing.as_ref()))?;
    let Prepared { timeframe, calendar, columns, imported, bad, mut notes, .. } = prepared;

    let directory = store.directory(name);
    let lock = WriteLock::take(&directory, name)?;
    sweep_unfinished(&directory, name);
    // Looked up again under the lock.
    let newest = store.newest(name)?;
    let existing = match (known, &newest) {
        (Some(known), Some(newest)) if newest.snapshot == known.manifest.snapshot => Some(known),
        (_, Some(newest)) => Some(check_real(store.open(&format!("{name}@{}", newest.snapshot))?)?),
        (_, None) => self::existing(store, name)?,
    };
    if let Some(existing) = &existing {
        check_compatible(existing, timeframe)?;
    }
    let symbols_imported = imported.symbols.len() as u64;
    let old = existing.as_ref().map(|d| &*d.manifest);
    let requested = match &options.complete_to {
        Some(time) => Some(time.fixed(calendar, options.clock.unwrap_or_else(now))?),
        None => None,
    };
    let closed = Closed::of(&imported, options.clock, old, (calendar, timeframe))?;
    let sink = &writing.insert(Writing { sink: store.sink(name, existing.as_ref())?, _lock: lock }).sink;
    let replaced = Spans::of_dates(&options.replaced_dates, timeframe, calendar);
    let appended = match &existing {
        Some(existing) if replaced.is_empty() => {
            append(sink, existing, (&imported, &columns), options.appending, memory.groups())?
        }
        _ => None,
    };
    let complete_to = closed.complete_to(requested, old);
    notes.extend(closed.note(options, calendar));
    notes.extend(closed.open_note(options, old));
    let merged = match appended {
        Some(_) => None,
        None => Some(merge_into(sink, existing.as_ref(), &columns, (Some(&imported), &replaced), memory.groups())?),
    };
    let (groups, columns) = match (&merged, old) {
        (Some(merged), _) => (merged.groups, merged.columns.clone()),
        (None, old) => old.map_or((1, Vec::new()), |old| (old.groups, old.columns.clone())),
    };
    let stored = store_tables(sink, existing.as_ref(), new_tables, &columns)?;
    let heading = || Heading {
        name: name.clone(),
        timeframe,
        synthetic: false,
        origin: ORIGIN_IMPORT.to_owned(),
        groups,
        columns: columns.clone(),
        calendar,
        complete_to,
        factors: stored.factors.clone(),
        symbol_table: stored.symbol_table.clone(),
        attributes: stored.attributes.clone(),
    };
    let (made, counts, mut jumps, files_written, files_shared) = match (merged, appended, &existing) {
        (None, Some(bars), Some(existing)) => {
            let (made, written) = bars.snapshot(sink, existing, heading)?;
            let shared = made.manifest.files.len() + made.manifest.tails().len();
            (made, bars.counts, bars.jumps, written, (shared as u64).saturating_sub(written))
        }
        (Some(merged), ..) => {
            let manifest = assemble(sink, heading(), merged.files, merged.times)?;
            let files = sink.reads().ok_or_else(|| MarketError::Refused("bars are imported to files".to_owned()))?;
            let made = Dataset::new(Arc::new(manifest), files);
            (made, merged.counts, merged.jumps, merged.files_written, merged.files_shared)
        }
        // Groups are merged wherever nothing was appended.
        _ => return Err(MarketError::Refused("no bars were made".to_owned())),
    };
    let manifest = (*made.manifest).clone();
    notes.extend(tables::notes(&made)?);
    made.retain_unadjusted(&mut jumps)?;
    notes.extend(calendar.coverage_warning(timeframe, manifest.first_time, manifest.last_time));
    let quarantine_file = match bad.is_empty() {
        true => None,
        false => sink.add_to(&quarantine_path(&manifest.snapshot), |directory, name| {
            write_quarantine(directory, name, &manifest.snapshot, &bad)
        })?,
    };
    let unchanged = existing.as_ref().is_some_and(|e| e.manifest.snapshot == manifest.snapshot);
    // A snapshot that nothing names as the newest is named now.
    if !unchanged || newest.is_none() {
        sink.publish(&manifest, newest.as_ref())?;
    }
    notes.sort();
    Ok(ImportReport {
        dataset: name.clone(),
        calendar: calendar.name().to_owned(),
        complete_to: manifest.complete_to(),
        symbol_rows: manifest.symbol_table.as_ref().map_or(0, |t| t.rows),
        labels: manifest.labels().to_vec(),
        attributes: manifest.attributes().iter().map(|stored| attribute_name(stored).0.to_owned()).collect(),
        factors: manifest.factors.as_ref().map_or(0, |t| t.rows),
        snapshot: manifest.snapshot,
        created: existing.is_none(),
        unchanged,
        timeframe: manifest.timeframe,
        timeframe_inferred: prepared.inferred,
        zone: prepared.zone,
        formats: prepared.layouts.iter().fold(BTreeMap::new(), |mut formats, layout| {
            *formats.entry(layout.format.clone()).or_default() += layout.files;
            formats
        }),
        files: prepared.files,
        skipped: prepared.skipped,
        fit: prepared.fit,
        rows_read: prepared.rows_read,
        rows_kept: prepared.rows_read - bad.len() as u64,
        rows_quarantined: bad.len() as u64,
        quarantined: by_reason(&bad),
        quarantine_file,
        rows_added: counts.added,
        rows_unchanged: counts.unchanged,
        rows_revised: counts.revised,
        rows_removed: counts.removed,
        symbols_imported,
        symbols: manifest.symbols.len() as u64,
        bars: manifest.bars,
        first_time: manifest.first_time,
        last_time: manifest.last_time,
        columns: manifest.columns,
        ignored_columns: prepared.ignored.into_iter().collect(),
        jumps: jumps.len() as u64,
        jumps_listed: jumps.into_iter().take(JUMPS_LISTED_MAX).collect(),
        files_written,
        files_shared,
        notes,
    })
}

/// The existing dataset, if there is one.
fn existing(store: &Store, name: &str) -> Result<Option<Dataset>, MarketError> {
    store.open_for_import(name)?.map(check_real).transpose()
}

/// The dataset, if it can be imported into.
fn check_real(existing: Dataset) -> Result<Dataset, MarketError> {
    if existing.manifest.synthetic {
        let name = &existing.manifest.name;
        let message = format!("dataset '{name}' is synthetic: real bars cannot be added to it");
        return Err(MarketError::Refused(message));
    }
    Ok(existing)
}

/// Refuses what [`import_files`] would refuse of any bars of a timeframe: whoever fetches bars first need not do so in vain.
///
/// # Errors
/// [`MarketError::BadName`], [`MarketError::Refused`], and those of opening the dataset.
pub fn check_importable(store: &Store, name: &str, timeframe: Timeframe) -> Result<(), MarketError> {
    check_writable_name(name)?;
    existing(store, name)?.map_or(Ok(()), |existing| check_compatible(&existing, timeframe))
}

fn check_compatible(existing: &Dataset, timeframe: Timeframe) -> Result<(), MarketError> {
    let held = existing.manifest.timeframe;
    if held == timeframe {
        return Ok(());
    }
    let why = format!("bars of {timeframe} cannot be added");
    Err(other_timeframe(&existing.manifest.name, held, &why, timeframe))
}

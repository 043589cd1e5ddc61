//! The part of an import that writes nothing: files are read, their times interpreted, their bars merged. A preview
//! therefore shows exactly what an import does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::groups::united_columns;
use super::imported::{Imported, Settled};
use super::inputs::{ReadFile, SkippedFile, read_all, reread};
use super::memory::MemoryPlan;
use super::replaced::span_of_file;
use super::settle::{Labels, check_calendar, choose_timeframe};
use super::spool::RowSpool;
use super::tables::read_tables;
use super::zones::choose_zone;
use super::{ImportOptions, check_writable_name};
use crate::calendar::Calendar;
use crate::dataset::Dataset;
use crate::error::MarketError;
use crate::limits::{PREVIEW_BAD_ROWS_MAX, PREVIEW_BARS_MAX};
use crate::quarantine::{QuarantinedRow, Reason};
use crate::reading::{FileFacts, ImportFormat, map_symbol};
use crate::reference::{Listing, SymbolTable};
use crate::sources::expand;
use crate::store::Store;
use crate::time::TimeMicros;
use trawl_terms::Timeframe;

/// Files with the same columns.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct FileLayout {
    /// The recognised format.
    pub format: String,
    /// Column of the file and what it means.
    pub meanings: Vec<(String, String)>,
    /// Columns that are not kept.
    pub ignored: Vec<String>,
    /// Number of files.
    pub files: u64,
    /// The first of them.
    pub first_file: String,
}

/// A bar of a preview.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct PreviewBar {
    /// Whose.
    pub symbol: String,
    /// Label.
    pub time: TimeMicros,
    /// One for each column; `None` where missing.
    pub values: Vec<Option<f64>>,
}

/// What an import would do.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct ImportPreview {
    /// Name.
    pub dataset: String,
    /// The dataset does not exist yet.
    pub created: bool,
    /// Length of a bar.
    pub timeframe: Timeframe,
    /// The timeframe is inferred from the bars.
    pub timeframe_inferred: bool,
    /// Name of the exchange calendar.
    pub calendar: String,
    /// Zone of times without one, if there are such times.
    pub zone: Option<String>,
    /// How the files are interpreted.
    pub layouts: Vec<FileLayout>,
    /// Rows in the files.
    pub rows_read: u64,
    /// Bars in them.
    pub bars: u64,
    /// Symbols in them.
    pub symbols: u64,
    /// Columns of the bars.
    pub columns: Vec<String>,
    /// The first bars.
    pub first_bars: Vec<PreviewBar>,
    /// Rows that would be put into quarantine, by reason.
    pub quarantined: BTreeMap<String, u64>,
    /// The first of them: file, line, reason, row.
    pub bad_rows: Vec<(String, u64, String, String)>,
    /// Files that would be left out.
    pub skipped: Vec<SkippedFile>,
    /// How many bars are outside the calendar's sessions, in words.
    pub fit: Option<String>,
    /// Decisions that the user should know.
    pub notes: Vec<String>,
}

/// Bars that are ready to be merged.
pub(super) struct Prepared {
    pub timeframe: Timeframe,
    pub inferred: bool,
    pub calendar: Calendar,
    pub zone: Option<String>,
    pub fit: Option<String>,
    pub layouts: Vec<FileLayout>,
    pub columns: Vec<String>,
    pub imported: Imported,
    /// By file and line.
    pub bad: Vec<QuarantinedRow>,
    pub files: u64,
    pub rows_read: u64,
    pub ignored: BTreeSet<String>,
    pub skipped: Vec<SkippedFile>,
    pub notes: Vec<String>,
}

/// Groups of files with the same columns, in the order of the first file of each.
fn layouts<'a>(files: impl Iterator<Item = (&'a str, &'a FileFacts)>) -> Vec<FileLayout> {
    let mut layouts: Vec<FileLayout> = Vec::new();
    for (file, rows) in files {
        let format = if rows.format == ImportFormat::Csv { rows.kind.to_owned() } else { rows.format.to_string() };
        let same = |l: &&mut FileLayout| l.format == format && l.meanings == rows.meanings && l.ignored == rows.ignored;
        match layouts.iter_mut().find(same) {
            Some(layout) => layout.files += 1,
            None => layouts.push(FileLayout {
                format,
                meanings: rows.meanings.clone(),
                ignored: rows.ignored.clone(),
                files: 1,
                first_file: file.to_owned(),
            }),
        }
    }
    layouts
}

/// Share of rows with the time of another one from which a file without a column of symbols is taken to have several.
const JOINED_SHARE: f64 = 0.1;

/// A file of one symbol with columns that may name several.
struct Suspect {
    rows: u64,
    columns: Vec<String>,
}

impl Suspect {
    /// A symbol that the user takes from the file's name is not doubted.
    fn of(rows: &FileFacts, options: &ImportOptions) -> Option<Self> {
        let one = rows.symbol_heading.is_none() && options.read.symbol_from.is_none() && !rows.text_columns.is_empty();
        one.then(|| Self { rows: rows.rows_read, columns: rows.text_columns.clone() })
    }

    /// Refuses to join symbols: `doubled` rows have the time of another one, or come before it.
    fn check(&self, file: &str, doubled: usize) -> Result<(), MarketError> {
        if doubled as f64 <= JOINED_SHARE * self.rows as f64 {
            return Ok(());
        }
        let why = format!("{doubled} of its {} rows have the time of another row or are out of order", self.rows);
        let expected = format!("one row for each time, or {}", map_symbol(&self.columns));
        Err(MarketError::BadCsv { file: file.to_owned(), why, expected })
    }
}

/// The requested calendar, else the dataset's, else that of the files' format, else New York's.
fn choose_calendar(
    options: &ImportOptions,
    existing: Option<&Dataset>,
    files: &[ReadFile],
) -> Result<Calendar, MarketError> {
    let of_format: BTreeSet<Option<&str>> = files.iter().map(|file| file.facts.format.calendar()).collect();
    match (&options.calendar, existing, of_format.first()) {
        (Some(named), ..) => Calendar::named(named),
        (None, Some(existing), _) => Ok(existing.manifest.calendar()),
        (None, None, Some(Some(of_format))) => Calendar::named(of_format),
        (None, None, _) => Ok(Calendar::XNYS),
    }
}

/// Reads the files of an import; rows that do not fit into its memory go to files in the data root. Without files only
/// reference data of the dataset change. `listing`: the table of symbols that comes with them.
pub(super) fn prepare(
    store: &Store,
    options: &ImportOptions,
    memory: &MemoryPlan,
    (existing, listing): (Option<&Dataset>, Option<&Listing>),
) -> Result<Prepared, MarketError> {
    let inputs = expand(&options.files, &options.shown, options.arrivals.as_ref(), Some(&store.root))?;
    let spool = RowSpool::new(&store.root, memory.rows());
    let table = if options.ticker_dates { symbol_table(listing, existing)? } else { None };
    let read = read_all(&inputs, options, existing.is_some(), table.as_ref(), (&spool, memory))?;
    let (mut files, mut notes) = (read.files, read.notes);
    let rows = spool.finish(files.iter().enumerate().map(|(at, file)| (file.pass, at)));
    let calendar = choose_calendar(options, existing, &files)?;
    let chosen = choose_timeframe(&inputs, (&files, &rows), options, existing, calendar)?;
    let timeframe = chosen.timeframe;
    if chosen.by_date {
        notes.push(
            "one bar of each symbol: dates were taken for daily bars; --timeframe sets another length".to_owned(),
        );
    }
    let zone = match timeframe.is_dated() {
        true => options.read.zone,
        false => choose_zone((&files, &rows), options, calendar, existing, &mut notes)?,
    };
    let layouts = layouts(files.iter().map(|file| (inputs[file.at].shown.as_str(), &file.facts)));
    let rows_read: u64 = files.iter().map(|file| file.facts.rows_read).sum();
    let ignored: BTreeSet<String> = files.iter().flat_map(|file| file.facts.ignored.iter().cloned()).collect();
    let columns = united_columns(files.iter().flat_map(|file| &file.facts.columns))?;
    let mut bad = Vec::new();
    for file in &mut files {
        let name = &inputs[file.at].name;
        bad.extend(file.facts.bad.drain(..).map(|row| QuarantinedRow { file: name.clone(), row }));
    }
    let spans = match options.dated_files {
        true => files.iter().map(|file| span_of_file(&inputs[file.at].name, timeframe, calendar)).collect(),
        false => Vec::new(),
    };
    let Settled { imported, fit, late, unordered, turned } =
        Imported::settle(rows, &files, Labels { timeframe, zone, calendar }, spans)?;
    for (file, doubled) in unordered {
        if let Some(suspect) = Suspect::of(&files[file].facts, options) {
            suspect.check(&inputs[files[file].at].shown, doubled)?;
        }
    }
    if turned > 0 {
        notes.push(format!("{turned} of {} files had their newest bar first and were reversed", files.len()));
    }
    for (file, rows) in &late {
        let others = rows.iter().filter(|(_, reason)| *reason == Reason::OtherDate).count() as u64;
        check_date(&inputs[files[*file].at].shown, others, files[*file].facts.rows_kept)?;
    }
    let late = late.into_iter().map(|(file, rows)| (files[file].at, rows)).collect();
    for (file, row) in reread(&inputs, &options.read, late)? {
        bad.push(QuarantinedRow { file: inputs[file].name.clone(), row });
    }
    bad.sort_by(|a, b| (&a.file, a.row.line, &a.row.row).cmp(&(&b.file, b.row.line, &b.row.row)));
    check_calendar(&fit, options, existing)?;
    Ok(Prepared {
        timeframe,
        inferred: chosen.inferred,
        calendar,
        zone: zone.map(|zone| zone.name().to_owned()),
        fit: fit.note(),
        layouts,
        columns,
        imported,
        bad,
        files: inputs.len() as u64,
        rows_read,
        ignored,
        skipped: read.skipped,
        notes,
    })
}

/// Refuses a file none of whose bars is of the date in its name: it would replace the bars of that date with nothing.
fn check_date(file: &str, others: u64, bars: u64) -> Result<(), MarketError> {
    if others < bars {
        return Ok(());
    }
    let why = format!("none of its {bars} bars is of the date in its name");
    Err(MarketError::BadCsv { file: file.to_owned(), why, expected: "the bars of that date".to_owned() })
}

/// The table of symbols that the import brings, else the dataset's; `None` where there is none.
fn symbol_table(
    listing: Option<&Listing>,
    existing: Option<&Dataset>,
) -> Result<Option<Arc<SymbolTable>>, MarketError> {
    let symbols = existing.map(|dataset| dataset.manifest.symbols.iter().map(|entry| entry.symbol.as_str()));
    match (listing, existing) {
        (Some(listing), _) => Ok(Some(Arc::new(SymbolTable::new(listing.clone(), symbols.into_iter().flatten())))),
        (None, Some(dataset)) if dataset.manifest.symbol_table.is_some() => Ok(Some(dataset.symbol_table()?)),
        _ => Ok(None),
    }
}

/// Rows in quarantine by reason.
pub(super) fn by_reason(bad: &[QuarantinedRow]) -> BTreeMap<String, u64> {
    let mut quarantined: BTreeMap<String, u64> = BTreeMap::new();
    for row in bad {
        *quarantined.entry(row.row.reason.text().to_owned()).or_default() += 1;
    }
    quarantined
}

/// Reports what [`super::import_files`] would do, and writes nothing.
///
/// # Errors
/// Those of [`super::import_files`].
pub fn preview_files(store: &Store, options: &ImportOptions) -> Result<ImportPreview, MarketError> {
    check_writable_name(&options.dataset)?;
    let existing = super::existing(store, &options.dataset)?;
    let listing = read_tables(options)?.listing;
    let memory = MemoryPlan::of(options.memory);
    let mut prepared = prepare(store, options, &memory, (existing.as_ref(), listing.as_ref()))?;
    let mut first_bars = Vec::new();
    for symbol in &prepared.imported.symbols {
        if first_bars.len() == PREVIEW_BARS_MAX {
            break;
        }
        let bars = prepared.imported.load(symbol, &prepared.columns)?;
        for (row, &time) in bars.times.iter().enumerate().take(PREVIEW_BARS_MAX - first_bars.len()) {
            let value = |column: &Vec<f64>| Some(column[row]).filter(|v| !v.is_nan());
            let values = bars.columns.iter().map(value).collect();
            first_bars.push(PreviewBar { symbol: symbol.name.to_string(), time, values });
        }
    }
    prepared.notes.sort();
    let shown =
        |row: &QuarantinedRow| (row.file.clone(), row.row.line, row.row.reason.text().to_owned(), row.row.row.clone());
    Ok(ImportPreview {
        dataset: options.dataset.clone(),
        created: existing.is_none(),
        timeframe: prepared.timeframe,
        timeframe_inferred: prepared.inferred,
        calendar: prepared.calendar.name().to_owned(),
        zone: prepared.zone,
        layouts: prepared.layouts,
        rows_read: prepared.rows_read,
        bars: prepared.imported.bars(),
        symbols: prepared.imported.symbols.len() as u64,
        columns: prepared.columns,
        first_bars,
        quarantined: by_reason(&prepared.bad),
        bad_rows: prepared.bad.iter().take(PREVIEW_BAD_ROWS_MAX).map(shown).collect(),
        skipped: prepared.skipped,
        fit: prepared.fit,
        notes: prepared.notes,
    })
}

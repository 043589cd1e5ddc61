//! The part of an import that writes nothing: files are read, their times interpreted, their bars merged. A preview
//! therefore shows exactly what an import does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::fit::Fit;
use super::groups::{spread, united_columns};
use super::inputs::{SkippedFile, read_all, reread};
use super::settle::{Labels, check_calendar, choose_timeframe, label_all};
use super::zones::choose_zone;
use super::{ImportOptions, check_writable_name};
use crate::arrow_file::SymbolBars;
use crate::calendar::Calendar;
use crate::dataset::Dataset;
use crate::error::MarketError;
use crate::limits::{PREVIEW_BAD_ROWS_MAX, PREVIEW_BARS_MAX};
use crate::merge::{SymbolRows, combine_files};
use crate::quarantine::{QuarantinedRow, Reason};
use crate::reading::{Rows, map_symbol};
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
    pub imported: BTreeMap<Arc<str>, SymbolBars>,
    /// By file and line.
    pub bad: Vec<QuarantinedRow>,
    pub files: u64,
    pub rows_read: u64,
    pub ignored: BTreeSet<String>,
    pub skipped: Vec<SkippedFile>,
    pub notes: Vec<String>,
}

/// Groups of files with the same columns, in the order of the first file of each.
fn layouts<'a>(files: impl Iterator<Item = (&'a str, &'a Rows)>) -> Vec<FileLayout> {
    let mut layouts: Vec<FileLayout> = Vec::new();
    for (file, rows) in files {
        let format = rows.format.to_string();
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
    fn of(file: usize, rows: &Rows, options: &ImportOptions) -> Option<(usize, Self)> {
        let one = rows.symbol_heading.is_none() && options.read.symbol_from.is_none() && !rows.text_columns.is_empty();
        one.then(|| (file, Self { rows: rows.rows_read, columns: rows.text_columns.clone() }))
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
    files: &[(usize, Rows)],
) -> Result<Calendar, MarketError> {
    let of_format: BTreeSet<Option<&str>> = files.iter().map(|(_, rows)| rows.format.calendar()).collect();
    match (&options.calendar, existing, of_format.first()) {
        (Some(named), ..) => Calendar::named(named),
        (None, Some(existing), _) => Ok(existing.manifest.calendar()),
        (None, None, Some(Some(of_format))) => Calendar::named(of_format),
        (None, None, _) => Ok(Calendar::XNYS),
    }
}

/// Reads the files of an import. Without files only reference data of the dataset change.
pub(super) fn prepare(options: &ImportOptions, existing: Option<&Dataset>) -> Result<Prepared, MarketError> {
    let inputs = expand(&options.files)?;
    let read = read_all(&inputs, options, existing.is_some())?;
    let (files, mut notes) = (read.files, read.notes);
    let calendar = choose_calendar(options, existing, &files)?;
    let chosen = choose_timeframe(&inputs, &files, options, existing, calendar)?;
    let timeframe = chosen.timeframe;
    if chosen.by_date {
        notes.push(
            "one bar of each symbol: dates were taken for daily bars; --timeframe sets another length".to_owned(),
        );
    }
    let zone = match timeframe.is_dated() {
        true => options.read.zone,
        false => choose_zone(&files, options, calendar, existing, &mut notes)?,
    };
    let layouts = layouts(files.iter().map(|(at, rows)| (inputs[*at].shown.as_str(), rows)));
    let rows_read: u64 = files.iter().map(|(_, rows)| rows.rows_read).sum();
    let ignored: BTreeSet<String> = files.iter().flat_map(|(_, rows)| rows.ignored.iter().cloned()).collect();
    let columns = united_columns(files.iter().flat_map(|(_, rows)| &rows.columns))?;
    let (mut bad, mut files) = (Vec::new(), files);
    for (at, rows) in &mut files {
        let file = &inputs[*at].name;
        bad.extend(rows.bad.drain(..).map(|row| QuarantinedRow { file: file.clone(), row }));
    }
    let read_files = files.len();
    let suspects: BTreeMap<usize, Suspect> =
        files.iter().filter_map(|(at, rows)| Suspect::of(*at, rows, options)).collect();
    let mut late: BTreeMap<usize, Vec<(u64, Reason)>> = BTreeMap::new();
    let mut by_symbol: BTreeMap<Arc<str>, Vec<(usize, SymbolRows)>> = BTreeMap::new();
    let mut turned = 0;
    for (file, own, (symbols, unordered, reversed)) in label_all(files, Labels { timeframe, zone, calendar }) {
        turned += usize::from(reversed);
        if let Some(suspect) = suspects.get(&file) {
            suspect.check(&inputs[file].shown, unordered.len())?;
        }
        if !unordered.is_empty() {
            late.entry(file).or_default().extend(unordered);
        }
        for (symbol, mut rows) in symbols {
            rows.bars.columns = spread(rows.bars.columns, &own, &columns, rows.bars.times.len());
            by_symbol.entry(symbol).or_default().push((file, rows));
        }
    }
    if turned > 0 {
        notes.push(format!("{turned} of {read_files} files had their newest bar first and were reversed"));
    }
    let (imported, duplicates) = combine_files(by_symbol);
    for (file, lines) in duplicates {
        late.entry(file).or_default().extend(lines.into_iter().map(|line| (line, Reason::DuplicateTime)));
    }
    for (file, row) in reread(&inputs, &options.read, late)? {
        bad.push(QuarantinedRow { file: inputs[file].name.clone(), row });
    }
    bad.sort_by(|a, b| (&a.file, a.row.line, &a.row.row).cmp(&(&b.file, b.row.line, &b.row.row)));
    let fit = Fit::of(calendar, timeframe, &imported);
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
    let mut prepared = prepare(options, existing.as_ref())?;
    let mut first_bars = Vec::new();
    'bars: for (symbol, bars) in &prepared.imported {
        for (row, &time) in bars.times.iter().enumerate() {
            if first_bars.len() == PREVIEW_BARS_MAX {
                break 'bars;
            }
            let value = |column: &Vec<f64>| Some(column[row]).filter(|v| !v.is_nan());
            let values = bars.columns.iter().map(value).collect();
            first_bars.push(PreviewBar { symbol: symbol.to_string(), time, values });
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
        bars: prepared.imported.values().map(|b| b.times.len() as u64).sum(),
        symbols: prepared.imported.len() as u64,
        columns: prepared.columns,
        first_bars,
        quarantined: by_reason(&prepared.bad),
        bad_rows: prepared.bad.iter().take(PREVIEW_BAD_ROWS_MAX).map(shown).collect(),
        skipped: prepared.skipped,
        fit: prepared.fit,
        notes: prepared.notes,
    })
}

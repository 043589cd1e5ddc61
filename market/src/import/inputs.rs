//! The files of one import: in an order of their own, read in parallel, their dates understood together.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::ImportOptions;
use crate::csv_file::{read_file, stem};
use crate::csv_rows::{BadRow, CsvRules, DateOrderKey, OrderEvidence, ParsedCsv, parse_csv};
use crate::error::MarketError;
use crate::limits::{IMPORT_FILES_MAX, IMPORT_ROWS_MAX};
use crate::name::Timeframe;
use crate::time::DateOrder;

pub(super) struct InputFile<'a> {
    pub(super) path: &'a Path,
    /// As the user named it.
    pub(super) shown: String,
    pub(super) file_name: String,
}

/// The files in an order of their own, so that the order in which they are named does not matter.
pub(super) fn input_files(paths: &[PathBuf]) -> Result<Vec<InputFile<'_>>, MarketError> {
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

pub(super) fn parse_all(
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
pub(super) fn settle_date_order(
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

/// Bars that another file gave before go to quarantine as they stand, so their files are read once more.
pub(super) fn reread_duplicates(
    inputs: &[InputFile<'_>],
    duplicates: BTreeMap<usize, BTreeSet<u64>>,
) -> Result<Vec<(usize, BadRow)>, MarketError> {
    let mut rows = Vec::new();
    for (file, lines) in duplicates {
        let content = read_file(inputs[file].path, &inputs[file].shown)?;
        let all: Vec<&[u8]> = content.split(|&c| c == b'\n').collect();
        for line in lines {
            // Counted from 1; gone if the file was cut short meanwhile.
            let found = usize::try_from(line - 1).ok().and_then(|i| all.get(i)).copied().unwrap_or_default();
            rows.push((file, BadRow::duplicate(line, found)));
        }
    }
    Ok(rows)
}

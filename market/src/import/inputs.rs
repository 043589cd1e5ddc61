//! The files of one import: sorted, read in parallel, their dates interpreted together. A file that cannot be read is
//! left out and reported; it is an error only if no file can be read.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;

use super::ImportOptions;
use crate::error::MarketError;
use crate::limits::IMPORT_ROWS_MAX;
use crate::quarantine::{BadRow, Reason};
use crate::reading::{DateOrderKey, OrderEvidence, Policy, ReadOptions, Rows, read_rows};
use crate::sources::{Input, OpenOptions, open};
use crate::time::DateOrder;

/// A file that was left out.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SkippedFile {
    /// As the user named it.
    pub file: String,
    /// What is wrong with it.
    pub why: String,
}

/// The files that could be read: index of the input, and its rows.
pub(super) struct ReadFiles {
    pub files: Vec<(usize, Rows)>,
    pub skipped: Vec<SkippedFile>,
    pub notes: Vec<String>,
}

pub(super) fn read_all(inputs: &[Input], options: &ImportOptions) -> Result<ReadFiles, MarketError> {
    let read = |input: &Input, order: Option<DateOrder>| {
        let how = ReadOptions { date_order: order, ..options.read.clone() };
        let rows = read_rows(&input.shown, &input.name, input.content()?, &how, Policy::Quarantine)?;
        if rows.of.is_empty() {
            let why = match &rows.complaint {
                None => "it has a header but no rows".to_owned(),
                Some((_, complaint)) => format!("none of its {} rows is usable ({complaint})", rows.rows_read),
            };
            let expected = "at least one good bar".to_owned();
            return Err(MarketError::BadCsv { file: input.shown.clone(), why, expected });
        }
        Ok(rows)
    };
    let order = options.read.date_order;
    let all: Vec<Result<Rows, MarketError>> = inputs.par_iter().map(|input| read(input, order)).collect();
    let (mut files, mut skipped, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    let mut first = None;
    for (at, one) in all.into_iter().enumerate() {
        match one {
            Ok(rows) => files.push((at, rows)),
            Err(error) if options.strict => return Err(error),
            Err(error) => {
                let message = error_text(&error);
                let why = message.strip_prefix(&format!("{}: ", inputs[at].shown)).unwrap_or(&message).to_owned();
                skipped.push(SkippedFile { file: inputs[at].shown.clone(), why });
                first.get_or_insert(error);
            }
        }
    }
    if let (true, Some(error)) = (files.is_empty(), first) {
        return Err(error);
    }
    if order.is_none() {
        settle_date_order(inputs, &mut files, &mut notes, |input| read(input, Some(DateOrder::DayFirst)))?;
    }
    let commas = files.iter().filter(|(_, rows)| rows.decimal_comma).count();
    if commas > 0 {
        notes.push(format!("numbers of {commas} of {} files were read with a decimal comma", inputs.len()));
    }
    let rows: u64 = files.iter().map(|(_, rows)| rows.rows_read).sum();
    if rows > IMPORT_ROWS_MAX {
        return Err(MarketError::Limit { what: "rows of one import".to_owned(), found: rows, limit: IMPORT_ROWS_MAX });
    }
    Ok(ReadFiles { files, skipped, notes })
}

/// An error and its causes.
fn error_text(error: &MarketError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Files whose dates do not decide the order of day and month use the order of the files that do.
fn settle_date_order(
    inputs: &[Input],
    files: &mut [(usize, Rows)],
    notes: &mut Vec<String>,
    read_day_first: impl Fn(&Input) -> Result<Rows, MarketError>,
) -> Result<(), MarketError> {
    let find = |wanted: OrderEvidence| files.iter().find(|(_, rows)| rows.evidence == wanted).map(|(at, _)| *at);
    if let Some(mixed) = find(OrderEvidence::Mixed) {
        let file = &inputs[mixed].name;
        notes.push(format!("{file} has dates of both orders; day-first ones are in quarantine"));
    }
    let day = find(OrderEvidence::Decided(DateOrderKey::DayFirst));
    let month = find(OrderEvidence::Decided(DateOrderKey::MonthFirst));
    match (day, month, find(OrderEvidence::Silent)) {
        (Some(day), Some(month), Some(silent)) => Err(MarketError::Refused(format!(
            "{} has its dates day first, {} month first, and {} does not show which: name the order with --month-first or --day-first",
            inputs[day].shown, inputs[month].shown, inputs[silent].shown
        ))),
        (Some(_), None, Some(_)) => {
            notes.push("dates such as 1/4/1999 were read day first".to_owned());
            for (at, rows) in files.iter_mut().filter(|(_, rows)| rows.evidence == OrderEvidence::Silent) {
                *rows = read_day_first(&inputs[*at])?;
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

/// Rows that turned out not to be bars once the times of all files were known: their files are read again for the text
/// of these rows.
pub(super) fn reread(
    inputs: &[Input],
    options: &ReadOptions,
    late: BTreeMap<usize, BTreeSet<(u64, Reason)>>,
) -> Result<Vec<(usize, BadRow)>, MarketError> {
    let mut bad = Vec::new();
    for (file, rows) in late {
        let input = &inputs[file];
        let how = OpenOptions { format: options.format, columns: options.columns.as_deref() };
        let source = open(&input.shown, &input.name, input.content()?, how)?;
        let lines: Vec<u64> = rows.iter().map(|(line, _)| *line).collect();
        for ((line, reason), row) in rows.into_iter().zip(source.raw(&lines)?) {
            bad.push((file, BadRow { line, reason, row }));
        }
    }
    Ok(bad)
}

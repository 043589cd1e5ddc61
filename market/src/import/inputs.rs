//! The files of one import: sorted, read in parallel, their dates interpreted together. A file that cannot be read is
//! left out and reported; it is an error only if no file can be read.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::ImportOptions;
use crate::error::MarketError;
use crate::limits::IMPORT_ROWS_MAX;
use crate::quarantine::{BadRow, Reason};
use crate::reading::{DateOrderKey, LEAN_STORES, OrderEvidence, Policy, ReadOptions, RowBudget, Rows, read_rows};
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

/// Reads the files. `adds`: to a dataset that exists, whose earlier files are not known.
pub(super) fn read_all(inputs: &[Input], options: &ImportOptions, adds: bool) -> Result<ReadFiles, MarketError> {
    let budget = RowBudget::new(IMPORT_ROWS_MAX);
    let read = |input: &Input, order: Option<DateOrder>| {
        let how = ReadOptions { date_order: order, ..options.read.clone() };
        let rows = read_rows(&input.shown, &input.name, input.content()?, &how, Policy::Quarantine, &budget)?;
        if rows.of.is_empty() {
            budget.give_back(rows.rows_read);
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
    // That there are too many rows is no fault of the file that had the last of them.
    budget.check()?;
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
        settle_date_order(inputs, &mut files, &mut notes, adds, |input, rows| {
            budget.give_back(rows.rows_read);
            *rows = read(input, Some(DateOrder::DayFirst))?;
            Ok(())
        })?;
    }
    let commas = files.iter().filter(|(_, rows)| rows.decimal_comma).count();
    if commas > 0 {
        notes.push(format!("numbers of {commas} of {} files were read with a decimal comma", inputs.len()));
    }
    let scaled = files.iter().filter(|(_, rows)| rows.scaled).count();
    if scaled > 0 {
        notes.push(format!("prices of {scaled} of {} files were divided by 10,000, {LEAN_STORES}", inputs.len()));
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
    adds: bool,
    read_day_first: impl Fn(&Input, &mut Rows) -> Result<(), MarketError>,
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
                read_day_first(&inputs[*at], rows)?;
            }
            Ok(())
        }
        (Some(_), None, None) => {
            notes.push("dates such as 1/4/1999 were read day first".to_owned());
            Ok(())
        }
        (Some(day), Some(month), None) => {
            let (day, month) = (&inputs[day].name, &inputs[month].name);
            notes.push(format!(
                "dates such as 1/4/1999 were read as each file shows: day first in {day}, month first in {month}"
            ));
            Ok(())
        }
        (None, None, Some(silent)) if adds => {
            let date = files.iter().find(|(at, _)| *at == silent).map_or("", |(_, rows)| rows.open_date.as_str());
            Err(MarketError::Refused(format!(
                "{}: '{date}' may have its day or its month first, and no date of these files shows which; the dataset \
                 exists, and the order of its earlier files is not known: name it with --day-first or --month-first",
                inputs[silent].shown
            )))
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
    late: BTreeMap<usize, Vec<(u64, Reason)>>,
) -> Result<Vec<(usize, BadRow)>, MarketError> {
    let mut bad = Vec::new();
    for (file, mut rows) in late {
        // A line of a table of several symbols has several rows, and may come more than once.
        rows.sort_unstable();
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

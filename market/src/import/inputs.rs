//! The files of one import: sorted, read in parallel, their dates interpreted together. A file that cannot be read is
//! left out and reported; it is an error only if no file can be read.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ImportOptions;
use super::memory::MemoryPlan;
use super::replaced::date_of_file;
use super::spool::RowSpool;
use super::threads::in_parallel;
use crate::error::MarketError;
use crate::limits::IMPORT_ROWS_MAX;
use crate::quarantine::{BadRow, Reason};
use crate::reading::{
    DateOrderKey, FileFacts, LEAN_STORES, OrderEvidence, Policy, ReadOptions, RowBudget, Tickers, read_file, value_of,
};
use crate::reference::SymbolTable;
use crate::sources::{Input, OpenOptions, open};
use crate::time::{DateOrder, TimeMicros};

/// Meaning of a column that names symbols, and names of folders that do.
const SYMBOL: &str = "symbol";
const SYMBOL_KEYS: [&str; 2] = [SYMBOL, "ticker"];

/// A file that was left out.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SkippedFile {
    /// As the user named it.
    pub file: String,
    /// What is wrong with it.
    pub why: String,
}

/// A file that was read; its rows are in the spool.
pub(super) struct ReadFile {
    /// Index of the input.
    pub at: usize,
    pub facts: FileFacts,
    /// The first rows: a number for each symbol, local time, offset.
    pub head: Vec<(u32, TimeMicros, i32)>,
    /// Rows with a time without a zone.
    pub naive: u64,
    /// Which reading of the file it is.
    pub pass: u32,
}

/// The files that could be read.
pub(super) struct ReadFiles {
    pub files: Vec<ReadFile>,
    pub skipped: Vec<SkippedFile>,
    pub notes: Vec<String>,
}

/// Reads the files into the spool. `adds`: to a dataset that exists, whose earlier files are not known. With a table the symbols of files
/// with a date in their names are those that have the tickers then.
pub(super) fn read_all(
    inputs: &[Input],
    options: &ImportOptions,
    adds: bool,
    table: Option<&Arc<SymbolTable>>,
    (spool, memory): (&RowSpool, &MemoryPlan),
) -> Result<ReadFiles, MarketError> {
    let budget = RowBudget::new(IMPORT_ROWS_MAX);
    let readers = rayon::current_num_threads().min(inputs.len()).max(1);
    let pace = memory.pace(readers);
    let read = |at: usize, order: Option<DateOrder>| {
        let input = &inputs[at];
        let date = date_of_file(&input.name);
        let tickers = table.zip(date).map(|(table, date)| Tickers::on(table, date));
        let how = in_its_folder(input, ReadOptions { date_order: order, tickers, ..options.read.clone() });
        let mut rows = spool.file();
        let file = (&*input.shown, &*input.name, &input.content()?);
        let (facts, symbols) = read_file(file, &how, Policy::Quarantine, (&budget, pace), &mut rows)?;
        rows.ended(symbols);
        if facts.rows_kept == 0 {
            budget.give_back(facts.rows_read);
            let why = match &facts.complaint {
                None => "it has a header but no rows".to_owned(),
                Some((_, complaint)) => format!("none of its {} rows is usable ({complaint})", facts.rows_read),
            };
            let expected = "at least one good bar".to_owned();
            return Err(MarketError::BadCsv { file: input.shown.clone(), why, expected });
        }
        Ok(ReadFile { at, facts, head: rows.head, naive: rows.naive, pass: rows.pass })
    };
    let order = options.read.date_order;
    let all = in_parallel(inputs.len(), readers, |at| read(at, order));
    // That there are too many rows is no fault of the file that had the last of them.
    budget.check()?;
    let (mut files, mut skipped, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    let mut first = None;
    for (at, one) in all.into_iter().enumerate() {
        match one {
            Ok(file) => files.push(file),
            // That rows cannot be kept is no fault of the file either.
            Err(error @ (MarketError::Io { .. } | MarketError::Full { .. })) => return Err(error),
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
        settle_date_order(inputs, &mut files, &mut notes, adds, |file| {
            budget.give_back(file.facts.rows_read);
            *file = read(file.at, Some(DateOrder::DayFirst))?;
            Ok(())
        })?;
    }
    let commas = files.iter().filter(|file| file.facts.decimal_comma).count();
    if commas > 0 {
        notes.push(format!("numbers of {commas} of {} files were read with a decimal comma", inputs.len()));
    }
    let scaled = files.iter().filter(|file| file.facts.scaled).count();
    if scaled > 0 {
        notes.push(format!("prices of {scaled} of {} files were divided by 10,000, {LEAN_STORES}", inputs.len()));
    }
    Ok(ReadFiles { files, skipped, notes })
}

/// Meaning of folders such as `symbol=AAPL` above a file: the name of the folder's key is that of a column, or mapped to it. Whether a
/// date in the path is needed is decided when the file's columns are known.
fn in_its_folder(input: &Input, mut how: ReadOptions) -> ReadOptions {
    let partitions = input.partitions();
    let value = |key: &str| value_of(&partitions, key).map(str::to_owned);
    let mapped = how.map.iter().position(|(meaning, _)| meaning == SYMBOL);
    let found = match mapped {
        Some(at) => value(&how.map[at].1),
        None => SYMBOL_KEYS.iter().find_map(|key| value(key)),
    };
    if let (Some(_), Some(at)) = (&found, mapped) {
        how.map.remove(at);
    }
    ReadOptions { symbol: found.or(how.symbol), partitions, ..how }
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
    files: &mut [ReadFile],
    notes: &mut Vec<String>,
    adds: bool,
    read_day_first: impl Fn(&mut ReadFile) -> Result<(), MarketError>,
) -> Result<(), MarketError> {
    let find = |wanted: OrderEvidence| files.iter().find(|file| file.facts.evidence == wanted).map(|file| file.at);
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
            for file in files.iter_mut().filter(|file| file.facts.evidence == OrderEvidence::Silent) {
                read_day_first(file)?;
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
            let date = files.iter().find(|file| file.at == silent).map_or("", |file| file.facts.open_date.as_str());
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
        let options = &in_its_folder(input, options.clone());
        let how = OpenOptions { format: options.format, columns: options.columns.as_deref() };
        let source = open(&input.shown, &input.name, input.content()?, how)?;
        let lines: Vec<u64> = rows.iter().map(|(line, _)| *line).collect();
        for ((line, reason), row) in rows.into_iter().zip(source.raw(&lines)?) {
            bad.push((file, BadRow { line, reason, row }));
        }
    }
    Ok(bad)
}

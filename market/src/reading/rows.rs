//! The rows of one file: values as numbers, times as written, and the rows that cannot be bars with their reasons.
//! Whether a row is a duplicate or out of order is not checked here: the meaning of its time is decided later.

mod classify;
mod times;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use super::ReadOptions;
use super::bar_check::check_bar;
use super::bind::{Binding, CORE, bind};
use super::budget::RowBudget;
use super::cells::{Cells, NAIVE, TimeCells};
use super::date_order::{DateEvidence, OrderEvidence};
use super::number::{Cell, likely_cause};
use super::presets::ImportFormat;
use super::spacing::Spacing;
use crate::error::MarketError;
use crate::limits::CLASSIFY_ROWS;
use crate::name::is_symbol;
use crate::quarantine::{BadRow, Reason};
use crate::sources::{BarSource, Batch, OpenOptions, open};
use crate::time::{DateOrder, SECOND, TimeMicros};

/// Local time of a row whose time could not be read.
pub(crate) const UNREAD: TimeMicros = TimeMicros::MIN;
/// Characters of a bad cell that are shown.
const CELL_SHOWN_CHARS: usize = 40;
/// Prices of LEAN are multiplied by ten thousand.
const LEAN_SCALE: f64 = 10_000.0;
/// The name of an input without a name.
const UNNAMED: &str = "-";

/// What to do with a row that cannot be a bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// It is left out and reported.
    Quarantine,
    /// Every row is kept as it is: NA where a cell is missing or not a number, and times as written.
    Keep,
}

/// A parsed file. The vectors by row have one entry for each row that was kept, in the file's order.
#[derive(Debug, Clone)]
pub(crate) struct Rows {
    pub format: ImportFormat,
    /// Column of the file and what it means, in the file's order.
    pub meanings: Vec<(String, String)>,
    /// Headers of the time and of the symbols.
    pub time_heading: String,
    pub symbol_heading: Option<String>,
    /// Core columns first, then the others by name.
    pub columns: Vec<String>,
    pub symbols: Vec<Arc<str>>,
    /// By row: index into the symbols.
    pub of: Vec<u32>,
    /// By row: the local time as written, in microseconds.
    pub local: Vec<TimeMicros>,
    /// By row: seconds that the local time is ahead of UTC, [`NAIVE`] where no zone is written.
    pub offset: Vec<i32>,
    /// By row.
    pub lines: Vec<u64>,
    /// By column, then by row; NaN where missing.
    pub values: Vec<Vec<f64>>,
    pub rows_read: u64,
    /// By line.
    pub bad: Vec<BadRow>,
    /// What is wrong with the first of them.
    pub complaint: Option<(u64, String)>,
    /// Headers whose columns are not kept.
    pub ignored: Vec<String>,
    /// Those of them that hold text; one of them may name the symbols.
    pub text_columns: Vec<String>,
    pub evidence: OrderEvidence,
    /// The first date whose order is ambiguous.
    pub open_date: String,
    pub spacing: Spacing,
    pub decimal_comma: bool,
    /// Prices were divided by LEAN's factor.
    pub scaled: bool,
    /// With [`Policy::Keep`], by row: the time as written; its `local` is [`UNREAD`] when it is not a time.
    pub texts: Vec<String>,
    /// With [`Policy::Keep`], by column: a message about the first cell that is not a number.
    pub garbage: Vec<Option<String>>,
}

/// Reads `content`, the decompressed bytes of a file; `shown` is its name in messages, `name` is its name without
/// folders. The rows that it returns are counted in the budget.
pub(crate) fn read_rows(
    shown: &str,
    name: &str,
    content: Vec<u8>,
    options: &ReadOptions,
    policy: Policy,
    budget: &RowBudget,
) -> Result<Rows, MarketError> {
    let how = OpenOptions { format: options.format, columns: options.columns.as_deref() };
    let mut source = open(shown, name, content, how)?;
    let mut reader = Reader::new(shown, name, &*source, options, policy)?;
    source.want(reader.wanted(source.columns().len()));
    loop {
        budget.give_back(reader.begin());
        let ended = reader.read(&mut *source, budget).inspect_err(|_| budget.give_back(reader.rows.rows_read))?;
        // Both orders of day and month occur: the usual one is used, and rows in the other one are bad.
        if ended && !(reader.order == DateOrder::DayFirst && reader.switches && reader.evidence.has_month_first()) {
            break;
        }
        reader.order = if ended { DateOrder::MonthFirst } else { DateOrder::DayFirst };
        reader.switches = !ended;
        source.rewind();
    }
    reader.finish(&*source)
}

/// Why a row failed, and which column's cell caused it.
type Fault = (Reason, Option<usize>);

struct Reader<'a> {
    shown: &'a str,
    options: &'a ReadOptions,
    policy: Policy,
    format: ImportFormat,
    headers: Vec<String>,
    binding: Binding,
    /// Place of each core column among the values.
    core: [Option<usize>; 5],
    /// The symbol of a file that has no column of them.
    stem: Option<Arc<str>>,
    /// The symbol in the file's name, if it can be one.
    named: Option<String>,
    /// Some time of day was seen in the column that holds them.
    has_clock: bool,
    midnight: Option<TimeMicros>,
    order: DateOrder,
    /// The order was changed to day first while reading.
    switches: bool,
    evidence: DateEvidence,
    comma: bool,
    scale: f64,
    /// The columns have been classified.
    classified: bool,
    known: HashMap<Arc<str>, u32>,
    last: Vec<TimeMicros>,
    faults: Vec<(u64, Reason)>,
    rows: Rows,
}

impl<'a> Reader<'a> {
    fn new(
        shown: &'a str,
        name: &str,
        source: &dyn BarSource,
        options: &'a ReadOptions,
        policy: Policy,
    ) -> Result<Self, MarketError> {
        let format = source.format();
        let headers: Vec<String> = source.columns().iter().map(|h| h.trim().to_owned()).collect();
        let plain: Vec<&str> = headers.iter().map(String::as_str).collect();
        let mut binding = bind(shown, &plain, format, &options.map, policy == Policy::Keep)?;
        let bad = |why: String, expected: &str| MarketError::BadCsv {
            file: shown.to_owned(),
            why,
            expected: expected.to_owned(),
        };
        let mut stem = None;
        let named = Some(format.symbol_of(name)).filter(|symbol| name != UNNAMED && is_symbol(symbol));
        if let Some(pattern) = &options.symbol_from {
            let Some(symbol) = pattern.find(name).filter(|s| is_symbol(s)) else {
                let why = format!("the pattern '{pattern}' finds no symbol in its name");
                return Err(bad(why, "a pattern with a group around the symbol, such as 'hist_(.*)\\.csv'"));
            };
            binding.symbol = None;
            stem = Some(symbol.to_owned());
        } else if binding.symbol.is_none() {
            let symbol = format.symbol_of(name);
            if policy == Policy::Quarantine && name == UNNAMED {
                let why = "it has neither a name nor a column of symbols".to_owned();
                return Err(bad(why, "a column symbol or ticker, or --map symbol=COLUMN"));
            }
            if policy == Policy::Quarantine && !is_symbol(&symbol) {
                let why = "its name cannot be a symbol and it has no column of symbols".to_owned();
                return Err(bad(why, "a file named after its symbol, --symbol-from, or --map symbol=COLUMN"));
            }
            stem = Some(symbol);
        }
        let columns: Vec<String> = binding.values.iter().map(|(_, name)| name.clone()).collect();
        let heading = |cell: usize| headers[cell].clone();
        let rows = Rows {
            format,
            meanings: Vec::new(),
            time_heading: heading(binding.time),
            symbol_heading: binding.symbol.map(heading),
            garbage: vec![None; columns.len()],
            values: vec![Vec::new(); columns.len()],
            columns,
            symbols: Vec::new(),
            of: Vec::new(),
            local: Vec::new(),
            offset: Vec::new(),
            lines: Vec::new(),
            rows_read: 0,
            bad: Vec::new(),
            complaint: None,
            ignored: std::mem::take(&mut binding.ignored),
            text_columns: Vec::new(),
            evidence: OrderEvidence::NotNeeded,
            open_date: String::new(),
            spacing: Spacing::default(),
            decimal_comma: false,
            scaled: false,
            texts: Vec::new(),
        };
        Ok(Self {
            shown,
            options,
            policy,
            format,
            core: CORE.map(|core| rows.columns.iter().position(|c| c == core)),
            stem: stem.map(Into::into),
            named,
            has_clock: false,
            midnight: format.midnight(name),
            order: options.date_order.unwrap_or(DateOrder::MonthFirst),
            switches: false,
            evidence: DateEvidence::default(),
            comma: false,
            scale: 1.0,
            classified: false,
            known: HashMap::new(),
            last: Vec::new(),
            faults: Vec::new(),
            headers,
            binding,
            rows,
        })
    }

    /// Which columns of the source are read.
    fn wanted(&self, width: usize) -> Vec<bool> {
        let binding = &self.binding;
        let named = [Some(binding.time), binding.clock, binding.symbol];
        let used = |i: usize| named.contains(&Some(i)) || binding.values.iter().any(|(cell, _)| *cell == i);
        (0..width).map(used).collect()
    }

    /// Discards the rows of an earlier attempt, and returns their number.
    fn begin(&mut self) -> u64 {
        let rows = &mut self.rows;
        let discarded = rows.rows_read;
        rows.values.iter_mut().for_each(Vec::clear);
        rows.garbage.iter_mut().for_each(|g| *g = None);
        (rows.rows_read, rows.complaint, rows.spacing) = (0, None, Spacing::default());
        rows.symbols.clear();
        rows.of.clear();
        rows.local.clear();
        rows.offset.clear();
        rows.lines.clear();
        rows.texts.clear();
        self.known.clear();
        self.last.clear();
        self.faults.clear();
        discarded
    }

    /// Reads to the end; false when the dates turn out to be day first, and everything has to be read again.
    fn read(&mut self, source: &mut dyn BarSource, budget: &RowBudget) -> Result<bool, MarketError> {
        let mut values = Vec::new();
        while let Some(batch) = source.next_batch()? {
            let Batch { rows: batch, lines, broken } = batch;
            let read = (lines.len() + broken.len()) as u64;
            self.rows.rows_read += read;
            budget.take(read)?;
            let arrays = batch.columns();
            if !self.classified {
                self.classify(arrays, source.decimal_comma_likely())?;
            }
            let time = TimeCells::new(&arrays[self.binding.time]).map_err(|zone| {
                let why = format!("its column '{}' has the unknown zone '{zone}'", self.rows.time_heading);
                let expected = "an IANA zone, such as America/New_York".to_owned();
                MarketError::BadCsv { file: self.shown.to_owned(), why, expected }
            })?;
            let columns: Vec<Cells<'_>> = arrays.iter().map(Cells::new).collect();
            for (reason, line) in broken.iter().map(|(line, reason)| (*reason, *line)) {
                if self.policy == Policy::Keep {
                    return Err(self.refused(format!("line {line}: {}", reason.text())));
                }
                self.fault(line, (reason, None), &columns, 0);
            }
            for (row, &line) in lines.iter().enumerate() {
                if (row < CLASSIFY_ROWS || self.evidence.open) && self.options.date_order.is_none() {
                    self.evidence.look(&columns[self.binding.time], row);
                    if self.evidence.is_day_first() && self.order == DateOrder::MonthFirst && !self.switches {
                        self.switches = true;
                        return Ok(false);
                    }
                }
                if let Err(fault) = self.read_row(line, row, &columns, &time, &mut values) {
                    if self.policy == Policy::Keep {
                        let why = self.message(line, fault, &columns, row);
                        return Err(self.refused(why));
                    }
                    self.fault(line, fault, &columns, row);
                }
            }
        }
        Ok(true)
    }

    fn refused(&self, why: String) -> MarketError {
        let expected = "rows that are all of one shape".to_owned();
        MarketError::BadCsv { file: self.shown.to_owned(), why, expected }
    }

    fn fault(&mut self, line: u64, fault: Fault, columns: &[Cells<'_>], row: usize) {
        // Broken rows of a batch come before those with cells.
        if self.rows.complaint.as_ref().is_none_or(|(known, _)| line < *known) {
            self.rows.complaint = Some((line, self.message(line, fault, columns, row)));
        }
        self.faults.push((line, fault.0));
    }

    /// A message about a bad cell: its line, its column, its content, the probable cause.
    fn message(&self, line: u64, (reason, cell): Fault, columns: &[Cells<'_>], row: usize) -> String {
        let Some(cell) = cell else { return format!("line {line}: {}", reason.text()) };
        let text: String = columns[cell].text(row).chars().take(CELL_SHOWN_CHARS).collect();
        let cause = if reason == Reason::NotANumber { likely_cause(&text) } else { "" };
        format!(
            "line {line}, column '{}': '{text}' is {}{cause}",
            self.headers[cell],
            match reason {
                Reason::NotANumber => "not a number",
                Reason::BadTime => "not a date or time in a known form, such as 2024-06-21 or 2024-06-21 09:30:00",
                Reason::BadSymbol => "not a symbol",
                Reason::EmptyCell => "empty",
                Reason::PriceNotPositive => "not a price above zero",
                other => other.text(),
            }
        )
    }

    fn read_row(
        &mut self,
        line: u64,
        row: usize,
        columns: &[Cells<'_>],
        time: &TimeCells,
        values: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        let symbol = self.symbol(row, columns)?;
        let written = match self.time(row, columns, time) {
            Err(cell) if self.policy == Policy::Quarantine => return Err((Reason::BadTime, Some(cell))),
            written => written.ok(),
        };
        values.clear();
        for (at, (cell, _)) in self.binding.values.iter().enumerate() {
            let core = self.core.contains(&Some(at));
            let keep = self.policy == Policy::Keep;
            values.push(match columns[*cell].number(row, self.comma) {
                Cell::Number(value) if keep || value.is_finite() => value,
                Cell::Missing if keep || !core => f64::NAN,
                Cell::Missing => return Err((Reason::EmptyCell, Some(*cell))),
                Cell::Text if keep => {
                    if self.rows.garbage[at].is_none() {
                        let message = self.message(line, (Reason::NotANumber, Some(*cell)), columns, row);
                        self.rows.garbage[at] = Some(message);
                    }
                    f64::NAN
                }
                Cell::Number(_) | Cell::Text => return Err((Reason::NotANumber, Some(*cell))),
            });
        }
        if self.scale != 1.0 {
            for at in self.core[..4].iter().flatten() {
                values[*at] /= self.scale;
            }
        }
        if self.policy == Policy::Quarantine {
            check_bar(self.core.map(|at| at.map(|at| values[at]))).map_err(|(reason, core)| {
                (reason, core.and_then(|core| self.core[core]).map(|at| self.binding.values[at].0))
            })?;
        } else {
            self.rows.texts.push(self.time_text(row, columns, time, written));
        }
        let (local, offset) = written.unwrap_or((UNREAD, NAIVE));
        if written.is_some() {
            let instant = if offset == NAIVE { local } else { local - i64::from(offset) * SECOND };
            // Indices of symbols are below their number.
            let last = &mut self.last[symbol as usize];
            if *last != UNREAD {
                self.rows.spacing.add((instant - *last).abs());
            }
            *last = instant;
        }
        let rows = &mut self.rows;
        rows.of.push(symbol);
        rows.local.push(local);
        rows.offset.push(offset);
        rows.lines.push(line);
        for (column, &value) in rows.values.iter_mut().zip(values.iter()) {
            column.push(value);
        }
        Ok(())
    }

    /// Index of the row's symbol.
    fn symbol(&mut self, row: usize, columns: &[Cells<'_>]) -> Result<u32, Fault> {
        let last = self.rows.of.last().copied();
        let text = match self.binding.symbol {
            Some(cell) => columns[cell].text(row),
            None => Cow::Owned(String::new()),
        };
        let symbol = match self.binding.symbol {
            Some(_) => self.format.tidy(text.trim()),
            None if last.is_some() => return Ok(0),
            None => Cow::Borrowed(self.stem.as_deref().unwrap_or_default()),
        };
        if let Some(last) = last
            && *self.rows.symbols[last as usize] == *symbol
        {
            return Ok(last);
        }
        if let Some(known) = self.known.get(&*symbol) {
            return Ok(*known);
        }
        if self.binding.symbol.is_some() && !is_symbol(&symbol) {
            return Err((Reason::BadSymbol, self.binding.symbol));
        }
        let (name, index): (Arc<str>, u32) = (symbol.as_ref().into(), self.rows.symbols.len() as u32);
        self.known.insert(Arc::clone(&name), index);
        self.rows.symbols.push(name);
        self.last.push(UNREAD);
        Ok(index)
    }

    fn finish(mut self, source: &dyn BarSource) -> Result<Rows, MarketError> {
        let lines: Vec<u64> = self.faults.iter().map(|(line, _)| *line).collect();
        let raw = if lines.is_empty() { Vec::new() } else { raw_sorted(source, &lines)? };
        let bad = self.faults.iter().zip(raw).map(|((line, reason), row)| BadRow { line: *line, reason: *reason, row });
        self.rows.bad = bad.collect();
        self.rows.evidence = self.evidence.conclude();
        self.rows.open_date = std::mem::take(&mut self.evidence.example);
        let mut meanings = vec![(self.binding.time, "time".to_owned())];
        meanings.extend(self.binding.clock.map(|cell| (cell, "time of day".to_owned())));
        meanings.extend(self.binding.symbol.map(|cell| (cell, "symbol".to_owned())));
        meanings.extend(self.binding.values.iter().cloned());
        meanings.sort();
        self.rows.meanings = meanings.into_iter().map(|(cell, name)| (self.headers[cell].clone(), name)).collect();
        Ok(self.rows)
    }
}

/// Rows of a source by lines in any order.
fn raw_sorted(source: &dyn BarSource, lines: &[u64]) -> Result<Vec<String>, MarketError> {
    let mut order: Vec<usize> = (0..lines.len()).collect();
    order.sort_by_key(|&i| lines[i]);
    let sorted: Vec<u64> = order.iter().map(|&i| lines[i]).collect();
    let mut rows = vec![String::new(); lines.len()];
    for (at, row) in order.into_iter().zip(source.raw(&sorted)?) {
        rows[at] = row;
    }
    Ok(rows)
}

//! One piece of a file: its rows, and what they show.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::plain::PlainRows;
use super::{Policy, RawRows, Shape, UNREAD};
use crate::error::MarketError;
use crate::name::is_symbol;
use crate::quarantine::{BadRow, Reason};
use crate::reading::bar_check::check_bar;
use crate::reading::cells::{Cells, NAIVE, TimeCells};
use crate::reading::date_order::BatchDates;
use crate::reading::number::{Cell, likely_cause};
use crate::reading::spacing::Spacing;
use crate::reading::symbols::SymbolIds;
use crate::sources::{Batch, Piece};
use crate::time::{SECOND, TimeMicros};

/// Once more than one row in so many is not plain, the rest of a piece is read by the general code alone.
const ODD_PARTS: usize = 4;
/// Characters of a bad cell that are shown.
const CELL_SHOWN_CHARS: usize = 40;

/// Why a row failed, and which column's cell caused it.
type Fault = (Reason, Option<usize>);

/// What a piece showed besides its rows.
#[derive(Default)]
pub(super) struct PieceFacts {
    pub batches: Vec<BatchFacts>,
    pub kept: u64,
    /// What is wrong with the first bad row.
    pub complaint: Option<(u64, String)>,
    /// Bad rows, and whether their text is known already.
    pub bad: Vec<(BadRow, bool)>,
    pub spacing: Spacing,
    /// Provisional id of a symbol, instants of its first and last row.
    pub ends: Vec<(u32, TimeMicros, TimeMicros)>,
    /// Symbols that no earlier piece had.
    pub new: Vec<Arc<str>>,
    pub garbage: Vec<Option<String>>,
    /// With [`Policy::Keep`]: the batch and, if it could be split, the row that cannot be kept, and why.
    pub refused: Option<(usize, Option<usize>, String)>,
}

/// What a batch showed.
#[derive(Default)]
pub(super) struct BatchFacts {
    /// Its rows, bad ones included.
    pub read: u64,
    pub dates: BatchDates,
    pub failed: Option<MarketError>,
}

/// Reads one piece.
pub(super) struct Part<'a> {
    shape: &'a Shape<'a>,
    /// Symbols of earlier pieces.
    known: &'a SymbolIds,
    /// Others of this piece.
    new: SymbolIds,
    /// By provisional id: instants of the first and the last row.
    ends: Vec<(TimeMicros, TimeMicros)>,
    rows: RawRows,
    facts: PieceFacts,
    /// Bad rows of the batch.
    faults: Vec<(u64, Reason)>,
    /// Of the batch; `None` where the rows are seldom plain.
    plain: Option<PlainRows>,
    /// Of the batch: provisional ids, by row.
    ids: Vec<u32>,
}

impl<'a> Part<'a> {
    pub fn new(shape: &'a Shape<'a>, known: &'a SymbolIds) -> Self {
        let width = shape.binding.values.len();
        Self {
            shape,
            known,
            new: SymbolIds::default(),
            ends: vec![(UNREAD, UNREAD); known.len()],
            rows: RawRows { values: vec![Vec::new(); width], ..RawRows::default() },
            facts: PieceFacts { garbage: vec![None; width], ..PieceFacts::default() },
            faults: Vec::new(),
            plain: Some(PlainRows::default()),
            ids: Vec::new(),
        }
    }

    /// Reads the rows of a piece.
    pub fn read(mut self, piece: &Piece) -> (PieceFacts, RawRows) {
        self.rows.reserve(piece.rows_hint());
        for index in 0..piece.batches() {
            let mut facts = BatchFacts::default();
            let batch = self.shape.batch(piece, index).and_then(|batch| {
                facts.read = (batch.lines.len() + batch.broken.len()) as u64;
                self.read_batch(index, &batch, &mut facts)
            });
            self.tell(piece, index);
            facts.failed = batch.err();
            let ends = facts.failed.is_some() || self.facts.refused.is_some();
            self.facts.batches.push(facts);
            if ends {
                break;
            }
        }
        let Self { new, ends, rows, mut facts, .. } = self;
        facts.kept = rows.of.len() as u64;
        facts.new = new.into_names();
        let read = (0u32..).zip(ends).filter(|(_, (_, last))| *last != UNREAD);
        facts.ends = read.map(|(symbol, (first, last))| (symbol, first, last)).collect();
        (facts, rows)
    }

    fn read_batch(&mut self, index: usize, batch: &Batch<'_>, facts: &mut BatchFacts) -> Result<(), MarketError> {
        let shape = self.shape;
        let time = TimeCells::new(&batch.columns[shape.binding.time]).map_err(|zone| {
            let why = format!("its column '{}' has the unknown zone '{zone}'", shape.headers[shape.binding.time]);
            let expected = "an IANA zone, such as America/New_York".to_owned();
            MarketError::BadCsv { file: shape.shown.to_owned(), why, expected }
        })?;
        let columns: Vec<Cells<'_>> = batch.columns.iter().map(Cells::new).collect();
        for (line, reason) in &batch.broken {
            if shape.policy == Policy::Keep {
                self.facts.refused = Some((index, None, format!("line {line}: {}", reason.text())));
                return Ok(());
            }
            self.fault(*line, (*reason, None), &columns, 0);
        }
        if let Some(mut plain) = self.plain.take()
            && plain.read(shape, &columns, batch.lines.len())
        {
            self.identify(&columns, &mut plain);
            let mut from = 0;
            while let Some(odd) = plain.next_odd(from) {
                self.take_plain(&plain, &batch.lines, from..odd);
                self.read_rows((index, odd..odd + 1), batch, (&columns, &time), facts);
                from = odd + 1;
            }
            self.take_plain(&plain, &batch.lines, from..batch.lines.len());
            if plain.odd_rows() <= batch.lines.len() / ODD_PARTS {
                self.plain = Some(plain);
            }
        } else {
            self.read_rows((index, 0..batch.lines.len()), batch, (&columns, &time), facts);
        }
        Ok(())
    }

    /// Provisional ids of a batch, in the order of its rows: those that are new are counted in that order.
    fn identify(&mut self, columns: &[Cells<'_>], plain: &mut PlainRows) {
        let mut ids = std::mem::take(&mut self.ids);
        ids.clear();
        let mut last = self.rows.of.last().copied();
        let mut before: Option<&[u8]> = None;
        for (row, odd) in plain.odd.iter_mut().enumerate() {
            let text = self.shape.binding.symbol.and_then(|cell| columns[cell].written(row)).map(str::as_bytes);
            let same = before.is_some() && text == before;
            let id = match (same, last) {
                (true, Some(last)) => Ok(last),
                _ => self.symbol(row, columns, last),
            };
            *odd |= id.is_err();
            before = text.filter(|_| id.is_ok());
            last = id.ok().or(last);
            ids.push(id.unwrap_or_default());
        }
        self.ids = ids;
    }

    /// Keeps rows of a batch that are plain.
    fn take_plain(&mut self, plain: &PlainRows, lines: &[u64], range: Range<usize>) {
        let (ids, times) = (&self.ids[range.clone()], &plain.times[range.clone()]);
        // An offset is none or zero, so that a local time is the instant.
        for (symbol, &instant) in ids.iter().zip(times) {
            // Ids are below the number of symbols.
            let (first, last) = &mut self.ends[*symbol as usize];
            if *last == UNREAD {
                *first = instant;
            } else {
                self.facts.spacing.add((instant - *last).abs());
            }
            *last = instant;
        }
        let rows = &mut self.rows;
        rows.of.extend_from_slice(ids);
        rows.local.extend_from_slice(times);
        rows.offset.resize(rows.of.len(), plain.offset);
        rows.lines.extend_from_slice(&lines[range.clone()]);
        for (at, column) in rows.values.iter_mut().enumerate() {
            column.extend_from_slice(plain.of(at, range.clone()));
        }
    }

    /// Reads rows of a batch one by one.
    fn read_rows(
        &mut self,
        (index, rows): (usize, Range<usize>),
        batch: &Batch<'_>,
        (columns, time): (&[Cells<'_>], &TimeCells),
        facts: &mut BatchFacts,
    ) {
        let shape = self.shape;
        let mut values = Vec::with_capacity(shape.binding.values.len());
        let looks = shape.options.date_order.is_none();
        for row in rows {
            let line = batch.lines[row];
            if looks {
                facts.dates.look(&columns[shape.binding.time], row);
            }
            if let Err(fault) = self.read_row(line, row, columns, time, &mut values) {
                if shape.policy == Policy::Keep {
                    let why = shape.message(line, fault, columns, row);
                    self.facts.refused = Some((index, Some(row), why));
                    return;
                }
                self.fault(line, fault, columns, row);
            }
        }
    }

    fn fault(&mut self, line: u64, fault: Fault, columns: &[Cells<'_>], row: usize) {
        // Broken rows of a batch come before those with cells.
        if self.facts.complaint.as_ref().is_none_or(|(known, _)| line < *known) {
            self.facts.complaint = Some((line, self.shape.message(line, fault, columns, row)));
        }
        self.faults.push((line, fault.0));
    }

    /// Keeps the bad rows of a batch with their text, where the piece has it.
    fn tell(&mut self, piece: &Piece, index: usize) {
        if self.faults.is_empty() {
            return;
        }
        let mut order: Vec<usize> = (0..self.faults.len()).collect();
        order.sort_by_key(|at| self.faults[*at].0);
        let lines: Vec<u64> = order.iter().map(|at| self.faults[*at].0).collect();
        let mut texts = vec![None; lines.len()];
        for (at, text) in order.into_iter().zip(piece.raw(index, &lines).into_iter().flatten()) {
            texts[at] = Some(text);
        }
        let bad = self.faults.drain(..).zip(texts).map(|((line, reason), text)| {
            let told = text.is_some();
            (BadRow { line, reason, row: text.unwrap_or_default() }, told)
        });
        self.facts.bad.extend(bad);
    }

    fn read_row(
        &mut self,
        line: u64,
        row: usize,
        columns: &[Cells<'_>],
        time: &TimeCells,
        values: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        let shape = self.shape;
        let keep = shape.policy == Policy::Keep;
        let symbol = self.symbol(row, columns, self.rows.of.last().copied())?;
        let written = match shape.time(row, columns, time) {
            Err(cell) if !keep => return Err((Reason::BadTime, Some(cell))),
            written => written.ok(),
        };
        values.clear();
        for (at, (cell, _)) in shape.binding.values.iter().enumerate() {
            values.push(match columns[*cell].number(row, shape.comma) {
                Cell::Number(value) if keep || value.is_finite() => value,
                Cell::Missing if keep || !shape.core.contains(&Some(at)) => f64::NAN,
                Cell::Missing => {
                    let reason = if columns[*cell].is_nan(row) { Reason::Nan } else { Reason::EmptyCell };
                    return Err((reason, Some(*cell)));
                }
                Cell::Text if keep => {
                    if self.facts.garbage[at].is_none() {
                        let message = shape.message(line, (Reason::NotANumber, Some(*cell)), columns, row);
                        self.facts.garbage[at] = Some(message);
                    }
                    f64::NAN
                }
                Cell::Number(_) | Cell::Text => return Err((Reason::NotANumber, Some(*cell))),
            });
        }
        if shape.scale != 1.0 {
            for at in shape.core[..4].iter().flatten() {
                values[*at] /= shape.scale;
            }
        }
        if !keep {
            check_bar(shape.core.map(|at| at.map(|at| values[at]))).map_err(|(reason, core)| {
                (reason, core.and_then(|core| shape.core[core]).map(|at| shape.binding.values[at].0))
            })?;
        } else {
            self.rows.texts.push(shape.time_text(row, columns, time, written));
        }
        let (local, offset) = written.unwrap_or((UNREAD, NAIVE));
        if written.is_some() {
            let instant = if offset == NAIVE { local } else { local - i64::from(offset) * SECOND };
            // Ids are below the number of symbols.
            let (first, last) = &mut self.ends[symbol as usize];
            if *last == UNREAD {
                *first = instant;
            } else {
                self.facts.spacing.add((instant - *last).abs());
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

    /// The name of a provisional id.
    #[inline]
    fn name(&self, id: u32) -> Option<&Arc<str>> {
        let known = self.known.len();
        match (id as usize).checked_sub(known) {
            None => self.known.names().get(id as usize),
            Some(new) => self.new.names().get(new),
        }
    }

    /// Provisional id of the row's symbol; `last` is that of a row before, if there is any.
    #[inline]
    fn symbol(&mut self, row: usize, columns: &[Cells<'_>], last: Option<u32>) -> Result<u32, Fault> {
        let shape = self.shape;
        let text = match shape.binding.symbol {
            Some(cell) => columns[cell].text(row),
            None => Cow::Owned(String::new()),
        };
        let symbol = match shape.binding.symbol {
            Some(_) => shape.format.tidy(text.trim()),
            None if last.is_some() => return Ok(0),
            None => Cow::Borrowed(shape.stem.as_deref().unwrap_or_default()),
        };
        let symbol = match &shape.options.tickers {
            Some(tickers) => tickers.symbol(&symbol),
            None => Cow::Borrowed(&*symbol),
        };
        let symbol = &*symbol;
        // The symbol of the row before, or the one that came after it the first time.
        let likely = last.into_iter().flat_map(|last| [last, last + 1]);
        for id in likely {
            if self.name(id).is_some_and(|name| **name == *symbol) {
                return Ok(id);
            }
        }
        if let Some(known) = self.known.find(symbol) {
            return Ok(known);
        }
        let first = self.known.len() as u32;
        if let Some(new) = self.new.find(symbol) {
            return Ok(first + new);
        }
        if shape.binding.symbol.is_some() && !is_symbol(symbol) {
            return Err((Reason::BadSymbol, shape.binding.symbol));
        }
        self.ends.push((UNREAD, UNREAD));
        Ok(first + self.new.id(&symbol.into()))
    }
}

impl RawRows {
    fn reserve(&mut self, rows: usize) {
        self.of.reserve(rows);
        self.local.reserve(rows);
        self.offset.reserve(rows);
        self.lines.reserve(rows);
        self.values.iter_mut().for_each(|column| column.reserve(rows));
    }
}

impl Shape<'_> {
    /// A message about a bad cell: its line, its column, its content, the probable cause.
    fn message(&self, line: u64, (reason, cell): Fault, columns: &[Cells<'_>], row: usize) -> String {
        let Some(cell) = cell else { return format!("line {line}: {}", reason.text()) };
        let text: String = columns[cell].text(row).chars().take(CELL_SHOWN_CHARS).collect();
        let cause = if reason == Reason::NotANumber { likely_cause(&text) } else { "" };
        format!(
            "line {line}, column '{}': '{text}' is {}{cause}",
            self.headers[cell],
            match reason {
                Reason::NotANumber | Reason::Nan => "not a number",
                Reason::BadTime => "not a date or time in a known form, such as 2024-06-21 or 2024-06-21 09:30:00",
                Reason::BadSymbol => "not a symbol",
                Reason::EmptyCell => "empty",
                Reason::PriceNotPositive => "not a price above zero",
                other => other.text(),
            }
        )
    }
}

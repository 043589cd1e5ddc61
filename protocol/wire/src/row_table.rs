//! The rows of a segment as they are computed: symbol by symbol, without an object for each. They become columns.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::columns::{Columns, SegmentColumnsV3, has_reason};
use crate::content::{EnvelopeError, check_rows, content};
use crate::limits::REASON_BYTES_MAX;
use crate::result::{Status, SymbolRow};

/// See the module's header. Rows may come in any order of their points; of a symbol at most one at each.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RowTable {
    /// Ascending, unless parts were appended in another order.
    symbols: Vec<Arc<str>>,
    rows: Vec<Row>,
    /// Number of rank keys and of values of each match.
    widths: (usize, usize),
    /// Of each match, its rank keys and then its values.
    numbers: Vec<f64>,
    matches: usize,
    reasons: Vec<Arc<str>>,
    reason_at: BTreeMap<Arc<str>, usize>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Row {
    point: u32,
    /// Index of its symbol.
    symbol: usize,
    status: Status,
    edge: bool,
    provisional: bool,
    /// Of a match its number, of a row with a reason that one's index.
    at: usize,
}

/// What a row has beside its symbol, its status, and what belongs to the status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowMarks {
    /// As [`SymbolRow::point`].
    pub point: u32,
    /// As [`SymbolRow::edge`].
    pub edge: bool,
    /// As [`SymbolRow::provisional`].
    pub provisional: bool,
}

fn canonical(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value }
}

impl RowTable {
    /// A table for about so many symbols and rows, whose matches have so many rank keys and values.
    pub fn new((symbols, rows): (usize, usize), widths: (usize, usize)) -> Self {
        Self { symbols: Vec::with_capacity(symbols), rows: Vec::with_capacity(rows), widths, ..Self::default() }
    }

    /// The rows of a result.
    fn of_rows(rows: &[SymbolRow]) -> Self {
        let matched = rows.iter().find(|row| row.status == Status::Matched);
        let widths = matched.map_or((0, 0), |row| (row.rank.len(), row.values.len()));
        let mut by_symbol: Vec<&SymbolRow> = rows.iter().collect();
        by_symbol.sort_by(|a, b| a.symbol.cmp(&b.symbol));
        let mut table = Self::new((0, rows.len()), widths);
        for row in by_symbol {
            if table.symbols.last().is_none_or(|last| **last != *row.symbol) {
                table.begin(&Arc::from(row.symbol.as_str()));
            }
            let marks = RowMarks { point: row.point, edge: row.edge, provisional: row.provisional };
            match row.status {
                Status::Matched => table.matched(marks, &row.rank, &row.values),
                Status::NotMatched => table.not_matched(marks),
                status => {
                    let reason = table.reason(&row.reason);
                    table.without_values(marks, status, reason);
                }
            }
        }
        table
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Begins the rows of a symbol, which comes after those before.
    pub fn begin(&mut self, symbol: &Arc<str>) {
        self.symbols.push(Arc::clone(symbol));
    }

    fn push(&mut self, marks: RowMarks, status: Status, at: usize) {
        let RowMarks { point, edge, provisional } = marks;
        let symbol = self.symbols.len().saturating_sub(1);
        self.rows.push(Row { point, symbol, status, edge, provisional, at });
    }

    /// Adds a row of a symbol that matches.
    pub fn matched(&mut self, marks: RowMarks, rank: &[f64], values: &[f64]) {
        self.push(marks, Status::Matched, self.matches);
        self.matches += 1;
        self.numbers.extend(rank.iter().chain(values).copied().map(canonical));
    }

    /// Adds a row of a symbol that does not match.
    pub fn not_matched(&mut self, marks: RowMarks) {
        self.push(marks, Status::NotMatched, 0);
    }

    /// Adds a row with another status, and its reason, an index from [`Self::reason`].
    pub fn without_values(&mut self, marks: RowMarks, status: Status, reason: usize) {
        self.push(marks, status, reason);
    }

    /// The index of a reason.
    pub fn reason(&mut self, text: &str) -> usize {
        if let Some(at) = self.reason_at.get(text) {
            return *at;
        }
        let (at, text) = (self.reasons.len(), Arc::<str>::from(text));
        self.reasons.push(Arc::clone(&text));
        self.reason_at.insert(text, at);
        at
    }

    /// Its rows by symbol, ascending: for one to which parts were appended in another order.
    pub fn by_symbol(self) -> Self {
        let mut rows_of: Vec<Vec<Row>> = vec![Vec::new(); self.symbols.len()];
        for row in &self.rows {
            rows_of[row.symbol].push(*row);
        }
        let mut order: Vec<usize> = (0..self.symbols.len()).collect();
        order.sort_by(|a, b| self.symbols[*a].cmp(&self.symbols[*b]));
        let (rank, width) = (self.widths.0, self.widths.0 + self.widths.1);
        let mut table = Self::new((self.symbols.len(), self.rows.len()), self.widths);
        for symbol in order {
            table.begin(&self.symbols[symbol]);
            for Row { point, status, edge, provisional, at, .. } in rows_of[symbol].iter().copied() {
                let marks = RowMarks { point, edge, provisional };
                match status {
                    Status::Matched => {
                        let (rank, values) = self.numbers[at * width..(at + 1) * width].split_at(rank);
                        table.matched(marks, rank, values);
                    }
                    Status::NotMatched => table.not_matched(marks),
                    status => {
                        let reason = table.reason(&self.reasons[at]);
                        table.without_values(marks, status, reason);
                    }
                }
            }
        }
        table
    }

    /// Adds the rows of symbols that come after those of this table, or before them if [`Self::by_symbol`] follows.
    pub fn append(&mut self, more: Self) {
        if self.matches == 0 {
            self.widths = more.widths;
        }
        let (symbols, matches) = (self.symbols.len(), self.matches);
        let reasons: Vec<usize> = more.reasons.iter().map(|reason| self.reason(reason)).collect();
        self.symbols.extend(more.symbols);
        self.numbers.extend(more.numbers);
        self.matches += more.matches;
        self.rows.extend(more.rows.into_iter().map(|row| Row {
            symbol: row.symbol + symbols,
            at: match row.status {
                Status::Matched => row.at + matches,
                Status::NotMatched => 0,
                _ => reasons.get(row.at).copied().unwrap_or(0),
            },
            ..row
        }));
    }

    /// The rows as columns.
    ///
    /// # Errors
    /// [`EnvelopeError::Content`] for symbols out of order, two rows of a symbol at a point, a reason that is empty or too long, or
    /// more of something than an archive has; [`EnvelopeError::Encode`].
    pub fn into_columns(mut self, segment: u32) -> Result<Columns, EnvelopeError> {
        let place = |row: &Row| (row.point, row.symbol);
        if !self.symbols.is_sorted_by(|a, b| a < b) {
            return Err(content("symbols out of order"));
        }
        if self.reasons.iter().any(|reason| reason.is_empty() || reason.len() > REASON_BYTES_MAX) {
            return Err(content("a reason that is empty or too long"));
        }
        if !self.rows.is_sorted_by_key(place) {
            self.rows.sort_unstable_by_key(place);
        }
        if !self.rows.is_sorted_by(|a, b| place(a) < place(b)) {
            return Err(content("two rows of a symbol at a point"));
        }
        let count = |n: usize| u32::try_from(n).map_err(|_| content("more than 2^32 - 1 of something"));
        let mut columns = SegmentColumnsV3 { segment, ..SegmentColumnsV3::default() };
        columns.names.reserve_exact(self.symbols.iter().map(|name| name.len()).sum());
        columns.name_ends.reserve_exact(self.symbols.len());
        for name in &self.symbols {
            columns.names.push_str(name);
            columns.name_ends.push(count(columns.names.len())?);
        }
        for at_point in self.rows.chunk_by(|a, b| a.point == b.point) {
            columns.points.extend(at_point.first().map(|row| row.point));
            columns.rows_at.push(count(at_point.len())?);
        }
        if columns.rows_at.iter().any(|rows| *rows as usize != self.symbols.len()) {
            columns.symbols.reserve_exact(self.rows.len());
            for row in &self.rows {
                columns.symbols.push(count(row.symbol)?);
            }
        }
        // The index of each reason in the order of their first rows.
        let mut order: Vec<Option<u32>> = vec![None; self.reasons.len()];
        columns.states.reserve_exact(self.rows.len());
        for row in &self.rows {
            columns.states.push(SegmentColumnsV3::state(row.status, row.edge, row.provisional));
            if has_reason(row.status) {
                let Some(known) = order.get_mut(row.at) else { return Err(content("a row without a reason")) };
                if known.is_none() {
                    *known = Some(count(columns.reason_ends.len())?);
                    columns.reasons.push_str(&self.reasons[row.at]);
                    columns.reason_ends.push(count(columns.reasons.len())?);
                }
                columns.reason_of.extend(*known);
            }
        }
        let (rank, values) = self.widths;
        if self.numbers.len() != self.matches * (rank + values) {
            return Err(content("rows of different widths"));
        }
        if self.matches > 0 {
            (columns.rank_width, columns.value_width) = (count(rank)?, count(values)?);
            let matched = || self.rows.iter().filter(|row| row.status == Status::Matched);
            let column = |to: &mut Vec<f64>, number: usize| {
                to.extend(matched().map(|row| self.numbers[row.at * (rank + values) + number]));
            };
            columns.rank.reserve_exact(self.matches * rank);
            (0..rank).for_each(|key| column(&mut columns.rank, key));
            columns.values.reserve_exact(self.matches * values);
            (rank..rank + values).for_each(|value| column(&mut columns.values, value));
        }
        Columns::of(&columns)
    }
}

impl Columns {
    /// The columns of a segment's rows.
    ///
    /// # Errors
    /// [`EnvelopeError::Content`] for rows that are not of one result, [`EnvelopeError::Encode`].
    pub fn of_rows(segment: u32, rows: &[SymbolRow]) -> Result<Self, EnvelopeError> {
        check_rows(rows)?;
        RowTable::of_rows(rows).into_columns(segment)
    }
}

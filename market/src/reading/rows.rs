//! The rows of one file: values as numbers, times as written, and the rows that cannot be bars with their reasons.
//! Whether a row is a duplicate or out of order is not checked here: the meaning of its time is decided later.
//!
//! The file is cut into pieces, which are read side by side while the next ones are cut; what they found is put together in
//! the file's order, so that the result does not depend on the number of threads.

mod classify;
mod part;
mod plain;
mod times;

use std::sync::Arc;

use arrow_array::TimestampMicrosecondArray;
use rayon::prelude::*;

use self::part::{Part, PieceFacts};
use super::ReadOptions;
use super::bind::{Binding, CORE, bind, check_columns};
use super::budget::RowBudget;
use super::date_order::{DateEvidence, OrderEvidence};
use super::path_date::{PathDate, is_time, path_date};
use super::presets::ImportFormat;
use super::spacing::Spacing;
use super::symbols::SymbolIds;
use crate::error::MarketError;
use crate::limits::PIECE_BYTES;
use crate::name::is_symbol;
use crate::quarantine::BadRow;
use crate::sources::{BarSource, Batch, Column, Content, OpenOptions, Piece, open};
use crate::time::{DateOrder, TimeMicros};

/// Local time of a row whose time could not be read.
pub(crate) const UNREAD: TimeMicros = TimeMicros::MIN;
/// Prices of LEAN are multiplied by ten thousand.
const LEAN_SCALE: f64 = 10_000.0;
/// The name of an input without a name.
const UNNAMED: &str = "-";
/// Begins the names of a lake's files as Spark and its like write them.
const LAKE_PART: &str = "part-";
/// What lakes write for a key without a value.
const LAKE_NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// What to do with a row that cannot be a bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// It is left out and reported.
    Quarantine,
    /// Every row is kept as it is: NA where a cell is missing or not a number, and times as written.
    Keep,
}

/// What a file says about its rows.
#[derive(Debug, Clone)]
pub(crate) struct FileFacts {
    pub format: ImportFormat,
    /// What kind of file it is.
    pub kind: &'static str,
    /// Column of the file and what it means, in the file's order.
    pub meanings: Vec<(String, String)>,
    /// Headers of the time and of the symbols.
    pub time_heading: String,
    pub symbol_heading: Option<String>,
    /// Core columns first, then the others by name.
    pub columns: Vec<String>,
    pub rows_read: u64,
    /// Rows that were kept.
    pub rows_kept: u64,
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
    /// With [`Policy::Keep`], by column: a message about the first cell that is not a number.
    pub garbage: Vec<Option<String>>,
}

/// Rows that were kept, in the file's order: one entry of each vector for each of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct RawRows {
    /// Id of the symbol (see [`SymbolIds`]).
    pub of: Vec<u32>,
    /// The local time as written, in microseconds.
    pub local: Vec<TimeMicros>,
    /// Seconds that the local time is ahead of UTC, [`super::NAIVE`] where no zone is written.
    pub offset: Vec<i32>,
    pub lines: Vec<u64>,
    /// By column, then by row; NaN where missing.
    pub values: Vec<Vec<f64>>,
    /// With [`Policy::Keep`]: the time as written; its `local` is [`UNREAD`] when it is not a time.
    pub texts: Vec<String>,
}

/// A parsed file.
#[derive(Debug, Clone)]
pub(crate) struct Rows {
    pub facts: FileFacts,
    /// By id.
    pub symbols: Vec<Arc<str>>,
    pub rows: RawRows,
}

/// Takes the rows of a file, piece by piece.
pub(crate) trait Receiver: Sync {
    /// Rows as they are taken.
    type Ready: Send;

    /// The file is read from its start: what was taken before is void.
    fn begin(&mut self);

    /// Symbols that have ids already, as those of a file that probably named the same ones in the same order: their rows are numbered
    /// by a comparison. Asked for after [`Receiver::begin`] of a file that has a column of symbols.
    fn known(&mut self) -> SymbolIds {
        SymbolIds::default()
    }

    /// Prepares rows, on the thread that read them.
    fn ready(&self, rows: RawRows) -> Self::Ready;

    /// Takes the next rows in the file's order. `ids` are the ids of the symbols that were new in them, by provisional id;
    /// `symbols` are all symbols by id, [known](Receiver::known) ones among them.
    ///
    /// # Errors
    /// What the receiver fails with ends the reading.
    fn take(
        &mut self,
        rows: Self::Ready,
        columns: &[String],
        ids: &NewIds,
        symbols: &[Arc<str>],
    ) -> Result<(), MarketError>;
}

/// Ids of symbols that a piece was the first to have: the piece counted them from `first`.
pub(crate) struct NewIds {
    pub first: u32,
    pub ids: Vec<u32>,
}

impl NewIds {
    /// The id of a provisional one.
    #[inline]
    pub fn of(&self, provisional: u32) -> u32 {
        match provisional.checked_sub(self.first) {
            None => provisional,
            Some(new) => self.ids.get(new as usize).copied().unwrap_or(provisional),
        }
    }
}

/// How much of a file is in memory at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Pieces that are read side by side.
    pub pieces: usize,
    /// Bytes of a piece of text.
    pub bytes: usize,
}

impl Pace {
    /// For a file that is read alone.
    pub fn of_threads() -> Self {
        Self { pieces: 2 * rayon::current_num_threads(), bytes: PIECE_BYTES }
    }
}

impl Receiver for RawRows {
    type Ready = Self;

    fn begin(&mut self) {
        *self = Self::default();
    }

    fn ready(&self, rows: RawRows) -> Self {
        rows
    }

    fn take(&mut self, rows: Self, columns: &[String], ids: &NewIds, _: &[Arc<str>]) -> Result<(), MarketError> {
        self.of.extend(rows.of.iter().map(|provisional| ids.of(*provisional)));
        self.local.extend(rows.local);
        self.offset.extend(rows.offset);
        self.lines.extend(rows.lines);
        self.texts.extend(rows.texts);
        self.values.resize(columns.len(), Vec::new());
        self.values.iter_mut().zip(rows.values).for_each(|(to, from)| to.extend(from));
        Ok(())
    }
}

/// Reads a file into memory; `shown` is its name in messages, `name` is its name without folders. The rows that it returns
/// are counted in the budget.
pub(crate) fn read_rows(
    shown: &str,
    name: &str,
    content: &Content,
    options: &ReadOptions,
    policy: Policy,
    budget: &RowBudget,
) -> Result<Rows, MarketError> {
    let mut rows = RawRows::default();
    let (facts, symbols) = read_file((shown, name, content), options, policy, (budget, Pace::of_threads()), &mut rows)?;
    rows.values.resize(facts.columns.len(), Vec::new());
    Ok(Rows { facts, symbols: symbols.ids.into_names(), rows })
}

/// The symbols that the rows of a file were numbered with.
pub(crate) struct Numbered {
    pub ids: SymbolIds,
    /// How many of them have a row that was kept.
    pub met: usize,
}

/// Reads a file for a receiver; returns what it says about its rows, and its symbols.
pub(crate) fn read_file<R: Receiver>(
    file: (&str, &str, &Content),
    options: &ReadOptions,
    policy: Policy,
    (budget, pace): (&RowBudget, Pace),
    receiver: &mut R,
) -> Result<(FileFacts, Numbered), MarketError> {
    let (shown, name, content) = file;
    let read = || {
        let how = OpenOptions { format: options.format, columns: options.columns.as_deref() };
        let mut source = open(shown, name, content.clone(), how)?;
        let date = path_date(shown, &mut *source, options)?;
        let mut reader = Reader::new(shown, name, (&*source, date), options, policy)?;
        source.want(reader.shape.wanted(source.columns().len()));
        loop {
            receiver.begin();
            // The symbol of a file without a column of them is its first.
            let known = reader.shape.binding.symbol.map(|_| receiver.known());
            budget.give_back(reader.begin(known.unwrap_or_default()));
            let ended = reader.read(&mut *source, (budget, pace), receiver);
            let ended = ended.inspect_err(|_| budget.give_back(reader.facts.rows_read))?;
            // Both orders of day and month occur: the usual one is used, and rows in the other one are bad.
            let order = reader.shape.order;
            if ended && !(order == DateOrder::DayFirst && reader.switches && reader.evidence.has_month_first()) {
                break;
            }
            reader.shape.order = if ended { DateOrder::MonthFirst } else { DateOrder::DayFirst };
            reader.switches = !ended;
            source.rewind();
        }
        reader.finish(&*source)
    };
    // That a compressed file is damaged explains whatever is wrong with its rows.
    let mut read = read;
    read().or_else(|error| content.check_compressed().and(Err(error)))
}

/// How the rows of a file are read: the same for all its pieces.
struct Shape<'a> {
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
    /// The last column is this date in every row: it is in the file's path.
    path_date: Option<TimeMicros>,
    order: DateOrder,
    comma: bool,
    scale: f64,
}

impl Shape<'_> {
    /// Which columns of the source are read.
    fn wanted(&self, width: usize) -> Vec<bool> {
        let binding = &self.binding;
        let named = [Some(binding.time), binding.clock, binding.symbol];
        let used = |i: usize| named.contains(&Some(i)) || binding.values.iter().any(|(cell, _)| *cell == i);
        (0..width).map(used).collect()
    }

    /// A batch of a piece, with the column of the path's date, if there is one.
    fn batch<'p>(&self, piece: &'p Piece, index: usize) -> Result<Batch<'p>, MarketError> {
        let mut batch = piece.batch(index)?;
        if let Some(date) = self.path_date {
            let dates = TimestampMicrosecondArray::from_value(date, batch.lines.len());
            batch.columns.push(Column::Array(Arc::new(dates)));
        }
        Ok(batch)
    }

    fn refused(&self, why: String) -> MarketError {
        let expected = "rows that are all of one shape".to_owned();
        MarketError::BadCsv { file: self.shown.to_owned(), why, expected }
    }
}

struct Reader<'a> {
    shape: Shape<'a>,
    /// The order was changed to day first while reading.
    switches: bool,
    evidence: DateEvidence,
    /// The columns have been classified.
    classified: bool,
    symbols: SymbolIds,
    /// By id: the instant of the symbol's last row.
    last: Vec<TimeMicros>,
    /// Lines of bad rows whose text only the source has.
    untold: Vec<usize>,
    facts: FileFacts,
}

impl<'a> Reader<'a> {
    fn new(
        shown: &'a str,
        name: &str,
        (source, path_date): (&dyn BarSource, Option<PathDate>),
        options: &'a ReadOptions,
        policy: Policy,
    ) -> Result<Self, MarketError> {
        let format = source.format();
        let mut headers: Vec<String> = source.columns().iter().map(|h| h.trim().to_owned()).collect();
        headers.extend(path_date.iter().map(|path| path.heading.clone()));
        let plain: Vec<&str> = headers.iter().map(String::as_str).collect();
        check_columns(shown, &plain, options)?;
        let mut map = options.map.clone();
        if path_date.as_ref().is_some_and(|path| !path.is_mapped) {
            map.retain(|(meaning, _)| !is_time(meaning));
        }
        let mut binding = bind(shown, &plain, format, &map, policy == Policy::Keep)?;
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
        } else if let (None, Some(symbol)) = (binding.symbol, &options.symbol) {
            if !is_symbol(symbol) || symbol == LAKE_NULL {
                let why = format!("'{symbol}' in its path cannot be a symbol");
                return Err(bad(why, "a folder such as symbol=AAPL, or a column of symbols"));
            }
            stem = Some(symbol.clone());
        } else if binding.symbol.is_none() {
            let symbol = format.symbol_of(name);
            if !options.partitions.is_empty() && name.to_ascii_lowercase().starts_with(LAKE_PART) {
                let why = "its name is that of a part of a lake, and it has no column of symbols".to_owned();
                return Err(bad(why, "a folder such as symbol=AAPL, or --map symbol=COLUMN"));
            }
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
        let facts = FileFacts {
            format,
            kind: source.kind(),
            meanings: Vec::new(),
            time_heading: heading(binding.time),
            symbol_heading: binding.symbol.map(heading),
            garbage: vec![None; columns.len()],
            columns,
            rows_read: 0,
            rows_kept: 0,
            bad: Vec::new(),
            complaint: None,
            ignored: std::mem::take(&mut binding.ignored),
            text_columns: Vec::new(),
            evidence: OrderEvidence::NotNeeded,
            open_date: String::new(),
            spacing: Spacing::default(),
            decimal_comma: false,
            scaled: false,
        };
        let shape = Shape {
            shown,
            options,
            policy,
            format,
            core: CORE.map(|core| facts.columns.iter().position(|c| c == core)),
            stem: stem.map(Into::into),
            named,
            has_clock: false,
            midnight: format.midnight(name),
            path_date: path_date.map(|path| path.date),
            order: options.date_order.unwrap_or(DateOrder::MonthFirst),
            comma: false,
            scale: 1.0,
            headers,
            binding,
        };
        Ok(Self {
            shape,
            switches: false,
            evidence: DateEvidence::default(),
            classified: false,
            symbols: SymbolIds::default(),
            last: Vec::new(),
            untold: Vec::new(),
            facts,
        })
    }

    /// Discards what an earlier attempt found, and returns the number of its rows.
    fn begin(&mut self, known: SymbolIds) -> u64 {
        let facts = &mut self.facts;
        let discarded = facts.rows_read;
        facts.garbage.iter_mut().for_each(|g| *g = None);
        (facts.rows_read, facts.rows_kept, facts.complaint, facts.spacing) = (0, 0, None, Spacing::default());
        facts.bad.clear();
        self.untold.clear();
        self.symbols = known;
        self.last.clear();
        discarded
    }

    /// Reads to the end; false when the dates turn out to be day first, and everything has to be read again.
    fn read<R: Receiver>(
        &mut self,
        source: &mut dyn BarSource,
        (budget, pace): (&RowBudget, Pace),
        receiver: &mut R,
    ) -> Result<bool, MarketError> {
        let mut wave = next_wave(source, pace)?;
        if let Some(first) = wave.first().filter(|_| !self.classified) {
            let batch = self.shape.batch(first, 0)?;
            // A file of blank lines has no rows to learn from.
            if matches!(first, Piece::Text(_)) && batch.lines.is_empty() && batch.broken.is_empty() {
                return Ok(true);
            }
            self.classify(&batch.columns, source.decimal_comma_likely())?;
        }
        while !wave.is_empty() {
            let last = wave.len() < pace.pieces;
            let (shape, symbols, to) = (&self.shape, &self.symbols, &*receiver);
            let parse = |piece: Piece| {
                let (facts, rows) = Part::new(shape, symbols).read(&piece);
                (facts, to.ready(rows))
            };
            let (parsed, following) = match last {
                true if wave.len() == 1 => (wave.into_iter().map(parse).collect::<Vec<_>>(), Ok(Vec::new())),
                true => (wave.into_par_iter().map(parse).collect(), Ok(Vec::new())),
                false => rayon::join(|| wave.into_par_iter().map(parse).collect(), || next_wave(source, pace)),
            };
            let known = self.symbols.len();
            for (facts, rows) in parsed {
                let Some(ids) = self.fold(facts, budget, known)? else { return Ok(false) };
                receiver.take(rows, &self.facts.columns, &ids, self.symbols.names())?;
            }
            wave = following?;
        }
        Ok(true)
    }

    /// Adds what the next piece showed. `None` when the dates turn out to be day first.
    fn fold(&mut self, piece: PieceFacts, budget: &RowBudget, known: usize) -> Result<Option<NewIds>, MarketError> {
        for (at, batch) in piece.batches.into_iter().enumerate() {
            self.facts.rows_read += batch.read;
            budget.take(batch.read)?;
            if let Some(error) = batch.failed {
                return Err(error);
            }
            let refused = piece.refused.as_ref().filter(|(refused, ..)| *refused == at);
            let last = match refused {
                Some((_, None, why)) => return Err(self.shape.refused(why.clone())),
                Some((_, Some(row), _)) => *row,
                None => usize::MAX,
            };
            if self.shape.options.date_order.is_none() {
                let may = self.shape.order == DateOrder::MonthFirst && !self.switches;
                if self.evidence.add(&batch.dates, last, |evidence| may && evidence.is_day_first()) {
                    self.switches = true;
                    return Ok(None);
                }
            }
            if let Some((.., why)) = refused {
                return Err(self.shape.refused(why.clone()));
            }
        }
        let facts = &mut self.facts;
        facts.rows_kept += piece.kept;
        facts.complaint = facts.complaint.take().or(piece.complaint);
        for (bad, told) in piece.bad {
            if !told {
                self.untold.push(facts.bad.len());
            }
            facts.bad.push(bad);
        }
        facts.spacing.merge(&piece.spacing);
        for (known, found) in facts.garbage.iter_mut().zip(piece.garbage) {
            *known = known.take().or(found);
        }
        let ids = NewIds { first: known as u32, ids: piece.new.iter().map(|name| self.symbols.id(name)).collect() };
        self.last.resize(self.symbols.len(), UNREAD);
        for (provisional, first, last) in piece.ends {
            let before = &mut self.last[ids.of(provisional) as usize];
            if *before != UNREAD {
                facts.spacing.add((first - *before).abs());
            }
            *before = last;
        }
        Ok(Some(ids))
    }

    fn finish(mut self, source: &dyn BarSource) -> Result<(FileFacts, Numbered), MarketError> {
        if !self.untold.is_empty() {
            self.untold.sort_by_key(|at| self.facts.bad[*at].line);
            let lines: Vec<u64> = self.untold.iter().map(|at| self.facts.bad[*at].line).collect();
            for (at, row) in self.untold.iter().zip(source.raw(&lines)?) {
                self.facts.bad[*at].row = row;
            }
        }
        self.facts.evidence = self.evidence.conclude();
        self.facts.open_date = std::mem::take(&mut self.evidence.example);
        let binding = &self.shape.binding;
        let mut meanings = vec![(binding.time, "time".to_owned())];
        meanings.extend(binding.clock.map(|cell| (cell, "time of day".to_owned())));
        meanings.extend(binding.symbol.map(|cell| (cell, "symbol".to_owned())));
        meanings.extend(binding.values.iter().cloned());
        meanings.sort();
        let headers = &self.shape.headers;
        self.facts.meanings = meanings.into_iter().map(|(cell, name)| (headers[cell].clone(), name)).collect();
        let met = self.last.iter().filter(|last| **last != UNREAD).count();
        Ok((self.facts, Numbered { ids: self.symbols, met }))
    }
}

/// The next pieces of a source: fewer than the pace wants only at its end.
fn next_wave(source: &mut dyn BarSource, pace: Pace) -> Result<Vec<Piece>, MarketError> {
    let mut wave = Vec::with_capacity(pace.pieces);
    while wave.len() < pace.pieces {
        let Some(piece) = source.next_piece(pace.bytes)? else { break };
        wave.push(piece);
    }
    Ok(wave)
}

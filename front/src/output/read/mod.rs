//! Reads an answer file back, whichever format it has.
//!
//! Columns are found by name. Columns before `place` are the settings of a sweep, columns that are not fixed ones are
//! select columns; `time`, `edge` and `provisional` are optional. In a file of the answers at many times, `time` is the first
//! setting: a row is then one of a symbol at a time. Select columns of labels and dates are left out. A file that is truncated,
//! damaged or not an answer is the user's mistake, reported with its place: the libraries that read Arrow and Parquet panic on some damaged files, and
//! that is caught here too.

mod columnar;
mod text;

use std::cell::Cell as Flag;
use std::collections::{BTreeMap, HashSet};
use std::io::Read as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use trawl_market::{format_time, parse_time};
use trawl_plan::ANSWER_TIME;
use trawl_wire::Status;

use super::{EXTENSIONS, Format, identity_path, shared_identity_path};
use crate::human::push_exact;
use crate::mistake::UserMistake;
use crate::mistake::io_reason;

/// Most bytes of an answer file that are read.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// Most bytes of the identity file beside a file of rows.
const IDENTITY_BYTES_MAX: u64 = 1 << 20;
/// Most rows of an answer: symbols, or symbols times settings.
const ROWS_MAX: usize = 20_000_000;
/// Most columns of an answer.
const COLUMNS_MAX: usize = 4096;
/// Advice for a file that cannot be read as an answer.
const WRITE_AGAIN: &str = "give a file that 'trawl scan --output FILE' wrote, or write it again";

/// An answer as read from a file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AnswerTable {
    /// Field and value, as text. `None`: a file of rows without its identity beside it.
    pub identity: Option<BTreeMap<String, String>>,
    /// 64 hex digits; `None` if the file does not have it.
    pub answer_digest: Option<String>,
    /// Name of the scan, if the file has it.
    pub name: Option<String>,
    /// Names of a sweep's settings; empty for a plain scan. In a file of many times the first is `time`.
    pub settings: Vec<String>,
    /// Names of the select columns.
    pub select: Vec<String>,
    /// In the order of the file.
    pub rows: Vec<TableRow>,
}

/// One row of an answer file.
#[derive(Debug, Clone, PartialEq)]
pub struct TableRow {
    /// Values of [`AnswerTable::settings`], numbers in the same text form for every format.
    pub settings: Vec<String>,
    /// The symbol.
    pub symbol: String,
    /// Its status.
    pub status: Status,
    /// Why it has no decision; empty for the others.
    pub reason: String,
    /// 1-based place among the matches.
    pub place: Option<u32>,
    /// Whether rounding could reverse its status; `None` if the file does not have it.
    pub edge: Option<bool>,
    /// Whether the as-of bar is not closed yet; `None` if the file does not have it.
    pub provisional: Option<bool>,
    /// Values of [`AnswerTable::select`], NaN for NA.
    pub values: Vec<f64>,
}

/// The content of one field of a file.
#[derive(Debug, Clone, PartialEq)]
enum Cell {
    Empty,
    Text(String),
    Number(f64),
    Bool(bool),
}

/// Why a file is not an answer: the place in it, if known, and what is wrong there.
#[derive(Debug)]
struct Damage {
    place: Option<String>,
    message: String,
}

impl Damage {
    fn new(message: impl Into<String>) -> Self {
        Self { place: None, message: message.into() }
    }

    fn at(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place: Some(place.into()), message: message.into() }
    }
}

/// The metadata of an answer.
#[derive(Debug, Default, serde::Deserialize)]
struct AboutRead {
    identity: Option<serde_json::Map<String, serde_json::Value>>,
    answer_digest: Option<String>,
    counts: Option<serde_json::Map<String, serde_json::Value>>,
    scan: Option<ScanRead>,
    /// Select columns of labels and dates; `None` in files of earlier releases.
    text_columns: Option<Vec<String>>,
}

/// What is read of a scan document.
#[derive(Debug, serde::Deserialize)]
struct ScanRead {
    name: Option<String>,
}

/// Reads the answer in `path`; the extension decides the format.
///
/// # Errors
/// A [`UserMistake`]: a file that cannot be read, is too large, is truncated or damaged, or is not an answer.
pub fn answer(path: &Path) -> Result<AnswerTable, UserMistake> {
    let format = Format::of(path).map_err(|_| {
        UserMistake::with_help(
            format!("cannot tell from '{}' how to read the answer", path.display()),
            format!("an answer file ends in {EXTENSIONS}"),
        )
    })?;
    let bytes = bytes(path, FILE_BYTES_MAX)?;
    let beside = if format.has_identity_beside() { identity_beside(path)? } else { None };
    let mistake = |damage: Damage| damaged(path, &damage);
    table(format, bytes, beside).map_err(mistake)
}

/// The answer in `bytes`, with the identity file beside a file of rows.
fn table(format: Format, bytes: Vec<u8>, beside: Option<AboutRead>) -> Result<AnswerTable, Damage> {
    if bytes.is_empty() {
        return Err(Damage::new("the file is empty"));
    }
    let read = || match format {
        Format::Csv => text::csv(&bytes, beside),
        Format::Json => text::json(&bytes),
        Format::JsonLines => text::json_lines(&bytes, beside),
        Format::Parquet => columnar::parquet(bytes),
        Format::Arrow => columnar::arrow(bytes),
    };
    guarded(read).unwrap_or_else(|| Err(Damage::new("the file is damaged")))
}

fn damaged(path: &Path, damage: &Damage) -> UserMistake {
    let place = damage.place.as_ref().map_or_else(String::new, |place| format!(", {place}"));
    UserMistake::with_help(format!("cannot read '{}'{place}: {}", path.display(), damage.message), WRITE_AGAIN)
}

fn bytes(path: &Path, most: u64) -> Result<Vec<u8>, UserMistake> {
    let refused = |why: String| UserMistake::plain(format!("cannot read '{}': {why}", path.display()));
    let file = std::fs::File::open(path).map_err(|e| refused(io_reason(&e)))?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(|e| refused(io_reason(&e)))?;
    if bytes.len() as u64 > most {
        return Err(refused(format!("it is larger than {}", crate::human::bytes(most))));
    }
    Ok(bytes)
}

/// The identity in `FILE.identity.json` beside `FILE`, or in its older place; `None` where there is no such file.
fn identity_beside(path: &Path) -> Result<Option<AboutRead>, UserMistake> {
    let places = [identity_path(path), shared_identity_path(path)];
    let Some(path) = places.into_iter().find(|place| place.exists()) else { return Ok(None) };
    let bytes = bytes(&path, IDENTITY_BYTES_MAX)?;
    let about = serde_json::from_slice(&bytes).map_err(|e| damaged(&path, &text::json_damage(&e)))?;
    Ok(Some(about))
}

thread_local! {
    static GUARDED: Flag<bool> = const { Flag::new(false) };
}

/// Whether this thread is inside a library that reads someone's file: a panic there is the file's fault, not a bug
/// here.
pub fn panics_are_reported_elsewhere() -> bool {
    GUARDED.with(Flag::get)
}

/// Runs `read`; `None` when it panicked.
fn guarded<T>(read: impl FnOnce() -> T) -> Option<T> {
    GUARDED.with(|flag| flag.set(true));
    let result = catch_unwind(AssertUnwindSafe(read));
    GUARDED.with(|flag| flag.set(false));
    result.ok()
}

/// The meaning of each column.
#[derive(Debug)]
struct AnswerLayout {
    time: Option<usize>,
    settings: Vec<usize>,
    place: usize,
    symbol: usize,
    status: usize,
    reason: usize,
    edge: Option<usize>,
    provisional: Option<usize>,
    values: Vec<usize>,
    columns: usize,
}

impl AnswerLayout {
    fn of(names: &[String]) -> Result<Self, Damage> {
        if names.len() > COLUMNS_MAX {
            return Err(Damage::new(format!("it has {} columns; the limit is {COLUMNS_MAX}", names.len())));
        }
        let mut seen = HashSet::new();
        if let Some(twice) = names.iter().find(|name| !seen.insert(name.as_str())) {
            return Err(Damage::new(format!("it has two columns '{twice}'")));
        }
        let position = |wanted: &str| names.iter().position(|name| name == wanted);
        let fixed = |wanted: &str| {
            position(wanted).ok_or_else(|| {
                Damage::new(format!(
                    "it is not an answer of a scan: it has no column '{wanted}' (place, symbol, status, reason)"
                ))
            })
        };
        let (place, symbol, status, reason) = (fixed("place")?, fixed("symbol")?, fixed("status")?, fixed("reason")?);
        let (edge, provisional) = (position("edge"), position("provisional"));
        let taken = [Some(symbol), Some(status), Some(reason), edge, provisional];
        if let Some(early) = taken.into_iter().flatten().find(|&i| i < place) {
            return Err(Damage::new(format!("its column '{}' is before 'place'", names[early])));
        }
        let time = position(ANSWER_TIME).filter(|&i| i < place);
        let settings = (0..place).filter(|i| Some(*i) != time).collect();
        let values = (place + 1..names.len()).filter(|i| !taken.contains(&Some(*i))).collect();
        Ok(Self { time, settings, place, symbol, status, reason, edge, provisional, values, columns: names.len() })
    }
}

/// Builds a table from rows as they are read.
struct Builder {
    layout: AnswerLayout,
    table: AnswerTable,
    /// For each select column what its cells were so far.
    seen: Vec<Seen>,
}

/// What the cells of a select column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Nothing,
    Numbers,
    /// Labels or dates, which are not compared.
    Texts,
}

impl Builder {
    /// `texts`: select columns of labels and dates, if known; without it the first cell of a column decides.
    fn new(names: &[String], texts: Option<&[String]>) -> Result<Self, Damage> {
        let layout = AnswerLayout::of(names)?;
        let table = AnswerTable {
            settings: layout.time.iter().chain(&layout.settings).map(|&i| names[i].clone()).collect(),
            select: layout.values.iter().map(|&i| names[i].clone()).collect(),
            ..AnswerTable::default()
        };
        let kind = |name: &String| match texts {
            Some(texts) if texts.contains(name) => Seen::Texts,
            Some(_) => Seen::Numbers,
            None => Seen::Nothing,
        };
        let seen = table.select.iter().map(kind).collect();
        Ok(Self { layout, table, seen })
    }

    /// Adds a row; `Err` says what is wrong with it, the caller adds where it is.
    fn push(&mut self, cells: &mut [Cell]) -> Result<(), String> {
        let layout = &self.layout;
        if cells.len() != layout.columns {
            return Err(format!("{} fields are here, {} are expected", cells.len(), layout.columns));
        }
        if self.table.rows.len() >= ROWS_MAX {
            return Err(format!("more than {ROWS_MAX} rows"));
        }
        let name = |i: usize| &self.table.select[i];
        let values = layout.values.iter().enumerate();
        let seen = &mut self.seen;
        let values = values.map(|(i, &at)| match (number(&cells[at]), &cells[at], seen[i]) {
            (_, Cell::Empty, _) => Ok(f64::NAN),
            (_, _, Seen::Texts) | (Err(_), Cell::Text(_), Seen::Nothing) => {
                seen[i] = Seen::Texts;
                Ok(f64::NAN)
            }
            (value, ..) => {
                seen[i] = Seen::Numbers;
                value.map_err(|why| format!("'{}': {why}", name(i)))
            }
        });
        let row = TableRow {
            values: values.collect::<Result<_, _>>()?,
            settings: (layout.time.iter().map(|&i| time_label(&cells[i])))
                .chain(layout.settings.iter().map(|&i| setting(&cells[i])))
                .collect(),
            place: place(&cells[layout.place])?,
            status: status(&cells[layout.status])?,
            edge: layout.edge.map_or(Ok(None), |i| boolean("edge", &cells[i]))?,
            provisional: layout.provisional.map_or(Ok(None), |i| boolean("provisional", &cells[i]))?,
            reason: words("reason", &mut cells[layout.reason])?,
            symbol: words("symbol", &mut cells[layout.symbol])?,
        };
        if row.symbol.is_empty() {
            return Err("the symbol is empty".to_owned());
        }
        self.table.rows.push(row);
        Ok(())
    }

    /// The table, once every row was added and the counts, if any, agree.
    fn finish(mut self, about: Option<AboutRead>) -> Result<AnswerTable, Damage> {
        if self.seen.contains(&Seen::Texts) {
            let is_kept = |at: usize| self.seen[at] != Seen::Texts;
            let mut at = 0;
            self.table.select.retain(|_| {
                at += 1;
                is_kept(at - 1)
            });
            for row in &mut self.table.rows {
                let kept = row.values.iter().enumerate().filter(|(at, _)| is_kept(*at));
                row.values = kept.map(|(_, value)| *value).collect();
            }
        }
        finish(self.table, about)
    }
}

fn finish(mut table: AnswerTable, about: Option<AboutRead>) -> Result<AnswerTable, Damage> {
    without_single_time(&mut table);
    let mut seen = HashSet::with_capacity(table.rows.len());
    if let Some(twice) = table.rows.iter().find(|row| !seen.insert((&row.settings, &row.symbol))) {
        return Err(Damage::new(format!("the symbol '{}' appears twice", twice.symbol)));
    }
    drop(seen);
    let Some(about) = about else { return Ok(table) };
    // The counts of a sweep count symbols; those of a plain scan are numbers of rows.
    if let Some(counts) = about.counts.as_ref().filter(|_| table.settings.is_empty()) {
        for status in Status::ALL {
            let found = table.rows.iter().filter(|row| row.status == status).count() as u64;
            if let Some(counted) = counts.get(status.name()).and_then(serde_json::Value::as_u64).filter(|&n| n != found)
            {
                let name = status.name().replace('_', " ");
                let why = format!(
                    "its identity counts {counted} {name}, but {found} rows are: the file is truncated, or the identity belongs to another file"
                );
                return Err(Damage::new(why));
            }
        }
    }
    table.identity = about.identity.map(identity_fields);
    table.answer_digest = about.answer_digest;
    table.name = about.scan.and_then(|scan| scan.name);
    Ok(table)
}

/// Rows of one time are not told apart by it: answers of different times are compared row by row.
fn without_single_time(table: &mut AnswerTable) {
    let times = || table.rows.iter().filter_map(|row| row.settings.first());
    if table.settings.first().is_none_or(|name| name != ANSWER_TIME) || times().any(|time| Some(time) != times().next())
    {
        return;
    }
    table.settings.remove(0);
    for row in &mut table.rows {
        row.settings.remove(0);
    }
}

fn identity_fields(map: serde_json::Map<String, serde_json::Value>) -> BTreeMap<String, String> {
    let as_text = |value: serde_json::Value| match value {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    map.into_iter().map(|(key, value)| (key, as_text(value))).collect()
}

fn place(cell: &Cell) -> Result<Option<u32>, String> {
    let wrong = || format!("the place is {}, a whole number from 1 or nothing is expected", shown(cell));
    let place = match cell {
        Cell::Empty => return Ok(None),
        Cell::Text(text) => text.parse::<u32>().ok(),
        Cell::Number(n) if n.fract() == 0.0 && (1.0..=f64::from(u32::MAX)).contains(n) => Some(*n as u32),
        _ => None,
    };
    place.filter(|&n| n > 0).map(Some).ok_or_else(wrong)
}

fn status(cell: &Cell) -> Result<Status, String> {
    let Cell::Text(text) = cell else {
        return Err(format!("the status is {}, a text is expected", shown(cell)));
    };
    Status::ALL.into_iter().find(|status| status.name() == text).ok_or_else(|| {
        let names: Vec<&str> = Status::ALL.iter().map(|status| status.name()).collect();
        format!("the status is {}, one of {} is expected", shown(cell), names.join(", "))
    })
}

fn boolean(name: &str, cell: &Cell) -> Result<Option<bool>, String> {
    match cell {
        Cell::Empty => Ok(None),
        Cell::Bool(value) => Ok(Some(*value)),
        Cell::Text(text) if text == "true" || text == "1" => Ok(Some(true)),
        Cell::Text(text) if text == "false" || text == "0" => Ok(Some(false)),
        _ => Err(format!("'{name}' is {}, true or false is expected", shown(cell))),
    }
}

fn words(name: &str, cell: &mut Cell) -> Result<String, String> {
    match cell {
        Cell::Empty => Ok(String::new()),
        Cell::Text(text) => Ok(std::mem::take(text)),
        other => Err(format!("the {name} is {}, a text is expected", shown(other))),
    }
}

fn number(cell: &Cell) -> Result<f64, String> {
    match cell {
        Cell::Empty => Ok(f64::NAN),
        Cell::Number(value) => Ok(*value),
        Cell::Bool(value) => Ok(f64::from(*value)),
        Cell::Text(text) if text == "true" => Ok(1.0),
        Cell::Text(text) if text == "false" => Ok(0.0),
        Cell::Text(text) => text.parse().map_err(|_| format!("{} is not a number", shown(cell))),
    }
}

/// The same text for the same number, whichever format it was read from.
/// The time of a row, in one spelling: columnar files have no text, and midnight is written with the time of day or without.
fn time_label(cell: &Cell) -> String {
    let text = setting(cell);
    parse_time(&text).map_or(text, format_time)
}

fn setting(cell: &Cell) -> String {
    let mut text = String::new();
    match cell {
        Cell::Empty => {}
        Cell::Bool(value) => text = value.to_string(),
        Cell::Number(value) => push_exact(&mut text, *value),
        Cell::Text(word) => match word.parse::<f64>() {
            Ok(value) if value.is_finite() => push_exact(&mut text, value),
            _ => text.clone_from(word),
        },
    }
    text
}

/// Characters of a field that a message shows.
const SHOWN_CHARACTERS_MAX: usize = 40;

fn shown(cell: &Cell) -> String {
    match cell {
        Cell::Empty => "empty".to_owned(),
        Cell::Text(text) => format!("'{}'", text.chars().take(SHOWN_CHARACTERS_MAX).collect::<String>()),
        Cell::Number(value) => value.to_string(),
        Cell::Bool(value) => value.to_string(),
    }
}

#[cfg(test)]
mod tests;

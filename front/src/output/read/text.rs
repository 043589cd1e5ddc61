//! Answers in files of CSV, JSON and JSON lines.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::{AboutRead, AnswerTable, Builder, COLUMNS_MAX, Cell, Damage, ROWS_MAX, finish};

/// A byte order mark, which some programs write before a CSV file's header.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The answer in a CSV file; `about` is the content of the identity file beside it.
pub fn csv(bytes: &[u8], about: Option<AboutRead>) -> Result<AnswerTable, Damage> {
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let mut reader = ::csv::Reader::from_reader(bytes);
    let names: Vec<String> = reader.headers().map_err(|e| csv_damage(&e))?.iter().map(str::to_owned).collect();
    let texts = about.as_ref().and_then(|about| about.text_columns.as_deref());
    let builder = Builder::new(&names, texts);
    let mut builder = builder.map_err(|damage| Damage { place: Some("line 1".to_owned()), ..damage })?;
    let mut record = ::csv::StringRecord::new();
    let mut cells = Vec::with_capacity(names.len());
    while reader.read_record(&mut record).map_err(|e| csv_damage(&e))? {
        cells.clear();
        cells.extend(record.iter().map(|text| match text {
            "" => Cell::Empty,
            text => Cell::Text(text.to_owned()),
        }));
        let line = record.position().map_or(0, ::csv::Position::line);
        builder.push(&mut cells).map_err(|why| Damage::at(format!("line {line}"), why))?;
    }
    ended(bytes)?;
    builder.finish(about)
}

/// Each line of a file of rows ends.
fn ended(bytes: &[u8]) -> Result<(), Damage> {
    match bytes.ends_with(b"\n") {
        true => Ok(()),
        false => Err(Damage::new("the file is truncated: its last line does not end")),
    }
}

/// The answer in a file of JSON lines; `about` is the content of the identity file beside it.
pub fn json_lines(bytes: &[u8], about: Option<AboutRead>) -> Result<AnswerTable, Damage> {
    ended(bytes)?;
    let mut names = Vec::new();
    let texts = about.as_ref().and_then(|about| about.text_columns.as_deref());
    let mut builder: Option<Builder> = None;
    for (at, line) in bytes.split_inclusive(|&c| c == b'\n').enumerate() {
        let place = |damage: Damage| Damage { place: Some(format!("line {}", at + 1)), ..damage };
        let mut json = serde_json::Deserializer::from_slice(line);
        let row = Row { names: &mut names, first: builder.is_none() }.deserialize(&mut json);
        let row = row.and_then(|cells| json.end().map(|()| cells));
        let mut cells = row.map_err(|e| place(json_damage(&e)))?;
        let builder = match &mut builder {
            Some(builder) => builder,
            none => none.insert(Builder::new(&names, texts).map_err(place)?),
        };
        builder.push(&mut cells).map_err(|why| place(Damage::new(why)))?;
    }
    finish(builder.map_or_else(AnswerTable::default, |builder| builder.table), about)
}

fn csv_damage(error: &::csv::Error) -> Damage {
    let place = error.position().map(|position| format!("line {}", position.line()));
    let message = match error.kind() {
        ::csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("{len} fields are here, {expected_len} are expected")
        }
        ::csv::ErrorKind::Utf8 { .. } => "the text is not UTF-8".to_owned(),
        _ => "the file is damaged".to_owned(),
    };
    Damage { place, message }
}

/// The answer in a JSON file.
pub fn json(bytes: &[u8]) -> Result<AnswerTable, Damage> {
    // Parsed twice: flattening both into one would hold every row as a tree first.
    #[derive(serde::Deserialize)]
    struct RowsOnly {
        rows: RowsRead,
    }
    let about: AboutRead = serde_json::from_slice(bytes).map_err(|e| json_damage(&e))?;
    let RowsOnly { rows: RowsRead(table) } = serde_json::from_slice(bytes).map_err(|e| json_damage(&e))?;
    if about.identity.is_none() {
        return Err(Damage::new("it is not an answer of a scan: it has no 'identity'"));
    }
    finish(table, Some(about))
}

/// A mistake in JSON with its place.
pub fn json_damage(error: &serde_json::Error) -> Damage {
    let text = error.to_string();
    let message = match error.classify() {
        serde_json::error::Category::Eof => "the file is truncated: more is expected here",
        _ => text.split(" at line ").next().unwrap_or_default(),
    };
    if error.line() == 0 {
        return Damage::new(message);
    }
    Damage::at(format!("line {} column {}", error.line(), error.column()), message)
}

/// `rows` of a JSON answer: objects that all have the same keys in the same order.
struct RowsRead(AnswerTable);

impl<'de> serde::Deserialize<'de> for RowsRead {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(RowsVisitor).map(Self)
    }
}

struct RowsVisitor;

impl<'de> Visitor<'de> for RowsVisitor {
    type Value = AnswerTable;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of rows")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<AnswerTable, A::Error> {
        let mut names = Vec::new();
        let mut builder: Option<Builder> = None;
        let mut count = 0;
        while let Some(mut cells) = rows.next_element_seed(Row { names: &mut names, first: builder.is_none() })? {
            count += 1;
            if count > ROWS_MAX {
                return Err(A::Error::custom(format!("more than {ROWS_MAX} rows")));
            }
            let builder = match &mut builder {
                Some(builder) => builder,
                none => none.insert(Builder::new(&names, None).map_err(|damage| A::Error::custom(damage.message))?),
            };
            builder.push(&mut cells).map_err(|why| A::Error::custom(format!("row {count}: {why}")))?;
        }
        Ok(builder.map_or_else(AnswerTable::default, |builder| builder.table))
    }
}

/// One row; the first row gives the names of the columns.
struct Row<'a> {
    names: &'a mut Vec<String>,
    first: bool,
}

impl<'de> DeserializeSeed<'de> for Row<'_> {
    type Value = Vec<Cell>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<Cell>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Row<'_> {
    type Value = Vec<Cell>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a row, such as {\"place\": 1, \"symbol\": \"IBM\", ...}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<Cell>, A::Error> {
        let mut cells = Vec::with_capacity(self.names.len());
        while let Some(name) = map.next_key::<String>()? {
            if self.first {
                if self.names.len() >= COLUMNS_MAX {
                    return Err(A::Error::custom(format!("more than {COLUMNS_MAX} columns")));
                }
                self.names.push(name);
            } else if self.names.get(cells.len()) != Some(&name) {
                return Err(A::Error::custom("the columns are not those of the first row"));
            }
            cells.push(map.next_value()?);
        }
        Ok(cells)
    }
}

impl<'de> serde::Deserialize<'de> for Cell {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CellVisitor)
    }
}

struct CellVisitor;

impl Visitor<'_> for CellVisitor {
    type Value = Cell;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, a text, true, false or null")
    }

    fn visit_unit<E>(self) -> Result<Cell, E> {
        Ok(Cell::Empty)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Cell, E> {
        Ok(Cell::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Cell, E> {
        Ok(Cell::Number(value as f64))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Cell, E> {
        Ok(Cell::Number(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Cell, E> {
        Ok(Cell::Number(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Cell, E> {
        Ok(Cell::Text(text.to_owned()))
    }
}

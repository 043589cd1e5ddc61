//! The answer as JSON: `{"identity": ..., "answer_digest": ..., "scan": ..., "counts": ..., "rows": [...]}`; or as JSON lines,
//! each of which is one of these rows, a flat object.
//!
//! Conditions are true, false or null. In JSON lines infinities are null as NA is: readers make tables of them, and a column with a text is
//! no column of numbers. Numbers are the shortest text that reads back as the same f64; NA is null, infinities are `"inf"` and `"-inf"`.

use std::borrow::Cow;
use std::io::Write;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::{Serialize, SerializeMap, SerializeSeq as _, Serializer};
use trawl_plan::{ANSWER_TIME, ColumnKind, Setting};
use trawl_wire::{Answer, AnswerRow, Status};

use super::{About, select_kind, select_text, settings_of, time_text, whole};

/// Writes the whole answer.
///
/// # Errors
/// The writer's error.
pub fn write(answer: &Answer, about: &About<'_>, writer: &mut impl Write) -> anyhow::Result<()> {
    #[derive(serde::Serialize)]
    struct Document<'a> {
        #[serde(flatten)]
        about: &'a About<'a>,
        rows: Rows<'a>,
    }
    write_pretty(&Document { about, rows: Rows(answer) }, writer)
}

/// Writes the rows as objects, each on a line.
///
/// # Errors
/// The writer's error.
pub fn write_lines(answer: &Answer, writer: &mut impl Write) -> anyhow::Result<()> {
    let time = time_text(answer);
    for row in &answer.rows {
        serde_json::to_writer(&mut *writer, &Row { answer, row, time: &time, finite: true })?;
        writer.write_all(b"\n")?;
    }
    Ok(())
}

/// A document of the answers of many times, in the form of one answer, written while they come.
pub struct ManyAnswers<W> {
    writer: W,
    rows: u64,
}

impl<W: Write> ManyAnswers<W> {
    /// Writes what comes before the rows.
    ///
    /// # Errors
    /// The writer's error.
    pub fn begin(about: &About<'_>, mut writer: W) -> anyhow::Result<Self> {
        let text = serde_json::to_string_pretty(about)?;
        // Without the line that ends the object.
        let text = text.trim_end_matches('}').trim_end();
        write!(writer, "{text},\n  \"rows\": [")?;
        Ok(Self { writer, rows: 0 })
    }

    /// Appends the rows of an answer.
    ///
    /// # Errors
    /// The writer's error.
    pub fn push(&mut self, answer: &Answer) -> anyhow::Result<()> {
        let time = time_text(answer);
        for row in &answer.rows {
            let between: &[u8] = if self.rows == 0 { b"\n    " } else { b",\n    " };
            self.writer.write_all(between)?;
            serde_json::to_writer(&mut self.writer, &Row { answer, row, time: &time, finite: false })?;
            self.rows += 1;
        }
        Ok(())
    }

    /// Ends the document and returns the writer.
    ///
    /// # Errors
    /// The writer's error.
    pub fn finish(mut self) -> anyhow::Result<W> {
        self.writer.write_all(if self.rows == 0 { b"]\n}\n" } else { b"\n  ]\n}\n" })?;
        Ok(self.writer)
    }
}

/// Writes the file beside a file of rows: everything but the rows.
///
/// # Errors
/// The writer's error.
pub fn write_about(about: &About<'_>, writer: &mut impl Write) -> anyhow::Result<()> {
    write_pretty(about, writer)
}

fn write_pretty(value: &impl Serialize, writer: &mut impl Write) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut *writer, value)?;
    writer.write_all(b"\n")?;
    Ok(())
}

/// For the schema: an answer as [`write`] writes it.
#[derive(serde::Serialize, JsonSchema)]
#[schemars(rename = "Answer")]
#[allow(dead_code, reason = "its fields are the schema's")]
pub struct AnswerSchema<'a> {
    #[serde(flatten)]
    about: About<'a>,
    /// One for each symbol, and for each combination of a sweep.
    rows: Vec<RowSchema>,
}

/// One symbol at one bar, in the order of the answer; select columns and a sweep's variables by their names.
#[derive(serde::Serialize, JsonSchema)]
#[schemars(rename = "AnswerRow")]
#[allow(dead_code, reason = "its fields are the schema's")]
struct RowSchema {
    /// The bar.
    time: String,
    /// Rank among the matches, from 1; null for what does not match.
    place: Option<u32>,
    /// Its name.
    symbol: String,
    /// What became of it.
    status: StatusSchema,
    /// Whether rounding could turn a comparison.
    edge: bool,
    /// Whether the bar was not closed yet.
    provisional: bool,
    /// Why it has this status; empty where that is plain.
    reason: String,
    #[serde(flatten)]
    columns: std::collections::BTreeMap<String, CellSchema>,
}

/// For the schema: a status by its name.
#[derive(serde::Serialize)]
struct StatusSchema;

impl JsonSchema for StatusSchema {
    fn schema_name() -> Cow<'static, str> {
        "Status".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": Status::ALL.map(Status::name) })
    }
}

/// For the schema: a [`Cell`], or a variable of a sweep.
#[derive(serde::Serialize)]
pub struct CellSchema;

impl JsonSchema for CellSchema {
    fn schema_name() -> Cow<'static, str> {
        "Cell".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["number", "boolean", "string", "null"],
            "description": "A number, a condition, a text or a date; null for NA, \"inf\" and \"-inf\" for infinities",
        })
    }
}

struct Rows<'a>(&'a Answer);

impl Serialize for Rows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut rows = serializer.serialize_seq(Some(self.0.rows.len()))?;
        let time = time_text(self.0);
        for row in &self.0.rows {
            rows.serialize_element(&Row { answer: self.0, row, time: &time, finite: false })?;
        }
        rows.end()
    }
}

struct Row<'a> {
    answer: &'a Answer,
    row: &'a AnswerRow,
    time: &'a str,
    /// Whether infinities are null.
    finite: bool,
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(ANSWER_TIME, self.time)?;
        Settings(settings_of(self.answer, self.row)).entries(&mut map)?;
        map.serialize_entry("place", &self.row.place)?;
        map.serialize_entry("symbol", &self.row.row.symbol)?;
        map.serialize_entry("status", self.row.row.status.name())?;
        map.serialize_entry("edge", &self.row.row.edge)?;
        map.serialize_entry("provisional", &self.row.row.provisional)?;
        map.serialize_entry("reason", &self.row.row.reason)?;
        for (i, name) in self.answer.select.iter().enumerate() {
            let value = self.row.row.values.get(i).copied().filter(|value| value.is_finite() || !self.finite);
            let value = value.unwrap_or(f64::NAN);
            map.serialize_entry(name, &Cell { value, kind: select_kind(self.answer, i) })?;
        }
        map.end()
    }
}

/// The sweep's variables at one of its points, as an object.
pub struct Settings<'a>(pub &'a [(String, Setting)]);

impl Settings<'_> {
    /// Whether there is no sweep.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn entries<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        for (name, value) in self.0 {
            match value {
                Setting::Number(value) => match whole(*value) {
                    Some(whole) => map.serialize_entry(name, &whole)?,
                    None => map.serialize_entry(name, &Number(*value))?,
                },
                Setting::Text(word) => map.serialize_entry(name, word)?,
            }
        }
        Ok(())
    }
}

impl Serialize for Settings<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        self.entries(&mut map)?;
        map.end()
    }
}

/// A value of a select column in JSON.
pub struct Cell<'a> {
    /// The value, NaN for NA.
    pub value: f64,
    /// The kind of its column.
    pub kind: &'a ColumnKind,
}

impl Serialize for Cell<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.kind {
            ColumnKind::Number => Number(self.value).serialize(serializer),
            ColumnKind::Condition if !self.value.is_nan() => serializer.serialize_bool(self.value == 1.0),
            kind => select_text(kind, self.value).serialize(serializer),
        }
    }
}

/// A number in JSON: null for NA, text for infinities.
#[derive(Debug, Clone, Copy)]
pub struct Number(pub f64);

impl JsonSchema for Number {
    fn schema_name() -> Cow<'static, str> {
        "Number".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{ "type": ["number", "null"] }, { "type": "string", "enum": ["inf", "-inf"] }],
            "description": "A number; null for NA, a text for infinities",
        })
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            value if value.is_finite() => serializer.serialize_f64(value),
            value if value.is_nan() => serializer.serialize_none(),
            value => serializer.serialize_str(if value > 0.0 { "inf" } else { "-inf" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use trawl_testing::sample_answer as sample;

    #[test]
    fn the_file_is_read_back_as_the_same_rows() {
        let answer = sample();
        let mut bytes = Vec::new();
        write(&answer, &About::new(&answer, None), &mut bytes).unwrap();
        let read: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(read["identity"]["snapshot"], answer.identity.snapshot);
        assert_eq!(read["answer_digest"], "d1");
        assert_eq!(read["counts"]["unknown"], 1);
        let rows = read["rows"].as_array().unwrap();
        assert_eq!(rows.len(), answer.rows.len());
        assert_eq!(
            rows[0],
            json!({"time": "2013-02-22", "place": 1, "symbol": "IBM", "status": "matched", "edge": false, "provisional": false, "reason": "", "close": 201.09, "a, \"b\"": null})
        );
        assert_eq!(rows[1]["a, \"b\""], "inf");
        assert_eq!(rows[2]["a, \"b\""], "-inf");
        assert_eq!(rows[2]["place"], Value::Null);
        assert_eq!(rows[4]["close"], Value::Null);
        let text = String::from_utf8(bytes).unwrap();
        // The schema has what is written by hand.
        let mut generator = schemars::generate::SchemaSettings::draft2020_12().for_serialize().into_generator();
        let schema = generator.root_schema_for::<AnswerSchema<'_>>().to_value();
        let known = |pointer: &str, key: &str| schema.pointer(&format!("{pointer}/properties/{key}")).is_some();
        assert!(read.as_object().unwrap().keys().all(|key| known("", key)), "{schema}");
        assert!(read["counts"].as_object().unwrap().keys().all(|key| known("/$defs/Counts", key)), "{schema}");
        let columns = ["close", "a, \"b\""];
        for row in rows {
            let keys = row.as_object().unwrap().keys();
            assert!(keys.filter(|key| !columns.contains(&key.as_str())).all(|key| known("/$defs/AnswerRow", key)));
        }
        let statuses = schema["$defs"]["Status"]["enum"].as_array().unwrap();
        assert!(rows.iter().all(|row| statuses.contains(&row["status"])));
        let order = ["\"identity\"", "\"answer_digest\"", "\"counts\"", "\"rows\""];
        let places: Vec<usize> = order.iter().map(|key| text.find(key).unwrap()).collect();
        assert!(places.is_sorted());
    }
}

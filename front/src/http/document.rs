//! Scan documents and times of requests: read, and refused where they are none.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;
use trawl_market::AsOf;
use trawl_plan::ScanDocument;
use trawl_telemetry::metrics::catalogue::coordinator::{HTTP_REFUSALS, HttpRefusal};
use trawl_wire::limits::DOCUMENT_BYTES_MAX;

use super::asked::Asked;
use super::problem::{Kind, Problem};
use super::read::is_object;
use crate::mistake::UserMistake;

/// A scan document as a JSON object, with the keys of the TOML document.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct RawDocument(Box<RawValue>);

impl JsonSchema for RawDocument {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ScanDocument".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let text = schemars::json_schema!({ "type": "string" });
        let texts = schemars::json_schema!({ "type": "object", "additionalProperties": { "type": "string" } });
        schemars::json_schema!({
            "type": "object",
            "description": "A scan document: the keys of the TOML document, docs/language.md",
            "properties": {
                "name": text, "dataset": text, "timeframe": text, "adjust": text, "precision": text, "max_age": text,
                "forming": { "type": "boolean" }, "universe": text, "where": text, "rank": text,
                "limit": { "type": "integer", "minimum": 0 },
                "select": { "type": "array", "items": { "type": "string" } },
                "let": texts, "def": texts, "sweep": { "type": "object" }, "sweep_where": text,
                "history": { "type": "object" }, "best": { "type": "object" },
                "scan": { "type": "array", "items": { "type": "object" } }
            },
            "additionalProperties": false
        })
    }
}

pub(super) fn as_of(text: Option<&str>, name: &str) -> Result<AsOf, Problem> {
    let Some(text) = text else { return Ok(AsOf::Newest) };
    AsOf::parse(text).map_err(|mistake| {
        let message = format!("{name}: {mistake}");
        Problem::new(Kind::Invalid, message).help(mistake.help)
    })
}

/// The first bar of a span, or another time of one.
pub(super) fn first_bar(text: Option<&str>, name: &str) -> Result<Option<AsOf>, Problem> {
    match text.map(|text| as_of(Some(text), name)).transpose()? {
        Some(AsOf::LastSession | AsOf::Newest) => {
            let message = format!("{name}: a date or a time is expected, such as 2024-06-28");
            Err(Problem::new(Kind::Invalid, message))
        }
        time => Ok(time),
    }
}

impl RawDocument {
    /// The document.
    ///
    /// # Errors
    /// One that is too long, or none.
    pub(super) fn read(self) -> Result<ScanDocument, Problem> {
        let Self(raw) = self;
        too_long(raw.get())?;
        let unreadable = |why: String| Problem::new(Kind::Invalid, format!("the scan document cannot be read: {why}"));
        if !is_object(raw.get().as_bytes()) {
            return Err(unreadable("a JSON object is expected".to_owned()));
        }
        ScanDocument::from_json(raw.get()).map_err(unreadable)
    }
}

/// The document of a request, from one of its two forms; `name` is the key of its time.
pub(super) fn asked(
    document: Option<RawDocument>,
    text: Option<String>,
    time: Option<&str>,
    name: &str,
) -> Result<Asked, Problem> {
    let read = match (document, text) {
        (Some(document), None) => (document.read()?, None),
        (None, Some(text)) => {
            too_long(&text)?;
            let document = ScanDocument::from_toml(&text)
                .map_err(|mistake| Problem::of_mistake(&UserMistake::Drawn(vec![*mistake])))?;
            (document, Some(text))
        }
        (Some(_), Some(_)) => {
            return Err(Problem::new(Kind::Invalid, "'document' and 'text' are two documents").help("give one of them"));
        }
        (None, None) => {
            let help = "give 'document', a scan document as an object, or 'text', one as TOML";
            return Err(Problem::new(Kind::Invalid, "there is no scan document").help(help));
        }
    };
    Ok(Asked { document: read.0, text: read.1, as_of: as_of(time, name)? })
}

fn too_long(text: &str) -> Result<(), Problem> {
    if text.len() <= DOCUMENT_BYTES_MAX {
        return Ok(());
    }
    HTTP_REFUSALS.of(HttpRefusal::TooLarge).inc();
    let message = format!("the scan document has {} bytes, at most {DOCUMENT_BYTES_MAX} are taken", text.len());
    Err(Problem::new(Kind::TooLarge, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The schema is written by hand; serde knows the keys.
    #[test]
    fn the_described_document_has_the_keys_that_documents_have() {
        let schema = RawDocument::json_schema(&mut schemars::SchemaGenerator::default()).to_value();
        let described = schema["properties"].as_object().expect("properties");
        let refusal = serde_json::from_str::<ScanDocument>(r#"{"no such key": 1}"#).unwrap_err().to_string();
        let (_, expected) = refusal.split_once("expected one of").expect("serde lists the keys");
        let known: std::collections::BTreeSet<&str> = expected.split('`').skip(1).step_by(2).collect();
        // Files are read where the document is: a document that is sent names none.
        let known: Vec<&str> = known.into_iter().filter(|key| *key != "include").collect();
        let mut names: Vec<&str> = described.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, known);
        // And of these types: a document with a value of each is read.
        for (name, of) in described {
            let value = match (name.as_str(), of["type"].as_str().expect("a type")) {
                ("history", _) => r#"{"bars": 100}"#,
                ("best", _) => r#"{"by": "close"}"#,
                ("scan", _) => r#"[{"name": "a", "where": "close > 1"}]"#,
                ("let" | "def", "object") => r#"{"a": "close"}"#,
                ("sweep", _) => r#"{"n": [1, 2]}"#,
                (_, "string") => r#""close""#,
                (_, "boolean") => "true",
                (_, "integer") => "3",
                (_, "array") => r#"["close"]"#,
                (_, other) => panic!("{name} is of type {other}"),
            };
            let document = format!(r#"{{"{name}": {value}}}"#);
            assert!(ScanDocument::from_json(&document).is_ok(), "{document}: {:?}", ScanDocument::from_json(&document));
        }
    }
}

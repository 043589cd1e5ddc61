//! Bodies and queries: their types, and what is checked of them before any dataset is opened. `read` reads them.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::HeaderMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use trawl_coordinator::ShardSpec;
use trawl_market::{AsOf, parse_time};
use trawl_plan::{History, ScanDocument};
use trawl_telemetry::metrics::catalogue::coordinator::{HTTP_REFUSALS, HttpRefusal};
use trawl_terms::Priority;
use trawl_wire::limits::DOCUMENT_BYTES_MAX;
use trawl_wire::pb;
use trawl_wire::record::checked_name;

use super::asked::Asked;
use super::door::Submission;
use super::problem::{Kind, Problem};
use super::read::is_object;
use super::series::SeriesQuestion;
use crate::mistake::UserMistake;
use crate::records::parse_state;

/// Longest deadline, in seconds: 30 days.
const DEADLINE_S_MAX: f64 = 2_592_000.0;
/// Longest wait for an answer, in seconds.
pub const WAIT_S_MAX: u32 = 60;
/// Maximum scans in a list.
pub const LISTED_MAX: u32 = 1000;
/// Header of the key under which the same request is the same scan.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";

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

/// A share of the workers' time while other scans compete for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PriorityWord {
    /// A quarter of a normal scan's.
    Low,
    /// One share.
    #[default]
    Normal,
    /// Four times a normal scan's.
    High,
}

/// What computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BackendWord {
    /// The CPU.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
}

/// `auto`, `per-group` or a number of shards.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ShardsWord {
    /// So many shards.
    Count(u32),
    /// `auto`, `per-group`, or a number as text.
    Text(String),
}

/// A scan: its document as an object, or as the text of a TOML document.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScanBody {
    /// The document as an object.
    document: Option<RawDocument>,
    /// The document as TOML.
    text: Option<String>,
    /// The bar: a date, a time, `now`, `today` or `last-session`; the newest closed bar without it.
    as_of: Option<String>,
    /// Share of the workers' time.
    #[serde(default)]
    priority: PriorityWord,
    /// Seconds that the scan may take.
    #[schemars(range(min = 0.001, max = 2_592_000.0))]
    deadline_s: Option<f64>,
    /// Whether the scan ends with its request and is not recorded; only for `POST /v1/answers`.
    #[serde(default)]
    ephemeral: bool,
    /// Whether symbols that fail for reasons other than their data are left out, instead of failing the scan.
    #[serde(default)]
    allow_partial: bool,
    /// Whether it is computed even if the answer of an earlier scan with the same identity is known.
    #[serde(default)]
    fresh: bool,
    /// Whether the stages of every shard are traced.
    #[serde(default)]
    profile: bool,
    /// What computes; the server chooses without it.
    backend: Option<BackendWord>,
    /// How the work is divided; no answer depends on it.
    shards: Option<ShardsWord>,
}

/// A scan to explain.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainBody {
    /// The document as an object.
    document: Option<RawDocument>,
    /// The document as TOML.
    text: Option<String>,
    /// As in a scan.
    as_of: Option<String>,
}

/// Columns along the bars of a symbol.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SeriesBody {
    /// `NAME` or `NAME@SNAPSHOT`.
    dataset: String,
    /// The symbol.
    symbol: String,
    /// Expressions, each with a name by `as` or named by its text.
    #[schemars(length(max = 64))]
    #[serde(default)]
    exprs: Vec<String>,
    /// Whether the dataset's own columns are among them, in front.
    #[serde(default)]
    bars: bool,
    /// Words for the expressions.
    #[serde(default, rename = "let")]
    lets: BTreeMap<String, String>,
    /// Functions for the expressions, by name and parameters, such as `rs(n)`.
    #[serde(default, rename = "def")]
    defs: BTreeMap<String, String>,
    /// Corrections of prices, as in a scan document.
    adjust: Option<String>,
    /// Number type of the arithmetic, as in a scan document.
    precision: Option<String>,
    /// The bars' timeframe, as in a scan document: one that the dataset has to be built for is refused.
    timeframe: Option<String>,
    /// How much of the history is seen, as in a scan document: refused, since each bar sees its own.
    #[schemars(with = "Option<super::replies::Object>")]
    history: Option<History>,
    /// The first bar: a date or a time.
    from: Option<String>,
    /// The last bar; takes precedence over `as_of`.
    to: Option<String>,
    /// The last bar, as in a scan.
    as_of: Option<String>,
}

/// Which scans are listed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListQuery {
    /// At most so many.
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<u32>,
    /// Only those that wait or run.
    #[serde(default)]
    active: bool,
    /// Only these states, separated by commas.
    state: Option<String>,
    /// Only scans of this caller.
    owner: Option<String>,
    /// Only scans of this dataset.
    dataset: Option<String>,
    /// Only scans submitted at or after this time, in UTC.
    from: Option<String>,
    /// Only scans submitted before this time, in UTC.
    before: Option<String>,
}

/// How an answer is given.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerQuery {
    /// `json`, `ndjson`, `csv`, `arrow` or `parquet`; takes precedence over `Accept`.
    pub format: Option<String>,
    /// Seconds to wait for the end of a scan that waits or runs.
    #[schemars(range(max = 60))]
    pub wait_s: Option<u32>,
}

/// How an answer or series is given.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FormatQuery {
    /// `json`, `ndjson`, `csv`, `arrow` or `parquet`; takes precedence over `Accept`.
    pub format: Option<String>,
}

/// What of a dataset is inspected.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InspectQuery {
    /// One symbol in detail.
    pub symbol: Option<String>,
    /// Whether every symbol is listed.
    #[serde(default)]
    pub all: bool,
}

/// No parameters.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NoQuery {}

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

impl ScanBody {
    /// Checks the request.
    pub fn submission(self, headers: &HeaderMap) -> Result<Submission, Problem> {
        let deadline = self.deadline_s.map(|seconds| {
            let time = (seconds > 0.0 && seconds <= DEADLINE_S_MAX).then(|| Duration::try_from_secs_f64(seconds).ok());
            time.flatten().filter(|time| !time.is_zero()).ok_or_else(|| {
                Problem::new(
                    Kind::Invalid,
                    format!("deadline_s: seconds above 0 and up to {DEADLINE_S_MAX} are expected"),
                )
            })
        });
        let shards = match self.shards {
            None => ShardSpec::Automatic,
            Some(ShardsWord::Count(count @ 1..)) => ShardSpec::Count(count),
            Some(ShardsWord::Text(text)) if text == "auto" => ShardSpec::Automatic,
            Some(ShardsWord::Text(text)) if text == "per-group" => ShardSpec::PerSegment,
            Some(ShardsWord::Text(text)) if text.parse().is_ok_and(|count: u32| count > 0) => {
                ShardSpec::Count(text.parse().unwrap_or(1))
            }
            Some(_) => {
                let message = "shards: a number from 1, 'per-group' or 'auto' is expected";
                return Err(Problem::new(Kind::Invalid, message));
            }
        };
        let key = headers.get(IDEMPOTENCY_KEY).map(|key| {
            let name = key.to_str().map_err(|_| "it is not ASCII text".to_owned()).and_then(checked_name);
            name.map_err(|why| Problem::malformed(format!("Idempotency-Key: {why}")))
        });
        Ok(Submission {
            asked: asked(self.document, self.text, self.as_of.as_deref(), "as_of")?,
            priority: match self.priority {
                PriorityWord::Low => Priority::Low,
                PriorityWord::Normal => Priority::Normal,
                PriorityWord::High => Priority::High,
            },
            deadline: deadline.transpose()?,
            ephemeral: self.ephemeral,
            allow_partial: self.allow_partial,
            fresh: self.fresh,
            profile: self.profile,
            backend: self.backend.map(|backend| match backend {
                BackendWord::Cpu => "cpu",
                BackendWord::Cuda => "cuda",
            }),
            shards,
            idempotency_key: key.transpose()?,
        })
    }
}

impl ExplainBody {
    /// Checks the request.
    pub fn asked(self) -> Result<Asked, Problem> {
        asked(self.document, self.text, self.as_of.as_deref(), "as_of")
    }
}

impl SeriesBody {
    /// Checks the request.
    pub fn question(self) -> Result<SeriesQuestion, Problem> {
        let from = first_bar(self.from.as_deref(), "from")?;
        let to = match &self.to {
            Some(to) => as_of(Some(to), "to")?,
            None => as_of(self.as_of.as_deref(), "as_of")?,
        };
        let document = ScanDocument {
            lets: self.lets,
            defs: self.defs,
            adjust: self.adjust,
            precision: self.precision,
            timeframe: self.timeframe,
            history: self.history,
            ..ScanDocument::default()
        };
        SeriesQuestion::new(self.dataset, self.symbol, self.exprs, self.bars, document, (from, to))
    }
}

impl ListQuery {
    /// The request to the scans' owner.
    pub fn wanted(self) -> Result<pb::ListScansRequest, Problem> {
        let invalid = |message: String| Problem::new(Kind::Invalid, message);
        if self.limit.is_some_and(|limit| limit == 0 || limit > LISTED_MAX) {
            return Err(invalid(format!("limit: a number from 1 to {LISTED_MAX} is expected")));
        }
        let states = self.state.iter().flat_map(|text| text.split(',')).map(|name| parse_state(name).map(i32::from));
        let states = states.collect::<Result<Vec<i32>, String>>().map_err(|why| invalid(format!("state: {why}")))?;
        let time = |name: &str, text: Option<&String>| match text {
            None => Ok(None),
            Some(text) => parse_time(text).map(Some).ok_or_else(|| {
                invalid(format!("{name}: a time in UTC is expected, such as 2026-11-02 or 2026-11-02T09:30:00"))
            }),
        };
        Ok(pb::ListScansRequest {
            limit: self.limit.unwrap_or(0),
            active: self.active,
            states,
            submitted_from_us: time("from", self.from.as_ref())?,
            submitted_before_us: time("before", self.before.as_ref())?,
            owner: self.owner.unwrap_or_default(),
            dataset: self.dataset.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::read::query;
    use super::*;

    fn scan(json: &str) -> Result<Submission, Problem> {
        let body: ScanBody = serde_json::from_str(json).map_err(|error| Problem::malformed(error.to_string()))?;
        body.submission(&HeaderMap::new())
    }

    #[test]
    fn a_document_comes_as_an_object_or_as_toml_and_not_as_both() {
        let object = scan(r#"{"document": {"dataset": "us5", "where": "close > 1", "let": {"x": 3}}}"#).unwrap();
        let text = scan(r#"{"text": "dataset = 'us5'\nwhere = 'close > 1'\n[let]\nx = 3\n"}"#).unwrap();
        assert_eq!(object.asked.document, text.asked.document);
        for (both, why) in [
            ("{}", "no scan document"),
            (r#"{"document": {}, "text": ""}"#, "two documents"),
            (r#"{"document": {"wher": "x"}}"#, "unknown field"),
            (r#"{"document": []}"#, "cannot be read"),
        ] {
            let problem = scan(both).unwrap_err();
            assert!(problem.error.message.contains(why) && problem.status == 422, "{both}: {:?}", problem.error);
        }
    }

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

    #[test]
    fn a_mistake_in_toml_has_its_place() {
        let problem = scan(r#"{"text": "where = 'close > 1'\nlimt = 3\n"}"#).unwrap_err();
        let mistake = &problem.error.mistakes[0];
        assert_eq!(mistake.text.get(mistake.start..mistake.end), Some("limt"));
        assert_eq!(mistake.help.as_deref(), Some("did you mean 'limit'?"));
    }

    #[test]
    fn what_a_request_may_not_have_is_refused_with_what_is_expected() {
        let with = |more: &str| scan(&format!(r#"{{"document": {{"dataset": "us5", "where": "close > 1"}}, {more}}}"#));
        for (more, why, status) in [
            (r#""deadline_s": 0"#, "above 0", 422),
            (r#""deadline_s": 1e300"#, "above 0", 422),
            (r#""deadline_s": 1e-12"#, "above 0", 422),
            (r#""shards": 0"#, "from 1", 422),
            (r#""shards": "many""#, "per-group", 422),
            (r#""as_of": "yesterday-ish""#, "as_of", 422),
            (r#""priority": "urgent""#, "unknown variant", 400),
            (r#""backend": "tpu""#, "unknown variant", 400),
            (r#""wat": 1"#, "unknown field", 400),
        ] {
            let problem = with(more).unwrap_err();
            assert!(problem.error.message.contains(why), "{more}: {}", problem.error.message);
            assert_eq!(problem.status.as_u16(), status, "{more}");
        }
        assert_eq!(with(r#""shards": "7""#).unwrap().shards, ShardSpec::Count(7));
        assert_eq!(with(r#""deadline_s": 0.5"#).unwrap().deadline, Some(Duration::from_millis(500)));
    }

    #[test]
    fn a_query_has_known_parameters_of_their_types() {
        let read = |text: &str| query::<ListQuery>(Some(text)).and_then(ListQuery::wanted);
        let wanted = read("limit=5&active=true&state=done,failed&from=2026-11-02").unwrap();
        assert_eq!((wanted.limit, wanted.active, wanted.states.len()), (5, true, 2));
        for (text, status) in [("limit=0", 422), ("limit=x", 400), ("what=1", 400), ("state=dne", 422), ("from=x", 422)]
        {
            assert_eq!(read(text).unwrap_err().status.as_u16(), status, "{text}");
        }
        assert!(read("state=dne").unwrap_err().error.message.contains("did you mean 'done'"));
    }
}

//! Bodies of scans and series: their types, and what is checked of them before any dataset is opened. `read` reads them; their documents
//! and times are in `document`.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::HeaderMap;
use schemars::JsonSchema;
use serde::Deserialize;
use trawl_coordinator::ShardSpec;
use trawl_plan::{History, ScanDocument};
use trawl_terms::Priority;
use trawl_wire::record::checked_name;

use super::asked::Asked;
use super::document::{RawDocument, as_of, asked, first_bar};
use super::door::Submission;
use super::problem::{Kind, Problem};
use super::series::SeriesQuestion;

/// Longest deadline, in seconds: 30 days.
const DEADLINE_S_MAX: f64 = 2_592_000.0;
/// Header of the key under which the same request is the same scan.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";

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

#[cfg(test)]
mod tests {
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
}

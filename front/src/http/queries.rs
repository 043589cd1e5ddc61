//! Queries: their types, and what is checked of them. `read` reads them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trawl_market::parse_time;
use trawl_wire::pb;

use super::problem::{Kind, Problem};
use crate::records::parse_state;

/// Longest wait for an answer, in seconds.
pub const WAIT_S_MAX: u32 = 60;
/// Maximum scans in a list.
pub const LISTED_MAX: u32 = 1000;

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

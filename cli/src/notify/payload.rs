//! The body of a notification: the answer's identity, the scan, the counts by status, and the matches in their places.

use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use trawl_plan::ScanDocument;
use trawl_wire::{Answer, AnswerRow};

use trawl_front::output::json::{Cell, Settings};
use trawl_front::output::{About, select_kind, settings_of};

/// Most matches in one notification; `truncated` says whether there were more.
pub const MATCHES_MAX: usize = 1000;
/// Most bytes of all matches in one notification, for answers with very many columns.
pub const MATCHES_BYTES_MAX: usize = 1 << 20;

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    about: About<'a>,
    matches: &'a [Match<'a>],
    /// Whether the answer has more matches than these.
    truncated: bool,
}

#[derive(Serialize)]
struct Match<'a> {
    place: Option<u32>,
    symbol: &'a str,
    /// The sweep's variables at this match.
    #[serde(skip_serializing_if = "Settings::is_empty")]
    settings: Settings<'a>,
    values: Values<'a>,
}

struct Values<'a> {
    answer: &'a Answer,
    row: &'a AnswerRow,
}

impl Serialize for Values<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.answer.select.len()))?;
        for (i, name) in self.answer.select.iter().enumerate() {
            let value = self.row.row.values.get(i).copied().unwrap_or(f64::NAN);
            map.serialize_entry(name, &Cell { value, kind: select_kind(self.answer, i) })?;
        }
        map.end()
    }
}

/// The body: the same bytes for the same answer.
///
/// # Errors
/// Only for lack of memory, as text.
pub fn body(answer: &Answer, scan: Option<&ScanDocument>) -> Result<Vec<u8>, String> {
    bounded(answer, scan, MATCHES_MAX, MATCHES_BYTES_MAX).map_err(|e| e.to_string())
}

fn bounded(
    answer: &Answer,
    scan: Option<&ScanDocument>,
    most: usize,
    bytes_most: usize,
) -> serde_json::Result<Vec<u8>> {
    let placed = answer.rows.iter().filter(|row| row.place.is_some());
    let mut matches = Vec::new();
    let (mut bytes, mut truncated) = (0, false);
    for row in placed {
        let settings = Settings(settings_of(answer, row));
        let values = Values { answer, row };
        let item = Match { place: row.place, symbol: &row.row.symbol, settings, values };
        bytes += serde_json::to_vec(&item)?.len();
        if matches.len() == most || bytes > bytes_most {
            truncated = true;
            break;
        }
        matches.push(item);
    }
    serde_json::to_vec(&Document { about: About::new(answer, scan), matches: &matches, truncated })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use trawl_plan::Setting;
    use trawl_testing::sample_answer as sample;

    fn posted(most: usize, bytes_most: usize) -> Value {
        let scan = ScanDocument { name: Some("breakouts".to_owned()), ..ScanDocument::default() };
        serde_json::from_slice(&bounded(&sample(), Some(&scan), most, bytes_most).unwrap()).unwrap()
    }

    #[test]
    fn placed_matches_are_posted_with_identity_and_counts() {
        let posted = posted(10, 1 << 20);
        assert_eq!(posted["identity"]["dataset"], "us5");
        assert_eq!(posted["answer_digest"], "d1");
        assert_eq!(posted["scan"]["name"], "breakouts");
        assert_eq!((&posted["counts"]["matched"], &posted["counts"]["symbols"]), (&json!(3), &json!(8)));
        assert_eq!(
            posted["matches"],
            json!([
                {"place": 1, "symbol": "IBM", "values": {"close": 201.09, "a, \"b\"": null}},
                {"place": 2, "symbol": "ÅÄÖ", "values": {"close": 0.1, "a, \"b\"": "inf"}},
            ])
        );
        assert_eq!(posted["truncated"], false);
    }

    #[test]
    fn matches_of_a_sweep_have_their_settings() {
        let point =
            |n: f64, mode: &str| vec![("n".to_owned(), n.into()), ("mode".to_owned(), Setting::Text(mode.to_owned()))];
        let mut answer = Answer { points: vec![point(10.0, "wide"), point(20.0, "wide")], ..sample() };
        answer.rows[1].row = answer.rows[0].row.clone();
        answer.rows[1].row.point = 1;
        let posted: Value = serde_json::from_slice(&body(&answer, None).unwrap()).unwrap();
        let settings = |i: usize| (posted["matches"][i]["symbol"].clone(), posted["matches"][i]["settings"].clone());
        assert_eq!(settings(0), (json!("IBM"), json!({"n": 10, "mode": "wide"})));
        assert_eq!(settings(1), (json!("IBM"), json!({"n": 20, "mode": "wide"})));
    }

    #[test]
    fn too_many_or_too_long_matches_are_truncated_and_reported() {
        for cut in [posted(1, 1 << 20), posted(10, 100)] {
            assert_eq!((cut["matches"].as_array().unwrap().len(), &cut["truncated"]), (1, &json!(true)));
        }
        assert_eq!(posted(2, 1 << 20)["truncated"], false);
    }
}

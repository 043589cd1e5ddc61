//! Why symbols are in an answer, and which almost are, as JSON (`--why --json`, `--near --json`).

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::json;
use trawl_coordinator::{Explained, NearMiss, PartValue, Question, SeenPart};
use trawl_plan::graph::Kind;
use trawl_wire::Answer;

use crate::output::json::Number;

/// One symbol as JSON. `answer` is the scan's own.
pub fn why_json(question: &Question, explained: &Explained, answer: &Answer) -> serde_json::Value {
    let row = answer.rows.iter().find(|r| r.row.symbol == question.symbol);
    let number = |value: f64| serde_json::to_value(Number(value)).unwrap_or_default();
    let part = |of: &PartValue| {
        let condition = of.part.kind == Kind::Bool;
        let value = match of.value {
            value if condition && !value.is_nan() => (value == 1.0).into(),
            value => number(value),
        };
        let [last_true, last_false] =
            of.since.map_or([serde_json::Value::Null, serde_json::Value::Null], |s| s.map(number));
        json!({
            "clause": of.part.clause,
            "text": of.part.text,
            "seen": of.part.seen,
            "depth": of.part.depth,
            "kind": if condition { "condition" } else { "number" },
            "value": value,
            "decided": of.reason,
            "bars_needed": of.part.look_back + 1,
            "bars_since_true": last_true,
            "bars_since_false": last_false,
        })
    };
    json!({
        "symbol": question.symbol,
        "status": row.map(|r| r.row.status.name()),
        "reason": row.map(|r| r.row.reason.as_str()),
        "place": row.and_then(|r| r.place),
        "edge": row.map(|r| r.row.edge),
        "provisional": row.map(|r| r.row.provisional),
        "dataset": answer.identity.dataset,
        "snapshot": answer.identity.snapshot,
        "as_of": answer.identity.as_of,
        "bars": explained.bars,
        "labels": question.labels.iter().cloned().collect::<BTreeMap<_, _>>(),
        "parts": explained.parts.iter().map(part).collect::<Vec<_>>(),
    })
}

/// The value of a condition; `None` for a number or NA.
pub fn truth(part: &SeenPart) -> Option<bool> {
    (part.is_condition && !part.value.is_nan()).then_some(part.value == 1.0)
}

/// The symbols that almost match, as JSON.
///
/// # Errors
/// None but for lack of memory.
pub fn near_json(misses: &[NearMiss]) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Miss<'a> {
        symbol: &'a str,
        fails: Vec<Term<'a>>,
    }
    #[derive(Serialize)]
    struct Term<'a> {
        term: &'a str,
        /// False, or null for NA.
        value: Option<bool>,
        sees: Vec<Seen<'a>>,
    }
    #[derive(Serialize)]
    struct Seen<'a> {
        part: &'a str,
        value: Value,
    }
    #[derive(Serialize)]
    #[serde(untagged)]
    enum Value {
        Truth(bool),
        Number(Number),
    }
    let value = |part: &SeenPart| truth(part).map_or(Value::Number(Number(part.value)), Value::Truth);
    let misses: Vec<Miss<'_>> = misses
        .iter()
        .map(|miss| Miss {
            symbol: &miss.symbol,
            fails: miss
                .fails
                .iter()
                .map(|term| Term {
                    term: &term.text,
                    value: if term.is_na { None } else { Some(false) },
                    sees: term.sees.iter().map(|part| Seen { part: &part.text, value: value(part) }).collect(),
                })
                .collect(),
        })
        .collect();
    serde_json::to_string_pretty(&misses)
}

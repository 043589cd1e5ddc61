//! Why symbols are in an answer or not, and which symbols almost are: asked, and as JSON.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use trawl_coordinator::{
    Explained, NearMiss, NearQuestion, NoSymbol, PartValue, PreparedScan, Question, SeenPart, SeriesError, WhyError,
};
use trawl_plan::graph::Kind;
use trawl_wire::Answer;

use crate::mistake::{UserMistake, of_market};
use crate::output::json::Number;

/// Runs a scan and returns its answer.
pub type Run<'a> = dyn FnMut(&PreparedScan) -> anyhow::Result<Answer> + 'a;

/// Questions about symbols of a scan, and what explains each.
#[derive(Debug)]
pub struct Why {
    /// The scan's own answer.
    pub answer: Answer,
    /// In the order of the symbols.
    pub explained: Vec<(Question, Explained)>,
}

impl Why {
    /// Asks about `symbols`; runs the scan, and one scan for each symbol.
    ///
    /// # Errors
    /// A [`UserMistake`]: no such symbol, a sweep; errors of the runs.
    pub fn ask<'s>(
        prepared: &PreparedScan,
        symbols: impl IntoIterator<Item = &'s str>,
        run: &mut Run<'_>,
    ) -> anyhow::Result<Self> {
        let ask = |symbol: &str| Question::new(prepared, symbol.trim()).map_err(why_not);
        let questions = symbols.into_iter().map(ask).collect::<anyhow::Result<Vec<Question>>>()?;
        let answer = run(prepared)?;
        let explain = |question: Question| {
            let explained = question.explained(&run(&question.scan)?);
            Ok((question, explained))
        };
        let explained = questions.into_iter().map(explain).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Self { answer, explained })
    }

    /// One object for each symbol.
    pub fn json(&self) -> Vec<Value> {
        self.explained.iter().map(|(question, explained)| why_json(question, explained, &self.answer)).collect()
    }
}

/// Which symbols almost match.
#[derive(Debug)]
pub struct Near {
    /// The question, which has the terms.
    pub question: NearQuestion,
    /// The scan's own answer.
    pub answer: Answer,
    /// Those that fail on the fewest terms come first.
    pub misses: Vec<NearMiss>,
}

impl Near {
    /// Asks for the symbols that fail on at most `most` terms; runs the scan, and one of its parts.
    ///
    /// # Errors
    /// A [`UserMistake`]: a sweep; errors of the runs.
    pub fn ask(prepared: &PreparedScan, most: u32, run: &mut Run<'_>) -> anyhow::Result<Self> {
        let question = NearQuestion::new(prepared).map_err(why_not)?;
        let answer = run(prepared)?;
        let parts = run(&question.scan)?;
        let misses = question.misses(&answer, &parts, most as usize);
        Ok(Self { question, answer, misses })
    }
}

/// A symbol that the dataset does not have.
pub fn no_symbol(error: &NoSymbol) -> UserMistake {
    let help = match &error.near {
        Some(near) => format!("did you mean '{near}'?"),
        None => format!("'trawl data inspect {}' lists its symbols", error.dataset),
    };
    UserMistake::with_help(error.to_string(), help)
}

/// An error of a question: a user's mistake where it is one.
pub fn why_not(error: WhyError) -> anyhow::Error {
    match error {
        WhyError::Series(SeriesError::Symbol(error)) => no_symbol(&error).into(),
        WhyError::Many(many) => UserMistake::with_help(error.to_string(), many.help()).into(),
        WhyError::Terms => UserMistake::plain(error.to_string()).into(),
        WhyError::Market(error) => of_market(error),
        error => anyhow::Error::from(error),
    }
}

/// The value of a condition; `None` for a number or NA.
pub fn truth(part: &SeenPart) -> Option<bool> {
    (part.is_condition && !part.value.is_nan()).then_some(part.value == 1.0)
}

/// Why a symbol is in an answer or not, as it is written as JSON.
#[derive(Debug, Serialize, JsonSchema)]
pub struct WhyLine<'a> {
    symbol: &'a str,
    /// What became of it; null where the answer does not have it, as are the next four.
    status: Option<&'static str>,
    /// Why it has this status.
    reason: Option<&'a str>,
    /// Rank among the matches.
    place: Option<u32>,
    /// Whether rounding could turn a comparison.
    edge: Option<bool>,
    /// Whether its bar was not closed yet.
    provisional: Option<bool>,
    dataset: &'a str,
    snapshot: &'a str,
    /// The bar.
    as_of: &'a str,
    /// Bars of the symbol up to it.
    bars: u64,
    /// Its labels then.
    labels: BTreeMap<&'a str, Option<&'a str>>,
    /// The scan's clauses and their parts, each behind what it is a part of.
    parts: Vec<PartLine<'a>>,
}

/// A part of a clause.
#[derive(Debug, Serialize, JsonSchema)]
struct PartLine<'a> {
    /// The clause that it is the whole of; null for a part of one.
    clause: Option<&'a str>,
    text: &'a str,
    /// Where and when it is looked at, when not on the symbol's own bar: `1 bar ago`, `SPY`, `1w`.
    seen: &'a [String],
    /// How many parts it is within.
    depth: u64,
    /// `condition` or `number`.
    kind: &'static str,
    value: SeenValue,
    /// Whether its clause is not true because of it.
    decided: bool,
    /// Bars of the symbol before it has a value.
    bars_needed: u64,
    /// Bars of longer timeframes and of other symbols.
    bars_needed_of: BTreeMap<String, u64>,
    /// Bars since it was true, and since it was false; null where it was not, or is no condition.
    bars_since_true: Number,
    bars_since_false: Number,
}

/// One symbol as JSON. `answer` is the scan's own.
pub fn why_json(question: &Question, explained: &Explained, answer: &Answer) -> Value {
    let row = answer.rows.iter().find(|r| r.row.symbol == question.symbol);
    let line = WhyLine {
        symbol: &question.symbol,
        status: row.map(|r| r.row.status.name()),
        reason: row.map(|r| r.row.reason.as_str()),
        place: row.and_then(|r| r.place),
        edge: row.map(|r| r.row.edge),
        provisional: row.map(|r| r.row.provisional),
        dataset: &answer.identity.dataset,
        snapshot: &answer.identity.snapshot,
        as_of: &answer.identity.as_of,
        bars: explained.bars,
        labels: question.labels.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect(),
        parts: explained.parts.iter().map(PartLine::of).collect(),
    };
    serde_json::to_value(line).unwrap_or_default()
}

impl<'a> PartLine<'a> {
    fn of(of: &'a PartValue) -> Self {
        let is_condition = of.part.kind == Kind::Bool;
        let [last_true, last_false] = of.since.map_or([Number(f64::NAN); 2], |since| since.map(Number));
        Self {
            clause: of.part.clause,
            text: &of.part.text,
            seen: &of.part.seen,
            depth: of.part.depth as u64,
            kind: if is_condition { "condition" } else { "number" },
            value: match of.value {
                value if is_condition && !value.is_nan() => SeenValue::Truth(value == 1.0),
                value => SeenValue::Number(Number(value)),
            },
            decided: of.reason,
            bars_needed: of.part.needed.own as u64,
            bars_needed_of: of.part.needed.others.iter().map(|(of, bars)| (of.title(), *bars as u64)).collect(),
            bars_since_true: last_true,
            bars_since_false: last_false,
        }
    }
}

/// A symbol that almost matches, as it is written as JSON.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MissLine<'a> {
    symbol: &'a str,
    fails: Vec<TermLine<'a>>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct TermLine<'a> {
    term: &'a str,
    /// False, or null for NA.
    value: Option<bool>,
    sees: Vec<SeenLine<'a>>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SeenLine<'a> {
    part: &'a str,
    value: SeenValue,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum SeenValue {
    Truth(bool),
    Number(Number),
}

impl Near {
    /// The symbols as they are written as JSON.
    pub fn lines(&self) -> Vec<MissLine<'_>> {
        self.misses.iter().map(MissLine::of).collect()
    }
}

impl<'a> MissLine<'a> {
    fn of(miss: &'a NearMiss) -> Self {
        let value = |part: &SeenPart| truth(part).map_or(SeenValue::Number(Number(part.value)), SeenValue::Truth);
        let seen = |part: &'a SeenPart| SeenLine { part: &part.text, value: value(part) };
        let fails = miss.fails.iter().map(|term| TermLine {
            term: &term.text,
            value: if term.is_na { None } else { Some(false) },
            sees: term.sees.iter().map(seen).collect(),
        });
        Self { symbol: &miss.symbol, fails: fails.collect() }
    }
}

//! The scan document: the clauses a user writes, in TOML, JSON or as flags.
//!
//! It holds text only. Nothing is parsed as an expression here; see `compile_scan`.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use toml::de::DeTable;
use trawl_terms::Timeframe;

use crate::diagnostic::Diagnostic;
use crate::sweep::{Best, SweepValues};

/// The first column of every answer; nothing else may be called so.
pub const ANSWER_TIME: &str = "time";

/// Columns of every answer, after the sweep's variables and before those of `select`; nothing else may be called so.
pub const ANSWER_COLUMNS: [&str; 6] = ["place", "symbol", "status", "edge", "provisional", "reason"];

/// A scan as its user wrote it. Unknown keys are refused when it is read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
// As it is written: requests may have it in more forms.
#[schemars(rename = "ScannedDocument")]
#[serde(deny_unknown_fields)]
pub struct ScanDocument {
    /// Free text for people; not part of the plan's fingerprint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `NAME` or `NAME@SNAPSHOT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset: Option<String>,
    /// The bars' timeframe. A dataset that holds another one is refused, unless NAME-TIMEFRAME holds this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeframe: Option<String>,
    /// Corrections of prices at load: `none`, `split` or `split+dividend`, with `@DATE` as of that date instead of the
    /// scan's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adjust: Option<String>,
    /// Number type of the arithmetic, a name of [`Precision`](trawl_terms::Precision); the default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<String>,
    /// Looks at the newest bar even when it is not closed yet; its rows are marked provisional.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forming: bool,
    /// Reads a symbol that has no bar at the as-of at its newest bar, if that is at most so old: a length of time such as `5m` or
    /// `3d`. Without it such a symbol is stale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age: Option<String>,
    /// How much of each symbol's history is seen; the whole of it when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<History>,
    /// Condition that a symbol must fulfil to be looked at; all symbols when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub universe: Option<String>,
    /// The condition that is looked for; empty when the document has none, which no scan is.
    #[serde(rename = "where", default)]
    pub condition: String,
    /// `expr [asc|desc]{, expr [asc|desc]}`; descending when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<String>,
    /// How many of the ranked matches are kept in the table; applied after sorting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// `expr [as name]` for each column wanted; `close` when empty and the dataset has one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub select: Vec<String>,
    /// Names for expressions, usable in every clause.
    #[serde(default, rename = "let", skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "lets")]
    pub lets: BTreeMap<String, String>,
    /// Functions by name and parameters, such as `rs(n)`, usable in every clause.
    #[serde(default, rename = "def", skip_serializing_if = "BTreeMap::is_empty")]
    pub defs: BTreeMap<String, String>,
    /// Files whose lets and functions are added, by paths from the document's folder. The client reads them: a document that is
    /// compiled has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "paths")]
    pub include: Vec<String>,
    /// Several scans that are answered in one run, in place of `where` and the other clauses of a single one.
    #[serde(default, rename = "scan", skip_serializing_if = "Vec::is_empty")]
    pub scans: Vec<MemberScan>,
    /// Constants that take each of several values: the scan is done for every combination.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sweep: BTreeMap<String, SweepValues>,
    /// A condition over the sweep's variables, such as `fast < slow`: only the combinations that fulfil it are scanned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweep_where: Option<String>,
    /// Keeps for each symbol the best of the sweep's combinations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<Best>,
}

/// One of several scans that are answered in one run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemberScan {
    /// Names its rows.
    pub name: String,
    /// Condition that a symbol must fulfil to be looked at; all symbols when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub universe: Option<String>,
    /// The condition that is looked for.
    #[serde(rename = "where")]
    pub condition: String,
    /// Names for expressions, usable in its clauses.
    #[serde(default, rename = "let", skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "lets")]
    pub lets: BTreeMap<String, String>,
    /// Functions by name and parameters, usable in its clauses.
    #[serde(default, rename = "def", skip_serializing_if = "BTreeMap::is_empty")]
    pub defs: BTreeMap<String, String>,
}

/// A limit on the history that a scan sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, expecting = "bars in braces, such as { bars = 500 }")]
pub struct History {
    /// The last so many bars, and before them what each part needs to have come in.
    pub bars: u32,
    /// Lets functions that never forget their beginning begin at the first of these bars; refused without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub origin: bool,
}

/// One path, or a list of them.
fn paths<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a path in quotes or a list of them is expected")]
    enum Paths {
        One(String),
        All(Vec<String>),
    }
    Ok(match Paths::deserialize(deserializer)? {
        Paths::One(path) => vec![path],
        Paths::All(paths) => paths,
    })
}

/// Lets may be written as bare numbers and truths too: `a = 20` is `a = '20'`.
fn lets<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "an expression in quotes, a number, true or false is expected")]
    enum Let {
        Text(String),
        Truth(bool),
        Whole(i64),
        Number(f64),
    }
    let lets = BTreeMap::<String, Let>::deserialize(deserializer)?;
    let text = |of| match of {
        Let::Text(text) => text,
        Let::Truth(truth) => truth.to_string(),
        Let::Whole(number) => number.to_string(),
        Let::Number(number) => format!("{number:?}"),
    };
    Ok(lets.into_iter().map(|(name, of)| (name, text(of))).collect())
}

/// Where in a document a mistake of one of its clauses is; its whole value when that is written with escapes.
fn place(mistake: &Diagnostic, document: &str) -> Option<Range<usize>> {
    let tables = DeTable::parse(document).ok()?;
    let (path, index) = match mistake.clause.strip_suffix(']').and_then(|clause| clause.split_once('[')) {
        Some((path, number)) => (path, number.parse::<usize>().ok()?.checked_sub(1)),
        None => (mistake.clause.as_str(), None),
    };
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let mut value = tables.get_ref().get(first)?;
    // A mistake in a name has the name for its text.
    if let (None, Some(names)) = (rest, value.get_ref().as_table()) {
        return names.keys().find(|key| *key.get_ref() == mistake.text).map(|key| key.span());
    }
    if let Some(name) = rest {
        value = value.get_ref().as_table()?.get(name)?;
    }
    if let Some(index) = index {
        value = value.get_ref().as_array()?.get(index)?;
    }
    let whole = value.span();
    let written = document.get(whole.clone())?;
    let is_this = value.get_ref().as_str().map_or(written == mistake.text, |text| text == mistake.text);
    match written.find(&mistake.text) {
        _ if !is_this || mistake.text.is_empty() => None,
        Some(from) => Some(whole.start + from + mistake.span.start..whole.start + from + mistake.span.end),
        None => Some(whole),
    }
}

/// The reader's words for types as a user would say them.
fn plain(message: &str) -> String {
    let words = [
        ("expected u32", "expected a whole number, 0 or more"),
        ("expected a sequence", "expected a list such as ['close', 'volume']"),
        ("expected a boolean", "expected true or false"),
        ("expected a map", "expected a table"),
        ("expected literal string", "expected quotes"),
    ];
    words.iter().fold(message.to_owned(), |text, (theirs, ours)| text.replace(theirs, ours))
}

impl ScanDocument {
    /// Reads a TOML document.
    ///
    /// # Errors
    /// A [`Diagnostic`] pointing into the TOML text for bad syntax, an unknown key or a wrong type.
    pub fn from_toml(text: &str) -> Result<Self, Box<Diagnostic>> {
        toml::from_str(text).map_err(|e| {
            let keys = [
                "name",
                "dataset",
                "timeframe",
                "adjust",
                "precision",
                "forming",
                "max_age",
                "history",
                "universe",
                "where",
                "rank",
                "limit",
                "select",
                "let",
                "def",
                "include",
                "scan",
                "sweep",
                "sweep_where",
                "bars",
                "origin",
                "from",
                "to",
                "step",
                "best",
                "by",
                "keep",
            ];
            let span = e.span().unwrap_or(0..0);
            let word = text.get(span.clone()).unwrap_or("");
            Box::new(Diagnostic {
                message: plain(e.message().lines().next().unwrap_or("not a scan document")),
                clause: "document".to_owned(),
                text: text.to_owned(),
                span,
                label: "here".to_owned(),
                help: match word {
                    "as_of" | "as-of" | "asof" => {
                        Some("a document is the same at any time: give the time with the option --as-of".to_owned())
                    }
                    _ => {
                        trawl_terms::suggest(word, keys).filter(|k| *k != word).map(|k| format!("did you mean '{k}'?"))
                    }
                },
            })
        })
    }

    /// A mistake in a clause, with its place in the TOML document that the clause is from; as it is when the clause is from
    /// elsewhere. `name` is what the document is called.
    pub fn placed(mistake: Diagnostic, name: &str, document: &str) -> Diagnostic {
        let Some(span) = place(&mistake, document) else { return mistake };
        Diagnostic { clause: name.to_owned(), text: document.to_owned(), span, ..mistake }
    }

    /// At most how many levels its texts may be nested, lets within one another included (see `deep`).
    pub(crate) fn levels(&self) -> usize {
        // Texts of functions stand within one another as often as they are called.
        if !self.defs.is_empty() || !self.scans.is_empty() {
            return usize::MAX;
        }
        let clauses = self.universe.iter().chain([&self.condition]).chain(&self.rank).chain(&self.select);
        let clauses = clauses.chain(&self.sweep_where);
        let texts = clauses.chain(self.lets.values()).chain(self.best.as_ref().map(|best| &best.by));
        crate::deep::levels(texts.map(String::as_str), self.lets.len())
    }

    /// [`Self::max_age`] in microseconds; `None` where it is absent or no length of time.
    pub fn max_age_micros(&self) -> Option<i64> {
        self.max_age.as_deref()?.parse::<Timeframe>().ok()?.elapsed()
    }

    /// The canonical JSON that travels between processes.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a document of strings serialises")
    }

    /// Reads what [`Self::to_json`] wrote.
    ///
    /// # Errors
    /// The JSON error, as text.
    pub fn from_json(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|e| e.to_string())
    }
}

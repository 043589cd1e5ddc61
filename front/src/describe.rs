//! A function's description: for the terminal and as JSON.

use std::fmt::Write as _;

use serde::Serialize;
use trawl_plan::catalogue::{self, Form, Function, ParamDefault};
use trawl_plan::graph::Kind;
use trawl_plan::{legal_values, signature};

use crate::human::counted;

/// Heading of the functions that look at other bars.
pub const FORMS_GROUP: &str = "Other bars, symbols and the whole market";

/// A function as data.
#[derive(Debug, Serialize)]
pub struct Entry {
    /// As it is called.
    pub name: &'static str,
    /// Other names.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub aliases: &'static [&'static str],
    /// Name of its group.
    pub group: &'static str,
    /// What it is, in a sentence.
    pub summary: &'static str,
    /// Its definition.
    pub formula: &'static str,
    /// What its values are checked against.
    pub reference: &'static str,
    /// A call with the defaults.
    pub call: String,
    /// Its series arguments, in order.
    pub series: Vec<SeriesEntry>,
    /// Its parameters, in order.
    pub parameters: Vec<ParameterEntry>,
    /// Its outputs, in order.
    pub outputs: Vec<OutputEntry>,
    /// A call that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub example: Option<String>,
    /// Bars of its own that the example needs before its first value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub look_back: Option<usize>,
    /// Bars of its own that a limited history gives the example before the first row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<usize>,
    /// The example's values after one missing bar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_missing: Option<String>,
}

/// A series argument as data.
#[derive(Debug, Serialize)]
pub struct SeriesEntry {
    /// For naming it in a call.
    pub name: &'static str,
    /// `number` or `condition`.
    pub kind: &'static str,
    /// Column used when it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<&'static str>,
}

/// A parameter as data.
#[derive(Debug, Serialize)]
pub struct ParameterEntry {
    /// For naming it in a call.
    pub name: &'static str,
    /// The legal values, as text.
    pub legal: String,
    /// Its value when it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

/// An output as data.
#[derive(Debug, Serialize)]
pub struct OutputEntry {
    /// As it is written after the dot.
    pub name: &'static str,
    /// Other names.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub aliases: &'static [&'static str],
    /// `number` or `condition`.
    pub kind: &'static str,
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Num => "number",
        Kind::Bool => "condition",
    }
}

/// A function as data.
pub fn entry(function: &'static Function) -> Entry {
    let facts = catalogue::facts(function);
    let series = function.given_series();
    let parameters = function.params.iter().map(|p| ParameterEntry {
        name: p.name,
        legal: legal_values(p.kind),
        default: match p.default {
            ParamDefault::Required => None,
            ParamDefault::Value(_) => Some(trawl_plan::default_text(p)),
            ParamDefault::SameAs(other) => Some(other.to_owned()),
        },
    });
    let outputs = function.outputs.iter();
    Entry {
        name: function.name,
        aliases: function.aliases,
        group: function.group,
        summary: function.summary,
        formula: function.formula,
        reference: function.reference,
        call: signature(function),
        series: series.map(|(_, s)| SeriesEntry { name: s.name, kind: kind(s.kind), default: s.default }).collect(),
        parameters: parameters.collect(),
        outputs: outputs.map(|o| OutputEntry { name: o.name, aliases: o.aliases, kind: kind(o.kind) }).collect(),
        example: Some(facts.example),
        look_back: Some(facts.look_back),
        warm_up: facts.warm_up,
        after_missing: Some(facts.gap.words()),
    }
}

/// A form (a construct of the scan language such as `tf`) as data.
pub fn form_entry(form: &'static Form) -> Entry {
    Entry {
        name: form.name,
        aliases: &[],
        group: FORMS_GROUP,
        summary: form.summary,
        formula: form.formula,
        reference: "scan language",
        call: form.signature.to_owned(),
        series: Vec::new(),
        parameters: Vec::new(),
        outputs: Vec::new(),
        example: None,
        look_back: None,
        warm_up: None,
        after_missing: None,
    }
}

/// Everything, in the order of the groups.
pub fn all() -> Vec<Entry> {
    groups().into_iter().flat_map(|(_, entries)| entries).collect()
}

/// The groups in the order of their first function, the forms last.
pub fn groups() -> Vec<(&'static str, Vec<Entry>)> {
    let mut groups: Vec<(&'static str, Vec<Entry>)> = Vec::new();
    let forms = catalogue::FORMS.iter().map(form_entry);
    for entry in catalogue::functions().map(entry).chain(forms) {
        match groups.iter_mut().find(|(group, _)| *group == entry.group) {
            Some((_, entries)) => entries.push(entry),
            None => groups.push((entry.group, vec![entry])),
        }
    }
    for (_, entries) in &mut groups {
        entries.sort_by_key(|e| e.name);
    }
    groups
}

/// The groups with the functions that have every word in their names, outputs, summary, formula or group.
pub fn search(words: &str) -> Vec<(&'static str, Vec<Entry>)> {
    let words: Vec<String> = words.split_whitespace().map(str::to_lowercase).collect();
    let has = |entry: &Entry| {
        let outputs = entry.outputs.iter().flat_map(|output| std::iter::once(&output.name).chain(output.aliases));
        let texts = [entry.name, entry.summary, entry.formula, entry.group].into_iter();
        let texts = texts.chain(entry.aliases.iter().copied()).chain(outputs.copied());
        let text = texts.collect::<Vec<_>>().join(" ").to_lowercase();
        !words.is_empty() && words.iter().all(|word| text.contains(word))
    };
    let mut groups = groups();
    groups.iter_mut().for_each(|(_, entries)| entries.retain(has));
    groups.retain(|(_, entries)| !entries.is_empty());
    groups
}

/// All functions by group, a line each.
pub fn list() -> String {
    lines(&groups())
}

/// Functions by group, a line each.
pub fn lines(groups: &[(&'static str, Vec<Entry>)]) -> String {
    let width = groups.iter().flat_map(|(_, entries)| entries).map(|e| e.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (group, entries) in groups {
        let _ = writeln!(text, "{group}");
        for entry in entries {
            let _ = writeln!(text, "  {:<width$}  {}", entry.name, entry.summary);
        }
        text.push('\n');
    }
    let count: usize = groups.iter().map(|(_, entries)| entries.len()).sum();
    let _ = writeln!(text, "{}; 'trawl indicators NAME' describes one", counted(count, "function"));
    text
}

/// Everything about a function.
pub fn function(function: &'static Function) -> String {
    let entry = entry(function);
    let mut text = heading(&entry);
    if !entry.aliases.is_empty() {
        let _ = writeln!(text, "also     {}", entry.aliases.join(", "));
    }
    let mut title = "series";
    for series in &entry.series {
        let default = series.default.map_or_else(|| "must be given".to_owned(), |d| format!("[default: {d}]"));
        let _ = writeln!(text, "{title:<8} {}: a {} {default}", series.name, series.kind);
        title = "";
    }
    title = "numbers";
    for parameter in &entry.parameters {
        let default = parameter.default.as_ref();
        let default = default.map_or_else(|| "must be given".to_owned(), |d| format!("[default: {d}]"));
        let _ = writeln!(text, "{title:<8} {}: {} {default}", parameter.name, parameter.legal);
        title = "";
    }
    title = "outputs";
    for output in &entry.outputs {
        let field = if entry.outputs.len() > 1 { format!(".{}", output.name) } else { format!("a {}", output.kind) };
        let aliases: Vec<String> = output.aliases.iter().map(|a| format!(".{a}")).collect();
        let _ = writeln!(text, "{title:<8} {}", [vec![field], aliases].concat().join(" or "));
        title = "";
    }
    let field = match function.outputs {
        [_] => String::new(),
        several => format!(".{}", several[0].aliases.first().unwrap_or(&several[0].name)),
    };
    let example = entry.example.unwrap_or_default();
    let _ = writeln!(text, "example  {example}{field}");
    let _ = writeln!(
        text,
        "needs    {} before its first value, as in the example",
        counted(entry.look_back.unwrap_or(0), "bar")
    );
    let warm_up = match entry.warm_up {
        Some(bars) => format!("{} before the first one of a limited history", counted(bars, "bar")),
        None => "depends on its first bar for ever: with a limited history it is accepted only with origin = true"
            .to_owned(),
    };
    let _ = writeln!(text, "warm-up  {warm_up}");
    let _ = writeln!(text, "missing  after one missing bar: {}", entry.after_missing.unwrap_or_default());
    if let Some(note) = catalogue::group_note(function.group) {
        let _ = writeln!(text, "\n{note}");
    }
    text
}

/// Everything about a form.
pub fn form(form: &'static Form) -> String {
    heading(&form_entry(form))
}

fn heading(entry: &Entry) -> String {
    let mut text = format!("{}\n\n  {}\n\n", entry.summary, entry.call);
    let _ = writeln!(text, "formula  {}", entry.formula);
    let _ = writeln!(text, "from     {} ({})", entry.reference, entry.group);
    text
}

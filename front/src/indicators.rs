//! The functions of the scan language as data, from their declarations.

use schemars::JsonSchema;
use serde::Serialize;
use trawl_plan::catalogue::{self, Form, Function, ParamDefault};
use trawl_plan::graph::Kind;
use trawl_plan::{legal_values, signature, suggest};

use crate::mistake::UserMistake;

/// Heading of the functions that look at other bars.
pub const FORMS_GROUP: &str = "Other bars, symbols and the whole market";

/// A function as data.
#[derive(Debug, Serialize, JsonSchema)]
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
#[derive(Debug, Serialize, JsonSchema)]
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
#[derive(Debug, Serialize, JsonSchema)]
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
#[derive(Debug, Serialize, JsonSchema)]
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

/// The groups with the functions that have every word in their names, outputs, summary, formula or group; for a word of another
/// tool also those that are written in its place.
pub fn search(words: &str) -> Vec<(&'static str, Vec<Entry>)> {
    let hinted =
        trawl_plan::foreign_hint(words.trim()).map(|hint| trawl_plan::hinted_functions(&hint)).unwrap_or_default();
    let words: Vec<String> = words.split_whitespace().map(str::to_lowercase).collect();
    let has = |entry: &Entry| {
        let outputs = entry.outputs.iter().flat_map(|output| std::iter::once(&output.name).chain(output.aliases));
        let texts = [entry.name, entry.summary, entry.formula, entry.group].into_iter();
        let texts = texts.chain(entry.aliases.iter().copied()).chain(outputs.copied());
        let text = texts.collect::<Vec<_>>().join(" ").to_lowercase();
        let has_all = !words.is_empty() && words.iter().all(|word| text.contains(word));
        has_all || hinted.contains(&entry.name)
    };
    let mut groups = groups();
    groups.iter_mut().for_each(|(_, entries)| entries.retain(has));
    groups.retain(|(_, entries)| !entries.is_empty());
    groups
}

/// A function or a form.
#[derive(Debug, Clone, Copy)]
pub enum Found {
    /// A function.
    Function(&'static Function),
    /// A form: a construct of the scan language such as `tf`.
    Form(&'static Form),
}

impl Found {
    /// As data.
    pub fn entry(self) -> Entry {
        match self {
            Self::Function(function) => entry(function),
            Self::Form(form) => form_entry(form),
        }
    }
}

/// What a name calls, in any case and with or without `()`.
///
/// # Errors
/// A mistake that suggests the nearest name.
pub fn find(name: &str) -> Result<Found, UserMistake> {
    let lower = name.to_ascii_lowercase();
    let lower = lower.trim_end_matches("()");
    let function = catalogue::find(lower).map(Found::Function);
    function.or_else(|| catalogue::find_form(lower).map(Found::Form)).ok_or_else(|| unknown(name, lower))
}

fn unknown(name: &str, lower: &str) -> UserMistake {
    let functions = catalogue::functions().flat_map(|f| std::iter::once(f.name).chain(f.aliases.iter().copied()));
    let near = suggest(lower, functions.chain(catalogue::FORMS.iter().map(|f| f.name)));
    // A word of another tool is no slip of the pen, however near it is to a name.
    let help = trawl_plan::foreign_hint(lower).unwrap_or_else(|| match near {
        Some(near) => format!("did you mean '{near}'?"),
        None => "'trawl indicators' lists them".to_owned(),
    });
    UserMistake::Plain { message: format!("there is no function '{name}'"), help: Some(help) }
}

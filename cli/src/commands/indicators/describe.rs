//! A function's description for the terminal.

use std::fmt::Write as _;

use trawl_front::human::counted;
use trawl_front::indicators::{Entry, entry, form_entry, groups};
use trawl_plan::catalogue::{self, Form, Function};

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
    format!("{}example  {}\n", heading(&form_entry(form)), form.example)
}

fn heading(entry: &Entry) -> String {
    let mut text = format!("{}\n\n  {}\n\n", entry.summary, entry.call);
    let _ = writeln!(text, "formula  {}", entry.formula);
    let _ = writeln!(text, "from     {} ({})", entry.reference, entry.group);
    text
}

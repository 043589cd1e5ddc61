//! The descriptions as Markdown: an index and one page per group.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use trawl_front::indicators::{Entry, groups};
use trawl_plan::catalogue;

const NOTE: &str = "<!-- Written by `just docs` from the declarations in plan/src/catalogue: change those. -->\n";

/// Writes the pages into `folder`, which is created when it is missing.
///
/// # Errors
/// Those of writing the files.
pub fn write(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let groups = groups();
    let mut index = format!(
        "{NOTE}\n# Functions\n\nAs `trawl indicators` prints them. How expressions are written: [the scan language](../language.md).\n"
    );
    for (group, entries) in &groups {
        let file = format!("{}.md", slug(group));
        let _ = writeln!(index, "\n## [{group}]({file})\n");
        for entry in entries {
            let _ = writeln!(index, "- [`{}`]({file}#{}) {}", entry.name, entry.name, entry.summary);
        }
        keep(folder, &file, &page(group, entries))?;
    }
    keep(folder, "README.md", &index)
}

fn keep(folder: &Path, file: &str, text: &str) -> anyhow::Result<()> {
    let path = folder.join(file);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn slug(group: &str) -> String {
    let words = group.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

fn page(group: &str, entries: &[Entry]) -> String {
    let mut text = format!("{NOTE}\n# {group}\n");
    if let Some(note) = catalogue::group_note(group) {
        let _ = writeln!(text, "\n{note}");
    }
    for entry in entries {
        push(&mut text, entry);
    }
    text
}

fn push(text: &mut String, entry: &Entry) {
    let _ = write!(text, "\n## {}\n\n{}.\n\n```\n{}\n```\n\n", entry.name, capital(entry.summary), entry.call);
    let _ = writeln!(text, "{} From: {}.", sentence(entry.formula), entry.reference);
    if !entry.parameters.is_empty() {
        text.push_str("\n| parameter | legal | default |\n|---|---|---|\n");
        for parameter in &entry.parameters {
            let default = parameter.default.as_deref().unwrap_or("must be given");
            let _ = writeln!(text, "| `{}` | {} | {default} |", parameter.name, parameter.legal);
        }
    }
    if entry.outputs.len() > 1 {
        let name = |names: Vec<&str>| names.iter().map(|n| format!("`.{n}`")).collect::<Vec<_>>().join(" or ");
        let outputs = entry.outputs.iter().map(|o| name([&[o.name], o.aliases].concat()));
        let _ = writeln!(text, "\nOutputs: {}.", outputs.collect::<Vec<_>>().join(", "));
    }
    if let (Some(example), Some(look_back)) = (&entry.example, entry.look_back) {
        let warm_up = match entry.warm_up {
            Some(bars) => format!("warm-up under a limited history {bars}"),
            None => "no warm-up is long enough under a limited history".to_owned(),
        };
        let missing = entry.after_missing.as_deref().unwrap_or_default();
        let _ = writeln!(text, "\n`{example}`: look-back {look_back}, {warm_up}; after one missing bar: {missing}.");
    }
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

/// A formula in code marks, so that Markdown does not read `*` as emphasis.
fn sentence(formula: &str) -> String {
    format!("`{}`.", formula.replace('`', "'"))
}

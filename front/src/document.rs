//! Documents of scans as files: how they are read and named in messages, and which of their names they use.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _};
use std::path::Path;

use trawl_plan::ScanDocument;
use trawl_wire::limits::DOCUMENT_BYTES_MAX;

use crate::mistake::{UserMistake, io_reason};

/// The file name that means standard input.
pub const STANDARD_STREAM: &str = "-";

/// The text of a document, truncated where it is too long.
pub fn read(path: &Path) -> io::Result<String> {
    let reader: Box<dyn io::Read> =
        if path == Path::new(STANDARD_STREAM) { Box::new(io::stdin()) } else { Box::new(std::fs::File::open(path)?) };
    let mut text = String::new();
    reader.take(DOCUMENT_BYTES_MAX as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// The document at `path`, and its text. `unreadable` makes the message for a file that cannot be read, from the reason.
///
/// # Errors
/// A [`UserMistake`]: an unreadable or too large file, a mistake in it.
pub fn document_at(
    path: &Path,
    unreadable: impl FnOnce(String) -> UserMistake,
) -> Result<(ScanDocument, String), UserMistake> {
    let text = read(path).map_err(|e| {
        unreadable(match e.kind() {
            io::ErrorKind::InvalidData => "it is not UTF-8 text".to_owned(),
            _ => io_reason(&e),
        })
    })?;
    if text.len() > DOCUMENT_BYTES_MAX {
        return Err(UserMistake::plain(format!("{} has more than {DOCUMENT_BYTES_MAX} bytes", shown(path))));
    }
    let document = ScanDocument::from_toml(&text).map_err(|mut mistake| {
        mistake.clause = place_name(path);
        UserMistake::Drawn(vec![*mistake])
    })?;
    Ok((document, text))
}

/// The mistake for a file that cannot be read.
pub fn cannot_read(path: &Path, why: &str) -> UserMistake {
    UserMistake::plain(format!("cannot read {}: {why}", shown(path)))
}

/// A document's name with a position in it.
pub fn place_name(path: &Path) -> String {
    if path == Path::new(STANDARD_STREAM) { "standard input".to_owned() } else { path.display().to_string() }
}

/// A document's name in a sentence.
pub fn shown(path: &Path) -> String {
    if path == Path::new(STANDARD_STREAM) { place_name(path) } else { format!("'{}'", path.display()) }
}

/// The lets that no clause uses, also not through other lets and functions.
pub fn unused_lets(document: &ScanDocument) -> Vec<&str> {
    let used = used_names(document);
    document.lets.keys().map(String::as_str).filter(|name| !used.contains(name)).collect()
}

/// Lets and functions that the clauses use, also through one another. A name counts as used wherever a text has it as a word.
pub fn used_names(document: &ScanDocument) -> BTreeSet<&str> {
    let clauses = document.universe.iter().chain([&document.condition]).chain(&document.rank).chain(&document.select);
    let clauses = clauses.chain(document.best.as_ref().map(|best| &best.by)).chain(&document.sweep_where);
    let functions: BTreeMap<&str, &String> =
        document.defs.iter().map(|(signature, text)| (function_name(signature), text)).collect();
    let mut waiting: Vec<&str> = clauses.flat_map(|text| words(text)).collect();
    let mut used = BTreeSet::new();
    while let Some(word) = waiting.pop() {
        if used.contains(word) {
            continue;
        }
        for text in document.lets.get(word).into_iter().chain(functions.get(word).copied()) {
            used.insert(word);
            waiting.extend(words(text));
        }
    }
    used
}

/// The name in `rs(n)`.
pub fn function_name(signature: &str) -> &str {
    signature.split('(').next().unwrap_or_default().trim()
}

/// Everything that could be a name.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

//! Documents of scans as files: how they are read and named in messages, and which of their names they use.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
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

/// A let that no clause uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnusedLet<'a> {
    /// The scan whose let it is, where the document has several.
    pub scan: Option<&'a str>,
    /// The let.
    pub name: &'a str,
}

impl fmt::Display for UnusedLet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", self.name)?;
        self.scan.map_or(Ok(()), |scan| write!(f, " of {scan}"))
    }
}

/// The lets that no clause uses, also not through other lets and functions; of several scans those of each.
pub fn unused_lets(document: &ScanDocument) -> Vec<UnusedLet<'_>> {
    let own = unused(None, Words::of(document), clauses(document));
    let members = document.scans.iter().flat_map(|scan| {
        // The columns and the universe of the whole are read with the words of each scan.
        let own = scan.universe.iter().chain([&scan.condition]).map(String::as_str);
        let words = Words { lets: &scan.lets, defs: &scan.defs };
        unused(Some(scan.name.as_str()), words, own.chain(clauses(document)).collect())
    });
    own.into_iter().chain(members).collect()
}

fn unused<'a>(scan: Option<&'a str>, words: Words<'a>, texts: Vec<&'a str>) -> Vec<UnusedLet<'a>> {
    let used = words.used_by(texts);
    let names = words.lets.keys().map(String::as_str).filter(|name| !used.contains(name));
    names.map(|name| UnusedLet { scan, name }).collect()
}

/// Lets and functions that the clauses use, also through one another. A name counts as used wherever a text has it as a word.
pub fn used_names(document: &ScanDocument) -> BTreeSet<&str> {
    Words::of(document).used_by(clauses(document))
}

/// The texts of a document's own clauses, in which its words are used.
fn clauses(document: &ScanDocument) -> Vec<&str> {
    let clauses = document.universe.iter().chain([&document.condition]).chain(&document.rank).chain(&document.select);
    let clauses = clauses.chain(document.best.as_ref().map(|best| &best.by)).chain(&document.sweep_where);
    clauses.map(String::as_str).collect()
}

/// The words that a document or one of several scans defines.
#[derive(Clone, Copy)]
struct Words<'a> {
    lets: &'a BTreeMap<String, String>,
    defs: &'a BTreeMap<String, String>,
}

impl<'a> Words<'a> {
    fn of(document: &'a ScanDocument) -> Self {
        Self { lets: &document.lets, defs: &document.defs }
    }

    /// Those that the texts use.
    fn used_by(self, texts: Vec<&'a str>) -> BTreeSet<&'a str> {
        let functions: BTreeMap<&str, &String> =
            self.defs.iter().map(|(signature, text)| (function_name(signature), text)).collect();
        let mut waiting: Vec<&str> = texts.into_iter().flat_map(words).collect();
        let mut used = BTreeSet::new();
        while let Some(word) = waiting.pop() {
            if used.contains(word) {
                continue;
            }
            for text in self.lets.get(word).into_iter().chain(functions.get(word).copied()) {
                used.insert(word);
                waiting.extend(words(text));
            }
        }
        used
    }
}

/// The name in `rs(n)`.
pub fn function_name(signature: &str) -> &str {
    signature.split('(').next().unwrap_or_default().trim()
}

/// Everything that could be a name.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

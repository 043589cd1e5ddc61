//! `--watchlist FILE`: the symbols of a file as a condition of the universe, and mistakes about them in the file.

use std::path::{Path, PathBuf};

use trawl_plan::Diagnostic;
use trawl_plan::limits::LABEL_VALUES_MAX;

use crate::failure::{UserMistake, io_reason};
use trawl_front::document::{cannot_read, place_name, read, shown};

/// The clause that a watchlist is put in front of.
const CLAUSE: &str = "universe";
/// What joins it to the universe that it is in front of; a parenthesis ends that.
const JOINED: &str = " and (";

/// The symbols of a file.
#[derive(Debug)]
pub struct Watchlist {
    path: PathBuf,
    text: String,
    /// The condition that a symbol is one of them.
    condition: String,
}

impl Watchlist {
    /// Reads a file with a symbol in each line, or in the first column of a CSV file.
    ///
    /// # Errors
    /// A [`UserMistake`]: an unreadable file, no symbol or too many.
    pub fn read(path: &Path) -> Result<Self, UserMistake> {
        let text = read(path).map_err(|e| cannot_read(path, &io_reason(&e)))?;
        let mut symbols: Vec<&str> = text.lines().map(symbol_of).filter(|symbol| !symbol.is_empty()).collect();
        // The header of a CSV file.
        if symbols.first().is_some_and(|first| ["symbol", "ticker"].contains(&first.to_lowercase().as_str())) {
            symbols.remove(0);
        }
        symbols.sort_unstable();
        symbols.dedup();
        if let Some(strange) = symbols.iter().find(|symbol| symbol.contains('\'')) {
            return Err(UserMistake::plain(format!(
                "{} has the symbol \"{strange}\", which no dataset can have",
                shown(path)
            )));
        }
        let condition = match symbols.len() {
            0 => {
                let message = format!("{} lists no symbol", shown(path));
                return Err(UserMistake::with_help(message, "write one in each line"));
            }
            1..=LABEL_VALUES_MAX => format!("symbol in ('{}')", symbols.join("', '")),
            many => {
                let message = format!("{} lists {many} symbols; at most {LABEL_VALUES_MAX} are taken", shown(path));
                let help = "give larger lists a label: 'trawl data import --symbols'";
                return Err(UserMistake::with_help(message, help));
            }
        };
        Ok(Self { path: path.to_owned(), text, condition })
    }

    /// The universe of its symbols for which `universe` holds too.
    pub fn before(&self, universe: Option<&str>) -> String {
        match universe {
            None => self.condition.clone(),
            Some(universe) => format!("{}{JOINED}{universe})", self.condition),
        }
    }

    /// A mistake about one of its symbols with its place in the file; any other as if there were no list.
    pub fn placed(&self, mistake: Diagnostic) -> Diagnostic {
        let (listed, span) = (self.condition.len(), mistake.span.clone());
        if mistake.clause != CLAUSE || !mistake.text.starts_with(&self.condition) {
            return mistake;
        }
        if span.end <= listed {
            let symbol = mistake.text.get(span).unwrap_or_default().trim_matches('\'');
            return match self.place_of(symbol) {
                Some(span) => {
                    let (clause, text) = (place_name(&self.path), self.text.clone());
                    Diagnostic { clause, text, span, ..mistake }
                }
                None => mistake,
            };
        }
        let own = mistake.text[listed..].strip_prefix(JOINED).and_then(|rest| rest.strip_suffix(')'));
        let offset = listed + JOINED.len();
        match own.map(str::to_owned) {
            Some(text) if offset <= span.start && span.end <= offset + text.len() => {
                Diagnostic { text, span: span.start - offset..span.end - offset, ..mistake }
            }
            _ => mistake,
        }
    }

    /// The bytes of the file where a symbol is listed first.
    fn place_of(&self, symbol: &str) -> Option<std::ops::Range<usize>> {
        let mut start = 0;
        for line in self.text.split_inclusive('\n') {
            if symbol_of(line) == symbol {
                let at = start + line.find(symbol)?;
                return Some(at..at + symbol.len());
            }
            start += line.len();
        }
        None
    }
}

/// The symbol in a line; empty where there is none.
fn symbol_of(line: &str) -> &str {
    line.split(['#', ',']).next().unwrap_or_default().trim().trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistake_at(text: &str, word: &str) -> Diagnostic {
        let at = text.find(word).unwrap();
        let (message, label) = ("wrong".to_owned(), "here".to_owned());
        let (clause, text) = (CLAUSE.to_owned(), text.to_owned());
        Diagnostic { message, clause, text, span: at..at + word.len(), label, help: None }
    }

    #[test]
    fn a_symbol_that_is_not_there_is_reported_at_its_line_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tech.csv");
        std::fs::write(&path, "symbol,name\nMSFT,\n# APLE\n\"APLE\",Apple\n").unwrap();
        let watched = Watchlist::read(&path).unwrap();
        let universe = watched.before(Some("clsoe > 5"));
        assert_eq!(universe, "symbol in ('APLE', 'MSFT') and (clsoe > 5)");
        let placed = watched.placed(mistake_at(&universe, "'APLE'"));
        assert_eq!(placed.clause, path.display().to_string());
        assert_eq!(&placed.text[placed.span.clone()], "APLE");
        assert_eq!(placed.text[..placed.span.start].lines().count(), 4);
        // A mistake behind the list is placed as if there were none.
        let own = watched.placed(mistake_at(&universe, "clsoe"));
        assert_eq!((own.text.as_str(), own.span), ("clsoe > 5", 0..5));
        let other = Diagnostic { clause: "where".to_owned(), ..mistake_at("clsoe > 5", "clsoe") };
        assert_eq!(watched.placed(other.clone()), other);
    }
}

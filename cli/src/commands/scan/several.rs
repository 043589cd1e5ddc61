//! `trawl scan DIR`: the scans of several files in one run, which reads the bars once and computes common parts once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use trawl_plan::document::MemberScan;
use trawl_plan::{Diagnostic, ScanDocument};

use crate::failure::{UserMistake, io_reason};
use trawl_front::document::{UnusedLet, cannot_read, document_at, place_name, shown, used_names};
use trawl_front::include::included;

const EXTENSION: &str = "toml";

/// Scans of several files, and the files' texts.
#[derive(Debug, Default)]
pub struct Several {
    /// Dataset, adjustment and the like, on which all agree; and the scans.
    pub document: ScanDocument,
    /// Lets that a document's own clauses use, also those that a scan among several does without: by scan and name.
    used: BTreeSet<(String, String)>,
    texts: Vec<(String, PathBuf, String)>,
}

/// Reads the documents at `paths`; a directory means its `.toml` files. Their `select`, `rank` and `limit` are not used, and
/// `replace` is done to each before they are compared: it sets the dataset and whatever else all must agree on.
///
/// # Errors
/// A [`UserMistake`]: an unreadable file, a mistake in it, documents that do not agree, a sweep.
pub fn read_several(paths: &[PathBuf], replace: &dyn Fn(&mut ScanDocument)) -> Result<Several, UserMistake> {
    let mut several = Several::default();
    for path in files(paths)? {
        let (mut document, text) = document_at(&path, |why| cannot_read(&path, &why))?;
        included(&mut document, &path)?;
        replace(&mut document);
        let name = document
            .name
            .clone()
            .unwrap_or_else(|| path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned()));
        several.add(document, &name, &path)?;
        several.texts.push((name, path, text));
    }
    Ok(several)
}

/// The files, in order; those of a directory by name.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, UserMistake> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let unreadable = |e| cannot_read(path, &io_reason(&e));
        let entries = std::fs::read_dir(path).map_err(unreadable)?;
        let mut found: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
        found.retain(|path| path.extension().is_some_and(|extension| extension == EXTENSION));
        if found.is_empty() {
            let help = "name the documents themselves, or a folder of .toml files";
            return Err(UserMistake::with_help(format!("{} has no .toml file", shown(path)), help));
        }
        found.sort();
        files.append(&mut found);
    }
    Ok(files)
}

impl Several {
    fn add(&mut self, document: ScanDocument, name: &str, path: &Path) -> Result<(), UserMistake> {
        let refused = |what: &str| {
            let message = format!("{} has '{what}', which a scan among several cannot have", shown(path));
            Err(UserMistake::with_help(message, "scan it by itself: trawl scan --file FILE"))
        };
        if !document.sweep.is_empty() {
            return refused("sweep");
        }
        if document.best.is_some() {
            return refused("best");
        }
        if !document.scans.is_empty() {
            return refused("scan");
        }
        let all = &mut self.document;
        let first = all.scans.is_empty();
        let agree = |mine: &mut Option<String>, theirs: &Option<String>, what: &str| match (mine, theirs) {
            (mine, theirs) if first => {
                mine.clone_from(theirs);
                Ok(())
            }
            (mine, theirs) if mine == theirs => Ok(()),
            _ => {
                let message = format!("{} has another '{what}' than the scans before it", shown(path));
                Err(UserMistake::with_help(
                    message,
                    "scans of one run read the same bars: run it by itself, or move it",
                ))
            }
        };
        agree(&mut all.dataset, &document.dataset, "dataset")?;
        agree(&mut all.timeframe, &document.timeframe, "timeframe")?;
        agree(&mut all.adjust, &document.adjust, "adjust")?;
        agree(&mut all.precision, &document.precision, "precision")?;
        agree(&mut all.max_age, &document.max_age, "max_age")?;
        let others = (document.forming, document.history);
        if first {
            (all.forming, all.history) = others;
        } else if (all.forming, all.history) != others {
            let message = format!("{} has another 'forming' or 'history' than the scans before it", shown(path));
            return Err(UserMistake::with_help(
                message,
                "scans of one run read the same bars: run it by itself, or move it",
            ));
        }
        let of_scan = |used: &str| (name.to_owned(), used.to_owned());
        self.used.extend(used_names(&document).into_iter().map(of_scan));
        let ScanDocument { universe, condition, lets, defs, .. } = document;
        all.scans.push(MemberScan { name: name.to_owned(), universe, condition, lets, defs });
        Ok(())
    }

    /// Whether a let that no clause of the run uses is used by its document when that is scanned by itself, as a rank does.
    pub fn uses_by_itself(&self, unused: &UnusedLet<'_>) -> bool {
        self.used.iter().any(|(scan, name)| unused.scan == Some(scan) && unused.name == name)
    }

    /// A mistake in one of the scans, with its position in the file.
    pub fn placed(&self, mistake: Diagnostic) -> Diagnostic {
        for (name, path, text) in &self.texts {
            if let Some(clause) = mistake.clause.strip_prefix(name.as_str()).and_then(|rest| rest.strip_prefix(": ")) {
                let clause = clause.to_owned();
                return ScanDocument::placed(Diagnostic { clause, ..mistake }, &place_name(path), text);
            }
        }
        mistake
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_texts(texts: &[(&str, &str)]) -> Result<Several, String> {
        read_with(&|_| (), texts)
    }

    fn read_with(replace: &dyn Fn(&mut ScanDocument), texts: &[(&str, &str)]) -> Result<Several, String> {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in texts {
            std::fs::write(folder.path().join(name), text).expect("a file");
        }
        read_several(&[folder.path().to_owned()], replace).map_err(|e| format!("{e:?}"))
    }

    #[test]
    fn scans_of_a_folder_are_one_document() {
        let several = read_texts(&[
            ("b.toml", "dataset = 'us5'\nwhere = 'close > n'\nrank = 'close'\n[let]\nn = 5\n"),
            ("a.toml", "dataset = 'us5'\nname = 'first'\nuniverse = 'true'\nwhere = 'close > n'\n[let]\nn = 6\n"),
            ("notes.txt", "no scan"),
        ]);
        let several = several.expect("legal");
        let document = &several.document;
        let names: Vec<&str> = document.scans.iter().map(|scan| scan.name.as_str()).collect();
        assert_eq!((names, document.dataset.as_deref()), (vec!["first", "b"], Some("us5")));
        assert_eq!(document.scans[1].lets["n"], "5");
        let schema = trawl_plan::Schema::of_columns(vec!["close".to_owned()]);
        let plan = trawl_plan::compile_scan(document, &schema).expect("legal");
        assert_eq!(plan.points.len(), 2);
        let mut wrong = document.clone();
        wrong.scans[1].condition = "clsoe > n".to_owned();
        let mistakes = trawl_plan::compile_scan(&wrong, &schema).expect_err("refused");
        assert_eq!(mistakes[0].clause, "b: where");
    }

    #[test]
    fn flags_replace_what_the_documents_would_have_to_agree_on() {
        let texts = [
            ("a.toml", "dataset = 'us5'\nmax_age = '3d'\nwhere = 'true'\n"),
            ("b.toml", "dataset = 'demo'\nadjust = 'split'\nwhere = 'true'\n"),
            ("c.toml", "where = 'true'\n"),
        ];
        assert!(read_texts(&texts).expect_err("refused").contains("another 'dataset'"));
        let given = |text: &str| Some(text.to_owned());
        let replace = |document: &mut ScanDocument| {
            (document.dataset, document.adjust, document.max_age) = (given("mine"), given("none"), given("5d"));
        };
        let several = read_with(&replace, &texts).expect("legal");
        assert_eq!((several.document.dataset.as_deref(), several.document.scans.len()), (Some("mine"), 3));
        assert_eq!(several.document.adjust.as_deref(), Some("none"));
    }

    #[test]
    fn documents_that_do_not_go_together_are_refused() {
        let one = ("a.toml", "dataset = 'us5'\nwhere = 'true'\n");
        let refused = |other: &str| read_texts(&[one, ("b.toml", other)]).map(|_| ()).expect_err("refused");
        assert!(refused("dataset = 'demo'\nwhere = 'true'\n").contains("another 'dataset'"));
        assert!(refused("dataset = 'us5'\nforming = true\nwhere = 'true'\n").contains("another 'forming'"));
        assert!(refused("dataset = 'us5'\nwhere = 'true'\n[sweep]\nn = [1]\n").contains("has 'sweep'"));
        assert!(refused("wheer = 'true'\n").contains("wheer"));
        assert!(read_texts(&[("a.txt", "")]).map(|_| ()).expect_err("refused").contains("no .toml file"));
    }
}

//! `include = "lib.toml"`: lets and functions from other files. They are read here, so that no server needs the files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use trawl_plan::ScanDocument;

use crate::document::{document_at, function_name, shown, used_names};
use crate::mistake::UserMistake;

/// Files within one another.
const DEPTH_MAX: usize = 8;

/// Puts the lets and functions of the files that `document` includes into it, which its own take precedence over. `path` is the
/// document's file.
///
/// # Errors
/// A [`UserMistake`]: an unreadable file, a file with other clauses, a name that two files define.
pub fn included(document: &mut ScanDocument, path: &Path) -> Result<(), UserMistake> {
    let mut names = Names::default();
    let paths = std::mem::take(&mut document.include);
    names.add_all(&paths, path, &mut vec![path.to_owned()])?;
    let own: Vec<String> = document.lets.keys().cloned().collect();
    let own_functions: Vec<String> =
        document.defs.keys().map(|signature| function_name(signature).to_owned()).collect();
    for (name, (text, _)) in names.lets {
        document.lets.entry(name).or_insert(text);
    }
    for (signature, (text, _)) in names.defs {
        if !own_functions.iter().any(|own| own == function_name(&signature)) {
            document.defs.insert(signature, text);
        }
    }
    // A file is for several scans: what this one does not use stays behind.
    let used: Vec<String> = used_names(document).into_iter().map(str::to_owned).collect();
    document.lets.retain(|name, _| own.contains(name) || used.contains(name));
    document.defs.retain(|signature, _| {
        let name = function_name(signature);
        own_functions.iter().any(|own| own == name) || used.iter().any(|used| used == name)
    });
    Ok(())
}

/// Lets, and functions by signature: their text, and the file that it is from.
#[derive(Default)]
struct Names {
    lets: BTreeMap<String, (String, PathBuf)>,
    defs: BTreeMap<String, (String, PathBuf)>,
    read: Vec<PathBuf>,
}

impl Names {
    /// Adds the files at `paths`, as `by` names them. `open` are the files within which they are included.
    fn add_all(&mut self, paths: &[String], by: &Path, open: &mut Vec<PathBuf>) -> Result<(), UserMistake> {
        for path in paths {
            let path = by.parent().unwrap_or(Path::new("")).join(path);
            if open.contains(&path) || open.len() > DEPTH_MAX {
                let message = format!(
                    "{} includes {} again, or files are nested more than {DEPTH_MAX} deep",
                    shown(by),
                    shown(&path)
                );
                return Err(UserMistake::with_help(
                    message,
                    "a file may include others, but not itself, and not by way of them",
                ));
            }
            // Twice the same file defines nothing twice.
            if self.read.contains(&path) {
                continue;
            }
            self.add(&path, by, open)?;
            self.read.push(path);
        }
        Ok(())
    }

    fn add(&mut self, path: &Path, by: &Path, open: &mut Vec<PathBuf>) -> Result<(), UserMistake> {
        let (file, _) = document_at(path, |why| {
            let message = format!("{} includes {}, which cannot be read: {why}", shown(by), shown(path));
            UserMistake::with_help(message, "paths are relative to the file that includes")
        })?;
        let names_alone = ScanDocument {
            lets: file.lets.clone(),
            defs: file.defs.clone(),
            include: file.include.clone(),
            ..ScanDocument::default()
        };
        if file != names_alone {
            let message = format!("{} has clauses of a scan, and is included by {}", shown(path), shown(by));
            return Err(UserMistake::with_help(message, "an included file has 'include', [let] and [def] only"));
        }
        open.push(path.to_owned());
        self.add_all(&file.include, path, open)?;
        open.pop();
        for (mine, theirs) in [(&mut self.lets, file.lets), (&mut self.defs, file.defs)] {
            for (name, text) in theirs {
                let known = mine.iter().find(|(known, _)| function_name(known) == function_name(&name));
                if let Some((_, (_, other))) = known {
                    let message =
                        format!("'{}' is defined in {} and in {}", function_name(&name), shown(other), shown(path));
                    return Err(UserMistake::with_help(
                        message,
                        "rename one of them, or define it in the document itself",
                    ));
                }
                mine.insert(name, (text, path.to_owned()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(files: &[(&str, &str)]) -> Result<ScanDocument, String> {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }
        let path = folder.path().join(files[0].0);
        let mut document = ScanDocument::from_toml(files[0].1).map_err(|e| e.to_string())?;
        included(&mut document, &path).map_err(|e| format!("{e:?}"))?;
        Ok(document)
    }

    #[test]
    fn files_bring_names_and_the_documents_own_take_precedence() {
        let found = document(&[
            ("scan.toml", "include = 'lib/a.toml'\nwhere = 'up and f(g(1)) > c'\n[let]\nn = 5\n[def]\n'f(x)' = 'x'\n"),
            ("lib/a.toml", "include = ['b.toml', '../c.toml']\n[let]\nn = 9\nup = 'close > open'\n"),
            ("lib/b.toml", "include = '../c.toml'\n[def]\n'f(a, b)' = 'a'\n'g(a)' = 'a'\n"),
            ("c.toml", "[let]\nc = 'close'\n"),
        ]);
        let found = found.expect("legal");
        assert!(found.include.is_empty());
        assert_eq!(
            found.lets.iter().map(|(n, t)| format!("{n}={t}")).collect::<Vec<_>>(),
            ["c=close", "n=5", "up=close > open"]
        );
        assert_eq!(found.defs.keys().collect::<Vec<_>>(), ["f(x)", "g(a)"]);
    }

    #[test]
    fn what_cannot_be_included_is_refused() {
        let refused = |files: &[(&str, &str)]| document(files).expect_err("refused");
        assert!(refused(&[("s.toml", "include = 'no.toml'\n")]).contains("no.toml"));
        assert!(refused(&[("s.toml", "include = 's.toml'\n")]).contains("again"));
        let clauses = [("s.toml", "include = 'a.toml'\n"), ("a.toml", "where = 'true'\n")];
        assert!(refused(&clauses).contains("clauses of a scan"));
        let twice = [
            ("s.toml", "include = ['a.toml', 'b.toml']\n"),
            ("a.toml", "[def]\n'f(x)' = 'x'\n"),
            ("b.toml", "[def]\n'f(y)' = 'y'\n"),
        ];
        assert!(refused(&twice).contains("'f' is defined in"));
    }
}

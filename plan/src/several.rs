//! Several scans in one plan: each is a point, as a combination of a sweep is, and what they have in common is computed once.

use crate::document::ScanDocument;
use crate::limits::SWEEP_POINTS_MAX;

/// The variable that names the scan of each row.
pub const SCAN_VARIABLE: &str = "scan";

impl ScanDocument {
    /// The document of the one scan of a list, with what holds for the whole list; `None` if there is no list or more than one.
    pub fn of_only_scan(&self) -> Option<ScanDocument> {
        let [_] = self.scans[..] else { return None };
        let ScanDocument { universe, condition, lets, defs, .. } = member_documents(self).pop()?;
        Some(ScanDocument { universe, condition, lets, defs, scans: Vec::new(), ..self.clone() })
    }
}

/// The scans of a document as documents: each has its own clauses, and the columns and the universe of the whole.
pub(crate) fn member_documents(document: &ScanDocument) -> Vec<ScanDocument> {
    let member = |scan: &crate::document::MemberScan| ScanDocument {
        universe: match (&document.universe, &scan.universe) {
            (Some(all), Some(own)) => Some(format!("({all}) and ({own})")),
            (all, own) => all.as_ref().or(own.as_ref()).cloned(),
        },
        condition: scan.condition.clone(),
        select: document.select.clone(),
        lets: scan.lets.clone(),
        defs: scan.defs.clone(),
        ..ScanDocument::default()
    };
    document.scans.iter().map(member).collect()
}

/// What is wrong with the scans of a document, besides their clauses: where, and what to do.
pub(crate) fn mistake(document: &ScanDocument) -> Option<(String, &'static str)> {
    let of_one = [
        ("where", !document.condition.is_empty()),
        ("rank", document.rank.is_some()),
        ("limit", document.limit.is_some()),
        ("sweep", !document.sweep.is_empty()),
        ("best", document.best.is_some()),
        ("let", !document.lets.is_empty()),
        ("def", !document.defs.is_empty()),
    ];
    if let Some((clause, _)) = of_one.iter().find(|(_, given)| *given) {
        let message = format!("'{clause}' belongs to one scan, and this document has {}", document.scans.len());
        return Some((message, "leave it out, or put it into the scans"));
    }
    if document.scans.len() > SWEEP_POINTS_MAX {
        let message = format!("{} scans in one run; at most {SWEEP_POINTS_MAX} are taken", document.scans.len());
        return Some((message, "run them in parts"));
    }
    let names: Vec<&str> = document.scans.iter().map(|scan| scan.name.as_str()).collect();
    let twice = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name) || name.is_empty());
    twice.map(|(_, name)| match name.is_empty() {
        true => ("a scan among several has no name".to_owned(), "give each scan a name of its own"),
        false => (format!("two scans are named '{name}'"), "give each scan a name of its own"),
    })
}

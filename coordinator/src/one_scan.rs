//! What follows one condition, and is refused for a sweep and for several scans: which of them was asked for, in words.

use std::borrow::Cow;
use std::fmt;

use trawl_plan::ScanDocument;

use crate::prepare::PreparedScan;

/// More conditions than one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Many {
    /// Combinations of a sweep.
    Combinations(usize),
    /// Scans of a document.
    Scans(usize),
}

impl Many {
    /// What to do.
    pub fn help(self) -> &'static str {
        match self {
            Self::Combinations(_) => "give each variable one value: --sweep 'n=20'",
            Self::Scans(_) => "put the one scan into a document of its own, with its 'where' outside of [[scan]]",
        }
    }
}

impl fmt::Display for Many {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Combinations(count) => write!(f, "the sweep has {count} combinations"),
            Self::Scans(count) => write!(f, "the document has {count} scans"),
        }
    }
}

impl PreparedScan {
    /// Refuses a scan with several conditions.
    ///
    /// # Errors
    /// How many there are, and of which kind.
    pub fn check_one(&self) -> Result<(), Many> {
        match (self.document.scans.len(), self.plan.points.len()) {
            (0 | 1, 1) => Ok(()),
            (0, combinations) => Err(Many::Combinations(combinations)),
            (scans, _) => Err(Many::Scans(scans)),
        }
    }

    /// The document with the clauses of its only scan as its own.
    pub(crate) fn document_of_one(&self) -> Cow<'_, ScanDocument> {
        self.document.of_only_scan().map_or(Cow::Borrowed(&*self.document), Cow::Owned)
    }
}

//! The scan that a request is about.

use trawl_coordinator::client::Scanned;
use trawl_market::AsOf;
use trawl_plan::ScanDocument;

use super::problem::{Kind, Problem};

/// A scan that a question is about.
#[derive(Debug, Clone)]
pub struct Asked {
    /// What is scanned.
    pub document: ScanDocument,
    /// Its text as TOML, if it came as text: mistakes are placed in it.
    pub text: Option<String>,
    /// The bar.
    pub as_of: AsOf,
}

impl Asked {
    /// The scan of an answer over the snapshot and at the bar that the answer is of: what has been imported since is none of it.
    pub fn of_answer(scanned: &Scanned) -> Result<Self, Problem> {
        let identity = &scanned.answer.identity;
        let unknown = || Problem::new(Kind::Unavailable, "the coordinator that ran this scan does not say what it was");
        let document = ScanDocument {
            dataset: Some(format!("{}@{}", identity.dataset, identity.snapshot)),
            ..scanned.document.clone().ok_or_else(unknown)?
        };
        let as_of = AsOf::parse(&identity.as_of).map_err(|why| Problem::new(Kind::Internal, why.to_string()))?;
        Ok(Self { document, text: None, as_of })
    }
}

//! The scan that a request is about.

use trawl_market::AsOf;
use trawl_plan::ScanDocument;

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

//! placeholder until the next commit
pub(crate) const ORIGIN_IMPORT: &str = "import";

//! `trawl scan`.
pub mod clauses;

//! From the text of a scan to a typed plan. No I/O, no async, no GPU.
//!
//! `document` is what the user wrote; `lex`, `parse` and `ast` read one clause; `resolve` and `call` turn trees into the
//! nodes of a `graph`, with the functions that `catalogue` declares; `scan_plan` is the result.

#![forbid(unsafe_code)]

pub mod ast;
mod call;
pub mod catalogue;
pub mod diagnostic;
pub mod document;
pub mod graph;
mod lex;
pub mod limits;
mod parse;
mod resolve;
pub mod scalar;
mod scan_plan;

pub use call::{legal_values, signature};
pub use diagnostic::{Diagnostic, suggest};
pub use document::ScanDocument;
pub use scan_plan::{Direction, Output, Plan, RankKey, Schema, compile_expressions, compile_scan, parse};

//! From the text of a scan to a typed plan. No I/O, no async, no GPU.
//!
//! `document` is what the user wrote; `lex`, `parse` and `ast` read one clause; `resolve` and `call` turn trees into the
//! nodes of a `graph`, with the functions that `catalogue` declares; `scan_plan` is the result.

#![forbid(unsafe_code)]

pub mod ast;
mod call;
pub mod catalogue;
mod compile;
mod deep;
mod defined_call;
mod definitions;
pub mod diagnostic;
pub mod document;
mod edge_flags;
pub mod elementary;
mod exact;
mod explain;
pub mod explain_match;
pub mod family;
mod foreign;
mod forms;
pub mod frame;
pub mod graph;
mod group_labels;
mod level;
mod lex;
pub mod limits;
mod names;
mod needs;
mod op;
mod op_facts;
mod operators;
mod parse;
pub mod program;
mod resolve;
pub mod scalar;
mod scan_plan;
mod schema;
mod several;
mod sweep;

pub use call::{default_text, legal_values, signature};
pub use compile::{compile_expressions, compile_scan, parse};
pub use diagnostic::Diagnostic;
pub use document::{ANSWER_COLUMNS, ANSWER_TIME, History, ScanDocument};
pub use foreign::{hint as foreign_hint, hinted_functions};
pub use needs::BarsNeeded;
pub use program::{FrameProgram, Input, Program, Stage};
pub use scan_plan::{ColumnKind, Plan, Point, PointValues};
pub use schema::{Directory, Schema};
pub use several::SCAN_VARIABLE;
pub use sweep::{Best, Choice, Setting, Sharing, SweepRange, SweepValues};
pub use trawl_terms::{AttributeKind, Clock, Direction, Timeframe, suggest};

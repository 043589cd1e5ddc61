//! The reference: scans evaluated slowly and obviously, from the specification alone.
//!
//! One symbol and one bar at a time, windows from scratch, cross-sections by looking at every symbol. It shares no code
//! with the engine: neither its parser, nor its graph, nor its arithmetic. Scans are trees of its own ([`expression`])
//! that are written out as text for the engine; [`generate`] makes random ones, [`generate_market`] random markets for
//! them.
//!
//! Where the specification is silent the reference follows decisions that are documented at the functions concerned. It
//! deliberately knows nothing of shards, caches, warm-up or any timeframe but days and weeks.

pub mod answer;
pub mod edges;
pub mod evaluate;
pub mod exact;
pub mod expression;
pub mod generate;
pub mod generate_market;
pub mod indicators;
pub mod market;
pub mod minimise;
pub mod random;
mod shapes;

pub use answer::{Row, Scan, answers, answers_on};
pub use evaluate::Reference;
pub use expression::{Expr, Node};
pub use market::Market;

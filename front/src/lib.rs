//! What every front door of Trawl uses: the command line, HTTP and Python.
//!
//! [`run`] runs a prepared scan in this process, [`output`] writes its answer in each format, [`mistake`] has what users can correct.
//! Nothing here reads arguments, prints, or decides a value of an answer.

#![forbid(unsafe_code)]

pub mod chart;
pub mod compute;
pub mod describe;
pub mod document;
pub mod drawing;
pub mod every_value;
pub mod human;
pub mod include;
pub mod mistake;
pub mod output;
pub mod refused;
pub mod run;
pub mod why;

pub use mistake::UserMistake;

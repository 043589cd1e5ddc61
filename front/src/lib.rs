//! What every front door of Trawl uses: the command line, HTTP and Python.
//!
//! [`run`] runs a prepared scan in this process, [`output`] writes its answer in each format, [`mistake`] has what users can correct.
//! [`history`] has scans over history as every door asks for them. [`why`], [`explain`], [`indicators`], [`datasets`] and [`records`] are
//! the JSON that every door gives, [`http`] is the door for other programs. Nothing here reads arguments, prints, or decides a value of an answer.

#![forbid(unsafe_code)]

pub mod chart;
pub mod compute;
pub mod datasets;
pub mod devices;
pub mod document;
pub mod drawing;
pub mod every_value;
pub mod explain;
pub mod history;
pub mod http;
pub mod human;
pub mod include;
pub mod indicators;
pub mod mistake;
pub mod output;
pub mod page;
pub mod records;
pub mod refused;
pub mod run;
pub mod why;

pub use mistake::UserMistake;

//! What a process tells about itself: logs on stderr, traces by OTLP.
//!
//! `setup` starts both; `logs` writes lines; `otlp` exports spans, which `keep` lets through and `queue` sends over
//! connections of `dial`. `spans` is what rooms above use beside the macros of `tracing`, `names` how everything is
//! called. Nothing here decides anything of a scan, and nothing of a scan waits for it.

#![forbid(unsafe_code)]

mod dial;
mod environment;
mod keep;
mod logs;
pub mod names;
mod otlp;
mod queue;
mod resource;
mod setup;
pub mod spans;

pub use keep::{KEPT_TRACES_MAX, UNDECIDED_SPANS_MAX};
pub use queue::{delivered_spans, dropped_spans};
pub use setup::{Guard, Role, init};

//! What Trawl tells about itself: logs, traces, metrics.
//!
//! It decides nothing of scans, and nothing of a scan waits for it.

#![forbid(unsafe_code)]

mod dropped;
pub mod metrics;
mod setup;

pub use dropped::dropped_spans;
pub use setup::{Guard, Role, init};

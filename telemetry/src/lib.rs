//! What Trawl tells about itself: logs, traces, metrics, and to probes whether it lives and takes work.
//!
//! It decides nothing of scans, and nothing of a scan waits for it.

#![forbid(unsafe_code)]

mod dropped;
mod health;
pub mod metrics;
mod setup;

pub use dropped::dropped_spans;
pub use health::{Health, LIVE, READY};
pub use setup::{Guard, Role, init};

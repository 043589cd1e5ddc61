//! What Trawl tells about itself: logs, traces, metrics, and to probes whether it lives and takes work.
//!
//! It decides nothing of scans, and nothing of a scan waits for it.

#![forbid(unsafe_code)]

mod health;
mod setup;

pub use health::{Health, LIVE, READY};
pub use setup::{Guard, Role, init};

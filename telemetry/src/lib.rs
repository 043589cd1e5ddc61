//! What Trawl reports about itself: logs, traces, metrics, and health probes.
//!
//! `setup` starts logs and traces; `logs` writes lines; `otlp` exports spans, which `keep` selects and `queue` sends
//! over connections from `dial`. `spans` has what crates above use besides the macros of `tracing`, `names` the names
//! of spans and attributes. `metrics` are declared in their catalogue. Nothing here influences a scan, and no scan
//! waits for it.

#![forbid(unsafe_code)]

mod dial;
mod environment;
mod health;
mod keep;
mod logs;
pub mod metrics;
pub mod names;
mod otlp;
mod queue;
mod resource;
mod setup;
pub mod spans;

pub use health::{Health, LIVE, READY};
pub use keep::{KEPT_TRACES_MAX, UNDECIDED_SPANS_MAX};
pub use queue::{delivered_spans, dropped_spans};
pub use resource::gpus;
pub use setup::{Guard, Role, init};

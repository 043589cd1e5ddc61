//! What Trawl tells about itself: logs, traces, metrics, and to probes whether it lives and takes work.
//!
//! `setup` starts logs and traces; `logs` writes lines; `otlp` exports spans, which `keep` lets through and `queue` sends over
//! connections of `dial`. `spans` is what rooms above use beside the macros of `tracing`, `names` how spans and attributes
//! are called. `metrics` are declared in their catalogue. Nothing here decides anything of a scan, and nothing of a scan
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

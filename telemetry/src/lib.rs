//! What Trawl reports about itself: logs, traces, metrics, and health probes.
//!
//! `setup` starts logs and traces; `logs` writes lines, `audit` the file of the audit log; `otlp` exports spans, which `tail_sampling` selects and `queue` sends
//! over connections from `connector`. `spans` has what crates above use besides the macros of `tracing`, `names` the names
//! of spans and attributes. `metrics` are declared in their catalogue. Nothing here influences a scan, and no scan
//! waits for it.

#![forbid(unsafe_code)]

mod audit;
mod connector;
mod environment;
mod health;
mod logs;
pub mod metrics;
pub mod names;
mod otlp;
mod queue;
mod resource;
mod role;
mod setup;
pub mod spans;
mod tail_sampling;

pub use audit::{AUDIT_TARGET, AuditFile};
pub use health::{AskError, Health, LIVE, READY, ask as ask_health};
pub use queue::{delivered_spans, dropped_spans};
pub use resource::gpus;
pub use role::Role;
pub use setup::{Guard, init};
pub use tail_sampling::{KEPT_TRACES_MAX, UNDECIDED_SPANS_MAX};

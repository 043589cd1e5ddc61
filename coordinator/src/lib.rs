//! Turns a scan into shards, has them run, and merges what comes back.
//!
//! `planner` and `scheduler` are pure; `local` runs them around threads (embedded mode), `server` around etcd and gRPC.
//! Nothing here reads a bar or evaluates an expression.

#![forbid(unsafe_code)]

pub mod client;
pub mod cross;
pub mod local;
pub mod merge;
pub mod passes;
pub mod planner;
pub mod prepare;
pub mod report;
pub mod scheduler;
pub mod server;

pub use merge::{FailedSegment, MergeSpec, merge, merge_results};
pub use planner::ShardSpec;
pub use prepare::{PrepareError, PreparedScan, prepare, prepare_opened};
pub use report::{NoProgress, Progress, RunReport};
pub use trawl_protocol::answer_digest;

//! Turns a scan into shards, has them run, and merges their results.
//!
//! `planner` and `scheduler` are pure; `local` runs them around threads (embedded mode), `server` around etcd and gRPC.
//! `scan_steps` defines the steps of a scan; executing a step for a segment belongs to the `worker` crate.

#![forbid(unsafe_code)]

mod all_bars;
mod answer_size;
mod bisection_join;
mod check_result;
pub mod client;
pub mod cross;
pub mod durable;
pub mod election;
pub mod features;
mod forward;
pub mod local;
pub mod membership;
pub mod merge;
pub mod merge_spec;
mod one_scan;
mod panel;
pub mod planner;
pub mod prepare;
pub mod profile;
pub mod report;
mod routing;
pub mod scaler;
pub mod scan_steps;
pub mod scheduler;
mod series;
pub mod server;
mod study;
mod study_groups;
mod why;
pub mod worker_class;

pub use all_bars::{AllBarsError, CHUNK_BYTES_MAX, all_bars, all_bars_by_column, answer_at};
pub use answer_size::ANSWER_ROWS_MAX;
pub use merge::{FailedSegment, merge, merge_results};
pub use merge_spec::MergeSpec;
pub use one_scan::Many;
pub use panel::{PanelChunk, PanelRows};
pub use planner::ShardSpec;
pub use prepare::{PrepareError, PreparedScan, prepare, prepare_opened};
pub use report::{DeviceLost, NoProgress, Progress, RunReport, SegmentAgain, UpdateReport};
pub use routing::{Route, estimated_ns, route};
pub use series::{NoSymbol, SeriesError, SymbolSeries, series_cost_ns, symbol_series};
pub use study::{HORIZONS_MAX, HorizonStudy, STUDY_CELLS_MAX, StudyError, StudyOptions, study};
pub use study_groups::{DATES_MAX, GroupsError, PERIODS};
pub use trawl_wire::answer_digest;
pub use why::{Explained, FailedTerm, NearMiss, NearQuestion, PartValue, Question, SeenPart, WhyError};

//! The bodies of replies.

use schemars::JsonSchema;
use serde::Serialize;
use trawl_coordinator::RunReport;
use trawl_coordinator::profile::Profile;
use trawl_market::DayCoverage;

use crate::explain::Explanation;
use crate::records::{CoordinatorLine, ScanLine, WorkerLine};

/// An object that commands print as JSON too.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Object(pub serde_json::Map<String, serde_json::Value>);

/// Scans.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Scans<'a> {
    /// Newest first.
    pub scans: Vec<ScanLine<'a>>,
}

/// What a scan needs, reads and costs.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Explained {
    /// In numbers.
    #[serde(flatten)]
    pub explanation: Explanation,
    /// The steps of the plan, a line each.
    pub plan_steps: Vec<String>,
}

/// The report of a scan's run.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Report {
    /// What it did.
    #[serde(flatten)]
    pub report: RunReport,
    /// Where its time went; left out for a report of another release that cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
}

/// Symbols and bars by day.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Coverage {
    /// Oldest first; times in microseconds since 1970-01-01 UTC.
    pub days: Vec<DayCoverage>,
}

/// Workers.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Workers<'a> {
    /// All that are registered.
    pub workers: Vec<WorkerLine<'a>>,
}

/// Coordinators.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Coordinators<'a> {
    /// All that are registered.
    pub coordinators: Vec<CoordinatorLine<'a>>,
}

/// What answers.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Version {
    /// The release.
    pub version: &'static str,
    /// Which bits its arithmetic gives.
    pub numerics: String,
    /// Version of this interface.
    pub api: &'static str,
    /// `serve` or `coordinator`.
    pub mode: &'static str,
}

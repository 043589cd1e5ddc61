//! `trawl scans trace SCAN`: where the time of a scan went, without a tracing backend.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use serde::Serialize;
use trawl_coordinator::RunReport;
use trawl_coordinator::profile::Profile;
use trawl_front::records::state_name;
use trawl_wire::pb;

use super::{ClientArgs, ask};
use crate::failure::DONE;
use crate::output::waterfall;

/// Show where the time of a scan went: stages, the slowest shards, and what probably delayed them
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The scan's id, as 'trawl scans list' shows it
    scan: String,

    #[command(flatten)]
    client: ClientArgs,

    /// Show every shard and every straggler
    #[arg(long)]
    all_shards: bool,

    /// Print JSON
    #[arg(long, conflicts_with = "all_shards")]
    json: bool,
}

/// The JSON output.
#[derive(Serialize)]
struct Output<'a> {
    state: &'a str,
    #[serde(flatten)]
    profile: &'a Profile,
}

/// Shows a profile after a scan.
pub fn show(report: &RunReport) -> anyhow::Result<()> {
    let options = waterfall::Options { width: waterfall::width(), all: false, more: "" };
    print(&format!("\n{}", waterfall::render(&Profile::of(report), options)))
}

fn print(text: &str) -> anyhow::Result<()> {
    io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
}

/// Asks the coordinator for the profile and shows it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let scan = args.scan.clone();
    let reply = ask(&args.client, async |manager| manager.trace(&scan).await)?;
    let state = reply.scan.as_ref().map_or(pb::ScanState::Unspecified, pb::ScanInfo::state);
    if reply.report_json.is_empty() {
        let why = match state {
            pb::ScanState::Queued => "waits for its turn, and has not begun",
            pb::ScanState::Running => "has only just started",
            _ => {
                "has ended without an answer, and this coordinator does not have its timings: they are kept by the coordinator that \
                 led at that time, as long as it has room for them"
            }
        };
        anyhow::bail!("there is nothing to show for scan {}: it {why}", args.scan);
    }
    let report: RunReport =
        serde_json::from_str(&reply.report_json).context("the coordinator's report cannot be read")?;
    let profile = Profile::of(&report);
    if args.json {
        let output = Output { state: state_name(state), profile: &profile };
        print(&format!("{}\n", serde_json::to_string(&output)?))?;
        return Ok(ExitCode::from(DONE));
    }
    let options = waterfall::Options { width: waterfall::width(), all: args.all_shards, more: " with --all-shards" };
    let mut text = waterfall::render(&profile, options);
    if !matches!(state, pb::ScanState::Done) {
        text.push_str(&format!("\nthe scan is {}\n", state_name(state)));
    }
    print(&text)?;
    Ok(ExitCode::from(DONE))
}

//! `trawl data rm` and `trawl data prune`: deleting datasets and snapshots, and how much space that freed.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use trawl_market::{RemovalReport, now};

use crate::app::Context;
use crate::failure::of_market;
use crate::human::{bytes, counted};
use crate::output::table::short_snapshot;

const RM_AFTER_HELP: &str = "\
NAME deletes the dataset with all of its snapshots. NAME@SNAPSHOT deletes one snapshot and the files that no other one \
has; after the newest one is deleted, the one before it is the newest. What a scan is reading is not deleted, nor is a \
bundled dataset.

Examples:
  trawl data rm mine
  trawl data rm mine@0123abcd";

/// Delete a dataset, or one of its snapshots
#[derive(Debug, clap::Args)]
#[command(after_help = RM_AFTER_HELP)]
pub struct RmArgs {
    /// Dataset: NAME, or NAME@SNAPSHOT with at least 8 digits of a snapshot's id
    #[arg(value_name = "DATASET")]
    dataset: String,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

const PRUNE_AFTER_HELP: &str = "\
The newest snapshot is the one that NAME opens; the others are ordered by the time they were made. A snapshot that a scan is \
reading is kept too, and reported. Files that a kept snapshot uses are not deleted.

Examples:
  trawl data prune mine --keep 5";

/// Delete the old snapshots of a dataset
#[derive(Debug, clap::Args)]
#[command(after_help = PRUNE_AFTER_HELP)]
pub struct PruneArgs {
    /// Dataset: NAME
    #[arg(value_name = "DATASET")]
    dataset: String,

    /// Snapshots to keep, the newest ones
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep: u32,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Deletes a dataset or a snapshot.
pub fn rm(args: &RmArgs, context: &Context) -> anyhow::Result<ExitCode> {
    print(&context.store()?.remove(&args.dataset, now()).map_err(of_market)?, args.json)
}

/// Deletes old snapshots.
pub fn prune(args: &PruneArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let keep = usize::try_from(args.keep).unwrap_or(usize::MAX);
    print(&context.store()?.prune(&args.dataset, keep, now()).map_err(of_market)?, args.json)
}

fn print(report: &RemovalReport, json: bool) -> anyhow::Result<ExitCode> {
    let text = if json { format!("{}\n", serde_json::to_string_pretty(report)?) } else { text(report) };
    io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

fn text(report: &RemovalReport) -> String {
    let mut text = String::new();
    let (name, snapshots) = (&report.dataset, counted(report.removed.len(), "snapshot"));
    let freed = format!("{} in {} freed", bytes(report.bytes), counted(report.files as usize, "file"));
    for used in &report.kept_in_use {
        let _ = writeln!(text, "kept {name}@{}: {}", short_snapshot(&used.snapshot), used.why);
    }
    let _ = if report.whole {
        writeln!(text, "deleted dataset {name} with {snapshots}: {freed}")
    } else {
        writeln!(text, "deleted {snapshots} of {name}, {} left: {freed}", counted(report.snapshots, "snapshot"))
    };
    text
}

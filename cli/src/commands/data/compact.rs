//! `trawl data compact`: appended bars become part of the files of the groups.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use trawl_market::CompactReport;

use super::import::memory;
use crate::app::Context;
use crate::failure::of_market;
use crate::output::table::short_snapshot;
use trawl_front::human::counted;

const AFTER_HELP: &str = "\
An import of a few new bars appends them in a file of their own, instead of writing every group of symbols again. Scans read both; \
many appended files make them slower. This command writes the groups whole, as one import of all bars would have. It makes a new \
snapshot and changes no bar. The old snapshot stays until 'trawl data prune' deletes it, and imports may go on meanwhile.

Examples:
  trawl data compact mine
  trawl data compact mine && trawl data prune mine --keep 5";

/// Make appended bars part of a dataset's groups
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Dataset: NAME
    #[arg(value_name = "DATASET")]
    dataset: String,

    /// Memory that the compaction may use, such as 2GiB [default: half of what the machine has left]
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    memory: Option<u64>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Compacts a dataset.
pub fn run(args: &Args, context: &Context) -> anyhow::Result<ExitCode> {
    let report = context.store()?.compact(&args.dataset, args.memory).map_err(of_market)?;
    let text = if args.json { format!("{}\n", serde_json::to_string_pretty(&report)?) } else { text(&report) };
    io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

fn text(report: &CompactReport) -> String {
    let (name, before, snapshot) = (&report.dataset, short_snapshot(&report.before), short_snapshot(&report.snapshot));
    if report.unchanged {
        return format!("{name}@{snapshot} has no appended bars: nothing to do\n");
    }
    let mut text = format!(
        "{name}@{before} is now {name}@{snapshot}: {} of appended bars became part of {}\n",
        counted(report.appended_files as usize, "file"),
        counted((report.files_written + report.files_shared) as usize, "group"),
    );
    if report.appended_left > 0 {
        let _ = writeln!(text, "{} appended meanwhile", counted(report.appended_left as usize, "file"));
    }
    text
}

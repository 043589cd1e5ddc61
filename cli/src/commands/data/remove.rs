//! `trawl data rm` and `trawl data prune`: deleting datasets and snapshots, and how much space that freed.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use trawl_market::{GRACE_MAX, RemovalReport, now};

use crate::app::Context;
use crate::failure::of_market;
use crate::output::table::short_snapshot;
use trawl_front::human::{bytes, counted};

const RM_AFTER_HELP: &str = "\
NAME deletes the dataset with all of its snapshots. NAME@SNAPSHOT deletes one snapshot and the files that no other one \
has; after the newest one is deleted, the one before it is the newest. What a scan is reading is not deleted, nor is a \
bundled dataset.

In a bucket nobody knows who else is reading: what is removed cannot be opened any more, and its files are deleted by the first \
'rm' or 'prune' that comes later than --grace after it.

Examples:
  trawl data rm mine
  trawl data rm mine@0123abcd
  trawl data rm mine --data-root s3://market-data/trawl --grace 2h";

/// What `--grace` takes, with the seconds of each unit.
const GRACE_UNITS: [(&str, u64); 4] = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];

/// Delete a dataset, or one of its snapshots
#[derive(Debug, clap::Args)]
#[command(after_help = RM_AFTER_HELP)]
pub struct RmArgs {
    /// Dataset: NAME, or NAME@SNAPSHOT with at least 8 digits of a snapshot's id
    #[arg(value_name = "DATASET")]
    dataset: String,

    /// In a bucket: how long files stay after the last snapshot that has them was removed, such as 24h, 90m or 0s
    #[arg(long, value_name = "TIME", value_parser = grace, default_value = "24h")]
    grace: Duration,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

const PRUNE_AFTER_HELP: &str = "\
The newest snapshot is the one that NAME opens; the others are ordered by the time they were made. A snapshot that a scan is \
reading is kept too, and reported. Files that a kept snapshot uses are not deleted. In a bucket files are deleted by the first 'rm' or \
'prune' that comes later than --grace after the snapshot was removed: it may still be read until then.

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

    /// In a bucket: how long files stay after the last snapshot that has them was removed, such as 24h, 90m or 0s
    #[arg(long, value_name = "TIME", value_parser = grace, default_value = "24h")]
    grace: Duration,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Deletes a dataset or a snapshot.
pub fn rm(args: &RmArgs, context: &Context) -> anyhow::Result<ExitCode> {
    print(&context.store()?.deleting_after(args.grace).remove(&args.dataset, now()).map_err(of_market)?, args.json)
}

/// Deletes old snapshots.
pub fn prune(args: &PruneArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let keep = usize::try_from(args.keep).unwrap_or(usize::MAX);
    print(&context.store()?.deleting_after(args.grace).prune(&args.dataset, keep, now()).map_err(of_market)?, args.json)
}

fn grace(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = GRACE_UNITS.iter().find(|(known, _)| *known == unit).map(|(_, seconds)| *seconds);
    let time = number.parse::<u64>().ok().zip(seconds).and_then(|(number, seconds)| number.checked_mul(seconds));
    let days = GRACE_MAX.as_secs() / 86_400;
    time.map(Duration::from_secs)
        .filter(|time| *time <= GRACE_MAX)
        .ok_or_else(|| format!("a whole number with s, m, h or d up to {days}d is expected, such as 24h or 90m"))
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
    if let Some(pending) = &report.pending {
        let again = match report.whole {
            true => format!("trawl data rm {name}"),
            false => format!("trawl data prune {name} --keep {}", report.snapshots),
        };
        let files = counted(pending.files as usize, "file");
        let (size, until) = (bytes(pending.bytes), &pending.until);
        let _ = writeln!(
            text,
            "pending: {size} in {files}, which may be in use until {until}: '{again}' deletes them after that"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grace_is_a_number_with_a_unit_within_its_limit() {
        for (text, seconds) in [("0s", 0), ("90m", 5400), ("24h", 86_400), ("30d", 30 * 86_400)] {
            assert_eq!(grace(text), Ok(Duration::from_secs(seconds)));
        }
        assert_eq!(grace("24h"), Ok(trawl_market::GRACE_DEFAULT));
        for text in
            ["", "h", "24", "-1h", "1.5h", "31d", "24 h", "1w", "99999999999999999999d", "18446744073709551615d"]
        {
            assert!(grace(text).is_err_and(|why| why.contains("up to 30d") && why.contains("such as 24h")), "{text}");
        }
    }
}

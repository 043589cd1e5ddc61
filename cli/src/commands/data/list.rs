//! `trawl data list`: the datasets.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use trawl_market::{DatasetSummary, format_time};

use crate::app::Context;
use crate::commands::scans::RemoteArgs;
use crate::failure::{NOT_DONE, of_market};
use crate::output::page::{Page, new_table, push_table, right_align};
use crate::output::table::short_snapshot;
use trawl_front::human::{counted, thousands};

const AFTER_HELP: &str = "\
A dataset that cannot be opened is listed with its problem, and the exit code is 1.

Examples:
  trawl data list
  trawl data list --json
  trawl data list --coordinator http://127.0.0.1:7400";

/// List the datasets under the data root, and the bundled ones; or those of a cluster
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Print JSON, times in microseconds since 1970-01-01 UTC
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    remote: RemoteArgs,
}

/// Lists; [`NOT_DONE`] when a dataset has a problem.
pub fn run(args: &Args, context: &Context) -> anyhow::Result<ExitCode> {
    let list = if args.remote.is_remote() {
        args.remote.ask(async |manager| manager.datasets().await)?
    } else {
        context.store_to_list()?.list().map_err(of_market)?
    };
    let text =
        if args.json { format!("{}\n", serde_json::to_string_pretty(&list)?) } else { table(&list, args, context) };
    io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
    let problem = list.iter().any(|d| d.problem.is_some());
    Ok(ExitCode::from(if problem { NOT_DONE } else { 0 }))
}

fn table(list: &[DatasetSummary], args: &Args, context: &Context) -> String {
    let mut table = new_table();
    table.set_header(["dataset", "bars of", "symbols", "bars", "from", "to", "snapshot", ""]);
    for d in list {
        let time = |t: Option<i64>| t.map_or_else(String::new, format_time);
        let mut remarks = Vec::new();
        if d.bundled {
            remarks.push("bundled".to_owned());
        }
        if d.synthetic {
            remarks.push("SYNTHETIC".to_owned());
        }
        if d.problem.is_none() {
            remarks.push(d.calendar.clone());
        }
        if !d.labels.is_empty() {
            remarks.push(format!("labels {}", d.labels.join(" ")));
        }
        if d.factors > 0 {
            remarks.push(counted(d.factors as usize, "factor row"));
        }
        remarks.extend(d.problem.as_ref().map(|p| format!("cannot be opened: {p}")));
        table.add_row([
            d.name.clone(),
            d.timeframe.map(|t| t.to_string()).unwrap_or_default(),
            thousands(d.symbols),
            thousands(d.bars),
            time(d.first_time),
            time(d.last_time),
            short_snapshot(&d.snapshot).to_owned(),
            remarks.join(", "),
        ]);
    }
    right_align(&mut table, &[2, 3]);
    let mut text = String::new();
    push_table(&mut text, &table, Page::of_stdout());
    if !args.remote.is_remote() {
        text.push_str(&format!("data root {}\n", context.data_root.display()));
    }
    text
}

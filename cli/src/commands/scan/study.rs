//! `trawl study`: what followed the matches of a scan.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use trawl_coordinator::local::LocalOptions;
use trawl_coordinator::{HorizonStudy, PreparedScan, StudyOptions};
use trawl_front::history::{HORIZON_MAX, Names, StudyWanted, studied, unused_limit};
use trawl_kernels::NoCancel;
use trawl_market::AsOf;

use super::{Clauses, Running, asked, begin, prepare, routed, warn_unused};
use crate::app::Context;
use crate::backend::Workload;
use crate::output::page::{Grid, Page};
use crate::output::table::{cell, short_snapshot};

const AFTER_HELP: &str = "\
At every bar up to the as-of the scan is answered as of that bar, and the return of each match is that of its own close so many of \
its bars later, adjusted for splits (for dividends too with --adjust split+dividend). 'universe' are all symbols that matched or \
not, at the same bars. 'excess' is the mean over bars of the mean return of a bar's matches less that of its universe, and 't' \
that excess over its standard error (matches of one bar are one observation; overlapping returns are allowed for, Newey and \
West 1987). No costs, no slippage: it says what followed, not what could have been earned.

Examples:
  trawl study --dataset demo --where 'crosses_above(close, highest(high, 252)[1])' --horizons 1,5,20
  trawl study --file scan.toml --horizons 5,20 --by sector --from 2020-01-01
  trawl study --file scan.toml --by year
  trawl study --file scan.toml --by 2020-01-01,2023-01-01   # before the first date, between them, from the second on";

/// What followed the matches of a scan: returns over the next bars, against all symbols
#[derive(Debug, clap::Args)]
#[command(
    after_help = AFTER_HELP,
    mut_arg("backend", |arg| arg.hide(true)),
    mut_arg("device_memory", |arg| arg.hide(true)),
    mut_arg("allow_partial", |arg| arg.hide(true)),
    mut_arg("deadline", |arg| arg.hide(true)),
    mut_arg("profile", |arg| arg.hide(true))
)]
pub struct Args {
    #[command(flatten)]
    clauses: Clauses,

    /// Bars ahead, with commas
    #[arg(long, value_name = "BARS,...", default_value = "1,5,20", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=i64::from(HORIZON_MAX)))]
    horizons: Vec<u32>,

    /// Study each group by itself: symbols by a label such as sector, as it was at each bar; bars by year, quarter, month, weekday, or
    /// divided by dates
    #[arg(long, value_name = "LABEL|PERIOD|DATE,...")]
    by: Option<String>,

    /// Only matches at bars that start at or after this date or time, on the exchange's clock
    #[arg(long, value_name = "WHEN", value_parser = begin)]
    from: Option<AsOf>,

    /// Last bar whose matches count: a date (to the end of that day), a time on the exchange's clock, an instant such as
    /// 2024-06-28T14:31:00Z, now, today or last-session [default: the newest closed bar]
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true)]
    as_of: Option<String>,

    /// Print the figures as JSON, fractions as fractions
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    running: Running,
}

/// Studies the scan and prints the figures.
///
/// # Errors
/// Those of a scan at every bar; a [`UserMistake`] for a sweep, an unknown label or a dataset without closes.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let Args { clauses, horizons, by, from, as_of, json, running } = args;
    let (document, as_of) = asked(&clauses, as_of.as_deref())?;
    let prepared = prepare(context, &document, as_of).map_err(|error| clauses.placed(error))?;
    running.backend.choose(Workload::CpuOnly("a study runs"))?;
    for warning in prepared.warnings.iter().map(String::as_str).chain(unused_limit(&document)) {
        crate::diagnostics::warning_line(warning);
    }
    warn_unused(&clauses, &document, false);
    let local = LocalOptions { threads: routed(&running, &prepared).threads(), ..LocalOptions::default() };
    let options = StudyWanted { horizons, by, from }.options(&prepared, Names::OPTIONS_AS_OF)?;
    let found = studied(&prepared, local, &options, &NoCancel)?;
    let text = match json {
        true => format!("{}\n", serde_json::to_string_pretty(&found)?),
        false => shown(&found, &options, &prepared),
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn shown(found: &[HorizonStudy], options: &StudyOptions, prepared: &PreparedScan) -> String {
    let mut text = String::new();
    // Dates are in the names of their groups.
    let group = options.by.as_deref().map(|by| if by.starts_with(|c: char| c.is_ascii_digit()) { "dates" } else { by });
    let headings = [
        "bars ahead",
        "matches",
        "at bars",
        "hit rate",
        "mean",
        "median",
        "universe hit rate",
        "mean of universe",
        "excess",
        "t",
    ];
    // The group and the horizon say what a row is.
    let keys = 1 + usize::from(group.is_some());
    let all: Vec<String> = group.into_iter().chain(headings).map(cell).collect();
    let numbers = keys - 1..all.len();
    let mut table = Grid::new(all, keys).numbers(numbers);
    let percent = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{:.2}%", 100.0 * value));
    for of in found {
        let cells = [
            of.horizon.to_string(),
            of.matches.to_string(),
            of.bars.to_string(),
            percent(of.hit_rate),
            percent(of.mean),
            percent(of.median),
            percent(of.universe_hit_rate),
            percent(of.universe_mean),
            percent(of.excess),
            of.t.map_or_else(String::new, |t| format!("{t:.2}")),
        ];
        let name = group.map(|_| cell(of.group.as_deref().unwrap_or_default()));
        table.row(name.into_iter().chain(cells).collect());
    }
    table.push(&mut text, Page::of_stdout());
    let furthest = options.horizons.last();
    let open: u64 = found.iter().filter(|of| Some(&of.horizon) == furthest).map(|of| of.open).sum();
    if open > 0 {
        let _ = writeln!(text, "not counted at the furthest: {open}, whose histories end before");
    }
    let manifest = &prepared.dataset.manifest;
    let synthetic = if manifest.synthetic { " (SYNTHETIC data, no real market)" } else { "" };
    let _ = writeln!(
        text,
        "dataset {}@{}, {} bars{synthetic}, up to {}",
        manifest.name,
        short_snapshot(&manifest.snapshot),
        manifest.timeframe,
        manifest.shown_as_of(prepared.as_of)
    );
    text
}

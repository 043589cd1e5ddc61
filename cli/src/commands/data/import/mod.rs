//! `trawl data import`: bars into a dataset, from files or from a vendor.

mod files;
mod polygon_flat;
mod polygon_rest;
mod report;

use std::process::ExitCode;

pub use files::memory;

use crate::app::Context;
use crate::commands::reading::FORMATS_HELP;

const AFTER_HELP: &str = "\
The timeframe is inferred from the spacing of the bars; a --timeframe that contradicts it is refused. Times without a zone are \
read as UTC unless --tz names one; if most bars would then lie outside the sessions of the calendar, the import is refused, \
and so it is if many bars are on days without a session (use --calendar 24/7). --dry-run shows all this and writes nothing.

Importing into an existing dataset adds to it: a new snapshot is made, the old ones stay. Bars that are imported again with other \
values replace the old ones. Rows that cannot be bars (high below low, no price, a duplicate time ...) go to a quarantine \
file with their reasons and are counted; they never stop an import unless nothing is left. A file that cannot be read is \
left out and reported; --strict refuses the import.

Prices are stored as they are. Splits and dividends are a separate table (--factors), applied when a scan asks for \
it; a row with split 1 and dividend 0 removes an event. Names and labels are another table (--symbols), which replaces the \
previous one. Numbers and dates of symbols are a third one (--attributes): each value is known from its date on. They may be \
imported without bars into an existing dataset.

  factors     symbol,date,split,dividend: ex-date, new shares for an old one (4, or 0.1), cash per share; or ticker, execution_date and split_from,split_to or historical_adjustment_factor
  symbols     symbol,ticker,from,to and one column for each label, such as sector; several rows of a symbol with intervals from <= time < to describe renames and changes
  attributes  symbol,date and one column for each attribute, such as market_cap or earnings: numbers or dates, known from date on; an empty cell changes nothing

polygon-flat and polygon-rest import from Polygon (Massive); write ./polygon-flat for a file of that name.

Examples:
  trawl data import AAPL.csv IBM.csv --dataset mine
  trawl data import minutes.parquet --dataset minutes --tz America/New_York --dry-run
  trawl data import klines/ --dataset crypto
  duckdb -c \"copy bars to '/dev/stdout' (format parquet)\" | trawl data import - --dataset mine
  trawl data import --dataset mine --factors splits.csv --symbols names.csv
  trawl data import polygon-flat s3://flatfiles/us_stocks_sip/day_aggs_v1 --dataset us --from 2024-01-01";

/// Import bars into a dataset: files of CSV, JSON lines, Parquet, Arrow; or from a vendor
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{FORMATS_HELP}\n\n{AFTER_HELP}"))]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    vendor: Option<Vendor>,

    #[command(flatten)]
    files: files::FileArgs,
}

/// Vendors whose data are fetched.
#[derive(Debug, clap::Subcommand)]
enum Vendor {
    PolygonFlat(Box<polygon_flat::Args>),
    PolygonRest(Box<polygon_rest::Args>),
}

/// Imports, and reports what happened to every row.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    match args.vendor {
        Some(Vendor::PolygonFlat(args)) => polygon_flat::run(*args, context),
        Some(Vendor::PolygonRest(args)) => polygon_rest::run(*args, context),
        None => files::run(args.files, context),
    }
}

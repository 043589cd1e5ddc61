//! `trawl data synth`: a generated market of any size, marked as synthetic wherever it is shown.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use trawl_market::Timeframe;
use trawl_market::limits::{SYMBOLS_MAX, SYNTH_BARS_MAX};
use trawl_market::{SynthOptions, SynthReport, format_time, synthesise};

use crate::app::Context;
use crate::failure::of_market;
use crate::output::table::short_snapshot;
use trawl_front::human::{bytes, counted};

const AFTER_HELP: &str = "\
The same options give the same bars, and so the same snapshot, on every machine.

Examples:
  trawl data synth --symbols 10000 --bars 1000 --seed 1
  trawl data synth --symbols 500 --bars 50000 --seed 7 --timeframe 1m --dataset minutes";

/// Generate a synthetic market: a dataset of random walks, marked as such
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// How many symbols
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=SYMBOLS_MAX as i64))]
    symbols: u32,

    /// Length of the market in bars; some symbols have fewer
    #[arg(long, value_name = "M", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=i64::from(SYNTH_BARS_MAX)))]
    bars: u32,

    /// Seed of the generator; the same seed gives the same market
    #[arg(long, value_name = "S", allow_negative_numbers = true, default_value_t = 0)]
    seed: u64,

    /// Name of the new dataset [default: synth-N-M-S]
    #[arg(long, short, value_name = "NAME")]
    dataset: Option<String>,

    /// Length of a bar, such as 1d or 1m
    #[arg(long, short, value_name = "TIMEFRAME", default_value = "1d")]
    timeframe: Timeframe,

    /// Print JSON, times in microseconds since 1970-01-01 UTC
    #[arg(long)]
    json: bool,
}

/// Generates the market.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let name = args.dataset.unwrap_or_else(|| format!("synth-{}-{}-{}", args.symbols, args.bars, args.seed));
    let options =
        SynthOptions { name, symbols: args.symbols, bars: args.bars, seed: args.seed, timeframe: args.timeframe };
    let report = synthesise(&context.store()?, &options).map_err(of_market)?;
    let text = if args.json { format!("{}\n", serde_json::to_string_pretty(&report)?) } else { text(&report) };
    io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

fn text(report: &SynthReport) -> String {
    format!(
        "made dataset {}@{} (SYNTHETIC, no real market): {}, {}, {} to {}, {}\nscan it with: trawl scan --dataset {} --where 'EXPR'\n",
        report.dataset,
        short_snapshot(&report.snapshot),
        counted(report.symbols as usize, "symbol"),
        counted(report.bars as usize, "bar"),
        format_time(report.first_time),
        format_time(report.last_time),
        bytes(report.bytes),
        report.dataset,
    )
}

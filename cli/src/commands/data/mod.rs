//! `trawl data`: datasets. Importing, generating, inspecting, exporting, compacting and deleting them.

pub mod compact;
pub mod export;
pub mod import;
pub mod inspect;
mod jumps;
pub mod list;
mod quality;
pub mod remove;
pub mod synth;

use std::process::ExitCode;

use crate::app::Context;

const AFTER_HELP: &str = "\
Examples:
  trawl data import AAPL.csv IBM.csv --dataset mine
  trawl data list
  trawl data inspect us5 --symbol IBM
  trawl data export us5 --symbol IBM -o ibm.csv
  trawl data prune mine --keep 5";

/// Import, list, inspect, export, compact and delete datasets
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP, arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

/// What to do with datasets.
#[derive(Debug, clap::Subcommand)]
enum Command {
    Import(Box<import::Args>),
    List(list::Args),
    Inspect(inspect::Args),
    Export(Box<export::Args>),
    Compact(compact::Args),
    Rm(remove::RmArgs),
    Prune(remove::PruneArgs),
    Synth(synth::Args),
}

/// Runs the subcommand.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Import(args) => import::run(*args, context),
        Command::List(args) => list::run(&args, context),
        Command::Inspect(args) => inspect::run(args, context),
        Command::Export(args) => export::run(&args, context),
        Command::Compact(args) => compact::run(&args, context),
        Command::Rm(args) => remove::rm(&args, context),
        Command::Prune(args) => remove::prune(&args, context),
        Command::Synth(args) => synth::run(args, context),
    }
}

/// `trawl datasets`, an earlier spelling: the list, or one of three verbs.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DatasetsArgs {
    #[command(subcommand)]
    command: Option<DatasetsCommand>,

    #[command(flatten)]
    list: list::Args,
}

/// Subcommands of `trawl datasets`.
#[derive(Debug, clap::Subcommand)]
enum DatasetsCommand {
    Rm(remove::RmArgs),
    Prune(remove::PruneArgs),
    Export(Box<export::Args>),
}

/// Runs `trawl datasets`.
pub fn run_datasets(args: &DatasetsArgs, context: &Context) -> anyhow::Result<ExitCode> {
    match &args.command {
        Some(DatasetsCommand::Rm(args)) => remove::rm(args, context),
        Some(DatasetsCommand::Prune(args)) => remove::prune(args, context),
        Some(DatasetsCommand::Export(args)) => export::run(args, context),
        None => list::run(&args.list, context),
    }
}

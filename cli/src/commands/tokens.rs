//! `trawl tokens`: creates users' tokens. A coordinator stores only their digests (`--tokens FILE`).

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use trawl_security::allowance::{Day, parse_datasets, parse_day};
use trawl_security::rights::{Right, parse_rights};
use trawl_security::{Allowance, Token};
use trawl_terms::Priority;
use trawl_wire::record::checked_name;

/// Create tokens for users of a coordinator
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    New(NewArgs),
}

const AFTER_HELP: &str = "\
It prints two lines. The first is the token, shown this once: the user stores it in a file that nobody else can read and \
names that file with --token-file or TRAWL_TOKEN_FILE. The second is the line for the coordinator's --tokens file: append it, \
and the token is valid within seconds; remove it, and the token is no longer valid.

Roles:
  submit     run scans
  read       see one's own scans, and the workers
  read-all   see everybody's scans
  admin      all of it

Example:
  trawl tokens new alice --roles submit,read
  trawl tokens new bob --roles submit,read --priority high --until 2027-06-30 --datasets us5,eu5";

/// Create a token of 256 random bits
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
struct NewArgs {
    /// The user's name, as limits and the log use it
    #[arg(value_parser = checked_name)]
    name: String,

    /// Roles of the user, separated by commas
    #[arg(long, value_name = "ROLE,...", default_value = "submit,read", value_parser = rights)]
    roles: Rights,

    /// Highest priority that the user may ask for [default: normal; high for admin]
    #[arg(long, value_name = "PRIORITY", value_parser = Priority::parse)]
    priority: Option<Priority>,

    /// Last day on which the token is valid, in UTC [default: no end]
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = parse_day)]
    until: Option<Day>,

    /// Scans that the user may have running [default: the coordinator's --scans-per-caller-max]
    #[arg(long, value_name = "N")]
    scans: Option<u32>,

    /// Submissions per minute [default: the coordinator's --submissions-per-minute-max]
    #[arg(long, value_name = "N")]
    submissions_per_minute: Option<u32>,

    /// Datasets that the user may scan, separated by commas [default: all]
    #[arg(long, value_name = "NAME,...", value_parser = datasets)]
    datasets: Option<Names>,
}

/// One value for clap.
#[derive(Debug, Clone)]
struct Names(Vec<String>);

fn datasets(text: &str) -> Result<Names, String> {
    parse_datasets(text).map(Names)
}

/// One value for clap.
#[derive(Debug, Clone)]
struct Rights(Vec<Right>);

fn rights(text: &str) -> Result<Rights, String> {
    parse_rights(text).map(Rights)
}

/// Prints a token and its line for the coordinator.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Command::New(args) = args.command;
    let token = Token::fresh().map_err(|why| anyhow::anyhow!("no random numbers available: {why}"))?;
    let roles = args.roles.0;
    let allowance = Allowance {
        priority: args.priority.unwrap_or(Allowance::usual(&roles).priority),
        until: args.until,
        scans: args.scans,
        submissions_per_minute: args.submissions_per_minute,
        datasets: args.datasets.map(|names| names.0).unwrap_or_default(),
    };
    let text = format!("{}\n{}\n", token.secret(), token.line(&args.name, &roles, &allowance));
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

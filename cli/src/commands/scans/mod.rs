//! `trawl scans`: the scans that a cluster has recorded.
//!
//! They query a coordinator and print its reply.

pub mod trace;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use serde::Serialize;
use trawl_coordinator::client::{self, ClientError, Manager};
use trawl_front::records::{ScanLine, instant, parse_state, state_name};
use trawl_front::run::Outcome;
use trawl_security::ClientSecurity;
use trawl_wire::pb;

use crate::commands::scan::{Files, ShownArgs, finish, of_client};
use crate::commands::security::TlsArgs;
use crate::failure::{DONE, NOT_DONE, UserMistake};
use crate::progress::Waiting;

const AFTER_HELP: &str = "\
Examples:
  trawl scans list --active
  trawl scans watch SCAN -o answer.parquet
  trawl scans trace SCAN";

/// List, follow and cancel the scans of a cluster, show their answers and where their time went
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP, arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

/// What to do with scans.
#[derive(Debug, clap::Subcommand)]
enum Command {
    List(ListArgs),
    Status(StatusArgs),
    Watch(WatchArgs),
    Results(ResultsArgs),
    Trace(trace::Args),
    Cancel(CancelArgs),
}

/// Runs the subcommand.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::List(args) => list(args),
        Command::Status(args) => status(args),
        Command::Watch(args) => watch(args),
        Command::Results(args) => results(args),
        Command::Trace(args) => trace::run(args),
        Command::Cancel(args) => cancel(args),
    }
}

fn parse_instant(text: &str) -> Result<i64, String> {
    let expected = "a time in UTC is expected, such as 2026-11-02 or 2026-11-02T09:30:00";
    trawl_market::parse_time(text).ok_or_else(|| expected.to_owned())
}

/// How to reach a coordinator.
#[derive(Debug, clap::Args)]
pub struct ClientArgs {
    /// Coordinators, separated by commas: any of them can answer
    #[arg(
        long,
        value_name = "URL,...",
        env = "TRAWL_COORDINATOR",
        hide_env = true,
        default_value = "http://127.0.0.1:7400"
    )]
    coordinator: String,

    #[command(flatten)]
    tls: TlsArgs,

    /// File that contains the token for the coordinator
    #[arg(long, value_name = "FILE", env = "TRAWL_TOKEN_FILE", hide_env = true, help_heading = "Security")]
    token_file: Option<PathBuf>,
}

impl ClientArgs {
    /// The coordinators' addresses, separated by commas, and how to connect to them.
    ///
    /// # Errors
    /// A file of certificates or of a token that cannot be used.
    pub fn target(&self) -> Result<(String, ClientSecurity), UserMistake> {
        Ok((self.coordinator.clone(), self.tls.client(self.token_file.as_ref())?))
    }
}

/// List the scans of a cluster, newest first
#[derive(Debug, clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    client: ClientArgs,

    /// Number of scans to list at most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,

    /// Only scans that wait or run
    #[arg(long, conflicts_with = "state")]
    active: bool,

    /// Only scans in these states, separated by commas: queued, running, done, failed, cancelled
    #[arg(long, value_name = "STATE,...", value_delimiter = ',', value_parser = parse_state)]
    state: Vec<pb::ScanState>,

    /// Only scans of this caller, as the column OWNER shows it
    #[arg(long, value_name = "CALLER")]
    owner: Option<String>,

    /// Only scans of this dataset: NAME, or NAME@SNAPSHOT with at least the first digits
    #[arg(long, value_name = "DATASET")]
    dataset: Option<String>,

    /// Only scans submitted at or after this time, in UTC: YYYY-MM-DD, or YYYY-MM-DDTHH:MM:SS
    #[arg(long, value_name = "TIME", value_parser = parse_instant)]
    since: Option<i64>,

    /// Only scans submitted before this time
    #[arg(long, value_name = "TIME", value_parser = parse_instant)]
    before: Option<i64>,

    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
}

/// Show a scan's progress, or how it ended; the exit code is 0 while it waits or runs and when it has an answer
#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    /// The scan's id, as 'trawl scans list' shows it
    scan: String,

    #[command(flatten)]
    client: ClientArgs,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Follow a scan to its end and show its answer; Ctrl-C stops following, not the scan
#[derive(Debug, clap::Args)]
pub struct WatchArgs {
    /// The scan's id, as 'trawl scans list' shows it
    scan: String,

    #[command(flatten)]
    client: ClientArgs,

    #[command(flatten)]
    shown: ShownArgs,
}

/// Show the answer of a scan that has ended
#[derive(Debug, clap::Args)]
pub struct ResultsArgs {
    /// The scan's id, as 'trawl scans list' shows it
    scan: String,

    #[command(flatten)]
    client: ClientArgs,

    #[command(flatten)]
    shown: ShownArgs,
}

/// Cancel a scan, also on the workers
#[derive(Debug, clap::Args)]
pub struct CancelArgs {
    /// The scan's id, as 'trawl scans list' shows it
    scan: String,

    #[command(flatten)]
    client: ClientArgs,
}

/// How to reach a coordinator, for commands that also work without one.
#[derive(Debug, clap::Args)]
pub struct RemoteArgs {
    /// Ask these coordinators, separated by commas, instead of reading the data root of this machine
    #[arg(long, value_name = "URL,...")]
    coordinator: Option<String>,

    #[command(flatten)]
    tls: TlsArgs,

    /// File that contains the token for the coordinator
    #[arg(long, value_name = "FILE", env = "TRAWL_TOKEN_FILE", hide_env = true, help_heading = "Security")]
    token_file: Option<PathBuf>,
}

impl RemoteArgs {
    /// Whether a coordinator is to be asked.
    pub fn is_remote(&self) -> bool {
        self.coordinator.is_some()
    }

    /// Sends one request to a coordinator.
    pub fn ask<T>(&self, question: impl AsyncFnOnce(&mut Manager<'_>) -> Result<T, ClientError>) -> anyhow::Result<T> {
        let urls = self.coordinator.as_deref().unwrap_or_default();
        ask_at(urls, (&self.tls, self.token_file.as_ref()), question)
    }
}

/// Sends one request to a coordinator.
pub(super) fn ask<T>(
    args: &ClientArgs,
    question: impl AsyncFnOnce(&mut Manager<'_>) -> Result<T, ClientError>,
) -> anyhow::Result<T> {
    ask_at(&args.coordinator, (&args.tls, args.token_file.as_ref()), question)
}

fn ask_at<T>(
    urls: &str,
    (tls, token_file): (&TlsArgs, Option<&PathBuf>),
    question: impl AsyncFnOnce(&mut Manager<'_>) -> Result<T, ClientError>,
) -> anyhow::Result<T> {
    let security = tls.client(token_file)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
    let asked = async { question(&mut Manager::connect(urls, &security).await?).await };
    runtime.block_on(asked).map_err(of_client)
}

/// The progress, in a few words.
fn progress(info: &pb::ScanInfo) -> String {
    match info.state() {
        pb::ScanState::Running if !info.waits_for.is_empty() => {
            format!("{}/{}, waits for workers", info.segments_ended, info.segments)
        }
        pb::ScanState::Done if info.failed_symbols > 0 => format!("{} symbols failed", info.failed_symbols),
        pb::ScanState::Running if info.step > 1 => {
            format!("step {}: {}/{}", info.step, info.segments_ended, info.segments)
        }
        pb::ScanState::Running => format!("{}/{}", info.segments_ended, info.segments),
        _ => String::new(),
    }
}

/// Columns as wide as their widest cell; the last is not padded.
pub(super) fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.first().map_or(0, Vec::len);
    let width = |i: usize| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

pub(super) fn print(text: &str) -> anyhow::Result<()> {
    io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
}

pub(super) fn json_lines<T: Serialize>(lines: impl IntoIterator<Item = T>) -> anyhow::Result<String> {
    let mut text = String::new();
    for line in lines {
        text.push_str(&serde_json::to_string(&line)?);
        text.push('\n');
    }
    Ok(text)
}

/// Lists scans.
pub fn list(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let wanted = pb::ListScansRequest {
        limit: args.limit,
        active: args.active,
        states: args.state.iter().map(|state| (*state).into()).collect(),
        owner: args.owner.clone().unwrap_or_default(),
        dataset: args.dataset.clone().unwrap_or_default(),
        submitted_from_us: args.since,
        submitted_before_us: args.before,
    };
    let filtered =
        pb::ListScansRequest { limit: 0, active: false, ..wanted.clone() } != pb::ListScansRequest::default();
    let reply = ask(&args.client, async |manager| manager.list(wanted).await)?;
    if args.json {
        print(&json_lines(reply.scans.iter().map(ScanLine::of))?)?;
        return Ok(ExitCode::from(DONE));
    }
    if reply.scans.is_empty() {
        print(match (filtered, args.active) {
            (true, _) => "no scan fits these options\n",
            (false, true) => "no scan waits or runs\n",
            (false, false) => "no scans\n",
        })?;
        return Ok(ExitCode::from(DONE));
    }
    let head = ["SCAN", "STATE", "SUBMITTED", "OWNER", "SEGMENTS", "CONDITION"].map(str::to_owned).to_vec();
    let row = |info: &pb::ScanInfo| {
        let state = state_name(info.state()).to_owned();
        let when = instant(info.submitted_us);
        vec![info.scan_id.clone(), state, when, info.owner.clone(), progress(info), info.condition.clone()]
    };
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(reply.scans.iter().map(row)).collect();
    print(&columns(&rows))?;
    if reply.more {
        print("there are older scans: --limit N lists more\n")?;
    }
    Ok(ExitCode::from(DONE))
}

/// Shows one scan.
pub fn status(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let scan = args.scan.clone();
    let info = ask(&args.client, async |manager| manager.status(&scan).await)?;
    let code = match info.state() {
        pb::ScanState::Failed | pb::ScanState::Cancelled => NOT_DONE,
        _ => DONE,
    };
    if args.json {
        print(&json_lines([ScanLine::of(&info)])?)?;
        return Ok(ExitCode::from(code));
    }
    let line = ScanLine::of(&info);
    let mut rows = vec![
        ("scan", line.scan.to_owned()),
        ("state", line.state.to_owned()),
        ("owner", line.owner.to_owned()),
        ("recorded", if line.durable { "yes" } else { "no, ephemeral" }.to_owned()),
        ("priority", line.priority.to_owned()),
        ("submitted", line.submitted),
    ];
    rows.extend(line.ended.map(|ended| ("ended", ended)));
    rows.push(("dataset", line.dataset.to_owned()));
    rows.push(("condition", line.condition.to_owned()));
    if line.generation > 0 {
        rows.push(("restarted", format!("{} times, after upgrades", line.generation)));
    }
    let progress = progress(&info);
    if !progress.is_empty() {
        rows.push(("segments", progress));
    }
    rows.extend(line.failure.map(|failure| ("failure", format!("{} ({})", failure.message, failure.kind.name()))));
    if !line.waits_for.is_empty() {
        rows.push(("waits for", format!("a worker of class {}", line.waits_for)));
    }
    if !line.answer_digest.is_empty() {
        rows.push(("answer", line.answer_digest.to_owned()));
    }
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    print(&columns(&rows))?;
    Ok(ExitCode::from(code))
}

fn answer(client: &ClientArgs, scan: &str, shown: &ShownArgs) -> anyhow::Result<ExitCode> {
    let files = Files::check(shown)?;
    let security = client.tls.client(client.token_file.as_ref())?;
    let waiting = Waiting::new(shown.quiet);
    let scanned = client::watch_blocking(&client.coordinator, &security, scan, &waiting).map_err(of_client)?;
    drop(waiting);
    finish(shown, Outcome::from(scanned), files)
}

/// Follows a scan to its answer.
pub fn watch(args: &WatchArgs) -> anyhow::Result<ExitCode> {
    answer(&args.client, &args.scan, &args.shown)
}

/// Shows the answer of a scan that has ended.
pub fn results(args: &ResultsArgs) -> anyhow::Result<ExitCode> {
    let scan = args.scan.clone();
    let info = ask(&args.client, async |manager| manager.status(&scan).await)?;
    if matches!(info.state(), pb::ScanState::Queued | pb::ScanState::Running) {
        let state = state_name(info.state());
        anyhow::bail!(
            "scan {} is {state} and has no answer yet: 'trawl scans watch {}' waits for it",
            args.scan,
            args.scan
        );
    }
    answer(&args.client, &args.scan, &args.shown)
}

/// Cancels a scan.
pub fn cancel(args: &CancelArgs) -> anyhow::Result<ExitCode> {
    let scan = args.scan.clone();
    let info = ask(&args.client, async |manager| manager.cancel(&scan).await)?;
    let message = match info.state() {
        pb::ScanState::Queued | pb::ScanState::Running => format!("scan {} is being cancelled\n", args.scan),
        ended => format!("scan {} had already ended: {}\n", args.scan, state_name(ended)),
    };
    print(&message)?;
    Ok(ExitCode::from(DONE))
}

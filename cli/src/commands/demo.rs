//! `trawl demo`: one scan, in one process and on a cluster of three workers, compared byte for byte.
//!
//! It runs the same commands that a user would, as processes, and prints each of them.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use sha2::{Digest as _, Sha256};
use tokio::process::Command;
use trawl_coordinator::client::Manager;
use trawl_security::ClientSecurity;
use trawl_wire::pb::{ScanInfo, ScanState};

use super::cluster::etcd::{self, Etcd};
use super::cluster::local::{LocalCluster, Size};
use super::cluster::threads_each;
use super::serving::{runtime, stop_signal};
use crate::app::Context;
use trawl_front::human::counted;

/// Workers of the demonstration.
const WORKERS: u16 = 3;
/// The one that is killed.
const KILLED: u16 = 2;
/// Symbols of its market: 32 segments of 64.
const SYMBOLS: &str = "2048";
/// Bars of its market.
const BARS: &str = "400";
/// Milliseconds that each segment takes longer on the cluster, so that there is a middle to kill a worker in.
const DELAY_MS: u64 = 100;
/// Segments that are done when the worker is killed.
const KILL_AFTER_SEGMENTS: u32 = 4;
/// What is scanned for: a condition of each symbol, and a rank among all of them.
const WHERE: &str = "close > sma(close, 50) and xs_pct(roc(close, 63)) > 0.9";
/// Interval at which the progress of the scan is read.
const POLL: Duration = Duration::from_millis(20);
/// Maximum time until the scan has got far enough for the kill.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(60);

const AFTER_HELP: &str = "\
It makes a synthetic market in a temporary folder, scans it in one process, starts etcd, a coordinator and three workers on \
loopback, runs the same scan there and compares the two answers. Nothing is left behind.

Exit code 0: the answers are equal, byte for byte.

Examples:
  trawl demo
  trawl demo --kill-worker";

/// Run one scan in one process and on a cluster of three workers, and compare the answers
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Kill one of the workers with SIGKILL in the middle of the scan
    #[arg(long)]
    kill_worker: bool,

    /// The etcd to start [default: the one on PATH, else target/tools/etcd]
    #[arg(long, value_name = "FILE")]
    etcd_binary: Option<PathBuf>,
}

/// Runs the demonstration.
///
/// # Errors
/// A process that does not start or fails. Answers that differ are exit code 1.
pub fn run(args: &Args, _context: &Context) -> anyhow::Result<ExitCode> {
    let etcd = etcd::find(None, args.etcd_binary.as_deref())?;
    let runtime = runtime()?;
    let done = runtime.block_on(async {
        let stop = stop_signal(false)?;
        let mut cluster = LocalCluster::new()?;
        let done = tokio::select! {
            () = stop => bail!("interrupted"),
            done = demonstrate(args, &mut cluster, &etcd) => done,
        };
        cluster.down().await;
        done
    });
    runtime.shutdown_background();
    done
}

async fn demonstrate(args: &Args, cluster: &mut LocalCluster, etcd: &Etcd) -> anyhow::Result<ExitCode> {
    let folder = cluster.scratch().to_owned();
    let data_root = folder.join("data");
    let [alone, there] = ["one-process.csv", "cluster.csv"].map(|name| folder.join(name));

    writeln!(io::stdout(), "A synthetic market of {SYMBOLS} symbols and {BARS} bars, scanned in one process:\n")?;
    let synth = ["data", "synth", "--symbols", SYMBOLS, "--bars", BARS, "--dataset", "market"];
    quietly(trawl(&data_root, &synth)?).await?;
    let scan = ["scan", "--dataset", "market", "--where", WHERE];
    quietly(trawl(&data_root, &[&scan[..], &["--quiet", "--output", path(&alone)?]].concat())?).await?;

    writeln!(
        io::stdout(),
        "\nThe same scan on a cluster of {WORKERS} workers, each segment {DELAY_MS} ms slower than it is:\n"
    )?;
    let size = Size {
        workers: WORKERS,
        threads: threads_each(WORKERS),
        listen: ([127, 0, 0, 1], 0).into(),
        name: "demo",
        data_root: &data_root,
        variables: Vec::new(),
        metrics: Vec::new(),
        delay_ms_per_segment: DELAY_MS,
        quiet: true,
    };
    let url = cluster.start(&size, etcd).await?.coordinator;
    let to = ["--coordinator", url.as_str()];
    let id = quietly(trawl(&data_root, &[&scan[..], &to, &["--detach"]].concat())?).await?;
    if args.kill_worker {
        let security = ClientSecurity::default();
        let mut manager = Manager::connect(&url, &security).await?;
        let info = progressed(&mut manager, &id).await?;
        cluster.kill_worker(KILLED).await;
        writeln!(
            io::stdout(),
            "  worker {KILLED} killed with SIGKILL when {} of {} were done",
            info.segments_ended,
            counted(info.segments as usize, "segment")
        )?;
    }
    quietly(trawl(&data_root, &[&["scans", "watch", &id], &to[..], &["--quiet", "--output", path(&there)?]].concat())?)
        .await?;

    writeln!(io::stdout(), "\nWhere the time went:\n")?;
    let mut trace = trawl(&data_root, &[&["scans", "trace", &id], &to[..]].concat())?;
    ensure!(trace.status().await.context("cannot run this program")?.success(), "'trawl scans trace' failed");

    writeln!(io::stdout(), "\nSHA-256 of the two answers:\n")?;
    let [alone, there] = [&alone, &there].map(|file| digest(file));
    let (alone, there) = (alone?, there?);
    writeln!(io::stdout(), "  one process  {alone}\n  cluster      {there}")?;
    if alone != there {
        writeln!(io::stdout(), "\nThe answers differ. That must not happen: please report it.")?;
        return Ok(ExitCode::FAILURE);
    }
    writeln!(
        io::stdout(),
        "\nEqual, byte for byte{}.",
        if args.kill_worker { ", although a worker was lost" } else { "" }
    )?;
    Ok(ExitCode::SUCCESS)
}

/// This program with `arguments`; prints the line that a user would type.
fn trawl(data_root: &Path, arguments: &[&str]) -> anyhow::Result<Command> {
    let shown: Vec<String> = arguments
        .iter()
        .map(|a| if a.contains(|c: char| c.is_whitespace() || c == '(') { format!("'{a}'") } else { (*a).to_owned() })
        .collect();
    writeln!(io::stdout(), "  $ trawl {}", shown.join(" "))?;
    let mut command = Command::new(std::env::current_exe().context("cannot find this program's own file")?);
    command.arg("--data-root").arg(data_root).args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    Ok(command)
}

/// Runs it without showing its output, which is returned trimmed; what it reports on stderr is shown if it fails.
async fn quietly(mut command: Command) -> anyhow::Result<String> {
    let output = command.output().await.context("cannot run this program")?;
    if !output.status.success() {
        bail!("the command above failed ({}):\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The scan's state once [`KILL_AFTER_SEGMENTS`] segments are done.
async fn progressed(manager: &mut Manager<'_>, id: &str) -> anyhow::Result<ScanInfo> {
    let deadline = Instant::now() + PROGRESS_TIMEOUT;
    loop {
        let info = manager.status(id).await?;
        ensure!(info.state() == ScanState::Running || info.state() == ScanState::Queued, "the scan ended too early");
        if info.segments_ended >= KILL_AFTER_SEGMENTS {
            return Ok(info);
        }
        ensure!(Instant::now() < deadline, "the scan made no progress within {} s", PROGRESS_TIMEOUT.as_secs());
        tokio::time::sleep(POLL).await;
    }
}

fn digest(file: &Path) -> anyhow::Result<String> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(hex::encode(Sha256::digest(bytes)))
}

fn path(file: &Path) -> anyhow::Result<&str> {
    file.to_str().with_context(|| format!("{} is not UTF-8", file.display()))
}

//! `trawl serve`: the engine of this process behind HTTP, without a cluster.

use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use trawl_coordinator::estimated_ns;
use trawl_front::http::embedded::{Choose, Embedded, EmbeddedLimits, TableLimits};
use trawl_front::http::{self, QuestionLimits};
use trawl_kernels::cuda::Fleet;
use trawl_security::Role;
use trawl_telemetry::metrics::Place;

use super::security::TlsArgs;
use super::serving::{AuditArgs, MetricsArgs, any_address, runtime, say_ready, serve_metrics, stop_signal};
use crate::app::Context;
use crate::backend::{BackendArgs, Workload};

/// Questions beside scans that are answered at once.
const QUESTIONS_MAX: usize = 2;

const AFTER_HELP: &str = "\
Programs submit scans and read answers by HTTP and JSON: docs/http.md lists the paths, and GET /openapi.json describes them. \
Answers have the bytes that 'trawl scan --output' writes. Nothing is recorded: scans and answers end with this process; for \
a cluster, 'trawl coordinator --http IP:PORT' serves the same paths. Ctrl-C or SIGTERM: running scans may finish (within \
--drain-timeout-s), then it exits 0. When it is ready it prints one line: ready serve listen=IP:PORT url=http://IP:PORT (https \
with certificates). Environment variables set every option too: TRAWL_LISTEN sets --listen, for instance.

Examples:
  trawl serve
  curl -s 127.0.0.1:7410/v1/answers -H 'Content-Type: application/json' -H 'Accept: text/csv' \\
      -d '{\"document\": {\"dataset\": \"us5\", \"where\": \"rsi(close, 14) < 40\"}}'";

/// Serve scans by HTTP from this process: programs and notebooks on this machine need no cluster
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// TOML file of options, named as here without '--'; the command line and the environment take precedence
    // Read before the command line is parsed (config_file).
    #[arg(long = "config", value_name = "FILE")]
    _config: Option<PathBuf>,

    /// Address to listen on, loopback only unless there are certificates; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7410", value_parser = any_address)]
    listen: SocketAddr,

    /// Open the page in the browser
    #[arg(long)]
    open: bool,

    /// Scans that run at once; further ones wait for their turn, by priority and age
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64), help_heading = "Limits")]
    scans_running_max: u32,

    /// Scans that wait; further ones are refused with the time after which to retry
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(0..=4096), help_heading = "Limits")]
    scans_waiting_max: u32,

    /// Ended scans that are kept; of more, the oldest are forgotten
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536), help_heading = "Limits")]
    scans_kept_max: u32,

    /// Bytes of the answers that are kept, estimated; a scan whose answer may be larger is refused
    #[arg(long, value_name = "BYTES", default_value_t = 512 << 20, value_parser = clap::value_parser!(u64).range(1_048_576..), help_heading = "Limits")]
    results_memory_bytes: u64,

    #[command(flatten)]
    backend: BackendArgs,

    #[command(flatten)]
    metrics: MetricsArgs,

    #[command(flatten)]
    tls: TlsArgs,

    /// File of users' tokens, one line 'NAME ROLES SHA256HEX' each; with it, every user needs a token
    #[arg(long, value_name = "FILE", help_heading = "Security")]
    tokens: Option<PathBuf>,

    #[command(flatten)]
    pub audit: AuditArgs,

    /// Seconds that running scans may take to finish after SIGTERM
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    drain_timeout_s: u64,

    /// Stop when standard input closes: this is how a parent process stops its children
    #[arg(long, hide = true)]
    until_stdin_ends: bool,
}

/// Chooses what computes each scan; a device is opened once.
fn chooser(backend: BackendArgs) -> Box<Choose> {
    let opened: Mutex<Option<Arc<Fleet>>> = Mutex::default();
    Box::new(move |asked, prepared| {
        let work = Workload::Scan { estimated_ns: estimated_ns(prepared) };
        backend.named(asked).choose_with(work, || {
            let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(device) = &*opened {
                return Ok(Arc::clone(device));
            }
            let device = backend.open().map(Arc::new)?;
            Ok(Arc::clone(opened.insert(device)))
        })
    })
}

/// Opens the page in the user's browser; where none can be started the address is printed.
fn open_page(url: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let quiet = std::process::Stdio::null;
    let started = std::process::Command::new(program).arg(url).stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn();
    if started.is_err() {
        crate::diagnostics::warning_line(&format!("no browser can be started here: open {url}"));
    }
}

/// Runs until it is asked to stop.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let security = args.tls.server(Role::Coordinator, args.listen, args.tokens.as_ref())?;
    let store = context.store_of_server()?.keeping();
    let scheme = if security.tls.is_some() { "https" } else { "http" };
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let limits = EmbeddedLimits {
        scans: TableLimits {
            running: args.scans_running_max as usize,
            waiting: args.scans_waiting_max as usize,
            kept: args.scans_kept_max as usize,
            kept_bytes: args.results_memory_bytes,
        },
        questions: QuestionLimits { at_once: QUESTIONS_MAX, threads: cores, work_ns_max: f64::INFINITY },
    };
    let drain = Duration::from_secs(args.drain_timeout_s);
    let scrapes = args.metrics.bind()?;
    let runtime = runtime()?;
    let ended: anyhow::Result<()> = runtime.block_on(async {
        let stop = stop_signal(args.until_stdin_ends)?;
        let cannot = || format!("cannot listen on {}", args.listen);
        let listener = tokio::net::TcpListener::bind(args.listen).await.with_context(cannot)?;
        let address = listener.local_addr().with_context(cannot)?;
        let metrics = serve_metrics(scrapes, Place::Coordinator)?;
        security.keep_fresh();
        let door = Embedded::new(store, limits, chooser(args.backend.clone()));
        let (stopping, stopped) = tokio::sync::watch::channel(false);
        let serving = tokio::spawn(http::serve(listener, security, Arc::new(door.clone()), stopped, drain));
        say_ready(&format!("ready serve listen={address} url={scheme}://{address}{metrics}"));
        if args.open {
            open_page(&format!("{scheme}://{address}/"));
        }
        stop.await;
        // Requests that wait for a scan end with it; further ones are not taken.
        door.drain(drain).await;
        stopping.send_replace(true);
        let _ = serving.await;
        Ok(())
    });
    runtime.shutdown_background();
    ended.map(|()| ExitCode::SUCCESS)
}

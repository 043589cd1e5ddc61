//! What the server commands share: their options, when they stop, and the line they print when they are ready.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use trawl_cluster_store::EtcdStore;
use trawl_security::Credentials;
use trawl_telemetry::metrics::{METRICS_PORT, Place, Scrapes};
use trawl_telemetry::{AuditFile, Health};
use trawl_wire::loopback::is_loopback;
use trawl_wire::record::checked_name;
use trawl_worker::scrub::{SCRUB_BYTES_PER_S, SCRUB_EVERY, SCRUB_FIRST_AFTER, Scrubbing};

use super::security::{TlsArgs, credentials};
use crate::failure::UserMistake;

/// Threads for files and other calls that block. Each keeps memory for itself, and once started they take turns, so that
/// none of them ends: tokio's default of 512 is what a sweep of old results would leave behind.
const BLOCKING_THREADS_MAX: usize = 32;
/// How long such a thread waits for further calls: the allocator gives back what it freed when it ends, not while it waits.
const BLOCKING_THREAD_KEPT: Duration = Duration::from_secs(2);
/// Interval of giving freed memory back.
const MEMORY_GIVEN_BACK: Duration = Duration::from_secs(2);
/// Bytes of an allocation that gets a page of its own.
const PAGE_OF_ITS_OWN: usize = 1 << 20;
/// Threads that serve connections; computing has threads of its own.
const SERVER_THREADS: usize = 2;
/// Variable of `--etcd`: `TRAWL_ETCD` is already the executable for the tests and for developers of `trawl cluster up`.
const ETCD_VARIABLE: &str = "TRAWL_ETCD_ENDPOINTS";

/// The file of the audit log.
#[derive(Debug, Default, clap::Args)]
pub struct AuditArgs {
    /// File to which every call and every scan's beginning and end are appended, one JSON object a line
    #[arg(long, value_name = "FILE", help_heading = "Security")]
    audit: Option<PathBuf>,
}

impl AuditArgs {
    /// Opens it.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn file(&self) -> Result<Option<AuditFile>, UserMistake> {
        let Some(path) = &self.audit else { return Ok(None) };
        let opened = AuditFile::open(path).map_err(|error| {
            let help = "name a file in a folder that this process may write to";
            UserMistake::with_help(format!("--audit: cannot append to {}: {error}", path.display()), help)
        });
        opened.map(Some)
    }
}

/// Options of the background passes over stored files.
#[derive(Debug, clap::Args)]
pub struct ScrubArgs {
    /// Seconds from one background pass that compares stored files with their checksums to the next, 0: no passes. The leading
    /// coordinator checks a directory; of a bucket, it and each worker check their copies
    #[arg(long, value_name = "SECONDS", default_value_t = SCRUB_EVERY.as_secs(), value_parser = clap::value_parser!(u64).range(0..=31_536_000), help_heading = "Data")]
    scrub_every_s: u64,

    /// Bytes that such a pass reads in a second
    #[arg(long, value_name = "BYTES", default_value_t = SCRUB_BYTES_PER_S, value_parser = clap::value_parser!(u64).range(1..), help_heading = "Data")]
    scrub_bytes_per_s: u64,

    /// For tests: seconds until the first pass
    #[arg(long, value_name = "SECONDS", default_value_t = SCRUB_FIRST_AFTER.as_secs(), hide = true)]
    scrub_first_after_s: u64,
}

impl ScrubArgs {
    /// What they mean.
    pub fn scrubbing(&self) -> Scrubbing {
        Scrubbing {
            every: (self.scrub_every_s > 0).then(|| Duration::from_secs(self.scrub_every_s)),
            bytes_per_s: self.scrub_bytes_per_s,
            first_after: Duration::from_secs(self.scrub_first_after_s),
        }
    }
}

/// Options of every process of a cluster.
#[derive(Debug, clap::Args)]
pub struct ClusterArgs {
    /// TOML file of options, named as here without '--'; the command line and the environment take precedence
    // Read before the command line is parsed (config_file).
    #[arg(long = "config", value_name = "FILE")]
    _config: Option<PathBuf>,

    /// Addresses of etcd, separated by commas; https:// with certificates
    #[arg(long, value_name = "URL,...", default_value = "http://127.0.0.1:2379")]
    pub etcd: String,

    /// PEM file of the CA of etcd's certificate [default: --tls-ca]
    #[arg(long, value_name = "FILE", help_heading = "Security")]
    pub etcd_ca: Option<PathBuf>,

    /// PEM certificate to show to etcd [default: --tls-cert]
    #[arg(long, value_name = "FILE", requires_all = ["etcd_ca", "etcd_key"], help_heading = "Security")]
    pub etcd_cert: Option<PathBuf>,

    /// PEM private key of --etcd-cert
    #[arg(long, value_name = "FILE", requires = "etcd_cert", help_heading = "Security")]
    pub etcd_key: Option<PathBuf>,

    /// Refuse to start where etcd trusts the CA of users' certificates, instead of warning
    #[arg(long, help_heading = "Security")]
    pub strict: bool,

    /// Name of the cluster: its workers and coordinators find each other under it
    #[arg(long, value_name = "NAME", default_value = "trawl", value_parser = checked_name)]
    pub cluster_name: String,

    /// Seconds to wait for etcd at the start
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub etcd_timeout_s: u64,

    /// Address of the health probes, in plain text: gRPC health with the services 'live' and 'ready'
    #[arg(long, value_name = "IP:PORT", value_parser = any_address)]
    pub health: Option<SocketAddr>,

    /// Seconds that running work may take to finish after SIGTERM; leaving takes at most 15 more
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub drain_timeout_s: u64,

    /// Stop when standard input closes: this is how a parent process stops its children
    #[arg(long, hide = true)]
    pub until_stdin_ends: bool,
}

impl ClusterArgs {
    /// The store; not connected yet. Without certificates of its own, etcd is given those of the process.
    pub fn store(&self, tls: &TlsArgs, own: Option<&Arc<Credentials>>) -> Result<EtcdStore, UserMistake> {
        let plain = |text: String| UserMistake::plain(text);
        if !self.etcd.split(',').any(|address| address.trim().starts_with("https://")) {
            let remote = self.etcd.split(',').filter_map(|address| address.trim().strip_prefix("http://"));
            if let Some(remote) = remote.map(|host| host.trim_end_matches('/')).find(|host| !is_loopback(host)) {
                if !tls.insecure {
                    return Err(UserMistake::with_help(
                        format!("--etcd: plain text to {remote} is neither encrypted nor authenticated"),
                        "write https:// and give --etcd-ca, --etcd-cert and --etcd-key, or allow plain text with --insecure",
                    ));
                }
                tracing::warn!("--insecure: anyone on the network path to etcd at {remote} can register workers");
            }
            return EtcdStore::new(&self.etcd).map_err(|error| plain(error.to_string()));
        }
        self.check_etcd_ca(tls)?;
        let shown = match (&self.etcd_ca, own) {
            (Some(ca), _) => credentials((ca, self.etcd_cert.as_ref(), self.etcd_key.as_ref()), None)?,
            (None, Some(own)) => Arc::clone(own),
            (None, None) => {
                return Err(UserMistake::with_help(
                    "--etcd: https needs a CA to trust",
                    "give --etcd-ca FILE, and --etcd-cert and --etcd-key where etcd requires a client certificate",
                ));
            }
        };
        EtcdStore::with_tls(&self.etcd, Some(shown)).map_err(|error| plain(error.to_string()))
    }

    /// Warns where etcd's certificate is of the CA that users' certificates are of, or refuses to start.
    fn check_etcd_ca(&self, tls: &TlsArgs) -> Result<(), UserMistake> {
        let Some(users) = &tls.tls_ca else { return Ok(()) };
        let shared = self.etcd_ca.as_ref().is_none_or(|ca| have_one_in_common(ca, users));
        if !shared {
            return Ok(());
        }
        let what = "--etcd: etcd's certificate is of the CA of --tls-ca: an etcd that trusts this CA admits every user's \
                    certificate, to read and delete all records";
        let help = "give etcd a CA of its own, and its file with --etcd-ca ('trawl certs dev' makes one)";
        if self.strict {
            return Err(UserMistake::with_help(what, help));
        }
        tracing::warn!("{what}; {help}");
        Ok(())
    }

    /// See [`Self::etcd_timeout_s`].
    pub fn start_timeout(&self) -> Duration {
        Duration::from_secs(self.etcd_timeout_s)
    }

    /// See [`Self::drain_timeout_s`].
    pub fn drain_timeout(&self) -> Duration {
        Duration::from_secs(self.drain_timeout_s)
    }

    /// Starts to answer probes, and returns a future that completes when the server should stop; the probes report it
    /// first. Call it inside a runtime.
    pub async fn health_and_stop(&self) -> anyhow::Result<(Health, impl Future<Output = ()> + Send + use<>)> {
        let stop = stop_signal(self.until_stdin_ends)?;
        let cannot = || format!("cannot listen on {}", self.health.map_or_else(String::new, |a| a.to_string()));
        let health = Health::listen(self.health).await.with_context(cannot)?;
        let leaving = health.clone();
        Ok((health, async move {
            stop.await;
            leaving.leaving();
        }))
    }
}

/// Lets an environment variable set every option of a server: `TRAWL_SCANS_RUNNING_MAX` sets `--scans-running-max`. The
/// command line takes precedence. Hidden options are for tests only.
pub fn with_variables(server: clap::Command) -> clap::Command {
    server.mut_args(|arg| match arg.get_long() {
        Some(long) if !arg.is_hide_set() && arg.get_env().is_none() => {
            let name = match long {
                "etcd" => ETCD_VARIABLE,
                // Leaked once per option in the life of the process: clap needs names with a static lifetime.
                _ => format!("TRAWL_{}", long.to_uppercase().replace('-', "_")).leak(),
            };
            arg.env(name).hide_env(true)
        }
        _ => arg,
    })
}

/// For clap: an address; whether listening on it is allowed depends on the certificates.
pub fn any_address(text: &str) -> Result<SocketAddr, String> {
    trawl_wire::loopback::parse_address(text).map_err(|error| error.to_string())
}

/// For clap: an address that only this machine can reach.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    trawl_wire::loopback::parse_listen(text).map_err(|error| error.to_string())
}

/// For clap: a host and a port.
pub fn advertised(text: &str) -> Result<String, String> {
    let (host, port) = text.rsplit_once(':').unwrap_or_default();
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    if host.is_empty() || !host.chars().all(legal) || port.parse::<u16>().is_err() {
        return Err("expected HOST:PORT, for instance worker-1.example.org:7500".to_owned());
    }
    // The form in which Kubernetes gives a pod's address.
    if host.parse::<std::net::Ipv6Addr>().is_ok() {
        return Ok(format!("[{host}]:{port}"));
    }
    Ok(text.to_owned())
}

/// Where metrics are served.
#[derive(Debug, clap::Args)]
pub struct MetricsArgs {
    /// Serve metrics on http://IP:PORT/metrics, on loopback without IP; port 0 takes a free one [default: not at all]
    #[arg(long, value_name = "[IP:]PORT", env = "TRAWL_METRICS", hide_env = true, value_parser = metrics_address)]
    metrics: Option<SocketAddr>,
}

impl MetricsArgs {
    /// Binds the port, before anything else is started.
    pub fn bind(&self) -> anyhow::Result<Option<Scrapes>> {
        let Some(address) = self.metrics else { return Ok(None) };
        if !address.ip().is_loopback() {
            tracing::warn!("anyone who can reach {address} can read this process's metrics, in plain text");
        }
        let scrapes = Scrapes::bind(address).with_context(|| format!("cannot serve metrics on {address}"))?;
        Ok(Some(scrapes))
    }
}

/// Answers scrapes from now on; returns what the ready line adds about it.
pub fn serve_metrics(scrapes: Option<Scrapes>, place: Place) -> anyhow::Result<String> {
    let Some(scrapes) = scrapes else { return Ok(String::new()) };
    let address = scrapes.address;
    scrapes.serve(place).context("cannot serve metrics")?;
    Ok(format!(" metrics=http://{address}/metrics"))
}

/// For clap: a port of loopback, or an address.
fn metrics_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((std::net::Ipv4Addr::LOCALHOST, port).into());
    }
    any_address(text).map_err(|_| {
        format!("'{text}' is neither a port nor an address: write {METRICS_PORT}, or 0.0.0.0:{METRICS_PORT} for others to read")
    })
}

/// The runtime of a server.
pub fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(SERVER_THREADS)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_keep_alive(BLOCKING_THREAD_KEPT)
        .enable_all()
        .build()
        .context("cannot start the server's threads")?;
    runtime.spawn(give_memory_back());
    Ok(runtime)
}

/// What was freed goes back to the system a second later, but only when the allocator gets or frees a page: a server that
/// has become idle would keep what its last work took.
async fn give_memory_back() {
    loop {
        tokio::time::sleep(MEMORY_GIVEN_BACK).await;
        drop(std::hint::black_box(Vec::<u8>::with_capacity(PAGE_OF_ITS_OWN)));
    }
}

/// Completes with Ctrl-C, SIGTERM or, if requested, the end of standard input. Call it inside a runtime.
pub fn stop_signal(until_stdin_ends: bool) -> anyhow::Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for Ctrl-C")?;
    let (close, closed) = tokio::sync::oneshot::channel::<()>();
    let never = if until_stdin_ends {
        // A thread of its own: a read of standard input cannot be cancelled, and must not hold the runtime.
        std::thread::Builder::new()
            .name("trawl-stdin".to_owned())
            .spawn(move || {
                let mut ignored = [0; 64];
                while std::io::stdin().read(&mut ignored).is_ok_and(|n| n > 0) {}
                let _ = close.send(());
            })
            .context("cannot watch standard input")?;
        None
    } else {
        Some(close)
    };
    Ok(async move {
        let _never = never;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = closed => {}
        }
    })
}

/// One line on stdout for the process that waits; a closed stdout does not stop the server.
pub fn say_ready(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// Whether two PEM files have a certificate in common. A file that cannot be read is reported by whoever uses it.
fn have_one_in_common(one: &Path, other: &Path) -> bool {
    const END: &str = "-----END CERTIFICATE-----";
    let of = |path: &Path| std::fs::read_to_string(path).unwrap_or_default().replace('\r', "");
    let (one, other) = (of(one), of(other));
    let certificates = |text: &str| -> BTreeSet<String> {
        let blocks = text.split(END).filter_map(|block| block.split_once("-----BEGIN CERTIFICATE-----"));
        blocks.map(|(_, body)| body.split_whitespace().collect()).collect()
    };
    !certificates(&one).is_disjoint(&certificates(&other))
}

//! A cluster of this machine's processes: etcd, a coordinator, workers. A worker that ends is started again.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tempfile::TempDir;
use trawl_wire::pb::ListWorkersRequest;
use trawl_wire::pb::coordinator_client::CoordinatorClient;

use super::etcd::{self, Etcd};
use super::process::{self, Child};

/// Maximum time until all processes are ready.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval at which the number of registered workers is checked.
const POLL: Duration = Duration::from_millis(50);
/// Maximum time for a clean end of the processes: their own drain timeout and a little more.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// Wait before a worker is started again; doubles up to [`RESTART_WAIT_MAX`] while it keeps ending.
const RESTART_WAIT: Duration = Duration::from_secs(1);
/// Maximum wait before a worker is started again.
const RESTART_WAIT_MAX: Duration = Duration::from_secs(30);
/// A worker that has run for this long is started again after [`RESTART_WAIT`].
const RUN_PROVEN: Duration = Duration::from_secs(60);

/// The environment variable of the log filter.
const LOG_VARIABLE: &str = "TRAWL_LOG";

/// What a local cluster consists of.
pub struct Size<'a> {
    /// Number of workers, at least 1.
    pub workers: u16,
    /// Threads of each worker.
    pub threads: u32,
    /// Address of the coordinator.
    pub listen: std::net::SocketAddr,
    /// Name of the cluster in etcd.
    pub name: &'a str,
    /// Folder of the datasets.
    pub data_root: &'a Path,
    /// Further variables of its processes.
    pub variables: Vec<(&'static str, OsString)>,
    /// Ports of `/metrics`: the coordinator's, then one of each worker; empty for none.
    pub metrics: Vec<u16>,
    /// Milliseconds added to each segment, for demonstrations and tests.
    pub delay_ms_per_segment: u64,
    /// Whether its processes log errors only.
    pub quiet: bool,
}

/// Where a started cluster is reached.
pub struct Addresses {
    /// Of the coordinator.
    pub coordinator: String,
    /// Of etcd.
    pub etcd: String,
}

/// The processes; dropped, it kills them.
pub struct LocalCluster {
    /// Holds etcd's data and log and the results of scans; deleted at the end.
    scratch: TempDir,
    etcd: Option<Child>,
    coordinator: Option<Child>,
    workers: Vec<Worker>,
}

struct Worker {
    number: u16,
    child: Child,
    command: Box<dyn Fn() -> anyhow::Result<tokio::process::Command> + Send>,
    started: Instant,
    /// Wait before the next start.
    wait: Duration,
}

impl Worker {
    fn name(&self) -> String {
        format!("worker {}", self.number)
    }

    /// Starts it again after its wait.
    async fn restart(&mut self, status: &str) -> anyhow::Result<()> {
        if self.started.elapsed() > RUN_PROVEN {
            self.wait = RESTART_WAIT;
        }
        eprintln!("warning: {} ended ({status}); it is started again in {} s", self.name(), self.wait.as_secs());
        tokio::time::sleep(self.wait).await;
        self.child = Child::start(&self.name(), (self.command)()?)?;
        self.started = Instant::now();
        self.wait = (self.wait * 2).min(RESTART_WAIT_MAX);
        Ok(())
    }
}

impl LocalCluster {
    /// Nothing runs yet.
    ///
    /// # Errors
    /// There is no temporary directory.
    pub fn new() -> anyhow::Result<Self> {
        let scratch = tempfile::Builder::new().prefix("trawl-cluster-").tempdir();
        let scratch = scratch.context("cannot make a temporary directory")?;
        Ok(Self { scratch, etcd: None, coordinator: None, workers: Vec::new() })
    }

    /// A folder that is deleted with the cluster.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Starts everything and returns once all workers are registered.
    ///
    /// # Errors
    /// A process that cannot be started, ends, or is not ready within [`START_TIMEOUT`].
    pub async fn start(&mut self, size: &Size<'_>, etcd: &Etcd) -> anyhow::Result<Addresses> {
        let etcd_url = match etcd {
            Etcd::Running(urls) => urls.clone(),
            Etcd::Start(binary) => {
                let (child, url) = etcd::start(binary, self.scratch.path(), START_TIMEOUT).await?;
                self.etcd = Some(child);
                url
            }
        };
        let shared = [
            "--etcd".to_owned(),
            etcd_url.clone(),
            "--cluster-name".to_owned(),
            size.name.to_owned(),
            "--until-stdin-ends".to_owned(),
        ];
        let (data_root, variables, quiet) = (size.data_root.to_owned(), size.variables.clone(), size.quiet);
        let role = move |role: &str| {
            let mut command = process::own_command()?;
            if quiet {
                command.env(LOG_VARIABLE, "error");
            }
            command.envs(variables.iter().cloned());
            command.arg("--data-root").arg(&data_root).arg(role).args(&shared);
            anyhow::Ok(command)
        };
        let mut coordinator = role("coordinator")?;
        coordinator.args(["--listen", &size.listen.to_string()]);
        show_metrics(&mut coordinator, size.metrics.first());
        // Its own etcd loses the record of the scans when it ends, so their results are deleted too.
        if matches!(etcd, Etcd::Start(_)) {
            coordinator.arg("--results").arg(self.scratch.path().join("results"));
        }
        let coordinator = self.coordinator.insert(Child::start("the coordinator", coordinator)?);
        for number in 1..=size.workers {
            let (role, port) = (role.clone(), size.metrics.get(usize::from(number)).copied());
            let (threads, delay) = (size.threads.to_string(), size.delay_ms_per_segment.to_string());
            let command = move || {
                let mut worker = role("worker")?;
                worker.args(["--listen", "127.0.0.1:0", "--threads", &threads, "--fault-delay-ms-per-segment", &delay]);
                show_metrics(&mut worker, port.as_ref());
                anyhow::Ok(worker)
            };
            let child = Child::start(&format!("worker {number}"), command()?)?;
            let (command, started) = (Box::new(command), Instant::now());
            self.workers.push(Worker { number, child, command, started, wait: RESTART_WAIT });
        }
        let ready = coordinator.first_line(START_TIMEOUT).await?;
        let url = ready.split_whitespace().find_map(|word| word.strip_prefix("url="));
        let url = url
            .with_context(|| format!("the coordinator printed '{ready}' where its address was expected"))?
            .to_owned();
        tokio::select! {
            registered = all_registered(&url, usize::from(size.workers)) => registered?,
            // A worker that cannot start at all would not start the next time either.
            (ended, status) = self.first_end() => bail!("{} ended ({status})", self.name_of(&ended)),
        }
        Ok(Addresses { coordinator: url, etcd: etcd_url })
    }

    /// Starts workers that end again; returns when etcd or the coordinator ends.
    pub async fn supervise(&mut self) -> anyhow::Error {
        loop {
            match self.first_end().await {
                (Ended::Worker(at), status) => {
                    if let Err(error) = self.workers[at].restart(&status).await {
                        return error;
                    }
                }
                (ended, status) => {
                    return anyhow::anyhow!("{} ended ({status}); the others are being stopped", self.name_of(&ended));
                }
            }
        }
    }

    /// Kills the worker of this number (1-based) with SIGKILL.
    pub async fn kill_worker(&mut self, number: u16) {
        if let Some(worker) = self.workers.iter_mut().find(|worker| worker.number == number) {
            worker.child.kill().await;
        }
    }

    fn name_of(&self, ended: &Ended) -> String {
        match ended {
            Ended::Etcd => "etcd".to_owned(),
            Ended::Coordinator => "the coordinator".to_owned(),
            Ended::Worker(at) => self.workers[*at].name(),
        }
    }

    /// The first process that ends, and its exit status.
    async fn first_end(&mut self) -> (Ended, String) {
        let mut ends = Vec::with_capacity(self.workers.len() + 2);
        let etcd = self.etcd.as_mut().map(|child| (Ended::Etcd, child));
        let coordinator = self.coordinator.as_mut().map(|child| (Ended::Coordinator, child));
        let workers = self.workers.iter_mut().enumerate().map(|(at, worker)| (Ended::Worker(at), &mut worker.child));
        for (which, child) in etcd.into_iter().chain(coordinator).chain(workers) {
            ends.push(Box::pin(async move { (which, child.wait().await) }));
        }
        process::first_of(ends).await
    }

    /// Ends all processes in the opposite order, within [`STOP_TIMEOUT`].
    pub async fn down(&mut self) {
        let deadline = Instant::now() + STOP_TIMEOUT;
        let workers = self.workers.iter_mut().map(|worker| &mut worker.child);
        // The coordinator and the workers sign off from etcd, so it ends last.
        let mut children: Vec<&mut Child> = workers.chain(&mut self.coordinator).chain(&mut self.etcd).collect();
        // All are signalled before any is waited for.
        for child in &mut children {
            child.ask_to_stop();
        }
        for child in children {
            child.end(deadline).await;
        }
    }
}

enum Ended {
    Etcd,
    Coordinator,
    /// Index into the workers.
    Worker(usize),
}

async fn all_registered(url: &str, workers: usize) -> anyhow::Result<()> {
    let deadline = Instant::now() + START_TIMEOUT;
    let mut client = CoordinatorClient::connect(url.to_owned()).await.context("cannot reach the coordinator")?;
    loop {
        let reply =
            client.list_workers(ListWorkersRequest::default()).await.context("the coordinator does not answer")?;
        let found = reply.into_inner().workers.len();
        if found >= workers {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("only {found} of {workers} workers registered within {} s", START_TIMEOUT.as_secs());
        }
        tokio::time::sleep(POLL).await;
    }
}

fn show_metrics(command: &mut tokio::process::Command, port: Option<&u16>) {
    if let Some(port) = port {
        command.args(["--metrics", &port.to_string()]);
    }
}

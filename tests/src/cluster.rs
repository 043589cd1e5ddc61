//! A cluster of real processes on loopback: one coordinator and some workers, registered in a real etcd.

use std::time::Duration;

use tonic::transport::{Channel, Endpoint};
use trawl_security::{ClientSecurity, Connector, Expect, Role, authorise};
use trawl_wire::pb::coordinator_client::CoordinatorClient;
use trawl_wire::pb::{ListWorkersRequest, WorkerInfo};

use crate::etcd;
use crate::home::Home;
use crate::process::Background;
use crate::wait;

/// Longest that a process may take to print its address, and the coordinator to see its workers.
const START_BOUND: Duration = Duration::from_secs(60);

/// The processes; all end when it is dropped.
#[derive(Debug)]
pub struct Cluster {
    /// Key prefix in etcd.
    pub name: String,
    /// For `--coordinator`.
    pub url: String,
    pub coordinator: Background,
    pub workers: Vec<Background>,
    etcd: String,
    options: Options,
}

/// Further options of the processes, and how the test itself connects to the coordinator.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub coordinator: Vec<String>,
    pub worker: Vec<String>,
    pub security: ClientSecurity,
}

impl Cluster {
    /// Starts a coordinator and `workers` workers over the data root of `home`, and waits until all are registered.
    pub fn start(home: &Home, workers: usize) -> Self {
        Self::start_with(home, workers, &etcd::endpoint(), &[])
    }

    /// The same with an etcd of the test's own and further environment variables for every process.
    pub fn start_with(home: &Home, workers: usize, etcd: &str, environment: &[(&str, &str)]) -> Self {
        Self::start_as(home, workers, etcd, environment, Options::default())
    }

    /// The same with further options.
    pub fn start_as(home: &Home, workers: usize, etcd: &str, environment: &[(&str, &str)], options: Options) -> Self {
        let name = etcd::fresh_cluster_name();
        let (coordinator, url) = start_coordinator(home, (etcd, &name), environment, &options);
        let mut cluster = Self { name, url, coordinator, workers: Vec::new(), etcd: etcd.to_owned(), options };
        for _ in 0..workers {
            cluster.start_worker(home, environment);
        }
        cluster.wait_for_workers(workers);
        cluster
    }

    /// Kills the coordinator and starts another one, which leads once the lease of the first is over.
    pub fn replace_coordinator(&mut self, home: &Home, environment: &[(&str, &str)]) {
        self.coordinator.kill();
        (self.coordinator, self.url) = start_coordinator(home, (&self.etcd, &self.name), environment, &self.options);
    }

    /// Starts one more worker, without waiting for it.
    pub fn start_worker(&mut self, home: &Home, environment: &[(&str, &str)]) {
        self.start_worker_as(home, environment, &[]);
    }

    /// The same with further options of its own.
    pub fn start_worker_as(&mut self, home: &Home, environment: &[(&str, &str)], further: &[&str]) {
        let number = self.workers.len() + 1;
        let id = format!("w{number}");
        let flags =
            ["worker", "--etcd", &self.etcd, "--cluster-name", &self.name, "--listen", "127.0.0.1:0", "--id", &id];
        let mut command = home.command(&flags);
        command.args(&self.options.worker).args(further).envs(environment.iter().copied());
        self.workers.push(Background::start(&format!("worker {id}"), &mut command));
    }

    /// Waits until the coordinator knows exactly this number of workers.
    ///
    /// # Panics
    /// When the bound passes, with the output of the processes.
    #[track_caller]
    pub fn wait_for_workers(&self, count: usize) {
        let seen = wait::until(START_BOUND, || (self.registered().len() == count).then_some(()));
        let worker_output = || self.workers.iter().map(Background::output).collect::<Vec<_>>().join("\n");
        assert!(
            seen.is_some(),
            "the coordinator sees {:?}, not {count} workers; its output:\n{}\nthe workers' output:\n{}",
            self.registered(),
            self.coordinator.output(),
            worker_output()
        );
    }

    /// Ids of the workers that the coordinator knows, and how many shards each has in flight.
    pub fn registered(&self) -> Vec<(String, u32)> {
        self.workers_seen().into_iter().map(|w| (w.id, w.shards_in_flight)).collect()
    }

    /// The coordinator's list of its workers.
    pub fn workers_seen(&self) -> Vec<WorkerInfo> {
        let security = &self.options.security;
        block_on(async {
            let channel = channel_to(&self.url, security, Role::Coordinator);
            let mut request = tonic::Request::new(ListWorkersRequest::default());
            authorise(security.token.as_ref(), request.metadata_mut());
            let reply = CoordinatorClient::new(channel).list_workers(request).await;
            reply.map(|reply| reply.into_inner().workers).unwrap_or_default()
        })
    }
}

/// A coordinator and its URL.
fn start_coordinator(
    home: &Home,
    (etcd, name): (&str, &str),
    environment: &[(&str, &str)],
    options: &Options,
) -> (Background, String) {
    let flags = ["coordinator", "--etcd", etcd, "--cluster-name", name, "--listen", "127.0.0.1:0"];
    let mut command = home.command(&flags);
    command.args(&options.coordinator).envs(environment.iter().copied());
    let mut coordinator = Background::start("coordinator", &mut command);
    let url = coordinator.wait_for_line(START_BOUND, ready_url);
    (coordinator, url)
}

/// A lazy connection to `http(s)://HOST:PORT`; `security` decides about TLS, not the scheme. Call it inside a runtime.
pub fn channel_to(url: &str, security: &ClientSecurity, role: Role) -> Channel {
    let host = url.rsplit("//").next().unwrap_or(url);
    let endpoint = Endpoint::from_shared(format!("http://{host}")).expect("a URL");
    endpoint.connect_with_connector_lazy(Connector::new(security.tls.clone(), Expect::Role(role)))
}

/// Runs a future on a runtime of its own.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("tokio");
    runtime.block_on(future)
}

/// The URL in the line `ready coordinator listen=IP:PORT url=URL`.
fn ready_url(line: &str) -> Option<String> {
    let words = line.strip_prefix("ready coordinator ")?;
    words.split_whitespace().find_map(|word| word.strip_prefix("url=")).map(str::to_owned)
}

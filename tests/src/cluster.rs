//! A cluster of real processes on loopback: one coordinator and some workers, registered in a real etcd.

use std::time::Duration;

use trawl_protocol::pb::ListWorkersRequest;
use trawl_protocol::pb::coordinator_client::CoordinatorClient;

use crate::etcd;
use crate::home::Home;
use crate::process::Background;
use crate::wait;

/// Longest that a process may take to say where it listens, and the coordinator to see its workers.
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
}

impl Cluster {
    /// Starts a coordinator and `workers` workers over the data root of `home`, and waits until all are registered.
    pub fn start(home: &Home, workers: usize) -> Self {
        Self::start_with(home, workers, &etcd::endpoint(), &[])
    }

    /// The same with an etcd of one's own and further environment variables for every process.
    pub fn start_with(home: &Home, workers: usize, etcd: &str, environment: &[(&str, &str)]) -> Self {
        let name = etcd::fresh_cluster_name();
        let flags = ["coordinator", "--etcd", etcd, "--cluster-name", &name, "--listen", "127.0.0.1:0"];
        let mut command = home.command(&flags);
        command.envs(environment.iter().copied());
        let mut coordinator = Background::start("coordinator", &mut command);
        let url = coordinator.wait_for_line(START_BOUND, ready_url);
        let mut cluster = Self { name, url, coordinator, workers: Vec::new(), etcd: etcd.to_owned() };
        for _ in 0..workers {
            cluster.start_worker(home, environment);
        }
        cluster.wait_for_workers(workers);
        cluster
    }

    /// Starts one more worker, without waiting for it.
    pub fn start_worker(&mut self, home: &Home, environment: &[(&str, &str)]) {
        let number = self.workers.len() + 1;
        let id = format!("w{number}");
        let flags =
            ["worker", "--etcd", &self.etcd, "--cluster-name", &self.name, "--listen", "127.0.0.1:0", "--id", &id];
        let mut command = home.command(&flags);
        command.envs(environment.iter().copied());
        self.workers.push(Background::start(&format!("worker {id}"), &mut command));
    }

    /// Waits until the coordinator knows exactly so many workers.
    ///
    /// # Panics
    /// When the bound passes, with what the processes said.
    #[track_caller]
    pub fn wait_for_workers(&self, count: usize) {
        let seen = wait::until(START_BOUND, || (self.registered().len() == count).then_some(()));
        let said = || self.workers.iter().map(Background::said).collect::<Vec<_>>().join("\n");
        assert!(
            seen.is_some(),
            "the coordinator sees {:?}, not {count} workers; it said:\n{}\nthe workers said:\n{}",
            self.registered(),
            self.coordinator.said(),
            said()
        );
    }

    /// Ids of the workers that the coordinator knows, and how many shards each has in flight.
    pub fn registered(&self) -> Vec<(String, u32)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("tokio");
        let url = self.url.clone();
        runtime.block_on(async move {
            let Ok(mut client) = CoordinatorClient::connect(url).await else { return Vec::new() };
            let Ok(reply) = client.list_workers(ListWorkersRequest {}).await else { return Vec::new() };
            reply.into_inner().workers.into_iter().map(|w| (w.id, w.shards_in_flight)).collect()
        })
    }
}

/// The URL out of the line `ready coordinator listen=IP:PORT url=URL`.
fn ready_url(line: &str) -> Option<String> {
    let words = line.strip_prefix("ready coordinator ")?;
    words.split_whitespace().find_map(|word| word.strip_prefix("url=")).map(str::to_owned)
}

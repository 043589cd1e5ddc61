//! The cluster that faults are injected into.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use tonic::Request;
use trawl_cluster_store::{ControlStore as _, EtcdStore};
use trawl_security::{ClientSecurity, Role};
use trawl_wire::pb::coordinator_client::CoordinatorClient;
use trawl_wire::pb::{ListWorkersRequest, WorkerInfo};
use trawl_wire::record::leader_key;

use super::Question;
use super::net::{Net, Place};
use super::schedule::{COORDINATORS, Victim, WORKERS};
use crate::cluster::{block_on, channel_to};
use crate::etcd::{free_port_of, fresh_cluster_name};
use crate::etcd_nodes::{EtcdNodes, NODES};
use crate::home::Home;
use crate::process::Background;
use crate::wait;

/// Longest that the cluster may take to be ready, and to have a leader again.
const READY_BOUND: Duration = Duration::from_secs(90);
/// Longest that a coordinator may take to list its workers.
const ANSWER_BOUND: Duration = Duration::from_secs(2);
/// Longest that a connection over a link that is up takes.
const CONNECT_BOUND: Duration = Duration::from_millis(400);
/// Delay added to each segment, so that faults happen in the middle of scans.
const DELAY_MS: &str = "120";

/// A coordinator or a worker.
#[derive(Debug)]
pub(super) struct Member {
    pub name: String,
    /// Address that it listens on.
    address: SocketAddr,
    place: Option<Place>,
    /// Its own copy of the data.
    data: Option<TempDir>,
    command: (OsString, Vec<OsString>),
    environment: Vec<(OsString, OsString)>,
    folder: PathBuf,
    process: Option<Background>,
    /// The output of its earlier processes.
    past: String,
}

impl Member {
    fn new(
        name: &str,
        address: SocketAddr,
        (place, data): (Option<Place>, Option<TempDir>),
        command: &Command,
    ) -> Self {
        let command = place.as_ref().map_or_else(
            || {
                let mut plain = Command::new(command.get_program());
                plain.args(command.get_args());
                for (name, value) in command.get_envs() {
                    if let Some(value) = value {
                        plain.env(name, value);
                    }
                }
                plain.current_dir(command.get_current_dir().unwrap_or_else(|| ".".as_ref()));
                plain
            },
            |place| place.within(command),
        );
        let given = |(name, value): (&std::ffi::OsStr, Option<&std::ffi::OsStr>)| Some((name.into(), value?.into()));
        Self {
            name: name.to_owned(),
            address,
            place,
            data,
            command: (command.get_program().into(), command.get_args().map(Into::into).collect()),
            environment: command.get_envs().filter_map(given).collect(),
            folder: command.get_current_dir().map(Into::into).unwrap_or_default(),
            process: None,
            past: String::new(),
        }
    }

    /// Starts it, if it does not run.
    pub fn start(&mut self) {
        if self.process.is_none() {
            let mut command = Command::new(&self.command.0);
            command.args(&self.command.1).env_clear().envs(self.environment.iter().cloned()).current_dir(&self.folder);
            self.process = Some(Background::start(&self.name, &mut command));
        }
    }

    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
            self.past.push_str(&process.output());
            self.past.push_str("-- killed\n");
        }
    }

    pub fn signal(&self, name: &str) {
        if let Some(process) = &self.process {
            process.signal(name);
        }
    }

    /// Its process, while it runs.
    pub fn id(&mut self) -> Option<u32> {
        let process = self.process.as_mut()?;
        process.running().then(|| process.id())
    }

    /// Takes its link down; returns the proof that it is not reachable.
    pub fn cut(&self) -> Result<String, String> {
        let place = self.place.as_ref().ok_or("it has no link of its own")?;
        let before = place.link_state();
        if !before.1 {
            return Err(format!("the link of {} is down already", self.name));
        }
        place.set_link(false);
        let after = place.link_state();
        let reached = TcpStream::connect_timeout(&self.address, CONNECT_BOUND).is_ok();
        if after.1 || after.0 <= before.0 || reached {
            return Err(format!("the link of {} is not cut: {before:?}, {after:?}, reached: {reached}", self.name));
        }
        Ok(format!("has lost its link: it went down for the {}. time, and {} is not reached", after.0, self.address))
    }

    /// Damages every second file of bars of its own copy; returns the proof.
    pub fn damage(&self) -> Result<String, String> {
        let data = self.data.as_ref().ok_or("it has no data of its own")?;
        let mut files = Vec::new();
        files_of_bars(data.path(), &mut files);
        files.sort();
        for file in files.iter().step_by(2) {
            let mut bytes = std::fs::read(file).map_err(|error| error.to_string())?;
            // One bit in each stretch of 64 bytes, so that whatever a scan reads of the file is damaged.
            bytes.iter_mut().skip(1).step_by(64).for_each(|byte| *byte ^= 0x40);
            std::fs::write(file, &bytes).map_err(|error| error.to_string())?;
            if std::fs::read(file).map_err(|error| error.to_string())? != bytes {
                return Err(format!("{} is not damaged", file.display()));
            }
        }
        if files.is_empty() {
            Err("it has no files".to_owned())
        } else {
            Ok(format!("has {} files, every second one damaged", files.len()))
        }
    }

    pub fn mend(&self) {
        if let Some(place) = &self.place {
            place.set_link(true);
        }
    }

    fn output(&self) -> String {
        let now = self.process.as_ref().map(Background::output).unwrap_or_default();
        format!("== {}\n{}{now}", self.name, self.past)
    }
}

fn files_of_bars(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if entry.is_dir() {
            files_of_bars(&entry, found);
        } else if entry.extension().is_some_and(|extension| extension == "arrow") {
            found.push(entry);
        }
    }
}

/// The whole cluster; processes and network end when it is dropped.
pub(super) struct World {
    coordinators: Vec<Member>,
    workers: Vec<Member>,
    pub etcd: EtcdNodes,
    cluster_name: String,
    control: EtcdStore,
    seed: u64,
    insecure: bool,
    /// Dropped after the processes in it.
    _nets: [Option<Net>; 2],
}

impl World {
    /// Starts everything and waits until one coordinator leads and knows all workers.
    pub fn start(home: &Home, seed: u64, links: bool) -> Self {
        let mut net = links.then(|| Net::new().unwrap_or_else(|why| panic!("no network: {why}")));
        let host = net.as_ref().map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), Net::host);
        let mut peers = links.then(|| Net::new().unwrap_or_else(|why| panic!("no network: {why}")));
        let etcd = match (&mut net, &mut peers) {
            (Some(net), Some(peers)) => {
                let mut two_links = || {
                    let place = net.place()?;
                    let link = peers.link_to(&place)?;
                    Ok::<_, String>((place, link))
                };
                let places =
                    (0..NODES).map(|_| two_links().unwrap_or_else(|why| panic!("no network: {why}"))).collect();
                EtcdNodes::start_in(places)
            }
            _ => EtcdNodes::start(host),
        };
        let (urls, cluster_name) = (etcd.urls(), fresh_cluster_name());
        let results = home.path(&format!("results-{seed}")).display().to_string();
        let mut member = |name: &str, role: &str, flags: &[&str]| {
            let place = net.as_mut().map(|net| net.place().unwrap_or_else(|why| panic!("no network: {why}")));
            // Each namespace has all ports to itself.
            let address = match &place {
                Some(place) => SocketAddr::new(place.ip, 7400),
                None => SocketAddr::new(host, free_port_of(host)),
            };
            let listen = address.to_string();
            let common = ["--etcd", &urls, "--cluster-name", &cluster_name, "--listen", &listen, "--id", name];
            let insecure: &[&str] = if place.is_some() { &["--insecure"] } else { &[] };
            let mut command = home.command(&[&[role], &common[..], flags, insecure].concat());
            // Each worker has a copy of the data of its own.
            let data = (role == "worker").then(|| home.copy_of_data());
            if let Some(data) = &data {
                command.env("TRAWL_DATA_ROOT", data.path());
            }
            Member::new(name, address, (place, data), &command)
        };
        let leading = ["--leader-lease-ttl-s", "2", "--results", &results, "--results-shared"];
        let leading = [&leading[..], &["--no-worker-timeout-s", "60"]].concat();
        let working = ["--threads", "1", "--lease-ttl-s", "3", "--fault-delay-ms-per-segment", DELAY_MS];
        let coordinators = (1..=COORDINATORS).map(|i| member(&format!("c{i}"), "coordinator", &leading)).collect();
        let workers = (1..=WORKERS).map(|i| member(&format!("w{i}"), "worker", &working)).collect();
        let control = EtcdStore::new(&urls).expect("addresses of etcd");
        let insecure = net.is_some();
        let mut world =
            Self { coordinators, workers, etcd, cluster_name, control, seed, insecure, _nets: [net, peers] };
        world.coordinators.iter_mut().chain(&mut world.workers).for_each(Member::start);
        let ready = wait::until(READY_BOUND, || (world.workers_seen().len() == WORKERS).then_some(()));
        assert!(ready.is_some(), "the cluster is not ready:\n{}", world.output());
        world
    }

    /// `trawl` as a client of this cluster.
    pub fn manage(&self, home: &Home, arguments: &[&str]) -> Command {
        let urls: Vec<String> = self.coordinators.iter().map(|c| format!("http://{}", c.address)).collect();
        let urls = urls.join(",");
        let insecure: &[&str] = if self.insecure { &["--insecure"] } else { &[] };
        home.command(&[arguments, &["--coordinator", &urls], insecure].concat())
    }

    /// A scan of this cluster.
    pub fn client(&self, home: &Home, arguments: &[&str], question: &Question, files: &[&str]) -> Command {
        let key = format!("{}-{}", question.name, self.seed);
        let mut all = arguments.to_vec();
        all.extend(["--shards", "per-group", "--idempotency-key", &key]);
        all.extend(files);
        all.extend(question.clauses.iter().map(String::as_str));
        self.manage(home, &all)
    }

    /// The target of a fault at this moment, and how many shards it has in hand.
    pub fn find(&mut self, victim: Victim) -> Result<(usize, u32), String> {
        match victim {
            Victim::Worker(number) => {
                let seen = self.workers_seen();
                let in_hand = |name: &str| seen.iter().find(|w| w.id == name).map_or(0, |w| w.shards_in_flight);
                let mut all: Vec<(usize, u32)> =
                    (0..WORKERS).map(|i| (number + i) % WORKERS).map(|i| (i, in_hand(&self.workers[i].name))).collect();
                // Those with work first, else in the order of the schedule.
                all.sort_by_key(|(_, in_hand)| *in_hand == 0);
                let runs = |world: &mut Self, i: usize| world.workers[i].id().is_some();
                all.into_iter().find(|(i, _)| runs(self, *i)).ok_or_else(|| "no worker runs at this moment".to_owned())
            }
            Victim::Leader => self.leader().map(|i| (i, 0)).ok_or_else(|| "nobody leads".to_owned()),
            Victim::Standby => {
                self.leader().map(|i| ((i + 1) % COORDINATORS, 0)).ok_or_else(|| "nobody leads".to_owned())
            }
            Victim::EtcdLeader => Err("etcd is not a member".to_owned()),
        }
    }

    pub fn member(&mut self, victim: Victim, index: usize) -> &mut Member {
        match victim {
            Victim::Worker(_) => &mut self.workers[index],
            _ => &mut self.coordinators[index],
        }
    }

    /// The coordinator whose name is under the leader's key.
    fn leader(&self) -> Option<usize> {
        wait::until(Duration::from_secs(10), || {
            let entry = block_on(self.control.get(&leader_key(&self.cluster_name))).ok()??;
            let record: serde_json::Value = serde_json::from_slice(&entry.value).ok()?;
            self.coordinators.iter().position(|c| record["id"] == c.name.as_str())
        })
    }

    /// The workers, as listed by the first coordinator that answers.
    fn workers_seen(&self) -> Vec<WorkerInfo> {
        block_on(async {
            for coordinator in &self.coordinators {
                let ask = async {
                    let security = ClientSecurity::default();
                    let channel = channel_to(&format!("http://{}", coordinator.address), &security, Role::Coordinator);
                    CoordinatorClient::new(channel).list_workers(Request::new(ListWorkersRequest::default())).await
                };
                if let Ok(Ok(reply)) = tokio::time::timeout(ANSWER_BOUND, ask).await {
                    return reply.into_inner().workers;
                }
            }
            Vec::new()
        })
    }

    /// The output of all processes.
    pub fn output(&self) -> String {
        let members = self.coordinators.iter().chain(&self.workers).map(Member::output);
        format!("{}== etcd\n{}", members.collect::<String>(), self.etcd.output())
    }
}

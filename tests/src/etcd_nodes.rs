//! An etcd of three nodes: any one of them may die.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use crate::chaos::net::Place;
use crate::etcd::{executable, free_port_of};
use crate::process::Background;
use crate::wait;

/// Nodes: the smallest number that survives the loss of one.
pub const NODES: usize = 3;
/// A free port may be taken before etcd binds it.
const ATTEMPTS_MAX: u32 = 5;
/// Ports of nodes that have addresses of their own.
const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;
/// Longest until the nodes agree on a leader, on a loaded machine.
const LEADER_BOUND: Duration = Duration::from_secs(40);
/// Longest that a node may take to report its status.
const ANSWER_BOUND: Duration = Duration::from_secs(2);

/// The nodes; all end when it is dropped.
#[derive(Debug)]
pub struct EtcdNodes {
    nodes: Vec<Node>,
    _folder: tempfile::TempDir,
}

#[derive(Debug)]
struct Node {
    process: Option<Background>,
    client: SocketAddr,
    arguments: Vec<String>,
    /// Its links to clients and to peers, if it has its own.
    place: Option<(Place, Place)>,
}

/// The status that a node reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Its id.
    pub member: String,
    /// The leader's; empty or `0` while there is none.
    pub leader: String,
    /// Grows with every election.
    pub term: u64,
}

impl EtcdNodes {
    /// Starts three nodes that listen on `ip`, and waits until they have a leader.
    ///
    /// # Panics
    /// When they do not elect a leader.
    pub fn start(ip: IpAddr) -> Self {
        for _ in 0..ATTEMPTS_MAX {
            let address = || SocketAddr::new(ip, free_port_of(ip));
            let addresses = (0..NODES).map(|_| (address(), address())).collect();
            if let Some(nodes) = Self::try_start(addresses, Vec::new()) {
                return nodes;
            }
        }
        panic!("three nodes of etcd did not find a leader in {ATTEMPTS_MAX} attempts");
    }

    /// The same, each node in a place of its own, with a second link for its peers that can be cut alone.
    ///
    /// # Panics
    /// When they do not elect a leader.
    pub fn start_in(places: Vec<(Place, Place)>) -> Self {
        let address = |(clients, peers): &(Place, Place)| {
            (SocketAddr::new(clients.ip, CLIENT_PORT), SocketAddr::new(peers.ip, PEER_PORT))
        };
        Self::try_start(places.iter().map(address).collect(), places).expect("three nodes of etcd find a leader")
    }

    /// `addresses`: for clients and for peers.
    fn try_start(addresses: Vec<(SocketAddr, SocketAddr)>, places: Vec<(Place, Place)>) -> Option<Self> {
        {
            let folder = tempfile::tempdir().expect("a temporary directory");
            let peers: Vec<SocketAddr> = addresses.iter().map(|(_, peer)| *peer).collect();
            let members: Vec<String> = peers.iter().enumerate().map(|(i, a)| format!("n{i}=http://{a}")).collect();
            let node = |(i, peer): (usize, &SocketAddr)| {
                let client = addresses[i].0;
                let arguments = vec![
                    format!("--name=n{i}"),
                    format!("--data-dir={}", folder.path().join(format!("n{i}")).display()),
                    format!("--listen-client-urls=http://{client}"),
                    format!("--advertise-client-urls=http://{client}"),
                    format!("--listen-peer-urls=http://{peer}"),
                    format!("--initial-advertise-peer-urls=http://{peer}"),
                    format!("--initial-cluster={}", members.join(",")),
                    "--log-level=error".to_owned(),
                ];
                Node { process: None, client, arguments, place: places.get(i).cloned() }
            };
            let mut nodes = Self { nodes: peers.iter().enumerate().map(node).collect(), _folder: folder };
            (0..NODES).for_each(|i| nodes.restart(i));
            let agreed = wait::until(LEADER_BOUND, || {
                let broken = nodes.nodes.iter_mut().any(|n| n.process.as_mut().is_none_or(|p| !p.running()));
                if broken { Some(false) } else { nodes.leader().map(|_| true) }
            });
            (agreed == Some(true)).then_some(nodes)
        }
    }

    /// Cuts a node off from its peers, while clients still reach it; returns the proof.
    ///
    /// # Errors
    /// It has no link of its own for its peers, or that is down already.
    pub fn cut_peers(&self, node: usize) -> Result<String, String> {
        let (_, peers) = self.nodes[node].place.as_ref().ok_or("it has no link of its own for its peers")?;
        let before = peers.link_state();
        if !before.1 {
            return Err(format!("the link of n{node} to its peers is down already"));
        }
        peers.set_link(false);
        let after = peers.link_state();
        let reached = TcpStream::connect_timeout(&self.nodes[node].client, ANSWER_BOUND).is_ok();
        if after.1 || after.0 <= before.0 || !reached {
            return Err(format!("n{node} is not cut off as it should be: {before:?}, {after:?}, reached: {reached}"));
        }
        Ok(format!("node n{node} has lost the link to its peers, and its clients reach it"))
    }

    /// The opposite of [`Self::cut_peers`].
    pub fn mend_peers(&self, node: usize) {
        if let Some((_, peers)) = &self.nodes[node].place {
            peers.set_link(true);
        }
    }

    /// For `--etcd`: every node.
    pub fn urls(&self) -> String {
        self.nodes.iter().map(|n| format!("http://{}", n.client)).collect::<Vec<_>>().join(",")
    }

    /// The leading node, as most nodes that answer see it, and its term.
    pub fn leader(&self) -> Option<(usize, u64)> {
        let known: Vec<Option<Status>> = self.nodes.iter().map(|n| status(n.client)).collect();
        let newest = known.iter().flatten().max_by_key(|s| s.term)?;
        let agree = known.iter().flatten().filter(|s| s.leader == newest.leader && s.term == newest.term).count();
        let leader = known.iter().position(|s| s.as_ref().is_some_and(|s| s.member == newest.leader))?;
        (agree > NODES / 2).then_some((leader, newest.term))
    }

    /// SIGKILL of one node.
    pub fn kill(&mut self, node: usize) -> u32 {
        let mut process = self.nodes[node].process.take().expect("the node runs");
        let id = process.id();
        process.kill();
        id
    }

    /// Restarts a node that was killed, with its data.
    pub fn restart(&mut self, node: usize) {
        let Node { process, arguments, place, .. } = &mut self.nodes[node];
        let mut command = Command::new(executable());
        command.args(arguments);
        if let Some((clients, _)) = place {
            command = clients.within(&command);
        }
        *process = Some(Background::start(&format!("etcd n{node}"), &mut command));
    }

    /// Waits until a node other than `before` leads in a later term.
    pub fn new_leader(&self, before: (usize, u64)) -> Option<(usize, u64)> {
        wait::until(LEADER_BOUND, || self.leader().filter(|now| now.0 != before.0 && now.1 > before.1))
    }

    /// The output of the nodes.
    pub fn output(&self) -> String {
        self.nodes.iter().filter_map(|n| n.process.as_ref()).map(Background::output).collect()
    }
}

/// Asks one node over its JSON gateway.
fn status(client: SocketAddr) -> Option<Status> {
    let mut stream = TcpStream::connect_timeout(&client, ANSWER_BOUND).ok()?;
    stream.set_read_timeout(Some(ANSWER_BOUND)).ok()?;
    let request = format!(
        "POST /v3/maintenance/status HTTP/1.1\r\nHost: {client}\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{{}}"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let json: serde_json::Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    Some(Status {
        member: text(&json["header"]["member_id"])?,
        leader: text(&json["leader"]).unwrap_or_default(),
        term: text(&json["raftTerm"])?.parse().ok()?,
    })
}

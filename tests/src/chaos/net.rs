//! A network of the test's own: a bridge, and for each process a namespace with a link to it, so that links can be cut.
//!
//! Needs root and `ip`. The next test cleans up after one that was killed.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Prefix of every name, followed by the test's process id and a number.
const PREFIX: &str = "tchaos";
/// Subnets 10.213.N.0/24 that are tried.
const SUBNETS: std::ops::Range<u8> = 1..250;

/// The bridge and its namespaces; deleted when dropped.
#[derive(Debug)]
pub struct Net {
    name: String,
    subnet: u8,
    places: u8,
    /// Second links to places of other networks.
    links: u8,
}

/// The place of a process: a namespace with one link.
#[derive(Debug, Clone)]
pub struct Place {
    namespace: String,
    /// This end of its link.
    link: String,
    /// Its address.
    pub ip: IpAddr,
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split(' ')).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("ip cannot be run: {error}"))?;
    let reason = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(format!("ip {arguments}: {}", reason())) }
}

impl Net {
    /// Creates the bridge.
    ///
    /// # Errors
    /// Why this machine does not allow it: no root, no `ip`, no namespaces.
    pub fn new() -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        clean_up();
        let mut why = "every subnet is taken".to_owned();
        for _ in 0..5 {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("{PREFIX}{}x{number}", std::process::id());
            // An interface's name has 15 characters.
            let name = name.get(..15).unwrap_or(&name).to_owned();
            let taken = taken_subnets();
            let start = std::process::id().wrapping_add(number) as u8;
            let mut free = SUBNETS.map(|n| n.wrapping_add(start) % 250).filter(|n| *n > 0 && !taken.contains(n));
            let Some(subnet) = free.next() else { break };
            let net = Self { name, subnet, places: 0, links: 0 };
            let made = ip(&format!("link add {} type bridge", net.name))
                .and_then(|()| ip(&format!("addr add 10.213.{subnet}.1/24 dev {}", net.name)))
                .and_then(|()| ip(&format!("link set {} up", net.name)));
            match made {
                Ok(()) => return Ok(net),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// This machine's own address in it.
    pub fn host(&self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 213, self.subnet, 1))
    }

    /// Adds a place.
    ///
    /// # Errors
    /// The error of `ip`.
    pub fn place(&mut self) -> Result<Place, String> {
        self.places += 1;
        let number = self.places;
        let namespace = format!("{}p{number}", self.name);
        // Names of links use the bridge's own digits, to stay within 15 characters.
        let link = format!("tl{}p{number}", self.name.trim_start_matches(PREFIX));
        let link = link.get(link.len().saturating_sub(15)..).unwrap_or(&link).to_owned();
        let (bridge, subnet, own) = (&self.name, self.subnet, number + 10);
        for command in [
            format!("netns add {namespace}"),
            format!("link add {link} type veth peer name eth0 netns {namespace}"),
            format!("link set {link} master {bridge} up"),
            format!("-n {namespace} addr add 10.213.{subnet}.{own}/24 dev eth0"),
            format!("-n {namespace} link set eth0 up"),
            format!("-n {namespace} link set lo up"),
        ] {
            ip(&command)?;
        }
        Ok(Place { namespace, link, ip: IpAddr::V4(Ipv4Addr::new(10, 213, subnet, own)) })
    }

    /// Adds a second link, to this network, to a place of another one: what passes over it can be cut alone.
    ///
    /// # Errors
    /// The error of `ip`.
    pub fn link_to(&mut self, place: &Place) -> Result<Place, String> {
        self.links += 1;
        let number = self.links;
        let namespace = place.namespace.clone();
        let link = format!("tk{}p{number}", self.name.trim_start_matches(PREFIX));
        let link = link.get(link.len().saturating_sub(15)..).unwrap_or(&link).to_owned();
        let (bridge, subnet, own) = (&self.name, self.subnet, number + 100);
        for command in [
            format!("link add {link} type veth peer name eth1 netns {namespace}"),
            format!("link set {link} master {bridge} up"),
            format!("-n {namespace} addr add 10.213.{subnet}.{own}/24 dev eth1"),
            format!("-n {namespace} link set eth1 up"),
        ] {
            ip(&command)?;
        }
        Ok(Place { namespace, link, ip: IpAddr::V4(Ipv4Addr::new(10, 213, subnet, own)) })
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for number in 1..=self.places {
            let _ = ip(&format!("netns del {}p{number}", self.name));
        }
        let _ = ip(&format!("link del {}", self.name));
    }
}

impl Place {
    /// The same command, run inside the namespace. The process keeps its id.
    pub fn within(&self, command: &Command) -> Command {
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", &self.namespace]).arg(command.get_program()).args(command.get_args());
        inside.env_clear();
        for (name, value) in command.get_envs() {
            if let Some(value) = value {
                inside.env(name, value);
            }
        }
        if let Some(folder) = command.get_current_dir() {
            inside.current_dir(folder);
        }
        inside
    }

    /// Takes its link down, or up.
    ///
    /// # Panics
    /// When `ip` cannot.
    pub fn set_link(&self, up: bool) {
        let state = if up { "up" } else { "down" };
        ip(&format!("link set {} {state}", self.link)).unwrap_or_else(|why| panic!("{why}"));
    }

    /// How often its link went down so far, and whether it is up, as counted by the kernel.
    pub fn link_state(&self) -> (u64, bool) {
        let read = |name: &str| fs::read_to_string(format!("/sys/class/net/{}/{name}", self.link)).unwrap_or_default();
        (read("carrier_down_count").trim().parse().unwrap_or(0), read("operstate").trim() == "up")
    }
}

fn taken_subnets() -> Vec<u8> {
    let output = Command::new("ip").args(["-4", "addr"]).output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    text.split("10.213.").skip(1).filter_map(|rest| rest.split('.').next()?.parse().ok()).collect()
}

/// Removes what tests left behind whose process has ended.
fn clean_up() {
    let gone = |name: &str| {
        let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split('x').next()).unwrap_or_default();
        !process.is_empty() && !Path::new("/proc").join(process).exists()
    };
    let names = |folder: &str| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|e| e.file_name().into_string().ok()).filter(|n| n.starts_with(PREFIX)).collect::<Vec<_>>()
    };
    for namespace in names("/run/netns").iter().filter(|n| gone(n)) {
        let _ = ip(&format!("netns del {namespace}"));
    }
    for bridge in names("/sys/class/net").iter().filter(|n| gone(n)) {
        let _ = ip(&format!("link del {bridge}"));
    }
}

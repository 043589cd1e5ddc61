//! `trawl coordinators`, `trawl workers`, `trawl drain`: the processes of a cluster.

use std::process::ExitCode;

use serde::Serialize;
use trawl_wire::pb;

use super::scans::{ClientArgs, ask, columns, json_lines, print};
use crate::failure::DONE;

/// List the coordinators of a cluster, and which of them leads
#[derive(Debug, clap::Args)]
pub struct CoordinatorsArgs {
    #[command(flatten)]
    client: ClientArgs,

    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
}

/// List the workers of a cluster
#[derive(Debug, clap::Args)]
pub struct WorkersArgs {
    #[command(flatten)]
    client: ClientArgs,

    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
}

/// Ask a worker to finish its shards, accept no more, and exit
#[derive(Debug, clap::Args)]
pub struct DrainArgs {
    /// The worker's id, as 'trawl workers' shows it
    worker: String,

    #[command(flatten)]
    client: ClientArgs,
}

/// One coordinator, as it is printed as JSON.
#[derive(Serialize)]
pub(super) struct CoordinatorLine<'a> {
    coordinator: &'a str,
    leads: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<i64>,
    address: &'a str,
    boot: &'a str,
}

pub(super) fn coordinator_line(found: &pb::CoordinatorInfo) -> CoordinatorLine<'_> {
    CoordinatorLine {
        coordinator: &found.id,
        leads: found.leads,
        epoch: found.leads.then_some(found.epoch),
        address: &found.address,
        boot: &found.boot,
    }
}

/// Lists coordinators.
pub fn coordinators(args: &CoordinatorsArgs) -> anyhow::Result<ExitCode> {
    let coordinators = ask(&args.client, async |manager| manager.coordinators().await)?;
    if args.json {
        print(&json_lines(coordinators.iter().map(coordinator_line))?)?;
        return Ok(ExitCode::from(DONE));
    }
    let head = ["COORDINATOR", "STATE", "ADDRESS"].map(str::to_owned).to_vec();
    let row = |c: &pb::CoordinatorInfo| {
        let state = if c.leads { format!("leads, epoch {}", c.epoch) } else { "standby".to_owned() };
        vec![c.id.clone(), state, c.address.clone()]
    };
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(coordinators.iter().map(row)).collect();
    print(&columns(&rows))?;
    if !coordinators.iter().any(|c| c.leads) {
        print("no coordinator leads at present\n")?;
    }
    Ok(ExitCode::from(DONE))
}

/// One worker, as it is printed as JSON.
#[derive(Serialize)]
pub(super) struct WorkerLine<'a> {
    worker: &'a str,
    state: &'a str,
    address: &'a str,
    threads: u32,
    shards_in_flight: u32,
    class: &'a str,
    boot: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    loads: Option<LoadsLine>,
}

/// Where the bars of a worker's segments were since it was started, and how much of the fetching computing hid.
#[derive(Serialize)]
struct LoadsLine {
    memory: u64,
    disk: u64,
    data_root: u64,
    fetch_s: f64,
    wait_s: f64,
    /// From 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    hidden: Option<f64>,
}

impl LoadsLine {
    fn of(loads: &pb::CacheLoads) -> Self {
        let seconds = |us: u64| us as f64 / 1e6;
        let (fetch_s, wait_s) = (seconds(loads.fetch_us), seconds(loads.wait_us));
        let hidden = (fetch_s > 0.0).then(|| (1.0 - wait_s / fetch_s).max(0.0));
        Self { memory: loads.memory, disk: loads.disk, data_root: loads.data_root, fetch_s, wait_s, hidden }
    }

    /// The shares of the places, without those that had none; `-` before anything was loaded.
    fn places(&self) -> String {
        let all = [("memory", self.memory), ("disk", self.disk), ("data root", self.data_root)];
        let sum = all.iter().fold(0u64, |sum, (_, loads)| sum.saturating_add(*loads));
        let share = |(place, loads): &(&str, u64)| {
            (*loads > 0).then(|| format!("{place} {}", percent(*loads as f64 / sum as f64)))
        };
        let shares: Vec<String> = all.iter().filter_map(share).collect();
        if shares.is_empty() { NOTHING.to_owned() } else { shares.join(", ") }
    }
}

/// In a column without a value.
const NOTHING: &str = "-";

/// A share from 0 to 1.
fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

pub(super) fn worker_line(found: &pb::WorkerInfo) -> WorkerLine<'_> {
    WorkerLine {
        worker: &found.id,
        state: &found.state,
        address: &found.address,
        threads: found.threads,
        shards_in_flight: found.shards_in_flight,
        class: &found.execution_class,
        boot: &found.boot,
        loads: found.loads.as_ref().map(LoadsLine::of),
    }
}

/// Lists workers.
pub fn workers(args: &WorkersArgs) -> anyhow::Result<ExitCode> {
    let workers = ask(&args.client, async |manager| manager.workers().await)?;
    if args.json {
        print(&json_lines(workers.iter().map(worker_line))?)?;
        return Ok(ExitCode::from(DONE));
    }
    if workers.is_empty() {
        print("no worker is registered; start one with 'trawl worker'\n")?;
        return Ok(ExitCode::from(DONE));
    }
    let head = ["WORKER", "STATE", "ADDRESS", "THREADS", "SHARDS", "BARS FROM", "HIDDEN", "CLASS"];
    let head = head.map(str::to_owned).to_vec();
    let row = |w: &pb::WorkerInfo| {
        let (threads, shards) = (w.threads.to_string(), w.shards_in_flight.to_string());
        let loads = w.loads.as_ref().map(LoadsLine::of);
        let places = loads.as_ref().map_or_else(|| NOTHING.to_owned(), LoadsLine::places);
        let hidden = loads.and_then(|loads| loads.hidden).map_or_else(|| NOTHING.to_owned(), percent);
        let class = w.execution_class.clone();
        vec![w.id.clone(), w.state.clone(), w.address.clone(), threads, shards, places, hidden, class]
    };
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(workers.iter().map(row)).collect();
    print(&columns(&rows))?;
    Ok(ExitCode::from(DONE))
}

/// Asks a worker to leave.
pub fn drain(args: &DrainArgs) -> anyhow::Result<ExitCode> {
    let worker = args.worker.clone();
    let shards = ask(&args.client, async |manager| manager.drain(&worker).await)?;
    print(&format!(
        "worker {} is leaving; it finishes {} first\n",
        args.worker,
        trawl_front::human::counted(shards as usize, "shard")
    ))?;
    Ok(ExitCode::from(DONE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_shares_and_what_is_hidden_is_what_nobody_waited_for() {
        let line = LoadsLine::of(&pb::CacheLoads {
            memory: 6,
            disk: 0,
            data_root: 2,
            fetch_us: 4_000_000,
            wait_us: 1_000_000,
        });
        assert_eq!(line.places(), "memory 75%, data root 25%");
        assert_eq!(line.hidden.map(percent).as_deref(), Some("75%"));
        let none = LoadsLine::of(&pb::CacheLoads::default());
        assert_eq!((none.places().as_str(), none.hidden), (NOTHING, None));
        let slow = LoadsLine::of(&pb::CacheLoads { wait_us: 9, fetch_us: 3, ..pb::CacheLoads::default() });
        assert_eq!(slow.hidden, Some(0.0), "the load itself takes time as well");
    }
}

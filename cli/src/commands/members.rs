//! `trawl coordinators`, `trawl workers`, `trawl drain`: the processes of a cluster.

use std::process::ExitCode;

use trawl_front::records::{CoordinatorLine, LoadsLine, WorkerLine};
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

/// Lists coordinators.
pub fn coordinators(args: &CoordinatorsArgs) -> anyhow::Result<ExitCode> {
    let coordinators = ask(&args.client, async |manager| manager.coordinators().await)?;
    if args.json {
        print(&json_lines(coordinators.iter().map(CoordinatorLine::of))?)?;
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

/// The shares of the places, without those that had none; `-` before anything was loaded.
fn places(loads: &LoadsLine) -> String {
    let all = [("memory", loads.memory), ("disk", loads.disk), ("data root", loads.data_root)];
    let sum = all.iter().fold(0u64, |sum, (_, loads)| sum.saturating_add(*loads));
    let share =
        |(place, loads): &(&str, u64)| (*loads > 0).then(|| format!("{place} {}", percent(*loads as f64 / sum as f64)));
    let shares: Vec<String> = all.iter().filter_map(share).collect();
    if shares.is_empty() { NOTHING.to_owned() } else { shares.join(", ") }
}

/// In a column without a value.
const NOTHING: &str = "-";

/// A share from 0 to 1.
fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// Lists workers.
pub fn workers(args: &WorkersArgs) -> anyhow::Result<ExitCode> {
    let workers = ask(&args.client, async |manager| manager.workers().await)?;
    if args.json {
        print(&json_lines(workers.iter().map(WorkerLine::of))?)?;
        return Ok(ExitCode::from(DONE));
    }
    if workers.is_empty() {
        print("no worker is registered; start one with 'trawl worker'\n")?;
        return Ok(ExitCode::from(DONE));
    }
    let head = ["WORKER", "STATE", "ADDRESS", "THREADS", "SHARDS", "BARS FROM", "HIDDEN", "DEVICES", "CLASS"];
    let head = head.map(str::to_owned).to_vec();
    let row = |w: &pb::WorkerInfo| {
        let (threads, shards) = (w.threads.to_string(), w.shards_in_flight.to_string());
        let loads = w.loads.as_ref().map(LoadsLine::of);
        let places = loads.as_ref().map_or_else(|| NOTHING.to_owned(), places);
        let hidden = loads.and_then(|loads| loads.hidden).map_or_else(|| NOTHING.to_owned(), percent);
        let class = w.execution_class.clone();
        let devices = if w.device_health.is_empty() { NOTHING } else { &w.device_health }.to_owned();
        vec![w.id.clone(), w.state.clone(), w.address.clone(), threads, shards, places, hidden, devices, class]
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
        assert_eq!(places(&line), "memory 75%, data root 25%");
        assert_eq!(line.hidden.map(percent).as_deref(), Some("75%"));
        let none = LoadsLine::of(&pb::CacheLoads::default());
        assert_eq!((places(&none).as_str(), none.hidden), (NOTHING, None));
        let slow = LoadsLine::of(&pb::CacheLoads { wait_us: 9, fetch_us: 3, ..pb::CacheLoads::default() });
        assert_eq!(slow.hidden, Some(0.0), "the load itself takes time as well");
    }
}

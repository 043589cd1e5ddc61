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
    let head = ["WORKER", "STATE", "ADDRESS", "THREADS", "SHARDS", "CLASS"].map(str::to_owned).to_vec();
    let row = |w: &pb::WorkerInfo| {
        let (threads, shards) = (w.threads.to_string(), w.shards_in_flight.to_string());
        vec![w.id.clone(), w.state.clone(), w.address.clone(), threads, shards, w.execution_class.clone()]
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
        crate::human::counted(shards as usize, "shard")
    ))?;
    Ok(ExitCode::from(DONE))
}

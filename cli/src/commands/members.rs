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
struct CoordinatorLine<'a> {
    coordinator: &'a str,
    leads: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<i64>,
    address: &'a str,
    boot: &'a str,
}

/// Lists coordinators.
pub fn coordinators(args: &CoordinatorsArgs) -> anyhow::Result<ExitCode> {
    let coordinators = ask(&args.client, async |manager| manager.coordinators().await)?;
    if args.json {
        let lines = coordinators.iter().map(|c| CoordinatorLine {
            coordinator: &c.id,
            leads: c.leads,
            epoch: c.leads.then_some(c.epoch),
            address: &c.address,
            boot: &c.boot,
        });
        print(&json_lines(lines)?)?;
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
struct WorkerLine<'a> {
    worker: &'a str,
    state: &'a str,
    address: &'a str,
    threads: u32,
    shards_in_flight: u32,
    class: &'a str,
    boot: &'a str,
}

/// Lists workers.
pub fn workers(args: &WorkersArgs) -> anyhow::Result<ExitCode> {
    let workers = ask(&args.client, async |manager| manager.workers().await)?;
    if args.json {
        let lines = workers.iter().map(|w| WorkerLine {
            worker: &w.id,
            state: &w.state,
            address: &w.address,
            threads: w.threads,
            shards_in_flight: w.shards_in_flight,
            class: &w.execution_class,
            boot: &w.boot,
        });
        print(&json_lines(lines)?)?;
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
